"""Nodes of ONNX to measure of which the other draws have none: control flow, results as long as the data say, random numbers, spectra,
attention in its forms, trigonometry in f64, and the operators that onnxruntime writes into models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from drawn_cases import Draw, Found, Kind, ints, node
from drawn_mixed import NUMBERS, axis_of, filled, shape_of, unary
from onnx import TensorProto, helper

MICROSOFT = {"domain": "com.microsoft"}
OLDER = {"opset": 21}
"""For operators whose newest versions onnxruntime has not."""


# ---------------------------------------------------------------- control flow


def _value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _loop(d: Draw) -> Found:
    n, steps = d.extent(int(d.one(16, 64, 200))), int(d.one(5, 20, 50))
    nodes = [
        helper.make_node("MatMul", ["h", "x3"], ["a"]),
        helper.make_node("Tanh", ["a"], ["h_next"]),
        helper.make_node("Identity", ["go"], ["go_on"]),
    ]
    inputs = [_value("i", kind=TensorProto.INT64), _value("go", kind=TensorProto.BOOL), _value("h", 4, n)]
    body = helper.make_graph(nodes, "body", inputs, [_value("go_on", kind=TensorProto.BOOL), _value("h_next", 4, n)])
    found = node(np.array(steps), np.array(True), d.normal(4, n), body=body)
    return _with_outer(found, d.normal(n, n) * np.float32(0.1))


def _scan(d: Draw) -> Found:
    steps, n = d.extent(int(d.one(20, 100, 500))), d.extent(int(d.one(8, 64, 300)))
    decay = helper.make_node("Constant", [], ["decay"], value=helper.make_tensor("v", TensorProto.FLOAT, [], [0.9]))
    nodes = [decay, helper.make_node("Mul", ["h", "decay"], ["a"]), helper.make_node("Add", ["a", "x"], ["h_next"])]
    nodes.append(helper.make_node(d.one("Tanh", "Identity", "Relu"), ["h_next"], ["y"]))
    body = helper.make_graph(nodes, "body", [_value("h", n), _value("x", n)], [_value("h_next", n), _value("y", n)])
    return node(d.normal(n), d.normal(steps, n), outputs=2, body=body, num_scan_inputs=1)


def _if(d: Draw) -> Found:
    shape = shape_of(d, 2, 3)
    branches = [
        helper.make_graph([helper.make_node(op, ["x1"], [f"{op}_y"])], op, [], [_value(f"{op}_y", *shape)]) for op in ("Sigmoid", "Relu")
    ]
    return _with_outer(node(np.array(d.one(True, False)), then_branch=branches[0], else_branch=branches[1]), d.normal(*shape))


def _with_outer(found: Found, outer: np.ndarray[Any, Any]) -> Found:
    """Return a node whose graphs read one more array, which is no input of the node."""
    return found | {"arrays": (*found["arrays"], outer), "outer": 1}


# ---------------------------------------------------------------- results as long as the data say, random numbers


def _nonzero(d: Draw) -> Found:
    shape, dtype = shape_of(d, 1, 4, 100_000), d.one("f4", "i8", "?", "u1", "f8")
    kept = d.rng.random(shape) < d.one(0.02, 0.5, 0.95)
    return node(filled(d, dtype, *shape) * kept.astype(dtype) if dtype != "?" else kept)


def _compress(d: Draw) -> Found:
    shape = shape_of(d, 1, 4, 100_000)
    axis = axis_of(d, shape)
    return node(filled(d, d.one(*NUMBERS), *shape), d.bools(shape[axis]), axis=axis)


def _unique(d: Draw) -> Found:
    n, dtype = d.extent(int(d.one(1000, 20_000))), d.one("f4", "i8", "f8")
    outputs = int(d.one(1, 4))
    return node(d.whole(0, int(d.one(20, 5000)), n).astype(dtype), outputs=outputs, sorted=1)


def _suppression(d: Draw) -> Found:
    count, classes = d.extent(int(d.one(100, 500))), int(d.one(1, 5))
    low, size = d.near(0, 100, 1, count, 2), d.near(2, 30, 1, count, 2)
    boxes, scores = np.concatenate([low, low + size], -1), d.near(0, 1, 1, classes, count)
    return node(boxes, scores, ints(50), np.array([0.5], "f4"), np.array([0.1], "f4"), weights=3)


def _random(d: Draw) -> Found:
    return node(shape=list(shape_of(d, 1, 3, 100_000)), seed=1.0) | OLDER


def _random_like(d: Draw) -> Found:
    return node(filled(d, "f4", *shape_of(d, 1, 3, 100_000), low=0.0, high=1.0), seed=1.0) | OLDER


# ---------------------------------------------------------------- rows


def _rms_norm(d: Draw) -> Found:
    shape = shape_of(d, 2, 4)
    axis = max(1, axis_of(d, shape))
    dtype = d.one("f4", "f4", "f8", "f2")
    return node(filled(d, dtype, *shape), filled(d, dtype, *shape[axis:]), weights=1, axis=axis)


def _channel_norm(d: Draw) -> Found:
    shape, dtype = shape_of(d, 3, 5), d.one("f4", "f4", "f8")
    return node(filled(d, dtype, *shape), filled(d, dtype, shape[1]), filled(d, dtype, shape[1]), weights=2)


def _group_norm(d: Draw) -> Found:
    n, c, groups, *rest = d.one((2, 24, 4, 30, 17), (1, 32, 8, 400), (3, 6, 3, 8, 9, 10), (1, 64, 64, 14, 14), (2, 40, 1, 12, 12))
    return node(d.normal(n, c, *rest), d.normal(c), d.normal(c), weights=2, num_groups=groups)


def _batch_norm(d: Draw) -> Found:
    shape, dtype = shape_of(d, 2, 5), d.one("f4", "f4", "f8")
    c = shape[1]
    return node(filled(d, dtype, *shape), *(filled(d, dtype, c, low=0.5, high=1.0) for _ in range(4)), weights=4)


def _lrn(d: Draw) -> Found:
    return node(d.normal(*shape_of(d, 4, 4)), size=int(d.one(3, 5)), alpha=1e-4, beta=float(d.one(0.75, 0.5)))


# ---------------------------------------------------------------- elements


def _prelu(d: Draw) -> Found:
    shape, dtype = shape_of(d, 2, 4), d.one("f4", "f8", "f2")
    return node(filled(d, dtype, *shape), filled(d, dtype, shape[1], *[1] * (len(shape) - 2)), weights=1)


def _several(d: Draw) -> Found:
    shape, dtype = shape_of(d), d.one("f4", "f8")
    return node(*(filled(d, dtype, *d.one(shape, shape, shape[-1:])) for _ in range(d.one(2, 3, 5))))


def _shift(d: Draw) -> Found:
    shape, dtype = shape_of(d), d.one("u1", "u4", "u8")
    return node(d.whole(1, 200, *shape).astype(dtype), d.whole(0, 7, *d.one(shape, ())).astype(dtype), direction=d.one("LEFT", "RIGHT"))


def _remainder(d: Draw) -> Found:
    shape, dtype = shape_of(d), d.one("f4", "f8")
    return node(filled(d, dtype, *shape), filled(d, dtype, *d.one(shape, ()), low=0.5, high=9.0), fmod=1)


# ---------------------------------------------------------------- moving, windows


def _sampled(d: Draw) -> Found:
    c, n, m = d.extent(16), d.extent(int(d.one(12, 40))), d.extent(int(d.one(12, 40)))
    dims = int(d.one(2, 2, 3)) if n < 20 else 2
    mode = d.one("linear", "nearest", "cubic") if dims == 2 else d.one("linear", "nearest")
    x, grid = d.normal(1, c, *[n] * dims), d.near(-1.1, 1.1, 1, *[m] * dims, dims)
    return node(x, grid, mode=mode, padding_mode=d.one("zeros", "border", "reflection"), align_corners=int(d.one(0, 1)))


def _affine_grid(d: Draw) -> Found:
    size, dims = ((2, 3, d.extent(60), d.extent(60)), 2) if d.rng.random() < 0.5 else ((1, 3, 20, 20, 20), 3)
    return node(d.normal(size[0], dims, dims + 1), ints(*size), weights=1, align_corners=int(d.one(0, 1)))


def _resized(d: Draw) -> Found:
    mode, dtype = d.one("nearest", "linear", "cubic"), d.one("f4", "f4", "f8", "u1")
    dims = {"nearest": int(d.one(1, 2, 3)), "linear": int(d.one(1, 2, 3)), "cubic": 2}[mode]
    shape = (1, d.extent(16), *(d.extent({1: 600, 2: 30, 3: 12}[dims]) for _ in range(dims)))
    to = (*shape[:2], *(max(1, int(e * d.rng.uniform(0.4, 2.6))) for e in shape[2:]))
    attributes = {"nearest_mode": d.one("floor", "ceil", "round_prefer_floor")} if mode == "nearest" else {}
    by = d.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    nothing = np.zeros(0, np.float32)
    x = filled(d, dtype, *shape)
    return node(x, nothing, nothing, ints(*to), weights=3, mode=mode, coordinate_transformation_mode=by, **attributes)


def _unpooled(d: Draw) -> Found:
    c, n = d.extent(16), d.extent(20)
    x = d.normal(1, c, n, n)
    corners = 2 * np.arange(n)
    places = (np.arange(c)[:, None, None] * 2 * n + corners[:, None]) * 2 * n + corners
    return node(x, places[None].astype(np.int64), kernel_shape=[2, 2], strides=[2, 2])


def _reshaped(d: Draw) -> Found:
    shape = shape_of(d, 2, 4)
    return node(filled(d, d.one(*NUMBERS), *shape), ints(-1, shape[-1]), weights=1)


def _blocks(d: Draw) -> Found:
    c, n, by = d.one((18, 30, 3), (64, 14, 4), (8, 60, 2), (16, 25, 4))
    return node(filled(d, d.one("f4", "f8"), 1, c * by * by // 2 if by % 2 == 0 else c, n * by, n * by), blocksize=by)


def _reverse(d: Draw) -> Found:
    steps, batch, width = d.extent(50), d.extent(8), d.extent(70)
    axis = int(d.one(0, 1))
    x = filled(d, d.one("f4", "f8", "i8"), *((steps, batch, width) if axis == 0 else (batch, steps, width)))
    return node(x, d.whole(1, steps, batch), time_axis=axis, batch_axis=1 - axis)


def _gathered_in_batches(d: Draw) -> Found:
    batch, n, width, count = d.extent(8), d.extent(100), d.extent(int(d.one(1, 4, 64))), d.extent(200)
    return node(filled(d, d.one("f4", "f8", "i8"), batch, n, width), d.whole(0, n, batch, count, 1), batch_dims=1)


def scattered(reductions: tuple[str, ...]) -> Callable[[Draw], Found]:
    """Elements whose places meet: some are named several times, others never."""

    def draw(d: Draw) -> Found:
        shape = shape_of(d, 1, 3, 60_000)
        axis, dtype = axis_of(d, shape), d.one("f4", "f8", "i8", "i4")
        counts = (*shape[:axis], d.extent(shape[axis]), *shape[axis + 1 :])
        places = d.whole(-shape[axis], shape[axis], *counts, dtype=d.one("i8", "i4"))
        return node(filled(d, dtype, *shape), places, filled(d, dtype, *counts), axis=axis, reduction=d.one(*reductions))

    return draw


def _scattered_rows(d: Draw) -> Found:
    rows, width, count, dtype = d.extent(300), d.extent(int(d.one(1, 3, 16, 100))), d.extent(800), d.one("f4", "f8", "i8")
    x, updates = filled(d, dtype, rows, width), filled(d, dtype, count, width)
    return node(x, d.whole(0, rows, count, 1), updates, reduction=d.one("add", "mul", "max", "min"))


# ---------------------------------------------------------------- spectra


def _spectrum(d: Draw) -> Found:
    n, batch, parts = int(d.one(32, 60, 81, 97, 128, 210, 512, 1000)), d.extent(16), int(d.one(1, 2))
    axis = int(d.one(1, 2))
    shape = (batch, n, 5, parts) if axis == 1 else (batch, 3, n, parts)
    onesided = int(d.one(0, 1)) if parts == 1 else 0
    inverse = int(d.one(0, 1)) if parts == 2 else 0
    x = filled(d, d.one("f4", "f4", "f8"), *shape)
    return node(x, ints(n).reshape(()), ints(axis).reshape(()), weights=2, onesided=onesided, inverse=inverse)


def _windowed_spectrum(d: Draw) -> Found:
    n, dtype = int(d.one(50, 64, 128, 400)), d.one("f4", "f4", "f8")
    window = filled(d, dtype, n, low=0.0, high=1.0)
    return node(
        filled(d, dtype, 2, d.extent(4000), 1), ints(n // int(d.one(2, 4))).reshape(()), window, weights=2, onesided=int(d.one(0, 1))
    )


def _window(d: Draw) -> Found:
    return node(np.array(d.extent(5000)), periodic=int(d.one(0, 1)))


# ---------------------------------------------------------------- attention


def _attention(d: Draw) -> Found:
    heads, kept, n, m, e, v = d.one(
        (8, 2, 64, 64, 32, 32), (6, 6, 50, 70, 24, 40), (16, 4, 1, 200, 64, 64), (4, 1, 100, 100, 80, 80), (2, 2, 300, 300, 16, 16)
    )
    n, m = d.extent(n), d.extent(m)
    q, k, values = d.normal(2, heads, n, e), d.normal(2, kept, m, e), d.normal(2, kept, m, v)
    mask = d.one(None, d.normal(n, m), d.bools(2, 1, n, m) | (np.arange(m) == 0))
    attributes = {"is_causal": int(d.one(0, 1))} if mask is None else {}
    if d.rng.random() < 0.3:
        attributes["softcap"] = 20.0
    return node(q, k, values, *([] if mask is None else [mask]), **attributes)


def _rotary(d: Draw) -> Found:
    heads, n, e = d.one((4, 40, 80), (8, 128, 64), (2, 300, 48))
    n, part = d.extent(n), int(d.one(0, e // 2))
    half = (part or e) // 2
    x, tables = d.normal(2, heads, n, e), [d.normal(500, half), d.normal(500, half)]
    return node(x, *tables, d.whole(0, 500, 2, n), interleaved=int(d.one(0, 1)), rotary_embedding_dim=part)


def _many_heads(d: Draw) -> Found:
    heads, n, m, e = d.one((8, 64, 64, 32), (12, 1, 128, 64), (4, 100, 60, 40))
    n, m = d.extent(n), d.extent(m)
    return node(d.normal(1, n, heads * e), d.normal(1, m, heads * e), d.normal(1, m, heads * e), num_heads=heads)


def _packed_attention(d: Draw) -> Found:
    n, width, heads = d.extent(64), 256, 8
    return node(d.normal(2, n, width), d.normal(width, 3 * width) * np.float32(0.05), d.normal(3 * width), weights=2, num_heads=heads)


# ---------------------------------------------------------------- what onnxruntime writes


def _skip_norm(d: Draw) -> Found:
    m, n = d.extent(100), d.extent(int(d.one(64, 384, 768)))
    return node(d.normal(1, m, n), d.normal(1, m, n), d.normal(n), d.normal(n), weights=2, epsilon=1e-5)


def _simple_skip_norm(d: Draw) -> Found:
    m, n = d.extent(100), d.extent(int(d.one(64, 384, 768)))
    return node(d.normal(1, m, n), d.normal(1, m, n), d.normal(n), weights=1, epsilon=1e-5)


def _biased(d: Draw) -> Found:
    m, n = d.extent(100), d.extent(int(d.one(64, 384, 768)))
    return node(d.normal(1, m, n), d.normal(n), weights=1)


def _fused_product(d: Draw) -> Found:
    b, m, k, n, ta, tb = d.extent(4), d.extent(60), d.extent(40), d.extent(70), int(d.one(0, 1)), int(d.one(0, 1))
    left, right = ((b, k, m) if ta else (b, m, k)), ((b, n, k) if tb else (b, k, n))
    return node(d.normal(*left), d.normal(*right), transA=ta, transB=tb, alpha=0.125)


def _product_of_nibbles(d: Draw) -> Found:
    m, k, n, block = int(d.one(1, 1, 4, 40)), int(d.one(256, 1024)), d.extent(300), int(d.one(32, 128))
    weights = d.whole(0, 256, n, k // block, block // 2, dtype=np.uint8)
    return node(d.normal(m, k), weights, d.near(0.01, 0.1, n * k // block), weights=2, K=k, N=n, bits=4, block_size=block)


def quantised_elements(count: int) -> Callable[[Draw], Found]:
    def draw(d: Draw) -> Found:
        shape, dtype = shape_of(d, 2, 4), d.one("u1", "i1")
        zero, operands = np.array(3, dtype), [filled(d, dtype, *shape) for _ in range(count)]
        given = [part for x in operands for part in (x, np.array(0.02, np.float32), zero)]
        return node(*given, np.array(0.05, np.float32), zero)

    return draw


def _dynamic_product(d: Draw) -> Found:
    m, k, n = d.extent(60), d.extent(256), d.extent(200)
    b = d.whole(0, 256, k, n, dtype=np.uint8)
    return node(d.normal(m, k), b, np.array(0.02, np.float32), np.array(128, np.uint8), weights=3)


def _product_to_float(d: Draw) -> Found:
    m, k, n = d.extent(60), d.extent(256), d.extent(200)
    a, b = d.whole(0, 256, m, k, dtype=np.uint8), d.whole(0, 256, k, n, dtype=np.uint8)
    scale, zero = np.array(0.02, np.float32), np.array(128, np.uint8)
    return node(a, b, scale, scale, zero, zero, weights=4) | {"arrays": (a, b, scale, scale, zero, zero), "weights": 4}


def _fused_convolution(d: Draw) -> Found:
    c, f, n = d.one((16, 32, 30), (33, 20, 21), (64, 64, 14))
    found = node(d.normal(1, c, n, n), d.normal(f, c, 3, 3), d.normal(f), weights=2, pads=[1] * 4)
    return found | {"attributes": found["attributes"] | {"activation": d.one("Relu", "Tanh", "Sigmoid")}}


def microsoft(draw: Callable[[Draw], Found]) -> Callable[[Draw], Found]:
    """Return the same of onnxruntime's own domain."""
    return lambda d: draw(d) | MICROSOFT


_FLOATING = ("Tan", "Asin", "Acos", "Atanh", "Asinh", "Cosh", "Gelu", "Shrink", "Sin of any", "Cos of any", "Exp of any")
OTHERS: dict[str, Kind] = {
    "Loop": ("control", _loop),
    "Scan": ("control", _scan),
    "If": ("control", _if),
    "NonZero": ("ordering", _nonzero),
    "Compress": ("ordering", _compress),
    "Unique": ("ordering", _unique),
    "NonMaxSuppression": ("ordering", _suppression),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), ("random", _random)),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike", "Bernoulli"), ("random", _random_like)),
    **dict.fromkeys(_FLOATING, ("elements", unary(("f4", "f8"), -0.9, 0.9))),
    "Acosh": ("elements", unary(("f4", "f8"), 1.0, 9.0)),
    "Sin of large": ("elements", unary(("f4", "f8"), -1000.0, 1000.0)),
    "IsInf": ("elements", unary(("f4", "f8"))),
    "PRelu": ("elements", _prelu),
    **dict.fromkeys(("Sum", "Mean", "Max of several", "Min of several"), ("elements", _several)),
    "BitShift": ("elements", _shift),
    "Mod of floats": ("elements", _remainder),
    "RMSNormalization": ("rows", _rms_norm),
    "InstanceNormalization": ("rows", _channel_norm),
    "GroupNormalization": ("rows", _group_norm),
    "BatchNormalization": ("rows", _batch_norm),
    "LRN": ("rows", _lrn),
    **dict.fromkeys(("GridSample", "GridSample again"), ("moving", _sampled)),
    "AffineGrid": ("moving", _affine_grid),
    **dict.fromkeys(("Resize", "Resize again", "Resize once more"), ("moving", _resized)),
    "MaxUnpool": ("indices", _unpooled),
    "Reshape": ("moving", _reshaped),
    "SpaceToDepth": ("moving", _blocks),
    "ReverseSequence": ("moving", _reverse),
    "GatherND in batches": ("indices", _gathered_in_batches),
    "ScatterElements where places meet": ("indices", scattered(("add", "mul", "max", "min"))),
    "ScatterND where rows meet": ("indices", _scattered_rows),
    **dict.fromkeys(("DFT", "DFT again"), ("spectra", _spectrum)),
    "STFT": ("spectra", _windowed_spectrum),
    **dict.fromkeys(("HannWindow", "BlackmanWindow"), ("spectra", _window)),
    **dict.fromkeys(("Attention", "Attention again"), ("attention", _attention)),
    "RotaryEmbedding": ("attention", _rotary),
    "MultiHeadAttention": ("attention", microsoft(_many_heads)),
    "Attention of onnxruntime": ("attention", microsoft(_packed_attention)),
    "SkipLayerNormalization": ("rows", microsoft(_skip_norm)),
    "SkipSimplifiedLayerNormalization": ("rows", microsoft(_simple_skip_norm)),
    **dict.fromkeys(("BiasGelu", "FastGelu"), ("elements", microsoft(_biased))),
    "QuickGelu": ("elements", microsoft(lambda d: node(d.normal(*shape_of(d)), alpha=1.702))),
    "FusedMatMul": ("products", microsoft(_fused_product)),
    "MatMulNBits": ("bytes", microsoft(_product_of_nibbles)),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), ("bytes", microsoft(quantised_elements(2)))),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu"), ("bytes", microsoft(quantised_elements(1)))),
    "DynamicQuantizeMatMul": ("bytes", microsoft(_dynamic_product)),
    "MatMulIntegerToFloat": ("bytes", microsoft(_product_to_float)),
    "FusedConv": ("convolutions", microsoft(_fused_convolution)),
}
"""Operators, or forms of them, with their groups."""
