"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.network import NetDrawing, Rule
from fuzzing.operators import draw

PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")
WITH_NUMBERS = {"HardSigmoid": 2, "LeakyRelu": 1, "Elu": 1, "ThresholdedRelu": 1, "Affine": 2, "ScaledTanh": 2}
"""Functions of gates, and how many numbers those take that take any."""


def _recurrent(d: NetDrawing) -> None:
    kind = d.random.choice(("LSTM", "GRU", "RNN"))
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[kind]
    steps, batch, width, size = draw.shape(d, 4, (1, 2, 3, 4))
    direction = d.random.choice(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    layout = d.random.choice((0, 0, 0, 1)) if d.opset >= 14 and direction == "forward" else 0
    dtype = "f32"

    def given(*shape: int) -> str:
        return draw.put(d, draw.parts(d, dtype, shape, 0.25, 4), 0.7)

    def state(chance: float) -> str:
        return given(*((batch, count, size) if layout else (count, batch, size))) if d.random.random() < chance else ""

    x = draw.put(d, draw.parts(d, dtype, (batch, steps, width) if layout else (steps, batch, width)), 0.1)
    w, r = given(count, gates * size, width), given(count, gates * size, size)
    b = given(count, 2 * gates * size) if d.random.random() < 0.7 else ""
    rng = np.random.default_rng(d.random.getrandbits(32))
    lengths = draw.put(d, rng.integers(1, steps + 1, batch).astype(np.int32)) if d.random.random() < 0.3 and not layout else ""
    inputs = [x, w, r, b, lengths, state(0.5)]
    if kind == "LSTM":
        inputs += [state(0.5), given(count, 3 * size) if d.random.random() < 0.3 else ""]
    attrs: dict[str, Any] = draw.maybe(d, 0.3, linear_before_reset=1) if kind == "GRU" else {}
    attrs |= {"layout": 1} if layout else {}
    attrs |= {} if direction == "forward" and d.random.random() < 0.5 else {"direction": direction}
    if d.random.random() < 0.2:
        per = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind] * count
        names = [d.random.choice((*PLAIN, *WITH_NUMBERS)) for _ in range(per)]
        numbers = [[round(d.random.uniform(0.1, 1.0), 2) for name in names if WITH_NUMBERS.get(name, 0) > k] for k in (0, 1)]
        attrs["activations"] = names
        attrs |= {key: found for key, found in zip(("activation_alpha", "activation_beta"), numbers, strict=True) if found}
    outputs = d.random.choice((1, 2, states + 1))
    d.add(kind, inputs, outputs, rough=True, left=d.random.choice((0, 0, outputs - 1)), hidden_size=size, **attrs)


RULES: tuple[Rule, ...] = (
    _recurrent,
    _recurrent,
    _recurrent,
)
