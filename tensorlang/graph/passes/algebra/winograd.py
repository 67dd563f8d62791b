"""Convolutions with constant weights by minimal filtering, where whoever knows the machine says so.

    before   y = relu(conv(x, w))                        w: 64 x 64 x 3 x 3
    after    y = relu(transformed products of x and u)   u: 64 x 64 x 6 x 6, computed now

`tensor.winograd` says what the new program is. It is one kernel like the one before, its epilogue included. Programs in `strict` mode,
weights that are no constants, strides and dilations stay as they are. Where sizes are open, the choice is that for samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from tensorlang.graph.edit import Additions
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.programs import at_samples
from tensorlang.tensor.winograd import Convolution, by_filtering, convolution, filtered_weights

Array = np.ndarray[Any, Any]
Tiles: TypeAlias = Callable[[Convolution], tuple[int, ...] | None]
"""How many results a tile has along each window of a convolution; None: leave it as it is."""


def winograd(graph: Graph, tiles: Tiles) -> Graph:
    """Return the graph with the convolutions rewritten that `tiles` chooses."""
    state = _State(graph, Additions(graph))
    return state.new.rebuilt([_rewritten(state, node, tiles) for node in graph.nodes])


@dataclass(slots=True)
class _State:
    graph: Graph
    new: Additions
    made: dict[tuple[object, ...], str] = field(default_factory=dict)
    """Weights, and what was done to them → the name of the result: weights that are used twice are transformed once."""


def _rewritten(state: _State, node: Node, tiles: Tiles) -> Node:
    found = convolution(node.program) if isinstance(node, Kernel) else None
    if found is None or not isinstance(node, Kernel):
        return node
    position = next(k for k, p in enumerate(found.program.params) if p.name == found.w.tensor)
    weights = node.inputs[position]
    counted = convolution(at_samples(state.graph, node.program))
    outputs = tiles(counted) if counted is not None and weights in state.graph.constants else None
    if outputs is None:
        return node
    inputs = list(node.inputs)
    inputs[position] = _transformed(state, found, outputs, weights)
    return replace(node, program=by_filtering(found, outputs), inputs=tuple(inputs))


def _transformed(state: _State, found: Convolution, outputs: tuple[int, ...], weights: str) -> str:
    key = (weights, outputs, found.w.index, tuple(w.binder for w in found.windows))
    if key not in state.made:
        array = filtered_weights(found, outputs, state.graph.constants[weights])
        state.made[key] = state.new.add(replace(state.graph.values[weights], name=f"{weights} transformed", shape=array.shape), array)
    return state.made[key]
