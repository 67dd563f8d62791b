"""A refused schedule: the directive that is blamed, and what there is before it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from polyhedral.legality import Violation
from polyhedral.storage import Clobber
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic
from tensorlang.schedule.apply import Outline, apply, outline
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

Lines: TypeAlias = tuple[str, ...]
"""Directives as they are written."""


MOST_CURED = 200
"""Directives of a schedule for which cures are looked for: each trial applies all of them."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Lines for a schedule in the place of its directive number `at`, or right behind a later one, number `after`."""

    at: int
    lines: Lines
    after: int | None = None
    besides: tuple[int, ...] = ()
    """Other directives that are left out with it, as they name what it would have made, or are among `lines` in another form."""
    is_partial: bool = False
    """Whether the schedule is legal as far as this alone, and refused later for another reason."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why `schedule` is refused: the directive number `at` makes it illegal, or cannot be carried out; -1: the program is not legal in the
    order in which it is written. `refuted` is what is wrong with the order or the storage, where that is why."""

    program: Program
    schedule: Schedule
    layouts: Mapping[str, Storage] | None
    knobs: Mapping[str, int] | None
    at: int
    diagnostic: Diagnostic
    refuted: Violation | Clobber | None = None

    @staticmethod
    def of_words(
        program: Program,
        schedule: Schedule,
        layouts: Mapping[str, Storage] | None,
        knobs: Mapping[str, int] | None,
        diagnostic: Diagnostic,
    ) -> Refusal | None:
        """Return the refusal of a schedule that cannot be applied, or None where it is about no directive, or there are too many to try
        others in their places."""
        if len(schedule.directives) > MOST_CURED:
            return None
        span = diagnostic.labels[0].span if diagnostic.labels else NOWHERE
        spans = [d.span for d in schedule.directives]
        inside = [k for k, s in enumerate(spans) if s.source == span.source and s.start <= span.start and span.end <= s.end]
        is_told = span is not NOWHERE and len(inside) == 1  # a line of a tactic is there each time that this is called
        at = inside[0] if is_told else _first_refused(program, schedule, layouts, knobs, diagnostic)
        return Refusal(program, schedule, layouts, knobs, at, diagnostic) if at is not None else None

    @property
    def directive(self) -> syntax.Directive:
        return self.schedule.directives[self.at]

    @property
    def text(self) -> str:
        """The directive as it is written."""
        return show(self.directive)

    @property
    def is_repeated(self) -> bool:
        """Whether the directive stands in the schedule before, word for word."""
        return any(show(d) == self.text for d in self.schedule.directives[: max(self.at, 0)])

    def before(self) -> Outline | None:
        """Return what the directive may name, or None where those before it cannot be carried out either."""
        try:
            return outline(self.program, self._shorter(), self.layouts, self.knobs)
        except CompileError:
            return None

    def planned_before(self) -> Plan | None:
        """Return the plan of the directives before, proven or not."""
        try:
            return apply(self.program, self._shorter(), self.layouts, self.knobs)
        except CompileError:
            return None

    def after(self, *lines: str) -> Outline | None:
        """Return what the directives before, followed by `lines`, make; None where that is not possible."""
        try:
            shorter = self._shorter()
            added = replace(shorter, directives=(*shorter.directives, *map(parsed, lines)))
            return outline(self.program, added, self.layouts, self.knobs)
        except CompileError:
            return None

    def _shorter(self) -> Schedule:
        return replace(self.schedule, directives=self.schedule.directives[: max(self.at, 0)])

    def here(self, *lines: str) -> Replacement:
        """Return `lines` in the place of the directive."""
        return Replacement(self.at, lines)

    def renamed(self, old: str, new: str) -> str:
        """Return the directive with another name in the place of one."""
        return self.renamed_all({old: new})

    def renamed_all(self, names: Mapping[str, str]) -> str:
        """Return the directive with other names in the place of some, but for the names of what it makes."""
        old = "|".join(map(re.escape, names))
        said, arrow, made = self.text.partition(" -> ")
        return re.sub(rf"(?<![\w.`])({old})(?![\w.`])", lambda found: names[found[1]], said) + arrow + made


def _first_refused(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None, knobs: Mapping[str, int] | None, why: Diagnostic
) -> int | None:
    """Return the number of the directive with which a schedule is first refused for the same reason."""
    for count in range(1, len(schedule.directives) + 1):
        try:
            apply(program, replace(schedule, directives=schedule.directives[:count]), layouts, knobs)
        except CompileError as refused:
            found = refused.diagnostics[0]
            if found.code == why.code and found.title.partition(": ")[0] == why.title.partition(": ")[0]:
                return count - 1
    return None


@cache
def parsed(line: str) -> syntax.Directive:
    """Return the directive that a line is. Raises CompileError for text that is none."""
    (directive,) = Schedule("operator").then(line).directives
    return directive


def written(name: str) -> str:
    """Return a name as directives have it."""
    return show(syntax.Directive("root", (syntax.Id(name),))).removeprefix("root ")


def listed(names: Iterator[str] | list[str] | tuple[str, ...]) -> str:
    """Return names as directives have them."""
    return ", ".join(map(written, names))
