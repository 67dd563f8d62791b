"""Cutting cases down: something is left out as long as the outcome stays one of the same class."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fuzzing.front import Front, Outcome, drawn_case
from fuzzing.server import Steps, alone, as_json

C = TypeVar("C")
T = TypeVar("T")


def shrunk(case: C, smaller: Callable[[C], Iterator[C]], same: Callable[[C], bool], seconds: float) -> C:
    """Return a case with nothing left to leave out, or as far as `seconds` by the clock go."""
    end = time.monotonic() + seconds
    place, since = 0, 0
    candidates = list(smaller(case))
    while since < len(candidates) and time.monotonic() < end:
        place %= len(candidates)
        if same(candidates[place]):
            case, since = candidates[place], 0
            candidates = list(smaller(case))
        else:
            place, since = place + 1, since + 1
    return case


def without_some(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield `items` without a half, a quarter, … and in the end without each one, the large cuts first."""
    size = len(items)
    while size > 1:
        size = (size + 1) // 2
        for start in range(0, len(items), size):
            rest = (*items[:start], *items[start + size :])
            if len(rest) < len(items):
                yield tuple(rest)
    if len(items) == 1:
        yield ()


def cutting(front: Front, expected: Outcome, seconds: float) -> Callable[[tuple[int, ...]], Steps]:
    """Return the steps of a child that finds the smallest case with the outcome that the case of a seed had."""

    def same(case: Any) -> bool:
        return alone(front, case).like(expected)

    def steps(seeds: tuple[int, ...]) -> Steps:
        (seed,) = seeds
        yield {"at": seed}
        case = drawn_case(front, seed)
        first = expected if case is None else alone(front, case)
        if case is None or not first.like(expected):
            text = "" if case is None else front.show(case)
            note = "the case cannot be drawn" if case is None else f"by itself the outcome is {first.kind} {first.label}"
            yield {"seed": seed, **as_json(first), "note": note, "case": text, "test": ""}
            return
        case = shrunk(case, front.smaller, same, seconds)
        yield {"seed": seed, **as_json(alone(front, case)), "note": "", "case": front.show(case), "test": front.test(case)}

    return steps
