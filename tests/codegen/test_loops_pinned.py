"""A loop of which a condition on data leaves one iteration runs once, and computes what it did."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st
from llvm_run import check

from codegen.llvm.target import host
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.pinned import pinned, pinned_in_threads
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N)(ids: i64[5], u: f32[5, 3], out y: f32[7, 3]) {\n"


def parsed(body: str) -> Function:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    return function


def after(body: str) -> str:
    function = pinned(parsed(body))
    verify(function)
    return show(function)


def assert_computes_the_same(function: Function, ids: list[int], size: int) -> None:
    """Assert that pinned loops store what they stored before, for these rows and this many of them."""
    results = []
    for version in (function, pinned(function)):
        arrays = {"ids": np.array(ids), "u": np.arange(15, dtype=np.float32).reshape(5, 3), "y": np.zeros((7, 3), np.float32)}
        assert run(version, {"N": size}, arrays) == 0
        results.append(arrays["y"])
    assert_same_bits(results[1], results[0])


SCATTER = "for k in 0 .. 5 { for n in 0 .. 7 { for j in 0 .. 3 vector 3 { if ids[k] == index(n) { y[n, j] = y[n, j] + u[k, j] } } } }"


def test_an_equation_with_data_becomes_the_bounds_of_its_loop() -> None:
    text = after(SCATTER)
    assert "for n in max(0, value(ids[k])) .. max(-1, min(6, value(ids[k]))) + 1" in text
    assert "if" not in text


@pytest.mark.parametrize(("inside", "bounds"), [("thread 3", "0 .. 7"), ("serial 3", "max(0, value(ids[k])) ..")])
def test_a_loop_of_a_thread_is_bounded_by_data_and_none_around_threads_is(inside: str, bounds: str) -> None:
    body = (
        f"for k in 0 .. 5 thread 5 {{ for n in 0 .. 7 {{ if ids[k] == index(n) {{ for j in 0 .. 3 {inside} {{ y[n, j] = u[k, j] }} }} }} }}"
    )
    text = show(pinned_in_threads(parsed(body)))
    assert f"for n in {bounds}" in text


PAIR = """for k in 0 .. 5 { for n in 0 .. 7 {
    if ids[k] == index(n) { y[n, 0] = u[k, 0] }
    if ids[k] == index(n) { CHANGED y[n, 1] = u[k, 1] }
} }"""


def test_parts_under_the_same_condition_are_pinned_together() -> None:
    text = after(PAIR.replace("CHANGED", ""))
    assert text.count("for n in max(0, value(ids[k])) .. max(-1, min(6, value(ids[k]))) + 1") == 1
    assert "if" not in text


BOUND_TWICE = """for k in 0 .. 5 { for n in 0 .. 7 {
    let a = ids[k]
    if a == index(n) { y[n, 0] = u[k, 0] }
    let b = ids[k]
    if b == index(n) { y[n, 1] = u[k, 1] }
} }"""


def test_parts_whose_conditions_have_names_of_their_own_for_the_same_data_are_pinned_together() -> None:
    text = after(BOUND_TWICE)
    assert text.count("for n in max(0, value(a)) .. max(-1, min(6, value(a))) + 1") == 1
    assert "if" not in text


def test_data_that_changed_in_between_are_not_the_same() -> None:
    text = after(BOUND_TWICE.replace("ids[k]", "i64(y[n, 2])").replace("y[n, 0] =", "y[n, 2] ="))
    assert text.count("if") == 2 and "let b" in text


def test_a_condition_that_the_first_part_changes_is_asked_again() -> None:
    changing = """for k in 0 .. 5 { for n in 0 .. 7 {
        if y[0, 2] == y[1, 2] { y[1, 2] = u[k, 0] }
        if y[0, 2] == y[1, 2] { y[n, 1] = u[k, 1] }
    } }"""
    assert after(changing).count("if") == 2


@given(st.lists(st.integers(-3, 9), min_size=5, max_size=5), st.integers(0, 7))
def test_terms_reach_the_elements_they_name_and_no_others(ids: list[int], size: int) -> None:
    body = SCATTER.replace("0 .. 7", "0 .. N").replace("if ids", "if u[k, 0] > 1.0_f32 and ids")
    function = parsed(body)
    assert_computes_the_same(function, ids, size)
    assert size == 0 or "max(0, value(ids[k]))" in show(pinned(function))


def test_numbers_at_the_end_of_64_bits_name_no_element() -> None:
    ids = np.array([2**63 - 1, -(2**63), 3, -1, 7])
    arrays = {"ids": ids, "u": np.ones((5, 3), np.float32), "y": np.zeros((7, 3), np.float32)}
    assert run(pinned(parsed(SCATTER)), {"N": 1}, arrays) == 0
    assert arrays["y"].sum() == 3 and arrays["y"][3].sum() == 3


@pytest.mark.parametrize(
    "body",
    [
        SCATTER.replace("for n in 0 .. 7 {", "for n in 0 .. 7 parallel {").replace("vector 3", "serial"),
        "for n in 0 .. 7 { if index(N) == index(n) { y[n, 0] = 1.0_f32 } }",
        "for n in 0 .. 5 { if ids[n] == index(n) { y[n, 0] = 1.0_f32 } }",
        "for n in 0 .. 7 { if ids[0] != index(n) { y[n, 0] = 1.0_f32 } }",
        "for n in 0 .. 7 { if ids[0] == index(n) { y[n, 0] = 1.0_f32 } else { y[n, 0] = 0.0_f32 } }",
    ],
    ids=["threads", "a size", "data of the iteration", "no equation", "something otherwise"],
)
def test_other_loops_stay_as_they_are(body: str) -> None:
    assert "value(" not in after(body)


KEPT = "for k in 0 .. 5 { for n in 0 .. 7 { y[n, 0] = select(ids[k] == index(n), u[k, 0], y[n, 0]) } }"


def test_a_store_that_leaves_all_elements_but_one_as_they_are_runs_for_that_one() -> None:
    text = after(KEPT)
    assert "for n in max(0, value(ids[k])) .. max(-1, min(6, value(ids[k]))) + 1" in text
    assert "select" not in text


@pytest.mark.parametrize("other", ["y[n, 1]", "y[6 - n, 0]", "u[k, 1]"])
def test_a_store_that_changes_the_other_elements_too_runs_for_all(other: str) -> None:
    assert "value(" not in after(KEPT.replace("y[n, 0]) }", f"{other}) }}"))


ENDS = [*range(-3, 10), 2**63 - 1, -(2**63), 2**32, -(2**32)]


@given(
    st.lists(st.sampled_from(ENDS), min_size=5, max_size=5), st.integers(0, 7), st.sampled_from(("0 .. N", "2 .. N", "0 .. 7", "N .. 7"))
)
def test_compiled_code_reaches_the_elements_that_data_name_and_no_others(ids: list[int], size: int, bounds: str) -> None:
    arrays = {"ids": np.array(ids), "u": np.arange(15, dtype=np.float32).reshape(5, 3), "y": np.zeros((7, 3), np.float32)}
    for body in (KEPT, SCATTER):
        text = show(pinned(parsed(body.replace("0 .. 7", bounds))))
        check(text, {"N": size}, targets=[host()], **arrays)


def test_what_the_loop_stores_is_no_bound_of_it() -> None:
    function = parse("func f()(out y: i64[7]) {\nfor n in 0 .. 7 { if y[0] == index(n) { y[n] = 1_i64 } }\n}")
    assert show(pinned(function)) == show(function)


def test_a_condition_leaves_a_loop_that_may_not_run_only_where_it_runs() -> None:
    text = after("for k in 0 .. 5 { for j in 0 .. N { if ids[k] == 3_i64 { y[0, k % 3] = u[k, 0] } } }")
    assert text.index("index(0) < index(N)") < text.index("for j")


APART = """for k in 0 .. 5 { for n in 0 .. 7 {
    if index(0) < index(N // 2) { if ids[k] == index(n) { y[n, 0] = y[n, 0] + u[k, 0] } }
    for j in N // 2 .. (N + 1) // 2 { if FIRST { if ids[THERE] == index(n) { y[n, 1] = y[n, 1] + u[k, 1] } } }
} }"""
APART_OTHERWISE = [
    {"FIRST": "index(n) < index(3)"},  # the condition asks for the iteration
    {"FIRST": "u[k, 2] < 1.0_f32"},  # what it reads may be there only where an iteration runs
    {"THERE": "k // 2"},
    {"THERE": "j % 5"},
]


def apart(FIRST: str = "index(j) < index(5)", THERE: str = "k") -> str:
    return APART.replace("FIRST", FIRST).replace("THERE", THERE)


def test_a_loop_moves_into_the_conditions_that_its_parts_stand_under_before_they_ask_the_same_of_data() -> None:
    text = after(apart())
    assert text.count("for n in max(0, value(ids[k])) .. max(-1, min(6, value(ids[k]))) + 1") == 2
    assert text.index("index(0) < index(N // 2)") < text.index("for n") and text.rindex("for j") < text.rindex("for n")


def test_a_loop_whose_conditions_leave_it_one_after_the_other_is_pinned_at_the_last() -> None:
    text = after("for k in 0 .. 5 { for n in 0 .. 7 { if index(0) < index(N) { if ids[k] == index(n) { y[n, 0] = u[k, 0] } } } }")
    assert text.index("index(0) < index(N)") < text.index("for n in max(0, value(ids[k]))")


@pytest.mark.parametrize("parts", APART_OTHERWISE)
def test_a_loop_stays_where_its_parts_ask_for_other_iterations(parts: dict[str, str]) -> None:
    assert "for n in 0 .. 7" in after(apart(**parts))


@given(
    st.lists(st.integers(-2, 8), min_size=5, max_size=5),
    st.integers(0, 5),
    st.sampled_from([{}, *APART_OTHERWISE]),
)
def test_what_moves_into_conditions_computes_what_it_did(ids: list[int], size: int, parts: dict[str, str]) -> None:
    function = parsed(apart(**parts))
    assert_computes_the_same(function, ids, size)


def test_what_the_condition_names_leaves_the_loop_with_it() -> None:
    text = after("for n in 0 .. 7 { let i = ids[0]\nif select(i < 0_i64, i + 7_i64, i) == index(n) { y[n, 0] = 1.0_f32 } }")
    assert text.index("let i = ids[0]") < text.index("for n in max(0, value(select(")


RANGE = """for i in 0 .. 4 { for k in 0 .. N { for j in 0 .. 3 vector 3 {
    if ids[i] AFTER index(3*k + j) and index(3*k + j) BEFORE ids[i + 1] { y[i, j] = y[i, j] + u[k, j] }
} } }"""

ROWS = """for i in 0 .. 4 { for k in 0 .. N {
    if ids[i] AFTER index(k) and index(k) BEFORE ids[i + 1] { for j in 0 .. 3 vector 3 { y[i, j] = y[i, j] + u[k, j] } }
} }"""


def test_comparisons_that_bounds_say_all_of_are_asked_no_more() -> None:
    text = after(ROWS.replace("AFTER", "<=").replace("BEFORE", "<"))
    assert "value(ids[i])" in text and "value(ids[i + 1])" in text and "ids[i] <= " not in text and " < ids[i + 1]" not in text
    of_an_index = after("for i in 0 .. 4 { for k in 0 .. N { if ids[i] <= index(k) { y[value(ids[i]), 0] = u[k, 0] } } }")
    assert "if ids[i] <= index(k)" in of_an_index


def test_comparisons_with_data_become_the_bounds_of_the_loop_around_the_lanes_that_they_are_asked_in() -> None:
    text = after(RANGE.replace("AFTER", "<=").replace("BEFORE", "<").replace("0 .. N", "0 .. 5"))
    (loop,) = (line for line in text.splitlines() if "for k in" in line)
    assert "max(0, (min(max(value(ids[i])," in loop and "min(5, (min(max(value(ids[i + 1])," in loop
    assert "if ids[i] <= index(" in text and ") < ids[i + 1]" in text


@given(
    st.lists(st.one_of(st.integers(-3, 20), st.sampled_from([-(2**63), 2**63 - 1])), min_size=5, max_size=5),
    st.integers(0, 5),
    st.sampled_from([RANGE, ROWS]),
    st.sampled_from(["<", "<="]),
    st.sampled_from(["<", "<="]),
)
def test_all_terms_of_a_range_that_data_say_are_gone_through(ids: list[int], size: int, of: str, after: str, before: str) -> None:
    function = parsed(of.replace("AFTER", after).replace("BEFORE", before))
    results = []
    for version in (function, pinned(function)):
        verify(version)
        arrays = {"ids": np.array(ids), "u": np.arange(15, dtype=np.float32).reshape(5, 3), "y": np.zeros((7, 3), np.float32)}
        assert run(version, {"N": size}, arrays) == 0
        results.append(arrays["y"])
    assert_same_bits(results[1], results[0])


@pytest.mark.parametrize(
    "condition",
    [
        "index(i + 1) < index(k) and ids[i + 2] <= index(k)",  # the read is inside under the first alone
        "ids[k] <= index(k)",
        "ids[i] != index(k)",
        "ids[i] <= index(4 + -1*k)",
    ],
)
def test_other_comparisons_leave_a_loop_as_it_is(condition: str) -> None:
    assert "for k in 0 .. 5" in after(f"for i in 0 .. 5 {{ for k in 0 .. 5 {{ if {condition} {{ y[i, 0] = u[k, 0] }} }} }}")


def test_lanes_of_which_a_condition_leaves_one_run_one_after_the_other() -> None:
    lanes = "for j in 1 .. 3 vector 2 { if index(j + 1) == 2_i64 { y[N - 1, j // 3] = u[0, j] } else { y[0, j] = u[1, j] } }"
    function = pinned(parse(f"{HEAD}{lanes.replace('j // 3', '0')}\n}}"))
    verify(function)
    assert "for j in 1 .. 3 serial 2" in show(function)
    assert "vector 2" in after(lanes)


TWO_PLACES = """for k in 1 .. 5 { for n in 0 .. 7 {
    y[n, 0] = select(index(n) == ids[k], y[n, 0] + u[k, 0], select(index(n) == ids[k - 1], u[k, 1], y[n, 0]))
} }"""


def test_of_elements_that_data_name_one_by_one_each_is_changed_by_itself() -> None:
    text = after(TWO_PLACES)
    assert "for n in max(0, value(ids[k])) .." in text
    assert "for n in max(0, value(ids[k - 1])) .." in text
    assert "if not index(n) == ids[k]" in text


@given(st.lists(st.integers(-1, 7), min_size=5, max_size=5))
def test_an_element_that_two_data_name_is_changed_as_the_first_says(ids: list[int]) -> None:
    assert_computes_the_same(parsed(TWO_PLACES), ids, 7)


@pytest.mark.parametrize(
    ("before", "instead"),
    [
        ("y[n, 0] + u[k, 0]", "y[0, 0] + u[k, 0]"),
        ("index(n) == ids[k],", "index(n) == i64(y[0, 0]),"),
        ("u[k, 1], y[n, 0]", "u[k, 1], y[0, 0]"),
    ],
    ids=["another element is read", "it says which is changed", "another element is kept"],
)
def test_iterations_that_touch_what_others_change_stay_together(before: str, instead: str) -> None:
    text = after(TWO_PLACES.replace(before, instead))
    assert text.count("for n in") == 1 and "select" in text
