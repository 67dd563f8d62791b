"""A model of open sizes bound to arrays for good, its sizes known up to limits: beside its kernels, a call multiplies a matrix by them.

The arena is planned once, with room for the most that each value takes for any of these sizes; what the entry point is told are formulas
over the sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.loops.indices import range_of as range_of_index
from codegen.loops.nodes import Index
from tensorlang.backends.cpu.executable import nodes_of, refusal
from tensorlang.backends.cpu.told_numbers import Formulas
from tensorlang.graph.blocks import aligned_block
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.nodes import Value
from tensorlang.graph.plan import Plan, planned_with_bodies
from tensorlang.graph.sizes import Formula, evaluate, formula_of, of_formula, range_of
from tensorlang.room import check_room
from tensorlang.tensor.widths import LARGEST

if TYPE_CHECKING:
    from tensorlang.backends.cpu.open_sizes import OpenExecutable, OpenParts, Workspace

Array = np.ndarray[Any, Any]


def bound(
    made: OpenExecutable, most: Mapping[str, int], inputs: Sequence[Array], outputs: Sequence[Array]
) -> Callable[[Mapping[str, int]], None]:
    """Return a function of sizes, none above those in `most`, that reads and writes these arrays (`OpenRuns.bound`)."""
    parts, graph = made.made.parts, made.made.parts.graph
    for value in graph.values.values():
        check_room(graph.name, evaluate(formula_of(size_bytes(value)), made.made.values(most)))
    plan, told_formulas = planned_up_to(made.made, most)
    addresses = [*(array.ctypes.data for array in (*outputs, *inputs)), parts.constants.ctypes.data]
    words = np.zeros(len(addresses) + len(made.made.told) + 1, np.int64)
    told, base = words[len(addresses) : -1], words.ctypes.data
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(made.library.address(parts.entry.name))
    numbers, scratch = Formulas(told_formulas), aligned_block(max(1, plan.arena_bytes))
    words[: len(addresses)], words[-1] = addresses, scratch.ctypes.data

    def run(sizes: Mapping[str, int], kept: object = (made, tuple(inputs), tuple(outputs), scratch)) -> None:
        told[:] = numbers.at(sizes)
        code = entry(base)
        if code:
            raise refusal(nodes_of(graph), parts.artifacts, code)

    return run


def planned_up_to(made: OpenParts, most: Mapping[str, int]) -> tuple[Plan, tuple[Formula, ...]]:
    """Return where values lie whatever the sizes are, none above those in `most`, and what the entry point is told then, as formulas over
    the sizes. Raises RunError R0315 where that takes more memory than any machine has."""
    graph, symbols = made.parts.graph, made.symbols
    limits = {**most, **{name: range_of(formula, most)[1] for name, formula in symbols.products.items()}}

    def bytes_of(value: Value) -> int:
        return range_of(formula_of(size_bytes(value)), limits)[1]

    plan = planned_with_bodies(graph, (0 if space is None else _most_scratch(space, limits) for space in made.workspaces), bytes_of)
    check_room(graph.name, plan.arena_bytes)
    sizes: Any = {name: of_formula(symbols.formula(name), symbols) for name in (*symbols.samples, *symbols.products)}
    return plan, tuple(formula_of(n) for n in made.numbers(graph, plan, sizes, bytes_of))


def _most_scratch(space: Workspace, limits: Mapping[str, int]) -> int:
    """Return the most bytes that scratch memory takes."""
    ranges = {name: (0, limits[symbol]) for name, symbol in space.sizes}

    def most(e: Index) -> int:
        high = range_of_index(e, ranges)[1]
        return LARGEST if high is None else high

    return most(space.shared) + space.threads * most(space.private)
