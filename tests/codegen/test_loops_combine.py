"""A loop given to an instruction becomes a dot product where it is one, and is unrolled elsewhere."""

from __future__ import annotations

import pytest

from codegen.loops.combine import combine
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(K)(a: u8[4, 4*K + 4], b: i8[K + 1, 4, 4], out c: i32[4, 4]) "


def combined(loop: str, a: str, b: str = "b[k, j, r]", j: str = "", c: str = "c[i, j]") -> str:
    total = f"{c} = {c} + i32({a}) * i32({b})"
    body = f"for i in 0 .. 4 {{ for j in 0 .. 4 {j} {{ for k in 0 .. K {{ for r in {loop} {{ {total} }} }} }} }}"
    function = parse(f"{HEAD}{{ {body} }}")
    verify(function)
    return show(combine(function))


def test_neighbours_that_are_multiplied_and_added_up_are_a_dot_product() -> None:
    assert "c[i, j] = dot(4, a[i, 4*k], b[k, j, 0], c[i, j])" in combined("0 .. 4 tensor 4", "a[i, 4*k + r]")
    assert "c[i, j] = dot(4, a[i, 4*k], b[k, j, 0], c[i, j])" in combined("0 .. 4 tensor 4", "a[i, 4*k + r]", j="vector 4")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"loop": "1 .. 4 tensor 4", "a": "a[i, 4*k + r]"}, id="without the first"),
        pytest.param({"loop": "0 .. 3 tensor 4", "a": "a[i, 4*k + r]"}, id="without the last"),
        pytest.param({"loop": "0 .. 4 tensor 4", "a": "a[i, k + 0*r]"}, id="one element again and again"),
        pytest.param({"loop": "0 .. 4 tensor 4", "a": "a[i, 2*r]"}, id="elements that lie apart"),
        pytest.param({"loop": "0 .. 4 tensor 4", "a": "a[r, k]"}, id="elements of a column"),
        pytest.param({"loop": "0 .. 4 tensor 4", "a": "a[i, 4*k + r]", "c": "c[i, 0]", "j": "vector 4"}, id="a sum that lanes share"),
    ],
)
def test_what_is_no_dot_product_is_unrolled(arguments: dict[str, str]) -> None:
    text = combined(**arguments)
    assert "dot(" not in text and "unroll 4" in text
