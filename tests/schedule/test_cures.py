"""What cures a refused schedule is proven before it is told, and is an edit of the text."""

from __future__ import annotations

import pytest
from cure_share import random_refusals
from scheduled_programs import assert_same, legal, written

from tensorlang.diagnostics import CompileError, Source
from tensorlang.schedule.check import proven
from tensorlang.shell.checking import fixed


def test_most_random_refusals_are_told_what_cures_them() -> None:
    found = list(random_refusals(100, 16))
    assert sum(one.cured for one in found) >= 0.8 * len(found)


WAVEFRONT = """op f(x: f32[N, M]) -> (y: f32[N, M]) {
    y[i, j] = y[i - 1, j] + y[i, j - 1]   for i in 1..N, j in 1..M
    y[i, j] = x[i, j]                     otherwise
}

schedule f for cpu {
    # along diagonals
    parallel j  # fast
}
"""


def test_a_sweep_in_two_directions_is_cured_by_a_wavefront_with_one_command() -> None:
    cured, told = fixed(Source("f.tl", WAVEFRONT))
    assert [d.code for d in told] == ["S0302"]
    before, after = WAVEFRONT.splitlines(), cured.text.splitlines()
    assert after == [*before[:7], "    skew i by j", "    parallel j  # fast", "}"]


def test_a_tile_whose_loops_need_quotes_is_left_as_it_is_where_its_names_are_not_what_is_wrong() -> None:
    text = WAVEFRONT.replace("parallel j  # fast", "tile y (y.i, y.j) by (1e-5, 1) -> jo, jo, ji, ji")
    cured, _ = fixed(Source("f.tl", text))
    assert cured.text == text


LATER = """op heat(u0: f32[N], size T) -> (u: f32[N]) {
    s[0, i]     = u0[i]
    s[t + 1, i] = s[t, i - 1] + s[t, i + 1]   for t in 0..T, i in 1..N-1
    s[t + 1, i] = s[t, i]                     otherwise
    u[i]        = s[T, i]
}

schedule heat for cpu {
    tile s (t, i) by (4, 8) -> tt, it, ts, is
    fold s at i by 2
}
"""


def test_a_schedule_with_two_mistakes_is_mended_one_after_the_other() -> None:
    cured, told = fixed(Source("heat.tl", LATER))
    assert [d.code for d in told] == ["S0301", "S0308"]
    assert "    skew s.i by s.t\n    tile s" in cured.text or "    skew s.i by t\n    tile s" in cured.text
    assert "fold s at i by 2" not in cured.text


TACTIC = """op f(x: f32[N]) -> (y: f32[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]   for i in 1..N
}

tactic backwards(loop) {
    reverse loop
}

schedule f for cpu {
    backwards(i)
}
"""


def test_a_directive_of_a_tactic_is_not_edited_for_all_who_call_it() -> None:
    found = written(TACTIC)
    with pytest.raises(CompileError) as refused:
        proven(found.program, found.schedule)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.help == "without `reverse i` the schedule is legal" and not diagnostic.edits


def test_no_cure_is_looked_for_where_nobody_reads_it() -> None:
    found = written(TACTIC)
    with pytest.raises(CompileError) as refused:
        proven(found.program, found.schedule, advised=False)
    assert refused.value.diagnostics[0].help is None


PHASE = """op f(a: f32[8, 8], b: f32[8, 8]) -> (c: f32[8, 8]) {
    c[i, j] = sum(k) a[i, k] * b[k, j]
}

schedule f for cpu {
    order k, c.j
    vectorize c.acc.j
}
"""


def test_what_is_said_of_a_loop_of_one_statement_gives_it_a_loop_of_its_own() -> None:
    cured, told = fixed(Source("f.tl", PHASE))
    assert [d.code for d in told] == ["S0103"]
    assert cured.text == PHASE.replace("    vectorize c.acc.j\n", "    distribute c.acc at c.j -> j_acc\n    vectorize j_acc\n")
    found = written(cured.text)
    assert_same(found.program, proven(found.program, found.schedule), {})


WINDOW = """op blur(x: f32[N, M]) -> (y: f32[N, M]) {
    h[i, j] = x[i, j - 1 | clamp] + x[i, j | clamp]   for i in 0..N, j in 0..M
    g[i, j] = h[i - 1, j | clamp] + h[i + 1, j | clamp]   for i in 0..N, j in 0..M
    y[i, j] = g[i, j] + g[i + 2, j | clamp]
}

schedule blur for cpu {
    together h, g, y -> i
    fold h at i by 4
}
"""


def test_tensors_that_need_what_comes_later_share_a_loop_after_shifts() -> None:
    with pytest.raises(CompileError) as caught:
        legal(WINDOW)
    assert "`shift g.i by 1`, `shift y.i by 3` first makes this order legal" in (caught.value.diagnostics[0].help or "")


def test_names_that_several_tensors_have_are_those_of_the_one_whose_other_loops_stand_beside_them() -> None:
    with pytest.raises(CompileError) as caught:
        legal(WINDOW.replace("together h, g, y -> i", "split y.j by 8 -> jo, jv").replace("fold h at i by 4", "order jo, i, jv"))
    assert "`order jo, y.i, jv` in its place is legal" in (caught.value.diagnostics[0].help or "")


def test_another_loop_of_the_same_name_is_no_cure() -> None:
    with pytest.raises(CompileError) as caught:
        legal(WINDOW.replace("together h, g, y -> i", "parallel y.i").replace("fold h at i by 4", "split y.i by 8 -> io, ii"))
    assert "h.i" not in (caught.value.diagnostics[0].help or "")


FIELDS = """op waves(p: f32[N, M], q: f32[N, M]) -> (y: f32[N, M]) {
    u[0, i, j]     = p[i, j]
    v[0, i, j]     = q[i, j]
    u[t + 1, i, j] = u[t, i, j] - v[t, i - 1, j | 0]       for t in 0..6, i in 0..N, j in 0..M
    v[t + 1, i, j] = v[t, i, j] + u[t + 1, i + 1, j | 0]   for t in 0..6, i in 0..N, j in 0..M
    y[i, j]        = v[6, i, j]
}

schedule waves for cpu {
    shift v.i by 1
    together u, v -> i
    split u.j by 8 -> jo, jv
    split v.j by 8 -> jo, jv
    vectorize u.jv, v.jv
    split y.j by 8 -> yo, yv
    order yo, y.i, yv
}
"""


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        pytest.param("    shift v.i by 1\n", "", id="what tensors of one step need of each other"),
        pytest.param("    split v.j by 8 -> jo, jv\n", "", id="what was said of another tensor alone"),
        pytest.param(
            "    split u.j by 8 -> jo, jv\n", "    split u.j by 8 -> jo, jv\n    split u.j by 8 -> jo, jv\n", id="what was said twice"
        ),
    ],
)
def test_a_line_that_is_missing_is_put_in_and_one_that_stands_there_twice_is_left_out(line: str, instead: str) -> None:
    cured, _ = fixed(Source("f.tl", FIELDS.replace(line, instead)))
    assert cured.text == FIELDS


def test_a_directive_before_those_that_make_its_loops_is_put_right_behind_them() -> None:
    text = FIELDS.replace("    order yo, y.i, yv\n", "    split yo by 4 -> ya, yb\n").replace(
        "    split y.j", "    order yo, y.i\n    split y.j"
    )
    cured, _ = fixed(Source("f.tl", text))
    assert cured.text.endswith("yo, yv\n    order yo, y.i\n    split yo by 4 -> ya, yb\n}\n")


STENCIL = """op jacobi(x: f32[N], size T) -> (y: f32[N]) where N >= 3 {
    u[0, i]     = x[i]
    u[t + 1, i] = u[t, i - 1] + u[t, i + 1]   for t in 0..T, i in 1..N-1
    u[t + 1, i] = u[t, i]                     otherwise
    y[i]        = u[T, i]
}

schedule jacobi for cpu {
    affine u (t, i) to (t + i, t - i) -> a, b
    tile u (a, b) by (4, 8) -> ao, bo, ai, bi
}
"""


def test_what_is_left_out_is_told_with_all_that_cannot_be_read_without_it() -> None:
    with pytest.raises(CompileError) as caught:
        legal(STENCIL)
    assert (caught.value.diagnostics[0].help or "").endswith(
        "without `affine u (t, i) to (t + i, t - i) -> a, b`, and `tile u (a, b) by (4, 8) -> ao, bo, ai, bi`, "
        "which cannot be read then, the schedule is legal"
    )


def test_a_schedule_is_not_called_legal_without_a_directive_where_another_is_refused_for_a_reason_of_its_own() -> None:
    text = STENCIL.replace("    affine u (t, i) to (t + i, t - i) -> a, b\n", "    unroll u.i by u.t\n").replace("(a, b)", "(u.t, u.i)")
    with pytest.raises(CompileError) as caught:
        legal(text)
    assert (caught.value.diagnostics[0].help or "").endswith("without `unroll u.i by u.t` all before it is legal")


def test_names_that_a_directive_does_not_give_are_left_out_of_it() -> None:
    text = "op total(x: f32[N]) -> (y: f32) { y = sum(k) x[k] }\n\nschedule total for cpu {\n    rfactor k by 8 -> ko, ki\n}\n"
    cured, told = fixed(Source("total.tl", text))
    assert [d.code for d in told] == ["S0102"] and cured.text == text.replace(" -> ko, ki", "")


ORDERED = "op f(x: f32[8, 8]) -> (y: f32[8, 8]) {{\n    y[i, j] = 2 * x[i, j]\n}}\n\nschedule f for cpu {{\n{}}}\n"


@pytest.mark.parametrize(
    ("lines", "mended"),
    [
        (
            ["vectorize ji", "parallel io", "tile y (i, j) by (4, 8) -> io, jo, ii, ji"],
            ["tile y (i, j) by (4, 8) -> io, jo, ii, ji", "vectorize ji", "parallel io"],
        ),
        (["parallel i", "split i by 8 -> io, ii"], ["split i by 8 -> io, ii", "parallel io"]),
        (["unroll i, j", "split i by 4 -> io, ii"], ["split i by 4 -> io, ii", "unroll ii, j"]),
    ],
)
def test_what_is_said_of_loops_too_soon_is_said_behind_what_makes_them(lines: list[str], mended: list[str]) -> None:
    before, after = (ORDERED.format("".join(f"    {line}\n" for line in some)) for some in (lines, mended))
    cured, told = fixed(Source("f.tl", before))
    assert len(told) == 1 and cured.text == after


def test_a_fold_of_what_has_a_layout_is_a_modulus_in_that() -> None:
    text = STENCIL[: STENCIL.index("    affine")] + "    layout u as [i, t]\n    fold u at t by 2\n}\n"
    cured, told = fixed(Source("jacobi.tl", text))
    assert [d.code for d in told] == ["S0209"] and cured.text.endswith("{\n    layout u as [i, t % 2]\n}\n")


def test_a_loop_that_tensors_share_is_not_called_as_another_of_theirs() -> None:
    text = "op f(x: f32[M, N]) -> (y: f32[M, N], s: f32[N]) {\n y[i, j] = 2 * x[i, j]\n s[j] = sum(i) x[i, j]\n}\n"
    with pytest.raises(CompileError) as caught:
        legal(f"{text}schedule f for cpu {{\n together y, s -> j\n}}\n")
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.title) == ("S0106", "`y` has a loop `j` already")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("at g in h at y.i", "S0102 `at` cannot be read: `y.i` is no loop of `h`"),
        ("at g in x at i", "S0105 `x` is an input: it has no loops"),
        ("inline h\n    at g in h at h.i", "S0105 `h` is no tensor of this operator"),
    ],
)
def test_a_place_in_a_reader_is_one_of_its_loops(lines: str, told: str) -> None:
    start = PLACED.index("    at g at y.i")
    with pytest.raises(CompileError) as caught:
        legal(f"{PLACED[:start]}    {lines}\n}}\n")
    (problem,) = caught.value.diagnostics
    assert f"{problem.code} {problem.title}" == told and (problem.help or "").endswith("legal")


PLACED = """op middle(x: f32[N]) -> (y: f32[N]) where N >= 3 {
    g[i] = x[i] + x[N - 1 - i]
    h[i] = g[i] * x[i]
    y[i] = h[i] - g[i]
}

schedule middle for cpu {
    at g at y.i
    at h at y.i
    LINE
}
"""


def test_what_is_computed_in_a_loop_that_becomes_others_is_computed_in_the_innermost_of_these() -> None:
    cured, told = fixed(Source("f.tl", PLACED.replace("LINE", "split y.i by 4 -> a, b")))
    assert [d.code for d in told] == ["S0213"]
    assert cured.text.endswith("{\n    split y.i by 4 -> a, b\n    at g at y.b\n    at h at y.b\n}\n")


def test_no_cure_that_breaks_a_later_line_stands_before_one_that_breaks_none() -> None:
    """`i` is another loop then, and what follows cannot be read."""
    rest = "    split i by 3 -> io, iv\n    order io, j, iv"
    text = WAVEFRONT.replace("    # along diagonals\n    parallel j  # fast", f"    unroll i\n{rest}")
    cured, _ = fixed(Source("f.tl", text))
    assert rest in cured.text


def test_a_name_that_a_directive_gives_is_none_that_is_misspelt() -> None:
    text = WAVEFRONT.replace("    # along diagonals\n    parallel j  # fast", "    tile jj (i, j) by (1, 4) -> io, jo, ii, jj")
    cured, _ = fixed(Source("f.tl", text))
    assert "tile y (i, j) by (1, 4) -> io, jo, ii, jj" in cured.text
