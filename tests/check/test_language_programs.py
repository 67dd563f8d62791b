"""The programs of the language tour and of the operator library mean what NumPy says."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checking import load, load_file, program_of, run

from tensorlang.check.definition import check_operator

TOUR = "tour_operators.tl"
LIBRARY = "library_operators.tl"
RANDOM = np.random.default_rng(7)


def f32(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=2e-5, atol=2e-5)


def test_linear_is_a_product_with_the_transpose_and_a_bias() -> None:
    x, w, b = f32(4, 5), f32(6, 5), f32(6)
    close(run(load_file(TOUR), "linear", x, w, b), x @ w.T + b)


def test_linear_of_nothing_is_nothing() -> None:
    assert run(load_file(TOUR), "linear", f32(0, 5), f32(6, 5), f32(6)).shape == (0, 6)
    close(run(load_file(TOUR), "linear", f32(2, 0), f32(3, 0), np.ones(3, np.float32)), np.ones((2, 3)))


def convolution(x: Any, w: Any, stride: int, lo: int, hi: int) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (lo, hi), (lo, hi)))
    p, q = ((x.shape[k] - w.shape[k]) // stride + 1 for k in (2, 3))
    out = np.zeros((x.shape[0], w.shape[0], p, q))
    for i in range(p):
        for j in range(q):
            window = x[:, :, i * stride : i * stride + w.shape[2], j * stride : j * stride + w.shape[3]]
            out[:, :, i, j] = np.einsum("ncrs,fcrs->nf", window, w)
    return out


@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (1, 1), (2, 1), (3, 2)])
def test_conv2d_reads_zeros_outside(stride: int, pad: int) -> None:
    x, w = f32(2, 3, 7, 8), f32(4, 3, 3, 3)
    close(run(load_file(TOUR), "conv2d", x, w, stride=stride, pad=pad), convolution(x, w, stride, pad, pad))


def test_zeros_that_are_chosen_keep_their_signs() -> None:
    y = run(load("op f(x: f32[N]) -> (y: f32[N]) { y[i] = if x[i] < 0 then -0.0 else 0.0 }"), "f", np.array([-1, 1], np.float32))
    assert np.signbit(y).tolist() == [True, False]


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 4)])
def test_softmax_serves_every_rank(shape: tuple[int, ...]) -> None:
    x = f32(*shape)
    e = np.exp(x - x.max(-1, keepdims=True))
    close(run(load_file(TOUR), "softmax", x), e / e.sum(-1, keepdims=True))


def test_attention_composes_whole_operators() -> None:
    q, k, v = f32(1, 2, 5, 4), f32(1, 2, 6, 4), f32(1, 2, 6, 4)
    s = 0.5 * np.einsum("bhie,bhje->bhij", q, k)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    close(run(load_file(TOUR), "attention", q, k, v, scale=0.5), np.einsum("bhij,bhje->bhie", p, v))


def test_cumsum_is_a_recurrence() -> None:
    x = f32(9)
    close(run(load_file(TOUR), "cumsum", x), np.cumsum(x))


def test_heat_keeps_its_border() -> None:
    u = f32(6, 6)
    want = u.astype(np.float64)
    for _ in range(3):
        inner = want[1:-1, 1:-1]
        step = want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:] - 4 * inner
        want = want.copy()
        want[1:-1, 1:-1] = inner + 0.1 * step
    close(run(load_file(TOUR), "heat", u, steps=3), want)


def test_cholesky_fills_the_rest_with_zeros() -> None:
    a = f32(5, 5)
    a = a @ a.T + 5 * np.eye(5, dtype=np.float32)
    close(run(load_file(TOUR), "cholesky", a), np.linalg.cholesky(a))


def test_conv_with_groups_and_uneven_padding() -> None:
    x, w, b = f32(1, 4, 7, 7), f32(6, 2, 3, 3), f32(6)
    want = np.concatenate([convolution(x[:, 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3], 1, 1, 2) for g in range(2)], axis=1)
    got = run(load_file(LIBRARY), "conv", x, w, b, group=2, lo=(1, 1), hi=2)
    close(got, want + b[None, :, None, None])


def test_conv_in_one_dimension_with_dilation() -> None:
    x, w, b = f32(1, 1, 9), f32(1, 1, 3), np.zeros(1, np.float32)
    close(
        run(load_file(LIBRARY), "conv", x, w, b, dilation=2)[0, 0],
        [sum(x[0, 0, p + 2 * r] * w[0, 0, r] for r in range(3)) for p in range(5)],
    )


def test_transposed_convolution_scatters_without_a_scatter() -> None:
    x, w = f32(1, 2, 3), f32(2, 2, 4)
    want = np.zeros((1, 2, 8))
    for q in range(3):
        for r in range(4):
            want[0, :, 2 * q + r] += x[0, :, q] @ w[:, :, r]
    close(run(load_file(LIBRARY), "conv_transpose", x, w, stride=2, sizes={"O": (8,)}), want)


def test_max_pool_tells_where() -> None:
    x = f32(1, 2, 4, 4)
    y, at = run(load_file(LIBRARY), "max_pool", x, kernel=(2, 2), stride=2, lo=0, sizes={"O": (2, 2)})
    blocks = x.reshape(1, 2, 2, 2, 2, 2)
    close(y, blocks.max((3, 5)))
    close(x.reshape(-1)[at], y)


def test_layer_norm_over_two_axes() -> None:
    x, g, b = f32(3, 4, 5), f32(4, 5), f32(5)
    y, mean, inv = run(load_file(LIBRARY), "layer_norm", x, g, b, axis=1)
    m, v = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    close(y, (x - m) / np.sqrt(v + 1e-5) * g + b)
    close(mean, m[:, 0, 0])
    close(inv, 1 / np.sqrt(v + 1e-5)[:, 0, 0])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_gather_counts_negative_indices_from_the_end(dtype: Any) -> None:
    x, ids = f32(3, 5, 2), np.array([[0, -1], [4, -5]], dtype)
    close(run(load_file(LIBRARY), "gather", x, ids, axis=1), np.take(x, ids, axis=1))


def test_scatter_nd_keeps_the_last_of_duplicates() -> None:
    x, ids, u = f32(4, 3), np.array([[1], [-1], [1]], np.int64), f32(3, 3)
    want = x.copy()
    want[1], want[3] = u[2], u[1]
    close(run(load_file(LIBRARY), "scatter_nd", x, ids, u), want)


def test_slice_steps_both_ways() -> None:
    x = f32(5, 6)
    close(run(load_file(LIBRARY), "slice", x, step=(-2, 1), sizes={"start": (4, 1), "n": (3, 4)}), x[4::-2, 1:5])


def test_concat_and_split_are_inverse() -> None:
    a, b, c = f32(2, 3), f32(2, 1), f32(2, 4)
    both = run(load_file(LIBRARY), "concat", (a, b, c), axis=1)
    close(both, np.concatenate([a, b, c], 1))
    for got, want in zip(run(load_file(LIBRARY), "split", both, axis=1, sizes={"N": (3, 1, 4)}), (a, b, c), strict=True):
        close(got, want)


def test_resize_linear_in_two_dimensions() -> None:
    x = f32(1, 1, 3, 3)
    got = run(load_file(LIBRARY), "resize_linear", x, np.array([2, 2], np.float32), sizes={"O": (6, 6)})
    at = np.clip((np.arange(6) + 0.5) / 2 - 0.5, 0, 2)
    rows = np.array([[np.interp(q, range(3), x[0, 0, k]) for q in at] for k in range(3)])
    close(got[0, 0], np.array([[np.interp(p, range(3), rows[:, q]) for q in range(6)] for p in at]))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_lstm_keeps_the_state_of_finished_sequences() -> None:
    x, w, r, b, h, c = f32(4, 2, 3), f32(20, 3), f32(20, 5), f32(20), f32(2, 5), f32(2, 5)
    lengths = np.array([4, 2], np.int32)
    y, hn, cn = run(load_file(LIBRARY), "lstm", x, w, r, b, h, c, lengths)
    want = np.zeros((4, 2, 5))
    h, c = h.astype(np.float64), c.astype(np.float64)
    for t in range(4):
        i, o, f, g = np.split(x[t] @ w.T + b + h @ r.T, 4, axis=1)
        new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        alive = (t < lengths)[:, None]
        h, c = np.where(alive, sigmoid(o) * np.tanh(new_c), h), np.where(alive, new_c, c)
        want[t] = np.where(alive, h, 0)
    close(y, want)
    close(hn, h)
    close(cn, c)


def test_softmax_along_an_inner_axis_computes_halves_in_f32() -> None:
    x = f32(2, 5, 3).astype(np.float16)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    got = run(load_file(LIBRARY), "softmax", x, axis=1)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float64), e / e.sum(1, keepdims=True), rtol=2e-3)


def test_quantised_product_accumulates_in_i32_and_saturates() -> None:
    a, b = RANDOM.integers(0, 255, (3, 4)).astype(np.uint8), RANDOM.integers(-128, 127, (4, 2)).astype(np.int8)
    got = run(
        load_file(LIBRARY), "qlinear_matmul", a, b, np.array([3], np.uint8), np.array([1, 2], np.int8), np.array([0.5], np.float32),
        np.array([0.25, 0.5], np.float32), np.float32(2), np.uint8(128),
    )  # fmt: skip
    exact = (a.astype(int) - 3) @ (b.astype(int) - [1, 2])
    want = np.clip(np.round(exact * np.array([0.125, 0.25]) / 2) + 128, 0, 255)
    np.testing.assert_array_equal(got, want.astype(np.uint8))


def test_transpose_permutes() -> None:
    x = f32(2, 3, 4)
    close(run(load_file(LIBRARY), "transpose", x, perm=(2, 0, 1)), x.transpose(2, 0, 1))


@pytest.mark.parametrize(("a", "b"), [((2, 3, 4), (4,)), ((3, 1), (2, 1, 4)), ((), (2, 2)), ((1, 1), (1,)), ((0, 3), (1,))])
def test_add_broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = f32(*a), f32(*b)
    close(run(load_file(LIBRARY), "add", x, y), x + y)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_flatten_is_a_composite_dimension(axis: int) -> None:
    x = f32(2, 3, 4)
    close(run(load_file(LIBRARY), "flatten", x, axis=axis), x.reshape(math.prod(x.shape[:axis]), -1))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum_with_both_attributes(exclusive: bool, reverse: bool) -> None:
    x = f32(6)
    want = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    close(run(load_file(LIBRARY), "cumsum", x, exclusive=exclusive, reverse=reverse), want - x if exclusive else want)


def test_topk_breaks_ties_by_position() -> None:
    x = np.array([[3, 1, 3, 2, 0]], np.float32)
    y, at = run(load_file(LIBRARY), "topk", x, sizes={"k": 3})
    np.testing.assert_array_equal(y, [[3, 3, 2]])
    np.testing.assert_array_equal(at, [[0, 2, 3]])


def test_bf16_sums_are_rounded_once() -> None:
    module = load("op total[T: float](x: T[N]) -> (y: T) { y = sum(i) x[i] }")
    x = np.full(300, 1, ml_dtypes.bfloat16)
    assert float(run(module, "total", x)) == 300


@pytest.mark.parametrize("name", ["linear", "conv2d", "softmax", "attention", "cumsum", "heat", "cholesky"])
def test_operators_of_the_tour_are_right_for_all_sizes(name: str) -> None:
    assert check_operator(load_file(TOUR), name) == []


def test_a_slice_is_not_right_for_all_sizes() -> None:
    """Nothing keeps `start + d*step` inside; the library's slice says so in `where`."""
    assert [d.code for d in check_operator(load_file(LIBRARY), "slice")] == ["T0301"]


@pytest.mark.parametrize("name", sorted(set(load_file(LIBRARY).declared) - {"slice"}))
def test_operators_of_the_library_are_right_for_all_sizes(name: str) -> None:
    assert check_operator(load_file(LIBRARY), name) == []


def test_symbolic_programs_keep_the_names_of_sizes() -> None:
    program = program_of(load_file(TOUR), "linear", f32(4, 5), f32(6, 5), f32(6), symbolic=True)
    assert program.sizes == ("M", "K", "N")
