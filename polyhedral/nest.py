"""The loops around one placement of a statement: every transformation is an affine change of variables.

    loops     names, outermost first
    domain    { [loops] : ... }             the points the statement runs at
    back      { [loops] -> [iters] }        which instance runs there
    box       { [loops] : 0 <= inner < f }  what splits alone say about the loops: the whole tile, even where the domain cuts it

`split` puts `x = f*xo + xi` and `0 <= xi < f` into all three; no division appears. Only `fuse` divides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from polyhedral import affine
from polyhedral.errors import NestError
from polyhedral.expr import Add, Compare, Cond, Expr, Floor, Int, Mod, Name, Scale
from polyhedral.model import Scop, Statement
from polyhedral.space import DT, Frame, OperationLimit, integer, limited, smallest_point, val

LARGEST = 2**48
"""Loops count in no larger steps: nothing has more iterations, and positions have to stay in 64 bits."""
STEEPEST = 2**12
"""Skews add no more than so many times another loop, which may have up to `LARGEST` iterations."""


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    placement: str
    statement: str
    iters: tuple[str, ...]
    loops: tuple[str, ...]
    params: tuple[str, ...]
    points: isl.Set
    back: isl.MultiAff
    box: isl.Set
    context: isl.Set

    @staticmethod
    def identity(scop: Scop, statement: Statement, placement: str | None = None) -> Nest:
        """Return the nest whose loops are the statement's iterators."""
        frame = Frame(scop.params, statement.iters)
        return Nest(
            placement=placement or statement.name,
            statement=statement.name,
            iters=statement.iters,
            loops=statement.iters,
            params=scop.params,
            points=frame.set(statement.domain),
            back=frame.multi_aff(Name(i) for i in statement.iters),
            box=frame.universe(),
            context=context_of(scop),
        )

    @property
    def frame(self) -> Frame:
        return Frame(self.params, self.loops)

    @property
    def domain(self) -> Cond:
        return self.frame.cond(self.points.gist_params(self.context))

    def iter_exprs(self) -> dict[str, Expr]:
        """Return each iterator as an expression over the loops."""
        return {name: self.frame.expr(self.back.get_at(p)) for p, name in enumerate(self.iters)}

    def extent(self, loop: str) -> int | None:
        """Return how many values a split gave `loop`, or the constant width of its range, 0 of a nest without iterations, or None."""
        ends = self.ends(loop)
        if ends is None:
            return 0 if self.points.intersect_params(self.context).is_empty() else None
        return ends[1] - ends[0] + 1

    def ends(self, loop: str) -> tuple[int, int] | None:
        """Return the first and last value that a split gave `loop`, or those of its range where they are constant, or None."""
        position = self._position(loop)
        for points in (self.box, self.points.intersect_params(self.context)):
            low, high = points.dim_min_val(position), points.dim_max_val(position)
            if low.is_int() and high.is_int():
                return integer(low), integer(high)
        return None

    def range(self, loop: str) -> tuple[Expr, Expr] | None:
        """Return [low, high) of `loop` over the whole domain in terms of the parameters, or None when it is not one expression."""
        position = self._position(loop)
        points = self.points.intersect_params(self.context)
        if points.is_empty():
            return Int(0), Int(0)
        if not (points.dim_is_bounded(DT.set, position)):
            return None
        frame = Frame(self.params, ())
        low = frame.piecewise(points.dim_min(position).gist_params(self.context))
        high = frame.piecewise(points.dim_max(position).add_constant_val(val(1)).gist_params(self.context))
        return None if low is None or high is None else (low, high)

    def grows(self, e: Expr, cell: Sequence[Expr]) -> bool:
        """Return whether, of points that agree on `cell`, each later one is known to have a greater value of `e`, over iterators both."""
        exprs = self.iter_exprs()
        try:
            with limited():
                points = self.points.intersect_params(self.context)
                keys, values = (
                    isl.Map.from_pw_multi_aff(self.frame.multi_pw_aff(affine.substitute(part, exprs) for part in parts))
                    for parts in (cell, (e,))
                )
                later = keys.apply_range(keys.reverse()).intersect(isl.Map.lex_lt(points.get_space()))
                later = later.intersect_domain(points).intersect_range(points)
                pairs = later.apply_domain(values).apply_range(values)
                return bool(pairs.is_subset(pairs.order_lt(DT.in_, 0, DT.out, 0)))
        except OperationLimit:
            return False

    def keeps(self, e: Expr, low: int, high: int) -> bool:
        """Return whether `e`, over iterators, is known to lie between two numbers, inclusive, at every point."""
        try:
            with limited():
                value = affine.substitute(e, self.iter_exprs())
                inside = affine.conj(Compare("<=", Int(low), value), Compare("<=", value, Int(high)))
                return bool(self.points.intersect_params(self.context).is_subset(self.frame.set(inside)))
        except OperationLimit:
            return False

    def split(self, loop: str, factor: int, outer: str, inner: str) -> Nest:
        """Replace `loop` by `factor * outer + inner`, 0 <= inner < factor."""
        self._position(loop)
        if factor < 1:
            raise NestError(f"the factor {factor} is not positive")
        loops = tuple(n for name in self.loops for n in ((outer, inner) if name == loop else (name,)))
        nest = self._substituted(loops, {loop: Add(Scale(factor, Name(outer)), Name(inner))})
        return nest._bounded(inner, factor)

    def fuse(self, outer: str, inner: str, name: str, ends: tuple[int, int] | None = None) -> Nest:
        """Replace adjacent `outer`, `inner` by one loop that counts through both; the inner extent must be constant. `ends`: the first and
        last value of `inner` to count with, where it is to have more than its own."""
        position = self._position(outer)
        if self.loops[position + 1 : position + 2] != (inner,):
            raise NestError(f"`{inner}` is not the loop directly inside `{outer}`")
        low, extent = (ends[0], ends[1] - ends[0] + 1) if ends is not None else self._constant_range(inner)
        loops = (*self.loops[:position], name, *self.loops[position + 2 :])
        outer_extent = self._box_extent(outer)
        if outer_extent is not None and outer_extent * extent > LARGEST:
            raise NestError(f"`{name}` would have more than 2**48 iterations")
        by: dict[str, Expr] = {outer: Floor(Name(name), extent), inner: Add(Mod(Name(name), extent), Int(low))}
        nest = self._substituted(loops, by)
        return nest._bounded(name, outer_extent * extent) if outer_extent else nest

    def reorder(self, names: Sequence[str]) -> Nest:
        """Return the nest with its loops in the order of `names`."""
        if sorted(names) != sorted(self.loops):
            raise NestError(f"the order {', '.join(names)} does not name the loops {', '.join(self.loops)}")
        return self if tuple(names) == self.loops else self._substituted(tuple(names), {})

    def skew(self, loop: str, by: str, factor: int = 1) -> Nest:
        """Replace `loop` by `loop + factor * by` under the same name."""
        self._position(loop)
        self._position(by)
        if loop == by:
            raise NestError(f"`{loop}` cannot be skewed by itself")
        if abs(factor) > STEEPEST:
            raise NestError(f"{abs(factor)} times the iterations of `{by}` may not stay in 64 bits")
        return self._substituted(self.loops, {loop: Add(Name(loop), Scale(-factor, Name(by)))})

    def shift(self, loop: str, constant: int) -> Nest:
        """Replace `loop` by `loop + constant` under the same name."""
        self._position(loop)
        return self._substituted(self.loops, {loop: Add(Name(loop), Int(-constant))})

    def reverse(self, loop: str) -> Nest:
        """Run `loop` backwards over the same range (or over its negation when the range is not one affine expression)."""
        span = self.range(loop)
        if span is not None and _affine(span[0]) and _affine(span[1]):
            return self.mirror(loop, affine.add(affine.add(span[0], span[1]), Int(-1)))
        return self.mirror(loop, Int(0))

    def mirror(self, loop: str, about: Expr) -> Nest:
        """Replace `loop` by `about - loop` under the same name."""
        return self._substituted(self.loops, {loop: affine.sub(about, Name(loop))})

    def counting(self, loop: str, value: Expr) -> Nest:
        """Replace `loop` by one whose value is `value`, an expression over itself and the loops around it that grows with it and has all
        that it has."""
        self._position(loop)
        return self._substituted(self.loops, {loop: value})

    def mapped(self, gone: Sequence[str], by: Mapping[str, Expr]) -> Nest:
        """Replace the loops `gone` by others, each of which is a quasi-affine expression over them: any map that keeps iterations apart.
        Values of the new loops that no iteration has are left out."""
        position = min(map(self._position, gone))
        left = [name for name in self.loops[position:] if name not in gone]
        loops = (*self.loops[:position], *by, *left)
        twice = next((name for name in by if loops.count(name) > 1), None)
        if twice is not None:
            raise NestError(f"two loops would be called `{twice}`")
        forward = self.frame.multi_aff(by.get(name, Name(name)) for name in loops)
        if _largest(forward) > STEEPEST:
            raise NestError("its factors are so large that iterations may not stay in 64 bits")
        every = isl.Map.from_multi_aff(forward)
        there = every if every.is_injective() else every.intersect_domain(self.points.intersect_params(self.context))
        if not there.is_injective():
            first, second = _met(there)
            one, other = (", ".join(f"{n} = {v[self.loops.index(n)]}" for n in gone) for v in (first, second))
            raise NestError(f"the iterations ({one}) and ({other}) would be one")
        change = _function(there.reverse())
        return replace(
            self,
            loops=loops,
            points=self.points.apply(every),
            back=self.back.pullback_multi_aff(change),
            box=self.box.apply(every),
        )

    def rename(self, old: str, new: str) -> Nest:
        self._position(old)
        if new != old and new in self.loops:
            raise NestError(f"there is a loop `{new}` already")
        return replace(self, loops=tuple(new if n == old else n for n in self.loops))

    def placed(self, placement: str) -> Nest:
        """Return the same nest under another placement name."""
        return replace(self, placement=placement)

    def restrict(self, cond: Cond, *, tiles: bool = False) -> Nest:
        """Keep only the points where `cond` over the loops holds. `tiles`: whole tiles keep no more of them either."""
        kept = self.frame.set(cond)
        return replace(self, points=self.points.intersect(kept), box=self.box.intersect(kept) if tiles else self.box)

    def within(self, iterations: isl.Set) -> Nest:
        """Keep only the points whose outermost loops are among `iterations`."""
        inner = len(self.loops) - iterations.dim(DT.set)
        return replace(self, points=self.points.intersect(iterations.add_dims(DT.set, inner)))

    def outermost(self, points: isl.Set, depth: int) -> isl.Set:
        """Return the iterations of the first `depth` loops in which an instance of `points`, over the iterators, runs."""
        here = points.preimage_multi_aff(self.back).intersect(self.points)
        return here.project_out(DT.set, depth, len(self.loops) - depth)

    def insert(self, position: int, name: str, value: Expr) -> Nest:
        """Add a loop of one iteration at `position`, where it equals `value` over the loops outside it."""
        if name in self.loops:
            raise NestError(f"there is a loop `{name}` already")
        if not affine.name_set(value) <= set(self.loops[:position]) | set(self.params):
            raise NestError(f"the value of `{name}` may use only the loops outside it")
        loops = (*self.loops[:position], name, *self.loops[position:])
        nest = self._substituted(loops, {})
        only = nest.frame.pw_aff(Add(Name(name), Scale(-1, value))).zero_set()
        return replace(nest, points=nest.points.intersect(only))

    def _position(self, loop: str) -> int:
        if loop not in self.loops:
            raise NestError(f"`{self.placement}` has no loop `{loop}`; its loops are {', '.join(self.loops) or 'none'}")
        return self.loops.index(loop)

    def _substituted(self, loops: tuple[str, ...], by: Mapping[str, Expr]) -> Nest:
        if len(set(loops)) != len(loops):
            twice = next(n for n in loops if loops.count(n) > 1)
            raise NestError(f"two loops would be called `{twice}`")
        change = Frame(self.params, loops).multi_aff(by.get(n, Name(n)) for n in self.loops)
        back = self.back.pullback_multi_aff(change)
        if by and _largest(back) > LARGEST:
            raise NestError("the steps of its loops would be larger than 2**48 iterations")
        return replace(
            self,
            loops=loops,
            points=self.points.preimage_multi_aff(change),
            back=back,
            box=self.box.preimage_multi_aff(change),
        )

    def _bounded(self, loop: str, extent: int) -> Nest:
        position = self.loops.index(loop)
        zero, last = val(0), val(extent - 1)
        return replace(
            self,
            points=self.points.lower_bound_val(DT.set, position, zero).upper_bound_val(DT.set, position, last),
            box=self.box.lower_bound_val(DT.set, position, zero).upper_bound_val(DT.set, position, last),
        )

    def _box_extent(self, loop: str) -> int | None:
        position = self.loops.index(loop)
        low, high = self.box.dim_min_val(position), self.box.dim_max_val(position)
        return integer(high) + 1 if low.is_zero() and high.is_int() else None

    def _constant_range(self, loop: str) -> tuple[int, int]:
        position = self.loops.index(loop)
        for points in (self.box, self.points.intersect_params(self.context)):
            low, high = points.dim_min_val(position), points.dim_max_val(position)
            if low.is_int() and high.is_int():
                return integer(low), integer(high) - integer(low) + 1
        raise NestError(f"the extent of `{loop}` is not a constant")


def most_iterations(nests: Sequence[Nest], loop: str) -> int | None:
    """Return how many iterations a loop that `nests` share has at most in one of each loop around it, or None where it is no constant."""
    first = nests[0]
    position = first.loops.index(loop)
    if any(nest.loops.index(loop) != position for nest in nests):
        return None
    shared = isl.Set.empty(Frame(first.params, first.loops[: position + 1]).space)
    for nest in nests:
        inner = len(nest.loops) - position - 1
        shared = shared.union(nest.points.intersect_params(nest.context).project_out(DT.set, position + 1, inner))
    shared = shared.coalesce()
    return most_values(shared if shared.n_basic_set() < 2 else shared.simple_hull().to_set(), position)


def most_values(points: isl.Set, position: int) -> int | None:
    """Return how many values the dimension at `position`, the last, has at most from its first to its last one where those before it have
    one each, or None where that is no constant or takes too long to find."""
    try:
        with limited():
            values = isl.Map.from_range(points).move_dims(DT.in_, 0, DT.out, 0, position)
            farthest = values.reverse().apply_range(values).deltas().dim_max_val(0)
    except OperationLimit:
        return None
    if farthest.is_int():
        return integer(farthest) + 1
    return 0 if points.is_empty() else None


def _function(graph: isl.Map) -> isl.MultiAff:
    """Return the one function that a single-valued map is part of. Raises NestError where it takes several."""
    back = isl.PwMultiAff.from_map(graph)
    result = isl.MultiAff.zero(graph.get_space())
    for position in range(graph.dim(DT.out)):
        affs = list(dict.fromkeys(aff for _, aff in back.get_pw_aff(position).coalesce().get_pieces()))
        if any(not aff.plain_is_equal(affs[0]) for aff in affs):
            raise NestError("which iteration a new one is depends on where it lies")
        if affs:
            result = result.set_aff(position, affs[0])
    return result


def _met(image: isl.Map) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two points that have one image."""
    n = image.dim(DT.in_)
    same = image.apply_range(image.reverse())
    pair = same.subtract(isl.Map.identity(same.get_space())).wrap().flatten()
    _, found = smallest_point(pair)
    return found[:n], found[n:]


def _largest(back: isl.MultiAff) -> int:
    """Return the largest number that an iterator's expression multiplies or divides a loop by, or adds."""
    found = [0]
    for k in range(back.dim(DT.out)):
        aff = back.get_at(k)
        scale = aff.get_denominator_val()
        found.append(integer(scale))
        found.append(abs(integer(aff.get_constant_val().mul(scale))))
        found += [abs(integer(aff.get_coefficient_val(DT.in_, i).mul(scale))) for i in range(aff.dim(DT.in_))]
        found += [integer(aff.get_div(i).get_denominator_val()) for i in range(aff.dim(DT.div))]
    return max(found)


def context_of(scop: Scop) -> isl.Set:
    """Return the parameter values that the scop is about: its context, sizes never negative."""
    frame = Frame(scop.params, ())
    context = frame.set(scop.context)
    for position in range(len(scop.params)):
        context = context.lower_bound_val(DT.param, position, val(0))
    return context.params()


def _affine(expr: Expr) -> bool:
    """Whether `expr` is a plain sum of names: divisions would follow the loop into every bound."""
    return all(isinstance(term, Name) for term, _ in affine.linear(expr).terms)
