"""Sums of a step: of tensors that need each other step by step, sums over the same range that read some of the same share their loop.

    num[m] = sum(i, i > m) f[m, i] * b[m, i - 1]              together num, den -> i
    den[m] = sum(i, i > m) f[m, i] * f[m, i]           →      split num.i by 32 -> i_o, i_v
    k[m]   = num[m] / den[m]                                  order num.i_o, num.i_v
    f[m + 1, i] = f[m, i] + k[m] * b[m, i - 1]                vectorize num.i_v

What both read is then loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.inner_loops import add_inner_loops, best_inner_loops
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.legality import in_legal_order, is_proven
from tensorlang.schedule.plan import Plan
from tensorlang.tensor.facts import binder_cond
from tensorlang.tensor.nodes import Definition, Reduce
from tensorlang.tensor.walk import reads, reduces, substitute

REGISTERS = 2
"""Of each accumulator: itself, and what is added to it."""


def step_sums(d: Deriver, plan: Plan, group: Sequence[Definition]) -> list[list[Definition]]:
    """Return those tensors of a group, each a sum in every step, that may add up their terms in one loop, in the order in which they are
    computed."""
    makes = {s.name: m for m in group for s in plan.stages.of(m)}
    nests = [n for place in plan.placed.places if (n := plan.placed.nests[place]).statement in makes]
    shared = set.intersection(*({*n.loops} for n in nests))
    steps = dict.fromkeys(makes[n.statement].tensors[0].name for n in nests)
    by_name = {m.tensors[0].name: m for m in group}
    sums = [(m, r) for name in steps if len((m := by_name[name]).axes) == len(shared) for r in _only_sum(m)]
    found: list[list[Definition]] = []
    while sums:
        (first, r), *others = sums
        alike = [m for m, other in others if _share(first, r, m, other)]
        members = [first, *alike]
        # None of them may need another in its step, nor what is made of that.
        members = members if alike and is_proven(in_legal_order(_together(d, members))) else [first]
        found += [members] if len(members) > 1 else []
        sums = [(m, s) for m, s in others if not any(m is x for x in members)]
    return found


def derive_step_sums(d: Deriver, members: Sequence[Definition]) -> None:
    """Add the directives for sums that share their loop."""
    first = members[0]
    share_loop(d, members)
    inner = best_inner_loops(d, first, ())
    room = d.machine.vector_registers // (REGISTERS * len(members))
    vectors = min(inner.vectors, 1 << max(0, room.bit_length() - 1))
    add_inner_loops(d, first, (), replace(inner, vectors=vectors))


def share_loop(d: Deriver, members: Sequence[Definition]) -> None:
    """Let sums add up their terms in one loop."""
    d.add(_together(d, members).schedule)


def _only_sum(m: Definition) -> Iterator[Reduce]:
    """Yield the reduction that is all of a definition but for what is made of its result, of one term after the other; nothing where there
    is none."""
    found = [r for p in m.pieces for r in reduces(p.value)]
    if len(m.tensors) == len(m.pieces) == len(found) == 1 and found[0].filter is None and len(found[0].binders) == 1:
        yield from found if found[0].reducer.kind is not None and len(found[0].body) == 1 else ()


def _share(first: Definition, r: Reduce, m: Definition, other: Reduce) -> bool:
    """Tell whether two sums have one range, step by step, and read an element in common."""
    (b,), (c,) = r.binders, other.binders
    to: Mapping[str, Affine] = {c.name: AffineName(b.name)} | {x: AffineName(a) for x, a in zip(m.axes, first.axes, strict=True)}
    same = affine.substitute_cond(binder_cond(other), to) == binder_cond(r)
    return same and not {*reads(substitute(other.body[0], to))}.isdisjoint(reads(r.body[0]))


def _together(d: Deriver, members: Sequence[Definition]) -> Deriver:
    (r,) = _only_sum(members[0])
    return replace(d, schedule=d.schedule.together(*(m.tensors[0].name for m in members), into=(r.binders[0].name,)))
