"""Where data say that a row begins, or which element a step changes: lanes along the row, and the element alone."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, loops, operator

from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.shape import step_of_slot, unit_stride
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Dynamic, Program, Read
from tensorlang.tensor.walk import reads

MACHINE = Machine(target="cpu", threads=1)


def directives(program: Program) -> list[str]:
    return [show(d) for d in derive(program, MACHINE).directives]


def read_of_x(index: str) -> Read:
    """Return the read of `x` at an index over `i`, `j` and data."""
    program = operator("x: f32[90, 90], at: i32[9, 9] in 0..9) -> (y: f32[9, 9])", f"y[i, j] = x[{index}]")
    return next(r for p in program.definitions[0].pieces for r in reads(p.value) if r.tensor == "x")


@pytest.mark.parametrize(
    ("index", "is_row"),
    [
        ("i, at[i, 0] + j", True),
        ("at[i, 1], at[i, 0] + j", True),
        ("i, j + 3 + at[i, 0] | clamp", True),
        ("i, at[i, j]", False),
        ("i, at[i, 0] + 2*j", False),
        ("i, at[i, 0] - j | clamp", False),
        ("i, at[i, j] + j", False),
        ("at[j, 0], j", False),
    ],
)
def test_elements_are_neighbours_where_data_say_where_the_first_of_them_lies_and_not_each(index: str, is_row: bool) -> None:
    read = read_of_x(index)
    assert unit_stride(read.index, None, ("a", "b"), "j") == is_row


def test_slots_go_as_far_as_the_indices_beside_data() -> None:
    slot = read_of_x("i, at[i, 0] + 2*j").index[1]
    assert isinstance(slot, Dynamic)
    assert step_of_slot(slot, "j") == 2 and step_of_slot(slot, "i") is None
    assert step_of_slot(affine.add(Name("i"), 1), "i") == 1


def test_sums_of_windows_that_data_place_run_in_lanes_along_their_rows() -> None:
    body = "y[k] = sum(u in -6..7, v in -6..7, u*u + v*v <= 36) x[at[k, 0] + u, at[k, 1] + v | 0]"
    program = operator("x: f32[40, 40], at: i32[7, 2] in 0..40) -> (y: f32[7])", body)
    found = directives(program)
    assert any(d.startswith("vectorize y.v") for d in found)
    assert "shift y.v by 6" in found  # thirteen terms are one vector, and not parts of two
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_terms_that_data_place_touch_no_more_of_a_tensor_than_there_is() -> None:
    program = operator("x: f32[1000], at: i32[500, 1000] in 0..1000) -> (y: f32[500])", "y[b] = sum(k) x[at[b, k]]")
    assert any(d.startswith(("vectorize y.k", "unroll y.b")) for d in directives(program))  # sums that do not wait for each other


@pytest.mark.parametrize("extent", [168, 224, 448])
def test_of_a_row_at_hand_all_is_near_wherever_data_say_that_its_elements_lie(extent: int) -> None:
    text = f"x: f32[672, 112], at: i64[{extent}, 2] in 0..112, w: f32[{extent}, 2]) -> (y: f32[672, {extent}])"
    program = operator(text, "y[r, o] = sum(s in 0..2) x[r, at[o, s]] * w[o, s]")
    found = directives(program)
    assert not any(d.startswith("vectorize y.o") for d in found)  # whose lanes would be gathered for each row
    assert any(d.startswith("split y.r by 8") for d in found)  # rows share what is said of places, and their weights


TWO_CHANGES = """
    r[0, i] = f64(i)   for i in 0..64
    r[k + 1, i] = if i == a[k] then r[k, i] + r[k, b[k]] else if i == b[k] then 2 * r[k, i] else r[k, i]   for k in 0..9, i in 0..64
    y[i] = r[9, i]"""


def test_of_a_row_of_which_data_name_two_elements_a_step_changes_these_alone() -> None:
    program = operator("a: i32[9] in 0..64, b: i32[9] in 0..64) -> (y: f64[64])", TWO_CHANGES)
    plan = proven(program, derive(program, MACHINE))
    assert not any(d.startswith("vectorize r") for d in directives(program))
    assert loops(plan)
    assert_same(program, plan, {})


def test_rows_that_data_name_elements_of_are_gone_through_one_by_one() -> None:
    program = operator("x: f32[5, 70], at: i32[70] in 0..12) -> (y: f32[5, 12])", "y[t, c] = sum(f, at[f] == c) x[t, f]")
    found = directives(program)
    (order,) = [d.removeprefix("order ").split(", ") for d in found if d.startswith("order")]
    assert order[0] == "y.t" and order[-1] == "y.c"
    assert not any(d.startswith("vectorize y.t") for d in found)  # neither rows nor columns have neighbours along it
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize("value", ["max(m, at[m, b] == n, from x[n, b]) u[m, b]", "abs(sum(m, at[m, b] == n) u[m, b]) + x[n, b]"])
def test_elements_that_terms_go_to_begin_and_end_in_rows_where_each_column_has_terms_of_its_own(value: str) -> None:
    program = operator("x: f32[8, 40], at: i32[3, 40] in 0..8, u: f32[3, 40]) -> (y: f32[8, 40])", f"y[n, b] = {value}")
    assert {"distribute y.acc at y.b_i, y.n -> b_i_t, n_t", "vectorize y.b_i_v"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_elements_that_data_place_are_loaded_one_by_one_where_lanes_only_add_them() -> None:
    program = operator("x: f32[8, 256], at: u8[500, 8]) -> (y: f32[500])", "y[n] = sum(m) x[m, at[n, m]]")
    assert not any(d.startswith("vectorize y") for d in directives(program))


def test_elements_of_a_table_that_parts_of_a_number_name_are_fetched_number_by_number() -> None:
    body = "y[4*i + k] = t[bitand(shr(x[i], u32(6 * k)), 63)]   for i in 0..20, k in 0..4"
    program = operator("x: u32[20], t: i32[64]) -> (y: i32[80])", body, {"N": 1})
    assert {"split y.a0 by 4 -> a0_q, a0_r", "unroll y.a0_r"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_lanes_pick_elements_of_rows_that_registers_hold() -> None:
    program = operator("x: f32[12, 4], at: u8[900] in 0..4) -> (y: f32[889])", "y[i] = sum(k in 0..12) x[k, at[i + k]]   for i in 0..889")
    machine = Machine(target="cpu", threads=1, tables=frozenset({(4, 64)}))
    assert any(show(d).startswith("vectorize y.i") for d in derive(program, machine).directives)


def test_lanes_ask_together_whether_an_element_is_there() -> None:
    body = "y[i, j] = if at[i, j] == 0 then 0 else x[i, x[i, at[i, j]]]"
    program = operator("x: i32[9, 256] in 0..256, at: u8[9, 64]) -> (y: i32[9, 64])", body)
    assert any(d.startswith("vectorize y.") for d in directives(program))
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("p: i32[N, K] in -1..N, w: i32[N]) -> (y: i32[N])", "y[i] = sum(k, 0 <= p[i, k]) (w[p[i, k]] + 1)"),
        ("p: i32[K, N] in -1..N, w: i32[N]) -> (y: i32[N])", "y[i] = max(k, p[k, i] >= 0, w[p[k, i]] > 0, from 0) (w[p[k, i]] * w[i])"),
        ("p: i32[N, K] in -1..N, _w: i32[N]) -> (y: i32[N])", "y[i] = max(k, 0 <= p[i, k] < i, from 0) (y[p[i, k]] + 1)"),
    ],
)
def test_terms_are_read_only_where_conditions_say_that_they_are_there(signature: str, body: str) -> None:
    program = operator(signature, body, {"N": 40, "K": 5})
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize(
    ("signature", "equation", "order"),
    [
        ("(y: f32[N])", "y[i] = sum(k, s[k] <= i, i < e[k]) v[k]", "order y.k, y.i_o, y.i_v"),
        ("(y: i32[2, N])", "y[a, i] = max(k, i64(a) + s[k] < i, i <= e[k], from 0) i32(k)", "order y.a, y.k, y.i_o, y.i_v"),
        ("(y: f32[N, 8])", "y[i, a] = sum(k, s[k] <= i, i < s[k] + 9, v[k] > 0) f[k, a]", "order y.k, y.i, y.a_o, y.a_v"),
    ],
    ids=["runs", "with an axis outside", "with an axis inside"],
)
def test_terms_go_to_the_elements_that_data_say_they_are_for(signature: str, equation: str, order: str) -> None:
    given = f"s: i64[K], e: i64[K], v: f32[K], f: f32[K, 8], g: f32[N]) -> {signature}"
    assert order in directives(operator(given, equation, {"N": 2000, "K": 9}))
    assert order not in directives(operator(given, equation, {"N": 20, "K": 900}))
    program = operator(given, equation, {"N": 150, "K": 9})
    assert_same(program, proven(program, derive(program, MACHINE)), {})
