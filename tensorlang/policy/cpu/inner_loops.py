"""Which loops of an equation run innermost: candidates, each with what an element costs in cycles (`inner_cost`).

    vector      the loop whose iterations are lanes: an axis, or of every reduction the binder that lanes may share
    vectors     registers side by side along it
    phases      of the axis along which vectors run: every second element is a loop of its own where equations are for every second element
    rows        axes of which several points are computed together
    packed      tensors that are copied before everything else, so that lanes read neighbours

Sums of one equation that read an element in common share their loops (`shared_sums`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf
from types import MappingProxyType

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import Cond, Floor
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.check.law_tests import is_commutative
from tensorlang.policy.cpu.along import remainders
from tensorlang.policy.cpu.cost import MOST_STRIDE
from tensorlang.policy.cpu.inner_cost import (
    COPY_SHARE,
    BlockCost,
    InnerLoops,
    names_of_conditions,
)
from tensorlang.policy.cpu.padded import root_copy
from tensorlang.policy.cpu.reloads import Reloads
from tensorlang.policy.cpu.shared_sums import add_shared_sums, names_of_shared, shared_sums
from tensorlang.policy.deriver import Deriver, in_order
from tensorlang.policy.pointwise import moves_one_by_one
from tensorlang.policy.scatters import ranges_of_data
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.pack import Along, axes_of_copy
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import block_of, unit_stride
from tensorlang.tensor.facts import is_choice
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Read, Reduce, Reducer
from tensorlang.tensor.scop import in_order as keeps_order
from tensorlang.tensor.walk import index_names, reads, reduces

VECTORS = (1, 2, 4, 8, 12)
"""How many registers may lie side by side along the lanes of an axis; of a sum no more than one vector of the language holds."""
UNROLLED = (2, 3, 4, 6, 8)
"""How many points of an axis may be computed together."""
MOST_TOGETHER = 24
"""And of two axes."""
MOST_PHASES = 8
"""Phases of an axis that have loops of their own."""
MOST_WRITTEN = 200
"""Registers that the terms of a window compute together where they are all written out: what they share is loaded once, and the code of
so many is still decoded once."""
MASKED_BYTES = 64
"""Of registers that have masks: of shorter ones lanes that are left out are stored one by one."""
NOTHING: Mapping[str, int] = MappingProxyType({})


def best_inner_loops(d: Deriver, definition: Definition, free: Sequence[str], distances: Mapping[str, int] = NOTHING) -> InnerLoops:
    """Return the cheapest candidate. `free`: the axes whose loops carry no dependence. `distances`: of others, of which so many points,
    one after the other, need none of each other."""
    return ByOrder(d, definition, candidates(d, definition, free, distances)).best(definition.axes)


class ByOrder:
    """Some candidates, at least one, of which the cheapest depends on the order of the loops outside of them. `joined`: as in
    `candidates`."""

    def __init__(self, d: Deriver, definition: Definition, found: Iterable[InnerLoops], *, joined: bool = False) -> None:
        self._cost = BlockCost(d, definition, joined=joined)
        self._found = sorted(found, key=lambda c: c.cycles + (self._cost.copying(c) if self._cost.is_near else 0.0))
        self._reloads: list[Reloads] = []

    def best(self, order: Sequence[str]) -> InnerLoops:
        """Return the cheapest where the loops outside run over the axes in this order: a processor computes while it loads, and the
        first-level cache takes what it is sent again in cycles in which it answers no loads (the execution-cache-memory model: Treibig and
        Hager 2009). While copies are made it does neither."""
        first, *_ = self._found
        if self._cost.is_near and not self._cost.earlier and not self._cost.loaded_first:
            return first
        chosen, least, of_order = first, inf, inf
        for k, c in enumerate(self._found):
            if c.cycles >= least:
                break
            if k == len(self._reloads):
                self._reloads.append(Reloads(self._cost, c))
            of_sums, of_steps = self._reloads[k].cycles(order), self._reloads[k].step_cycles(order)
            of_lines = self._reloads[k].line_cycles(order)
            of_order = min(of_order, (c.cycles if self._cost.is_near else self._cycles(k, of_sums)) + of_lines)
            cycles = self._cycles(k, of_sums + of_steps) + of_lines
            if cycles < least:
                chosen, least = c, cycles
        # Where steps lie also depends on how many of them are kept, which is decided of an order that is chosen.
        return replace(chosen, cycles=of_order)

    def _cycles(self, candidate: int, again: float) -> float:
        """Return the cycles of an element where a candidate is sent what takes `again`."""
        c, reloads = self._found[candidate], self._reloads[candidate]
        sent = again + reloads.loading if again else 0.0
        return max(c.cycles, sent + reloads.first_loading) + COPY_SHARE * again + reloads.copying


def candidates(
    d: Deriver,
    definition: Definition,
    free: Sequence[str],
    distances: Mapping[str, int] = NOTHING,
    along: str | None = None,
    *,
    joined: bool = False,
) -> Iterator[InnerLoops]:
    """Yield what may run innermost, the simplest first; what is loaded from memory again is no part of their cycles. `along`: the axis of
    which neighbours are lanes, where that is known. `joined`: whether all sums share their loops, whatever they read."""
    cost = BlockCost(d, definition, joined=joined)
    ranges = ranges_of_data(definition)
    free = [a for a in free if not any(a in names for names in ranges.values())]
    wide = [a for a in definition.axes if distances.get(a, 0) >= cost.lanes and not any(a in names for names in ranges.values())]
    sums = any(True for p in definition.pieces for _ in reduces(p.value))
    # Fewer than lanes are steps that do not wait for each other.
    near = [((a, n),) for a, n in distances.items() if 1 < n < cost.lanes and n <= min(MOST_STRIDE, cost.sizes.get(a, 0))]
    every = ((), *((a,) for a in reversed(free)), *((a,) for a in reversed(wide)), *_shared_binders(d, definition))
    for vector in every if along is None else ((along,),):
        extent = max((cost.sizes[loop] for loop in vector), default=1)
        crossed = cost.crossed(vector)
        is_window = not joined and bool(vector) and vector[0] in free and cost.is_window(vector[0])
        copies = dict.fromkeys(((), crossed, (*crossed, *cost.panels(vector))))
        for vectors in VECTORS if vector else (1,):
            if vectors > 1 and (extent < vectors * cost.lanes or (not _is_one_vector(vectors * cost.lanes) and vector[0] not in free)):
                continue
            if vectors > 1 and any(vectors * cost.lanes > distances[loop] for loop in vector if loop in wide):
                continue
            if vectors > 1 and not ranges.keys().isdisjoint(vector):
                continue
            others = [(a, cost.sizes[a]) for a in reversed(free) if a not in vector and cost.may_repeat(a, vector)]
            for phases in phases_along(definition, vector[0]) if len(vector) == 1 and vector[0] not in wide else ():
                # Accumulators lie as far apart as elements do: of more than one vector, registers do not hold them.
                # Of one piece, whole vectors are put together of what the phases of one vector of the language make.
                together = len(definition.pieces) > 1 or vectors * cost.lanes <= MOST_LANES
                if extent >= phases * vectors * cost.lanes and (vectors == 1 or not sums) and together:
                    for rows in ((),) if vector[0] in free else _rows(others):
                        yield cost.counted(InnerLoops(vector, vectors, rows, phases=phases))
            for rows in (*_rows(others), *(() if vector else near)):
                for packed in copies:
                    yield (found := cost.counted(InnerLoops(vector, vectors, rows, packed)))
                    if is_window and cost.terms() * vectors * found.points() <= MOST_WRITTEN:
                        yield cost.counted(replace(found, written=True))


def phases_along(definition: Definition, axis: str) -> tuple[int, ...]:
    """Return of how many elements along an axis, one after the other, equations are for one: the divisors of the remainders that guards ask
    for, and of the quotients by which a definition of one piece reads, `x[i // 2]`, which are others for each phase alone."""
    found = {m.divisor for p in definition.pieces for m in remainders(p.guard) if axis in affine.name_set(m)}
    if len(definition.pieces) == 1:
        slots = (slot for read in reads(definition.pieces[0].value) for slot in read.index if not isinstance(slot, Dynamic))
        found |= {q.divisor for slot in slots for q in _quotients(slot) if axis in affine.name_set(q)}
    return tuple(sorted(m for m in found if 2 <= m <= MOST_PHASES))


def is_in_phases(d: Deriver, definition: Definition) -> bool:
    """Tell whether a row-major map runs sooner phase by phase along an axis: what it reads then lies side by side for lanes."""
    touched = {definition.tensors[0].name, *(r.tensor for p in definition.pieces for r in reads(p.value))}
    if d.layouts.keys() & touched or not any(phases_along(definition, a) for a in definition.axes):
        return False
    return best_inner_loops(d, definition, definition.axes).phases > 1


def moves_in_phases(d: Deriver, definition: Definition) -> bool:
    """Tell whether a row-major map does nothing but to fetch elements one by one, several along its rows by what is the same for these."""
    touched = {definition.tensors[0].name, *(r.tensor for p in definition.pieces for r in reads(p.value))}
    last = definition.axes[-1]
    return not d.layouts.keys() & touched and moves_one_by_one(d, definition, last) and bool(phases_along(definition, last))


def _quotients(e: Affine | Cond) -> Iterator[Floor]:
    if isinstance(e, Floor):
        yield e
    for part in affine.parts(e):
        yield from _quotients(part)


def pieces_share_vectors(d: Deriver, definition: Definition, inner: InnerLoops) -> bool:
    """Tell whether whole vectors have elements of several pieces of a definition, which are then stored by one loop."""
    masked = d.machine.vector_bytes >= MASKED_BYTES
    return _pieces_are_phases(definition, inner) or (masked and _pieces_alternate(definition, inner))


def _pieces_are_phases(definition: Definition, inner: InnerLoops) -> bool:
    """Tell whether the pieces of a definition are the phases of its vectors, each of one remainder, or as many for each part of the other
    axes: the copies of one loop then write whole rows between them."""
    along = {*inner.vector}
    phases = [[m for m in remainders(p.guard) if m.divisor == inner.phases and affine.name_set(m) == along] for p in definition.pieces]
    return inner.phases > 1 and len(phases) % inner.phases == 0 and all(phases)


def _pieces_alternate(definition: Definition, inner: InnerLoops) -> bool:
    """Tell whether neighbours along vectors are of several pieces in turn, as the fields of a board are: in loops of its own each piece
    would load and store every few elements of a vector, and all together store whole ones. What is left as it was is no such piece: it
    may lie there already."""
    own = {t.name for t in definition.tensors}
    asked = [affine.name_set(m) for p in definition.pieces for m in remainders(p.guard)]
    sums = any(True for p in definition.pieces for _ in reduces(p.value))
    kept = any(_is_read_of(p.value, own) for p in definition.pieces)
    return inner.phases == 1 and not sums and not kept and any(not names.isdisjoint(inner.vector) for names in asked)


def _is_read_of(value: Expr, tensors: Collection[str]) -> bool:
    return isinstance(value, Read) and value.tensor in tensors


def _rows(axes: Sequence[tuple[str, float]]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield which axes have several points computed together: none, one of them, or two."""
    one = [
        ((axis, n),)
        for axis, extent in axes
        for n in sorted({*UNROLLED, *((int(extent),) if extent <= MOST_STRIDE else ())})
        if 1 < n <= extent
    ]
    yield ()
    yield from one
    for first, second in combinations(one, 2):
        if first[0][0] != second[0][0] and first[0][1] * second[0][1] <= MOST_TOGETHER:
            yield first + second


def _shared_binders(d: Deriver, definition: Definition) -> Iterator[tuple[str, ...]]:
    """Yield the innermost binder of each reduction, where their iterations may be lanes, and of a single one its other binders."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    simple = all(r.binders and ((r.reducer.kind is not None and len(r.body) == 1) or _may_choose_in_lanes(r.reducer)) for r in found)
    if not found or not simple or any(keeps_order(r.reducer, d.program.mode) for r in found):
        return
    to = names_of_shared(shared_sums(d, definition))
    yield tuple(dict.fromkeys(to.get(r.binders[-1].name, r.binders[-1].name) for r in found))
    if len(found) == 1:
        yield from ((b.name,) for b in found[0].binders[:-1] if _is_independent(b.name, found[0]))


def _is_independent(name: str, reduce: Reduce) -> bool:
    """Tell whether no range of a reduction is of another binder's value."""
    return not any(name in affine.name_set(bound) for b in reduce.binders for bound in (b.lo, b.hi))


def add_inner_loops(d: Deriver, definition: Definition, order: Sequence[str], inner: InnerLoops) -> list[str]:
    """Split and mark the inner loops of a definition, inside its axes in this order; return the loops outside of them, outermost first."""
    name = definition.tensors[0].name
    shared = add_shared_sums(d, definition)
    binders = dict.fromkeys(shared.get(b.name, b.name) for p in definition.pieces for r in reduces(p.value) for b in r.binders)
    return add_blocks(d, definition, order, [b for b in binders if d.at_once.get(full(name, b)) != 1], inner)


def add_blocks(d: Deriver, definition: Definition, order: Sequence[str], binders: Sequence[str], inner: InnerLoops) -> list[str]:
    """Split and mark the loops over the axes of a definition, in this order, and over binders inside of them; return the loops outside of
    these, outermost first."""
    name, lanes = definition.tensors[0].name, d.lanes_of(definition)
    outer, within, innermost = list(order), list(binders), list[str]()
    asked = names_of_conditions(definition)
    for axis, count in sorted(inner.rows, key=lambda row: row[0] not in asked):  # what is asked of one is asked once for all of another
        d.add(d.schedule.split(full(name, axis), count, (f"{axis}_o", f"{axis}_t")))
        outer[outer.index(axis)] = f"{axis}_o"
        innermost.append(f"{axis}_t")
    unrolled = [f"{axis}_t" for axis, _ in inner.rows]
    for loop in inner.vector:
        there, whole = outer if loop in outer else within, loop
        if there is within and (first := _first_value(d, definition, loop)):
            # Whole vectors are counted from the first term.
            d.add(d.schedule.shift(full(name, loop), -first))
        if inner.phases > 1:
            d.add(d.schedule.split(full(name, loop), inner.phases, (f"{loop}_q", f"{loop}_r")))
            whole = f"{loop}_q"
        register = _lanes_of_choices(d, definition) if loop in outer else None
        apart = register is not None and register < lanes * inner.vectors
        if not apart and _is_one_vector(lanes * inner.vectors) and not _meets_blocks(d, definition, loop, lanes * inner.vectors):
            d.add(d.schedule.split(full(name, whole), lanes * inner.vectors, (f"{loop}_o", f"{loop}_v")))
        else:
            d.add(d.schedule.split(full(name, whole), lanes * inner.vectors, (f"{loop}_o", f"{loop}_w")))
            d.add(d.schedule.split(full(name, f"{loop}_w"), register or lanes, (f"{loop}_u", f"{loop}_v")))
            unrolled.append(f"{loop}_u")
            innermost.append(f"{loop}_u")
        if inner.phases > 1:
            # Right around the lanes, so that the vectors of all phases are written together.
            unrolled.append(f"{loop}_r")
            innermost.append(f"{loop}_r")
        there[there.index(loop)] = f"{loop}_o"
        innermost.append(f"{loop}_v")
    if inner.written:
        unrolled += binders
    if innermost or list(order) != [a for a in definition.axes if a in order]:
        d.add(in_order(d.schedule, name, [*outer, *within, *innermost]))
    if unrolled:
        d.add(d.schedule.unroll(*(full(name, loop) for loop in unrolled)))
    if inner.vector:
        d.add(d.schedule.vectorize(*(full(name, f"{loop}_v") for loop in inner.vector)))
    for tensor in inner.packed:
        _add_copy(d, definition, tensor, inner.vector, lanes * inner.vectors)
    return outer


def _first_value(d: Deriver, definition: Definition, binder: str) -> int | None:
    """Return the constant that the loop of sums over a binder begins with; None where it has none, or sums that share it do not agree."""
    to = names_of_shared(shared_sums(d, definition))
    found = {
        affine.constant(b.lo) for p in definition.pieces for r in reduces(p.value) for b in r.binders if to.get(b.name, b.name) == binder
    }
    return found.pop() if len(found) == 1 else None


def _may_choose_in_lanes(reducer: Reducer) -> bool:
    """Tell whether a reducer comes to one of its terms, and to the same one whatever their order is. What it promises is trusted where a
    schedule is written; nobody asked for lanes here."""
    return is_choice(reducer) and is_commutative(reducer)


def _lanes_of_choices(d: Deriver, definition: Definition) -> int | None:
    """Return how many of the terms a register holds of which a definition keeps one after the other, by what they are compared with; None
    where it keeps none. A mask is as long as such a register: of longer vectors it takes instructions to put together and to take apart."""
    found = [r.reducer for p in definition.pieces for r in reduces(p.value) if len(r.body) > 1 and is_choice(r.reducer)]
    return d.machine.lanes(compute_dtype(found[0].dtypes[0])) if found else None


def _is_one_vector(lanes: int) -> bool:
    """Tell whether so many lanes are a vector of the language that registers hold as it is: other numbers are filled up to a power of
    two."""
    return lanes <= MOST_LANES and lanes & (lanes - 1) == 0


def _meets_blocks(d: Deriver, definition: Definition, loop: str, width: int) -> bool:
    """Tell whether so many neighbours along a loop lie in several blocks of something that is read."""
    for read in (r for p in definition.pieces for r in reads(p.value)):
        storage, axes = d.layouts.get(read.tensor), d.axes.get(read.tensor, ())
        blocks = [block_of(storage, a) for a, slot in zip(axes, read.index, strict=False) if slot == AffineName(loop)]
        if any(block is not None and block % width for block in blocks):
            return True
    return False


def _add_copy(d: Deriver, definition: Definition, tensor: str, vector: Sequence[str], width: int) -> None:
    """Copy a tensor before everything else, so that its elements along the vectors are neighbours, unless that is done already."""
    read = next(r for p in definition.pieces for e in reduces(p.value) for r in reads(e) if r.tensor == tensor)
    to = names_of_shared(shared_sums(d, definition))
    slots = [slot.name for slot in read.index if isinstance(slot, AffineName)]
    (neighbours,) = {to.get(name, name) for name in slots} & {*vector}
    alone = None
    if neighbours in definition.axes and _has_rows_for_others(d, definition, tensor):
        alone = Along(definition.tensors[0].name, neighbours)
    called = zip(slots, axes_of_copy(d.program, tensor, len(slots), alone), strict=True)
    names = {to.get(name, name): axis for name, axis in called}
    binders = {b.name for p in definition.pieces for e in reduces(p.value) for b in e.binders}
    outer = [axis for n, axis in names.items() if n != neighbours and n not in binders]
    summed = [axis for n, axis in names.items() if n in binders and n != neighbours]
    dims = (*outer, f"{names[neighbours]} // {width}", *summed, f"{names[neighbours]} % {width}")
    there = d.schedule.pack(tensor, dims, in_=str(alone) if alone else None).directives[-1] in d.schedule.directives
    d.add(d.schedule if there else root_copy(d, d.schedule, tensor, dims, alone))


def _has_rows_for_others(d: Deriver, definition: Definition, tensor: str) -> bool:
    """Tell whether another definition reads neighbours in memory of a tensor for neighbours of its own: it had better read them there."""
    storage, axes = d.layouts.get(tensor), d.axes.get(tensor, ())
    found = ((x, r) for x in d.program.definitions if x is not definition for p in x.pieces for r in reads(p.value) if r.tensor == tensor)
    return any(unit_stride(r.index, storage, axes, a) for x, r in found for a in x.axes if a in index_names(r))
