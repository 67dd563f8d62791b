"""Reading across rows: a square of elements is loaded by rows and transposed in registers.

    before   for i in 0 .. 16 unroll { for j in 0 .. 16 vector { … x[j, i] … } }      16 times 16 scalar loads
    after    the rows x[j, 0 .. 16] in pieces of 16 bytes, put together and shuffled: vector i is what copy i of the body reads

Only where every copy of the body reads its vector whatever happens, so that no element is touched that was not asked for. Where lanes are
left out, the rows of these are not touched. Where it is open how many copies run, their columns are loaded a few at a time, under masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from codegen.llvm.builder import Builder
from codegen.llvm.facts import Poly
from codegen.llvm.values import of_lanes
from codegen.loops.nodes import Binary, Expr, For, If, Let, Load, Select, Stmt, Store
from codegen.loops.walk import binders, children, free_vars, statements, walk

MOST_COPIES = 16
"""Of loops whose copies read together: as many as the lanes of the widest squares."""
LANE_BYTES = 16
"""Shuffles within so many bytes are cheap."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The unrolled loop around: `step` is how far from the loop's first copy this one is, `loads` what every copy surely reads that runs.
    `limit`: how many of them run, where that is open; each runs inside of where the one before does."""

    var: str
    step: int
    count: int
    loads: frozenset[Load]
    limit: Poly | None = None


def unconditional_loads(loop: For) -> frozenset[Load]:
    """Return the loads inside vector loops of `loop` that happen in every copy of it, in as many lanes, whatever the data. What reads the
    same in another vector loop is told from them by nobody, and has to happen there, too."""
    of_a_copy = frozenset((loop.var, *binders(*loop.body)))
    found = [pair for stmt in loop.body for pair in _in_vectors(stmt, of_a_copy, True)]
    return frozenset(load for sure, _ in found for load in sure if all(load in others for others, loads in found if load in loads))


def read_across(loop: For, loads: frozenset[Load]) -> frozenset[Load]:
    """Return those loads whose neighbours copies of `loop` read, and lanes do not."""
    lanes = {s.var for s in statements(*loop.body) if isinstance(s, For) and s.kind == "vector"}
    return frozenset(e for e in loads if e.index and loop.var in (names := free_vars(e.index[-1])) and not names & lanes)


def _in_vectors(stmt: Stmt, of_a_copy: frozenset[str], surely: bool) -> Iterator[tuple[frozenset[Load], frozenset[Load]]]:
    """Yield for each vector loop the loads that surely happen, in as many lanes in each copy, and all loads."""
    match stmt:
        case For(_, lo, hi, body, kind):
            surely = surely and kind in ("vector", "unroll") and not free_vars(lo, hi) & of_a_copy
            if kind == "vector":
                sure = frozenset(load for s in body for load in _executed(s, of_a_copy)) if surely else frozenset()
                yield sure, frozenset(n for n in walk(*body) if isinstance(n, Load))
            else:
                for s in body:
                    yield from _in_vectors(s, of_a_copy, surely)
        case If(_, then, orelse):
            for s in (*then, *orelse):
                yield from _in_vectors(s, of_a_copy, False)
        case _:
            return


def _executed(stmt: Stmt, of_a_copy: frozenset[str]) -> list[Load]:
    """Return the loads of a statement of a vector loop that happen in every copy and in all lanes."""
    match stmt:
        case For(lo=lo, hi=hi, body=body, kind="vector" | "unroll") if not free_vars(lo, hi) & of_a_copy:
            return [load for s in body for load in _executed(s, of_a_copy)]
        case Store(value=value) | Let(value=value):
            return _unconditional(value)
        case _:
            return []


def _unconditional(e: Expr) -> list[Load]:
    match e:
        case Load():
            return [e]
        case Select(cond, _, _):
            return _unconditional(cond)
        case Binary("and" | "or", lhs, _):
            return _unconditional(lhs)
        case _:
            return [load for child in children(e) for load in _unconditional(child)]  # type: ignore[arg-type]  # of an expression


def columns_together(size_bytes: int, rows: int, columns: int) -> int:
    """Return how many elements of each of so many rows, a power of two, are loaded at once where so many are at most."""
    return 1 << max(0, min(rows, LANE_BYTES // size_bytes, columns).bit_length() - 1)


def transpose(b: Builder, piece: Callable[[int, int, int], str], element: str, size_bytes: int, rows: int, columns: int) -> list[str]:
    """Return the columns of a rectangle of so many rows, a power of two. `piece(row, start, length)` loads a part of a row. The last
    columns are loaded with some of those before them, so that all parts are equally long."""
    per_lane = columns_together(size_bytes, rows, columns)
    found: list[str] = []
    for start in (min(first, columns - per_lane) for first in range(0, columns, per_lane)):
        pieces = [[piece(row, start, per_lane) for row in range(first, rows, per_lane)] for first in range(per_lane)]
        turned = _transpose_lanes(b, [joined(b, p, element, per_lane) for p in pieces], element, rows, per_lane)
        found += turned[len(found) - start :]
    return found


def joined(b: Builder, pieces: list[str], element: str, length: int) -> str:
    """Return the pieces, vectors of so many elements, one after the other; there are a power of two of them."""
    while len(pieces) > 1:
        picks = list(range(2 * length))
        pieces = [_shuffle(b, pieces[i], pieces[i + 1], picks, element, length) for i in range(0, len(pieces), 2)]
        length *= 2
    return pieces[0]


def _transpose_lanes(b: Builder, rows: list[str], element: str, count: int, per_lane: int) -> list[str]:
    """Return vector c with, in each lane of `per_lane` elements, element c of that lane of every row: perfect shuffles."""
    half = per_lane // 2
    low = [k for start in range(0, count, per_lane) for i in range(half) for k in (start + i, count + start + i)]
    high = [k + half for k in low]
    width = len(rows)
    while width > 1:
        pairs = [(rows[i], rows[i + half]) for i in range(half)]
        rows = [_shuffle(b, x, y, picks, element, count) for x, y in pairs for picks in (low, high)]
        width //= 2
    return rows


def _shuffle(b: Builder, x: str, y: str, picks: list[int], element: str, length: int) -> str:
    vector = of_lanes(element, length)
    return b.pure(f"shufflevector {vector} {x}, {vector} {y}, <{len(picks)} x i32> <{', '.join(f'i32 {k}' for k in picks)}>")
