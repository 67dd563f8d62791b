"""Random operators, written as text, compiled once for any sizes and called with several combinations of them that reach past vectors and
tiles, zero, one and primes among them, compared with what is compiled for each combination alone."""

from __future__ import annotations

import re
from math import prod
from random import Random
from typing import Any

import numpy as np
from guarded import SIDES

from fuzzing import written
from fuzzing.drawing import Drawing
from fuzzing.front import Outcome
from fuzzing.fronts.language import Case, Language, arrays_of
from fuzzing.native import between_walls
from fuzzing.program import Program, is_float
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import CompileError, RunError, Source
from tensorlang.runtime.operator import Operators, sorted_out
from tensorlang.runtime.specialization import Sizes

Array = np.ndarray[Any, Any]
EXTENTS = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 64, 67, 100, 130)
MOST_POINTS = 6000
"""Of a combination, all sizes multiplied."""
COMBINATIONS = 4


class OpenOperators(Language):
    name = "operators"
    seconds = 60.0
    batch = 4
    share = 1.0

    def draw(self, seed: int) -> Case:
        random = Random(f"operators:{seed}")
        program = Drawing(random).program()
        sizes = tuple(_sizes(program, random) for _ in range(COMBINATIONS))
        return Case(program, sizes, True, seed % 10**6, False, random.choice((1, 1, 2)))

    def run(self, case: Case) -> Outcome:
        opened, fixed = _compiled(case, "symbolic"), _compiled(case, "static")
        runs = 0
        for k, sizes in enumerate(case.sizes):
            arrays = list(arrays_of(case, sizes).values())
            found, wanted = (_outcome(operators, arrays, SIDES[(case.seed + k) % 2]) for operators in (opened, fixed))
            if isinstance(found, str) or isinstance(wanted, str):
                if not (isinstance(found, str) and (isinstance(wanted, str) or _is_founded(case, opened, arrays))):
                    return Outcome("wrong", "one is refused", f"sizes {dict(sizes)}\n{found!r}, {wanted!r}", runs)
                continue
            runs += 1
            for name, mine, theirs in zip(case.program.results, found, wanted, strict=True):
                if not _agree(mine, theirs, case.program.mode == "strict"):
                    return Outcome("wrong", "another value", f"sizes {dict(sizes)}\n{name}: {mine!r}\n{theirs!r}", runs)
        return Outcome("ok", native=runs)

    def test(self, case: Case) -> str:
        arrays = list(arrays_of(case, case.sizes[-1]).values())
        wanted = _outcome(_compiled(case, "static"), arrays, SIDES[0])
        expected = wanted if isinstance(wanted, str) else dict(zip(case.program.results, wanted, strict=True))
        return written.call(case.text, arrays, expected, operator="f", options=f', sizes="symbolic", threads={case.threads}')


def _compiled(case: Case, sizes: Sizes) -> Operators:
    return Operators(Source("case.tl", case.text), toolchain(threads=case.threads, cache=False), sizes=sizes)


def _sizes(program: Program, random: Random) -> dict[str, int]:
    names = sorted({n.name for p in program.params for n in p.shape if hasattr(n, "name")})
    while True:
        sizes = {n: max(1 if program.where else 0, random.choice(EXTENTS)) for n in names}
        if prod(max(s, 1) for s in sizes.values()) <= MOST_POINTS:
            return sizes


def _outcome(operators: Operators, arrays: list[Array], side: Any) -> tuple[Array, ...] | str:
    """Return the results of a call, or the code of the diagnostic that refuses it."""
    try:
        call = sorted_out(operators.f.declaration, tuple(arrays), {})
        native = operators.f.compiled(call).native
        return between_walls(native, [np.ascontiguousarray(a) for a in call.arrays], side)
    except (CompileError, RunError) as refused:
        return refused.diagnostics[0].code


def _is_founded(case: Case, opened: Operators, arrays: list[Array]) -> bool:
    """Tell whether what is compiled for any sizes may be refused where known sizes are not: it names sizes that are refused where they are
    known, or a read by `reflect` or `wrap` that leaves its tensor by more periods than are cases."""
    try:
        opened.f.compiled(sorted_out(opened.f.declaration, tuple(arrays), {}))
    except CompileError as refused:
        problem = refused.diagnostics[0]
        read = case.text[problem.labels[0].span.start : problem.labels[0].span.end] if problem.labels else ""
        if problem.code == "T0301" and read.rstrip(")").endswith(("| reflect]", "| wrap]")):
            return True
        named = {name: int(size) for name, size in re.findall(r"\b([A-Z])=(\d+)", problem.title.rpartition(" when ")[2])}
        known = _outcome(_compiled(case, "static"), list(arrays_of(case, {**case.sizes[0], **named}).values()), SIDES[0])
        return bool(named) and known == problem.code
    return False


def _agree(mine: Array, theirs: Array, exact: bool) -> bool:
    """Tell whether two results are the same, floats that may be rounded in any order up to that."""
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    same = (mine == theirs) | ((mine != mine) & (theirs != theirs))
    if exact or not is_float(str(mine.dtype)):
        return bool(np.all(same))
    a, b = (np.where(np.isfinite(x.astype(np.float64)), x.astype(np.float64), 0) for x in (mine, theirs))
    rounding = 2e-2 if mine.dtype.itemsize < 4 else 1e-5
    finite = np.isfinite(mine.astype(np.float64)) & np.isfinite(theirs.astype(np.float64))
    return bool(np.all(same | (finite & (np.abs(a - b) <= rounding * max(1.0, float(np.abs(b).max(initial=0.0)))))))
