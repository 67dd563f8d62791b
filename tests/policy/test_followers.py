"""What reads all steps of a recurrence runs in its loops, so that a few steps are kept: directives to read, and results bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import argument, assert_same
from scheduled_programs import operator as program_of

from stdlib.library import library
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import search
from tensorlang.schedule.check import proven
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

SMALL = Machine(target="cpu", vector_bytes=16, vector_registers=16, l2_bytes=2048, cache_bytes=1 << 20)
MACHINES = SMALL, replace(SMALL, threads=2)
SIZES = {"T": 23, "N": 37}
WAVES = """
    u[0, i]     = a[i]
    u[t + 1, i] = u[t, i - 1 | 0] - u[t, i + 1 | 0]   for t in 0..T, i in 0..N"""
"""A recurrence over steps that nobody outside sees."""
CASES = {
    "a sum of each step": ("y: i32[T]", "y[t] = sum(i) u[t, i] * u[t, i] for t in 0..T"),
    "a sum over all steps": ("y: i32[N]", "y[i] = sum(t in 0..T) u[t, i] * a[i]"),
    "a map of steps, and a sum of that": (
        "y: i32[T]",
        "v[t, i] = abs(u[t, i] - a[i]) for t in 0..T, i in 0..N\n y[t] = max(i, from 0) v[t, i] for t in 0..T",
    ),
    "the difference of a step and the one before": ("y: i32[T]", "y[t] = sum(i) abs(u[t + 1, i] - u[t, i]) for t in 0..T"),
    "two sums of each step": ("y: i32[T], z: i32[T]", "y[t] = sum(i) u[t, i] for t in 0..T\n z[t] = sum(i) u[t, i] * a[i] for t in 0..T"),
    "one place": ("y: i32[T]", "y[t] = u[t + 1, 5] for t in 0..T"),
    "a recurrence that goes the same way": (
        "z: i32[N]",
        "c[0, i] = a[i]\n c[t + 1, i] = c[t, i - 1 | 0] + u[t, i] for t in 0..T, i in 0..N\n z[i] = c[T, i]",
    ),
    "a recurrence, and a sum of its steps": (
        "y: i32[T]",
        "c[0, i] = a[i]\n c[t + 1, i] = c[t, i - 1 | 0] + u[t + 1, i] for t in 0..T, i in 0..N\n"
        " y[t] = sum(i) c[t + 1, i] * u[t, i] for t in 0..T",
    ),
    "a sum of each step and of that of another recurrence": (
        "y: i32[T]",
        "c[0, i] = g[0]\n c[t + 1, i] = c[t, i - 1 | 0] - a[i] for t in 0..T, i in 0..N\n"
        " y[t] = sum(i) u[t, i] * c[t + 1, i] for t in 0..T",
    ),
    "and the last step": ("z: i32[N], y: i32[T]", "z[i] = u[T, i]\n y[t] = sum(i) u[t, i] for t in 0..T"),
}


def operator(result: str, body: str) -> Program:
    module = load_module(parse(Source("f.tl", f"op f(a: i32[N], g: i32[T]) -> ({result}) where N >= 6, T >= 1 {{\n{body}\n}}")))
    return instantiate(module, "f", [argument(p, SIZES) for p in module.operators["f"].params])


def directives(program: Program, machine: Machine = SMALL) -> list[str]:
    return [show(d) for d in derive(program, machine).directives]


@pytest.mark.parametrize("machine", MACHINES, ids=("one thread", "two threads"))
@pytest.mark.parametrize(("result", "body"), CASES.values(), ids=CASES)
def test_what_needs_single_steps_runs_in_the_loop_over_steps_and_few_are_kept(result: str, body: str, machine: Machine) -> None:
    program = operator(result, f"{WAVES}\n {body}")
    found = directives(program, machine)
    assert any(d.startswith("together u, ") and d.endswith("-> t") for d in found)
    assert any(d.startswith("fold u at t by ") for d in found)
    assert_same(program, proven(program, derive(program, machine)), SIZES)


@pytest.mark.parametrize("machine", MACHINES, ids=("one thread", "two threads"))
def test_a_result_made_of_single_elements_runs_in_all_loops_of_the_last_recurrence_that_it_reads(machine: Machine) -> None:
    body = """
    f[i, j] = c[i, j] + f[i - 1, j | 0]
    b[i, j] = c[i, j] + b[i + 1, j | 0]
    c[i, j] = a[i] * g[j]
    y[i, j] = f[i, j] - b[i, j]
    z[i]    = g[0] + z[i + 1 | 0] for i in 0..N"""
    program = operator("y: i32[N, T], z: i32[N]", body)
    found = directives(program, machine)
    assert "reverse y.i" in found and "together b, y -> i, j" in found
    assert any(d.startswith("fold b at i by ") for d in found) and not any(d.startswith("fold f") for d in found)
    assert_same(program, proven(program, derive(program, machine)), SIZES)


@pytest.mark.parametrize("name", ["two sums of each step", "one place"])
def test_what_runs_in_the_loops_of_a_recurrence_is_offered_to_no_role(name: str) -> None:
    result, body = CASES[name]
    program, module = operator(result, f"{WAVES}\n {body}"), load_module(parse(Source("f.tl", "")), [library()])
    assert not search(module, None, program, {}, "cpu", SMALL).tried


def test_several_sums_along_the_rows_of_a_recurrence_run_in_its_loops() -> None:
    body = """
    f[i, t] = a[i] * g[t] + f[i, t - 1 | 0] - f[i - 1, t | 0]
    y[i] = sum(t) f[i, t]
    z[i] = max(t) f[i, t]"""
    program = operator("y: i32[N], z: i32[N]", body)
    found = directives(program)
    assert {"together f, y -> i, t", "together f, z -> i, t"} <= {*found}
    assert_same(program, proven(program, derive(program, SMALL)), SIZES)


ANOTHER = """
    c[0, i]     = g[0]
    c[t + 1, i] = c[t, i - 1 | 0] - a[i]   for t in 0..T, i in 0..N"""


@pytest.mark.parametrize(
    ("steps", "read", "beside"),
    [
        (ANOTHER, "(c[t + 1, 3] - c[t, i])", True),
        (ANOTHER.replace("c[0,", "c[T,").replace("c[t + 1,", "c[t,").replace("c[t, i - 1", "c[t + 1, i - 1"), "c[t, i]", False),
        (ANOTHER, "c[T - t, i]", False),
        (ANOTHER, "c[t, i] * c[5, i]", False),
    ],
    ids=["steps", "the other way", "back", "and a certain one"],
)
def test_another_recurrence_of_which_single_steps_are_needed_too_runs_beside(steps: str, read: str, beside: bool) -> None:
    program = operator("y: i32[T]", f"{WAVES}\n{steps}\n y[t] = sum(i) u[t, i] * {read} for t in 0..T")
    found = directives(program)
    assert any("u, c, y" in d or "c, u, y" in d for d in found if d.startswith("together")) == beside
    assert any(d.startswith("fold c at t") for d in found) == beside
    assert_same(program, proven(program, derive(program, SMALL)), SIZES)


def test_what_needs_all_steps_at_once_or_is_sooner_computed_for_all_runs_after_them() -> None:
    for body in (
        "y[t] = sum(i) u[T - t, i] for t in 0..T",
        "y[t] = sum(i) u[t, i] * u[T, i] for t in 0..T",
        "y[t] = u[min(i64(g[t]), 3), 0 | clamp] for t in 0..T",
    ):
        assert not any(d.startswith("together") for d in directives(operator("y: i32[T]", f"{WAVES}\n {body}"))), body


@pytest.mark.parametrize("read", ["c[t + 1, i | 0]", "c[t, i - 1 | 0]", "c[t // 2, i]"], ids=["back", "in its own step", "elsewhere"])
def test_a_recurrence_that_does_not_go_from_step_to_step_the_same_way_runs_by_itself(read: str) -> None:
    start = "" if "| 0" in read else "c[0, i] = a[i]\n"
    body = f"{WAVES}\n {start} c[t, i] = {read} + u[t, i] for t in {1 if start else 0}..T, i in 0..N\n z[i] = sum(t in 0..T) c[t, i]"
    program = operator("z: i32[N]", body)
    assert not any("u, c" in d for d in directives(program) if d.startswith("together"))
    assert_same(program, proven(program, derive(program, SMALL)), SIZES)


def test_steps_that_a_near_cache_holds_are_kept() -> None:
    result, body = CASES["a sum of each step"]
    program = operator(result, f"{WAVES}\n {body}")
    assert not any(d.startswith("together") for d in directives(program, replace(SMALL, l2_bytes=1 << 20)))


def test_what_needs_a_recurrence_shares_no_loops_with_what_is_needed_beside_it() -> None:
    """`z` runs with `p` and needs `r`, and `y` needs all of `p`: `y` and `r` are on either side of it."""
    equations = """
        p[i, 0] = 0                            for i in 0..77
        p[i, k] = p[i, k - 1] * 0.5 + q[i]     for i in 0..77, k in 1..11
        w       = sum(i) p[i, 10]
        s[i]    = sum(j) abs(t[j] - q[i])
        r[i]    = sum(j) sq(t[j] - q[i])
        y[i]    = w * s[i]
        z[i]    = p[i, 10] * r[i]"""
    program = program_of("t: f32[N], q: f32[M]) -> (y: f32[M], z: f32[M])", equations, {"N": 1200, "M": 77})
    schedule = derive(program, Machine(target="cpu", threads=1))
    proven(program, schedule)
    assert "together p, z -> i" in map(show, schedule.directives)


def test_rows_are_not_copied_first_where_no_loops_order_them_with_what_the_step_needs() -> None:
    body = """
    e[0] = g[0]
    e[t + 1] = u[t, 2, 0] - g[t]   for t in 0..9
    u[0, i, j] = g[0]   for i in 0..6, j in 0..6
    u[t + 1, i, j] = u[t - 2, j, 0 | 0] * a[i] + max(u[t - 2, i, i | clamp], e[t]) - e[t + 1]   for t in 0..9, i in 0..6, j in 0..6
    y[t, i, j] = u[t, i, j]   for t in 0..9, i in 0..6, j in 0..6"""
    program = operator("e: i32[10], y: i32[9, 6, 6]", body)
    assert_same(program, proven(program, derive(program, SMALL)), SIZES)
