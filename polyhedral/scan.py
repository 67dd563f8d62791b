"""Loops that visit exactly the points of a schedule, in its order.

For the loop at depth `d` over the placements below it:

    projection   { [l0 … ld] }         their domains with the inner loops projected out; the hull where they differ
    context      { [l0 … ld-1] }       what the loops and guards around it enforce already
    bounds       projection gist context: constraints on ld bound the loop, the others become a guard around it

At a leaf the domain gist context must be everything, or becomes a guard; so an inexact hull costs a test and never a wrong point.

Full tiles. For loops that are vectors or unrolled, each constraint of the domain is taken at its worst over the tile; what remains is a
*cut* on its innermost other loop. There the loop is peeled at the cut, one constraint at a time: before (cut fails from below), main, after
(cut fails from above). In the main part the context implies the constraint, so inner trip counts are constants. Sets are never subtracted.
A parallel loop is not peeled: its body is guarded by the cut instead.

Holes. A loop over a union of sets is one loop for each, where these follow each other. A vector stays whole where its parts are as long
as loops around decide, `{ [j] : j != i }`: the lanes that are left out are the guard's, which loops around often know to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from polyhedral import affine
from polyhedral.errors import ScheduleError
from polyhedral.expr import And, Compare, Cond, Expr, Int, Name
from polyhedral.loops import For, If, Node, Run, substitute
from polyhedral.model import AT_ONCE, Leaf, Loop, Tree
from polyhedral.nest import Nest, context_of, most_values
from polyhedral.quotients import name_quotients
from polyhedral.schedule import Schedule, placements_in, validate
from polyhedral.space import DT, Frame, basic_conds, cond_of, constraint_terms, integer, val, without_context


def scan(schedule: Schedule, *, sizes: Mapping[str, int] | None = None, separate: bool = True, max_separated: int = 3) -> tuple[Node, ...]:
    """Return the loop program of `schedule`. `sizes` fixes parameters; `separate` splits full tiles from partial ones at no more than
    `max_separated` loops around each statement. Raises `ScheduleError` when tree and nests do not fit together."""
    validate(schedule)
    scanner = _Scanner(schedule, sizes or {}, max_separated if separate else 0)
    nodes = scanner.sequence(schedule.tree, 0, scanner.context)
    return substitute(nodes, scanner.quotients) if scanner.quotients else nodes


OF_TILES = ("vector", "unroll", "tensor")
"""How loops run whose iterations are a tile: their number is known when the kernel is made."""
MAX_PIECES = 6


@dataclass(frozen=True, slots=True)
class _Cut:
    """A constraint `Σ coefficients + constant >= 0` on the loops up to `depth` that holds where tiles are full."""

    depth: int
    coefficients: tuple[tuple[str, int], ...]
    constant: int
    rises: bool
    """Whether it holds from some value of the loop upwards."""


class _Scanner:
    def __init__(self, schedule: Schedule, sizes: Mapping[str, int], max_separated: int) -> None:
        self.schedule = schedule
        params = tuple(p for p in schedule.scop.params if p not in sizes)
        context = _fix_sizes(
            isl.Set.universe(Frame(schedule.scop.params, ()).space).intersect_params(context_of(schedule.scop)), schedule.scop.params, sizes
        )
        named = name_quotients({name: (nest.loops, self._domain(nest, sizes)) for name, nest in schedule.nests.items()}, params, context)
        self.params, self.context, self.domains, self.quotients = named.params, named.context, named.domains, named.meaning
        self.projections = {name: _projections(d, len(schedule.nests[name].loops)) for name, d in self.domains.items()}
        self.cuts: dict[str, list[_Cut]] = {n: self._cuts(n, max_separated) if max_separated else [] for n in schedule.nests}

    def _domain(self, nest: Nest, sizes: Mapping[str, int]) -> isl.Set:
        return _fix_sizes(nest.points.intersect_params(nest.context), nest.params, sizes).coalesce()

    def sequence(self, nodes: Sequence[Tree], depth: int, context: isl.Set) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in nodes:
            match node:
                case Leaf(placement):
                    result += self._leaf(placement, context)
                case Loop():
                    result += self._loop(node, depth, context)
        return tuple(result)

    def _leaf(self, placement: str, context: isl.Set) -> tuple[Node, ...]:
        domain = self.domains[placement]
        guard = without_context(domain, context)
        if guard.plain_is_universe():
            return (Run(placement),)
        if domain.is_disjoint(context):
            return ()
        if context.is_subset(domain):
            return (Run(placement),)
        return (If(cond_of(guard, self._frame(placement)), (Run(placement),)),)

    def _loop(self, node: Loop, depth: int, context: isl.Set) -> tuple[Node, ...]:
        around = context.insert_dims(DT.set, depth, 1)
        reached = [(p, self.projections[p][depth + 1]) for p in placements_in(node)]
        live = [(p, points) for p, points in reached if not points.is_disjoint(around)]
        if not live:
            return ()
        points = live[0][1]
        for _, other in live[1:]:
            points = points.union(other)
        frame = Frame(self.params, self.schedule.nests[live[0][0]].loops[: depth + 1])
        cuts = [c for c in _merged(self.cuts[p] for p, _ in live) if c.depth == depth]
        if node.mark in AT_ONCE:
            return self._guarded(_Step(node, depth, around, points.coalesce(), frame), cuts)
        inside = points.intersect(around).coalesce()
        parts = _in_order(inside, depth)
        if node.mark == "vector" and len(live) == 1 and len(parts) > 1 and not all(_has_constant_range(p, depth) for p in parts):
            parts = [inside]
        steps = [_Step(node, depth, around, part, frame) for part in parts]
        return tuple(found for step in steps for found in self._peeled(step, cuts))

    def _peeled(self, step: _Step, cuts: Sequence[_Cut], region: isl.BasicSet | None = None) -> tuple[Node, ...]:
        """Return the loop within `region` in parts: those where some cut fails, around the one where all hold. What of several statements
        has no place where all are full is cut again where the first of them is not."""
        before: list[Node] = []
        after: list[Node] = []
        pinned = {} if region is None else self._pinned(step, region)
        region = isl.BasicSet.universe(step.frame.space) if region is None else region
        splits, others = self._splits(step, cuts, region)
        for holds, fails, rises in splits:
            part = self._peeled(step, others, region.intersect(fails))
            if rises:
                before += part
            else:
                after = [*part, *after]
            region = region.intersect(holds)
        return (*before, *self._emit(step, region, {} if splits else pinned), *after)

    def _guarded(self, step: _Step, cuts: Sequence[_Cut]) -> tuple[Node, ...]:
        """Return the loop once, its body split by the cuts into guarded parts."""
        splits, _ = self._splits(step, cuts, isl.BasicSet.universe(step.frame.space))
        if not splits:
            return tuple(self._emit(step, isl.BasicSet.universe(step.frame.space), {}))

        def body(context: isl.Set) -> tuple[Node, ...]:
            result: list[Node] = []
            region = isl.BasicSet.universe(step.frame.space)
            parts = []
            for holds, fails, _ in splits:
                parts.append(region.intersect(fails))
                region = region.intersect(holds)
            for part in (region, *parts):
                inside = context.intersect(part.to_set())
                nodes = () if inside.is_empty() else self.sequence(step.node.body, step.depth + 1, inside)
                if nodes:
                    result.append(
                        If(affine.conj(*basic_conds(without_context(part.to_set(), context).get_basic_sets()[0], step.frame)), nodes)
                    )
            return tuple(result)

        return tuple(self._emit(step, isl.BasicSet.universe(step.frame.space), {}, body))

    def _splits(
        self, step: _Step, cuts: Sequence[_Cut], region: isl.BasicSet
    ) -> tuple[list[tuple[isl.BasicSet, isl.BasicSet, bool]], list[_Cut]]:
        """Return (holds, fails, rises) of each cut that separates something from something within `region`, and the cuts that hold nowhere
        that those before them do."""
        here = step.points.intersect(step.around).intersect(region.to_set())
        result, others = [], []
        for cut in cuts:
            holds = _halfspace(step.frame, cut.coefficients, cut.constant)
            fails = _halfspace(step.frame, tuple((n, -f) for n, f in cut.coefficients), -cut.constant - 1)
            full, partial = here.intersect(holds.to_set()), here.intersect(fails.to_set())
            if not full.is_empty() and not partial.is_empty():
                result.append((holds, fails, cut.rises))
                here = full
            elif full.is_empty():
                others.append(cut)
        return result, others

    def _pinned(self, step: _Step, region: isl.BasicSet) -> dict[int, int]:
        """Return the outer loops that can have only one value in `region`, though not around it."""
        inside = step.points.intersect(step.around).intersect(region.to_set())
        result = {}
        for position in range(step.depth):
            low, high = inside.dim_min_val(position), inside.dim_max_val(position)
            if low.is_int() and low.eq(high) and not _is_constant(step.around, position):
                result[position] = integer(low)
        return result

    def _emit(
        self, step: _Step, region: isl.BasicSet, pinned: Mapping[int, int], body: Callable[[isl.Set], tuple[Node, ...]] | None = None
    ) -> list[Node]:
        """Return the loop over the part of the points within `region`, under the guards that its bounds do not imply."""
        around = step.around
        for position, value in pinned.items():
            around = around.fix_val(DT.set, position, val(value))
        if region.to_set().intersect(around).is_disjoint(step.points):
            return []
        bounds = _bounds(step, region, around)
        needed = [g for g in bounds.guards if not self._implied(g, step, bounds, around)]
        if len(needed) < len(bounds.guards) and self._runs_over(step, _inside(around, bounds, needed)):
            needed = bounds.guards
        inner = _inside(around, bounds, needed)
        nodes = body(inner) if body is not None else self.sequence(step.node.body, step.depth + 1, inner)
        if not nodes:
            return []
        guards: list[Cond] = [Compare("==", Name(step.frame.dims[p]), Int(v)) for p, v in pinned.items()]
        guards += [c for g in needed for c in basic_conds(g, step.frame)]
        nodes, hoisted = _hoisted(nodes, step.node.name)
        guards += hoisted
        width = affine.sub(bounds.high, bounds.low)
        extent = width.value if isinstance(width, Int) else None
        if extent is None and step.node.mark in OF_TILES and not self._is_bounded_by_splits(step):
            extent = most_values(inner, step.depth)
        loop = For(step.node.name, bounds.low, bounds.high, step.node.mark, extent, nodes)
        return [If(affine.conj(*guards), (loop,))] if guards else [loop]

    def _implied(self, guard: isl.BasicSet, step: _Step, bounds: _Bounds, around: isl.Set) -> bool:
        """Whether the loops from here inwards are empty anyway wherever `guard` fails."""
        outside = around.intersect(bounds.enforced).subtract(guard.to_set())
        for placement in placements_in(step.node):
            domain = self.domains[placement]
            n = domain.dim(DT.set)
            inside = _basic(domain).drop_constraints_not_involving_dims(DT.set, step.depth, n - step.depth).remove_redundancies()
            if not inside.is_disjoint(_basic(outside.insert_dims(DT.set, step.depth + 1, n - step.depth - 1))):
                return False
        return True

    def _runs_over(self, step: _Step, inner: isl.Set) -> bool:
        """Tell whether a loop of a tile may have more iterations than it ever has where there is something to do."""
        if step.node.mark not in OF_TILES:
            return False
        spans = [self._span(self.schedule.nests[p], step.depth) for p in placements_in(step.node)]
        known = [span for span in spans if span is not None]
        if not known:
            return False
        low, high = min(lo for lo, _ in known), max(hi for _, hi in known)
        below, above = inner.upper_bound_val(DT.set, step.depth, val(low - 1)), inner.lower_bound_val(DT.set, step.depth, val(high + 1))
        return not (below.is_empty() and above.is_empty())

    def _is_bounded_by_splits(self, step: _Step) -> bool:
        """Tell whether a split says what the first and the last value of the loop is, where every placement below it has some."""
        nests = [self.schedule.nests[p] for p in placements_in(step.node)]
        split = any(nest.box.dim_min_val(step.depth).is_int() and nest.box.dim_max_val(step.depth).is_int() for nest in nests)
        return split and all(nest.ends(step.node.name) is not None for nest in nests)

    def _frame(self, placement: str) -> Frame:
        return Frame(self.params, self.schedule.nests[placement].loops)

    def _cuts(self, placement: str, max_separated: int) -> list[_Cut]:
        """Return the cuts of one placement at its innermost `max_separated` loops that have any."""
        nest = self.schedule.nests[placement]
        marks = [loop.mark for loop in self.schedule.places[placement].loops]
        tile = {p: span for p, m in enumerate(marks) if m in OF_TILES and (span := self._span(nest, p)) is not None}
        if not tile:
            return []
        found: dict[_Cut, None] = {}
        for constraint in _basic(self.domains[placement].compute_divs()).get_constraints():
            for cut in _worst_case(constraint, self._frame(placement), tile):
                found[cut] = None
        depths = sorted({c.depth for c in found}, reverse=True)[:max_separated]
        return [c for c in found if c.depth in depths]

    def _span(self, nest: Nest, position: int) -> tuple[int, int] | None:
        """Return the least and greatest value of a loop over the whole tile."""
        for points in (nest.box, self.domains[nest.placement]):
            low, high = points.dim_min_val(position), points.dim_max_val(position)
            if low.is_int() and high.is_int():
                return integer(low), integer(high)
        return None


@dataclass(frozen=True, slots=True)
class _Step:
    """One loop about to be emitted: the context around it and the points below it, both over its own dimension too."""

    node: Loop
    depth: int
    around: isl.Set
    points: isl.Set
    frame: Frame


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: Expr
    high: Expr
    guards: list[isl.BasicSet]
    enforced: isl.Set


def _inside(around: isl.Set, bounds: _Bounds, guards: Sequence[isl.BasicSet]) -> isl.Set:
    """Return what holds inside a loop of these bounds under `guards`."""
    inner = around.intersect(bounds.enforced)
    for guard in guards:
        inner = inner.intersect(guard.to_set())
    return inner


def _bounds(step: _Step, region: isl.BasicSet, around: isl.Set) -> _Bounds:
    """Return the loop's bounds, the set they enforce, and the constraints on the loops around it that remain."""
    hull = _basic(step.points).intersect(region)
    context = _basic(around)
    tight = _without_divs(without_context(hull, context))
    low, high = _sides(tight, step)
    if not low or not high:
        whole = _without_divs(hull)
        wide_low, wide_high = _sides(whole, step)
        low, high = low or wide_low, high or wide_high
        tight = tight.intersect(whole)
    if not low or not high:
        return _piecewise_bounds(step)
    on_loop = isl.BasicSet.universe(step.frame.space)
    guards: list[isl.BasicSet] = []
    for constraint in tight.get_constraints():
        if constraint.involves_dims(DT.set, step.depth, 1):
            on_loop = on_loop.add_constraint(constraint)
        else:
            guards.append(isl.BasicSet.from_constraint(constraint))
    return _Bounds(affine.maximum(*low), affine.minimum(*high), guards, on_loop.to_set())


def _in_order(points: isl.Set, depth: int) -> list[isl.Set]:
    """Return convex pieces of a union, each all before the next along the loop at `depth` wherever the outer loops agree; the union itself
    when its pieces have no such order or are many."""
    if points.n_basic_set() == 1:
        return [points]
    basics = points.make_disjoint().coalesce().get_basic_sets()
    pieces = [b.to_set() for b in basics]
    if len(pieces) > MAX_PIECES or any(b.dim(DT.div) for b in basics):  # With divisions, bounds and guards alone would overlap.
        return [points]
    result: list[isl.Set] = []
    while pieces:
        first = next((p for p in pieces if not any(_reaches_past(p, q, depth) for q in pieces if q is not p)), None)
        if first is None:
            return [points]
        result.append(first)
        pieces.remove(first)
    return result


def _has_constant_range(points: isl.Set, depth: int) -> bool:
    """Tell whether neither parameters nor the loops around decide where the loop at `depth` over a convex set begins and ends."""
    (basic,) = points.get_basic_sets()
    on_loop = [c for c in basic.get_constraints() if c.involves_dims(DT.set, depth, 1)]
    return not any(c.involves_dims(DT.set, 0, depth) or c.involves_dims(DT.param, 0, basic.dim(DT.param)) for c in on_loop)


def _reaches_past(first: isl.Set, second: isl.Set, depth: int) -> bool:
    """Whether `first` has a point after one of `second` along the loop at `depth`, the outer loops equal."""
    a, b = (isl.Map.from_range(s).move_dims(DT.in_, 0, DT.out, 0, depth) for s in (first, second))
    return not a.reverse().apply_range(b).order_gt(DT.in_, 0, DT.out, 0).is_empty()


def _hoisted(nodes: tuple[Node, ...], loop: str) -> tuple[tuple[Node, ...], list[Cond]]:
    """Return a loop's body without the conditions of its only guard that do not involve the loop, and those conditions."""
    if len(nodes) != 1 or not isinstance(nodes[0], If):
        return nodes, []
    guard = nodes[0]
    conds = guard.cond.conds if isinstance(guard.cond, And) else (guard.cond,)
    outside = [c for c in conds if loop not in affine.name_set(c)]
    inside = [c for c in conds if loop in affine.name_set(c)]
    return ((If(affine.conj(*inside), guard.body),) if inside else guard.body), outside


def _sides(basic: isl.BasicSet, step: _Step) -> tuple[list[Expr], list[Expr]]:
    """Return the lower bounds and the exclusive upper bounds of the loop."""
    low: list[Expr] = []
    high: list[Expr] = []
    loop = Name(step.frame.dims[step.depth])
    for constraint in basic.get_constraints():
        terms, constant = constraint_terms(constraint, step.frame)
        equality = bool(constraint.is_equality())
        factor = terms.pop(loop, 0)
        if factor == 0:
            continue
        for sign in (1, -1) if equality else (1,):
            side = {t: sign * f for t, f in terms.items()}
            if sign * factor > 0:
                low.append(_at_least(side, sign * constant, sign * factor))
            else:
                high.append(_below(side, sign * constant, -sign * factor))
    return low, high


def _at_least(terms: Mapping[Expr, int], constant: int, factor: int) -> Expr:
    """Return the least x with `factor * x + terms + constant >= 0`."""
    return affine.floor(affine.from_terms({t: -f for t, f in terms.items()}, factor - 1 - constant), factor)


def _below(terms: Mapping[Expr, int], constant: int, factor: int) -> Expr:
    """Return one more than the greatest x with `terms + constant >= factor * x`."""
    return affine.floor(affine.from_terms(terms, constant + factor), factor)


def _piecewise_bounds(step: _Step) -> _Bounds:
    """Return the minimum and maximum over the convex pieces of the points: right for unions whose hull is unbounded."""
    lows: list[Expr] = []
    highs: list[Expr] = []
    for basic in step.points.get_basic_sets():
        low, high = _sides(_without_divs(basic), step)
        if not low or not high:
            raise ScheduleError(f"the loop `{step.node.name}` has no bounds")
        lows.append(affine.maximum(*low))
        highs.append(affine.minimum(*high))
    return _Bounds(affine.minimum(*lows), affine.maximum(*highs), [], isl.Set.universe(step.frame.space))


def _without_divs(basic: isl.BasicSet) -> isl.BasicSet:
    return basic.remove_divs().remove_redundancies()


def _basic(points: isl.Set) -> isl.BasicSet:
    basics = points.get_basic_sets()
    return basics[0] if len(basics) == 1 else points.simple_hull()


def _projections(domain: isl.Set, n: int) -> list[isl.Set]:
    """Return the projections on the first 0, 1, …, n dimensions, each from the next."""
    result = [domain]
    for position in range(n - 1, -1, -1):
        result.append(result[-1].project_out(DT.set, position, 1).coalesce())
    return result[::-1]


def _fix_sizes(points: isl.Set, params: Sequence[str], sizes: Mapping[str, int]) -> isl.Set:
    for position in reversed(range(len(params))):
        if params[position] in sizes:
            points = points.fix_val(DT.param, position, val(sizes[params[position]])).project_out(DT.param, position, 1)
    return points


def _is_constant(points: isl.Set, position: int) -> bool:
    low, high = points.dim_min_val(position), points.dim_max_val(position)
    return bool(low.is_int() and low.eq(high))


def _merged(lists: Iterable[Sequence[_Cut]]) -> list[_Cut]:
    return list(dict.fromkeys(cut for cuts in lists for cut in cuts))


def _worst_case(constraint: isl.Constraint, frame: Frame, tile: Mapping[int, tuple[int, int]]) -> list[_Cut]:
    """Return the constraint (an equality as two) with each tile loop at its worst value, where it involves a tile loop and another."""
    terms, constant = constraint_terms(constraint, frame)
    signs = (1, -1) if constraint.is_equality() else (1,)
    inside = {frame.dims[p]: span for p, span in tile.items()}
    cuts = (_cut_of({t: s * f for t, f in terms.items()}, s * constant, frame, inside) for s in signs)
    return [c for c in cuts if c is not None]


def _cut_of(terms: Mapping[Expr, int], constant: int, frame: Frame, inside: Mapping[str, tuple[int, int]]) -> _Cut | None:
    rest: dict[str, int] = {}
    involved = False
    for term, factor in terms.items():
        if not isinstance(term, Name):
            return None
        if term.name in inside:
            low, high = inside[term.name]
            constant += factor * (low if factor > 0 else high)
            involved = True
        else:
            rest[term.name] = factor
    depths = [p for p, name in enumerate(frame.dims) if name in rest]
    if not involved or not depths:
        return None
    return _Cut(depths[-1], tuple(sorted(rest.items())), constant, rest[frame.dims[depths[-1]]] > 0)


def _halfspace(frame: Frame, coefficients: Sequence[tuple[str, int]], constant: int) -> isl.BasicSet:
    """Return `{ [dims] : Σ coefficients + constant >= 0 }`."""
    return frame.halfspace({Name(n): f for n, f in coefficients}, constant)
