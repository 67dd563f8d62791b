"""How exact native code is: `strict` operators give the interpreter's bits, `fast` ones round products and sums together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from codegen.llvm.target import host
from codegen.loops.printer import show
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.diagnostics import CompileError
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.interp import interpret

Array = np.ndarray[Any, Any]

TEXT = """
op matmul[T: float](a: T[M, K], b: T[K, N]) -> (c: T[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }
op total[T: float](x: T[M, N]) -> (y: T[M]) { y[i] = sum(j) x[i, j] }
op dot[T: float](x: T[N], w: T[N]) -> (y: T) { y = sum(j) x[j] * w[j] }
op conv[T: float](x: T[C, H, W], w: T[F, C, R, S]) -> (y: T[F, H, W]) {
    y[f, p, q] = sum(c, r, s) x[c, p + r - 1, q + s - 1 | 0] * w[f, c, r, s]
}
op normed[T: float](x: T[M, N]) -> (y: T[M, N]) {
    m[i]    = max(j) x[i, j]
    e[i, j] = (x[i, j] - m[i]) * (x[i, j] - m[i]) + 0.1
    y[i, j] = e[i, j] / sum(k) e[i, k]
}
op cumsum[T: float](x: T[N]) -> (y: T[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] * 0.9 + x[i]   for i in 1..N
}
op cholesky[T: float](a: T[N, N]) -> (l: T[N, N]) {
    l[i, j] = (a[i, j] - sum(k in 0..j) l[i, k] * l[j, k]) / l[j, j]   for j < i
    l[i, i] = sqrt(a[i, i] - sum(k in 0..i) l[i, k] * l[i, k])
    l[i, j] = 0                                                        otherwise
}
op heat[T: float](u0: T[N, N], attr steps: int = 3) -> (u: T[N, N]) {
    s[0, i, j]     = u0[i, j]
    s[t + 1, i, j] = s[t, i, j] + 0.1 * (s[t, i - 1, j] + s[t, i + 1, j] + s[t, i, j - 1] - 3 * s[t, i, j])
                     for t in 0..steps, i in 1..N - 1, j in 1..N - 1
    s[t + 1, i, j] = s[t, i, j]   otherwise
    u[i, j]        = s[steps, i, j]
}
"""


def values(dtype: Any, *shape: int, seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def positive(dtype: Any, n: int) -> Array:
    a = np.random.default_rng(3).standard_normal((n, n))
    return (a @ a.T + n * np.eye(n)).astype(dtype)


CASES: dict[str, Any] = {
    "matmul": lambda t: (values(t, 37, 301), values(t, 301, 45, seed=1)),
    "total": lambda t: (values(t, 9, 517),),
    "dot": lambda t: (values(t, 1001), values(t, 1001, seed=1)),
    "conv": lambda t: (values(t, 5, 11, 19), values(t, 6, 5, 3, 3, seed=1)),
    "normed": lambda t: (values(t, 7, 203),),
    "cumsum": lambda t: (values(t, 100),),
    "cholesky": lambda t: (positive(t, 24),),
    "heat": lambda t: (values(t, 17, 21 - 4),),
}


def interpreted(operator: Any, *args: Array) -> Array:
    return interpreted_all(operator, *args)[0]


def interpreted_all(operator: Any, *args: Array) -> list[Array]:
    program = operator.program(*args)
    results = interpret(program, {}, dict(zip((p.name for p in program.params), args, strict=True)))
    return [results[name] for name in program.results]


@pytest.fixture(scope="module")
def strict() -> tl.Operators:
    return tl.parse(TEXT, mode="strict")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_a_strict_operator_gives_the_bits_of_the_left_fold(strict: tl.Operators, name: str, dtype: Any) -> None:
    args = CASES[name](dtype)
    assert strict[name](*args).tobytes() == interpreted(strict[name], *args).tobytes()


def test_the_file_says_it_before_op_and_a_caller_takes_it_over() -> None:
    text = """
strict op total(x: f32[N]) -> (y: f32) { y = sum(i) x[i] }
op twice(x: f32[N]) -> (y: f32) {
    t = total(x)
    y = 2 * t
}
fast op axpy(x: f32[N], y: f32[N]) -> (z: f32[N]) { z[i] = 1.1 * x[i] + y[i] }
op plain(x: f32[N]) -> (y: f32) { y = sum(i) x[i] }
"""
    x = values(np.float32, 9)
    ops = tl.parse(text)
    assert [ops.total.program(x).mode, ops.twice.program(x).mode, ops.axpy.program(x, x).mode] == ["strict", "strict", "fast"]
    assert ops.plain.program(x).mode == "reduce"
    assert [tl.parse(text, mode="fast").plain.program(x).mode, tl.parse(text, mode="fast").total.program(x).mode] == ["fast", "strict"]
    assert str(ops.total) == f"<{ops.total.signature}>" and ops.total.signature.startswith("strict op total")


def test_a_schedule_that_regroups_a_strict_sum_is_refused(strict: tl.Operators) -> None:
    x = values(np.float32, 4, 64)
    for schedule, code in {
        "split k by 8 -> ko, ki\nvectorize ki": "S0303",
        "split k by 8 -> ko, ki\norder i, ki, ko, j": "S0301",
        "rfactor k by 8": "S0204",
    }.items():
        with pytest.raises(CompileError) as refused:
            strict.matmul.schedule(schedule)(x, x.T.copy())
        assert refused.value.diagnostics[0].code == code, refused.value


@pytest.mark.parametrize("mode", ["reduce", "strict"])
def test_a_product_that_is_summed_is_rounded_with_the_sum_whatever_its_factors_are_called(mode: str) -> None:
    text = "{} op f(x: f32[N], w: f32[N]) -> (y: f32) {{ y = sum(i) sq(x[i] - w[i]) }}"
    program = tl.parse(text.format(mode)).f.program(values(np.float32, 40), values(np.float32, 40))
    assert ("fma(x_1, x_1, " in show(loops_of(proven(program, Schedule("f")), "f").function)) == (mode == "reduce")


def test_a_fast_operator_rounds_a_product_and_a_sum_once_where_one_instruction_computes_both() -> None:
    text = (
        "{} op f(x: f32[N], y: f32[N]) -> (a: f32[N], b: f32[N], c: f32[N], n: i32[N]) {{\n    a[i] = x[i] * x[i] + y[i]\n"
        "    b[i] = y[i] - x[i] * x[i]\n    c[i] = x[i] * x[i] - y[i]\n    n[i] = i32(x[i]) * 3 + 1\n}}"
    )
    x, y = values(np.float32, 33), values(np.float32, 33, seed=1)
    wide, other = x.astype(np.float64), y.astype(np.float64)
    once = [(wide * wide + other), (other - wide * wide), (wide * wide - other)]
    fast = tl.parse(text.format("fast")).f(x, y)
    plain = tl.parse(text.format("reduce")).f(x, y)
    twice, fused = [x * x + y, y - x * x, x * x - y], host().contracts
    expected = [want.astype(np.float32) for want in once] if fused else twice
    assert all((got == want).all() for got, want in zip(fast[:3], expected, strict=True))
    assert all((got == want).all() for got, want in zip(plain[:3], twice, strict=True))
    assert any((a != b).any() for a, b in zip(fast[:3], plain[:3], strict=True)) == fused and (fast[3] == plain[3]).all()


def test_quotients_of_a_fast_operator_are_off_by_few_roundings_and_never_at_zero_or_infinity() -> None:
    text = """fast op f(x: f64[N], r: f64[N], s: f64) -> (a: f64[N], b: f64[N], c: f64[N], d: f64[N], e: f64[N]) {
    a[i] = x[i] / r[i]
    b[i] = 3 * x[i] / (r[i] * r[i])
    c[i] = x[i] / s
    d[i] = x[i] / 3 / s / r[i]
    e[i] = 0.7 / (s / x[i])
}"""
    x, r = values(np.float64, 45), values(np.float64, 45, seed=1)
    x[:9] = r[:9] = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 2.0, -3.0, 0.5]
    x, r = (m.ravel() for m in np.meshgrid(x, r))
    operator = tl.parse(text).f
    for s in (0.0, np.inf, 0.3, np.nan):
        for found, exact in zip(operator(x, r, np.float64(s)), interpreted_all(operator, x, r, np.float64(s)), strict=True):
            np.testing.assert_allclose(found, exact, rtol=6 * 2.0**-53, atol=0)
            assert (np.signbit(found) == np.signbit(exact))[~np.isnan(exact)].all()


def test_integers_of_a_fast_operator_are_those_of_the_quotients_that_are_written() -> None:
    text = """fast op f(a: i32[N], t: f32[8]) -> (y: f32[N], z: f32[N], w: f32[N]) {
    q[i] = f32(a[i]) / 41
    y[i] = t[i32(floor(q[i])) | clamp]
    z[i] = q[i] * 3
    w[i] = floor(f32(a[i]) / 41)
}"""
    a = np.arange(300, dtype=np.int32)
    y, _, w = tl.parse(text).f(a, np.arange(8, dtype=np.float32))
    assert (y == a // 41).all() and (w == a // 41).all()


def test_conditions_of_a_fast_operator_keep_indices_in_range_that_are_made_of_the_same_quotients() -> None:
    text = """fast op f(a: i32[N] in 0..300, t: f32[1]) -> (y: f32[N], z: f32[N]) {
    q[i] = f32(a[i]) / 41
    y[i] = if q[i] < 1 then t[i32(f32(a[i]) / 41)] else 9
    z[i] = q[i] * 3
}"""
    y, _ = tl.parse(text).f(np.arange(42, dtype=np.int32), np.ones(1, np.float32))
    assert y.tolist() == [1.0] * 41 + [9.0]


def test_elementary_functions_are_those_of_the_other_modes(strict: tl.Operators) -> None:
    text = """op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    m[i]    = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    y[i, j] = e[i, j] / sum(k) e[i, k]
}"""
    x = values(np.float32, 5, 130)
    operator = tl.parse(text, mode="strict").softmax
    np.testing.assert_allclose(operator(x), interpreted(operator, x), rtol=1e-6)


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(CompileError) as refused:
        tl.parse(TEXT, mode="exact")  # type: ignore[arg-type]  # the mistake this is about
    assert refused.value.diagnostics[0].code == "C0104"
