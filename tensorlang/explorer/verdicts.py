"""The verdict on a schedule that is being written: whether it is proven, the tree of its loops, its picture, and what cures a refusal."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

from polyhedral.expr import Int
from polyhedral.legality import Violation
from polyhedral.schedule import show as show_tree
from tensorlang.check.definition import Representative
from tensorlang.diagnostics import CompileError, Diagnostic, render
from tensorlang.explorer.subject import Subject, drawn_sizes, representative_of
from tensorlang.picture.points import Space, space
from tensorlang.picture.svg import draw
from tensorlang.policy.complete import completed, is_partial
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import read
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import judged
from tensorlang.schedule.cures.cure import cured
from tensorlang.schedule.cures.refusal import Refusal
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.walk import substitute_sizes

Outcome = Literal["proven", "refused", "unknown", "unreadable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`tree` and `picture` are of the schedule as it is, legal or not, where there are any; `found` is why it is refused."""

    outcome: Outcome
    messages: tuple[Diagnostic, ...]
    tree: str
    picture: str
    drawn: str
    seconds: float
    found: Refusal | None = None


def verdict_on(subject: Subject, name: str, directives: str) -> Verdict:
    """Return the verdict on directives for an operator, for all its sizes; for the usual ones where directives need numbers. What cures a
    refusal is not looked for (`cure_of`)."""
    begun = time.perf_counter()
    whole = representative_of(subject, name)
    program = whole.program
    messages: tuple[Diagnostic, ...] = ()
    for candidate in (program, substitute_sizes(program, {n: Int(v) for n, v in drawn_sizes(program).items()})):
        try:
            schedule = _read(subject, name, directives, whole._replace(program=candidate))
            found = judged(candidate, schedule, None, None, advised=False)
        except CompileError as refused:
            messages = messages or refused.diagnostics
            if messages[0].code.startswith(("P", "S05", "S06")):
                break
            continue
        plan = found if isinstance(found, Plan) else apply(candidate, schedule)
        refusal = None if isinstance(found, Plan) else found
        refuted = refusal.refuted if refusal is not None else None
        picture, drawn = _drawn(subject, name, directives, whole, refuted if isinstance(refuted, Violation) else None)
        told = () if refusal is None else (refusal.diagnostic,)
        seconds = time.perf_counter() - begun
        outcome: Outcome = "refused" if refusal is not None else "unknown" if plan.trusted else "proven"
        return Verdict(outcome, told, show_tree(plan.placed), picture, drawn, seconds, refusal)
    undecided = messages[0].code == "S0400"
    return Verdict("unknown" if undecided else "unreadable", messages, "", "", "", time.perf_counter() - begun)


def cure_of(subject: Subject, name: str, directives: str) -> Diagnostic | None:
    """Return why directives are refused, with the edits that cure it; None where they are not refused for their order."""
    whole = representative_of(subject, name)
    try:
        found = judged(whole.program, _read(subject, name, directives, whole), None, None, advised=True)
    except CompileError:
        return None
    return None if isinstance(found, Plan) else cured(found)


def _read(subject: Subject, name: str, directives: str, whole: Representative) -> Schedule:
    """Return the schedule that directives are for a program, complete where they leave something to derive."""
    program = whole.program
    given = subject.operators[name].schedule(directives).given
    module = subject.operators[name].module
    schedule = read(module, given, program, attrs=whole.attrs).schedule if isinstance(given, sx.Schedule) else Schedule(name)
    return completed(program, schedule, Machine(target="cpu")).schedule if is_partial(schedule) else schedule


def _drawn(subject: Subject, name: str, directives: str, whole: Representative, witness: Violation | None) -> tuple[str, str]:
    """Return the picture of a schedule and what it shows in words, or nothing and why there is none. A witness is drawn among more
    instances than there are at its sizes, where it refutes the order there as well."""
    why, program = "", whole.program
    tries = [drawn_sizes(program, witness.params if witness is not None else None)]
    tries += [] if witness is None else [{n: witness.params.get(n, 8) for n in program.sizes}]
    for sizes in tries:
        known = substitute_sizes(program, {n: Int(v) for n, v in sizes.items()})
        try:
            plan = apply(known, _read(subject, name, directives, whole._replace(program=known)))
            found = space(plan, sizes, witness=witness)
        except CompileError as refused:
            why = refused.diagnostics[0].title
            continue
        if witness is None or sizes == tries[-1] or _shows(found, witness):
            at = ", ".join(f"{n} = {v}" for n, v in sizes.items())
            return draw(found), f"drawn for {at}" if at else ""
    return "", f"no picture: {why}"


def _shows(found: Space, witness: Violation) -> bool:
    """Tell whether the instances of a witness refute a schedule in a picture, too: the dependence between them is broken there, or they run
    at once."""
    points = {p.place: p for p in found.points}
    source, target = (points.get(place) if place is not None else None for place in found.witness)
    if source is None or target is None or source is target:
        return False
    match witness.kind:
        case "race":
            return source.thread != target.thread
        case "lane":
            return source.thread == target.thread and source.lane == target.lane
        case _:
            places = [p.place for p in found.points]
            return any(a.broken and (places[a.source], places[a.target]) == found.witness for a in found.arrows)


def verdict_data(found: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON has it."""
    return {
        "outcome": found.outcome,
        "messages": [message_data(d) for d in found.messages],
        "tree": found.tree,
        "picture": found.picture,
        "drawn": found.drawn,
        "milliseconds": round(found.seconds * 1000, 1),
    }


def message_data(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic of directives as JSON has it: its text, the range of characters of the first label, and its edits."""
    main = next((label.span for label in diagnostic.labels if label.span.source.name == SCHEDULE), None)
    edits = [{**_range(e.span.source.text, e.span.start, e.span.end), "text": e.text} for e in diagnostic.edits]
    return {
        "code": diagnostic.code,
        "title": diagnostic.title,
        "text": render(replace(diagnostic, edits=())),
        "range": None if main is None else _range(main.source.text, main.start, main.end),
        "edits": edits if all(e.span.source.name == SCHEDULE for e in diagnostic.edits) else [],
    }


SCHEDULE = "<schedule>"
"""What the text of directives is called where it is read."""


def _range(text: str, start: int, end: int) -> dict[str, int]:
    """Return a range of characters of the directives, which stand behind the first line of the text that was read."""
    before = text.find("\n") + 1 if text.startswith("schedule ") else 0
    return {"start": max(start - before, 0), "end": max(end - before, 0)}
