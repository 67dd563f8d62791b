"""Operands of contractions in bf16: which values are kept so, and how far results are from those of exact arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from small_graphs import add_row, binary, conv1x1, graph, kernel, matmul, softmax, unary
from test_algebra import random, run

from codegen.dtypes import bf16, f32
from tensorlang.graph.nodes import Graph, Kernel, View
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.precision.narrow_storage import narrow_storage
from tensorlang.graph.passes.precision.products import products
from tensorlang.graph.verify import verify
from tensorlang.tensor.verify import verify as verify_program


def two_layers() -> Graph:
    nodes = [
        kernel(matmul(4, 16, 8), "x w", "t"),
        kernel(add_row(4, 16), "t b", "u"),
        kernel(unary("relu", 4, 16), "u", "h"),
        kernel(matmul(4, 5, 16), "h v", "z"),
        kernel(softmax(4, 5), "z", "y"),
    ]
    arrays = {"w": random(8, 16, seed=1), "b": random(16, seed=2), "v": random(16, 5, seed=3)}
    return graph({"x": (4, 8)}, nodes, ["y"], arrays)


def done(g: Graph) -> Graph:
    made = verify(narrow_storage(fuse(g)))
    for node in made.nodes:
        if isinstance(node, Kernel):
            verify_program(node.program)
    return made


def test_operands_are_kept_in_bf16_and_everything_else_in_f32() -> None:
    made = done(two_layers())
    dtypes = {name: value.dtype for name, value in made.values.items()}
    assert dtypes["x"] == dtypes["b"] == dtypes["y"] == dtypes["z"] == f32
    assert dtypes["h"] == dtypes["x in bf16"] == dtypes["w in bf16"] == dtypes["v in bf16"] == bf16
    assert "w" not in made.constants and made.constants["w in bf16"].dtype == bf16.numpy


def test_results_are_those_of_rounded_operands() -> None:
    g, x = two_layers(), random(4, 8)
    [got] = run(done(g), {"x": x}).values()
    [want] = run(g, {"x": x}).values()
    assert 0 < np.abs(got - want).max() < 0.02
    a = g.constants

    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(bf16.numpy).astype(np.float64)

    h = np.maximum(rounded(x) @ rounded(a["w"]) + a["b"], 0)
    z = rounded(h.astype(np.float32)) @ rounded(a["v"])
    exact = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(got, exact / exact.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_inputs_and_outputs_of_the_graph_stay_f32() -> None:
    g = graph(
        {"x": (4, 8), "w": (8, 8), "v": (8, 8)}, [kernel(matmul(4, 8, 8), "x w", "t"), kernel(matmul(4, 8, 8), "t v", "y")], ["t", "y"]
    )
    made = done(g)
    assert {made.values[v].dtype for v in (*made.inputs, *made.outputs)} == {f32}
    assert made.values["x in bf16"].dtype == made.values["t in bf16"].dtype == bf16


def test_a_view_of_an_input_is_multiplied_as_a_copy() -> None:
    nodes = [View("->4x8", "x", "s"), kernel(matmul(4, 8, 8), "s w", "y")]
    made = done(graph({"x": (2, 2, 8)}, nodes, ["y"], {"w": random(8, 8)}))
    assert made.values["x"].dtype == f32 and made.values["s in bf16"].dtype == bf16
    [multiplies] = (n for n in made.nodes if isinstance(n, Kernel) and n.outputs == ("y",))
    assert multiplies.inputs == ("s in bf16", "w in bf16")


def test_values_that_views_share_memory_with_are_kept_alike() -> None:
    nodes = [
        kernel(matmul(4, 8, 8), "x w", "t"),
        View("->4x8", "t", "s"),
        kernel(matmul(4, 8, 8), "s v", "y"),
    ]
    g = graph({"x": (4, 8)}, nodes, ["y"], {"w": random(8, 8), "v": random(8, 8, seed=1)})
    made = verify(narrow_storage(g))
    assert made.values["t"].dtype == made.values["s"].dtype == bf16


def test_contractions_of_few_elements_are_left_alone() -> None:
    g = graph({"x": (4, 6)}, [kernel(matmul(4, 8, 6), "x w", "y")], ["y"], {"w": random(6, 8)})
    assert all(v.dtype == f32 for v in narrow_storage(g).values.values())
    assert not products(binary("+", 4, 4))


def test_a_strict_kernel_keeps_its_precision() -> None:
    program = replace(matmul(4, 8, 8), mode="strict")
    g = graph({"x": (4, 8)}, [kernel(program, "x w", "y")], ["y"], {"w": random(8, 8)})
    assert all(v.dtype == f32 for v in narrow_storage(g).values.values())


def test_convolutions_keep_their_channels_in_bf16() -> None:
    program = conv1x1(1, 16, 8, 4)
    assert [p.refusal for p in products(program)] == [""]
