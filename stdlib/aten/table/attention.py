"""Attention as torch has it in one operator."""

from __future__ import annotations

from math import sqrt
from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
from stdlib.aten.derivatives import derivatives
from stdlib.aten.table.drawing import dropped
from stdlib.onnx.table.attend import scaled_product
from tensorlang.graph.nodes import Value


def attention(
    n: Call,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    draw: Value | None = None,
) -> Value:
    """Groups of query heads may share a head of keys, which are then [batch, heads, keys, size] as the queries are."""
    grouped = _is_grouped(q, k)
    scores, may_be_left_out = _scores(n, q, k, attn_mask, is_causal, scale)
    weights = n.op("masked_softmax", scores) if may_be_left_out else n.op("softmax", scores, axis=len(scores.shape) - 1)
    weights, _ = dropped(n, weights, dropout_p, draw)
    if not grouped:
        return n.op("matmul", weights, v)
    values = n.view(v, (*v.shape[:2], 1, *v.shape[2:]))
    return n.view(n.op("matmul", weights, values), (*q.shape[:-1], v.shape[-1]))


def _is_grouped(q: Value, k: Value) -> bool:
    return len(q.shape) == 4 and q.shape[1] != k.shape[1]


def _scores(n: Call, q: Value, k: Value, attn_mask: Value | None, is_causal: bool, scale: float | None) -> tuple[Value, bool]:
    """Return what weighs the keys of each query, and whether a mask leaves some out."""
    scale, grouped = 1 / sqrt(q.shape[-1]) if scale is None else scale, _is_grouped(q, k)
    scores = scaled_product(n, q, k, scale) if grouped else n.op("mul", n.op("scores", q, k), n.filled((), q.dtype, scale))
    mask = _causal(n, q.shape[-2], k.shape[-2]) if is_causal else attn_mask
    return (scores, False) if mask is None else (n.op("add", scores, _bias(n, mask, q, k, grouped)), True)


def _causal(n: Call, queries: int, keys: int) -> Value:
    """Return which keys each query may see: none behind it."""
    return n.op("triangle_lower", n.filled((queries, keys), DTYPES["bool"], 1), k=0)


def _bias(n: Call, mask: Value, q: Value, k: Value, grouped: bool) -> Value:
    """Return what is added to the scores: 0 where a query may see a key and -inf elsewhere, or the mask itself."""
    bias = n.op("mask_bias", mask, n.filled((), q.dtype, 0)) if mask.dtype == DTYPES["bool"] else n.cast(mask, q.dtype)
    if not grouped or len(bias.shape) < 3:
        return bias
    *front, heads, queries, keys = bias.shape
    shared = k.shape[1]
    parts = (1, 1) if heads == 1 else (shared, heads // shared)
    return n.view(bias, (*front, *parts, queries, keys))


def flash_attention(
    n: Call,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
    draw: Value | None = None,
) -> tuple[Value | None, ...]:
    y = attention(n, q, k, v, attn_mask, dropout_p, is_causal, scale=scale, draw=draw)
    if not n.uses(1):
        return y, None
    scores, _ = _scores(n, q, k, attn_mask, is_causal, scale)
    total = n.op("reduce_log_sum_exp", scores, axis=len(scores.shape) - 1)
    return y, n.cast(n.view(total, q.shape[:-1]), n.dtypes[1])


def flash_attention_backward(
    n: Call,
    grad_out: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    log_sum_exp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value | None, ...]:
    """Nothing is dropped: torch takes other ways where something is."""
    return derivatives(n, grad_out, (q, k, v), lambda q, k, v: attention(n, q, k, v, attn_mask, 0.0, is_causal, scale=scale))


def math_attention(
    n: Call, q: Value, k: Value, v: Value, attn_mask: Value | None = None, *args: Any, **named: Any
) -> tuple[Value | None, ...]:
    if n.uses(1) or len(args) > 2:
        raise n.unsupported("the weights as a result")
    return attention(n, q, k, v, attn_mask, *args, **{key: a for key, a in named.items() if key != "dropout_mask"}), None


RULES: dict[str, Rule] = {
    "scaled_dot_product_attention": attention,
    "_scaled_dot_product_flash_attention_for_cpu": flash_attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": flash_attention_backward,
    "_scaled_dot_product_attention_math": math_attention,
}
