"""Ask for what a loop reads some iterations later, a cache line at a time.

    prefetch b at k by 4                for k in 0 .. K {
    an iteration of k reads      →          for line in 0 .. 2 unroll 2 { prefetch b[k + 4, 32*jo + 16*line] locality 3 }
    b[k, 32*jo .. 32*jo + 32]               …

A share of what an outer loop reads is a stretch of the box's longest axis, as many steps of which as make one for each iteration; where
there are more iterations than that, every so many of them ask:

    prefetch b at jo by 1 in k          for io in 0 .. I { for k in 0 .. K {
    jo reads b[0 .. K, jo]         →        if k % 8 == 0 and K*io + k < 8*K { prefetch b[(K*io + k) // 8, jo + 1] locality 3 }

Where it is only known at run time how often one of the outer loops runs, its first iteration asks for all; where it is only known at run
time how long the box is, too, each iteration of the innermost such loop asks for one step of it. The last iterations ask for what
lies outside the box, or outside the tensor: that never faults and is never read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen.loops import nodes as loops
from polyhedral import affine
from polyhedral.expr import TRUE, Cond, Mod, Name
from polyhedral.expr import Expr as Affine
from polyhedral.region import Footprint
from tensorlang.diagnostics import error
from tensorlang.lower.index import Names as IndexOf
from tensorlang.lower.index import to_bool, to_index
from tensorlang.lower.memory import TensorMemory
from tensorlang.schedule.plan import Prefetch

LINE_BYTES = 64
MOST_UNROLLED = 16


def to_prefetches(
    prefetch: Prefetch, memory: TensorMemory, box: Footprint, names: IndexOf, fresh: Callable[[str], str]
) -> list[loops.Stmt]:
    """Return statements that ask for the lines of `box` as it will be `prefetch.distance` iterations later."""
    if any(buffer.space == "registers" for buffer in memory.buffers):
        raise error("S0217", f"nothing to prefetch: `{memory.tensor}` is in registers", prefetch.span)
    later = {prefetch.loop: affine.add(prefetch.loop, prefetch.distance)}
    out: list[loops.Stmt] = []
    for number, buffer in enumerate(memory.buffers):
        steps = _steps(memory, number)
        share = _share(prefetch, memory, box, steps)
        parts: dict[str, loops.Index] = {}
        around: list[tuple[str, loops.Index, int | None]] = []
        for axis, origin, extent in zip(memory.axes, box.origin, box.extent, strict=True):
            step = steps.get(axis, 1)
            count = affine.ceil_div(affine.to_expr(extent), step)
            first = to_index(affine.substitute(origin, later), names)
            known = affine.constant(count)
            parts[axis] = first
            if share is not None and axis == share.axis:
                parts[axis] = loops.Add(first, loops.Mul(to_index(share.first, names), loops.Int(step)))
                count, known = affine.to_expr(share.count), share.count
                first = parts[axis]
            if known is None or known > 1:
                var = fresh("line")
                parts[axis] = loops.Add(first, loops.Mul(loops.Var(var), loops.Int(step)))
                around.append((var, to_index(count, names), known))
        element = lambda n, parts=parts: parts[n] if n in parts else names(n)  # noqa: E731
        ask = _nested(loops.Prefetch(buffer.name, tuple(to_index(d, element) for d in memory.dims)), around)
        out.append(ask if share is None or share.when == TRUE else loops.If(to_bool(share.when, names), (ask,)))
    return out


@dataclass(frozen=True, slots=True)
class _Share:
    """`count` steps along `axis` of the box, from step `first` on, asked for in the iterations in which `when` holds."""

    axis: str
    first: Affine
    count: int
    when: Cond


def _share(prefetch: Prefetch, memory: TensorMemory, box: Footprint, steps: dict[str, int]) -> _Share | None:
    """Return what one iteration of the loops that share a box asks for; None where one loop asks for all."""
    if not prefetch.shares:
        return None
    counts: dict[str, int] = {}
    for axis, extent in zip(memory.axes, box.extent, strict=True):
        known = affine.constant(affine.ceil_div(affine.to_expr(extent), steps.get(axis, 1)))
        if known is None:
            return _open_share(prefetch, axis)
        counts[axis] = known
    axis = max(counts, key=lambda name: counts[name])
    total, turn = 1, affine.to_expr(0)
    begun = affine.conj(*(affine.compare("==", name, first) for name, first, count in prefetch.shares if not count))
    for name, first, count in (share for share in prefetch.shares if share[2]):
        turn = affine.add(affine.scale(count, turn), affine.sub(name, first))
        total *= count
    count = -(-counts[axis] // total)
    if count > 1:
        when = affine.compare("<", turn, -(-counts[axis] // count)) if total * count >= counts[axis] + count else TRUE
        return _Share(axis, affine.scale(count, turn), count, affine.conj(begun, when))
    every = 1 << (total // counts[axis]).bit_length() - 1
    rare = affine.compare("==", affine.mod(turn, every), 0) if every > 1 else TRUE
    soon = affine.compare("<", turn, every * counts[axis]) if total > every * counts[axis] else TRUE
    return _Share(axis, affine.floor(turn, every), 1, affine.conj(begun, rare, soon))


def _open_share(prefetch: Prefetch, axis: str) -> _Share:
    """Return what one iteration asks for of a box whose extent along `axis` is only known at run time: a step in each iteration of the
    innermost loop of which that is so as well (of the innermost of all, where there is none), while the other loops begin."""
    shares = prefetch.shares
    name, first, _ = next((share for share in reversed(shares) if not share[2]), shares[-1])
    begun = (affine.compare("==", other, start) for other, start, _ in shares if other != name)
    return _Share(axis, affine.sub(name, first), 1, affine.conj(*begun))


def _nested(stmt: loops.Stmt, around: list[tuple[str, loops.Index, int | None]]) -> loops.Stmt:
    """Return `stmt` in the loops `around`; a few iterations are unrolled."""
    budget = MOST_UNROLLED
    for var, count, known in reversed(around):
        if known is not None and known <= budget:
            stmt, budget = loops.For(var, loops.Int(0), count, (stmt,), "unroll", known), budget // known
        else:
            stmt, budget = loops.For(var, loops.Int(0), count, (stmt,)), 0
    return stmt


def _steps(memory: TensorMemory, number: int) -> dict[str, int]:
    """Return how many elements of each axis, from the innermost dimension outwards, lie in one cache line.

    [j // 16, k // 2, j % 16, k % 2] of a type of two bytes  ->  k: 2, j: 16"""
    buffer = memory.buffers[number]
    left = max(1, LINE_BYTES // buffer.dtype.size_bytes)
    steps: dict[str, int] = {}
    for dim, extent in reversed(list(zip(memory.dims, buffer.shape, strict=False))):
        axis = _axis_along(dim, memory.axes)
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
