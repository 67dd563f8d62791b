"""Index arithmetic folds to a canonical form that keeps values, and prints as the language."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhedral.expr import FALSE, TRUE, Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale
from tensorlang.tensor import affine

NAMES = ("i", "j", "n")


def exprs() -> st.SearchStrategy[Expr]:
    leaves = st.integers(-4, 4).map(Int) | st.sampled_from(NAMES).map(Name)
    divisors = st.integers(1, 4)

    def deeper(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(Add, inner, inner),
            st.builds(Scale, st.integers(-3, 3), inner),
            st.builds(Floor, inner, divisors),
            st.builds(Mod, inner, divisors),
            st.builds(Min, inner, inner),
            st.builds(Max, inner, inner),
        )

    return st.recursive(leaves, deeper, max_leaves=8)


def conds() -> st.SearchStrategy[Cond]:
    compare = st.builds(Compare, st.sampled_from(("<", "<=", "==", "!=", ">=", ">")), exprs(), exprs())

    def deeper(inner: st.SearchStrategy[Cond]) -> st.SearchStrategy[Cond]:
        several = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, inner))

    return st.recursive(compare, deeper, max_leaves=5)


points = st.fixed_dictionaries({n: st.integers(-5, 9) for n in NAMES})


@given(exprs(), points)
def test_the_canonical_form_has_the_same_value_and_is_its_own_canonical_form(e: Expr, at: dict[str, int]) -> None:
    normal = affine.normal(e)
    assert affine.evaluate(normal, at) == affine.evaluate(e, at)
    assert affine.normal(normal) == normal


@given(exprs(), exprs(), points)
def test_substitution_commutes_with_evaluation(e: Expr, value: Expr, at: dict[str, int]) -> None:
    replaced = affine.substitute(e, {"i": value})
    assert affine.evaluate(replaced, at) == affine.evaluate(e, {**at, "i": affine.evaluate(value, at)})


@given(conds(), points)
def test_negation_and_substitution_of_conditions_keep_their_truth(cond: Cond, at: dict[str, int]) -> None:
    truth = bool(affine.holds(cond, at))
    assert bool(affine.holds(affine.negate(cond), at)) is not truth
    assert bool(affine.holds(affine.substitute_cond(cond, {}), at)) is truth


@given(exprs(), conds())
def test_arrays_of_points_are_evaluated_like_single_points(e: Expr, cond: Cond) -> None:
    grid: dict[str, Any] = {n: np.array([-3, 0, 2, 7]) * (k + 1) for k, n in enumerate(NAMES)}
    singles = [{n: int(v[p]) for n, v in grid.items()} for p in range(4)]
    assert np.broadcast_to(affine.evaluate(e, grid), 4).tolist() == [affine.evaluate(e, at) for at in singles]
    assert np.broadcast_to(affine.holds(cond, grid), 4).tolist() == [bool(affine.holds(cond, at)) for at in singles]


@given(exprs(), points)
def test_the_text_evaluates_in_python_to_the_same_number(e: Expr, at: dict[str, int]) -> None:
    assert eval(affine.show(e), {"min": min, "max": max}, dict(at)) == affine.evaluate(e, at)


p, r, n = map(Name, "prn")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (affine.add(affine.scale(2, p), r, -1, p), "3*p + r - 1"),
        (affine.sub(n, affine.add(p, 1)), "n - p - 1"),
        (affine.floor(affine.add(affine.scale(2, p), 5), 2), "p + 2"),
        (affine.floor(affine.add(n, 3), 2), "(n + 1) // 2 + 1"),
        (affine.mod(affine.add(affine.scale(4, p), r), 4), "r % 4"),
        (affine.neg(affine.floor(p, 3)), "-(p // 3)"),
        (affine.minimum(n, affine.add(n, 1), Int(3)), "min(3, n)"),
        (affine.clamp(p, Int(0), n), "min(max(0, p), n - 1)"),
        (affine.add(Name("d.0"), 1), "`d.0` + 1"),
    ],
)
def test_sums_divisions_and_bounds_fold(e: Expr, text: str) -> None:
    assert sorted(affine.show(e)) == sorted(text)


def test_linear_expressions_give_their_coefficients_and_others_do_not() -> None:
    assert affine.affine_form(affine.add(affine.scale(2, p), r, -1)) == ({"p": 2, "r": 1}, -1)
    assert affine.affine_form(affine.floor(p, 2)) is None
    assert affine.mul(p, r) is None and affine.mul(Int(2), p) == affine.scale(2, p)


def test_conditions_are_decided_when_the_sides_differ_by_a_number() -> None:
    assert affine.compare("<", p, affine.add(p, 1)) == TRUE
    assert affine.compare("==", p, affine.add(p, 1)) == FALSE
    assert affine.conj(TRUE, affine.compare("<", p, n)) == affine.compare("<", p, n)
    assert affine.disj(FALSE, TRUE) == TRUE and affine.conj(FALSE, affine.compare("<", p, n)) == FALSE
