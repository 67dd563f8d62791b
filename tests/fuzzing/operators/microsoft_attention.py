"""Attention of onnxruntime's own set: packed and apart, with masks of every form, biases, keys of the past, rotations, and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.network import NetDrawing, Rule
from fuzzing.operators import draw
from fuzzing.operators.microsoft import DOMAIN, bytes_of, floats, number, whole


def _mask(d: NetDrawing, batch: int, queries: int, keys: int) -> str:
    """Return a mask in one of the forms that attention takes, or none."""
    match d.random.randrange(8):
        case 0:
            return draw.put(d, whole(d, 1, keys + 1, batch), 0.2)
        case 1:
            ends = whole(d, 1, keys + 1, batch)
            return draw.put(d, np.concatenate([ends, ends // 2]).astype(np.int32), 0.2)
        case 2 | 3:
            return draw.put(d, whole(d, 0, 2, batch, keys), 0.2)
        case 4:
            return draw.put(d, whole(d, 0, 2, batch, queries, keys), 0.2)
        case 5:
            return draw.put(d, whole(d, 0, 2, batch, 1, keys + 2, keys + 2), 0.2)
    return ""


def _sizes(d: NetDrawing) -> tuple[int, int, int, int]:
    """Return a batch, a length, heads and the size of a head."""
    return d.random.choice((1, 2)), d.random.choice((1, 2, 4, 5)), d.random.choice((1, 2, 4)), d.random.choice((1, 2, 4, 8))


def _bias(d: NetDrawing, batch: int, heads: int, queries: int, keys: int, chance: float = 0.3) -> str:
    if d.random.random() > chance:
        return ""
    return floats(d, d.random.choice((1, batch)), d.random.choice((1, heads)), queries, keys)


def _packed(d: NetDrawing) -> None:
    batch, length, heads, size = _sizes(d)
    width, inner = d.random.choice((3, 8)), heads * size
    past = d.random.choice((0, 0, 2))
    value = inner if past or d.random.random() < 0.7 else heads * d.random.choice((1, 3))
    x, w, b = floats(d, batch, length, width, constant=0.0), floats(d, width, 2 * inner + value), floats(d, 2 * inner + value)
    attrs: dict[str, Any] = {"num_heads": heads, **draw.maybe(d, 0.3, unidirectional=1), **draw.maybe(d, 0.2, scale=0.3)}
    attrs |= draw.maybe(d, 0.2, mask_filter_value=-500.0)
    attrs |= {"qkv_hidden_sizes": [inner, inner, value]} if value != inner else {}
    before = floats(d, 2, batch, heads, past, size, constant=0.0) if past else ""
    given = [x, w, b if d.random.random() < 0.8 else "", _mask(d, batch, length, past + length), before]
    given.append(_bias(d, batch, heads, length, past + length))
    d.add("Attention", given, 2 if past else 1, rough=True, domain=DOMAIN, **attrs)


def _of_bytes(d: NetDrawing) -> None:
    batch, length, heads, size = _sizes(d)
    width, inner, past = 8, heads * size, d.random.choice((0, 0, 2))
    kind = d.random.choice(("u8", "i8"))
    each = d.random.random() < 0.4
    scale = np.abs(draw.parts(d, "f32", (3 * inner,) if each else (), 0.01, 3)) + np.float32(0.01)
    x, w = draw.put(d, bytes_of(d, batch, length, width), 0.0), d.constant(bytes_of(d, width, 3 * inner, dtype=kind))
    zero = d.constant(bytes_of(d, *((3 * inner,) if each else ()), dtype=kind)) if d.random.random() < 0.7 else ""
    given = [x, w, floats(d, 3 * inner), number(d, 0.02, 0.01), d.constant(np.asarray(scale, np.float32))]
    mask = draw.put(d, whole(d, 1, length + past + 1, batch), 0.2) if d.random.random() < 0.5 else ""
    before = floats(d, 2, batch, heads, past, size, constant=0.0) if past else ""
    given += [mask, d.constant(bytes_of(d)), zero, before]
    attrs = draw.maybe(d, 0.4, unidirectional=1) | draw.maybe(d, 0.2, scale=0.4)
    d.add("QAttention", given, 2 if past else 1, rough=True, domain=DOMAIN, num_heads=heads, **attrs)


def _several_heads(d: NetDrawing) -> None:
    batch, length, heads, size = _sizes(d)
    inner, keys, past = heads * size, d.random.choice((length, 1, 3)), 0
    value = inner
    q, k, v, bias = floats(d, batch, length, inner, constant=0.0), "", "", ""
    match d.random.randrange(8):
        case 0:
            q, keys = floats(d, batch, length, heads, 3, size, constant=0.0), length
        case 1:
            k = floats(d, batch, keys, heads, 2, size, constant=0.0)
        case 2 | 3:
            k, v = (floats(d, batch, heads, keys, size, constant=0.0) for _ in range(2))
        case _:
            value = d.random.choice((inner, inner, 2 * heads))
            k, v = floats(d, batch, keys, inner, constant=0.0), floats(d, batch, keys, value, constant=0.0)
            bias = floats(d, 2 * inner + value) if d.random.random() < 0.5 else ""
            past = d.random.choice((0, 0, 2)) if value == inner else 0
    before = [floats(d, batch, heads, past, size, constant=0.0) for _ in range(2)] if past else []
    attrs: dict[str, Any] = draw.maybe(d, 0.2, scale=0.3) | draw.maybe(d, 0.2, mask_filter_value=-500.0)
    attrs |= draw.maybe(d, 0.3, unidirectional=1) if keys <= length else {}  # of more onnxruntime shows the last query all
    outputs = 3 if past or d.random.random() < 0.2 else 1
    given = [q, k, v, bias, _mask(d, batch, length, past + keys), _bias(d, batch, heads, length, past + keys), *before]
    d.add("MultiHeadAttention", given, outputs, rough=True, domain=DOMAIN, num_heads=heads, **attrs)


def _one_query(d: NetDrawing) -> None:
    batch, _, heads, size = _sizes(d)
    inner, past = heads * size, d.random.choice((1, 3))
    q, k, v = (floats(d, batch, 1, inner, constant=0.0) for _ in range(3))
    shared = d.random.random() < 0.5
    room = past + d.random.choice((1, 3)) if shared else past
    before = [floats(d, batch, heads, room, size, constant=0.0) for _ in range(2)]
    mask = draw.put(d, whole(d, 0, 2, batch, past + 1), 0.2) if not shared and d.random.random() < 0.5 else ""
    bias = floats(d, 1, heads, 1, past + 1) if d.random.random() < 0.3 else ""
    length = d.constant(np.array([past], np.int32)) if shared else ""
    added = floats(d, 3 * inner) if d.random.random() < 0.3 else ""
    given = [q, k, v, mask, bias, *before, length, "", "", added]
    attrs: dict[str, Any] = {"past_present_share_buffer": 1} if shared else {}
    attrs |= draw.maybe(d, 0.3, scale=0.3)
    d.add("DecoderMaskedMultiHeadAttention", given, 3, rough=True, domain=DOMAIN, num_heads=heads, **attrs)


def _grouped(d: NetDrawing) -> None:
    batch, shared, group = d.random.choice((1, 1, 2)), d.random.choice((1, 2)), d.random.choice((1, 2, 3))
    heads, size = shared * group, d.random.choice((8, 16))
    length, past = d.random.choice(((4, 0), (1, 0), (1, 3), (1, 5), (3, 2), (6, 0)))
    if past and length > 1:
        batch = 1
    total, room = past + length, d.random.choice((0, 0, 3))
    packed = d.random.random() < 0.35
    widths = [(heads + 2 * shared) * size] if packed else [heads * size, shared * size, shared * size]
    new = [floats(d, batch, length, w, constant=0.0) for w in widths] + ([""] * 2 if packed else [])
    before = [floats(d, batch, shared, past + room + d.random.choice((0, 0, length)), size, constant=0.0)] if past or room else []
    before = [*before, floats(d, *d.values[before[0]].shape, constant=0.0)] if before else ["", ""]
    ends = np.full(batch, total - 1, np.int32)
    if past and batch > 1:
        ends[0] -= d.random.choice((0, 1))
    attrs: dict[str, Any] = {"num_heads": heads, "kv_num_heads": shared}
    attrs |= draw.maybe(d, 0.35, local_window_size=d.random.choice((1, 2, 3, 100))) | draw.maybe(
        d, 0.25, softcap=d.random.choice((1.0, 5.0))
    )
    attrs |= draw.maybe(d, 0.2, scale=0.25) | draw.maybe(d, 0.15, smooth_softmax=1)
    tables = ["", ""]
    if d.random.random() < 0.5:
        half = size // 2 if d.random.random() < 0.7 else size // 4
        angles = np.random.default_rng(d.random.getrandbits(32)).uniform(-3, 3, (12, half))
        tables = [d.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
        attrs |= {"do_rotary": 1, **draw.maybe(d, 0.4, rotary_interleaved=1)}
    places = ""
    if tables[0] and d.random.random() < 0.2:
        places = draw.put(d, np.broadcast_to(np.arange(past, total), (batch, length)).copy())
    bias = floats(d, d.random.choice((1, batch)), d.random.choice((1, heads)), length, total) if d.random.random() < 0.2 else ""
    sink = floats(d, heads) if "smooth_softmax" not in attrs and d.random.random() < 0.15 else ""
    given = [*new, *before, draw.put(d, ends, 0.3), d.constant(np.array(total, np.int32)), *tables, places, bias, sink]
    drawn = len(d.nodes)
    d.add("GroupQueryAttention", given, 3, rough=True, domain=DOMAIN, **attrs)
    made = [name for node in d.nodes[drawn:] for name in node.output]
    if made and (d.values[made[1]].shape[2] > total or ends.min() + 1 < total):
        for name in made[1:]:  # what stands behind the last keys of a row nobody says
            del d.values[name]


def _rotary(d: NetDrawing) -> None:
    batch, length, heads, size = _sizes(d)
    size = 2 * size
    flat = d.random.random() < 0.6
    x = floats(d, *((batch, length, heads * size) if flat else (batch, heads, length, size)), constant=0.0)
    width = d.random.choice((0, 0, size // 2)) if size % 4 == 0 else 0
    tables = [floats(d, 9, (width or size) // 2) for _ in range(2)]
    if d.random.random() < 0.5:
        places = draw.put(d, np.array([d.random.randrange(3)]), 0.3)
    else:
        places = draw.put(d, whole(d, 0, 9, batch, length, dtype="i64"), 0.3)
    attrs: dict[str, Any] = {"num_heads": heads} if width or d.random.random() < 0.3 else {}
    attrs |= {"rotary_embedding_dim": width} if width else {}
    attrs |= draw.maybe(d, 0.4, interleaved=1)
    d.add("RotaryEmbedding", [x, places, *tables], rough=True, domain=DOMAIN, **attrs)


RULES: tuple[Rule, ...] = (_packed, _packed, _of_bytes, _several_heads, _several_heads, _one_query, *[_grouped] * 4, _rotary)
