"""An explorer in one file: the page with what is known of some schedules of each operator, to be read without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tensorlang.diagnostics import error
from tensorlang.explorer.explorer import Explorer
from tensorlang.explorer.page import page
from tensorlang.runtime.protocol import Progress, quiet

MOST_BYTES = 2_000_000
"""Of a file."""
MOST_CANDIDATES = 12
"""Of an operator."""


def exported(explorer: Explorer, *, measure: bool = False, progress: Progress = quiet) -> str:
    """Return the page with answers in it, of at most `MOST_BYTES` bytes: code, then whole candidates, are left out where there is no room.
    With `measure`, each schedule that is proven is measured. Raises CompileError C0244 where the text of the file alone is too long."""
    about = explorer.about()
    answers: dict[str, Any] = {}
    room = MOST_BYTES - len(page(about, answers={})[0].encode()) - 4096
    operators = [o["name"] for o in about["operators"]]
    for number, name in enumerate(operators):
        progress("exporting", number, len(operators))
        share = room // (len(operators) - number)
        answers[name] = _answers(explorer, name, share, measure)
        room -= _bytes(answers[name])
    text, _ = page(about, answers=answers)
    if len(text.encode()) > MOST_BYTES:
        raise error("C0244", f"the page would have more than {MOST_BYTES} bytes", help="name one operator of the file")
    return text


def _answers(explorer: Explorer, name: str, room: int, measure: bool) -> dict[str, Any]:
    """Return what is known of an operator: its candidates, each with what is found of it, as many as there is room for."""
    found = explorer.trial("candidates", name, None, {})
    if "error" in found:
        return found
    kept: list[dict[str, Any]] = []
    for candidate in _known(explorer, name, found["candidates"][:MOST_CANDIDATES], measure):
        size = _bytes(candidate)
        if size > room:
            candidate["code"] = {"forms": {"loops": "left out: the page would be too long"}}
            size = _bytes(candidate)
        if size > room:
            break
        kept.append(candidate)
        room -= size
    return {"candidates": kept}


def _known(explorer: Explorer, name: str, candidates: list[dict[str, Any]], measure: bool) -> Iterator[dict[str, Any]]:
    for candidate in candidates:
        directives = candidate["directives"]
        verdict = explorer.verdict(name, directives)
        is_proven = verdict.get("outcome") == "proven"
        code = explorer.trial("code", name, directives, {}) if is_proven else {"forms": {}}
        times = explorer.trial("time", name, directives, {}) if is_proven and measure else None
        yield {**candidate, "verdict": verdict, "code": code, "time": times if times is not None and "told" in times else None}


def _bytes(value: object) -> int:
    """Return how much room a value takes at most: `<`, `>` and `&` are written as six characters."""
    text = json.dumps(value)
    return len(text) + 5 * sum(map(text.count, "<>&"))
