"""Copies into shared memory as bulk copies of boxes of tensors, which one thread starts: what `stages n boxes` on a loop means.

    for k in 0 .. K (stages 3 boxes) {                   alloc a_s: bf16[3, 128, 64] shared;  alloc full: u64[3] shared
        alloc a_s: bf16[128, 64] shared                  boxes full[0] a_s[0, 0, 0] = a[…, 0] by [128, 64]
        for i in 0 .. 128 { for c in 0 .. 64 {           boxes full[1] a_s[1, 0, 0] = a[…, 64] by [128, 64]
            a_s[i, c] = select(…, a[…], 0)          →    for k in 0 .. K {
        }}                                                   wait full[k]
        … a_s[…] …                                           if k + 2 < K { boxes full[k + 2] a_s[(k + 2) % 3, 0, 0] = … }
    }                                                        … a_s[k % 3, …] …

Which nests are boxes `codegen.gpu.copied_boxes` says. Group g of boxes is the one of iteration g, and counts at barrier g % n;
`tensorlang.lower.barriers` proves that it has landed where it is read, and that nobody reads what the next one overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import lcm, prod

from codegen.errors import Unfit
from codegen.gpu.copied_boxes import alignment, boxes_of
from codegen.loops.indices import Range
from codegen.loops.nodes import (
    Add,
    Alloc,
    Boxes,
    Buffer,
    Expr,
    For,
    If,
    Index,
    Int,
    Load,
    Mul,
    Stmt,
    Store,
)
from codegen.loops.notes import Staged
from codegen.loops.walk import children, map_expr, map_stmt, walk


def use_bulk_copies(body: tuple[Stmt, ...], device: Mapping[str, Buffer], ranges: Mapping[str, Range]) -> tuple[Stmt, ...]:
    """Return what a block runs with the copies of loops marked `boxes` as bulk copies; `ranges`: of the function's loops. Raises Unfit for
    copies that are none."""
    written = {n.buffer for n in walk(*body) if isinstance(n, Store)}

    def stmt(s: Stmt) -> Stmt:
        match s:
            case For() if (staged := s.note(Staged)) is not None and staged.boxes:
                return _copied(s, device, written, ranges)
            case For():
                return replace(s, body=tuple(map(stmt, s.body)))
            case If(_, then, orelse):
                return replace(s, then=tuple(map(stmt, then)), orelse=tuple(map(stmt, orelse)))
            case _:
                return s

    return tuple(map(stmt, body))


def _copied(loop: For, device: Mapping[str, Buffer], written: set[str], ranges: Mapping[str, Range]) -> For:
    """Return a loop with its copies as boxes; `written` is what its block stores to."""
    targets = {s.buffer.name: s.buffer for s in loop.body if isinstance(s, Alloc) and s.buffer.space == "shared"}
    out: list[Stmt] = []
    for s in loop.body:
        stores = [n for n in walk(s) if isinstance(n, Store)]
        if isinstance(s, For) and len(stores) == 1 and stores[0].buffer in targets:
            out.append(Boxes("", Int(0), boxes_of(s, targets, device, written, ranges)))
        else:
            out.append(s)
    if not any(isinstance(s, Boxes) for s in out):
        raise Unfit(f"`{loop.var}` copies nothing into shared memory that could be boxes of tensors", loop.var)
    return replace(loop, body=tuple(_in_whole_patterns(tuple(out), targets)))


def _in_whole_patterns(body: tuple[Stmt, ...], targets: Mapping[str, Buffer]) -> Iterator[Stmt]:
    """Yield what a loop does where each box begins at a place that the hardware takes, in the next stage, too: a buffer that ends elsewhere
    becomes one of rows, some more than are used."""
    copied = {b.target.buffer for s in body if isinstance(s, Boxes) for b in s.boxes}
    longer = {name: rows for name in copied if (rows := _whole_rows(targets[name])) is not None}

    def place(buffer: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        *rows, column = index
        row: Index = Int(0)
        for e, extent in zip(rows, targets[buffer].shape, strict=False):
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


def _whole_rows(buffer: Buffer) -> int | None:
    """Return how many rows fill whole patterns, where those of a buffer do not."""
    extents = [e.value for e in buffer.shape if isinstance(e, Int)]
    rows, row_bytes = prod(extents[:-1]), extents[-1] * buffer.dtype.size_bytes
    unit = lcm(row_bytes, alignment(buffer)) // row_bytes
    return None if rows % unit == 0 else -(-rows // unit) * unit


def accessed_directly(body: tuple[Stmt, ...]) -> frozenset[str]:
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
