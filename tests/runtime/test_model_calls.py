"""Models from Python: called with arrays, described before they run, refused with what was expected and what was given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))


def saved(folder: Path, graph: onnx.GraphProto) -> Path:
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def info(name: str, *shape: int | str | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def layer(folder: Path, rows: int | str = "batch", name: str = "x") -> Path:
    """y = x w with w of 4 x 3."""
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    node = helper.make_node("MatMul", [name, "w"], ["y"])
    return saved(folder, helper.make_graph([node], "layer", [info(name, rows, 4)], [info("y", rows, 3)], [weights]))


def difference(folder: Path, rows: int | str = "n") -> Path:
    """d = a - b and s = a + b."""
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Add", ["a", "b"], ["s"])]
    graph = helper.make_graph(nodes, "both", [info("a", rows, 2), info("b", rows, 2)], [info("d", rows, 2), info("s", rows, 2)])
    return saved(folder, graph)


X = np.ones((2, 4), np.float32)
A, B = np.full((3, 2), 5, np.float32), np.full((3, 2), 2, np.float32)


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("rows", [2, "batch"])
def test_a_model_of_one_input_and_one_output_is_a_function_of_an_array(tmp_path: Path, rows: int | str) -> None:
    model = tl.compile(layer(tmp_path, rows), threads=1)
    assert callable(model)
    for found in (model(X), model(x=X), model({"x": X})):
        np.testing.assert_array_equal(found, [[18, 22, 26]] * 2)


@pytest.mark.parametrize("rows", [3, "n"])
def test_several_inputs_are_given_in_order_or_by_name_and_several_outputs_are_a_tuple_in_order(tmp_path: Path, rows: int | str) -> None:
    model = tl.compile(difference(tmp_path, rows), threads=1)
    for found in (model(A, B), model(A, b=B), model(b=B, a=A)):
        assert isinstance(found, tuple)
        assert [array.flat[0] for array in found] == [3, 7]


@pytest.mark.parametrize("name", ["self", "stream", "feeds", "arrays", "input.1", "größe"])
def test_an_input_may_have_any_name(tmp_path: Path, name: str) -> None:
    model = tl.compile(layer(tmp_path, 2, name), threads=1)
    np.testing.assert_array_equal(model(**{name: X}), model(X))


def test_a_model_without_inputs_is_called_with_nothing(tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(np.arange(3, dtype=np.float32)))
    model = tl.compile(saved(tmp_path, helper.make_graph([node], "c", [], [info("y", 3)])), threads=1)
    assert model().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("args", "named", "code", "said"),
    [
        ((A, B, A), {}, "R0311", r"takes 2 arrays and is given 3.*`a`: f32\[n, 2\].*`b`: f32\[n, 2\]"),
        ((A,), {"a": A, "b": B}, "R0312", "given `a` twice"),
        ((A,), {}, "R0301", r"input `b` is missing.*f32\[n, 2\]"),
        ((A,), {"c": B, "b": B}, "R0302", "no input `c`.*`a`, `b`"),
        ((A, "text"), {}, "R0305", "`b` is no array"),
        ((A, B.astype(np.float64)), {}, "R0303", r"input `b` must be f32.*f64\[3, 2\].*astype"),
        ((A, B[:, :1]), {}, "R0304", r"input `b` must have the shape \[n, 2\].*f32\[3, 1\]"),
        ((A, B[0]), {}, "R0304", r"input `b` must have the shape \[n, 2\].*f32\[2\]"),
        ((A, B[:2]), {}, "R0304", r"`n` is 3.*`a`.*2.*`b`"),
    ],
)
@pytest.mark.parametrize("way", ["call", "run", "profile", "prepared"])
def test_what_does_not_fit_an_open_model_is_refused_before_anything_is_compiled(
    tmp_path: Path, args: tuple[Any, ...], named: dict[str, Any], code: str, said: str, way: str
) -> None:
    model = tl.compile(difference(tmp_path), threads=1)
    by_name = dict(zip("ab", args, strict=False)) | named
    with pytest.raises(tl.RunError) as refused:
        if way == "call":
            model(*args, **named)
        elif code in ("R0311", "R0312"):
            raise tl.RunError  # only calls have positions
        else:
            getattr(model, way)(by_name)
    if refused.value.diagnostics:
        assert [d.code for d in refused.value.diagnostics] == [code]
        assert re.search(said, str(refused.value), re.DOTALL), refused.value
    assert "none so far" in repr(model)


def test_what_onnxruntime_takes_before_the_inputs_is_refused_with_what_to_write(tmp_path: Path) -> None:
    model = tl.compile(difference(tmp_path), threads=1)
    with pytest.raises(tl.RunError, match=r"R0311.*write `run\(\{'a': array, 'b': array\}\)`".replace(".*", r"[\s\S]*")):
        model.run(None, {"a": A, "b": B})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["B", "b:0", "other"])
def test_an_input_by_another_name_is_one_mistake(tmp_path: Path, name: str) -> None:
    model = tl.compile(difference(tmp_path), threads=1)
    with pytest.raises(tl.RunError) as refused:
        model.run({"a": A, name: B})
    (found,) = refused.value.diagnostics
    assert (found.code, found.help) == ("R0302", "did you mean `b`?")


def test_what_does_not_fit_is_said_all_at_once(tmp_path: Path) -> None:
    model = tl.compile(difference(tmp_path), threads=1)
    with pytest.raises(tl.RunError) as refused:
        model.run({"a": A.astype(np.int32), "c": B})
    assert sorted(d.code for d in refused.value.diagnostics) == ["R0302", "R0303"]


# ---------------------------------------------------------------- descriptions


def test_inputs_and_outputs_are_known_by_name_type_and_symbols_before_anything_ran(tmp_path: Path) -> None:
    model = tl.compile(layer(tmp_path), threads=1)
    assert [str(t) for t in (*model.inputs, *model.outputs)] == ["x: f32[batch, 4]", "y: f32[batch, 3]"]
    assert (model.inputs[0].name, str(model.inputs[0].dtype), model.inputs[0].shape) == ("x", "f32", ("batch", 4))
    model(X)
    assert [str(t) for t in model.inputs] == ["x: f32[batch, 4]"]


def test_shapes_that_are_given_are_those_of_the_inputs_and_outputs(tmp_path: Path) -> None:
    model = tl.compile(layer(tmp_path), threads=1, shapes={"x": (2, 4)})
    assert [str(t) for t in (*model.inputs, *model.outputs)] == ["x: f32[2, 4]", "y: f32[2, 3]"]


def test_what_a_model_leaves_unsaid_is_a_question_mark(tmp_path: Path) -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info("x", None, 4)], [onnx.ValueInfoProto(name="y")])
    model = tl.compile(saved(tmp_path, graph), threads=1)
    assert [str(t) for t in (*model.inputs, *model.outputs)] == ["x: f32[?, 4]", "y: ?"]
    unknown = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info("x")], [info("y")])
    unknown.input[0].type.tensor_type.ClearField("shape")
    assert str(tl.compile(saved(tmp_path, unknown), threads=1).inputs[0]) == "x: f32[…]"


def test_a_model_says_in_a_few_lines_what_it_is(tmp_path: Path) -> None:
    model = tl.compile(layer(tmp_path, 2), threads=1)
    assert repr(model).splitlines() == [
        "<model `layer` for cpu, 1 thread",
        "    x: f32[2, 4]",
        "    -> y: f32[2, 3]",
        "    1 kernel, 256 bytes of weights, 0 bytes for values in between>",
    ]


def test_a_model_shows_its_graph_and_no_stage_that_there_is_not(tmp_path: Path) -> None:
    model = tl.compile(layer(tmp_path), threads=1)
    model(X)
    assert model.text("graph").splitlines()[:4] == ['graph "layer"', 'inputs "x"', 'outputs "y"', 'value "x": f32[2, 4]']
    with pytest.raises(tl.CompileError, match="C0212") as refused:
        model.text("ptx")
    assert refused.value.diagnostics[0].help == "known are `graph`"


def test_an_open_model_says_for_which_shapes_it_is_compiled(tmp_path: Path) -> None:
    model = tl.compile(layer(tmp_path), threads=2)
    *_, line = repr(model).splitlines()
    assert line == "    compiled for each combination of shapes when it comes; none so far>"
    model(X)
    model(np.ones((5, 4), np.float32))
    shapes, line = repr(model).splitlines()[-2:]
    assert shapes == "    compiled for 2 combinations of shapes, the last: x [5, 4]"
    assert re.fullmatch(r"    1 kernel, \d+ bytes of weights in all, \d+ (bytes|KiB) for values in between>", line)


def test_the_memory_that_is_told_is_the_memory_that_is_taken(tmp_path: Path) -> None:
    model = tl.compile(layer(tmp_path), threads=1)
    model(X)
    model(np.ones((100, 4), np.float32))
    blocks = [made.executable for made in model._made.values()]
    said = model.memory
    assert said.weights_bytes == sum(b.constants.nbytes for b in blocks) >= 2 * 48
    assert said.arena_bytes == sum(b.arena_bytes for b in blocks)
    assert f"{said.weights_bytes} bytes of weights" in repr(model)


def test_names_that_a_terminal_would_obey_are_written_out(tmp_path: Path) -> None:
    model = tl.compile(layer(tmp_path, 2, "x\x1b[31m\n"), threads=1)
    assert "\x1b" not in repr(model) and len(repr(model).splitlines()) == 4
    assert str(model.inputs[0]) == "x\\x1b[31m\\n: f32[2, 4]"


# ---------------------------------------------------------------- the second start


def test_an_open_model_starts_the_second_time_without_reading_the_model(tmp_path: Path) -> None:
    path = layer(tmp_path)
    first = tl.compile(path, threads=1)(X)
    code = (
        "import sys, numpy as np, tensorlang as tl\n"
        f"model = tl.compile({str(path)!r}, threads=1)\n"
        "assert str(model.inputs[0]) == 'x: f32[batch, 4]', model.inputs\n"
        "y = model(np.ones((2, 4), np.float32))\n"
        f"assert y.tolist() == {first.tolist()}, y\n"
        "found = {'onnx', 'lark', 'islpy', 'tensorlang.planning', 'tensorlang.backends.cpu.driver'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def test_a_model_that_changed_since_it_was_compiled_is_compiled_for_no_further_shapes(tmp_path: Path) -> None:
    path = layer(tmp_path)
    model = tl.compile(path, threads=1)
    np.testing.assert_array_equal(model(X), [[18, 22, 26]] * 2)
    proto = onnx.load(path)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 3), np.float32), "w"))
    onnx.save(proto, path)
    np.testing.assert_array_equal(model(X), [[18, 22, 26]] * 2)
    with pytest.raises(tl.CompileError, match=r"O015.*`.*m\.onnx`"):
        model(np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(tl.compile(path, threads=1)(np.ones((3, 4), np.float32)), np.zeros((3, 3)))


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("way", ["run", "call", "prepared", "profile"])
def test_a_model_for_which_there_is_no_memory_is_refused_and_runs_once_there_is_some(
    tmp_path: Path, most_mappings: Callable[[int], None], way: str
) -> None:
    most_mappings(8200)
    model = tl.compile(layer(tmp_path), threads=1)
    ways = {"run": model.run, "call": model, "prepared": model.prepared, "profile": model.profile}
    with pytest.raises(tl.RunError, match=r"R0315.*not enough memory for what `layer` makes") as refused:
        ways[way]({"x": X})
    assert "of 8200 that vm.max_map_count allows a process" in str(refused.value)
    most_mappings(4000000)
    assert ways[way]({"x": X}) is not None


def test_a_model_of_fixed_shapes_for_which_there_is_no_memory_is_refused(tmp_path: Path, most_mappings: Callable[[int], None]) -> None:
    most_mappings(8200)
    with pytest.raises(tl.RunError, match=r"R0315.*not enough memory"):
        tl.compile(layer(tmp_path, 2), threads=1)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((8,), "`array[None]`"),
        ((1, 4, 8), "`array[0]`"),
        ((8, 4), "`array.transpose(1, 0)`"),
        ((4, 3), "dimension 1 is 3, and has to be 8"),
        ((2, 2, 2, 2), "give an array of 2 dimensions"),
    ],
)
def test_an_array_of_another_shape_is_told_what_makes_it_fit(shape: tuple[int, ...], said: str) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = tl.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    with pytest.raises(tl.RunError, match="R0304") as found:
        model(np.ones(shape, np.float32))
    assert said in str(found.value)
    with pytest.raises(tl.RunError, match="R0301") as found:
        model.run(np.ones((4, 8), np.float32))  # type: ignore[arg-type]
    assert "`{'x': array}`" in str(found.value) and "`model(array)`" in str(found.value)


@pytest.mark.parametrize("sizes", ["auto", "static", "symbolic"])
@pytest.mark.parametrize("count", [1 << 45, 1 << 60])
def test_a_run_whose_outputs_no_machine_can_hold_is_refused_as_one_without_memory(sizes: Any, count: int) -> None:
    x, shape = (helper.make_tensor_value_info(n, t, d) for n, t, d in (("x", TensorProto.FLOAT, ["n"]), ("s", TensorProto.INT64, [2])))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", "n"])
    graph = helper.make_graph([helper.make_node("Expand", ["x", "s"], ["y"])], "g", [x, shape], [y])
    model = tl.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sizes=sizes)
    feeds = {"x": np.ones(4, np.float32), "s": np.array([3, 4])}
    assert model.run(feeds)["y"].shape == (3, 4)
    with pytest.raises(tl.RunError, match="R0315"):
        model.run(feeds | {"s": np.array([count, 4])})
    assert model.run(feeds)["y"].shape == (3, 4)
