"""A model taken apart by its importer, to find the node whose value is not what another compiler makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class TakenNode:
    """A node, with the values that it takes (constants left out) and makes. `alone(values)`: a model of it alone, which takes those."""

    label: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    alone: Callable[[Mapping[str, Array]], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class TakenApart:
    """`model` returns `outputs`: all values that its nodes make, in the order of these."""

    model: bytes
    outputs: tuple[str, ...]
    nodes: tuple[TakenNode, ...]
