"""Models whose shapes depend on elements: what decides them is computed first, and the rest of the model is compiled for that.

an importer raises   DataDependent   what has to be known, the graph that computes it, and what else of that graph is read later
and is called again  with Known      the elements that were found, and the values that are inputs from now on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.graph.nodes import Graph, Value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What was computed of a model before the rest of it is compiled: the `elements` of values, which are constants now, and values that
    are `carried` over, which are inputs now."""

    elements: Mapping[str, Array] = field(default_factory=dict)
    carried: Mapping[str, Value] = field(default_factory=dict)

    def digest(self) -> bytes:
        """Return a digest of all there is to say about it."""
        found = sha256()
        for name, array in sorted(self.elements.items()):
            found.update(repr((name, array.dtype.name, array.shape)).encode() + array.tobytes())
        for name, value in sorted(self.carried.items()):
            found.update(repr((name, value.dtype.name, value.shape)).encode())
        return found.digest()

    def __bool__(self) -> bool:
        return bool(self.elements or self.carried)


class DataDependent(CompileError):
    """Shapes depend on the elements of `wanted`. Those that are no inputs are outputs of `stage`, as are the values that are to be
    `carried` over; `inputs` are those of the model so far."""

    def __init__(
        self,
        *diagnostics: Diagnostic,
        wanted: tuple[str, ...] = (),
        inputs: tuple[Value, ...] = (),
        stage: Graph | None = None,
        carried: tuple[str, ...] = (),
    ) -> None:
        super().__init__(*diagnostics)
        self.wanted, self.inputs, self.stage, self.carried = wanted, inputs, stage, carried
