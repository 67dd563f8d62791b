"""Random models of mixed types whose results passes must not change: small whole numbers, so that sums come out the same in any order.

What passes have to keep apart is likely in them: casts that widen and narrow, splits that are concatenated again, values with several
readers, values that are returned and read, inputs and constants that are returned, constants that nodes share, views, moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

COLUMNS = 64
"""Elements of a row: then rows begin where values may, whatever their type."""
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
NARROW = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
WHOLE = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32)
TYPES = (*FLOATS, *NARROW, *WHOLE, TensorProto.BOOL)


@dataclass(frozen=True)
class Known:
    """A value: its name, element type, and shape."""

    name: str
    dtype: int
    shape: tuple[int, ...]


@dataclass
class Builder:
    random: Random
    nodes: list[NodeProto] = field(default_factory=list)
    inputs: list[Known] = field(default_factory=list)
    values: list[Known] = field(default_factory=list)
    constants: dict[Known, Array] = field(default_factory=dict)

    def add(self, op: str, inputs: list[Known], *results: tuple[int, tuple[int, ...]], **attributes: Any) -> list[Known]:
        made = [Known(f"v{len(self.nodes)}_{k}", dtype, shape) for k, (dtype, shape) in enumerate(results)]
        self.nodes.append(helper.make_node(op, [v.name for v in inputs], [v.name for v in made], **attributes))
        self.values += made
        return made

    def constant(self, dtype: int, shape: tuple[int, ...], array: Array | None = None) -> Known:
        """Return a constant of that type and shape, often one that others read too."""
        alike = [c for c in self.constants if (c.dtype, c.shape) == (dtype, shape)]
        if alike and array is None and self.random.random() < 0.7:
            return self.random.choice(alike)
        made = Known(f"c{len(self.constants)}", dtype, shape)
        self.constants[made] = numbers(self.random, dtype, shape) if array is None else array
        return made

    def shaped(self, *sizes: int) -> Known:
        """Return a constant that says a shape or lengths."""
        return self.constant(TensorProto.INT64, (len(sizes),), np.array(sizes, np.int64))

    def value(self, dtypes: tuple[int, ...] = TYPES) -> Known:
        """Return a value of one of the types, cast to one where there is none."""
        found = [v for v in self.values if v.dtype in dtypes]
        if found and self.random.random() < 0.9:
            return self.random.choice(found[-8:] if self.random.random() < 0.6 else found)
        source = self.random.choice(self.values)
        [made] = self.add("Cast", [source], (dtype := self.random.choice(dtypes), source.shape), to=dtype)
        return made

    def partner(self, value: Known) -> Known:
        """Return a value or a constant of the same type and shape, or a constant row."""
        found = [v for v in self.values if (v.dtype, v.shape) == (value.dtype, value.shape)]
        kind = self.random.random()
        if kind < 0.6:
            return self.random.choice(found)
        return self.constant(value.dtype, value.shape if kind < 0.8 else value.shape[-1:])


def numbers(random: Random, dtype: int, shape: tuple[int, ...]) -> Array:
    """Return small whole numbers of an element type."""
    low = 0 if dtype in (TensorProto.UINT8, TensorProto.BOOL) else -3
    high = 2 if dtype == TensorProto.BOOL else 4
    drawn = np.random.default_rng(random.getrandbits(32)).integers(low, high, shape)
    return drawn.astype(helper.tensor_dtype_to_np_dtype(dtype))


def _unary(b: Builder) -> None:
    x = b.value((*FLOATS, *WHOLE))
    ops = ["Abs", "Identity", "Sign", *(["Relu", "Neg"] if x.dtype != TensorProto.UINT8 else [])]
    b.add(b.random.choice(ops), [x], (x.dtype, x.shape))


def _cast(b: Builder) -> None:
    x = b.value()
    dtype = b.random.choice(TYPES)
    b.add("Cast", [x], (dtype, x.shape), to=dtype)


def _binary(b: Builder) -> None:
    x = b.value((*FLOATS, *WHOLE))
    pair = [x, b.partner(x)]
    b.add(b.random.choice(["Add", "Sub", "Max", "Min"]), pair[:: b.random.choice([1, -1])], (x.dtype, x.shape))


def _compare(b: Builder) -> None:
    x = b.value((*FLOATS, *WHOLE))
    b.add(b.random.choice(["Greater", "Equal", "LessOrEqual"]), [x, b.partner(x)], (TensorProto.BOOL, x.shape))


def _where(b: Builder) -> None:
    x = b.value((*FLOATS, *WHOLE))
    [mask] = b.add("Greater", [x, b.partner(x)], (TensorProto.BOOL, x.shape))
    found = [v for v in b.values if v.dtype == TensorProto.BOOL and v.shape == x.shape]
    b.add("Where", [b.random.choice([mask, *found]), x, b.partner(x)], (x.dtype, x.shape))


def _split(b: Builder) -> None:
    found = [v for v in b.values if len(v.shape) >= 2 and (v.shape[0] > 1 or v.shape[1] % 2 == 0)]
    if not found:
        return
    x = b.random.choice(found)
    axis = 0 if x.shape[0] > 1 and (b.random.random() < 0.8 or x.shape[1] % 2) else 1
    first = b.random.randrange(1, x.shape[axis]) if axis == 0 else x.shape[1] // 2
    sizes = (first, x.shape[axis] - first)
    shapes = [(n, *x.shape[1:]) if axis == 0 else (x.shape[0], n, *x.shape[2:]) for n in sizes]
    parts = b.add("Split", [x, b.shaped(*sizes)], *((x.dtype, s) for s in shapes), axis=axis)
    if b.random.random() < 0.7:
        others = [v for v in b.values if v.dtype == x.dtype and len(v.shape) == len(x.shape) and v.shape[1:] == parts[0].shape[1:]]
        kept = parts if b.random.random() < 0.5 or axis else [parts[0]]
        more = b.random.sample(others, min(len(others), b.random.randrange(3))) if axis == 0 else []
        _concat_of(b, [*kept[:: b.random.choice([1, -1])], *more], axis)


def _concat(b: Builder) -> None:
    x = b.value()
    same = [v for v in b.values if v.dtype == x.dtype and len(v.shape) == len(x.shape) and v.shape[1:] == x.shape[1:]]
    found = [b.random.choice(same) for _ in range(b.random.randrange(1, 4))]
    _concat_of(b, [x, *found, *([b.constant(x.dtype, x.shape)] if b.random.random() < 0.2 else [])], 0)


def _concat_of(b: Builder, parts: list[Known], axis: int) -> None:
    total = sum(v.shape[axis] for v in parts)
    if total > 24 * (1 if axis == 0 else COLUMNS):
        return
    shape = tuple(total if k == axis else n for k, n in enumerate(parts[0].shape))
    b.add("Concat", parts, (parts[0].dtype, shape), axis=axis)


def _view(b: Builder) -> None:
    x = b.value()
    count = int(np.prod(x.shape))
    if count % COLUMNS:
        return
    shape = b.random.choice([(count // COLUMNS, COLUMNS), (count,), (1, *x.shape), (count // 16, 4, 4)])
    b.add("Reshape", [x, b.shaped(*shape)], (x.dtype, shape))


def _transpose(b: Builder) -> None:
    x = b.value()
    perm = b.random.sample(range(len(x.shape)), len(x.shape))
    b.add("Transpose", [x], (x.dtype, tuple(x.shape[k] for k in perm)), perm=perm)


def _product(b: Builder) -> None:
    """Rows times a constant that has few numbers in each column, of numbers that are small."""
    found = [v for v in b.values if v.dtype == TensorProto.FLOAT and len(v.shape) == 2]
    if not found:
        return
    x = b.random.choice(found)
    limits = [b.constant(TensorProto.FLOAT, (), np.array(n, np.float32)) for n in (-8, 8)]
    [small] = b.add("Clip", [x, *limits], (x.dtype, x.shape))
    width = b.random.choice([COLUMNS, COLUMNS, 16])
    b.add("MatMul", [small, b.constant(x.dtype, (x.shape[1], width))], (x.dtype, (x.shape[0], width)))


def _greatest(b: Builder) -> None:
    x = b.value((TensorProto.FLOAT, TensorProto.FLOAT16, *WHOLE))
    axis = b.random.randrange(len(x.shape))
    shape = tuple(1 if k == axis else n for k, n in enumerate(x.shape))
    axes = b.shaped(axis)
    [top] = b.add("ReduceMax", [x, axes], (x.dtype, shape), keepdims=1)
    if b.random.random() < 0.5:
        b.add("Sub", [x, top], (x.dtype, x.shape))


STEPS = (_unary, _cast, _cast, _binary, _binary, _compare, _where, _split, _split, _concat, _view, _transpose, _product, _greatest)


def random_model(seed: int) -> tuple[ModelProto, dict[str, Array]]:
    """Return a model and its inputs."""
    b = Builder(Random(seed))
    feeds = {}
    for k in range(b.random.randrange(1, 4)):
        given = Known(f"x{k}", b.random.choice(TYPES if k else FLOATS), (b.random.randrange(1, 5), COLUMNS))
        b.inputs.append(given)
        b.values.append(given)
        feeds[given.name] = numbers(b.random, given.dtype, given.shape)
    for _ in range(b.random.randrange(3, 18)):
        b.random.choice(STEPS)(b)
    read = {name for node in b.nodes for name in node.input}
    ends = [v for v in b.values if v.name not in read]
    others = [v for v in [*b.values, *b.constants] if v not in ends]
    returned = [*b.random.sample(ends, min(len(ends), 4)), *b.random.sample(others, min(len(others), b.random.randrange(3)))]
    infos = [helper.make_tensor_value_info(v.name, v.dtype, v.shape) for v in b.inputs]
    outs = [helper.make_tensor_value_info(v.name, v.dtype, v.shape) for v in returned]
    stored = [numpy_helper.from_array(a, c.name) for c, a in b.constants.items()]
    graph = helper.make_graph(b.nodes, f"seed_{seed}", infos, outs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), feeds
