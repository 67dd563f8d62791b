"""Arithmetic, comparison and conversion: one lane or eight, compiled code agrees with the interpreter bit for bit."""

import re
from collections.abc import Iterable

import numpy as np
import pytest
from llvm_run import LEVELS, WIDTHS, check, values

from codegen.dtypes import DTYPES, DType
from codegen.llvm.arithmetic import ALL_OR_BOTH
from codegen.llvm.emit import emit
from codegen.llvm.jit import assembly, compile_object
from codegen.llvm.target import Target, named
from codegen.loops.parser import parse

INTEGERS = [d.name for d in DTYPES.values() if d.is_integer]
NAN, INF = float("nan"), float("inf")


def samples(name: str, seed: int) -> np.ndarray:
    """Return 61 values of a type: its special ones in an order that pairs them, and random ones."""
    kind = DTYPES[name]
    random = np.random.default_rng(seed)
    if kind.kind == "bool":
        return random.integers(0, 2, 61).astype(bool)
    if kind.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.5, 0.5, INF, -INF, NAN, 1e-45, 3e38, -7.0, 7.0, 2.0]
        wide = np.array([random.choice(special) for _ in range(40)] + list(random.standard_normal(21) * 5))
        with np.errstate(all="ignore"):
            return wide.astype(kind.numpy)
    low, high = _limits(kind)
    special = [0, 1, high, low, high - 1, 3, 7, max(low, -1), max(low, -3), 2]
    chosen = [special[i] for i in random.integers(0, len(special), 61)]
    return np.array(chosen, np.int64 if low < 0 else np.uint64).astype(_storage(kind)).astype(kind.numpy)


def _limits(kind: DType) -> tuple[int, int]:
    return (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.kind == "int" else (0, (1 << kind.bits) - 1)


def _storage(kind: DType) -> type:
    return np.int8 if kind.bits == 4 else kind.numpy.type


def agree(dtype: str, expressions: Iterable[str], result: str | None = None) -> None:
    """Check each of `expressions` of x[i] and y[i], in lanes and one at a time, in loops of its own: one function has those of a type."""
    each = dict(enumerate(expressions))
    loops = "\n".join(
        f"""for io in 0 .. 6 {{ for j in 0 .. min(8, 45 - 8*io) vector 8 {{ z{n}[8*io + j] = {e.replace("[i]", "[8*io + j]")} }} }}
        for i in 45 .. 61 {{ z{n}[i] = {e} }}"""
        for n, e in each.items()
    )
    outs = ", ".join(f"out z{n}: {result or dtype}[61]" for n in each)
    text = f"func f()(x: {dtype}[61], y: {dtype}[61], {outs}) {{ {loops} }}"
    kind = DTYPES[result or dtype].numpy
    check(text, targets=WIDTHS, x=samples(dtype, 1), y=samples(dtype, 2), **{f"z{n}": np.zeros(61, kind) for n in each})


def of_two(operators: Iterable[str]) -> list[str]:
    return [f"{op}(x[i], y[i])" if op[0] == "m" else f"x[i] {op} y[i]" for op in operators]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    agree(dtype, [*of_two(["+", "-", "*", "//", "%", "min", "max", "&", "|", "^", "<<", ">>"]), "~x[i]"])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_floats(dtype: str) -> None:
    agree(dtype, of_two(["+", "-", "*", "/", "//", "%", "min", "max"]))


def test_float_expressions_with_constants() -> None:
    agree("f32", ["max(x[i], 0.0_f32)", "min(1.5_f32, x[i])", "max(x[i], nan_f32)", "x[i] // 0.75_f32", "fma(x[i], y[i], x[i])"])


def test_a_fused_multiply_add_rounds_once_with_and_without_the_instruction() -> None:
    random = np.random.default_rng(11)
    n = 16000
    x, y = (random.standard_normal(n).astype(np.float32) * np.float32(2.0) ** random.integers(-70, 60, n) for _ in range(2))
    near = -(x.astype(np.float64) * y)
    with np.errstate(all="ignore"):
        shift = near * 2.0 ** random.integers(-60, 3, n)
        z = np.where(random.integers(0, 2, n) == 0, near * (1 + random.integers(-3, 4, n) * 2.0**-24), shift).astype(np.float32)
    text = f"""func f()(x: f32[{n}], y: f32[{n}], z: f32[{n}], out r: f32[{n}]) {{
        for o in 0 .. {n // 16} {{ for i in 0 .. 16 vector 16 {{ r[16*o + i] = fma(x[16*o + i], y[16*o + i], z[16*o + i]) }} }} }}"""
    check(text, targets=LEVELS, x=x.astype(np.float32), y=y.astype(np.float32), z=z, r=np.zeros(n, np.float32))


@pytest.mark.parametrize(
    ("dtype", "divisors"),
    [("i32", (1, 3, 4, -1, -5, 0)), ("i64", (1 << 40,)), ("i8", (-128,)), ("u8", (128,)), ("i4", (4, -8))],
    ids=["i32", "i64", "i8", "u8", "i4"],
)
def test_division_by_a_constant(dtype: str, divisors: tuple[int, ...]) -> None:
    agree(dtype, [f"x[i] {op} {divisor}_{dtype}" for divisor in divisors for op in ("//", "%")])


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32"])
def test_quotients_just_below_a_whole_number_are_not_rounded_to_it(dtype: str) -> None:
    random, n = np.random.default_rng(4), 4096
    high = _limits(DTYPES[dtype])[1]
    y = np.exp(random.uniform(0, np.log(high), n)).astype(np.int64)
    x = np.clip(y * (high // y - random.integers(0, 2, n)) - random.integers(0, 2, n), 0, high)
    text = f"""func f()(x: {dtype}[{n}], y: {dtype}[{n}], out z: {dtype}[{n}]) {{
        for o in 0 .. {n // 16} {{ for j in 0 .. 16 vector 16 {{ z[16*o + j] = x[16*o + j] // y[16*o + j] }} }} }}"""
    kind = DTYPES[dtype].numpy
    check(text, targets=WIDTHS, x=x.astype(kind), y=y.astype(kind), z=np.zeros(n, kind))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u8", "i4", "u64"])
def test_comparisons(dtype: str) -> None:
    agree(dtype, of_two(["<", "<=", ">", ">=", "==", "!="]), "bool")


@pytest.mark.parametrize("dtype", ["i8", "u8", "u64"])
def test_comparisons_of_what_was_widened(dtype: str) -> None:
    agree(dtype, [f"i64(x[i]) < {limit}_i64" for limit in (-129, -128, 127, 256)], "bool")


def test_truth_values() -> None:
    both = ["x[i] and y[i]", "x[i] or y[i]", "x[i] == y[i]", "x[i] & y[i]", "x[i] ^ y[i]"]
    agree("bool", ["not x[i]", *both, "select(x[i], y[i], not y[i])"])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8", "i4", "u8", "u4"])
def test_signs(dtype: str) -> None:
    agree(dtype, ["-x[i]", "abs(x[i])"])


def conversions(source: str, targets: list[str], mark: str) -> None:
    """Check the conversion of x[i] to every one of `targets`, in lanes and one at a time."""
    outs = ", ".join(f"out to_{t}: {t}[61]" for t in targets)
    single = " ".join(f"to_{t}[i] = {t}{mark}(x[i])" for t in targets)
    text = f"""func f()(x: {source}[61], {outs}) {{
        for io in 0 .. 6 {{ for j in 0 .. min(8, 45 - 8*io) vector 8 {{ {single.replace("[i]", "[8*io + j]")} }} }}
        for i in 45 .. 61 {{ {single} }} }}"""
    check(text, targets=WIDTHS, x=samples(source, 1), **{f"to_{t}": np.zeros(61, DTYPES[t].numpy) for t in targets})


@pytest.mark.parametrize("source", list(DTYPES))
def test_conversion_to_every_type(source: str) -> None:
    conversions(source, list(DTYPES), "")


@pytest.mark.parametrize("source", [name for name in DTYPES if not DTYPES[name].is_float])
def test_saturating_conversion(source: str) -> None:
    conversions(source, INTEGERS, ".sat")


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_narrow_floats_round_like_the_reference_for_every_exponent(source: str, dtype: str) -> None:
    kind, wide = DTYPES[dtype].numpy, DTYPES[source].numpy
    bits = np.arange(1 << (8 * kind.itemsize), dtype=f"u{kind.itemsize}")[:: max(1, kind.itemsize**7)]
    exact = bits.view(kind).astype(np.float64)
    random = np.random.default_rng(5)
    scales = 2.0 ** random.integers(-145, 127, 2000)
    near = exact[np.isfinite(exact)]
    half = (near[1:] + near[:-1]) / 2
    x = np.concatenate([exact, half, np.nextafter(half, INF), np.nextafter(half, -INF), random.standard_normal(2000) * scales])
    with np.errstate(all="ignore"):
        x = x.astype(wide)
    n = len(x)
    text = f"""func f()(x: {source}[{n}], out z: {dtype}[{n}], out w: f32[{n}]) {{
        for io in 0 .. {n // 16} {{ for j in 0 .. 16 vector 16 {{
            z[16*io + j] = {dtype}(x[16*io + j]) w[16*io + j] = f32(z[16*io + j]) }} }}
        for i in {n // 16 * 16} .. {n} {{ z[i] = {dtype}(x[i]) w[i] = f32(z[i]) }} }}"""
    check(text, targets=WIDTHS, x=x, z=np.zeros(n, kind), w=np.zeros(n, np.float32))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f4e2m1", "i4", "u4", "i2", "u2", "bool", "i64"])
def test_every_type_moves_through_memory_and_registers(dtype: str) -> None:
    text = f"""func f()(x: {dtype}[24], out y: {dtype}[24]) {{
        alloc r: {dtype}[8] registers alloc s: {dtype}[8] stack
        for o in 0 .. 3 {{
            for i in 0 .. 8 vector 8 {{ r[i] = x[8*o + i] }}
            for i in 0 .. 8 vector 8 {{ s[i] = r[i] }}
            for i in 0 .. 5 vector 8 {{ y[8*o + i] = s[i] }} }} }}"""
    check(text, targets=WIDTHS, x=values(dtype, 24), y=np.zeros(24, DTYPES[dtype].numpy))


@pytest.mark.parametrize("dtype", ["u8", "i8", "u16", "i16", "i4", "u4", "i2", "u2"])
def test_rounding_to_a_narrow_integer_saturates_and_takes_nan_for_zero(dtype: str) -> None:
    offsets = ["", " + 3.0_f32", " + -128.0_f32", " + 128.0_f32", " + 0.5_f32"]
    agree("f32", [f"{dtype}.sat(round(x[i]){offset})" for offset in offsets], dtype)


ZEROS = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-45]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("how", ["vector 8", "serial 8"])
def test_an_extreme_is_the_same_zero_whichever_side_it_comes_from(how: str, op: str, dtype: str, level: Target) -> None:
    n = len(ZEROS) ** 2
    x, y = (a.ravel().astype(DTYPES[dtype].numpy) for a in np.meshgrid(ZEROS, ZEROS))
    text = f"""func f()(x: {dtype}[{n}], y: {dtype}[{n}], out z: {dtype}[{n}], out p: {dtype}[{n}], out m: {dtype}[{n}]) {{
        for i in 0 .. {n // 8} {{ for j in 0 .. 8 {how} {{
            z[8*i + j] = {op}(x[8*i + j], y[8*i + j])
            p[8*i + j] = {op}(x[8*i + j], 0.0_{dtype})
            m[8*i + j] = {op}(-0.0_{dtype}, x[8*i + j]) }} }} }}"""
    check(text, targets=[level], x=x, y=y, **{name: np.zeros(n, x.dtype) for name in "zpm"})


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("lanes", [2, 8, 16])
@pytest.mark.parametrize("op", ["min", "max"])
def test_an_extreme_of_lanes_is_the_same_zero_in_any_order(op: str, lanes: int, level: Target) -> None:
    start = "inf_f32" if op == "min" else "-inf_f32"
    text = f"""func f()(x: f32[40, {lanes}], out z: f32[40]) {{ for i in 0 .. 40 {{
        alloc best: f32[] registers
        best[] = {start}
        for j in 0 .. {lanes} vector {lanes} {{ best[] = {op}(best[], x[i, j]) }}
        z[i] = best[] }} }}"""
    x = np.random.default_rng(lanes).choice([0.0, -0.0, -0.0, 0.0, -0.0, 0.0, -0.0, NAN], (40, lanes)).astype(np.float32)
    check(text, targets=[level], x=np.where(np.arange(40)[:, None] % 2, x, np.nan_to_num(x)), z=np.zeros(40, np.float32))


def test_one_instruction_of_wide_processors_joins_all_bits_but_the_sign() -> None:
    """Bit `4a + 2b + c` is what the instruction makes of bits a, b and c: where c is set, of the sign, both, elsewhere any."""
    for a, b, c in np.ndindex(2, 2, 2):
        assert ALL_OR_BOTH >> (4 * a + 2 * b + c) & 1 == (a & b if c else a | b)
    for how, bits in (("vector 16", 512), ("vector 64", 512), ("vector 9", 512), ("serial 16", 128)):
        n = how.split()[1]
        text = f"func f()(x: f32[{n}], y: f32[{n}], out z: f32[{n}]) {{ for j in 0 .. {n} {how} {{ z[j] = max(x[j], y[j]) }} }}"
        module = emit(parse(text), named("x86-64-v4"))
        assert f"llvm.x86.avx512.pternlog.d.{bits}" in module and "fneg" not in module and compile_object(module, named("x86-64-v4"))


@pytest.mark.parametrize("lanes", ["serial", "vector 8"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("expression", ["max(x[i], -x[i])", "max(-x[i], x[i])", "min(-x[i], x[i])"])
def test_the_extreme_of_a_number_and_its_opposite_is_its_size(expression: str, dtype: str, lanes: str) -> None:
    text = f"func f()(x: {dtype}[8], out z: {dtype}[8]) {{ for i in 0 .. 8 {lanes} {{ z[i] = {expression} }} }}"
    x = np.array([0.0, -0.0, NAN, -INF, INF, -2.0, 3.0, -1e-45], DTYPES[dtype].numpy)
    check(text, targets=WIDTHS, x=x, z=np.zeros(8, x.dtype))
    assert "fcmp" not in emit(parse(text), WIDTHS[0])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_single_maximum_waits_for_no_opposites(dtype: str) -> None:
    """Where processors have maxima of lanes as minima of opposites, a recurrence of single numbers would wait for both changes of sign."""
    text = f"""func f()(x: {dtype}[9], out z: {dtype}[9]) {{
        z[0] = x[0]
        for j in 1 .. 9 {{ z[j] = max(x[j], 0.5_{dtype} * z[j - 1]) }} }}"""
    for level in ("x86-64", "x86-64-v3"):
        module = emit(parse(text), named(level))
        assert "fneg" not in module and "fcmp uno" in module and compile_object(module, named(level))


def test_other_processors_have_extremes_as_instructions() -> None:
    text = "func f()(x: f32[4], y: f32[4], out z: f32[4]) { for j in 0 .. 4 vector 4 { z[j] = max(x[j], y[j]) } }"
    module = emit(parse(text), named("aarch64"))
    assert "llvm.maximum.v4f32" in module and compile_object(module, named("aarch64"))


@pytest.mark.parametrize(("source", "to", "lanes", "one"), [("f32", "i32", 16, "vcvttps2dq"), ("f64", "i64", 8, "vcvttpd2qq")])
def test_lanes_of_floats_become_integers_by_one_instruction_that_limits_are_chosen_over(source: str, to: str, lanes: int, one: str) -> None:
    text = f"func f()(x: {source}[{lanes}], out z: {to}[{lanes}]) {{ for j in 0 .. {lanes} vector {lanes} {{ z[j] = {to}(x[j]) }} }}"
    made = assembly(emit(parse(text), named("x86-64-v4")), named("x86-64-v4"))
    assert made.count(one) == 1 and "vcvtts" not in made


def test_what_compares_is_added_as_the_mask_that_it_is() -> None:
    text = """func f()(x: u8[3, 16], out y: i32[16]) {
        alloc n: i32[16] registers
        for j in 0 .. 16 vector 16 { n[j] = 0_i32 }
        for i in 0 .. 3 { for j in 0 .. 16 vector 16 { n[j] = n[j] + i32(x[i, j] == 2_u8) } }
        for j in 0 .. 16 vector 16 { y[j] = n[j] } }"""
    x = np.random.default_rng(1).integers(0, 4, (3, 16)).astype(np.uint8)
    check(text, targets=LEVELS, x=x, y=np.zeros(16, np.int32))
    assert "sext <16 x i1>" in emit(parse(text), named("x86-64-v3"))


def test_truth_values_that_a_loop_carries_in_vectors_are_bytes_where_no_registers_hold_masks() -> None:
    text = """func f()(a: bool[3, 9], b: bool[9, 64], out y: bool[3, 64]) {
        for i in 0 .. 3 {
            alloc acc: bool[64] registers
            for j in 0 .. 64 vector 64 { acc[j] = false }
            for k in 0 .. 9 { for j in 0 .. 64 vector 64 { acc[j] = acc[j] or a[i, k] and b[k, j] } }
            for j in 0 .. 64 vector 64 { y[i, j] = acc[j] }
        } }"""
    assert not re.search(r"phi <\d+ x i1>", emit(parse(text), named("x86-64-v3")))
    random = np.random.default_rng(0)
    check(text, a=random.random((3, 9)) < 0.4, b=random.random((9, 64)) < 0.4, y=np.zeros((3, 64), bool))


def test_what_is_left_of_wide_numbers_is_computed_in_as_many_bits() -> None:
    text = """func f()(x: u32[16], out h: u32[16], out l: u32[16], out m: i16[16]) {
        for i in 0 .. 16 vector 16 {
            let p = u64(x[i]) * 3528531795_u64 - 5_u64
            h[i] = u32(p >> 32_u64)
            l[i] = u32(p & 4294967295_u64)
            m[i] = i16(p + u64(x[i]))
        } }"""
    x = np.random.default_rng(1).integers(0, 1 << 32, 16, dtype=np.uint32)
    check(text, targets=WIDTHS, x=x, h=np.zeros(16, np.uint32), l=np.zeros(16, np.uint32), m=np.zeros(16, np.int16))
    assert "mul <16 x i32>" in emit(parse(text), named("x86-64-v4"))
