"""Sums of products factor by factor, in the order that takes the fewest operations (as networks of tensors are contracted).

    y[i, j] = sum(a, b, c) u[i, a] * v[a, b] * w[b, c] * x[c, j]

    y.sum[i, b]   = sum(a) u[i, a] * v[a, b]
    y.sum_1[b, j] = sum(c) w[b, c] * x[c, j]
    y[i, j]       = sum(b) y.sum[i, b] * y.sum_1[b, j]

What is combined has to distribute over what is reduced: products over sums, sums over minima and maxima (shortest paths), minima over
maxima, `and` over `any`, and the other way round. A factor that needs none of the indices of a reduction stands outside of it. What two
factors are combined to for all points is a tensor of its own where a product of matrices reads it; elsewhere it is written where it is
read.

Floats are then rounded elsewhere than their equation says, so a `strict` operator keeps its sums and products. It keeps minima of maxima
too, where what is reduced may be nothing: that is infinite whatever the factors are, and the maximum with a NaN is NaN. Integers wrap, and
their sums of products are the same in any order; the least of their sums is not, as one of them may wrap where another does not. What reads
at indices that only a check keeps in bounds stays, so that nothing is checked that no term asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.sets import is_empty
from polyhedral.verdict import Proven
from tensorlang.tensor.factor_order import FactorOrder, Step
from tensorlang.tensor.facts import box, has_gather
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nested import contiguous
from tensorlang.tensor.nodes import Binary, Definition, Expr, Piece, Program, Read, Reduce, Tensor
from tensorlang.tensor.prove import problems_since
from tensorlang.tensor.walk import (
    Fresh,
    component_of,
    definers,
    definition_reads,
    fresh_for,
    index_names,
    map_children,
    operands,
    substitute,
    value_names,
)

Operation: TypeAlias = Literal["*", "+", "min", "max", "and", "or"]
DISTRIBUTES: Mapping[str | None, tuple[Operation, ...]] = {
    "sum": ("*",),
    "min": ("+", "max"),
    "max": ("+", "min"),
    "any": ("and",),
    "all": ("or",),
}
"""Kind of a reducer → what distributes over it: to combine a value with all that is reduced is to combine it with the result."""
MOST_FACTORS = 8
"""Of one reduction: the orders of more are too many to look at each."""
OPEN_EXTENT = 64
"""What an extent that is not known counts as."""
MOST_ELEMENTS = 1 << 20
"""Of a tensor that is made on the way, unless a factor or the result has as many."""


@dataclass(frozen=True, slots=True)
class Factorized:
    """A program in which reductions of a tensor go factor by factor. `before` and `after`: points of single loops that take as long as
    these reductions, as they were written and as they are now."""

    program: Program
    before: float
    after: float


def factorized(program: Program, tensor: str) -> Factorized | str:
    """Return the program with the reductions of a tensor's equations factor by factor, where that takes fewer operations, or the reason
    why none does."""
    definition = definers(program).get(tensor)
    if definition is None:
        return f"there is no tensor `{tensor}` defined here"
    group = component_of(program, definition)
    if len(definition.tensors) > 1 or len(group) > 1 or tensor in definition_reads(definition):
        return f"`{tensor}` is a recurrence, or computed with others"
    rewriting = _Rewriting(program, definition, fresh_for(program))
    pieces = tuple(replace(piece, value=rewriting.of(piece.value)) for piece in definition.pieces)
    if not rewriting.after:
        return f"the equation of `{tensor}` reduces nothing whose factors may be taken one by one, and gain by it"
    at = program.definitions.index(definition)
    parts = (*program.definitions[:at], *rewriting.made, replace(definition, pieces=pieces), *program.definitions[at + 1 :])
    made = redefined(program, parts)
    if problems_since(program, made):
        return f"a factor of `{tensor}` exists only where all of them do"
    return Factorized(lift(made), rewriting.before, rewriting.after)


@dataclass(slots=True)
class _Rewriting:
    """The equations of a definition rewritten: what is made for them, and what their reductions took and take."""

    program: Program
    definition: Definition
    fresh: Fresh
    made: list[Definition] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0

    def of(self, e: Expr) -> Expr:
        if not isinstance(e, Reduce):
            return map_children(self.of, e)
        found = _product(self.program, self.definition, e)
        if found is None:
            return e
        order = found.order()
        best = order.best()
        if best.cost >= order.as_written:
            return e
        self.before += order.as_written
        self.after += best.cost
        return self._written(found, best)

    def _written(self, found: _Product, step: Step) -> Expr:
        """Return the value of a step at its indices."""
        value, *others = (self._part(found, part) for part in step.parts)
        for other in others:
            value = Binary(found.operation, value, other, span=found.reduce.span)
        binders = tuple(b for b in found.reduce.binders if b.name in found.listed(step.reduced))
        return replace(found.reduce, binders=binders, body=(value,)) if binders else value

    def _part(self, found: _Product, part: int | Step) -> Expr:
        """Return a factor, the reduction that a step is, or the element of a tensor that holds what a step combines."""
        if isinstance(part, int):
            return found.factors[part]
        value = self._written(found, part)
        if part.reduced:
            return value
        names = contiguous(found.listed(part.kept), value)
        axes = {name: self.fresh(name) for name in names}
        shape = tuple(found.ends[name] for name in names)
        tensor = Tensor(self.fresh(f"{self.definition.tensors[0].name}.factor"), found.reduce.reducer.dtypes[0], shape, span=value.span)
        body = substitute(value, {name: AffineName(axis) for name, axis in axes.items()})
        self.made.append(Definition((tensor,), tuple(axes.values()), (Piece(body, span=value.span),), span=value.span))
        return Read(tensor.name, tuple(map(AffineName, names)), span=value.span)


@dataclass(frozen=True, slots=True)
class _Product:
    """What a reduction combines (`factors`), and the indices around: `ends` says where the values of each end."""

    reduce: Reduce
    operation: Operation
    factors: tuple[Expr, ...]
    ends: dict[str, Affine]

    def listed(self, names: int) -> tuple[str, ...]:
        """Return the indices of a set, in order."""
        return tuple(name for k, name in enumerate(self.ends) if names >> k & 1)

    def order(self) -> FactorOrder:
        """Return the orders in which the factors may be combined. A factor has the indices of the bounds of its own, too."""
        bit = {name: 1 << k for k, name in enumerate(self.ends)}
        binders = {b.name: b for b in self.reduce.binders}
        bounds = {b.name: frozenset(affine.names(b.lo)) | frozenset(affine.names(b.hi)) for b in self.reduce.binders}

        def indices(factor: Expr) -> int:
            used = index_names(factor)
            return sum(bit[n] for n in used.union(*(bounds[n] for n in used & binders.keys())) & bit.keys())

        def size(name: str) -> int:
            known = binders[name].extent if name in binders else affine.constant(self.ends[name])
            return OPEN_EXTENT if known is None else max(1, known)

        names = tuple(map(indices, self.factors))
        sizes = tuple(map(size, self.ends))
        from_zero = (n for n in self.ends if n not in binders or (affine.constant(binders[n].lo) == 0 and not bounds[n] & bit.keys()))
        is_sum = self.reduce.reducer.kind == "sum"
        return FactorOrder(names, sizes, sum(bit[n] for n in binders), sum(bit[n] for n in from_zero), is_sum, MOST_ELEMENTS)


def _product(program: Program, definition: Definition, e: Reduce) -> _Product | None:
    """Return what a reduction combines, where that distributes over it and may be regrouped, and each of its indices ends where no other
    decides."""
    binders = {b.name for b in e.binders}
    if len(e.body) != 1 or e.filter is not None or e.init is not None or e.where != TRUE or value_names(e) or has_gather(e):
        return None
    if any(binders & {*affine.names(b.lo), *affine.names(b.hi)} for b in e.binders) or not binders <= index_names(e.body[0]):
        return None
    dtype = e.reducer.dtypes[0]
    ends = {**dict(zip(definition.axes, definition.tensors[0].shape, strict=True)), **{b.name: b.hi for b in e.binders}}
    for operation in DISTRIBUTES.get(e.reducer.kind, ()):
        factors = tuple(operands(operation, e.body[0]))
        if not 2 <= len(factors) <= MOST_FACTORS:
            continue
        if dtype.is_float:
            is_allowed = program.mode != "strict" or (operation in ("min", "max") and _is_never_empty(program, definition, e))
        else:
            is_allowed = operation != "+"
        if is_allowed:
            return _Product(e, operation, factors, ends)
    return None


def _is_never_empty(program: Program, definition: Definition, e: Reduce) -> bool:
    """Tell whether a reduction surely has a term for every element of the definition."""
    known = affine.conj(program.context, *(affine.compare(">=", size, 0) for size in program.sizes), box(definition))
    nothing = affine.disj(*(affine.compare("<=", b.hi, b.lo) for b in e.binders))
    return isinstance(is_empty(program.sizes, definition.axes, known, nothing), Proven)
