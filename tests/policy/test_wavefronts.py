"""Wavefronts derived for recurrences of which every loop carries dependences: directives to read, and results bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_programs import argument, assert_same, operator

import tensorlang as tl
from codegen.loops.printer import show as show_loops
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove

WIDE = Machine(target="cpu", threads=1)
NARROW = Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=2)
ALIGNMENT = """
    h[i, j] = max(s[i, j], max(h[i - 1, j - 1 | 0] + s[i, j], max(h[i - 1, j | 0], h[i, j - 1 | 0]) - 2)) for i in 0..M, j in 0..N"""
SWEEPS = """
    u[0, i, j] = a[i, j]
    u[t, i, j] = u[t - 1, i, j] for t in 1..9, (i == 0 or j == 0 or i == N - 1 or j == N - 1)
    u[t, i, j] = (u[t, i - 1, j + 1] + u[t, i - 1, j] + u[t, i, j - 1] + u[t - 1, i, j + 1] + u[t - 1, i + 1, j]) / 5.0
        for t in 1..9, i in 1..N-1, j in 1..N-1
    y[i, j]    = u[8, i, j]"""


def directives(program: Program, machine: Machine = WIDE) -> list[str]:
    return [show(d) for d in derive(program, machine).directives]


def test_rows_of_a_result_run_together_each_behind_the_one_before() -> None:
    found = directives(operator("s: i32[M, N]) -> (h: i32[M, N])", ALIGNMENT))
    assert found[1:] == ["skew h.j by h.i_t", "order h.i_o, h.j, h.i_t", "unroll h.i_t"]
    assert found[0].startswith("split h.i by ")


def test_lanes_run_along_the_diagonals_of_a_tensor_that_nobody_outside_sees() -> None:
    found = directives(operator("s: f32[M, N]) -> (y: f32)", f"{ALIGNMENT}\n    y = h[M - 1, N - 1]", {"M": 100, "N": 90}))
    assert [d for d in found if d.startswith(("skew", "layout", "vectorize"))] == [
        "skew h.i by h.j",
        "vectorize h.j_v",
        "layout h as [(j + i) % 4, j]",
    ]


@pytest.mark.parametrize(("columns", "rows"), [(3, 3), (5, 5), (40, 0)])
def test_few_points_of_a_diagonal_run_together_as_rows_since_each_waits_for_the_diagonal_before(columns: int, rows: int) -> None:
    signature, body = "s: f32[M, N]) -> (y: f32)", f"{ALIGNMENT}\n    y = h[M - 1, N - 1]"
    program = operator(signature, body, {"M": columns, "N": 400})
    found = directives(program)
    assert [d for d in found if d.startswith("unroll")] == (["unroll h.i_t"] if rows else [])
    assert (f"split h.i by {rows} -> i_o, i_t" in found) == bool(rows)
    assert any(d.startswith("vectorize h") for d in found) != bool(rows)


def test_all_diagonals_are_kept_of_a_tensor_of_which_others_read_more_than_its_last_ones() -> None:
    for end in ("sum(j in 0..N) h[M - 1, j]", "max(i in 0..M) h[i, N - 1]", "h[0, 0]"):
        found = directives(operator("s: f32[M, N]) -> (y: f32) where M >= 1, N >= 1", f"{ALIGNMENT}\n    y = {end}", {"M": 100, "N": 90}))
        assert "layout h as [j + i, j]" in found


BORDERS = """
    h[0, 0] = 0
    h[i, 0] = h[i - 1, 0] - 2 for i in 1..M+1
    h[0, j] = h[0, j - 1] - 3 for j in 1..N+1
    h[i, j] = max(h[i - 1, j - 1] + s[i - 1, j - 1], max(h[i - 1, j], h[i, j - 1]) - 2) for i in 1..M+1, j in 1..N+1
    y = h[M, N]"""


GAPS = """
    e[i, j] = max(e[i, j - 1 | -99] - 1, h[i, j - 1 | 0] - 3)                                    for i in 0..M, j in 0..N
    g[i, j] = max(g[i - 1, j | -99] - 1, h[i - 1, j | 0] - 3)                                    for i in 0..M, j in 0..N
    h[i, j] = max(max(i32(0), h[i - 1, j - 1 | 0] + (if a[i] == b[j] then 3 else -2)), max(e[i, j], g[i, j])) for i in 0..M, j in 0..N"""


@pytest.mark.parametrize("machine", [WIDE, Machine(target="cpu", threads=2)], ids=["one thread", "two threads"])
def test_tensors_that_need_each_other_run_along_diagonals_together(machine: Machine) -> None:
    sizes = {"M": 41, "N": 38}
    program = operator("a: i32[M], b: i32[N]) -> (y: i32)", f"{GAPS}\n    y = max(i, j, from 0) h[i, j]", sizes)
    found = derive(program, machine)
    said = [show(d) for d in found.directives]
    assert said[0].startswith("together ") and "skew g.j by g.i" in said
    assert {"layout g as [(i + j) % 2, i]", "layout e as [(i + j) % 2, i]", "layout h as [(i + j) % 4, i]"} <= {*said}
    assert_same(program, proven(program, found), sizes)


BORDERED_GAPS = """
    e[i, 0] = i32(-99) for i in 0..M+1
    e[0, j] = i32(-99) for j in 1..N+1
    g[i, 0] = i32(-99) for i in 0..M+1
    g[0, j] = i32(-99) for j in 1..N+1
    h[i, 0] = i32(0) for i in 0..M+1
    h[0, j] = i32(0) for j in 1..N+1
    e[i, j] = max(e[i, j - 1] - 1, h[i, j - 1] - 3) for i in 1..M+1, j in 1..N+1
    g[i, j] = max(g[i - 1, j] - 1, h[i - 1, j] - 3) for i in 1..M+1, j in 1..N+1
    h[i, j] = max(max(0, h[i - 1, j - 1] + (if a[i - 1] == b[j - 1] then 3 else -2)), max(e[i, j], g[i, j])) for i in 1..M+1, j in 1..N+1
    y = h[M, N]"""


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
def test_borders_of_tensors_that_share_diagonals_have_loops_of_their_own_along_each(machine: Machine) -> None:
    sizes = {"M": 41, "N": 38}
    program = operator("a: i32[M], b: i32[N]) -> (y: i32)", BORDERED_GAPS, sizes)
    found = derive(program, machine)
    assert any(show(d).startswith("distribute g at g.") for d in found.directives)
    assert_same(program, proven(program, found), sizes)


def test_tensors_with_borders_read_each_other_along_diagonals_as_neighbours() -> None:
    program = operator("a: i32[M], b: i32[N]) -> (y: i32)", BORDERED_GAPS, {"M": 300, "N": 300})
    found = {*directives(program)}
    assert {"skew g.i by g.j", "vectorize g.j_v"} <= found and not any(d.startswith("unroll") for d in found)


def test_a_result_among_them_runs_in_rows_each_behind_the_one_before() -> None:
    sizes = {"M": 41, "N": 38}
    program = operator("a: f32[M], b: f32[N]) -> (h: f32[M, N])", GAPS.replace("i32(0)", "f32(0)"), sizes)
    found = derive(program, NARROW)
    assert any(show(d).startswith("skew g.j by g.i_t") for d in found.directives)
    assert_same(program, proven(program, found), sizes)


BATCH = """
    p[b, 0]     = s[b, 0] for b in 0..M
    q[b, 0]     = 1 for b in 0..M
    q[b, t + 1] = q[b, t] * 3 + p[b, t] for b in 0..M, t in 0..N
    p[b, t + 1] = p[b, t] - s[b, t] * q[b, t] for b in 0..M, t in 0..N
    y[b]        = p[b, N] + q[b, N]"""


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("rows", [5, 37, 64])
def test_points_that_do_not_need_each_other_are_lanes_of_a_recurrence_of_several_tensors(machine: Machine, rows: int) -> None:
    sizes = {"M": rows, "N": 23}
    program = operator("s: i32[M, N]) -> (y: i32[M]) where N >= 1", BATCH, sizes)
    found = derive(program, machine)
    lanes = any(d.name == "vectorize" and show(d).endswith(".b_v") and not show(d).startswith("vectorize y") for d in found.directives)
    assert lanes == (rows >= machine.vector_bytes // 4)
    assert_same(program, proven(program, found), sizes)


@pytest.mark.parametrize("shape", [(40, 37), (64, 64), (33, 70)])
def test_borders_run_along_the_diagonals_that_are_kept(shape: tuple[int, int]) -> None:
    sizes = dict(zip("MN", shape, strict=True))
    program = operator("s: i32[M, N]) -> (y: i32)", BORDERS, sizes)
    found = derive(program, NARROW)
    said = [show(d) for d in found.directives]
    assert "distribute h at h.j_o" in said and "layout h as [(j + i) % 4, j]" in said
    assert_same(program, proven(program, found), sizes)


def test_a_sweep_in_place_keeps_one_step_by_diagonals_and_its_boundary_apart() -> None:
    program = operator("a: f64[N, N]) -> (y: f64[N, N]) where N >= 3", SWEEPS, {"N": 20})
    assert {"layout u as [t % 1, 2*i + j, i]", "distribute u at u.j"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, WIDE)), {"N": 20})


def test_pieces_that_need_each_other_within_a_sweep_run_along_its_diagonals_together() -> None:
    body = SWEEPS.replace("    u[t, i, j] = u[t - 1, i, j] for t in 1..9, (i == 0 or j == 0 or i == N - 1 or j == N - 1)\n", "")
    body = body.replace("    y[i, j]    = ", "    u[t, i, j] = u[t - 1, i, j] otherwise\n    y[i, j]    = ")
    program = operator("a: f64[N, N]) -> (y: f64[N, N]) where N >= 3", body, {"N": 20})
    found = directives(program)
    assert "layout u as [t % 1, 2*i + j, i]" in found
    assert not any(d.startswith("distribute") for d in found)
    assert_same(program, proven(program, derive(program, WIDE)), {"N": 20})


def test_a_tensor_that_the_cache_does_not_hold_or_whose_diagonals_are_mostly_empty_stays_in_rows() -> None:
    body = f"{ALIGNMENT}\n    y = sum(j in 0..N) h[M - 1, j]"
    for sizes in ({"M": 20_000, "N": 20_000}, {"M": 4, "N": 4000}):
        found = directives(operator("s: i32[M, N]) -> (y: i32)", body, sizes))
        assert not any(d.startswith("layout h as") for d in found)
    assert "unroll h.i_t" in directives(operator("s: i32[M, N]) -> (y: i32)", body, {"M": 20_000, "N": 20_000}))
    small = Machine(target="cpu", threads=1, cache_bytes=1 << 16)
    program = operator("a: f64[N, N]) -> (y: f64[N, N]) where N >= 3", SWEEPS, {"N": 200})
    assert not any(d.startswith("layout") for d in directives(program, small))
    assert any(d.startswith("unroll u.i") for d in directives(program, small))


@pytest.mark.parametrize("back", [1, 2])
def test_steps_run_along_diagonals_though_elements_need_but_every_second_one_before_them(back: int) -> None:
    body = f"""
    u[0, i] = a[i]
    u[t + 1, i] = 0.3 * u[t + 1, i - {back}] + 0.3 * u[t, i + 2] + 0.2 * u[t, i]   for t in 0..20, i in 2..N-2
    u[t + 1, i] = u[t, i]   otherwise
    y[i] = u[20, i]"""
    program = operator("a: f64[N]) -> (y: f64[N]) where N >= 4", body, {"N": 3000})
    assert any(d.startswith("skew") for d in directives(program))
    small = operator("a: f64[N]) -> (y: f64[N]) where N >= 4", body, {"N": 40})
    assert_same(small, proven(small, derive(small, WIDE)), {})


def test_a_loop_without_dependences_is_taken_as_it_is() -> None:
    found = directives(operator("x: f32[M, N]) -> (y: f32[M, N])", "y[i, j] = x[i, j] + y[i, j - 1 | 0]"))
    assert not any(d.startswith("skew") for d in found)


COLUMNS = """
    h[i, j] = max(h[i, j - 1], h[i - 1, j - 1] + 1) + s[i, j] for i in 1..M, j in 1..N
    h[i, j] = s[i, j] otherwise"""


def test_rows_that_need_but_earlier_columns_of_each_other_run_beside_each_other_where_the_first_cache_holds_no_column() -> None:
    found = directives(operator("s: i32[M, N]) -> (h: i32[M, N])", COLUMNS, {"M": 700, "N": 900}))
    assert found[:3] == ["split h.i by 8 -> i_o, i_t", "order h.i_o, h.j, h.i_t", "unroll h.i_t"]
    near = directives(operator("s: i32[M, N]) -> (h: i32[M, N])", COLUMNS, {"M": 30, "N": 40}))
    assert "order h.j, h.i_o, h.i_t" in near


def test_dependences_for_which_no_skew_is_enough_are_left_in_order() -> None:
    found = directives(operator("x: f32[M, N]) -> (y: f32[M, N])", "y[i, j] = x[i, j] + y[i - 1, j + 9 | 0] + y[i, j - 1 | 0]"))
    assert not any(d.startswith("skew") for d in found)


steps = st.sampled_from(((0, -1), (-1, -1), (-1, 0), (-1, 1), (-1, 2), (-2, 1), (0, -2)))


@st.composite
def recurrences(draw: st.DrawFn) -> tuple[str, str]:
    """Return a signature and equations of which all loops carry dependences, over (i, j) or, in steps, over (t, i, j)."""
    in_steps, local = draw(st.booleans()), draw(st.booleans())
    far = draw(st.lists(steps, min_size=1, max_size=3))
    modes = st.sampled_from(("0", "3"))
    t = "t, " if in_steps else ""
    near = [(0, -1), draw(st.sampled_from(((-1, 0), (-1, 1), (-1, -1))))]
    terms = [f"h[{t}i + {di}, j + {dj} | {draw(modes)}]" for di, dj in (*near, *far)]
    terms += [f"h[t - 1, i + {draw(st.integers(-2, 2))}, j + {draw(st.integers(-2, 2))} | 1]"] * in_steps
    terms += draw(st.sampled_from((["r[i]"], ["c[j]"], ["r[i] * c[j]"])))
    value, where = " + ".join(terms).replace("+ -", "- "), "t in 1..T, i in 0..M, j in 0..N" if in_steps else "i in 0..M, j in 0..N"
    edge = draw(st.sampled_from(("", "i >= 1", "j >= 1", "i < M - 1")))
    rest = {"i >= 1": "i == 0", "j >= 1": "j == 0", "i < M - 1": "i == M - 1"}.get(edge, "")
    body = "    h[0, i, j] = r[i] - c[j] for i in 0..M, j in 0..N\n" if in_steps else ""
    body += f"    h[{t}i, j] = r[i] + c[j] for {where}, {rest}\n" if rest else ""
    body += f"    h[{t}i, j] = {value} for {where}{f', {edge}' if edge else ''}"
    if local:
        body += f"\n    y[i, j] = h[{'T - 1, ' if in_steps else ''}i, j] for i in 0..M, j in 0..N"
    name = "y" if local else "h"
    axes = "T, M, N" if in_steps and not local else "M, N"
    return f"r: i32[M], c: i32[N], s: i32[T]) -> ({name}: i32[{axes}]) where T >= 1, M >= 3, N >= 3", body


@settings(max_examples=12, deadline=None)
@given(recurrences(), st.sampled_from((WIDE, NARROW)), st.booleans())
def test_whatever_is_derived_for_a_recurrence_is_proven_and_right(equations: tuple[str, str], machine: Machine, symbolic: bool) -> None:
    small, large = {"T": 1, "M": 3, "N": 3}, {"T": 3, "M": 11, "N": 18}
    for known, tried in ((None, (small, large)),) if symbolic else ((small, (small,)), (large, (large,))):
        program = operator(*equations, known)
        prove(program)
        plan = proven(program, derive(program, machine))
        for sizes in tried:
            assert_same(program, plan, sizes)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i8", "u64"])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (1, 40), (40, 1), (7, 9), (33, 17), (64, 64)])
def test_paths_are_those_of_numpy_in_every_type_and_shape(dtype: str, shape: tuple[int, int]) -> None:
    body = """
    p[i, j] = x[i, j] + min(p[i - 1, j], p[i, j - 1])   for i in 1..M, j in 1..N
    p[i, j] = x[i, j]                                   otherwise
    y[i]    = p[i, N - 1]"""
    numpy = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i8": np.int8, "u64": np.uint64}[dtype]
    x = np.random.default_rng(0).integers(0, 3, shape).astype(numpy)
    expected = x.copy()
    with np.errstate(over="ignore"):
        for i in range(1, shape[0]):
            for j in range(1, shape[1]):
                expected[i, j] = x[i, j] + min(expected[i - 1, j], expected[i, j - 1])
    found = tl.parse(f"op f(x: {dtype}[M, N]) -> (y: {dtype}[M]) where N >= 1 {{{body}\n}}").f(x)
    np.testing.assert_array_equal(found, expected[:, -1])


ROWS_IN_PLACE = """
    u[0, i, j] = a[i, j]
    u[t, i, j] = u[t, i - 1, j - 1] + u[t, i - 1, j + 1] - u[t, i, j - 1] + u[t - 1, i + 1, j] + u[t - 1, i, j + 1]
        for t in 1..T, i in 1..N-1, j in 1..N-1
    u[t, i, j] = u[t - 1, i, j] otherwise
    y[i, j]    = u[T - 1, i, j]"""
UNCACHED = [Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=t, l2_bytes=512, cache_bytes=512) for t in (1, 2)]


@pytest.mark.parametrize("n", [37, 40])
def test_threads_share_rows_of_several_sweeps_along_diagonals(n: int) -> None:
    sizes = {"N": n, "T": 11}
    program = operator("a: i32[N, N], s: i32[T]) -> (y: i32[N, N]) where T >= 1, N >= 3", ROWS_IN_PLACE, sizes)
    for machine in UNCACHED:
        schedule = derive(program, machine)
        found = [show(d) for d in schedule.directives]
        shared = {"skew u.i_o by 2 * u.t", "parallel u.t"}
        assert (shared <= {*found}) == (machine.threads > 1) and "fold u at t by 1" in found
        assert_same(program, proven(program, schedule), sizes)


def test_few_sweeps_are_not_shared() -> None:
    sizes = {"N": 40, "T": 4}
    program = operator("a: i32[N, N], s: i32[T]) -> (y: i32[N, N]) where T >= 1, N >= 3", ROWS_IN_PLACE, sizes)
    assert not any(d.startswith(("parallel u", "skew u.i_o")) for d in directives(program, UNCACHED[1]))


def test_threads_share_rows_of_which_each_is_a_recurrence_of_its_own() -> None:
    body = "y[i, j] = x[i, j] + 3 * y[i, j - 1 | 0] for i in 0..M, j in 0..N"
    sizes = {"M": 160, "N": 130}
    program = operator("x: i32[M, N]) -> (y: i32[M, N])", body, sizes)
    schedule = derive(program, NARROW)
    assert "parallel y.i_o" in [show(d) for d in schedule.directives]
    assert_same(program, proven(program, schedule), sizes)


SUMMED = {
    "the greatest of all": ("y: f32", "y = max(i, j, from 0) h[i, j]"),
    "the greatest and the sum of each row": ("y: f32[M], z: f32[M]", "y[i] = max(j, from 0) h[i, j]\n z[i] = sum(j) h[i, j]"),
    "the greatest of each column": ("y: f32[N]", "y[j] = max(i, from 0) h[i, j]"),
    "sums, and one element": ("y: f32, z: f32", "y = sum(i, j) h[i, j] * s[i, j]\n z = h[M - 1, N - 1]"),
    "two of them": ("y: f32, z: f32", "y = sum(i, j) h[i, j]\n z = max(i, j, from 0) h[i, j]"),
}


@pytest.mark.parametrize("machine", (WIDE, NARROW), ids=("one thread", "two threads"))
@pytest.mark.parametrize(("result", "equations"), SUMMED.values(), ids=SUMMED)
def test_what_adds_up_all_elements_takes_each_where_it_is_made_and_a_few_diagonals_are_kept(
    result: str, equations: str, machine: Machine
) -> None:
    sizes = {"M": 61, "N": 50}
    program = operator(f"s: f32[M, N]) -> ({result}) where M >= 1, N >= 1", f"{ALIGNMENT}\n {equations}", sizes)
    found = directives(program, machine)
    assert "together h, y -> i, j" in found
    assert "layout h as [(j + i) % 4, j]" in found
    assert_same(program, proven(program, derive(program, machine)), {})


def test_sums_that_take_an_element_twice_or_in_order_run_after_the_recurrence() -> None:
    for equation in ("y = sum(i, j) h[i, j] * h[j, i]", "y = sum(i, j in 0..N - 1) h[i, j + 1]", "y = sum(i, j) h[i, j]"):
        mode = "strict " if equation.endswith("h[i, j]") else ""
        module = load_module(
            parse(Source("f.tl", f"{mode}op f(s: f32[N, N]) -> (y: f32) where N >= 2 {{{ALIGNMENT.replace('M', 'N')}\n {equation}\n}}"))
        )
        program = instantiate(module, "f", [argument(p, {"N": 50}) for p in module.operators["f"].params])
        assert not any(d.startswith("together") for d in directives(program)), equation


COUNTS = """
    p[0, n] = if n == 0 then i32(x[n]) else i32(0) for n in 0..N
    p[k, n] = p[k - 1, n] + p[k, n - k | 0] for k in 1..K, n in 0..N
    y[n]    = p[K - 1, n]"""


@pytest.mark.parametrize("back", ["n - k", "n - 3*k"])
def test_rows_whose_elements_need_those_far_back_of_their_own_run_one_after_the_other(back: str) -> None:
    program = operator("x: i32[N], g: i32[K]) -> (y: i32[N])", COUNTS.replace("n - k", back), {"N": 70, "K": 40})
    assert directives(program, NARROW)[:2] == ["distribute p", "fold p at k by 1"]
    assert ">= 4_i64" in show_loops(loops_of(proven(program, derive(program, NARROW)), "f", vector_bytes=16).function)
    assert_same(program, proven(program, derive(program, NARROW)), {})


@pytest.mark.parametrize("near", ["n - 1", "n - k // 30 - 1"])
def test_rows_whose_elements_need_those_just_before_run_along_diagonals(near: str) -> None:
    body = COUNTS.replace("n - k", near).replace("p[k - 1, n] +", "p[k - 1, n] -")
    program = operator("x: i32[N], g: i32[K]) -> (y: i32[N])", body, {"N": 70, "K": 40})
    assert any(d.startswith("skew") for d in directives(program, NARROW))


@pytest.mark.parametrize("machine", [WIDE, NARROW])
def test_rows_that_need_later_ones_do_not_run_some_at_a_time(machine: Machine) -> None:
    body = "h[i, j] = h[i, j - 1 | 0] - h[i - 1, j | 0] - h[i + 1, j - 2 | 0] + x[i, j]"
    program = operator("x: i32[M, N]) -> (h: i32[M, N])", body, {"M": 21, "N": 23})
    assert_same(program, proven(program, derive(program, machine)), {})


FIELDS = """
    u[0, i]     = a[i]
    h[0, i]     = 0                                     for i in 0..N-1
    h[t + 1, i] = h[t, i] + 2 * (u[t, i + 1] - u[t, i]) for t in 0..T, i in 0..N-1
    u[t + 1, i] = u[t, i] + h[t + 1, i] - h[t + 1, i - 1] for t in 0..T, i in 1..N-1
    u[t + 1, i] = 0                                     otherwise
    y[i]        = u[T, i]"""


@pytest.mark.parametrize("machine", [WIDE, NARROW])
def test_fields_whose_points_need_none_of_their_own_step_run_step_by_step_in_lanes(machine: Machine) -> None:
    program = operator("a: i32[N]) -> (y: i32[N]) where N >= 3", FIELDS.replace("T", "9"), {"N": 40})
    schedule = derive(program, machine)
    found = [show(d) for d in schedule.directives]
    assert {"vectorize u.i_v", "vectorize h.i_v"} <= {*found}
    assert not any(d.startswith("skew") for d in found)
    assert_same(program, proven(program, schedule), {"N": 40})
