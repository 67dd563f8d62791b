"""Sums of products are recognised by one function, with all that stands around what they multiply."""

from __future__ import annotations

import pytest

from codegen.dtypes import DType, f32, i8, i32, i64, u8
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.contraction import Contraction, NoContraction, contraction, contractions, sums_products
from tensorlang.tensor.nodes import Const, Dynamic, Program, Reduce
from tensorlang.tensor.walk import reduces

ROWS, COLUMNS = (f32, (8, 16)), (f32, (16, 4))


def program(signature: str, body: str, *args: tuple[DType, tuple[int, ...]]) -> Program:
    module = load_module(parse(Source("f.tl", f"op f({signature}) {{ {body} }}")))
    return instantiate(module, "f", [ArgType(dtype, shape) for dtype, shape in args], {}, {})


def found(signature: str, body: str, *args: tuple[DType, tuple[int, ...]]) -> Contraction:
    [(_, c)] = contractions(program(signature, body, *args))
    return c


def test_a_product_of_matrices_has_rows_columns_and_an_index_of_both() -> None:
    c = found("x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]", "y[i, j] = max(sum(k) x[i, k] * w[k, j], 0.0)", ROWS, COLUMNS)
    assert (c.tensors, c.axes, c.axes_of(0), c.axes_of(1), c.shared) == (("x", "w"), ("i", "j"), ("i",), ("j",), ("k",))
    assert c.extent("k") == 16 and c.dtype == f32 and not c.is_guarded
    assert all(f.is_plain and f.is_padded_with_zeros and not f.is_indexed_by_data for f in c.factors)


def test_casts_and_roundings_are_told_from_the_outside_in() -> None:
    c = found(
        "x: i8[M, K], w: f32[K, N]) -> (y: f32[M, N]",
        "y[i, j] = sum(k) f32(x[i, k]) * round_tf32(w[k, j])",
        (i8, (8, 16)),
        COLUMNS,
    )
    assert [(f.casts, f.rounding, f.is_plain) for f in c.factors] == [((f32,), "", False), ((), "round_tf32", False)]


@pytest.mark.parametrize(("outside", "zeros"), [("0.0", True), ("1.0", False)])
def test_what_lies_around_an_operand_is_told(outside: str, zeros: bool) -> None:
    body = f"y[i] = sum(k in 0..3) (if i + k < N then x[i + k] else {outside}) * w[k]"
    c = found("x: f32[N], w: f32[3]) -> (y: f32[N]", body, (f32, (8,)), (f32, (3,)))
    first, second = c.factors
    assert first.mask is not None and isinstance(first.outside, Const) and first.is_padded_with_zeros is zeros
    assert second.is_plain and c.shared == ()


@pytest.mark.parametrize(("outside", "padded"), [("0.0", True), ("w[k]", False)])
def test_what_a_padded_copy_could_hold_is_no_other_tensor(outside: str, padded: bool) -> None:
    body = f"y[i] = sum(k in 0..3) (if i + k < N then x[i + k] else {outside}) * v[k]"
    c = found("x: f32[N], w: f32[3], v: f32[3]) -> (y: f32[N]", body, (f32, (8,)), (f32, (3,)), (f32, (3,)))
    assert [f.is_padding for f in c.factors] == [padded, True]


def test_a_zero_point_is_what_is_taken_off_last() -> None:
    body = "y[i] = sum(k) (i32(q[i, k]) - i32(z[])) * i32(w[k])"
    c = found("q: u8[M, K], w: i8[K], z: u8[]) -> (y: i32[M]", body, (u8, (4, 8)), (i8, (8,)), (u8, ()))
    first, second = c.factors
    assert first.casts == second.casts == (i32,) and first.zero is not None and second.zero is None


def test_a_guard_and_an_index_from_data_are_seen() -> None:
    body = "y[i] = sum(k, (k + i) % 2 == 0) x[i, k] * w[k]"
    assert found("x: f32[N, N], w: f32[N]) -> (y: f32[N]", body, (f32, (8, 8)), (f32, (8,))).is_guarded
    chosen = "y[i] = sum(k) x[at[k]] * w[i, k]"
    c = found("x: f32[N], at: i64[K] in 0..N, w: f32[M, K]) -> (y: f32[M]", chosen, (f32, (9,)), (i64, (8,)), (f32, (4, 8)))
    assert [f.is_indexed_by_data for f in c.factors] == [True, False]
    assert any(isinstance(slot, Dynamic) for slot in c.reads[0].index)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("max(k) x[i, k] * w[k, i]", "it is no sum"),
        ("sum(k) (x[i, k] + w[k, i])", "what is summed is no product"),
        ("sum(k) exp(x[i, k]) * w[k, i]", "what is multiplied is computed on the way"),
        ("sum(k) (x[i, k] - w[k, i]) * w[k, i]", "what is multiplied is computed on the way"),
    ],
)
def test_what_is_no_contraction_has_a_reason(body: str, why: str) -> None:
    p = program("x: f32[N, N], w: f32[N, N]) -> (y: f32[N]", f"y[i] = {body}", (f32, (8, 8)), (f32, (8, 8)))
    [e] = reduces(p.definitions[0].pieces[0].value)
    assert contraction(e) == NoContraction(why) and not list(contractions(p))
    assert isinstance(e, Reduce) and contraction(e.body[0]) == NoContraction("it is no sum")


@pytest.mark.parametrize(
    ("body", "sums"),
    [
        ("sum(k) exp(x[i, k]) * w[k, i]", True),
        ("sum(k) x[i, k] * x[i, k]", False),
        ("sum(k) x[i, k] * 2.0", False),
        ("max(k) x[i, k] * w[k, i]", False),
    ],
)
def test_products_of_what_is_computed_count_as_products_too(body: str, sums: bool) -> None:
    p = program("x: f32[N, N], w: f32[N, N]) -> (y: f32[N]", f"y[i] = {body} + w[i, i]", (f32, (8, 8)), (f32, (8, 8)))
    assert [sums_products(e) for e in reduces(p.definitions[0].pieces[0].value)] == [sums]
