"""Reductions that grow along an axis as running ones: which do, the same values, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scheduled_programs
from scheduled_programs import assert_same, operator

from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show

MACHINE = Machine(target="cpu", threads=1)
VECTOR, MATRIX = "x: f32[N]", "x: f32[N, M]"
CASES = {
    "before": (VECTOR, "f32[N + 1]", "y[i] = sum(k in 0..i) x[k] for i in 0..N+1", ("y.i",)),
    "after": (VECTOR, "f32[N]", "y[i] = max(k in i..N) x[k]", ("y.i",)),
    "shrinking": (VECTOR, "f32[N]", "y[i] = sum(k in 0..N-i) x[k]", ("y.i",)),
    "beginning earlier": (VECTOR, "f32[N]", "y[i] = min(k in N-1-i..N) x[k]", ("y.i",)),
    "two at a time": (VECTOR, "f32[N]", "y[i] = prod(k in 0..2*i, k < N) x[k]", ("y.i",)),
    "up to an end": (VECTOR, "f32[N]", "y[i] = sum(k in 0..min(i+3, N)) x[k]", ("y.i",)),
    "not from the start": (VECTOR, "f32[N]", "y[i] = sum(k in 2..i) x[k]", ("y.i",)),
    "conditions on places": (VECTOR, "f32[N]", "y[i] = sum(k, k <= i, k >= 1, k % 3 != 1) x[k]", ("y.i",)),
    "two ends": (VECTOR, "f32[N]", "y[i] = max(k in 0..N, k >= i, k < N - 1) x[k] for i in 0..N-1\n y[i] = x[i] otherwise", ("y.i",)),
    "a condition on data": (VECTOR, "f32[N]", "y[i] = sum(k in 0..i+1, x[k] > 0) x[k]", ("y.i",)),
    "a truth": (VECTOR, "bool[N]", "y[i] = any(k in 0..i+1) (x[k] > 2)", ("y.i",)),
    "a part of an equation": (VECTOR, "f32[N]", "y[i] = x[i] - sum(k in 0..i+1) x[k] / f32(i + 1)", ("y.i",)),
    "rounded": (VECTOR, "bf16[N]", "y[i] = bf16(sum(k in 0..i+1) x[k])", ("y.i",)),
    "a piece": (VECTOR, "f32[N]", "y[i] = sum(k in 0..i) x[k] for i in 2..N, i % 2 == 0\n y[i] = x[i] otherwise", ()),
    "a stretch": (VECTOR, "f32[N]", "y[i] = sum(k in 0..i) x[k] for i in 3..N\n y[i] = x[i] otherwise", ("y.i",)),
    "a stretch from the end": (VECTOR, "f32[N]", "y[i] = max(k in max(i-1, 0)..N) x[k] for i in 1..N-1\n y[i] = x[i] otherwise", ("y.i",)),
    "made of itself": (VECTOR, "f32[N]", "y[i] = x[i] + sum(k in 0..i) y[k]", ("y.i",)),
    "rows": (MATRIX, "f32[N, M]", "y[i, j] = sum(k in 0..j+1) x[i, k]", ("y.j",)),
    "rectangles": (MATRIX, "f32[N + 1, M + 1]", "y[i, j] = sum(a in 0..i, b in 0..j) x[a, b] for i in 0..N+1, j in 0..M+1", ("y.i", "y.j")),
    "corners": (MATRIX, "f32[N, M]", "y[i, j] = max(a in 0..i+1, b in j..M) x[a, b]", ("y.i", "y.j")),
    "places": (VECTOR, "i64[N]", "y[i] = argmax(k in 0..i+1) x[k]", ("y.i",)),
    "means": (VECTOR, "f32[N]", "y[i] = mean(k in 0..i+1) x[k] for i in 2..N\n y[i] = x[i] otherwise", ("y.i",)),
    "the last of some": (VECTOR, "f32[N]", "y[i] = last(k in 0..i+1, x[k] > 1, from -7) x[k]", ("y.i",)),
    "the last place before": (VECTOR, "i64[N]", "y[i] = max(k in 0..i, x[k] > 1, from -1) k", ("y.i",)),
    "the next place": (VECTOR, "i64[N]", "y[i] = min(k in i..N, x[k] > 1, k % 2 == 0, from N) k", ("y.i",)),
    "the last of a row": (MATRIX, "f32[N, M]", "y[i, j] = 2 * (last(k in 0..i+1, x[k, j] > 1, from x[0, j]) x[k, j])", ("y.i",)),
    "from a number": (VECTOR, "f32[N]", "y[i] = sum(k in 0..i, from -0.0) x[k]", ("y.i",)),
    "from a number where data say so": (VECTOR, "f32[N]", "y[i] = sum(k in 0..i+1, x[k] > 1, from -0.0) x[k]", ("y.i",)),
    "from what differs": (VECTOR, "f32[N]", "y[i] = sum(k in 0..i+1, from x[i]) x[k]", ()),
    "from a number, two at a time": (VECTOR, "f32[N]", "y[i] = sum(k in 0..2*i, k < N, from 1) x[k]", ()),
    "the last of what follows": (VECTOR, "f32[N]", "y[i] = last(k in i..N, x[k] > 1, from -7) x[k]", ()),
    "places of rectangles": (MATRIX, "i64[N, M]", "y[i, j] = argmax(a in 0..i+1, b in 0..j+1) x[a, b]", ()),
    "a place that data name": (MATRIX, "f32[N, M]", "y[i, j] = sum(k in 0..j+1) x[clamp(i64(x[i, k]), 0, N - 1), 0]", ("y.j",)),
    "asked for where data say so": (VECTOR, "f32[N]", "y[i] = if x[i] > 1 then sum(k in 0..i+1) x[k] else x[i]", ("y.i",)),
    "read at a place from data where these say so": (
        VECTOR,
        "f32[N]",
        "y[i] = if x[i] > 1 then sum(k in 0..i+1) x[clamp(i64(x[k]), 0, N - 1)] else x[i]",
        (),
    ),
    "growing under a condition": (VECTOR, "f32[N]", "y[i] = if i >= 6 then 1 + sum(k in 0..max(5-i, i-5), k < N) x[k] else 0", ()),
    "growing where another axis says": (
        "x: f32[N], z: f32[M]",
        "f32[N, M]",
        "y[i, j] = z[j] + sum(k in 0..max(5-i, i-5), k < N) x[k] for i in 0..N, j in 0..M, i >= j + 6\n y[i, j] = 0 otherwise",
        (),
    ),
    "terms that differ": (VECTOR, "f32[N]", "y[i] = sum(k in 0..i) x[k] * f32(i)", ()),
    "a window": (VECTOR, "f32[N]", "y[i] = sum(k in max(i-2, 0)..i+1) x[k]", ()),
    "many more terms": (VECTOR, "f32[N]", "y[i] = sum(k in 0..5*i, k < N) x[k]", ()),
    "the same for all": (VECTOR, "f32[N]", "y[i] = x[i] + sum(k) x[k]", ()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reductions_that_grow_along_an_axis_run_and_compute_the_same(case: tuple[str, str, str, tuple[str, ...]]) -> None:
    given, result, equations, axes = case
    program = operator(f"{given}) -> (y: {result})", equations)
    schedule = derive(program, MACHINE)
    assert tuple(dict.fromkeys(show(d).removeprefix("scan ") for d in schedule.directives if d.name == "scan")) == axes
    if axes:
        apply(program, Schedule("f").scan(*axes))
    plan = proven(program, schedule)
    for sizes in ({"N": 0, "M": 3}, {"N": 1, "M": 1}, {"N": 9, "M": 6}):
        assert_same(program, plan, {name: n for name, n in sizes.items() if name in program.sizes})


def test_a_strict_operator_keeps_how_its_sums_are_grouped() -> None:
    program = replace(operator("x: f32[N]) -> (y: f32[N])", "y[i] = sum(k in 0..i) x[k]"), mode="strict")
    assert all(directive.name != "scan" for directive in derive(program, MACHINE).directives)
    with pytest.raises(CompileError, match=r"`y.i` cannot be scanned: the operator is `strict`"):
        apply(program, Schedule("f").scan("y.i"))


@pytest.mark.parametrize("written", ["y", "i"])
def test_an_axis_is_written_with_its_tensor(written: str) -> None:
    program = operator("x: f32[N]) -> (y: f32[N])", "y[i] = sum(k in 0..i) x[k]")
    with pytest.raises(CompileError) as refused:
        apply(program, Schedule("f").scan(written))
    (problem,) = refused.value.diagnostics
    assert problem.title == f"`scan` cannot be read: `{written}` is no axis of a tensor"
    assert problem.help is not None and "`scan y.i`" in problem.help


@pytest.mark.parametrize("terms", ["0..i+1", "i..N"])
def test_a_sum_of_a_single_negative_zero_is_zero(terms: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = operator("x: f32[N]) -> (y: f32[N])", f"y[i] = sum(k in {terms}) x[k]")
    monkeypatch.setattr(scheduled_programs, "small", lambda rng, shape, dtype: np.full(shape, -0.0, dtype))
    assert_same(program, proven(program, derive(program, MACHINE)), {"N": 3})


def test_short_axes_are_left_as_they_are() -> None:
    short = operator("x: f32[N]) -> (y: f32[N])", "y[i] = sum(k in 0..i) x[k]", {"N": 16})
    assert all(directive.name != "scan" for directive in derive(short, MACHINE).directives)


@pytest.mark.parametrize(("axis", "scanned"), [("i", True), ("j", False)])
def test_short_axes_beside_neighbours_run_where_vectors_of_these_take_a_step(axis: str, *, scanned: bool) -> None:
    term = {"i": "x[k, j]", "j": "x[i, k]"}[axis]
    sizes = {"i": {"N": 3, "M": 40}, "j": {"N": 40, "M": 3}}[axis]
    program = operator("x: f32[N, M]) -> (y: f32[N, M])", f"y[i, j] = sum(k in 0..{axis}+1) {term}", sizes)
    assert (f"scan y.{axis}" in [show(d) for d in derive(program, MACHINE).directives]) == scanned


STRETCHES = {
    "a sum that grows": ("x: f32[N]", "f32[N]", "y[i] = sum(k in 0..i+1) x[k]", "scan y.i to 4"),
    "stretches of stretches": ("x: f32[N]", "f32[N]", "y[i] = x[i] - sum(k in 0..i) x[k]", "scan y.i to 2, 3"),
    "from a number": ("x: f32[N]", "f32[N]", "y[i] = sum(k in 0..i+1, from 2) x[k]", "scan y.i to 4"),
    "from a number where data say so": ("x: f32[N]", "f32[N]", "y[i] = max(k in 0..i, x[k] > 1, from 2) x[k]", "scan y.i to 2, 3"),
    "one that shrinks": ("x: f32[N]", "f32[N]", "y[i] = max(k in i..N) x[k]", "scan y.i to 3"),
    "in rows": ("x: f32[N, M]", "f32[N, M]", "y[i, j] = sum(k in 0..j+1) x[i, k]", "scan y.j to 2"),
    "in columns of some rows": (
        "x: f32[N, M]",
        "f32[N, M]",
        "y[i, j] = x[i, j] otherwise\n y[i, j] = sum(k in 0..i+1) x[k, j] for i in 0..N, j in 0..M, j % 2 == 1",
        "scan y.i to 2",
    ),
    "whole numbers": ("x: i32[N]", "i32[N]", "y[0] = x[0]\n y[i] = y[i - 1] + x[i] for i in 1..N", "scan y.i to 4"),
    "from the end": ("x: f32[N]", "f32[N]", "y[N - 1] = x[0]\n y[i] = max(2 * x[i], y[i + 1]) for i in 0..N-1", "scan y.i to 4, 2"),
    "minima of sums": ("x: f32[N, M]", "f32[N]", "y[0] = 9\n y[i] = min(y[i - 1], sum(j) x[i, j]) for i in 1..N", "scan y.i to 4"),
}


@pytest.mark.parametrize("case", STRETCHES.values(), ids=STRETCHES)
def test_chains_run_in_stretches_that_do_not_wait_for_each_other_and_compute_the_same(case: tuple[str, str, str, str]) -> None:
    given, result, equations, text = case
    program = operator(f"{given}) -> (y: {result}) where N >= 1", equations)
    axis, lengths = text.removeprefix("scan ").split(" to ")
    schedule = Schedule("f").scan(axis, to=[int(n) for n in lengths.split(", ")])
    assert [show(d) for d in schedule.directives] == [text]
    plan = proven(program, schedule)
    for n in (1, 2, 9, 13):
        assert_same(program, plan, {"N": n} | ({"M": 3} if "M" in program.sizes else {}))


@pytest.mark.parametrize(
    ("equations", "lengths", "why"),
    [
        ("y[0] = x[0]\n y[i] = y[i - 1] + x[i] for i in 1..N", (4,), "its sums would be grouped otherwise, which changes what they are"),
        (
            "y[0] = x[0]\n y[i] = max(0.5 * y[i - 1], x[i]) for i in 1..N",
            (4,),
            "`y` does not combine each element along `i` with the one before",
        ),
        ("y[0] = x[0]\n y[1] = x[0]\n y[i] = max(y[i - 2], x[i]) for i in 2..N", (4,), "`y` does not combine each element along `i` with"),
        (
            "y[i] = max(y[i - 1], x[i]) for i in 1..N, i % 5 != 0\n y[i] = x[i] otherwise",
            (4,),
            "`y` does not combine each element along `i`",
        ),
        ("y[i] = sum(k in 0..i) x[k]", (1,), "stretches have two elements or more"),
    ],
)
def test_what_is_no_chain_has_no_stretches(equations: str, lengths: tuple[int, ...], why: str) -> None:
    program = operator("x: f32[N]) -> (y: f32[N])", equations, {"N": 12})
    with pytest.raises(CompileError, match=f"`y.i` cannot be scanned: {why}"):
        apply(program, Schedule("f").scan("y.i", to=lengths))


def test_a_fast_operator_may_group_sums_of_its_chains_otherwise() -> None:
    program = operator("x: f32[N]) -> (y: f32[N])", "y[0] = x[0]\n y[i] = y[i - 1] + x[i] for i in 1..N", {"N": 12})
    program = replace(program, mode="fast")
    assert_same(program, proven(program, Schedule("f").scan("y.i", to=(4,))), {})


@pytest.mark.parametrize("size", [0, 1])
def test_an_axis_without_two_elements_may_be_scanned(size: int) -> None:
    program = operator("x: f32[N]) -> (y: f32[N])", "y[i] = sum(k in 0..i+1) x[k]", {"N": size})
    for schedule in (Schedule("f").scan("y.i"), Schedule("f").scan("y.i", to=(4,))):
        assert_same(program, proven(program, schedule), {})
