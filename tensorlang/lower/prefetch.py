"""Ask for what a loop reads some iterations later, a cache line at a time.

    prefetch b at k by 4                for k in 0 .. K {
    an iteration of k reads      →          for line in 0 .. 2 unroll 2 { prefetch b[k + 4, 32*jo + 16*line] locality 3 }
    b[k, 32*jo .. 32*jo + 32]               …

The last iterations ask for what lies outside the box, or outside the tensor: that never faults and is never read.
"""

from __future__ import annotations

from collections.abc import Callable

from codegen.loops import nodes as loops
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Mod, Name
from polyhedral.region import Footprint
from tensorlang.diagnostics import error
from tensorlang.lower.index import Names as IndexOf
from tensorlang.lower.index import to_index
from tensorlang.lower.memory import Home
from tensorlang.schedule.plan import Prefetch
from tensorlang.tensor import affine

LINE_BYTES = 64
MOST_UNROLLED = 16


def to_prefetches(prefetch: Prefetch, home: Home, box: Footprint, names: IndexOf, fresh: Callable[[str], str]) -> list[loops.Stmt]:
    """Return statements that ask for the lines of `box` as it will be `prefetch.distance` iterations later."""
    if any(buffer.space == "registers" for buffer in home.buffers):
        raise error("S0217", f"nothing to prefetch: `{home.tensor}` is in registers", prefetch.span)
    later = {prefetch.loop: affine.add(prefetch.loop, prefetch.distance)}
    out: list[loops.Stmt] = []
    for number, buffer in enumerate(home.buffers):
        steps = _steps(home, number)
        parts: dict[str, loops.Index] = {}
        around: list[tuple[str, loops.Index, int | None]] = []
        for axis, origin, extent in zip(home.axes, box.origin, box.extent, strict=True):
            step = steps.get(axis, 1)
            count = affine.ceil_div(affine.to_expr(extent), step)
            first = to_index(affine.substitute(origin, later), names)
            known = affine.constant(count)
            parts[axis] = first
            if known is None or known > 1:
                var = fresh("line")
                parts[axis] = loops.Add(first, loops.Mul(loops.Var(var), loops.Int(step)))
                around.append((var, to_index(count, names), known))
        element = lambda n, parts=parts: parts[n] if n in parts else names(n)  # noqa: E731
        out.append(_nested(loops.Prefetch(buffer.name, tuple(to_index(d, element) for d in home.dims)), around))
    return out


def _nested(stmt: loops.Stmt, around: list[tuple[str, loops.Index, int | None]]) -> loops.Stmt:
    """Return `stmt` in the loops `around`; a few iterations are unrolled."""
    budget = MOST_UNROLLED
    for var, count, known in reversed(around):
        if known is not None and known <= budget:
            stmt, budget = loops.For(var, loops.Int(0), count, (stmt,), "unroll", known), budget // known
        else:
            stmt, budget = loops.For(var, loops.Int(0), count, (stmt,)), 0
    return stmt


def _steps(home: Home, number: int) -> dict[str, int]:
    """Return how many elements of each axis, from the innermost dimension outwards, lie in one cache line.

    [j // 16, k // 2, j % 16, k % 2] of a type of two bytes  ->  k: 2, j: 16"""
    buffer = home.buffers[number]
    left = max(1, LINE_BYTES // buffer.dtype.size_bytes)
    steps: dict[str, int] = {}
    for dim, extent in reversed(list(zip(home.dims, buffer.shape, strict=False))):
        axis = _axis_along(dim, home.axes)
        if axis is None or axis in steps or left == 1:
            break
        count = extent.value if isinstance(extent, loops.Int) else left
        steps[axis] = max(1, min(count, left))
        left //= steps[axis]
    return steps


def _axis_along(dim: Affine, axes: tuple[str, ...]) -> str | None:
    """Return the axis that `dim` counts one by one, be it from an origin or modulo a number."""
    inner = dim.value if isinstance(dim, Mod) else dim
    found, _ = affine.terms(inner)
    own = [(atom, factor) for atom, factor in found.items() if set(affine.names(atom)) & set(axes)]
    match own:
        case [(Name(axis), 1)]:
            return axis
        case _:
            return None
