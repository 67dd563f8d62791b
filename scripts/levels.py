"""Sets everything up and runs the tests that depend on the processor, on this machine kept to lower levels: AVX2 alone, SSE2 alone.

python3 scripts/levels.py [x86-64-v2 …]        the levels to run at; without any, those of LEVELS below this machine's own
"""

from __future__ import annotations

import os
import subprocess
import sys

from environment import PYTEST, ROOT, prepared, run

LEVELS = ("x86-64-v3", "x86-64")
FILES = (
    "tests/codegen/test_llvm_kernels.py",
    "tests/codegen/test_llvm_math.py",
    "tests/codegen/test_llvm_picked.py",
    "tests/codegen/test_llvm_rows.py",
    "tests/codegen/test_llvm_runtime.py",
    "tests/codegen/test_llvm_squares.py",
    "tests/codegen/test_llvm_streams.py",
    "tests/codegen/test_pool.py",
    "tests/lower/test_differential.py",
    "tests/lower/test_every_type.py",
    "tests/runtime/test_choosing.py",
    "tests/runtime/test_operators.py",
    "tests/runtime/test_toolchain.py",
    "tests/schedule/test_prefetch.py",
    "tests/schedule/test_stages_on_processors.py",
    "tests/schedule/test_tensorize.py",
)
"""The tests whose outcome may depend on the width of vectors, the number of registers or the instructions there are, and that are quick,
but for those that run the code of every level on any machine.
The whole suite passes at every level: `TENSORLANG_LEVEL=x86-64 python3 scripts/test.py`."""
UNVALIDATED = "0"
"""How many operations kernels may take to be validated on terms: what these tests compile they compare with the interpreter themselves."""


def main(wanted: list[str]) -> int:
    """Return 0 when the tests pass at every level. All levels run, whatever the others say."""
    python = str(prepared("test"))
    asked = subprocess.run(
        [python, "-c", "from codegen.llvm.target import levels; print(*levels())"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    here = asked.stdout.split()
    failed = False
    for level in wanted or [level for level in LEVELS if level in here[:-1]]:
        print(f"---- as a machine of level {level}", flush=True)
        os.environ |= {"TENSORLANG_LEVEL": level, "TENSORLANG_VALIDATE": UNVALIDATED}
        failed |= run(*PYTEST, *FILES) != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
