"""The first result of a model in a peer, in a process that does nothing else: `python -m tensorlang.shell.first_of_peer`."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

from tensorlang.shell.files import read_arrays
from tensorlang.shell.measure import peak_mib
from tensorlang.shell.peers import Task, peers


def main(name: str, file: str, inputs: str, threads: str) -> None:
    """Print what it took the peer `name`, its import left out of the time."""
    arrays = read_arrays(Path(inputs))
    [peer] = peers([name])
    importlib.import_module(peer.package)
    start = time.perf_counter()
    run = peer.run(Task(arrays, file), int(threads))
    assert run is not None
    run()
    sys.stdout.write(json.dumps({"first_result_s": time.perf_counter() - start, "peak_mib": peak_mib()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
