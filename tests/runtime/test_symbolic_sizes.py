"""Operators compiled once and called with any sizes: they compute, check and refuse what they do when sizes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guarded import agrees, in_child
from work_done import calls_made

import tensorlang as tl
from stdlib.library import roles
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import Source
from tensorlang.runtime.operator import Operator, Operators
from tensorlang.tensor.interp import interpret

TEXT = """
op linear[T: float](x: T[M, K], w: T[N, K], b: T[N] = 0) -> (y: T[M, N]) { y[i, j] = b[j] + sum(k) x[i, k] * w[j, k] }
op conv2d(x: f32[B, (groups, C), H, W], w: f32[(groups, M), C, R, S], attr groups: int = 1, attr stride: int = 1)
    -> (y: f32[B, (groups, M), (H - R) // stride + 1, (W - S) // stride + 1]) where H >= R, W >= S {
    y[b, (g, m), i, j] = sum(c, r, s) x[b, (g, c), i * stride + r, j * stride + s] * w[(g, m), c, r, s]
}
op softmax(x: f32[B, N]) -> (y: f32[B, N]) where N >= 1 {
    t[b] = max(j) x[b, j]
    e[b, j] = exp(x[b, j] - t[b])
    y[b, j] = e[b, j] / sum(k) e[b, k]
}
op cumsum[T](x: T[N]) -> (y: T[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]    for i in 1..N
}
op attention(q: f32[M, D], k: f32[N, D], v: f32[N, E]) -> (y: f32[M, E]) where N >= 1 {
    s[i, j] = 0.125 * sum(d) q[i, d] * k[j, d]
    t[i] = max(j) s[i, j]
    e[i, j] = exp(s[i, j] - t[i])
    z[i] = sum(j) e[i, j]
    y[i, c] = sum(j) e[i, j] * v[j, c] / z[i]
}
op add[T: num](x: T[broadcast D..], y: T[broadcast D..]) -> (z: T[D..]) { z[d..] = x[d..] + y[d..] }
op scale[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }
op concat[T](each x: T[A.., each N, B..], attr axis: int) -> (y: T[A.., sum(N..), B..]) where rank(A) == axis {
    y[a.., before(N) + j, b..] = x[a.., j, b..]   for each x, j in 0..N
}
op first(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i] for i in 0..k }
"""
SIZES = (0, 1, 7, 33)


def operators(text: str = TEXT, *, symbolic: bool = True, threads: int = 1) -> Operators:
    sizes = "symbolic" if symbolic else "static"
    return Operators(Source("mine.tl", text), toolchain(threads=threads), roles=lambda: (roles(),), sizes=sizes)


@pytest.fixture(scope="module")
def ops() -> Operators:
    return operators()


@pytest.fixture(scope="module")
def known() -> Operators:
    return operators(symbolic=False)


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def meant(operator: Operator, *arrays: np.ndarray[Any, Any], **attrs: int) -> np.ndarray[Any, Any]:
    """Return what the equations of an operator of known sizes say."""
    program = operator.program(*arrays, **attrs)
    (found,) = interpret(program, {}, dict(zip((p.name for p in program.params), arrays, strict=True))).values()
    return found


def kernels(operator: Any) -> int:
    return sum(len(v) for v in operator._variants.values())


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("n", SIZES)
def test_linear(ops: Operators, m: int, n: int) -> None:
    for k in SIZES:
        x, w, b = random(m, k), random(n, k, seed=1), random(n, seed=2)
        np.testing.assert_allclose(ops.linear(x, w, b), x @ w.T + b, rtol=1e-4, atol=1e-5, strict=True)
    assert kernels(ops.linear) == 1


@pytest.mark.parametrize(("h", "c", "r"), [(7, 3, 3), (33, 1, 1), (7, 7, 7), (33, 7, 3), (7, 0, 1), (1, 1, 1)])
def test_conv2d(ops: Operators, known: Operators, h: int, c: int, r: int) -> None:
    for batch in (0, 1, 2):
        x, w = random(batch, c, h, h + 1), random(5, c, r, r, seed=1)
        np.testing.assert_allclose(ops.conv2d(x, w), meant(known.conv2d, x, w), rtol=1e-4, atol=1e-5, strict=True)
        x, w = random(batch, 2 * c, h, h + 1), random(4, c, r, r, seed=1)
        np.testing.assert_allclose(
            ops.conv2d(x, w, groups=2, stride=2), meant(known.conv2d, x, w, groups=2, stride=2), rtol=1e-4, atol=1e-5, strict=True
        )
    assert kernels(ops.conv2d) == 2


@pytest.mark.parametrize("n", SIZES[1:])
def test_softmax_and_attention(ops: Operators, known: Operators, n: int) -> None:
    for m in SIZES:
        x = random(m, n)
        np.testing.assert_allclose(ops.softmax(x), meant(known.softmax, x), rtol=1e-5, atol=1e-6, strict=True)
        q, k, v = random(m, 8), random(n, 8, seed=1), random(n, 7, seed=2)
        np.testing.assert_allclose(ops.attention(q, k, v), meant(known.attention, q, k, v), rtol=1e-4, atol=1e-5, strict=True)
    assert kernels(ops.softmax) == kernels(ops.attention) == 1


@pytest.mark.parametrize("n", SIZES)
def test_cumsum(ops: Operators, n: int) -> None:
    x = np.arange(n, dtype=np.int32)
    np.testing.assert_array_equal(ops.cumsum(x), np.cumsum(x, dtype=np.int32), strict=True)
    assert kernels(ops.cumsum) == 1


def test_threads_share_the_work(known: Operators) -> None:
    ops = operators(threads=2)
    for n in (*SIZES[1:], 200):
        x = random(n, 64)
        np.testing.assert_allclose(ops.softmax(x), meant(known.softmax, x), rtol=1e-5, atol=1e-6)


def test_a_dimension_of_one_element_that_is_repeated_is_another_kernel(ops: Operators) -> None:
    for a, b in (
        ((3, 5), (3, 5)),
        ((3, 1), (1, 5)),
        ((3, 5), (5,)),
        ((1, 5), (3, 5)),
        ((3, 1), (3, 5)),
        ((1, 1), (1, 1)),
        ((4, 2), (4, 2)),
    ):
        x, y = random(*a), random(*b, seed=1)
        np.testing.assert_array_equal(ops.add(x, y), x + y, strict=True)


def test_attributes_and_element_types_make_kernels(ops: Operators) -> None:
    for x in (random(3), random(9), random(9).astype(np.float64)):
        np.testing.assert_array_equal(ops.scale(x), x * 2, strict=True)
        np.testing.assert_array_equal(ops.scale(x, by=3.0), x * 3, strict=True)
    assert kernels(ops.scale) == 4


def test_several_tensors_of_different_sizes(ops: Operators) -> None:
    for sizes in ((1, 2), (0, 33), (7, 1)):
        parts = [random(3, n, 2) for n in sizes]
        np.testing.assert_array_equal(ops.concat(parts, axis=1), np.concatenate(parts, axis=1), strict=True)
    assert kernels(ops.concat) == 1


def test_sizes_are_given_in_calls(ops: Operators) -> None:
    for n, k in ((5, 3), (9, 0), (9, 8)):
        x = random(n)
        np.testing.assert_array_equal(ops.first(x, k=k), x[:k], strict=True)
    assert kernels(ops.first) == 1


CALLS = [
    lambda ops: ops.linear(random(3, 4), random(5, 6), random(5)),
    lambda ops: ops.linear(random(3, 4, 1), random(5, 4), random(5)),
    lambda ops: ops.conv2d(random(1, 4, 3, 3), random(2, 4, 5, 5)),
    lambda ops: ops.conv2d(random(1, 5, 9, 9), random(2, 2, 3, 3), groups=2),
    lambda ops: ops.softmax(random(3, 0)),
    lambda ops: ops.first(random(3), k=3),
    lambda ops: ops.add(random(3), random(4)),
]


@pytest.mark.parametrize("call", CALLS)
def test_what_does_not_fit_is_refused_as_for_known_sizes(ops: Operators, known: Operators, call: Any) -> None:
    with pytest.raises(tl.CompileError) as expected:
        call(known)
    for _ in range(2):
        with pytest.raises(tl.CompileError) as refused:
            call(ops)
        assert str(refused.value) == str(expected.value)


GUARDED = (
    TEXT
    + """
schedule scale for cpu(N >= 8, by > 0) {
    vectorize y.i
    split y.i by 4 -> io, ii
}
schedule scale for cpu(N >= 4) { reverse y.i }
"""
)


def test_guards_over_sizes_choose_among_compiled_kernels_in_each_call() -> None:
    ops = operators(GUARDED.replace("    vectorize y.i\n", ""))
    for n, schedule in ((9, "(N >= 8"), (5, "(N >= 4"), (3, "role pointwise"), (20, "(N >= 8"), (6, "(N >= 4"), (0, "role pointwise")):
        x = random(n)
        np.testing.assert_array_equal(ops.scale(x), x * 2, strict=True)
        assert schedule in next(line for line in ops.scale.explain(x).splitlines() if line.startswith("schedule   "))
    assert kernels(ops.scale) == 3


def test_sizes_are_static_or_symbolic() -> None:
    assert tl.parse("op f(x: f32[N]) -> (y: f32[N]) { y[i] = -x[i] }", sizes="symbolic").f.sizes == "symbolic"
    with pytest.raises(tl.CompileError, match="C0105"):
        tl.parse("op f(x: f32[N]) -> (y: f32[N]) { y[i] = -x[i] }", sizes="dynamic")  # type: ignore[arg-type]


def test_a_call_with_known_shapes_does_little_more_than_run_the_kernel(ops: Operators) -> None:
    arrays, scale = [random(n) for n in (1, 2, 3)], ops.scale
    for x in arrays:
        scale(x)
    assert all(calls_made(lambda x=x: scale(x)) < 30 for x in arrays)  # type: ignore[misc]


TRIANGLE = """op f(x: f64[M, N], z: f64[M]) -> (y: f64[M], v: f64[M]) {
    a[m, j] = x[m, j] + 1
    b[m] = z[m] * 2
    y[m] = sum(k in 0..N, j in 0..k + 1) a[m, j] * a[m, k - j]
    v[m] = b[m] + b[M - 1 - m]
}"""


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (4, 1), (5, 4)])
def test_no_scratch_memory_is_less_than_none(shape: tuple[int, int]) -> None:
    x, z = np.arange(float(np.prod(shape))).reshape(shape), np.arange(float(shape[0]))
    agrees(TRIANGLE, x, z, symbolic=True)


def test_calls_at_sizes_that_grow_and_shrink_share_scratch_memory() -> None:
    text = """op f(x: f32[M, N]) -> (y: f32[M]) {
        a[m, j] = x[m, j] * 2
        y[m] = sum(j) a[m, j] * a[m, N - 1 - j]
    }"""
    f = tl.parse(text, sizes="symbolic").f
    for shape in ((3, 4), (50, 600), (3, 4), (51, 601)):
        x = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)
        np.testing.assert_array_equal(f(x), (4 * x * x[:, ::-1]).sum(axis=1))


def test_empty_rows_do_not_move_other_tensors_out_of_scratch_memory() -> None:
    y, v = in_child(lambda: tl.parse(TRIANGLE, sizes="symbolic").f(np.ones((10**6, 0)), np.ones(10**6)))
    assert (y == 0).all() and (v == 4).all()


@pytest.mark.parametrize("extent", ["9 - H", "H - 3", "2*H - 4"])
def test_a_size_that_a_dimension_tells_leaves_it_no_less_than_empty(extent: str) -> None:
    ones = tl.parse(f"op f(x: f32[{extent}, K]) -> (y: f32[K]) {{ y[i] = 1 }}", sizes="symbolic").f
    assert [ones(np.zeros(shape, np.float32)).shape for shape in ((2, 3), (0, 1), (4, 0))] == [(3,), (1,), (0,)]


def test_a_size_beyond_what_proofs_are_about_is_refused() -> None:
    swapped = tl.parse("op f(x: f32[M, N]) -> (z: f32[N, M]) { z[j, i] = x[i, j] }", sizes="symbolic").f
    assert swapped(np.ones((2, 3), np.float32)).shape == (3, 2)
    with pytest.raises(tl.RunError, match="R0315"):
        swapped(np.empty((2**60, 0), np.float32))


def test_attention_of_heads_of_any_sizes_asks_ahead_for_keys_of_any_width() -> None:
    text = """op attention(q: f32[H, S, D], k: f32[H, T, D], v: f32[H, T, D]) -> (y: f32[H, S, D]) {
        s[h, i, j] = sum(c) q[h, i, c] * k[h, j, c]
        m[h, i]    = max(j) s[h, i, j]
        e[h, i, j] = exp(s[h, i, j] - m[h, i])
        p[h, i, j] = e[h, i, j] / sum(t) e[h, i, t]
        y[h, i, d] = sum(j) p[h, i, j] * v[h, j, d]
    }"""
    operator = tl.parse(text, threads=1, sizes="symbolic").attention
    rng = np.random.default_rng(1)
    for heads, rows, keys, width in ((4, 100, 100, 64), (2, 17, 40, 24), (1, 1, 1, 1)):
        q, k, v = (rng.standard_normal((heads, n, width)).astype(np.float32) for n in (rows, keys, keys))
        scores = q @ k.transpose(0, 2, 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(operator(q, k, v), weights / weights.sum(-1, keepdims=True) @ v, 1e-3, 1e-4)


TOGETHER = """
op spread(x: f32[A, B, C]) -> (y: f32[C, A, B], z: f32[A, B, C], t: f32[]) {
    y[c, a, b] = x[a, b, c]
    z[a, b, c] = max(x[a, b, c], 0.0)
    t = sum(a, b, c) x[a, b, c]
}
op relu(x: f32[A, B, C]) -> (y: f32[A, B, C]) { y[a, b, c] = max(x[a, b, c], 0.0) }
"""


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1), (2, 0, 9), (17, 3, 33)])
def test_axes_that_equations_go_along_together_are_one_axis(shape: tuple[int, int, int]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 7
    spread = operators(TOGETHER).spread
    y, z, t = spread(x)
    np.testing.assert_array_equal(y, x.transpose(2, 0, 1), strict=True)
    np.testing.assert_array_equal(z, np.maximum(x, 0), strict=True)
    assert t == x.sum()
    assert "x: f32[size_A_B, C]" in spread.explain(x)


def test_elements_of_any_number_of_axes_are_one_loop() -> None:
    relu = operators(TOGETHER).relu
    explained = relu.explain(np.zeros((4, 5, 3), np.float32))
    assert "x: f32[size_A_B_C]" in explained


def test_axes_stay_as_they_are_where_somebody_wrote_a_schedule_for_them() -> None:
    relu = operators(TOGETHER + "schedule relu for cpu { order y.b, y.a, y.c }").relu
    assert "x: f32[A, B, C]" in relu.explain(np.zeros((4, 5, 3), np.float32))
