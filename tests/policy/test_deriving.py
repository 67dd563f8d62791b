"""Schedules that the compiler derives where none is written."""

from __future__ import annotations

from math import prod

import pytest
from scheduled_programs import assert_same, declared

from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.cpu.inner_cost import InnerLoops
from tensorlang.policy.cpu.inner_loops import add_inner_loops
from tensorlang.policy.cpu.register_tiles import row_counts
from tensorlang.policy.cpu.winograd import OPEN_TILES, blocks
from tensorlang.policy.deriver import deriver, row_bytes, samples_of
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.shape import contraction
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.walk import substitute_sizes, tensor_table


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("op f(x: f32[N]) -> (y: f32[]) {\n    t[i] = x[i] * 2\n    s = sum(k) t[k]\n    y = s + 1\n}", {"N": 5}),
        ("op f(x: f32[N]) -> (y: f32[N]) {\n    s = sum(k) x[k]\n    t = s * 2\n    y[i] = x[i] + t\n}", {"N": 5}),
        ("op f(x: f32[]) -> (y: f32[]) {\n    a = x + 1\n    b = a * 2\n    y = b - x\n}", {}),
    ],
)
def test_single_numbers_between_tensors_are_scheduled_like_all_else(text: str, sizes: dict[str, int]) -> None:
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    assert_same(program, proven(program, derive(program, Machine(target="cpu"))), sizes)


def test_a_reduction_that_needs_no_axis_without_the_last_dimension_of_one_element_has_a_tensor_of_its_own() -> None:
    text = "op f(x: f32[2, 1]) -> (y: f32[1], z: f32[1]) {\n    y[j] = sum(i) x[i, j]\n    z[j] = max(i) x[i, j]\n}"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    assert_same(program, proven(program, derive(program, Machine(target="cpu"))), {})


def test_a_reduction_that_needs_an_axis_no_more_once_it_is_narrow_has_a_tensor_of_its_own() -> None:
    """In a row of one element, a window has one place: the axis, less itself."""
    text = """op f(x: i32[2, 1]) -> (y: i32[2, 1]) {
        r[i, 0] = i32(3)
        r[i, j + 1] = max(r[i, j] + x[i, j], i32(0))   for i in 0..2, j in 0..1
        v[i, j] = r[i, j]                              for i in 0..2, j in 0..1
        y[i, j] = min(k in 0..3) v[i, j + k - 1 | skip]
    }"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    assert_same(program, proven(program, derive(program, Machine(target="cpu"))), {})


def test_a_sum_over_the_last_step_of_a_recurrence_runs_in_lanes_however_long_all_steps_are() -> None:
    """What a step reads is a row of each: all steps of `y` would come from memory, and so would `r` if every step read another one."""
    text = """op f(r: f64[4000]) -> (x: f64[4000]) {
        y[0, i] = r[i]
        a[0] = 0
        a[k] = sum(i in 0..k) r[k - i - 1] * y[k - 1, i]   for k in 1..4000
        y[k, i] = y[k - 1, i] + a[k] * r[i]                for k in 1..4000, i in 0..4000
        x[i] = y[3999, i]
    }"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"))
    assert "vectorize a.i_v" in map(show, schedule.directives)


@pytest.mark.parametrize(("edges", "term", "vectors"), [(12, "v[e] * x[src[e]]", 0), (500, "v[e] * x[src[e]]", 1), (40, "v[e] * v[e]", 1)])
def test_terms_that_data_share_out_run_in_lanes_where_a_row_has_enough_of_them(edges: int, term: str, vectors: int) -> None:
    text = """op f(start: i32[M] in 0..E + 1, src: i32[E] in 0..N, v: f32[E], x: f32[N]) -> (y: f32[N]) where M >= N + 1 {
        y[i] = sum(e in 0..E, start[i] <= e and e < start[i + 1]) TERM
    }""".replace("TERM", term)
    program = substitute_sizes(
        declared(load_module(parse(Source("f.tl", text))), "f"), {"N": Int(200), "M": Int(201), "E": Int(200 * edges)}
    )
    schedule = derive(program, Machine(target="cpu"))
    assert len([d for d in schedule.directives if d.name == "vectorize"]) == vectors
    proven(program, schedule)


@pytest.mark.parametrize("second", ["x[c, 2 * m + 1 | clamp]", "(if 2 * m + 1 < N then x[c, 2 * m + 1] else 0)"])
def test_elements_a_few_apart_are_read_in_lanes_though_they_end_at_an_edge(second: str) -> None:
    text = f"op f(x: f32[C, N]) -> (y: f32[C, 64]) where N >= 127 {{ y[c, m] = x[c, 2 * m] + {second} }}"
    text = text.replace("y[c, m] = x[c, 2 * m] + ", "y[c, m] = x[c, 2 * m] * (sum(k in 0..3) x[c, 2 * m + k - 1 | clamp]) + ")
    program = substitute_sizes(declared(load_module(parse(Source("f.tl", text))), "f"), {"N": Int(127), "C": Int(4)})
    schedule = derive(program, Machine(target="cpu"))
    assert [show(d) for d in schedule.directives if d.name == "vectorize"] == ["vectorize y.m_v"]


def test_samples_are_not_used_where_they_would_give_more_sums_a_tensor_of_their_own() -> None:
    text = """op f(x: f32[N, 1], ids: u8[M]) -> (y: f32[M, M]) where N >= 1 {
        y[i, j] = max(k in 0..M) x[ids[i], ids[i] | clamp]
    }"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"), at={"N": 2, "M": 3})
    assert schedule == derive(program, Machine(target="cpu"))
    proven(program, schedule)


def test_points_are_computed_together_along_an_axis_that_they_divide_whatever_the_sizes() -> None:
    text = "op f(x: f32[B, 8, M, N]) -> (y: f32[B, 8, M // 2, N // 2]) {"
    text += "y[b, c, i, j] = sum(r in 0..2, s in 0..2) x[b, c, 2 * i + r, 2 * j + s] }"
    schedule = derive(declared(load_module(parse(Source("f.tl", text))), "f"), Machine(target="cpu"), at={"B": 8, "M": 64, "N": 64})
    split = [show(d) for d in schedule.directives if d.name == "split"]
    assert any(line.startswith("split y.b_c by 8 ") for line in split) and not any(line.startswith("split y.i ") for line in split)


@pytest.mark.parametrize(("text", "apart"), [("f32[M, N]", 1024 + 64), ("f32[M, 256]", 1024)], ids=["open", "known"])
def test_rows_of_open_length_are_taken_to_lie_no_power_of_two_apart(text: str, apart: int) -> None:
    program = declared(load_module(parse(Source("f.tl", f"op f(x: {text}) -> (y: f32[M]) {{ y[i] = sum(j) x[i, j] }}"))), "f")
    d = deriver(program, Machine(target="cpu"), {}, frozenset(), {"M": 64, "N": 256})
    assert row_bytes(d, tensor_table(d.program)["x"]) == apart


def test_samples_are_numbers_of_three_bits_that_are_about_as_large_as_what_is_at_hand() -> None:
    program = declared(load_module(parse(Source("f.tl", "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }"))), "f")
    found = [samples_of(program, {"N": n})["N"] for n in (0, 1, 2, 5, 8, 9, 16, 17, 56, 57, 200, 720, 1000, 1025)]
    assert found == [2, 2, 2, 5, 8, 10, 16, 16, 56, 56, 192, 768, 1024, 1024]


def test_lanes_of_several_registers_along_an_open_extent_count_those_that_are_left_behind_the_last() -> None:
    """Of 57 elements one block of 64 lanes is nearly full, but of other numbers it is not, and there it is computed whole."""
    text = "op f(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = min(k) (a[i, k] + b[k, j]) }"
    schedule = derive(declared(load_module(parse(Source("f.tl", text))), "f"), Machine(target="cpu"), at={"M": 96, "K": 96, "N": 57})
    (lanes,) = (int(line.split()[3]) for line in map(show, schedule.directives) if line.startswith("split y.j "))
    assert 2 * lanes <= 57


@pytest.mark.parametrize(
    ("second", "copy"),
    [
        ("sum(k) sq(a[i, k] - b[j, k])", "pack b as [j // 16, k, j % 16]"),
        ("sum(k) a[k, i] * b[j, k]", "pack b as [j // 16, k, j % 16]"),
        ("sum(k) a[i, k] * b[k, j]", "pack b in y.j as [j // 16, k, j % 16]"),
    ],
    ids=["the same", "another of what else they read", "where it lies"],
)
def test_a_tensor_is_copied_once_in_each_order_in_which_sums_read_it(second: str, copy: str) -> None:
    text = "op f(a: i32[24, 24], b: i32[24, 24]) -> (y: i32[24, 24], z: i32[24, 24]) {\n"
    text += f"    y[i, j] = max(k) (a[i, k] + b[j, k])\n    z[i, j] = y[i, j] + ({second})\n}}"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"))
    copies = [show(d) for d in schedule.directives if d.name == "pack"]
    assert copy in copies and len({*copies}) == len(copies)
    assert_same(program, proven(program, schedule), {})


def test_a_copy_for_who_reads_across_rows_is_not_read_by_who_reads_along_them_whatever_their_indices_are_called() -> None:
    text = """op f(a: i32[24, 24], x: i32[40, 24]) -> (y: i32[40, 24], z: i32[40, 24]) {
        y[t, k] = sum(i) x[t, i] * a[i, k]
        z[t, k] = sum(i) max(y[t, i], a[k, i])
    }"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu", threads=1))
    assert "pack a in z.k as [k // 16, i, k % 16]" in map(show, schedule.directives)
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize(
    ("columns", "rows", "lanes"),
    [
        pytest.param(6, 8, "i", id="stored between the elements of short rows"),
        pytest.param(16, 3, "i", id="of long rows"),
        pytest.param(2, 16, "j", id="picked from a few vectors"),
        pytest.param(12, 12, "j", id="turned in registers"),
    ],
)
def test_lanes_of_small_matrices_that_are_transposed_run_inside_of_them(columns: int, rows: int, lanes: str) -> None:
    text = f"op f(x: i32[70, {rows}, {columns}]) -> (y: i32[70, {columns}, {rows}]) {{ y[a, i, j] = x[a, j, i] }}"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu", vector_bytes=64, vector_registers=32))
    assert f"vectorize y.{lanes}_v" in map(show, schedule.directives)
    assert_same(program, proven(program, schedule), {})


def test_no_row_whose_length_is_open_is_put_together_of_vectors() -> None:
    text = "op f(x: i32[A, J, I]) -> (y: i32[A, I, J]) { y[a, i, j] = x[a, j, i] }"
    program, at = declared(load_module(parse(Source("f.tl", text))), "f"), {"A": 70, "J": 4, "I": 16}
    schedule = derive(program, Machine(target="cpu", vector_bytes=64, vector_registers=32), at=at)
    assert "vectorize y.i_v" not in map(show, schedule.directives)


@pytest.mark.parametrize("value", ["any(j) (x[i, j] > 0)", "all(j) (x[i, j] != x[j, j])", "not any(j in 0..i) (x[i, j] > 1 and y[j])"])
def test_whether_any_or_all_hold_is_asked_of_a_vector_of_terms(value: str) -> None:
    program = declared(load_module(parse(Source("f.tl", f"op f(x: f32[40, 40]) -> (y: bool[40]) {{ y[i] = {value} }}"))), "f")
    schedule = derive(program, Machine(target="cpu"))
    assert "vectorize y.j_v" in map(show, schedule.directives)
    assert_same(program, proven(program, schedule), {})


def test_points_that_share_an_answer_of_data_are_computed_together_inside_of_those_that_do_not() -> None:
    text = "op f(f: f32[300, 16], m: bool[96, 300]) -> (y: f32[96, 16, 16]) { y[u, a, c] = sum(i, m[u, i]) f[i, a] * f[i, c] }"
    schedule = derive(declared(load_module(parse(Source("f.tl", text))), "f"), Machine(target="cpu", vector_bytes=64, vector_registers=32))
    tile = dict(d.removeprefix("split y.").split(" by ") for d in map(show, schedule.directives) if d.startswith("split y."))
    assert int(tile["a"].split(" ")[0]) > int(tile.get("u", "1 ").split(" ")[0])
    [order] = [d for d in map(show, schedule.directives) if d.startswith("order y.")]
    assert order.endswith(("y.i, y.u_t, y.a_t, y.c_v", "y.i, y.a_t, y.c_v"))


@pytest.mark.parametrize(
    ("value", "lanes", "together"),
    [
        ("i64[40]) { y[i] = min(k, a[i, k] != b[i, k], from 256) k", 64, False),
        ("i32[40]) { y[i] = max(k, a[i, k] > 7, from -1) i32(2*k + i)", 64, False),
        ("bool[40]) { y[i] = all(k) (a[i, k] == b[i, k])", 64, False),
        ("bool[40]) { y[i] = all(k) (a[i, k] == b[7, k])", 64, True),
        ("u8[40]) { y[i] = min(k) max(a[i, k], b[i, k])", 64, True),
    ],
)
def test_a_loop_that_may_end_with_what_it_finds_goes_through_one_row_at_a_time(value: str, lanes: int, together: bool) -> None:
    program = declared(load_module(parse(Source("f.tl", f"op f(a: u8[40, 256], b: u8[40, 256]) -> (y: {value} }}"))), "f")
    directives = [*map(show, derive(program, Machine(target="cpu", vector_bytes=64, threads=1)).directives)]
    assert f"split y.k by {lanes} -> k_o, k_v" in directives
    assert any("y.i_t" in d for d in directives) == together


@pytest.mark.parametrize("sum_of", ["k, a[i, k] < b[j, k]) i32(1", "k, b[j, k] > 0) i32(a[i, k]"])
def test_a_tensor_that_tells_which_terms_are_summed_is_copied_so_that_lanes_read_neighbours(sum_of: str) -> None:
    text = f"op f(a: f32[32, 24], b: f32[48, 24]) -> (y: i32[32, 48]) {{ y[i, j] = sum({sum_of}) }}"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"))
    assert any(show(d).startswith("pack b as [j // ") for d in schedule.directives)
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize(
    ("text", "vector"),
    [
        (
            "op f(x: f32[64, 900], a: f32[64], b: f32[64], c: f32[64], e: f32[64]) -> (y: f32[64, 900]) {\n"
            "    y[i, j] = (x[i, j] - a[i]) * b[i] / c[i] + e[i]\n}",
            "j",
        ),
        ("op f(ids: i64[64]) -> (y: f32[64, 100]) {\n    y[i, j] = if ids[i] == j or ids[i] + 100 == j then 1 else 0\n}", "j"),
        (
            "op f(x: f32[64, 57, 57], m: f32[64, 28, 28]) -> (y: f32[64, 28, 28]) {\n"
            "    y[c, i, j] = sum(a in 0..3, b in 0..3) (if x[c, 2*i + a, 2*j + b] == m[c, i, j] then 1 else f32(0))\n}",
            "j",
        ),
        ("op f(x: f32[900, 3]) -> (y: f32[3, 900]) {\n    y[j, i] = x[i, j] * 2\n}", "i"),
        ("op f(x: f32[183, 336]) -> (y: f32[336, 183]) {\n    y[j, i] = x[i, j]\n}", "i"),
    ],
)
def test_vectors_run_where_they_take_the_fewest_loads_and_stores(text: str, vector: str) -> None:
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"))
    assert [show(d) for d in schedule.directives if d.name == "vectorize"] == [f"vectorize y.{vector}_v"]


def test_a_tile_has_several_rows_wherever_an_axis_has_more_than_one() -> None:
    text = "op f(x: f32[24, 1, 64], w: f32[64, 96]) -> (y: f32[24, 1, 96]) { y[t, n, j] = sum(i) x[t, n, i] * w[i, j] }"
    (definition,) = declared(load_module(parse(Source("f.tl", text))), "f").definitions
    found = contraction(definition, "j")
    assert found is not None and found.rows == ("n", "t")


@pytest.mark.parametrize(("width", "vectors"), [(192, "y.j_v"), (32, "y.j_v")])
def test_neighbours_in_blocks_are_lanes_and_no_vector_lies_in_two_blocks(width: int, vectors: str) -> None:
    text = "op f(x: f32[90], w: f32[90, 320]) -> (y: f32[320]) { y[j] = sum(i) (x[i] - w[i, j]) * w[i, j] }"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    a0, a1 = Name("a0"), Name("a1")
    storage = Storage((affine.floor(a1, width), a0, affine.mod(a1, width)), (Int(-(-320 // width)), Int(90), Int(width)))
    schedule = derive(program, Machine(target="cpu"), {"w": storage})
    lanes = [d for d in map(show, schedule.directives) if d.startswith("split")]
    assert [d for d in map(show, schedule.directives) if d.startswith("vectorize")] == [f"vectorize {vectors}"]
    assert any(" by 16 " in d for d in lanes) or width % 64 == 0


@pytest.mark.parametrize(("columns", "copied"), [(1024, ["u", "v"]), (96, [])])
def test_columns_that_rows_read_again_are_copied_where_the_second_level_cache_does_not_keep_them(columns: int, copied: list[str]) -> None:
    text = """op f(x: f32[M, 512], u: f32[512, N], v: f32[512, N]) -> (y: f32[M, N]) {
        y[i, j] = (sum(k) x[i, k] * u[k, j]) * (sum(k) x[i, k] * v[k, j])
    }"""
    program = substitute_sizes(declared(load_module(parse(Source("f.tl", text))), "f"), {"M": Int(128), "N": Int(columns)})
    schedule = derive(program, Machine(target="cpu"))
    assert [show(d).split()[1] for d in schedule.directives if d.name == "pack"] == copied
    outer = next(show(d) for d in schedule.directives if d.name == "order" and "y.k" in show(d))
    assert outer.startswith("order y.j_o, y.i_o") == bool(copied)


@pytest.mark.parametrize(
    ("term", "rows", "columns"),
    [
        ("sq(a[i, k] - b[k, j])", 6, 16),
        ("(a[i, k] * b[k, j] - c[i, k] * e[k, j])", 4, 16),  # vectors of both tensors are read by all rows
    ],
)
def test_tiles_of_sums_have_as_many_rows_as_find_registers_beside_what_rows_share(term: str, rows: int, columns: int) -> None:
    text = f"""op f(a: f32[48, 50], c: f32[48, 50], b: f32[50, 96], e: f32[50, 96], w: f32[50]) -> (y: f32[48, 96]) {{
        y[i, j] = sum(k) {term}
    }}"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu", vector_bytes=32, vector_registers=16))
    found = [show(d) for d in schedule.directives if d.name == "split"]
    assert found == [f"split y.i by {rows} -> i_o, i_t", f"split y.j by {columns} -> j_o, j_v"]


def test_as_many_vectors_side_by_side_as_are_no_power_of_two_are_several_and_not_one_that_is_filled_up() -> None:
    text = """op f(u: f64[1000], s: f64[1000, 1200]) -> (r: f64[1200]) {
        r[j] = sum(i) u[i] * s[i, j] for j in 500..1200
        r[j] = 0                     otherwise
    }"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    found = [show(d) for d in derive(program, Machine(target="cpu", vector_bytes=32, vector_registers=16)).directives]
    assert {"split r.j by 48 -> j_o, j_w", "split r.j_w by 4 -> j_u, j_v"} <= {*found}


def test_lanes_of_elements_a_few_apart_share_the_lines_that_they_are_loaded_from() -> None:
    text = """op f(x: f32[32, 112, 112]) -> (y: f32[32, 56, 56]) {
        y[c, i, j] = max(a in 0..2, b in 0..2) x[c, 2*i + a, 2*j + b]
    }"""
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu", vector_bytes=32, vector_registers=16))
    assert [show(d) for d in schedule.directives if d.name == "vectorize"] == ["vectorize y.j_v"]


@pytest.mark.parametrize(
    ("value", "axis"),
    [("sum(k) a[i, k] * b[k, j]", "k"), ("(sum(k) a[i, k] * a[j, k]) + sum(k) a[i, k] * b[k, j]", "k_1")],
    ids=["of one sum", "of the second sum"],
)
def test_a_copy_for_lanes_along_the_range_of_a_sum_holds_each_element_once(value: str, axis: str) -> None:
    text = f"op f(a: f32[8, 48], b: f32[48, 8]) -> (y: f32[8, 8]) {{ y[i, j] = {value} }}"
    d = deriver(declared(load_module(parse(Source("f.tl", text))), "f"), Machine(target="cpu"), {}, frozenset())
    (definition,) = d.program.definitions
    add_inner_loops(d, definition, definition.axes, InnerLoops(("k",), packed=("b",)))
    assert [show(x) for x in d.schedule.directives if x.name == "pack"] == [f"pack b as [j, {axis} // 16, {axis} % 16]"]
    assert_same(d.program, proven(d.program, d.schedule), {})


def test_a_sum_of_everything_runs_in_lanes_along_whatever_range_reads_neighbours() -> None:
    text = "op f(a: f32[70, 50], b: f32[50, 70]) -> (y: f32[]) { y[] = sum(i, j) a[i, j] * b[j, i] }"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"))
    assert [show(d) for d in schedule.directives if d.name == "vectorize"] == ["vectorize y.i_v"]
    assert_same(program, proven(program, schedule), {})


def test_terms_of_several_ranges_run_in_lanes_along_whichever_reads_neighbours() -> None:
    text = "op f(a: f32[37, 29], b: f32[29, 29, 37]) -> (y: f32[29]) {\n    y[i] = max(k in 0..37, l in 0..29) a[k, i] * b[l, i, k]\n}"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"))
    assert "vectorize y.k_v" in map(show, schedule.directives)
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize(("rows", "columns", "together"), [(300, 250, True), (8000, 250, False), (8000, 30, True)])
def test_rows_from_beyond_the_near_caches_are_read_one_after_the_other_unless_they_are_short(
    rows: int, columns: int, together: bool
) -> None:
    text = "op f(x: f32[M, N]) -> (y: f32[M]) { y[i] = sum(j) x[i, j] * x[i, j] }"
    program = substitute_sizes(declared(load_module(parse(Source("f.tl", text))), "f"), {"M": Int(rows), "N": Int(columns)})
    schedule = derive(program, Machine(target="cpu"))
    assert any(show(d).startswith("split y.i ") for d in schedule.directives) == together


@pytest.mark.parametrize(("extent", "rows"), [(100, False), (24, True)])
def test_rows_of_a_grid_from_beyond_the_near_caches_are_computed_one_after_the_other(extent: int, rows: bool) -> None:
    beside = ("i - 1, j, k", "i + 1, j, k", "i, j - 1, k", "i, j + 1, k", "i, j, k - 1", "i, j, k + 1")
    around = " + ".join(f"u[{index}]" for index in beside)
    text = f"""op f(u: f64[N, N, N], v: f64[N, N, N], w: f64[N, N, N]) -> (y: f64[N, N, N]) {{
        y[i, j, k] = v[i, j, k] * ({around}) - w[i, j, k]   for i in 1..N - 1, j in 1..N - 1, k in 1..N - 1
        y[i, j, k] = 0   otherwise
    }}"""
    program = substitute_sizes(declared(load_module(parse(Source("f.tl", text))), "f"), {"N": Int(extent)})
    schedule = derive(program, Machine(target="cpu", threads=1))
    assert any(x.name == "unroll" for x in schedule.directives) == rows


@pytest.mark.parametrize(("drawn", "rows"), [("z[t, i, j]", False), ("z[0, i, j]", True)], ids=["each its own", "the same in all steps"])
def test_rows_of_a_step_that_reads_its_own_of_what_lies_far_are_computed_one_after_the_other(drawn: str, rows: bool) -> None:
    around = " + ".join(f"u[t, {index} | 0]" for index in ("i - 1, j", "i + 1, j", "i, j - 1", "i, j + 1"))
    text = f"""op f(a: f32[N, N], z: f32[N, N, N]) -> (y: f32[N, N]) {{
        u[0, i, j] = a[i, j]
        u[t + 1, i, j] = 0.9 * u[t, i, j] + 0.05 * ({around}) + {drawn}   for t in 0..N, i in 0..N, j in 0..N
        y[i, j] = u[N, i, j]
    }}"""
    program = substitute_sizes(declared(load_module(parse(Source("f.tl", text))), "f"), {"N": Int(200)})
    schedule = derive(program, Machine(target="cpu", threads=1))
    assert any(x.name == "unroll" for x in schedule.directives) == rows


def test_elements_that_data_name_for_each_column_are_gone_through_by_rows_of_the_data() -> None:
    text = "op f(ids: i64[30, 130] in 0..20, u: f32[30, 130]) -> (y: f32[20, 130]) { y[n, b] = sum(m, ids[m, b] == n) u[m, b] }"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu"))
    assert [show(d) for d in schedule.directives] == [
        "split y.b by 64 -> b_o, b_i",
        "order y.b_o, y.n, y.b_i",
        "distribute y.acc at y.b_i, y.n -> b_i_t, n_t",
        "order y.m, y.b_i_t, y.n_t",
        "split y.b_i by 16 -> b_i_o, b_i_v",
        "vectorize y.b_i_v",
    ]
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize(("row", "in_lanes"), [(256, True), (64, False), (0, False)])
def test_lanes_pick_elements_of_a_row_that_registers_hold_and_others_are_fetched_one_by_one(row: int, in_lanes: bool) -> None:
    text = "op f(t: u8[200], x: u8[4096]) -> (y: u8[4096]) { y[i] = t[min(x[i], 199)] }"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    schedule = derive(program, Machine(target="cpu", tables=frozenset({(1, row)} if row else ())))
    assert any(show(d).startswith("vectorize") for d in schedule.directives) == in_lanes
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("y[i, j] = max(u in 0..3) x[i, j + u - 1 | clamp]", 64),
        ("y[i, j] = if x[i, j] == 2 or x[i, j] == 3 and w[j] > 0.5 then 1 else 0", 16),
        ("y[i, j] = u8(sum[i32](u in 0..3) i32(x[i, j + u - 1 | 0]))", 16),
        ("y[i, j] = if x[i, j] == 2 or bitxor(x[i, j], 3) > 4 then 1 else 0", 64),
        ("y[i, j] = max(u in 0..3) x[i, j + u - 1 | clamp] * u8(u)", 64),
        ("y[i, j] = max(u in 0..3) x[i, j + u - 1 | clamp] * u8(i + u)", 64),
        ("y[i, j] = max(u in 0..3) (if i64(x[i, j + u - 1 | clamp]) < i + u then u8(1) else 0)", 16),
    ],
)
def test_a_vector_holds_as_many_elements_as_the_widest_type_that_they_are_computed_in_leaves_room_for(body: str, count: int) -> None:
    program = declared(load_module(parse(Source("f.tl", f"op f(x: u8[9, 200], w: f32[200]) -> (y: u8[9, 200]) {{\n{body}\n}}"))), "f")
    machine = Machine(target="cpu")
    assert deriver(program, machine, {}, frozenset()).lanes_of(program.definitions[0]) == count
    assert_same(program, proven(program, derive(program, machine)), {})


def test_elements_that_data_name_for_each_term_are_loaded_for_each_of_them() -> None:
    """Lanes would fetch elements of `m` one by one, which lie side by side for the terms of a point."""
    text = """op skinned(v: f32[N, 3], w: f32[N, 4], at: i32[N, 4] in 0..B, m: f32[B, 3, 4]) -> (y: f32[N, 3]) {
        y[n, a] = sum(k) w[n, k] * (m[at[n, k], a, 0] * v[n, 0] + m[at[n, k], a, 1] * v[n, 1] + m[at[n, k], a, 2] * v[n, 2]
                  + m[at[n, k], a, 3])
    }"""
    program = substitute_sizes(declared(load_module(parse(Source("f.tl", text))), "skinned"), {"N": Int(300), "B": Int(9)})
    schedule = derive(program, Machine(target="cpu", threads=1))
    assert not any(x.name == "vectorize" for x in schedule.directives)
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize(("length", "rows"), [("K", 12), ("1000", 12), ("1024", 8)])
def test_tiles_of_an_open_number_of_rows_are_lower_where_rows_meet_in_one_set_of_the_cache(length: str, rows: int) -> None:
    text = f"op f(a: f32[M, {length}], b: f32[{length}, 256]) -> (y: f32[M, 256]) {{ y[i, j] = sum(k) a[i, k] * b[k, j] }}"
    program = declared(load_module(parse(Source("f.tl", text))), "f")
    d = deriver(program, Machine(target="cpu"), {}, frozenset(), {"M": 48, "K": 1024})
    c = contraction(program.definitions[0], "j")
    assert c is not None
    counts = row_counts(d, c)
    assert counts is not None and counts[-1] == rows and len(counts) > 1


@pytest.mark.parametrize("counts", [(16, 20), (16, 16), (14, 14), (7, 7)])
def test_tiles_of_a_filtered_image_of_open_size_are_multiplied_a_few_at_a_time(counts: tuple[int, int]) -> None:
    """There are loops for every number that is left over of so few, and smaller images are covered well, too."""
    opened = blocks(counts, 36, 16, 16, 4, Machine(target="cpu"), is_open=True)
    assert 1 < prod(opened.rows) <= OPEN_TILES


def test_a_sum_over_what_a_recurrence_has_so_far_runs_in_lanes_though_it_is_read_backwards() -> None:
    text = """op f(w: i32[N]) -> (y: i32[N]) {
        y[n] = w[n] + max(k in 0..N, k < n, from 0) max(y[k], y[n - 1 - k])
    }"""
    program = substitute_sizes(declared(load_module(parse(Source("f.tl", text))), "f"), {"N": Int(80)})
    schedule = derive(program, Machine(target="cpu"))
    assert [show(d) for d in schedule.directives if d.name == "vectorize"] == ["vectorize y.k_v"]
    assert_same(program, proven(program, schedule), {"N": 80})
