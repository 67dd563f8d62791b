"""Image pipelines and recurrences of `examples/pipelines` as schedules are derived for them, beside the least time that they need.

    python benchmarks/pipelines.py                        all of them, 1 and 2 threads
    python benchmarks/pipelines.py harris lstm --threads 1    those whose names begin so

The least time is the longest of four, of which the table names one:

operations   vector instructions for what the equations say, two a cycle: one for a multiply-add, a dozen for a function or a division
memory       arguments and results, from and to where they lie, as fast as memory is copied
places       elements read or written where data say, two reads or one write a cycle
chain        steps that need the one before, times the cycles of what lies between; of a step that reads what it cannot keep in registers,
             such as weights, at least these reads from the second-level cache

Threads share operations, memory and places; a chain stays one, but for reads of its steps. Cycles are those of the clock that
multiply-adds run at. Results are compared with plain NumPy at small sizes by the tests of the examples.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from harness import ROOT, Array, Run, ceiling, copy_ceiling, table, urgent, with_threads, write  # isort: skip

import numpy as np

import tensorlang
from codegen.dtypes import f32
from codegen.llvm.pool import available_threads
from codegen.llvm.probe import read_bandwidth
from codegen.llvm.target import host
from tensorlang.policy.cpu.cost import CALL_OPERATIONS, LOADS, MULTIPLY_ADDS, STORES

SEED = 5


@dataclass(frozen=True, slots=True)
class Least:
    """What an operator has to do: `operations` on elements, `reads` and `writes` of elements at places that data say, `steps` that need one
    another with so many cycles of a `chain` in each, and the bytes that each `step_bytes` reads anew."""

    operations: float
    reads: float = 0
    writes: float = 0
    steps: int = 0
    chain: float = 0
    step_bytes: float = 0


@dataclass(frozen=True, slots=True)
class Case:
    file: str
    arguments: Mapping[str, Any]
    least: Least


def cases() -> dict[str, Case]:
    """Return the operators by name, with arguments."""
    rng = np.random.default_rng(SEED)
    image: Callable[..., Array] = lambda *shape: rng.random(shape, np.float32)  # noqa: E731
    letters: Callable[[int], Array] = lambda count: rng.integers(0, 4, count, np.int32)  # noqa: E731
    real: Callable[..., Array] = lambda *shape: np.float32(0.1) * rng.standard_normal(shape, np.float32)  # noqa: E731
    full, half, n, (s, k), (t, h) = 2160 * 2560, 1536 * 2560, 2000, (200, 128), (100, 256)
    grid, levels = half // 64 * 12, 8
    pairs = {"a": letters(n), "b": letters(n)}
    bent, blurred = CALL_OPERATIONS + 6, 7
    pyramid = half * (bent + blurred / 2 + blurred / 4 + blurred / 8 + blurred / 16)
    weights = 4 * h * h
    return {
        "harris": Case("images", {"x": image(2164, 2564)}, Least(full * (2 * (8 + CALL_OPERATIONS) + 3 + 24 + 7))),
        "unsharp": Case("images", {"x": image(2160, 2560)}, Least(full * (2 * 8 + 5))),
        "bilateral_grid": Case(
            "images", {"x": image(1536, 2560), "P": 192, "Q": 320}, Least(half * 20 + 6 * 8 * grid, reads=6 * half, writes=2 * half)
        ),
        "local_laplacian": Case(
            "images", {"x": image(1536, 2560), "P": 384, "Q": 640}, Least(levels * pyramid + 24 * half, reads=4 * half)
        ),
        "global_alignment": Case("sequences", pairs, Least(6 * n * n, steps=2 * n, chain=3)),
        "local_alignment": Case("sequences", pairs, Least(13 * n * n, steps=2 * n, chain=4)),
        "edit_distance": Case("sequences", pairs, Least(6 * n * n, steps=2 * n, chain=3)),
        "warped_distance": Case("sequences", {"a": real(n), "b": real(n)}, Least(5 * n * n, steps=2 * n, chain=8)),
        "viterbi": Case(
            "sequences",
            {"first": real(k), "change": real(k, k), "seen": real(s, k)},
            Least(4 * s * k * k, steps=s, chain=4 * (2 + np.log2(k)), step_bytes=4 * k * k),
        ),
        "lstm": Case(
            "sequences",
            {"x": real(t, h), "wx": real(4, h, h), "wh": real(4, h, h), "b": real(4, h)},
            Least(t * (2 * weights + 5 * h * CALL_OPERATIONS), steps=t, chain=4 * (2 + np.log2(h)) + 80, step_bytes=4 * weights),
        ),
    }


@dataclass(frozen=True, slots=True)
class Machine:
    """What a number of threads can do: vector instructions' elements a second, bytes of memory copied a second, and the clock."""

    elements: float
    copied: float
    hertz: float
    threads: int

    @staticmethod
    def measured(threads: int) -> Machine:
        lanes = host().lanes(f32)
        fused, one = ceiling(threads), ceiling(1)
        return Machine(fused / 2, copy_ceiling(1 << 27), one / (2 * MULTIPLY_ADDS * lanes), threads)

    def least(self, of: Least, moved_bytes: float) -> tuple[float, str]:
        """Return the least seconds, and what they are spent on."""
        chain = of.steps * of.chain / self.hertz
        again = of.steps * of.step_bytes / read_bandwidth(int(of.step_bytes), threads=self.threads) if of.step_bytes else 0.0
        found = {
            "operations": of.operations / self.elements,
            "memory": moved_bytes / self.copied,
            "places": max(of.reads / LOADS, of.writes / STORES) / self.hertz / self.threads,
            "chain": max(chain, again),
        }
        by = max(found, key=found.__getitem__)
        return found[by], by


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("operators", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each operator on each number of threads")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    given = parser.parse_args(argv)
    if given.urgent and not urgent():
        parser.error("--urgent needs the right to raise priorities")
    counts = [t for t in given.threads if t <= available_threads()]
    machines = {count: Machine.measured(count) for count in counts}
    results = []
    for name, case in cases().items():
        if not given.operators or name.startswith(tuple(given.operators)):
            results.append({"name": name, **measure(name, case, machines, given.seconds)})
            print(*_row(results[-1], counts), file=sys.stderr, flush=True)
    head = ["operator", *(h for c in counts for h in (f"ms, {c}", f"least, {c}", f"share, {c}")), "by"]
    lines = [table(head, [_row(r, counts) for r in results]), ""]
    lines.append("The best of the times, the least that is needed, and its share in that.")
    write(given.out, "Pipelines", results, "\n".join(lines))
    return 0


def measure(name: str, case: Case, machines: Mapping[int, Machine], seconds: float) -> dict[str, Any]:
    """Return the best and the median seconds of a call on each number of threads, and the least that they need."""
    found: dict[str, Any] = {}
    for count, machine in machines.items():
        operator = getattr(tensorlang.load(ROOT / "examples" / "pipelines" / f"{case.file}.tl", threads=count), name)
        result = operator(**case.arguments)
        outs = result if isinstance(result, tuple) else (result,)
        run = partial(operator, **case.arguments, out=outs if len(outs) > 1 else outs[0])
        taken = _taken(with_threads(count, run), seconds)
        found[f"best_{count}"], found[f"median_{count}"] = min(taken), median(taken)
        moved = sum(a.nbytes for a in (*case.arguments.values(), *outs) if isinstance(a, np.ndarray))
        found[f"least_{count}"], found["by"] = machine.least(case.least, moved)
    return found


def _taken(run: Run, seconds: float) -> list[float]:
    run()
    taken, end = list[float](), time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return taken


def _row(r: Mapping[str, Any], counts: Sequence[int]) -> list[str]:
    times = [
        text
        for c in counts
        for text in (f"{r[f'best_{c}'] * 1e3:.2f}", f"{r[f'least_{c}'] * 1e3:.2f}", f"{r[f'least_{c}'] / r[f'best_{c}']:.2f}")
    ]
    return [r["name"], *times, r["by"]]


if __name__ == "__main__":
    sys.exit(main())
