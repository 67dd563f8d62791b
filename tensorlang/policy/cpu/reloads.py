"""What sums load again, from the second-level cache or from memory, by the order of the loops around their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from polyhedral.expr import Expr as Affine
from tensorlang.lower.prefetch import LINE_BYTES
from tensorlang.policy.cpu.cost import FAR_BYTES, NEAR_BYTES
from tensorlang.policy.cpu.footprints import bytes_of_lines, set_distance
from tensorlang.policy.cpu.inner_cost import BlockCost, Element, InnerLoops
from tensorlang.tensor.nodes import Dynamic


class Reloads:
    """What sums load again from caches, for one candidate, whatever order the loops around its blocks have: how much that is depends on
    which loops are inside of another, and not on their order, so each set of them is looked at once."""

    def __init__(self, cost: BlockCost, candidate: InnerLoops) -> None:
        self._cost, self._packed = cost, frozenset(candidate.packed)
        self.copying, self.loading, self.first_loading = cost.copying(candidate), cost.loading(candidate), cost.first_loading(candidate)
        self._steps: dict[tuple[frozenset[str], int], float] = {}
        rows = dict(candidate.rows)
        self._together = {
            n: rows.get(n, 1) * (candidate.phases * candidate.vectors * cost.lanes if n in candidate.vector else 1) for n in cost.sizes
        }
        self._sums = [s for p in cost.pieces for s in p.sums]
        self._inside: dict[tuple[int, int, frozenset[str]], float] = {}
        self._loaded: dict[tuple[int, str, frozenset[str]], float] = {}

    def cycles(self, order: Sequence[str]) -> float:
        """Return the cycles of an element that it takes to load again what sums read, from the second-level cache or from memory, where
        loops over blocks of the axes run in this order around those of each sum: what the loops inside of one touch is there in its next
        turn if the cache holds it."""
        machine = self._cost.d.machine
        near, far = self._again(order, machine.l1_bytes) / NEAR_BYTES, self._again(order, machine.l2_bytes) / FAR_BYTES
        return max(near, far) / self._cost.elements

    def line_cycles(self, order: Sequence[str]) -> float:
        """Return the cycles of an element in which lines come again where loops over blocks of the axes run in this order: one is touched
        for one block, and then for the next along it only after those inside of the loop that goes along it, more than the cache holds."""
        cost, machine = self._cost, self._cost.d.machine
        found = [(self._across(e, order), self._blocks_of_line(e)) for e in cost.touched]
        lines = sum(rows for rows, _ in found)
        if lines <= machine.l1_bytes:
            return 0.0
        return sum(LINE_BYTES / blocks for rows, blocks in found if rows) / (NEAR_BYTES if lines <= machine.l2_bytes else FAR_BYTES)

    def _across(self, element: Element, order: Sequence[str]) -> float:
        """Return how much of the first cache the lines of an element take that the loops inside of those along its lines touch; 0 where
        there are none inside."""
        along = [k for k, a in enumerate(order) if element.near.get(a) == 1]
        inside = [a for a in order[along[-1] + 1 :] if a in element.names] if along else []
        if not inside:
            return 0.0
        rows = prod(self._cost.sizes[a] for a in inside)
        return bytes_of_lines(rows, element.row_bytes, self._cost.d.machine.l1_bytes)

    def _blocks_of_line(self, element: Element) -> float:
        """Return how many elements of a line blocks touch together, of those that it may have."""
        most = max((self._together[n] for n, apart in element.near.items() if apart == 1 and n in self._together), default=1)
        return min(most, LINE_BYTES // element.size_bytes)

    def step_cycles(self, order: Sequence[str]) -> float:
        """Return the cycles of an element in which what earlier steps of a recurrence computed comes from another cache than the first,
        and what is computed goes there: a step of all points of a block computes, and reads, as much as lies inside of the loop that
        carries the dependence."""
        carrying: dict[int, set[Affine | Dynamic]] = {}
        for moved in self._cost.earlier:
            found = next((k for k, a in enumerate(order) if a in moved), None)
            if found is not None:
                carrying.setdefault(found, set()).add(moved[order[found]])
        return max((self._of_step(frozenset(order[k + 1 :]), 1 + len(steps)) for k, steps in carrying.items()), default=0.0)

    def _of_step(self, inside: frozenset[str], steps: int) -> float:
        """Return the cycles of an element of a recurrence that touches so many steps of what some loops compute, with every element."""
        key = inside, steps
        if key not in self._steps:
            machine, sizes, size = self._cost.d.machine, self._cost.sizes, self._cost.definition.tensors[0].dtype.size_bytes
            points = prod(sizes[a] if a in inside else min(sizes[a], self._together[a]) for a in self._cost.definition.axes)
            held = points * steps * size
            sent = steps * size / (NEAR_BYTES if held <= machine.l2_bytes else FAR_BYTES)
            self._steps[key] = sent if held > machine.l1_bytes else 0.0
        return self._steps[key]

    def _again(self, order: Sequence[str], cache_bytes: int) -> float:
        """Return the bytes that a cache of so many loads again."""
        if self._cost.fits(cache_bytes):
            return 0.0
        loaded = 0.0
        for number, reduction in enumerate(self._sums):
            loops, inside = [*order, *reduction.binders], frozenset[str]()
            while loops and self._touched_inside(number, inside | {loops[-1]}, cache_bytes) <= cache_bytes:
                inside |= {loops.pop()}
            if loops:
                loaded += self._loaded_again(number, loops[-1], inside)
        return loaded

    def _touched_inside(self, number: int, loops: frozenset[str], cache_bytes: int) -> float:
        """Return the bytes of a cache of so many that loops touch in the terms of a sum."""
        key = number, cache_bytes, loops
        if key not in self._inside:
            self._inside[key] = sum(self._touched(e, loops, cache_bytes) for e in self._sums[number].work.elements)
        return self._inside[key]

    def _loaded_again(self, number: int, around: str, within: frozenset[str]) -> float:
        """Return the bytes that the terms of a sum load again where the cache holds what the loops `within` touch, and not what the one
        `around` them does: what stands beside an element in a line is there for the next turn of that."""
        key = number, around, within
        if key not in self._loaded:
            reduction, sizes = self._sums[number], self._cost.sizes
            every = {*self._cost.definition.axes, *reduction.binders}
            turns = prod(max(1.0, sizes[n] / self._together[n]) for n in sorted(every - within - {around}))
            kept = {e.read: within | {around} if around in e.names else within for e in reduction.work.elements}
            loaded = (turns * self._touched(e, kept[e.read]) - self._cost.bytes_of(e) for e in reduction.work.elements)
            self._loaded[key] = sum(loaded)
        return self._loaded[key]

    def _touched(self, element: Element, loops: frozenset[str], cache_bytes: int = 0) -> float:
        """Return the bytes of the lines of an element's tensor that some loops touch in a turn of those around them. Of a cache of so many
        bytes, as many as it has where these can lie: rows a power of two apart use a few of its sets."""
        sizes, size, row = self._cost.sizes, element.size_bytes, element.row_bytes
        extent = {n: sizes[n] if n in loops else min(sizes[n], self._together[n]) for n in element.names if n in sizes}
        if element.read.tensor in self._packed:
            return prod(extent.values()) * size
        steps = {**element.near, **{name: 1 / values for name, values in element.shared.items()}}
        along = min(row, sum((n - 1) * abs(steps[name]) for name, n in extent.items() if name in steps) * size + size)
        rows = prod(n for name, n in extent.items() if name not in steps)
        if rows == 1:
            return along
        width = max(along, min(row, LINE_BYTES))
        if any(isinstance(slot, Dynamic) for slot in element.read.index):
            return min(rows * width, self._cost.bytes_by_data(element, extent))
        return rows * max(width, gcd(row, set_distance(cache_bytes)) if cache_bytes else 0)
