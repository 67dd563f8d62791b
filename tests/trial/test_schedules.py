"""Schedules that people get wrong from Python: each is one diagnostic, and the operator works afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang as tl

OPS = tl.parse("op product(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }")
A, B = np.ones((5, 3), np.float32), np.ones((3, 7), np.float32)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("tile c (i, i) by (4, 8) -> io, jo, ii, ji", "S0102"),
        ("tile c (i, c.i) by (4, 8) -> io, jo, ii, ji", "S0102"),
        ("schedule other for cpu { }", "S0604"),
        ("schedule product for abacus { }", "S0604"),
        ("schedule product for cpu { }\ntactic halves(i) { split i by 2 -> io, ii }", "S0604"),
        ("schedule product for cpu(M >= 64) { }", "S0604"),
    ],
)
def test_a_wrong_schedule_is_one_diagnostic(text: str, code: str) -> None:
    with pytest.raises(tl.CompileError) as found:
        OPS.product.schedule(text)(A, B)
    assert [d.code for d in found.value.diagnostics] == [code]
    assert OPS.product(A, B).tolist() == (A @ B).tolist()
