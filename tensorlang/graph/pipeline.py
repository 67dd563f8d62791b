"""The order of graph passes. Every step is verified; a broken invariant, and whatever else goes wrong in it, names the step.

    merge       dce, tidy, cse, fold            what is computed twice, never used, or known now
    bytes       signs, narrow, integers         quantised values are moved and multiplied as bytes
    algebra     literals, identities, scales    what changes nothing, or can be part of something else; until nothing changes
    views       move behind what can be part of the kernel before them
    own         what only widens a value is repeated for each reader
    fuse        groups become one kernel
    requantise  what is dequantised where it is quantised stays a float
    chain       so do a product, a softmax of it and a product of that; on a device they go through the keys once (`online`)
    split       where that is asked for, products of f32 become sums of products of bf16 parts
    apart       on a device, an operand of a product that is read for something else is two params
    both        on a device, what is normalised and needed later is a second result of the kernel that normalises it
    winograd    convolutions by minimal filtering, where that is worth it
    finish      products whose rows are normalised next become one with that, where it pays
    abreast     products of one input become one, where that pays
    sampled     what a contraction reads of an input at a stride lies together
    rounded     where that is asked for, what is multiplied is rounded to tf32
    narrowed    where less precision is asked for, what is multiplied is kept in bf16 or f16
    layout      values that kernels want in blocks are kept in blocks
    samples     a batch goes through chains of large kernels one sample after the other
    parts       what is cut out of a value is read where it lies
    joins       what is concatenated is written in its place at once
    alike       kernels that differ in numbers alone become one
    outputs     every output gets memory of its own

`dump(step, graph)` sees the graph after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from codegen.dtypes import DType
from tensorlang.diagnostics import CompileError, InternalError
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.algebra.fold_scales import fold_scales
from tensorlang.graph.passes.algebra.identities import identities
from tensorlang.graph.passes.algebra.inline_constants import inline_constants
from tensorlang.graph.passes.algebra.winograd import Tiles, winograd
from tensorlang.graph.passes.clean.cse import cse
from tensorlang.graph.passes.clean.dce import dce
from tensorlang.graph.passes.clean.fold import fold
from tensorlang.graph.passes.clean.inline_locals import inline_locals
from tensorlang.graph.passes.clean.parametrize_constants import parametrize_constants
from tensorlang.graph.passes.fusion.duplicate_casts import duplicate_casts
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.fusion.fuse_attention import fuse_attention
from tensorlang.graph.passes.fusion.fuse_normalisation import Worth, fuse_normalisation
from tensorlang.graph.passes.fusion.horizontal_fusion import Pays, horizontal_fusion
from tensorlang.graph.passes.fusion.live_out import live_out
from tensorlang.graph.passes.fusion.sink_views import sink_views
from tensorlang.graph.passes.memory.alias_operands import alias_operands
from tensorlang.graph.passes.memory.batch_tiling import batch_tiling
from tensorlang.graph.passes.memory.compact_strided import compact_strided
from tensorlang.graph.passes.memory.concat_in_place import concat_in_place
from tensorlang.graph.passes.memory.copy_outputs import copy_outputs
from tensorlang.graph.passes.memory.layout import Wishes, layout
from tensorlang.graph.passes.memory.slices_as_views import slices_as_views as in_place
from tensorlang.graph.passes.precision.narrow_storage import narrow_storage
from tensorlang.graph.passes.precision.round_to_tf32 import round_to_tf32
from tensorlang.graph.passes.precision.split_bf16 import split_bf16
from tensorlang.graph.passes.quantised.choose_signs import choose_signs
from tensorlang.graph.passes.quantised.integer_contractions import integer_contractions
from tensorlang.graph.passes.quantised.propagate_quantisation import propagate_quantisation
from tensorlang.graph.passes.quantised.requantise import requantise
from tensorlang.graph.verify import verify
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.winograd import Convolution

Pass: TypeAlias = Callable[[Graph], Graph]
Dump: TypeAlias = Callable[[str, Graph], None]

MERGE: tuple[Pass, ...] = (dce, inline_locals, cse, choose_signs, propagate_quantisation, integer_contractions, dce, fold)
ALGEBRA: tuple[Pass, ...] = (inline_constants, identities, fold_scales, dce, fold, cse)
ROUNDS = 8


def silent(step: str, graph: Graph) -> None:
    """Do nothing with a graph: the default of `dump`."""


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
    """Return that products and what finishes their rows stay apart."""
    return False


def optimise(
    graph: Graph,
    wishes: Wishes = no_wishes,
    dump: Dump = silent,
    *,
    tiles: Tiles = no_tiles,
    pays: Pays = never,
    worth: Worth = not_worth,
    multiplied: DType | None = None,
    to_tf32: bool = False,
    parts: int = 0,
    least: int = 1,
    chains: Pass | None = fuse_attention,
    twice: bool = False,
    near_bytes: int = 0,
) -> Graph:
    """Return a graph that computes the same with fewer, larger kernels, ready to be planned. `tiles` chooses convolutions to rewrite,
    `pays` products of one input to compute as one, `worth` those to compute together with the normalisation of their rows; `multiplied`
    (bf16 or f16) is what contractions multiply in, where less than f32 is asked for, with `to_tf32` f32 rounded to tf32; `parts` (3 or 6)
    makes them of so many products of bf16 for one of f32, those of `least` rows and columns; `chains` makes one kernel of attention (None:
    every product stays by itself); `twice`: kernels may have a second result, or one value as two params; `near_bytes`: of the cache next
    to a processor, which samples of a batch shall stay in (0: batches stay together)."""

    def step(transform: Pass, before: Graph) -> Graph:
        return named(transform.__name__, transform, before)

    def named(name: str, transform: Pass, before: Graph) -> Graph:
        after = _applied(name, transform, before)
        if _same(before, after):
            after = before
        else:
            verify(after, name)
        dump(name, after)
        return after

    verify(graph, "import")
    dump("import", graph)
    for transform in MERGE:
        graph = step(transform, graph)
    graph = _settled(graph, step, ALGEBRA)
    graph = _settled(step(sink_views, graph), step, (identities, dce))
    graph = step(requantise, step(dce, step(fuse, step(duplicate_casts, graph))))
    graph = step(dce, step(chains, graph) if chains is not None else graph)
    graph = step(alias_operands, step(live_out, graph)) if twice else graph
    if parts:
        graph = named("split", lambda g: split_bf16(g, parts, least), graph)
    graph = named("winograd", lambda g: winograd(g, tiles), graph)
    graph = named("finish", lambda g: fuse_normalisation(g, worth), graph)
    graph = named("abreast", lambda g: horizontal_fusion(g, pays), graph)
    graph = step(compact_strided, graph)
    if to_tf32:
        graph = step(round_to_tf32, graph)
    if multiplied is not None:
        graph = named("narrowed", lambda g: narrow_storage(g, multiplied), graph)
    graph = named("layout", lambda g: layout(g, wishes), graph)
    graph = named("samples", lambda g: batch_tiling(g, near_bytes), graph)
    return step(dce, step(copy_outputs, step(parametrize_constants, step(concat_in_place, step(in_place, graph)))))


def _same(a: Graph, b: Graph) -> bool:
    """Tell whether a pass found nothing to do: what was verified before it need not be verified again."""
    return (
        (a.nodes, a.inputs, a.outputs) == (b.nodes, b.inputs, b.outputs)
        and a.values == b.values
        and a.constants.keys() == b.constants.keys()
        and all(array is b.constants[name] for name, array in a.constants.items())
    )


def _applied(name: str, transform: Pass, graph: Graph) -> Graph:
    """Return what a pass makes of a graph. Raises InternalError that names the pass, whatever goes wrong in it: the graph was verified, so
    it is our mistake and not the user's."""
    try:
        return transform(graph)
    except (CompileError, InternalError, MemoryError):
        raise
    except Exception as problem:
        raise InternalError(name, f"graph `{graph.name}`: {type(problem).__name__}: {problem}") from problem


def _settled(graph: Graph, step: Callable[[Pass, Graph], Graph], passes: tuple[Pass, ...]) -> Graph:
    """Return the graph after rounds of `passes`, stopping when a round leaves the nodes as they were."""
    for _ in range(ROUNDS):
        before = graph.nodes
        for transform in passes:
            graph = step(transform, graph)
        if graph.nodes == before:
            break
    return graph
