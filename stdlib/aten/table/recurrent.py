"""Layers of LSTM, as torch has them in one operator on processors; other layers come step by step."""

from __future__ import annotations

from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
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
) -> tuple[Value | None, ...]:
    if mode != LSTM or num_layers != 1 or bidirectional or batch_first or batch_sizes:
        raise n.unsupported("more than one direction of an LSTM")
    steps, batch, _ = x.shape
    lengths = n.filled((batch,), DTYPES["i32"], steps)
    backward = n.filled((batch,), DTYPES["i64"], steps) if reverse else None
    source = x if backward is None else n.op("reverse_sequence", x, backward)
    zero = n.filled((4 * hidden_size,), x.dtype, 0)
    bias = _ordered(n, n.op("add", b, br), hidden_size) if has_biases else zero
    states = (n.view(state, (batch, hidden_size)) for state in (h0, c0))
    peep = n.filled((3 * hidden_size,), x.dtype, 0)
    y, hn, cn = n.ops("lstm", source, _ordered(n, w, hidden_size), _ordered(n, r, hidden_size), bias, *states, lengths, peep)
    y = y if backward is None else n.op("reverse_sequence", y, backward)
    return y, n.view(hn, h0.shape), n.view(cn, c0.shape), None


def _ordered(n: Call, w: Value, size: int) -> Value:
    """Return the rows of the gates in the library's order, input, output, forget, cell; torch has input, forget, cell, output."""
    return joined(n, tuple(slice_axis(n, w, 0, k * size, size) for k in (0, 3, 1, 2)), 0)


RULES: dict[str, Rule] = {"mkldnn_rnn_layer": layer}
