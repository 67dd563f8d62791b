"""Compile kernels in another process: `python -m tensorlang.runtime.worker`.

    standard input    a pickled `Order`, from the process that started this one

The kernels go into the cache on disk, where the other process finds them. Whatever goes wrong here goes wrong there too, with a message.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.llvm.target import Target
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.driver import compile_kernel
from tensorlang.runtime.build import Job


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be compiled, and where it is to be kept."""

    jobs: tuple[Job, ...]
    target: Target
    threads: int
    directory: str


def started(jobs: Sequence[Job], target: Target, threads: int, store: Cache) -> subprocess.Popen[bytes] | None:
    """Return a process that compiles `jobs` into `store`, or None when none can be started."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    command = [sys.executable, "-m", "tensorlang.runtime.worker"]
    try:
        with tempfile.TemporaryFile() as order:  # not a pipe: whoever fills one waits until the other has imported the compiler
            pickle.dump(Order(tuple(jobs), target, threads, str(store.directory)), order, protocol=pickle.HIGHEST_PROTOCOL)
            order.seek(0)
            return subprocess.Popen(command, stdin=order, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    except OSError:
        return None


def made_of(job: Job, target: Target, threads: int, store: Cache | None) -> Artifact:
    """Return the compiled kernel of `job`."""
    return compile_kernel(job.program, target, rules=job.rules, layouts=job.layouts, constants=job.constants, threads=threads, store=store)


def main() -> None:
    order = pickle.load(sys.stdin.buffer)
    store = Cache(Path(order.directory))
    for job in order.jobs:
        made_of(job, order.target, order.threads, store)


if __name__ == "__main__":
    main()
