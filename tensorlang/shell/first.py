"""The first result of a model in a process of its own: how long it takes once everything is imported, and how much memory.

    python -m tensorlang.shell.first FILE FEEDS THREADS OPTIONS       prints {"first_result_s": 0.24, "compile_s": 0.2, "peak_mib": 323.1}

OPTIONS are those of `tensorlang.compile` as JSON: {"precision": "bf16"}.

`first_of_peer` does the same in a process without the compiler.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tensorlang.api import compile as compile_model
from tensorlang.shell.files import read_arrays
from tensorlang.shell.measure import peak_mib


def main(file: str, inputs: str, threads: str, options: str) -> None:
    """Print what it took."""
    arrays = read_arrays(Path(inputs))
    start = time.perf_counter()
    model = compile_model(file, threads=int(threads), **json.loads(options))
    compiled = time.perf_counter()
    model.run(arrays)
    taken = {"first_result_s": time.perf_counter() - start, "compile_s": compiled - start, "peak_mib": peak_mib()}
    sys.stdout.write(json.dumps(taken) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
