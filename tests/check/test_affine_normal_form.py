"""Index arithmetic in normal form keeps its value, and equal sums are one object."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from polyhedral import expr as px
from tensorlang.check import bounds
from tensorlang.tensor import affine
from tensorlang.tensor.affine import evaluate

NAMES = ("i", "j", "n")
LEAVES = st.one_of(st.integers(-9, 9).map(px.Int), st.sampled_from(NAMES).map(px.Name))
EXPRESSIONS: Any = st.recursive(
    LEAVES,
    lambda e: st.one_of(
        st.builds(px.Add, e, e),
        st.builds(px.Scale, st.integers(-4, 4), e),
        st.builds(px.Floor, e, st.integers(1, 5)),
        st.builds(px.Mod, e, st.integers(1, 5)),
        st.builds(px.Min, e, e),
        st.builds(px.Max, e, e),
    ),
    max_leaves=8,
)
POINTS = st.fixed_dictionaries({name: st.integers(-7, 7) for name in NAMES})


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, POINTS)
def test_the_normal_form_has_the_same_value(e: px.Expr, point: dict[str, int]) -> None:
    assert evaluate(affine.normal(e), point) == evaluate(e, point)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, POINTS)
def test_sums_do_not_depend_on_their_order(a: px.Expr, b: px.Expr, point: dict[str, int]) -> None:
    assert affine.add(affine.normal(a), affine.normal(b)) == affine.add(affine.normal(b), affine.normal(a))
    assert evaluate(affine.sub(a, b), point) == evaluate(a, point) - evaluate(b, point)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.integers(0, 6), st.integers(1, 5), st.integers(0, 9))
def test_a_condition_is_left_out_only_where_it_holds(e: px.Expr, lo: int, extent: int, n: int) -> None:
    ranges = {"i": (px.Int(lo), px.Int(lo + extent)), "j": (px.Int(0), px.Name("n"))}
    if bounds.surely_nonnegative(affine.normal(e), ranges):
        assert all(evaluate(e, {"i": i, "j": j, "n": n}) >= 0 for i in range(lo, lo + extent) for j in range(n))
