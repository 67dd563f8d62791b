"""Recurrences whose clauses have an order within a step, and whose elements have none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.printer import show

Array = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def _edges_made_of_what_lies_beside_them(a: Array, steps: int) -> tuple[Array, ...]:
    u = np.zeros((steps, len(a)), np.int64)
    u[0] = a
    for before, u_t in pairwise(u):
        u_t[1:-1] = before[:-2] + 2 * before[2:]
        u_t[0], u_t[-1] = 3 * u_t[1], u_t[-2] + 1
    return (u,)


def _sums_along_the_step(a: Array, steps: int) -> tuple[Array, ...]:
    u = np.zeros((steps, len(a)), np.int64)
    u[0] = a
    for before, u_t in pairwise(u):
        u_t[1:-1] = np.cumsum(before[2:])
        u_t[-1] = 2 * u_t[2]
        u_t[0] = -u_t[3]
    return (u,)


def _corners(a: Array, steps: int) -> tuple[Array, ...]:
    x = a[:, None] * a
    u = np.zeros((steps, *x.shape), np.int64)
    u[0] = x
    for before, u_t in pairwise(u):
        u_t[1:-1, 1:-1] = before[:-2, 1:-1] - before[2:, 1:-1] + before[1:-1, :-2] - before[1:-1, 2:]
        u_t[0, 1:-1], u_t[-1, 1:-1] = u_t[1, 1:-1], -u_t[-2, 1:-1]
        u_t[:, 0], u_t[:, -1] = u_t[:, 1], 2 * u_t[:, -2]
    return (u,)


def _two_fields(a: Array, steps: int) -> tuple[Array, ...]:
    p, v = np.zeros((2, steps, len(a)), np.int64)
    p[0], v[0] = a, -a
    for t in range(1, steps):
        p[t, 1:-1] = p[t - 1, 1:-1] - v[t - 1, 2:] + v[t - 1, 1:-1]
        v[t, 2:-1] = v[t - 1, 2:-1] - p[t, 2:-1] + p[t, 1:-2]
        v[t, 1] = 2 * v[t, 2] - v[t, 3] if len(a) > 4 else 7
        v[t, 0], v[t, -1] = v[t, 1], v[t, -2]
        p[t, 0], p[t, -1] = p[t, 1] + v[t, 0], v[t, -1] - p[t, -2]
    return p, v


def _two_at_once(a: Array, steps: int) -> tuple[Array, ...]:
    p, q = np.zeros((2, steps, len(a)), np.int64)
    p[0], q[0] = a, -a
    for t in range(1, steps):
        p[t, 1:-1], q[t, 1:-1] = p[t - 1, :-2] + q[t - 1, 2:], 2 * p[t - 1, 1:-1]
        p[t, 0], q[t, 0] = q[t, 1], p[t, 1]
        p[t, -1], q[t, -1] = p[t, -2], q[t, -2] + p[t, 0]
    return p, q


def _backwards(a: Array, steps: int) -> tuple[Array, ...]:
    return tuple(u[::-1] for u in _edges_made_of_what_lies_beside_them(a, steps))


STEPS = {
    "edges made of what lies beside them": (
        """op f(a: i64[N], size T) -> (u: i64[T, N]) where N >= 3, T >= 1 {
            u[0, i] = a[i]
            u[t, 0] = 3 * u[t, 1]                          for t in 1..T
            u[t, i] = u[t - 1, i - 1] + 2 * u[t - 1, i + 1]  for t in 1..T, i in 1..N-1
            u[t, N - 1] = u[t, N - 2] + 1                  for t in 1..T
        }""",
        _edges_made_of_what_lies_beside_them,
    ),
    "edges that a condition names, beside sums along the step": (
        """op f(a: i64[N], size T) -> (u: i64[T, N]) where N >= 4, T >= 1 {
            u[t, i] = if t == 0 then a[i] else if i == 0 then -u[t, 3] else if i == N - 1 then 2 * u[t, 2]
                else u[t - 1, i + 1] + (if i > 1 then u[t, i - 1] else 0)
        }""",
        _sums_along_the_step,
    ),
    "corners made of edges": (
        """op f(a: i64[N], size T) -> (u: i64[T, N, N]) where N >= 3, T >= 1 {
            u[0, i, j] = a[i] * a[j]
            u[t, i, j] = u[t - 1, i - 1, j] - u[t - 1, i + 1, j] + u[t - 1, i, j - 1] - u[t - 1, i, j + 1]
                for t in 1..T, i in 1..N-1, j in 1..N-1
            u[t, 0, j] = u[t, 1, j]           for t in 1..T, j in 1..N-1
            u[t, N - 1, j] = -u[t, N - 2, j]  for t in 1..T, j in 1..N-1
            u[t, i, 0] = u[t, i, 1]           for t in 1..T, i in 0..N
            u[t, i, N - 1] = 2 * u[t, i, N - 2]  for t in 1..T, i in 0..N
        }""",
        _corners,
    ),
    "two tensors that need each other": (
        """op f(a: i64[N], size T) -> (p: i64[T, N], v: i64[T, N]) where N >= 4, T >= 1 {
            p[0, i] = a[i]
            v[0, i] = -a[i]
            p[t, i] = p[t - 1, i] - v[t - 1, i + 1] + v[t - 1, i]  for t in 1..T, i in 1..N-1
            p[t, 0] = p[t, 1] + v[t, 0]                for t in 1..T
            p[t, N - 1] = v[t, N - 1] - p[t, N - 2]    for t in 1..T
            v[t, i] = v[t - 1, i] - p[t, i] + p[t, i - 1]  for t in 1..T, i in 2..N-1
            v[t, 1] = if N > 4 then 2 * v[t, 2] - v[t, 3 | 0] else 7  for t in 1..T
            v[t, 0] = v[t, 1]                          for t in 1..T
            v[t, N - 1] = v[t, N - 2]                  for t in 1..T
        }""",
        _two_fields,
    ),
    "two tensors that are defined together": (
        """op f(a: i64[N], size T) -> (p: i64[T, N], q: i64[T, N]) where N >= 3, T >= 1 {
            p[0, i], q[0, i] = (a[i], -a[i])
            p[t, i], q[t, i] = (p[t - 1, i - 1] + q[t - 1, i + 1], 2 * p[t - 1, i])  for t in 1..T, i in 1..N-1
            p[t, 0], q[t, 0] = (q[t, 1], p[t, 1])  for t in 1..T
            p[t, N - 1], q[t, N - 1] = (p[t, N - 2], q[t, N - 2] + p[t, 0])  for t in 1..T
        }""",
        _two_at_once,
    ),
    "steps that go backwards": (
        """op f(a: i64[N], size T) -> (u: i64[T, N]) where N >= 3, T >= 1 {
            u[T - 1, i] = a[i]
            u[t, i] = u[t + 1, i - 1] + 2 * u[t + 1, i + 1]  for t in 0..T-1, i in 1..N-1
            u[t, 0] = 3 * u[t, 1]          for t in 0..T-1
            u[t, N - 1] = u[t, N - 2] + 1  for t in 0..T-1
        }""",
        _backwards,
    ),
}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("sizes", ["static", "symbolic"])
def test_clauses_of_a_step_are_computed_in_their_order(case: str, sizes: str) -> None:
    text, meaning = STEPS[case]
    f: Callable[..., object] = tl.parse(text, sizes=sizes).f
    for n in (4, 5, 21):
        for steps in (1, 2, 6):
            a = np.random.default_rng(n).integers(-9, 9, n)
            got = f(a, T=steps)
            for made, want in zip(got if isinstance(got, tuple) else (got,), meaning(a, steps), strict=True):
                np.testing.assert_array_equal(made, want)


def test_what_an_earlier_clause_makes_is_a_tensor_that_later_ones_read() -> None:
    program = tl.parse(STEPS["edges made of what lies beside them"][0]).f.program(np.zeros(9, np.int64), T=5)
    assert [line.strip().split(" for ")[0] for line in show(program).splitlines()[1:-1]] == [
        "`u.earlier`[t, i] = u[t - 1, i - 1] + 2 * u[t - 1, i + 1]",
        "`u.earlier`[t, i] = i64(0) otherwise",
        "u[t, i] = a[i]",
        "u[t, i] = 3 * `u.earlier`[t, 1]",
        "u[t, i] = `u.earlier`[t, i]",
        "u[t, i] = `u.earlier`[t, 7] + 1",
    ]


@pytest.mark.parametrize(
    ("clauses", "code"),
    [
        ("u[t, i] = u[t - 1, i] for t in 1..T, i in 2..N\n u[t, 0] = u[t, 1] for t in 1..T\n u[t, 1] = u[t, 0] for t in 1..T", "T0304"),
        (
            "u[t, i] = u[t - 1, i] for t in 1..T, i in 1..N-2\n u[t, 0] = u[t, 1] for t in 1..T\n u[t, N-1] = u[t, N-3] for t in 1..T",
            "T0303",
        ),
        ("u[t, i] = u[t - 1, i] for t in 1..T, i in 1..N-1\n u[t, 0] = u[t, 1] for t in 1..T\n u[t, N-1] = u[t, N] for t in 1..T", "T0301"),
    ],
    ids=["clauses that need each other", "an element without a clause", "a read behind the end"],
)
def test_what_is_wrong_is_said_of_clauses_as_they_are_written(clauses: str, code: str) -> None:
    text = f"op f(a: i64[N], size T) -> (u: i64[T, N]) where N >= 4, T >= 1 {{ u[0, i] = a[i]\n {clauses} }}"
    (found,) = check_module(load_module(parse(Source("f.tl", text))))
    assert found.code == code
    assert "u.earlier" not in str(found)
