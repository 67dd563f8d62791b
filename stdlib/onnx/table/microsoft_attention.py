"""Attention as onnxruntime writes it into models, with keys of the past and rotations. Domain com.microsoft."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.items import Item
from stdlib.onnx.model import Array
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.attend import rotated, scaled_product, window_bias
from stdlib.onnx.table.contract import product
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.moving import joined, slice_axis, transposed
from tensorlang.graph.nodes import Value


def attended(
    n: Site, q: Value, k: Value, v: Value, scale: float, biases: list[Value], cap: float = 0.0, sink: Value | None = None
) -> Value:
    """Return [batch, queries, heads * size] of heads [batch, heads, length, size]; `biases` broadcast to [batch, shared, group, queries,
    keys], where heads of queries share heads of keys. `sink`: the score of one more key for each head, which has no value."""
    (batch, heads, queries, _), (shared, keys) = q.shape, k.shape[1:3]
    if not shared or heads % shared or v.shape[:3] != k.shape[:3]:
        raise n.wrong(f"queries, keys and values of the shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    found = scaled_product(n, q, k, scale)
    found = n.op("map_with", found, f="soft_cap", a=cap) if cap > 0 else found
    for bias in biases:
        found = n.op("add", found, bias)
    shares = n.op("masked_softmax", found) if sink is None else n.op("sink_softmax", found, n.view(sink, (shared, heads // shared, 1)))
    y = n.op("matmul", shares, n.view(v, (batch, shared, 1, keys, v.shape[3])))
    y = n.view(y, (batch, heads, queries, v.shape[3]))
    return n.view(transposed(n, y, (0, 2, 1, 3)), (batch, queries, heads * v.shape[3]))


def heads_of(n: Site, x: Value, count: int) -> Value:
    """Return [batch, heads, length, size] of [batch, length, heads * size]."""
    if len(x.shape) != 3 or count < 1 or x.shape[2] % count:
        raise n.wrong(f"a value of the shape {list(x.shape)} for {count} heads")
    return transposed(n, n.view(x, (*x.shape[:2], count, x.shape[2] // count)), (0, 2, 1, 3))


def _scale(n: Site, size: int) -> float:
    return n.real("scale", 0.0) or 1 / sqrt(size)


def _causal(n: Site, q: Value, keys: int, past: int) -> list[Value]:
    """Return what hides keys after a query, which stands behind the `past` first of them."""
    return [window_bias(n, q, keys, past, right=0)] if n.flag("unidirectional") else []


def _mask(n: Site, mask: Value | None, q: Value, keys: int) -> list[Value]:
    """Return what a mask adds: 0 for keys that count, else `mask_filter_value`. It says where rows end, or end and begin, or has a number
    for each key of a row, of a query, or of each pair of places there may be."""
    low = n.real("mask_filter_value", -10000.0)
    if mask is None:
        return []
    batch, _, queries, _ = q.shape
    shape: tuple[int, ...] = (batch, 1, 1, queries, keys)
    if mask.shape in ((batch,), (2 * batch,)):
        ends = cast(n, mask, DTYPES["i64"])
        allowed = n.op("length_mask", slice_axis(n, ends, 0, 0, batch), queries=queries, keys=keys)
        if mask.shape != (batch,):  # where rows begin stands behind where they end
            before = n.op("length_mask", slice_axis(n, ends, 0, batch, batch), queries=queries, keys=keys)
            allowed = n.op("logical_and", allowed, n.op("logical_not", before))
    elif mask.shape in ((batch, keys), (batch, queries, keys)):
        allowed = n.op("greater", mask, n.filled((), mask.dtype, 0))
        shape = (batch, 1, 1, *((1,) if len(mask.shape) == 2 else (queries,)), keys)
    elif len(mask.shape) == 4 and mask.shape[:2] == (batch, 1) and mask.shape[2] == mask.shape[3] >= keys:
        last = slice_axis(n, slice_axis(n, mask, 2, keys - queries, queries), 3, 0, keys)
        allowed = n.op("greater", last, n.filled((), mask.dtype, 0))
    else:
        raise n.unsupported(f"a mask of the shape {list(mask.shape)}")
    return [n.view(n.op("select", allowed, n.filled((), q.dtype), n.filled((), q.dtype, low)), shape)]


def _bias(n: Site, bias: Value | None, q: Value, keys: int) -> list[Value]:
    """Return what is added to scores for heads that share nothing."""
    if bias is None:
        return []
    batch, heads, queries, _ = q.shape
    wanted = (batch, heads, queries, keys)
    if len(bias.shape) != 4 or any(have not in (1, full) for have, full in zip(bias.shape, wanted, strict=True)):
        raise n.wrong(f"a bias of the shape {list(bias.shape)} for scores of the shape {list(wanted)}")
    return [n.view(bias, (bias.shape[0], bias.shape[1], 1, *bias.shape[2:]))]


def attention(n: Site) -> Result:
    """Queries, keys and values are one product of the input with weights."""
    x, weights, bias = n.arg(0), n.arg(1), n.maybe(2)
    if len(x.shape) != 3 or len(weights.shape) != 2:
        raise n.wrong(f"an input of the shape {list(x.shape)} and weights of {list(weights.shape)}")
    found = product(n, x, weights)
    return attended_heads(n, found if bias is None else n.op("add", found, bias), n.maybe(3), n.maybe(4), n.maybe(5))


def attended_heads(n: Site, found: Value, mask: Value | None, past: Value | None, bias: Value | None) -> tuple[Value, Item]:
    """Return attention of queries, keys and values that are parts of the last axis of one value; `past` and the second result hold keys and
    values."""
    if n.flag("do_rotary") or n.flag("past_present_share_buffer"):
        raise n.unsupported("do_rotary = 1 or past_present_share_buffer = 1")
    n.without_effect("rotary_embedding_dim")
    heads = n.integer("num_heads", 0, low=1)
    sizes = n.integers("qkv_hidden_sizes", (found.shape[-1] // 3,) * 3, low=1, count=3)
    if sum(sizes) != found.shape[-1]:
        raise n.wrong(f"queries, keys and values of {list(sizes)} elements in {found.shape[-1]}")
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (heads_of(n, slice_axis(n, found, 2, start, size), heads) for start, size in zip(starts, sizes, strict=True))
    new = k.shape[2]
    if past is not None:
        old = [n.view(slice_axis(n, past, 0, j, 1), past.shape[1:]) for j in (0, 1)]
        k, v = joined(n, (old[0], k), 2), joined(n, (old[1], v), 2)
    keys = k.shape[2]
    biases = [*_mask(n, mask, q, keys), *_bias(n, bias, q, keys), *_causal(n, q, keys, keys - new)]
    y = attended(n, q, k, v, _scale(n, q.shape[3]), biases)
    present: Item = None
    if n.has_output(1):
        present = joined(n, (n.view(k, (1, *k.shape)), n.view(v, (1, *v.shape))), 0)
    return y, present


def multi_head_attention(n: Site) -> Result:
    """Queries, keys and values apart, or packed into one value of five dimensions."""
    heads = n.integer("num_heads", 0, low=1)
    q, k, v, bias = n.arg(0), n.maybe(1), n.maybe(2), n.maybe(3)
    if any(n.maybe(j) is not None for j in (8, 9)):
        raise n.unsupported("past_sequence_length or cache_indirection")
    if len(q.shape) == 5:
        q, k, v = (_packed(n, q, j, 3) for j in range(3))
    elif k is not None and len(k.shape) == 5:
        k, v = (_packed(n, k, j, 2) for j in range(2))
    if k is None or v is None:
        raise n.wrong("there are no keys or values")
    q, k, v = _biased(n, bias, q, k, v)
    q, k, v = (value if len(value.shape) == 4 else heads_of(n, value, heads) for value in (q, k, v))
    new = k.shape[2]
    if n.maybe(6) is not None:
        k, v = joined(n, (n.arg(6), k), 2), joined(n, (n.arg(7), v), 2)
    keys = k.shape[2]
    biases = [*_mask(n, n.maybe(4), q, keys), *_bias(n, n.maybe(5), q, keys), *_causal(n, q, keys, keys - new)]
    y = attended(n, q, k, v, _scale(n, q.shape[3]), biases)
    return y, k if n.has_output(1) else None, v if n.has_output(2) else None


def attended_sequences(n: Site, q: Value, k: Value, v: Value, bias: Value | None, lengths: Value, scores: Value | None) -> Value:
    """Return attention of [batch, length, width], to which a bias is added, among the keys that there are of each sequence; `scores` are
    added to those."""
    q, k, v = (heads_of(n, value, n.integer("num_heads", 0, low=1)) for value in _biased(n, bias, q, k, v))
    keys = k.shape[2]
    return attended(n, q, k, v, _scale(n, q.shape[3]), [*_mask(n, lengths, q, keys), *_bias(n, scores, q, keys)])


def _biased(n: Site, bias: Value | None, q: Value, k: Value, v: Value) -> tuple[Value, Value, Value]:
    """Return queries, keys and values with a bias added, which has none for what comes in heads."""
    if bias is None:
        return q, k, v
    sizes = [value.shape[-1] if len(value.shape) == 3 else 0 for value in (q, k, v)]
    if bias.shape != (sum(sizes),) and sizes[1:] == [0, 0]:
        bias = slice_axis(n, bias, 0, 0, sizes[0])  # of keys and values that come in heads it has been added
    if bias.shape != (sum(sizes),):
        raise n.wrong(f"a bias of the shape {list(bias.shape)} for {sizes} elements")
    starts = (0, sizes[0], sizes[0] + sizes[1])
    parts = zip((q, k, v), starts, sizes, strict=True)
    q, k, v = (n.op("add", value, slice_axis(n, bias, 0, at, size)) if size else value for value, at, size in parts)
    return q, k, v


def decoder_attention(n: Site) -> Result:
    """One query a row. Keys and values are new and stand behind those of the past, or are all that there are (heads, of an encoder). Where
    past and present share memory, this has room for more, and how many there are is an input."""
    heads = n.integer("num_heads", 0, low=1)
    q, k, v, mask, past = n.arg(0), n.maybe(1), n.maybe(2), n.maybe(3), n.maybe(5)
    if n.maybe(9) is not None or n.flag("output_qk"):
        raise n.unsupported("cache_indirection or output_qk = 1")
    n.without_effect(inputs=[8])
    if k is None or v is None:
        size = q.shape[-1] // 3
        q, k, v = (slice_axis(n, q, 2, j * size, size) for j in range(3))
    q, k, v = _biased(n, n.maybe(10), q, k, v)
    own = len(k.shape) == 3
    q, k, v = (value if len(value.shape) == 4 else heads_of(n, value, heads) for value in (q, k, v))
    biases: list[Value] = []
    bias = n.maybe(4)
    if n.flag("past_present_share_buffer") and own and past is not None:
        batch, keys = q.shape[0], past.shape[2]
        before = n.op("add", n.filled((batch,), DTYPES["i64"]), cast(n, n.view(n.arg(7), ()), DTYPES["i64"]))
        k, v = (_cached(n, n.arg(j), value, before, keys) for j, value in ((5, k), (6, v)))
        seen = n.op("cached_mask", before, queries=q.shape[2], keys=keys)
        biases.append(n.view(n.op("mask_bias", seen, n.filled((), q.dtype)), (batch, 1, 1, q.shape[2], keys)))
        mask, bias = (None if value is None else _with_room(n, value, keys) for value in (mask, bias))
        if mask is not None and mask.shape != (batch, keys):
            raise n.unsupported(f"a mask of the shape {list(mask.shape)} for room for {keys} keys")
    elif own and past is not None:
        k, v = joined(n, (past, k), 2), joined(n, (n.arg(6), v), 2)
    n.without_effect(inputs=[5, 6, 7])
    keys = k.shape[2]
    biases += [*_mask(n, mask, q, keys), *_bias(n, bias, q, keys)]
    y = attended(n, q, k, v, _scale(n, q.shape[3]), biases)
    return y, k if n.has_output(1) else None, v if n.has_output(2) else None


def _packed(n: Site, x: Value, k: int, count: int) -> Value:
    """Return number `k` of what [batch, length, heads, count, size] packs, as [batch, length, heads * size]."""
    batch, length, heads, found, size = x.shape
    if found != count:
        raise n.wrong(f"a packed value of the shape {list(x.shape)}")
    return n.view(slice_axis(n, x, 3, k, 1), (batch, length, heads * size))


def group_query_attention(n: Site) -> Result:
    """Each row of the batch has keys of its own length, `seqlens_k` + 1 with those that are new; the new ones stand behind the others.

    A cache that slides has room for the keys of a window and a few more: it begins with the oldest that it has, and loses what no query
    reads any more. Queries and keys are counted from there."""
    heads, shared = n.integer("num_heads", 0, low=1), n.integer("kv_num_heads", 0, low=1)
    if n.integer("qk_output", 0):
        raise n.unsupported("qk_output")
    forms = [_cache_form(n, "k", 12), _cache_form(n, "v", 13)]
    window, slides = n.integer("local_window_size", -1), n.flag("sliding_window_cache")
    ends, total = n.arg(5), (0,) if slides else n.constant_ints(6) or (0,)
    q, k, v = _queries_keys_values(n, heads, shared)
    batch, queries, _, size = q.shape
    after = n.op("add", cast(n, n.view(ends, (batch,)), DTYPES["i64"]), n.filled((), DTYPES["i64"], 1))
    before = n.filled((batch,), DTYPES["i64"]) if queries > 1 and queries == total[0] else _before(n, after, queries)
    if n.maybe(14) is not None:
        shown = n.real("qk_norm_epsilon", 1e-6)
        q = n.op("rms_norm", q, n.arg(14), axis=3, eps=n.real("q_norm_epsilon", shown))
        k = n.op("rms_norm", k, n.arg(15), axis=3, eps=n.real("k_norm_epsilon", shown))
    if n.flag("do_rotary"):
        q, k = _turned(n, (q, k), (7, 8), n.maybe(9) or n.op("positions_from", before, count=queries))
    n.without_effect("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon", "rotary_interleaved", inputs=[6, 7, 8, 9])
    q, k, v = (transposed(n, value, (0, 2, 1, 3)) for value in (q, k, v))
    news = [form.stored(n, value) for form, value in zip(forms, (k, v), strict=True)]
    if slides:
        room = _room(n, window)
        first = n.op("resident", before, room=room, width=window)
        behind = n.op("sub", n.op("sub", after, before), n.op("sub", n.op("resident", after, room=room, width=window), first))
        keys, before = room + queries, first
        cached = [_cached(n, n.arg(j), value, before, keys) for j, value in enumerate(news, 3)]
        present = [n.op("read_at", value, behind, axis=1, count=room) for value in cached]
    else:
        keys = max(total[0], 0 if n.maybe(3) is None else n.arg(3).shape[2])
        present = cached = [_cached(n, n.maybe(j), value, before, keys) for j, value in enumerate(news, 3)]
    k, v = (form.numbers(n, value) for form, value in zip(forms, cached, strict=True))
    if n.flag("causal", True):
        seen = n.op("cached_mask", before, queries=queries, keys=keys, width=window)
    else:
        seen = n.op("length_mask", after, queries=queries, keys=keys)
    bias = n.op("mask_bias", seen, n.filled((), q.dtype))
    if slides and n.maybe(10) is not None:
        raise n.unsupported("attention_bias with sliding_window_cache")
    biases = [n.view(bias, (batch, 1, 1, queries, keys)), *_grouped_bias(n, n.maybe(10), q, shared, keys)]
    sink = n.maybe(11)
    if sink is None and n.integer("smooth_softmax", -1) == 1:
        sink = n.filled((heads,), q.dtype)
    n.without_effect("smooth_softmax")
    return attended(n, q, k, v, _scale(n, size), biases, n.real("softcap", 0.0), sink), *present


def _before(n: Site, after: Value, queries: int) -> Value:
    """Return how many keys of each row of the batch are past: all but as many as it has queries, at most."""
    valid = cast(n, n.view(n.arg(16), after.shape), DTYPES["i64"]) if n.maybe(16) is not None else n.filled((), DTYPES["i64"], queries)
    return n.op("maximum", n.op("sub", after, valid), n.filled((), DTYPES["i64"]))


def _room(n: Site, window: int) -> int:
    """Return how many keys a cache has room for that keeps those of a window, the oldest first."""
    room = n.arg(3).shape[2]
    if not n.flag("causal", True) or window < 1 or room < window:
        raise n.wrong(f"a cache of {room} keys for windows of {window}")
    return room


@dataclass(frozen=True, slots=True)
class _CacheForm:
    """How keys or values of the past are stored: as they are, or as so many bits each, which a scale makes numbers of."""

    scale: Value | None = None
    bits: int = 8

    def stored(self, n: Site, x: Value) -> Value:
        """Return numbers, [batch, heads, length, size], as they are stored: two of four bits are one byte, the first in its low bits."""
        if self.scale is None:
            return x
        dtype = DTYPES["i8" if self.bits == 8 else "i4"]
        y = n.op("quantise", x, self.scale, n.filled((), dtype))
        if self.bits == 8:
            return y
        if x.shape[3] % 2:
            raise n.wrong(f"heads of {x.shape[3]} elements, of which pairs are stored")
        above = cast(n, n.op("add", cast(n, y, DTYPES["i8"]), n.filled((), DTYPES["i8"], 8)), DTYPES["u8"])
        return n.view(n.op("pack_pairs", n.view(above, (prod(x.shape),))), (*x.shape[:3], x.shape[3] // 2))

    def numbers(self, n: Site, x: Value) -> Value:
        """Return the numbers that are stored."""
        if self.scale is None:
            return x
        if self.bits == 4:
            pairs = n.op("unpack_bits", n.view(x, (prod(x.shape),)), bits=4)
            above = cast(n, n.view(pairs, (*x.shape[:3], 2 * x.shape[3])), DTYPES["i8"])
            x = n.op("sub", above, n.filled((), DTYPES["i8"], 8))
        return n.op("dequantise", x, self.scale, n.filled((), DTYPES["i8"]))


def _cache_form(n: Site, which: str, k: int) -> _CacheForm:
    """Return how keys ("k") or values ("v") of the past are stored; input `k` is their scale."""
    kind, bits = n.text(f"{which}_quant_type", "NONE", ("NONE", "PER_TENSOR", "PER_CHANNEL")), n.integer("kv_cache_bit_width", 8)
    if kind == "NONE":
        n.without_effect(inputs=[k])
        return _CacheForm()
    if bits not in (4, 8):
        raise n.wrong(f"keys and values of {bits} bits")
    scale = cast(n, n.arg(k), n.arg(0).dtype)
    return _CacheForm(n.view(scale, ()) if kind == "PER_TENSOR" else scale, bits)


def _queries_keys_values(n: Site, heads: int, shared: int) -> tuple[Value, Value, Value]:
    """Return [batch, length, heads, size] of each: the first three inputs, or parts of the first."""
    x = n.arg(0)
    if n.maybe(1) is not None:
        q, k, v = (_rows(n, n.arg(j), count) for j, count in enumerate((heads, shared, shared)))
        return q, k, v
    if len(x.shape) != 3 or x.shape[2] % (heads + 2 * shared):
        raise n.wrong(f"packed heads of the shape {list(x.shape)}")
    size = x.shape[2] // (heads + 2 * shared)
    starts, counts = (0, heads, heads + shared), (heads, shared, shared)
    q, k, v = (_rows(n, slice_axis(n, x, 2, start * size, count * size), count) for start, count in zip(starts, counts, strict=True))
    return q, k, v


def _turned(n: Site, values: tuple[Value, ...], tables: tuple[int, int], places: Value) -> tuple[Value, ...]:
    """Return [batch, length, heads, size] each rotated by the angles that two inputs have for their places."""
    cosines, sines = (n.op("gather", n.arg(j), places, axis=0) for j in tables)
    (batch, length), half = values[0].shape[:2], cosines.shape[-1]
    c, s = (n.view(t, (batch, length, 1, half)) for t in (cosines, sines))
    return tuple(rotated(n, value, c, s, 2 * half, n.flag("rotary_interleaved")) for value in values)


def _grouped_bias(n: Site, bias: Value | None, q: Value, shared: int, keys: int) -> list[Value]:
    """Return what is added to scores for heads of which groups share keys; of keys that there is only room for it says nothing."""
    if bias is None:
        return []
    heads, queries = q.shape[1:3]
    if len(bias.shape) != 4 or bias.shape[1] not in (1, heads) or bias.shape[2] != queries or bias.shape[3] > keys:
        raise n.wrong(f"a bias of the shape {list(bias.shape)} for {heads} heads, {queries} queries and {keys} keys")
    bias = _with_room(n, bias, keys)
    groups = (1, 1) if bias.shape[1] == 1 else (shared, heads // shared)
    return [n.view(bias, (bias.shape[0], *groups, queries, keys))]


def _with_room(n: Site, x: Value, keys: int) -> Value:
    """Return a mask or a bias that says nothing of keys behind those of its last axis, for which there is only room."""
    last = len(x.shape) - 1
    if last < 0 or x.shape[last] >= keys:
        return x
    return n.op("pad", x, n.filled((), x.dtype), lo=(0,) * (last + 1), hi=(*(0,) * last, keys - x.shape[last]))


def _rows(n: Site, x: Value, count: int) -> Value:
    if len(x.shape) != 3 or x.shape[2] % count:
        raise n.wrong(f"a value of the shape {list(x.shape)} for {count} heads")
    return n.view(x, (*x.shape[:2], count, x.shape[2] // count))


def _cached(n: Site, past: Value | None, new: Value, before: Value, keys: int) -> Value:
    """Return the keys that there were, as many as fit, and the new ones behind them."""
    batch, heads, _, size = new.shape
    if past is None:
        past = n.filled((batch, heads, 0, size), new.dtype)
    missing = keys - past.shape[2]
    if missing > 0:
        past = joined(n, (past, n.filled((batch, heads, missing, size), new.dtype)), 2)
    return n.op("write_at", past, new, before, axis=1, circular=0)


def sparse_attention(n: Site) -> Result:
    """Each query sees the blocks of keys that a table names for the block that it stands in, and none that come later."""
    heads, shared = n.integer("num_heads", 0, low=1), n.integer("kv_num_heads", 0, low=1)
    size, total = n.integer("sparse_block_size", 0, low=1), (n.constant_ints(7) or (0,))[0]
    q, k, v = _queries_keys_values(n, heads, shared)
    batch, queries, _, width = q.shape
    ends = cast(n, n.view(n.arg(8), (batch,)), DTYPES["i64"])
    first = queries > 1 and queries == total
    before = n.filled((batch,), DTYPES["i64"]) if first else n.op("sub", ends, n.filled((), DTYPES["i64"], queries))
    if n.flag("do_rotary"):
        places = n.op("positions_from", before, count=queries)
        q, k = _turned(n, (q, k), (9, 10), places)
    n.without_effect("rotary_interleaved", inputs=[9, 10])
    q, k, v = (transposed(n, value, (0, 2, 1, 3)) for value in (q, k, v))
    room = n.arg(3).shape[2]
    if total > room:
        raise n.wrong(f"{total} keys and room for {room}")
    present = [_cached(n, n.arg(j), value, before, room) for j, value in ((3, k), (4, v))]
    k, v = (slice_axis(n, value, 2, 0, total) for value in present)
    table = n.constant(_blocks(n, -(-total // size), heads))
    seen = n.op("block_mask", before, table, queries=queries, keys=total, block=size, heads=heads)
    bias = n.view(n.op("mask_bias", seen, n.filled((), q.dtype)), (batch, shared, heads // shared, queries, total))
    return attended(n, q, k, v, _scale(n, width), [bias]), *present


def _blocks(n: Site, count: int, heads: int) -> Array:
    """Return for each layout which blocks of keys a block of queries sees: rows of the table end where the next begin."""
    rows, columns = n.constant_of(5), n.constant_of(6)
    if rows.ndim != 2 or columns.ndim != 2 or len(rows) != len(columns) or heads % max(1, len(rows)) or rows.shape[1] <= count:
        raise n.wrong(f"a table of the shapes {list(rows.shape)} and {list(columns.shape)} for {heads} heads and {count} blocks")
    table = np.zeros((len(rows), count, count), np.bool_)
    for layout, (ends, names) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        for row in range(count):
            named = names[ends[row] : ends[row + 1]]
            table[layout, row, [column for column in named if 0 <= column < count]] = True
    return table


def rotary(n: Site) -> Value:
    """[batch, length, heads * size] or [batch, heads, length, size]; positions are one a row, or one an element."""
    x, positions, cosines, sines = n.args()
    n.without_effect("num_heads", "rotary_embedding_dim")
    if n.real("scale", 1.0) != 1.0 or n.flag("is_packed_batching"):
        raise n.unsupported("a scale, or is_packed_batching")
    flat, work = len(x.shape) == 3, x
    if flat:
        width = n.integer("rotary_embedding_dim", 0, low=0)
        heads = n.integer("num_heads", 0, low=0) if width else x.shape[-1] // (2 * cosines.shape[-1])
        work = _rows(n, x, max(1, heads))
    batch, length = work.shape[0], work.shape[1 if flat else 2]
    if positions.shape in ((), (1,)):
        start = n.op("add", n.filled((batch,), positions.dtype), n.view(positions, ()))
        positions = n.op("positions_from", cast(n, start, DTYPES["i64"]), count=length)
    tables = [n.op("gather", table, positions, axis=0) for table in (cosines, sines)]
    half = cosines.shape[-1]
    c, s = (n.view(t, (batch, length, 1, half) if flat else (batch, 1, length, half)) for t in tables)
    return n.view(rotated(n, work, c, s, 2 * half, n.flag("interleaved")), x.shape)


def rotary_by_angles(n: Site) -> tuple[Value, ...]:
    """Queries and keys times the cosines of angles, and the same turned by a quarter times their sines."""
    angles, *states = n.args()
    if len(angles.shape) != 3 or len(states) != 4:
        raise n.wrong(f"angles of the shape {list(angles.shape)}, and {len(states)} states")
    batch, steps, size = angles.shape
    cosines, sines = (n.view(cast(n, n.op("map", angles, f=f), states[0].dtype), (batch, 1, steps, size)) for f in ("cos", "sin"))
    pairs = zip(states[::2], states[1::2], strict=True)
    return tuple(n.op("add", n.op("mul", x, cosines), n.op("mul", turned, sines)) for x, turned in pairs)


def rotary_by_streams(n: Site) -> Value:
    """Each element of a position has an angle of one of three positions: of a moment, a row or a column."""
    x, positions, cosines, sines = n.args()
    if n.real("scale", 1.0) != 1.0 or n.flag("is_packed_batching"):
        raise n.unsupported("a scale, or is_packed_batching")
    if len(positions.shape) != 3 or positions.shape[0] != 3 or len(cosines.shape) != 2 or sines.shape != cosines.shape:
        raise n.wrong(f"positions of the shape {list(positions.shape)} and cosines of {list(cosines.shape)}")
    half, (batch, length) = cosines.shape[1], positions.shape[1:]
    streams = _streams(n, n.integers("mrope_section", low=0, count=3), half)
    width = n.integer("rotary_embedding_dim", 0, low=0)
    if len(x.shape) == 4:
        work = transposed(n, x, (0, 2, 1, 3))
    else:
        work = _rows(n, x, n.integer("num_heads", 0, low=0) or max(1, x.shape[-1] // (width or 2 * half)))
    n.without_effect("num_heads")
    if work.shape[:2] != (batch, length) or 2 * half > work.shape[3]:
        raise n.wrong(f"positions of the shape {list(positions.shape)} for the shape {list(x.shape)}")
    which = n.constant(streams)
    tables = [n.op("choose_streams", n.op("gather", table, positions, axis=0), which) for table in (cosines, sines)]
    c, s = (n.view(t, (batch, length, 1, half)) for t in tables)
    y = rotated(n, work, c, s, 2 * half, n.flag("interleaved"))
    return n.view(y, x.shape) if len(x.shape) == 3 else transposed(n, y, (0, 2, 1, 3))


def _streams(n: Site, sections: tuple[int, ...], half: int) -> Array:
    """Return which of three positions each angle is of: in sections, or in turns as long as a section lasts."""
    if sum(sections) != half:
        raise n.wrong(f"sections of {list(sections)} of {half} angles")
    if not n.integer("mrope_layout", 0, 0, 1):
        return np.repeat(np.arange(3), sections)
    streams = np.zeros(half, np.int64)
    for stream in (1, 2):
        streams[stream : 3 * sections[stream] : 3] = stream
    return streams


RULES = (
    microsoft("Attention", attention),
    microsoft("MultiHeadAttention", multi_head_attention),
    microsoft("DecoderMaskedMultiHeadAttention", decoder_attention),
    microsoft("GroupQueryAttention", group_query_attention),
    microsoft("SparseAttention", sparse_attention),
    microsoft("RotaryEmbedding", rotary),
    microsoft("GemmaRotaryEmbedding", rotary_by_angles),
    microsoft("MRotaryEmbedding", rotary_by_streams),
)
