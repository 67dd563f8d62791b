"""Random programs whose loops are bound to blocks and threads at random: their kernels run on this processor, in several orders of threads,
by the emulator, which reports races, barriers that not all reach and wrong addresses. It takes a C++ compiler."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from strategies_device import bound
from strategies_schedule import Case, allowed, families, family, small_arrays

from codegen.dtypes import f32
from fuzzing import written
from fuzzing.front import Outcome
from fuzzing.fronts.schedules import code_of, number
from fuzzing.shrink import without_some
from stdlib.library import library as stdlib
from tensorlang.diagnostics import CompileError
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.printer import show

sys.path.append(str(Path(__file__).parent.parent.parent / "device"))  # the helpers that tests of devices share

from batch import difference, library, made, named


class Cuda:
    name = "cuda"
    seconds = 60.0
    batch = 1
    share = 1.0

    def prepare(self) -> None:
        if shutil.which("g++") is None:
            raise SystemExit("the front `cuda` needs g++")
        families(), stdlib()
        family("matmul", f32)

    def draw(self, seed: int) -> Case:
        return bound(Random(f"cuda:{seed}"))

    def run(self, case: Case) -> Outcome:
        try:
            kernels = made(case.program, "kernel", case.schedule)
        except CompileError as refused:
            code = code_of(str(refused))
            return Outcome("unknown" if code == "S0400" else "refused", code, str(refused))
        arrays = named(case.program, small_arrays(case.program, case.sizes, number(case)).values())
        problem = difference(kernels, arrays, case.sizes, library([kernels]), seeds=(0, 4))
        return Outcome("wrong", problem.split(":")[0], problem) if problem else Outcome("ok")

    def smaller(self, case: Case) -> Iterator[Case]:
        for directives in without_some(case.schedule.directives):
            yield replace(case, schedule=replace(case.schedule, directives=directives))
        for name, size in case.sizes.items():
            for smaller in range(size):
                sizes = {**case.sizes, name: smaller}
                if allowed(case.program, sizes):
                    yield replace(case, sizes=sizes)

    def show(self, case: Case) -> str:
        return str(case)

    def test(self, case: Case) -> str:
        arrays = small_arrays(case.program, case.sizes, number(case))
        return written.call(
            show(case.program),
            list(arrays.values()),
            interpret(case.program, case.sizes, arrays),
            operator=case.program.name,
            options=', target="cuda"' + (', sizes="symbolic"' if case.program.sizes else ""),
            schedule=str(case.schedule),
        )
