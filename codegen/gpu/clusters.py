"""Blocks that run as one cluster, and the boxes of tensors that they share.

    for i in 0 .. 8 block.x 8 (cluster 2) {       two blocks run at the same time
        …
        boxes full[…] b_s[…] = b[…] by [64, 64] cluster 2     each asks for 32 rows; all 64 arrive at both, and count at both barriers
    }

That blocks of a cluster ask for the same box at the same time, and that none of them overwrites what another still reads, is for
`tensorlang.lower.clusters` to prove.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import prod

from codegen.errors import Unfit
from codegen.gpu.copied_boxes import alignment
from codegen.gpu.launches import launches, map_blocks
from codegen.loops.indices import simplify_index
from codegen.loops.nodes import Add, Alloc, Box, Boxes, Buffer, Function, Int, Mul, Producer, Reclaim, Release, Stmt
from codegen.loops.notes import Clustered, Multicast
from codegen.loops.walk import map_stmt, noted_buffers, noted_loops, walk


def check_clusters(function: Function) -> None:
    """Raise Unfit where a grid has no whole clusters."""
    for loop, clustered in noted_loops(Clustered, *function.body):
        var, width = loop.var, simplify_index(Add(loop.hi, Mul(Int(-1), loop.lo)), {})
        if not isinstance(width, Int):
            why = f"not supported yet: a cluster along `{var}`, of which the number of blocks is counts only when it runs"
            raise Unfit(why, var, note=clustered)
        if width.value % clustered.blocks:
            why = f"the grid has {width.value} blocks along `{var}`, which are no whole clusters of {clustered.blocks}"
            raise Unfit(why, var, note=clustered)


def share_copies_in_cluster(function: Function) -> Function:
    """Return `function` with the boxes that go to multicast buffers shared by the blocks of each cluster.

    Raises Unfit for boxes that cannot be cut into as many parts, and for ones of blocks that are no cluster."""
    copies = {buffer.name for buffer, _ in noted_buffers(Multicast, *function.body)}
    if not copies:
        return function

    blocks = iter(launches(function).blocks)

    def body(inside: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        along = next(blocks).cluster_loop
        count = 1 if along is None else along.cluster
        given_back = frozenset(_given_back(inside, copies))
        targets = {n.buffer.name: n.buffer for n in walk(*inside) if isinstance(n, Alloc)}

        def stmt(s: Stmt) -> Stmt:
            new = map_stmt(s, lambda i: i, lambda e: e, stmt)
            match new:
                case Boxes(boxes=boxes):
                    return replace(new, boxes=tuple(_shared(b, count, targets) if b.target.buffer in copies else b for b in boxes))
                case Release(barriers=barriers) if barriers in given_back:
                    return replace(new, blocks=count)
                case _:
                    return new

        return tuple(map(stmt, inside))

    return map_blocks(function, body)


def _given_back(body: tuple[Stmt, ...], copies: Collection[str]) -> Iterator[str]:
    """Yield the barriers at which the places of shared boxes are given back."""
    for producer in (n for n in walk(*body) if isinstance(n, Producer)):
        inside = list(walk(*producer.body))
        if any(b.target.buffer in copies for n in inside if isinstance(n, Boxes) for b in n.boxes):
            yield from (n.barriers for n in inside if isinstance(n, Reclaim))


def _shared(box: Box, blocks: int, targets: Mapping[str, Buffer]) -> Box:
    name, extent = box.target.buffer, box.extents[box.parted]
    note = targets[name].note(Multicast)
    if blocks == 1:
        raise Unfit(f"the blocks that copy `{name}` are no cluster", name, note=note)
    if extent % blocks:
        raise Unfit(f"{blocks} blocks cannot share `{name}`: {extent} is no multiple of {blocks}", name, note=note)
    part = prod(box.extents) // blocks * targets[name].dtype.size_bytes
    if part % alignment(targets[name]):
        why = f"a part of {part} bytes does not begin at a multiple of {alignment(targets[name])}"
        raise Unfit(f"{blocks} blocks cannot share `{name}`: {why}", name, note=note)
    return replace(box, blocks=blocks)
