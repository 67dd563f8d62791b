"""Short loops within others are written out, and compute what they computed."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from loops_strategies import running_functions

from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify
from codegen.loops.written_out import written_out


def made(loop: str, around: str = "for i in 0 .. N") -> str:
    """Return what becomes of a loop within another one."""
    text = f"func f(N)(a: f32[N + 200], out c: f32[N + 200]) {{ {around} {{ {loop} }} }}"
    after = written_out(parse(text), 512)
    verify(after)
    return show(after)


@pytest.mark.parametrize(
    ("loop", "copies"),
    [
        ("for k in 0 .. 3 { c[i] = a[i + k] }", "unroll 3"),
        ("for k in 2 .. 9 { for v in 0 .. 64 vector 64 { c[v] = a[v + k] } }", "unroll 7"),
        ("for k in 0 .. 3 { if a[i] > 0.0_f32 { c[i] = a[i + k] } else { c[i] = 0.0_f32 } }", "unroll 3"),
        ("for k in 0 .. 3 { c[i] = c[i] + exp(a[i + k]) }", "unroll 3"),
        ("for k in 0 .. 3 { for m in 0 .. 3 { c[i] = a[i + k + m] } }", "for k in 0 .. 3 unroll 3"),
        ("for k in 0 .. 3 { for m in 0 .. N { c[m] = select(index(k) == 1_i64, a[m], a[m + k]) } }", "for k in 0 .. 3 unroll 3"),
    ],
)
def test_a_loop_of_few_iterations_is_written_out(loop: str, copies: str) -> None:
    assert copies in made(loop)


@pytest.mark.parametrize(("space", "room", "copies"), [("stack", 12, 1), ("stack", 8, 0), ("registers", 12, 0)])
def test_a_loop_that_runs_once_is_written_out_where_registers_may_then_hold_what_it_reads(space: str, room: int, copies: int) -> None:
    filled = "for v in 0 .. 3 vector 3 { p[v] = 1.0_f32 }"
    text = f"func f()(out c: f32[3]) {{ alloc p: f32[3] {space} {filled} for k in 0 .. 3 {{ c[k] = p[k] }} }}"
    assert show(written_out(parse(text), room)).count("unroll 3") == copies


@pytest.mark.parametrize(
    ("loop", "around"),
    [
        ("for k in 0 .. 10 { c[i] = a[i + k] }", "for i in 0 .. N"),
        ("for k in 0 .. i { c[i] = a[i + k] }", "for i in 0 .. 4"),
        ("for k in 0 .. 9 { for u in 0 .. 9 unroll 9 { c[i] = a[k + u] } }", "for i in 0 .. N"),
        ("for k in 0 .. 9 { for v in 0 .. 160 vector 160 { c[v] = a[v + k] } }", "for i in 0 .. N"),
        ("for k in 0 .. 3 { for m in 0 .. N { c[m] = a[m + k] } }", "for i in 0 .. N"),
        ("for k in 0 .. 3 { for m in 0 .. N { c[m] = select(index(k) == index(m), a[m], a[m + k]) } }", "for i in 0 .. N"),
        ("for k in 0 .. 3 { c[k] = a[k] }", "if index(N) > 3_i64"),
        ("for k in 0 .. 9 { c[i] = exp(a[i + k]) }", "for i in 0 .. N"),
        (f"for k in 0 .. 9 {{ let s = {' + '.join(['a[i + k]'] * 90)} c[i] = s }}", "for i in 0 .. N"),
    ],
    ids=[
        "many iterations",
        "a range that changes",
        "copies",
        "registers",
        "a loop inside",
        "another question",
        "what runs once",
        "functions",
        "operations",
    ],
)
def test_another_loop_stays(loop: str, around: str) -> None:
    (line,) = (line for line in made(loop, around).splitlines() if "for k" in line)
    assert "unroll" not in line


@settings(max_examples=60)
@given(running_functions(), st.integers(0, 5))
def test_it_keeps_the_results_of_any_function(function: Function, n: int) -> None:
    results = []
    for f in (function, written_out(function, 512)):
        verify(f)
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)
