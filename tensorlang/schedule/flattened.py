"""Neighbouring axes merged, in tensors that the caller stores in a layout too.

    before   y[n, c, h, w] = x[n, c, h, w]      x: [n, c // 16, h, w, c % 16]
    after    y[n, c, h_w] = x[n, c, h_w]        x: [n, c // 16, h_w, c % 16]

Where a layout has two axes one after the other, as they are, their memory is that of one long axis. Products keep the axes that the
layouts of their operands were chosen for, but on a device, where rows and columns are merged like everything else; single columns are
columns in either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.shape import is_product
from tensorlang.schedule.storage import axis_names
from tensorlang.tensor.flatten import Dims, Product, drop_last, merge_once
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import tensor_table


def flattened(
    program: Program, layouts: Mapping[str, Storage], *, products: bool = False, product: Product = affine.mul
) -> tuple[Program, dict[str, Storage]]:
    """Return `program` with such axes merged until none are left, and the layouts of its tensors; `products`: those of products, too;
    `product`: what multiplies extents."""
    layouts = dict(layouts)
    while True:
        kept = _kept(program, layouts, products)
        merged = None if any(map(is_product, program.definitions)) else drop_last(program, kept)
        merged = merged or merge_once(program, kept, product)
        if merged is None:
            return program, layouts
        flat, places = merged
        layouts = {name: _without(storage, program, flat, name, places.get(name), product) for name, storage in layouts.items()}
        program = flat


def _kept(program: Program, layouts: Mapping[str, Storage], products: bool) -> frozenset[Dims]:
    """Return the pairs of dimensions that layouts keep apart."""
    table, product = tensor_table(program), not products and any(map(is_product, program.definitions))
    pairs = ((table[name], storage, k) for name, storage in layouts.items() for k in range(len(table[name].shape) - 1))
    return frozenset((t.name, k) for t, storage, k in pairs if product or not _is_one_piece(program, t, storage, k))


def _is_one_piece(program: Program, tensor: Tensor, storage: Storage, k: int) -> bool:
    """Tell whether dimensions `k` and `k + 1` of `tensor` lie like one."""
    first, second = (Name(a) for a in axis_names(program, tensor.name)[k : k + 2])
    at = next((i for i, pair in enumerate(zip(storage.dims, storage.dims[1:], strict=False)) if pair == (first, second)), None)
    if at is None or storage.pad or storage.shape[at : at + 2] != tensor.shape[k : k + 2]:
        return False
    others = (*storage.dims[:at], *storage.dims[at + 2 :])
    return not any({first.name, second.name} & set(affine.names(e)) for e in others)


def _without(storage: Storage, program: Program, flat: Program, name: str, merged: int | None, product: Product) -> Storage:
    """Return the layout of a tensor with dimensions `merged` and `merged + 1` as one, over the names that `flat` has for them."""
    old, new = axis_names(program, name), axis_names(flat, name)
    if merged is None:
        return storage
    to: dict[str, Affine] = {a: Name(b) for a, b in zip((*old[:merged], *old[merged + 1 :]), new, strict=True)}
    at = storage.dims.index(Name(old[merged]))
    size = product(*storage.shape[at : at + 2])
    assert size is not None
    dims = tuple(affine.substitute(e, to) for e in (*storage.dims[:at], *storage.dims[at + 1 :]))
    return replace(storage, dims=dims, shape=(*storage.shape[:at], size, *storage.shape[at + 2 :]))
