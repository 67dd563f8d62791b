"""Time tiles: several steps of a stencil for some of its rows, before the next rows, where no cache holds a step.

    u[t, i, j] = f(u[t - 1, i - 1 .. i + 1, …])        skew u.i by u.t
                                                       tile u (t, i) by (8, 32) -> t_b, i_b, t_s, i_s

Each element of a step then comes from memory once for several steps. A tile needs what the tile before it along either loop has computed,
so on several threads tiles of one diagonal run at the same time:

    skew u.i_b by u.t_b;  order u.i_b, u.t_b, …;  parallel u.t_b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from polyhedral.directions import Distances
from tensorlang.policy.deriver import Deriver
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import extents
from tensorlang.tensor.nodes import Definition

STEPS = (8, 4)
"""How many steps a tile may take."""
ROWS = (64, 32, 16, 8)
"""And of how many rows, where the second-level cache holds them; else it has the fewest of these."""
KEPT_STEPS = 2
"""Steps that are kept at the same time, as a rule."""
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

    @property
    def loops(self) -> tuple[str, str, str, str]:
        """The loops over tiles and those inside one, along time and space."""
        return f"{self.time}_b", f"{self.space}_b", f"{self.time}_s", f"{self.space}_s"


def best_time_tile(d: Deriver, definition: Definition, order: Sequence[str], distances: Distances) -> TimeTile | None:
    """Return the largest tile that the second-level cache holds, or a small one that the last cache holds, where steps along the first axis
    in `order` are larger than that; None where steps are few, or smaller."""
    sizes, name = {a: e or 0 for a, e in extents(definition).items()}, definition.tensors[0].name
    time, space, *others = order
    row = KEPT_STEPS * prod(sizes[a] for a in others) * definition.tensors[0].dtype.size_bytes
    if not others or not all(sizes.values()) or row * sizes[space] <= d.machine.cache_bytes:
        return None
    factor = distances.permutable_skew(full(name, space), full(name, time))
    if factor is None:
        return None
    near, far = d.machine.l2_bytes, CACHE_SHARE * d.machine.cache_bytes / d.machine.threads
    for room, counts in ((near, ROWS), (far, ROWS[-1:])):
        for steps in (s for s in STEPS if 2 * s <= sizes[time]):
            for rows in (r for r in counts if (r + factor * steps) * row <= room):
                return TimeTile(time, space, factor, steps, rows)
    return None


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
