"""Local tensors in the memory of results: where nothing of them is needed any more when the result is written, bit for bit the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scheduled_programs import argument, assert_same, loops

import tensorlang
from codegen.llvm.emit import emit
from codegen.llvm.target import host
from codegen.llvm.workspace import workspace_bytes
from codegen.loops.nodes import Alloc, For
from codegen.loops.printer import show
from codegen.loops.walk import statements, stores
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Plan
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

MACHINES = Machine(target="cpu", threads=1), Machine(target="cpu", threads=2)
SIZES = {"N": 100}


def operator(result: str, body: str) -> Program:
    module = load_module(parse(Source("f.tl", f"op f(a: i32[N, N]) -> ({result}) where N >= 3 {{\n{body}\n}}")))
    return instantiate(module, "f", [argument(p, SIZES) for p in module.operators["f"].params])


def on_the_heap(plan: Plan) -> list[str]:
    return [s.buffer.name for s in statements(*loops(plan).body) if isinstance(s, Alloc) and s.buffer.space == "heap"]


KEPT = {
    "one step of a sweep in place": """
        u[0, i, j] = a[i, j]
        u[t, i, j] = u[t, i - 1, j | 0] + u[t - 1, i, j] for t in 1..3, i in 0..N, j in 0..N
        y[i, j]    = u[2, i, j]""",
    "the sum of two sweeps": """
        f[i, j] = a[i, j] + f[i - 1, j | 0]
        b[i, j] = a[i, j] + b[i + 1, j | 0]
        y[i, j] = f[i, j] - b[i, j]""",
}
APART = {
    "elements that are needed after others are written": """
        u[i, j] = a[i, j] + u[i - 1, j | 0]
        y[i, j] = u[N - 1 - i, j]""",
    "neighbours": """
        u[i, j] = a[i, j] + u[i - 1, j | 0]
        y[i, j] = u[i, j] + u[i - 1, j - 1 | 0]""",
    "three steps": """
        u[0, i, j] = a[i, j]
        u[1, i, j] = a[j, i] for i in 0..N, j in 0..N
        u[t, i, j] = u[t - 1, i, j] + u[t - 2, i - 1, j | 0] + u[t - 2, i + 1, j | 0] for t in 2..7, i in 0..N, j in 0..N
        y[i, j]    = u[6, i, j]""",
    "the last of two steps, turned": """
        u[0, i, j] = a[i, j]
        u[t, i, j] = u[t - 1, i - 1, j | 0] + u[t - 1, i + 1, j | 0] for t in 1..5, i in 0..N, j in 0..N
        y[i, j]    = u[4, j, i]""",
    "the last of two steps, and one": """
        u[0, i, j] = a[i, j]
        u[t, i, j] = u[t - 1, i - 1, j | 0] + u[t - 1, i + 1, j | 0] for t in 1..5, i in 0..N, j in 0..N
        y[i, j]    = u[4, i, j] + 1""",
}
TURNS = """
    u[0, i, j] = a[i, j]
    u[t, i, j] = u[t - 1, i - 1, j | 0] + u[t - 1, i + 1, j | 0] for t in 1..steps+1, i in 0..N, j in 0..N
    y[i, j]    = u[steps, i, j]"""


@pytest.mark.parametrize("machine", MACHINES, ids=("one thread", "two threads"))
@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_a_local_tensor_lies_where_a_result_will(body: str, machine: Machine) -> None:
    program = operator("y: i32[N, N]", body)
    plan = proven(program, derive(program, machine))
    assert on_the_heap(plan) == []
    assert_same(program, plan, SIZES)


@pytest.mark.parametrize("body", APART.values(), ids=APART)
def test_what_is_still_needed_then_has_memory_of_its_own(body: str) -> None:
    program = operator("y: i32[N, N]", body)
    plan = proven(program, derive(program, MACHINES[0]))
    assert on_the_heap(plan) == ["u"] and "(begins" not in show(loops(plan))
    assert_same(program, plan, SIZES)


def test_the_last_of_two_steps_lies_where_a_result_will() -> None:
    program = operator("y: i32[N, N]", TURNS.replace("steps", "4"))
    plan = proven(program, derive(program, MACHINES[0]))
    assert "alloc u: i32[2, 100, 100] heap align 64 (begins y)" in show(loops(plan))
    assert workspace_bytes(loops(plan), 2) == 4 * 100 * 100
    assert_same(program, plan, SIZES)


@pytest.mark.parametrize("size", ["steps: int", "size steps"], ids=("known steps", "open steps"))
def test_a_result_may_be_any_step_and_lie_anywhere(size: str) -> None:
    heat = tensorlang.parse(f"op f(a: i32[N, N], {size.replace('steps: int', 'attr steps: int')}) -> (y: i32[N, N]) {{{TURNS}\n}}")["f"]
    a = np.arange(10201, dtype=np.int32).reshape(101, 101) % 5
    for start, steps in ((0, 0), (1, 1), (5, 6), (2, 7)):
        expected = a
        for _ in range(steps):
            rows = np.pad(expected, ((1, 1), (0, 0)))
            expected = rows[:-2] + rows[2:]
        around = np.full(10201 + 16, -9, np.int32)
        heat(a, steps=steps, out=around[start : start + 10201].reshape(101, 101))
        assert (around[start : start + 10201].reshape(101, 101) == expected).all()
        assert (around[:start] == -9).all() and (around[start + 10201 :] == -9).all()


def test_results_of_another_type_and_small_tensors_are_left_alone() -> None:
    wide = operator("y: i64[N, N]", KEPT["one step of a sweep in place"].replace("y[i, j]    = u[2, i, j]", "y[i, j] = i64(u[2, i, j])"))
    assert on_the_heap(proven(wide, derive(wide, MACHINES[0]))) == ["u"]


def test_a_result_that_holds_the_last_step_is_not_copied_to_itself() -> None:
    program = operator("y: i32[N, N]", KEPT["one step of a sweep in place"])
    assert "y[y_i, y_j] = y[y_i, y_j]" not in show(loops(proven(program, derive(program, MACHINES[0]))))


def test_the_last_step_is_not_copied_to_where_it_lies() -> None:
    program = operator("y: i32[N, N]", TURNS.replace("steps", "4"))
    function = loops(proven(program, derive(program, MACHINES[0])))
    rows = [s for s in function.body if not (isinstance(s, For) and all(x.buffer == "y" for x in stores(s)))]
    assert len(rows) < len(function.body) and emit(function, host()) == emit(replace(function, body=tuple(rows)), host())
