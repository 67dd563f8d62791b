"""Addresses: of an element, of those that lanes read or write, and how far apart these are."""

from __future__ import annotations

from math import gcd

from codegen import polynomials
from codegen.dtypes import bool_, i64
from codegen.llvm.builder import Builder
from codegen.llvm.convert import cast
from codegen.llvm.facts import Atom, Poly
from codegen.llvm.interleave import MOST_ELEMENTS
from codegen.llvm.state import Lanes, Memory
from codegen.llvm.values import Value, memory_type, of_lanes
from codegen.polynomials import ZERO, number

SPARE_BYTES = 2048
SPARE = f"@tl.spare = internal constant [{SPARE_BYTES} x i8] zeroinitializer, align 64"


def lane_stride(poly: Poly, lanes: Lanes | None, b: Builder) -> int | None:
    """Return the distance between lanes: 0 when they share the address, None when it is no constant."""
    distance = lane_distance(poly, lanes, b)
    return None if distance is None else distance.constant


def has_rows(poly: Poly, lanes: Lanes, b: Builder, columns: int) -> bool:
    """Tell whether lanes lie in rows of at least so many elements: at one distance, a constant or what sizes decide. Rows of few elements
    are whole vectors together, of which lanes are picked, but where there are as many columns as lanes."""
    distance = lane_distance(poly, lanes, b)
    if distance is None or distance.constant is None:
        return distance is not None
    least = columns if columns == lanes.count else max(columns, MOST_ELEMENTS + 1)
    return abs(distance.constant) >= least


def lane_distance(poly: Poly, lanes: Lanes | None, b: Builder) -> Poly | None:
    """Return the distance between lanes, or None when it is not the same for all neighbours."""
    if lanes is None:
        return ZERO
    atoms = poly.atoms()
    if any(b.facts.atoms[a].lanes for a in atoms if a != lanes.atom):
        return None
    parts = poly.split(lanes.atom)
    return None if parts is None else parts[0]


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


def splat_of(b: Builder, value: Value, lanes: int) -> str:
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


def depth_of(b: Builder, memory: Memory, poly: Poly) -> int:
    return max(memory.depth, b.poly_depth(poly))


def pointers_of(b: Builder, memory: Memory, poly: Poly, lanes: Lanes) -> str:
    index = vector_index(b, poly, lanes)
    return b.pure(f"getelementptr {memory_type(memory.dtype)}, ptr {memory.pointer}, <{lanes.count} x i64> {index}")


def lane_pointer(b: Builder, memory: Memory, poly: Poly, lanes: Lanes, lane: int) -> str:
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


def first_place(poly: Poly, lanes: Lanes, stride: int) -> Poly:
    """Return the lowest address of a contiguous access."""
    parts = poly.split(lanes.atom)
    assert parts is not None
    return parts[1] if stride > 0 else parts[1] - number(lanes.count - 1)


def guarded(b: Builder, pointer: str, guard: str | None) -> str:
    if guard is None:
        return pointer
    b.declarations.setdefault("tl.spare", SPARE)
    return b.pure(f"select i1 {guard}, ptr {pointer}, ptr @tl.spare")


def alignment(memory: Memory, poly: Poly) -> int:
    """Return the greatest power of two that divides the address of element `poly`."""
    factor = gcd(memory.buffer.align, poly.multiple_of() * memory.dtype.size_bytes)
    return factor & -factor
