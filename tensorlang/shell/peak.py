"""A process of its own that loads a model, runs it once, and prints how much memory that took: `python -m tensorlang.shell.peak`."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from tensorlang.api import compile as compile_model
from tensorlang.shell.files import read_arrays
from tensorlang.shell.peers import Task, peers


def main(name: str, file: str, feeds: str, threads: str, precision: str) -> None:
    """Print the peak resident memory in MiB of `name` (`tensorlang` or a peer) on a model."""
    arrays = read_arrays(Path(feeds))
    if name == "tensorlang":
        compile_model(file, precision=precision, threads=int(threads)).run(arrays)
    else:
        [peer] = peers([name])
        run = peer.run(Task(arrays, file), int(threads))
        assert run is not None
        run()
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
