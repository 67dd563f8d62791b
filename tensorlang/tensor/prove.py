"""Proofs that a program means something: every read in bounds, every element defined once and not through itself, no empty reduction.

    T0301  a read can leave its tensor                 T0304  an element depends on itself
    T0302  an element is defined twice                 T0305  a declared range does not fit the axis it indexes
    T0303  an element is not defined                   T0306  a reduction without identity can be empty
    T0308  an index leaves 64 bits                     T0307  neither proven nor refuted

Every refutation comes with concrete indices and sizes, the smallest there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.model import Within
from polyhedral.record import is_recording, subject
from polyhedral.verdict import Proven, Refuted, Unknown
from tensorlang.bounded_cache import BoundedCache
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Label, Span
from tensorlang.tensor import notation
from tensorlang.tensor.clause_coverage import overlapping, slab, together
from tensorlang.tensor.facts import Place, binder_cond, box, first_point, follows, visits
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Holds, IndexValue, Piece, Program, Read, Reduce, Tensor
from tensorlang.tensor.segments import segments
from tensorlang.tensor.walk import components, coordinate, definition_reads, reads, tensor_table
from tensorlang.tensor.widths import BOUND, LARGEST, compared, greatest, pieces, within_bound

if TYPE_CHECKING:
    from polyhedral.recurrence import Edge

MOST_CLAUSES = 20_000
"""How many pairs of clauses of one tensor are proven not to overlap, which takes about a millisecond each."""
_SOUND: BoundedCache[tuple[object, ...], bool] = BoundedCache(4096)
"""What was checked and found nothing."""
_LOCK = Lock()

MOST_REFLECTED = 64
"""A message asks for fewer elements of an axis than so many."""
MOST_LABELS = 8
"""How many clauses a message points at."""


def prove(program: Program) -> None:
    """Raise CompileError with everything about `program` that is refuted or that could not be proven. Of kernels that it calls nothing is
    known: what they make is read like a parameter."""
    segments(program)
    prover = Prover(program)
    for definition in program.definitions:
        prover.remembered(("elements", definition), (definition,), lambda definition=definition: prover.elements(definition))  # type: ignore[misc]
    if all(d.code == "T0301" for d in prover.problems):
        outside, prover.problems = prover.problems, []
        for group in components(program):
            prover.remembered(("order", group), group, lambda group=group: prover.order(group))  # type: ignore[misc]
        cyclic = [d for d in prover.problems if not outside or d.code == "T0304"]
        prover.problems = [*cyclic, *outside]  # who mends the bounds of a recurrence that cannot be computed mends the wrong thing
    if prover.problems:
        raise CompileError(*prover.problems)


def problems_since(before: Program, program: Program) -> tuple[Diagnostic, ...]:
    """Return what is refuted or could not be proven about `program`, made of `before`, which is proven: only what is new can be wrong."""
    prover = Prover(program)
    shapes = {t.name: t.shape for t in tensor_table(before).values()}
    moved = {t.name for t in prover.tensors.values() if shapes.get(t.name) != t.shape}
    new = [d for d in program.definitions if d not in before.definitions or definition_reads(d) & moved]
    for definition in new:
        prover.pieces(definition)
        prover.values(definition)
    if not prover.problems:
        for group in components(program):
            if any(d in new for d in group):
                prover.order(group)
    return tuple(prover.problems)


def is_sound(program: Program, definition: Definition) -> bool:
    """Tell whether every read of `definition` is proven to be in bounds, and every reduction that needs it not to be empty."""
    prover = Prover(program)
    prover.values(definition)
    return not prover.problems


def reads_in_bounds(program: Program, definition: Definition) -> bool:
    """Tell whether every read of `definition` is proven to be in bounds; what is said of its reductions is not asked."""
    prover = Prover(program)
    for piece in definition.pieces:
        for node, place in visits(piece.value, Place(affine.conj(box(definition), piece.guard), definition.axes)):
            if isinstance(node, Read):
                prover.read(node, place.context, place.scope)
    return not prover.problems


@dataclass(slots=True)
class Prover:
    """Collects the problems of one program."""

    program: Program
    problems: list[Diagnostic] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(init=False)
    context: Cond = field(init=False)
    limits: dict[str, int] = field(init=False)
    """Name of an index or size → the greatest absolute value it has."""
    extents: frozenset[Affine] = field(init=False)
    """How long axes are where that is no number."""

    def __post_init__(self) -> None:
        self.tensors = tensor_table(self.program)
        positive = (affine.compare(">=", size, 0) for size in self.program.sizes)
        self.context = affine.conj(self.program.context, *positive)
        self.limits = dict.fromkeys(self.program.sizes, LARGEST)
        self.extents = frozenset(e for t in self.tensors.values() for e in t.shape if affine.constant(e) is None)

    def elements(self, definition: Definition) -> None:
        """Check that each element is defined once, and how."""
        self.pieces(definition)
        self.values(definition)

    def remembered(self, what: tuple[object, ...], definitions: Sequence[Definition], check: Callable[[], None]) -> None:
        """Make a check unless it has found nothing before: of the same definitions, over the same sizes, reading tensors of the same
        shapes, beside tensors of the same extents. A check that is recorded is always made."""
        if is_recording():
            return check()
        read = sorted({name for d in definitions for name in definition_reads(d)})
        shapes = tuple((t.name, t.shape) for name in read if (t := self.tensors.get(name)) is not None)
        key = what, self.program.sizes, self.context, shapes, self.extents
        with _LOCK:
            known = _SOUND.get(key)
        if known:
            return None
        before = len(self.problems)
        check()
        if len(self.problems) == before:
            with _LOCK:
                _SOUND.enter(key, True)
        return None

    # ------------------------------------------------ each element once

    def pieces(self, definition: Definition) -> None:
        """Check that the pieces are disjoint and cover the box."""
        pieces, inside = definition.pieces, box(definition)
        name, sizes, axes = definition.tensors[0].name, self.program.sizes, definition.axes
        if len(pieces) == 1 and pieces[0].guard == TRUE:
            return
        slabs = [slab(p.guard, axes) for p in pieces]
        pairs = list(islice(overlapping(slabs), MOST_CLAUSES))
        parts = together([p.guard for p in pieces], slabs)
        if max(len(pairs), 10 * len(parts)) >= MOST_CLAUSES:
            reason = f"more than {MOST_CLAUSES} pairs of them lie where numbers alone do not tell them apart"
            self._unknown(f"that the clauses of `{name}` define each element once", definition.span, reason)
            return
        said = [frozenset(affine.conjuncts(p.guard)) for p in pieces]
        for i, k in sorted(pairs):
            if any(said[b] >= frozenset(affine.conjuncts(affine.negate(pieces[a].guard))) for a, b in ((i, k), (k, i))):
                subject(f"clauses of `{name}`")  # one says that the other does not apply, as `otherwise` does of all
            else:
                self._apart(definition, pieces[i], pieces[k])
        from polyhedral.sets import covers

        match covers(sizes, axes, self.context, inside, parts):
            case Refuted(point, params):
                misses = tuple(Label(p.span, "does not define it") for p in pieces[:MOST_LABELS])
                title = f"`{_element(name, axes, point)}` is not defined{_when(params)}"
                self._problem(
                    "T0303", title, misses, help=f"add a clause for it, or `{_element(name, _as_written(axes), None)} = … otherwise`"
                )
            case Unknown(reason):
                self._unknown(f"that the clauses of `{name}` cover it", definition.span, reason)
            case Proven():
                subject(f"`{name}`")

    def _apart(self, definition: Definition, first: Piece, second: Piece) -> None:
        """Check that no element is defined by both."""
        name, axes = definition.tensors[0].name, definition.axes
        given = affine.conj(self.context, box(definition))
        from polyhedral.sets import disjoint

        match disjoint(self.program.sizes, axes, given, first.guard, second.guard):
            case Refuted(point, params):
                labels = (Label(second.span, "defines it again"), Label(first.span, "defines it"))
                title = f"`{_element(name, axes, point)}` is defined twice{_when(params)}"
                help = "guard one of the clauses with `for`, or end with `otherwise`"
                start = _start_of(name, axes, definition, first, second)
                if start is not None:
                    help = f"begin the recurrence behind its start: `{start}`"
                elif any(r.tensor == name for p in (first, second) for r in reads(p.value)):
                    help = f"elements are defined once: give what the other clause makes of `{name}` a name of its own, or {help}"
                self._problem("T0302", title, labels, help=help)
            case Unknown(reason):
                self._unknown(f"that the clauses of `{name}` do not overlap", second.span, reason)
            case Proven():
                subject(f"clauses of `{name}`")

    # ------------------------------------------------ reads and reductions

    def values(self, definition: Definition) -> None:
        """Check the reads, the reductions and the index arithmetic of every piece."""
        for axis, extent in zip(definition.axes, definition.tensors[0].shape, strict=True):
            self.limits[axis] = self._extent(extent)  # stretches of a reduction may be as many as an axis before says
        for piece in definition.pieces:
            inside = affine.conj(self.context, box(definition))
            self._narrow(compared(piece.guard), Place(inside, definition.axes), piece.span)
            for node, place in visits(piece.value, Place(affine.conj(inside, piece.guard), definition.axes)):
                for indices, there in self._indices(node, place):
                    self._narrow(indices, there, node.span)
                match node:
                    case Read():
                        self.read(node, place.context, place.scope, definition)
                    case Reduce():
                        self._non_empty(node, place)
                    case _:
                        pass

    def _extent(self, extent: Affine) -> int:
        return min(greatest(extent, self.limits)[0], LARGEST)

    def _indices(self, node: Expr, place: Place) -> Iterator[tuple[Iterator[Affine], Place]]:
        """Yield the index expressions that code computes for a node alone, with where it does."""
        match node:
            case IndexValue(index):
                yield iter((index,)), place
            case Holds(cond):
                yield compared(cond), place
            case Read(_, index):
                yield (slot for slot in index if not isinstance(slot, Dynamic)), place
            case Reduce(_, binders, where=where):
                for k, binder in enumerate(binders):
                    yield iter((binder.lo, binder.hi)), place.inside(replace(node, binders=binders[:k], where=TRUE))
                    self.limits[binder.name] = min(max(greatest(b, self.limits)[0] for b in (binder.lo, binder.hi)), BOUND)
                yield compared(where), place.inside(replace(node, where=TRUE))
            case _:
                pass

    def _narrow(self, indices: Iterator[Affine], place: Place, span: Span) -> None:
        """Check that no part of what is computed leaves 64 bits."""
        for index in indices:
            if greatest(index, self.limits)[1] >= BOUND:
                self._all_narrow(index, place, span)

    def _all_narrow(self, index: Affine, place: Place, span: Span) -> None:
        extents = dict.fromkeys(e for t in self.tensors.values() for e in t.shape if e in self.extents)
        small = (affine.compare("<=", e, LARGEST) for e in (*map(affine.to_expr, self.program.sizes), *extents))
        facts, scope = affine.conj(place.context, *small), place.scope
        for part in pieces(index):
            from polyhedral.sets import implies

            match implies(self.program.sizes, scope, facts, within_bound(part)):
                case Refuted(point, params):
                    value = affine.evaluate(part, {**point, **params})
                    title = f"an index leaves 64 bits{_when(params)}"
                    label = f"`{notation.show(part)}` is {value} here{_at(point)}"
                    self._problem("T0308", title, (Label(span, label),), help="use smaller numbers, or bound the sizes with `where`")
                    return
                case Unknown(reason):
                    self._unknown("that this index stays within 64 bits", span, reason)
                    return
                case Proven():
                    pass

    def read(self, read: Read, facts: Cond, scope: Sequence[str], reader: Definition | None = None) -> None:
        tensor = self.tensors[read.tensor]
        for k, (slot, extent) in enumerate(zip(read.index, tensor.shape, strict=True)):
            if isinstance(slot, Dynamic):
                self._dynamic(read, k, slot, extent, facts, scope)
            elif not _is_plain(slot, extent, facts):
                self._in_bounds(read, k, slot, extent, facts, scope, reader)

    def _long_enough(self, read: Read, known: Cond, scope: Sequence[str]) -> str | None:
        """Return what sizes have to be for what lies outside to be read as a mode says, where that takes a number of elements."""
        sides = zip(read.index, self.tensors[read.tensor].shape, strict=True)
        found = [(n, e) for slot, e in sides if not isinstance(slot, Dynamic) and (n := self._fewest(slot, e, known, scope))]
        named = ", ".join(f"{notation.show(extent)} >= {count}" for count, extent in found)
        return f"there have to be more elements for what lies outside: `where {named}`" if found else None

    def _fewest(self, slot: Affine, extent: Affine, known: Cond, scope: Sequence[str]) -> int:
        """Return of how many elements on an index with a mode is in bounds; 0 where that is no number, or always."""
        from polyhedral.sets import implies

        if affine.affine_form(slot) is not None or affine.constant(extent) is not None:
            return 0
        enough = (affine.conj(known, affine.compare(">=", extent, count)) for count in range(MOST_REFLECTED))
        inside = affine.within(slot, 0, extent)
        proven = (k for k, facts in enumerate(enough) if isinstance(implies(self.program.sizes, scope, facts, inside), Proven))
        return next(proven, 0)

    def _in_bounds(
        self, read: Read, k: int, slot: Affine, extent: Affine, known: Cond, scope: Sequence[str], reader: Definition | None
    ) -> None:
        claim = affine.within(slot, 0, extent)
        from polyhedral.sets import implies

        match implies(self.program.sizes, scope, known, claim):
            case Refuted(point, params):
                value, limit = affine.evaluate(slot, {**point, **params}), affine.evaluate(extent, params)
                title = f"`{read.tensor}` is read outside its bounds{_when(params)}"
                label = f"axis {k} is {value} here{_at(point)}, but has {limit} element{'s' if limit != 1 else ''}"
                help = "say what lies outside: `| 0`, `| clamp`, `| wrap`, `| reflect` or `| skip` at the end of the bracket"
                fewer = self._fewer_elements(reader, slot, extent) if reader is not None else None
                help = f"compute it where the read is inside, `{fewer}`; or {help}" if fewer else help
                help = self._long_enough(read, known, scope) or _enough_elements(slot, extent) or help
                help = _other_extent(read, k, slot, extent, known) or help
                help = _counted_from_the_end(read, k, slot, extent) or help
                number = affine.constant(slot)
                if number is not None and number < 0:
                    help = f"indices count from 0: the last is `{notation.show(affine.add(extent, slot))}`"
                self._problem("T0301", title, (Label(read.span, label),), help=help)
            case Unknown(reason):
                self._unknown(f"that axis {k} of this read stays within `{read.tensor}`", read.span, reason)
            case Proven():
                subject(f"axis {k} of `{read.tensor}`: {notation.show(slot)}")

    def _fewer_elements(self, reader: Definition, slot: Affine, extent: Affine) -> str | None:
        """Return the range without the last elements of a tensor of the operator's own, which read some steps beyond one as long."""
        if len(reader.pieces) > 1 or any(t.name in self.program.results for t in reader.tensors):
            return None
        for axis, length in zip(reader.axes, reader.tensors[0].shape, strict=True):
            steps = affine.constant(affine.sub(slot, AffineName(axis)))
            if steps is not None and steps > 0 and affine.same(length, extent):
                return f"for {axis} in 0..{notation.show(affine.sub(extent, steps))}"
        return None

    def _dynamic(self, read: Read, k: int, slot: Dynamic, extent: Affine, known: Cond, scope: Sequence[str]) -> None:
        if slot.lo is None or slot.hi is None:
            return
        claim = affine.disj(
            affine.compare(">=", slot.lo, slot.hi), affine.conj(affine.compare(">=", slot.lo, 0), affine.compare("<=", slot.hi, extent))
        )
        if claim == TRUE:
            return
        from polyhedral.sets import implies

        match implies(self.program.sizes, scope, known, claim):
            case Refuted(point, params):
                values = {**point, **params}
                lo, hi, limit = (affine.evaluate(e, values) for e in (slot.lo, slot.hi, extent))
                declared = f"{notation.show(slot.lo)}..{notation.show(slot.hi)}"
                title = f"the range {declared} of an index does not fit axis {k} of `{read.tensor}`{_when(params)}"
                label = f"the index may be anything in {lo}..{hi}, the axis has 0..{limit}"
                self._problem("T0305", title, (Label(read.span, label),), help=self._fitting(read, slot.hi, extent, claim, known, scope))
            case Unknown(reason):
                self._unknown(f"that the range of this index fits axis {k} of `{read.tensor}`", read.span, reason)
            case Proven():
                subject(f"axis {k} of `{read.tensor}`: an index from data")

    def _fitting(self, read: Read, hi: Affine, extent: Affine, claim: Cond, known: Cond, scope: Sequence[str]) -> str:
        """Return what makes a range fit the axis it indexes: a condition on sizes only where it holds of some and suffices."""
        number = affine.constant(extent)
        if number is not None and number <= 0:
            return f"`{read.tensor}` has no elements: say what the read is instead, `| 0` at the end of the bracket"
        declare = f"declare the range 0..{notation.show(extent)}, or add `| clamp`"
        if number is not None:
            return declare
        for least, words in (
            (affine.ONE, f"`{read.tensor}` may have no elements: say that it has"),
            (hi, f"{declare}, or say that it fits"),
        ):
            cond = affine.compare(">=", extent, least)
            over_sizes = set(affine.names(least)) <= set(self.program.sizes)
            if over_sizes and self._suffices(cond, claim, known, scope) and not self._suffices(cond, FALSE, self.context, ()):
                return f"{words}, `where {notation.show(extent)} >= {notation.show(least)}`"
        return declare

    def _suffices(self, cond: Cond, claim: Cond, known: Cond, scope: Sequence[str]) -> bool:
        """Tell whether `claim` is proven to hold wherever `known` and `cond` do."""
        from polyhedral.sets import implies

        return isinstance(implies(self.program.sizes, scope, affine.conj(known, cond), claim), Proven)

    def _non_empty(self, reduce: Reduce, place: Place) -> None:
        """Check that a reduction that needs a first element has one."""
        if reduce.reducer.identity is not None or reduce.init is not None:
            return
        help = "give it a start value: `from value` after the binders"
        sure = self._not_empty_where(reduce, place)
        if sure:
            help = f"say that it is not: `where {sure}` behind the results; or {help}"
        if reduce.filter is not None and not follows(reduce.filter, place):
            title = f"`{reduce.reducer.name}` has no identity, and the data decides whether its range is empty"
            self._problem("T0306", title, (Label(reduce.span),), help=help)
            return
        chosen = first_point(reduce) or _least_point(reduce)
        claim = affine.substitute_cond(binder_cond(reduce), chosen)
        from polyhedral.sets import implies

        match implies(self.program.sizes, place.scope, place.context, claim):
            case Refuted(point, params):
                title = f"`{reduce.reducer.name}` has no identity, but its range can be empty{_when(params)}"
                self._problem("T0306", title, (Label(reduce.span, f"empty{_at(point)}" if point else "empty"),), help=help)
            case Unknown(reason):
                self._unknown("that this reduction is not empty", reduce.span, reason)
            case Proven():
                subject(f"`{reduce.reducer.name}` has a first element")

    def _not_empty_where(self, reduce: Reduce, place: Place) -> str:
        """Return a condition on sizes under which every range of a reduction has an element, "" where none of the plain ones suffices."""
        claim = affine.substitute_cond(binder_cond(reduce), _least_point(reduce))
        extents = [affine.sub(b.hi, b.lo) for b in reduce.binders]
        sizes = [e for e in extents if affine.constant(e) is None]
        if not sizes or any(set(affine.names(e)) - set(self.program.sizes) for e in sizes):
            return ""
        conds = [affine.compare(">=", e, 1) for e in sizes]
        if not self._suffices(affine.conj(*conds), claim, place.context, place.scope):
            return ""
        return ", ".join(f"{notation.show(e)} >= 1" for e in sizes)

    # ------------------------------------------------ no element through itself

    def order(self, group: tuple[Definition, ...]) -> None:
        """Check that the elements of mutually dependent definitions have a well-founded order."""
        names = {t.name: d.tensors[0].name for d in group for t in d.tensors}
        if len(group) == 1 and not definition_reads(group[0]) & set(names):
            return
        edges = [e for d in group for e in self.edges(d, names)]
        nodes = {d.tensors[0].name: (d.axes, box(d)) for d in group}
        span = group[0].pieces[0].span
        from polyhedral.recurrence import well_founded

        match well_founded(self.program.sizes, self.context, nodes, edges):
            case Refuted(_, params, via):
                steps = list(zip(via, (*via[1:], via[0]), strict=True))
                labels = tuple(
                    Label(_reading(group, a, b, params), f"`{notation.element(*a)}` needs `{notation.element(*b)}`") for a, b in steps
                )
                help = "let each element read elements that come earlier, as `y[i]` reads `y[i - 1]`, or other tensors"
                self._problem("T0304", f"`{notation.element(*via[0])}` depends on itself{_when(params)}", labels, help=help)
            case Unknown(reason):
                help = "let one axis of the tensor count the steps, and read only earlier ones: `axis - 1`"
                if any(isinstance(x, Within) for edge in edges for x in edge.indices):
                    help += "; an index from data is known to be earlier under a condition, `if at[i] < i then y[at[i]] else 0`"
                self._problem(
                    "T0307",
                    f"cannot prove that no element of `{group[0].tensors[0].name}` depends on itself",
                    (Label(span),),
                    (reason,),
                    help,
                )
            case Proven():
                pass

    def edges(self, definition: Definition, primary: Mapping[str, str]) -> Iterator[Edge]:
        """Yield the reads of `definition` inside its group; several tensors of one definition count as the first."""
        from polyhedral.recurrence import Edge

        target = definition.tensors[0].name
        for piece in definition.pieces:
            known = affine.conj(self.context, box(definition), piece.guard)
            for read, place in visits(piece.value, Place(known, definition.axes)):
                if isinstance(read, Read) and read.tensor in primary:
                    index = list(map(coordinate, read.index))
                    yield Edge(primary[read.tensor], index, target, definition.axes, place.scope[len(definition.axes) :], place.context)

    # ------------------------------------------------ problems

    def _problem(self, code: str, title: str, labels: tuple[Label, ...], notes: tuple[str, ...] = (), help: str | None = None) -> None:
        self.problems.append(Diagnostic(code, title, tuple(x for x in labels if x.span is not NOWHERE), notes, help))

    def _unknown(self, what: str, span: Span, reason: str) -> None:
        help = "state what is known of the sizes with `where`, or use simpler indices"
        self._problem("T0307", f"cannot prove {what}", (Label(span),), (reason,), help)


Element: TypeAlias = tuple[str, tuple[int, ...]]


def _reading(group: tuple[Definition, ...], reader: Element, read: Element, sizes: Mapping[str, int]) -> Span:
    """Return where the definition of one element reads another: the read that is surely of it, or the first of its tensor."""
    together = {d.tensors[0].name: {t.name for t in d.tensors} for d in group}
    definition = next(d for d in group if reader[0] in together[d.tensors[0].name])
    found = [r for p in definition.pieces for r in reads(p.value) if r.tensor in together[read[0]]]
    values = {**sizes, **dict(zip(definition.axes, reader[1], strict=True))}
    return next((r.span for r in found if _is_at(r, read[1], values)), found[0].span if found else definition.span)


def _is_at(read: Read, point: tuple[int, ...], values: Mapping[str, int]) -> bool:
    """Tell whether the indices of a read are surely these, where names have `values`."""
    slots = [slot for slot in read.index if not isinstance(slot, Dynamic) and set(affine.names(slot)) <= values.keys()]
    return len(slots) == len(read.index) and tuple(int(affine.evaluate(slot, values)) for slot in slots) == point


def _is_plain(slot: Affine, extent: Affine, known: Cond) -> bool:
    """Tell whether `slot` is an index whose range is the axis itself, as most reads have: no proof is needed then."""
    if not isinstance(slot, AffineName):
        return False
    facts = affine.conjuncts(known)
    return affine.compare(">=", slot, 0) in facts and affine.compare("<", slot, extent) in facts


def _least_point(reduce: Reduce) -> dict[str, Affine]:
    """Return, for each binder, the least value that the conditions on it allow: their greatest lower bound."""
    chosen: dict[str, Affine] = {}
    later = [b.name for b in reduce.binders]
    for binder in reduce.binders:
        lowest = [affine.substitute(binder.lo, chosen)]
        later.remove(binder.name)
        for cond in affine.conjuncts(affine.substitute_cond(reduce.where, chosen)):
            lowest += [b for b in _lower_bounds(binder.name, cond) if not set(later) & set(affine.names(b))]
        chosen[binder.name] = affine.maximum(*lowest)
    return chosen


def _lower_bounds(name: str, cond: Cond) -> Iterator[Affine]:
    """Yield `b` when `cond` says `name >= b`."""
    for e in affine.inequalities(cond):
        coefficients, const = affine.terms(e)
        k = coefficients.pop(AffineName(name), 0)
        if k > 0 and name not in affine.names(affine.from_terms(coefficients)):
            yield affine.ceil_div(affine.neg(affine.from_terms(coefficients, const)), k)


# ---------------------------------------------------------------- text


def _as_written(axes: Sequence[str]) -> list[str]:
    """Return names for axes as people write them, where an axis has none of its own."""
    letters = [letter for letter in "ijklmn" if letter not in axes]
    return [letters.pop(0) if re.fullmatch(r"a\d+", axis) and letters else axis for axis in axes]


def _element(name: str, axes: Sequence[str], point: Mapping[str, int] | None) -> str:
    return f"{name}[{', '.join(axes if point is None else (str(point[a]) for a in axes))}]" if axes else name


def _start_of(name: str, axes: Sequence[str], definition: Definition, first: Piece, second: Piece) -> str | None:
    """Return the range that a clause lacks which reads what it defines, where the other clause is its start: `y[0] = …`."""
    for start, steps in ((first, second), (second, first)):
        if not start.span.end or not any(r.tensor == name for r in reads(steps.value)) or any(r.tensor == name for r in reads(start.value)):
            continue
        found = re.match(rf"{re.escape(name)}\[([^\[\]]*)\]", start.span.source.text[start.span.start : start.span.end])
        slots = [slot.strip() for slot in found[1].split(",")] if found is not None else []
        pinned = [k for k, slot in enumerate(slots) if slot.isdigit()] if len(slots) == len(axes) else []
        if len(pinned) == 1:
            k = pinned[0]
            return f"for {axes[k]} in {int(slots[k]) + 1}..{notation.show(definition.tensors[0].shape[k])}"
    return None


def _enough_elements(slot: Affine, extent: Affine) -> str | None:
    """Return which sizes have the one element that a read names by its distance from either end, `x[0]` or `x[N - 1]`."""
    from_start, from_end = affine.constant(slot), affine.constant(affine.sub(extent, slot))
    if affine.constant(extent) is not None or (from_start is None and from_end is None):
        return None
    count = from_start + 1 if from_start is not None else from_end
    if count is None or count < 1:
        return None
    needed = f"`where {notation.show(extent)} >= {count}` after the results"
    return f"say that there are elements enough: {needed}; or what lies outside: `| 0` at the end of the bracket"


def _counted_from_the_end(read: Read, k: int, slot: Affine, extent: Affine) -> str | None:
    """Return what to write where an index is `N - i` of an axis of N elements, which has no element N."""
    before = affine.sub(extent, slot)
    if not isinstance(before, AffineName) or before == extent or len(read.index) != 1:
        return None
    last = notation.show(affine.sub(extent, affine.ONE))
    return f"the last element is `{last}`: write `{read.tensor}[{last} - {notation.show(before)}]`"


def _other_extent(read: Read, k: int, slot: Affine, extent: Affine, known: Cond) -> str | None:
    """Return what to do where an index that stands alone runs over another size than that of the axis it indexes."""
    if not isinstance(slot, AffineName):
        return None
    bounds = [e for part in affine.conjuncts(known) for e in affine.inequalities(part) if slot.name in affine.name_set(e)]
    ends = [end for e in bounds if slot.name not in affine.name_set(end := affine.add(e, slot, 1))]
    other = next((end for end in ends if affine.constant(end) is None and end != extent), None)
    if other is None or extent in ends or affine.constant(extent) is not None:
        return None
    axis = f"axis {k} of `{read.tensor}` has {notation.show(extent)} elements"
    how = "index it by one that runs over these, or declare one size for both"
    return f"`{slot.name}` runs over 0..{notation.show(other)}, and {axis}: {how}"


def _when(sizes: Mapping[str, int]) -> str:
    return f" when {', '.join(f'{n}={v}' for n, v in sizes.items())}" if sizes else ""


def _at(point: Mapping[str, int]) -> str:
    return f" at {', '.join(f'{n}={v}' for n, v in point.items())}" if point else ""
