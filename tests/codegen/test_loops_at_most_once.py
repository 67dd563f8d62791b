"""Loops that run once or not at all become conditions, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from loops_strategies import running_functions

from codegen.loops.at_most_once import at_most_once
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.simplify import simplify
from codegen.loops.verify import verify

HEAD = "func f(N)(a: f32[N + 1], out c: f32[N + 1]) {\n"


def made(loop: str, end: str = "") -> str:
    """Return what becomes of a loop over `jo`, which `end` ends others around."""
    function = simplify(parse(f"{HEAD}{loop} {{ c[jo] = a[jo] }}{end}\n}}"))
    after = simplify(at_most_once(function))
    verify(after)
    return show(after)


@pytest.mark.parametrize(
    "loop",
    [
        "for jo in N // 16 .. (N + 15) // 16",
        "for jo in (N + 2) // 16 .. (N + 1) // 16 + 1",
        "for jo in max(1, (N + 1) // 16) .. (N + 2) // 16",
        "for jo in 0 .. min(1, N // 16)",
        "for jo in N // 8 - 4*(N // 32) .. min(4, (N + 7) // 8 - 4*(N // 32))",
    ],
)
def test_a_loop_of_one_iteration_at_most_becomes_a_condition(loop: str) -> None:
    text = made(loop)
    assert "if " in text and "for jo" not in text


@pytest.mark.parametrize(
    "loop",
    [
        "for jo in N // 16 .. (N + 16) // 16 + 1",
        "for jo in N // 16 .. (N + 15) // 8",
        "for jo in N // 16 .. N // 16 + 1 + N % 2",
        "for jo in N // 16 .. (N + 15) // 16 parallel",
        "for jo in max(max(1, N // 7), (N + 1) // 16) .. (N + 2) // 16",
    ],
)
def test_others_stay_loops(loop: str) -> None:
    assert "for jo" in made(loop)


@pytest.mark.parametrize(
    ("last", "once"),
    [
        ("(N - k + 63) // 64", True),
        ("(N + k) // 64", True),
        ("(N - k + 64) // 64", True),
        ("(N - k + 65) // 64", False),
        ("(N - k + 128) // 64", False),
        ("(N + 2*k + 2) // 64", False),
    ],
)
def test_so_does_one_that_some_lanes_run_once_and_others_not_at_all(last: str, once: bool) -> None:
    text = made(f"for k in 0 .. 64 {{ for jo in N // 64 .. {last}", end="}")
    assert ("for jo" in text) is not once


@settings(max_examples=60)
@given(running_functions(), st.integers(0, 5))
def test_it_keeps_the_results_of_any_function(function: Function, n: int) -> None:
    results = []
    for f in (function, simplify(at_most_once(simplify(function)))):
        verify(f)
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)
