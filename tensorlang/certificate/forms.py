"""The vocabulary of certificates: `[operation, type, *operands]`, the same for equations, values and subscripts.

    ["+", "f32", a, b]  ["exp", "f32", a]  ["<", "bool", a, b]  ["select", type, cond, a, b]  ["cast" | "sat", type, a]
    ["const", type, value]  ["name", type, name]  ["load", type, buffer, [subscripts]]
    in equations also ["fold", type, fold, component]  ["let", type, name, value, body]

Subscripts, sizes and iterators have the type "ix"; `cast` is also how an index becomes a value and a value an index.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from codegen.dtypes import DType

Form: TypeAlias = list[Any]
INDEX = "ix"
SYMBOL = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}


def constant(value: float | int | bool, dtype: DType) -> Form:
    return ["const", dtype.name, float(value).hex() if dtype.is_float else int(value)]


def integer(value: int) -> Form:
    return ["const", INDEX, value]


def name(text: str, dtype: str = INDEX) -> Form:
    return ["name", dtype, text]


def operation(op: str, *operands: Form) -> Form:
    """Return an operation whose result has the type of its operands."""
    return [SYMBOL.get(op, op), operands[0][1], *operands]


def condition(op: str, *operands: Form) -> Form:
    """Return an operation whose result is a bool."""
    return [op, "bool", *operands]


def select(cond: Form, then: Form, orelse: Form) -> Form:
    return ["select", then[1], cond, then, orelse]


def cast(dtype: str, value: Form, saturate: bool = False) -> Form:
    return ["sat" if saturate else "cast", dtype, value]


def call(fn: str, *operands: Form) -> Form:
    if fn == "bits":
        return [fn, "u64" if operands[0][1] == "f64" else "u32", *operands]
    if fn == "from_bits":
        return [fn, "f64" if operands[0][1] == "u64" else "f32", *operands]
    return (condition if fn in ("isnan", "isinf") else operation)(fn, *operands)
