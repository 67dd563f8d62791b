"""Expressions of the loop IR as C text. Arithmetic that C does differently calls functions of the prelude, named by type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from codegen.dtypes import DType, bf16, bool_, called_dtype, f16, f32, f64, i64, u32
from codegen.errors import Unfit
from codegen.gpu.names import Identifiers
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    Add,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    Index,
    IndexValue,
    Int,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Name,
    Select,
    Unary,
    ValueIndex,
    Var,
)
from codegen.loops.printer import show_expr
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Node, children, walk

_SUM, _PRODUCT, ATOM = 11, 12, 14
_C_LEVELS = {"||": 1, "&&": 2, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7}
_STRAIGHT = frozenset({"exp", "exp_16_bits", "exp2", "log", "log2"})
"""Functions of f32 that take several instructions and no branch."""
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}


@dataclass(frozen=True, slots=True)
class Printer:
    """What expressions are printed with: types of names, ranges of indices, how a load is written. `wide`: indices are 64-bit."""

    env: Env
    algebra: Algebra
    names: Identifiers
    load: Callable[[Load, Printer], str]
    wide: bool = False
    put: Mapping[Expr, str] = field(default_factory=dict)
    """Expressions that have a name already."""

    @property
    def integer(self) -> str:
        """Return the type of indices."""
        return "tl_i64" if self.wide else "int"

    # ------------------------------------------------------------ indices

    def index(self, e: Index, level: int = 0) -> str:
        """Return `e` in its simplest form."""
        return self._index(self.algebra.simplify(e), level)

    def _index(self, e: Index, level: int) -> str:
        suffix = "i64" if self.wide else "i32"
        match e:
            case Int(value):
                return str(value) if value >= 0 else f"({value})"
            case Var(name):
                return self.names(name)
            case Add(lhs, Int(value)) if value < 0:
                return _parens(f"{self._index(lhs, _SUM)} - {-value}", level > _SUM)
            case Add(lhs, Mul(Int(-1), factor)):
                return _parens(f"{self._index(lhs, _SUM)} - {self._index(factor, _PRODUCT)}", level > _SUM)
            case Add(lhs, Mul(Int(scale), factor)) if scale < 0:
                return _parens(f"{self._index(lhs, _SUM)} - {-scale} * {self._index(factor, ATOM)}", level > _SUM)
            case Add(lhs, rhs):
                return _parens(f"{self._index(lhs, _SUM)} + {self._index(rhs, _SUM)}", level > _SUM)
            case Mul(lhs, rhs):
                return _parens(f"{self._index(lhs, _PRODUCT)} * {self._index(rhs, ATOM)}", level > _PRODUCT)
            case FloorDiv(lhs, Int(divisor)) if self._natural(lhs):
                return _parens(f"{self._index(lhs, _PRODUCT)} / {divisor}", level > _PRODUCT)
            case Mod(lhs, Int(divisor)) if self._natural(lhs):
                return _parens(f"{self._index(lhs, _PRODUCT)} % {divisor}", level > _PRODUCT)
            case FloorDiv(lhs, rhs):
                return f"tl_floordiv_{suffix}({self._index(lhs, 0)}, {self._index(rhs, 0)})"
            case Mod(lhs, rhs):
                return f"tl_floormod_{suffix}({self._index(lhs, 0)}, {self._index(rhs, 0)})"
            case Min(lhs, rhs):
                return f"tl_min_{suffix}({self._index(lhs, 0)}, {self._index(rhs, 0)})"
            case Max(lhs, rhs):
                return f"tl_max_{suffix}({self._index(lhs, 0)}, {self._index(rhs, 0)})"
            case ValueIndex(value):
                return f"({self.integer}){self.expr(value, ATOM)}"
            case _:
                assert_never(e)

    def _natural(self, e: Index) -> bool:
        lo = self.algebra.range_of(e)[0]
        return lo is not None and lo >= 0

    # ------------------------------------------------------------ values

    def type_of(self, e: Expr) -> DType:
        return dtype_of(e, self.env)

    def expr(self, e: Expr, level: int = 0) -> str:
        """Return `e`, in parentheses when it binds less tightly than `level`."""
        if e in self.put:
            return self.put[e]
        match e:
            case Const():
                return constant(e)
            case Load():
                return self.load(e, self)
            case IndexValue(index):
                return f"(tl_i64)({self.index(index)})"
            case Name(name):
                return self.names(name)
            case Unary(op, value):
                return self._unary(op, value, level)
            case Binary(op, lhs, rhs):
                return self._binary(op, lhs, rhs, level)
            case Compare(op, IndexValue(lhs), IndexValue(rhs)):
                own = _C_LEVELS[op]
                return _parens(f"{self.index(lhs, own + 1)} {op} {self.index(rhs, own + 1)}", level > own)
            case Compare(op, IndexValue(lhs), Const(int(value))) if abs(value) < 1 << 31:
                own = _C_LEVELS[op]
                return _parens(f"{self.index(lhs, own + 1)} {op} {self.index(Int(value), own + 1)}", level > own)
            case Compare(op, lhs, rhs):
                own = _C_LEVELS[op]
                return _parens(f"{self.expr(lhs, own + 1)} {op} {self.expr(rhs, own + 1)}", level > own)
            case Select(cond, then, orelse) if self._is_better_computed(e):
                return f"tl_select<tl_{self.type_of(e)}>({self.expr(cond)}, {self.expr(then)}, {self.expr(orelse)})"
            case Select(cond, then, orelse):
                return _parens(f"{self.expr(cond, 3)} ? {self.expr(then, 3)} : {self.expr(orelse, 2)}", level > 0)
            case Cast(dtype, Call("round_bf16", (value,))) if dtype == bf16:
                return self._cast(bf16, self._before_16_bits(value), False)  # which rounds to the nearest, too
            case Cast(dtype, value, saturate) if dtype == f16:
                return self._cast(f16, self._before_16_bits(value), saturate)
            case Cast(dtype, value, saturate):
                return self._cast(dtype, value, saturate)
            case Call("pack", args):
                return f"tl_pack_{self.type_of(args[0]) if len(args) == 2 else 8}x{len(args)}({', '.join(self._bits(a) for a in args)})"
            case Call("bits", (value,)):
                return f"tl_number_bits_{self.type_of(value)}({self.expr(value)})"
            case Call("from_bits", (value,)):
                return f"tl_{called_dtype('from_bits', self.type_of(value))}_from_bits({self.expr(value)})"
            case Call("bits_tf32", (value,)):
                return f"tl_round_tf32{'_bits' if self.type_of(value) == u32 else ''}({self.expr(value)})"
            case Call(fn, args):
                return f"tl_{fn}_{self.type_of(args[0])}({', '.join(self.expr(a) for a in args)})"
            case Fma(a, b, c):
                return f"tl_fma_{self.type_of(c)}({self.expr(a)}, {self.expr(b)}, {self.expr(c)})"
            case Dot():
                raise Unfit(f"not supported yet: `{show_expr(e)}`, a dot product of narrow elements")
            case _:
                assert_never(e)

    def _bits(self, e: Expr) -> str:
        """Return an element of 16 bits as it is, one of 8 bits as an unsigned number."""
        return f"(tl_u8){self.expr(e, ATOM)}" if self.type_of(e).bits == 8 else self.expr(e)

    def _is_better_computed(self, e: Select) -> bool:
        """Tell whether both values are best computed whatever the condition says: one takes so many instructions that a compiler branches
        around them, none of which can fail, reads memory or branches itself, and the other is at hand."""
        long = [isinstance(n, Call) for n in walk(e.then, e.orelse)].count(True)
        if long != 1 or any(isinstance(n, IndexValue) for n in walk(e.cond)):
            return False
        return all(self._is_harmless(n) for value in (e.then, e.orelse) for n in _values(value))

    def _is_harmless(self, e: Node) -> bool:
        """Tell whether computing this much of an expression cannot fail, leaves memory alone and takes no branch."""
        match e:
            case Load(buffer, index):
                return self.env.buffers[buffer].space == "registers" and not any(isinstance(n, ValueIndex) for n in walk(*index))
            case Call(fn):
                return fn in _STRAIGHT and self.type_of(e) == f32
            case Binary(op):
                return op in ("+", "-", "*") and self.type_of(e) == f32
            case _:
                return isinstance(e, Const | Name | Unary | Cast | Fma)

    def _before_16_bits(self, e: Expr) -> Expr:
        """Return what may be computed instead of `e` where 16 bits of it are kept: exponentials of fewer instructions."""
        match e:
            case Call("exp", args) if self.type_of(e) == f32:
                return Call("exp_16_bits", args)
            case Select(cond, then, orelse):
                return Select(cond, self._before_16_bits(then), self._before_16_bits(orelse))
            case _:
                return e

    def _unary(self, op: str, value: Expr, level: int) -> str:
        dtype = self.type_of(value)
        match op:
            case "not":
                return f"!{self.expr(value, ATOM)}"
            case "bitnot" if dtype == bool_:
                return f"!{self.expr(value, ATOM)}"
            case "bitnot":
                return wrapped(dtype, f"~{self.expr(value, ATOM)}")
            case "neg" if dtype.is_float:
                return _parens(f"-{self.expr(value, ATOM)}", level > 13)
            case "neg":
                return wrapped(dtype, f"(0 - ({_unsigned(dtype)}){self.expr(value, ATOM)})")
            case "abs" if dtype.kind == "uint":
                return self.expr(value, level)
            case _:
                return _function(f"abs_{dtype}", dtype, self.expr(value))

    def _binary(self, op: str, lhs: Expr, rhs: Expr, level: int) -> str:
        dtype = self.type_of(lhs)
        match op:
            case "and" | "or":
                sign = "&&" if op == "and" else "||"
                own = _C_LEVELS[sign]
                return _parens(f"{self.expr(lhs, own)} {sign} {self.expr(rhs, own + 1)}", level > own)
            case "+" | "-" | "*" | "/" if dtype.is_float:
                own = _PRODUCT if op in "*/" else _SUM
                return _parens(f"{self.expr(lhs, own)} {op} {self.expr(rhs, own + 1)}", level > own)
            case "+" | "-" | "*":
                return wrapped_arithmetic(op, dtype, self.expr(lhs, ATOM), self.expr(rhs, ATOM))
            case "bitand" | "bitor" | "bitxor":
                return wrapped(dtype, f"({self.expr(lhs, ATOM)} {_BITS[op]} {self.expr(rhs, ATOM)})")
            case _:
                fn = {"//": "floordiv", "%": "floormod"}.get(op, op)
                return _function(f"{fn}_{dtype}", dtype, f"{self.expr(lhs)}, {self.expr(rhs)}")

    def _cast(self, dtype: DType, value: Expr, saturate: bool) -> str:
        source = self.type_of(value)
        text, atom = self.expr(value), self.expr(value, ATOM)
        if source == dtype:
            return text
        if dtype == bool_:
            return f"({self.expr(value, 7)} != 0)"
        if dtype.is_float and not source.is_float:
            wide = f64 if source.bits > 24 and dtype != f32 else f32
            return f"(tl_{dtype}){atom}" if dtype in (f32, f64) else self._from_wide(dtype, wide, f"(tl_{wide}){atom}", saturate)
        if source == bool_ or (source.is_integer and dtype.is_integer and not saturate):
            return wrapped(dtype, atom)
        if source.is_integer:
            return f"tl_{dtype}_saturate_{'i64' if source.kind == 'int' else 'u64'}({text})"
        if {source, dtype} == {f32, f64}:
            return f"(tl_{dtype}){atom}"
        if source not in (f32, f64):
            wide_text = f"tl_f32_from_{source}({text})"
            return (
                wide_text if dtype == f32 else f"(tl_f64){wide_text}" if dtype == f64 else self._from_wide(dtype, f32, wide_text, saturate)
            )
        return self._from_wide(dtype, source, text, saturate)

    def _from_wide(self, dtype: DType, source: DType, text: str, saturate: bool) -> str:
        return f"tl_{dtype}_{'saturate' if saturate and dtype.is_float else 'from'}_{source}({text})"


def constant(e: Const) -> str:
    """Return a literal that C reads back as `e`."""
    dtype = e.dtype
    if dtype == bool_:
        return "true" if e.value else "false"
    if dtype.is_integer:
        suffix = {"i64": "ll", "u64": "ull", "u32": "u"}.get(dtype.name, "")
        if dtype == i64 and e.value == -(1 << 63):
            return "(-9223372036854775807ll - 1)"
        text = f"{int(e.value)}{suffix}"
        return f"({text})" if e.value < 0 else text
    value = float(e.value)
    if dtype.bits < 32:
        return f"tl_{dtype}_from_f32({constant(Const(value, f32))})"
    short = "f" if dtype == f32 else ""
    if np.isnan(value):
        return f"TL_NAN_{dtype.name.upper()}"
    if np.isinf(value):
        return f"TL_INF_{dtype.name.upper()}" if value > 0 else f"(-TL_INF_{dtype.name.upper()})"
    text = repr(value) if len(repr(value)) <= 9 else value.hex()
    return f"({text}{short})" if text.startswith("-") else f"{text}{short}"


def is_below_a_byte(dtype: DType) -> bool:
    """Tell whether elements are integers of fewer than eight bits, each in a byte."""
    return dtype.is_integer and dtype.bits < 8


def masked(dtype: DType) -> str:
    """Return what stands after an integer that is stored as `dtype`: in memory, bits above those of the element are 0."""
    return f" & {(1 << dtype.bits) - 1}" if is_below_a_byte(dtype) else ""


def wrapped(dtype: DType, atom: str) -> str:
    """Return an integer as an element of `dtype`."""
    return f"tl_{dtype}_wrap({_bare(atom)})" if is_below_a_byte(dtype) else f"(tl_{dtype}){atom}"


def wrapped_arithmetic(op: str, dtype: DType, lhs: str, rhs: str) -> str:
    """Return a sum, difference or product of two integers, which wraps around: C leaves that undefined for signed ones."""
    unsigned = _unsigned(dtype)
    return wrapped(dtype, f"(({unsigned}){lhs} {op} ({unsigned}){rhs})")


def _bare(atom: str) -> str:
    """Return what stands in the parentheses that are all of `atom`."""
    depth = 0
    for k, c in enumerate(atom):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return atom[1:-1] if atom.startswith("(") and k == len(atom) - 1 else atom
    return atom


def _function(name: str, dtype: DType, arguments: str) -> str:
    text = f"tl_{name}({arguments})"
    return f"tl_{dtype}_wrap({text})" if is_below_a_byte(dtype) else text


def _unsigned(dtype: DType) -> str:
    return "tl_u64" if dtype.bits == 64 else "tl_u32"


def _parens(text: str, wanted: bool) -> str:
    return f"({text})" if wanted else text


def _values(e: Node) -> Iterator[Node]:
    """Yield `e` and the values that it is made of, without what their indices are made of."""
    yield e
    if not isinstance(e, Load | IndexValue):
        for child in children(e):
            yield from _values(child)
