"""Reductions factor by factor: in which order, the same values, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scheduled_programs import assert_same, operator

from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show as show_directive
from tensorlang.tensor.factor_order import FactorOrder
from tensorlang.tensor.factorize import Factorized, factorized
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.printer import show
from tensorlang.tensor.walk import shape_of

MACHINE = Machine(target="cpu", threads=1)
SIZES = {"I": 4, "A": 5, "B": 3, "C": 6, "J": 2}
CHAIN = "u: {}[I, A], v: {}[A, B], w: {}[B, C], x: {}[C, J]) -> (y: {}[I, J])"
CASES = {
    "a chain of matrices": ("f32", CHAIN, "y[i, j] = sum(a, b, c) u[i, a] * v[a, b] * w[b, c] * x[c, j]", ["y.sum", "y.sum_1", "y"]),
    "integers, whatever wraps": ("i8", CHAIN, "y[i, j] = sum(a, b, c) u[i, a] * v[a, b] * w[b, c] * x[c, j]", ["y.sum", "y.sum_1", "y"]),
    "shortest paths": ("f32", CHAIN, "y[i, j] = min(a, b, c) (u[i, a] + v[a, b] + w[b, c] + x[c, j])", ["y.min", "y.min_1", "y"]),
    "widest paths": (
        "i32",
        CHAIN,
        "y[i, j] = max(a, b, c) min(u[i, a], min(v[a, b], min(w[b, c], x[c, j])))",
        ["y.max", "y.max_1", "y"],
    ),
    "whether there is a path": (
        "bool",
        CHAIN,
        "y[i, j] = any(a, b, c) (u[i, a] and v[a, b] and w[b, c] and x[c, j])",
        ["y.any", "y.any_1", "y"],
    ),
    "what depends on nothing else": ("f32", "u: {}[A], v: {}[B, C]) -> (y: {})", "y = sum(a, b, c) u[a] * v[b, c]", ["y"]),
    "outside of a sum": (
        "f32",
        "s: {}[I], u: {}[I, A], v: {}[A, J], t: {}[J]) -> (y: {}[I, J])",
        "y[i, j] = sum(a) s[i] * u[i, a] * v[a, j] * t[j] + 1",
        ["y"],
    ),
    "two matrices one after the other": (
        "f32",
        "u: {}[I, A, B], v: {}[A, J], w: {}[B, J]) -> (y: {}[I, J])",
        "y[i, j] = sum(a, b) u[i, a, b] * v[a, j] * w[b, j]",
        ["y.sum", "y"],
    ),
    "ranges of axes": (
        "f32",
        "u: {}[I, A], v: {}[A, B], w: {}[B, J]) -> (y: {}[I, J])",
        "y[i, j] = sum(a in 0..min(i + 1, A), b in 1..B) u[i, a] * v[a, b] * w[b, j]",
        ["y.sum", "y"],
    ),
    "in pieces": (
        "f32",
        "u: {}[I, A], v: {}[A, B], w: {}[B]) -> (y: {}[I])",
        "y[i] = sum(a, b) u[i, a] * v[a, b] * w[b] for i in 1..I\n y[i] = 0 otherwise",
        ["y.sum", "y"],
    ),
    "factors that are computed": (
        "f32",
        "u: {}[I, A], v: {}[A, B], w: {}[B]) -> (y: {}[I])",
        "y[i] = 2 + sum(a, b) (u[i, a] - 1) * abs(v[a, b]) * (if b > 1 then w[b] else 2)",
        ["y.sum", "y"],
    ),
}
KEPT = {
    "two factors of all indices": ("y[i] = sum(a, b) u[a, b] * v[b, a] + u[i, i]", None),
    "one sum in another's range": ("y[i] = sum(a, b in 0..a+1) u[a, b] * v[b, a] * u[a, i]", None),
    "a sum of integers may wrap": ("y[i] = f32(min(a, b) (i32(u[i, a]) + i32(v[b, a]) + i32(u[b, i])))", None),
    "a filter": ("y[i] = sum(a, b, u[a, b] > 0) u[a, b] * v[b, i] * v[a, i]", None),
    "places from data": ("y[i] = sum(a, b) u[a, i64(v[a, a])] * v[a, b] * u[b, i]", None),
    "a recurrence of two": (
        "y[i] = sum(a, b) z[i - 1 | 0] * u[a, i] * v[b, i]\n z[i] = y[i] + 1 for i in 0..N",
        "`y` is a recurrence, or computed with others",
    ),
    "a recurrence": ("y[i] = y[i - 1 | 0] + sum(a, b) u[a, i] * v[b, i]", "`y` is a recurrence, or computed with others"),
}
SQUARES = "u: f32[N, N], v: f32[N, N]) -> (y: f32[N])"


def _equation(case: str) -> tuple[Program, list[str]]:
    dtype, params, equation, names = CASES[case]
    return operator(params.replace("{}", dtype), equation), names


@pytest.mark.parametrize("case", CASES)
def test_factors_are_combined_two_at_a_time_to_the_same_values(case: str) -> None:
    program, names = _equation(case)
    made = factorized(program, "y")
    assert not isinstance(made, str), made
    assert sorted(d.tensors[0].name for d in made.program.definitions) == sorted(names), show(made.program)
    assert made.after < made.before
    assert_same(program, proven(program, Schedule(program.name).factorize("y")), {name: SIZES[name] for name in program.sizes})


@pytest.mark.parametrize("case", CASES)
def test_derived_schedules_take_factors_one_by_one(case: str) -> None:
    program, _ = _equation(case)
    schedule = derive(program, MACHINE)
    assert [show_directive(d) for d in schedule.directives if d.name == "factorize"] == ["factorize y"]


@pytest.mark.parametrize("case", KEPT)
def test_what_stays_says_why(case: str) -> None:
    equation, why = KEPT[case]
    expected = why or "the equation of `y` reduces nothing whose factors may be taken one by one, and gain by it"
    assert factorized(operator(SQUARES, equation), "y") == expected


def test_a_strict_operator_keeps_its_sums_of_floats_and_not_those_of_integers() -> None:
    for case in ("a chain of matrices", "shortest paths"):
        program = replace(_equation(case)[0], mode="strict")
        assert all(directive.name != "factorize" for directive in derive(program, MACHINE).directives)
        with pytest.raises(CompileError, match="`y` cannot be factorized"):
            apply(program, Schedule("f").factorize("y"))
    for case in ("integers, whatever wraps", "widest paths", "whether there is a path"):
        assert isinstance(factorized(replace(_equation(case)[0], mode="strict"), "y"), Factorized)


@pytest.mark.parametrize(("where", "range_of_k", "kept"), [("", "0..K", True), (" where K >= 1", "0..K", False), ("", "0..99", False)])
def test_a_strict_operator_keeps_maxima_of_minima_of_floats_that_may_be_of_nothing(where: str, range_of_k: str, kept: bool) -> None:
    signature = f"u: f32[I], v: f32[{range_of_k[3:]}]) -> (y: f32[I]){where}"
    program = replace(operator(signature, f"y[i] = max(k in {range_of_k}) min(u[i], v[k])"), mode="strict")
    assert isinstance(factorized(program, "y"), str) == kept


def test_a_chain_begins_where_that_leaves_least() -> None:
    program = operator(CHAIN.replace("{}", "f32"), CASES["a chain of matrices"][2], {"I": 50, "A": 60, "B": 70, "C": 80, "J": 1})
    made = factorized(program, "y")
    assert not isinstance(made, str)
    assert [d.tensors[0].name for d in made.program.definitions] == ["y.sum", "y.sum_1", "y"]
    assert [len(d.axes) for d in made.program.definitions[:2]] == [2, 2]
    assert made.after < 3 * (60 * 70 + 70 * 80 + 80 * 50)


def test_a_product_of_matrices_may_read_a_tensor_of_all_pairs() -> None:
    sizes = {"I": 20, "A": 8, "B": 4, "J": 8}
    _, params, equation, _ = CASES["two matrices one after the other"]
    program = operator(params.replace("{}", "f32"), equation, sizes)
    made = factorized(program, "y")
    assert not isinstance(made, str)
    assert [d.tensors[0].name for d in made.program.definitions] == ["y.factor", "y"], show(made.program)
    assert_same(program, proven(program, Schedule(program.name).factorize("y")), {})


def test_short_sums_stay_as_they_are() -> None:
    program = operator(CHAIN.replace("{}", "f32"), CASES["a chain of matrices"][2], {"I": 2, "A": 2, "B": 2, "C": 2, "J": 2})
    assert all(directive.name != "factorize" for directive in derive(program, MACHINE).directives)


def test_eight_factors_of_one_index_are_one_product() -> None:
    order = FactorOrder((1,) * 8, (100,), 0, 1, matrices=True, most=100)
    assert order.best().reduced == 0
    assert order.best().cost == order.as_written


def _drawn(seed: int) -> Program:
    """Return an equation that sums random factors, repeated indices and all."""
    random = np.random.default_rng(seed)
    names = "abcde"
    factors = ["".join(random.permutation(list(names))[: random.integers(1, 4)]) for _ in range(random.integers(2, 6))]
    used = sorted({*"".join(factors)})
    kept = [name for name in used if random.random() < 0.4]
    reduced = [name for name in used if name not in kept]
    extents = {name: int(random.integers(2, 6)) for name in used}
    params = ", ".join(f"x{k}: i32[{', '.join(str(extents[name]) for name in factor)}]" for k, factor in enumerate(factors))
    product = " * ".join(f"x{k}[{', '.join(factor)}]" for k, factor in enumerate(factors))
    result = f"i32[{', '.join(str(extents[name]) for name in kept)}]" if kept else "i32"
    left = f"y[{', '.join(kept)}]" if kept else "y"
    return operator(f"{params}) -> (y: {result})", f"{left} = " + (f"sum({', '.join(reduced)}) {product}" if reduced else product))


@pytest.mark.parametrize("seed", range(0, 60, 20))
def test_random_sums_of_products_are_the_same_numbers(seed: int) -> None:
    for at in range(seed, seed + 20):
        program = _drawn(at)
        made = factorized(program, "y")
        if isinstance(made, Factorized):
            random = np.random.default_rng(at)
            arrays = {p.name: random.integers(-9, 9, shape_of(p, {})).astype(np.int32) for p in program.params}
            np.testing.assert_array_equal(interpret(made.program, {}, arrays)["y"], interpret(program, {}, arrays)["y"])


def test_a_factor_that_an_inner_loop_does_not_change_costs_nothing_there() -> None:
    program = operator("x: f32[N], a: f32[N, N]) -> (y: f32[])", "y[] = sum(i, j) x[i] * a[i, j] * x[j]", {"N": 300})
    assert all(directive.name != "factorize" for directive in derive(program, MACHINE).directives)
