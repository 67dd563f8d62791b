"""Nodes of ONNX to measure, drawn at random: every operator with shapes of real models, and with odd ones.

A kind is an operator with a way to draw its inputs; `drawn(seed, rounds)` draws each kind so many times, the same for the same seed. Two
thirds of the shapes are those of layers of known models, one third has extents that nobody would choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array: TypeAlias = np.ndarray[Any, Any]
OPSET = 23

IMAGES = (
    (3, 224), (16, 112), (32, 112), (24, 56), (64, 56), (96, 56), (256, 56), (40, 28), (128, 28), (144, 28), (512, 28),
    (80, 14), (112, 14), (256, 14), (672, 14), (1024, 14), (320, 7), (512, 7), (960, 7), (1280, 7), (64, 80), (128, 40), (256, 20),
)  # fmt: skip
"""Channels and extents of layers of ResNet, MobileNet, EfficientNet and YOLO."""
TOKENS = (
    (1, 768), (8, 1024), (64, 384), (77, 512), (128, 768), (197, 192), (197, 768), (256, 512), (384, 1024), (50, 2048),
    (128, 3072), (1024, 256), (1, 4096), (3136, 96), (49, 1280),
)  # fmt: skip
"""Rows and columns of layers of BERT, GPT-2, ViT, Swin, CLIP and Whisper."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A node with its inputs, of which the last `weights` are constants of the model; graphs within the node, and nobody else, read the
    last `outer` arrays."""

    kind: str
    group: str
    arrays: tuple[Array, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    weights: int = 0
    outputs: int = 1
    domain: str = ""
    outer: int = 0
    opset: int = OPSET

    @property
    def name(self) -> str:
        """Return what tells it from others: its operator, shapes, types other than f32, and attributes that are short."""
        short = {k: v for k, v in self.attributes.items() if not isinstance(v, onnx.GraphProto)}
        said = [f"{k}={v}" for k, v in short.items() if not isinstance(v, list) or len(set(v)) > 1 or set(v) - {0, 1}]
        return " ".join([self.kind, *map(_written, self.arrays), *said])

    def model(self) -> onnx.ModelProto:
        """Return a model of this node alone."""
        inside = len(self.arrays) - self.weights
        names = [f"x{k}" if a.size or k < 1 else "" for k, a in enumerate(self.arrays)]
        kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in self.arrays]
        inputs = [helper.make_tensor_value_info(names[k], kinds[k], list(a.shape)) for k, a in enumerate(self.arrays[:inside])]
        constants = [numpy_helper.from_array(a, n) for n, a in list(zip(names, self.arrays, strict=True))[inside:] if n]
        given = names[: len(names) - self.outer]
        node = helper.make_node(self.kind, given, [f"y{k}" for k in range(self.outputs)], domain=self.domain, **self.attributes)
        results = [helper.make_empty_tensor_value_info(f"y{k}") for k in range(self.outputs)]
        graph = helper.make_graph([node], "drawn", inputs, results, constants)
        domains = [helper.make_opsetid("", self.opset), *([helper.make_opsetid(self.domain, 1)] if self.domain else [])]
        made = helper.make_model(graph, opset_imports=domains, ir_version=10)
        return onnx.shape_inference.infer_shapes(made, data_prop=True)


def _written(array: Array) -> str:
    kind = "" if array.dtype == np.float32 else f":{array.dtype}"
    return ("x".join(map(str, array.shape)) or "()") + kind


def drawn(seed: int, rounds: int = 3, kinds: Mapping[str, Kind] | None = None) -> Iterator[Drawn]:
    """Yield `rounds` nodes of each of `kinds`, by default `KINDS`."""
    for turn in range(rounds):
        for name, (group, draw) in (KINDS if kinds is None else kinds).items():
            d = Draw(np.random.default_rng([seed, turn, crc32(name.encode())]))
            found = draw(d)
            yield Drawn(name.split()[0], group, **found)


class Draw:
    """Shapes and arrays, drawn by one generator. `odd`: whether extents are odd ones."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.odd = rng.random() < 1 / 3

    def one(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def extent(self, usual: int) -> int:
        """Return an extent, or one near it that no vector divides."""
        return max(1, usual + int(self.rng.integers(-usual // 3 - 1, usual // 3 + 2))) if self.odd else usual

    def image(self, least: int = 1) -> tuple[int, int, int, int]:
        c, n = self.one(*(i for i in IMAGES if i[1] >= least))
        return 1, self.extent(c), max(least, self.extent(n)), max(least, self.extent(n))

    def tokens(self) -> tuple[int, int]:
        rows, columns = self.one(*TOKENS)
        return self.extent(rows), self.extent(columns)

    def shape(self) -> tuple[int, ...]:
        return self.image() if self.rng.random() < 0.5 else self.tokens()

    def normal(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape, dtype=np.float32)

    def near(self, low: float, high: float, *shape: int) -> Array:
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def whole(self, low: int, high: int, *shape: int, dtype: Any = np.int64) -> Array:
        return self.rng.integers(low, high, shape).astype(dtype)

    def bools(self, *shape: int) -> Array:
        return self.rng.random(shape) < 0.5


Found: TypeAlias = dict[str, Any]
"""What `Drawn` is made of, but its operator and group."""


def node(*arrays: Array, weights: int = 0, outputs: int = 1, **attributes: Any) -> Found:
    return {"arrays": arrays, "attributes": attributes, "weights": weights, "outputs": outputs}


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


# ---------------------------------------------------------------- elements


def unary(low: float = -4.0, high: float = 4.0, **attributes: Any) -> Callable[[Draw], Found]:
    return lambda d: node(d.near(low, high, *d.shape()), **attributes)


def binary(low: float = -4.0, high: float = 4.0, **attributes: Any) -> Callable[[Draw], Found]:
    """Two operands of one shape, or of which the second is a row, a column, a channel or one number."""

    def draw(d: Draw) -> Found:
        shape = d.shape()
        channel = (shape[1], 1, 1) if len(shape) == 4 else (shape[0], 1)
        return node(d.near(low, high, *shape), d.near(low, high, *d.one(shape, shape, channel, shape[-1:], ())), **attributes)

    return draw


def _where(d: Draw) -> Found:
    shape = d.shape()
    return node(d.bools(*d.one(shape, shape[-1:])), d.normal(*shape), d.normal(*d.one(shape, ())))


def _clip(d: Draw) -> Found:
    return node(d.normal(*d.shape()), np.array(0, np.float32), np.array(6, np.float32), weights=2)


def _cast(d: Draw) -> Found:
    source, to = d.one(
        ("f4", "INT64"), ("i8", "FLOAT"), ("f4", "INT32"), ("f4", "FLOAT16"), ("?", "FLOAT"), ("i4", "INT64"), ("u1", "FLOAT")
    )
    x = d.bools(*d.shape()) if source == "?" else d.near(0, 100, *d.shape()).astype(source)
    return node(x, to=getattr(onnx.TensorProto, to))


def whole_binary(low: int = 1, high: int = 1000, dtype: Any = np.int64, **attributes: Any) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        shape = d.shape()
        return node(d.whole(low, high, *shape, dtype=dtype), d.whole(low, high, *d.one(shape, ()), dtype=dtype), **attributes)

    return draw


def _logical(d: Draw) -> Found:
    shape = d.shape()
    return node(d.bools(*shape), d.bools(*d.one(shape, shape[-1:])))


def _several(d: Draw) -> Found:
    shape = d.shape()
    return node(*(d.normal(*shape) for _ in range(d.one(2, 3, 4))))


def _prelu(d: Draw) -> Found:
    shape = d.image()
    return node(d.normal(*shape), d.normal(shape[1], 1, 1), weights=1)


# ---------------------------------------------------------------- reductions, rows


def reduced(low: float = -4.0, high: float = 4.0) -> Callable[[Draw], Found]:
    """A reduction over the last axis, the first, the channels, or all points of an image."""

    def draw(d: Draw) -> Found:
        shape, axes = d.one(
            (d.tokens(), [1]), (d.tokens(), [0]), (d.image(), [2, 3]), (d.image(), [1]), ((8, *d.tokens()), [1]), (d.shape(), [])
        )
        shape = shape if np.prod(shape) < 2e6 else shape[1:] if shape[0] == 8 else shape
        axes = axes if len(shape) > max(axes, default=0) else [0]
        return node(d.near(low, high, *shape), *([ints(*axes)] if axes else []), weights=bool(axes), keepdims=int(d.one(0, 1)))

    return draw


def _extreme(d: Draw) -> Found:
    shape, axis = d.one((d.tokens(), 1), (d.tokens(), 0), (d.image(), 1), ((1, 50257), 1), (d.image(), 3), ((d.extent(1000), 1000), 1))
    return node(d.normal(*shape), axis=axis, keepdims=int(d.one(0, 1)))


def _along(d: Draw) -> Found:
    heads, n = d.one((12, 128), (8, 197), (1, 1024), (12, 64))
    shape, axis = d.one((d.tokens(), -1), ((1, heads, d.extent(n), d.extent(n)), -1), (d.image(), 1), (d.tokens(), 0))
    return node(d.normal(*shape), axis=axis)


def _layer_norm(d: Draw) -> Found:
    m, n = d.tokens()
    return node(d.normal(1, m, n), d.normal(n), d.normal(n), weights=2, epsilon=1e-5)


def _rms_norm(d: Draw) -> Found:
    m, n = d.tokens()
    return node(d.normal(1, m, n), d.normal(n), weights=1)


def _channel_norm(d: Draw) -> Found:
    shape = d.image(7)
    return node(d.normal(*shape), d.normal(shape[1]), d.normal(shape[1]), weights=2)


def _batch_norm(d: Draw) -> Found:
    shape = d.image()
    c = shape[1]
    return node(d.normal(*shape), d.normal(c), d.normal(c), d.normal(c), d.near(0.5, 1, c), weights=4)


def _group_norm(d: Draw) -> Found:
    groups, c, n = d.one((8, 64, 56), (32, 256, 28), (32, 320, 32), (4, 36, 19), (32, 512, 14))
    return node(d.normal(1, c, n, n), d.normal(c), d.normal(c), weights=2, num_groups=groups)


def _lrn(d: Draw) -> Found:
    return node(d.normal(*d.one((1, 64, 56, 56), (1, 96, 27, 27), (1, 37, 29, 31))), size=5, alpha=1e-4, beta=0.75)


# ---------------------------------------------------------------- products


def _matmul(d: Draw) -> Found:
    m, k, n = d.one((128, 768, 768), (197, 768, 3072), (1, 4096, 1024), (4, 4096, 1024), (16, 1024, 1024), (512, 512, 512), (49, 1280, 320))
    m, k, n = d.extent(m), d.extent(k), d.extent(n)
    return node(d.normal(m, k), d.normal(k, n), weights=int(d.one(0, 1)))


def _batched(d: Draw) -> Found:
    b, m, k, n = d.one((12, 128, 64, 128), (12, 128, 128, 64), (8, 197, 197, 48), (64, 49, 32, 49), (1, 1, 64, 1024), (3, 300, 40, 300))
    m, k, n = d.extent(m), d.extent(k), d.extent(n)
    return node(d.normal(b, m, k), d.normal(b, k, n))


def _gemm(d: Draw) -> Found:
    m, k, n = d.one((128, 768, 768), (1, 1280, 1000), (1, 2048, 1000), (32, 512, 2048), (64, 256, 10), (384, 384, 384))
    m, k, n, ta, tb = d.extent(m), d.extent(k), d.extent(n), int(d.one(0, 0, 1)), int(d.one(0, 1))
    a, b = (k, m) if ta else (m, k), (n, k) if tb else (k, n)
    return node(d.normal(*a), d.normal(*b), d.normal(n), transA=ta, transB=tb, weights=int(d.one(1, 2, 0)))


def _einsum(d: Draw) -> Found:
    n = d.extent(64)
    equation, *shapes = d.one(
        ("bhid,bhjd->bhij", (1, 12, 2 * n, 64), (1, 12, 2 * n, 64)), ("ij,jk->ik", (4 * n, 4 * n), (4 * n, 4 * n)),
        ("ii->", (8 * n, 8 * n)), ("ij,ij->", (8 * n, 8 * n), (8 * n, 8 * n)), ("ij,ji->", (4 * n, 4 * n), (4 * n, 4 * n)),
        ("bij,bjk->bik", (8, n, 2 * n), (8, 2 * n, n)),
        ("i,j->ij", (16 * n,), (8 * n,)), ("ijk->kji", (n, 48, 32)), ("bi,bj,ij->b", (32, n), (32, n), (n, n)),
        ("nhwc,hkc->nhwk", (1, 28, 28, n), (28, 27, n)), ("bij,bij->bi", (8, n, n), (8, n, n)), ("ij->j", (8 * n, 4 * n)),
    )  # fmt: skip
    return node(*(d.normal(*s) for s in shapes), equation=equation)


# ---------------------------------------------------------------- windows


def convolved(window: int, group: Callable[[int], int], dilation: int = 1, strides: tuple[int, ...] = (1, 2)) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        _, c, h, w = d.image(max(7, window * dilation))
        c = c if c < 3 * h * 8 else 128
        groups = group(c)
        c = max(groups, c // groups * groups)
        f = c if groups == c else max(groups, d.one(c, 2 * c, c // 2) // groups * groups)
        while c // groups * f * window**2 * h * w > 3e8:
            h, w = h // 2, w // 2
        pad = dilation * (window // 2)
        h, w = max(h, dilation * (window - 1) + 1), max(w, dilation * (window - 1) + 1)
        shape = {"kernel_shape": [window] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2, "strides": [d.one(*strides)] * 2}
        return node(d.normal(1, c, h, w), d.normal(f, c // groups, window, window), d.normal(f), weights=2, group=groups, **shape)

    return draw


def _conv_1d(d: Draw) -> Found:
    c, f, n, window, stride, group = d.one((80, 384, 1500, 3, 1, 1), (384, 384, 500, 3, 2, 1), (64, 64, 4000, 5, 1, 64),
                                           (1, 64, 16000, 10, 5, 1),
                                           (256, 256, 200, 31, 1, 256), (32, 48, 777, 7, 1, 1))  # fmt: skip
    n, pad = d.extent(n), window // 2
    return node(d.normal(1, c, n), d.normal(f, c // group, window), d.normal(f), weights=2, group=group, pads=[pad, pad], strides=[stride])


def _conv_3d(d: Draw) -> Found:
    c, f, n, window = d.one((3, 32, 24, 3), (16, 16, 16, 3), (32, 32, 10, 3), (8, 24, 13, 1))
    n, pad = d.extent(n), window // 2
    return node(d.normal(1, c, n, n, n), d.normal(f, c, window, window, window), d.normal(f), weights=2, pads=[pad] * 6)


def _transposed(d: Draw) -> Found:
    c, f, n, window, stride, pad = d.one((64, 32, 28, 2, 2, 0), (128, 64, 28, 4, 2, 1), (256, 128, 14, 3, 2, 1), (21, 21, 20, 16, 8, 4),
                                         (96, 48, 17, 2, 2, 0), (32, 16, 30, 5, 1, 2), (100, 512, 1, 4, 1, 0))  # fmt: skip
    n = d.extent(n)
    w = d.normal(c, f, window, window)
    return node(d.normal(1, c, n, n), w, d.normal(f), weights=2, strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[window] * 2)


def pooled(**attributes: Any) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        window, stride, pad = d.one((3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 1, 2), (7, 7, 0))
        return node(d.normal(*d.image(14)), kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4, **attributes)

    return draw


def _image(d: Draw) -> Found:
    return node(d.normal(*d.image()))


# ---------------------------------------------------------------- recurrences, attention


def recurrent(gates: int, **attributes: Any) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        steps, batch, inner, hidden = d.one((32, 1, 128, 128), (64, 16, 64, 128), (20, 1, 512, 256), (50, 4, 80, 96), (28, 32, 28, 64))
        steps, hidden = d.extent(steps), d.extent(hidden)
        w, r = d.normal(1, gates * hidden, inner) * np.float32(0.1), d.normal(1, gates * hidden, hidden) * np.float32(0.1)
        return node(
            d.normal(steps, batch, inner), w, r, d.normal(1, 2 * gates * hidden), weights=3, outputs=2, hidden_size=hidden, **attributes
        )

    return draw


def _attention(d: Draw) -> Found:
    heads, n, e = d.one((12, 128, 64), (8, 197, 32), (16, 64, 64), (4, 300, 48), (12, 1, 64))
    m = d.extent(max(n, 128))
    return node(d.normal(1, heads, d.extent(n), e), d.normal(1, heads, m, e), d.normal(1, heads, m, e))


# ---------------------------------------------------------------- moving


def _transpose(d: Draw) -> Found:
    heads, odd = ((1, d.extent(128), 12, 64), [0, 2, 1, 3]), ((d.extent(40), 30, 50), [2, 1, 0])
    keys, windows = ((1, 12, d.extent(128), 64), [0, 1, 3, 2]), ((8, 7, 8, 7, 96), [0, 2, 1, 3, 4])
    shape, perm = d.one((d.tokens(), [1, 0]), (d.image(), [0, 2, 3, 1]), (d.image(), [0, 3, 1, 2]), heads, odd, keys, windows)
    return node(d.normal(*shape), perm=perm)


def _concat(d: Draw) -> Found:
    shape, axis = d.one((d.image(), 1), (d.tokens(), 1), (d.tokens(), 0), (d.image(), 3))
    return node(*(d.normal(*shape) for _ in range(d.one(2, 3))), axis=axis)


def _split(d: Draw) -> Found:
    m, n = d.tokens()
    count = int(d.one(2, 3, 4))
    return node(d.normal(1, m, n * count), outputs=count, axis=2, num_outputs=count)


def _slice(d: Draw) -> Found:
    _, c, h, w = d.image(7)
    step = int(d.one(1, 2, -1))
    begin, end = (ints(0, h - 1), ints(c, -h - 1)) if step < 0 else (ints(c // 2, 1), ints(c, h))
    return node(d.normal(1, c, h, w), begin, end, ints(1, 2), ints(1, step), weights=4)


def padded(mode: str) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        before, after = d.one((1, 1), (3, 3), (0, 1), (2, 5))
        return node(d.normal(*d.image(7)), ints(0, 0, before, before, 0, 0, after, after), weights=1, mode=mode)

    return draw


def _expand(d: Draw) -> Found:
    _, c, h, w = d.image()
    source = d.one((1, c, 1, 1), (1, c, h, 1), (1, 1, h, w), (w,))
    return node(d.normal(*source), ints(1, c, h, w), weights=1)


def _tile(d: Draw) -> Found:
    shape, times = d.one(
        ((1, 64, 28, 28), (1, 1, 2, 2)), ((d.extent(1), 768), (64, 1)), ((d.extent(50), 20), (3, 7)), ((1, 197, 1), (1, 1, 64))
    )
    return node(d.normal(*shape), ints(*times), weights=1)


def _blocks(space: bool) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        c, n = d.one((64, 56), (128, 28), (48, 40), (12, 112))
        return node(d.normal(1, c, n, n), blocksize=2, **({} if space else {"mode": d.one("DCR", "CRD")}))

    return draw


def resized(mode: str, **attributes: Any) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        c, n = d.one((64, 28), (128, 14), (256, 20), (21, 33), (3, 112))
        by = d.one(2.0, 2.0, 1.5, 0.5, 4.0)
        return node(d.normal(1, c, n, n), np.zeros(0, np.float32), np.array([1, 1, by, by], np.float32), weights=2, mode=mode, **attributes)

    return draw


def _grid_sample(d: Draw) -> Found:
    c, n = d.one((3, 112), (64, 28), (256, 14))
    m = d.extent(n)
    return node(d.normal(1, c, n, n), d.near(-1, 1, 1, m, m, 2))


def _trilu(d: Draw) -> Found:
    return node(d.normal(8, d.extent(128), d.extent(128)), upper=int(d.one(0, 1)))


# ---------------------------------------------------------------- places that data name


def _gather(d: Draw) -> Found:
    shape, axis, count = d.one(
        ((30522, 64), 0, 512), ((1000, 768), 0, 128), ((64, 1000), 1, 100), ((8, 50, 96), 1, 49), (d.tokens(), 0, 64)
    )
    return node(d.normal(*shape), d.whole(0, shape[axis], d.extent(count)), axis=axis)


def _gather_elements(d: Draw) -> Found:
    m, n = d.one((256, 512), (64, 1000), (1000, 64))
    m, n, axis = d.extent(m), d.extent(n), int(d.one(0, 1))
    return node(d.normal(m, n), d.whole(0, (m, n)[axis], m, n), axis=axis)


def _gather_nd(d: Draw) -> Found:
    m, n, k = d.one((128, 128, 1000), (56, 56, 500), (30, 40, 200))
    return node(d.normal(m, n, d.one(1, 16, 64)), d.whole(0, min(m, n), d.extent(k), 2))


def scattered_elements(reduction: str) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        m, n = d.one((256, 512), (64, 1000), (1000, 64))
        m, n, axis = d.extent(m), d.extent(n), int(d.one(0, 1))
        return node(d.normal(m, n), d.whole(0, (m, n)[axis], m, n), d.normal(m, n), axis=axis, reduction=reduction)

    return draw


def scattered(reduction: str) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        rows, columns, count = d.one((1000, 64, 5000), (512, 128, 300), (2048, 16, 2048), (77, 333, 500))
        return node(d.normal(rows, columns), d.whole(0, rows, d.extent(count), 1), d.normal(0), reduction=reduction)

    def whole(d: Draw) -> Found:
        found = draw(d)
        x, ids, _ = found["arrays"]
        return found | {"arrays": (x, ids, d.normal(len(ids), x.shape[1]))}

    return whole


def _one_hot(d: Draw) -> Found:
    depth = d.extent(int(d.one(10, 100, 1000)))
    return node(d.whole(0, depth, d.extent(128)), np.array(depth), np.array([0, 1], np.float32), weights=2)


def _top(d: Draw) -> Found:
    shape, count = d.one(((1, 8400), 100), ((64, 1000), 5), ((1, 50257), 50), ((32, 100), 10), ((300, 91), 1))
    return node(d.normal(*shape), ints(count), weights=1, outputs=2, axis=-1)


def _cumsum(d: Draw) -> Found:
    m, n = d.one((4096, 256), (256, 4096), (1, 100000), (128, 768))
    return node(d.normal(d.extent(m), d.extent(n)), np.array(d.one(0, 1)), weights=1)


def _reverse(d: Draw) -> Found:
    steps, batch, width = d.one((50, 16, 128), (128, 4, 64), (20, 33, 70))
    return node(d.normal(steps, batch, width), d.whole(1, steps, batch))


# ---------------------------------------------------------------- bytes


def _quantise(d: Draw) -> Found:
    return node(d.normal(*d.shape()), np.array(0.05, np.float32), np.array(d.one(128, 0), np.uint8), weights=2)


def _dequantise(d: Draw) -> Found:
    return node(d.whole(0, 256, *d.shape(), dtype=np.uint8), np.array(0.05, np.float32), np.array(128, np.uint8), weights=2)


def _product_of_bytes(d: Draw) -> Found:
    m, k, n = d.one((128, 768, 768), (64, 256, 256), (1, 1024, 1024), (256, 256, 256))
    a, b = d.whole(0, 256, d.extent(m), k, dtype=np.uint8), d.whole(-128, 128, k, d.extent(n), dtype=np.int8)
    return node(a, b, np.array(7, np.uint8), np.array(0, np.int8), weights=3)


def _convolution_of_bytes(d: Draw) -> Found:
    c, f, n = d.one((64, 64, 28), (32, 48, 30), (128, 128, 14))
    x, w = d.whole(0, 256, 1, c, n, n, dtype=np.uint8), d.whole(-128, 128, f, c, 3, 3, dtype=np.int8)
    return node(x, w, np.array(7, np.uint8), np.array(0, np.int8), weights=3, pads=[1] * 4, kernel_shape=[3, 3])


Kind: TypeAlias = tuple[str, Callable[[Draw], Found]]

_UNARY = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Gelu", "Softplus", "HardSwish", "Mish", "Sin", "Cos"), unary()),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Sign", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "Softsign", "IsNaN"), unary()),
    **dict.fromkeys(("Abs", "Neg", "ThresholdedRelu", "Atan", "Sinh", "Cosh", "Asinh", "IsInf", "Identity"), unary()),
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal"), unary(0.1, 9.0)),
    **dict.fromkeys(("Asin", "Acos", "Atanh", "Tan"), unary(-0.9, 0.9)),
    "Acosh": unary(1.0, 9.0),
    "Shrink": unary(lambd=0.5),
}  # fmt: skip
_REDUCED = ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp")

KINDS: dict[str, Kind] = {
    **{name: ("elements", draw) for name, draw in _UNARY.items() if name != "Identity"},
    **{name: ("elements", binary()) for name in ("Add", "Sub", "Mul", "Greater", "LessOrEqual", "Equal")},
    "Div": ("elements", binary(0.5, 4.0)),
    "Pow": ("elements", binary(0.5, 2.0)),
    "Mod": ("elements", binary(0.5, 9.0, fmod=1)),
    "Mod of integers": ("elements", whole_binary()),
    "Div of integers": ("elements", whole_binary()),
    "Mul of integers": ("elements", whole_binary(dtype=np.int32)),
    **{name: ("elements", whole_binary(dtype=np.uint8, high=255)) for name in ("BitwiseAnd", "BitwiseXor")},
    "BitShift": ("elements", whole_binary(1, 7, np.uint32, direction="LEFT")),
    **dict.fromkeys(("And", "Or", "Xor"), ("elements", _logical)),
    "Not": ("elements", lambda d: node(d.bools(*d.shape()))),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), ("elements", _several)),
    "Where": ("elements", _where),
    "Clip": ("elements", _clip),
    "Cast": ("elements", _cast),
    "PRelu": ("elements", _prelu),
    **{f"Reduce{name}": ("reductions", reduced()) for name in _REDUCED},
    "ReduceProd": ("reductions", reduced(0.9, 1.1)),
    "ReduceLogSum": ("reductions", reduced(0.1, 1.0)),
    **dict.fromkeys(("ArgMax", "ArgMin"), ("reductions", _extreme)),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), ("rows", _along)),
    "LpNormalization": ("rows", _along),
    "LayerNormalization": ("rows", _layer_norm),
    "RMSNormalization": ("rows", _rms_norm),
    "InstanceNormalization": ("rows", _channel_norm),
    "GroupNormalization": ("rows", _group_norm),
    "BatchNormalization": ("rows", _batch_norm),
    "MeanVarianceNormalization": ("rows", lambda d: node(d.normal(*d.image(7)))),
    "LRN": ("rows", _lrn),
    "MatMul": ("products", _matmul),
    "MatMul of batches": ("products", _batched),
    "Gemm": ("products", _gemm),
    "Einsum": ("products", _einsum),
    "Einsum again": ("products", _einsum),
    "Conv 1x1": ("convolutions", convolved(1, lambda c: 1)),
    "Conv 3x3": ("convolutions", convolved(3, lambda c: 1)),
    "Conv 5x5": ("convolutions", convolved(5, lambda c: 1)),
    "Conv 7x7": ("convolutions", convolved(7, lambda c: 1)),
    "Conv depthwise 3x3": ("convolutions", convolved(3, lambda c: c)),
    "Conv depthwise 5x5": ("convolutions", convolved(5, lambda c: c)),
    "Conv depthwise 7x7": ("convolutions", convolved(7, lambda c: c)),
    "Conv in groups": ("convolutions", convolved(3, lambda c: 8 if c >= 16 else 1)),
    "Conv in many groups": ("convolutions", convolved(3, lambda c: 32 if c >= 64 else 1)),
    "Conv dilated": ("convolutions", convolved(3, lambda c: 1, 2, (1,))),
    "Conv dilated depthwise": ("convolutions", convolved(3, lambda c: c, 2, (1,))),
    "Conv 1d": ("convolutions", _conv_1d),
    "Conv 3d": ("convolutions", _conv_3d),
    "ConvTranspose": ("convolutions", _transposed),
    "ConvTranspose again": ("convolutions", _transposed),
    "MaxPool": ("pools", pooled()),
    "AveragePool": ("pools", pooled()),
    "AveragePool with pads": ("pools", pooled(count_include_pad=1)),
    "LpPool": ("pools", pooled()),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), ("pools", _image)),
    "LSTM": ("recurrent", recurrent(4)),
    "GRU": ("recurrent", recurrent(3)),
    "GRU reset after": ("recurrent", recurrent(3, linear_before_reset=1)),
    "RNN": ("recurrent", recurrent(1)),
    "Attention": ("attention", _attention),
    "Transpose": ("moving", _transpose),
    "Transpose again": ("moving", _transpose),
    "Concat": ("moving", _concat),
    "Split": ("moving", _split),
    "Slice": ("moving", _slice),
    **{f"Pad {mode}": ("moving", padded(mode)) for mode in ("constant", "reflect", "edge", "wrap")},
    "Expand": ("moving", _expand),
    "Tile": ("moving", _tile),
    "SpaceToDepth": ("moving", _blocks(True)),
    "DepthToSpace": ("moving", _blocks(False)),
    "Trilu": ("moving", _trilu),
    "Resize nearest": ("moving", resized("nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    "Resize linear": ("moving", resized("linear")),
    "Resize linear corners": ("moving", resized("linear", coordinate_transformation_mode="align_corners")),
    "Resize cubic": ("moving", resized("cubic")),
    "GridSample": ("moving", _grid_sample),
    "Gather": ("indices", _gather),
    "GatherElements": ("indices", _gather_elements),
    "GatherND": ("indices", _gather_nd),
    **{f"ScatterElements {how}": ("indices", scattered_elements(how)) for how in ("none", "add", "max")},
    **{f"ScatterND {how}": ("indices", scattered(how)) for how in ("none", "add", "max")},
    "OneHot": ("indices", _one_hot),
    "TopK": ("ordering", _top),
    "CumSum": ("ordering", _cumsum),
    "ReverseSequence": ("ordering", _reverse),
    "QuantizeLinear": ("bytes", _quantise),
    "DequantizeLinear": ("bytes", _dequantise),
    "MatMulInteger": ("bytes", _product_of_bytes),
    "ConvInteger": ("bytes", _convolution_of_bytes),
}
"""Operators, or forms of them, with their groups."""
