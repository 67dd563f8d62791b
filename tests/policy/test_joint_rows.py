"""What is derived for fields of a step that no near cache holds: directives to read, and results bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

SMALL = Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=1, l2_bytes=1500, cache_bytes=2500)
SIGNATURE = "x: i32[M, N], k: i32[3], s: i32[T]) -> (y: i32[M, N]) where T >= 1, M >= 1, N >= 1"
WINDOWS = """
    u[0, i, j]     = x[i, j]
    a[t, i, j]     = sum(p in 0..3) k[p] * u[t, i + p - 1, j | clamp]      for t in 0..T, i in 0..M, j in 0..N
    r[t, i, j]     = x[i, j] - a[t, i, j]                                  for t in 0..T, i in 0..M, j in 0..N
    c[t, i, j]     = sum(p in 0..3) k[2 - p] * r[t, i + p - 1, j | 0]      for t in 0..T, i in 0..M, j in 0..N
    u[t + 1, i, j] = u[t, i, j] + c[t, i, j]                               for t in 0..T, i in 0..M, j in 0..N
    y[i, j]        = u[T, i, j]"""


def directives(program: Program, machine: Machine) -> list[str]:
    return [show(d) for d in derive(program, machine).directives]


def test_windows_of_a_step_run_row_by_row_and_few_rows_of_what_lies_between_are_kept() -> None:
    program = operator(SIGNATURE, WINDOWS, {"M": 21, "N": 19, "T": 5})
    found = directives(program, SMALL)
    assert {"shift u.i by 1", "shift c.i by 1", "together a, u, r, c -> i"} <= {*found}
    assert {"fold u at t by 1", "fold a at i by 1", "fold r at i by 3"} <= {*found}
    assert not any(d.startswith("together") for d in directives(program, replace(SMALL, threads=2)))


def test_windows_of_steps_that_a_cache_holds_run_one_after_the_other() -> None:
    program = operator(SIGNATURE, WINDOWS, {"M": 21, "N": 19, "T": 5})
    assert not any(d.startswith("together") for d in directives(program, replace(SMALL, l2_bytes=1 << 16, cache_bytes=1 << 16)))


def test_tiles_of_several_steps_of_windows_keep_few_rows_of_what_lies_between() -> None:
    found = directives(operator(SIGNATURE, WINDOWS, {"M": 40, "N": 19, "T": 9}), replace(SMALL, l2_bytes=6000, cache_bytes=20_000))
    assert "tile a (t, i) by (5, 4) -> t_b, i_b, t_s, i_s" in found
    assert "fold r at i by 3" in found, "for as many steps as a tile has it would take as many rows"


@pytest.mark.parametrize("steps", [1, 9])
def test_fields_in_joint_rows_are_right(steps: int) -> None:
    sizes = {"M": 21, "N": 19, "T": steps}
    program = operator(SIGNATURE, WINDOWS, sizes)
    for machine in (SMALL, replace(SMALL, l2_bytes=2000, cache_bytes=20_000)):
        assert_same(program, proven(program, derive(program, machine)), sizes)
