"""Constants that a model stores without their zeros, and constants that are strings or numbers of attributes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper
from onnx_evaluate import Array, run

from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError

WANTED = np.array([[0, 0, 3], [0, -1, 0]], np.float32)


def sparse(places: object, name: str = "w", values: object = (3, -1), dims: tuple[int, ...] = (2, 3)) -> SparseTensorProto:
    elements = numpy_helper.from_array(np.asarray(values, np.float32), name)
    return helper.make_sparse_tensor(elements, numpy_helper.from_array(np.asarray(places, np.int64), "places"), dims)


def model(stored: SparseTensorProto) -> ModelProto:
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], sparse_initializer=[stored])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("places", [[2, 4], [[0, 2], [1, 1]]])
def test_a_sparse_initializer_has_zeros_where_it_stores_nothing(places: object) -> None:
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(model(sparse(places)), [x])[0], WANTED + x)


def test_a_constant_may_be_sparse() -> None:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    node = helper.make_node("Constant", [], ["y"], sparse_value=sparse([2, 4]))
    made = helper.make_model(helper.make_graph([node], "g", [], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    np.testing.assert_array_equal(run(made, [])[0], WANTED)


@pytest.mark.parametrize(
    ("places", "change", "code"),
    [
        ([2, 6], {}, "O003"),
        ([2, -1], {}, "O003"),
        ([2], {}, "O003"),
        ([[0, 2], [2, 1]], {}, "O003"),
        ([2, 4], {"dims": (-2, 3)}, "O003"),
        ([2, 4], {"dims": (1 << 20, 1 << 14)}, "O014"),
        ([2, 4], {"name": ""}, "O002"),
    ],
)
def test_a_sparse_initializer_that_lies_is_refused(places: object, change: dict[str, object], code: str) -> None:
    with pytest.raises(CompileError) as caught:
        Importer().load(model(sparse(places, **change)))  # type: ignore[arg-type]
    assert code in {d.code for d in caught.value.diagnostics}


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [({"value_string": "ä b"}, np.array("ä b", object)), ({"value_strings": ["a", ""]}, np.array(["a", ""], object))],
)
def test_a_constant_may_be_of_strings(attribute: dict[str, object], expected: Array) -> None:
    y = helper.make_tensor_value_info("y", TensorProto.STRING, expected.shape)
    made = helper.make_model(
        helper.make_graph([helper.make_node("Constant", [], ["y"], **attribute)], "g", [], [y]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    found = run(made, [])[0]
    assert found.dtype == object
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("attribute", [{"value_float": np.nan}, {"value_floats": [1.0, np.nan, -np.inf]}])
def test_a_constant_may_be_no_number(attribute: dict[str, float | list[float]]) -> None:
    expected = np.asarray(*attribute.values(), np.float32)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, expected.shape)
    graph = helper.make_graph([helper.make_node("Constant", [], ["y"], **attribute)], "g", [], [y])
    (found,) = run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), [])
    np.testing.assert_array_equal(found, expected)
