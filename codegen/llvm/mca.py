"""What LLVM's machine code analyser says of an innermost loop, where the program `llvm-mca` is on the path."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM = "llvm-mca"
ITERATIONS = 200
LEAST = 0.05
"""Of the cycles: what waits for less is not named."""
_CYCLES = re.compile(r"^Total Cycles:\s+(\d+)", re.MULTILINE)
_PRESSURE = re.compile(r"^\s+- (\w+)\s+\[ *([\d.]+)% \]", re.MULTILINE)
_UNKNOWN = "is not a recognized processor"


@dataclass(frozen=True, slots=True)
class Analysis:
    """`cycles`: of one iteration, where all loads meet the first-level cache; `waits`: what it waits for, and in which part of the cycles
    (0 to 1), most first; empty where nothing waits for anything. `has_model`: whether the analyser has a model of the processor."""

    cycles: float
    waits: tuple[tuple[str, float], ...]
    has_model: bool


def is_installed() -> bool:
    return shutil.which(PROGRAM) is not None


def analysed(lines: Sequence[str], cpu: str) -> Analysis | None:
    """Return what the analyser says of a loop of x86 whose instructions are `lines`; None where it cannot read them."""
    code = "\n".join(line.split("#", 1)[0] for line in lines)
    command = [PROGRAM, "-mtriple=x86_64-linux", f"-mcpu={cpu}", f"-iterations={ITERATIONS}", "-all-views=0", "-summary-view"]
    done = subprocess.run([*command, "-bottleneck-analysis", "-"], input=code, capture_output=True, text=True, check=False)
    total = _CYCLES.search(done.stdout)
    if done.returncode or total is None:
        return None
    waits = sorted(((name, float(percent) / 100) for name, percent in _PRESSURE.findall(done.stdout)), key=lambda wait: -wait[1])
    return Analysis(int(total[1]) / ITERATIONS, tuple(w for w in waits if w[1] >= LEAST), _UNKNOWN not in done.stderr)
