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
    "pieces of all rows in another order": ("split j by 8 -> jo, ji\n order i, ji, jo", True),
}


@pytest.mark.parametrize(("directives", "compares"), SCHEDULES.values(), ids=SCHEDULES)
def test_indices_are_compared_where_a_later_term_may_have_a_lower_one(directives: str, compares: bool) -> None:
    _, plan = legal(f"{NEAREST}schedule nearest for cpu {{\n{directives}\n}}\n")
    text = show(loops(plan))
    assert ("old1 < new1" in text) == compares, text


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 40), (40, 17), (100, 3)])
def test_the_index_is_the_first_of_the_greatest_and_of_what_is_no_number(shape: tuple[int, int]) -> None:
    op = tl.parse(NEAREST).nearest
    x = np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(np.float32)
    x[::2, shape[1] // 2 :: 3] = np.nan
    np.testing.assert_array_equal(op(x), np.argmax(x, axis=1))
