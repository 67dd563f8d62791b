"""Random numbers. They follow from what a call of the program draws (`draw`), from the node and from the element: not the numbers of torch,
but from the same distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from zlib import crc32

from codegen.dtypes import DTYPES, FORMATS, DType
from stdlib.aten.call import Call, Operand, Rule
from stdlib.onnx.table.elementwise import iteration_of
from tensorlang.graph.nodes import Value

F32, BOOL = DTYPES["f32"], DTYPES["bool"]


def _drawn(n: Call, operator: str, shape: Sequence[int], dtype: DType, draw: Value, **attrs: Any) -> Value:
    """Return as many numbers as a shape has elements."""
    if not prod(shape):
        return n.filled(tuple(shape), dtype)
    y = n.op(operator, n.filled((prod(shape),), F32), iteration_of(n), draw, seed=_seed(n), **attrs)
    return n.cast(n.view(y, tuple(shape)), dtype)


def _seed(n: Call) -> int:
    """Return 32 bits that no other node has, nor the same one where it is written out for another turn."""
    return crc32(n.builder.fresh(f"{n.call.name} draws").encode())


def _uniform(n: Call, shape: Sequence[int], dtype: DType, draw: Value, low: float = 0.0, high: float = 1.0) -> Value:
    if dtype.bits >= F32.bits:
        return _drawn(n, "uniform", shape, dtype, draw, low=float(low), high=float(high))
    parts = float(2 << FORMATS[dtype.name].mantissa_bits)  # no number that is rounded to `high`
    y = n.op("map", _drawn(n, "uniform", shape, F32, draw, low=0.0, high=parts), f="floor")
    scaled = n.op("mul", y, n.filled((), F32, (high - low) / parts))
    return n.cast(n.op("add", scaled, n.filled((), F32, float(low))), dtype)


def _normal(n: Call, shape: Sequence[int], dtype: DType, draw: Value, mean: float = 0.0, scale: float = 1.0) -> Value:
    return _drawn(n, "normal", shape, dtype, draw, mean=float(mean), scale=float(scale))


def of_shape(draws: Callable[..., Value]) -> Rule:
    return lambda n, size, *, draw, **_: draws(n, size, n.dtype, draw)


def of_like(draws: Callable[..., Value]) -> Rule:
    return lambda n, x, *, draw, **_: draws(n, x.shape, n.dtype, draw)


def uniform(n: Call, x: Value, low: float = 0.0, high: float = 1.0, *, draw: Value, **_: Any) -> Value:
    return _uniform(n, x.shape, n.dtype, draw, low, high)


def normal(n: Call, x: Value, mean: float = 0.0, scale: float = 1.0, *, draw: Value, **_: Any) -> Value:
    return _normal(n, x.shape, n.dtype, draw, mean, scale)


def normal_of_shape(n: Call, size: Sequence[int], *, draw: Value, **options: Any) -> Value:
    return _normal(n, size, n.dtype, draw, options["mean"], options["std"])


def exponential(n: Call, x: Value, rate: float = 1.0, *, draw: Value, **_: Any) -> Value:
    wide = n.dtype if n.dtype.bits >= F32.bits else F32
    logarithm = n.op("map", _uniform(n, x.shape, wide, draw), f="log")
    return n.cast(n.op("mul", logarithm, n.filled((), wide, -1 / rate)), n.dtype)


def integers(n: Call, low: int, high: int, shape: Sequence[int], draw: Value) -> Value:
    if not all(isinstance(k, int) for k in (low, high)):
        raise n.unsupported("bounds that depend on open sizes")
    if high - low >= 1 << 32:
        raise n.unsupported("2^32 integers to choose from or more")
    return _drawn(n, "random_integers", shape, n.dtype, draw, low=low, count=high - low)


def bernoulli(n: Call, x: Value, p: Operand | None = None, *, draw: Value, **_: Any) -> Value:
    """1 with the probability that an element is, or `p`, else 0."""
    return n.cast(_is_below(n, x.shape, x if p is None else p, draw), n.dtype)


def _is_below(n: Call, shape: Sequence[int], p: Operand, draw: Value) -> Value:
    return n.op("less", _uniform(n, shape, F32, draw), n.value(p, F32))


def dropout(n: Call, x: Value, p: float = 0.5, train: bool | None = False, *, draw: Value | None = None) -> Any:
    """The result, and which elements it keeps where torch asks for that; there is nothing to draw where it does not train."""
    y, kept = dropped(n, x, p, draw)
    return (y, kept) if len(n.dtypes) > 1 else y


def dropped(n: Call, x: Value, p: float, draw: Value | None) -> tuple[Value, Value]:
    """Return elements of which a share `p` is left out and the others make up for it, and which are kept; all where nothing is drawn."""
    if p == 0 or draw is None:
        return x, n.filled(x.shape, BOOL, 1)
    kept = _is_below(n, x.shape, 1 - p, draw)
    scaled = n.op("mul", n.op("mul", x, n.cast(kept, x.dtype)), n.filled((), x.dtype, 0 if p == 1 else 1 / (1 - p)))
    return scaled, kept


def classes(n: Call, x: Value, num_samples: int, replacement: bool = False, *, draw: Value, **_: Any) -> Value:
    """Of each row, by what its elements weigh."""
    if not replacement and num_samples > 1:
        raise n.unsupported("classes that are drawn once")
    rows = x if len(x.shape) > 1 else n.view(x, (1, *x.shape))
    y = n.op("multinomial", n.op("map", rows, f="log"), iteration_of(n), draw, seed=_seed(n), count=num_samples)
    return y if len(x.shape) > 1 else n.view(y, y.shape[1:])


RULES: dict[str, Rule] = {
    "rand": of_shape(_uniform),
    "rand_like": of_like(_uniform),
    "randn": of_shape(_normal),
    "randn_like": of_like(_normal),
    "uniform": uniform,
    "normal_functional": normal,
    "prims::normal": normal_of_shape,
    "exponential": exponential,
    "randint": lambda n, high, size, *, draw, **_: integers(n, 0, high, size, draw),
    "randint.low": lambda n, low, high, size, *, draw, **_: integers(n, low, high, size, draw),
    "randint_like": lambda n, x, high, *, draw, **_: integers(n, 0, high, x.shape, draw),
    "randint_like.low_dtype": lambda n, x, low, high, *, draw, **_: integers(n, low, high, x.shape, draw),
    "bernoulli": bernoulli,
    "dropout": dropout,
    "native_dropout": dropout,
    "multinomial": classes,
}
