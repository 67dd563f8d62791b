"""The explorer as a web application (WSGI): one page, and what it asks.

It answers nobody who does not know its token, and no page of another origin: a request names this host, and questions carry the token in
a header that other origins may not set. Nothing is read from disk by a name that comes from outside.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast
from urllib.parse import parse_qs

from tensorlang.explorer.explorer import Explorer
from tensorlang.explorer.page import page
from tensorlang.explorer.trials import Kind

MOST_BYTES = 1 << 18
"""Of a question."""
MOST_DIRECTIVES = 1 << 16
"""Characters of directives."""
TRIALS: frozenset[str] = frozenset(("code", "time", "candidates"))
Start = Callable[[str, list[tuple[str, str]]], object]
HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Refused(Exception):
    """A request that is not answered: the status, and why."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(status, why)
        self.status, self.why = status, why


class Application:
    """`hosts` are those that requests may name, once the server knows its port."""

    def __init__(self, explorer: Explorer, token: str, hosts: frozenset[str] = frozenset()) -> None:
        self.explorer, self.token, self.hosts = explorer, token, hosts

    def __call__(self, environ: Mapping[str, Any], start: Start) -> Iterable[bytes]:
        try:
            kind, body, policy = self._answered(environ)
            status = "200 OK"
        except Refused as refused:
            status, kind, body, policy = refused.status, "text/plain", f"{refused.why}\n".encode(), "default-src 'none'"
        sent = [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))), ("Content-Security-Policy", policy)]
        start(status, [*sent, *HEADERS])
        return [body]

    def _answered(self, environ: Mapping[str, Any]) -> tuple[str, bytes, str]:
        """Return the type of what answers a request, the answer, and what it may load. Raises Refused."""
        if environ.get("HTTP_HOST") not in self.hosts:
            raise Refused("403 Forbidden", "this server answers for its own address alone")
        method, path = environ.get("REQUEST_METHOD"), environ.get("PATH_INFO")
        if (method, path) == ("GET", "/"):
            self._check(parse_qs(str(environ.get("QUERY_STRING", ""))).get("token", [""])[0])
            text, policy = page(self.explorer.about(), token=self.token)
            return "text/html", text.encode(), policy
        if method != "POST" or path not in ("/verdict", "/cure", *(f"/{kind}" for kind in TRIALS)):
            raise Refused("404 Not Found", "there is nothing here")
        self._check(str(environ.get("HTTP_X_EXPLORER_TOKEN", "")))
        found = self._asked(str(path)[1:], _question(environ))
        return "application/json", json.dumps(found).encode(), "default-src 'none'"

    def _check(self, token: str) -> None:
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise Refused("403 Forbidden", "open the address that `tensorlang explore` has printed")

    def _asked(self, kind: str, question: Mapping[str, Any]) -> dict[str, Any]:
        name, directives, sizes = question.get("operator"), question.get("directives"), question.get("sizes", {})
        if not isinstance(name, str) or name not in self.explorer.subject.operators:
            raise Refused("400 Bad Request", "there is no such operator")
        if not (isinstance(directives, str) or (directives is None and kind in TRIALS)) or not isinstance(sizes, dict):
            raise Refused("400 Bad Request", "a question has an operator, directives and sizes")
        if len(directives or "") > MOST_DIRECTIVES:
            raise Refused("413 Content Too Large", "the directives are too long")
        if kind in TRIALS:
            return self.explorer.trial(cast(Kind, kind), name, directives, sizes)
        return self.explorer.verdict(name, directives or "") if kind == "verdict" else self.explorer.cure(name, directives or "")


def _question(environ: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object that a request carries. Raises Refused."""
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = -1
    if not 0 < length <= MOST_BYTES:
        raise Refused("413 Content Too Large", f"a question has 1 to {MOST_BYTES} bytes")
    try:
        found = json.loads(environ["wsgi.input"].read(length))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused("400 Bad Request", "a question is a JSON object")
    return found
