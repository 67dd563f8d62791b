"""Where a server runs its batches: on a clone of the model in this process, or in a process that is started again when it dies."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any


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


class InProcess:
    """A model that runs in a process of its own, which is started with the first batch, and again after it died."""

    def __init__(self, model: Any, limit: float | None = None) -> None:
        """`model` is pickled: another process makes it of what it was made of, and shares mapped weights. A process that has not answered
        in `limit` seconds (None: as long as it takes) is ended."""
        self._limit = limit
        self._pickled = pickle.dumps(model)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._start()

    @property
    def pid(self) -> int | None:
        """The number of the process, None where none runs."""
        return None if self._process is None else self._process.pid

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        """Return the outputs by name. Raises what the model raises, WorkerDied where the process ends meanwhile, or is
        ended as it does not answer in time."""
        connection = self._connection or self._start()
        try:
            connection.send(feeds)
            if not connection.poll(self._limit):
                self._kill()
                raise WorkerDied(f"no answer in {self._limit} seconds")
            fine, found = connection.recv()
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
            code = f"from {__name__} import answer; answer({theirs.fileno()})"
            path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], env=path, stdin=subprocess.DEVNULL)
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
        if process is None:
            return None
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def answer(descriptor: int) -> None:
    """Run a model, which comes first, on feeds until the other end of a connection is closed."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts means the server
    connection = Connection(descriptor)
    model: Any = None
    try:
        pickled = connection.recv_bytes()
        while True:
            feeds = connection.recv()
            try:
                model = model if model is not None else pickle.loads(pickled)
                connection.send((True, model.run(feeds)))
            except (EOFError, OSError):
                raise
            except Exception as problem:
                connection.send((False, _portable(problem)))
    except (EOFError, OSError):
        return


def _portable(problem: Exception) -> Exception:
    """Return an exception as another process can read it."""
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        return RuntimeError(str(problem))
    return problem
