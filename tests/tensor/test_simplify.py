"""Passes on programs keep every result bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from scheduled_programs import operator
from strategies_tensor import Case, cases, definition, heat, matmul, padded, read, tensor, total

import tensorlang as tl
from codegen.dtypes import f16, f32, f64, i8, i32, i64
from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Int
from polyhedral.expr import Name as N
from tensorlang.diagnostics import InternalError
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import (
    Binary,
    Call,
    Cast,
    Const,
    Definition,
    Dynamic,
    Expr,
    Holds,
    IndexValue,
    Let,
    Piece,
    Program,
    Read,
    Select,
    Unary,
)
from tensorlang.tensor.prove import prove
from tensorlang.tensor.simplify import can_inline, can_repeat, common_subexpressions, inline, inline_all, simplify
from tensorlang.tensor.sums_apart import sums_apart
from tensorlang.tensor.verify import verify

rng = np.random.default_rng(3)
X = read("x", "i")


def one(value: Expr, dtype=f32) -> Program:
    return verify(Program("p", ("n",), (tensor("x", dtype, "n"),), ("y",), (definition(tensor("y", dtype, "n"), ("i",), value),)))


def value(program: Program) -> Expr:
    return program.definitions[-1].pieces[0].value


def same_bits(before: Program, after: Program, case: Case) -> None:
    verify(after)
    old, new = interpret(before, case.sizes, case.arrays), interpret(after, case.sizes, case.arrays)
    assert {n: a.tobytes() for n, a in old.items()} == {n: a.tobytes() for n, a in new.items()}


def _apart(program: Program, tensor: str) -> Program:
    made = sums_apart(program, tensor)
    return program if isinstance(made, str) else made


PASSES: dict[str, Callable[[Program], Program]] = {
    "inline": lambda p: inline_all(p, lambda d, uses: True),
    "dead": eliminate_dead,
    "simplify": simplify,
    "common": common_subexpressions,
    "lift": lift,
    "apart": lambda p: reduce(_apart, (t.name for d in p.definitions for t in d.tensors), p),
    "all": lambda p: common_subexpressions(simplify(eliminate_dead(inline_all(p, lambda d, uses: uses < 3)))),
}


@pytest.mark.parametrize("name", PASSES)
@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_a_pass_keeps_every_bit(name: str, case: Case) -> None:
    after = PASSES[name](case.program)
    same_bits(case.program, after, case)
    prove(after)


# ---------------------------------------------------------------- inlining


def chain(t: Definition, value: Expr, dtype=f32) -> Program:
    return verify(Program("p", ("n",), (tensor("x", dtype, "n"),), ("y",), (t, definition(tensor("y", dtype, "n"), ("i",), value))))


def test_inlining_puts_the_value_at_the_index_of_each_read() -> None:
    t = definition(tensor("t", f32, "n"), ("j",), Binary("+", read("x", "j"), Const(1.0, f32)))
    back = affine.sub(affine.sub("n", 1), "i")
    assert inline(chain(t, read("t", back)), "t") == one(Binary("+", read("x", back), Const(1.0, f32)))


@pytest.mark.parametrize(("outside", "rounds"), [(0.0, False), (1 + 2.0**-20, True), (2.0**100, True), (-inf, False)])
def test_pieces_become_a_select_and_narrow_types_a_cast_unless_their_elements_are_moved(outside: float, rounds: bool) -> None:
    first = affine.compare("<", "j", 2)
    t = definition(tensor("t", f16, "n"), ("j",), Piece(read("x", "j"), first), Piece(Const(outside, f32), affine.negate(first)))
    moved = Select(Holds(affine.compare("<", "i", 2)), X, Const(outside, f32))
    assert value(inline(chain(t, read("t", "i"), f16), "t")) == (Cast(f16, moved) if rounds else moved)


def test_a_recurrence_and_a_reduction_are_not_inlined() -> None:
    assert not can_inline(heat().definitions[0]) and not can_inline(matmul().definitions[0])
    with pytest.raises(InternalError):
        inline(heat(), "s")


def test_an_index_from_data_is_inlined_where_it_is_a_whole_index() -> None:
    params = (tensor("x", f32, "n"), tensor("ids", i64, "n"))
    at = Dynamic(read("ids", "i"), Int(0), N("n"))
    plain = definition(tensor("t", f32, "n"), ("j",), Unary("neg", read("x", "j")))
    shifted = definition(tensor("t", f32, "n"), ("j",), padded("x", (N("n"),), (affine.add("j", 1),), Const(0.0, f32)))
    y = definition(tensor("y", f32, "n"), ("i",), Read("t", (at,)))
    assert value(inline(Program("p", ("n",), params, ("y",), (plain, y)), "t")) == Unary("neg", Read("x", (at,)))
    kept = Program("p", ("n",), params, ("y",), (shifted, y))
    assert inline(kept, "t") == kept


def test_an_index_from_data_is_inlined_as_a_value_where_it_is_known_to_lie_inside() -> None:
    params = (tensor("x", f32, "n"), tensor("ids", i64, "n"))
    numbers = definition(tensor("t", f32, "n"), ("j",), Cast(f32, IndexValue(N("j"))))
    inside, anywhere = Dynamic(read("ids", "i"), Int(0), N("n")), Dynamic(read("ids", "i"))
    found, kept = (
        Program("p", ("n",), params, ("y",), (numbers, definition(tensor("y", f32, "n"), ("i",), Read("t", (at,)))))
        for at in (inside, anywhere)
    )
    assert value(inline(found, "t")) == Cast(f32, Cast(i64, read("ids", "i")))
    assert inline(kept, "t") == kept


CALLS = """
op steps(x: f32[N]) -> (y: f32[N], z: f32[N]) {
    t[i] = exp(x[i])
    u[i] = x[i] + 1
    y[i] = t[i] + 1
    z[i] = u[i] * 2
}
op f(x: f32[N], attr few: int) -> (y: f32[N]) {
    own[i] = x[i] + 3
    a, _   = steps(x)
    _, b   = steps(own)
    y[i]   = if few == 1 then a[i] else b[i]
}
"""


@pytest.mark.parametrize(("few", "kept"), [(1, {"own", "y", "a", "a.t"}), (0, {"own", "y", "b", "b.u"})])
def test_what_a_call_defines_goes_where_no_result_needs_it_and_other_definitions_stay(few: int, kept: set[str]) -> None:
    program = tl.parse(CALLS).f.program(np.zeros(5, np.float32), few=few)
    assert {t.name for d in program.definitions for t in d.tensors} == kept


def test_definitions_that_nothing_needs_go() -> None:
    unused = definition(tensor("t", f32, "n"), ("j",), read("x", "j"))
    assert eliminate_dead(chain(unused, X)) == one(X)


# ---------------------------------------------------------------- simplification

ZERO, ONE = Const(0.0, f32), Const(1.0, f32)
FIRST = Holds(affine.compare("<", "i", 1))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Binary("+", Const(1.0, f32), Const(2.0, f32)), Const(3.0, f32)),
        (Binary("*", X, ONE), X),
        (Binary("+", X, ZERO), Binary("+", X, ZERO)),
        (Binary("+", X, Const(-0.0, f32)), X),
        (Binary("-", X, ZERO), X),
        (Binary("*", X, ZERO), Binary("*", X, ZERO)),
        (Select(Holds(affine.compare("<", "i", "n")), X, ONE), X),
        (Select(Holds(affine.compare("<", "i", 0)), X, ONE), ONE),
        (Select(Holds(FALSE), X, ONE), ONE),
        (Select(Unary("not", Holds(TRUE)), X, ONE), ONE),
        (Select(Holds(affine.compare("<", "i", 1)), X, X), X),
        (
            Select(Holds(affine.compare("<", "i", 1)), ZERO, Const(-0.0, f32)),
            Select(Holds(affine.compare("<", "i", 1)), ZERO, Const(-0.0, f32)),
        ),
        (Cast(f32, X), X),
        (Cast(f32, Cast(f64, X)), X),
        (Cast(f16, Cast(f16, X)), Cast(f16, X)),
        (Cast(f32, Cast(f16, X)), Cast(f16, X)),
        (Cast(f32, Cast(i32, X)), Cast(f32, Cast(i32, X))),
        (Call("sqrt", (Const(4.0, f32),)), Const(2.0, f32)),
    ],
)
def test_what_is_known_is_simplified_and_what_is_not_stays(before: Expr, after: Expr) -> None:
    assert repr(value(simplify(one(before)))) == repr(after)


def test_exact_integer_casts_in_between_go() -> None:
    through = Cast(f32, Cast(i32, read("b", "i")))
    program = Program("p", ("n",), (tensor("b", i8, "n"),), ("y",), (definition(tensor("y", f32, "n"), ("i",), through),))
    assert value(simplify(program)) == Cast(f32, read("b", "i"))


def test_a_padded_read_that_never_leaves_loses_its_padding() -> None:
    inner = affine.conj(affine.compare(">=", "i", 1), affine.compare("<", "i", affine.sub("n", 1)))
    shifted = padded("x", (N("n"),), (affine.sub("i", 1),), ZERO)
    y = definition(tensor("y", f32, "n"), ("i",), Piece(shifted, inner), Piece(ZERO, affine.negate(inner)))
    program = Program("p", ("n",), (tensor("x", f32, "n"),), ("y",), (y,))
    assert value(simplify(program)) == read("x", affine.sub("i", 1))


# ---------------------------------------------------------------- common subexpressions


def test_a_repeated_operation_is_bound_once() -> None:
    e = Call("exp", (X,))
    shared = value(common_subexpressions(one(Binary("*", e, e))))
    assert isinstance(shared, Let) and shared.value == e


def test_what_only_a_side_of_a_select_computes_stays_there() -> None:
    risky = Call("exp", (read("x", affine.sub("i", 1)),))
    guarded = Select(Holds(affine.compare(">=", "i", 1)), Binary("*", risky, risky), ONE)
    assert value(common_subexpressions(one(guarded))) == guarded


def test_sums_are_kept_where_they_stand_by_every_pass() -> None:
    program = one(total(Binary("*", read("x", "k"), X), f32, ("k", 0, N("n"))))
    for after in PASSES.values():
        assert interpret(after(program), {"n": 2}, {"x": np.array([1, 2], np.float32)})["y"].tolist() == [3, 6]


@pytest.mark.parametrize(("condition", "expected"), [("", True), (", e[i, k]", False), (", e[i, k], w[k, i]", False)])
def test_a_reduction_can_be_a_part_of_terms_but_of_no_condition(condition: str, expected: bool) -> None:
    body = f"e[i, k] = any(d) (x[i, d] and w[k, d])\n y[i] = any(k in 0..M{condition}) e[i, k]"
    program = operator("x: bool[M, M], w: bool[M, M]) -> (y: bool[M])", body)
    assert can_repeat(program, program.definitions[0]) is expected
