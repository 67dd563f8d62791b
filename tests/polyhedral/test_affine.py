"""Index arithmetic folds to a canonical form that keeps values, and prints as the language."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale
from polyhedral.ranges import range_of
from tensorlang.tensor import notation

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


def value(e: Expr, at: dict[str, int]) -> int:
    """Return the value of `e`, by the definition of each node and nothing else."""
    match e:
        case Int(number):
            return number
        case Name(name):
            return at[name]
        case Add(lhs, rhs):
            return value(lhs, at) + value(rhs, at)
        case Scale(factor, inner):
            return factor * value(inner, at)
        case Floor(inner, divisor):
            return math.floor(Fraction(value(inner, at), divisor))
        case Mod(inner, divisor):
            return value(inner, at) - divisor * math.floor(Fraction(value(inner, at), divisor))
        case Min(lhs, rhs):
            return min(value(lhs, at), value(rhs, at))
        case Max(lhs, rhs):
            return max(value(lhs, at), value(rhs, at))


def sum_of(form: affine.Linear, at: dict[str, int]) -> int:
    return form.constant + sum(factor * value(term, at) for term, factor in form.terms)


@settings(max_examples=200, deadline=None)
@given(exprs(), exprs(), st.integers(1, 6), st.integers(-5, 5))
def test_every_operation_means_what_it_says_at_every_point(a: Expr, b: Expr, divisor: int, factor: int) -> None:
    """Numbers around 0, and those next to the ends of 64 bits: nothing wraps."""
    cells = [*itertools.product((-3, 0, 5), repeat=len(NAMES)), (2**63 - 1, -(2**63), 2**62 + 1)]
    built: list[tuple[Expr, Callable[[int, int], int]]] = [
        (affine.normal(a), lambda x, y: x),
        (affine.add(a, b, 3), lambda x, y: x + y + 3),
        (affine.sub(a, b), lambda x, y: x - y),
        (affine.scale(factor, a), lambda x, y: factor * x),
        (affine.floor(a, divisor), lambda x, y: x // divisor),
        (affine.ceil_div(a, divisor), lambda x, y: -(-x // divisor)),
        (affine.mod(a, divisor), lambda x, y: x % divisor),
        (affine.mod(affine.floor(affine.mod(a, 6 * divisor), divisor), 3), lambda x, y: x % (6 * divisor) // divisor % 3),
        (affine.sub(a, affine.scale(divisor, affine.floor(a, divisor))), lambda x, y: x % divisor),
        (affine.minimum(a, b), min),
        (affine.maximum(a, b), max),
    ]
    distance, decided = affine.difference(a, b), affine.compare("<=", a, b)
    for cell in cells:
        at = dict(zip(NAMES, cell, strict=True))
        x, y = value(a, at), value(b, at)
        assert [value(e, at) for e, _ in built] == [meant(x, y) for _, meant in built]
        assert sum_of(affine.linear(a), at) == x and affine.evaluate(a, at) == x
        assert distance is None or x - y == distance
        assert bool(affine.holds(decided, at)) == (x <= y)


@given(exprs(), st.fixed_dictionaries({}, optional={name: st.tuples(st.integers(-5, 3), st.integers(0, 4)) for name in NAMES}))
def test_values_lie_within_the_range_of_an_expression(e: Expr, known: dict[str, tuple[int, int]]) -> None:
    low, high = range_of(e, {name: (first, first + more) for name, (first, more) in known.items()})
    cells = [range(known[name][0], sum(known[name]) + 1) if name in known else (-9, 0, 8) for name in NAMES]
    values = [value(e, dict(zip(NAMES, cell, strict=True))) for cell in itertools.product(*cells)]
    assert (low is None or low <= min(values)) and (high is None or max(values) <= high)


@given(exprs(), exprs())
def test_sums_do_not_depend_on_their_order(a: Expr, b: Expr) -> None:
    assert affine.add(affine.normal(a), affine.normal(b)) == affine.add(affine.normal(b), affine.normal(a))


@given(exprs())
def test_simplifying_is_idempotent_and_equal_to_what_it_simplifies(e: Expr) -> None:
    normal = affine.normal(e)
    assert affine.normal(normal) == normal
    assert affine.same(normal, e) and affine.same(affine.add(e, e), affine.scale(2, e))
    assert not any(isinstance(term, Mod) for term, _ in affine.linear(e).terms)


i, j = Name("i"), Name("j")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Floor(Scale(2, i), 4), Floor(i, 2)),
        (Mod(Scale(2, i), 4), Scale(2, Mod(i, 2))),
        (Mod(Mod(i, 8), 4), Mod(i, 4)),
        (Mod(Add(Scale(5, i), Scale(-3, j)), 4), Mod(Add(i, j), 4)),
        (Add(Scale(4, Floor(i, 4)), Mod(i, 4)), i),
        (Add(i, Scale(-4, Floor(i, 4))), Mod(i, 4)),
        (Floor(Floor(i, 3), 5), Floor(i, 15)),
        (Floor(Add(Floor(i, 3), j), 5), Floor(Add(i, Scale(3, j)), 15)),
        (Floor(Mod(i, 4), 2), Mod(Floor(i, 2), 2)),
        (Floor(Mod(i, 4), 4), Int(0)),
        (Floor(Add(i, Int(1)), 2), Add(i, Scale(-1, Floor(i, 2)))),
        (Scale(-1, Floor(Scale(-1, i), 7)), Floor(Add(i, Int(6)), 7)),
        (Min(Add(i, j), Min(j, i)), Min(Min(i, Add(j, i)), j)),
        (Max(Floor(Scale(2, i), 4), j), Max(j, Floor(i, 2))),
    ],
)
def test_expressions_that_are_equal_are_the_same(a: Expr, b: Expr) -> None:
    assert affine.same(a, b) and affine.compare("==", a, b) == TRUE and affine.compare("<", a, affine.add(b, 1)) == TRUE


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (affine.floor(Scale(2, i), 4), "i // 2"),
        (affine.floor(affine.floor(affine.add(i, 5), 3), 2), "(i + 5) // 6"),
        (affine.mod(Scale(4, affine.add(i, 1)), 8), "4*((i + 1) % 2)"),
        (affine.sub(i, Scale(4, affine.floor(i, 4))), "i % 4"),
        (affine.add(Scale(4, affine.floor(i, 4)), affine.mod(i, 4), j), "i + j"),
        (affine.floor(affine.floor(i, 2**40), 2**40), f"(i // {2**40}) // {2**40}"),
    ],
)
def test_quotients_and_remainders_are_built_simple(e: Expr, text: str) -> None:
    assert notation.show(e) == text


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
    assert eval(notation.show(e), {"min": min, "max": max}, dict(at)) == affine.evaluate(e, at)


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
    assert sorted(notation.show(e)) == sorted(text)


def test_linear_expressions_give_their_coefficients_and_others_do_not() -> None:
    assert affine.affine_form(affine.add(affine.scale(2, p), r, -1)) == ({"p": 2, "r": 1}, -1)
    assert affine.affine_form(affine.floor(p, 2)) is None
    assert affine.mul(p, r) is None and affine.mul(Int(2), p) == affine.scale(2, p)


def test_the_factors_that_all_terms_share_divide_a_sum() -> None:
    assert affine.multiple_of(affine.add(affine.scale(12, p), affine.scale(8, affine.floor(r, 3)), 20)) == 4
    assert affine.multiple_of(affine.add(p, 2)) == 1 and affine.multiple_of(Int(6)) == 6


def test_conditions_are_decided_when_the_sides_differ_by_a_number() -> None:
    assert affine.compare("<", p, affine.add(p, 1)) == TRUE
    assert affine.compare("==", p, affine.add(p, 1)) == FALSE
    assert affine.conj(TRUE, affine.compare("<", p, n)) == affine.compare("<", p, n)
    assert affine.disj(FALSE, TRUE) == TRUE and affine.conj(FALSE, affine.compare("<", p, n)) == FALSE
