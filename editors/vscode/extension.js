// Starts the language server, `tensorlang lsp`, for every tensorlang text, and stops it with the editor.
"use strict";

const { commands, window, workspace } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

function made() {
    const [command, ...args] = workspace.getConfiguration("tensorlang").get("command");
    const server = { command, args, transport: TransportKind.stdio };
    return new LanguageClient("tensorlang", "tensorlang", server, { documentSelector: [{ language: "tensorlang" }] });
}

async function started() {
    client = made();
    try {
        await client.start();
    } catch (problem) {
        const help = "install it with `pip install 'tensorlang[lsp]'`, or set `tensorlang.command`";
        window.showErrorMessage(`tensorlang lsp did not start: ${problem.message}; ${help}`);
    }
}

async function stopped() {
    const running = client;
    client = undefined;
    if (running !== undefined) {
        await running.stop().catch(() => {}); // one that did not start cannot be stopped
    }
}

async function activate(context) {
    const restart = async () => {
        await stopped();
        await started();
    };
    context.subscriptions.push(commands.registerCommand("tensorlang.restart", restart));
    await started();
}

module.exports = { activate, deactivate: stopped };
