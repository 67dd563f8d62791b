"""`derive`: what somebody wrote of a schedule stays, and the rest is derived, proven step by step and told."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_trial import trial
from scheduled_programs import MACHINE, assert_same, written
from strategies_schedule import random_case, some_program

import tensorlang as tl
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.complete import completed
from tensorlang.policy.cpu.derive import derive
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.shell.checking import check_source
from tensorlang.syntax.printer import show

HEAT = """op heat(x: f64[N, N]) -> (y: f64[N, N]) where N >= 3 {
    s[0, i, j]     = x[i, j]
    s[t + 1, i, j] = s[t, i - 1, j] + s[t, i + 1, j] + s[t, i, j - 1] + s[t, i, j + 1]   for t in 0..4, i in 1..N-1, j in 1..N-1
    s[t + 1, i, j] = s[t, i, j]                                                          otherwise
    y[i, j]        = s[4, i, j]
}
"""
TWO = """op f(x: f32[N, M], w: f32[M, K]) -> (y: f32[N, K], z: f32[N]) {
    h[i, j] = sum(k) x[i, k] * w[k, j]
    y[i, j] = h[i, j] * 2 + 1
    z[i]    = sum(j) h[i, j]
}
"""


def filled(text: str, *directives: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the directives that a partial schedule becomes, proven and right, and what is said of them."""
    name = text.split("(")[0].split()[-1]
    lines = "\n".join(line for line in directives if not line.startswith("derive"))
    found = written(f"{text}schedule {name} for cpu {{\n{lines}\n}}\n")
    made = completed(found.program, found.schedule.then(directives[-1]), MACHINE)
    plan = proven(found.program, made.schedule)
    for n in (3, 5, 9):
        assert_same(found.program, plan, dict.fromkeys(found.program.sizes, n))
    return [show(d) for d in made.schedule.directives], made.sentences


def test_a_tile_of_steps_gets_the_skews_that_make_it_legal_and_lanes_inside() -> None:
    tile = "tile s (t, i, j) by (4, 8, 8) -> tt, io, jo, ts, ii, ji"
    found, said = filled(HEAT, tile, "derive")
    at = found.index(tile)
    assert at == 2 and all(line.startswith("skew s.") for line in found[:at])
    assert {"vectorize s.ji", "fold s at t by 2"} <= set(found[at:])
    assert any(line.startswith("`s`: `s.tt`, `s.io`, `s.jo`, `s.ts` carry dependences") for line in said)
    assert any(line.startswith("derived: `vectorize s.ji`: cycles of an element: ") for line in said)


def test_what_a_dependence_forbids_is_told_with_two_elements_that_show_it() -> None:
    _, said = filled(HEAT, "split s.i by 8 -> io, ii", "derive")
    (refused,) = [line for line in said if line.startswith("not derived: `distribute s at s.t`")]
    assert "share the element s[" in refused


def test_a_copy_that_is_filled_ahead_is_kept_whole() -> None:
    text = "op f(a: f32[8, 8], b: f32[8, 8]) -> (y: f32[8, 8]) { y[i, j] = sum(k) a[i, k] * b[k, j] }\n"
    found, _ = filled(text, "pack a at y.i", "stages y.i by 3", "derive")
    assert found[:2] == ["pack a at y.i", "stages y.i by 3"] and not any(line.startswith("fold a.pack") for line in found)


def test_lanes_of_what_is_computed_inside_of_another_loop_are_along_loops_of_its_own() -> None:
    text = """op f(x: i32[N, M]) -> (y: i32[N, M]) where M >= 1 {
        h[i, j] = sum(n in 0..M, x[i, n] == i) x[n - n, n | 3] for i in 0..N, j in 0..M
        y[i, j] = h[i, M - 1 - j] + x[i, j]
    }
    """
    pinned = ["hoist h.j", "at h.sum at h.i", "store_at h.sum at root", "parallel h.sum.i"]
    found, _ = filled(text, *pinned, "derive")
    assert found[:4] == pinned
    assert not any(line.startswith("vectorize h.i") for line in found)


PRODUCT = "op f(a: f32[N, M], b: f32[M, K]) -> (y: f32[N, K]) { y[i, j] = sum(k) a[i, k] * b[k, j] }\n"


@pytest.mark.parametrize(
    ("pin", "rest"),
    [
        ("tile y (i, j) by (4, 16) -> io, jo, ii, ji", ["order y.io, y.jo, y.k, y.ii, y.ji", "unroll y.ii", "vectorize y.ji"]),
        (
            "split y.i by 6 -> io, ii",
            ["split y.j by 8 -> j_o, j_v", "order y.io, y.j_o, y.k, y.ii, y.j_v", "unroll y.ii", "vectorize y.j_v"],
        ),
        ("tile y (i, j) by (16, 8) -> io, jo, ii, ji", ["order y.io, y.jo, y.ii, y.k, y.ji", "vectorize y.ji"]),
    ],
    ids=["a tile", "rows alone", "more rows than registers hold"],
)
def test_a_sum_over_a_tile_that_registers_hold_is_added_up_in_them(pin: str, rest: list[str]) -> None:
    found, _ = filled(PRODUCT, pin, "derive")
    assert found == [pin, *rest, "parallel y.io"]


def test_tensors_that_need_each_other_are_completed_along_loops_of_their_own() -> None:
    text = """op f(a: f32[N], b: f32[N]) -> (y: f32[N]) {
        e[0, i]     = a[i]
        h[0, i]     = b[i]
        e[t + 1, i] = e[t, i] - h[t, i - 1 | 0]       for t in 0..3
        h[t + 1, i] = h[t, i] + e[t + 1, i + 1 | 0]   for t in 0..3
        y[i]        = h[3, i]
    }
    """
    found, _ = filled(text, "fold e at t by 1", "derive")
    assert {"distribute e at e.i", "distribute h at h.i", "vectorize e.i_v", "vectorize h.i_v2", "fold h at t by 1"} <= set(found)


def test_what_is_pinned_stays_in_its_order() -> None:
    pins = ["split y.j by 4 -> jo, ji", "order jo, y.i, ji", "unroll ji"]
    found, _ = filled(TWO, *pins, "derive")
    assert found[:3] == pins and "vectorize y.ji" not in found


def test_only_the_tensors_that_are_named_are_filled_in() -> None:
    found, _ = filled(TWO, "parallel z.i", "derive y")
    assert found[0] == "parallel z.i" and len(found) > 1
    assert all(" y." in line or line.startswith("split y.") for line in found[1:])


def test_derive_alone_is_what_is_derived_without_a_schedule() -> None:
    f = tl.parse(TWO, threads=1).f
    x, w = np.ones((40, 30), np.float32), np.ones((30, 20), np.float32)

    def directives(operator: tl.Operator) -> list[str]:
        return [line for line in operator.explain(x, w).splitlines() if line.startswith("    ") and "(" not in line]

    assert directives(f.schedule("derive"))[:8] == directives(f)[:8]


def test_a_tensor_that_no_line_is_about_has_the_tile_that_it_has_alone() -> None:
    f = tl.parse(TWO, threads=1).f.schedule("unroll z.j if 1 == 2\nsplit y.j by 4 -> jo, ji\nderive")
    x, w = np.ones((40, 30), np.float32), np.ones((30, 20), np.float32)
    report = f.explain(x, w)
    assert "unroll h.ii" in report or "unroll h.i_t" in report
    y, z = f(x, w)
    assert (y == 61).all() and (z == 600).all()


RUNNING = """op f(x: f32[N, M]) -> (y: f32[N, M], z: f32[N, M]) {
    y[i, j] = 2 * sum(k in 0..i+1) x[k, j]
    z[i, j] = 3 * y[i, j] + max(k in j..M) x[i, k]
}
"""


def test_what_directives_make_of_a_tensor_runs_in_lanes_too() -> None:
    found, _ = filled(RUNNING, "scan y.i", "derive y")
    assert "vectorize y.j_v" in found


def test_what_a_tensor_has_alone_is_kept_as_far_as_it_needs_no_other() -> None:
    found = written(f"{RUNNING}schedule f for cpu {{\nsplit z.i by 8 -> a, b\n}}\n")
    made = completed(found.program, found.schedule.derive(), MACHINE, rest=lambda: derive(found.program, MACHINE))
    lines = [show(d) for d in made.schedule.directives]
    assert "scan y.i" in lines and "vectorize y.scan.j_v" in lines and not any("fold" in line for line in lines)
    assert any(line.startswith("not derived: `scan y.i`") for line in made.sentences)
    assert_same(found.program, proven(found.program, made.schedule), {"N": 9, "M": 6})


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
def test_a_tensor_that_the_rest_computes_along_fewer_axes_is_completed_as_it_is_then(sizes: str) -> None:
    text = """op f(x: f32[N, N]) -> (y: f32[N, N]) {
        t[i, j] = max(t[i, j - 1 | 1], x[j, j])   for i in 0..N
        y[i, j] = max(y[i - 1, j | 0], t[i, j])
    }"""
    x = np.arange(81, dtype=np.float32).reshape(9, 9) % 7
    f = tl.parse(text, sizes=sizes).f  # type: ignore[arg-type]  # one of both
    partial = f.schedule("distribute y\nderive")
    assert "hoist t.i" in partial.explain(x)
    np.testing.assert_array_equal(partial(x), f(x))


@pytest.mark.parametrize(
    ("directives", "code", "said"),
    [
        (("derive", "parallel y.i"), "S0102", "it stands last"),
        (("derive q",), "S0102", "names what is no tensor"),
        (("derive y by 4",), "S0102", "it stands last, and names tensors at most"),
        (("reverse s.t", "derive"), "S0301", "runs a read before the write"),
    ],
)
def test_what_cannot_be_completed_is_refused(directives: tuple[str, ...], code: str, said: str) -> None:
    (refused,) = check_source(Source("heat.tl", f"{HEAT}schedule heat for cpu {{\n" + "\n".join(directives) + "\n}\n")).mistakes
    assert refused.code == code and said in refused.title


def test_a_partial_schedule_in_a_file_is_completed_where_it_is_checked_and_called() -> None:
    text = f"{HEAT}schedule heat for cpu {{\n    order s.t, s.j, s.i\n    derive\n}}\n"
    assert not check_source(Source("heat.tl", text)).mistakes
    x = np.random.default_rng(1).random((40, 40))
    np.testing.assert_array_equal(tl.parse(text, threads=2).heat(x), tl.parse(HEAT, threads=1).heat(x))


def test_a_device_has_no_partial_schedules() -> None:
    (refused,) = check_source(Source("heat.tl", f"{HEAT}schedule heat for cuda {{\n    derive\n}}\n")).mistakes
    assert refused.code == "S0221"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_is_pinned_is_completed_to_what_computes_the_same(seed: int) -> None:
    """Either random directives are refused as they are without `derive`, or all of them are kept, and the whole is right."""
    random = Random(seed)
    case = random_case(some_program(random), random, directives=3)
    pinned = tuple(d for d in case.schedule.directives if d.name != "flatten")[:3]
    schedule = Schedule(case.program.name, "cpu", pinned, case.schedule.instructions)
    try:
        made = completed(case.program, schedule.then("derive"), MACHINE, case.layouts)
    except CompileError as refused:
        with pytest.raises(CompileError) as again:
            proven(case.program, schedule, case.layouts)
        assert again.value.diagnostics[0].code == refused.diagnostics[0].code
        return
    kept = iter(map(show, made.schedule.directives))
    assert all(any(show(d) == line for line in kept) for d in pinned)
    found = trial(replace(case, schedule=made.schedule), seed % 1000, natively=True)
    assert found.kind == "accepted", found.text
