"""Kernels written by hand (`kernels/*.cu`), what launches them, inputs, and what they should compute."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from codegen.dtypes import bf16, f32
from codegen.gpu.emulator import Library, run
from codegen.gpu.program import Kernel, Launch, Program, Scratch, TensorMap
from codegen.loops.nodes import Add, FloorDiv, Index, Int, Mul, Var

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

FOLDER = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Case:
    """A program, the sizes to try it on, and what it means: `arguments(sizes)` gives inputs, and the outputs that are right."""

    program: Program
    sizes: tuple[Mapping[str, int], ...]
    arguments: Callable[..., tuple[Arrays, Arrays]]

    @property
    def name(self) -> str:
        return self.program.name

    def kernel(self) -> Kernel:
        return self.program.kernels[0]

    def changed(self, suffix: str, old: str, new: str) -> Case:
        """Return the case with the first `old` in its first kernel replaced, under a name of its own."""
        kernel = self.kernel()
        assert old in kernel.text, f"{old!r} is not in {kernel.name}"
        text = re.sub(rf"\b{kernel.name}\(", f"{kernel.name}_{suffix}(", kernel.text.replace(old, new, 1))
        renamed = replace(kernel, name=f"{kernel.name}_{suffix}", text=text)
        launches = tuple(replace(x, kernel=renamed.name) if x.kernel == kernel.name else x for x in self.program.launches)
        program = replace(self.program, kernels=(renamed, *self.program.kernels[1:]), launches=launches)
        return replace(self, program=program)

    def with_grid(self, *grid: Index) -> Case:
        """Return the case with another grid for its first launch."""
        first, *others = self.program.launches
        x, y, z = grid
        return replace(self, program=replace(self.program, launches=(replace(first, grid=(x, y, z)), *others)))

    def is_right(self, library: Library, sizes: Mapping[str, int], seed: int) -> bool:
        """Return whether a run gives what is expected, within the rounding of sums of some hundred numbers."""
        inputs, expected = self.arguments(**sizes)
        outputs = {name: np.zeros_like(y) for name, y in expected.items()}
        assert run(self.program, sizes, inputs | outputs, seed=seed, outputs=tuple(outputs), library=library) == 0
        return all(np.allclose(outputs[name], y, rtol=1e-5, atol=1e-4) for name, y in expected.items())


def up(size: str, tile: int) -> Index:
    return FloorDiv(Add(Var(size), Int(tile - 1)), Int(tile))


ONE = Int(1)


def case(
    name: str,
    buffers: tuple[str, ...],
    arguments: Callable[..., tuple[Arrays, Arrays]],
    sizes: tuple[Mapping[str, int], ...],
    *,
    block: tuple[int, int, int],
    grid: tuple[Index, Index, Index],
    shared: int = 0,
    launch_sizes: tuple[str, ...] | None = None,
    maps: tuple[TensorMap, ...] = (),
    cluster: tuple[int, int, int] = (1, 1, 1),
) -> Case:
    """Return a case of one kernel. Its parameters are `buffers` and `maps`, then the sizes; the grid may use others (`launch_sizes`)."""
    names = tuple(sizes[0])
    launched = launch_sizes if launch_sizes is not None else names
    kernel = Kernel(name, text_of(name), buffers, launched, block, shared, maps=maps, cluster=cluster)
    params = (*dict.fromkeys(m.buffer for m in maps), *buffers)
    return Case(Program(name, params, names, (kernel,), (Launch(name, grid),)), sizes, arguments)


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.cu").read_text("utf-8")


def normal(*shape: int) -> Array:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape, dtype=np.float32)


def _elementwise(N: int) -> tuple[Arrays, Arrays]:
    x = normal(N)
    return {"x": x}, {"y": 2 * x + 1}


def _narrow(N: int) -> tuple[Arrays, Arrays]:
    x = normal(N).astype(np.float16)
    from_ = [i // 64 * 64 + (63 - i % 64 if i // 64 * 64 + 63 - i % 64 < N else i % 64) for i in range(N)]
    return {"x": x}, {"y": x[from_] + x[from_]}


def _matmul(N: int) -> tuple[Arrays, Arrays]:
    x, w = normal(N, N), normal(N, N + 1)[:, 1:].copy()
    return {"x": x, "w": w}, {"y": x @ w}


def _pipeline(N: int, T: int, R: int) -> tuple[Arrays, Arrays]:
    x = normal(R, N)
    padded = np.zeros((R, T * 128), np.float32)
    padded[:, :N] = x
    return {"x": x}, {"y": padded.reshape(R, T, 128)[:, :, ::-1]}


def _row_sum(N: int, R: int) -> tuple[Arrays, Arrays]:
    x = normal(R, N)
    return {"x": x}, {"y": x.sum(1)}


def _transpose(M: int, N: int) -> tuple[Arrays, Arrays]:
    x = normal(M, N)
    return {"x": x}, {"y": x.T.copy()}


def _softmax(N: int, R: int) -> tuple[Arrays, Arrays]:
    x = 3 * normal(R, N)
    e = np.exp(x - x.max(1, keepdims=True))
    return {"x": x}, {"y": e / e.sum(1, keepdims=True)}


def _warp_scan(N: int) -> tuple[Arrays, Arrays]:
    x = normal(N)
    padded = np.zeros(-(-N // 32) * 32, np.float32)
    padded[:N] = x
    return {"x": x}, {"y": padded.reshape(-1, 32).sum(1).repeat(32)[:N]}


def _sum(N: int) -> tuple[Arrays, Arrays]:
    x = normal(N)
    return {"x": x}, {"y": x.sum(keepdims=True)}


def bfloat16(x: Array) -> tuple[Array, Array]:
    """Return bits of bfloat16, and the numbers they stand for: `x` without its lower half."""
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def _warp_products(M: int, N: int, K: int) -> tuple[Arrays, Arrays]:
    (x, x_value), (w, w_value) = bfloat16(normal(M, K)), bfloat16(normal(K, N))
    return {"x": x, "w": w}, {"y": x_value @ w_value}


def _warpgroup_products(M: int, N: int, K: int) -> tuple[Arrays, Arrays]:
    (x, x_value), (w, w_value) = bfloat16(normal(M, K)), bfloat16(normal(N, K))
    return {"x": x, "w": w}, {"y": x_value @ w_value.T}


def _multicast(T: int, B: int) -> tuple[Arrays, Arrays]:
    x = normal(8 * T, 32)
    halves = x.reshape(T, 2, 4, 32).sum((0, 2))
    own, other = halves[np.arange(B) % 2], halves[1 - np.arange(B) % 2]
    return {"x": x}, {"y": np.concatenate([own + other, 2 * own + other], axis=1)}


def tiles(name: str, buffer: str, rows: str, box: tuple[int, ...], swizzle: int = 128) -> TensorMap:
    """Return the map of a matrix [rows, K] of bf16."""
    return TensorMap(name, buffer, bf16, (Var(rows), Var("K")), (Var("K"),), box, swizzle)


def _two_passes() -> Case:
    first = Kernel("partial_sums", text_of("partial_sums"), ("x", "part"), ("N",), (32, 1, 1))
    second = Kernel("sum_of_parts", text_of("sum_of_parts"), ("part", "y"), ("B",), (32, 1, 1))
    launches = (Launch("partial_sums", (up("N", 32), ONE, ONE)), Launch("sum_of_parts", (ONE, ONE, ONE)))
    scratch = (Scratch("part", f32, Var("B")),)
    program = Program("two_passes", ("x", "y"), ("N", "B"), (first, second), launches, scratch)
    return Case(program, ({"N": 1, "B": 1}, {"N": 100, "B": 4}, {"N": 2050, "B": 65}), lambda N, B: _sum(N))


ROWS = ({"N": 1, "R": 2}, {"N": 128, "R": 3}, {"N": 300, "R": 2})

ELEMENTWISE = case(
    "elementwise", ("x", "y"), _elementwise, ({"N": 1}, {"N": 256}, {"N": 519}), block=(64, 1, 1), grid=(up("N", 256), ONE, ONE)
)
NARROW = case("narrow", ("x", "y"), _narrow, ({"N": 1}, {"N": 64}, {"N": 137}), block=(64, 1, 1), grid=(up("N", 64), ONE, ONE), shared=128)
MATMUL = case(
    "matmul",
    ("x", "w", "y"),
    _matmul,
    ({"N": 1}, {"N": 32}, {"N": 37}),
    block=(16, 16, 1),
    grid=(up("N", 16), up("N", 16), ONE),
    shared=2048,
)
PIPELINE = case(
    "pipeline",
    ("x", "y"),
    _pipeline,
    ({"N": 4, "T": 1, "R": 2}, {"N": 384, "T": 3, "R": 2}, {"N": 700, "T": 6, "R": 1}),
    block=(32, 1, 1),
    grid=(Var("R"), ONE, ONE),
    shared=1024,
    launch_sizes=("N", "T"),
)
ROW_SUM = case("row_sum", ("x", "y"), _row_sum, ROWS, block=(128, 1, 1), grid=(Var("R"), ONE, ONE), shared=16, launch_sizes=("N",))
TRANSPOSE = case(
    "transpose",
    ("x", "y"),
    _transpose,
    ({"M": 1, "N": 1}, {"M": 32, "N": 64}, {"M": 45, "N": 70}),
    block=(32, 8, 1),
    grid=(up("N", 32), up("M", 32), ONE),
    shared=4096,
)
SOFTMAX = case("softmax", ("x", "y"), _softmax, ROWS, block=(128, 1, 1), grid=(Var("R"), ONE, ONE), shared=16, launch_sizes=("N",))
WARP_SCAN = case(
    "warp_scan", ("x", "y"), _warp_scan, ({"N": 1}, {"N": 64}, {"N": 100}), block=(64, 1, 1), grid=(up("N", 64), ONE, ONE), shared=256
)
WARP_PRODUCTS = case(
    "warp_products",
    ("x", "w", "y"),
    _warp_products,
    ({"M": 1, "N": 1, "K": 1}, {"M": 32, "N": 16, "K": 32}, {"M": 41, "N": 37, "K": 50}),
    block=(64, 1, 1),
    grid=(up("N", 16), up("M", 32), ONE),
    shared=2304,
)
WARPGROUP_PRODUCTS = case(
    "warpgroup_products",
    ("y",),
    _warpgroup_products,
    ({"M": 1, "N": 1, "K": 8}, {"M": 128, "N": 64, "K": 256}, {"M": 150, "N": 70, "K": 360}),
    block=(384, 1, 1),
    grid=(up("N", 64), up("M", 128), ONE),
    shared=73776,
    maps=(tiles("x_map", "x", "M", (128, 64)), tiles("w_map", "w", "N", (64, 64))),
)
MULTICAST = case(
    "multicast",
    ("y",),
    _multicast,
    ({"T": 1, "B": 2}, {"T": 4, "B": 4}, {"T": 5, "B": 4}),
    block=(64, 1, 1),
    grid=(Var("B"), ONE, ONE),
    shared=2320,
    launch_sizes=("T",),
    maps=(
        TensorMap("x_map", "x", f32, (Mul(Int(8), Var("T")), Int(32)), (Int(32),), (4, 32)),
        TensorMap("y_map", "y", f32, (Var("B"), Int(64)), (Int(64),), (1, 64)),
    ),
    cluster=(2, 1, 1),
)
TWO_PASSES = _two_passes()

CASES = (
    ELEMENTWISE,
    NARROW,
    MATMUL,
    PIPELINE,
    ROW_SUM,
    TRANSPOSE,
    SOFTMAX,
    WARP_SCAN,
    TWO_PASSES,
    WARP_PRODUCTS,
    WARPGROUP_PRODUCTS,
    MULTICAST,
)
