"""Which keys a query sees, read off the equation of its scores; never fewer than it does."""

from __future__ import annotations

import pytest

from codegen.dtypes import f32
from polyhedral import affine
from polyhedral.expr import Cond
from polyhedral.expr import Name as Axis
from tensorlang.tensor.attention_mask import AttendedKeys, Line, attended_keys
from tensorlang.tensor.nodes import Binary, Cast, Compare, Const, Expr, Holds, Read, Reduce, Reducer, Select

SUM = Reducer("sum", ("a",), ("b",), (f32,), (), None, kind="sum")
SCORE = Binary("*", Reduce(SUM, (), (Read("q", (Axis("i"),)),)), Const(0.125, f32))
ZERO, MINUS, LOW, PENALTY = (Const(v, f32) for v in (0.0, float("-inf"), -3.4028234663852886e38, -10000.0))
CAUSAL = affine.compare("<=", "j", "i")
WINDOW = affine.conj(CAUSAL, affine.compare("<", affine.sub("i", "j"), 16))
DATA = Compare("==", Read("mask", (Axis("i"), Axis("j"))), Const(1.0, f32))


def added(cond: Cond, outside: Expr = MINUS) -> Expr:
    return Binary("+", SCORE, Select(Holds(cond), ZERO, outside))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (SCORE, AttendedKeys()),
        (added(CAUSAL), AttendedKeys((), (Line(1, 0),))),
        (added(CAUSAL, LOW), AttendedKeys((), (Line(1, 0),))),
        (Select(Holds(CAUSAL), SCORE, MINUS), AttendedKeys((), (Line(1, 0),))),
        (Cast(f32, added(CAUSAL)), AttendedKeys((), (Line(1, 0),))),
        (added(affine.compare("<", "j", affine.add("i", 5))), AttendedKeys((), (Line(1, 4),))),
        (added(affine.compare("<", affine.add(affine.scale(2, "i"), "j"), 90)), AttendedKeys((), (Line(-2, 89),))),
        (added(WINDOW), AttendedKeys((Line(1, -15),), (Line(1, 0),))),
        (Binary("+", added(CAUSAL), Read("bias", (Axis("i"), Axis("j")))), AttendedKeys((), (Line(1, 0),))),
        (Select(Binary("and", DATA, Holds(CAUSAL)), SCORE, MINUS), AttendedKeys((), (Line(1, 0),))),
        (Select(Binary("or", DATA, Holds(CAUSAL)), SCORE, MINUS), AttendedKeys()),
        (Select(DATA, SCORE, MINUS), AttendedKeys()),
        (added(CAUSAL, PENALTY), AttendedKeys()),
    ],
    ids=[
        "no mask",
        "causal",
        "a low number",
        "chosen",
        "cast",
        "an offset",
        "a falling line",
        "a window",
        "with a bias",
        "and data",
        "or data",
        "data alone",
        "a penalty that a score may outweigh",
    ],
)
def test_keys_between_two_lines_are_seen(scores: Expr, expected: AttendedKeys) -> None:
    assert attended_keys(scores, "i", "j", 40, 50) == expected


@pytest.mark.parametrize(
    ("scores", "rows"),
    [
        (added(affine.compare("<", "j", "i"), LOW), 40),
        (Binary("+", added(CAUSAL, LOW), Read("bias", (Axis("i"), Axis("j")))), 40),
        (Binary("+", added(CAUSAL), Select(DATA, ZERO, LOW)), 40),
        (added(affine.compare(">=", "j", affine.add("i", 20)), LOW), 40),
    ],
    ids=["the first row sees none", "a bias may be low", "data may hide the others", "the last rows see none"],
)
def test_low_numbers_hide_keys_only_where_every_row_surely_sees_one(scores: Expr, rows: int) -> None:
    assert attended_keys(scores, "i", "j", rows, 50) == AttendedKeys()
    assert attended_keys(added(affine.compare(">=", "j", affine.add("i", 20)), LOW), "i", "j", 30, 50) == AttendedKeys((Line(1, 20),), ())
