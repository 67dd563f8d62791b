"""Recurrent layers as one operator each: torch, while it captures a graph, takes all but some of LSTM apart into steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decompositions as torch_decompositions

GRU = 3
KINDS = {torch.relu: 0, torch.tanh: 1, torch_decompositions.gru_cell: GRU}
"""How torch numbers the kinds of layers, by what it computes a step with; 2 is LSTM."""
_REPLACED = ("rnn_cell", "one_layer_rnn", "select_one_layer_lstm_function")


@contextmanager
def whole_layers() -> Iterator[None]:
    """Let torch keep layers whole as it keeps those of LSTM whose inputs have no derivatives. Of f64 and f16 they stay in
    steps: to torch the operator is one of f32 and bf16, and has derivatives in f32."""
    given = {name: getattr(torch_decompositions, name) for name in _REPLACED}
    cell, in_steps, select = given.values()

    def layer(x: Any, hidden: Any, params: Any, has_biases: bool, hidden_fn: Callable[..., Any], reverse: bool = False) -> Any:
        if x.dtype not in (torch.float32, torch.bfloat16):
            step = hidden_fn if KINDS[hidden_fn] == GRU else cell(hidden_fn)
            return in_steps(x, hidden, params, has_biases, step, reverse)
        return _layer(x, hidden, params, has_biases, KINDS[hidden_fn], reverse)

    replacements: tuple[Callable[..., Any], ...] = (lambda f: f, layer, lambda x, states, params: select(x.detach(), states, params))
    try:
        for name, function in zip(_REPLACED, replacements, strict=True):
            setattr(torch_decompositions, name, function)
        yield
    finally:
        for name, function in given.items():
            setattr(torch_decompositions, name, function)


def _layer(x: Any, hidden: Any, params: Any, has_biases: bool, kind: int, reverse: bool) -> tuple[Any, Any]:
    """Return the states [L, B, H] after each step of one direction, and the last one [B, H]."""
    w, r = params[:2]
    size = hidden.shape[-1]
    b, br = params[2:4] if has_biases else [w.new_zeros(w.shape[:1])] * 2
    if kind == GRU:
        b, br = _of_four_gates(b, br, size)
    state = hidden.unsqueeze(0).contiguous()
    options: tuple[Any, ...] = (reverse, [], kind, size, 1, has_biases, False, False, False)
    y, last, *_ = torch.ops.aten.mkldnn_rnn_layer.default(x.contiguous(), w, r, b, br, state, state.detach(), *options)
    return y, last.squeeze(0)


def _of_four_gates(b: Any, br: Any, size: int) -> tuple[Any, Any]:
    """Return biases of GRU whose sum is what torch has derivatives by, of reset, update, and the fresh state by input and by state: to
    torch both biases of a layer have the same derivative."""
    none = b.new_zeros(size)
    return torch.cat([b, none]), torch.cat([br[: 2 * size], none, br[2 * size :]])
