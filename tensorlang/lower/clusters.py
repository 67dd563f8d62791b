"""Blocks of a cluster that share boxes: whether all of them ask for the same ones, at the same times.

    for j in 0 .. 8 block.x 8 (cluster 2) { for k { boxes full[k] a_s[…] = a[64*i, 32*k] … cluster 2; … } }

A box is shared by blocks j and j + 1 where what it is copied from, and when, does not depend on which of them asks; and what all of them
wait for, they come to alike. Of two blocks for which that is not so the first is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.gpu.launches import BlockCode, BlockLoop, launches
from codegen.loops import nodes as loops
from codegen.loops.walk import walk
from polyhedral import affine
from polyhedral import expr as sets
from polyhedral.sets import implies
from polyhedral.verdict import Proven, Refuted
from tensorlang.lower.sets import to_cond, to_expr, within


@dataclass(frozen=True, slots=True)
class Differing:
    """Blocks of a cluster do other things; `names` are buffers that are to blame."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: the loops around it, and when it is run; None: that is no quasi-affine condition."""

    variables: tuple[str, ...] = ()
    when: sets.Cond | None = sets.TRUE


def differing(function: loops.Function) -> Differing | None:
    """Return how blocks of a cluster differ in what they share, or None when they do not."""
    for block in launches(function).blocks:
        along = block.cluster_loop
        if along is not None and _shares(block.body):
            found = next(_differing(block, along, function.sizes), None)
            if found is not None:
                return found
    return None


def _shares(body: tuple[loops.Stmt, ...]) -> bool:
    return any(b.blocks > 1 for n in walk(*body) if isinstance(n, loops.Boxes) for b in n.boxes)


def _differing(block: BlockCode, along: BlockLoop, sizes: tuple[str, ...]) -> Iterator[Differing]:
    counted = {n.barriers for n in walk(*block.body) if isinstance(n, loops.Boxes) and any(b.blocks > 1 for b in n.boxes)}
    for stmt, place in _places(block.body, _Place()):
        match stmt:
            case loops.Boxes(barriers, group, boxes) if barriers in counted:
                names = tuple(b.target.buffer for b in boxes if b.blocks > 1)
                yield from _each(block, along, sizes, place, (group,), f"ask for boxes of `{names[0]}` at other times", names)
                for box in (b for b in boxes if b.blocks > 1):
                    what = f"copy other parts of `{box.source.buffer}`"
                    yield from _each(block, along, sizes, place, box.source.index, what, (box.target.buffer,))
            case loops.WaitBoxes(barriers, group) if barriers in counted:
                yield from _each(block, along, sizes, place, (group,), "wait for boxes at other times", (barriers,))
            case loops.Release(barriers, group) | loops.Reclaim(barriers, group):
                yield from _each(block, along, sizes, place, (group,), "give boxes back at other times", (barriers,))
            case loops.Barrier("cluster"):
                yield from _each(block, along, sizes, place, (), "wait for each other at other times", ())
            case _:
                pass


def _each(
    block: BlockCode,
    along: BlockLoop,
    sizes: tuple[str, ...],
    place: _Place,
    values: tuple[loops.Index, ...],
    what: str,
    names: tuple[str, ...],
) -> Iterator[Differing]:
    """Yield that two blocks of a cluster do not come to a place alike, or with other values."""
    known = [e for e in map(to_expr, values) if e is not None]
    if place.when is None or len(known) < len(values):
        yield Differing(f"not supported yet: it takes more than quasi-affine expressions to tell whether blocks of a cluster {what}", names)
        return
    other = f"{along.var}'"
    to_other = {along.var: sets.Name(other)}
    grid = [within(loop.var, loop.lo, loop.hi) for loop in block.blocks]
    here = affine.conj(*(c for conds in grid for c in conds), place.when)
    low = to_expr(along.lo) or sets.Int(0)
    one, two = (affine.floor(affine.sub(sets.Name(name), low), along.cluster) for name in (along.var, other))
    together = affine.conj(here, *within(other, along.lo, along.hi), sets.Compare("==", one, two))
    same = [sets.Compare("==", e, affine.substitute(e, to_other)) for e in known]
    claim = affine.conj(affine.substitute_cond(here, to_other), *same)
    names_ = (*(loop.var for loop in block.blocks), other, *place.variables)
    verdict = implies(sizes, names_, together, claim)
    match verdict:
        case Proven():
            return
        case Refuted(point):
            yield Differing(f"blocks {point[along.var]} and {point[other]} along `{along.var}` are one cluster, and {what}", names)
        case _:
            yield Differing(f"not supported yet: it is too much to prove that blocks of a cluster do not {what}", names)


def _places(body: tuple[loops.Stmt, ...], place: _Place) -> Iterator[tuple[loops.Stmt, _Place]]:
    for s in body:
        yield s, place
        match s:
            case loops.For(var, lo, hi, inner):
                found = within(var, lo, hi)
                when = None if place.when is None or len(found) < 2 else affine.conj(place.when, *found)
                yield from _places(inner, _Place((*place.variables, var), when))
            case loops.If(cond, then, orelse):
                known = to_cond(cond)
                for part, here in ((then, known), (orelse, None if known is None else sets.Not(known))):
                    when = None if here is None or place.when is None else affine.conj(place.when, here)
                    yield from _places(part, _Place(place.variables, when))
            case loops.Producer(inside):
                yield from _places(inside, place)
            case _:
                pass
