"""Minimal filtering: its matrices compute what they should, and convolutions rewritten by them are the same sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang as tl
from codegen.dtypes import f64
from polyhedral.expr import Int
from tensorlang.tensor.combine import combined
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Definition, Name, Piece, Program, Read, Tensor
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.toom_cook import filtering, is_filtering
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import fresh_for
from tensorlang.tensor.winograd import by_filtering, convolution, filtered_weights, scales

CONV = """
op conv[T: float](x: T[N, (group, C), H..], w: T[(group, F), C, R..], b: T[(group, F)], attr group: int = 1,
                  attr stride..: int = 1, attr dilation..: int = 1, attr lo..: int = 0, attr hi..: int = 0)
    -> (y: T[N, (group, F), ((H + lo + hi - dilation * (R - 1) - 1) // stride + 1)..]) {
    y[n, (g, f), p..] = max(0, b[(g, f)] + sum(c, r..) x[n, (g, c), (p*stride + r*dilation - lo).. | 0] * w[(g, f), c, r..])
}
"""


def arrays(x: tuple[int, ...], filters: int, *taps: int, group: int = 1, dtype: Any = np.float64) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(sum(x))
    return [rng.standard_normal(s).astype(dtype) for s in (x, (filters, x[1] // group, *taps), (filters,))]


def conv(given: list[np.ndarray[Any, Any]], mode: Any = "reduce", **attrs: Any) -> Program:
    return tl.parse(CONV, mode=mode).conv.program(*given, **attrs)


@given(outputs=st.integers(1, 6), taps=st.integers(1, 5))
def test_the_matrices_of_an_algorithm_compute_a_filter_exactly(outputs: int, taps: int) -> None:
    if outputs + taps <= 9:
        made = filtering(outputs, taps)
        assert is_filtering(made)
        assert all(x.denominator <= 4 ** max(0, made.products - 6) for row in made.input for x in row)


def test_the_usual_algorithm_has_the_usual_numbers() -> None:
    made = filtering(4, 3)
    assert [[int(x) for x in row] for row in made.input] == [
        [4, 0, -5, 0, 1, 0],
        [0, 4, 4, -1, -1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, 2, 1, -2, -1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
    assert [str(x) for x in made.kernel[3]] == ["-1/24", "-1/12", "-1/6"]


@pytest.mark.parametrize(("outputs", "taps", "powers"), [(2, 3, (-2, 4)), (4, 3, (-7, 10)), (2, 5, (-7, 10))])
def test_scales_keep_inputs_and_results_in_their_range(outputs: int, taps: int, powers: tuple[int, int]) -> None:
    f = filtering(outputs, taps)
    before, after = scales((f, f))
    assert (before, after) == tuple(Fraction(2) ** power for power in powers)
    inside, weights, outside = (np.abs(np.array(m, np.float64)) for m in (f.input, f.kernel, f.output))
    assert before * inside.sum(axis=1).max() ** 2 <= 1
    assert (outside @ (inside.sum(axis=1) * weights.max(axis=1))).max() ** 2 <= after


numbers = st.sampled_from([Fraction(n, d) for n in (-4, -1, 0, 0, 1, 1, 2, 5) for d in (1, 2)])


@given(matrix=st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=1, max_size=5)))
@settings(max_examples=60)
def test_sums_that_share_parts_are_the_product_of_matrix_and_vector(matrix: list[list[Fraction]]) -> None:
    n = len(matrix[0])
    x = Tensor("x", f64, (Int(n),))
    rows = combined(matrix, [Read("x", (Int(k),)) for k in range(n)], f64)
    definitions = tuple(Definition((Tensor(f"y{k}", f64, ()),), (), (Piece(row),)) for k, row in enumerate(rows))
    program = Program("product", (), (x,), tuple(f"y{k}" for k in range(len(rows))), definitions)
    values = np.arange(1.0, n + 1) ** 3
    found = interpret(program, {}, {"x": values})
    for k, row in enumerate(matrix):
        assert float(found[f"y{k}"]) == float(sum(a * Fraction(b) for a, b in zip(row, values, strict=True)))


@pytest.mark.parametrize(
    ("x", "filters", "taps", "outputs", "attrs"),
    [
        ((1, 3, 7, 6), 2, (3, 3), (4, 4), {"lo": (1, 1), "hi": (1, 1)}),
        ((2, 3, 8, 8), 2, (3, 3), (4, 2), {}),
        ((1, 4, 5, 9), 6, (3, 3), (2, 4), {"group": 2, "lo": (2, 0), "hi": (0, 1)}),
        ((1, 2, 9, 8), 3, (5, 5), (2, 2), {"lo": (2, 2), "hi": (2, 2)}),
        ((1, 2, 6, 7), 3, (2, 3), (3, 4), {"lo": (1, 1), "hi": (0, 1)}),
        ((2, 3, 11), 4, (3,), (4,), {"lo": (1,), "hi": (1,)}),
    ],
    ids=["padded", "whole tiles", "groups", "5 x 5", "other taps along each axis", "one axis"],
)
def test_a_rewritten_convolution_is_the_same_sum(x: Any, filters: int, taps: Any, outputs: Any, attrs: dict[str, Any]) -> None:
    given_ = arrays(x, filters, *taps, group=attrs.get("group", 1))
    attrs = {"stride": (1,) * len(taps), "dilation": (1,) * len(taps), "lo": (0,) * len(taps), "hi": (0,) * len(taps), **attrs}
    program = conv(given_, **attrs)
    found = convolution(program)
    assert found is not None
    after = verify(by_filtering(found, outputs))
    prove(after)
    names = dict(zip(("x", "w", "b"), given_, strict=True))
    before = interpret(program, {}, names)["y"]
    now = interpret(after, {}, {**names, "w": filtered_weights(found, outputs, given_[1])})["y"]
    np.testing.assert_allclose(now, before, rtol=1e-11, atol=1e-11)


def test_one_rewritten_equation_can_be_read() -> None:
    given_ = arrays((1, 1, 4), 1, 3)
    found = convolution(conv(given_, stride=(1,), dilation=(1,), lo=(1,), hi=(1,)))
    assert found is not None
    lines = [line.strip().replace("`", "") for line in show(by_filtering(found, (2,))).splitlines()]
    assert any("x.tiles[n, g, a, i, c_1] = let v0 = 0.5 * (if 2*i - 1 >= 0" in line for line in lines)
    assert any("(if a == 0 then v0 - v2 else (if a == 1 then v1 + v2 else (if a == 2 then v1 - v2 else v1 - v3))" in line for line in lines)
    assert any("max(0.0, b[(g, f)] + 4.0 * (let v0_1 = tiles" in line for line in lines)
    assert any("= sum(c_2 in 0..1) x.tiles[n, g, a, i, c_2] * w[(g, f), c_2, a]" in line for line in lines)


@pytest.mark.parametrize(
    ("mode", "attrs"),
    [
        ("strict", {"stride": (1, 1), "dilation": (1, 1)}),
        ("reduce", {"stride": (2, 2), "dilation": (1, 1)}),
        ("reduce", {"stride": (1, 1), "dilation": (2, 2)}),
    ],
)
def test_strict_programs_strides_and_dilations_are_left_alone(mode: str, attrs: dict[str, Any]) -> None:
    program = conv(arrays((1, 2, 9, 9), 3, 3, 3), mode, lo=(1, 1), hi=(1, 1), **attrs)
    assert convolution(program) is None


def test_other_reductions_are_no_convolutions() -> None:
    x = np.zeros((4, 6))
    for text in (
        "op a(x: f64[N, M]) -> (y: f64[N]) { y[i] = sum(j) x[i, j] * x[i, j] }",
        "op a(x: f64[N, M]) -> (y: f64[N, N]) { y[i, j] = sum(k) x[i, k] * x[j, k] }",
        "op a(x: f64[N, M]) -> (y: f64[N, M - 2]) { y[i, j] = max(k in 0..3) x[i, j + k] }",
    ):
        assert convolution(tl.parse(text)["a"].program(x)) is None


def test_names_in_rewritten_programs_are_their_own() -> None:
    found = convolution(conv(arrays((1, 2, 8, 8), 3, 3, 3), stride=(1, 1), dilation=(1, 1), lo=(1, 1), hi=(1, 1)))
    assert found is not None
    again = by_filtering(found, (4, 4))
    assert len({t.name for d in again.definitions for t in d.tensors} | {p.name for p in again.params}) == 8
    assert fresh_for(again)("y") != "y"
    assert all(name != Name("y") for name in again.results)
