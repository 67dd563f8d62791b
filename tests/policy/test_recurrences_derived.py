"""What is derived for tensors that are defined through themselves: directives to read, and results bit for bit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_programs import argument, assert_same, loops, operator

from codegen.loops.printer import show as show_loops
from tensorlang.artifact import DERIVED_FIRST, DERIVED_PLAIN
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, FaultWarning, Source
from tensorlang.planning import ScheduleRequest, planned
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove

WIDE = Machine(target="cpu", threads=1)
NARROW = Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=2)


def directives(program: Program, machine: Machine = WIDE) -> list[str]:
    return [show(d) for d in derive(program, machine).directives]


STENCIL = """
    u[0, i, j] = a[i, j]
    u[t, i, j] = u[t - 1, i, j] for t in 1..9, (i == 0 or j == 0 or i == N - 1 or j == N - 1)
    u[t, i, j] = u[t - 1, i - 1, j] + u[t - 1, i + 1, j] + u[t - 1, i, j - 1] + u[t - 1, i, j + 1] for t in 1..9, i in 1..N-1, j in 1..N-1
    y[i, j]    = u[8, i, j]"""


def test_the_steps_of_a_stencil_run_in_lanes_with_the_boundary_apart_and_two_of_them_kept() -> None:
    program = operator("a: f32[N, N]) -> (y: f32[N, N]) where N >= 3", STENCIL)
    found = [d for d in directives(program) if "u" in d]
    assert "distribute u at u.i" in found
    assert "fold u at t by 2" in found
    assert any(d.startswith("vectorize u.j") for d in found)


@pytest.mark.parametrize(("machine", "kept", "apart"), [(WIDE, False, False), (WIDE, True, True), (NARROW, False, True)])
def test_fields_in_turn_are_stored_by_one_loop_where_registers_have_masks_unless_some_stay_as_they_were(
    machine: Machine, kept: bool, apart: bool
) -> None:
    body = f"""
    u[0, i, j]     = a[i, j]
    u[t + 1, i, j] = u[t, i - 1, j | 1] + u[t, i, j + 1 | 2]          for t in 0..3, i in 0..N, j in 0..N, (i + j) % 2 == 0
    u[t + 1, i, j] = {"" if kept else "a[j, i] - "}u[t, i, j]                 otherwise
    y[i, j]        = u[3, i, j]"""
    program = operator("a: i32[N, N]) -> (y: i32[N, N])", body, {"N": 37})
    assert ("distribute u at u.i" in directives(program, machine)) == apart
    assert_same(program, proven(program, derive(program, machine)), {})


def test_threads_share_what_lies_between_two_steps_where_that_is_enough() -> None:
    large = operator("a: f32[N, N]) -> (y: f32[N, N]) where N >= 3", STENCIL, {"N": 512})
    small = operator("a: f32[N, N]) -> (y: f32[N, N]) where N >= 3", STENCIL, {"N": 40})
    assert any(d.startswith("parallel u.i") for d in directives(large, Machine(target="cpu", threads=2)))
    assert not any(d.startswith("parallel u") for d in directives(small, Machine(target="cpu", threads=2)))


@pytest.mark.parametrize(("term", "lifted"), [("max(k in 0..5) x[i, j + k]", True), ("x[i, j]", False)])
def test_what_a_recurrence_along_rows_makes_without_itself_runs_in_lanes_along_them(term: str, lifted: bool) -> None:
    body = f"y[i, j] = 0 for i in 0..64, j in 0..1\n y[i, j] = max(y[i, j - 1], {term}) for i in 0..64, j in 1..60"
    program = operator("x: f32[64, 64]) -> (y: f32[64, 60])", body)
    found = directives(program)
    assert ("lift y" in found) == lifted
    assert any(d.startswith("vectorize y.term.j") for d in found) == lifted
    assert_same(program, proven(program, derive(program, WIDE)), {})


@pytest.mark.parametrize(("value", "lifted"), [("0.5 * y[i - 1] + 3 * x[i]", False), ("max(y[i - 1], exp(x[i]))", True)])
def test_what_a_line_makes_without_itself_is_apart_where_that_takes_longer_than_it_waits(value: str, lifted: bool) -> None:
    program = operator("x: f32[64]) -> (y: f32[64])", f"y[i] = x[i] for i in 0..1\n y[i] = {value} for i in 1..64")
    assert ("lift y" in directives(program)) == lifted


SWEEPS = """
    u[0, i, j] = a[i, j]
    v[t, i, 0] = u[t, 0, i]                           for t in 0..8, i in 0..N
    v[t, i, j] = 0.5 * v[t, i, j - 1] + u[t, j, i]    for t in 0..8, i in 0..N, j in 1..N
    u[t + 1, 0, j] = v[t, j, 0]                       for t in 0..8, j in 0..N
    u[t + 1, i, j] = 0.5 * u[t + 1, i - 1, j] + v[t, j, i]    for t in 0..8, i in 1..N, j in 0..N
    y[i, j] = u[8, i, j]"""


def test_threads_share_the_lines_of_each_sweep_between_two_steps() -> None:
    large = operator("a: f32[N, N]) -> (y: f32[N, N]) where N >= 1", SWEEPS, {"N": 512})
    small = operator("a: f32[N, N]) -> (y: f32[N, N]) where N >= 1", SWEEPS, {"N": 40})
    two = Machine(target="cpu", threads=2)
    found = directives(large, two)
    assert any(d.startswith("parallel v.i") for d in found)
    assert any(d.startswith("parallel u.j") for d in found), "lines along j, though rows of j are near in memory"
    assert not any(d.startswith(("parallel u", "parallel v")) for d in directives(small, two))


MANY_STEPS = STENCIL.replace("1..9", "1..33").replace("u[8,", "u[32,")


def test_steps_of_a_stencil_that_no_cache_holds_run_in_tiles_of_several_of_them() -> None:
    program = operator("a: f32[N, N]) -> (y: f32[N, N]) where N >= 3", MANY_STEPS, {"N": 5000})
    found = directives(program)
    assert found[:2] == ["skew u.i by u.t", "tile u (t, i) by (7, 16) -> t_b, i_b, t_s, i_s"]
    assert "order u.t_b, u.i_b, u.t_s, u.i_s, u.j_o, u.j_v" in found
    assert "distribute u at u.i_s" in found
    assert "fold u at t by 2" in found
    threads = directives(program, Machine(target="cpu", threads=2))
    assert threads[1] == "tile u (t, i) by (8, 16) -> t_b, i_b, t_s, i_s"
    assert threads[2:4] == ["skew u.i_b by u.t_b", "parallel u.t_b"]


def test_steps_that_a_cache_holds_or_that_are_too_few_for_threads_run_one_after_the_other() -> None:
    for body, size, threads in ((MANY_STEPS, 500, 1), (STENCIL.replace("1..9", "1..7").replace("u[8,", "u[6,"), 5000, 2)):
        program = operator("a: f32[N, N]) -> (y: f32[N, N]) where N >= 3", body, {"N": size})
        found = directives(program, Machine(target="cpu", threads=threads))
        assert not any(d.startswith("tile u") for d in found)


SMALL_CACHES = [Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=t, l2_bytes=2816, cache_bytes=2816) for t in (1, 2)]


FORWARDS = "u[t - 1, i - 1, j] + u[t - 1, i, j + 1]"
BACKWARDS = "u[t - 1, i + 1, j]"
FAR = "u[t - 1, i - 2, j - 1] - 2 * u[t - 1, i + 2, j]"


@pytest.mark.parametrize("machine", SMALL_CACHES, ids=["one thread", "two threads"])
@pytest.mark.parametrize("reads", [FORWARDS, BACKWARDS, FAR])
def test_tiles_of_steps_are_proven_and_right(machine: Machine, reads: str) -> None:
    body = f"""
    u[0, i, j] = a[i, j]
    u[t, i, j] = u[t - 1, i, j] + i32(t) for t in 1..T, (i < 2 or j < 2 or i >= M - 2 or j >= N - 2)
    u[t, i, j] = {reads} for t in 1..T, i in 2..M-2, j in 2..N-2
    y[i, j]    = u[T - 1, i, j]"""
    sizes = {"M": 19, "N": 21, "T": 9}
    program = operator("a: i32[M, N], s: i32[T]) -> (y: i32[M, N]) where T >= 1, M >= 5, N >= 5", body, sizes)
    schedule = derive(program, machine)
    assert any(d.name == "tile" for d in schedule.directives)
    assert_same(program, proven(program, schedule), sizes)


FIELDS = """
    e[0, i, j]     = a[i, j]
    h[0, i, j]     = b[i, j]
    e[t + 1, i, j] = e[t, i, j] + 2 * h[t, i, j] - h[t, i - 1, j]                     for t in 0..T, i in 1..M, j in 0..N
    e[t + 1, 0, j] = s[t]                                                             for t in 0..T, j in 0..N
    h[t + 1, i, j] = h[t, i, j] - 3 * e[t + 1, i + 1, j] + e[t + 1, i, j + 1]         for t in 0..T, i in 0..M-1, j in 0..N-1
    h[t + 1, i, j] = h[t, i, j]                                                       otherwise
    y[i, j]        = e[T, i, j]
    z[i, j]        = h[T, i, j]"""
ALIKE = """
    e[0, i, j]     = a[i, j]
    h[0, i, j]     = b[i, j]
    e[t + 1, i, j] = e[t, i, j - 1] + 2 * h[t, i + 1, j] - h[t, i - 1, j]             for t in 0..T, i in 1..M-1, j in 1..N-1
    e[t + 1, i, j] = e[t, i, j] + s[t]                                                otherwise
    h[t + 1, i, j] = h[t, i, j + 1] - 3 * e[t, i + 1, j] + e[t, i - 1, j]             for t in 0..T, i in 1..M-1, j in 1..N-1
    h[t + 1, i, j] = h[t, i, j]                                                       otherwise
    y[i, j]        = e[T, i, j]
    z[i, j]        = h[T, i, j]"""


@pytest.mark.parametrize("machine", SMALL_CACHES, ids=["one thread", "two threads"])
@pytest.mark.parametrize(("body", "begins"), [(FIELDS, "shift h.i by 1"), (ALIKE, "together")], ids=["turns", "alike"])
def test_fields_that_need_each_other_run_in_tiles_of_steps(machine: Machine, body: str, begins: str) -> None:
    sizes = {"M": 21, "N": 19, "T": 9}
    signature = "a: i32[M, N], b: i32[M, N], s: i32[T]) -> (y: i32[M, N], z: i32[M, N]) where T >= 1, M >= 3, N >= 3"
    program = operator(signature, body, sizes)
    schedule = derive(program, replace(machine, l2_bytes=5632, cache_bytes=5632))
    said = [show(d) for d in schedule.directives]
    assert said[0].startswith(begins)
    assert any(d.startswith("tile ") and "(t, i)" in d for d in said)
    assert any(d.startswith("parallel ") for d in said) == (machine.threads > 1)
    assert_same(program, proven(program, schedule), sizes)


def test_fields_of_which_one_is_a_result_run_step_by_step() -> None:
    body = FIELDS.replace("y[i, j]        = e[T, i, j]", "y[t, i, j]     = e[t, i, j]")
    sizes = {"M": 21, "N": 19, "T": 9}
    signature = "a: i32[M, N], b: i32[M, N], s: i32[T]) -> (e: i32[T + 1, M, N], z: i32[M, N]) where T >= 1, M >= 3, N >= 3"
    program = operator(signature, body.replace("    y[t, i, j]     = e[t, i, j]\n", ""), sizes)
    assert not any(d.startswith("tile") for d in directives(program, SMALL_CACHES[0]))


def test_a_result_is_kept_whole() -> None:
    program = operator("x: f32[M, N]) -> (y: f32[M, N])", "y[i, j] = x[i, j] + y[i - 1, j | 0]")
    assert not any(d.startswith("fold") for d in directives(program))


DELAYS = """
    v[t] = x[t] + 3 * v[t - 9 | 0] - v[t - 11 | 2]
    y[t] = v[t] - v[t - 1 | 1] + y[t - 6 | 0]"""


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide vectors", "narrow vectors"])
def test_elements_that_need_only_those_far_before_them_are_lanes(machine: Machine) -> None:
    program = operator("x: i32[T]) -> (y: i32[T])", DELAYS)
    found = [d for d in directives(program, machine) if d.startswith("vectorize")]
    assert found == (["vectorize v.t_v", "vectorize y.t_v"] if machine is NARROW else [])
    plan = proven(program, derive(program, machine))
    for count in (0, 5, 29, 64):
        assert_same(program, plan, {"T": count})


@pytest.mark.parametrize("steps", [2, 3, 7])
def test_elements_that_need_one_a_few_before_them_run_as_many_at_a_time(steps: int) -> None:
    text = f"y[i] = x[i] for i in 0..{steps}\ny[i] = 3 * y[i - {steps}] - x[i] for i in {steps}..N"
    program = operator(f"x: i32[N]) -> (y: i32[N]) where N >= {steps}", text, {"N": 61})
    assert {f"split y.i by {steps} -> i_o, i_t", "unroll y.i_t"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, WIDE)), {})


@pytest.mark.parametrize(("width", "rows"), [(2040, 32), (2048, 8)])
def test_as_many_rows_of_a_filter_run_at_once_as_the_first_cache_holds_lines_of(width: int, rows: int) -> None:
    body = "y[c, i] = a * x[c, i] + b * x[c, i - 1 | 0] - c1 * y[c, i - 1 | 0] - c2 * y[c, i - 2 | 0]"
    signature = "x: f64[C, N], a: f64, b: f64, c1: f64, c2: f64) -> (y: f64[C, N])"
    program = operator(signature, body, {"C": 32, "N": width})
    machine = replace(WIDE, l1_bytes=48 * 1024)
    assert directives(program, machine)[0].startswith(f"split y.c by {rows} ->")


@pytest.mark.parametrize(("steps", "side_by_side"), [(60, True), (500, False)])
def test_rows_run_step_by_step_beside_each_other_where_the_first_cache_holds_two_steps_of_them(steps: int, side_by_side: bool) -> None:
    body = """
    v[o, 0, j] = x[o] + w[j | 0]                         for o in 0..N, j in 0..T+1
    v[o, k, j] = v[o, k - 1, j + 1] + v[o, k - 1, j]     for o in 0..N, k in 1..T+1, j in 0..T+1-k
    v[o, k, j] = 0                                       otherwise
    y[o]       = v[o, T, 0]"""
    found = directives(operator("x: f64[N], w: f64[T]) -> (y: f64[N])", body, {"N": 64, "T": steps}))
    rows = [int(found_rows[1]) for d in found if (found_rows := re.match("split v.o by ([0-9]+)", d))]
    assert all(2 * count * (steps + 1) * 8 <= WIDE.l1_bytes for count in rows)
    assert any(count == 8 for count in rows) == side_by_side


def test_sums_along_a_row_run_for_several_rows_at_once() -> None:
    program = operator("x: f32[M, N]) -> (y: f32[M, N])", "y[i, 0] = x[i, 0]\ny[i, j] = x[i, j] + y[i, j - 1] for j in 1..N")
    assert directives(program)[:2] == ["distribute y", "split y.i by 8 -> i_o, i_t"]


def test_the_lanes_of_a_factorisation_are_those_of_its_sums() -> None:
    body = """
    l[i, j] = (a[i, j] - sum(k in 0..j) l[i, k] * l[j, k]) / l[j, j]   for j < i
    l[i, j] = a[i, i] - sum(k in 0..i) l[i, k] * l[i, k]               for i == j
    l[i, j] = 0                                                        otherwise"""
    found = directives(operator("a: f32[N, N]) -> (l: f32[N, N])", body))
    assert found[0] == "block k by 16"
    assert found[-1].startswith("vectorize l.k")


def test_sums_of_a_strict_program_keep_their_order() -> None:
    program = operator("w: f32[N, N]) -> (l: f32[N])", "l[i] = sum(k in 0..i) w[i, k] * l[k] + 1")
    strict = operator("w: f32[N, N]) -> (l: f32[N])", "l[i] = sum(k in 0..i) w[i, k] * l[k] + 1")
    assert any("l.k" in d for d in directives(program))
    assert not any("l.k" in d for d in directives(replace(strict, mode="strict")))


def test_weights_of_a_recurrent_layer_are_copied_once_so_that_lanes_read_neighbours() -> None:
    body = """
    h[0, n, j]     = s[n, j]
    h[t + 1, n, j] = x[t, n, j] + sum(m) h[t, n, m] * w[j, m] for t in 0..L
    y[n, j]        = h[L, n, j]"""
    sizes = {"L": 32, "B": 16, "H": 128}
    found = directives(operator("x: f32[L, B, H], w: f32[H, H], s: f32[B, H]) -> (y: f32[B, H])", body, sizes))
    assert any(d.startswith("pack w as") for d in found)
    assert "fold h at t by 2" in found


def test_an_operand_that_is_read_in_two_ways_is_not_copied_for_one_of_them() -> None:
    body = "y[i, j] = sum(k) max(a[i, k], a[j, k]) for j <= i\ny[i, j] = 0 otherwise"
    program = operator("a: i32[N, M]) -> (y: i32[N, N])", body, {"N": 12, "M": 15})
    assert not any(d.startswith("pack") for d in directives(program))
    assert_same(program, proven(program, derive(program, WIDE)), {"N": 12, "M": 15})


def test_each_tensor_of_a_group_has_pieces_lanes_and_folds_of_its_own() -> None:
    body = """
    p[0, j]     = x[0, j]
    q[0, j]     = x[0, j]
    p[t + 1, j] = q[t, N - 1 - j] + x[t, j] for t in 0..L
    q[t + 1, j] = p[t + 1, N - 1 - j] - x[t, j] for t in 0..L
    y[j]        = q[L, j]"""
    found = directives(operator("x: f32[L, N]) -> (y: f32[N]) where L >= 1", body))
    for name in "pq":
        assert any(d.startswith(f"distribute {name} at {name}.j") for d in found)
        assert any(d.startswith(f"vectorize {name}.j") for d in found)
        assert f"fold {name} at t by 2" in found or f"fold {name} at t by 1" in found


offsets = st.tuples(st.integers(1, 2), st.integers(-2, 2), st.integers(-2, 2))


@st.composite
def stencils(draw: st.DrawFn) -> str:
    """Return equations over (t, i, j): first steps, and each other point from points of steps before, or of its own row."""
    modes = st.sampled_from(("0", "clamp"))
    terms = [f"u[t - {dt}, i + {di}, j + {dj} | {draw(modes)}]" for dt, di, dj in draw(st.lists(offsets, min_size=1, max_size=3))]
    if draw(st.booleans()):
        terms.append(draw(st.sampled_from(("u[t, i, j - 1 | 1]", "u[t, i - 1, j | 2]", "u[t, i - 1, j + 1 | 0]", "u[t, i + 1, j | 3]"))))
    inside = "t in 2..T, i in 0..M, j in 0..N"
    guard, edge = draw(st.sampled_from((("", ""), (", i >= 1", "u[t - 1, i, j]"), (", j < N - 1", "a[i, j]"))))
    rest = {", i >= 1": "i == 0", ", j < N - 1": "j == N - 1"}.get(guard)
    other = f"    u[t, i, j] = {edge} for {inside}, {rest}\n" if rest else ""
    first = "u[t, i, j] = a[i, j] + i32(t) for t in 0..2, i in 0..M, j in 0..N"
    value = " + ".join(terms).replace("+ -", "- ")
    last = draw(st.sampled_from(("T - 1", "T // 2")))
    return f"    {first}\n{other}    u[t, i, j] = {value} for {inside}{guard}\n    y[i, j] = u[{last}, i, j]"


@settings(max_examples=12, deadline=None)
@given(stencils(), st.sampled_from((WIDE, NARROW)))
def test_whatever_is_derived_for_a_stencil_is_proven_and_right(body: str, machine: Machine) -> None:
    program = operator("a: i32[M, N], s: i32[T]) -> (y: i32[M, N]) where T >= 2, M >= 3, N >= 3", body)
    prove(program)
    plan = proven(program, derive(program, machine))
    for sizes in ({"M": 3, "N": 4, "T": 2}, {"M": 4, "N": 9, "T": 4}):
        assert_same(program, plan, sizes)


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide vectors", "narrow vectors"])
def test_groups_are_right_on_every_machine(machine: Machine) -> None:
    body = """
    p[0, i, j]     = x[i, j]
    q[0, i, j]     = x[i, j]
    p[t + 1, i, j] = q[t, i, j] + sum(m) p[t, i, m] * w[m, j] for t in 0..L
    q[t + 1, i, j] = p[t + 1, i, j] - q[t, i, j] for t in 0..L
    y[i, j]        = q[L, i, j]"""
    program = operator("x: i32[M, N], w: i32[N, N], s: i32[L]) -> (y: i32[M, N]) where L >= 1", body)
    plan = proven(program, derive(program, machine))
    for sizes in ({"M": 1, "N": 1, "L": 1}, {"M": 5, "N": 19, "L": 3}):
        assert_same(program, plan, sizes)


def test_a_sum_over_what_data_name_goes_through_its_terms_once() -> None:
    scatter = operator("d: f32[N, D], ids: i64[K], u: f32[K, D]) -> (y: f32[N, D])", "y[n, j] = d[n, j] + sum(k, ids[k] == n) u[k, j]")
    assert "order y.k, y.n, y.j_o, y.j_v" in directives(scatter)
    rows = operator("ids: i64[M, K], u: f32[M, K]) -> (y: f32[M, 64])", "y[i, n] = sum(k, ids[i, k] == n) u[i, k] for n in 0..64")
    assert "order y.i, y.k_o, y.k_i, y.n" in directives(rows)


def test_terms_that_need_the_step_before_are_gone_through_in_each_step() -> None:
    body = """top[g, 0] = max(k, ids[k] == g, from -1) u[k]                       for g in 0..20
    top[g, r] = max(k, ids[k] == g, u[k] < top[g, r - 1], from -1) u[k]   for g in 0..20, r in 1..3"""
    largest = operator("ids: i64[K], u: i32[K]) -> (top: i32[20, 3])", body)
    assert "order top.r, top.k, top.k_1, top.g" in directives(largest)
    for size in (1, 45):
        assert_same(largest, proven(largest, derive(largest, WIDE)), {"K": size})


def test_terms_that_go_to_short_rows_are_vectors_of_these_and_written_out() -> None:
    scatter = operator("ids: i64[K], u: f32[K, 8]) -> (y: f32[30, 8])", "y[n, j] = sum(k, ids[k] == n) u[k, j] for n in 0..30")
    assert {"order y.k_o, y.k_i, y.n, y.j_o, y.j_v", "split y.j by 8 -> j_o, j_v", "unroll y.k_i"} <= {*directives(scatter)}
    counts = operator("ids: i64[K]) -> (y: i32[30])", "y[n] = sum(k, ids[k] == n) i32(1) for n in 0..30")
    assert {"order y.k_o, y.k_i, y.n", "unroll y.k_i"} <= {*directives(counts)}


@pytest.mark.parametrize("columns", [1, 3, 6, 8, 9])
def test_terms_go_to_rows_of_any_length(columns: int) -> None:
    body = f"y[n, j] = sum(k, ids[k] == n) u[k, j] for n in 0..9, j in 0..{columns}"
    program = operator(f"ids: i64[K], u: i32[K, {columns}]) -> (y: i32[9, {columns}])", body)
    for machine in (WIDE, NARROW):
        assert_same(program, proven(program, derive(program, machine)), {"K": 6})


@pytest.mark.parametrize("reducer", ["sum", "max", "last"])
def test_scattered_terms_are_combined_in_the_order_that_their_reducer_needs(reducer: str) -> None:
    body = f"y[n, j] = {reducer}(k, ids[k] == n, from d[n, j]) u[k, j]"
    program = operator("d: i32[N, D], ids: i64[K], u: i32[K, D]) -> (y: i32[N, D])", body)
    plan = proven(program, derive(program, NARROW))
    for sizes in ({"N": 1, "D": 1, "K": 0}, {"N": 3, "D": 9, "K": 6}):
        assert_same(program, plan, sizes)


PAIRS = "y[p, q] = sum(k, a[k] == p, b[k] == q) u[k]"
RELAXED = """
    d[0, v]     = if v == 0 then 0 else 1000000                                   for v in 0..N
    d[t + 1, v] = min(e, to[e] == v, from d[t, v]) (d[t, at[e]] + w[e])           for t in 0..4, v in 0..N
    y[v]        = d[4, v]"""


@pytest.mark.parametrize(
    ("head", "body", "order", "sizes"),
    [
        ("a: i32[K], b: i32[K], u: i32[K]) -> (y: i32[7, 9])", PAIRS, "order y.k_o, y.k_i, y.p, y.q", {"K": 40}),
        (
            "to: i32[K] in 0..N, at: i32[K] in 0..N, w: i32[K], _like: i32[N]) -> (y: i32[N]) where N >= 1",
            RELAXED,
            "order d.t, d.e, d.v",
            {"N": 7, "K": 30},
        ),
        (
            "a: i32[K], b: u8[K, F], u: i32[K]) -> (y: i32[5, F, 16])",
            "y[l, f, x] = sum(k, a[k] == l, b[k, f] == x) u[k] for l in 0..5, f in 0..F, x in 0..16",
            "order y.f_o, y.k, y.f_i, y.l, y.x",
            {"K": 30, "F": 3},
        ),
    ],
    ids=["two axes", "steps", "rows of data"],
)
def test_terms_go_to_the_one_element_that_data_name_along_several_axes_and_in_each_step(
    head: str, body: str, order: str, sizes: dict[str, int]
) -> None:
    program = operator(head, body)
    plan = proven(program, derive(program, WIDE))
    assert order in directives(program)
    assert_same(program, plan, sizes)


ROWS = "begin: i32[M], end: i32[M], at: i32[E] in 0..N, v: i32[E], x: i32[N, D]) -> (y: i32[M, D])"


def test_a_sum_from_where_data_begin_to_where_they_end_goes_through_these_terms_alone() -> None:
    body = "y[i, j] = sum(e in 0..E, begin[i] <= e, e < end[i]) v[e] * x[at[e], j]"
    program = operator(ROWS, body)
    plan = proven(program, derive(program, WIDE))
    text = show_loops(loops(plan))
    assert "in max(0, value(i64(begin[y_i]))) .. min(E, value(i64(end[y_i])))" in text
    for sizes in ({"M": 0, "E": 0, "N": 8, "D": 1}, {"M": 4, "E": 11, "N": 8, "D": 18}):
        assert_same(program, plan, sizes)


COUNTED = """
    c[i, 0, d]     = 0 for i in 0..M, d in 0..16
    c[i, k + 1, d] = if d == g[i, k] then at[i, k] + 1 else c[i, k, d]
    at[i, k]       = c[i, k, g[i, k]]"""
"""The number of equal elements before each."""


def test_a_row_of_which_a_step_changes_the_element_that_data_name_is_kept_once_and_changed_in_place() -> None:
    program = operator("g: i32[M, N] in 0..16) -> (at: i32[M, N])", COUNTED)
    found = directives(program)
    assert {"fold c at i by 1", "fold c at k by 1"} <= {*found}
    text = show_loops(loops(proven(program, derive(program, WIDE))))
    assert "alloc c: i32[1, 1, 16]" in text
    assert " in max(0, value(i64(g[at_i, at_k]))) .. max(-1, min(15, value(i64(g[at_i, at_k])))) + 1" in text


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["one thread", "two threads"])
def test_elements_that_data_name_one_by_one_are_those_of_the_equations(machine: Machine) -> None:
    program = operator("g: i32[M, N] in 0..16) -> (at: i32[M, N])", COUNTED)
    plan = proven(program, derive(program, machine))
    for sizes in ({"M": 1, "N": 0}, {"M": 1, "N": 1}, {"M": 3, "N": 40}):
        assert_same(program, plan, sizes)


def test_what_reads_a_step_that_changes_what_data_name_runs_in_its_loop_however_small_the_steps_are() -> None:
    body = """
    c[0, d]     = i32(0) for d in 0..16
    c[k + 1, d] = c[k, d] + (if d == g[k] then 1 else 0)
    y[k]        = c[k, g[k]] for k in 0..N"""
    program = operator("g: i32[N] in 0..16) -> (y: i32[N])", body, {"N": 40})
    assert {"together c, y -> k", "fold c at k by 1"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, WIDE)), {})


def test_an_axis_that_a_step_also_shifts_is_no_place_that_data_name() -> None:
    body = COUNTED.replace("else c[i, k, d]", "else c[i, k, 15 - d]")
    assert "fold c at k by 1" not in directives(operator("g: i32[M, N] in 0..16) -> (at: i32[M, N])", body))


ELIMINATION = """
    m[0, i, j]     = a[i, j]
    m[k + 1, i, j] = if i > k and j > k then m[k, i, j] - m[k, i, k] / m[k, k, k] * m[k, k, j] else m[k, i, j]
                     for k in 0..N-1, i in 0..N, j in 0..N
    y[i, j]        = m[N - 1, i, j]"""


def test_a_step_that_changes_a_part_of_a_matrix_changes_it_in_place_and_divides_once_a_row() -> None:
    program = operator("a: f64[N, N]) -> (y: f64[N, N]) where N >= 1", ELIMINATION)
    assert "fold m at k by 1" in directives(program)
    text = show_loops(loops(plan := proven(program, derive(program, WIDE))))
    steps = text[text.index("for m_k") :]
    assert re.search(r"let \w+ = y\[\w+, m_k - 1\] / y\[m_k - 1, m_k - 1\]", steps)
    assert "select" not in steps
    for n in (1, 2, 19):
        assert_same(program, plan, {"N": n})


def test_a_step_that_data_decide_to_copy_keeps_the_one_before() -> None:
    body = ELIMINATION.replace("i > k and j > k", "a[i, j] > 0")
    assert "fold m at k by 2" in directives(operator("a: f64[N, N]) -> (y: f64[N, N]) where N >= 1", body))


def test_copies_that_go_round_among_themselves_are_known_one_step_far() -> None:
    body = """
    m[0, i, j]     = a[i, j]
    m[k + 1, i, j] = m[k, j, i]              for k in 0..N, i in 0..N, j in 0..N, i >= k + 2 and j + k == N
    m[k + 1, i, j] = m[k, i, (j + 1) % N]    otherwise
    y[i, j]        = m[N, i, j]"""
    program = operator("a: i32[N, N]) -> (y: i32[N, N]) where N >= 3", body, {"N": 8})
    plan = proven(program, derive(program, WIDE))
    assert "fold m at k by 2" in directives(program)
    assert_same(program, plan, {"N": 8})


SORTED = """
    w[i, 0, k]     = x[i, k] for i in 0..M, k in 0..N
    c[i, p, k]     = sum[i32](j in 0..N, bitand(shr(w[i, p, j], i32(p)), 1) < bitand(shr(w[i, p, k], i32(p)), 1)
                              or bitand(shr(w[i, p, j], i32(p)), 1) == bitand(shr(w[i, p, k], i32(p)), 1) and j < k) i32(1)
                     for i in 0..M, p in 0..3, k in 0..N
    w[i, p + 1, n] = last(k in 0..N, c[i, p, k] == n, from 0) w[i, p, k] for i in 0..M, p in 0..3, n in 0..N
    y[i, n]        = w[i, 3, n]"""
"""Rows sorted bit by bit."""


def test_sums_of_what_data_name_are_added_up_where_the_next_step_reads_them() -> None:
    program = operator("x: i32[M, N]) -> (y: i32[M, N])", SORTED)
    plan = proven(program, derive(program, WIDE))
    assert "fold w at p by 2" in directives(program)
    text = show_loops(loops(plan))
    assert "w_1_acc" not in text and "w[c_i, (c_p + 1) % 2, w_k" in text
    for sizes in ({"M": 1, "N": 0}, {"M": 2, "N": 1}, {"M": 2, "N": 9}):
        assert_same(program, plan, sizes)


def test_sums_are_added_up_apart_where_what_lies_in_their_place_is_still_needed() -> None:
    program = operator("x: i32[M, N]) -> (y: i32[M, N])", SORTED)
    found = derive(program, WIDE)
    kept = [d for d in found.directives if show(d) != "fold w at p by 2"]
    plan = proven(program, replace(found, directives=tuple(kept)).fold("w", "p", 1))
    assert "w_1_acc" in show_loops(loops(plan))
    assert_same(program, plan, {"M": 2, "N": 9})


SCAN = ("x: f32[M, N]) -> (y: f32[M, N])", "y[i, j] = x[i, j] + y[i + 1, j | 0]")


def test_a_plain_schedule_says_no_more_than_what_makes_the_order_legal() -> None:
    program = operator(*SCAN)
    assert [show(d) for d in derive(program, WIDE, plain=True).directives] == ["reverse y.i"]
    assert len(directives(program)) > 1


def test_a_derived_schedule_that_is_not_proven_gives_way_to_a_plainer_one_and_is_told_of() -> None:
    program = operator(*SCAN, {"M": 5, "N": 7})

    def derived(stored: object) -> Iterator[tuple[str, Schedule]]:
        yield DERIVED_FIRST, derive(program, WIDE).parallel("y.i")
        yield DERIVED_PLAIN, derive(program, WIDE, plain=True)

    with pytest.warns(FaultWarning, match="what is derived for `f` is refused, and a plainer schedule stands in"):
        found = planned(program, WIDE, ScheduleRequest(), derived)
    assert found.schedule == derive(program, WIDE, plain=True)
    assert found.tried == ("what is derived first: refused: two iterations that run at the same time touch one element",)


def test_loops_are_those_of_the_tensor_with_the_longer_name() -> None:
    """`at.next` is defined where `at = steps(x)` calls an operator, and needs `at`."""
    text = """
op steps(x: i32[N] in 0..N) -> (at: i32[N]) where N >= 1 {
    last[0]     = 0
    last[t + 1] = next[t]
    at[t]       = last[t] % 7   for t in 0..N
    next[t]     = max(j in 0..N) (x[j] + at[t])   for t in 0..N
}
op f(x: i32[N] in 0..N) -> (at: i32[N]) where N >= 1 {
    at = steps(x)
}
"""
    module = load_module(parse(Source("f.tl", text)))
    program = instantiate(module, "f", [argument(p, {"N": 40}) for p in module.operators["f"].params])
    plan = proven(program, derive(program, NARROW))
    assert any(d.startswith("split at.next.j by") for d in directives(program, NARROW))
    assert_same(program, plan, {})


def test_a_scattered_sum_goes_through_its_terms_once_beside_a_reader_of_its_rows() -> None:
    body = """
    n[u, z] = sum(p, at[u, p] == z) x[u, p]   for u in 0..N, z in 0..12
    y[u, z] = n[u, z] - 2 * n[u, z - 1 | 0]"""
    program = operator("at: i32[N, M] in 0..12, x: i32[N, M]) -> (y: i32[N, 12])", body)
    found = derive(program, WIDE)
    assert "order n.u, n.p_o, n.p_i, n.z" in [show(d) for d in found.directives]
    assert_same(program, proven(program, found), {"N": 5, "M": 7})


def test_rows_of_tensors_that_need_each_other_are_shared_where_they_read_copies() -> None:
    body = """
    z[t, g, i]  = sum(k in 0..H) v[g, i, k] * x[t, k]
    q[t, g, i]  = z[t, g, i] + sum(k in 0..H) w[g, i, k] * h[t, k]   for t in 0..S, g in 0..2, i in 0..H
    h[0, i]     = x[0, i]                                         for i in 0..H
    h[t + 1, i] = q[t, 0, i] - q[t, 1, i]                         for t in 0..S, i in 0..H
    y[t, i]     = h[t + 1, i]"""
    program = operator("x: i32[S, H], v: i32[2, H, H], w: i32[2, H, H]) -> (y: i32[S, H]) where S >= 1", body)
    for machine in (WIDE, replace(WIDE, threads=2)):
        found = derive(program, machine)
        assert any(d.name == "pack" for d in found.directives)
        assert_same(program, proven(program, found), {"S": 3, "H": 7})


REFLECTIONS = """
    s[0, i, j]     = a[i, j]
    n[k]           = sum(i) s[k, i, k] * s[k, i, k]       for k in 0..M
    w[k, j]        = sum(i) s[k, i, k] * s[k, i, j]       for k in 0..M, j in 0..M
    s[k + 1, i, j] = s[k, i, j] - s[k, i, k] * w[k, j] + n[k] for k in 0..M, i in 0..N, j in 0..M
    r[i, j]        = s[M, i, j]"""


def test_a_tensor_is_stored_along_the_axis_along_which_lanes_touch_most_of_its_elements() -> None:
    program = operator("a: i32[N, M]) -> (r: i32[N, M]) where N >= 1, M >= 1", REFLECTIONS, {"N": 39, "M": 18})
    plan = proven(program, derive(program, WIDE))
    assert "vectorize n.i_v" in directives(program)
    assert "alloc s: i32[1, 39, 18]" in show_loops(loops(plan))
    assert_same(program, plan, {})


def test_lanes_that_all_read_one_row_do_not_say_how_a_tensor_is_stored() -> None:
    body = """
    s[u, v, z] = max(x[u, v, z - 1 | 0], x[u, v, z])   for u in 0..3, v in 0..3, z in 0..18
    low[i, j]  = i64(at[i, j])
    y[i, j]    = s[i // 16, j // 16, low[i, j] | clamp] + at[i, j] * s[i // 16, j // 16, low[i, j] + 1 | clamp]"""
    program = operator("x: i32[3, 3, 18], at: i32[N, M]) -> (y: i32[N, M]) where N == 48, M == 48", body, {"N": 48, "M": 48})
    plan = proven(program, derive(program, WIDE))
    assert "alloc s: i32[3, 3, 18]" in show_loops(loops(plan))
    assert_same(program, plan, {})


BUTTERFLIES = """
    a[0, k]           = x[k]
    a[s + 1, 2*k]     = a[s, k] + a[s, k + M//2]                   for s in 0..3, k in 0..M//2
    a[s + 1, 2*k + 1] = a[s, k] - 2 * a[s, k + M//2] * x[2*k]      for s in 0..3, k in 0..M//2
    y[k]              = a[3, k]"""
THIRDS = """
    y[3*k + 1] = x[k] + x[2*k]   for k in 0..(M + 1)//3
    y[3*k]     = x[k] - x[2*k]   for k in 0..(M + 2)//3
    y[3*k + 2] = x[k]            for k in 0..M//3"""
COLOURS = """
    u[0, k] = x[k]
    u[t, k] = u[t - 1, k - 1] + u[t - 1, k + 1]   for t in 1..5, k in 1..M-1, (k + t) % 2 == 0
    u[t, k] = u[t - 1, k]                         otherwise
    y[k]    = u[4, k]"""


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide vectors", "narrow vectors"])
@pytest.mark.parametrize(
    ("body", "where", "sizes"),
    [(BUTTERFLIES, "M % 2 == 0", (2, 70, 256)), (THIRDS, "M >= 1", (1, 50, 193)), (COLOURS, "M >= 2", (2, 33, 130))],
    ids=["butterflies", "thirds", "two colours"],
)
def test_equations_for_one_of_a_few_elements_are_right_on_every_machine(
    machine: Machine, body: str, where: str, sizes: tuple[int, ...]
) -> None:
    program = operator(f"x: i32[M]) -> (y: i32[M]) where {where}", body)
    plan = proven(program, derive(program, machine))
    for count in sizes:
        assert_same(program, plan, {"M": count})


def test_equations_for_one_of_a_few_elements_have_loops_of_their_own() -> None:
    for body, tensor, phases in ((BUTTERFLIES, "a.k", 2), (THIRDS, "y.a0", 3)):
        found = directives(operator("x: i32[M]) -> (y: i32[M])", body, {"M": 192}))
        axis = tensor.split(".")[1]
        assert f"split {tensor} by {phases} -> {axis}_q, {axis}_r" in found and f"unroll {tensor}_r" in found
        assert any(d.startswith("distribute") for d in found) == (body is BUTTERFLIES), "all that is computed of a row is written together"


def test_phases_of_rows_that_differ_in_every_other_row_are_written_together() -> None:
    body = "y[2*i, 2*j] = x[i, j]\ny[2*i, 2*j + 1] = 2 * x[i, j]\ny[2*i + 1, 2*j] = 3 * x[i, j]\ny[2*i + 1, 2*j + 1] = 5 * x[i, j]"
    program = operator("x: i32[N, M]) -> (y: i32[2 * N, 2 * M])", body, {"N": 3, "M": 70})
    found = directives(program)
    assert "split y.a1 by 2 -> a1_q, a1_r" in found and not any(d.startswith("distribute") for d in found)
    assert_same(program, proven(program, derive(program, WIDE)), {})


def test_phases_of_several_registers_are_those_of_one_register_after_the_other() -> None:
    program = operator("x: u8[N]) -> (y: u8[2 * N])", "y[2*i] = x[i] // 16\ny[2*i + 1] = x[i] % 16", {"N": 300})
    assert {"order y.a0_o, y.a0_u, y.a0_r, y.a0_v", "unroll y.a0_u, y.a0_r"} <= {*directives(program)}


THERE_AND_BACK = """
    u[0, i, j] = a[i, j]
    q[t, i, j] = u[t, j, i] + q[t, i, j - 1 | 0]            for t in 0..3, i in 0..N, j in 0..N
    v[t, j, i] = q[t, i, j] - v[t, j + 1, i | 0]            for t in 0..3, i in 0..N, j in 0..N
    s[t, i, j] = v[t, i, j] + s[t, i, j - 1 | 1]            for t in 0..3, i in 0..N, j in 0..N
    u[t, i, j] = s[t - 1, i, j] - u[t, i, j + 1 | 2]        for t in 1..4, i in 0..N, j in 0..N
    y[i, j]    = u[3, i, j]"""


@pytest.mark.parametrize("threads", [1, 2])
def test_lines_that_are_solved_there_and_back_are_kept_for_lanes_of_them_alone(threads: int) -> None:
    machine = replace(NARROW, l2_bytes=2048, threads=threads)
    program = operator("a: i32[N, N]) -> (y: i32[N, N]) where N >= 1", THERE_AND_BACK, {"N": 43})
    found = directives(program, machine)
    assert "together q, v -> i" in found and "together s, u -> i" in found
    assert {"fold q at i by 8", "fold s at i by 8", "fold u at t by 1", "fold v at t by 1"} <= {*found}
    assert_same(program, proven(program, derive(program, machine)), {"N": 43})
    assert ("parallel q.i_o" in directives(operator("a: i32[N, N]) -> (y: i32[N, N])", THERE_AND_BACK, {"N": 400}), machine)) == (
        threads > 1
    )


def test_lines_of_which_others_are_read_too_are_kept_for_a_step() -> None:
    body = THERE_AND_BACK.replace("v[t, j, i] = q[t, i, j]", "v[t, j, i] = q[t, i, j] + q[t, i - 1, j | 0]")
    found = directives(operator("a: i32[N, N]) -> (y: i32[N, N]) where N >= 1", body, {"N": 43}), replace(NARROW, l2_bytes=2048))
    assert "together q, v -> i" not in found and "together s, u -> i" in found


def test_tiles_of_steps_have_fewer_rows_where_rows_are_large() -> None:
    body = """
    u[0, i, j, k] = a[i, j, k]
    u[t, i, j, k] = u[t - 1, i - 1, j, k | 0] + u[t - 1, i, j + 1, k | 0] + u[t - 1, i + 1, j, k - 1 | 0]
                    for t in 1..17, i in 0..N, j in 0..N, k in 0..N
    y[i, j, k]    = u[16, i, j, k]"""
    for size, tile in ((180, "(8, 8)"), (340, "(4, 4)")):
        found = directives(operator("a: f32[N, N, N]) -> (y: f32[N, N, N])", body, {"N": size}), Machine(target="cpu", threads=2))
        assert f"tile u (t, i) by {tile} -> t_b, i_b, t_s, i_s" in found, found


LINKS = "at: i32[N] in 0..N, lag: i32[N] in 1..4, x: f32[N]) -> (y: f32[N])"


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i] + (if at[i] < i then y[at[i]] else 0)",
        "y[i] = x[i] + (if i < at[i] then y[at[i]] else 0)",
        "y[i] = x[i] + (let p = at[i] in (if p >= i then 0 else y[p]))",
        "y[0] = x[0]\n    y[i] = x[i] + y[min(at[i], i - 1)] for i in 1..N",
        "y[i] = x[i] + y[i - lag[i] | 0]",
        "y[i] = x[i] + (max(k in 0..N) (if lag[k] <= i then y[i - lag[k]] else 0))",
    ],
)
def test_recurrences_run_along_links_that_data_name_where_all_are_known_to_come_earlier_or_all_later(body: str) -> None:
    program = operator(LINKS, f"\n    {body}\n")
    assert_same(program, proven(program, derive(program, WIDE)), {"N": 7})


def test_sums_under_conditions_on_indices_and_data_are_told_these_once() -> None:
    body = """
    c[0, j] = i32(j)   for j in 0..3
    c[s, j] = if s > 1 and at[s, j] < s then (max(k in 0..3) (c[at[s, j], k] - d[j, k])) else i32(1)   for s in 1..7, j in 0..3"""
    program = operator("d: i32[3, 3], at: i64[7, 3] in 0..7) -> (c: i32[7, 3])", body)
    assert_same(program, proven(program, derive(program, WIDE)), {})


SUBSETS = "d: i32[4, 4]) -> (best: i32)"


def tour(last: str) -> str:
    """Return the equations of a shortest tour by subsets: `last` is the shortest way through a subset that ends at j."""
    return (
        f"\n    c[s, j] = if s == 0 then i32(0) else {last}   for s in 0..16, j in 0..4\n    best = min(j in 0..4) (c[15, j] + d[j, 0])\n"
    )


@pytest.mark.parametrize(
    "last",
    [
        "if bitand(s, shl(1, j)) != 0 then min(k in 0..4) (c[s - shl(1, j), k] + d[k, j]) else 99",
        "if bitand(shl(1, j), s) == 0 then 99 else (min(k in 0..4) (c[bitxor(s, shl(1, j)), k] + d[k, j]))",
        "min(k in 0..4, bitand(shr(s, j), 1) == 1, from 99) (c[bitxor(shl(1, j), s), k] + d[k, j])",
        "if bitand(shr(s, j), 1) == 0 then 99 else (let p = s - shl(1, j) in (min(k in 0..4) (c[p, k] + d[k, j])))",
        "if 0 <= s - shl(1, j) and s - shl(1, j) < s then min(k in 0..4) (c[s - shl(1, j), k] + d[k, j]) else 99",
    ],
)
def test_a_number_without_a_bit_that_is_set_in_it_is_known_to_come_earlier(last: str) -> None:
    program = operator(SUBSETS, tour(last))
    plan = proven(program, derive(program, WIDE))
    loops_of(plan, "f", threads=1)  # whose accesses are proven to be in bounds, of the loops alone
    assert_same(program, plan, {})


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    ("found", "less"),
    [("bitand(s, shl(1, b)) != 0", "s - shl(1, b)"), ("bitand(shr(s, b), 1) == 1", "bitxor(s, shl(1, b))")],
    ids=["mask", "shift"],
)
def test_so_it_is_where_the_first_bits_have_loops_of_their_own(found: str, less: str, machine: Machine) -> None:
    body = f"""
    f[0, s]     = a[s]   for s in 0..32
    f[b + 1, s] = f[b, s] + (if {found} then f[b, {less}] else 0)   for b in 0..5, s in 0..32
    y[s]        = f[5, s]   for s in 0..32"""
    program = operator("a: i32[32]) -> (y: i32[32])", body)
    plan = proven(program, derive(program, machine))
    loops_of(plan, "f", threads=1)
    assert_same(program, plan, {})


@pytest.mark.parametrize(
    "last",
    [
        "if bitand(s, shl(1, j)) == 0 then min(k in 0..4) (c[s - shl(1, j), k] + d[k, j]) else 99",
        "if bitand(s, shl(1, j)) == shl(1, j) then min(k in 0..4) (c[s - shl(1, j), k] + d[k, j]) else 99",
        "if bitand(s, shl(3, j)) != 0 then min(k in 0..4) (c[s - shl(3, j), k] + d[k, j]) else 99",
        "if bitand(s, shl(1, j)) != 0 then min(k in 0..4) (c[s - shl(1, k), k] + d[k, j]) else 99",
        "if bitand(s - 8, shl(1, j)) != 0 then min(k in 0..4) (c[bitxor(s - 8, shl(1, j)) + 8, k] + d[k, j]) else 99",
    ],
    ids=["not set", "or no bit at all", "two bits", "another bit", "numbers below 0"],
)
def test_other_numbers_are_not(last: str) -> None:
    with pytest.raises(CompileError, match="depends on itself"):
        prove(operator(SUBSETS, tour(last)))


def test_elements_go_where_a_count_says_in_the_steps_that_count() -> None:
    body = """
    seen[0]     = i64(0)
    seen[k + 1] = seen[k] + (if x[k] > 0 then i64(1) else i64(0)) for k in 0..N
    y[i]        = last(k in 0..N, x[k] > 0, seen[k] == i, from 0) x[k]"""
    program = operator("x: f32[N]) -> (y: f32[N])", body, {"N": 40})
    assert {"together seen, y -> k", "fold seen at k by 1"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, WIDE)), {})


def test_as_much_of_a_recurrence_is_kept_as_data_may_go_back() -> None:
    program = operator(LINKS, "\n    u[i] = x[i] + 0.5 * u[i - lag[i] | 0]\n    y[i] = u[N - 1]\n", {"N": 40})
    assert "fold u at i by 3" in directives(program)


def test_accumulators_of_sums_that_load_a_matrix_again_in_each_step_fit_in_registers() -> None:
    body = """
    q[t, g, i] = sum(k) w[g, i, k] * h[t, k] for t in 0..T
    h[0, i]    = 0 * x[0, i]
    h[t, i]    = x[t, i] + q[t - 1, 0, i] * q[t - 1, G - 1, i] for t in 1..T"""
    program = operator("x: f32[T, N], w: f32[G, N, N]) -> (h: f32[T, N])", body, {"T": 100, "G": 4, "N": 256})
    assert directives(program, Machine(target="cpu", vector_bytes=32, vector_registers=16))[:2] == [
        "split q.i by 3 -> i_o, i_t",
        "split q.g by 4 -> g_o, g_t",
    ]


@pytest.mark.parametrize(
    ("place", "shape", "shared"),
    [("i, j", "N, M", True), ("j, i", "M, N", False)],
    ids=["along the lanes", "across them"],
)
def test_what_is_made_of_each_step_is_made_there_where_it_lies_along_the_lanes(place: str, shape: str, shared: bool) -> None:
    filtered = f"""
    b[N - 1, j] = x[N - 1, j]
    b[i, j] = f32(0.5) * x[i, j] + f32(0.5) * b[i + 1, j]   for i in 0..N-1, j in 0..M
    y[{place}] = 2 * b[i, j]"""
    program = operator(f"x: f32[N, M]) -> (y: f32[{shape}]) where N >= 2, M >= 1", filtered, {"N": 40, "M": 600})
    assert any(d.startswith("together b, y") for d in directives(program)) == shared
    small = operator(f"x: f32[N, M]) -> (y: f32[{shape}]) where N >= 2, M >= 1", filtered, {"N": 19, "M": 37})
    assert_same(small, proven(small, derive(small, NARROW)), {})


def test_what_is_made_of_each_step_may_read_other_tensors_of_its_axis_elsewhere() -> None:
    body = """
    a[n] = x[n] for n in 0..1
    a[n] = max(a[n - 1] - 1, x[n]) for n in 1..N
    b[n] = x[n] for n in 0..1
    b[n] = (if n % 2 == 0 then x[n] else 2 * x[N - 1 - n]) for n in 1..N
    y[i] = b[N - 1 - i] + a[i]"""
    program = operator("x: i16[N]) -> (y: i16[N], b: i16[N]) where N >= 1", body, {"N": 21})
    assert_same(program, proven(program, derive(program, WIDE)), {})


@pytest.mark.parametrize(
    ("value", "phases"),
    [
        pytest.param("if i % 3 == 0 then 2 * x[i // 3 | clamp] else 7", 3, id="some elements read others"),
        pytest.param("x[i // 2 | clamp] - 2 * x[(i + 1) // 2 | clamp]", 2, id="twice as many elements"),
        pytest.param("bitand(shr(x[i // 8 | clamp], i32(i % 8)), 1)", 8, id="bits of elements"),
    ],
)
@pytest.mark.parametrize("width", [192, 201])
def test_elements_that_read_by_quotients_run_phase_by_phase(value: str, phases: int, width: int) -> None:
    program = operator(f"x: i32[N]) -> (y: i32[{width}]) where N >= 1", f"y[i] = {value} for i in 0..{width}", {"N": 40})
    assert {f"split y.i by {phases} -> i_q, i_r", "unroll y.i_r"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, WIDE)), {})


@pytest.mark.parametrize("size", [128, 153])
def test_terms_that_are_read_by_quotients_are_summed_phase_by_phase(size: int) -> None:
    body = "y[m] = sum(k in 0..K) (bitand(shr(q[m, k // 2], 4 * i32(k % 2)), 15) - z[m, k // 32]) * x[k]"
    program = operator("q: i32[M, K], z: i32[M, K], x: i32[K]) -> (y: i32[M])", body, {"M": 5, "K": size})
    assert {"split y.k by 2 -> k_q, k_r", "vectorize y.k_v"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, WIDE)), {})


def test_sums_for_one_of_a_few_elements_read_what_is_for_all_of_those_once() -> None:
    body = "y[i] = sum(k in 0..8) h[2*i % 3, k] * x[2*i // 3 + 4 - k | 0]   for i in 0..N"
    program = operator("x: i32[M], h: i32[3, 8], _like: i32[N]) -> (y: i32[N])", body, {"M": 70, "N": 100})
    assert {"split y.i by 3 -> i_q, i_r", "vectorize y.i_v"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, WIDE)), {})


def test_elements_that_choose_by_remainders_what_lies_side_by_side_run_in_plain_lanes() -> None:
    program = operator("a: i32[N], b: i32[N]) -> (y: i32[N])", "y[i] = if i % 2 == 0 then a[i] else b[i]", {"N": 201})
    assert not any("i_q" in d for d in directives(program))


@pytest.mark.parametrize(
    ("read", "turned"),
    [("y[i - 1 - k | 0]", True), ("y[i - 6 + k | 0]", False), ("y[i + 1 + k | 0]", True)],
    ids=["down", "up", "backwards"],
)
def test_the_term_that_was_computed_last_is_added_last_and_others_while_it_is_waited_for(read: str, turned: bool) -> None:
    program = operator("x: f32[12], w: f32[6]) -> (y: f32[12])", f"y[i] = x[i] + sum(k in 0..6) w[k] * {read} for i in 0..12")
    found = directives(program)
    assert "unroll y.k" in found
    assert ("reverse y.k" in found) == turned
    assert_same(program, proven(program, derive(program, WIDE)), {})


@pytest.mark.parametrize("far", ["y[i - 90 + k | 0]", "x[i - 1 - k | 0]"], ids=["long before", "of no iteration before"])
def test_terms_that_nobody_waits_for_stay_in_lanes(far: str) -> None:
    value = f"x[i] + 0.5 * y[i - 1 | 0] + sum(k in 0..16) w[k] * {far}"
    program = operator("x: f32[200], w: f32[16]) -> (y: f32[200])", f"y[i] = {value} for i in 0..200")
    assert "unroll y.k" not in directives(program)


def test_the_terms_of_a_strict_recurrence_stay_in_their_order() -> None:
    program = operator("x: f32[200], w: f32[6]) -> (y: f32[200])", "y[i] = x[i] + sum(k in 0..6) w[k] * y[i - 1 - k | 0] for i in 0..200")
    assert "reverse y.k" not in directives(replace(program, mode="strict"))


@pytest.mark.parametrize("kept", [True, False])
def test_steps_along_the_last_axis_run_in_lanes_where_few_of_them_are_kept(kept: bool) -> None:
    """They then lie one after the other in memory; where all are kept, so do the steps of one point."""
    program = operator(
        "a: i32[N]) -> (y: i32[N]) where N >= 3" if kept else "a: i32[N]) -> (u: i32[N, 9]) where N >= 3",
        """
        u[i, 0]     = a[i]
        u[i, t + 1] = u[i - 1, t] + u[i, t] - u[i + 1, t]   for t in 0..8, i in 1..N - 1
        u[i, t + 1] = u[i, t]                               otherwise"""
        + ("\n        y[i]        = u[i, 8]" if kept else ""),
        {"N": 200},
    )
    found = [d for d in directives(program) if " u" in d]
    assert any(d.startswith("vectorize u.i") for d in found) == kept
    assert ("fold u at t by 2" in found) == kept


@pytest.mark.parametrize(("last", "lanes"), [("t + 1", 64), ("N", 192)], ids=["a triangle", "a square"])
def test_rows_that_end_anywhere_in_a_block_are_cut_into_shorter_ones(last: str, lanes: int) -> None:
    body = f"""
    v[N, j] = k[j]   for j in 0..N
    v[t, j] = max(v[t + 1, j | 0] * k[j], 0.5 * v[t + 1, j + 1 | 0])   for t in 0..N, j in 0..{last}
    v[t, j] = 0   otherwise
    y = v[0, 0]"""
    assert any(d.startswith(f"split v.j by {lanes} ") for d in directives(operator("k: f32[N]) -> (y: f32)", body, {"N": 800})))
