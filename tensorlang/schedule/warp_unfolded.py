"""Convolutions that warps of a graphics processor multiply as one product, rows of windows written out: whether a tensor is one, and tiles.

    y[batch, n, h, w, j] = f(sum(r, s, c) a[batch, n, 2*h + r - 1, 2*w + s - 1, c] * b[batch, j, r, s, c])

    rows     n, h, w, counted together       columns  j       sum  r, s, c, counted together

Lines may be as short as they like, and points of several samples fill one matrix; in turn a block copies what it reads again for every
place of a window. Channels lie next to each other in both operands, in whole 16 bytes. Products without windows are taken, too, where
their rows have several axes that are not one in memory. The choice is the one of least cost in a model: nothing in it was measured on a
device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod

from codegen.gpu.matrix import Instruction
from polyhedral.expr import Name
from tensorlang.schedule.clusters import Cluster, recurs
from tensorlang.schedule.deriver import Deriver
from tensorlang.schedule.machine import Device
from tensorlang.schedule.pointwise import stored_axis
from tensorlang.schedule.product_shapes import Operand, operands_of
from tensorlang.schedule.products_device import product_of
from tensorlang.schedule.shape import extents
from tensorlang.schedule.warp_products import ROW_BYTES, SHARED, STAGES, Side, cost_of, instruction_for, is_swift, tiles, warp_product
from tensorlang.schedule.warp_windows import warp_windows
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Dynamic


@dataclass(frozen=True, slots=True)
class WarpUnfolded:
    instruction: Instruction
    batch: tuple[str, ...]
    a: Operand
    b: Operand
    inner: tuple[str, ...]
    """What is summed over, the channels last."""
    rows: Side
    columns: Side
    block: int
    """How much of the sum is copied at a time."""
    row_bytes: int
    buffers: int


def warp_unfolded(d: Deriver, cluster: Cluster) -> WarpUnfolded | None:
    """Return a tensor by itself as a product of rows written out that an instruction of a warp computes, or None."""
    definition = cluster.head
    c = product_of(d, definition) if len(cluster.members) == 1 and not recurs(d.program, definition) else None
    if c is None or not isinstance(d.machine, Device) or not d.machine.matrices or d.program.mode == "strict":
        return None
    if stored_axis(d, definition) not in c.columns:
        return None
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    a, b = operands_of(d, definition, c)
    instruction = instruction_for(d, c, a, b)
    deep = next((k for k in c.inner if all(is_swift(d, o, sizes, k) for o in (a, b))), None)
    if instruction is None or deep is None or not (c.padded or _is_spread(a, sizes)):
        return None
    inner = (*(k for k in c.inner if k != deep), deep)
    total = prod(sizes[k] for k in inner)
    row_bytes = next((n for n in ROW_BYTES if n // instruction.rows.size_bytes <= total), None)
    if row_bytes is None:
        return None
    block = row_bytes // instruction.rows.size_bytes
    rows, columns = (prod(sizes[x] for x in o.axes) for o in (a, b))
    grid = prod(sizes[x] for x in c.batch)
    machine = d.machine
    choices = [t for t in tiles(rows, columns, swift=True) if 2 * row_bytes * (t[0].tile + t[1].tile) <= SHARED]
    if not choices:
        return None
    row, column = min(choices, key=lambda t: (cost_of(t[0], t[1], grid, rows, columns, total, machine), -t[0].tile * t[1].tile))
    cycles = cost_of(row, column, grid, rows, columns, total, machine)
    if cycles > _otherwise(d, cluster, sizes):
        return None
    buffers = min(STAGES, SHARED // (row_bytes * (row.tile + column.tile)), -(-total // block))
    return WarpUnfolded(instruction, c.batch, a, b, inner, row, column, block, row_bytes, buffers)


def _otherwise(d: Deriver, cluster: Cluster, sizes: Mapping[str, int]) -> float:
    """Return about how many cycles it takes where boxes are copied, or rows of one axis; infinity where that is not possible."""
    windows, plain = warp_windows(d, cluster), warp_product(d, cluster)
    if windows is not None:
        return windows.cycles
    if plain is None:
        return inf
    assert isinstance(d.machine, Device)
    grid = prod(sizes[x] for x in (*plain.batch, *plain.a.axes[:-1], *plain.b.axes[:-1]))
    total = prod(sizes[k] for k in (*plain.others, plain.deep))
    return cost_of(plain.rows, plain.columns, grid, sizes[plain.a.axes[-1]], sizes[plain.b.axes[-1]], total, d.machine)


def _is_spread(a: Operand, sizes: Mapping[str, int]) -> bool:
    """Tell whether the rows of an operand are more than what one axis counts."""
    slots = [s for s in a.read.index if not isinstance(s, Dynamic)]
    across = any(not isinstance(s, Name) and set(affine.names(s)) & set(a.axes) for s in slots)
    return across or len([x for x in a.axes if sizes[x] > 1]) > 1
