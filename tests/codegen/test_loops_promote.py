from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bits import assert_same_bits
from golden_case import cases, source
from hypothesis import given, settings
from hypothesis import strategies as st
from loops_strategies import running_functions

from codegen.loops.interp import run
from codegen.loops.nodes import Alloc, Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.promote import REGISTER_BYTES, drop_stack_to_registers, promote_accumulators
from codegen.loops.simplify import simplify
from codegen.loops.verify import verify
from codegen.loops.walk import statements


def promote(function: Function) -> Function:
    return drop_stack_to_registers(promote_accumulators(simplify(function)), REGISTER_BYTES)


@pytest.mark.parametrize("path", cases("loops_promote", "loops"), ids=lambda path: path.stem)
def test_promotion_by_example(path: Path, golden_case: Callable[[Path, str], None]) -> None:
    function = parse(source(path))
    verify(function)
    promoted = promote(function)
    verify(promoted)
    golden_case(path, show(promoted))
    assert promote(promoted) == promoted


@pytest.mark.parametrize("path", cases("loops_promote", "loops"), ids=lambda path: path.stem)
@pytest.mark.parametrize("size", [0, 1, 5, 21])
def test_promotion_keeps_results(path: Path, size: int) -> None:
    function = parse(source(path))
    sizes = {name: max(size - 1, 0) if name == "m" else size for name in function.sizes}
    results = []
    for f in (function, promote(function)):
        arrays = {}
        for p in f.params:
            shape = tuple(e.value if hasattr(e, "value") else sizes[e.name] for e in p.shape)
            arrays[p.name] = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        assert run(f, sizes, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)


@settings(max_examples=60, deadline=None)
@given(running_functions(), st.integers(0, 5))
def test_promotion_keeps_the_results_of_any_function(function: Function, n: int) -> None:
    results = []
    for f in (function, promote(function)):
        verify(f)
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)


def _body(body: str) -> Function:
    return parse(f"func f(N, m)(a: f32[N, N], k: i32[N], out c: f32[N, 64]) {{ {body} }}")


def test_what_iterations_hand_on_by_way_of_others_is_promoted() -> None:
    function = _body("for i in 0 .. N { for j in 0 .. 16 vector 16 { let t = c[0, j] * a[0, i]\n c[0, j] = t } }")
    assert [s.buffer.space for s in statements(*promote(function).body) if isinstance(s, Alloc)] == ["registers"]


REFUSED = {
    "the address moves with the loop": "for i in 0 .. N { c[i, 0] = c[i, 0] + a[0, i] }",
    "a serial loop inside moves the address": "for i in 0 .. N { for j in 0 .. 8 { c[0, j] = c[0, j] + a[0, i] } }",
    "another address of the same buffer is read": "for i in 0 .. N { c[0, 0] = c[0, 0] + c[1, i] }",
    "the address is read from memory": "for i in 0 .. N { c[value(k[0]), 0] = c[value(k[0]), 0] + a[0, i] }",
    "the access is conditional": "for i in 0 .. N { if a[0, i] > 0.0_f32 { c[0, 0] = c[0, 0] + a[0, i] } }",
    "the edge moves with the loop": ("for i in 0 .. N { for j in 0 .. min(16, i) vector 16 { c[0, j] = c[0, j] + a[0, i] } }"),
    "nothing is accumulated": "for i in 0 .. N { c[0, 0] = a[0, i] }",
    "the tile does not fit": (
        "for i in 0 .. N { for u in 0 .. 64 unroll 64 { for j in 0 .. 64 vector 64 { c[u, j] = c[u, j] + a[0, i] } } }"
    ),
    "the last element of a row of registers would be the first of the next": (
        "for i in 0 .. N { for u in 0 .. 4 unroll 4 { for j in 0 .. 4 vector 4 { c[0, 3*u + j] = c[0, 3*u + j] + a[0, i] } } }"
    ),
    "two register elements would be one memory element": (
        "for i in 0 .. N { for u in 0 .. 4 unroll 4 { for j in 0 .. 4 vector 4 { c[0, u + j] = c[0, u + j] + a[0, i] } } }"
    ),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_promotion_is_refused_when(body: str) -> None:
    function = simplify(_body(body))
    verify(function)
    assert promote_accumulators(function) == function


def test_memory_that_an_empty_loop_does_not_touch_stays_untouched() -> None:
    function = parse("func f(N, m)(a: f32[N], out c: f32[3]) { for k in 0 .. N { c[m] = c[m] + a[k] } }")
    promoted = promote(function)
    assert "registers" in show(promoted)
    run(promoted, {"N": 0, "m": 99}, {"a": np.zeros(0, np.float32), "c": np.zeros(3, np.float32)})


def test_a_loop_whose_iterations_may_touch_nothing_leaves_promotion_to_the_loop_inside() -> None:
    function = _body("for i in 0 .. N { for j in 0 .. min(i, m) { c[m, 0] = c[m, 0] + a[0, i] } }")
    text = show(promote(function))
    assert "for i in 0 .. N {\n        if 0_i64 < index(min(i, m)) {\n            alloc c_acc: f32[] registers" in text


@pytest.mark.parametrize("times", [0, 1])
def test_what_an_empty_loop_would_overwrite_is_loaded(times: int) -> None:
    function = parse("func f(m)(a: f32[4], out c: f32[1]) { for k in 0 .. 4 { for j in 0 .. m { c[0] = 1.0_f32 } c[0] = c[0] + a[k] } }")
    promoted = promote(function)
    assert "registers" in show(promoted)
    c = np.full(1, 5, np.float32)
    run(promoted, {"m": times}, {"a": np.ones(4, np.float32), "c": c})
    assert c[0] == (9 if times == 0 else 2)


def test_accesses_in_several_nests_share_one_tile() -> None:
    function = _body("""
        for i in 0 .. N {
            for p in 0 .. 16 vector 16 { c[m, p] = c[m, p]*2.0_f32 }
            for q in 0 .. 16 vector 16 { c[m, q] = c[m, q] + a[0, i] }
        }""")
    text = show(promote(function))
    assert "c_acc[p] = c_acc[p] * 2.0_f32" in text and "c_acc[q] = c_acc[q] + a[0, i]" in text


def test_scratch_that_is_private_to_a_lane_and_indexed_by_it_stays_on_the_stack() -> None:
    function = _body("for j in 0 .. 8 vector 8 { alloc t: f32[8] stack t[j] = 1.0_f32 c[j, 0] = t[j] }")
    assert drop_stack_to_registers(function, REGISTER_BYTES) == function


COUNTS = """for j in 0 .. 16 vector 16 { FIRST }
    for i in 0 .. N { for j in 0 .. 16 vector 16 { if a[0, i] > a[1, j] { c[0, j] = c[0, j] + a[0, i] } } }"""


@pytest.mark.parametrize("terms", ["0 .. N", "0 .. 5 unroll 5"])
def test_what_is_written_first_is_accumulated_in_registers_under_conditions_too(terms: str) -> None:
    function = _body(COUNTS.replace("FIRST", "c[0, j] = 0.0_f32").replace("0 .. N", terms))
    promoted = promote(function)
    verify(promoted)
    assert "registers" in show(promoted)
    results = []
    for version in (function, promoted):
        arrays = {"a": np.random.default_rng(2).standard_normal((20, 20), np.float32), "k": np.zeros(20, np.int32)}
        arrays["c"] = np.full((20, 64), 7, np.float32)
        assert run(version, {"N": 20, "m": 0}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)


def test_terms_that_are_written_out_are_added_where_they_stand_unless_data_are_asked() -> None:
    text = (
        COUNTS.replace("FIRST", "c[0, j] = 0.0_f32")
        .replace("0 .. N", "0 .. 5 unroll 5")
        .replace("if a[0, i] > a[1, j] {", "")
        .replace("} }", "}")
    )
    assert "registers" not in show(promote(_body(text)))


def test_what_is_written_elsewhere_is_not_accumulated_in_registers_under_conditions() -> None:
    assert "registers" not in show(promote(_body(COUNTS.replace("FIRST", "c[1, j] = 0.0_f32"))))


def test_the_first_stack_buffers_that_find_room_are_registers() -> None:
    block = (
        "alloc NAME: f32[16] stack for j in 0 .. 16 vector 16 { NAME[j] = a[0, j] } for j in 0 .. 16 vector 16 { c[0, j] = NAME[15 - j] }"
    )
    function = _body("".join(block.replace("NAME", name) for name in ("r", "s", "t")))
    text = show(drop_stack_to_registers(function, 128))
    assert [text.count(f"alloc {name}: f32[16] registers") for name in ("r", "s", "t")] == [1, 1, 0]


def test_a_stack_buffer_that_threads_share_stays_one() -> None:
    function = _body("alloc t: f32[1] stack t[0] = a[0, 0] for i in 0 .. N parallel { c[0, i] = t[0] }")
    assert "alloc t: f32[1] stack" in show(drop_stack_to_registers(function, REGISTER_BYTES))
