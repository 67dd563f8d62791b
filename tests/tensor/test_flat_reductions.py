"""A reduction that reduces nothing but another one of its kind is one with it, unless that one has a tensor which saves work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.lift import lift
from tensorlang.tensor.printer import show

PARAMS = "x: {0}[N, M, K, K], a: {0}[N, M]) -> (y: {0}[N, M])"
WINDOWS = "y[i, j] = {0}(k in 0..K) ({0}(l in 0..K, l != k) x[i, j, k, l])"
APART = {
    "another kind": "y[i, j] = sum(k in 0..K) (max(l in 0..K) x[i, j, k, l])",
    "what points share": "y[i, j] = sum(k in 0..N) (sum(l in 0..M) a[k, l])",
    "a product of matrices": "y[i, j] = sum(k in 0..N) (sum(l in 0..M) a[i, l] * a[k, l] * a[k, j])",
    "a part of a term": "y[i, j] = sum(k in 0..K) a[i, j] * (sum(l in 0..K) x[i, j, k, l])",
}


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_windows_of_windows_are_windows_of_two_axes(kind: str) -> None:
    program = operator(PARAMS.format("i32"), WINDOWS.format(kind))
    lifted = lift(program)
    assert f"{kind}(k in 0..K, l in 0..K, l != k) x[i, j, k, l]" in show(lifted) and len(lifted.definitions) == 1
    assert_same(program, proven(program, Schedule(program.name)), {"N": 2, "M": 3, "K": 4})


RANGES = "v: i32[Z, N], p: i64[M], q: i64[M], x: i32[N]) -> (y: i32[M])"
RANGE = "y[i] = sum(k in 0..Z, p[i] <= k, k < q[i]) (sum(l in 0..N) v[k, l] * x[l])"


def test_terms_of_a_range_of_data_are_those_of_one_sum() -> None:
    program = operator(RANGES, RANGE)
    assert len(lift(program).definitions) == 1
    assert_same(program, proven(program, Schedule(program.name)), {"M": 3, "N": 4, "Z": 5})


def test_terms_that_every_point_asks_for_keep_their_tensor() -> None:
    assert len(lift(operator(RANGES, RANGE.replace("p[i] <= k, k < q[i]", "p[k] > 1").replace("0..Z", "0..M"))).definitions) > 1


@pytest.mark.parametrize("case", APART)
def test_what_saves_work_or_is_no_term_by_itself_keeps_its_tensor(case: str) -> None:
    assert len(lift(operator(PARAMS.format("i32"), APART[case])).definitions) > 1


@pytest.mark.parametrize(("dtype", "tensors"), [("f32", 2), ("i32", 1)])
def test_sums_that_round_are_in_their_order_in_strict_mode(dtype: str, tensors: int) -> None:
    program = replace(operator(PARAMS.format(dtype), WINDOWS.format("sum")), mode="strict")
    assert len(lift(program).definitions) == tensors
