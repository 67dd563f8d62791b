"""The least of the indices that lanes have is told from the first of them, and kept once."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops.parser import parse
from codegen.loops.places import with_places
from codegen.loops.printer import show
from codegen.loops.verify import verify

TEXT = """func f(n)(x: i32[n, {lanes}], out y: {t}[n]) {{
    for i in 0 .. n serial {{
        alloc s: {t}[1, {lanes}] registers
        for l in 0 .. {lanes} vector {lanes} {{
            s[0, l] = {start}
        }}
        for v in 0 .. {lanes} vector {lanes} {{
            if x[i, v] > 0_i32 {{
                s[0, v] = {op}(s[0, v], {term})
            }}
        }}
        alloc total: {t}[] registers
        total[] = {default}
        for l_1 in 0 .. {lanes} vector {lanes} {{
            total[] = {op}(total[], s[0, l_1])
        }}
        y[i] = total[]
    }}
}}
"""
FIRST = {"op": "min", "t": "i64", "start": "9223372036854775807_i64", "term": "index(100*i + v)", "default": "12345_i64"}
LAST = {"op": "max", "t": "i32", "start": "-2147483648_i32", "term": "i32(index(3*v + 7))", "default": "-1_i32"}


@pytest.mark.parametrize("lanes", [24, 64])
@pytest.mark.parametrize("place", [FIRST, LAST], ids=["first", "last"])
def test_places_are_counted_in_masks(place: dict[str, str], lanes: int) -> None:
    text = TEXT.format(lanes=lanes, **place)
    made = with_places(parse(text))
    verify(made)
    assert "alloc s: " + place["t"] + "[1] registers" in show(made)
    x = np.zeros((5, lanes), np.int32)
    x[1:4, lanes // 2] = x[2, 1] = x[3, lanes - 1] = x[4] = 1
    check(text, {"n": 5}, x=x, y=np.zeros(5, {"i64": np.int64, "i32": np.int32}[place["t"]]))
    counts = {"min": "cttz", "max": "ctlz"}[place["op"]]
    assert f"@llvm.{counts}." in emit(parse(text), named("x86-64-v3"))


@pytest.mark.parametrize(
    "change",
    [
        {"term": "index(100 - v)"},  # the least is the last
        {"term": "i64(x[i, v])"},
        {"start": "index(i)"},  # no number: it may be that of another lane
        {"op": "+"},
    ],
)
def test_other_values_stay_in_lanes(change: dict[str, str]) -> None:
    values = FIRST | change
    text = TEXT.format(lanes=8, **values)
    if values["op"] == "+":
        text = text.replace("+(s[0, v], index(100*i + v))", "s[0, v] + index(v)").replace("+(total[], s[0, l_1])", "total[] + s[0, l_1]")
    assert with_places(parse(text)) == parse(text)


def test_indices_that_a_type_may_not_hold_are_compared_as_they_wrap() -> None:
    wraps = {"t": "i32", "start": "2147483647_i32", "default": "9_i32", "term": "i32(index(1073741824*i + v))"}
    text = TEXT.format(lanes=8, **FIRST | wraps)
    x = np.zeros((4, 8), np.int32)
    x[:, 3:] = 1
    check(text, {"n": 4}, x=x, y=np.zeros(4, np.int32))
