"""A process that compiles schedules of one operator, compares their results with those of its own schedule, and measures them beside it.

It reads pickles from standard input, first the operator and its arguments, then schedules as text, and answers each by one on standard
output. It may die of any of them: who started it starts another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tensorlang.diagnostics import CompileError, RunError
from tensorlang.runtime.operator import Operator
from tensorlang.shell.answering import answer_questions
from tensorlang.shell.measure import measured

Array: TypeAlias = np.ndarray[Any, Any]
Answer: TypeAlias = float | Literal["refused", "wrong"]
"""How many times as fast as under its own schedule an operator is under another, or why it is not measured."""

TOLERANCES = {2: 1e-2, 4: 1e-5, 8: 1e-13}
"""Differences of results, relative to the largest, that another order of sums may make, by the bytes of a float."""


def main() -> None:
    def answerer(first: Any) -> Callable[[Any], object]:
        operator, given, seconds = first
        worker = Worker(operator, given)
        return lambda question: worker.answer(question[0], seconds * question[1])

    answer_questions(answerer)


class Worker:
    """An operator under its own schedule, ready to be compared with."""

    def __init__(self, operator: Operator, given: Mapping[str, Any]) -> None:
        self._operator, self._given = operator, given
        self._own = operator.prepared(**given)
        self._expected = [np.array(r) for r in results_of(self._own())]
        made: Any = operator.compiled(operator.call(**given))
        self._keeps_order = made.program.mode == "strict"

    def answer(self, text: str, seconds: float) -> Answer:
        """Return how many times as fast as the operator's own schedule one is, measured in turns for so long."""
        try:
            run = self._operator.schedule(text).prepared(**self._given)
            found = [np.asarray(r) for r in results_of(run())]
        except (CompileError, RunError):
            return "refused"
        if not agree(found, self._expected, exactly=self._keeps_order):
            return "wrong"
        return _ratio(self._own, run, seconds)


def results_of(found: Any) -> Sequence[Any]:
    """Return the results of a call in a row."""
    return found if isinstance(found, tuple) else (found,)


def agree(found: Sequence[Array], expected: Sequence[Array], *, exactly: bool) -> bool:
    """Tell whether results are equal, or, unless they have to be, as near as another order of sums leaves them."""
    return all(_agrees(a, b, exactly) for a, b in zip(found, expected, strict=True))


def _agrees(found: Array, expected: Array, exactly: bool) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if found.tobytes() == expected.tobytes():
        return True
    if exactly or not np.issubdtype(expected.dtype, np.floating):
        return False
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return False
    largest = float(np.abs(b[finite]).max(initial=0.0))
    return bool((np.abs(a[finite] - b[finite]) <= TOLERANCES.get(expected.dtype.itemsize, 0.0) * largest).all())


def _ratio(own: Callable[[], object], other: Callable[[], object], seconds: float) -> float:
    first, second = measured({"own": own, "other": other}, seconds)
    return first.best_seconds / second.best_seconds


if __name__ == "__main__":
    main()
