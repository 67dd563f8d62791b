"""Operators that onnxruntime writes into the models that it optimises: activations, normalisations, products. Domain com.microsoft."""

from __future__ import annotations

from math import inf, log, prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.items import Item
from stdlib.onnx.site import Result, Rule, Site
from stdlib.onnx.table.contract import conv, conv_transpose, convolution_of, gemm, product
from stdlib.onnx.table.elementwise import WITH_ALPHA, WITH_TWO, cast, dropout
from stdlib.onnx.table.entry import microsoft, undefined
from stdlib.onnx.table.moving import slice_axis, transposed
from stdlib.onnx.table.normalise import layer_normalised, rms_norm
from stdlib.onnx.table.reducing import reduced
from stdlib.onnx.table.spectral import transform
from tensorlang.graph.nodes import Value


def with_bias(f: str) -> Rule:
    """A function of the sum of one or two arguments."""

    def rule(n: Site) -> Value:
        x, bias = n.arg(0), n.maybe(1)
        return n.op("map", x if bias is None else n.op("add", x, bias), f=f)

    return rule


def quick_gelu(n: Site) -> Value:
    return n.op("map_with", n.arg(0), f="swish", a=n.real("alpha", 1.702))


def bias_split_gelu(n: Site) -> Value:
    """The first half times the gelu of the second."""
    x = n.op("add", n.arg(0), n.arg(1))
    last = len(x.shape) - 1
    if x.shape[last] % 2:
        raise n.wrong(f"{x.shape[last]} elements have no halves")
    half = x.shape[last] // 2
    one, other = (slice_axis(n, x, last, k * half, half) for k in (0, 1))
    return n.op("mul", one, n.op("map", other, f="gelu"))


def fused_matmul(n: Site) -> Value:
    a, b = n.arg(0), n.arg(1)
    a = _turned(n, a, n.flag("transA"), n.flag("transBatchA"))
    b = _turned(n, b, n.flag("transB"), n.flag("transBatchB"))
    y, alpha = product(n, a, b), n.real("alpha", 1.0)
    return y if alpha == 1 else n.op("mul", y, n.filled((), y.dtype, alpha))


def activated_matmul(n: Site) -> Value:
    return activated(n, fused_matmul(n))


def _turned(n: Site, x: Value, rows: bool, batch: bool) -> Value:
    """Return `x` with its last two axes exchanged, and the first moved behind the batch where that says so."""
    rank = len(x.shape)
    if rank < 2:
        return x
    order = [*range(1, rank - 1), 0, rank - 1] if batch else list(range(rank))
    if rows:
        order[-2:] = reversed(order[-2:])
    return transposed(n, x, tuple(order))


def fused_gemm(n: Site) -> Value:
    return activated(n, gemm(n))


def fused_conv(n: Site) -> Value:
    """A convolution, what is added to it, and an activation."""
    y, more = conv(n), n.maybe(3)
    return activated(n, y if more is None else n.op("add", y, more))


def nhwc_conv(n: Site) -> Value:
    """Channels are the last axis of the values, and of each kernel."""
    x, w = n.arg(0), n.arg(1)
    rank = len(x.shape)
    if rank < 3 or len(w.shape) != rank:
        raise n.wrong(f"values of the shape {list(x.shape)} and kernels of the shape {list(w.shape)}")
    first = (0, rank - 1, *range(1, rank - 1))
    y = convolution_of(n, transposed(n, x, first), transposed(n, w, first), n.maybe(2))
    y = transposed(n, y, (0, *range(2, rank), 1))
    more = n.maybe(3)
    return activated(n, y if more is None else n.op("add", y, more))


_PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign", "HardSwish": "hard_swish"}
"""Activations without parameters."""


def activated(n: Site, y: Value) -> Value:
    """Return what the attribute `activation` makes of a value: its parameters are one list, or attributes of their own, and by default
    those of the operator of this name."""
    name = n.text("activation", "")
    given = n.node.attributes.get("activation_params", ())
    params = iter(float(p) for p in given) if isinstance(given, tuple) else iter(())

    def parameter(which: str, default: float) -> float:
        return next(params, n.real(f"activation_{which}", default))

    match name:
        case "":
            return y
        case _ if name in _PLAIN:
            return n.op("map", y, f=_PLAIN[name])
        case _ if name in WITH_ALPHA:
            f, default = WITH_ALPHA[name]
            return n.op("map_with", y, f=f, a=parameter("alpha", default))
        case _ if name in WITH_TWO:
            f, first, second = WITH_TWO[name]
            return n.op("map_with_two", y, f=f, a=parameter(*first), b=parameter(*second))
        case "Clip":
            return n.op("clip", y, lo=parameter("alpha", -inf), hi=parameter("beta", inf))
        case _:
            raise n.unsupported(f"the activation {name}")


def skip_layer_norm(n: Site) -> Result:
    """layer_norm(input + skip + bias); the sum is the fourth result."""
    total = _skipped(n, 4)
    return *layer_normalised(n, total, n.arg(2), n.maybe(3), len(total.shape) - 1, n.real("epsilon", 1e-12)), total


def _skipped(n: Site, bias: int) -> Value:
    x, skip, more = n.arg(0), n.arg(1), n.maybe(bias)
    total = n.op("add", x, skip if skip.shape == x.shape or len(skip.shape) == len(x.shape) else n.view(skip, (1, *skip.shape)))
    return total if more is None else n.op("add", total, more)


def skip_rms_norm(n: Site) -> Result:
    total = _skipped(n, 3)
    if n.has_output(1) or n.has_output(2):
        raise n.unsupported("statistics as outputs")
    return n.op("rms_norm", total, n.arg(2), axis=len(total.shape) - 1, eps=n.real("epsilon", 1e-12)), None, None, total


def simplified_norm(n: Site) -> Result:
    if n.has_output(1):
        raise n.unsupported("statistics as outputs")
    return rms_norm(n)


def embed_layer_norm(n: Site) -> Result:
    n.without_effect("mask_index_type")
    return embedded(n)


def embedded(n: Site) -> Result:
    """The embeddings of words, positions and segments, added up and normalised; and how many words of each row count."""
    ids, segments, words, places, kinds, g, b, mask, positions = (n.maybe(k) for k in range(9))
    if ids is None or words is None or places is None or g is None or b is None or len(ids.shape) != 2:
        raise n.wrong("it needs a matrix of words, tables of words and positions, a scale and a bias")
    batch, length = ids.shape
    total = n.op("gather", words, ids, axis=0)
    if positions is None:
        if places.shape[0] < length:
            raise n.wrong(f"{length} words and {places.shape[0]} positions")
        found = n.op("slice", places, start=(0, 0), step=(1, 1), length=(length, places.shape[1]))
    else:
        found = n.op("gather", places, positions, axis=0)
    total = n.op("add", total, found if len(found.shape) == 3 else n.view(found, (1, *found.shape)))
    if segments is not None and kinds is not None:
        total = n.op("add", total, n.op("gather", kinds, segments, axis=0))
    y = n.op("layer_norm", total, g, b, axis=2, eps=n.real("epsilon", 1e-12))
    index: Item = None
    if n.has_output(1):
        index = n.filled((batch,), DTYPES["i32"], 0) if mask is None else reduced(n, "reduce_sum", mask, (1,), keep=False)
    return y, index, total if n.has_output(2) else None


def bias_add(n: Site) -> Value:
    return n.op("add", n.op("add", n.arg(0), n.arg(1)), n.arg(2))


def group_norm(n: Site) -> Value:
    return _groups_normalised(n, n.arg(0))


def _groups_normalised(n: Site, x: Value) -> Value:
    """Channels are the last axis unless `channels_last` says otherwise; `activation` 1 is x · sigmoid(x)."""
    last = n.flag("channels_last", True)
    rank = len(x.shape)
    if last:
        x = transposed(n, x, (0, rank - 1, *range(1, rank - 1)))
    g, b = cast(n, n.arg(1), x.dtype), cast(n, n.arg(2), x.dtype)
    groups = n.integer("groups", 1, low=1)
    if rank < 3 or x.shape[1] % groups:
        raise n.wrong(f"{groups} groups do not fit the shape {list(x.shape)}")
    y = n.op("group_norm", x, g, b, groups=groups, eps=n.real("epsilon", 1e-5))
    if n.integer("activation", 0, 0, 1):
        y = n.op("map_with", y, f="swish", a=1.0)
    return transposed(n, y, (0, *range(2, rank), 1)) if last else y


def skip_group_norm(n: Site) -> Result:
    """group_norm(x + skip + bias), where what is skipped may be one for all places of an image; the sum is the second result."""
    x, skip, bias = n.arg(0), n.arg(3), n.maybe(4)
    last = n.flag("channels_last", True)
    axis = len(x.shape) - 1 if last else 1
    if len(skip.shape) == 2:
        skip = n.view(skip, tuple(skip.shape[k] if k == 0 else skip.shape[1] if k == axis else 1 for k in range(len(x.shape))))
    total = n.op("add", x, skip)
    if bias is not None:
        total = n.op("add", total, n.view(bias, tuple(bias.shape[0] if k == axis else 1 for k in range(len(x.shape)))))
    return _groups_normalised(n, total), total if n.has_output(1) else None


def bias_softmax(n: Site) -> Value:
    """The softmax of a sum, over all axes from `axis` on."""
    n.without_effect("is_inner_broadcast")
    total = n.op("add", n.arg(0), n.arg(1))
    axis = n.axis("axis", 1, len(total.shape))
    flat = n.view(total, (prod(total.shape[:axis]), prod(total.shape[axis:])))
    return n.view(n.op("softmax", flat, axis=1), total.shape)


def bias_dropout(n: Site) -> Result:
    total, residual = n.op("add", n.arg(0), n.arg(1)), n.maybe(2)
    found = dropout(n.like(total, *n.inputs[3:]))
    y = found[0]
    assert y is not None
    return y if residual is None else n.op("add", y, residual), found[1]


def gemm_gelu(n: Site) -> Value:
    y, bias = product(n, n.arg(0), n.arg(1)), n.maybe(2)
    return n.op("map", y if bias is None else n.op("add", y, bias), f="gelu_tanh")


def scaled_silu(n: Site) -> Value:
    x, scale = n.arg(0), n.maybe(1)
    scale = n.filled((), x.dtype, n.real("alpha", 1.0)) if scale is None else cast(n, n.view(scale, ()), x.dtype)
    n.without_effect("alpha")
    return n.op("map_with", n.op("mul", x, scale), f="swish", a=1.0)


def clamped_swiglu(n: Site) -> Value:
    """Both halves may stand in one value, one behind the other."""
    gate, up = n.arg(0), n.maybe(1)
    last = len(gate.shape) - 1
    if up is None:
        if gate.shape[last] % 2:
            raise n.wrong(f"{gate.shape[last]} elements have no halves")
        size = gate.shape[last] // 2
        gate, up = (slice_axis(n, gate, last, k * size, size) for k in (0, 1))
    n.without_effect("round_activation")
    limit, beta = n.real("limit", 0.0), n.real("activation_beta", 0.0)
    return gated(n, gate, up, n.real("activation_alpha", 1.0), beta, limit if limit > 0 else inf)


def gated(n: Site, gate: Value, up: Value, alpha: float, beta: float, limit: float, late: bool = False) -> Value:
    """Return g · sigmoid(alpha · g) · (u + beta), where g is at most the limit, or where that comes `late` what the first two factors make,
    and u between it and its negative."""
    if limit < inf:
        up = n.op("clip", up, lo=-limit, hi=limit)
        gate = gate if late else n.op("clip", gate, lo=-inf, hi=limit)
    up = n.op("add", up, n.filled((), up.dtype, beta)) if beta else up
    opened = n.op("map_with", gate, f="swish", a=alpha)
    return n.op("mul", n.op("clip", opened, lo=-inf, hi=limit) if late and limit < inf else opened, up)


def gated_rms_norm(n: Site) -> Value:
    """Stretches of the last axis as long as the scale, each normalised, times a function of the gate."""
    x, g, gate = n.arg(0), n.arg(1), n.arg(2)
    if len(g.shape) != 1 or not g.shape[0] or not x.shape or x.shape[-1] % g.shape[0] or gate.shape != x.shape:
        raise n.wrong(f"a scale of the shape {list(g.shape)} and gates of {list(gate.shape)} for the shape {list(x.shape)}")
    rows = n.view(x, (*x.shape[:-1], x.shape[-1] // g.shape[0], g.shape[0]))
    y = n.view(n.op("rms_norm", rows, g, axis=len(rows.shape) - 1, eps=n.real("epsilon", 1e-5)), x.shape)
    plain = n.text("activation", "silu", ("silu", "swish", "sigmoid")) == "sigmoid"
    return n.op("mul", y, n.op("map", gate, f="sigmoid") if plain else n.op("map_with", gate, f="swish", a=1.0))


def gated_add(n: Site) -> Value:
    return n.op("add", n.arg(0), n.op("mul", n.arg(1), n.arg(2)))


def complex_product(conjugate: bool) -> Rule:
    """Real and imaginary parts are the last axis. `conjugate`: of the second factor the conjugate."""

    def rule(n: Site) -> Value:
        a, b = n.arg(0), n.arg(1)
        if a.shape[-1:] != (2,) or b.shape[-1:] != (2,):
            raise n.wrong(f"no complex numbers in the shapes {list(a.shape)} and {list(b.shape)}")
        real, imaginary = (slice_axis(n, b, len(b.shape) - 1, k, 1) for k in (0, 1))
        if conjugate:
            imaginary = n.op("map", imaginary, f="negate")
        product = n.op("rotate_pairs", n.view(a, (*a.shape[:-1], 1, 2)), real, imaginary)
        return n.view(product, (*product.shape[:-2], 2))

    return rule


def fourier(inverse: bool) -> Rule:
    """Of real numbers along the last axis one half of what is symmetric; `inverse`: back from that, divided by how many there are."""

    def rule(n: Site) -> Value:
        x = n.arg(0)
        if n.integer("signal_ndim", 1) != 1 or not n.flag("onesided", True) or n.flag("normalized"):
            raise n.unsupported("signal_ndim other than 1, onesided = 0 or normalized = 1")
        if not inverse:
            x = n.view(x, (*x.shape, 1))
        rank = len(x.shape)
        if rank < 2 or x.shape[-1] != (2 if inverse else 1):
            raise n.wrong(f"nothing to transform in the shape {list(x.shape)}")
        length = 2 * (x.shape[-2] - 1) if inverse else x.shape[-2]
        y = transform(n, x, rank - 2, length, inverse, True)
        return n.view(y, y.shape[:-1]) if inverse else y

    return rule


def inverse(n: Site) -> Value:
    x = n.arg(0)
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise n.wrong(f"the shape {list(x.shape)} is not that of square matrices")
    return n.op("inverse", x) if prod(x.shape) else x


def distances(n: Site) -> Value:
    """Between each row of one matrix and each of another."""
    y = n.op("squared_distances", n.arg(0), n.arg(1))
    return y if n.text("metric", "sqeuclidean", ("sqeuclidean", "euclidean")) == "sqeuclidean" else n.op("map", y, f="sqrt")


def product_of_words(n: Site) -> Value:
    """Integers of 16 bits, multiplied and summed in 32."""
    a, b = n.arg(0), n.arg(1)
    dtype = DTYPES["u32" if a.dtype == b.dtype == DTYPES["u16"] else "i32"]
    return product(n, cast(n, a, dtype), cast(n, b, dtype))


def padded_conv_transpose(n: Site) -> Value:
    """The padding is an input, which has to be known."""
    pads = n.constant_ints(2)
    more = {} if pads is None else {"pads": pads}
    return conv_transpose(n.like(n.inputs[0], n.inputs[1], n.item(3), **more))


def relative_position_bias(n: Site) -> Value:
    """For each head what a table of it has for how far a key is from a query, in steps that grow with the distance (T5)."""
    table, queries, keys = n.arg(0), *(n.constant_ints(k) or (0,) for k in (1, 2))
    buckets, heads = table.shape
    n.small(queries[0] * keys[0], "the table of distances")
    away = np.arange(keys[0])[None, :] - np.arange(queries[0])[:, None]
    both = n.flag("is_bidirectional")
    count = buckets // 2 if both else buckets
    near, far = count // 2, n.integer("max_distance", 128, low=1)
    steps = np.abs(away) if both else np.maximum(-away, 0)
    ratio = np.log(np.maximum(steps, 1).astype(np.float32) / near) / np.float32(log(far / near))
    large = np.minimum(near + (ratio * (count - near)).astype(np.int64), count - 1)
    bucket = np.where(steps < near, steps, large) + (count * (away > 0) if both else 0)
    rows = n.view(table, (heads, buckets))  # the table is stored with heads in front, whatever its shape says
    y = n.op("gather", rows, n.constant(bucket.astype(np.int64)), axis=1)
    return n.view(y, (1, *y.shape))


def gated_position_bias(n: Site) -> Value:
    """A bias by position, times what two gates of the queries make of it (WavLM)."""
    q, q_bias, bias, w, b, eco = (n.arg(k) for k in range(6))
    heads = n.integer("num_heads", 1, low=1)
    q = n.op("add", q, q_bias)
    if len(q.shape) != 3 or q.shape[2] % heads or len(w.shape) != 2 or w.shape[1] % 2:
        raise n.wrong(f"queries of the shape {list(q.shape)} and weights of {list(w.shape)} for {heads} heads")
    batch, length, width = q.shape
    each = transposed(n, n.view(q, (batch, length, heads, width // heads)), (0, 2, 1, 3))
    found = n.op("add", product(n, each, w), b)
    halves = n.view(found, (batch, heads, length, 2, w.shape[1] // 2))
    gates = n.op("map", reduced(n, "reduce_sum", halves, (4,), keep=False), f="sigmoid")
    u, r = (slice_axis(n, gates, 3, k, 1) for k in (0, 1))
    one, two = (n.filled((), q.dtype, k) for k in (1, 2))
    return n.op("mul", n.op("add", n.op("mul", u, n.op("sub", n.op("mul", r, eco), one)), two), bias)


RULES = (
    microsoft("Gelu", with_bias("gelu")),
    microsoft("BiasGelu", with_bias("gelu")),
    microsoft("FastGelu", with_bias("gelu_tanh")),
    microsoft("QuickGelu", quick_gelu),
    microsoft("BiasSplitGelu", bias_split_gelu),
    microsoft("BiasAdd", bias_add),
    microsoft("FusedMatMul", fused_matmul),
    microsoft("TransposeMatMul", fused_matmul),
    microsoft("FusedMatMulActivation", activated_matmul),
    microsoft("FusedGemm", fused_gemm),
    microsoft("FusedConv", fused_conv),
    microsoft("NhwcConv", nhwc_conv),
    microsoft("NhwcFusedConv", nhwc_conv),
    microsoft("SkipLayerNormalization", skip_layer_norm),
    microsoft("SkipSimplifiedLayerNormalization", skip_rms_norm),
    microsoft("SimplifiedLayerNormalization", simplified_norm),
    undefined("SimplifiedLayerNormalization", simplified_norm),
    microsoft("EmbedLayerNormalization", embed_layer_norm),
    microsoft("GroupNorm", group_norm),
    microsoft("SkipGroupNorm", skip_group_norm),
    microsoft("BiasSoftmax", bias_softmax),
    microsoft("BiasDropout", bias_dropout),
    microsoft("GemmFastGelu", gemm_gelu),
    microsoft("ScaledSiLU", scaled_silu),
    microsoft("SwiGLU", clamped_swiglu),
    microsoft("GatedRMSNorm", gated_rms_norm),
    microsoft("GatedAdd", gated_add),
    microsoft("ComplexMul", complex_product(False)),
    microsoft("ComplexMulConj", complex_product(True)),
    microsoft("Rfft", fourier(False)),
    microsoft("Irfft", fourier(True)),
    microsoft("Inverse", inverse),
    microsoft("CDist", distances),
    microsoft("MatMulInteger16", product_of_words),
    microsoft("ConvTransposeWithDynamicPads", padded_conv_transpose),
    microsoft("RelativePositionBias", relative_position_bias),
    microsoft("GatedRelativePositionBias", gated_position_bias),
)
