"""Type classes and the words of the language that are neither indices nor tensors."""

from __future__ import annotations

from codegen.dtypes import DTYPES, DType, holds

ELEMENTARY = frozenset(
    [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log1p",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "floor",
        "ceil",
        "round",
        "round_tf32",
        "trunc",
        "pow",
        "fmod",
        "atan2",
        "sigmoid",
        "isnan",
        "isinf",
    ]
)
"""Functions of floats that the code generators know."""

ARITY = {"pow": 2, "fmod": 2, "atan2": 2}

FOLDS = frozenset(("sum", "prod", "min", "max"))
INDEX_WORDS = frozenset(("rank", "pos", "before", "linear", "clamp", "wrap", "reflect", "width"))
BITS = frozenset(("bitand", "bitor", "bitxor", "shl", "shr"))
PASSABLE = ELEMENTARY | BITS | frozenset(("abs", "bitnot", "bits", "from_bits", "min", "max"))
"""Builtins that an `attr f: fn` can be."""

CASTS = frozenset(("sat", "wide"))
"""Casts to a type that is given in brackets, `sat[i8](x)`."""

BUILTINS = ELEMENTARY | FOLDS | INDEX_WORDS | BITS | CASTS | frozenset(("abs", "bitnot", "bits", "from_bits"))

CONSTANTS: dict[str, float | bool] = {
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
    "true": True,
    "false": False,
}
LIMITS = {"lowest": False, "highest": True, "minint": False, "maxint": True}

ELSEWHERE = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "half": "f16",
    "double": "f64",
    "boolean": "bool",
    "int8_t": "i8",
    "uint8_t": "u8",
    **{f"int{bits}_t": f"i{bits}" for bits in (16, 32, 64)},
    **{f"uint{bits}_t": f"u{bits}" for bits in (16, 32, 64)},
    "single": "f32",
    "fp16": "f16",
    "fp32": "f32",
    "fp64": "f64",
    "long": "i64",
    "short": "i16",
    "char": "i8",
    "byte": "u8",
}
"""What other languages call the element types."""

_INT8 = ("i8", "u8")
CLASSES: dict[str, frozenset[str]] = {
    "float": frozenset(d.name for d in DTYPES.values() if d.is_float),
    "int": frozenset(d.name for d in DTYPES.values() if d.is_integer),
    "signed": frozenset(d.name for d in DTYPES.values() if d.kind == "int"),
    "unsigned": frozenset(d.name for d in DTYPES.values() if d.kind == "uint"),
    "int8": frozenset(_INT8),
    "num": frozenset(d.name for d in DTYPES.values() if d.kind != "bool"),
    "any": frozenset(DTYPES),
}
REPRESENTATIVE = {"float": "f32", "int": "i32", "signed": "i32", "unsigned": "u32", "int8": "i8", "num": "f32", "any": "f32"}
"""The type with which an operator over a class is checked where it is defined."""


def holding(a: DType, b: DType) -> DType | None:
    """Return the smallest type that holds every value of two, or None when there is none: `f64` for `f32` and `i32`."""
    found = [d for d in DTYPES.values() if d.kind != "bool" and holds(d, a) and holds(d, b)]
    return min(found, key=lambda d: (d not in (a, b), d.bits), default=None)


def belongs(dtype: DType, bound: str | None) -> bool:
    """Return whether `dtype` is in the class, or is the type, named `bound` (None: every type)."""
    if bound is None:
        return True
    return dtype.name in CLASSES[bound] if bound in CLASSES else dtype.name == bound


def limits(dtype: DType) -> tuple[float | int, float | int]:
    """Return the smallest and the largest value of a type."""
    if dtype.kind == "bool":
        return False, True
    if dtype.is_float:
        return float("-inf"), float("inf")
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
