"""Processes that answer questions by pickles: what they do may take too long, or kill them, and who asks goes on."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast


def answer_questions(answerer: Callable[[Any], tuple[object, Callable[[Any], object]]]) -> None:
    """Be such a process: `answerer` is given what is said first, and returns the answer to that and what answers questions."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    found, answer = answerer(pickle.load(sys.stdin.buffer))
    while True:
        pickle.dump(found, answers)
        answers.flush()
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        found = answer(question)


class AnsweringProcess:
    """A module of ours that runs by itself and answers questions; it is told `first` before any."""

    def __init__(self, module: str, first: object) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", module]
        # An interrupt of the terminal is for who asked, who ends the worker then.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        self._write(first)

    def ask(self, question: object, seconds: float) -> object | None:
        """Return the answer, None where the process has died or does not answer in time."""
        return self.read(seconds) if self._write(question) else None

    def read(self, seconds: float) -> object | None:
        """Return what the process says next."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        try:
            return cast(object, pickle.load(self._process.stdout)) if ready else None
        except (EOFError, pickle.UnpicklingError):
            return None

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _write(self, value: object) -> bool:
        assert self._process.stdin is not None
        try:
            pickle.dump(value, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True
