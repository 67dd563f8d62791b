"""What people hand to operators by mistake: one diagnostic, and the operator works afterwards."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang as tl

OPS = tl.parse("""
op double[T: num](x: T[N]) -> (y: T[N]) { y[i] = x[i] + x[i] }
op scale(x: f32[N], attr by: float = 2.0) -> (y: f32[N]) { y[i] = x[i] * by }
op first(x: f32[N], size n in 0..N) -> (y: f32[n]) { y[i] = x[i] }
op selfish(x: f32[N], attr self: float = 2.0) -> (y: f32[N]) { y[i] = x[i] * self }
""")
X = np.ones(4, np.float32)

MISTAKES: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: OPS.scale(X, by=10**400), "R0207", "`by`"),
    (lambda: OPS.scale(X, by=np.ones(2)), "R0207", "`by`"),
    (lambda: OPS.first(X), "R0313", "`n`"),
    (lambda: OPS.first(X, n="2"), "R0314", "'2'"),
    (lambda: OPS.first(X, n=2.0), "R0314", "2.0"),
    (lambda: OPS.first(X, n=float("nan")), "R0314", "nan"),
    (lambda: OPS.first(X, n=True), "R0314", "True"),
    (lambda: OPS.double(None), "R0313", "`x`"),
    (lambda: OPS.double("net.npy.txt"), "R0305", "net.npy.txt"),
    (lambda: OPS.double(np.ma.array([1.0, 2.0], mask=[False, True])), "R0305", "masked"),
    (lambda: tl.parse(b"op"), "P024", "bytes"),  # type: ignore[arg-type]
    (lambda: tl.parse(None), "P024", "NoneType"),  # type: ignore[arg-type]
    (lambda: OPS.double.schedule(3), "S0604", "3"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "code", "word"), MISTAKES, ids=[f"{code}-{word}" for _, code, word in MISTAKES])
def test_a_mistake_is_one_diagnostic_that_names_it(call: Callable[[], Any], code: str, word: str) -> None:
    with pytest.raises(tl.CompileError) as found:
        call()
    [diagnostic] = found.value.diagnostics
    assert diagnostic.code == code
    assert word in str(found.value)


def test_buffers_keep_their_element_type() -> None:
    for buffer in (np.array([0.1, 2]).data, array.array("d", [0.1, 2])):
        found = OPS.double(buffer)
        assert found.dtype == np.float64
        assert found.tolist() == [0.2, 4]


def test_a_parameter_may_be_called_self() -> None:
    assert OPS.selfish(X, self=3.0).tolist() == [3, 3, 3, 3]


def test_sizes_may_be_whole_numbers_of_numpy() -> None:
    assert OPS.first(X, n=np.int32(2)).tolist() == [1, 1]
