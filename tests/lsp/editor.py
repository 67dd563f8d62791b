"""An editor for tests: a client that talks to `tensorlang lsp` over its standard input and output, message by message."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 300
"""How long nothing may come: for a server that hangs, on a machine that does much else."""


class Editor:
    """One connection. Positions are (line, column) from zero, columns in UTF-16 units as editors count."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.diagnostics: dict[str, list[tuple[int | None, list[dict[str, Any]]]]] = {}
        self.arrivals: dict[str, list[float]] = {}
        """When each of these came."""
        self.log: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.capabilities: dict[str, Any] = {}
        self._count = 0
        threading.Thread(target=self._read, daemon=True).start()

    # ---- messages

    def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        while True:
            length = 0
            while (line := out.readline()) not in (b"\r\n", b""):
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            if not length:
                self.inbox.put(None)
                return
            self.inbox.put(json.loads(out.read(length)))

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def tell(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> Any:
        self._count += 1
        number = self._count
        self.send({"id": number, "method": method, "params": params})
        while True:
            message = self._next()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message["error"]
                return message["result"]

    def _next(self) -> dict[str, Any]:
        message = self.inbox.get(timeout=SECONDS)
        assert message is not None, "the server has ended"
        if message.get("method") == "textDocument/publishDiagnostics":
            params = message["params"]
            self.diagnostics.setdefault(params["uri"], []).append((params.get("version"), params["diagnostics"]))
            self.arrivals.setdefault(params["uri"], []).append(time.perf_counter())
        elif message.get("method") == "window/logMessage":
            self.log.append(message["params"]["message"])
        elif "id" in message and "method" in message:
            self.asked.append(message)
            self.send({"id": message["id"], "result": None})
        return message

    # ---- what an editor does

    def start(self, **capabilities: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities})["capabilities"]
        self.tell("initialized", {})
        return found

    def open(self, uri: str, text: str, version: int = 1) -> None:
        self.tell("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "tensorlang", "version": version, "text": text}})

    def replace(self, uri: str, text: str, version: int) -> None:
        self.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]})

    def type(self, uri: str, at: tuple[int, int], text: str, version: int, until: tuple[int, int] | None = None) -> None:
        where = {"start": _place(at), "end": _place(until or at)}
        change = {"range": where, "text": text}
        self.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]})

    def close(self, uri: str) -> None:
        self.tell("textDocument/didClose", {"textDocument": {"uri": uri}})

    def problems(self, uri: str, version: int) -> list[dict[str, Any]]:
        """Return the diagnostics of a version, once all of it is checked."""
        self.first_problems(uri, version)
        self.hover(uri, (0, 0))  # which is answered once it is
        return [diagnostics for found, diagnostics in self.diagnostics[uri] if found == version][-1]

    def first_problems(self, uri: str, version: int) -> list[dict[str, Any]]:
        """Return the first diagnostics of a version, once they have come: of what takes long to check, what was said before."""
        while True:
            for found, diagnostics in self.diagnostics.get(uri, []):
                if found == version:
                    return diagnostics
            self._next()

    def at(self, method: str, uri: str, place: tuple[int, int]) -> Any:
        return self.ask(f"textDocument/{method}", {"textDocument": {"uri": uri}, "position": _place(place)})

    def hover(self, uri: str, place: tuple[int, int]) -> str:
        found = self.at("hover", uri, place)
        return "" if found is None else str(found["contents"]["value"])

    def words(self, uri: str, place: tuple[int, int]) -> dict[str, str]:
        """Return what completion offers, with its details."""
        return {item["label"]: item.get("detail", "") for item in self.at("completion", uri, place)}

    def formatted(self, uri: str) -> list[dict[str, Any]]:
        options = {"tabSize": 4, "insertSpaces": True}
        found: list[dict[str, Any]] = self.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": options})
        return found


def _place(at: tuple[int, int]) -> dict[str, int]:
    return {"line": at[0], "character": at[1]}


@contextmanager
def editor(cache: Path, *command: str) -> Iterator[Editor]:
    """Yield an editor whose server was started a moment ago, by `tensorlang lsp` or other arguments of Python; it has to end when asked
    to, without a word on standard error."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TENSORLANG_CACHE": str(cache)}
    arguments = [sys.executable, *(command or ("-m", "tensorlang", "lsp"))]
    with open(cache / "stderr", "wb") as errors:
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, cwd=cache)
        found = Editor(process)
        try:
            yield found
            found.ask("shutdown", None)
            found.tell("exit", None)
            assert process.wait(SECONDS) == 0, (cache / "stderr").read_text()
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
    assert found.log == []
    assert (cache / "stderr").read_text() == ""


def place_of(text: str, mark: str) -> tuple[str, tuple[int, int]]:
    """Return a text without the one `mark` in it, and where that stood, columns in UTF-16 units."""
    before, after = text.split(mark)
    line = before.rsplit("\n", 1)[-1]
    return before + after, (before.count("\n"), len(line.encode("utf-16-le")) // 2)
