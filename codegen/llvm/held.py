"""What registers hold of a buffer as it is in memory, and what of that a store leaves as it was.

y[0 .. 16], y[16 .. 32], …, y[k*16 .. k*16 + 16]      one row: indices that differ by constants at their end alone
a store to y[32 .. 48]                                is asked about the elements of the row that lie less than 16 before or behind
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import TypeAlias

from codegen.llvm.facts import Poly

_Row: TypeAlias = tuple[frozenset[tuple[tuple[str, ...], int]] | None, ...]
"""The terms of an index but for constants; None behind them for elements at places of their own."""
_Place: TypeAlias = tuple[int, ...]
"""The constants of an index."""


@dataclass(frozen=True, slots=True)
class Held:
    """What registers hold of a buffer: `count` neighbours from the one at `index` on, or, None, elements at places of their own; read or
    written where `condition` holds, into as many `lanes`."""

    buffer: str
    index: tuple[Poly, ...]
    count: int | None
    lanes: int
    condition: tuple[str | None, ...]

    @property
    def row(self) -> _Row:
        row = tuple(frozenset(term for term in slot.key if term[0]) for slot in self.index)
        return (*row, None) if self.count is None else row

    @property
    def place(self) -> _Place:
        return tuple(slot.offset for slot in self.index)

    def is_apart(self, other: Held) -> bool:
        """Tell whether no element is one of `other`, whatever the variables are.

        u[t % 2, i, j]    u[(t + 1) % 2, i - 1, j]      t - 2*p and t + 1 - 2*q are no one number
        """
        if self.buffer != other.buffer or self.count is None or other.count is None or not self.index:
            return False
        *outer, last = zip(self.index, other.index, strict=True)
        return _are_apart(*last, self.count, other.count) or any(_are_apart(a, b, 1, 1) for a, b in outer)


@dataclass(slots=True)
class HeldElements:
    """The registers that hold elements of one buffer, row by row; of a row by their places, none of them more than `most` neighbours."""

    rows: dict[_Row, dict[_Place, dict[Held, str]]] = field(default_factory=dict)
    most: int = 1

    def found(self, elements: Held) -> str | None:
        return self.rows.get(elements.row, {}).get(elements.place, {}).get(elements)

    def keep(self, elements: Held, register: str) -> None:
        self.rows.setdefault(elements.row, {}).setdefault(elements.place, {})[elements] = register
        self.most = max(self.most, elements.count or 1)

    def forget(self, written: Held) -> None:
        """Leave out what is not surely apart from the elements that are written: of their own row, places near theirs are looked at."""
        own, near = written.row, self._near(written)
        for row, held in [*self.rows.items()]:
            for place in near if row == own else [*held]:
                left = {e: register for e, register in held.pop(place, {}).items() if e.is_apart(written)}
                if left:
                    held[place] = left
            if not held:
                del self.rows[row]

    def _near(self, written: Held) -> Sequence[_Place]:
        """Return the places of its row where elements may be among those that are written."""
        if written.count is None or not written.index:
            return [*self.rows.get(written.row, ())]
        *outer, last = written.place
        return [(*outer, start) for start in range(last - self.most + 1, last + written.count)]


def _are_apart(first: Poly, second: Poly, count: int, other: int) -> bool:
    """Tell whether none of `count` numbers from the first on is one of the `other` from the second on: the two lie a constant apart, up to
    a multiple of what all variables are multiplied by."""
    distance = second - first
    step = gcd(*distance.without(()).terms.values())
    if step == 0:
        return distance.offset >= count or -distance.offset >= other
    return distance.offset % step >= count and -distance.offset % step >= other
