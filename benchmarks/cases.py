"""The operators that benchmarks/operators.py measures: what they are called with, and what the peers are asked to do instead."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
BIG = 1 << 24


@dataclass(frozen=True, slots=True)
class Case:
    """An operator, the arrays it is called with, and what it must do: operations, or bytes that move.

    `operator` is its name in operators.tl; without one the ONNX node is compiled as a model, and the last
    `constants` inputs are weights."""

    name: str
    operator: str
    shapes: tuple[Shape, ...]
    result: Shape
    flops: float = 0.0
    moved: float = 0.0
    node: tuple[str, dict[str, Any]] | None = None
    numpy: Callable[..., object] | None = None
    torch: Callable[..., object] | None = None
    """Functions of the inputs and an array for the result; they return the result when they do not write it there."""
    constants: int = 0
    rows: int | None = None
    """One more input, at the end: so many numbers of rows of the first."""


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield from products()
    yield from linear_layers()
    yield from convolutions()
    yield from rows()
    yield from streams()


# ---------------------------------------------------------------- products


SQUARES = (128, 256, 512, 1024, 2048)
ODD = (
    (127, 768, 768),
    (197, 768, 768),
    (7, 768, 768),
    (1, 768, 3072),
    (16, 768, 768),
    (256, 256, 1),
    (256, 256, 7),
    (257, 255, 129),
    (255, 257, 127),
    (541, 523, 509),
    (384, 96, 384),
)
"""Rows, inner extent, columns: primes, nearly whole tiles, few rows, few columns, a short sum."""


NARROW = (2, 3, 5, 9, 13, 17, 31, 33)
"""Columns, and rows of a product with a transposed operand, around the lanes of a vector."""


def products() -> Iterator[Case]:
    """Yield products of two matrices that are both known only at run time."""
    for n in SQUARES:
        yield _product(f"matmul {n}", n, n, n)
    for m, k, n in ODD:
        yield _product(f"matmul {m}x{k}x{n}", m, k, n)
    batch, m, k, n = 12, 128, 64, 128
    yield Case(
        f"matmul {batch}x{m}x{k}x{n}",
        "batched_matmul",
        ((batch, m, k), (batch, k, n)),
        (batch, m, n),
        2.0 * batch * m * k * n,
        node=("MatMul", {}),
        **_matmul(),
    )
    for left, right in ((1, 0), (0, 1), (1, 1)):
        yield _transposed(512, 512, 512, left, right)
    for n in NARROW:
        yield _product(f"narrow 256x256x{n}", 256, 256, n)
        yield replace(_transposed(n, 256, 256, 0, 1), name=f"narrow {n}x256x256 NT")


def _product(name: str, m: int, k: int, n: int) -> Case:
    return Case(name, "matmul", ((m, k), (k, n)), (m, n), 2.0 * m * k * n, node=("MatMul", {}), **_matmul())


def _matmul() -> dict[str, Any]:
    return {"numpy": lambda a, b, y: np.matmul(a, b, out=y), "torch": lambda a, b, y: torch.matmul(a, b, out=y)}


def _transposed(m: int, k: int, n: int, left: int, right: int) -> Case:
    def numpy(a: Array, b: Array, y: Array) -> None:
        np.matmul(a.T if left else a, b.T if right else b, out=y)

    def of_torch(a: Any, b: Any, y: Any) -> None:
        torch.matmul(a.t() if left else a, b.t() if right else b, out=y)  # type: ignore[union-attr]

    shapes = ((k, m) if left else (m, k), (n, k) if right else (k, n))
    name = f"matmul {m}x{k}x{n} {'T' if left else 'N'}{'T' if right else 'N'}"
    return Case(name, "", shapes, (m, n), 2.0 * m * k * n, node=("Gemm", {"transA": left, "transB": right}), numpy=numpy, torch=of_torch)


LINEAR = (
    (1, 768, 3072),
    (8, 768, 3072),
    (128, 768, 3072),
    (128, 3072, 768),
    (128, 768, 768),
    (197, 768, 3072),
    (3136, 96, 384),
    (3136, 384, 96),
    (13, 509, 1021),
)


def linear_layers() -> Iterator[Case]:
    """Yield products with weights that are known beforehand, and a bias."""
    for m, k, n in LINEAR:
        yield Case(
            f"linear {m}x{k}x{n}",
            "",
            ((m, k), (n, k), (n,)),
            (m, n),
            2.0 * m * k * n,
            node=("Gemm", {"transB": 1}),
            numpy=lambda x, w, b, y: np.add(np.matmul(x, w.T, out=y), b, out=y),
            torch=lambda x, w, b, y: torch.nn.functional.linear(x, w, b),
            constants=2,
        )


# ---------------------------------------------------------------- convolutions


RESNET = (
    (3, 224, 64, 7, 2, 3),
    (64, 56, 256, 1, 1, 0),
    (64, 56, 64, 3, 1, 1),
    (128, 28, 128, 3, 1, 1),
    (256, 14, 256, 3, 1, 1),
    (512, 7, 512, 3, 1, 1),
    (512, 28, 128, 1, 1, 0),
    (1024, 14, 256, 1, 1, 0),
    (256, 56, 512, 1, 2, 0),
)
"""Channels, size, filters, window, stride, padding."""

DEPTHWISE = ((32, 112, 1), (96, 112, 2), (960, 7, 1))
"""Channels, size, stride."""


def convolutions() -> Iterator[Case]:
    for c, size, f, window, stride, pad in RESNET:
        yield _convolution(f"conv {window}x{window}s{stride} {c}→{f} @{size}", c, size, f, window, stride, pad, 1)
    for c, size, stride in DEPTHWISE:
        yield _convolution(f"depthwise 3x3s{stride} {c} @{size}", c, size, c, 3, stride, 1, c)


def _convolution(name: str, c: int, size: int, f: int, window: int, stride: int, pad: int, group: int) -> Case:
    out = (size + 2 * pad - window) // stride + 1
    attributes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "group": group}
    return Case(
        name,
        "",
        ((1, c, size, size), (f, c // group, window, window), (f,)),
        (1, f, out, out),
        2.0 * c // group * window * window * f * out * out,
        node=("Conv", attributes),
        torch=lambda x, w, b, y: torch.nn.functional.conv2d(x, w, b, stride, pad, 1, group),
        constants=2,
    )


# ---------------------------------------------------------------- what memory bounds


def rows() -> Iterator[Case]:
    """Yield operators that go over the rows of a matrix."""
    for m, n in ((1536, 128), (1024, 1024)):
        yield Case(
            f"softmax {m}x{n}",
            "softmax",
            ((m, n),),
            (m, n),
            moved=8.0 * m * n,
            node=("Softmax", {"axis": -1}),
            numpy=_softmax,
            torch=lambda x, y: torch.softmax(x, -1, out=y),
        )
    yield Case(
        "layernorm 128x768",
        "layer_norm",
        ((128, 768), (768,), (768,)),
        (128, 768),
        moved=8.0 * 128 * 768,
        node=("LayerNormalization", {"axis": -1, "epsilon": 1e-5}),
        torch=lambda x, g, b, y: torch.nn.functional.layer_norm(x, (768,), g, b, 1e-5),
    )
    yield Case(
        "gelu 128x3072",
        "gelu",
        ((128, 3072),),
        (128, 3072),
        moved=8.0 * 128 * 3072,
        node=("Gelu", {}),
        torch=lambda x, y: torch.nn.functional.gelu(x),
    )


def streams() -> Iterator[Case]:
    """Yield operators on more data than caches hold."""
    yield Case("add+relu 16M", "add_relu", ((BIG,), (BIG,)), (BIG,), moved=12.0 * BIG, numpy=_add_relu, torch=_torch_add_relu)
    yield Case("chain of 5 16M", "chain", ((BIG,), (BIG,)), (BIG,), moved=12.0 * BIG, numpy=_chain, torch=_torch_chain)
    yield Case("sum 16M", "total", ((BIG,),), (), moved=4.0 * BIG, numpy=lambda x, y: np.sum(x, out=y), torch=lambda x, y: x.sum())
    for m, n in ((4096, 4096), (1024, 1024), (1000, 777)):
        yield Case(
            f"transpose {m}x{n}",
            "transpose",
            ((m, n),),
            (n, m),
            moved=8.0 * m * n,
            node=("Transpose", {"perm": [1, 0]}),
            numpy=lambda x, y: np.copyto(y, x.T),
            torch=lambda x, y: y.copy_(x.t()),
        )
    yield Case(
        "gather 4096 of 30522x768",
        "",
        ((30522, 768),),
        (4096, 768),
        moved=8.0 * 4096 * 768,
        node=("Gather", {"axis": 0}),
        rows=4096,
        numpy=lambda x, i, y: np.take(x, i, 0, out=y),
        torch=lambda x, i, y: torch.index_select(x, 0, i, out=y),
    )
    yield Case(
        "concat 2x64x56x56",
        "",
        ((1, 64, 56, 56), (1, 64, 56, 56)),
        (1, 128, 56, 56),
        moved=16.0 * 64 * 56 * 56,
        node=("Concat", {"axis": 1}),
        numpy=lambda a, b, y: np.concatenate((a, b), 1, out=y),
        torch=lambda a, b, y: torch.cat((a, b), 1, out=y),
    )


def _add_relu(a: Array, b: Array, y: Array) -> None:
    np.add(a, b, out=y)
    np.maximum(y, 0, out=y)


def _torch_add_relu(a: Any, b: Any, y: Any) -> None:
    torch.add(a, b, out=y)  # type: ignore[union-attr]
    torch.relu_(y)  # type: ignore[union-attr]


def _chain(a: Array, b: Array, y: Array) -> None:
    np.add(a, b, out=y)
    np.multiply(y, a, out=y)
    np.subtract(y, b, out=y)
    np.maximum(y, 0, out=y)
    np.multiply(y, np.float32(0.5), out=y)


def _torch_chain(a: Any, b: Any, y: Any) -> None:
    torch.add(a, b, out=y)  # type: ignore[union-attr]
    y.mul_(a).sub_(b).relu_().mul_(0.5)


def _softmax(x: Array, y: Array) -> None:
    np.subtract(x, x.max(axis=1, keepdims=True), out=y)
    np.exp(y, out=y)
    np.divide(y, y.sum(axis=1, keepdims=True), out=y)
