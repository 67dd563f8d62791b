"""Copies into shared memory as boxes of tensors, which one thread asks for: what `stages n boxes` on a loop wants.

    for k in 0 .. K stages 3 boxes {                     alloc a_s: bf16[3, 128, 64] shared;  alloc full: u64[3] shared
        alloc a_s: bf16[128, 64] shared                  boxes full[0] a_s[0, 0, 0] = a[…, 0] by [128, 64]
        for i in 0 .. 128 { for c in 0 .. 64 {           boxes full[1] a_s[1, 0, 0] = a[…, 64] by [128, 64]
            a_s[i, c] = select(…, a[…], 0)          →    for k in 0 .. K {
        }}                                                   landed full[k]
        … a_s[…] …                                           if k + 2 < K { boxes full[k + 2] a_s[(k + 2) % 3, 0, 0] = … }
    }                                                        … a_s[k % 3, …] …

Which nests are boxes `codegen.gpu.copied_boxes` says. Group g of boxes is the one of iteration g, and counts at barrier g % n;
`tensorlang.lower.barriers` proves that it has landed where it is read, and that nobody reads what the next one overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import TypeGuard

from codegen.dtypes import u64
from codegen.errors import Unfit
from codegen.gpu.copied_boxes import alignment, boxes_of
from codegen.loops.indices import Range
from codegen.loops.nodes import (
    Add,
    Alloc,
    Boxes,
    Buffer,
    Compare,
    Expr,
    For,
    If,
    Index,
    IndexValue,
    Int,
    Landed,
    Load,
    Mod,
    Mul,
    Stmt,
    Store,
    Var,
)
from codegen.loops.walk import Fresh, children, map_expr, map_stmt, substitute_index, walk


def boxed(body: tuple[Stmt, ...], device: Mapping[str, Buffer], ranges: Mapping[str, Range]) -> tuple[Stmt, ...]:
    """Return `body` with the copies of loops that ask for boxes as such; `ranges`: of the function's loops. Raises Unfit for copies
    that are none."""
    return tuple(_stmt(s, device, ranges, repeated=False) for s in body)


def _stmt(s: Stmt, device: Mapping[str, Buffer], ranges: Mapping[str, Range], *, repeated: bool) -> Stmt:
    match s:
        case For(boxes=True):
            if repeated:
                raise Unfit(f"not supported yet: boxes of tensors in `{s.var}`, which runs more than once in a block", s.var)
            return _copied(s, device, ranges)
        case For():
            return replace(s, body=tuple(_stmt(inner, device, ranges, repeated=True) for inner in s.body))
        case If(_, then, orelse):
            parts = (tuple(_stmt(inner, device, ranges, repeated=True) for inner in part) for part in (then, orelse))
            return If(s.cond, *parts)
        case _:
            return s


def _copied(loop: For, device: Mapping[str, Buffer], ranges: Mapping[str, Range]) -> For:
    """Return a loop with its copies as boxes."""
    homes = {s.buffer.name: s.buffer for s in loop.body if isinstance(s, Alloc) and s.buffer.space == "shared"}
    written = {n.buffer for n in walk(loop) if isinstance(n, Store)}
    out: list[Stmt] = []
    for s in loop.body:
        stores = [n for n in walk(s) if isinstance(n, Store)]
        if isinstance(s, For) and len(stores) == 1 and stores[0].buffer in homes:
            out.append(Boxes("", Int(0), boxes_of(s, homes, device, written, ranges)))
        else:
            out.append(s)
    if not any(isinstance(s, Boxes) for s in out):
        raise Unfit(f"`{loop.var}` copies nothing into shared memory that could be boxes of tensors", loop.var)
    return replace(loop, body=tuple(_in_whole_patterns(tuple(out), homes)))


def _in_whole_patterns(body: tuple[Stmt, ...], homes: Mapping[str, Buffer]) -> Iterator[Stmt]:
    """Yield what a loop does where each box begins at a place that the hardware takes, in the next stage, too: a buffer that ends elsewhere
    becomes one of rows, some more than are used."""
    landing = {b.target.buffer for s in body if isinstance(s, Boxes) for b in s.boxes}
    longer = {name: rows for name in landing if (rows := _whole_rows(homes[name])) is not None}

    def place(buffer: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        *rows, column = index
        row: Index = Int(0)
        for e, extent in zip(rows, homes[buffer].shape, strict=False):
            row = Add(Mul(row, extent), e)
        return row, column

    def expr(e: Expr) -> Expr:
        new = map_expr(e, lambda i: i, expr)
        return replace(new, index=place(new.buffer, new.index)) if isinstance(new, Load) and new.buffer in longer else new

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Alloc) and s.buffer.name in longer:
            return Alloc(replace(s.buffer, shape=(Int(longer[s.buffer.name]), s.buffer.shape[-1])))
        return map_stmt(s, lambda i: i, expr, stmt)

    return map(stmt, body) if longer else iter(body)


def _whole_rows(home: Buffer) -> int | None:
    """Return how many rows fill whole patterns, where those of a buffer do not."""
    extents = [e.value for e in home.shape if isinstance(e, Int)]
    rows, row_bytes = prod(extents[:-1]), extents[-1] * home.dtype.size_bytes
    unit = lcm(row_bytes, alignment(home)) // row_bytes
    return None if rows % unit == 0 else -(-rows // unit) * unit


# ---------------------------------------------------------------- in stages


@dataclass(frozen=True, slots=True)
class Ahead:
    """What stands before a loop, in the beginning of each of its iterations, and what is left of it."""

    before: tuple[Stmt, ...]
    begin: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]
    landing: frozenset[str]


def staged(loop: For, fresh: Fresh) -> Ahead:
    """Return the boxes of a loop some iterations ahead. Where they land, and what reads it, does not say which stage yet."""
    boxes = tuple(box for s in loop.body if isinstance(s, Boxes) for box in s.boxes)
    landing = frozenset(box.target.buffer for box in boxes)
    rest = tuple(s for s in loop.body if not isinstance(s, Boxes) and not _is_home(s, landing))
    stores = {n.buffer for s in rest for n in walk(s) if isinstance(n, Store)}
    if stores & landing:
        raise Unfit(f"not supported yet: `{min(stores & landing)}`, a box of a tensor, is written by threads too", loop.var)
    barriers = Buffer(fresh("full"), u64, (Int(loop.stages),), "shared", 8)
    homes = [s.buffer for s in loop.body if _is_home(s, landing)]
    allocs = tuple(Alloc(replace(b, shape=(Int(loop.stages), *b.shape))) for b in homes)
    number = Add(Var(loop.var), Mul(Int(-1), loop.lo))
    before: list[Stmt] = [*allocs, Alloc(barriers)]
    for ahead in range(loop.stages - 1):
        at = Add(loop.lo, Int(ahead))
        before.append(_if(at, loop, _at(Boxes(barriers.name, Int(ahead), boxes), loop, at, Int(ahead))))
    later = Add(Var(loop.var), Int(loop.stages - 1))
    group = Add(number, Int(loop.stages - 1))
    more = _at(Boxes(barriers.name, group, boxes), loop, later, Mod(group, Int(loop.stages)))
    return Ahead(tuple(before), (Landed(barriers.name, number), _if(later, loop, more)), rest, landing)


def _is_home(s: Stmt, landing: frozenset[str]) -> TypeGuard[Alloc]:
    return isinstance(s, Alloc) and s.buffer.name in landing


def _if(at: Index, loop: For, boxes: Boxes) -> Stmt:
    return If(Compare("<", IndexValue(at), IndexValue(loop.hi)), (boxes,))


def _at(boxes: Boxes, loop: For, at: Index, stage: Index) -> Boxes:
    """Return boxes as iteration `at` copies them, to `stage`."""
    moved = (
        replace(
            b,
            target=Load(b.target.buffer, (stage, *b.target.index)),
            source=Load(b.source.buffer, tuple(substitute_index(e, {loop.var: at}) for e in b.source.index)),
        )
        for b in boxes.boxes
    )
    return Boxes(boxes.barriers, boxes.group, tuple(moved))


def touched_otherwise(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Return the buffers in `body` that are loaded or stored other than as boxes."""
    found: set[str] = set()
    pending: list[object] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, Boxes):
            continue
        if isinstance(node, Load | Store):
            found.add(node.buffer)
        pending.extend(children(node))  # type: ignore[arg-type]
    return frozenset(found)
