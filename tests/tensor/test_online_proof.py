"""The check that a pass over blocks of keys is attention: it holds for what the rewriting makes, and for nothing that was tampered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_online import MASKED, SOFTMAX, operands, plain

from codegen.dtypes import f64
from tensorlang.tensor import online as algebra
from tensorlang.tensor import real_algebra
from tensorlang.tensor.nodes import Binary, Call, Compare, Const, Definition, Expr, Name, Program, Reduce, Select
from tensorlang.tensor.real_algebra import Symbol, atom, exp, inverse, largest, minus, number, times, total
from tensorlang.tensor.walk import map_children, map_pieces

A, B, C, F, G = (atom(Symbol(n, keyed=n in "fg")) for n in "abcfg")


def test_equal_reals_look_the_same() -> None:
    assert times(A, real_algebra.add(B, C)) == real_algebra.add(times(C, A), times(B, A))
    assert times(exp(minus(A, B)), exp(minus(B, C))) == exp(minus(A, C))
    assert times(exp(A), inverse(exp(A))) == real_algebra.ONE == exp(real_algebra.ZERO)
    assert largest(A, largest(B, C)) == largest(largest(C, A), B, A)
    assert total(("old", "new"), times(A, F)) == times(A, real_algebra.add(total(("new",), F), total(("old",), F)))
    assert total(("all",), real_algebra.add(F, G)) == real_algebra.add(total(("all",), G), total(("all",), F))
    assert total(("all",), exp(minus(F, A))) == times(exp(minus(number(0), A)), total(("all",), exp(F)))


def test_other_reals_do_not() -> None:
    assert exp(real_algebra.add(A, B)) != real_algebra.add(exp(A), exp(B))
    assert total(("all",), times(F, G)) != times(total(("all",), F), total(("all",), G))
    assert total(("old",), F) != total(("new",), F)
    assert largest(A, B) != A
    with pytest.raises(real_algebra.Unproven):
        inverse(real_algebra.add(A, B))


def checked(tamper: Callable[[list[Definition]], list[Definition]], softmax: str = SOFTMAX) -> str:
    """Return why attention whose definitions of a pass `tamper` changes is refused; "" where it is not."""
    asked: list[str] = []
    original = algebra._is_proven

    def watched(found: algebra._Plain, blocks: algebra._Blocks, definitions: tuple[Definition, ...]) -> bool:
        changed = tuple(tamper(list(definitions)))
        asked.append("" if original(found, blocks, changed) else "refused")
        return True

    program: Program = plain(*operands(np.float64, 2, 4, 8, 3, 3), softmax=softmax)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algebra, "_is_proven", watched)
        algebra.online(program, lambda sizes: (2, 4))
    [why] = asked
    return why


def at(position: int, change: Callable[[Expr], Expr]) -> Callable[[list[Definition]], list[Definition]]:
    """Return what changes every expression of one definition from the inside out."""

    def deep(e: Expr) -> Expr:
        return change(map_children(deep, e))

    def tamper(definitions: list[Definition]) -> list[Definition]:
        changed = map_pieces(definitions[position], deep)
        assert changed != definitions[position]
        return [*definitions[:position], changed, *definitions[position + 1 :]]

    return tamper


LARGEST, WEIGHTS, TOTALS, SUMS, RESULT = 3, 4, 5, 6, 7


def unscaled(e: Expr) -> Expr:
    return replace(e, init=(Select(e.init[0].cond, e.init[0].then, e.init[0].orelse.lhs),)) if isinstance(e, Reduce) and e.init else e  # type: ignore[union-attr]


def forgotten(e: Expr) -> Expr:
    return replace(e, init=None) if isinstance(e, Reduce) else e


def not_zero(e: Expr) -> Expr:
    return replace(e, init=(Select(e.init[0].cond, Const(1.0, f64), e.init[0].orelse),)) if isinstance(e, Reduce) and e.init else e  # type: ignore[union-attr]


def turned(e: Expr) -> Expr:
    return Call("exp", (Binary("-", Name("new"), Name("old")),)) if e == Call("exp", (Binary("-", Name("old"), Name("new")),)) else e


def smallest(e: Expr) -> Expr:
    return replace(e, op="min") if isinstance(e, Binary) and e.op == "max" else e


def halved(e: Expr) -> Expr:
    return Binary("*", Const(0.5, f64), e) if isinstance(e, Call) else e


def one_and_a_half(e: Expr) -> Expr:
    return Select(e.cond, Const(1.5, f64), e.orelse) if isinstance(e, Select) and isinstance(e.cond, Compare) else e


def product(e: Expr) -> Expr:
    return replace(e, op="*") if isinstance(e, Binary) and e.op == "/" else e


@pytest.mark.parametrize("softmax", [SOFTMAX, MASKED])
def test_what_the_rewriting_makes_is_shown_to_be_attention(softmax: str) -> None:
    assert checked(lambda definitions: definitions, softmax) == ""


@pytest.mark.parametrize(
    ("position", "change"),
    [
        (TOTALS, unscaled),
        (SUMS, unscaled),
        (TOTALS, forgotten),
        (SUMS, forgotten),
        (TOTALS, not_zero),
        (SUMS, not_zero),
        (LARGEST, turned),
        (LARGEST, smallest),
        (LARGEST, one_and_a_half),
        (WEIGHTS, halved),
        (RESULT, product),
    ],
)
def test_what_was_tampered_with_is_refused(position: int, change: Callable[[Expr], Expr]) -> None:
    assert checked(at(position, change)) == "refused"
