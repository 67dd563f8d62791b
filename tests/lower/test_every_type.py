"""Every element type natively: the interpreter's bits, for sums, casts, reductions and saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bits import assert_same_bits
from samples import CHAINS, NUMBERS, TYPES, samples

import tensorlang as tl
from codegen.dtypes import DTYPES, DType
from tensorlang.tensor.interp import interpret
from tensorlang.validation.budget import ENVIRONMENT

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def not_validated_on_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled here is compared with the interpreter bit by bit, and terms know no types."""
    monkeypatch.setenv(ENVIRONMENT, "0")


def same(operator: tl.Operator, *arrays: Array) -> None:
    """Check that the operator gives the interpreter's bits; NaN is NaN."""
    program = operator.program(*arrays)
    expected = interpret(program, {}, dict(zip((p.name for p in program.params), arrays, strict=True)))
    got = operator(*arrays)
    for name, have in zip(program.results, got if isinstance(got, tuple) else (got,), strict=True):
        assert_same_bits(have, expected[name], name)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_elementwise(dtype: DType) -> None:
    operator = tl.parse(
        f"op f(a: {dtype}[N], b: {dtype}[N]) -> (s: {dtype}[N], d: {dtype}[N], p: {dtype}[N], m: {dtype}[N], l: bool[N]) {{\n"
        "s[i] = a[i] + b[i]\nd[i] = a[i] - b[i]\np[i] = a[i] * b[i]\nm[i] = max(a[i], b[i])\nl[i] = a[i] < b[i]\n}"
    ).f
    same(operator, samples(dtype), samples(dtype)[::-1].copy())


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_casts_to_every_type(source: DType) -> None:
    results = ", ".join(f"r_{d}: {d}[N]" for d in TYPES)
    lines = "\n".join(f"r_{d}[i] = {d}(x[i])" for d in TYPES)
    same(tl.parse(f"op f(x: {source}[N]) -> ({results}) {{\n{lines}\n}}").f, samples(source))


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_saturating_casts_to_every_type(source: DType) -> None:
    results = ", ".join(f"r_{d}: {d}[N]" for d in NUMBERS)
    lines = "\n".join(f"r_{d}[i] = sat[{d}](x[i])" for d in NUMBERS)
    same(tl.parse(f"op f(x: {source}[N]) -> ({results}) {{\n{lines}\n}}").f, samples(source))


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_chains_of_casts(source: DType) -> None:
    results = ", ".join(f"r{k}: {t}[N]" for k, t in enumerate(CHAINS))
    lines = "\n".join(f"r{k}[i] = {chain}" for k, chain in enumerate(CHAINS.values()))
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
