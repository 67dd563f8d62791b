from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bits import assert_same_bits
from golden_case import GOLDEN, cases, source
from hypothesis import given, settings
from hypothesis import strategies as st
from loops_strategies import running_functions, small_index
from work_done import calls_made

from codegen.dtypes import f32
from codegen.loops.indices import coefficients, range_of, simplify_index
from codegen.loops.interp import evaluate_index, run
from codegen.loops.nodes import Alloc, Buffer, Const, FloorDiv, For, Function, Index, Int, Load, Mod, Store, Var
from codegen.loops.parser import parse, parse_expr, parse_index
from codegen.loops.printer import show, show_expr, show_index
from codegen.loops.simplify import simplify
from codegen.loops.verify import verify
from codegen.loops.walk import substitute

RANGES = {"ii": (0, 31), "io": (0, None), "r": (0, 5), "k": (1, 9), "N": (0, None), "q": (1, None), "s": (-4, 4)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(32*io + ii) // 32", "io"),
        ("(32*io + ii) % 32", "ii"),
        ("(32*io + ii + 32) // 32", "io + 1"),
        ("(k*q*x + r) // q", "k*x + r // q"),
        ("(k*q*x + r) % q", "r % q"),
        ("((32*io + ii) // 32 + jo*4 - jo) % 8", "(3*jo + io) % 8"),
        ("x // 4 // 8", "x // 32"),
        ("(x // 4 + 1) // 8", "(x + 4) // 32"),
        ("(4*x + 6) // 8", "(x + 1) // 2"),
        ("(6*x + 4) % 8", "2*((2 - x) % 4)"),
        ("x % 8 % 4", "x % 4"),
        ("32*((2*io + ii) // 32) + (2*io + ii) % 32", "2*io + ii"),
        ("32*x + 32*(x % 2) - 64*((x + 1) // 2)", "0"),
        ("8*((3*x + 3) // 4) + 8*(x // 4) - 8*x", "0"),
        ("(32*x + ii) % 96", "32*(x % 3) + ii"),
        ("(32*x + ii) // 96", "x // 3"),
        ("96*((32*x + ii) // 96) + (32*x + ii) % 96", "32*x + ii"),
        ("min(min(16, N), 20)", "min(16, N)"),
        ("min(x, x + 1)", "x"),
        ("max(0, N)", "N"),
        ("max(s, max(7, r))", "7"),
        ("3 - x*2 + N - (x - 1)", "N - 3*x + 4"),
        ("15 - ii", "15 - ii"),
        ("(x + y)*(x - y)", "x*x - y*y"),
        ("ii // 64 + ii % 64", "ii"),
        ("(2*x + r) // 6", "(2*x + r) // 6"),
        ("(2*x + r) % 6", "(2*x + r) % 6"),
        ("(s + 4) // 9", "0"),
        ("s // 8", "s // 8"),
        ("x*0", "0"),
    ],
)
def test_indices_reach_their_canonical_form(before: str, after: str) -> None:
    assert show_index(simplify_index(parse_index(before), RANGES)) == after


@settings(max_examples=300, deadline=None)
@given(small_index(("ii", "r", "s", "N")), st.integers(0, 31), st.integers(0, 5), st.integers(-4, 4), st.integers(0, 99))
def test_simplified_indices_have_the_same_value_within_the_ranges(e: Index, ii: int, r: int, s: int, n: int) -> None:
    point = {"ii": ii, "r": r, "s": s, "N": n}
    simple, value = simplify_index(e, RANGES), evaluate_index(e, point)
    assert evaluate_index(simple, point) == value
    assert simplify_index(simple, RANGES) == simple
    lo, hi = range_of(e, RANGES)
    assert (lo is None or lo <= value) and (hi is None or value <= hi)


@settings(max_examples=150, deadline=None)
@given(small_index(("ii", "s")), st.integers(-50, 50), st.integers(-50, 50))
def test_affine_forms_have_the_same_value(e: Index, ii: int, s: int) -> None:
    form = coefficients(e)
    point = {"ii": ii, "s": s}
    if form is not None:
        factors, constant = form
        total = sum(scale * evaluate_index(atom, point) for atom, scale in factors.items()) + constant
        assert total == evaluate_index(e, point)


def test_the_affine_form_names_its_atoms() -> None:
    atoms = coefficients(parse_index("4*i - j + 3 + i // 8"))
    assert atoms == ({Var("i"): 4, Var("j"): -1, FloorDiv(Var("i"), Int(8)): 1}, 3)
    assert coefficients(parse_index("i*j")) is None
    assert coefficients(parse_index("2*(i % 4)")) == ({Mod(Var("i"), Int(4)): 2}, 0)


def test_ranges_are_tight_for_correlated_terms() -> None:
    assert range_of(parse_index("ii + s - ii"), RANGES) == (-4, 4)
    assert range_of(parse_index("min(16, N)"), RANGES) == (0, 16)
    assert range_of(parse_index("N // 4"), RANGES) == (0, None)


def test_substitution_reaches_indices_inside_values() -> None:
    assert show_expr(substitute(parse_expr("a[i + value(k[i])] + f32(index(i))"), {"i": parse_index("4*j")})) == (
        "a[4*j + value(k[4*j])] + f32(index(4*j))"
    )


@pytest.mark.parametrize("path", cases("loops_simplify", "loops"), ids=lambda path: path.stem)
def test_simplification_by_example(path: Path, golden_case: Callable[[Path, str], None]) -> None:
    function = parse(source(path))
    verify(function)
    simple = simplify(function)
    verify(simple)
    golden_case(path, show(simple))
    assert simplify(simple) == simple


@settings(max_examples=120, deadline=None)
@given(running_functions(), st.integers(0, 5))
def test_simplified_functions_compute_the_same_bits(function: Function, n: int) -> None:
    verify(function)
    simple = simplify(function)
    verify(simple)
    results = []
    for f in (function, simple):
        arrays = {name: np.linspace(-2, 3, size, dtype=np.float32) for name, size in (("a", 8), ("c", 8), ("n", n))}
        assert run(f, {"N": n}, arrays) == 0
        results.append(arrays["c"])
    assert_same_bits(*results)


def simplified(body: str) -> str:
    return show(simplify(parse(f"func f(N)(out c: f32[N]) {{ {body} }}")))


@pytest.mark.parametrize(
    ("between", "count"),
    [("", 1), ("c[0] = 1.0_f32", 1), ("k[0] = 3_i64", 2), ("for i in 0 .. N { k[i] = 3_i64 }", 2), ("let a = 2_i64", 1)],
)
def test_what_was_required_is_required_again_only_of_what_has_changed(between: str, count: int) -> None:
    required = "require k[0] < 9_i64 else 1"
    assert simplified(f"alloc k: i64[N] heap k[0] = 2_i64 {required} {between} {required} c[0] = f32(k[0])").count("require") == count


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("{p}", "not {c} or {p}", ["{p}"]),
        ("not {c} or {p}", "not not {c} or {p}", ["{p}"]),
        ("not {d} or not {c} or {p}", "not {d} or not not {c} or {p}", ["not {d} or {p}"]),
        ("not {c} or {p}", "not {d} or {p}", ["not {c} or {p}", "not {d} or {p}"]),
        ("not {c} or {p}", "not not {c} or {d}", ["not {c} or {p}", "not not {c} or {d}"]),
        ("not {c} or not {d} or {p}", "not not {c} or {p}", ["not {c} or not {d} or {p}", "not not {c} or {p}"]),
    ],
)
def test_what_is_required_wherever_something_holds_and_wherever_not_is_required(first: str, second: str, left: list[str]) -> None:
    said = {"p": "k[0] < 9_i64", "c": "x[0] < 1.0_f32", "d": "x[1] < 1.0_f32"}
    given = "alloc k: i64[1] heap alloc x: f32[2] heap k[0] = 2_i64 x[0] = 1.0_f32 x[1] = 2.0_f32"
    text = simplified(" ".join([given, *(f"require {e.format(**said)} else 1" for e in (first, second)), "c[0] = f32(k[0]) + x[0] + x[1]"]))
    found = [line.strip().removeprefix("require ").removesuffix(" else 1") for line in text.splitlines() if "require" in line]
    assert found == [e.format(**said) for e in left]


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (["not {c} or {i}", "not {c} or {p}", "not not {c} or {i}", "not not {c} or {p}"], ["{i}", "{p}"]),
        (["not {c} or {p}", "not not {c} or {i}", "not not {c} or {p}"], ["not {c} or {p}", "not not {c} or {i}", "not not {c} or {p}"]),
        (["not {c} or {p}", "{i}", "not not {c} or {p}"], ["not {c} or {p}", "{i}", "not not {c} or {p}"]),
    ],
)
def test_nothing_is_asked_before_what_has_to_hold_where_it_is_asked(asked: list[str], left: list[str]) -> None:
    said = {"i": "k[0] >= 0_i64 and k[0] < 2_i64", "p": "x[value(k[0])] < 9.0_f32", "c": "x[1] < 1.0_f32"}
    given = "alloc k: i64[1] heap alloc x: f32[2] heap k[0] = 1_i64 x[0] = 1.0_f32 x[1] = 2.0_f32"
    text = simplified(" ".join([given, *(f"require {e.format(**said)} else 1" for e in asked), "c[0] = f32(k[0]) + x[0] + x[1]"]))
    found = [line.strip().removeprefix("require ").removesuffix(" else 1") for line in text.splitlines() if "require" in line]
    assert found == [e.format(**said) for e in left]


def test_what_is_known_on_one_side_of_a_choice_is_false_on_the_other() -> None:
    small = "index(i) < 3_i64"
    text = simplified(f"for i in 0 .. N {{ c[i] = select({small}, select({small}, 1.0_f32, 2.0_f32), select({small}, 3.0_f32, 4.0_f32)) }}")
    assert f"select({small}, 1.0_f32, 4.0_f32)" in text


def test_a_loop_that_starts_late_ends_its_extent_later() -> None:
    text = simplified("for i in 4 .. min(N, 8) unroll 4 { c[i] = select(index(i) < 6_i64, 1.0_f32, 2.0_f32) }")
    assert "select(index(i) < 6_i64, 1.0_f32, 2.0_f32)" in text


def test_a_known_size_is_put_to_use() -> None:
    function = parse("func f(N)(out c: f32[N]) { for i in 0 .. min(16, N) { c[i] = 0.0_f32 } }")
    assert "0 .. 16" in show(simplify(function, {"N": (16, None)}))


def test_simplification_of_a_kernel_is_little_work() -> None:
    function = parse(source(GOLDEN / "loops_simplify" / "tile.loops"))
    assert calls_made(lambda: simplify(function)) < 40_000


def test_blocks_dissolved_at_two_levels_keep_their_allocations_apart() -> None:
    inner = (
        Alloc(Buffer("t", f32, (Int(4),), "stack", 4)),
        Store("t", (Int(0),), Const(1.0, f32)),
        Store("y", (Var("j"),), Load("t", (Int(0),))),
    )
    first, second = For("j", Int(0), Int(1), inner), For("j", Int(1), Int(2), inner)
    function = Function("f", (), (Buffer("y", f32, (Int(2),)),), (For("i", Int(0), Int(1), (first, second)),), frozenset({"y"}))
    verify(simplify(function))


def test_what_was_rounded_is_not_rounded_again() -> None:
    texts = {
        "bf16(f32(bf16(a[i])))": "bf16(a[i])",
        "f16(f32(f16(f32(f16(a[i] * 2.0_f32)))))": "f16(a[i] * 2.0_f32)",
        "f16(f32(bf16(a[i])))": "f16(f32(bf16(a[i])))",
        "f32(bf16(f32(a[i])))": "f32(bf16(f32(a[i])))",
    }
    for before, after in texts.items():
        kept = "f32" if before.startswith("f32") else before[: before.index("(")]
        function = parse(f"func f()(a: f32[8], out c: {kept}[8]) {{ for i in 0 .. 8 {{ c[i] = {before} }} }}")
        assert f"= {after}\n" in show(simplify(function))


@pytest.mark.parametrize(
    ("element", "index", "stays"),
    [
        ("u8", "i64(a[i])", False),
        ("i8", "i64(a[i]) + 128_i64", False),
        ("u8", "255_i64 - i64(a[i])", True),
        ("i16", "i64(a[i])", True),
        ("u16", "i64(a[i]) // 256_i64", False),
        ("i16", "i64(a[i]) // 256_i64", True),
        ("i16", "i64(a[i] >> 8_i16) + 128_i64", False),
        ("u16", "i64(a[i] >> 7_u16)", True),
        ("i32", "i64(a[i] % 256_i32)", False),
        ("i16", "max(min(i64(a[i]), 255_i64), 0_i64)", False),
        ("u16", "min(i64(a[i]), 256_i64)", True),
        ("u8", "select(a[i] < 9_u8, i64(a[i]) // 2_i64, 255_i64)", False),
    ],
)
def test_no_index_is_checked_that_its_type_keeps_inside(element: str, index: str, stays: bool) -> None:
    text = f"""
func look_up()(a: {element}[9], t: f32[256], out y: f32[9]) {{
    for i in 0 .. 9 {{
        require {index} >= 0_i64 and {index} < 256_i64 else 1
        y[i] = t[value({index})]
    }}
}}
"""
    assert ("require" in show(simplify(parse(text)))) == stays
