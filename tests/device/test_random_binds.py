"""Whatever a schedule binds to whatever place: it is refused, or its kernels compute what the operator says, in every order of threads."""

from __future__ import annotations

from collections import Counter
from random import Random

from batch import Made, difference, library, made, named
from executors import Executor
from strategies_device import bound
from strategies_schedule import Case, small_arrays

from tensorlang.diagnostics import CompileError

COUNT = 80
FOUND = (54, 75, 114, 175, 226, 245, 255, 1476)
"""Once: registers shared out, a witness that isl lost, lanes that left an exchange, and sums of pairs that each thread kept to itself."""


def test_random_binds_are_refused_or_right(executor: Executor) -> None:
    kinds: Counter[str] = Counter()
    accepted: list[tuple[int, Case, Made]] = []
    for number in sorted({*range(2000, 2000 + COUNT), *FOUND}):
        case = bound(Random(number))
        try:
            accepted.append((number, case, made(case.program, f"random_{number}", case.schedule)))
            kinds["accepted"] += 1
        except CompileError as refused:
            kinds[refused.diagnostics[0].code] += 1
    compiled = library((each for _, _, each in accepted), executor)
    for number, case, each in accepted:
        arrays = named(case.program, small_arrays(case.program, case.sizes, number).values())
        assert difference(each, arrays, case.sizes, compiled) == "", str(case)
    assert kinds["accepted"] >= COUNT // 3 and kinds["S0302"] and kinds["S0220"], kinds
