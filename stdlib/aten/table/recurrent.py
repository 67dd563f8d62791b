"""Layers of LSTM, as torch has them in one operator on processors; other layers come step by step."""

from __future__ import annotations

from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
from stdlib.aten.derivatives import derivatives
from stdlib.aten.table.moving import flip
from stdlib.onnx.table.moving import joined, slice_axis
from tensorlang.graph.nodes import Value

LSTM = 2
"""How torch numbers the kind of layer."""


def layer(
    n: Call,
    x: Value,
    w: Value,
    r: Value,
    b: Value,
    br: Value,
    h0: Value,
    c0: Value,
    reverse: bool,
    batch_sizes: Any,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Value, ...]:
    _check(n, mode, num_layers, bidirectional, batch_first, batch_sizes)
    return *_layer(n, reverse, has_biases, x, w, r, b, br, h0, c0), n.filled((0,), DTYPES["u8"], 0)


def layer_backward(
    n: Call,
    x: Value,
    w: Value,
    r: Value,
    b: Value,
    br: Value,
    h0: Value,
    c0: Value,
    y: Value,
    h: Value,
    c: Value,
    grad_y: Value | None,
    grad_h: Value | None,
    grad_c: Value | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Any,
    batch_first: bool,
    workspace: Value,
) -> tuple[Value | None, ...]:
    _check(n, mode, num_layers, bidirectional, batch_first, batch_sizes)
    by = (x, w, r, b, br, h0, c0)
    asked = [n.uses(k) for k in range(len(by))]
    slopes = derivatives(n, (grad_y, grad_h, grad_c), by, lambda *given: _layer(n, reverse, has_biases, *given), asked)
    return tuple(s if s is None else n.cast(s, dtype) for s, dtype in zip(slopes, n.dtypes, strict=True))  # f32, of bf16, too


def _check(n: Call, mode: int, num_layers: int, bidirectional: bool, batch_first: bool, batch_sizes: Any) -> None:
    if mode != LSTM or num_layers != 1 or bidirectional or batch_first or batch_sizes:
        raise n.unsupported("more than one direction of an LSTM")


def _layer(
    n: Call, reverse: bool, has_biases: bool, x: Value, w: Value, r: Value, b: Value, br: Value, h0: Value, c0: Value
) -> tuple[Value, Value, Value]:
    """Return the states after each step, and both after the last one."""
    steps, batch, _ = x.shape
    hidden_size = r.shape[-1]
    lengths = n.filled((batch,), DTYPES["i32"], steps)
    zero = n.filled((4 * hidden_size,), x.dtype, 0)
    bias = _ordered(n, n.op("add", b, br), hidden_size) if has_biases else zero
    states = (n.view(state, (batch, hidden_size)) for state in (h0, c0))
    peep = n.filled((3 * hidden_size,), x.dtype, 0)
    source = flip(n, x, (0,)) if reverse else x
    y, hn, cn = n.ops("lstm", source, _ordered(n, w, hidden_size), _ordered(n, r, hidden_size), bias, *states, lengths, peep)
    return flip(n, y, (0,)) if reverse else y, n.view(hn, h0.shape), n.view(cn, c0.shape)


def _ordered(n: Call, w: Value, size: int) -> Value:
    """Return the rows of the gates in the library's order, input, output, forget, cell; torch has input, forget, cell, output."""
    return joined(n, tuple(slice_axis(n, w, 0, k * size, size) for k in (0, 3, 1, 2)), 0)


RULES: dict[str, Rule] = {"mkldnn_rnn_layer": layer, "mkldnn_rnn_layer_backward": layer_backward}
