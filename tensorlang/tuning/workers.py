"""Who tries schedules: processes that take one trial at a time. They may die of it, and are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from tensorlang.diagnostics import error
from tensorlang.shell.answering import AnsweringProcess
from tensorlang.tuning.subjects import Answer, Greeting, Subject, Trial

PATIENCE_SECONDS = 30.0
"""After which a process that does not answer is ended; one that begins may take four times as long."""


class Worker(Protocol):
    """One that tries schedules."""

    @property
    def greeting(self) -> Greeting: ...

    def begin(self, trial: Trial) -> None:
        """Have it answer a trial; nothing else may be under way."""
        ...


class Workers(Protocol):
    """All that try schedules of a subject."""

    def idle(self, seconds: float) -> Sequence[Worker]:
        """Return those that have nothing to do, waiting at most so long for the first. Raises CompileError C0103 where none can begin."""
        ...

    def answers(self, seconds: float) -> Iterator[tuple[Worker, Answer | None]]:
        """Yield what was answered, waiting at most so long for the first; None of one that has died. One that has died is replaced."""
        ...

    def end(self) -> None:
        """End all."""
        ...


class LocalWorkers:
    """A process on this machine: one, as others beside it would change what it measures."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._worker: _Local | None = None

    def idle(self, seconds: float) -> Sequence[Worker]:
        if self._worker is None:
            self._worker = _Local(self._subject)
        return (self._worker,) if self._worker.trial is None else ()

    def answers(self, seconds: float) -> Iterator[tuple[Worker, Answer | None]]:
        worker = self._worker
        if worker is None or worker.trial is None:
            return
        answer = worker.answer()
        if answer is None:
            self.end()
        yield worker, answer

    def end(self) -> None:
        if self._worker is not None:
            self._worker.process.end()
            self._worker = None


class _Local:
    def __init__(self, subject: Subject) -> None:
        self.process = AnsweringProcess("tensorlang.tuning.worker", subject)
        found = self.process.read(4 * PATIENCE_SECONDS)
        if found is None:
            self.process.end()
            raise error(
                "C0103", "the process that measures schedules ended before it began", help="run the operator or the model by itself first"
            )
        self.greeting = cast(Greeting, found)
        self.trial: Trial | None = None

    def begin(self, trial: Trial) -> None:
        self.trial = trial

    def answer(self) -> Answer | None:
        trial, self.trial = self.trial, None
        assert trial is not None
        return cast("Answer | None", self.process.ask(trial, PATIENCE_SECONDS + 2 * trial.seconds))
