"""Whether a map from tensor elements to memory cells ever loses a value that is still needed.

    cells      { A[x] -> buffer[f(x) mod m] }         folds, aliases, layouts
    live       A[x] from its first write to its last access (inputs from the start, outputs to the end); where it is computed again, from
               each write to the last access before the next
    clobber    B[y] written strictly between, into the cell of A[x], B[y] != A[x]

A statement reads before it writes, so an element may take the cell of one that the same instance reads last. Tensors with private copies
(`storage`) conflict only within one iteration of the loops that own the copy. Iterations of a parallel or vector loop have no order: no two
of them may put different elements into one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import islpy as isl

from polyhedral import affine
from polyhedral.deps import access_map
from polyhedral.expr import Compare, Cond, Expr, Int, Mod, Name
from polyhedral.model import AT_ONCE, Access, Statement
from polyhedral.record import each, note
from polyhedral.schedule import Schedule
from polyhedral.space import DT, Frame, OperationLimit, integer, limited, smallest_point, val
from polyhedral.verdict import Proven, Unknown

STORAGE_LIMIT = 4_000_000


@dataclass(frozen=True, slots=True)
class Cells:
    """Where a tensor lives: `exprs` over its axes, each modulo its modulus (None: not folded), in `buffer` (by default its own)."""

    exprs: tuple[Expr, ...]
    moduli: tuple[int | None, ...]
    buffer: str | None = None


@dataclass(frozen=True, slots=True)
class Clobber:
    """For the sizes `params`, the element `overwritten` shares a cell with `by`, which is written while `overwritten` is still needed."""

    params: dict[str, int]
    overwritten: tuple[str, tuple[int, ...]]
    by: tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Collision:
    """Two elements that a layout puts into one cell."""

    params: dict[str, int]
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """An element that a layout puts outside its block."""

    params: dict[str, int]
    element: tuple[int, ...]


Storage: TypeAlias = Mapping[str, int]
Maps: TypeAlias = Mapping[str, "Cells | tuple[Sequence[Expr], Sequence[int | None]]"]


def validate(
    schedule: Schedule,
    maps: Maps,
    *,
    axes: Mapping[str, Sequence[str]],
    outputs: Collection[str] = (),
    storage: Storage | None = None,
    limit: int = STORAGE_LIMIT,
) -> Proven | Clobber | Unknown:
    """Return whether no live value is overwritten when each tensor of `maps` lives where its map says. `axes` names each tensor's axes as
    the maps' expressions use them; the schedule itself must be legal already."""
    try:
        with limited(limit):
            lives = _Lives(schedule, maps, axes, outputs, storage or {})
            return lives.clobber() or lives.at_once() or Proven()
    except OperationLimit as error:
        return Unknown(str(error))


def fold_factor(schedule: Schedule, tensor: str, axis: int, storage: Storage | None = None, limit: int = STORAGE_LIMIT) -> int | None:
    """Return the least modulus by which `axis` of `tensor` can be folded at any distance, or None when there is no constant one."""
    rank = next(len(t.shape) for t in schedule.scop.tensors if t.name == tensor)
    names = tuple(f"x{a}" for a in range(rank))
    whole = Cells(tuple(Name(n) for n in names), (None,) * rank)
    try:
        with limited(limit):
            return _Lives(schedule, {tensor: whole}, {tensor: names}, (), storage or {}).reach(tensor, axis)
    except OperationLimit:
        return None


def injective(params: Sequence[str], axes: Sequence[str], domain: Cond, exprs: Sequence[Expr]) -> Proven | Collision | Unknown:
    """Return whether `exprs` give every element of `domain` its own cell."""
    frame = Frame(tuple(params), tuple(axes))
    try:
        with limited():
            layout = isl.Map.from_pw_multi_aff(frame.multi_pw_aff(exprs)).intersect_domain(frame.set(domain))
            collision = _collision(frame, layout)
    except OperationLimit as error:
        return Unknown(str(error))
    if collision is None:
        note("injective", "", each, layout)
    return collision or Proven()


@lru_cache(maxsize=1 << 14)
def laid_out(
    params: tuple[str, ...], axes: tuple[str, ...], extents: tuple[Expr, ...], dims: tuple[Expr, ...], block: tuple[Expr, ...]
) -> Proven | Collision | Outside | Unknown:
    """Return whether `dims`, over `axes`, give every element of the box of `extents` a cell of its own in a block of shape `block`."""
    frame = Frame(params, axes)
    try:
        with limited():
            box = frame.set(affine.conj(*(_within(Name(axis), extent) for axis, extent in zip(axes, extents, strict=True))))
            outside = box.subtract(frame.set(affine.conj(*(_within(e, extent) for e, extent in zip(dims, block, strict=True)))))
            if not outside.is_empty():
                sizes, element = smallest_point(outside)
                return Outside(dict(zip(params, sizes, strict=True)), element)
            return _collision(frame, isl.Map.from_pw_multi_aff(frame.multi_pw_aff(dims)).intersect_domain(box)) or Proven()
    except OperationLimit as error:
        return Unknown(str(error))


def _within(e: Expr, extent: Expr) -> Cond:
    return affine.conj(Compare(">=", e, Int(0)), Compare("<", e, extent))


def _collision(frame: Frame, layout: isl.Map) -> Collision | None:
    """Return two elements that `layout` puts into one cell, or None where it is injective."""
    if layout.is_injective():
        return None
    clash = layout.apply_range(layout.reverse())
    clash = clash.subtract(isl.Map.identity(clash.get_space()))
    sizes, both = smallest_point(clash.wrap().flatten())
    rank = len(frame.dims)
    return Collision(dict(zip(frame.params, sizes, strict=True)), both[:rank], both[rank:])


@dataclass(slots=True)
class _Lives:
    """Writes and accesses of each mapped tensor against time: `{ [time] -> [owner loops, x] }`."""

    schedule: Schedule
    maps: Maps
    axes: Mapping[str, Sequence[str]]
    outputs: Collection[str]
    storage: Storage
    times: dict[str, isl.Map] = field(default_factory=dict)

    def clobber(self) -> Clobber | None:
        for lost in self.maps:
            for other in self.maps:
                if self._cells(lost).buffer != self._cells(other).buffer:
                    continue
                live = self._live(lost)
                pairs = self._overwritten(lost, other, live)
                if not pairs.is_empty() and self._is_computed_again(lost):
                    live = self._live_between(lost)
                    pairs = self._overwritten(lost, other, live)
                if not pairs.is_empty():
                    return self._evidence(lost, other, pairs)
                note("alive", f"{lost}, {other}", self._meanwhile, live, lost, other)
        return None

    def _overwritten(self, lost: str, other: str, live: isl.Map) -> isl.Map:
        """Return the elements of `lost` with those of `other` that are written into their cell while they are live."""
        pairs = live.reverse().apply_range(self._touches(other, writes=True)).intersect(self._same_cell(lost, other))
        return pairs.subtract(isl.Map.identity(pairs.get_space())) if lost == other else pairs

    def _is_computed_again(self, tensor: str) -> bool:
        return tensor not in self.schedule.scop.inputs and not self._touches(tensor, writes=True).reverse().is_single_valued()

    def at_once(self) -> Clobber | None:
        """Return two elements in one cell that iterations of one parallel or vector loop touch, one of them writing."""
        for lost in self.maps:
            for other in self.maps:
                if self._cells(lost).buffer != self._cells(other).buffer:
                    continue
                writes = self._touches(other, writes=True)
                for order in self._concurrent(writes.get_space().domain(), self.storage.get(lost, 0)):
                    together = self._touches(lost, writes=False).reverse().apply_range(order).apply_range(writes)
                    pairs = together.intersect(self._same_cell(lost, other))
                    if lost == other:
                        pairs = pairs.subtract(isl.Map.identity(pairs.get_space()))
                    if not pairs.is_empty():
                        return self._evidence(lost, other, pairs)
                    note("at once", f"{lost}, {other}", self._shown, together, lost, other)
        return None

    def _concurrent(self, clock: isl.Space, owner: int) -> list[isl.Map]:
        """Return `{ [time] -> [time'] }` in different iterations of each concurrent loop that does not own the tensor's copy."""
        result: list[isl.Map] = []
        seen: set[tuple[int, ...]] = set()
        for place in self.schedule.places.values():
            for depth, loop in enumerate(place.loops):
                path = place.path[: depth + 1]
                if loop.mark not in AT_ONCE | {"vector"} or depth < owner or path in seen:
                    continue
                seen.add(path)
                same = isl.Map.universe(clock.map_from_set())
                for level, position in enumerate(path):
                    same = same.fix_val(DT.in_, 2 * level, val(position)).fix_val(DT.out, 2 * level, val(position))
                for level in range(depth):
                    same = same.equate(DT.in_, 2 * level + 1, DT.out, 2 * level + 1)
                dim = 2 * depth + 1
                result += [same.order_lt(DT.in_, dim, DT.out, dim), same.order_gt(DT.in_, dim, DT.out, dim)]
        return result

    def reach(self, tensor: str, axis: int) -> int | None:
        """Return one more than the greatest distance along `axis` between a live element and one written meanwhile, or at once with it."""
        writes, touches = self._touches(tensor, writes=True), self._touches(tensor, writes=False).reverse()
        owner = self.storage.get(tensor, 0)
        pairs = self._live(tensor).reverse().apply_range(writes)
        for order in self._concurrent(writes.get_space().domain(), owner):
            pairs = pairs.union(touches.apply_range(order).apply_range(writes))
        for position in range(pairs.dim(DT.in_)):
            if position != owner + axis:
                pairs = pairs.equate(DT.in_, position, DT.out, position)
        if pairs.is_empty():
            return 1
        deltas = pairs.deltas()
        ends = deltas.dim_min_val(owner + axis), deltas.dim_max_val(owner + axis)
        return 1 + max(abs(integer(e)) for e in ends) if all(e.is_int() for e in ends) else None

    def _live(self, tensor: str) -> isl.Map:
        """Return `{ [time] -> [owner loops, x] : x holds a value at that time that is still needed afterwards }`."""
        writes, accesses = self._touches(tensor, writes=True), self._touches(tensor, writes=False)
        clock = writes.get_space().domain()
        needed = isl.Map.lex_lt(clock).apply_range(accesses)
        if tensor in self.outputs:
            needed = isl.Map.universe(writes.get_space()).intersect_range(writes.range())
        if tensor in self.schedule.scop.inputs:
            return needed
        return needed.intersect(isl.Map.lex_gt(clock).apply_range(writes))

    def _live_between(self, tensor: str) -> isl.Map:
        """Return `{ [time] -> [owner loops, x] }` from the last write before a read of x to that read."""
        writes, reads = self._touches(tensor, writes=True).reverse(), self._reads(tensor).reverse()
        clock = writes.get_space().range()
        earlier, later = isl.Map.lex_gt(clock), isl.Map.lex_lt(clock)
        before = reads.range_product(writes).intersect_range(earlier.wrap()).uncurry()
        since = before.lexmax().apply_range(later)
        until = reads.range_map().apply_range(earlier)
        return since.intersect(until).domain_factor_domain().reverse()

    def _touches(self, tensor: str, *, writes: bool) -> isl.Map:
        """Return `{ [time] -> [owner loops, x] }` of the writes of `tensor`, or of all accesses."""
        return self._accesses(tensor, lambda statement: (statement.write, *(() if writes else statement.reads)))

    def _reads(self, tensor: str) -> isl.Map:
        """Return `{ [time] -> [owner loops, x] }` where `tensor` is read; a reduction reads what it adds to."""
        return self._accesses(tensor, lambda statement: (*statement.reads, *((statement.write,) if statement.role == "update" else ())))

    def _accesses(self, tensor: str, of: Callable[[Statement], tuple[Access, ...]]) -> isl.Map:
        owner = self.storage.get(tensor, 0)
        total: isl.Map | None = None
        for name in self.schedule.places:
            nest = self.schedule.nests[name]
            statement = self.schedule.statements[nest.statement]
            for access in (a for a in of(statement) if a.tensor == tensor):
                cells = access_map(self.schedule.scop, statement, access).preimage_domain_multi_aff(nest.back)
                loops = isl.Map.from_multi_aff(nest.frame.multi_aff(Name(n) for n in nest.loops[:owner]))
                found = self._time(name).reverse().apply_range(loops.flat_range_product(cells))
                total = found if total is None else total.union(found)
        if total is not None:
            return total.coalesce()
        rank = owner + len(self.axes[tensor])
        clock = next(iter(self.schedule.places))
        params = self.schedule.scop.params
        return isl.Map.empty(self._time(clock).range().get_space().map_from_domain_and_range(Frame(params, ("",) * rank).space))

    def _time(self, placement: str) -> isl.Map:
        if placement not in self.times:
            self.times[placement] = self.schedule.time(placement)
        return self.times[placement]

    def _cells(self, tensor: str) -> Cells:
        entry = self.maps[tensor]
        cells = entry if isinstance(entry, Cells) else Cells(tuple(entry[0]), tuple(entry[1]))
        return cells if cells.buffer is not None else Cells(cells.exprs, cells.moduli, tensor)

    def _same_cell(self, first: str, second: str) -> isl.Map:
        return self._layout(first).apply_range(self._layout(second).reverse())

    def _meanwhile(self, live: isl.Map, lost: str, other: str) -> list[isl.Map]:
        return self._shown(live.reverse().apply_range(self._touches(other, writes=True)), lost, other)

    def _shown(self, pairs: isl.Map, first: str, second: str) -> list[isl.Map]:
        return [pairs, self._same_cell(first, second)]

    def _layout(self, tensor: str) -> isl.Map:
        owner, cells = self.storage.get(tensor, 0), self._cells(tensor)
        loops = tuple(f"owner {k}" for k in range(owner))
        frame = Frame(self.schedule.scop.params, (*loops, *self.axes[tensor]))
        folded = [e if m is None else Mod(e, m) for e, m in zip(cells.exprs, cells.moduli, strict=True)]
        return isl.Map.from_pw_multi_aff(frame.multi_pw_aff([*(Name(n) for n in loops), *folded]))

    def _evidence(self, lost: str, by: str, pairs: isl.Map) -> Clobber:
        sizes, both = smallest_point(pairs.wrap().flatten())
        n = pairs.dim(DT.in_)
        first, second = both[self.storage.get(lost, 0) : n], both[n + self.storage.get(by, 0) :]
        return Clobber(dict(zip(self.schedule.scop.params, sizes, strict=True)), (lost, first), (by, second))
