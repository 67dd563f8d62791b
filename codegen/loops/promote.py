"""Keeps accumulators in registers.

`promote_accumulators` moves the elements that a loop accumulates into registers for the time of the loop:

    before   for k in 0 .. K {
                 for ii in 0 .. 4 unroll 4 { for j in 0 .. 16 vector 16 {
                     c[4*io + ii, 16*jo + j] = fma(a[4*io + ii, k], b[k, 16*jo + j], c[4*io + ii, 16*jo + j])
    after    if 0 < index(K) {
                 alloc c_acc: f32[4, 16] registers
                 for ii .. { for j .. { c_acc[ii, j] = c[4*io + ii, 16*jo + j] } }
                 for k in 0 .. K { for ii .. { for j .. { c_acc[ii, j] = fma(.., .., c_acc[ii, j]) } } }
                 for ii .. { for j .. { c[4*io + ii, 16*jo + j] = c_acc[ii, j] } } }

Sums of products of tiles go to tiles in the same way.

The loop is the outermost serial one whose iterations all touch the same elements, or one that is written out and asks data whether it
touches them: what it stores without asking is found by those who read it next. Refused are buffers with a second access inside the
loop at another address, addresses that differ from iteration to iteration or that are read from memory, accesses under conditions to
elements that nothing certainly writes before the loop, tiles whose edges
vary during the loop, addresses at which two register elements would be one memory element, and tiles that do not
fit the registers. No element is touched that was not touched before: the `if` is there when the loop may be empty, and is left out
when the addresses are valid anyway. The elements are not loaded when the loop begins by overwriting them.

`drop_stack_to_registers` turns a small stack buffer into registers when unrolling makes all its addresses constant:

    before   alloc t: f32[4, 16] stack        for ii in 0 .. 4 unroll 4 { for j in 0 .. 16 vector 16 { t[ii, j] = .. } }
    after    alloc t: f32[4, 16] registers    (the same)

Both expect indices in the form that `simplify` gives them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from codegen.dtypes import i64
from codegen.loops.demote import demote
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import (
    Alloc,
    Barrier,
    Boxes,
    Buffer,
    Commit,
    Compare,
    Const,
    Expr,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Mma,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Space,
    Stmt,
    Store,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.verify import Env
from codegen.loops.walk import (
    Fresh,
    certain_loads,
    children,
    free_vars,
    fresh_for,
    loads,
    map_expr,
    map_index,
    map_stmt,
    statements,
    substitute_index,
    walk,
)
from codegen.polynomials import ONE

TILES = 4
"""How many of a processor's tiles may hold sums; the others are for operands."""
REGISTER_BYTES = 32 * 64
"""What the vector registers of the largest target hold."""


def promote_accumulators(function: Function) -> Function:
    """Return `function` with accumulation loops working in registers."""
    pass_ = _Promotion(fresh_for(function))
    body = pass_.block(function.body, Algebra.outside(function), {p.name: p for p in function.params})
    return replace(function, body=body)


def drop_stack_to_registers(function: Function, room: int) -> Function:
    """Return `function` with stack buffers of constant addresses in registers, the first ones, of `room` bytes together."""
    return demote(replace(function, body=_drop_block(function.body, Env.of(function), frozenset(), _Room(room))))


# ---------------------------------------------------------------- accesses


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write below a loop; `path` are the loops in between, `guarded` if it stands under a condition, and `chosen` if it is read
    where another value may be chosen."""

    node: Load | Store
    path: tuple[For, ...]
    guarded: bool
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class _Tile:
    """The elements `index` of `buffer` for all values of the variables of `axes`, unrolled and vector loops, outermost first."""

    buffer: Buffer
    index: tuple[Index, ...]
    axes: tuple[For, ...]

    @property
    def place(self) -> tuple[Index, ...]:
        return tuple(Var(axis.var) for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.extent or 0 for axis in self.axes)


@dataclass(frozen=True, slots=True)
class _Promoted:
    """A tile, the buffer that holds it meanwhile, and what has to happen before and after the loop."""

    tile: _Tile
    register: Buffer
    needs_load: bool
    needs_guard: bool
    streams: bool


def accesses_below(block: tuple[Stmt, ...], path: tuple[For, ...] = (), guarded: bool = False) -> Iterator[Access]:
    """Yield the reads and writes below `block` in the order in which they are executed."""
    for s in block:
        match s:
            case For(lo=lo, hi=hi, body=body):
                yield from (Access(load, path, guarded) for load in loads(lo, hi))
                yield from accesses_below(body, (*path, s), guarded)
            case If(cond, then, orelse):
                yield from (Access(load, path, guarded) for load in loads(cond))
                yield from accesses_below(then, path, True)
                yield from accesses_below(orelse, path, True)
            case Store():
                certain = certain_loads(*children(s))
                yield from (Access(load, path, guarded, load not in certain) for load in loads(s))
                yield Access(s, path, guarded)
            case Producer(body):
                yield from accesses_below(body, path, guarded)
            case Let() | Require() | Alloc() | Prefetch() | Barrier() | Commit() | Wait() | LoadMatrix() | Mma():
                yield from (Access(load, path, guarded) for load in loads(*children(s)))
            case Boxes() | WaitBoxes() | Release() | Reclaim():
                yield from (Access(load, path, guarded) for load in loads(*children(s)))
            case _:
                assert_never(s)


# ---------------------------------------------------------------- promotion


class _Promotion:
    """Visits loops from the outside in and promotes what it can at each."""

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh

    def block(
        self, body: tuple[Stmt, ...], algebra: Algebra, buffers: Mapping[str, Buffer], before: tuple[Stmt, ...] = ()
    ) -> tuple[Stmt, ...]:
        """Return a block with its loops promoted; `before` was executed before it."""
        result: list[Stmt] = []
        for s in body:
            done = (*before, *result)
            match s:
                case For():
                    result.extend(self.loop(s, algebra, buffers, done))
                case If(cond, then, orelse):
                    parts = (self.block(part, algebra, buffers, done) for part in (then, orelse))
                    result.append(If(cond, *parts))
                case Alloc(buffer):
                    buffers = {**buffers, buffer.name: buffer}
                    result.append(s)
                case _:
                    result.append(s)
        return tuple(result)

    def loop(self, loop: For, algebra: Algebra, buffers: Mapping[str, Buffer], before: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        promoted = self.promotions(loop, algebra, buffers, before) if loop.kind in ("serial", "unroll") else []
        for one in promoted:
            loop = _in_registers(loop, one)
        inner = algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent)
        loop = replace(loop, body=self.block(loop.body, inner, buffers))
        if not promoted:
            return (loop,)
        block = (
            *(Alloc(one.register) for one in promoted),
            *(_fill(one) for one in promoted if one.needs_load),
            loop,
            *(_drain(one) for one in promoted),
        )
        if any(one.needs_guard for one in promoted):
            return (If(Compare("<", _value(loop.lo), _value(loop.hi)), block),)
        return block

    def promotions(self, loop: For, algebra: Algebra, buffers: Mapping[str, Buffer], before: tuple[Stmt, ...]) -> list[_Promoted]:
        grouped: dict[str, list[Access]] = {}
        for access in accesses_below(loop.body):
            grouped.setdefault(access.node.buffer, []).append(access)
        found: list[_Promoted] = []
        for name, accesses in grouped.items():
            # Buffers that are allocated inside the loop are unknown out here.
            asked = loop.kind == "serial" or any(access.guarded for access in accesses)
            if asked and name in buffers and buffers[name].space != "registers":
                one = self.promotion(loop, buffers[name], accesses, algebra, before)
                found.extend([one] if one else [])
        return found

    def promotion(self, loop: For, buffer: Buffer, accesses: list[Access], algebra: Algebra, before: tuple[Stmt, ...]) -> _Promoted | None:
        """Return how the elements of `buffer` that `loop` accumulates go to registers, or None if they cannot. Those that it changes
        under a condition have to be written before it: then they exist, and are nobody else's."""
        if not _accumulates(accesses):
            return None
        tile = _tile(loop, buffer, accesses)
        guarded = any(access.guarded for access in accesses)
        if guarded and (tile is None or not _is_written(before, tile, algebra)):
            return None
        space: Space = "tiles" if tile is not None and any(axis.kind == "tile" for axis in tile.axes) else "registers"
        if tile is None or not _has_room(tile, space):
            return None
        inside = algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent)
        certain = [_run(inside, _others(access, tile)) for access in accesses]
        overwritten = isinstance(accesses[0].node, Store) and certain[0] and not accesses[0].guarded
        valid = buffer.space == "param" and _in_bounds(tile, algebra)
        # Parameters are filled, so one access tells that the elements exist; local memory may be read only where it was read before.
        first = next((access.node for access in accesses if not access.chosen), None)
        touched = overwritten or (any(certain) if buffer.space == "param" else all(certain) and isinstance(first, Load))
        if not (guarded or touched or valid):
            return None
        name = self._fresh(f"{buffer.name}_acc")
        register = Buffer(name, buffer.dtype, tuple(map(Int, tile.shape)), space, buffer.dtype.size_bytes)
        streams = any(isinstance(access.node, Store) and access.node.stream for access in accesses)
        needs_guard = (overwritten or not valid) and not _run(algebra, (loop,))
        return _Promoted(tile, register, not overwritten, needs_guard, streams)


def _is_written(before: tuple[Stmt, ...], tile: _Tile, algebra: Algebra) -> bool:
    """Tell whether statements certainly store all elements of a tile."""
    for s in reversed(before):
        if not isinstance(s, For | Store):
            continue
        for access in accesses_below((s,)):
            if isinstance(access.node, Store) and access.node.buffer == tile.buffer.name and not access.guarded:
                found = _tile_of(access, None, tile.buffer)
                if found is not None and _anonymous(found) == _anonymous(tile) and _run(algebra, _others(access, tile)):
                    return True
    return False


def _has_room(tile: _Tile, space: Space) -> bool:
    """Tell whether the elements fit the registers, or the tiles: rows and columns of one, times the few that there are."""
    if space == "registers":
        return math.prod(tile.shape) * tile.buffer.dtype.size_bytes <= REGISTER_BYTES
    kinds = [axis.kind for axis in tile.axes]
    return kinds[-2:] == ["tile", "tile"] and set(kinds[:-2]) <= {"unroll"} and math.prod(tile.shape[:-2]) <= TILES


def _value(e: Index) -> Expr:
    return Const(e.value, i64) if isinstance(e, Int) else IndexValue(e)


def _accumulates(accesses: list[Access]) -> bool:
    """Tell whether some access stores a value computed from the element that it replaces, or iterations read what the one before left."""
    is_read_first = isinstance(accesses[0].node, Load) and any(isinstance(access.node, Store) for access in accesses)
    return is_read_first or any(
        isinstance(access.node, Store) and any(load == Load(access.node.buffer, access.node.index) for load in loads(access.node.value))
        for access in accesses
    )


def _tile(loop: For, buffer: Buffer, accesses: list[Access]) -> _Tile | None:
    """Return the elements that every iteration of `loop` touches, or None if the accesses do not agree on them."""
    tiles = [_tile_of(access, loop, buffer) for access in accesses]
    first = tiles[0]
    if first is None or not _distinct(first):
        return None
    wanted = _anonymous(first)
    return first if all(tile is not None and _anonymous(tile) == wanted for tile in tiles) else None


def _tile_of(access: Access, loop: For | None, buffer: Buffer) -> _Tile | None:
    """Return the elements that an access touches in an iteration of a loop around it, or without one; None where they are no tile."""
    index = access.node.index
    if _reads_memory(*index):
        return None
    used = free_vars(*index)
    axes = tuple(inner for inner in access.path if inner.var in used)
    # What the tile and its edges depend on: nothing that changes while `loop` runs, except the axes themselves.
    changing = {*([loop.var] if loop is not None else []), *(inner.var for inner in access.path)}
    for i, axis in enumerate(axes):
        known = {outer.var for outer in axes[:i]}
        if axis.kind not in ("unroll", "vector", "tile") or axis.lo != Int(0) or axis.extent is None:
            return None
        if _reads_memory(axis.hi) or (free_vars(axis.hi) & changing) - known:
            return None
    if any(inner.kind == "parallel" for inner in access.path) or (loop is not None and loop.var in used):
        return None
    return _Tile(buffer, index, axes)


def _anonymous(tile: _Tile) -> tuple[object, ...]:
    """Return what two accesses must have in common to touch the same elements: everything but the names of their loops."""
    names: dict[str, Index] = {axis.var: Var(f"axis {i}") for i, axis in enumerate(tile.axes)}
    index = tuple(substitute_index(e, names) for e in tile.index)
    axes = tuple((substitute_index(axis.hi, names), axis.kind, axis.extent) for axis in tile.axes)
    return index, axes


def _distinct(tile: _Tile) -> bool:
    """Tell whether the axes certainly lead to different elements: some subscript has them as digits of a mixed-radix number."""
    told: set[str] = set()
    extents = {axis.var: axis.extent or 0 for axis in tile.axes}
    for e in tile.index:
        form = coefficients(e)
        if form is None:
            return False
        digits = [(abs(scale), atom.name) for atom, scale in form[0].items() if isinstance(atom, Var) and atom.name in extents]
        if any(not isinstance(atom, Var) and not free_vars(atom).isdisjoint(extents) for atom in form[0]):
            return False
        below = 0
        for scale, name in sorted(digits):
            if scale <= below:
                return False
            below += scale * (extents[name] - 1)
            told.add(name)
    return told == set(extents)


def _others(access: Access, tile: _Tile) -> tuple[For, ...]:
    """Return the loops around `access` that are no axes of the tile."""
    used = free_vars(*access.node.index)
    return tuple(inner for inner in access.path if inner.var not in used)


def _run(algebra: Algebra, loops: tuple[For, ...]) -> bool:
    """Tell whether each of `loops`, one in the other, certainly runs at least once."""
    for loop in loops:
        if not algebra.nonnegative(algebra.poly(loop.hi) - algebra.poly(loop.lo) - ONE):
            return False
        algebra = algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent)
    return True


def _in_bounds(tile: _Tile, algebra: Algebra) -> bool:
    """Tell whether the whole tile certainly lies within its buffer."""
    for axis in tile.axes:
        algebra = algebra.with_loop(axis.var, axis.lo, axis.hi, axis.extent)
    for e, extent in zip(tile.index, tile.buffer.shape, strict=True):
        place = algebra.poly(e)
        room = algebra.poly(extent) - place - ONE
        if not (algebra.nonnegative(place) and algebra.nonnegative(room)):
            return False
    return True


def _in_registers(loop: For, one: _Promoted) -> For:
    """Return `loop` with the accesses to the promoted elements made in registers."""
    name = one.tile.buffer.name

    def stmt(s: Stmt, path: tuple[str, ...]) -> Stmt:
        inner = (*path, s.var) if isinstance(s, For) else path

        def index(e: Index) -> Index:
            return map_index(e, index, expr)

        def expr(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer == name:
                return Load(one.register.name, _place(e.index, path))
            return map_expr(e, index, expr)

        new = map_stmt(s, index, expr, lambda child: stmt(child, inner))
        if isinstance(new, Store) and new.buffer == name:
            return replace(new, buffer=one.register.name, index=_place(new.index, path), stream=False)
        return new

    return replace(loop, body=tuple(stmt(s, ()) for s in loop.body))


def _place(index: tuple[Index, ...], path: tuple[str, ...]) -> tuple[Index, ...]:
    used = free_vars(*index)
    return tuple(Var(var) for var in path if var in used)


def _fill(one: _Promoted) -> Stmt:
    return _nest(one.tile, Store(one.register.name, one.tile.place, Load(one.tile.buffer.name, one.tile.index)))


def _drain(one: _Promoted) -> Stmt:
    value = Load(one.register.name, one.tile.place)
    return _nest(one.tile, Store(one.tile.buffer.name, one.tile.index, value, one.streams))


def _nest(tile: _Tile, s: Stmt) -> Stmt:
    for axis in reversed(tile.axes):
        s = replace(axis, body=(s,))
    return s


def _reads_memory(*index: Index) -> bool:
    return any(isinstance(node, ValueIndex) for node in walk(*index))


# ---------------------------------------------------------------- stack buffers


@dataclass(slots=True)
class _Room:
    """The bytes of registers that are left."""

    left: int

    def takes(self, buffer: Buffer) -> bool:
        """Tell whether a buffer finds room, and give it that."""
        extents = [extent.value for extent in buffer.shape if isinstance(extent, Int)]
        size = math.prod(extents) * buffer.dtype.size_bytes
        if len(extents) < len(buffer.shape) or size > self.left:
            return False
        self.left -= size
        return True


def _drop_block(block: tuple[Stmt, ...], env: Env, lanes: frozenset[str], room: _Room) -> tuple[Stmt, ...]:
    """Return `block`; `lanes` are the variables of the vector loops around it."""
    result: list[Stmt] = []
    for position, s in enumerate(block):
        match s:
            case For():
                inner = lanes | {s.var} if s.kind == "vector" else lanes
                result.append(replace(s, body=_drop_block(s.body, env.with_loop(s), inner, room)))
            case If(cond, then, orelse):
                result.append(If(cond, _drop_block(then, env, lanes, room), _drop_block(orelse, env, lanes, room)))
            case Alloc(buffer) if buffer.space == "stack" and _is_constant(buffer.name, block[position:], env, lanes):
                result.append(Alloc(replace(buffer, space="registers")) if room.takes(buffer) else s)
            case _:
                result.append(s)
    return tuple(result)


def _is_constant(name: str, block: tuple[Stmt, ...], env: Env, lanes: frozenset[str]) -> bool:
    """Tell whether unrolling makes every address of buffer `name` in `block` constant, and the same for all `lanes` around."""
    if any(isinstance(node, Prefetch) and node.buffer == name for node in statements(*block)):
        return False
    for access in accesses_below(block):
        if access.node.buffer == name:
            scope = env
            for loop in access.path:
                scope = scope.with_loop(loop)
            if not scope.is_constant(*access.node.index) or not free_vars(*access.node.index).isdisjoint(lanes):
                return False
    return True
