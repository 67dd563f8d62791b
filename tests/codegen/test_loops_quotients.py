"""Products and quotients of floats are regrouped so that few divisions are left; what rests on one value stays as it is written."""

from __future__ import annotations

import pytest

from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.quotients import fewer_quotients
from codegen.loops.verify import verify

TEXT = """func f()(a: f32[8], b: f32[8], c: f32[4, 8], out y: f32[4, 8], out z: f32[4, 8]) {{
    for i in 0 .. 4 {kind} 4 {{
        for j in 0 .. 8 vector 8 {{
            let d = c[i, j]
            y[i, j] = {first}
            z[i, j] = {second}
        }}
    }}
}}
"""


def regrouped(first: str, second: str = "d", kind: str = "serial") -> tuple[str, str]:
    made = fewer_quotients(parse(TEXT.format(first=first, second=second, kind=kind)))
    verify(made)
    y, z = (show(made).split(f"{name}[i, j] = ")[1].split("\n")[0] for name in "yz")
    return y, z


@pytest.mark.parametrize(
    ("value", "after"),
    [
        pytest.param("d / a[i]", "d * (1.0_f32 / a[i])", id="what the innermost loop leaves"),
        pytest.param("d * b[i] / (a[i] * 3.0_f32)", "d * (b[i] / (a[i] * 3.0_f32))", id="with its factors"),
        pytest.param("d / 3.0_f32 + 1.0_f32", "d * 0x1.555556p-2_f32 + 1.0_f32", id="a number"),
        pytest.param("d / a[j] / b[j]", "d / (a[j] * b[j])", id="quotients of quotients"),
        pytest.param("d / (a[j] / b[j])", "d * b[j] / a[j]", id="quotients by quotients"),
        pytest.param("d / a[j] * (b[j] / a[j])", "d * b[j] / (a[j] * a[j])", id="products of quotients"),
        pytest.param("d / a[j]", "d / a[j]", id="one quotient stays"),
        pytest.param("d * 3.0_f32 / 8.0_f32", "d * 3.0_f32 / 8.0_f32", id="an exact one stays"),
        pytest.param("d / 1e38_f32", "d / 1e+38_f32", id="one whose reciprocal is not normal stays"),
        pytest.param("d / 0.0_f32", "d / 0.0_f32", id="zero stays"),
        pytest.param("select(d / a[i] < 1.0_f32, d, b[j])", "select(d / a[i] < 1.0_f32, d, b[j])", id="a condition stays"),
        pytest.param("f32(i32(d / 3.0_f32))", "f32(i32(d / 3.0_f32))", id="an integer stays"),
        pytest.param("floor(d / 3.0_f32)", "floor(d / 3.0_f32)", id="a whole number stays"),
    ],
)
def test_where_divisions_are_saved(value: str, after: str) -> None:
    assert regrouped(value)[0] == after


def test_quotients_by_one_value_share_its_reciprocal() -> None:
    assert regrouped("a[j] / (d * 3.0_f32)", "b[j] / d") == ("a[j] * 0x1.555556p-2_f32 * (1.0_f32 / d)", "b[j] * (1.0_f32 / d)")
    assert regrouped("a[j] / (d * d)", "b[j] / d") == ("a[j] * (1.0_f32 / d) * (1.0_f32 / d)", "b[j] * (1.0_f32 / d)")
    assert regrouped("a[j] / (d * b[j])", "d / (b[j] * d)") == ("a[j] * (1.0_f32 / (d * b[j]))", "d * (1.0_f32 / (b[j] * d))")


def test_copies_of_a_loop_share_what_it_leaves() -> None:
    assert regrouped("d * a[j] / (b[j] * sqrt(b[j]))", kind="unroll")[0] == "d * (a[j] / (b[j] * sqrt(b[j])))"
    assert regrouped("d * a[j] / (b[j] * sqrt(b[j]))")[0] == "d * a[j] / (b[j] * sqrt(b[j]))"


def test_what_a_loop_stores_to_is_not_left_by_it() -> None:
    assert regrouped("d / z[i, 0]") == ("d / z[i, 0]", "d")


def test_a_product_that_a_reduction_keeps_stays_one_with_what_it_is_of() -> None:
    text = "func f()(x: f32[8], s: f32[1], out y: f32[1]) {{ for i in 0 .. 8 vector 8 {{ y[0] = {} }} }}"
    made = fewer_quotients(parse(text.format("y[0] * (x[i] / s[0])")))
    verify(made)
    assert "y[0] = y[0] * (x[i] * (1.0_f32 / s[0]))" in show(made)


def test_what_whole_numbers_are_made_of_stays_as_it_is() -> None:
    text = """func f()(x: f32[8], out q: f32[8], out y: f32[8], out z: f32[8]) {
    for i in 0 .. 8 serial 8 {
        let t = x[i] / 3.0_f32
        q[i] = t / 41.0_f32
        y[i] = f32(i32(q[i]))
        z[i] = t / 41.0_f32
    }
}"""
    made = show(fewer_quotients(parse(text)))
    assert "let t = x[i] / 3.0_f32" in made and "q[i] = t / 41.0_f32" in made and "z[i] = t * " in made
