"""`specialize CONDITION, …`: a kernel for each case of sizes, with directives of its own; together they serve every size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang as tl
from tensorlang.diagnostics import CompileError, Source
from tensorlang.shell.checking import check_source

OPERATOR = "op f(x: f32[N, M]) -> (y: f32[N, M]) { y[i, j] = 2 * x[i, j] + x[i, 0] }\n"
SCHEDULE = """schedule f for cpu {
    specialize M == 4, M % 8 == 0
    unroll j if M == 4
    split j by 8 -> jo, ji if M != 4
    vectorize ji if M % 8 == 0
}
"""
TWO = "specialize N <= 2, N == 5\nspecialize M % 4 == 0\nparallel i if N > 2\nsplit j by 4 -> jo, ji\nvectorize ji if M % 4 == 0"


def right(operator: tl.Operator, rows: int, columns: int) -> None:
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    np.testing.assert_array_equal(operator(x), 2 * x + x[:, :1] if columns else x)


@pytest.mark.parametrize("sizes", ["symbolic", "auto", "static"])
def test_every_size_is_served_by_its_case(sizes: str) -> None:
    operator = tl.parse(OPERATOR + SCHEDULE, sizes=sizes, threads=1).f
    for columns in (4, 8, 16, 5, 3, 0, 1, 4, 24):
        for rows in (1, 3, 0, 2):
            right(operator, rows, columns)


def test_each_case_has_the_directives_whose_conditions_hold_in_it() -> None:
    operator = tl.parse(OPERATOR + SCHEDULE, sizes="symbolic", threads=1).f
    four, eights, rest = (operator.explain(np.ones((3, m), np.float32)) for m in (4, 16, 5))
    assert "\n    unroll j\n" in four and "assume" not in four and "(N)(x: f32[N, 4]" in four
    assert "\n    assume M != 4\n    assume M % 8 == 0\n" in eights and "vectorize ji\n}" in eights
    assert "\n    assume M != 4\n    assume M % 8 != 0\n" in rest and "# `vectorize ji` is left out: `M % 8 == 0` does not hold" in rest


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_a_schedule_with_two_kinds_of_cases_is_right_for_all_sizes(shapes: list[tuple[int, int]]) -> None:
    operator = tl.parse(OPERATOR, sizes="symbolic", threads=2).f.schedule(TWO)
    for rows, columns in shapes:
        right(operator, rows, columns)


def test_conditions_that_follow_from_a_case_are_known_in_it() -> None:
    text = "specialize M >= 32, M % 16 == 0\nsplit j by 8 -> jo, ji\nvectorize ji if M % 4 == 0\nunroll ji if M < 32 and M > 0"
    operator = tl.parse(OPERATOR, sizes="symbolic", threads=1).f.schedule(text.replace("vectorize ji if M % 4 == 0\n", ""))
    with pytest.raises(CompileError) as refused:
        operator(np.ones((2, 16), np.float32))
    assert refused.value.diagnostics[0].code == "S0515"  # `M > 0` is not known: no column is a multiple of sixteen, too
    known = tl.parse(OPERATOR, sizes="symbolic", threads=1).f.schedule(
        text.replace(" and M > 0", "").replace("vectorize ji if M % 4 == 0\n", "")
    )
    for columns in (0, 16, 33, 40, 7):
        right(known, 3, columns)


SCAN = """op f(x: f32[N]) -> (y: f32[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]   for i in 1..N
}
schedule f for cpu {
    specialize N == 4, N <= 1
    reverse i if N <= 1
    {}
}
"""


def test_every_case_is_proven_where_the_schedule_is_written() -> None:
    assert not check_source(Source("f.tl", SCAN.replace("{}", "unroll i if N == 4"))).mistakes
    (refused,) = check_source(Source("f.tl", SCAN.replace("{}", "reverse i if N == 4"))).mistakes
    assert refused.code == "S0301" and refused.help == "without `reverse i` the schedule is legal"


@pytest.mark.parametrize(
    ("directive", "code", "said"),
    [
        ("specialize N <= M <= 4", "S0102", "is two conditions"),
        ("specialize M == 4, N", "S0102", "`N` compares no sizes"),
        ("specialize M == 4 by 8", "S0102", "it is about conditions alone"),
        ("specialize K == 4", "S0505", "a condition cannot ask for `K`"),
    ],
)
def test_what_makes_no_cases_is_refused(directive: str, code: str, said: str) -> None:
    (refused,) = check_source(Source("f.tl", f"{OPERATOR}schedule f for cpu {{\n    {directive}\n}}\n")).mistakes
    assert refused.code == code and said in refused.title


def test_a_case_of_no_sizes_is_nothing_to_prove() -> None:
    text = f"{SCAN.replace('N == 4, N <= 1', 'N <= 1, N == 1')}"
    assert not check_source(Source("f.tl", text.replace("{}", "reverse i if N == 1"))).mistakes


def test_a_tactic_has_no_cases_of_its_own() -> None:
    text = f"{OPERATOR}tactic t(j) {{\n    specialize M == 4\n}}\nschedule f for cpu {{\n    t(j)\n}}\n"
    (refused,) = check_source(Source("f.tl", text)).mistakes
    assert refused.code == "S0102" and "cases are for schedules of operators" in refused.title


def test_kernels_of_different_cases_are_different_entries_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    for columns in (5, 16):
        right(tl.parse(OPERATOR + SCHEDULE, sizes="symbolic", threads=1).f, 3, columns)
    for columns in (16, 5):
        right(tl.parse(OPERATOR + SCHEDULE, sizes="symbolic", threads=1).f, 3, columns)
