"""Storage layouts: where the element of a tensor lies in memory.

    layout   (n, c, h, w) -> [n, c // 16, h + 1, w + 1, c % 16]   in a row-major block of shape [N, C/16, H+2, W+2, 16]

A layout is an injective quasi-affine map from the elements of a tensor to the cells of a dense block. Cells that no element maps to hold
`fill`. The identity (`None` where a layout is optional) is row-major order.

That a layout is one is proven wherever it is given to a tensor (`schedule.keeping`): of values of a graph by the graph's verifier, of
parameters and results of a kernel when its schedule is planned. Whoever reads or writes the tensor then finds every element, whatever part
of it the layout was made for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import Expr, Int, Name


def is_in_order(dims: Sequence[Expr], axes: Sequence[str]) -> bool:
    """Tell whether storage has an axis along each dimension, in their order, perhaps with room between rows: it may then begin at any
    element, as an array of the caller's does."""
    return len(dims) == len(axes) and all(index in (Name(axis), affine.ZERO) for index, axis in zip(dims, axes, strict=True))


@dataclass(frozen=True, slots=True)
class Layout:
    """`dims[k]`, over the names in `axes`, is the index along storage dimension k; it lies in [0, shape[k]). What is stored for a program
    of open sizes has expressions over these in its shape."""

    axes: tuple[str, ...]
    dims: tuple[Expr, ...]
    shape: tuple[int, ...]

    def at(self, sizes: Mapping[str, int]) -> Layout:
        """Return the layout where open sizes are `sizes`."""
        return replace(self, shape=tuple(int(affine.evaluate(affine.to_expr(n), sizes)) for n in self.shape))

    def where(self, sizes: Mapping[str, int]) -> Layout:
        """Return the layout where some of the open sizes are `sizes`, and others are still open."""
        known = {name: Int(n) for name, n in sizes.items()}
        made = (affine.substitute(affine.to_expr(n), known) for n in self.shape)
        return replace(self, shape=tuple(e if (n := affine.constant(e)) is None else n for e in made))  # type: ignore[misc]
