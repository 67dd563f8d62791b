"""When cycles of objects are looked for that nothing needs any more."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from codegen.forks import Lock

THRESHOLDS = (100_000, 50, 100)
"""Thresholds of the collector while much is made of which next to nothing is garbage."""
_LOCK = Lock()
_usual: list[tuple[int, int, int]] = []
"""The thresholds to go back to, once for each that asked for fewer collections."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Have the collector of cycles run seldom. What is compiled is hundreds of thousands of objects that stay while it is, and to look at
    them all again and again, and at those of the whole program, takes a seventh of the time. Where the collector is off it stays off."""
    with _LOCK:
        usual = _usual[0] if _usual else gc.get_threshold()
        _usual.append(usual)
        if usual[0]:
            gc.set_threshold(*map(max, usual, THRESHOLDS))
    try:
        yield
    finally:
        with _LOCK:
            before = _usual.pop()
            if not _usual:
                gc.set_threshold(*before)
