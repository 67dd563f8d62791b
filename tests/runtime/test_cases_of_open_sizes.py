"""Kernels of open sizes have loops of their own for sizes far from the samples, where these are predicted to pay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import tensorlang as tl
from codegen.llvm.target import named
from codegen.llvm.workspace import plan as workspace_plan
from codegen.loops.evaluate import evaluate
from codegen.loops.interp import run
from codegen.loops.parser import parse as parse_loops
from codegen.loops.walk import walk
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu import size_cases
from tensorlang.backends.cpu.driver import compile_kernel, loops_of, machine_of, plan_kernel
from tensorlang.backends.cpu.function_cycles import function_cycles
from tensorlang.backends.cpu.size_cases import MOST_CASES, Planned
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Scheduled
from tensorlang.runtime.library import installed_roles, rules_of
from tensorlang.runtime.limits import case_lines
from tensorlang.tensor.nodes import Program

SUMS = "op sums(x: f32[M, N]) -> (y: f32[N]) { y[j] = sum(i) x[i, j] }"
TARGET = named("x86-64-v4")


def program(text: str = SUMS, shape: tuple[int, ...] = (2, 2)) -> Program:
    """Return the operator of a text, which takes an array of a shape, with open sizes."""
    operators = tl.parse(text)
    operator = operators[next(iter(operators))]
    return operator._checked(operator.call(np.ones(shape, np.float32)), symbolic=True)


@lru_cache
def compiled(rows: int, columns: int, threads: int = 1) -> Artifact:
    """Return the operator compiled at so many rows and columns."""
    rules = replace(rules_of(installed_roles()), at={"M": rows, "N": columns})
    return compile_kernel(program(), TARGET, rules=rules, threads=threads)


@pytest.mark.parametrize(("rows", "columns"), [(3, 33), (3, 70), (70, 5), (0, 70), (1, 1)])
def test_every_case_computes_the_same(rows: int, columns: int) -> None:
    made = compiled(3000, 33)
    assert len(made.cases) == 2, "so that sizes on both sides of the limit are tried"
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    y = np.full(columns, np.nan, np.float32)
    assert run(parse_loops(made.loops), {"M": rows, "N": columns}, {"x": x, "y": y}) == 0
    np.testing.assert_allclose(y, x.sum(axis=0, dtype=np.float32), 1e-5, 1e-5)


def test_the_table_names_ranges_and_reasons_and_ends_with_all_others() -> None:
    first, last = compiled(3000, 33).cases
    assert first.range.startswith("N >= ") and "predicted to take" in first.why
    assert (last.range, last.why) == ("all others", "scheduled for M = 3000, N = 33")
    assert first.schedule != last.schedule


def test_sizes_that_would_be_scheduled_alike_have_no_cases() -> None:
    assert compiled(1024, 1024).cases == ()


@pytest.mark.parametrize("sizes", [(3000, 33), (40, 40)])
def test_there_are_few_cases(sizes: tuple[int, int]) -> None:
    assert len(compiled(*sizes, threads=8).cases) <= MOST_CASES


def test_a_large_array_has_threads_where_the_first_was_small() -> None:
    made = compiled(40, 40, threads=8)
    assert " parallel" in made.loops and any("parallel" in case.schedule for case in made.cases[:-1])
    assert "parallel" not in made.cases[-1].schedule


def test_explain_lists_the_cases() -> None:
    first, last = compiled(3000, 33).cases
    assert case_lines((first, last)) == [f"sizes      {first.range:10}  {first.why}", f"           {last.range:10}  {last.why}"]


def cycles(sizes: Mapping[str, int], rows: int, columns: int) -> float:
    """Return what the loops that are derived for so many rows and columns are predicted to take."""
    rules = replace(rules_of(installed_roles()), at={"M": rows, "N": columns})
    planned = plan_kernel(program(), machine_of(TARGET, 1), rules=rules)
    return function_cycles(loops_of(planned.plan, "kernel", threads=1).function, sizes, 16, 1)


def test_more_rows_are_predicted_to_take_longer_and_what_is_scheduled_for_sizes_the_least() -> None:
    assert cycles({"M": 3000, "N": 264}, 3000, 33) > cycles({"M": 300, "N": 264}, 3000, 33)
    assert cycles({"M": 3000, "N": 264}, 3000, 264) < cycles({"M": 3000, "N": 264}, 3000, 33)


@pytest.mark.parametrize(
    "read",
    [
        "for j in 0 .. 16 vector 16 { if index(j) < 9_i64 { y[j] = x[2*j] } }",
        "for j in 0 .. 16 vector 16 { y[j] = select(index(j) < 9_i64, x[2*j], 0.0_f32) }",
        "for j in 0 .. min(16, N) vector 16 { y[j] = x[2*j] }",
    ],
)
def test_elements_apart_that_some_lanes_read_are_predicted_to_take_longer_than_those_of_all_lanes(read: str) -> None:
    def taken(body: str) -> float:
        return function_cycles(parse_loops(f"func f(N)(x: f32[32], out y: f32[16]) {{ {body} }}"), {"N": 16}, 16, 1)

    assert taken(read) > taken("for j in 0 .. 16 vector 16 { y[j] = x[2*j] }")


def test_squares_that_copies_and_lanes_read_across_are_predicted_to_be_loaded_by_rows() -> None:
    def taken(column: str) -> float:
        body = f"for i in 0 .. 16 unroll 16 {{ for j in 0 .. 16 vector 16 {{ y[i, j] = x[j, {column}] }} }}"
        return function_cycles(parse_loops(f"func f()(x: f32[16, 32], out y: f32[16, 16]) {{ {body} }}"), {}, 16, 1)

    assert taken("i") < 0.7 * taken("2*i")


def test_a_number_that_all_lanes_read_is_one_load() -> None:
    function = parse_loops("func f()(x: f32[], out y: f32[16]) { for j in 0 .. 16 vector 16 { y[j] = x[] } }")
    assert function_cycles(function, {}, 16, 1) < function_cycles(function, {}, 8, 1)


def told_cases(monkeypatch: pytest.MonkeyPatch, share: Callable[[Mapping[str, int]], float], spare: int = 12_000) -> list[str]:
    """Return the ranges of the operator's cases where loops of other samples are predicted to take such a share of what those for the
    samples do, and there is room for `spare` nodes of loops beside them."""

    def planned(at: Mapping[str, int]) -> Scheduled:
        return plan_kernel(program(), machine_of(TARGET, 1), rules=replace(rules_of(installed_roles()), at=at))

    def lowered(scheduled: Scheduled) -> Lowered:
        return loops_of(scheduled.plan, "kernel", threads=1)

    at = {"M": 40, "N": 300}
    base = Planned(planned(at), lowered(planned(at)))
    own = base.lowered.function
    monkeypatch.setattr(size_cases, "MOST_NODES", sum(1 for _ in walk(*own.body)) + spare)
    monkeypatch.setattr(size_cases, "function_cycles", lambda function, sizes, *_: 1000 * (1.0 if function is own else share(sizes)))
    return [case.range for case in size_cases.with_cases(base, at, planned, lowered, 16, 1)[1]]


def test_a_case_that_gains_at_one_is_for_sizes_up_to_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    few, *_ = told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] == 1 else 0.9)
    assert few.startswith("N <= 37")


def test_a_case_that_loses_at_its_sample_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] == 1 else 1.1) == []


@pytest.mark.parametrize(("spare", "count"), [(12_000, 2), (10, 0)])
def test_large_kernels_have_cases_as_far_as_these_are_small(monkeypatch: pytest.MonkeyPatch, spare: int, count: int) -> None:
    assert len(told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] < 100 else 2.0, spare)) == count


def test_of_cases_that_are_for_the_samples_of_both_the_faster_one_stands_first() -> None:
    best = program("op best(x: f32[A, 40, C]) -> (y: f32[A, C]) { y[a, c] = max(b) x[a, b, c] }", (2, 40, 2))

    def planned(at: Mapping[str, int]) -> Scheduled:
        return plan_kernel(best, machine_of(TARGET, 1), rules=replace(rules_of(installed_roles()), at=at))

    def lowered(scheduled: Scheduled) -> Lowered:
        return loops_of(scheduled.plan, "kernel", threads=1)

    at = {"A": 5, "C": 48}
    cases = size_cases.with_cases(Planned(planned(at), lowered(planned(at))), at, planned, lowered, 16, 1)[1]
    assert [case.range.split()[0] for case in cases] == ["C", "A", "all"]


def test_memory_of_the_two_sides_of_a_condition_on_sizes_is_shared() -> None:
    def scratch(condition: str) -> int:
        copies = "{ alloc p: f32[N] heap align 64\n p[0] = 1.0_f32\n y[0] = p[0] }"
        larger = copies.replace("f32[N]", "f32[2*N]")
        function = parse_loops(f"func f(N)(out y: f32[N]) {{ for i in 0 .. N {{ if {condition} {copies} else {larger} }} }}")
        return evaluate(workspace_plan(function).shared_bytes, {"N": 16})

    assert scratch("index(N) < 8_i64") == 128
    assert scratch("index(i) < 8_i64") == 64 + 128


def test_code_with_cases_runs_here() -> None:
    sums = tl.parse(SUMS, threads=1, sizes="symbolic").sums
    for shape in ((3000, 33), (3000, 300), (2, 7)):
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(sums(x), x.sum(axis=0), 1e-3, 1e-3)
