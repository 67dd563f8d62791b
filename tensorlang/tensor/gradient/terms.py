"""What every read of a tensor adds to the derivatives by its elements.

    y[i] = sum(k) x[2*i + k] * w[k]

    d_x[2*i + k] += d_y[i] * w[k]        for every i, k
    d_w[k]       += d_y[i] * x[2*i + k]  for every i, k

Such a `Term` goes over the indices of the equation and of its sums; `solve` turns it round, from where it is added to what is added there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.depth import is_deep, is_large
from tensorlang.tensor.gradient import functions
from tensorlang.tensor.gradient.algebra import chosen, equal, exponent_of, negative, number, product, quotient, total, without_lets
from tensorlang.tensor.gradient.normal_form import not_differentiable
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Call,
    Cast,
    Compare,
    Const,
    Definition,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Project,
    Read,
    Reduce,
    Select,
    Slot,
    TupleOf,
    Unary,
)
from tensorlang.tensor.types import Types, scalar_dtype
from tensorlang.tensor.walk import children, index_names, nodes, reduces, rename_binders, substitute, tensor_names, value_names


@dataclass(frozen=True, slots=True)
class Term:
    """`value` is added to the derivative by `tensor` at `index`, for every point of `variables` where `where` holds and then all of
    `tests`, each of which may be evaluated where those before it are true."""

    tensor: str
    index: tuple[Slot, ...]
    variables: tuple[Binder, ...]
    where: Cond
    tests: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around a part of a piece."""

    variables: tuple[Binder, ...]
    where: Cond = TRUE
    tests: tuple[Expr, ...] = ()

    def under(self, cond: Expr, holds: bool) -> Around:
        """Return what stands around the side of a choice."""
        if isinstance(cond, Const):
            return self if bool(cond.value) == holds else replace(self, where=affine.conj(self.where, affine.compare("<", 1, 0)))
        if isinstance(cond, Holds):
            return replace(self, where=affine.conj(self.where, cond.cond if holds else affine.negate(cond.cond)))
        return replace(self, tests=(*self.tests, cond if holds else Unary("not", cond)))


@dataclass(frozen=True, slots=True)
class Reverse:
    """Goes through the value of a piece from the outside in. `active`: the tensors whose derivatives are asked for, or needed on the way;
    `whole`: expressions that are elements of a tensor already; `variable`: a name for an index that nothing else has."""

    types: Types
    active: frozenset[str]
    whole: Mapping[Expr, Expr]
    variable: Callable[[str], str]
    lets: frozenset[str] | None = None
    """The names of values that depend on `active`; None in an expression so small that `terms` may be as many as there are ways to a read.
    In any other they are one for each element that is read."""

    def is_active(self, e: Expr) -> bool:
        return not tensor_names(e).isdisjoint(self.active) or not value_names(e).isdisjoint(self.lets or ())

    def known(self, e: Expr) -> Expr:
        """Return `e` as what holds it, where something does."""
        return self.whole.get(e, e)

    def terms(self, e: Expr, by: Expr, around: Around) -> Iterator[Term]:
        """Yield what the reads of `e` add, where `by` is the derivative by `e`."""
        if not self.is_active(e):
            return
        if self.lets is None and is_large(e, children) and not any(isinstance(n, Reduce | Holds) for n in nodes(e)):
            self = replace(self, lets=frozenset())
        if self.lets is not None and is_deep(by, children):
            yield from self.named(e, by, around)
            return
        match e:
            case Read(tensor, index):
                if tensor in self.active:
                    yield Term(tensor, index, around.variables, around.where, around.tests, by)
            case Unary("neg", value):
                yield from self.terms(value, negative(by), around)
            case Unary("abs", value):
                yield from self.terms(value, product(by, functions.absolute(value, self.dtype(value))), around)
            case Binary(op, lhs, rhs):
                yield from self.binary(e, op, lhs, rhs, by, around)
            case Select() if (exponent := exponent_of(e)) is not None:
                yield from self.terms(exponent, product(by, self.known(e)), around)
            case Select(cond, then, orelse) if self.lets is not None:
                yield from self.sides(cond, then, orelse, by, around)
            case Select(cond, then, orelse):
                yield from self.terms(then, by, around.under(cond, True))
                yield from self.terms(orelse, by, around.under(cond, False))
            case Cast(dtype, value):
                source = self.dtype(value)
                if dtype.is_float and source.is_float:
                    same = self.dtype(e) == source
                    yield from self.terms(value, by if same else Cast(source, by), around)
            case Call(fn, args):
                yield from self.call(e, fn, args, by, around)
            case Reduce():
                yield from self.sum(e, by, around)
            case Compare() | Holds() | IndexValue() | Const():
                return
            case Let() if any(reduces(e)):
                yield from self.terms(without_lets(e), by, around)
            case Let():
                yield from self.let(e, by, around)
            case Name(name):
                yield Term(name, (), around.variables, around.where, around.tests, by)
            case Project() | TupleOf():
                raise not_differentiable("this expression", "it is a tuple, or names one", e.span)

    def let(self, e: Let, by: Expr, around: Around) -> Iterator[Term]:
        """Yield what each element that a `let` reads adds: the derivative by its value is a number of its own, of which those by what the
        value is made of are products."""
        of_value, lets = self.dtype(e.value), self.lets or frozenset()
        inside = replace(self, lets=lets | {e.name} if self.is_active(e.value) else lets, types=self.types.bind([e.name], [of_value]))
        found = _collected(inside.terms(e.body, by, around))
        own = found.pop((e.name, ()), None)
        if own is not None:
            slope = self.variable(f"d_{e.name}")
            further = replace(self, lets=lets, types=self.types.bind([slope], [of_value]))
            for place, value in _collected(further.terms(e.value, Name(slope), around)).items():
                named = Let(slope, own, value)
                found[place] = total(found[place], named) if place in found else named
        for (tensor, index), value in found.items():
            yield Term(tensor, index, around.variables, around.where, around.tests, Let(e.name, e.value, value))

    def named(self, e: Expr, by: Expr, around: Around) -> Iterator[Term]:
        """Yield what reads add, where the derivative by `e` gets a name."""
        slope = self.variable("d")
        inside = replace(self, types=self.types.bind([slope], [self.dtype(e)]))
        for (tensor, index), value in _collected(inside.terms(e, Name(slope), around)).items():
            yield Term(tensor, index, around.variables, around.where, around.tests, Let(slope, by, value))

    def sides(self, cond: Expr, then: Expr, orelse: Expr, by: Expr, around: Around) -> Iterator[Term]:
        """Yield what each element that a choice reads adds."""
        zero = number(0, self.dtype(then))
        yes, no = (_collected(self.terms(side, by, around)) for side in (then, orelse))
        for tensor, index in {**yes, **no}:
            value = chosen(cond, yes.get((tensor, index), zero), no.get((tensor, index), zero))
            yield Term(tensor, index, around.variables, around.where, around.tests, value)

    def dtype(self, e: Expr) -> DType:
        return scalar_dtype(e, self.types)

    def binary(self, e: Expr, op: str, lhs: Expr, rhs: Expr, by: Expr, around: Around) -> Iterator[Term]:
        if not self.dtype(e).is_float:
            return
        match op:
            case "+":
                yield from self.terms(lhs, by, around)
                yield from self.terms(rhs, by, around)
            case "-":
                yield from self.terms(lhs, by, around)
                yield from self.terms(rhs, negative(by), around)
            case "*" if lhs == rhs:
                yield from self.terms(lhs, product(by, product(number(2, self.dtype(e)), self.known(lhs))), around)
            case "*":
                yield from self.terms(lhs, product(by, self.known(rhs)), around)
                yield from self.terms(rhs, product(by, self.known(lhs)), around)
            case "/":
                yield from self.terms(lhs, quotient(by, rhs), around)
                # Where one divisor serves many elements, both divisions by it leave the sum over these.
                shared = isinstance(lhs, Read) and _in_loops(rhs, around) < _in_loops(lhs, around)
                held = e if shared else self.known(e)
                ratio = product(held, held) if isinstance(lhs, Const) and lhs.value == 1 and held is not e else quotient(held, rhs)
                yield from self.terms(rhs, negative(product(by, ratio)), around)
            case "min" | "max":
                dtype = self.dtype(e)
                for x, y in ((lhs, rhs), (rhs, lhs)):
                    slope = functions.extremum(op, x, y, dtype, self.is_active(y))
                    yield from self.terms(x, product(by, slope), around)
            case "%":
                yield from self.terms(lhs, by, around)
                yield from self.terms(rhs, negative(product(by, Call("floor", (quotient(lhs, rhs),)))), around)
            case _:
                return

    def call(self, e: Expr, fn: str, args: tuple[Expr, ...], by: Expr, around: Around) -> Iterator[Term]:
        if not self.dtype(args[0]).is_float or not self.dtype(e).is_float:
            return
        slopes = functions.partials(fn, args, self.known(e), self.dtype(args[0]))
        if slopes is None:
            raise not_differentiable(f"`{fn}`", "no derivative of it is known", e.span)
        for arg, slope in zip(args, slopes, strict=True):
            if not (isinstance(slope, Const) and slope.value == 0):
                yield from self.terms(arg, product(by, slope), around)

    def sum(self, e: Reduce, by: Expr, around: Around) -> Iterator[Term]:
        """Yield what a sum adds: each of its terms is one of the equation's."""
        if e.reducer.kind != "sum":
            raise not_differentiable(
                f"the reducer `{e.reducer.name}`", "it neither adds nor chooses, and its terms are in no order that sizes tell", e.span
            )
        for start in e.init or ():
            yield from self.terms(start, by, around)
        e, inside = self.entered(e, around)
        yield from self.terms(e.body[0], by, inside)

    def entered(self, e: Reduce, around: Around) -> tuple[Reduce, Around]:
        """Return the reduction with names for its indices that nothing else has, and what stands around its body."""
        e = rename_binders(e, {b.name: self.variable(b.name) for b in e.binders})
        tests = around.tests if e.filter is None else (*around.tests, e.filter)
        return e, Around((*around.variables, *e.binders), affine.conj(around.where, e.where), tests)

    def chosen(self, e: Reduce, results: tuple[Expr, ...], by: tuple[Expr | None, ...], around: Around) -> Iterator[Term]:
        """Yield what the terms add that a reduction chooses: those that are equal to its results. `by`: the derivatives by these, divided
        by how many terms are equal; None of a component that is no float."""
        e, inside = self.entered(e, around)
        for body, start, slope in zip(e.body, e.init or (None,) * len(e.body), by, strict=True):
            if slope is None:
                continue
            yield from self.terms(body, slope, replace(inside, tests=(*inside.tests, *map(equal, e.body, results))))
            if start is not None:
                tests = (*around.tests, *map(equal, e.init or (), results))
                yield from self.terms(start, slope, replace(around, tests=tests))


def _in_loops(e: Expr, around: Around) -> frozenset[str]:
    """Return the indices around an expression that it varies with."""
    return index_names(e) & {v.name for v in around.variables}


def _collected(terms: Iterator[Term]) -> dict[tuple[str, tuple[Slot, ...]], Expr]:
    """Return what terms that stand under the same conditions add to each place."""
    found: dict[tuple[str, tuple[Slot, ...]], Expr] = {}
    for term in terms:
        place = term.tensor, term.index
        found[place] = total(found[place], term.value) if place in found else term.value
    return found


def equal_terms(e: Reduce, results: tuple[Expr, ...], dtype: DType) -> tuple[Expr, Expr]:
    """Return the body of the sum that counts the terms equal to results, and what the start of the fold adds to it."""
    one, zero = number(1, dtype), number(0, dtype)

    def counted(items: tuple[Expr, ...]) -> Expr:
        out: Expr = one
        for item, result in reversed(list(zip(items, results, strict=True))):
            out = chosen(equal(item, result), out, zero)
        return out

    return counted(e.body), counted(e.init) if e.init else zero


def opened(definition: Definition, variable: Callable[[str], str]) -> tuple[tuple[Binder, ...], dict[str, AffineName]]:
    """Return the axes of a definition as variables with names of their own, and the new names by the old."""
    to = {axis: variable(axis) for axis in definition.axes}
    shape = definition.tensors[0].shape
    variables = tuple(Binder(to[a], affine.ZERO, s) for a, s in zip(definition.axes, shape, strict=True))
    return variables, {a: AffineName(n) for a, n in to.items()}


def moved(e: Expr, to: Mapping[str, AffineName]) -> Expr:
    return substitute(e, to)
