"""Neighbouring axes of open sizes as one long axis, whose extent is a symbol for their product.

    before   y[n, c, h, w] = max(x[n, c, h, w], 0)      n < batch, h < height, w < width
    after    y[n_c_h_w] = max(x[n_c_h_w], 0)            n_c_h_w < 64*size.batch_height_width

A schedule merges axes where the product of their extents is quasi-affine (`flatten`), which that of two symbols is not. A graph has symbols
for such products, and memory is the same: so kernels of images run in vectors and register tiles of points, as those of known sizes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.graph.sizes import Symbols, is_least, to_expr
from tensorlang.schedule.flattened import flattened
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.storage import axis_names, to_storage
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.simplify import without_guard
from tensorlang.tensor.walk import index_names, tensor_table, tensors


def merged_axes(program: Program, layouts: Mapping[str, Layout], symbols: Symbols) -> tuple[Program, Mapping[str, Layout]]:
    """Return a program with axes merged, and the layouts of its tensors; both as they are where `flatten` merges as many."""

    def product(a: Affine, b: Affine) -> Affine | None:
        if affine.has_choice(a) or affine.has_choice(b):  # which of two is larger would have to be assumed
            return affine.mul(a, b)
        extent: Any = symbols.size(a) * symbols.size(b)
        # Of n*n - n, two symbols, a kernel does not know that it is no less than 0.
        return to_expr(extent) if is_least(extent) else affine.mul(a, b)

    stored = {name: to_storage(program, name, layout) for name, layout in layouts.items()}
    given, program = program, redefined(program, [without_guard(x, program.sizes) for x in program.definitions])
    before = tensor_table(flattened(program, stored)[0])
    flat, moved = flattened(program, stored, product=product)
    after = tensor_table(flat)
    if all(len(after[name].shape) == len(tensor.shape) for name, tensor in before.items()):
        return given, layouts
    old = tensor_table(program)
    return _with_its_sizes(flat), {
        name: layout if after[name].shape == old[name].shape else _laid_out(flat, name, moved[name]) for name, layout in layouts.items()
    }


def _laid_out(program: Program, name: str, storage: Storage) -> Layout:
    """Return how a tensor is stored, each of whose axes is a dimension."""
    axes = axis_names(program, name)
    names = tuple(f"a{k}" for k in range(len(axes)))
    to: dict[str, Affine] = {axis: Name(a) for axis, a in zip(axes, names, strict=True)}
    shape: tuple[object, ...] = storage.shape
    return Layout(names, tuple(affine.substitute(e, to) for e in storage.dims), shape)  # type: ignore[arg-type]


def _with_its_sizes(program: Program) -> Program:
    """Return a program with the sizes that it mentions."""
    mentioned = affine.name_set(program.context).union(*(affine.name_set(n) for t in tensors(program) for n in t.shape))
    for piece in (p for definition in program.definitions for p in definition.pieces):
        mentioned |= affine.name_set(piece.guard) | index_names(piece.value)
    own = {axis for definition in program.definitions for axis in definition.axes}
    known = [size for size in program.sizes if size in mentioned]
    return replace(program, sizes=(*known, *sorted(mentioned - own - {*known})))
