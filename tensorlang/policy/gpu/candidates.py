"""Candidates for a product on a graphics processor: a form of it, who multiplies, tiles, stages, and what all that costs.

Each generator yields those of one level, of every form that it serves, and knows of no other; `choice` takes the one of least cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from codegen.gpu.matrix import Instruction
from tensorlang.policy.gpu.cost import Cost
from tensorlang.policy.gpu.forms import Form


class Level(Enum):
    """Who multiplies: threads, each for itself; warps, by instructions for matrices; four warps together, from shared memory."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"


@dataclass(frozen=True, slots=True)
class AxisTile:
    """The tile of a block along one axis: `warps` of `lanes`, each of which has `times` groups of `each` neighbours. Where warps multiply
    matrices, these are what lanes are to threads: `times` matrices that are `each` wide."""

    warps: int = 1
    lanes: int = 1
    times: int = 1
    each: int = 1

    @property
    def per_lane(self) -> int:
        """Return how much a lane has, or, where there is but one, a warp."""
        return self.times * self.each

    @property
    def tile(self) -> int:
        return self.warps * self.lanes * self.per_lane


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes: rows by columns; of windows, along so many lines."""

    rows: AxisTile
    columns: AxisTile
    lines: AxisTile = AxisTile()

    @property
    def warps(self) -> int:
        return self.rows.warps * self.columns.warps * self.lines.warps

    @property
    def size(self) -> int:
        """Return how many sums it has."""
        return self.rows.tile * self.columns.tile * self.lines.tile

    def blocks(self, form: Form, parts: int) -> int:
        """Return how many blocks there are, where every sum is cut into `parts`."""
        sides = ((form.rows, self.rows), (form.columns, self.columns), (form.lines, self.lines))
        count = parts * form.grid
        for extent, side in sides:
            count *= -(-extent // side.tile)
        return count


@dataclass(frozen=True, slots=True)
class Candidate:
    """`depth` of the longest reduction are copied at a time, in rows of `row_bytes` where they lie along it, and `stages` of such stretches
    are copied or on their way."""

    form: Form
    level: Level
    tile: Tile
    depth: int
    stages: int
    cost: Cost
    instruction: Instruction | None = None
    row_bytes: int = 0
    panel: int = 0
    """Columns of a panel, where four warps multiply columns that lie across the sum."""

    @property
    def cycles(self) -> float:
        return self.cost.cycles
