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
from typing import Any, Protocol

from codegen.store import Cache
from tensorlang.frames import contiguous_frames
from tensorlang.garbage import fewer_collections


class Task(Protocol):
    """Something to be made, unless the store has it. It can be pickled."""

    def stored(self, store: Cache) -> Any:
        """Return what the store has, None where that is nothing."""
        ...

    def __call__(self, store: Cache | None) -> Any:
        """Return what the store has, or make it and put it there."""
        ...


WORTH_A_PROCESS = 10
"""How many tasks another process must have before starting it pays."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be made, and where it is to be kept."""

    tasks: tuple[Task, ...]
    directory: str


def all_made(tasks: Sequence[Task], store: Cache | None, processes: int, done: Callable[[int], None] = lambda count: None) -> list[Any]:
    """Return what `tasks` return, in order: from the store, or made, by up to so many processes when there are many to make. `done` is told
    how many are."""
    found: list[Any] = [task.stored(store) if store is not None else None for task in tasks]
    missing = [k for k, made in enumerate(found) if made is None]
    helpers = max(1, min(processes, len(missing) // WORTH_A_PROCESS)) if store is not None else 1
    shares = [missing[k::helpers] for k in range(helpers)]
    with _helping([[tasks[k] for k in share] for share in shares[1:]], store):
        for count, k in enumerate(k for share in shares for k in share):
            done(len(tasks) - len(missing) + count)
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


@contiguous_frames
def main() -> None:
    order = pickle.load(sys.stdin.buffer)
    store = Cache(Path(order.directory))
    with fewer_collections():
        for task in order.tasks:
            task(store)


if __name__ == "__main__":
    main()
