"""Values in emitted code: an element type, the register or constant that holds it, and how many lanes it has.

dtype           in a register        in memory
f32 f64         float double         the same
f16 bf16 f8*    i16 i8 (raw bits)    the same
f4*             i8 (raw bits)        i8; the upper half is zero
i8..u64         i8..i64              the same
i4 u4 i2 u2     i8, extended         i8; the upper bits are zero on store and ignored on load
bool            i1                   i8, 0 or 1
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from codegen.dtypes import DType, bool_, f32, f64

_FLOATS = {"f64": "double", "f32": "float"}


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of one element in memory."""
    return _FLOATS.get(dtype.name) or f"i{8 * dtype.size_bytes}"


def scalar_type(dtype: DType) -> str:
    """Return the LLVM type of one value in a register."""
    return "i1" if dtype == bool_ else memory_type(dtype)


def of_lanes(element: str, lanes: int) -> str:
    """Return the type of `lanes` elements; 0 lanes is a single one."""
    return f"<{lanes} x {element}>" if lanes else element


@dataclass(frozen=True, slots=True)
class Value:
    """`lanes` is 0 for a value that all lanes share."""

    dtype: DType
    text: str
    lanes: int = 0

    @property
    def type(self) -> str:
        return of_lanes(scalar_type(self.dtype), self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


@dataclass(frozen=True, slots=True)
class Literal(Value):
    """A value known now."""

    number: float = 0


def literal(value: float | int | bool, dtype: DType) -> Literal:
    """Return the constant `value` of `dtype`."""
    return Literal(dtype, constant_text(value, dtype), 0, value)


def constant_text(value: float | int | bool, dtype: DType) -> str:
    """Return how LLVM writes `value`."""
    if dtype in (f32, f64):
        return float_text(float(value), dtype)
    if dtype.is_float:
        bits = int.from_bytes(dtype.numpy.type(value).tobytes(), "little")
        return str(bits)
    if dtype == bool_:
        return "true" if value else "false"
    return str(_wrapped(int(value), dtype))


def float_text(value: float, dtype: DType) -> str:
    """Return `value`, rounded to `dtype`, in the hexadecimal form that LLVM reads exactly."""
    if dtype == f32 and math.isfinite(value):
        value = _to_f32(value)
    return "0x" + struct.pack(">d", value).hex().upper()


def bits_of(dtype: DType) -> int:
    """Return how many bits a register holds for `dtype`."""
    return 1 if dtype == bool_ else 8 * dtype.size_bytes


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least and greatest value of an integer type."""
    if dtype.kind == "int":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << (1 if dtype == bool_ else dtype.bits)) - 1


def _to_f32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _wrapped(value: int, dtype: DType) -> int:
    low, high = integer_range(dtype)
    return (value - low) % (high - low + 1) + low
