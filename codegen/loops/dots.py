"""Which products `Dot` adds up: 32 bits of each operand, of types whose products an accumulator of 32 bits takes.

bf16 x bf16        2    f32
i16 x i16          2    i32
i8, u8 x i8, u8    4    i32
"""

from __future__ import annotations

from codegen.dtypes import DType, bf16, f32, i8, i16, i32, u8

BITS = 32
"""What the elements of one operand have together."""


def accumulator(a: DType, b: DType) -> DType | None:
    """Return the type in which products of an `a` and a `b` are added up, or None when there is no such dot product."""
    if a == b == bf16:
        return f32
    bytes_ = (i8, u8)
    return i32 if a == b == i16 or (a in bytes_ and b in bytes_) else None


def group(dtype: DType) -> int:
    """Return how many elements of `dtype` one operand has."""
    return BITS // dtype.bits
