"""This checkout against another, in turns: what a change costs or brings, for models and single operators.

    git worktree add ../before v1.0
    python benchmarks/trees.py ../before                       every model and operator on one thread
    python benchmarks/trees.py ../before resnet50 "softmax"    those whose names begin so
    python benchmarks/trees.py ../before --threads 2 --turns 40

Each checkout compiles in a process of its own, with its own cache, and both wait while one of them runs. A turn is a share of a second of
runs; what counts of it is the fastest, since other work of the machine only ever adds. The ratio is that of the medians over all turns,
above 1 this checkout is slower; in brackets, the quartiles of the ratios of neighbouring turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TURN = 0.15
"""Seconds that a turn takes, but for what takes longer once."""
SEED = 7


def main() -> None:
    arguments = _arguments()
    if arguments.serve:
        serve(arguments.other, arguments.threads)
        return
    from harness import described, machine, table

    with tempfile.TemporaryDirectory() as folder:
        before, after = (Side(tree, arguments.threads, Path(folder) / name) for name, tree in (("a", arguments.other), ("b", ROOT)))
        known = set(before.ask("names"))
        names = [n for n in after.ask("names") if n in known and n.startswith(tuple(arguments.names) or "")]
        rows: list[list[str]] = []
        for name in names:
            rows.append(compared(name, before, after, arguments.turns))
            print(*rows[-1], file=sys.stderr, flush=True)
    print(described(machine()))
    print(table(("", "before us", "after us", "ratio", "quartiles"), rows))


def compared(name: str, before: Side, after: Side, turns: int) -> list[str]:
    """Return the row of a model or an operator."""
    for side in (before, after):
        if failed := side.ask("load", name):
            return [name, "", "", failed, side.name]
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns):
        for k in (0, 1) if turn % 2 else (1, 0):
            taken[k].append((before, after)[k].ask("turn"))
    first, second = map(median, taken)
    low, _, high = quantiles([b / a for a, b in zip(*taken, strict=True)], n=4)
    return [name, f"{first * 1e6:.1f}", f"{second * 1e6:.1f}", f"{second / first:.3f}", f"{low:.3f}-{high:.3f}"]


class Side:
    """A process that imports from `tree`, and does what it is asked for."""

    def __init__(self, tree: Path, threads: int, cache: Path) -> None:
        self.name = tree.name
        command = [sys.executable, "-P", __file__, str(tree), "--serve", "--threads", str(threads)]
        environment = os.environ | {"TENSORLANG_CACHE": str(cache), "PYTHONPATH": os.pathsep.join((str(tree), str(tree / "benchmarks")))}
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, *words: str) -> Any:
        """Return the answer. Raises RuntimeError when the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of {self.name} has ended")
        return json.loads(answer)


# ---------------------------------------------------------------- in the process of one checkout


def serve(tree: Path, threads: int) -> None:
    """Answer the questions on standard input, a line of JSON each."""
    from cases import cases

    from stdlib import models

    operators = {case.name: case for case in cases()}
    run: Callable[[], object] = list
    for line in sys.stdin:
        kind, *words = json.loads(line)
        answer: Any = ""
        if kind == "names":
            answer = [*models.names(), *operators]
        elif kind == "load":
            try:
                run = _operator(operators[words[0]], threads) if words[0] in operators else _model(words[0], threads)
                run()
            except Exception as fault:  # whatever one checkout cannot do is the answer
                answer = f"{type(fault).__name__}: {str(fault).splitlines()[0]}"
        else:
            answer = _turn(run)
        print(json.dumps(answer), flush=True)


def _turn(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest run of a turn."""
    end, best = time.perf_counter() + TURN, float("inf")
    while True:
        start = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best


def _operator(case: Any, threads: int) -> Callable[[], object]:
    import numpy as np
    import operators

    rng = np.random.default_rng(SEED)
    arrays = [operators._filled(shape, rng) for shape in case.shapes]
    if case.rows is not None:
        arrays.append(rng.integers(0, case.shapes[0][0], case.rows))
    run: Callable[[], object] = operators._ours(case, arrays, {"y": operators._filled(case.result, None)}, threads)
    return run


def _model(name: str, threads: int) -> Callable[[], object]:
    from inputs import random_inputs

    import tensorlang
    from stdlib import models

    model = models.load(name, SEED)
    compiled = tensorlang.compile(model.SerializeToString(), threads=threads)
    return compiled.prepared(random_inputs(model))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    parser.add_argument("names", nargs="*", help="beginnings of names of models and operators (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=20, help="turns of each")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    found = parser.parse_args()
    found.other = found.other.resolve()
    return found


if __name__ == "__main__":
    main()
