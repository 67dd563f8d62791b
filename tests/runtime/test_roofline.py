"""Rooflines: what there is to do against what the machine can."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang as tl
from codegen.dtypes import DTYPES, DType, bf16, f32, i8, u8
from codegen.llvm.target import host
from tensorlang.backends.cpu import roofline
from tensorlang.backends.cpu.roofline import Ceilings, Level, bound_of
from tensorlang.runtime.work import Work, narrow_products, work_of

MACHINE = Ceilings(1, 100.0, (Level("L1", 50, 20.0, 10.0), Level("DRAM", 1 << 62, 2.0, 1.0)))


@pytest.mark.parametrize(
    ("work", "compute", "memory", "by"),
    [
        (Work(1000, 30, 10), 10.0, 3.0, "compute"),
        (Work(10, 30, 10), 0.1, 3.0, "memory (L1)"),
        (Work(10, 60, 0), 0.1, 30.0, "memory (DRAM)"),
        (Work(10, 0, 60), 0.1, 60.0, "memory (DRAM)"),
    ],
)
def test_the_longer_of_arithmetic_and_bytes_bounds_a_program(work: Work, compute: float, memory: float, by: str) -> None:
    found = bound_of(work, MACHINE)
    assert (found.compute_seconds, found.memory_seconds, found.by) == (pytest.approx(compute), pytest.approx(memory), by)


def test_works_add_up() -> None:
    total = Work(1, 2, 3) + Work(10, 20, 30)
    assert (total.flops, total.moved_bytes, total.intensity) == (11, 55, 11 / 55)


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        pytest.param("(a: f32[100, 80]) -> (y: f32[100]) { y[i] = sum(k) a[i, k] * a[i, k] }", 2 * 8000, id="the same of all elements"),
        pytest.param("(l: f32[100, 100]) -> (y: f32[100]) { y[i] = sum(k in 0..i) l[i, k] * l[i, k] }", 9900, id="a triangle"),
        pytest.param("(a: f32[100, 100]) -> (y: f32[100]) { y[i] = sum(k, k < i) a[i, k] * a[i, k] }", 9900, id="a condition"),
        pytest.param(
            "(x: f32[100]) -> (y: f32[100]) {\n"
            "    s[0, i]     = x[i]\n"
            "    s[t + 1, i] = s[t, i] + s[t, i - 1 | 0] for t in 0..50, i in 0..100\n"
            "    y[i]        = s[50, i]\n}",
            5000,
            id="steps behind a start",
        ),
        pytest.param("(x: f32[0]) -> (y: f32[0]) {\n y[i] = x[i] for i < 0\n y[i] = 2 * x[i] otherwise\n}", 0, id="no elements"),
    ],
)
def test_operations_are_counted_where_they_are_done(text: str, operations: int) -> None:
    operator = tl.parse(f"op f{text}").f
    shapes = [[int(d.text) for d in p.type.dims] for p in operator.declaration.params]  # type: ignore[union-attr]
    assert work_of(operator.program(*(np.zeros(s, np.float32) for s in shapes))).flops == pytest.approx(operations, rel=0.02)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("op f(x: bf16[N], w: bf16[N]) -> (y: f32[]) { y = sum(k) f32(x[k]) * f32(w[k]) }", (bf16, bf16)),
        ("op f(x: f32[N], w: bf16[N]) -> (y: f32[]) { y = 1 + sum(k) f32(bf16(x[k])) * f32(w[k]) }", (bf16, bf16)),
        ("op f(x: u8[N], w: i8[N]) -> (y: i32[]) { y = sum(k) i32(x[k]) * i32(w[k]) }", (u8, i8)),
        ("op f(x: u8[N], w: i8[N]) -> (y: f32[]) { y = sum(k) f32(x[k]) * f32(w[k]) }", None),
        ("op f(x: f32[N], w: f32[N]) -> (y: f32[]) { y = sum(k) x[k] * w[k] }", None),
        ("op f(x: bf16[N]) -> (y: f32[]) { y = max(k) f32(x[k]) * f32(x[k]) }", None),
    ],
)
def test_sums_of_products_of_narrow_elements_are_known_as_such(text: str, found: tuple[DType, DType] | None) -> None:
    operator = tl.parse(text).f
    arrays = [np.zeros(4, DTYPES[p.type.dtype].numpy) for p in operator.declaration.params]  # type: ignore[union-attr]
    assert narrow_products(operator.program(*arrays)) == found


def test_products_of_narrow_elements_have_the_higher_of_two_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_fma", lambda target, threads, dtype: 100.0 * threads)
    monkeypatch.setattr(roofline, "_levels", lambda target, threads: MACHINE.levels)
    monkeypatch.setattr(roofline, "dot_ops", lambda a, b, target: 250.0 if a == bf16 else 50.0)
    uncached = roofline.ceilings.__wrapped__
    assert [uncached(host(), 2, f32, p).flops for p in (None, (bf16, bf16), (u8, i8))] == [200.0, 500.0, 200.0]
