"""Make what the cache keeps in several processes: `python -m tensorlang.worker` is one of them.

    standard input    a pickled `Order`, from the process that started this one

What is made goes into the cache on disk, where the other process finds it. Whatever goes wrong here goes wrong there too, with a message.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from codegen.store import Cache

Task: TypeAlias = Callable[[Cache | None], Any]
"""Returns something from the store, or makes it and puts it there. It can be pickled."""

WORTH_A_PROCESS = 10
"""How many tasks another process must have before starting it pays."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be made, and where it is to be kept."""

    tasks: tuple[Task, ...]
    directory: str


def all_made(tasks: Sequence[Task], store: Cache | None, processes: int, done: Callable[[int], None] = lambda count: None) -> list[Any]:
    """Return what `tasks` return, in order; by up to so many processes, when there are many. `done` is told how many are."""
    helpers = min(processes, len(tasks) // WORTH_A_PROCESS) if store is not None else 1
    shares = [range(len(tasks))[k :: max(1, helpers)] for k in range(max(1, helpers))]
    found: list[Any] = [None] * len(tasks)
    with _helping([[tasks[k] for k in share] for share in shares[1:]], store):
        for count, k in enumerate(k for share in shares for k in share):
            done(count)
            # What another process has made meanwhile is in the store; the rest of its share is made here.
            found[k] = tasks[k](store)
    done(len(tasks))
    return found


@contextmanager
def _helping(shares: Sequence[Sequence[Task]], store: Cache | None) -> Iterator[None]:
    """Have other processes do `shares` from their ends, so that they and we meet in the middle; end them when we are through."""
    processes: list[subprocess.Popen[bytes]] = []
    for share in shares:
        process = started(share[::-1], store) if store is not None else None
        if process is not None:
            processes.append(process)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def started(tasks: Sequence[Task], store: Cache) -> subprocess.Popen[bytes] | None:
    """Return a process that does `tasks` with `store`, or None when none can be started."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    command = [sys.executable, "-m", "tensorlang.worker"]
    try:
        with tempfile.TemporaryFile() as order:  # not a pipe: whoever fills one waits until the other has imported the compiler
            pickle.dump(Order(tuple(tasks), str(store.directory)), order, protocol=pickle.HIGHEST_PROTOCOL)
            order.seek(0)
            return subprocess.Popen(command, stdin=order, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    except OSError:
        return None


def main() -> None:
    order = pickle.load(sys.stdin.buffer)
    store = Cache(Path(order.directory))
    for task in order.tasks:
        task(store)


if __name__ == "__main__":
    main()
