"""Integers of 64 bits that are known to fit in 32 are computed in those, and every value keeps its bits."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops.narrow import narrowed
from codegen.loops.parser import parse
from codegen.loops.printer import show_expr
from codegen.loops.verify import verify
from codegen.loops.walk import stores

HEAD = "func f(N)(x: f32[N], k: i64[N], c: u8[N], out y: i64[N], out z: f32[N]) {\n"


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


def test_no_lane_of_floats_is_converted_to_64_bits() -> None:
    body = "for b in 0 .. N // 8 { for v in 0 .. 8 vector 8 { z[8*b + v] = f32(min(max(i64(x[8*b + v]), 0_i64), 9_i64) * 3_i64 + 1_i64) } }"
    text = emit(parse(f"{HEAD}{body}\n}}"), named("x86-64-v3"))
    assert "to <8 x i32>" in text and "<8 x i64>" not in text
