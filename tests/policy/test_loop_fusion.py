"""Tensors that need each other at their own points alone, or read the same, are computed in one loop nest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import assert_same, loops, operator

from codegen.loops.nodes import Alloc
from codegen.loops.walk import walk
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MACHINE = Machine(target="cpu", threads=2)


def directives(program: Program) -> list[str]:
    return [show(d) for d in derive(program, MACHINE).directives]


CHAIN = """
    u[i] = x[i] - w[i]
    v[i] = u[i] * u[i] + x[i]
    y[i] = u[i] + v[i]
    z[i] = max(v[i], w[i])"""


def test_what_no_caller_asked_for_of_a_chain_is_kept_in_registers() -> None:
    program = operator("x: i32[N], w: i32[N]) -> (y: i32[N], z: i32[N])", CHAIN, {"N": 37})
    plan = proven(program, derive(program, MACHINE))
    assert "together u, v, y, z -> i" in directives(program)
    assert {s.buffer.space for s in walk(*loops(plan).body) if isinstance(s, Alloc)} == {"registers"}
    assert_same(program, plan, {})


@pytest.mark.parametrize("n", [0, 1, 16, 45])
def test_chains_of_any_length_are_those_of_the_equations(n: int) -> None:
    program = operator("x: i32[N], w: i32[N]) -> (y: i32[N], z: i32[N])", CHAIN)
    assert_same(program, proven(program, derive(program, MACHINE)), {"N": n})


def test_results_that_read_the_same_elements_share_a_loop_nest() -> None:
    body = """
    y[i, j] = 2 * x[i, j, 0] + x[i, j, 1]
    u[i, j] = x[i, j, 0] - x[i, j, 2]"""
    program = operator("x: i32[H, W, 3]) -> (y: i32[H, W], u: i32[H, W])", body, {"H": 5, "W": 19})
    assert any(d.startswith("together y, u") for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        pytest.param("x: i32[N]) -> (y: i32[N])", "u[i] = 2 * x[i]\n y[i] = u[i] + u[i + 1 | clamp]", id="neighbours"),
        pytest.param("x: i32[N]) -> (y: i32[N])", "u[i] = 2 * x[i]\n s = sum(i) u[i]\n y[i] = u[i] - s", id="a sum in between"),
        pytest.param("x: i32[N]) -> (y: i32[N], s: i32)", "y[i] = u[i] + 1\n s = sum(i) u[i]\n u[i] = 2 * x[i]", id="written backwards"),
        pytest.param("x: i32[N], w: i32[M], c: i32) -> (y: i32[N], z: i32[M])", "y[i] = c * x[i]\n z[j] = w[j] + c", id="other boxes"),
        pytest.param("x: i32[N, N]) -> (y: i32[N, N], z: i32[N, N])", "y[i, j] = x[i, j] + 1\n z[i, j] = x[j, i] + 1", id="turned"),
        pytest.param("x: i32[N], w: i32[N]) -> (y: i32[N], z: i32[N])", "y[i] = 2 * x[i]\n z[i] = w[i] + 1", id="nothing in common"),
    ],
)
def test_tensors_that_cannot_run_point_by_point_keep_loops_of_their_own(signature: str, body: str) -> None:
    program = operator(signature, body)
    assert not any(d.startswith("together") for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {"N": 21, "M": 13})


def test_what_others_make_of_one_of_them_runs_after_loops_that_do_not_need_it() -> None:
    program = operator("x: i32[N]) -> (y: i32[N], s: i32)", "u[i] = 2 * x[i]\n s = sum(i) u[i]\n y[i] = u[i] + 1")
    assert "together u, y -> i" in directives(program)
    assert_same(program, proven(program, derive(program, MACHINE)), {"N": 21})


IN_PIECES = """
    u[i, j] = x[i, j] + 3 * x[i + 1, j]     for i in 0..H-1, j in 0..W
    z[i, j] = u[i, j] + x[i, j]             for i in 0..H-1, j in 0..W-1
    z[i, j] = x[0, j]                       otherwise
    y[i, j] = z[i, j] - x[i, j - 1]         for i in 1..H, j in 1..W
    y[i, j] = 7 * x[i, j]                   otherwise"""


def test_maps_in_pieces_at_the_ends_of_axes_share_a_loop_nest_whose_inside_asks_nothing() -> None:
    sizes = {"H": 4, "W": 101}
    program = operator("x: i32[H, W]) -> (z: i32[H, W], y: i32[H, W]) where H >= 2, W >= 2", IN_PIECES, sizes)
    plan = proven(program, derive(program, MACHINE))
    assert "together u, z, y -> i, j" in directives(program)
    assert {s.buffer.space for s in walk(*loops(plan).body) if isinstance(s, Alloc)} == {"registers"}
    assert_same(program, plan, {})


@pytest.mark.parametrize(
    ("guard", "width"),
    [
        pytest.param("j % 2 == 0", 101, id="other elements"),
        pytest.param("j < i", 101, id="a triangle"),
        pytest.param("j > 0", 40, id="short rows"),
    ],
)
def test_maps_in_pieces_that_meet_in_most_vectors_keep_loops_of_their_own(guard: str, width: int) -> None:
    body = f"y[i, j] = x[i, j] + 1 for i in 0..H, j in 0..W, {guard}\n y[i, j] = 2 * x[i, j] otherwise\n z[i, j] = y[i, j] + x[i, j]"
    program = operator("x: i32[H, W]) -> (z: i32[H, W], y: i32[H, W])", body, {"H": 3, "W": width})
    assert not any(d.startswith("together") for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_elements_that_data_name_are_computed_with_in_lanes_and_fetched_one_by_one() -> None:
    table = operator("t: i32[V], at: i32[N] in 0..V) -> (y: i32[N])", "y[i] = 3 * t[at[i]] - 1", {"V": 9, "N": 35})
    assert any(d.startswith("vectorize y.i") for d in directives(table))
    assert_same(table, proven(table, derive(table, MACHINE)), {})
    moved = operator("t: i32[V], at: i32[N] in 0..V) -> (y: i32[N])", "y[i] = t[at[i]]", {"V": 9, "N": 35})
    assert not any(d.startswith("vectorize") for d in directives(moved))


SUMS = """
    n[i, j] = sum(p in 0..3, q in 0..5) max(x[i + p, j + q], i32(p + q)) * x[i + p, j + q]   for i in 0..H-2, j in 0..W-4
    m[i, j] = sum(p in 0..3, q in 0..5) max(x[i + p, j + q], i32(p + q))                     for i in 0..H-2, j in 0..W-4
    y[i, j] = n[i, j] - 3 * m[i, j]"""


def test_sums_over_the_same_ranges_share_their_loops_with_those_that_read_them() -> None:
    program = operator("x: i32[H, W]) -> (y: i32[H - 2, W - 4]) where H >= 2, W >= 4", SUMS, {"H": 6, "W": 41})
    found = directives(program)
    assert "together n, m, y -> i, j" in found
    assert "together n, m -> p, q" in found
    assert_same(program, proven(program, derive(program, MACHINE)), {})


REGRESSION = """
    u[b]     = sum(n) x[b, n]
    v[b]     = sum(n) z[b, n]
    uv[b]    = sum(n) x[b, n] * z[b, n]
    uu[b]    = sum(n) x[b, n] * x[b, n]
    slope[b] = uv[b] * 3 - u[b] * v[b] + uu[b]
    rest[b]  = v[b] - slope[b] * u[b]"""


@pytest.mark.parametrize(("b", "n"), [(1, 70), (7, 257), (9, 64)])
def test_sums_along_the_same_rows_share_their_loops_with_what_reads_them(b: int, n: int) -> None:
    program = operator("x: i32[B, N], z: i32[B, N]) -> (slope: i32[B], rest: i32[B])", REGRESSION, {"B": b, "N": n})
    plan = proven(program, derive(program, MACHINE))
    shared = [d for d in directives(program) if d.startswith("together")]
    assert shared == ["together u, v, uv, uu, slope, rest -> b", "together u, v, uv, uu -> n"]
    assert_same(program, plan, {})


@pytest.mark.parametrize("n", [1, 7, 64, 131])
def test_the_least_and_the_greatest_element_are_found_in_one_loop(n: int) -> None:
    program = operator("x: i32[N]) -> (lo: i32, hi: i32) where N >= 1", "lo = min(i) x[i]\n hi = max(i) x[i]")
    assert "together lo, hi -> i" in directives(program)
    assert_same(program, proven(program, derive(program, MACHINE)), {"N": n})


@pytest.mark.parametrize(
    ("signature", "value", "shared"),
    [
        pytest.param(
            "x: i32[N], w: i32[N]) -> (y: i32)", "(sum(i) x[i] * w[i]) * (sum(j) x[j]) - sum(k) w[k]", ["y.i, y.j, y.k -> i"], id="scalar"
        ),
        pytest.param("x: i32[N, M]) -> (y: i32[N])", "(max(j) x[i, j]) - min(k) x[i, k]", ["y.j, y.k -> j"], id="extremes of rows"),
        pytest.param(
            "x: i32[N, M], w: i32[M]) -> (y: i32)",
            "(sum(a, b) x[a, b] * w[b]) - sum(c, d) x[c, d]",
            ["y.a, y.c -> a", "y.b, y.d -> b"],
            id="two ranges",
        ),
        pytest.param("x: i32[N], w: i32[N]) -> (y: i32)", "(sum(i) x[i]) - sum(j) w[j]", [], id="nothing read in common"),
        pytest.param("x: i32[N]) -> (y: i32)", "(sum(i) x[i]) - sum(j in 0..N//2) x[j]", [], id="other ranges"),
    ],
)
def test_sums_of_one_equation_over_the_same_ranges_share_their_loops(signature: str, value: str, shared: list[str]) -> None:
    program = operator(signature, f"y{'[i]' if 'y: i32[N]' in signature else ''} = {value}", {"N": 37, "M": 21})
    assert [d for d in directives(program) if d.startswith("together")] == [f"together {loops}" for loops in shared]
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_sums_whose_terms_need_one_another_keep_loops_of_their_own() -> None:
    body = """
    n[i] = sum(p in 0..3) x[i + p | clamp]   for i in 0..N
    u[i] = 2 * n[i]
    m[i] = sum(p in 0..3) (x[i + p | clamp] * u[i])
    y[i] = n[i] + m[i]"""
    program = operator("x: i32[N]) -> (y: i32[N])", body, {"N": 40})
    assert not any(d.startswith("together") and d.endswith("p") for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


PAIRS = """
    d[i, j] = x[i] - x[j]
    w[i, j] = max(d[i, j] * d[i, j], 3)
    a[i] = sum(j) w[i, j] * d[i, j]
    b[i] = max(j) (w[i, j] - d[i, j])"""


def test_sums_that_ask_for_one_another_in_conditions_keep_loops_of_their_own() -> None:
    """Of rows of one element, an element's place and what lies at it."""
    body = "p[i, j] = sum(k, x[i, k] < x[i, j]) i32(1)\ny[i, q] = sum(j, p[i, j] == q) x[i, j]"
    program = operator("x: i32[M, N]) -> (y: i32[M, N])", body, {"M": 9, "N": 1})
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_what_sums_alone_need_for_each_term_is_kept_in_registers() -> None:
    program = operator("x: i32[N]) -> (a: i32[N], b: i32[N])", PAIRS, {"N": 37})
    plan = proven(program, derive(program, MACHINE))
    assert {"together d, w, a, b -> i", "together d, w, a, b -> j"} <= {*directives(program)}
    assert {s.buffer.space for s in walk(*loops(plan).body) if isinstance(s, Alloc)} == {"registers"}
    assert_same(program, plan, {})


@pytest.mark.parametrize("n", [0, 1, 16, 45])
def test_sums_of_what_is_made_for_their_terms_are_those_of_the_equations_for_all_sizes(n: int) -> None:
    program = operator("x: i32[N]) -> (a: i32[N], b: i32[N])", PAIRS)
    assert_same(program, proven(program, derive(program, MACHINE)), {"N": n})


@pytest.mark.parametrize("n", [0, 1, 16, 45])
def test_sums_that_start_from_a_value_keep_what_is_made_for_their_terms_in_registers(n: int) -> None:
    body = """
    u[i, j] = x[i] * z[j]
    v[i, j] = x[i] - z[j]
    y[i]    = min(j, u[i, j] >= 0, v[i, j] >= 0, from x[i]) (u[i, j] + v[i, j])"""
    program = operator("x: i32[N], z: i32[7]) -> (y: i32[N])", body)
    plan = proven(program, derive(program, MACHINE))
    assert {"together u, v, y -> i", "together u, v, y -> j"} <= {*directives(program)}
    assert {s.buffer.space for s in walk(*loops(plan).body) if isinstance(s, Alloc)} == {"registers"}
    assert_same(program, plan, {"N": n})


ROWS = """
    h[b] = any(i in 0..4, j in 0..8) (all(k in 0..3) (x[b, i, j + k] == 1))
    v[b] = any(i in 0..2, j in 0..10) (all(k in 0..3) (x[b, i + k, j] == 1))
    y[b] = h[b] or v[b]"""


def test_terms_that_lie_side_by_side_are_in_lanes_though_they_fill_a_part_of_a_vector() -> None:
    program = operator("x: i8[B, 4, 10]) -> (y: bool[B])", ROWS, {"B": 66})
    schedule = derive(program, MACHINE)
    lanes = [x.split(".")[-1] for x in map(show, schedule.directives) if x.startswith(("vectorize h", "vectorize v"))]
    assert lanes and all(loop.startswith("j") for loop in lanes)
    assert_same(program, proven(program, schedule), {})


def test_what_is_made_for_terms_may_need_what_is_made_for_their_points() -> None:
    body = """
    l[i] = 2 * x[i] + 1
    w[i, j] = l[i] * z[j]
    v[i, j] = w[i, j] + x[i]
    a[i] = min(j) v[i, j]
    k[i] = argmin(j) v[i, j]"""
    program = operator("x: i32[N], z: i32[M]) -> (a: i32[N], k: i64[N])", body, {"N": 21, "M": 7})
    assert {"together l, w, v, a, k -> i", "together w, v, a, k -> j"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        pytest.param("x: i32[N]) -> (a: i32[N], w: i32[N, N])", "w[i, j] = x[i] * x[j]\n a[i] = max(j) w[i, j]", id="a result"),
        pytest.param("x: i32[N]) -> (a: i32[N])", "w[i, j] = x[i] - x[j]\n a[i] = sum(j) w[j, i]", id="turned"),
        pytest.param("x: i32[N]) -> (a: i32[N])", "a[i] = 2 * x[i]\n w[i, j] = a[i] - x[j]", id="read by nobody"),
        pytest.param("x: i32[N]) -> (a: i32[N])", "w[i, j] = x[i] - x[j]\n a[i] = sum(j in 0..i) w[i, j]", id="some of them"),
        pytest.param(
            "x: i32[N]) -> (a: i32[N])",
            "w[i, j] = x[i] - x[j]\n m[i] = max(j) w[i, j]\n a[i] = sum(j) (w[i, j] - m[i])",
            id="terms that need a sum of others",
        ),
    ],
)
def test_what_is_needed_elsewhere_has_loops_of_its_own(signature: str, body: str) -> None:
    program = operator(signature, body, {"N": 37})
    assert not any(d.startswith("together") and " w" in d for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


NEAREST = """
    far[i, k] = sum(c in 0..3) abs(x[i, c] - p[k, c])
    y[i]      = READER"""


@pytest.mark.parametrize("reader", ["argmin(k in 0..7) far[i, k]", "min(k in 0..7) far[i, k]", "sum(k in 0..7) far[i, k] * far[i, k]"])
@pytest.mark.parametrize("n", [0, 1, 16, 45])
def test_few_terms_of_what_is_made_for_the_terms_of_others_are_written_out(reader: str, n: int) -> None:
    signature = "x: i32[N, 3], p: i32[7, 3]) -> (y: i64[N])".replace("i64", "i64" if reader.startswith("arg") else "i32")
    program = operator(signature, NEAREST.replace("READER", reader))
    assert {"together far, y -> i", "together far, y -> k", "unroll far.c"} <= {*directives(program)}
    plan = proven(program, derive(program, MACHINE))
    assert {s.buffer.space for s in walk(*loops(plan).body) if isinstance(s, Alloc)} == {"registers"}
    assert_same(program, plan, {"N": n})


@pytest.mark.parametrize("n", [0, 1, 45])
def test_the_least_of_what_is_made_for_terms_is_found_with_its_place(n: int) -> None:
    body = NEAREST.replace("y[i]      = READER", "m[i], y[i] = first_min(k in 0..7) (far[i, k], k)")
    program = operator("x: i32[N, 3], p: i32[7, 3]) -> (m: i32[N], y: i64[N])", body)
    plan = proven(program, derive(program, MACHINE))
    assert {"together far, m -> i", "together far, m -> k"} <= {*directives(program)}
    assert {s.buffer.space for s in walk(*loops(plan).body) if isinstance(s, Alloc)} == {"registers"}
    assert_same(program, plan, {"N": n})


def test_what_is_made_for_terms_of_terms_has_loops_of_its_own() -> None:
    body = """far[i, k]  = sum(c in 0..3) (i32(x[i, c]) - i32(p[k, c])) * (i32(x[i, c]) - i32(p[k, c]))
    m[i], a[i] = first_min(k in 0..5) (far[i, k], k)
    y[i]       = u8(a[i])
    all        = sum(i) i64(m[i])"""
    program = operator("x: u8[N, 3], p: u8[5, 3]) -> (y: u8[N], all: i64)", body, {"N": 77})
    assert not any("together far, m, all" in line for line in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_what_reads_one_of_several_results_has_loops_of_its_own() -> None:
    body = """
    w[i, j]    = x[i] - x[j]
    m[i], k[i] = first_min(j) (w[i, j], j)
    y[i]       = m[i] + i32(k[i])"""
    program = operator("x: i32[N]) -> (y: i32[N])", body, {"N": 37})
    assert not any(" y" in d for d in directives(program) if d.startswith("together"))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_products_and_many_terms_keep_the_tiles_of_their_own_loops() -> None:
    for term in ("sum(c in 0..3) x[i, c] * p[k, c]", "sum(c in 0..16) abs(x[i, c | 0] - p[k, c | 0])"):
        body = NEAREST.replace("sum(c in 0..3) abs(x[i, c] - p[k, c])", term).replace("READER", "min(k in 0..7) far[i, k]")
        assert not any(d.startswith("together") for d in directives(operator("x: i32[N, 3], p: i32[7, 3]) -> (y: i32[N])", body)))


@pytest.mark.parametrize("sizes", [{"N": 23, "K": 5}, {}])
def test_sums_of_one_equation_share_the_loops_of_what_is_made_for_their_terms(sizes: dict[str, int]) -> None:
    body = """
    w[i, k] = 1 + x[i, k] * x[i, k]
    y[i]    = sum(k) w[i, k] * v[k] - sum(k) w[i, k] * w[i, k]"""
    program = operator("x: i32[N, K], v: i32[K]) -> (y: i32[N])", body, sizes)
    schedule = derive(program, MACHINE)
    assert [show(x) for x in schedule.directives[:2]] == ["lift y", "together w, y.sum, y.sum_1, y -> i"]
    assert_same(program, proven(program, schedule), sizes or {"N": 23, "K": 5})


def test_sums_of_one_equation_stay_where_others_read_their_terms() -> None:
    program = operator(
        "x: i32[N, K]) -> (y: i32[N], w: i32[N, K])", "w[i, k] = 1 + x[i, k]\n y[i] = sum(k) w[i, k] + max(k, from 0) w[i, k]"
    )
    assert not any(x.startswith("lift") for x in directives(program))


def test_sums_that_read_the_same_rows_and_columns_share_a_tile_of_several_rows() -> None:
    body = """
    r[i, j] = sum(k) (a[i, k] * b[k, j] - c[i, k] * e[k, j])
    s[i, j] = sum(q) (a[i, q] * e[q, j] + c[i, q] * b[q, j])"""
    signature = "a: i32[M, K], c: i32[M, K], b: i32[K, N], e: i32[K, N]) -> (r: i32[M, N], s: i32[M, N])"
    program = operator(signature, body, {"M": 8, "K": 5, "N": 37})
    schedule = derive(program, Machine(target="cpu", vector_bytes=32, vector_registers=16))
    found = [show(d) for d in schedule.directives]
    assert found[:4] == ["together r, s -> i, j", "together r, s -> k", "split r.i by 2 -> i_o, i_t", "split r.j by 16 -> j_o, j_v"]
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize("n", [0, 1, 16, 45])
def test_sums_of_the_terms_that_data_choose_share_loops_with_those_that_read_them(n: int) -> None:
    body = """
    c[i] = sum(k in 0..5, (w[k] > x[i]) != (w[k + 1] > x[i])) w[k]
    y[i] = c[i] % 2"""
    program = operator("x: i32[N], w: i32[6]) -> (y: i32[N])", body)
    schedule = derive(program, MACHINE)
    assert {"at c at y.i_o", "vectorize c.i_v"} <= {show(d) for d in schedule.directives}
    assert_same(program, proven(program, schedule), {"N": n})


@pytest.mark.parametrize(("height", "order"), [(3, "order m.j_o, m.i, m.l, y.k, m.j_v"), (1, "order m.i, m.j_o, m.l, y.k, m.j_v")])
def test_windows_over_long_rows_share_loops_with_what_reads_them_column_by_column(height: int, order: str) -> None:
    body = """
    m[i, j] = max(l in 0..4) x[i, j + l]             for j in 0..W
    y[i, j] = sum(k in 0..8) abs(b[k, j] - m[i, j])"""
    program = operator("x: i32[H, V], b: i32[8, W]) -> (y: i32[H, W])", body, {"H": height, "V": 133, "W": 130})
    schedule = derive(program, Machine(target="cpu", l1_bytes=1 << 10, l2_bytes=1 << 12))
    assert {"together m, y -> i, j", order} <= {show(d) for d in schedule.directives}
    assert_same(program, proven(program, schedule), {})


def test_windows_that_wrap_take_whole_rows_where_each_of_few_blocks_would_have_an_edge() -> None:
    body = """
    s[i, j] = (sum(a in 0..3, b in 0..3) x[i + a - 1, j + b - 1 | wrap]) - x[i, j]
    y[i, j] = if s[i, j] == 3 or (s[i, j] == 2 and x[i, j] == 1) then 1 else 0"""
    program = operator("x: u8[H, W]) -> (y: u8[H, W])", body, {"H": 200, "W": 256})
    schedule = derive(program, replace(MACHINE, threads=1))
    assert "split s.j by 256 -> j_o, j_w" in map(show, schedule.directives)
    proven(program, schedule)


def test_accumulators_of_sums_that_share_a_tile_and_read_nothing_in_common_fit_in_registers() -> None:
    body = "".join(
        f"\n    {s}[i, j] = sum(p in 0..3, q in 0..3) {x}[i + p, j + q] for i in 0..H-2, j in 0..W-2" for s, x in ("au", "bv", "cw")
    )
    signature = "u: i32[H, W], v: i32[H, W], w: i32[H, W]) -> (y: i32[H - 2, W - 2])"
    program = operator(signature, f"{body}\n    y[i, j] = a[i, j] * c[i, j] - b[i, j]", {"H": 3, "W": 400})
    schedule = derive(program, Machine(target="cpu", vector_bytes=32, vector_registers=32))
    found = [show(d) for d in schedule.directives]
    assert found[:3] == ["together a, b, c, y -> i, j", "together a, b, c -> p, q", "split a.j by 64 -> j_o, j_v"]
    assert_same(program, proven(program, schedule), {})


def test_quotients_of_constants_that_domains_leave_over_are_numbers() -> None:
    body = """
    y[i, j] = sum(k in 0..2) x[min(i + k, H - 1), j]                for i in 0..H, j in 0..W, j % 3 == 1
    y[i, j] = x[(i * 3) % H, j] + x[i, max(j - 1, 0)]               otherwise
    z[i, j] = y[i, j] + x[i, max(j - 3, 0)] + x[i, max(j - 2, 0)]"""
    program = operator("x: i32[H, W]) -> (y: i32[H, W], z: i32[H, W])", body, {"H": 16, "W": 4})
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_loops_that_would_wait_for_each_other_are_not_made() -> None:
    body = """
    a[i] = 2 * x[i]
    p[i] = sum(j) a[j] * w[i, j]
    b[i] = v[i] * v[i]
    q[i] = sum(j) b[j] * w[j, i]
    y[i] = p[i] + v[i]
    z[i] = q[i] + a[i]"""
    program = operator("x: i32[N], v: i32[N], w: i32[N, N]) -> (y: i32[N], z: i32[N])", body, {"N": 37})
    assert [d for d in directives(program) if d.startswith("together")] == ["together b, y -> i"]
    assert_same(program, proven(program, derive(program, MACHINE)), {})
