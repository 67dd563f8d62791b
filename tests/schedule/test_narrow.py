"""Indices of reductions as places in the bands of conditions: which are, the same values bit for bit, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show
from tensorlang.tensor.printer import show as printed

MACHINE = Machine(target="cpu", threads=1)
VECTOR, MATRIX = "x: f32[N]", "x: f32[N, M]"
CASES = {
    "around the diagonal": (VECTOR, "y[i] = sum(j, abs(i - j) <= 1) x[j]", "j in 0..3, i + j - 1 >= 0, i + j - 1 < N"),
    "two bounds": (VECTOR, "y[i] = sum(j, i - j <= 1, j <= i) x[j]", "j in 0..2, i + j - 1 >= 0"),
    "towards an end": (VECTOR, "y[i] = x[i] * sum(j, j + 2 >= N) x[j] * x[i]", "j in 0..2, N + j - 2 >= 0"),
    "a factor": (VECTOR, "y[i] = sum(j, 0 <= i + 1 - 2*j, i + 1 - 2*j < 4) x[j]", "j in 0..2, j + (i + 1) // 2 - 1 >= 0"),
    "quotients": (VECTOR, "y[i] = sum(j, i // 2 <= j, j <= (i + 1) // 2) x[j]", "j in 0..2, j + i // 2 <= (i + 1) // 2"),
    "every third": (VECTOR, "y[i] = sum(j, (i - j) % 3 == 1) x[j]", "j in 0..(N + 2) // 3, 3*j + (i + 2) % 3 < N"),
    "every other one of a band": (VECTOR, "y[i] = sum(j, (i + j) % 2 == 0, j >= i, j < i + 4) x[j]", "j in 0..2, i + 2*j < N"),
    "one value": (VECTOR, "y[i] = sum(j, 2*j == i) x[j]", "j in 0..1, 2*j + 2*((i + 1) // 2) == i"),
    "by one further outside": (
        MATRIX,
        "y[i] = sum(k, j, abs(k - j) <= 1, k <= i) x[k, j]",
        "k in 0..N, j in 0..3, j + k - 1 >= 0, j + k - 1 < M",
    ),
    "a condition on data": (VECTOR, "y[i] = sum(j, j >= i, j <= i + 1, x[j] > 0) x[j]", "j in 0..2, i + j < N, x[i + j] > 0.0"),
    "an extremum": (VECTOR, "y[i] = max(j, j >= i, j <= i + 1) x[j] * x[i]", "j in 0..2, i + j < N"),
    "a part of an equation": (VECTOR, "y[i] = x[i] - 2 * sum(j, j >= i, j <= i + 1) x[j]", "j in 0..2, i + j < N"),
    "made of itself": (VECTOR, "y[i] = x[i] + sum(j in 0..i, i - j <= 2) y[j]", "j in 0..2, i + j - 2 >= 0"),
    "no end": (VECTOR, "y[i] = sum(j, i <= j) x[j] * f32(i)", None),
    "by one further inside": (MATRIX, "y[i] = sum(j in 0..N, k, abs(k - j) <= 1, k <= i) x[j, k]", None),
    "factors whose multiples are wide": (VECTOR, f"y[i] = sum(j, {2**33} * j == i) x[j]", None),
    "residues whose multiples are wide": (VECTOR, f"y[i] = sum(j, (i - 3*j) % {2**33} == 1) x[j]", None),
    "as many as there are": (MATRIX, "y[i] = sum(j, j >= i - N, j < i + M) x[i, j]", None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reductions_go_through_the_values_alone_that_conditions_leave(case: tuple[str, str, str | None]) -> None:
    given, equation, left = case
    program = replace(operator(f"{given}) -> (y: f32[N])", equation), mode="strict")
    narrowed = "narrow y.j" in map(show, derive(program, MACHINE).directives)
    assert narrowed == (left is not None)
    if left is None:
        with pytest.raises(CompileError, match=r"`y.j` cannot be narrowed: no condition keeps `j` within a band"):
            apply(program, Schedule("f").narrow("y.j"))
        return
    assert f"({left}" in printed(apply(program, Schedule("f").narrow("y.j")).program)
    plan = proven(program, Schedule("f").narrow("y.j"))
    for sizes in ({"N": 0, "M": 3}, {"N": 1, "M": 1}, {"N": 7, "M": 5}):
        assert_same(program, plan, {name: n for name, n in sizes.items() if name in program.sizes})


def test_what_is_left_of_one_index_tells_what_is_left_of_another() -> None:
    """Of the last index there is one value for each of those before it, which is not gone through; terms keep their order."""
    given = "x: f32[C, H], w: f32[C, F, 4]) -> (y: f32[F, 2*H])"
    scattered = operator(given, "y[f, p] = sum(c in 0..C, h in 0..H, k in 0..4, 2*h + k == p + 1) x[c, h] * w[c, f, k]")
    program = replace(scattered, mode="strict")
    schedule = Schedule("f").narrow("y.k", "y.h")
    assert "sum(c in 0..C, h in 0..2, " in printed(apply(program, schedule).program)
    assert_same(program, proven(program, schedule), {"C": 2, "F": 3, "H": 5})
    assert [d for d in derive(program, MACHINE).directives if d.name == "narrow"] == [*Schedule("f").narrow("y.k").narrow("y.h").directives]


def test_rows_of_a_product_with_wide_bands_stay_a_register_tile() -> None:
    def narrows(width: int) -> bool:
        given = "a: f32[N, N], x: f32[N, M]) -> (y: f32[N, M])"
        program = operator(given, f"y[i, m] = sum(j, abs(i - j) <= {width}) a[i, j] * x[j, m]", {"N": 512, "M": 64})
        return any(d.name == "narrow" for d in derive(program, MACHINE).directives)

    assert narrows(8)
    assert not narrows(60)


def test_only_indices_of_reductions_are_narrowed() -> None:
    program = operator("x: f32[N]) -> (y: f32[N])", "y[i] = sum(j, abs(i - j) <= 1) x[j]")
    with pytest.raises(CompileError, match=r"`y.i` cannot be narrowed: no reduction of `y` is over `i`"):
        apply(program, Schedule("f").narrow("y.i"))
