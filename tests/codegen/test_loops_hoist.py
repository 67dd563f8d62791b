"""What every iteration would compute anew is computed once, where that costs something, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from loops_strategies import running_functions

from codegen.loops.hoist import hoist
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N)(a: f32[8], out c: f32[8]) {\n"


def hoisted(body: str) -> str:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    after = hoist(function)
    verify(after)
    return show(after)


def test_a_division_and_a_root_that_do_not_change_move_before_the_loop() -> None:
    text = hoisted("for i in 0 .. 8 { c[i] = a[i] / sqrt(a[0] + 1.0_f32) }")
    before, loop = text.split("for i in")
    assert "sqrt(" in before and "let " in before
    assert "sqrt(" not in loop


def test_they_move_out_of_every_loop_they_do_not_depend_on() -> None:
    text = hoisted("for i in 0 .. 4 { for j in 0 .. 8 { c[j] = c[j] + exp(a[i]) / 2.0_f32 } }")
    assert text.index("for i in") < text.index("exp(") < text.index("for j in")


def test_a_condition_and_what_it_guards_are_about_one_value() -> None:
    value = "i64(a[N]) % 3_i64 * i64(a[i])"
    text = hoisted(f"for i in 0 .. 8 {{ c[i] = select({value} >= 0_i64 and {value} < 8_i64, a[value({value})], 0.0_f32) }}")
    assert text.count("% 3_i64") == 1 and text.count("let ") == 1


@pytest.mark.parametrize(
    ("value", "moves"),
    [("f32(i64(a[2]))", True), ("f32(i64(a[N]))", False), ("f32(i64(c[2]))", False), ("f32(i64(i32(i)))", False)],
    ids=["that is there", "that may not be there", "that is stored", "of an integer"],
)
@pytest.mark.parametrize(
    "where", ["c[i] = VALUE", "c[i] = select(a[i] > 0.0_f32, VALUE, a[i])", "if a[i] > 0.0_f32 { c[i] = a[0] + VALUE }"]
)
def test_integers_made_of_floats_move_from_under_conditions_if_what_they_read_is_there(value: str, where: str, *, moves: bool) -> None:
    moves = moves or ("a[N]" in value and "a[i]" not in where)
    text = hoisted(f"for i in 0 .. 8 {{ {where.replace('VALUE', value)} }}".replace("i32(i)", "i32(index(i))"))
    assert ("let " in text) is moves


EDGES = """for r in 0 .. 4 {
        if index(0) < index(N // 16) { for o in 0 .. N // 16 { c[r] = c[r] * EXP } }
        if index(N // 16) < index((N + 15) // 16) { for v in 0 .. N - 16*(N // 16) vector 16 { c[r + 1] = c[r + 1] * EXP } }
    }"""


@pytest.mark.parametrize(
    ("value", "count"),
    [("exp(a[r])", 1), ("exp(c[7 - r])", 2), ("exp(a[r + N])", 2), ("(exp(a[r]) + a[o])", 2), ("exp(f32(index(r // N)))", 2)],
    ids=["the same", "of what is stored", "that may not be there", "of another loop", "of an index that may trap"],
)
def test_what_whole_vectors_and_the_last_one_compute_is_computed_once(value: str, count: int) -> None:
    text = hoisted(EDGES.replace("EXP", value, 1).replace("EXP", value.replace("[o]", "[r]")))
    assert text.count("exp(") == count


def test_what_threads_compute_apart_stays_with_them() -> None:
    text = hoisted(EDGES.replace("for o in 0 .. N // 16 {", "for o in 0 .. N // 16 parallel {").replace("EXP", "exp(a[r])"))
    assert text.count("exp(") == 2


@pytest.mark.parametrize(
    ("loop", "moves"),
    [
        ("for i in 4 .. 8 { c[i] = c[i] * (c[2] / c[3]) }", True),
        ("for i in 3 .. 8 { c[i] = c[i] * (c[2] / c[3]) }", False),
        ("for i in 0 .. 8 { if index(i) > 3_i64 { c[i] = a[i] } c[0] = exp(c[3]) }", True),
        ("for i in 0 .. 8 vector 8 { if index(i) > 3_i64 { c[i] = c[i] * (c[2] / c[3]) } }", True),
        ("for i in 0 .. 8 vector 8 { if a[i] > 3.0_f32 { c[i] = c[i] * (c[2] / c[3]) } }", False),
        ("for i in 0 .. 8 vector 8 { if index(i) > 8_i64 { c[i] = exp(a[N]) } }", False),
        ("for i in 0 .. 8 { alloc t: f32[4] stack\n t[0] = a[i] c[i] = exp(t[3]) }", False),
    ],
    ids=["beside", "among", "under a condition", "in some lanes", "in lanes of data", "where nothing may be", "in memory of an iteration"],
)
def test_what_is_read_of_a_stored_buffer_moves_where_it_is_proven_to_stay(loop: str, moves: bool) -> None:
    text = hoisted(loop)
    assert ("let " in text and text.index("let ") < text.index("for i")) == moves


def test_before_a_loop_that_may_not_run_it_is_computed_only_if_it_does() -> None:
    text = hoisted("for i in 0 .. N { c[0] = exp(a[0]) }")
    assert text.index("if index(0) < index(N)") < text.index("exp(") < text.index("for i in")


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0 .. 8 { c[i] = a[i] * (a[0] + 1.0_f32) }",
        "for i in 0 .. 8 { c[i] = sqrt(a[i]) }",
        "for i in 0 .. 8 { c[0] = exp(c[0]) }",
        "for i in 0 .. 8 parallel { c[i] = exp(a[0]) }",
        "for i in 0 .. 8 { if index(i) < 3_i64 { c[i] = exp(a[0]) } }",
        "for i in 0 .. 8 { c[i] = select(a[i] > 0.0_f32, exp(a[0]), 0.0_f32) }",
        "for i in 0 .. 8 { c[i] = select(a[i] > 0.0_f32, 0.0_f32, exp(a[0])) }",
    ],
    ids=[
        "only a sum",
        "of the iteration",
        "of what the body stores",
        "a parallel loop",
        "not in every iteration",
        "where something holds",
        "where it does not",
    ],
)
def test_what_must_stay_stays(body: str) -> None:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    assert hoist(function) == function


def test_what_is_read_at_an_index_from_data_stays_behind_its_check() -> None:
    body = "for i in 0 .. 8 { require at[0] < 8_i64 else 1\n c[i] = a[value(at[0])] / 2.0_f32 }"
    function = parse(f"func f(N)(a: f32[8], at: i64[1], out c: f32[8]) {{\n{body}\n}}")
    assert hoist(function) == function


@settings(max_examples=80)
@given(running_functions(), st.integers(0, 5))
def test_hoisting_keeps_the_results_of_any_function(function: Function, n: int) -> None:
    results = []
    for f in (function, hoist(function)):
        verify(f)
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)
