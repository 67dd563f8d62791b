"""Sets everything up and runs the tests that depend on the processor, on this machine kept to lower levels: AVX2 alone, SSE2 alone.

python3 scripts/levels.py [x86-64-v2 …]        the levels to run at; without any, those of LEVELS below this machine's own
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from environment import PYTEST, ROOT, prepared, run

LEVELS = ("x86-64-v3", "x86-64")
TESTS = (
    "tests/codegen/test_llvm_kernels.py",
    "tests/codegen/test_llvm_picked.py",
    "tests/codegen/test_llvm_rows.py",
    "tests/codegen/test_llvm_squares.py",
    "tests/codegen/test_llvm_streams.py",
    "tests/codegen/test_pool.py",
    "tests/lower/test_differential.py::test_one_kernel_for_all_sizes",
    "tests/lower/test_every_type.py",
    "tests/runtime/test_choosing.py",
    "tests/schedule/test_prefetch.py",
    "tests/schedule/test_stages_on_processors.py",
    "tests/schedule/test_tensorize.py",
)
"""The tests whose outcome may depend on the width of vectors, the number of registers or the instructions there are, and that are quick,
but for those that run the code of every level, or of one for each width of vectors, on any machine.
The whole suite passes at every level: `TENSORLANG_LEVEL=x86-64 python3 scripts/test.py`."""
LEFT_OUT = tuple(
    f"--deselect=tests/lower/test_differential.py::test_one_kernel_for_all_sizes[{name}]"
    for name in ("conv2d", "conv_transpose", "max_pool", "resize_linear")
)
"""Windows over images of any size, which took two thirds of that test; `conv` is one, and stays."""
UNVALIDATED = "0"
"""How many operations kernels may take to be validated on terms: what these tests compile they compare with the interpreter themselves."""


def main(wanted: list[str]) -> int:
    """Return 0 when the tests pass at every level. All levels run, whatever the others say, beside each other."""
    python = str(prepared("test"))
    asked = subprocess.run(
        [python, "-c", "from codegen.llvm.target import levels; print(*levels())"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    here = asked.stdout.split()
    tried = wanted or [level for level in LEVELS if level in here[:-1]]
    each = (os.cpu_count() or 1) // max(len(tried), 1)
    with ThreadPoolExecutor(max(len(tried), 1)) as pool:
        return int(any(pool.map(lambda level: status_at(level, each), tried)))


def status_at(level: str, processors: int) -> int:
    """Return the exit status of the tests as a machine of `level`, and print in one piece what they said."""
    processes = str(processors if processors > 1 else 0)  # a single one needs nobody who hands out tests
    with tempfile.TemporaryFile("w+") as output:
        status = run(
            *(*PYTEST, "-n", processes, *TESTS, *LEFT_OUT),
            variables={"TENSORLANG_LEVEL": level, "TENSORLANG_VALIDATE": UNVALIDATED},
            output=output,
        )
        output.seek(0)
        print(f"---- as a machine of level {level}\n{output.read()}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
