"""Attention in steps, and what models that have it compute beside it: gates, and convolutions that remember what came before."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod, sqrt

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


def packed_attention(n: Site) -> Result:
    """Linear attention of tokens that stand one after the other, whatever request they are of, with states that have values first. Several
    heads of values may share one of queries and keys."""
    if n.integer("state_update_capacity", 0):
        raise n.unsupported("state_update_capacity other than 0")
    n.without_effect("chunk_size", inputs=[9, 10])
    rule = n.text("update_rule", "gated_delta", ("linear", "gated", "delta", "gated_delta"))
    q, k, v = _packed_heads(n)
    (*front, heads, keys), (shared, values) = q.shape, v.shape[-2:]
    bad = k.shape != q.shape or v.shape[:-2] != tuple(front) or shared % heads or (len(front) == 2 and n.maybe(3) is not None)
    if len(front) not in (1, 2) or bad:
        raise n.wrong(f"queries, keys and values of the shapes {[list(x.shape) for x in (q, k, v)]}")
    if n.flag("qk_l2_norm"):
        q, k = (_of_length_one(n, x) for x in (q, k))
    times = (1,) * len(front) + (1, shared // heads, 1)
    q, k = (n.view(repeated(n, n.view(x, (*front, heads, 1, keys)), times), (*front, shared, keys)) for x in (q, k))
    keep = _packed_decay(n, front, shared, keys) if rule.startswith("gated") else n.filled((*front, 1, 1), F32, 1)
    rate = _packed_rate(n, (*front, shared)) if rule.endswith("delta") else n.filled((*front, 1), F32, 1)
    ends, past = n.constant_ints(3), n.maybe(6)
    batch = len(ends) - 1 if ends is not None else front[0] if len(front) == 2 else past.shape[0] if past is not None else 1
    if past is None:
        past = n.filled((batch, shared, values, keys), F32)
    if past.shape != (batch, shared, values, keys):
        raise n.wrong(f"a state of the shape {list(past.shape)} for {batch} requests of {shared} heads of {values} by {keys}")
    n.without_effect(inputs=[4, 5, 7, 8])
    state, corrected = transposed(n, past, (0, 1, 3, 2)), n.filled((), DTYPES["bool"], rule.endswith("delta"))
    found = []
    for parts, before in _requests(n, (q, k, v, keep, rate), state, ends, batch):
        asks, *others = parts
        many, length = asks.shape[:2]
        found.append(n.ops("linear_attention", n.view(asks, (many, length, shared, 1, keys)), *others, before, corrected))
        found[-1] = n.view(found[-1][0], (many * length, shared, values)), found[-1][1]
    y, last = (joined(n, tuple(one[at] for one in found), 0) for at in (0, 1))
    y = n.op("mul", n.view(y, (*front, shared, values)), n.filled((), F32, n.real("scale", 0.0) or 1 / sqrt(keys)))
    return cast(n, y, n.arg(0).dtype), transposed(n, last, (0, 1, 3, 2))


def _packed_heads(n: Site) -> tuple[Value, Value, Value]:
    """Return queries, keys and values, each [tokens or batch and length, heads, size], as f32. They may stand in one value, which then a
    state takes apart."""
    q, k, v, past = n.arg(0), n.maybe(1), n.maybe(2), n.maybe(6)
    if k is None or v is None:
        if past is None or len(past.shape) != 4:
            raise n.wrong("queries, keys and values in one value need a state")
        _, shared, values, keys = past.shape
        width, last = q.shape[-1] - shared * values, len(q.shape) - 1
        if width <= 0 or width % (2 * keys):
            raise n.wrong(f"{q.shape[-1]} elements of a token for {shared} heads of {values} by {keys}")
        heads = width // (2 * keys)
        q, k = (slice_axis(n, n.arg(0), last, at * heads * keys, heads * keys) for at in (0, 1))
        v = n.view(slice_axis(n, n.arg(0), last, width, shared * values), (*q.shape[:-1], shared, values))
        q, k = (n.view(x, (*x.shape[:-1], heads, keys)) for x in (q, k))
    if not len(q.shape) == len(k.shape) == len(v.shape) in (3, 4):
        raise n.wrong(f"queries, keys and values of the shapes {[list(x.shape) for x in (q, k, v)]}")
    return cast(n, q, F32), cast(n, k, F32), cast(n, v, F32)


def _of_length_one(n: Site, x: Value) -> Value:
    """Return vectors along the last axis divided by their lengths."""
    squares = n.op("reduce_sum", n.op("mul", x, x), axis=len(x.shape) - 1)
    squares = n.op("add", n.view(squares, (*x.shape[:-1], 1)), n.filled((), F32, 1e-6))
    return n.op("div", x, n.op("map", squares, f="sqrt"))


def _packed_decay(n: Site, front: list[int], heads: int, keys: int) -> Value:
    """Return what is left of a state at each token, [front…, heads, keys or 1]: the exponential of what a gate makes of the decay."""
    decay, gate = n.arg(4), n.text("gate_activation", "none", ("none", "softplus", "qwen", "sigmoid", "kda"))
    if decay.shape not in ((*front, heads), (*front, heads, keys)):
        raise n.wrong(f"a decay of the shape {list(decay.shape)} for {heads} heads of {keys} keys")
    each = n.view(cast(n, decay, F32), (*front, heads, decay.shape[-1] if len(decay.shape) > len(front) + 1 else 1))
    bound = n.real("gate_lower_bound", -5.0)
    if gate == "none":
        return n.op("map", each, f="exp")
    slope, bias = n.op("map", n.view(n.arg(7), (heads, 1)), f="exp"), n.arg(8)
    if prod(bias.shape) not in (heads, heads * each.shape[-1]):
        raise n.wrong(f"a bias of the shape {list(bias.shape)} for {heads} heads of {keys} keys")
    each = n.op("add", each, n.view(bias, (heads, prod(bias.shape) // heads)))
    if gate in ("softplus", "qwen"):
        each = n.op("map", n.op("mul", slope, n.op("map", each, f="softplus")), f="negate")
    else:
        each = n.op("mul", n.op("map", n.op("mul", slope, each), f="sigmoid"), n.filled((), F32, bound))
    return n.op("map", each, f="exp")


def _packed_rate(n: Site, shape: tuple[int, ...]) -> Value:
    rate, activation = n.arg(5), n.text("beta_activation", "none", ("none", "sigmoid"))
    if rate.shape != shape:
        raise n.wrong(f"rates of the shape {list(rate.shape)}, not {list(shape)}")
    return cast(n, rate, F32) if activation == "none" else n.op("map", cast(n, rate, F32), f="sigmoid")


def _requests(
    n: Site, packed: tuple[Value, ...], state: Value, ends: tuple[int, ...] | None, batch: int
) -> Iterator[tuple[tuple[Value, ...], Value]]:
    """Yield what belongs together of values whose first axis is that of tokens, or whose first two are those of requests and their tokens:
    all requests, where they are equally long, or each by itself; and the states of these."""
    tokens, rank = packed[0].shape[0], len(packed[0].shape)
    if rank == 4:
        yield packed, state
        return
    if ends is None and tokens % batch:
        raise n.wrong(f"{tokens} tokens of {batch} requests")
    ends = tuple(k * (tokens // batch) for k in range(batch + 1)) if ends is None else ends
    lengths = [b - a for a, b in pairwise(ends)]
    if ends[0] or ends[-1] != tokens or min(lengths) < 0:
        raise n.wrong(f"requests that end at {list(ends)} of {tokens} tokens")
    if len(set(lengths)) == 1:
        yield tuple(n.view(x, (batch, lengths[0], *x.shape[1:])) for x in packed), state
        return
    for k, (start, length) in enumerate(zip(ends, lengths, strict=False)):
        parts = (slice_axis(n, x, 0, start, length) for x in packed)
        yield tuple(n.view(x, (1, *x.shape)) for x in parts), slice_axis(n, state, 0, k, 1)


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
    microsoft("GatedDeltaNet", packed_attention),
    microsoft("LinearAttentionGate", attention_gate),
    microsoft("CausalConvWithState", causal_convolution),
)
