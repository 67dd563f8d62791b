"""Operators in a row are as many as they are long, not as deep: they are computed from left to right, whatever their number."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang as tl
from codegen.dtypes import f32, i32
from tensorlang.check.depth import MAX_LEVELS
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import children


def program(value: str, functions: str = ""):
    text = f"{functions}\nop f(x: f32[N], q: i32[N]) -> (y: f32[N]) {{\n    y[i] = {value}\n}}"
    return checked(text)


def checked(text: str):
    found = instantiate(load_module(parse(Source("t.tl", text))), "f", (ArgType(f32, (8,)), ArgType(i32, (8,))))
    prove(found)
    verify(found)
    return found


def levels(e) -> int:
    return 1 + max(map(levels, children(e)), default=0)


ROWS = {
    "sum": " + ".join(f"x[i] * {k}" for k in range(1200)),
    "product": " * ".join(["x[i]"] * 1200),
    "max": f"max({', '.join(f'x[i] * {k}' for k in range(1200))})",
    "or": f"if {' or '.join(f'x[i] == {k}' for k in range(1200))} then 1 else 0",
    "index": f"x[({' + '.join(['i'] * 1200)}) // 1200]",
}


@pytest.mark.parametrize("value", ROWS.values(), ids=ROWS)
def test_a_long_row_is_a_shallow_expression(value):
    made = program(value)
    assert levels(made.definitions[0].pieces[0].value) < MAX_LEVELS


def row(count: int, *, at: str = "i", op: str = "+", part: str = "x[{at}] * {k}") -> str:
    return f" {op} ".join(part.format(at=at, k=k) for k in range(count))


def places(count: int) -> dict[str, str]:
    """Return expressions with a row of `count` operands where not everything is evaluated."""
    total, equal = row(count), row(count, op="or", part="x[{at}] == {k}")
    return {
        "side": f"if x[i] > 0 then {total} else 1",
        "other side": f"if q[i] > 2 then 0 else {total}",
        "right of and": f"if x[i] > 0 and {total} > 2 then 1 else 0",
        "condition on a side": f"if x[i] > 0 then (if {equal} then 1 else 0) else 0",
        "argument": f"twice(exp({total}))",
        "argument on a side": f"some(i >= 1, {row(count, at='i - 1')})",
        "let on a side": f"if x[i] > 0 then (let v = {total} in v * v) else 0",
        "side of a side": f"if x[i] > 0 then (if i >= 1 then {row(count, at='i - 1')} else 1) else 0",
        "maximum on a side": f"if x[i] > 0 then max({total.replace('+', ',')}) else 0",
        "reduction": f"sum(k in 0..N) ({row(count, at='k')})",
        "side in a reduction": f"sum(k in 0..N) (if q[k] > 1 then {row(count, at='k')} else 0)",
        "filter": f"sum(k in 0..N, x[k] > 0 and {row(count, at='k')} > 2) x[k]",
        "index on a side": f"if x[i] > 0 then x[clamp({row(count, part='q[i]')}, 0, N - 1)] else 0",
        "padding": f"x[i - 1 | {total}]",
    }


FUNCTIONS = "fn twice(v) = v * v\nfn some(c, v) = if c then v else 0"


@pytest.mark.parametrize("place", places(0))
def test_a_long_row_is_no_deeper_where_not_everything_is_evaluated(place):
    program(places(1000)[place], FUNCTIONS)


@pytest.mark.parametrize("place", places(0))
def test_a_long_row_is_computed_wherever_it_stands(place):
    made = program(places(80)[place], FUNCTIONS)
    rng = np.random.default_rng(0)
    arrays = {"x": (rng.integers(-4, 5, 8) / 2).astype(np.float32), "q": rng.integers(0, 8, 8).astype(np.int32)}
    assert np.array_equal(tl.parse(show(made)).f(*arrays.values()), interpret(made, {}, arrays)["y"])


def test_lets_that_mention_one_another_twice_are_computed_once_where_not_everything_is_evaluated():
    lets = " ".join(f"let v{k + 1} = v{k} * v{k} in" for k in range(40))
    x = np.array([1, -1], np.float32)
    made = tl.parse(f"op f(x: f32[N]) -> (y: f32[N]) {{\n    y[i] = if x[i] > 0 then (let v0 = x[i] in {lets} v40) else 0\n}}")
    assert made.f(x).tolist() == [1, 0]


@pytest.mark.parametrize("value", ["sum", "or"])
def test_a_shallow_row_is_read_back_as_it_was_printed(value):
    made = program(ROWS[value])
    assert checked(show(made)) == made


def test_a_long_sum_is_computed_from_left_to_right():
    x = np.random.default_rng(0).normal(size=100).astype(np.float32)
    (total,) = np.cumsum(x)[-1:]  # NumPy's running sums go from left to right
    row = " + ".join(f"x[{k}]" for k in range(100))
    assert tl.parse(f"op f(x: f32[100]) -> (y: f32) {{\n    y = {row}\n}}").f(x) == total


def test_what_the_conditions_of_a_long_row_say_of_indices_is_known():
    row = " and ".join(f"q[i] != {k}" for k in range(100))
    program(f"if i >= 1 and {row} then x[i - 1] else 0")
    program(f"if q[i] >= 0 and q[i] < N and {row} then x[q[i]] else 0")


ROW = " + ".join(["x[i - 1]"] * 40)


@pytest.mark.parametrize(
    ("value", "functions"),
    [
        (f"let v = {ROW} in pick(i >= 1, v)", "fn pick(c, v) = if c then v else 0"),
        (f"pick(i >= 1, {ROW})", "fn pick(c, v) = once(c, v)\nfn once(c, v) = if c then v else 0"),
        (f"let v = {ROW} in if 1 <= i < i32(v) then 1 else 0", ""),
        (f"let v = {ROW} in if i in 1..i32(v) then 1 else 0", ""),
        (f"let v = {ROW.replace('-', '+')} in x[i - 1 | v]", ""),
    ],
)
def test_a_long_row_is_not_evaluated_where_it_is_not_used(value, functions):
    program(value, functions)


def test_nests_of_functions_end_in_a_diagnostic_however_their_calls_nest():
    with pytest.raises(CompileError) as problem:
        program(f"{'g(' * 30}x[i]{', x[i])' * 30}", f"fn g(a, b) = if b > 0 then {'-(1 + ' * 10}a{')' * 10} else 0")
    assert [d.code for d in problem.value.diagnostics] == ["T0153"]
