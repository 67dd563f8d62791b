"""Work as a count, which is the same on a quiet machine and on a busy one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls_made(function: Callable[[], object]) -> int:
    """Return how many calls of functions, those of Python and those that C code offers to Python, running `function` makes."""
    count = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
