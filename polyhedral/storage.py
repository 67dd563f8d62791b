"""Whether a map from tensor elements to memory cells ever loses a value that is still needed.

    cells      { A[x] -> buffer[f(x) mod m] }         folds, aliases, layouts
    live       A[x] from its first write to its last access (inputs from the start, outputs to the end); where it is computed again, from
               each write to the last access before the next
    clobber    B[y] written strictly between, into the cell of A[x], B[y] != A[x], and B[y] no copy of A[x] nor A[x] of it

A statement reads before it writes, so an element may take the cell of one that the same instance reads last. Tensors with private copies
(`storage`) conflict only within one iteration of the loops that own the copy. Iterations of a parallel or vector loop have no order: no two
of them may put different elements into one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import TypeAlias

import islpy as isl

from polyhedral import affine
from polyhedral.deps import access_map
from polyhedral.expr import TRUE, Compare, Cond, Expr, Int, Mod, Name
from polyhedral.model import AT_ONCE, Access, Statement
from polyhedral.nest import Nest
from polyhedral.record import each, note
from polyhedral.schedule import Schedule, loops_in, placements_in
from polyhedral.space import DT, Frame, OperationLimit, integer, limited, smallest_point
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
_Placed: TypeAlias = "list[tuple[str, isl.Map]]"
"""Placements, each with `{ [loops] -> [owner loops, x] }` of what it touches of a tensor."""
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


def fold_factor(
    schedule: Schedule, tensor: str, axis: int, storage: Storage | None = None, limit: int = STORAGE_LIMIT, most: int | None = None
) -> int | None:
    """Return the least modulus by which `axis` of `tensor` can be folded at any distance, or None when there is no constant one, or none of
    at most `most`."""
    rank = next(len(t.shape) for t in schedule.scop.tensors if t.name == tensor)
    names = tuple(f"x{a}" for a in range(rank))
    whole = Cells(tuple(Name(n) for n in names), (None,) * rank)
    try:
        with limited(limit):
            return _Lives(schedule, {tensor: whole}, {tensor: names}, (), storage or {}).reach(tensor, axis, most)
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
    params: tuple[str, ...],
    axes: tuple[str, ...],
    extents: tuple[Expr, ...],
    dims: tuple[Expr, ...],
    block: tuple[Expr, ...],
    context: Cond = TRUE,
) -> Proven | Collision | Outside | Unknown:
    """Return whether `dims`, over `axes`, give every element of the box of `extents` a cell of its own in a block of shape `block`; no
    size is negative, and `context` holds of them."""
    frame = Frame(params, axes)
    sizes = [Compare(">=", Name(name), Int(0)) for name in params]
    try:
        with limited():
            box = frame.set(
                affine.conj(context, *sizes, *(_within(Name(axis), extent) for axis, extent in zip(axes, extents, strict=True)))
            )
            outside = box.subtract(frame.set(affine.conj(*(_within(e, extent) for e, extent in zip(dims, block, strict=True)))))
            if not outside.is_empty():
                where, element = smallest_point(outside)
                return Outside(dict(zip(params, where, strict=True)), element)
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
class _Met:
    """For `pairs` of elements of two tensors, which accesses of the first meet which writes of the second, `{ [loops] -> [loops] }`."""

    pairs: isl.Map
    found: dict[tuple[str, str], isl.Map] = field(default_factory=dict)

    def of(self, accessed: tuple[str, isl.Map], written: tuple[str, isl.Map]) -> isl.Map:
        """Return that of two placements, each with `{ [loops] -> [owner loops, x] }`."""
        key = accessed[0], written[0]
        if key not in self.found:
            self.found[key] = accessed[1].apply_range(self.pairs).apply_range(written[1].reverse())
        return self.found[key]


@dataclass(slots=True)
class _Lives:
    """Writes and accesses of each mapped tensor against time: `{ [time] -> [owner loops, x] }`."""

    schedule: Schedule
    maps: Maps
    axes: Mapping[str, Sequence[str]]
    outputs: Collection[str]
    storage: Storage
    times: dict[str, isl.Map] = field(default_factory=dict)
    placed: dict[tuple[str, bool], _Placed] = field(default_factory=dict)
    alike: dict[str, isl.Map] = field(default_factory=dict)
    touched: dict[tuple[str, bool], isl.Map] = field(default_factory=dict)
    living: dict[str, isl.Map] = field(default_factory=dict)

    def clobber(self) -> Clobber | None:
        for lost in self.maps:
            for other in self.maps:
                if self._cells(lost).buffer != self._cells(other).buffer:
                    continue
                if self._is_in_turns(lost) if lost == other else self._is_outlived(lost, other):
                    note("alive", f"{lost}, {other}", self._meanwhile, self._live, lost, other)
                    continue
                live = self._live
                pairs = self._overwritten(lost, other, live(lost))
                if not pairs.is_empty() and self._is_computed_again(lost):
                    live = self._live_between
                    pairs = self._overwritten(lost, other, live(lost))
                if not pairs.is_empty():
                    return self._evidence(lost, other, pairs)
                note("alive", f"{lost}, {other}", self._meanwhile, live, lost, other)
        return None

    def _is_in_turns(self, tensor: str) -> bool:
        """Tell whether elements of one cell have it one after the other, in the order of their indices or against it: no access of one
        runs after a write of a later one; or whether no two are in one cell. That is quickly told, and so are most tensors."""
        same = self._different(tensor, tensor)
        if tensor in self.outputs or tensor in self.schedule.scop.inputs:
            return bool(same.is_empty())
        space = same.get_space().domain()
        later, earlier = same.intersect(isl.Map.lex_lt(space)).coalesce(), same.intersect(isl.Map.lex_gt(space)).coalesce()
        accesses, writes = self._placed(tensor, writes=False), self._placed(tensor, writes=True)
        return any(_is_never(self._written_first(accesses, writes, _Met(pairs))) for pairs in (later, earlier))

    def _is_outlived(self, lost: str, other: str) -> bool:
        """Tell whether no access of an element of one tensor runs after a write of one of another tensor into its cell, or no write of that
        after a write of the first: what is quickly told, and is so of most tensors that share memory."""
        pairs = self._different(lost, other)
        writes, others = self._placed(lost, writes=True), self._placed(other, writes=True)
        return (lost not in self.outputs and _is_never(self._written_first(self._placed(lost, writes=False), others, _Met(pairs)))) or (
            lost not in self.schedule.scop.inputs and _is_never(self._written_first(others, writes, _Met(pairs.reverse())))
        )

    def _written_first(self, accesses: _Placed, writes: _Placed, met: _Met) -> Iterator[tuple[isl.Map, isl.Map, isl.Map]]:
        """Yield the accesses of an element that run after writes of another, `{ [loops] -> [loops] }` for pairs of elements, for two
        placements and a loop that they share at a time; and `{ [loops] -> [owner loops, x] }` of either placement."""
        for first, accessed in accesses:
            for second, written in writes:
                found = met.of((first, accessed), (second, written))
                for level in range(self.schedule.shared(first, second)):
                    if found.is_empty():
                        break
                    yield found.order_gt(DT.in_, level, DT.out, level), accessed, written
                    found = found.equate(DT.in_, level, DT.out, level)
                if self.schedule.before(second, first):
                    yield found, accessed, written

    def _at_once(self, first: str, second: str, among: isl.Map) -> Iterator[tuple[isl.Map, isl.Map, isl.Map]]:
        """Yield the same for iterations of each concurrent loop that does not own the copy of a tensor. Threads may not even write the
        value that others read there."""
        threads, lanes = _Met(among), _Met(self._unlike(first, second, among))
        for node, depth in loops_in(self.schedule.tree):
            if node.mark not in AT_ONCE | {"vector"} or depth < self.storage.get(first, 0):
                continue
            met = threads if node.mark in AT_ONCE else lanes
            under = set(placements_in(node))
            for one, accessed in self._placed(first, writes=False):
                for another, written in self._placed(second, writes=True):
                    if not {one, another} <= under:
                        continue
                    found = met.of((one, accessed), (another, written))
                    for level in range(depth):
                        found = found.equate(DT.in_, level, DT.out, level)
                    if not found.is_empty():
                        for order in (isl.Map.order_lt, isl.Map.order_gt):
                            yield order(found, DT.in_, depth, DT.out, depth), accessed, written

    def _placed(self, tensor: str, *, writes: bool) -> _Placed:
        """Return `{ [loops] -> [owner loops, x] }` of the writes of a tensor, or of all accesses, by placement."""
        if (tensor, writes) not in self.placed:
            owner, found = self.storage.get(tensor, 0), list[tuple[str, isl.Map]]()
            for name in self.schedule.places:
                nest = self.schedule.nests[name]
                statement = self.schedule.statements[nest.statement]
                points = nest.points.intersect_params(nest.context)
                loops = isl.Map.from_multi_aff(nest.frame.multi_aff(Name(n) for n in nest.loops[:owner]))
                accesses = (statement.write, *(() if writes else statement.reads))
                cells = [self._elements(nest, statement, a) for a in dict.fromkeys(accesses) if a.tensor == tensor]
                if cells:
                    total = reduce(isl.Map.union, cells).coalesce()
                    found.append((name, loops.flat_range_product(total).intersect_domain(points)))
            self.placed[tensor, writes] = found
        return self.placed[tensor, writes]

    def _overwritten(self, lost: str, other: str, live: isl.Map) -> isl.Map:
        """Return the elements of `lost` with those of `other` that are written into their cell while they are live."""
        return live.reverse().apply_range(self._touches(other, writes=True)).intersect(self._different(lost, other))

    def _is_computed_again(self, tensor: str) -> bool:
        return tensor not in self.schedule.scop.inputs and not self._touches(tensor, writes=True).reverse().is_single_valued()

    def at_once(self) -> Clobber | None:
        """Return two elements in one cell that iterations of one parallel or vector loop touch, one of them writing."""
        for lost in self.maps:
            for other in self.maps:
                if self._cells(lost).buffer != self._cells(other).buffer:
                    continue
                different = self._distinct(lost, other)
                for found, accessed, written in self._at_once(lost, other, different):
                    if not found.is_empty():
                        pairs = found.apply_domain(accessed).apply_range(written).intersect(different)
                        return self._evidence(lost, other, pairs)
                    note("at once", f"{lost}, {other}", self._met, found, accessed, written, lost, other)
        return None

    def reach(self, tensor: str, axis: int, most: int | None = None) -> int | None:
        """Return one more than the greatest distance along `axis` between a live element and one written meanwhile, or at once with it;
        None where there is no greatest one, or it is not less than `most`."""
        dim = self.storage.get(tensor, 0) + axis
        space = self._same_cell(tensor, tensor).get_space()
        along = isl.Map.universe(space)
        for position in range(space.dim(DT.in_)):
            along = along if position == dim else along.equate(DT.in_, position, DT.out, position)
        later, earlier = along.order_lt(DT.in_, dim, DT.out, dim), along.order_gt(DT.in_, dim, DT.out, dim)
        sides = later, earlier
        unlike = [_Met(self._unlike(tensor, tensor, pairs)) for pairs in sides]
        accesses, writes = self._placed(tensor, writes=False), self._placed(tensor, writes=True)
        found = [_furthest(self._written_first(accesses, writes, met), met.pairs, dim, most) for met in unlike]
        known = [distance for distance in found if distance is not None]
        if not known:
            return None
        together = [_furthest(self._at_once(tensor, tensor, pairs), pairs, dim, most) for pairs in sides]
        return None if None in together else 1 + max(min(known), *(distance or 0 for distance in together))

    def _live(self, tensor: str) -> isl.Map:
        """Return `{ [time] -> [owner loops, x] : x holds a value at that time that is still needed afterwards }`."""
        if tensor not in self.living:
            self.living[tensor] = self._made_living(tensor)
        return self.living[tensor]

    def _made_living(self, tensor: str) -> isl.Map:
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
        key = tensor, writes
        if key not in self.touched:
            self.touched[key] = self._accesses(tensor, lambda statement: (statement.write, *(() if writes else statement.reads)))
        return self.touched[key]

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
                cells = self._elements(nest, statement, access)
                loops = isl.Map.from_multi_aff(nest.frame.multi_aff(Name(n) for n in nest.loops[:owner]))
                found = self._time(name).reverse().apply_range(loops.flat_range_product(cells))
                total = found if total is None else total.union(found)
        if total is not None:
            return total.coalesce()
        rank = owner + len(self.axes[tensor])
        clock = next(iter(self.schedule.places))
        params = self.schedule.scop.params
        return isl.Map.empty(self._time(clock).range().get_space().map_from_domain_and_range(Frame(params, ("",) * rank).space))

    def _elements(self, nest: Nest, statement: Statement, access: Access) -> isl.Map:
        """Return `{ [loops] -> [x] }` of an access, wherever its statement may run: the points of `nest` say where it does."""
        return access_map(self.schedule.scop, replace(statement, domain=TRUE), access).preimage_domain_multi_aff(nest.back)

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

    def _meanwhile(self, live: Callable[[str], isl.Map], lost: str, other: str) -> list[isl.Map]:
        meanwhile = live(lost).reverse().apply_range(self._touches(other, writes=True))
        return self._shown(self._unlike(lost, other, meanwhile), lost, other)

    def _met(self, found: isl.Map, accessed: isl.Map, written: isl.Map, lost: str, other: str) -> list[isl.Map]:
        return self._shown(found.apply_domain(accessed).apply_range(written), lost, other)

    def _shown(self, pairs: isl.Map, first: str, second: str) -> list[isl.Map]:
        return [pairs, self._same_cell(first, second)]

    def _different(self, first: str, second: str) -> isl.Map:
        """Return the elements of two tensors that share a cell, and may have different values."""
        return self._unlike(first, second, self._distinct(first, second))

    def _distinct(self, first: str, second: str) -> isl.Map:
        """Return the elements of two tensors that share a cell, and are not one."""
        same = self._same_cell(first, second)
        return same.subtract(isl.Map.identity(same.get_space())) if first == second else same

    def _unlike(self, first: str, second: str, pairs: isl.Map) -> isl.Map:
        """Return pairs of elements without those of which one is a copy of the other."""
        return pairs.subtract(self._copies(first)) if first == second and self._copies_itself(first) else pairs

    def _copies_itself(self, tensor: str) -> bool:
        return any(a.tensor == s.write.tensor == tensor and a.is_exact for s in self.schedule.scop.statements for a in s.copied)

    def _copies(self, tensor: str) -> isl.Map:
        """Return `{ [owner loops, x] -> [owner loops, y] }` of elements that are copies of each other, as statements say, in one copy of
        the tensor; copies of copies where all lie the same way apart."""
        if tensor not in self.alike:
            scop = self.schedule.scop
            direct: isl.Map | None = None
            for statement in scop.statements:
                for access in (a for a in statement.copied if a.tensor == statement.write.tensor == tensor and a.is_exact):
                    found = access_map(scop, statement, access).reverse().apply_range(access_map(scop, statement, statement.write))
                    direct = found if direct is None else direct.union(found)
            assert direct is not None, "asked for a tensor that copies itself"
            ahead = _copied_on(direct.coalesce())
            both = ahead.union(ahead.reverse()).coalesce()
            owner = Frame(scop.params, ("",) * self.storage.get(tensor, 0)).space
            self.alike[tensor] = isl.Map.identity(owner.map_from_set()).flat_product(both)
        return self.alike[tensor]

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


def _is_never(found: Iterable[tuple[isl.Map, isl.Map, isl.Map]]) -> bool:
    """Tell whether there are no such accesses."""
    return all(pairs.is_empty() for pairs, _, _ in found)


def _copied_on(direct: isl.Map) -> isl.Map:
    """Return elements with their copies, as `direct` says, and with copies of copies where all of these lie the same way apart: those that
    such steps lead to, but for those behind one that is not copied. What else leads on (`m[k + 1, i, j] = m[k, j, i]`) isl may look for
    without end."""
    copied: dict[tuple[int, ...], isl.Set] = {}
    for part in direct.get_basic_maps():
        apart = part.deltas().to_set().get_plain_multi_val_if_fixed()
        if not apart.involves_nan():
            step = tuple(integer(apart.get_val(k)) for k in range(direct.dim(DT.out)))
            copied[step] = copied[step].union(part.domain()) if step in copied else part.domain().to_set()
    for step, elements in copied.items():
        space = elements.get_space()
        origin = isl.MultiVal.zero(space)
        for k, distance in enumerate(step):
            origin = origin.set_val(k, distance)
        once = isl.Map.from_multi_aff(isl.MultiAff.identity_on_domain_space(space).add_constant_multi_val(origin))
        ahead, exact = once.transitive_closure()
        assert exact, "translations by a constant"
        behind = ahead.union(isl.Map.identity(once.get_space())).intersect_range(elements.complement()).apply_range(ahead)
        direct = direct.union(ahead.subtract(behind))
    return direct


def _furthest(found: Iterable[tuple[isl.Map, isl.Map, isl.Map]], among: isl.Map, dim: int, most: int | None) -> int | None:
    """Return the greatest distance along one dimension of the elements, a pair of `among`, that two accesses touch, 0 where there are none;
    None where there is no greatest, or it is not less than `most`."""
    furthest = 0
    for pairs, accessed, written in found:
        if not pairs.is_empty():
            deltas = pairs.apply_domain(accessed).apply_range(written).intersect(among).deltas()
            ends = deltas.dim_min_val(dim), deltas.dim_max_val(dim)
            if not all(e.is_int() for e in ends):
                return None
            furthest = max(furthest, *(abs(integer(e)) for e in ends))
            if most is not None and furthest >= most:
                return None
    return furthest
