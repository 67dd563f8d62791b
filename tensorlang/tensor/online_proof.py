"""The check that attention in one pass is attention: made for every program that is rewritten, from the equations as they stand.

With E(t) the keys of the blocks from the first that is visited to t, what is claimed of the running values is

    m[t] = max(j in E(t)) s[j]       l[t] = sum(j in E(t)) exp(s[j] - m[t])       o[t] = sum(j in E(t)) exp(s[j] - m[t]) * v[j]

It is shown by induction: the equations at the first block, with nothing before; then those of a later block, its own keys `new` and all
before it `old`, with the claim put in for what they read of the block before. Both sides are brought to one normal form
(`tensorlang.tensor.real_algebra`), and so is the result, o/l of all keys, next to that of the operator as it was written. Last,
no key outside of the blocks that are visited is seen.

This is arithmetic of reals: a row that has at least one score above -inf. Rows without any and undefined scores are what the equations ask
`-inf` for; the tests try them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from polyhedral.expr import Cond
from polyhedral.expr import Name as AffineName
from polyhedral.sets import implies
from polyhedral.verdict import Proven
from tensorlang.tensor import real_algebra
from tensorlang.tensor.nodes import Binary, Call, Compare, Const, Definition, Expr, Holds, Let, Name, Read, Reduce, Select, TupleOf
from tensorlang.tensor.real_algebra import ZERO, Atom, Real, Symbol, Unproven, atom, exp, inverse, largest, minus, number, times, total
from tensorlang.tensor.walk import children

SCORE, VALUE = atom(Symbol("s", keyed=True)), atom(Symbol("v", keyed=True))


@dataclass(frozen=True, slots=True)
class Running:
    """The definitions of a pass: the largest of a block, the running ones, weights, sums of weights, and of weighted values."""

    scores: str
    tops: Definition
    largest: Definition
    weights: Definition
    totals: Definition
    sums: Definition
    values: Expr
    """What a weight is multiplied by in `sums`."""


@dataclass(frozen=True, slots=True)
class Plain:
    """The operator as it was written: what is made of its scores, the sum of weighted values, and the values in it."""

    scores: str
    made: Mapping[str, Definition]
    sum: Reduce
    values: Expr


def refusal(plain: Plain, running: Running, before: Expr, after: Expr) -> str:
    """Return why the pass is not shown to be the operator, whose result is `before` and becomes `after`; "" where it is."""
    try:
        if not _first(running):
            return "the first block does not give what is claimed"
        if not _later(running):
            return "a later block does not give what is claimed"
        if not _last(plain, running, before, after):
            return "the result is another than the operator's"
    except Unproven as unknown:
        return str(unknown)
    return ""


def are_masked(axes: tuple[str, ...], outside: Cond, hidden: Cond) -> bool:
    """Tell whether every key outside of the blocks that are visited is one that its row does not see."""
    return isinstance(implies((), axes, outside, hidden), Proven)


def _claimed(over: tuple[str, ...], top: Real) -> tuple[Real, Real, Real]:
    """Return what is claimed of m, l and o after the keys of some sets."""
    weight = exp(minus(SCORE, top))
    return top, total(over, weight), total(over, times(weight, VALUE))


def _top(over: str) -> Real:
    return atom(Symbol(f"the largest score of {over}"))


def _first(running: Running) -> bool:
    return _step(running, True, {}) == _claimed(("new",), _top("new"))


def _later(running: Running) -> bool:
    m, l, o = _claimed(("old",), _top("old"))
    names = [d.tensors[0].name for d in (running.largest, running.totals, running.sums)]
    found = _step(running, False, dict(zip(names, (m, l, o), strict=True)))
    return found == _claimed(("old", "new"), largest(_top("old"), _top("new")))


def _step(running: Running, first: bool, old: Mapping[str, Real]) -> tuple[Real, Real, Real]:
    """Return m, l and o after a block of the keys `new`, where `old` are those after the block before."""
    now: dict[str, Real] = {running.scores: SCORE}
    position = len(running.largest.axes) - 1

    def read(r: Read) -> Real:
        table = now if r.index[position] == AffineName(running.largest.axes[position]) else old
        if r.tensor not in table:
            raise Unproven(f"`{r.tensor}` is read where nothing is known of it")
        return table[r.tensor]

    known = _Known(read, lambda cond: first, {running.values: VALUE}, ("new",))
    now[running.tops.tensors[0].name] = known.of(_value(running.tops))
    m = now[running.largest.tensors[0].name] = known.of(_value(running.largest), 0)
    if not first:
        now[running.largest.tensors[1].name] = known.of(_value(running.largest), 1)
    now[running.weights.tensors[0].name] = known.of(_value(running.weights))
    return m, known.of(_value(running.totals)), known.of(_value(running.sums))


def _last(plain: Plain, running: Running, before: Expr, after: Expr) -> bool:
    top = _top("all")
    names = [d.tensors[0].name for d in (running.largest, running.totals, running.sums)]
    ends = dict(zip(names, _claimed(("all",), top), strict=True))

    def read(r: Read) -> Real:
        if r.tensor in ends:
            return ends[r.tensor]
        raise Unproven(f"`{r.tensor}` is read where nothing is known of it")

    def written(r: Read) -> Real:
        if r.tensor == plain.scores:
            return SCORE
        if r.tensor not in plain.made:
            raise Unproven(f"`{r.tensor}` is read where nothing is known of it")
        return original.of(_value(plain.made[r.tensor]))

    original = _Known(written, _undecided, {plain.values: VALUE}, ("all",))
    found = _Known(read, _undecided, {}, ("all",))
    return all(found.of(new) == original.of(plain.sum) for new in _instead(before, after, plain.sum))


def _instead(before: Expr, after: Expr, old: Expr) -> list[Expr]:
    """Return what stands in `after` where `before` has `old`; what else differs is an `Unproven`."""
    if before == old:
        return [after]
    parts, others = children(before), children(after)
    if type(before) is not type(after) or len(parts) != len(others) or (not parts and before != after):
        raise Unproven("the result differs in more than the sum")
    return [e for a, b in zip(parts, others, strict=True) for e in _instead(a, b, old)]


def _undecided(cond: Cond) -> bool:
    raise Unproven("a condition on indices")


def _value(definition: Definition) -> Expr:
    [piece] = definition.pieces
    return piece.value


def _arithmetic(op: str, a: Real, b: Real) -> Real:
    match op:
        case "+":
            return real_algebra.add(a, b)
        case "-":
            return minus(a, b)
        case "*":
            return times(a, b)
        case _:
            return times(a, inverse(b))


_MINUS_INFINITY = float("-inf")


@dataclass(slots=True)
class _Known:
    """What reads, conditions on indices and some expressions are as reals; sums and maxima run over the keys of `over`."""

    read: Callable[[Read], Real]
    holds: Callable[[Cond], bool]
    given: Mapping[Expr, Real]
    over: tuple[str, ...]
    names: dict[str, Real | None] = field(default_factory=dict)

    def of(self, e: Expr, component: int = 0) -> Real:
        found = self.maybe(e, component)
        if found is None:
            raise Unproven("arithmetic with -inf")
        return found

    def maybe(self, e: Expr, component: int = 0) -> Real | None:
        """Return `e`, or None for -inf; of a tuple its `component`."""
        if e in self.given:
            return self.given[e]
        match e:
            case Const(value=value) if isfinite(value):
                return number(float(value))
            case Const(value=value) if value == _MINUS_INFINITY:
                return None
            case Name(name) if name in self.names:
                return self.names[name]
            case Read():
                return self.read(e)
            case Let(name, value, body):
                self.names[name] = self.maybe(value)
                return self.maybe(body, component)
            case TupleOf(items):
                return self.maybe(items[component])
            case Binary("max", lhs, rhs):
                known = [x for x in (self.maybe(lhs), self.maybe(rhs)) if x is not None]
                return largest(*known) if known else None
            case Binary("+" | "-" | "*" | "/" as op, lhs, rhs):
                return _arithmetic(op, self.of(lhs), self.of(rhs))
            case Call("exp", (inner,)):
                return exp(self.of(inner))
            case Select(Holds(cond), then, orelse):
                return self.maybe(then if self.holds(cond) else orelse, component)
            case Select(Compare("==", _, Const(value=value)), _, orelse) if value == _MINUS_INFINITY:
                return self.maybe(orelse, component)
            case Select(Compare("==", lhs, rhs), then, orelse):
                return self._either(self.of(lhs), self.of(rhs), self.of(then), self.of(orelse))
            case Reduce():
                return self._reduced(e)
            case _:
                raise Unproven(f"`{type(e).__name__}` in the equations of a pass")

    def _either(self, a: Real, b: Real, then: Real, orelse: Real) -> Real:
        """Return `orelse` where it is `then` as soon as a = b."""
        old: Atom | None = real_algebra.atom_of(b)
        if old is None or real_algebra.replaced(orelse, old, a) != then:
            raise Unproven("a choice between values that differ")
        return orelse

    def _reduced(self, e: Reduce) -> Real:
        if len(e.body) != 1 or e.filter is not None or len(e.binders) != 1:
            raise Unproven("a reduction of several values")
        body = self.of(e.body[0])
        if e.reducer.kind == "max" and e.init is None and body == SCORE:
            return largest(*(_top(name) for name in self.over))
        if e.reducer.kind != "sum":
            raise Unproven(f"a reduction by `{e.reducer.name}`")
        start = self.of(e.init[0]) if e.init is not None else ZERO
        return real_algebra.add(start, total(self.over, body))
