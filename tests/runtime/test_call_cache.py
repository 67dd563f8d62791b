"""Calls like earlier ones go straight to their code: whatever is named, in whichever order, with values of any type or sign."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.runtime import call_cache

TEXT = """
op apart[T: float](x: T[M, N], w: T[M, N], b: T[N] = 0) -> (y: T[M, N]) { y[i, j] = b[j] + x[i, j] - w[i, j] }
op scaled[T: float](x: T[N], attr by: float = 2.0, attr plus: int = 0) -> (y: T[N]) { y[i] = x[i] * by + plus }
op squared(x: f32[]) -> (y: f32[]) { y = x * x }
op axpy(a: f32, x: f32[N], y: f32[N]) -> (z: f32[N]) { z[i] = a * x[i] + y[i] }
op clipped[T: num](most: T[], x: T[N]) -> (y: T[N]) { y[i] = min(x[i], most) }
op less(x: f32[N], y: f32[N]) -> (z: f32[N]) { z[i] = x[i] - y[i] }
op divided(x: f32[N], attr by: float) -> (y: f32[N]) { y[i] = x[i] / by }
op first(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i] for i in 0..k }
op joined(each x: f32[each N], y: f32[M]) -> (z: f32[sum(N..) + M]) {
    z[before(N) + i] = x[i]   for each x, i in 0..N
    z[sum(N..) + i] = y[i]    for i in 0..M
}
"""


@pytest.fixture(params=["static", "symbolic"])
def ops(request: pytest.FixtureRequest) -> tl.Operators:
    return tl.parse(TEXT, threads=1, sizes=request.param)


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sorted_out_never(operator: tl.Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a known call is sorted out again")

    monkeypatch.setattr(operator, "call", refuse)


def test_call_cache_by_name_are_not_sorted_out_again(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = random(3, 4), random(3, 4, seed=1), random(4, seed=2)
    calls = [
        lambda: ops.apart(x, w, b),
        lambda: ops.apart(b=b, w=w, x=x),
        lambda: ops.apart(x, b=b, w=w),
        lambda: ops.apart(w=x, x=w, b=b),
        lambda: ops.apart(x, w),
        lambda: ops.apart(x, w, b=None),
    ]
    first = [call() for call in calls]
    plain = [b + x - w, b + x - w, b + x - w, b + w - x, x - w, x - w]
    for found, want in zip(first, plain, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    sorted_out_never(ops.apart, monkeypatch)
    for found, call in zip(first, calls, strict=True):
        np.testing.assert_array_equal(call(), found)


def test_numbers_for_tensors_are_not_sorted_out_again(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = random(5), random(5, seed=1)
    calls = {a: (lambda a=a: ops.axpy(a, x, y=y)) for a in (2, 0.5, np.float32(3))}
    calls[-0.0] = lambda: ops.axpy(x=x, y=y, a=-0.0)
    for call in calls.values():
        call()
    sorted_out_never(ops.axpy, monkeypatch)
    for a, call in calls.items():
        np.testing.assert_allclose(call(), a * x + y, rtol=1e-6)
    out = np.empty(5, np.float32)
    assert ops.axpy(7, x, y=y, out=out) is out
    np.testing.assert_allclose(out, 7 * x + y, rtol=1e-6)
    with pytest.raises(AssertionError, match="sorted out again"):
        ops.axpy(1e300, x, y=y)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_a_number_is_of_the_type_that_arrays_settle(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    x = np.arange(5, dtype=dtype)
    assert ops.clipped(3, x).dtype == dtype
    sorted_out_never(ops.clipped, monkeypatch)
    assert ops.clipped(3, x).tolist() == [0, 1, 2, 3, 3]


def test_a_number_that_the_settled_type_does_not_hold_is_refused(ops: tl.Operators) -> None:
    for number in (0.5, 300, -1):
        with pytest.raises(tl.RunError, match="R0303"):
            ops.clipped(number, np.arange(5, dtype=np.uint8))


def test_values_that_are_equal_and_differ_in_type_or_sign_are_different_calls(ops: tl.Operators) -> None:
    one = np.ones(2, np.float32)
    for _ in range(3):
        assert ops.divided(one, by=0.0)[0] == np.inf and ops.divided(one, by=-0.0)[0] == -np.inf
        np.testing.assert_array_equal(ops.scaled(one, by=1.0, plus=1), one + 1)
        np.testing.assert_array_equal(ops.scaled(one, plus=1, by=3.0), one * 3 + 1)
        with pytest.raises(tl.RunError):
            ops.scaled(one, by=1.0, plus=True)
        with pytest.raises(tl.RunError):
            ops.scaled(one, by=1.0, plus=1.0)


def test_values_that_take_turns_among_names_are_told_by_their_types_too() -> None:
    text = "op f(x: f32[N], attr by: int, attr when: bool) -> (y: f32[N]) { y[i] = if when then x[i] * by else 0 }"
    f, one = tl.parse(text, threads=1).f, np.ones(2, np.float32)
    np.testing.assert_array_equal(f(one, by=1, when=True), one)
    with pytest.raises(tl.RunError):
        f(one, when=1, by=True)


def test_attributes_by_name_behind_arrays_by_position_go_straight_to_their_code(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(3)
    ops.scaled(x, by=3.0, plus=1)
    monkeypatch.setattr(call_cache.CallCache, "_read", lambda *_: pytest.fail("a known call is read again"))
    np.testing.assert_array_equal(ops.scaled(x, by=3.0, plus=1), x * 3 + 1)
    np.testing.assert_array_equal(ops.scaled(x + 1, by=3.0, plus=1), (x + 1) * 3 + 1)


def test_a_list_of_one_tensor_is_no_tensor_where_sizes_are_named() -> None:
    text = "op joined(each x: f32[each N], size k) -> (y: f32[sum(N..)]) where k > 0 { y[before(N) + i] = x[i]   for each x, i in 0..N }"
    joined, x = tl.parse(text, threads=1).joined, random(2)
    for _ in range(2):
        np.testing.assert_array_equal(joined([x], k=1), x)
        with pytest.raises(tl.RunError):
            joined([x], k=0)


def test_shapes_and_element_types_take_turns(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [random(3), random(5), random(3).astype(np.float64), random(0), random(8)[::2]]
    for x in arrays:
        np.testing.assert_array_equal(ops.scaled(x, by=3.0), x * 3)
    sorted_out_never(ops.scaled, monkeypatch)
    for x in [*arrays, *arrays[::-1]]:
        np.testing.assert_array_equal(ops.scaled(x, by=3.0), x * 3)


def test_sizes_make_different_calls(ops: tl.Operators) -> None:
    x = random(6)
    for k in (2, 4, 2, 0, 5, 4):
        np.testing.assert_array_equal(ops.first(x, k=k), x[:k])
    with pytest.raises(tl.RunError):
        ops.first(x, k=6)


def test_tensors_in_lists_are_told_apart_by_how_many_there_are(ops: tl.Operators) -> None:
    a, b, c = random(2), random(2, seed=1), random(2, seed=2)
    for _ in range(3):
        np.testing.assert_array_equal(ops.joined((a, b), c), np.concatenate([a, b, c]))
        np.testing.assert_array_equal(ops.joined((a,), c), np.concatenate([a, c]))
        np.testing.assert_array_equal(ops.joined(y=a, x=[b, c]), np.concatenate([b, c, a]))
        np.testing.assert_array_equal(ops.joined(a, y=c), np.concatenate([a, c]))


def test_values_that_python_cannot_compare_are_sorted_out(ops: tl.Operators) -> None:
    x = random(3)
    for by in (np.float32(3), 3.0, float("nan"), float("nan")):
        np.testing.assert_array_equal(ops.scaled(x, by=float(by)), x * np.float32(by))
    for number in (3.0, 2.0, np.float32(3), np.array(3, np.float32), 2.0):
        np.testing.assert_array_equal(ops.squared(number), np.square(np.float32(number)))
        np.testing.assert_array_equal(ops.squared(x=number), np.square(np.float32(number)))
    np.testing.assert_array_equal(ops.apart([[1.0, 2.0]], [[3.0, 5.0]]), np.array([[-2, -3]], np.float32))
    np.testing.assert_array_equal(ops.less([1.0, 2.0], y=np.ones(2, np.float32)), np.array([0, 1], np.float32))


def test_what_is_kept_at_hand_stays_bounded(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "KEPT_SHAPES", 3)
    for k in range(5):
        ops.less(random(k), random(k))
        ops.axpy(float(k), random(3), random(3))
        assert all(0 < len(table) <= 3 for op in (ops.less, ops.axpy) for table in (op._calls._last, op._calls._at))


def test_threads_may_call_with_different_names_and_shapes_at_once(ops: tl.Operators) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        for k in range(200):
            x, y = random(1 + k % 5, seed=seed), random(1 + k % 5, seed=k)
            for found in (ops.less(x, y), ops.less(y=y, x=x), ops.less(x, y=y), ops.less(x=x, y=y, out=np.empty_like(x))):
                if not np.array_equal(found, x - y):
                    wrong.append((seed, k))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_numbers_go_straight_to_the_code_of_arrays_without_axes(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = random(5), random(5, seed=1)
    numbers = [np.float32(2), 2.0, 2, np.array(2, np.float32), np.float64(2)]
    expected, _ = ops.axpy(2.0, x, y), ops.axpy(y=y, a=2.0, x=x)
    sorted_out_never(ops.axpy, monkeypatch)
    for a in numbers:
        for found in (ops.axpy(a, x, y), ops.axpy(y=y, a=a, x=x), ops.axpy(a, x, y, out=np.empty_like(x))):
            np.testing.assert_array_equal(found, expected)


def test_one_number_may_be_of_two_types() -> None:
    op = tl.parse("op f(a: f32, b: i64, c: f64) -> (y: f32, z: i64, w: f64) { y = a\n z = b + 1\n w = c / 3 }", threads=1).f
    for _ in range(3):
        assert [v.item() for v in op(2, 2, 2)] == [2, 3, 2 / 3]
        assert [v.item() for v in op(b=2, a=2, c=2)] == [2, 3, 2 / 3]


def test_a_number_that_its_type_does_not_hold_is_refused_in_every_call(ops: tl.Operators) -> None:
    x = random(3)
    for _ in range(2):
        ops.axpy(1.0, x, x)
        with pytest.raises(tl.RunError, match="R0303"):
            ops.axpy(1e39, x, x)
