"""Conditions that all lanes of a vector share, and masks: of the first lanes, as many as a size says, and of lanes that are known."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.llvm.builder import Builder
from codegen.llvm.facts import Poly
from codegen.llvm.target import Target
from codegen.llvm.values import of_lanes


def first_lanes(b: Builder, count: Poly, lanes: int) -> str:
    """Return the mask of the lanes whose number is less than `count`."""
    constant = count.constant
    if constant is not None:
        return lanes_between(0, constant, lanes)
    return lanes_before(b, clamped(b, b.index(count), 0, lanes, b.poly_depth(count)), lanes, b.poly_depth(count))


def lanes_between(first: int, end: int, lanes: int) -> str:
    """Return the mask of the lanes from number `first` on whose number is less than `end`."""
    return of_known([first <= lane < end for lane in range(lanes)])


def known_lanes(mask: str | None, lanes: int) -> tuple[bool, ...] | None:
    """Return which lanes are in a mask, None standing for all; or None where that is not known while code is written."""
    if mask is None:
        return (True,) * lanes
    return tuple(part.endswith("true") for part in mask[1:-1].split(",")) if mask.startswith("<") else None


def common(b: Builder, left: str, right: str, lanes: int) -> str:
    """Return the mask of the lanes that are in two masks."""
    x, y = known_lanes(left, lanes), known_lanes(right, lanes)
    if x is not None and y is not None:
        return of_known([p and q for p, q in zip(x, y, strict=True)])
    mask = b.pure(f"and {of_lanes('i1', lanes)} {left}, {right}")
    note_common(b, mask, left, right)
    return mask


def note_common(b: Builder, mask: str, left: str, right: str) -> None:
    """Note that the lanes in a mask are those that are in two others."""
    b.region.masks[mask] = _conjuncts(b, left) | _conjuncts(b, right)


def masks_around(b: Builder, mask: str | None) -> list[str]:
    """Return masks that are known to have all lanes of a mask, and perhaps others."""
    own = _conjuncts(b, mask) if mask is not None else frozenset()
    if len(own) < 2:
        return []
    return sorted(own) + [other for region in b.regions for other, parts in region.masks.items() if parts <= own and other != mask]


def _conjuncts(b: Builder, mask: str) -> frozenset[str]:
    """Return masks of which the lanes of a mask are those that are in all of them."""
    return next((region.masks[mask] for region in b.regions if mask in region.masks), frozenset((mask,)))


def others(b: Builder, mask: str, lanes: int) -> str:
    """Return the mask of the lanes that are not in `mask`."""
    known = known_lanes(mask, lanes)
    return b.pure(f"xor {of_lanes('i1', lanes)} {mask}, splat (i1 true)") if known is None else of_known([not p for p in known])


def of_known(inside: Sequence[bool]) -> str:
    """Return the mask that each lane is in or not, as told."""
    return "<" + ", ".join(f"i1 {'true' if each else 'false'}" for each in inside) + ">"


def has_mask_registers(target: Target) -> bool:
    """Tell whether a processor has registers for masks: elsewhere they are vectors, or single bits where LLVM knows no vector for them."""
    return target.has("avx512f") or target.family == "riscv64"


def held(b: Builder, mask: str, bits: int, lanes: int) -> str:
    """Return a mask for elements of so many bits. With AVX2, where masks are vectors, LLVM takes one that is made before a loop apart into
    bits, and puts these together in each iteration: there it is held as numbers of that many bits, in each loop anew."""
    if not (b.target.is_x86 and b.target.vector_bits == 256):
        return mask
    made = b.depth_of(mask)
    if made is None or not any(region.repeats for region in b.regions[made + 1 :]):
        return mask
    wide = of_lanes(f"i{bits}", lanes)
    numbers = b.pure(f"sext {of_lanes('i1', lanes)} {mask} to {wide}", made)
    return held(b, b.pure(f"icmp slt {wide} {numbers}, zeroinitializer"), bits, lanes)


def positive(b: Builder, p: Poly) -> str:
    """Return whether `p > 0`, for a `p` that all lanes share; computed as far out as possible."""
    return b.pure(f"icmp sgt i64 {b.index(p)}, 0", b.poly_depth(p))


def lanes_before(b: Builder, count: str, lanes: int, at: int) -> str:
    """Return the mask of the lanes whose number is less than `count`, an i64 between 0 and `lanes`."""
    short = b.pure(f"trunc i64 {count} to i32", at)
    vector = of_lanes("i32", lanes)
    first = b.pure(f"insertelement {vector} poison, i32 {short}, i64 0", at)
    limit = b.pure(f"shufflevector {vector} {first}, {vector} poison, {vector} zeroinitializer", at)
    numbers = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
    return b.pure(f"icmp ult {vector} {numbers}, {limit}", at)


def clamped(b: Builder, x: str, least: int, most: int, at: int) -> str:
    """Return the i64 `x`, or the nearest number between `least` and `most`."""
    low = b.declare("llvm.smax.i64", "i64 @(i64, i64)")
    high = b.declare("llvm.smin.i64", "i64 @(i64, i64)")
    raised = b.pure(f"call i64 {low}(i64 {x}, i64 {least})", at)
    return b.pure(f"call i64 {high}(i64 {raised}, i64 {most})", at)
