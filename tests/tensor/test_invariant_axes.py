"""Tensors without axes along which all their elements are the same: which these are, the same values, and what is refused."""

from __future__ import annotations

import pytest
from scheduled_programs import argument, assert_same

from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.invariant_axes import invariant_axes
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import components

MACHINE = Machine(target="cpu", threads=1)
BOX = "t in 0..4, i in 0..N, j in 0..N"


def operator(*equations: str) -> Program:
    """Return an operator of these equations, over t, i and j unless they say something else."""
    lines = [e if " for " in e and " in " in e else f"{e}, {BOX}" if " for " in e else f"{e} for {BOX}" for e in equations]
    text = f"op f(a: f32[N, N], g: i64[N]) -> (y: f32[N]) where N >= 1 {{\n{chr(10).join(lines)}\n}}"
    module = load_module(parse(Source("f.tl", text)))
    return instantiate(module, "f", [argument(p, {}) for p in module.operators["f"].params], symbolic=True)


def alike(program: Program, tensor: str = "p") -> str:
    """Return the axes along which the elements of a tensor are the same."""
    (group,) = (g for g in components(program) if any(tensor == d.tensors[0].name for d in g))
    return "".join(axis for name, axis in invariant_axes(program, group) if name == tensor)


READ = "y[j] = p[3, 0, j] for j in 0..N"
COEFFICIENTS = "p[t, i, 0] = f32(0.5) for t in 0..4, i in 0..N", "p[t, i, j] = 1 / (4 - p[t, i, j - 1]) for j >= 1"
CASES = {
    "coefficients of a solver": (COEFFICIENTS, "ti"),
    "inputs at places of their own": (("p[t, i, j] = if j == 0 then a[0, 0] else a[j, j] + p[t, i, j - 1 | 0]",), "ti"),
    "an input that differs": (("p[t, i, j] = a[i, j] + p[t, i, j - 1 | 0]",), "t"),
    "an index that is a number": (("p[t, i, j] = f32(t) + p[t, i, j - 1 | 0]",), "i"),
    "steps made of steps": (("p[t, i, j] = a[0, j] + p[t - 1, i, j | 0]",), "i"),
    "points made of points along the axis": (("p[t, i, j] = a[0, j] + p[t, i - 1, j | 1]",), "t"),
    "tensors that need each other": (("p[t, i, j] = a[0, j] + q[t, i, j - 1 | 0]", "q[t, i, j] = 2 * p[t, i, j]"), "ti"),
    "one of them differs": (("p[t, i, j] = a[0, j] + q[t, i, j - 1 | 0]", "q[t, i, j] = f32(t) * p[t, i, j]"), "i"),
}


@pytest.mark.parametrize(("equations", "axes"), CASES.values(), ids=CASES)
def test_elements_are_the_same_along_an_axis_that_neither_equations_nor_places_of_reads_use(equations: tuple[str, ...], axes: str) -> None:
    assert alike(operator(*equations, READ)) == axes


def test_a_place_that_data_name_keeps_its_axis() -> None:
    assert alike(operator(*COEFFICIENTS, "y[j] = p[3, g[j], j] for j in 0..N")) == "t"


@pytest.mark.parametrize("equations", [e for e, _ in CASES.values()], ids=CASES)
def test_what_is_derived_computes_them_once_and_is_right(equations: tuple[str, ...]) -> None:
    program = operator(*equations, READ)
    schedule = derive(program, MACHINE)
    assert show(schedule.directives[0]).startswith("hoist p.")
    assert_same(program, proven(program, schedule), {"N": 9})


def refusal(program: Program, *axes: str) -> str:
    with pytest.raises(CompileError) as refused:
        apply(program, Schedule("f").hoist(*axes))
    (problem,) = refused.value.diagnostics
    assert problem.code == "S0204"
    return problem.title


def test_axes_along_which_elements_differ_are_refused() -> None:
    program = operator(*COEFFICIENTS, READ)
    assert refusal(program, "p.j") == "`p.j` cannot be hoisted: elements of `p` differ along `j`"
    assert refusal(program, "p.k") == "`p.k` cannot be hoisted: there is no tensor `p` with an axis `k` defined here"
    assert refusal(program, "y.j") == "`y.j` cannot be hoisted: `y` is a result, of which every element is stored"


def test_tensors_that_need_each_other_lose_an_axis_together() -> None:
    program = operator(*CASES["tensors that need each other"][0], READ)
    assert refusal(program, "p.t") == "`p.t` cannot be hoisted: elements of `p` differ along `t`"
    assert_same(program, proven(program, Schedule("f").hoist("p.t", "q.t").hoist("p.i", "q.i")), {"N": 5})
