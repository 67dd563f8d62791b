"""Compiled models compute what the interpreter says, and refuse what they cannot run with."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "graph"))

from small_graphs import add_row, binary, graph, kernel, matmul, softmax, unary
from test_algebra import random, run

from codegen.dtypes import f32
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import CompileError, Diagnostic, RunError
from tensorlang.graph.nodes import Graph, View
from tensorlang.graph.programs import transpose_program
from tensorlang.runtime.model import CompiledModel


def attention(m: int, n: int) -> Graph:
    """softmax(x wᵀ + b) returned, and its product with x."""
    arrays = {"w": random(n, m, seed=1), "b": random(n, seed=2)}
    nodes = [
        kernel(transpose_program(f32, (n, m), (1, 0)), "w", "wt"),
        kernel(matmul(m, n, m), "x wt", "t"),
        kernel(add_row(m, n), "t b", "u"),
        kernel(softmax(m, n), "u", "p"),
        kernel(transpose_program(f32, (m, n), (1, 0)), "p", "pt"),
        kernel(matmul(n, m, m), "pt x", "v"),
        View(f"->{n * m}", "v", "flat"),
        kernel(unary("relu", n * m), "flat", "y"),
    ]
    return graph({"x": (m, m)}, nodes, ["p", "y", "x"], arrays)


def compiled(g: Graph, **options: Any) -> CompiledModel:
    return CompiledModel(lambda shapes: g, toolchain(threads=1), **options)


@pytest.mark.parametrize(("m", "n"), [(4, 8), (17, 33), (1, 1)])
def test_a_model_computes_what_its_graph_says(m: int, n: int) -> None:
    g = attention(m, n)
    x = random(m, m, seed=5)
    got = compiled(g).run({"x": x})
    want = run(g, {"x": x})
    assert list(got) == ["p", "y", "x"]
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5, strict=True)


def test_results_of_one_run_are_not_changed_by_the_next() -> None:
    model = compiled(graph({"x": (8,)}, [kernel(unary("relu", 8), "x", "y")], ["y"]))
    first = model.run({"x": np.full(8, 1, np.float32)})["y"]
    second = model.run({"x": np.full(8, 2, np.float32)})["y"]
    assert first.tolist() == [1] * 8
    assert second.tolist() == [2] * 8


def test_a_prepared_run_reads_and_writes_the_same_arrays_each_time() -> None:
    model = compiled(attention(9, 5))
    x = random(9, 9, seed=1)
    again = model.prepared({"x": x})
    first = again()
    for seed in (2, 3):
        x[:] = random(9, 9, seed=seed)
        want = model.run({"x": x})
        for (name, found), before in zip(again().items(), first.values(), strict=True):
            assert found is before
            np.testing.assert_array_equal(found, want[name])


def test_a_prepared_run_writes_into_arrays_that_are_given() -> None:
    model = compiled(graph({"x": (8,)}, [kernel(unary("relu", 8), "x", "y")], ["y"]))
    place = np.zeros((3, 8), np.float32)
    run = model.prepared({"x": np.full(8, 2, np.float32)}, {"y": place[1]})
    run()
    assert place.tolist() == [[0] * 8, [2] * 8, [0] * 8]


@pytest.mark.parametrize(
    ("feeds", "results", "code"),
    [
        ({"x": np.zeros(16, np.float32)[::2]}, None, "R0307"),
        ({"x": np.zeros(33, np.uint8)[1:].view(np.float32)}, None, "R0307"),
        ({"x": np.zeros(8, ">f4")}, None, "R0307"),
        ({"x": [0.0] * 8}, None, "R0305"),
        ({"x": np.zeros(7, np.float32)}, None, "R0304"),
        ({"x": np.zeros(8)}, None, "R0303"),
        ({}, None, "R0301"),
        ({"x": np.zeros(8, np.float32)}, {}, "R0301"),
        ({"x": np.zeros(8, np.float32)}, {"y": np.zeros(8, np.float32), "z": 0}, "R0302"),
        ({"x": np.zeros(8, np.float32)}, {"y": np.zeros(9, np.float32)}, "R0304"),
        ({"x": np.zeros(8, np.float32)}, {"y": np.broadcast_to(np.float32(0), 8)}, "R0307"),
        ({"x": np.zeros(8, np.float32)}, {"y": np.frombuffer(bytes(32), np.float32)}, "R0307"),
    ],
)
def test_arrays_of_a_prepared_run_have_to_be_used_where_they_lie(feeds: Any, results: Any, code: str) -> None:
    model = compiled(graph({"x": (8,)}, [kernel(unary("relu", 8), "x", "y")], ["y"]))
    with pytest.raises(RunError) as refused:
        model.prepared(feeds, results)
    assert [d.code for d in refused.value.diagnostics] == [code]


def test_a_prepared_run_outlives_its_model() -> None:
    run = compiled(graph({"x": (8,)}, [kernel(unary("relu", 8), "x", "y")], ["y"])).prepared({"x": np.full(8, 2, np.float32)})
    gc.collect()
    assert run()["y"].tolist() == [2] * 8


def test_a_prepared_run_does_not_write_over_what_it_reads() -> None:
    model = compiled(graph({"x": (8,)}, [kernel(unary("relu", 8), "x", "y"), kernel(unary("relu", 8), "x", "z")], ["y", "z"]))
    x, both = np.zeros(8, np.float32), np.zeros(12, np.float32)
    for results in ({"y": x, "z": both[:8]}, {"y": both[:8], "z": both[4:]}):
        with pytest.raises(RunError, match=r"R0307.*shares memory"):
            model.prepared({"x": x}, results)


def test_memory_in_any_order_will_do() -> None:
    g = graph({"x": (6, 4)}, [kernel(unary("relu", 6, 4), "x", "y")], ["y"])
    model, x = compiled(g), random(4, 6).T
    np.testing.assert_array_equal(model.run({"x": x})["y"], np.maximum(x, 0))
    wide = random(12, 8)[::2, ::-2]
    np.testing.assert_array_equal(model.run({"x": wide})["y"], np.maximum(wide, 0))


def test_runs_from_several_threads_do_not_mix() -> None:
    model = compiled(attention(9, 5))
    feeds = [{"x": random(9, 9, seed=k)} for k in range(4)]
    want = [model.run(feed) for feed in feeds]
    wrong: list[int] = []

    def repeat(k: int) -> None:
        for _ in range(20):
            got = model.run(feeds[k])
            if not all(np.array_equal(got[name], want[k][name]) for name in got):
                wrong.append(k)

    workers = [Thread(target=repeat, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("feeds", "codes"),
    [
        ({}, ["R0301", "R0301"]),
        ({"x": X, "y": X, "z": X}, ["R0302"]),
        ({"x": X.astype(np.float64), "y": X}, ["R0303"]),
        ({"x": X.T, "y": X}, ["R0304"]),
        ({"x": "text", "y": X}, ["R0305"]),
        ({"x": [[1, 2], [3]], "y": X}, ["R0305"]),
        ({"X": X, "y": X.T}, ["R0302", "R0304"]),
    ],
)
def test_feeds_that_do_not_fit_are_refused_all_at_once(feeds: dict[str, Any], codes: list[str]) -> None:
    model = compiled(graph({"x": (2, 3), "y": (2, 3)}, [kernel(binary("+", 2, 3), "x y", "z")], ["z"]))
    with pytest.raises(RunError) as refused:
        model.run(feeds)
    assert [d.code for d in refused.value.diagnostics] == codes


def test_a_misspelt_input_is_named() -> None:
    model = compiled(graph({"image": (2,)}, [kernel(unary("relu", 2), "image", "z")], ["z"]))
    with pytest.raises(RunError, match="did you mean `image`"):
        model.run({"imag": np.zeros(2, np.float32)})


def test_open_shapes_are_compiled_for_what_comes_once_each() -> None:
    asked: list[Any] = []

    def load(shapes: Any) -> Graph:
        asked.append(shapes)
        if shapes is None:
            raise CompileError(Diagnostic("O011", "input `x` leaves a dimension open"))
        return graph(shapes, [kernel(unary("relu", *shapes["x"]), "x", "y")], ["y"])

    model = CompiledModel(load, toolchain(threads=1))
    for n in (3, 5, 3):
        x = random(n)
        np.testing.assert_array_equal(model.run({"x": x})["y"], np.maximum(x, 0))
    assert asked == [None, {"x": (3,)}, {"x": (5,)}]


def test_equal_kernels_are_compiled_once_and_explained_one_by_one() -> None:
    nodes = [kernel(matmul(4, 4, 4), "x w", "a"), kernel(matmul(4, 4, 4), "a v", "b"), kernel(matmul(4, 4, 4), "b w", "y")]
    model = compiled(graph({"x": (4, 4), "w": (4, 4), "v": (4, 4)}, nodes, ["y"]))
    text = model.explain({name: random(4, 4) for name in "xwv"})
    assert "3 kernels (1 distinct)" in text
    assert text.startswith("limits ")
    assert len(text.splitlines()) == 4 + 14 + 6, "what limits each, and a table of them"


def test_a_profile_has_the_time_and_the_work_of_each_kernel() -> None:
    nodes = [kernel(matmul(4, 6, 5), "x w", "a"), kernel(unary("relu", 4, 6), "a", "y")]
    model = compiled(graph({"x": (4, 5), "w": (5, 6)}, nodes, ["y"]))
    found = model.profile({"x": random(4, 5), "w": random(5, 6)})
    assert [t.result.shape for t in found] == [(4, 6)] * len(found)
    assert all(t.seconds > 0 for t in found)
    assert sum(t.work.flops for t in found) == 4 * 6 * 5 * 2 + 4 * 6
