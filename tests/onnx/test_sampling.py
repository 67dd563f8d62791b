"""Sampling, transforms and choices that the data make, at odd sizes, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_evaluate import staged

import tensorlang as tl

Array = np.ndarray[Any, Any]


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def model(op: str, arrays: Sequence[Array], opset: int = 20, **attributes: Any) -> Any:
    names = [f"x{k}" for k in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, arrays, strict=True)
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    result.ClearField("type")
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(op: str, *arrays: Array, opset: int = 20, tolerance: float = 2e-5, **attributes: Any) -> None:
    made = model(op, arrays, opset, **attributes)
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    (expected,) = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    (found,) = staged(made, feeds)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grids_in_two_dimensions(mode: str, padding: str, align: int) -> None:
    check("GridSample", draw(2, 3, 5, 7), draw(2, 4, 3, 2) * 1.3, mode=mode, padding_mode=padding, align_corners=align)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grids_in_three_dimensions(mode: str, padding: str) -> None:
    check("GridSample", draw(1, 2, 3, 4, 5), draw(1, 2, 3, 2, 3) * 1.3, mode=mode, padding_mode=padding)


def test_grids_before_version_20() -> None:
    check("GridSample", draw(1, 1, 4, 4), draw(1, 3, 3, 2), opset=16, mode="bilinear")


def test_grids_of_places_that_are_no_numbers_read_inside_of_the_picture() -> None:
    grid = draw(1, 2, 2, 2)
    grid[0, 0, 0], grid[0, 1, 1] = np.nan, 1e30
    made = tl.compile(model("GridSample", [draw(1, 1, 4, 4), grid]), threads=1)
    assert made(draw(1, 1, 4, 4), grid).shape == (1, 1, 2, 2)


@pytest.mark.parametrize(("extent", "length"), [(8, 5), (8, 8), (8, 12), (61, 64)])
@pytest.mark.parametrize("parts", [1, 2])
def test_transforms(extent: int, length: int, parts: int) -> None:
    x = draw(2, extent, 3, parts)
    for inverse in (0, 1):
        check("DFT", x, np.asarray(length), np.asarray(1), inverse=inverse)
    if parts == 1:
        check("DFT", x, np.asarray(length), np.asarray(-3), onesided=1)


def test_transforms_of_pieces() -> None:
    window = np.hanning(6).astype(np.float32)
    check("STFT", draw(2, 20, 1), np.asarray(3), window, np.asarray(6), opset=17, onesided=1)


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 0, 0, 1]}, {"strides": [2, 1]}, {"dilations": [1, 2]}])
def test_windows_are_put_back(attributes: dict[str, list[int]]) -> None:
    out, block = (5, 6), (2, 3)
    pads, strides, dilations = (attributes.get(k, d) for k, d in (("pads", [0] * 4), ("strides", [1, 1]), ("dilations", [1, 1])))
    counts = [(out[k] + pads[k] + pads[k + 2] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1 for k in (0, 1)]
    check("Col2Im", draw(2, 3 * 6, counts[0] * counts[1]), np.asarray(out), np.asarray(block), opset=18, **attributes)


@pytest.mark.parametrize("count", [0, 1, 7, 24])
def test_what_is_not_zero_is_found(count: int) -> None:
    x = np.zeros(24, np.float32)
    x[np.random.default_rng(count).permutation(24)[:count]] = -2
    check("NonZero", x.reshape(2, 3, 4), opset=13)
    made = tl.compile(model("NonZero", [x.reshape(4, 6)], 13), threads=1)
    np.testing.assert_array_equal(made(x.reshape(4, 6)), np.nonzero(x.reshape(4, 6)))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_what_a_condition_chooses_is_kept(axis: int | None) -> None:
    x, random = draw(4, 5, 3), np.random.default_rng(3)
    size = 60 if axis is None else x.shape[axis]
    attributes = {} if axis is None else {"axis": axis}
    for chosen in (random.random(size) < 0.5, random.random(size - 1) < 0.5, np.zeros(size, np.bool_)):
        check("Compress", x, chosen, opset=11, **attributes)


def test_bits_stay_where_types_change() -> None:
    x = np.asarray([1.5, -0.0, np.inf, -2.25], np.float32)
    (y,) = staged(model("BitCast", [x], 26, to=TensorProto.INT32), {"x0": x})
    np.testing.assert_array_equal(y, x.view(np.int32))


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ"])
def test_bits_of_narrow_floats_stay(dtype: str) -> None:
    size = 2 if dtype.endswith("16") else 1
    numbers = np.arange(1 << 8 * size).astype(f"u{size}")
    infos = {"x": getattr(TensorProto, f"UINT{8 * size}"), "y": getattr(TensorProto, dtype), "z": getattr(TensorProto, f"INT{8 * size}")}
    nodes = [helper.make_node("BitCast", [taken], [made], to=infos[made]) for taken, made in (("x", "y"), ("y", "z"))]
    x, *results = (helper.make_tensor_value_info(name, kind, [len(numbers)]) for name, kind in infos.items())
    net = helper.make_model(helper.make_graph(nodes, "net", [x], results), opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
    y, z = tl.compile(net, threads=1)(numbers)
    expected = numbers.view(helper.tensor_dtype_to_np_dtype(infos["y"]))
    numbers_alone = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(y.view(numbers.dtype)[numbers_alone], numbers[numbers_alone])
    np.testing.assert_array_equal(z.view(numbers.dtype)[numbers_alone], numbers[numbers_alone])
    assert np.isnan(y.astype(np.float32)[~numbers_alone]).all() and np.isnan(z.view(y.dtype).astype(np.float32)[~numbers_alone]).all()


@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_regions_are_cut_into_bins(how: str, mode: str, ratio: int) -> None:
    x, at = draw(2, 3, 6, 7), np.array([0, 1, 1, 0], np.int64)
    regions = np.array([[0, 0, 3, 3], [1, 1, 6.5, 5], [2, 2, 2.25, 4], [-1, 3, 9, 8]], np.float32)
    attributes = {"coordinate_transformation_mode": how, "mode": mode, "sampling_ratio": ratio}
    check("RoiAlign", x, regions, at, opset=16, output_height=2, output_width=3, spatial_scale=0.75, **attributes)


def test_a_model_of_regions_runs() -> None:
    x, regions, at = draw(1, 2, 5, 5), np.array([[0, 0, 4, 4]], np.float32), np.array([0], np.int64)
    made = model("RoiAlign", [x, regions, at], 16, output_height=2, output_width=2, sampling_ratio=0)
    (expected,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": x, "x1": regions, "x2": at})
    compiled = tl.compile(made, threads=1)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x, regions, at), expected, rtol=1e-5, atol=1e-6)


def test_windows_go_where_the_data_say() -> None:
    x, w, bias = draw(1, 4, 5, 6), draw(6, 2, 3, 3), draw(6)
    offset, mask = draw(1, 2 * 2 * 9, 5, 3) * 2, draw(1, 2 * 9, 5, 3)
    attributes = {"group": 2, "offset_group": 2, "pads": [1, 1, 1, 1], "strides": [1, 2]}
    node = helper.make_node("DeformConv", ["x", "w", "o", "b", "m"], ["y"], **attributes)
    expected = ReferenceEvaluator(node).run(None, {"x": x, "w": w, "o": offset, "b": bias, "m": mask})[0]
    (found,) = staged(
        model("DeformConv", [x, w, offset, bias, mask], 22, **attributes), {f"x{k}": a for k, a in enumerate((x, w, offset, bias, mask))}
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_determinants(size: int) -> None:
    x = draw(3, size, size)
    (found,) = staged(model("Det", [x], 22), {"x0": x})
    np.testing.assert_allclose(found, np.linalg.det(x), rtol=1e-4, atol=1e-5)
    singular = np.zeros((size, size), np.float32)
    (none,) = staged(model("Det", [singular], 22), {"x0": singular})
    assert none == (0 if size else 1)


def test_maxima_go_back_to_where_they_were() -> None:
    x = draw(1, 2, 5, 6)
    pool = helper.make_node("MaxPool", ["x"], ["p", "at"], kernel_shape=[2, 2], strides=[2, 2])
    pooled, at = ReferenceEvaluator(pool).run(None, {"x": x[:, :, :4]})
    check("MaxUnpool", pooled, at, opset=11, kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("extents", [(5,), (4, 5), (3, 4, 5)])
def test_places_of_maxima_are_counted_by_columns(extents: tuple[int, ...]) -> None:
    x = draw(2, 2, *extents)
    made = model("MaxPool", [x], kernel_shape=[2] * len(extents), storage_order=1)
    made.graph.node[0].output.append("at")
    made.graph.output.append(helper.make_tensor_value_info("at", TensorProto.INT64, None))
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": x})
    for a, b in zip(staged(made, {"x0": x}), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_dropped_follows_from_the_seed() -> None:
    x = np.ones((40, 50), np.float32)
    made = model("Dropout", [x, np.array(0.25, np.float32), np.array(True)], 13, seed=7)
    (found,) = staged(made, {"x0": x, "x1": np.array(0.25, np.float32), "x2": np.array(True)})
    kept = np.random.RandomState(7).uniform(0, 1, x.shape) >= 0.25
    np.testing.assert_allclose(found, np.where(kept, 1 / 0.75, 0), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_regions_are_pooled_as_onnxruntime_does(scale: float) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 8), np.float32)
    rois = np.array([[0, 1, 1, 6, 5], [1, 0, 0, 15, 13], [0, -4, -3, -1, -1], [1, 3.5, 2.5, 3, 2]], np.float32)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(a.shape)) for name, a in (("x", x), ("r", rois))]
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 3], spatial_scale=scale)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x, "r": rois})[0]
    np.testing.assert_array_equal(staged(made, {"x": x, "r": rois})[0], expected)
