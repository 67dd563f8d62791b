"""Passes that know algebra keep what a graph computes; the interpreter is the judge."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from small_graphs import at, conv1x1, graph, kernel, matmul, run, single, tensor, unary

from codegen.dtypes import DType, f16, f32, f64, i8, u8
from polyhedral.expr import Int
from tensorlang.graph.nodes import Graph, Kernel, Value, View
from tensorlang.graph.passes.algebra.fold_scales import fold_scales
from tensorlang.graph.passes.algebra.identities import identities, lossless
from tensorlang.graph.passes.algebra.inline_constants import inline_constants
from tensorlang.graph.passes.clean.dce import dce
from tensorlang.graph.passes.clean.fold import fold
from tensorlang.graph.programs import channel_program, copy_program, transpose_program
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Expr, Tensor

Array = np.ndarray[Any, Any]


def settle(g: Graph) -> Graph:
    for _ in range(4):
        g = verify(dce(identities(g)))
    return g


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_what_depends_on_constants_alone_is_computed() -> None:
    w = random(3, 4)
    nodes = [
        kernel(transpose_program(f32, (3, 4), (1, 0)), "w", "a"),
        View("->12", "a", "b"),
        kernel(unary("exp", 12), "b", "c"),
        kernel(unary("tanh", 12), "x", "y"),
    ]
    g = verify(fold(graph({"x": (12,)}, nodes, ["c", "y"], {"w": w})))
    assert [n.name for n in g.nodes] == ["tanh y"]
    np.testing.assert_allclose(g.constants["c"], np.exp(w.T.reshape(-1)), rtol=1e-6)


def test_a_constant_that_would_only_grow_is_not_computed() -> None:
    wide = single("expand", [tensor("x")], tensor("y", 1000, 1000), "ij", at("x"))
    g = fold(graph({}, [kernel(wide, "w", "y")], ["y"], {"w": np.zeros((), np.float32)}))
    assert [n.name for n in g.nodes] == ["expand y"]


@pytest.mark.parametrize(("times", "is_folded"), [(3, True), (5, False)])
def test_constants_that_grow_a_little_are_computed_now(times: int, is_folded: bool) -> None:
    """Filters in whole classes of a stride are, so that they are laid out once for the product that reads them."""
    n = 40_000
    repeated = single("repeat", [tensor("w", n)], tensor("y", times, n), "ki", at("w", "i"))
    g = fold(graph({}, [kernel(repeated, "w", "y")], ["y"], {"w": np.zeros(n, np.float32)}))
    assert ("y" in g.constants) == is_folded


def test_transposes_cancel_and_views_merge() -> None:
    nodes = [
        kernel(transpose_program(f32, (2, 3, 4), (2, 0, 1)), "x", "a"),
        kernel(transpose_program(f32, (4, 2, 3), (1, 2, 0)), "a", "b"),
        View("->6x4", "b", "c"),
        View("->24", "c", "d"),
        kernel(copy_program(f32, (24,)), "d", "e"),
        kernel(unary("exp", 24), "e", "y"),
    ]
    g = graph({"x": (2, 3, 4)}, nodes, ["y"])
    done = settle(g)
    assert [type(n).__name__ for n in done.nodes] == ["View", "Kernel"]
    x = random(2, 3, 4)
    np.testing.assert_array_equal(run(done, {"x": x})["y"], run(g, {"x": x})["y"])


def test_two_transposes_are_one() -> None:
    nodes = [
        kernel(transpose_program(f32, (2, 3, 4), (2, 0, 1)), "x", "a"),
        kernel(transpose_program(f32, (4, 2, 3), (0, 2, 1)), "a", "y"),
    ]
    g = graph({"x": (2, 3, 4)}, nodes, ["y"])
    done = settle(g)
    assert len(done.nodes) == 1
    x = random(2, 3, 4)
    np.testing.assert_array_equal(run(done, {"x": x})["y"], x.transpose(2, 0, 1).transpose(0, 2, 1))


def test_a_transpose_of_axes_of_one_element_is_a_view() -> None:
    g = settle(graph({"x": (1, 5, 1)}, [kernel(transpose_program(f32, (1, 5, 1), (2, 0, 1)), "x", "y")], ["y"]))
    assert [type(n).__name__ for n in g.nodes] == ["View"]


def cast_kernel(source: DType, target: DType, name: str, to: str) -> tuple[Kernel, Value]:
    program = single("cast", [Tensor("x", source, (Int(4),))], Tensor("y", target, (Int(4),)), "i", Cast(target, at("x", "i")))
    return kernel(program, name, to), Value(to, target, (4,))


@pytest.mark.parametrize(
    ("chain", "left"),
    [((f32, f64, f32), 0), ((f16, f32, f64), 1), ((f32, f16, f32), 2), ((i8, f32, u8), 2), ((u8, f32, f64), 1)],
    ids=["there and back", "two widenings", "a rounding stays", "a saturation stays", "exact in between"],
)
def test_casts_are_merged_where_the_first_loses_nothing(chain: tuple[DType, ...], left: int) -> None:
    nodes, values = [], {"v0": Value("v0", chain[0], (4,))}
    for k, (a, b) in enumerate(pairwise(chain)):
        node, value = cast_kernel(a, b, f"v{k}", f"v{k + 1}")
        nodes.append(node)
        values[value.name] = value
    done = settle(Graph("g", ("v0",), ("v2",), values, {}, tuple(nodes)))
    kernels = [n for n in done.nodes if isinstance(n, Kernel)]
    assert len(kernels) == left


def test_lossless_is_about_values() -> None:
    assert lossless(i8, f16) and lossless(u8, f32)
    assert not lossless(f32, f16) and not lossless(i8, u8)


def batch_norm(n: int, f: int, w: int) -> Any:
    x, stats = tensor("x", n, f, w), [tensor(name, f) for name in ("mean", "var", "gamma", "beta")]
    inner: Expr = Binary("-", at("x", "n", "f", "p"), at("mean", "f"))
    inner = Binary("/", Binary("*", inner, at("gamma", "f")), Call("sqrt", (Binary("+", at("var", "f"), Const(1e-5, f32)),)))
    return single("batch_norm", [x, *stats], tensor("y", n, f, w), "nfp", Binary("+", inner, at("beta", "f")))


def test_batch_normalisation_disappears_in_the_convolution_before_it() -> None:
    arrays = {name: random(5, seed=k) for k, name in enumerate(("mean", "gamma", "beta", "b"))}
    arrays |= {"var": np.abs(random(5, seed=9)) + 0.5, "w": random(5, 3, seed=7)}
    nodes = [kernel(conv1x1(2, 3, 5, 4), "x w b", "t"), kernel(batch_norm(2, 5, 4), "t mean var gamma beta", "y")]
    g = graph({"x": (2, 3, 4)}, nodes, ["y"], arrays)
    done = verify(fold_scales(g))
    assert [n.name for n in done.nodes] == ["conv t"]
    assert done.nodes[0].members == ("conv t", "batch_norm y")
    x = random(2, 3, 4, seed=3)
    np.testing.assert_allclose(run(done, {"x": x})["y"], run(g, {"x": x})["y"], rtol=1e-5, atol=1e-5)


def test_without_a_bias_the_offset_stays_an_addition() -> None:
    arrays = {name: random(5, seed=k) for k, name in enumerate(("mean", "gamma"))}
    arrays["w"] = random(3, 5, seed=7)
    inner: Expr = Binary("*", Binary("-", at("x", "n", "f"), at("mean", "f")), at("gamma", "f"))
    program = single("bn", [tensor("x", 2, 5), tensor("mean", 5), tensor("gamma", 5)], tensor("y", 2, 5), "nf", inner)
    nodes = [kernel(matmul(2, 5, 3), "x w", "t"), kernel(program, "t mean gamma", "y")]
    g = graph({"x": (2, 3)}, nodes, ["y"], arrays)
    done = verify(fold_scales(g))
    assert [n.program.name for n in done.nodes if isinstance(n, Kernel)] == ["matmul", "channel_add"]
    x = random(2, 3, seed=3)
    np.testing.assert_allclose(run(done, {"x": x})["y"], run(g, {"x": x})["y"], rtol=1e-5, atol=1e-5)
    assert fold_scales(done).nodes == done.nodes


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(lambda x: Binary("*", x, x), id="a square"),
        pytest.param(lambda x: Binary("/", at("g", "f"), x), id="a reciprocal"),
        pytest.param(lambda x: Binary("*", x, at("g", "n")), id="a scale along another dimension"),
    ],
)
def test_what_is_no_scale_of_the_channel_stays(second: Any) -> None:
    program = single("other", [tensor("x", 5, 5), tensor("g", 5)], tensor("y", 5, 5), "nf", second(at("x", "n", "f")))
    nodes = [kernel(matmul(5, 5, 3), "x w", "t"), kernel(program, "t g", "y")]
    g = graph({"x": (5, 3)}, nodes, ["y"], {"w": random(3, 5), "g": random(5)})
    assert fold_scales(g).nodes == g.nodes


def test_a_value_that_is_also_returned_is_not_scaled() -> None:
    nodes = [kernel(matmul(2, 5, 3), "x w", "t"), kernel(channel_program("*", f32, (2, 5), 1), "t g", "y")]
    g = graph({"x": (2, 3)}, nodes, ["t", "y"], {"w": random(3, 5), "g": random(5)})
    assert fold_scales(g).nodes == g.nodes


def test_strict_programs_are_not_regrouped() -> None:
    strict = replace(matmul(2, 5, 3), mode="strict")
    nodes = [kernel(strict, "x w", "t"), kernel(channel_program("*", f32, (2, 5), 1), "t g", "y")]
    g = graph({"x": (2, 3)}, nodes, ["y"], {"w": random(3, 5), "g": random(5)})
    assert fold_scales(g).nodes == g.nodes


@pytest.mark.parametrize(("mode", "value", "op"), [("reduce", 1.4142135, "*"), ("strict", 1.4142135, "/"), ("reduce", 1e-40, "/")])
def test_a_division_by_a_number_is_a_multiplication_unless_strict_or_out_of_range(mode: Any, value: float, op: str) -> None:
    divided = single("op", [tensor("x", 3), tensor("c", 1)], tensor("y", 3), "i", Binary("/", at("x", "i"), at("c", 0)))
    g = graph({"x": (3,)}, [kernel(replace(divided, mode=mode), "x c", "y")], ["y"], {"c": np.array([value], np.float32)})
    [node] = settle(inline_constants(g)).nodes
    assert isinstance(node, Kernel)
    quotient = node.program.definitions[0].pieces[0].value
    assert isinstance(quotient, Binary) and quotient.op == op
    x = np.array([0.0, 1.5, -np.inf], np.float32)
    np.testing.assert_allclose(run(settle(inline_constants(g)), {"x": x})["y"], run(g, {"x": x})["y"], rtol=2.0**-23)


@pytest.mark.parametrize(
    ("op", "value", "gone"),
    [("*", 1.0, True), ("/", 1.0, True), ("-", 0.0, True), ("+", -0.0, True), ("+", 0.0, False), ("-", -0.0, False), ("*", 2.0, False)],
)
def test_a_constant_of_one_value_becomes_a_literal_and_goes_where_no_bit_changes(op: Any, value: float, gone: bool) -> None:
    nodes = [kernel(single("op", [tensor("x", 3), tensor("c", 1)], tensor("y", 3), "i", Binary(op, at("x", "i"), at("c", 0))), "x c", "y")]
    g = graph({"x": (3,)}, nodes, ["y"], {"c": np.array([value], np.float32)})
    done = settle(inline_constants(g))
    assert done.constants == {}
    assert [n for n in done.nodes if isinstance(n, Kernel)] == [] if gone else len(done.nodes) == 1
    x = np.array([-0.0, 0.0, np.nan], np.float32)
    if not gone:
        np.testing.assert_array_equal(np.signbit(run(done, {"x": x})["y"]), np.signbit(run(g, {"x": x})["y"]))
