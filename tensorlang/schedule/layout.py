"""Storage layouts: where the element of a tensor lies in memory.

    layout   (n, c, h, w) -> [n, c // 16, h + 1, w + 1, c % 16]   in a row-major block of shape [N, C/16, H+2, W+2, 16]

A layout is an injective quasi-affine map from the elements of a tensor to the cells of a dense block. Cells that no element maps to hold
`fill`. The identity (`None` where a layout is optional) is row-major order.

That a layout is one is proven wherever it is given to a tensor (`fault`): of values of a graph by the graph's verifier, of parameters and
results of a kernel when its schedule is planned. Whoever reads or writes the tensor then finds every element, whatever part of it the
layout was made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from polyhedral.expr import Expr, Int
from polyhedral.storage import Collision, Outside, laid_out
from polyhedral.verdict import Proven, Unknown


@dataclass(frozen=True, slots=True)
class Layout:
    """`dims[k]`, over the names in `axes`, is the index along storage dimension k; it lies in [0, shape[k])."""

    axes: tuple[str, ...]
    dims: tuple[Expr, ...]
    shape: tuple[int, ...]


def fault(layout: Layout, shape: tuple[int, ...]) -> str | None:
    """Return why `layout` does not keep the elements of an array of `shape`, or None when it is proven to."""
    if len(layout.axes) != len(shape) or len(layout.dims) != len(layout.shape):
        return f"a layout of {len(layout.axes)} axes in {len(layout.shape)} dimensions is given to an array of {len(shape)}"
    return fault_of((), layout.axes, tuple(map(Int, shape)), layout.dims, tuple(map(Int, layout.shape)))


def fault_of(
    sizes: tuple[str, ...], axes: tuple[str, ...], extents: tuple[Expr, ...], dims: tuple[Expr, ...], block: tuple[Expr, ...]
) -> str | None:
    """Return why `dims`, over `axes`, do not give each element of the box of `extents` a cell of its own in a block of the shape `block`,
    whatever the sizes; None when they are proven to."""
    match laid_out(sizes, axes, extents, dims, block):
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
