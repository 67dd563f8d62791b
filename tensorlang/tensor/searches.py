"""Terms that ascending data leave out of reductions, found by binary search: the rewriting behind `bisect`.

    before   y[i] = sum(j, t[j] <= x[i], t[j] > x[i] - w) v[j]
    after    y.ascends     = all(j in 0..N-1) (t[j] <= t[j + 1])                    asked of the data, in one pass
             y.place[i, s] = …                how many t[j] <= x[i] begin the row, after s halvings; y.place_1 of t[j] <= x[i] - w
             y.first[i]    = if y.ascends then y.place_1[i, S] else 0
             y.end[i]      = if y.ascends then y.place[i, S] else N
             y.few         = t ascends, and the terms between those are few
             y.found[i]    = sum(j, y.few, y.first[i] <= j, j < y.end[i]) v[j]
             y.all[i]      = sum(j, not y.few, t[j] <= x[i], t[j] > x[i] - w) v[j]
             y[i]          = if y.few then y.found[i] else y.all[i]

Where t ascends, t[j] <= x[i] holds of the places before one, and t[j] > x[i] - w from one on: the terms from first to end are those that
the filter leaves, in their order, so `strict` operators may be bisected, too. Data with a NaN do not ascend, and a condition that compares
with NaN leaves no term. Where conditions of this kind are the whole filter, how many terms there are, the last of them and the first place
are known without looking at any (y.found is not made).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from codegen.dtypes import DType, bool_, i32, i64
from codegen.fresh_names import Fresh
from polyhedral import affine
from polyhedral.expr import Cond, Int
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import has_gather
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.lift import outlined
from tensorlang.tensor.nodes import (
    MIRRORED,
    Binary,
    Binder,
    Cast,
    Compare,
    Const,
    Definition,
    Dynamic,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Piece,
    Program,
    Project,
    Read,
    Reduce,
    Reducer,
    Select,
    Slot,
    Tensor,
    TupleOf,
    Unary,
    as_value,
)
from tensorlang.tensor.types import Types, dtype_of, types_of
from tensorlang.tensor.walk import (
    chained,
    component_of,
    definers,
    distance,
    fresh_for,
    index_names,
    is_recurrence,
    map_children,
    map_pieces,
    nodes,
    operands,
    reads,
    reduces,
    substitute,
    substitute_reads,
    tensor_names,
    tensor_table,
    value_names,
)

FEW = 4
"""Terms are few where they are less than one of so many: what is between two places is no whole number of vectors."""
SMALL = 1 << 30
"""Places below which so many bits are computed with as many processors fetch elements by."""


SUM = Reducer("sum", ("a",), ("b",), (i64,), (Binary("+", Name("a"), Name("b")),), (Const(0, i64),), True, "sum")
ALL = Reducer("all", ("a",), ("b",), (bool_,), (Binary("and", Name("a"), Name("b")),), (Const(True, bool_),), True, "all")


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition on the terms of a reduction that holds, where `key` ascends, of those before some place or (`lower`) from some place on.
    `part`: the condition of the filter that it is, or half of."""

    condition: Compare
    key: Expr
    lower: bool
    part: Expr

    @property
    def before(self) -> Expr:
        """Return what holds of all that lies before the place, and of nothing from there on."""
        return Unary("not", self.condition) if self.lower else self.condition


@dataclass(frozen=True, slots=True)
class Bounded:
    """A reduction that may be bisected along a binder: as it is, with what decides whether a term counts as its filter, and the bounds in
    that. `count`: values of the binder, or places that are searched where it takes others for each point. `starts`, `ends`: indices from
    which on and before which the terms lie, as the range of the binder and conditions on it say."""

    reduce: Reduce
    filtered: Reduce
    binder: Binder
    count: int
    bounds: tuple[Bound, ...]
    starts: tuple[Affine, ...]
    ends: tuple[Affine, ...]

    @property
    def is_window(self) -> bool:
        """Whether there are bounds on both sides."""
        sides = {b.lower for b in self.bounds}
        return (True in sides or bool(self.starts)) and (False in sides or bool(self.ends))

    @property
    def axes(self) -> frozenset[str]:
        """The names that the bounds depend on."""
        return frozenset[str]().union(*(index_names(b.part) for b in self.bounds), *map(affine.name_set, (*self.starts, *self.ends)))

    @property
    def others(self) -> tuple[Expr, ...]:
        """The conditions of the filter that are no bounds."""
        parts = {b.part for b in self.bounds}
        return tuple(c for c in operands("and", self.filtered.filter or Const(True, bool_)) if c not in parts)

    @property
    def is_settled(self) -> bool:
        """Whether no term has to be looked at once it is known which there are."""
        return self.outcome(Const(0, i64), Const(0, i64)) is not None

    @property
    def steps(self) -> int:
        """How many steps a search takes."""
        return self.count.bit_length()

    def outcome(self, first: Expr, end: Expr) -> Expr | None:
        """Return what the terms from one place to another come to, where these are all that the filter leaves; None where that takes to
        look at them."""
        e = self.filtered
        if self.others or len(e.binders) > 1 or len(e.body) > 1 or has_gather(e.body[0]) or not _moves_along(e.body[0], self.binder.name):
            return None
        if not all(_sides(c, self.binder.name, {self.binder.name}) for c in affine.conjuncts(e.where)):
            return None
        [body], [dtype] = e.body, e.reducer.dtypes
        start = e.init or e.reducer.identity
        match e.reducer:
            case Reducer(kind="sum") if isinstance(body, Const) and _is_exact(body, self.count) and (e.init is None or dtype.is_integer):
                many = Binary("max", Binary("-", end, first), Const(0, i64))
                product = Binary("*", body, many if dtype == i64 else Cast(dtype, many))
                return product if e.init is None else Binary("+", e.init[0], product)
            case Reducer(kind="any") if body == Const(True, bool_) and e.init is None:
                return Compare("<", first, end)
            case Reducer(kind="min" | "max" as kind) if body == IndexValue(AffineName(self.binder.name)) and start is not None:
                found: Expr = Binary(kind, start[0], first if kind == "min" else _plus(end, -1))
            case Reducer(right=(name,), combine=(Name(last),)) if last == name and start is not None:
                found = _at(body, self.binder.name, _clamped(_plus(end, -1), self.count), self.count)
            case _:
                return None
        return Select(Compare("<", first, end), found, start[0])


def bounded(program: Program, definition: Definition) -> Iterator[Bounded]:
    """Yield the reductions of a definition that may be bisected, along each binder."""
    types = types_of(program)
    for e in dict.fromkeys(e for p in definition.pieces for e in reduces(p.value)):
        filtered = _filtered(e)
        inner = any(True for part in (*e.body, *(() if e.filter is None else (e.filter,))) for _ in reduces(part))
        for binder in e.binders if filtered.filter is not None and not inner else ():
            bounds = tuple(_bounds(filtered, binder, types))
            count = binder.extent if affine.constant(binder.lo) == 0 else None
            count = _shortest(program, binder.name, bounds) if count is None else count
            if bounds and count is not None and count > 1:
                yield Bounded(e, filtered, binder, count, bounds, *_ends(e, binder, count))


def bisected(program: Program, tensor: str, binder: str) -> Program | str:
    """Return the program with the reductions in the equations of a tensor that go over `binder` bisected along it, or the reason why none
    can be."""
    definition = definers(program).get(tensor)
    found = [r for p in definition.pieces for r in reduces(p.value) if binder in {b.name for b in r.binders}] if definition else []
    if definition is None or not found:
        return f"no reduction of `{tensor}` is over `{binder}`"
    if is_recurrence(component_of(program, definition)):
        return f"`{tensor}` is part of a recurrence"
    to = {b.reduce: b for b in bounded(program, definition) if b.binder.name == binder}
    if not to:
        return f"no condition compares what is read along `{binder}`, of a known number of values, with what is the same for all of them"
    made = _Bisecting(program, definition, fresh_for(program))
    pieces = tuple(replace(p, value=made.value(p.value, p.guard, to)) for p in definition.pieces)
    at, after = program.definitions.index(definition), replace(definition, pieces=pieces)
    return redefined(program, (*program.definitions[:at], *made.definitions, after, *program.definitions[at + 1 :]))


# ---------------------------------------------------------------- conditions


def _filtered(e: Reduce) -> Reduce:
    """Return the same reduction, bit for bit, with what decides whether a term counts as its filter."""
    if len(e.body) > 1 or e.init is not None:
        return e
    match e.reducer.kind, e.body[0]:
        case "sum", Cast(dtype, (Compare() | Binary("and")) as condition):
            return _kept(e, Const(1.0 if dtype.is_float else 1, dtype), condition)
        case "sum", Select(condition, then, Const(_, dtype) as other) if other == Const(dtype.zero, dtype):
            return _kept(e, then, condition)
        case "any", (Compare() | Binary("and")) as condition:
            return _kept(e, Const(True, bool_), condition)
        case _:
            return e


def _kept(e: Reduce, body: Expr, condition: Expr) -> Reduce:
    return replace(e, filter=condition if e.filter is None else Binary("and", e.filter, condition), body=(body,))


def _bounds(e: Reduce, binder: Binder, types: Types) -> Iterator[Bound]:
    """Yield the bounds among the conditions of a filter: comparisons of what has an order, read where nothing else has to hold."""
    own = {b.name for b in e.binders}
    for part in operands("and", e.filter) if e.filter is not None else ():
        if not isinstance(part, Compare) or part.op == "!=" or value_names(part) or has_gather(part):
            continue
        if dtype_of(part.lhs, types) == bool_:
            continue
        for op, key, other in ((part.op, part.lhs, part.rhs), (MIRRORED[part.op], part.rhs, part.lhs)):
            if _is_key(key, binder.name) and index_names(key).isdisjoint(own - {binder.name}) and index_names(other).isdisjoint(own):
                if op in ("<=", "<", "=="):
                    yield Bound(Compare("<" if op == "<" else "<=", key, other), key, lower=False, part=part)
                if op in (">=", ">", "=="):
                    yield Bound(Compare(">" if op == ">" else ">=", key, other), key, lower=True, part=part)


def _shortest(program: Program, binder: str, bounds: Iterable[Bound]) -> int | None:
    """Return how many places there are along a binder of all that is read at its own place for bounds; None where that is not known."""
    table = tensor_table(program)
    every = [zip(r.index, table[r.tensor].shape, strict=True) for b in bounds for r in reads(b.key)]
    counts = [affine.constant(extent) for slots in every for slot, extent in slots if distance(slot, binder) == 0]
    return min((n for n in counts if n is not None), default=None)


def _ends(e: Reduce, binder: Binder, count: int) -> tuple[tuple[Affine, ...], tuple[Affine, ...]]:
    """Return the indices where a binder begins, and those that it stays below, as its range and conditions on it say, but for 0 and a
    number of places."""
    own = {b.name for b in e.binders}
    starts = [binder.lo] if affine.constant(binder.lo) != 0 else []
    ends = [binder.hi] if affine.constant(binder.hi) != count else []
    for lower, end in (side for c in affine.conjuncts(e.where) for side in _sides(c, binder.name, own)):
        (starts if lower else ends).append(end)
    return tuple(starts), tuple(ends)


def _sides(cond: Cond, binder: str, own: Collection[str]) -> list[tuple[bool, Affine]]:
    """Return what a condition says about a binder and nothing else: the indices from which on (True) and before which it lies; none where
    it says more or less than that. `own`: names that these do not depend on."""
    found: list[tuple[bool, Affine]] = []
    for rest in affine.inequalities(cond):
        factor = affine.terms(rest)[0].get(AffineName(binder), 0)
        other = affine.sub(rest, affine.scale(factor, binder))
        if factor not in (1, -1) or not affine.name_set(other).isdisjoint(own):
            return []
        found.append((factor > 0, affine.neg(other) if factor > 0 else affine.add(other, 1)))
    return found


def _is_exact(term: Const, count: int) -> bool:
    """Tell whether so many times a number is what adding it up comes to, were it no time: then of floats below 0 it would be -0."""
    most = {"f64": 1 << 53, "f32": 1 << 24}.get(term.dtype.name, 0)
    return term.dtype.is_integer or (float(term.value).is_integer() and 0 < term.value * count <= most)


def _is_key(e: Expr, binder: str) -> bool:
    """Tell whether an expression is made of what is read along a binder."""
    return bool(tensor_names(e)) and binder in index_names(e) and _moves_along(e, binder)


def _moves_along(e: Expr, binder: str) -> bool:
    """Tell whether an expression says of the places that it mentions how far from a binder they lie."""
    for node in nodes(e):
        match node:
            case Read(_, index):
                places = [slot for slot in index if not isinstance(slot, Dynamic)]
            case IndexValue(index):
                places = [index]
            case Holds() | Reduce() if binder in index_names(node):
                return False
            case _:
                continue
        if any(binder in affine.name_set(place) and affine.difference(place, AffineName(binder)) is None for place in places):
            return False
    return True


def _at(e: Expr, binder: str, place: Expr, count: int) -> Expr:
    """Return an expression that moves along a binder with a value in place of it, of which it is known that it lies in 0..count."""

    def moved(e: Expr) -> Expr:
        match map_children(moved, e):
            case Read(_, index) as read:
                return replace(read, index=tuple(map(slot, index)))
            case IndexValue(index) if (far := distance(index, binder)) is not None:
                return _plus(place, far)
            case other:
                return other

    def slot(s: Slot) -> Slot:
        far = distance(s, binder)
        return s if far is None else Dynamic(_plus(place, far), Int(far), Int(count + far))

    return moved(e)


def _plus(value: Expr, number: int) -> Expr:
    return value if number == 0 else Binary("+", value, Const(number, i64))


# ---------------------------------------------------------------- the program


@dataclass(slots=True)
class _Bisecting:
    """What is added to the program for one definition."""

    program: Program
    definition: Definition
    fresh: Fresh
    definitions: list[Definition] = field(default_factory=list)

    def value(self, e: Expr, guard: Cond, to: Mapping[Reduce, Bounded]) -> Expr:
        """Return an expression with reductions bisected."""
        match e:
            case Reduce() if (found := to.get(e)) is not None:
                return self.bisected(found, guard)
            case Project(value, position):
                done = self.value(value, guard, to)
                return done.items[position] if isinstance(done, TupleOf) else replace(e, value=done)
            case _:
                return map_children(lambda part: self.value(part, guard, to), e)

    def bisected(self, found: Bounded, guard: Cond) -> Expr:
        """Return what a reduction comes to, for the points of the definition where `guard` holds."""
        e, place = found.reduce, IndexValue(AffineName(found.binder.name))
        axes = tuple(a for a in self.definition.axes if a in found.axes)
        ascends = {b.key: self.ascends(b.key, found) for b in found.bounds}
        starts: list[Expr] = [IndexValue(affine.maximum(affine.ZERO, *found.starts))] if found.starts else []
        ends: list[Expr] = [IndexValue(affine.minimum(Int(found.count), *found.ends))] if found.ends else []
        for bound in found.bounds:
            ascending, searched = ascends[bound.key], self.searched(bound, found, axes)
            (starts if bound.lower else ends).append(Select(ascending, searched, Const(0 if bound.lower else found.count, i64)))
        first = self.held("first", i64, axes, chained("max", starts)) if starts else Const(0, i64)
        end = self.held("end", i64, axes, chained("min", ends)) if ends else Const(found.count, i64)
        known = chained("and", ascends.values())
        outcome = found.outcome(first, end)
        if outcome is not None:
            return Select(known, outcome, self.outlined("all", _under(e, Unary("not", known)), guard)[0])
        few = self.held("few", bool_, (), Binary("and", known, self.few(axes, first, end, found.count)))
        # Conditions may be all that keeps an index from data inside.
        asks = any(map(has_gather, (*found.filtered.body, *found.others)))
        kept = operands("and", found.filtered.filter or known) if asks else found.others
        inside = (few, Compare("<=", first, place), Compare("<", place, end), *kept)
        near = self.outlined("found", _under(replace(found.filtered, filter=None), *inside), guard)
        every = self.outlined("all", _under(e, Unary("not", few)), guard)
        return as_value(tuple(Select(few, *values) for values in zip(near, every, strict=True)), e.span)

    def ascends(self, key: Expr, found: Bounded) -> Expr:
        """Return whether a key ascends along the places that are searched, whatever the axes are that it is read at."""
        extents = zip(self.definition.axes, self.definition.tensors[0].shape, strict=True)
        rows = tuple(Binder(a, affine.ZERO, extent) for a, extent in extents if a in index_names(key))
        steps = Binder(self.local("j"), affine.ZERO, Int(found.count - 1))
        key, later = (substitute(key, {found.binder.name: affine.add(steps.name, n)}) for n in (0, 1))
        return self.held("ascends", bool_, (), Reduce(ALL, (*rows, steps), (Compare("<=", key, later),)))

    def searched(self, bound: Bound, found: Bounded, axes: tuple[str, ...]) -> Expr:
        """Return of how many places from the first on the condition holds that holds before a bound."""
        axes = tuple(a for a in axes if a in index_names(bound.part))
        step, far, name = self.local("step"), self.local("far"), self.fresh(f"{self.definition.tensors[0].name}.place")
        so_far = Read(name, (*map(AffineName, axes), affine.sub(step, 1)))
        dtype = i32 if found.count < SMALL else i64
        halving = IndexValue(affine.sub(found.steps, step))
        further = Binary("+", so_far, Binary("shl", Const(1, dtype), halving if dtype == i64 else Cast(dtype, halving)))
        last = _at(bound.before, found.binder.name, _clamped(_plus(_wide(Name(far), dtype), -1), found.count), found.count)
        taken = Binary("and", Compare("<=", Name(far), Const(found.count, dtype)), last)
        pieces = (
            Piece(Const(0, dtype), affine.compare("==", step, 0)),
            Piece(Let(far, further, Select(taken, Name(far), so_far)), affine.compare(">=", step, 1)),
        )
        shape = (*(self.extent(a) for a in axes), Int(found.steps + 1))
        made = self.shared(Definition((Tensor(name, dtype, shape),), (*axes, step), pieces))
        return _wide(Read(made, (*map(AffineName, axes), Int(found.steps))), dtype)

    def few(self, axes: tuple[str, ...], first: Expr, end: Expr, count: int) -> Expr:
        """Return whether few terms lie between two places, taken over all points."""
        many = Binary("*", Binary("max", Binary("-", end, first), Const(0, i64)), Const(FEW, i64))
        points = tuple(Binder(a, affine.ZERO, self.extent(a)) for a in axes)
        total = Reduce(SUM, points, (Binary("-", many, Const(count, i64)),)) if points else Binary("-", many, Const(count, i64))
        return Compare("<", total, Const(0, i64))

    def outlined(self, stem: str, e: Reduce, guard: Cond) -> list[Expr]:
        """Return the elements of tensors of their own that hold the components of a reduction."""
        names = tuple(self.fresh(f"{self.definition.tensors[0].name}.{stem}") for _ in e.body)
        axes = self.definition.axes
        self.definitions.append(outlined(names, e, axes, {a: self.extent(a) for a in axes}, guard))
        return [Read(name, tuple(map(AffineName, axes)), span=e.span) for name in names]

    def held(self, stem: str, dtype: DType, axes: tuple[str, ...], value: Expr) -> Expr:
        """Return the element of a tensor over some axes that holds a value."""
        name = self.fresh(f"{self.definition.tensors[0].name}.{stem}")
        made = self.shared(Definition((Tensor(name, dtype, tuple(map(self.extent, axes))),), axes, (Piece(value),)))
        return Read(made, tuple(map(AffineName, axes)))

    def shared(self, made: Definition) -> str:
        """Return the name of a tensor that has these equations: one that there is, or this one."""
        alike = (d for d in (*self.program.definitions, *self.definitions) if d.axes == made.axes and len(d.tensors) == 1)
        known = next((d for d in alike if _anonymous(d) == _anonymous(made)), None)
        if known is None:
            self.definitions.append(made)
        return (known or made).tensors[0].name

    def local(self, stem: str) -> str:
        """Return a name for an axis or a value of one definition, the same in definitions that say the same."""
        return Fresh({*self.program.sizes, *tensor_table(self.program), *self.definition.axes})(stem)

    def extent(self, axis: str) -> Affine:
        """Return the extent of an axis of the definition."""
        return self.definition.tensors[0].shape[self.definition.axes.index(axis)]


def _under(e: Reduce, *conditions: Expr) -> Reduce:
    """Return the terms of a reduction for which conditions hold."""
    return replace(e, filter=chained("and", (*conditions, *(() if e.filter is None else (e.filter,)))))


def _wide(place: Expr, dtype: DType) -> Expr:
    return place if dtype == i64 else Cast(i64, place)


def _clamped(place: Expr, count: int) -> Expr:
    return Binary("max", Binary("min", place, Const(count - 1, i64)), Const(0, i64))


def _anonymous(d: Definition) -> Definition:
    """Return a definition of one tensor without the name of that."""

    def renamed(read: Read) -> Expr:
        return replace(read, tensor="") if read.tensor == d.tensors[0].name else read

    return replace(map_pieces(d, lambda value: substitute_reads(value, renamed)), tensors=(replace(d.tensors[0], name=""),))
