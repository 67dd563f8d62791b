"""Rows of few elements, which the copies of an unrolled loop write in lanes, element by element: written together, as whole vectors.

    before   for i in 0 .. 3 unroll { for n in 0 .. 16 vector { y[n, i] = … } }      3 times 16 stores of one element
    after    the three vectors of lanes shuffled into each other, and three stores of 16 elements

Only where nothing that is computed in between reads what is written. Where lanes take no part, what they would write is left out of the
rows, if it is known which these are, or all copies leave out the same last ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from codegen.dtypes import i64
from codegen.llvm.builder import Builder
from codegen.llvm.facts import Poly
from codegen.llvm.masks import first_lanes, known_lanes, of_known
from codegen.llvm.values import of_lanes
from codegen.loops.nodes import Binary, Compare, Const, Expr, For, If, IndexValue, Let, Load, Stmt, Store, Unary, ValueIndex
from codegen.loops.walk import free_vars, walk
from codegen.polynomials import number

MOST_ELEMENTS = 8
"""Of a row."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a copy stores: where its first lane lies, the vector and its lanes. `mask`: which of them take part, None for all; `length`: how
    many, where these are the first."""

    first: Poly
    text: str
    lanes: int
    mask: str | None = None
    length: Poly | None = None


@dataclass(slots=True)
class Interleaved:
    """What the copies of an unrolled loop have yet to store to a buffer."""

    uid: int
    count: int
    parts: list[Part] = field(default_factory=list)

    def takes(self, uid: int, stride: int | None) -> bool:
        """Tell whether a store of lanes so far apart is one of a row."""
        return uid == self.uid and stride == self.count

    def masks(self, b: Builder) -> list[str | None] | None:
        """Return which elements of each vector of whole rows are written, None for all; or None where these are no rows: the copies do not
        write one beside the other, or take part in lanes that are not known."""
        first, lanes = self.parts[0].first, self.parts[0].lanes
        beside = all(part.first - first == number(k) and part.lanes == lanes for k, part in enumerate(self.parts))
        if len(self.parts) != self.count or not beside:
            return None
        if all(part.mask is None for part in self.parts):
            return [None] * self.count
        known = [found for part in self.parts if (found := known_lanes(part.mask, lanes)) is not None]
        if len(known) == self.count:
            inside = [each for row in zip(*known, strict=True) for each in row]
            return [of_known(inside[k * lanes : (k + 1) * lanes]) for k in range(self.count)]
        length = self.parts[0].length
        if length is None or any(part.mask != self.parts[0].mask for part in self.parts):
            return None
        return [first_lanes(b, length.scaled(self.count) - number(k * lanes), lanes) for k in range(self.count)]


def interleaved_buffer(loop: For, is_numbered: bool) -> str | None:
    """Return the buffer that an unrolled loop of few copies stores to, where each copy does nothing but to compute and to store vectors,
    and its number alone says which, a constant where the loop `is_numbered`; None for any other loop."""
    match loop:
        case For(body=(For(kind="vector", body=body),)) if 1 < (loop.extent or 0) <= MOST_ELEMENTS:
            stored = list(_stored(body, frozenset((loop.var,)) if is_numbered else frozenset()))
            reading = {n.buffer for n in walk(*loop.body) if isinstance(n, Load)}
            simple = None not in stored and len({*stored}) == 1 and not reading & {*stored}
            return stored[0] if simple else None
        case _:
            return None


def _stored(body: Sequence[Stmt], known: frozenset[str]) -> Iterator[str | None]:
    """Yield the buffers that statements store to, and None for one that does something else. Conditions are those that variables decide
    which are `known` when code is written."""
    for s in body:
        match s:
            case Let():
                pass
            case Store(buffer, stream=False):
                yield buffer
            case If(cond, then, orelse) if _is_decided(cond) and free_vars(cond) <= known:
                yield from _stored((*then, *orelse), known)
            case _:
                yield None


def _is_decided(cond: Expr) -> bool:
    """Tell whether indices alone decide a condition."""
    match cond:
        case Binary("and" | "or", lhs, rhs):
            return _is_decided(lhs) and _is_decided(rhs)
        case Unary("not", inner):
            return _is_decided(inner)
        case Compare(_, lhs, rhs):
            sides = all(isinstance(side, IndexValue) or (isinstance(side, Const) and side.dtype == i64) for side in (lhs, rhs))
            return sides and not any(isinstance(n, ValueIndex) for n in walk(cond))
        case _:
            return False


def in_rows(b: Builder, texts: Sequence[str], element: str, lanes: int) -> Iterator[str]:
    """Yield the vectors of whole rows, in order: `texts[c]` holds element c of each. Of an even number of elements, every other one is put
    together first, and then the two halves: a vector takes a shuffle for each halving, and one less than there are elements left."""
    count, vector = len(texts), of_lanes(element, lanes)
    if count % 2 == 0 and lanes % 2 == 0:
        even, odd = (list(in_rows(b, texts[k::2], element, lanes)) for k in range(2))
        for part in range(count):
            half = part % 2 * (lanes // 2)
            order = ", ".join(f"i32 {half + k}, i32 {lanes + half + k}" for k in range(lanes // 2))
            yield b.pure(f"shufflevector {vector} {even[part // 2]}, {vector} {odd[part // 2]}, <{lanes} x i32> <{order}>")
        return
    for part in range(count):
        places = [divmod(part * lanes + k, count) for k in range(lanes)]
        made = texts[0]
        for c in range(1, count):
            # What is of elements before c lies in place already, but in the first shuffle.
            picks = [lanes + row if at == c else (row if c == 1 else k) if at < c else -1 for k, (row, at) in enumerate(places)]
            order = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in picks)
            made = b.pure(f"shufflevector {vector} {made}, {vector} {texts[c]}, <{lanes} x i32> <{order}>")
        yield made
