"""A compiled model as it runs, for those that run it on something else than numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.llvm.program import KernelCall, Slot
from codegen.loops.interp import evaluate_index
from codegen.loops.nodes import Function
from tensorlang.diagnostics import InternalError
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.nodes import Graph

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel as the entry point calls it: its loops, its addresses, and how many bytes of scratch memory it takes."""

    name: str
    function: Function
    call: KernelCall
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Compiled:
    """A model as it runs. The bases of `calls` are the outputs of `graph`, its inputs, the constants, the arena; `constants` are their
    elements, which lie at `offsets` in a block of `constants_bytes`."""

    graph: Graph
    constants: Mapping[str, Array]
    offsets: Mapping[str, int]
    constants_bytes: int
    arena_bytes: int
    calls: tuple[Call, ...]

    def base_bytes(self) -> list[int]:
        """Return how many bytes each base has."""
        values = [size_bytes(self.graph.values[name]) for name in (*self.graph.outputs, *self.graph.inputs)]
        return [*values, self.constants_bytes, self.arena_bytes]

    def results(self) -> Iterator[tuple[str, Slot]]:
        """Yield each output and where it lies."""
        return ((name, Slot(k)) for k, name in enumerate(self.graph.outputs))

    def given(self) -> Iterator[tuple[str, Slot]]:
        """Yield each input and each constant, and where it lies."""
        first = len(self.graph.outputs)
        yield from ((name, Slot(first + k)) for k, name in enumerate(self.graph.inputs))
        block = first + len(self.graph.inputs)
        yield from ((name, Slot(block, self.offsets[name])) for name in self.constants)


def check_disjoint(call: Call) -> None:
    """Raise InternalError when a kernel writes memory that it may still read."""
    overlap = next(_overlaps(call), "")
    if overlap:
        raise InternalError("validate", f"kernel `{call.name}`: {overlap}")


def _overlaps(call: Call) -> Iterator[str]:
    """Yield what a kernel writes while it may still read it."""
    function = call.function
    spans = [
        (f"`{b.name}`", slot, math.prod(evaluate_index(e, {}) for e in b.shape) * b.dtype.numpy.itemsize, b.name in function.written)
        for b, slot in zip(function.params, call.call.buffers, strict=True)
    ]
    if call.call.workspace is not None:
        spans.append(("its scratch memory", call.call.workspace, call.scratch_bytes, True))
    for k, (name, slot, size, written) in enumerate(spans):
        for other, at, length, too in spans[k + 1 :]:
            if slot.base == at.base and slot.offset < at.offset + length and at.offset < slot.offset + size and (written or too):
                yield f"{name} and {other} share bytes"
