"""What sums over terms that data choose need for each term is made where it is asked for, not for all terms of all elements."""

from __future__ import annotations

from math import prod

import pytest
from scheduled_programs import assert_same, operator

from codegen.loops.nodes import Alloc, Int
from codegen.loops.walk import walk
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show

MACHINE = Machine(target="cpu", threads=1)
SIZES = {"M": 40, "Z": 90, "D": 9}
RANGE = "k in 0..Z, p[i] <= k, k < q[i]"
OFFSETS = "x: f32[M, D], w: f32[Z, D], p: i64[M], q: i64[M]) -> (y: f32[M])"
PLACES = "x: f32[M, D], w: f32[Z, D], s: i64[Z] in 0..M) -> (y: f32[M])"
CASES = {
    "a map of a range": (OFFSETS, f"e[i, k] = abs(w[k, 0] - x[i, 0])\n y[i] = sum({RANGE}) e[i, k]", ["inline e"]),
    "a map at places of data": (
        "x: f32[M, D], w: f32[Z, D], s: i64[Z] in 0..M) -> (y: f32[Z])",
        "e[i, k] = abs(w[k, 0] - x[i, 0])\n t[i] = sum(k, s[k] == i) e[i, k]\n y[k] = e[s[k], k] / t[s[k]]",
        ["inline e"],
    ),
    "a sum of a range": (OFFSETS, f"y[i] = sum({RANGE}) sq(sum(d) abs(x[i, d] - w[k, d]))", ["at y.sum at y.k"]),
    "a sum at places of data": (PLACES, "y[i] = sum(k, s[k] == i) sq(sum(d) abs(x[i, d] - w[k, d]))", ["at y.sum at y.i"]),
    "a sum of rows": (
        "x: f32[M, D], w: f32[Z, D], p: i64[M], q: i64[M]) -> (y: f32[M, D])",
        f"y[i, e] = sum({RANGE}) w[k, e] * sq(sum(d) x[i, d] * w[k, d])",
        ["at y.sum at y.k"],
    ),
    "two sums of a range": (
        OFFSETS,
        f"y[i] = sum({RANGE}) (sum(d) abs(x[i, d] - w[k, d])) * (max(d) (x[i, d] + w[k, d]))",
        ["at y.sum at y.k", "at y.max at y.k"],
    ),
    "a sum of several readers": (
        "x: f32[M, D], w: f32[Z, D], p: i64[M], q: i64[M]) -> (y: f32[M], z: f32[M])",
        f"e[i, k] = sum(d) abs(x[i, d] - w[k, d])\n y[i] = max({RANGE}, from 0) e[i, k]\n z[i] = sum({RANGE}) e[i, k] * w[k, 0]",
        ["inline e", "at y.sum at y.k", "at z.sum at z.k"],
    ),
}


def derived(signature: str, body: str, sizes: dict[str, int]) -> tuple[list[str], int]:
    """Return the directives that say where something is computed, and how many elements the largest buffer has."""
    program = operator(signature, body, sizes)
    schedule = derive(program, MACHINE)
    plan = proven(program, schedule)
    assert_same(program, plan, {})
    made = (a.buffer.shape for a in walk(*loops_of(plan, "kernel", threads=1).function.body) if isinstance(a, Alloc))
    largest = max((prod(e.value for e in shape if isinstance(e, Int)) for shape in made), default=0)
    return [show(x) for x in schedule.directives if x.name in ("inline", "at")], largest


@pytest.mark.parametrize("case", CASES)
def test_terms_that_data_choose_are_made_where_they_are_asked_for(case: str) -> None:
    signature, body, expected = CASES[case]
    directives, largest = derived(signature, body, SIZES)
    assert directives == expected
    assert largest < SIZES["M"] * SIZES["Z"]


def test_what_most_sums_ask_for_is_made_for_all() -> None:
    body = "y[i] = sum(k, 0 <= p[k]) sq(sum(d) abs(x[i, d] - w[k, d]))"
    assert derived("x: f32[M, D], w: f32[Z, D], p: i64[Z]) -> (y: f32[M])", body, SIZES)[0] == []


def test_what_several_sums_ask_for_and_could_not_make_once_for_each_term_is_made_once_for_all() -> None:
    body = f"""
    e[i, k] = sum(d) abs(x[i, d] - w[k, d])
    y[i]    = sum({RANGE}) e[i, k]            for i in 1..M
    z[i]    = sum({RANGE}) e[i, k] * w[k, 0]  for i in 1..M
    y[0]    = 0
    z[0]    = 0"""
    assert derived("x: f32[M, D], w: f32[Z, D], p: i64[M], q: i64[M]) -> (y: f32[M], z: f32[M])", body, SIZES)[0] == []
