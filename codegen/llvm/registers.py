"""Buffers in registers: every element is part of an SSA value.

A buffer is cut into cells of consecutive elements, chosen so that the vector accesses of the code that uses it are whole cells:

    acc [14][32], read and written 16 lanes at a time            ->   28 cells of <16 x float>
    acc [14][24], read and written 16 and then 8 lanes at a time ->   14 cells of <16 x float> and 14 of <8 x float> between them

Accesses that do not fit the cells are still right, only slower. One of as many lanes as a cell has takes a shuffle of the two cells it lies
in, one of fewer lanes inside of a cell takes a shuffle of it; others are put together from single elements. Where vectors begin at the edge
of a row, cells are those of the accesses that begin at multiples of their lanes; where loops walk whole vectors and what is left of a row
comes behind them, once, cells are those of the accesses in most loops:

    acc [4][16], 16 lanes from 0 and 15 from 1    ->   4 cells of <16 x float>, shuffled by one lane for what begins at 1
    acc [4][16], 16 lanes in a loop, then 2       ->   4 cells of <16 x float>, of which the last step takes and changes 2 lanes

Vectors have a power of two of lanes, of which the last are masked in shorter loops. Rows that such loops walk get an element for every
lane, so that each row begins with a cell of its own:

    acc [24][7], read and written 7 lanes at a time              ->   acc [24][8]: 24 cells of <8 x float>

Nobody reads what is added, so writes need no mask there.

Loops are proven to stay inside their buffers, so a copy of an unrolled loop that names an element beyond the cells stands where code never
comes: what it reads is poison, and it writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from codegen.llvm.addresses import lane_stride
from codegen.llvm.arithmetic import byte_text, unary
from codegen.llvm.builder import Builder
from codegen.llvm.facts import Poly
from codegen.llvm.masks import held
from codegen.llvm.register_transpose import joined
from codegen.llvm.state import EmitError, Lanes, Registers, Scope, State, splat
from codegen.llvm.values import Value, of_lanes, scalar_type
from codegen.loops.nodes import Add, Alloc, Expr, For, Index, Int, Load, Max, Min, Mul, Store, Var
from codegen.loops.walk import Node, children
from codegen.polynomials import ONE, ZERO, atom_poly, number


def read(state: State, storage: Registers, poly: Poly, scope: Scope) -> Value:
    """Return element `poly`, or one element per lane."""
    held = _held(state, storage, poly, scope)
    if storage.in_bytes:
        return Value(storage.dtype, state.builder.pure(f"icmp slt {held.typed}, {byte_text(0, held.lanes)}"), held.lanes)
    return unary(state.builder, "neg", held) if storage.negated else held


def _held(state: State, storage: Registers, poly: Poly, scope: Scope) -> Value:
    b = state.builder
    stride, offset = _place(b, storage, poly, scope)
    cells = state.cells[storage.uid]
    if storage.private_lanes:
        return Value(storage.kept, cells[offset] if storage.has(offset) else "poison", storage.private_lanes)
    if stride == 0:
        return Value(storage.kept, _element(b, storage, cells, offset))
    assert scope.lanes is not None
    lanes = scope.lanes.count
    places = [offset + stride * i for i in range(lanes)]
    return Value(storage.kept, _gathered(b, storage, cells, places, scope.lanes.active or lanes), lanes)


def write(state: State, storage: Registers, poly: Poly, value: Value, scope: Scope) -> None:
    """Make `value` the element `poly`, or one element per lane, where the mask allows it."""
    b = state.builder
    if storage.negated:
        value = unary(b, "neg", value)
    if storage.in_bytes:
        value = Value(storage.kept, b.pure(f"sext {value.typed} to {of_lanes('i8', value.lanes)}"), value.lanes)
    stride, offset = _place(b, storage, poly, scope)
    cells = state.cells[storage.uid]
    if stride == 0 and not storage.has(offset):
        return
    if storage.private_lanes:
        cells[offset] = _masked(b, splat(b, value, storage.private_lanes), cells[offset], scope)
        return
    if stride == 0:
        if value.lanes:
            raise EmitError(f"the lanes write different values to one element of `{storage.buffer.name}`, and not as a reduction")
        _put(b, storage, cells, offset, _guarded(b, value, storage, cells, offset, scope))
        return
    assert scope.lanes is not None
    lanes = scope.lanes.count
    places = [offset + stride * i for i in range(lanes)]
    new = splat(b, value, lanes)
    active = scope.lanes.active or lanes
    unseen = _is_unseen(storage, stride, lanes) and not _idles(b, value, scope.lanes)
    if scope.mask is not None and not unseen and not _pads(storage, scope.lanes, scope.mask, stride, offset):
        whole = scope.mask != scope.lanes.mask and _whole_cells(storage, places) is not None
        is_part = active < lanes and not whole and _neighbouring_cells(storage, places, active) is not None
        if not is_part or scope.mask != scope.lanes.mask:
            new = Value(new.dtype, _masked(b, new, _gathered(b, storage, cells, places, active), scope), lanes)
        if is_part:
            _shuffled_in(b, storage, cells, places, active, new)
            return
    _scattered(b, storage, cells, places, new)


def _is_unseen(storage: Registers, stride: int, lanes: int) -> bool:
    """Tell whether nobody sees what lanes that take no part write: the same lanes do all that is done with the buffer, and even the last
    one of a row lies before the next row."""
    rows = (s.constant for s in storage.strides)
    return storage.same_lanes and all(s is not None and (s <= stride or s >= stride * lanes) for s in rows)


def _idles(b: Builder, value: Value, lanes: Lanes) -> bool:
    """Tell whether a whole vector of the processor has no lane that takes part: where it keeps old values, LLVM computes no new ones."""
    idle = lanes.count - (lanes.active or lanes.count)
    return 8 * value.dtype.size_bytes * idle >= b.target.vector_bits


def _pads(storage: Registers, lanes: Lanes, mask: str, stride: int, offset: int) -> bool:
    """Tell whether all that the mask leaves out is what rows were lengthened by."""
    row = storage.buffer.shape[-1:]
    if stride != 1 or lanes.active is None or mask != lanes.mask or not row or not isinstance(row[0], Int):
        return False
    pitch = storage.strides[-2].constant if len(storage.strides) > 1 else storage.cell_starts[-1]
    return pitch is not None and offset % pitch + lanes.active >= row[0].value and offset % pitch + lanes.count <= pitch


def pitch(buffer: Alloc, block: tuple[Node, ...]) -> int | None:
    """Return how many elements a row takes where it is longer than its extent, from the vector accesses in the statements that follow:
    those that begin at multiples of their lanes."""
    shape = buffer.buffer.shape
    extent = shape[-1] if shape else None
    if not isinstance(extent, Int) or extent.value < 2:
        return None
    wide = (*shape[:-1], Int(_WIDE))
    within = _around(block, buffer.buffer.name)
    pieces = {piece for node in block for piece in _pieces(node, buffer.buffer.name, wide, {}, None, within)}
    if not pieces or None in pieces:
        return None
    places = ((p[0] % _WIDE, p[1]) for p in pieces if p is not None)
    end = max((first + lanes for first, lanes in places if first < extent.value and first % lanes == 0), default=0)
    return end if extent.value < end < 2 * extent.value else None


_WIDE = 1 << 20
"""Longer than any row of registers."""


def cell_starts(buffer: Alloc, block: tuple[Node, ...], count: int) -> tuple[int, ...]:
    """Return where the cells begin, and `count` or a little more as the end, from the vector accesses in the statements that follow."""
    if count <= 1:
        return (0, max(count, 1))
    name, shape = buffer.buffer.name, buffer.buffer.shape
    within = _around(block, name)
    exact = _disjoint({piece for node in block for piece in _pieces(node, name, shape, {}, None, within)}, count)
    if exact is not None:
        return exact
    accesses = set(_vector_accesses(name, block, shape))
    at_multiples = [access for access in accesses if access.steps % access.lanes == 0] or accesses
    deepest = max((access.depth for access in at_multiples), default=0)
    size = max(gcd(*(n for access in at_multiples if access.depth == deepest for n in (access.lanes, access.steps))), 1)
    return tuple(range(0, -(-count // size) * size + 1, size))


def lane_count(extent: int) -> int:
    """Return the number of lanes used for a vector loop: the next power of two."""
    return 1 << (extent - 1).bit_length()


# ---------------------------------------------------------------- cells


def _place(b: Builder, storage: Registers, poly: Poly, scope: Scope) -> tuple[int, int]:
    """Return (distance between lanes, offset of the first one)."""
    stride = lane_stride(poly, scope.lanes, b)
    if stride is not None:
        base = poly if stride == 0 or scope.lanes is None else poly.plus(atom_poly(scope.lanes.atom), -stride)
        offset = base.constant
        if offset is not None and (stride == 0 or not storage.private_lanes):
            return stride, offset
    raise EmitError(f"`{storage.buffer.name}` is in registers, so its index must be a constant once unrolled; it is {poly!r}")


def _element(b: Builder, storage: Registers, cells: list[str], place: int) -> str:
    if not storage.has(place):
        return "poison"
    cell, lane = storage.find(place)
    if storage.size(cell) == 1:
        return cells[cell]
    return b.pure(f"extractelement {storage.type_of(cell)} {cells[cell]}, i64 {lane}")


def _put(b: Builder, storage: Registers, cells: list[str], place: int, value: Value) -> None:
    cell, lane = storage.find(place)
    if storage.size(cell) == 1:
        cells[cell] = value.text
    else:
        cells[cell] = b.pure(f"insertelement {storage.type_of(cell)} {cells[cell]}, {value.typed}, i64 {lane}")


def _gathered(b: Builder, storage: Registers, cells: list[str], places: list[int], active: int) -> str:
    """Return the elements at `places` as a vector, of which the first `active` count."""
    whole = _whole_cells(storage, places)
    if whole is not None:
        return joined(b, [cells[c] for c in whole], scalar_type(storage.kept), storage.size(whole[0]))
    near = _neighbouring_cells(storage, places, active)
    if near is not None:
        size, start = len(places), places[0] - storage.cell_starts[near[0]]
        kind = storage.type_of(near[0])
        order = ", ".join(f"i32 {start + lane}" if lane < active else "i32 poison" for lane in range(size))
        return b.pure(f"shufflevector {kind} {cells[near[0]]}, {kind} {cells[near[-1]]}, <{size} x i32> <{order}>")
    within = _cell_around(storage, places)
    if within is not None:
        order = ", ".join(f"i32 {place - storage.cell_starts[within]}" for place in places)
        return b.pure(
            f"shufflevector {storage.type_of(within)} {cells[within]}, {storage.type_of(within)} poison, <{len(places)} x i32> <{order}>"
        )
    text = "poison"
    element = scalar_type(storage.kept)
    for lane, place in enumerate(places):
        part = _element(b, storage, cells, place)
        if part != "poison":
            text = b.pure(f"insertelement {of_lanes(element, len(places))} {text}, {element} {part}, i64 {lane}")
    return text


def _scattered(b: Builder, storage: Registers, cells: list[str], places: list[int], value: Value) -> None:
    whole = _whole_cells(storage, places)
    if whole is not None and len(whole) == 1:
        cells[whole[0]] = value.text
        return
    if whole is not None:
        size = storage.size(whole[0])
        for i, cell in enumerate(whole):
            order = ", ".join(f"i32 {i * size + lane}" for lane in range(size))
            cells[cell] = b.pure(f"shufflevector {value.typed}, {value.type} poison, <{size} x i32> <{order}>")
        return
    if _neighbouring_cells(storage, places, len(places)) is not None:
        _shuffled_in(b, storage, cells, places, len(places), value)
        return
    within = _cell_around(storage, places)
    if within is not None:
        first, size, kind = places[0] - storage.cell_starts[within], storage.size(within), storage.type_of(within)
        lane_of = {first + lane: lane for lane in range(len(places))}
        widened = ", ".join(f"i32 {lane_of[j]}" if j in lane_of else "i32 poison" for j in range(size))
        wide = b.pure(f"shufflevector {value.typed}, {value.type} poison, <{size} x i32> <{widened}>")
        order = ", ".join(f"i32 {size + j if j in lane_of else j}" for j in range(size))
        cells[within] = b.pure(f"shufflevector {kind} {cells[within]}, {kind} {wide}, <{size} x i32> <{order}>")
        return
    for lane, place in enumerate(places):
        if storage.has(place):
            part = b.pure(f"extractelement {value.typed}, i64 {lane}")
            _put(b, storage, cells, place, Value(value.dtype, part))


def _shuffled_in(b: Builder, storage: Registers, cells: list[str], places: list[int], active: int, value: Value) -> None:
    """Make the first `active` lanes of `value` the elements at `places`, which lie in one cell or two."""
    near = _neighbouring_cells(storage, places, active)
    assert near is not None
    size = len(places)
    for cell in near:
        lane_of = {places[lane] - storage.cell_starts[cell]: lane for lane in range(active)}
        order = ", ".join(f"i32 {size + lane_of[j] if j in lane_of else j}" for j in range(size))
        kind = storage.type_of(cell)
        cells[cell] = b.pure(f"shufflevector {kind} {cells[cell]}, {value.typed}, <{size} x i32> <{order}>")


def _neighbouring_cells(storage: Registers, places: list[int], active: int) -> list[int] | None:
    """Return the cell or two in which the first `active` of `places` lie, if these follow each other and the cells have as many elements
    as there are places."""
    first, count = places[0], len(places)
    if count == 1 or places != list(range(first, first + count)) or not (storage.has(first) and storage.has(first + active - 1)):
        return None
    near = sorted({storage.find(p)[0] for p in (first, first + active - 1)})
    return near if near[-1] - near[0] <= 1 and all(storage.size(c) == count for c in near) else None


def _whole_cells(storage: Registers, places: list[int]) -> list[int] | None:
    """Return the cells that `places` are, in order, or None when they are not whole cells of one size."""
    first, count = places[0], len(places)
    if count == 1 or not storage.has(first) or places != list(range(first, first + count)):
        return None
    cell, lane = storage.find(first)
    size = storage.size(cell)
    if lane or size == 1 or count % size:
        return None
    whole = list(range(cell, cell + count // size))
    fits = whole[-1] + 1 < len(storage.cell_starts) and all(storage.size(c) == size for c in whole)
    return whole if fits else None


def _cell_around(storage: Registers, places: list[int]) -> int | None:
    """Return the cell that all of `places` lie in, if these follow each other and it has more elements."""
    first, count = places[0], len(places)
    if places != list(range(first, first + count)) or not (storage.has(first) and storage.has(first + count - 1)):
        return None
    cell = storage.find(first)[0]
    return cell if cell == storage.find(first + count - 1)[0] and storage.size(cell) > count > 1 else None


def _masked(b: Builder, value: Value, old: str, scope: Scope) -> str:
    if scope.mask is None or old == "poison":
        return value.text
    mask = held(b, scope.mask, 8 * value.dtype.size_bytes, value.lanes)
    return b.pure(f"select <{value.lanes} x i1> {mask}, {value.typed}, {value.type} {old}")


def _guarded(b: Builder, value: Value, storage: Registers, cells: list[str], place: int, scope: Scope) -> Value:
    if scope.guard is None:
        return value
    old = _element(b, storage, cells, place)
    return Value(value.dtype, b.pure(f"select i1 {scope.guard}, {value.typed}, {value.type} {old}"))


# ---------------------------------------------------------------- choosing the cells


def _disjoint(pieces: set[tuple[int, int] | None], count: int) -> tuple[int, ...] | None:
    """Return the starts of cells of which each piece (its first element and length) is one, or None when pieces overlap."""
    if not pieces or None in pieces:
        return None
    found, end = [0], 0
    for first, lanes in sorted(p for p in pieces if p is not None and p[0] < count):
        if first < end or first + lanes > count:
            return None
        found += [*range(end + 1, first + 1), first + lanes]
        end = first + lanes
    return (*found, *range(end + 1, count + 1))


def _pieces(
    node: Node, name: str, shape: tuple[Index, ...], known: dict[str, int], vector: tuple[str, int] | None, within: frozenset[int]
) -> Iterator[tuple[int, int] | None]:
    """Yield (offset of the first lane, lanes) for every access to `name` in a vector loop; None for one whose place is not constant. Of
    loops that end where sizes or other loops say, that is every copy that there can be. `within`: what `_around` tells of `name`."""
    if id(node) not in within:
        return
    match node:
        case For(var, lo, hi, body, kind, extent):
            first, last = _constant(lo, known), _constant(hi, known)
            if kind == "unroll" and first is not None and last is None and extent is not None:
                last = first + extent
            if kind == "unroll" and first is not None and last is not None:
                for copy in range(first, last):
                    for statement in body:
                        yield from _pieces(statement, name, shape, {**known, var: copy}, vector, within)
                return
            if kind == "vector" and extent is not None and vector is None:
                trips = extent if first is None or last is None else min(extent, last - first)
                if trips < 1:
                    return
                known, vector = {**known, var: first if first is not None else 0}, (var, lane_count(trips))
            else:
                known = {k: v for k, v in known.items() if k != var}
        case Load(buffer, index) | Store(buffer, index) if buffer == name and vector is not None:
            yield _piece(index, shape, known, vector)
        case _:
            pass
    for child in children(node):
        yield from _pieces(child, name, shape, known, vector, within)


def _around(block: tuple[Node, ...], name: str) -> frozenset[int]:
    """Return the identities of the nodes of a block in or below which `name` is accessed: copies of loops go through no others."""
    found: set[int] = set()

    def accesses(node: Node) -> bool:
        below = [accesses(child) for child in children(node)]
        if any(below) or (isinstance(node, Load | Store) and node.buffer == name):
            found.add(id(node))
        return id(node) in found

    for node in block:
        accesses(node)
    return frozenset(found)


def _piece(index: tuple[Index, ...], shape: tuple[Index, ...], known: dict[str, int], vector: tuple[str, int]) -> tuple[int, int] | None:
    here = _offset(index, shape, known)
    after = _offset(index, shape, {**known, vector[0]: known[vector[0]] + 1})
    if here is None or after is None or after - here not in (0, 1):
        return None
    return here, vector[1] if after > here else 1


def _offset(index: tuple[Index, ...], shape: tuple[Index, ...], known: dict[str, int]) -> int | None:
    offset = 0
    for i, extent in zip(index, shape, strict=True):
        here, size = _constant(i, known), _constant(extent, known)
        if here is None or size is None:
            return None
        offset = offset * size + here
    return offset


def _constant(index: Index | Expr, known: dict[str, int]) -> int | None:
    """Return the value of an index whose names are known."""
    match index:
        case Int(value):
            return value
        case Var(name):
            return known.get(name)
        case Add(lhs, rhs) | Mul(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            left, right = _constant(lhs, known), _constant(rhs, known)
            if left is None or right is None:
                return None
            match index:
                case Add():
                    return left + right
                case Mul():
                    return left * right
                case Min():
                    return min(left, right)
                case _:
                    return max(left, right)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Access:
    """Neighbouring `lanes`; `steps`: what the address of the first is a multiple of, `depth`: how many loops run around it."""

    lanes: int
    steps: int
    depth: int


def _vector_accesses(name: str, block: tuple[Node, ...], shape: tuple[Index, ...]) -> Iterator[_Access]:
    """Yield every access to `name` with neighbouring lanes."""
    for node in block:
        yield from _accesses_below(node, name, shape, {}, None, 0)


def _accesses_below(
    node: Node, name: str, shape: tuple[Index, ...], known: dict[str, Poly], vector: tuple[str, int] | None, depth: int
) -> Iterator[_Access]:
    match node:
        case For(var, lo, hi, _, kind, extent):
            low = _poly(lo, known)
            known = {**known, var: atom_poly(var) + low if low is not None and low.constant is not None else atom_poly(var)}
            if kind == "vector" and extent is not None:
                vector = (var, lane_count(_trips(lo, hi, extent, known)))
            depth += kind not in ("vector", "unroll")
        case Load(buffer, index) | Store(buffer, index) if buffer == name and vector is not None:
            found = _neighbours(index, shape, known, vector)
            if found is not None:
                yield _Access(*found, depth)
        case _:
            pass
    for child in children(node):
        yield from _accesses_below(child, name, shape, known, vector, depth)


def _trips(lo: Index, hi: Index, extent: int, known: dict[str, Poly]) -> int:
    first, last = _poly(lo, known), _poly(hi, known)
    count = None if first is None or last is None else (last - first).constant
    return extent if count is None else max(1, min(extent, count))


def _neighbours(
    index: tuple[Index, ...], shape: tuple[Index, ...], known: dict[str, Poly], vector: tuple[str, int]
) -> tuple[int, int] | None:
    address = ZERO
    for i, extent in zip(index, shape, strict=True):
        here, size = _poly(i, known), _poly(extent, known)
        if here is None or size is None:
            return None
        address = address * size + here
    parts = address.split(vector[0])
    if parts is None or parts[0] != ONE:
        return None
    return vector[1], parts[1].multiple_of()


def _poly(index: Index | Expr, known: dict[str, Poly]) -> Poly | None:
    match index:
        case Int(value):
            return number(value)
        case Var(name):
            return known.get(name) or atom_poly(name)
        case Add(lhs, rhs) | Mul(lhs, rhs):
            left, right = _poly(lhs, known), _poly(rhs, known)
            if left is None or right is None:
                return None
            return left + right if isinstance(index, Add) else left * right
        case _:
            return None
