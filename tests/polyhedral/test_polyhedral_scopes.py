"""`Scope.nonnegative` proves what holds, and nothing else: compared with all points of random scopes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from functools import reduce

import pytest

from polyhedral.affine import evaluate
from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Or, Scale
from polyhedral.scopes import Scope

N, I, J = Name("N"), Name("i"), Name("j")


def scope(*facts: Cond) -> Scope:
    """for i in 0 .. N: for j in 8*i .. min(8*i + 8, 20)"""
    found = Scope().with_name("N", Int(0), Int(1 << 40)).with_name("i", Int(0), Add(N, Int(-1)))
    found = found.with_name("j", Scale(8, I), Min(Add(Scale(8, I), Int(7)), Int(19)))
    for fact in facts:
        found = found.with_fact(fact)
    return found


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (I, True),
        (Add(N, Add(Scale(-1, I), Int(-1))), True),
        (Add(N, Scale(-2, I)), False),
        (Add(J, Scale(-8, I)), True),
        (Add(Int(19), Scale(-1, J)), True),
        (Add(Int(18), Scale(-1, J)), False),
        (Add(Int(2), Scale(-1, Floor(J, 8))), True),
        (Add(Int(1), Scale(-1, Floor(J, 8))), False),
        (Add(Int(7), Scale(-1, Mod(J, 8))), True),
        (Add(Int(3), Scale(-1, Mod(J, 8))), False),
        (Add(I, Scale(-1, Floor(J, 8))), True),
        (Max(Add(I, Int(-1)), Int(0)), True),
        (Add(Min(I, Int(3)), Int(-1)), False),
    ],
)
def test_what_bounds_of_loops_say(claim: Expr, holds: bool) -> None:
    assert scope().nonnegative(claim) == holds


def test_conditions_bound_single_names_and_several_at_once() -> None:
    assert scope(Compare(">=", I, Int(1))).nonnegative(Add(I, Int(-1)))
    assert scope(Compare("<", Add(I, J), Int(5))).nonnegative(Add(Int(4), Add(Scale(-1, I), Scale(-1, J))))
    assert scope(Or((Compare(">=", I, Int(3)), Compare(">=", J, Int(30))))).nonnegative(Add(I, Int(-3)))
    assert not scope(Or((Compare(">=", I, Int(2)), Compare(">=", J, Int(9))))).nonnegative(Add(I, Int(-2)))


def test_a_condition_between_many_minima_and_maxima_holds_of_each_pair_of_operands() -> None:
    lows = [*(Floor(Add(I, Name(f"M{k}")), 4) for k in range(6)), Int(1)]
    highs = [Floor(Add(Max(Name(f"L{k}"), I), Int(k)), 8) for k in range(4)] + [Floor(Add(I, Int(1)), 4)]
    found = scope()
    for name in (f"{letter}{k}" for k in range(6) for letter in "ML"):
        found = found.with_name(name, Int(1), Int(1 << 40))
    found = found.with_fact(Compare("<", reduce(Max, lows), reduce(Min, highs)))
    assert found.nonnegative(Add(I, Int(-7)))


def tiles_of_a_skewed_stencil() -> Scope:
    """for t: for i, j, a tile of 8 x 8: for s, a step of 4: for l, k, a point of the tile, where steps shift N x M points by one each"""
    found = Scope()
    for size in "NMT":
        found = found.with_name(size, Int(3), Int(1 << 40))
    rows = (Floor(_sum(1, t=4, N=1), 8), _sum(-1, of={Floor(_sum(5, N=1, T=1), 8): 1}))
    columns = (Floor(_sum(1, t=4, M=1), 8), _sum(i=1, of={Floor(_sum(4, M=1), 8): 1}), _sum(-1, of={Floor(_sum(5, M=1, T=1), 8): 1}))
    found = found.with_name("t", Int(0), _sum(-1, of={Floor(_sum(3, T=1), 4): 1}))
    found = found.with_name("i", Floor(Name("t"), 2), reduce(Min, rows))
    found = found.with_name("j", Max(_sum(i=1, of={Floor(_sum(3, N=-1), 8): 1}), Floor(Name("t"), 2)), reduce(Min, columns))
    starts = (Int(0), _sum(1, t=-4), _sum(2, i=8, t=-4, N=-1), _sum(2, j=8, t=-4, M=-1))
    found = found.with_name("s", reduce(Max, starts), reduce(Min, (Int(3), _sum(6, i=8, t=-4), _sum(6, j=8, t=-4), _sum(-1, T=1, t=-4))))
    found = found.with_name("l", Max(Int(0), _sum(1, t=4, s=1, i=-8)), Min(Int(7), _sum(-2, t=4, s=1, i=-8, N=1)))
    return found.with_name("k", Max(Int(0), _sum(1, t=4, s=1, j=-8)), Min(Int(7), _sum(-2, t=4, s=1, j=-8, M=1)))


@pytest.fixture
def without_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scope, "implied", lambda *_: False)


@pytest.mark.usefixtures("without_isl")
def test_of_many_bounds_that_is_tried_first_which_leaves_fewest_names() -> None:
    assert tiles_of_a_skewed_stencil().nonnegative(_sum(-1, M=1, j=-8, k=-1, t=4, s=1))
    assert not tiles_of_a_skewed_stencil().nonnegative(_sum(-3, M=1, j=-8, k=-1, t=4, s=1))


@pytest.mark.usefixtures("without_isl")
def test_a_condition_says_something_of_its_multiples() -> None:
    found = Scope().with_name("t", Int(0), Int(1 << 40)).with_name("j", Floor(Name("t"), 2), Int(1 << 40)).with_name("s", Int(0), Int(3))
    assert found.with_fact(Compare("<", Name("t"), Scale(2, Name("j")))).nonnegative(_sum(j=8, t=-4, s=-1))
    assert not found.with_fact(Compare("<=", Name("t"), Scale(2, Name("j")))).nonnegative(_sum(j=8, t=-4, s=-1))


@pytest.mark.usefixtures("without_isl")
def test_what_is_made_of_others_comes_out_before_these() -> None:
    later = {Max(Floor(Name("N"), 8), Floor(Name("t"), 2)): 8}
    found = Scope().with_name("N", Int(3), Int(1 << 40)).with_name("t", Int(0), Int(1 << 40))
    found = found.with_name("s", Max(Int(0), _sum(9, t=-4, N=-1, of=later)), Int(3)).with_name("k", Int(0), Int(7))
    assert found.nonnegative(_sum(N=1, t=4, s=1, k=-1, of={term: -factor for term, factor in later.items()}))


def test_random_claims_hold_at_every_point() -> None:
    draw = random.Random(7)
    proven = 0
    for _ in range(400):
        low, high = Int(draw.randint(-3, 2)), Int(draw.randint(0, 5))
        inner = (_expression(draw, ("a",)), _expression(draw, ("a",)))
        fact = Compare(draw.choice(("<", "<=", ">=", "==")), _expression(draw, ("a", "b")), _expression(draw, ("a", "b")))
        claim = _expression(draw, ("a", "b"))
        found = Scope().with_name("a", low, high).with_name("b", *inner).with_fact(And((fact,)))
        if found.nonnegative(claim):
            proven += 1
            for a, b in itertools.product(range(low.value, high.value + 1), range(-40, 41)):
                at = {"a": a, "b": b}
                if evaluate(inner[0], at) <= b <= evaluate(inner[1], at) and _holds(fact, at):
                    assert evaluate(claim, at) >= 0, (found, claim, at)
    assert proven > 60


def _holds(cond: Compare, at: dict[str, int]) -> bool:
    lhs, rhs = evaluate(cond.lhs, at), evaluate(cond.rhs, at)
    return {"<": lhs < rhs, "<=": lhs <= rhs, ">=": lhs >= rhs, "==": lhs == rhs}[cond.op]


def _expression(draw: random.Random, names: tuple[str, ...], depth: int = 2) -> Expr:
    if depth == 0 or draw.random() < 0.25:
        return Name(draw.choice(names)) if draw.random() < 0.6 else Int(draw.randint(-4, 6))
    lhs, rhs = _expression(draw, names, depth - 1), _expression(draw, names, depth - 1)
    match draw.randrange(6):
        case 0 | 1:
            return Add(lhs, rhs)
        case 2:
            return Scale(draw.choice((-2, -1, 2, 3)), lhs)
        case 3:
            return Floor(lhs, draw.choice((2, 3)))
        case 4:
            return Mod(lhs, draw.choice((2, 3)))
        case _:
            return draw.choice((Min, Max))(lhs, rhs)


def _sum(constant: int = 0, of: Mapping[Expr, int] | None = None, **names: int) -> Expr:
    terms = {**{Name(name): factor for name, factor in names.items()}, **(of or {})}
    return reduce(Add, (Scale(factor, term) for term, factor in terms.items()), Int(constant))
