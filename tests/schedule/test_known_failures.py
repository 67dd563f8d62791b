"""Schedules that other compilers are known to have accepted and got wrong: here each is right, or refused with a reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scheduled_programs import assert_same, legal, some_sizes, written

from tensorlang.diagnostics import CompileError
from tensorlang.replay import replay
from tensorlang.schedule.check import proven

MATMUL = """op matmul(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) {
    c[i, j] = sum(k) a[i, k] * b[k, j]
}
"""
BLUR = """op blur(x: f32[N, M]) -> (y: f32[N - 2, M]) {
    h[i, j] = x[i, j | clamp] + x[i, j - 1 | clamp] + x[i, j + 1 | clamp]   for i in 0..N, j in 0..M
    y[i, j] = h[i, j] + h[i + 1, j] + h[i + 2, j]
}
"""


def scheduled(program: str, *directives: str) -> str:
    name = program.split("(")[0].split()[-1]
    return program + f"schedule {name} for cpu {{\n" + "\n".join(directives) + "\n}\n"


def right(program: str, *directives: str) -> None:
    found, plan = legal(scheduled(program, *directives))
    sizes = some_sizes(found.program)
    assert sizes
    for each in sizes:
        assert_same(found.program, plan, each)


def refused(program: str, *directives: str) -> str:
    found = written(scheduled(program, *directives))
    with pytest.raises(CompileError) as error:
        proven(found.program, found.schedule)
    (diagnostic,) = error.value.diagnostics
    if diagnostic.code.startswith("S03"):
        assert replay(found.program, found.schedule) is not None
    return f"{diagnostic.code} {diagnostic.title}"


def test_a_consumer_never_runs_before_what_it_reads_is_there():
    program = """op chain(x: f32[N]) -> (y: f32[N]) {
    h[i] = 2 * x[i]
    y[i] = h[i] + h[N - 1 - i]
}
"""
    right(program, "at h at y.i")
    right(program, "split y.i by 4 -> io, ii", "at h at io", "store_at h at io", "reverse io")


def test_a_producer_is_not_moved_away_from_a_second_reader():
    program = """op two(x: f32[N]) -> (y: f32[N], z: f32[N]) {
    h[i] = 2 * x[i]
    y[i] = h[i] + 1
    z[i] = h[N - 1 - i]
}
"""
    assert refused(program, "at h at y.i").startswith("S0208 `h` cannot be computed at `y.i`: `z.0`, which does not run inside loop `y.i`")


def test_a_parallel_mark_stays_with_its_loop_when_loops_are_interchanged():
    found, plan = legal(scheduled(MATMUL, "parallel i", "order k, j, i"))
    marks = {loop.name: loop.mark for place in plan.placed.places.values() for loop in place.loops}
    assert marks["c.i"] == "parallel" and marks["c.j"] == marks["c.k"] == "serial"
    assert_same(found.program, plan, {"M": 5, "K": 3, "N": 4})


def test_the_whole_schedule_is_proven_and_not_each_directive_when_it_is_read():
    program = """op sweep(x: f32[N, N]) -> (y: f32[N, N]) {
    y[i, j] = x[i, j]                     for i < 1
    y[i, j] = y[i - 1, j] + x[i, j]       otherwise
}
"""
    right(program, "parallel j")
    right(program, "parallel j", "skew j by i")
    assert refused(program, "parallel j", "skew j by i", "order j, i").startswith("S0302")
    right(program, "reverse i", "reverse i")


@pytest.mark.parametrize("loop", ["k", "a"])
def test_a_race_that_depends_on_data_is_seen(loop):
    program = """op count(ids: i32[K] in 0..A, u: f32[K], size A) -> (y: f32[A]) {
    y[a] = sum(k, i64(ids[k]) == a) u[k]
}
"""
    if loop == "k":
        assert refused(program, "parallel k").startswith("S0302 two iterations")
    else:
        legal(scheduled(program, "parallel a"))


def test_computing_a_result_inside_another_loop_is_an_error_and_not_ignored():
    assert refused(BLUR, "at y at h.i") == "S0208 `y` is a result: it is computed at the root"


def test_a_copy_for_one_clause_of_a_producer_is_made_for_no_other_clause():
    program = """op f(x: f32[N, M]) -> (y: f32[N, M]) {
    t[i, j] = x[i, j] * 2                 for i in 0..N, j in 0..M, i == 0
    t[i, j] = t[i - 1, j] + 1             for i in 0..N, j in 0..M, i >= 1
    y[i, j] = t[i, j] + 1
}
"""
    right(program, "distribute t at t.j", "split y.j by 4 -> jo, ji", "at t at jo", "pack x at t.j")


def test_an_element_that_the_first_step_does_not_read_is_not_loaded_before_the_loop():
    """Only from the second step on there is something in `p`, so it goes into no register for the time of the loop."""
    program = """strict op gaps(x: i8[7, 1]) -> (d: i8[7, 1]) {
    d[i, j] = min(d[i - 1, j - 1 | 5] + x[i, j], p[i, j], q[i, j])
    p[i, j] = min(d[i - 1, j | 5], p[i - 1, j | 6])   for i in 0..7, j in 0..1
    q[i, j] = min(d[i, j - 1 | 4], q[i, j - 1 | 5])   for i in 0..7, j in 0..1
}
"""
    right(program, "fold p at i by 1", "parallel p.j")


def test_a_loop_that_one_tensor_runs_once_in_has_no_name_of_a_loop_that_the_tensor_keeps():
    """All of `v` runs where the loop over `u` is at 0, behind what it reads of `u`, and before the one element that reads it."""
    program = """op f(a: i64[12]) -> (u: i64[3, 12], v: i64[3, 12]) {
    v[t, i] = v[t - 1, i] + v[t, i - 1]  for t in 1..3, i in 1..12
    v[t, 0] = u[t, 6]                    for t in 1..3
    v[0, i] = a[i]
    u[0, i] = a[i]
    u[t, 0] = u[t, 11] - v[t, 10]        for t in 1..3
    u[t, i] = u[t - 1, i - 1]            for t in 1..3, i in 1..12
}
"""
    right(program)


def test_computing_between_two_parallel_loops_is_right():
    right(BLUR, "parallel y.i", "parallel y.j", "at h at y.i")
    right(BLUR, "tile y (i, j) by (4, 4) -> io, jo, ii, ji", "parallel io", "at h at jo")


def test_computing_a_part_of_a_tensor_leaves_no_part_of_the_result_out():
    right(BLUR, "tile y (i, j) by (4, 8) -> io, jo, ii, ji", "at h at io", "reverse io")
    right(BLUR, "split y.i by 4 -> io, ii", "at h at ii", "split h.j by 4 -> q, r", "order h.q, h.i, h.r")


def test_computing_inside_a_vector_loop_is_right():
    program = """op normal(x: f32[N, M]) -> (y: f32[N, M]) {
    m[i]    = max(j) x[i, j]
    y[i, j] = x[i, j] - m[i]
}
"""
    right(program, "split y.i by 8 -> io, iv", "at m at iv", "vectorize iv")


def test_factoring_keeps_the_initial_value_and_refuses_what_does_not_commute():
    program = """op total(x: f32[N, M], s: f32[N]) -> (y: f32[N]) {
    y[i] = sum(j, from s[i]) x[i, j]
}
"""
    right(program, "rfactor j by 4")
    right(program, "rfactor j to 4")
    last = """ordered reducer last a b from none = b

op keep(x: f32[N, M], s: f32[N]) -> (y: f32[N]) {
    y[i] = last(j, from s[i]) x[i, j]
}
"""
    found = written(last + "schedule keep for cpu {\nrfactor j by 4\n}\n")
    with pytest.raises(CompileError) as error:
        proven(found.program, found.schedule)
    assert "S0204" in str(error.value) and "not commutative" in str(error.value)


@pytest.mark.parametrize(
    ("directives", "reason"),
    [
        (("split i by 4294967296 -> a, b", "split a by 4294967296 -> c, d"), "larger than 2**48"),
        (("tile y (i, j) by (4294967296, 2) -> a, b, c, d", "tile y (a, b) by (4294967296, 2) -> e, g, h, k"), "larger than 2**48"),
        (("shift i by 281474976710656", "shift i by 281474976710656"), "larger than 2**48"),
        (("skew j by 281474976710656 * i",), "may not stay in 64 bits"),
        (
            ("split i by 4294967296 -> a, b", "split j by 4294967296 -> c, d", "order a, c, b, d", "fuse b, d -> e"),
            "more than 2**48 iterations",
        ),
    ],
)
def test_directives_whose_steps_together_leave_64_bits_are_refused_where_they_stand(directives, reason):
    found = written(scheduled("op f(x: f32[M, N]) -> (y: f32[M, N]) { y[i, j] = x[i, j] + 1 }\n", *directives))
    with pytest.raises(CompileError, match=re.escape(reason)):
        proven(found.program, found.schedule)


def test_elements_may_have_reductions_of_different_lengths_in_stretches():
    program = "op f(x: f32[N, N]) -> (y: f32[N]) { y[i] = sum(j in i + 1..N) x[i, j] }\n"
    right(program, "rfactor j by 4")
    right(program, "rfactor j to 4")


def test_an_ordered_reduction_keeps_its_order():
    last = """ordered reducer last a b from none = b

op keep(x: f32[N, M], s: f32[N]) -> (y: f32[N]) {
    y[i] = last(j, from s[i]) x[i, j]
}
"""
    found = written(last + "schedule keep for cpu {\nreverse j\n}\n")
    with pytest.raises(CompileError) as error:
        proven(found.program, found.schedule)
    assert error.value.diagnostics[0].code == "S0301"
    found, plan = legal(last + "schedule keep for cpu {\nsplit j by 3 -> jo, ji\norder jo, i, ji\n}\n")
    assert_same(found.program, plan, {"N": 3, "M": 7})


def test_padding_is_the_same_whether_it_is_copied_or_not():
    program = """op conv(x: f32[C, H], w: f32[F, C, 3]) -> (y: f32[F, H]) {
    y[f, p] = sum(c, r) x[c, p + r - 1 | 0] * w[f, c, r]
}
"""
    right(program)
    right(program, "pack x")
    right(program, "split p by 4 -> po, pv", "order po, c, r, f, pv", "pack x", "vectorize pv")


def test_inlining_into_a_guarded_reader_reads_nothing_outside():
    program = """op shifted(x: f32[N]) -> (y: f32[N]) {
    h[i] = x[N - 1 - i]
    y[i] = h[i - 1 | 0]
}
"""
    right(program, "inline h")


def test_partial_tiles_are_never_computed_outside_the_tensor():
    right(
        MATMUL,
        "tile c (i, j) by (5, 16) -> io, jo, ii, ji",
        "split k by 3 -> ko, ki",
        "order jo, io, ko, ii, ki, ji",
        "unroll ii",
        "vectorize ji",
    )


def test_a_message_is_the_same_in_every_run():
    text = scheduled(MATMUL, "split k by 4 -> ko, ki", "order ko, i, j, ki", "parallel ko")
    code = "\n".join(
        (
            "import sys",
            "from scheduled_programs import written",
            "from tensorlang.schedule.check import proven",
            "found = written(sys.argv[1])",
            "try:",
            "    proven(found.program, found.schedule)",
            "except Exception as error:",
            "    print(error)",
        )
    )
    here = Path(__file__).parent
    seen = set()
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}{os.pathsep}{here.parents[1]}"}
        run = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, env=environment, check=True)
        seen.add(run.stdout)
    (message,) = seen
    assert message.startswith("error[S0302]")


def test_lanes_that_share_a_cell_with_some_of_the_others_are_refused():
    """Four lanes add to y[d - 0], four to y[d - 1], …: neither all lanes into one cell, nor each into its own."""
    operator = "op f(x: f32[M, A, 4]) -> (y: f32[M]) {\n    y[i] = sum(a, b) x[i, a, b]\n}\n"
    own = "distribute y.acc at i -> d\n    skew d by a"
    with pytest.raises(CompileError, match="S0303") as refused:
        legal(f"{operator}schedule f for cpu {{\n    {own}\n    fuse a, b -> q\n    split q by 16 -> qo, qi\n    vectorize qi\n}}")
    assert "`y.0.acc` at (i=1, a=0, b=0) and `y.0.acc` at (i=1, a=0, b=1) share the element" in str(refused.value)
    found, plan = legal(f"{operator}schedule f for cpu {{\n    {own}\n    order d, b, a\n    split a by 8 -> ao, av\n    vectorize av\n}}")
    for sizes in some_sizes(found.program):
        assert_same(found.program, plan, sizes)
