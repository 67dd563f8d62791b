"""Sum at each row of a result over the taps of its filter that meet an element there, where padding takes many of them.

    before   y[f, p, q] = sum(c, r, s) (if 0 <= p + 18*r - 18 < 33 and 0 <= q + 18*s - 18 < 33 then x[…] else 0) * w[f, c, r, s]
    after    y[f, p, q] = sum(c, r, s, 0 <= p + 18*r - 18 < 33, 0 <= 11*(q // 11) + 18*s - 8, 11*(q // 11) + 18*s - 18 < 33)
                              (if 0 <= q + 18*s - 18 < 33 then x[…] else 0) * w[f, c, r, s]

What the other terms add is zero as long as their weights are finite numbers, which constants say; a sum that starts from zero does not
change by it. The condition on a row becomes one of the sum, and so bounds its loop over taps. Elements next to each other along the last
of these axes share a register tile and its loop over taps: there the padding stays, and the sum goes over the taps that some element of a
block meets, where whoever knows the machine says how many elements a block had better have. Where sizes are open, the choice is that for
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import TypeAlias

import numpy as np

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import TRUE, Cond, Name
from polyhedral.expr import Expr as Affine
from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.algebra.drop_zero_terms import has_finite_weights, padded_sums
from tensorlang.graph.programs import samples_in
from tensorlang.tensor.contraction import Contraction, Factor
from tensorlang.tensor.nodes import Definition, Holds, Program, Select
from tensorlang.tensor.walk import map_values, replaced, tensor_table

LEAST_SHARE = 1 / 32
"""Of the taps along an axis, in the padding: for fewer, no sum gets a condition."""
MOST_PAIRS = 1 << 20
"""Of elements and taps along an axis, to be counted."""


Blocks: TypeAlias = Callable[[int, int, tuple[DType, DType, DType], Callable[[int], float]], int | None]
"""From how many rows of one operand are multiplied by how many columns of the other, the types of both and of the sum, and the share of the
taps that blocks of so many rows meet: how many rows to take at a time, so that taps that none of them meets are skipped; None: no taps are
skipped along this axis."""


def no_blocks(rows: int, columns: int, types: tuple[DType, DType, DType], met: Callable[[int], float]) -> int | None:
    """Return that no taps are skipped."""
    return None


def bound_taps(graph: Graph, blocks: Blocks = no_blocks) -> Graph:
    """Return the graph with such sums bounded, along the axis of a register tile by these blocks."""
    return rebuilt(graph, [_bounded(graph, node, blocks) if isinstance(node, Kernel) else node for node in graph.nodes])


def _bounded(graph: Graph, node: Kernel, blocks: Blocks) -> Kernel:
    program, samples = node.program, samples_in(graph, node.program)
    to: dict[Select, tuple[Contraction, Cond, Cond]] = {}
    for definition, found, x, w in padded_sums(program):
        if not isinstance(x.mask, Holds) or found.reduce.where != TRUE:
            continue
        added, moved = _bounds(program, definition, found, x, samples, blocks)
        if added != TRUE and has_finite_weights(graph, node, w):
            assert x.select is not None
            to[x.select] = found, added, moved
    for select, (found, added, moved) in to.items():
        left = affine.conj(*(c for c in affine.conjuncts(_cond(select)) if c not in affine.conjuncts(moved)))
        element = select.then if left == TRUE else replace(select, cond=Holds(left))
        kept = replace(found.reduce, where=added, body=tuple(replaced(e, select, element) for e in found.reduce.body))
        program = map_values(program, lambda e, old=found.reduce, new=kept: replaced(e, old, new))  # type: ignore[misc]
    return replace(node, program=program) if to else node


def _cond(select: Select) -> Cond:
    assert isinstance(select.cond, Holds)
    return select.cond.cond


def _bounds(
    program: Program, definition: Definition, found: Contraction, x: Factor, samples: Mapping[str, int], blocks: Blocks
) -> tuple[Cond, Cond]:
    """Return conditions for the sum, and those of them that the mask of `x` need not repeat."""
    assert isinstance(x.mask, Holds)
    shape = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    extents = {name: affine.evaluate(n, samples) for name, n in shape.items()}
    extents |= {b.name: affine.evaluate(b.hi, samples) for b in found.reduce.binders if b.lo == affine.ZERO and not _own(b.hi, found)}
    side = found.factors.index(x)
    rows = [a for a in found.axes_of(side) if extents[a] != 1]
    columns = prod(extents[a] for a in found.axes_of(1 - side))
    table = tensor_table(program)
    added, moved = [], []
    for axis in rows:
        conds = [c for c in affine.conjuncts(x.mask.cond) if axis in affine.name_set(c)]
        names = {n for c in conds for n in affine.names(c)} - {axis, *samples}
        if not conds or not names or not names <= {b.name for b in found.reduce.binders} & extents.keys():
            continue
        ranges = {name: extents[name] for name in (axis, *sorted(names))}
        if prod(ranges.values()) > MOST_PAIRS or _met(conds, axis, ranges, samples, 1) > 1 - LEAST_SHARE:
            continue
        if axis != rows[-1] or columns == 1:
            added += conds
            moved += conds
            continue
        types = (table[x.read.tensor].dtype, table[found.factors[1 - side].read.tensor].dtype, found.dtype)

        def met(block: int, conds: list[Cond] = conds, axis: str = axis, ranges: Mapping[str, int] = ranges) -> float:
            return _met(conds, axis, ranges, samples, block)

        block = blocks(extents[axis], columns, types, met)
        if block is not None:
            added += _of_blocks(conds, axis, block)
    return affine.conj(*added), affine.conj(*moved)


def _own(e: Affine, found: Contraction) -> bool:
    """Tell whether the bound of a binder depends on an axis or another binder."""
    return bool(affine.name_set(e) & {*found.axes, *(b.name for b in found.reduce.binders)})


def _met(conds: list[Cond], axis: str, ranges: Mapping[str, int], samples: Mapping[str, int], block: int) -> float:
    """Return the share of pairs of a block of so many elements and a tap of which some element meets the tap."""
    grid = dict(zip(ranges, np.ogrid[tuple(slice(n) for n in ranges.values())], strict=True))
    holds = affine.holds(affine.conj(*conds), {**samples, **grid})
    pairs = np.broadcast_to(holds, tuple(ranges.values()))
    return float(np.logical_or.reduceat(pairs, np.arange(0, ranges[axis], block), axis=0).mean())


def _of_blocks(conds: list[Cond], axis: str, block: int) -> list[Cond]:
    """Return what holds of the block of an element wherever these conditions hold of some element in it."""
    first = affine.scale(block, affine.floor(Name(axis), block))
    out: list[Cond] = []
    for e in (e for cond in conds for e in affine.inequalities(cond)):
        form = affine.affine_form(e)
        if form is not None and form[0].get(axis):
            at = first if form[0][axis] < 0 else affine.add(first, block - 1)
            out.append(affine.compare("<=", affine.ZERO, affine.substitute(e, {axis: at})))
    return out
