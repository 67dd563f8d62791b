"""What the interpreter of loops computes with: numbers, or the terms that numbers are computed by.

The machine of `interp` says what statements do; a domain says what values are. `Numbers` are those of `scalars`. In `Symbols` a value may
be a term; a condition over terms has no truth then, and both sides of a `Select` are evaluated. What statements and indices need to know,
the concrete values of the terms decide, and `decided` remembers which conditions that were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from codegen.dtypes import DType, bool_
from codegen.loops import scalars
from codegen.loops.nodes import BinaryOp, Buffer, CompareOp, UnaryOp
from codegen.loops.scalars import Scalar, Value
from codegen.loops.terms import Exceeded, Symbolic, Term, concrete_value

Array: TypeAlias = np.ndarray[Any, Any]


class Domain(Protocol):
    """Values and arithmetic on them, as nodes.py describes it."""

    def literal(self, value: float | int | bool, dtype: DType) -> Value: ...
    def unary(self, op: UnaryOp, x: Value) -> Value: ...
    def binary(self, op: BinaryOp, x: Value, y: Value) -> Value:
        """Return `x op y`, both evaluated already."""
        ...

    def compare(self, op: CompareOp, x: Value, y: Value) -> Value: ...
    def cast(self, dtype: DType, x: Value, saturate: bool) -> Value: ...
    def call(self, fn: str, args: list[Value]) -> Value: ...
    def fma(self, a: Value, b: Value, c: Value) -> Value: ...
    def dot(self, products: Sequence[tuple[Value, Value]], c: Value) -> Value: ...
    def select(self, cond: Value, then: Value, orelse: Value) -> Value:
        """Return the value of a `Select` whose condition is not known."""
        ...

    def constant_truth(self, cond: Value) -> bool | None:
        """Return the truth of a condition, or None when it depends on what is not a number."""
        ...

    def truth(self, cond: Value) -> bool:
        """Return whether what is required holds."""
        ...

    def chosen(self, cond: Value) -> bool:
        """Return whether a statement under this condition runs."""
        ...

    def integer(self, x: Value) -> int:
        """Return the number that an index is."""
        ...

    def absent(self, dtype: DType) -> Value | None:
        """Return what stands for an element that is not there where a side that nobody chooses reads it; None where it is a fault."""
        ...

    def element(self, stored: Any, dtype: DType) -> Scalar: ...
    def blank(self, shape: tuple[int, ...], dtype: DType) -> Array: ...
    def accepts(self, array: Array, like: Buffer) -> bool:
        """Tell whether the caller may give `array` for a buffer."""
        ...


class Numbers:
    """Values are numbers: the arithmetic of `scalars`."""

    def literal(self, value: float | int | bool, dtype: DType) -> Value:
        return Value(dtype, scalars.literal(value, dtype))

    unary = staticmethod(scalars.unary)
    binary = staticmethod(scalars.warned_binary)  # whoever runs loops tells NumPy once not to warn
    compare = staticmethod(scalars.compare)
    cast = staticmethod(scalars.cast)
    call = staticmethod(scalars.call)
    fma = staticmethod(scalars.fma)
    dot = staticmethod(scalars.dot)
    element = staticmethod(scalars.scalar_of)

    def select(self, cond: Value, then: Value, orelse: Value) -> Value:
        return then if cond.scalar else orelse

    def constant_truth(self, cond: Value) -> bool | None:
        return bool(cond.scalar)

    def truth(self, cond: Value) -> bool:
        return bool(cond.scalar)

    chosen = truth

    def integer(self, x: Value) -> int:
        return int(x.scalar)

    def absent(self, dtype: DType) -> Value | None:
        return None

    def blank(self, shape: tuple[int, ...], dtype: DType) -> Array:
        return np.zeros(shape, dtype.numpy)

    def accepts(self, array: Array, like: Buffer) -> bool:
        return bool(array.dtype == like.dtype.numpy)


class Symbols(Symbolic):
    """Values are terms; integers and truth values that no data decides are numbers. Arrays hold either, as objects."""

    __slots__ = ()

    def term(self, x: Value) -> Term:
        """Return a value as a term."""
        return x.scalar if isinstance(x.scalar, Term) else self.terms.const(x.scalar, x.dtype)

    def literal(self, value: float | int | bool, dtype: DType) -> Value:
        scalar = scalars.literal(value, dtype)
        return self._value(self.terms.const(scalar, dtype)) if dtype.is_float else Value(dtype, scalar)

    def unary(self, op: UnaryOp, x: Value) -> Value:
        return self._value(self.terms.unary(op, x.scalar)) if isinstance(x.scalar, Term) else scalars.unary(op, x)

    def binary(self, op: BinaryOp, x: Value, y: Value) -> Value:
        if isinstance(x.scalar, Term) or isinstance(y.scalar, Term):
            return self._value(self.terms.binary(op, self.term(x), self.term(y)))
        if op in ("and", "or"):
            return Value(bool_, (x.scalar and y.scalar) if op == "and" else (x.scalar or y.scalar))
        return scalars.binary(op, x, y)

    def compare(self, op: CompareOp, x: Value, y: Value) -> Value:
        if isinstance(x.scalar, Term) or isinstance(y.scalar, Term):
            return self._value(self.terms.compare(op, self.term(x), self.term(y)))
        return scalars.compare(op, x, y)

    def cast(self, dtype: DType, x: Value, saturate: bool) -> Value:
        if isinstance(x.scalar, Term) or dtype.is_float:
            return self._value(self.terms.cast(dtype, self.term(x), saturate))
        return scalars.cast(dtype, x, saturate)

    def call(self, fn: str, args: list[Value]) -> Value:
        return self._value(self.terms.call(fn, [self.term(a) for a in args]))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self._value(self.terms.fma(self.term(a), self.term(b), self.term(c)))

    def dot(self, products: Sequence[tuple[Value, Value]], c: Value) -> Value:
        return self._value(self.terms.dot([(self.term(x), self.term(y)) for x, y in products], self.term(c)))

    def select(self, cond: Value, then: Value, orelse: Value) -> Value:
        return self._value(self.terms.select(self.term(cond), self.term(then), self.term(orelse)))

    def constant_truth(self, cond: Value) -> bool | None:
        return None if isinstance(cond.scalar, Term) else bool(cond.scalar)

    def truth(self, cond: Value) -> bool:
        return bool(concrete_value(cond.scalar) if isinstance(cond.scalar, Term) else cond.scalar)

    def chosen(self, cond: Value) -> bool:
        return self.decide(cond.scalar) if isinstance(cond.scalar, Term) else bool(cond.scalar)

    def integer(self, x: Value) -> int:
        return int(concrete_value(x.scalar) if isinstance(x.scalar, Term) else x.scalar)

    def absent(self, dtype: DType) -> Value | None:
        return Value(dtype, self.terms.hole)

    def element(self, stored: Any, dtype: DType) -> Scalar:
        self.terms.spend()
        return stored

    def _value(self, t: Term) -> Value:
        """Return a term as a value; an integer or truth that is known as a number."""
        return Value(t.dtype, t.concrete if t.op == "const" and not t.dtype.is_float else t)


__all__ = ["Domain", "Exceeded", "Numbers", "Symbols"]
