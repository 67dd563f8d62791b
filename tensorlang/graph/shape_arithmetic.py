"""Programs on a few integers some of which are open sizes, evaluated when a model is imported: shape arithmetic becomes expressions.

The interpreter of programs says what they mean (`tensor/interp.py`); here the elements of its arrays are integers, truths, sizes and, of
floats, what they are rounded from (`graph/ratios.py`). What has no exact meaning for sizes (most functions of floats, bits, an index that
is open) is not evaluated: kernels compute it when the model runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from codegen.dtypes import DType
from tensorlang.check.types import limits
from tensorlang.graph.ratios import Inexact, Ratio, ratio
from tensorlang.graph.sizes import OpenSize, Size, maximum, minimum
from tensorlang.tensor.arith import Array
from tensorlang.tensor.interp import Evaluator
from tensorlang.tensor.nodes import Program, Reducer


class _Beyond(Exception):
    """Something that sizes do not compute."""


def of_sizes(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array] | None:
    """Return the results of a program by name, arrays of integers, truths, sizes and ratios; None where it does what sizes do not."""
    try:
        evaluator = Evaluator(program, {}, arrays, _Sizes())
        evaluator.run()
        return evaluator.results()
    except (_Beyond, Inexact, OpenSize):
        return None


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": lambda a, b: minimum(a, b) if _are_sizes(a, b) else min(a, b),
    "max": lambda a, b: maximum(a, b) if _are_sizes(a, b) else max(a, b),
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}
_UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "abs": abs, "not": operator.not_}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_ROUND: dict[str, Callable[[Ratio], Any]] = {"floor": Ratio.floor, "ceil": Ratio.ceil, "trunc": Ratio.trunc}
_DIGITS = {"f32": 24, "f64": 53}
"""Of floats that are evaluated."""


class _Sizes:
    """Elements are integers, truths, sizes and ratios (`tensorlang.tensor.value_domain.Carried`)."""

    def blank(self, shape: Any, dtype: DType) -> Array:
        return np.full(shape, 0, object)

    def load(self, array: Array, dtype: DType) -> Array:
        _check(dtype)
        return _each(lambda v: as_float(v, dtype), array) if dtype.is_float else array.astype(object)

    def store(self, values: Array, dtype: DType) -> Array:
        return values

    def accepts(self, array: Array, like: DType) -> bool:
        return True

    def constant(self, value: float | int | bool, dtype: DType, count: int) -> Array:
        _check(dtype)
        return np.full(count, as_float(value, dtype) if dtype.is_float else value, object)

    def from_indices(self, values: Array) -> Array:
        return values.astype(object)

    def rounded(self, values: Array, dtype: DType) -> Array:
        return values

    def unary(self, op: str, a: Array, dtype: DType) -> Array:
        return _each(_known(_UNARY, op), a)

    def binary(self, op: str, a: Array, b: Array, dtype: DType) -> Array:
        return _each(_known(_BINARY, op), a, b)

    def compare(self, op: str, a: Array, b: Array) -> Array:
        return _each(_known(_COMPARE, op), a, b)

    def cast(self, values: Array, source: DType, target: DType, saturate: bool) -> Array:
        _check(target)
        if target.is_float:
            return _each(lambda v: as_float(v, target), values)
        if source.is_float:
            values = _each(lambda v: v.trunc().whole, values)
        if target.kind == "bool":
            return _each(bool, values)
        lowest, highest = limits(target)
        if not all(lowest <= int_or_size(v) <= highest for v in values.flat):
            raise _Beyond
        return _each(int_or_size, values)

    def call(self, fn: str, args: list[Array], dtype: DType) -> Array:
        return _each(_known(_ROUND, fn), *args)

    def select(self, cond: Array, then: Array, orelse: Array) -> Array:
        raise _Beyond

    def undecided(self, cond: Array) -> Array:
        return np.zeros(cond.shape, np.bool_)

    def truth(self, cond: Array) -> Array:
        return np.array([bool(c) for c in cond.flat], np.bool_).reshape(cond.shape)

    def integers(self, values: Array) -> Array:
        return np.array([operator.index(v) for v in values.flat], np.int64).reshape(values.shape)

    def reals(self, values: Array) -> Array:
        return np.array([float(v) for v in values.flat], np.float64).reshape(values.shape)

    def accumulate(self, kind: str, values: Array, dtype: DType) -> Array | None:
        return None

    def joined(self, kind: str, left: Array, right: Array, dtype: DType) -> Array | None:
        return None

    def met(self, reducer: Reducer, left: Sequence[Array], right: Sequence[Array]) -> None:
        pass


def _are_sizes(*values: Any) -> bool:
    return all(isinstance(v, (int, Size)) for v in values) and any(isinstance(v, Size) for v in values)


def int_or_size(value: Any) -> Any:
    """Return an element as an integer of Python's, where it is no size."""
    return int(value) if isinstance(value, (bool, int, np.integer, np.bool_)) else value


def _check(dtype: DType) -> None:
    if not (dtype.is_integer or dtype.kind == "bool" or dtype.name in _DIGITS):
        raise _Beyond


def as_float(value: Any, dtype: DType) -> Ratio:
    """Return a number or a size as a float of a type of `_DIGITS`. Raises Inexact where it is not known."""
    digits = _DIGITS[dtype.name]
    if isinstance(value, Ratio):
        return value.cast(digits)
    return ratio(dtype.numpy.type(value) if isinstance(value, (float, np.floating)) else int_or_size(value), digits)


def _known(table: Mapping[str, Callable[..., Any]], op: str) -> Callable[..., Any]:
    found = table.get(op)
    if found is None:
        raise _Beyond
    return found


def _each(f: Callable[..., Any], *arrays: Array) -> Array:
    out = np.empty(arrays[0].shape, object)
    flat = out.reshape(-1)
    for k, xs in enumerate(zip(*(a.flat for a in arrays), strict=True)):
        flat[k] = f(*xs)
    return out
