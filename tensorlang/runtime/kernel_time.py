"""How long one kernel of a model took."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.graph.nodes import Value
from tensorlang.runtime.work import Work


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What one kernel computes (`members`: names of the model's nodes), how long that took, and how much there is to do at least."""

    name: str
    members: tuple[str, ...]
    result: Value
    seconds: float
    work: Work
