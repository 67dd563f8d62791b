"""What edges cost: windows that reach over the edges of an array, against the same windows over an array that is larger by what they reach
over; and operators of models that pad, against onnxruntime. In turns, on one thread.

    python benchmarks/edges.py                       everything
    python benchmarks/edges.py blur --seconds 1      those whose names begin with blur

Nothing is scheduled by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness import Array, Run, Timing, mark, paired, ratio, table, with_threads  # isort: skip
from operators import kernel  # isort: skip

import numpy as np
import onnx
from onnx import helper

import tensorlang
from tensorlang.shell.peers import Task, peers, runs

SEED = 7
PAGE = 4096

WINDOWS = {
    "blur 3x3": (1, " + ".join(f"x[i + {u}, j + {v}{{mode}}]" for u in (-1, 0, 1) for v in (-1, 0, 1))),
    "blur separable": (1, ""),
    "sum 5x5": (2, "sum(u in 0..5, v in 0..5) x[i + u - 2, j + v - 2{mode}]"),
    "fir 5x5": (2, "sum(u in 0..5, v in 0..5) x[i + u - 2, j + v - 2{mode}] * x[u, v]"),
    "laplace, a condition": (1, "laplace"),
}
"""How far a window reaches, and what is computed of it."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of a model: its attributes, the shapes of what it takes, and what is constant after them."""

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: tuple[Array, ...] = ()
    weights: int = 0
    """How many of the shapes, the last ones, are weights."""


NODES = (
    Node("pad reflect", "Pad", ((8, 64, 56, 56),), {"mode": "reflect"}, (np.array([0, 0, 1, 1, 0, 0, 1, 1]),)),
    Node("pad edge", "Pad", ((8, 64, 56, 56),), {"mode": "edge"}, (np.array([0, 0, 3, 3, 0, 0, 3, 3]),)),
    Node("pad constant", "Pad", ((8, 64, 56, 56),), {}, (np.array([0, 0, 1, 1, 0, 0, 1, 1]),)),
    Node("pad reflect, image", "Pad", ((1, 3, 1080, 1920),), {"mode": "reflect"}, (np.array([0, 0, 2, 2, 0, 0, 2, 2]),)),
    Node("conv 3x3", "Conv", ((1, 64, 56, 56), (64, 64, 3, 3)), {"pads": [1] * 4}, (), 1),
    Node("conv 3x3 in 8 groups", "Conv", ((1, 64, 56, 56), (64, 8, 3, 3)), {"pads": [1] * 4, "group": 8}, (), 1),
    Node("conv 3x3 depthwise", "Conv", ((1, 64, 56, 56), (64, 1, 3, 3)), {"pads": [1] * 4, "group": 64}, (), 1),
    Node("transposed conv 2x2/2", "ConvTranspose", ((1, 64, 28, 28), (64, 32, 2, 2)), {"strides": [2, 2]}, (), 1),
    Node("transposed conv 4x4/2", "ConvTranspose", ((1, 64, 28, 28), (64, 32, 4, 4)), {"strides": [2, 2], "pads": [1] * 4}, (), 1),
    Node("average pool 3x3", "AveragePool", ((1, 64, 56, 56),), {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}),
    Node("max pool 3x3", "MaxPool", ((1, 64, 56, 56),), {"kernel_shape": [3, 3], "pads": [1] * 4}),
    Node("resize nearest 2x", "Resize", ((1, 64, 56, 56),), {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
         "nearest_mode": "floor"}, (np.array([], np.float32), np.array([1, 1, 2, 2], np.float32))),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each case")
    given = parser.parse_args()
    chosen = tuple(given.cases) or ("",)
    rows = list(windows(given.seconds, chosen))
    if rows:
        print(table(("window", "type", "edge", "us", "over a larger array, us", "times as long"), rows), flush=True)
    rows = list(nodes(given.seconds, chosen))
    if rows:
        print(table(("operator", "us", "onnxruntime, us", "as fast as it"), rows), flush=True)


# ---------------------------------------------------------------- windows


def windows(seconds: float, chosen: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield a row for each window, type and mode."""
    rng = np.random.default_rng(SEED)
    for name, (reach, _) in WINDOWS.items():
        for dtype in ("f32", "u8") if name == "blur 3x3" else ("f32",):
            for mode in (" | clamp", " | reflect", " | 0") if "condition" not in name else ("if",):
                if not name.startswith(chosen):
                    continue
                height, width = 1000, 1003
                x = placed(_random(rng, (height, width), dtype), 0)
                larger = placed(_random(rng, (height + 2 * reach, width + 2 * reach), dtype), 0)
                ours, plain = (
                    tensorlang.parse(text(name, dtype, mode, 0), threads=1),
                    tensorlang.parse(text(name, dtype, "", reach), threads=1),
                )
                outputs = [placed(np.zeros((height, width), x.dtype), PAGE // 2) for _ in range(2)]
                contenders: dict[str, Run] = {
                    "edges": with_threads(1, kernel(ours["window"], [x], outputs[0])),
                    "plain": with_threads(1, kernel(plain["window"], [larger], outputs[1])),
                }
                edges, without = paired(contenders, seconds)
                yield [name, dtype, mode.strip(" |"), _us(edges), _us(without), f"{edges.median / without.median:.2f}"]


def text(name: str, dtype: str, mode: str, reach: int) -> str:
    """Return an operator `window`; where it has no mode, over an array that is larger by `reach` at every edge."""
    at = f" + {reach}" if reach else ""
    head = f"op window(x: {dtype}[H, W]) -> (y: {dtype}[H - {2 * reach}, W - {2 * reach}]) {{\n"
    value = WINDOWS[name][1]
    if name == "blur separable":
        rows = f"    h[i, j] = (x[i, j{at} - 1{mode}] + x[i, j{at}] + x[i, j{at} + 1{mode}]) * 0.3333333"
        rows += f" for i in 0..H, j in 0..W - {2 * reach}\n"
        return head + rows + f"    y[i, j] = (h[i{at} - 1, j{mode}] + h[i{at}, j] + h[i{at} + 1, j{mode}]) * 0.3333333\n}}\n"
    if value == "laplace":
        inner = f"x[i{at} - 1, j{at}] + x[i{at} + 1, j{at}] + x[i{at}, j{at} - 1] + x[i{at}, j{at} + 1] - 4 * x[i{at}, j{at}]"
        cond = "if i >= 1 and i < H - 1 and j >= 1 and j < W - 1 then " if mode else ""
        return head + f"    y[i, j] = {cond}{inner}{' else 0' if mode else ''}\n}}\n"
    shifted = value.replace("x[i ", f"x[i{at} ").replace(", j ", f", j{at} ").format(mode=mode)
    scaled = f"({shifted}) * 0.11" if dtype == "f32" and "sum" not in shifted else shifted
    return head + f"    y[i, j] = {scaled}\n}}\n"


def placed(array: Array, offset: int) -> Array:
    """Return a copy that begins so many bytes behind the beginning of a page. What is stored half a page away from what is loaded next is
    never taken for it, as a processor does that compares the lowest bits of addresses."""
    block = np.empty(array.nbytes + 2 * PAGE, np.uint8)
    start = -block.ctypes.data % PAGE + offset
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return rng.integers(0, 200, shape).astype(np.uint8) if dtype == "u8" else rng.standard_normal(shape, dtype=np.float32)


# ---------------------------------------------------------------- operators of models


def nodes(seconds: float, chosen: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield a row for each operator of models that pads."""
    rng = np.random.default_rng(SEED)
    for node in NODES:
        if not node.name.startswith(chosen):
            continue
        arrays = [rng.standard_normal(s, dtype=np.float32) for s in node.shapes]
        text = _model(node, arrays).SerializeToString()
        feeds = {f"x{k}": a for k, a in enumerate(arrays[: len(arrays) - node.weights])}
        model = tensorlang.compile(text, threads=1)
        output = np.zeros_like(model.run(feeds)["y"])
        task = Task(feeds, text, {}, tuple(arrays[len(feeds) :]), (np.zeros_like(output),))
        contenders: dict[str, Run] = {
            "tensorlang": with_threads(1, model.prepared(feeds, {"y": output})),
            **runs(task, 1, peers(["onnxruntime"])),
        }
        ours, *others = paired(contenders, seconds)
        other = others[0] if others else None
        yield [node.name, _us(ours), _us(other) if other else "–", f"{ratio(ours, other):.2f}" if other else "–"]


def _model(node: Node, arrays: list[Array]) -> onnx.ModelProto:
    inside = len(arrays) - node.weights
    inputs = [helper.make_tensor_value_info(f"x{k}", onnx.TensorProto.FLOAT, list(a.shape)) for k, a in enumerate(arrays[:inside])]
    fixed = [*arrays[inside:], *node.constants]
    weights = [onnx.numpy_helper.from_array(a, f"x{inside + k}") for k, a in enumerate(fixed)]
    made = helper.make_node(node.kind, [f"x{k}" for k in range(inside + len(fixed))], ["y"], **node.attributes)
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([made], "edges", inputs, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _us(timing: Timing) -> str:
    return f"{timing.median * 1e6:.0f}{mark(timing)}"


if __name__ == "__main__":
    main()
