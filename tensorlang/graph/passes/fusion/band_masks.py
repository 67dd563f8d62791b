"""Constants that only say which of two axes is how far ahead become conditions on the axes: masks of causal attention and of windows.

    before   s[i, j] = p[i, j] + mask[i, j]            mask: 0 where j <= i, else -3.4e38, as a constant
    after    s[i, j] = p[i, j] + (if j <= i then 0 else -3.4e38)

Every element of the constant is compared, so the kernel computes the same; it reads less, and what follows from the condition can be
proven, such as which keys no query of a block sees. Arrays of one value alone are left to `inline_constants`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from codegen.dtypes import bool_, compute_dtype
from polyhedral import affine
from polyhedral.expr import Cond
from polyhedral.expr import Expr as Affine
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.tensor.nodes import Const, Dynamic, Expr, Holds, Read, Select, Tensor
from tensorlang.tensor.walk import map_values, reads, shape_of, substitute_reads

Array = np.ndarray[Any, Any]


def with_conditions(graph: Graph, kernel: Kernel) -> Kernel:
    """Return the kernel without the constant inputs that are bands at all places where it reads them."""
    program = kernel.program
    found: dict[str, dict[Read, Expr]] = {}
    for param, value in zip(program.params, kernel.inputs, strict=True):
        if value not in graph.constants or len(param.shape) < 2 or not all(affine.constant(e) for e in param.shape):
            continue
        array = np.asarray(graph.constants[value]).reshape(shape_of(param, {}))
        asked = {r for d in program.definitions for p in d.pieces for r in reads(p.value) if r.tensor == param.name}
        made = {r: e for r in asked if (e := _condition(param, array, r)) is not None}
        if asked and len(made) == len(asked):
            found[param.name] = made
    if not found:
        return kernel
    known = {r: e for each in found.values() for r, e in each.items()}
    changed = map_values(program, lambda e: substitute_reads(e, lambda r: known.get(r, r)))
    kept = [k for k, param in enumerate(program.params) if param.name not in found]
    params, inputs = tuple(program.params[k] for k in kept), tuple(kernel.inputs[k] for k in kept)
    return replace(kernel, program=replace(changed, params=params), inputs=inputs)


def _condition(param: Tensor, array: Array, read: Read) -> Expr | None:
    """Return what `read` yields as a condition on its indices, where the constant is a band along two of them."""
    slots = [slot for slot in read.index if not isinstance(slot, Dynamic)]
    if len(slots) < len(read.index):
        return None
    along: list[Affine] = []
    for axis in reversed(range(array.ndim)):
        at = affine.constant(slots[axis])
        first = array.take([at or 0], axis)
        if at is not None or bool(np.all(array == first)):
            array = first
        else:
            along.insert(0, slots[axis])
    if len(along) != 2:
        return None
    plane = array.reshape([n for n in array.shape if n > 1])
    if plane.ndim != 2:
        return None
    values = np.unique(plane)
    if len(values) != 2 or np.isnan(values).any():
        return None
    for inside, outside in ((values[1], values[0]), (values[0], values[1])):
        cond = _band(plane == inside, *along)
        if cond is not None:
            dtype = compute_dtype(param.dtype)
            chosen = [Const(v.item() if dtype != bool_ else bool(v), dtype) for v in (inside, outside)]
            holds = Holds(cond) if dtype != bool_ or inside else Holds(affine.negate(cond))
            return holds if dtype == bool_ else Select(holds, chosen[0], chosen[1])
    return None


def _band(inside: Array, row: Affine, column: Affine) -> Cond | None:
    """Return `low <= column - row <= high`, as far as it says something, where that is exactly `inside`."""
    ahead = np.arange(inside.shape[1])[None, :] - np.arange(inside.shape[0])[:, None]
    low, high = int(ahead[inside].min()), int(ahead[inside].max())
    if not np.array_equal(inside, (ahead >= low) & (ahead <= high)):
        return None
    above = [affine.compare("<=", column, affine.add(row, high))] if high < ahead.max() else []
    below = [affine.compare(">=", column, affine.add(row, low))] if low > ahead.min() else []
    return affine.conj(*above, *below)
