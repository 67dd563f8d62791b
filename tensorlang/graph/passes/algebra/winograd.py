"""Convolutions with constant weights by minimal filtering, where whoever knows the machine says so.

    before   y = relu(conv(x, w))                        w: 64 x 64 x 3 x 3
    after    y = relu(transformed products of x and u)   u: 64 x 64 x 6 x 6, computed now

`tensor.winograd` says what the new program is. It is one kernel like the one before, its epilogue included. Programs in `strict` mode,
weights that are no constants, strides and dilations stay as they are.

Where sizes are open, the choice is that for samples. If it is another for images of which each side is much shorter or longer, the kernel
keeps both programs, one as a form, and both constants: so a model of open images holds the transformed weights, as that of large images
does, and those that they are made of, which for windows of 3 x 3 are a quarter of that. What no size asks for is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from polyhedral import affine
from polyhedral.expr import Int
from tensorlang.graph.edit import Additions
from tensorlang.graph.nodes import Form, Graph, Kernel, Node
from tensorlang.graph.programs import samples_in
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.renaming import rename_program
from tensorlang.tensor.walk import Fresh, program_names, substitute_sizes
from tensorlang.tensor.winograd import Convolution, by_filtering, convolution, filtered_weights

Array = np.ndarray[Any, Any]
Tiles: TypeAlias = Callable[[Convolution], tuple[int, ...] | None]
"""How many results a tile has along each window of a convolution; None: leave it as it is."""
FAR = (8, 64)
"""How many times shorter or longer than those of the samples the sides of images are for which another choice is asked for."""


def winograd(graph: Graph, tiles: Tiles) -> Graph:
    """Return the graph with the convolutions rewritten that `tiles` chooses."""
    state = _State(graph, Additions(graph), tiles)
    return state.new.rebuilt([_rewritten(state, node) if isinstance(node, Kernel) else node for node in graph.nodes])


@dataclass(slots=True)
class _State:
    graph: Graph
    new: Additions
    tiles: Tiles
    made: dict[tuple[object, ...], str] = field(default_factory=dict)
    """Weights, and what was done to them → the name of the result: weights that are used twice are transformed once."""

    def tiles_at(self, found: Convolution, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        counted = convolution(substitute_sizes(found.program, {name: Int(n) for name, n in sizes.items()}))
        return None if counted is None else self.tiles(counted)


def _rewritten(state: _State, node: Kernel) -> Node:
    found = convolution(node.program)
    if found is None or (weights := node.bound[found.w.tensor]) not in state.graph.constants:
        return node
    samples = samples_in(state.graph, node.program)
    outputs = state.tiles_at(found, samples)
    far, others = _elsewhere(state, found, samples, outputs)
    chosen = outputs or others
    if chosen is None:
        return node
    transformed = _transformed(state, found, chosen, weights)
    if far is None:
        inputs = tuple(transformed if name == weights else name for name in node.inputs)
        return replace(node, program=by_filtering(found, chosen), inputs=inputs)
    made, points = _apart(found, by_filtering(found, chosen))
    main, other = (node.program, made) if outputs is None else (made, node.program)
    unread = next(p for p in other.params if p.name in (points, found.w.tensor))
    both = replace(main, params=(*main.params, unread))
    values = {**node.bound, points: transformed}
    return replace(node, program=both, inputs=tuple(values[p.name] for p in both.params), forms=(Form(other, far),))


def _elsewhere(
    state: _State, found: Convolution, samples: Mapping[str, int], chosen: tuple[int, ...] | None
) -> tuple[tuple[tuple[str, int], ...] | None, tuple[int, ...] | None]:
    """Return what is chosen for images that are much smaller, where filtering is for the samples, or much larger, where it is not, and what
    their sizes are, None where it is the same for these, too."""
    sides = {name for window in found.windows for name in affine.names(window.size)} & samples.keys()
    for times in FAR if sides else ():
        at = {name: max(1, samples[name] // times) if chosen else samples[name] * times for name in sorted(sides)}
        outputs = state.tiles_at(found, {**samples, **at})
        if (outputs is None) != (chosen is None):
            return tuple(at.items()), outputs
    return None, None


def _apart(found: Convolution, filtered: Program) -> tuple[Program, str]:
    """Return a program by filtering whose weights are called otherwise than those that they are made of, and what they are called."""
    weights = found.w.tensor
    points = Fresh({*program_names(found.program), *program_names(filtered)})(f"{weights}.points")
    return rename_program(filtered, {weights: points}), points


def _transformed(state: _State, found: Convolution, outputs: tuple[int, ...], weights: str) -> str:
    key = (weights, outputs, found.w.index, tuple(w.binder for w in found.windows))
    if key not in state.made:
        array = filtered_weights(found, outputs, state.graph.constants[weights])
        state.made[key] = state.new.add(replace(state.graph.values[weights], name=f"{weights} transformed", shape=array.shape), array)
    return state.made[key]
