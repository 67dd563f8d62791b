"""Names of a model and what they stand for, block in block: a graph inside of a node sees those of the graphs around it."""

from __future__ import annotations

from dataclasses import dataclass, field

from stdlib.onnx.items import Item


@dataclass(slots=True)
class Scope:
    """`path` begins the names of values that are defined here, and differs from that of every other run of a block."""

    outer: Scope | None = None
    path: str = ""
    depth: int = 0
    items: dict[str, Item] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.items or (self.outer is not None and name in self.outer)

    def __getitem__(self, name: str) -> Item:
        if name in self.items or self.outer is None:
            return self.items[name]
        return self.outer[name]
