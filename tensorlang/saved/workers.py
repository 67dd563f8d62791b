"""Where a server runs its batches: on a clone of the model in this process, or in a process that is started again when it dies.

Arrays go to a process and come back in memory that both map (`SharedMemory`): one copy each way, where a pipe takes four.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

_LEAST_SHARED = 1 << 14
"""Bytes from which on an array is passed in shared memory: below it, a message is as fast."""
_ALIGN = 64


class WorkerDied(RuntimeError):
    """A worker process ended before it answered."""


class InThread:
    """A model that runs in the thread that asks."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        """Return the outputs by name."""
        found: dict[str, Any] = self._model.run(feeds)
        return found

    def close(self) -> None:
        """Nothing has to end."""


class SharedMemory:
    """Memory of a file without a name that two processes map. One of them writes messages, one at a time, and the other reads them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._bytes = mmap.mmap(descriptor, os.fstat(descriptor).st_size or _grown(descriptor, mmap.PAGESIZE))

    def written(self, value: object) -> tuple[bytes, list[tuple[int, int]]]:
        """Return a value as what the other process reads it from: a pickle, and where the elements of its larger arrays are here."""
        large: list[memoryview] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            with buffer.raw() as elements:
                small = elements.nbytes < _LEAST_SHARED
            if not small:
                large.append(buffer.raw())
            return small

        pickled = pickle.dumps(value, 5, buffer_callback=is_small)
        places, end = [], 0
        for elements in large:
            places.append((end, elements.nbytes))
            end += -(-elements.nbytes // _ALIGN) * _ALIGN
        if end > len(self._bytes):
            self._bytes = mmap.mmap(self.descriptor, _grown(self.descriptor, end))
        for (start, size), elements in zip(places, large, strict=True):
            self._bytes[start : start + size] = elements
        return pickled, places

    def read(self, message: tuple[bytes, list[tuple[int, int]]], copy: bool) -> Any:
        """Return a value that the other process has written. Without `copy` its arrays are there until the next one is written."""
        pickled, places = message
        if any(start + size > len(self._bytes) for start, size in places):
            self._bytes = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        views = [memoryview(self._bytes)[start : start + size] for start, size in places]
        return pickle.loads(pickled, buffers=[bytearray(view) for view in views] if copy else views)

    def close(self) -> None:
        """Give the file back; what is mapped of it stays while arrays are there that lie in it."""
        os.close(self.descriptor)


def shared_memory() -> SharedMemory:
    """Return new memory for two processes."""
    if hasattr(os, "memfd_create"):
        return SharedMemory(os.memfd_create("tensorlang.serve"))
    with tempfile.TemporaryFile() as file:
        return SharedMemory(os.dup(file.fileno()))


def _grown(descriptor: int, size: int) -> int:
    """Let a file have at least so many bytes, which another process may map meanwhile. Return how many it has."""
    size = max(size, 2 * os.fstat(descriptor).st_size)
    os.ftruncate(descriptor, size)
    return size


class InProcess:
    """A model that runs in a process of its own, which is started with the first batch, and again after it died."""

    def __init__(self, model: Any, limit: float | None = None) -> None:
        """`model` is pickled: another process makes it of what it was made of, and shares mapped weights. A process that has not answered
        in `limit` seconds (None: as long as it takes) is ended."""
        self._limit = limit
        self._pickled = pickle.dumps(model)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._there: SharedMemory | None = None
        """What is written for the process; it answers in memory of its own."""
        self._back: SharedMemory | None = None
        self._start()

    @property
    def pid(self) -> int | None:
        """The number of the process, None where none runs."""
        return None if self._process is None else self._process.pid

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        """Return the outputs by name. Raises what the model raises, WorkerDied where the process ends meanwhile, or is
        ended as it does not answer in time."""
        connection = self._connection or self._start()
        assert self._there is not None and self._back is not None
        message = self._there.written(feeds)
        try:
            connection.send(message)
            if not connection.poll(self._limit):
                self._kill()
                raise WorkerDied(f"no answer in {self._limit} seconds")
            fine, found = self._back.read(connection.recv(), copy=True)
        except (EOFError, OSError) as problem:
            raise WorkerDied(f"exit status {self._end()}") from problem
        if not fine:
            raise found
        answer: dict[str, Any] = found
        return answer

    def close(self) -> None:
        """End the process."""
        self._end()

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            self._there, self._back = shared_memory(), shared_memory()
            passed = [theirs.fileno(), self._there.descriptor, self._back.descriptor]
            code = f"from {__name__} import answer; answer{tuple(passed)}"
            path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=passed, env=path, stdin=subprocess.DEVNULL)
        self._connection = Connection(ours.detach())
        self._connection.send_bytes(self._pickled)
        return self._connection

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._end()

    def _end(self) -> int | None:
        """Reap the process, which has no more connection; return its exit status."""
        process, connection, self._process, self._connection = self._process, self._connection, None, None
        if connection is not None:
            connection.close()
        for memory in (self._there, self._back):
            if memory is not None:
                memory.close()
        self._there = self._back = None
        if process is None:
            return None
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def answer(descriptor: int, asked: int, answered: int) -> None:
    """Run a model, which comes first, on feeds until the other end of a connection is closed. `asked`, `answered`: descriptors of the
    memory that feeds and outputs are in."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts means the server
    connection = Connection(descriptor)
    there, back = SharedMemory(asked), SharedMemory(answered)
    model: Any = None
    try:
        pickled = connection.recv_bytes()
        while True:
            message = connection.recv()
            try:
                model = model if model is not None else pickle.loads(pickled)
                found = back.written((True, model.run(there.read(message, copy=False))))
            except Exception as problem:
                found = back.written((False, _portable(problem)))
            connection.send(found)
    except (EOFError, OSError):
        return


def _portable(problem: Exception) -> Exception:
    """Return an exception as another process can read it."""
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        return RuntimeError(str(problem))
    return problem
