"""Workers that measure nothing, for tests of what `tune` makes of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tensorlang.tuning import tune as tuning
from tensorlang.tuning.subjects import Greeting, Subject, Trial

Told = Callable[[str, int], float | str | None]
"""What is answered about a schedule, the n-th that is asked for; None by a process that dies of it."""


class Pretended:
    """Workers that measure nothing: one of each machine, which answers what it is told to."""

    def __init__(self, subject: Subject, told: Told, asked: list[str], machines: Sequence[str]) -> None:
        greeting, _ = subject.begin()
        self.told, self.asked = told, asked
        self.workers = [PretendedWorker(Greeting(machine, greeting.kernels)) for machine in machines]

    def idle(self, seconds: float) -> list[PretendedWorker]:
        return [w for w in self.workers if w.trial is None]

    def answers(self, seconds: float) -> Iterator[tuple[PretendedWorker, Any]]:
        for k, worker in enumerate(self.workers):
            trial, worker.trial = worker.trial, None
            if trial is not None:
                (text,) = trial.schedules.values()
                self.asked.append(text)
                found = self.told(text, len(self.asked))
                if found is None:
                    self.workers[k] = PretendedWorker(worker.greeting)
                yield worker, found

    def end(self) -> None:
        self.workers = []


class PretendedWorker:
    def __init__(self, greeting: Any) -> None:
        self.greeting = greeting
        self.trial: Trial | None = None

    def begin(self, trial: Trial) -> None:
        self.trial = trial


def answers(monkeypatch: pytest.MonkeyPatch, told: Told, machines: Sequence[str] = ("here",)) -> list[str]:
    """Let `told` be the answer about each schedule; return the schedules that are asked for."""
    asked: list[str] = []
    monkeypatch.setattr(tuning, "_workers", lambda subject, cluster: Pretended(subject, told, asked, machines))
    return asked
