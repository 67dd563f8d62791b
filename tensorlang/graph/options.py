"""What the target, the machine and the precision that was asked for decide of the graph pipeline, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.algebra.winograd import Tiles
from tensorlang.graph.passes.fusion.fuse_normalisation import Worth
from tensorlang.graph.passes.fusion.horizontal_fusion import Pays
from tensorlang.graph.passes.memory.layout import Wishes
from tensorlang.graph.precisions import F32, Precision
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.winograd import Convolution


def no_wishes(graph: Graph) -> Callable[[Kernel], Mapping[str, Layout]]:
    """Return that kernels take everything in row-major order."""
    return lambda kernel: {}


def no_tiles(found: Convolution) -> tuple[int, ...] | None:
    """Return that a convolution stays as it is."""
    return None


def never(apart: Sequence[Program], together: Program) -> bool:
    """Return that products stay as they are."""
    return False


def not_worth(product: Program, rows: Program) -> bool:
    """Return that products and what normalises their rows stay apart."""
    return False


@dataclass(frozen=True, slots=True)
class Options:
    """`wishes`: the layouts that kernels would like. `tiles`: which convolutions to compute by minimal filtering, in which tiles. `pays`:
    which products of one input to compute as one. `worth`: which products to compute together with the normalisation of their rows.
    `precision`: what contractions multiply in. `one_pass`: on a device, attention goes through the keys once. `near_bytes`: of the cache
    next to a processor, which samples of a batch shall stay in; 0: batches stay together."""

    wishes: Wishes = no_wishes
    tiles: Tiles = no_tiles
    pays: Pays = never
    worth: Worth = not_worth
    precision: Precision = F32
    one_pass: bool = True
    near_bytes: int = 0
