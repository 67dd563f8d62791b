"""A process that tries schedules of a subject (`tensorlang.shell.answering`). It may die of any: who started it starts another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorlang.shell.answering import answer_questions
from tensorlang.tuning.subjects import Subject


def main() -> None:
    def answerer(subject: Subject) -> tuple[object, Callable[[Any], object]]:
        return subject.begin()

    answer_questions(answerer)


if __name__ == "__main__":
    main()
