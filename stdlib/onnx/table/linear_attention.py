"""Attention in steps, and what models that have it compute beside it: gates, and convolutions that remember what came before."""

from __future__ import annotations

from math import sqrt

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.contract import convolution_of
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry, microsoft
from stdlib.onnx.table.moving import joined, repeated, slice_axis, transposed
from tensorlang.graph.nodes import Value

F32 = DTYPES["f32"]


def linear_attention(n: Site) -> Result:
    """States are f32, whatever the others are. Several queries may read one state, and in onnxruntime several states serve one query."""
    queries, heads = n.integer("q_num_heads", 0, low=1), n.integer("kv_num_heads", 0, low=1)
    rule = n.text("update_rule", "gated_delta", ("linear", "gated", "delta", "gated_delta"))
    n.without_effect("chunk_size")
    if n.integer("state_window", 0):
        raise n.unsupported("state_window other than 0")
    many, shared = max(1, queries // heads), max(1, heads // queries)
    q, k, v = (_heads(n, n.arg(j), count) for j, count in enumerate((queries, heads, heads)))
    batch, length, _, keys = k.shape
    if max(queries, heads) % min(queries, heads) or q.shape != (batch, length, queries, keys) or v.shape[:2] != k.shape[:2]:
        raise n.wrong(f"{queries} heads of queries and {heads} of keys in {[list(n.arg(j).shape) for j in range(3)]}")
    q = n.view(q, (batch, length, min(heads, queries), many if shared == 1 else 1, keys))
    if shared > 1:
        q = n.view(repeated(n, q, (1, 1, 1, shared, 1)), (batch, length, heads, 1, keys))
    past = n.maybe(3)
    state = n.filled((batch, heads, keys, v.shape[3]), F32) if past is None else cast(n, past, F32)
    if state.shape != (batch, heads, keys, v.shape[3]):
        raise n.wrong(f"a state of the shape {list(state.shape)} for {heads} heads of {keys} by {v.shape[3]}")
    keep = _decay(n, batch, length, heads, keys) if rule.startswith("gated") else n.filled((1, 1, 1, 1), F32, 1)
    corrected = rule.endswith("delta")
    rate = _rate(n, batch, length, heads) if corrected else n.filled((1, 1, 1), F32, 1)
    n.without_effect(inputs=[4, 5])
    y, last = n.ops("linear_attention", q, k, v, keep, rate, state, n.filled((), DTYPES["bool"], corrected))
    y = n.op("mul", y, n.filled((), F32, n.real("scale", 0.0) or 1 / sqrt(keys)))
    y = n.view(y, (batch, length, max(queries, heads) * v.shape[3]))
    return cast(n, y, n.arg(0).dtype), cast(n, last, (n.arg(0) if past is None else past).dtype)


def _heads(n: Site, x: Value, count: int) -> Value:
    """Return [batch, length, heads, size] of [batch, length, heads * size], as f32."""
    if len(x.shape) != 3 or x.shape[2] % count:
        raise n.wrong(f"a value of the shape {list(x.shape)} for {count} heads")
    return cast(n, n.view(x, (*x.shape[:2], count, x.shape[2] // count)), F32)


def _decay(n: Site, batch: int, length: int, heads: int, keys: int) -> Value:
    """Return what is left of a state at each step: the exponential of a number for each head, or for each of its keys."""
    decay = n.arg(4)
    if decay.shape not in ((batch, length, heads), (batch, length, heads * keys)):
        raise n.wrong(f"a decay of the shape {list(decay.shape)} for {heads} heads of {keys} keys")
    return n.op("map", _heads(n, decay, heads), f="exp")


def _rate(n: Site, batch: int, length: int, heads: int) -> Value:
    rate = n.arg(5)
    if rate.shape not in ((batch, length, heads), (batch, length, 1)):
        raise n.wrong(f"rates of the shape {list(rate.shape)} for {heads} heads")
    return cast(n, rate, F32)


def attention_gate(n: Site) -> Result:
    """The decay of each head, and how much of what is new a state takes."""
    a, bias, scale, b = n.arg(0), n.arg(1), n.arg(2), n.maybe(3)
    softened = n.op("map", n.op("add", cast(n, a, F32), cast(n, bias, F32)), f="softplus")
    decay = cast(n, n.op("mul", softened, cast(n, scale, F32)), a.dtype)
    return decay, None if b is None else cast(n, n.op("map", cast(n, b, F32), f="sigmoid"), b.dtype)


def causal_convolution(n: Site) -> Result:
    """Each channel by itself, along the last axis, of which the past is remembered."""
    extended = {"state_update_capacity": 0, "state_window": 0, "state_length": 0, "input_channel_offset": 0, "input_channels": 0}
    if any(n.integer(name, default) != default for name, default in extended.items()) or n.integer("state_channels_last", -1) != -1:
        raise n.unsupported("states of another form than that of its input")
    x, w, bias, past = n.arg(0), n.arg(1), n.maybe(2), n.maybe(3)
    rank, dilation, last = n.integer("ndim", 1, 1, 3), n.integer("dilation", 1, low=1), n.flag("channels_last")
    if rank > 1 or len(w.shape) != 3 or w.shape[1] != 1:
        raise n.unsupported(f"ndim = {rank} and a kernel of the shape {list(w.shape)}")
    shape = x.shape
    x = _channels_second(n, x, w.shape[0], last)
    batch, channels, length = x.shape
    before = (w.shape[2] - 1) * dilation
    past = n.filled((batch, channels, before), x.dtype) if past is None else _channels_second(n, past, channels, last)
    if channels != w.shape[0] or past.shape != (batch, channels, before):
        raise n.wrong(f"an input of the shape {list(shape)} and a state of {list(past.shape)} for a kernel of {list(w.shape)}")
    whole = joined(n, (past, x), 2) if before else x
    y = x if 0 in x.shape else convolution_of(n.like(group=channels, dilations=(dilation,)), whole, w, bias)
    if n.text("activation", "none", ("none", "silu", "swish")) != "none":
        y = n.op("map_with", y, f="swish", a=1.0)
    present = slice_axis(n, whole, 2, length, before)
    if last:
        y, present = (n.view(transposed(n, v, (0, 2, 1)), (batch, v.shape[2], *shape[2:])) for v in (y, present))
    return y, present


def _channels_second(n: Site, x: Value, channels: int, last: bool) -> Value:
    """Return [batch, channels, length] of that or, where channels are the last axes, of [batch, length, …]."""
    if not last and len(x.shape) == 3:
        return x
    if not last or len(x.shape) < 3:
        raise n.wrong(f"a value of the shape {list(x.shape)} for {channels} channels")
    return transposed(n, n.view(x, (*x.shape[:2], channels)), (0, 2, 1))


RULES = (
    Entry("LinearAttention", 27, 27, linear_attention),
    microsoft("LinearAttention", linear_attention),
    microsoft("LinearAttentionGate", attention_gate),
    microsoft("CausalConvWithState", causal_convolution),
)
