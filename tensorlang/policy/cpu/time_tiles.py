"""Time tiles: several steps of a stencil for some of its rows, before the next rows, where no near cache holds a step.

    u[t, i, j] = f(u[t - 1, i - 1 .. i + 1, …])        skew u.i by u.t
                                                       tile u (t, i) by (8, 32) -> t_b, i_b, t_s, i_s

Each element of a step then comes from far once for several steps. A tile needs what the tile before it along either loop has computed,
so on several threads tiles of one diagonal run at the same time:

    skew u.i_b by u.t_b;  order u.i_b, u.t_b, …;  parallel u.t_b

Fields that take turns run row by row in one loop, each so many rows behind the others that what it needs of this step is there:

    e[t + 1, i] = f(h[t, i], h[t, i - 1])              shift h.i by 1;  together e, h -> i
    h[t + 1, i] = g(e[t + 1, i], e[t + 1, i + 1])      skew e.i by e.t;  tile e (t, i) by …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from polyhedral.directions import Distances
from tensorlang.policy.deriver import Deriver, bytes_of
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import extents
from tensorlang.tensor.nodes import Definition

STEPS = (8, 4)
"""How many steps a tile may take."""
ROWS = (64, 32, 16, 8)
"""And of how many rows, where the second-level cache holds them."""
FAR_ROWS = (8, 4)
"""And of how many where only a share of the last cache holds them: planes of a field in three dimensions are large."""
KEPT_STEPS = 2
"""Steps that are kept at the same time, as a rule."""
NEAR_STEPS = 2
"""How many times as much as the second-level cache a step may be that runs as a whole."""
CACHE_SHARE = 0.5
"""Of the last cache that the tiles of all threads may fill together."""


@dataclass(frozen=True, slots=True)
class TimeTile:
    """So many `steps` along the axis `time` of so many rows along `space`, which is skewed by `factor * time`."""

    time: str
    space: str
    factor: int
    steps: int
    rows: int
    offsets: tuple[int, ...] = (0,)
    """How many rows each of the fields runs behind."""

    @property
    def loops(self) -> tuple[str, str, str, str]:
        """The loops over tiles and those inside one, along time and space."""
        return f"{self.time}_b", f"{self.space}_b", f"{self.time}_s", f"{self.space}_s"


def best_time_tile(d: Deriver, definition: Definition, order: Sequence[str], distances: Distances) -> TimeTile | None:
    """Return the largest tile that the second-level cache holds, or a small one that the last cache holds, where steps along the first axis
    in `order` are much larger than the former; None where steps are few, or smaller."""
    name = definition.tensors[0].name
    time, space, *_ = order
    if len(order) < 3 or not _is_large(d, [definition], time, [space]):
        return None
    factor = distances.permutable_skew(full(name, space), full(name, time))
    return None if factor is None else _largest(d, [definition], TimeTile(time, space, factor, 0, 0), [space])


def best_shared_tile(d: Deriver, group: Sequence[Definition], time: str, spaces: Sequence[str], distances: Distances) -> TimeTile | None:
    """Return the tile of steps of fields that take turns, or None as `best_time_tile` does. `time`: the axis of their loop over steps;
    `spaces`: their axes of rows; `distances`: along the loops over steps and rows, each field a part."""
    if not _is_large(d, group, time, spaces):
        return None
    name = group[0].tensors[0].name
    found = distances.permutable_offsets(full(name, spaces[0]), full(name, time))
    if found is None:
        return None
    offsets = tuple(found[1].get(k, 0) for k in range(len(group)))
    return _largest(d, group, TimeTile(time, spaces[0], found[0], 0, 0, offsets), spaces)


def best_row_offsets(
    d: Deriver, group: Sequence[Definition], step: str, time: str, spaces: Sequence[str], distances: Distances
) -> tuple[int, ...] | None:
    """Return how many rows each of several fields runs behind where one thread computes them row by row, step by step; None where several
    threads share the rows of a step, a near cache holds it, or not the rows that lie between. `step`: the loop over steps; others as
    `best_shared_tile` has them."""
    if d.machine.threads > 1 or not _is_large(d, group, time, spaces):
        return None
    found, row = distances.offsets(full(group[0].tensors[0].name, spaces[0]), (step,)), _row_bytes(group, time, spaces) or 0
    if found is None or (max(found.values()) + 1) * row > CACHE_SHARE * d.machine.cache_bytes:
        return None
    return tuple(found.get(k, 0) for k in range(len(group)))


def _row_bytes(group: Sequence[Definition], time: str, spaces: Sequence[str]) -> int | None:
    """Return the bytes of a row of all fields; None where their sizes are not known."""
    total = 0
    for definition, space in zip(group, spaces, strict=True):
        sizes = extents(definition)
        others = [sizes[a] for a in definition.axes if a not in (time, space)]
        if not all(sizes[a] for a in definition.axes):
            return None
        total += KEPT_STEPS * prod(e or 0 for e in others) * definition.tensors[0].dtype.size_bytes
    return total


def may_be_large(d: Deriver, group: Sequence[Definition]) -> bool:
    """Tell whether all steps together are so much that one of them may be more than the second-level cache holds."""
    return KEPT_STEPS * bytes_of(d, [x.tensors[0].name for x in group]) > _near_bytes(d)


def _is_large(d: Deriver, group: Sequence[Definition], time: str, spaces: Sequence[str]) -> bool:
    """Tell whether a step is much more than the second-level cache holds."""
    row = _row_bytes(group, time, spaces)
    return row is not None and row * max(extents(x)[space] or 0 for x, space in zip(group, spaces, strict=True)) > _near_bytes(d)


def _near_bytes(d: Deriver) -> int:
    """Return how much a step may be that runs as a whole."""
    return min(NEAR_STEPS * d.machine.l2_bytes, d.machine.cache_bytes)


def _largest(d: Deriver, group: Sequence[Definition], tile: TimeTile, spaces: Sequence[str]) -> TimeTile | None:
    row, count = _row_bytes(group, tile.time, spaces) or 0, extents(group[0])[tile.time] or 0
    near, far = d.machine.l2_bytes, CACHE_SHARE * d.machine.cache_bytes / d.machine.threads
    for room, counts in ((near, ROWS), (far, FAR_ROWS)):
        for steps in _steps(count, d.machine.threads):
            for rows in (r for r in counts if (r + tile.factor * steps + max(tile.offsets)) * row <= room):
                return replace(tile, steps=steps, rows=rows)
    return None


def _steps(count: int, threads: int) -> list[int]:
    """Return how many of `count` steps a tile may take: of one thread so many that tiles are as long as each other, or nearly so; several
    share no fewer than two of them."""
    if threads > 1:
        return [s for s in STEPS if 2 * s <= count]
    return [s for s in dict.fromkeys(ceil(count / ceil(count / most)) for most in STEPS) if s > 1]


def add_time_tile(d: Deriver, definition: Definition, found: TimeTile) -> list[str]:
    """Add the directives for the loops of a tile; return them, outermost first, without those of other axes."""
    name = definition.tensors[0].name
    time, space, step, row = found.loops
    if found.factor:
        d.add(d.schedule.skew(full(name, found.space), full(name, found.time), found.factor))
    d.add(d.schedule.tile(name, (found.time, found.space), (found.steps, found.rows), found.loops))
    if d.machine.threads == 1:
        return [time, space, step, row]
    d.add(d.schedule.skew(full(name, space), full(name, time)))
    d.add(d.schedule.parallel(full(name, time)))
    return [space, time, step, row]
