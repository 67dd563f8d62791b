"""Kernels that are too large for terms are validated on fingerprints: every program agrees with its plain loops, and faults do not."""

from __future__ import annotations

import numpy as np
import pytest
from operators_at_sizes import EXAMPLES, arguments

import tensorlang as tl
from codegen.llvm.target import named
from codegen.loops import fingerprints
from codegen.loops.parser import parse as parse_loops
from codegen.loops.printer import show
from tensorlang.backends.cpu.driver import loops_of, machine_of, plan_kernel
from tensorlang.check.instantiate import instantiate
from tensorlang.diagnostics import InternalError
from tensorlang.lower.kernel import Lowered
from tensorlang.tensor.nodes import Program
from tensorlang.validation.budget import BUDGET
from tensorlang.validation.fingerprints import difference, expected_results, unfit
from tensorlang.validation.kernel import data_for, validate


def lowered(program: Program) -> Lowered:
    return loops_of(plan_kernel(program, machine_of(named("x86-64-v3"), 2)).plan, "kernel")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_program_agrees_with_its_plain_loops(name: str) -> None:
    example = EXAMPLES[name]
    n = max(5, example.least)
    types, _ = arguments(example.inputs(n))
    program = instantiate(example.module, example.operator, types, example.attrs, example.sizes(n))
    if unfit(program):
        return
    made = lowered(program)
    numbers = {p.name: a for p, a in data_for(program, {}, 0)}
    assert difference(program, made.function, made.params, {}, numbers, 0) == ""


PRODUCT = """op product(a: f32[M, K], b: f32[K, N], bias: f32[N]) -> (y: f32[M, N]) {
    s[i, j] = bias[j] + sum(k) a[i, k] * b[k, j]
    y[i, j] = max(s[i, j], 0) / (1 + exp(-s[i, j]))
}"""


def product() -> tuple[Program, Lowered]:
    shapes = ((37, 90), (90, 70), (70,))
    program = tl.parse(PRODUCT).product.program(*(np.zeros(shape, np.float32) for shape in shapes))
    return program, lowered(program)


def test_a_kernel_too_large_for_terms_is_validated_at_its_own_size() -> None:
    program, made = product()
    assert str(validate(program, made.function, made.params, budget=BUDGET)) == "validated on fingerprints"
    assert "too large" in str(validate(program, made.function, made.params, budget=BUDGET - 1))


@pytest.mark.parametrize("test", ["isnan", "isinf"])
def test_what_is_done_with_a_value_that_is_no_number_is_seen(test: str) -> None:
    text = f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = if {test}(x[i]) then 0 else exp(x[i]) }}"
    program = tl.parse(text).f.program(np.zeros(100, np.float32))
    made = lowered(program)
    assert difference(program, made.function, made.params, {}, {}, 0) == ""
    forgotten = parse_loops(show(made.function).replace(f"{test}(", "0.5_f32 == abs("))
    assert "is not what the equation says" in difference(program, forgotten, made.params, {}, {}, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_done_with_the_bits_of_a_number_is_seen(dtype: type) -> None:
    text = "op f[T: float](x: T[N]) -> (y: i64[N]) { y[i] = i64(shr(bits(x[i]), 1)) }"
    program = tl.parse(text).f.program(np.zeros(100, dtype))
    made = lowered(program)
    assert difference(program, made.function, made.params, {}, {}, 0) == ""
    assert str(validate(program, made.function, made.params)).startswith("validated")
    for wrong in ("bits(-", "bits(2.0_f32 * " if dtype == np.float32 else "bits(2.0_f64 * "):
        forgotten = parse_loops(show(made.function).replace("bits(", wrong))
        assert "is not what the equation says" in difference(program, forgotten, made.params, {}, {}, 0)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("max(", "min("),
        ("a[", "a[36 - "),
        (".. 90", ".. 89"),
        ("bias[", "bias[0*"),
        ("0.0_f32", "1.0_f32"),
        ("exp(-", "exp("),
        ("exp(", "exp2("),
    ],
)
def test_a_fault_is_found_at_the_size_of_the_kernel(text: str, wrong: str) -> None:
    program, made = product()
    whole = show(made.function)
    assert text in whole
    function = parse_loops(whole.replace(text, wrong))
    with pytest.raises(InternalError, match=r"is not what the equation says, nor are \d+ other elements"):
        validate(program, function, made.params, budget=BUDGET)


def test_plain_loops_refuse_what_is_not_in_its_declared_range() -> None:
    program = tl.parse("op f(x: f32[N], ids: i32[Q] in 0..N) -> (y: f32[Q]) {\n    y[q] = x[0] + f32(ids[q])\n}").f.program(
        np.zeros(4, np.float32), np.zeros(3, np.int32)
    )
    x = np.arange(4, dtype=np.uint32)
    assert expected_results(program, {"x": x, "ids": np.array([0, 3, 1], np.int32)})["y"].tolist() == [0, 3, 1]
    for outside in (-1, 4):
        with pytest.raises(LookupError):
            expected_results(program, {"x": x, "ids": np.array([0, 3, outside], np.int32)})


@pytest.mark.parametrize("cast", ["i8", "i8.sat"])
def test_a_cast_saturates_where_the_equation_says_so(cast: str) -> None:
    program = tl.parse("op f(x: f32[N]) -> (y: i8[N]) {\n    y[i] = sat[i8](x[i])\n}").f.program(np.zeros(90, np.float32))
    function = parse_loops(f"func f()(x: f32[90], out y: i8[90]) {{ for i in 0 .. 90 {{ y[i] = {cast}(x[i]) }} }}")
    assert (difference(program, function, ("x", "y"), {}, {}, 0) == "") == (cast == "i8.sat")


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize("space", ["heap", "stack", "param"])
def test_sums_that_start_from_what_lies_in_memory_are_found(dtype: str, space: str) -> None:
    program = tl.parse(f"op f(x: {dtype}[N, M]) -> (y: {dtype}[N]) {{\n    y[i] = sum(k) x[i, k]\n}}").f.program(
        np.zeros((9, 4), {"f32": np.float32, "f64": np.float64, "i32": np.int32}[dtype])
    )
    own = f"alloc t: {dtype}[9] {space}" if space != "param" else ""
    total, back = ("t", "for i in 0 .. 9 { y[i] = t[i] }") if own else ("y", "")
    text = f"""func f()(x: {dtype}[9, 4], out y: {dtype}[9]) {{
    {own}
    for i in 0 .. 9 {{ START
        for k in 0 .. 4 {{ {total}[i] = {total}[i] + x[i, k] }}
    }}
    {back}
}}"""
    numbers = {p.name: a for p, a in data_for(program, {}, 0)}

    def found(start: str) -> str:
        return difference(program, parse_loops(text.replace("START", start)), ("x", "y"), {}, numbers, 0)

    zero = "0.0_" if dtype[0] == "f" else "0_"
    assert found(f"{total}[i] = {zero}{dtype}") == ""
    assert "`y[0]` is not what the equation says" in found("")


def test_constants_are_the_numbers_they_are() -> None:
    values = np.array([0.0, 1.0, -1.0, 0.1, 1e300, -1e-300, 5e-324, 3.0, np.inf, -np.inf, np.nan])
    assert fingerprints.numbers(values).tolist() == [fingerprints.number(float(v)) for v in values]
    third, half = fingerprints.number(0.75), fingerprints.number(0.5)
    assert (third - half) % fingerprints.PRIME == fingerprints.number(0.25)
