"""Copies hold the padding around their tensor whatever the sizes are, and however many windows fit."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import agrees
from scheduled_programs import declared

from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.schedule.pack import is_padding, pack
from tensorlang.syntax.parse import parse

WINDOWS = {
    "maxima": "max(r in 0..3, 2*p + r - 1 >= 0, 2*p + r - 1 < N) x[2*p + r - 1]",
    "sums": "sum(r in 0..3) (if 2*p + r - 1 >= 0 and 2*p + r - 1 < N then x[2*p + r - 1] else 0)",
}


@pytest.mark.parametrize("form", WINDOWS)
def test_the_copy_of_strided_windows_holds_the_padding(form: str) -> None:
    text = f"op f(x: f32[N]) -> (y: f32[(N + 1) // 2]) where N >= 1 {{ y[p] = {WINDOWS[form]} }}"
    packed = pack(declared(load_module(parse(Source("f.tl", text))), "f"), "x")
    assert not isinstance(packed, str)
    assert is_padding(packed)


@pytest.mark.parametrize("form", WINDOWS)
@pytest.mark.parametrize("n", [1, 2, 5, 16, 33])
def test_strided_windows_over_a_copy(form: str, n: int) -> None:
    text = f"op f(x: f32[N]) -> (y: f32[(N + 1) // 2]) where N >= 1 {{ y[p] = {WINDOWS[form]} }}"
    agrees(text, np.arange(1, n + 1, dtype=np.float32) % 7, schedule="pack x", symbolic=True)
