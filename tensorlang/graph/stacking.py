"""The memory plan of a graph whose sizes stay open: what lies on what is decided once, for samples, and offsets follow for any sizes.

    sizes of samples   a plan (`plan.assign`): storages whose lifetimes meet lie one above the other
    any sizes          each storage begins where the highest of those ends that lay right below it

Two storages that meet keep their order, so they never overlap, whatever their sizes are. Of those below a storage the ones that are seen
from it are enough: what is hidden at every position of its lifetime lies below another one that is not. So there are fewer than three to
look at for each, however many live at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorlang.graph.plan import Storage, aligned


@dataclass(frozen=True, slots=True)
class Stacking:
    """Storages in the order of their offsets, and for each the positions in that order of those right below it."""

    names: tuple[str, ...]
    below: tuple[tuple[int, ...], ...]

    def offsets(self, sizes: Sequence[int]) -> tuple[list[int], int]:
        """Return where each storage begins and how many bytes there are in all, for the bytes that each takes now."""
        offsets, ends = list[int](), list[int]()
        for size, under in zip(sizes, self.below, strict=True):
            start = max([ends[k] for k in under], default=0)
            offsets.append(start)
            ends.append(aligned(start + size))
        return offsets, max(ends, default=0)


def stacking(storages: Sequence[Storage], offsets: Mapping[str, int]) -> Stacking:
    """Return in which order storages lie that have these offsets."""
    order = sorted(storages, key=lambda s: (offsets[s.name], s.size_bytes, s.name))
    seen = _Skyline()
    return Stacking(tuple(s.name for s in order), tuple(seen.covered(s.first, s.last, k) for k, s in enumerate(order)))


class _Skyline:
    """Which storage is the highest at each position so far, as runs of positions: where each begins, and what is there (-1: nothing)."""

    def __init__(self) -> None:
        self._starts, self._highest = [0], [-1]

    def covered(self, first: int, last: int, number: int) -> tuple[int, ...]:
        """Put a storage on the positions from `first` to `last`; return what was seen there, once each."""
        low, high = bisect_right(self._starts, first) - 1, bisect_right(self._starts, last)
        seen, end = self._highest[low:high], high < len(self._starts) and self._starts[high] == last + 1
        starts, highest = [first], [number]
        if self._starts[low] < first:
            starts, highest = [self._starts[low], *starts], [seen[0], *highest]
        if not end:
            starts, highest = [*starts, last + 1], [*highest, seen[-1]]
        self._starts[low:high], self._highest[low:high] = starts, highest
        return tuple(dict.fromkeys(k for k in seen if k >= 0))
