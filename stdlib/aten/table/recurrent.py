"""Recurrent layers, each direction one operator, as torch has those of LSTM on processors."""

from __future__ import annotations

from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
from stdlib.aten.derivatives import derivatives
from stdlib.aten.table.moving import flip
from stdlib.onnx.table.moving import joined, slice_axis
from tensorlang.graph.nodes import Value

RELU, TANH, LSTM, GRU = range(4)
"""How torch numbers the kinds of layers."""
ORDERS = {LSTM: (0, 3, 1, 2), GRU: (1, 0, 2)}
"""Where torch has the gates that the library has in this order: of input, output, forget, cell, and of update, reset, fresh state."""


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
    _check(n, num_layers, bidirectional, batch_first, batch_sizes)
    return *_layer(n, mode, reverse, has_biases, x, w, r, b, br, h0, c0), n.filled((0,), DTYPES["u8"], 0)


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
    _check(n, num_layers, bidirectional, batch_first, batch_sizes)
    by = (x, w, r, b, br, h0, c0)
    asked = [n.uses(k) for k in range(len(by))]
    slopes = derivatives(n, (grad_y, grad_h, grad_c), by, lambda *given: _layer(n, mode, reverse, has_biases, *given), asked)
    return tuple(s if s is None else n.cast(s, dtype) for s, dtype in zip(slopes, n.dtypes, strict=True))  # f32, of bf16, too


def _check(n: Call, num_layers: int, bidirectional: bool, batch_first: bool, batch_sizes: Any) -> None:
    if num_layers != 1 or bidirectional or batch_first or batch_sizes:
        raise n.unsupported("more than one direction of a recurrent layer")


def _layer(
    n: Call, mode: int, reverse: bool, has_biases: bool, x: Value, w: Value, r: Value, b: Value, br: Value, h0: Value, c0: Value
) -> tuple[Value, Value, Value]:
    """Return the states after each step, and both after the last one; layers that have one state leave the other as it is. The sum of
    the biases of GRU has four gates, of reset, update, and the fresh state by input and by state."""
    steps, batch, _ = x.shape
    size = r.shape[-1]
    lengths = n.filled((batch,), DTYPES["i32"], steps)
    w, r = (_ordered(n, value, size, mode) for value in (w, r))
    both = n.op("add", b, br) if has_biases else n.filled(((mode == GRU) * size + w.shape[0],), x.dtype, 0)
    bias = _ordered(n, both, size, mode)
    h, c = (n.view(state, (batch, size)) for state in (h0, c0))
    source, cn = flip(n, x, (0,)) if reverse else x, c
    if mode == LSTM:
        y, hn, cn = n.ops("lstm", source, w, r, bias, h, c, lengths, n.filled((3 * size,), x.dtype, 0))
    elif mode == GRU:
        inner = joined(n, (n.filled((2 * size,), x.dtype, 0), slice_axis(n, both, 0, 3 * size, size)), 0)
        y, hn = n.ops("gru_reset_after", source, w, r, bias, inner, h, lengths)
    else:
        y, hn = n.ops("rnn", source, w, r, bias, h, lengths, f="relu" if mode == RELU else "tanh")
    return flip(n, y, (0,)) if reverse else y, n.view(hn, h0.shape), n.view(cn, c0.shape)


def _ordered(n: Call, w: Value, size: int, mode: int) -> Value:
    """Return the rows of the gates in the library's order."""
    return joined(n, tuple(slice_axis(n, w, 0, k * size, size) for k in ORDERS[mode]), 0) if mode in ORDERS else w


RULES: dict[str, Rule] = {"mkldnn_rnn_layer": layer, "mkldnn_rnn_layer_backward": layer_backward}
