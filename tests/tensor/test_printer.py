"""Programs print as the language, and what is printed reads back as the same program."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from strategies_tensor import Case, cases, conv, cumsum, definition, heat, matmul, read, softmax, tensor, total

from codegen.dtypes import bool_, f16, f32, f64, i8, i64
from polyhedral import affine
from polyhedral.expr import Int
from polyhedral.expr import Name as N
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Call,
    Cast,
    Compare,
    Const,
    Dynamic,
    Expr,
    IndexValue,
    Name,
    Program,
    Project,
    Read,
    Reduce,
    Reducer,
    Select,
    Unary,
)
from tensorlang.tensor.printer import literal, show
from tensorlang.tensor.verify import verify


def is_plain(program: Program) -> bool:
    return all(isinstance(s, Int | N) for t in program.params for s in t.shape)


def read_back(program: Program) -> Program:
    """Return what parsing and checking make of the printed program."""
    module = replace(load_module(parse(Source("shown.tl", show(program)))), trusted=True)
    args = [
        ArgType(p.dtype, tuple(s.value if isinstance(s, Int) else s.name for s in p.shape if isinstance(s, Int | N)))
        for p in program.params
    ]
    bound = {s.name for p in program.params for s in p.shape if isinstance(s, N)}
    return instantiate(module, program.name, args, sizes={s: s for s in program.sizes if s not in bound}, symbolic=True)


@pytest.mark.parametrize("program", [matmul(), matmul(f16), matmul(i8), conv(), cumsum(), softmax(), heat()], ids=lambda p: p.name)
def test_a_program_reads_back_equal(program: Program) -> None:
    assert read_back(program) == program


@given(cases())
@settings(max_examples=40, deadline=None)
def test_a_random_program_reads_back_with_the_same_results(case: Case) -> None:
    assume(is_plain(case.program))
    again = verify(read_back(case.program))
    before = interpret(case.program, case.sizes, case.arrays)
    after = interpret(again, {s: case.sizes[s] for s in again.sizes}, case.arrays)
    assert {n: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}


def test_a_stencil_in_time_is_shown_with_its_clauses() -> None:
    assert show(heat()) == (
        "op heat(size T, x: f32[n]) -> (y: f32[n]) {\n"
        "    s[t, i] = x[i] for t in 0..T + 1, i in 0..n, t == 0\n"
        "    s[t, i] = 0.5 * s[t - 1, i] + 0.25 * (s[t - 1, i - 1] + s[t - 1, i + 1])"
        " for t in 0..T + 1, i in 0..n, t >= 1, i >= 1, i < n - 1\n"
        "    s[t, i] = s[t - 1, i] otherwise\n"
        "    y[i] = s[T, i]\n"
        "}\n"
    )


def body(value: Expr) -> str:
    """Return how the value of y[i] is shown."""
    params = (tensor("x", f32, "n"), tensor("ids", i64, "n"))
    text = show(Program("p", ("n",), params, ("y",), (definition(tensor("y", f32, "n"), ("i",), value),)))
    return text.splitlines()[-2].removeprefix("    y[i] = ")


X = read("x", "i")
ONE = Const(1.0, f32)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Binary("*", Binary("+", X, ONE), Unary("neg", X)), "(x[i] + 1.0) * -x[i]"),
        (Binary("-", X, Binary("-", X, ONE)), "x[i] - (x[i] - 1.0)"),
        (Binary("/", total(X, f32, ("k", 0, 3)), X), "(sum(k in 0..3) x[i]) / x[i]"),
        (Binary("+", X, total(Binary("*", X, ONE), f32, ("k", 0, 3))), "x[i] + sum(k in 0..3) x[i] * 1.0"),
        (total(Binary("+", X, ONE), f32, ("k", 0, 3)), "sum(k in 0..3) (x[i] + 1.0)"),
        (Select(Compare("<", X, ONE), X, Const(-math.inf, f32)), "if x[i] < 1.0 then x[i] else -inf"),
        (Cast(f32, IndexValue(affine.add("i", 1))), "f32(i + 1)"),
        (Read("x", (Dynamic(read("ids", "i"), Int(0), N("n")),)), "x[ids[i]]"),
        (Binary("max", X, ONE), "max(x[i], 1.0)"),
        (Call("exp", (X,)), "exp(x[i])"),
        (read("x", affine.mod(affine.add(affine.scale(2, "i"), 1), 3)), "x[(2*i + 1) % 3]"),
    ],
)
def test_expressions_have_no_more_parentheses_than_they_need(value: Expr, text: str) -> None:
    assert body(value) == text


def test_literals_are_exact() -> None:
    third = float(f32.numpy.type(1 / 3))
    assert float(literal(third, f32)) == third and literal(0.1, f64) == "0.1"
    assert [literal(v, f32) for v in (math.nan, math.inf, -0.0)] == ["nan", "inf", "-0.0"]
    assert literal(True, bool_) == "true" and literal(-3, i8) == "-3"


def test_foreign_names_stand_in_backquotes() -> None:
    program = Program("a.b", ("n",), (tensor("x/1", f32, "n"),), ("for",), (definition(tensor("for", f32, "n"), ("i",), read("x/1", "i")),))
    assert show(program) == "op `a.b`(`x/1`: f32[n]) -> (`for`: f32[n]) {\n    `for`[i] = `x/1`[i]\n}\n"
    assert read_back(program) == program


def test_reducers_that_the_prelude_lacks_are_declared_with_what_is_taken_of_them() -> None:
    v, i, w, j = map(Name, ("v", "i", "w", "j"))
    first = Compare(">=", v, w)
    argmax = Reducer("argmax", ("v", "i"), ("w", "j"), (f32, i64), (Select(first, v, w), Select(first, i, j)), None)
    found = Project(Reduce(argmax, (Binder("k", Int(0), N("n")),), (read("x", "k"), IndexValue(N("k")))), 1)
    program = Program("p", ("n",), (tensor("x", f32, "n"),), ("y",), (definition(tensor("y", i64), (), found),))
    assert show(program) == (
        "reducer argmax (v, i) (w, j) from none = (if v >= w then v else w, if v >= w then i else j)\n"
        "    yield (v, i) = i\n\n"
        "op p(x: f32[n]) -> (y: i64) {\n"
        "    y = argmax(k in 0..n) (x[k], i64(k))\n"
        "}\n"
    )
    assert read_back(program) == program


def test_grouped_axes_are_shown_as_one_dimension() -> None:
    x = replace(tensor("x", f32, 2, "n"), grouping=(2,))
    program = Program("p", ("n",), (x,), ("y",), (definition(tensor("y", f32, "n"), ("i",), read("x", 1, "i")),))
    assert "x: f32[(2, n)]" in show(program) and "x[(1, i)]" in show(program)
