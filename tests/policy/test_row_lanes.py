"""Short rows of several tensors: lanes are rows, and what lies across is transposed a block at a time."""

from __future__ import annotations

import pytest
from scheduled_programs import argument, assert_same, operator

from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.deriver import Exactly
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MACHINE = Machine(target="cpu", threads=2)
SMALLEST = """x: {type}[{lead}N, K]) -> (y: i32[{lead}N])
    least[{at}a] = min(j) x[{at}a, j]
    y[{at}a] = min(j) (if x[{at}a, j] == least[{at}a] then i32(j) else 999)"""
CENTRED = """x: {type}[{lead}N, K]) -> (y: {type}[{lead}N, K])
    total[{at}a] = sum(j in 0..K) x[{at}a, j]
    apart[{at}a, j] = max(x[{at}a, j] * {type}(K) - total[{at}a], x[{at}a, j])
    most[{at}a] = max(j in 0..K) apart[{at}a, j]
    y[{at}a, j] = most[{at}a] - apart[{at}a, j]"""
PLACE = """x: {type}[{lead}N, K]) -> (y: i64[{lead}N])
    y[{at}a] = argmin(j in 0..K) (if x[{at}a, j] > {type}(2) then x[{at}a, j] else -x[{at}a, j])"""
NEAREST = """x: {type}[{lead}N, 3], c: {type}[K, 3]) -> (y: i32[{lead}N])
    far[{at}a, k] = sum(j in 0..3) (x[{at}a, j] - c[k, j]) * (x[{at}a, j] - c[k, j])
    least[{at}a] = min(k in 0..K) far[{at}a, k]
    y[{at}a] = min(k in 0..K) (if far[{at}a, k] == least[{at}a] then i32(k) else 999)"""

PAIRS = """x: {type}[{lead}9, K], c: {type}[{lead}N, K]) -> (y: {type}[{lead}9, N])
    most[{at}i, a] = max(j in 0..K) abs(x[{at}i, j] - c[{at}a, j])
    apart[{at}i, a] = sum(j in 0..K) abs(x[{at}i, j] - c[{at}a, j])
    y[{at}i, a] = most[{at}i, a] - apart[{at}i, a]"""


def program(text: str, rows: int, columns: int, lead: bool = False, dtype: str = "i32") -> Program:
    signature, body = text.format(type=dtype, lead="B, " if lead else "", at="b, " if lead else "").split("\n", 1)
    module = load_module(parse(Source("f.tl", f"op f({signature} {{\n{body}\n}}")))
    return instantiate(module, "f", [argument(p, {"N": rows, "K": columns, "B": 2}) for p in module.operators["f"].params])


def directives(of: Program) -> list[str]:
    return [show(d) for d in derive(of, MACHINE).directives]


@pytest.mark.parametrize("text", [SMALLEST, CENTRED, NEAREST], ids=["smallest", "centred", "nearest"])
@pytest.mark.parametrize(("rows", "columns", "lead"), [(32, 5, False), (75, 4, True), (70, 15, False), (37, 9, True)])
def test_lanes_of_short_rows_are_rows(text: str, rows: int, columns: int, lead: bool) -> None:
    made = program(text, rows, columns, lead)
    found = directives(made)
    [vector] = [d.removeprefix("vectorize y.") for d in found if d.startswith("vectorize y.")]
    assert vector.startswith("b_a_" if lead else "a_v")
    assert sum(d.startswith("at ") and d.endswith(f" at y.{vector[:-1]}o") for d in found) == len(made.definitions) - 1
    assert_same(made, proven(made, derive(made, MACHINE)), {})


@pytest.mark.parametrize("columns", [20, 33])
def test_rows_of_a_few_vectors_are_transposed_where_they_are_only_reduced(columns: int) -> None:
    made = program(SMALLEST, 40, columns)
    assert any(d.startswith("pack x at y.a_o as [j, a]") for d in directives(made))
    assert_same(made, proven(made, derive(made, MACHINE)), {})
    assert not any(d.startswith("pack") for d in directives(program(CENTRED, 40, columns)))


@pytest.mark.parametrize(("rows", "columns", "packed"), [(64, 3, False), (64, 8, True)])
def test_rows_are_copied_where_neighbours_lie_too_far_apart_for_shuffles(rows: int, columns: int, packed: bool) -> None:
    assert any(d.startswith("pack x") for d in directives(program(SMALLEST, rows, columns))) == packed


@pytest.mark.parametrize(("rows", "columns"), [(31, 5), (64, 64)], ids=["few rows", "long rows"])
def test_vectors_run_along_other_rows(rows: int, columns: int) -> None:
    assert "vectorize y.a_v" not in directives(program(SMALLEST, rows, columns))


@pytest.mark.parametrize(("rows", "lead", "order"), [(40, False, "y.a_o, y.i, y.a_v"), (32, True, "y.b, y.a_o, y.i, y.a_v")])
def test_a_block_of_rows_is_copied_once_for_all_that_is_compared_with_it(rows: int, lead: bool, order: str) -> None:
    made = program(PAIRS, rows, 12, lead)
    assert {f"order {order}", "at most at y.i", "at apart at y.i"} <= {*directives(made)}
    assert any(d.startswith("pack c at y.a_o as [") for d in directives(made))
    assert_same(made, proven(made, derive(made, MACHINE)), {})


def test_what_others_read_too_is_not_copied_for_the_rows_of_some() -> None:
    text = SMALLEST.replace("y: i32[{lead}N])", "y: i32[{lead}N], z: {type}[K, {lead}N])") + "\n    z[j, {at}a] = 2 * x[{at}a, j]"
    made = program(text, 64, 9)
    assert not any(d.startswith("pack x") for d in directives(made))
    assert_same(made, proven(made, derive(made, MACHINE)), {})


@pytest.mark.parametrize(("columns", "lead"), [(20, False), (37, True), (600, False)])
def test_lanes_of_rows_of_which_a_place_is_looked_for_are_rows(columns: int, lead: bool) -> None:
    made = program(PLACE, 40, columns, lead)
    row = "b_a" if lead else "a"
    assert {f"vectorize y.{row}_v", f"pack x at y.{row}_o as [j, {row}]"} <= {*directives(made)}
    assert_same(made, proven(made, derive(made, MACHINE)), {})


def test_a_row_whose_place_is_looked_for_is_copied_for_that_alone_where_others_read_it() -> None:
    both = """x: f32[N, K]) -> (y: i64[N], top: f32[N])
    y[a] = argmax(j) x[a, j]
    top[a] = max(j) x[a, j]"""
    made = program(both, 40, 50)
    assert "pack x in y.a at y.a_o as [j, a]" in directives(made)
    assert_same(made, proven(made, derive(made, MACHINE)), {})


def test_a_row_that_is_copied_for_one_equation_has_the_axes_of_its_reads_there() -> None:
    running = """x: f32[N, K]) -> (at: i64[N])
    high[a, 0] = x[a, 0]
    high[a, j] = max(high[a, j - 1], x[a, j])   for j in 1..K
    at[a] = argmax(j) (high[a, j] - x[a, j])"""
    made = program(running, 40, 50)
    assert "pack x in at.a at at.a_o as [j, a]" in directives(made)
    assert_same(made, proven(made, derive(made, MACHINE)), {})


@pytest.mark.parametrize(
    "image",
    [
        # what is read lies beside the point: neighbours are there to be lanes
        """x: f32[N, K, 3], w: f32[N, K]) -> (y: f32[N, K, 3])
    near[a, b] = (sum(p in -1..2, q in -1..2) w[a + p, b + q | clamp]) / 9   for a in 0..N, b in 0..K
    y[a, b, c] = near[a, b] * x[a, b, c]""",
        # data say what is read
        """x: f32[N, K, 3], t: f32[8, 3]) -> (y: f32[N, K, 3])
    low[a, b] = i64(x[a, b, 0] * 7) % 7
    part[a, b] = x[a, b, 0] - x[a, b, 1]
    y[a, b, c] = part[a, b] * t[low[a, b], c] + (1 - part[a, b]) * t[low[a, b] + 1, c]""",
    ],
    ids=["window", "table"],
)
def test_what_is_made_for_a_few_channels_of_a_point_has_points_for_lanes(image: str) -> None:
    made = program(image, 19, 40)
    found = directives(made)
    first = made.definitions[0].tensors[0].name
    assert any(d.startswith(f"vectorize {first}.") for d in found)
    assert not any(d == f"at {first} at y.b" for d in found)
    assert_same(made, proven(made, derive(made, MACHINE)), {})


@pytest.mark.parametrize("text", [SMALLEST, CENTRED], ids=["smallest", "centred"])
def test_lanes_are_rows_of_an_open_length_that_is_short_in_a_sample(text: str) -> None:
    made = operator(*text.format(type="i32", lead="", at="").split("\n", 1))
    schedule = derive(made, MACHINE, at={"N": 300, "K": Exactly(6)})
    found = [show(d) for d in schedule.directives]
    assert "vectorize y.a_v" in found and "pack x at y.a_o as [j, a]" in found
    assert not any(d.startswith("unroll y") for d in found), "a loop of open length is not written out"
    for rows, columns in ((37, 6), (3, 17), (33, 1), (0, 5)):
        assert_same(made, proven(made, schedule), {"N": rows, "K": columns})


def test_what_rows_of_open_length_meet_others_in_is_no_row_lane() -> None:
    apart = operator("a: i32[M, K], b: i32[N, K]) -> (y: i32[M, N])", "y[i, j] = sum(k) (a[i, k] - b[j, k]) * (a[i, k] - b[j, k])")
    assert "unroll y.i_t" in [show(d) for d in derive(apart, MACHINE, at={"M": 60, "N": 70, "K": Exactly(6)}).directives]


def test_steps_run_inside_of_one_vector_of_rows_whose_length_is_short_in_a_sample() -> None:
    sums = operator(
        "x: i32[M, N]) -> (y: i32[M, N])", "y[0, j] = x[0, j] for j in 0..N\ny[i, j] = x[i, j] + y[i - 1, j] for i in 1..M, j in 0..N"
    )
    schedule = derive(sums, MACHINE, at={"M": 60, "N": Exactly(6)})
    assert "order y.j_o, y.i, y.j_v" in [show(d) for d in schedule.directives], "so that registers hold what a step reads back"
    for rows, columns in ((5, 6), (4, 37), (0, 3), (1, 1)):
        assert_same(sums, proven(sums, schedule), {"M": rows, "N": columns})
