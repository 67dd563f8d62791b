"""Sizes that data decide: whole numbers in small inputs, and what a first stage of a model counts, are symbols as those of shapes are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from test_open_sizes import Net, compilations

import tensorlang as tl
from codegen.llvm.call import Callable
from stdlib.onnx import importer
from tensorlang.graph.data_dependent import DataDependent, Known

Array = np.ndarray[Any, Any]
INTS = TensorProto.INT64


def check(model: tl.CompiledModel, data: bytes, every: Sequence[Mapping[str, Array]]) -> None:
    session = onnxruntime.InferenceSession(data)
    for feeds in every:
        for mine, theirs in zip(model.run(feeds).values(), session.run(None, feeds), strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)


def rows(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def reshaped() -> bytes:
    n = Net()
    return n.model({"x": [2, 12], "shape": [2]}, n.op("Relu", n.op("Reshape", "x", "shape")), types={"shape": INTS})


def cut() -> bytes:
    n = Net()
    part = n.op("Slice", "x", "start", "end", n.ints(0))
    return n.model({"x": [40, 3], "start": [1], "end": [1]}, n.op("Exp", part), types={"start": INTS, "end": INTS})


def counted() -> bytes:
    n = Net()
    at = n.op("NonZero", n.op("Greater", "x", n.constant(np.float32(0))))
    return n.model({"x": ["n", 6]}, at, n.op("GatherND", "x", n.op("Transpose", at, perm=[1, 0])), types={at: INTS})


def chosen_twice() -> bytes:
    """Of three inputs the elements that are greater than zero, and of these those that are greater than one."""
    n = Net()

    def greater(x: str, limit: float) -> str:
        at = n.op("NonZero", n.op("Greater", x, n.constant(np.float32(limit))))
        return n.op("GatherND", x, n.op("Transpose", at, perm=[1, 0]))

    inputs = ("x", "y", "z")
    return n.model({name: [5000] for name in inputs}, n.op("Concat", *(greater(greater(name, 0), 1) for name in inputs), axis=0))


def pasted() -> bytes:
    """Thirty rows put into forty at a place that is computed, as far as they lie there, and zeros around them."""
    n = Net()
    box = n.op("Cast", n.op("ReduceMean", "boxes", n.ints(1), keepdims=0), to=INTS)
    first, last = (n.op("Slice", box, n.ints(k), n.ints(k + 1)) for k in (0, 1))
    top, bottom = n.op("Max", first, n.ints(0)), n.op("Min", last, n.ints(40))
    part = n.op("Slice", "x", n.op("Sub", top, first), n.op("Sub", bottom, first), n.ints(0))
    above, below = (n.op("ConstantOfShape", n.op("Concat", count, n.ints(3), axis=0)) for count in (top, n.op("Sub", n.ints(40), bottom)))
    whole = n.op("Slice", n.op("Concat", above, part, below, axis=0), n.ints(0), n.ints(40), n.ints(0))
    return n.model({"x": [30, 3], "boxes": [2, 50]}, n.op("Add", whole, n.weight(40, 3)))


def pasted_in_turns() -> bytes:
    """What `pasted` does at the places above zero, one below the other, each in a turn of a loop."""
    n = Net()
    first = n.op("Unsqueeze", n.op("Gather", "firsts", "turn"), n.ints(0))
    last = n.op("Min", n.op("Add", first, n.ints(30)), n.ints(40))
    part = n.op("Slice", "x", n.ints(0), n.op("Sub", last, first), n.ints(0))
    above, below = (n.op("ConstantOfShape", n.op("Concat", k, n.ints(3), axis=0)) for k in (first, n.op("Sub", n.ints(40), last)))
    whole = n.op("Slice", n.op("Concat", above, part, below, axis=0), n.ints(0), n.ints(40), n.ints(0))
    found = [n.op("Identity", "goes_on"), n.op("Concat", "before", whole, axis=0)]

    def info(name: str, kind: int, shape: list[Any] | None) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    taken = [info("turn", INTS, []), info("goes_on", TensorProto.BOOL, []), info("before", TensorProto.FLOAT, ["n", 3])]
    made = [info(found[0], TensorProto.BOOL, []), info(found[1], TensorProto.FLOAT, ["m", 3])]
    nodes = [
        helper.make_node("ReduceMean", ["places", "axis"], ["means"], keepdims=0),
        helper.make_node("Cast", ["means"], ["firsts"], to=INTS),
        helper.make_node("Greater", ["firsts", "least"], ["some"]),
        helper.make_node("Cast", ["some"], ["each"], to=INTS),
        helper.make_node("ReduceSum", ["each"], ["turns"], keepdims=0),
        helper.make_node("Loop", ["turns", "", "none"], ["y"], body=helper.make_graph(n.nodes, "body", taken, made, n.constants)),
    ]
    arrays = {"axis": np.array([0]), "least": np.array(0), "none": np.zeros((0, 3), np.float32)}
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    inputs = [info("x", TensorProto.FLOAT, [30, 3]), info("places", TensorProto.FLOAT, [4, 2000])]
    graph = helper.make_graph(nodes, "net", inputs, [info("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def collected() -> bytes:
    """Those of `x` that are above zero, each appended in a turn of a loop."""
    text = """<ir_version: 9, opset_import: ["": 18]>
        net (float[n] x) => (float[m] y) <float[0] none = {}, int64[1] first = {0}, float zero = {0}> {
            turns = Size(x)
            y = Loop(turns, , none) <body = body (int64 turn, bool goes_on, float[k] before) => (bool more, float[l] after) {
                more = Identity(goes_on)
                number = Gather(x, turn)
                wanted = Greater(number, zero)
                after = If(wanted) <
                    then_branch = longer () => (float[p] found) { row = Unsqueeze(number, first) found = Concat <axis = 0> (before, row) },
                    else_branch = same () => (float[q] found) { found = Identity(before) }>
            }>
        }"""
    return parse_model(text).SerializeToString()


def padded() -> bytes:
    """The past, and zeros up to the number of all keys."""
    n = Net()
    more = n.op("Unsqueeze", n.op("Sub", "total", n.op("Gather", n.op("Shape", "past"), n.constant(np.int64(2)))), n.ints(0))
    zeros = n.op("ConstantOfShape", n.op("Concat", n.ints(1, 1), more, n.ints(8), axis=0))
    keys = n.op("Concat", "past", zeros, axis=2)
    y = n.op("Add", keys, n.op("ReduceMax", "new", n.ints(2)))
    return n.model({"new": [1, 1, "s", 8], "past": [1, 1, "p", 8], "total": []}, y, types={"total": INTS})


def cut_at_the_end() -> bytes:
    n = Net()
    keys = n.op("Concat", "past", "new", axis=2)
    length = n.op("Unsqueeze", "total", n.ints(0))
    places = n.op("Slice", n.weight(1, 1, 30, 8), n.ints(0), length, n.ints(2))
    return n.model({"new": [1, 1, "s", 8], "past": [1, 1, "p", 8], "total": []}, n.op("Add", keys, places), types={"total": INTS})


def ranged() -> bytes:
    n = Net()
    shape = n.op("Concat", n.op("Unsqueeze", "total", n.ints(0)), n.ints(8), axis=0)
    places = n.op("Cast", n.op("Range", n.constant(np.int64(0)), "total", n.constant(np.int64(1))), to=TensorProto.FLOAT)
    spread = n.op("Expand", n.op("Reshape", places, n.ints(-1, 1)), shape)
    keys = n.op("Reshape", n.op("Concat", "past", "new", axis=2), shape)
    return n.model({"new": [1, 1, "s", 8], "past": [1, 1, "p", 8], "total": []}, n.op("Sub", keys, spread), types={"total": INTS})


@pytest.mark.parametrize("make", [padded, cut_at_the_end, ranged])
def test_a_decoder_that_is_told_how_many_tokens_there_are_compiles_nothing_after_its_first_step(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = make()
    model = tl.compile(data, threads=1)

    def feeds(s: int, p: int) -> dict[str, Array]:
        return {"new": rows(1, 1, s, 8), "past": rows(1, 1, p, 8), "total": np.array(p + s)}

    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [feeds(5, 0), feeds(1, 5)])
        made = len(compilations(caplog))
        check(model, data, [feeds(1, p) for p in range(6, 25)])
    assert len(compilations(caplog)) == made


def test_what_is_found_among_a_few_numbers_is_computed_not_compiled_for_them(caplog: pytest.LogCaptureFixture) -> None:
    n = Net()
    at = n.op("NonZero", n.op("Equal", "x", n.constant(np.int64(2))))
    data = n.model({"x": [6]}, at, types={"x": INTS, at: INTS})
    model = tl.compile(data, threads=1)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"x": np.array([2, 0, 2, 1, 1, 1])}, {"x": np.array([2, 2, 2, 1, 1, 1])}])
        made = len(compilations(caplog))
        check(model, data, [{"x": np.array(x)} for x in ([0] * 6, [2] * 6, [1, 2, 1, 2, 1, 0])])
    assert len(compilations(caplog)) == made


def test_the_numbers_of_a_shape_input_become_sizes_when_they_differ(caplog: pytest.LogCaptureFixture) -> None:
    data = reshaped()
    model, x = tl.compile(data, threads=1), rows(2, 12)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"x": x, "shape": np.array(s)} for s in ([4, 6], [6, 4], [3, 8], [8, 3], [2, 12], [12, 2])])
    assert len(compilations(caplog)) == 2
    assert "as long as" in compilations(caplog)[1]


def test_rows_that_are_left_of_a_known_number_are_open(caplog: pytest.LogCaptureFixture) -> None:
    n = Net()
    left = n.op("Sub", n.ints(40), n.size("past", 1))
    zeros = n.op("ConstantOfShape", n.op("Concat", n.ints(2), left, n.ints(8), axis=0))
    data = n.model({"past": [2, "p", 8]}, n.op("Concat", "past", zeros, axis=1))
    model = tl.compile(data, threads=1, sizes="symbolic")
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"past": rows(2, p, 8)} for p in (5, 1, 0, 40, 17)])
    assert len(compilations(caplog)) == 1


def test_of_two_sizes_the_larger_is_chosen_for_good_where_it_always_is(caplog: pytest.LogCaptureFixture) -> None:
    n = Net()
    least = n.op("Sub", n.op("Min", n.size("past", 0), n.op("Add", n.size("past", 0), n.size("new", 0))), n.size("past", 0))
    count = n.op("Max", n.size("new", 0), n.op("Add", n.size("past", 0), n.size("new", 0)), least)
    zeros = n.op("ConstantOfShape", n.op("Concat", count, n.ints(8), axis=0))
    data = n.model({"past": ["p", 8], "new": ["s", 8]}, n.op("Sub", zeros, n.op("Concat", "past", "new", axis=0)))
    model = tl.compile(data, threads=1, sizes="symbolic")
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"past": rows(p, 8), "new": rows(s, 8)} for p, s in ((5, 3), (0, 5), (4, 1), (0, 0))])
    assert len(compilations(caplog)) == 1


def test_a_negative_number_is_compiled_for_itself_and_the_rest_stays_open(caplog: pytest.LogCaptureFixture) -> None:
    data = reshaped()
    model, x = tl.compile(data, threads=1, sizes="symbolic"), rows(2, 12)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"x": x, "shape": np.array(s)} for s in ([4, -1], [6, -1], [3, 8], [-1, 3], [8, -1], [-1, 4])])
    assert len(compilations(caplog)) == 3


def test_places_that_data_decide_are_limited_to_what_is_there_in_one_kernel_for_each_sign(caplog: pytest.LogCaptureFixture) -> None:
    data = pasted()
    model, x = tl.compile(data, threads=1), rows(30, 3)

    def feeds(first: int) -> dict[str, Array]:
        return {"x": x, "boxes": np.array([[first] * 50, [first + 30] * 50], np.float32)}

    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [feeds(first) for first in (5, 20, 10, 0, 17, 33)])
        made = len(compilations(caplog))
        check(model, data, [feeds(first) for first in (-5, -17, -2, -11)])
    assert made == 4  # a first one of its own, what decides, the rest for the first number and for all
    assert len(compilations(caplog)) == made + 3


def test_in_turns_of_a_loop_what_they_compute_is_open_with_the_second(caplog: pytest.LogCaptureFixture) -> None:
    data = pasted_in_turns()
    model, x = tl.compile(data, threads=1), rows(30, 3)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"x": x, "places": np.tile(np.float32([5, 20, 10, 15, 17, 33, 2, *[0] * 1993]), (4, 1))}])
    assert len(compilations(caplog)) == 4  # of a turn one of its own, what decides, the rest; the model around it


def test_turns_that_carry_what_grows_find_the_code_of_each_length_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Callable] = []
    create = Callable.__init__
    monkeypatch.setattr(Callable, "__init__", lambda self, *given, **named: [made.append(self), create(self, *given, **named)][1])
    data = collected()
    model, x = tl.compile(data, threads=1), rows(160)
    check(model, data, [{"x": x[:20]}, {"x": np.abs(x)}])
    made.clear()
    check(model, data, [{"x": np.abs(x)}, {"x": np.abs(x[::-1])}])
    assert not made


def test_what_sizes_make_no_difference_to_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = tl.compile(collected(), threads=1), np.abs(rows(150))
    model.run({"x": x[:20]})
    model.run({"x": x[:30]})
    made: list[Callable] = []
    create = Callable.__init__
    monkeypatch.setattr(Callable, "__init__", lambda self, *given, **named: [made.append(self), create(self, *given, **named)][1])
    model.run({"x": x})
    assert 150 <= len(made) < 160  # of each turn what appends a number, and once what asks for its sign


def test_where_a_slice_begins_and_ends_is_open(caplog: pytest.LogCaptureFixture) -> None:
    data = cut()
    model, x = tl.compile(data, threads=1, sizes="symbolic"), rows(40, 3)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"x": x, "start": np.array([a]), "end": np.array([b])} for a, b in ((3, 9), (5, 40), (0, 1), (7, 7), (2, 30))])
    assert len(compilations(caplog)) <= 2


def test_how_many_elements_hold_is_open_in_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    data = counted()
    model = tl.compile(data, threads=1, sizes="symbolic")
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"x": rows(k, 6, seed=k)} for k in (5, 9, 3, 20, 7, 1)])
    assert len(compilations(caplog)) == 2


def test_counts_that_do_not_decide_what_becomes_of_each_other_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "MOST_STAGES", 2)
    known = Known()
    for _ in range(2):
        with pytest.raises(DataDependent) as found:
            importer.imported(chosen_twice(), {}, {}, known=known)
        stage = found.value.stage
        assert stage is not None and len(found.value.wanted) == 3
        known = known.with_computed(
            {name: np.array(5).reshape(stage.values[name].shape) for name in found.value.wanted}, found.value.carried_values()
        )
    assert len(importer.imported(chosen_twice(), {}, {}, known=known).outputs) == 1


def test_a_count_of_none_and_rows_that_are_none_are_right() -> None:
    data = counted()
    model = tl.compile(data, threads=1, sizes="symbolic")
    check(model, data, [{"x": rows(4, 6)}, {"x": -np.abs(rows(4, 6))}, {"x": rows(0, 6)}, {"x": rows(6, 6)}])


def test_an_axis_that_must_be_a_number_is_told_and_compiled_for_each(caplog: pytest.LogCaptureFixture) -> None:
    n = Net()
    data = n.model({"x": [3, 4, 5], "axes": [1]}, n.op("ReduceSum", "x", "axes", keepdims=0), types={"axes": INTS})
    model, x = tl.compile(data, threads=1), rows(3, 4, 5)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"x": x, "axes": np.array([k])} for k in (0, 1, 2, -1)])
    assert any("`axes_0` is a number" in r.getMessage() for r in caplog.records)


def test_a_prepared_run_goes_on_with_the_elements_that_it_finds_and_refuses_results_of_another_shape() -> None:
    feeds = {"x": rows(40, 3), "start": np.array([2]), "end": np.array([7])}
    model = tl.compile(cut(), threads=1)
    results = {name: np.empty_like(array) for name, array in model.run(feeds).items()}
    again = model.prepared(feeds, results)
    for start in (2, 10, 2):
        feeds["start"][:], feeds["end"][:] = start, start + 5
        assert again().keys() == results.keys()
        np.testing.assert_allclose(next(iter(results.values())), np.exp(feeds["x"][start : start + 5]), rtol=1e-6)
    feeds["end"][:] = 8
    with pytest.raises(tl.RunError, match="R0304"):
        again()


def test_a_prepared_run_refuses_results_of_another_shape_where_the_host_computes_a_part() -> None:
    n = Net()
    kept = n.op("StringNormalizer", n.op("Cast", "x", to=TensorProto.STRING), stopwords=["1"])
    result = n.op("Cast", kept, to=INTS)
    model, feeds = tl.compile(n.model({"x": [4]}, result, types={"x": INTS, result: INTS}), threads=1), {"x": np.array([2, 1, 3, 4])}
    results = {name: np.empty_like(array) for name, array in model.run(feeds).items()}
    again = model.prepared(feeds, results)
    feeds["x"][:] = 5, 6, 1, 7
    assert again()[result].tolist() == [5, 6, 7]
    for found in ([1, 1, 1, 8], [5, 6, 7, 8]):  # the one element of the first would fit in each place
        feeds["x"][:] = found
        with pytest.raises(tl.RunError, match="R0304"):
            again()
    assert results[result].tolist() == [5, 6, 7]


def test_a_prepared_run_reads_what_a_first_stage_finds_anew() -> None:
    feeds = {"x": rows(7, 6)}
    model = tl.compile(counted(), threads=1)
    results = {name: np.empty_like(array) for name, array in model.run(feeds).items()}
    again = model.prepared(feeds, results)
    feeds["x"][:] = np.roll(feeds["x"], 3, axis=0)
    again()
    for mine, fresh in zip(results.values(), model.run(feeds).values(), strict=True):
        np.testing.assert_array_equal(mine, fresh)


def test_what_a_count_is_made_of_is_computed_once() -> None:
    n = Net()
    at = n.op("NonZero", n.op("MatMul", "x", n.weight(6, 5)))
    data = n.model({"x": ["n", 6]}, at, types={at: INTS})
    model, feeds = tl.compile(data, threads=1), {"x": rows(7, 6)}
    check(model, data, [feeds])
    assert sum("MatMul_0" in kernel.members for kernel in model.profile(feeds)) == 1


def test_what_a_node_counts_and_reads_again_is_computed_once() -> None:
    n = Net()
    data = n.model({"x": ["n"]}, n.op("Unique", "x"))
    model, feeds = tl.compile(data, threads=1), {"x": rows(40)}
    check(model, data, [feeds])
    assert [kernel.name for kernel in model.profile(feeds)].count("argsort") == 1


@pytest.mark.parametrize(("most", "kernel"), [(3, "best_boxes"), (30, "argsort")])
def test_which_boxes_are_best_is_found_once_for_how_many_they_are_and_which(most: int, kernel: str) -> None:
    n = Net()
    limits = (n.ints(most), *(n.constant(np.float32(limit)) for limit in (0.5, 0.1)))
    kept = n.op("NonMaxSuppression", "boxes", "scores", *limits)
    data = n.model({"boxes": [1, 40, 4], "scores": [1, 2, 40]}, kept, types={kept: INTS})
    corners = rows(40, 2)
    feeds = {"boxes": np.concatenate([corners, corners + 2], 1)[None], "scores": rows(2, 40)[None]}
    model = tl.compile(data, threads=1)
    check(model, data, [feeds])
    assert [k.name for k in model.profile(feeds)].count(kernel) == 1


def test_what_one_stage_computes_may_be_an_input_of_the_next_and_decide_what_follows() -> None:
    n = Net()
    counts = n.op("Cast", n.op("ReduceMax", "x", n.ints(1), keepdims=0), to=INTS)
    ones = n.op("ConstantOfShape", n.op("ReduceSum", counts, n.ints(0), keepdims=1))
    of_each = n.op("Concat", n.ints(1), n.op("Slice", counts, n.ints(0), n.ints(1)), axis=0)
    spread = n.op("Expand", n.op("Unsqueeze", ones, n.ints(1)), of_each)
    data = n.model({"x": [3, 2000]}, n.op("Sin", n.op("Add", spread, n.op("Cast", n.op("ReduceMax", counts), to=TensorProto.FLOAT))))
    tried = [np.array(x, np.float32) for x in ((2.5, 1.2, 3.7), (4.1, 2, 2), (1, 1, 1))]
    for sizes in ("auto", "static"):
        check(tl.compile(data, threads=1, sizes=sizes), data, [{"x": np.repeat(x[:, None], 2000, 1)} for x in tried])
