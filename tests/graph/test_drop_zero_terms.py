"""Taps of a filter that meet nothing but padding are not summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from bits import assert_same_bits
from onnx import TensorProto, helper, numpy_helper
from small_graphs import run

from codegen.dtypes import f16, f32
from stdlib.onnx import Importer
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.passes.algebra.drop_zero_terms import drop_zero_terms
from tensorlang.graph.verify import verify
from tensorlang.tensor.contraction import contractions
from tensorlang.tensor.nodes import Call, Cast, Expr
from tensorlang.tensor.walk import map_values, replaced

RNG = np.random.default_rng(5)


def model(x: tuple[int, ...], w: tuple[int, ...], *, constant: bool = True, last: float = 0.5, **attrs: Any) -> onnx.ModelProto:
    """Return a convolution, of whose weights the last has the value `last`."""
    weights = RNG.standard_normal(w).astype(np.float32)
    weights[(-1,) * len(w)] = last
    inputs = {"x": x} | ({} if constant else {"w": w})
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], **attrs)],
        "dilated",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")] if constant else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("x", "w", "attrs", "left"),
    [
        ((1, 2, 3, 4), (3, 2, 3, 3), {"dilations": [4, 4], "pads": [4] * 4}, (1, 1)),
        ((1, 2, 3, 9), (3, 2, 3, 5), {"dilations": [3, 4], "pads": [3, 8, 3, 8]}, (1, 5)),
        ((1, 2, 3, 8), (3, 2, 3, 5), {"dilations": [3, 4], "pads": [3, 8, 3, 8]}, (1, 3)),
        ((2, 4, 5), (4, 2, 4), {"dilations": [3], "pads": [0, 9], "group": 2}, (2,)),
        ((1, 2, 6), (3, 2, 4), {"pads": [0, 9], "strides": [5]}, (4,)),
    ],
    ids=["one of nine", "an axis of two", "the middle", "one side, groups", "strided"],
)
def test_the_sum_goes_over_the_taps_that_meet_an_element(
    x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], left: tuple[int, ...]
) -> None:
    before = Importer().load(model(x, w, **attrs))
    after = verify(drop_zero_terms(before))
    [kernel] = [node for node in after.nodes if isinstance(node, Kernel)]
    [(_, found)] = contractions(kernel.program)
    assert after.values[kernel.inputs[1]].shape == (*w[:2], *left)
    assert [b.extent for b in found.reduce.binders] == [w[1], *(n for n in left if n > 1)]
    assert drop_zero_terms(after) is after
    given = {"x": RNG.standard_normal(x).astype(np.float32)}
    assert_same_bits(run(after, given)["y"], run(before, given)["y"])


def as_f16(w: Expr) -> Expr:
    return Cast(f32, Cast(f16, w))


def as_bf16(w: Expr) -> Expr:
    return Call("round_bf16", (w,))


@pytest.mark.parametrize(
    ("narrowed", "last", "drops"),
    [(as_f16, 65504.0, True), (as_f16, 65536.0, False), (as_bf16, 65536.0, True), (as_bf16, float(np.finfo(np.float32).max), False)],
)
def test_weights_are_numbers_in_all_types_that_they_pass(narrowed: Callable[[Expr], Expr], last: float, drops: bool) -> None:
    before = Importer().load(model((1, 2, 3, 4), (3, 2, 3, 3), dilations=[4, 4], pads=[4] * 4, last=last))
    [kernel] = [node for node in before.nodes if isinstance(node, Kernel)]
    [(_, found)] = contractions(kernel.program)
    [w] = [factor.value for factor in found.factors if factor.is_plain]
    program = map_values(kernel.program, lambda e: replaced(e, w, narrowed(w)))
    graph = verify(replace(before, nodes=tuple(replace(n, program=program) if n is kernel else n for n in before.nodes)))
    assert (drop_zero_terms(graph) is graph) != drops


@pytest.mark.parametrize(
    "of",
    [
        model((1, 2, 3, 4), (3, 2, 3, 3), dilations=[4, 4], pads=[4] * 4, last=float("inf")),
        model((1, 2, 3, 4), (3, 2, 3, 3), dilations=[4, 4], pads=[4] * 4, constant=False),
        model((1, 2, 5, 5), (3, 2, 3, 3), dilations=[4, 4], pads=[4] * 4),
    ],
    ids=["infinite", "given", "in a corner"],
)
def test_taps_whose_terms_may_be_something_stay(of: onnx.ModelProto) -> None:
    graph = Importer().load(of)
    assert drop_zero_terms(graph) is graph
