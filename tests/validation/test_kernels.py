"""Loops are compared with equations on terms: what computes something else is found, whatever the numbers would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from loops_of_equations import compared, equation, fault

from codegen.llvm.target import host
from codegen.store import Cache
from polyhedral.expr import Floor, Mod, Name
from tensorlang.backends.cpu.driver import compile_kernel
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.schedule import Schedule

ROW_SUMS = "op rows(x: f32[2, 5]) -> (y: f32[2]) { y[i] = sum(j) x[i, j] }"
IN_LANES = """
func k()(x: f32[2, 5], out y: f32[2]) {
    for i in 0 .. 2 {
        alloc part: f32[4] registers
        for lane in 0 .. 4 vector 4 { part[lane] = 0.0_f32 }
        for v in 0 .. 4 vector 4 { part[v] = part[v] + x[i, v] }
        for v in 0 .. 1 vector 4 { part[v] = part[v] + x[i, v + 4] }
        alloc total: f32[] registers
        total[] = 0.0_f32
        for lane in 0 .. 4 vector 4 { total[] = total[] + part[lane] }
        y[i] = total[]
    }
}
"""


def test_sums_may_be_regrouped_where_a_reducer_stands():
    assert str(compared(equation(ROW_SUMS), IN_LANES)) == "validated"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("for v in 0 .. 4 vector 4 { part[v] = part", "for v in 0 .. 3 vector 4 { part[v] = part", id="a bound too low"),
        pytest.param("x[i, v + 4]", "x[i, v + 3]", id="an element of a neighbour"),
        pytest.param("part[lane] = 0.0_f32", "part[lane] = 1.0_f32", id="a wrong initial value"),
        pytest.param("total[] = 0.0_f32", "total[] = x[i, 0]", id="a value that is there already"),
        pytest.param("part[v] = part[v] + x[i, v]", "part[v] = part[v] + x[i, v] + x[i, v]", id="an update done twice"),
        pytest.param("total[] = total[] + part[lane]", "total[] = total[] - part[lane]", id="another operation"),
        pytest.param("y[i] = total[]", "y[0] = total[]", id="a result that nobody writes"),
        pytest.param("part[lane] = 0.0_f32 }", "}", id="no initial value"),
        pytest.param("x[i, v + 4]", "x[i, v + 5]", id="a read outside"),
    ],
)
def test_a_fault_in_a_sum_is_found(right: str, wrong: str):
    assert right in IN_LANES
    assert fault(equation(ROW_SUMS), IN_LANES.replace(right, wrong))


def test_the_first_element_that_differs_is_shown_with_both_terms():
    assert fault(equation(ROW_SUMS), IN_LANES.replace("part[v] + x[i, v + 4]", "part[v] + x[0, v + 4]")) == (
        "`rows`: `y[1]` is not what the equation says\n"
        "  equation sum(0.0, x[1, 0], x[1, 1], x[1, 2], x[1, 3], x[1, 4])\n"
        "  loops    ((x[1, 3] + 0.0) + ((x[1, 2] + 0.0) + ((x[1, 1] + 0.0) + (0.0 + (x[0, 4] + (x[1, 0] + 0.0))))))"
    )


def test_a_sum_of_sums_of_one_term():
    program = equation("op f(x: f32[3]) -> (y: f32) { p[l] = sum(k in 0..2, 2*k + l < 3) x[2*k + l] for l in 0..2\n y = sum(l) p[l] }")
    loops = """func k()(x: f32[3], out y: f32[]) {
        alloc p: f32[2] stack
        for l in 0 .. 2 { p[l] = 0.0_f32 for k in 0 .. (4 - l) // 2 { p[l] = p[l] + x[2*k + l] } }
        y[] = START
        for l in 0 .. 2 { y[] = y[] + p[l] }
    }"""
    assert not fault(program, loops.replace("START", "0.0_f32"))
    assert not fault(program, loops.replace("START", "-0.0_f32"))
    assert fault(program, loops.replace("START", "0.0_f32").replace("p[l] = 0.0_f32", "p[l] = -0.0_f32"))


def test_products_of_zeros_at_the_edge_of_a_tile_add_nothing():
    program = equation("op f(x: f32[3], w: f32[3]) -> (y: f32) { y = sum(k) x[k] * w[k] }")
    loops = """func k()(x: f32[3], w: f32[3], out y: f32[]) {
        y[] = 0.0_f32
        for k in 0 .. 4 { y[] = fma(select(index(k) < 3_i64, x[k], 0.0_f32), select(index(k) < LAST, w[k], 0.0_f32), y[]) }
    }"""
    assert not fault(program, loops.replace("LAST", "3_i64"))
    assert fault(program, loops.replace("LAST", "2_i64"))


def test_elements_that_are_filled_with_zeros_are_multiplied_like_others():
    program = equation("op f(x: f32[4], w: f32[6]) -> (y: f32) { y = sum(k in 0..6) x[k - 1 | 0.0] * w[k] }")
    loops = """func k()(x: f32[4], w: f32[6], out y: f32[]) {
        y[] = 0.0_f32
        for k in 0 .. 6 { y[] = fma(select(index(k) >= 1_i64 and index(k) < 5_i64, x[k - 1], 0.0_f32), w[FROM], y[]) }
    }"""
    assert not fault(program, loops.replace("FROM", "k"))
    assert fault(program, loops.replace("FROM", "5 - k"))


def test_strict_sums_keep_their_order():
    assert "is not what the equation says" in fault(equation("strict " + ROW_SUMS), IN_LANES)


ONE_SUM = "func k()(x: f32[2, 5], out y: f32[2]) { for i in 0 .. 2 { y[i] = START } for i in 0 .. 2 { for j in FIRST .. 5 { UPDATE } } }"


def one_sum(start: str, first: int, update: str) -> str:
    return ONE_SUM.replace("START", start).replace("FIRST", str(first)).replace("UPDATE", update)


def test_a_sum_that_leaves_its_zero_out_is_minus_zero_where_all_are():
    assert fault(equation(ROW_SUMS), one_sum("x[i, 0]", 1, "y[i] = y[i] + x[i, j]"))
    assert fault(equation(ROW_SUMS), one_sum("-0.0_f32", 0, "y[i] = y[i] + x[i, j]"))
    assert not fault(equation(ROW_SUMS), one_sum("0.0_f32", 0, "y[i] = y[i] + x[i, j]"))


def test_the_initial_value_of_a_sum_counts_once():
    program = equation("op rows(x: f32[2, 5]) -> (y: f32[2]) { y[i] = sum(j, from 3.0) x[i, j] }")
    assert not fault(program, one_sum("3.0_f32", 0, "y[i] = y[i] + x[i, j]"))
    assert fault(program, one_sum("0.0_f32", 0, "y[i] = y[i] + x[i, j]"))
    assert fault(program, IN_LANES.replace("0.0_f32", "3.0_f32"))
    assert not fault(program, IN_LANES.replace("total[] = 0.0_f32", "total[] = 3.0_f32"))


PADDED = "op f(x: f32[2]) -> (y: f32) { y = sum(k in 0..5) x[k - 2 | 7.0] }"


@pytest.mark.parametrize(
    ("loops", "same"),
    [
        ("y[] = 0.0_f32 for k in 0 .. 3 { y[] = y[] + 7.0_f32 } for k in 0 .. 2 { y[] = y[] + x[k] }", True),
        ("y[] = 0.0_f32 for k in 0 .. 2 { y[] = y[] + 7.0_f32 } for k in 0 .. 2 { y[] = y[] + x[k] }", False),
        ("y[] = 0.0_f32 for k in 0 .. 4 { y[] = y[] + 7.0_f32 } for k in 0 .. 2 { y[] = y[] + x[k] }", False),
        ("y[] = 0.0_f32 for k in 0 .. 2 { y[] = y[] + 3.5_f32 } for k in 0 .. 2 { y[] = y[] + 7.0_f32 + x[k] }", False),
    ],
)
def test_constants_that_are_added_one_after_another_are_the_terms_of_a_sum(loops: str, same: bool):
    found = fault(equation(PADDED), f"func k()(x: f32[2], out y: f32[]) {{ {loops} }}")
    assert not found if same else "is not what the equation says" in found


def test_a_constant_that_loops_came_to_is_taken_for_no_term_that_is_as_large():
    program = equation("op f(x: f32[2]) -> (y: f32) { y = sum(k in 0..5) (if k < 2 then x[k] else if k < 4 then 7.0 else 14.0) }")
    loops = """func k()(x: f32[2], out y: f32[]) {
        y[] = 0.0_f32
        for k in 0 .. 2 { y[] = y[] + 7.0_f32 }
        alloc rest: f32[] registers
        rest[] = 0.0_f32 + 14.0_f32
        for k in 0 .. 2 { rest[] = rest[] + x[k] }
        y[] = LAST
    }"""
    assert not fault(program, loops.replace("LAST", "y[] + rest[]"))
    assert not fault(program, loops.replace("LAST", "rest[] + y[]"))
    assert fault(program, loops.replace("LAST", "y[] + y[]"))


@pytest.mark.parametrize("around", ["VALUE", "max(VALUE, 0.0)", "exp(VALUE)"])
def test_a_sum_of_constants_that_are_rounded_is_recognised_in_what_is_computed_from_it(around: str):
    program = equation(f"op f(x: f32[2]) -> (y: f32) {{ p = sum(k in 0..9) x[k - 7 | 0.1]\n y = {around.replace('VALUE', 'p')} }}")
    value = around.replace("VALUE", "p[]").replace("0.0", "0.0_f32")
    loops = f"""func k()(x: f32[2], out y: f32[]) {{
        alloc p: f32[] registers
        p[] = 0.0_f32
        for k in 0 .. 7 {{ p[] = p[] + 0.1_f32 }}
        for k in 0 .. 2 {{ p[] = p[] + x[k] }}
        y[] = {value}
    }}"""
    assert not fault(program, loops)
    assert fault(program, loops.replace("0 .. 7", "0 .. 6"))


def test_constants_of_a_maximum_are_combined_in_any_order():
    program = equation("op f(x: f32[2]) -> (y: f32) { y = max(k in 0..4) (if k < 1 then 3.0 else if k < 3 then x[k - 1] else 7.0) }")
    loops = "func k()(x: f32[2], out y: f32[]) {{ y[] = max({}, 3.0_f32) for k in 0 .. 2 {{ y[] = max(y[], x[k]) }} }}"
    assert not fault(program, loops.format("7.0_f32"))
    assert fault(program, loops.format("6.0_f32"))


def test_factors_that_are_constant_are_those_of_a_product():
    program = equation("op f(x: f32[2]) -> (y: f32) { y = prod(k in 0..5) (if k < 2 then x[k] else if k < 4 then 2.0 else 4.0) }")
    loops = "func k()(x: f32[2], out y: f32[]) {{ y[] = {} for k in 0 .. 2 {{ y[] = y[] * x[k] }} y[] = y[] * (1.0_f32 * 4.0_f32) }}"
    assert not fault(program, loops.format("2.0_f32 * 2.0_f32"))
    assert fault(program, loops.format("2.0_f32 * 3.0_f32"))


@pytest.mark.parametrize(
    ("value", "loops", "same"),
    [
        ("x[i] - w[i]", "x[i] - w[i]", True),
        ("x[i] - w[i]", "w[i] - x[i]", False),
        ("x[i] + w[i]", "w[i] + x[i]", True),
        ("x[i] + 0.0", "x[i]", False),
        ("x[i] - 0.0", "x[i]", True),
        ("x[i] * 1.0", "x[i]", True),
        ("x[i] * 0.0", "0.0_f32", False),
        ("(x[i] + w[i]) + x[0]", "x[i] + (w[i] + x[0])", False),
        ("x[i] * (w[i] + x[0])", "x[i] * w[i] + x[i] * x[0]", False),
        ("x[i] / 3.0", "x[i] * 0.3333333432674408_f32", False),
        ("x[i] * w[i] + x[0]", "fma(x[i], w[i], x[0])", False),
        ("min(x[i], w[i])", "min(w[i], min(x[i], w[i]))", True),
        ("min(x[i], w[i])", "max(w[i], x[i])", False),
        ("if x[i] < w[i] then x[i] else w[i]", "select(x[i] < w[i], x[i], w[i])", True),
        ("if x[i] < w[i] then x[i] else w[i]", "select(w[i] > x[i], x[i], w[i])", True),
        ("if x[i] < w[i] then x[i] else w[i]", "select(x[i] <= w[i], x[i], w[i])", False),
        ("if x[i] < w[i] then x[i] else w[i]", "min(x[i], w[i])", False),
        ("abs(x[i])", "select(x[i] < 0.0_f32, -x[i], x[i])", False),
        ("-(x[i] * w[i])", "x[i] * -w[i]", True),
        ("-(x[i] - w[i])", "w[i] - x[i]", False),
        ("exp(x[i])", "exp(w[i])", False),
        ("f32(f16(x[i]))", "f32(f16(x[i]))", True),
        ("f32(f16(x[i]))", "x[i]", False),
        ("f32(sat[f16](x[i]))", "f32(f16(x[i]))", False),
        ("f32(sat[f32](f64(x[i]) * 2.0))", "f32(f64(x[i]) * 2.0_f64)", True),
    ],
)
def test_what_is_the_same_bit_for_bit(value: str, loops: str, same: bool):
    program = equation(f"op f(x: f32[3], w: f32[3]) -> (y: f32[3]) {{ y[i] = {value} }}")
    found = fault(program, f"func k()(x: f32[3], w: f32[3], out y: f32[3]) {{ for i in 0 .. 3 {{ y[i] = {loops} }} }}")
    assert not found if same else "is not what the equation says" in found


def test_fast_programs_may_round_a_product_with_the_sum_around_it():
    loops = "func k()(x: f32[3], out y: f32[3]) { for i in 0 .. 3 { y[i] = fma(-x[i], x[0], x[1]) } }"
    text = "op f(x: f32[3]) -> (y: f32[3]) { y[i] = x[1] - x[0] * x[i] }"
    assert not fault(equation("fast " + text), loops)
    assert fault(equation(text), loops)


@pytest.mark.parametrize(
    ("loops", "same"),
    [
        ("x[i] * (1.0_f32 / w[i]) * 0x1.555556p-2_f32", True),
        ("x[i] / (w[i] * 3.0_f32)", True),
        ("x[i] * (3.0_f32 / w[i])", False),
        ("x[i] * (1.0_f32 / w[0]) * 0x1.555556p-2_f32", False),
    ],
)
def test_fast_programs_may_regroup_products_and_quotients(loops: str, same: bool):
    text = "op f(x: f32[3], w: f32[3]) -> (y: f32[3]) { y[i] = x[i] / w[i] / 3.0 }"
    function = f"func k()(x: f32[3], w: f32[3], out y: f32[3]) {{ for i in 0 .. 3 {{ y[i] = {loops} }} }}"
    assert bool(fault(equation("fast " + text), function)) != same
    assert fault(equation(text), function)


def test_integers_are_the_same_sums_of_products():
    program = equation("op f(x: i32[3], w: i32[3]) -> (y: i32[3]) { y[i] = x[i] * (w[i] + x[0]) }")
    loops = "func k()(x: i32[3], w: i32[3], out y: i32[3]) {{ for i in 0 .. 3 {{ y[i] = {} }} }}"
    assert not fault(program, loops.format("x[i] * x[0] + w[i] * x[i]"))
    assert fault(program, loops.format("x[i] * x[0] + w[i] * w[i]"))


def test_products_of_bytes_are_added_exactly():
    program = equation("op f(x: u8[4], w: i8[4]) -> (y: i32) { y = sum(k) i32(x[k]) * i32(w[k]) }")
    loops = "func k()(x: u8[4], w: i8[4], out y: i32[]) {{ y[] = 0_i32 y[] = dot(4, x[0], {}, y[]) }}"
    assert not fault(program, loops.format("w[0]"))
    assert fault(equation("op f(x: u8[4], w: i8[4]) -> (y: i32) { y = sum(k) i32(x[k]) * i32(w[3 - k]) }"), loops.format("w[0]"))


def test_the_side_that_is_not_chosen_may_be_anything():
    program = equation("op f(x: f32[4], i: i64[4]) -> (y: f32[4]) { y[k] = if i[k] > 0 then x[i[k] - 1 | clamp] else 0.0 }")
    loops = "func k()(x: f32[4], i: i64[4], out y: f32[4]) {{ for k in 0 .. 4 {{ y[k] = select(i[k] > 0_i64, x[{}], 0.0_f32) }} }}"
    assert not fault(program, loops.format("max(0, min(3, value(i[k]) - 1))"))
    assert fault(program, loops.format("max(0, min(3, value(i[k])))"))


def test_a_filter_is_that_of_the_equation_even_where_data_agrees():
    program = equation("op f(x: f32[5]) -> (y: f32) { y = sum(k, x[k] > 0.25) x[k] }")
    loops = "func k()(x: f32[5], out y: f32[]) {{ y[] = 0.0_f32 for k in 0 .. 5 {{ if {} {{ y[] = y[] + x[k] }} }} }}"
    assert not fault(program, loops.format("x[k] > 0.25_f32"))
    assert "which no equation does" in fault(program, loops.format("x[k] > 0.375_f32"))


BLOCKED = Layout(("a0", "a1"), (Floor(Name("a1"), 4), Name("a0"), Mod(Name("a1"), 4)), (2, 2, 4))
COPY = "op copy(x: f32[2, 5]) -> (y: f32[2, 5]) { y[i, j] = x[i, j] }"
OF_BLOCKS = "func k()(x: f32[2, 2, 4], out y: f32[2, 5]) { for i in 0 .. 2 { for j in 0 .. 5 { y[i, j] = x[j // 4, i, j % 4] } } }"


def test_inputs_come_in_the_layouts_that_callers_store_them_in():
    assert not fault(equation(COPY), OF_BLOCKS, {"x": BLOCKED})


def test_cells_without_an_element_hold_nothing():
    assert "loops    nothing" in fault(equation(COPY), OF_BLOCKS.replace("j // 4, i, j % 4", "1, i, 3 - j % 4"), {"x": BLOCKED})


def test_a_layout_that_loses_an_element_is_found():
    folded = Layout(("a0", "a1"), (Name("a0"), Mod(Name("a1"), 4)), (2, 4))
    loops = "func k()(x: f32[2, 4], out y: f32[2, 5]) { for i in 0 .. 2 { for j in 0 .. 5 { y[i, j] = x[i, j % 4] } } }"
    assert fault(equation(COPY), loops, {"x": folded})


def test_kernels_that_were_kept_are_validated_when_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program, store = equation("op f(x: f32[4]) -> (y: f32[4]) { y[i] = x[i] + 1.0 }"), Cache(tmp_path)
    said = []
    for budget in ("0", "2", "1", "0"):
        monkeypatch.setenv("TENSORLANG_VALIDATE", budget)
        said.append(compile_kernel(program, host(), store=store).validated)
    assert said == ["", "not validated: too large, more than 2 operations", "validated", "validated"]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32"])
def test_factors_that_are_no_finite_numbers_may_be_taken_one_by_one(dtype: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENSORLANG_VALIDATE", "100000")
    product = "u[n, a] * w[a, b] * (1 / v[n, b])" if dtype != "i32" else "u[n, a] * w[a, b] * v[n, b]"
    text = f"op f(u: {dtype}[9, 7], w: {dtype}[7, 8], v: {dtype}[9, 8]) -> (y: {dtype}) {{ y = sum(n, a, b) {product} }}"
    assert compile_kernel(equation(text), host(), schedule=Schedule("f").factorize("y")).validated == "validated"


@pytest.mark.parametrize("reduced", ["sum", "max"])
def test_windows_that_are_made_of_shorter_ones_are_those_that_were_written(reduced: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENSORLANG_VALIDATE", "100000")
    text = f"op f(x: f32[29]) -> (y: f32[20]) {{ y[i] = {reduced}(k in 0..10) x[i + k]   for i in 0..20 }}"
    assert compile_kernel(equation(text), host(), schedule=Schedule("f").compose("y.k", (3,))).validated == "validated"


def test_functions_that_are_looked_up_in_tables_are_those_that_were_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENSORLANG_VALIDATE", "100000")
    program = equation("op f(x: i8[29]) -> (y: i8[29]) { y[i] = sat[i8](round(f32(x[i]) * 0.3)) }")
    assert compile_kernel(program, host(), schedule=Schedule("f").tabulate("y")).validated == "validated"


def test_what_is_too_large_is_said_to_be():
    n = 2_000_000_000
    large = equation("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }", N=n)
    outcome = compared(large, f"func k()(x: f32[{n}], out y: f32[{n}]) {{ for i in 0 .. {n} {{ y[i] = x[i] }} }}")
    assert str(outcome) == "not validated: too large, more than 1000000000 operations"
