"""Kernels of open sizes have loops of their own for sizes far from the samples, where these are predicted to pay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import tensorlang as tl
from codegen.errors import Unfit
from codegen.llvm.target import named
from codegen.llvm.workspace import plan as workspace_plan
from codegen.loops.evaluate import evaluate
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse as parse_loops
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu import driver, size_cases
from tensorlang.backends.cpu.driver import compile_kernel, loops_of, machine_of, plan_kernel
from tensorlang.backends.cpu.function_cycles import function_cycles
from tensorlang.backends.cpu.size_cases import KNOWN, MOST_CASES, Planned, telling
from tensorlang.diagnostics import CompileError, error
from tensorlang.graph.nodes import Form
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Scheduled
from tensorlang.policy.cpu.cost import FAR_BYTES
from tensorlang.policy.deriver import Exactly
from tensorlang.policy.machine import Machine
from tensorlang.runtime.library import empty_module, installed_roles, rules_of
from tensorlang.runtime.limits import case_lines
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.nodes import Program

SUMS = "op sums(x: f32[M, N]) -> (y: f32[N]) { y[j] = sum(i) x[i, j] }"
TARGET = named("x86-64-v4")
MACHINE = machine_of(TARGET, 1)


def program(text: str = SUMS, *shapes: tuple[int, ...]) -> Program:
    """Return the operator of a text, which takes arrays of these shapes, with open sizes."""
    operators = tl.parse(text)
    operator = operators[next(iter(operators))]
    return operator._checked(operator.call(*(np.ones(shape, np.float32) for shape in shapes or ((2, 2),))), symbolic=True)


@lru_cache
def compiled(rows: int, columns: int, threads: int = 1) -> Artifact:
    """Return the operator compiled at so many rows and columns."""
    rules = replace(rules_of(installed_roles()), at={"M": rows, "N": columns})
    return compile_kernel(program(), TARGET, rules=rules, threads=threads)


@pytest.mark.parametrize(
    ("rows", "columns"), [(3, 33), (3, 41), (2124, 6), (0, 156), (1, 1), (1, 9), (90, 1), (70, 2), (70, 3), (5, 3), (70, 4)]
)
def test_every_case_computes_the_same(rows: int, columns: int) -> None:
    made = compiled(3000, 33)
    sizes = ["N == 1", "M == 1", "N == 2", "N == 3", "N == 4", "M <= 2123", "all others"]
    assert [case.range for case in made.cases] == sizes, "so that sizes on both sides are tried"
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    y = np.full(columns, np.nan, np.float32)
    assert run(parse_loops(made.loops), {"M": rows, "N": columns}, {"x": x, "y": y}) == 0
    np.testing.assert_allclose(y, x.sum(axis=0, dtype=np.float32), 1e-5, 1e-5)


def test_the_table_names_ranges_and_reasons_and_ends_with_all_others() -> None:
    *_, first, last = compiled(3000, 33).cases
    assert first.range.startswith("M <= ") and "predicted to take" in first.why
    assert (last.range, last.why) == ("all others", "scheduled for M = 3000, N = 33")
    assert first.schedule != last.schedule


def test_sizes_that_would_be_scheduled_alike_have_no_cases() -> None:
    doubled = program("op doubled(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }", (2,))
    assert compile_kernel(doubled, TARGET, rules=replace(rules_of(installed_roles()), at={"N": 1024})).cases == ()


@pytest.mark.parametrize("sizes", [(3000, 33), (40, 40)])
def test_there_are_few_cases(sizes: tuple[int, int]) -> None:
    cases = compiled(*sizes, threads=8).cases
    assert len([case for case in cases if "==" not in case.range]) <= MOST_CASES
    assert len([case for case in cases if case.range.startswith("N ==")]) <= len(KNOWN)


def test_where_the_first_array_was_small_usual_ones_have_threads_and_it_has_none() -> None:
    *small, usual = compiled(40, 40, threads=8).cases
    assert usual.why == "scheduled for M = 256, N = 256" and "parallel" in usual.schedule
    assert any("parallel" not in case.schedule and "==" not in case.range for case in small)


def test_samples_at_which_there_is_hardly_anything_to_do_tell_nothing() -> None:
    assert telling(program(), {"M": 3, "N": 100}) == {"M": 256, "N": 100}
    assert telling(program(), {"M": 3, "N": 100_000}) == {"M": 3, "N": 100_000}


def test_explain_lists_the_cases() -> None:
    *_, first, last = compiled(3000, 33).cases
    assert case_lines((first, last)) == [f"sizes      {first.range:10}  {first.why}", f"           {last.range:10}  {last.why}"]


@lru_cache(typed=True)
def sums_at(rows: int, columns: int) -> Planned:
    """Return what is derived for the operator at so many rows and columns."""
    scheduled = plan_kernel(program(), MACHINE, rules=replace(rules_of(installed_roles()), at={"M": rows, "N": columns}))
    return Planned(scheduled, loops_of(scheduled.plan, "kernel", threads=1))


def cycles(sizes: Mapping[str, int], rows: int, columns: int) -> float:
    """Return what the loops that are derived for so many rows and columns are predicted to take."""
    return function_cycles(sums_at(rows, columns).lowered.function, sizes, MACHINE)


def test_more_rows_are_predicted_to_take_longer_and_what_is_scheduled_for_sizes_the_least() -> None:
    assert cycles({"M": 3000, "N": 264}, 3000, 33) > cycles({"M": 300, "N": 264}, 3000, 33)
    assert cycles({"M": 300, "N": 264}, 300, 264) < cycles({"M": 300, "N": 264}, 300, 33)


def test_what_no_near_cache_holds_is_predicted_to_take_as_long_as_it_needs_to_arrive() -> None:
    near, far = {"M": 300, "N": 264}, {"M": 300_000, "N": 264}
    assert cycles(near, 300, 264) < cycles(near, 300, 33)
    assert cycles(far, 300, 264) == cycles(far, 300, 33) == 4 * (300_000 + 1) * 264 / FAR_BYTES


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
        return function_cycles(parse_loops(f"func f(N)(x: f32[32], out y: f32[16]) {{ {body} }}"), {"N": 16}, MACHINE)

    assert taken(read) > taken("for j in 0 .. 16 vector 16 { y[j] = x[2*j] }")


def test_squares_that_copies_and_lanes_read_across_are_predicted_to_be_loaded_by_rows() -> None:
    def taken(column: str) -> float:
        body = f"for i in 0 .. 16 unroll 16 {{ for j in 0 .. 16 vector 16 {{ y[i, j] = x[j, {column}] }} }}"
        return function_cycles(parse_loops(f"func f()(x: f32[16, 32], out y: f32[16, 16]) {{ {body} }}"), {}, MACHINE)

    assert taken("i") < 0.7 * taken("2*i")


def test_a_number_that_all_lanes_read_is_one_load() -> None:
    function = parse_loops("func f()(x: f32[], out y: f32[16]) { for j in 0 .. 16 vector 16 { y[j] = x[] } }")
    assert function_cycles(function, {}, MACHINE) < function_cycles(function, {}, replace(MACHINE, vector_bytes=32))


def predicted(body: str, declared: str = "x: f32[N, 5], out y: f32[N, 5]", **sizes: int) -> float:
    """Return what a function of these loops is predicted to take."""
    return function_cycles(parse_loops(f"func f(N)({declared}) {{ {body} }}"), {"N": 4096, **sizes}, MACHINE)


def test_rows_of_a_known_length_are_predicted_to_be_loaded_together() -> None:
    loops = (
        "for i in 0 .. N // 16 {{ for j in 0 .. {0} unroll {0} {{ for v in 0 .. 16 vector 16 {{ y[16*i + v, j] = x[16*i + v, j] }} }} }}"
    )
    known, open_length = (predicted(loops.format(5), f"x: f32[N, {n}], out y: f32[N, {n}]", M=5) for n in ("5", "N"))
    assert known < 0.5 * open_length


def test_lanes_that_take_no_part_are_predicted_to_take_as_long_as_others() -> None:
    loops = "for i in 0 .. N {{ for v in 0 .. min({}, N) vector {} {{ y[i, v] = exp(x[i, v]) }} }}"
    assert predicted(loops.format(3, 64)) > 3 * predicted(loops.format(3, 16))


def test_a_copy_of_few_lanes_is_predicted_to_take_as_long_as_one_of_all() -> None:
    lanes = "for v in 0 .. min(16, M - 16*u) vector 16 { y[i, 16*u + v] = exp(x[i, 16*u + v]) }"
    loops = f"for i in 0 .. N {{ for u in 0 .. (M + 15) // 16 unroll 2 {{ {lanes} }} }}"
    function = parse_loops(f"func f(N, M)(x: f32[N, M], out y: f32[N, M]) {{ {loops} }}")
    assert function_cycles(function, {"N": 64, "M": 17}, MACHINE) == function_cycles(function, {"N": 64, "M": 32}, MACHINE)


def test_combining_lanes_is_predicted_to_take_its_time() -> None:
    rows = "for i in 0 .. N {{ alloc t: f32[{0}] registers for v in 0 .. 16 vector 16 {{ t[{1}] = t[{1}] + x[i, v] }} }}"
    assert predicted(rows.format("1", "0")) > 2 * predicted(rows.format("16", "v"))


def test_elementary_functions_are_predicted_to_take_longer_than_divisions() -> None:
    of_row = "for i in 0 .. N {{ for v in 0 .. 16 vector 16 {{ y[i, v] = {} }} }}"
    function, quotient, greatest, total = (
        predicted(of_row.format(e)) for e in ("exp(x[i, v])", "x[i, v] / 3.0_f32", "max(x[i, v], 3.0_f32)", "x[i, v] + 3.0_f32")
    )
    assert function > 1.5 * quotient > greatest > total


def test_steps_that_go_through_memory_are_predicted_to_wait_for_each_other() -> None:
    steps = "for i in 1 .. N {{ for v in 0 .. 16 vector 16 {{ y[i, v] = 0.5_f32 * {}[i - 1, v] }} }}"
    assert predicted(steps.format("y")) > 2 * predicted(steps.format("x"))


def told_cases(monkeypatch: pytest.MonkeyPatch, share: Callable[[Mapping[str, int]], float], spare: int = 12_000) -> list[str]:
    """Return the ranges of the operator's cases where loops of other samples are predicted to take such a share of what those for the
    samples do, and there is room for `spare` nodes of loops beside them."""

    looked_at: dict[int, Lowered] = {}

    def planned(at: Mapping[str, int], known: Mapping[str, int]) -> Scheduled:
        if known:
            raise error("C0103", "no size is known here")
        made = sums_at(at["M"], at["N"])
        looked_at[id(made.scheduled)] = made.lowered
        return made.scheduled

    def lowered(scheduled: Scheduled) -> Lowered:
        return looked_at[id(scheduled)]

    at = {"M": 40, "N": 300}
    base = sums_at(40, 300)
    own = base.lowered.function

    def predicted(function: Function, _: Machine) -> Callable[[Mapping[str, int]], float]:
        return lambda sizes: 1e9 * (1.0 if function is own else share(sizes))

    monkeypatch.setattr(size_cases, "_room", lambda _: spare)
    monkeypatch.setattr(size_cases, "cycles_at_sizes", predicted)
    return [case.range for case in size_cases.with_cases(base, at, at, planned, lowered, MACHINE)[1]]


def asked_for(
    monkeypatch: pytest.MonkeyPatch, at: Mapping[str, int], cycles: Callable[[Mapping[str, int]], float]
) -> list[Mapping[str, int]]:
    """Return the samples that schedules are derived for, one after the other, where all loops are predicted to take so many cycles."""
    base, other = sums_at(40, 300), sums_at(40, 3)
    assert other.scheduled.schedule != base.scheduled.schedule
    asked: list[Mapping[str, int]] = []

    def planned(sample: Mapping[str, int], known: Mapping[str, int]) -> Scheduled:
        if known:
            raise error("C0103", "no size is known here")
        asked.append(sample)
        return other.scheduled

    monkeypatch.setattr(size_cases, "cycles_at_sizes", lambda *_: cycles)
    size_cases.with_cases(base, at, at, planned, lambda _: other.lowered, MACHINE)
    return asked


def test_where_loops_take_as_long_for_all_there_is_to_do_no_other_samples_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_for(monkeypatch, {"M": 400, "N": 300}, lambda sizes: 1e6 * sizes["M"] * sizes["N"]) == []


def test_samples_are_looked_at_first_at_which_loops_take_longest_for_what_there_is_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = asked_for(monkeypatch, {"M": 400, "N": 300}, lambda sizes: 1e6 * (sizes["M"] + 100) * (sizes["N"] + 10))
    assert first == {"M": 1, "N": 300}


def test_samples_at_which_there_is_nothing_to_do_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_cases, "operations", lambda _, sizes: sizes["M"] // 2 * sizes["N"])
    found = asked_for(monkeypatch, {"M": 400, "N": 300}, lambda sizes: 1e6 * (sizes["M"] + 100) * (sizes["N"] + 10))
    assert found and all(sample["M"] > 1 for sample in found)


def test_samples_of_small_sizes_are_looked_at_beside_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = asked_for(monkeypatch, {"M": 5, "N": 5}, lambda sizes: 1e6 * (sizes["M"] + 100) * (sizes["N"] + 10))
    assert first == {"M": 256, "N": 256} and {"M": 1, "N": 256} in others


def test_what_suits_any_sizes_does_not_stand_in_for_what_suits_samples_in_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, int] | None] = []

    def refused(*_: object, at: Mapping[str, int] | None = None, **__: object) -> Schedule:
        asked.append(at)
        return Schedule("sums").split("nowhere", 2, ("a", "b"))

    monkeypatch.setattr(driver, "derive", refused)
    for sampled, count in ((False, 3), (True, 1)):
        asked.clear()
        rules = replace(rules_of(installed_roles()), at={"M": 3, "N": 5}, sampled=sampled, module=empty_module())
        with pytest.raises(CompileError):
            plan_kernel(program(), MACHINE, rules=rules)
        assert len(asked) == count


def test_loops_that_are_too_long_for_a_case_are_not_made() -> None:
    plan = sums_at(40, 300).scheduled.plan
    with pytest.raises(Unfit, match="more than 4 nodes"):
        loops_of(plan, "sums", most=4)
    assert loops_of(plan, "sums", most=4000).params == ("x", "y")


def test_a_case_is_for_the_sizes_at_which_it_is_predicted_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    few, *_ = told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] <= 40 else 1.5)
    assert few == "N <= 30"


def test_a_case_may_be_for_a_combination_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    both, *_ = told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] <= 40 and sizes["M"] >= 100 else 1.5)
    assert both == "M >= 113, N <= 30"


def test_a_size_that_makes_no_difference_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    few, *_ = told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] <= 40 and sizes["M"] >= 100 else 1.0 if sizes["N"] <= 40 else 1.5)
    assert few == "N <= 30"


def test_a_case_ends_where_it_would_lose_with_the_fewest_or_the_most_of_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    few, *_ = told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] <= 40 and (sizes["M"] < 1000 or sizes["N"] <= 20) else 1.5)
    assert few == "N <= 20"


def test_loops_for_a_number_run_where_calls_take_long_though_those_for_the_samples_wait_for_memory() -> None:
    planned = replace(sums_at(40, 300), known={"M": 1})
    grid = size_cases._grid({"M": 256, "N": 256}, planned.known)

    def found(takes_long: bool) -> size_cases._Case | None:
        return size_cases._case(planned, grid, lambda _, sizes: 0.2 if sizes["N"] < 256 else 1.0, lambda sizes: takes_long)

    case = found(takes_long=True)
    assert case is not None and str(case.limits[0]) == "M == 1" and case.holds({"M": 1, "N": 100})
    assert found(takes_long=False) is None


def test_a_box_grows_first_along_the_axis_that_lets_it_grow_most() -> None:
    gains = {(0, 0): -9.0, (0, 1): 1.0, (0, 2): 1.0, (0, 3): 1.0, (1, 0): 0.5, (1, 1): 1.0, (1, 2): -9.0, (1, 3): -9.0}
    assert size_cases._box((2, 4), (0, 1), gains) == (3.0, [(0, 0), (1, 3)])
    assert size_cases._box((2, 2), (1, 1), {(0, 0): -9.0, (0, 1): 1.0, (1, 0): 2.0, (1, 1): 1.0}) == (3.0, [(1, 1), (0, 1)])


def test_loops_at_hand_run_at_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = told_cases(monkeypatch, lambda sizes: 0.5)
    assert first != "" and "all others" not in first


def test_a_case_that_gains_little_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told_cases(monkeypatch, lambda sizes: 0.75) == []


@pytest.mark.parametrize(("spare", "count"), [(12_000, 2), (10, 0)])
def test_large_kernels_have_cases_as_far_as_these_are_small(monkeypatch: pytest.MonkeyPatch, spare: int, count: int) -> None:
    assert len(told_cases(monkeypatch, lambda sizes: 0.5 if sizes["N"] < 100 else 2.0, spare)) == count


def test_what_is_scheduled_for_one_row_of_a_product_is_a_register_tile_of_one_row() -> None:
    product = program("op product(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }", (2, 3), (3, 4))

    def rows(at: Mapping[str, int]) -> str:
        return str(plan_kernel(product, MACHINE, rules=replace(rules_of(installed_roles()), at=at)).schedule).split("split ")[1].split()[2]

    sizes = {"K": 256, "N": 512}
    assert [rows({"M": m, **sizes}) for m in (Exactly(1), Exactly(3), 1, 3)] == ["1", "3", "12", "12"]


def test_memory_of_the_two_sides_of_a_condition_on_sizes_is_shared() -> None:
    def scratch(condition: str) -> int:
        copies = "{ alloc p: f32[N] heap align 64\n p[0] = 1.0_f32\n y[0] = p[0] }"
        larger = copies.replace("f32[N]", "f32[2*N]")
        function = parse_loops(f"func f(N)(out y: f32[N]) {{ for i in 0 .. N {{ if {condition} {copies} else {larger} }} }}")
        return evaluate(workspace_plan(function).shared_bytes, {"N": 16})

    assert scratch("index(N) < 8_i64") == 128
    assert scratch("index(i) < 8_i64") == 64 + 128


NORM = """op norm(x: f32[M, D]) -> (y: f32[M, D]) {
    s[i] = sum(d) sq(x[i, d])
    y[i, d] = x[i, d] / sqrt(s[i] + 0.5)
}"""


def test_where_the_length_of_rows_is_a_small_number_lanes_are_rows() -> None:
    norm = program(NORM, (2, 2))
    made = compile_kernel(norm, TARGET, rules=replace(rules_of(installed_roles()), at={"M": 300, "D": 256}))
    ranges = [case.range for case in made.cases]
    assert [known.split(",")[0] for known in ranges[:4]] == [f"D == {n}" for n in KNOWN]
    assert "vectorize y.i_v" in made.cases[2].schedule and "y.i_v" not in made.cases[-1].schedule
    x = np.random.default_rng(1).standard_normal((37, 3)).astype(np.float32)
    y = np.full_like(x, np.nan)
    assert run(parse_loops(made.loops), {"M": 37, "D": 3}, {"x": x, "y": y}) == 0
    np.testing.assert_allclose(y, x / np.sqrt((x * x).sum(axis=1, keepdims=True) + 0.5), 1e-5, 1e-5)


def test_long_rows_have_loops_of_their_own_where_the_samples_are_short() -> None:
    sums = program("op product(a: f32[M, K], x: f32[K]) -> (y: f32[M]) { y[i] = sum(k) a[i, k] * x[k] }", (2, 3), (3,))
    made = compile_kernel(sums, TARGET, rules=replace(rules_of(installed_roles()), at={"M": 50_000, "K": 5}))
    long = next(case for case in made.cases if case.range.startswith("K >= "))
    assert "vectorize y.jv" in made.cases[-1].schedule and "vectorize y.kv" in long.schedule


def test_numbers_are_looked_at_only_of_sizes_for_which_loops_at_hand_take_long() -> None:
    scaled = program("op scaled(x: f32[M, N], w: f32[N]) -> (y: f32[M, N]) { y[i, j] = w[j] * x[i, j] }", (2, 3), (3,))
    cases = compile_kernel(scaled, TARGET, rules=replace(rules_of(installed_roles()), at={"M": 96, "N": 64})).cases
    assert cases[0].range.startswith("N == 1") and not any(case.range.startswith("M ==") for case in cases)


def test_code_with_cases_runs_here() -> None:
    sums = tl.parse(SUMS, threads=1, sizes="symbolic").sums
    for shape in ((3000, 33), (3000, 300), (2, 7), (300, 1), (301, 3)):
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(sums(x), x.sum(axis=0), 1e-3, 1e-3)


def test_a_form_of_a_kernel_runs_where_it_is_faster() -> None:
    at = {"N": 16}
    main = program("op f(x: f32[N], w: f32[64], _v: f32[9000]) -> (y: f32[N]) { y[i] = sum(k) abs(x[i] - w[k]) }", (16,), (64,), (9000,))
    other = program("op f(x: f32[N], _v: f32[9000]) -> (y: f32[N]) { s[] = sum(k) _v[k]\n y[i] = x[i] * s[] }", (16,), (9000,))
    form = Form(other, (("N", 1024),))
    made = compile_kernel(main, TARGET, rules=replace(rules_of(installed_roles()), at=at), forms=(form,))
    [limit] = [int(case.range.removeprefix("N >= ")) for case in made.cases if ">=" in case.range and "s" in case.schedule]
    assert limit > at["N"], "a few take less than the sum of all of `_v`"
    for n in (0, 1, limit - 1, limit, 2 * limit):
        x, y = np.arange(n, dtype=np.float32), np.full(n, np.nan, np.float32)
        held = {"x": x, "w": np.zeros(64, np.float32), "_v": np.full(9000, 1 / 64, np.float32), "y": y}
        assert run(parse_loops(made.loops), {"N": n}, {p: held[p] for p in made.params}) == 0
        np.testing.assert_allclose(y, x * np.float32(64 if n < limit else 9000 / 64), 1e-5)
