"""If, Loop, Scan, sequences and functions become what they run; what decides that may come with the data. Compared with onnxruntime."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx_evaluate import staged

import tensorlang as tl
from stdlib.onnx import Importer, importer, traced_body
from tensorlang.diagnostics import CompileError

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Array = np.ndarray[Any, Any]
node = helper.make_node


def value(name: str, *dims: int | str, type: int = F) -> Any:
    return helper.make_tensor_value_info(name, type, list(dims))


def untyped(name: str, type: int = F) -> Any:
    return helper.make_tensor_value_info(name, type, None)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Array] | None = None,
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    arrays = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid("local", 1)] if functions else [])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, arrays)
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def block(
    nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any], constants: Mapping[str, Array] | None = None
) -> GraphProto:
    return helper.make_graph(nodes, "block", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()])


def check(made: ModelProto, **feeds: Array) -> None:
    """Compare the interpreted graph with onnxruntime."""
    expected = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    found = staged(made, feeds)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


x = np.asarray([[1, -2, 3], [4, 5, -6]], np.float32)


def branches() -> dict[str, GraphProto]:
    """Return branches of different shapes that read a value of the graph around them."""
    return {
        "then_branch": block([node("Relu", ["x"], ["a"])], [], [untyped("a")]),
        "else_branch": block([node("ReduceSum", ["x"], ["b"], keepdims=0)], [], [untyped("b")]),
    }


@pytest.mark.parametrize("truth", [True, False])
def test_a_condition_that_comes_with_the_call_chooses_the_branch(truth: bool) -> None:
    made = model([node("If", ["c"], ["y"], **branches())], [value("x", 2, 3), value("c", type=B)], [untyped("y")])
    check(made, x=x, c=np.asarray(truth))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_condition_that_is_computed_of_data_chooses_the_branch(sign: int) -> None:
    nodes = [node("Mul", ["x", "two"], ["d"]), node("ReduceMax", ["d"], ["m"], keepdims=0), node("Greater", ["m", "zero"], ["c"])]
    nodes += [node("If", ["c"], ["i"], **branches()), node("Add", ["i", "d"], ["y"])]
    constants = {"two": np.float32([2]), "zero": np.float32(0)}
    made = model(nodes, [value("x", 2, 3)], [untyped("y")], constants)
    check(made, x=sign * np.abs(x))


def body(*more: NodeProto, outputs: Sequence[Any] = ()) -> GraphProto:
    nodes = [node("Add", ["v", "x"], ["next"]), node("Identity", ["on"], ["still"]), *more]
    return block(nodes, [value("k", type=I), value("on", type=B), untyped("v")], [value("still", type=B), untyped("next"), *outputs])


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_runs_as_often_as_the_call_says(count: int) -> None:
    more = node("Cast", ["k"], ["row"], to=F)
    loop = node("Loop", ["n", "", "x"], ["last", "rows"], body=body(more, outputs=[value("row")]))
    made = model([loop], [value("x", 2, 3), value("n", type=I)], [untyped("last"), untyped("rows")])
    check(made, x=x, n=np.asarray(count))


def test_a_loop_that_a_constant_keeps_from_running_makes_no_rows() -> None:
    more = node("Mul", ["next", "next"], ["row"])
    loop = node("Loop", ["", "never", "x"], ["last", "rows"], body=body(more, outputs=[value("row", 2, 3)]))
    made = model([loop], [value("x", 2, 3)], [untyped("last"), untyped("rows")], {"never": np.asarray(False)})
    check(made, x=x)


def test_a_loop_ends_when_its_data_say_so() -> None:
    inside = [node("Add", ["v", "v"], ["next"]), node("ReduceMax", ["next"], ["m"], keepdims=0), node("Less", ["m", "limit"], ["on2"])]
    turn = block(inside, [value("k", type=I), value("on", type=B), untyped("v")], [value("on2", type=B), untyped("next")])
    made = model(
        [node("Loop", ["", "c", "x"], ["y"], body=turn)],
        [value("x", 2, 3)],
        [untyped("y")],
        {"c": np.asarray(True), "limit": np.float32(70)},
    )
    check(made, x=x)


def test_a_list_that_is_read_in_each_turn_is_refused_when_it_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "MOST_STAGES", 5)
    inside = [
        node("SequenceAt", ["s", "first"], ["v"]),
        node("SequenceInsert", ["s", "v"], ["s2"]),
        node("ReduceMax", ["v"], ["m"], keepdims=0),
        node("Less", ["m", "limit"], ["on2"]),
    ]
    lists = [helper.make_tensor_sequence_value_info(name, F, None) for name in ("s", "s2")]
    turn = block(inside, [value("k", type=I), value("on", type=B), lists[0]], [value("on2", type=B), lists[1]])
    nodes = [
        node("SequenceConstruct", ["x"], ["one"]),
        node("Loop", ["", "c", "one"], ["all"], body=turn),
        node("SequenceLength", ["all"], ["y"]),
    ]
    constants = {"c": np.asarray(True), "limit": np.float32(70), "first": np.asarray(0)}
    made = model(nodes, [value("x", 20)], [untyped("y")], constants)
    with pytest.raises(CompileError) as refused:
        staged(made, {"x": np.zeros(20, np.float32)})
    diagnostic = refused.value.diagnostics[0]
    assert diagnostic.code == "O014"
    assert diagnostic.notes == ("its turns are written out, as it carries a sequence",)


def test_a_loop_whose_values_grow_runs_as_often_as_its_data_say() -> None:
    inside = [
        node("Concat", ["v", "w"], ["next"], axis=0),
        node("ReduceSum", ["next"], ["row"], keepdims=0),
        node("Less", ["row", "limit"], ["on2"]),
    ]
    turn = block(inside, [value("k", type=I), value("on", type=B), untyped("v")], [value("on2", type=B), untyped("next"), untyped("row")])
    loop = node("Loop", ["n", "c", "x"], ["y", "rows"], body=turn)
    inputs = [value("x", 3), value("w", 2), value("n", type=I), value("c", type=B)]
    made = model([loop, node("Neg", ["y"], ["z"])], inputs, [untyped("z"), untyped("rows")], {"limit": np.float32(600)})
    x, w = np.ones(3, np.float32), np.array([1, 2], np.float32)
    turns = ((1000, True), (0, True), (20, False))
    compiled(made, *({"x": x, "w": w, "n": np.asarray(n), "c": np.asarray(c)} for n, c in turns))


GROWING = [value("k", type=I), value("on", type=B), untyped("v")], [value("on", type=B), untyped("next")]
"""What the body of a loop takes and returns that carries one value, which it makes longer."""


def test_a_loop_whose_values_grow_reads_what_this_run_has_found_before() -> None:
    inside = [node("Cast", ["c"], ["one"], to=F), node("Add", ["v", "one"], ["sum"]), node("Concat", ["sum", "x"], ["next"], axis=0)]
    longer = block([node("Concat", ["x", "x"], ["twice"], axis=0)], [], [untyped("twice")])
    shorter = block([node("Neg", ["x"], ["less"])], [], [untyped("less")])
    nodes = [
        node("If", ["c"], ["first"], then_branch=longer, else_branch=shorter),
        node("Loop", ["n", "", "first"], ["y"], body=block(inside, *GROWING)),
    ]
    made = model(nodes, [value("c", type=B), value("x", 2), value("n", type=I)], [untyped("y")])
    feeds = {"x": np.ones(2, np.float32), "n": np.asarray(20)}
    compiled(made, *({"c": np.asarray(c), **feeds} for c in (True, False, True)))


def test_a_number_beside_a_value_that_grows_stays_one() -> None:
    inside = [
        node("Concat", ["v", "x"], ["next"], axis=0),
        node("ReduceSum", ["next"], ["sum"], keepdims=0),
        node("Add", ["s", "sum"], ["s2"]),
    ]
    turn = block(inside, [*GROWING[0], value("s")], [*GROWING[1], value("s2")])
    made = model(
        [node("Loop", ["n", "", "x", "zero"], ["last", "y"], body=turn)],
        [value("x", 2), value("n", type=I)],
        [untyped("last"), untyped("y")],
        {"zero": np.float32(0)},
    )
    compiled(made, *({"x": np.ones(2, np.float32), "n": np.asarray(n)} for n in (3, 20, 0)))


def test_a_loop_whose_values_grow_runs_as_often_as_an_open_size_says() -> None:
    loop = node("Loop", ["n", "", "x"], ["y"], body=block([node("Concat", ["v", "x"], ["next"], axis=0)], *GROWING))
    made = model([node("Shape", ["z"], ["n"]), loop], [value("x", 2), value("z", "N")], [untyped("y")])
    compiled(made, *({"x": np.ones(2, np.float32), "z": np.zeros(n, np.float32)} for n in (20, 3, 17, 0)))


def test_a_loop_may_make_a_vector_of_a_number() -> None:
    inside = [node("Reshape", ["v", "flat"], ["row"]), node("Concat", ["row", "x"], ["next"], axis=0)]
    loop = node("Loop", ["n", "", "s"], ["y"], body=block(inside, *GROWING))
    made = model([loop], [value("x", 2), value("s"), value("n", type=I)], [untyped("y")], {"flat": np.array([-1])})
    compiled(made, {"x": np.ones(2, np.float32), "s": np.asarray(3, np.float32), "n": np.asarray(4)})


@pytest.mark.parametrize("limit", ["", "n"])
def test_a_loop_that_nothing_can_end_is_refused(limit: str) -> None:
    made = model([node("Loop", [limit, "", "x"], ["y"], body=body())], [value("x", 2, 3)], [untyped("y")], {"n": np.asarray(2**63 - 1)})
    with pytest.raises(CompileError) as refused:
        staged(made, {"x": x})
    assert refused.value.diagnostics[0].code == "O014"


def test_a_signal_stops_a_loop_that_its_data_do_not_end() -> None:
    inside = [node("Sin", ["v"], ["next"]), node("ReduceMax", ["next"], ["m"], keepdims=0), node("Less", ["m", "two"], ["on2"])]
    turn = block(inside, [value("k", type=I), value("on", type=B), untyped("v")], [value("on2", type=B), untyped("next")])
    made = model(
        [node("Loop", ["", "c", "x"], ["y"], body=turn)], [value("x", 2, 3), value("c", type=B)], [untyped("y")], {"two": np.float32(2)}
    )
    loop, feeds = tl.compile(made.SerializeToString(), threads=1), {"x": x, "c": np.asarray(True)}

    def stop(*_: object) -> None:
        raise ZeroDivisionError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for run in (lambda: loop.run(feeds), loop.prepared(feeds, {"y": np.empty_like(x)})):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(ZeroDivisionError):
                run()
    finally:
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(loop.run({"x": x, "c": np.asarray(False)})["y"], x)


def compiled(made: ModelProto, *calls: dict[str, Array]) -> None:
    """Compare what the compiled model returns with onnxruntime."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    model = tl.compile(made.SerializeToString(), threads=1)
    for feeds in calls:
        found = model.run(feeds)
        for output, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            assert (found[output.name].dtype, found[output.name].shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(found[output.name], expected, rtol=1e-5, atol=1e-6)


def test_one_compiled_loop_serves_whatever_its_limit_and_condition_are() -> None:
    loop = node("Loop", ["n", "c", "x"], ["last"], body=body())
    made = model([loop], [value("x", 2, 3), value("n", 1, type=I), value("c", type=B)], [untyped("last")])
    compiled(made, *({"x": x, "n": np.asarray([n]), "c": np.asarray(c)} for n in (-1, 0, 1, 2, 1000) for c in (True, False)))


def test_a_loop_makes_as_many_rows_as_its_data_say() -> None:
    inside = [node("Mul", ["v", "two"], ["next"]), node("ReduceMax", ["next"], ["m"], keepdims=0), node("Less", ["m", "most"], ["on2"])]
    turn = block(inside, [value("k", type=I), value("on", type=B), untyped("v")], [value("on2", type=B), untyped("next"), untyped("next")])
    loop = node("Loop", ["n", "c", "x"], ["last", "rows"], body=turn)
    constants = {"two": np.float32(2), "c": np.asarray(True)}
    made = model([loop], [value("x", 2, 3), value("n", type=I), value("most")], [untyped("last"), value("rows", "r", 2, 3)], constants)
    compiled(made, *({"x": x, "n": np.asarray(n), "most": np.asarray(m, np.float32)} for n in (1, 3, 500) for m in (0, 100)))


def test_loops_and_branches_nest_in_loops() -> None:
    """What is carried changes places; each turn runs a loop of its own, which reads the number of the turn around it."""
    flip = {
        "then_branch": block([node("Sub", ["a", "x"], ["p"])], [], [untyped("p")]),
        "else_branch": block([node("Identity", ["b"], ["q"])], [], [untyped("q")]),
    }
    inner = block(
        [node("If", ["even"], ["s"], **flip), node("Mul", ["w", "s"], ["w2"]), node("Less", ["j", "k"], ["on3"])],
        [value("j", type=I), value("on2", type=B), untyped("w")],
        [value("on3", type=B), untyped("w2")],
    )
    inside = [
        node("Mod", ["k", "two"], ["r"]),
        node("Equal", ["r", "zero"], ["even"]),
        node("Loop", ["", "on", "a"], ["w3"], body=inner),
        node("Tanh", ["w3"], ["b2"]),
        node("Identity", ["b"], ["a2"]),
        node("Identity", ["on"], ["on4"]),
    ]
    names = [value("k", type=I), value("on", type=B), untyped("a"), untyped("b")]
    turn = block(inside, names, [value("on4", type=B), untyped("a2"), untyped("b2"), untyped("a2")])
    loop = node("Loop", ["n", "", "x", "x"], ["y", "z", "rows"], body=turn)
    constants = {"two": np.asarray(2), "zero": np.asarray(0)}
    made = model([loop], [value("x", "b", 3), value("n", type=I)], [untyped("y"), untyped("z"), value("rows", "r", "b", 3)], constants)
    compiled(made, *({"x": np.resize(x, (rows, 3)), "n": np.asarray(n)} for rows, n in ((2, 7), (3, 5), (1, 8), (4, 1))))


def test_a_list_that_a_loop_appends_to_is_rows() -> None:
    """As torch writes `ys.append(v)`: any number of turns takes no more code than one."""
    inside = [
        node("Add", ["v", "x"], ["u"]),
        node("Tanh", ["u"], ["next"]),
        node("SequenceInsert", ["s", "next"], ["s2"]),
        node("Identity", ["on"], ["on2"]),
    ]
    lists = [helper.make_tensor_sequence_value_info(name, F, None) for name in ("s", "s2")]
    turn = block(
        inside,
        [value("k", type=I), value("on", type=B), lists[0], untyped("v")],
        [value("on2", type=B), lists[1], untyped("next")],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["n", "", "none", "x"], ["all", "last"], body=turn),
        node("ConcatFromSequence", ["all"], ["stacked"], axis=1, new_axis=1),
        node("ConcatFromSequence", ["all"], ["joined"], axis=-1),
        node("SequenceAt", ["all", "place"], ["one"]),
        node("SequenceLength", ["all"], ["count"]),
    ]
    outputs = [untyped("last"), untyped("stacked"), untyped("joined"), untyped("one"), value("count", type=I)]
    made = model(nodes, [value("x", 2, 3), value("n", type=I), value("place", type=I)], outputs)
    compiled(made, *({"x": x, "n": np.asarray(n), "place": np.asarray(at)} for n, at in ((200, -1), (3, 2), (90, -90))))


def test_a_list_that_a_loop_appends_to_may_have_parts_of_which_data_decide_the_lengths() -> None:
    """As a detector writes it that looks for boxes in one picture after the other: its turns are written out."""
    inside = [
        node("Gather", ["x", "k"], ["row"]),
        node("Relu", ["row"], ["kept"]),
        node("NonZero", ["kept"], ["part"]),
        node("SequenceInsert", ["s", "part"], ["s2"]),
    ]
    lists = [helper.make_tensor_sequence_value_info(name, I, None) for name in ("s", "s2")]
    turn = block(inside, [value("k", type=I), value("on", type=B), lists[0]], [value("on", type=B), lists[1]])
    nodes = [
        node("Shape", ["x"], ["n"], end=1),
        node("SequenceEmpty", [], ["none"], dtype=I),
        node("Loop", ["n", "", "none"], ["all"], body=turn),
        node("ConcatFromSequence", ["all"], ["y"], axis=1),
    ]
    made = model(nodes, [value("x", "n", 4)], [untyped("y", I)])
    check(made, x=np.array([[1, -1, 2, 3], [-1, -2, 4, -3], [-1, -2, -3, -4]], np.float32))


@pytest.mark.parametrize("read", ["past", "present"])
def test_a_loop_reads_a_cache_that_is_written_in_place(read: str) -> None:
    inside = [
        node("ReduceSum", [read, "axis"], ["s"], keepdims=0),
        node("Add", ["v", "s"], ["a"]),
        node("Tanh", ["a"], ["next"]),
        node("Identity", ["on"], ["on2"]),
    ]
    turn = block(inside, [value("k", type=I), value("on", type=B), untyped("v")], [value("on2", type=B), untyped("next")])
    nodes = [node("Concat", ["past", "new"], ["present"], axis=1), node("Loop", ["n", "", "x"], ["y"], body=turn)]
    inputs = [value("past", 2, "p", 4), value("new", 2, 1, 4), value("x", 2, 4), value("n", type=I)]
    data = model(nodes, inputs, [untyped("present"), untyped("y")], {"axis": np.array([1])}).SerializeToString()
    session, rng = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]), np.random.default_rng(0)
    cache, new, start = (rng.standard_normal(shape, np.float32) for shape in ((2, 8, 4), (2, 1, 4), (2, 4)))
    feeds = {"new": new, "x": start, "n": np.asarray(3)}
    run = tl.compile(data, threads=1).prepared({"past": cache, **feeds}, {"present": cache}, max={"p": 7})
    for p in (2, 5, 3):
        expected = session.run(None, {"past": cache[:, :p].copy(), **feeds})
        found = run(p=p)
        np.testing.assert_array_equal(found["present"][:, : p + 1], expected[0])
        np.testing.assert_allclose(found["y"], expected[1], rtol=1e-5)


@pytest.mark.parametrize("joined", ["Add", "Concat"])
@pytest.mark.parametrize("seed", [{}, {"seed": 3.0}])
def test_turns_draw_random_numbers_of_their_own_without_a_seed(seed: dict[str, float], joined: str) -> None:
    axis = {"axis": 0} if joined == "Concat" else {}
    inside = [node("RandomNormalLike", ["x"], ["r"], **seed), node(joined, ["v", "r"], ["next"], **axis), node("Identity", ["on"], ["on2"])]
    turn = block(inside, [value("k", type=I), value("on", type=B), untyped("v")], [value("on2", type=B), untyped("next"), untyped("r")])
    loop = node("Loop", ["n", "", "x"], ["y", "rows"], body=turn)
    made = model([loop], [value("x", 2, 3), value("n", type=I)], [untyped("y"), value("rows", "r", 2, 3)])
    found = tl.compile(made.SerializeToString(), threads=1).run({"x": x, "n": np.asarray(4)})
    assert len({row.tobytes() for row in found["rows"]}) == (1 if seed else 4)
    expected = x + found["rows"].sum(axis=0) if joined == "Add" else np.concatenate([x, *found["rows"]])
    np.testing.assert_allclose(found["y"], expected, rtol=1e-3, atol=1e-3)


def test_a_list_that_a_loop_appends_to_is_passed_on_as_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_body, "FEW_NODES", 0)
    inside = [node("Tanh", ["v"], ["next"]), node("SequenceInsert", ["s", "next"], ["s2"]), node("Identity", ["on"], ["on2"])]
    lists = [helper.make_tensor_sequence_value_info(name, F, None) for name in ("s", "s2", "given")]
    turn = block(
        inside,
        [value("k", type=I), value("on", type=B), lists[0], untyped("v")],
        [value("on2", type=B), lists[1], untyped("next")],
    )
    loop = node("Loop", ["n", "", "none", "x"], ["all", "last"], body=turn)
    nodes = [node("SequenceEmpty", [], ["none"]), loop, node("Identity", ["all"], ["given"])]
    made = model(nodes, [value("x", 2, 3)], [lists[2]], {"n": np.asarray(3)})
    [found] = tl.compile(made.SerializeToString(), threads=1).run({"x": x}).values()
    for row, expected in zip(found, (np.tanh(x), np.tanh(np.tanh(x)), np.tanh(np.tanh(np.tanh(x)))), strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-5)


@pytest.mark.parametrize("turns", [0, 3])
def test_what_a_turn_is_given_may_be_passed_on_under_another_name_and_read_again(turns: int) -> None:
    nodes = [
        node("Identity", ["i"], ["number"]),
        node("Identity", ["go"], ["on"]),
        node("Cast", ["i"], ["f"], to=F),
        node("Cast", ["go"], ["one"], to=F),
        node("Add", ["f", "one"], ["sum"]),
        node("Add", ["v", "sum"], ["w"]),
    ]
    ends = [value("on", type=B), value("w", 2, 3), value("number", type=I)]
    body = block(nodes, [value("i", type=I), value("go", type=B), value("v", 2, 3)], ends)
    results = [value("y", 2, 3), untyped("numbers", I)]
    known = model(
        [node("Loop", ["turns", "", "x"], ["y", "numbers"], body=body)], [value("x", 2, 3)], results, {"turns": np.asarray(turns)}
    )
    check(known, x=x)
    told = model([node("Loop", ["turns", "", "x"], ["y", "numbers"], body=body)], [value("x", 2, 3), value("turns", type=I)], results)
    check(told, x=x, turns=np.asarray(turns))


def test_a_scan_over_rows_of_any_number_runs_as_it_is() -> None:
    inside = [
        node("Add", ["s", "e"], ["t"]),
        node("MatMul", ["t", "m"], ["u"]),
        node("Tanh", ["u"], ["s2"]),
        node("Mul", ["s2", "e"], ["r"]),
    ]
    turn = block(inside, [untyped("s"), untyped("e")], [untyped("s2"), untyped("r")], {"m": np.float32([[1, 2], [-1, 0.5]])})
    attributes = {"scan_input_axes": [1], "scan_output_axes": [1], "scan_input_directions": [1]}
    scan = node("Scan", ["s0", "x"], ["last", "rows"], body=turn, num_scan_inputs=1, **attributes)
    made = model([scan], [value("s0", 2), value("x", 2, "t")], [untyped("last"), untyped("rows")])
    rng = np.random.default_rng(0)
    compiled(made, *({"s0": np.float32([1, 2]), "x": rng.standard_normal((2, n), np.float32)} for n in (50, 1, 60)))


@pytest.mark.parametrize("directions", [(0, 0), (1, 1)])
def test_a_scan_goes_through_an_axis(directions: tuple[int, int]) -> None:
    inside = [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "e"], ["r"])]
    turn = block(inside, [untyped("s"), untyped("e")], [untyped("s2"), untyped("r")])
    attributes = {
        "scan_input_axes": [1],
        "scan_output_axes": [1],
        "scan_input_directions": directions[:1],
        "scan_output_directions": directions[1:],
    }
    scan = node("Scan", ["s0", "x"], ["last", "rows"], body=turn, num_scan_inputs=1, **attributes)
    made = model([scan], [value("s0", 2), value("x", 2, 3)], [untyped("last"), untyped("rows")])
    check(made, s0=np.float32([1, 2]), x=x)


def test_a_constant_of_a_sequence_is_taken_out_of_it_any_number_of_times() -> None:
    nodes = [
        node("SplitToSequence", ["c"], ["s"], axis=0),
        node("SequenceAt", ["s", "at"], ["a"]),
        node("SequenceAt", ["s", "at"], ["b"]),
        node("Mul", ["x", "a"], ["ax"]),
        node("Mul", ["ax", "b"], ["y"]),
        node("ConcatFromSequence", ["s"], ["z"], axis=0),
    ]
    made = model(nodes, [value("x", 2, 3)], [untyped("y"), untyped("z")], {"c": np.asarray([2, 3], np.float32), "at": np.asarray(1)})
    check(made, x=x)


def test_sequences_of_known_length_vanish() -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
        node("SequenceAt", ["s", "last"], ["a"]),
        node("SequenceInsert", ["s", "a", "first"], ["t"]),
        node("SequenceErase", ["t", "last"], ["u"]),
        node("SequenceLength", ["u"], ["n"]),
        node("ConcatFromSequence", ["u"], ["y"], axis=-1, new_axis=1),
    ]
    constants = {"last": np.asarray(-1), "first": np.asarray(0)}
    check(model(nodes, [value("x", 2, 3)], [untyped("y"), untyped("n", I)], constants), x=x)


def scaled(default: float | None) -> FunctionProto:
    """Return a function of the model: x + f * x."""
    constant = node("Constant", [], ["f"])
    constant.attribute.add(name="value_float", ref_attr_name="factor", type=1)
    body = [constant, node("Mul", ["a", "f"], ["m"]), node("Add", ["a", "m"], ["b"])]
    given = {} if default is None else {"attribute_protos": [helper.make_attribute("factor", default)]}
    return helper.make_function("local", "Scaled", ["a"], ["b"], body, [helper.make_opsetid("", 18)], [] if given else ["factor"], **given)


@pytest.mark.parametrize("given", [{"factor": 3.0}, {}])
def test_functions_of_the_model_take_attributes_or_their_defaults(given: dict[str, float]) -> None:
    nodes = [node("Scaled", ["x"], ["m"], domain="local", **given), node("Scaled", ["m"], ["y"], domain="local", factor=2.0)]
    check(model(nodes, [value("x", 2, 3)], [untyped("y")], functions=[scaled(0.5)]), x=x)


def test_a_function_that_calls_itself_is_refused() -> None:
    function = helper.make_function(
        "local", "Again", ["a"], ["b"], [node("Again", ["a"], ["b"], domain="local")], [helper.make_opsetid("local", 1)]
    )
    made = model([node("Again", ["x"], ["y"], domain="local")], [value("x", 2)], [untyped("y")], functions=[function])
    with pytest.raises(CompileError) as refused:
        Importer().load(made)
    assert refused.value.diagnostics[0].code == "O014"


def test_functions_that_double_are_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "MOST_INLINED", 10_000)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    functions = [helper.make_function("local", "f0", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opsets)]
    for k in range(1, 40):
        twice = [node(f"f{k - 1}", ["a"], ["m"], domain="local"), node(f"f{k - 1}", ["m"], ["b"], domain="local")]
        functions.append(helper.make_function("local", f"f{k}", ["a"], ["b"], twice, opsets))
    made = model([node("f39", ["x"], ["y"], domain="local")], [value("x", 2)], [untyped("y")], functions=functions)
    with pytest.raises(CompileError) as refused:
        Importer().load(made)
    assert refused.value.diagnostics[0].code == "O014"


def test_a_block_that_reads_what_nothing_defines_is_refused() -> None:
    lost = {"then_branch": block([node("Relu", ["nowhere"], ["a"])], [], [untyped("a")]), "else_branch": block([], [], [untyped("x")])}
    made = model([node("If", ["c"], ["y"], **lost)], [value("x", 2, 3), value("c", type=B)], [untyped("y")])
    with pytest.raises(CompileError, match="`nowhere`, which nothing defines"):
        Importer().load(made)


def test_operators_that_the_standard_defines_by_functions_become_what_these_run() -> None:
    nodes = [node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss", "log"], reduction="sum")]
    made = model(nodes, [value("x", 2, 3), value("labels", 2, type=I)], [untyped("loss"), untyped("log")])
    check(made, x=x, labels=np.asarray([2, 0]))


def test_what_decides_is_found_once_and_what_follows_goes_on_from_there() -> None:
    nodes = [
        node("Mul", ["x", "x"], ["q"]),
        node("ArgMax", ["q"], ["at"], axis=1, keepdims=0),
        node("ReduceMax", ["at"], ["top"], keepdims=1),
    ]
    nodes += [node("Slice", ["q", "zero", "top", "one"], ["part"]), node("ReduceSum", ["part"], ["y"], keepdims=0)]
    made = model(nodes, [value("x", 2, 3)], [untyped("part"), untyped("y")], {"zero": np.asarray([0]), "one": np.asarray([1])})
    for order in ([0, 1, 2], [2, 1, 0], [0, 2, 1]):
        check(made, x=np.ascontiguousarray(x[:, order]))
        compiled = tl.compile(made, threads=1).run({"x": np.ascontiguousarray(x[:, order])})
        np.testing.assert_allclose(compiled["part"], staged(made, {"x": x[:, order]})[0], rtol=1e-5)
