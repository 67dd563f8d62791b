"""The lexer of Pygments and the TextMate grammar see the words of the language's scanner, in every program of the repository."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace, _TokenType

from tensorlang.diagnostics import Source
from tensorlang.lsp.lexer import TensorlangLexer
from tensorlang.lsp.words import RULES
from tensorlang.schedule.directives.table import DIRECTIVES, TABLE
from tensorlang.syntax import scanner
from tensorlang.syntax.parse import parse, parse_parts
from tensorlang.syntax.scanner import DECLARATION_WORDS, PREPOSITIONS, RESERVED

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import grammar  # noqa: E402

FILES = sorted(p for folder in ("stdlib", "tensorlang", "tests", "examples") for p in (ROOT / folder).rglob("*.tl"))
SHARES = 8
"""How many tests share the programs out."""
GRAMMAR = json.loads(grammar.FILE.read_text("utf-8"))

KEYWORDS = {t.upper() for t in RESERVED} | {
    "PREPOSITION",
    "REDUCER",
    "SCHEDULE",
    "TACTIC",
    "INSTRUCTION",
    "ORDERED",
    "ROLE",
    "LIFT",
    "YIELD",
    "USE",
    "AS",
}
KEYWORDS |= {"STRICT", "REDUCE", "FAST", "LLVM", "AT"}
SIGNS = {*scanner._SIGNS.values(), "CALL", "EXPAND"}


@cache
def programs() -> list[str]:
    """Return every program of the repository, but for those that cannot be read, of pages about mistakes."""
    pages = (page.read_text("utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))
    shown = (text for page in pages for text in re.findall(r"^```tl\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    return [text for text in (*(p.read_text("utf-8") for p in FILES), *shown) if not parse_parts(Source("f.tl", text))[1]]


@cache
def lexemes(text: str) -> dict[tuple[int, int], str]:
    """Return place → what it is for the parser: every terminal, and comments."""
    source = Source("f.tl", text)
    found = scanner.scan(source)
    out = {(c.offset, c.offset + len(c.text)): "COMMENT" for c in found.comments}
    for chunk in scanner.split(found.lexemes, text):
        out |= {(t.start, t.end): t.type for t in scanner.refine(chunk).tokens if t.type != "NEWLINE"}
    return out


def kinds(type_: str, value: str, starts_line: bool) -> tuple[_TokenType, ...]:
    """Return what a terminal may be coloured as."""
    if type_ == "NAME" and starts_line and value in DIRECTIVES:
        return (Keyword, Name)
    if type_ in KEYWORDS:
        return (Keyword,)
    return {"COMMENT": (Comment,), "TEXT": (String,), "NUMBER": (Number,)}.get(
        type_, (Operator, Punctuation) if type_ in SIGNS else (Name, Keyword)
    )


@cache
def coloured(text: str) -> list[tuple[int, int, _TokenType]]:
    found = TensorlangLexer().get_tokens_unprocessed(text)
    return [(start, start + len(value), token) for start, token, value in found if token not in (Whitespace, Text)]


def scoped(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield what the TextMate grammar finds: in each line, the pattern that matches first, and of several there the first of the list."""
    rules = [(re.compile(p["match"], re.MULTILINE), p["name"]) for p in GRAMMAR["patterns"]]
    start = 0
    for line in text.split("\n"):
        at = 0
        while at < len(line):
            hits = [(m.start(), k, m.end()) for k, (rule, _) in enumerate(rules) if (m := rule.search(line, at)) and m.end() > m.start()]
            if not hits:
                break
            begin, k, at = min(hits)
            yield start + begin, start + at, rules[k][1]
        start += len(line) + 1


def test_the_programs_are_many() -> None:
    assert len(programs()) > 300


@pytest.mark.parametrize("share", range(SHARES))
def test_pygments_splits_programs_into_the_words_of_the_scanner(share: int) -> None:
    for text in programs()[share::SHARES]:
        wanted = lexemes(text)
        found = {(a, b): token for a, b, token in coloured(text)}
        assert Error not in found.values(), text
        assert {k for k in found if found[k] not in Comment} == {k for k in wanted if wanted[k] != "COMMENT"}, text
        for place, type_ in wanted.items():
            if type_ != "COMMENT":
                starts_line = not text[: place[0]].rsplit("\n", 1)[-1].strip()
                value = text[slice(*place)]
                assert any(found[place] in kind for kind in kinds(type_, value, starts_line)), (value, type_, found[place])


def test_some_programs_use_other_files() -> None:
    found = {type_ for text in programs() for type_ in lexemes(text).values()}
    assert {"USE", "AS", "QUALIFIED"} <= found


def test_both_agree_on_every_program() -> None:
    tokens = {f"{rule.scope}.tensorlang": rule.token for rule in RULES}
    for text in programs():
        there = [(a, b, str(token).removeprefix("Token.").replace("Literal.", "")) for a, b, token in coloured(text)]
        here = [(a, b, tokens[name]) for a, b, name in scoped(text)]
        assert here == there


def test_every_directive_that_begins_a_line_is_a_keyword() -> None:
    for text in programs():
        file = parse(Source("f.tl", text))
        found = {a: token for a, _, token in coloured(text)}
        for declaration in file.declarations:
            for directive in getattr(declaration, "body", ()):
                if getattr(directive, "name", "") in DIRECTIVES:
                    assert found[directive.span.start] in Keyword, text[directive.span.start : directive.span.end]


def test_every_keyword_of_the_language_is_known() -> None:
    known = "\n".join(rule.pattern for rule in RULES if rule.token.startswith("Keyword"))
    words = {*RESERVED, *PREPOSITIONS, *DECLARATION_WORDS, *DIRECTIVES, "instruction", "role", "lift", "yield", "llvm"}
    assert [word for word in sorted(words) if not re.search(rf"\b{word}\b", known)] == []
    assert set(TABLE) == set(DIRECTIVES)


def test_the_grammar_is_the_one_that_the_table_makes() -> None:
    assert grammar.main(["--check"]) == 0


def test_pygments_finds_the_lexer_by_its_name() -> None:
    assert type(get_lexer_by_name("tensorlang")) is TensorlangLexer and type(get_lexer_by_name("tl")) is TensorlangLexer


# ---- the extension


def test_the_extension_names_files_that_exist() -> None:
    folder = ROOT / "editors" / "vscode"
    manifest = json.loads((folder / "package.json").read_text("utf-8"))
    contributed = manifest["contributes"]
    named = [
        manifest["main"],
        *(entry["configuration"] for entry in contributed["languages"]),
        *(g["path"] for g in contributed["grammars"]),
    ]
    assert [name for name in named if not (folder / name).is_file()] == []
    assert contributed["grammars"][0]["scopeName"] == GRAMMAR["scopeName"]
    assert contributed["configuration"]["properties"]["tensorlang.command"]["default"] == ["tensorlang", "lsp"]
    json.loads((folder / "language-configuration.json").read_text("utf-8"))


STUBS = """
const Module = require("module");
const log = [];
class LanguageClient {
    constructor(id, name, server, options) { this.server = server; this.options = options; }
    async start() { log.push(["start", this.server.command, ...this.server.args, this.options.documentSelector[0].language]); }
    async stop() { log.push(["stop"]); }
}
const registered = {};
const stubs = {
    vscode: {
        commands: { registerCommand: (name, run) => (registered[name] = run, { dispose() {} }) },
        window: { showErrorMessage: (text) => log.push(["error", text]) },
        workspace: { getConfiguration: () => ({ get: () => ["tensorlang", "lsp"] }) },
    },
    "vscode-languageclient/node": { LanguageClient, TransportKind: { stdio: 0 } },
};
const load = Module._load;
Module._load = (name, ...rest) => stubs[name] ?? load(name, ...rest);
const extension = require(process.argv[2]);
(async () => {
    await extension.activate({ subscriptions: [] });
    await registered["tensorlang.restart"]();
    await extension.deactivate();
    console.log(JSON.stringify(log));
})();
"""


def test_the_extension_starts_restarts_and_stops_the_server(tmp_path: Path) -> None:
    node = shutil.which("node")
    source = (ROOT / "editors" / "vscode" / "extension.js").read_text("utf-8")
    if node is None:  # a machine without it: what the client is told can still be read
        assert 'get("command")' in source and "documentSelector" in source
        return
    (tmp_path / "run.js").write_text(STUBS)
    done = subprocess.run(
        [node, "run.js", str(ROOT / "editors" / "vscode" / "extension.js")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    started = ["start", "tensorlang", "lsp", "tensorlang"]
    assert json.loads(done.stdout) == [started, ["stop"], started, ["stop"]]
