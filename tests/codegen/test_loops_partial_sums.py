"""Sums that iterations wait for are collected in several parts, where that is allowed and takes less time."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.target import host
from codegen.loops.nodes import Function
from codegen.loops.notes import KINDS, AnyOrder, read
from codegen.loops.parser import parse
from codegen.loops.partial_sums import parts, with_partial_sums
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N)(w: f32[24, 8], x: f32[8], out y: f32[N, 8]) {\nfor j in 0 .. 8 vector 8 { y[0, j] = x[j] }\n"
SUM = """for t in 1 .. N {
    alloc s: f32[8] registers (any_order)
    for j in 0 .. 8 vector 8 { s[j] = x[j] }
    for k in 0 .. 8 unroll 8 { for j in 0 .. 8 vector 8 { s[j] = fma(y[t - 1, k], w[k, j], s[j]) } }
    for j in 0 .. 8 vector 8 { y[t, j] = s[j] }
}"""


def after(body: str) -> Function:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    made = with_partial_sums(function, lambda dtype: 64 // dtype.size_bytes, 32)
    verify(made)
    return made


def test_a_sum_that_the_next_iteration_waits_for_is_collected_in_parts() -> None:
    text = show(after(SUM))
    assert "alloc s_part: f32[3, 8] registers" in text and "for k in 0 .. 2 unroll 2" in text
    assert "s[j] = s[j] + s_part[0, j] + (s_part[1, j] + s_part[2, j])" in text
    assert "any_order" not in text, "what a note asks for has been done"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (SUM.replace(" (any_order)", ""), "its order is what is meant"),
        (SUM.replace("y[t - 1, k]", "x[k]"), "nothing of it waits for another iteration"),
        (SUM.replace("k in 0 .. 8 unroll 8", "k in 0 .. N"), "nobody knows how many terms it has"),
        (SUM.replace("s[j] = fma(y[t - 1, k], w[k, j], s[j])", "s[j] = fma(y[t - 1, k], s[j], w[k, j])"), "a product"),
        (
            SUM.replace("{ s[j] = fma(", "{ if y[t - 1, k] > 0.0_f32 { s[j] = fma(").replace("s[j]) }", "s[j]) } }"),
            "some terms are left out",
        ),
        (SUM.replace("f32[8] registers", "f32[96] registers").replace("in 0 .. 8 vector 8 { s", "in 0 .. 96 vector 96 { s"), "many sums"),
    ],
)
def test_a_sum_stays_whole(body: str, why: str) -> None:
    body = body.replace("w[k, j], s[j]) } }", "w[k, min(j, 7)], s[j]) } }") if why == "many sums" else body
    assert "_part" not in show(after(body.replace("vector 96", "unroll 96"))), why


def test_sums_whose_step_has_many_beside_it_stay_whole() -> None:
    assert parts(8, 1, 16) > 1 and parts(8, 1, 16, beside=8) == 1
    assert parts(8, 8, 16) == 1 and parts(64, 1, 4) <= 4


BODIES = {
    "eight terms": SUM,
    "terms that do not come out even": SUM.replace("k in 0 .. 8 unroll 8", "k in 1 .. 8 unroll 7"),
    "a loop": SUM.replace("k in 0 .. 8 unroll 8", "k in 1 .. 24").replace("y[t - 1, k]", "y[t - 1, k % 8]"),
    "greatest": SUM.replace("fma(y[t - 1, k], w[k, j], s[j])", "max(s[j], y[t - 1, k] + w[k, j])"),
    "a term with a name": SUM.replace(
        "{ s[j] = fma(y[t - 1, k], w[k, j], s[j])", "{ let a = y[t - 1, k] * 0.5_f32 s[j] = s[j] + a * w[k, j]"
    ),
    "two sums": SUM.replace("{ s[j] = fma(", "{ r[j] = r[j] + y[t - 1, k] s[j] = fma(")
    .replace("alloc s: f32[8] registers (any_order)", "alloc s: f32[8] registers (any_order) alloc r: f32[8] registers (any_order)")
    .replace("{ s[j] = x[j] }", "{ s[j] = x[j] r[j] = 0.0_f32 }")
    .replace("y[t, j] = s[j]", "y[t, j] = s[j] - r[j]"),
    "what is made of the last step before": SUM.replace(
        "for k in", "alloc q: f32[8] stack for j in 0 .. 8 vector 8 { q[j] = y[t - 1, j] * 0.5_f32 } for k in"
    ).replace("fma(y[t - 1, k]", "fma(q[k]"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_sum_in_parts_comes_to_the_same_but_for_rounding(body: str) -> None:
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal(8).astype(np.float32), (rng.standard_normal((24, 8)) / 8).astype(np.float32)
    assert "_part" in show(after(body))
    before = check(f"{HEAD}{body}\n}}", {"N": 5}, targets=[host()], w=w, x=x, y=np.zeros((5, 8), np.float32))
    made = check(show(after(body)), {"N": 5}, w=w, x=x, y=np.zeros((5, 8), np.float32))
    np.testing.assert_allclose(made["y"], before["y"], rtol=1e-4, atol=1e-5)


def test_places_that_never_are_the_same_carry_nothing() -> None:
    inner = """for t in 1 .. N { for b in 0 .. 8 { alloc s: f32[] registers (any_order) s[] = 0.0_f32
        for k in 0 .. 8 unroll 8 { s[] = fma(y[t - 1, k], w[k, b], s[]) }
        y[t, b] = s[] } }"""
    assert "_part" not in show(after(inner)), "the sums of a step go on side by side"
    assert "_part" in show(after(inner.replace("y[t - 1, k]", "y[t, k]")))


def test_what_an_iteration_has_made_itself_carries_nothing() -> None:
    block = """for b in 0 .. 2 { for l in 0 .. 4 vector 4 { y[1, 4*b + l] = x[4*b + l] }
        alloc s: f32[4] registers (any_order) for l in 0 .. 4 vector 4 { s[l] = 0.0_f32 }
        for k in 0 .. 24 { for l in 0 .. 4 vector 4 { s[l] = fma(w[k, 4*b + l], y[1, AT], s[l]) } }
        for l in 0 .. 4 vector 4 { y[2, 4*b + l] = s[l] } }"""
    assert "_part" not in show(after(block.replace("AT", "4*b + l")))
    assert "_part" in show(after(block.replace("AT", "4*b + l - 1"))), "which the iteration before has made"


def test_the_note_is_read_back() -> None:
    assert KINDS["any_order"] is AnyOrder and read("any_order", ()) == AnyOrder()
