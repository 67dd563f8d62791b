"""The eighteen models become verified graphs with the shapes and types they declare, quickly, and compute what onnxruntime computes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx_evaluate import evaluate

import tensorlang as tl
from stdlib import models
from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError, RunError
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.verify import verify

SHAPES = {
    "bert_base": (1, 128, 768), "minilm_l6": (1, 128, 384), "gpt2": (1, 128, 50257), "light_densenet121": (1, 1000, 1, 1),
    "light_squeezenet": (1, 1000, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", models.names())
def test_a_model_becomes_a_verified_graph(name: str) -> None:
    model = models.bare(name)
    graph = verify(Importer().load(model))
    assert [graph.values[o].shape for o in graph.outputs] == [SHAPES.get(name, (1, 1000))]
    assert all(not isinstance(n, Kernel) or n.operator for n in graph.nodes)


def test_importing_again_gives_the_same_graph() -> None:
    first, second = (Importer().load(models.bare("squeezenet11")) for _ in range(2))
    assert (first.inputs, first.outputs, first.values, first.nodes) == (second.inputs, second.outputs, second.values, second.nodes)


def test_random_weights_are_the_same_for_the_same_seed() -> None:
    one, same, other = (models.load("squeezenet11", seed) for seed in (1, 1, 2))
    assert one.SerializeToString(deterministic=True) == same.SerializeToString(deterministic=True)
    assert one.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True)


def test_names_that_are_no_model_are_refused() -> None:
    with pytest.raises(CompileError, match="resnet50"):
        models.load("resnet51")


def test_every_kernel_of_squeezenet_computes_what_onnxruntime_computes() -> None:
    model = models.load("squeezenet11", seed=3)
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 35
    x = np.random.default_rng(0).standard_normal((1, 3, 35, 35), dtype=np.float32)
    (expected,) = peer(model.SerializeToString()).run(None, {"x": x})
    (actual,) = evaluate(Importer().load(model), {"x": x})
    # Twenty-six convolutions of up to 4608 terms each: a few thousand rounding errors of the largest activation.
    assert np.abs(actual - expected).max() <= 2000 * np.finfo(np.float32).eps * np.abs(expected).max()


def peer(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options)


def small_model(nodes: list[NodeProto], inputs: dict[str, tuple[int, tuple[int, ...]]], constants: dict[str, object]) -> ModelProto:
    given = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "small", given, [ValueInfoProto(name="y")], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_what_follows_from_constants_is_known_however_many_elements_it_has() -> None:
    nodes = [
        helper.make_node("Range", ["zero", "count", "one"], ["r"]),
        helper.make_node("Greater", ["r", "limit"], ["g"]),
        helper.make_node("NonZero", ["g"], ["found"]),
        helper.make_node("Gather", ["x", "found"], ["y"]),
    ]
    model = small_model(nodes, {"x": (1, (6000,))}, {"zero": 0, "count": 6000, "one": 1, "limit": 5996})
    [y] = evaluate(Importer().load(model), {"x": np.arange(6000, dtype=np.float32)})
    np.testing.assert_array_equal(y, [[5997, 5998, 5999]])


def test_constants_that_take_too_long_to_compute_are_refused_for_that() -> None:
    nodes = [
        helper.make_node("Expand", ["one", "shape"], ["many"]),
        helper.make_node("Add", ["many", "one"], ["e"]),
        helper.make_node("NonZero", ["e"], ["found"]),
        helper.make_node("Gather", ["x", "found"], ["y"]),
    ]
    model = small_model(nodes, {"x": (1, (1 << 25,))}, {"one": np.ones(1, np.int64), "shape": np.array([1 << 25])})
    with pytest.raises(CompileError, match=r"error\[O014\]: `e` is a constant of 33554432 elements, too many to compute"):
        Importer().load(model)


@pytest.mark.parametrize("rank", [65, 500])
def test_more_dimensions_than_arrays_have_are_refused(rank: int) -> None:
    model = small_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, (1,) * rank)}, {})
    with pytest.raises(CompileError, match=rf"error\[O014\]: value `x` has {rank} dimensions"):
        Importer().load(model)
    stored = small_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (1, (1,))}, {})
    stored.graph.initializer.append(helper.make_tensor("w", 1, (1,) * rank, [1.0]))
    with pytest.raises(CompileError, match=rf"error\[O014\]: initializer `w` has {rank} dimensions"):
        Importer().load(stored)
    seen = small_model([helper.make_node("Reshape", ["x", "shape"], ["y"])], {"x": (1, (1,))}, {"shape": [1] * rank})
    with pytest.raises(CompileError, match=rf"error\[O014\]: .* has {rank} dimensions"):
        Importer().load(seen)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_the_sign_of_what_has_none_is_one_or_zero(dtype: type) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = small_model([helper.make_node("Sign", ["x"], ["y"])], {"x": (number, (3,))}, {})
    [y] = evaluate(Importer().load(model), {"x": np.array([0, 7, np.iinfo(dtype).max], dtype)})
    np.testing.assert_array_equal(y, np.array([0, 1, 1], dtype), strict=True)


@pytest.mark.parametrize(
    ("shape", "wanted", "allowzero", "found"),
    [
        ((0, 3), [-1], 0, (0,)),
        ((0, 3), [3, -1], 0, (3, 0)),
        ((0, 3), [-1, 0], 0, (0, 3)),  # 0 keeps the 3
        ((5, 0), [0, -1], 0, (5, 0)),
        ((2, 0, 3), [4, 3, 0], 1, (4, 3, 0)),
        ((2, 3), [0, -1], 0, (2, 3)),
    ],
)
def test_a_reshape_of_nothing_has_the_shape_that_is_determined(
    shape: tuple[int, ...], wanted: list[int], allowzero: int, found: tuple[int, ...]
) -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=allowzero)
    graph = Importer().load(small_model([node], {"x": (1, shape)}, {"s": np.array(wanted)}))
    assert graph.values["y"].shape == found


@pytest.mark.parametrize(
    ("shape", "wanted", "allowzero"), [((1, 0, 17), [-1, 17, 0], 1), ((0, 3), [0, -1], 0), ((5, 0), [-1, 0], 0), ((2, 3), [-1, 0], 1)]
)
def test_a_reshape_of_which_any_extent_would_do_is_refused(shape: tuple[int, ...], wanted: list[int], allowzero: int) -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=allowzero)
    with pytest.raises(CompileError, match=r"error\[O012\]: .*nothing determines what -1 stands for"):
        Importer().load(small_model([node], {"x": (1, shape)}, {"s": np.array(wanted)}))


SCATTERED = {
    "one axis, past the end": ((4,), [[0], [10**7]]),
    "one axis, before the beginning": ((4,), [[0], [-5]]),
    "two axes, the last past its end": ((3, 4), [[0, 1], [1, 4]]),
    "two axes, the first before its beginning": ((3, 4), [[0, 1], [-4, 0]]),
    "blocks": ((3, 4, 2), [[0, 1], [3, 0]]),
}


@pytest.mark.parametrize(("shape", "ids"), SCATTERED.values(), ids=SCATTERED.keys())
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_updates_of_elements_that_are_not_there_are_refused(shape: tuple[int, ...], ids: list[list[int]], reduction: str) -> None:
    node = helper.make_node("ScatterND", ["x", "ids", "u"], ["y"], reduction=reduction)
    given = {"x": (1, shape), "u": (1, (len(ids), *shape[len(ids[0]) :]))}
    with pytest.raises(CompileError, match=r"error\[O012\]: .*indices from .* elements"):
        Importer().load(small_model([node], given, {"ids": np.array(ids)}))
    fed = tl.compile(small_model([node], given | {"ids": (7, np.shape(ids))}, {}), threads=1, importers=[Importer()])
    feeds = {name: np.zeros(extents, np.float32) for name, (_, extents) in given.items()}
    with pytest.raises(RunError, match=r"error\[R0306\]"):
        fed.run(feeds | {"ids": np.array(ids)})


def test_updates_of_several_axes_go_where_their_indices_say_counted_from_either_end() -> None:
    x, ids = np.zeros((3, 4, 2), np.float32), np.array([[[0, 1], [-1, -4]], [[2, 3], [0, 1]]])
    updates = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
    node = helper.make_node("ScatterND", ["x", "ids", "u"], ["y"])
    model = small_model([node], {"x": (1, x.shape), "ids": (7, ids.shape), "u": (1, updates.shape)}, {})
    [y] = evaluate(Importer().load(model), {"x": x, "ids": ids, "u": updates})
    expected = x.copy()
    for k in np.ndindex(2, 2):
        expected[tuple(ids[k])] = updates[k]
    np.testing.assert_array_equal(y, expected)
