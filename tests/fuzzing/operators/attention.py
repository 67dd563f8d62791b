"""Attention and rotary embeddings."""

from __future__ import annotations

from typing import Any

from fuzzing.network import NetDrawing, Rule
from fuzzing.operators import draw


def _attention(d: NetDrawing) -> None:
    batch, shared, size = d.random.choice((1, 2)), d.random.choice((1, 2)), d.random.choice((2, 4))
    heads, queries, keys = shared * d.random.choice((1, 2)), d.random.choice((1, 3, 4)), d.random.choice((2, 4, 5))
    flat = d.random.random() < 0.4

    def given(count: int, length: int) -> str:
        return draw.put(d, draw.parts(d, "f32", (batch, length, count * size) if flat else (batch, count, length, size), 0.25, 6), 0.1)

    mask = ""
    if d.random.random() < 0.4:
        shape = d.random.choice(((queries, keys), (1, 1, queries, keys), (batch, heads, queries, keys)))
        a = d.array("bool", shape)
        a[..., 0] = True
        mask = draw.put(d, a) if d.random.random() < 0.5 else draw.put(d, draw.parts(d, "f32", shape))
    attrs: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": shared} if flat else {}
    attrs |= {**draw.maybe(d, 0.3, is_causal=1), **draw.maybe(d, 0.3, scale=0.5), **draw.maybe(d, 0.2, softcap=2.0)}
    d.add("Attention", [given(heads, queries), given(shared, keys), given(shared, keys), mask], rough=True, **attrs)


def _rotary(d: NetDrawing) -> None:
    batch, heads, steps, size = d.random.choice((1, 2)), d.random.choice((1, 2)), d.random.choice((1, 3)), d.random.choice((4, 8))
    x = draw.put(d, draw.parts(d, "f32", (batch, heads, steps, size)), 0.1)
    width = d.random.choice((size, size, size // 2))
    tables = [draw.put(d, draw.parts(d, "f32", (batch, steps, width // 2))) for _ in range(2)]
    attrs = {**draw.maybe(d, 0.4, interleaved=1), **({"rotary_embedding_dim": width} if width != size else {})}
    d.add("RotaryEmbedding", [x, *tables], rough=True, **attrs)


RULES: tuple[Rule, ...] = (
    _attention,
    _rotary,
)
