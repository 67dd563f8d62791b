"""A loop ends where it has found what it looks for, and only where nothing after that changes a result."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops import interp
from codegen.loops.nodes import For
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.searches import loop_condition, with_searches
from codegen.loops.verify import verify

ROWS = """func f()(x: f32[5, 100], t: f32[5], out y: {t}[5]) {{
    for i in 0 .. 5 serial {{
        alloc s: {t}[1, 8] registers
        for l in 0 .. 8 vector 8 {{
            s[0, l] = {start}
        }}
        for o in 0 .. 12 serial {{
            for v in 0 .. 8 vector 8 {{
                {body}
            }}
        }}
        for w in 0 .. 4 vector 4 {{
            {rest}
        }}
        alloc total: {t}[] registers
        total[] = {total}
        for l_1 in 0 .. 8 vector 8 {{
            total[] = {combined}
        }}
        y[i] = total[]
    }}
}}
"""
FIRST = {
    "t": "i64",
    "start": "9223372036854775807_i64",
    "total": "100_i64",
    "body": "if x[i, 8*o + v] > t[i] { s[0, v] = min(s[0, v], index(8*o + v)) }",
    "rest": "if x[i, w + 96] > t[i] { s[0, w] = min(s[0, w], index(w + 96)) }",
    "combined": "min(total[], s[0, l_1])",
}
ANY = {
    "t": "bool",
    "start": "false",
    "total": "false",
    "body": "s[0, v] = s[0, v] or x[i, 8*o + v] > t[i]",
    "rest": "s[0, w] = s[0, w] or x[i, w + 96] > t[i]",
    "combined": "total[] or s[0, l_1]",
}
ALL = {
    "t": "bool",
    "start": "true",
    "total": "true",
    "body": "if x[i, 8*o + v] > 0.0_f32 { s[0, v] = s[0, v] and x[i, 8*o + v] <= t[i] }",
    "rest": "s[0, w] = s[0, w] and x[i, w + 96] <= t[i]",
    "combined": "total[] and s[0, l_1]",
}
NARROW = {
    "t": "i32",
    "start": "2147483647_i32",
    "total": "100_i32",
    "body": "if x[i, 8*o + v] > t[i] { s[0, v] = min(s[0, v], i32(index(8*o + v))) }",
    "rest": "if x[i, w + 96] > t[i] { s[0, w] = min(s[0, w], i32(index(w + 96))) }",
    "combined": "min(total[], s[0, l_1])",
}


@pytest.mark.parametrize("search", [FIRST, ANY, ALL, NARROW], ids=["first", "any", "all", "narrow"])
def test_searches_find_what_is_first_somewhere_in_the_rest_or_nowhere(search: dict[str, str]) -> None:
    text = ROWS.format(**search)
    made = with_searches(parse(text))
    verify(made)
    assert "searching[] = false" in show(made)
    x = np.random.default_rng(0).random((5, 100), np.float32)
    x[1:, :] = 0
    x[2, 98], x[3, 17], x[3, 41], x[4, 16] = 1, 1, 1, 1
    y = np.zeros(5, {"i64": np.int64, "i32": np.int32, "bool": np.bool_}[search["t"]])
    arrays = {"x": x, "t": np.full(5, 0.5, np.float32), "y": y}
    expected = check(text, **arrays)["y"]
    interp.run(made, {}, arrays)
    assert arrays["y"].tolist() == expected.tolist()


def test_the_loop_ends_with_the_condition_that_it_is_made_of() -> None:
    text = """func f()(x: i32[100], out y: i32[]) {
        alloc s: i32[] registers
        s[] = x[0]
        for i in 1 .. 100 serial {
            if s[] != 0_i32 {
                s[] = s[] - x[i]
            }
        }
        y[] = s[]
    }"""
    x = np.ones(100, np.int32)
    for first in (0, 7, 200):
        x[0] = first
        check(text, x=x, y=np.zeros((), np.int32))
    ir = emit(parse(text), named("x86-64"))
    assert ir.count("icmp ne i32") == 2  # before the loop, and where the next iteration begins


def test_one_element_that_all_iterations_share_needs_no_lanes() -> None:
    text = """func f()(x: i32[n, 3], out y: bool[]) {
        alloc s: bool[] registers
        s[] = true
        for i in 0 .. n serial {
            alloc t: i32[] registers
            t[] = 0_i32
            for k in 0 .. 3 serial {
                t[] = t[] + x[i, k]
            }
            s[] = s[] and t[] > 0_i32
        }
        y[] = s[]
    }""".replace("f()", "f(n)")
    made = with_searches(parse(text))
    assert "searching" in show(made)
    x = np.ones((9, 3), np.int32)
    check(text, {"n": 9}, x=x, y=np.zeros((), np.bool_))
    x[4] = -1
    check(text, {"n": 9}, x=x, y=np.zeros((), np.bool_))
    check(text, {"n": 0}, x=x[:0], y=np.zeros((), np.bool_))


@pytest.mark.parametrize(
    "change",
    [
        {"combined": "total[] + s[0, l_1]"},  # not what it collects
        {"body": "if x[i, 8*o + v] > t[i] { s[0, v] = min(s[0, v], index(96 - 8*o + v)) }"},  # later ones are less
        {"body": "if x[i, 8*o + v] > t[i] { s[0, v] = min(s[0, v], index(8*o + 2*v)) }"},  # one block reaches into the next
        {"body": "if x[i, 8*o + v] > t[i] { s[0, v] = min(s[0, v], i64(x[i, 8*o + v])) }"},  # no index
        {"body": "if index(s[0, v]) > index(8*o) { s[0, v] = min(s[0, v], index(8*o + v)) }".replace("index(s[0, v])", "s[0, v]")},
        {"body": "s[0, v] = max(s[0, v], index(8*o + v))"},
    ],
)
def test_nothing_ends_before_its_result_is_decided(change: dict[str, str]) -> None:
    function = parse(ROWS.format(**FIRST | change))
    assert with_searches(function) == function


def test_lanes_that_are_results_of_their_own_go_on() -> None:
    function = parse(ROWS.format(**ANY).replace("total[] = total[] or s[0, l_1]", "y[l_1 // 2] = y[l_1 // 2] or s[0, l_1]"))
    assert with_searches(function) == function


def test_few_iterations_are_not_asked() -> None:
    function = parse(ROWS.format(**ANY).replace("0 .. 12 serial", "0 .. 3 serial"))
    assert with_searches(function) == function


def test_a_loop_ends_with_a_scalar_and_with_nothing_that_is_there_only_where_the_loop_runs() -> None:
    text = """func f(n)(x: bool[n], out y: bool[n], z: bool[]) {{
    for k in 0 .. n serial {{
        if {} {{
            y[n - 1 - k] = false
        }}
    }}
}}
"""
    asked = [parse(text.format(cond)).body[0] for cond in ("z[]", "not z[]", "y[n - 1]", "z[] and x[n - 1]", "x[k]")]
    assert [isinstance(loop, For) and loop_condition(loop) is not None for loop in asked] == [True, True, False, False, False]
