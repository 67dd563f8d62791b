"""Choices in fewer instructions: what they become, and that they choose the same, whatever is no number."""

from __future__ import annotations

from itertools import product

import pytest

from codegen.dtypes import bool_, f32
from codegen.llvm.choices import simplified
from codegen.loops.nodes import Binary, Compare, Const, Expr, Name, Select

X, Y, D = Name("x"), Name("y"), Name("d")
TRUE, FALSE = Const(True, bool_), Const(False, bool_)
SAME, MORE, NONE = Compare("==", X, Y), Compare(">", X, Y), Compare("!=", X, X)
CASES = {
    "true, or": (Select(D, TRUE, SAME), Binary("or", D, SAME)),
    "and, or false": (Select(D, SAME, FALSE), Binary("and", D, SAME)),
    "one of two values": (Select(D, Select(SAME, X, Y), Y), Select(Binary("and", D, SAME), X, Y)),
    "at least": (Select(SAME, TRUE, MORE), Compare(">=", X, Y)),
    "at least, or no number": (Select(SAME, TRUE, Select(NONE, TRUE, MORE)), Binary("or", Compare(">=", X, Y), NONE)),
    "at most": (Select(SAME, TRUE, Compare("<", X, Y)), Compare("<=", X, Y)),
}
OTHERS = (Select(D, X, Y), Select(D, Const(1.0, f32), X), Select(D, Select(SAME, Y, X), Y), Select(D, X, Select(SAME, X, Y)))


@pytest.mark.parametrize(("long", "short"), CASES.values(), ids=CASES)
def test_a_choice_is_said_in_fewer_instructions(long: Select, short: Expr) -> None:
    assert simplified(long) == short
    values = (0.0, -0.0, 1.0, float("inf"), float("nan"))
    for x, y, d in product(values, values, (False, True)):
        at = {"x": x, "y": y, "d": d}
        assert repr(evaluated(long, at)) == repr(evaluated(short, at))


@pytest.mark.parametrize("e", OTHERS)
def test_any_other_choice_stays(e: Select) -> None:
    assert simplified(e) is e


def evaluated(e: Expr, at: dict[str, float]) -> float | bool:
    match e:
        case Name(name):
            return at[name]
        case Const(value, _):
            return value
        case Select(cond, then, orelse):
            return evaluated(then if evaluated(cond, at) else orelse, at)
        case Binary("and", lhs, rhs):
            return bool(evaluated(lhs, at) and evaluated(rhs, at))
        case Binary("or", lhs, rhs):
            return bool(evaluated(lhs, at) or evaluated(rhs, at))
        case Compare(op, lhs, rhs):
            x, y = evaluated(lhs, at), evaluated(rhs, at)
            return {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]
    raise AssertionError(e)
