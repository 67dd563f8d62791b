"""A program that breaks an invariant of the tensor IR is refused, with what is broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from strategies_tensor import conv, cumsum, definition, heat, matmul, read, softmax, sum_of, tensor, total

from codegen.dtypes import DType, bf16, bool_, f32, i8, i64
from polyhedral import affine
from polyhedral.expr import Name as N
from tensorlang.diagnostics import InternalError
from tensorlang.tensor.nodes import (
    Binary,
    Call,
    Cast,
    Const,
    Definition,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Piece,
    Program,
    Project,
    Select,
    Tensor,
    TupleOf,
)
from tensorlang.tensor.verify import verify


@pytest.mark.parametrize("program", [matmul(), matmul(bf16), matmul(i8), conv(), cumsum(), softmax(), heat()], ids=lambda p: p.name)
def test_well_formed_programs_pass(program: Program) -> None:
    assert verify(program) is program


X = read("x", "i")


def of(value: Expr, dtype: DType = f32) -> Program:
    return Program("p", ("n",), (tensor("x", f32, "n"),), ("y",), (definition(tensor("y", dtype, "n"), ("i",), value),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Binary("+", X, IndexValue(N("i"))), "f32 and i64 meet"),
        (Binary("+", X, Const(1.0, bf16)), "constant of the narrow type bf16"),
        (Const(300, i8), "300 does not fit i8"),
        (Const(0.1, f32), "0.1 does not fit f32"),
        (read("x", "j"), "mentions j, which nothing binds"),
        (read("z", "i"), "`z`, which is no tensor"),
        (read("x", "i", "i"), "2 indices for `x` of rank 1"),
        (Name("v"), "`v` is not bound"),
        (Call("exp", (IndexValue(N("i")),)), "a float is needed"),
        (Call("foo", (X,)), "no elementary function `foo`"),
        (Select(X, X, X), "bool is needed"),
        (Select(Holds(affine.compare("<", "i", 1)), X, IndexValue(N("i"))), "the sides of a select are f32 and i64"),
        (IndexValue(N("i")), "value of i64 for f32"),
        (TupleOf((X, X)), "value of f32, f32 for f32"),
        (Project(X, 0), "component 0 of f32"),
        (Cast(bf16, TupleOf((X,))), "a tuple where one value is needed"),
        (Let("i", X, Name("i")), "bound more than once: i"),
        (total(X, f32, ("i", 0, 3)), "bound more than once: i"),
        (total(X, f32, ("k", 0, N("h"))), "range of `k` mentions h"),
        (total(IndexValue(N("k")), f32, ("k", 0, 3)), "`sum` of f32 over a body of i64"),
        (Binary("and", X, X), "bool is needed"),
        (Binary("/", IndexValue(N("i")), IndexValue(N("i"))), "a float is needed"),
    ],
)
def test_a_broken_expression_is_refused(value: Expr, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(of(value))


def test_a_narrow_accumulator_is_refused() -> None:
    reducer = replace(sum_of(f32), dtypes=(bf16,))
    with pytest.raises(InternalError, match="accumulator of a narrow type"):
        verify(of(replace(total(X, f32, ("k", 0, 3)), reducer=reducer)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"results": ("z",)}, "not all defined"),
        ({"sizes": ("n", "n")}, "bound more than once: n"),
        ({"params": (tensor("y", f32, "n"),)}, "bound more than once: y"),
        ({"params": (tensor("x", f32, "m"),)}, "tensor `x` mentions m"),
        ({"context": affine.compare("<", "i", "n")}, "the context mentions i"),
        ({"params": (replace(tensor("x", f32, "n"), grouping=(2,)),)}, "grouping"),
    ],
)
def test_a_broken_signature_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(replace(of(X), **change))


def test_tensors_defined_together_have_one_shape_and_one_value_each() -> None:
    def both(second: Tensor) -> Program:
        pair = Definition((tensor("y", f32, "n"), second), ("i",), (Piece(TupleOf((X, Holds(affine.compare("<", "i", 1))))),))
        return replace(of(X), definitions=(pair,))

    verify(both(tensor("z", bool_, "n")))
    with pytest.raises(InternalError, match="differ in shape"):
        verify(both(tensor("z", bool_, affine.add("n", 1))))
    with pytest.raises(InternalError, match="value of f32, bool for f32, i64"):
        verify(both(tensor("z", i64, "n")))
    with pytest.raises(InternalError, match="1 axes for `z` of rank 2"):
        verify(both(tensor("z", bool_, "n", "n")))


def test_a_guard_is_over_axes_and_sizes() -> None:
    loose = replace(of(X), definitions=(definition(tensor("y", f32, "n"), ("i",), Piece(X, affine.compare("<", "k", 1))),))
    with pytest.raises(InternalError, match="guard mentions k"):
        verify(loose)
