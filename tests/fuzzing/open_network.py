"""Random ONNX graphs whose sizes stay open: shapes are drawn over two symbols, and every operator fits for all values of these.

An extent is a pair, what it is for each of two samples of the symbols: two extents that agree in both are taken for equal, and one whose
numbers are equal for a number. The samples are far apart, so that what is drawn is right for (almost) all sizes; onnxruntime says whether a
combination of sizes is one that a model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Extent: TypeAlias = tuple[int, int]
Shape: TypeAlias = tuple[Extent, ...]
SAMPLES: tuple[dict[str, int], ...] = ({"a": 7, "b": 11}, {"a": 13, "b": 5})
COMBINATIONS = 5


def fixed(n: int) -> Extent:
    return n, n


SYMBOLS: dict[str, Extent] = {name: (SAMPLES[0][name], SAMPLES[1][name]) for name in SAMPLES[0]}


@dataclass(frozen=True)
class OpenNet:
    """`inputs` have shapes over the symbols, `kinds` types of ONNX."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[tuple[str, tuple[int | str, ...], int], ...]
    constants: tuple[TensorProto, ...]
    outputs: tuple[tuple[str, int], ...]

    def model(self) -> bytes:
        taken = [helper.make_tensor_value_info(name, kind, list(shape)) for name, shape, kind in self.inputs]
        found = [helper.make_tensor_value_info(name, kind, None) for name, kind in self.outputs]
        graph = helper.make_graph(list(self.nodes), "open", taken, found, list(self.constants))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()

    def feeds(self, sizes: dict[str, int], seed: int) -> dict[str, Array]:
        """Return small whole numbers for the inputs."""
        rng = np.random.default_rng(seed)
        feeds: dict[str, Array] = {}
        for name, shape, kind in self.inputs:
            extents = tuple(n if isinstance(n, int) else sizes[n] for n in shape)
            feeds[name] = rng.integers(0, 4, extents) if kind == TensorProto.INT64 else rng.integers(-3, 4, extents).astype(np.float32)
        return feeds


@dataclass
class OpenDrawing:
    random: Random
    shapes: dict[str, Shape] = field(default_factory=dict)
    """Of the floats; whole numbers are sizes and indices, which rules make for themselves."""
    nodes: list[NodeProto] = field(default_factory=list)
    inputs: list[tuple[str, tuple[int | str, ...], int]] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    """Values of whole numbers that are returned as well."""
    count: int = 0

    def net(self, size: int) -> OpenNet:
        for _ in range(self.random.randint(1, 3)):
            self.input()
        for _ in range(4 * size):
            if len(self.nodes) < size:
                self.random.choice(RULES)(self)
        read = {name for node in self.nodes for name in node.input}
        made = [name for name in self.shapes if not any(name == i[0] for i in self.inputs)]
        ends = [name for name in made if name not in read] + self.random.sample(made, min(len(made), 1))
        outputs = [*((name, TensorProto.FLOAT) for name in dict.fromkeys(ends)), *((name, TensorProto.INT64) for name in self.whole[:2])]
        return OpenNet(tuple(self.nodes), tuple(self.inputs), tuple(self.constants), tuple(outputs))

    # ---- values

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def extent(self) -> int | str:
        return self.random.choice(("a", "a", "b", "a", "b", 1, 2, 3, 4, 8))

    def input(self, shape: tuple[int | str, ...] | None = None) -> str:
        shape = shape or tuple(self.extent() for _ in range(self.random.choice((1, 2, 2, 3, 3, 4))))
        name = self.fresh("x")
        self.inputs.append((name, shape, TensorProto.FLOAT))
        self.shapes[name] = tuple(fixed(n) if isinstance(n, int) else SYMBOLS[n] for n in shape)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def constant(self, array: Array) -> str:
        name = self.fresh("c")
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(np.random.default_rng(self.random.getrandbits(32)).integers(-2, 3, shape).astype(np.float32))

    def add(self, kind: str, inputs: Sequence[str], shape: Shape | None = None, **attrs: Any) -> str:
        """Append a node; with a `shape`, its result is a value that others may read."""
        name = self.fresh("v")
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attrs))
        if shape is not None and all(0 < prod(n[k] for n in shape) < 20000 for k in (0, 1)):
            self.shapes[name] = shape
        return name

    def some(self, least: int = 0, most: int = 9) -> str | None:
        found = [name for name, shape in self.shapes.items() if least <= len(shape) <= most]
        return self.random.choice(found[-4:] if self.random.random() < 0.6 else found) if found else None

    def axis(self, x: str) -> int:
        return self.random.randrange(len(self.shapes[x]))

    def size(self, x: str, axis: int) -> str:
        """Return a dimension as a vector of one element."""
        if self.random.random() < 0.5:
            return self.add("Shape", [x], start=axis, end=axis + 1)
        found = self.add("Gather", [self.add("Shape", [x]), self.constant(np.array(axis, np.int64))])
        return self.add("Unsqueeze", [found, self.ints(0)])

    def shape_of(self, x: str, axes: Sequence[int]) -> str:
        return self.add("Concat", [self.size(x, axis) for axis in axes], axis=0)


Rule: TypeAlias = Callable[[OpenDrawing], None]


def _unary(d: OpenDrawing) -> None:
    x = d.some()
    if x is not None:
        d.add(d.random.choice(("Relu", "Neg", "Abs", "Tanh", "Sigmoid")), [x], d.shapes[x])


def _binary(d: OpenDrawing) -> None:
    x = d.some()
    if x is None:
        return
    fitting = [(y, s) for y, other in d.shapes.items() if (s := _together(d.shapes[x], other)) is not None]
    y, shape = d.random.choice(fitting)
    d.add(d.random.choice(("Add", "Sub", "Mul", "Max", "Min")), [x, y], shape)


def _together(a: Shape, b: Shape) -> Shape | None:
    """Return the shape of two values broadcast, None where they do not fit."""
    rank, one = max(len(a), len(b)), fixed(1)
    pairs = [(m, n) for m, n in zip((one,) * (rank - len(a)) + a, (one,) * (rank - len(b)) + b, strict=True)]
    return tuple(n if m == one else m for m, n in pairs) if all(m == n or one in (m, n) for m, n in pairs) else None


def _row(d: OpenDrawing) -> None:
    x = d.some(1)
    if x is not None and d.shapes[x][-1][0] == d.shapes[x][-1][1]:
        d.add("Mul", [x, d.weight(d.shapes[x][-1][0])], d.shapes[x])


def _matmul(d: OpenDrawing) -> None:
    x = d.some(2)
    if x is None:
        return
    *outer, k = d.shapes[x]
    if k[0] == k[1]:
        n = d.random.choice((1, 3, 8, 16))
        d.add("MatMul", [x, d.weight(k[0], n)], (*outer, fixed(n)))
    else:
        swapped = d.add("Transpose", [x], perm=[*range(len(outer) - 1), len(outer), len(outer) - 1])
        d.add("MatMul", [x, swapped], (*outer, outer[-1]))


def _transpose(d: OpenDrawing) -> None:
    x = d.some(2)
    if x is not None:
        perm = d.random.sample(range(len(d.shapes[x])), len(d.shapes[x]))
        d.add("Transpose", [x], tuple(d.shapes[x][k] for k in perm), perm=perm)


def _concat(d: OpenDrawing) -> None:
    x = d.some(1)
    if x is None:
        return
    axis, shape = d.axis(x), d.shapes[x]
    others = [y for y, s in d.shapes.items() if len(s) == len(shape) and all(k == axis or s[k] == shape[k] for k in range(len(shape)))]
    parts = [x, *(d.random.choice(others) for _ in range(d.random.choice((1, 1, 2))))]
    total = (sum(d.shapes[p][axis][0] for p in parts), sum(d.shapes[p][axis][1] for p in parts))
    d.add("Concat", parts, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)


def _slice(d: OpenDrawing) -> None:
    x = d.some(1)
    if x is None:
        return
    axis, shape = d.axis(x), d.shapes[x]
    n = shape[axis]
    if d.random.random() < 0.5:  # the first half
        end = d.add("Div", [d.size(x, axis), d.ints(2)])
        d.add("Slice", [x, d.ints(0), end, d.ints(axis)], (*shape[:axis], (n[0] // 2, n[1] // 2), *shape[axis + 1 :]))
    elif min(n) > 1:
        start = d.random.choice((1, -1))
        kept = (n[0] - 1, n[1] - 1) if start == 1 else fixed(1)
        d.add("Slice", [x, d.ints(start), d.ints(2**40), d.ints(axis)], (*shape[:axis], kept, *shape[axis + 1 :]))


def _flatten(d: OpenDrawing) -> None:
    x = d.some(2)
    if x is None:
        return
    shape = d.shapes[x]
    axis = d.random.randrange(1, len(shape))
    flat = [(prod(n[0] for n in part), prod(n[1] for n in part)) for part in (shape[:axis], shape[axis:])]
    if d.random.random() < 0.4:
        d.add("Flatten", [x], tuple(flat), axis=axis)
    else:
        target = d.add("Concat", [d.ints(-1), *(d.size(x, k) for k in range(axis, len(shape)))], axis=0)
        d.add("Reshape", [x, target], (flat[0], *shape[axis:]))


def _split_heads(d: OpenDrawing) -> None:
    x = d.some(2)
    if x is None:
        return
    *outer, last = d.shapes[x]
    if last[0] == last[1] and last[0] % 2 == 0:
        target = d.add("Concat", [*(d.size(x, k) for k in range(len(outer))), d.ints(2, last[0] // 2)], axis=0)
        d.add("Reshape", [x, target], (*outer, fixed(2), fixed(last[0] // 2)))


def _reduce(d: OpenDrawing) -> None:
    x = d.some(1)
    if x is None:
        return
    axis, shape, keep = d.axis(x), d.shapes[x], d.random.choice((0, 1))
    kept = (fixed(1),) * keep
    d.add(
        d.random.choice(("ReduceSum", "ReduceSum", "ReduceL1")),
        [x, d.ints(axis)],
        (*shape[:axis], *kept, *shape[axis + 1 :]),
        keepdims=keep,
    )


def _normalise(d: OpenDrawing) -> None:
    x = d.some(1)
    if x is None:
        return
    last = d.shapes[x][-1]
    if last[0] == last[1] and last[0] > 1 and d.random.random() < 0.5:
        d.add("LayerNormalization", [x, d.weight(last[0]), d.weight(last[0])], d.shapes[x], axis=-1)
    else:
        d.add("Softmax", [x], d.shapes[x], axis=d.axis(x))


def _gather(d: OpenDrawing) -> None:
    x = d.some(1)
    if x is None:
        return
    shape = d.shapes[x]
    axes = [k for k, n in enumerate(shape) if n[0] == n[1] and n[0] >= 4]
    if axes:
        axis, ids = d.random.choice(axes), d.fresh("i")
        extent = d.extent()
        d.inputs.append((ids, (extent,), TensorProto.INT64))
        many = fixed(extent) if isinstance(extent, int) else SYMBOLS[extent]
        d.add("Gather", [x, ids], (*shape[:axis], many, *shape[axis + 1 :]), axis=axis)


def _expand(d: OpenDrawing) -> None:
    x, like = d.some(1), d.some(1, 2)
    if x is None or like is None:
        return
    shape = d.shapes[x]
    axis, by = d.axis(x), d.axis(like)
    if shape[axis] == fixed(1):
        target = [d.size(like, by) if k == axis else d.size(x, k) for k in range(len(shape))]
        d.add("Expand", [x, d.add("Concat", target, axis=0)], (*shape[:axis], d.shapes[like][by], *shape[axis + 1 :]))
    else:
        repeated = tuple((2 * n[0], 2 * n[1]) if k == axis else n for k, n in enumerate(shape))
        d.add("Tile", [x, d.ints(*(2 if k == axis else 1 for k in range(len(shape))))], repeated)


def _pad(d: OpenDrawing) -> None:
    x = d.some(1, 3)
    if x is None:
        return
    axis, shape = d.axis(x), d.shapes[x]
    before, after = [int(k == axis) for k in range(len(shape))], [2 * int(k == axis) for k in range(len(shape))]
    n = shape[axis]
    d.add("Pad", [x, d.ints(*before, *after)], (*shape[:axis], (n[0] + 3, n[1] + 3), *shape[axis + 1 :]), mode="constant")


def _range(d: OpenDrawing) -> None:
    x = d.some(1)
    if x is None:
        return
    axis = d.axis(x)
    one = d.constant(np.array(1, np.int64))
    length = d.add("Squeeze", [d.size(x, axis), d.ints(0)])
    made = d.add("Cast", [d.add("Range", [d.constant(np.array(0, np.int64)), length, one])], (d.shapes[x][axis],), to=TensorProto.FLOAT)
    if axis == len(d.shapes[x]) - 1:
        d.add("Add", [x, made], d.shapes[x])


def _where(d: OpenDrawing) -> None:
    x = d.some()
    if x is not None:
        chosen = d.add("Greater", [x, d.constant(np.float32(0))])
        d.add("Where", [chosen, x, d.constant(np.float32(-1))], d.shapes[x])


def _sorted(d: OpenDrawing) -> None:
    x = d.some(1, 3)
    if x is None:
        return
    axis, shape = d.axis(x), d.shapes[x]
    match d.random.randrange(4):
        case 0:
            d.add("CumSum", [x, d.constant(np.array(axis, np.int64))], shape)
        case 1:
            d.whole.append(d.add("ArgMax", [x], axis=axis, keepdims=0))
        case 2 if min(shape[axis]) >= 2:
            d.whole.append(d.add("Shape", [x]))
        case _:
            chosen = d.add("Greater", [x, d.constant(np.float32(0))])
            d.whole.append(d.add("NonZero", [chosen]))


def _windows(d: OpenDrawing) -> None:
    x = d.some(3, 4)
    if x is None:
        return
    batch, channels, *spatial = d.shapes[x]
    if channels[0] != channels[1] or min(map(min, spatial)) < 2:
        return
    stride, ones = d.random.choice((1, 2)), [1] * len(spatial)
    if d.random.random() < 0.6:
        many = d.random.choice((2, 4))
        made = tuple(((n[0] - 1) // stride + 1, (n[1] - 1) // stride + 1) for n in spatial)
        weights = d.weight(many, channels[0], *(3 for _ in spatial))
        d.add("Conv", [x, weights], (batch, fixed(many), *made), strides=[stride * k for k in ones], pads=[1] * (2 * len(spatial)))
    else:
        made = tuple(((n[0] - 2) // stride + 1, (n[1] - 2) // stride + 1) for n in spatial)
        d.add("MaxPool", [x], (batch, channels, *made), kernel_shape=[2 * k for k in ones], strides=[stride * k for k in ones])


RULES: tuple[Rule, ...] = (
    *(_unary, _unary, _binary, _binary, _binary, _row, _matmul, _matmul, _transpose, _concat, _concat, _slice, _slice),
    *(_flatten, _flatten, _split_heads, _reduce, _reduce, _normalise, _gather, _expand, _expand, _pad, _range, _where, _sorted, _windows),
)
