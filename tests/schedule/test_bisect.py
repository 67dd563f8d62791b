"""Terms that ascending data leave out, found by binary search: which reductions, the same values bit for bit whatever data are, and what is
refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduled_programs import operator

import tensorlang as tl
from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import shape_of, tensors

MACHINE = Machine(target="cpu", threads=1)
GIVEN = "t: f32[N], u: f32[N], v: f32[N], q: f32[M], k: i32[N], g: i32[M]"
SETTLED = {
    "how many": ("i64", "y[i] = sum(j, t[j] <= q[i]) i64(1)"),
    "how many, as truths that are added": ("i32", "y[i] = sum(j) i32(q[i] > t[j])"),
    "how many, as floats": ("f32", "y[i] = sum(j) f32(t[j] < q[i])"),
    "how many times a number, from another": ("i8", "y[i] = sum(j, t[j] >= q[i], from 3) i8(100)"),
    "the last": ("f32", "y[i] = last(j, t[j] <= q[i], from -1) v[j] * q[i]"),
    "the first place": ("i64", "y[i] = min(j, t[j] >= q[i], from N) j"),
    "the last place": ("i64", "y[i] = max(j, t[j] < q[i]) j"),
    "whether there is one": ("bool", "y[i] = any(j) (k[j] == g[i])"),
    "how many are equal": ("i32", "y[i] = 2 * sum(j, k[j] == g[i]) i32(1)"),
    "between two numbers": ("i64", "y[i] = sum(j, q[i] <= t[j], t[j] < q[i] + 1) i64(1)"),
    "up to the own place": ("i64", "y[i] = sum(j in 0..min(i + 1, N), t[j] > q[i]) i64(1)"),
    "a condition on places": ("f32", "y[i] = last(j, j <= i, j > i - 5, t[j] <= q[i], from 0) v[j]"),
}
WINDOWS = {
    "a window": ("f32", "y[i] = sum(j, t[j] <= q[i], t[j] > q[i] - 0.5) v[j]"),
    "added where a condition holds": ("f32", "y[i] = sum(j) (if t[j] <= q[i] and t[j] > q[i] - 0.5 then v[j] else 0)"),
    "a window with other conditions": ("f32", "y[i] = max(j, j != i, t[j] <= q[i], v[j] > 0, t[j] > q[i] - 0.5) v[j]"),
    "intervals": ("f32", "y[i] = sum(j, t[j] <= q[i], q[i] < u[j]) v[j]"),
    "those of an equal key": ("f32", "y[i] = 1 + sum(j, k[j] == g[i]) v[j]"),
    "keys that are computed": ("f32", "y[i] = sum(j, t[j] * 2 <= q[i], u[j] + t[j] > q[i]) v[j]"),
    "a condition on data and one on places": ("f32", "y[i] = sum(j, i >= j, t[j] > q[i]) v[j]"),
    "a range of its own": ("f32", "y[i] = sum(j in 0..min(i, N), t[j] > q[i]) v[j]"),
    "two at once": ("f32", "y[i], z[i] = first_max(j, k[j] == g[i]) (v[j], j)"),
    "places that data say": ("f32", "y[i] = sum(j, k[j] <= i, i < k[j] + 5) v[max(0, min(N - 1, i64(k[j])))]"),
    "conditions that keep an index inside": ("f32", "y[i] = sum(j, t[j] > q[i], 0 <= k[j], k[j] < N, v[k[j]] > 0) v[j]"),
    "the last, at an index that they keep inside": ("f32", "y[i] = last(j, t[j] <= q[i], 0 <= k[j], k[j] < N, from 0) v[k[j]]"),
    "numbers below 0": ("f32", "y[i] = sum(j, t[j] > q[i]) f32(-1)"),
    "an index": ("f32", "y[i] = sum(j, k[j] <= i32(i), i32(i) < k[j] + 2) v[j]"),
}
OTHERS = {
    "is part of a recurrence": ("f32", "y[i] = sum(j in 0..i, t[j] <= q[i]) y[j]"),
    "no condition compares": ("f32", "y[i] = sum(j, t[j] != q[i]) v[j]"),
    "no condition compares what": ("f32", "y[i] = sum(j, t[N - 1 - j] <= q[i]) v[j]"),
    "no condition compares what is read": ("f32", "y[i] = sum(j, 0 <= g[i] and g[i] < M and t[j] <= q[g[i]]) v[j]"),
    "no condition compares what is read along": ("bool", "y[i] = any(j) ((t[j] > 0) == (q[i] > 0))"),
    "no reduction of `y` is over `j`": ("f32", "y[i] = sum(n) v[n] * q[i]"),
}


def case(dtype: str, equation: str, n: int = 13, m: int = 17) -> Program:
    results = f"y: {dtype}[M]" + (", z: i64[M]" if "z[i]" in equation else "")
    program = operator(f"{GIVEN}) -> ({results})", equation, {"N": n, "M": m})
    return replace(program, mode="strict")


def data(program: Program, seed: int) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yield numbers that ascend, with ties and infinities; that ascend but for one; with a NaN among them; and in any order."""
    rng = np.random.default_rng(seed)
    values = {t.name: rng.integers(-3, 9, shape_of(t, {})) / (1 if t.dtype.is_integer else 2) for t in program.params}
    values = {t.name: values[t.name].astype(t.dtype.numpy) for t in program.params}
    up = {**values, **{name: np.sort(values[name]) for name in "tuk"}}
    up["t"][-1], up["q"][:3] = np.inf, (np.nan, np.inf, -np.inf)
    yield up
    yield {**up, "t": np.concatenate([up["t"][1:], up["t"][:1]])}
    yield {**up, "t": np.where(np.arange(len(up["t"])) == len(up["t"]) // 2, np.float32(np.nan), up["t"])}
    yield {**values, "u": up["u"]}


@pytest.mark.parametrize(("dtype", "equation"), [*SETTLED.values(), *WINDOWS.values()], ids=[*SETTLED, *WINDOWS])
def test_terms_are_found_where_data_ascend_and_results_are_the_same_in_any_case(dtype: str, equation: str) -> None:
    for n in (13, 2):
        program = case(dtype, equation, n)
        made = apply(program, Schedule("f").bisect("y.j")).program
        looks_at_all_alone = (dtype, equation) in SETTLED.values()
        assert any(t.name == "y.found" for t in tensors(made)) != looks_at_all_alone
        for values in data(program, n):
            want, got = interpret(program, {}, values), interpret(made, {}, values)
            assert all(np.array_equal(want[r], got[r], equal_nan=True) for r in program.results), values
            floats = [r for r in program.results if want[r].dtype.kind == "f"]
            assert all(np.array_equal(np.signbit(want[r]), np.signbit(got[r])) for r in floats), values


@pytest.mark.parametrize(("why", "of"), OTHERS.items(), ids=OTHERS)
def test_what_compares_nothing_that_may_ascend_is_refused(why: str, of: tuple[str, str]) -> None:
    with pytest.raises(CompileError, match=f"`y.j` cannot be bisected: .*{why}"):
        apply(case(*of), Schedule("f").bisect("y.j"))


@pytest.mark.parametrize(
    ("of", "n", "m", "bisects"),
    [
        (SETTLED["the last"], 2000, 100, True),
        (WINDOWS["intervals"], 2000, 100, True),
        (SETTLED["the last"], 100, 2000, False),
        (SETTLED["the last"], 2000, 3, False),
        (("f32", "y[i] = sum(j, t[j] <= q[i]) v[j]"), 2000, 100, False),
        (("f32", "y[i] = sum(j, k[j] == i) v[j]"), 2000, 100, False),
        (WINDOWS["an index"], 2000, 100, False),
    ],
    ids=["a place", "a window", "few terms", "few searches", "half of all on the average", "named elements", "ranges of elements"],
)
def test_searches_are_derived_where_they_take_less_than_to_look_at_all_terms(of: tuple[str, str], n: int, m: int, bisects: bool) -> None:
    program = case(*of, n, m)
    assert ("bisect y.j" in map(show, derive(program, MACHINE).directives)) == bisects


def test_counts_that_run_are_not_searched_for() -> None:
    program = replace(case("i64", "y[i] = sum(j in 0..i, t[j] > 0) i64(1)", 2000, 2000), mode="reduce")
    assert [show(d) for d in derive(program, MACHINE).directives][:1] == ["scan y.i"]


def test_searches_are_shared_by_tensors_that_ask_for_the_same() -> None:
    condition = "t[j] <= q[i], t[j] > q[i] - 1"
    results = "y: f32[M], z: f32[M]"
    equations = f"y[i] = sum(j, {condition}) v[j]\n z[i] = max(j, {condition}) v[j]"
    made = apply(operator(f"{GIVEN}) -> ({results})", equations, {"N": 9, "M": 5}), Schedule("f").bisect("y.j", "z.j")).program
    assert sum(".place" in t.name for t in tensors(made)) == 2


@pytest.mark.parametrize("sorts", [True, False])
def test_kernels_that_search_agree_with_those_that_look_at_all(sorts: bool) -> None:
    text = """
        op f(t: f32[N], v: f32[N], q: f32[M], k: u8[N]) -> (y: f32[M], last: f32[M], many: i32[M]) {
            y[i]    = sum(j, t[j] <= q[i], t[j] > q[i] - 0.01) v[j]
            last[i] = last(j, t[j] <= q[i], from 0) v[j]
            many[i] = sum(j) i32(t[j] <= q[i])
        }"""
    rng = np.random.default_rng(0)
    t, v, q = (rng.random(n, np.float32) for n in (1200, 1200, 77))
    t = np.sort(t) if sorts else t
    op = tl.parse(text, threads=1, sizes="static").f
    k = np.zeros(1200, np.uint8)
    assert "bisect" in str(op.explain(t, v, q, k))
    want = interpret(op.program(t, v, q, k), {}, {"t": t, "v": v, "q": q, "k": k})
    for got, name in zip(op(t, v, q, k), ("y", "last", "many"), strict=True):
        np.testing.assert_allclose(got, want[name], rtol=1e-4, atol=1e-4)
