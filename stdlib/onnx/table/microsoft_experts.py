"""Mixtures of experts: each row goes through the few networks that a router chooses for it. Domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.indexing import top_k_options
from stdlib.onnx.table.microsoft import gated
from stdlib.onnx.table.microsoft_quantised import rows_of_numbers
from stdlib.onnx.table.moving import joined, slice_axis, transposed
from stdlib.onnx.table.reducing import reduced
from tensorlang.graph.nodes import Value

Layer = Callable[[Value, Value], Value]
"""What of [rows, experts or 1, width] and the numbers of the experts makes [rows, experts, width]."""
_ACTIVATIONS = {"relu": "relu", "relu2": "relu", "gelu": "gelu_tanh", "geglu": "gelu_tanh", "silu": "silu", "identity": "identity"}
_FAR = 0.02
"""By this part of the larger of their sizes scores may be below the best one, and have a share in a sparse mixture."""


def experts(n: Site) -> Value:
    """Shares are those of a softmax of all experts, made to add up to 1 where the node says so, or of a sparse mixture."""
    scores, normalised = cast(n, n.arg(1), DTYPES["f32"]), n.flag("normalize_routing_weights")
    if n.flag("use_sparse_mixer"):
        shares, at = _sparsely(n, scores)
    else:
        shares, at = _chosen(n, n.op("softmax", scores, axis=1))
        shares = _of_one(n, shares) if normalised else shares
    return _mixed(n, shares, at, _layer(n, 2, 3), _layer(n, 4, 5), None if n.maybe(6) is None else _layer(n, 6, 7))


def quantised_experts(n: Site) -> Value:
    """Shares are those of a softmax of the chosen ones, given, or of a sparse mixture."""
    if any(n.maybe(k) is not None for k in range(15, 21)):
        raise n.unsupported("scales of all weights or of activations")
    if n.text("quant_type", "int") != "int":
        raise n.unsupported(f"weights of the kind {n.text('quant_type', 'int')}")
    if n.integer("weights_prepacked", -1) == 1:
        raise n.unsupported("weights in the layout of one device")
    n.without_effect("accuracy_level", "weights_prepacked", "fc3_expert_weight_bits")
    scores, normalised = cast(n, n.arg(1), DTYPES["f32"]), n.flag("normalize_routing_weights")
    if n.flag("use_sparse_mixer"):
        shares, at = _sparsely(n, scores)
    else:
        shares, at = _chosen(n, scores)
        given = n.maybe(14)
        shares = n.op("softmax", shares, axis=1) if given is None else n.op("gather_elements", cast(n, given, DTYPES["f32"]), at, axis=1)
        shares = _of_one(n, shares) if normalised and given is not None else shares
    bits = n.integer("expert_weight_bits", 4)
    layers = [
        _quantised_layer(n, k, bias, zeros, n.integer(f"fc{name}_expert_weight_bits", bits))
        for name, k, bias, zeros in ((1, 2, 4, 11), (2, 5, 7, 12), (3, 8, 10, 13))
        if n.maybe(k) is not None
    ]
    return _mixed(n, shares, at, *layers)


def grouped_scores(n: Site) -> Result:
    """Scores of experts, of which a few are chosen in the groups whose best add up to the most; or all, with their bias and without."""
    x, bias, w = n.arg(0), n.arg(1), n.maybe(2)
    if w is not None:
        x = n.op("matmul", cast(n, x, DTYPES["f32"]), transposed(n, cast(n, w, DTYPES["f32"]), (1, 0)))
    x = cast(n, n.view(x, (prod(x.shape[:-1]), x.shape[-1])), DTYPES["f32"])
    rows, count = x.shape
    groups, kept, best = n.integer("n_group", 1, low=1), n.integer("topk_group", 1, low=1), n.integer("group_topk", 2, low=1)
    chosen, outside = n.integer("top_k", 1, low=1), n.real("router_sentinel", -1e4)
    if bias.shape != (count,) or count % groups or kept > groups or chosen > kept * (count // groups):
        raise n.wrong(f"{chosen} experts of {kept} groups, for {count} in {groups}, with a bias of the shape {list(bias.shape)}")
    shares = n.op("map", x, f="sigmoid")
    scores = n.op("add", shares, n.view(bias, (1, count)))
    if not n.has_output(0):
        return None, scores, shares
    size = count // groups
    ranked = scores
    if kept < groups:
        inside = n.view(scores, (rows, groups, size))
        sums = reduced(n, "reduce_sum", _greatest(n, inside, min(best, size))[0], (2,), keep=False)
        members = _marked(n, _greatest(n, sums, kept)[1], groups)
        ranked = n.view(n.op("select", n.view(members, (rows, groups, 1)), inside, n.filled((), x.dtype, -inf)), scores.shape)
    least = n.filled((), x.dtype, 1e-20)
    logs = n.op("map", n.op("maximum", shares, least), f="log")
    return n.op("select", _marked(n, _greatest(n, ranked, chosen)[1], count), logs, n.filled((), x.dtype, outside)), None, None


def _greatest(n: Site, x: Value, count: int) -> tuple[Value, Value]:
    """Return the greatest elements along the last axis, and where they are."""
    axis = len(x.shape) - 1
    values, at = n.ops("top_largest", x, axis=axis, count=count, **top_k_options(x.shape[axis], count, x.dtype))
    return values, at


def _marked(n: Site, at: Value, count: int) -> Value:
    """Return of each of `count` numbers whether it is in a row of such."""
    rows, many = at.shape
    same = n.op("equal", n.view(at, (rows, many, 1)), n.constant(np.arange(count, dtype=np.int64).reshape(1, 1, count)))
    return n.op("reduce_any", same, axis=1)


def _chosen(n: Site, scores: Value) -> tuple[Value, Value]:
    """Return the greatest scores of each row, and the numbers of their experts."""
    count = n.integer("k", 1, low=1)
    if len(scores.shape) != 2 or count > scores.shape[1]:
        raise n.wrong(f"{count} experts of scores of the shape {list(scores.shape)}")
    return _greatest(n, scores, count)


def _sparsely(n: Site, scores: Value) -> tuple[Value, Value]:
    """Return the shares of the two best experts of each row, and their numbers: each one's share of a softmax over those that are about as
    good, of which the second is of the experts without the first (SparseMixer)."""
    if n.integer("k", 1) != 2 or len(scores.shape) != 2 or scores.shape[1] < 2:
        raise n.wrong(f"a sparse mixture of {n.integer('k', 1)} experts of scores of the shape {list(scores.shape)}")
    left, size, lowest = scores, n.op("map", scores, f="magnitude"), n.filled((), scores.dtype, -inf)
    shares, places = list[Value](), list[Value]()
    for _ in range(2):
        best, at = _greatest(n, left, 1)
        below = n.op("div", n.op("sub", best, scores), n.op("maximum", size, best))
        near = n.op("select", n.op("greater", below, n.filled((), scores.dtype, _FAR)), lowest, left)
        shares.append(n.op("gather_elements", n.op("softmax", near, axis=1), at, axis=1))
        places.append(at)
        left = n.op("select", _marked(n, at, scores.shape[1]), lowest, left)
    return joined(n, tuple(shares), 1), joined(n, tuple(places), 1)


def _of_one(n: Site, shares: Value) -> Value:
    return n.op("div", shares, n.view(n.op("reduce_sum", shares, axis=1), (shares.shape[0], 1)))


def _mixed(n: Site, shares: Value, at: Value, first: Layer, second: Layer, gate: Layer | None = None) -> Value:
    """Return what the chosen experts make of each row, by their shares; what a third layer makes of it are factors between the two."""
    x = n.arg(0)
    rows = prod(x.shape[:-1])
    if len(x.shape) not in (2, 3) or rows != shares.shape[0]:
        raise n.wrong(f"scores of {shares.shape[0]} rows for the shape {list(x.shape)}")
    each = n.view(cast(n, x, DTYPES["f32"]), (rows, 1, x.shape[-1]))
    found = second(_activated(n, first(each, at), None if gate is None else gate(each, at)), at)
    y = n.op("matmul", n.view(shares, (rows, 1, shares.shape[1])), found)
    return cast(n, n.view(y, (*x.shape[:-1], y.shape[2])), x.dtype)


def _activated(n: Site, x: Value, up: Value | None) -> Value:
    """Return what follows the first layer, times `up`. Of `swiglu` and `geglu` the first layer has both as halves, which alternate or stand
    one behind the other, where there is no third."""
    how = n.text("activation_type", "relu", (*_ACTIVATIONS, "swiglu"))
    alpha, beta, limit = n.real("activation_alpha", 1.0), n.real("activation_beta", 0.0), n.real("swiglu_limit", inf)
    fusion, late = n.integer("swiglu_fusion", 0, 0, 2), n.flag("swiglu_limit_after_activation")
    if up is not None and fusion:
        raise n.wrong(f"swiglu_fusion is {fusion}, with a third layer")
    if up is None and how in ("swiglu", "geglu"):
        if not fusion or x.shape[2] % 2:
            raise n.wrong(f"swiglu_fusion is {fusion}, without a third layer and with rows of {x.shape[2]} elements")
        rows, count, width = x.shape
        axis, shape = (3, (rows, count, width // 2, 2)) if fusion == 1 else (2, (rows, count, 2, width // 2))
        halves = n.view(x, shape)
        x, up = (n.view(slice_axis(n, halves, axis, k, 1), (rows, count, width // 2)) for k in (0, 1))
    if how == "swiglu" and up is not None:
        return gated(n, x, up, alpha, beta, limit, late)
    y = n.op("map", x, f=_ACTIVATIONS[how]) if how != "identity" else x
    y = n.op("mul", y, y) if how == "relu2" else y
    return y if up is None else n.op("mul", y, up)


def _bias(n: Site, k: int, count: int, width: int) -> Value:
    bias = n.maybe(k)
    if bias is not None and bias.shape != (count, width):
        raise n.wrong(f"a bias of the shape {list(bias.shape)} for {count} layers of {width} elements")
    return n.filled((1, 1), DTYPES["f32"]) if bias is None else cast(n, bias, DTYPES["f32"])


def _layer(n: Site, k: int, bias: int) -> Layer:
    w = n.arg(k)
    if len(w.shape) != 3:
        raise n.wrong(f"weights of the shape {list(w.shape)}")
    weights, more = cast(n, w, DTYPES["f32"]), _bias(n, bias, *w.shape[:2])
    return lambda x, at: n.op("chosen_linear", x, weights, more, at)


def _quantised_layer(n: Site, k: int, bias: int, zeros: int, bits: int) -> Layer:
    packed, scale, zero = n.arg(k), n.arg(k + 1), n.maybe(zeros)
    if len(packed.shape) != 3 or scale.shape[:2] != packed.shape[:2]:
        raise n.wrong(f"weights of the shape {list(packed.shape)} and scales of {list(scale.shape)}")
    count, width = packed.shape[:2]
    weights = rows_of_numbers(n, packed, bits)
    size = n.integer("block_size", 0) or weights.shape[2]
    blocks = -(-weights.shape[2] // size)
    scales = n.view(cast(n, scale, DTYPES["f32"]), (count, width, blocks))
    if zero is None:
        middle = n.filled((1, 1, 1), weights.dtype, 1 << (bits - 1))
    else:
        each = rows_of_numbers(n, zero, bits)  # of whole bytes: in rows of blocks, or all of an expert in one
        middle = n.view(slice_axis(n, each, len(each.shape) - 1, 0, width if len(each.shape) == 2 else blocks), (count, width, blocks))
    more = _bias(n, bias, count, width)
    return lambda x, at: n.op("chosen_quantised_linear", x, weights, scales, middle, more, at, block=size)


RULES = (
    microsoft("MoE", experts),
    microsoft("QMoE", quantised_experts),
    microsoft("MoEGroupRouter", grouped_scores),
)
