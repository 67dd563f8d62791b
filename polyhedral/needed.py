"""Which instances of statements somebody needs: those of the roots, and whatever these depend on.

    depends     { S[i] -> T[j] : T[j] reads what S[i] writes }
    needed(S)   domain(S)                                       where S is a root
                union over T of depends^-1(needed(T))           elsewhere

Statements that depend on each other are settled together: in a few rounds, each of which adds what the dependences ask for, as for tables
whose elements read parts of all sizes; or, as for steps that read the step before, by the transitive closure of the dependences between
them, of which isl does not count the steps, and takes minutes where sums over several indices are part of it. Where isl knows the closure
only roughly, or does not find it in as many steps as a proof may take, the result is larger than it has to be; it always contains all that
its own instances depend on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import islpy as isl

from polyhedral.deps import Dep, dependences
from polyhedral.model import Scop, Statement
from polyhedral.nest import context_of
from polyhedral.space import Frame, OperationLimit, limited

ROUNDS = 4
"""For each statement of a group, until a closure is asked for."""


def needed(scop: Scop, roots: Collection[str]) -> Mapping[str, isl.Set]:
    """Return the needed instances of every statement; those of `roots` are all needed."""
    context = context_of(scop)
    domains = {s.name: _domain(scop, s).intersect_params(context) for s in scop.statements}
    reads = [d for d in dependences(scop) if d.kind == "RAW"]
    found: dict[str, isl.Set] = {}
    for group in _consumers_first([s.name for s in scop.statements], reads):
        start = {name: _asked(name, domains, reads, found, name in roots) for name in group}
        try:
            with limited():
                found |= _closed(group, start, domains, [d for d in reads if d.source in group and d.target in group])
        except OperationLimit:
            found |= {name: domains[name] for name in group}
    return found


def live(scop: Scop, roots: Collection[str]) -> frozenset[str]:
    """Return the statements without those of which nobody needs any instance: those of `roots`, and what these read, directly or not."""
    reads = [d for d in dependences(scop) if d.kind == "RAW"]
    found, new = frozenset[str](), frozenset(roots)
    while new:
        found |= new
        new = frozenset(d.source for d in reads if d.target in new) - found
    return found


def _domain(scop: Scop, statement: Statement) -> isl.Set:
    return Frame(scop.params, statement.iters).set(statement.domain)


def _asked(name: str, domains: Mapping[str, isl.Set], reads: list[Dep], found: Mapping[str, isl.Set], root: bool) -> isl.Set:
    """Return which instances those outside of its group ask for."""
    if root:
        return domains[name]
    out = isl.Set.empty(domains[name].get_space())
    for dep in reads:
        if dep.source == name and dep.target in found:
            out = out.union(dep.relation.reverse().intersect_domain(found[dep.target]).range())
    return out.intersect(domains[name]).coalesce()


def _closed(group: list[str], start: Mapping[str, isl.Set], domains: Mapping[str, isl.Set], within: list[Dep]) -> dict[str, isl.Set]:
    """Return `start` with all that it depends on through the dependences `within` a group."""
    if not within or all(points.is_empty() for points in start.values()):
        return dict(start)
    settled = _settled(start, domains, within)
    if settled is not None:
        return settled
    names = {name: f"s{k}" for k, name in enumerate(group)}
    steps = [
        d.relation.reverse().set_tuple_name(isl.dim_type.in_, names[d.target]).set_tuple_name(isl.dim_type.out, names[d.source])
        for d in within
    ]
    relation = isl.UnionMap.from_map(steps[0])
    for step in steps[1:]:
        relation = relation.union(isl.UnionMap.from_map(step))
    closure, _ = relation.transitive_closure()
    first = isl.UnionSet.from_set(start[group[0]].set_tuple_name(names[group[0]]))
    for name in group[1:]:
        first = first.union(isl.UnionSet.from_set(start[name].set_tuple_name(names[name])))
    reached = first.union(first.apply(closure))
    bounds = {name: domains[name].set_tuple_name(names[name]) for name in group}
    inside = isl.UnionSet.from_set(bounds[group[0]])
    for name in group[1:]:
        inside = inside.union(isl.UnionSet.from_set(bounds[name]))
    reached = reached.intersect(inside)
    if not reached.apply(relation).intersect(inside).is_subset(reached):
        return {name: domains[name] for name in group}
    return {name: reached.extract_set(bounds[name].get_space()).reset_tuple_id().coalesce() for name in group}


def _settled(start: Mapping[str, isl.Set], domains: Mapping[str, isl.Set], within: list[Dep]) -> dict[str, isl.Set] | None:
    """Return `start` with all that it depends on through the dependences `within` a group; None where a few rounds do not find all."""
    found = dict(start)
    for _ in range(ROUNDS * len(start)):
        asked = dict(found)
        for d in within:
            read = d.relation.reverse().intersect_domain(found[d.target]).range()
            asked[d.source] = asked[d.source].union(read.intersect(domains[d.source]))
        asked = {name: points.coalesce() for name, points in asked.items()}
        if all(points.is_subset(found[name]) for name, points in asked.items()):
            return found
        found = asked
    return None


def _consumers_first(names: list[str], reads: list[Dep]) -> list[list[str]]:
    """Return the statements in groups that depend on each other, a group after all that depends on it from outside."""
    readers = {name: {name} for name in names}
    grown = True
    while grown:
        grown = False
        for dep in reads:
            more = readers[dep.target] - readers[dep.source]
            if more:
                readers[dep.source] |= more
                grown = True
    groups = {frozenset(o for o in readers[name] if name in readers[o]): None for name in names}
    return sorted(([n for n in names if n in group] for group in groups), key=lambda g: len(readers[g[0]]))
