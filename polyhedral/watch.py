"""Run a schedule at given sizes, one instance after the other, and watch which element each cell holds.

The values are of no matter: what a read finds in the cell of its element is that element, or another one that has been put there since.
Iterations of parallel and vector loops are run forwards, backwards, and side by side, statement by statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from polyhedral.affine import evaluate, holds
from polyhedral.model import AT_ONCE, Access, Within
from polyhedral.nest import Nest
from polyhedral.order import Instance
from polyhedral.schedule import Schedule
from polyhedral.space import DT, integer, smallest_point, val
from polyhedral.storage import Cells, Storage

MOST = 20_000
"""Instances to run; more are not watched."""


@dataclass(frozen=True, slots=True)
class Found:
    """What `reader` finds where it reads the element `expected` of `tensor`: another one."""

    reader: Instance
    tensor: str
    expected: tuple[int, ...]
    instead: tuple[int, ...]


def watch(
    schedule: Schedule, cells: Mapping[str, Cells], *, axes: Mapping[str, Sequence[str]], storage: Storage, sizes: Mapping[str, int]
) -> Found | None:
    """Return the first read that does not find its element, or None. `cells`, `axes` and `storage` as for `polyhedral.storage.validate`."""
    instances = [i for name in schedule.places for i in instances_of(schedule, name, sizes)]
    if len(instances) > MOST:
        return None
    for order in range(3):
        held: dict[tuple[object, ...], tuple[int, ...]] = {}
        for _, instance in sorted(instances, key=lambda found: found[0][order]):
            statement = schedule.statements[instance.statement]
            for access in (*statement.reads, statement.write):
                if access.tensor not in cells:
                    continue
                element = element_of(access, {**sizes, **instance.iters})
                if element is None:
                    continue
                owners = tuple(instance.loops.values())[: storage.get(access.tensor, 0)]
                place = (access.tensor, *owners, _cell(cells[access.tensor], axes[access.tensor], element, sizes))
                if access is not statement.write and held.get(place, element) != element:
                    return Found(instance, access.tensor, element, held[place])
                if access is statement.write:
                    held[place] = element
    return None


def instances_of(
    schedule: Schedule, placement: str, sizes: Mapping[str, int], fixed: Mapping[str, int] | None = None
) -> Iterator[tuple[tuple[tuple[int, ...], ...], Instance]]:
    """Yield the instances of a placement at these sizes, each with the keys of three orders: as written, with the iterations of loops that
    run at once backwards, and with these side by side. `fixed`: iterators that are to have a value, of instances that have them."""
    nest, place = schedule.nests[placement], schedule.places[placement]
    points = _points(nest, sizes, fixed)
    found: list[tuple[int, ...]] = []

    def add(point: isl.Point) -> None:
        found.append(tuple(integer(point.get_coordinate_val(DT.set, k)) for k in range(len(nest.loops))))

    points.foreach_point(add)
    exprs = nest.iter_exprs()
    together = [loop.mark in AT_ONCE or loop.mark == "vector" for loop in place.loops]
    for point in found:
        loops = dict(zip(nest.loops, point, strict=True))
        iters = {name: evaluate(e, {**sizes, **loops}) for name, e in exprs.items()}
        backwards = [-x if free else x for x, free in zip(point, together, strict=True)]
        apart = [0 if free else x for x, free in zip(point, together, strict=True)]
        keys = (_time(place.path, point), _time(place.path, backwards), (*_time(place.path, apart), *point))
        yield keys, Instance(nest.statement, iters, loops)


def has_more(most: int, schedule: Schedule, placement: str, sizes: Mapping[str, int], fixed: Mapping[str, int] | None = None) -> bool:
    """Tell whether a placement has more than `most` instances at these sizes, however many there are: loop by loop, from the outermost."""
    points = _points(schedule.nests[placement], sizes, fixed)
    depths = range(1, len(schedule.nests[placement].loops) + 1)
    outer = (points.project_out(DT.set, k, len(depths) - k) for k in depths)
    return any(integer(part.count_val()) > most for part in outer)


def first_iters(schedule: Schedule, placement: str, sizes: Mapping[str, int]) -> dict[str, int] | None:
    """Return the iterators of the least instance of a placement at these sizes, in the order of its statement, None where none runs."""
    nest = schedule.nests[placement]
    instances = _points(nest, sizes).apply(isl.Map.from_multi_aff(nest.back))
    if instances.is_empty():
        return None
    _, first = smallest_point(instances)
    return dict(zip(nest.iters, first, strict=True))


def _points(nest: Nest, sizes: Mapping[str, int], fixed: Mapping[str, int] | None = None) -> isl.Set:
    """Return the points of a nest at these sizes, of instances whose iterators have the values that are `fixed`, where they have them."""
    points = nest.points.intersect_params(nest.context)
    for position, name in enumerate(nest.params):
        points = points.fix_val(DT.param, position, val(sizes[name]))
    back = isl.Map.from_multi_aff(nest.back)
    for name in [n for n in fixed or {} if n in nest.iters]:
        back = back.fix_val(DT.out, nest.iters.index(name), val((fixed or {})[name]))
    return points.intersect(back.domain())


def _time(path: Sequence[int], point: Sequence[int]) -> tuple[int, ...]:
    """Return position, loop, position, …: what comes first is less. No key begins another: their paths differ before."""
    return (path[0], *(x for pair in zip(point, path[1:], strict=True) for x in pair))


def element_of(access: Access, at: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return what is accessed, or None where it is not, or depends on data."""
    if not holds(access.when, at):
        return None
    exact = [e for e in access.index if not isinstance(e, Within)]
    return tuple(evaluate(e, at) for e in exact) if len(exact) == len(access.index) else None


def _cell(cells: Cells, axes: Sequence[str], element: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    at = {**sizes, **dict(zip(axes, element, strict=True))}
    values = [evaluate(e, at) for e in cells.exprs]
    return tuple(v if m is None else v % m for v, m in zip(values, cells.moduli, strict=True))
