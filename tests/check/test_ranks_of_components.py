"""Reductions whose components have different ranks: an online softmax, and what makes one impossible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checking import load, program_of, run
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang as tl
from tensorlang.check.laws import check_laws
from tensorlang.diagnostics import CompileError
from tensorlang.tensor import nodes as ir

ONLINE = """fn shrink[T: float](a: T, m) = if a == m then 1 else exp(a - m)

reducer online (m1, l1, a1) (m2, l2, a2) from (-inf, 0, 0) =
    let m = max(m1, m2) in (m, l1 * shrink(m1, m) + l2 * shrink(m2, m), a1 * shrink(m1, m) + a2 * shrink(m2, m))
"""
ATTENTION = """
op attention[T: float](q: T[H.., L, D], k: T[H.., S, D], v: T[H.., S, E]) -> (y: T[H.., L, E], l: T[H.., L]) {
    s[h.., i, j] = sum(c) q[h.., i, c] * k[h.., j, c]
    m[h.., i], l[h.., i], a[h.., i, e] = online(j) (s[h.., i, j], 1, v[h.., j, e])
    y[h.., i, e] = a[h.., i, e] / l[h.., i]
}
"""


def attention(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    scores = q @ np.swapaxes(k, -1, -2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    total = weights.sum(-1)
    return weights @ v / total[..., None], total


def operands(dtype: Any, *sizes: int) -> list[Any]:
    heads, rows, keys, depth, width = sizes
    random = np.random.default_rng(3)
    shapes = ((heads, rows, depth), (heads, keys, depth), (heads, keys, width))
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def test_components_of_different_ranks_are_an_online_softmax() -> None:
    given = operands(np.float64, 2, 5, 17, 4, 3)
    for found, wanted in zip(run(load(ONLINE + ATTENTION), "attention", *given), attention(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_native_code_agrees_with_the_interpreter_about_them() -> None:
    given = operands(np.float32, 2, 9, 33, 8, 20)
    made = tl.parse(ONLINE + ATTENTION)
    for found, wanted in zip(made.attention(*given), run(load(ONLINE + ATTENTION), "attention", *given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


def test_each_rank_is_a_definition_of_the_components_that_it_needs() -> None:
    made = program_of(load(ONLINE + ATTENTION), "attention", *operands(np.float32, 2, 3, 5, 4, 6))
    reducers = {
        d.tensors[0].name: piece.value.value.reducer if isinstance(piece.value, ir.Project) else piece.value.reducer
        for d in made.definitions
        for piece in d.pieces
        if isinstance(piece.value, ir.Reduce | ir.Project) and d.tensors[0].name != "s"
        if isinstance(piece.value, ir.Reduce) or isinstance(piece.value.value, ir.Reduce)
    }
    assert {name: reducer.left for name, reducer in reducers.items()} == {"m": ("m1", "l1"), "a": ("m1", "a1")}


def test_the_online_softmax_keeps_the_laws_of_reducers() -> None:
    assert check_laws(load(ONLINE), "online") == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-900, 900), min_size=1, max_size=12), st.integers(0, 12), st.randoms())
def test_parts_of_a_row_combine_to_what_the_row_comes_to(scores: list[int], cut: int, random: Any) -> None:
    text = ONLINE + "op row(s: f64[N], v: f64[N]) -> (m: f64, l: f64, a: f64) { m, l, a = online(j) (s[j], 1, v[j]) }"
    module = load(text)
    values = np.array([random.uniform(-2, 2) for _ in scores])
    row = np.array(scores, np.float64)
    cut = min(cut, len(scores))
    (m1, l1, a1), (m2, l2, a2) = (run(module, "row", row[part], values[part]) for part in (slice(cut), slice(cut, None)))
    m = max(m1, m2)
    left, right = (np.exp(one - m) if one != m else 1.0 for one in (m1, m2))
    weights = np.exp(row - row.max())
    np.testing.assert_allclose(l1 * left + l2 * right, weights.sum(), rtol=1e-13)
    np.testing.assert_allclose(a1 * left + a2 * right, weights @ values, rtol=1e-12, atol=1e-12)


def test_a_component_of_lower_rank_cannot_read_one_of_higher() -> None:
    text = """reducer pair (a1, b1) (a2, b2) from (0, 0) = (a1 + a2 + b1 - b1 + b2 - b2, b1 + b2)
op f(x: f32[N], w: f32[N, M]) -> (y: f32, z: f32[M]) {
    y, z[e] = pair(j) (x[j], w[j, e])
}"""
    with pytest.raises(CompileError, match="`y` has no index `e`, but what defines `y` does") as refused:
        run(load(text), "f", np.ones(3, np.float32), np.ones((3, 2), np.float32))
    assert refused.value.diagnostics[0].code == "T0148"


def test_what_goes_into_a_component_has_the_indices_of_its_tensor() -> None:
    text = (
        ONLINE
        + """
op f(s: f32[N, M], v: f32[N, M]) -> (m: f32, l: f32, a: f32[M]) {
    m, l, a[e] = online(j) (s[j, e], 1, v[j, e])
}"""
    )
    with pytest.raises(CompileError, match="`m` and `l` have no index `e`"):
        run(load(text), "f", np.ones((3, 2), np.float32), np.ones((3, 2), np.float32))
