"""What the target, the machine and the precision that was asked for decide of the graph pipeline, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.algebra.bound_taps import Blocks, no_blocks
from tensorlang.graph.passes.algebra.widen_operands import ProfitableWidening
from tensorlang.graph.passes.algebra.winograd import Tiles
from tensorlang.graph.passes.fusion.fuse_normalisation import ProfitableEpilogue
from tensorlang.graph.passes.fusion.horizontal_fusion import ProfitableFusion
from tensorlang.graph.passes.memory.layout import PreferredLayouts
from tensorlang.graph.precisions import F32, Precision
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.winograd import Convolution


def row_major_only(graph: Graph) -> Callable[[Kernel], Mapping[str, Layout]]:
    """Return that kernels take everything in row-major order."""
    return lambda kernel: {}


def no_tiles(found: Convolution) -> tuple[int, ...] | None:
    """Return that a convolution stays as it is."""
    return None


def never_fuse(separate: Sequence[Program], fused: Program) -> bool:
    """Return that products stay as they are."""
    return False


def never_join(product: Program, rows: Program) -> bool:
    """Return that products and what normalises their rows stay apart."""
    return False


def never_widen(program: Program, tensor: str) -> bool:
    """Return that operands are read in the type that they have."""
    return False


@dataclass(frozen=True, slots=True)
class Options:
    """`preferred_layouts`: those of each kernel. `tiles`: which convolutions to compute by minimal filtering, in which tiles.
    `is_fusion_profitable`: of products of one input, whether to compute them as one. `is_epilogue_profitable`: of a product, whether to
    compute it together with the normalisation of its rows. `is_widening_profitable`: of a product, whether to widen an operand of narrow
    floats before it. `blocks`: how many rows of a convolution skip taps together. `precision`: what contractions multiply in. `one_pass`:
    on a device, attention goes through the keys once. `near_bytes`: of the cache next to a processor, which samples of a batch shall stay
    in; 0: batches stay together."""

    preferred_layouts: PreferredLayouts = row_major_only
    tiles: Tiles = no_tiles
    is_fusion_profitable: ProfitableFusion = never_fuse
    is_epilogue_profitable: ProfitableEpilogue = never_join
    is_widening_profitable: ProfitableWidening = never_widen
    blocks: Blocks = no_blocks
    precision: Precision = F32
    one_pass: bool = True
    near_bytes: int = 0
