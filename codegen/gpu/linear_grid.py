"""Grids that are longer along y or z than devices allow become one line of blocks.

    for i in 0 .. 70000 block.z {            for b in 0 .. 280000 block.x {
        for j in 0 .. 4 block.x {       →        …b // 4…b % 4…
            …i…j…                            }
        }
    }

Along x a grid may have 2**31 - 1 blocks, along the others 65535, on every device.
"""

from __future__ import annotations

from math import prod

from codegen.gpu.launches import BlockLoop, map_launches
from codegen.loops.nodes import Add, Compare, FloorDiv, For, Function, If, Index, IndexValue, Int, Mod, Stmt, Var
from codegen.loops.simplify import simplify
from codegen.loops.walk import fresh_for, substitute

MOST = 65535
"""Blocks along y, and along z."""


def linearize(function: Function) -> Function:
    """Return `function` with such grids in one line, where their extents are constants and their blocks are no clusters."""
    fresh, changed = fresh_for(function), False

    def launch(blocks: tuple[BlockLoop, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...] | None:
        nonlocal changed
        counts = {b.place: b.count.value for b in blocks if isinstance(b.count, Int)}
        long = any(count > MOST for place, count in counts.items() if place != "block.x")
        if not long or len(counts) < len(blocks) or any(b.cluster > 1 for b in blocks):
            return None
        changed = True
        return (_line(blocks, body, fresh("b")),)

    made = map_launches(function, launch)
    return simplify(made) if changed else function


def _line(blocks: tuple[BlockLoop, ...], body: tuple[Stmt, ...], block: str) -> Stmt:
    by = sorted(blocks, key=lambda b: b.place)
    counts = [b.count.value for b in by if isinstance(b.count, Int)]
    where: dict[str, Index] = {}
    left: Index = Var(block)
    for b, count in zip(by, counts, strict=True):
        where[b.var] = Add(b.lo, left if b is by[-1] else Mod(left, Int(count)))
        left = FloorDiv(left, Int(count))
    for b in blocks:
        where[b.var] = substitute(where[b.var], where)
    inside = tuple(substitute(s, where) for s in body)
    for b in reversed(blocks):
        if not b.exact:
            inside = (If(Compare("<", IndexValue(where[b.var]), IndexValue(substitute(b.hi, where))), inside),)
    return For(block, Int(0), Int(prod(counts)), inside, "block.x", prod(counts))
