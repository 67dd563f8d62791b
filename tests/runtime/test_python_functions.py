"""Functions of Python that stand for extern operators: arrays go in and out as declared, and nothing that they raise is lost."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import tensorlang as tl
from codegen.dtypes import DTYPES
from tensorlang.graph.externs import graph_of
from tensorlang.graph.printer import show as show_graph
from tensorlang.runtime.specialization import Sizes
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.printer import show

SIZES: tuple[Sizes, ...] = ("auto", "static", "symbolic")
X = np.arange(6, dtype=np.float32)
SCALE = "extern op scale[T: float](x: T[N], attr by: float = 2) -> (y: T[N])\n"
ENDS = "extern op ends(x: f32[N], z: f32[N]) -> (low: f32[N], high: f32[N])\n"
AROUND = """
op around(x: f32[N]) -> (y: f32[N]) {
    a[i] = x[i] + 1
    b = scale(a, by=3)
    y[i] = b[i] * b[i] + a[i]
}
"""
EXPECTED = 9 * (X + 1) ** 2 + X + 1


def scaled(x: Any, by: float) -> Any:
    return x * x.dtype.type(by)


def around(function: Callable[..., Any] = scaled, sizes: Sizes = "static") -> tl.Operator:
    return tl.parse(SCALE + AROUND, externs={"scale": function}, sizes=sizes).around


def refused(function: Callable[..., Any], code: str) -> tl.RunError:
    with pytest.raises(tl.RunError, match=code) as found:
        around(function)(X)
    assert found.value.diagnostics[0].help
    return found.value


# ---------------------------------------------------------------- what it computes is the result


def test_what_a_function_returns_is_what_its_operator_returns() -> None:
    ops = tl.parse(SCALE + AROUND, externs={"scale": scaled})
    np.testing.assert_array_equal(ops.scale(X), 2 * X)
    np.testing.assert_array_equal(ops.scale(X.astype(np.float64), by=0.5), X / 2)
    np.testing.assert_array_equal(ops.around(X), EXPECTED)


def test_a_function_of_c_serves_too() -> None:
    np.testing.assert_array_equal(tl.parse("extern op f(x: f32[N]) -> (y: f32[N])", externs={"f": np.sort}).f(X[::-1]), X)


@pytest.mark.parametrize("sizes", SIZES)
def test_any_number_of_elements_is_right(sizes: Sizes) -> None:
    operator = around(sizes=sizes)
    for count in (0, 1, 2, 17, 1000):
        x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
        np.testing.assert_allclose(operator(x), 9 * (x + 1) ** 2 + x + 1, rtol=1e-5, atol=1e-5)


def test_several_results_are_a_tuple() -> None:
    def ends(x: Any, z: Any) -> Any:
        return np.minimum(x, z), np.maximum(x, z)

    text = "op spread(x: f32[N], z: f32[N]) -> (y: f32[N]) {\n a, b = ends(x, z)\n y[i] = b[i] - a[i]\n}"
    np.testing.assert_array_equal(tl.parse(ENDS + text, externs={"ends": ends}).spread(X, X[::-1]), np.abs(X - X[::-1]))


def test_a_function_may_write_into_its_results() -> None:
    def scale(x: Any, by: float, out: Any) -> None:
        np.multiply(x, x.dtype.type(by), out=out)

    def ends(x: Any, z: Any, out: Any) -> Any:
        np.minimum(x, z, out=out[0])
        np.maximum(x, z, out=out[1])
        return out

    given = {"scale": tl.python_function(scale, out=True), "ends": tl.python_function(ends, out=True)}
    ops = tl.parse(SCALE + ENDS + AROUND, externs=given)
    np.testing.assert_array_equal(ops.around(X), EXPECTED)
    np.testing.assert_array_equal(ops.ends(X, X[::-1])[1], np.maximum(X, X[::-1]))


def test_attributes_and_declared_sizes_are_passed_by_name() -> None:
    told: dict[str, Any] = {}

    def first(x: Any, **named: Any) -> Any:
        told.update(named, shape=x.shape)
        return x[: named["k"]]

    text = "extern op first(x: f32[M, N], size k in 0..M, attr by: float, attr on: bool, attr n: int) -> (y: f32[k, N])"
    for sizes in SIZES:
        operator = tl.parse(text, externs={"first": first}, sizes=sizes).first
        np.testing.assert_array_equal(operator(X.reshape(3, 2), k=2, by=0.5, on=True, n=-3), X.reshape(3, 2)[:2])
        assert told == {"k": 2, "by": 0.5, "on": True, "n": -3, "shape": (3, 2)} and told["on"] is True


def test_packs_of_sizes_are_passed_as_tuples_and_dimensions_made_of_several_as_one() -> None:
    def turned(x: Any, D: tuple[int, ...]) -> Any:
        return x.reshape(-1, 2).T.reshape(D)

    operator = tl.parse("extern op turned(x: f32[(A, 2)], size D..) -> (y: f32[D..])", externs={"turned": turned}).turned
    np.testing.assert_array_equal(operator(X, D=(3, 2)), X.reshape(3, 2).T.reshape(3, 2))


def test_a_tensor_that_is_left_out_is_none_and_each_of_several_are_a_list() -> None:
    def joined(x: list[Any], z: Any) -> Any:
        assert z is None
        return np.concatenate(x)

    text = "extern op joined(each x: f32[each N], z: f32[2] = 0) -> (y: f32[sum(N..)])"
    for sizes in ("static", "symbolic"):
        operator = tl.parse(text, externs={"joined": joined}, sizes=sizes).joined
        np.testing.assert_array_equal(operator([X, X[:0], X[:2]]), np.concatenate([X, X[:2]]))


def test_each_of_several_results_is_returned_as_a_list() -> None:
    def parted(x: Any, N: tuple[int, ...]) -> Any:
        return np.split(x, np.cumsum(N)[:-1])

    operator = tl.parse("extern op parted(x: f32[sum(N..)], size N..) -> (each y: f32[each N])", externs={"parted": parted}).parted
    assert [y.tolist() for y in operator(X, N=(2, 1, 3))] == [[0, 1], [2], [3, 4, 5]]


@pytest.mark.parametrize("name", DTYPES)
def test_elements_of_every_type_reach_a_function_and_come_back(name: str) -> None:
    seen: list[Any] = []

    def same(x: Any) -> Any:
        seen.append(x.dtype)
        return x

    dtype = DTYPES[name]
    text = f"extern op same(x: {name}[N]) -> (y: {name}[N])\nop f(x: {name}[N]) -> (y: {name}[N]) {{ y = same(same(x)) }}"
    x = np.array([0, 1, 1, 0, 1, 0, 0]).astype(dtype.numpy)
    found = tl.parse(text, externs={"same": same}).f(x)
    assert found.dtype == x.dtype and found.tobytes() == x.tobytes() and set(seen) == {x.dtype}


def test_arrays_are_contiguous_and_only_results_can_be_written_to() -> None:
    flags: list[tuple[bool, bool]] = []

    def scale(x: Any, by: float, out: Any) -> None:
        flags.extend((a.flags.c_contiguous, a.flags.writeable) for a in (x, out))
        with pytest.raises(ValueError, match="read-only"):
            x[...] = 0
        out[...] = x * x.dtype.type(by)

    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    operator = tl.parse(SCALE, externs={"scale": tl.python_function(scale, out=True)}).scale
    np.testing.assert_array_equal(operator(wide[:, 1]), 2 * wide[:, 1])
    operator(wide[:0, 1])
    assert flags == [(True, False), (True, True)] * 2


def test_results_are_written_into_arrays_that_are_given_and_a_prepared_call_computes_anew() -> None:
    operator, given, x = around(), np.zeros(6, np.float32), X.copy()
    assert operator(X, out=given) is given and given.tolist() == EXPECTED.tolist()
    again = operator.prepared(x, out=given)
    x[:] = 1
    assert again() is given and given.tolist() == [38] * 6


def test_a_function_is_kept_as_long_as_what_calls_it() -> None:
    operator = around(lambda x, by: x * x.dtype.type(by))
    operator(X)
    gc.collect()
    np.testing.assert_array_equal(operator(X), EXPECTED)


def test_functions_of_one_name_are_told_apart() -> None:
    for factor in (1, 2, 3):
        operator = tl.parse(SCALE, externs={"scale": lambda x, by, f=factor: x * x.dtype.type(f)}).scale
        np.testing.assert_array_equal(operator(X), factor * X)


def test_two_calls_of_one_function_are_each_told_their_own() -> None:
    text = "op f(x: f32[N]) -> (y: f32[N], z: f32[2*N]) {\n y = scale(x, by=5)\n b[k] = x[k % N] for k in 0..2*N\n z = scale(b)\n}"
    y, z = tl.parse(SCALE + text, externs={"scale": scaled}).f(X)
    assert y.tolist() == (5 * X).tolist() and z.tolist() == (2 * np.tile(X, 2)).tolist()


# ---------------------------------------------------------------- threads, and calls in calls


def test_several_threads_call_one_operator_at_once_and_each_gets_its_own_errors() -> None:
    def positive(x: Any, by: float) -> Any:
        time.sleep(0)
        if x[0] < 1:
            raise KeyError(float(x[0]))
        return scaled(x, by)

    operator = around(positive)
    xs = [np.random.default_rng(k).standard_normal(5000).astype(np.float32) for k in range(16)]

    def outcome(x: Any) -> Any:
        try:
            return operator(x)[:5].tolist()
        except tl.RunError as refused:
            return refused.__cause__.args[0]  # type: ignore[union-attr]

    expected = [outcome(x) for x in xs]
    assert {type(found) for found in expected} == {list, float}
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(outcome, xs * 8)) == expected * 8


@pytest.mark.parametrize("sizes", SIZES)
def test_a_function_may_call_the_operator_that_calls_it(sizes: Sizes) -> None:
    def deeper(x: Any, by: float) -> Any:
        below = operator(x) if x[0] < 4 else x
        assert below.shape == x.shape
        return scaled(x, by)

    operator = around(deeper, sizes)
    np.testing.assert_array_equal(operator(X), EXPECTED)


def test_a_function_that_is_called_too_deep_in_the_stack_ends_in_an_error() -> None:
    operator = around()
    operator(X)

    def outcome(depth: int) -> str:
        if depth:
            return outcome(depth - 1)
        try:
            return "right" if operator(X).tolist() == EXPECTED.tolist() else "wrong"
        except tl.RunError:
            return "refused"

    found = set()
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        try:
            found.add(outcome(depth))
        except RecursionError:
            found.add("recursion")
    assert found <= {"right", "refused", "recursion"} and found >= {"right", "recursion"}


# ---------------------------------------------------------------- what goes wrong is said, with the line


def test_what_a_function_raises_is_told_with_the_line_that_raised_it() -> None:
    def sums(x: Any, by: float) -> Any:
        return x + np.ones(3)  # the wrong line

    told = refused(sums, "R0318")
    assert "`scale` raised ValueError: operands could not be broadcast together" in str(told)
    assert f"--> {__file__}:" in str(told) and "return x + np.ones(3)  # the wrong line" in str(told) and "declared here" in str(told)
    assert isinstance(told.__cause__, ValueError)


def test_what_is_raised_further_in_points_at_the_own_line_of_the_function() -> None:
    told = refused(lambda x, by: np.linalg.inv(np.zeros((2, 2))), "R0318")
    assert f"--> {__file__}:" in str(told) and "LinAlgError" in str(told)


def test_a_function_without_a_text_tells_what_it_raised() -> None:
    names: dict[str, Any] = {}
    exec("def f(x, by):\n    raise ValueError('of no file')", names)
    told = str(refused(names["f"], "R0318"))
    assert "ValueError: of no file" in told and "line 2 of <string>" in told


def test_a_write_into_an_argument_is_told_what_to_do() -> None:
    assert "work on a copy" in str(refused(lambda x, by: x.sort(), "R0318"))


def test_an_error_comes_again_with_every_call_and_goes_when_its_reason_does() -> None:
    switch = {"on": True}

    def sometimes(x: Any, by: float) -> Any:
        if switch["on"]:
            raise OSError("not now")
        return scaled(x, by)

    operator = around(sometimes)
    for _ in range(2):
        with pytest.raises(tl.RunError, match=r"R0318.*OSError: not now"):
            operator(X)
    switch["on"] = False
    np.testing.assert_array_equal(operator(X), EXPECTED)


def test_an_interrupt_reaches_the_caller_as_it_is() -> None:
    def waits(x: Any, by: float) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        return x

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            around(waits)(X)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x, by: None, "returned nothing"),
        (lambda x, by: x[:2], "the shape [2]"),
        (lambda x, by: x[:, None], "the shape [6, 1]"),
        (lambda x, by: np.float32(3), "the shape []"),
        (lambda x, by: x.astype(np.float64), "elements of float64"),
        (lambda x, by: "text", "elements of <U4"),
        (lambda x, by: [[1], [1, 2]], "which is no array"),
        (lambda x, by: np.ma.masked_array(x, x > 1), "a masked array"),
        (functools.partial(lambda x, by: (x, x)), "the shape [2, 6]"),
    ],
)
def test_a_result_that_does_not_fit_its_declaration_is_refused(function: Callable[..., Any], said: str) -> None:
    assert said in refused(function, "R0319").diagnostics[0].title


def test_another_number_of_results_is_refused() -> None:
    operator = tl.parse(ENDS, externs={"ends": lambda x, z: x}).ends
    with pytest.raises(tl.RunError, match=r"R0319.*returned 1 array, and 2 results are declared: `low`, `high`"):
        operator(X, X)


def test_a_function_that_writes_and_returns_besides_is_refused() -> None:
    operator = tl.parse(SCALE, externs={"scale": tl.python_function(lambda x, by, out: x, out=True)}).scale
    with pytest.raises(tl.RunError, match=r"R0319.*is passed `out`, and returned a ndarray"):
        operator(X)


def test_arrays_that_are_kept_beyond_the_call_are_refused() -> None:
    kept: list[Any] = []

    def keeps(x: Any, by: float) -> Any:
        kept.append(x[1:])
        return scaled(x, by)

    def raises(x: Any, by: float) -> Any:
        raise ValueError(x)

    assert "keeps `a`" in str(refused(keeps, "R0319"))
    assert "it raised ValueError" in str(refused(raises, "R0319"))
    kept.clear()


def test_what_is_raised_holds_no_array_of_the_call() -> None:
    def chained(x: Any, by: float) -> Any:
        try:
            return x[7]
        except IndexError as problem:
            raise ExceptionGroup("several", [problem, ValueError("another")]) from problem

    assert isinstance(refused(chained, "R0318").__cause__, ExceptionGroup)


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (lambda x: x, "C0117", "`<lambda>(x, by=…)`"),
        (lambda x, by, more: x, "C0117", "missing a required argument"),
        (lambda: None, "C0117", "too many positional"),
        (tl.python_function(scaled, out=True), "C0117", "out"),
        (int, "C0113", "is a type, no kernel"),
        ("scaled", "C0113", "a function of Python"),
    ],
)
def test_what_cannot_be_called_so_is_refused_where_it_is_given(given: Any, code: str, said: str) -> None:
    with pytest.raises(tl.CompileError, match=code) as found:
        tl.parse(SCALE, externs={"scale": given})
    assert said in str(found.value) and found.value.diagnostics[0].help


@pytest.mark.parametrize(("function", "options"), [(3, {}), ("f", {}), (scaled, {"out": 1})])
def test_what_is_no_function_is_refused(function: Any, options: Any) -> None:
    with pytest.raises(tl.CompileError, match="C0113"):
        tl.python_function(function, **options)


# ---------------------------------------------------------------- the interpreter, checks and reports


def test_the_interpreter_calls_functions_too() -> None:
    program = around().program(X)
    np.testing.assert_array_equal(interpret(program, {}, {"x": X})["y"], EXPECTED)
    with pytest.raises(tl.RunError, match="R0319"):
        interpret(around(lambda x, by: x[:1]).program(X), {}, {"x": X})


def test_a_function_is_held_against_its_body_and_against_another_function() -> None:
    body = "extern op scale(x: f32[N], z: f32[N] = 0, attr by: float = 2) -> (y: f32[N]) { y[i] = x[i] * by }"

    def scale(x: Any, z: Any, by: float = 2) -> Any:
        return scaled(x, by)

    operator = tl.parse(body, externs={"scale": scale}).scale
    assert tl.check_extern(operator) == 32 and tl.check_extern(operator, against=scale) == 32
    wrong = tl.parse(body, externs={"scale": lambda x, z, by: x + 1}).scale
    with pytest.raises(tl.CompileError, match="C0120"):
        tl.check_extern(wrong)


def test_reports_and_texts_name_the_function() -> None:
    program = around().program(X)
    assert "trusted: extern scale from `scaled` of Python" in around().explain(X)
    assert "# extern: `scaled` of Python" in show(program)
    assert '"kind": "PythonFunction", "name": "scaled"' in show_graph(graph_of(program))


def test_an_operator_is_pickled_with_a_function_that_python_finds_again() -> None:
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(around()))(X), EXPECTED)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(around(lambda x, by: x))


def test_a_library_cannot_hold_a_function(tmp_path: Path) -> None:
    with pytest.raises(tl.CompileError, match="C0131") as found:
        around().save(tmp_path / "lib", {"x": X})
    assert "a function of Python runs in its own process" in str(found.value) and not (tmp_path / "lib").exists()


# ---------------------------------------------------------------- in models


def network(*dims: Any) -> ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "xy")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("around", ["r"], ["z"], domain="mine"),
        helper.make_node("Neg", ["z"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)], ir_version=8)


def operators(function: Callable[..., Any] = scaled) -> tl.Operators:
    return tl.parse(SCALE + AROUND, externs={"scale": function})


@pytest.mark.parametrize("sizes", SIZES)
def test_a_model_calls_functions_for_any_sizes(sizes: Sizes) -> None:
    model = tl.compile(network("n"), operators=operators(), sizes=sizes)
    for count in (1, 2, 5, 0, 33):
        x = np.arange(count, dtype=np.float32) - 2
        positive = np.maximum(x, 0)
        np.testing.assert_array_equal(model.run({"x": x})["y"], -(9 * (positive + 1) ** 2 + positive + 1))
    assert "`scaled` of Python" in model.explain({"x": X})


def test_what_a_function_raises_in_a_model_is_an_error_of_its_run() -> None:
    model = tl.compile(network(6), operators=operators(lambda x, by: x[9]))
    for _ in range(2):
        with pytest.raises(tl.RunError, match=r"R0318.*IndexError") as found:
            model.run({"x": X})
        assert isinstance(found.value.__cause__, IndexError)


def test_a_model_that_calls_functions_is_not_kept_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    for factor in (1, 2):
        model = tl.compile(network(6), operators=operators(lambda x, by, f=factor: x * x.dtype.type(f)))
        np.testing.assert_array_equal(model.run({"x": X})["y"], -((factor * (X + 1)) ** 2 + X + 1))
    assert not list(tmp_path.glob("models/*"))


def test_a_library_of_a_model_that_calls_functions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tl.CompileError, match="C0131") as found:
        tl.build(network(6), tmp_path / "net", operators=operators())
    assert "a function of Python runs in its own process" in str(found.value)


def test_several_threads_run_a_model_that_calls_functions() -> None:
    model = tl.compile(network(6), operators=operators())
    ready = threading.Barrier(4)

    def run(k: int) -> Any:
        ready.wait()
        return [model.run({"x": X + k})["y"].tolist() for _ in range(20)]

    with ThreadPoolExecutor(4) as threads:
        for k, found in enumerate(threads.map(run, range(4))):
            x = X + k
            assert found == [(-(9 * (x + 1) ** 2 + x + 1)).tolist()] * 20
