"""Dot products of neighbouring narrow elements: one meaning on every processor, one instruction where there is one."""

import numpy as np
import pytest
from llvm_run import LEVELS, check, values

from codegen.dtypes import bf16, i8, i16, u8
from codegen.llvm.dot import form
from codegen.llvm.emit import emit
from codegen.llvm.jit import assembly
from codegen.llvm.target import Target, host, named
from codegen.loops.parser import parse

COUNT = {"bf16": 2, "i16": 2, "i8": 4, "u8": 4}
PAIRS = [("bf16", "bf16"), ("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8"), ("i16", "i16")]


def product(a: str, b: str, lanes: int) -> str:
    """Return a product whose second operand is packed in groups and whose rows are a vector long, the last one shorter."""
    r, total = COUNT[a], "f32" if a == "bf16" else "i32"
    return f"""
func product(M, N, K)(a: {a}[M, {r}*K], b: {b}[K, N, {r}], out c: {total}[M, N]) {{
    for i in 0 .. M {{
        for jo in 0 .. (N + {lanes - 1}) // {lanes} {{
            for k in 0 .. K {{
                for j in 0 .. min({lanes}, N - {lanes}*jo) vector {lanes} {{
                    c[i, {lanes}*jo + j] = dot({r}, a[i, {r}*k], b[k, {lanes}*jo + j, 0], c[i, {lanes}*jo + j])
                }}
            }}
        }}
    }}
}}"""


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("pair", PAIRS)
def test_every_processor_computes_the_same_dot_products(pair: tuple[str, str], lanes: int) -> None:
    m, n, k = 3, 21, 5
    a = values(pair[0], m * k * COUNT[pair[0]]).reshape(m, -1)
    b = values(pair[1], k * n * COUNT[pair[0]], 1).reshape(k, n, -1)
    start = values("f32" if pair[0] == "bf16" else "i32", m * n, 2).reshape(m, n)
    check(product(*pair, lanes), {"M": m, "N": n, "K": k}, rtol=1e-5 if pair[0] == "bf16" else 0, a=a, b=b, c=start)


@pytest.mark.parametrize("pair", PAIRS)
def test_operands_may_lie_anywhere(pair: tuple[str, str]) -> None:
    r, total = COUNT[pair[0]], "f32" if pair[0] == "bf16" else "i32"
    text = f"""
    func rows(N)(a: {pair[0]}[N, 9], b: {pair[1]}[N, 7], out c: {total}[N]) {{
        for j in 0 .. N vector 16 {{ c[j] = dot({r}, a[j, 1], b[j, 3], c[j]) }}
        c[0] = dot({r}, a[0, 0], b[1, 0], c[0])
    }}"""
    a, b = values(pair[0], 11 * 9).reshape(11, 9), values(pair[1], 11 * 7, 1).reshape(11, 7)
    check(
        text,
        {"N": 11},
        rtol=1e-5 if pair[0] == "bf16" else 0,
        a=a,
        b=b,
        c=np.zeros(11, np.float32 if r == 2 and total == "f32" else np.int32),
    )


def test_infinities_and_nan_come_through() -> None:
    a = np.array([[np.inf, 1, np.nan, 1, 1e38, 1e38]], np.float32).astype(bf16.numpy)
    b = np.ones((3, 16, 2), np.float32).astype(bf16.numpy)
    got = check(
        product("bf16", "bf16", 16), {"M": 1, "N": 16, "K": 3}, targets=[host(), *LEVELS[:-1]], a=a, b=b, c=np.zeros((1, 16), np.float32)
    )
    assert np.isnan(got["c"]).all()


@pytest.mark.parametrize(
    ("pair", "features", "wanted"),
    [
        (("bf16", "bf16"), "+avx512f,+avx512bw,+avx512vl,+avx512bf16", "vdpbf16ps"),
        (("u8", "i8"), "+avx512f,+avx512bw,+avx512vl,+avx512vnni", "vpdpbusd"),
        (("i16", "i16"), "+avx512f,+avx512bw,+avx512vl,+avx512vnni", "vpdpwssd"),
    ],
)
def test_a_processor_with_the_instruction_uses_it_for_any_number_of_lanes(pair: tuple[str, str], features: str, wanted: str) -> None:
    target = Target("wide", named("x86-64-v4").triple, "x86-64-v4", f"{named('x86-64-v4').features},{features}", 512, 32, True, True)
    for lanes in (1, 2, 16):
        text = assembly(emit(parse(product(*pair, lanes)), target), target)
        assert wanted in text and "mull" not in text
    assert wanted not in assembly(emit(parse(product(*pair, 16)), named("x86-64-v4")), named("x86-64-v4"))


@pytest.mark.parametrize(("level", "lanes"), [("x86-64", 4), ("x86-64-v2", 1), ("x86-64-v3", 8), ("x86-64-v4", 16), ("wasm32", 4)])
@pytest.mark.parametrize("pair", PAIRS[1:])
def test_a_processor_without_it_adds_products_of_words_in_twos(pair: tuple[str, str], level: str, lanes: int) -> None:
    text = assembly(emit(parse(product(*pair, lanes)), named(level)), named(level))
    wanted, instead = ("i32x4.dot_i16x8_s", "i32x4.mul") if named(level).is_wasm else ("pmaddwd", "mull")
    assert wanted in text and instead not in text


@pytest.mark.parametrize(
    ("pair", "level", "wanted"),
    [
        (("bf16", "bf16"), "aarch64-v8.6", ["bfdot"]),
        (("u8", "i8"), "aarch64-v8.6", ["usdot"]),
        (("i8", "u8"), "aarch64-v8.6", ["usdot"]),
        (("u8", "i8"), "aarch64-v8.2", ["sdot", "sdot"]),
        (("i8", "i8"), "aarch64-v8.2", ["sdot"]),
        (("u8", "u8"), "aarch64-v8.2", ["udot"]),
        (("u8", "u8"), "aarch64", []),
    ],
)
def test_dot_products_of_aarch64(pair: tuple[str, str], level: str, wanted: list[str]) -> None:
    text = assembly(emit(parse(product(*pair, 4)), named(level)), named(level))
    [found] = {
        tuple(line.split()[0] for line in loop.splitlines() if "dot\t" in line) for loop in text.split(".LBB") if "dot\t" in loop
    } or [()]
    assert list(found) == wanted


def test_signed_bytes_have_an_instruction_of_their_own_where_the_processor_has_it() -> None:
    assert form("+avx512vnni,+avx512vl", i8, i8, 8) is None
    found = form("+avx512vnni,+avx512vl,+avxvnniint8", i8, i8, 8)
    assert found is not None and found.intrinsic == "llvm.x86.avx2.vpdpbssd.256"
    assert form("+avx2", u8, i8, 8) is None and form("+avx2", i16, i16, 16) is None


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_rounding_to_bf16_may_make_subnormal_numbers_zero_and_nothing_else_differs(lanes: int) -> None:
    x = values("f32", 40) * np.float32(2.0) ** np.arange(-60, 60, 3).astype(np.float32)
    text = f"""
    func round(N)(x: f32[N], out y: bf16[N], out z: f32[N]) {{
        for io in 0 .. (N + {lanes - 1}) // {lanes} {{
            for i in {lanes}*io .. min(N, {lanes}*io + {lanes}) vector {lanes} {{
                y[i] = bf16(round_bf16(x[i]))
                z[i] = round_bf16(x[i])
            }}
        }}
    }}"""
    x[:3] = np.inf, -np.inf, np.nan
    check(text, {"N": 40}, x=x, y=np.zeros(40, bf16.numpy), z=np.zeros(40, np.float32))
