"""Indices as data: gathers, scatters, the greatest few."""

from __future__ import annotations

import numpy as np

from fuzzing.network import TYPES, NetDrawing, Rule, type_of
from fuzzing.operators import draw


def _ids(d: NetDrawing, shape: tuple[int, ...], extent: int, negative: bool = True) -> str:
    rng = np.random.default_rng(d.random.getrandbits(32))
    low = -extent if negative and d.random.random() < 0.5 else 0
    return draw.put(d, rng.integers(low, extent, shape).astype(d.random.choice((np.int64, np.int64, np.int32))))


def _gathers(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axis = draw.axis(d, a.ndim)
    if not a.size:
        return
    match d.random.randrange(3):
        case 0:
            shape = tuple(d.random.randint(1, n) for n in a.shape)
            shape = tuple(d.random.choice((n, 4)) if k == axis % a.ndim else n for k, n in enumerate(shape))
            d.add("GatherElements", [x, _ids(d, shape, a.shape[axis])], axis=axis)
        case 1:
            batch = d.random.randint(0, min(a.ndim - 1, 2)) if d.opset >= 12 else 0
            depth = d.random.randint(1, a.ndim - batch)
            rng = np.random.default_rng(d.random.getrandbits(32))
            outer = (*a.shape[:batch], *draw.shape(d, d.random.choice((0, 1, 2)), (1, 2, 3)))
            ids = [rng.integers(-n, n, outer) for n in a.shape[batch : batch + depth]]
            d.add("GatherND", [x, draw.put(d, np.stack(ids, -1).astype(np.int64))], **({"batch_dims": batch} if batch else {}))
        case _:
            d.add("Gather", [x, _ids(d, draw.shape(d, d.random.choice((0, 1, 2)), (0, 1, 2, 3)), a.shape[axis])], axis=axis)


def _scatters(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1, exact=True)
    if x is None or not d.values[x].size:
        return
    a = d.values[x]
    dtype = type_of(a)
    hows = ("none", "add", "mul", "max", "min") if d.opset >= 18 else ("none", "add", "mul")
    how = d.random.choice(hows) if d.opset >= 16 and dtype != "bool" else "none"
    attrs = {"reduction": how} if how != "none" else {}
    rng = np.random.default_rng(d.random.getrandbits(32))
    if d.random.random() < 0.5:
        axis = d.random.randrange(a.ndim)
        shape = tuple(d.random.randint(1, n) for n in a.shape)
        column = (
            rng.permutation(a.shape[axis])[: shape[axis]] if how == "none" else rng.integers(-a.shape[axis], a.shape[axis], shape[axis])
        )
        ids = np.broadcast_to(column.reshape([-1 if k == axis else 1 for k in range(a.ndim)]), shape).astype(np.int64)
        kind = "ScatterElements" if d.opset >= 11 else "Scatter"
        d.add(kind, [x, draw.put(d, ids), draw.value(d, dtype, shape)], axis=axis - d.random.choice((0, a.ndim)), **attrs)
    else:
        depth = d.random.randint(1, a.ndim)
        count = d.random.choice((1, 2, 3))
        rows = int(np.prod(a.shape[:depth]))
        flat = rng.permutation(rows)[:count] if how == "none" else rng.integers(0, rows, count)
        ids = np.stack(np.unravel_index(flat, a.shape[:depth]), -1).astype(np.int64)
        d.add("ScatterND", [x, draw.put(d, ids), draw.value(d, dtype, (len(flat), *a.shape[depth:]))], **attrs)


def _hot(d: NetDrawing) -> None:
    ids = d.some("i64", "i32", exact=True, most=3) or draw.value(d, "i64", d.shape())
    dtype = d.random.choice(("f32", "i64", "bool", "i32"))
    depth = d.constant(np.array(d.random.choice((1, 3, 5)), d.random.choice((np.int64, np.int32, np.float32))))
    values = draw.put(d, np.array([0, 1], TYPES[dtype][1]))
    rank = d.values[ids].ndim
    d.add("OneHot", [ids, depth, values], **draw.maybe(d, 0.7, axis=d.random.randint(-rank - 1, rank)))


def _tops(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64", "i64", "i32", "u8", "i8", least=1, exact=True)
    if x is None:
        return
    a = d.values[x]
    axis = draw.axis(d, a.ndim)
    count = d.random.randint(0, a.shape[axis])
    attrs = draw.maybe(d, 0.8, axis=axis) if axis in (-1, a.ndim - 1) else {"axis": axis}
    if d.opset < 10:
        d.add("TopK", [x], 2, k=count, **attrs)
        return
    more = {**draw.maybe(d, 0.5, largest=d.random.choice((0, 1))), **draw.maybe(d, 0.3, sorted=1)} if d.opset >= 11 else {}
    d.add("TopK", [x, d.ints(count)], 2, **attrs, **more)


def _best(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64", "i64", "i32", "u8", "i8", least=1, exact=True)
    if x is not None and d.values[x].size:
        attrs = {**draw.maybe(d, 0.7, axis=draw.axis(d, d.values[x].ndim)), **draw.maybe(d, 0.5, keepdims=d.random.choice((0, 1)))}
        last = draw.maybe(d, 0.5, select_last_index=d.random.choice((0, 1))) if d.opset >= 12 else {}
        d.add(d.random.choice(("ArgMax", "ArgMin")), [x], **attrs, **last)


def _sequences(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=2)
    if x is None:
        return
    a = d.values[x]
    time = d.random.choice((0, 1))
    rng = np.random.default_rng(d.random.getrandbits(32))
    # Of more steps than there are, onnx's reference reverses those that it finds and onnxruntime refuses: ONNX says nothing.
    lengths = rng.integers(0, a.shape[time] + 1, a.shape[1 - time]).astype(np.int64)
    d.add("ReverseSequence", [x, draw.put(d, lengths)], time_axis=time, batch_axis=1 - time)


RULES: tuple[Rule, ...] = (
    _gathers,
    _gathers,
    _scatters,
    _scatters,
    _hot,
    _tops,
    _best,
    _sequences,
)
