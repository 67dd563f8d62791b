"""Mixtures of experts compute what onnxruntime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from microsoft_operators import Array, check, draw, model
from onnx_evaluate import staged

import tensorlang as tl
from tensorlang.diagnostics import CompileError

ROWS, EXPERTS, WIDTH, INNER = 3, 4, 16, 8


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("normalised", [0, 1])
def test_rows_go_through_the_experts_chosen_for_them(activation: str, normalised: int) -> None:
    x, scores = draw(1, ROWS, WIDTH), draw(ROWS, EXPERTS)
    first, second = draw(EXPERTS, INNER, WIDTH) / 4, draw(EXPERTS, WIDTH, INNER) / 4
    check(
        "MoE", x, scores, first, draw(EXPERTS, INNER), second, draw(EXPERTS, WIDTH), k=2, activation_type=activation,
        normalize_routing_weights=normalised,
    )  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.5}])
def test_experts_may_be_gated(more: dict[str, float]) -> None:
    first, second = draw(EXPERTS, 2 * INNER, WIDTH) / 4, draw(EXPERTS, WIDTH, INNER) / 4
    x, scores = draw(ROWS, WIDTH), draw(ROWS, EXPERTS)
    check("MoE", x, scores, first, None, second, k=1, activation_type="swiglu", swiglu_fusion=1, **more)


def packed(numbers: Array, bits: int) -> Array:
    each = 8 // bits
    rows = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % each)]).reshape(*numbers.shape[:-1], -1, each)
    return np.asarray(sum(rows[..., k] << (bits * k) for k in range(each)), np.uint8)


def quantised(rows: int, columns: int, bits: int, blocks: int, seed: int) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    numbers, zeros = (random.integers(0, 1 << bits, (EXPERTS, rows, n)).astype(np.uint8) for n in (columns, blocks))
    return packed(numbers, bits), random.random((EXPERTS, rows, blocks), np.float32) / 64, zeros


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("block", "zeros"), [(0, False), (0, True), (16, False), (16, True)])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_experts_may_be_quantised(bits: int, block: int, zeros: bool, weighted: bool) -> None:
    x, scores, size = draw(ROWS, 32) / 4, draw(ROWS, EXPERTS), {"block_size": block} if block else {}
    blocks = 32 // block if block else 1
    first, second = quantised(32, 32, bits, blocks, 1), quantised(32, 32, bits, blocks, 2)
    scales = [one[1] if block else one[1][..., 0] for one in (first, second)]
    middles: list[Array | None] = [packed(one[2] if block else one[2][..., 0], bits) if zeros else None for one in (first, second)]
    tail = [*middles, None, np.abs(draw(ROWS, EXPERTS, seed=5))] if weighted else middles if zeros else []
    coarse = bits == 8 and block > 0  # onnxruntime multiplies integers of 8 bits there
    more: dict[str, Any] = {"activation_type": "silu", "weights_prepacked": 0, "normalize_routing_weights": 1, "k": 2, **size}
    arrays = [x, scores, first[0], scales[0], None, second[0], scales[1], *[None] * (4 if tail else 0), *tail]
    check("QMoE", *arrays, constants=(2, 3, 5, 6), tolerance=0.05 if coarse else 1e-4, expert_weight_bits=bits, **more)


@pytest.mark.parametrize(("groups", "shape"), [((1, 1, 2), (3, 6)), ((3, 2, 9), (3, 6)), ((3, 1, 1), (1, 2, 6))])
def test_routers_choose_in_the_best_groups(groups: tuple[int, int, int], shape: tuple[int, ...]) -> None:
    count, kept, best = groups
    more = {"n_group": count, "topk_group": kept, "group_topk": best, "top_k": 2}
    check("MoEGroupRouter", draw(*shape), draw(6, seed=1) / 2, **more)


def test_routers_may_give_all_scores() -> None:
    arrays: dict[str, Array] = {"x": draw(4, 256) / 16, "bias": draw(6), "w": draw(6, 256, seed=1)}
    for names, rows in ((["x", "bias", "w"], arrays["x"]), (["x", "bias"], arrays["x"][:, :6])):
        feeds = {**arrays, "x": np.ascontiguousarray(rows)}
        feeds = {name: feeds[name] for name in names}
        made = model("MoEGroupRouter", feeds, names, 3, [], "com.microsoft", top_k=2)
        made.graph.node[0].output[0] = ""
        del made.graph.output[0]
        shares = 1 / (1 + np.exp(-(feeds["x"] @ feeds["w"].T if "w" in feeds else feeds["x"])))
        for found, expected in zip(staged(made, feeds), (shares + feeds["bias"], shares), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def late(x: Array) -> Array:
    return np.minimum(silu(x), 0.25)


LATE = {"swiglu_limit": 0.25, "swiglu_limit_after_activation": 1, "activation_beta": 1.0}


@pytest.mark.parametrize(
    ("kind", "first", "second", "more", "fusion"),
    [
        ("silu", silu, lambda u: u, {}, None),
        ("relu", lambda x: np.maximum(x, 0), lambda u: u, {}, None),
        ("relu2", lambda x: np.maximum(x, 0) ** 2, np.ones_like, {}, None),
        ("swiglu", silu, lambda u: u, {}, None),
        ("swiglu", late, lambda u: np.clip(u, -0.25, 0.25) + 1, LATE, None),
        ("geglu", gelu, lambda u: u, {}, 1),
        ("geglu", gelu, lambda u: u, {}, 2),
    ],
)
def test_forms_of_experts_that_run_on_devices_alone(kind: str, first: Any, second: Any, more: dict[str, Any], fusion: int | None) -> None:
    """Next to what onnxruntime's documentation says: it has no code of these for processors. Without `fusion` a third layer is a gate."""
    x, scores = draw(ROWS, WIDTH), draw(ROWS, EXPERTS)
    opens, gates, closes = draw(EXPERTS, INNER, WIDTH) / 4, draw(EXPERTS, INNER, WIDTH, seed=7) / 4, draw(EXPERTS, WIDTH, INNER) / 4
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    best = scores.argmax(1)
    expected = [
        shares[r, e] * closes[e] @ (first(opens[e] @ x[r]) * second(gates[e] @ x[r])) for r, e in enumerate(best)
    ]  # fmt: skip
    joined = np.stack([opens, gates], 2 if fusion == 1 else 1).reshape(EXPERTS, 2 * INNER, WIDTH)
    feeds: dict[str, Array] = {"x": x, "scores": scores, "opens": joined if fusion else opens, "closes": closes, "gates": gates}
    names = ["x", "scores", "opens", "", "closes", *([] if fusion or kind == "relu2" else ["", "gates"])]
    feeds = {name: feeds[name] for name in names if name}
    made = model("MoE", feeds, names, 1, [], "com.microsoft", k=1, activation_type=kind, swiglu_fusion=fusion or 0, **more)
    (found,) = staged(made, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["MoE", "QMoE"])
def test_a_sparse_mixture_shares_among_experts_that_are_about_as_good(op: str) -> None:
    """As Phi-3.5-MoE defines it: the second of two experts has its share without the first."""
    scores = np.array([[5, 4.95, 4.92, 1], [2, -3, 1.99, 1.97], [-1, -1.01, -1.005, -4]], np.float32)
    x = np.ones((3, 16), np.float32)
    first, second = draw(EXPERTS, INNER, WIDTH), draw(EXPERTS, WIDTH, INNER)
    expected = np.zeros((3, 16), np.float32)
    bits = np.full((EXPERTS, 16, 16), 129, np.uint8), np.full((EXPERTS, 16), 0.25, np.float32) * (1 + np.arange(EXPERTS))[:, None]
    if op == "QMoE":
        first = second = np.full((EXPERTS, 16, 16), 0.25, np.float32) * (1 + np.arange(EXPERTS))[:, None, None]
    for row, given in enumerate(scores.astype(np.float64)):
        left = given.copy()
        for _ in range(2):
            e = int(left.argmax())
            near = (left[e] - given) / np.maximum(abs(given), left[e]) <= 0.02
            share = 1 / np.exp(left - left[e])[near].sum()
            expected[row] += np.float32(share) * (second[e] @ np.maximum(first[e] @ x[row], 0))
            left[e] = -np.inf
    weights: list[Array] = [bits[0], np.float32(bits[1]), bits[0], np.float32(bits[1])] if op == "QMoE" else [first, second]
    feeds = {f"x{k}": a for k, a in enumerate([x, scores, *weights])}
    names = ["x0", "x1", "x2", "x3", "", "x4", "x5"] if op == "QMoE" else ["x0", "x1", "x2", "", "x3"]
    more = {"expert_weight_bits": 8, "weights_prepacked": 0} if op == "QMoE" else {}
    (found,) = staged(model(op, feeds, names, 1, [], "com.microsoft", k=2, use_sparse_mixer=1, **more), feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_experts_that_do_not_fit_are_refused() -> None:
    arrays: dict[str, Array] = {"x": draw(2, 4), "r": draw(2, 3), "a": draw(3, 8, 4), "b": draw(3, 4, 4)}
    for more in ({"activation_type": "swiglu"}, {"use_sparse_mixer": 1}):
        attributes: dict[str, Any] = {"k": 1, **more}
        made = model("MoE", arrays, ["x", "r", "a", "", "b"], 1, [], "com.microsoft", **attributes)
        with pytest.raises(CompileError, match="O012"):
            tl.compile(made)
