"""Two comparisons of terms are one where they say the same of what is stored."""

from __future__ import annotations

import pytest

from codegen.dtypes import DType, f64, i32, i64, u8
from codegen.loops.terms import Terms


def test_widened_integers_compare_as_those_that_they_are_made_of() -> None:
    terms = Terms()
    x, y = terms.leaf("x", i32, 0), terms.leaf("y", i32, 1)
    assert terms.compare("<", terms.cast(i64, x), terms.const(3, i64)) is terms.compare("<", x, terms.const(3, i32))
    assert terms.compare("==", terms.cast(i64, x), terms.cast(i64, y)) is terms.compare("==", x, y)


@pytest.mark.parametrize(("wide", "narrow", "number"), [(i64, u8, -1), (i64, i32, 1 << 31), (f64, i32, 2.5)])
def test_what_the_stored_type_does_not_have_is_compared_in_the_wide_one(wide: DType, narrow: DType, number: float) -> None:
    terms = Terms()
    made = terms.compare("<", terms.cast(wide, terms.leaf("x", narrow, 0)), terms.const(number, wide))
    assert [a.dtype for a in made.args] == [wide, wide]
