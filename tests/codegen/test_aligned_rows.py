"""Rows of scratch buffers begin where cache lines do."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import LEVELS, check

from codegen.llvm.target import host
from codegen.loops.aligned_rows import APART_BYTES, LINE_BYTES, PAGE_BYTES, with_aligned_rows
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

TEXT = """func f()(x: f64[{n}], out y: f64[{n}]) {{
    alloc v: {buffer}
    for i in 0 .. {n} {{
        v[1, i] = x[i]
    }}
    for i in 0 .. {n} {{
        y[i] = v[1, i] + 1.0_f64
    }}
}}
"""


def rows(n: int, buffer: str) -> int:
    """Return how many elements a row has of the buffer that the pass makes of one."""
    made = with_aligned_rows(parse(TEXT.format(n=n, buffer=buffer)))
    verify(made)
    (line,) = (line for line in show(made).splitlines() if "alloc" in line)
    return int(line.partition(", ")[2].partition("]")[0])


@pytest.mark.parametrize("space", ["heap", "stack"])
def test_rows_are_filled_up_to_whole_lines(space: str) -> None:
    assert rows(513, f"f64[2, 513] {space}") * 8 % LINE_BYTES == 0
    assert rows(600, f"f64[2, 600] {space}") == 600


@pytest.mark.parametrize("n", [500, 505, 512, 520, 1000, 1024, 1030])
def test_rows_are_not_about_as_far_apart_as_addresses_that_look_alike(n: int) -> None:
    distance = rows(n, f"f64[2, {n}] heap") * 8 % PAGE_BYTES
    assert APART_BYTES <= distance <= PAGE_BYTES - APART_BYTES


@pytest.mark.parametrize("buffer", ["f64[2, 30] heap", "f64[1, 513] heap"])
def test_short_rows_and_single_ones_stay_as_they_are(buffer: str) -> None:
    n = int(buffer.partition(", ")[2].partition("]")[0])
    assert rows(n, buffer) == n


def test_results_are_those_of_the_shorter_rows() -> None:
    text = show(with_aligned_rows(parse(TEXT.format(n=513, buffer="f64[2, 513] heap"))))
    check(text, targets=[LEVELS[0], host()], x=np.arange(513.0), y=np.zeros(513))


def padded(shape: str) -> str:
    """Return the shape that the pass gives a buffer."""
    zeros = ", ".join("0" for _ in shape.split(","))
    made = with_aligned_rows(
        parse(f"func f()(out y: f32[1]) {{\n    alloc v: f32[{shape}] heap\n    v[{zeros}] = 1.0_f32\n    y[0] = v[{zeros}]\n}}\n")
    )
    verify(made)
    (line,) = (line for line in show(made).splitlines() if "alloc" in line)
    return line.partition("[")[2].partition("]")[0]


@pytest.mark.parametrize(
    ("shape", "longer"),
    [
        ("6, 6, 4, 16, 16", "6, 6, 4, 17, 16"),
        ("6, 6, 2, 16, 16", "6, 6, 2, 17, 16"),
        ("4, 9, 16, 64", "4, 9, 17, 64"),
        ("24, 1024, 32", "24, 1025, 32"),
    ],
)
def test_blocks_that_begin_in_few_sets_of_the_cache_get_a_little_more(shape: str, longer: str) -> None:
    assert padded(shape) == longer


@pytest.mark.parametrize("shape", ["6, 6, 4, 18, 16", "6, 6, 1, 2, 16", "2, 4, 16, 16", "4096, 4", "512, 32"])
def test_blocks_that_have_sets_enough_or_would_grow_by_far_stay_as_they_are(shape: str) -> None:
    assert padded(shape) == shape
