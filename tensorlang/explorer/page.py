"""The page of the explorer: one file without anything to load, that a server gives out or that is exported with its answers in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tensorlang.html import html_text
from tensorlang.lsp.words import RULES


def page(about: Mapping[str, Any], *, token: str = "", answers: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """Return the page and what it may load. `token`: what its questions carry; `answers`: of a page without a server, what is known of
    each operator."""
    colours = [{"token": rule.token.split(".")[0].lower(), "pattern": rule.pattern} for rule in RULES]
    data = {"about": about, "token": token, "answers": answers, "colours": colours}
    style, script = _part("page.css"), _part("page.js")
    connects = "connect-src 'none'" if answers is not None else "connect-src 'self'"
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'; img-src data: blob:; {connects}"
    policy += "; base-uri 'none'; form-action 'none'"
    parts = {
        "TITLE": html_text(f"{about['file']} – tensorlang explore"),
        "POLICY": html_text(policy),
        "STYLE": style,
        "DATA": _inert(json.dumps(data)),
        "SCRIPT": script,
    }
    text = re.sub("@([A-Z]+)@", lambda found: parts[found[1]], _part("page.html"))
    return text, f"{policy}; frame-ancestors 'none'"


def _part(name: str) -> str:
    return files("tensorlang.explorer").joinpath(name).read_text("utf-8")


def _inert(text: str) -> str:
    """Return JSON that ends no element it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
