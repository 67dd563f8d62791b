"""How much there is to compute."""

from __future__ import annotations

import math
from collections.abc import Mapping

from polyhedral import affine
from tensorlang.tensor.nodes import Expr, Program, Reduce
from tensorlang.tensor.walk import children, shape_of


def operations(program: Program, sizes: Mapping[str, int]) -> int:
    """Return about how many operations `program` takes at these sizes, no fewer where ranges grow with what they depend on."""
    total = sum(math.prod(shape_of(p, sizes)) for p in program.params)
    for definition in program.definitions:
        shape = shape_of(definition.tensors[0], sizes)
        ends = {a: (0, max(0, n - 1)) for a, n in zip(definition.axes, shape, strict=True)}
        total += math.prod(shape) * sum(_cost(p.value, {**{s: (n, n) for s, n in sizes.items()}, **ends}) for p in definition.pieces)
    return total


def _cost(e: Expr, ends: Mapping[str, tuple[int, int]]) -> int:
    points = 1
    if isinstance(e, Reduce):
        for b in e.binders:
            lo = int(affine.evaluate(b.lo, {n: low for n, (low, _) in ends.items()}))
            hi = int(affine.evaluate(b.hi, {n: high for n, (_, high) in ends.items()}))
            points *= max(1, hi - lo)
            ends = {**ends, b.name: (lo, max(lo, hi - 1))}
    return points * (1 + sum(_cost(child, ends) for child in children(e)))
