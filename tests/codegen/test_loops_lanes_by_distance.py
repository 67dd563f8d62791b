"""A sweep that reads back what it stored some iterations before runs in lanes where these are many enough, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import check

from codegen.dtypes import DType
from codegen.llvm.target import host
from codegen.loops.lanes_by_distance import lanes_by_distance
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N, K)(x: f32[N], out y: f32[N]) {\nfor n in 0 .. N { y[n] = x[n] }\n"
SWEEPS = {
    "one distance": "for k in 1 .. K { for n in k .. N { y[n] = y[n] + y[n - k] * 0.5_f32 } }",
    "two distances": "for k in 1 .. K { for n in 2*k .. N { y[n] = y[n - k] - y[n - 2*k] * x[n] } }",
    "what is ahead": "for k in 1 .. K { for n in k .. N - 1 { y[n] = (y[n - k] + y[n + 1]) * 0.5_f32 } }",
    "distances that are the same": "for k in 1 .. K { for n in k .. N { y[n] = max(y[n], y[n - k] + x[k]) } }",
}


def after(body: str) -> Function:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    made = lanes_by_distance(function, _lanes)
    verify(made)
    return made


def _lanes(dtype: DType) -> int:
    return 16 // dtype.size_bytes


def test_lanes_run_where_the_distance_is_as_long_as_a_vector() -> None:
    text = show(after(SWEEPS["one distance"]))
    assert "if index(k) >= 4_i64" in text and "for n_v in 0 .. 4 vector 4" in text
    assert "index(k) >= 4_i64 and index(2*k) >= 4_i64" in show(after(SWEEPS["two distances"]))


@pytest.mark.parametrize("body", SWEEPS.values(), ids=SWEEPS)
@pytest.mark.parametrize(("n", "k"), [(1, 3), (7, 9), (41, 13)])
def test_a_sweep_in_lanes_has_the_bits_of_the_serial_one(n: int, k: int, body: str) -> None:
    x = np.random.default_rng(n).standard_normal(max(n, k)).astype(np.float32)[:n]
    if "x[k]" in body:
        body = body.replace("x[k]", "x[min(k, N - 1)]")
    sizes = {"N": n, "K": min(k, (n + 1) // 2)}
    before = check(f"{HEAD}{body}\n}}", sizes, targets=[host()], x=x, y=np.zeros(n, np.float32))
    made = check(show(after(body)), sizes, x=x, y=np.zeros(n, np.float32))
    assert_same_bits(made["y"], before["y"], "in lanes")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("for n in 1 .. N { y[n] = y[n] + y[n - 1] }", "the distance is known"),
        ("for n in 0 .. N { y[n] = y[n] + x[n] }", "nothing is read back"),
        ("for k in 1 .. K { for n in k .. N { y[n] = y[n] + y[n // 2] } }", "it changes"),
        ("for k in 1 .. K { for n in 0 .. N - k { y[N - n - 1] = y[N - n - 1] + y[N - n - 1 - k] } }", "it goes backwards"),
        ("for k in 1 .. K { for n in k .. N { y[n] = y[n - k] + x[(N + 2*n) // N] } }", "what else it reads lies anywhere"),
        ("for k in 1 .. K { for n in k .. N { y[n] = exp(y[n - k]) } }", "it calls a function"),
        ("for k in 1 .. K { for n in k .. N { y[n] = y[n - k] y[n] = y[n] + x[n] } }", "it does two things"),
    ],
)
def test_other_loops_stay_serial(body: str, why: str) -> None:
    assert "vector" not in show(after(body)), why
