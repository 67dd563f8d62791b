"""What an element costs in cycles where certain loops of its equation run innermost.

The cycles are the largest of what a block's loads, its stores and its arithmetic take (ports), and of what one accumulator after the other
takes (latency). Elements that all lanes read alike are one load, neighbours one load a register, others some for each lane. What sums read
again is loaded again where the loops in between touch more than a cache holds, the first or the second (`reloads`): that depends on the
order of all loops, and rows that lie a power of two apart use a few sets of the cache, unless they are copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2, prod

from codegen.dtypes import compute_dtype
from codegen.loops.partial_sums import ROOM, parts, parts_latency
from codegen.loops.partition import LEAST_ITERATIONS
from codegen.loops.searches import LEAST
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.expr import Scale
from polyhedral.once import once
from tensorlang.lower.prefetch import LINE_BYTES
from tensorlang.policy.cpu.along import is_other, pins, remainders, shared_along, turns
from tensorlang.policy.cpu.cost import (
    AHEAD_BYTES,
    ASKING_LOADS,
    BRANCH_CYCLES,
    COPY_BYTES,
    COUNTED_SHARE,
    FAR_BYTES,
    FAR_LOADS,
    FORWARD_CYCLES,
    GATHERED_LOADS,
    LATENCY_CYCLES,
    LOADS,
    LOOP_CYCLES,
    MASKED_LOADS,
    MOST_STRIDE,
    NEAR_BYTES,
    OVERLAPPED_STEPS,
    PAGE_BYTES,
    PICKED_LOADS,
    SPILL_CYCLES,
    STRIDED_LOADS,
    load_cycles,
    multiply_cycles,
    store_cycles,
)
from tensorlang.policy.cpu.footprints import bytes_of_lines, distinct, held
from tensorlang.policy.cpu.ragged_rows import ragged_rows
from tensorlang.policy.cpu.shared_sums import as_in, shared_sums
from tensorlang.policy.cpu.values import Value, Values, folding
from tensorlang.policy.deriver import Deriver, row_bytes
from tensorlang.policy.folds import kept_by_steps
from tensorlang.policy.pointwise import picked_in_registers
from tensorlang.policy.scatters import limit_of, ranges_of_data
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import OPEN_EXTENT, names_of_slot, step_in_memory, step_inside, unit_stride
from tensorlang.tensor.facts import conjuncts, is_of_indices, is_search
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Piece, Read, Reduce, Select
from tensorlang.tensor.walk import components, index_names, is_recurrence, nodes, reads, reduces, substitute, tensor_table

COPY_SHARE = 0.005
"""Of the cycles of a block that each copy of its instructions costs in the cache that holds them: between equals, the shorter code. And of
the cycles in which it loads: between equals, what loads less."""
FOUND_CYCLES = 4
"""Of telling from a mask which lane is the first that a search has found."""
USES_OF_A_COPY = 8
"""Of each element, from which on it is worth a copy in another order."""


@dataclass(frozen=True, slots=True)
class InnerLoops:
    """`rows`: axes with how many of their points. `cycles`: for each element of the tensor, on the average. `written`: whether all terms of
    its sum are written out."""

    vector: tuple[str, ...] = ()
    vectors: int = 1
    rows: tuple[tuple[str, int], ...] = ()
    packed: tuple[str, ...] = ()
    cycles: float = 0.0
    phases: int = 1
    written: bool = False

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
        written = ", all terms written out" if self.written else ""
        return f"{along}{rows}{packed}{written}: {self.cycles:.2f}"


def cycles_of(d: Deriver, definition: Definition, inner: InnerLoops, along: str | None = None) -> float:
    """Return the cycles of an element, on the average, where elements do not wait for each other. Lanes read neighbours of the tensors
    that `inner` has packed, and write them. `along`: the axis whose loop is the one right around a block: what is the same in all of its
    iterations stays in registers, as far as there are any."""
    return BlockCost(d, definition, along=along).cycles(inner)


def names_of_conditions(definition: Definition) -> frozenset[str]:
    """Return the names that conditions of sums depend on which data answer."""
    found = (c for p in definition.pieces for r in reduces(p.value) for c in conjuncts(r.filter) if not is_of_indices(c))
    return frozenset[str]().union(*map(index_names, found))


@dataclass(frozen=True, slots=True)
class Element:
    """What is read: `names` that its index depends on, and along which of them neighbours are neighbours in memory, or lie a few elements
    apart; for how many values of one, one after the other, it is `shared`, as `x[k // 2]` is for two. `size_bytes`: of one, `row_bytes`: of
    a row of its tensor. `questions`: what it takes to ask whether it is there, in loads of one element: data say where it lies, on one side
    of a choice."""

    read: Read
    names: frozenset[str]
    near: Mapping[str, int]
    size_bytes: int
    row_bytes: int
    questions: int = 0
    shared: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is done for each point: distinct elements, instructions by the names that their values depend on, and accumulators, each as the
    share of a register that lanes of it take. `step`: the binder of the innermost loop of a sum, if any, `kept` the names of values that
    are the same in each step of it, `values` the others, and how many there are of those that are alike."""

    elements: tuple[Element, ...]
    operations: Mapping[frozenset[str], int]
    accumulators: tuple[float, ...] = ()
    step: frozenset[str] = frozenset()
    kept: tuple[frozenset[str], ...] = ()
    values: Mapping[Value, int] = field(default_factory=dict)
    edges: frozenset[str] = frozenset()

    def varies(self, element: Element) -> bool:
        """Tell whether an element is another one in each step."""
        return not self.step or not self.step.isdisjoint(element.names)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A reduction: so many `steps`, with `work` in each, and so many times what is done `before` its innermost loop. `joining`: the cycles
    of taking a lane to what lanes before it came to, where that is no instruction of its own; lanes are then taken one after the other.
    `searched`: in bytes, the widest that is read, where the loop looks for a term and keeps nothing for each lane. `conditions`: what each
    of those depends on that data answer. `is_even`: whether there are as many of its terms, a known number, for each element."""

    binders: tuple[str, ...]
    steps: float
    work: _Work
    times: float
    before: _Work
    joining: int = 0
    searched: int = 0
    conditions: tuple[frozenset[str], ...] = ()
    is_even: bool = False


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is computed for `elements` elements, about."""

    elements: float
    value: _Work
    sums: tuple[_Sum, ...]
    phases: Mapping[str, int]
    """Axes of which it is for one of so many elements."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The cycles of one step of a sum for all points of a block: of its loads, of its arithmetic, of what registers do not hold, and of the
    loop. `binder`: the one whose iterations are lanes, if any."""

    binder: str | None
    loading: float
    computing: float
    spilling: float
    looping: float = LOOP_CYCLES

    def cycles(self, latency: float) -> float:
        """Return the cycles of the step, at least those until its accumulators are there again."""
        waiting = latency + (FORWARD_CYCLES if self.spilling else 0.0)
        return max(max(self.loading, self.computing) + self.looping + self.spilling, waiting)


@dataclass(frozen=True, slots=True)
class _Window:
    """What terms that are written out load of an element, the registers that hold what several of them take, the most at a time, and how
    often they take some of it: without registers it is stored once, and loaded each time but the first."""

    loads: float
    held: int
    taken: float


def _asked_always(choices: Sequence[Select]) -> set[Read]:
    """Return what the conditions of those of some choices read that are on no side of another."""
    on_sides = {n for c in choices for side in (c.then, c.orelse) for n in nodes(side) if isinstance(n, Select)}
    return {r for c in choices if c not in on_sides for r in reads(c.cond)}


class BlockCost:
    """What blocks of a definition cost, in cycles. `joined`: whether all sums share their loops, whatever they read; `along`: the axis
    whose loop is right around blocks, where that is known."""

    def __init__(self, d: Deriver, definition: Definition, *, joined: bool = False, along: str | None = None) -> None:
        self.d, self.definition, self.joined, self.along = d, definition, joined, along
        self.lanes = d.lanes_of(definition)
        self.tensors = {**tensor_table(d.program)}
        self.tensors |= {n: replace(t, shape=(t.shape[-1], *t.shape[:-1])) for n in self._by_steps for t in (self.tensors[n],)}
        self.sizes = {
            axis: float(affine.constant(extent) or OPEN_EXTENT)
            for axis, extent in zip(definition.axes, definition.tensors[0].shape, strict=True)
        }
        for reduce in (r for p in definition.pieces for r in reduces(p.value)):
            for b in reduce.binders:
                self.sizes[b.name] = max(1.0, self._middle(b.hi) - self._middle(b.lo))
        self.ranged, self.ragged = ranges_of_data(definition), ragged_rows(definition, self.sizes)
        for binder, axes in self.ranged.items():
            # Rows share the terms out.
            self.sizes[binder] = max(1.0, self.sizes[binder] / prod(self.sizes[a] for a in axes))
        name = definition.tensors[0].name
        self.sizes |= {n: min(size, float(d.at_once[full(name, n)])) for n, size in self.sizes.items() if full(name, n) in d.at_once}
        point = self._in_memory(Read(name, tuple(AffineName(a) for a in definition.axes)))
        self.stored_near = {a for a in definition.axes if unit_stride(point, d.layouts.get(name), definition.axes, a)}
        self.pieces = [self._piece(p) for p in definition.pieces]

    def _middle(self, e: Affine) -> float:
        """Return a bound in the middle of the loops around it."""
        at = {n: int(self.sizes.get(n, 2 * OPEN_EXTENT)) // 2 for n in affine.name_set(e)}
        return float(affine.evaluate(e, at))

    def _piece(self, piece: Piece) -> _Piece:
        """Return what a piece takes; its elements are one along an axis that its guard has an equation for."""
        pinned = {a for a in self.definition.axes if pins(piece.guard, a)}
        found = list(reduces(piece.value))
        value, _ = self._work((piece.value,), () if self.along is None else (self.along,))
        elements = prod(self.sizes[a] for a in self.definition.axes if a not in pinned)
        phases = {a: m.divisor for m in remainders(piece.guard) for a in affine.name_set(m)}
        alike = [list(dict.fromkeys(found))] if self.joined else shared_sums(self.d, self.definition)
        shared = {r for c in alike for r in c}
        sums = (*(self._sum_of([r]) for r in dict.fromkeys(found) if r not in shared), *map(self._sum_of, alike))
        return _Piece(elements, value, sums, phases)

    def _sum_of(self, alike: Sequence[Reduce]) -> _Sum:
        """Return what sums take that share the loops of the first of them."""
        terms: list[Expr] = []
        folds, other = 0, alike[0]
        conditions = list[frozenset[str]]()
        for reduce in alike:
            asked = [c for c in conjuncts(reduce.filter) if not is_of_indices(c) and not self._bounds(reduce, c)]
            of_first = [e if reduce is other else substitute(e, as_in(reduce, other)) for e in (*reduce.body, *asked)]
            terms += of_first
            folds += folding(reduce) + bool(asked)
            conditions += (index_names(e) - {*self.d.program.sizes} for e in of_first[len(reduce.body) :])
        conditional = any(not is_of_indices(c) and not self._bounds(r, c) for r in alike for c in conjuncts(r.filter))
        binders = tuple(b.name for b in other.binders)
        work, before = self._work(terms, binders[-1:], conditional=conditional)
        every = frozenset((*self.definition.axes, *binders))
        operations = {**work.operations, every: work.operations.get(every, 0) + folds}
        kept = (compute_dtype(t).size_bytes for reduce in alike for t in reduce.reducer.dtypes)
        accumulators = tuple(self.lanes * size / self.d.machine.vector_bytes for size in kept)
        steps, times = (prod(self.sizes[n] for n in some) for some in (binders, binders[:-1]))
        joining = sum(folding(r) for r in alike if r.reducer.kind is None)
        # Whether any or all hold is asked of vectors one by one where there are enough of them.
        ends = other.reducer.kind in ("min", "max") or (bool(binders) and self.sizes[binders[-1]] >= LEAST * self.lanes)
        searched = max((e.size_bytes for e in work.elements), default=0) if len(alike) == 1 and is_search(other) and ends else 0
        is_even = all(affine.constant(bound) is not None for b in other.binders for bound in (b.lo, b.hi))
        return _Sum(
            binders,
            steps,
            replace(work, operations=operations, accumulators=accumulators),
            times,
            before,
            joining,
            searched,
            tuple(conditions),
            is_even,
        )

    def _bounds(self, reduce: Reduce, condition: Expr) -> bool:
        """Tell whether a condition is where a loop begins or ends, and asked of no term."""
        limit = limit_of(condition)
        own = {b.name for b in reduce.binders}
        return limit is not None and limit.index in self.ranged and index_names(limit.data).isdisjoint(own)

    def _work(self, roots: Sequence[Expr], step: Sequence[str] = (), *, conditional: bool = False) -> tuple[_Work, _Work]:
        """Return what some expressions take, without the reductions in them, and what is done before the innermost loop, whose binder is
        `step`: all that does not depend on it."""
        values = Values(roots, {*step})
        # Loops are split where indices decide.
        choices = [n for n in values.computed if isinstance(n, Select)]
        asking = [n for n in choices if not is_of_indices(n.cond)]
        edges = frozenset[str]().union(*(index_names(n.cond) for n in choices if is_of_indices(n.cond)))
        guarded = {r for n in asking for side in (n.then, n.orelse) for r in reads(side)} - _asked_always(asking)
        read = [n for n in values.computed if isinstance(n, Read)]
        elements = tuple(self._element(n, guarded=conditional or n in guarded, on_a_side=n in guarded) for n in read)
        kept, taken = values.taken({*self.definition.axes, *step})
        work = _Work(elements, values.operations(before=False), step=frozenset(step), kept=kept, values=taken, edges=edges)
        return work, _Work(tuple(e for e in elements if not work.varies(e)), values.operations(before=True))

    def _element(self, read: Read, *, guarded: bool, on_a_side: bool) -> Element:
        names, storage, axes = self._names(read), self.d.layouts.get(read.tensor), self.d.axes.get(read.tensor)
        near = {n: 1 for n in names if unit_stride(self._in_memory(read), storage, axes, n)}
        # Lanes under a condition load what lies apart one by one.
        near = near if guarded or storage is not None else {**near, **self._strides(read)}
        tensor = self.tensors[read.tensor]
        questions = ASKING_LOADS if on_a_side and any(isinstance(slot, Dynamic) for slot in read.index) else 0
        shared = {} if guarded or storage is not None else shared_along(read, names)
        return Element(read, names, near, tensor.dtype.size_bytes, row_bytes(self.d, tensor), questions, shared)

    def _names(self, read: Read) -> frozenset[str]:
        """Return the loops that a read depends on, but for the axis of a recurrence of whose steps it looks up one before: that one was
        computed just now, and lies where the step before it lay."""
        at = self._stepped.get(read.tensor)
        others = (slot for k, slot in enumerate(read.index) if k != at)
        return self._loops(read if at is None else replace(read, index=tuple(others)))

    def _loops(self, read: Read) -> frozenset[str]:
        """Return the loops that the index of a read depends on; sizes that are open are none."""
        return index_names(read) - {*self.d.program.sizes}

    @once
    def _stepped(self) -> Mapping[str, int]:
        """Of the tensors that a recurrence has beside the definition at hand, the first dimension in which all of its reads lie a number of
        steps from an axis."""
        own, out = {t.name for t in self.definition.tensors}, dict[str, int]()
        found = [(r, m) for m in self._group for piece in m.pieces for r in reads(piece.value)]
        for name in sorted({t.name for m in self._group for t in m.tensors} - own):
            steps = [{k for k, slot in enumerate(r.index) if is_other(slot, m.axes)} for r, m in found if r.tensor == name]
            every = frozenset[int]().union(*steps).intersection(*steps)
            out |= {name: min(every)} if every else {}
        return out

    def _strides(self, read: Read) -> dict[str, int]:
        """Return the loops along which elements lie a few apart in a row-major tensor, away from edges, and how many; -1 of neighbours that
        lie backwards."""
        index, shape = self._in_memory(read), self.tensors[read.tensor].shape
        found = {n: step_in_memory(index, shape, n) for n in sorted(self._loops(read))}
        return {n: step for n, step in found.items() if step is not None and (step == -1 or 2 <= step <= MOST_STRIDE)}

    # ------------------------------------------------ candidates

    def counted(self, c: InnerLoops) -> InnerLoops:
        """Return a candidate with its cycles."""
        return replace(c, cycles=self.cycles(c))

    def cycles(self, c: InnerLoops) -> float:
        """Return the cycles of an element, on the average, where what is loaded from memory again is there."""
        along, found = c.vector[0] if c.phases > 1 else "", 0.0
        steps = self._steps(c)
        for piece, taken in zip(self.pieces, steps, strict=True):
            found += piece.elements / (c.phases if piece.phases.get(along) == c.phases else 1) * self._of_piece(piece, c, taken)
        return found / self.elements + COPY_SHARE * self._loading_of(c, steps)

    def loading(self, c: InnerLoops) -> float:
        """Return the cycles of an element in which the steps of sums load from the first-level cache, and what registers do not hold goes
        there and back."""
        return self._loading_of(c, self._steps(c))

    def _loading_of(self, c: InnerLoops, steps: Sequence[Sequence[_Step]]) -> float:
        width = self.lanes * c.vectors
        points = c.points() * (width if self._axis(c) is not None else 1)
        total = 0.0
        for piece, taken in zip(self.pieces, steps, strict=True):
            for s, step in zip(piece.sums, taken, strict=True):
                total += piece.elements * s.steps / (width if step.binder is not None else 1) * (step.loading + step.spilling) / points
        return total / self.elements

    def _axis(self, c: InnerLoops) -> str | None:
        """Return the axis whose neighbours are lanes; None where lanes share sums, or there are none."""
        return next((a for a in c.vector if a in self.definition.axes), None)

    def _steps(self, c: InnerLoops) -> list[list[_Step]]:
        """Return what a step of each sum takes, piece by piece."""
        axis = self._axis(c)
        return [[self._step(s, c, axis) for s in piece.sums] for piece in self.pieces]

    def _of_piece(self, piece: _Piece, c: InnerLoops, taken: Sequence[_Step]) -> float:
        """Return the cycles of an element of a piece, whose sums take so much in each step."""
        axis = self._axis(c)
        together = c.points()
        cycles = self._block(piece.value, c, axis) + self._stores(c, axis)
        for reduction, step in zip(piece.sums, taken, strict=True):
            if reduction.before.elements or reduction.before.operations:
                cycles += reduction.times * (self._block(reduction.before, c, axis) - LOOP_CYCLES)
            if step.binder is not None:
                width = self.lanes * c.vectors
                # What data say begins anywhere in a vector, and ends anywhere.
                covered = reduction.steps / width * _covered(self.sizes[step.binder], width)
                steps = reduction.steps / width + 1 if step.binder in self.ranged else covered
                if reduction.searched:
                    cycles += steps * step.cycles(LOOP_CYCLES) + together * FOUND_CYCLES
                else:
                    cycles += steps * step.cycles(LATENCY_CYCLES)
                    cycles += together * (reduction.joining * width or c.vectors + 2 * log2(self.lanes))
            else:
                short = (c.written and axis is None) or not self.ranged.keys().isdisjoint(reduction.binders)
                waiting = step.looping if short and reduction.steps <= OVERLAPPED_STEPS else LATENCY_CYCLES
                if self._is_late(reduction):
                    chains = together * (c.vectors if axis is not None else 1)
                    count = parts(reduction.steps, chains, self.d.machine.vector_registers // ROOM)
                    waiting = parts_latency(reduction.steps, count) / reduction.steps
                    cycles += multiply_cycles(chains * (count - 1))
                cycles += reduction.steps * step.cycles(waiting)
        if axis is not None:
            cycles *= self._axis_covered(axis, self.lanes * c.vectors * c.phases, self.lanes * c.phases)
        cycles *= prod(self._axis_covered(a, count) for a, count in c.rows)
        points = together * (self.lanes * c.vectors if axis is not None else 1)
        return cycles / points * (1 + COPY_SHARE * together * c.vectors)

    def _is_late(self, reduction: _Sum) -> bool:
        """Tell whether the terms of a sum, as many for each element, are made of what a recurrence has just come to: there is nothing to
        compute while they are added up, but for what is added beside them."""
        return reduction.is_even and any(e.read.tensor in self._recurring for e in reduction.work.elements)

    @once
    def _recurring(self) -> frozenset[str]:
        """The tensors of the recurrence that the definition at hand is part of, if it is."""
        return frozenset(t.name for m in self._group for t in m.tensors) if is_recurrence(self._group) else frozenset()

    @once
    def _group(self) -> tuple[Definition, ...]:
        """The definitions that need the one at hand and are needed by it, with itself."""
        own = {t.name for t in self.definition.tensors}
        return next((g for g in components(self.d.program) if any(t.name in own for m in g for t in m.tensors)), ())

    @once
    def _by_steps(self) -> Collection[str]:
        """The tensors of the recurrence at hand of which few steps are kept, along their last axis: these lie one after the other."""
        return kept_by_steps(self.d, self._group) if is_recurrence(self._group) else ()

    def _in_memory(self, read: Read) -> tuple[Affine | Dynamic, ...]:
        """Return the index of a read in the order of the dimensions in memory, of a tensor that nothing is said of."""
        *others, last = read.index or (None,)
        return (last, *others) if read.tensor in self._by_steps and last is not None else read.index

    def _axis_covered(self, axis: str, count: int, known: int | None = None) -> float:
        """Return how many points of an axis blocks of `count` take, for each that there is; of a `known` extent the last may be cut to a
        multiple of that. Of an open extent that they do not divide for all sizes, on the average as much is left behind the last of them
        as in any other block, and that is taken whole."""
        if axis in self.ragged:
            return self.ragged[axis].covered(count)
        name, size = full(self.definition.tensors[0].name, axis), self.sizes[axis]
        is_uneven = name not in self.d.at_once and self.d.multiples.get(name, count) % count > 0
        return (size + (count - 1) / 2) / size if is_uneven else _covered(size, known or count)

    def _step(self, reduction: _Sum, c: InnerLoops, axis: str | None) -> _Step:
        """Return what one step of a sum takes for all points of a block."""
        binder = next((b for b in reduction.binders if b in c.vector), None)
        along = binder or axis
        if binder is not None and reduction.searched:
            # Nothing is kept for each lane, so that these are as wide as what is read.
            registers = ceil(c.vectors * self.lanes * reduction.searched / self.d.machine.vector_bytes)
            c, reduction = replace(c, vectors=registers), replace(reduction, work=replace(reduction.work, accumulators=()))
        left = self._registers_left(reduction.work, c, along)
        computing, spilling = multiply_cycles(self._operations(reduction.work, c, along)), max(0, -left) * SPILL_CYCLES
        if c.written and along is not None:
            windows = [self._window(e, reduction, c, along) for e in reduction.work.elements]
            held = sum(w.held for w in windows)
            unheld = min(1.0, max(0, held - max(0, left)) / max(1, held))
            loads = sum(w.loads + unheld * w.taken for w in windows)
            loads *= prod(1 + self._edge_share(a, count) for a, count in c.rows if a in reduction.work.edges)
            return _Step(binder, load_cycles(loads) / reduction.steps, computing, spilling, LOOP_CYCLES / reduction.steps)
        looping = LOOP_CYCLES / reduction.steps if c.written else LOOP_CYCLES
        loading = self._loading(reduction.work, c, along, left)
        branches = [names for names in reduction.conditions if along is not None and along not in names]
        if branches:
            loading, computing = COUNTED_SHARE * loading, COUNTED_SHARE * computing
            looping += BRANCH_CYCLES * sum(map(c.points, branches))
        return _Step(binder, loading, computing, spilling, looping)

    def _window(self, element: Element, reduction: _Sum, c: InnerLoops, along: str) -> _Window:
        """Return what all terms of a sum load of an element for all points of a block, where they are written out: what several of them
        read is loaded once, and vectors of elements that lie apart are taken out of whole ones that lie side by side."""
        terms = {n: int(self.sizes[n]) for n in reduction.binders if n in element.names}
        counts = terms | {a: n for a, n in c.rows if a in element.names}
        apart = element.near.get(along)
        if along not in element.names or apart is None or abs(apart) == 1 or element.read.tensor in c.packed:
            loads = self._loads(element, replace(c, rows=()), along)
            kept = held(element.read, counts, (*terms,)) * (c.vectors if along in element.names else 1)
            return _Window(distinct(element.read, counts) * loads, kept, prod(counts.values()) * loads)
        beside = {n: counts.pop(n) for n in element.near.keys() & counts.keys()}
        between = sum(abs(element.near[n]) * (count - 1) for n, count in beside.items())
        whole = ceil(((c.vectors * self.lanes - 1) * apart + between + 1) / self.lanes)
        vectors = distinct(element.read, beside) * c.vectors
        kept = max(1, held(element.read, counts, [n for n in terms if n in counts])) * whole
        return _Window(distinct(element.read, counts) * (whole + vectors * (apart - 1)), kept, prod(counts.values()) * vectors * apart)

    def _is_masked(self, c: InnerLoops, along: str) -> bool:
        """Tell whether lanes ask for the ends of a row wherever they are: data say them, or few blocks of it are whole."""
        row = self.ragged.get(along)
        return along in self.ranged or (row is not None and row.length < LEAST_ITERATIONS * c.vectors * self.lanes)

    def _meets_edges(self, element: Element, c: InnerLoops, along: str) -> bool:
        """Tell whether lanes of a sum ask for edges in most blocks along an axis, which are too few to be split at them: each lane then
        loads by itself."""
        blocks = ceil(self.sizes[along] / (c.vectors * self.lanes))
        few = along in self.definition.axes and not c.written and 1 < blocks < LEAST_ITERATIONS
        return few and any(turns(slot, along) for slot in element.read.index if not isinstance(slot, Dynamic))

    def _edge_share(self, axis: str, count: int) -> float:
        """Return the share of the blocks of an axis, of `count` points each, whose loads ask about its edges: loops are split at edges
        where enough blocks lie between them."""
        blocks = ceil(self.sizes[axis] / count)
        return 1.0 if blocks < LEAST_ITERATIONS + 2 else 2 / blocks

    def is_window(self, along: str) -> bool:
        """Tell whether the terms of one sum, so many whatever the point, and those of points beside it read elements in common, as windows
        that move do, or some that lie between each other's along an axis, as rows of a few elements: written out, they load these once."""
        piece, *others = self.pieces
        if others or len(piece.sums) != 1:
            return False
        (found,) = piece.sums
        ranges = (b for r in reduces(self.definition.pieces[0].value) for b in r.binders)
        slots = (s for e in found.work.elements for s in e.read.index if not isinstance(s, Dynamic))
        together = [{n for n in affine.name_set(s) if step_inside(s, n)} for s in slots]
        together += [{*e.near} for e in found.work.elements if e.near.get(along, 1) > 1]
        moving = any(names & {*self.definition.axes} and names & {*found.binders} for names in together)
        return moving and all(affine.difference(b.hi, b.lo) is not None for b in ranges)

    def terms(self) -> int:
        """Return how many terms a window has."""
        return int(sum(s.steps for p in self.pieces for s in p.sums))

    def _registers_left(self, work: _Work, c: InnerLoops, along: str | None) -> int:
        """Return how many registers a step of a block leaves; less than none where it needs more than there are."""
        width = c.vectors if along is not None else 1
        accumulators = c.points() * sum(ceil(width * share) for share in work.accumulators)
        return self.d.machine.vector_registers - accumulators - _live(work, c, along)

    def _loading(self, work: _Work, c: InnerLoops, along: str | None, left: int) -> float:
        """Return the cycles in which a step of a block loads what it reads, and what is the same in all steps and finds no register."""
        elements = [e for e in work.elements if work.varies(e)]
        if work.step and along is not None:
            elements = [replace(e, near={}) if self._meets_edges(e, c, along) else e for e in elements]
        loads = sum(self._loads(e, c, along) for e in elements)
        kept = sum(_times(names, c, along) for names in work.kept)
        return load_cycles(loads + max(0, kept - max(0, left)))

    def _operations(self, work: _Work, c: InnerLoops, along: str | None) -> float:
        """Return how many instructions `work` takes for all points of a block, beside loads."""
        found = sum(count * _times(names, c, along) for names, count in work.operations.items())
        if along is not None:
            # A number that is computed once for all lanes is put into each.
            found += sum(n * _times(v.names, c, along) for v, n in work.values.items() if v.is_computed and along in v.wider)
        return found

    def _block(self, work: _Work, c: InnerLoops, along: str | None) -> float:
        """Return the cycles of `work` that is no step of a sum for all points of a block, with vectors along a loop."""
        left = self._registers_left(work, c, along) if work.step else 0
        return max(self._loading(work, c, along, left), multiply_cycles(self._operations(work, c, along))) + LOOP_CYCLES

    def _loads(self, element: Element, c: InnerLoops, along: str | None) -> float:
        again = c.points(element.names)
        if along is None or along not in element.names:
            return again * (1 + element.questions)
        apart = (
            1 if element.read.tensor in c.packed else element.near.get(along) if c.phases == 1 else self._in_phase(element, along, c.phases)
        )
        masked = self._is_masked(c, along)
        if apart is not None and (abs(apart) <= 1 or not masked):
            return again * c.vectors * (STRIDED_LOADS * abs(apart) if apart not in (0, 1) else 1)
        if along in element.shared:
            # One for all lanes of a vector, or elements of one that are put where they belong.
            return again * c.vectors * (1 if element.shared[along] % (c.phases * self.lanes) == 0 else STRIDED_LOADS)
        if picked_in_registers(self.d, element.read, along):
            return again * c.vectors * PICKED_LOADS
        by_data = any(isinstance(slot, Dynamic) for slot in element.read.index)
        far = float(MASKED_LOADS if masked else GATHERED_LOADS if by_data else FAR_LOADS)
        if not by_data:
            far += LOADS * self._line_cycles(again * c.vectors * self.lanes, element.row_bytes)
        return again * c.vectors * self.lanes * far

    def _in_phase(self, element: Element, along: str, phases: int) -> int | None:
        """Return how far elements lie apart of which one is read for so many along an axis, 0 for one of all; None where that is far."""
        slots = self._in_memory(element.read)
        if element.read.tensor in self.d.layouts or any(isinstance(slot, Dynamic) for slot in slots):
            return None
        *others, last = (affine.substitute(s, {along: Scale(phases, AffineName(along))}) for s in slots if not isinstance(s, Dynamic))
        step = step_inside(last, along) if not any(along in affine.name_set(slot) for slot in others) else None
        return step if step is not None and 0 <= step <= MOST_STRIDE else None

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
        own = self.tensors[self.definition.tensors[0].name]
        return store_cycles(stored * FAR_LOADS) + stored * self._line_cycles(stored, row_bytes(self.d, own))

    def _is_interleaved(self, c: InnerLoops, axis: str) -> bool:
        """Tell whether vectors along an axis are stored between those of all elements of its rows, which are few: whole vectors are put
        together of them."""
        *_, last = self.definition.axes
        few = self.sizes[last] <= MOST_STRIDE and (last, self.sizes[last]) in c.rows
        return few and axis in self.definition.axes[-2:-1] and self.definition.tensors[0].name not in self.d.layouts

    # ------------------------------------------------ copies

    def may_repeat(self, axis: str, vector: tuple[str, ...]) -> bool:
        """Tell whether several points of an axis may be computed together: where lanes look for a term, a loop that ends with what it finds
        goes through one row at a time, unless rows read some of the same."""
        searched = [s for p in self.pieces for s in p.sums if s.searched and not {*s.binders}.isdisjoint(vector)]
        return not searched or any(axis not in e.names for s in searched for e in s.work.elements if s.work.varies(e))

    @once
    def elements(self) -> float:
        """How many elements are computed, about."""
        return sum(piece.elements for piece in self.pieces)

    @once
    def earlier(self) -> tuple[Mapping[str, Affine | Dynamic], ...]:
        """What a recurrence reads of itself outside of sums: for each element its index along the axes along which it is another one."""
        own = {t.name for t in self.definition.tensors}
        read = dict.fromkeys(e.read for p in self.pieces for e in p.value.elements if e.read.tensor in own)
        indices = (zip(self.definition.axes, r.index, strict=True) for r in read)
        return tuple({a: slot for a, slot in index if slot != AffineName(a)} for index in indices)

    @once
    def summed(self) -> tuple[Element, ...]:
        """What terms of sums read, once each."""
        return tuple({e.read: e for p in self.pieces for s in p.sums for e in s.work.elements}.values())

    @once
    def touched(self) -> tuple[Element, ...]:
        """What is read and written beside the terms of sums, once for each tensor and the loops that its place depends on."""
        axes, tensor = self.definition.axes, self.tensors[self.definition.tensors[0].name]
        point = Read(tensor.name, tuple(map(AffineName, axes)))
        near = dict.fromkeys(sorted(self.stored_near), 1)
        written = Element(point, frozenset(axes), near, tensor.dtype.size_bytes, row_bytes(self.d, tensor))
        read = (e for p in self.pieces for e in p.value.elements)
        others = (e for e in read if e.read.tensor not in {t.name for t in self.definition.tensors})
        return (written, *{(e.read.tensor, e.names): e for e in others}.values())

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

    def bytes_of(self, element: Element) -> float:
        """Return the bytes of all elements that are read as this one is."""
        return min(prod(self._shape(element)), prod(self.sizes[n] for n in element.names if n in self.sizes)) * element.size_bytes

    def bytes_by_data(self, element: Element, extent: Mapping[str, float]) -> float:
        """Return the bytes of the lines that may hold an element for so many values of each of some names, wherever data say that it lies:
        along a dimension whose place they say, all of it."""
        named = [prod(extent.get(n, 1) for n in names_of_slot(slot)) for slot in self._in_memory(element.read)]
        places = zip(self._in_memory(element.read), self._shape(element), named, strict=True)
        *outer, last = [whole if isinstance(slot, Dynamic) else min(whole, n) for slot, whole, n in places]
        return prod(outer) * max(last * element.size_bytes, min(element.row_bytes, LINE_BYTES))

    def _shape(self, element: Element) -> list[int]:
        """Return the extents of the tensor that an element is read of."""
        return [affine.constant(e) or OPEN_EXTENT for e in self.tensors[element.read.tensor].shape]

    def copying(self, c: InnerLoops) -> float:
        """Return the cycles of an element that copies take: of rows where the second-level cache does not hold all that sums read, and of
        columns, whose elements are taken out of a line each."""
        return sum(self._copying(e, c.vector) for e in self.summed if e.read.tensor in c.packed) / self.elements

    def _copying(self, element: Element, vector: tuple[str, ...]) -> float:
        size = self.bytes_of(element)
        across = [n for n in vector if n in element.names and element.near.get(n) != 1]
        if not across:
            return 0.0 if self.fits(self.d.machine.l2_bytes) else size / COPY_BYTES
        again = self._line_cycles(prod(self.sizes[n] for n in across), element.row_bytes)
        return size / element.size_bytes * (load_cycles(FAR_LOADS) + again)

    def _line_cycles(self, rows: float, pitch: int) -> float:
        """Return the cycles in which the line of an element comes again, where one of each of so many rows is touched before what is beside
        it: none where the first-level cache holds all these lines, of which rows a power of two apart share few of its sets."""
        machine = self.d.machine
        lines = bytes_of_lines(rows, pitch, machine.l1_bytes)
        return 0.0 if lines <= machine.l1_bytes else LINE_BYTES / (NEAR_BYTES if lines <= machine.l2_bytes else FAR_BYTES)

    def first_loading(self, c: InnerLoops) -> float:
        """Return the cycles of an element in which what sums read arrives for the first time, or of a map what it reads and writes, where
        the second-level cache does not hold it: nobody has loaded the beginning of a row ahead whose predecessor in memory is read at the
        same time."""
        if not self.loaded_first:
            return 0.0
        return sum(self.bytes_of(e) * (1 + self.waited(e, c)) for e in self.loaded_first) / FAR_BYTES / self.elements

    @once
    def loaded_first(self) -> tuple[Element, ...]:
        """What comes from beyond the second-level cache: what sums read, or all that a map touches, or what each element of a recurrence
        reads for itself, where that cache does not hold it."""
        written, *read = self.touched
        own = tuple(e for e in read if e.names.issuperset(self.definition.axes))
        found = self.summed or (own if self.earlier else (written, *read))
        return found if sum(map(self.bytes_of, found)) > self.d.machine.l2_bytes else ()

    def waited(self, element: Element, c: InnerLoops) -> float:
        """Return the share of rows, or parts of rows, that has to be waited for where a block reads several side by side."""
        along = c.vector[0] if c.vector and c.vector[0] not in element.near else ""
        streams = c.points(element.names) * (c.vectors * self.lanes if along in element.names else 1)
        row = min(element.row_bytes, prod(self.sizes[n] for n, step in element.near.items() if step == 1) * element.size_bytes)
        if element.read.tensor in c.packed or streams == 1:
            return 0.0
        ahead = min(1.0, max(0.0, (streams * row / AHEAD_BYTES - 1) / 2))  # three times as far, all rows are
        return ahead / row * min(row, PAGE_BYTES)

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
        far = [e for e in summed for loop in vector if loop in e.names and e.near.get(loop) != 1]
        return tuple(dict.fromkeys(e.read.tensor for e in far if self._is_worth_copying(e)))

    def _is_worth_copying(self, element: Element) -> bool:
        tensor, index = element.read.tensor, element.read.index
        made = {t.name for x in self.d.program.definitions for t in x.tensors}
        plain = all(isinstance(slot, AffineName) for slot in index) and len(set(index)) == len(index)
        alike = len({r.index for p in self.definition.pieces for r in reads(p.value) if r.tensor == tensor}) == 1
        uses = prod(self.sizes[a] for a in self.definition.axes if a not in element.names)
        return plain and alike and tensor not in made and tensor not in self.d.layouts and uses >= USES_OF_A_COPY


def _times(names: frozenset[str], c: InnerLoops, along: str | None) -> int:
    """Return how many values a block has of one that depends on some names, with vectors along a loop."""
    return c.points(names) * (c.vectors if along is not None and along in names else 1)


def _live(work: _Work, c: InnerLoops, along: str | None) -> int:
    """Return how many registers a step of a block needs beside its accumulators: for vectors that several sums or rows take, for an
    element that all lanes take, and for what is on its way. Of what the rows of one sum take, what there is most of comes one by one."""
    width = c.vectors if along is not None else 1
    rows = {a for a, _ in c.rows}
    shared, own = 1, dict[int, list[tuple[int, int]]]()
    for value, count in work.values.items():
        is_shared = not rows.isdisjoint(value.wider)
        if along is not None and along not in value.names:
            held = int(is_shared or along in value.wider)
        elif is_shared:
            held = width * c.points(value.names)
        else:
            held = width if value.term is None else int(value.repeated)
        if value.term is None:
            shared += held * count
        else:
            own.setdefault(value.term, []).append((held, count))
    for values in own.values():
        most = max(held for held, _ in values)
        shared += sum(held * n for held, n in values) - most + min(most, width)
    return shared


def _covered(extent: float, step: int) -> float:
    """Return how many iterations steps of so many take, for each that there is."""
    return ceil(extent / step) * step / extent
