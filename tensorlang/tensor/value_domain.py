"""What the interpreter of programs computes with: arrays of numbers, or arrays of the terms that numbers are computed by.

The evaluator of `interp` says what programs mean; `Carried` says what the elements of its arrays are. `Numbers` are those of `arith`. In
`Symbols` every element is a `codegen.loops.terms.Term`; where a condition is no constant both sides are evaluated, and what is then read
where nothing is has no value (`hole`). Where data decides what is read at all (an index, a filter) the concrete values of terms do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from codegen.dtypes import DType, bool_, compute_dtype, f32, i64
from codegen.loops.terms import Symbolic, Term, concrete_value, key, leaves_of
from tensorlang.tensor import arith
from tensorlang.tensor.arith import Array
from tensorlang.tensor.facts import is_choice
from tensorlang.tensor.nodes import Reducer


class Carried(Protocol):
    """Arrays of carried values (`arith`) and operations on them, element by element."""

    def blank(self, shape: Any, dtype: DType) -> Array: ...
    def load(self, array: Array, dtype: DType) -> Array: ...
    def store(self, values: Array, dtype: DType) -> Array: ...
    def accepts(self, array: Array, like: DType) -> bool:
        """Tell whether the caller may give `array` for a tensor of this type."""
        ...

    def constant(self, value: float | int | bool, dtype: DType, count: int) -> Array: ...
    def from_indices(self, values: Array) -> Array:
        """Return index values, or truths of conditions over indices, as values."""
        ...

    def rounded(self, values: Array, dtype: DType) -> Array: ...
    def unary(self, op: str, a: Array, dtype: DType) -> Array: ...
    def binary(self, op: str, a: Array, b: Array, dtype: DType) -> Array: ...
    def compare(self, op: str, a: Array, b: Array) -> Array: ...
    def cast(self, values: Array, source: DType, target: DType, saturate: bool) -> Array: ...
    def call(self, fn: str, args: list[Array], dtype: DType) -> Array: ...
    def select(self, cond: Array, then: Array, orelse: Array) -> Array:
        """Return the values of a `Select` whose conditions are undecided."""
        ...

    def undecided(self, cond: Array) -> Array:
        """Return a mask of the conditions that are neither true nor false."""
        ...

    def truth(self, cond: Array) -> Array:
        """Return which conditions hold, as a mask; of what is not decided, for this data."""
        ...

    def integers(self, values: Array) -> Array:
        """Return integers as NumPy's, for this data."""
        ...

    def reals(self, values: Array) -> Array:
        """Return floats as NumPy's f64, for this data."""
        ...

    def accumulate(self, kind: str, values: Array, dtype: DType) -> Array | None:
        """Return the fold of `values` along their second axis, or None where nothing is quicker than one step after the other."""
        ...

    def joined(self, kind: str, left: Array, right: Array, dtype: DType) -> Array | None:
        """Return one step of a fold, or None where it is what the reducer's own expressions are."""
        ...

    def met(self, reducer: Reducer, left: Sequence[Array], right: Sequence[Array]) -> None:
        """Take notice of what a reducer combines by its own expressions."""
        ...


class Numbers:
    """Elements are numbers, carried as `arith` says."""

    load = staticmethod(arith.load)
    store = staticmethod(arith.store)
    constant = staticmethod(arith.constant)
    rounded = staticmethod(arith.rounded)
    unary = staticmethod(arith.unary)
    binary = staticmethod(arith.binary)
    compare = staticmethod(arith.compare)
    cast = staticmethod(arith.cast)
    call = staticmethod(arith.call)
    accumulate = staticmethod(arith.accumulate)

    def blank(self, shape: Any, dtype: DType) -> Array:
        return np.zeros(shape, arith.carrier(dtype))

    def accepts(self, array: Array, like: DType) -> bool:
        return bool(array.dtype == like.numpy)

    def from_indices(self, values: Array) -> Array:
        return values

    def select(self, cond: Array, then: Array, orelse: Array) -> Array:
        return np.where(cond, then, orelse)

    def undecided(self, cond: Array) -> Array:
        return np.zeros(cond.shape, np.bool_)

    def truth(self, cond: Array) -> Array:
        return cond

    def integers(self, values: Array) -> Array:
        if values.dtype == np.uint64:
            values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
        return values.astype(np.int64)

    def reals(self, values: Array) -> Array:
        return values.astype(np.float64)

    def joined(self, kind: str, left: Array, right: Array, dtype: DType) -> Array | None:
        return None

    def met(self, reducer: Reducer, left: Sequence[Array], right: Sequence[Array]) -> None:
        pass


_FREE = {"sum": "sum", "prod": "prod", "min": "min", "max": "max", "any": "or", "all": "and"}
_ORDERED = {**_FREE, "sum": "+", "prod": "*"}


@dataclass(slots=True)
class Symbols(Symbolic):
    """Elements are terms. `free`: sums and products of reducers may be regrouped, and say so by nodes of their own. `choices`: by reducer,
    the keys of terms that it chooses among in any order; `regrouped`: of those that compute with their terms in any order, the leaves of
    these."""

    free: bool = field(kw_only=True)
    choices: dict[Reducer, set[int]] = field(default_factory=dict)
    regrouped: dict[Reducer, set[int]] = field(default_factory=dict)
    _seen: dict[Reducer, set[int]] = field(default_factory=dict)

    def load(self, array: Array, dtype: DType) -> Array:
        return self._each(lambda x: self.terms.cast(compute_dtype(dtype), x), array)

    def store(self, values: Array, dtype: DType) -> Array:
        return self._each(lambda x: self.terms.cast(dtype, x), values)

    def constant(self, value: float | int | bool, dtype: DType, count: int) -> Array:
        scalar = arith.constant(value, dtype, 1)[0]
        return np.full(count, self.terms.const(scalar, compute_dtype(dtype)), object)

    def from_indices(self, values: Array) -> Array:
        dtype = bool_ if values.dtype == np.bool_ else i64
        return self._each(lambda x: self.terms.const(x, dtype), values)

    def rounded(self, values: Array, dtype: DType) -> Array:
        if compute_dtype(dtype) == dtype:
            return values
        return self._each(lambda x: self.terms.cast(f32, self.terms.cast(dtype, x)), values)

    def unary(self, op: str, a: Array, dtype: DType) -> Array:
        return self._each(lambda x: self.terms.unary(op, x), a)

    def binary(self, op: str, a: Array, b: Array, dtype: DType) -> Array:
        return self._each(lambda x, y: self.terms.binary(op, x, y), a, b)

    def compare(self, op: str, a: Array, b: Array) -> Array:
        return self._each(lambda x, y: self.terms.compare(op, x, y), a, b)

    def cast(self, values: Array, source: DType, target: DType, saturate: bool) -> Array:
        return self._each(lambda x: self.terms.cast(compute_dtype(target), self.terms.cast(target, x, saturate)), values)

    def call(self, fn: str, args: list[Array], dtype: DType) -> Array:
        return self._each(lambda *xs: self.terms.call(fn, xs), *args)

    def select(self, cond: Array, then: Array, orelse: Array) -> Array:
        return self._each(self.terms.select, cond, then, orelse)

    def undecided(self, cond: Array) -> Array:
        return np.array([t.op != "const" for t in cond.flat], np.bool_).reshape(cond.shape)

    def truth(self, cond: Array) -> Array:
        return np.array([self.decide(t) for t in cond.flat], np.bool_).reshape(cond.shape)

    def integers(self, values: Array) -> Array:
        return np.array([min(int(concrete_value(t)), 2**63 - 1) for t in values.flat], np.int64).reshape(values.shape)

    def reals(self, values: Array) -> Array:
        return np.array([float(concrete_value(t)) for t in values.flat], np.float64).reshape(values.shape)

    def accumulate(self, kind: str, values: Array, dtype: DType) -> Array | None:
        total = values[:, 0]
        for k in range(1, values.shape[1]):
            total = self._step(kind, total, values[:, k])
        return total

    def joined(self, kind: str, left: Array, right: Array, dtype: DType) -> Array | None:
        return self._step(kind, left, right)

    def met(self, reducer: Reducer, left: Sequence[Array], right: Sequence[Array]) -> None:
        if self.free and reducer.commutative and is_choice(reducer):
            self.choices.setdefault(reducer, set()).update(key(t) for values in (*left, *right) for t in values.flat)
        elif self.free and reducer.commutative:
            terms = (t for values in (*left, *right) for t in values.flat)
            self.regrouped.setdefault(reducer, set()).update(leaves_of(*terms, without=self._seen.setdefault(reducer, set())))

    def _step(self, kind: str, left: Array, right: Array) -> Array:
        op = (_FREE if self.free else _ORDERED)[kind]
        return self._each(lambda x, y: self.terms.binary(op, x, y), left, right)

    def _each(self, f: Callable[..., Term], *arrays: Array) -> Array:
        out = np.empty(arrays[0].shape, object)
        flat = out.reshape(-1)
        for k, xs in enumerate(zip(*(a.flat for a in arrays), strict=True)):
            flat[k] = f(*xs)
        return out
