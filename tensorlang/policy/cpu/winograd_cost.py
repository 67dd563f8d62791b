"""Whether a convolution is worth rewriting by minimal filtering, and with which tiles: a comparison of estimated cycles.

direct      multiply-adds at the rate of the machine
filtering   fewer of them, in register tiles of the size that its tiles allow; the transformations of every tile; and the transformed
            weights, which may be larger than what the caches deliver in that time: they are read once, or, where no cache keeps them,
            once for every block of tiles of every image; threads that share the columns read a part of them each
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensorlang.policy.cpu.cost import FAR_BYTES, multiply_cycles
from tensorlang.policy.cpu.winograd import TRANSFORMATION, blocks
from tensorlang.policy.machine import Machine
from tensorlang.tensor.winograd import Convolution

LARGEST = 6
"""Points of an algorithm along a window. Rounding grows with them: six give about six times the error of a sum taken directly."""

WORTH = 1.1
"""How many times faster filtering must be."""


def tiles(found: Convolution, machine: Machine) -> tuple[int, ...] | None:
    """Return how many results a tile has along each window, or None when the convolution is better left as it is."""
    lanes = machine.lanes(found.dtype)
    if found.batch == 0 or any(w.extent <= 0 for w in found.windows):
        return None
    if found.channels < lanes or found.extent(found.column) < lanes or all(w.taps < 2 for w in found.windows):
        return None
    direct = _direct(found, machine)
    best = min(((_filtered(found, outputs, machine), outputs) for outputs in _choices(found)), default=None)
    return best[1] if best is not None and best[0] * WORTH < direct else None


def _choices(found: Convolution) -> Iterator[tuple[int, ...]]:
    """Yield tiles, the same along windows with the same taps."""
    for points in range(3, LARGEST + 1):
        outputs = tuple(points - w.taps + 1 for w in found.windows)
        if all(m >= 2 for m in outputs):
            yield outputs


def _direct(found: Convolution, machine: Machine) -> float:
    lanes = machine.lanes(found.dtype)
    points = found.batch * found.groups * prod(w.extent for w in found.windows)
    vectors = -(-found.extent(found.column) // lanes)
    return multiply_cycles(points * vectors * found.channels * prod(w.taps for w in found.windows)) / machine.threads


def _filtered(found: Convolution, outputs: tuple[int, ...], machine: Machine) -> float:
    lanes, element = machine.lanes(found.dtype), found.dtype.size_bytes
    counts = tuple(-(-w.extent // m) for w, m in zip(found.windows, outputs, strict=True))
    points = prod(m + w.taps - 1 for w, m in zip(found.windows, outputs, strict=True))
    columns = found.extent(found.column)
    images = found.batch * found.groups
    best = blocks(counts, points, found.channels, columns, element, machine, images)
    products = images * best.cycles
    weights = found.groups * points * found.channels * columns * element
    kept = weights <= machine.cache_bytes // 2
    turns = 1 if kept else found.batch * prod(-(-n // t) for n, t in zip(counts, best.tiles, strict=True))
    far = turns * weights / best.parts / FAR_BYTES if weights > machine.l2_bytes else 0.0
    vectors = -(-found.channels // lanes) + -(-columns // lanes)
    around = images * prod(counts) * vectors * points * TRANSFORMATION / machine.threads
    return max(products, far) + around
