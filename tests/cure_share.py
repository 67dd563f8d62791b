"""How many refused schedules are told a cure: of the golden cases, and of random schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from golden_case import cases, source
from scheduled_programs import written
from strategies_schedule import random_case, some_program

from tensorlang.diagnostics import CompileError, Diagnostic, Source
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.parse import parse


@dataclass(frozen=True, slots=True)
class Share:
    """A refusal, and the sentence of what cures it; empty where nothing is known to."""

    name: str
    code: str
    cure: str
    applicable: bool = False

    @property
    def cured(self) -> bool:
        return bool(self.cure)

    @property
    def constructive(self) -> bool:
        """Whether the directive that is blamed is not just left out."""
        return bool(self.cure) and not self.cure.startswith("without ")


def cure_of(diagnostic: Diagnostic) -> str:
    """Return what of the help of a diagnostic has been proven."""
    said = (diagnostic.help or "").rpartition("; ")[2]
    proven_words = ("legal", "does not run in the order of its axes")
    return said if said.endswith(proven_words) else ""


@cache
def refusal(case: Path) -> CompileError:
    """Return what a golden schedule is refused with, found once for all who ask."""
    try:
        found = written(source(case), case.name)
        proven(found.program, found.schedule)
    except CompileError as refused:
        return refused
    raise AssertionError(f"{case.name} is accepted")


def golden_refusals() -> Iterator[Share]:
    for case in cases("bad_schedules"):
        (diagnostic,) = refusal(case).diagnostics
        yield Share(case.stem, diagnostic.code, cure_of(diagnostic), bool(diagnostic.edits))


def as_written(schedule: Schedule) -> Schedule:
    """Return a schedule as it is read from its text."""
    (read,) = parse(Source("random.tl", str(schedule))).declarations
    assert isinstance(read, syntax.Schedule)
    return replace(schedule, directives=tuple(d for d in read.body if isinstance(d, syntax.Directive)))


def random_refusals(seed: int, count: int) -> Iterator[Share]:
    """Yield the first refusals among random schedules numbered from `seed` on, as the fuzzer draws them."""
    while count:
        random = Random(f"schedules:{seed}")
        case = random_case(some_program(random), random)
        try:
            proven(case.program, as_written(case.schedule), case.layouts)
        except CompileError as refused:
            diagnostic = refused.diagnostics[0]
            if diagnostic.code != "S0400":
                yield Share(f"schedules:{seed}", diagnostic.code, cure_of(diagnostic), bool(diagnostic.edits))
                count -= 1
        seed += 1
