"""The weights of a model file stay in the file, and the rest of the message says the same as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from stdlib.onnx import Importer
from stdlib.onnx.wire import LARGE_BYTES, separated
from tensorlang.memory_map import MappedFile

sizes = st.lists(st.sampled_from([0, 1, LARGE_BYTES // 4 - 8, LARGE_BYTES // 4, LARGE_BYTES]), max_size=4)


def model(counts: list[int]) -> ModelProto:
    weights = [numpy_helper.from_array(np.arange(n, dtype=np.float32), f"w{k}") for k, n in enumerate(counts)]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Sum", [w.name for w in weights], ["y"], name="s" * 300)], "g", [], [y], weights)
    return helper.make_model(graph, ir_version=9, producer_name="p")


@given(sizes)
def test_message_and_weights_together_are_the_model(counts: list[int]) -> None:
    whole = model(counts)
    found = separated(memoryview(whole.SerializeToString()))
    rest = ModelProto.FromString(found.message)
    assert all(len(t.raw_data) < LARGE_BYTES for t in rest.graph.initializer)
    for k, data in found.weights.items():
        assert rest.graph.initializer[k].HasField("raw_data")
        rest.graph.initializer[k].raw_data = bytes(data)
    assert rest == whole


@given(sizes, st.integers(0, 1 << 16), st.integers(0, 255))
def test_what_is_no_message_is_left_to_protobuf_as_it_is(counts: list[int], at: int, byte: int) -> None:
    data = bytearray(model(counts).SerializeToString())
    data[at % len(data)] = byte
    found = separated(memoryview(bytes(data)))
    try:
        whole = ModelProto.FromString(bytes(data))
    except DecodeError:
        return
    rest = ModelProto.FromString(found.message)
    for k, weight in found.weights.items():
        rest.graph.initializer[k].raw_data = bytes(weight)
    assert rest.SerializeToString(deterministic=True) == whole.SerializeToString(deterministic=True)


def test_large_weights_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 64]) for n in "xy")
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    array = Importer().load(path).constants["w"]
    np.testing.assert_array_equal(array, weights)
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview) and isinstance(base.obj, MappedFile)
