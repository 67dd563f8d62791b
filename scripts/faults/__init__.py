"""The faults that `scripts/mutate.py` plants: each a slip of one line that somebody could make, in a part that the promise rests on.

`tests/test_faults.py` sees to it that each still has its place; where code moves, its faults move with it.
"""

from __future__ import annotations

from faults import barriers, bounds, emitters, graphs, legality, loops, lowering, policy, programs, regions, scanning, storage
from faults.fault import Fault

__all__ = ["FAULTS", "Fault"]

FAULTS: tuple[Fault, ...] = (
    *legality.FAULTS,
    *regions.FAULTS,
    *scanning.FAULTS,
    *storage.FAULTS,
    *lowering.FAULTS,
    *bounds.FAULTS,
    *loops.FAULTS,
    *barriers.FAULTS,
    *graphs.FAULTS,
    *programs.FAULTS,
    *emitters.FAULTS,
    *policy.FAULTS,
)
