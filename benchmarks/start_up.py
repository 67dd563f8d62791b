"""Measures how much processor time short commands take, beside another checkout of tensorlang if one is named.

    python benchmarks/start_up.py
    git worktree add ../before v1.0 && python benchmarks/start_up.py ../before

Checkouts take turns, and each keeps its byte code in a folder of its own, as an installed package has it. What counts is user and system
time: the median of the turns, and the least.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
TURNS = 9
OPERATOR = """op scale(x: f32[N]) -> (y: f32[N]) {
    y[i] = x[i] * 2
}
"""
COMMANDS = (["--version"], ["--help"], ["fmt", "a.tl"], ["check", "a.tl"])


def main(trees: list[Path]) -> None:
    """Print a line for each command: the seconds of each checkout."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.tl").write_text(OPERATOR)
        for command in COMMANDS:
            taken: dict[Path, list[float]] = {tree: [] for tree in trees}
            for turn in range(TURNS + 1):
                for number, tree in enumerate(trees):
                    seconds = of_processor(command, tree, Path(folder), f"bytes{number}")
                    taken[tree] += [seconds] if turn else []  # the first run of all compiles byte code
            shown = "   ".join(f"{tree.name}: {median(found):.3f} s (least {min(found):.3f})" for tree, found in taken.items())
            print(f"{' '.join(command):12}{shown}", flush=True)


def of_processor(command: list[str], tree: Path, folder: Path, bytes: str) -> float:
    """Return the seconds of processor time that a command of a checkout takes in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(folder / bytes)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "tensorlang", *command], env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main([ROOT, *(Path(other).resolve() for other in sys.argv[1:])])
