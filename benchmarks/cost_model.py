"""Predicted cycles of kernels beside measured ones: inner loops of several equations, drawn from all that the policy compares.

    python benchmarks/cost_model.py                    about 300 kernels
    python benchmarks/cost_model.py --each 4 --seed 3  four of each equation

Of each equation, candidates of `tensorlang/policy/cpu/inner_loops.py` are drawn, the chosen one among them, and each is compiled and run on
one thread. What is told: the rank correlation of predicted and measured cycles of an element over all kernels and within equations, and
how many times the fastest measured the chosen one takes. Cycles are those of the clock at which multiply-adds run.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from harness import Array, aligned, ceiling, pool_imports, table, write  # isort: skip

import numpy as np

import tensorlang
from codegen.dtypes import f32
from codegen.llvm.jit import load
from codegen.llvm.target import host
from polyhedral import affine
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.driver import compile_kernel, machine_of
from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.cost import MULTIPLY_ADDS
from tensorlang.policy.cpu.inner_cost import InnerLoops
from tensorlang.policy.cpu.inner_loops import add_inner_loops, best_inner_loops, candidates
from tensorlang.policy.deriver import Deriver, deriver
from tensorlang.runtime.operator import Operator
from tensorlang.tensor.nodes import Program

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Kernel:
    equation: str
    inner: InnerLoops
    predicted: float
    measured: float
    is_chosen: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("equations", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--each", type=int, default=13, help="candidates of each equation beside the chosen one")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.02, help="how long to run each kernel")
    parser.add_argument("--worst", type=int, default=0, help="print so many kernels whose prediction is furthest off")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    given = parser.parse_args()
    found: list[Kernel] = []
    operators = tensorlang.load(HERE / "cost_model.tl", threads=1)
    for operator in (operators[name] for name in operators):
        if not given.equations or operator.name.startswith(tuple(given.equations)):
            if some := list(kernels(operator, given.each, np.random.default_rng(given.seed), given.seconds)):
                print(*_row(operator.name, some), sep="  ", file=sys.stderr, flush=True)
            found += some
    results = [{"equation": k.equation, "inner": str(k.inner), "predicted": k.predicted, "measured": k.measured} for k in found]
    write(given.out, "Predicted cycles", results, _report(found))
    for k in sorted(found, key=lambda k: -abs(np.log(k.measured / k.predicted)))[: given.worst]:
        print(f"{k.equation}: {k.inner} predicted, {k.measured:.2f} measured")


def kernels(operator: Operator, count: int, rng: np.random.Generator, seconds: float) -> Iterator[Kernel]:
    """Yield what some candidates of an equation take, for each element of its result, the chosen one first; none of an equation of which
    several are made before loops are chosen."""
    arrays = _arguments(operator, rng)
    program = operator.compiled(operator.call(**arrays)).program
    d = _deriver(program)
    definition, *others = d.program.definitions
    if others:
        return
    every = list(candidates(d, definition, definition.axes))
    chosen = best_inner_loops(d, definition, definition.axes)
    drawn = [every[k] for k in rng.permutation(len(every))]
    made = 0
    for inner in (chosen, *(c for c in drawn if c != chosen)):
        cycles = _measured(program, _scheduled(program, inner), arrays, seconds)
        if cycles is not None:
            elements = float(np.prod([affine.constant(n) or 1 for n in definition.tensors[0].shape]))
            yield Kernel(operator.name, inner, inner.cycles, cycles / elements, inner == chosen)
            made += 1
        if made > count:
            return


def _arguments(operator: Operator, rng: np.random.Generator) -> dict[str, Array]:
    """Return random arrays for the parameters of an operator whose sizes are all known."""
    found = {}
    for name, kind, extents in re.findall(r"(\w+): (\w\d+)\[([\d, ]+)\]", str(operator).partition("->")[0]):
        made = 4 * rng.standard_normal([int(n) for n in extents.split(",")])
        found[name] = made.astype(f"{kind[0]}{int(kind[1:]) // 8}")
    return found


def _deriver(program: Program) -> Deriver:
    return deriver(program, machine_of(host(), 1), {}, frozenset())


def _scheduled(program: Program, inner: InnerLoops) -> Any:
    d = _deriver(program)
    (definition,) = d.program.definitions
    add_inner_loops(d, definition, definition.axes, inner)
    return d.schedule


def _measured(program: Program, schedule: Any, arrays: dict[str, Array], seconds: float) -> float | None:
    """Return the cycles of the fastest run; None where a schedule is refused."""
    try:
        made = compile_kernel(program, host(), schedule=schedule)
    except CompileError:
        return None
    run = _entry(made, program, arrays)
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(_REPEATS):
            run()
        best = min(best, (time.perf_counter() - start) / _REPEATS)
    return best * _clock()


_REPEATS = 5


def _entry(made: Artifact, program: Program, arrays: dict[str, Array]) -> Any:
    library = load([made.object], pool_imports())
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(made.symbol))
    (result,) = (t for x in program.definitions for t in x.tensors if t.name in program.results)
    y = np.zeros([affine.constant(n) or 1 for n in result.shape], result.dtype.numpy)
    bound = {**arrays, result.name: y}
    block = (ctypes.c_int64 * len(made.params))(*(bound[n].ctypes.data for n in made.params))
    workspace = aligned(made.workspace_bytes(1) // 4 + 16)
    addresses = (ctypes.addressof(block), workspace.ctypes.data)

    def run(kept: object = (library, bound, workspace, block)) -> None:
        entry(*addresses)

    return run


def _clock(found: list[float] = []) -> float:  # noqa: B006  # measured once
    if not found:
        found.append(ceiling() / (2 * MULTIPLY_ADDS * host().vector_bits // 8 / f32.size_bytes))
    return found[0]


# ---------------------------------------------------------------- telling


def ranks(values: Sequence[float]) -> Array:
    """Return the place of each value among all; equal ones share theirs."""
    order = np.asarray(values)
    return np.array([(order < v).sum() + ((order == v).sum() - 1) / 2 for v in order])


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's coefficient."""
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def _correlation(some: Sequence[Kernel]) -> float:
    return rank_correlation([k.predicted for k in some], [k.measured for k in some])


def _row(name: str, some: Sequence[Kernel]) -> list[str]:
    best = min(k.measured for k in some)
    chosen = next((k.measured for k in some if k.is_chosen), best)
    off = median(k.measured / k.predicted for k in some)
    return [name, str(len(some)), f"{_correlation(some):.2f}", f"{off:.2f}", f"{chosen / best:.2f}"]


_HEAD = ("equation", "kernels", "rank correlation", "measured to predicted", "chosen to fastest")


def _report(found: Sequence[Kernel]) -> str:
    groups = [list(g) for _, g in groupby(found, key=lambda k: k.equation)]
    chosen = [min((k.measured for k in g if k.is_chosen), default=1.0) / min(k.measured for k in g) for g in groups]
    within = median(_correlation(g) for g in groups)
    return (
        f"{table(_HEAD, [_row(g[0].equation, g) for g in groups])}\n\n"
        f"{len(found)} kernels: rank correlation {_correlation(found):.3f} over all, {within:.2f} within an equation (median).\n"
        f"What is chosen takes {geometric_mean(chosen):.2f} times the fastest measured (geometric mean), {max(chosen):.2f} at most."
    )


if __name__ == "__main__":
    main()
