"""A fork server: cases are tried in children of a process that has everything loaded, so that one costs a fork rather than a start.

    for report in Server(jobs).serve(following): …   children that do the tasks that `following` returns, `jobs` at a time
    outcome = alone(front, case)                     one case in a child of this process

A child writes one line of JSON per step to a pipe. Whatever ends it, a signal or the parent, which kills it after its time, is the outcome
of the case it was at; the rest of its cases go to another child.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fuzzing.front import Expecting, Front, Outcome, crashed, tried

Steps: TypeAlias = Iterator[dict[str, Any]]
MEMORY = 6 << 30
"""Bytes a child may map beyond what the parent has; more ends in a MemoryError, which is a finding."""
PATIENCE = 15.0
"""Seconds that a case may take by the clock, beyond four times its processor time: the machine may be busy, or the case may sleep."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Task:
    """Something a child does: `steps` yields what it has to report, each step within `seconds` of processor time."""

    front: Front
    seeds: tuple[int, ...]
    steps: Callable[[tuple[int, ...]], Steps]
    seconds: float
    cutting: bool = False
    """Whether it cuts a finding down; otherwise it tries cases, and what a dead child leaves over goes to another."""


@dataclass(frozen=True)
class Report:
    """What a child said of a seed, or what became of it. `spent`: seconds of the processor."""

    task: Task
    seed: int
    said: dict[str, Any]
    spent: float


def trying(front: Front) -> Callable[[tuple[int, ...]], Steps]:
    """Return the steps of trying the cases of some seeds."""

    def steps(seeds: tuple[int, ...]) -> Steps:
        if isinstance(front, Expecting):
            yield {"at": seeds[0]}
            front.expect(seeds)
        for seed in seeds:
            yield {"at": seed}
            yield {"seed": seed, **as_json(drawn_and_tried(front, seed))}

    return steps


def drawn_and_tried(front: Front, seed: int) -> Outcome:
    try:
        case = front.draw(seed)
    except Exception as fault:
        made = crashed(fault)
        return Outcome("crash", f"while drawing: {made.label}", made.text)
    return tried(front, case)


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {"kind": outcome.kind, "label": outcome.label, "text": outcome.text[:20000], "native": outcome.native}


def from_json(said: dict[str, Any]) -> Outcome:
    return Outcome(said["kind"], said["label"], said["text"], said["native"])


@dataclass
class _Child:
    task: Task
    pid: int
    pipe: int
    trace: int
    unread: bytes = b""
    at: int | None = None
    began: float = field(default_factory=time.monotonic)
    spent_before: float = 0.0
    done: set[int] = field(default_factory=set)

    def spent(self) -> float:
        """Return the processor time since the case began."""
        return processor_seconds(self.pid) - self.spent_before

    def late(self) -> bool:
        return is_late(self.task.seconds, self.spent(), self.began)


class Server:
    """Runs tasks in children. `close` ends those that are still at work."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()

    def serve(self, following: Callable[[], Task | None]) -> Iterator[Report]:
        """Yield what children report, as it comes. `following` is asked what to do next whenever a child could be made: reports may have
        made more of it. Ends when nobody is at work and there is nothing more."""
        left: list[Task] = []
        while True:
            while len(self._children) < self.jobs:
                task = left.pop() if left else following()
                if task is None:
                    break
                self._start(task)
            if not self._children:
                return
            for key, _ in self._selector.select(0.5):
                yield from self._read(self._children[key.fd], left)
            for child in [c for c in self._children.values() if c.late()]:
                yield from self._ended(child, "timeout", left)

    def close(self) -> None:
        for child in list(self._children.values()):
            self._end(child)

    def _start(self, task: Task) -> None:
        pid, pipe, trace = _forked(lambda: task.steps(task.seeds))
        os.set_blocking(pipe, False)
        self._children[pipe] = _Child(task, pid, pipe, trace)
        self._selector.register(pipe, selectors.EVENT_READ)

    def _read(self, child: _Child, left: list[Task]) -> Iterator[Report]:
        data = os.read(child.pipe, 1 << 20)
        *lines, child.unread = (child.unread + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "at" in said:
                child.at, child.began = said["at"], time.monotonic()
                child.spent_before = processor_seconds(child.pid)
            else:
                yield Report(child.task, said["seed"], said, said["spent"])
                child.done.add(said["seed"])
                child.at = None
        if not data:
            yield from self._ended(child, None, left)

    def _ended(self, child: _Child, kind: str | None, left: list[Task]) -> Iterator[Report]:
        spent = child.spent()
        if kind == "timeout":
            _asked_where(child.pid)
        status = self._end(child)
        trace = _text_of(child.trace)
        if child.at is not None:
            outcome = _ended_as(kind, status, trace)
            child.done.add(child.at)
            yield Report(child.task, child.at, {"seed": child.at, **as_json(outcome)}, spent)
        rest = tuple(s for s in child.task.seeds if s not in child.done)
        if rest and not child.task.cutting and child.done:
            left.append(Task(child.task.front, rest, child.task.steps, child.task.seconds))

    def _end(self, child: _Child) -> int:
        self._selector.unregister(child.pipe)
        del self._children[child.pipe]
        os.close(child.pipe)
        return _killed(child.pid)


def alone(front: Front, case: Any, seconds: float | None = None) -> Outcome:
    """Return how a case fares in a child of this process."""
    limit = front.seconds if seconds is None else seconds

    def steps() -> Steps:
        yield as_json(tried(front, case))

    pid, pipe, trace = _forked(steps)
    began, data, late = time.monotonic(), b"", False
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not late:
            if selector.select(0.2):
                more = os.read(pipe, 1 << 20)
                data += more
                if not more:
                    break
            late = is_late(limit, processor_seconds(pid), began)
    os.close(pipe)
    if late:
        _asked_where(pid)
    status = _killed(pid)
    text = _text_of(trace)
    if data.endswith(b"\n") and not late:
        return from_json(json.loads(data))
    return _ended_as("timeout" if late else None, status, text)


def is_late(limit: float, spent: float, began: float) -> bool:
    """Tell whether what began then and may take `limit` seconds of the processor has had its time."""
    return spent > limit or time.monotonic() - began > 4 * limit + PATIENCE


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of those it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(int(w) for w in words[11:15]) / _TICKS


def _forked(steps: Callable[[], Steps]) -> tuple[int, int, int]:
    """Return a child that writes its steps as lines, the pipe they come from, and a file where it says how it died."""
    read, write = os.pipe()
    trace = os.memfd_create("trace")
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            _child(steps, write, trace)
        finally:
            os._exit(0)
    os.close(write)
    return pid, read, trace


def _child(steps: Callable[[], Steps], write: int, trace: int) -> None:
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable(trace)
    gc.freeze()  # what the parent has loaded is not garbage, and looking at it would copy its pages
    gc.set_threshold(100_000)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit, most = _mapped_bytes() + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = limit if most == resource.RLIM_INFINITY else min(limit, most)  # a child of a child cannot have more than its parent
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    before = _spent()
    for said in steps():
        now = _spent()
        line = json.dumps({**said, "spent": now - before}) + "\n"
        before = before if "at" in said else now
        data = line.encode("utf-8", "replace")
        while data:
            data = data[os.write(write, data) :]


def _spent() -> float:
    """Return the processor time of this process and of those it has waited for."""
    return sum(os.times()[:4])


def _mapped_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _asked_where(pid: int) -> None:
    """Let a child say where it is, which ends it."""
    os.kill(pid, signal.SIGABRT)
    time.sleep(0.2)


def _killed(pid: int) -> int:
    """End a child and those it started; return how it ended."""
    for end in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.kill(pid, signal.SIGKILL)):
        finished, status = os.waitpid(pid, os.WNOHANG)
        if finished:
            return status
        try:
            end()
        except (ProcessLookupError, PermissionError):
            continue
    return os.waitpid(pid, 0)[1]


def _ended_as(kind: str | None, status: int, trace: str) -> Outcome:
    """Return the outcome of a case whose process did not live to tell."""
    place = _innermost(trace)
    if kind == "timeout":
        return Outcome("timeout", "", trace)
    if os.WIFSIGNALED(status):
        return Outcome("signal", f"{signal.Signals(os.WTERMSIG(status)).name} in {place}", trace)
    return Outcome("signal", f"the process ended by itself with {os.waitstatus_to_exitcode(status)}", trace)


def _innermost(trace: str) -> str:
    """Return the innermost function of a faulthandler's trace that is not ours."""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    for line in lines:
        path, _, name = line.partition(", line ")
        if "/tests/" not in path and "/scripts/" not in path and "contextlib" not in path:
            return f"{path.split('/')[-1].rstrip(chr(34))}:{name.partition(' in ')[2]}"
    return "compiled code" if lines else "?"


def _text_of(file: int) -> str:
    with os.fdopen(file, "rb") as found:
        found.seek(0)
        return found.read().decode("utf-8", "replace")[:8000]
