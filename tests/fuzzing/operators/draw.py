"""What the rules for operators draw from: shapes, values of a type and a shape, axes, attributes that may be left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzzing.network import TYPES, Array, NetDrawing, type_of


def shape(d: NetDrawing, rank: int, extents: Sequence[int] = (1, 2, 3, 4, 5, 7)) -> tuple[int, ...]:
    return tuple(d.random.choice(extents) for _ in range(rank))


def put(d: NetDrawing, a: Array, constant: float = 0.5) -> str:
    """Return the name of an array: an input, or with that probability a constant."""
    return d.constant(a) if d.random.random() < constant else d.feed(a)


def value(d: NetDrawing, dtype: str, shape: tuple[int, ...]) -> str:
    """Return an exact value of a type and a shape: one that is there, or a new one."""
    there = [n for n, a in d.values.items() if a.shape == shape and type_of(a) == dtype and n not in d.rough]
    return d.random.choice(there) if there and d.random.random() < 0.5 else put(d, d.array(dtype, shape), 0.3)


def parts(d: NetDrawing, dtype: str, shape: tuple[int, ...], unit: float = 0.25, reach: int = 9) -> Array:
    """Return multiples of `unit`."""
    rng = np.random.default_rng(d.random.getrandbits(32))
    return (rng.integers(-reach, reach + 1, shape) * unit).astype(TYPES[dtype][1])


def axis(d: NetDrawing, rank: int) -> int:
    return d.random.randrange(-rank, rank)


def axes(d: NetDrawing, rank: int, least: int = 0) -> list[int]:
    axes = d.random.sample(range(rank), d.random.randint(min(least, rank), rank))
    return [a - rank if d.random.random() < 0.3 else a for a in axes]


def dims(d: NetDrawing, rank: int, low: int, high: int) -> list[int]:
    return [d.random.randint(low, high) for _ in range(rank)]


def maybe(d: NetDrawing, chance: float, **attrs: Any) -> dict[str, Any]:
    return attrs if d.random.random() < chance else {}


def like(d: NetDrawing, x: str, number: float) -> str:
    return d.constant(np.array(number, d.values[x].dtype))


def broadcast(d: NetDrawing, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts against another: with axes of extent one, fewer axes, or one more."""
    kept = tuple(n if d.random.random() < 0.6 else 1 for n in shape)
    return d.random.choice((kept, kept, kept[d.random.randint(0, len(kept)) :], (d.random.choice((1, 2)), *kept)))
