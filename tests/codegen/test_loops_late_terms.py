"""Of sums, minima and maxima that iterations wait for, what the iteration before makes is added last; sums of whole numbers alone."""

from __future__ import annotations

import pytest

from codegen.loops.late_terms import with_late_terms_last
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

TEXT = """func f(n)(a: {t}[n], b: {t}[n], out y: {t}[n]) {{
    for i in 1 .. n serial {{
        let p = y[i - 1]
        y[i] = {value}
    }}
}}
"""


@pytest.mark.parametrize(
    ("value", "after"),
    [
        ("y[i - 1] + a[i] + b[i]", "a[i] + b[i] + y[i - 1]"),
        ("y[i - 1] + a[i] - b[i]", "a[i] - b[i] + y[i - 1]"),
        ("y[i - 1] - a[i] - b[i]", "y[i - 1] - (a[i] + b[i])"),
        ("y[i - 1] - a[i] + b[i]", "b[i] - a[i] + y[i - 1]"),
        ("a[i] - (y[i - 1] + b[i])", "a[i] - b[i] - y[i - 1]"),
        ("2_i32 * p + a[i] - b[i] + y[i - 1]", "a[i] - b[i] + 2_i32 * p + y[i - 1]"),
        ("max(y[i - 1] + a[i] + b[i], 0_i32)", "max(a[i] + b[i] + y[i - 1], 0_i32)"),
        ("(y[i - 1] + a[i] + b[i]) * b[i] + a[i]", "(a[i] + b[i] + y[i - 1]) * b[i] + a[i]"),
    ],
)
def test_what_is_late_is_added_last(value: str, after: str) -> None:
    made = with_late_terms_last(parse(TEXT.format(t="i32", value=value)))
    verify(made)
    assert show(made).split("y[i] = ")[1].split("\n")[0] == after


@pytest.mark.parametrize("dtype", ["i32", "f32"])
@pytest.mark.parametrize(
    ("value", "after"),
    [
        ("max(max(y[i - 1], a[i]), b[i])", "max(y[i - 1], max(a[i], b[i]))"),
        ("max(max(a[i], y[i - 1]), max(p * a[i], b[i]))", "max(p * a[i], max(y[i - 1], max(a[i], b[i])))"),
        ("min(min(y[i - 1] * b[i] * b[i], p), a[i])", "min(y[i - 1] * b[i] * b[i], min(p, a[i]))"),
        ("min(max(max(y[i - 1], a[i]), LOW), HIGH)", "min(max(y[i - 1], max(a[i], LOW)), HIGH)"),
        ("min(max(min(y[i - 1], a[i]), LOW), HIGH)", "max(min(y[i - 1], min(a[i], HIGH)), LOW)"),
        ("max(min(max(y[i - 1], a[i]), HIGH), LOW)", "min(max(y[i - 1], max(a[i], LOW)), HIGH)"),
        ("select(a[i] < LOW, min(min(y[i - 1], a[i]), b[i]), p)", "select(a[i] < LOW, min(y[i - 1], min(a[i], b[i])), p)"),
    ],
)
def test_minima_and_maxima_are_taken_last_of_what_is_late(value: str, after: str, dtype: str) -> None:
    def typed(text: str) -> str:
        dot = ".0" if dtype == "f32" else ""
        return text.replace("LOW", f"-9{dot}_{dtype}").replace("HIGH", f"9{dot}_{dtype}")

    made = with_late_terms_last(parse(TEXT.format(t=dtype, value=typed(value))))
    verify(made)
    swaps = "min(max(min(" in value or "max(min(max(" in value  # the order of limits, which LLVM has of its own for whole numbers
    assert show(made).split("y[i] = ")[1].split("\n")[0] == typed(value if swaps and dtype == "i32" else after)


@pytest.mark.parametrize("value", ["min(max(min(y[i - 1], a[i]), 9_i32), -9_i32)", "max(y[i - 1], min(a[i], b[i]))", "max(a[i], b[i])"])
def test_other_minima_and_maxima_stay_as_they_are(value: str) -> None:
    function = parse(TEXT.format(t="i32", value=value))
    assert with_late_terms_last(function) == function


@pytest.mark.parametrize("value", ["y[i - 1] + a[i]", "a[i] + b[i] + y[i - 1]", "a[i] + b[i] + a[i - 1]", "p - y[i - 1] + a[i]"])
def test_other_sums_stay_as_they_are(value: str) -> None:
    function = parse(TEXT.format(t="i32", value=value))
    assert with_late_terms_last(function) == function


def test_sums_of_floats_keep_their_order() -> None:
    function = parse(TEXT.format(t="f32", value="y[i - 1] + a[i] + b[i]"))
    assert with_late_terms_last(function) == function


def test_nothing_waits_where_loops_are_not_serial() -> None:
    function = parse(TEXT.format(t="i32", value="y[i] + a[i] + b[i]").replace("serial", "parallel"))
    assert with_late_terms_last(function) == function
