"""Persistent kernels: a grid of a given size, each block of which goes through several blocks of the grid there was.

    for i in 0 .. 8 block.y (persistent 5) {     for b in 0 .. 5 block.x {
        for j in 0 .. 4 block.x {                    for wave in 0 .. (36 - b) // 5 {
            …i…j…                           →            …(5*wave + b) // 4…(5*wave + b) % 4…
        }                                            }
    }                                            }

Blocks may run at the same time, so they may run one after another in any order. What their threads share is another matter: the barriers
between tiles are put and proven as all others are.
"""

from __future__ import annotations

from math import prod

from codegen.errors import Unfit
from codegen.gpu.launches import BlockLoop, map_launches
from codegen.loops.nodes import Add, Compare, Expr, FloorDiv, For, Function, If, Index, IndexValue, Int, Min, Mod, Mul, Stmt, Var
from codegen.loops.notes import Clustered, Note, Persistent, note_of
from codegen.loops.simplify import simplify
from codegen.loops.walk import Fresh, fresh_for, noted_loops, substitute

_PLACES = ("block.x", "block.y", "block.z")


def make_persistent(function: Function) -> Function:
    """Return `function` with no more blocks in a launch than notes on its loops over blocks ask for.

    Raises Unfit where how many blocks there are along an inner axis of the grid is only counts at run time."""
    if not any(noted_loops(Persistent, *function.body)):
        return function
    fresh = fresh_for(function)

    def launch(blocks: tuple[BlockLoop, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...] | None:
        counts = [note.blocks for b in blocks if (note := note_of(b.notes, Persistent)) is not None]
        return (_persistent(min(counts), blocks, body, fresh),) if counts else None

    return simplify(map_launches(function, launch))


def _cluster_notes(most: int, by: list[BlockLoop]) -> tuple[Note, ...]:
    """Return the note that as many blocks that follow each other are a cluster as before."""
    along = next((b for b in by if b.cluster > 1), None)
    if along is None:
        return ()
    if along is not by[0] or most % along.cluster:
        raise Unfit(f"{most} persistent blocks are no whole clusters of {along.cluster} along `{along.var}`", along.var)
    return tuple(note for note in along.notes if isinstance(note, Clustered))


def _persistent(most: int, blocks: tuple[BlockLoop, ...], body: tuple[Stmt, ...], fresh: Fresh) -> Stmt:
    by = sorted(blocks, key=lambda b: _PLACES.index(b.place))
    *inner, outer = by
    counts = [b.count.value for b in inner if isinstance(b.count, Int)]
    if len(counts) < len(inner):
        unknown = next(b.var for b in inner if not isinstance(b.count, Int))
        raise Unfit(f"not supported yet: persistent blocks, with a number of `{unknown}` that is only counts at run time", unknown)
    clusters = _cluster_notes(most, by)
    total: Index = Mul(outer.count, Int(prod(counts)))
    block, wave = fresh("b"), fresh("wave")
    left: Index = Add(Mul(Int(most), Var(wave)), Var(block))
    where: dict[str, Index] = {}
    for b in by:
        count = b.count.value if isinstance(b.count, Int) and b is not outer else None
        where[b.var] = Add(b.lo, left if count is None else Mod(left, Int(count)))
        left = left if count is None else FloorDiv(left, Int(count))
    for b in blocks:
        where[b.var] = substitute(where[b.var], where)
    inside = tuple(substitute(s, where) for s in body)
    for b in reversed(blocks):
        if not b.exact:
            below: Expr = Compare("<", IndexValue(where[b.var]), IndexValue(substitute(b.hi, where)))
            inside = (If(below, inside),)
    times = FloorDiv(Add(Add(total, Mul(Int(-1), Var(block))), Int(most - 1)), Int(most))
    return For(block, Int(0), Min(Int(most), total), (For(wave, Int(0), times, inside),), "block.x", most, clusters)
