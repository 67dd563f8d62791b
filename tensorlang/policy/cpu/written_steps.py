"""Written steps: of tensors that need each other step by step, steps of a few elements are written out, one element after the other.

    a[t, i]     = if i == 0 then x[t, 0] + dt * x[t, 1] else x[t, 1]              split a.i by 2 -> i_o, i_t
    x[t + 1, i] = a[t, i] + g[i] * (z[t] - a[t, 0])                        →      unroll a.i_t

Each element is then a register of its own, of which the next step takes any, and none asks which one it is. Lanes leave most of a register
empty, and what one of them takes of another waits for its way there: they run where elements one by one are more work than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from math import ceil, log2, prod

from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import CALL_OPERATIONS, LATENCY_CYCLES, SHUFFLE_CYCLES, store_cycles
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.nests import MOST_WRITTEN, loops_of, order_of_member, written_order
from tensorlang.policy.cpu.values import instructions
from tensorlang.policy.cpu.wavefronts import operation_cycles
from tensorlang.policy.deriver import Deriver, is_local
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Read, Reduce, Slot
from tensorlang.tensor.walk import children, is_recurrence, nodes, reduces

MOST_TERMS = 128
"""Of all that is computed in a step, each term of a sum by itself: code that processors keep decoded."""
CROSSINGS = 2
"""Permutations from a lane of one vector to those of another: to take it out, and to put it into each."""
MOVED_CYCLES = 16.0
"""Of lanes that are loaded a few places beside where they were stored, until the stores are in the cache: no one of them has all lanes."""


def has_written_steps(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Tell whether the steps of a group are of few elements, which take fewer cycles one by one than lanes do."""
    vectors, steps, one_by_one, in_lanes, terms, several = dict[str, tuple[str, ...]](), dict[str, str](), 0.0, 0.0, 0, False
    if not is_recurrence(group) or not all(map(_has_few_elements, group)):
        return False
    for m in group:
        loops = loops_of(plan, m, group)
        written = written_order(m, loops) if loops is not None else None
        if loops is None or written is None or len(loops.of_step()) != len(m.axes) - 1 or terms > MOST_TERMS:
            return False
        chosen, points = order_of_member(d, plan, m, group, loops), written.inner.points()
        (steps[m.tensors[0].name],) = {*m.axes} - {*loops.of_step()}
        vectors[m.tensors[0].name] = chosen.inner.vector if chosen is not None else ()
        several |= points > 1
        terms += points * max(map(_terms, _sums(m)), default=1)
        one_by_one += points * cycles_of(d, m, written.inner) - (store_cycles(points) if is_local(d, m) else 0.0)  # registers hold these
        in_lanes += points * (chosen.inner.cycles if chosen is not None else cycles_of(d, m, InnerLoops()))
    if not several or terms > MOST_TERMS:
        return False
    apart = _waiting(d, group, steps, dict.fromkeys(vectors, ()))
    # What a step takes comes when the one before it ends: no work of others fills the time that it waits.
    return one_by_one + apart < in_lanes + _waiting(d, group, steps, vectors)


def is_written_out(members: Sequence[Definition]) -> bool:
    """Tell whether the steps of some tensors are few elements, of no more terms in all than are written out."""
    return all(map(_has_few_elements, members)) and sum(map(_terms_of_step, members)) <= MOST_TERMS


def _terms_of_step(m: Definition) -> int:
    """Return how many terms are computed in a step of a tensor."""
    return _elements_of_step(m) * max(map(_terms, _sums(m)), default=1)


def _has_few_elements(m: Definition) -> bool:
    return _elements_of_step(m) <= MOST_WRITTEN


def _elements_of_step(m: Definition) -> int:
    """Return how many elements a tensor has beside those along its longest axis."""
    sizes = extents(m)
    *others, _ = sorted((1, *(sizes[a] or OPEN_EXTENT for a in m.axes)))
    return prod(others)


def is_quick(definition: Definition, step: str) -> bool:
    """Tell whether what is made of each step is made of few terms, without a function or a division: lanes of steps would be no sooner."""
    sizes = extents(definition)
    points = prod(sizes[a] or MOST_TERMS for a in definition.axes if a != step)
    return points * max(map(_terms, _sums(definition)), default=1) < MOST_TERMS and all(
        instructions(e) < CALL_OPERATIONS for p in definition.pieces for e in nodes(p.value)
    )


def _sums(definition: Definition) -> Iterator[Reduce]:
    return (r for p in definition.pieces for r in reduces(p.value))


def _terms(reduce: Reduce) -> int:
    """Return how many terms a sum has; more than are written out where that is no number."""
    found = [affine.difference(b.hi, b.lo) for b in reduce.binders]
    return prod(MOST_TERMS + 1 if n is None else n for n in found)


def _lies_along(slot: Slot, axes: Set[AffineName]) -> bool:
    """Tell whether an index differs from lane to lane."""
    return not isinstance(slot, Dynamic) and not affine.name_set(slot).isdisjoint(a.name for a in axes)


def _waiting(d: Deriver, group: Sequence[Definition], steps: Mapping[str, str], vectors: Mapping[str, tuple[str, ...]]) -> float:
    """Return the cycles from a step of tensors until the next, where each has its axis of `steps`, and lanes along these axes: what one
    takes of other lanes than its own has to get there."""
    made, known = {m.tensors[0].name: m for m in group}, dict[str, float]()

    def until(m: Definition) -> float:
        name = m.tensors[0].name
        if name not in known:
            known[name] = 0.0  # What a step reads of itself.
            known[name] = max(path(p.value, m) or 0.0 for p in m.pieces)
        return known[name]

    def path(e: Expr, m: Definition) -> float | None:
        if isinstance(e, Read):
            if e.tensor not in made:
                return None
            x, own = made[e.tensor], {AffineName(a) for a in vectors[m.tensors[0].name]}
            slots = dict(zip(x.axes, e.index, strict=True))
            others = [slot for a in vectors[e.tensor] if a in slots and (slot := slots[a]) not in own]
            crossing = MOVED_CYCLES if any(_lies_along(s, own) for s in others) else CROSSINGS * SHUFFLE_CYCLES if others else 0.0
            there = until(x) if slots[steps[e.tensor]] == AffineName(steps[m.tensors[0].name]) else 0.0
            return there + crossing
        below = [found for c in children(e) if (found := path(c, m)) is not None]
        if not below or not isinstance(e, Reduce):
            return max(below) + operation_cycles(e, m.tensors[0].dtype.is_float) if below else None
        if {b.name for b in e.binders}.isdisjoint(vectors[m.tensors[0].name]):
            return max(below) + _terms(e) * LATENCY_CYCLES
        lanes = d.lanes_of(m)
        return max(below) + ceil(_terms(e) / lanes) * LATENCY_CYCLES + log2(lanes) * (SHUFFLE_CYCLES + LATENCY_CYCLES)

    return max(map(until, group))
