"""Every scalar function of kernel text computes what the interpreter of the loop IR says, on values at the edges of its types.

One kernel per signature evaluates all functions of it, chosen by a number, on all combinations of the edge values of its arguments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from codegen.dtypes import DTYPES, DType, bf16, bool_, f8e4m3, f8e5m2, f16, f32, f64, i8, i16, i32, i64, largest, u8, u16, u32, u64
from codegen.gpu.emulator import Library, build, run
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops import scalars
from codegen.loops.nodes import Int
from codegen.loops.scalars import Value

Array = np.ndarray[Any, Any]
Meaning = Callable[..., Value]

SIGNED, UNSIGNED = (i8, i16, i32, i64), (u8, u16, u32, u64)
INTEGERS = SIGNED + UNSIGNED
NARROW = tuple(d for d in DTYPES.values() if d.is_float and d.bits < 32)

ROUNDED = (
    *("exp", "exp2", "expm1", "log", "log2", "log1p", "rsqrt", "pow", "sigmoid", "erf", "atan2"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
EXACT = ("sqrt", "floor", "ceil", "round", "trunc", "fmod", "isnan", "isinf")
OF_TWO = ("pow", "atan2", "fmod")

ULPS = 8
"""How far two good libraries may be apart: each errs by up to 4 units in the last place."""


@dataclass(frozen=True)
class Function:
    """`name`(arguments) of kernel text, and what it means."""

    name: str
    arguments: tuple[DType, ...]
    result: DType
    meaning: Meaning
    exact: bool = True

    @property
    def signature(self) -> str:
        return "_".join(d.name for d in (*self.arguments, self.result))


def call_of(fn: str) -> Meaning:
    return lambda *args: scalars.call(fn, list(args))


def binary_of(op: str) -> Meaning:
    return lambda x, y: scalars.binary(op, x, y)


def unary_of(op: str) -> Meaning:
    return lambda x: scalars.unary(op, x)


def cast_to(dtype: DType, saturate: bool = False) -> Meaning:
    return lambda x: scalars.cast(dtype, x, saturate)


def functions() -> Iterator[Function]:
    """Give every function of `prelude/scalar.h`."""
    yield from elementary()
    yield from arithmetic()
    yield from conversions()


def elementary() -> Iterator[Function]:
    for d, fn in itertools.product((f32, f64), (*ROUNDED, *EXACT)):
        result = bool_ if fn in ("isnan", "isinf") else d
        yield Function(f"tl_{fn}_{d}", (d, d) if fn in OF_TWO else (d,), result, call_of(fn), exact=fn in EXACT)


def to_bf16_and_back(x: Value) -> Value:
    return scalars.cast(x.dtype, scalars.cast(bf16, x))


def arithmetic() -> Iterator[Function]:
    yield Function("tl_round_tf32_f32", (f32,), f32, call_of("round_tf32"))
    for d in (f32, f64):
        yield Function(f"tl_number_bits_{d}", (d,), u64 if d == f64 else u32, call_of("bits"))
        yield Function(f"tl_{d}_from_bits", (u64 if d == f64 else u32,), d, call_of("from_bits"))
        yield Function(f"tl_round_bf16_{d}", (d,), d, to_bf16_and_back)
        yield Function(f"tl_fma_{d}", (d, d, d), d, scalars.fma)
        yield Function(f"tl_abs_{d}", (d,), d, unary_of("abs"))
    names = {"+": "add", "-": "sub", "*": "mul", "shl": "shl", "shr": "shr"}
    for d in INTEGERS:
        yield from (Function(f"tl_{name}_{d}", (d, d), d, binary_of(op)) for op, name in names.items())
        yield from (Function(f"tl_{op}_{d}", (d,), d, unary_of(op)) for op in ("neg", "abs"))
    for d in (f32, f64, *INTEGERS):
        both = {"min": "min", "max": "max", "//": "floordiv", "%": "floormod"}
        yield from (Function(f"tl_{name}_{d}", (d, d), d, binary_of(op)) for op, name in both.items())


def conversions() -> Iterator[Function]:
    for wide, d in itertools.product((f32, f64), NARROW):
        yield Function(f"tl_{wide}_from_{d}", (d,), wide, cast_to(wide))
        yield Function(f"tl_{d}_from_{wide}", (wide,), d, cast_to(d))
        yield Function(f"tl_{d}_saturate_{wide}", (wide,), d, cast_to(d, saturate=True))
    for d in INTEGERS:
        yield from (Function(f"tl_{d}_from_{wide}", (wide,), d, cast_to(d)) for wide in (f32, f64))
        yield from (Function(f"tl_{d}_saturate_{wide}", (wide,), d, cast_to(d, saturate=True)) for wide in (i64, u64))


FUNCTIONS = tuple(functions())
BY_SIGNATURE = {s: [f for f in FUNCTIONS if f.signature == s] for s in dict.fromkeys(f.signature for f in FUNCTIONS)}


def edges(dtype: DType, few: bool) -> Array:
    """Return values of `dtype` where arithmetic goes wrong first; few where three are to be combined."""
    if dtype.is_integer:
        low, high = int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)
        some = {low, low + 1, low // 2, -8, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, high // 2, high - 1, high}
        return np.array(sorted(v for v in some if low <= v <= high), dtype.numpy)
    if dtype.bits < 32:
        return np.arange(1 << dtype.bits).astype(f"u{dtype.size_bytes}").view(dtype.numpy)
    limits = np.finfo(dtype.numpy)
    sizes = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 7.25, math.inf, float(limits.max), float(limits.smallest_subnormal)]
    if not few:
        sizes += [math.pi, 1e-3, 0.1, 10.0, 88.7, 104.0, 709.0, 1e10, float(limits.tiny), *borders()]
    with np.errstate(over="ignore"):
        values = np.array([*sizes, *(-s for s in sizes), math.nan]).astype(dtype.numpy)
    return np.unique(values.view(f"u{dtype.size_bytes}")).view(dtype.numpy)


def borders() -> Iterable[float]:
    """Give values at which a conversion changes its mind: ties between narrow floats, the ends of integer types."""
    for narrow, digits in ((f16, 10), (bf16, 7), (f8e4m3, 3), (f8e5m2, 2)):
        unit, least = 2.0**-digits, float(np.array(1, f"u{narrow.size_bytes}").view(narrow.numpy))
        for tie in (1 + unit / 2, 1 + 3 * unit / 2, least / 2, 3 * least / 2, largest(narrow), largest(narrow) * (1 + unit / 4)):
            yield from (tie, tie * (1 + 2.0**-20), tie * (1 - 2.0**-20))
    for d in INTEGERS:
        yield from (float(np.iinfo(d.numpy).max), np.iinfo(d.numpy).max - 0.5, 2.0**d.bits, 2.0 ** (d.bits - 1))


def kernel_of(signature: str) -> Kernel:
    """Return a kernel of one thread that applies the function of this signature that is numbered `which`."""
    *arguments, result = signature.split("_")
    inputs = [f"x{n}" for n in range(len(arguments))]
    params = ", ".join(f"TL_IN(tl_{t}) {x}" for t, x in zip(arguments, inputs, strict=True))
    given = ", ".join(f"{x}[i]" for x in inputs)
    cases = "\n".join(f"        case {n}: y[i] = {f.name}({given}); break;" for n, f in enumerate(BY_SIGNATURE[signature]))
    text = f"""
TL_KERNEL(1, 0) of_{signature}({params}, TL_OUT(tl_{result}) y, tl_i64 N, tl_i64 which) {{
    for (tl_i64 i = 0; i < N; ++i) {{
        switch (which) {{
{cases}
        }}
    }}
}}
"""
    return Kernel(f"of_{signature}", text, (*inputs, "y"), ("N", "which"), (1, 1, 1))


@pytest.fixture(scope="module")
def library() -> Library:
    return build([kernel_of(s) for s in BY_SIGNATURE])


@pytest.mark.parametrize("signature", BY_SIGNATURE)
def test_functions_of_a_signature_mean_what_the_interpreter_says(signature: str, library: Library) -> None:
    kernel = kernel_of(signature)
    program = Program("p", kernel.buffers, kernel.sizes, (kernel,), (Launch(kernel.name, (Int(1), Int(1), Int(1))),))
    for which, function in enumerate(BY_SIGNATURE[signature]):
        columns = [edges(d, few=len(function.arguments) > 1) for d in function.arguments]
        inputs = [np.ascontiguousarray(g.reshape(-1)) for g in np.meshgrid(*columns, indexing="ij")]
        y = np.zeros(inputs[0].size, function.result.numpy)
        arrays = {f"x{n}": x for n, x in enumerate(inputs)} | {"y": y}
        run(program, {"N": y.size, "which": which}, arrays, outputs=("y",), library=library)
        check(function, inputs, y)


def test_every_scalar_type_of_the_language_has_functions() -> None:
    tried = {d for f in FUNCTIONS for d in (*f.arguments, f.result)}
    assert tried == {d for d in DTYPES.values() if not d.is_integer or d.bits >= 8}  # the others live in bytes


def check(function: Function, inputs: list[Array], y: Array) -> None:
    for n, got in enumerate(y):
        values = [Value(d, _scalar(x[n], d)) for x, d in zip(inputs, function.arguments, strict=True)]
        want = np.asarray(function.meaning(*values).scalar).astype(function.result.numpy)[()]
        assert same(function, got, want), f"{function.name}({', '.join(str(v.scalar) for v in values)}) is {want}, not {got}"


def _scalar(element: Any, dtype: DType) -> Any:
    return element if dtype.is_float else int(element)


def same(function: Function, got: Any, want: Any) -> bool:
    if not function.result.is_float:
        return bool(got == want)
    x, y = float(got), float(want)
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    if function.exact or math.isinf(x) or math.isinf(y):
        return x == y and math.copysign(1, x) == math.copysign(1, y)
    return x == y or abs(x - y) <= ULPS * float(np.spacing(min(abs(got), abs(want))))
