"""Transposed convolutions of models, cut into phases: that what is compiled computes the same, and what is left of their weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from bits import assert_same_bits
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from stdlib.onnx import Importer
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.options import Options
from tensorlang.graph.passes.algebra.phases import phases
from tensorlang.graph.pipeline import optimise
from tensorlang.tensor.walk import reduces

RNG = np.random.default_rng(13)


def model(x: tuple[int, ...], w: tuple[int, ...], *, constant: bool = True, **attrs: Any) -> onnx.ModelProto:
    """Return relu(conv_transpose(x, w, b) + skip), whose skip has the shape of the result."""
    weights = {"w": RNG.standard_normal(w), "b": RNG.standard_normal(w[1] * attrs.get("group", 1))}
    out = _shape(x, w, **attrs)
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **attrs),
        helper.make_node("Add", ["c", "skip"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    inputs = {"x": x, "skip": out} | ({} if constant else {"w": w})
    graph = helper.make_graph(
        nodes,
        "up",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items() if n not in inputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _shape(x: tuple[int, ...], w: tuple[int, ...], **attrs: Any) -> tuple[int, ...]:
    rank = len(x) - 2
    pads = attrs.get("pads", [0] * 2 * rank)
    lists = (attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank), attrs.get("output_padding", [0] * rank))
    sizes = zip(x[2:], w[2:], *lists, pads[:rank], pads[rank:], strict=True)
    return (x[0], w[1] * attrs.get("group", 1), *((h - 1) * s + (k - 1) * d + 1 + e - a - b for h, k, s, d, e, a, b in sizes))


def feeds(of: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in of.graph.input}
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def expected(of: onnx.ModelProto, given: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the result by definition: every input adds its products with all taps where they land."""
    arrays = given | {c.name: numpy_helper.to_array(c) for c in of.graph.initializer}
    x, w, out = arrays["x"], arrays["w"], np.zeros_like(given["skip"])
    attrs = {a.name: helper.get_attribute_value(a) for a in of.graph.node[0].attribute}
    rank, group = x.ndim - 2, attrs.get("group", 1)
    stride, dilation = (attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    channels, filters = w.shape[0] // group, w.shape[1]
    for g, at, tap in product(range(group), np.ndindex(x.shape[2:]), np.ndindex(w.shape[2:])):
        p = [i * s + k * d - lo for i, k, s, d, lo in zip(at, tap, stride, dilation, attrs.get("pads", [0] * rank), strict=False)]
        if all(0 <= i < n for i, n in zip(p, out.shape[2:], strict=True)):
            mine = slice(g * channels, (g + 1) * channels)
            out[(slice(None), slice(g * filters, (g + 1) * filters), *p)] += x[(slice(None), mine, *at)] @ w[(mine, slice(None), *tap)]
    return np.maximum(0, out + arrays["b"].reshape(-1, *(1,) * rank) + given["skip"])


def optimised(of: onnx.ModelProto) -> Graph:
    return optimise(Importer().load(of), Options(toolchain(threads=1).preferred_layouts))


CASES = {
    "windows side by side": model((1, 20, 6, 5), (20, 17, 2, 2), strides=[2, 2]),
    "windows that meet": model((2, 3, 5, 6), (3, 20, 4, 4), strides=[2, 2], pads=[1] * 4),
    "an axis that does not come out even": model((1, 4, 5, 4), (4, 16, 3, 3), strides=[2, 2], pads=[1] * 4),
    "groups": model((1, 32, 4, 5), (32, 16, 3, 4), strides=[2, 2], group=2, output_padding=[1, 0]),
    "every channel for itself": model((1, 16, 4, 5), (16, 1, 4, 4), strides=[2, 2], group=16, pads=[1] * 4),
    "dilated": model((1, 5, 4, 5), (5, 18, 3, 3), strides=[3, 2], dilations=[2, 2]),
    "stride one": model((1, 5, 6, 7), (5, 16, 3, 3), pads=[1] * 4),
    "few columns": model((2, 9, 6, 20), (9, 3, 4, 4), strides=[2, 2], pads=[1] * 4),
    "few columns, taps that do not come out even": model((1, 9, 6, 20), (9, 3, 3, 3), strides=[2, 2], pads=[1] * 4),
    "one axis": model((2, 7, 9), (7, 33, 8), strides=[4], pads=[2, 2]),
    "windows with gaps": model((1, 3, 4, 4), (3, 16, 2, 1), strides=[3, 2]),
    "one point": model((1, 1, 1, 1), (1, 1, 1, 1), strides=[2, 2]),
    "weights that are given": model((1, 4, 5, 5), (4, 16, 4, 4), strides=[2, 2], pads=[1] * 4, constant=False),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_transposed_convolution_in_phases_computes_the_same(name: str, threads: int) -> None:
    given = feeds(CASES[name])
    wanted = expected(CASES[name], given)
    np.testing.assert_allclose(tl.compile(CASES[name], threads=threads).run(given)["y"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["windows side by side", "windows that meet", "stride one"])
def test_no_filter_of_equalities_is_left(name: str) -> None:
    kernels = [n for n in optimised(CASES[name]).nodes if isinstance(n, Kernel)]
    left = [str(r.where) for k in kernels for d in k.program.definitions for p in d.pieces for r in reduces(p.value)]
    assert left and not any("==" in where for where in left)


def test_constant_weights_are_written_out_once_in_the_order_of_phases() -> None:
    graph = optimised(CASES["windows that meet"])
    [weights] = [name for name in graph.constants if name.startswith("phases of w")]
    assert sorted(graph.constants[weights].shape) == sorted((1, 3, 20, 2, 2, 2, 2))
    assert not any(node.name.startswith("phases of") for node in graph.nodes)


def test_weights_that_are_given_are_written_out_by_a_kernel() -> None:
    names = [node.name for node in phases(Importer().load(CASES["weights that are given"])).nodes]
    assert any(name.startswith("phases of w") for name in names)


@pytest.mark.parametrize("filters", [2, 16])
def test_what_is_not_finite_stays_where_its_window_reaches(filters: int) -> None:
    """A term that is left out is not one that is multiplied by zero."""
    of = model((1, 1, 3, 3), (1, filters, 4, 4), strides=[2, 2], pads=[1] * 4)
    given = feeds(of)
    before = tl.compile(of, threads=1).run(given)["y"]
    weights = numpy_helper.to_array(of.graph.initializer[0]).copy()
    weights[:, :, 0, :] = np.inf
    of.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    after = tl.compile(of, threads=1).run(given)["y"]
    # Row 0 of the taps adds to the odd rows of the result from the second input row on alone.
    assert_same_bits(after[:, :, 0::2], before[:, :, 0::2])
    assert_same_bits(after[:, :, -1], before[:, :, -1])
    assert not np.isfinite(after[:, :, 1:-1:2]).all()


def test_a_graph_without_such_sums_is_returned_itself() -> None:
    graph = optimised(CASES["windows that meet"])
    assert phases(graph) is graph


@pytest.mark.parametrize(("filters", "taps"), [(32, 2), (24, 4)])
def test_results_of_many_channels_are_stored_in_blocks_of_these(filters: int, taps: int) -> None:
    """Phases end the rows of a result: what lies next to each other is not what a vector of points would hold."""
    of = model((1, 64, 28, 28), (64, filters, taps, taps), strides=[2, 2])
    graph = optimised(of)
    [kernel] = [n for n in graph.nodes if isinstance(n, Kernel) and "ConvTranspose_0" in n.members]
    assert graph.values[kernel.outputs[0]].layout is not None
