"""Whether elements of tensors that are defined through each other ever depend on themselves.

    edge      { dst[x] -> src[y] : dst[x] is computed from src[y] }
    ranking   integer vectors r_T(x) with r_src(y) < r_dst(x) lexicographically along every edge; then no cycle exists

The ranking is built one component at a time, within each strongly connected group of tensors. A component gives every tensor a small
linear form of its axes plus a constant so that no edge rises; the pairs on which it falls are settled, the groups are recomputed from what
is left, and the next component follows. A component that never rises can do no harm, so the order of trial does not matter (the greedy
argument of Feautrier's multi-dimensional schedules, 1992). What cannot be ranked is searched for a cycle of a few steps.

    u[t, 0] = u[t, 1]     u[t, i] = f(u[t - 1, i - 1], u[t - 1, i + 1])  for i in 1..N-1     u[t, N - 1] = u[t, N - 2]

has no such form, since within a step edges read what lies after them as well as before them: there the clauses have an order
(`clause_order`), in which tensors that hold what the first of them make can be computed (`tensorlang/tensor/clauses_apart.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import NamedTuple, TypeAlias

import islpy as isl

from polyhedral import affine
from polyhedral.deps import cells_at
from polyhedral.expr import And, Compare, Cond, Expr, Int, Name
from polyhedral.model import Coordinate, Within
from polyhedral.record import each, note
from polyhedral.space import DT, Frame, OperationLimit, integer, limited, smallest_point, val
from polyhedral.text import show
from polyhedral.verdict import Proven, Refuted, Unknown, Verdict

MAX_CYCLE = 4
MAX_TRIALS = 4000
Form = tuple[int, ...]


class Edge(NamedTuple):
    """`target[target_axes]` is computed from `source[indices]` for all values of `extra` where `condition` holds."""

    source: str
    indices: Sequence[Coordinate]
    target: str
    target_axes: Sequence[str]
    extra: Sequence[str]
    condition: Cond


@dataclass(frozen=True, slots=True)
class Pairs:
    """`{ dst[x] -> src[y] }` that are not settled yet."""

    source: str
    target: str
    relation: isl.Map
    certain: bool
    """Whether every pair is really read; false when an index depends on data."""
    edge: int = -1
    """Which of the edges they are of, where that is asked for."""


def well_founded(
    params: Sequence[str],
    context: Cond,
    nodes: Mapping[str, tuple[Sequence[str], Cond]],
    edges: Sequence[Edge | tuple[str, Sequence[Coordinate], str, Sequence[str], Sequence[str], Cond]],
) -> Verdict:
    """Return whether no element depends on itself: proven with the ranking found, or refuted with a cycle of elements."""
    try:
        with limited():
            return Recurrence(tuple(params), context, nodes).decide([Edge(*e) for e in edges])
    except OperationLimit as limit:
        return Unknown(str(limit))


Clause: TypeAlias = tuple[str, int]
"""A tensor, and which of its clauses."""


class ClauseOrder(NamedTuple):
    """In which order clauses are computed, wherever no order of whole tensors tells."""

    levels: Mapping[Clause, int]
    """Those that need each other are of one level; those that no other waits for are of the last."""
    reads: Mapping[int, int]
    """The edges that need it, and up to which level clauses have made what each reads."""


def clause_order(
    params: Sequence[str],
    context: Cond,
    nodes: Mapping[str, tuple[Sequence[str], Cond]],
    clauses: Mapping[str, Sequence[Cond]],
    edges: Sequence[tuple[int, Edge]],
) -> ClauseOrder | None:
    """Return an order of the clauses of tensors that settles what no order of the elements of whole tensors does: None where nothing is
    left to settle, or no such order is found. `edges` come with the clause of their target that they are of."""
    try:
        with limited():
            recurrence = Recurrence(tuple(params), context, nodes)
            within = {
                (name, k): Frame(recurrence.params, recurrence.axes[name]).set(guard)
                for name, guards in clauses.items()
                for k, guard in enumerate(guards)
            }
            return _Clauses(recurrence, within, edges).order()
    except OperationLimit:
        return None


class _Clauses:
    def __init__(self, recurrence: Recurrence, within: Mapping[Clause, isl.Set], edges: Sequence[tuple[int, Edge]]) -> None:
        self.recurrence, self.within = recurrence, within
        self.every = [recurrence.pairs(edge, k) for k, (_, edge) in enumerate(edges)]
        self.reader: list[Clause] = [(edge.target, clause) for clause, edge in edges]

    def order(self) -> ClauseOrder | None:
        left = self.recurrence.without_rank([p for p in self.every if not p.relation.is_empty()])
        arcs = [(self.reader[p.edge], read) for p in left for read in self._read_by(p)]
        reach = {c: {c} for c in self.within}
        for _ in reach:
            for clause, read in arcs:
                reach[clause] |= reach[read]
        if not left or not all(self._is_ranked([p for p in left if self.reader[p.edge] in group], group) for group in _together(reach)):
            return None
        levels = dict.fromkeys(self.within, 0)
        for _ in levels:
            for clause, read in arcs:
                levels[clause] = max(levels[clause], levels[read] + (clause not in reach[read]))
        last, needed = max(levels.values()), {read for _, read in arcs}
        levels = {c: level if c in needed else last for c, level in levels.items()}
        reads = {p.edge: max((levels[c] for c in self._read_by(self.every[p.edge])), default=0) for p in left}
        return ClauseOrder(levels, reads) if all(level <= levels[self.reader[edge]] for edge, level in reads.items()) else None

    def _read_by(self, p: Pairs) -> list[Clause]:
        return [c for c, elements in self.within.items() if c[0] == p.source and not p.relation.intersect_range(elements).is_empty()]

    def _is_ranked(self, pairs: Sequence[Pairs], group: frozenset[Clause]) -> bool:
        """Tell whether there is an order of elements for what clauses read of each other."""
        parts = [replace(p, relation=p.relation.intersect_range(self.within[c])) for p in pairs for c in group if c[0] == p.source]
        return not self.recurrence.without_rank([p for p in parts if not p.relation.is_empty()])


def _together(reach: Mapping[Clause, set[Clause]]) -> set[frozenset[Clause]]:
    """Return the clauses that reach each other, together."""
    return {frozenset(other for other in found if clause in reach[other]) for clause, found in reach.items()}


class Recurrence:
    def __init__(self, params: tuple[str, ...], context: Cond, nodes: Mapping[str, tuple[Sequence[str], Cond]]) -> None:
        self.params = params
        self.axes = {name: tuple(axes) for name, (axes, _) in nodes.items()}
        frame = Frame(params, ())
        self.context = frame.set(context).intersect(frame.set(And(tuple(Compare(">=", Name(p), Int(0)) for p in params)))).params()
        self.domains = {
            name: Frame(params, tuple(axes)).set(domain).intersect_params(self.context) for name, (axes, domain) in nodes.items()
        }
        self.ranking: dict[str, list[str]] = {name: [] for name in nodes}
        self.trials = 0

    def decide(self, edges: Sequence[Edge]) -> Verdict:
        pairs = [p for p in map(self.pairs, edges) if not p.relation.is_empty()]
        stuck = self.without_rank(pairs)
        if stuck:
            return self._cycle(stuck)
        ranks = "; ".join(f"{name} by ({', '.join(r)})" for name, r in self.ranking.items() if r)
        if pairs:
            note("well founded", ranks, each, *(p.relation for p in pairs))
        return Proven(ranks or "no tensor depends on itself")

    def pairs(self, edge: Edge, number: int = -1) -> Pairs:
        """Return the pairs of an edge, the extra iterators projected out. `number`: which it is of those that are asked for."""
        frame = Frame(self.params, (*edge.target_axes, *edge.extra))
        relation = cells_at(frame, edge.indices).intersect_domain(frame.set(edge.condition))
        relation = relation.project_out(DT.in_, len(edge.target_axes), len(edge.extra))
        relation = relation.intersect_domain(self.domains[edge.target]).intersect_range(self.domains[edge.source])
        return Pairs(edge.source, edge.target, relation, not any(isinstance(x, Within) for x in edge.indices), number)

    def without_rank(self, pairs: Sequence[Pairs]) -> list[Pairs]:
        """Settle the pairs of each group component by component; return those that are left where no component helps."""
        out: list[Pairs] = []
        for group in _groups(pairs):
            found = self._component(group)
            if found is None:
                out += group
                continue
            forms, offsets = found
            for name, form in forms.items():
                terms: dict[Expr, int] = {Name(a): f for a, f in zip(self.axes[name], form, strict=True)}
                self.ranking[name].append(show(affine.from_terms(terms, offsets[name])))
            left = (self.level(p, forms, offsets) for p in group)
            out += self.without_rank([p for p in left if not p.relation.is_empty()])
        return out

    def _component(self, pairs: list[Pairs]) -> tuple[dict[str, Form], dict[str, int]] | None:
        """Return a form and an offset for each tensor such that no pair rises and some pair falls, or None."""
        names = list(dict.fromkeys(n for p in pairs for n in (p.target, p.source)))
        memo: dict[tuple[int, Form, Form], int | None] = {}

        def fall(index: int, forms: Mapping[str, Form]) -> int | None:
            pair = pairs[index]
            key = (index, forms[pair.target], forms[pair.source])
            if key not in memo:
                self.trials += 1
                memo[key] = self.least_fall(pair, key[1], key[2])
            return memo[key]

        def search(position: int, forms: dict[str, Form]) -> Iterator[dict[str, Form]]:
            if position == len(names):
                yield dict(forms)
                return
            for form in self._forms(names[position], forms):
                if self.trials > MAX_TRIALS:
                    return
                forms[names[position]] = form
                known = [
                    k for k, p in enumerate(pairs) if names[position] in (p.target, p.source) and p.target in forms and p.source in forms
                ]
                if all(fall(k, forms) is not None for k in known):
                    yield from search(position + 1, forms)
                del forms[names[position]]

        for forms in chain(self._alike(names), search(0, {})):
            falls = [f for f in (fall(k, forms) for k in range(len(pairs))) if f is not None]
            offsets = _offsets(names, pairs, falls) if len(falls) == len(pairs) else None
            if offsets is not None and self._progress(pairs, forms, offsets):
                return forms, offsets
        return None

    def _alike(self, names: Sequence[str]) -> Iterator[dict[str, Form]]:
        """Yield an axis that all tensors have by the same name, for each of these, then turned round, and the same of axes at one position:
        most recurrences count their steps along one, forwards or backwards."""
        by_name = [[self.axes[n].index(a) for n in names] for a in self.axes[names[0]] if all(a in self.axes[n] for n in names)]
        by_position = [[k] * len(names) for k in range(min(len(self.axes[n]) for n in names))]
        for places in (by_name, [p for p in by_position if p not in by_name]):
            for factor in (1, -1):
                for of_each in places:
                    axes = zip(names, of_each, strict=True)
                    yield {name: tuple(factor * int(k == at) for k in range(len(self.axes[name]))) for name, at in axes}

    def _forms(self, name: str, chosen: Mapping[str, Form]) -> Iterator[Form]:
        """Return the candidate forms of a tensor's axes, simple ones first; the same axes as already chosen tensors before others."""
        axes = self.axes[name]
        likely: list[Form] = []
        for other, form in chosen.items():
            by_name = dict(zip(self.axes[other], form, strict=True))
            likely.append(tuple(by_name.get(a, 0) for a in axes))
            if len(form) == len(axes):
                likely.append(form)
        yield from dict.fromkeys([*likely, *small_forms(len(axes))])

    def least_fall(self, pair: Pairs, target: Form, source: Form) -> int | None:
        """Return the least value of target form - source form over the pairs, or None when it is unbounded."""
        both = pair.relation.wrap().flatten()
        least = both.min_val(self._difference(pair, target, source, 0))
        return integer(least) if least.is_int() else None

    def least(self, pair: Pairs, form: Form) -> int | None:
        """Return the least value of a form over the elements that the pairs compute, or None when it is unbounded or depends on sizes."""
        axes = tuple(f"x{k}" for k in range(len(form)))
        value = affine.from_terms({Name(a): f for a, f in zip(axes, form, strict=True)}, 0)
        least = pair.relation.domain().min_val(Frame(self.params, axes).aff(value))
        return None if not least.is_int() else integer(least)

    def _difference(self, pair: Pairs, target: Form, source: Form, offset: int) -> isl.Aff:
        dims = (*(f"x{k}" for k in range(len(target))), *(f"y{k}" for k in range(len(source))))
        terms: dict[Expr, int] = {Name(d): f for d, f in zip(dims, (*target, *(-f for f in source)), strict=True)}
        return Frame(self.params, dims).aff(affine.from_terms(terms, offset))

    def _progress(self, pairs: list[Pairs], forms: Mapping[str, Form], offsets: Mapping[str, int]) -> bool:
        return any(not self.level(p, forms, offsets).relation.is_equal(p.relation) for p in pairs)

    def level(self, pair: Pairs, forms: Mapping[str, Form], offsets: Mapping[str, int]) -> Pairs:
        """Return the pairs on which the component neither rises nor falls."""
        offset = offsets[pair.target] - offsets[pair.source]
        aff = self._difference(pair, forms[pair.target], forms[pair.source], offset)
        level = pair.relation.wrap().flatten().intersect(aff.zero_basic_set().to_set())
        n = len(forms[pair.target])
        as_map = isl.Map.from_range(level).move_dims(DT.in_, 0, DT.out, 0, n)
        return replace(pair, relation=as_map)

    def _cycle(self, pairs: list[Pairs]) -> Verdict:
        """Return the shortest cycle of at most `MAX_CYCLE` dependences among `pairs` as evidence, or Unknown."""
        paths: list[list[Pairs]] = [[p] for p in pairs]
        for _ in range(MAX_CYCLE):
            for path in paths:
                if path[0].target == path[-1].source and all(p.certain for p in path):
                    found = self._closed(path)
                    if found is not None:
                        return found
            paths = [[*path, p] for path in paths for p in pairs if p.target == path[-1].source][:200]
        names = ", ".join(f"`{n}`" for n in dict.fromkeys(p.target for p in pairs))
        return Unknown(f"no order of the elements of {names} was found, and no element that depends on itself")

    def _closed(self, path: Sequence[Pairs]) -> Refuted | None:
        around = path[0].relation
        for step in path[1:]:
            around = around.apply_range(step.relation)
        fixed = around.intersect(isl.Map.identity(around.get_space())).domain()
        if fixed.is_empty():
            return None
        sizes, start = smallest_point(fixed)
        names = self.axes[path[0].target]
        via = [(path[0].target, start)]
        here = _single(fixed, sizes, start)
        home = here
        for k, step in enumerate(path[:-1]):
            reach = step.relation.intersect_domain(here).range()
            back = home
            for later in reversed(path[k + 1 :]):
                back = later.relation.intersect_range(back).domain()
            _, point = smallest_point(reach.intersect(back))
            here = _single(reach, sizes, point)
            via.append((step.source, point))
        return Refuted(dict(zip(names, start, strict=True)), dict(zip(self.params, sizes, strict=True)), tuple(via))


def _single(like: isl.Set, sizes: Sequence[int], point: Sequence[int]) -> isl.Set:
    result = isl.Set.universe(like.get_space())
    for position, value in enumerate(sizes):
        result = result.fix_val(DT.param, position, val(value))
    for position, value in enumerate(point):
        result = result.fix_val(DT.set, position, val(value))
    return result


def small_forms(rank: int) -> Iterator[Form]:
    """Return linear forms with small factors: one axis, sums and differences of two, all axes, none."""
    unit = [tuple(int(k == a) for k in range(rank)) for a in range(rank)]
    for u in unit:
        yield u
    for u in unit:
        yield tuple(-x for x in u)
    for u, v in combinations(unit, 2):
        for f, g in ((1, 1), (1, -1), (-1, 1), (-1, -1), (2, 1), (1, 2), (2, -1), (-1, 2), (-2, 1), (1, -2)):
            yield tuple(f * x + g * y for x, y in zip(u, v, strict=True))
    if rank > 2:
        yield (1,) * rank
        yield (-1,) * rank
    yield (0,) * rank


def _offsets(names: Sequence[str], pairs: Sequence[Pairs], falls: Sequence[int]) -> dict[str, int] | None:
    """Return offsets with `fall + offset[target] - offset[source] >= 0` for each pair (Bellman–Ford), or None when there are none."""
    offsets = dict.fromkeys(names, 0)
    for _ in range(len(names) + 1):
        changed = False
        for pair, fall in zip(pairs, falls, strict=True):
            if offsets[pair.source] > offsets[pair.target] + fall:
                offsets[pair.source] = offsets[pair.target] + fall
                changed = True
        if not changed:
            return offsets
    return None


def _groups(pairs: Sequence[Pairs]) -> list[list[Pairs]]:
    """Return the pairs within each strongly connected group of tensors; pairs between groups need no ranking."""
    reach = {n: {n} for p in pairs for n in (p.source, p.target)}
    for _ in reach:
        for p in pairs:
            reach[p.target] |= reach[p.source]
    groups: dict[frozenset[str], list[Pairs]] = {}
    for p in pairs:
        if p.target in reach[p.source]:
            groups.setdefault(frozenset(n for n in reach if n in reach[p.target] and p.target in reach[n]), []).append(p)
    return list(groups.values())
