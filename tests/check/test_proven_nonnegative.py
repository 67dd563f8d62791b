"""What checks leave out because it surely holds does hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import bounds

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


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.integers(0, 6), st.integers(1, 5), st.integers(0, 9))
def test_a_condition_is_left_out_only_where_it_holds(e: px.Expr, lo: int, extent: int, n: int) -> None:
    ranges = {"i": (px.Int(lo), px.Int(lo + extent)), "j": (px.Int(0), px.Name("n"))}
    if bounds.proven_nonnegative(affine.normal(e), ranges):
        assert all(affine.evaluate(e, {"i": i, "j": j, "n": n}) >= 0 for i in range(lo, lo + extent) for j in range(n))


def test_an_index_is_below_an_extent_that_is_a_quotient() -> None:
    extent = px.Floor(affine.add(px.Name("n"), px.Int(3)), 4)
    assert bounds.in_box(px.Name("i"), extent, {"i": (affine.ZERO, extent)}) == px.TRUE
