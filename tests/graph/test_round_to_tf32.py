"""Operands of contractions rounded to tf32: which, and how far results are from f32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_graphs import conv1x1, graph, kernel, matmul, run
from test_algebra import random
from test_narrow_storage import two_layers

from codegen.dtypes import f32, nearest_tf32
from stdlib.onnx.importer import Importer
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.precision.explain import product_precisions
from tensorlang.graph.passes.precision.round_to_tf32 import round_to_tf32, with_rounded
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.precisions import Precision
from tensorlang.graph.verify import verify
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.verify import verify as verify_program

TF32 = Precision("tf32", "tf32")


def done(g: Graph) -> Graph:
    made = verify(round_to_tf32(g))
    for node in made.nodes:
        assert isinstance(node, Kernel)
        verify_program(node.program)
    return made


def test_sums_multiply_what_is_rounded_and_nothing_is_stored_otherwise() -> None:
    a, b = random(4, 32), random(32, 8, seed=1)
    program = with_rounded(matmul(4, 8, 32))
    exact = nearest_tf32(a).astype(np.float64) @ nearest_tf32(b).astype(np.float64)
    np.testing.assert_allclose(interpret(program, {}, {"a": a, "b": b})["y"], exact, rtol=1e-5, atol=1e-6)
    assert product_precisions(program, TF32) == ("products of `a` and `b` are tf32",)
    assert {v.dtype for v in done(fuse(two_layers())).values.values()} == {f32}


def test_results_are_off_by_what_ten_bits_leave_out() -> None:
    g, x = fuse(two_layers()), random(4, 8)
    [got], [want] = (run(made, {"x": x}).values() for made in (done(g), g))
    assert 0 < np.abs(got - want).max() <= 2e-3 * np.abs(want).max()


def test_convolutions_are_rounded_too() -> None:
    assert product_precisions(with_rounded(conv1x1(1, 16, 8, 4)), TF32) == ("products of `x` and `w` are tf32",)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (matmul(4, 8, 6), "6 products along `k` are no pairs that are worth it"),
        (replace(matmul(4, 8, 8), mode="strict"), "the operator is strict"),
    ],
)
def test_what_stays_f32_has_a_reason(program: Program, why: str) -> None:
    a, b = (tuple(int(n.value) for n in p.shape) for p in program.params)  # type: ignore[union-attr]
    g = graph({"a": a, "b": b}, [kernel(program, "a b", "y")], ["y"])
    assert done(g).nodes == g.nodes
    assert product_precisions(program, TF32) == (f"products of `a` and `b` stay f32: {why}",)


def convolution_in_groups() -> Graph:
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 32, 6, 6))]
    weights = numpy_helper.from_array(random(32, 16, 3, 3), "w")
    conv = helper.make_node("Conv", ["x", "w"], ["y"], group=2, pads=[1, 1, 1, 1])
    model = helper.make_graph([conv], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weights])
    return optimise(Importer().load(helper.make_model(model, opset_imports=[helper.make_opsetid("", 18)])))


def test_convolutions_in_groups_are_rounded_too() -> None:
    [node] = done(convolution_in_groups()).nodes
    assert isinstance(node, Kernel)
    assert product_precisions(node.program, TF32) == ("products of `x` and `w` are tf32",)
