"""Arithmetic on values, in one lane or many, with the meaning that the loop IR gives it.

Integers wrap; quotients and remainders floor and are 0 when the divisor is 0; minima and maxima of floats propagate NaN,
and -0 is less than +0 for them.
"""

from __future__ import annotations

import math
import re
import struct
from typing import assert_never

from codegen.dtypes import DType, bool_, f32, f64, i32, i64
from codegen.llvm.builder import Builder
from codegen.llvm.masks import others
from codegen.llvm.register_transpose import joined
from codegen.llvm.state import EmitError, same_lanes, splat
from codegen.llvm.target import Target
from codegen.llvm.values import Literal, Value, bits_of, constant_text, literal, memory_type, of_lanes
from codegen.loops.nodes import BinaryOp, CompareOp, UnaryOp

_INT = {"+": "add", "-": "sub", "*": "mul", "and": "and", "or": "or", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_FLOAT = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
_ORDERED = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}


def constant(value: Value, number: float | int) -> str:
    """Return `number` in the type of `value`."""
    text = constant_text(number, value.dtype)
    return f"splat ({of_lanes(memory_type(value.dtype) if value.dtype != bool_ else 'i1', 0)} {text})" if value.lanes else text


def unary(b: Builder, op: UnaryOp, x: Value) -> Value:
    """Return `op x`."""
    match op:
        case "neg" if x.dtype.is_float:
            return _opposite(b, x)
        case "neg":
            return wrapped(b, Value(x.dtype, b.pure(f"sub {x.type} {constant(x, 0)}, {x.text}"), x.lanes))
        case "not":
            return negated(b, x)
        case "bitnot":
            return wrapped(
                b, Value(x.dtype, b.pure(f"xor {x.typed}, {constant(x, -1) if x.dtype != bool_ else constant(x, True)}"), x.lanes)
            )
        case "abs":
            if x.dtype.is_float:
                return intrinsic(b, "fabs", x)
            if x.dtype.kind != "int":
                return x
            fn = b.declare(f"llvm.abs.{suffix(x)}", f"{x.type} @({x.type}, i1)")
            return wrapped(b, Value(x.dtype, b.pure(f"call {x.type} {fn}({x.typed}, i1 false)"), x.lanes))
        case _:
            assert_never(op)


def binary(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    """Return `left op right`; both have the same type."""
    if left.dtype != right.dtype:
        raise EmitError(f"`{op}` of {left.dtype} and {right.dtype}: both sides must have the same type")
    x, y = same_lanes(b, left, right) if left.lanes != right.lanes else (left, right)
    if x.dtype.is_float:
        if x.dtype not in (f32, f64):
            raise EmitError(f"`{op}` of {x.dtype}: narrow floats are computed as f32")
        return _float(b, op, x, y)
    match op:
        case "+" | "-" | "*" | "and" | "or" | "bitand" | "bitor" | "bitxor":
            made = wrapped(b, Value(x.dtype, b.pure(f"{_INT[op]} {x.typed}, {y.text}"), x.lanes))
            b.made_of[made.text] = op, left, right
            return made
        case "min" | "max":
            name = ("s" if x.dtype.kind == "int" else "u") + op
            return intrinsic(b, name, x, y)
        case "//" | "%":
            return _divide(b, op, x, y)
        case "shl" | "shr":
            return _shift(b, op, x, y)
        case "/":
            raise EmitError(f"`/` of {x.dtype}: only floats divide exactly")
        case _:
            assert_never(op)


def compare(b: Builder, op: CompareOp, left: Value, right: Value) -> Value:
    """Return whether `left op right`, as bool."""
    x, y = same_lanes(b, left, right)
    if x.dtype.is_float:
        text = f"fcmp {_ORDERED[op]} {x.typed}, {y.text}"
    else:
        text = f"icmp {(_SIGNED if x.dtype.kind == 'int' else _UNSIGNED)[op]} {x.typed}, {y.text}"
    return Value(bool_, b.pure(text), x.lanes)


def select(b: Builder, cond: Value, then: Value, orelse: Value) -> Value:
    """Return `then` where `cond` holds and `orelse` elsewhere; both are evaluated."""
    x, y = same_lanes(b, then, orelse)
    if cond.lanes and not x.lanes:
        x, y = splat(b, x, cond.lanes), splat(b, y, cond.lanes)
    if x.text == y.text:
        return x
    if x.lanes and x.dtype == bool_:
        cond = splat(b, cond, x.lanes)  # LLVM takes masks apart that one bit chooses between
    return Value(x.dtype, b.pure(f"select {cond.typed}, {x.typed}, {y.typed}"), x.lanes)


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return `x * y + z` rounded once; on a target whose multiply-adds are relaxed, once or twice."""
    x, y, z = same_lanes(b, x, y, z)
    if b.target.relaxed_fma:
        return intrinsic(b, "fmuladd", x, y, z, flags="contract ")
    return intrinsic(b, "fma", x, y, z) if b.target.has_fma or x.dtype == f64 else _fma_in_f64(b, x, y, z)


def multiply_add(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return `x * y + z`, rounded once where the target has an instruction for that."""
    return fma(b, x, y, z) if b.target.contracts else binary(b, "+", binary(b, "*", x, y), z)


def _fma_in_f64(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return `x * y + z` of f32 rounded once, where the machine has no such instruction.

    In f64 the product is exact. The sum is not, so it is rounded to odd, which the second rounding, to f32, does not notice
    (Boldo and Melquiond 2008): the error of the sum says whether, and to which side, an even result is moved."""
    wide, integer, flag = of_lanes("double", x.lanes), of_lanes("i64", x.lanes), of_lanes("i1", x.lanes)
    p, c = (b.pure(f"fmul {wide} {_widened(b, x)}, {_widened(b, y)}"), _widened(b, z))
    total = b.pure(f"fadd {wide} {p}, {c}")
    addend = b.pure(f"fsub {wide} {total}, {p}")
    lost_p = b.pure(f"fsub {wide} {p}, {b.pure(f'fsub {wide} {total}, {addend}')}")
    lost = b.pure(f"fadd {wide} {lost_p}, {b.pure(f'fsub {wide} {c}, {addend}')}")
    zero, one = constant(Value(f64, "", x.lanes), 0.0), constant(Value(i64, "", x.lanes), 1)
    bits = b.pure(f"bitcast {wide} {total} to {integer}")
    even = b.pure(f"icmp eq {integer} {b.pure(f'and {integer} {bits}, {one}')}, {constant(Value(i64, '', x.lanes), 0)}")
    inexact = b.pure(f"and {flag} {even}, {b.pure(f'fcmp one {wide} {lost}, {zero}')}")
    inwards = b.pure(f"xor {flag} {b.pure(f'fcmp olt {wide} {lost}, {zero}')}, {b.pure(f'fcmp olt {wide} {total}, {zero}')}")
    step = b.pure(f"select {flag} {inwards}, {integer} {constant(Value(i64, '', x.lanes), -1)}, {integer} {one}")
    moved = b.pure(f"select {flag} {inexact}, {integer} {b.pure(f'add {integer} {bits}, {step}')}, {integer} {bits}")
    return Value(f32, b.pure(f"fptrunc {wide} {b.pure(f'bitcast {integer} {moved} to {wide}')} to {x.type}"), x.lanes)


def _widened(b: Builder, x: Value) -> str:
    return b.pure(f"fpext {x.typed} to {of_lanes('double', x.lanes)}")


def negated(b: Builder, cond: Value) -> Value:
    """Return `not cond`."""
    if isinstance(cond, Literal):
        return literal(not cond.number, bool_)
    text = others(b, cond.text, cond.lanes) if cond.lanes else b.pure(f"xor {cond.typed}, true")
    return Value(bool_, text, cond.lanes)


def intrinsic(b: Builder, name: str, *args: Value, flags: str = "") -> Value:
    """Return the result of an LLVM intrinsic whose arguments and result have one type."""
    kind = args[0].type
    fn = b.declare(f"llvm.{name}.{suffix(args[0])}", f"{kind} @({', '.join([kind] * len(args))})")
    return Value(args[0].dtype, b.pure(f"call {flags}{kind} {fn}({', '.join(a.typed for a in args)})"), args[0].lanes)


def bit_count(b: Builder, x: Value) -> Value:
    """Return how many bits of a whole number are 1."""
    fn = b.declare(f"llvm.ctpop.{suffix(x)}", f"{x.type} @({x.type})")
    return Value(x.dtype, b.pure(f"call {x.type} {fn}({x.typed})"), x.lanes)


def suffix(value: Value) -> str:
    """Return how LLVM mangles the type in the name of an intrinsic."""
    element = {"f32": "f32", "f64": "f64"}.get(value.dtype.name) or f"i{bits_of(value.dtype)}"
    return f"v{value.lanes}{element}" if value.lanes else element


def wrapped(b: Builder, x: Value) -> Value:
    """Return `x` reduced to its value bits: integers of fewer are computed in 8 bits."""
    if not x.dtype.is_integer or x.dtype.bits >= 8:
        return x
    if x.dtype.kind == "uint":
        return Value(x.dtype, b.pure(f"and {x.typed}, {byte_text((1 << x.dtype.bits) - 1, x.lanes)}"), x.lanes)
    above = byte_text(8 - x.dtype.bits, x.lanes)
    high = b.pure(f"shl {x.typed}, {above}")
    return Value(x.dtype, b.pure(f"ashr {x.type} {high}, {above}"), x.lanes)


def byte_text(number: int, lanes: int) -> str:
    """Return how LLVM writes an i8, the same in all lanes."""
    return f"splat (i8 {number})" if lanes else str(number)


# ---------------------------------------------------------------- floats


def _float(b: Builder, op: BinaryOp, x: Value, y: Value) -> Value:
    match op:
        case "+" | "-" | "*" | "/":
            return Value(x.dtype, b.pure(f"{_FLOAT[op]} {x.typed}, {y.text}"), x.lanes)
        case "min" | "max":
            return extremum(b, op, x, y)
        case "//" | "%":
            return _float_divide(b, op, x, y)
        case _:
            raise EmitError(f"`{op}` of {x.dtype}: only integers have bits")


def _opposite(b: Builder, x: Value) -> Value:
    """Return `-x`; of what is an opposite itself, what it is the opposite of."""
    number = _number(x)
    if number is not None:
        return Value(x.dtype, constant(x, -number), x.lanes)
    known = b.opposites.get(x.text)
    if known is None:
        known = b.pure(f"fneg {x.typed}")
        b.opposites[known] = x.text
    return Value(x.dtype, known, x.lanes)


def extremum(b: Builder, op: str, x: Value, y: Value) -> Value:
    """Return the minimum or maximum, or NaN when either side is NaN; -0 is less than +0.

    x86 has `a > b ? a : b` as one instruction. It gives `b` when a side is NaN or both are equal: right where `a` is a number but 0.
    """
    if b.opposites.get(x.text) == y.text or b.opposites.get(y.text) == x.text:
        # Of a number and its opposite: also of zeros, which are +0 and -0.
        size = intrinsic(b, "fabs", x)
        return size if op == "max" else _opposite(b, size)
    if not b.target.is_x86:
        return intrinsic(b, f"{op}imum", x, y)
    if _number(x) is None:
        # What comes last is new where an extremum is collected: what is asked of it alone waits for nothing.
        x, y = y, x
    number = _number(x)
    if number is None:
        return _least(b, x, y) if op == "min" else _greatest(b, x, y)
    if number == (math.inf if op == "min" else -math.inf):
        return y
    best = _either(b, op, x, y)
    if number != 0 or math.copysign(1.0, number) != (1.0 if op == "max" else -1.0):
        return best
    # `max(0, y)` has no sign and `min(-0, y)` always has one.
    size = intrinsic(b, "fabs", best)
    return size if op == "max" else unary(b, "neg", size)


def _either(b: Builder, op: str, x: Value, y: Value) -> Value:
    """Return the minimum or maximum; `y` when either side is NaN or both are equal."""
    chosen = b.pure(f"fcmp {'ogt' if op == 'max' else 'olt'} {x.typed}, {y.text}")
    return Value(x.dtype, b.pure(f"select {of_lanes('i1', x.lanes)} {chosen}, {x.typed}, {y.typed}"), x.lanes)


def _least(b: Builder, x: Value, y: Value) -> Value:
    """Return the minimum: all bits of what the two orders of the instruction give. They differ for zeros of two signs, where the one that
    has the sign is wanted, and for NaN and a number, where NaN stays one with bits of the number added."""
    return from_bits(b, binary(b, "bitor", to_bits(b, _either(b, "min", x, y)), to_bits(b, _either(b, "min", y, x))), x.dtype)


def _greatest(b: Builder, x: Value, y: Value) -> Value:
    """Return the maximum: of lanes, and where opposites are at hand, minus the minimum of `-x` and `-y`, which a chain of maxima keeps as
    it is, unless there is an instruction that joins bits."""
    kind = to_bits(b, x)
    width = kind.dtype.bits * x.lanes
    if collects_negated(b.target) and (x.lanes > 0 or x.text in b.opposites or y.text in b.opposites):
        return unary(b, "neg", _least(b, unary(b, "neg", x), unary(b, "neg", y)))
    if x.lanes == 0:
        # The instructions are those of vectors: of the smallest, the first lane is a register of one number as it is.
        lanes = 128 // kind.dtype.bits
        first, second = (
            Value(v.dtype, b.pure(f"insertelement {of_lanes(memory_type(v.dtype), lanes)} poison, {v.typed}, i64 0"), lanes) for v in (x, y)
        )
        greatest = _greatest_or_nan(b, first, second) if collects_negated(b.target) else _greatest(b, first, second)
        return Value(x.dtype, b.pure(f"extractelement {greatest.typed}, i64 0"))
    if width not in (128, 256, 512):
        return _greatest_by_registers(b, x, y)
    # As for the minimum, but for the sign: one instruction takes those that both have, and of the other bits all.
    sides = f"{to_bits(b, _either(b, 'max', x, y)).typed}, {to_bits(b, _either(b, 'max', y, x)).typed}"
    name = f"llvm.x86.avx512.pternlog.{'d' if x.dtype == f32 else 'q'}.{width}"
    fn = b.declare(name, f"{kind.type} @({kind.type}, {kind.type}, {kind.type}, i32)")
    sign = constant(kind, -1 << (kind.dtype.bits - 1))
    text = f"call {kind.type} {fn}({sides}, {kind.type} {sign}, i32 {ALL_OR_BOTH})"
    return from_bits(b, Value(kind.dtype, b.pure(text), x.lanes), x.dtype)


def _greatest_or_nan(b: Builder, x: Value, y: Value) -> Value:
    """Return the maximum of vectors: the bits that the two orders of the instruction have in common, which are those of 0 for zeros of two
    signs, and all bits where a side is NaN. Three instructions come after one another, where opposites take two more."""
    both = binary(b, "bitand", to_bits(b, _either(b, "max", x, y)), to_bits(b, _either(b, "max", y, x)))
    unordered = b.pure(f"fcmp uno {x.typed}, {y.text}")
    every = Value(both.dtype, b.pure(f"sext {of_lanes('i1', x.lanes)} {unordered} to {both.type}"), x.lanes)
    return from_bits(b, binary(b, "bitor", both, every), x.dtype)


def _greatest_by_registers(b: Builder, x: Value, y: Value) -> Value:
    """Return the maximum of vectors of any length, one whole register of them after the other."""
    register = min(b.target.vector_bits, max(128, 1 << (x.dtype.bits * x.lanes - 1).bit_length()))
    lanes = register // x.dtype.bits
    count = 1 << (math.ceil(x.lanes / lanes) - 1).bit_length()
    parts = [_greatest(b, *(picked(b, v, range(k * lanes, (k + 1) * lanes)) for v in (x, y))) for k in range(count) if k * lanes < x.lanes]
    element = memory_type(x.dtype)
    texts = [part.text for part in parts] + ["poison"] * (count - len(parts))
    return picked(b, Value(x.dtype, joined(b, texts, element, lanes), count * lanes), range(x.lanes))


def picked(b: Builder, x: Value, lanes: range) -> Value:
    """Return some lanes of a vector; those that it does not have hold anything."""
    if lanes == range(x.lanes):
        return x
    picks = ", ".join(f"i32 {k if k < x.lanes else 'poison'}" for k in lanes)
    return Value(x.dtype, b.pure(f"shufflevector {x.typed}, {x.type} poison, <{len(lanes)} x i32> <{picks}>"), len(lanes))


def collects_negated(target: Target) -> bool:
    """Tell whether maxima are minima of opposites, so that registers which collect a maximum had better hold its opposite."""
    return target.is_x86 and target.vector_bits < 512


ALL_OR_BOTH = 0b11010100
"""`c ? a and b : a or b` of bits, for the instruction that computes any function of three bits."""


def to_bits(b: Builder, x: Value) -> Value:
    """Return the bits of floats as integers."""
    dtype = i32 if x.dtype == f32 else i64
    return Value(dtype, b.pure(f"bitcast {x.typed} to {of_lanes(memory_type(dtype), x.lanes)}"), x.lanes)


def from_bits(b: Builder, bits: Value, dtype: DType) -> Value:
    """Return the floats that have these bits."""
    return Value(dtype, b.pure(f"bitcast {bits.typed} to {of_lanes(memory_type(dtype), bits.lanes)}"), bits.lanes)


def _number(x: Value) -> float | None:
    """Return the number that `x` is known to be, or None when it may be NaN or is not known."""
    found = re.search("0x([0-9A-F]{16})", x.text)
    if x.text.startswith("%") or found is None:
        return None
    number: float = struct.unpack(">d", bytes.fromhex(found[1]))[0]
    return None if math.isnan(number) else number


def _float_divide(b: Builder, op: BinaryOp, x: Value, y: Value) -> Value:
    """Return the floored quotient or remainder as NumPy defines them: from the exact remainder of the division towards zero."""
    kind = of_lanes("i1", x.lanes)
    zero = constant(x, 0.0)
    rest = Value(x.dtype, b.pure(f"frem {x.typed}, {y.text}"), x.lanes)
    inexact = b.pure(f"fcmp une {rest.typed}, {zero}")
    opposite = b.pure(f"xor {kind} {b.pure(f'fcmp olt {rest.typed}, {zero}')}, {b.pure(f'fcmp olt {y.typed}, {zero}')}")
    adjust = b.pure(f"and {kind} {inexact}, {opposite}")
    if op == "%":
        moved = b.pure(f"fadd {rest.typed}, {y.text}")
        nothing = intrinsic(b, "copysign", Value(x.dtype, zero, x.lanes), y)
        settled = b.pure(f"select {kind} {inexact}, {rest.typed}, {nothing.typed}")
        return Value(x.dtype, b.pure(f"select {kind} {adjust}, {x.type} {moved}, {x.type} {settled}"), x.lanes)
    towards_zero = b.pure(f"fdiv {x.type} {b.pure(f'fsub {x.typed}, {rest.text}')}, {y.text}")
    lower = b.pure(f"fsub {x.type} {towards_zero}, {constant(x, 1.0)}")
    quotient = b.pure(f"select {kind} {adjust}, {x.type} {lower}, {x.type} {towards_zero}")
    # The subtraction above rounded, so the quotient may lie a little beside the whole number that it stands for.
    exact = Value(x.dtype, b.pure(f"fdiv {x.typed}, {y.text}"), x.lanes)
    whole = intrinsic(b, "copysign", intrinsic(b, "rint", Value(x.dtype, quotient, x.lanes)), exact)
    is_zero = b.pure(f"fcmp oeq {y.typed}, {zero}")
    return Value(x.dtype, b.pure(f"select {kind} {is_zero}, {exact.typed}, {whole.typed}"), x.lanes)


# ---------------------------------------------------------------- integers


def _divide(b: Builder, op: BinaryOp, x: Value, y: Value) -> Value:
    bits = power_of_two(y.text)
    if bits is not None and op == "//":
        return near_shift(b, "shr", x, Value(x.dtype, constant(x, bits), x.lanes))
    if bits is not None:
        return Value(x.dtype, b.pure(f"and {x.typed}, {constant(x, (1 << bits) - 1)}"), x.lanes)
    kind = of_lanes("i1", x.lanes)
    zero, one, minus = constant(x, 0), constant(x, 1), constant(x, -1)
    signed, is_ordinary = x.dtype.kind == "int", _known(y.text) not in (None, 0, -1)
    bad = is_minus = ""
    divisor = y.text
    if not is_ordinary:
        bad = unsafe = b.pure(f"icmp eq {y.typed}, {zero}")
        if signed:
            is_minus = b.pure(f"icmp eq {y.typed}, {minus}")
            unsafe = b.pure(f"or {kind} {bad}, {is_minus}")
        divisor = b.pure(f"select {kind} {unsafe}, {x.type} {one}, {y.typed}")

    def unless(condition: str, other: str, result: str) -> str:
        return b.pure(f"select {kind} {condition}, {x.type} {other}, {x.type} {result}") if condition else result

    quotient = _quotient(b, x, divisor, y.text.startswith("splat"))
    product = b.pure(f"mul {x.type} {quotient}, {divisor}")
    rest = b.pure(f"sub {x.typed}, {product}")
    if signed:
        inexact = b.pure(f"icmp ne {x.type} {rest}, {zero}")
        opposite = b.pure(f"icmp slt {x.type} {b.pure(f'xor {x.type} {rest}, {divisor}')}, {zero}")
        adjust = b.pure(f"and {kind} {inexact}, {opposite}")
        if op == "//":
            lower = b.pure(f"sub {x.type} {quotient}, {one}")
            floored = unless(adjust, lower, quotient)
            quotient = unless(is_minus, b.pure(f"sub {x.type} {zero}, {x.text}"), floored)
        else:
            floored = unless(adjust, b.pure(f"add {x.type} {rest}, {divisor}"), rest)
            rest = unless(is_minus, zero, floored)
    result = quotient if op == "//" else rest
    return wrapped(b, Value(x.dtype, unless(bad, zero, result), x.lanes))


def least_unsigned_of_step(b: Builder, x: Value, step: int) -> Value:
    """Return the lesser of an integer and that and `step`, as numbers without a sign."""
    return intrinsic(b, "umin", x, Value(x.dtype, b.pure(f"add {x.typed}, {constant(x, step)}"), x.lanes))


def power_of_two(text: str) -> int | None:
    """Return the exponent of a power of two that is a constant in the text of LLVM, None of anything else. To divide by one, rounded down,
    is to shift, and the remainder is what is shifted out, whatever the sign."""
    number = _known(text)
    return number.bit_length() - 1 if number and number > 0 and not number & (number - 1) else None


def _known(text: str) -> int | None:
    """Return the integer that the text of a value is, in all lanes; None of what is computed."""
    return int(found[1]) if (found := _CONSTANT.fullmatch(text)) else None


_CONSTANT = re.compile(r"(?:splat \(i\d+ )?(-?\d+)\)?")


def _quotient(b: Builder, x: Value, divisor: str, is_known: bool) -> str:
    """Return a quotient rounded towards zero, of numbers that have one; by a number that is known it is a product.

    Processors do not divide integers in vectors. In floats of more than twice as many bits the quotient of x and y is exact, or so much
    less than the next whole number (1 / y at least) that it is not rounded to that."""
    signed = x.dtype.kind == "int"
    if not x.lanes or x.dtype.bits > 32 or is_known:
        return b.pure(f"{'sdiv' if signed else 'udiv'} {x.typed}, {divisor}")
    wide = of_lanes("float" if x.dtype.bits <= 8 else "double", x.lanes)
    extend, shorten = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    above, below = (b.pure(f"{extend} {x.type} {v} to {wide}") for v in (x.text, divisor))
    return b.pure(f"{shorten} {wide} {b.pure(f'fdiv {wide} {above}, {below}')} to {x.type}")


def _shift(b: Builder, op: BinaryOp, x: Value, y: Value) -> Value:
    """Return a shift; by as many bits as the type has or more, all of them are shifted out."""
    bits = x.dtype.bits
    kind = of_lanes("i1", x.lanes)
    far = b.pure(f"icmp ugt {y.typed}, {constant(x, bits - 1) if bits > 4 else _byte(x, bits - 1)}")
    last = constant(x, bits - 1) if bits > 4 else _byte(x, bits - 1)
    amount = b.pure(f"select {kind} {far}, {x.type} {last}, {y.typed}")
    shifted = near_shift(b, op, x, Value(y.dtype, amount, x.lanes))
    if op == "shr" and x.dtype.kind == "int":
        return shifted
    return Value(x.dtype, b.pure(f"select {kind} {far}, {x.type} {constant(x, 0)}, {x.type} {shifted.text}"), x.lanes)


def near_shift(b: Builder, op: BinaryOp, x: Value, y: Value) -> Value:
    """Return a shift by fewer bits than the type has."""
    how = "shl" if op == "shl" else "ashr" if x.dtype.kind == "int" else "lshr"
    return wrapped(b, Value(x.dtype, b.pure(f"{how} {x.typed}, {y.text}"), x.lanes))


def _byte(x: Value, number: int) -> str:
    return f"splat (i8 {number})" if x.lanes else str(number)
