"""Dynamic batching: requests from many threads become batches of a model, up to a limit of rows and of time.

    with serve(model, max_batch=16, max_delay=0.002, workers=2) as server:
        future = server.submit({"image": image})        y = future.result()["label"]

Requests wait in groups whose arrays have equal types and equal sizes but the first, of which rows are taken together in the order in which
they came. A worker takes a group when it is full or its first request has waited long enough. Each worker has a clone of the model, or a
process of its own (`workers.py`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import numpy as np

from .errors import SavedError
from .package import Rows
from .workers import InProcess, InThread, WorkerDied

Array = np.ndarray[Any, Any]
_log = logging.getLogger("tensorlang.serve")
_MOST_DEATHS = 2
"""How many workers a request may have seen die: which request of a batch it was is found by running each alone."""


class Served(Protocol):
    """A model: what `tensorlang.compile` and `load_model` return."""

    @property
    def inputs(self) -> Sequence[Any]: ...

    @property
    def outputs(self) -> Sequence[Any]: ...

    def run(self, feeds: Mapping[str, object]) -> dict[str, Any]: ...

    def clone(self, threads: int | None = None) -> Any: ...


def serve(
    model: Served,
    *,
    max_batch: int = 16,
    max_delay: float = 0.002,
    workers: int = 1,
    threads: int | None = 1,
    processes: bool = False,
    max_queue: int = 1024,
    assume_independent: str | None = None,
    max_seconds: float | None = None,
) -> Server:
    """Return a server of a model, compiled or loaded, whose requests are run in batches.

    `max_batch`: rows that a batch has at most, along the first dimension of all inputs and outputs, which the model leaves open and of
    which it has to be proven that rows do not depend on each other (`model.rows`); 1 for requests that run alone.
    `assume_independent`: why rows do not depend on each other where that is not proven, which is kept in the log and as
    `Server.assumed`. `max_delay`: seconds that a request waits at most for others.
    `workers`: how many batches run at a time, each on `threads` threads (None: as many as the model has). `processes`: each worker is a
    process of its own, which is started again when it dies; its requests are run again once. `max_queue`: how many requests wait at most.

    `max_seconds`: how long a worker process may take for a batch, its start included, before it is replaced as one that died.

    Raises SavedError R0411 for arguments that are no such numbers, and for a model whose inputs and outputs do not begin with one open
    size; R0416 for one whose rows depend on each other or are not proven not to."""
    for name, value, least in (("max_batch", max_batch, 1), ("workers", workers, 1), ("max_queue", max_queue, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SavedError("R0411", f"`{name}` is {value!r}", f"give a whole number from {least}")
    if isinstance(max_delay, bool) or not isinstance(max_delay, (int, float)) or not 0 <= max_delay < float("inf"):
        raise SavedError("R0411", f"`max_delay` is {max_delay!r}", "give seconds: `max_delay=0.002`")
    if max_seconds is not None and (
        isinstance(max_seconds, bool) or not isinstance(max_seconds, (int, float)) or not max_seconds > 0 or not processes
    ):
        title = f"`max_seconds` is {max_seconds!r}{'' if processes else ', and a thread cannot be ended'}"
        raise SavedError("R0411", title, "give seconds, with `processes=True`")
    assumed = ""
    if max_batch > 1:
        _check_batch(model, max_batch)
        assumed = checked_rows(model, assume_independent)
    clones = [model.clone(threads=threads) for _ in range(workers)]
    made = [InProcess(clone, max_seconds) if processes else InThread(clone) for clone in clones]
    return Server(model, made, max_batch, float(max_delay), max_queue, assumed)


def _check_batch(model: Served, max_batch: int) -> None:
    """Raise SavedError R0411 for a model whose requests cannot be put together."""
    size, said = batch_of(model)
    if not isinstance(size, str):
        title = f"requests cannot be put together: the inputs and outputs do not begin with one open size: {said}"
        raise SavedError("R0411", title, "compile the model with an open batch size, or serve it with `max_batch=1`")
    most = {s.name: s.most for s in getattr(getattr(model, "manifest", None), "sizes", ())}.get(size, max_batch)
    if max_batch > most:
        title = f"`max_batch` is {max_batch}, and the model was built for `{size}` of at most {most}"
        raise SavedError("R0411", title, f"`tensorlang build --max {size}={max_batch}`, or a smaller batch")


def batch_of(model: Served) -> tuple[str | int | None, str]:
    """Return the size that all inputs and outputs of a model begin with, and that is open nowhere else, None where there is none; and their
    shapes as text."""
    arrays = (*model.inputs, *model.outputs)
    first = {t.shape[0] if t.shape else None for t in arrays}
    size = first.pop() if len(first) == 1 else None
    again = isinstance(size, str) and any(size in map(str, t.shape[1:]) for t in arrays)
    return None if again else size, ", ".join(f"`{t.name}`: [{', '.join(map(str, t.shape or ()))}]" for t in arrays)


def checked_rows(model: Served, assumed: str | None) -> str:
    """Return why rows do not depend on each other where that is not proven, "" where it is. Raises SavedError R0411 and R0416."""
    if assumed is not None and (not isinstance(assumed, str) or not assumed.strip()):
        title = f"`assume_independent` is {assumed!r}, and no reason"
        raise SavedError("R0411", title, 'say why: `assume_independent="the mean over the batch is of constants"`')
    rows: Rows = getattr(model, "rows", Rows("unknown", "it is no model that was compiled here, and nothing is known of it"))
    if rows.verdict == "independent":
        return ""
    if assumed is not None:
        _log.warning("rows are assumed to be independent, because %s; what was found: %s", assumed, rows.why)
        return assumed
    said = "rows of a batch depend on each other" if rows.verdict == "mixed" else "it is not proven that rows of a batch are independent"
    help = 'serve it with `max_batch=1`, or say why this is fine: `assume_independent="…"`'
    raise SavedError("R0416", f"{said}: {rows.why}", help)


@dataclass(slots=True, eq=False)
class _Request:
    """What one caller asks for: its arrays, how many rows they have, and since when it waits."""

    feeds: Mapping[str, object]
    rows: int
    since: float
    future: Future[dict[str, Any]] = field(default_factory=Future)
    deaths: int = 0


class Server:
    """Requests in, results out (`serve`). It may be called from any number of threads. As a context manager it closes itself."""

    def __init__(
        self,
        model: Served,
        workers: Sequence[InThread | InProcess],
        max_batch: int,
        max_delay: float,
        max_queue: int,
        assumed: str = "",
    ) -> None:
        self.max_batch, self.max_delay, self.max_queue, self.assumed = max_batch, max_delay, max_queue, assumed
        self.workers = tuple(workers)
        self._names = tuple(t.name for t in model.inputs)
        self._groups: dict[object, deque[_Request]] = {}
        self._waiting, self._closed, self._pid = 0, False, os.getpid()
        self._lock = threading.Lock()
        self._came, self._room = threading.Condition(self._lock), threading.Condition(self._lock)
        self.counts = {"requests": 0, "batches": 0, "rows": 0, "cancelled": 0, "failed": 0, "restarts": 0}
        """What was done so far: requests taken in, batches run and their rows, requests that were cancelled in time and that failed,
        workers that were started again."""
        self._threads = [threading.Thread(target=self._work, args=(worker,), daemon=True, name="tensorlang.serve") for worker in workers]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ requests

    def submit(self, feeds: Mapping[str, object], timeout: float | None = None) -> Future[dict[str, Any]]:
        """Return the outputs by name, to come. `feeds` has a NumPy array for every input, of equally many rows, which stays as it is until
        then. Where the queue is full, this waits for room, at most `timeout` seconds (None: as long as it takes; 0: not at all).
        Cancelling the future before its batch begins takes the request out.

        Raises SavedError R0412 for feeds that cannot be a part of a batch, R0413 where the queue stays full, R0414 for a server that was
        closed; the future what `run` of the model raises for this request alone, R0415 where workers died over it."""
        key, rows = self._measured(feeds)
        if os.getpid() != self._pid:  # where nobody may hold the lock, and nobody ever lets go of it
            raise SavedError("R0414", "the server runs in the process that this one was forked from", "make another: `serve(model)`")
        with self._lock:
            if not self._closed and self._waiting >= self.max_queue:
                self._drop_cancelled()
                self._room.wait_for(lambda: self._closed or self._waiting < self.max_queue, timeout)
            if self._closed:
                raise SavedError("R0414", "the server was closed", "make another: `serve(model)`")
            if self._waiting >= self.max_queue:
                raise SavedError("R0413", f"{self._waiting} requests are waiting already", "try again later, or raise `max_queue`")
            request = _Request(feeds, rows, monotonic())
            self._groups.setdefault(key, deque()).append(request)
            self._waiting += 1
            self.counts["requests"] += 1
            self._came.notify()
        return request.future

    def run(self, feeds: Mapping[str, object], timeout: float | None = None) -> dict[str, Any]:
        """Return the outputs by name, when they are there. Raises as `submit` and its future do."""
        return self.submit(feeds, timeout).result()

    def close(self, *, cancel: bool = False) -> None:
        """Take no more requests, run those that wait, or cancel them, and end the workers. A fork of the process has none of these."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
            if cancel:
                for request in (r for group in self._groups.values() for r in group):
                    request.future.cancel()
            self._came.notify_all()
            self._room.notify_all()
        for thread in self._threads:
            thread.join()

    def _measured(self, feeds: Mapping[str, object]) -> tuple[object, int]:
        """Return what requests have in common that may be put together, and how many rows these feeds have."""
        if self.max_batch == 1:
            return None, 1
        missing = [name for name in self._names if name not in feeds] if isinstance(feeds, Mapping) else self._names
        if missing:
            raise SavedError("R0412", f"input `{missing[0]}` is missing", "give a dictionary with an array for every input")
        rows: set[int] = set()
        key: list[object] = []
        for name in sorted(feeds):
            value = feeds[name]
            if not isinstance(value, np.ndarray):
                if name in self._names:
                    raise SavedError("R0412", f"`{name}` is a {type(value).__name__}", "give an array of NumPy: `np.asarray(…)`")
                key.append((name, repr(value)))
            elif not value.ndim:
                raise SavedError("R0412", f"`{name}` has no dimension of rows", "its first dimension is that of the batch")
            else:
                rows.add(value.shape[0])
                key.append((name, value.dtype, value.shape[1:]))
        if len(rows) != 1:
            raise SavedError("R0412", f"the inputs have {' and '.join(map(str, sorted(rows)))} rows", "give equally many of each")
        return tuple(key), rows.pop()

    def _drop_cancelled(self) -> None:
        for key, group in list(self._groups.items()):
            kept = deque(r for r in group if not r.future.cancelled())
            self._forget(len(group) - len(kept))
            self._groups[key] = kept
            if not kept:
                del self._groups[key]

    def _forget(self, cancelled: int) -> None:
        self._waiting -= cancelled
        self.counts["cancelled"] += cancelled

    # ------------------------------------------------------------ batches

    def _work(self, worker: InThread | InProcess) -> None:
        while (batch := self._next()) is not None:
            self._serve(worker, batch)
        worker.close()

    def _next(self) -> list[_Request] | None:
        """Return the next batch when it is due, None when there are to be no more."""
        with self._lock:
            while True:
                now = monotonic()
                due = [(group[0].since, key) for key, group in self._groups.items() if self._is_due(group, now)]
                if due:
                    batch = self._taken(min(due, key=lambda pair: pair[0])[1])
                    if batch:
                        return batch
                elif self._closed and not self._groups:
                    return None
                else:
                    first = min((group[0].since for group in self._groups.values()), default=None)
                    self._came.wait(None if first is None else max(0.0, first + self.max_delay - now))

    def _is_due(self, group: deque[_Request], now: float) -> bool:
        return self._closed or now >= group[0].since + self.max_delay or sum(r.rows for r in group) >= self.max_batch

    def _taken(self, key: object) -> list[_Request]:
        """Return requests of a group, as many as make a batch, without those that were cancelled."""
        group, batch, rows = self._groups[key], list[_Request](), 0
        while group and (not batch or rows + group[0].rows <= self.max_batch):
            request = group.popleft()
            if request.future.set_running_or_notify_cancel():
                batch.append(request)
                rows += request.rows
                self._waiting -= 1
            else:
                self._forget(1)
        if not group:
            del self._groups[key]
        else:
            self._came.notify()
        self._room.notify_all()
        return batch

    def _serve(self, worker: InThread | InProcess, batch: Sequence[_Request]) -> None:
        """Give each request of a batch its result. What goes wrong with several is tried with each alone."""
        try:
            found = worker.run(_joined(batch))
            parts = _parts(found, batch)
        except Exception as problem:
            died = isinstance(problem, WorkerDied)
            for request in batch:
                request.deaths += died
            with self._lock:
                self.counts["restarts"] += died
            if len(batch) > 1 or (died and batch[0].deaths < _MOST_DEATHS):
                for request in batch:
                    self._serve(worker, [request])
                return
            with self._lock:
                self.counts["failed"] += 1
            batch[0].future.set_exception(_lost(problem) if died else problem)
            return
        with self._lock:
            self.counts["batches"] += 1
            self.counts["rows"] += sum(r.rows for r in batch)
        for request, part in zip(batch, parts, strict=True):
            request.future.set_result(part)


def _lost(problem: Exception) -> SavedError:
    title = f"{_MOST_DEATHS} worker processes died while they ran this request: {problem}"
    return SavedError("R0415", title, "its data or the memory of the machine may be why")


def _joined(batch: Sequence[_Request]) -> Mapping[str, object]:
    """Return the feeds of a batch: arrays behind each other, and what else there is once."""
    first = batch[0].feeds
    if len(batch) == 1:
        return first
    arrays = {name: [r.feeds[name] for r in batch] for name, value in first.items() if isinstance(value, np.ndarray)}
    return {**first, **{name: np.concatenate(of) for name, of in arrays.items()}}  # type: ignore[arg-type]


def _parts(found: Mapping[str, Any], batch: Sequence[_Request]) -> list[dict[str, Any]]:
    """Return the rows of each request."""
    if len(batch) == 1:
        return [dict(found)]
    ends = np.cumsum([r.rows for r in batch])
    return [{name: array[end - r.rows : end] for name, array in found.items()} for r, end in zip(batch, ends.tolist(), strict=True)]
