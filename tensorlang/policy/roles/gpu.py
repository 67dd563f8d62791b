"""What definitions look like to the schedule of a role for a device.

On a device (`for cuda`) the roles are

    contraction(y, a, b; batch.., i.., j.., k.., c..)   j ends in the axis along which y is contiguous, whatever the operands are; c is the
                                                        longest reduction (among k where no c is named)
    convolution(y, a, b; batch.., i.., n.., h.., j, k.., c)
                                                        the same where b is read in windows: j is the axis along which y is contiguous, h
                                                        another with windows, n those without, c the longest reduction outside of windows
    warp_product(y, a, b; batch.., i.., j.., k.., c)    the same of types that warps multiply in matrices
    warpgroup_product(y, a, b; batch.., i.., j.., k.., c)
                                                the same where four warps multiply together, and both operands lie along the sum
    warp_convolution(y, a, b; batch.., n.., h.., i, j.., k.., c)
                                                windows of a around points i of lines h, whose channels c lie next to each other
    warp_unfolded(y, a, b; batch.., i.., j.., k..)
                                                the same, where points of all lines and samples are rows of one product; k go through
                                                windows place by place, the channels at each
    warpgroup_unfolded(y, a, b; batch.., i.., j.., k..)
                                                the same by four warps together
    windowed(y, a; n.., h.., i, j, k.., s)      windows of a around points i of lines h, for each channel j by itself, along which a and y
                                                lie in memory; s are places of a window along a line, k the others
    pointwise(y, p..; i.., j.., k.., x..)       any tensor, several elements along j for each thread; p are read along x (transpositions)
    reduction(y; i.., r.., k..)                 a team of threads for each element of y, along r; k are its other binders
    row_reduction(y, t.., p..; i.., j.., r..)   several tensors computed together, a team of threads for each row i; j and r run along
                                                it; p are read by more than one of them
    long_row_reduction(y, t..; i.., j.., r..)   the same where rows are too long for registers: what is read again is loaded again

and guards may ask for `lanes` (elements that one thread loads and stores at once), `threads` (of a block), `team` (threads of a row),
`rows` (teams of a block) and `tile` (the side of a transposed square). Of a contraction they may ask for `i.warps`, `i.lanes`, `i.times`
and `i.each` (along the last of i: a block's tile is their product, a thread's `times` groups of `each` neighbours), the same of j, of a
convolution also of h, `c.block` (how much of the sum to copy at a time), `buffers` (2 where that is not all of it, else 1), and `a.unit`,
`b.unit`: whether the operand is contiguous along the last of i, or j. Of a product of warps: `i.warps`, `i.times` and `i.each` (a block
has so many warps along the last of i, each of them so many matrices of so many rows), the same of j, `i.block` (how many rows of tiles
blocks go through together), `c.each` (of the sum of one matrix), `c.block`, `buffers` (stretches of the sum that are copied or on their
way) and `span` (bytes of a row of a copy); where four warps multiply together, `i.warps` counts those groups, `j.each` are all columns of a
block, `boxes` tells whether both operands are copied as boxes of tensors, `beside` whether a thread beside the others should ask for them,
and `turns` is how many blocks should take turns with the tiles, 0 where each is a block's own. Of windows: `i.times` (points that a thread
computes), `h.block`, `i.block` and `j.block` (threads of a block along each).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu import access
from tensorlang.policy.gpu.depthwise import windowed
from tensorlang.policy.gpu.product_shapes import Product, Windows, product, windows
from tensorlang.policy.gpu.tiles import Side
from tensorlang.policy.gpu.warp_convolutions import warp_windows
from tensorlang.policy.gpu.warp_implicit_gemm import warp_unfolded
from tensorlang.policy.gpu.warp_products import device_of, warp_product
from tensorlang.policy.gpu.warpgroup_implicit_gemm import warpgroup_unfolded
from tensorlang.policy.gpu.warpgroup_products import ROW_BYTES, warpgroup_product
from tensorlang.policy.groups import Cluster
from tensorlang.policy.roles.parameters import Facts, Form, Loops, Shape, full


def _elements(d: Deriver, cluster: Cluster) -> Shape | None:
    found = access.elements(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.outer, found.along, found.binders, found.crossing)
    return Shape(((own,), found.crossed), tuple(full(own, c) for c in classes), found.lanes, own={"tile": found.tile, "rows": found.rows})


def _sums(d: Deriver, cluster: Cluster) -> Shape | None:
    found = access.sums(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    classes = (cluster.head.axes, found.along, found.others)
    facts = {"team": found.team, "rows": found.rows}
    return Shape(((own,),), tuple(full(own, c) for c in classes), found.lanes, own=facts)


def _teams(d: Deriver, cluster: Cluster) -> Shape | None:
    found = access.rows(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    members = tuple(m.tensors[0].name for m in cluster.members if m is not cluster.head)
    classes = (full(own, cluster.head.axes[: cluster.depth]), found.along, found.reduced)
    facts = {"team": found.team, "rows": found.rows}
    return Shape(((own,), members, found.reread), classes, found.lanes, own=facts)


def _teams_far(d: Deriver, cluster: Cluster) -> Shape | None:
    found = access.long_rows(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    members = tuple(m.tensors[0].name for m in cluster.members if m is not cluster.head)
    classes = (full(own, cluster.head.axes[: cluster.depth]), found.along, found.reduced)
    return Shape(((own,), members), classes, found.lanes, own={"team": found.team})


def _product(d: Deriver, cluster: Cluster) -> Shape | None:
    found = product(d, cluster.head) if len(cluster.members) == 1 else None
    if found is None:
        return None
    classes = (found.batch, found.a.axes, found.b.axes, found.others, (found.deep,), ())
    return _multiplied(cluster, found, classes, {"i": found.tiles.rows, "j": found.tiles.columns})


def _windows(d: Deriver, cluster: Cluster) -> Shape | None:
    found = windows(d, cluster.head) if len(cluster.members) == 1 else None
    if found is None:
        return None
    classes = (found.batch, found.a.axes, found.outer, found.height, (found.width,), found.others, (found.deep,))
    return _multiplied(cluster, found, classes, {"i": found.tiles.rows, "h": found.tiles.height, "j": found.tiles.width})


def _multiplied(cluster: Cluster, found: Product | Windows, classes: Sequence[Loops], sides: Mapping[str, Side]) -> Shape:
    own = cluster.head.tensors[0].name
    facts: dict[str, Facts] = {n: {"warps": s.warps, "lanes": s.lanes, "times": s.times, "each": s.each} for n, s in sides.items()}
    facts |= {"c": {"block": found.tiles.depth}, "a": {"unit": found.a.unit}, "b": {"unit": found.b.unit}}
    tensors = ((own,), (found.a.read.tensor,), (found.b.read.tensor,))
    shape = Shape(tensors, tuple(full(own, c) for c in classes), 4, facts)
    return replace(shape, own={"buffers": 2 if found.long else 1})


def _by_warps(d: Deriver, cluster: Cluster) -> Shape | None:
    found = warp_product(d, cluster)
    if found is None or warp_unfolded(d, cluster) is not None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.batch, found.a.axes, found.b.axes, found.others, (found.deep,))
    rows, columns = found.rows, found.columns
    facts: dict[str, Facts] = {
        "a": {"unit": found.a.unit},
        "b": {"unit": found.b.unit},
        "i": {"warps": rows.warps, "times": rows.times, "each": rows.each, "block": found.stripe},
        "j": {"warps": columns.warps, "times": columns.times, "each": columns.each},
        "c": {"block": found.block, "each": found.instruction.shape[2]},
    }
    tensors = ((own,), (found.a.read.tensor,), (found.b.read.tensor,))
    shape = Shape(tensors, tuple(full(own, c) for c in classes), 4, facts)
    return replace(shape, own={"buffers": found.buffers, "span": found.row_bytes})


def _by_warpgroups(d: Deriver, cluster: Cluster) -> Shape | None:
    found = warpgroup_product(d, cluster)
    if found is None:
        return None
    own, product, rows = cluster.head.tensors[0].name, found.product, found.tiles.rows
    classes = (product.c.batch, product.a.axes, product.b.axes, product.others, (product.deep,))
    facts: dict[str, Facts] = {
        "i": {"warps": rows.warps, "times": rows.times, "each": rows.each, "block": found.stripe},
        "j": {"each": found.tiles.columns},
        "c": {"block": found.block, "each": found.instruction.shape[2]},
    }
    tensors = ((own,), (product.a.read.tensor,), (product.b.read.tensor,))
    shape = Shape(tensors, tuple(full(own, c) for c in classes), 4, facts)
    boxes = found.boxes and device_of(d).boxes
    return replace(shape, own={"buffers": found.buffers, "span": ROW_BYTES, "boxes": boxes, "beside": found.beside, "turns": found.turns})


def _windows_by_warps(d: Deriver, cluster: Cluster) -> Shape | None:
    found = warp_windows(d, cluster)
    if found is None or warp_unfolded(d, cluster) is not None or warpgroup_unfolded(d, cluster) is not None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.batch, found.outer, found.height, (found.width,), found.b.axes, found.others, (found.deep,))
    sides = {"h": found.tile.lines, "i": found.tile.points, "j": found.tile.columns}
    facts: dict[str, Facts] = {n: {"warps": s.warps, "times": s.times, "each": s.each} for n, s in sides.items()}
    facts["c"] = {"block": found.block, "each": found.instruction.shape[2]}
    tensors = ((own,), (found.a.read.tensor,), (found.b.read.tensor,))
    shape = Shape(tensors, tuple(full(own, c) for c in classes), 4, facts)
    return replace(shape, own={"buffers": found.buffers, "span": found.row_bytes})


def _unfolded_by_warps(d: Deriver, cluster: Cluster) -> Shape | None:
    found = warp_unfolded(d, cluster)
    if found is None or warpgroup_unfolded(d, cluster) is not None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.batch, found.a.axes, found.b.axes, found.inner)
    sides = {"i": found.rows, "j": found.columns}
    facts: dict[str, Facts] = {n: {"warps": s.warps, "times": s.times, "each": s.each} for n, s in sides.items()}
    facts["k"] = {"block": found.block, "each": found.instruction.shape[2]}
    tensors = ((own,), (found.a.read.tensor,), (found.b.read.tensor,))
    shape = Shape(tensors, tuple(full(own, c) for c in classes), 4, facts)
    return replace(shape, own={"buffers": found.buffers, "span": found.row_bytes})


def _unfolded_by_warpgroups(d: Deriver, cluster: Cluster) -> Shape | None:
    found = warpgroup_unfolded(d, cluster)
    if found is None:
        return None
    own, (a, b), rows = cluster.head.tensors[0].name, (found.found.a, found.found.b), found.tiles.rows
    classes = (found.found.product.c.batch, a.axes, b.axes, found.found.inner)
    facts: dict[str, Facts] = {
        "i": {"warps": rows.warps, "times": rows.times, "each": rows.each},
        "j": {"each": found.tiles.columns},
        "k": {"block": found.block, "each": found.instruction.shape[2]},
    }
    tensors = ((own,), (a.read.tensor,), (b.read.tensor,))
    shape = Shape(tensors, tuple(full(own, c) for c in classes), 4, facts)
    return replace(shape, own={"buffers": found.buffers, "span": ROW_BYTES})


def _windowed(d: Deriver, cluster: Cluster) -> Shape | None:
    found = windowed(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.outer, found.height, (found.width,), (found.channel,), found.others, (found.across,))
    facts: dict[str, Facts] = {
        "h": {"block": found.lines},
        "i": {"block": found.points, "times": found.times},
        "j": {"block": found.channels},
    }
    return Shape(((own,), (found.a,)), tuple(full(own, c) for c in classes), found.lanes, facts)


DEVICE_ROLES: Mapping[str, Form] = {
    "contraction": Form("contraction(y, a, b; batch.., i.., j.., k.., c..)", 3, 4, 5, _product),
    "convolution": Form("convolution(y, a, b; batch.., i.., n.., h.., j, k.., c)", 3, 7, 7, _windows),
    "warp_product": Form("warp_product(y, a, b; batch.., i.., j.., k.., c)", 3, 5, 5, _by_warps),
    "warpgroup_product": Form("warpgroup_product(y, a, b; batch.., i.., j.., k.., c)", 3, 5, 5, _by_warpgroups),
    "warp_convolution": Form("warp_convolution(y, a, b; batch.., n.., h.., i, j.., k.., c)", 3, 7, 7, _windows_by_warps),
    "warp_unfolded": Form("warp_unfolded(y, a, b; batch.., i.., j.., k..)", 3, 4, 4, _unfolded_by_warps),
    "warpgroup_unfolded": Form("warpgroup_unfolded(y, a, b; batch.., i.., j.., k..)", 3, 4, 4, _unfolded_by_warpgroups),
    "windowed": Form("windowed(y, a; n.., h.., i, j, k.., s)", 2, 6, 6, _windowed),
    "pointwise": Form("pointwise(y, p..; i.., j.., k.., x..)", (False, True), 4, 4, _elements),
    "reduction": Form("reduction(y; i.., r.., k..)", 1, 3, 3, _sums),
    "row_reduction": Form("row_reduction(y, t.., p..; i.., j.., r..)", (False, True, True), 3, 3, _teams),
    "long_row_reduction": Form("long_row_reduction(y, t..; i.., j.., r..)", (False, True), 3, 3, _teams_far),
}
FACTS = ("team", "rows", "tile", "buffers", "span", "boxes", "beside", "turns")
"""What only schedules for a device ask for."""
