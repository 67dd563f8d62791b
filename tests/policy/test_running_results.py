"""Rows of which each element goes on with the one before it, grouped in any way, run one by one: they are lanes by themselves."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from codegen.llvm.emit import for_target
from codegen.llvm.target import named
from codegen.loops.nodes import For
from codegen.loops.running_results import running_results
from codegen.loops.walk import walk
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

WIDE = Machine(target="cpu", threads=1)
SUMMED_AREA = "s[i, j] = i32(x[i, j]) + s[i - 1, j | 0] + s[i, j - 1 | 0] - s[i - 1, j - 1 | 0]"


def in_lanes(program: Program) -> bool:
    """Tell whether rows run in lanes; what they come to is compared."""
    plan = proven(program, derive(program, WIDE))
    assert_same(program, plan, {})
    function = for_target(loops_of(plan, "f").function, named("x86-64-v4"))
    return any(running_results(n) for n in walk(*function.body) if isinstance(n, For) and n.kind == "vector")


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("x: u8[M, N]) -> (s: i32[M, N])", SUMMED_AREA),
        ("x: i32[M, N]) -> (y: i32[M, N])", "y[i, j] = x[i, j] + y[i, j - 1 | 0]"),
        ("x: u16[M, N]) -> (y: u16[M, N])", "y[i, j] = if j == N - 1 then x[i, j] else min(x[i, j], y[i, j + 1])"),
        ("x: i32[N], _m: f32[M]) -> (y: i32[N])", "y[i] = if i == 0 then 0 else if x[i] > 0 then y[i - 1] + 1 else 0"),
        ("x: f32[N], _m: f32[M]) -> (y: i64[N])", "y[i] = if i == 0 then 0 else if x[i] > 0.5 then y[i - 1] + 1 else y[i - 1]"),
    ],
)
def test_rows_that_go_on_with_what_they_collected_run_one_by_one(signature: str, body: str) -> None:
    program = operator(signature, body, {"M": 7, "N": 75})
    assert not any("split" in show(d) or "skew" in show(d) for d in derive(program, WIDE).directives)
    assert in_lanes(program)


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("x: f32[M, N]) -> (y: f32[M, N])", "y[i, j] = x[i, j] + y[i, j - 1 | 0]"),  # rounded in another order
        ("x: f32[M, N]) -> (y: f32[M, N])", "y[i, j] = max(x[i, j], y[i, j - 1 | 0])"),  # sooner beside each other
        ("x: i32[M, N]) -> (y: i32[M, N])", "y[i, j] = max(x[i, j] + y[i, j - 1 | 0], 0)"),
        ("x: i32[N, M]) -> (y: i32[N, M])", "y[i, j] = x[i, j] + y[i - 1, j | 0]"),  # lanes along the others
        ("x: i32[M, N]) -> (y: i32[M, N])", "y[i, j] = x[i, N - 1 - j] + y[i, j - 1 | 0] + y[i, j - 2 | 0]"),
    ],
)
def test_other_recurrences_along_rows_run_beside_each_other(signature: str, body: str) -> None:
    assert not in_lanes(operator(signature, body, {"M": 7, "N": 75}))


def test_what_goes_on_along_a_line_is_made_where_it_is_collected() -> None:
    program = operator(
        "x: u8[N]) -> (r: i32[N])", "r[i] = if i == 0 then 0 else r[i - 1] + (if x[i] != x[i - 1] then 1 else i32(0))", {"N": 400}
    )
    assert not any("lift" in show(d) for d in derive(program, WIDE).directives)
    assert in_lanes(program)
