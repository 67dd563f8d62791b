"""What was checked of all elements of a parameter is asked of none of them again."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.dtypes import DTYPES
from codegen.llvm.emit import emit
from codegen.llvm.target import host
from codegen.loops.parser import parse

TEXT = """func f()(p: {dtype}[9], q: i64[9], c: f32[9], x: f32[9], out y: f32[9]) {{
    {checks}
    for i in 0 .. 9 {{ y[i] = {value} }}
}}"""
RANGES = "for a in 0 .. 9 { require i64(p[a]) >= 0_i64 and i64(p[a]) < 9_i64 else 1 }"
FROM_ONE = "for a in 0 .. 9 { require i64(q[a]) >= 1_i64 and i64(q[a]) < 9_i64 else 2 }"
CHOSEN = "select(c[i] > 0.0_f32, x[value(p[i])], 0.0_f32)"
TWICE = "select(c[i] > 0.0_f32, x[value(q[value(p[i])]) - 1], 0.0_f32)"


@pytest.mark.parametrize(
    ("dtype", "checks", "value", "guarded"),
    [
        ("i64", RANGES, CHOSEN, False),
        ("i32", RANGES, CHOSEN.replace("p[i]", "i64(p[i])"), False),
        ("i64", "", CHOSEN, True),
        ("i64", RANGES.replace("0 .. 9", "0 .. 8"), CHOSEN, True),
        ("i64", RANGES.replace("< 9", "< 10"), CHOSEN, True),
        ("i64", RANGES.replace("p[a]", "q[a]"), CHOSEN, True),
        ("i64", RANGES + FROM_ONE, TWICE, False),
        ("i64", FROM_ONE, TWICE, True),  # of a spare element, 0, nobody knows that it is 1 or more
    ],
)
def test_an_element_that_lies_in_its_buffer_is_read_under_no_condition(dtype: str, checks: str, value: str, guarded: bool) -> None:
    text = TEXT.format(dtype=dtype, checks=checks, value=value)
    code = emit(parse(text), host())
    assert ("ptr @tl.spare" in code) == guarded
    p = np.array([4, 0, 8, 1, 3, 2, 7, 6, 5])
    c, x = np.linspace(-1, 2, 9, dtype=np.float32), np.arange(9, dtype=np.float32)
    check(
        text, targets=[host()], p=p.astype(dtype.replace("i", "int")), q=np.arange(9)[::-1].clip(1, 8), c=c, x=x, y=np.zeros(9, np.float32)
    )


def test_elements_that_change_are_not_known() -> None:
    changed = RANGES + " for a in 0 .. 9 { p[a] = 20_i64 }"
    assert "ptr @tl.spare" in emit(parse(TEXT.format(dtype="i64", checks=changed, value=CHOSEN)), host())


@pytest.mark.parametrize("checks", ["", RANGES])
def test_the_only_iteration_that_an_element_names_is_asked_about_only_where_it_may_be_none(checks: str) -> None:
    loop = "for i in 0 .. 9 { for n in max(0, value(p[i])) .. max(-1, min(8, value(p[i]))) + 1 { y[n] = y[n] + x[i] } }"
    head = "func f()(p: i64[9], x: f32[9], out y: f32[9])"
    text = f"{head} {{ {checks} {loop} }}"
    asked, without = (emit(parse(t), host()).count("icmp ult i64") for t in (text, f"{head} {{ {checks} y[0] = x[0] }}"))
    assert asked - without == (not checks)
    assert emit(parse(text), host()).count(", !prof ") == (not checks)  # there nearly always is one, which follows without a jump
    check(text, targets=[host()], p=np.array([4, 0, 8, 1, 1, 2, 7, 6, 4]), x=np.arange(9, dtype=np.float32), y=np.zeros(9, np.float32))


@pytest.mark.parametrize(
    ("dtype", "ends", "asked"),
    [
        ("u8", "value(p[i]) .. min(8, value(p[i])) + 1", "icmp slt i64"),  # it lies at 0 or behind
        ("i64", "max(3, value(p[i])) .. value(p[i]) + 1", "icmp sge i64"),
    ],
)
def test_of_an_element_that_lies_on_one_side_only_the_other_is_asked(dtype: str, ends: str, asked: str) -> None:
    text = f"func f()(p: {dtype}[9], x: f32[9], out y: f32[9]) {{ for i in 0 .. 9 {{ for n in {ends} {{ y[n] = y[n] + x[i] }} }} }}"
    code = emit(parse(text), host())
    assert code.count(", !prof ") == 1
    assert code.count(asked) == 1 + asked.count("slt")  # the other loop, too, counts up to its end
    p = np.array([4, 0, 8, 1, 1, 2, 7, 6, 4]) + (3 if dtype == "u8" else 0)
    check(text, targets=[host()], p=p.astype(DTYPES[dtype].numpy), x=np.arange(9, dtype=np.float32), y=np.zeros(9, np.float32))


def test_an_element_outside_of_its_range_is_refused() -> None:
    text = TEXT.format(dtype="i64", checks=RANGES, value=CHOSEN)
    arrays = {"q": np.arange(9), **{name: np.ones(9, np.float32) for name in "cxy"}}
    check(text, targets=[host()], p=np.array([4, 0, 8, 1, 9, 2, 7, 6, 5]), **arrays)


@pytest.mark.parametrize(
    ("dtype", "end", "compared"), [("i32", "9_i64", "i32"), ("i64", "9_i64", "i64"), ("i8", "200_i64", ""), ("i32", "index(n)", "i64")]
)
def test_whether_an_element_lies_in_a_range_is_one_question(dtype: str, end: str, compared: str) -> None:
    inside = f"i64(p[a]) >= 0_i64 and i64(p[a]) < {end}"
    text = f"func f(n)(p: {dtype}[n], out y: f32[n]) {{ for a in 0 .. n {{ require {inside} else 1 y[a] = 1.0_f32 }} }}"
    code = emit(parse(text), host())
    assert (f"icmp ult {compared} " in code) if compared else ("icmp ult" not in code)
    for last in (2, 8, 9, -1):
        p = np.array([1, 0, 3, last], dtype.replace("i", "int"))
        check(text, {"n": 4}, targets=[host()], p=p, y=np.zeros(4, np.float32))
