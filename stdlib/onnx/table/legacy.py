"""Operators that were on trial in the first versions of ONNX, and that onnxruntime still knows: models of CoreML and of WinML have them."""

from __future__ import annotations

import numpy as np

from stdlib.onnx.site import Site
from stdlib.onnx.table.entry import undefined
from stdlib.onnx.table.moving import slice_axis, sliced
from tensorlang.graph.nodes import Value


def scaled(n: Site, x: Value, scale: float, offset: float = 0.0) -> Value:
    y = n.op("mul", x, n.filled((), x.dtype, scale))
    return n.op("add", y, n.filled((), x.dtype, offset)) if offset else y


def affine(n: Site) -> Value:
    return scaled(n, n.arg(0), n.real("alpha", 1.0), n.real("beta", 0.0))


def scale(n: Site) -> Value:
    return scaled(n, n.arg(0), n.real("scale", 1.0))


def image_scaler(n: Site) -> Value:
    """All channels by one number, and to each a number of its own."""
    x, bias = n.arg(0), np.array(n.node.attributes.get("bias", ()), np.float32)
    if len(x.shape) != 4 or bias.shape not in ((0,), (x.shape[1],)):
        raise n.wrong(f"{bias.size} numbers to add to values of the shape {list(x.shape)}")
    y = scaled(n, x, n.real("scale", 1.0))
    return n.op("add", y, n.constant(bias.reshape(-1, 1, 1).astype(x.dtype.numpy))) if bias.size else y


def scaled_tanh(n: Site) -> Value:
    return scaled(n, n.op("map", scaled(n, n.arg(0), n.real("beta", 1.0)), f="tanh"), n.real("alpha", 1.0))


def parametric_softplus(n: Site) -> Value:
    return scaled(n, n.op("map", scaled(n, n.arg(0), n.real("beta", 1.0)), f="softplus"), n.real("alpha", 1.0))


def crop(n: Site) -> Value:
    """A border of an image cut off; with `scale` so many rows and columns behind it kept."""
    x, border = n.arg(0), n.integers("border", low=0, count=4)
    if len(x.shape) != 4:
        raise n.wrong(f"the shape {list(x.shape)} is not that of images")
    left, top, right, bottom = border
    kept = (x.shape[2] - top - bottom, x.shape[3] - left - right)
    if n.has("scale"):
        kept = n.integers("scale", low=0, count=2)  # type: ignore[assignment]
    for axis, start, length in ((2, top, kept[0]), (3, left, kept[1])):
        if length < 0 or start + length > x.shape[axis]:
            raise n.wrong(f"a border of {list(border)} around {list(kept)} of the shape {list(x.shape)}")
        x = slice_axis(n, x, axis, start, length)
    return x


def dynamic_slice(n: Site) -> Value:
    """Slice whose bounds were arguments before those of Slice were."""
    return sliced(n, n.constant_ints(1) or (), n.constant_ints(2) or (), n.constant_ints(3))


RULES = (
    undefined("Affine", affine),
    undefined("Scale", scale),
    undefined("ImageScaler", image_scaler),
    undefined("ScaledTanh", scaled_tanh),
    undefined("ParametricSoftplus", parametric_softplus),
    undefined("Crop", crop),
    undefined("DynamicSlice", dynamic_slice),
)
