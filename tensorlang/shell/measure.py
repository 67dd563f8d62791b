"""Times of a model or an operator, next to those of a peer: measured in turns, so that both see the same machine.

Before each turn is a rest until the threads of the other one sleep, and a run that does not count: onnxruntime's threads look for work
for tens of milliseconds after a run, on the processors that found are to use. A run during which the process was preempted is *disturbed*;
medians are taken over the others when there are at least three.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a run: the shortest and the median of `rounds`, a share of which was `disturbed` by other work of the machine."""

    name: str
    best_seconds: float
    median_seconds: float
    rounds: int
    disturbed: float


def measured(runs: Mapping[str, Callable[[], object]], seconds: float) -> list[Timing]:
    """Return the timing of each run; all of them together take about `seconds`, longer where that is too short for some rounds."""
    for run in runs.values():
        run()
    taken: dict[str, list[tuple[float, bool]]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(taken.values()):
        for name, run in runs.items():
            settle()
            run()
            taken[name] += [_sample(run) for _ in range(_PER_TURN)]
    return [_timing(name, samples) for name, samples in taken.items()]


def measured_on_device(runs: Mapping[str, Callable[[int], float]], seconds: float) -> list[Timing]:
    """Return the timing of each run on a device, in turns, all of them together in about `seconds`. A run is called with how often it is to
    be repeated and returns the seconds of one, by the device's own clock: work of the host does not disturb that."""
    repeats = {name: max(1, min(_MOST_REPEATS, round(_TURN / max(run(1), 1e-9)))) for name, run in runs.items()}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or any(len(t) < ROUNDS for t in taken.values()):
        for name, run in runs.items():
            taken[name].append(run(repeats[name]))
    return [Timing(name, min(found), median(found), len(found), 0.0) for name, found in taken.items()]


_TURN = 0.01
"""Seconds of work of a turn: long compared with what a clock of a device can tell apart."""
_MOST_REPEATS = 200


def settle(limit: float = 0.5) -> None:
    """Return when no thread of this process works any more, at the latest after `limit` seconds."""
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(_REST)
        if time.process_time() - before < _REST / 10:
            return


_REST = 0.005
_PER_TURN = 3


def _sample(run: Callable[[], object]) -> tuple[float, bool]:
    """Return the seconds of one run, and whether it was preempted."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    start = time.perf_counter()
    run()
    taken = time.perf_counter() - start
    return taken, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw > before


def _timing(name: str, samples: Sequence[tuple[float, bool]]) -> Timing:
    every = [seconds for seconds, _ in samples]
    calm = [seconds for seconds, disturbed in samples if not disturbed]
    used = calm if len(calm) >= 3 else every
    return Timing(name, min(every), median(used), len(every), 1 - len(calm) / len(every))


def peak_mib() -> float:
    """Return the most memory this process has had resident, in MiB; not that of the process it was started from."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def largest_difference(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference between corresponding arrays, relative to the largest magnitude in each."""
    largest = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.size:
            wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
            scale = float(np.max(np.abs(wide_b))) or 1.0
            largest = max(largest, float(np.max(np.abs(wide_a - wide_b))) / scale)
    return largest
