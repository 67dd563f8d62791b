"""Reductions inside reductions become tensors of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from strategies_tensor import Case, cases, definition, max_of, read, sum_of, tensor, total

from codegen.dtypes import f32, i64
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Int
from polyhedral.expr import Name as N
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nested import lift_nested
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Compare,
    Const,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Program,
    Project,
    Reduce,
    Reducer,
    Select,
)
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.scop import to_scop
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import reduces, value_names

SIZES = ("n", "m")
PARAMS = (tensor("x", f32, "n"), tensor("a", f32, "n", "m"))


def of(value: Expr) -> Program:
    program = verify(Program("p", SIZES, PARAMS, ("y",), (definition(tensor("y", f32, "n"), ("i",), value),)))
    prove(program)
    return program


def assert_lifted(program: Program, lifted: Program) -> None:
    prove(verify(lifted))
    found = [r for d in lifted.definitions for p in d.pieces for r in reduces(p.value)]
    assert not any(len(list(reduces(r))) > 1 or value_names(r) for r in found)
    to_scop(lifted)


X = read("x", "k")
INNER = total(read("a", "k", "j"), f32, ("j", 0, N("m")))
TRIANGLE = total(read("x", "j"), f32, ("j", 0, affine.add("k", 1)))
BEFORE = total(read("x", affine.sub("k", 1)), f32, ("j", 0, 2))
ARGMAX = Reducer(
    "argmax",
    ("v", "s"),
    ("w", "t"),
    (f32, i64),
    (Select(Compare(">=", Name("v"), Name("w")), Name("v"), Name("w")), Select(Compare(">=", Name("v"), Name("w")), Name("s"), Name("t"))),
    (Const(float("-inf"), f32), Const(0, i64)),
)
BEST = Reduce(ARGMAX, (Binder("j", Int(0), N("m")),), (read("a", "k", "j"), IndexValue(N("j"))))
NESTED = {
    "rows": total(Binary("*", X, INNER), f32, ("k", 0, N("n"))),
    "triangle": total(Binary("*", X, TRIANGLE), f32, ("k", 0, N("i"))),
    "shifted": total(TRIANGLE, f32, ("k", N("i"), N("n"))),
    "guarded": total(
        Select(Holds(affine.compare(">=", "k", 1)), total(read("x", affine.sub("k", 1)), f32, ("j", 0, 2)), X), f32, ("k", 0, N("n"))
    ),
    "deep": total(total(total(read("a", "h", "j"), f32, ("h", 0, affine.add("k", 1))), f32, ("j", 0, N("m"))), f32, ("k", 0, N("i"))),
    "tuple": total(Project(BEST, 0), f32, ("k", 0, N("n"))),
    "start": Reduce(sum_of(f32), (Binder("k", Int(0), N("n")),), (X,), init=(total(read("a", "i", "j"), f32, ("j", 0, N("m"))),)),
    "no identity": total(Reduce(max_of(f32), (Binder("j", Int(0), affine.add("k", 1)),), (read("x", "j"),)), f32, ("k", 0, N("i"))),
    "let": Let("v", Binary("*", read("x", "i"), Const(2.0, f32)), total(Binary("*", Name("v"), X), f32, ("k", 0, N("n")))),
    "let of a sum": Let("v", total(X, f32, ("k", 0, N("n"))), total(Binary("*", Name("v"), read("x", "h")), f32, ("h", 0, N("n")))),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_reductions_are_lifted_and_nothing_changes(name: str) -> None:
    program = of(NESTED[name])
    rng = np.random.default_rng(1)
    for n, m in ((0, 2), (1, 0), (4, 3)):
        arrays = {"x": rng.standard_normal(n).astype(np.float32), "a": rng.standard_normal((n, m)).astype(np.float32)}
        before = interpret(program, {"n": n, "m": m}, arrays)["y"]
        for lifted in (lift_nested(program), lift(program)):
            assert_lifted(program, lifted)
            assert interpret(lifted, {"n": n, "m": m}, arrays)["y"].tobytes() == before.tobytes()


def test_a_triangular_sum_becomes_a_tensor_over_the_index_it_uses() -> None:
    assert show(lift_nested(of(NESTED["triangle"]))).splitlines()[1:3] == [
        "    y[i] = sum(k in 0..i) x[k] * `y.sum`[k]",
        "    `y.sum`[k_1] = sum(j in 0..k_1 + 1) x[j] for k_1 in 0..n - 1",
    ]


@pytest.mark.parametrize(("of_all", "axes"), [(False, "k_1, i_1"), (True, "i_1, k_1, h_1")])
def test_the_axis_along_which_what_is_read_lies_side_by_side_comes_last(of_all: bool, axes: str) -> None:
    inner: Expr = Binary("*", read("a", "j", "i"), read("a", "k", "j"))
    inner = total(Binary("*", inner, read("x", "h")) if of_all else inner, f32, ("j", 0, N("n")))
    value = Reduce(sum_of(f32), (Binder("k", Int(0), N("n")), Binder("h", Int(0), N("n"))), (Binary("*", inner, read("x", "h")),))
    parameters = (tensor("a", f32, "n", "n"), tensor("x", f32, "n"))
    program = Program("p", ("n",), parameters, ("y",), (definition(tensor("y", f32, "n"), ("i",), value),))
    prove(verify(program))
    assert f"`y.sum`[{axes}] = sum(j in 0..n) a[j, i_1] * a[k_1, j]" in show(lift_nested(program))


@pytest.mark.parametrize(
    ("inner", "left_out", "pieces"),
    [
        pytest.param(total(Binary("*", read("a", "k", "j"), read("a", "i", "j")), f32, ("j", 0, N("m"))), N("i"), 1, id="read in bounds"),
        pytest.param(BEFORE, Int(0), 2, id="not read at all"),
    ],
)
def test_elements_that_an_inequation_leaves_out_are_computed_where_they_can_be(inner: Expr, left_out: Affine, pieces: int) -> None:
    outer = replace(total(Binary("*", X, inner), f32, ("k", 0, N("n"))), where=affine.compare("!=", N("k"), left_out))
    lifted = lift_nested(of(outer))
    assert_lifted(of(outer), lifted)
    assert len(lifted.definitions[-1].pieces) == pieces


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_random_programs_can_always_be_cut_into_statements(case: Case) -> None:
    lifted = lift(case.program)
    assert_lifted(case.program, lifted)
    before, after = interpret(case.program, case.sizes, case.arrays), interpret(lifted, case.sizes, case.arrays)
    assert {n: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}
