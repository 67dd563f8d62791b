"""What holds where a part of a program is evaluated: boxes, guards, ranges of binders, conditions around it.

`parts` alone says under which conditions the parts of an expression are evaluated. The prover, the statements that are scheduled and all
that moves an expression elsewhere walk programs through it: what one takes for granted, the others keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice, product

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Cond, Int
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.nodes import (
    Binary,
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
    Program,
    Read,
    Reduce,
    Reducer,
    Select,
    Unary,
)
from tensorlang.tensor.walk import index_names, map_children, nodes, reads, reduces, tensor_names

MOST_POINTS = 64
"""How many points of a range are looked at for one that its condition leaves."""


def box(definition: Definition) -> Cond:
    """Return `0 <= axis < extent` for every axis of the definition."""
    return affine.conj(*(affine.within(a, 0, s) for a, s in zip(definition.axes, definition.tensors[0].shape, strict=True)))


def binder_cond(e: Reduce) -> Cond:
    """Return what holds of the binders of `e` inside its body: their ranges and `where`."""
    return affine.conj(*(affine.within(b.name, b.lo, b.hi) for b in e.binders), e.where)


def first_point(e: Reduce) -> dict[str, Affine] | None:
    """Return the first point of the range of `e`, where that lies between numbers and is left by a condition on its binders alone; None
    where it is none of the leading points, or nothing of this kind."""
    ends = {b.name: (affine.constant(b.lo), affine.constant(b.hi)) for b in e.binders}
    ranges = {name: range(lo, min(hi, lo + MOST_POINTS)) for name, (lo, hi) in ends.items() if lo is not None and hi is not None}
    if len(ranges) < len(ends) or not affine.name_set(e.where) <= ranges.keys():
        return None
    points = (dict(zip(ranges, point, strict=True)) for point in islice(product(*ranges.values()), MOST_POINTS))
    found = next((point for point in points if affine.holds(e.where, point)), None)
    return None if found is None else {name: Int(k) for name, k in found.items()}


def facts(e: Expr) -> Cond:
    """Return the polyhedral part of a condition: what surely holds where `e` is true."""
    match e:
        case Const(value):
            return TRUE if value else FALSE
        case Holds(cond):
            return cond
        case Binary("and", lhs, rhs):
            return affine.conj(facts(lhs), facts(rhs))
        case Binary("or", lhs, rhs):
            return affine.disj(facts(lhs), facts(rhs))
        case Unary("not", value):
            return negative_facts(value)
        case _:
            return TRUE


def negative_facts(e: Expr) -> Cond:
    """Return what surely holds where the condition `e` is false."""
    match e:
        case Const(value):
            return FALSE if value else TRUE
        case Holds(cond):
            return affine.negate(cond)
        case Binary("and", lhs, rhs):
            return affine.disj(negative_facts(lhs), negative_facts(rhs))
        case Binary("or", lhs, rhs):
            return affine.conj(negative_facts(lhs), negative_facts(rhs))
        case Unary("not", value):
            return facts(value)
        case _:
            return TRUE


def possible(e: Expr, declared: Mapping[str, tuple[Affine, Affine]]) -> Cond:
    """Return what surely holds of sizes and indices where the condition `e` is true, as elements of tensors lie in declared ranges."""
    match e:
        case Binary("and", lhs, rhs):
            return affine.conj(possible(lhs, declared), possible(rhs, declared))
        case Binary("or", lhs, rhs):
            return affine.disj(possible(lhs, declared), possible(rhs, declared))
        case Compare(op, Read(tensor), other) if tensor in declared and (bound := _index_of(other)) is not None:
            lo, hi = declared[tensor]
            return affine.conj(
                *([affine.compare(op, affine.add(hi, -1), bound)] if op in (">", ">=") else ()),
                *([affine.compare(op, lo, bound)] if op in ("<", "<=") else ()),
                *([affine.compare("<=", lo, bound), affine.compare("<", bound, hi)] if op == "==" else ()),
            )
        case _:
            return facts(e)


def _index_of(e: Expr) -> Affine | None:
    """Return an integer as an index, None where it is none."""
    match e:
        case IndexValue(index):
            return index
        case Const(value) if isinstance(value, int):
            return affine.to_expr(int(value))
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Place:
    """Where an expression stands.

    `context` is what surely holds there of indices, `scope` the axes and binders there are, `ranges` between which bounds they lie. `given`
    are the conditions around it that are true, outermost first: each may be evaluated where those before it hold. `lets` are the values
    that names stand for here."""

    context: Cond = TRUE
    scope: tuple[str, ...] = ()
    ranges: Cond = TRUE
    given: tuple[Expr, ...] = ()
    lets: Mapping[str, Expr] = field(default_factory=dict)

    def where(self, condition: Expr) -> Place:
        """Return the place of what is evaluated only where `condition`, evaluated here, is true."""
        return replace(self, context=affine.conj(self.context, facts(condition)), given=(*self.given, condition))

    def unless(self, condition: Expr) -> Place:
        """Return the place of what is evaluated only where `condition`, evaluated here, is false."""
        otherwise = Unary("not", condition, span=condition.span)
        return replace(self, context=affine.conj(self.context, negative_facts(condition)), given=(*self.given, otherwise))

    def inside(self, e: Reduce) -> Place:
        """Return the place of what is evaluated at each point of the reduction `e`."""
        known, ranges = affine.conj(self.context, binder_cond(e)), affine.conj(self.ranges, binder_cond(replace(e, where=TRUE)))
        return replace(self, context=known, ranges=ranges, scope=(*self.scope, *(b.name for b in e.binders)))

    def bound(self, e: Let) -> Place:
        """Return the place of the body of `e`."""
        return replace(self, lets={**self.lets, e.name: e.value})

    def condition(self) -> Expr | None:
        """Return all of `given` as one condition that mentions no `let`; None for none."""
        every: Expr | None = None
        for given in self.given:
            condition = without_lets(given, self.lets)
            every = condition if every is None else Binary("and", every, condition, span=condition.span)
        return every


def map_parts(f: Callable[[Expr, Place], Expr], e: Expr, place: Place) -> Expr:
    """Return `e`, which stands at `place`, with `f` applied to each direct child and the child's place, in order of evaluation."""
    match e:
        case Select(cond, then, orelse):
            return replace(e, cond=f(cond, place), then=f(then, place.where(cond)), orelse=f(orelse, place.unless(cond)))
        case Binary("and", lhs, rhs):
            return replace(e, lhs=f(lhs, place), rhs=f(rhs, place.where(lhs)))
        case Binary("or", lhs, rhs):
            return replace(e, lhs=f(lhs, place), rhs=f(rhs, place.unless(lhs)))
        case Let(_, value):
            return replace(e, value=f(value, place), body=f(e.body, place.bound(e)))
        case Reduce(_, _, bodies, _, condition, init):
            start = None if init is None else tuple(f(i, place) for i in init)
            inner = place.inside(e)
            kept = None if condition is None else f(condition, inner)
            inner = inner if condition is None else inner.where(condition)
            return replace(e, init=start, filter=kept, body=tuple(f(b, inner) for b in bodies))
        case _:
            return map_children(lambda child: f(child, place), e)


def parts(e: Expr, place: Place) -> Iterator[tuple[Expr, Place]]:
    """Yield the direct children of `e`, which stands at `place`, each with its own, in order of evaluation."""
    found: list[tuple[Expr, Place]] = []

    def note(child: Expr, there: Place) -> Expr:
        found.append((child, there))
        return child

    map_parts(note, e, place)
    yield from found


def visits(e: Expr, place: Place) -> Iterator[tuple[Expr, Place]]:
    """Yield every node in `e`, which stands at `place`, with its own: parents first, in order of evaluation."""
    yield e, place
    for child, there in parts(e, place):
        yield from visits(child, there)


def without_lets(e: Expr, lets: Mapping[str, Expr]) -> Expr:
    """Return `e` with the values of `lets` in place of their names, and without any `let` of its own outside of reductions, which mention
    none of `lets`."""
    match e:
        case Reduce():
            return e
        case Name(name) if name in lets:
            return without_lets(lets[name], lets)
        case Let(name, value, body):
            return without_lets(body, {**lets, name: value})
        case _:
            return map_children(lambda child: without_lets(child, lets), e)


# ---------------------------------------------------------------- reductions


def reductions(e: Expr, place: Place) -> dict[Reduce, list[Place]]:
    """Return the outermost reductions in `e`, which stands at `place`, with every place where the value of each is asked for."""
    found: dict[Reduce, list[Place]] = {}

    def visit(child: Expr, there: Place) -> None:
        if isinstance(child, Reduce):
            found.setdefault(child, []).append(there)
            return
        for part, where in parts(child, there):
            visit(part, where)

    visit(e, place)
    return found


def context_of(places: list[Place]) -> Cond:
    """Return what surely holds of indices at one of `places` or another."""
    return affine.disj(*(p.context for p in places))


def path_condition(places: list[Place]) -> Expr | None:
    """Return a condition that is true exactly where one of `places` is come to, or None where one of them always is. It may be evaluated
    wherever the expression may that they are all parts of."""
    found: list[Expr] = []
    for place in places:
        condition = place.condition()
        if condition is None:
            return None
        if condition not in found:
            found.append(condition)
    return reduce(lambda a, b: Binary("or", a, b, span=b.span), found)


def has_gather(e: Expr) -> bool:
    """Tell whether `e` reads at an index from data: a condition around it may be all that keeps such an index in its range."""
    return any(isinstance(slot, Dynamic) for r in reads(e) for slot in r.index)


def is_of_indices(condition: Expr) -> bool:
    """Tell whether `condition` is decided by indices alone, so that `facts` says all of it."""
    match condition:
        case Holds():
            return True
        case Binary("and" | "or", lhs, rhs):
            return is_of_indices(lhs) and is_of_indices(rhs)
        case Unary("not", value):
            return is_of_indices(value)
        case _:
            return False


def keeps_conditions(e: Reduce) -> bool:
    """Tell whether conditions on data around `e` have to hold wherever any of it is evaluated."""
    return has_gather(e) or starts_from_reads(e)


def starts_from_reads(e: Reduce) -> bool:
    """Tell whether the value that `e` starts from is read from somewhere."""
    return any(True for start in e.init or () for _ in reads(start))


def follows(condition: Expr, place: Place) -> bool:
    """Tell whether `condition` is seen to be true at `place`: from the conditions around it as they are written, no more."""
    return _follows(condition, frozenset(conjuncts(place.condition())))


def _follows(condition: Expr, given: frozenset[Expr]) -> bool:
    match condition:
        case Binary("and", lhs, rhs):
            return condition in given or (_follows(lhs, given) and _follows(rhs, given))
        case Binary("or", lhs, rhs):
            return condition in given or _follows(lhs, given) or _follows(rhs, given)
        case _:
            return condition in given


def conjuncts(condition: Expr | None) -> Iterator[Expr]:
    """Yield the conditions that are all true where `condition` is: itself, and what it joins by `and`."""
    if condition is not None:
        yield condition
    if isinstance(condition, Binary) and condition.op == "and":
        yield from conjuncts(condition.lhs)
        yield from conjuncts(condition.rhs)


def named_by_data(condition: Expr | None) -> Iterator[tuple[str, Expr]]:
    """Yield the indices that a condition says to be what data say, each with that: where it holds they have one value."""
    for part in conjuncts(condition):
        match part:
            case Compare("==", IndexValue(AffineName(name)), data) | Compare("==", data, IndexValue(AffineName(name))):
                if tensor_names(data) and name not in index_names(data):
                    yield name, data
            case _:
                pass


def is_choice(reducer: Reducer) -> bool:
    """Tell whether what a reducer comes to is always one of its terms, as the greatest with its place is: grouped in another way, terms are
    compared in other pairs, and nothing is rounded."""
    return all(map(is_one_of, reducer.combine, reducer.left, reducer.right))


def computes_in_any_order(program: Program) -> bool:
    """Tell whether a reducer that is no sum, product, minimum or maximum computes with terms in an order that schedules choose."""
    every = (e.reducer for d in program.definitions for p in d.pieces for e in reduces(p.value))
    return program.mode != "strict" and any(r.kind is None and r.commutative and not is_choice(r) for r in every)


def has_free_quotients(program: Program) -> bool:
    """Tell whether a program divides, and its mode lets products and quotients be regrouped."""
    values = (n for d in program.definitions for p in d.pieces for n in nodes(p.value))
    return program.mode == "fast" and any(isinstance(n, Binary) and n.op == "/" for n in values)


def is_search(e: Reduce) -> bool:
    """Tell whether a reduction looks for a term: one that holds, or one that does not, or the first or last place where something does."""
    match e.body:
        case (IndexValue(index) | Cast(_, IndexValue(index)),) if e.reducer.kind in ("min", "max") and e.binders:
            form = affine.affine_form(index)
            return form is not None and form[0].get(e.binders[-1].name, 0) > 0
        case _:
            return e.reducer.kind in ("any", "all")


def index_in(e: Expr) -> Affine | None:
    """Return the index that an integer is, or is cast from; None where it is none."""
    match e:
        case IndexValue(index):
            return index
        case Cast(dtype, IndexValue(index)) if dtype.is_integer:
            return index
        case _:
            return None


def is_one_of(e: Expr, left: str, right: str) -> bool:
    """Tell whether a value is one of two names, whatever it is chosen by."""
    match e:
        case Select(_, then, orelse):
            return is_one_of(then, left, right) and is_one_of(orelse, left, right)
        case Name(name):
            return name in (left, right)
        case _:
            return False
