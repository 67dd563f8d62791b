"""Index arithmetic is that of integers: what would leave 64 bits is refused, what stays within them is right."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import agrees, only

import tensorlang as tl
from tensorlang.diagnostics import CompileError

W = np.arange(1, 9, dtype=np.float32)
HALF = 2**62
WIDE = {
    "a condition": (f"op f(x: f32[2], w: f32[N]) -> (y: f32[N]) {{ y[i] = if {HALF} * i <= {HALF} then x[i] else w[i] }}", (W[:2], W)),
    "padding": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i * {HALF} | 0] }}", (W,)),
    "a value": (f"op f(x: f32[N]) -> (y: i64[N]) {{ y[i] = i * {HALF} }}", (W,)),
    "a guard": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i] for i * {HALF} <= 0\n y[i] = 0 otherwise }}", (W,)),
    "a range": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = sum(k in i * {HALF}..i * {HALF} + 2) x[i] }}", (W,)),
    "terms that are kept": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = sum(k in 0..N, k * {HALF} == i) x[k] }}", (W,)),
}


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
@pytest.mark.parametrize("form", WIDE)
def test_an_index_that_leaves_64_bits_is_refused(form: str, sizes: str) -> None:
    text, arrays = WIDE[form]
    with pytest.raises(CompileError) as refused:
        only(tl.parse(text, sizes=sizes))(*arrays)
    assert {d.code for d in refused.value.diagnostics} == {"T0308"}


NARROW = {
    "a division": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i * 4096 // 4096] }",
    "a remainder": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[(i + 4611686018427387) % 461168601842738790 | 0] }",
    "a long range": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = sum(k in 0..N * 1000, k == i * 1000) x[i] }",
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("form", NARROW)
def test_large_numbers_within_64_bits_are_right(form: str, symbolic: bool) -> None:
    agrees(NARROW[form], W, symbolic=symbolic)
