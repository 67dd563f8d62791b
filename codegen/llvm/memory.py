"""Reads and writes of memory, by the distance between neighbouring lanes.

    0            one scalar, shared by all lanes
    1, -1        one vector access (reversed)
    2 to 8       as many vector reads, their elements picked by shuffles; of some lanes alone from the first to the last of them or, where
                 these are not known and the vectors serve enough lanes each, under the mask of the lanes, spread
    any, known   vector accesses, their elements picked by shuffles, where all lie within few vectors
    data         of a row of few elements, which all lanes share, the row in registers, whose elements are picked there; else a gather of
                 what vectors of places name, where the processor has a fast instruction for elements of this width
    otherwise    one scalar access per lane, or a masked gather or scatter

A masked access touches only the lanes in the mask. An access that all lanes share, under a condition that may be false, goes to a spare
place instead of the buffer, so that nothing outside the buffer is touched and no branch is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd
from typing import TypeAlias

from codegen import polynomials
from codegen.dtypes import DType, bool_, i64, u32
from codegen.llvm.arithmetic import byte_text
from codegen.llvm.builder import Builder, Held
from codegen.llvm.convert import cast
from codegen.llvm.emitted import LaneReads
from codegen.llvm.facts import Atom, Poly
from codegen.llvm.interleave import MOST_ELEMENTS, Interleaved, Part, in_rows
from codegen.llvm.masks import first_lanes, held, known_lanes, lanes_between, positive
from codegen.llvm.register_transpose import joined, transpose
from codegen.llvm.state import EmitError, Lanes, Memory, Scope, State
from codegen.llvm.values import Value, memory_type, of_lanes
from codegen.loops.nodes import Int
from codegen.polynomials import ONE, ZERO, number

SPARE_BYTES = 2048
SPARE = f"@tl.spare = internal constant [{SPARE_BYTES} x i8] zeroinitializer, align 64"

LANES_OF_A_STRETCH = 4
"""How many lanes each vector serves at least, on the average, where elements are picked from more than two: one by one, lanes take a load
and an insertion each, a vector a load and a shuffle."""
GATHERED_BYTES = (4, 8)
"""Of elements that processors gather, where they do (`Target.gathers`)."""


def lane_stride(poly: Poly, lanes: Lanes | None, b: Builder) -> int | None:
    """Return the distance between lanes: 0 when they share the address, None when it is no constant."""
    distance = _distance(poly, lanes, b)
    return None if distance is None else distance.constant


def has_rows(poly: Poly, lanes: Lanes, b: Builder) -> bool:
    """Tell whether lanes lie in rows of at least as many elements: at one distance, a constant or what sizes decide."""
    distance = _distance(poly, lanes, b)
    return distance is not None and (distance.constant is None or abs(distance.constant) >= lanes.count)


def _distance(poly: Poly, lanes: Lanes | None, b: Builder) -> Poly | None:
    """Return the distance between lanes, or None when it is not the same for all neighbours."""
    if lanes is None:
        return ZERO
    atoms = poly.atoms()
    if any(b.facts.atoms[a].lanes for a in atoms if a != lanes.atom):
        return None
    parts = poly.split(lanes.atom)
    return None if parts is None else parts[0]


def lane_reads(b: Builder, dtype: DType, poly: Poly, scope: Scope) -> LaneReads | None:
    """Return how a vector is read whose elements are no neighbours; None for one whose elements are, and for what all lanes share."""
    stride = lane_stride(poly, scope.lanes, b)
    if stride in (0, 1, -1):
        return None
    if stride is not None and 2 <= stride <= MOST_ELEMENTS and (_ends(scope) is not None or _is_spread(b, dtype, stride, scope)):
        return "strided"
    is_gathered = b.target.gathers and dtype.size_bytes in GATHERED_BYTES and _distance(poly, scope.lanes, b) is None
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
    elements, poly = _elements(memory, index, scope), memory.place(index)
    # What was read or written whatever holds is there under any condition.
    found = state.builder.held(memory.uid, elements, replace(elements, condition=ALWAYS))
    if found is not None:
        return _remembered(memory.dtype, found)
    value = _from_table(state, memory, index, scope) or _load(state, memory, poly, scope, beside)
    state.builder.keep(memory.uid, elements, f"{value.lanes} {value.text}")
    return value


Condition: TypeAlias = tuple[str | None, str | None, str | None]
ALWAYS: Condition = (None, None, None)


def _condition(scope: Scope) -> Condition:
    return scope.mask, scope.guard, scope.vector_guard


def _elements(memory: Memory, index: tuple[Poly, ...], scope: Scope) -> Held:
    """Return the elements that the one at `index` is, or one per lane, and under which condition they are asked for."""
    name, lanes, condition = memory.buffer.name, scope.lanes, _condition(scope)
    if lanes is None or not any(lanes.atom in place.atoms() for place in index):
        return Held(name, index, 1, 0, condition)
    along = index[-1].split(lanes.atom)
    if along is None or along[0] != ONE or any(lanes.atom in place.atoms() for place in index[:-1]):
        return Held(name, index, None, lanes.count, condition)
    return Held(name, (*index[:-1], along[1]), lanes.count, lanes.count, condition)


def _found(b: Builder, *keys: str) -> str | None:
    """Return what is remembered under the first of some keys, in the regions around."""
    return next((region.memo[key] for key in keys for region in b.regions if key in region.memo), None)


def load_group(state: State, memory: Memory, poly: Poly, count: int, scope: Scope) -> Value:
    """Return `count` elements from `poly` on, next to each other in 32 bits, as one number, or one per lane."""
    key = f"group {memory.uid}.{state.versions.get(memory.uid, 0)} {sorted(poly.terms.items())} {_condition(scope)}"
    found = _found(state.builder, key)
    if found is not None:
        return _remembered(u32, found)
    value = _load_group(state.builder, memory, poly, count, scope)
    state.builder.region.memo[key] = f"{value.lanes} {value.text}"
    return value


def load_transposed(state: State, memory: Memory, poly: Poly, scope: Scope, column: int, is_needed: Callable[[], bool]) -> Value | None:
    """Return one element per lane, `column` beyond element `poly`: all columns of the square are loaded at once, by rows, those of lanes
    that take part. Where registers do not hold the square yet, None unless `is_needed` says that every column of it is."""
    b, lanes = state.builder, scope.lanes
    assert lanes is not None
    parts = poly.split(lanes.atom)
    assert parts is not None
    places = [sorted(part.terms.items()) for part in parts]
    key = f"square {memory.uid}.{state.versions.get(memory.uid, 0)} {places} {scope.mask}"
    found = _found(b, key)
    if found is None:
        if not is_needed():
            return None
        element = memory_type(memory.dtype)

        first, between = pointer_to(b, memory, parts[1]), parts[0]
        if between.constant is None:
            # LLVM takes each row for a pointer of its own, of which it keeps more in each loop around than there are registers.
            first = b.pure(f"freeze ptr {first}")

        def piece(row: int, start: int, length: int) -> str:
            pointer = b.pure(f"getelementptr {element}, ptr {first}, i64 {b.index(between.scaled(row))}")
            pointer = _guarded(b, pointer, None if lanes.length is None else positive(b, lanes.length - number(row)))
            pointer = b.pure(f"getelementptr {element}, ptr {pointer}, i64 {start}") if start else pointer
            return b.op(f"load {of_lanes(element, length)}, ptr {pointer}, align {_align(memory, number(1))}")

        found = " ".join(transpose(b, piece, element, memory.dtype.size_bytes, lanes.count))
        b.region.memo[key] = found
    return _from_memory(b, memory.dtype, found.split(" ")[column], lanes.count)


def load_picked(state: State, memory: Memory, poly: Poly, order: list[int], scope: Scope) -> Value:
    """Return for each lane the element that lies as far from element `poly` as `order` says, picked from vectors between elements that are
    read. Lanes beyond `order` take no part.

    order 0 9 1 10    [0 1]        [9 10]     -> 0 9 1 10
    """
    b, lanes = state.builder, scope.lanes
    assert lanes is not None
    key = f"picked {memory.uid}.{state.versions.get(memory.uid, 0)} {sorted(poly.terms.items())} {order} {scope.vector_guard}"
    found = _found(state.builder, key)
    if found is not None:
        return _remembered(memory.dtype, found)
    element, count = memory_type(memory.dtype), lanes.count
    vector, text = of_lanes(element, count), "poison"
    for start, span in _stretches(order, count):
        place = poly + number(start)
        pointer, align = _guarded(b, pointer_to(b, memory, place), scope.vector_guard), _align(memory, place)
        if span == count:
            read = b.op(f"load {vector}, ptr {pointer}, align {align}")
        else:
            read = _masked_load(b, element, pointer, align, first_lanes(b, number(span), count), count)
        inside = [count + at - start if start <= at < start + span else lane for lane, at in enumerate(order)]
        picks = ", ".join(f"i32 {inside[i]}" if i < len(inside) else "i32 poison" for i in range(count))
        text = b.pure(f"shufflevector {vector} {text}, {vector} {read}, <{count} x i32> <{picks}>")
    if vector == "<64 x i8>" and b.target.has("avx512vbmi"):
        # LLVM moves what is done to bytes before `vpermb` and behind it again, without end.
        text = _apart(b, element, text, count)
    value = _from_memory(b, memory.dtype, text, count)
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
    elements, poly = _elements(memory, index, scope), memory.place(index)
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
        value = Value(value.dtype, _splat(b, value, lanes), lanes)
    stored = _to_memory(b, value)
    if stride in (1, -1):
        _store_contiguous(b, memory, poly, stored, scope, stride, stream)
    elif scope.interleaved is not None and scope.interleaved.takes(memory.uid, stride):
        length = scope.lanes.length if takes_first_lanes(scope) else None
        first = _first(poly, scope.lanes, scope.interleaved.count)
        scope.interleaved.parts.append(Part(first, stored, lanes, scope.mask, length))
    elif scope.mask is None:
        for lane in range(lanes):
            _store_lane(b, memory, _lane_pointer(b, memory, poly, scope.lanes, lane), stored, lane, lanes)
    else:
        _scatter(b, memory, _pointers(b, memory, poly, scope.lanes), stored, scope.mask, lanes)
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
        pointer = _lane_pointer(b, memory, poly, scope.lanes, lane) if scope.lanes else pointer_to(b, memory, poly)
        b.write(f"call void {fn}(ptr {pointer}, i32 {int(write)}, i32 {locality}, i32 1)")


# ---------------------------------------------------------------- reading


def _load(state: State, memory: Memory, poly: Poly, scope: Scope, beside: Beside) -> Value:
    b = state.builder
    stride = lane_stride(poly, scope.lanes, b)
    element = memory_type(memory.dtype)
    if stride == 0:
        early = scope.guard is None and scope.mask is None and b.loads_early(memory.uid, _depth(b, memory, poly))
        pointer = _guarded(b, pointer_to(b, memory, poly, early), scope.guard)
        text = b.read(f"load {element}, ptr {pointer}, align {_align(memory, poly)}", early)
        return _from_memory(b, memory.dtype, text, 0)
    assert scope.lanes is not None
    lanes, how = scope.lanes.count, lane_reads(b, memory.dtype, poly, scope)
    if stride in (1, -1):
        text = _load_contiguous(b, memory, poly, scope, stride)
    elif stride is not None and how == "strided":
        text = _load_strided(state, memory, poly, scope, stride, beside)
    elif how == "lanes" and scope.mask is None:
        text = "poison"
        for lane in range(lanes):
            pointer = _guarded(b, _lane_pointer(b, memory, poly, scope.lanes, lane), scope.vector_guard)
            part = b.op(f"load {element}, ptr {pointer}, align {_align(memory, number(1))}")
            text = b.op(f"insertelement {of_lanes(element, lanes)} {text}, {element} {part}, i64 {lane}")
    else:
        text = _gather(b, memory, poly, scope)
    return _from_memory(b, memory.dtype, text, lanes)


def _load_contiguous(b: Builder, memory: Memory, poly: Poly, scope: Scope, stride: int) -> str:
    assert scope.lanes is not None
    lanes = scope.lanes.count
    element = memory_type(memory.dtype)
    vector = of_lanes(element, lanes)
    first = _first(poly, scope.lanes, stride)
    conditional = scope.mask is not None or scope.guard is not None or scope.vector_guard is not None
    early = not conditional and b.loads_early(memory.uid, _depth(b, memory, first))
    pointer = _guarded(b, pointer_to(b, memory, first, early), scope.vector_guard)
    align = _align(memory, first)
    if scope.mask is None:
        text = b.read(f"load {vector}, ptr {pointer}, align {align}", early)
    else:
        mask = scope.mask if stride == 1 else _reversed(b, "i1", scope.mask, lanes)
        text = _masked_load(b, element, pointer, align, mask, lanes)
    return text if stride == 1 else _reversed(b, element, text, lanes)


def _load_group(b: Builder, memory: Memory, poly: Poly, count: int, scope: Scope) -> Value:
    stride = lane_stride(poly, scope.lanes, b)
    if stride == 0:
        early = scope.guard is None and scope.mask is None and b.loads_early(memory.uid, _depth(b, memory, poly))
        pointer = _guarded(b, pointer_to(b, memory, poly, early), scope.guard)
        return Value(u32, b.read(f"load i32, ptr {pointer}, align {_align(memory, poly)}", early))
    assert scope.lanes is not None
    lanes = scope.lanes.count
    vector = of_lanes("i32", lanes)
    if stride == count:
        parts = poly.split(scope.lanes.atom)
        assert parts is not None
        first = parts[1]
        conditional = scope.mask is not None or scope.guard is not None or scope.vector_guard is not None
        early = not conditional and b.loads_early(memory.uid, _depth(b, memory, first))
        pointer = _guarded(b, pointer_to(b, memory, first, early), scope.vector_guard)
        align = _align(memory, first)
        if scope.mask is None:
            return Value(u32, b.read(f"load {vector}, ptr {pointer}, align {align}", early), lanes)
        return Value(u32, _masked_load(b, "i32", pointer, align, scope.mask, lanes), lanes)
    align = _align(memory, number(1))
    if scope.mask is not None:
        fn = b.declare(f"llvm.masked.gather.v{lanes}i32.v{lanes}p0", f"{vector} @(<{lanes} x ptr>, i32, <{lanes} x i1>, {vector})")
        pointers = _pointers(b, memory, poly, scope.lanes)
        mask = _taking_part(b, scope.mask, scope.vector_guard, lanes)
        gathered = f"call {vector} {fn}(<{lanes} x ptr> {pointers}, i32 {align}, <{lanes} x i1> {mask}, {vector} zeroinitializer)"
        return Value(u32, b.op(gathered), lanes)
    text = "poison"
    for lane in range(lanes):
        pointer = _guarded(b, _lane_pointer(b, memory, poly, scope.lanes, lane), scope.vector_guard)
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
    first = _first(poly, scope.lanes, stride)
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
    found = next((region.memo[key] for region in b.regions if key in region.memo), None)
    if found is None:
        pointer = _guarded(b, pointer_to(b, memory, place), scope.vector_guard)
        align = _align(memory, place)
        if mask is None:
            found = b.op(f"load {vector}, ptr {pointer}, align {align}")
        else:
            found = _masked_load(b, element, pointer, align, mask, lanes.count)
        b.region.memo[key] = found
    return found


def _masked_load(b: Builder, element: str, pointer: str, align: int, mask: str, lanes: int) -> str:
    """Load the lanes of `mask`, and make all others zero. With AVX-512 LLVM makes one instruction of such a load, what is done to it and a
    choice by the same mask, and takes the load out of that again, without its mask, where another operand lives on: so it stays apart.
    Where a target has no such loads, LLVM asks for each lane, also where the first ones are known to be in the mask: then they are a
    shorter vector, and elsewhere all lanes are asked about together first."""
    if (short := _known_first(b, element, mask, lanes)) is not None:
        vector = of_lanes(element, short)
        found = b.op(f"load {vector}, ptr {pointer}, align {align}")
        order = ", ".join(f"i32 {min(lane, short)}" for lane in range(lanes))
        return b.pure(f"shufflevector {vector} {found}, {vector} zeroinitializer, <{lanes} x i32> <{order}>")
    if _asks_lanes(b, element) and known_lanes(mask, lanes) is None:
        return _whole_or_lanes(b, element, pointer, align, mask, lanes)
    return _lanes_under_mask(b, element, pointer, align, mask, lanes)


def _asks_lanes(b: Builder, element: str) -> bool:
    """Tell whether LLVM makes a question for each lane of an access under a mask."""
    return b.target.is_x86 and _BITS[element] // 8 not in b.target.masked_bytes


def _known_first(b: Builder, element: str, mask: str, lanes: int) -> int | None:
    """Return how many lanes a mask is known to have, which are the first, where LLVM would ask for each of them."""
    known = known_lanes(mask, lanes) if _asks_lanes(b, element) else None
    count = sum(known) if known is not None else 0
    return count if known is not None and 0 < count < lanes and all(known[:count]) else None


def _whole_or_lanes(b: Builder, element: str, pointer: str, align: int, mask: str, lanes: int) -> str:
    """Load all lanes of a vector at once where all are in the mask, and only those in the mask elsewhere."""
    vector, ends = of_lanes(element, lanes), []
    mask = held(b, mask, _BITS[element], lanes)
    whole, parts, end = (b.fresh_label(stem) for stem in ("whole", "parts", "loaded"))
    bits = b.op(f"bitcast {of_lanes('i1', lanes)} {mask} to i{lanes}")
    b.write(f"br i1 {b.op(f'icmp eq i{lanes} {bits}, -1')}, label %{whole}, label %{parts}")
    for label in (whole, parts):
        b.start(label)
        if label == whole:
            found = b.op(f"load {vector}, ptr {pointer}, align {align}")
        else:
            found = _lanes_under_mask(b, element, pointer, align, mask, lanes)
        ends.append(f"[ {found}, %{b.label} ]")
        b.write(f"br label %{end}")
    b.start(end)
    return b.op(f"phi {vector} {', '.join(ends)}")


def _lanes_under_mask(b: Builder, element: str, pointer: str, align: int, mask: str, lanes: int) -> str:
    vector = of_lanes(element, lanes)
    mask = held(b, mask, _BITS[element], lanes)
    fn = b.declare(f"llvm.masked.load.v{lanes}{_suffix(element)}.p0", f"{vector} @(ptr, i32, <{lanes} x i1>, {vector})")
    found = b.op(f"call {vector} {fn}(ptr {pointer}, i32 {align}, <{lanes} x i1> {mask}, {vector} zeroinitializer)")
    return _apart(b, element, found, lanes) if b.target.has("avx512f") else found


def _apart(b: Builder, element: str, loaded: str, lanes: int) -> str:
    """Return what was loaded as something that LLVM, which emits no instruction for that, does not know."""
    bits = _BITS[element]
    if lanes * bits < 128:
        return loaded
    vector, count = of_lanes(element, lanes), min(lanes, 512 // bits)
    kind, parts = of_lanes(element, count), []
    for start in range(0, lanes, count):
        order = ", ".join(f"i32 {lane}" for lane in range(start, start + count))
        part = loaded if count == lanes else b.pure(f"shufflevector {vector} {loaded}, {vector} poison, <{count} x i32> <{order}>")
        parts.append(b.pure(f'call {kind} asm "", "=v,0"({kind} {part})'))
    return joined(b, parts, element, count)


_BITS = {"float": 32, "double": 64, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
"""How many of them elements in memory have."""


def _gather(b: Builder, memory: Memory, poly: Poly, scope: Scope) -> str:
    assert scope.lanes is not None
    lanes = scope.lanes.count
    element = memory_type(memory.dtype)
    vector = of_lanes(element, lanes)
    fn = b.declare(
        f"llvm.masked.gather.v{lanes}{_suffix(element)}.v{lanes}p0", f"{vector} @(<{lanes} x ptr>, i32, <{lanes} x i1>, {vector})"
    )
    pointers = _pointers(b, memory, poly, scope.lanes)
    align = _align(memory, number(1))
    mask = _taking_part(b, scope.mask or "splat (i1 true)", scope.vector_guard, lanes)
    return b.op(f"call {vector} {fn}(<{lanes} x ptr> {pointers}, i32 {align}, <{lanes} x i1> {mask}, {vector} zeroinitializer)")


def table_size(b: Builder, memory: Memory, index: tuple[Poly, ...], scope: Scope) -> int:
    """Return how many elements the registers have that hold the row of which data pick elements, one for each lane; 0 where data do not, or
    a row is longer, or no instruction picks elements of this width."""
    lanes, row = scope.lanes, memory.buffer.shape[-1] if index else None
    if lanes is None or not isinstance(row, Int) or memory.dtype == bool_:
        return 0
    register, most = b.target.tables(memory.dtype.size_bytes)
    varies = [any(a == lanes.atom or b.facts.atoms[a].lanes for a in place.atoms()) for place in index]
    by_data = varies[-1:] == [True] and not any(varies[:-1]) and _distance(index[-1], lanes, b) is None
    if not by_data or not 0 < row.value * memory.dtype.size_bytes <= register * most:
        return 0
    count = register // memory.dtype.size_bytes
    return next(count << k for k in range(most) if row.value <= count << k)


def _from_table(state: State, memory: Memory, index: tuple[Poly, ...], scope: Scope) -> Value | None:
    """Return elements of a row that all lanes share, picked by data from registers that hold it; None where they are not."""
    b, lanes = state.builder, scope.lanes
    size = table_size(b, memory, index, scope)
    if not size or lanes is None:
        return None
    row, element = memory.buffer.shape[-1], memory_type(memory.dtype)
    assert isinstance(row, Int)
    count = b.target.tables(memory.dtype.size_bytes)[0] // memory.dtype.size_bytes
    bits = _BITS[element]
    kind, table = f"i{bits}", of_lanes(element, count)
    start = memory.place((*index[:-1], ZERO))
    registers = [_row_part(state, memory, start + number(k), min(count, row.value - k), count, scope) for k in range(0, row.value, count)]
    registers += ["poison"] * (size // count - len(registers))
    places, parts = vector_index(b, index[-1], lanes), list[str]()
    if bits < 64:
        places = b.pure(f"trunc {of_lanes('i64', lanes.count)} {places} to {of_lanes(kind, lanes.count)}")
    for first in range(0, lanes.count, count):
        order = ", ".join(f"i32 {k}" if k < lanes.count else "i32 poison" for k in range(first, first + count))
        vector = of_lanes(kind, lanes.count)
        part = places if lanes.count == count else b.pure(f"shufflevector {vector} {places}, {vector} poison, <{count} x i32> <{order}>")
        parts.append(_picked_from(b, registers, table, part, bits))
    text = joined(b, parts, element, count)
    if len(parts) * count > lanes.count:
        order, whole = ", ".join(f"i32 {k}" for k in range(lanes.count)), of_lanes(element, len(parts) * count)
        text = b.pure(f"shufflevector {whole} {text}, {whole} poison, <{lanes.count} x i32> <{order}>")
    return _from_memory(b, memory.dtype, text, lanes.count)


def _row_part(state: State, memory: Memory, start: Poly, length: int, count: int, scope: Scope) -> str:
    """Return a register with `length` elements from `start` on, of the `count` that it holds."""
    b, element = state.builder, memory_type(memory.dtype)
    key = f"table {memory.uid}.{state.versions.get(memory.uid, 0)} {sorted(start.terms.items())} {scope.guard}"
    found = _found(b, key)
    if found is None:
        pointer, align = _guarded(b, pointer_to(b, memory, start), scope.guard), _align(memory, start)
        if length == count:
            found = b.op(f"load {of_lanes(element, count)}, ptr {pointer}, align {align}")
        else:
            found = _masked_load(b, element, pointer, align, first_lanes(b, number(length), count), count)
        b.region.memo[key] = found
    return found


def _picked_from(b: Builder, registers: Sequence[str], table: str, places: str, bits: int) -> str:
    """Return the elements at `places` of a row that lies in one, two or four registers."""
    element, count = table.split(" x ")[1][:-1], int(table[1:].split(" x ")[0])
    picks = f"<{count} x i{bits}>"
    form = {"float": "ps", "double": "pd", "i8": "qi", "i16": "hi", "i32": "d", "i64": "q"}[element]
    if len(registers) == 1:
        if count * bits == 512:
            name = f"llvm.x86.avx512.permvar.{ {'ps': 'sf', 'pd': 'df', 'd': 'si', 'q': 'di'}.get(form, form) }.512"
        else:
            name = f"llvm.x86.avx2.perm{'ps' if element == 'float' else 'd'}"
        fn = b.declare(name, f"{table} @({table}, {picks})")
        return b.pure(f"call {table} {fn}({table} {registers[0]}, {picks} {places})")
    if len(registers) == 2:
        fn = b.declare(f"llvm.x86.avx512.vpermi2var.{form}.512", f"{table} @({table}, {picks}, {table})")
        return b.pure(f"call {table} {fn}({table} {registers[0]}, {picks} {places}, {table} {registers[1]})")
    half = len(registers) // 2
    low, high = (_picked_from(b, part, table, places, bits) for part in (registers[:half], registers[half:]))
    in_high = b.pure(f"and {picks} {places}, splat (i{bits} {half * count})")
    chosen = b.pure(f"icmp ne {picks} {in_high}, zeroinitializer")
    return b.pure(f"select <{count} x i1> {chosen}, {table} {high}, {table} {low}")


def _taking_part(b: Builder, mask: str, guard: str | None, lanes: int) -> str:
    """Return the lanes of `mask` that read where `guard` is true, and none where it is false."""
    return mask if guard is None else b.pure(f"select i1 {guard}, <{lanes} x i1> {mask}, <{lanes} x i1> zeroinitializer")


# ---------------------------------------------------------------- writing


def _store_shared(b: Builder, memory: Memory, poly: Poly, value: Value, scope: Scope) -> None:
    pointer = pointer_to(b, memory, poly)
    if scope.guard is not None:
        spare = "%tl.sink"
        line = f"  {spare} = alloca i64, align 8"
        if line not in b.prologue:
            b.prologue.append(line)
        pointer = b.pure(f"select i1 {scope.guard}, ptr {pointer}, ptr {spare}")
    b.write(f"store {memory_type(memory.dtype)} {_to_memory(b, value)}, ptr {pointer}, align {_align(memory, poly)}")


def _store_contiguous(b: Builder, memory: Memory, poly: Poly, stored: str, scope: Scope, stride: int, stream: bool) -> None:
    assert scope.lanes is not None
    lanes = scope.lanes.count
    element = memory_type(memory.dtype)
    first = _first(poly, scope.lanes, stride)
    mask = scope.mask
    if stride == -1:
        stored = _reversed(b, element, stored, lanes)
        mask = None if mask is None else _reversed(b, "i1", mask, lanes)
    _store_vector(b, memory, first, stored, mask, lanes, stream)


def _store_vector(b: Builder, memory: Memory, first: Poly, stored: str, mask: str | None, lanes: int, stream: bool = False) -> None:
    """Write the lanes of a mask, or all, to neighbours from element `first` on."""
    element = memory_type(memory.dtype)
    vector, pointer, align = of_lanes(element, lanes), pointer_to(b, memory, first), _align(memory, first)
    if mask is None:
        hint = ", !nontemporal !1" if stream and align % (lanes * memory.dtype.size_bytes) == 0 else ""
        b.write(f"store {vector} {stored}, ptr {pointer}, align {align}{hint}")
        return
    if (short := _known_first(b, element, mask, lanes)) is not None:
        order = ", ".join(f"i32 {lane}" for lane in range(short))
        part = b.pure(f"shufflevector {vector} {stored}, {vector} poison, <{short} x i32> <{order}>")
        b.write(f"store {of_lanes(element, short)} {part}, ptr {pointer}, align {align}")
        return
    mask = held(b, mask, _BITS[element], lanes)
    fn = b.declare(f"llvm.masked.store.v{lanes}{_suffix(element)}.p0", f"void @({vector}, ptr, i32, <{lanes} x i1>)")
    b.write(f"call void {fn}({vector} {stored}, ptr {pointer}, i32 {align}, <{lanes} x i1> {mask})")


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
        _scatter(b, memory, pointers, part.text, part.mask, part.lanes)
        return
    for lane, place in enumerate(places):
        if known is not None and known[lane]:
            _store_lane(b, memory, pointer_to(b, memory, place), part.text, lane, part.lanes)


def _store_lane(b: Builder, memory: Memory, pointer: str, stored: str, lane: int, lanes: int) -> None:
    """Write one lane of a vector to `pointer`."""
    element = memory_type(memory.dtype)
    part = b.pure(f"extractelement {of_lanes(element, lanes)} {stored}, i64 {lane}")
    b.write(f"store {element} {part}, ptr {pointer}, align {_align(memory, number(1))}")


def _scatter(b: Builder, memory: Memory, pointers: str, stored: str, mask: str, lanes: int) -> None:
    """Write the lanes of `mask` to where `pointers` say."""
    element = memory_type(memory.dtype)
    vector = of_lanes(element, lanes)
    fn = b.declare(f"llvm.masked.scatter.v{lanes}{_suffix(element)}.v{lanes}p0", f"void @({vector}, <{lanes} x ptr>, i32, <{lanes} x i1>)")
    align = _align(memory, number(1))
    b.write(f"call void {fn}({vector} {stored}, <{lanes} x ptr> {pointers}, i32 {align}, <{lanes} x i1> {mask})")


# ---------------------------------------------------------------- addresses


def vector_index(b: Builder, poly: Poly, lanes: Lanes) -> str:
    """Return `poly` as one i64 per lane."""
    vector = of_lanes("i64", lanes.count)
    uniform: dict[tuple[str, ...], int] = {}
    total = ""
    for monomial, coefficient in sorted(poly.terms.items()):
        varying = [a for a in monomial if a == lanes.atom or b.facts.atoms[a].lanes]
        if not varying:
            uniform[monomial] = coefficient
            continue
        rest = polynomials.Poly({tuple(a for a in monomial if a not in varying): coefficient})
        term = _numbers(lanes.count) if varying[0] == lanes.atom else varying[0]
        for atom in varying[1:]:
            term = b.pure(f"mul {vector} {term}, {_numbers(lanes.count) if atom == lanes.atom else atom}")
        if rest.constant != 1:
            term = b.pure(f"mul {vector} {term}, {_splat_index(b, rest, lanes.count)}")
        total = b.pure(f"add {vector} {total}, {term}") if total else term
    base = polynomials.Poly(uniform)
    if not total:
        return _splat_index(b, base, lanes.count)
    return total if base.constant == 0 else b.pure(f"add {vector} {total}, {_splat_index(b, base, lanes.count)}")


def _numbers(lanes: int) -> str:
    return "<" + ", ".join(f"i64 {i}" for i in range(lanes)) + ">"


def _splat_index(b: Builder, poly: Poly, lanes: int) -> str:
    text = b.index(poly)
    return _splat_text(b, "i64", text, lanes)


def _splat(b: Builder, value: Value, lanes: int) -> str:
    return _splat_text(b, "i1" if value.dtype == bool_ else memory_type(value.dtype), value.text, lanes)


def _splat_text(b: Builder, element: str, text: str, lanes: int) -> str:
    if not text.startswith("%"):
        return f"splat ({element} {text})"
    vector = of_lanes(element, lanes)
    first = b.pure(f"insertelement {vector} poison, {element} {text}, i64 0")
    return b.pure(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")


def pointer_to(b: Builder, memory: Memory, poly: Poly, early: bool = False) -> str:
    """Return the address of element `poly`."""
    return b.address(memory.pointer, memory.depth, memory_type(memory.dtype), poly, early)


def _depth(b: Builder, memory: Memory, poly: Poly) -> int:
    return max(memory.depth, b.poly_depth(poly))


def _pointers(b: Builder, memory: Memory, poly: Poly, lanes: Lanes) -> str:
    index = vector_index(b, poly, lanes)
    return b.pure(f"getelementptr {memory_type(memory.dtype)}, ptr {memory.pointer}, <{lanes.count} x i64> {index}")


def _lane_pointer(b: Builder, memory: Memory, poly: Poly, lanes: Lanes, lane: int) -> str:
    """Return the address for one lane."""
    parts = poly.split(lanes.atom)
    if parts is not None and not any(b.facts.atoms[a].lanes for a in parts[0].atoms() | parts[1].atoms()):
        return pointer_to(b, memory, parts[0].scaled(lane) + parts[1])
    return pointer_to(b, memory, _of_lane(b, poly, lanes, lane))


def _of_lane(b: Builder, poly: Poly, lanes: Lanes, lane: int) -> Poly:
    """Return `poly` for one lane. A number is widened behind being taken out of its vector: LLVM then loads it from where that lies."""
    found = ZERO
    for monomial, coefficient in poly.terms.items():
        term = number(coefficient)
        for name in monomial:
            own = b.facts.atoms[name]
            term *= number(lane) if name == lanes.atom else _extracted(b, own, lane) if own.lanes else polynomials.atom_poly(name)
        found += term
    return found


def _extracted(b: Builder, atom: Atom, lane: int) -> Poly:
    whole = atom.narrow or Value(i64, atom.name, atom.lanes)
    part = Value(whole.dtype, b.pure(f"extractelement {whole.typed}, i64 {lane}"))
    name = cast(b, part, i64, False).text
    return b.facts.add(Atom(name, b.depth, b.facts.next_rank())) if name not in b.facts.atoms else polynomials.atom_poly(name)


def _first(poly: Poly, lanes: Lanes, stride: int) -> Poly:
    """Return the lowest address of a contiguous access."""
    parts = poly.split(lanes.atom)
    assert parts is not None
    return parts[1] if stride > 0 else parts[1] - number(lanes.count - 1)


def _guarded(b: Builder, pointer: str, guard: str | None) -> str:
    if guard is None:
        return pointer
    b.declarations.setdefault("tl.spare", SPARE)
    return b.pure(f"select i1 {guard}, ptr {pointer}, ptr @tl.spare")


def _align(memory: Memory, poly: Poly) -> int:
    """Return the greatest power of two that divides the address of element `poly`."""
    factor = gcd(memory.buffer.align, poly.multiple_of() * memory.dtype.size_bytes)
    return factor & -factor


def _reversed(b: Builder, element: str, text: str, lanes: int) -> str:
    vector = of_lanes(element, lanes)
    order = "<" + ", ".join(f"i32 {i}" for i in reversed(range(lanes))) + ">"
    return b.pure(f"shufflevector {vector} {text}, {vector} poison, <{lanes} x i32> {order}")


def _suffix(element: str) -> str:
    return {"float": "f32", "double": "f64"}.get(element, element)


# ---------------------------------------------------------------- representation


def _remembered(dtype: DType, memo: str) -> Value:
    lanes, text = memo.split(" ", 1)
    return Value(dtype, text, int(lanes))


def _from_memory(b: Builder, dtype: DType, text: str, lanes: int) -> Value:
    if dtype == bool_:
        zero = "zeroinitializer" if lanes else "0"
        text = b.pure(f"icmp ne {of_lanes('i8', lanes)} {text}, {zero}")
    elif dtype.is_integer and dtype.bits < 8:
        vector, above = of_lanes("i8", lanes), byte_text(8 - dtype.bits, lanes)
        high = b.pure(f"shl {vector} {text}, {above}")
        text = b.pure(f"{'ashr' if dtype.kind == 'int' else 'lshr'} {vector} {high}, {above}")
    return Value(dtype, text, lanes)


def _to_memory(b: Builder, value: Value) -> str:
    if value.dtype.is_integer and value.dtype.bits < 8:
        return b.pure(f"and {value.typed}, {byte_text((1 << value.dtype.bits) - 1, value.lanes)}")
    if value.dtype != bool_:
        return value.text
    return b.pure(f"zext {value.typed} to {of_lanes('i8', value.lanes)}")
