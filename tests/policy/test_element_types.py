"""How many bytes elements are computed in: of integers as few as are known to be enough."""

from __future__ import annotations

import pytest
from scheduled_programs import operator

from tensorlang.policy.element_types import computed_bytes


@pytest.mark.parametrize(
    ("signature", "body", "expected"),
    [
        pytest.param("x: u8[N]) -> (y: u8[N])", "y[i] = u8((i32(x[i]) * 3 + 2) // 4)", {"y": 2}, id="bytes"),
        pytest.param("x: u8[N]) -> (y: u8[N])", "y[i] = u8((i32(x[i]) * 300 + 2) // 400)", {"y": 4}, id="more than 16 bits"),
        pytest.param("x: u8[N]) -> (y: u16[N])", "y[i] = u16(i32(x[i]) * 70001)", {"y": 2}, id="what is cut"),
        pytest.param("x: i64[N] in 0..9) -> (y: i32[N])", "y[i] = i32(x[i] * 3 % 7)", {"y": 8}, id="what is loaded"),
        pytest.param("x: u8[N]) -> (y: u8[N])", "a[i] = i32(x[i]) - 9\ny[i] = u8(abs(a[i]) % 7)", {"a": 2, "y": 2}, id="on the way"),
        pytest.param("x: u8[N]) -> (y: u8[N])", "a[i] = i32(x[i]) * 900\ny[i] = u8(a[i] // 900)", {"a": 4, "y": 4}, id="wide on the way"),
        pytest.param("x: u8[N]) -> (y: u8[N])", "y[i] = u8(f64(x[i]) * 0.5)", {"y": 8}, id="floats"),
        pytest.param("x: u8[N]) -> (y: u8[N])", "y[i] = if i >= 3 then x[i] else u8(0)", {"y": 1}, id="compared indices"),
        pytest.param("x: u8[N]) -> (y: u8[N])", "y[i] = u8(i % 9) + x[i]", {"y": 1}, id="indices"),
        pytest.param("t: u8[256], x: i8[N]) -> (y: u8[N])", "y[i] = t[i32(x[i]) + 128]", {"y": 1}, id="rows in registers"),
        pytest.param("t: u8[300], x: u8[N]) -> (y: u8[N])", "y[i] = t[x[i]]", {"y": 8}, id="rows in memory"),
        pytest.param("x: u8[N, 4]) -> (y: u8[N])", "y[i] = u8(sum(k) i32(x[i, k]))", {"y": 4}, id="sums"),
        pytest.param("x: u8[N, 4]) -> (y: u8[N])", "y[i] = max(k) x[i, k]", {"y": 1}, id="extrema"),
    ],
)
def test_elements_are_computed_in_as_many_bytes_as_their_numbers_need(signature: str, body: str, expected: dict[str, int]) -> None:
    assert dict(computed_bytes(operator(signature, body, {"N": 40}))) == expected
