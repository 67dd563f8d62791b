"""What an iteration stores and the next one reads goes from one to the other in a register, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import check

from codegen.dtypes import DTYPES
from codegen.llvm.target import host
from codegen.loops.carried import carried
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N)(x: f32[N], out y: f32[N]) {\n"


def after(body: str) -> Function:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    made = carried(function)
    verify(made)
    return made


def test_a_running_sum_keeps_its_last_element_in_a_register() -> None:
    text = show(after("for i in 1 .. N { y[i] = y[i - 1] + x[i] }"))
    assert "alloc i_last: f32[1] registers" in text
    assert "if index(1) < index(N)" in text
    assert "let i_new = i_last[0] + x[i]" in text


@pytest.mark.parametrize(("dtype", "value"), [("bool", "y[i - 1] or x[i]"), ("i8", "y[i - 1] + x[i]"), ("u16", "max(y[i - 1], x[i])")])
def test_narrow_whole_numbers_and_truths_are_kept_in_registers_too(dtype: str, value: str) -> None:
    text = f"func f(N)(x: {dtype}[N], out y: {dtype}[N]) {{ for i in 1 .. N {{ y[i] = {value} }} }}"
    assert f"alloc i_last: {dtype}[1] registers" in show(carried(parse(text)))
    x = np.arange(40) % 7 == 3 if dtype == "bool" else np.arange(40).astype(DTYPES[dtype].numpy)
    check(text, {"N": 40}, targets=[host()], x=x, y=np.zeros_like(x))


def test_rows_may_be_read_back_where_data_say_so() -> None:
    text = """func f(N)(x: f32[N, 9], out y: f32[N, 9]) {
    for i in 0 .. N {
        y[i, 0] = x[i, 0]
        for j in 1 .. 9 { y[i, j] = select(x[i, j] > 0.0_f32, min(y[i, j - 1], x[i, j]), x[i, j]) }
    }
}
"""
    assert "j_last[0] = y[i, 0]" in show(carried(parse(text)))
    x = np.arange(-27, 27, dtype=np.float32).reshape(6, 9) % 7 - 3
    check(text, {"N": 6}, targets=[host()], x=x, y=np.zeros_like(x))


NAMED = """alloc p: i64[9] stack
    p[0] = 3_i64
    for i in 1 .. 9 { p[i] = i64(back[i, value(p[i - 1])]) }"""


BODIES = {
    "one step": "y[0] = x[0]\nfor i in 1 .. N { y[i] = y[i - 1] * 0.5_f32 + x[i] }",
    "two steps": "for i in 0 .. min(N, 2) { y[i] = x[i] }\nfor i in 2 .. N { y[i] = y[i - 1] * 0.5_f32 + x[i] - y[i - 2] }",
    "two buffers": """
        alloc z: f32[64] stack
        y[0] = x[0]
        z[0] = 1.0_f32
        for i in 1 .. N { let s = z[i - 1] + x[i]
            y[i] = y[i - 1] * s
            z[i] = y[i] - s }""",
    "where data say": """
        alloc z: f32[64] stack
        z[0] = x[0]
        for i in 1 .. 38 { z[i] = select(x[min(i, N - 1)] > 0.0_f32, z[i - 1] + 1.0_f32, 0.25_f32) }
        for i in 0 .. N { y[i] = z[i] }""",
    "four beside each other": """
        alloc z: f32[8, 4] stack
        for t in 0 .. 4 vector 4 { z[0, t] = 1.0_f32 }
        for i in 1 .. 8 { for t in 0 .. 4 vector 4 { z[i, t] = z[i - 1, t] * x[0] + 0.5_f32 } }
        for i in 0 .. min(N, 8) { y[i] = z[i, 3] }""",
    "as many lanes as sizes say": """
        alloc z: f32[8, 4] stack
        for t in 0 .. 4 { z[0, t] = x[0] }
        for i in 1 .. 8 { for t in 0 .. N - 4*(N // 4) vector 4 { z[i, t] = z[i - 1, t] * x[0] + 0.5_f32 } }
        for i in 0 .. min(N, 8) { y[i] = z[i, 0] }""",
    "as many beside each other as sizes say": """
        alloc z: f32[2, 6] stack
        for t in 0 .. 6 { z[0, t] = 1.0_f32 }
        for i in 1 .. 9 { for t in 0 .. min(6, N) unroll 6 { z[i % 2, t] = z[(i - 1) % 2, t] * x[0] + 0.5_f32 } }
        for i in 0 .. min(N, 6) { y[i] = z[0, i] }""",
    "two rows that take turns": """
        alloc z: f32[2] stack
        z[0] = x[0]
        for i in 1 .. 9 { z[i % 2] = z[(i - 1) % 2] + x[0] }
        y[0] = z[0]""",
    "what is read when the next one is stored": """
        alloc z: f32[2] stack
        alloc w: f32[2] stack
        z[0] = x[0]
        w[0] = 1.0_f32
        for i in 1 .. 9 { z[i % 2] = z[(i - 1) % 2] + x[0]
            w[i % 2] = w[(i - 1) % 2] * z[(i - 1) % 2] }
        y[0] = w[0]""",
    "beside registers of its own": """
        y[0] = x[0]
        for i in 1 .. N { alloc r: f32[1] registers
            r[0] = y[i - 1] * 0.5_f32 + x[i]
            y[i] = r[0] * r[0] - y[i - 1] }""",
    "that loops inside read": """
        alloc z: f32[4] stack
        y[0] = x[0]
        for t in 0 .. 4 { z[t] = 0.0_f32 }
        for i in 1 .. N { for t in 0 .. 4 unroll 4 { z[t] = z[t] * 0.5_f32 + y[i - 1] }
            y[i] = z[0] - x[i] * z[3] }""",
    "where conditions of data say": """
        alloc z: f32[64] stack
        z[0] = x[0]
        for i in 1 .. 38 { alloc r: f32[1] registers
            r[0] = 0.0_f32
            if x[min(i, N - 1)] > 0.0_f32 { r[0] = z[i - 1] }
            z[i] = r[0] * 0.5_f32 + x[0] }
        for i in 0 .. N { y[i] = z[i] }""",
    "of a loop inside another": """
        alloc z: f32[2] stack
        y[0] = x[0]
        for i in 1 .. N { z[0] = y[i - 1]
            for t in 1 .. 4 { z[t % 2] = z[(t - 1) % 2] * 0.5_f32 + x[i] }
            y[i] = z[1] }""",
    "of which the last two are read behind the loop": """
        alloc z: f32[2] stack
        z[0] = x[0]
        z[1] = 2.0_f32
        for i in 2 .. N + 2 { z[i % 2] = z[(i - 1) % 2] * 0.5_f32 + z[i % 2] }
        y[0] = z[(N + 1) % 2]
        if index(N) >= 2_i64 { y[1] = z[N % 2] }""",
    "one element again and again": """
        alloc z: f32[6] stack
        z[0] = x[0]
        z[1] = x[0] * 2.0_f32
        for i in 2 .. 12 { z[min(i, 5)] = z[min(i - 1, 5)] + z[min(i - 2, 5)] * 0.5_f32 }
        y[0] = z[5]""",
    "an element that names the next one": """
        alloc p: i64[9] stack
        alloc b: i64[8] stack
        for k in 0 .. 8 { b[k] = index(7 - k) }
        p[0] = 3_i64
        for i in 1 .. 9 { require p[i - 1] >= 0_i64 and p[i - 1] < 8_i64 else 1
            p[i] = b[value(p[i - 1])] }
        y[0] = f32(p[8]) + x[0]""",
    "a short sum over the iterations before": """
        for i in 0 .. min(N, 3) { y[i] = x[i] }
        for i in 3 .. N { alloc r: f32[1] registers
            r[0] = 0.0_f32
            for k in 0 .. 3 { r[0] = fma(x[k], y[i - k - 1], r[0]) }
            y[i] = r[0] + x[i] }""",
    "a sum over more iterations before than registers hold": """
        for i in 0 .. min(N, 12) { y[i] = x[i] }
        for i in 12 .. N { alloc r: f32[1] registers
            r[0] = 0.0_f32
            for k in 0 .. 12 unroll 12 { r[0] = fma(x[k], y[i + k - 12], r[0]) }
            y[i] = r[0] + x[i] }""",
    "a row and what no vector holds of it": """
        alloc z: f32[8, 6] stack
        for t in 0 .. 6 { z[0, t] = 1.0_f32 }
        for i in 1 .. 8 {
            for t in 0 .. 4 vector 4 { z[i, t] = z[i - 1, t] * x[0] + z[i - 1, t + 1] }
            z[i, 4] = z[i - 1, 4] + z[i, 3]
            z[i, 5] = z[i - 1, 5] - z[i, 4] * z[i - 1, 4]
        }
        for i in 0 .. min(N, 8) { y[i] = z[i, 3] + z[i, 4] * z[i, 5] }""",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("n", [1, 37])
def test_a_carried_element_has_the_bits_that_memory_had(n: int, body: str) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    assert "_last" in show(after(body))
    before = check(f"{HEAD}{body}\n}}", {"N": n}, targets=[host()], x=x, y=np.zeros(n, np.float32))
    made = check(show(after(body)), {"N": n}, x=x, y=np.zeros(n, np.float32))
    assert_same_bits(made["y"], before["y"], "carried")


KEPT = """
alloc z: f32[2] stack
z[0] = x[0]
for i in 1 .. N { z[i % 2] = z[(i - 1) % 2] * 0.5_f32 + x[i] }
"""


def test_steps_that_are_read_behind_the_loop_alone_are_stored_there() -> None:
    text = show(after(f"{KEPT} y[0] = z[(N - 1) % 2]"))
    assert text.count("z[") == 4, "the first element twice, the last one twice"
    assert "z[(N + 1) % 2] = i_last[0]" in text


@pytest.mark.parametrize("rest", ["y[0] = z[0]", "for t in 0 .. 2 { y[min(t, N - 1)] = z[t] }", "y[0] = z[N % 2]"])
def test_steps_that_may_be_read_behind_the_loop_are_stored_inside(rest: str) -> None:
    assert "z[i % 2] = i_new" in show(after(f"{KEPT} {rest}"))


def test_what_the_next_iteration_of_a_loop_around_reads_is_stored() -> None:
    around = "for k in 0 .. N { for i in 1 .. 9 { z[i % 2] = z[(i - 1) % 2] * 0.5_f32 + x[k] } }"
    assert "z[i % 2] = i_new" in show(after(f"alloc z: f32[2] stack\nz[0] = x[0]\n{around}\ny[0] = z[0]"))


def test_what_is_asked_of_an_element_and_what_it_names_are_the_same_register() -> None:
    assert "back[i, value(i_last[0])]" in show(after("alloc back: f32[64, 64] stack\n" + NAMED))


@pytest.mark.parametrize(
    "body",
    [
        "for i in 2 .. N { y[i] = y[i - 2] + x[i] }",
        "for i in 1 .. N - 4 { for t in 0 .. 4 unroll 4 { y[i + t] = y[i + t - 1] + x[i] } }",
        "for i in 1 .. N { for t in 0 .. 4 unroll 4 { y[i] = y[i - 1] + x[t] } }",
        "for i in 3 .. N { y[i % 3] = y[(i - 2) % 3] + x[i] }",
        "for i in 1 .. N { y[i] = select(x[i] > 0.0_f32, y[i - 1], x[i]) }\n    for i in 0 .. N { y[i] = x[i] }",
        "for i in 0 .. N { if index(i) >= 1_i64 { y[i] = y[i - 1] + x[i] } }",
        "for i in 0 .. N { alloc r: f32[1] registers\n if index(i) >= 1_i64 { r[0] = y[i - 1] }\n y[i] = x[i] }",
        "for i in 0 .. N { alloc r: f32[1] registers\n for t in 0 .. i { r[0] = y[i - 1] }\n y[i] = x[i] }",
        "for i in 1 .. N { y[i] = y[i - 1] + x[i]\n if x[i] > 0.0_f32 { y[i] = 0.0_f32 } }",
        "for i in 0 .. N { y[i] = select(index(i) >= 1_i64, y[max(0, i - 1)], x[i]) }",
        "for i in 1 .. N { y[i] = x[i] }",
        "alloc z: f32[64] stack\n for i in 1 .. 64 { y[i // 64] = x[0]\n z[i] = y[(i - 1) // 64] }",
        "for i in 1 .. N { y[N - i] = y[N - i - 1] + x[i] }",
        "for i in 5 .. N { for k in 0 .. 3 { y[i] = y[i - k - 2] + x[i] } }",
        "alloc z: f32[64] stack\n for i in 2 .. 64 { y[i % 1] = x[0]\n z[i] = y[(i - 1) % 1] }",
        "for i in 1 .. N - 4 { for t in 0 .. 4 vector 4 { y[t] = x[i + t] }\n y[i] = y[i - 1] }",
        "alloc z: f32[64, 4] stack\n for i in 1 .. 64 { for t in 0 .. i % 4 vector 4 { z[i, t] = z[i - 1, t] } }",
        "alloc z: f32[64, 6] stack\n for i in 1 .. 64 { for t in 0 .. 4 vector 4 { z[i, t] = z[i - 1, t] }\n z[i, i % 4] = x[0] }",
    ],
)
def test_other_loops_stay_as_they_are(body: str) -> None:
    function = parse(f"{HEAD}{body}\n}}")
    assert carried(function) == function


ROWS = """
alloc z: f32[2, 4] stack
for t in 0 .. 4 vector 4 {{ z[0, t] = x[0] }}
for i in 1 .. 9 {{ for t in 0 .. 4 vector 4 {{ z[i % 2, t] = z[(i - 1) % 2, t] * 0.5_f32 + x[t] }} }}
for t in 0 .. 4 {{ y[t] = {last} }}
"""


@pytest.mark.parametrize(("last", "inside"), [("z[0, 3 - t]", False), ("z[t % 2, t]", True), ("z[0, t] + z[1, t]", True)])
def test_rows_of_which_the_last_is_read_behind_the_loop_are_stored_there_alone(last: str, inside: bool) -> None:
    body = ROWS.format(last=last)
    assert ("z[i % 2, t] = i_new" in show(after(body))) == inside
    x = np.random.default_rng(0).standard_normal(4).astype(np.float32)
    before = check(f"{HEAD}{body}\n}}", {"N": 4}, targets=[host()], x=x, y=np.zeros(4, np.float32))
    made = check(show(after(body)), {"N": 4}, targets=[host()], x=x, y=np.zeros(4, np.float32))
    assert_same_bits(made["y"], before["y"], "carried")
