"""What is analysed: statements over integer boxes and polyhedra, the tensor cells they read and write, and a schedule of them.

A scop is single-assignment: each cell of a tensor is written by one instance (`define`), or initialised by one instance (`init`) and
then combined into by any number of instances (`update`, a reduction). Readers of a reduced tensor come after all its updates.

    context    conditions on the parameters alone (sizes are >= 0 unless it says more)
    domain     { S[i] : ... }           instances of a statement
    access     { S[i] -> A[x] : when }  `index` entries that are `Within` depend on data: any coordinate in it may be touched

A schedule places statements in a tree of loops. One statement may be placed several times (index-set splitting); each placement owns a
nest: the loops around it, outermost first, the set of loop points it runs at, and the affine map from loops back to iterators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from polyhedral.expr import TRUE, Cond, Expr

Role: TypeAlias = Literal["define", "init", "update"]
Mark: TypeAlias = Literal[
    "serial", "parallel", "vector", "unroll", "tensor", "tile",
    "block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z", "thread",
    "warp", "warp.x", "warp.y", "warp.z", "lane", "lane.x", "lane.y", "lane.z", "warpgroup",
]  # fmt: skip
BLOCKS: frozenset[str] = frozenset(("block.x", "block.y", "block.z"))
THREADS: frozenset[str] = frozenset(
    ("warpgroup", *(f"{place}{digit}" for place in ("thread", "warp", "lane") for digit in ("", ".x", ".y", ".z")))
)
AT_ONCE: frozenset[str] = BLOCKS | THREADS | {"parallel"}
"""Marks whose iterations run at the same time, on threads of a processor or of a graphics processor."""
COMBINING: frozenset[str] = THREADS | {"vector"}
"""Marks whose iterations may combine into one cell, in any order."""


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """A coordinate that data decide: of its axis, and one of lo <= x < hi as far as these are known."""

    lo: Expr | None = None
    hi: Expr | None = None


ANYWHERE = Within()

Coordinate: TypeAlias = Expr | Within


@dataclass(frozen=True, slots=True)
class Access:
    tensor: str
    index: tuple[Coordinate, ...]
    when: Cond = TRUE
    """Condition over the statement's iterators under which the access happens."""

    @property
    def is_exact(self) -> bool:
        """Tell whether no coordinate depends on data."""
        return not any(isinstance(x, Within) for x in self.index)


@dataclass(frozen=True, slots=True)
class Statement:
    """`role` says how it writes. An `update` reads and writes its own cell through `write` alone (not listed in `reads`).
    `ordered`: updates of one cell must run in lexicographic order of `iters` (a reducer that is not commutative, or `strict`).
    `copied`: those of `reads` whose element is, where they happen, the very value that is written.
    `same_along`: iterators that the value does not depend on."""

    name: str
    iters: tuple[str, ...]
    domain: Cond
    write: Access
    reads: tuple[Access, ...] = ()
    role: Role = "define"
    ordered: bool = False
    copied: tuple[Access, ...] = ()
    same_along: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scop:
    params: tuple[str, ...]
    context: Cond
    tensors: tuple[Tensor, ...]
    inputs: frozenset[str]
    """Tensors that no statement writes."""
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    name: str
    body: tuple[Tree, ...]
    mark: Mark = "serial"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One placement: the key of its nest."""

    placement: str


Tree: TypeAlias = Loop | Leaf
