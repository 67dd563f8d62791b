"""The first replacement of a refused directive that is proven, as a sentence and as an edit of the text.

    order j, i            skew j by i           the rest of the schedule stays as it is, where that is legal then
                          order j, i

What is tried comes from the refusal: skews, other orders, other loops, larger folds (`orders`), names and what has to be written first
(`spelling`). A replacement has to change the plan, or the directive could as well be left out; that is offered last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from polyhedral.verdict import Proven
from tensorlang.diagnostics import CompileError, Diagnostic, Edit, Span
from tensorlang.schedule.apply import apply
from tensorlang.schedule.cures.orders import orders
from tensorlang.schedule.cures.refusal import MOST_CURED, Refusal, Replacement, parsed
from tensorlang.schedule.cures.spelling import spellings
from tensorlang.schedule.idle import same_plan
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.verdict import verdict_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show

MOST_TRIALS = 40
"""Replacements that are tried."""
MOST_BESIDES = 3
"""Later directives that are left out with one."""
LIMIT = 200_000
"""Operations of a proof of one, after which it is taken for no cure."""

UNREAD = frozenset(("S0101", "S0102", "S0103", "S0105"))
"""Codes of directives that name what is not there, or nothing that can be read: leaving one out is hardly what is meant."""


def cured(refusal: Refusal) -> Diagnostic:
    """Return the diagnostic of a refusal with what cures it, where something is proven to."""
    found = first_proven(refusal)
    if found is None:
        return refusal.diagnostic
    said = sentence_of(refusal, found)
    help_ = f"{refusal.diagnostic.help}; {said}" if refusal.diagnostic.help else said
    return replace(refusal.diagnostic, help=help_, edits=_edits(refusal, found))


def first_proven(refusal: Refusal, *, keeping: bool = False) -> Replacement | None:
    """Return the first replacement that is proven; `keeping`: the directive that is blamed stays, with others beside it."""
    if len(refusal.schedule.directives) > MOST_CURED:
        return None
    left_out = Replacement(refusal.at, ())
    wholly = _legal(refusal, left_out) if refusal.at >= 0 else None
    without = wholly or (_legal_so_far(refusal, left_out) if refusal.at >= 0 else None)
    tried = islice(_distinct(chain(orders(refusal), spellings(refusal))), MOST_TRIALS)
    for replacement in tried:
        if (
            keeping
            and refusal.at >= 0
            and (replacement.after is not None or show(refusal.schedule.directives[replacement.at]) not in replacement.lines)
        ):
            continue
        made = _legal(refusal, replacement) or (_legal_so_far(refusal, replacement) if wholly is None else None)
        if made is not None and (without is None or not same_plan(made, without)):
            return replacement
    return _left_out(refusal) if without is not None and not keeping else None


def _left_out(refusal: Refusal) -> Replacement:
    """Return that the directive is left out, which is legal as far as that, with those after it that cannot be read then."""
    directives, gone = refusal.schedule.directives, [refusal.at]
    while len(gone) <= MOST_BESIDES + 1:
        kept = [k for k in range(len(directives)) if k not in gone]
        shorter = replace(refusal.schedule, directives=tuple(directives[k] for k in kept))
        try:
            plan = apply(refusal.program, shorter, refusal.layouts, refusal.knobs)
        except CompileError as problem:
            found = Refusal.of_words(refusal.program, shorter, refusal.layouts, refusal.knobs, problem.diagnostics[0])
            if found is None or found.diagnostic.code not in UNREAD or kept[found.at] < refusal.at:
                break
            gone.append(kept[found.at])
        else:
            if isinstance(verdict_of(plan, LIMIT), Proven):
                return Replacement(refusal.at, (), besides=tuple(gone[1:]))
            break
    return Replacement(refusal.at, (), is_partial=True)


def _distinct(replacements: Iterator[Replacement]) -> Iterator[Replacement]:
    seen: set[Replacement] = set()
    for replacement in replacements:
        if replacement not in seen:
            seen.add(replacement)
            yield replacement


def _legal(refusal: Refusal, replacement: Replacement) -> Plan | None:
    """Return the plan of the schedule with a replacement, once it is proven."""
    return _proven(refusal, _replaced(refusal.schedule.directives, replacement))


def _legal_so_far(refusal: Refusal, replacement: Replacement) -> Plan | None:
    """Return the plan with a replacement as far as the directive that is blamed, once it is proven: later ones may be refused for reasons
    of their own."""
    directives = refusal.schedule.directives[: refusal.at + 1]
    moved = replacement.after is not None or len(directives) == len(refusal.schedule.directives)
    return None if moved else _proven(refusal, _replaced(directives, replacement))


def _replaced(directives: Sequence[syntax.Directive], replacement: Replacement) -> tuple[syntax.Directive, ...] | None:
    """Return directives with a replacement, or None where that cannot be read."""
    try:
        lines = map(parsed, replacement.lines)
        edge = replacement.at if replacement.after is None else replacement.after
        kept = [(k, d) for k, d in enumerate(directives) if k != replacement.at and k not in replacement.besides]
        return (*(d for k, d in kept if k <= edge), *lines, *(d for k, d in kept if k > edge))
    except CompileError:
        return None


def _proven(refusal: Refusal, directives: tuple[syntax.Directive, ...] | None) -> Plan | None:
    if directives is None:
        return None
    schedule = replace(refusal.schedule, directives=directives)
    try:
        plan = apply(refusal.program, schedule, refusal.layouts, refusal.knobs)
        return plan if isinstance(verdict_of(plan, LIMIT), Proven) else None
    except CompileError:
        return None


def sentence_of(refusal: Refusal, found: Replacement) -> str:
    """Return what to write, as help says it."""
    what = "this order" if refusal.diagnostic.code == "S0301" else "it"
    if refusal.at < 0:
        return f"{_quoted(found.lines)} first: this recurrence does not run in the order of its axes"
    blamed = show(refusal.schedule.directives[found.at])
    if found.after is not None:
        end = found.after + 1 == len(refusal.schedule.directives)
        others = "all others" if end else f"`{show(refusal.schedule.directives[found.after])}`"
        return f"{_quoted(found.lines)} after {others} is legal"
    if found.is_partial:
        return f"without `{blamed}` all before it is legal"
    if not found.lines:
        besides = [f"`{show(refusal.schedule.directives[k])}`" for k in found.besides]
        dependent = f", and {', '.join(besides)}, which cannot be read then," if besides else ""
        return f"without `{blamed}`{dependent} the schedule is legal"
    if found.lines[-1] == blamed:
        where = f"before `{blamed}`" if found.at != refusal.at else "first"
        return f"{_quoted(found.lines[:-1])} {where} makes {what} legal"
    instead = f" and without {_quoted([show(refusal.schedule.directives[k]) for k in found.besides])}" if found.besides else ""
    if found.lines[0] == blamed:
        return f"{_quoted(found.lines[1:])} after it{instead} makes {what} legal"
    return f"{_quoted(found.lines)} in its place{instead} is legal"


def _quoted(lines: Sequence[str]) -> str:
    return ", ".join(f"`{line}`" for line in lines)


def _edits(refusal: Refusal, found: Replacement) -> tuple[Edit, ...]:
    """Return the replacement as changes of the text: none where a directive is not written there, as it comes from a tactic or has knobs,
    and none that leave out what cannot be read."""
    directives = refusal.schedule.directives
    if not directives:
        return ()
    directive, end = directives[max(found.at, 0)], directives[-1 if found.after is None else found.after]
    unread = refusal.diagnostic.code in UNREAD and not refusal.is_repeated
    if not (_is_written(directive) and _is_written(end)) or (not found.lines and unread):
        return ()
    span = directive.span
    indent = _indent(span)
    besides = [directives[k] for k in found.besides]
    if not all(map(_is_written, besides)):
        return ()
    gone = tuple(_line_left_out(d.span) for d in besides)
    if found.after is not None:
        moved = "".join(f"\n{indent}{line}" for line in found.lines)
        return _line_left_out(span), *gone, Edit(Span(end.span.source, end.span.end, end.span.end), moved)
    lines = found.lines if refusal.at >= 0 else (*found.lines, show(directive))
    return (Edit(span, f"\n{indent}".join(lines)) if lines else _line_left_out(span), *gone)


def _indent(span: Span) -> str:
    """Return what stands before a directive in its line, where that is nothing but blanks."""
    text = span.source.text
    before = text[text.rfind("\n", 0, span.start) + 1 : span.start]
    return before if not before.strip() else ""


def _line_left_out(span: Span) -> Edit:
    """Return an edit without the line of a directive, with what a comment says about it, where nothing else stands there."""
    text = span.source.text
    begin, end = text.rfind("\n", 0, span.start) + 1, text.find("\n", span.end)
    end = len(text) if end < 0 else end + 1
    rest = text[span.end : end].strip()
    alone = not text[begin : span.start].strip() and (not rest or rest.startswith("#"))
    return Edit(Span(span.source, begin, end) if alone else span, "")


def _is_written(directive: syntax.Directive) -> bool:
    """Tell whether a directive is what the text says where it is from."""
    span = directive.span
    try:
        (there,) = Schedule("operator").then(span.source.text[span.start : span.end]).directives
    except (CompileError, ValueError):
        return False
    return show(there) == show(directive)
