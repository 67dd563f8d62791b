"""Sums whose terms go where data say, on a graphics processor: a thread goes through its terms once and adds each to the element it is for.

    y[n, j] = sum(k, ids[k] == n) x[k, j]      a thread for each `j`, and for each of several parts of `k`, which a second launch adds up

Nothing is shared while it changes, so the order of the terms of an element is the same in every run, and parts are proven like any partial
results. The other way, a thread for each element that asks every term whether it is for it, takes elements times terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver, reads_itself
from tensorlang.policy.gpu.access import ENOUGH
from tensorlang.policy.gpu.recurrence_cost import ELEMENT, LAUNCHED, points_of
from tensorlang.policy.groups import recurs
from tensorlang.policy.scatters import named_axes
from tensorlang.schedule.shape import extents
from tensorlang.tensor.nodes import Definition, Reduce
from tensorlang.tensor.walk import reduces

SCATTERED = 64
"""Terms that a thread asks whether they are for its element, in whose time it reads an element of memory, adds to it and writes it: about
500 cycles one after the other, of terms in the first cache 8."""
MOVED = 8
"""Such terms in whose time the device writes an element of partial results to its memory and reads it again."""
MOST_BYTES = 1 << 29
"""Of partial results."""


@dataclass(frozen=True, slots=True)
class ScatteredSum:
    """Which axes data name, the others, outermost first as they are stored, and the ranges that a thread goes through; how many there are
    of each."""

    named: tuple[str, ...]
    free: tuple[str, ...]
    binders: tuple[str, ...]
    cells: int
    points: int
    terms: int
    lengths: tuple[int, ...]
    """Of the ranges."""

    def cost(self, parts: int, threads: int) -> float:
        """Return what it takes in so many parts of the terms, in terms that a thread goes through; a block has so many `threads`."""
        rounds = max(1, self.points * parts / ENOUGH)
        adding = MOVED * parts * self.cells * self.points / ENOUGH + LAUNCHED * ELEMENT / threads if parts > 1 else 0
        return (SCATTERED * -(-self.terms // parts) + self.cells) * rounds + adding

    @property
    def asking(self) -> float:
        """Return what it takes where each element asks every term whether it is for it."""
        return self.terms * self.cells * self.points / ENOUGH


def scattered_sum(d: Deriver, definition: Definition, reduce: Reduce) -> ScatteredSum | None:
    """Return a sum of a definition whose terms data give to elements; None for anything else, for steps of recurrences, and where sizes are
    open."""
    found, sizes = named_axes(definition, reduce.filter) if reduce.filter is not None else None, extents(definition)
    if found is None or reads_itself(definition) or recurs(d.program, definition) or any(not e for e in sizes.values()):
        return None
    stored = d.layouts.get(definition.tensors[0].name)
    order = [e.name for e in stored.dims if isinstance(e, Name)] if stored is not None else [*definition.axes]
    free = tuple(sorted((a for a in definition.axes if a not in found[0]), key=lambda a: order.index(a) if a in order else -1))
    binders = tuple(b.name for b in reduce.binders)
    lengths = tuple(sizes[b] or 1 for b in binders)
    return ScatteredSum(found[0], free, binders, points_of(definition, found[0]), points_of(definition, free), prod(lengths), lengths)


def scattered_alone(d: Deriver, definition: Definition) -> ScatteredSum | None:
    """Return the sum that a definition is, where threads shall go through its terms, as it is, rather than its elements ask for them."""
    sums = [r for p in definition.pieces for r in reduces(p.value)]
    found = scattered_sum(d, definition, sums[0]) if len(sums) == 1 and len(definition.pieces) == 1 else None
    return found if found is not None and found.free and found.cost(1, d.machine.threads) < found.asking else None


def scatter_parts(d: Deriver, definition: Definition) -> tuple[ScatteredSum, str, int] | None:
    """Return a sum, a range of it and in how many parts of interleaved terms it is summed up, so that enough threads go through these; None
    where that is not sooner done."""
    for reduce in (r for p in definition.pieces for r in reduces(p.value)):
        found = scattered_sum(d, definition, reduce)
        if found is None:
            continue
        length, binder = max(zip(found.lengths, found.binders, strict=True))
        cell_bytes = found.cells * found.points * definition.tensors[0].dtype.size_bytes
        counts = [1 << n for n in range(1, length.bit_length()) if found.points << n <= ENOUGH and cell_bytes << n <= MOST_BYTES]
        whole = min(found.asking, found.cost(1, d.machine.threads) if found.free else found.asking)
        best = min(counts, key=lambda n: found.cost(n, d.machine.threads), default=1)
        if found.cost(best, d.machine.threads) < whole and best > 1:
            return found, binder, best
    return None
