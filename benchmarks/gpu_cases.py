"""The operators that benchmarks/gpu.py measures and benchmarks/sanitize.py runs: what they are called with, what torch calls instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Torch = Callable[[Any], Callable[..., Any]]
"""Given torch, returns what it calls with its arrays."""

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}


@dataclass(frozen=True, slots=True)
class Case:
    """An operator of gpu.tl, the arrays it is called with, and what it must do: operations, or else bytes that move. The last input is row
    numbers when `rows` says how many."""

    name: str
    operator: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    torch: Torch
    flops: float = 0.0
    moved: float = 0.0
    attributes: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    by_warps: bool = False
    """Without products of four warps, where the target has them."""

    def arrays(self, seed: int = 7) -> list[Array]:
        """Return random arguments."""
        rng = np.random.default_rng(seed)
        found: list[Array] = [rng.standard_normal(s, np.float32).astype(DTYPES[self.dtype]) for s in self.shapes]
        return [*found, rng.integers(0, self.shapes[0][0], self.rows)] if self.rows else found

    def stand_ins(self) -> list[Array]:
        """Return arrays of the types and shapes of the arguments that take no memory."""
        found: list[Array] = [np.broadcast_to(np.zeros((), DTYPES[self.dtype]), s) for s in self.shapes]
        return [*found, np.broadcast_to(np.zeros((), np.int64), (self.rows,))] if self.rows else found


def cases() -> Iterator[Case]:
    """Yield what is measured."""
    yield _elements("copy", 1 << 28, 1)
    yield _elements("add_relu", 1 << 27, 2)
    for n in (512, 1024, 2048, 4096, 8192):
        yield product("f32", n, n, n)
    for dtype in ("bf16", "f16"):
        for n in (1024, 2048, 4096, 8192):
            yield product(dtype, n, n, n)
    for n in (4096, 8192):
        along = Case(f"matmul bf16 {n}x{n}x{n} along sums", "matmul_nt", "bf16", ((n, n), (n, n)), _turned, 2.0 * n**3)
        yield from (along, replace(along, name=f"{along.name}, by warps", by_warps=True))
    for dtype in ("f32", "bf16"):
        for m, k, n in ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (4096, 4096, 16384), (16, 4096, 4096)):
            yield linear(dtype, m, k, n)
        for layer in RESNET50:
            yield convolution(dtype, 32, *layer)
    for m, n in ((4096, 1024), (1536, 128), (65536, 768)):
        yield rows("softmax", m, n)
        yield rows("layer_norm", m, n)
    yield one("total", (1 << 26,), lambda torch: torch.sum)
    yield one("transpose", (8192, 8192), lambda torch: lambda x: x.t().contiguous(), moved=2.0)


RESNET50 = (
    (3, 64, 224, 7, 2),
    (64, 64, 56, 1, 1),
    (64, 64, 56, 3, 1),
    (64, 256, 56, 1, 1),
    (128, 128, 56, 3, 2),
    (128, 128, 28, 3, 1),
    (512, 256, 28, 1, 1),
    (256, 256, 14, 3, 1),
    (1024, 512, 14, 1, 1),
    (512, 512, 7, 3, 1),
    (512, 2048, 7, 1, 1),
)
"""Layers of ResNet-50: channels in and out, pixels along a side, window, stride."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of `heads` heads of `size` elements, `length` queries and keys each, as a model."""

    dtype: str
    size: int
    length: int
    causal: bool
    heads: int = 16

    @property
    def name(self) -> str:
        return f"attention {self.dtype} {self.heads}x{self.length}x{self.size}{' causal' if self.causal else ''}"

    @property
    def flops(self) -> float:
        """Return the operations of both products, of a causal one half of them."""
        return 4.0 * self.heads * self.length**2 * self.size * (0.5 if self.causal else 1.0)

    def model(self) -> onnx.ModelProto:
        """Return the products with the softmax between them; what a causal one does not see is masked by a constant."""
        shape = (1, self.heads, self.length, self.size)
        q, k, v, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkvy")
        constants = {"scale": np.array(self.size**-0.5, np.float32)}
        nodes = [
            helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["q", "turned"], ["products"]),
            helper.make_node("Mul", ["products", "scale"], ["scores"]),
            helper.make_node("Softmax", ["seen" if self.causal else "scores"], ["weights"], axis=3),
            helper.make_node("MatMul", ["weights", "v"], ["y"]),
        ]
        if self.causal:
            constants["mask"] = np.triu(np.full((self.length, self.length), -np.inf, np.float32), 1)
            nodes.insert(3, helper.make_node("Add", ["scores", "mask"], ["seen"]))
        weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "attention", [q, k, v], [y], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def attentions() -> Iterator[Attention]:
    """Yield the attention that is measured."""
    yield from (Attention("bf16", d, n, causal) for d in (64, 128) for n in (1024, 2048, 4096, 8192) for causal in (False, True))


def families() -> Iterator[Case]:
    """Yield one small kernel of each family, of sizes that no tile divides."""
    yield _elements("add_relu", 1003, 2)
    yield rows("softmax", 37, 300)
    yield rows("layer_norm", 19, 129)
    yield one("total", (100_003,), lambda torch: torch.sum)
    yield one("transpose", (65, 131), lambda torch: lambda x: x.t().contiguous())
    yield one("cumsum", (33, 70), lambda torch: lambda x: torch.cumsum(x, 1))
    yield Case("gather 50 of 40x33", "gather", "f32", ((40, 33),), lambda torch: lambda x, at: x[at], rows=50)
    for dtype in DTYPES:
        yield product(dtype, 130, 72, 100)
        yield product(dtype, 256, 128, 256)
    yield linear("f32", 17, 100, 65)
    yield linear("bf16", 64, 128, 128)
    for dtype in ("f32", "bf16"):
        yield convolution(dtype, 1, 16, 24, 13, 3, 2)
        yield convolution(dtype, 2, 32, 64, 9, 1, 1)


def product(dtype: str, m: int, k: int, n: int) -> Case:
    work = 2.0 * m * k * n
    return Case(f"matmul {dtype} {m}x{k}x{n}", "matmul", dtype, ((m, k), (k, n)), lambda torch: torch.matmul, work)


def _turned(torch: Any) -> Callable[..., Any]:
    return lambda a, b: torch.matmul(a, b.t())


def linear(dtype: str, m: int, k: int, n: int) -> Case:
    def call(torch: Any) -> Callable[..., Any]:
        return lambda x, w, b: torch.relu(torch.nn.functional.linear(x, w, b))

    return Case(f"linear {dtype} {m}x{k}x{n}", "linear", dtype, ((m, k), (n, k), (n,)), call, 2.0 * m * k * n)


def convolution(dtype: str, batch: int, channels: int, filters: int, side: int, window: int, stride: int) -> Case:
    """Return a layer padded by half a window; in 16 bits its channels are last in memory, in ours as in torch's."""
    pad, last = window // 2, dtype != "f32"
    out = (side + 2 * pad - window) // stride + 1
    shapes = ((batch, channels, side, side), (filters, channels, window, window))
    if last:
        shapes = ((batch, side, side, channels), (filters, window, window, channels))

    def call(torch: Any) -> Callable[..., Any]:
        def run(x: Any, w: Any) -> Any:
            if last:  # views of the same memory: torch's `channels_last`
                x, w = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
            y = torch.nn.functional.conv2d(x, w, None, stride, pad)
            return y.permute(0, 2, 3, 1) if last else y

        return run

    name = f"conv {dtype} {channels}->{filters} {window}x{window}/{stride} {side}x{side} @{batch}"
    work = 2.0 * batch * filters * out * out * channels * window * window
    return Case(name, "conv_last" if last else "conv", dtype, shapes, call, work, attributes={"by": stride, "pad": pad})


def rows(operator: str, m: int, n: int) -> Case:
    def call(torch: Any) -> Callable[..., Any]:
        functional = torch.nn.functional
        return (lambda x: torch.softmax(x, 1)) if operator == "softmax" else lambda x, g, b: functional.layer_norm(x, (n,), g, b)

    shapes = ((m, n),) if operator == "softmax" else ((m, n), (n,), (n,))
    return Case(f"{operator} f32 {m}x{n}", operator, "f32", shapes, call, moved=8.0 * m * n)


def one(operator: str, shape: tuple[int, ...], call: Torch, moved: float = 1.0) -> Case:
    """Return an operator on one array, each element of which moves so often."""
    return Case(f"{operator} f32 {'x'.join(map(str, shape))}", operator, "f32", (shape,), call, moved=4.0 * moved * prod(shape))


def _elements(operator: str, count: int, inputs: int) -> Case:
    def call(torch: Any) -> Callable[..., Any]:
        return torch.clone if operator == "copy" else lambda a, b: torch.relu(a + b)

    return Case(f"{operator} f32 {count}", operator, "f32", ((count,),) * inputs, call, moved=4.0 * count * (inputs + 1))
