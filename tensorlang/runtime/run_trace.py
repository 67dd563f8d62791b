"""When each kernel of a run began and ended, and what each thread did in between."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadPiece:
    """Iterations `first` up to `last` of a parallel loop that one thread ran; thread 0 calls the kernels. Times are in seconds from the
    beginning of the run."""

    thread: int
    start: float
    seconds: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RunTrace:
    """One run. `kernels`: where each begins and how long it takes, in their order; `pieces`: what threads did, whatever kernel it was
    for; those of one thread do not overlap."""

    kernels: tuple[tuple[float, float], ...]
    pieces: tuple[ThreadPiece, ...] = ()

    @property
    def threads(self) -> int:
        """How many threads took part."""
        return 1 + max((s.thread for s in self.pieces), default=0)
