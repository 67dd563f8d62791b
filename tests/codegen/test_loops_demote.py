"""Buffers stay in registers only where unrolling makes their addresses constant and no other thread needs them."""

from __future__ import annotations

import pytest

from codegen.loops.demote import demote
from codegen.loops.parser import parse
from codegen.loops.printer import show

TEXT = """func f(n)(x: f32[n, 4], out y: f32[n, 4]) {{
    alloc a: f32[4] {space} align 64
    for i in 0 .. 4 {{
        {body}
    }}
}}
"""


def space_after(body: str) -> str:
    function = demote(parse(TEXT.format(space="registers", body=body)))
    text = show(function)
    return text.split("alloc a: f32[4] ")[1].split()[0]


@pytest.mark.parametrize(
    ("body", "space"),
    [
        ("for j in 0 .. 4 vector 4 { a[j] = x[i, j] }", "registers"),
        ("for j in 1 .. 3 unroll 2 { a[j + 1] = x[i, j] }", "registers"),
        ("for j in i .. 4 vector 4 { a[j] = x[i, j] }", "stack"),
        ("for j in 0 .. 4 vector 4 { y[i, j] = a[i] }", "stack"),
        ("for j in 0 .. 4 vector 4 { y[i, j] = a[j // 3] }", "stack"),
        ("for j in 0 .. 4 vector 4 { y[i, j] = a[(j + 1) % 4] }", "stack"),
        ("for j in 0 .. 4 vector 4 { y[i, j] = a[min(j, 2)] }", "stack"),
        ("for k in 0 .. 4 unroll 4 { for j in 0 .. 1 vector 1 { a[j + k % 3] = x[i, j] } }", "registers"),
        ("for j in 0 .. 4 unroll 4 { y[i, j] = a[j // 3] }", "registers"),
        ("for j in 0 .. 4 { a[j] = x[i, j] }", "stack"),
        ("for j in 0 .. 4 parallel { y[i, j] = a[0] }", "stack"),
        ("for j in 0 .. 4 unroll 4 { y[i, j] = a[0] }", "registers"),
    ],
)
def test_where_a_buffer_can_be(body: str, space: str) -> None:
    assert space_after(body) == space


def test_a_function_without_such_buffers_stays_as_it_is() -> None:
    function = parse(TEXT.format(space="registers", body="for j in 0 .. 4 vector 4 { a[j] = x[i, j] }"))
    assert demote(function) is function


def test_each_of_several_buffers_of_one_name_is_looked_at_by_itself() -> None:
    parts = "for i in {at} {{ alloc a: f32[4] registers align 64 for j in {first} .. 4 unroll 4 {{ a[j] = x[i, j] }} y[i, 0] = a[3] }}"
    first, second = parts.format(at="0 .. 2", first="2 - i"), parts.format(at="2 .. n", first="0")
    text = show(demote(parse(f"func f(n)(x: f32[n, 4], out y: f32[n, 4]) {{ {first} {second} }}")))
    assert [line.split()[3] for line in text.splitlines() if "alloc a" in line] == ["stack", "registers"]
