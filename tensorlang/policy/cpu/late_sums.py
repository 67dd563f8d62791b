"""Sums of recurrences that read what was computed just now: such terms are added last, the others while these are waited for.

    y[i] = x[i] + sum(k in 0..8) w[k] * y[i - 1 - k]          →          reverse y.k;  unroll y.k

Lanes that read elements of several iterations before wait until all of these have reached the cache, and for lanes to be added up. Terms
that are written out read them where they are, in registers (`codegen.loops.carried`), and an iteration waits for a single one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2, prod

from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import LATENCY_CYCLES, PARTS_CYCLES, SHUFFLE_CYCLES
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.wavefronts import waiting_cycles
from tensorlang.policy.deriver import Deriver
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import step_inside
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Binder, Definition, Dynamic, Read, Reduce
from tensorlang.tensor.scop import in_order as keeps_order
from tensorlang.tensor.walk import reads, reduces

MOST_TERMS = 48
"""That are written out, of all sums of a definition together: the code of a hundred instructions."""


@dataclass(frozen=True, slots=True)
class LateSums:
    """`inner`: loops of which none is lanes, the terms of sums written out; `reversed`: binders that run downwards."""

    inner: InnerLoops
    reversed: tuple[str, ...]


def late_sums(d: Deriver, definition: Definition, axis: str, inner: InnerLoops) -> LateSums | None:
    """Return how the sums of a recurrence run whose innermost loop, the one over `axis`, carries dependences; None where they do not read
    what it computed just now, or take fewer cycles as `inner` says."""
    sums = list(dict.fromkeys(r for p in definition.pieces for r in reduces(p.value)))
    found = {r: near for r in sums if (near := _nearest(d, definition, axis, r)) is not None}
    terms = sum(prod(b.extent or MOST_TERMS + 1 for b in r.binders) for r in sums)
    if not found or inner.rows or {*inner.vector} & {*definition.axes} or terms > MOST_TERMS:
        return None
    waiting = waiting_cycles([definition])
    lanes = d.lanes_of(definition) * inner.vectors
    added = PARTS_CYCLES + log2(lanes) * (SHUFFLE_CYCLES + LATENCY_CYCLES) if inner.vector else (terms - 1) * LATENCY_CYCLES
    apart = min(near.steps for near in found.values())
    written = InnerLoops(written=True)
    cycles = max(cycles_of(d, definition, written), waiting / apart)
    if cycles >= max(inner.cycles, (waiting + added) / apart):
        return None
    turned = dict.fromkeys(r.binders[0].name for r, near in found.items() if not near.is_last)
    return LateSums(replace(written, cycles=cycles), tuple(turned))


@dataclass(frozen=True, slots=True)
class _Nearest:
    """How many iterations before, at least, the terms of a sum were computed, and whether that is of the last of them."""

    steps: int
    is_last: bool


def _nearest(d: Deriver, definition: Definition, axis: str, reduce: Reduce) -> _Nearest | None:
    """Return which term of a sum of one binder reads the element that was computed last; None where no one term does, or terms stay in
    their order."""
    own = [r for r in reads(reduce) if r.tensor in {t.name for t in definition.tensors}]
    if len(reduce.binders) != 1 or reduce.reducer.kind is None or keeps_order(reduce.reducer, d.program.mode) or not own:
        return None
    backwards = any(x.name == "reverse" and syntax.Id(full(definition.tensors[0].name, axis)) in x.operands for x in d.since.directives)
    found = {_of_read(definition, axis, reduce.binders[0], r, backwards=backwards) for r in own}
    known = [near for near in found if near is not None]
    if len(known) < len(found) or len({near.is_last for near in known}) > 1:
        return None
    return min(known, key=lambda near: near.steps)


def _of_read(definition: Definition, axis: str, binder: Binder, read: Read, *, backwards: bool) -> _Nearest | None:
    """Return the same of one element that the terms read."""
    slots = dict(zip(definition.axes, read.index, strict=True))
    slot = slots.pop(axis)
    if isinstance(slot, Dynamic) or any(at != AffineName(a) for a, at in slots.items()):
        return None
    step = step_inside(slot, binder.name)
    back = affine.sub(slot, axis) if backwards else affine.sub(axis, slot)
    last = affine.sub(binder.hi, 1)
    ends = [affine.constant(affine.substitute(back, {binder.name: end})) for end in (binder.lo, last)]
    if not step or ends[0] is None or ends[1] is None:
        return None
    return _Nearest(max(1, min(ends[0], ends[1])), ends[1] < ends[0])
