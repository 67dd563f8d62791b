"""Schedules for loop nests: of sums and pieces, and of tensors that are defined through themselves.

recurrence    its loops run in an order that the dependences allow; those that carry none are like those of any other equation
pieces        a first step, a boundary, the inside get loops of their own wherever that keeps the dependences, so that no element asks
              which of them it belongs to
inner loops   lanes, points that are computed together, copies: the candidate of least predicted cycles (`inner_loops`)
scatter       a sum over those k whose data name an element, `sum(k, ids[k] == n) u[k, j]`, goes through k once and adds to it
storage       what is no result is kept for as many steps as it is needed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations, takewhile
from math import ceil, inf, prod

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.directions import Distances, distances_of
from polyhedral.expr import Name as AffineName
from polyhedral.space import OperationLimit, limited
from polyhedral.verdict import Proven
from tensorlang.diagnostics import CompileError
from tensorlang.lower.prefetch import LINE_BYTES
from tensorlang.policy.cpu.blocks import derive_blocks
from tensorlang.policy.cpu.cost import PARTS_CYCLES
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.inner_loops import ByOrder, add_inner_loops, best_inner_loops, candidates, pieces_share_vectors
from tensorlang.policy.cpu.late_sums import late_sums
from tensorlang.policy.cpu.running_results import running_cycles
from tensorlang.policy.cpu.step_maps import derive_step_maps, step_maps
from tensorlang.policy.cpu.time_tiles import TimeTile, add_time_tile, best_shared_tile, best_time_tile
from tensorlang.policy.cpu.unread import trim_unread
from tensorlang.policy.cpu.wavefronts import (
    Wavefront,
    add_diagonal_layout,
    add_wavefront,
    best_shared_wavefront,
    best_wavefront,
    is_passing,
    kept_diagonals,
    waiting_cycles,
)
from tensorlang.policy.deriver import PARALLEL_WORK, Deriver, bytes_of, in_order, is_local, is_threading_profitable, shared_loops
from tensorlang.policy.folds import folded
from tensorlang.policy.followers import accumulations, followers, may_follow
from tensorlang.policy.scatters import named_axes, scattered_axes
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import verdict_of
from tensorlang.schedule.plan import Plan, full, owned
from tensorlang.schedule.recurrence import innermost_apart, legal_order
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import OPEN_EXTENT, extents, work_of_definition
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Read, Select, Slot
from tensorlang.tensor.walk import components, definition_reads, reads, reduces, tensor_table

MOST_AXES = 5
"""Of which all orders are looked at."""
LINE = 4
"""Vectors of a row, whose elements data name, that are gone through together."""
LINES = 2
"""Vectors of lines that are recurrences, as many of which run together: then one waits while the other computes."""
TERMS = 4
"""Terms that are written out, each of which goes to one element or vector that data name."""
PARTIAL_VECTOR = 3
"""Whole vectors that one takes as long as of which a mask leaves some lanes out, where what is stored is read back soon."""
FAR = 2
"""Vectors between elements of a row, about: in rows where there are fewer than one they are computed one by one."""
WORTH_SHUFFLING = 0.4
"""Share of the cycles of points beside each other, of which several begin at once, that lanes combined with each other take at most:
measured, running maxima of floats take 1.1 times as long in lanes, sums of whole numbers half."""
WORTH_TURNING = 0.9
"""Share of the cycles at most that another order than the one as written has to take."""


def derive_recurrence(d: Deriver, definition: Definition) -> None:
    """Add the directives for all that needs `definition` and is needed by it, where it is the first of them."""
    group = next(g for g in components(d.program) if any(x is definition for x in g))
    if definition is not group[0] or (not d.plain and derive_blocks(d, group)):
        return
    for member in group:
        d.add(legal_order(d.schedule, d.program, member))
    if d.plain:
        return
    plan, before = apply(d.program, d.since, d.layouts), d.schedule
    if not d.at_once and (_derive_accumulated(d, plan, group) or _derive_followed(d, plan, group)):
        if is_proven(_in_legal_order(d)):
            return
        d.schedule = before
    if len(group) > 1 and (_derive_steps(d, plan, group) or _derive_shared(d, plan, group)):
        return
    if len(group) > 2 and not d.at_once and _derive_lines(d, plan, group):
        return
    together = step_maps(d, plan, group) if len(group) > 1 and not d.at_once else []
    shared = {m.tensors[0].name for maps in together for m in maps.members}
    found = [None if m.tensors[0].name in shared else _derive_member(d, plan, m, group) for m in group]
    for maps in together:
        derive_step_maps(d, maps)
    (front,) = found if len(found) == 1 else (None,)
    if front is not None and front.shared and is_local(d, group[0]) and not _keeps_steps(d, group[0], front):
        d.schedule = before
        found = [_derive_member(d, plan, group[0], group, share=False)]
    rows = _derive_rows(d, plan, group) if len(group) > 1 else frozenset[str]()
    _add_storage(d, [(member, front) for member, front in zip(group, found, strict=True) if is_local(d, member)], rows)


def _add_storage(d: Deriver, local: Sequence[tuple[Definition, Wavefront | None]], rows: frozenset[str] = frozenset()) -> None:
    """Keep as few steps of tensors that nobody outside sees as do, along all axes but `rows`; by diagonals those that run so in lanes."""
    if local and not d.alone and not d.at_once:
        # What is left out is written over nothing.
        trim_unread(d, [member for member, _ in local])
    placed = apply(d.program, d.since, d.layouts) if local else None
    for member, front in local:
        assert placed is not None
        if front is not None and not front.rows:
            kept = {axis: count for _, axis, count in islice(folded(placed, member, front.outer), 1)}
            add_diagonal_layout(d, member, front, kept, kept_diagonals(placed, member, front, kept))
            continue
        for name, axis, count in folded(placed, member, [a for a in member.axes if a not in rows]):
            d.add(d.schedule.fold(name, axis, count))


def _derive_accumulated(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for a recurrence with sums and maps of all that it makes in its loops: along a wavefront, or, of maps alone, in
    lanes and threads as they come; tell whether there are any, and less is kept for them."""
    found = _own(d, group, accumulations(d.program, group))
    if not found:
        return False
    if len(group) > 1:
        return _derive_shared(d, plan, group, found)
    (member,), before = group, d.schedule
    loops = plan.placed.nests[_statements(plan, member)[0]].loops
    time = owned(loops[0], tensor_table(d.program))[1]
    found = [x for x in found if not _is_turned(member, time, x, _own_point(d, member, x)[time])]
    if not found:
        return False
    maps = not any(True for x in found for p in x.pieces for _ in reduces(p.value))
    if not _join(d, member, loops, found):
        return False
    front = _derive_member(d, apply(d.program, d.since, d.layouts), member, group, share=False, joined=found)
    start = len(d.schedule.directives)
    if front is not None or maps:
        _add_storage(d, [(member, front)])
    if front is None and len(d.schedule.directives) == start:
        d.schedule = before
        return False
    return True


def _in_legal_order(d: Deriver) -> Deriver:
    """Return the state with recurrences in an order that is legal about which no directive says anything yet."""
    tensors = tensor_table(d.program)
    said = {owned(o.name, tensors)[0] for x in d.since.directives for o in x.operands if isinstance(o, syntax.Id)}
    found = replace(d)
    for member in (x for group in components(d.program) for x in group if x.tensors[0].name not in said):
        found.add(legal_order(found.schedule, d.program, member))
    return found


def is_proven(d: Deriver) -> bool:
    """Tell whether the directives so far make sense, and compute what the program says."""
    try:
        return isinstance(verdict_of(apply(d.program, d.since, d.layouts)), Proven)
    except CompileError:
        return False


def _own(d: Deriver, group: Sequence[Definition], found: Sequence[Definition]) -> list[Definition]:
    """Return those first ones that no later recurrence is read by, but for those among them: what reads several of them runs with the
    last."""
    every = components(d.program)
    start = next(k for k, g in enumerate(every) if any(x is group[0] for x in g)) + 1
    later = [g for g in every[start:] if not any(x is g[0] for x in found)]
    return list(takewhile(lambda x: not any(may_follow(d.program, g, x) for g in later), found))


def _derive_followed(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for a recurrence with what needs single steps of it in its loop over steps, where no near cache holds all steps
    and a few then do; tell whether it runs so."""
    first, before = plan.placed.nests[_statements(plan, group[0])[0]].loops[0], d.schedule
    owner, time = owned(first, tensor_table(d.program))
    if any(time not in x.axes for x in group) or any(plan.placed.nests[s].loops[0] != first for x in group for s in _statements(plan, x)):
        return False
    own = {t.name: x.axes.index(time) for x in group for t in x.tensors}
    if all(r.index[own[r.tensor]] == AffineName(time) for x in group for p in x.pieces for r in reads(p.value) if r.tensor in own):
        return False
    large = [x for x in group if is_local(d, x) and bytes_of(d, (x.tensors[0].name,)) > d.machine.l2_bytes]
    found = followers(d.program, group, own) if large else ()
    found = found[: len(_own(d, group, [x.definition for x in found]))]
    found = tuple(takewhile(lambda x: not _is_turned(group[0], time, x.definition, AffineName(x.step)), found))
    read = {r for x in found for r in definition_reads(x.definition)}
    if not any(x.tensors[0].name in read for x in large):
        return False
    backwards = any(x.name == "reverse" and syntax.Id(first) in x.operands for x in d.since.directives)
    if backwards and any(x.offset for x in found):
        return False
    for x in found:
        name = x.definition.tensors[0].name
        binders = [b.name for p in x.definition.pieces for r in reduces(p.value) for b in r.binders]
        others = [a for a in (*x.definition.axes, *binders) if a != x.step]
        d.add(in_order(d.schedule, name, [x.step, *others]) if x.definition.axes[:1] != (x.step,) and others else d.schedule)
        d.add(d.schedule.reverse(full(name, x.step)) if backwards else d.schedule)
        d.add(d.schedule.shift(full(name, x.step), x.offset) if x.offset else d.schedule)
    d.add(d.schedule.together(owner, *(x.definition.tensors[0].name for x in found), into=(time,)))
    members = [*group, *(x.definition for x in found)]
    shared = apply(d.program, d.since, d.layouts)
    summed = {full(x.definition.tensors[0].name, x.step): 1 for x in found if x.step not in x.definition.axes}
    inside = replace(d, at_once=summed)
    for member in members:
        _derive_member(inside, shared, member, members)
    d.schedule = inside.schedule
    start = len(d.schedule.directives)
    _add_storage(d, [(member, None) for member in members if is_local(d, member)])
    kept = {x.operands[0].name for x in d.schedule.directives[start:] if x.name == "fold" and isinstance(x.operands[0], syntax.Id)}
    if not any(x.tensors[0].name in kept for x in large):
        d.schedule = before
        return False
    return True


def _join(d: Deriver, member: Definition, loops: Sequence[str], found: Sequence[Definition]) -> bool:
    """Let sums and maps of all elements of a recurrence run in its loops, those of `member`, after whose axes they are called; tell whether
    they can."""
    tensors = tensor_table(d.program)
    owner, axes = owned(loops[0], tensors)[0], [owned(loop, tensors)[1] for loop in loops]
    turned = {o.name for x in d.since.directives if x.name in ("reverse", "skew") for o in x.operands if isinstance(o, syntax.Id)}
    if any(x.name == "skew" and x.operands[0] in [syntax.Id(loop) for loop in loops] for x in d.since.directives):
        return False
    ended: list[tuple[str, list[str]]] = []
    for x in found:
        own = _own_point(d, member, x)
        called = [slot.name for a in axes if isinstance(slot := own[a], AffineName)]
        name, binders = x.tensors[0].name, [b.name for p in x.pieces for r in reduces(p.value) for b in r.binders]
        for loop, there in zip(loops, called, strict=True):
            d.add(d.schedule.reverse(full(name, there)) if loop in turned else d.schedule)
        d.add(in_order(d.schedule, name, called) if called != [*x.axes, *binders] else d.schedule)
        d.add(d.schedule.together(owner, name, into=axes))
        kept = [a for a in axes if own[a] in {AffineName(n) for n in x.axes}]
        if kept and binders:
            ended.append((name, kept))
    # Loops that the whole sum is in may be skewed by others, which its end is not in. All share their loops before one ends in others.
    for name, kept in ended:
        into = [f"{a}_{name.replace('.', '_')}" for a in kept]
        d.add(d.schedule.distribute(f"{name}.0", at=[full(owner, a) for a in kept], into=into))
    return True


def _own_point(d: Deriver, member: Definition, follower: Definition) -> dict[str, Slot]:
    """Return by the axes of a recurrence at which point what is made of all its elements reads them."""
    group = next(g for g in components(d.program) if any(x is member for x in g))
    table = {t.name: x for x in group for t in x.tensors if {*x.axes} == {*member.axes}}
    found = (r for p in follower.pieces for r in reads(p.value) if r.tensor in table)
    read = next(found)
    return dict(zip(table[read.tensor].axes, read.index, strict=True))


def _is_turned(member: Definition, time: str, follower: Definition, step: Slot) -> bool:
    """Tell whether a recurrence lies in rows of a step, on axis `time`, and a map of it across them, steps next to each other: each would
    write everywhere."""
    across = any(step == AffineName(a) for a in _axes_of_line(follower)) and time not in _axes_of_line(member)
    return across and len(follower.axes) == len(member.axes)


def _axes_of_line(definition: Definition) -> set[str]:
    """Return the last axes of a tensor whose elements it takes to fill a line of memory."""
    sizes, size = extents(definition), definition.tensors[0].dtype.size_bytes
    found: list[str] = []
    for axis in reversed(definition.axes):
        if size >= LINE_BYTES:
            break
        found.append(axis)
        size *= sizes[axis] or OPEN_EXTENT
    return {*found}


def is_joined(d: Deriver, definition: Definition) -> bool:
    """Tell whether a definition runs in loops of a recurrence that it is made of."""
    if _names_together(d.since, definition) or not d.alone:
        return _names_together(d.since, definition)
    found = (group for group in components(d.program) if may_follow(d.program, group, definition))
    return any(_names_together(_beside(d, group[0]), definition) for group in found)


def _beside(d: Deriver, first: Definition) -> Schedule:
    """Return the directives that a recurrence gets by itself, whose tensors need `first` and are needed by it: once for all that asks."""
    alone = replace(d, schedule=replace(d.schedule, directives=d.schedule.directives[: d.rewritten]))
    asked = first.tensors[0].name, alone.schedule, d.program, d.machine, d.separate, d.constants, d.plain
    key = *asked, *(frozenset(m.items()) for m in (d.layouts, d.at_once, d.open_extents))
    if key not in d.beside:
        derive_recurrence(alone, first)
        d.beside[key] = alone.since
    return d.beside[key]


def _names_together(schedule: Schedule, definition: Definition) -> bool:
    name = syntax.Id(definition.tensors[0].name)
    return any(x.name == "together" and name in x.operands for x in schedule.directives)


def _derive_steps(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for fields that take turns in tiles of several steps; tell whether they run so."""
    found = [_loops_of(plan, member, group) for member in group] if all(_is_stencil(d, member) for member in group) else [None]
    known = [loops for loops in found if loops is not None]
    if len(known) < len(found) or any(len(loops.outside) != 1 or len(loops.axes) < 2 for loops in known):
        return False
    if any(loops.free(loops.axes, None) != list(loops.axes) for loops in known):
        return False
    (step,) = known[0].outside
    first, time = owned(step, tensor_table(d.program))
    group = sorted(group, key=lambda member: member.tensors[0].name != first)
    known.sort(key=lambda loops: loops.name != first)
    names, spaces = [loops.name for loops in known], [loops.axes[0] for loops in known]
    inner = [_inside(d, member, loops) for member, loops in zip(group, known, strict=True)]
    if (
        first != names[0]
        or time not in group[0].axes
        or not all(x.vector and x.vector[0] in loops.axes[1:] for x, loops in zip(inner, known, strict=True))
    ):
        return False
    shared = replace(d, schedule=d.schedule.together(*names, into=(spaces[0],)))
    placed = apply(d.program, shared.since, d.layouts)
    own = {name: k for k, member in enumerate(group) for name in _statements(placed, member)}
    try:
        with limited():
            tile = best_shared_tile(d, group, time, spaces, distances_of(placed.placed, own))
    except OperationLimit:
        return False
    if tile is None:
        return False
    for name, space, offset in zip(names, spaces, tile.offsets, strict=True):
        d.add(d.schedule.shift(full(name, space), offset) if offset else d.schedule)
    d.add(d.schedule.together(*names, into=(spaces[0],)))
    within = add_time_tile(d, group[0], tile)
    d.add(in_order(d.schedule, first, within))
    for member, loops, one in zip(group, known, inner, strict=True):
        outer = add_inner_loops(d, member, loops.axes[1:], one)
        d.add(d.schedule.distribute(loops.name, at=full(loops.name, outer[0])) if len(member.pieces) > 1 else d.schedule)
    placed = apply(d.program, d.since, d.layouts)
    for member in group:
        for name, axis, count in folded(placed, member, member.axes):
            d.add(d.schedule.fold(name, axis, count))
    return True


@dataclass(frozen=True, slots=True)
class _Lines:
    """Two tensors of a group, the second of which reads the first along its own line alone: their loops, the one over lines first."""

    first: Definition
    second: Definition
    first_loops: tuple[str, ...]
    second_loops: tuple[str, ...]


def _derive_lines(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for a group of which some tensors are recurrences along lines that one other reads line by line, as the way there
    and back of a solver: in lanes over lines, which are kept for these alone. Tell whether there are any."""
    before, found, taken = d.schedule, list[_Lines](), set[str]()
    for first, second in permutations(group, 2):
        if not taken & {first.tensors[0].name, second.tensors[0].name}:
            lines = _lines_of(d, plan, group, first, second)
            if lines is not None:
                found.append(lines)
                taken |= {first.tensors[0].name, second.tensors[0].name}
    for lines in found:
        _add_lines(d, lines)
    for member in (x for x in group if found and x.tensors[0].name not in taken):
        _derive_member(d, plan, member, group)
    if found:
        _add_storage(d, [(member, None) for member in group if is_local(d, member)])
        if is_proven(_in_legal_order(d)):
            return True
    d.schedule = before
    return False


def _lines_of(d: Deriver, plan: Plan, group: Sequence[Definition], first: Definition, second: Definition) -> _Lines | None:
    """Return how two tensors share lines that are recurrences; None where they do not, or a near cache holds all lines of a step."""
    name, sizes = first.tensors[0].name, extents(first)
    readers = [x for x in d.program.definitions if x is not first and name in definition_reads(x)]
    if [id(x) for x in readers] != [id(second)] or not is_local(d, first) or not _has_no_sums(first) or not _has_no_sums(second):
        return None
    own, other = _loops_of(plan, first, group), _loops_of(plan, second, group)
    if own is None or other is None or own.outside != other.outside or not own.outside:
        return None
    if prod(sizes[a] or OPEN_EXTENT for a in own.axes) * first.tensors[0].dtype.size_bytes <= d.machine.l2_bytes:
        return None
    turned = {o for x in d.since.directives if x.name in ("reverse", "skew", "order") for o in x.operands}
    there = [r for p in second.pieces for r in reads(p.value) if r.tensor == name]
    for line in own.axes:
        slots = {r.index[first.axes.index(line)] for r in there}
        along = next((a for a in other.axes if slots == {AffineName(a)} and extents(second)[a] == sizes[line]), None)
        if along is None or {syntax.Id(full(name, line)), syntax.Id(full(other.name, along))} & turned:
            continue
        orders = (line, *(a for a in own.axes if a != line)), (along, *(a for a in other.axes if a != along))
        legal = own.distances.is_legal(own.of(orders[0])) and other.distances.is_legal(other.of(orders[1]))
        carrying = [x.free(order, None) == [order[0]] for x, order in zip((own, other), orders, strict=True)] if legal else []
        if len(orders[0]) > 1 and carrying == [True, True]:
            return _Lines(first, second, *orders)
    return None


def _add_lines(d: Deriver, found: _Lines) -> None:
    """Add the directives for two tensors whose lines are lanes of the same loop."""
    both = (found.first, found.first_loops), (found.second, found.second_loops)
    name, line = found.first.tensors[0].name, found.first_loops[0]
    for x, order in both:
        own = x.tensors[0].name
        d.add(in_order(d.schedule, own, list(order)) if list(order) != [a for a in x.axes if a in order] else d.schedule)
    d.add(d.schedule.together(*(x.tensors[0].name for x, _ in both), into=(line,)))
    inner = [full(x.tensors[0].name, a) for x, order in both for a in order[1:]]
    for x, order in both:
        own = x.tensors[0].name
        d.add(d.schedule.distribute(own, at=full(own, order[1])) if len(x.pieces) > 1 else d.schedule)
    lanes = LINES * min(d.lanes_of(x) for x, _ in both)
    d.add(d.schedule.split(full(name, line), lanes, (f"{line}_o", f"{line}_v")))
    d.add(d.schedule.order(full(name, f"{line}_o"), *inner, full(name, f"{line}_v")))
    d.add(d.schedule.vectorize(full(name, f"{line}_v")))
    if _is_step_profitable(d, found.second, found.second_loops):
        d.add(d.schedule.parallel(full(name, f"{line}_o")))


def _derive_shared(d: Deriver, plan: Plan, group: Sequence[Definition], sums: Sequence[Definition] = ()) -> bool:
    """Add the directives for tensors that share all their loops, or may: lanes along one that carries nothing, else a wavefront; tell
    whether there is either. `sums`: those over all that they make, which run in these loops along a wavefront."""
    if not all(_has_no_sums(member) for member in group):
        return False
    before, joined = d.schedule, innermost_apart(plan, group)
    least = inf
    if joined:
        least = inf if sums else _apart_cycles(d, plan, group)
        d.add(d.schedule.together(*joined, into=tuple({*joined.values()})))
        plan = apply(d.program, d.since, d.layouts)
    shared = {plan.placed.nests[s].loops for member in group for s in _statements(plan, member)} if sums else set()
    if sums and (len(shared) != 1 or any({*member.axes} != {*group[0].axes} for member in group)):
        d.schedule = before
        return False
    for loops in shared:
        if not _join(d, group[0], loops, sums):
            return False
        plan = apply(d.program, d.since, d.layouts)
    found = _best_shared(d, plan, group, sums, lanes=not joined and not sums)
    if found is None or (found[1] is not None and found[1].cycles >= least):
        d.schedule = before
        return False
    group, front = found
    local = [member for member in group if is_local(d, member)]
    if front is not None:
        # Points of a diagonal need none of it but their own: pieces of any of the tensors may have loops of their own along it.
        apart = not front.rows and any(len(member.pieces) > 1 for member in group)
        add_wavefront(d, group[0], front, nested=False, apart=apart)
    placed = apply(d.program, d.since, d.layouts)
    for member in local:
        if front is not None and not front.rows:
            passing = replace(front, passing=is_passing(d, member, (*group, *sums)))
            add_diagonal_layout(d, member, passing, {}, kept_diagonals(placed, member, passing, {}))
            continue
        for name, axis, count in folded(placed, member, member.axes):
            d.add(d.schedule.fold(name, axis, count))
    return True


def _apart_cycles(d: Deriver, plan: Plan, group: Sequence[Definition]) -> float:
    """Return the cycles of an element of all tensors of a group where not all of them share their innermost loops: those at least that
    elements wait for each other which such a loop makes one after the other, and lanes for those of their own step."""
    inner: dict[str, list[Definition]] = {}
    for member in group:
        inner.setdefault(plan.placed.nests[_statements(plan, member)[0]].loops[-1], []).append(member)
    found = [_loop_cycles(d, plan, members, group) for members in inner.values()]
    waiting = {t.name for members, (_, waits) in zip(inner.values(), found, strict=True) if waits for m in members for t in m.tensors}
    lanes = [m for members, (_, waits) in zip(inner.values(), found, strict=True) if not waits for m in members]
    late = [PARTS_CYCLES / (extents(m)[m.axes[-1]] or OPEN_EXTENT) for m in lanes if _reads_of_step(m) & waiting]
    return sum(cycles for cycles, _ in found) + sum(late)


def _reads_of_step(definition: Definition) -> set[str]:
    """Return what a definition reads at its own point but for the last axis."""
    *around, _ = map(AffineName, definition.axes)
    return {r.tensor for p in definition.pieces for r in reads(p.value) if [*r.index[:-1]] == around}


def _loop_cycles(d: Deriver, plan: Plan, members: Sequence[Definition], group: Sequence[Definition]) -> tuple[float, bool]:
    """Return the same of some of a group that share a loop of their own, and whether elements wait for each other: lanes are for one
    alone."""
    if len(members) > 1:
        return max(sum(cycles_of(d, member, InnerLoops()) for member in members), waiting_cycles(members)), True
    loops = _loops_of(plan, members[0], group)
    chosen = _chosen(d, members[0], loops) if loops is not None else None
    if loops is None or chosen is None:
        return inf, False
    waits = bool(chosen.axes) and chosen.axes[-1] not in loops.free(chosen.axes, chosen.separate)
    return max(chosen.inner.cycles, waiting_cycles(members) if waits else 0.0), waits


def _best_shared(
    d: Deriver, plan: Plan, group: Sequence[Definition], sums: Sequence[Definition], *, lanes: bool
) -> tuple[list[Definition], Wavefront | None] | None:
    """Return the tensors of a group, the one after which their loops are called first, and the wavefront that they run along; none where
    `lanes` have been made of an axis. None where there is neither."""
    own = {name: k for k, name in enumerate(name for member in group for name in _statements(plan, member))}
    try:
        with limited():
            distances = distances_of(plan.placed, own)
            tensors = tensor_table(d.program)
            called = {owned(loop, tensors)[0] for loop in distances.loops}
            axes = [owned(loop, tensors)[1] for loop in distances.loops]
            ordered = sorted(group, key=lambda member: member.tensors[0].name not in called)
            share_all = all(len(member.axes) == len(axes) for member in group)  # whatever each of them calls its axes
            if not share_all or len(axes) < 2 or called != {ordered[0].tensors[0].name}:
                return None
            carrying_none = distances.free(distances.loops)
            free = [a for a, loop in zip(axes, distances.loops, strict=True) if loop in carrying_none]
            if free:
                return (ordered, None) if lanes and _add_lanes(d, ordered, axes, free[-1]) else None
            local = [member for member in group if is_local(d, member)]
            alike = all({*member.axes} == {*axes} for member in group)
            front = best_shared_wavefront(d, ordered, axes, distances, local, sums) if len(axes) == 2 and alike else None
            return (ordered, front) if front is not None else None
    except OperationLimit:
        return None


def _add_lanes(d: Deriver, group: Sequence[Definition], axes: Sequence[str], axis: str) -> bool:
    """Let points along an axis of which none needs another be lanes, inside all other loops; tell whether there are enough of them."""
    name, lanes = group[0].tensors[0].name, min(d.lanes_of(m) for m in group)
    extent = extents(group[0])[axis] or OPEN_EXTENT
    if lanes < 2 or extent < lanes:
        return False
    d.add(d.schedule.split(full(name, axis), lanes, (f"{axis}_o", f"{axis}_v")))
    d.add(in_order(d.schedule, name, [f"{axis}_o", *(a for a in axes if a != axis), f"{axis}_v"]))
    d.add(d.schedule.vectorize(full(name, f"{axis}_v")))
    if is_threading_profitable(d, group):
        chosen = shared_loops([f"{axis}_o"], [-(-extent // lanes)], d.machine.threads)
        d.add(d.schedule.parallel(*(full(name, loop) for loop in chosen)) if chosen else d.schedule)
    return True


def _has_no_sums(definition: Definition) -> bool:
    return not any(True for p in definition.pieces for _ in reduces(p.value))


def _inside(d: Deriver, member: Definition, loops: _Loops) -> InnerLoops:
    return replace(best_inner_loops(d, member, loops.axes[1:]), rows=())


def _is_stencil(d: Deriver, definition: Definition) -> bool:
    """Tell whether nobody outside sees it, and its elements are no sums."""
    return is_local(d, definition) and _has_no_sums(definition)


def _keeps_steps(d: Deriver, definition: Definition, front: Wavefront) -> bool:
    """Tell whether a wavefront over several steps leaves it enough to keep a few of them."""
    placed = apply(d.program, d.since, d.layouts)
    return any(True for _ in folded(placed, definition, front.outer[-1:]))


def _derive_rows(d: Deriver, plan: Plan, group: Sequence[Definition]) -> frozenset[str]:
    """Give the rows of a group to threads: its outermost loops, where they carry nothing from one to the other. Return their axes."""
    if not is_threading_profitable(d, group):
        return frozenset()
    own = {name: k for k, name in enumerate(name for member in group for name in _statements(plan, member))}
    try:
        distances = distances_of(plan.placed, own)
    except OperationLimit:
        return frozenset()
    free = distances.free(distances.loops)
    outer = list(takewhile(lambda loop: loop in free, distances.loops))
    axes = {loop: next((a for m in group for a in m.axes if loop == full(m.tensors[0].name, a)), None) for loop in outer}
    sizes = {a: e for m in group for a, e in extents(m).items()}
    rows = list(takewhile(lambda loop: (a := axes[loop]) is not None and all(a in m.axes for m in group), outer))
    chosen = shared_loops(rows, [sizes[axes[loop] or ""] or OPEN_EXTENT for loop in rows], d.machine.threads)
    d.add(d.schedule.parallel(*chosen) if chosen else d.schedule)
    return frozenset(a for loop in chosen if (a := axes[loop]) is not None)


def derive_nest(d: Deriver, definition: Definition) -> None:
    """Add the directives for a definition that nothing it reads is made of."""
    if d.plain:
        return
    scattered = scattered_axes(definition)
    if scattered is not None and len(definition.pieces) == 1:
        _derive_scatter(d, definition, *scattered)
        return
    _derive_member(d, apply(d.program, d.since, d.layouts), definition, [definition])


def _updated(definition: Definition) -> tuple[str, ...] | None:
    """Return the axes along which data name the elements that a step changes, `if d == ids[k] then … else c[k, d]`, one by each of its
    conditions; None where there are none."""
    found = (_updated_by(definition, piece.value) for piece in definition.pieces)
    return next((named for named in found if named is not None), None)


def _updated_by(definition: Definition, value: Expr) -> tuple[str, ...] | None:
    match value:
        case Select(condition, _, orelse):
            named = named_axes(definition, condition)
            if named is None or (isinstance(orelse, Select) and _updated_by(definition, orelse) != named[0]):
                return None
            return named[0] if isinstance(orelse, Select) or _is_own_element(definition, orelse, named[0]) else None
        case _:
            return None


def _is_own_element(definition: Definition, value: Expr, named: Sequence[str]) -> bool:
    """Tell whether a value is what an earlier step computed for the same place along some axes."""
    if not isinstance(value, Read) or value.tensor not in {t.name for t in definition.tensors}:
        return False
    return all(value.index[definition.axes.index(a)] == AffineName(a) for a in named)


def _named_by_inputs(d: Deriver, definition: Definition) -> bool:
    """Tell whether the data that say where terms go are inputs: what a recurrence says may be wanted in its steps (`scatter_fusion`)."""
    inputs = {p.name for p in d.program.params}
    filters = [r.filter for p in definition.pieces for r in reduces(p.value) if r.filter is not None]
    return all(read.tensor in inputs for e in filters for read in reads(e))


def _neighbours(definition: Definition, along: Sequence[str]) -> str | None:
    """Return the one of the axes `along` for whose neighbours data that name elements are neighbours; None where there is none."""
    filters = [r.filter for p in definition.pieces for r in reduces(p.value) if r.filter is not None]
    last = {read.index[-1] for e in filters for read in reads(e) if read.index}
    return next((a for a in along if AffineName(a) in last), None)


def _derive_scatter(d: Deriver, definition: Definition, named: Sequence[str], names: frozenset[str]) -> None:
    """Go through the terms of a sum and add each to the elements that it is for: those along the axes `named` are one."""
    name, sizes = definition.tensors[0].name, extents(definition)
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]

    def is_outside(axis: str) -> bool:
        """Tell whether what data name lies inside of an axis, in memory: each of its rows is gone through by itself."""
        return name not in d.layouts and definition.axes.index(axis) < min(map(definition.axes.index, named))

    along = [a for a in definition.axes if a in names or is_outside(a)]
    rest = [a for a in definition.axes if a not in along and a not in named]
    lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
    outer, inner, between = list(along), list(rest), list[str]()
    neighbours = _neighbours(definition, along)
    if neighbours is not None:
        # Data lie in rows: of a row some lines at a time, so that what they name stays in the cache.
        extent, together = sizes[neighbours] or OPEN_EXTENT, LINE * lanes
        if extent < together:
            together = ceil(extent / (d.machine.threads if is_threading_profitable(d, (definition,)) else 1))
        d.add(d.schedule.split(full(name, neighbours), together, (f"{neighbours}_o", f"{neighbours}_i")))
        outer[outer.index(neighbours)], between = f"{neighbours}_o", [f"{neighbours}_i"]
    lanes = lanes_of_row(sizes[rest[-1]], lanes) if rest else 1
    if lanes > 1:
        last = rest[-1]
        d.add(d.schedule.split(full(name, last), lanes, (f"{last}_o", f"{last}_v")))
        inner = [*rest[:-1], f"{last}_o", f"{last}_v"]
        if not along and (sizes[last] or OPEN_EXTENT) >= d.machine.threads * lanes and is_threading_profitable(d, (definition,)):
            outer, inner = [f"{last}_o"], [*rest[:-1], f"{last}_v"]
    if not between and prod(sizes[a] or OPEN_EXTENT for a in rest) <= lanes and _named_by_inputs(d, definition):
        # A term is a load, a question and an element or a vector of it: to count terms would take as long.
        last = binders[-1]
        d.add(d.schedule.split(full(name, last), TERMS, (f"{last}_o", f"{last}_i")))
        d.add(d.schedule.unroll(full(name, f"{last}_i")))
        binders = [*binders[:-1], f"{last}_o", f"{last}_i"]
    d.add(in_order(d.schedule, name, [*outer, *binders, *between, *named, *inner]))
    if inner and inner[-1].endswith("_v"):
        d.add(d.schedule.vectorize(full(name, inner[-1])))
    if outer and is_threading_profitable(d, (definition,)):
        d.add(d.schedule.parallel(full(name, outer[0])))


def lanes_of_row(extent: int | None, lanes: int) -> int:
    """Return how many elements of a row vectors of at most so many lanes hold, so that it takes the fewest, whole ones rather than one more
    for what they leave; 1 where they are single elements."""
    if extent is None:
        return lanes
    widths = [lanes >> k for k in range(lanes.bit_length())]
    return min((w for w in widths if w <= extent), key=lambda w: extent // w + (PARTIAL_VECTOR if extent % w else 0))


@dataclass(frozen=True, slots=True)
class _Loops:
    """The loops of one tensor of a group: those `outside`, which it shares with others, and its own `axes`."""

    name: str
    outside: tuple[str, ...]
    axes: tuple[str, ...]
    distances: Distances

    def of(self, axes: Sequence[str]) -> list[str]:
        """Return all loops, with those of its own in this order."""
        return [*self.outside, *(full(self.name, a) for a in axes)]

    def free(self, axes: Sequence[str], separate: int | None) -> list[str]:
        """Return the axes that carry nothing in this order."""
        free = self.distances.free(self.of(axes), separate)
        return [a for a in axes if full(self.name, a) in free]

    def least_distances(self, axes: Sequence[str], separate: int | None) -> dict[str, int]:
        """Return the axes that carry dependences in this order, each with the least distance of them."""
        found = self.distances.least_distances(self.of(axes), separate)
        return {a: n for a in axes if (n := found.get(full(self.name, a))) is not None}


@dataclass(frozen=True, slots=True)
class _Order:
    """An order of a tensor's axes: how many outer loops its pieces share in it (None: all), and what runs innermost."""

    axes: tuple[str, ...]
    separate: int | None
    inner: InnerLoops


def _derive_member(
    d: Deriver,
    plan: Plan,
    definition: Definition,
    group: Sequence[Definition],
    *,
    share: bool = True,
    joined: Sequence[Definition] = (),
) -> Wavefront | None:
    """Add the directives for the loops of one member of a group; return the wavefront that they run along, if any. `share`: threads may
    share diagonals of blocks and steps; `joined`: what else runs in its loops."""
    loops = _loops_of(plan, definition, group)
    if loops is not None and _derive_named(d, definition, loops):
        return None
    chosen = _chosen(d, definition, loops) if loops is not None else None
    if loops is None or chosen is None:
        return None
    if chosen.axes and _reads_far_back(d, definition, chosen.axes):
        chosen = replace(chosen, inner=InnerLoops(cycles=chosen.inner.cycles))
    in_rows = _in_rows(d, definition, loops, chosen) if len(group) == 1 and not joined else None
    if in_rows is not None:
        chosen = in_rows
    order, separate, name = chosen.axes, chosen.separate, definition.tensors[0].name
    front = _wavefront(d, definition, loops, chosen, joined, alone=len(group) == 1) if in_rows is None else None
    front = front if front is None or share else replace(front, shared=0)
    if front is not None:
        add_wavefront(d, definition, front, nested=bool(loops.outside))
        return front
    tile = _time_tile(d, definition, loops, chosen) if len(group) == 1 and not joined else None
    if tile is not None:
        within = add_time_tile(d, definition, tile)
        add_inner_loops(d, definition, [*within, *order[2:]], replace(chosen.inner, rows=()))
        d.add(d.schedule.distribute(name, at=full(name, within[-1])) if len(definition.pieces) > 1 else d.schedule)
        return None
    if pieces_share_vectors(d, definition, chosen.inner) and {*chosen.inner.vector} <= {*loops.free(order, None)}:
        separate = None
    if separate is not None and separate < len(loops.of(order)) and separate >= len(loops.outside):
        d.add(d.schedule.distribute(name, at=loops.of(order)[separate] if separate else None))
    inner = chosen.inner
    if order and not loops.outside and order[-1] not in loops.free(order, separate):
        late = late_sums(d, definition, order[-1], inner)
        for binder in late.reversed if late is not None else ():
            d.add(d.schedule.reverse(full(name, binder)))
        inner = late.inner if late is not None else inner
    outer = add_inner_loops(d, definition, order, inner)
    _add_parallel(d, definition, loops, order, separate, outer)
    return None


def _in_rows(d: Deriver, definition: Definition, loops: _Loops, chosen: _Order) -> _Order | None:
    """Return the order in which a running result goes along its rows one by one, where these run in lanes in fewer cycles."""
    cycles, axes = running_cycles(d, definition), definition.axes
    worth = WORTH_SHUFFLING if chosen.inner.rows else 1
    if cycles is None or cycles >= worth * chosen.inner.cycles or not loops.distances.is_legal(loops.of(axes)):
        return None
    return _Order(axes, _separation(definition, loops, axes), InnerLoops(cycles=cycles))


def _time_tile(d: Deriver, definition: Definition, loops: _Loops, chosen: _Order) -> TimeTile | None:
    """Return the tile of several steps of a stencil: of a tensor that nobody outside sees, whose first loop alone carries dependences."""
    order, vector = chosen.axes, chosen.inner.vector
    steps = loops.free(order, chosen.separate) == list(order[1:]) and chosen.separate in (None, 1) and not loops.outside
    if not steps or len(order) < 3 or not vector or vector[0] not in order[2:] or not _is_stencil(d, definition):
        return None
    try:
        with limited():
            return best_time_tile(d, definition, order, loops.distances)
    except OperationLimit:
        return None


def _wavefront(
    d: Deriver, definition: Definition, loops: _Loops, chosen: _Order, sums: Sequence[Definition], *, alone: bool
) -> Wavefront | None:
    """Return the wavefront that points of a definition run along, where every loop carries dependences; with `sums` in its loops. `alone`:
    no other tensors need it and are needed by it, so that it may be stored by diagonals."""
    order, inner = chosen.axes, chosen.inner
    free = [a for a in loops.free(order, chosen.separate) if extents(definition)[a] != 1]
    if inner.vector or any(a in free for a, _ in inner.rows) or len(order) < 2 or free or _reads_far_back(d, definition, order):
        return None
    try:
        with limited():
            return best_wavefront(
                d, definition, loops.outside, order, loops.distances, inner, sums, local=alone and is_local(d, definition)
            )
    except OperationLimit:
        return None


def _reads_far_back(d: Deriver, definition: Definition, order: Sequence[str]) -> bool:
    """Tell whether elements of a row need others of it that lie, in most rows, further back than a vector is long: such rows run in lanes
    (`codegen.loops.lanes_by_distance`)."""
    *outer, along = order
    if along != definition.axes[-1] or not _has_no_sums(definition):
        return False
    own, sizes = {t.name for t in definition.tensors}, extents(definition)
    slots = [dict(zip(definition.axes, r.index, strict=True)) for p in definition.pieces for r in reads(p.value) if r.tensor in own]
    back = [slot[along] for slot in slots if all(slot[a] == AffineName(a) for a in outer)]

    def is_far(slot: Slot) -> bool:
        if isinstance(slot, Dynamic):
            return False
        e = affine.sub(along, slot)
        middle = {n: (sizes.get(n) or OPEN_EXTENT) // 2 for n in affine.name_set(e)}
        return bool(middle) and along not in middle and affine.evaluate(e, middle) >= FAR * d.lanes_of(definition)

    return bool(back) and all(map(is_far, back))


def _derive_named(d: Deriver, definition: Definition, loops: _Loops) -> bool:
    """Let the loop along which data name an element run innermost, one by one; tell whether there is such a loop, and it may."""
    scattered = scattered_axes(definition)
    named = _updated(definition) if scattered is None else scattered[0]
    if named is None or not {*named} <= {*loops.axes}:
        return False
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
    others = [a for a in loops.axes if a not in named]
    known = scattered[1] if scattered is not None else {*others}
    orders = ((x, [*x, *named, *(a for a in others if a not in x)]) for x in ([a for a in others if a in known], others))
    outer = next((x for x, order in orders if loops.distances.is_legal(loops.of(order))), None)
    if outer is None:
        return False
    inner = [*named, *(a for a in others if a not in outer)]
    order = (*outer, *inner)
    separate = _separation(definition, loops, order)
    if separate is not None and len(loops.outside) <= separate < len(loops.of(order)):
        d.add(d.schedule.distribute(loops.name, at=loops.of(order)[separate] if separate else None))
    d.add(in_order(d.schedule, loops.name, [*outer, *binders, *inner]))
    _add_parallel(d, definition, loops, order, separate, outer)
    return True


def _statements(plan: Plan, definition: Definition) -> list[str]:
    return [s.name for s in plan.stages.of(definition)]


def _loops_of(plan: Plan, definition: Definition, group: Sequence[Definition]) -> _Loops | None:
    """Return the loops of a member of a group; None where it cannot be told in time how its dependences point."""
    name, members = definition.tensors[0].name, {x.tensors[0].name for x in group}
    # Directives before this one may have made other definitions of the same tensors, which read copies.
    statements = [(s.definition.tensors[0].name, s) for s in plan.stages.statements.values()]
    own = {s.name: s.piece for tensor, s in statements if tensor == name}
    others = {s.name for tensor, s in statements if tensor in members - {name}}
    shared = {loop for n in plan.placed.nests.values() if n.statement in others for loop in n.loops}
    try:
        distances = distances_of(plan.placed, own)
    except OperationLimit:
        return None
    outside = tuple(loop for loop in distances.loops if loop in shared)
    inside = distances.loops[len(outside) :]
    return _Loops(name, outside, tuple(loop.removeprefix(f"{name}.") for loop in inside), distances)


def _chosen(d: Deriver, definition: Definition, loops: _Loops) -> _Order | None:
    """Return the legal order of the axes that takes the fewest cycles of all threads; None where there is none."""
    best: _Order | None = None
    least = 0.0
    known: dict[tuple[frozenset[str], frozenset[tuple[str, int]]], ByOrder] = {}
    for axes in _orders(loops.axes):
        if loops.distances.is_legal(loops.of(axes)):
            separate = _separation(definition, loops, axes)
            free, distances = frozenset(loops.free(axes, separate)), loops.least_distances(axes, separate)
            key = free, frozenset(distances.items())
            if key not in known:
                found = candidates(d, definition, [a for a in definition.axes if a in free], distances)
                known[key] = ByOrder(d, definition, found)
            inner = known[key].best(axes)
            taken = inner.cycles / (d.machine.threads if _parallel(d, definition, loops, axes, separate, axes) else 1)
            if best is None or taken < WORTH_TURNING * least:
                best, least = _Order(axes, separate, inner), taken
    return best if best is None else _with_lanes_outside(d, definition, loops, best)


def _with_lanes_outside(d: Deriver, definition: Definition, loops: _Loops, chosen: _Order) -> _Order:
    """Return an order in which steps run inside of one vector of a row, where a sample of open length has no more: then registers keep what
    steps read back, however long rows are."""
    vector, order = chosen.inner.vector, chosen.axes
    free = loops.free(order, chosen.separate)
    first = next((k for k, a in enumerate(order) if a not in free), len(order))
    if len(vector) != 1 or vector[0] not in order[first:] or full(loops.name, vector[0]) not in d.unknown:
        return chosen
    if (extents(definition)[vector[0]] or OPEN_EXTENT) > d.lanes_of(definition) * chosen.inner.vectors:
        return chosen
    axes = (*order[:first], *vector, *(a for a in order[first:] if a not in vector))
    is_legal = loops.distances.is_legal(loops.of(axes))
    return replace(chosen, axes=axes, separate=_separation(definition, loops, axes)) if is_legal else chosen


def _orders(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield from permutations(axes) if len(axes) <= MOST_AXES else iter([tuple(axes)])


def _separation(definition: Definition, loops: _Loops, axes: Sequence[str]) -> int | None:
    """Return how many outer loops the pieces share: those that carry dependences, where not all do, so that what they define is used
    soon; else as few as are legal."""
    order = loops.of(axes)
    least = loops.distances.separable(order) if len(definition.pieces) > 1 else None
    if least is None:
        return None
    carrying = [k for k, loop in enumerate(order) if loop not in loops.distances.free(order)]
    inside = max(len(loops.outside), carrying[-1] + 1 if carrying else 0)
    return max(least, inside) if inside < len(order) else max(least, len(loops.outside))


def _add_parallel(
    d: Deriver, definition: Definition, loops: _Loops, order: Sequence[str], separate: int | None, outer: Sequence[str]
) -> None:
    """Mark the loops that threads share, of the `outer` ones in this order."""
    chosen = _parallel(d, definition, loops, order, separate, outer)
    d.add(d.schedule.parallel(*(full(loops.name, loop) for loop in chosen)) if chosen else d.schedule)


def _parallel(
    d: Deriver, definition: Definition, loops: _Loops, order: Sequence[str], separate: int | None, outer: Sequence[str]
) -> tuple[str, ...]:
    """Return loops that carry nothing, of the `outer` ones in this order, where what runs between two barriers is worth it: those outside
    all that carry something, else those inside."""
    free, sizes = loops.free(order, separate), extents(definition)
    carrying = [k for k, a in enumerate(order) if a not in free]
    leading, own = carrying[0] if carrying else 0, (separate or 0) - len(loops.outside)
    if leading and (separate is None or own <= 0 or own in range(leading, len(order))) and _is_step_profitable(d, definition, order):
        chosen = shared_loops(list(outer[:leading]), [sizes[a] or OPEN_EXTENT for a in order[:leading]], d.machine.threads)
        if chosen:
            return chosen
    first = max(carrying[-1] + 1 if carrying else 0, own)
    if not _is_step_profitable(d, definition, order[first:]):
        return ()
    trips = [sizes[a] or OPEN_EXTENT for a in order[first : max(first, len(outer))]]
    return shared_loops(list(outer[first:]), trips, d.machine.threads)


def _is_step_profitable(d: Deriver, definition: Definition, inside: Sequence[str]) -> bool:
    """Tell whether several threads compute what the loops of the axes `inside` compute each time sooner than one."""
    sizes = extents(definition)
    steps = prod(sizes[a] or OPEN_EXTENT for a in definition.axes if a not in inside)
    return d.machine.threads > 1 and work_of_definition(definition) // max(1, steps) >= PARALLEL_WORK
