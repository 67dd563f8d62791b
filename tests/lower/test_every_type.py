"""Every element type natively: the interpreter's bits, for sums, casts, reductions and saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from codegen.dtypes import DTYPES, DType
from tensorlang.tensor.arith import integer_range
from tensorlang.tensor.interp import interpret

Array = np.ndarray[Any, Any]
SOURCES = list(DTYPES.values())
NUMBERS = [d for d in SOURCES if d.name != "bool"]


def same(operator: tl.Operator, *arrays: Array) -> None:
    """Check that the operator gives the interpreter's bits; NaN is NaN."""
    program = operator.program(*arrays)
    expected = interpret(program, {}, dict(zip((p.name for p in program.params), arrays, strict=True)))
    got = operator(*arrays)
    for name, have in zip(program.results, got if isinstance(got, tuple) else (got,), strict=True):
        want = expected[name]
        assert have.dtype == want.dtype
        different = np.argwhere(~((have == want) | ((have != have) & (want != want))))
        assert not len(different), f"{name}{different[0]}: {have[tuple(different[0])]!r}, not {want[tuple(different[0])]!r}"


def samples(dtype: DType, count: int = 67) -> Array:
    """Return values of every magnitude, the extremes among them."""
    rng = np.random.default_rng(dtype.bits)
    if dtype.name == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_integer:
        low, high = integer_range(dtype)
        edges = [low, high, 0, 1, max(low, -1), high // 2 + 1]
        some = [int(low + (high - low) * float(f)) for f in rng.random(count - len(edges))]
        return (
            np.array([*edges, *(min(max(v, low), high) for v in some)], object)
            .astype(np.int64 if dtype.kind == "int" else np.uint64)
            .astype(dtype.numpy)
        )
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        448.0,
        465.0,
        -480.0,
        61440.0,
        65519.0,
        65520.0,
        3.3e38,
        1e-9,
        2.0**63,
        -(2.0**31) - 3,
    ]
    with np.errstate(over="ignore"):
        return np.concatenate([edges, rng.standard_normal(count - len(edges)) * 10.0 ** rng.integers(-6, 12, count - len(edges))]).astype(
            dtype.numpy
        )


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_elementwise(dtype: DType) -> None:
    operator = tl.parse(
        f"op f(a: {dtype}[N], b: {dtype}[N]) -> (s: {dtype}[N], d: {dtype}[N], p: {dtype}[N], m: {dtype}[N], l: bool[N]) {{\n"
        "s[i] = a[i] + b[i]\nd[i] = a[i] - b[i]\np[i] = a[i] * b[i]\nm[i] = max(a[i], b[i])\nl[i] = a[i] < b[i]\n}"
    ).f
    same(operator, samples(dtype), samples(dtype)[::-1].copy())


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_casts_to_every_type(source: DType) -> None:
    results = ", ".join(f"r_{d}: {d}[N]" for d in SOURCES)
    lines = "\n".join(f"r_{d}[i] = {d}(x[i])" for d in SOURCES)
    same(tl.parse(f"op f(x: {source}[N]) -> ({results}) {{\n{lines}\n}}").f, samples(source))


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_saturating_casts_to_every_type(source: DType) -> None:
    results = ", ".join(f"r_{d}: {d}[N]" for d in NUMBERS)
    lines = "\n".join(f"r_{d}[i] = sat[{d}](x[i])" for d in NUMBERS)
    same(tl.parse(f"op f(x: {source}[N]) -> ({results}) {{\n{lines}\n}}").f, samples(source))


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_chains_of_casts(source: DType) -> None:
    chains = (
        "f32(f16(f32(x[i])))",
        "i32(i4(i64(x[i])))",
        "u64(u4(u64(x[i])))",
        "f64(f8e4m3(f64(x[i])))",
        "i8(f8e5m2(f32(x[i])))",
        "bf16(i16(x[i]))",
    )
    types = ("f32", "i32", "u64", "f64", "i8", "bf16")
    results = ", ".join(f"r{k}: {t}[N]" for k, t in enumerate(types))
    lines = "\n".join(f"r{k}[i] = {chain}" for k, chain in enumerate(chains))
    same(tl.parse(f"op f(x: {source}[N]) -> ({results}) {{\n{lines}\n}}").f, samples(source))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_reductions(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 4, (5, 37)).astype(dtype.numpy)
    operator = tl.parse(
        f"op f(x: {dtype}[M, N]) -> (s: {dtype}[M], c: {dtype}[N], h: {dtype}[M], l: {dtype}[M], a: i64[M]) where N >= 1 {{\n"
        "s[i] = sum(j) x[i, j]\nc[j] = sum(i) x[i, j]\nh[i] = max(j) x[i, j]\nl[i] = min(j) x[i, j]\na[i] = argmax(j) x[i, j]\n}"
    ).f
    same(operator, x)


def test_reductions_of_truth_values() -> None:
    x = samples(DTYPES["bool"], 111).reshape(3, 37)
    same(
        tl.parse(
            "op f(x: bool[M, N]) -> (a: bool[M], b: bool[M], c: i32) {\n"
            "a[i] = any(j) x[i, j]\nb[i] = all(j) x[i, j]\nc = sum(i, j) i32(x[i, j])\n}"
        ).f,
        x,
    )
