"""What each directive does to loops: golden texts. Every schedule computes what its operator says, at any size."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from golden_case import GOLDEN, cases, source
from scheduled_programs import Written, assert_same, declared, legal, loops, small, some_sizes

from codegen.loops.interp import run
from codegen.loops.printer import show
from codegen.loops.verify import verify
from polyhedral.schedule import show as show_tree
from tensorlang.diagnostics import CompileError
from tensorlang.schedule.apply import outline
from tensorlang.schedule.check import proven
from tensorlang.schedule.directives.table import DIRECTIVES
from tensorlang.schedule.plan import Plan
from tensorlang.tensor.interp import interpret

CASES = cases("schedules")
NOT_EXACT = {"cholesky_by_rows", "cholesky_left_looking", "cholesky_right_looking"}


@cache
def legal_case(case: Path) -> tuple[Written, Plan]:
    return legal(source(case))


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_the_loops_of_a_schedule_are_the_golden_ones(case, golden_case):
    found, plan = legal_case(case)
    function = loops(plan)
    verify(function)
    golden_case(case, f"{found.schedule}\n\n{show_tree(plan.placed)}\n{show(function)}")


@pytest.mark.parametrize("case", [c for c in CASES if c.stem not in NOT_EXACT], ids=lambda p: p.stem)
def test_a_schedule_computes_what_its_operator_says(case):
    found, plan = legal_case(case)
    for sizes in some_sizes(plan.served(found.program)):
        assert_same(found.program, plan, sizes)


@pytest.mark.parametrize("case", sorted(NOT_EXACT))
def test_every_order_of_a_factorisation_gives_the_factors(case):
    found, plan = legal_case(GOLDEN / "schedules" / f"{case}.tl")
    rng = np.random.default_rng(3)
    for n in (1, 2, 7):
        half = small(rng, (n, n), np.float64)
        a = (half @ half.T + 8 * np.eye(n)).astype(np.float32)
        expected = interpret(found.program, {"N": n}, {"a": a})["l"]
        arrays = {"a": a.copy(), "l": np.full((n, n), 77, np.float32)}
        run(loops(plan), {"N": n}, arrays)
        np.testing.assert_allclose(arrays["l"], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(arrays["l"] @ arrays["l"].T, a, rtol=1e-4)


def test_there_are_golden_loops_for_every_directive():
    """In a file of their own, or under the schedule on a page about directives, whose loops are compared as well."""
    used = {d.name for case in CASES for d in legal_case(case)[0].schedule.directives}
    pages = sorted((GOLDEN.parents[1] / "docs" / "schedules").glob("*.md"))
    page = "\n".join(path.read_text("utf-8") for path in pages)
    shown = re.findall(r"^```tl\nschedule (.*?)^```\n+```(?:loops|device)", page, re.MULTILINE | re.DOTALL)
    used |= {line.split()[0] for text in shown for line in text.splitlines()[1:] if line.strip() not in ("", "}")}
    assert used >= DIRECTIVES
    assert len(used & DIRECTIVES) == len(DIRECTIVES) >= 38


def test_sizes_known_when_compiling_give_the_same_results():
    found, _ = legal(source(GOLDEN / "schedules" / "register_tile.tl"))
    program = declared(found.module, "matmul", M=9, K=5, N=17)
    assert_same(program, proven(program, found.schedule), {})


ACROSS = """
op nt(a: f32[M, K], b: f32[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[j, k] }
schedule nt for cpu {
    split j by 32 -> jo, ji
    order jo, i, k, ji
    pack b as [jo, k, ji]
}
"""


@pytest.mark.parametrize("inner", [40, 7], ids=["long rows", "rows shorter than a square"])
def test_a_copy_whose_vectors_lie_across_what_it_reads_is_made_in_squares(inner):
    found, _ = legal(ACROSS)
    program = declared(found.module, "nt", M=3, K=inner, N=70)
    plan = proven(program, found.schedule)
    copy = show_tree(plan.placed).split("y.jo")[0]
    assert ("vector b.pack.jit" in copy and "unroll b.pack.kt" in copy) == (inner >= 16)
    assert_same(program, plan, {})


def test_a_copy_of_open_sizes_that_lies_across_what_it_reads_is_made_in_squares():
    found, plan = legal(ACROSS)
    copy = show_tree(plan.placed).split("y.jo")[0]
    assert "vector b.pack.jit" in copy and "unroll b.pack.kt" in copy
    for k in (0, 7, 40):
        assert_same(found.program, plan, {"M": 3, "K": k, "N": 70})


@pytest.mark.parametrize(("extent", "factor", "tiles"), [(12, 4, 3), (13, 4, 4), (3, 4, 1)])
def test_a_split_loop_has_a_tile_for_what_is_left_over(extent, factor, tiles):
    text = f"op f(x: f32[{extent}]) -> (y: f32[{extent}]) {{ y[i] = 2 * x[i] }}\nschedule f for cpu {{ split i by {factor} -> io, ii }}"
    found, _ = legal(text)
    extents = outline(found.program, found.schedule).extents
    assert (extents["y.io"], extents["y.ii"]) == (tiles, factor)


def test_pieces_that_are_reversed_together_keep_the_range_of_their_loop():
    pieces = "op f(x: f32[8]) -> (y: f32[8]) {\n    y[i] = x[i] for i < 4\n    y[i] = 0 otherwise\n}\n"
    found, plan = legal(f"{pieces}schedule f for cpu {{ reverse i }}")
    parts = [part for part in ("for y_i in 0 .. 4 serial 4 {", "for y_i in 4 .. 8 serial 4 {") if part in show(loops(plan))]
    assert len(parts) == 2
    assert_same(found.program, plan, {})


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (1, 12), (5, 3)])
def test_a_fused_loop_has_the_iterations_of_both(rows, columns):
    operator = f"op f(x: f32[{rows}, {columns}]) -> (y: f32[{rows}, {columns}]) {{ y[i, j] = 2 * x[i, j] }}"
    found, _ = legal(f"{operator}\nschedule f for cpu {{ fuse i, j -> ij }}")
    assert outline(found.program, found.schedule).extents["y.ij"] == rows * columns
    assert_same(found.program, proven(found.program, found.schedule.vectorize("y.ij")), {})


@pytest.mark.parametrize(
    ("directive", "loops"),
    [
        ("affine y (i // 4, k, i % 4) -> io, kk, ii", "io kk ii j"),
        ("affine y (k // 2, i + j, j, 2, k % 2) -> ko, d, jj, one, kr", "ko d jj one kr"),
        ("affine y (K - k, i) -> kk, i", "kk i j"),
        ("affine y (j, i, k) -> jj, ii, kk", "jj ii kk"),
    ],
)
def test_loops_of_a_sum_are_mapped_beside_those_around_it(directive, loops):
    found, plan = legal(
        "op f(a: f64[M, K], b: f64[K, N]) -> (y: f64[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }\n"
        f"schedule f for cpu {{\n    {directive}\n}}"
    )
    assert outline(found.program, found.schedule).loops["y"] == tuple(f"y.{loop}" for loop in loops.split())
    assert_same(found.program, plan, {"M": 6, "K": 3, "N": 5})


@pytest.mark.parametrize("directive", ["affine y (i + k, k) -> d, kk", "affine y (i // 4, i % 4 + k) -> io, d"])
def test_a_map_over_a_loop_around_a_sum_and_one_of_it_is_refused(directive):
    with pytest.raises(CompileError) as caught:
        legal(f"op f(a: f64[M, K]) -> (y: f64[M]) {{ y[i] = sum(k) a[i, k] }}\nschedule f for cpu {{\n    {directive}\n}}")
    assert caught.value.diagnostics[0].code == "S0206"


SOLVE = """
op solve(a: f32[N, N], b: f32[N]) -> (x: f32[N], y: f32[N]) {
    x[i] = b[i] - sum(j in 0..i) a[i, j] * x[j]
    y[i] = 2 * x[i]
}
schedule solve for cpu {
    distribute x.acc.init at x.i -> i0
    distribute x.acc at x.i -> ia
    DIRECTIVE
}
"""


@pytest.mark.parametrize(
    ("directive", "code"),
    [
        ("together x.i, y.i -> p", "S0205"),
        ("together x.i, j, ia -> p", "S0206"),
        ("together x.i, ia -> p, q", "S0102"),
        ("together x.i, ia -> j", "S0106"),
        ("together x.i, j -> p", "S0301"),
    ],
)
def test_loops_that_cannot_be_one_are_refused(directive, code):
    with pytest.raises(CompileError) as caught:
        legal(SOLVE.replace("DIRECTIVE", directive))
    assert caught.value.diagnostics[0].code == code


FACTORS = """
op lu(a: f64[N, N]) -> (l: f64[N, N], u: f64[N, N]) {
    u[i, j] = a[i, j] - sum(k in 0..i) l[i, k] * u[k, j]                   for i <= j
    u[i, j] = 0                                                            otherwise
    l[i, j] = (a[i, j] - sum(k in 0..j) l[i, k] * u[k, j]) / u[j, j]       for j < i
    l[i, j] = if i == j then f64(1) else 0                                 otherwise
}
schedule lu for cpu {
    DIRECTIVE
}
"""


@pytest.mark.parametrize("names", ["q, p", "k, j", "j, k"])
def test_loops_that_tensors_share_inside_others_get_the_names_that_are_written(names):
    found, plan = legal(FACTORS.replace("DIRECTIVE", f"together u, l -> {names}"))
    assert all(f"u.{name} {{" in show_tree(plan.placed) for name in names.split(", "))
    assert "together" in str(found.schedule)


def test_loops_that_tensors_share_already_are_not_named_again():
    with pytest.raises(CompileError, match=r"`u` and `l` share `l\.i` already, and the names are of loops inside it"):
        legal(FACTORS.replace("DIRECTIVE", "together u, l -> i, j"))


def test_loops_of_a_tile_are_found_by_whichever_tensor_they_belong_to():
    text = "op f(x: f32[M, N]) -> (y: f32[M, N], z: f32[M, N]) {\n    y[i, j] = 2 * x[i, j]\n    z[i, j] = y[i, j] + x[i, j]\n}\n"
    _, plan = legal(text + "schedule f for cpu {\n    together y, z -> i\n    tile z (i, j) by (4, 4) -> io, jo, ii, ji\n}\n")
    assert "z.ji {" in show_tree(plan.placed)


FIELDS = """
op waves(p: f32[N, M], q: f32[N, M]) -> (y: f32[N, M]) {
    u[0, i, j]     = p[i, j]
    v[0, i, j]     = q[i, j]
    u[t + 1, i, j] = u[t, i, j] - v[t, i - 1, j | 0]       for t in 0..6, i in 0..N, j in 0..M
    v[t + 1, i, j] = v[t, i, j] + u[t + 1, i, j - 1 | 0]   for t in 0..6, i in 0..N, j in 0..M
    y[i, j]        = v[6, i, j]
}
schedule waves for cpu {
    together v, u -> i
    DIRECTIVE
}
"""


def test_what_tensors_share_inside_others_is_outside_of_what_each_has_alone_in_whichever_order_they_are_named():
    _, plan = legal(FIELDS.replace("DIRECTIVE", "skew v.i by u.t\n    tile u (t, v.i) by (2, 4) -> tb, ib, ts, is"))
    assert [loop.name for loop in plan.placed.places["u.1"].loops] == ["u.tb", "v.ib", "u.ts", "v.is", "u.j"]


def test_a_loop_that_tensors_share_is_found_by_the_name_of_any_of_them():
    _, plan = legal(FIELDS.replace("DIRECTIVE", "split v.t by 2 -> ta, tb\n    order v.ta, u.tb, u.i"))
    assert [loop.name for loop in plan.placed.places["v.1"].loops] == ["u.ta", "u.tb", "v.i", "v.j"]


def test_a_tensor_is_computed_in_a_loop_of_another_though_it_has_one_of_that_name():
    text = "op f(x: f32[M, N]) -> (y: f32[M]) {\n    t[i, j] = x[i, j] * x[i, j]\n    y[i] = sum(j) t[i, j]\n}\n"
    _, plan = legal(text + "schedule f for cpu {\n    at t at j\n}\n")
    assert "y.j {" in show_tree(plan.placed)


def test_a_new_loop_may_be_called_by_its_full_name():
    apart = "    distribute x.acc.init at x.i -> i0\n    distribute x.acc at x.i -> ia\n"
    _, plan = legal(SOLVE.replace(apart, "").replace("DIRECTIVE", "split y.i by 4 -> y.io, ii\n    parallel y.io"))
    assert "parallel y.io {" in show_tree(plan.placed)


PLACED = """
op blur(x: f32[N, M]) -> (y: f32[N - 2, M]) where N >= 2 {
    h[i, j] = x[i, j] + x[i, j - 1 | 0]   for i in 0..N, j in 0..M
    y[i, j] = h[i, j] + h[i + 1, j] + h[i + 2, j]
}
schedule blur for cpu {
    tile y (i, j) by (4, COLUMNS) -> io, jo, ii, ji
    at h at jo
    vectorize ji, h.j
    unroll h.i
}
"""


def test_how_a_loop_runs_is_about_the_iterations_it_has_where_it_is_placed():
    found, plan = legal(PLACED.replace("COLUMNS", "8"))
    for sizes in some_sizes(found.program):
        assert_same(found.program, plan, sizes)
    with pytest.raises(CompileError) as caught:
        legal(PLACED.replace("COLUMNS", "100").replace("ji, h.j", "h.j"))
    assert caught.value.diagnostics[0].title == "`h.j` has 100 iterations here; there are at most 64 lanes for it"
