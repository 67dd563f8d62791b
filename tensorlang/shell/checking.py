"""`tensorlang check` of a file: its mistakes, its warnings, what could not be checked, and the edits that cure what is surely meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff

from tensorlang.check.definition import Examined, checked, warnings_of
from tensorlang.check.lint import UNUSED, warnings_in
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Edit, Source
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse

MOST_ROUNDS = 10
"""How often edits are made: one may uncover the next mistake."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in one file."""

    mistakes: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    partly: tuple[Examined, ...] = ()


def check_source(source: Source, *, replaying: bool = False) -> Found:
    """Return everything that is wrong or odd about a file: operators, reducers, schedules."""
    try:
        file = parse(source)
    except CompileError as problem:
        return Found(problem.diagnostics)
    try:
        module = load_module(file)
    except CompileError as problem:
        return Found(problem.diagnostics, tuple(warnings_in(file)))
    operators = checked(module)
    mistakes = list(operators.problems)
    partly: list[Diagnostic] = []
    if any(isinstance(d, sx.Schedule | sx.Tactic) for d in file.declarations):
        found = _in_schedules(module, mistakes, replaying)
        mistakes, partly = [d for d in found if d.severity == "error"], [d for d in found if d.severity == "warning"]
    warnings = _besides(mistakes, warnings_in(file)) if mistakes else warnings_of(file, module)
    return Found(tuple(mistakes), (*warnings, *partly), operators.partly)


def _besides(mistakes: Sequence[Diagnostic], warnings: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return the warnings that mistakes do not explain: of a name that is unread because its reader is misspelled nothing is said, nor of
    what is wrong itself."""
    meant = {name for d in mistakes for name in re.findall(r"did you mean `(\w+)`", d.help or "")}
    wrong = {d.labels[0].span for d in mistakes if d.labels}
    return [d for d in warnings if not (d.code in UNUSED and (d.labels[0].span in wrong or meant & set(re.findall(r"`(\w+)`", d.title))))]


def _in_schedules(module: Module, mistakes: Sequence[Diagnostic], replaying: bool) -> list[Diagnostic]:
    """Return what is wrong with the schedules of a file, behind the mistakes of its operators; they are proven where there are none, and
    warned of where that is so for some sizes alone."""
    from tensorlang.policy.prove import prove_schedules
    from tensorlang.policy.uncalled import check_schedules
    from tensorlang.runtime.library import installed_roles, with_roles

    served = with_roles(module, installed_roles())
    return [*mistakes, *check_schedules(served)] or prove_schedules(served, replaying=replaying)


def as_errors(found: Found) -> Found:
    """Return the same with warnings as mistakes."""
    strict = tuple(replace(d, severity="error") for d in found.warnings)
    return replace(found, mistakes=(*found.mistakes, *strict), warnings=())


# ---------------------------------------------------------------- edits


def fixed(source: Source) -> tuple[Source, list[Diagnostic]]:
    """Return a file with the edits of its diagnostics made, and the diagnostics that are gone. Edits are kept where the file can be read
    afterwards and what they are to cure is no longer found; otherwise the file stays as it is."""
    best, cured, current, gone = source, list[Diagnostic](), source, list[Diagnostic]()
    for _ in range(MOST_ROUNDS):
        found = check_source(current)
        offered = [d for d in (*found.mistakes, *found.warnings) if d.edits and all(e.span.source == current for e in d.edits)]
        if not offered:
            break
        current, made = _edited(current, offered)
        left = check_source(current)
        again = {_told(d) for d in (*left.mistakes, *left.warnings)}
        if any(_told(d) in again for d in made):
            break
        gone += made
        if not any(d.code.startswith("P") for d in left.mistakes):
            best, cured = current, list(gone)
    return best, cured


def _told(diagnostic: Diagnostic) -> tuple[str, str, str]:
    """Return a diagnostic as one that is still there after edits elsewhere: its words and the line it is about."""
    span = diagnostic.labels[0].span if diagnostic.labels else NOWHERE
    return diagnostic.code, diagnostic.title, span.source.line(span.source.location(span.start)[0])


def _edited(source: Source, diagnostics: Sequence[Diagnostic]) -> tuple[Source, list[Diagnostic]]:
    """Return a text with the edits of diagnostics made, and those whose edits do not touch another's."""
    made: list[Diagnostic] = []
    edits: list[Edit] = []
    for diagnostic in diagnostics:
        if all(e.span.end <= o.span.start or o.span.end <= e.span.start for e in diagnostic.edits for o in edits):
            made.append(diagnostic)
            edits += diagnostic.edits
    text = source.text
    for edit in sorted(edits, key=lambda e: (e.span.start, e.span.end), reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return replace(source, text=text), made


def difference(before: Source, after: Source) -> str:
    """Return what is changed, as `diff -u` shows it."""
    lines = unified_diff(before.text.splitlines(True), after.text.splitlines(True), before.name, after.name)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
