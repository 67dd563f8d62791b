"""Which loops of an equation run innermost: candidates, each with what an element costs in cycles.

    vector      the loop whose iterations are lanes: an axis, or of every reduction the binder that lanes may share
    vectors     registers side by side along it
    phases      of the axis along which vectors run: every second element is a loop of its own where equations are for every second element
    rows        axes of which several points are computed together
    packed      tensors that are copied before everything else, so that lanes read neighbours

Sums of one equation over the same ranges that read an element in common share their loops: what several read is loaded once.

    y[i] = (sum(j) x[i, j] * w[j]) / (sum(k) x[i, k])   →   order y.0.acc.init, y.0.acc1.init, y.0.acc, y.0.acc1
                                                            together y.j, y.k -> j

A candidate's cycles are the largest of what its loads, its stores and its arithmetic take (ports), and of what one accumulator after
the other takes (latency). Elements that all lanes read alike are one load, neighbours one load a register, others some for each lane.
What sums read again is loaded again where the loops in between touch more than a cache holds, the first or the second (`_Reloads`): that
depends on the order of all loops, and rows that lie a power of two apart use a few sets of the cache, unless they are copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from math import ceil, gcd, inf, log2, prod
from types import MappingProxyType

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import Compare, Cond, Floor, Mod, Scale
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.once import once
from tensorlang.check.law_tests import is_commutative
from tensorlang.lower.prefetch import LINE_BYTES
from tensorlang.policy.cpu.cost import (
    COPY_BYTES,
    FAR_BYTES,
    FAR_LOADS,
    FORWARD_CYCLES,
    LATENCY_CYCLES,
    LOADS,
    LOOP_CYCLES,
    MASKED_LOADS,
    NEAR_BYTES,
    OVERLAPPED_STEPS,
    SPILL_CYCLES,
    STRIDED_LOADS,
    load_cycles,
    multiply_cycles,
    store_cycles,
)
from tensorlang.policy.cpu.padded import root_copy
from tensorlang.policy.cpu.register_tiles import ROWS_IN_A_SET
from tensorlang.policy.cpu.values import Value, Values, folding
from tensorlang.policy.deriver import Deriver, in_order, reads_itself
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.pack import axes_of_copy
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import OPEN_EXTENT, block_of, step_inside, unit_stride
from tensorlang.tensor.facts import Place, conjuncts, is_choice, is_of_indices, reductions
from tensorlang.tensor.nodes import (
    Binary,
    Definition,
    Dynamic,
    Expr,
    IndexValue,
    Piece,
    Read,
    Reduce,
    Reducer,
    Select,
)
from tensorlang.tensor.nodes import Compare as TensorCompare
from tensorlang.tensor.scop import in_order as keeps_order
from tensorlang.tensor.walk import components, index_names, reads, reduces, substitute, tensor_names, tensor_table

VECTORS = (1, 2, 4, 8, 12)
"""How many registers may lie side by side along the lanes of an axis; of a sum no more than one vector of the language holds."""
UNROLLED = (2, 3, 4, 6, 8)
"""How many points of an axis may be computed together."""
MOST_TOGETHER = 24
"""And of two axes."""
MOST_PHASES = 4
"""Phases of an axis that have loops of their own."""
MOST_STRIDE = 8
"""Elements that neighbours of a vector lie apart at most to be taken out of whole vectors."""
USES_OF_A_COPY = 8
"""Of each element, from which on it is worth a copy in another order."""
MOST_TERMS = 9
"""Terms of a sum that are written out."""
MOST_COPIES = 72
"""And of all that is computed together."""
NOTHING: Mapping[str, int] = MappingProxyType({})
COPY_SHARE = 0.005
"""Of the cycles of a block that each copy of its instructions costs in the cache that holds them: between equals, the shorter code. And of
the cycles in which it loads: between equals, what loads less."""


@dataclass(frozen=True, slots=True)
class InnerLoops:
    """`rows`: axes with how many of their points. `cycles`: for each element of the tensor, on the average."""

    vector: tuple[str, ...] = ()
    vectors: int = 1
    rows: tuple[tuple[str, int], ...] = ()
    packed: tuple[str, ...] = ()
    cycles: float = 0.0
    phases: int = 1

    def points(self, names: Collection[str] | None = None) -> int:
        """Return how many of its points differ in some axes, or how many there are, beside neighbours along vectors."""
        found = 1
        for axis, count in self.rows:
            if names is None or axis in names:
                found *= count
        return found

    def __str__(self) -> str:
        along = f"{self.vectors} vectors along {', '.join(self.vector)}" if self.vector else "no vectors"
        along += f" in {self.phases} phases" if self.phases > 1 else ""
        rows = "".join(f", {count} of {axis}" for axis, count in self.rows)
        packed = f", {', '.join(self.packed)} packed" if self.packed else ""
        return f"{along}{rows}{packed}: {self.cycles:.2f}"


def best_inner_loops(d: Deriver, definition: Definition, free: Sequence[str], distances: Mapping[str, int] = NOTHING) -> InnerLoops:
    """Return the cheapest candidate. `free`: the axes whose loops carry no dependence. `distances`: of others, of which so many points,
    one after the other, need none of each other."""
    return ByOrder(d, definition, candidates(d, definition, free, distances)).best(definition.axes)


class ByOrder:
    """Some candidates, at least one, of which the cheapest depends on the order of the loops outside of them. `joined`: as in
    `candidates`."""

    def __init__(self, d: Deriver, definition: Definition, found: Iterable[InnerLoops], *, joined: bool = False) -> None:
        self._cost = _Cost(d, definition, joined=joined)
        self._found = sorted(found, key=lambda c: c.cycles + (self._cost.copying(c) if self._cost.is_near else 0.0))
        self._reloads: list[_Reloads] = []

    def best(self, order: Sequence[str]) -> InnerLoops:
        """Return the cheapest where the loops outside run over the axes in this order: a processor computes while it loads, and the
        first-level cache takes what it is sent again in cycles in which it answers no loads (the execution-cache-memory model: Treibig and
        Hager 2009). While copies are made it does neither."""
        cheapest, *_ = self._found
        if self._cost.is_near:
            return cheapest
        least = inf
        for k, c in enumerate(self._found):
            if c.cycles >= least:
                break
            if k == len(self._reloads):
                self._reloads.append(_Reloads(self._cost, c))
            again = self._reloads[k].cycles(order)
            sent = again + self._reloads[k].loading if again else 0.0
            cycles = max(c.cycles, sent) + COPY_SHARE * again + self._reloads[k].copying
            if cycles < least:
                cheapest, least = c, cycles
        return replace(cheapest, cycles=least)


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
    cost = _Cost(d, definition, joined=joined)
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
        copies = dict.fromkeys(((), crossed, (*crossed, *cost.panels(vector))))
        for vectors in VECTORS if vector else (1,):
            if vectors > 1 and (extent < vectors * cost.lanes or (not _is_one_vector(vectors * cost.lanes) and vector[0] not in free)):
                continue
            if vectors > 1 and any(vectors * cost.lanes > distances[loop] for loop in vector if loop in wide):
                continue
            if vectors > 1 and not ranges.keys().isdisjoint(vector):
                continue
            for phases in phases_along(definition, vector[0]) if vector and vector[0] in free else ():
                # Accumulators lie as far apart as elements do: of more than one vector, registers do not hold them.
                # Of one piece, whole vectors are put together of what the phases of one vector of the language make.
                together = len(definition.pieces) > 1 or vectors * cost.lanes <= MOST_LANES
                if extent >= phases * vectors * cost.lanes and (vectors == 1 or not sums) and together:
                    found = InnerLoops(vector, vectors, phases=phases)
                    yield replace(found, cycles=cost.cycles(found))
            for rows in (*_rows([(a, cost.sizes[a]) for a in reversed(free) if a not in vector]), *(() if vector else near)):
                for packed in copies:
                    found = InnerLoops(vector, vectors, rows, packed)
                    yield replace(found, cycles=cost.cycles(found))


def phases_along(definition: Definition, axis: str) -> tuple[int, ...]:
    """Return of how many elements along an axis, one after the other, equations are for one: the divisors of the remainders that guards ask
    for, and of the quotients by which a definition of one piece reads, `x[i // 2]`, which are others for each phase alone."""
    found = {m.divisor for p in definition.pieces for m in _remainders(p.guard) if axis in affine.name_set(m)}
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


def _quotients(e: Affine | Cond) -> Iterator[Floor]:
    if isinstance(e, Floor):
        yield e
    for part in affine.parts(e):
        yield from _quotients(part)


def pieces_are_phases(definition: Definition, inner: InnerLoops) -> bool:
    """Tell whether the pieces of a definition are the phases of its vectors, each of one remainder, or as many for each part of the other
    axes: the copies of one loop then write whole rows between them."""
    along = {*inner.vector}
    phases = [[m for m in _remainders(p.guard) if m.divisor == inner.phases and affine.name_set(m) == along] for p in definition.pieces]
    return inner.phases > 1 and len(phases) % inner.phases == 0 and all(phases)


def _remainders(guard: Cond) -> Iterator[Mod]:
    for c in affine.conjuncts(guard):
        if isinstance(c, Compare) and c.op == "==":
            yield from (e for e in (c.lhs, c.rhs) if isinstance(e, Mod))


def ranges_of_data(definition: Definition) -> dict[str, frozenset[str]]:
    """Return the binders of sums whose first and last terms data say, `start[i] <= k < start[i + 1]`, with the axes that these data are
    indexed by: points along such an axis have little in common."""
    found: dict[str, frozenset[str]] = {}
    for reduce in (r for p in definition.pieces for r in reduces(p.value) if r.filter is not None):
        limits: dict[str, dict[bool, frozenset[str]]] = {}
        for limit in map(partial(_limit, reduce), conjuncts(reduce.filter)):
            if limit is not None:
                limits.setdefault(limit.binder, {})[limit.lower] = index_names(limit.data) & {*definition.axes}
        found |= {k: sides[False] | sides[True] for k, sides in limits.items() if len(sides) == 2}
    return found


@dataclass(frozen=True, slots=True)
class _Limit:
    """A condition of a sum by which data say where its terms begin, or else end."""

    binder: str
    lower: bool
    data: Expr


def _limit(reduce: Reduce, condition: Expr) -> _Limit | None:
    match condition:
        case TensorCompare("<" | "<=" | ">" | ">=" as op, IndexValue(AffineName(k)), data):
            found = _Limit(k, op in (">", ">="), data)
        case TensorCompare("<" | "<=" | ">" | ">=" as op, data, IndexValue(AffineName(k))):
            found = _Limit(k, op in ("<", "<="), data)
        case _:
            return None
    binders = {b.name for b in reduce.binders}
    return found if found.binder in binders and tensor_names(found.data) and index_names(found.data).isdisjoint(binders) else None


def cycles_of(d: Deriver, definition: Definition, inner: InnerLoops) -> float:
    """Return the cycles of an element, on the average, where elements do not wait for each other. Lanes read neighbours of the tensors
    that `inner` has packed, and write them."""
    return _Cost(d, definition).cycles(inner)


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
    to = _names_of_shared(shared_sums(d, definition))
    yield tuple(dict.fromkeys(to.get(r.binders[-1].name, r.binders[-1].name) for r in found))
    if len(found) == 1 and not definition.axes:
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
    written_out = _is_written_out(d, definition, inner)
    for axis, count in inner.rows:
        d.add(d.schedule.split(full(name, axis), count, (f"{axis}_o", f"{axis}_t")))
        outer[outer.index(axis)] = f"{axis}_o"
        innermost.append(f"{axis}_t")
    unrolled = [f"{axis}_t" for axis, _ in inner.rows]
    for loop in inner.vector:
        there, whole = outer if loop in outer else within, loop
        if inner.phases > 1:
            d.add(d.schedule.split(full(name, loop), inner.phases, (f"{loop}_q", f"{loop}_r")))
            whole = f"{loop}_q"
            unrolled.append(f"{loop}_r")
            innermost.append(f"{loop}_r")
        if _is_one_vector(lanes * inner.vectors) and not _meets_blocks(d, definition, loop, lanes * inner.vectors):
            d.add(d.schedule.split(full(name, whole), lanes * inner.vectors, (f"{loop}_o", f"{loop}_v")))
        else:
            d.add(d.schedule.split(full(name, whole), lanes * inner.vectors, (f"{loop}_o", f"{loop}_w")))
            d.add(d.schedule.split(full(name, f"{loop}_w"), lanes, (f"{loop}_u", f"{loop}_v")))
            unrolled.append(f"{loop}_u")
            innermost.append(f"{loop}_u")
        there[there.index(loop)] = f"{loop}_o"
        innermost.append(f"{loop}_v")
    if written_out:
        within, innermost = [], [*innermost[:-1], *within, innermost[-1]]
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


def shared_sums(d: Deriver, definition: Definition) -> list[list[Reduce]]:
    """Return the sums of a definition that share their loops: those over the same ranges, each of which reads an element that one before it
    reads. Nothing outside says how they run, and no data say which terms they have."""
    name, found = definition.tensors[0].name, list[list[Reduce]]()
    if len(definition.pieces) != 1 or any(loop.startswith(f"{name}.") for loop in d.at_once):
        return []
    for reduce in reductions(definition.pieces[0].value, Place()):
        if reduce.filter is None and reduce.binders:
            read = _reads_of_terms(reduce, reduce)
            into = next((c for c in found if _ranges_alike(c[0], reduce) and any(read & _reads_of_terms(r, reduce) for r in c)), None)
            if into is None:
                found.append([reduce])
            else:
                into.append(reduce)
    found = [c for c in found if len(c) > 1]
    recurs = found and (reads_itself(definition) or any(len(g) > 1 and definition in g for g in components(d.program)))
    return [] if recurs else found


def as_one(definitions: Sequence[Definition]) -> Definition:
    """Return the sums of several definitions of one box, over the same ranges, as one equation of the first of them."""
    first, *_ = definitions
    ranges = next(r for p in first.pieces for r in reduces(p.value))
    value: Expr | None = None
    for definition in definitions:
        to = {a: AffineName(b) for a, b in zip(definition.axes, first.axes, strict=True)}
        for r in (r for p in definition.pieces for r in reduces(p.value)):
            names = {**to, **_as_in(r, ranges)}
            body, asked = tuple(substitute(b, names) for b in r.body), r.filter
            e = replace(r, binders=ranges.binders, body=body, filter=None if asked is None else substitute(asked, names))
            value = e if value is None else Binary("+", value, e)
    assert value is not None
    return replace(first, pieces=(replace(first.pieces[0], value=value),))


def _as_in(reduce: Reduce, other: Reduce) -> dict[str, Affine]:
    """Return the binders of one sum as those of another."""
    return {b.name: AffineName(o.name) for b, o in zip(reduce.binders, other.binders, strict=False)}


def _ranges_alike(first: Reduce, second: Reduce) -> bool:
    to = _as_in(second, first)
    ranges = [(affine.substitute(b.lo, to), affine.substitute(b.hi, to)) for b in second.binders]
    return ranges == [(b.lo, b.hi) for b in first.binders] and affine.substitute_cond(second.where, to) == first.where


def _reads_of_terms(reduce: Reduce, other: Reduce) -> set[Read]:
    """Return what terms of a sum read, with the binders of another, of as many, in the place of its own."""
    return {r for b in reduce.body for r in reads(substitute(b, _as_in(reduce, other)))}


def _may_choose_in_lanes(reducer: Reducer) -> bool:
    """Tell whether a reducer comes to one of its terms, and to the same one whatever their order is. What it promises is trusted where a
    schedule is written; nobody asked for lanes here."""
    return is_choice(reducer) and is_commutative(reducer)


def _names_of_shared(classes: Sequence[Sequence[Reduce]]) -> dict[str, str]:
    """Return the loops of sums that share those of another, by their own names."""
    return {b.name: o.name for first, *others in classes for r in others for b, o in zip(r.binders, first.binders, strict=True)}


def add_shared_sums(d: Deriver, definition: Definition) -> dict[str, str]:
    """Let sums share their loops; return what loops are called that are gone, by their own names."""
    name, classes = definition.tensors[0].name, shared_sums(d, definition)
    numbers = {e: k for k, e in enumerate(reductions(definition.pieces[0].value, Place()))} if classes else {}
    for alike in classes:
        updates = [f"{name}.0.acc{numbers[e] or ''}" for e in alike]
        d.add(d.schedule.order(*(f"{update}.init" for update in updates), *updates))
        for binders in zip(*(r.binders for r in alike), strict=True):
            loops = list(dict.fromkeys(full(name, b.name) for b in binders))
            d.add(d.schedule.together(*loops, into=(binders[0].name,)) if len(loops) > 1 else d.schedule)
    return _names_of_shared(classes)


def _is_written_out(d: Deriver, definition: Definition, inner: InnerLoops) -> bool:
    """Tell whether the terms of a sum are written out: few of them, for vectors of elements a few apart, so that what lies between these is
    loaded once for all terms that take some of it."""
    cost = _Cost(d, definition)
    (piece, *others), along = cost.pieces, inner.vector[:1]
    if others or len(piece.sums) != 1 or inner.phases > 1 or not along or along[0] not in definition.axes:
        return False
    (found,) = piece.sums
    copies = found.steps * inner.vectors * inner.points()
    constant = all(affine.difference(b.hi, b.lo) is not None for r in reduces(definition.pieces[0].value) for b in r.binders)
    apart = any(e.near.get(along[0], 1) > 1 and e.names & {*found.binders} for e in found.work.elements)
    return constant and apart and found.steps <= MOST_TERMS and copies <= MOST_COPIES


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
    called = dict(zip(read.index, axes_of_copy(d.program, tensor, len(read.index)), strict=True))
    to = _names_of_shared(shared_sums(d, definition))
    names = {to.get(slot.name, slot.name): axis for slot, axis in called.items() if isinstance(slot, AffineName)}
    along = next(n for n in names if n in vector)
    binders = {b.name for p in definition.pieces for e in reduces(p.value) for b in e.binders}
    outer = [axis for n, axis in names.items() if n != along and n not in binders]
    summed = [axis for n, axis in names.items() if n in binders and n != along]
    dims = (*outer, f"{names[along]} // {width}", *summed, f"{names[along]} % {width}")
    there = d.schedule.pack(tensor, dims).directives[-1] in d.schedule.directives
    d.add(d.schedule if there else root_copy(d, d.schedule, tensor, dims))


@dataclass(frozen=True, slots=True)
class _Element:
    """What is read: `names` that its index depends on, and along which of them neighbours are neighbours in memory, or lie a few elements
    apart. `size_bytes`: of one, `row_bytes`: of a row of its tensor."""

    read: Read
    names: frozenset[str]
    near: Mapping[str, int]
    size_bytes: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class _Work:
    """What is done for each point: distinct elements, instructions by the names that their values depend on, and accumulators, each as the
    share of a register that lanes of it take. `step`: the binder of the innermost loop of a sum, if any, `kept` the names of values that
    are the same in each step of it, `values` the others, and how many there are of those that are alike."""

    elements: tuple[_Element, ...]
    operations: Mapping[frozenset[str], int]
    accumulators: tuple[float, ...] = ()
    step: frozenset[str] = frozenset()
    kept: tuple[frozenset[str], ...] = ()
    values: Mapping[Value, int] = field(default_factory=dict)

    def varies(self, element: _Element) -> bool:
        """Tell whether an element is another one in each step."""
        return not self.step or not self.step.isdisjoint(element.names)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A reduction: so many `steps`, with `work` in each, and so many times what is done `before` its innermost loop. `joining`: the cycles
    of taking a lane to what lanes before it came to, where that is no instruction of its own; lanes are then taken one after the other."""

    binders: tuple[str, ...]
    steps: float
    work: _Work
    times: float
    before: _Work
    joining: int = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is computed for `elements` elements, about."""

    elements: float
    value: _Work
    sums: tuple[_Sum, ...]
    phases: Mapping[str, int]
    """Axes of which it is for one of so many elements."""


class _Cost:
    """What blocks of a definition cost, in cycles. `joined`: whether all sums share their loops, whatever they read."""

    def __init__(self, d: Deriver, definition: Definition, *, joined: bool = False) -> None:
        self.d, self.definition, self.joined = d, definition, joined
        self.lanes = d.lanes_of(definition)
        self.tensors = tensor_table(d.program)
        self.sizes = {
            axis: float(affine.constant(extent) or OPEN_EXTENT)
            for axis, extent in zip(definition.axes, definition.tensors[0].shape, strict=True)
        }
        for reduce in (r for p in definition.pieces for r in reduces(p.value)):
            for b in reduce.binders:
                self.sizes[b.name] = max(1.0, self._middle(b.hi) - self._middle(b.lo))
        self.ranged = ranges_of_data(definition)
        for binder, axes in self.ranged.items():
            # Rows share the terms out.
            self.sizes[binder] = max(1.0, self.sizes[binder] / prod(self.sizes[a] for a in axes))
        name = definition.tensors[0].name
        self.sizes |= {n: min(size, float(d.at_once[full(name, n)])) for n, size in self.sizes.items() if full(name, n) in d.at_once}
        point = tuple(AffineName(a) for a in definition.axes)
        storage = d.layouts.get(definition.tensors[0].name)
        self.stored_near = {a for a in definition.axes if unit_stride(point, storage, definition.axes, a)}
        self.pieces = [self._piece(p) for p in definition.pieces]

    def _middle(self, e: Affine) -> float:
        """Return a bound in the middle of the loops around it."""
        at = {n: int(self.sizes.get(n, 2 * OPEN_EXTENT)) // 2 for n in affine.name_set(e)}
        return float(affine.evaluate(e, at))

    def _piece(self, piece: Piece) -> _Piece:
        """Return what a piece takes; its elements are one along an axis that its guard has an equation for."""
        pinned = {a for a in self.definition.axes if _pins(piece.guard, a)}
        found = list(reduces(piece.value))
        value, _ = self._work((piece.value,))
        elements = prod(self.sizes[a] for a in self.definition.axes if a not in pinned)
        phases = {a: m.divisor for m in _remainders(piece.guard) for a in affine.name_set(m)}
        alike = [list(dict.fromkeys(found))] if self.joined else shared_sums(self.d, self.definition)
        shared = {r for c in alike for r in c}
        sums = (*(self._sum_of([r]) for r in dict.fromkeys(found) if r not in shared), *map(self._sum_of, alike))
        return _Piece(elements, value, sums, phases)

    def _sum_of(self, alike: Sequence[Reduce]) -> _Sum:
        """Return what sums take that share the loops of the first of them."""
        terms: list[Expr] = []
        folds, other = 0, alike[0]
        for reduce in alike:
            asked = [c for c in conjuncts(reduce.filter) if not is_of_indices(c) and not self._bounds(reduce, c)]
            terms += (e if reduce is other else substitute(e, _as_in(reduce, other)) for e in (*reduce.body, *asked))
            folds += folding(reduce) + bool(asked)
        conditional = any(not is_of_indices(c) and not self._bounds(r, c) for r in alike for c in conjuncts(r.filter))
        binders = tuple(b.name for b in other.binders)
        work, before = self._work(terms, binders[-1:], conditional=conditional)
        every = frozenset((*self.definition.axes, *binders))
        operations = {**work.operations, every: work.operations.get(every, 0) + folds}
        kept = (compute_dtype(t).size_bytes for reduce in alike for t in reduce.reducer.dtypes)
        accumulators = tuple(self.lanes * size / self.d.machine.vector_bytes for size in kept)
        steps, times = (prod(self.sizes[n] for n in some) for some in (binders, binders[:-1]))
        joining = sum(folding(r) for r in alike if r.reducer.kind is None)
        return _Sum(binders, steps, replace(work, operations=operations, accumulators=accumulators), times, before, joining)

    def _bounds(self, reduce: Reduce, condition: Expr) -> bool:
        """Tell whether a condition is where a loop begins or ends, and asked of no term."""
        limit = _limit(reduce, condition)
        return limit is not None and limit.binder in self.ranged

    def _work(self, roots: Sequence[Expr], step: Sequence[str] = (), *, conditional: bool = False) -> tuple[_Work, _Work]:
        """Return what some expressions take, without the reductions in them, and what is done before the innermost loop, whose binder is
        `step`: all that does not depend on it."""
        values = Values(roots, {*step})
        # Loops are split where indices decide.
        asking = (n for n in values.computed if isinstance(n, Select) and not is_of_indices(n.cond))
        guarded = {r for n in asking for r in reads(n)}
        elements = tuple(self._element(n, guarded=conditional or n in guarded) for n in values.computed if isinstance(n, Read))
        kept, taken = values.taken({*self.definition.axes, *step})
        work = _Work(elements, values.operations(before=False), step=frozenset(step), kept=kept, values=taken)
        return work, _Work(tuple(e for e in elements if not work.varies(e)), values.operations(before=True))

    def _element(self, read: Read, *, guarded: bool) -> _Element:
        names, storage, axes = index_names(read), self.d.layouts.get(read.tensor), self.d.axes.get(read.tensor)
        near = {n: 1 for n in names if unit_stride(read.index, storage, axes, n)}
        # Lanes under a condition load what lies apart one by one.
        near = near if guarded or storage is not None else {**near, **self._strides(read)}
        tensor = self.tensors[read.tensor]
        row = prod(affine.constant(e) or OPEN_EXTENT for e in tensor.shape[-1:])
        return _Element(read, names, near, tensor.dtype.size_bytes, row * tensor.dtype.size_bytes)

    def _strides(self, read: Read) -> dict[str, int]:
        """Return the loops along which elements lie a few apart in a row-major tensor, away from edges, and how many."""
        slots = [slot for slot in read.index if not isinstance(slot, Dynamic)]
        if len(slots) < len(read.index):
            return {}
        pitches = [prod(affine.constant(e) or OPEN_EXTENT for e in self.tensors[read.tensor].shape[k + 1 :]) for k in range(len(slots))]
        apart: dict[str, int] = {}
        for n in sorted(index_names(read)):
            steps = [step_inside(slot, n) for slot in slots]
            known = [step * pitch for step, pitch in zip(steps, pitches, strict=True) if step is not None]
            if len(known) == len(slots) and 2 <= sum(known) <= MOST_STRIDE:
                apart[n] = sum(known)
        return apart

    # ------------------------------------------------ candidates

    def cycles(self, c: InnerLoops) -> float:
        along = c.vector[0] if c.phases > 1 else ""
        cycles = (p.elements / (c.phases if p.phases.get(along) == c.phases else 1) * self._of_piece(p, c) for p in self.pieces)
        return sum(cycles) / self.elements + COPY_SHARE * self.loading(c)

    def loading(self, c: InnerLoops) -> float:
        """Return the cycles of an element in which the steps of sums load from the first-level cache, and what registers do not hold goes
        there and back."""
        axis = next((a for a in c.vector if a in self.definition.axes), None)
        width = self.lanes * c.vectors
        points = c.points() * (width if axis is not None else 1)
        total = 0.0
        for piece in self.pieces:
            for s in piece.sums:
                binder = next((b for b in s.binders if b in c.vector), None)
                left = self._registers_left(s.work, c, binder or axis)
                cycles = self._loading(s.work, c, binder or axis, left) + max(0, -left) * SPILL_CYCLES
                total += piece.elements * s.steps / (width if binder is not None else 1) * cycles / points
        return total / self.elements

    def _of_piece(self, piece: _Piece, c: InnerLoops) -> float:
        """Return the cycles of an element of a piece."""
        axis = next((a for a in c.vector if a in self.definition.axes), None)
        together = c.points()
        cycles = self._block(piece.value, c, axis) + self._stores(c, axis)
        for reduction in piece.sums:
            if reduction.before.elements or reduction.before.operations:
                cycles += reduction.times * (self._block(reduction.before, c, axis) - LOOP_CYCLES)
            binder = next((b for b in reduction.binders if b in c.vector), None)
            if binder is not None:
                width = self.lanes * c.vectors
                # What data say begins anywhere in a vector, and ends anywhere.
                covered = reduction.steps / width * _covered(self.sizes[binder], width)
                steps = reduction.steps / width + 1 if binder in self.ranged else covered
                cycles += steps * self._step(reduction.work, c, binder)
                cycles += together * (reduction.joining * width or c.vectors + 2 * log2(self.lanes))
            else:
                short = not self.ranged.keys().isdisjoint(reduction.binders) and reduction.steps <= OVERLAPPED_STEPS
                cycles += reduction.steps * self._step(reduction.work, c, axis, LOOP_CYCLES if short else LATENCY_CYCLES)
        if axis is not None:
            cycles *= _covered(self.sizes[axis] / c.phases, self.lanes)
        cycles *= prod(self._rows_covered(a, count) for a, count in c.rows)
        points = together * (self.lanes * c.vectors if axis is not None else 1)
        return cycles / points * (1 + COPY_SHARE * together * c.vectors)

    def _rows_covered(self, axis: str, count: int) -> float:
        """Return how many points of an axis blocks of `count` take, for each that there is. Of an open extent that they do not divide for
        all sizes, on the average as much is left behind the last of them as in any other block."""
        name, size = full(self.definition.tensors[0].name, axis), self.sizes[axis]
        is_uneven = name not in self.d.at_once and self.d.multiples.get(name, count) % count > 0
        return (size + (count - 1) / 2) / size if is_uneven else _covered(size, count)

    def _step(self, work: _Work, c: InnerLoops, along: str | None, latency: float = LATENCY_CYCLES) -> float:
        """Return the cycles of one step of a reduction for all points of a block, at least `latency`."""
        left = self._registers_left(work, c, along)
        waiting = latency + (FORWARD_CYCLES if left < 0 else 0.0)
        return max(self._block(work, c, along, left), waiting)

    def _registers_left(self, work: _Work, c: InnerLoops, along: str | None) -> int:
        """Return how many registers a step of a block leaves; less than none where it needs more than there are."""
        width = c.vectors if along is not None else 1
        accumulators = c.points() * sum(ceil(width * share) for share in work.accumulators)
        return self.d.machine.vector_registers - accumulators - _live(work, c, along)

    def _loading(self, work: _Work, c: InnerLoops, along: str | None, left: int) -> float:
        """Return the cycles in which a step of a block loads what it reads, and what is the same in all steps and finds no register."""
        loads = sum(self._loads(e, c, along) for e in work.elements if work.varies(e))
        kept = sum(_times(names, c, along) for names in work.kept)
        return load_cycles(loads + max(0, kept - max(0, left)))

    def _block(self, work: _Work, c: InnerLoops, along: str | None, left: int = 0) -> float:
        """Return the cycles of `work` for all points of a block, with vectors along a loop, where so many registers are `left`."""
        operations = sum(count * _times(names, c, along) for names, count in work.operations.items())
        if along is not None:
            # A number that is computed once for all lanes is put into each.
            operations += sum(
                n * _times(v.names, c, along) for v, n in work.values.items() if v.is_computed and along in v.taken_for - v.names
            )
        return max(self._loading(work, c, along, left), multiply_cycles(operations)) + LOOP_CYCLES + max(0, -left) * SPILL_CYCLES

    def _loads(self, element: _Element, c: InnerLoops, along: str | None) -> float:
        again = c.points(element.names)
        if along is None or along not in element.names:
            return again
        apart = (
            1 if element.read.tensor in c.packed else element.near.get(along) if c.phases == 1 else self._in_phase(element, along, c.phases)
        )
        if apart is not None:
            return again * c.vectors * (apart if apart == 1 else STRIDED_LOADS * apart)
        far = float(MASKED_LOADS if along in self.ranged else FAR_LOADS)
        if not any(isinstance(slot, Dynamic) for slot in element.read.index):
            far += LOADS * self._line_cycles(again * c.vectors * self.lanes, element.row_bytes)
        return again * c.vectors * self.lanes * far

    def _in_phase(self, element: _Element, along: str, phases: int) -> int | None:
        """Return how far elements lie apart of which one is read for every so many along an axis; None where that is far."""
        slots = element.read.index
        if element.read.tensor in self.d.layouts or any(isinstance(slot, Dynamic) for slot in slots):
            return None
        *others, last = (affine.substitute(s, {along: Scale(phases, AffineName(along))}) for s in slots if not isinstance(s, Dynamic))
        step = step_inside(last, along) if not any(along in affine.name_set(slot) for slot in others) else None
        return step if step is not None and 1 <= step <= MOST_STRIDE else None

    def _stores(self, c: InnerLoops, axis: str | None) -> float:
        together = c.points()
        if axis is None:
            return store_cycles(together)
        near = axis in self.stored_near or self.definition.tensors[0].name in c.packed
        if not near and c.vectors == c.phases == 1 and self._is_interleaved(c, axis):
            return store_cycles(together * (self.sizes[self.definition.axes[-1]] - 1))  # shuffles of each vector
        if near:
            # All phases of one piece are put together into whole vectors.
            one = 1 if c.phases == 1 else STRIDED_LOADS if len(self.pieces) == 1 else self.lanes
            return store_cycles(together * c.vectors * one)
        stored = together * c.vectors * self.lanes
        tensor = self.definition.tensors[0]
        row_bytes = int(self.sizes[self.definition.axes[-1]]) * tensor.dtype.size_bytes
        return store_cycles(stored * FAR_LOADS) + stored * self._line_cycles(stored, row_bytes)

    def _is_interleaved(self, c: InnerLoops, axis: str) -> bool:
        """Tell whether vectors along an axis are stored between those of all elements of its rows, which are few: whole vectors are put
        together of them."""
        *_, last = self.definition.axes
        few = self.sizes[last] <= MOST_STRIDE and (last, self.sizes[last]) in c.rows
        return few and axis in self.definition.axes[-2:-1] and self.definition.tensors[0].name not in self.d.layouts

    # ------------------------------------------------ copies

    @once
    def elements(self) -> float:
        """How many elements are computed, about."""
        return sum(piece.elements for piece in self.pieces)

    @once
    def summed(self) -> tuple[_Element, ...]:
        """What terms of sums read, once each."""
        return tuple({e.read: e for p in self.pieces for s in p.sums for e in s.work.elements}.values())

    def fits(self, cache_bytes: int) -> bool:
        """Tell whether a cache of so many bytes holds all that sums read."""
        return self._summed_bytes <= cache_bytes

    @once
    def _summed_bytes(self) -> float:
        return sum(map(self.bytes_of, self.summed))

    @property
    def is_near(self) -> bool:
        """Whether the first-level cache holds all that sums read."""
        return self.fits(self.d.machine.l1_bytes)

    def bytes_of(self, element: _Element) -> float:
        """Return the bytes of all elements that are read as this one is."""
        return prod(self.sizes[n] for n in element.names if n in self.sizes) * element.size_bytes

    def copying(self, c: InnerLoops) -> float:
        """Return the cycles of an element that copies take: of rows where the second-level cache does not hold all that sums read, and of
        columns, whose elements are taken out of a line each."""
        return sum(self._copying(e, c.vector) for e in self.summed if e.read.tensor in c.packed) / self.elements

    def _copying(self, element: _Element, vector: tuple[str, ...]) -> float:
        size = self.bytes_of(element)
        across = [n for n in vector if n in element.names and element.near.get(n) != 1]
        if not across:
            return 0.0 if self.fits(self.d.machine.l2_bytes) else size / COPY_BYTES
        again = self._line_cycles(prod(self.sizes[n] for n in across), element.row_bytes)
        return size / element.size_bytes * (load_cycles(FAR_LOADS) + again)

    def _line_cycles(self, rows: float, row_bytes: int) -> float:
        """Return the cycles in which the line of an element comes again, where one of each of so many rows is touched before what is beside
        it: none where the first-level cache holds all these lines, of which rows a power of two apart share few of its sets."""
        machine = self.d.machine
        lines = rows * max(LINE_BYTES, gcd(row_bytes, _way_bytes(machine.l1_bytes)))
        return 0.0 if lines <= machine.l1_bytes else LINE_BYTES / (NEAR_BYTES if lines <= machine.l2_bytes else FAR_BYTES)

    def panels(self, vector: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tensors of whose rows lanes read neighbours, and other columns only for other elements, where the second-level cache
        does not hold all that sums read: copied, these columns lie one after the other."""
        if self.fits(self.d.machine.l2_bytes):
            return ()
        rows = [e for e in self.summed for loop in vector if loop in self.definition.axes and e.near.get(loop) == 1 and len(e.names) > 1]
        return tuple(dict.fromkeys(e.read.tensor for e in rows if self._is_worth_copying(e)))

    def crossed(self, vector: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tensors that a copy may have neighbours along `vector` of, where they are used often enough to be worth one."""
        summed = [e for p in self.pieces for s in p.sums for e in s.work.elements]
        far = [e for e in summed for loop in vector if loop in e.names and loop not in e.near]
        return tuple(dict.fromkeys(e.read.tensor for e in far if self._is_worth_copying(e)))

    def _is_worth_copying(self, element: _Element) -> bool:
        tensor, index = element.read.tensor, element.read.index
        made = {t.name for x in self.d.program.definitions for t in x.tensors}
        plain = all(isinstance(slot, AffineName) for slot in index) and len(set(index)) == len(index)
        alike = len({r.index for p in self.definition.pieces for r in reads(p.value) if r.tensor == tensor}) == 1
        uses = prod(self.sizes[a] for a in self.definition.axes if a not in element.names)
        return plain and alike and tensor not in made and tensor not in self.d.layouts and uses >= USES_OF_A_COPY


class _Reloads:
    """What sums load again from caches, for one candidate, whatever order the loops around its blocks have: how much that is depends on
    which loops are inside of another, and not on their order, so each set of them is looked at once."""

    def __init__(self, cost: _Cost, candidate: InnerLoops) -> None:
        self._cost, self._packed = cost, frozenset(candidate.packed)
        self.copying, self.loading = cost.copying(candidate), cost.loading(candidate)
        rows = dict(candidate.rows)
        self._together = {
            n: rows.get(n, 1) * (candidate.phases * candidate.vectors * cost.lanes if n in candidate.vector else 1) for n in cost.sizes
        }
        self._sums = [s for p in cost.pieces for s in p.sums]
        self._inside: dict[tuple[int, int, frozenset[str]], float] = {}
        self._loaded: dict[tuple[int, str, frozenset[str]], float] = {}

    def cycles(self, order: Sequence[str]) -> float:
        """Return the cycles of an element that it takes to load again what sums read, from the second-level cache or from memory, where
        loops over blocks of the axes run in this order around those of each sum: what the loops inside of one touch is there in its next
        turn if the cache holds it."""
        machine = self._cost.d.machine
        near, far = self._again(order, machine.l1_bytes) / NEAR_BYTES, self._again(order, machine.l2_bytes) / FAR_BYTES
        return max(near, far) / self._cost.elements

    def _again(self, order: Sequence[str], cache_bytes: int) -> float:
        """Return the bytes that a cache of so many loads again."""
        if self._cost.fits(cache_bytes):
            return 0.0
        loaded = 0.0
        for number, reduction in enumerate(self._sums):
            loops, inside = [*order, *reduction.binders], frozenset[str]()
            while loops and self._touched_inside(number, inside | {loops[-1]}, cache_bytes) <= cache_bytes:
                inside |= {loops.pop()}
            if loops:
                loaded += self._loaded_again(number, loops[-1], inside)
        return loaded

    def _touched_inside(self, number: int, loops: frozenset[str], cache_bytes: int) -> float:
        """Return the bytes of a cache of so many that loops touch in the terms of a sum."""
        key = number, cache_bytes, loops
        if key not in self._inside:
            self._inside[key] = sum(self._touched(e, loops, cache_bytes) for e in self._sums[number].work.elements)
        return self._inside[key]

    def _loaded_again(self, number: int, around: str, within: frozenset[str]) -> float:
        """Return the bytes that the terms of a sum load again where the cache holds what the loops `within` touch, and not what the one
        `around` them does: what stands beside an element in a line is there for the next turn of that."""
        key = number, around, within
        if key not in self._loaded:
            reduction, sizes = self._sums[number], self._cost.sizes
            every = {*self._cost.definition.axes, *reduction.binders}
            turns = prod(max(1.0, sizes[n] / self._together[n]) for n in sorted(every - within - {around}))
            kept = {e.read: within | {around} if around in e.names else within for e in reduction.work.elements}
            loaded = (turns * self._touched(e, kept[e.read]) - self._cost.bytes_of(e) for e in reduction.work.elements)
            self._loaded[key] = sum(loaded)
        return self._loaded[key]

    def _touched(self, element: _Element, loops: frozenset[str], cache_bytes: int = 0) -> float:
        """Return the bytes of the lines of an element's tensor that some loops touch in a turn of those around them. Of a cache of so many
        bytes, as many as it has where these can lie: rows a power of two apart use a few of its sets."""
        sizes, size, row = self._cost.sizes, element.size_bytes, element.row_bytes
        extent = {n: sizes[n] if n in loops else min(sizes[n], self._together[n]) for n in element.names if n in sizes}
        if element.read.tensor in self._packed:
            return prod(extent.values()) * size
        along = min(row, sum((n - 1) * element.near[name] for name, n in extent.items() if name in element.near) * size + size)
        rows = prod(n for name, n in extent.items() if name not in element.near)
        if rows == 1:
            return along
        width = max(along, min(row, LINE_BYTES))
        return rows * max(width, gcd(row, _way_bytes(cache_bytes)) if cache_bytes else 0)


def _way_bytes(cache_bytes: int) -> int:
    """Return how far apart lines share a set of a cache: there is a power of two of sets, however many lines each of them holds."""
    return 1 << (cache_bytes // ROWS_IN_A_SET).bit_length() - 1


def _times(names: frozenset[str], c: InnerLoops, along: str | None) -> int:
    """Return how many values a block has of one that depends on some names, with vectors along a loop."""
    return c.points(names) * (c.vectors if along is not None and along in names else 1)


def _live(work: _Work, c: InnerLoops, along: str | None) -> int:
    """Return how many registers a step of a block needs beside its accumulators: for vectors that several sums or rows take, for an
    element that all lanes take, and for what is on its way. Of what the rows of one sum take, what there is most of comes one by one."""
    width = c.vectors if along is not None else 1
    shared, own = 1, dict[int, list[tuple[int, int]]]()
    for value, count in work.values.items():
        wider = value.taken_for - value.names
        if along is not None and along not in value.names:
            held = int(along in wider or any(a in wider for a, _ in c.rows))
        elif any(a in wider for a, _ in c.rows):
            held = width * c.points(value.names)
        else:
            held = width if value.term is None else int(value.repeated)
        if value.term is None:
            shared += held * count
        else:
            own.setdefault(value.term, []).append((held, count))
    most = {term: max(held for held, _ in values) for term, values in own.items()}
    return shared + sum(sum(held * n for held, n in values) - most[term] + min(most[term], width) for term, values in own.items())


def _covered(extent: float, step: int) -> float:
    """Return how many iterations steps of so many take, for each that there is."""
    return ceil(extent / step) * step / extent


def _pins(guard: Cond, axis: str) -> bool:
    """Tell whether a guard asks for one element along an axis; one of every few is no such thing."""
    equations = (c for c in affine.conjuncts(guard) if isinstance(c, Compare) and c.op == "==")
    return any(axis in affine.name_set(e) for c in equations for e in (c.lhs, c.rhs) if not isinstance(e, Mod))
