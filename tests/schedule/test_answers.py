"""Whatever a schedule asks for, the answer is loops that compute what the operator says, or one diagnostic with a code at its line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from scheduled_programs import assert_same, written

from tensorlang.diagnostics import CompileError
from tensorlang.schedule.check import proven
from tensorlang.schedule.directives.table import DIRECTIVES

BLUR = """op f(x: i32[M, N]) -> (y: i32[M, N]) {
    h[i, j] = x[i, j - 1 | 0] + x[i, j] + x[i, j + 1 | 0]
    y[i, j] = h[i - 1, j | 0] + h[i, j] + h[i + 1, j | 0]
}
"""
TWO = "op f(x: f32[M, N]) -> (y: f32[M, N], z: f32[M, N]) {\n    y[i, j] = x[i, j] + 1\n    z[i, j] = x[i, j] * 2\n}\n"
PRODUCTS = """op f(x: f32[M, N], w: f32[N, M]) -> (y: f32[M, M]) {
    d[i, j] = x[i, j] + 1
    e[i, j] = sum(k) d[i, k] * w[k, j]
    y[i, j] = e[i, j] + 1
}
"""
TRIANGLE = "op f(x: f32[M, M], w: f32[M, 4]) -> (y: f32[M]) { y[i] = sum(k in i..M) (if k - i < 4 then w[k, k - i] else x[i, k]) }\n"
PIECES = "op f(x: f32[M]) -> (y: f32[2*M]) {\n    y[i] = x[i] for i in 0..M\n    y[i + M] = x[i] + 1 for i in 0..M\n}\n"


def under(operator: str, *directives: str) -> str:
    return operator + "\n".join(("schedule f for cpu {", *directives, "}"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(under(TWO, "together y, z -> i", "tile y (y.j, z.j) by (2, 2) -> a, b, c, d"), id="a tile of loops of two tensors"),
        pytest.param(
            under(BLUR, "split y.j by 4 -> jo, ji", "vectorize ji", "skew jo by ji", "trim jo"), id="loops skewed by vectors and trimmed"
        ),
        pytest.param(under(TRIANGLE, "pack w"), id="a copy of what is read at distances that other loops bound"),
    ],
)
def test_a_schedule_computes_what_its_operator_says(text: str) -> None:
    found = written(text)
    plan = proven(found.program, found.schedule)
    for n in (0, 1, 3, 7):
        assert_same(found.program, plan, dict(zip(found.program.sizes, (n, n + 1), strict=False)))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param("S0208", under(PRODUCTS, "together d, e -> i", "at d at y.i #"), id="shared loops inside another"),
        pytest.param("S0102", under(BLUR, f"split y.i by {10**30} -> a, b #"), id="a factor"),
        pytest.param("S0102", under(BLUR, f"shift y.i by {10**40} #"), id="a distance"),
        pytest.param("S0102", under(BLUR, f"skew y.i by {10**40} * y.j #"), id="a multiple"),
        pytest.param("S0102", under(BLUR, f"peel y.i by {10**30} #"), id="a count"),
        pytest.param("S0102", under(BLUR, f"pack x as [i % {10**30}, j] #"), id="a block"),
        pytest.param("P002", under(BLUR, f"split y.i by {'1' * 5000} -> a, b #"), id="a number of many digits"),
        pytest.param("S0213", under(BLUR, "trim y.i #", "split y.i by 4 -> a, b"), id="said of a loop that is split"),
        pytest.param("S0213", under(TWO, "trim z.i #", "together y, z -> i"), id="said of a loop that is shared"),
        pytest.param("S0213", under(TWO, "parallel y.i", "split z.i by 4 -> zo, zi", "unroll zi", "vectorize zi #"), id="two ways to run"),
        pytest.param(
            "S0213", under(TWO.replace("M, N", "M, 4"), "order z.j, z.i", "unroll z.j", "parallel y.i", "together y, z -> i #"), id="shared"
        ),
        pytest.param("S0214", under(BLUR, "store_at y at y.i #"), id="a place for a result"),
        pytest.param("S0209", under(BLUR, "fold h at i by 2", "fold h at i by 4 #"), id="two folds of one axis"),
    ],
)
def test_a_schedule_is_refused_with_a_code_at_the_line_of_its_directive(code: str, text: str) -> None:
    with pytest.raises(CompileError) as refused:
        found = written(text)
        proven(found.program, found.schedule)
    (diagnostic,) = refused.value.diagnostics
    span = diagnostic.labels[0].span
    assert diagnostic.code == code
    assert span.source.line(span.source.location(span.start)[0]).endswith("#")


def test_distribute_before_split_is_distribute_after_it() -> None:
    first = written(under(PIECES, "distribute y at y.i", "split y.i by 4 -> io, ii"))
    then = written(under(PIECES, "split y.i by 4 -> io, ii", "distribute y at io"))
    assert proven(first.program, first.schedule).placed.tree == proven(then.program, then.schedule).placed.tree


@pytest.mark.parametrize("name", sorted(DIRECTIVES))
def test_what_is_about_one_loop_or_tensor_is_refused_about_several(name: str) -> None:
    for operands in ("y.i, y.j", "x, y", "y, y, y", "y.i, y.j by 2 -> a, b", "x, y at y.i", "x, y in shared at y.i as [i, j]"):
        with suppress(CompileError):
            found = written(under(BLUR, f"{name} {operands}"))
            proven(found.program, found.schedule)


@pytest.mark.parametrize("terms", ["k in i..9", "k in 0..i+1", "k in 2..9, k >= i, k != 4", "k in max(0, i - 3)..min(9, i + 2)"])
def test_loops_that_are_not_equally_long_are_one_loop_of_all_their_iterations(terms: str) -> None:
    text = f"op f(x: i32[9, 9], w: i32[9]) -> (y: i32[9]) {{\n    y[a] = sum(i, {terms}) x[i, k] * w[a]\n}}\n"
    found = written(under(text, "fuse i, k -> ik", "split ik by 5 -> o, t", "order o, t, a"))
    assert_same(found.program, proven(found.program, found.schedule), {})


def test_loops_of_which_no_number_is_the_longest_are_not_fused() -> None:
    with pytest.raises(CompileError, match="S0201"):
        found = written(under("op f(x: i32[M, M]) -> (y: i32) { y = sum(i, k in 0..i+1) x[i, k] }\n", "fuse i, k -> ik"))
        proven(found.program, found.schedule)


def test_every_second_element_is_computed_in_tiles_of_any_number_of_them() -> None:
    text = "op f(x: i32[M]) -> (y: i32[M]) where M % 2 == 0 {\n    y[2*k] = x[k] for k in 0..M//2\n"
    text += "    y[2*k + 1] = x[k + M//2] for k in 0..M//2\n}\n"
    found = written(under(text, "distribute y", "split y.a0 by 2 -> q, r", "split y.q by 4 -> o, v", "order y.o, y.r, y.v"))
    plan = proven(found.program, found.schedule)
    for count in (0, 2, 6, 8, 30):
        assert_same(found.program, plan, {"M": count})
