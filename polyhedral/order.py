"""Whether a schedule keeps every dependence, checked on the final tree, with the smallest violation as evidence.

For a dependence and a pair of placements, over their loops:

    pairs     { [x] -> [y] : source(x) and target(y) touch one cell, x and y share the storage of the tensor }
    level l   pairs that agree on the shared loops before l
    violated  some pair at level l runs the target first, or all shared loops agree and the target's leaf comes first

A loop may be parallel when no pair at its level differs in it; lanes of a vector loop may combine (a reduction over lanes), nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias, TypeVar

import islpy as isl

from polyhedral import affine
from polyhedral.affine import evaluate
from polyhedral.deps import Dep, access_map, dependences, elements
from polyhedral.expr import Name
from polyhedral.model import AT_ONCE, COMBINING, Access, Loop, Mark, Statement, Within
from polyhedral.nest import Nest, context_of
from polyhedral.record import each, named, note
from polyhedral.schedule import Schedule, loops_in, placements_in, validate
from polyhedral.space import DEFAULT_LIMIT, DT, OperationLimit, integer, limited, smallest_point
from polyhedral.verdict import Proven, Unknown

Fault: TypeAlias = Literal["order", "race", "lane", "missing", "repeated", "outside", "uninitialised", "beyond"]
Storage: TypeAlias = Mapping[str, int]
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Instance:
    """One execution: the statement, its iterators, and the loops it runs at (empty when it does not run)."""

    statement: str
    iters: dict[str, int]
    loops: dict[str, int]


@dataclass(frozen=True, slots=True)
class Violation:
    """`source` should run before `target` (order), may not run at the same time as it (race, lane), should run for it (missing), runs twice
    (repeated), is no instance at all (outside), reads what nobody defines (uninitialised), or what its tensor does not have (beyond)."""

    kind: Fault
    dep: Dep | None
    params: dict[str, int]
    source: Instance
    target: Instance
    cell: tuple[str, tuple[int | None, ...]]
    loop: str | None


Verdict: TypeAlias = Proven | Violation | Unknown


def check(
    schedule: Schedule,
    deps: Sequence[Dep] | None = None,
    *,
    storage: Storage | None = None,
    outputs: Collection[str] | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Verdict:
    """Return whether the schedule computes what the scop says. `storage[t]` is how many of the outermost loops around the placements of
    tensor `t` own a private copy of it. Tensors outside `outputs` need only hold what is read (by default all must be complete).
    Raises `ScheduleError` when tree and nests do not fit together."""
    validate(schedule)
    try:
        with limited(limit):
            checker = Checker(schedule, tuple(deps) if deps is not None else dependences(schedule.scop), storage or {}, outputs)
            return checker.first() or Proven()
    except OperationLimit as error:
        return Unknown(str(error))


def parallel_loops(schedule: Schedule, deps: Sequence[Dep] | None = None, storage: Storage | None = None) -> set[str]:
    """Return the loops whose iterations may run at once."""
    checker = Checker(schedule, tuple(deps) if deps is not None else dependences(schedule.scop), storage or {})
    free: set[str] = set()
    held: set[str] = set()
    for node, depth in loops_in(schedule.tree):
        (held if checker.mark_fault(node, depth, "parallel") else free).add(node.name)
    return free - held


class _Made(dict[str, V]):
    """Values by names, each made when it is first asked for."""

    def __init__(self, make: Callable[[str], V]) -> None:
        self.make = make

    def __missing__(self, name: str) -> V:
        self[name] = self.make(name)
        return self[name]


class Checker:
    """The relations of one schedule, each computed once, when it is asked for."""

    def __init__(self, schedule: Schedule, deps: tuple[Dep, ...], storage: Storage, outputs: Collection[str] | None = None) -> None:
        self.outputs = outputs
        self.schedule = schedule
        self.deps = deps
        self.storage = storage
        self.points = _Made(self._points)
        self.back = _Made(self._back)
        self.written: dict[str, isl.Set | None] = {}
        self.pairs: dict[tuple[int, str, str], isl.Map] = {}
        self.repeats = _Made(self._repeated_pair)

    def depth(self, tensor: str) -> int:
        return self.storage.get(tensor, 0)

    def complete(self, tensor: str) -> bool:
        """Whether every element of the tensor has to be computed."""
        return self.depth(tensor) == 0 and (self.outputs is None or tensor in self.outputs)

    def nests(self, statement: str) -> list[Nest]:
        return self.schedule.placements(statement)

    def first(self) -> Violation | None:
        """Return the first violation: instances, then order, then marks."""
        for statement in self.schedule.statements:
            found = self._instances_fault(statement)
            if found is not None:
                return found
        for reader in self.schedule.scop.statements:
            found = self._unfounded(reader)
            if found is not None:
                return found
        for index, dep in enumerate(self.deps):
            found = self._order_fault(index, dep) if dep.hard else None
            if found is not None:
                return found
        for node, depth in loops_in(self.schedule.tree):
            found = self.mark_fault(node, depth, node.mark) if node.mark in AT_ONCE | {"vector"} else None
            if found is not None:
                return found
        return None

    def _points(self, placement: str) -> isl.Set:
        nest = self.schedule.nests[placement]
        return nest.points.intersect_params(nest.context)

    def _back(self, placement: str) -> isl.Map:
        return isl.Map.from_multi_aff(self.schedule.nests[placement].back).intersect_domain(self.points[placement])

    def _instances_fault(self, name: str) -> Violation | None:
        statement = self.schedule.statements[name]
        nests = self.nests(name)
        domain = Nest.identity(self.schedule.scop, statement).points.intersect_params(context_of(self.schedule.scop))
        run = isl.Set.empty(domain.get_space())
        for nest in nests:
            run = run.union(self.back[nest.placement].range())
        outside = run.subtract(domain)
        if not outside.is_empty():
            return self._single("outside", name, outside)
        if self.complete(statement.write.tensor):
            left = domain.subtract(run)
            if not left.is_empty():
                return self._single("missing", name, left)
        repeated = self.repeats[name]
        if repeated is not None and statement.role != "define":
            first, second, pairs = repeated
            return self._pair("repeated", None, first, second, pairs, None)
        if self.complete(statement.write.tensor):
            note("once", name, _in_words, statement, domain, run)
        return None

    def _repeated_pair(self, statement: str) -> tuple[str, str, isl.Map] | None:
        """Return two placements that run one instance twice within one copy of its tensor, or None."""
        depth = self.depth(self.schedule.statements[statement].write.tensor)
        names = [n.placement for n in self.nests(statement)]
        for k, first in enumerate(names):
            for second in names[k:]:
                twice = self._same_storage(self.back[first].apply_range(self.back[second].reverse()), first, second, depth)
                if first == second:
                    twice = twice.intersect(isl.Map.lex_lt(twice.get_space().domain()))
                if not twice.is_empty():
                    return first, second, twice
        return None

    def _unfounded(self, reader: Statement) -> Violation | None:
        """Return an instance that reads an element which no statement defines or no input has, or None. Data-dependent indices are the
        caller's promise."""
        scop = self.schedule.scop
        for access in reader.reads:
            there = self._there(access.tensor)
            if there is None or (not access.is_exact and access.tensor not in scop.inputs):
                continue
            read = access_map(scop, reader, access).intersect_params(context_of(scop))
            lost = read.subtract_range(there)
            if not lost.is_empty():
                sizes, point, cell = _split_point(lost)
                at = Instance(reader.name, dict(zip(reader.iters, point, strict=True)), {})
                params = dict(zip(scop.params, sizes, strict=True))
                kind: Fault = "beyond" if access.tensor in scop.inputs else "uninitialised"
                return Violation(kind, None, params, at, at, (access.tensor, cell), None)
            note("defined", f"{access.tensor} in {reader.name}", each, read.range(), there)
        return None

    def _there(self, tensor: str) -> isl.Set | None:
        """Return the elements that some statement defines or an input has, or None for a tensor of which nothing is known."""
        if tensor not in self.written:
            scop = self.schedule.scop
            writers = [s for s in scop.statements if s.write.tensor == tensor and s.role != "update"]
            ranges = [access_map(scop, s, s.write).range() for s in writers]
            shape = next((t.shape for t in scop.tensors if t.name == tensor and tensor in scop.inputs), None)
            box = None if shape is None else elements(scop, shape)
            self.written[tensor] = reduce(isl.Set.union, ranges).coalesce() if ranges else box
        return self.written[tensor]

    def _order_fault(self, index: int, dep: Dep) -> Violation | None:
        repeated = self.repeats[dep.source] is not None
        targets = self.nests(dep.target)
        if repeated or not self.complete(dep.tensor):
            for target in targets:
                found = self._unserved(dep, target.placement, earlier_only=repeated)
                if found is not None:
                    return found
        if repeated:
            return None
        for source in self.nests(dep.source):
            for target in targets:
                late = self.late(index, dep, source.placement, target.placement)
                if late is not None:
                    pairs, level = late
                    return self._pair("order", dep, source.placement, target.placement, pairs, self._loop_name(source.placement, level))
                note("order", f"{dep.source} -> {dep.target}", self._shown, index, dep, source.placement, target.placement)
        return None

    def late(self, index: int, dep: Dep, source: str, target: str) -> tuple[isl.Map, int | None] | None:
        """Return the pairs that run target first at the outermost level that has any, and that level (None: by textual order)."""
        pairs = self.placed(index, dep, source, target)
        for level in range(self.schedule.shared(source, target)):
            if pairs.is_empty():
                return None
            backwards = pairs.order_gt(DT.in_, level, DT.out, level)
            if not backwards.is_empty():
                return backwards, level
            pairs = pairs.equate(DT.in_, level, DT.out, level)
        if pairs.is_empty() or self.schedule.before(source, target):
            return None
        return pairs, None

    def placed(self, index: int, dep: Dep, source: str, target: str) -> isl.Map:
        key = (index, source, target)
        if key not in self.pairs:
            nests = self.schedule.nests
            pairs = dep.relation.preimage_domain_multi_aff(nests[source].back).preimage_range_multi_aff(nests[target].back)
            pairs = pairs.intersect_domain(self.points[source]).intersect_range(self.points[target])
            self.pairs[key] = self._same_storage(pairs, source, target, self.depth(dep.tensor))
        return self.pairs[key]

    def _shown(self, index: int, dep: Dep, source: str, target: str) -> list[isl.Map]:
        return [self.placed(index, dep, source, target)]

    def _same_storage(self, pairs: isl.Map, first: str, second: str, depth: int) -> isl.Map:
        if self.schedule.shared(first, second) < depth:
            return isl.Map.empty(pairs.get_space())
        for level in range(depth):
            pairs = pairs.equate(DT.in_, level, DT.out, level)
        return pairs

    def _unserved(self, dep: Dep, target: str, *, earlier_only: bool) -> Violation | None:
        """Return a consumer whose producer does not run within the same copy of the tensor (and before it, if asked)."""
        nest = self.schedule.nests[target]
        needs = dep.relation.reverse().preimage_domain_multi_aff(nest.back).intersect_domain(self.points[target])
        served = isl.Map.empty(needs.get_space())
        for source in (n.placement for n in self.nests(dep.source)):
            served = served.union(self._available(source, target, self.depth(dep.tensor), earlier_only).apply_range(self.back[source]))
        left = needs.subtract(served)
        if left.is_empty():
            return None
        sizes, at, needed = _split_point(left)
        params = dict(zip(nest.params, sizes, strict=True))
        statement = self.schedule.statements[dep.source]
        source_at = Instance(dep.source, dict(zip(statement.iters, needed, strict=True)), {})
        target_at = self._instance(target, params, at)
        return Violation("missing", dep, params, source_at, target_at, self._cell(dep.tensor, source_at, params), None)

    def _available(self, source: str, target: str, depth: int, earlier_only: bool) -> isl.Map:
        """Return `{ target point -> source point : same copy of the tensor, and source earlier if asked }`."""
        space = self.points[target].get_space().map_from_domain_and_range(self.points[source].get_space())
        same = isl.Map.universe(space).intersect_range(self.points[source])
        shared = self.schedule.shared(source, target)
        if shared < depth:
            return isl.Map.empty(space)
        for level in range(depth):
            same = same.equate(DT.in_, level, DT.out, level)
        if not earlier_only:
            return same
        result = isl.Map.empty(space)
        for level in range(depth, shared):
            result = result.union(same.order_gt(DT.in_, level, DT.out, level))
            same = same.equate(DT.in_, level, DT.out, level)
        return result.union(same) if self.schedule.before(source, target) else result

    def mark_fault(self, node: Loop, depth: int, mark: Mark) -> Violation | None:
        """Return two iterations of the loop that may not run at once under `mark`, or None."""
        under = set(placements_in(node))
        kind: Fault = "lane" if mark == "vector" else "race"
        for index, dep in enumerate(self.deps):
            if self.depth(dep.tensor) > depth:
                continue
            if mark in COMBINING and dep.kind == "RED" and not dep.hard:
                shared = self._shared_by_some(index, dep, under, depth) if mark == "vector" else None
                if shared is not None:
                    return self._pair(kind, dep, *shared, node.name)
                continue
            for source in (n.placement for n in self.nests(dep.source) if n.placement in under):
                for target in (n.placement for n in self.nests(dep.target) if n.placement in under):
                    apart = _apart(self.placed(index, dep, source, target), depth)
                    if apart is not None:
                        return self._pair(kind, dep, source, target, apart, node.name)
                    note(
                        "lane" if mark == "vector" else "race",
                        f"{dep.source} -> {dep.target}, {node.name}",
                        self._shown,
                        index,
                        dep,
                        source,
                        target,
                    )
        return self._rewrites(node, depth, under, kind)

    def _shared_by_some(self, index: int, dep: Dep, under: set[str], depth: int) -> tuple[str, str, isl.Map] | None:
        """Return two lanes that combine into one cell while a third, which goes with them, has another, or None: lanes combine all into one
        cell, or each into its own."""
        write = self.schedule.statements[dep.source].write
        for nest in (n for n in self.nests(dep.source) if dep.source == dep.target and n.placement in under):
            if _is_alike_in_all(write, nest, nest.loops[depth]):
                continue
            placement, points = nest.placement, self.points[nest.placement]
            lanes = isl.Map.universe(points.get_space().map_from_set()).intersect_domain(points).intersect_range(points)
            for level in range(points.dim(DT.set)):
                lanes = lanes.equate(DT.in_, level, DT.out, level) if level != depth else lanes
            one_cell = self.placed(index, dep, placement, placement).intersect(lanes)
            alone = lanes.subtract(one_cell).subtract(one_cell.reverse()).subtract(lanes.intersect(isl.Map.identity(lanes.get_space())))
            shared = one_cell.subtract(isl.Map.identity(lanes.get_space())).intersect_domain(alone.domain())
            if not shared.is_empty():
                return placement, placement, shared
        return None

    def _rewrites(self, node: Loop, depth: int, under: set[str], kind: Fault) -> Violation | None:
        """Return two iterations that both compute one instance into one shared buffer, or None."""
        for name, statement in self.schedule.statements.items():
            if self.repeats[name] is None or self.depth(statement.write.tensor) > depth:
                continue
            names = [n.placement for n in self.nests(name) if n.placement in under]
            for first in names:
                for second in names:
                    twice = self.back[first].apply_range(self.back[second].reverse())
                    apart = _apart(self._same_storage(twice, first, second, self.depth(statement.write.tensor)), depth)
                    if apart is not None:
                        return self._pair(kind, None, first, second, apart, node.name)
        return None

    def _loop_name(self, placement: str, level: int | None) -> str | None:
        return None if level is None else self.schedule.nests[placement].loops[level]

    def _single(self, kind: Fault, statement: str, instances: isl.Set) -> Violation:
        sizes, point = smallest_point(instances)
        params = dict(zip(self.schedule.scop.params, sizes, strict=True))
        at = Instance(statement, dict(zip(self.schedule.statements[statement].iters, point, strict=True)), {})
        return Violation(kind, None, params, at, at, self._cell(self.schedule.statements[statement].write.tensor, at, params), None)

    def _pair(self, kind: Fault, dep: Dep | None, source: str, target: str, pairs: isl.Map, loop: str | None) -> Violation:
        sizes, first, second = _split_point(pairs)
        params = dict(zip(self.schedule.scop.params, sizes, strict=True))
        source_at, target_at = self._instance(source, params, first), self._instance(target, params, second)
        tensor = dep.tensor if dep is not None else self.schedule.statements[source_at.statement].write.tensor
        return Violation(kind, dep, params, source_at, target_at, self._cell(tensor, source_at, params), loop)

    def _instance(self, placement: str, params: Mapping[str, int], point: Sequence[int]) -> Instance:
        nest = self.schedule.nests[placement]
        loops = dict(zip(nest.loops, point, strict=True))
        iters = {name: evaluate(expr, {**params, **loops}) for name, expr in nest.iter_exprs().items()}
        return Instance(nest.statement, iters, loops)

    def _cell(self, tensor: str, at: Instance, params: Mapping[str, int]) -> tuple[str, tuple[int | None, ...]]:
        write: Access = self.schedule.statements[at.statement].write
        values = {**params, **at.iters}
        return tensor, tuple(None if isinstance(e, Within) else evaluate(e, values) for e in write.index)


def _is_alike_in_all(write: Access, nest: Nest, lane: str) -> bool:
    """Tell whether it is plain that lanes write one cell, or each its own: no index has the lane, or one goes up or down with it."""
    exprs = nest.iter_exprs()
    index = [affine.substitute(e, exprs) for e in write.index if not isinstance(e, Within)]
    moving = [affine.linear(e).terms for e in index if lane in affine.name_set(e)]
    return not moving or any([term for term, _ in terms if lane in affine.name_set(term)] == [Name(lane)] for terms in moving)


def _in_words(statement: Statement, *instances: isl.Set) -> list[isl.Set]:
    return [named(points.coalesce(), statement.iters) for points in instances]


def _apart(pairs: isl.Map, depth: int) -> isl.Map | None:
    """Return the pairs that agree outside loop `depth` and differ in it, or None."""
    for level in range(depth):
        pairs = pairs.equate(DT.in_, level, DT.out, level)
    if pairs.is_empty():
        return None
    for order in (isl.Map.order_lt, isl.Map.order_gt):
        apart = order(pairs, DT.in_, depth, DT.out, depth)
        if not apart.is_empty():
            return apart
    return None


def _split_point(pairs: isl.Map) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return sizes, source point, and target point of the smallest pair."""
    sizes, both = smallest_point(pairs.wrap().flatten())
    n = pairs.dim(DT.in_)
    return sizes, both[:n], both[n:]


def distances(schedule: Schedule, deps: Sequence[Dep], loops: Sequence[str]) -> list[tuple[Dep, tuple[tuple[int | None, int | None], ...]]]:
    """Return for each dependence the least and greatest distance along each of the shared outermost `loops`; None is unbounded."""
    checker = Checker(schedule, tuple(deps), {})
    result = []
    for index, dep in enumerate(checker.deps):
        for source in checker.nests(dep.source):
            for target in checker.nests(dep.target):
                if schedule.shared(source.placement, target.placement) < len(loops):
                    continue
                pairs = checker.placed(index, dep, source.placement, target.placement)
                if not pairs.is_empty():
                    result.append((dep, tuple(distance(pairs, level) for level in range(len(loops)))))
    return result


def distance(pairs: isl.Map, level: int) -> tuple[int | None, int | None]:
    """Return the least and greatest difference of target and source along one dimension; None is unbounded."""

    def keep(dim: DT) -> isl.Map:
        nonlocal pairs
        n = pairs.dim(dim)
        return pairs.project_out(dim, level + 1, n - level - 1).project_out(dim, 0, level)

    pairs = keep(DT.in_)
    pairs = keep(DT.out)
    deltas = pairs.deltas()
    low, high = deltas.dim_min_val(0), deltas.dim_max_val(0)
    return (integer(low) if low.is_int() else None, integer(high) if high.is_int() else None)
