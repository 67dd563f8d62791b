"""What the entry point of a model of open sizes is told, for any sizes: where values lie follows from what lay on what for the samples.

    formulas   the bytes of each storage, and what is told beside offsets: all evaluated together, a matrix times products of sizes
    stacking   offsets of storages, for these bytes (`tensorlang.graph.stacking`)

No graph and no plan is made for the sizes. Of loops, whose bodies have memory of their own, that is not looked at (`of` returns None).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.polynomials import number
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.known_sizes import graph_at
from tensorlang.graph.nodes import Kernel, Value, loops_of
from tensorlang.graph.plan import Arena, aligned, lifetimes, placements_of, scratch_storages
from tensorlang.graph.sizes import Extent, Formula, evaluate, formula_of, names_in, value_of
from tensorlang.graph.stacking import stacking
from tensorlang.room import check_room

if TYPE_CHECKING:
    from tensorlang.backends.cpu.open_sizes import OpenParts, Told

Array = np.ndarray[Any, Any]


class ToldNumbers:
    """What is told of a model without loops, for any sizes."""

    @staticmethod
    def of(made: OpenParts) -> ToldNumbers | None:
        """Return what is told of a model; None of one with loops."""
        return None if loops_of(made.parts.graph) else ToldNumbers(made)

    def __init__(self, made: OpenParts) -> None:
        graph, plan = made.parts.graph, made.parts.plan
        at_samples = graph_at(graph, made.values(made.symbols.samples))  # nothing is asked, and so assumed, of open sizes
        placements = placements_of(graph)
        fixed = {name: place for name, place in plan.places.items() if not isinstance(place, Arena)}
        kernels = [node.name for node in graph.nodes if isinstance(node, Kernel)]
        spaces = {name: space for name, space in zip(kernels, made.workspaces, strict=True) if space is not None}
        storages = lifetimes(at_samples, {name: placement.root for name, placement in placements.items()}, fixed)
        scratch = scratch_storages(graph, dict.fromkeys(spaces, 1))
        offsets = {s.name: place.offset for s in storages if isinstance(place := plan.places[s.name], Arena)}
        offsets |= {s.name: plan.workspaces[name] for s, name in zip(scratch, spaces, strict=True)}
        self._name = graph.name
        self._stack = stacking([*storages, *scratch], offsets)
        position = {name: k for k, name in enumerate(self._stack.names)}
        self._values = [(position[s.name], k) for k, s in enumerate(storages)]
        self._spaces = tuple(dict.fromkeys(spaces.values()))
        number_of = {space: k for k, space in enumerate(self._spaces)}
        self._scratch = [(position[s.name], number_of[spaces[name]]) for s, name in zip(scratch, spaces, strict=True)]

        def row(told: Told) -> tuple[int | None, Formula]:
            """Return the position of the storage that a number is an offset in, None for none, and what is added to where that begins."""
            if told.kind == "size":
                return None, made.symbols.formula(told.name)
            if told.kind == "scratch":
                return position.get(f"scratch of {told.name}"), number(0)
            assert told.kind == "value", "the other kinds are of loops"
            placement = placements[told.name]
            return position.get(placement.root), formula_of(placement.offset)

        rows = list(map(row, made.told))
        self._starts = [start for start, _ in rows]
        bytes_of = {name: formula_of(size_bytes(value)) for name, value in graph.values.items()}
        self._formulas = Formulas([*(bytes_of[s.name] for s in storages), *(formula for _, formula in rows), *bytes_of.values()])
        extents = [formula_of(n) for name in (*graph.inputs, *graph.outputs) for n in _extents(graph.values[name])]
        read = {name for formula in (*self._formulas.distinct, *extents) for name in names_in(formula)}
        self._read = sorted(read | {symbol for space in self._spaces for _, symbol in space.sizes})

    def key(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return those sizes that anything depends on: what is told, and the shapes of inputs and outputs."""
        return tuple([sizes[name] for name in self._read])

    def at(self, sizes: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
        """Return how many bytes the arena takes for these sizes, those of products among them, and what is told. Raises RunError R0315 for
        values that no machine can hold."""
        found, spaces = self._formulas.at(sizes), [space.at(sizes) for space in self._spaces]
        first, last = len(self._values), len(self._values) + len(self._starts)
        check_room(self._name, max(found[last:], default=0))
        taken = [0] * len(self._stack.names)
        for position, k in self._values:
            taken[position] = found[k]
        for position, k in self._scratch:
            taken[position] = spaces[k]
        offsets, end = self._stack.offsets(taken)
        within = zip(self._starts, found[first:last], strict=True)
        return aligned(end), tuple([n if start is None else offsets[start] + n for start, n in within])


def _extents(value: Value) -> tuple[Extent, ...]:
    return value.shape if value.layout is None else (*value.shape, *value.layout.shape)


class Formulas:
    """Formulas, evaluated together; equal ones once."""

    def __init__(self, formulas: Sequence[Formula]) -> None:
        keys = [frozenset(formula.terms.items()) for formula in formulas]
        self.distinct = list(dict(zip(keys, formulas, strict=True)).values())
        number_of = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        self._which = np.array([number_of[key] for key in keys], np.intp)
        self._monomials = list(dict.fromkeys(m for formula in self.distinct for m in formula.terms))
        self._matrix = np.zeros((len(self.distinct), len(self._monomials)), np.int64)
        column = {monomial: k for k, monomial in enumerate(self._monomials)}
        for k, formula in enumerate(self.distinct):
            for monomial, factor in formula.terms.items():
                self._matrix[k, column[monomial]] = factor
        self._most = max([sum(map(abs, formula.terms.values())) for formula in self.distinct], default=0)

    def at(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the values of all formulas."""
        values = [prod([value_of(atom, sizes) for atom in monomial]) for monomial in self._monomials]
        if max(map(abs, values), default=0) * self._most >= 1 << 63:
            found = [evaluate(formula, sizes) for formula in self.distinct]
            return [found[k] for k in self._which]
        every: list[int] = (self._matrix @ np.array(values, np.int64))[self._which].tolist()
        return every
