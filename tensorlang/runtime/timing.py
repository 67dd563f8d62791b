"""How long something takes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_time(run: Callable[[], object], budget: float = 0.2) -> float:
    """Return the shortest of many runs in seconds, within about `budget` seconds."""
    run()
    best, spent = float("inf"), 0.0
    while spent < budget:
        start = time.perf_counter()
        run()
        taken = time.perf_counter() - start
        best, spent = min(best, taken), spent + taken
    return best


def mean_time(run: Callable[[], object], repeats: int) -> float:
    """Return the seconds of a run, the mean of `repeats` in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats
