"""Every encoding of lower precision takes the same contractions, and minimal filtering leaves those to it that are made of parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_graphs import conv1x1, graph, kernel, matmul
from test_algebra import random
from test_fuse_attention import attention
from test_round_to_tf32 import convolution_in_groups
from test_winograd_pass import block, rewritten

from codegen.dtypes import bf16, f16, f32
from stdlib.onnx import Importer
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.options import Options
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.fusion.fuse_attention import fuse_attention
from tensorlang.graph.passes.precision.explain import product_precisions
from tensorlang.graph.passes.precision.lower_precision import lower_precision, lowers
from tensorlang.graph.passes.precision.products import products
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.precisions import DEVICE_PRECISIONS, Precision
from tensorlang.graph.verify import verify
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import contractions
from tensorlang.tensor.nodes import Program

LOWER = [Precision(name, name) for name in DEVICE_PRECISIONS if name != "f32"]


def one(program: Program) -> Graph:
    shapes = {p.name: walk.caller_shape(p, {}) for p in program.params}
    weight = program.params[1].name
    given = {name: shape for name, shape in shapes.items() if name != weight}
    return graph(given, [kernel(program, " ".join(shapes), "y")], ["y"], {weight: random(*shapes[weight])})


def multiplies_f32(g: Graph) -> bool:
    """Tell whether a contraction of the graph multiplies f32 as it is."""
    programs = [node.program for node in g.nodes if isinstance(node, Kernel)]
    types = [({t.name: t.dtype for t in walk.tensors(p)}, c) for p in programs for _, c in contractions(p)]
    return any(table[f.read.tensor] == f32 and not f.rounding for table, c in types for f in c.factors)


@pytest.mark.parametrize("precision", LOWER, ids=lambda p: p.requested)
@pytest.mark.parametrize("program", [matmul(4, 8, 8), conv1x1(1, 16, 8, 4)], ids=lambda p: p.name)
def test_what_one_encoding_takes_all_take(precision: Precision, program: Program) -> None:
    before = one(program)
    after = verify(lower_precision(before, precision))
    assert multiplies_f32(before) and not multiplies_f32(after)
    assert {after.values[v].dtype for v in (*after.inputs, *after.outputs)} == {f32}


@pytest.mark.parametrize("precision", LOWER, ids=lambda p: p.requested)
@pytest.mark.parametrize(
    "program", [matmul(4, 8, 6), matmul(4, 8, 9), replace(matmul(4, 8, 8), mode="strict")], ids=["few", "odd", "strict"]
)
def test_what_one_encoding_leaves_alone_all_do(precision: Precision, program: Program) -> None:
    before = one(program)
    assert [bool(p.refusal) for p in products(program)] == [True]
    assert lower_precision(before, precision).nodes == before.nodes


def test_convolutions_in_groups_stay_f32_only_where_parts_cannot_lie_one_after_another() -> None:
    g = convolution_in_groups()
    left = [p.requested for p in LOWER if multiplies_f32(verify(lower_precision(g, p)))]
    assert left == ["bf16x3", "bf16x6"]
    [node] = g.nodes
    assert isinstance(node, Kernel)
    why = "parts cannot lie one after another along an index of the sum"
    assert product_precisions(node.program, Precision("bf16x3", "bf16x3")) == (f"products of `x` and `w` stay f32: {why}",)


@pytest.mark.parametrize("precision", LOWER, ids=lambda p: p.requested)
def test_one_product_inside_another_stays_f32(precision: Precision) -> None:
    joined = fuse_attention(fuse(attention()))
    [node] = joined.nodes
    assert isinstance(node, Kernel)
    assert {p.refusal for p in products(node.program)} == {"one product is inside another"}
    assert lower_precision(joined, precision).nodes == joined.nodes


def test_types_say_how_operands_are_kept() -> None:
    for name, dtype in (("bf16", bf16), ("f16", f16), ("bf16x3", bf16)):
        after = lower_precision(one(matmul(4, 8, 8)), Precision(name, name))
        assert {value.dtype for value in after.values.values()} == {f32, dtype}
    assert {v.dtype for v in lower_precision(one(matmul(4, 8, 8)), Precision("tf32", "tf32")).values.values()} == {f32}


def test_minimal_filtering_leaves_convolutions_alone_that_are_made_of_parts() -> None:
    loaded, options = Importer().load(block(32, 32, 14, 14)), Options(tiles=lambda found: (4, 4))
    parts = Precision("bf16x3", "bf16x3")
    assert rewritten(optimise(loaded, options)) and not rewritten(optimise(loaded, replace(options, precision=parts)))
    few = replace(parts, least=1 << 20)
    assert rewritten(optimise(loaded, replace(options, precision=few))), "what is not made of parts may be filtered"
    assert lowers(matmul(4, 8, 8), parts) and not lowers(matmul(4, 8, 8), Precision("f32", "f32"))
