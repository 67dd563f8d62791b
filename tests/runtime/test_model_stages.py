"""Models whose shapes depend on elements: of inputs, or of what a first stage of the model computes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tensorlang as tl
from stdlib.onnx import importer
from tensorlang.diagnostics import RunError

I = TensorProto.INT64
x = np.arange(12, dtype=np.float32).reshape(3, 4)


def value(name: str, *dims: int | str, type: int = 1) -> Any:
    return helper.make_tensor_value_info(name, type, list(dims))


def model(nodes: Any, inputs: Any, **constants: Any) -> ModelProto:
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, None)], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def reshaped(*dims: int | str) -> ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "s"], ["y"])]
    return model(nodes, [value("x", *dims), value("s", 2, type=I)])


def cut() -> ModelProto:
    """Return a model that keeps as many columns of a product as the data say."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=1),
        helper.make_node("Reshape", ["top", "one"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["end"], to=I),
        helper.make_node("Slice", ["m", "zero", "end", "one"], ["y"]),
    ]
    return model(nodes, [value("x", 3, 4)], w=np.eye(4, dtype=np.float32), one=[1], zero=[0])


@pytest.mark.parametrize("dims", [(3, 4), ("rows", 4)])
def test_a_model_is_compiled_for_the_elements_of_small_inputs(dims: tuple[int | str, ...]) -> None:
    made = tl.compile(reshaped(*dims), threads=1)
    for shape in ((4, 3), (2, 6), (4, 3), (-1, 1)):
        np.testing.assert_array_equal(made(x, np.asarray(shape)), x.reshape(shape))


def test_the_stages_of_a_model_read_its_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, sources = importer.read, list[object]()

    def noted(source: Any, elsewhere: Any) -> Any:
        sources.append(source)
        return read(source, elsewhere)

    made = tl.compile(cut(), threads=1, sizes="static")
    monkeypatch.setattr(importer, "read", noted)
    for count in (1, 3):
        assert made(np.full((3, 4), count, np.float32)).shape == (3, count)
    assert not sources


def test_what_decides_a_shape_may_be_computed() -> None:
    made = tl.compile(cut(), threads=1)
    for count in (1, 3, 0, 4):
        given = np.full((3, 4), count, np.float32)
        assert made(given).shape == (3, count)
        np.testing.assert_array_equal(made(given), given[:, :count])


def test_arrays_that_do_not_fit_are_refused_before_anything_is_computed() -> None:
    made = tl.compile(reshaped(3, 4), threads=1)
    before = {"x": x, "s": np.asarray([2, 6])}
    for given, code in (
        ({"x": x}, "R0301"),
        ({"x": x, "s": [2, 6], "t": x}, "R0302"),
        ({"x": x.astype(np.float64), "s": np.asarray([2, 6])}, "R0303"),
        ({"x": x, "s": np.asarray([2, 6, 1])}, "R0304"),
    ):
        for _ in range(2):  # after a run of arrays that do, too, for which nothing is asked again
            with pytest.raises(RunError) as refused:
                made.run(given)
            assert refused.value.diagnostics[0].code == code
            assert made.run(before)["y"].shape == (2, 6)


def test_elements_that_fit_nothing_are_refused_and_others_go_on() -> None:
    made = tl.compile(reshaped(3, 4), threads=1)
    with pytest.raises(tl.CompileError, match="do not fill"):
        made(x, np.asarray([5, 5]))
    np.testing.assert_array_equal(made(x, np.asarray([6, 2])), x.reshape(6, 2))


def test_the_model_tells_of_itself_before_and_after_it_ran() -> None:
    made = tl.compile(reshaped(3, 4), threads=1)
    assert [t.name for t in made.inputs] == ["x", "s"] and [t.name for t in made.outputs] == ["y"]
    with pytest.raises(RunError) as refused:
        made.explain()
    assert refused.value.diagnostics[0].code == "O013"
    feeds = {"x": x, "s": np.asarray([2, 6])}
    made.run(feeds)
    assert "1 kernel" in repr(made) and "r" in made.explain(feeds)
    assert len(made.profile(**feeds)) == 1 and made.roofline().work.written_bytes == 48 and made.seconds(feeds, 1) > 0


def test_prepared_runs_follow_the_elements_of_their_arrays() -> None:
    made = tl.compile(reshaped(3, 4), threads=1)
    shape = np.asarray([2, 6])
    again = made.prepared({"x": x, "s": shape})
    assert again()["y"].shape == (2, 6)
    shape[:] = 6, 2
    assert again()["y"].shape == (6, 2)
    result = np.empty((6, 2), np.float32)
    made.prepared({"x": x, "s": shape}, {"y": result})()
    np.testing.assert_array_equal(result, x.reshape(6, 2))


def test_threads_share_a_model_of_stages() -> None:
    made = tl.compile(cut(), threads=1)

    def run(count: int) -> tuple[int, ...]:
        return made(np.full((3, 4), count, np.float32)).shape

    counts = [1, 2, 3, 4] * 8
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, counts)) == [(3, count) for count in counts]


def test_a_model_of_stages_is_pickled_as_what_it_was_made_of() -> None:
    made = pickle.loads(pickle.dumps(tl.compile(reshaped(3, 4), threads=1)))
    assert made(x, np.asarray([4, 3])).shape == (4, 3)


def test_an_array_of_other_order_decides_like_its_copy() -> None:
    made = tl.compile(reshaped(3, 4), threads=1)
    assert made(np.asfortranarray(x), np.asarray([0, 2, 0, 6])[1::2]).shape == (2, 6)


def test_an_array_of_another_byte_order_decides_by_its_elements() -> None:
    kept = model([helper.make_node("Slice", ["x", "zero", "s"], ["y"])], [value("x", 3, 4), value("s", 1, type=I)], zero=[0])
    made = tl.compile(kept, threads=1)
    same_bytes = np.asarray([1 << 56]), np.asarray([1], ">i8")
    assert [made(x, end).shape for end in same_bytes] == [(3, 4), (1, 4)]
