"""What only feeds itself is left out, and nothing else."""

from __future__ import annotations

import numpy as np
from bits import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from loops_strategies import running_functions

from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.unread import without_unread
from codegen.loops.verify import verify

COMPONENTS = """func f(K)(x: f32[K], out y: f32[1]) {
    alloc a: f32[1] registers
    alloc b: f32[1] registers
    alloc c: f32[1] heap
    for k in 0 .. K {
        let old_a = a[0]
        let old_b = b[0]
        let new_b = old_b + old_a
        let new_c = max(c[0], old_b)
        a[0] = old_a + x[k]
        b[0] = new_b
        c[0] = new_c
    }
    y[0] = READ
}
"""


def left(read: str) -> str:
    after = without_unread(parse(COMPONENTS.replace("READ", read)))
    verify(after)
    return show(after)


def test_components_that_nobody_asks_for_go() -> None:
    assert "c" not in left("b[0]").partition("{")[2].replace("alloc", "")
    assert "b" not in left("a[0]").partition("{")[2]
    assert "for" not in left("1.0_f32")


def test_what_a_read_component_depends_on_stays() -> None:
    assert left("c[0]") == show(parse(COMPONENTS.replace("READ", "c[0]")))


def test_what_conditions_and_bounds_ask_for_stays() -> None:
    function = parse("""func f(K)(x: f32[K], out y: f32[K]) {
        alloc n: i64[1] registers
        alloc p: bool[1] registers
        n[0] = 0_i64
        p[0] = false
        for k in 0 .. K {
            let more = n[0] + 1_i64
            n[0] = more
            p[0] = not p[0]
            if p[0] { y[k] = x[k] }
        }
        for k2 in 0 .. min(K, value(n[0])) { y[k2] = 0.0_f32 }
    }""")
    assert without_unread(function) == function


@settings(max_examples=60)
@given(running_functions(), st.integers(0, 5))
def test_it_keeps_the_results_of_any_function(function: Function, n: int) -> None:
    results = []
    for f in (function, without_unread(function)):
        verify(f)
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)
