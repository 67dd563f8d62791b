"""What is tuned, in the process that tries schedules: an operator called with some arguments, or a model run on some inputs.

    greeting, answer = OperatorSubject(operator, given).begin()        the kernels that there are, on this machine
    answer(Trial({0: text}, seconds=0.1))                              1.2, or "refused", or "wrong"

A subject can be pickled, and begins in processes on other machines, each of which has schedules of its own for the kernels.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import numpy as np

from codegen.store import key_of
from tensorlang.backends.cpu.build import build, parts_of
from tensorlang.backends.cpu.driver import machine_of
from tensorlang.backends.cpu.executable import Executable, assembled, calls_timer
from tensorlang.backends.cpu.kernels import FROM_BOOK
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import CompileError, RunError
from tensorlang.digest import compiler_digest
from tensorlang.graph.nodes import Kernel, steps_of
from tensorlang.policy.cpu.alternatives import alternatives
from tensorlang.runtime.constants import places_of, without_constants
from tensorlang.runtime.jobs import Job, distinct, job_of, optimised
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.protocol import quiet
from tensorlang.runtime.schedule_book import BookEntry, ScheduleBook, key_of_job
from tensorlang.shell.measure import measured
from tensorlang.tensor.nodes import Program
from tensorlang.tuning.comparing import agree

if TYPE_CHECKING:
    from tensorlang.artifact import Artifact

Array: TypeAlias = np.ndarray[Any, Any]
Answer: TypeAlias = float | Literal["refused", "wrong"]
"""How many times as fast as under its own schedule something is under another, or why it is not measured."""
_FIRST = 24
"""Candidates of the cost model that come first."""


@dataclass(frozen=True, slots=True)
class Tunable:
    """A kernel. `own` is its own schedule, `first` are those to try first; it takes `share` of the time of a run. `key` is what is known of
    it under, `kin` that of kernels that differ from it in numbers alone, `book_key` that in files of schedules."""

    name: str
    program: Program = field(repr=False)
    own: tuple[str, ...] = field(repr=False)
    first: tuple[tuple[str, ...], ...] = field(repr=False)
    share: float
    key: str
    kin: str
    book_key: str = ""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a process says that begins: `machine` names the processor and the options that code is for."""

    machine: str
    kernels: tuple[Tunable, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """Schedules for some kernels by their position, to be measured beside their own in turns for so many seconds."""

    schedules: Mapping[int, str]
    seconds: float


class Subject(Protocol):
    """What is tuned, to be sent to the processes that try schedules."""

    @property
    def threads(self) -> int:
        """How many processors a trial needs."""
        ...

    def begin(self) -> tuple[Greeting, Callable[[Trial], Answer]]:
        """Return what there is to be tuned here, and what answers trials. Raises as a call or a run does."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorSubject:
    """An operator and the arguments of a call."""

    operator: Operator
    given: Mapping[str, Any]

    @property
    def threads(self) -> int:
        return self.operator.tools.threads

    def begin(self) -> tuple[Greeting, Callable[[Trial], Answer]]:
        operator, given = self.operator, self.given
        made: Any = operator.compiled(operator.call(**given))
        tools = cast(Toolchain, operator.tools)
        own = operator.prepared(**given)
        expected = [np.array(r) for r in results_of(own())]
        exactly = made.program.mode == "strict"

        def answer(trial: Trial) -> Answer:
            (text,) = trial.schedules.values()
            try:
                run = operator.schedule(text).prepared(**given)
                found = [np.asarray(r) for r in results_of(run())]
            except (CompileError, RunError):
                return "refused"
            if not agree(found, expected, exactly=exactly):
                return "wrong"
            first, second = measured({"own": own, "other": run}, trial.seconds)
            return first.best_seconds / second.best_seconds

        return Greeting(_machine(tools), (_tunable(operator.name, made.program, made.artifact, tools, 1.0),)), answer


@dataclass(frozen=True, slots=True)
class ModelSubject:
    """A model and the inputs of a run. Kernels are tried where they stand: the model runs as a whole, and each call is timed."""

    model: CompiledModel
    feeds: Mapping[str, Any]

    @property
    def threads(self) -> int:
        return self.model.tools.threads

    def begin(self) -> tuple[Greeting, Callable[[Trial], Answer]]:
        trials = _ModelTrials(self.model, self.feeds)
        return trials.greeting, trials.answer


class _ModelTrials:
    """A model under its own schedules, to be compared with."""

    def __init__(self, model: CompiledModel, feeds: Mapping[str, Any]) -> None:
        self._tools = cast(Toolchain, model.tools)
        graph = optimised(model.graph(feeds), self._tools)
        self._places, self._bare = places_of(graph), without_constants(graph)
        self._own = build(graph, self._tools)
        self._inputs = [np.asarray(feeds[name], order="C") for name in graph.inputs]
        self._expected = [np.array(a) for a in self._own(self._inputs)]
        steps = list(steps_of(self._bare))
        self._jobs, numbers = distinct([job_of(owner, node) for owner, node in steps if isinstance(node, Kernel)])
        of_kernels = iter(numbers)
        number_of = [next(of_kernels) if isinstance(node, Kernel) else None for _, node in steps]
        self._calls = [[k for k, number in enumerate(number_of) if number == n] for n in range(len(self._jobs))]
        self._time = calls_timer(self._own, self._inputs)
        taken = np.min([self._time() for _ in range(3)], axis=0)
        made = dict(zip(numbers, self._own.artifacts, strict=True))
        whole = float(taken.sum()) or 1.0
        shares = [float(taken[calls].sum()) / whole for calls in self._calls]
        self.greeting = Greeting(
            _machine(self._tools),
            tuple(_tunable(job.program.name, job.program, made[n], self._tools, shares[n], job) for n, job in enumerate(self._jobs)),
        )

    def answer(self, trial: Trial) -> Answer:
        """Return how many times as fast as under their own schedules the kernels are together."""
        entries = {key_of_job(self._jobs[n]): BookEntry("", tuple(text.splitlines()), 1.0) for n, text in trial.schedules.items()}
        try:
            other = self._under(ScheduleBook({**self._known, **entries}))
            found = [np.array(a) for a in other(self._inputs)]
        except (CompileError, RunError):
            return "refused"
        calls = sorted(k for n in trial.schedules for k in self._calls[n])
        if any(made.origin != FROM_BOOK for made in self._of(other, calls)):
            return "refused"
        exactly = all(job.program.mode == "strict" for job in self._jobs)
        if not agree(found, self._expected, exactly=exactly, kernels=len(self._jobs)):
            return "wrong"
        time, end = calls_timer(other, self._inputs), perf_counter() + trial.seconds
        own: list[Array] = []
        tried: list[Array] = []
        while len(own) < _LEAST_RUNS or perf_counter() < end:
            own.append(self._time()[calls])
            tried.append(time()[calls])
        return float(np.min(own, axis=0).sum() / np.min(tried, axis=0).sum())

    @property
    def _known(self) -> Mapping[str, BookEntry]:
        return {} if self._tools.schedules is None else self._tools.schedules.entries

    def _of(self, executable: Executable, calls: Sequence[int]) -> list[Artifact]:
        of_step = iter(executable.artifacts)
        made = {k: next(of_step) for k, step in enumerate(executable.steps) if isinstance(step, Kernel)}
        return [made[k] for k in calls]

    def _under(self, book: ScheduleBook) -> Executable:
        tools = replace(self._tools, schedules=book)
        parts = parts_of(self._bare, tools, quiet, self._places)
        return assembled(replace(parts, constants=self._own.constants, names=self._own.parts.names), tools)


_LEAST_RUNS = 5


def results_of(found: Any) -> Sequence[Any]:
    """Return the results of a call in a row."""
    return found if isinstance(found, tuple) else (found,)


def lines_of(schedule: str) -> tuple[str, ...]:
    """Return the directives of a schedule as text, but for what it trusts: what is tried is proven."""
    return tuple(line.strip() for line in schedule.splitlines() if line.startswith(" ") and not line.strip().startswith("trust "))


def _tunable(name: str, program: Program, made: Artifact, tools: Toolchain, share: float, job: Job | None = None) -> Tunable:
    own = lines_of(made.schedule)
    first = alternatives(program, machine_of(tools.target, tools.threads), _FIRST)
    layouts = "" if job is None else job.layouts_text
    text, options = f"{program!r} {layouts}", tuple(map(str, tools.options))
    key = key_of((text, "\n".join(own), *options, compiler_digest()))
    kin = key_of((re.sub(r"\d+", "#", text), *options))
    return Tunable(name, program, own, tuple(lines_of(str(s)) for s in first), share, key, kin, "" if job is None else key_of_job(job))


def _machine(tools: Toolchain) -> str:
    """Return a name for what code is compiled for: that of the processor, with a few digits that tell apart what else matters."""
    digits = hashlib.sha256(repr(tools.options).encode()).hexdigest()[:6]
    return f"{tools.target.cpu or tools.name}, {tools.threads} thread{'s' * (tools.threads != 1)} ({digits})"
