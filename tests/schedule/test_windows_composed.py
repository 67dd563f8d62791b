"""Reductions over windows as reductions over windows of windows: which are, the same values, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scheduled_programs
from scheduled_programs import assert_same, operator

from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.windows import window_lengths
from tensorlang.syntax.printer import show

MACHINE = Machine(target="cpu", threads=1)
VECTOR, MATRIX = "x: i32[N]", "x: i32[N, M]"
CASES = {
    "to the right": (VECTOR, "i32[N - 11]", "y[i] = sum(k in 0..12) x[i + k]   for i in 0..N - 11", "y.k", (5,)),
    "to the left": (VECTOR, "i32[N]", "y[i] = sum(k in 0..12) x[i - k | skip]   for i in 0..N", "y.k", (3, 6)),
    "about the middle": (VECTOR, "i32[N]", "y[i] = prod(k in -4..5) x[i + k | 1]   for i in 0..N", "y.k", (4,)),
    "overlapping": (VECTOR, "i32[N]", "y[i] = max(k in 0..11) x[i + k - 5 | clamp]   for i in 0..N", "y.k", (4, 8)),
    "every second element": (VECTOR, "i32[N]", "y[i] = sum(k in 0..7) x[i + 2*k | clamp]   for i in 0..N", "y.k", (2, 4)),
    "terms that are kept": (VECTOR, "i32[N]", "y[i] = sum(k in 0..7) (x[i + k | 0] * x[i + k | 0] - 3)   for i in 0..N", "y.k", (1, 3)),
    "terms that data leave out": (VECTOR, "i32[N]", "y[i] = sum(k in 0..7, x[i + k | 0] > 1) i32(1)   for i in 0..N", "y.k", (3,)),
    "truths": (VECTOR, "bool[N]", "y[i] = any(k in 0..7) (x[i + k | 0] == 2)   for i in 0..N", "y.k", (1, 3)),
    "a part of an equation": (VECTOR, "i32[N]", "y[i] = x[i] - (sum(k in 0..9) x[i + k | 0]) // 9", "y.k", (3,)),
    "along columns": (MATRIX, "i32[N, M]", "y[i, j] = sum(k in 0..9) x[i + k, j | 0]   for i in 0..N, j in 0..M", "y.k", (3,)),
    "one of two": (
        MATRIX,
        "i32[N, M]",
        "y[i, j] = max(a in 0..3, b in 0..4) x[i + a, j - b | clamp]   for i in 0..N, j in 0..M",
        "y.b",
        (),
    ),
    "both": (MATRIX, "i32[N, M]", "y[i, j] = sum(a in 0..3, b in 0..4) x[i - a, j + b | 0]   for i in 0..N, j in 0..M", "y.a", (2,)),
    "weights along both": (
        f"{MATRIX}, w: i32[3], v: i32[4]",
        "i32[N, M]",
        "y[i, j] = x[i, j] - sum(a, b) w[a] * x[i - a, j + b | 0] * v[b]   for i in 0..N, j in 0..M",
        "y.b",
        (),
    ),
    "weights of each element along one": (
        f"{MATRIX}, w: i32[3], v: i32[4, M]",
        "i32[N, M]",
        "y[i, j] = sum(a, b) w[a] * v[b, j] * (i32(b) - 2) * x[i + a, j + b | 0]   for i in 0..N, j in 0..M",
        "y.b",
        (),
    ),
    "weights along the other alone, and channels": (
        "x: i32[N, M, 2], w: i32[3]",
        "i32[N, M]",
        "y[i, j] = sum(a in 0..3, b in 0..4, c in 0..2) w[a] * x[i + a, j + b, c | 0]   for i in 0..N, j in 0..M",
        "y.b",
        (),
    ),
    "channels": ("x: i32[N, 3]", "i32[N]", "y[i] = sum(k in 0..9, c in 0..3) x[i + k, c | 0]   for i in 0..N", "y.k", (1, 3)),
}
OTHERS = {
    "weights": ("x: i32[N], w: i32[9]", "i32[N]", "y[i] = sum(k) x[i + k | 0] * w[k]   for i in 0..N"),
    "a stride": (VECTOR, "i32[N // 3]", "y[i] = sum(k in 0..12) x[3*i + k | 0]   for i in 0..N // 3"),
    "as many terms as there are elements": (VECTOR, "i32[N]", "y[i] = sum(k in 0..N) x[i + k | 0]   for i in 0..N"),
    "some elements": (VECTOR, "i32[N]", "y[i] = sum(k in 0..12) x[i - k]   for i in 12..N\n y[i] = x[i] otherwise"),
    "places": (VECTOR, "i64[N]", "y[i] = argmax(k in 0..12) x[i + k | 0]   for i in 0..N"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reductions_over_windows_are_made_of_shorter_ones_and_compute_the_same(case: tuple[str, str, str, str, tuple[int, ...]]) -> None:
    given, result, equations, binder, lengths = case
    for sizes in ({"N": 12, "M": 1}, {"N": 17, "M": 6}):
        # An edge that is repeated has to be there, which no size that is open promises.
        program = operator(f"{given}) -> (y: {result})", equations, sizes if "clamp" in equations else {})
        plan = proven(program, Schedule("f").compose(binder, lengths))
        assert_same(program, plan, {name: n for name, n in sizes.items() if name in program.sizes})


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_other_reductions_are_no_windows(case: tuple[str, str, str]) -> None:
    given, result, equations = case
    program = operator(f"{given}) -> (y: {result})", equations)
    with pytest.raises(CompileError, match=r"`y.k` cannot be composed: no reduction of `y` has terms that differ with the sum"):
        apply(program, Schedule("f").compose("y.k", (3,)))


@pytest.mark.parametrize(
    ("lengths", "why"), [((5, 3), "windows of it have 12 terms"), ((12,), "windows of it"), ((), "a window of one index")]
)
def test_lengths_of_windows_grow(lengths: tuple[int, ...], why: str) -> None:
    program = operator(f"{VECTOR}) -> (y: i32[N])", "y[i] = sum(k in 0..12) x[i + k | 0]   for i in 0..N")
    with pytest.raises(CompileError, match=why):
        apply(program, Schedule("f").compose("y.k", lengths))


def test_a_strict_operator_keeps_how_its_sums_are_grouped() -> None:
    program = replace(operator("x: f32[N]) -> (y: f32[N])", "y[i] = sum(k in 0..40) x[i + k | 0]   for i in 0..N"), mode="strict")
    assert all(d.name != "compose" for d in derive(program, MACHINE).directives)
    with pytest.raises(CompileError, match=r"`y.k` cannot be composed: the operator is `strict`"):
        apply(program, Schedule("f").compose("y.k", (8,)))


def test_a_window_of_negative_zeros_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    program = operator("x: f32[N]) -> (y: f32[N - 9])", "y[i] = sum(k in 0..10) x[i + k]   for i in 0..N - 9")
    monkeypatch.setattr(scheduled_programs, "small", lambda rng, shape, dtype: np.full(shape, -0.0, dtype))
    for lengths in ((3,), (1, 3)):
        assert_same(program, proven(program, Schedule("f").compose("y.k", lengths)), {"N": 12})


def test_an_edge_that_may_not_be_there_is_not_repeated() -> None:
    program = operator(f"{VECTOR}) -> (y: i32[N])", "y[i] = max(k in 0..40) x[i + k | clamp]   for i in 0..N")
    assert all(d.name != "compose" for d in derive(program, MACHINE).directives)
    with pytest.raises(CompileError, match=r"what `compose` makes of `f` is not proven: `x` is read outside its bounds when N=0"):
        apply(program, Schedule("f").compose("y.k", (8,)))


def composed(equations: str, given: str = VECTOR, result: str = "i32[N]", **sizes: int) -> list[str]:
    program = operator(f"{given}) -> (y: {result})", equations, sizes)
    return [show(d) for d in derive(program, MACHINE).directives if d.name == "compose"]


def test_long_windows_are_composed_and_short_ones_are_not() -> None:
    assert composed("y[i] = sum(k in 0..30) x[i + k | 0]   for i in 0..N", N=400) == ["compose y.k by 1, 5"]
    assert composed("y[i] = sum(k in 0..5) x[i + k | 0]   for i in 0..N") == []
    assert composed("y[i] = sum(k in 0..30) x[i + k | 0]   for i in 0..N", N=3) == []


def test_windows_along_two_axes_are_computed_one_after_the_other_that_of_rows_first() -> None:
    box = "y[i, j] = max(a in 0..{0}, b in 0..{0}) x[i + a, j + b | clamp]   for i in 0..N, j in 0..M"
    assert composed(box.format(7), MATRIX, "i32[N, M]", N=40, M=40) == ["compose y.a"]
    assert composed(box.format(3), MATRIX, "i32[N, M]", N=40, M=40) == []


def test_a_window_whose_weights_are_a_product_is_summed_along_one_axis_after_the_other() -> None:
    matrix = "x: f32[N, M], w: f32[7, 7], v: f32[7]"
    sums = "y[i, j] = sum(a in 0..7, b in 0..7) {} * x[i + a, j + b]   for i in 0..N - 6, j in 0..M - 6"
    assert composed(sums.format("v[a] * v[b]"), matrix, "f32[N - 6, M - 6]", N=40, M=40) == ["compose y.a"]
    assert composed(sums.format("w[a, b]"), matrix, "f32[N - 6, M - 6]", N=40, M=40) == []
    assert composed(sums.format("v[a] * w[a, b]"), matrix, "f32[N - 6, M - 6]", N=40, M=40) == []


def test_products_are_added_in_the_operation_that_makes_them() -> None:
    squares = "y[i, j] = sum(a in 0..5, b in 0..5) x[i + a, j + b] * x[i + a, j + b]   for i in 0..N - 4, j in 0..M - 4"
    assert composed(squares, MATRIX, "i32[N - 4, M - 4]", N=40, M=40) == ["compose y.a"]


@pytest.mark.parametrize(("count", "may_overlap"), [(2, False), (7, True), (12, False), (31, False), (100, True), (4001, False)])
def test_windows_are_of_a_few_shorter_ones(count: int, may_overlap: bool) -> None:
    terms, lengths = window_lengths(count, may_overlap)
    assert terms <= count
    assert all(low < high for low, high in zip((1, *lengths), (*lengths, count), strict=True))
