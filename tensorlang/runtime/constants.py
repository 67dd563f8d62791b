"""Where the constants of a model lie: one block, each at a multiple of the alignment, in the layout that its readers prefer.

    in_memory(weights, places)   the block in memory of this process
    pieces(weights)              its bytes, one constant after the other, to be written to a file and mapped

Weights are as large as all else together is small. Nothing here holds more than one of them twice, and what was mapped from the model's
file leaves the process as soon as it is laid out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorlang.graph.blocks import aligned_block
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.nodes import Graph, Value
from tensorlang.graph.plan import ALIGNMENT
from tensorlang.graph.relayout import lay_out
from tensorlang.memory_map import forget

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Places:
    """The offset of each constant in a block of `size` bytes."""

    offsets: dict[str, int]
    size: int


@dataclass(frozen=True, slots=True)
class Weights:
    """The constants of a graph and their values. Whoever places them takes the arrays out: nobody else holds them then."""

    values: dict[str, Value]
    arrays: dict[str, Array]


_PLACED = np.empty(0, np.uint8)


def without_constants(graph: Graph) -> Graph:
    """Return a graph with placeholders for its constants, whose elements are laid out elsewhere: all that is asked of them is that they
    are constants."""
    return replace(graph, constants=dict.fromkeys(graph.constants, _PLACED))


def places_of(graph: Graph) -> Places:
    """Return where each constant of the graph goes, in their order."""
    offsets: dict[str, int] = {}
    end = 0
    for name in graph.constants:
        offsets[name] = end
        end += -(-size_bytes(graph.values[name]) // ALIGNMENT) * ALIGNMENT
    return Places(offsets, end)


def cells_of(values: Mapping[str, Value], places: Places, block: Array) -> dict[str, Array]:
    """Return the elements of each constant of a block, as views of it, in the order of its layout."""
    return {name: block[at : at + size_bytes(values[name])].view(values[name].dtype.numpy) for name, at in places.offsets.items()}


def in_memory(weights: Weights, places: Places) -> Array:
    """Return a new block with all constants, whose arrays are gone then."""
    block = aligned_block(places.size)
    while weights.arrays:
        name = next(iter(weights.arrays))
        array = weights.arrays.pop(name)
        value, start = weights.values[name], places.offsets[name]
        cells = block[start : start + size_bytes(value)].view(value.dtype.numpy)
        _laid_out(array, value, cells)
        forget(array)
    return block


def pieces(weights: Weights) -> Iterator[memoryview]:
    """Yield the bytes of the block from its start to its end."""
    for name, array in weights.arrays.items():
        value = weights.values[name]
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
