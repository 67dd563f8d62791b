"""Measures how much processor time short commands take, and first compilations of models that are named, beside another checkout of
tensorlang if one is named.

    python benchmarks/start_up.py
    git worktree add ../before v1.0 && python benchmarks/start_up.py ../before
    python benchmarks/start_up.py ../before resnet50.onnx bert_base.onnx

Checkouts take turns, and each keeps its byte code in a folder of its own, as an installed package has it. What counts of commands is user
and system time, of models how long two threads take with nothing in the cache: the median of the turns, and the least.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
TURNS = 9
OPERATOR = """op scale(x: f32[N]) -> (y: f32[N]) {
    y[i] = x[i] * 2
}
"""
COMPILE = """import os, sys, tempfile
with tempfile.TemporaryDirectory() as os.environ["TENSORLANG_CACHE"]:
    import tensorlang
    tensorlang.compile(sys.argv[1], threads=2)
"""
COMMANDS = (["--version"], ["--help"], ["fmt", "a.tl"], ["check", "a.tl"])


def main(trees: list[Path], models: list[Path]) -> None:
    """Print a line for each command, or for each model where some are named: the seconds of each checkout."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.tl").write_text(OPERATOR)
        for command in [] if models else COMMANDS:
            report(" ".join(command), trees, folder, partial(of_processor, ["-m", "tensorlang", *command]))
        for model in models:
            report(model.stem, trees, folder, partial(of_clock, ["-c", COMPILE, str(model)]))


def report(name: str, trees: list[Path], folder: Path, measured: Callable[[Path, dict[str, str]], float]) -> None:
    """Print the seconds of each checkout, which take turns."""
    taken: dict[Path, list[float]] = {tree: [] for tree in trees}
    for turn in range(TURNS + 1):
        for number, tree in enumerate(trees):
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            environment |= {"PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(folder / f"bytes{number}")}
            seconds = measured(folder, environment)
            taken[tree] += [seconds] if turn else []  # the first run of all compiles byte code
    shown = "   ".join(f"{tree.name}: {median(found):.3f} s (least {min(found):.3f})" for tree, found in taken.items())
    print(f"{name:12}{shown}", flush=True)


def of_processor(arguments: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Return the seconds of processor time that a run of Python takes in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_clock(arguments, folder, environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def of_clock(arguments: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Return the seconds from the start of such a process to its end."""
    before = perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - before


if __name__ == "__main__":
    named = [Path(other).resolve() for other in sys.argv[1:]]
    main([ROOT, *(path for path in named if path.is_dir())], [path for path in named if not path.is_dir()])
