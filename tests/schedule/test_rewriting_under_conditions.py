"""Directives that rewrite a program keep the conditions around what they move, or are refused."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import agrees, only

import tensorlang as tl
from tensorlang.diagnostics import CompileError


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape) % 7


SUMS = {
    "the row before": "y[i] = if i >= 1 then sum(k) x[i - 1, k] else 0",
    "the row after": "y[i] = if i < M - 1 then sum(k) x[i + 1, k] else 0",
    "the other side": "y[i] = if i == 0 then 1 else sum(k) x[i - 1, k]",
    "and data": "y[i] = if i >= 1 and x[i - 1, 0] > 2 then sum(k) x[i - 1, k] else 0",
    "two sums": "y[i] = (if i >= 1 then sum(k) x[i - 1, k] else 0) + (if i < M - 1 then max(j in 0..3) x[i + 1, j] else 0)",
    "one sum twice": "y[i] = (if i >= 2 then sum(k) x[i - 2, k] else 0) + (if i >= 3 then sum(k) x[i - 2, k] else 0)",
    "a start": "y[i] = if i >= 1 then sum(k, from x[i - 1, 0]) x[i - 1, k] else 0",
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("directive", ["rfactor k by 4", "rfactor k to 4"])
@pytest.mark.parametrize("form", SUMS)
def test_partial_results_are_asked_for_where_the_sum_is(form: str, directive: str, symbolic: bool) -> None:
    text = f"op f(x: f32[M, N]) -> (y: f32[M]) where N >= 3 {{\n {SUMS[form]}\n}}"
    agrees(text, numbers(6, 11), schedule=directive, symbolic=symbolic)


SEVERAL = {
    "place and value": ("m: f32[M], at: i64[M]", "m[i], at[i] = first_max(k) (x[i, k], k)"),
    "place alone": ("at: i64[M]", "at[i] = argmin(k) x[i, k]"),
    "of what is selected": ("m: f32[M], at: i64[M]", "m[i], at[i] = first_min(k, x[i, k] > 0) (x[i, k], k)"),
}


@pytest.mark.parametrize("directive", ["rfactor k by 4", "rfactor k to 4"])
@pytest.mark.parametrize("form", SEVERAL)
def test_reductions_to_a_term_of_several_values_have_partial_results_of_as_many(form: str, directive: str) -> None:
    results, equation = SEVERAL[form]
    agrees(f"op f(x: f32[M, N]) -> ({results}) {{\n {equation}\n}}", numbers(6, 11), schedule=directive)


def test_parts_without_a_term_are_refused_where_there_is_no_identity() -> None:
    with pytest.raises(CompileError, match="S0204"):
        only(tl.parse("op f(x: f32[N]) -> (at: i64) { at = argmax(i) x[i] }")).schedule("rfactor i by 16")(np.zeros(9, np.float32))


def test_sums_of_which_several_make_one_value_are_refused() -> None:
    with pytest.raises(CompileError, match="S0204"):
        only(tl.parse("op f(x: f32[N]) -> (y: f32) { y = logsumexp(i) x[i] }")).schedule("rfactor i by 4")(np.zeros(9, np.float32))


PRODUCTS = {
    "a condition on the rows": "y[i, j] = if i >= 1 then sum(k) x[i - 1, k] * w[k, j] else 0",
    "a condition inside the sum": "y[i, j] = sum(k) (if i >= 1 then x[i - 1, k] * w[k, j] else 0)",
    "conditions on rows and columns": "y[i, j] = if i >= 1 and j >= 1 then sum(k) x[i - 1, k] * w[k, j - 1] else 0",
}


@pytest.mark.parametrize("form", PRODUCTS)
def test_rows_written_out_are_read_where_they_are_asked_for(form: str) -> None:
    text = f"op f(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) {{\n {PRODUCTS[form]}\n}}"
    agrees(text, numbers(5, 6), numbers(6, 4), schedule="unfold x, w in k -> q")
    agrees(text, numbers(5, 6), numbers(6, 4), schedule="rfactor k by 4")


def test_rows_under_a_condition_that_speaks_of_other_axes_are_refused_at_the_directive() -> None:
    text = "op f(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) {\n y[i, j] = if i > j then sum(k) x[i - 1, k] * w[k, j] else 0\n}"
    with pytest.raises(CompileError) as refused:
        only(tl.parse(text)).schedule("unfold x, w in k -> q")(numbers(5, 6), numbers(6, 4))
    (problem,) = refused.value.diagnostics
    assert problem.code == "S0309" and "what `unfold` makes of `f` is not proven: `x` is read outside its bounds" in problem.title
    agrees(text, numbers(5, 6), numbers(6, 4), schedule="rfactor k by 4")


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)])
def test_rows_of_an_empty_axis(shape: tuple[int, int, int]) -> None:
    m, p, q = shape
    text = "op f(x: f32[M, P, Q], w: f32[P, Q, N]) -> (y: f32[M, N]) {\n y[i, j] = sum(p, q) x[i, p, q] * w[p, q, j]\n}"
    agrees(text, numbers(m, p, q), numbers(p, q, 4), schedule="unfold x, w in p, q -> k")


@pytest.mark.parametrize("axes", [(0, 3), (3, 0)])
def test_rows_numbered_along_an_empty_axis(axes: tuple[int, int]) -> None:
    text = "op f(x: f32[A, B, P, Q], w: f32[P, Q, N]) -> (y: f32[A, B, N]) {\n y[a, b, j] = sum(p, q) x[a, b, p, q] * w[p, q, j]\n}"
    agrees(text, numbers(*axes, 2, 2), numbers(2, 2, 4), schedule="unfold x, w in p, q -> k")


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("directive", ["rfactor k by 3", "rfactor k to 3"])
def test_partial_results_of_a_sum_whose_length_the_row_says(directive: str, symbolic: bool) -> None:
    text = "op f(a: f32[N, N], b: f32[N, N]) -> (y: f32[N, N]) {\n y[i, j] = sum(k in j..i + 1) a[i, k] * b[k, j]\n}"
    agrees(text, numbers(5, 5), numbers(5, 5), schedule=directive, symbolic=symbolic)


TWO = """op f(x: f32[M, N], u: f32[N, N]) -> (y: f32[M, N], l: f32[N, N]) where N >= 1 {
    m[i]    = max(j) x[i, j]
    s[i]    = sum(j) (x[i, j] - m[i])
    y[i, j] = x[i, j] + s[i]
    l[i, j] = u[i, j] - sum(j2 in 0..j) l[i, j2]
}"""


@pytest.mark.parametrize(
    ("schedule", "made"),
    [
        ("rfactor j by 4", "m.part"),
        ("rfactor m.j by 4", "m.part"),
        ("rfactor s.j to 4", "s.part"),
        ("rfactor s.j by 2\nrfactor j by 2", "s.part"),
    ],
)
def test_ranges_of_one_name_are_told_apart_by_the_tensor_that_is_summed(schedule: str, made: str) -> None:
    operator = only(tl.parse(TWO))
    stages: dict[str, str] = {}
    inputs = numbers(5, 6), numbers(6, 6)
    operator.schedule(schedule).stages(*inputs, dump=stages.__setitem__)
    assert made in stages["schedule"] and ("s.part" in stages["schedule"]) == ("s.j" in schedule)
    for found, expected in zip(operator.schedule(schedule)(*inputs), operator(*inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_range_is_cut_into_blocks_by_its_full_name() -> None:
    operator = only(tl.parse(TWO)).schedule("block l.j2 by 4")
    np.testing.assert_array_equal(operator(numbers(5, 6), numbers(6, 6))[1], only(tl.parse(TWO))(numbers(5, 6), numbers(6, 6))[1])


@pytest.mark.parametrize("directive", ["rfactor k_1 by 4", "rfactor k_1 to 4", "narrow y.sum.k_1"])
def test_a_sum_that_is_inlined_into_another_is_one_of_its_own_for_what_comes_after(directive: str) -> None:
    text = """op f(a: f32[M, K], b: f32[K, N], c: f32[N, L]) -> (y: f32[M, L]) {
        p[i, j] = sum(k, 0 <= k - j < 3) a[i, k] * b[k, j]
        y[i, l] = sum(j) p[i, j] * c[j, l]
    }"""
    agrees(text, numbers(3, 6), numbers(6, 5), numbers(5, 2), schedule=f"inline p\n{directive}")


@pytest.mark.parametrize("directive", ["rfactor j by 2", "rfactor k by 3", "rfactor j to 3", "rfactor k to 3"])
def test_partial_results_of_a_sum_over_ranges_that_say_how_long_others_are(directive: str) -> None:
    text = "op f(a: f32[N, N]) -> (y: f32[N]) {\n y[i] = sum(j in i..N, k in i..j + 1) a[j, k]\n}"
    for size in (0, 1, 5):
        agrees(text, numbers(size, size), schedule=directive, symbolic=True)
