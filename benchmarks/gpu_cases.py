"""The operators that benchmarks/gpu.py measures, benchmarks/sanitize.py and scripts/device.py run: what they are called with, what torch
calls instead."""

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
    "tf32": np.dtype(np.float32),
    "i8": np.dtype(np.int8),
}
"""Of arguments; `tf32` is what f32 is rounded to before it is multiplied."""


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
    schedule: str = ""
    """The schedule of the operator instead of one of a role."""

    def smaller(self, most: int = 128) -> Case:
        """Return the case with axes of at most so many elements, which a machine without a device can hold."""
        return replace(self, shapes=tuple(tuple(min(n, most) for n in shape) for shape in self.shapes), rows=min(self.rows, most))

    def arrays(self, seed: int = 7) -> list[Array]:
        """Return random arguments."""
        rng = np.random.default_rng(seed)
        dtype = DTYPES[self.dtype]
        if dtype.kind == "i":
            return [rng.integers(-128, 128, s).astype(dtype) for s in self.shapes]
        found: list[Array] = [rng.standard_normal(s, np.float32).astype(dtype) for s in self.shapes]
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
        yield multiplied("tf32", n)
        yield multiplied("i8", n)
    for dtype in ("f32", "bf16"):
        for m, k, n in ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (4096, 4096, 16384), (16, 4096, 4096)):
            yield linear(dtype, m, k, n)
        for layer in RESNET50:
            yield convolution(dtype, 32, *layer)
    for m, n in ((4096, 1024), (1536, 128), (65536, 768), (16384, 8192)):
        yield rows("softmax", m, n)
        yield rows("layer_norm", m, n)
    yield one("total", (1 << 26,), lambda torch: torch.sum)
    for shape in ((8192, 8192), (8191, 8193)):
        yield one("transpose", shape, lambda torch: lambda x: x.t().contiguous(), moved=2.0)


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
    yield from (Attention("bf16", d, 4096, causal, heads=12) for d in (64, 128) for causal in (False, True))


def families() -> Iterator[Case]:
    """Yield one small kernel of each family, of sizes that no tile divides."""
    yield _elements("add_relu", 1003, 2)
    yield rows("softmax", 37, 300)
    yield rows("layer_norm", 19, 129)
    yield one("total", (100_003,), lambda torch: torch.sum)
    yield one("transpose", (65, 131), lambda torch: lambda x: x.t().contiguous())
    yield one("cumsum", (33, 70), lambda torch: lambda x: torch.cumsum(x, 1))
    yield Case("gather 50 of 40x33", "gather", "f32", ((40, 33),), lambda torch: lambda x, at: x[at], rows=50)
    for dtype in ("f32", "bf16", "f16"):
        yield product(dtype, 130, 72, 100)
        yield product(dtype, 256, 128, 256)
    yield Case("matmul bf16 200x192x136 along sums", "matmul_nt", "bf16", ((200, 192), (136, 192)), _turned, 2.0 * 200 * 192 * 136)
    for dtype in ("tf32", "i8"):
        yield multiplied(dtype, 128)
    yield linear("f32", 17, 100, 65)
    yield linear("bf16", 64, 128, 128)
    for dtype in ("f32", "bf16"):
        yield convolution(dtype, 1, 16, 24, 13, 3, 2)
        yield convolution(dtype, 2, 32, 64, 9, 1, 1)


def variants() -> Iterator[Case]:
    """Yield products of four warps under other tiles, stages and clusters than the library's role chooses."""
    for n in (4096, 8192):
        for rows_, columns, stages, shared in (
            (256, 128, 4, ""),
            (256, 128, 3, ""),
            (128, 256, 4, ""),
            (128, 128, 6, ""),
            (256, 128, 4, "cluster y.il by 2\n    multicast b at y.il"),
            (128, 256, 4, "cluster y.il by 2\n    multicast b at y.il"),
        ):
            text = _TILES.format(rows=rows_, half=rows_ // 2, columns=columns, stages=stages, shared=shared)
            name = f"matmul bf16 {n}x{n}x{n} along sums, {rows_}x{columns}, {stages} stages{', clusters of 2' if shared else ''}"
            yield Case(name, "matmul_nt", "bf16", ((n, n), (n, n)), _turned, 2.0 * n**3, schedule=text)


_TILES = """
schedule matmul_nt for cuda {{
    split y.k by 64 -> co, ci
    cache a in shared at y.co as [y.i, y.ci] with swizzle (128)
    cache b in shared at y.co as [y.j, y.ci] with swizzle (128)
    cache y in registers
    split y.i by {rows} -> io, ib
    split y.ib by {half} -> iw, iq
    split y.iq by 64 -> im, ir
    split y.j by {columns} -> jo, jr
    split y.ci by 16 -> cf, cr
    split y.io by 16 -> ig, il
    order y.ig, y.jo, y.il, y.co, y.iw, y.cf, y.im, y.ir, y.jr, y.cr
    bind y.ig, y.jo, y.il, y.iw to block.z, block.y, block.x, warpgroup
    stages y.co by {stages} with tma
    specialize y.co with registers (40, 232)
    {shared}
    persistent y.jo by 132
    unroll y.cf, y.im
    tensorize y.ir, y.jr, y.cr with wgmma_bf16
}}
"""
"""A thread of one group of warps asks for what two others multiply, blocks take turns at the tiles."""


def product(dtype: str, m: int, k: int, n: int) -> Case:
    work = 2.0 * m * k * n
    return Case(f"matmul {dtype} {m}x{k}x{n}", "matmul", dtype, ((m, k), (k, n)), lambda torch: torch.matmul, work)


def _turned(torch: Any) -> Callable[..., Any]:
    return lambda a, b: torch.matmul(a, b.t())


def multiplied(dtype: str, n: int) -> Case:
    """Return a product of square matrices, both along sums, in `tf32` or `i8`."""

    def call(torch: Any) -> Callable[..., Any]:
        def in_tf32(a: Any, b: Any) -> Any:
            torch.backends.cuda.matmul.allow_tf32 = True
            return torch.matmul(a, b.t())

        return in_tf32 if dtype == "tf32" else lambda a, b: torch._int_mm(a, b.t())

    return Case(f"matmul {dtype} {n}x{n}x{n} along sums", f"matmul_{dtype}", dtype, ((n, n), (n, n)), call, 2.0 * n**3)


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
