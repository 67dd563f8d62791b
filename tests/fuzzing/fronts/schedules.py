"""Random schedules of families of programs, by `schedule_trial.trial`: what is accepted computes what the operator says, in the interpreter
of loops and natively."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from guarded import Walled
from schedule_trial import Outcome as Trial
from schedule_trial import trial
from strategies_schedule import Case, allowed, families, family, random_case, small_arrays, some_program

from codegen.dtypes import f32
from fuzzing import written
from fuzzing.front import Outcome
from fuzzing.shrink import without_some
from stdlib.library import library
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.printer import show


class Schedules:
    name = "schedules"
    seconds = 60.0
    batch = 8
    share = 1.5

    def prepare(self) -> None:
        families(), library()
        program = family("matmul", f32)
        proven(program, Schedule(program.name))

    def draw(self, seed: int) -> Case:
        return drawn(seed)

    def run(self, case: Case) -> Outcome:
        Walled.count = number(case)  # so that a case is placed alike whatever was tried before it
        return judged(trial(case, number(case), natively=True, placed=Walled))

    def smaller(self, case: Case) -> Iterator[Case]:
        for directives in without_some(case.schedule.directives):
            yield replace(case, schedule=replace(case.schedule, directives=directives))
        if case.layouts:
            yield replace(case, layouts={})
        for name, size in case.sizes.items():
            for smaller in range(size):
                sizes = {**case.sizes, name: smaller}
                if allowed(case.program, sizes):
                    yield replace(case, sizes=sizes)

    def show(self, case: Case) -> str:
        return str(case)

    def test(self, case: Case) -> str:
        arrays = small_arrays(case.program, case.sizes, number(case))
        open_ = ', sizes="symbolic"' if case.program.sizes else ""
        body = written.call(
            show(case.program),
            list(arrays.values()),
            interpret(case.program, case.sizes, arrays),
            operator=case.program.name,
            options=open_,
            schedule=str(case.schedule),
        )
        stored = "".join(f"# layouts: {line}\n" for line in str(case).splitlines() if " stored as " in line)
        return stored + body


def number(case: Case) -> int:
    """Return a number for the arrays of a case, the same for all its schedules and sizes."""
    return zlib.crc32(show(case.program).encode()) % 1000


def drawn(seed: int) -> Case:
    """Return the case of a number."""
    random = Random(f"schedules:{seed}")
    return random_case(some_program(random), random)


def judged(found: Trial) -> Outcome:
    """Return a trial's outcome in the words of the fronts. A refusal that a run shows to be right has the code as its label."""
    match found.kind:
        case "accepted":
            return Outcome("ok", native=1)
        case "replayed":
            return Outcome("refused", found.text.split()[0])
        case "impossible":
            return Outcome("refused", code_of(found.text))
        case "unknown":
            return Outcome("unknown", code_of(found.text))
        case "silent":
            return Outcome("silent", code_of(found.text), found.text)
        case "different":
            return Outcome("wrong", found.text.split(":")[0], found.text)
        case "crash":
            return Outcome("crash", "", found.text)


def code_of(text: str) -> str:
    return text.partition("[")[2].partition("]")[0]
