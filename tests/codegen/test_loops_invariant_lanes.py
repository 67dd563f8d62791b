"""What lanes would compute anew in every iteration is computed once for each of them, where it takes long."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import check

from codegen.loops.interp import run
from codegen.loops.invariant_lanes import invariant_lanes
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N)(x: f32[2, 8], s: f32[2], c: f32[5], at: i64[5], out y: f32[2, 8]) {\n"
SUMS = """for k in 0 .. 5 { for i in 0 .. 2 unroll 2 { for v in 0 .. 8 vector 8 {
    y[i, v] = y[i, v] + abs(x[i, v] / s[i] - c[k])
} } }"""


def moved(body: str) -> str:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    after = invariant_lanes(function)
    verify(after)
    return show(after)


def test_a_division_of_lanes_moves_before_the_loop_that_it_does_not_depend_on() -> None:
    before, loop = moved(SUMS).split("for k in")
    assert "alloc kept: f32[2, 8] registers" in before and "x[i, v] / s[i]" in before
    assert "/" not in loop and "kept[i, v] - c[k]" in loop


def test_values_that_are_computed_twice_are_kept_once_and_for_the_loops_that_they_depend_on() -> None:
    text = moved(SUMS.replace("c[k])", "c[k]) * (x[i, v] / s[i]) + exp(s[i])"))
    assert text.count("alloc kept") == 2 and text.count(" / ") == 1
    assert "f32[2] registers" in text


@pytest.mark.parametrize(
    ("before", "instead"),
    [
        ("x[i, v] / s[i]", "x[i, v] / c[k]"),
        ("x[i, v] / s[i]", "y[i, v] / s[i]"),
        ("x[i, v] / s[i]", "x[i, v] * s[i]"),
        ("x[i, v] / s[i]", "x[i, value(at[0])] / s[i]"),
        ("abs(x[i, v] / s[i] - c[k])", "select(c[k] > 0.0_f32, x[i, v] / s[i], 0.0_f32)"),
        ("0 .. 5 {", "0 .. 1 {"),
        ("0 .. 5 {", "0 .. 5 parallel 5 {"),
        ("0 .. 2 unroll 2", "0 .. N"),
        ("y[i, v] = y[i, v] + abs(x[i, v] / s[i] - c[k])", "for p in 3 .. 3 { y[i, v] = y[i, v] + x[i, v] / s[i] }"),
    ],
    ids=["it changes", "it is stored", "it is quick", "data say where", "not always", "once", "threads", "of an open loop", "never"],
)
def test_other_values_stay_where_they_are(before: str, instead: str) -> None:
    assert "alloc" not in moved(
        SUMS.replace(before, instead).replace("y[i, v] = y[i, v] +", "y[i, v] =" if "parallel" in instead else "y[i, v] = y[i, v] +")
    )


def test_nothing_is_computed_before_a_loop_that_does_not_run() -> None:
    before, loop = moved(SUMS.replace("0 .. 5 {", "0 .. N {")).split("for k in")
    assert before.index("if index(0) < index(N)") < before.index("x[i, v] / s[i]") and "/" not in loop


def test_values_of_a_loop_that_does_not_begin_at_0_lie_side_by_side() -> None:
    before, loop = moved(SUMS.replace("0 .. 2 unroll 2", "1 .. 2 serial")).split("for k in")
    assert "alloc kept: f32[1, 8] stack" in before and "kept[i - 1, v]" in loop


@pytest.mark.parametrize(("length", "place"), [(8, "stack"), (8192, "heap"), (65536, "")], ids=["few", "many", "more than a cache holds"])
def test_values_lie_where_there_is_room_for_as_many(length: int, place: str) -> None:
    text = moved(
        SUMS.replace("0 .. 2 unroll 2", "0 .. 2 serial").replace("0 .. 8 vector 8", f"0 .. {length} serial").replace(", v]", ", v % 8]")
    )
    assert (f"alloc kept: f32[2, {length}] {place}" in text) if place else "alloc" not in text


@pytest.mark.parametrize("other", ["x[i, v] / s[i]", "s[i]"], ids=["in any case", "on one side"])
def test_what_both_sides_of_a_condition_compute_is_kept(other: str) -> None:
    chosen = SUMS.replace("abs(x[i, v] / s[i] - c[k])", f"select(c[k] > 0.0_f32, x[i, v] / s[i], 1.0_f32 + {other})")
    branches = SUMS.replace("y[i, v] = ", f"if c[k] > 0.0_f32 {{ y[i, v] = x[i, v] / s[i] }} else {{ y[i, v] = {other} }} y[i, v] = ")
    branches = branches.replace("abs(x[i, v] / s[i] - c[k])", "c[k]")
    assert {moved(body).count("alloc kept") for body in (chosen, branches)} == {int("/" in other)}


def test_threads_share_what_is_computed_for_them() -> None:
    text = moved(SUMS.replace("unroll 2", "parallel 2"))
    assert "alloc kept: f32[2, 8] heap" in text and text.count("/") == 1


def test_a_condition_and_the_index_that_it_is_about_are_made_of_the_same_kept_integer() -> None:
    place = "i64(floor(x[i, v])) + index(k)"
    body = SUMS.replace(
        "abs(x[i, v] / s[i] - c[k])", f"select({place} >= 0_i64, select({place} < 5_i64, c[value({place})], 0.0_f32), 0.0_f32)"
    )
    before, loop = moved(body).split("for k in")
    assert "alloc kept: i64[2, 8] registers" in before and "floor" not in loop
    assert loop.count("kept[i, v] + index(k)") == 3


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("select(c[k] > 0.0_f32 and i64(x[i, v]) > 2_i64, 1.0_f32, 0.0_f32)", True),
        ("select(c[k] > 0.0_f32, f32(i32(x[i, v])), 0.0_f32)", True),
        ("select(c[k] > 0.0_f32, f32(i64(x[i, v + N])), 0.0_f32)", False),
        ("f32(i32(at[v % 5]))", False),
    ],
    ids=["behind another question", "where data choose", "that may not be there", "of an integer"],
)
def test_integers_made_of_floats_are_kept_wherever_they_are_asked_for_if_what_they_read_is_there(value: str, *, kept: bool) -> None:
    body = SUMS.replace("abs(x[i, v] / s[i] - c[k])", value)
    assert ("alloc kept" in moved(body)) is kept
    assert ("alloc kept" in moved(body.replace("y[i, v] =", "if c[k] < 1.0_f32 { y[i, v] =").replace(value, value + " }"))) is kept


def test_values_of_a_loop_inside_that_runs_one_by_one_are_stored_on_the_stack() -> None:
    before, loop = moved(SUMS.replace("unroll 2", "serial")).split("for k in")
    assert "alloc kept: f32[2, 8] stack" in before and "/" not in loop


@pytest.mark.parametrize(
    "body",
    [SUMS, SUMS.replace("unroll 2", "serial"), SUMS.replace("0 .. 2 unroll 2", "1 .. 2 serial").replace("0 .. 5 {", "N .. 5 {")],
    ids=["in registers", "on the stack", "of an open loop and one that begins later"],
)
def test_every_bit_stays(body: str) -> None:
    rng = np.random.default_rng(1)
    given = {"x": rng.standard_normal((2, 8)), "s": rng.standard_normal(2), "c": rng.standard_normal(5), "y": np.zeros((2, 8))}
    arrays = {name: value.astype(np.float32) for name, value in given.items()} | {"at": np.zeros(5, np.int64)}
    found = check(moved(body), {"N": 1}, **{n: a.copy() for n, a in arrays.items()})["y"]
    run(parse(f"{HEAD}{body}\n}}"), {"N": 1}, arrays)
    assert_same_bits(found, arrays["y"])
