"""Attention, RotaryEmbedding, SwiGLU: the blocks of transformers that newer exporters write as one node."""

from __future__ import annotations

from math import copysign, sqrt

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import joined, on_diagonals, slice_axis, transposed
from stdlib.onnx.tensors import element_type
from tensorlang.graph.nodes import Value


def attention(n: Site) -> tuple[Value | None, ...]:
    """Heads are axis 1. Groups of query heads share one head of keys: they become an axis of their own, along which keys broadcast."""
    q, k, v = (_heads(n, n.arg(i), "q_num_heads" if i == 0 else "kv_num_heads") for i in range(3))
    if (n.maybe(4) is None) != (n.maybe(5) is None):
        raise n.wrong("past keys and values must be given together")
    past = 0
    if n.maybe(4) is not None:
        past = k.shape[2]
        k, v = joined(n, (n.arg(4), k), 2), joined(n, (n.arg(5), v), 2)
        past = k.shape[2] - past
    batch, heads, queries, size = q.shape
    keys, shared = k.shape[2], k.shape[1]
    if k.shape != (batch, shared, keys, size) or v.shape[:3] != k.shape[:3] or not shared or heads % shared or not size:
        raise n.wrong(f"queries, keys and values of the shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    group = heads // shared
    raw = product = scaled_product(n, q, k, n.real("scale", 1 / sqrt(size)))
    cap = n.real("softcap", 0.0)
    capped = product = n.op("map_with", product, f="soft_cap", a=cap) if cap > 0 else product
    for bias in _biases(n, q, shared, group, keys, past):
        product = n.op("add", product, bias)
    precision = element_type(n.integer("softmax_precision", 0), "the softmax") if n.integer("softmax_precision", 0) else q.dtype
    if not precision.is_float:
        raise n.unsupported(f"a softmax of {precision}")
    weights = cast(n, n.op("masked_softmax", cast(n, product, precision)), q.dtype)
    y = n.view(_summed(n, weights, n.view(v, (batch, shared, 1, keys, v.shape[3]))), (batch, heads, queries, v.shape[3]))
    if len(n.arg(0).shape) == 3:
        y = n.view(transposed(n, y, (0, 2, 1, 3)), (batch, queries, heads * v.shape[3]))
    shown = (raw, capped, product, weights)[n.integer("qk_matmul_output_mode", 0, 0, 3)]
    return y, k, v, n.view(shown, (batch, heads, queries, keys)) if n.has_output(3) else None


def _summed(n: Site, weights: Value, v: Value) -> Value:
    """Return the values by their weights, in the type of these: summed in the wider of both types, or in one that holds both."""
    kinds = {weights.dtype, v.dtype}
    wide = max(kinds, key=lambda dtype: dtype.bits) if len({dtype.bits for dtype in kinds}) == len(kinds) else DTYPES["f32"]
    return cast(n, n.op("matmul", cast(n, weights, wide), cast(n, v, wide)), weights.dtype)


def scaled_product(n: Site, q: Value, k: Value, scale: float) -> Value:
    """Return [batch, shared, group, queries, keys]. What is as wide as f32 is scaled once; in 16 bits a product could overflow before."""
    (batch, heads, queries, size), (shared, keys) = q.shape, k.shape[1:3]
    narrow = q.dtype.size_bytes < 4
    if narrow:
        root = sqrt(abs(scale))
        q, k = n.op("mul", q, n.filled((), q.dtype, copysign(root, scale))), n.op("mul", k, n.filled((), k.dtype, root))
    left, right = n.view(q, (batch, shared, heads // shared, queries, size)), n.view(k, (batch, shared, 1, keys, size))
    product = n.op("scores", left, right)
    return product if narrow else n.op("mul", product, n.filled((), q.dtype, scale))


def _heads(n: Site, x: Value, attribute: str) -> Value:
    """Return [batch, heads, length, size] of that, or of [batch, length, heads * size]."""
    if len(x.shape) == 4:
        return x
    count = n.integer(attribute, 0, low=1)
    if len(x.shape) != 3 or x.shape[2] % count:
        raise n.wrong(f"a value of the shape {list(x.shape)} for {count} heads")
    return transposed(n, n.view(x, (*x.shape[:2], count, x.shape[2] // count)), (0, 2, 1, 3))


def _biases(n: Site, q: Value, shared: int, group: int, keys: int, past: int) -> list[Value]:
    """Return what is added to the scores [batch, shared, group, queries, keys]: 0 where a query may see a key, else -inf or a penalty."""
    batch, heads, queries, _ = q.shape
    causal, lengths = n.flag("is_causal"), n.maybe(6)
    found: list[Value] = []
    mask = n.maybe(3)
    if mask is not None and mask.dtype not in (DTYPES["bool"], q.dtype):
        raise n.wrong(f"a mask of type {mask.dtype} for queries of type {q.dtype}")
    if mask is not None:
        mask = _as_bias(n, _widened(n, mask, keys), q)
        shape = (1,) * (4 - len(mask.shape)) + mask.shape
        if len(shape) != 4 or any(have not in (1, full) for have, full in zip(shape, (batch, heads, queries, keys), strict=True)):
            raise n.wrong(f"a mask of the shape {list(mask.shape)}")
        found.append(n.view(mask, (shape[0], 1, 1, *shape[2:]) if shape[1] == 1 else (shape[0], shared, group, *shape[2:])))
    if lengths is not None:
        known = n.op("causal_length_mask" if causal else "length_mask", cast(n, lengths, DTYPES["i64"]), queries=queries, keys=keys)
        found.append(n.view(_as_bias(n, known, q), (batch, 1, 1, queries, keys)))
    left, right = n.integer("left_window_size", -1, low=-1), n.integer("right_window_size", -1, low=-1)
    if lengths is not None and (left >= 0 or right >= 0):
        raise n.unsupported("a window together with nonpad_kv_seqlen")
    causal = causal and lengths is None
    if causal or left >= 0 or right >= 0:
        found.append(window_bias(n, q, keys, past, left, 0 if causal else right))
    return found


def window_bias(n: Site, q: Value, keys: int, past: int, left: int = -1, right: int = -1) -> Value:
    """Return what is added to scores of queries that stand behind `past` keys: 0 for keys that are no more than `left` before and `right`
    after the query, where these are not negative, else -inf."""
    every = n.filled((q.shape[2], keys), DTYPES["bool"], 1)
    return _as_bias(n, on_diagonals(n, every, past - left if left >= 0 else None, past + right if right >= 0 else None), q)


def _widened(n: Site, mask: Value, keys: int) -> Value:
    """Return the mask with the keys it does not mention forbidden."""
    missing = keys - mask.shape[-1] if mask.shape else 0
    if missing <= 0 or mask.shape[-1] == 1:
        return mask
    fill = n.constant(np.asarray(False if mask.dtype == DTYPES["bool"] else -np.inf, mask.dtype.numpy))
    zeros = (0,) * len(mask.shape)
    return n.op("pad", mask, fill, lo=zeros, hi=(*zeros[1:], missing))


def _as_bias(n: Site, mask: Value, q: Value) -> Value:
    if mask.dtype == DTYPES["bool"]:
        return n.op("mask_bias", mask, n.constant(np.zeros((), q.dtype.numpy)))
    return mask


def rotary(n: Site) -> Value:
    x, cosines, sines = n.arg(0), n.arg(1), n.arg(2)
    flat = len(x.shape) == 3
    work = n.view(x, (*x.shape[:2], *_split(n, x))) if flat else x
    size = work.shape[3]
    width = n.integer("rotary_embedding_dim", 0, low=0, high=size) or size
    if width % 2:
        raise n.wrong(f"{width} elements cannot be rotated in pairs")
    if n.maybe(3) is not None:
        cosines, sines = (n.op("gather", table, n.arg(3), axis=0) for table in (cosines, sines))
    heads = -1 if flat else 1
    cosines, sines = (n.view(t, (*t.shape[:heads], 1, *t.shape[heads:])) for t in (cosines, sines))
    return n.view(rotated(n, work, cosines, sines, width, n.flag("interleaved")), x.shape)


def rotated(n: Site, work: Value, cosines: Value, sines: Value, width: int, pairs: bool) -> Value:
    """Return a value of rank four with the first `width` elements of its rows rotated, neighbours together (`pairs`) or one of either half.
    Cosines and sines are of its shape, of half the width or broadcast to that."""
    size = work.shape[3]
    turned, rest = slice_axis(n, work, 3, 0, width), slice_axis(n, work, 3, width, size - width) if width < size else None
    parts = n.view(turned, (*work.shape[:3], width // 2, 2) if pairs else (*work.shape[:3], 2, width // 2))
    y = n.view(n.op("rotate_pairs" if pairs else "rotate_halves", parts, cosines, sines), turned.shape)
    return y if rest is None else joined(n, (y, rest), 3)


def _split(n: Site, x: Value) -> tuple[int, int]:
    heads = n.integer("num_heads", 0, low=1)
    if x.shape[2] % heads:
        raise n.wrong(f"{x.shape[2]} elements in {heads} heads")
    return heads, x.shape[2] // heads


def swiglu(n: Site) -> Value:
    return n.op("mul", n.op("map_with", n.arg(0), f="swish", a=n.real("alpha", 1.0)), n.arg(1))


def tensor_scatter(n: Site) -> Value:
    """Each row of the batch is written from a place of its own on, from the first where there are none."""
    x, update, places = n.arg(0), n.arg(1), n.maybe(2)
    axis = n.axis("axis", -2, len(x.shape))
    rest = tuple(have == full or k == axis for k, (have, full) in enumerate(zip(update.shape, x.shape, strict=False)))
    if axis == 0 or len(update.shape) != len(x.shape) or not all(rest) or update.shape[axis] > x.shape[axis]:
        raise n.wrong(f"a value of the shape {list(update.shape)} written over one of {list(x.shape)} along axis {axis}")
    if 0 in update.shape:
        return x
    places = n.filled((x.shape[0],), DTYPES["i64"]) if places is None else cast(n, places, DTYPES["i64"])
    return n.op("write_at", x, update, places, axis=axis - 1, circular=int(n.text("mode", "linear", ("linear", "circular")) == "circular"))


RULES = (
    Entry("TensorScatter", 24, 24, tensor_scatter),
    Entry("Attention", 23, 25, attention),
    Entry("RotaryEmbedding", 23, 23, rotary),
    Entry("SwiGLU", 28, 28, swiglu),
)
