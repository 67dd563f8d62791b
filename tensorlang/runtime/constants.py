"""Where the constants of a model lie: one block, each at a multiple of the alignment, in the layout that its readers prefer.

    in_memory(weights, places)   the block in memory of this process
    pieces(weights)              its bytes, one constant after the other, to be written to a file and mapped

Weights are as large as all else together is small. Nothing here holds more than one of them twice, and what was mapped from the model's
file leaves the process as soon as it is laid out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorlang.graph.blocks import aligned_block
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.nodes import Graph, Loop, Value, loops_of
from tensorlang.graph.plan import ALIGNMENT
from tensorlang.graph.relayout import lay_out
from tensorlang.memory_map import forget

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Places:
    """The offset of each constant in a block of `size` bytes, and those of the constants of each loop's body."""

    offsets: dict[str, int]
    size: int
    bodies: dict[str, Places] = field(default_factory=dict)

    @property
    def all_offsets(self) -> tuple[int, ...]:
        """The offsets of all constants in the order in which they lie in the block."""
        return (*self.offsets.values(), *(offset for body in self.bodies.values() for offset in body.all_offsets))


@dataclass(frozen=True, slots=True)
class Weights:
    """The constants of a graph and of the bodies of its loops, in the order of their places: values and elements. Whoever places them takes
    the arrays out: nobody else holds them then."""

    values: list[Value]
    arrays: deque[Array]


def weights_of(graph: Graph) -> Weights:
    """Return the constants of a graph."""
    found = Weights([graph.values[name] for name in graph.constants], deque(graph.constants.values()))
    for loop in loops_of(graph):
        inner = weights_of(loop.body)
        found.values.extend(inner.values)
        found.arrays.extend(inner.arrays)
    return found


_PLACED = np.empty(0, np.uint8)


def without_constants(graph: Graph) -> Graph:
    """Return a graph with placeholders for its constants, whose elements are laid out elsewhere: all that is asked of them is that they
    are constants."""
    return _with_constants(graph, lambda constants: dict.fromkeys(constants, _PLACED))


def stripped(graph: Graph) -> Graph:
    """Return a graph that knows nothing of its constants any more."""
    return _with_constants(graph, lambda constants: {})


def _with_constants(graph: Graph, change: Callable[[dict[str, Array]], dict[str, Array]]) -> Graph:
    nodes = tuple(replace(n, body=_with_constants(n.body, change)) if isinstance(n, Loop) else n for n in graph.nodes)
    return replace(graph, constants=change(graph.constants), nodes=nodes)


def places_of(graph: Graph, start: int = 0) -> Places:
    """Return where each constant of the graph goes, in their order, from `start` on; then those of the bodies of its loops."""
    offsets: dict[str, int] = {}
    bodies: dict[str, Places] = {}
    end = start
    for name in graph.constants:
        offsets[name] = end
        end += -(-size_bytes(graph.values[name]) // ALIGNMENT) * ALIGNMENT
    for loop in loops_of(graph):
        bodies[loop.name] = places_of(loop.body, end)
        end += bodies[loop.name].size
    return Places(offsets, end - start, bodies)


def cells_of(values: Mapping[str, Value], places: Places, block: Array) -> dict[str, Array]:
    """Return the elements of each constant of a block, as views of it, in the order of its layout."""
    return {name: block[at : at + size_bytes(values[name])].view(values[name].dtype.numpy) for name, at in places.offsets.items()}


def in_memory(weights: Weights, places: Places) -> Array:
    """Return a new block with all constants, whose arrays are gone then."""
    block = aligned_block(places.size)
    for start, value in zip(places.all_offsets, weights.values, strict=True):
        array = weights.arrays.popleft()
        cells = block[start : start + size_bytes(value)].view(value.dtype.numpy)
        _laid_out(array, value, cells)
        forget(array)
    return block


def pieces(weights: Weights) -> Iterator[memoryview]:
    """Yield the bytes of the block from its start to its end."""
    for value, array in zip(weights.values, weights.arrays, strict=True):
        if value.layout is None and array.flags.c_contiguous and array.dtype.isnative:
            cells = array.reshape(-1)
        else:
            cells = np.empty(size_bytes(value) // value.dtype.numpy.itemsize, value.dtype.numpy)
            _laid_out(array, value, cells)
        yield cells.view(np.uint8).data
        yield memoryview(bytes(-cells.nbytes % ALIGNMENT))
        forget(array)


def _laid_out(array: Array, value: Value, cells: Array) -> None:
    """Write the elements of a constant into `cells` as the value's layout says."""
    if value.layout is None:
        cells.reshape(value.shape)[...] = array
    else:
        lay_out(array, value.layout, cells.reshape(value.layout.shape))
