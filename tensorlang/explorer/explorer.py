"""An explorer at work: a subject, verdicts by this process, one at a time, and trials by another one, which may take too long or die."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from codegen.forks import Lock
from tensorlang.diagnostics import CompileError, InternalError, error
from tensorlang.explorer.subject import Subject, usual_sizes
from tensorlang.explorer.trials import Kind, Question
from tensorlang.explorer.verdicts import cure_of, message_data, verdict_data, verdict_on
from tensorlang.shell.answering import AnsweringProcess
from tensorlang.shell.reporting import internal
from tensorlang.syntax.printer import show

PATIENCE = 60.0
"""Seconds that a trial may take."""


class Explorer:
    """Answers what a page asks about one subject, as JSON has it; what goes wrong is an `error` with diagnostics. `reread` returns the
    subject as its file has it now, which a page that is loaded shows."""

    def __init__(self, subject: Subject, reread: Callable[[], Subject] | None = None) -> None:
        self.subject, self._reread = subject, reread
        self._verdicts, self._trials = Lock(), Lock()
        self._process: AnsweringProcess | None = None

    def about(self) -> dict[str, Any]:
        """Return what the page shows to begin with: the text of the file, and each operator with its directives and sizes."""
        mistakes = self._refreshed()
        subject = self.subject
        operators = []
        for name, operator in subject.operators.items():
            try:
                sizes, problems = usual_sizes(subject, name), []
            except CompileError as refused:
                sizes, problems = {}, [message_data(d) for d in refused.diagnostics]
            text = show(operator.declaration)
            operators.append(
                {"name": name, "text": text, "directives": subject.own.get(name, ""), "sizes": sizes, "error": mistakes or problems}
            )
        return {"file": subject.source.name, "operators": operators}

    def _refreshed(self) -> list[dict[str, Any]]:
        """Take the subject as its file has it now, or return the mistakes for which it stays what it was."""
        try:
            found = self.subject if self._reread is None else self._reread()
        except CompileError as refused:
            return [message_data(d) for d in refused.diagnostics]
        if found.source != self.subject.source:
            with self._verdicts, self._trials:
                self.subject = found
                self.end()
        return []

    def verdict(self, name: str, directives: str) -> dict[str, Any]:
        """Return the verdict on directives."""
        with self._verdicts:
            try:
                return verdict_data(verdict_on(self.subject, name, directives))
            except CompileError as refused:
                return {"error": [message_data(d) for d in refused.diagnostics]}
            except (InternalError, RecursionError) as defect:
                return {"error": [message_data(internal(defect))]}

    def cure(self, name: str, directives: str) -> dict[str, Any]:
        """Return the refusal of directives with the edits that cure it, null where there are none."""
        with self._verdicts:
            try:
                found = cure_of(self.subject, name, directives)
            except (CompileError, InternalError, RecursionError):
                found = None
        return {"cure": None if found is None or not found.edits else message_data(found)}

    def trial(self, kind: Kind, name: str, directives: str | None, sizes: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer to what takes longer (`trials`)."""
        with self._trials:
            try:
                return self.answer(Question(kind, name, directives, dict(sizes)))
            except CompileError as refused:
                return {"error": [message_data(d) for d in refused.diagnostics]}

    def answer(self, question: Question) -> dict[str, Any]:
        """Return what the process that does trials answers. Raises CompileError C0243 where that does not end; the next question is for
        another process."""
        if self._process is None:
            self._process = AnsweringProcess("tensorlang.explorer.trials", self.subject)
            found = self._process.read(PATIENCE)
        else:
            found = "ready"
        found = found and self._process.ask(question, PATIENCE)
        if isinstance(found, dict):
            return found
        self.end()
        title = f"this did not end within {PATIENCE:.0f} seconds, or the process that did it has died"
        raise error("C0243", title, help="give smaller sizes, or another schedule")

    def end(self) -> None:
        """End the process that does trials."""
        if self._process is not None:
            self._process.end()
            self._process = None
