"""What is read under a condition is read nowhere else: every operator here runs between pages without access, with indices from data that
only the condition keeps in range, and gives bit for bit what it means."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import numpy as np
import pytest
from guarded import agrees

import tensorlang as tl

Array = np.ndarray[Any, Any]
WILD = 10**7


def ids(*values: int, dtype: type = np.int64) -> Array:
    return np.array(values, dtype)


def numbers(*shape: int) -> Array:
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


X = numbers(3, 5)
PADDED = ids(0, -1, 2, -1, 1, 0, -1)
ANY = ids(0, -1, 2, WILD, 1, -WILD, 2**62)

BAGS = {
    "a sum": "y[q] = if ids[q] >= 0 then sum(k) x[ids[q], k] else 0",
    "the other side": "y[q] = if ids[q] < 0 then 7 else sum(k) x[ids[q], k]",
    "not": "y[q] = if not (ids[q] < 0) then sum(k) x[ids[q], k] else 7",
    "a product": "y[q] = if ids[q] >= 0 then prod(k) x[ids[q], k] else 0",
    "a maximum, which has no identity": "y[q] = if ids[q] >= 0 then max(k) x[ids[q], k] else 0",
    "any": "y[q] = if ids[q] >= 0 and (any(k) (x[ids[q], k] > 6)) then 1 else 0",
    "after and": "y[q] = if ids[q] >= 0 and (sum(k) x[ids[q], k]) > 20 then 1 else 0",
    "after or": "y[q] = if ids[q] < 0 or (sum(k) x[ids[q], k]) > 20 then 1 else 0",
    "nested conditions": "y[q] = if ids[q] >= 0 then (if x[ids[q], 0] > 1 then sum(k) x[ids[q], k] else 1) else 2",
    "an index and data": "y[q] = if q >= 1 and ids[q - 1] >= 0 then sum(k) x[ids[q - 1], k] else 0",
    "an index or data": "y[q] = if q < 1 or ids[q - 1] < 0 then 0 else sum(k) x[ids[q - 1], k]",
    "a condition in a let": "y[q] = let good = (q < 4 and x[0, 0] > 0) in if good and ids[q] >= 0 then sum(k) x[ids[q], k] else 0",
    "an index in a let": "y[q] = let row = ids[q] in if row >= 0 then sum(k) x[row, k] else 0",
    "a sum in a let": "y[q] = if ids[q] >= 0 then (let s = sum(k) x[ids[q], k] in s * s) else 0",
    "several sums": "y[q] = if ids[q] >= 0 then (sum(k) x[ids[q], k]) / (max(k) x[ids[q], k]) else 0",
    "sums on both sides": "y[q] = if ids[q] >= 0 then sum(k) x[ids[q], k] else sum(k) x[0, k]",
    "one sum under two conditions": """y[q] = (if ids[q] >= 0 and q < 3 then sum(k) x[ids[q], k] else 0)
        + (if ids[q] >= 0 and q >= 2 then sum(k) x[ids[q], k] else 0)""",
    "a filter as well": "y[q] = if ids[q] >= 0 then sum(k, x[ids[q], k] > 2) x[ids[q], k] else 0",
    "a sum that starts somewhere": "y[q] = if ids[q] >= 0 then sum(k, from x[ids[q], 0]) x[ids[q], k] else 0",
    "a start alone": "y[q] = if ids[q] >= 0 then sum(k, from x[ids[q], 0]) x[0, k] else 0",
    "a sum decides about another": """y[q] =
        if ids[q] >= 0 then (if (sum(k) x[ids[q], k]) > 20 then sum(k) x[ids[q], k] * x[0, k] else 1) else 0""",
    "a sum of sums": "y[q] = sum(p in 0..q + 1) (if ids[p] >= 0 then (sum(k) x[ids[p], k]) else 0)",
    "a sum of sums for each element": "y[q] = sum(p in 0..q + 1) (if ids[p] >= 0 then (sum(k) x[ids[p], k] * x[0, (k + q) % K]) else 0)",
    "sums in filters": "y[q] = sum(p in 0..q + 1, ids[p] >= 0 and (sum(k) x[ids[p], k]) > 20) x[0, 0]",
    "a sum that every term needs": "y[q] = if ids[q] >= 0 then (sum(k) x[ids[q], k] / (1 + (sum(j) x[ids[q], j]))) else 0",
    "a maximum inside of sums, under a condition": "y[q] = sum(k) (if ids[q] >= 0 then x[ids[q], k] / (1 + (max(j) x[ids[q], j])) else 0)",
    "clauses": "y[q] = if ids[q] >= 0 then sum(k) x[ids[q], k] else 0 for q in 0..3\n y[q] = 1 otherwise",
    "a read, not a sum": "y[q] = if ids[q] >= 0 then x[ids[q], 0] else 0",
}


def known_or_open(forms: Iterable[str], both: Container[str]) -> list[tuple[str, bool]]:
    """Return each form with whether its sizes are open: of every fourth one they are, of `both` in one case and not in another. Conditions
    are found in the program; sizes decide how the loops below them run."""
    return [(form, symbolic) for n, form in enumerate(forms) for symbolic in ((False, True) if form in both else (n % 4 == 3,))]


@pytest.mark.parametrize(
    ("form", "symbolic"), known_or_open(BAGS, {"a sum", "a sum that starts somewhere", "a sum of sums for each element"})
)
def test_an_index_of_which_a_condition_says_that_it_fits(form: str, symbolic: bool) -> None:
    text = f"op bag(x: f32[R, K], ids: i64[Q] in -1..R) -> (y: f32[Q]) where R >= 1, K >= 1 {{\n {BAGS[form]}\n}}"
    agrees(text, X, PADDED, symbolic=symbolic)


ASKED = {
    "both bounds in the condition": "y[q] = if ids[q] >= 0 and ids[q] < R then sum(k) x[ids[q], k] else 0",
    "another tensor decides": "y[q] = if good[q] > 0 then sum(k) x[ids[q], k] else 0",
    "another tensor decides about a maximum": "y[q] = if good[q] > 0 then max(k) x[ids[q], k] else 0",
    "an index from an index": "y[q] = if good[q] > 0 then sum(k) x[near[ids[q]], k] else 0",
    "a start": "y[q] = if good[q] > 0 then sum(k, from x[ids[q], 0]) x[0, k] else 0",
    "a condition inside": "y[q] = sum(k) (if good[q] > 0 then x[ids[q], k] else 0)",
    "a filter": "y[q] = sum(k, good[q] > 0) x[ids[q], k]",
    "a sum after and": "y[q] = if good[q] > 0 and (sum(k) x[ids[q], k]) > 20 then 1 else 0",
    "a sum inside of sums": "y[q] = sum(p in 0..q + 1) (if good[p] > 0 then (sum(k) x[ids[p], k]) else 0)",
}


@pytest.mark.parametrize(("form", "symbolic"), known_or_open(ASKED, {"another tensor decides", "a sum inside of sums"}))
def test_an_index_that_is_checked_where_it_is_asked_for(form: str, symbolic: bool) -> None:
    params = "x: f32[R, K], ids: i64[Q], good: i32[Q], near: i64[R] in 0..R"
    text = f"op bag({params}) -> (y: f32[Q]) where R >= 1, K >= 1 {{\n {ASKED[form]}\n}}"
    agrees(text, X, ANY, ids(1, 0, 1, 0, 1, 0, 0, dtype=np.int32), ids(2, 1, 0), symbolic=symbolic)


@pytest.mark.parametrize("good", ["f32", "bool", "u64"])
def test_a_condition_of_any_type_keeps_a_read_inside(good: str) -> None:
    cond = "good[q]" if good == "bool" else "good[q] > 0"
    text = f"op bag(x: f32[R], ids: i64[Q], good: {good}[Q]) -> (y: f32[Q]) {{\n y[q] = if {cond} then x[ids[q]] else 0\n}}"
    dtype = {"f32": np.float32, "bool": np.bool_, "u64": np.uint64}[good]
    agrees(text, numbers(3), ANY, ids(1, 0, 1, 0, 1, 0, 0).astype(dtype))


def test_a_condition_on_a_float_says_nothing_of_the_integer_that_it_becomes() -> None:
    read = "if at[q] > 0 and at[q] <= 3 then x[i64(at[q]) - 1] else 0"
    text = f"op pick(x: f32[3], at: f32[Q]) -> (y: f32[Q]) {{\n y[q] = {read}\n}}"
    agrees(text, numbers(3), np.array([1, 2.5, np.nan, 3, 3.25, -0.5, np.inf], np.float32))
    with pytest.raises(tl.RunError, match="lies outside"):
        tl.parse(text)["pick"](numbers(3), np.array([1, 0.5], np.float32))


START = "op f(x: f32[M], w: f32[N]) -> (y: f32[M]) { y[i] = if i >= 1 then sum(k, from x[i - 1]) w[k] else 0 }"
TUPLES = {
    "a position": "y[q] = if ids[q] >= 0 then (argmax(k) x[ids[q], k]) else -1",
    "after and": "y[q] = if ids[q] >= 0 and (argmax(k) x[ids[q], k]) > 2 then 1 else 0",
    "a position that decides": "y[q] = if ids[q] >= 0 and (argmax(k) x[ids[q], k]) > 2 then (argmin(k) x[ids[q], k]) else -1",
}
LOOPS = {
    "vectors of elements": "split q by 4 -> qo, qi\norder qo, k, qi\nvectorize qi",
    "vectors of terms": "split k by 4 -> ko, ki\nvectorize ki",
    "threads": "parallel y.q",
    "parts": "rfactor k by 4",
    "stretches": "rfactor k to 4",
    "reversed": "reverse k",
}


@pytest.mark.parametrize("form", TUPLES)
def test_reductions_of_several_values(form: str) -> None:
    agrees(f"op bag(x: f32[R, K], ids: i64[Q] in -1..R) -> (y: i64[Q]) where K >= 1 {{\n {TUPLES[form]}\n}}", X, PADDED)


@pytest.mark.parametrize("loops", LOOPS)
@pytest.mark.parametrize("form", ["a sum", "an index and data", "a sum that starts somewhere", "another tensor decides"])
def test_loops_keep_conditions(form: str, loops: str) -> None:
    if form in ASKED:
        params = "x: f32[R, K], ids: i64[Q], good: i32[Q]"
        text = f"op bag({params}) -> (y: f32[Q]) {{\n {ASKED[form]}\n}}"
        agrees(text, numbers(3, 9), ANY, ids(1, 0, 1, 0, 1, 0, 0, dtype=np.int32), schedule=LOOPS[loops])
    else:
        text = f"op bag(x: f32[R, K], ids: i64[Q] in -1..R) -> (y: f32[Q]) where K >= 1 {{\n {BAGS[form]}\n}}"
        agrees(text, numbers(3, 9), PADDED, schedule=LOOPS[loops])


@pytest.mark.parametrize("schedule", [None, "vectorize i", "split k by 4 -> ko, ki\nvectorize ki"])
def test_what_a_sum_starts_from_is_read_where_the_sum_is_asked_for(schedule: str | None) -> None:
    agrees(START, numbers(8), numbers(8), schedule=schedule)


def test_indices_that_are_numbers_lie_inside_or_outside_for_good() -> None:
    agrees("op corner(x: f32[N]) -> (y: f32) {\n y = x[-1 | 7] + x[2 | 5]\n}", numbers(3))
    agrees("op corner(x: f32[N]) -> (y: f32) {\n y = sum(k in 0..4) x[-1 | skip] + x[2 | 5]\n}", numbers(3))


WHERE_ASKED_FOR = {
    "the first element": "y[j] = z[j] + sum(_c in 0..2) z[0]",
    "an end": "y[j] = z[j] + sum(c in 0..2) z[M - c - 1 | clamp]",
    "a sum in a sum": "y[j] = z[j] + sum(c in 1..N) (x[c] * (sum(_d in 0..2) x[1]))",
    "a condition on a size": "y[j] = sum(c in 0..3) x[c] for j in 0..M, N >= 3\n y[j] = z[j] otherwise",
    "no identity": "y[j] = z[j] + max(_c in 0..2) z[0]",
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", WHERE_ASKED_FOR)
def test_a_reduction_that_is_taken_once_for_a_row_reads_nothing_for_a_row_of_no_elements(name: str, symbolic: bool) -> None:
    text = f"op f(x: f32[N], z: f32[M]) -> (y: f32[M]) {{ {WHERE_ASKED_FOR[name]} }}"
    for n, m in ((3, 2), (0, 2), (1, 0), (0, 0), (2, 17)) if symbolic else ((0, 2), (1, 0), (2, 17)):
        agrees(text, numbers(n), numbers(m), symbolic=symbolic)


DROPPED = {
    "a filter": "y[q] = sum(p, x[ids[p], q % K | skip] > 2) x[0, p % K]",
    "a filter after another": "y[q] = sum(p, good[p] > 0, x[ids[p] - q, 0 | skip] > 2) x[0, p % K]",
    "an index from an index": "y[q] = sum(p, x[near[ids[p] | skip], 0 | skip] > 2) x[0, p % K]",
    "a filter and its terms": "y[q] = sum(p, x[ids[p], 0 | skip] > 2) x[ids[p] + 1, q % K | skip]",
    "a condition in a let": "y[q] = sum(p, (let e = x[ids[p], 0 | skip] in e * e > 2)) x[0, p % K]",
    "a part of a condition": "y[q] = sum(p, good[p] > 0 and x[ids[p], 0 | skip] > 2 or p == q) x[0, p % K]",
    "a maximum": "y[q] = max(p, x[ids[p] * (q % 2), 0 | skip] > 0, from 0.5) x[0, p % K]",
    "nothing but bounds": "y[q] = sum(p, x[p, 0 | skip] > 2) x[0, p % K]",
}


@pytest.mark.parametrize(("form", "symbolic"), known_or_open(DROPPED, {"a filter and its terms", "nothing but bounds"}))
def test_a_term_whose_condition_reads_outside_is_dropped(form: str, symbolic: bool) -> None:
    params = "x: f32[R, K], ids: i64[Q], good: i32[Q], near: i64[R]"
    text = f"op bag({params}) -> (y: f32[Q]) where R >= 1, K >= 1 {{\n {DROPPED[form]}\n}}"
    agrees(text, X, ANY, ids(1, 0, 1, 0, 1, 0, 0, dtype=np.int32), ids(2, 1, 0), symbolic=symbolic)
