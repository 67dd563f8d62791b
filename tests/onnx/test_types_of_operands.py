"""Operands and results of one operator in different types, and types that few models have an operator compute in."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from microsoft_operators import F32, Array, draw, model
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx_evaluate import staged

F16, BF16, E4M3 = np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def computed(op: str, *arrays: Array, version: int = 23, **attributes: Any) -> Array:
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    (found,) = staged(model(op, feeds, list(feeds), 1, [], "", version, **attributes), feeds)
    return found


def check(op: str, *arrays: Array, version: int = 23, steps: float = 0.0, **attributes: Any) -> None:
    """Compare an operator with ONNX's reference evaluator; `steps` is how far results may be apart, times the precision of their type."""
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    (expected,) = ReferenceEvaluator(model(op, feeds, list(feeds), 1, [], "", version, **attributes)).run(None, feeds)
    found = computed(op, *arrays, version=version, **attributes)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    tolerance = steps * float(ml_dtypes.finfo(expected.dtype).eps) if steps else 0.0
    np.testing.assert_allclose(found.astype(np.float64), np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("to", [np.int8(3), np.uint16(5), np.zeros((), E4M3)], ids=lambda z: z.dtype.name)
@pytest.mark.parametrize(
    ("x", "scale", "precision"),
    [
        (F16, F32, 0),
        (BF16, F32, 0),
        (np.int32, F32, 0),
        (np.int32, np.int32, 0),
        (F16, F16, TensorProto.FLOAT),
        (F32, F32, TensorProto.FLOAT16),
    ],
)
def test_values_are_divided_in_the_type_of_their_scale_unless_a_precision_is_given(x: Any, scale: Any, precision: int, to: Any) -> None:
    given = (40 * draw(4, 6)).astype(x), np.asarray(3 if scale is np.int32 else 0.37, scale), np.asarray(to)
    check("QuantizeLinear", *given, **({"precision": precision} if precision else {}))


@pytest.mark.parametrize("to", [None, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT])
@pytest.mark.parametrize(("x", "scale"), [(np.int8, F32), (np.int32, F16), (np.uint16, F16)])
def test_what_bytes_stand_for_has_the_type_that_is_asked_for_and_does_not_overflow_on_the_way(x: Any, scale: Any, to: int | None) -> None:
    given = draw(4, 6, dtype=x) // (1 << 12 if x is np.int32 else 1), np.asarray(0.01, scale)
    check("DequantizeLinear", *given, **({} if to is None else {"output_dtype": to}))


@pytest.mark.parametrize(("a", "b", "y"), [(E4M3, E4M3, E4M3), (E4M3, np.int8, E4M3), (np.uint8, E4M3, np.int8)])
def test_products_of_quantised_matrices_may_be_of_floats_of_eight_bits(a: Any, b: Any, y: Any) -> None:
    left, right = np.abs(3 * draw(3, 5)).astype(a), (3 * draw(5, 4)).astype(b)
    zero = np.asarray([1, 0, 2] if a is np.uint8 else [0, 0, 0], a)
    exact = (left.astype(np.float64) - zero.astype(np.float64)[:, None]) @ right.astype(np.float64) * 0.5 * 0.25 / 0.75
    scales = (np.asarray(s, F32) for s in ([0.5, 0.5, 0.5], 0.25, 0.75))
    found = computed(
        "QLinearMatMul", left, next(scales), zero, right, next(scales), np.zeros((), b), next(scales), np.zeros((), y), version=21
    )
    np.testing.assert_array_equal(found.astype(np.float64), (exact if y is E4M3 else np.rint(exact)).astype(y).astype(np.float64))


@pytest.mark.parametrize(("x", "mode"), [(np.uint8, "nearest"), (np.int64, "nearest"), (bool, "nearest"), (F16, "linear")])
def test_pictures_of_any_type_are_sampled_at_places_of_another(x: Any, mode: str) -> None:
    picture, grid = np.abs(50 * draw(1, 2, 5, 7)).astype(x), 0.6 * draw(1, 3, 4, 2)
    check("GridSample", picture, grid, version=22, mode=mode, steps=1 if x is F16 else 0)


def test_sums_of_several_integers_of_a_picture_are_cut_off() -> None:
    picture, grid = np.abs(50 * draw(1, 2, 5, 7)).astype(np.int32), 0.6 * draw(1, 3, 4, 2)
    exact = computed("GridSample", picture.astype(np.float64), grid, version=22)
    np.testing.assert_array_equal(computed("GridSample", picture, grid, version=22), exact.astype(np.int32))


def test_places_in_a_wide_picture_of_half_precision_keep_their_fractions() -> None:
    picture = np.arange(1024, dtype=F16).reshape(1, 1, 1, 1024)
    grid = np.asarray([[[[0.7503, 0], [0.7507, 0]]]], F32)
    check("GridSample", picture, grid, version=22, steps=1)


@pytest.mark.parametrize(("q", "v"), [(F16, F32), (F32, F16), (BF16, F16), (F32, np.float64)])
def test_values_of_attention_may_have_another_type_than_queries(q: Any, v: Any) -> None:
    check("Attention", draw(1, 2, 3, 4).astype(q), draw(1, 2, 5, 4).astype(q), draw(1, 2, 5, 6).astype(v), version=24, steps=4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_shrink_of_integers_cuts_off_what_is_none(dtype: Any) -> None:
    check("Shrink", np.array([-9, -3, -1, 0, 1, 2, 3, 9]).astype(dtype), version=9, lambd=1.5, bias=1.25)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_truths_are_scattered_like_numbers(reduction: str) -> None:
    x, ids, updates = np.array([1, 0, 0, 1], bool), np.array([0, 1, 1, 3]), np.array([0, 1, 1, 1], bool)
    check("ScatterElements", x, ids, updates, version=18, reduction=reduction)
    check("ScatterND", x, ids[:, None], updates, version=18, reduction=reduction)
