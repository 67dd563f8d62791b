"""`tune`: schedules of an operator, or of the kernels of a model, that are faster than their own, found by trying.

    proven        each candidate like any other schedule, before it is compiled
    compared      its results with those of the own schedule
    measured      beside that in turns, in processes that may die (`workers.py`), on this machine or on those of a cluster

The kernel that comes next is the one that takes most of the time and of which least was tried. Machines of different kinds are searched for
apart: what is fast on one need not be on another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np

from tensorlang.diagnostics import error
from tensorlang.graph.data_dependent import DataDependent
from tensorlang.runtime.feeds import in_rows
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.protocol import Progress, quiet
from tensorlang.runtime.schedule_book import BookEntry, ScheduleBook
from tensorlang.shell.files import write_text
from tensorlang.shell.variants import LEAST_GAIN
from tensorlang.tuning.search import Found, Search
from tensorlang.tuning.subjects import Answer, Greeting, ModelSubject, OperatorSubject, Subject, Trial
from tensorlang.tuning.workers import PATIENCE_SECONDS, LocalWorkers, Worker, Workers

_TRIAL_SECONDS = 0.1
"""For which a candidate and the own schedule take turns."""
_FINAL_SECONDS = 1.0
"""For which the fastest is measured once more: the fastest of many trials was lucky, too."""
_FINAL_TRIALS = 3
"""How many of a kernel are measured once more, where the ones before were lucky alone."""
_ROUND_SECONDS = 1.0
"""After which progress is told, and machines are looked for that have joined a cluster."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found for an operator. `ratio`: how many times as fast as under its own schedule the operator is under `schedule`, 1 where
    that is its own. `outcomes`: of how many schedules each thing became: `measured`, `refused`, `wrong`, `ended` (two processes died);
    `known` of them were in the database. `machine` is the kind of machine that this is for, `others` what was found for other kinds."""

    operator: Operator = field(repr=False)
    machine: str
    ratio: float
    schedule: tuple[str, ...]
    outcomes: Mapping[str, int]
    known: int
    interrupted: bool = False
    others: tuple[Tuned, ...] = ()

    @property
    def text(self) -> str:
        """Return the schedule in the language, to be pasted."""
        body = "\n".join(f"    {line}" for line in self.schedule)
        return f"schedule {self.operator.name} for {self.operator.scheduled_for} {{\n{body}\n}}"

    @property
    def faster(self) -> Operator:
        """Return the operator under the schedule."""
        return self.operator.schedule("\n".join(self.schedule))


@dataclass(frozen=True, slots=True)
class TunedModel:
    """What was found for the kernels of a model. `ratio`: how many times as fast the run is, by the time that its kernels take; `kernels`
    are those that have a faster schedule. The rest as for `Tuned`."""

    model: CompiledModel = field(repr=False)
    machine: str
    ratio: float
    kernels: tuple[Found, ...]
    schedules: ScheduleBook
    outcomes: Mapping[str, int]
    known: int
    interrupted: bool = False
    others: tuple[TunedModel, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write the schedules to a file, for `tl.compile(model, schedules=path)`. Raises CompileError C0203."""
        write_text(Path(path), self.schedules.text)

    @property
    def faster(self) -> CompiledModel:
        """Return the model under the schedules. Raises CompileError as `tensorlang.compile` does."""
        return self.model.under(self.schedules)


Report: TypeAlias = Tuned | TunedModel


@overload
def tune(
    what: Operator,
    /,
    *args: Any,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress = quiet,
    cluster: str | None = None,
    **named: Any,
) -> Tuned: ...


@overload
def tune(
    what: CompiledModel,
    /,
    *args: Any,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress = quiet,
    cluster: str | None = None,
    **named: Any,
) -> TunedModel: ...


def tune(
    what: Operator | CompiledModel,
    /,
    *args: Any,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress = quiet,
    cluster: str | None = None,
    **named: Any,
) -> Report:
    """Return the fastest schedules found in about so many seconds for an operator or a model called with these arguments. An interrupt ends
    the search early. Nothing changes for the operator or the model: `result.faster` is it under what was found, `result.text` is to be
    pasted for an operator, `result.save(path)` writes what `tl.compile(…, schedules=path)` takes for a model.

    `cluster`: the address of a Ray cluster ("auto", "host:6379", "ray://host:10001"), on whose machines schedules are tried, a process on
    each; machines may come, go and differ.

    Raises CompileError C0103 for operators on devices and of other origin and models whose shapes depend on data, C0146 where
    there is no Ray or no such cluster, C0149 for `seconds` that are no time, and what a call raises."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds < inf:
        raise error("C0149", f"`seconds` is {seconds!r:.60}", help="give how long to look: `seconds=60`; an interrupt ends it early")
    subject = _subject(what, args, named)
    workers = _workers(subject, cluster)
    tuning = _Tuning(workers, seed, progress)
    try:
        tuning.run(seconds)
        reports = [_report(what, machine, tuning.interrupted) for machine in tuning.machines.values()]
    finally:
        workers.end()
    first, *others = sorted(reports, key=lambda r: r.machine != tuning.first)
    return replace(first, others=tuple(others))  # type: ignore[arg-type]


def _subject(what: Operator | CompiledModel, args: tuple[Any, ...], named: dict[str, Any]) -> Subject:
    if isinstance(what, CompiledModel):
        if what.tools.on_device:
            raise error("C0103", "not supported yet: tuning a model on a device", help="tune it for a processor")
        feeds = {name: np.asarray(value, order="C") for name, value in what.feeds_of(args, named).items()}
        try:
            what.run(feeds)
            what.graph(feeds)
        except DataDependent:
            title = "not supported yet: tuning a model whose shapes depend on elements of its inputs"
            raise error("C0103", title, help="tune the operators of a `.tl` file") from None
        return ModelSubject(what, feeds)
    if not isinstance(what, Operator):
        raise error(
            "C0103", f"`{what!r:.60}` cannot be tuned", help="give an operator of `tl.load` or `tl.parse`, or a model of `tl.compile`"
        )
    if what.tools.on_device or what.declaration.extern:
        raise error("C0103", "not supported yet: tuning this operator", help="tune operators of the language, on a processor")
    names = (p.name for p in what.declaration.params)
    given = {**dict(zip(names, args, strict=False)), **named}
    dense = in_rows(given)
    what.compiled(what.call(**dense))  # what is wrong with a call is told before processes begin
    return OperatorSubject(what, dense)


def _workers(subject: Subject, cluster: str | None) -> Workers:
    if cluster is None:
        return LocalWorkers(subject)
    from tensorlang.cluster.actors import Actors

    return Actors(subject.begin, cluster, subject.threads, PATIENCE_SECONDS)


class _Machine:
    """What is known of a kind of machine: of each kernel, what became of its schedules."""

    def __init__(self, greeting: Greeting, seed: int) -> None:
        self.name, self.kernels = greeting.machine, greeting.kernels
        self.searches = [Search(kernel, seed + k) for k, kernel in enumerate(greeting.kernels)]
        self._open = set(range(len(self.searches)))
        self._again: list[tuple[int, str]] = []
        self.confirmed: dict[int, Found] = {}

    def next(self) -> tuple[int, str] | None:
        """Return a kernel and a schedule to be tried, None where nothing is left."""
        if self._again:
            return self._again.pop()
        while self._open:
            k = max(self._open, key=lambda k: (self.kernels[k].share / (1 + self.searches[k].tried), -k))
            text = self.searches[k].next()
            if text is not None:
                return k, text
            self._open.remove(k)
        return None

    def told(self, kernel: int, text: str, answer: Answer | None) -> None:
        if not self.searches[kernel].told(text, answer):
            self._again.append((kernel, text))

    def ratio(self, found: Iterable[tuple[int, Found]] | None = None) -> float:
        """Return how many times as fast a run is under what was found, by the shares of the kernels."""
        pairs = found if found is not None else [(k, s.fastest()) for k, s in enumerate(self.searches)]
        saved = sum(self.kernels[k].share * (1 - 1 / f.ratio) for k, f in pairs)
        return 1 / max(1 - saved, 1e-9)

    def promising(self) -> list[tuple[int, str]]:
        """Return the kernels that seem to have a faster schedule, with it."""
        found = [(k, s.fastest()) for k, s in enumerate(self.searches)]
        return [(k, "\n".join(f.schedule)) for k, f in found if f.ratio >= LEAST_GAIN]


class _Tuning:
    """A search on whatever machines there are."""

    def __init__(self, workers: Workers, seed: int, progress: Progress) -> None:
        self._workers, self._seed, self._progress = workers, seed, progress
        self._under_way: dict[Worker, tuple[_Machine, int, str]] = {}
        self.machines: dict[str, _Machine] = {}
        self.first = ""
        self.interrupted = False

    def run(self, seconds: float) -> None:
        """Try candidates until the time is up, or there are none; then measure what seems faster once more. The time counts from when the
        first process has begun."""
        while not self.machines:
            for worker in self._workers.idle(_ROUND_SECONDS):
                self._machine(worker)
        try:
            self._search(time.monotonic(), seconds)
            self._confirm()
        except KeyboardInterrupt:
            self.interrupted = True

    def _machine(self, worker: Worker) -> _Machine:
        name = worker.greeting.machine
        if name not in self.machines:
            self.machines[name] = _Machine(worker.greeting, self._seed)
            self.first = self.first or name
        return self.machines[name]

    def _search(self, start: float, seconds: float) -> None:
        while (left := start + seconds - time.monotonic()) > 0:
            for worker in self._workers.idle(0.0 if self._under_way else left):
                machine = self._machine(worker)
                following = machine.next()
                if following is not None:
                    self._under_way[worker] = (machine, *following)
                    worker.begin(Trial({following[0]: following[1]}, _TRIAL_SECONDS))
            if not self._under_way:
                return  # all is known, or every machine has gone
            self._hear(min(left, _ROUND_SECONDS))
            best = max(machine.ratio() for machine in self.machines.values())
            self._progress(f"tuning: {best:.2f}x", round(min(seconds, time.monotonic() - start)), round(seconds))

    def _hear(self, seconds: float) -> None:
        for worker, answer in self._workers.answers(seconds):
            machine, kernel, text = self._under_way.pop(worker)
            machine.told(kernel, text, answer)

    def _confirm(self) -> None:
        while self._under_way:
            self._hear(_ROUND_SECONDS)
        waiting = {name: machine.promising() for name, machine in self.machines.items()}
        asked: dict[Worker, tuple[_Machine, int]] = {}
        lucky: Counter[tuple[str, int]] = Counter()
        while asked or any(waiting.values()):
            for worker in self._workers.idle(0.0 if asked else _ROUND_SECONDS):
                machine = self._machine(worker)
                if waiting.get(machine.name):
                    kernel, text = waiting[machine.name].pop()
                    asked[worker] = machine, kernel
                    worker.begin(Trial({kernel: text}, _FINAL_SECONDS))
            if not asked:
                return  # the machines that could say have gone
            for worker, answer in self._workers.answers(_ROUND_SECONDS):
                machine, kernel = asked.pop(worker)
                ratio = answer if isinstance(answer, float) else 1.0
                machine.confirmed[kernel] = machine.searches[kernel].confirmed(ratio)
                if machine.confirmed[kernel].ratio >= LEAST_GAIN:
                    continue
                lucky[machine.name, kernel] += 1
                if lucky[machine.name, kernel] < _FINAL_TRIALS:
                    waiting[machine.name] += (pair for pair in machine.promising() if pair[0] == kernel)


def _report(what: Operator | CompiledModel, machine: _Machine, interrupted: bool) -> Report:
    searches = machine.searches
    outcomes = {kind: sum(s.outcomes[kind] for s in searches) for kind in searches[0].outcomes} if searches else {}
    known = sum(s.known_before for s in searches)
    best = {k: machine.confirmed.get(k) or (s.confirmed(None) if interrupted else s.own()) for k, s in enumerate(searches)}
    if isinstance(what, Operator):
        return Tuned(what, machine.name, best[0].ratio, best[0].schedule, outcomes, known, interrupted)
    faster = {k: found for k, found in best.items() if found.ratio >= LEAST_GAIN}
    entries = {machine.kernels[k].book_key: BookEntry(f.kernel, f.schedule, f.ratio) for k, f in faster.items()}
    before = getattr(what.tools, "schedules", None) or ScheduleBook()
    book = ScheduleBook({**before.entries, **entries})
    ratio = machine.ratio(faster.items())
    return TunedModel(what, machine.name, ratio, tuple(faster.values()), book, outcomes, known, interrupted)


def tuned_text(found: Report) -> str:
    """Return a report for people: what was tried and what was found, and of an operator a schedule to be pasted."""
    return "\n\n".join(_told(report, bool(found.others)) for report in (found, *found.others))


def _told(found: Report, names_machine: bool) -> str:
    told = [f"{count} {what}" for what, count in found.outcomes.items() if count]
    known = f", {found.known} of them before" if found.known else ""
    lines = [f"machine    {found.machine}"] if names_machine else []
    lines += [f"tried      {', '.join(told) or 'nothing'}{known}{', interrupted' if found.interrupted else ''}"]
    if found.ratio < LEAST_GAIN and not (isinstance(found, TunedModel) and found.kernels):
        what = "operator" if isinstance(found, Tuned) else "model"
        return "\n".join([*lines, f"           none is {LEAST_GAIN:.2f}x as fast as the {what} under its own schedule"])
    if isinstance(found, Tuned):
        return "\n".join([*lines, f"           {found.ratio:.2f}x as fast as under its own schedule:", "", found.text])
    return "\n".join([*lines, f"           {found.ratio:.2f}x as fast as under its own schedules", *_kernel_lines(found.kernels)])


def _kernel_lines(kernels: Sequence[Found]) -> list[str]:
    width = max(len(k.kernel) for k in kernels)
    return [f"           {k.kernel:<{width}}  {k.ratio:.2f}x" for k in sorted(kernels, key=lambda k: -k.ratio)]
