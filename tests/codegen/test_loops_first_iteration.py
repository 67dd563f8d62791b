"""What the first iteration of a loop settles is asked for once."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from loops_strategies import running_functions

from codegen.loops.first_iteration import MOST_NODES, with_first_iterations
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.simplify import simplify
from codegen.loops.verify import verify

GREATEST = """func f(K)(x: f32[4, K], out y: f32[4]) {
    alloc most: f32[4] registers
    alloc seen: bool[4] registers
    for l in 0 .. 4 vector 4 { seen[l] = false }
    for k in LO .. HI {
        for l in 0 .. 4 vector 4 {
            let new = x[l, k]
            let both = select(seen[l], max(most[l], new), new)
            most[l] = both
            seen[l] = true
        }
    }
    for l in 0 .. 4 vector 4 { if seen[l] { y[l] = most[l] } }
}
"""


def made(text: str) -> Function:
    function = simplify(parse(text))
    after = simplify(with_first_iterations(function))
    verify(after)
    return after


@pytest.mark.parametrize(("lo", "hi"), [("0", "K"), ("2", "K - 1"), ("0", "7"), ("0", "1")])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_flag_is_asked_for_once(lo: str, hi: str, size: int) -> None:
    text = GREATEST.replace("LO", lo).replace("HI", hi)
    after = made(text)
    loop = show(after).partition("for k in")[2].partition("for l_")[0]
    assert "seen" not in loop.split("}")[0]
    x = np.random.default_rng(1).normal(size=(4, max(size, 7))).astype(np.float32)
    results = []
    for function in (parse(text), after):
        y = np.zeros(4, np.float32)
        assert run(function, {"K": x.shape[1] if hi != "K" else size}, {"x": x[:, :size].copy() if hi == "K" else x, "y": y}) == 0
        results.append(y)
    assert_same_bits(*results)


def test_the_first_iteration_stands_before_the_others() -> None:
    text = show(made(GREATEST.replace("LO", "0").replace("HI", "K")))
    assert text.index("if 0_i64 < index(K)") < text.index("for k in 1 .. K")
    assert "max(most[l], new)" in text.partition("for k in 1 .. K")[2]
    assert "if" not in show(made(GREATEST.replace("LO", "0").replace("HI", "7"))).partition("for k in")[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("seen[l] = true", "if new > 0.0_f32 { seen[l] = true }"),  # not in every iteration
        ("seen[l] = true", "seen[l] = new > 0.0_f32"),  # no constant
        ("seen[l] = true", "seen[l] = true seen[l] = false"),  # not one constant
        ("seen[l] = true", "seen[(l + k) % 4] = true"),  # at another place each time
        ("for l in 0 .. 4 vector 4 {\n", "for l in 0 .. min(4, k + 1) vector 4 {\n"),  # of fewer lanes
        ("for k in LO .. HI {", "for k in LO .. HI parallel {"),
    ],
)
def test_what_may_change_later_is_asked_for_again(before: str, after: str) -> None:
    function = simplify(parse(GREATEST.replace(before, after).replace("LO", "0").replace("HI", "K")))
    assert with_first_iterations(function) == function


def test_long_iterations_are_not_written_twice() -> None:
    more = " + ".join("x[l, k] * 2.0_f32" for _ in range(MOST_NODES // 5))
    function = simplify(parse(GREATEST.replace("let new = x[l, k]", f"let new = {more}").replace("LO", "0").replace("HI", "K")))
    assert with_first_iterations(function) == function


@settings(max_examples=60)
@given(running_functions(), st.integers(0, 5))
def test_it_keeps_the_results_of_any_function(function: Function, n: int) -> None:
    results = []
    for f in (function, simplify(with_first_iterations(simplify(function)))):
        verify(f)
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)


def test_a_name_that_is_bound_again_is_what_it_is_bound_to_there() -> None:
    text = GREATEST.replace("LO", "0").replace("HI", "K").replace("select(seen[l], max", "select(old, max")
    text = text.replace("let both", "let old = seen[l]\n            let both")
    again = "    for m in 0 .. 4 vector 4 {\n            let old = x[m, k]\n            y[m] = old\n        }\n    }\n    for l in 0"
    after = made(text.replace("    }\n    for l in 0", again))
    assert "let old = x[m, k]" in show(after) and "y[m] = old" in show(after).partition("for k in 1 .. K")[2]
