"""Elementary functions."""

from __future__ import annotations

from codegen.dtypes import bool_, f32, f64
from codegen.llvm.arithmetic import constant, intrinsic
from codegen.llvm.builder import Builder
from codegen.llvm.state import EmitError
from codegen.llvm.values import Value, of_lanes, scalar_type

_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
_LIBM = {
    **{
        fn: fn
        for fn in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
    },
    **{fn: fn for fn in ("asinh", "acosh", "atanh", "erf", "pow", "fmod", "atan2")},
}


def call(b: Builder, fn: str, args: tuple[Value, ...]) -> Value:
    """Return `fn` of the arguments, which have the same type and lanes."""
    x = args[0]
    if x.dtype not in (f32, f64):
        raise EmitError(f"`{fn}` of {x.dtype}: elementary functions are computed in f32 or f64")
    if fn in _INTRINSIC:
        return intrinsic(b, _INTRINSIC[fn], x)
    match fn:
        case "isnan":
            return Value(bool_, b.pure(f"fcmp uno {x.typed}, {x.text}"), x.lanes)
        case "isinf":
            return Value(bool_, b.pure(f"fcmp oeq {intrinsic(b, 'fabs', x).typed}, {constant(x, float('inf'))}"), x.lanes)
        case "rsqrt":
            return _divide(b, constant(x, 1.0), intrinsic(b, "sqrt", x))
        case "sigmoid":
            e = call(b, "exp", (Value(x.dtype, b.pure(f"fneg {x.typed}"), x.lanes),))
            return _divide(b, constant(x, 1.0), Value(x.dtype, b.pure(f"fadd {e.typed}, {constant(x, 1.0)}"), x.lanes))
        case _ if fn in _LIBM:
            return libm(b, fn, args)
        case _:
            raise EmitError(f"unknown function `{fn}`")


def libm(b: Builder, fn: str, args: tuple[Value, ...]) -> Value:
    """Return `fn` as the C library computes it, one lane after the other."""
    dtype = args[0].dtype
    kind = scalar_type(dtype)
    lanes = args[0].lanes
    callee = b.declare(fn + ("f" if dtype == f32 else ""), f"{kind} @({', '.join([kind] * len(args))})")
    if not lanes:
        return Value(dtype, b.op(f"call {kind} {callee}({', '.join(a.typed for a in args)})"))
    result = "poison"
    for lane in range(lanes):
        parts = ", ".join(f"{kind} " + b.pure(f"extractelement {a.typed}, i64 {lane}") for a in args)
        one = b.op(f"call {kind} {callee}({parts})")
        result = b.pure(f"insertelement {of_lanes(kind, lanes)} {result}, {kind} {one}, i64 {lane}")
    return Value(dtype, result, lanes)


def _divide(b: Builder, numerator: str, x: Value) -> Value:
    return Value(x.dtype, b.pure(f"fdiv {x.type} {numerator}, {x.text}"), x.lanes)
