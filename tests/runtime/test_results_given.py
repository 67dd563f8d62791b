"""Operators that write into arrays of the caller: what a call computes, in the memory that is given, or a refusal that says why not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorlang as tl

Array = np.ndarray[Any, Any]

TEXT = """
op scale[T: num](x: T[N], attr by: int = 2) -> (y: T[N]) { y[i] = x[i] * by }
op minmax[T](x: T[N]) -> (lo: T[], hi: T[]) where N >= 1 {
    lo = min(i) x[i]
    hi = max(j) x[j]
}
op taken(x: f32[N], at: i64[K]) -> (y: f32[K]) { y[k] = x[at[k]] }
op joined(each x: f32[each N]) -> (y: f32[sum(N..)]) { y[before(N) + i] = x[i]   for each x, i in 0..N }
op moved(x: f32[N], out: f32[N]) -> (y: f32[N]) { y[i] = x[i] + out[i] }
op scan(x: f32[B, N]) -> (y: f32[B]) where N >= 1 {
    t[b, 0] = x[b, 0]
    t[b, i] = max(t[b, i - 1] * 0.5, x[b, i])   for i in 1..N
    y[b] = sum(i) t[b, i]
}
"""
X = np.arange(5, dtype=np.float32)


@pytest.fixture(scope="module", params=["static", "symbolic"])
def ops(request: pytest.FixtureRequest) -> tl.Operators:
    return tl.parse(TEXT, threads=1, sizes=request.param)


def test_a_result_is_written_into_the_array_that_is_given(ops: tl.Operators) -> None:
    for count in (5, 3, 5, 0, 1):  # shapes that were met before, and new ones
        x, y = np.arange(count, dtype=np.float32), np.full(count, -1, np.float32)
        for by in (2, 3):
            assert ops.scale(x, by=by, out=y) is y
            np.testing.assert_array_equal(y, x * by)
    y = np.empty(5, np.float32)
    assert ops.scale(x=X, out=(y,)) is y and ops.scale(X, out=[y]) is y and ops.scale(X, out={"y": y}) is y
    np.testing.assert_array_equal(ops.scale(X, out=None), X * 2)


def test_several_results_are_given_in_order_or_by_name(ops: tl.Operators) -> None:
    lo, hi = np.array(0, np.int32), np.array(0, np.int32)
    for out in ((lo, hi), {"hi": hi, "lo": lo}, [lo, hi]):
        for _ in range(2):
            lo[...] = hi[...] = 9
            found = ops.minmax(np.array([3, -1, 2], np.int32), out=out)
            assert found[0] is lo and found[1] is hi and (int(lo), int(hi)) == (-1, 3)


def test_known_calls_by_position_that_write_are_not_sorted_out_again(ops: tl.Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, lo, hi = X.astype(np.int64), np.empty(5, np.int64), np.array(0), np.array(0)
    calls = (lambda: ops.scale(x, out=y), lambda: ops.scale(x, out=(y,)), lambda: ops.minmax(x, out=(lo, hi)))
    for call in calls:
        call()
    for operator in (ops.scale, ops.minmax):
        monkeypatch.setattr(operator, "_called", None)
    for array in (y, lo, hi):
        array[...] = 9
    assert calls[0]() is y and calls[1]() is y and calls[2]() == (lo, hi)
    assert y.tolist() == [0, 2, 4, 6, 8] and (int(lo), int(hi)) == (0, 4)


def test_arrays_to_write_into_are_never_taken_from_those_to_read(ops: tl.Operators) -> None:
    x, lo = np.arange(3), np.array(7)
    ops.minmax(x, out=(lo, np.array(0)))
    with pytest.raises(tl.RunError, match="R0311"):
        ops.minmax(lo, x, out=lo)  # as many arrays as a call has
    assert int(lo) == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint64, np.int64])
def test_every_element_type_can_be_written(ops: tl.Operators, dtype: Any) -> None:
    x = np.arange(7).astype(dtype)
    y = np.empty_like(x)
    ops.scale(x, out=y)
    np.testing.assert_array_equal(y, ops.scale(x), strict=True)


def test_what_is_read_may_be_strided_or_a_view_of_where_the_result_goes_after_a_copy(ops: tl.Operators) -> None:
    room = np.arange(12, dtype=np.float32)
    x, y = room[::4], room[:3]
    want = x * 2
    np.testing.assert_array_equal(ops.scale(x, out=y), want)
    np.testing.assert_array_equal(ops.scale(X.astype(">f4")), X * 2, strict=True)


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        (lambda f: f.scale(X, out=np.empty(4, np.float32)), "R0304", "must have the shape [5]"),
        (lambda f: f.scale(X, out=np.empty((5, 1), np.float32)), "R0304", "f32[5, 1]"),
        (lambda f: f.scale(X, out=np.empty(5)), "R0303", "the array is f64[5]"),
        (lambda f: f.scale(X, out=np.empty(5, ">f4")), "R0307", ">f4"),
        (lambda f: f.scale(X, out=np.empty(10, np.float32)[::2]), "R0307", "strides are [8] bytes"),
        (lambda f: f.scale(X, out=np.zeros(21, np.uint8)[1:].view(np.float32)), "R0307", "begin at address 0x"),
        (lambda f: f.scale(X, out=read_only(np.empty(5, np.float32))), "R0307", "it is read-only"),
        (lambda f: f.scale(X, out=X), "R0307", "it shares memory with input `x`"),
        (lambda f: f.scale(X[:4], out=X[1:]), "R0307", "it shares memory with input `x`"),
        (lambda f: f.scale(X, out=[1.0] * 5), "R0309", "has 1 result, `y`, and `out` has 5"),
        (lambda f: f.scale(X, out=3), "R0305", "`y` is an `int`"),
        (lambda f: f.scale(X, out="y"), "R0305", "the text 'y'"),
        (lambda f: f.scale(X, out=np.ma.masked_array(np.empty(5, np.float32))), "R0305", "masked"),
        (lambda f: f.scale(X, out={"z": np.empty(5, np.float32)}), "R0302", "there is no output `z`"),
        (lambda f: f.scale(X, out={}), "R0301", "output `y` is missing"),
        (lambda f: f.minmax(X, out=np.empty((), np.float32)), "R0309", "has 2 results, `lo`, `hi`, and `out` has 1"),
        (
            lambda f: f.minmax(X, out=(np.empty((), np.float32),) * 2),
            "R0307",
            "`hi` cannot be used where it lies: it shares",
        ),
        (lambda f: f.minmax(X, out=(None, np.empty((), np.float32))), "R0305", "`lo` is a `NoneType`"),
        (lambda f: f.taken(X, np.array([0, 9]), out=np.empty(2, np.float32)), "R0306", "index 9 is out of bounds"),
    ],
)
def test_results_that_cannot_be_written_are_refused_with_what_is_wrong(
    ops: tl.Operators, call: Callable[[Any], Any], code: str, told: str
) -> None:
    for _ in range(2):
        with pytest.raises(tl.RunError) as refused:
            call(ops)
        assert refused.value.diagnostics[0].code == code and told in str(refused.value), str(refused.value)
        ops.scale(X, out=np.empty(5, np.float32))  # the second time, shape and form are known


def test_tensors_in_a_list_are_read(ops: tl.Operators) -> None:
    y = np.empty(8, np.float32)
    for _ in range(2):
        ops.joined((X, X[:3]), out=y)
        np.testing.assert_array_equal(y, np.concatenate([X, X[:3]]))
    np.testing.assert_array_equal(ops.joined((X, X[:3])), y)
    np.testing.assert_array_equal(ops.joined((X[:3], X)), np.concatenate([X[:3], X]))


def test_a_parameter_called_out_keeps_its_name(ops: tl.Operators) -> None:
    for _ in range(2):
        found = ops.moved(X, out=X)
        assert found is not X
        np.testing.assert_array_equal(found, X + X)
    np.testing.assert_array_equal(ops.moved.prepared(X, out=X)(), X + X)


def test_a_prepared_call_reads_and_writes_the_same_arrays_each_time(ops: tl.Operators) -> None:
    x, y = X.copy(), np.empty_like(X)
    again = ops.scale.prepared(x, by=3, out=y)
    assert again() is y
    x += 1
    again()
    np.testing.assert_array_equal(y, (X + 1) * 3)
    own = ops.scale.prepared(x=x)
    assert own() is own() and not np.may_share_memory(own(), x)
    lo, hi = ops.minmax.prepared(x)()
    assert (lo, hi) == (x.min(), x.max())


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda f: f.scale.prepared(X[::2]), "R0307"),
        (lambda f: f.scale.prepared([1.0, 2.0]), "R0305"),
        (lambda f: f.scale.prepared(X.astype(">f4")), "R0307"),
        (lambda f: f.scale.prepared(X, out=X), "R0307"),
        (lambda f: f.scale.prepared(X, out=np.empty(3, np.float32)), "R0304"),
        (lambda f: f.minmax.prepared(X, out=np.empty(3, np.float32)), "R0309"),
        (lambda f: f.scale.prepared(X, bye=2), "R0312"),
    ],
)
def test_a_prepared_call_refuses_what_it_would_have_to_copy(ops: tl.Operators, call: Callable[[Any], Any], code: str) -> None:
    with pytest.raises(tl.RunError) as refused:
        call(ops)
    assert refused.value.diagnostics[0].code == code
    assert [frame.name for frame in refused.traceback][2:] == ["at_the_edge"]


def test_a_prepared_call_says_which_element_of_its_data_is_at_fault(ops: tl.Operators) -> None:
    at = np.array([0, 1, 2])
    again = ops.taken.prepared(X, at)
    again()
    at[1] = 7
    with pytest.raises(tl.RunError, match=r"index 7 is out of bounds for axis 0 of `x`, which has 5 elements \(at k=1\)"):
        again()
    at[1] = 4
    np.testing.assert_array_equal(again(), X[at])


def test_threads_may_write_into_arrays_of_their_own_at_once(ops: tl.Operators) -> None:
    wrong: list[int] = []
    ops.scan(np.ones((3, 4), np.float32))

    def work(seed: int) -> None:
        for k in range(60):
            x = np.random.default_rng([seed, k]).standard_normal((3 + k % 2, 40)).astype(np.float32)
            y = np.empty(len(x), np.float32)
            t = x.copy()
            for i in range(1, 40):
                t[:, i] = np.maximum(t[:, i - 1] * np.float32(0.5), x[:, i])
            if not np.allclose(ops.scan(x, out=y), t.sum(axis=1), atol=1e-4) or not np.allclose(y, t.sum(axis=1), atol=1e-4):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong
