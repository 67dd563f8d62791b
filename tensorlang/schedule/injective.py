"""Whether a layout keeps every element of the tensor that it is given to: a cell for each, of its own, within the block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from polyhedral import affine
from polyhedral.expr import TRUE, Cond, Expr
from polyhedral.storage import Collision, Outside, laid_out
from polyhedral.verdict import Proven, Unknown
from tensorlang.schedule.layout import Layout


def fault(layout: Layout, shape: tuple[int | Expr, ...], context: Cond = TRUE) -> str | None:
    """Return why `layout` does not keep the elements of an array of `shape`, whatever those of its sizes are of which `context` holds; None
    when it is proven to."""
    if len(layout.axes) != len(shape) or len(layout.dims) != len(layout.shape):
        return f"a layout of {len(layout.axes)} axes in {len(layout.shape)} dimensions is given to an array of {len(shape)}"
    extents, block = (tuple(map(affine.to_expr, numbers)) for numbers in (shape, layout.shape))
    return fault_of(sizes_in(layout, shape), layout.axes, extents, layout.dims, block, context)


def sizes_in(layout: Layout, shape: tuple[int | Expr, ...]) -> tuple[str, ...]:
    """Return the sizes that are open of an array in a layout."""
    return tuple(dict.fromkeys(name for n in (*shape, *layout.shape) for name in sorted(affine.name_set(affine.to_expr(n)))))


def fault_of(
    sizes: tuple[str, ...],
    axes: tuple[str, ...],
    extents: tuple[Expr, ...],
    dims: tuple[Expr, ...],
    block: tuple[Expr, ...],
    context: Cond = TRUE,
) -> str | None:
    """Return why `dims`, over `axes`, do not give each element of the box of `extents` a cell of its own in a block of the shape `block`,
    whatever the sizes of which `context` holds; None when they are proven to."""
    match laid_out(sizes, axes, extents, dims, block, context):
        case Proven():
            return None
        case Collision(params, first, second):
            return f"the elements {list(first)} and {list(second)} share one cell" + "".join(_where(params))
        case Outside(params, element):
            return f"the element {list(element)} lies outside its block" + "".join(_where(params))
        case Unknown(reason):
            return f"it cannot be decided whether each element has a cell of its own: {reason}"
        case other:
            assert_never(other)


def _where(params: dict[str, int]) -> Iterator[str]:
    if params:
        yield " where " + ", ".join(f"{name} = {n}" for name, n in params.items())
