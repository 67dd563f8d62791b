"""Axes of packs are called `d.0`: schedules name them, and are told names for parts of them, as of any axis."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same

from codegen.dtypes import f32
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MACHINE = Machine(target="cpu", threads=1)
GROWING = "y[d.., t] = w[t] * sum(e.. in 0..d) x[e.., t]"
ALIKE = "p[d.., t] = (if t == 0 then w[t] else w[t] + p[d.., t-1]) for d.. in 0..D, t in 0..T\n y[d.., t] = x[d.., t] * p[d.., t]"
TWO = "p[d.., t] = 2 * x[d.., t] for d.. in 0..D, t in 0..T\n y[d.., t] = p[d.., t] + w[t]"


def over_packs(equations: str) -> Program:
    """Return an operator for packs of two axes."""
    text = f"op f(x: f32[D.., T], w: f32[T]) -> (y: f32[D.., T]) {{\n{equations}\n}}"
    return instantiate(load_module(parse(Source("f.tl", text))), "f", [ArgType(f32, ("A", "B", "T")), ArgType(f32, ("T",))], symbolic=True)


def assert_legal(program: Program, schedule: Schedule) -> None:
    assert_same(program, proven(program, schedule), dict(zip(program.sizes, (9, 3, 4), strict=True)))


@pytest.mark.parametrize(("first", "equations"), [("scan y.d.0", GROWING), ("hoist p.d.0, p.d.1", ALIKE)])
def test_derived_schedules_rewrite_along_them(first: str, equations: str) -> None:
    program = over_packs(equations)
    schedule = derive(program, MACHINE)
    assert show(schedule.directives[0]) == first
    assert_legal(program, schedule)


@pytest.mark.parametrize("loop", ["y.d.0", "d.1"])
def test_a_tensor_is_computed_at_their_loops(loop: str) -> None:
    assert_legal(over_packs(TWO), Schedule("f").at("p", loop, of="y"))


def test_what_splits_their_loops_first_can_be_typed_in() -> None:
    program = over_packs(TWO)
    with pytest.raises(CompileError) as refused:
        proven(program, Schedule("f").vectorize("y.d.1"))
    (problem,) = refused.value.diagnostics
    made = "`split y.d.1 by 16 -> d.1o, d.1i`"
    assert problem.help == f"split it first: {made}; {made}, `vectorize d.1i` in its place is legal"
    assert_legal(program, Schedule("f").split("y.d.1", 16, ("d.1o", "d.1i")).vectorize("d.1i"))
