"""Nodes of ONNX whose element types, ranks, axes and attributes are drawn as well as their extents.

`drawn_cases` has the operators with shapes of real models; here is what people write besides: f64 and integers, tensors of one to five
dimensions, broadcasts and axes anywhere, windows that are no squares, borders on one side, and the operators that networks seldom have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from drawn_cases import Array, Draw, Found, Kind, ints, node

FLOATS = ("f4", "f4", "f8", "f2")
SIGNED = ("f4", "f8", "i4", "i8", "f2")
NUMBERS = (*SIGNED, "i1", "u1")
LIMITS = {"i1": (-50, 50), "u1": (1, 200)}
"""Of what is drawn of a narrow type."""


def shape_of(d: Draw, least: int = 1, most: int = 5, elements: int = 300_000) -> tuple[int, ...]:
    """Return a shape of `least` to `most` dimensions with about `elements` elements at most, none of them far longer than the others."""
    rank = int(d.rng.integers(least, most + 1))
    total = elements * d.rng.uniform(0.1, 1.0)
    weights = d.rng.dirichlet(np.full(rank, 4.0))
    extents = [max(2, int(total**w)) for w in weights]
    return tuple(extents if d.odd else [e if e < 8 else e // 8 * 8 for e in extents])


def filled(d: Draw, dtype: str, *shape: int, low: float = -4.0, high: float = 4.0) -> Array:
    """Return random numbers of a type: floats in a range, whole numbers of a range of their own."""
    if dtype == "?":
        return d.bools(*shape)
    if dtype.startswith("f"):
        return d.rng.uniform(low, high, shape).astype(dtype)
    return d.rng.integers(*LIMITS.get(dtype, (1, 1000)), shape).astype(dtype)


def axis_of(d: Draw, shape: tuple[int, ...]) -> int:
    return int(d.rng.integers(len(shape)))


def beside(d: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to `shape`: any of its extents one, leading ones left out."""
    kept = tuple(1 if d.rng.random() < 0.4 else e for e in shape)
    return kept[int(d.rng.integers(len(shape))) :] if d.rng.random() < 0.4 else kept


# ---------------------------------------------------------------- elements


def unary(types: tuple[str, ...], low: float = -4.0, high: float = 4.0, **attributes: Any) -> Callable[[Draw], Found]:
    return lambda d: node(filled(d, d.one(*types), *shape_of(d), low=low, high=high), **attributes)


def binary(types: tuple[str, ...], low: float = -4.0, high: float = 4.0, **attributes: Any) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        dtype, shape = d.one(*types), shape_of(d)
        operands = [filled(d, dtype, *s, low=low, high=high) for s in (shape, d.one(shape, beside(d, shape)))]
        return node(*(operands[::-1] if d.rng.random() < 0.3 else operands), **attributes)

    return draw


def _where(d: Draw) -> Found:
    dtype, shape = d.one(*NUMBERS), shape_of(d)
    return node(d.bools(*beside(d, shape)), filled(d, dtype, *shape), filled(d, dtype, *beside(d, shape)))


def _clip(d: Draw) -> Found:
    dtype = d.one("f8", "i4", "i1", "u1", "i8")
    x = filled(d, dtype, *shape_of(d))
    return node(x, np.array(2, dtype), np.array(30, dtype), weights=2)


def _cast(d: Draw) -> Found:
    names = {"f4": "FLOAT", "f8": "DOUBLE", "f2": "FLOAT16", "i1": "INT8", "u1": "UINT8", "i4": "INT32", "i8": "INT64", "?": "BOOL"}
    source, to = (list(names)[k] for k in d.rng.permutation(len(names))[:2])
    return node(filled(d, source, *shape_of(d), low=0.0, high=100.0), to=getattr(onnx.TensorProto, names[to]))


# ---------------------------------------------------------------- reductions, rows


def reduced(types: tuple[str, ...], low: float = -4.0, high: float = 4.0) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        shape = shape_of(d, 2)
        axes = sorted(d.rng.permutation(len(shape))[: int(d.rng.integers(1, len(shape)))].tolist())
        return node(filled(d, d.one(*types), *shape, low=low, high=high), ints(*axes), weights=1, keepdims=int(d.one(0, 1)))

    return draw


def _extreme(d: Draw) -> Found:
    shape = shape_of(d)
    return node(filled(d, d.one("f4", "f8", "i4", "u1"), *shape), axis=axis_of(d, shape), select_last_index=int(d.one(0, 0, 1)))


def _along(d: Draw) -> Found:
    shape = shape_of(d, 1, 4)
    return node(filled(d, d.one("f4", "f4", "f8"), *shape), axis=axis_of(d, shape))


def _layer_norm(d: Draw) -> Found:
    shape = shape_of(d, 2, 4)
    axis = max(1, axis_of(d, shape))
    dtype = d.one("f4", "f4", "f8")
    rest = shape[axis:]
    return node(filled(d, dtype, *shape), filled(d, dtype, *rest), filled(d, dtype, *rest), weights=2, axis=axis)


def _variance(d: Draw) -> Found:
    shape = shape_of(d, 3, 5)
    axes = sorted(d.rng.permutation(len(shape))[: int(d.rng.integers(1, len(shape)))].tolist())
    return node(filled(d, "f4", *shape), axes=axes)


def _loss(d: Draw) -> Found:
    n, c = d.extent(int(d.one(128, 512, 2048))), d.extent(int(d.one(10, 100, 1000)))
    return node(d.normal(n, c), d.whole(0, c, n), reduction=d.one("mean", "sum", "none"))


# ---------------------------------------------------------------- products


def _matmul(d: Draw) -> Found:
    dtype = d.one("f4", "f8", "i4", "f4")
    a, b = d.one(
        ((3, 2, 60, 64), (2, 64, 70)), ((4, 50, 100), (100, 120)), ((300,), (300, 700)), ((500, 300), (300,)), ((200, 150), (150, 90)),
        ((6, 1, 40), (6, 40, 300)), ((130, 77), (77, 33)), ((2, 3, 4, 30, 30), (30, 30)), ((1000, 12), (12, 5)), ((7, 2000), (2000, 9)),
    )  # fmt: skip
    return node(filled(d, dtype, *a), filled(d, dtype, *b))


def _gemm(d: Draw) -> Found:
    dtype = d.one("f4", "f4", "f8")
    m, k, n, ta, tb = d.extent(100), d.extent(200), d.extent(150), int(d.one(0, 1)), int(d.one(0, 1))
    a, b = (k, m) if ta else (m, k), (n, k) if tb else (k, n)
    c = d.one((n,), (m, n), (m, 1), (1,))
    return node(filled(d, dtype, *a), filled(d, dtype, *b), filled(d, dtype, *c), transA=ta, transB=tb, alpha=0.5, beta=2.0)


def _einsum(d: Draw) -> Found:
    n = d.extent(48)
    equation, *shapes = d.one(
        ("ijk,ilk->ijl", (8, n, 32), (8, 40, 32)), ("abcd,ad->abc", (2, 5, n, 60), (2, 60)), ("ij,kj->ik", (n, 200), (100, 200)),
        ("bthd,bshd->bhts", (2, n, 4, 32), (2, n, 4, 32)), ("ijk->", (n, 40, 50)), ("iij->ij", (n, n, 60)),
        ("ij,ij->j", (4 * n, 90), (4 * n, 90)),
        ("ab,bc,cd->ad", (n, n), (n, n), (n, n)), ("xyz,xyz->yx", (20, n, 64), (20, n, 64)), ("i,i->", (5000,), (5000,)),
        ("bhts,bshd->bthd", (2, 4, n, n), (2, n, 4, 32)), ("ijkl->lkij", (6, n, 20, 12)),
    )  # fmt: skip
    dtype = d.one("f4", "f4", "f8")
    return node(*(filled(d, dtype, *s) for s in shapes), equation=equation)


# ---------------------------------------------------------------- windows


def _conv(d: Draw) -> Found:
    c, f, groups = d.one((3, 16, 1), (32, 64, 1), (48, 48, 48), (40, 80, 4), (24, 24, 12), (17, 19, 1), (64, 64, 64), (36, 72, 36))
    h, w, batch = d.extent(30), d.extent(37), int(d.one(1, 1, 2, 5))
    kernel = d.one([1, 7], [7, 1], [3, 3], [2, 2], [5, 3], [4, 4], [1, 3], [9, 9], [3, 1])
    dilations = d.one([1, 1], [1, 1], [1, 1], [2, 1], [3, 3])
    pads = d.one([0] * 4, [1, 0, 2, 1], [k // 2 for k in kernel] * 2)
    strides = d.one([1, 1], [1, 1], [2, 2], [1, 2], [3, 3])
    x, weights = d.normal(batch, c, h, w), d.normal(f, c // groups, *kernel)
    return node(x, weights, d.normal(f), weights=2, group=groups, pads=pads, strides=strides, dilations=dilations)


def _conv_of_rank(d: Draw) -> Found:
    dims, c, f, n = d.one((1, 20, 40, 700), (1, 64, 128, 150), (3, 6, 12, 20), (3, 24, 24, 9), (1, 96, 96, 300))
    groups, window, stride = (c if d.rng.random() < 0.3 and f == c else 1), int(d.one(1, 2, 3, 5)), int(d.one(1, 2))
    shape = [d.extent(n) for _ in range(dims)]
    return node(d.normal(2, c, *shape), d.normal(f, c // groups, *[window] * dims), weights=1, group=groups, strides=[stride] * dims)


def _transposed(d: Draw) -> Found:
    c, f, group = d.one((16, 24, 1), (32, 32, 32), (24, 12, 1), (16, 8, 4), (7, 5, 1))
    kernel, strides = d.one(([3, 3], [1, 1]), ([3, 3], [2, 2]), ([2, 2], [2, 2]), ([5, 5], [3, 3]), ([1, 4], [1, 2]), ([4, 4], [4, 4]))
    x, w = d.normal(int(d.one(1, 2)), c, d.extent(20), d.extent(24)), d.normal(c, f // group, *kernel)
    return node(x, w, weights=1, group=group, strides=strides, output_padding=[int(d.one(0, s > 1)) for s in strides])


def pooled(types: tuple[str, ...] = ("f4",), dilated: bool = False, **attributes: Any) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        dims = int(d.one(1, 2, 2, 3))
        shape = [d.extent({1: 700, 2: 40, 3: 14}[dims]) for _ in range(dims)]
        kernel = [int(d.one(2, 3, 3, 4, 5)) for _ in range(dims)]
        found = {
            "kernel_shape": kernel,
            "strides": [int(d.one(1, 2, 3)) for _ in range(dims)],
            "pads": [0] * dims + [int(d.one(0, 1))] * dims,
        }
        if dilated:
            found["dilations"] = [int(d.one(1, 1, 2))] * dims
        x = filled(d, d.one(*types), int(d.one(1, 2)), d.extent(32), *shape)
        return node(x, ceil_mode=int(d.one(0, 0, 1)), **found, **attributes)

    return draw


# ---------------------------------------------------------------- recurrences


def recurrent(gates: int, activations: list[str]) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        steps, batch, inner, hidden = d.one((16, 2, 40, 60), (40, 1, 100, 33), (12, 20, 32, 64))
        both = int(d.one(1, 2))
        w, r = d.normal(both, gates * hidden, inner) * np.float32(0.1), d.normal(both, gates * hidden, hidden) * np.float32(0.1)
        attributes = {"direction": "bidirectional" if both == 2 else d.one("forward", "reverse"), "activations": activations * both}
        return node(d.normal(steps, batch, inner), w, r, weights=2, outputs=1, hidden_size=hidden, **attributes)

    return draw


# ---------------------------------------------------------------- moving


def _transpose(d: Draw) -> Found:
    shape = shape_of(d, 2)
    return node(filled(d, d.one(*NUMBERS, "?"), *shape), perm=d.rng.permutation(len(shape)).tolist())


def _concat(d: Draw) -> Found:
    shape, dtype = shape_of(d, elements=100_000), d.one(*NUMBERS)
    axis = axis_of(d, shape)
    return node(*(filled(d, dtype, *shape[:axis], d.extent(shape[axis]), *shape[axis + 1 :]) for _ in range(d.one(2, 3, 5))), axis=axis)


def _split(d: Draw) -> Found:
    shape = shape_of(d)
    axis = axis_of(d, shape)
    first = max(1, shape[axis] // 3)
    return node(filled(d, d.one(*NUMBERS), *shape), ints(first, shape[axis] - first), weights=1, outputs=2, axis=axis)


def _slice(d: Draw) -> Found:
    shape = shape_of(d)
    axes = sorted(d.rng.permutation(len(shape))[: int(d.rng.integers(1, len(shape) + 1))].tolist())
    steps = [int(d.one(1, 1, 2, 3, -1)) for _ in axes]
    begins = [-1 if s < 0 else int(d.one(0, 1)) for s in steps]
    ends = [-shape[a] - 1 if s < 0 else shape[a] for a, s in zip(axes, steps, strict=True)]
    return node(filled(d, d.one(*NUMBERS), *shape), ints(*begins), ints(*ends), ints(*axes), ints(*steps), weights=4)


def padded(mode: str) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        shape = shape_of(d)
        pads = [int(d.rng.integers(min(e, 4))) for e in (*shape, *shape)]
        return node(filled(d, d.one("f4", "f8", "i4", "u1"), *shape), ints(*pads), weights=1, mode=mode)

    return draw


def _expand(d: Draw) -> Found:
    shape = shape_of(d)
    return node(filled(d, d.one(*NUMBERS), *beside(d, shape)), ints(*shape), weights=1)


def _tile(d: Draw) -> Found:
    shape = shape_of(d, 1, 4, 60_000)
    return node(filled(d, d.one("f4", "f8", "i4", "i8", "u1"), *shape), ints(*(int(d.one(1, 2, 3)) for _ in shape)), weights=1)


def resized(mode: str, **attributes: Any) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        h, w, c = d.extent(30), d.extent(36), d.extent(16)
        sizes = ints(1, c, max(1, int(h * d.rng.uniform(0.4, 2.6))), max(1, int(w * d.rng.uniform(0.4, 2.6))))
        return node(d.normal(1, c, h, w), np.zeros(0, np.float32), np.zeros(0, np.float32), sizes, weights=3, mode=mode, **attributes)

    return draw


def _trilu(d: Draw) -> Found:
    return node(filled(d, d.one("f4", "f8", "i8"), *shape_of(d, 2, 4)), np.array(int(d.one(-2, 0, 3))), weights=1, upper=int(d.one(0, 1)))


def _crop(d: Draw) -> Found:
    shape = shape_of(d, 2, 4)
    return node(filled(d, "f4", *shape), ints(*(max(1, int(e * d.rng.uniform(0.6, 1.4))) for e in shape)), weights=1)


def _columns(d: Draw) -> Found:
    c, n = d.extent(16), d.extent(24)
    return node(d.normal(1, c * 9, (n - 2) * (n - 2)), ints(n, n), ints(3, 3), weights=2)


# ---------------------------------------------------------------- places that data name


def _gather(d: Draw) -> Found:
    shape = shape_of(d, 1, 4, 100_000)
    axis = axis_of(d, shape)
    ids = d.whole(-shape[axis], shape[axis], *d.one((d.extent(30),), (d.extent(5), 7), ()), dtype=d.one("i8", "i4"))
    return node(filled(d, d.one(*NUMBERS), *shape), ids, axis=axis)


def _gather_elements(d: Draw) -> Found:
    shape = shape_of(d, 1, 4, 100_000)
    axis = axis_of(d, shape)
    counts = (*shape[:axis], d.extent(shape[axis]), *shape[axis + 1 :])
    return node(filled(d, d.one("f4", "f8", "i8"), *shape), d.whole(0, shape[axis], *counts, dtype=d.one("i8", "i4")), axis=axis)


def _scatter_elements(d: Draw) -> Found:
    shape = shape_of(d, 1, 4, 100_000)
    axis = axis_of(d, shape)
    dtype = d.one("f4", "f8", "i8")
    ids = np.argsort(d.rng.random(shape), axis=axis)
    return node(filled(d, dtype, *shape), ids, filled(d, dtype, *shape), axis=axis, reduction=d.one("none", "add", "mul", "min"))


def _gather_nd(d: Draw) -> Found:
    shape = shape_of(d, 2, 4, 100_000)
    depth, count = int(d.rng.integers(1, len(shape) + 1)), d.extent(400)
    ids = np.stack([d.whole(0, e, count) for e in shape[:depth]], axis=-1)
    return node(filled(d, d.one("f4", "f8", "i8"), *shape), ids)


def _scatter_nd(d: Draw) -> Found:
    found = _gather_nd(d)
    x, ids = found["arrays"]
    return node(x, ids, filled(d, x.dtype.str[1:], len(ids), *x.shape[ids.shape[1] :]), reduction=d.one("none", "add", "max"))


def _top(d: Draw) -> Found:
    shape = shape_of(d, 1, 3, 60_000)
    axis = axis_of(d, shape)
    count = int(d.rng.integers(1, min(shape[axis], 60) + 1))
    return node(filled(d, d.one("f4", "f4", "f8", "i8"), *shape), ints(count), weights=1, outputs=2, axis=axis, largest=int(d.one(0, 1)))


def _cumsum(d: Draw) -> Found:
    shape = shape_of(d, 1, 4)
    x = filled(d, d.one("f4", "f4", "f8", "i4", "i8"), *shape)
    return node(x, np.array(axis_of(d, shape)), weights=1, exclusive=int(d.one(0, 1)), reverse=int(d.one(0, 1)))


def _one_hot(d: Draw) -> Found:
    depth, axis = d.extent(int(d.one(7, 30, 200))), int(d.one(-1, 0, 1))
    return node(d.whole(0, depth, d.extent(40), 12, dtype=d.one("i8", "i4")), np.array(depth), np.array([0, 1], "f4"), weights=2, axis=axis)


def _boxes(d: Draw) -> Found:
    c, n, count = d.extent(64), d.extent(30), d.extent(30)
    low, size = d.near(0, n / 2, count, 2), d.near(1, n / 2, count, 2)
    boxes = np.concatenate([low, low + size], 1)
    attributes = {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "mode": d.one("avg", "max")}
    return node(d.normal(1, c, n, n), boxes, np.zeros(count, np.int64), **attributes)


def _rotary(d: Draw) -> Found:
    heads, n, e = d.one((8, 128, 64), (12, 50, 32), (1, 300, 128))
    n = d.extent(n)
    return node(d.normal(1, heads, n, e), d.normal(1, n, e // 2), d.normal(1, n, e // 2), interleaved=int(d.one(0, 1)))


# ---------------------------------------------------------------- bytes, spectra, the rest


def _quantise(d: Draw) -> Found:
    shape, dtype = shape_of(d, 2, 4), d.one(np.uint8, np.int8)
    axis = axis_of(d, shape)
    n = shape[axis]
    return node(d.normal(*shape), d.near(0.01, 0.1, n), np.zeros(n, dtype), weights=2, axis=axis)


def _dequantise(d: Draw) -> Found:
    shape, dtype = shape_of(d, 2, 4), d.one("u1", "i1")
    axis = axis_of(d, shape)
    n = shape[axis]
    return node(filled(d, dtype, *shape), d.near(0.01, 0.1, n), np.zeros(n, dtype), weights=2, axis=axis)


def _quantised_product(d: Draw) -> Found:
    m, k, n = d.extent(100), d.extent(256), d.extent(200)
    scale, zero = np.array(0.02, np.float32), np.array(3, np.uint8)
    a, b = d.whole(0, 256, m, k, dtype=np.uint8), d.whole(0, 256, k, n, dtype=np.uint8)
    return node(a, scale, zero, b, scale, zero, np.array(0.5, np.float32), zero, weights=7)


def _quantised_convolution(d: Draw) -> Found:
    c, f, n, window = d.one((32, 48, 30, 3), (64, 64, 20, 1), (17, 19, 25, 3), (48, 48, 28, 5))
    scale, zero = np.array(0.02, np.float32), np.array(3, np.uint8)
    x, w = d.whole(0, 256, 1, c, n, n, dtype=np.uint8), d.whole(-128, 128, f, c, window, window, dtype=np.int8)
    y_scale = np.array(2.0, np.float32)
    return node(x, scale, zero, w, scale, np.array(0, np.int8), y_scale, zero, weights=7, pads=[window // 2] * 4)


def _spectrum(d: Draw) -> Found:
    n = int(d.one(64, 128, 100, 256))
    return node(d.normal(d.extent(16), n, 1), ints(n).reshape(()), weights=1, onesided=int(d.one(0, 1)))


def _windowed_spectrum(d: Draw) -> Found:
    n = int(d.one(64, 128))
    return node(d.normal(1, d.extent(4000), 1), ints(n // 2).reshape(()), d.near(0, 1, n), weights=2, onesided=1)


def _determinant(d: Draw) -> Found:
    n = int(d.one(2, 3, 4, 8, 16))
    return node(d.normal(d.extent(2000 // n), n, n))


def _deformed(d: Draw) -> Found:
    c, n = d.extent(8), d.extent(16)
    return node(d.normal(1, c, n, n), d.normal(c, c, 3, 3), d.near(-1, 1, 1, 18, n - 2, n - 2), kernel_shape=[3, 3])


_FLOATING = (
    "Sqrt",
    "Exp",
    "Tanh",
    "Sigmoid",
    "Floor",
    "Log",
    "Erf",
    "Reciprocal",
    "Elu",
    "Softplus",
    "Ceil",
    "Round",
    "HardSigmoid",
    "Sin",
)
MIXED: dict[str, Kind] = {
    **dict.fromkeys(_FLOATING, ("elements", unary(FLOATS, 0.1, 4.0))),
    **dict.fromkeys(
        ("Cos", "Atan", "Sinh", "Mish", "HardSwish", "Softsign", "Selu", "Celu", "LeakyRelu"), ("elements", unary(("f4", "f4", "f8")))
    ),
    **dict.fromkeys(("IsNaN", "ThresholdedRelu"), ("elements", unary(("f4",)))),
    **dict.fromkeys(("And", "Or", "Xor"), ("elements", binary(("?",)))),
    **dict.fromkeys(("Relu", "Abs", "Neg", "Sign"), ("elements", unary((*SIGNED, "i1")))),
    **dict.fromkeys(("Add", "Sub", "Mul"), ("elements", binary(NUMBERS))),
    **dict.fromkeys(("Div", "Pow"), ("elements", binary(("f4", "f8", "i4", "i8"), 0.5, 2.0))),
    **dict.fromkeys(("Less", "GreaterOrEqual", "Equal", "Greater"), ("elements", binary(("f4", "f8", "i4", "i8")))),
    **dict.fromkeys(("Max", "Min"), ("elements", binary(("f4", "f8", "i4", "i8", "u1", "i1")))),
    "Mod": ("elements", binary(("i4", "i8", "i1", "u1"))),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), ("elements", binary(("i4", "i8", "u1")))),
    "BitwiseNot": ("elements", unary(("i4", "u1", "i8"))),
    "Where": ("elements", _where),
    "Clip": ("elements", _clip),
    "Cast": ("elements", _cast),
    "Cast again": ("elements", _cast),
    **{f"Reduce{name}": ("reductions", reduced(("f4", "f8", "i4"))) for name in ("Sum", "Mean", "Max", "Min", "SumSquare", "L1")},
    **{f"Reduce{name}": ("reductions", reduced(("f4", "f8"))) for name in ("L2", "LogSumExp", "Prod")},
    **dict.fromkeys(("ArgMax", "ArgMin"), ("reductions", _extreme)),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"), ("rows", _along)),
    "LayerNormalization": ("rows", _layer_norm),
    "MeanVarianceNormalization": ("rows", _variance),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), ("rows", _loss)),
    **dict.fromkeys(("MatMul", "MatMul again"), ("products", _matmul)),
    "Gemm": ("products", _gemm),
    **dict.fromkeys(("Einsum", "Einsum again"), ("products", _einsum)),
    **dict.fromkeys(("Conv", "Conv again", "Conv once more"), ("convolutions", _conv)),
    **dict.fromkeys(("Conv of any rank", "Conv of any rank again"), ("convolutions", _conv_of_rank)),
    **dict.fromkeys(("ConvTranspose", "ConvTranspose again"), ("convolutions", _transposed)),
    "DeformConv": ("convolutions", _deformed),
    "MaxPool": ("pools", pooled(("f4", "f4", "u1", "i1"), True)),
    "AveragePool": ("pools", pooled()),
    "AveragePool with pads": ("pools", pooled(count_include_pad=1)),
    "LpPool": ("pools", pooled(p=1)),
    "GlobalLpPool": ("pools", lambda d: node(d.normal(2, d.extent(32), d.extent(20), d.extent(20)), p=int(d.one(1, 2)))),
    "MaxRoiPool": (
        "pools",
        lambda d: node(d.normal(1, 32, 30, 30), d.near(0, 29, 20, 5) * np.array([0, 1, 1, 1, 1], np.float32), pooled_shape=[6, 6]),
    ),
    "LSTM": ("recurrent", recurrent(4, ["Sigmoid", "Tanh", "Tanh"])),
    "GRU": ("recurrent", recurrent(3, ["Sigmoid", "Tanh"])),
    "RNN": ("recurrent", recurrent(1, ["Relu"])),
    **dict.fromkeys(("Transpose", "Transpose again", "Transpose once more"), ("moving", _transpose)),
    "Concat": ("moving", _concat),
    "Split": ("moving", _split),
    **dict.fromkeys(("Slice", "Slice again"), ("moving", _slice)),
    **{f"Pad {mode}": ("moving", padded(mode)) for mode in ("constant", "reflect", "edge", "wrap")},
    "Expand": ("moving", _expand),
    "Tile": ("moving", _tile),
    "Resize nearest": ("moving", resized("nearest")),
    "Resize linear": ("moving", resized("linear", coordinate_transformation_mode="pytorch_half_pixel")),
    "Resize cubic": ("moving", resized("cubic", coordinate_transformation_mode="align_corners")),
    "Resize antialias": ("moving", resized("linear", antialias=1)),
    "Trilu": ("moving", _trilu),
    "CenterCropPad": ("moving", _crop),
    "Col2Im": ("moving", _columns),
    "Gather": ("indices", _gather),
    "Gather again": ("indices", _gather),
    "GatherElements": ("indices", _gather_elements),
    "ScatterElements": ("indices", _scatter_elements),
    "GatherND": ("indices", _gather_nd),
    "ScatterND": ("indices", _scatter_nd),
    "OneHot": ("indices", _one_hot),
    "RoiAlign": ("indices", _boxes),
    "RotaryEmbedding": ("moving", _rotary),
    **dict.fromkeys(("TopK", "TopK again"), ("ordering", _top)),
    **dict.fromkeys(("CumSum", "CumSum again"), ("ordering", _cumsum)),
    "QuantizeLinear": ("bytes", _quantise),
    "DequantizeLinear": ("bytes", _dequantise),
    "DynamicQuantizeLinear": ("bytes", unary(("f4",), outputs=3)),
    "QLinearMatMul": ("bytes", _quantised_product),
    "QLinearConv": ("bytes", _quantised_convolution),
    "DFT": ("spectra", _spectrum),
    "STFT": ("spectra", _windowed_spectrum),
    "Det": ("products", _determinant),
}
"""Operators, or forms of them, with their groups."""
