"""`tune`: schedules of an operator that are faster than its own, found by trying.

    candidates    the inner loops of next fewest predicted cycles (`policy.cpu.alternatives`), then what differs from the fastest so far in
                  one directive, or in two (`shell.variants`)
    proven        each like any other schedule, before it is compiled
    compared      its results with those of the operator's own schedule
    measured      beside that in turns, in a process that may die (`shell.tuning_worker`)

What became of each is kept beside the cache, by program, machine and compiler: schedules as text, which are proven again whenever they are
used, so that an old entry can only be slow. Who is interrupted, or killed, goes on from there.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from codegen.store import Cache, default_directory, key_of
from tensorlang.diagnostics import error
from tensorlang.digest import compiler_digest
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.protocol import Progress, quiet
from tensorlang.shell.answering import AnsweringProcess
from tensorlang.shell.variants import variants

_TRIAL_SECONDS = 0.1
"""For which a candidate and the operator's own schedule take turns."""
_FINAL = 10.0
"""How many times as long the fastest is measured once more: the fastest of many trials was lucky, too."""
_PATIENCE_SECONDS = 30.0
"""After which a process that does not answer is ended."""
_ENDED = "ended"
LEAST_GAIN = 1.02
"""How many times as fast as its own a schedule has to be to be told of."""
_FIRST = 24
"""Candidates of the cost model that come first."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found. `ratio`: how many times as fast as under its own schedule the operator is under `schedule`, 1 where that is its own.
    `outcomes`: of how many schedules each thing became: `measured`, `refused`, `wrong`, `ended` (their process died); `known` of them were
    in the database."""

    operator: Operator = field(repr=False)
    ratio: float
    schedule: tuple[str, ...]
    outcomes: Mapping[str, int]
    known: int
    interrupted: bool = False

    @property
    def text(self) -> str:
        """Return the schedule in the language, to be pasted."""
        body = "\n".join(f"    {line}" for line in self.schedule)
        return f"schedule {self.operator.name} for {self.operator.scheduled_for} {{\n{body}\n}}"

    @property
    def faster(self) -> Operator:
        """Return the operator under the schedule."""
        return self.operator.schedule("\n".join(self.schedule))


def tune(operator: Operator, *args: Any, seconds: float = 60.0, seed: int = 0, progress: Progress = quiet, **named: Any) -> Tuned:
    """Return the fastest schedule found in about so many seconds for an operator called with these arguments. An interrupt ends the search
    early. Nothing changes for the operator: `result.faster` is it under the schedule, `result.text` is to be pasted.

    Raises CompileError C0103 for operators on devices and of other origin, and what a call raises."""
    if operator.tools.on_device or operator.declaration.extern:
        raise error("C0103", "not supported yet: tuning this operator", help="tune operators of the language, on a processor")
    names = (p.name for p in operator.declaration.params)
    given = {**dict(zip(names, args, strict=False)), **named}
    dense = {name: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for name, v in given.items()}
    search = _Search(operator, dense, seed, progress)
    try:
        search.run(seconds)
    except KeyboardInterrupt:
        search.interrupted = True
    return search.finished()


class _Search:
    """A search: what is known, and the fastest so far."""

    def __init__(self, operator: Operator, given: Mapping[str, Any], seed: int, progress: Progress) -> None:
        self._operator, self._given, self._progress = operator, given, progress
        self._random = random.Random(seed)
        made: Any = operator.compiled(operator.call(**given))
        self._program = made.program
        self._own = _lines(made.artifact.schedule)
        key = (repr(made.program), "\n".join(self._own), *map(str, operator.tools.options), compiler_digest())
        self._key = key_of(key)
        directory = default_directory()
        self._database = Cache(directory.with_name(f"{directory.name}-tuned"))
        self._known: dict[str, float | str] = json.loads(self._database.get(self._key) or b"{}")
        self._met = len(self._known)
        self._worker: AnsweringProcess | None = None
        self.interrupted = False

    def run(self, seconds: float) -> None:
        """Try candidates until the time is up, or there are none."""
        end = time.monotonic() + seconds
        for lines in self._candidates():
            if time.monotonic() >= end:
                break
            text = "\n".join(lines)
            if text not in self._known:
                self._known[text] = self._answer(text)
                self._database.put(self._key, json.dumps(self._known).encode())
            done = min(seconds, seconds - (end - time.monotonic()))
            self._progress(f"tuning: {self._fastest()[1]:.2f}x", round(done), round(seconds))

    def finished(self) -> Tuned:
        """Return what was found; what seems faster is measured once more."""
        lines, ratio = self._fastest()
        if ratio >= LEAST_GAIN and not self.interrupted:
            again = self._answer("\n".join(lines), _FINAL)
            ratio = again if isinstance(again, float) else 1.0
        if self._worker is not None:
            self._worker.end()
        if ratio < LEAST_GAIN:
            lines, ratio = self._own, 1.0
        outcomes = dict.fromkeys(("measured", "refused", "wrong", _ENDED), 0)
        for outcome in self._known.values():
            outcomes[outcome if isinstance(outcome, str) else "measured"] += 1
        return Tuned(self._operator, ratio, lines, outcomes, self._met, self.interrupted)

    def _fastest(self) -> tuple[tuple[str, ...], float]:
        found = [(text, value) for text, value in self._known.items() if isinstance(value, float)]
        text, ratio = max(found, key=lambda pair: pair[1], default=("", 1.0))
        return (tuple(text.splitlines()), ratio) if ratio > 1.0 else (self._own, 1.0)

    def _candidates(self) -> Iterator[tuple[str, ...]]:
        """Yield schedules, each once."""
        from tensorlang.backends.cpu.driver import machine_of
        from tensorlang.policy.cpu.alternatives import alternatives

        tools = cast(Any, self._operator.tools)
        for schedule in alternatives(self._program, machine_of(tools.target, tools.threads), _FIRST):
            yield _lines(str(schedule))
        seen = set(self._known)
        while True:
            fresh = [lines for lines in self._near() if "\n".join(lines) not in seen]
            if not fresh:
                return
            chosen = self._random.choice(fresh)
            seen.add("\n".join(chosen))
            yield chosen

    def _near(self) -> Iterator[tuple[str, ...]]:
        """Yield what differs from the fastest so far in one directive; where all of that is known, in two."""
        fastest, _ = self._fastest()
        one = [v.lines for v in variants(self._program, fastest)]
        yield from one
        if all("\n".join(lines) in self._known for lines in one) and one:
            for lines in self._random.sample(one, min(4, len(one))):
                yield from (v.lines for v in variants(self._program, lines))

    def _answer(self, text: str, factor: float = 1.0) -> float | str:
        """Return what a worker says of a schedule; one that dies, or does not answer, is replaced."""
        if self._worker is None:
            self._worker = AnsweringProcess("tensorlang.shell.tuning_worker", (self._operator, dict(self._given), _TRIAL_SECONDS))
            if self._worker.read(4 * _PATIENCE_SECONDS) is None:
                raise error("C0103", "the process that measures schedules ended before it began", help="run the operator by itself first")
        answer = self._worker.ask((text, factor), _PATIENCE_SECONDS + factor)
        if answer is None:
            self._worker.end()
            self._worker = None
            return _ENDED
        return cast("float | str", answer)


def _lines(schedule: str) -> tuple[str, ...]:
    """Return the directives of a schedule as text."""
    return tuple(line.strip() for line in schedule.splitlines() if line.startswith(" "))


def tuned_text(found: Tuned) -> str:
    """Return a report for people: what was tried, what was found, and a schedule to be pasted."""
    told = [f"{count} {what}" for what, count in found.outcomes.items() if count]
    known = f", {found.known} of them before" if found.known else ""
    lines: Sequence[str] = (f"tried      {', '.join(told) or 'nothing'}{known}{', interrupted' if found.interrupted else ''}",)
    if found.ratio < LEAST_GAIN:
        return "\n".join([*lines, f"           none is {LEAST_GAIN:.2f}x as fast as the operator under its own schedule"])
    return "\n".join([*lines, f"           {found.ratio:.2f}x as fast as under its own schedule:", "", found.text])
