"""Attention in steps, its gates, and convolutions that remember compute what onnxruntime computes."""

from __future__ import annotations

import numpy as np
import pytest
from microsoft_operators import check, draw

RULES = ("linear", "gated", "delta", "gated_delta")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("queries", "heads"), [(2, 2), (4, 2), (1, 2)])
def test_states_are_updated_step_by_step(rule: str, queries: int, heads: int) -> None:
    batch, length, keys, values = 2, 5, 3, 4
    q, k = draw(batch, length, queries * keys), draw(batch, length, heads * keys, seed=1) / 2
    v, state = draw(batch, length, heads * values, seed=2), draw(batch, heads, keys, values, seed=3)
    decay = -np.abs(draw(batch, length, heads, seed=4)) if rule.startswith("gated") else None
    rate = np.abs(draw(batch, length, heads, seed=5)) / 2 if rule.endswith("delta") else None
    check("LinearAttention", q, k, v, state, decay, rate, outputs=2, q_num_heads=queries, kv_num_heads=heads, update_rule=rule)


def test_decays_may_be_of_keys_and_rates_of_all_heads() -> None:
    q, k, v = (draw(1, 4, 6, seed=s) / 2 for s in range(3))
    decay, rate = -np.abs(draw(1, 4, 6, seed=4)), np.abs(draw(1, 4, 1, seed=5))
    check("LinearAttention", q, k, v, None, decay, rate, outputs=2, q_num_heads=2, kv_num_heads=2, scale=0.25)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ends", [None, [0, 3, 6], [0, 1, 6]])
def test_states_of_packed_requests_are_updated(rule: str, ends: list[int] | None) -> None:
    """One head of queries and keys serves two of values; requests are equally long, or as long as they say."""
    tokens, heads, keys, values = 6, 2, 3, 4
    q, k, v = draw(tokens, 1, keys), draw(tokens, 1, keys, seed=1), draw(tokens, heads, values, seed=2)
    decay = -np.abs(draw(tokens, heads, seed=3)) if rule.startswith("gated") else None
    rate = np.abs(draw(tokens, heads, seed=4)) / 2 if rule.endswith("delta") else None
    state, at = draw(2, heads, values, keys, seed=5), None if ends is None else np.asarray(ends, np.int32)
    check("GatedDeltaNet", q, k, v, at, decay, rate, state, outputs=2, constants=[3] * (at is not None), update_rule=rule, qk_l2_norm=1)


@pytest.mark.parametrize("gate", ["softplus", "sigmoid"])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_gates_of_packed_states(gate: str, each: bool, packed: bool) -> None:
    """Decays are of heads or of each of their keys; queries, keys and values may stand in one value."""
    shape, heads, keys, values = (2, 4), 2, 3, 4
    q, k, v = draw(*shape, heads, keys), draw(*shape, heads, keys, seed=1) / 3, draw(*shape, heads, values, seed=2)
    if packed:
        q, k, v = np.concatenate([x.reshape(8, -1) for x in (q, k, v)], 1), None, None
    front = (8,) if packed else shape
    decay, rate = draw(*front, heads, *[keys] * each, seed=3), draw(*front, heads, seed=4)
    more = draw(heads, seed=5), draw(heads, *[keys] * each, seed=6)
    arrays = (q, k, v, None, decay, rate, draw(2, heads, values, keys, seed=7), *more)
    check("GatedDeltaNet", *arrays, outputs=2, gate_activation=gate, beta_activation="sigmoid", scale=0.3, gate_lower_bound=-2.0)


def test_gates_of_attention() -> None:
    a, b, bias, scale = draw(2, 3, 4), draw(2, 3, 4, seed=1), draw(4), -np.abs(draw(4, seed=2))
    check("LinearAttentionGate", a, bias, scale, b, outputs=2)
    check("LinearAttentionGate", a, bias, scale)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("length", [0, 1, 6])
def test_convolutions_remember(dilation: int, activation: str, length: int) -> None:
    x, w, bias, past = draw(2, 3, length), draw(3, 1, 4), draw(3), draw(2, 3, 3 * dilation)
    check("CausalConvWithState", x, w, bias, past, outputs=2, dilation=dilation, activation=activation)
    check("CausalConvWithState", x, w, outputs=2, dilation=dilation, activation=activation)


def test_channels_of_convolutions_may_be_last() -> None:
    x, w, past = draw(2, 5, 3, 2), draw(6, 1, 4), draw(2, 3, 3, 2)
    check("CausalConvWithState", x, w, None, past, outputs=2, channels_last=1)
