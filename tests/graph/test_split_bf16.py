"""Products of f32 as sums of products of bf16 parts: what is rewritten, what the parts are, how far results are off."""

from __future__ import annotations

from dataclasses import replace
from math import ldexp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import Array, conv1x1, graph, kernel, matmul, run
from test_algebra import random
from test_narrow_storage import two_layers

from codegen.dtypes import bf16, f32
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.precision.explain import product_precisions
from tensorlang.graph.passes.precision.narrow_storage import with_narrow
from tensorlang.graph.passes.precision.split_bf16 import TERMS, parts, parts_program, split_bf16
from tensorlang.graph.precisions import PARTS, Precision
from tensorlang.graph.sizes import Symbols
from tensorlang.graph.verify import verify
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.verify import verify as verify_program

EXACT = st.floats(-(2.0**60), 2.0**60, width=32).filter(lambda v: v == 0 or abs(v) > ldexp(1, -60))


def done(g: Graph, products: int, least: int = 1) -> Graph:
    made = verify(split_bf16(g, products, least))
    for node in made.nodes:
        if isinstance(node, Kernel):
            verify_program(node.program)
    return made


def one(program: Program, *shapes: tuple[int, ...]) -> Graph:
    names = [p.name for p in program.params]
    return graph(dict(zip(names, shapes, strict=True)), [kernel(program, " ".join(names), "y")], ["y"])


def off(products: int, a: Array, b: Array) -> tuple[float, float]:
    """Return how far a matrix product is off, of parts and of f32, relative to the largest result."""
    g = one(matmul(len(a), b.shape[1], len(b)), a.shape, b.shape)
    want = a.astype(np.float64) @ b.astype(np.float64)
    found = [run(made, {"a": a, "b": b})["y"] for made in (done(g, products), g)]
    first, second = (float(np.abs(y - want).max() / np.abs(want).max()) for y in found)
    return first, second


def test_what_a_model_keeps_in_bf16_itself_is_not_told_as_products_of_parts() -> None:
    assert product_precisions(with_narrow(matmul(16, 16, 16), frozenset({"a", "b"})), Precision("bf16x3", "bf16x3")) == ()


def test_a_product_becomes_one_of_three_or_six_times_as_many_elements() -> None:
    for products in TERMS:
        made = done(fuse(two_layers()), products)
        shapes = {name: (value.dtype, value.shape) for name, value in made.values.items()}
        assert shapes["x in parts"] == (bf16, (4, 8 * products)) and shapes["w in parts"] == (bf16, (8 * products, 16))
        assert made.constants["w in parts"].dtype == bf16.numpy and "w" not in made.constants
        assert shapes["h"] == (f32, (4, 16)) and shapes["h in parts"] == (bf16, (4, 16 * products))


@pytest.mark.parametrize(("products", "bound"), [(3, 1e-4), (6, 1e-6)])
def test_results_are_those_of_f32_within_the_stated_error(products: int, bound: float) -> None:
    g, x = fuse(two_layers()), random(4, 8)
    [got], [want] = (run(made, {"x": x}).values() for made in (done(g, products), g))
    assert np.abs(got - want).max() <= bound


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["normal", "positive", "wide"])
def test_six_products_are_off_no_more_than_twice_as_far_as_f32_and_three_no_more_than_a_ten_thousandth(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((9, 256)), rng.standard_normal((256, 11))
    if kind == "positive":
        a, b = np.abs(a), np.abs(b)
    if kind == "wide":
        a, b = (v * np.exp(rng.uniform(-8, 8, v.shape)) for v in (a, b))
    a, b = a.astype(np.float32), b.astype(np.float32)
    six, plain = off(6, a, b)
    assert six <= 2 * plain
    assert off(3, a, b)[0] <= 1e-4


@given(st.lists(EXACT, min_size=1, max_size=8))
def test_three_parts_are_the_number_and_two_are_off_by_at_most_the_last_bit_of_seventeen(numbers: list[float]) -> None:
    x = np.array(numbers, np.float32)
    first, second, third = np.split(parts(x, 0, (0, 1, 2)).astype(np.float64), 3)
    np.testing.assert_array_equal(first + second + third, x)
    assert (np.abs(first + second - x) <= ldexp(1, -17) * np.abs(x)).all()


@pytest.mark.parametrize("which", [(1, 0, 0), (0, 1, 0), (2, 1, 0, 1, 0, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_made_by_a_kernel_are_those_of_constants(which: tuple[int, ...], axis: int) -> None:
    x = random(6, 4) * np.float32(1e3)
    program = verify_program(parts_program(Value("x", f32, x.shape), axis, which))
    got = interpret(program, {}, {"x": x})["y"]
    np.testing.assert_array_equal(got.astype(np.float32), parts(x, axis, which).astype(np.float32))


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_a_value_of_any_length_are_made_by_one_program(axis: int) -> None:
    length, which = Symbols({"n": 3}).symbol("n"), (1, 0, 0)
    program = parts_program(Value("x", f32, (length, 2)), axis, which)
    assert program.sizes == ("n",)
    for n in (0, 1, 5):
        x = random(n, 2)
        np.testing.assert_array_equal(interpret(program, {"n": n}, {"x": x})["y"], parts(x, axis, which))


def test_the_smallest_products_are_added_first() -> None:
    assert {f"bf16x{n}": n for n in TERMS} == PARTS
    for count, terms in TERMS.items():
        assert len(set(terms)) == count
        assert [a + b for a, b in terms] == sorted((a + b for a, b in terms), reverse=True)
        assert set(terms) == {(a, b) for a in range(3) for b in range(3) if a + b <= max(terms[0])}


def test_parts_of_a_value_are_made_once_for_all_that_read_them() -> None:
    nodes = [kernel(matmul(4, 8, 8), "x w", "t"), kernel(matmul(4, 8, 8), "x v", "u")]
    made = done(graph({"x": (4, 8)}, nodes, ["t", "u"], {"w": random(8, 8), "v": random(8, 8, seed=1)}), 3)
    assert [k.name for k in made.nodes if isinstance(k, Kernel)].count("split x") == 1


@pytest.mark.parametrize(
    ("program", "least", "why"),
    [
        (matmul(4, 8, 6), 1, "6 products along `k` are no pairs that are worth it"),
        (matmul(4, 8, 9), 1, "9 products along `k` are no pairs that are worth it"),
        (matmul(1, 64, 64), 16, "1 x 64 sums fill no tile of 16 x 16"),
        (replace(matmul(4, 8, 8), mode="strict"), 1, "the operator is strict"),
    ],
)
def test_what_stays_f32_has_a_reason(program: Program, least: int, why: str) -> None:
    a, b = (tuple(int(n.value) for n in p.shape) for p in program.params)  # type: ignore[union-attr]
    g = one(program, a, b)
    assert done(g, 3, least).nodes == g.nodes
    assert product_precisions(program, Precision("bf16x3", "bf16x3", least=least)) == (f"products of `a` and `b` stay f32: {why}",)


def test_what_was_taken_is_told() -> None:
    [*_, node] = done(one(matmul(4, 8, 8), (4, 8), (8, 8)), 6).nodes
    assert isinstance(node, Kernel)
    assert product_precisions(node.program, Precision("bf16x6", "bf16x6")) == ("products of `a_parts` and `b_parts` are bf16x6",)


def test_convolutions_are_made_of_parts_along_their_channels() -> None:
    g = one(conv1x1(1, 16, 8, 4), (1, 16, 4), (8, 16), (8,))
    assert done(g, 3).values["x in parts"].shape == (1, 48, 4)


def test_an_infinity_makes_the_sums_that_it_is_part_of_nan_and_no_others() -> None:
    a, b = np.abs(random(3, 8)), np.abs(random(8, 2, seed=1))
    a[1, 2] = np.inf
    got = run(done(one(matmul(3, 2, 8), a.shape, b.shape), 3), {"a": a, "b": b})["y"]
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()
