"""Operators that call kernels of other origin, compiled once for all sizes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import extern_kernels as kernels
import numpy as np
import pytest

import tensorlang as tl
from tensorlang.runtime.operator import Operator

SCALE = "extern op scale(x: f32[N], attr by: float = 2) -> (y: f32[N])\n"
SCALED = {"scale": tl.llvm_ir(kernels.scale("scale"), "scale")}
AROUND = """
op around(x: f32[N]) -> (y: f32[N]) {
    a[i] = x[i] + 1
    b = scale(a, by=3)
    y[i] = b[i] * b[i] + a[i]
}
"""


def opened(text: str, externs: Any, name: str) -> Operator:
    return tl.parse(text, externs=externs, sizes="symbolic")[name]


def variants(operator: Operator) -> int:
    return sum(map(len, operator._variants.values()))


def expected(x: Any) -> Any:
    return 9 * (x + 1) ** 2 + x + 1


def test_one_compiled_program_serves_every_size_of_an_operator_that_calls_a_kernel() -> None:
    operator = opened(SCALE + AROUND, SCALED, "around")
    for count in (3, 0, 1, 17, 4096):
        x = np.random.default_rng(count).integers(-8, 8, count).astype(np.float32)
        np.testing.assert_array_equal(operator(x), expected(x))
    assert variants(operator) == 1


def test_a_kernel_alone_serves_every_size() -> None:
    operator = opened(SCALE, SCALED, "scale")
    for count in (0, 1, 5):
        np.testing.assert_array_equal(operator(np.ones(count, np.float32)), np.full(count, 2, np.float32))
    assert variants(operator) == 1


def test_sizes_that_differ_are_left_open_where_sizes_adapt() -> None:
    operator = tl.parse(SCALE + AROUND, externs=SCALED, sizes="auto").around
    for count in range(1, 6):
        assert operator(np.ones(count, np.float32)).tolist() == [38] * count
    assert variants(operator) == 1


def test_a_kernel_is_told_a_pack_of_open_sizes_and_attributes_behind_it() -> None:
    text = "extern op told(x: f32[D..], attr whole: int, attr truth: bool = 1) -> (y: i64[5])"
    operator = opened(text, {"told": tl.llvm_ir(kernels.told(), "told")}, "told")
    for shape in ((3, 7), (2, 0), (1, 1)):
        assert operator(np.zeros(shape, np.float32), whole=-5).tolist() == [2, *shape, -5, 1]
    assert variants(operator) == 1


def test_a_kernel_is_told_sizes_that_are_computed_of_those_of_the_operator() -> None:
    text = (
        SCALE
        + "op inner(x: f32[N]) -> (y: f32[N - 2]) where N >= 2 {\n a[i] = x[i + 1] for i in 0..N - 2\n b = scale(a)\n y[i] = b[i] + x[i]\n}"
    )
    operator = opened(text, SCALED, "inner")
    for count in (2, 3, 9, 40):
        x = np.arange(count, dtype=np.float32)
        np.testing.assert_array_equal(operator(x), 2 * x[1:-1] + x[:-2])
    assert variants(operator) == 1


def test_kernels_one_after_the_other_share_scratch_memory_that_follows_the_sizes() -> None:
    text = "op chain(x: f32[M, N]) -> (y: f32[M, N], s: f32[M]) {\n"
    text += " r[i] = sum(j) x[i, j]\n t = scale(r)\n u = scale(t, by=0.5)\n v[i] = u[i] - r[i]\n s = scale(v)\n"
    text += " y[i, j] = x[i, j] * t[i]\n}"
    operator = opened(SCALE + text, SCALED, "chain")
    rng = np.random.default_rng(0)
    for shape in ((3, 4), (1, 1), (200, 300), (0, 5), (5, 0)):
        x = rng.integers(-5, 5, shape).astype(np.float32)
        y, s = operator(x)
        np.testing.assert_array_equal(y, x * (2 * x.sum(1, keepdims=True)))
        np.testing.assert_array_equal(s, np.zeros(shape[0]))
    assert variants(operator) == 1


@pytest.mark.parametrize("status", [1, -22])
def test_a_status_is_an_error_for_any_size(status: int) -> None:
    text = "extern op g(x: f32[N]) -> (y: f32[N])\nop f(x: f32[N]) -> (y: f32[N]) {\n a[i] = x[i] + 1\n b = g(a)\n y[i] = b[i] + 1\n}"
    operator = opened(text, {"g": tl.llvm_ir(kernels.returns(status), "returns")}, "f")
    for count in (1, 4):
        with pytest.raises(tl.RunError, match=rf"R0316.*extern `g` returned the status {status}"):
            operator(np.ones(count, np.float32))


def test_an_index_that_a_kernel_makes_is_checked_where_it_is_used_for_any_size() -> None:
    text = "extern op same(x: i64[N]) -> (y: i64[N])\n"
    text += "op f(x: f32[N], at: i64[K]) -> (y: f32[K]) {\n k = same(at)\n y[i] = x[k[i]]\n}"
    operator = opened(text, {"same": tl.llvm_ir(kernels.copies(64), "copies")}, "f")
    for count in (3, 6):
        x = np.arange(count, dtype=np.float32)
        assert operator(x, np.array([count - 1, 0])).tolist() == [count - 1, 0]
        with pytest.raises(tl.RunError, match="R0306"):
            operator(x, np.array([0, count]))


def test_results_are_written_into_given_arrays_for_any_size() -> None:
    operator = opened(SCALE + AROUND, SCALED, "around")
    for count in (4, 9):
        x, given = np.ones(count, np.float32), np.zeros(count, np.float32)
        assert operator(x, out=given) is given and given.tolist() == [38] * count
        again = operator.prepared(x, out=given)
        x[:] = 0
        assert again() is given and given.tolist() == [10] * count


def test_several_threads_call_one_operator_of_open_sizes_at_once() -> None:
    operator = opened(SCALE + AROUND, SCALED, "around")
    xs = [np.random.default_rng(k).integers(-9, 9, 1000 + k).astype(np.float32) for k in range(16)]
    with ThreadPoolExecutor(8) as threads:
        for x, found in zip(xs * 4, threads.map(operator, xs * 4), strict=True):
            np.testing.assert_array_equal(found, expected(x))


def test_the_report_of_an_operator_of_open_sizes_names_parts_kernels_and_times() -> None:
    operator = opened(SCALE + AROUND, SCALED, "around")
    told = operator.explain(np.ones(6, np.float32))
    assert "part around.0, took" in told and "extern scale, took" in told and "trusted: extern scale" in told
    assert "in 0 .. N" in told


def test_what_explains_an_operator_again_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, x = opened(SCALE + AROUND, SCALED, "around"), np.ones(5, np.float32)
    before = operator.explain(x)
    monkeypatch.setattr("tensorlang.backends.cpu.composite.loaded", lambda *_: pytest.fail("it is there"))
    assert operator.explain(x).splitlines()[-1] == before.splitlines()[-1]
