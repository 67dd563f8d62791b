"""Functions of one byte, looked up in a table of all its values: which are, the same values, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scheduled_programs import assert_same, operator

from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program

SIGMOID = "y[i] = sat[i8](round(sigmoid(f32(i32(x[i]) - 3) * 0.05) / 0.00390625) - 128)"
CASES = {
    "bytes with a sign": ("x: i8[N]) -> (y: i8[N])", SIGMOID),
    "bytes without": ("x: u8[N]) -> (y: u8[N])", "y[i] = sat[u8](round(f32(x[i]) * f32(x[i]) / 255))"),
    "a result of another type": ("x: u8[N]) -> (y: f32[N])", "y[i] = 0.3 * f32(x[i]) - 1"),
    "a byte that is read twice": ("x: i8[N]) -> (y: i32[N])", "y[i] = i32(x[i]) * i32(x[i])"),
    "numbers for all": ("x: u8[N], s: f32) -> (y: u8[N])", "y[i] = sat[u8](f32(x[i]) * s)"),
    "elements of other places": ("x: u8[N]) -> (y: i32[N, 2])", "y[i, k] = i32(x[N - 1 - i]) - 7   for k in 0..2"),
}
OTHERS = {
    "16 bits": ("x: i16[N]) -> (y: i16[N])", "y[i] = x[i] + 1", "`x` is i16, of which there are more values than 256"),
    "two bytes": ("x: u8[N]) -> (y: i32[N])", "y[i] = i32(x[i]) + i32(x[N - 1 - i])", "it is no function of one element"),
    "a sum": ("x: u8[N, 4]) -> (y: i32[N])", "y[i] = sum(k) i32(x[i, k])", "it is no function of one element"),
    "its place": ("x: u8[N]) -> (y: i64[N])", "y[i] = i64(x[i]) + i", "it differs from point to point where `x` does not"),
    "a condition on its place": (
        "x: u8[N]) -> (y: u8[N])",
        "y[i] = if i < 3 then x[i] else 0",
        "it differs from point to point where `x` does not",
    ),
    "several equations": (
        "x: u8[N]) -> (y: u8[N])",
        "y[i] = x[i]   for i in 0..N - 1\n y[i] = 0 otherwise",
        "it is not made by one equation that holds for all its elements",
    ),
    "a place that data say": (
        "x: u8[N], at: i32[N]) -> (y: u8[N])",
        "y[i] = x[clamp(at[i], 0, N - 1)] // 3",
        "it is no function of one element",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_functions_of_a_byte_are_looked_up_and_are_the_same(case: tuple[str, str]) -> None:
    program = operator(*case)
    assert_same(program, proven(program, Schedule("f").tabulate("y")), {"N": 5})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_every_byte_has_its_value(dtype: type) -> None:
    name = np.dtype(dtype).name.replace("uint", "u").replace("int", "i")
    program = operator(f"x: {name}[N]) -> (y: i32[N])", "y[i] = i32(x[i]) * 3 - 1")
    every: np.ndarray = np.arange(256).astype(np.uint8).view(dtype)
    plan = proven(program, Schedule("f").tabulate("y"))
    assert plan.factorized is not None
    assert (interpret(plan.factorized, {"N": 256}, {"x": every})["y"] == every.astype(np.int32) * 3 - 1).all()


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_others_are_refused(case: tuple[str, str, str]) -> None:
    signature, equations, why = case
    with pytest.raises(CompileError, match=f"`y` cannot be tabulated: {why}"):
        apply(operator(signature, equations), Schedule("f").tabulate("y"))


def tabulated(program: Program, machine: Machine) -> bool:
    return "tabulate y" in [show(d) for d in derive(program, machine).directives]


@pytest.mark.parametrize(
    ("machine", "sigmoid", "limited", "opposite"),
    [
        pytest.param(Machine(target="cpu", tables=frozenset({(1, 256)})), True, True, False, id="picked from registers"),
        pytest.param(Machine(target="cpu"), False, False, False, id="AVX-512"),
        pytest.param(Machine(32, 16, target="cpu"), True, False, False, id="AVX2"),
    ],
)
def test_what_takes_longer_to_compute_than_to_look_up_is_looked_up(machine: Machine, sigmoid: bool, limited: bool, opposite: bool) -> None:
    sizes = {"N": 10_000}
    assert tabulated(operator("x: i8[N]) -> (y: i8[N])", SIGMOID, sizes), machine) == sigmoid
    half = "y[i] = sat[u8](round(f32(x[i]) * 0.5) + 3)"
    assert tabulated(operator("x: u8[N]) -> (y: u8[N])", half, sizes), machine) == limited
    assert tabulated(operator("x: u8[N]) -> (y: u8[N])", "y[i] = 255 - x[i]", sizes), machine) == opposite
    assert not tabulated(operator("x: i8[N]) -> (y: i8[N])", SIGMOID, {"N": 300}), machine)
