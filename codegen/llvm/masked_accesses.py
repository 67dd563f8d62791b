"""Accesses under a mask: of neighbours, and of what the pointers of lanes say. Memory of lanes that take no part is not touched."""

from __future__ import annotations

from codegen.llvm.builder import Builder
from codegen.llvm.masks import held, known_lanes
from codegen.llvm.register_transpose import joined
from codegen.llvm.values import of_lanes

ELEMENT_BITS = {"float": 32, "double": 64, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
"""How many of them elements in memory have."""


def masked_load(b: Builder, element: str, pointer: str, align: int, mask: str, lanes: int) -> str:
    """Load the lanes of `mask`, and make all others zero. With AVX-512 LLVM makes one instruction of such a load, what is done to it and a
    choice by the same mask, and takes the load out of that again, without its mask, where another operand lives on: so it stays apart.
    First lanes that are known to be in the mask are a shorter vector where that needs none. Where a target has no such loads, LLVM asks for
    each lane: all are asked about together first."""
    if (short := _whole_first(b, element, mask, lanes)) is not None:
        vector = of_lanes(element, short)
        found = b.op(f"load {vector}, ptr {pointer}, align {align}")
        order = ", ".join(f"i32 {min(lane, short)}" for lane in range(lanes))
        return b.pure(f"shufflevector {vector} {found}, {vector} zeroinitializer, <{lanes} x i32> <{order}>")
    mask = held(b, mask, ELEMENT_BITS[element], lanes)
    if _asks_lanes(b, element) and known_lanes(mask, lanes) is None:
        return _whole_or_lanes(b, element, pointer, align, mask, lanes)
    return _lanes_under_mask(b, element, pointer, align, mask, lanes)


def _asks_lanes(b: Builder, element: str) -> bool:
    """Tell whether LLVM makes a question for each lane of an access under a mask."""
    return b.target.is_x86 and ELEMENT_BITS[element] // 8 not in b.target.masked_bytes


def _known_first(mask: str, lanes: int) -> int | None:
    """Return how many lanes a mask is known to have, some but not all, where these are the first."""
    known = known_lanes(mask, lanes)
    count = sum(known) if known is not None else 0
    return None if known is None or not 0 < count < lanes or not all(known[:count]) else count


def _whole_first(b: Builder, element: str, mask: str, lanes: int) -> int | None:
    """Return how many lanes a mask is known to have, which are the first, where a shorter vector of them takes no mask: LLVM would ask for
    each of them, or they are whole registers and half of one, a quarter, or less. A load that touches what a store under a mask leaves out,
    as the row behind it, waits until that has reached the cache."""
    if (count := _known_first(mask, lanes)) is None:
        return None
    rest = count * ELEMENT_BITS[element] % b.target.vector_bits
    return count if _asks_lanes(b, element) or (b.target.is_x86 and rest.bit_count() <= 1 and rest not in range(1, 32)) else None


def _stored_first(b: Builder, element: str, mask: str, lanes: int) -> int | None:
    """Return how many first lanes are stored in halves of a register, quarters and so on rather than under a mask. That is faster before
    AVX-512: some processors take twelve cycles for a store under a mask."""
    return _known_first(mask, lanes) if b.target.has("avx2") and not b.target.has("avx512f") else _whole_first(b, element, mask, lanes)


def _whole_or_lanes(b: Builder, element: str, pointer: str, align: int, mask: str, lanes: int) -> str:
    """Load all lanes of a vector at once where all are in the mask, and only those in the mask elsewhere."""
    vector, ends = of_lanes(element, lanes), []
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
    fn = b.declare(f"llvm.masked.load.v{lanes}{_suffix(element)}.p0", f"{vector} @(ptr, i32, <{lanes} x i1>, {vector})")
    found = b.op(f"call {vector} {fn}(ptr {pointer}, i32 {align}, <{lanes} x i1> {mask}, {vector} zeroinitializer)")
    return kept_apart(b, element, found, lanes) if b.target.has("avx512f") else found


def kept_apart(b: Builder, element: str, loaded: str, lanes: int) -> str:
    """Return what was loaded as something that LLVM, which emits no instruction for that, does not know."""
    bits = ELEMENT_BITS[element]
    if lanes * bits < 128:
        return loaded
    vector, count = of_lanes(element, lanes), min(lanes, 512 // bits)
    kind, parts = of_lanes(element, count), []
    for start in range(0, lanes, count):
        order = ", ".join(f"i32 {lane}" for lane in range(start, start + count))
        part = loaded if count == lanes else b.pure(f"shufflevector {vector} {loaded}, {vector} poison, <{count} x i32> <{order}>")
        parts.append(b.pure(f'call {kind} asm "", "=v,0"({kind} {part})'))
    return joined(b, parts, element, count)


def taking_part(b: Builder, mask: str, guard: str | None, lanes: int) -> str:
    """Return the lanes of `mask` that read where `guard` is true, and none where it is false."""
    return mask if guard is None else b.pure(f"select i1 {guard}, <{lanes} x i1> {mask}, <{lanes} x i1> zeroinitializer")


def masked_scatter(b: Builder, element: str, pointers: str, align: int, stored: str, mask: str, lanes: int) -> None:
    """Write the lanes of `mask` to where `pointers` say."""
    vector = of_lanes(element, lanes)
    fn = b.declare(f"llvm.masked.scatter.v{lanes}{_suffix(element)}.v{lanes}p0", f"void @({vector}, <{lanes} x ptr>, i32, <{lanes} x i1>)")
    b.write(f"call void {fn}({vector} {stored}, <{lanes} x ptr> {pointers}, i32 {align}, <{lanes} x i1> {mask})")


def masked_gather(b: Builder, element: str, pointers: str, align: int, mask: str, lanes: int) -> str:
    """Load for each lane of `mask` what its pointer says, and make all others zero."""
    vector = of_lanes(element, lanes)
    fn = b.declare(
        f"llvm.masked.gather.v{lanes}{_suffix(element)}.v{lanes}p0", f"{vector} @(<{lanes} x ptr>, i32, <{lanes} x i1>, {vector})"
    )
    return b.op(f"call {vector} {fn}(<{lanes} x ptr> {pointers}, i32 {align}, <{lanes} x i1> {mask}, {vector} zeroinitializer)")


def masked_store(b: Builder, element: str, pointer: str, align: int, stored: str, mask: str, lanes: int) -> None:
    """Write the lanes of `mask` to neighbours."""
    vector = of_lanes(element, lanes)
    if (short := _stored_first(b, element, mask, lanes)) is not None:
        order = ", ".join(f"i32 {lane}" for lane in range(short))
        part = b.pure(f"shufflevector {vector} {stored}, {vector} poison, <{short} x i32> <{order}>")
        b.write(f"store {of_lanes(element, short)} {part}, ptr {pointer}, align {align}")
        return
    mask = held(b, mask, ELEMENT_BITS[element], lanes)
    fn = b.declare(f"llvm.masked.store.v{lanes}{_suffix(element)}.p0", f"void @({vector}, ptr, i32, <{lanes} x i1>)")
    b.write(f"call void {fn}({vector} {stored}, ptr {pointer}, i32 {align}, <{lanes} x i1> {mask})")


def _suffix(element: str) -> str:
    return {"float": "f32", "double": "f64"}.get(element, element)
