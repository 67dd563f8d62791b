"""The table of element types: names, widths, and their NumPy representation. The only one in the project.

Elements of less than a byte occupy one byte in memory, as ml_dtypes stores them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. `bits` counts value bits; `size_bytes` is what an element occupies in memory.

    There is one object for each, those of this module, also of what is copied or read back: types are compared and looked up by what
    they are, of which nothing is faster."""

    name: str
    kind: Kind
    bits: int
    is_float: bool = field(init=False, repr=False)
    is_integer: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_float", self.kind == "float")
        object.__setattr__(self, "is_integer", self.kind in ("int", "uint"))

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return _named, (self.name,)

    @property
    def size_bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[Any]:
        return _numpy_types()[self.name]

    @property
    def zero(self) -> bool | float | int:
        """Return the zero of the type as a number of Python's."""
        return False if self.kind == "bool" else 0.0 if self.is_float else 0

    def __str__(self) -> str:
        return self.name


f64 = DType("f64", "float", 64)
f32 = DType("f32", "float", 32)
f16 = DType("f16", "float", 16)
bf16 = DType("bf16", "float", 16)
f8e4m3 = DType("f8e4m3", "float", 8)
f8e5m2 = DType("f8e5m2", "float", 8)
f8e4m3fnuz = DType("f8e4m3fnuz", "float", 8)
f8e5m2fnuz = DType("f8e5m2fnuz", "float", 8)
f4e2m1 = DType("f4e2m1", "float", 4)
i64 = DType("i64", "int", 64)
i32 = DType("i32", "int", 32)
i16 = DType("i16", "int", 16)
i8 = DType("i8", "int", 8)
i4 = DType("i4", "int", 4)
i2 = DType("i2", "int", 2)
u64 = DType("u64", "uint", 64)
u32 = DType("u32", "uint", 32)
u16 = DType("u16", "uint", 16)
u8 = DType("u8", "uint", 8)
u4 = DType("u4", "uint", 4)
u2 = DType("u2", "uint", 2)
bool_ = DType("bool", "bool", 8)

_FLOATS = (f64, f32, f16, bf16, f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f4e2m1)
_INTEGERS = (i64, i32, i16, i8, i4, i2, u64, u32, u16, u8, u4, u2)
DTYPES: dict[str, DType] = {d.name: d for d in (*_FLOATS, *_INTEGERS, bool_)}


def _named(name: str) -> DType:
    return DTYPES[name]


class Format(NamedTuple):
    """How a float type counts: bits after the point, the exponents of its powers of two as C has them in `FLT_MAX_EXP` and, less one,
    `FLT_MIN_EXP`, its greatest finite value, and what it has besides: infinities, NaN, a zero with a sign."""

    mantissa_bits: int
    highest_exponent: int
    lowest_exponent: int
    largest: float
    has_inf: bool = True
    has_nan: bool = True
    has_negative_zero: bool = True


FORMATS: dict[str, Format] = {
    "f64": Format(52, 1024, -1022, float.fromhex("0x1.fffffffffffffp+1023")),
    "f32": Format(23, 128, -126, float.fromhex("0x1.fffffep+127")),
    "f16": Format(10, 16, -14, 65504.0),
    "bf16": Format(7, 128, -126, float.fromhex("0x1.fep+127")),
    "f8e4m3": Format(3, 9, -6, 448.0, has_inf=False),
    "f8e5m2": Format(2, 16, -14, 57344.0),
    "f8e4m3fnuz": Format(3, 8, -7, 240.0, has_inf=False, has_negative_zero=False),
    "f8e5m2fnuz": Format(2, 16, -15, 57344.0, has_inf=False, has_negative_zero=False),
    "f4e2m1": Format(1, 3, 0, 6.0, has_inf=False, has_nan=False),
}


@cache
def limits(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    return low, low + (1 << dtype.bits) - 1


def holds(wide: DType, narrow: DType) -> bool:
    """Tell whether every value of one type is one of the other."""
    if narrow.kind == "bool" or wide == narrow:
        return True
    if narrow.is_float:
        if not wide.is_float:
            return False
        a, b = FORMATS[wide.name], FORMATS[narrow.name]
        least_of_a, least_of_b = a.lowest_exponent - a.mantissa_bits, b.lowest_exponent - b.mantissa_bits
        reaches = a.highest_exponent >= b.highest_exponent and least_of_a <= least_of_b
        special = a.has_inf >= b.has_inf and a.has_nan >= b.has_nan
        return a.mantissa_bits >= b.mantissa_bits and reaches and special
    if wide.is_float:
        return narrow.bits - (narrow.kind == "int") <= FORMATS[wide.name].mantissa_bits + 1
    return wide.bits > narrow.bits and (wide.kind == narrow.kind or wide.kind == "int") if wide.is_integer else False


@cache
def _numpy_types() -> dict[str, np.dtype[Any]]:
    """Return how NumPy calls each type. Whoever only checks programs does not wait for NumPy."""
    import ml_dtypes
    import numpy as np

    return {
        "f64": np.dtype(np.float64),
        "f32": np.dtype(np.float32),
        "f16": np.dtype(np.float16),
        "bf16": np.dtype(ml_dtypes.bfloat16),
        "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
        "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
        "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
        "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
        "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
        "i64": np.dtype(np.int64),
        "i32": np.dtype(np.int32),
        "i16": np.dtype(np.int16),
        "i8": np.dtype(np.int8),
        "i4": np.dtype(ml_dtypes.int4),
        "i2": np.dtype(ml_dtypes.int2),
        "u64": np.dtype(np.uint64),
        "u32": np.dtype(np.uint32),
        "u16": np.dtype(np.uint16),
        "u8": np.dtype(np.uint8),
        "u4": np.dtype(ml_dtypes.uint4),
        "u2": np.dtype(ml_dtypes.uint2),
        "bool": np.dtype(np.bool_),
    }


@cache
def _by_numpy() -> dict[np.dtype[Any], DType]:
    return {n: DTYPES[name] for name, n in _numpy_types().items()}


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the element type that NumPy calls `dtype`, or None when the language has none."""
    import numpy as np

    return _by_numpy().get(np.dtype(dtype))


def extreme(dtype: DType, *, highest: bool) -> float | int:
    """Return the greatest or least value of `dtype`."""
    if dtype.is_float:
        return float("inf") if highest else float("-inf")
    if dtype.kind == "int":
        return (1 << (dtype.bits - 1)) - 1 if highest else -(1 << (dtype.bits - 1))
    return (1 << dtype.bits) - 1 if highest else 0


def largest(dtype: DType) -> float:
    """Return the greatest finite value of a float type."""
    return FORMATS[dtype.name].largest


def nearest(value: float, dtype: DType) -> float:
    """Return the value of `dtype`, f32 or f64, that is nearest to one that is not beyond its range; of two the even one."""
    if dtype == f64:
        return value
    assert dtype == f32, dtype
    rounded: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    return rounded


_SINGLE = struct.Struct("f")


def nearest_tf32(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return f32 numbers with 10 bits after the point: the nearest, of two the one further from zero."""
    import numpy as np

    bits = x.view(np.uint32)
    kept = (bits.astype(np.uint64) + 0x1000) & 0xFFFFE000
    return np.where(np.isfinite(x), kept, bits).astype(np.uint32).view(np.float32)


def called_dtype(fn: str, dtype: DType) -> DType:
    """Return the type of an elementary function of floats of type `dtype`, f32 or f64; of `from_bits`, of u32 or u64."""
    if fn == "from_bits":
        return f64 if dtype == u64 else f32
    if fn in ("isnan", "isinf"):
        return bool_
    return (u64 if dtype == f64 else u32) if fn == "bits" else dtype


def float_bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of numbers of type f32 or f64 as unsigned integers, those of the quiet positive NaN without payload for every NaN."""
    import numpy as np

    return np.where(np.isnan(x), x.dtype.type(np.nan), x).view(f"u{x.dtype.itemsize}")


def compute_dtype(dtype: DType) -> DType:
    """Return the type in which a clause over `dtype` is computed: f32 for the narrow floats, otherwise `dtype` itself."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype
