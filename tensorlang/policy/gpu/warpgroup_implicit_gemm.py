"""Convolutions that four warps multiply together as one product, rows of windows written out: whether a tensor is one, and tiles.

The rows are those of `warp_unfolded`; both operands lie along the sum in shared memory, as instructions of four warps take them. What is a
product of rows as they lie is left to these.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from codegen.gpu.matrix import Instruction
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu.warp_convolutions import warp_windows
from tensorlang.policy.gpu.warp_implicit_gemm import Unfolded, unfolded_of
from tensorlang.policy.gpu.warp_products import device_of
from tensorlang.policy.gpu.warpgroup_products import ROW_BYTES, SHARED, STAGES, Tiles, best_tiles, fits, instructions_of, warpgroup_product
from tensorlang.policy.groups import Cluster


@dataclass(frozen=True, slots=True)
class WarpgroupUnfolded:
    found: Unfolded
    instruction: Instruction
    tiles: Tiles
    block: int
    """How much of the sum is copied at a time."""
    buffers: int


def warpgroup_unfolded(d: Deriver, cluster: Cluster) -> WarpgroupUnfolded | None:
    """Return a tensor by itself as a product of rows written out that four warps compute together, or None where they cannot, or single
    warps are as fast."""
    found = unfolded_of(d, cluster)
    if found is None or not fits(d, found.product) or warpgroup_product(d, cluster) is not None:
        return None
    machine = device_of(d)
    best, alone, windows = best_tiles(found.product, 1, machine), found.product.tiles(1, machine), warp_windows(d, cluster)
    others = min(alone[2] if alone is not None else inf, windows.cycles if windows is not None else inf)
    if best is None or others < best[1]:
        return None
    tiles, _ = best
    [instruction] = [i for i in instructions_of(found.product) if i.shape[1] == tiles.columns]
    block = ROW_BYTES // instruction.rows.size_bytes
    stages = min(STAGES, SHARED // tiles.bytes, -(-found.product.sizes[found.product.deep] // block))
    return WarpgroupUnfolded(found, instruction, tiles, block, stages)
