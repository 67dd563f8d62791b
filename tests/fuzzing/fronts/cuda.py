"""Random programs whose loops are bound to blocks and threads at random: their kernels run on this processor, in several orders of threads,
by the emulator, which reports races, barriers that not all reach and wrong addresses. It takes a C++ compiler."""

from __future__ import annotations

import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from strategies_device import bound
from strategies_schedule import Case, allowed, families, family, small_arrays

from codegen.cuda.arch import TARGET
from codegen.cuda.arch import named as arch
from codegen.dtypes import f32
from codegen.gpu.emulator import EmulatorError, Library
from codegen.gpu.limits import exceeded, exceeded_at
from fuzzing import written
from fuzzing.front import Outcome
from fuzzing.fronts.schedules import code_of, number
from fuzzing.shrink import without_some
from stdlib.library import library as stdlib
from tensorlang.diagnostics import CompileError
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.printer import show

sys.path.append(str(Path(__file__).parent.parent.parent / "device"))  # the helpers that tests of devices share

from batch import Made, difference, library, made, named

LIMITS = arch(TARGET).limits
"""What devices allow a block."""


class Cuda:
    name = "cuda"
    seconds = 60.0
    batch = 8
    share = 1.0

    def __init__(self) -> None:
        self._ready: dict[str, tuple[Made, Library]] = {}

    def prepare(self) -> None:
        if shutil.which("g++") is None:
            raise SystemExit("the front `cuda` needs g++")
        families(), stdlib()
        family("matmul", f32)

    def draw(self, seed: int) -> Case:
        return bound(Random(f"cuda:{seed}"))

    def expect(self, seeds: tuple[int, ...]) -> None:
        """Compile the kernels of all cases at once: g++ takes longer for the prelude than for several kernels."""
        self._ready.clear()
        found: dict[str, Made] = {}
        for seed in seeds:
            with suppress(Exception):
                case = self.draw(seed)
                found[str(case)] = _made(case)
        with suppress(EmulatorError):
            together = library(found.values())
            self._ready = {text: (kernels, together) for text, kernels in found.items()}

    def run(self, case: Case) -> Outcome:
        ready = self._ready.get(str(case))
        try:
            kernels = ready[0] if ready else _made(case)
        except CompileError as refused:
            code = code_of(str(refused))
            return Outcome("unknown" if code == "S0400" else "refused", code, str(refused))
        beyond = (*exceeded(kernels.kernels, LIMITS), *exceeded_at(kernels.kernels, LIMITS, case.sizes))
        if beyond:
            return Outcome("refused", "C0111", str(beyond[0]))  # as whoever makes machine code of them says
        arrays = named(case.program, small_arrays(case.program, case.sizes, number(case)).values())
        problem = difference(kernels, arrays, case.sizes, ready[1] if ready else library([kernels]), seeds=(0, 4))
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


def _made(case: Case) -> Made:
    """Return the kernels of a case, called after it, so that those of several cases fit in one library."""
    return made(case.program, f"kernel_{zlib.crc32(str(case).encode()):08x}", case.schedule)
