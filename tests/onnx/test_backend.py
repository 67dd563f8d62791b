"""The interface that ONNX's package defines for engines, and the page that says which of its cases pass."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import stdlib.onnx.backend as backend
import tensorlang as tl

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from onnx_coverage import CRASH, ERROR, PASS, REFUSED, WRONG, Result, page  # noqa: E402


def test_a_prepared_model_runs_on_arrays_in_order_or_by_name() -> None:
    taken = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Sub", ["x", "y"], ["z"])], "g", taken, [helper.make_tensor_value_info("z", 1, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x, y = np.asarray([3, 4], np.float32), np.asarray([1, 1], np.float32)
    assert backend.is_compatible(model)
    for given in ([x, y], {"y": y, "x": x}):
        (z,) = backend.prepare(model, "CPU", threads=1).run(given)
        np.testing.assert_array_equal(z, [2, 3])
    (z,) = backend.run_model(model, [x, y], threads=1)
    np.testing.assert_array_equal(z, [2, 3])


def test_an_output_that_is_listed_twice_is_computed_once() -> None:
    x, y = (helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y, x, y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    given = np.asarray([3, 4], np.float32)
    assert [a.tolist() for a in backend.run_model(model, [given], threads=1)] == [[-3, -4], [3, 4], [-3, -4]]
    assert list(tl.compile(model, threads=1).run({"x": given})) == ["y", "x"]


def test_a_node_runs_without_a_model() -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    (y,) = backend.run_node(node, [np.asarray([1, 2], np.int32)], outputs_info=[(np.int32, (2,))], opset_version=14, threads=1)
    assert y.dtype == np.int32 and y.tolist() == [2, 4]


def test_the_backend_is_for_processors() -> None:
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA:1") and not backend.supports_device("TPU")
    with pytest.raises(ValueError, match="CUDA"):
        backend.prepare(helper.make_model(helper.make_graph([], "g", [], [])), "CUDA")


def test_the_page_counts_what_became_of_the_cases() -> None:
    told = [(PASS, ""), (PASS, ""), (REFUSED, "O010 node `a`"), (WRONG, "differs"), (ERROR, "KeyError"), (CRASH, "ended")]
    text = page([Result(f"test_{k}", "Node", "Add", outcome, why) for k, (outcome, why) in enumerate(told)], "1.0")
    assert "the 6 cases that come with onnx 1.0" in text and "| pass | 2 | 2 |" in text and "| O010 | 1 |" in text
    assert "| Add | 6 | 2 | 1 refused (O010), 1 wrong, 1 error, 1 crash |" in text
    assert "| `test_3` | not known yet: differs |" in text and "| `test_4` | not known yet: KeyError |" in text
