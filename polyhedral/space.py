"""Names to positions and back: neutral expressions and conditions as isl objects, and isl objects as expressions and conditions.

A `Frame` names the parameters and the dimensions of a set. Inside isl a dimension is only a position, and a parameter is an identifier
that is never parsed, so names may be anything.

    Frame(("N",), ("i", "j")).set(i < N)        {[i, j] : i < N}
    Frame(("N",), ("i", "j")).cond({[i, j] : i < N})        i < N
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, assert_never

import islpy as isl

from polyhedral import affine
from polyhedral.expr import FALSE, Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Name, Not, Or, Scale

DT = isl.dim_type
CONTEXT = isl.DEFAULT_CONTEXT
DEFAULT_LIMIT = 1_000_000


class OperationLimit(Exception):
    """isl needed more operations than it was given."""


_limited = False


Points = TypeVar("Points", isl.BasicSet, isl.Set)


def val(number: int) -> isl.Val:
    """Return `number`, however large, as isl has it."""
    return isl.Val(number) if -_WORD <= number < _WORD else isl.Val(str(number))


_WORD = 1 << 63


@contextmanager
def limited(operations: int = DEFAULT_LIMIT) -> Iterator[None]:
    """Run isl under a limit of `operations`; raises `OperationLimit` past it. An outer limit stays in force."""
    global _limited
    if _limited:
        yield
        return
    _limited = True
    CONTEXT.reset_operations()
    CONTEXT.set_max_operations(operations)
    try:
        yield
    except isl.Error as error:
        if "maximal number of operations" in str(error):
            raise OperationLimit(f"gave up after {operations} steps of integer set arithmetic") from None
        raise
    finally:
        CONTEXT.set_max_operations(0)
        CONTEXT.reset_operations()
        _limited = False


@dataclass(frozen=True, slots=True)
class Frame:
    """Which parameter and which dimension stands at which position."""

    params: tuple[str, ...]
    dims: tuple[str, ...]

    @property
    def space(self) -> isl.Space:
        return _space(self.params, len(self.dims))

    def universe(self) -> isl.Set:
        return isl.Set.universe(self.space)

    def empty(self) -> isl.Set:
        return isl.Set.empty(self.space)

    def aff(self, expr: Expr) -> isl.Aff:
        """Return `expr` as one quasi-affine function; raises ValueError when it contains a minimum or maximum."""
        return _aff(self, expr)

    def pw_aff(self, expr: Expr) -> isl.PwAff:
        return _pw_aff(self, expr)

    def multi_aff(self, exprs: Iterable[Expr]) -> isl.MultiAff:
        """Return `{ [dims] -> [exprs] }`."""
        affs = [self.aff(e) for e in exprs]
        result = isl.MultiAff.zero(_map_space(self.params, len(self.dims), len(affs)))
        for position, aff in enumerate(affs):
            result = result.set_aff(position, aff)
        return result

    def multi_pw_aff(self, exprs: Iterable[Expr]) -> isl.PwMultiAff:
        """Return `{ [dims] -> [exprs] }` where expressions may be minima and maxima."""
        affs = [self.pw_aff(e) for e in exprs]
        result = isl.MultiPwAff.zero(_map_space(self.params, len(self.dims), len(affs)))
        for position, aff in enumerate(affs):
            result = result.set_pw_aff(position, aff)
        return isl.PwMultiAff.from_multi_pw_aff(result)

    def set(self, cond: Cond) -> isl.Set:
        return _set(self, cond)

    def halfspace(self, terms: Mapping[Expr, int], constant: int) -> isl.BasicSet:
        """Return `{ [dims] : terms + constant >= 0 }`."""
        return _aff_of_terms(self, terms.items(), constant).ge_basic_set(_zero(self.params, len(self.dims)))

    def cond(self, domain: isl.Set) -> Cond:
        """Return the condition that holds exactly on `domain`."""
        return cond_of(domain, self)

    def expr(self, aff: isl.Aff) -> Expr:
        return expr_of_aff(aff, self)

    def piecewise(self, pw: isl.PwAff) -> Expr | None:
        return expr_of(pw, self)

    def position(self, dim: str) -> int:
        return self.dims.index(dim)


@lru_cache(maxsize=4096)
def _space(params: tuple[str, ...], n: int) -> isl.Space:
    space = isl.Space.set_alloc(CONTEXT, len(params), n)
    for position, name in enumerate(params):
        space = space.set_dim_name(DT.param, position, name)
    return space


@lru_cache(maxsize=4096)
def _map_space(params: tuple[str, ...], n: int, m: int) -> isl.Space:
    return _space(params, n).map_from_domain_and_range(_space(params, m))


def universe_map(params: tuple[str, ...], n: int, m: int) -> isl.Map:
    return isl.Map.universe(_map_space(params, n, m))


@lru_cache(maxsize=4096)
def _zero(params: tuple[str, ...], n: int) -> isl.Aff:
    return isl.Aff.zero_on_domain(isl.LocalSpace.from_space(_space(params, n)))


@lru_cache(maxsize=1 << 15)
def _aff(frame: Frame, expr: Expr) -> isl.Aff:
    form = affine.linear(expr)
    return _aff_of_terms(frame, form.terms, form.constant)


def _aff_of_terms(frame: Frame, terms: Iterable[tuple[Expr, int]], constant: int) -> isl.Aff:
    result = _zero(frame.params, len(frame.dims)).set_constant_val(val(constant))
    floors: list[tuple[Floor, int]] = []
    for term, factor in terms:
        match term:
            case Name(name):
                kind, position = _locate(frame, name)
                result = result.set_coefficient_val(kind, position, val(factor))
            case Floor():
                floors.append((term, factor))
            case _:
                raise ValueError("a minimum or maximum is not one affine function")
    for term, factor in floors:
        inner = _aff(frame, term.value).scale_down_val(val(term.divisor)).floor()
        result = result.add(inner.scale_val(val(factor)))
    return result


def _locate(frame: Frame, name: str) -> tuple[DT, int]:
    if name in frame.dims:
        return DT.in_, frame.dims.index(name)
    if name in frame.params:
        return DT.param, frame.params.index(name)
    raise KeyError(f"`{name}` is neither a parameter nor an iterator here")


@lru_cache(maxsize=1 << 14)
def _pw_aff(frame: Frame, expr: Expr) -> isl.PwAff:
    form = affine.linear(expr)
    plain = [(t, f) for t, f in form.terms if not _has_extremum(t)]
    result = _aff_of_terms(frame, plain, form.constant).to_pw_aff()
    for term, factor in form.terms:
        match term:
            case Min(lhs, rhs):
                value = _pw_aff(frame, lhs).min(_pw_aff(frame, rhs))
            case Max(lhs, rhs):
                value = _pw_aff(frame, lhs).max(_pw_aff(frame, rhs))
            case Floor(inner, divisor) if _has_extremum(term):
                value = _pw_aff(frame, inner).scale_down_val(val(divisor)).floor()
            case _:
                continue
        result = result.add(value.scale_val(val(factor)))
    return result


@lru_cache(maxsize=1 << 14)
def _set(frame: Frame, cond: Cond) -> isl.Set:
    match cond:
        case Compare("!=", lhs, rhs):
            return _set(frame, Compare("<", lhs, rhs)).union(_set(frame, Compare(">", lhs, rhs)))
        case Compare() if not _has_extremum(cond):
            return _halfspace(frame, cond).to_set()
        case Compare(op, lhs, rhs):
            return _PIECEWISE[op](_pw_aff(frame, lhs), _pw_aff(frame, rhs))
        case And(conds):
            return _conjunction(frame, conds)
        case Or(conds):
            result = frame.empty()
            for inner in conds:
                result = result.union(_set(frame, inner))
            return result
        case Not(inner):
            return _set(frame, affine.negate(inner))
        case _:
            assert_never(cond)


def _conjunction(frame: Frame, conds: tuple[Cond, ...]) -> isl.Set:
    simple = isl.BasicSet.universe(frame.space)
    others: list[Cond] = []
    for cond in conds:
        if isinstance(cond, Compare) and cond.op != "!=" and not _has_extremum(cond):
            simple = simple.intersect(_halfspace(frame, cond))
        else:
            others.append(cond)
    result = simple.to_set()
    for other in others:
        result = result.intersect(_set(frame, other))
    return result


def _halfspace(frame: Frame, cond: Compare) -> isl.BasicSet:
    """Return the basic set of one comparison without minima, maxima, or inequality of values."""
    form = affine.linear(Add(cond.lhs, Scale(-1, cond.rhs)))
    match cond.op:
        case "==":
            return _aff_of_terms(frame, form.terms, form.constant).zero_basic_set()
        case ">=":
            aff = _aff_of_terms(frame, form.terms, form.constant)
        case ">":
            aff = _aff_of_terms(frame, form.terms, form.constant - 1)
        case "<=":
            aff = _aff_of_terms(frame, ((t, -f) for t, f in form.terms), -form.constant)
        case _:
            aff = _aff_of_terms(frame, ((t, -f) for t, f in form.terms), -form.constant - 1)
    return aff.ge_basic_set(_zero(frame.params, len(frame.dims)))


_PIECEWISE: dict[str, Callable[[isl.PwAff, isl.PwAff], isl.Set]] = {
    "<": lambda a, b: a.lt_set(b),
    "<=": lambda a, b: a.le_set(b),
    "==": lambda a, b: a.eq_set(b),
    ">=": lambda a, b: a.ge_set(b),
    ">": lambda a, b: a.gt_set(b),
}


@lru_cache(maxsize=1 << 14)
def _has_extremum(of: Expr | Cond) -> bool:
    return isinstance(of, Min | Max) or any(map(_has_extremum, affine.parts(of)))


def integer(value: isl.Val) -> int:
    return int(value.to_python())


def expr_of_aff(aff: isl.Aff, frame: Frame) -> Expr:
    """Return `aff` as an expression; it must be integral where it is used."""
    denominator = integer(aff.get_denominator_val())
    terms, constant = _scaled_terms(aff, frame, denominator)
    return affine.floor(affine.from_terms(terms, constant), denominator) if denominator > 1 else affine.from_terms(terms, constant)


def _scaled_terms(aff: isl.Aff, frame: Frame, scale: int) -> tuple[dict[Expr, int], int]:
    """Return the terms and the constant of `scale * aff`."""
    scale_val = val(scale)
    terms: dict[Expr, int] = {}
    for kind, names in ((DT.in_, frame.dims), (DT.param, frame.params)):
        for position, name in enumerate(names):
            value = aff.get_coefficient_val(kind, position)
            if not value.is_zero():
                terms[Name(name)] = integer(value.mul(scale_val))
    for position in range(aff.dim(DT.div)):
        value = aff.get_coefficient_val(DT.div, position)
        if not value.is_zero():
            term = _floor_of(aff.get_div(position), frame)
            for inner, factor in affine.linear(term).terms:
                terms[inner] = terms.get(inner, 0) + factor * integer(value.mul(scale_val))
            if isinstance(term, Int):
                raise AssertionError("a constant division should have been folded")
    return terms, integer(aff.get_constant_val().mul(scale_val))


def _floor_of(aff: isl.Aff, frame: Frame) -> Expr:
    denominator = integer(aff.get_denominator_val())
    terms, constant = _scaled_terms(aff, frame, denominator)
    return Floor(affine.from_terms(terms, constant), denominator)


def expr_of(pw: isl.PwAff, frame: Frame) -> Expr | None:
    """Return an expression equal to `pw` on its domain, or None when it is not one minimum or maximum of affine functions."""
    pw = pw.coalesce()
    pieces = pw.get_pieces()
    if not pieces:
        return None
    if len(pieces) == 1:
        return expr_of_aff(pieces[0][1].gist(pieces[0][0]), frame)
    domain = pw.domain()
    affs = _distinct([aff for _, aff in pieces])
    for combine, node in ((isl.PwAff.max, affine.maximum), (isl.PwAff.min, affine.minimum)):
        total = affs[0].to_pw_aff()
        for aff in affs[1:]:
            total = combine(total, aff.to_pw_aff())
        if total.intersect_domain(domain).is_equal(pw):
            return node(*(expr_of_aff(a, frame) for a in affs))
    return None


def _distinct(affs: Sequence[isl.Aff]) -> list[isl.Aff]:
    result: list[isl.Aff] = []
    for aff in affs:
        if not any(aff.plain_is_equal(other) for other in result):
            result.append(aff)
    return result


def cond_of(domain: isl.Set, frame: Frame) -> Cond:
    """Return a condition that holds just in `domain`: that something is unequal in one comparison, as passes over loops ask about it."""
    domain = domain.coalesce().compute_divs()
    if domain.n_basic_set() == 2 and all(b.dim(DT.div) == 0 for b in domain.get_basic_sets()):
        left_out = domain.complement().coalesce().get_basic_sets()
        outside = basic_conds(left_out[0], frame) if len(left_out) == 1 else []
        if len(outside) == 1 and isinstance(outside[0], Compare) and outside[0].op == "==":
            return affine.negate(outside[0])
    pieces = tuple(And(tuple(basic_conds(b, frame))) for b in domain.get_basic_sets())
    if not pieces:
        return FALSE
    flat = tuple(p.conds[0] if len(p.conds) == 1 else p for p in pieces)
    return flat[0] if len(flat) == 1 else Or(flat)


def without_context(points: Points, context: Points) -> Points:
    """Return a set that is `points` within `context`, and leaves out what that says already. Of some sets of which every second point is
    missing isl's gist is empty (0.27), so what it answers about sets with divisions is taken only where it is right."""
    found = points.gist(context)
    if all(b.dim(DT.div) == 0 for b in (*_basics(points), *_basics(context))):
        return found
    return found if found.intersect(context).is_equal(points.intersect(context)) else points


def _basics(points: isl.BasicSet | isl.Set) -> Sequence[isl.BasicSet]:
    return points.get_basic_sets() if isinstance(points, isl.Set) else (points,)


def basic_conds(basic: isl.BasicSet, frame: Frame) -> list[Cond]:
    """Return the comparisons whose conjunction is `basic`."""
    result: list[Cond] = []
    for constraint in basic.get_constraints():
        if constraint.is_div_constraint():
            continue
        terms, constant = constraint_terms(constraint, frame)
        if not terms and (constant == 0 or (constant > 0 and not constraint.is_equality())):
            continue
        result.append(affine.comparison(terms, constant, equality=bool(constraint.is_equality())))
    return result


def constraint_terms(constraint: isl.Constraint, frame: Frame) -> tuple[dict[Expr, int], int]:
    aff = constraint.get_aff()
    return _scaled_terms(aff, frame, integer(aff.get_denominator_val()))


def smallest_point(domain: isl.Set) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (parameters, point) of the lexicographically smallest element of a set that is not empty, parameters first and not negative
    where possible. A set without a smallest element gives some element of small magnitude."""
    n_params = domain.dim(DT.param)
    flat = domain.move_dims(DT.set, 0, DT.param, 0, n_params)
    nonnegative = flat
    for position in range(n_params):
        nonnegative = nonnegative.lower_bound_val(DT.set, position, val(0))
    if not nonnegative.is_empty():
        flat = nonnegative
    values = _coordinates(_some_smallest(flat))
    return values[:n_params], values[n_params:]


def _some_smallest(flat: isl.Set) -> isl.Point:
    if all(_bounded_below(flat, p) for p in range(flat.dim(DT.set))):
        return _first(flat)
    for reach in (4, 32, 1024):
        near = flat
        for position in range(flat.dim(DT.set)):
            near = near.lower_bound_val(DT.set, position, val(-reach)).upper_bound_val(DT.set, position, val(reach))
        if not near.is_empty():
            return _first(near)
    return flat.sample_point()


def _first(flat: isl.Set) -> isl.Point:
    """Return the smallest element, or some element where isl takes a set with elements for one without a smallest, or fails to look for it
    (both seen in islpy 2026.2.2 on sets with remainders)."""
    try:
        least = flat.lexmin().sample_point()
    except isl.Error:
        return flat.sample_point()
    return flat.sample_point() if least.is_void() else least


def _bounded_below(flat: isl.Set, position: int) -> bool:
    return bool(flat.dim_min_val(position).is_int())


def _coordinates(point: isl.Point) -> tuple[int, ...]:
    n = point.get_space().dim(DT.set)
    return tuple(integer(point.get_coordinate_val(DT.set, p)) for p in range(n))
