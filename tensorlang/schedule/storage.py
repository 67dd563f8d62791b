"""Layouts as the caller sees a tensor, and as a schedule sees it.

A caller speaks of the dimensions of an array; the tensor IR splits composite dimensions into axes (`grouping`). Here one becomes the other:

    array   [n, c, h, w]       c // 16, c % 16
    axes    [n, g, f, p, q]    4*g + f // 16, f % 16                   with 64 = extent of f
                               g // 2, 8 * (g % 2) + f                 with 8 = extent of f
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from polyhedral import affine
from polyhedral.expr import Add, Floor, Mod, Name, Scale
from polyhedral.expr import Expr as Affine
from polyhedral.ranges import range_of
from tensorlang.diagnostics import InternalError
from tensorlang.schedule.injective import fault_of
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.plan import Storage
from tensorlang.tensor import notation
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import definers, tensor_table


def axis_names(program: Program, tensor: str) -> tuple[str, ...]:
    """Return the names that a schedule uses for the axes of `tensor`: its definition's, or a0, a1, … for a parameter."""
    definition = definers(program).get(tensor)
    return definition.axes if definition else tuple(f"a{k}" for k in range(len(tensor_table(program)[tensor].shape)))


def stored_as(program: Program, layouts: Mapping[str, Layout]) -> dict[str, Storage]:
    """Return how tensors that the caller stores in `layouts` lie, over their axes.

    Raises InternalError when a layout is not proven to give every element a cell of its own: then it is no layout of the tensor, and what
    reads another part of it than the layout was made for would find other elements."""
    found = {name: to_storage(program, name, layout) for name, layout in layouts.items()}
    for name, storage in found.items():
        axes, extents = axis_names(program, name), tensor_table(program)[name].shape
        wrong = fault_of(program.sizes, axes, extents, storage.dims, storage.shape, program.context)
        if wrong is not None:
            raise InternalError("layout", f"`{name}` of `{program.name}` as [{', '.join(map(notation.show, storage.dims))}]: {wrong}")
    return found


def to_storage(program: Program, tensor: str, layout: Layout) -> Storage:
    """Return the caller's layout of `tensor` over its axes."""
    found = tensor_table(program)[tensor]
    names = axis_names(program, tensor)
    to = {d: _linear(found, names, members) for d, members in zip(layout.axes, found.groups, strict=True)}
    dims = tuple(_normal(affine.substitute(d, to), dict(zip(names, found.shape, strict=True))) for d in layout.dims)
    return Storage(dims, tuple(affine.to_expr(s) for s in layout.shape))


def _linear(tensor: Tensor, names: tuple[str, ...], members: tuple[int, ...]) -> Affine:
    """Return the row-major index over the axes of one dimension, leaving out axes of extent one."""
    total: Affine = affine.ZERO
    step = 1
    for k in reversed(members):
        extent = affine.constant(tensor.shape[k])
        if extent != 1:
            total = affine.add(total, affine.scale(step, Name(names[k])))
        step *= extent or 1
    return total


def _normal(e: Affine, extents: dict[str, Affine]) -> Affine:
    """Return `e` with every division that the extents decide carried out."""
    match e:
        case Add(lhs, rhs):
            return affine.add(_normal(lhs, extents), _normal(rhs, extents))
        case Scale(factor, value):
            return affine.scale(factor, _normal(value, extents))
        case Mod(value, divisor) | Floor(value, divisor):
            inner = _normal(value, extents)
            if _is_below(inner, divisor, extents):
                return inner if isinstance(e, Mod) else affine.ZERO
            step, quotient, rest = _apart(inner, divisor, extents)
            if step > 1 and isinstance(e, Mod):
                return affine.add(affine.scale(step, affine.mod(quotient, divisor // step)), rest)
            if step > 1:
                return affine.floor(quotient, divisor // step)
            return affine.mod(inner, divisor) if isinstance(e, Mod) else affine.floor(inner, divisor)
        case _:
            return e


def _apart(e: Affine, divisor: int, extents: dict[str, Affine]) -> tuple[int, Affine, Affine]:
    """Return `e` as a multiple of the greatest step that is found, a divisor of `divisor`, and what is left, which is less than a step: of
    `8*k + c` and 16, where `c` is below 8, these are 8, `k` and `c`. The step is 1 where there is none."""
    coefficients, const = affine.terms(e)
    for step in sorted({math.gcd(c, divisor) for c in coefficients.values()} - {1, divisor}, reverse=True):
        rest = affine.from_terms({atom: c for atom, c in coefficients.items() if c % step}, const % step)
        if _is_below(rest, step, extents):
            whole = {atom: c // step for atom, c in coefficients.items() if c % step == 0}
            return step, affine.from_terms(whole, const // step), rest
    return 1, e, affine.ZERO


def _is_below(e: Affine, divisor: int, extents: dict[str, Affine]) -> bool:
    """Tell whether `e` is one of 0..divisor for all that the extents allow."""
    sizes = {name: affine.constant(extents[name]) for name in affine.name_set(e)}
    low, high = range_of(e, {name: (0, None if size is None else size - 1) for name, size in sizes.items()})
    return low is not None and high is not None and low >= 0 and high < divisor


def to_layout(program: Program, tensor: str, storage: Storage) -> Layout | None:
    """Return the storage of `tensor` as a layout of the caller's array, or None when its shape is not static."""
    found = tensor_table(program)[tensor]
    names = axis_names(program, tensor)
    dims = found.groups
    visible = tuple(f"a{k}" for k in range(len(dims)))
    to: dict[str, Affine] = {}
    for name, members in zip(visible, dims, strict=True):
        to |= dict(_split(found, names, members, Name(name)))
    shape = [affine.constant(s) for s in storage.shape]
    if any(s is None for s in shape):
        return None
    return Layout(visible, tuple(affine.substitute(d, to) for d in storage.dims), tuple(s for s in shape if s is not None))


def _split(tensor: Tensor, names: tuple[str, ...], members: tuple[int, ...], whole: Affine) -> Iterator[tuple[str, Affine]]:
    """Yield what each axis of a dimension is, in terms of the index along the dimension."""
    step = 1
    for position, k in reversed(list(enumerate(members))):
        extent = affine.constant(tensor.shape[k]) or 1
        outer_is_one = all(affine.constant(tensor.shape[m]) == 1 for m in members[:position])
        index = affine.floor(whole, step)
        if extent == 1 and len(members) > 1:
            yield names[k], affine.ZERO
        else:
            yield names[k], index if outer_is_one else affine.mod(index, extent)
        step *= extent


def blocked(rank: int, axis: int, block: int, shape: tuple[int, ...]) -> Layout:
    """Return the layout that keeps the order of dimensions but moves `block` elements of `axis` innermost (NCHW16c)."""
    names = tuple(f"a{k}" for k in range(rank))
    outer = tuple(affine.floor(Name(n), block) if k == axis else Name(n) for k, n in enumerate(names))
    extents = tuple(-(-s // block) if k == axis else s for k, s in enumerate(shape))
    return Layout(names, (*outer, affine.mod(Name(names[axis]), block)), (*extents, block))


def in_blocks(tensor: Tensor, axis: int, block: int) -> Layout | None:
    """Return the layout of the caller's array with blocks of `axis` innermost, or None when the axis does not run on
    along its dimension."""
    shape = [affine.constant(s) for s in tensor.shape]
    dims = tensor.groups
    dim = next(k for k, members in enumerate(dims) if axis in members)
    inner = [shape[m] for m in dims[dim] if m > axis]
    outer = [shape[m] for m in dims[dim] if m < axis]
    extent = shape[axis]
    if any(s is None for s in shape) or any(s != 1 for s in inner) or extent is None or (extent % block and any(s != 1 for s in outer)):
        return None
    visible = tuple(math.prod(shape[m] or 0 for m in members) for members in dims)
    return blocked(len(dims), dim, block, visible)


def row_major(tensor: Tensor) -> Layout:
    """Return the layout that says in so many words what no layout says: the caller's array in row-major order."""
    sizes = [affine.constant(s) or 0 for s in tensor.shape]
    visible = tuple(math.prod(sizes[m] for m in members) for members in tensor.groups)
    names = tuple(f"a{k}" for k in range(len(visible)))
    return Layout(names, tuple(Name(n) for n in names), visible)


def is_row_major(program: Program, tensor: str, storage: Storage | None) -> bool:
    """Tell whether `storage` of a tensor is row-major order, be it said by no storage or in so many words."""
    return storage is None or storage == to_storage(program, tensor, row_major(tensor_table(program)[tensor]))
