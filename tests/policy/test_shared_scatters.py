"""Sums whose terms go where the same data say share the loop over terms: directives to read, and results bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MACHINE = Machine(target="cpu", threads=1)
COUNTS = "n[g] = sum(k, a[k] == g) i32(1) for g in 0..40"
SUMS = "s[g] = sum(j, a[j] == g) x[j] for g in 0..40"


def table(body: str, results: str = "n: i32[40], s: i32[40]") -> Program:
    return operator(f"a: i32[30], b: i32[30], x: i32[30]) -> ({results})", body, {})


def shared(program: Program, machine: Machine = MACHINE) -> list[str]:
    return [line for line in map(show, derive(program, machine).directives) if line.startswith("together")]


@pytest.mark.parametrize(
    ("body", "results", "together"),
    [
        (f"{COUNTS}\n{SUMS}", "n: i32[40], s: i32[40]", "together n, s -> k, g"),
        (
            f"{COUNTS}\n{SUMS}\nm[g] = max(k, a[k] == g, from 0) x[k] for g in 0..40\ny[g] = s[g] - m[g] + n[g]",
            "y: i32[40]",
            "together n, s, m -> k, g",
        ),
        (
            "n[g, h] = sum(k, a[k] == g, b[k] == h) i32(1) for g in 0..4, h in 0..9\n"
            "s[h, g] = last(k, a[k] == h, b[k] == g, from 0) x[k] for h in 0..4, g in 0..9",
            "n: i32[4, 9], s: i32[4, 9]",
            "together n, s -> k, g, h",
        ),
    ],
    ids=["two columns", "and what is made of them", "two keys"],
)
def test_sums_over_the_terms_of_the_same_groups_share_their_loops(body: str, results: str, together: str) -> None:
    program = table(body, results)
    assert shared(program) == [together]
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize(
    "other",
    [
        "s[g] = sum(k, b[k] == g) x[k] for g in 0..40",
        "s[g] = sum(k, a[k] == g, x[k] > 1) x[k] for g in 0..40",
        "s[g] = sum(k in 0..29, a[k] == g) x[k] for g in 0..40",
        "s[g] = sum(k, a[k] == g) n[a[k] | clamp] for g in 0..40",
    ],
    ids=["other data", "fewer terms by data", "fewer terms", "made of the other"],
)
def test_others_have_loops_of_their_own(other: str) -> None:
    program = table(f"{COUNTS}\n{other}")
    assert not shared(program)
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_sums_that_no_near_cache_holds_together_have_loops_of_their_own() -> None:
    assert not shared(table(f"{COUNTS}\n{SUMS}"), replace(MACHINE, l2_bytes=200))
