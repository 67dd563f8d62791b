"""LSTM, GRU, RNN: each direction is one operator; the backward one reads its sequences reversed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Rule, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import joined, slice_axis, transposed
from tensorlang.graph.nodes import Attr, Value

Activation = tuple[str, tuple[float, ...]]
"""A function of gates, and the numbers that it takes after that of the gate."""
Cell = Callable[[Site, Value, int, int, Value, Sequence[Activation], bool], tuple[Value, ...]]

_FUNCTIONS: dict[str, tuple[str, tuple[float | None, ...]]] = {
    "sigmoid": ("sigmoid", ()), "tanh": ("tanh", ()), "relu": ("relu", ()), "softsign": ("softsign", ()), "softplus": ("softplus", ()),
    "hardsigmoid": ("hard_sigmoid", (0.2, 0.5)), "leakyrelu": ("leaky_relu", (0.01,)), "elu": ("elu", (1.0,)),
    "thresholdedrelu": ("thresholded_relu", (1.0,)), "affine": ("affine", (None, None)), "scaledtanh": ("scaled_tanh", (None, None)),
}  # fmt: skip
"""The functions of gates, and what alpha and beta of those that have them are where a layer gives none: as in the operators of these
names. ONNX has no such operator for the last two."""


def layer(gates: int, states: int, per_direction: int, cell: Cell, turned: bool = False) -> Rule:
    """Return the rule of a layer with so many gates, states and activations a direction, of which `cell` computes one. `turned`: weights
    have the gates in their last axis."""

    def rule(n: Site) -> tuple[Value | None, ...]:
        x = n.arg(0)
        batch_first = n.integer("layout", 0, 0, 1) == 1
        if len(x.shape) != 3:
            raise n.wrong(f"the input needs steps, a batch and features, not the shape {list(x.shape)}")
        if batch_first:
            x = transposed(n, x, (1, 0, 2))
        direction = n.text("direction", "forward", ("forward", "reverse", "bidirectional"))
        count = 2 if direction == "bidirectional" else 1
        if len(n.arg(1).shape) != 3 or len(n.arg(2).shape) != 3:
            raise n.wrong(f"weights of the shapes {list(n.arg(1).shape)} and {list(n.arg(2).shape)}")
        size = n.integer("hidden_size", n.arg(2).shape[1 if turned else 2], low=1)
        if any(
            n.arg(k).shape != ((count, width, gates * size) if turned else (count, gates * size, width))
            for k, width in ((1, x.shape[2]), (2, size))
        ):
            raise n.wrong(f"weights of the shapes {list(n.arg(1).shape)} and {list(n.arg(2).shape)} for {size} units in {count} directions")
        if n.flag("input_forget") and cell is not _lstm:
            raise n.unsupported("input_forget = 1")
        chosen = _activations(n, count * per_direction, per_direction)
        found = [
            _direction(n, x, d, size, (direction == "reverse") != (d == 1), chosen, per_direction, batch_first, cell) for d in range(count)
        ]
        return _assembled(n, found, states, batch_first)

    return rule


def _activations(n: Site, wanted: int, per_direction: int) -> tuple[Activation, ...]:
    usual = {1: ("Tanh",), 2: ("Sigmoid", "Tanh"), 3: ("Sigmoid", "Tanh", "Tanh")}[per_direction]
    given = n.node.attributes.get("activations", usual * (wanted // per_direction))
    names = tuple(str(name).lower() for name in given)  # type: ignore[union-attr]
    if len(names) != wanted:
        raise n.wrong(f"{len(names)} activations for {wanted}")
    rest = {which: iter(_reals(n, f"activation_{which}")) for which in ("alpha", "beta")}
    found: list[Activation] = []
    for name in names:
        if name not in _FUNCTIONS:
            raise n.unsupported(f"the activation {name}")
        function, defaults = _FUNCTIONS[name]
        numbers: list[float] = []
        for which, default in zip(rest, defaults, strict=False):
            number = next(rest[which], default)
            if number is None:
                raise n.wrong(f"no {which} for the activation {name}")
            numbers.append(number)
        found.append((function, tuple(numbers)))
    return tuple(found)


def _attributes(chosen: Sequence[Activation]) -> dict[str, Attr]:
    """Return the functions f, g and h of a cell, and what each takes after the number of the gate."""
    of: dict[str, Attr] = {f"of_{f}": numbers for f, (_, numbers) in zip("fgh", chosen, strict=False) if numbers}
    return {f: function for f, (function, _) in zip("fgh", chosen, strict=False)} | of


def _reals(n: Site, name: str) -> tuple[float, ...]:
    found = n.node.attributes.get(name, ())
    return tuple(float(v) for v in found) if isinstance(found, tuple) else ()


def _direction(
    n: Site, x: Value, d: int, size: int, backward: bool, chosen: Sequence[Activation], per_direction: int, batch_first: bool, cell: Cell
) -> tuple[Value, ...]:
    steps, batch, _ = x.shape
    lengths = n.maybe(4) or n.filled((batch,), DTYPES["i32"], steps)
    source = n.op("reverse_sequence", x, cast(n, lengths, DTYPES["i64"])) if backward else x
    own = chosen[d * per_direction : (d + 1) * per_direction]
    y, *states = cell(n, source, d, size, lengths, own, batch_first)
    return (n.op("reverse_sequence", y, cast(n, lengths, DTYPES["i64"])) if backward else y, *states)


def of_direction(n: Site, k: int, d: int) -> Value:
    """Return what argument `k` has for a direction."""
    value = n.arg(k)
    return n.view(slice_axis(n, value, 0, d, 1), value.shape[1:])


def _bias(n: Site, d: int, width: int) -> tuple[Value, Value]:
    """Return the biases of the input and of the recurrence."""
    if n.maybe(3) is None:
        zero = n.filled((width,), n.arg(0).dtype)
        return zero, zero
    both = of_direction(n, 3, d)
    if both.shape != (2 * width,):
        raise n.wrong(f"a bias of the shape {list(n.arg(3).shape)} for {width} gate units")
    return slice_axis(n, both, 0, 0, width), slice_axis(n, both, 0, width, width)


def _state(n: Site, k: int, d: int, batch: int, size: int, batch_first: bool) -> Value:
    value = n.maybe(k)
    if value is None:
        return n.filled((batch, size), n.arg(0).dtype)
    if len(value.shape) != 3:
        raise n.wrong(f"a state of the shape {list(value.shape)}")
    if batch_first:
        value = transposed(n, value, (1, 0, 2))
    return n.view(slice_axis(n, value, 0, d, 1), value.shape[1:])


def lstm_states(
    n: Site, d: int, size: int, batch: int, chosen: Sequence[Activation], batch_first: bool
) -> tuple[tuple[Value, ...], dict[str, Attr]]:
    """Return the bias of a direction of an LSTM, its first states and its peepholes, and its functions."""
    first, second = _bias(n, d, 4 * size)
    bias = n.op("add", first, second) if n.maybe(3) is not None else first
    h0, c0 = (_state(n, k, d, batch, size, batch_first) for k in (5, 6))
    peep = of_direction(n, 7, d) if n.maybe(7) is not None else n.filled((3 * size,), n.arg(0).dtype)
    return (bias, h0, c0, peep), _attributes(chosen)


def gate_limit(n: Site) -> float:
    """Return what bounds that which goes into the functions of gates, 0 where nothing does."""
    limit = n.real("clip", 0.0)
    if limit < 0:
        raise n.wrong(f"a clip of {limit}")
    return limit


def _lstm(n: Site, x: Value, d: int, size: int, lengths: Value, chosen: Sequence[Activation], batch_first: bool) -> tuple[Value, ...]:
    (bias, h0, c0, peep), attrs = lstm_states(n, d, size, x.shape[1], chosen, batch_first)
    w, r = of_direction(n, 1, d), of_direction(n, 2, d)
    if n.flag("input_forget"):
        if chosen[0][0] != "sigmoid":
            raise n.unsupported(f"input_forget = 1 and gates of {chosen[0][0]}")
        w, r, bias, peep = (_forgets_what_comes(n, value, size) for value in (w, r, bias, peep))
    return n.ops("lstm", x, w, r, bias, h0, c0, lengths, peep, limit=gate_limit(n), **attrs)


def _forgets_what_comes(n: Site, x: Value, size: int) -> Value:
    """Return what goes into the gates i, o, f and c, or what peeps into the first three, with that of f made of that of i, so that the gate
    f is 1 - i: sigmoid(-z) is 1 - sigmoid(z)."""
    before, after = slice_axis(n, x, 0, 0, 2 * size), slice_axis(n, x, 0, 3 * size, x.shape[0] - 3 * size)
    return joined(n, (before, n.op("map", slice_axis(n, x, 0, 0, size), f="negate"), after), 0)


def _gru(n: Site, x: Value, d: int, size: int, lengths: Value, chosen: Sequence[Activation], batch_first: bool) -> tuple[Value, ...]:
    first, second = _bias(n, d, 3 * size)
    operator = "gru_reset_after" if n.flag("linear_before_reset") else "gru"
    h0 = _state(n, 5, d, x.shape[1], size, batch_first)
    return n.ops(
        operator, x, of_direction(n, 1, d), of_direction(n, 2, d), first, second, h0, lengths, limit=gate_limit(n), **_attributes(chosen)
    )


def _rnn(n: Site, x: Value, d: int, size: int, lengths: Value, chosen: Sequence[Activation], batch_first: bool) -> tuple[Value, ...]:
    first, second = _bias(n, d, size)
    bias = n.op("add", first, second) if n.maybe(3) is not None else first
    h0 = _state(n, 5, d, x.shape[1], size, batch_first)
    return n.ops("rnn", x, of_direction(n, 1, d), of_direction(n, 2, d), bias, h0, lengths, limit=gate_limit(n), **_attributes(chosen))


def _assembled(n: Site, found: Sequence[tuple[Value, ...]], states: int, batch_first: bool) -> tuple[Value | None, ...]:
    """Return Y [L, D, B, H] and the last states [D, B, H] from those of the directions; with batch first [B, L, D, H] and [B, D, H]."""
    steps, batch, size = found[0][0].shape
    y = joined(n, tuple(n.view(one[0], (steps, 1, batch, size)) for one in found), 1)
    last = [joined(n, tuple(n.view(one[k], (1, batch, size)) for one in found), 0) for k in range(1, states + 1)]
    if batch_first:
        y = transposed(n, y, (2, 0, 1, 3))
        last = [transposed(n, value, (1, 0, 2)) for value in last]
    return (y, *last)


def reverse_sequence(n: Site) -> Value:
    x = n.arg(0)
    batch_axis, time_axis = n.integer("batch_axis", 1, 0, 1), n.integer("time_axis", 0, 0, 1)
    if len(x.shape) < 2 or batch_axis == time_axis:
        raise n.wrong("one axis of steps and one of sequences are needed")
    return n.op("reverse_rows" if batch_axis == 0 else "reverse_sequence", x, n.arg(1))


RULES = (
    Entry("LSTM", 1, 22, layer(4, 2, 3, _lstm)),
    Entry("GRU", 1, 22, layer(3, 1, 2, _gru)),
    Entry("RNN", 1, 22, layer(1, 1, 1, _rnn)),
    Entry("ReverseSequence", 10, 28, reverse_sequence),
)
