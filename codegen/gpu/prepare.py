"""From loops bound to blocks and threads to what each thread runs, short of barriers: tiles given to warps, reductions as trees, copies
shared out, buffers in registers or shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from codegen.errors import Unfit
from codegen.gpu.boxes import use_bulk_copies
from codegen.gpu.cooperative_copies import cooperate
from codegen.gpu.fragments import fragments
from codegen.gpu.geometry import WARP, check_places, geometry
from codegen.gpu.launches import gather_launches, is_small, is_steps, map_blocks
from codegen.gpu.private import place_buffers
from codegen.gpu.reduce import pad_to_powers_of_two, trees
from codegen.loops.indices import Range
from codegen.loops.nodes import Alloc, For, Function, If, Stmt
from codegen.loops.simplify import simplify
from codegen.loops.walk import free_vars, fresh_for, walk


def prepare(function: Function, warp: int = WARP) -> Function:
    """Return `function` with every loop of a block given to threads, so many of which are a warp, and every buffer of a block in its place.

    Raises Unfit for places that exclude each other, and for reductions and buffers that no pass knows how to spread."""
    function = _in_device_memory(gather_launches(_in_device_memory(function)), gathered=True)
    fresh = fresh_for(function)
    device = {p.name: p for p in function.params} | {s.buffer.name: s.buffer for s in function.body if isinstance(s, Alloc)}

    ranges = _ranges(function)

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        body = pad_to_powers_of_two(fragments(body, device, fresh), warp)
        threads = geometry(body, warp)
        check_places(body, threads)
        body = trees(body, threads, device, fresh)
        return cooperate(use_bulk_copies(place_buffers(body, threads), device, ranges), threads, device, fresh)

    return simplify(map_blocks(function, block))


def _in_device_memory(function: Function, *, gathered: bool = False) -> Function:
    """Return `function` with buffers of serial loops that are large, or whose extents are not constant, or, once launches are `gathered`,
    that several of a step share, allocated before everything else: no memory of a block can be theirs. What they hold does not outlast an
    iteration, so one for all iterations will do.

    Raises Unfit for what is allocated in a step and changes its size from step to step."""
    sizes, moved = {*function.sizes}, list[Stmt]()

    def without(body: tuple[Stmt, ...], *, stepped: bool = False) -> tuple[Stmt, ...]:
        return tuple(kept for s in body for kept in left(s, stepped=stepped))

    def left(s: Stmt, *, stepped: bool = False) -> tuple[Stmt, ...]:
        match s:
            case Alloc(buffer) if ((gathered and stepped) or not is_small(buffer)) and free_vars(*buffer.shape) <= sizes:
                moved.append(s)
                return ()
            case Alloc(buffer) if stepped and not is_small(buffer):
                raise Unfit(f"not supported yet: `{buffer.name}`, whose size changes from one launch to the next", buffer.name)
            case For(kind="serial"):
                return (replace(s, body=without(s.body, stepped=is_steps(s))),)
            case If():
                return (replace(s, then=without(s.then), orelse=without(s.orelse)),)
            case _:
                return (s,)

    body = tuple(kept for s in function.body for kept in ((s,) if isinstance(s, Alloc) else left(s)))
    return replace(function, body=(*moved, *body)) if moved else function


def _ranges(function: Function) -> dict[str, Range]:
    """Return what the variable of each loop lies in, where that is constant."""
    found: dict[str, Range] = {}
    for n in walk(*function.body):
        if not isinstance(n, For):
            continue
        low, high = (n.values.start, n.values.stop - 1) if n.values is not None else (None, None)
        before = found.get(n.var, (low, high))
        found[n.var] = (_both(min, low, before[0]), _both(max, high, before[1]))
    return found


def _both(of: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else of(one, other)
