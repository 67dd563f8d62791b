"""Rows of few elements in registers, of which data pick elements for each lane."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.dtypes import bool_
from codegen.llvm.addresses import alignment, guarded, lane_distance, pointer_to, vector_index
from codegen.llvm.builder import Builder
from codegen.llvm.convert import from_memory
from codegen.llvm.facts import Poly
from codegen.llvm.masked_accesses import ELEMENT_BITS, masked_load
from codegen.llvm.masks import first_lanes
from codegen.llvm.register_transpose import joined
from codegen.llvm.state import Memory, Scope, State
from codegen.llvm.values import Value, memory_type, of_lanes
from codegen.loops.nodes import Int
from codegen.polynomials import ZERO, number


def table_size(b: Builder, memory: Memory, index: tuple[Poly, ...], scope: Scope) -> int:
    """Return how many elements the registers have that hold the row of which data pick elements, one for each lane; 0 where data do not, or
    a row is longer, or no instruction picks elements of this width."""
    lanes, row = scope.lanes, memory.buffer.shape[-1] if index else None
    if lanes is None or not isinstance(row, Int) or memory.dtype == bool_:
        return 0
    register, most = b.target.tables(memory.dtype.size_bytes)
    varies = [any(a == lanes.atom or b.facts.atoms[a].lanes for a in place.atoms()) for place in index]
    by_data = varies[-1:] == [True] and not any(varies[:-1]) and lane_distance(index[-1], lanes, b) is None
    if not by_data or not 0 < row.value * memory.dtype.size_bytes <= register * most:
        return 0
    count = register // memory.dtype.size_bytes
    return next(count << k for k in range(most) if row.value <= count << k)


def from_table(state: State, memory: Memory, index: tuple[Poly, ...], scope: Scope) -> Value | None:
    """Return elements of a row that all lanes share, picked by data from registers that hold it; None where they are not."""
    b, lanes = state.builder, scope.lanes
    size = table_size(b, memory, index, scope)
    if not size or lanes is None:
        return None
    row, element = memory.buffer.shape[-1], memory_type(memory.dtype)
    assert isinstance(row, Int)
    count = b.target.tables(memory.dtype.size_bytes)[0] // memory.dtype.size_bytes
    bits = ELEMENT_BITS[element]
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
    return from_memory(b, memory.dtype, text, lanes.count)


def _row_part(state: State, memory: Memory, start: Poly, length: int, count: int, scope: Scope) -> str:
    """Return a register with `length` elements from `start` on, of the `count` that it holds."""
    b, element = state.builder, memory_type(memory.dtype)
    key = f"table {memory.uid}.{state.versions.get(memory.uid, 0)} {sorted(start.terms.items())} {scope.guard}"
    found = b.remembered(key)
    if found is None:
        pointer, align = guarded(b, pointer_to(b, memory, start), scope.guard), alignment(memory, start)
        if length == count:
            found = b.op(f"load {of_lanes(element, count)}, ptr {pointer}, align {align}")
        else:
            found = masked_load(b, element, pointer, align, first_lanes(b, number(length), count), count)
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
