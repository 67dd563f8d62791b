"""Runs one kernel of each family, on a GPU, under NVIDIA's compute-sanitizer: memory, races, uninitialised reads, barriers.

python benchmarks/sanitize.py                       every family under every tool; 1 when any of them finds anything
python benchmarks/sanitize.py --tools racecheck matmul softmax
python benchmarks/sanitize.py --timeout 120         seconds that one family under one tool may take; one that hangs is a failure
python benchmarks/sanitize.py --compile-only        no GPU: every kernel becomes machine code

Sizes are small and no multiples of tiles. The results are compared with what the interpreter computes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable

from harness import ROOT  # isort: skip
import gpu  # isort: skip
from gpu_cases import Case, families  # isort: skip

import numpy as np

import tensorlang
from codegen.cuda.device import devices
from codegen.cuda.errors import Unavailable
from codegen.dtypes import from_numpy
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.shell.measure import largest_difference
from tensorlang.tensor.interp import interpret

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CLOSE = {"f32": 1e-5, "f16": 4e-3, "bf16": 2e-2, "tf32": 1e-5, "i8": 0.0}
"""How far a result may be from the interpreter's, relative to the largest: sums in another order, then one rounding."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--compile-only", action="store_true", help="make machine code of every kernel, run nothing")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one family under one tool")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    chosen = [c for c in families() if not arguments.names or c.name.startswith(tuple(arguments.names))]
    if arguments.compile_only:
        return gpu.main(["--compile-only", "--families", "--no-models", "--target", arguments.target, *arguments.names])
    if arguments.child:
        return ready(next(c for c in families() if c.name == arguments.child), arguments.target)()
    try:
        devices()
    except Unavailable as problem:
        print(f"error: {problem.what}; {problem.remedy}", file=sys.stderr)
        return 1
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("error: there is no `compute-sanitizer`; it comes with NVIDIA's CUDA toolkit", file=sys.stderr)
        return 1
    failed = [
        f"{tool}: {case.name}"
        for tool in arguments.tools
        for case in chosen
        if sanitized(sanitizer, tool, case, arguments.target, arguments.timeout)
    ]
    print(f"{len(chosen) * len(arguments.tools) - len(failed)} clean, {len(failed)} not", *failed, sep="\n")
    return 1 if failed else 0


def sanitized(sanitizer: str, tool: str, case: Case, target: str, seconds: float) -> int:
    """Return what a process that runs the case under a tool exits with, 124 when it has not ended after so many seconds; its last lines are
    printed when that is not 0."""
    child = [sys.executable, __file__, "--child", case.name, "--target", target]
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", *child]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"{tool}: {case.name} has not ended after {seconds:g} s", file=sys.stderr)
        return 124
    if done.returncode:
        print(f"{tool}: {case.name}", *(done.stdout + done.stderr).splitlines()[-60:], sep="\n", file=sys.stderr)
    return done.returncode


def ready(case: Case, target: str) -> Callable[[], int]:
    """Compile a case and compute what the interpreter says of it, and return what runs it twice, the second time as a graph, and returns 1
    when a result is another: only that needs the device."""
    operator, arrays = tensorlang.load(ROOT / "benchmarks" / "gpu.tl", target=target)[case.operator], case.arrays()
    operator.compiled(operator.call(*arrays, **case.attributes))
    types = [ArgType(from_numpy(a.dtype), a.shape) for a in arrays]
    program = instantiate(operator.module, case.operator, types, dict(case.attributes), {})
    expected = interpret(program, {}, dict(zip((p.name for p in program.params), arrays, strict=True)))
    wanted = np.asarray(expected[program.results[0]]).astype(np.float64)

    def run() -> int:
        for _ in range(2):
            found = np.asarray(operator(*arrays, **case.attributes))
            off = largest_difference([found.astype(np.float64)], [wanted])
            if not off <= CLOSE[case.dtype]:
                print(f"{case.name} is off by {off:.2g}", file=sys.stderr)
                return 1
        return 0

    return run


if __name__ == "__main__":
    sys.exit(main())
