"""Small scops for the tests, and what it means to run a schedule: enumeration, written for obviousness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import islpy as isl
import numpy as np

from polyhedral import loops
from polyhedral.affine import evaluate, holds
from polyhedral.expr import TRUE, Add, And, Compare, Cond, Expr, Int, Name, Or
from polyhedral.model import Access, Leaf, Loop, Mark, Scop, Statement, Tensor, Tree
from polyhedral.nest import Nest
from polyhedral.schedule import Schedule
from polyhedral.space import DT, integer

i, j, k, t, x, y = (Name(n) for n in "ijktxy")
H, K, M, N, T, W = (Name(n) for n in "HKMNTW")


def plus(e: Expr, c: int) -> Expr:
    return Add(e, Int(c))


def lt(a: Expr, b: Expr) -> Cond:
    return Compare("<", a, b)


def le(a: Expr, b: Expr) -> Cond:
    return Compare("<=", a, b)


def between(name: str, low: Expr, high: Expr) -> Cond:
    return And((le(low, Name(name)), lt(Name(name), high)))


def box(**extents: Expr) -> Cond:
    return And(tuple(c for n, e in extents.items() for c in (le(Int(0), Name(n)), lt(Name(n), e))))


MATMUL = Scop(
    ("M", "N", "K"),
    TRUE,
    (Tensor("A", (M, K)), Tensor("B", (K, N)), Tensor("C", (M, N))),
    frozenset({"A", "B"}),
    (
        Statement("C.init", ("i", "j"), box(i=M, j=N), Access("C", (i, j)), (), "init"),
        Statement("C", ("i", "j", "k"), box(i=M, j=N, k=K), Access("C", (i, j)), (Access("A", (i, k)), Access("B", (k, j))), "update"),
    ),
)

_INSIDE = And((lt(Int(0), t), le(t, T), lt(Int(0), i), lt(i, plus(N, -1))))
_EDGE = And((le(Int(0), t), le(t, T), box(i=N), Or((Compare("==", t, Int(0)), Compare("==", i, Int(0)), Compare("==", i, plus(N, -1))))))
HEAT = Scop(
    ("T", "N"),
    lt(Int(2), N),
    (Tensor("A", (plus(T, 1), N)),),
    frozenset(),
    (
        Statement("edge", ("t", "i"), _EDGE, Access("A", (t, i))),
        Statement("step", ("t", "i"), _INSIDE, Access("A", (t, i)), tuple(Access("A", (plus(t, -1), plus(i, d))) for d in (-1, 0, 1))),
    ),
)

BLUR = Scop(
    ("H", "W"),
    TRUE,
    (Tensor("in", (plus(H, 2), plus(W, 2))), Tensor("bx", (plus(H, 2), W)), Tensor("by", (H, W))),
    frozenset({"in"}),
    (
        Statement("bx", ("y", "x"), box(y=plus(H, 2), x=W), Access("bx", (y, x)), tuple(Access("in", (y, plus(x, d))) for d in range(3))),
        Statement("by", ("y", "x"), box(y=H, x=W), Access("by", (y, x)), tuple(Access("bx", (plus(y, d), x)) for d in range(3))),
    ),
)


def one(scop_params: tuple[str, ...], iters: tuple[str, ...], domain: Cond, context: Cond = TRUE) -> Scop:
    """Return a scop of one statement `S` that reads nothing."""
    tensor = Tensor("S", tuple(Int(1000) for _ in iters))
    return Scop(scop_params, context, (tensor,), frozenset(), (Statement("S", iters, domain, Access("S", tuple(Name(n) for n in iters))),))


def nest(scop: Scop, statement: str) -> Nest:
    return Nest.identity(scop, next(s for s in scop.statements if s.name == statement))


def under(names: Sequence[str], body: tuple[Tree, ...], marks: Mapping[str, Mark] | None = None) -> tuple[Tree, ...]:
    """Return `body` inside loops of these names, outermost first."""
    for name in reversed(names):
        body = (Loop(name, body, (marks or {}).get(name, "serial")),)
    return body


def alone(n: Nest, marks: Mapping[str, Mark] | None = None) -> tuple[Tree, ...]:
    return under(n.loops, (Leaf(n.placement),), marks)


def in_sequence(scop: Scop, *nests: Nest, marks: Mapping[str, Mark] | None = None) -> Schedule:
    """Return the schedule that runs each nest on its own, one after the other."""
    return Schedule(scop, {n.placement: n for n in nests}, tuple(node for n in nests for node in alone(n, marks)))


Event = tuple[str, tuple[int, ...]]


def instances(scop: Scop, statement: Statement, sizes: Mapping[str, int], reach: int = 40) -> list[tuple[int, ...]]:
    """Return the instances of a statement by trying every point of a large enough box, all at once."""
    sides = np.meshgrid(*[np.arange(-2, reach)] * len(statement.iters), indexing="ij")
    inside = holds(statement.domain, {**sizes, **dict(zip(statement.iters, sides, strict=True))})
    points = np.argwhere(np.broadcast_to(inside, sides[0].shape if sides else ())) - 2
    return [tuple(map(int, point)) for point in points]


def execute(nodes: Sequence[loops.Node], sizes: Mapping[str, int]) -> Iterator[tuple[str, dict[str, int]]]:
    """Return each execution in order: the placement and the values of the loops around it."""
    yield from _execute(nodes, dict(sizes), {})


def _execute(nodes: Sequence[loops.Node], values: dict[str, int], at: dict[str, int]) -> Iterator[tuple[str, dict[str, int]]]:
    for node in nodes:
        match node:
            case loops.Run(placement):
                yield placement, dict(at)
            case loops.For(name, lo, hi, _, _, body):
                for value in range(evaluate(lo, values), evaluate(hi, values)):
                    yield from _execute(body, {**values, name: value}, {**at, name: value})
            case loops.If(cond, body):
                if holds(cond, values):
                    yield from _execute(body, values, at)
            case _:
                assert_never(node)


def run(schedule: Schedule, program: Sequence[loops.Node], sizes: Mapping[str, int]) -> list[Event]:
    """Return the executed instances, in order."""
    events = []
    back = {name: list(n.iter_exprs().values()) for name, n in schedule.nests.items()}
    for placement, values in execute(program, sizes):
        at = {**sizes, **values}
        events.append((schedule.nests[placement].statement, tuple(evaluate(e, at) for e in back[placement])))
    return events


def executed(schedule: Schedule, program: Sequence[loops.Node], sizes: Mapping[str, int]) -> list[Event]:
    """Return (placement, loop values) in the order of execution."""
    return [(p, tuple(at[n] for n in schedule.nests[p].loops)) for p, at in execute(program, sizes)]


def timeline(schedule: Schedule, sizes: Mapping[str, int]) -> list[Event]:
    """Return (placement, loop values) in the order that the tree demands, by sorting every loop point of every nest by its time."""
    found = []
    for name, place in schedule.places.items():
        for point in points_of(schedule.nests[name], sizes):
            time = [v for pair in zip(place.path, (*point, 0), strict=True) for v in pair]
            found.append((time, name, point))
    return [(name, point) for _, name, point in sorted(found)]


def points_of(n: Nest, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the loop points of a nest at these sizes, as isl enumerates them."""
    points = n.points.intersect_params(n.context)
    for position, name in enumerate(n.params):
        points = points.fix_val(DT.param, position, isl.Val(sizes[name]))
    found: list[tuple[int, ...]] = []

    def keep(point: isl.Point) -> None:
        found.append(tuple(integer(point.get_coordinate_val(DT.set, d)) for d in range(len(n.loops))))

    points.project_out(DT.param, 0, len(n.params)).foreach_point(keep)
    return found


def slide(nest: Nest, loop: str) -> Nest:
    """Return the nest without the instances that an earlier iteration of `loop` has computed already, the loops outside it equal.
    Its tensor must then be stored outside `loop`."""
    position = nest._position(loop)
    back = isl.Map.from_multi_aff(nest.back)
    again = back.apply_range(back.reverse()).intersect_domain(nest.points).intersect_range(nest.points)
    for level in range(position):
        again = again.equate(DT.in_, level, DT.out, level)
    again = again.order_lt(DT.in_, position, DT.out, position)
    return replace(nest, points=nest.points.subtract(again.range()).coalesce())
