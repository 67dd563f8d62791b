"""Joint steps: recurrences along one axis of which others read each step run together, so that no step is kept for them.

    s[t + 1, i] = f(s[t, i], u[t, i])          shift a.t by -1;  together s, a, y -> i;  together s, a -> t
    a[t + 1, i] = a[t, i] + g(s[t, i])    →    split s.i by 64 -> i_o, i_v
    y[i]        = a[T, i]                      order s.i_o, s.t, s.i_v;  fold s at t by 1

All points but those along that axis, whichever of a tensor it is, are read at their own places alone: they do not need each other, and are
lanes. Three forms:

points outside  a few vectors of points go through all their steps, states in registers. Who reads the last step, or adds up all of them,
                does so there. Where that saves more than points wait for themselves: states that are stored in each step, or, with all
                steps that are added up, fill the nearest cache
steps outside   each step for all points, as recurrences run by themselves
no points       recurrences along their only axis: while one waits for its step before, others compute theirs, with the maps between them
                where that takes no longer than these take in vectors
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from polyhedral import affine
from polyhedral.directions import distances_of
from polyhedral.expr import Name as AffineName
from polyhedral.space import OperationLimit, limited
from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.cost import LOOP_CYCLES, NEAR_BYTES, store_cycles
from tensorlang.policy.cpu.footprints import bytes_of_lines
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.wavefronts import waiting_cycles
from tensorlang.policy.deriver import PARALLEL_WORK, Deriver, bytes_of, is_local, mark_parallel, row_bytes
from tensorlang.policy.folds import folded
from tensorlang.policy.followers import step_distances
from tensorlang.policy.groups import FusionGroup
from tensorlang.schedule.apply import apply
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.plan import Plan, full, owned
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.shape import OPEN_EXTENT, extents, unit_stride, work_of_definition
from tensorlang.tensor.nodes import Const, Definition, Dynamic, Read
from tensorlang.tensor.walk import components, definition_reads, index_names, is_recurrence, reads, reduces, tensor_table

T = TypeVar("T")
FEW_STEPS = 16
"""Rows of one tensor that are read side by side as fast as one after the other."""
BESIDE = 4
"""Points whose steps are computed beside each other where they are no lanes: as many additions as follow each other while one is made."""
FEW_VECTORS = (1, 2)
"""Vectors of points that lie apart, whose steps are computed beside each other."""
OPEN_ROWS = 0.75
"""What lanes of rows of open length have to take of what points beside each other do: rows may lie a power of two apart, where lanes share
a few sets of the cache, and take up to fifteen times as long."""
WAITING = 2.0
"""How many times as long as points wait for themselves the work of those that go through their steps together has to take: estimates of
latency are of no more than their order."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Which axes of tensors are steps and points: of one more axis than there are points the one `at` that place is of steps. `near`:
    points are neighbours in memory; otherwise steps are."""

    at: int
    count: int
    near: bool = True

    def has(self, m: Definition) -> bool:
        """Tell whether a tensor has steps."""
        return len(m.axes) > self.count

    def points(self, of_axes: tuple[T, ...]) -> tuple[T, ...]:
        """Return what is there for the points, of what is there for each axis of a tensor."""
        return of_axes[: self.at] + of_axes[self.at + 1 :] if len(of_axes) > self.count else of_axes


_ONLY = Steps(0, 0)
"""Those of tensors of one axis."""


@dataclass(frozen=True, slots=True)
class JointSteps:
    """Recurrences and what is made of their steps, in the order in which tensors are computed. `outside`: points are outside of steps;
    `is_vector`: so many of them, `lanes`, are a vector, and not computed one by one."""

    members: tuple[Definition, ...]
    steps: Steps
    outside: bool
    lanes: int
    is_vector: bool = True

    def stepped(self) -> list[Definition]:
        """Return the members that have steps."""
        return [m for m in self.members if self.steps.has(m)]

    def points(self, member: Definition) -> tuple[str, ...]:
        return self.steps.points(member.axes)

    def step(self, member: Definition) -> str:
        return member.axes[self.steps.at]


def with_joint_steps(d: Deriver, groups: Sequence[FusionGroup]) -> list[FusionGroup]:
    """Return the groups with one for all that runs in joint steps."""
    found = list(groups)
    for nest in _nests(d):
        names = {m.tensors[0].name for m in nest.members}
        touched = [g for g in found if any(m.tensors[0].name in names for m in g.members)]
        if all(len(g.members) == 1 and g.transformed is None for g in touched):
            last = found.index(touched[-1])
            found[last] = FusionGroup(nest.members[-1], nest.members, len(nest.members[-1].axes), joint=True)
            found = [g for g in found if not any(g is other for other in touched)]
    return found


def waiting_together(d: Deriver) -> set[str]:
    """Return the recurrences along their only axis that wait for their steps together, and what is made between them."""
    return {m.tensors[0].name for nest in _nests(d) if not nest.steps.count for m in nest.members}


def _nests(d: Deriver) -> Iterator[JointSteps]:
    """Yield what runs in joint steps, each tensor once."""
    every, taken = components(d.program), set[str]()
    for k, group in enumerate(every):
        if not is_recurrence(group) or not group[0].axes or taken & {m.tensors[0].name for m in group}:
            continue
        count = len(group[0].axes) - 1
        each = (*(Steps(at, count) for at in range(count + 1 if count else 0)), Steps(count, count, near=False))
        found = (_chosen(d, _grown(d, every[k:], steps), steps) for steps in each if _steps_fit(d, group, group, steps))
        nest = next((n for n in found if n is not None), None)
        if nest is not None:
            taken |= {m.tensors[0].name for m in nest.members}
            yield nest


def _grown(d: Deriver, every: Sequence[Sequence[Definition]], steps: Steps) -> list[Definition]:
    """Return the first of some components with those that are made of its steps, and those with steps that these need beside them: of
    recurrences those that go the same way."""
    members, beside = list(every[0]), list[Sequence[Definition]]()
    for later in every[1:]:
        if any(_reads(m, members) for m in later):
            parts = [*_needed(later, beside), later]
            needed, joined = parts[:-1], [*members, *(m for part in parts for m in part)]
            along = all(_direction(part, steps) in (0, _direction(every[0], steps)) for part in parts)
            if along and all(_fits(d, m, joined, steps) for m in later) and _is_free_between(every, joined):
                members, beside = joined, [other for other in beside if not any(other is part for part in needed)]
        elif _steps_fit(d, later, later, steps):
            beside.append(later)
    for other in () if steps.count else beside:  # What does not need the others waits while they do not.
        if all(_fits(d, m, [*members, *other], steps) for m in other) and _is_free_between(every, [*members, *other]):
            members += other
    return sorted(members, key=lambda m: next(k for k, group in enumerate(every) if any(m is x for x in group)))


def _needed(group: Sequence[Definition], beside: Sequence[Sequence[Definition]]) -> list[Sequence[Definition]]:
    """Return those components of `beside` that a later one is made of."""
    found: list[Sequence[Definition]] = []
    reading = list(group)
    for other in reversed(beside):
        if any(_reads(m, other) for m in reading):
            found.insert(0, other)
            reading += other
    return found


def _steps_fit(d: Deriver, group: Sequence[Definition], members: Sequence[Definition], steps: Steps) -> bool:
    """Tell whether all of a component are tensors with steps that may be members. Those that need each other share their first loop, which
    is that over steps."""
    return all(steps.has(m) and _fits(d, m, members, steps) for m in group)


def _reads(definition: Definition, members: Sequence[Definition]) -> bool:
    return not {m.tensors[0].name for m in members}.isdisjoint(definition_reads(definition))


def _is_free_between(every: Sequence[Sequence[Definition]], members: Sequence[Definition]) -> bool:
    """Tell whether nothing that members need is made of others."""
    names, made = {m.tensors[0].name for m in members}, set[str]()
    for x in (x for group in every for x in group):
        read = {*definition_reads(x)}
        if x.tensors[0].name in names:
            if read & made:
                return False
        elif read & (names | made):
            made |= {t.name for t in x.tensors}
    return True


def _fits(d: Deriver, m: Definition, members: Sequence[Definition], steps: Steps) -> bool:
    """Tell whether a tensor may be one of those members: with steps, the conditions of which are about steps alone, or a point of the steps
    of all; read by lanes of points, and reading others at its own points. Where there are no points, as `_fits_alone` says."""
    (tensor, *others), points = m.tensors, steps.points(m.axes)
    if others or d.layouts.keys() & {tensor.name, *definition_reads(m)} or len(points) != steps.count:
        return False
    if steps.near and m.axes[-1] != points[-1] and not is_local(d, m):
        return False  # Lanes would be stored far from each other.
    same = (affine.same(x, y) for x, y in zip(steps.points(tensor.shape), steps.points(members[0].tensors[0].shape), strict=True))
    if not all(same) or any(affine.name_set(p.guard) & {*points} for p in m.pieces) or not _sums_steps(m, steps.count):
        return False
    if not points:
        return all(map(steps.has, members)) and _fits_alone(d, m, members)
    names, inside = {x.tensors[0].name: x for x in members}, steps.has(m) or _has_sums(m)
    if _has_sums(m) and _lag(m, [n for n, x in names.items() if steps.has(x)], steps) is None:
        return False
    return all(_is_near(d, r, points, names, steps, inside=inside) for p in m.pieces for r in reads(p.value))


def _fits_alone(d: Deriver, m: Definition, members: Sequence[Definition]) -> bool:
    """Tell whether a tensor of one axis may be one of those members, of the same length and without a sum: it reads them so many steps
    before or after its own, and where it reads itself goes the way of the first, in steps too short for lanes."""
    if _has_sums(m) or not _keeps_pace(m, {x.tensors[0].name for x in members}):
        return False
    own, first = _own_steps([m], _ONLY), members[0]
    serial = not own or (min(map(abs, own)) < d.lanes_of(m) and _direction([m], _ONLY) == _direction([first], _ONLY))
    return serial and affine.same(m.tensors[0].shape[0], first.tensors[0].shape[0])


def _keeps_pace(m: Definition, members: Collection[str]) -> bool:
    """Tell whether a tensor of one axis reads members so many steps before or after its own."""
    slots = (r.index[0] for p in m.pieces for r in reads(p.value) if r.tensor in members)
    return all(not isinstance(s, Dynamic) and affine.constant(affine.sub(s, m.axes[0])) is not None for s in slots)


def _own_steps(group: Sequence[Definition], steps: Steps) -> list[int]:
    """Return how many steps before its own each element is that tensors of a component read of it, as far as that is a number."""
    places = {t.name: steps.at for m in group if len(m.axes) > steps.at for t in m.tensors}
    return [n for n in step_distances(group, places) if n]


def _direction(group: Sequence[Definition], steps: Steps) -> int:
    """Return 1 for a component that reads itself at earlier steps, -1 at later ones, 0 where it does not."""
    return next((1 if n > 0 else -1 for n in _own_steps(group, steps)), 0)


def _has_sums(m: Definition) -> bool:
    return any(True for p in m.pieces for _ in reduces(p.value))


def _sums_steps(m: Definition, count: int) -> bool:
    """Tell whether a tensor has no sum, or is one over a range of steps, from a number on if from any."""
    found = [r for p in m.pieces for r in reduces(p.value)]
    if not found:
        return True
    first = found[0]
    from_number = all(isinstance(e, Const) for e in first.init or ())
    plain = first.filter is None and from_number and len(first.binders) == 1
    return len(found) == len(m.pieces) == 1 and len(m.axes) == count and plain and affine.constant(first.binders[0].lo) is not None


def _lag(m: Definition, stepped: Collection[str], steps: Steps) -> int | None:
    """Return how many steps after the one of its number a term of a sum over steps finds what it reads of tensors with steps; None where
    there is no such number."""
    (reduce,) = (e for p in m.pieces for e in reduces(p.value))
    slots = [r.index[steps.at] for r in reads(reduce) if r.tensor in stepped]
    found = [None if isinstance(s, Dynamic) else affine.constant(affine.sub(s, reduce.binders[0].name)) for s in slots]
    return max((0, *(n for n in found if n is not None))) if None not in found else None


def _is_near(d: Deriver, read: Read, points: Sequence[str], members: Mapping[str, Definition], steps: Steps, *, inside: bool) -> bool:
    """Tell whether lanes of points read neighbours, or all the same; of members their own points. `inside`: it is read in the loop over
    steps, after which members without steps are made."""
    if read.tensor in members:
        own = steps.points(read.index) == tuple(map(AffineName, points))
        has_steps = steps.has(members[read.tensor])
        step = read.index[steps.at] if has_steps else None
        plain = step is None or not (isinstance(step, Dynamic) or affine.name_set(step) & {*points})
        return own and plain and (has_steps or not inside)
    near = unit_stride(read.index, None, d.axes[read.tensor], points[-1])
    return not steps.near or points[-1] not in index_names(read) or (near and not any(isinstance(s, Dynamic) for s in read.index))


def _are_kept(d: Deriver, members: Sequence[Definition], stepped: Sequence[Definition], steps: Steps) -> bool:
    """Tell whether definitions beside `members` read more than one step of a tensor that has steps."""
    made, beside = {m.tensors[0].name for m in stepped}, (x for x in d.program.definitions if x not in members)
    slots = (r.index[steps.at] for x in beside for p in x.pieces for r in reads(p.value) if r.tensor in made)
    return any(isinstance(slot, Dynamic) or affine.name_set(slot) - {*d.program.sizes} for slot in slots)


def _chosen(d: Deriver, members: Sequence[Definition], steps: Steps) -> JointSteps | None:
    """Return in which form members run; None where they had better run by themselves."""
    stepped = [m for m in members if steps.has(m)]
    if not steps.count:
        return _alone(d, stepped, steps)
    local = [m for m in stepped if is_local(d, m)]
    lanes = min(d.lanes_of(m) for m in members)
    extent = extents(members[0])[steps.points(members[0].axes)[-1]] or OPEN_EXTENT
    shared = any(_reads(m, [x]) for x in local for m in stepped if not _is_with(d, x, m))
    several = len(list(_components(d, stepped))) > 1 and shared
    last = steps.at == steps.count
    kept = _are_kept(d, members, stepped, steps)
    if last and kept:
        return None  # Rows of steps are what others read: these are made row by row, or several rows in lanes.
    if not steps.near:
        return _apart(d, members, steps, extent) if several and extent >= BESIDE else None
    if not local or extent < lanes:
        return None
    room = d.machine.vector_registers // (2 * len(stepped))
    vectors = next((n for n in (8, 4, 2) if n <= room and n * lanes <= min(extent, MOST_LANES)), 1)
    width = lanes * vectors
    work = width * sum(cycles_of(d, m, InnerLoops((steps.points(m.axes)[-1],), vectors)) for m in stepped)
    waiting = WAITING * max(map(waiting_cycles, _components(d, stepped)))
    summed = {read.tensor for m in members for p in m.pieces for e in reduces(p.value) for read in reads(e)}
    steps_of = {m.tensors[0].name: extents(m)[m.axes[steps.at]] or OPEN_EXTENT for m in local}
    sizes = [bytes_of(d, (name,)) // (1 if name in summed else count) for name, count in steps_of.items()]
    far = width * sum(2 * m.tensors[0].dtype.size_bytes for m in local) / NEAR_BYTES if sum(sizes) > d.machine.l1_bytes else 0.0
    held = work if kept else work - store_cycles(vectors * len(local))
    # Where steps come last, they are neighbours in memory and points are not: without this, points would run one by one.
    if last or (max(held, waiting) < work + far and _is_in_reach(d, members, steps)):
        return JointSteps(tuple(members), steps, True, width)
    return JointSteps(tuple(stepped), steps, False, width) if several else None


def _alone(d: Deriver, stepped: Sequence[Definition], steps: Steps) -> JointSteps | None:
    """Return recurrences along their only axis, with the maps that some of them are made of, where one loop for all takes fewer cycles than
    one for each."""
    kept: list[list[Definition]] = []
    for group in reversed(list(_components(d, stepped))):
        if is_recurrence(group) or any(_reads(m, group) for other in kept for m in other):
            kept.insert(0, group)
    if sum(map(is_recurrence, kept)) < 2:
        return None
    apart, work, longest = 0.0, 0.0, 0.0
    for group in kept:
        serial = sum(cycles_of(d, m, InnerLoops()) for m in group)
        work += serial
        if is_recurrence(group):
            waiting = waiting_cycles(group)
            longest = max(longest, waiting)
            apart += max(waiting, serial)
        else:
            apart += sum(cycles_of(d, m, InnerLoops((m.axes[0],), 1)) for m in group)
    together = max(longest, work - LOOP_CYCLES * (len(kept) - 1))
    return JointSteps(tuple(m for g in kept for m in g), steps, False, 1) if together < apart else None


def _apart(d: Deriver, members: Sequence[Definition], steps: Steps, extent: int) -> JointSteps:
    """Return the form that takes the fewest cycles of points that lie apart: some of them computed beside each other, or lanes, which are
    loaded and stored one by one, as many as the first-level cache holds lines of."""
    stepped = [m for m in members if steps.has(m)]
    lanes = min(d.lanes_of(m) for m in members)
    waiting = max(map(waiting_cycles, _components(d, stepped)))
    kept = tuple(m.tensors[0].name for m in stepped if is_local(d, m))

    def cycles(width: int, vectors: int) -> float:
        along = (steps.points(m.axes)[-1] for m in stepped)
        forms = (InnerLoops((a,), vectors, packed=kept) if vectors else InnerLoops(rows=((a, width),)) for a in along)
        return max(sum(cycles_of(d, m, form) for m, form in zip(stepped, forms, strict=True)), waiting / width)

    table, touched = tensor_table(d.program), {r for m in stepped for r in (m.tensors[0].name, *definition_reads(m))} - {*kept}
    rows = [row_bytes(d, t) for t in map(table.__getitem__, sorted(touched)) if t.shape]
    near = [n for n in FEW_VECTORS if sum(bytes_of_lines(lanes * n, row, d.machine.l1_bytes) for row in rows) <= d.machine.l1_bytes]
    in_lanes = [(lanes * n, n) for n in near if lanes > 1 and lanes * n <= min(extent, MOST_LANES)]
    most = cycles(BESIDE, 0) * (OPEN_ROWS if touched & d.open_rows else 1)
    width, vectors = min((of for of in in_lanes if cycles(*of) < most), key=lambda of: cycles(*of), default=(BESIDE, 0))
    return JointSteps(tuple(members), steps, True, width, is_vector=vectors > 0)


def _components(d: Deriver, stepped: Sequence[Definition]) -> Iterator[list[Definition]]:
    """Yield those with steps, those together that need each other, in the order in which they are computed."""
    for group in components(d.program):
        if any(m is x for m in group for x in stepped):
            yield list(group)


def _is_with(d: Deriver, a: Definition, b: Definition) -> bool:
    """Tell whether two tensors need each other."""
    return any(any(x is a for x in group) and any(x is b for x in group) for group in components(d.program))


def _is_in_reach(d: Deriver, members: Sequence[Definition], steps: Steps) -> bool:
    """Tell whether what each step reads and writes comes as fast where points go through all steps: there are few, or a near cache holds
    all of it."""
    stepped = [m for m in members if steps.has(m)]
    own = {m.tensors[0].name for m in members}
    far = {r for m in members for r in definition_reads(m)} - own | {m.tensors[0].name for m in stepped if not is_local(d, m)}
    many = max(extents(m)[m.axes[steps.at]] or OPEN_EXTENT for m in stepped)
    return many <= FEW_STEPS or bytes_of(d, sorted(far)) <= d.machine.l2_bytes


def derive_joint_steps(d: Deriver, group: FusionGroup) -> bool:
    """Add the directives for what runs in joint steps; tell whether it may."""
    nest = next((n for n in _nests(d) if n.members == group.members), None)
    if nest is None:
        return False
    before = d.schedule
    try:
        with limited():
            offsets = _offsets(d, nest)
    except (OperationLimit, CompileError):
        offsets = None  # Nobody has proven in time, or at all, that their loops can be shared.
    if offsets is None:
        d.schedule = before
        return False
    first, step = _add_shared(d, nest, offsets)
    if nest.steps.count:
        _add_points(d, nest, first, step)
    placed = apply(d.program, d.since, d.layouts)
    for member in (m for m in nest.stepped() if is_local(d, m)):
        for tensor, axis, kept in folded(placed, member, (nest.step(member),)):
            d.add(d.schedule.fold(tensor, axis, kept))
    return True


def _add_points(d: Deriver, nest: JointSteps, first: Definition, step: str) -> None:
    """Add the directives for the points of `first`, in lanes or some beside each other, in or around the loop over steps."""
    name, points = first.tensors[0].name, list(nest.points(first))
    *others, last = points
    inner = f"{last}_v" if nest.is_vector else f"{last}_t"
    d.add(d.schedule.split(full(name, last), nest.lanes, (f"{last}_o", inner)))
    around = [*(full(name, a) for a in others), full(name, f"{last}_o")]
    d.add(d.schedule.order(*((*around, step) if nest.outside else (step, *around)), full(name, inner)))
    d.add(d.schedule.vectorize(full(name, inner)) if nest.is_vector else d.schedule.unroll(full(name, inner)))
    sizes = {**extents(first), f"{last}_o": -(-(extents(first)[last] or OPEN_EXTENT) // nest.lanes)}
    steps = sizes[nest.step(first)] or OPEN_EXTENT
    if nest.outside or sum(map(work_of_definition, nest.members)) >= steps * PARALLEL_WORK:
        mark_parallel(d, (*nest.members, first), [*others, f"{last}_o"], sizes)
    d.add(d.schedule.partition(step) if nest.outside else d.schedule)


def _offsets(d: Deriver, nest: JointSteps) -> dict[str, int] | None:
    """Return how many steps each tensor with steps runs behind, so that it reads the latest that are there, and is not ahead of those that
    are kept; None where there is no such number, or only one of most steps, or an order is illegal."""
    groups = list(_components(d, nest.stepped()))
    heads, kept = [group[0] for group in groups], [not _is_with_local(d, nest, group) for group in groups]
    zero = {m.tensors[0].name: 0 for m in heads}
    before = d.schedule
    first, step = _add_shared(d, nest, zero)
    placed = apply(d.program, d.since, d.layouts)
    parts = {m.tensors[0].name: k for k, group in enumerate(groups) for m in group}
    own = {s.name: parts[n] for s in placed.stages.statements.values() if (n := s.definition.tensors[0].name) in parts}
    distances = distances_of(placed.placed, own)
    d.schedule = before
    least = distances.least_between(step)
    found = [0] * len(heads)
    for target in range(len(heads)):
        behind = [n if n is None else found[p] - (min(n, 0) if kept[p] else n) for (p, q), n in least.items() if q == target and p < target]
        if any(n is None for n in behind):
            return None
        found[target] = max((n for n in behind if n is not None), default=0)
    if 2 * max(found) >= (extents(heads[0])[nest.step(heads[0])] or OPEN_EXTENT):
        return None  # Most steps would be kept all the same.
    offsets = {m.tensors[0].name: n for m, n in zip(heads, found, strict=True)}
    if any(found):
        before = d.schedule
        first, step = _add_shared(d, nest, offsets)
        distances = distances_of(apply(d.program, d.since, d.layouts).placed, own)
        d.schedule = before
    points = [full(first.tensors[0].name, a) for a in nest.points(first)]
    order = [*points, step] if nest.outside else [step, *points]
    return offsets if distances.is_legal(order) and {*points} <= {*distances.free(order)} else None


def _is_with_local(d: Deriver, nest: JointSteps, group: Sequence[Definition]) -> bool:
    """Tell whether few steps of some of a component are kept."""
    return any(is_local(d, m) and not _are_kept(d, nest.members, [m], nest.steps) for m in group)


def _add_shared(d: Deriver, nest: JointSteps, offsets: Mapping[str, int]) -> tuple[Definition, str]:
    """Let all members share the loops over points, and those with steps that over steps; return the tensor whose points name the loops, and
    the loop over steps."""
    heads: list[tuple[Definition, str]] = []
    for group in _components(d, nest.stepped()):
        for m in group:
            d.add(legal_order(d.schedule, d.program, m))
        first, step = _joined(d, apply(d.program, d.since, d.layouts), nest, group)
        name = first.tensors[0].name
        offset = offsets[group[0].tensors[0].name]
        d.add(d.schedule.shift(step, offset) if offset else d.schedule)
        points = [full(name, a) for a in nest.points(first)]
        d.add(d.schedule.order(*points, step) if nest.outside else d.schedule.order(step, *points) if nest.steps.at else d.schedule)
        heads.append((first, step))
    (first, step), name = heads[0], heads[0][0].tensors[0].name
    stepped = [m.tensors[0].name for m, _ in heads]
    if nest.outside:
        sums = [m.tensors[0].name for m in nest.members if _has_sums(m)]
        every = [*stepped, *sums, *(m.tensors[0].name for m in nest.members if not nest.steps.has(m) and not _has_sums(m))]
        d.add(d.schedule.together(*every, into=nest.points(first)) if len(every) > 1 else d.schedule)
        inside = [*stepped, *sums]
        for m in (m for m in nest.members if m.tensors[0].name in sums):
            (binder,) = (b.name for p in m.pieces for e in reduces(p.value) for b in e.binders)
            lag = _lag(m, [x.tensors[0].name for x in nest.stepped()], nest.steps)
            d.add(d.schedule.shift(full(m.tensors[0].name, binder), lag) if lag else d.schedule)
        d.add(d.schedule.together(*inside, into=(nest.step(first),)) if len(inside) > 1 else d.schedule)
    elif len(stepped) > 1:
        d.add(d.schedule.together(*stepped, into=(owned(step, stepped)[1], *nest.points(first))))
    return first, step


def _joined(d: Deriver, plan: Plan, nest: JointSteps, group: Sequence[Definition]) -> tuple[Definition, str]:
    """Let the tensors of a group that share the loop over steps share the others; return the tensor that these are called after, and the
    loop over steps."""
    loops = {m.tensors[0].name: next(n.loops for n in plan.placed.nests.values() if _makes(plan, n.statement, m)) for m in group}
    by_name = {m.tensors[0].name: m for m in group}
    step = next(iter(loops.values()))[nest.steps.at]
    named, _ = owned(step, loops)
    ordered = sorted(loops, key=lambda name: name != named)
    if len({found[1:] for found in loops.values()}) > 1:
        d.add(d.schedule.together(*ordered, into=by_name[ordered[0]].axes[1:]))
    return by_name[ordered[0]], step


def _makes(plan: Plan, statement: str, m: Definition) -> bool:
    return plan.stages.statements[statement].definition.tensors[0].name == m.tensors[0].name
