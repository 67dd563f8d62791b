"""Schedules for loop nests: of sums and pieces, and of each of the tensors that are defined through themselves (`recurrences`).

pieces        a first step, a boundary, the inside get loops of their own wherever that keeps the dependences, so that no element asks
              which of them it belongs to
inner loops   lanes, points that are computed together, copies: the candidate of least predicted cycles (`inner_loops`)
scatter       a sum over those k whose data name an element, `sum(k, ids[k] == n) u[k, j]`, goes through k once and adds to it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import ceil, prod

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.directions import Distances, distances_of
from polyhedral.expr import Name as AffineName
from polyhedral.space import OperationLimit, limited
from tensorlang.policy.cpu.cost import FUNCTION_OPERATIONS, INSTRUCTIONS, PARTS_CYCLES
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.inner_loops import ByOrder, add_inner_loops, candidates, pieces_share_vectors
from tensorlang.policy.cpu.late_sums import late_sums
from tensorlang.policy.cpu.running_results import running_cycles
from tensorlang.policy.cpu.sums_at_edges import derive_edge_sums
from tensorlang.policy.cpu.time_tiles import TimeTile, add_time_tile, best_time_tile
from tensorlang.policy.cpu.values import instructions
from tensorlang.policy.cpu.wavefronts import (
    Wavefront,
    add_wavefront,
    best_wavefront,
)
from tensorlang.policy.deriver import PARALLEL_WORK, Deriver, in_order, is_local, is_threading_profitable, shared_loops
from tensorlang.policy.scatters import SCATTERED_FROM, named_axes, range_of_terms, scattered_axes
from tensorlang.schedule.apply import apply
from tensorlang.schedule.plan import Plan, full
from tensorlang.schedule.shape import OPEN_EXTENT, extents, work_of_definition
from tensorlang.tensor.facts import is_of_indices
from tensorlang.tensor.nodes import Call, Definition, Dynamic, Expr, Read, Select, Slot
from tensorlang.tensor.walk import nodes, reads, reduces

MOST_AXES = 5
"""Of which all orders are looked at."""
LINE = 4
"""Vectors of a row, whose elements data name, that are gone through together."""
TERMS = 4
"""Terms that are written out, each of which goes to one element or vector that data name."""
PARTIAL_VECTOR = 3
"""Whole vectors that one takes as long as of which a mask leaves some lanes out, where what is stored is read back soon."""
FAR = 2
"""Vectors between elements of a row, about: in rows where there are fewer than one they are computed one by one."""
WORTH_SHUFFLING = 0.4
"""Share of the cycles of points beside each other, of which several begin at once, that lanes combined with each other take at most:
measured, running maxima of floats take 1.1 times as long in lanes, sums of whole numbers half."""
LOOP_INSTRUCTIONS = 2
"""Of an iteration: the next number, and a jump."""
MOST_WRITTEN = 16
"""Elements of a step that are written out: as many as the fewest registers that a machine has."""
WORTH_TURNING = 0.9
"""Share of the cycles at most that another order than the one as written has to take."""


def has_no_sums(definition: Definition) -> bool:
    """Tell whether no piece of a definition reduces anything."""
    return not any(True for p in definition.pieces for _ in reduces(p.value))


def is_local_map(d: Deriver, definition: Definition) -> bool:
    """Tell whether nobody outside sees it, and its elements are no sums."""
    return is_local(d, definition) and has_no_sums(definition)


def derive_nest(d: Deriver, definition: Definition) -> None:
    """Add the directives for a definition that nothing it reads is made of."""
    if d.plain:
        return
    scattered = scattered_axes(definition)
    if scattered is not None and len(definition.pieces) == 1:
        _derive_scatter(d, definition, *scattered)
        return
    reached = range_of_terms(definition)
    if reached is not None and is_range_gone_through(d, definition, reached[0]):
        _derive_ranges(d, definition, *reached)
        return
    derive_member(d, apply(d.program, d.since, d.layouts), definition, [definition])


def is_range_gone_through(d: Deriver, definition: Definition, axis: str) -> bool:
    """Tell whether it takes less to go through the elements that data say a term is for than to ask all along an axis, in vectors."""
    extent = extents(definition)[axis] or OPEN_EXTENT
    return extent >= SCATTERED_FROM * d.lanes_of(definition) and not d.layouts.keys() & {definition.tensors[0].name}


def _derive_ranges(d: Deriver, definition: Definition, axis: str, names: frozenset[str]) -> None:
    """Go through the terms of a sum and add each to the elements along an axis that data, indexed by `names`, say that it is for."""
    name, sizes = definition.tensors[0].name, extents(definition)
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
    outside = [a for a in definition.axes if a in names or (a != axis and definition.axes.index(a) < definition.axes.index(axis))]
    inner = [axis, *(a for a in definition.axes if a != axis and a not in outside)]
    lanes = lanes_of_row(sizes[inner[-1]], d.machine.lanes(compute_dtype(definition.tensors[0].dtype)))
    if lanes > 1:
        last = inner.pop()
        d.add(d.schedule.split(full(name, last), lanes, (f"{last}_o", f"{last}_v")))
        inner += [f"{last}_o", f"{last}_v"]
    d.add(in_order(d.schedule, name, [*outside, *binders, *inner]))
    if lanes > 1:
        d.add(d.schedule.vectorize(full(name, inner[-1])))
    if outside and is_threading_profitable(d, (definition,)):
        d.add(d.schedule.parallel(full(name, outside[0])))


def updated(definition: Definition) -> tuple[str, ...] | None:
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
    lanes = row_lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
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
    in_rows = name not in d.layouts and not rest and neighbours == definition.axes[-1]
    if in_rows and len([r for p in definition.pieces for r in reduces(p.value)]) == 1:
        d.add(in_order(d.schedule, name, [*outer, *named, *between]))
        inner = _with_terms_apart(d, name, binders, [*between, *named], lanes_of_row(together, row_lanes))
    else:
        d.add(in_order(d.schedule, name, [*outer, *binders, *between, *named, *inner]))
    if inner and inner[-1].endswith("_v"):
        d.add(d.schedule.vectorize(full(name, inner[-1])))
    if outer and is_threading_profitable(d, (definition,)):
        d.add(d.schedule.parallel(full(name, outer[0])))


def _with_terms_apart(d: Deriver, name: str, binders: Sequence[str], loops: Sequence[str], lanes: int) -> list[str]:
    """Give the terms of a sum `loops` of their own, of which data name the inner ones: what elements begin with and end as is computed
    along the first of `loops`, as they lie in memory. Return its loops."""
    row, own = loops[0], [f"{loop}_t" for loop in loops]
    d.add(d.schedule.distribute(full(name, "acc"), at=[full(name, loop) for loop in loops], into=own))
    d.add(in_order(d.schedule, name, [*binders, *own]))
    if lanes == 1:
        return [row]
    d.add(d.schedule.split(full(name, row), lanes, (f"{row}_o", f"{row}_v")))
    return [f"{row}_o", f"{row}_v"]


def lanes_of_row(extent: int | None, lanes: int) -> int:
    """Return how many elements of a row vectors of at most so many lanes hold, so that it takes the fewest, whole ones rather than one more
    for what they leave; 1 where they are single elements."""
    if extent is None:
        return lanes
    widths = [lanes >> k for k in range(lanes.bit_length())]
    return min((w for w in widths if w <= extent), key=lambda w: extent // w + (PARTIAL_VECTOR if extent % w else 0))


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of one tensor of a group: those `outside`, which it shares with others, and its own `axes`."""

    name: str
    outside: tuple[str, ...]
    axes: tuple[str, ...]
    distances: Distances

    def of_step(self) -> tuple[str, ...]:
        """Return the axes inside of the loop over steps, which is the first of all."""
        return self.axes if self.outside else self.axes[1:]

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
class Order:
    """An order of a tensor's axes: how many outer loops its pieces share in it (None: all), and what runs innermost."""

    axes: tuple[str, ...]
    separate: int | None
    inner: InnerLoops


def derive_member(
    d: Deriver,
    plan: Plan,
    definition: Definition,
    group: Sequence[Definition],
    *,
    share: bool = True,
    joined: Sequence[Definition] = (),
    written: bool = False,
) -> Wavefront | None:
    """Add the directives for the loops of one member of a group; return the wavefront that they run along, if any. `share`: threads may
    share diagonals of blocks and steps; `joined`: what else runs in its loops; `written`: its steps are written out."""
    loops = loops_of(plan, definition, group)
    if written and loops is not None and (one_by_one := written_order(definition, loops)) is not None:
        _add_order(d, plan, definition, loops, one_by_one)
        return None
    if loops is not None and _derive_named(d, definition, loops):
        return None
    chosen = order_of_member(d, plan, definition, group, loops) if loops is not None else None
    if loops is None or chosen is None:
        return None
    in_rows = _in_rows(d, definition, loops, chosen) if len(group) == 1 and not joined else None
    if in_rows is not None:
        chosen = in_rows
    order, name = chosen.axes, definition.tensors[0].name
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
        chosen = replace(chosen, separate=None)
    _add_order(d, plan, definition, loops, chosen)
    return None


def written_order(definition: Definition, loops: Loops) -> Order | None:
    """Return the order in which all elements of a step are written out; None where these are many or nobody knows how many, or where one of
    them, which is a sum or has neighbours along several axes, may need another."""
    sizes, axes = extents(definition), loops.axes
    separate = _separation(definition, loops, axes)
    rows = tuple((a, n) for a in reversed(loops.of_step()) if (n := sizes[a] or MOST_WRITTEN + 1) > 1)
    if not (has_no_sums(definition) and len(rows) < 2) and not {*loops.of_step()} <= {*loops.free(axes, separate)}:
        return None
    inner = InnerLoops(rows=rows, written=not has_no_sums(definition))
    return Order(axes, separate, inner) if inner.points() <= MOST_WRITTEN else None


def _add_order(d: Deriver, plan: Plan, definition: Definition, loops: Loops, chosen: Order) -> None:
    """Add the directives for the loops of a definition in an order."""
    order, separate, name = chosen.axes, chosen.separate, definition.tensors[0].name
    inner, rest = chosen.inner, definition
    if separate is not None and separate < len(loops.of(order)) and separate >= len(loops.outside):
        rest = derive_edge_sums(d, plan, definition, order, separate - len(loops.outside), inner.vector)
        if rest is definition:
            d.add(d.schedule.distribute(name, at=loops.of(order)[separate] if separate else None))
    if order and not loops.outside and order[-1] not in loops.free(order, separate):
        late = late_sums(d, rest, order[-1], inner)
        for binder in late.reversed if late is not None else ():
            d.add(d.schedule.reverse(full(name, binder)))
        inner = late.inner if late is not None else inner
    outer = add_inner_loops(d, rest, order, inner)
    _add_parallel(d, definition, loops, order, separate, outer)


def order_of_member(d: Deriver, plan: Plan, definition: Definition, group: Sequence[Definition], loops: Loops) -> Order | None:
    """Return the order of the loops of one member of a group that takes the fewest cycles in its steps; None where there is none."""
    chosen = chosen_order(d, definition, loops)
    if chosen is not None and chosen.axes and _reads_far_back(d, definition, chosen.axes):
        return replace(chosen, inner=InnerLoops(cycles=chosen.inner.cycles))
    if chosen is not None and _waits_for_parts(d, plan, definition, group, chosen.inner):
        return replace(chosen, inner=InnerLoops(cycles=cycles_of(d, definition, InnerLoops())))
    return chosen


def _in_rows(d: Deriver, definition: Definition, loops: Loops, chosen: Order) -> Order | None:
    """Return the order in which a running result goes along its rows one by one, where these run in lanes in fewer cycles."""
    cycles, axes = running_cycles(d, definition), definition.axes
    worth = WORTH_SHUFFLING if chosen.inner.rows else 1
    if cycles is None or cycles >= worth * chosen.inner.cycles or not loops.distances.is_legal(loops.of(axes)):
        return None
    return Order(axes, _separation(definition, loops, axes), InnerLoops(cycles=cycles))


def _waits_for_parts(d: Deriver, plan: Plan, definition: Definition, group: Sequence[Definition], inner: InnerLoops) -> bool:
    """Tell whether the vectors of a row wait longer for what loops of their own have stored one by one just before, in the same step, than
    it takes to begin the row's elements one by one: these are computed while that loop waits."""
    if len(group) < 2 or not inner.vector or inner.vector != definition.axes[-1:]:
        return False
    row = extents(definition)[definition.axes[-1]] or OPEN_EXTENT
    if row * (_begun_cycles(definition) - inner.cycles) >= PARTS_CYCLES:
        return False
    read = reads_of_step(definition)
    return any(_is_one_by_one(plan, m, group) for m in group if m is not definition and any(t.name in read for t in m.tensors))


def _begun_cycles(definition: Definition) -> float:
    """Return the cycles in which a processor begins the instructions of an element that is computed alone, with its loads, its store and
    the loop."""
    found = (dict.fromkeys(nodes(p.value)) for p in definition.pieces)
    return max(sum(_instructions(n) for n in each) + 1 + LOOP_INSTRUCTIONS for each in found) / INSTRUCTIONS


def _instructions(e: Expr) -> int:
    match e:
        case Call():
            return FUNCTION_OPERATIONS
        case Select(cond) if is_of_indices(cond):
            return 0  # Loops are split there.
        case _:
            return max(instructions(e), int(isinstance(e, Read)))


def _is_one_by_one(plan: Plan, definition: Definition, group: Sequence[Definition]) -> bool:
    """Tell whether every element of a member of a group waits for the one before it."""
    loops = loops_of(plan, definition, group)
    return loops is not None and bool(loops.axes) and not loops.free(loops.axes, None)


def reads_of_step(definition: Definition) -> set[str]:
    """Return what a definition reads at its own point but for the last axis."""
    *around, _ = map(AffineName, definition.axes)
    return {r.tensor for p in definition.pieces for r in reads(p.value) if [*r.index[:-1]] == around}


def _time_tile(d: Deriver, definition: Definition, loops: Loops, chosen: Order) -> TimeTile | None:
    """Return the tile of several steps of a stencil: of a tensor that nobody outside sees, whose first loop alone carries dependences."""
    order, vector = chosen.axes, chosen.inner.vector
    steps = loops.free(order, chosen.separate) == list(order[1:]) and chosen.separate in (None, 1) and not loops.outside
    if not steps or len(order) < 3 or not vector or vector[0] not in order[2:] or not is_local_map(d, definition):
        return None
    try:
        with limited():
            return best_time_tile(d, definition, order, loops.distances)
    except OperationLimit:
        return None


def _wavefront(
    d: Deriver, definition: Definition, loops: Loops, chosen: Order, sums: Sequence[Definition], *, alone: bool
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
    if along != definition.axes[-1] or not has_no_sums(definition):
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


def _derive_named(d: Deriver, definition: Definition, loops: Loops) -> bool:
    """Let the loop along which data name an element run innermost, one by one; tell whether there is such a loop, and it may."""
    scattered = scattered_axes(definition)
    named = updated(definition) if scattered is None else scattered[0]
    if named is None or not {*named} <= {*loops.axes}:
        return False
    binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
    others = [a for a in loops.axes if a not in named]
    known = scattered[1] if scattered is not None else {*others}
    orders = ((x, [*x, *named, *(a for a in others if a not in x)]) for x in ([a for a in others if a in known], others))
    # Terms are gone through around what is inner, which therefore carries nothing.
    legal = (x for x, order in orders if loops.distances.is_legal(loops.of(order)) and {*order} - {*x} <= {*loops.free(order, None)})
    outer = next(legal, None)
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


def statements_of(plan: Plan, definition: Definition) -> list[str]:
    """Return the names of the statements that a definition became."""
    return [s.name for s in plan.stages.of(definition)]


def loops_of(plan: Plan, definition: Definition, group: Sequence[Definition]) -> Loops | None:
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
    return Loops(name, outside, tuple(loop.removeprefix(f"{name}.") for loop in inside), distances)


def chosen_order(d: Deriver, definition: Definition, loops: Loops) -> Order | None:
    """Return the legal order of the axes that takes the fewest cycles of all threads; None where there is none."""
    best: Order | None = None
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
                best, least = Order(axes, separate, inner), taken
    return best if best is None else _with_lanes_outside(d, definition, loops, best)


def _with_lanes_outside(d: Deriver, definition: Definition, loops: Loops, chosen: Order) -> Order:
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


def _separation(definition: Definition, loops: Loops, axes: Sequence[str]) -> int | None:
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
    d: Deriver, definition: Definition, loops: Loops, order: Sequence[str], separate: int | None, outer: Sequence[str]
) -> None:
    """Mark the loops that threads share, of the `outer` ones in this order."""
    chosen = _parallel(d, definition, loops, order, separate, outer)
    d.add(d.schedule.parallel(*(full(loops.name, loop) for loop in chosen)) if chosen else d.schedule)


def _parallel(
    d: Deriver, definition: Definition, loops: Loops, order: Sequence[str], separate: int | None, outer: Sequence[str]
) -> tuple[str, ...]:
    """Return loops that carry nothing, of the `outer` ones in this order, where what runs between two barriers is worth it: those outside
    all that carry something, else those inside."""
    free, sizes = loops.free(order, separate), extents(definition)
    carrying = [k for k, a in enumerate(order) if a not in free]
    leading, own = carrying[0] if carrying else 0, (separate or 0) - len(loops.outside)
    if leading and (separate is None or own <= 0 or own in range(leading, len(order))) and is_step_profitable(d, definition, order):
        chosen = shared_loops(list(outer[:leading]), [sizes[a] or OPEN_EXTENT for a in order[:leading]], d.machine.threads)
        if chosen:
            return chosen
    first = max(carrying[-1] + 1 if carrying else 0, own)
    if not is_step_profitable(d, definition, order[first:]):
        return ()
    trips = [sizes[a] or OPEN_EXTENT for a in order[first : max(first, len(outer))]]
    return shared_loops(list(outer[first:]), trips, d.machine.threads)


def is_step_profitable(d: Deriver, definition: Definition, inside: Sequence[str]) -> bool:
    """Tell whether several threads compute what the loops of the axes `inside` compute each time sooner than one."""
    sizes = extents(definition)
    steps = prod(sizes[a] or OPEN_EXTENT for a in definition.axes if a not in inside)
    return d.machine.threads > 1 and work_of_definition(definition) // max(1, steps) >= PARALLEL_WORK
