"""Reducers that keep the index of a term: what is known of it where terms come in order, and which index it is."""

from __future__ import annotations

import numpy as np
import pytest
from scheduled_programs import legal, loops

import tensorlang as tl
from codegen.loops.printer import show

NEAREST = """
op nearest(x: f32[M, N]) -> (y: i64[M]) where N >= 1 {
    y[i] = argmax(j) x[i, j]
}
"""
SCHEDULES = {
    "in order": ("", False),
    "in pieces, in order": ("split j by 8 -> jo, ji", False),
    "rows in lanes": ("split i by 8 -> io, iv\n order io, j, iv\n vectorize iv", False),
    "backwards": ("reverse j", True),
    "terms in lanes, each in order": ("split j by 8 -> jo, jv\n vectorize jv", False),
    "pieces of all rows in another order": ("split j by 8 -> jo, ji\n order i, ji, jo", True),
}


@pytest.mark.parametrize(("directives", "compares"), SCHEDULES.values(), ids=SCHEDULES)
def test_indices_are_compared_where_a_later_term_may_have_a_lower_one(directives: str, compares: bool) -> None:
    _, plan = legal(f"{NEAREST}schedule nearest for cpu {{\n{directives}\n}}\n")
    text = show(loops(plan))
    assert ("old1 < new1" in text) == compares, text


IN_LANES = f"{NEAREST}schedule nearest for cpu {{\n split j by 8 -> jo, jv\n vectorize jv\n}}\n"
JOINED = """
reducer nearer (d, p) (e, q) from none = if d < e or d == e and p < q then (d, p) else (e, q)

op least(x: i32[M, N]) -> (d: i32[M], p: i64[M]) {
    d[i], p[i] = nearer(j in 0..N, x[i, j] > 0, from (4, -1)) (x[i, j], j)
}

schedule least for cpu {
    split j by 8 -> jo, jv
    vectorize jv
}
"""


@pytest.mark.parametrize("text", [NEAREST, IN_LANES], ids=["derived", "terms in lanes"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 40), (40, 17), (100, 3), (2, 700)])
def test_the_index_is_the_first_of_the_greatest_and_of_what_is_no_number(shape: tuple[int, int], text: str) -> None:
    op = tl.parse(text).nearest
    x = np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(np.float32)
    x[::2, shape[1] // 2 :: 3] = np.nan
    np.testing.assert_array_equal(op(x), np.argmax(x, axis=1))


@pytest.mark.parametrize("columns", [0, 5, 8, 61])
def test_what_a_reduction_starts_from_joins_its_lanes_once(columns: int) -> None:
    x = np.random.default_rng(columns).integers(-9, 9, (12, columns), np.int32)
    least = [min([(4, -1), *((v, j) for j, v in enumerate(row) if v > 0)]) for row in x.tolist()]
    found = tl.parse(JOINED).least(x)
    assert [*zip(*(f.tolist() for f in found), strict=True)] == least


def test_lanes_share_a_reduction_that_computes_with_its_terms() -> None:
    text = IN_LANES.replace("argmax", "logsumexp").replace("i64", "f32")
    x = np.random.default_rng(3).standard_normal((12, 61)).astype(np.float32)
    np.testing.assert_allclose(tl.parse(text).nearest(x), np.log(np.exp(x).sum(axis=1)), rtol=1e-6)


@pytest.mark.parametrize(("rule", "found"), [("a != 0", 3), ("a > b", 9)], ids=["the first", "the greatest"])
def test_lanes_share_what_chooses_the_same_in_any_order_alone(rule: str, found: int) -> None:
    """The first is what a reducer promises to be no different from the last: nobody asked for lanes, so there are none."""
    op = tl.parse(f"reducer chosen a b from 0 = if {rule} then a else b\nop f(x: i32[N]) -> (y: i32) {{ y = chosen(i) x[i] }}").f
    x = np.array([0, 0, 3, *[0] * 61, *[9] * 100], np.int32)
    assert op(x) == found
    assert ("\n    vectorize y.i" in op.explain(x)) == (rule == "a > b")
