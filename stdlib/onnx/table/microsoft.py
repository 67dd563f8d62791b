"""Operators that onnxruntime writes into the models that it optimises: activations, normalisations, products. Domain com.microsoft."""

from __future__ import annotations

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Item, Result, Rule, Site
from stdlib.onnx.table.contract import conv, convolution_of, gemm, product
from stdlib.onnx.table.entry import Entry, microsoft
from stdlib.onnx.table.moving import transposed
from stdlib.onnx.table.reducing import reduced
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
    parts = n.view(x, (*x.shape[:last], 2, half))
    one, other = (_half(n, parts, k, (*x.shape[:last], half)) for k in (0, 1))
    return n.op("mul", one, n.op("map", other, f="gelu"))


def _half(n: Site, parts: Value, k: int, shape: tuple[int, ...]) -> Value:
    rank = len(parts.shape)
    start = tuple(k if axis == rank - 2 else 0 for axis in range(rank))
    length = tuple(1 if axis == rank - 2 else extent for axis, extent in enumerate(parts.shape))
    return n.view(n.op("slice", parts, start=start, step=(1,) * rank, length=length), shape)


def fused_matmul(n: Site) -> Value:
    a, b = n.arg(0), n.arg(1)
    a = _turned(n, a, n.flag("transA"), n.flag("transBatchA"))
    b = _turned(n, b, n.flag("transB"), n.flag("transBatchB"))
    y, alpha = product(n, a, b), n.real("alpha", 1.0)
    return y if alpha == 1 else n.op("mul", y, n.filled((), y.dtype, alpha))


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


_PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign"}


def activated(n: Site, y: Value) -> Value:
    """Return what the attribute `activation` makes of a value."""
    name = n.text("activation", "")
    given = n.node.attributes.get("activation_params", ())
    params = [float(p) for p in given] if isinstance(given, tuple) else []
    match name, params:
        case "", _:
            return y
        case _, _ if name in _PLAIN:
            return n.op("map", y, f=_PLAIN[name])
        case "LeakyRelu", _:
            return n.op("map_with", y, f="leaky_relu", a=params[0] if params else n.real("activation_alpha", 0.01))
        case "Clip", [low, high]:
            return n.op("clip", y, lo=low, hi=high)
        case "HardSigmoid", [alpha, beta]:
            return n.op("map_with_two", y, f="hard_sigmoid", a=alpha, b=beta)
        case _:
            raise n.unsupported(f"the activation {name}")


def skip_layer_norm(n: Site) -> Result:
    """layer_norm(input + skip + bias); the sum is the fourth result."""
    total = _skipped(n, 4)
    axis = len(total.shape) - 1
    eps = n.real("epsilon", 1e-12)
    y, mean, inv = _normalised(n, total, n.arg(2), n.maybe(3), axis, eps)
    return y, mean, inv, total


def _skipped(n: Site, bias: int) -> Value:
    x, skip, more = n.arg(0), n.arg(1), n.maybe(bias)
    total = n.op("add", x, skip if skip.shape == x.shape or len(skip.shape) == len(x.shape) else n.view(skip, (1, *skip.shape)))
    return total if more is None else n.op("add", total, more)


def _normalised(n: Site, x: Value, g: Value, b: Value | None, axis: int, eps: float) -> tuple[Value, Item, Item]:
    if not (n.has_output(1) or n.has_output(2)):
        return n.op("layer_norm", x, g, b, axis=axis, eps=eps), None, None
    y, mean, inv = n.ops("layer_norm_statistics", x, g, b, axis=axis, eps=eps)
    kept = x.shape[:axis] + (1,) * (len(x.shape) - axis)
    return y, n.view(mean, kept), n.view(inv, kept)


def skip_rms_norm(n: Site) -> Result:
    total = _skipped(n, 3)
    if n.has_output(1) or n.has_output(2):
        raise n.unsupported("statistics as outputs")
    return n.op("rms_norm", total, n.arg(2), axis=len(total.shape) - 1, eps=n.real("epsilon", 1e-12)), None, None, total


def rms_norm(n: Site) -> Result:
    x = n.arg(0)
    if n.has_output(1):
        raise n.unsupported("statistics as outputs")
    return n.op("rms_norm", x, n.arg(1), axis=n.axis("axis", -1, len(x.shape)), eps=n.real("epsilon", 1e-5))


def embed_layer_norm(n: Site) -> Result:
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
    """Channels are the last axis unless `channels_last` says otherwise; `activation` 1 is x · sigmoid(x)."""
    x = n.arg(0)
    last = n.flag("channels_last", True)
    rank = len(x.shape)
    if last:
        x = transposed(n, x, (0, rank - 1, *range(1, rank - 1)))
    g, b = n.arg(1), n.arg(2)
    groups = n.integer("groups", 1, low=1)
    if rank < 3 or x.shape[1] % groups:
        raise n.wrong(f"{groups} groups do not fit the shape {list(x.shape)}")
    y = n.op("group_norm", x, g, b, groups=groups, eps=n.real("epsilon", 1e-5))
    if n.integer("activation", 0, 0, 1):
        y = n.op("map_with", y, f="swish", a=1.0)
    return transposed(n, y, (0, *range(2, rank), 1)) if last else y


RULES = (
    microsoft("Gelu", with_bias("gelu")),
    microsoft("BiasGelu", with_bias("gelu")),
    microsoft("FastGelu", with_bias("gelu_tanh")),
    microsoft("QuickGelu", quick_gelu),
    microsoft("BiasSplitGelu", bias_split_gelu),
    microsoft("BiasAdd", bias_add),
    microsoft("FusedMatMul", fused_matmul),
    microsoft("TransposeMatMul", fused_matmul),
    microsoft("FusedGemm", fused_gemm),
    microsoft("FusedConv", fused_conv),
    microsoft("NhwcConv", nhwc_conv),
    microsoft("NhwcFusedConv", nhwc_conv),
    microsoft("SkipLayerNormalization", skip_layer_norm),
    microsoft("SkipSimplifiedLayerNormalization", skip_rms_norm),
    microsoft("SimplifiedLayerNormalization", rms_norm),
    Entry("SimplifiedLayerNormalization", 1, 1, rms_norm),
    microsoft("EmbedLayerNormalization", embed_layer_norm),
    microsoft("GroupNorm", group_norm),
)
