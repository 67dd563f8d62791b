"""Reads and writes of memory, by the distance between neighbouring lanes.

    0            one scalar, shared by all lanes
    1, -1        one vector access (reversed)
    2 to 8       as many vector reads, their elements picked by shuffles; of some lanes alone from the first to the last of them or, where
                 these are not known and the vectors serve enough lanes each, under the mask of the lanes, spread
    any, known   vector accesses, their elements picked by shuffles, where all lie within few vectors
    data         of a row of few elements, which all lanes share, the row in registers, whose elements are picked there; else a gather of
                 what vectors of places name, where the processor has a fast instruction for elements of this width
    otherwise    one scalar access per lane, or a masked gather or scatter

A masked access touches only the lanes in the mask, but for a read without an instruction for it: there LLVM would branch around each lane,
and lanes that are not in the mask read an element that the buffer has, instead. An access that all lanes share, under a condition that
may be false, goes to a spare place instead of the buffer, so that nothing outside the buffer is touched and no branch is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TypeAlias

from codegen.dtypes import DType, u32
from codegen.llvm.addresses import (
    alignment,
    depth_of,
    first_place,
    guarded,
    lane_distance,
    lane_pointer,
    lane_stride,
    pointer_to,
    pointers_of,
    splat_of,
    vector_index,
)
from codegen.llvm.builder import Builder
from codegen.llvm.convert import from_memory, to_memory
from codegen.llvm.emitted import LaneReads
from codegen.llvm.facts import Poly
from codegen.llvm.held import Held
from codegen.llvm.interleave import MOST_ELEMENTS, Interleaved, Part, in_rows
from codegen.llvm.masked_accesses import kept_apart, masked_gather, masked_load, masked_scatter, masked_store, taking_part
from codegen.llvm.masks import first_lanes, known_lanes, lanes_between, masks_around, positive
from codegen.llvm.register_transpose import Copies, columns_together, transpose
from codegen.llvm.state import EmitError, Memory, Scope, State
from codegen.llvm.tables import from_table
from codegen.llvm.values import Value, memory_type, of_lanes
from codegen.loops.nodes import Int
from codegen.polynomials import ONE, ZERO, number

LANES_OF_A_STRETCH = 4
"""How many lanes each vector serves at least, on the average, where elements are picked from more than two: one by one, lanes take a load
and an insertion each, a vector a load and a shuffle."""
GATHERED_BYTES = (4, 8)
"""Of elements that processors gather, where they do (`Target.gathers`)."""


def lane_reads(b: Builder, dtype: DType, poly: Poly, scope: Scope) -> LaneReads | None:
    """Return how a vector is read whose elements are no neighbours; None for one whose elements are, and for what all lanes share."""
    stride = lane_stride(poly, scope.lanes, b)
    if stride in (0, 1, -1):
        return None
    if stride is not None and 2 <= stride <= MOST_ELEMENTS and (_ends(scope) is not None or _is_spread(b, dtype, stride, scope)):
        return "strided"
    is_gathered = b.target.gathers and dtype.size_bytes in GATHERED_BYTES and lane_distance(poly, scope.lanes, b) is None
    return "gathered" if is_gathered else "lanes"


def _is_spread(b: Builder, dtype: DType, stride: int, scope: Scope) -> bool:
    """Tell whether lanes of a mask that is not known are read as vectors under that mask, spread: by instructions that the processor has,
    and by fewer than the lanes take one by one."""
    is_loaded = dtype.size_bytes in b.target.masked_bytes
    return is_loaded and scope.lanes is not None and stride * LANES_OF_A_STRETCH <= scope.lanes.count


def takes_first_lanes(scope: Scope) -> bool:
    """Tell whether the lanes that take part are the first ones, all of them or as many as the vector loop around has iterations."""
    return scope.lanes is not None and scope.mask in (None, scope.lanes.mask)


def _ends(scope: Scope) -> tuple[int, Poly] | None:
    """Return the first lane that takes part and the number of the one behind the last, or None where masks do not tell."""
    lanes, mask = scope.lanes, scope.mask
    assert lanes is not None
    if mask == lanes.mask and lanes.length is not None:
        return 0, lanes.length
    known = known_lanes(mask, lanes.count)
    if known is None or not any(known):
        return None
    return known.index(True), number(lanes.count - known[::-1].index(True))


Beside: TypeAlias = Callable[[], tuple[int, int]]
"""Tells how many elements before and behind the one that a lane reads are surely read in that lane, too."""


def nothing_beside() -> tuple[int, int]:
    """Return what is read beside an element that no copy of a loop reads."""
    return 0, 0


def load(state: State, memory: Memory, index: tuple[Poly, ...], scope: Scope, beside: Beside = nothing_beside) -> Value:
    """Return the element at `index` of the buffer, or one element per lane."""
    elements, poly = _elements(state.builder, memory, index, scope), memory.place(index)
    # What was read or written whatever holds is there under any condition, and what more lanes took part in is there for some of them.
    more = masks_around(state.builder, scope.mask) if elements.condition[1] is None else ()
    wider = (replace(elements, condition=(mask, *elements.condition[1:])) for mask in more)
    found = state.builder.held(memory.uid, elements, replace(elements, condition=ALWAYS), *wider)
    if found is not None:
        return _remembered(memory.dtype, found)
    value = from_table(state, memory, index, scope) or _load(state, memory, poly, scope, beside)
    state.builder.keep(memory.uid, elements, f"{value.lanes} {value.text}")
    return value


Condition: TypeAlias = tuple[str | None, str | None, str | None]
ALWAYS: Condition = (None, None, None)


def _condition(scope: Scope) -> Condition:
    return scope.mask, scope.guard, scope.vector_guard


def _elements(b: Builder, memory: Memory, index: tuple[Poly, ...], scope: Scope) -> Held:
    """Return the elements that the one at `index` is, or one per lane, and under which condition they are asked for."""
    name, lanes, atoms = memory.buffer.name, scope.lanes, {a for place in index for a in place.atoms()}
    if lanes is None or not any(a == lanes.atom or b.facts.atoms[a].lanes for a in atoms):
        return Held(name, index, 1, 0, _condition(scope))
    condition = (scope.mask, None, scope.vector_guard)  # lanes are read and written under masks, whatever they share
    if lanes.atom not in atoms:
        return Held(name, index, 1, 0, condition)
    along = index[-1].split(lanes.atom)
    if along is None or along[0] != ONE or any(lanes.atom in place.atoms() for place in index[:-1]):
        return Held(name, index, None, lanes.count, condition)
    return Held(name, (*index[:-1], along[1]), lanes.count, lanes.count, condition)


def load_group(state: State, memory: Memory, poly: Poly, count: int, scope: Scope) -> Value:
    """Return `count` elements from `poly` on, next to each other in 32 bits, as one number, or one per lane."""
    key = f"group {memory.uid}.{state.versions.get(memory.uid, 0)} {sorted(poly.terms.items())} {_condition(scope)}"
    found = state.builder.remembered(key)
    if found is not None:
        return _remembered(u32, found)
    value = _load_group(state.builder, memory, poly, count, scope)
    state.builder.region.memo[key] = f"{value.lanes} {value.text}"
    return value


def load_transposed(state: State, memory: Memory, poly: Poly, scope: Scope, copies: Copies, is_needed: Callable[[], bool]) -> Value | None:
    """Return one element per lane for a copy, from element `poly` on: all columns, one for each of the copies, are loaded at once, by rows,
    those of lanes that take part; a few at a time, under a mask, where it is open how many copies run. Where registers do not hold them
    yet, None unless `is_needed` says that every column is, and where there are no loads under masks."""
    b, lanes, size = state.builder, scope.lanes, memory.dtype.size_bytes
    assert lanes is not None
    parts = poly.split(lanes.atom)
    assert parts is not None
    columns = copies.count if copies.limit is None else columns_together(size, lanes.count, copies.count)
    column = copies.step // columns * columns
    places = [sorted(part.terms.items()) for part in (*parts, copies.limit or ZERO)]
    key = f"columns {column} {columns} {memory.uid}.{state.versions.get(memory.uid, 0)} {places} {scope.mask}"
    found = b.remembered(key)
    if found is None:
        if not is_needed() or (copies.limit is not None and size not in b.target.masked_bytes):
            return None
        element = memory_type(memory.dtype)
        mask = None if copies.limit is None else first_lanes(b, copies.limit - number(column), columns)

        first, between = pointer_to(b, memory, parts[1] + number(column)), parts[0]
        if between.constant is None:
            # LLVM takes each row for a pointer of its own, of which it keeps more in each loop around than there are registers.
            first = b.pure(f"freeze ptr {first}")

        def piece(row: int, start: int, length: int) -> str:
            pointer = b.pure(f"getelementptr {element}, ptr {first}, i64 {b.index(between.scaled(row))}")
            pointer = guarded(b, pointer, None if lanes.length is None else positive(b, lanes.length - number(row)))
            pointer = b.pure(f"getelementptr {element}, ptr {pointer}, i64 {start}") if start else pointer
            if mask is not None:
                return masked_load(b, element, pointer, alignment(memory, number(1)), mask, length)
            return b.op(f"load {of_lanes(element, length)}, ptr {pointer}, align {alignment(memory, number(1))}")

        found = " ".join(transpose(b, piece, element, size, lanes.count, columns))
        b.region.memo[key] = found
    return from_memory(b, memory.dtype, found.split(" ")[copies.step - column], lanes.count)


def load_picked(state: State, memory: Memory, poly: Poly, order: list[int], scope: Scope) -> Value:
    """Return for each lane the element that lies as far from element `poly` as `order` says, picked from vectors between elements that are
    read. Lanes beyond `order` take no part.

    order 0 9 1 10    [0 1]        [9 10]     -> 0 9 1 10
    """
    b, lanes = state.builder, scope.lanes
    assert lanes is not None
    key = f"picked {memory.uid}.{state.versions.get(memory.uid, 0)} {sorted(poly.terms.items())} {order} {scope.vector_guard}"
    found = state.builder.remembered(key)
    if found is not None:
        return _remembered(memory.dtype, found)
    element, count = memory_type(memory.dtype), lanes.count
    vector, text = of_lanes(element, count), "poison"
    for start, span in _stretches(order, count):
        place = poly + number(start)
        pointer, align = guarded(b, pointer_to(b, memory, place), scope.vector_guard), alignment(memory, place)
        if span == count:
            read = b.op(f"load {vector}, ptr {pointer}, align {align}")
        else:
            read = masked_load(b, element, pointer, align, first_lanes(b, number(span), count), count)
        inside = [count + at - start if start <= at < start + span else lane for lane, at in enumerate(order)]
        picks = ", ".join(f"i32 {inside[i]}" if i < len(inside) else "i32 poison" for i in range(count))
        text = b.pure(f"shufflevector {vector} {text}, {vector} {read}, <{count} x i32> <{picks}>")
    if vector == "<64 x i8>" and b.target.has("avx512vbmi"):
        # LLVM moves what is done to bytes before `vpermb` and behind it again, without end.
        text = kept_apart(b, element, text, count)
    value = from_memory(b, memory.dtype, text, count)
    b.region.memo[key] = f"{value.lanes} {value.text}"
    return value


def is_picked(order: list[int], lanes: int) -> bool:
    """Tell whether elements at these places are picked from vectors of so many lanes rather than read one by one."""
    return len(_stretches(order, lanes)) <= max(2, lanes // LANES_OF_A_STRETCH)


def _stretches(places: list[int], lanes: int) -> list[tuple[int, int]]:
    """Return the first element and the length of stretches of at most `lanes` elements that cover `places`, each from one to another."""
    found: list[tuple[int, int]] = []
    for place in sorted(set(places)):
        if found and place - found[-1][0] < lanes:
            found[-1] = (found[-1][0], place - found[-1][0] + 1)
        else:
            found.append((place, 1))
    return found


def store(state: State, memory: Memory, index: tuple[Poly, ...], value: Value, scope: Scope, stream: bool) -> None:
    """Write `value` to the element at `index`, or one value per lane to theirs."""
    b = state.builder
    elements, poly = _elements(b, memory, index, scope), memory.place(index)
    stride = lane_stride(poly, scope.lanes, b)
    state.note_change(memory.uid, elements)
    if stride == 0:
        if value.lanes:
            raise EmitError(f"the lanes write different values to one element of `{memory.buffer.name}`, and not as a reduction")
        _store_shared(b, memory, poly, value, scope)
        return
    assert scope.lanes is not None
    lanes = scope.lanes.count
    if value.lanes == 0:
        value = Value(value.dtype, splat_of(b, value, lanes), lanes)
    stored = to_memory(b, value)
    if stride in (1, -1):
        _store_contiguous(b, memory, poly, stored, scope, stride, stream)
    elif scope.interleaved is not None and scope.interleaved.takes(memory.uid, stride):
        length = scope.lanes.length if takes_first_lanes(scope) else None
        first = first_place(poly, scope.lanes, scope.interleaved.count)
        scope.interleaved.parts.append(Part(first, stored, lanes, scope.mask, length))
    elif scope.mask is None:
        for lane in range(lanes):
            _store_lane(b, memory, lane_pointer(b, memory, poly, scope.lanes, lane), stored, lane, lanes)
    else:
        element, pointers = memory_type(memory.dtype), pointers_of(b, memory, poly, scope.lanes)
        masked_scatter(b, element, pointers, alignment(memory, number(1)), stored, scope.mask, lanes)
    if stride == 1 and _condition(scope) == ALWAYS:
        b.keep(memory.uid, elements, f"{lanes} {value.text}")


def prefetch(state: State, memory: Memory, poly: Poly, scope: Scope, write: bool, locality: int) -> None:
    """Ask for the cache lines of the elements."""
    b = state.builder
    fn = b.declare("llvm.prefetch.p0", "void @(ptr, i32, i32, i32)")
    per_line = max(1, 64 // memory.dtype.size_bytes)
    stride = lane_stride(poly, scope.lanes, b)
    count = 1 if stride == 0 or scope.lanes is None else scope.lanes.count
    for lane in range(0, count, per_line if stride in (1, -1) else 1):
        pointer = lane_pointer(b, memory, poly, scope.lanes, lane) if scope.lanes else pointer_to(b, memory, poly)
        b.write(f"call void {fn}(ptr {pointer}, i32 {int(write)}, i32 {locality}, i32 1)")


# ---------------------------------------------------------------- reading


def _load(state: State, memory: Memory, poly: Poly, scope: Scope, beside: Beside) -> Value:
    b = state.builder
    stride = lane_stride(poly, scope.lanes, b)
    element = memory_type(memory.dtype)
    if stride == 0:
        early = scope.guard is None and scope.mask is None and b.loads_early(memory.uid, depth_of(b, memory, poly))
        pointer = guarded(b, pointer_to(b, memory, poly, early), scope.guard)
        text = b.read(f"load {element}, ptr {pointer}, align {alignment(memory, poly)}", early)
        return from_memory(b, memory.dtype, text, 0)
    assert scope.lanes is not None
    lanes, how = scope.lanes.count, lane_reads(b, memory.dtype, poly, scope)
    if stride in (1, -1):
        text = _load_contiguous(b, memory, poly, scope, stride)
    elif stride is not None and how == "strided":
        text = _load_strided(state, memory, poly, scope, stride, beside)
    elif how == "lanes" and scope.mask is None:
        text = "poison"
        for lane in range(lanes):
            pointer = guarded(b, lane_pointer(b, memory, poly, scope.lanes, lane), scope.vector_guard)
            part = b.op(f"load {element}, ptr {pointer}, align {alignment(memory, number(1))}")
            text = b.op(f"insertelement {of_lanes(element, lanes)} {text}, {element} {part}, i64 {lane}")
    elif how == "lanes" and (first := _first_element(memory, poly)) is not None:
        text = _load_lanes_of_mask(b, memory, poly, first, scope)
    else:
        text = _gather(b, memory, poly, scope)
    return from_memory(b, memory.dtype, text, lanes)


def _first_element(memory: Memory, poly: Poly) -> int | None:
    """Return the first element of a buffer that lies as far from its beginning as what is constant in a place, or the first of all where
    the buffer has none there; None where it may have no elements."""
    shape = memory.buffer.shape
    if not all(isinstance(extent, Int) and extent.value > 0 for extent in shape):
        return None
    offset = poly.terms.get((), 0)
    return offset if 0 <= offset < prod(extent.value for extent in shape if isinstance(extent, Int)) else 0


def _load_lanes_of_mask(b: Builder, memory: Memory, poly: Poly, first: int, scope: Scope) -> str:
    """Return an element for each lane of a mask, loaded one by one, and zeros in the others, for which the element at `first` is loaded.
    Elements that lie some apart, as the numbers of a point, are loaded from one address for each lane."""
    assert scope.lanes is not None and scope.mask is not None
    lanes, element = scope.lanes.count, memory_type(memory.dtype)
    mask = taking_part(b, scope.mask, scope.vector_guard, lanes)
    vector, places = of_lanes(element, lanes), of_lanes("i64", lanes)
    place = vector_index(b, poly - number(first), scope.lanes)
    inside = b.pure(f"select {of_lanes('i1', lanes)} {mask}, {places} {place}, {places} zeroinitializer")
    text = "poison"
    for lane in range(lanes):
        here = b.pure(f"extractelement {places} {inside}, i64 {lane}")
        row = b.pure(f"getelementptr {element}, ptr {memory.pointer}, i64 {here}")
        pointer = b.pure(f"getelementptr {element}, ptr {row}, i64 {first}") if first else row
        part = b.op(f"load {element}, ptr {pointer}, align {alignment(memory, number(1))}")
        text = b.op(f"insertelement {vector} {text}, {element} {part}, i64 {lane}")
    return b.pure(f"select {of_lanes('i1', lanes)} {mask}, {vector} {text}, {vector} zeroinitializer")


def _load_contiguous(b: Builder, memory: Memory, poly: Poly, scope: Scope, stride: int) -> str:
    assert scope.lanes is not None
    lanes = scope.lanes.count
    element = memory_type(memory.dtype)
    vector = of_lanes(element, lanes)
    first = first_place(poly, scope.lanes, stride)
    conditional = scope.mask is not None or scope.guard is not None or scope.vector_guard is not None
    early = not conditional and b.loads_early(memory.uid, depth_of(b, memory, first))
    pointer = guarded(b, pointer_to(b, memory, first, early), scope.vector_guard)
    align = alignment(memory, first)
    if scope.mask is None:
        text = b.read(f"load {vector}, ptr {pointer}, align {align}", early)
    else:
        mask = scope.mask if stride == 1 else _reversed(b, "i1", scope.mask, lanes)
        text = masked_load(b, element, pointer, align, mask, lanes)
    return text if stride == 1 else _reversed(b, element, text, lanes)


def _load_group(b: Builder, memory: Memory, poly: Poly, count: int, scope: Scope) -> Value:
    stride = lane_stride(poly, scope.lanes, b)
    if stride == 0:
        early = scope.guard is None and scope.mask is None and b.loads_early(memory.uid, depth_of(b, memory, poly))
        pointer = guarded(b, pointer_to(b, memory, poly, early), scope.guard)
        return Value(u32, b.read(f"load i32, ptr {pointer}, align {alignment(memory, poly)}", early))
    assert scope.lanes is not None
    lanes = scope.lanes.count
    vector = of_lanes("i32", lanes)
    if stride == count:
        parts = poly.split(scope.lanes.atom)
        assert parts is not None
        first = parts[1]
        conditional = scope.mask is not None or scope.guard is not None or scope.vector_guard is not None
        early = not conditional and b.loads_early(memory.uid, depth_of(b, memory, first))
        pointer = guarded(b, pointer_to(b, memory, first, early), scope.vector_guard)
        align = alignment(memory, first)
        if scope.mask is None:
            return Value(u32, b.read(f"load {vector}, ptr {pointer}, align {align}", early), lanes)
        return Value(u32, masked_load(b, "i32", pointer, align, scope.mask, lanes), lanes)
    align = alignment(memory, number(1))
    if scope.mask is not None:
        pointers = pointers_of(b, memory, poly, scope.lanes)
        mask = taking_part(b, scope.mask, scope.vector_guard, lanes)
        return Value(u32, masked_gather(b, "i32", pointers, align, mask, lanes), lanes)
    text = "poison"
    for lane in range(lanes):
        pointer = guarded(b, lane_pointer(b, memory, poly, scope.lanes, lane), scope.vector_guard)
        part = b.op(f"load i32, ptr {pointer}, align {align}")
        text = b.op(f"insertelement {vector} {text}, i32 {part}, i64 {lane}")
    return Value(u32, text, lanes)


def _load_strided(state: State, memory: Memory, poly: Poly, scope: Scope, stride: int, beside: Beside) -> str:
    """Return every `stride`-th element, from reads that lie between the first and the last of them, or in whole rows of so many elements
    where all of these may be read: then what others read from them is loaded once.

    stride 2, lanes 0 .. 3     [0 1 2 3]          -> 0 2        [0 1 2 3]          -> 0 2, 1 3
                                     [3 4 5 6]    -> 4 6                [4 5 6 7]  -> 4 6, 5 7
    """
    assert scope.lanes is not None
    b, lanes = state.builder, scope.lanes.count
    vector = of_lanes(memory_type(memory.dtype), lanes)
    first = first_place(poly, scope.lanes, stride)
    below, above = beside() if scope.mask == scope.lanes.mask else nothing_beside()
    is_whole = below % stride + above >= stride - 1
    offset = below % stride if is_whole else _place_in_row(memory, first, stride)
    before, behind = (0, 1) if offset is None else (offset, stride - offset)
    ends = _ends(scope)
    picked = "poison"
    taken = 0
    for part in range(stride):
        start = part * (lanes - 1) if offset is None else part * lanes - offset
        if scope.mask is None:
            mask = None
        elif ends is None:
            mask = _spread(b, scope.mask, stride, start, lanes)
        else:
            least, end = ends[0] * stride - before, ends[1].scaled(stride) + number(behind - stride)
            mask = _between(b, least - start, end - number(start), lanes)
        read = _load_whole(state, memory, first + number(start), mask, scope)
        until = min(lanes, (start + lanes - 1) // stride + 1)
        order = [lane if lane < taken else lanes + lane * stride - start if lane < until else -1 for lane in range(lanes)]
        picks = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in order)
        picked = b.pure(f"shufflevector {vector} {picked}, {vector} {read}, <{lanes} x i32> <{picks}>")
        taken = until
    return picked


def _place_in_row(memory: Memory, first: Poly, elements: int) -> int | None:
    """Return which of so many elements `first` is, where rows of a tensor are made of whole stretches of these, none of which goes beyond
    it; None where they are not, or it is not known."""
    row = memory.buffer.shape[-1] if memory.buffer.shape else None
    known = isinstance(row, Int) and row.value % elements == 0 and all(not atoms or k % elements == 0 for atoms, k in first.terms.items())
    return first.terms.get((), 0) % elements if known else None


def _between(b: Builder, first: int, end: Poly, lanes: int) -> str:
    """Return the mask of the lanes from number `first` on whose number is less than `end`, a constant where `first` is more than 0."""
    return first_lanes(b, end, lanes) if first <= 0 or end.constant is None else lanes_between(first, end.constant, lanes)


def _spread(b: Builder, mask: str, stride: int, start: int, lanes: int) -> str:
    """Return the mask of elements from number `start` on, of which every `stride`-th is that of a lane, and all others take no part.

    stride 2, start 4     0 1 1 0     ->    1 - 0 -
    """
    places = [divmod(start + k, stride) for k in range(lanes)]
    picks = ", ".join(f"i32 {lane if left == 0 and 0 <= lane < lanes else lanes}" for lane, left in places)
    kind = f"<{lanes} x i1>"
    return b.pure(f"shufflevector {kind} {mask}, {kind} zeroinitializer, <{lanes} x i32> <{picks}>")


def _load_whole(state: State, memory: Memory, place: Poly, mask: str | None, scope: Scope) -> str:
    """Return a vector of neighbours, those of a mask, which is read once for all that is picked from it."""
    b, lanes = state.builder, scope.lanes
    assert lanes is not None
    element = memory_type(memory.dtype)
    vector = of_lanes(element, lanes.count)
    key = f"row {memory.uid}.{state.versions.get(memory.uid, 0)} {sorted(place.terms.items())} {vector} {mask} {scope.vector_guard}"
    found = b.remembered(key)
    if found is None:
        pointer = guarded(b, pointer_to(b, memory, place), scope.vector_guard)
        align = alignment(memory, place)
        if mask is None:
            found = b.op(f"load {vector}, ptr {pointer}, align {align}")
        else:
            found = masked_load(b, element, pointer, align, mask, lanes.count)
        b.region.memo[key] = found
    return found


def _gather(b: Builder, memory: Memory, poly: Poly, scope: Scope) -> str:
    assert scope.lanes is not None
    lanes, pointers = scope.lanes.count, pointers_of(b, memory, poly, scope.lanes)
    mask = taking_part(b, scope.mask or "splat (i1 true)", scope.vector_guard, lanes)
    return masked_gather(b, memory_type(memory.dtype), pointers, alignment(memory, number(1)), mask, lanes)


# ---------------------------------------------------------------- writing


def _store_shared(b: Builder, memory: Memory, poly: Poly, value: Value, scope: Scope) -> None:
    pointer = pointer_to(b, memory, poly)
    if scope.guard is not None:
        spare = "%tl.sink"
        line = f"  {spare} = alloca i64, align 8"
        if line not in b.prologue:
            b.prologue.append(line)
        pointer = b.pure(f"select i1 {scope.guard}, ptr {pointer}, ptr {spare}")
    b.write(f"store {memory_type(memory.dtype)} {to_memory(b, value)}, ptr {pointer}, align {alignment(memory, poly)}")


def _store_contiguous(b: Builder, memory: Memory, poly: Poly, stored: str, scope: Scope, stride: int, stream: bool) -> None:
    assert scope.lanes is not None
    lanes = scope.lanes.count
    element = memory_type(memory.dtype)
    first = first_place(poly, scope.lanes, stride)
    mask = scope.mask
    if stride == -1:
        stored = _reversed(b, element, stored, lanes)
        mask = None if mask is None else _reversed(b, "i1", mask, lanes)
    _store_vector(b, memory, first, stored, mask, lanes, stream)


def _store_vector(b: Builder, memory: Memory, first: Poly, stored: str, mask: str | None, lanes: int, stream: bool = False) -> None:
    """Write the lanes of a mask, or all, to neighbours from element `first` on."""
    element = memory_type(memory.dtype)
    vector, pointer, align = of_lanes(element, lanes), pointer_to(b, memory, first), alignment(memory, first)
    if mask is None:
        hint = ", !nontemporal !1" if stream and align % (lanes * memory.dtype.size_bytes) == 0 else ""
        b.write(f"store {vector} {stored}, ptr {pointer}, align {align}{hint}")
        return
    masked_store(b, element, pointer, align, stored, mask, lanes)


def store_rows(b: Builder, memory: Memory, rows: Interleaved) -> None:
    """Store what the copies of an unrolled loop have left: whole rows, or each copy's element of the rows where these are not whole."""
    if not rows.parts:
        return
    masks = rows.masks(b)
    if masks is None:
        for part in rows.parts:
            _store_lanes(b, memory, part, rows.count)
        return
    element, start, lanes = memory_type(memory.dtype), rows.parts[0].first, rows.parts[0].lanes
    for k, (text, mask) in enumerate(zip(in_rows(b, [part.text for part in rows.parts], element, lanes), masks, strict=True)):
        place = start + number(k * lanes)
        _store_vector(b, memory, place, text, mask, lanes)


def _store_lanes(b: Builder, memory: Memory, part: Part, stride: int) -> None:
    known = known_lanes(part.mask, part.lanes)
    places = [part.first + number(stride * lane) for lane in range(part.lanes)]
    if known is None and part.mask is not None:
        vector, pointers = of_lanes("ptr", part.lanes), "poison"
        for lane, place in enumerate(places):
            pointers = b.pure(f"insertelement {vector} {pointers}, ptr {pointer_to(b, memory, place)}, i64 {lane}")
        masked_scatter(b, memory_type(memory.dtype), pointers, alignment(memory, number(1)), part.text, part.mask, part.lanes)
        return
    for lane, place in enumerate(places):
        if known is not None and known[lane]:
            _store_lane(b, memory, pointer_to(b, memory, place), part.text, lane, part.lanes)


def _store_lane(b: Builder, memory: Memory, pointer: str, stored: str, lane: int, lanes: int) -> None:
    """Write one lane of a vector to `pointer`."""
    element = memory_type(memory.dtype)
    part = b.pure(f"extractelement {of_lanes(element, lanes)} {stored}, i64 {lane}")
    b.write(f"store {element} {part}, ptr {pointer}, align {alignment(memory, number(1))}")


def _reversed(b: Builder, element: str, text: str, lanes: int) -> str:
    vector = of_lanes(element, lanes)
    order = "<" + ", ".join(f"i32 {i}" for i in reversed(range(lanes))) + ">"
    return b.pure(f"shufflevector {vector} {text}, {vector} poison, <{lanes} x i32> {order}")


def _remembered(dtype: DType, memo: str) -> Value:
    lanes, text = memo.split(" ", 1)
    return Value(dtype, text, int(lanes))
