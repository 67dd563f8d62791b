"""What reads all that a recurrence makes, where it is made, so that nothing of the recurrence has to be kept for it.

sums and maps of all          h[i, j] = f(h[i - 1, j - 1], h[i - 1, j], h[i, j - 1])
elements                      best    = max(i, j) h[i, j]                               together h, best -> i, j

what needs single steps       u[t + 1, i] = f(u[t, i - 1], u[t, i + 1])
                              e[t]        = sum(i) u[t, i] * u[t, i]                    together u, e -> t
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import Expr, Name
from tensorlang.schedule.shape import is_product
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Read, Slot
from tensorlang.tensor.scop import in_order
from tensorlang.tensor.walk import components, definers, definition_reads, index_names, is_recurrence, reads, reduces


def accumulations(program: Program, group: Sequence[Definition]) -> tuple[Definition, ...]:
    """Return the sums over all elements of tensors of `group`, and the results that are maps of them, where these are a recurrence of which
    nobody else reads more than single elements: elements come in any order, and nothing that is made of the group later is needed."""
    made = {t.name for d in group for t in d.tensors}
    local = made - {*program.results}
    if not any(made & definition_reads(d) for d in group):
        return ()
    readers = [d for d in program.definitions if not any(d is m for m in group) and made & definition_reads(d)]
    after = _made_of(program, made)
    found = tuple(d for d in readers if _accumulates(program, d, local, made, after - made))
    others = [d for d in readers if not any(d is x for x in found)]
    few = all(not index_names(r) for d in others for p in d.pieces for r in reads(p.value) if r.tensor in made)
    return found if few else ()


@dataclass(frozen=True, slots=True)
class Follower:
    """A definition, or several that need each other, that need single steps of a recurrence: in step k of their loop `step`, as the
    recurrence goes, none that is more than `offset` after k."""

    members: tuple[Definition, ...]
    step: str
    offset: int

    def names(self) -> set[str]:
        """Return the tensors that it defines."""
        return {t.name for m in self.members for t in m.tensors}

    def reads(self) -> set[str]:
        """Return the tensors that it reads."""
        return {r for m in self.members for r in definition_reads(m)}

    def places(self) -> dict[str, int]:
        """Return the position of the axis of steps of each tensor that has one."""
        return {t.name: m.axes.index(self.step) for m in self.members if self.step in m.axes for t in m.tensors}


def followers(program: Program, group: Sequence[Definition], steps: Mapping[str, int]) -> tuple[Follower, ...]:
    """Return what can run in the loop over steps of a recurrence, in the order in which it is computed: what needs nothing of it that is
    made of all steps, recurrences that go the same way among it, and later ones of as many steps that these need beside it. `steps`: the
    position of the axis of steps, by the tensors of `group`."""
    own = {t.name for d in group for t in d.tensors}
    known, found, made = dict(steps), list[Follower](), _made_of(program, own)
    sign = -1 if is_backwards(group, steps) else 1
    beside = list[Definition]()
    every = components(program)
    start = next(k for k, part in enumerate(every) if any(x is group[0] for x in part))
    for k, part in ((k, part) for k, part in enumerate(every) if part is not every[start]):
        read = made.intersection(r for x in part for r in definition_reads(x)) - {t.name for x in part for t in x.tensors}
        if not read:
            beside += part if k > start and len(part) == len(part[0].tensors) == 1 and is_recurrence(part) else []
            continue
        follower = _follower(program, part, known, sign) if read <= known.keys() else None
        if follower is None or not _goes_along(follower, group, steps):
            continue
        for other in (b for b in beside if b.tensors[0].name in follower.reads() and b.tensors[0].name not in known):
            if (needed := _beside(other, follower, group, steps, sign)) is not None:
                axis, offset = needed
                found.append(Follower((other,), axis, 0))
                known[other.tensors[0].name] = other.axes.index(axis)
                made |= _made_of(program, {other.tensors[0].name})
                follower = replace(follower, offset=max(follower.offset, offset))
        found.append(follower)
        known |= follower.places() if follower.offset <= 0 else {}
    return tuple(found)


def may_follow(program: Program, group: Sequence[Definition], definition: Definition) -> bool:
    """Tell whether a definition may run in loops of a recurrence."""
    if not any({t.name for m in group for t in m.tensors} & definition_reads(x) for x in group):
        return False
    shared = [a for a in group[0].axes if all(a in m.axes for m in group)]
    found = (followers(program, group, {t.name: m.axes.index(a) for m in group for t in m.tensors}) for a in shared)
    following = (m for fs in found for f in fs for m in f.members)
    return any(x is definition for x in accumulations(program, group)) or any(m is definition for m in following)


def is_free_between(program: Program, members: Sequence[Definition]) -> bool:
    """Tell whether no member needs what is made of another outside of them, or runs with what is: a recurrence may with what follows it."""
    own = {t.name for m in members for t in m.tensors}
    later = _made_of(program, own) - own
    if any(later & definition_reads(m) for m in members):
        return False
    late = [x for x in program.definitions if x.tensors[0].name in later]
    steps = [g for g in components(program) if is_recurrence(g) and g[0].tensors[0].name not in own | later]
    beside = {t.name for g in steps if any(may_follow(program, g, x) for x in late) for m in g for t in m.tensors}
    return not beside or not any((_made_of(program, beside) - own) & definition_reads(m) for m in members)


def is_backwards(group: Sequence[Definition], steps: Mapping[str, int]) -> bool:
    """Tell whether a recurrence needs later steps of its own. `steps`: the position of the axis of steps, by its tensors."""
    return any(n is not None and n < 0 for n in step_distances(group, steps))


def _follower(program: Program, part: Sequence[Definition], known: Mapping[str, int], sign: int) -> Follower | None:
    """Return a definition, or several that need each other, with their loop over steps, of which those of `known` tensors go by `sign`;
    None where they have none, are sooner computed for all steps at once, as products that read an element again are, or would write
    elements far apart in each."""
    found = [(x, r) for x in part for p in x.pieces for r in reads(p.value) if r.tensor in known]
    again = any(a not in index_names(r) for x, r in found for a in x.axes)
    if any(len(x.tensors) > 1 for x in part) or (again and len(part) == 1 and is_product(part[0])):
        return None
    places = [_place(r.index[known[r.tensor]]) for _, r in found]
    names = {place[0] for place in places if place is not None}
    if None in places or len(names) != 1:
        return None
    (step,) = names
    offset = max(sign * place[1] for place in places if place is not None)
    follower = Follower(tuple(part), step, max(0, offset) if is_recurrence(part) else offset)
    if all(step in x.axes for x in part):
        return follower if all(len(x.axes) == 1 or x.axes[-1] != step for x in part) else None
    sums = [r for x in part for p in x.pieces for r in reduces(p.value)]
    summed = len(sums) == len(part) == len(part[0].pieces) == 1 and not in_order(sums[0].reducer, program.mode)
    return follower if summed and step in {b.name for b in sums[0].binders} else None


def _beside(
    other: Definition, follower: Follower, group: Sequence[Definition], steps: Mapping[str, int], sign: int
) -> tuple[str, int] | None:
    """Return the axis of steps of a recurrence that needs nothing of `group`, has as many of them and goes the same way, and how many steps
    after its own a follower reads of it at most; None where it has no such axis, or more than single steps are read."""
    read = [r for m in follower.members for p in m.pieces for r in reads(p.value) if r.tensor == other.tensors[0].name]
    first = group[0].tensors[0]
    for k, (axis, extent) in enumerate(zip(other.axes, other.tensors[0].shape, strict=True)):
        offsets = [sign * place[1] for r in read if (place := _place(r.index[k])) is not None and place[0] == follower.step]
        alike = affine.same(extent, first.shape[steps[first.name]]) and _goes_along(Follower((other,), axis, 0), group, steps)
        if len(offsets) == len(read) and alike:
            return axis, max(offsets)
    return None


def _goes_along(follower: Follower, group: Sequence[Definition], steps: Mapping[str, int]) -> bool:
    """Tell whether definitions read themselves, if they do, at other steps alone that lie where a recurrence reads those of its own; of
    several that need each other some may read this step of others."""
    if not is_recurrence(follower.members):
        return True
    if not follower.places():
        return False
    own = {*step_distances(follower.members, follower.places())}
    alike = len({n is not None and n > 0 for n in own.union(step_distances(group, steps)) - {0}}) == 1
    return None not in own and alike and (len(follower.members) > 1 or 0 not in own)


def step_distances(group: Sequence[Definition], steps: Mapping[str, int]) -> list[int | None]:
    """Return how many steps before its own each element is that tensors of a component read of it; None where that is no number. `steps`:
    the position of the axis of steps, by those tensors that have one."""
    found = ((m, r) for m in group if m.tensors[0].name in steps for p in m.pieces for r in reads(p.value) if r.tensor in steps)
    slots = ((m.axes[steps[m.tensors[0].name]], r.index[steps[r.tensor]]) for m, r in found)
    return [None if isinstance(slot, Dynamic) else affine.constant(affine.sub(Name(axis), slot)) for axis, slot in slots]


def _place(slot: Slot) -> tuple[str, int] | None:
    """Return the name and the number of which an index is the sum; None where it is anything else."""
    form = affine.affine_form(slot) if not isinstance(slot, Dynamic) else None
    if form is None or [*form[0].values()] != [1]:
        return None
    return next(iter(form[0])), form[1]


def _made_of(program: Program, names: Collection[str]) -> set[str]:
    """Return these tensors and all that are made of them."""
    found = set(names)
    for group in components(program):
        if any(found & definition_reads(d) for d in group):
            found |= {t.name for d in group for t in d.tensors}
    return found


def _accumulates(program: Program, definition: Definition, local: set[str], made: set[str], after: set[str]) -> bool:
    """Tell whether a definition is one sum over all elements of tensors of a recurrence, or a map of them."""
    if len(definition.tensors) > 1 or len(definition.pieces) != 1 or definition_reads(definition) & after:
        return False
    (piece,) = definition.pieces
    sums = list(reduces(piece.value))
    if len(sums) > 1 or any(in_order(r.reducer, program.mode) for r in sums) or not made & definition_reads(definition) <= local:
        return False
    binders = [b for r in sums for b in r.binders]
    extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True)) | {b.name: b.hi for b in binders}
    terms = [e for r in sums for e in (*r.body, *((r.filter,) if r.filter is not None else ()))] or [piece.value]
    inside = [r for e in terms for r in reads(e) if r.tensor in made]
    if not sums and definition.tensors[0].name not in program.results:
        return False
    if not all(affine.same(b.lo, affine.ZERO) for b in binders) or len(inside) != sum(r.tensor in made for r in reads(piece.value)):
        return False
    table = definers(program)
    places = {frozenset(zip(table[r.tensor].axes, r.index, strict=True)) for r in inside}
    return len(places) == 1 and all(_is_whole(r, table[r.tensor].tensors[0].shape, extents) for r in inside)


def _is_whole(read: Read, shape: Sequence[Expr], extents: Mapping[str, Expr]) -> bool:
    """Tell whether a read goes through all elements of a tensor of this shape, one in each iteration of loops of these extents."""
    names = [s.name for s in read.index if isinstance(s, Name)]
    if len(names) < len(read.index) or {*names} != extents.keys() or len({*names}) < len(names):
        return False
    return all(affine.same(extents[name], n) for name, n in zip(names, shape, strict=True))
