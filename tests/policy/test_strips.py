"""What is derived for chains of maps and windows over tensors that no near cache holds: strips of rows, and results bit for bit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from scheduled_programs import argument, assert_same

from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.shape import rate_inside, step_inside
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

SMALL = Machine(target="cpu", vector_bytes=16, vector_registers=16, l2_bytes=2816, cache_bytes=1 << 20)
SIZES = {"M": 61, "N": 21}

CORNERS = """
    g[i, j] = x[i + 1, j] - x[i, j]   for i in 0..M-1, j in 0..N
    q[i, j] = g[i, j] * g[i, j]
    a[i, j] = sum(p in 0..3, r in 0..3) q[i + p, j + r]   for i in 0..M-3, j in 0..N-2
    y[i, j] = a[i, j] - 2 * a[i, j] * a[i, j]"""
SHARPER = """
    u[i, j] = x[i, j - 1 | clamp] + 2 * x[i, j] + x[i, j + 1 | clamp]
    v[i, j] = u[i - 2, j | clamp] + 2 * u[i, j] + u[i + 1, j | clamp]
    y[i, j] = 4 * x[i, j] - v[i, j]"""


def operator(signature: str, body: str) -> Program:
    module = load_module(parse(Source("f.tl", f"op f({signature} {{\n{body}\n}}")))
    return instantiate(module, "f", [argument(p, SIZES) for p in module.operators["f"].params])


def directives(program: Program, machine: Machine = SMALL) -> list[str]:
    return [show(d) for d in derive(program, machine).directives]


CASES = [("x: i32[M, N]) -> (y: i32[M-3, N-2]) where M >= 4, N >= 3", CORNERS), ("x: i32[M, N]) -> (y: i32[M, N])", SHARPER)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("signature", "body"), CASES, ids=["corners", "sharper"])
def test_what_windows_read_is_computed_in_strips_of_rows(signature: str, body: str, threads: int) -> None:
    program, machine = operator(signature, body), replace(SMALL, threads=threads, l2_bytes=5000)
    schedule = derive(program, machine)
    said = [show(d) for d in schedule.directives]
    cut = next(d.split()[1] for d in said if d.startswith("split ") and d.endswith("-> i_b, i"))
    assert any(d.startswith("at ") and d.endswith(f"at {cut}_b") for d in said)
    assert_same(program, proven(program, schedule), SIZES)


def test_what_is_made_and_read_at_its_own_points_shares_loops_in_a_strip_and_is_kept_for_a_point() -> None:
    said, other = (directives(operator(*case), replace(SMALL, l2_bytes=5000)) for case in CASES)
    assert said.index("together g, q -> i, j") < said.index("at g at a.i_b")
    assert not any(d.startswith("at q ") for d in said)
    assert other.index("together v, y -> i, j") < other.index("at u at v.i_b")


INSIDE = {
    "read by a window and at its own point": """
        u[i, j] = sum(p in 0..3, q in 0..2) x[i + p - 1, j + q | 0]   for i in 0..M, j in 0..N
        v[i, j] = u[i - 2, j | clamp] + u[i, j] * 3                   for i in 0..M, j in 0..N
        w[i, j] = u[i, j] * 2 - v[i, j]
        y[i, j] = w[i, j] + u[i, j]""",
    "read by maps of which windows read one": """
        u[i, j] = sum(p in 0..3, q in 0..2) x[i + p - 1, j + q | 0]   for i in 0..M, j in 0..N
        v[i, j] = x[i, j] * 2 - u[i, j]
        w[i, j] = u[i, j] * 2 - x[i, j]
        s[i, j] = max(v[i, j], w[i + 1, j | clamp])
        y[i, j] = s[i, j - 1 | clamp] - v[i, j + 2 | 0]""",
    "over rows of recurrences that two strips need": """
        t[i, j] = x[i, j] - t[i, j - 1 | 0]
        u[i, j] = t[i, j] * 2 - x[i, j]
        v[i, j] = sum(p in 0..3, q in 0..4) u[i + p - 1, j + q | 0]   for i in 0..M, j in 0..N
        w[i, j] = sum(p in 0..3, q in 0..4) v[i + p - 1, j + q | 0]   for i in 0..M, j in 0..N
        y[i, j] = w[i, j] + v[i, j]""",
}


AT_OTHER_RATES = {
    "half as many rows": ("x: i32[96, N]) -> (y: i32[192, N])", """
        u[i, j] = x[i, j - 1 | clamp] + 2 * x[i, j]                       for i in 0..96, j in 0..N
        y[i, j] = sum(p in 0..4) u[(i + 1) // 2 + p - 2, j | clamp] * 3   for i in 0..192, j in 0..N"""),
    "three times as many, and a map of rows in between": ("x: i32[96, N]) -> (y: i32[32, N])", """
        u[i, j] = x[i, j] * x[i, j]
        v[i, j] = u[i - 1, j | 0] - u[i, j]   for i in 0..96, j in 0..N
        y[i, j] = sum(p in 0..4) v[3 * i + p - 1, j | clamp]   for i in 0..32, j in 0..N"""),
    "blocks of rows as axes": ("x: i32[128, 24]) -> (y: i32[16, 3, 8, 8])", """
        u[i, j] = x[i, j] - x[i, j - 1 | clamp]   for i in 0..128, j in 0..24
        y[p, q, a, b] = u[8 * p + a, 8 * q + b] * 3   for p in 0..16, q in 0..3, a in 0..8, b in 0..8"""),
    "down and up again": ("x: i32[64, N]) -> (y: i32[64, N])", """
        u[i, j] = x[2 * i, j] + x[2 * i + 1, j]   for i in 0..32, j in 0..N
        v[i, j] = x[i, j] - u[i // 2, j]   for i in 0..64, j in 0..N
        w[i, j] = u[i, j] * u[i - 1, j | clamp]   for i in 0..32, j in 0..N
        y[i, j] = v[i, j] * 3 + w[i // 2, j]   for i in 0..64, j in 0..N"""),
}  # fmt: skip


def test_quotients_go_on_every_few_steps_only_which_is_no_step() -> None:
    i = Name("i")
    for slot, rate in ((affine.floor(i, 2), Fraction(1, 2)), (affine.maximum(affine.floor(i, 3), Int(0)), Fraction(1, 3))):
        assert (rate_inside(slot, "i"), step_inside(slot, "i")) == (rate, None)
    assert step_inside(affine.minimum(i, affine.floor(i, 2)), "i") is None
    assert (rate_inside(affine.scale(3, i), "i"), step_inside(affine.scale(3, i), "i")) == (3, 3)


@pytest.mark.parametrize(("signature", "body"), AT_OTHER_RATES.values(), ids=AT_OTHER_RATES)
def test_rows_that_are_read_at_another_rate_are_computed_in_strips(signature: str, body: str) -> None:
    program = operator(signature, body)
    schedule = derive(program, replace(SMALL, l2_bytes=7000))
    assert any(show(d).startswith("at ") and show(d).endswith("_b") for d in schedule.directives)
    assert_same(program, proven(program, schedule), SIZES)


@pytest.mark.parametrize("l2_bytes", [4000, 9000, 14000])
@pytest.mark.parametrize("body", INSIDE.values(), ids=INSIDE)
def test_sums_and_recurrences_run_in_strips(body: str, l2_bytes: int) -> None:
    program = operator("x: i32[M, N]) -> (y: i32[M, N])", body)
    assert_same(program, proven(program, derive(program, replace(SMALL, l2_bytes=l2_bytes, threads=2))), SIZES)


def test_threads_share_strips() -> None:
    text = CASES[1][1]
    module = load_module(parse(Source("f.tl", f"op f({CASES[1][0]} {{\n{text}\n}}")))
    program = instantiate(module, "f", [argument(p, {"M": 1000, "N": 900}) for p in module.operators["f"].params])
    said = directives(program, Machine(target="cpu", threads=2))
    assert "parallel v.i_b" in said


PLANES = """
    u[c, i, j] = x[c, i, j - 1 | clamp] + 2 * x[c, i, j] + x[c, i, j + 1 | clamp]
    v[c, i, j] = u[c, i - 2, j | clamp] + 2 * u[c, i, j] + u[c, i + 1, j | clamp]
    y[c, i, j] = b[c] * x[c, i, j] - v[c, i, j]"""


@pytest.mark.parametrize(("planes", "threads"), [(1, 1), (3, 2)])
def test_each_plane_that_no_near_cache_holds_is_computed_in_strips(planes: int, threads: int) -> None:
    program = operator(f"x: i32[{planes}, M, N], b: i32[{planes}]) -> (y: i32[{planes}, M, N])", PLANES)
    schedule = derive(program, replace(SMALL, threads=threads, l2_bytes=5000, cache_bytes=9000))
    said = [show(d) for d in schedule.directives]
    assert "at u at v.i_b" in said and "together v, y -> c, i, j" in said
    assert_same(program, proven(program, schedule), SIZES)


OF_ONE_PLANE = {
    "planes that are made of one": ("x: i32[3, M, N]) -> (y: i32[3, M, N])", """
        l[i, j] = x[0, i, j] + 2 * x[1, i, j] - x[2, i, j]   for i in 0..M, j in 0..N
        h[i, j] = max(l[i - 1, j | clamp], l[i + 1, j | clamp])   for i in 0..M, j in 0..N
        y[c, i, j] = x[c, i, j] * h[i, j]   for c in 0..3, i in 0..M, j in 0..N"""),
    "one that is made of planes": ("x: i32[9, M, N]) -> (y: i32[M, N])", """
        g[k, i, j] = x[k + 2, i, j] - x[k, i - 1, j | clamp] * x[k + 1, i, j]   for k in 0..7, i in 0..M, j in 0..N
        y[i, j] = max(k in 0..7) g[k, i, j]"""),
    "sums over windows that share loops with what is made of them": ("x: i32[M, N]) -> (y: i32[1, M, N])", """
        u[c, i, j] = x[i + 1, j | 0] * (i32(c) + 2)   for c in 0..1, i in 0..M, j in 0..N
        v[c, i, j] = sum(p in 0..3) u[c, i + p - 1, j | 0]   for c in 0..1, i in 0..M, j in 0..N
        y[c, i, j] = v[c, i, j] * 2 - 1"""),
    "rows that planes make for their own": ("x: i32[M, N]) -> (y: i32[3, M, N])", """
        u[i, j] = x[i + 1, j | 0] - 2 * x[i, j]   for i in 0..M, j in 0..N
        v[i, j] = u[i - 1, j | clamp] + 3 * u[i, j]
        h[c, i, j] = if (i + j) % 2 == 0 then u[i, j] * i32(c) else v[i, j]   for c in 0..3, i in 0..M, j in 0..N
        y[c, i, j] = max(p in 0..3) h[c, i, j + p - 1 | clamp]   for c in 0..3, i in 0..M, j in 0..N"""),
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("signature", "body"), OF_ONE_PLANE.values(), ids=OF_ONE_PLANE)
def test_strips_of_all_planes_are_computed_together(signature: str, body: str, threads: int) -> None:
    program = operator(signature, body)
    schedule = derive(program, replace(SMALL, l2_bytes=4000, threads=threads))
    assert any(show(d).startswith("at ") for d in schedule.directives)
    assert_same(program, proven(program, schedule), SIZES)


@pytest.mark.parametrize("threads", [1, 2])
def test_windows_over_planes_of_which_the_least_has_a_place_are_computed_in_strips_plane_by_plane(threads: int) -> None:
    body = """
    u[k, i, j] = abs(x[i, j] - z[i, j - k | clamp])   for k in 0..5, i in 0..M, j in 0..N
    s[k, i, j] = sum(p in 0..3, q in 0..3) u[k, i + p - 1, j + q - 1 | clamp]   for k in 0..5, i in 0..M, j in 0..N
    v[i, j], at[i, j] = first_min(k in 0..5) (s[k, i, j], k)   for i in 0..M, j in 0..N
    y[i, j] = i32(at[i + 1, j | clamp]) - v[i, j]"""
    program = operator("x: i32[M, N], z: i32[M, N]) -> (y: i32[M, N])", body)
    schedule = derive(program, replace(SMALL, l2_bytes=16_000, threads=threads))
    assert {"at v at y.i_b", "at s at y.i_b", "at u at s.k"} <= {show(d) for d in schedule.directives}
    assert_same(program, proven(program, schedule), SIZES)


@pytest.mark.parametrize(("planes", "shared"), [(1, "parallel v.i_b"), (3, "parallel v.c, v.i_b"), (64, "parallel v.c")])
def test_threads_share_planes_and_their_strips(planes: int, shared: str) -> None:
    module = load_module(
        parse(Source("f.tl", f"op f(x: f32[{planes}, M, N], b: f32[{planes}]) -> (y: f32[{planes}, M, N]) {{\n{PLANES}\n}}"))
    )
    program = instantiate(module, "f", [argument(p, {"M": 1000, "N": 900}) for p in module.operators["f"].params])
    assert shared in directives(program, Machine(target="cpu", threads=2, cache_bytes=1 << 23))
    assert ("parallel v.i_b" in directives(program, Machine(target="cpu", threads=2, cache_bytes=1 << 27))) == (planes == 1)


def test_rows_that_planes_keep_hold_what_strips_at_edges_need() -> None:
    body = """
    t[c, i, j] = x[c, i, j + 1 | wrap] + sum(p in 0..3) x[c, i + p - 1, j | 0]   for c in 0..2, i in 0..30, j in 0..21
    u[c, i, j] = 2 * t[c, i, j - 1 | wrap]                                       for c in 0..2, i in 0..30, j in 0..21
    y[c, i, j] = 3 * u[c, i + 2, j - 1 | clamp]                                  for c in 0..2, i in 0..30, j in 0..21"""
    program = operator("x: i32[2, 30, 21]) -> (y: i32[2, 30, 21])", body)
    schedule = derive(program, replace(SMALL, l2_bytes=2816, cache_bytes=2000))
    assert any(d.name == "fold" for d in schedule.directives)
    assert_same(program, proven(program, schedule), SIZES)


SIGNAL = """
    u[i] = x[i + 1 | clamp] - 3 * x[i]
    v[i] = sum(p in 0..5) u[i + p - 2 | 0]   for i in 0..P
    b[i] = v[2 * i | clamp] + v[2 * i + 1 | clamp]   for i in 0..P // 2
    m[i], at[i] = first_max(k in 0..3) (b[i // 2 + k | 0], i32(k))   for i in 0..P
    y[i] = m[i] - v[i + 3 | reflect] * at[i]"""


@pytest.mark.parametrize("threads", [1, 2])
def test_signals_are_computed_in_strips_of_points_that_the_nearest_cache_holds(threads: int) -> None:
    sizes = {"P": 4100}
    module = load_module(parse(Source("f.tl", f"op f(x: i32[P]) -> (y: i32[P]) where P >= 4 {{\n{SIGNAL}\n}}")))
    program = instantiate(module, "f", [argument(p, sizes) for p in module.operators["f"].params])
    machine = replace(SMALL, threads=threads, l1_bytes=1 << 15, l2_bytes=1 << 16)
    schedule = derive(program, machine)
    assert {"split y.i by 512 -> i_b, i", "at v at y.i_b", "at m at y.i_b"} <= {show(d) for d in schedule.directives}
    assert_same(program, proven(program, schedule), sizes)
    assert not any("i_b" in d for d in directives(program, replace(machine, l2_bytes=1 << 18)))


def test_maps_of_a_signal_share_one_loop_in_which_nothing_is_kept() -> None:
    module = load_module(
        parse(Source("f.tl", "op f(x: i32[P]) -> (y: i32[P]) { u[i] = 2 * x[i]\nv[i] = u[i] * u[i]\ny[i] = v[i] - u[i] }"))
    )
    program = instantiate(module, "f", [argument(p, {"P": 4100}) for p in module.operators["f"].params])
    said = directives(program)
    assert "together u, v, y -> i" in said and not any("i_b" in d for d in said)


def test_what_a_near_cache_holds_is_computed_whole() -> None:
    for signature, body in CASES:
        assert not any("i_b" in d for d in directives(operator(signature, body), replace(SMALL, l2_bytes=1 << 20)))


def test_a_result_and_what_is_read_in_other_rows_are_computed_whole() -> None:
    result = operator("x: i32[M, N]) -> (u: i32[M, N], y: i32[M, N])", SHARPER)
    turned = operator("x: i32[M, M]) -> (y: i32[M, M])", "u[i, j] = x[i, j] + 1\ny[i, j] = u[j, i] + u[M - 1 - i, j]")
    for program in (result, turned):
        assert not any(d.startswith("at u") for d in directives(program))


@pytest.mark.parametrize(("mode", "are_cut"), [("clamp", True), ("reflect", True), ("wrap", False)])
@pytest.mark.parametrize("rows", [121, 134])
def test_edges_need_rows_near_by_but_where_these_wrap_around(mode: str, rows: int, *, are_cut: bool) -> None:
    body = f"""
    u[i, j] = x[i, j - 1 | clamp] + 2 * x[i, j]
    y[i, j] = 3 * x[i, j] - sum(p in 0..4) u[i + p - 1, j | {mode}]   for i in 0..{rows}, j in 0..21"""
    program = operator(f"x: i32[{rows}, 21]) -> (y: i32[{rows}, 21])", body)
    schedule = derive(program, replace(SMALL, l2_bytes=6000))
    assert any(show(d).startswith("at u at") for d in schedule.directives) == are_cut
    assert_same(program, proven(program, schedule), {})


FILTERED = """
    f[i, j] = x[i, j] + f[i, j - 1 | 0]
    b[i, j] = x[i, j] + 2 * b[i, j + 1 | 0]
    r[i, j] = f[i, j] - b[i, j]
    y[i, j] = r[i - 1, j | clamp] + r[i, j]"""


@pytest.mark.parametrize("threads", [1, 2])
def test_recurrences_along_rows_are_computed_in_strips_of_as_many_rows_as_there_are_lanes(threads: int) -> None:
    program, machine = operator("x: i32[M, N]) -> (y: i32[M, N])", FILTERED), replace(SMALL, threads=threads, l2_bytes=5000)
    schedule = derive(program, machine)
    said = [show(d) for d in schedule.directives]
    assert said[:4] == ["split y.i by 6 -> i_b, i", "at f at y.i_b", "at b at y.i_b", "at r at y.i_b"]
    assert "reverse b.j" in said
    assert_same(program, proven(program, schedule), SIZES)


def test_steps_of_a_recurrence_before_the_one_that_is_read_are_computed_in_strips_too() -> None:
    body = """
    at[i, j, 0] = 0
    at[i, j, t + 1] = 2 * at[i, j, t] + x[i, (at[i, j, t] + j) % 8]   for i in 0..M, j in 0..N, t in 0..4
    y[i, j] = at[i, j, 4] - x[i, 0]"""
    program = operator("x: i32[M, N]) -> (y: i32[M, N]) where N >= 8", body)
    schedule = derive(program, replace(SMALL, l2_bytes=7000))
    said = [show(d) for d in schedule.directives]
    assert said[1] == "at `at` at y.i_b" and "fold `at` at t by 1" in said
    assert_same(program, proven(program, schedule), SIZES)


def test_recurrences_along_columns_are_computed_whole() -> None:
    body = FILTERED.replace("f[i, j - 1 | 0]", "f[i - 1, j | 0]").replace("b[i, j + 1 | 0]", "b[i + 1, j | 0]")
    said = directives(operator("x: i32[M, N]) -> (y: i32[M, N])", body), replace(SMALL, l2_bytes=5000))
    assert not any(d.startswith(("at f", "at b")) for d in said)


def test_what_runs_together_several_rows_at_a_time_has_loops_of_its_own_in_a_strip() -> None:
    body = """
    c[i, j, k] = sum[i32](u in 0..7, v in 0..7) abs(i32(l[i + u, j + v + 16]) - i32(r[i + u, j + v + 16 - k]))
                 for i in 0..M-6, j in 0..N-22, k in 0..16
    d[i, j]    = argmin(k) c[i, j, k]"""
    text = f"op f(l: u8[M, N], r: u8[M, N]) -> (d: i64[M-6, N-22]) where M >= 7, N >= 23 {{{body}\n}}"
    module = load_module(parse(Source("f.tl", text)))
    program = instantiate(module, "f", [argument(p, {"M": 100, "N": 160}) for p in module.operators["f"].params])
    schedule = derive(program, Machine(target="cpu", threads=1))
    assert "at c at d.i" in [show(d) for d in schedule.directives]
    proven(program, schedule)
