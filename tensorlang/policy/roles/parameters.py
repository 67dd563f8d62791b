"""The parameters of roles, and what they stand for in a tensor that has the shape of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorlang.policy.deriver import Deriver
from tensorlang.policy.groups import FusionGroup
from tensorlang.syntax import nodes as sx

Loops: TypeAlias = tuple[str, ...]
Facts: TypeAlias = Mapping[str, int | bool]
"""What guards, conditions and directives may ask of one parameter, by name: `unit` of `b.unit`."""


@dataclass(frozen=True, slots=True)
class Form:
    """The parameters of a role: `tensors` in number (0: one, and perhaps any others; or for each whether it is a pack), and from `least` to
    `most` groups of loops."""

    text: str
    tensors: int | tuple[bool, ...]
    least: int
    most: int
    match: Callable[[Deriver, FusionGroup], Shape | None]
    others: int = 1
    """How many packs of tensors there may be after the first, where `tensors` is 0."""
    more: tuple[str, ...] = ()
    """Names of tensors that may follow those of `text`."""

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the parameters are called here: tensors, then loops. Those of a schedule at the same places are the same."""
        tensors, loops = self.text.partition("(")[2].removesuffix(")").split(";")
        found = [tuple(name.strip().removesuffix("..") for name in group.split(",")) for group in (tensors, loops)]
        return (*found[0], *self.more), found[1]

    def fits(self, role: sx.Role) -> bool:
        if len(role.groups) != 2 or not self.least <= len(role.groups[1]) <= self.most:
            return False
        tensors = role.groups[0]
        if isinstance(self.tensors, tuple):
            return tuple(t.endswith("..") for t in tensors) == self.tensors
        if self.tensors == 0:
            return not tensors[0].endswith("..") and all(t.endswith("..") for t in tensors[1:]) and len(tensors) <= 1 + self.others
        return len(tensors) == self.tensors and not any(t.endswith("..") for t in tensors)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the parameters of a role stand for, by position, and the facts of each, by what its form calls it. Loops are named in full."""

    tensors: tuple[Loops, ...]
    loops: tuple[Loops, ...]
    lanes: int
    facts: Mapping[str, Facts] = field(default_factory=dict)
    tile: tuple[int | None, int | None] | None = None
    """Extents of the two axes of a register tile."""
    heights: range | None = None
    """How many rows it may have."""
    together: int = 1
    partial: int = 1
    """Over how many partial results reductions are spread."""
    extra: Mapping[str, int] = field(default_factory=dict)
    """Other facts, by name."""
    cycles: float = 0.0
    """What the schedule of a role costs for which others may be taken, 0 where there are none."""


def full(owner: str, names: Sequence[str]) -> Loops:
    return tuple(f"{owner}.{n}" for n in names)
