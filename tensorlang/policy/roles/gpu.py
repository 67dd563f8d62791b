"""What definitions look like to the schedule of a role for a device.

On a graphics processor (`for gpu`, or for one maker's: `for cuda`) the roles are

    contraction(y, a, b; batch.., i.., j.., k.., c..)   j ends in the axis along which y is contiguous, whatever the operands are; c is the
                                                        longest reduction (among k where no c is named)
    convolution(y, a, b; batch.., i.., n.., h.., j, k.., c)
                                                        the same where b is read in windows: j is the axis along which y is contiguous, h
                                                        another with windows, n those without, c the longest reduction outside of windows
    warp_product(y, a, b; batch.., i.., j.., k.., c)    the same of types that warps multiply in matrices
    warpgroup_product(y, a, b; batch.., i.., j.., k.., c)
                                                the same where four warps multiply together
    warp_convolution(y, a, b; batch.., n.., h.., i, j.., k.., c)
                                                windows of a around points i of lines h, whose channels c lie next to each other
    unfolded(y, a, b; batch.., i.., j.., k..)   windows of a around points i, where points of all lines and samples are rows of one product;
                                                k go through windows place by place, the channels at each
    warp_unfolded(y, a, b; batch.., i.., j.., k..)
                                                the same of types that warps multiply in matrices
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
`rows` (teams of a block) and `tile` (the side of a transposed square). Of products and convolutions, which are candidates of a form and a
level (`policy/gpu/candidates.py`), they may ask for the tile of a block: `i.warps`, `i.lanes`, `i.times` and `i.each` along the last of
i, the same of j and, of windows, of h. A tile is their product: warps, of lanes, of `times` groups of `each` neighbours; where warps
multiply matrices, of `times` matrices of `each` rows or columns. Where four warps multiply together, `i.warps` counts those groups, and
`j.each` are all columns of a block. `i.block`: how many rows of tiles blocks go through together; `c.block` (k where there is no c): how
much of the sum to copy at a time; `c.each`: of the sum of one matrix; `buffers`: stretches of the sum that are copied or on their way;
`span`: bytes of a row of a copy; `a.unit`, `b.unit`: whether the operand is contiguous along the last of i, or j. Of four warps:
`i.panel`, `j.panel`, in what panels an operand that is so is copied, `a.span`, `b.span`, bytes of a row of one;
`tensor_maps`, whether both operands can be copied as boxes of tensors; `warp_specialized`, whether a warp of its own should ask for them;
and `persistent_blocks`, how many blocks should go through all tiles, 0 where each has one. Of windows over channels: `i.times` (points
that a thread computes), `h.block`, `i.block` and `j.block` (threads of a block along each).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from polyhedral import affine
from tensorlang.policy.deriver import Deriver, device_of
from tensorlang.policy.gpu import access
from tensorlang.policy.gpu.candidates import AxisTile, Candidate, Level
from tensorlang.policy.gpu.choice import least
from tensorlang.policy.gpu.depthwise import windowed
from tensorlang.policy.gpu.forms import VECTOR_BYTES, Form, Kind, Operand
from tensorlang.policy.gpu.matrix_tiles import WARPGROUP_ROWS
from tensorlang.policy.gpu.scattered_sums import scattered_alone
from tensorlang.policy.groups import FusionGroup
from tensorlang.policy.roles.parameters import Facts, Loops, Shape, full
from tensorlang.policy.roles.parameters import Form as Role
from tensorlang.tensor.walk import tensor_table

THREAD_LANES = 4
"""Sums of neighbours that a thread stores at once: 16 bytes of f32."""
BOX_DIMENSIONS = 5
"""Of a tensor that boxes are copied of, at most: a tensor map has so many."""
MOST_STRIPES = 16
"""Rows of tiles that blocks go through together, so that those which run at the same time read the same few rows and columns."""


def _elements(d: Deriver, group: FusionGroup) -> Shape | None:
    found = None if scattered_alone(d, group.head) else access.elements(d, group)
    if found is None:
        return None
    own = group.head.tensors[0].name
    classes = (found.outer, found.along, found.binders, found.crossing)
    return Shape(((own,), found.crossed), tuple(full(own, c) for c in classes), found.lanes, extra={"tile": found.tile, "rows": found.rows})


def _sums(d: Deriver, group: FusionGroup) -> Shape | None:
    found = None if scattered_alone(d, group.head) else access.sums(d, group)
    if found is None:
        return None
    own = group.head.tensors[0].name
    classes = (group.head.axes, found.along, found.others)
    facts = {"team": found.team, "rows": found.rows}
    return Shape(((own,),), tuple(full(own, c) for c in classes), found.lanes, extra=facts)


def _teams(d: Deriver, group: FusionGroup) -> Shape | None:
    found = access.rows(d, group)
    return None if found is None else _team_shape(group, found, (found.reread,), {"team": found.team, "rows": found.rows})


def _teams_far(d: Deriver, group: FusionGroup) -> Shape | None:
    found = access.long_rows(d, group)
    return None if found is None else _team_shape(group, found, (), {"team": found.team})


def _team_shape(group: FusionGroup, found: access.Rows, reread: tuple[Loops, ...], facts: Mapping[str, int]) -> Shape:
    own = group.head.tensors[0].name
    members = tuple(m.tensors[0].name for m in group.members if m is not group.head)
    classes = (full(own, group.head.axes[: group.depth]), found.along, found.reduced)
    return Shape(((own,), members, *reread), classes, found.lanes, extra=facts)


def _candidate(kind: Kind, level: Level) -> Callable[[Deriver, FusionGroup], Shape | None]:
    """Return what a tensor by itself looks like to the role of one form and one level: as its least candidate says."""

    def shape(d: Deriver, group: FusionGroup) -> Shape | None:
        found = least(d, group.head, kind, level) if len(group.members) == 1 else None
        if found is None:
            return None
        own, form, tile = group.head.tensors[0].name, found.form, found.tile
        sides = {"i": tile.rows, "j": tile.columns, "h": tile.lines}
        facts: dict[str, dict[str, int]] = {
            name: {"warps": s.warps, "lanes": s.lanes, "times": s.times, "each": s.each} for name, s in sides.items()
        }
        facts["i"]["block"] = stripe(form.rows, tile.rows)
        facts["k" if kind is Kind.IMPLICIT_GEMM else "c"] = {
            "block": found.depth,
            "each": found.instruction.shape[2] if found.instruction is not None else 1,
        }
        panels = {"i": WARPGROUP_ROWS, "j": found.panel}
        for operand, side, name in ((form.a, "i", "a"), (form.b, "j", "b")):
            facts[side]["panel"] = panels[side]
            facts[name] = {"unit": operand.unit, "span": panels[side] * form.element_bytes}
        tensors = ((own,), (form.a.read.tensor,), (form.b.read.tensor,))
        shape = Shape(tensors, tuple(full(own, loops) for loops in _loops(form)), THREAD_LANES, facts, cycles=found.cycles)
        return replace(shape, extra={"buffers": found.stages, "span": found.row_bytes, **_hopper(d, found)})

    return shape


def _loops(form: Form) -> tuple[Loops, ...]:
    """Return the groups of loops of a form, as the roles of all levels name them."""
    inner, windows = (form.others, (form.deep,)), form.windows
    if form.kind is Kind.IMPLICIT_GEMM:
        return (form.batch, form.a.axes, form.b.axes, (*form.others, form.deep))
    if windows is None:
        return (form.batch, form.a.axes, form.b.axes, *inner, ())
    lines = (windows.outer, (windows.height,) if windows.height else (), (windows.width,))
    return (form.batch, form.a.axes, *lines, *inner) if windows.operand is form.b else (form.batch, *lines, form.b.axes, *inner)


def _hopper(d: Deriver, found: Candidate) -> dict[str, int]:
    """Return how a candidate of four warps copies, and how its blocks go through tiles."""
    if found.level is not Level.WARPGROUP:
        return {}
    machine = device_of(d)
    tma = machine.boxes and all(_has_boxes(d, o) for o in (found.form.a, found.form.b))
    specialized = tma and found.tile.rows.warps == 2
    persistent = specialized and found.tile.blocks(found.form, 1) > machine.blocks
    return {"tensor_maps": tma, "warp_specialized": specialized, "persistent_blocks": machine.blocks if persistent else 0}


def _has_boxes(d: Deriver, operand: Operand) -> bool:
    """Tell whether boxes of an operand can be copied: few dimensions, all of them whole vectors apart."""
    name = operand.read.tensor
    storage, tensor = d.layouts.get(name), tensor_table(d.program)[name]
    shape = [affine.constant(n) for n in (storage.shape if storage is not None else tensor.shape)]
    last = next((n for n in reversed(shape) if n != 1), None)
    return last is not None and len(shape) <= BOX_DIMENSIONS and last * tensor.dtype.size_bytes % VECTOR_BYTES == 0


def stripe(extent: int, rows: AxisTile) -> int:
    """Return how many rows of tiles blocks go through together, of those that such a tile has along an axis."""
    tiles = -(-extent // rows.tile)
    return next(n for n in range(MOST_STRIPES, 0, -1) if tiles % n == 0)


def _windowed(d: Deriver, group: FusionGroup) -> Shape | None:
    found = windowed(d, group)
    if found is None:
        return None
    own = group.head.tensors[0].name
    classes = (found.outer, found.height, (found.width,), (found.channel,), found.others, (found.across,))
    facts: dict[str, Facts] = {
        "h": {"block": found.lines},
        "i": {"block": found.points, "times": found.times},
        "j": {"block": found.channels},
    }
    return Shape(((own,), (found.a,)), tuple(full(own, c) for c in classes), found.lanes, facts)


DEVICE_ROLES: Mapping[str, Role] = {
    "contraction": Role("contraction(y, a, b; batch.., i.., j.., k.., c..)", 3, 4, 5, _candidate(Kind.PRODUCT, Level.THREAD)),
    "convolution": Role("convolution(y, a, b; batch.., i.., n.., h.., j, k.., c)", 3, 7, 7, _candidate(Kind.WINDOWS, Level.THREAD)),
    "warp_product": Role("warp_product(y, a, b; batch.., i.., j.., k.., c)", 3, 5, 5, _candidate(Kind.PRODUCT, Level.WARP)),
    "warpgroup_product": Role("warpgroup_product(y, a, b; batch.., i.., j.., k.., c)", 3, 5, 5, _candidate(Kind.PRODUCT, Level.WARPGROUP)),
    "warp_convolution": Role("warp_convolution(y, a, b; batch.., n.., h.., i, j.., k.., c)", 3, 7, 7, _candidate(Kind.WINDOWS, Level.WARP)),
    "unfolded": Role("unfolded(y, a, b; batch.., i.., j.., k..)", 3, 4, 4, _candidate(Kind.IMPLICIT_GEMM, Level.THREAD)),
    "warp_unfolded": Role("warp_unfolded(y, a, b; batch.., i.., j.., k..)", 3, 4, 4, _candidate(Kind.IMPLICIT_GEMM, Level.WARP)),
    "warpgroup_unfolded": Role(
        "warpgroup_unfolded(y, a, b; batch.., i.., j.., k..)", 3, 4, 4, _candidate(Kind.IMPLICIT_GEMM, Level.WARPGROUP)
    ),
    "windowed": Role("windowed(y, a; n.., h.., i, j, k.., s)", 2, 6, 6, _windowed),
    "pointwise": Role("pointwise(y, p..; i.., j.., k.., x..)", (False, True), 4, 4, _elements),
    "reduction": Role("reduction(y; i.., r.., k..)", 1, 3, 3, _sums),
    "row_reduction": Role("row_reduction(y, t.., p..; i.., j.., r..)", (False, True, True), 3, 3, _teams),
    "long_row_reduction": Role("long_row_reduction(y, t..; i.., j.., r..)", (False, True), 3, 3, _teams_far),
}
FACTS = ("team", "rows", "tile", "buffers", "span", "tensor_maps", "warp_specialized", "persistent_blocks")
"""What only schedules for a device ask for."""
