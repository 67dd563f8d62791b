"""Which thread of a block runs what.

A block's threads are numbered from 0. A place is a digit of that number: `lane` is its remainder by the threads of a warp (32 or 64, by
the device), `warp` what is left, `thread.x`
its remainder by the extent of x, and so on; `lane.x`, `lane.y`, `lane.z` are digits of the lane, `warp.x` and so on of the warp. A
statement runs on the threads whose digits are those of the loops around it; what it stores to memory that others see is stored once, by
those of them whose other digits are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from codegen.errors import InternalError, Unfit
from codegen.loops.nodes import THREADS, For, LoopKind, Stmt
from codegen.loops.walk import children, walk

WARP = 32
"""Threads of a warp where nothing else is said."""
WARPGROUP = 4 * WARP
WARPS: frozenset[LoopKind] = frozenset(("warp", "warp.x", "warp.y", "warp.z", "warpgroup"))
"""Places of whole warps."""


@dataclass(frozen=True, slots=True)
class Digit:
    """`number // stride % extent`; `extent` None: not bounded, the most significant one."""

    stride: int
    extent: int | None


@dataclass(frozen=True, slots=True)
class Geometry:
    """The threads of a block: how many, and the extents of x and y, of lanes and of warps, too, that other digits are counted by."""

    threads: int
    x: int = 1
    y: int = 1
    lane_x: int = 1
    lane_y: int = 1
    warp_x: int = 1
    warp_y: int = 1
    warp: int = WARP
    """Threads of a warp."""

    def digit(self, place: LoopKind) -> Digit:
        """Return what a loop over `place` counts."""
        match place:
            case "thread":
                return Digit(1, None)
            case "lane":
                return Digit(1, self.warp)
            case "lane.x":
                return Digit(1, self.lane_x)
            case "lane.y":
                return Digit(self.lane_x, min(self.lane_y, self.warp // self.lane_x))
            case "lane.z":
                return Digit(self.lane_x * self.lane_y, self.warp // min(self.warp, self.lane_x * self.lane_y))
            case "warp":
                return Digit(self.warp, None)
            case "warp.x":
                return Digit(self.warp, self.warp_x)
            case "warp.y":
                return Digit(self.warp * self.warp_x, self.warp_y)
            case "warp.z":
                return Digit(self.warp * self.warp_x * self.warp_y, None)
            case "warpgroup":
                return Digit(WARPGROUP, None)
            case "thread.x":
                return Digit(1, self.x)
            case "thread.y":
                return Digit(self.x, self.y)
            case "thread.z":
                return Digit(self.x * self.y, None)
            case _:
                raise InternalError("gpu", f"`{place}` is no place of a thread")

    def span(self, place: LoopKind) -> int:
        """Return how many values the digit of `place` has in this block."""
        digit = self.digit(place)
        most = -(-self.threads // digit.stride)
        return most if digit.extent is None else min(digit.extent, most)

    def gaps(self, places: frozenset[LoopKind]) -> tuple[tuple[int | None, int], ...]:
        """Return (m, n) for each run of digits that `places` leave out: it is 0 where `number % m < n` (m None: `number < n`)."""
        out: list[tuple[int | None, int]] = []
        end = 1
        for digit in sorted((self.digit(p) for p in places), key=lambda d: d.stride):
            if digit.stride > end:
                out.append((digit.stride, end))
            if digit.extent is None:
                return tuple(out)
            end = max(end, digit.stride * digit.extent)
        return (*out, (None, end)) if end < self.threads else tuple(out)


def geometry(body: tuple[Stmt, ...], warp: int = WARP) -> Geometry:
    """Return the least block of whole warps, of so many threads each, in which the loops of `body` find their threads. Raises Unfit for
    groups of four warps of another width than those that multiply matrices together."""
    extents: dict[str, int] = dict(_extents(body))
    if "warpgroup" in extents and warp != WARP:
        raise Unfit(f"a `warpgroup` is four warps of {WARP} threads, and a warp of this device has {warp}")
    threads, warps, lanes = ([extents.get(f"{place}.{axis}", 1) for axis in "xyz"] for place in ("thread", "warp", "lane"))
    groups = WARPGROUP * extents["warpgroup"] if "warpgroup" in extents else 1
    least = max(prod(threads), warp * prod(warps), warp * extents.get("warp", 1), groups, extents.get("thread", 1))
    lane_x, lane_y = (1 << (n - 1).bit_length() for n in lanes[:2])
    return Geometry(-(-least // warp) * warp, threads[0], threads[1], lane_x, lane_y, warps[0], warps[1], warp)


def _extents(body: tuple[Stmt, ...]) -> Iterator[tuple[LoopKind, int]]:
    """Yield the greatest extent of the loops over each place."""
    found: dict[LoopKind, int] = {}
    for node in walk(*body):
        if isinstance(node, For) and node.kind in THREADS:
            if node.extent is None:
                raise Unfit(f"the loop `{node.var}` over threads has no constant extent", node.var)
            found[node.kind] = max(found.get(node.kind, 1), node.extent)
    yield from found.items()


def check_places(body: tuple[Stmt, ...], threads: Geometry, around: tuple[For, ...] = ()) -> None:
    """Raise Unfit where a loop over threads stands inside another that counts by the same digits of their number, or more of them are
    needed than a block has."""
    for node in body:
        if isinstance(node, For) and node.kind in THREADS:
            if (node.extent or 0) > threads.span(node.kind):
                few = f"`{node.var}` has {node.extent} iterations; {node.kind} counts to {threads.span(node.kind)} in this block"
                raise Unfit(few, node.var)
            for outer in around:
                if _overlap(threads, outer.kind, node.kind):
                    raise Unfit(f"`{node.var}`, bound to {node.kind}, stands inside of `{outer.var}`, bound to {outer.kind}", node.var)
        inside = (*around, node) if isinstance(node, For) and node.kind in THREADS else around
        check_places(tuple(c for c in children(node) if isinstance(c, Stmt)), threads, inside)


def _overlap(threads: Geometry, one: LoopKind, two: LoopKind) -> bool:
    (low, high), (least, most) = ((threads.digit(p).stride, threads.digit(p).stride * threads.span(p)) for p in (one, two))
    return one == two or max(low, least) < min(high, most)
