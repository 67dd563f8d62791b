"""A product and the sum it stands in become one operation, of floats alone."""

from __future__ import annotations

import pytest

from codegen.loops.contract import contract
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

TEXT = """func f(n)(a: {t}[n], b: {t}[n], out y: {t}[n]) {{
    for i in 0 .. n {{
        let p = a[i]
        y[i] = {value}
    }}
}}
"""


@pytest.mark.parametrize(
    ("value", "after"),
    [
        ("a[i] * b[i] + p", "fma(a[i], b[i], p)"),
        ("p + a[i] * b[i]", "fma(a[i], b[i], p)"),
        ("a[i] * b[i] - p", "fma(a[i], b[i], -p)"),
        ("p - a[i] * b[i]", "fma(-a[i], b[i], p)"),
        ("(a[i] * b[i] + p) * p + b[i]", "fma(fma(a[i], b[i], p), p, b[i])"),
        ("min(a[i] * b[i], p)", "min(a[i] * b[i], p)"),
    ],
)
def test_where_products_are_fused(value: str, after: str) -> None:
    function = contract(parse(TEXT.format(t="f32", value=value)))
    verify(function)
    assert show(function).split("y[i] = ")[1].split("\n")[0] == after
    whole = parse(TEXT.format(t="i32", value=value))
    assert contract(whole) == whole
