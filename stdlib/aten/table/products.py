"""Products: of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from codegen.dtypes import compute_dtype
from stdlib.aten.call import Call, Number, Rule
from stdlib.onnx.table.contract import product
from tensorlang.graph.nodes import Value, View
from tensorlang.graph.sizes import same_shape


def matmul(n: Call, a: Value, b: Value) -> Value:
    return product(n, a, b)


def batched(n: Call, a: Value, b: Value) -> Value:
    """Of values that torch has only viewed as of three dimensions, as `matmul` does, those that they are views of are multiplied."""
    left, right = _before_view(n, a), _before_view(n, b)
    if left is None or right is None or len(left.shape) != len(right.shape) or not same_shape(left.shape[:-2], right.shape[:-2]):
        return n.op("matmul", a, b)
    y = n.op("matmul", left, right)
    return n.view(y, (a.shape[0], *y.shape[-2:]))


def _before_view(n: Call, x: Value) -> Value | None:
    """Return the value that `x` is a view of, if only dimensions before the last two were joined in one."""
    maker = n.builder.maker(x.name)
    if not isinstance(maker, View):
        return None
    source = n.builder.values[maker.input]
    return source if len(source.shape) > 3 and same_shape(source.shape[-2:], x.shape[-2:]) else None


def linear(n: Call, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Rows are joined, so that a product of two matrices and a bias remains."""
    if len(x.shape) < 2:
        y = n.op("gemm_nt", n.view(x, (1, *x.shape)), weight, bias)
        return n.view(y, y.shape[1:])
    if len(x.shape) > 2:
        y = product(n, x, n.op("transpose", weight, perm=(1, 0)))
        return y if bias is None else n.op("add", y, bias)
    return n.op("gemm_nt", x, weight, bias)


def addmm(n: Call, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    if beta == alpha == 1 and len(bias.shape) <= 2:
        return n.op("gemm", a, b, n.view(bias, (1,) * (2 - len(bias.shape)) + bias.shape))
    return _scaled_sum(n, bias, product, a, b, beta, alpha)


def baddbmm(n: Call, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    return _scaled_sum(n, bias, batched, a, b, beta, alpha)


def addmv(n: Call, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    return _scaled_sum(n, bias, product, a, b, beta, alpha)


def _scaled_sum(n: Call, bias: Value, multiplied: Callable[..., Value], a: Value, b: Value, beta: Number, alpha: Number) -> Value:
    """Narrow floats are scaled before they are rounded."""
    wide = n.dtype if alpha == beta == 1 else compute_dtype(n.dtype)
    y = multiplied(n, n.cast(a, wide), n.cast(b, wide))
    return n.cast(_sum_of_scaled(n, n.cast(bias, wide), y, beta, alpha), n.dtype)


def _sum_of_scaled(n: Call, bias: Value, y: Value, beta: Number, alpha: Number) -> Value:
    y = y if alpha == 1 else n.op("mul", *n.operands(y, alpha, dtype=y.dtype))
    if beta == 0:
        return y
    bias = bias if beta == 1 else n.op("mul", *n.operands(bias, beta, dtype=y.dtype))
    return n.op("add", y, bias)


def convolution(
    n: Call,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    rank = len(weight.shape) - 2
    attributes: dict[str, Any] = {
        "strides": _each(stride, rank),
        "dilations": _each(dilation, rank),
        "pads": _each(padding, rank) * 2,
        "group": groups,
    }
    single = len(x.shape) == rank + 1
    x = n.view(x, (1, *x.shape)) if single else x
    if transposed:
        attributes["output_padding"] = _each(output_padding, rank)
    y: Value = n.onnx("ConvTranspose" if transposed else "Conv", x, weight, bias, **attributes)
    return n.view(y, y.shape[1:]) if single else y


def _each(given: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return a number for each dimension, of which one may be given for all."""
    return tuple(given) * rank if len(given) == 1 else tuple(given)


RULES: dict[str, Rule] = {
    "mm": matmul,
    "mv": matmul,
    "dot": matmul,
    "matmul": matmul,
    "bmm": batched,
    "linear": linear,
    "addmm": addmm,
    "baddbmm": baddbmm,
    "addmv": addmv,
    "convolution": convolution,
}
