"""What kernels computed floats from: text run by the emulator on terms instead of numbers, and the terms that it leaves.

    trace = Trace(build(kernels, terms=True), limit)
    x = trace.given(f32, numbers)                           numbers of leaves, in the bits that floats have
    emulator.run(program, sizes, {"x": x, "y": y}, …)
    trace.terms(terms, leaves).of(f32, y)                   the terms of `codegen.loops.terms`, as loops have them

An element of a float type holds which of the terms of its type it is (`prelude/emulator/terms.h`), so that nothing that moves elements
knows of it: swizzles, copies, shuffles and lanes do to terms what they do to numbers. No two terms share a number, so nothing is left to
chance here. Types of few bits have few numbers: what needs more is too large, and leaves of such types may stand for several elements.

Integers are numbers. Where they come of floats, `Terms` (here one of `ConcreteTerms`) is asked the same as the text asked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from codegen.dtypes import DTYPES, DType, bf16, bool_, f32
from codegen.gpu.emulator import Library
from codegen.loops.scalars import Scalar
from codegen.loops.terms import COMPARISONS, Term, Terms, comparison, concrete_value, key

Array: TypeAlias = np.ndarray[Any, Any]

_TYPES: Final = ("f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1")
_ENTRY: Final = np.dtype([("op", "S16"), ("type", "S16"), ("operands", "i4", 3), ("bits", "u4"), ("value", "f8")])
_BITS: Final[Mapping[int, np.dtype[Any]]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
_BINARY: Final = frozenset(("+", "-", "*", "/", "//", "%", "min", "max"))
_ORDERED: Final = COMPARISONS | {">", ">="}


def memory_of(dtype: DType) -> np.dtype[Any]:
    """Return the elements of a buffer of `dtype`: of floats, unsigned numbers of as many bits."""
    return _BITS[8 * dtype.size_bytes] if dtype.is_float else dtype.numpy


class ConcreteTerms(Terms):
    """Terms whose comparisons and conversions to integers are what concrete values give; `asked` are these by what was asked."""

    def __init__(self, budget: int = 1 << 62) -> None:
        super().__init__(budget, decides=True)
        self.asked: dict[tuple[object, ...], Scalar] = {}
        self._casts: dict[tuple[str, int, bool], Term] = {}

    def compare(self, op: str, x: Term, y: Term) -> Term:
        made = super().compare(op, x, y)
        return made if made.op == "const" else self._answer(comparison(made), made)

    def cast(self, dtype: DType, x: Term, saturate: bool = False) -> Term:
        """Return `x` converted. `round_bf16` is what a conversion to bf16 and back is, and lost in another one."""
        if not dtype.is_float:
            return self._cast(dtype, x, saturate)
        at = dtype.name, x.serial, saturate
        if at not in self._casts:
            self._casts[at] = self._cast(dtype, x, saturate)
        return self._casts[at]

    def _cast(self, dtype: DType, x: Term, saturate: bool) -> Term:
        if x.op == "call round_bf16" and dtype == bf16:
            x = x.args[0]
        if dtype == f32 and x.op == "cast" and x.dtype == bf16 and x.args[0].dtype == f32:
            return self.call("round_bf16", x.args)
        if dtype == bool_ and x.dtype.is_float:
            return self.compare("!=", x, self.const(0.0, x.dtype))
        made = super().cast(dtype, x, saturate)
        return self._answer((dtype.name, key(x)), made) if x.dtype.is_float and not dtype.is_float and made.op != "const" else made

    def call(self, fn: str, args: Sequence[Term]) -> Term:
        made = super().call(fn, args)
        return self._answer((fn, key(args[0])), made) if not made.dtype.is_float and made.op != "const" else made

    def _answer(self, question: tuple[object, ...], made: Term) -> Term:
        try:
            return self.const(self.asked.setdefault(question, concrete_value(made)), made.dtype)
        except LookupError:
            return self.hole  # asked of what nobody has written: it matters where a result comes of it


@dataclass(frozen=True, slots=True)
class Traced:
    """Terms of what was run, by the numbers that stand for them in memory; `inconsistent`: whether an answer was another one."""

    by_bits: Mapping[str, Sequence[Term]]
    undefined: Term
    inconsistent: bool

    def of(self, dtype: DType, elements: Array, terms: Terms) -> Array:
        """Return the terms of elements of memory: constants of what is no float."""
        out = np.empty(elements.shape, object)
        known = self.by_bits.get(dtype.name, ())
        for k, element in enumerate(elements.flat):
            if not dtype.is_float:
                out.flat[k] = terms.const(element, dtype)
            else:
                out.flat[k] = known[element] if element < len(known) else self.undefined
        return out


class Trace:
    """The terms of one library of the emulator, at most `limit` of them."""

    def __init__(self, library: Library, limit: int) -> None:
        self._code = library.code
        self._code.tl_terms_leaf.restype = ctypes.c_uint64
        self._code.tl_terms_leaf.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_double)
        self._code.tl_terms_entries.restype = ctypes.c_void_p
        self._code.tl_terms_begin(ctypes.c_int(limit))

    def given(self, dtype: DType, leaves: Sequence[Term]) -> Array:
        """Return elements of memory for terms that are given, or constants of what is no float."""
        if not dtype.is_float:
            return np.array([leaf.concrete for leaf in leaves]).astype(dtype.numpy)
        at = _TYPES.index(dtype.name)
        made = [self._code.tl_terms_leaf(at, leaf.serial, float(leaf.concrete)) for leaf in leaves]
        return np.array(made, memory_of(dtype))

    def terms(self, terms: ConcreteTerms, leaves: Mapping[int, Term], requested: Mapping[DType, Array]) -> Traced:
        """Return the terms of the elements `requested`, and of whatever was asked; `leaves` by their serial numbers."""
        count = self._code.tl_terms_count()
        entries = np.ctypeslib.as_array((ctypes.c_uint8 * (count * _ENTRY.itemsize)).from_address(self._code.tl_terms_entries()))
        table = entries.view(_ENTRY).copy()
        numbers = {name: np.flatnonzero(table["type"] == name.encode()) for name in _TYPES}
        needed = ~np.isin(table["type"], [name.encode() for name in _TYPES]) & (table["op"] != b"hole")
        for dtype, bits in requested.items():
            known = numbers[dtype.name]
            needed[known[np.unique(bits[bits < len(known)]).astype(np.int64)]] = True
        return _replayed(table, needed, numbers, terms, leaves)


def _replayed(table: Array, needed: Array, numbers: Mapping[str, Array], terms: ConcreteTerms, leaves: Mapping[int, Term]) -> Traced:
    operands = table["operands"].tolist()
    ops = [op.decode() for op in table["op"].tolist()]
    for k in range(len(ops) - 1, -1, -1):
        if needed[k] and ops[k] != "leaf":
            for operand in operands[k]:
                if operand >= 0:
                    needed[operand] = True
    found: list[Term] = [terms.hole] * len(ops)
    inconsistent = False
    for k in np.flatnonzero(needed).tolist():
        op, name, value = ops[k], table["type"][k].decode(), table["value"][k]
        if op == "leaf":
            found[k] = leaves[operands[k][0]]
            continue
        found[k] = _made(terms, op, name, [found[a] for a in operands[k] if a >= 0], value)
        inconsistent |= name not in numbers and op != "hole" and found[k].op == "const" and float(found[k].concrete) != value
    by_bits = {name: [found[k] for k in at.tolist()] for name, at in numbers.items()}
    return Traced(by_bits, terms.hole, inconsistent)


def _made(terms: ConcreteTerms, op: str, name: str, args: Sequence[Term], value: float) -> Term:
    """Return the term of an entry."""
    match op:
        case "hole":
            return terms.hole
        case "const":
            return terms.const(value, DTYPES[name])
        case "neg" | "abs":
            return terms.unary(op, args[0])
        case "cast" | "cast.saturate":
            return terms.cast(DTYPES[name], args[0], op != "cast")
        case "fma":
            return terms.fma(args[0], args[1], args[2])
        case "dot":
            return terms.dot([(args[0], args[1])], args[2])
        case _ if op in _BINARY:
            return terms.binary(op, args[0], args[1])
        case _ if op in _ORDERED:
            return terms.compare(op, args[0], args[1])
        case _:
            return terms.call(op.removeprefix("call "), args)
