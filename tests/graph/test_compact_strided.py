"""Convolutions of one point between what a model takes and returns: products where they lie, samples of what is read at strides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tensorlang as tl
from codegen.dtypes import f32
from codegen.llvm.target import host
from stdlib.onnx import Importer
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.nodes import Graph
from tensorlang.graph.options import Options
from tensorlang.graph.passes.memory.compact_strided import compact_strided
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.sizes import Symbols

RNG = np.random.default_rng(5)


def model(c: int, size: int, f: int, window: int, stride: int, pad: int = 0, *, before: bool = False, group: int = 1) -> onnx.ModelProto:
    """Return a convolution of an input, or of the relu of another convolution of it."""
    out = (size + 2 * pad - window) // stride + 1
    weights = {"w": RNG.standard_normal((f, c // group, window, window)).astype(np.float32)}
    nodes = []
    if before:
        weights["v"] = RNG.standard_normal((c, c, 1, 1)).astype(np.float32)
        nodes = [helper.make_node("Conv", ["x", "v"], ["t"]), helper.make_node("Relu", ["t"], ["u"])]
    source = "u" if before else "x"
    nodes.append(helper.make_node("Conv", [source, "w"], ["y"], strides=[stride] * 2, pads=[pad] * 4, group=group))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, c, size, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, f, out, out])
    constants = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def loaded(m: onnx.ModelProto) -> Graph:
    return Importer().load(m.SerializeToString(), None, {})


def kernels(m: onnx.ModelProto, shapes: Mapping[str, tuple[Any, ...]] | None = None) -> list[str]:
    """Return the names of the programs that are run, in order."""
    tools, graph = toolchain(threads=1, cache=False), Importer().load(m.SerializeToString(), shapes, {})
    return [node.program.name for node in optimise(graph, Options(tools.preferred_layouts, tools.tiles)).nodes]  # type: ignore[union-attr]


def test_a_convolution_of_one_point_is_a_product_where_its_input_and_result_lie() -> None:
    assert kernels(model(32, 8, 64, 1, 1)) == ["conv"]


def test_where_vectors_of_pixels_waste_more_than_a_copy_takes_the_result_alone_is_copied() -> None:
    assert kernels(model(256, 5, 64, 1, 1)) == ["conv", "copy"]


@pytest.mark.parametrize("pads", [[0, 0, 2, 2], [0, 0, 2, 0], [0, 0, 7, 1]])
def test_what_a_stride_meets_of_padding_is_not_in_the_sample(pads: list[int]) -> None:
    m = model(4, 3, 2, 1, 3)
    m.graph.node[-1].attribute[1].CopyFrom(helper.make_attribute("pads", pads))
    m.graph.output[0].ClearField("type")
    x = RNG.standard_normal((1, 4, 3, 3)).astype(np.float32)
    [want] = ReferenceEvaluator(m).run(None, {"x": x})
    np.testing.assert_allclose(tl.compile(m, threads=1).run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


def test_of_an_input_only_what_a_stride_meets_is_laid_out() -> None:
    assert kernels(model(32, 16, 64, 1, 2)) == ["sample", "conv"]


def test_of_an_input_of_open_sizes_only_what_a_stride_meets_is_laid_out() -> None:
    symbols = Symbols({"size.n": 2, "size.h": 16, "size.w": 18})
    n, h, w = map(symbols.symbol, symbols.samples)
    m = model(32, 16, 64, 1, 2)
    for value, shape in ((m.graph.input[0], "nchw"), (m.graph.output[0], "nfpq")):
        for dim, name in zip(value.type.tensor_type.shape.dim, shape, strict=True):
            dim.dim_param = name
    assert kernels(m, {"x": (n, 32, h, w)}) == ["sample", "conv"]
    assert all(condition.holds({"size.n": 1, "size.h": 1, "size.w": 1}) for condition in symbols.assumed)


def test_what_another_kernel_makes_is_not_sampled() -> None:
    assert "sample" not in kernels(model(32, 16, 64, 1, 2, before=True))


def test_a_window_that_overlaps_itself_is_not_sampled() -> None:
    g = loaded(model(32, 16, 64, 3, 2, 1))
    assert compact_strided(g).nodes == g.nodes


@pytest.mark.parametrize(
    ("c", "size", "f", "stride", "group"),
    [(32, 16, 48, 2, 1), (16, 9, 16, 3, 1), (24, 11, 40, 2, 2), (32, 8, 64, 1, 1), (256, 5, 64, 1, 1)],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_convolution_of_one_point_computes_the_product_of_its_matrices(
    c: int, size: int, f: int, stride: int, group: int, threads: int
) -> None:
    m = model(c, size, f, 1, stride, group=group)
    x = RNG.standard_normal((1, c, size, size)).astype(np.float32)
    w = numpy_helper.to_array(m.graph.initializer[0]).astype(np.float64).reshape(group, f // group, c // group)
    met = x[0, :, ::stride, ::stride].astype(np.float64).reshape(group, c // group, -1)
    expected = np.einsum("gfc,gcp->gfp", w, met)
    found = tl.compile(m.SerializeToString(), threads=threads).run({"x": x})["y"]
    # Sums of c products of normal numbers: each addition errs by half a unit in the last place of at most the sum of magnitudes.
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=c * c * 2.0**-24)


def test_windows_of_every_channel_slide_along_rows_that_are_whole_vectors() -> None:
    assert kernels(model(32, 48, 32, 3, 1, 1, group=32)) == ["conv"]
    assert kernels(model(32, max(3, host().lanes(f32) // 2 - 1), 32, 3, 1, 1, group=32)) == ["copy", "conv", "copy"]


@pytest.mark.parametrize(("size", "stride", "pad"), [(48, 1, 1), (46, 1, 0), (64, 2, 1), (31, 1, 1)])
@pytest.mark.parametrize("threads", [1, 2])
def test_windows_along_rows_compute_the_sum_of_each_channel(size: int, stride: int, pad: int, threads: int) -> None:
    m = model(32, size, 32, 3, stride, pad, group=32)
    x = RNG.standard_normal((1, 32, size, size)).astype(np.float32)
    w = numpy_helper.to_array(m.graph.initializer[0]).astype(np.float64)[:, 0]
    around = np.pad(x[0].astype(np.float64), ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (1, 2))[:, ::stride, ::stride]
    found = tl.compile(m.SerializeToString(), threads=threads).run({"x": x})["y"]
    # Sums of nine products of numbers below six.
    np.testing.assert_allclose(found[0], np.einsum("chwrs,crs->chw", windows, w), atol=9 * 9 * 36 * 2.0**-24)
