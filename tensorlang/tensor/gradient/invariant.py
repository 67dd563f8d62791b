"""Tensors that results do not depend on: what is taken off before `exp` and cancels, such as the largest of a row in a softmax.

    m[i] = max(j) x[i, j]    e[i, j] = exp(x[i, j] - m[i])    s[i] = sum(j) e[i, j]    y[i, j] = e[i, j] / s[i]

Let every m[i] be greater by a number t[i]. Then e[i, j] and s[i] are multiplied by exp(-t[i]), and y[i, j] is what it was: `weights` says
of every tensor by which power of exp(t) it is multiplied, or how many t are added to it. What comes to nothing in every result has the
derivative 0, whatever the numbers are, and no term of it has to be computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.gradient.algebra import exponent_of
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Definition, Expr, Program, Read, Reduce, Select, Unary
from tensorlang.tensor.walk import components, definers, definition_reads, tensor_names


@dataclass(frozen=True, slots=True)
class Weight:
    """How a value changes when the tensor at hand does at `place`: `added` times what is added there, or `power` times that as exponent of
    a factor. Neither changes a value that does not depend on it."""

    added: int = 0
    power: int = 0
    place: tuple[Affine, ...] | None = None


CONSTANT = Weight()


class _Unknown(Exception):
    """What a value does is not known."""


def is_invariant(program: Program, tensor: str) -> bool:
    """Tell whether no result depends on a tensor, as every change of one of its elements by a number cancels.

    Of recurrences the weights are those that agree with each other: element after element changes as they say, as what it is made of does.
    What the tensor itself is made of may not change."""
    makers, weights = definers(program), dict[str, Weight]()
    weights[tensor] = Weight(1, 0, tuple(map(AffineName, makers[tensor].axes)))
    axes = _axes(program)
    others = [d for group in components(program) for d in group if all(t.name != tensor for t in d.tensors)]
    before = -1
    while len(weights) != before:
        before = len(weights)
        for definition in others:
            name = definition.tensors[0].name
            if definition_reads(definition).isdisjoint(weights):
                continue
            try:
                found = _of_definition(definition, weights, axes)
            except _Unknown:
                return False
            if len(definition.tensors) > 1 or found != weights.get(name, found):
                return False
            if found != CONSTANT:
                weights[name] = found
    return definition_reads(makers[tensor]).isdisjoint(weights) and not any(r in weights for r in program.results)


def _axes(program: Program) -> dict[str, tuple[str, ...]]:
    return {t.name: d.axes for d in program.definitions for t in d.tensors}


def _of_definition(definition: Definition, weights: Mapping[str, Weight], axes: Mapping[str, tuple[str, ...]]) -> Weight:
    zero = [isinstance(p.value, Const) and p.value.value == 0 for p in definition.pieces]
    found = {_weight(p.value, weights, axes) for p, none in zip(definition.pieces, zero, strict=True) if not none} or {CONSTANT}
    if len(found) != 1:
        raise _Unknown
    [weight] = found
    if any(zero) and weight.added:
        raise _Unknown
    inside = set(definition.axes)
    if weight.place is not None and not {n.name for n in weight.place if isinstance(n, AffineName)} <= inside:
        raise _Unknown
    return weight


def _weight(e: Expr, weights: Mapping[str, Weight], axes: Mapping[str, tuple[str, ...]]) -> Weight:
    """Return how `e` changes. Raises _Unknown where that is not known."""

    def of(part: Expr) -> Weight:
        return _weight(part, weights, axes)

    if tensor_names(e).isdisjoint(weights):
        return CONSTANT
    match e:
        case Read(tensor, index):
            return _moved(weights[tensor], axes[tensor], index)
        case Unary("neg", value):
            w = of(value)
            return Weight(-w.added, w.power, w.place)
        case Cast(dtype, value) if dtype.is_float:
            return of(value)
        case Binary("+", lhs, rhs):
            return _sum(of(lhs), of(rhs), 1)
        case Binary("-", lhs, rhs):
            return _sum(of(lhs), of(rhs), -1)
        case Binary("*", lhs, rhs):
            return _product(of(lhs), of(rhs), 1)
        case Binary("/", lhs, rhs):
            return _product(of(lhs), of(rhs), -1)
        case Call("exp") | Select() if (exponent := exponent_of(e)) is not None:
            w = of(exponent)
            return _made(0, w.added, w.place) if not w.power else _fail()
        case Call("log", (value,)):
            w = of(value)
            return _made(w.power, 0, w.place) if not w.added else _fail()
        case Select(cond, then, Const(0)):
            return of(then) if tensor_names(cond).isdisjoint(weights) and not of(then).added else _fail()
        case Reduce(reducer) if reducer.kind == "sum" and e.init is None and len(e.body) == 1:
            if e.filter is not None and not tensor_names(e.filter).isdisjoint(weights):
                raise _Unknown
            w = of(e.body[0])
            bound = {b.name for b in e.binders}
            if w.added or (w.place is not None and {n.name for n in w.place if isinstance(n, AffineName)} & bound):
                raise _Unknown
            return w
        case _:
            raise _Unknown


def _fail() -> Weight:
    raise _Unknown


def _made(added: int, power: int, place: tuple[Affine, ...] | None) -> Weight:
    return Weight(added, power, place) if added or power else CONSTANT


def _place(a: Weight, b: Weight) -> tuple[Affine, ...] | None:
    """Return where both change, if it is one place."""
    if a.place is not None and b.place is not None and a.place != b.place:
        raise _Unknown
    return a.place if a.place is not None else b.place


def _sum(a: Weight, b: Weight, sign: int) -> Weight:
    if a.power != b.power:
        raise _Unknown
    if a.power and (a.added or b.added):
        raise _Unknown
    return _made(a.added + sign * b.added, a.power, _place(a, b))


def _product(a: Weight, b: Weight, sign: int) -> Weight:
    if a.added or b.added:
        raise _Unknown
    return _made(0, a.power + sign * b.power, _place(a, b))


def _moved(weight: Weight, axes: tuple[str, ...], index: tuple[object, ...]) -> Weight:
    """Return the weight of an element at `index`, all of whose indices that matter are plain."""
    to = dict(zip(axes, index, strict=True))
    place = tuple(to.get(n.name) if isinstance(n, AffineName) else None for n in weight.place or ())
    plain = tuple(p for p in place if isinstance(p, AffineName))
    if len(plain) != len(place):
        raise _Unknown
    return Weight(weight.added, weight.power, plain)
