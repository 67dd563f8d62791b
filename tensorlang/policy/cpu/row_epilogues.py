"""Rows that are finished where a product makes them: what is added to a sum, and a normalisation of the row it stands in.

    t[i, j] = sum(k) x[i, k] * w[k, j] + r[i, j]          a product: register tiles
    y[i, j] = (t[i, j] - mean(t[i])) / deviation(t[i])    rows, once all columns of t[i] are there

All columns of a block of rows are computed, then its rows are normalised while they are in the cache, and only a block of t is ever stored.
The price is that w is read for every block of rows, where a product alone reads it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from polyhedral import affine
from tensorlang.policy.cpu.cost import from_memory_cycles, kernel_cycles
from tensorlang.policy.cpu.horizontal_fusion import product_cycles
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.groups import FusionGroup, agreement
from tensorlang.policy.machine import Machine
from tensorlang.schedule.shape import extents, is_product, readers
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import definition_reads, tensor_table

LEAST_ROWS = 8
SHARE = 4
"""Which part of the second-level cache a block of rows may take."""


def finished(d: Deriver, found: Sequence[FusionGroup], group: FusionGroup) -> tuple[FusionGroup, ...]:
    """Return the products whose rows `group` alone reads, each at its own point. Rows that are a product's operand are that one's to
    place (`chains`)."""
    if group.head.tensors[0].name not in d.program.results:
        return ()
    members = {m.tensors[0].name for m in group.members}
    read_by = readers(d.program)
    out: list[FusionGroup] = []
    for maker in found:
        name = maker.head.tensors[0].name
        given = any(name in definition_reads(m) for m in group.members)
        if name in members or not given or len(maker.members) > 1 or not is_product(maker.head):
            continue
        rows = min(agreement(m, maker.head) for m in group.members if name in definition_reads(m))
        if name not in d.program.results and set(read_by[name]) <= members and rows >= group.depth == len(maker.head.axes) - 1:
            out.append(maker)
    return tuple(out)


def block_of_rows(d: Deriver, group: FusionGroup, products: Sequence[FusionGroup]) -> int:
    """Return how many rows of `products` to compute before they are finished, or 0 where there are none, or too few rows."""
    if not products:
        return 0
    counts = [extents(group.head)[a] for a in group.head.axes[: group.depth]]
    columns = [extents(p.head)[p.head.axes[-1]] for p in products]
    if counts[-1] is None or None in columns or counts[-1] < LEAST_ROWS:
        return 0
    widths = (n * p.head.tensors[0].dtype.size_bytes for n, p in zip(columns, products, strict=True) if n)
    return rows_at_once(counts[-1], sum(widths), d.machine, shared=prod(n or 1 for n in counts[:-1]) < d.machine.threads)


def rows_at_once(rows: int, width_bytes: int, machine: Machine, *, shared: bool) -> int:
    """Return into blocks of how many to cut `rows`: as many as the cache holds, and no more than there are for each thread where they are
    `shared` among them; blocks are of about one size, a multiple of four."""
    limit = max(LEAST_ROWS, machine.l2_bytes // SHARE // max(1, width_bytes))
    blocks = max(1, -(-rows // limit))
    if shared and machine.threads > 1:
        blocks = -(-blocks // machine.threads) * machine.threads
    each = -(-rows // blocks)
    return -(-each // 4) * 4 if each >= LEAST_ROWS else 0


def is_row_epilogue_profitable(product: Program, rows: Program, machine: Machine) -> bool:
    """Tell whether a product and what finishes its rows take less time as one kernel: the rows are not written and read again, and one
    kernel fewer starts; but each block of rows reads the constant operand once more."""
    cycles = product_cycles(product, machine)
    result = tensor_table(product)[product.results[0]]
    if cycles is None or len(result.shape) < 2:
        return False
    *outer, count, width = (affine.constant(n) or 0 for n in result.shape)
    size = result.dtype.size_bytes
    block = rows_at_once(count, width * size, machine, shared=prod(outer) < machine.threads)
    if block == 0:
        return False
    moved = _bytes(result)
    weights = max((_bytes(p) for p in product.params if p.shape[-1:] == result.shape[-1:] and p.shape != result.shape), default=0)
    saved = kernel_cycles(from_memory_cycles(2 * moved, moved, machine.l2_bytes), machine.threads)
    blocks = prod(outer) * -(-count // block)
    return from_memory_cycles((blocks - 1) * weights, 2 * weights, machine.l2_bytes) / machine.threads < saved


def _bytes(tensor: Tensor) -> int:
    return prod(affine.constant(n) or 0 for n in tensor.shape) * tensor.dtype.size_bytes
