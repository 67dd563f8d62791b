"""The passes over graphs as values, and their order for processors and for devices.

`tensorlang show --stage passes` prints these tables, and which passes change a model; docs/passes.md has them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorlang.graph.nodes import Graph, loops_of
from tensorlang.graph.options import Options
from tensorlang.graph.pass_manager import Condition, Pass, PassStage, Pipeline, steps
from tensorlang.graph.passes.algebra.bound_taps import bound_taps
from tensorlang.graph.passes.algebra.drop_zero_terms import drop_zero_terms
from tensorlang.graph.passes.algebra.fold_scales import fold_scales
from tensorlang.graph.passes.algebra.identities import identities
from tensorlang.graph.passes.algebra.inline_constants import inline_constants
from tensorlang.graph.passes.algebra.phases import phases
from tensorlang.graph.passes.algebra.widen_operands import widen_operands
from tensorlang.graph.passes.algebra.winograd import winograd
from tensorlang.graph.passes.clean.cse import cse
from tensorlang.graph.passes.clean.dce import dce
from tensorlang.graph.passes.clean.fold import fold
from tensorlang.graph.passes.clean.inline_locals import inline_locals
from tensorlang.graph.passes.clean.parametrize_constants import parametrize_constants
from tensorlang.graph.passes.clean.unroll import unroll
from tensorlang.graph.passes.fusion.duplicate_casts import duplicate_casts
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.fusion.fuse_attention import fuse_attention
from tensorlang.graph.passes.fusion.fuse_normalisation import fuse_normalisation
from tensorlang.graph.passes.fusion.horizontal_fusion import horizontal_fusion
from tensorlang.graph.passes.fusion.live_out import live_out
from tensorlang.graph.passes.fusion.online_attention import online_attention
from tensorlang.graph.passes.fusion.read_repeated import read_repeated
from tensorlang.graph.passes.fusion.sink_views import sink_views
from tensorlang.graph.passes.memory.alias_operands import alias_operands
from tensorlang.graph.passes.memory.batch_tiling import batch_tiling
from tensorlang.graph.passes.memory.compact_strided import compact_strided
from tensorlang.graph.passes.memory.concat_in_place import concat_in_place
from tensorlang.graph.passes.memory.copy_outputs import copy_outputs
from tensorlang.graph.passes.memory.layout import layout
from tensorlang.graph.passes.memory.share_copies import share_copies
from tensorlang.graph.passes.memory.slices_as_views import slices_as_views
from tensorlang.graph.passes.precision.lower_precision import lower_precision, lowers
from tensorlang.graph.passes.quantised.choose_signs import choose_signs
from tensorlang.graph.passes.quantised.fold_bytes import fold_bytes
from tensorlang.graph.passes.quantised.integer_contractions import integer_contractions
from tensorlang.graph.passes.quantised.propagate_quantisation import propagate_quantisation
from tensorlang.graph.passes.quantised.requantise import requantise
from tensorlang.tensor.winograd import Convolution


def _plain(run: Callable[[Graph], Graph], why: str) -> Pass:
    """Return a pass that no options concern, under the name of its function."""
    return Pass(run.__name__, why, lambda graph, options: run(graph))


def _filtered(graph: Graph, options: Options) -> Graph:
    """Return the graph with convolutions by minimal filtering; those that lower precision takes are left to it."""

    def tiles(found: Convolution) -> tuple[int, ...] | None:
        return None if lowers(found.program, options.precision) else options.tiles(found)

    return winograd(graph, tiles)


def _online(graph: Graph, options: Options) -> Graph:
    return online_attention(graph, 4 if options.precision.multiplied is None else 2)


DCE = _plain(dce, "drop what no output depends on")
CSE = _plain(cse, "compute once what is computed twice")
FOLD = _plain(fold, "compute now what depends on constants alone")
IDENTITIES = _plain(identities, "drop kernels that only rename or copy what they read")
LOWERED = Condition("another precision than f32 is used", lambda options: options.precision.used != "f32")
ONE_PASS = Condition("attention may go through the keys once", lambda options: options.one_pass)
CACHED = Condition("a core's own cache is known", lambda options: options.near_bytes > 0)

LOOPS = PassStage("loops", (_plain(unroll, "write out the turns of loops, which devices do not run"),))
CLEAN = PassStage("clean", (DCE, _plain(inline_locals, "write local tensors of pointwise programs where they are read"), CSE))
QUANTISED = PassStage(
    "quantised",
    (
        _plain(fold_bytes, "compute now what depends on constants alone, but leave bytes that are dequantised"),
        _plain(choose_signs, "quantise to the bytes that processors multiply, u8 by i8"),
        _plain(propagate_quantisation, "move and pool bytes rather than the floats that they stand for"),
        _plain(integer_contractions, "multiply and sum bytes exactly, in i32"),
        DCE,
        FOLD,
    ),
)
ALGEBRA = PassStage(
    "algebra",
    (
        _plain(inline_constants, "write constants of one value into the programs that read them"),
        IDENTITIES,
        _plain(drop_zero_terms, "sum only over the taps of a filter that some element of the result meets"),
        _plain(fold_scales, "fold scales and offsets of channels into the weights before them"),
        DCE,
        FOLD,
        CSE,
    ),
    repeated=True,
)
VIEWS = PassStage("views", (_plain(sink_views, "move views behind pointwise kernels, so that these can be fused with what is before"),))
COPIES = PassStage("copies", (IDENTITIES, DCE), repeated=True)
FUSION = PassStage(
    "fusion",
    (
        _plain(duplicate_casts, "give every reader of a widened value a cast of its own"),
        _plain(fuse, "make one kernel of an anchor, what is done to its result, and what is cheap to do to its inputs"),
        DCE,
        _plain(requantise, "bring together what is done to a value before it is quantised"),
    ),
)
ATTENTION = PassStage("attention", (_plain(fuse_attention, "make one kernel of a product, its softmax and the product of that"), DCE))
ONLINE_ATTENTION = PassStage(
    "attention",
    (Pass("online_attention", "rewrite attention to go through the keys once, without storing scores", _online, ONE_PASS), DCE),
)
OPERANDS = PassStage(
    "operands",
    (
        _plain(live_out, "store what is normalised, where it is needed later, as a second result of the kernel that normalises it"),
        _plain(alias_operands, "give an operand of a product that is read for something else, too, a second parameter"),
    ),
)
CONTRACTIONS = PassStage(
    "contractions",
    (
        _plain(read_repeated, "read what is repeated for a product where it lies"),
        DCE,
        _plain(phases, "sum what a congruence leaves of a sum one class of residues at a time"),
        FOLD,
        Pass(
            "widen_operands",
            "widen narrow floats once that a product reads many times, where that pays",
            lambda graph, options: widen_operands(graph, options.is_widening_profitable),
        ),
        Pass("winograd", "compute convolutions by minimal filtering, where that pays", _filtered),
        Pass(
            "fuse_normalisation",
            "make one kernel of a product and the normalisation of its rows, where that pays",
            lambda graph, options: fuse_normalisation(graph, options.is_epilogue_profitable),
        ),
        Pass(
            "horizontal_fusion",
            "make one product of several of one input, where that pays",
            lambda graph, options: horizontal_fusion(graph, options.is_fusion_profitable),
        ),
    ),
)
PRECISION = PassStage(
    "precision",
    (
        _plain(compact_strided, "copy of an input that is read at a stride only what is met"),
        Pass(
            "lower_precision",
            "multiply bf16, f16, tf32, or parts of numbers in bf16",
            lambda graph, options: lower_precision(graph, options.precision),
            LOWERED,
        ),
    ),
)
PADDING = PassStage(
    "padding",
    (
        Pass(
            "bound_taps",
            "sum at each row over the taps of a filter that meet an element there, where padding takes many",
            lambda graph, options: bound_taps(graph, options.blocks),
        ),
    ),
)
LAYOUT = Pass(
    "layout", "keep values in the order in memory that kernels would like", lambda graph, options: layout(graph, options.preferred_layouts)
)
BATCH_TILING = Pass(
    "batch_tiling",
    "take the samples of a batch one after another through chains of large kernels",
    lambda graph, options: batch_tiling(graph, options.near_bytes),
    CACHED,
)
SLICES = _plain(slices_as_views, "read what is cut out of a value where it lies")
SHARED_COPIES = _plain(share_copies, "make kernels that copy equally long stretches of memory one, wherever the stretches begin")
IN_PLACE = (
    _plain(concat_in_place, "write what is concatenated where it will lie"),
    _plain(parametrize_constants, "make kernels that differ in constants alone one kernel with parameters"),
    _plain(copy_outputs, "give every output memory of its own"),
    DCE,
)

PREPARED: Pipeline = (CLEAN, QUANTISED, ALGEBRA, VIEWS, COPIES, FUSION)
"""What processors and devices share: simplified and fused, in f32 or bytes."""
MEMORY = PassStage("memory", (LAYOUT, BATCH_TILING, SLICES, SHARED_COPIES, *IN_PLACE))
DEVICE_MEMORY = PassStage("memory", (LAYOUT, SLICES, *IN_PLACE))
PROCESSOR: Pipeline = (*PREPARED, ATTENTION, CONTRACTIONS, PRECISION, PADDING, MEMORY)
DEVICE: Pipeline = (LOOPS, *PREPARED, ONLINE_ATTENTION, OPERANDS, PRECISION, DEVICE_MEMORY)


def optimise(graph: Graph, options: Options | None = None, pipeline: Pipeline = PROCESSOR) -> Graph:
    """Return a graph that computes the same with fewer, larger kernels, ready to be planned, and so the bodies of its loops. Raises
    InternalError that names the pass that went wrong."""
    for step in steps(graph, pipeline, options or Options()):
        graph = step.after
    bodies = {loop.name: replace(loop, body=optimise(loop.body, options, pipeline)) for loop in loops_of(graph)}
    return replace(graph, nodes=tuple(bodies.get(node.name, node) for node in graph.nodes)) if bodies else graph
