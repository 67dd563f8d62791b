"""The derivatives of a program's results, definition by definition, last ones first.

The derivative by an element is the sum of what its readers add (`terms`), brought to the element where it is added (`solve`). A definition
that reads itself needs nothing of its own: what reads `s[t - 1]` at `t` adds `d_s[t + 1]` at `t`, and so its derivative is a recurrence
that runs the other way, over the states that the program has stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from codegen.dtypes import DType, compute_dtype
from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.dead_code import eliminate_dead, without_dead_calls
from tensorlang.tensor.gradient.algebra import chosen, conjunction, equal, is_number, number, quotient, sum_reducer, total, without_lets
from tensorlang.tensor.gradient.invariant import is_invariant
from tensorlang.tensor.gradient.normal_form import Grown, chooses, grown_along, normal_form, not_differentiable
from tensorlang.tensor.gradient.simplify import divided_once, outside_of_sum, with_phases, with_plain_names, without_copies
from tensorlang.tensor.gradient.solve import Solved, Target, solved
from tensorlang.tensor.gradient.terms import Around, Reverse, Term, equal_terms, moved, opened
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import (
    Call,
    Compare,
    Const,
    Definition,
    Expr,
    Holds,
    Piece,
    Program,
    Read,
    Reduce,
    Select,
    Tensor,
    TupleOf,
)
from tensorlang.tensor.renaming import rename_program
from tensorlang.tensor.types import types_of
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import (
    Fresh,
    bound_names,
    children,
    definers,
    fresh_for,
    refresh,
    rename_binders,
    substitute,
    tensor_names,
    tensor_table,
)


def gradient(program: Program, by: Sequence[str], names: Mapping[str, str], name: str) -> Program:
    """Return the program called `name` that takes the parameters of `program` and, for each of its results of floats, the derivative of a
    number by that result, and returns the derivatives of the number by the parameters `by`. `names`: what the derivatives by results and
    parameters are called.

    Raises CompileError T0180 where something is not differentiable."""
    program = _without_clashes(program, names)
    _check_differentiable(program, by)
    normal = normal_form(program, _active(program, by))
    return verify(with_phases(_Reversal(normal, tuple(by), names, name).whole()))


def _without_clashes(program: Program, names: Mapping[str, str]) -> Program:
    """Return the program with other names for its own tensors and indices that are called like derivatives."""
    fresh = fresh_for(program)
    wanted = set(names.values())
    taken = sorted(fresh.used & wanted)
    fresh.used |= wanted
    return rename_program(program, {name: fresh(name) for name in taken}) if taken else program


def _check_differentiable(program: Program, by: Sequence[str]) -> None:
    table = tensor_table(program)
    for parameter in by:
        if not table[parameter].dtype.is_float:
            title = f"`{parameter}` of `{program.name}`"
            why = f"its elements are {table[parameter].dtype}, and derivatives are by floats"
            raise not_differentiable(title, why, table[parameter].span)
    if not any(table[r].dtype.is_float for r in program.results):
        raise not_differentiable(f"`{program.name}`", "none of its results is of floats", program.span)
    active = _active(program, by)
    for call in program.externs:
        read = sorted(active & {*call.reads})
        if read:
            why = f"`{call.operator}` is a kernel of its own, whose equations nobody knows, and it reads `{read[0]}`"
            raise not_differentiable(f"`{call.operator}`", why, call.span)
    _check_bits(program, active)


def _check_bits(program: Program, active: frozenset[str]) -> None:
    """Raise T0180 where floats are made of the bits of others, as where numbers are sorted by theirs: they vary with these, and by which
    derivative is not known."""
    made: set[str] = set()
    before = -1
    while len(made) != before:
        before = len(made)
        for definition in program.definitions:
            if any(_bits(without_lets(p.value), active, made) for p in definition.pieces):
                made |= {t.name for t in definition.tensors if not t.dtype.is_float}
        for call in program.externs:
            if made & {*call.reads}:
                made |= {t.name for t in call.results if not t.dtype.is_float}


def _bits(e: Expr, active: frozenset[str], made: set[str]) -> bool:
    """Tell whether the value of `e` is made of the bits of a float, and not only chosen by them."""
    match e:
        case Read(tensor):
            return tensor in made
        case Call("bits", (value,)):
            return not tensor_names(value).isdisjoint(active)
        case Call("from_bits", (value,)) if _bits(value, active, made):
            raise not_differentiable("a float made of bits", "they are those of a float that derivatives are asked for", e.span)
        case Compare():
            return False
        case Select(_, then, orelse):
            return any([_bits(then, active, made), _bits(orelse, active, made)])
        case _:
            return any([_bits(child, active, made) for child in children(e)])  # noqa: C419


def _active(program: Program, by: Sequence[str]) -> frozenset[str]:
    """Return the tensors of floats that depend on parameters through floats alone."""
    active = set(by)
    before = -1
    while len(active) != before:
        before = len(active)
        for definition in program.definitions:
            if any(not tensor_names(p.value).isdisjoint(active) for p in definition.pieces):
                active |= {t.name for t in definition.tensors if t.dtype.is_float}
        for call in program.externs:
            if active & {*call.reads}:
                active |= {t.name for t in call.results if t.dtype.is_float}
    return frozenset(active)


def _needed(program: Program, active: frozenset[str]) -> frozenset[str]:
    """Return those of `active` that a result of floats depends on."""
    table, makers = tensor_table(program), definers(program)
    needed: set[str] = set()
    pending = [r for r in program.results if table[r].dtype.is_float]
    while pending:
        name = pending.pop()
        if name in needed or name not in active:
            continue
        needed.add(name)
        if name in makers:
            pending += [n for p in makers[name].pieces for n in sorted(tensor_names(p.value))]
    return frozenset(needed)


def _is_extremum(definition: Definition) -> bool:
    value = definition.pieces[0].value
    return isinstance(value, Reduce) and value.reducer.kind in ("max", "min")


def _one_more(definition: Definition, e: Reduce) -> Grown | None:
    """Return how extrema grow along an axis that begin with one term and have one more from element to element; None of any others."""
    plain = e.where == TRUE and e.filter is None and e.init is None and len(e.binders) == 1
    if not plain or not _is_extremum(definition) or len(definition.pieces) > 1 or definition.pieces[0].guard != TRUE:
        return None
    extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    grown = grown_along(definition, e, extents)
    if grown is None or definition.tensors[0].dtype != compute_dtype(definition.tensors[0].dtype):
        return None
    number_of = affine.sub(extents[grown.axis], grown.axis) if grown.backwards else affine.add(grown.axis, 1)
    return grown if affine.same(grown.count, number_of) else None


@dataclass(slots=True)
class _Reversal:
    program: Program
    by: tuple[str, ...]
    names: Mapping[str, str]
    name: str
    fresh: Fresh = field(init=False)
    active: frozenset[str] = field(init=False)
    given: dict[str, str] = field(init=False)
    """Result → the parameter that holds the derivative by it."""
    derivatives: dict[str, str] = field(init=False)
    """Tensor → the tensor that holds the derivative by it."""
    tensors: dict[str, Tensor] = field(init=False)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    extra: list[Definition] = field(default_factory=list)

    def __post_init__(self) -> None:
        program = self.program
        self.fresh = fresh_for(program)
        self.fresh.used.update(self.names.values())
        self.tensors = tensor_table(program)
        needed = _needed(program, _active(program, self.by))
        self.active = needed - self.invariant(needed)
        self.given = {r: self.names[r] for r in program.results if r in self.names}
        self.derivatives = {}
        for tensor in sorted(self.active):
            own = self.names[tensor] if tensor in self.by else self.fresh(f"d_{tensor}".replace(".", "_"))
            self.derivatives[tensor] = own

    def invariant(self, active: frozenset[str]) -> frozenset[str]:
        """Return the extrema among tensors that results do not depend on."""
        extrema = [d.tensors[0].name for d in self.program.definitions if _is_extremum(d)]
        return frozenset(t for t in extrema if t in active and is_invariant(self.program, t))

    def variable(self, name: str) -> str:
        return f"{name.partition('?')[0]}?{next(self.numbers)}"

    # ------------------------------------------------ the whole

    def whole(self) -> Program:
        program = self.program
        terms: dict[str, list[Term]] = {t: [] for t in self.active}
        for definition in program.definitions:
            if any(t.name in self.active for t in definition.tensors):
                for term in self.terms(definition):
                    terms[term.tensor].append(term)
        cotangents = tuple(replace(self.tensors[r], name=self.given[r], declared_range=None) for r in program.results if r in self.given)
        made = [self.derivative(name, terms[name]) for name in reversed(self.order())]
        made += [self.nothing(name) for name in self.by if name not in self.active]
        results = tuple(self.names[p] for p in self.by)
        definitions = (*program.definitions, *self.extra, *made)
        changed = replace(program, name=self.name, params=(*program.params, *cotangents), results=results)
        out = without_dead_calls(eliminate_dead(redefined(changed, definitions)))
        present = {t.name for d in out.definitions for t in d.tensors}
        out = without_copies(out, frozenset(self.derivatives.values()) & present)
        own = frozenset(t.name for d in out.definitions for t in d.tensors) - self.tensors.keys()
        return with_plain_names(divided_once(out, own))

    def order(self) -> list[str]:
        """Return the tensors whose derivatives are made, in the order in which the program defines them."""
        listed = [p.name for p in self.program.params] + [t.name for d in self.program.definitions for t in d.tensors]
        return [name for name in listed if name in self.active]

    def nothing(self, name: str) -> Definition:
        """Return the derivative by a parameter that no result depends on."""
        tensor = self.tensors[name]
        axes = self.axes_of(name, [])
        zero = number(0, compute_dtype(tensor.dtype))
        return Definition((replace(tensor, name=self.names[name], declared_range=None),), axes, (Piece(zero),))

    # ------------------------------------------------ what readers add

    def terms(self, definition: Definition) -> Iterator[Term]:
        """Yield what a definition adds to the derivatives by what it reads."""
        tensors = definition.tensors
        value = definition.pieces[0].value
        whole: dict[Expr, Expr] = {}
        if len(tensors) == 1 and compute_dtype(tensors[0].dtype) == tensors[0].dtype:
            own = Read(tensors[0].name, tuple(map(AffineName, definition.axes)))
            whole = {p.value: own for p in definition.pieces if not isinstance(p.value, Read | Const)}
        if len(definition.pieces) >= 1 and isinstance(value, Reduce) and chooses(value.reducer):
            yield from self.chosen(definition, value)
            return
        for piece in definition.pieces:
            variables, to = opened(definition, self.variable)
            around = Around(variables, affine.substitute_cond(piece.guard, dict(to)))
            items = piece.value.items if isinstance(piece.value, TupleOf) else (piece.value,)
            if len(items) != len(tensors):
                raise not_differentiable(
                    "this reduction", "of its results only some are floats, or its binders are not plain", piece.value.span
                )
            held = {moved(e, to): moved(r, to) for e, r in whole.items()}
            reverse = Reverse(types_of(self.program), self.active, held, self.variable)
            for tensor, item in zip(tensors, items, strict=True):
                if tensor.name in self.active:
                    by = self.by_element(tensor.name, tuple(AffineName(v.name) for v in variables))
                    yield from reverse.terms(moved(item, to), by, around)

    def by_element(self, tensor: str, index: tuple[Affine, ...]) -> Expr:
        return Read(self.derivatives[tensor], index)

    def chosen(self, definition: Definition, e: Reduce) -> Iterator[Term]:
        """Yield what a reduction adds that chooses among its terms: equal ones have equal shares."""
        tensors, axes = definition.tensors, definition.axes
        grown = _one_more(definition, e)
        if grown is not None:
            yield from self.running(definition, e, grown)
            return
        at = tuple(map(AffineName, axes))
        results = tuple(Read(t.name, at) for t in tensors)
        floats = [t for t in tensors if t.name in self.active]
        dtype = compute_dtype(floats[0].dtype)
        body, start = equal_terms(e, results, dtype)
        counting = Reduce(sum_reducer(dtype), e.binders, (body,), e.where, e.filter, (start,) if not is_number(start, 0) else None)
        counting = self.with_fresh_binders(counting)
        guard = definition.pieces[0].guard
        ties = self.define(f"{tensors[0].name}_ties", dtype, definition, counting, guard)
        shares: list[Expr | None] = []
        for tensor in tensors:
            if tensor.name not in self.active:
                shares.append(None)
                continue
            value = quotient(Read(self.derivatives[tensor.name], at), Read(ties, at))
            shares.append(Read(self.define(f"{self.derivatives[tensor.name]}_share", dtype, definition, value, guard), at))
        variables, to = opened(definition, self.variable)
        reverse = Reverse(types_of(self.program), self.active, {}, self.variable)
        around = Around(variables, affine.substitute_cond(guard, dict(to)))
        moved_reduce = moved(e, to)
        assert isinstance(moved_reduce, Reduce)
        slopes = tuple(None if s is None else moved(s, to) for s in shares)
        yield from reverse.chosen(moved_reduce, tuple(moved(r, to) for r in results), slopes, around)
        for piece in definition.pieces[1:]:
            if not tensor_names(piece.value).isdisjoint(self.active):
                raise not_differentiable("this equation", "it reduces under a condition", piece.span)

    def running(self, definition: Definition, e: Reduce, grown: Grown) -> Iterator[Term]:
        """Yield what extrema add that have one term more from element to element: how many terms are equal to each, and what a term
        gets of all those that it is equal to, are running sums, too, of stretches in which the extremum stays what it is.

        y[j] = max(k in 0..j+1) x[k]      ties[j]  = (if y[j - 1] == y[j] then ties[j - 1] else 0) + (if x[j] == y[j] then 1 else 0)
                                          taken[j] = d_y[j] / ties[j] + (if y[j + 1] == y[j] then taken[j + 1] else 0)
                                          d_x[j]   = if x[j] == y[j] then taken[j] else 0"""
        [tensor], axes, [binder] = definition.tensors, definition.axes, e.binders
        dtype, step = compute_dtype(tensor.dtype), -1 if grown.backwards else 1
        one, zero = number(1, dtype), number(0, dtype)
        place = {axis: AffineName(axis) for axis in axes}
        extent = tensor.shape[axes.index(grown.axis)]

        def at(name: str, steps: int) -> Read:
            moved_by = {**place, grown.axis: affine.add(grown.axis, steps)}
            return Read(name, tuple(moved_by.values()))

        def carried(name: str, steps: int) -> Expr:
            """Return what another element holds where its extremum is the same, as far as there is such an element."""
            held = at(tensor.name, steps)
            beside = affine.add(grown.axis, steps)
            there = Holds(affine.compare(">=", beside, 0) if steps < 0 else affine.compare("<", beside, extent))
            return chosen(there, chosen(equal(held, at(tensor.name, 0)), at(name, steps), zero), zero)

        last = binder.lo if grown.backwards else affine.sub(binder.hi, 1)
        newest = equal(substitute(e.body[0], {binder.name: last}), at(tensor.name, 0))
        ties, taken = self.fresh(f"{tensor.name}_ties"), self.fresh(f"{self.derivatives[tensor.name]}_taken")
        share = quotient(Read(self.derivatives[tensor.name], tuple(place.values())), at(ties, 0))
        for name, value in (
            (ties, total(carried(ties, -step), chosen(newest, one, zero))),
            (taken, total(share, carried(taken, step))),
        ):
            self.extra.append(Definition((Tensor(name, dtype, tensor.shape),), axes, (Piece(value),)))
        variables, to = opened(definition, self.variable)
        reverse = Reverse(types_of(self.program), self.active, {}, self.variable)
        term = moved(substitute(e.body[0], {binder.name: last}), to)
        yield from reverse.terms(term, moved(at(taken, 0), to), Around(variables, tests=(moved(newest, to),)))

    def define(self, stem: str, dtype: DType, like: Definition, value: Expr, guard: Cond) -> str:
        """Return the name of a new tensor over the axes of `like`, which holds `value` where `guard` is true, and 0 elsewhere."""
        tensor = Tensor(self.fresh(stem), dtype, like.tensors[0].shape)
        pieces = [Piece(value, guard)]
        if guard != TRUE:
            pieces.append(Piece(number(0, dtype), affine.negate(guard), otherwise=True))
        self.extra.append(Definition((tensor,), like.axes, tuple(pieces)))
        return tensor.name

    def with_fresh_binders(self, e: Reduce) -> Reduce:
        return rename_binders(e, {b.name: self.fresh(b.name) for b in e.binders})

    # ------------------------------------------------ one derivative

    def derivative(self, name: str, terms: list[Term]) -> Definition:
        """Return the definition of the derivative by a tensor: the sum of what its readers add."""
        tensor = self.tensors[name]
        axes = self.axes_of(name, terms)
        target = Target(
            axes, tensor.shape, self.program.sizes, self.context(), types_of(self.with_derivatives()), self.variable, self.declared()
        )
        dtype = compute_dtype(tensor.dtype)
        parts: list[Expr] = []
        if name in self.given:
            parts.append(Read(self.given[name], tuple(map(AffineName, axes))))
        sums: list[Expr] = []
        for term in terms:
            for found in solved(term, target):
                (sums if found.binders else parts).append(self.added(found, dtype))
        if len(sums) > 1:
            sums = [self.apart(name, k, axes, tensor, s, dtype) for k, s in enumerate(sums, 1)]
        value: Expr = number(0, dtype)
        for part in (*parts, *sums):
            value = total(value, part)
        value = self.with_own_names(value)
        out = replace(tensor, name=self.derivatives[name], declared_range=None, dtype=tensor.dtype if name in self.by else dtype)
        if name not in self.by:
            out = replace(out, grouping=())
        return Definition((out,), axes, (Piece(value),))

    def apart(self, name: str, k: int, axes: tuple[str, ...], tensor: Tensor, e: Expr, dtype: DType) -> Expr:
        """Return an element of a tensor of its own that holds one of several sums."""
        own = Tensor(self.fresh(f"{self.derivatives[name]}_{k}"), dtype, tensor.shape)
        self.extra.append(Definition((own,), axes, (Piece(self.with_own_names(e)),)))
        return Read(own.name, tuple(map(AffineName, axes)))

    def with_own_names(self, e: Expr) -> Expr:
        """Return `e`, of which parts are equal, with another name for each value and index that it binds."""
        bound = list(bound_names(e))
        return refresh(e, self.fresh) if len(set(bound)) < len(bound) else e

    def with_derivatives(self) -> Program:
        """Return the program with the derivatives declared, for their types."""
        made = tuple(replace(self.tensors[t], name=d, dtype=compute_dtype(self.tensors[t].dtype)) for t, d in self.derivatives.items())
        extra = tuple(t for d in self.extra for t in d.tensors)
        return replace(self.program, params=(*self.program.params, *made, *extra))

    def context(self) -> Cond:
        return affine.conj(self.program.context, *(affine.compare(">=", s, 0) for s in self.program.sizes))

    def declared(self) -> dict[str, tuple[Affine, Affine]]:
        """Return the ranges that parameters are promised to lie in."""
        return {p.name: p.declared_range for p in self.program.params if p.declared_range is not None}

    def axes_of(self, name: str, terms: list[Term]) -> tuple[str, ...]:
        """Return names for the axes of a derivative: those of the definition, or the indices that a parameter is read at."""
        definition = definers(self.program).get(name)
        if definition is not None:
            return definition.axes
        for term in terms:
            stems = [s.name.partition("?")[0] if isinstance(s, AffineName) else "" for s in term.index]
            if all(stems) and len(set(stems)) == len(stems):
                return tuple(map(self.variable, stems))
        own = name.replace(".", "_")
        for term in terms:
            stems = [s.name.partition("?")[0] if isinstance(s, AffineName) else f"{own}{k}" for k, s in enumerate(term.index)]
            if len(set(stems)) == len(stems):
                return tuple(map(self.variable, stems))
        return tuple(self.variable(f"{own}{k}") for k in range(len(self.tensors[name].shape)))

    def added(self, found: Solved, dtype: DType) -> Expr:
        """Return what is added to an element, as an expression over the axes of its tensor."""
        value = found.value
        zero = number(0, dtype)
        asked = conjunction(found.tests if found.binders else (*found.named, *found.tests))
        value = value if asked is None else chosen(asked, value, zero)
        if not found.binders and found.where != TRUE:
            value = Select(Holds(found.where), value, zero)
        if found.binders:
            summed = Reduce(sum_reducer(dtype), found.binders, (value,), found.where, conjunction(found.named))
            value = outside_of_sum(summed)
        given: Cond = found.given
        return value if given == TRUE else Select(Holds(given), value, zero)
