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
from dataclasses import dataclass, replace
from math import inf, prod

from codegen.gpu.matrix import Instruction
from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu.product_shapes import Operand, operands_of
from tensorlang.policy.gpu.products import product_of
from tensorlang.policy.gpu.warp_convolutions import warp_windows
from tensorlang.policy.gpu.warp_products import (
    ROW_BYTES,
    SHARED,
    STAGES,
    Matrices,
    Side,
    cost_of,
    device_of,
    instruction_for,
    is_swift,
    matrices_of,
    tiles,
)
from tensorlang.policy.groups import Cluster, recurs
from tensorlang.policy.machine import Device
from tensorlang.policy.pointwise import stored_axis
from tensorlang.schedule.shape import extents
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
    found = unfolded_of(d, cluster)
    best = tiles_of(found.product, device_of(d)) if found is not None else None
    if found is None or best is None or best[2] > _otherwise(d, cluster):
        return None
    row, column, _ = best
    product = found.product
    buffers = min(STAGES, SHARED // (product.row_bytes * (row.tile + column.tile)), -(-product.sizes[product.deep] // product.block))
    return WarpUnfolded(
        product.instruction, product.c.batch, found.a, found.b, found.inner, row, column, product.block, product.row_bytes, buffers
    )


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A convolution, with its sum in order, as a `product` with one axis of rows, one of columns and one sum."""

    a: Operand
    b: Operand
    inner: tuple[str, ...]
    product: Matrices


def unfolded_of(d: Deriver, cluster: Cluster) -> Unfolded | None:
    """Return a tensor by itself as a product of rows written out, or None where instructions do not multiply what it does."""
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
    whole = {**sizes, "rows": prod(sizes[x] for x in a.axes), "columns": prod(sizes[x] for x in b.axes), "terms": total}
    rows, columns = replace(a, axes=("rows",), unit=False), replace(b, axes=("columns",), unit=False)
    block = row_bytes // instruction.rows.size_bytes
    return Unfolded(a, b, inner, Matrices(instruction, c, rows, columns, "terms", (), whole, block, row_bytes, swift=True))


def tiles_of(product: Matrices, machine: Device) -> tuple[Side, Side, float] | None:
    """Return the tiles of least cost, and that, as boxes are judged; None where none fit."""
    grid, rows, columns, total = product.size(1)
    fitting = (t for t in tiles(rows, columns, swift=product.swift) if 2 * product.stretch * (t[0].tile + t[1].tile) <= SHARED)
    costs = {t: cost_of(t[0], t[1], grid, rows, columns, total, machine) for t in fitting}
    best = min(costs, key=lambda t: (costs[t], -t[0].tile * t[1].tile), default=None)
    return (*best, costs[best]) if best is not None else None


def _otherwise(d: Deriver, cluster: Cluster) -> float:
    """Return about how many cycles it takes where boxes are copied, or rows of one axis; infinity where that is not possible."""
    windows, plain = warp_windows(d, cluster), matrices_of(d, cluster.head)
    if windows is not None:
        return windows.cycles
    best = plain.tiles(1, device_of(d)) if plain is not None else None
    if plain is None or best is None:
        return inf
    return cost_of(best[0], best[1], *plain.size(1), device_of(d))


def _is_spread(a: Operand, sizes: Mapping[str, int]) -> bool:
    """Tell whether the rows of an operand are more than what one axis counts."""
    slots = [s for s in a.read.index if not isinstance(s, Dynamic)]
    across = any(not isinstance(s, Name) and set(affine.names(s)) & set(a.axes) for s in slots)
    return across or len([x for x in a.axes if sizes[x] > 1]) > 1
