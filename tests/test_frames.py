"""Frames of Python's functions lie in one piece where something is compiled."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.check.instantiate import instantiate
from tensorlang.frames import ROOM_BYTES, contiguous_frames
from tensorlang.runtime import operator

CALLS = 500


def called(number: int) -> int:
    return number


def faults(depth: int) -> int:
    """Return how many pages are asked for while something is called again and again, so many calls down."""
    if depth:
        return faults(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for number in range(CALLS):
        called(number)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_no_loop_maps_memory_for_each_call_however_deep_it_is() -> None:
    with ThreadPoolExecutor(1) as fresh:  # a thread has frames of its own
        assert max(fresh.map(contiguous_frames(faults), range(300))) < CALLS


def test_a_function_takes_returns_and_is_called_what_it_was() -> None:
    @contiguous_frames
    def divided(a: int, *, by: int = 2) -> int:
        """Divide."""
        return a // by

    assert (divided(9), divided(9, by=3), divided.__name__, divided.__doc__) == (4, 3, "divided", "Divide.")
    with pytest.raises(ZeroDivisionError):
        divided(1, by=0)


def test_operators_are_compiled_in_such_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = list[int]()

    def above(frame: FrameType | None) -> Iterator[FrameType]:
        while frame is not None and frame.f_code is not here:
            yield frame
            frame = frame.f_back

    def watched(*given: object, **named: object) -> object:
        rooms.extend(f.f_code.co_stacksize * 8 for f in above(sys._getframe()))
        return instantiate(*given, **named)

    here = sys._getframe().f_code
    monkeypatch.setattr(operator, "instantiate", watched)
    tl.parse("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] + 1 }").f(np.ones(3, np.float32))
    assert max(rooms) >= ROOM_BYTES
