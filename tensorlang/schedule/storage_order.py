"""Axes in the order in which tensors lie in memory.

    before   y[n, o, h, w] = sum(c) x[n, c, h, w] * w[o, c]          x, y in layouts [n, h, w, c] and [n, h, w, o]
    after    y[n, h, w, o] = sum(c) x[n, h, w, c] * w[o, c]          x, y row-major

A layout that only permutes dimensions is the row-major order of axes that are permuted alike. Axes that are neighbours in memory are then
neighbours in the program, so that they are merged (`tensor.flatten`): the convolution above is one product of matrices, whose rows are the
points of all lines and samples. What is computed, and where each element lies, stays the same. Tensors in between take the order of what
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.storage import axis_names, to_storage
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Expr, Program, Read, Tensor
from tensorlang.tensor.walk import map_pieces, reads, substitute_reads, tensor_table

Order = tuple[int, ...]
"""Which axis comes first, which next."""


def in_storage_order(program: Program, layouts: Mapping[str, Layout]) -> tuple[Program, dict[str, Layout]]:
    """Return `program` with the axes of its tensors as they lie in memory, and the layouts that are no permutations of dimensions."""
    orders = _orders(program, layouts)
    if all(order == tuple(range(len(order))) for order in orders.values()):
        return program, dict(layouts)

    def shaped(tensor: Tensor) -> Tensor:
        order = orders.get(tensor.name)
        return tensor if order is None else replace(tensor, shape=tuple(tensor.shape[k] for k in order), grouping=())

    def permuted(read: Read) -> Expr:
        order = orders.get(read.tensor)
        return read if order is None else replace(read, index=tuple(read.index[k] for k in order))

    definitions = [
        replace(
            map_pieces(d, lambda value: substitute_reads(value, permuted)),
            tensors=tuple(map(shaped, d.tensors)),
            axes=tuple(d.axes[k] for k in orders.get(d.tensors[0].name, range(len(d.axes)))),
        )
        for d in program.definitions
    ]
    made = redefined(replace(program, params=tuple(map(shaped, program.params))), definitions)
    return made, {name: layout for name, layout in layouts.items() if name not in orders}


def _orders(program: Program, layouts: Mapping[str, Layout]) -> dict[str, Order]:
    """Return the orders of the axes of tensors, by names. Those whose layouts do more than that are left out."""
    stored = {name: order for name, layout in layouts.items() if (order := order_of(program, name, layout)) is not None}
    orders = {p.name: stored[p.name] for p in program.params if p.name in stored}
    for definition in reversed(program.definitions):
        names = [t.name for t in definition.tensors]
        if any(name in layouts and name not in stored for name in names):
            continue
        wished = [stored.get(name, tuple(range(len(definition.axes)))) for name in names if name in program.results]
        wished = wished or [_of_reader(program, definition, orders)]
        if all(order == wished[0] for order in wished):
            orders |= dict.fromkeys(names, wished[0])
    return orders


def order_of(program: Program, name: str, layout: Layout) -> Order | None:
    """Return the order of axes in which a tensor lies row-major, or None where it does not in any."""
    shape = [affine.constant(n) for n in tensor_table(program)[name].shape]
    extents = [n for n in shape if n is not None]
    if len(extents) < len(shape) or prod(layout.shape) != prod(extents):
        return None
    storage, axes = to_storage(program, name, layout), axis_names(program, name)
    place: Affine = affine.ZERO
    for dim, extent in zip(storage.dims, layout.shape, strict=True):
        place = affine.add(affine.scale(extent, place), dim)
    form = affine.affine_form(place)
    if form is None or form[1]:
        return None
    steps = {axis: form[0].get(axis, 0) for axis, extent in zip(axes, extents, strict=True) if extent > 1}
    order = tuple(sorted(range(len(axes)), key=lambda k: (extents[k] > 1, -steps.get(axes[k], 0))))
    step = 1
    for k in reversed(order):
        if extents[k] > 1 and steps[axes[k]] != step:
            return None
        step *= extents[k]
    return order


def _of_reader(program: Program, definition: Definition, orders: Mapping[str, Order]) -> Order:
    """Return the order of the axes of a tensor in between: that in which what reads it at its own points has them."""
    plain = tuple(range(len(definition.axes)))
    for reader in program.definitions:
        order = orders.get(reader.tensors[0].name)
        if order is None or reader is definition:
            continue
        at = {reader.axes[k]: place for place, k in enumerate(order)}
        for read in (r for piece in reader.pieces for r in reads(piece.value)):
            if read.tensor == definition.tensors[0].name:
                names = [slot.name if isinstance(slot, Name) else "" for slot in read.index]
                return tuple(sorted(plain, key=lambda k: (at.get(names[k], len(at)), k)))
    return plain
