"""Integers known to fit in half of their bits, of 64 or in vectors of 32, are computed in those, and every value keeps its bits."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops.narrow import narrowed
from codegen.loops.nodes import Let
from codegen.loops.parser import parse
from codegen.loops.printer import show_expr
from codegen.loops.verify import verify
from codegen.loops.walk import stores, walk

HEAD = "func f(N)(x: f32[N], k: i64[N], c: u8[N], out y: i64[N], out z: f32[N]) {\n"
BYTES = "func f(N)(x: f32[N], k: i32[N], c: u8[N], s: i8[N], out y: u8[N], out w: i32[N], out z: u16[N]) {\n"


def last_value(body: str) -> str:
    function = narrowed(parse(f"{HEAD}{body}\n}}"))
    verify(function)
    *_, last = stores(*function.body)
    return show_expr(last.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("min(max(i64(x[i]), 0_i64), 255_i64)", "i64(min(max(i32(x[i]), 0_i32), 255_i32))"),
        ("min(max(i64(x[i]), -3_i64), 255_i64) * 2_i64", "i64(min(max(i32(x[i]), -3_i32), 255_i32) * 2_i32)"),
        ("i64(c[i]) * 4_i64 + i64(c[i])", "i64(i32(c[i]) * 4_i32 + i32(c[i]))"),
        ("i64(c[i]) % 7_i64", "i64(i32(c[i]) % 7_i32)"),
        ("select(i64(c[i]) * 3_i64 < 9_i64, 5_i64, i64(c[i]))", "i64(select(i32(c[i]) * 3_i32 < 9_i32, 5_i32, i32(c[i])))"),
        ("min(i64(x[i]), 5_i64)", "min(i64(x[i]), 5_i64)"),
        ("min(max(i64(x[i]) + 1_i64, 0_i64), 9_i64)", "min(max(i64(x[i]) + 1_i64, 0_i64), 9_i64)"),
        ("min(max(i64(x[i]), 0_i64), 4294967296_i64)", "min(max(i64(x[i]), 0_i64), 4294967296_i64)"),
        ("i64(c[i]) * 16843010_i64", "i64(c[i]) * 16843010_i64"),
        ("min(max(k[i], 0_i64), 9_i64)", "min(max(k[i], 0_i64), 9_i64)"),
        ("i64(c[i])", "i64(c[i])"),
    ],
)
def test_what_is_known_to_fit_is_computed_in_32_bits(value: str, expected: str) -> None:
    assert last_value(f"for i in 0 .. N {{ y[i] = {value} }}") == expected


def last_in_lanes(body: str, kind: str = "vector 8") -> str:
    function = narrowed(parse(f"{BYTES}for i in 0 .. 8 {kind} {{ {body} }}\n}}"))
    verify(function)
    *_, last = stores(*function.body)
    return show_expr(last.value)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("y[i] = u8((i32(c[i]) * 3_i32 + 2_i32) // 4_i32)", "u8((i16(c[i]) * 3_i16 + 2_i16) // 4_i16)"),
        ("y[i] = u8((i32(c[i]) * 255_i32 + 128_i32) // 256_i32)", "u8(i16((u16(c[i]) * 255_u16 + 128_u16) // 256_u16))"),
        ("y[i] = u8(max(i32(c[i]) - i32(s[i]), 0_i32))", "u8(max(i16(c[i]) - i16(s[i]), 0_i16))"),
        ("z[i] = u16(i32(c[i]) * 70001_i32)", "u16(c[i]) * 4465_u16"),
        ("z[i] = u16(abs(i32(s[i])) * 515_i32)", "u16(abs(i16(s[i]))) * 515_u16"),
        ("z[i] = u16(i32(c[i]) << 9_i32)", "u16(c[i]) << 9_u16"),
        ("z[i] = u16(select(i32(c[i]) * 2_i32 > 9_i32, 70000_i32, 1_i32))", "select(i16(c[i]) * 2_i16 > 9_i16, 4464_u16, 1_u16)"),
        ("w[i] = i32(c[i]) * 3_i32 // 7_i32", "i32(i16(c[i]) * 3_i16 // 7_i16)"),
        ("w[i] = i32(c[i]) * 3_i32", "i32(c[i]) * 3_i32"),
        ("z[i] = u16(i32(c[i]) * 300_i32 // 5_i32)", "u16(i32(c[i]) * 300_i32 // 5_i32)"),
        ("z[i] = u16(i32(c[i]) // i32(s[i]))", "u16(i32(c[i]) // i32(s[i]))"),
        ("z[i] = u16(i32(c[i]) << i32(s[i]))", "u16(i32(c[i]) << i32(s[i]))"),
        ("z[i] = u16(k[i] + 1_i32)", "u16(k[i] + 1_i32)"),
        ("y[i] = u8(min(max(i32(x[i]), 0_i32), 255_i32))", "u8(min(max(i32(x[i]), 0_i32), 255_i32))"),
    ],
)
def test_lanes_compute_in_16_bits_what_is_known_to_fit_or_cut_to_them(stored: str, expected: str) -> None:
    assert last_in_lanes(stored) == expected


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        ("index(i) == i64(k[i])", "i32(index(i)) == k[i]"),
        ("i64(c[i]) < index(3*i + 7)", "i32(c[i]) < i32(index(3*i + 7))"),
        ("i64(c[i]) > 9_i64", "i32(c[i]) > 9_i32"),
        ("i64(k[i]) < 3000000000_i64", "i64(k[i]) < 3000000000_i64"),
        ("index(i) < 5_i64", "index(i) < 5_i64"),
    ],
)
def test_lanes_compare_in_32_bits_what_is_stored_in_so_few(compared: str, expected: str) -> None:
    body = f"y[i] = select({compared}, 1_u8, 0_u8)"
    assert last_in_lanes(body) == f"select({expected}, 1_u8, 0_u8)"
    assert last_in_lanes(body, "") == f"select({compared}, 1_u8, 0_u8)"


def test_16_bits_are_for_lanes_alone() -> None:
    assert last_in_lanes("y[i] = u8((i32(c[i]) * 3_i32 + 2_i32) // 4_i32)", "") == "u8((i32(c[i]) * 3_i32 + 2_i32) // 4_i32)"


def test_elements_whose_range_is_asked_for_become_narrow() -> None:
    asked = (
        "for j in 0 .. N { require i64(k[j]) >= 0_i64 and i64(k[j]) < LIMIT else 1 }\nfor i in 0 .. N { y[i] = k[i] * 31_i64 % 977_i64 }"
    )
    assert last_value(asked.replace("LIMIT", "1000_i64")) == "i64(i32(k[i]) * 31_i32 % 977_i32)"
    assert last_value(asked.replace("LIMIT", "1000000000_i64")) == "k[i] * 31_i64 % 977_i64"
    assert last_value(asked.replace("LIMIT", "1000_i64").replace("0 .. N { require", "1 .. N { require")) == "k[i] * 31_i64 % 977_i64"
    later = "\n".join(reversed(asked.replace("LIMIT", "1000_i64").split("\n")))
    assert last_value(later) == "k[i] * 31_i64 % 977_i64"


@pytest.mark.parametrize("kind", ["", "vector 8"])
@pytest.mark.parametrize("named", [False, True])
def test_elements_that_say_places_are_cut_for_lanes_alone(kind: str, named: bool) -> None:
    asked = "for j in 0 .. N { require i64(k[j]) >= 0_i64 and i64(k[j]) < 50_i64 else 1 }"
    place = "select(n < 7_i64, n + 50_i64, n)"
    stored = f"let n = k[i] z[i] = x[value({place})]" if named else f"z[i] = x[value({place.replace('n', 'k[i]')})]"
    function = narrowed(parse(f"{HEAD}{asked}\nfor i in 0 .. 8 {kind} {{ {stored} }}\n}}"))
    verify(function)
    *_, last = stores(*function.body)
    assert ("i32" in show_expr(last.value)) == bool(kind)


def test_lanes_cut_what_is_bound_outside_of_them() -> None:
    asked = "for j in 0 .. N { require i64(k[j]) >= 0_i64 and i64(k[j]) < 50_i64 else 1 }"
    body = f"{asked}\nfor i in 0 .. N {{ let n = k[i] for v in 0 .. 8 vector 8 {{ z[v] = f32(i64(c[v]) * n + 7_i64) }} }}"
    assert last_value(body) == "f32(i32(c[v]) * i32(n) + 7_i32)"


def test_what_is_only_widened_again_has_no_name_of_16_bits() -> None:
    names = "let at = i32(index(b)) let low = i32(c[v]) "
    function = narrowed(
        parse(f"{BYTES}for b in 0 .. 9 {{ for v in 0 .. 8 vector 8 {{ {names} w[v] = at * k[v]  y[v] = u8(low + 2_i32) }} }}\n}}")
    )
    verify(function)
    assert [show_expr(n.value) for n in walk(*function.body) if isinstance(n, Let)] == ["i32(index(b))", "i16(c[v])"]


def test_floats_are_made_of_32_bits() -> None:
    assert last_value("for i in 0 .. 100 { z[i] = f32(index(i)) }") == "f32(i32(index(i)))"
    assert last_value("for i in 0 .. N { z[i] = f32(index(i)) }") == "f32(index(i))"


def test_indices_that_are_only_moved_are_compared_as_indices() -> None:
    assert last_value("for i in 0 .. 100 { z[i] = f32(index(i) + i64(c[i]) < 90_i64) }") == "f32(index(i) + i64(c[i]) < 90_i64)"


def test_buffers_and_names_become_narrow_where_all_that_they_hold_fits() -> None:
    body = "for i in 0 .. N { alloc a: i64[1] registers\n a[0] = min(max(i64(x[i]), 0_i64), 9_i64)\n let n = a[0] + 1_i64\n y[i] = STORED }"
    assert last_value(body.replace("STORED", "n * a[0]")) == "i64(n * a[0])"
    kept = body.replace("let", "a[0] = k[i]\n let").replace("STORED", "n * a[0]")
    assert last_value(kept) == "n * a[0]"


def test_what_depends_on_itself_stays_wide_with_what_it_stores() -> None:
    body = "for i in 0 .. N { alloc a: i64[2] registers\n a[0] = 1_i64\n a[1] = a[0]\n a[0] = a[1]\n a[1] = k[i]\n y[i] = a[0] }"
    assert last_value(body) == "a[0]"


SPECIAL = [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31), 2.0**31 - 128, 3e9, -3e9, 2.0**63, -(2.0**63), 1e30, -0.0, 0.9, -0.9, 254.9, 256.0]
VALUES = {
    "limited floats": "min(max(i64(x[I]), 0_i64), 255_i64)",
    "limits at the edge": "min(max(i64(x[I]), -2147483648_i64), 2147483647_i64)",
    "one side at a time": "max(min(i64(x[I]), 100_i64), -7_i64) * 3_i64 - 1_i64",
    "choices": "min(max(select(c[I] > 9_u8, i64(x[I]), 77_i64), 0_i64), 255_i64)",
    "moved before it is limited": "min(max(i64(x[I]) + 1_i64, 0_i64), 255_i64)",
    "bytes": "(i64(c[I]) * 4_i64 - 300_i64) % 7_i64 + (i64(c[I]) - 300_i64) // 5_i64",
    "by zero": "i64(c[I]) % (i64(c[I]) % 3_i64) + i64(c[I]) // (i64(c[I]) % 3_i64)",
    "bits": "((i64(c[I]) - 100_i64) & 60_i64) ^ (-i64(c[I]) | 3_i64)",
    "gathered": "k[value(min(max(i64(x[I]), 0_i64), 15_i64))]",
    "gathered from a moved place": "k[value(min(max(i64(x[I]), 0_i64), 14_i64) + 1_i64)]",
    "floats of them": "i64(f32(min(max(i64(x[I]), 0_i64), 14_i64) + 1_i64) * 0.5_f32)",
    "floats of indices": "i64(f32(index(I) * 3_i64) * 0.5_f32)",
}


@pytest.mark.parametrize("loops", ["for i in 0 .. 16 {", "for b in 0 .. 2 { for i in 0 .. 8 vector 8 {"], ids=["one", "eight"])
def test_every_value_keeps_its_bits(loops: str) -> None:
    at = "i" if loops.count("{") == 1 else "8*b + i"
    body = "\n".join(f"y[{row}, I] = {value}" for row, value in enumerate(VALUES.values()))
    body = body.replace("I]", f"{at}]").replace("(I)", f"({at})")
    head = f"func f()(x: f32[16], k: i64[16], c: u8[16], out y: i64[{len(VALUES)}, 16]) {{\n"
    arrays = {"x": np.array(SPECIAL, np.float32), "k": np.arange(16) ** 9, "c": np.arange(0, 256, 16, np.uint8)}
    check(f"{head}{loops}\n{body}\n{'}' * loops.count('{')}\n}}", y=np.zeros((len(VALUES), 16), np.int64), **arrays)


IN_16_BITS = {
    "sums of bytes": "w[L] = (i32(c[I]) * 3_i32 + i32(s[I])) // 7_i32 - (i32(s[I]) - 300_i32) % 9_i32",
    "between 2^15 and 2^16": "w[L] = i32(c[I]) * 257_i32 // 3_i32 + i32(c[I]) * i32(c[I]) % 1000_i32",
    "cut": "z[L] = u16(i32(c[I]) * 70001_i32 - (-i32(s[I]) ^ 12345_i32))",
    "cut with a sign": "w[L] = i32(i16(i32(c[I]) * 1000_i32 * i32(s[I])))",
    "shifts": "w[L] = i32(u16(((i32(c[I]) << 8_i32) | i32(c[I])) >> (i32(c[I]) & 7_i32)))",
    "of both signs": "z[L] = u16(min(max(abs(i32(s[I]) * 3_i32) * 80_i32, 100_i32), i32(c[I]) * 250_i32))",
    "compared": "y[L] = select(i32(c[I]) * 200_i32 > i32(s[I]) * 100_i32, u8(i32(c[I]) * 3_i32), 7_u8)",
    "choices": "z[L] = u16(select(i32(s[I]) < 0_i32, i32(c[I]) * 3_i32, ~i32(s[I])) - 70000_i32)",
    "a sign that a conversion drops": "z[L] = u16(min(u32(s[I]), u32(c[I])) >> 1_u32)",
    "floats": "w[L] = (min(max(i32(x[I]), -9_i32), 9_i32) + 3_i32) // 5_i32",
    "elements kept": "alloc a: i32[1] registers\na[0] = i32(c[I]) * 16_i32 + 9_i32\nlet n = a[0] % 100_i32\nw[L] = a[0] * n // 11_i32",
}


@pytest.mark.parametrize("value", IN_16_BITS.values(), ids=IN_16_BITS)
def test_every_value_keeps_its_bits_in_16(value: str) -> None:
    body = value.replace("L]", "16*b + v]").replace("I]", "16*b + v]").replace("I)", "16*b + v)")
    text = f"{BYTES.replace('(N)', '()', 1).replace('[N]', '[256]')}for b in 0 .. 16 {{ for v in 0 .. 16 vector 16 {{\n{body}\n}} }}\n}}"
    every = np.arange(256)
    made = {"x": np.resize(np.array(SPECIAL, np.float32), 256), "k": every.astype(np.int32), "c": every.astype(np.uint8)}
    outs = {"y": np.zeros(256, np.uint8), "w": np.zeros(256, np.int32), "z": np.zeros(256, np.uint16)}
    check(text, **made, s=((every * 37) % 256).astype(np.uint8).view(np.int8), **outs)


def test_no_lane_of_floats_is_converted_to_64_bits() -> None:
    body = "for b in 0 .. N // 8 { for v in 0 .. 8 vector 8 { z[8*b + v] = f32(min(max(i64(x[8*b + v]), 0_i64), 9_i64) * 3_i64 + 1_i64) } }"
    text = emit(parse(f"{HEAD}{body}\n}}"), named("x86-64-v3"))
    assert "to <8 x i32>" in text and "<8 x i64>" not in text
