"""What a picture shows: the instances of a tensor's clauses at given sizes, in the order of a plan, and which of them need each other.

The order is that of the plan, whether it is legal or not: a dependence whose reader runs first is `broken`, and so is one between lanes
of a vector or between threads. Everything is enumerated, so pictures are of small sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from polyhedral import affine
from polyhedral.expr import Expr, Name
from polyhedral.legality import Violation
from polyhedral.model import AT_ONCE, COMBINING, Statement
from polyhedral.order import Instance
from polyhedral.watch import element_of, first_iters, has_more, instances_of
from tensorlang.diagnostics import error
from tensorlang.schedule.plan import Plan
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import components, is_recurrence

MOST = 1024
"""Instances of a picture."""


@dataclass(frozen=True, slots=True)
class Point:
    """An instance. `place`: its values of the two axes that are drawn; `tile`, `thread`, `lane`: the values of the loops that say which it
    belongs to, () where there are none. Points are in the order in which they run."""

    place: tuple[int, int]
    tile: tuple[int, ...]
    thread: tuple[int, ...]
    lane: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrow:
    """The point `source` computes what the point `target` reads, both by their numbers."""

    source: int
    target: int
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Space:
    """The drawn instances of `tensor` over `axes` (rows, columns), of `loops` with their marks, outermost first."""

    tensor: str
    axes: tuple[str, str]
    points: tuple[Point, ...]
    arrows: tuple[Arrow, ...]
    loops: tuple[tuple[str, str], ...]
    fixed: Mapping[str, int]
    """Other axes → the value that is drawn."""
    witness: tuple[tuple[int, int] | None, ...] = ()
    """Where the two instances are that refute the order, which should run first and then; None for one that has not the axes drawn."""


def space(
    plan: Plan, sizes: Mapping[str, int], tensor: str | None = None, axes: Sequence[str] = (), witness: Violation | None = None
) -> Space:
    """Return what there is to draw of a tensor's computation, over two of its axes and reduction indices. Unless told, that is a recurrence
    where there is one, of several the first one of most axes, since its instances need each other, and else the first result. With a
    `witness`, at whose sizes the plan is drawn, what is not told is chosen so that its two instances are in the picture.

    Raises CompileError C0241 for a tensor, axes or sizes that cannot be drawn."""
    if witness is not None and tensor is None and (refuted := plan.stages.statements.get(witness.target.statement)) is not None:
        tensor = refuted.definition.tensors[0].name
    tensor = tensor or _told_about(plan.program)
    statements = _statements(plan, tensor)
    iters = max((s.iters for s in statements), key=len)
    rows, columns = _axes(iters, axes or _apart(iters, witness), tensor)
    names = {s.name for s in statements}
    placements = [name for name, nest in plan.placed.nests.items() if nest.statement in names and {rows, columns} - {""} <= {*nest.iters}]
    least = [f for name in placements if (f := first_iters(plan.placed, name, sizes)) is not None]
    if not least:
        raise error("C0241", "there is nothing to draw", notes=("no instance runs at these sizes",), help="give larger sizes")
    seen = witness.target.iters if witness is not None and witness.target.statement in names else min(least, key=lambda f: [*f.values()])
    every = dict.fromkeys(n for s in sorted(statements, key=lambda s: s.iters != iters) for n in s.iters)
    fixed = {n: next((f[n] for f in (seen, *least) if n in f), 0) for n in every if n not in (rows, columns)}
    countless = any(has_more(MOST, plan.placed, name, sizes, fixed) for name in placements)
    drawn = [f for name in placements for f in _run(plan, name, sizes, fixed)] if not countless else []
    if countless or len(drawn) > MOST:
        raise error("C0241", f"more than {MOST} instances are too many to draw", help="give smaller sizes")
    if not drawn:
        raise error("C0241", "there is nothing to draw", notes=("no instance runs at these sizes",), help="give larger sizes")
    drawn.sort(key=lambda f: f.time)
    points = tuple(_point(f, rows, columns) for f in drawn)
    place = plan.placed.places[drawn[-1].placement]
    loops = tuple((loop.name, loop.mark) for loop in place.loops)
    marked = () if witness is None else tuple(_place(i, rows, columns) for i in (witness.source, witness.target))
    return Space(tensor, (rows, columns), points, tuple(_arrows(plan, drawn, sizes)), loops, fixed, marked)


def _told_about(program: Program) -> str:
    """Return the tensor whose computation is drawn unless another is asked for."""
    recurrences = [x for group in components(program) if is_recurrence(group) for x in group]
    deepest = max(recurrences, key=lambda x: len(x.axes), default=None)
    return program.results[0] if deepest is None else deepest.tensors[0].name


def _apart(iters: Sequence[str], witness: Violation | None) -> list[str]:
    """Return two axes along which the instances of a witness differ, completed by others; none where they differ along none."""
    if witness is None:
        return []
    source, target = witness.source.iters, witness.target.iters
    differing = [n for n in iters if n in source and n in target and source[n] != target[n]]
    chosen = {*[*differing, *(n for n in iters if n not in differing)][:2]}
    return [n for n in iters if n in chosen] if differing else []


def _place(instance: Instance, rows: str, columns: str) -> tuple[int, int] | None:
    """Return where an instance is drawn, None for one of a statement without the axes."""
    at = instance.iters
    return (at.get(rows, 0), at[columns]) if {rows, columns} - {""} <= at.keys() and columns else None


def _statements(plan: Plan, tensor: str) -> list[Statement]:
    """Return the statements that compute a tensor's terms, where it is a reduction, or else its elements."""
    names = {tensor, *(t for t in _accumulators(plan, tensor))}
    writing = [s for s in plan.placed.scop.statements if s.write.tensor in names]
    updates = [s for s in writing if s.role == "update"]
    if not writing:
        known = sorted({s.write.tensor.split(".")[0] for s in plan.placed.scop.statements})
        raise error("C0241", f"no loops compute `{tensor}`", help=f"there are {', '.join(f'`{k}`' for k in known)}")
    return updates or [s for s in writing if s.role == "define"]


def _accumulators(plan: Plan, tensor: str) -> Iterator[str]:
    for statement in plan.placed.scop.statements:
        if statement.role == "update" and statement.name.startswith(f"{tensor}."):
            yield statement.write.tensor


def _axes(iters: tuple[str, ...], asked: Sequence[str], tensor: str) -> tuple[str, str]:
    """Return the axes of the rows and of the columns; "" where there is one alone."""
    if not asked:
        return (iters[0], iters[1]) if len(iters) > 1 else ("", iters[0]) if iters else ("", "")
    unknown = [a for a in asked if a not in iters]
    if unknown or len(asked) > 2 or len(set(asked)) < len(asked):
        what = f"`{unknown[0]}` is no axis of `{tensor}`" if unknown else "a picture has one axis, or two different ones"
        raise error("C0241", what, help=f"the axes are {', '.join(iters) or 'none'}")
    return (asked[0], asked[1]) if len(asked) == 2 else ("", asked[0])


@dataclass(frozen=True, slots=True)
class _Run:
    placement: str
    time: tuple[int, ...]
    instance: Instance
    marks: Mapping[str, str]
    tiles: frozenset[str]


def _run(plan: Plan, placement: str, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> Iterator[_Run]:
    nest, place = plan.placed.nests[placement], plan.placed.places[placement]
    marks = {loop.name: loop.mark for loop in place.loops}
    tiles = frozenset(_tile_loops(nest.iter_exprs().values(), nest.loops))
    for (time, _, _), instance in instances_of(plan.placed, placement, sizes, fixed):
        yield _Run(placement, time, instance, marks, tiles)


def _tile_loops(exprs: Iterable[Expr], loops: Sequence[str]) -> Iterator[str]:
    """Yield the loops over tiles: a step of one of them moves an iterator by more than one."""
    for expr in exprs:
        for term, factor in affine.linear(expr).terms:
            if isinstance(term, Name) and term.name in loops and abs(factor) > 1:
                yield term.name


def _point(found: _Run, rows: str, columns: str) -> Point:
    at, loops = found.instance.iters, found.instance.loops
    tile = tuple(v for n, v in loops.items() if n in found.tiles)
    thread = tuple(v for n, v in loops.items() if found.marks[n] in AT_ONCE)
    lane = tuple(v for n, v in loops.items() if found.marks[n] != "vector") if "vector" in found.marks.values() else ()
    return Point((at.get(rows, 0), at.get(columns, 0)), tile, thread, lane)


def _arrows(plan: Plan, drawn: Sequence[_Run], sizes: Mapping[str, int]) -> Iterator[Arrow]:
    """Yield the dependences between what is drawn: who computes an element, and who reads it."""
    written: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    statements = plan.placed.statements
    for number, run in enumerate(drawn):
        write = statements[run.instance.statement].write
        element = element_of(write, {**sizes, **run.instance.iters})
        if element is not None:
            written.setdefault((write.tensor, element), []).append(number)
    for number, run in enumerate(drawn):
        statement = statements[run.instance.statement]
        for access in statement.reads:
            element = element_of(access, {**sizes, **run.instance.iters})
            for source in written.get((access.tensor, element), ()) if element is not None else ():
                if source != number:
                    yield Arrow(source, number, _is_broken(drawn[source], run))


def _is_broken(source: _Run, target: _Run) -> bool:
    """Tell whether what is read may not be there yet: what first tells the two apart is a loop whose iterations run at once, or the reader
    comes first. Lanes, and threads of a block, go from statement to statement together: there the order of the statements is enough."""
    marks = list(source.marks.values())
    position = next(k for k, (a, b) in enumerate(zip(source.time, target.time, strict=False)) if a != b)
    mark = marks[position // 2] if position % 2 else "serial"
    if mark not in AT_ONCE and mark != "vector":
        return source.time > target.time
    return mark not in COMBINING or source.time[position + 1 :: 2] >= target.time[position + 1 :: 2]
