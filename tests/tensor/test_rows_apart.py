"""What several elements of a step of a recurrence read of the one before it, as tensors of their own."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.printer import show
from tensorlang.tensor.rows_apart import rows_apart

PARAMS = "x: i32[N, N]) -> (y: i32[N, N])"
START, END = "m[0, i, j] = x[i, j]\n", "\ny[i, j] = m[N, i, j]"
STEP = "for k in 0..N, i in 0..N, j in 0..N"
APART = {
    "a column": (f"m[k + 1, i, j] = m[k, i, j] - m[k, i, k] {STEP}", ["m.row[k, i]"]),
    "a row and a column": (f"m[k + 1, i, j] = m[k, i, j] - m[k, i, k] * m[k, k, j] {STEP}", ["m.row[k, i]", "m.row_1[k, j]"]),
    "one element": (f"m[k + 1, i, j] = m[k, i, j] + m[k, k, k] {STEP}", ["m.row[k]"]),
    "two rows that take turns": (
        f"m[k + 1, i, j] = if i == k then m[k, i + 1, j | 0] else if i == k + 1 then 2 * m[k, i - 1, j | 0] else m[k, i, j] {STEP}",
        ["m.row[k, j]", "m.row_1[k, j]"],
    ),
    "a row that a condition names backwards": (
        f"m[k + 1, i, j] = if i + k == N - 1 then m[k, i, j] + m[k, i - 1, j | 0] else m[k, i, j] {STEP}",
        ["m.row[k, j]"],
    ),
}
KEPT = {
    "what stood in the same place": f"m[k + 1, i, j] = m[k, i, j] + 1 {STEP}",
    "neighbours": f"m[k + 1, i, j] = m[k, i, j] + m[k, i - 1, j | 0] {STEP}",
    "the last of other steps": f"m[k + 1, i, j] = m[k, N - 1 - i, j] {STEP}",
}


@pytest.mark.parametrize("case", APART)
def test_each_row_becomes_a_tensor_and_every_element_is_what_it_was(case: str) -> None:
    equation, names = APART[case]
    program = operator(PARAMS, START + equation + END)
    made = rows_apart(program, "m")
    assert not isinstance(made, str), made
    rows = [d for d in made.definitions if d.tensors[0].name not in ("m", "y")]
    assert [f"{d.tensors[0].name}[{', '.join(d.axes)}]" for d in rows] == names, show(made)
    for n in (1, 4):
        assert_same(program, proven(program, Schedule("f").lift("m")), {"N": n})


@pytest.mark.parametrize("case", KEPT)
def test_what_lies_along_as_many_axes_as_its_readers_stays(case: str) -> None:
    assert rows_apart(operator(PARAMS, START + KEPT[case] + END), "m") == "no rows of `m` are read by all elements of a step"
