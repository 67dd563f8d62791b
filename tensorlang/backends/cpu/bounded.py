"""A model of open sizes bound to arrays for good, its sizes known up to limits: beside its kernels, a call multiplies a matrix by them.

What the entry point is told are formulas over the sizes. The arena is planned once, for the limits, as long as nothing in it grows when a
size shrinks; otherwise it is planned for each call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from codegen.loops.nodes import Add, FloorDiv, Index, Int, Max, Min, Mod, Mul, ValueIndex, Var
from codegen.polynomials import number
from tensorlang.backends.cpu.executable import nodes_of, refusal
from tensorlang.backends.cpu.told_numbers import Formulas
from tensorlang.graph.blocks import aligned_block
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.nodes import loops_of
from tensorlang.graph.plan import Arena, Plan, placements_of
from tensorlang.graph.sizes import Atom, Formula, Quotient, evaluate, formula_of
from tensorlang.room import check_room

if TYPE_CHECKING:
    from tensorlang.backends.cpu.open_sizes import OpenExecutable, OpenParts, Told

Array = np.ndarray[Any, Any]


def bound(
    made: OpenExecutable, most: Mapping[str, int], inputs: Sequence[Array], outputs: Sequence[Array]
) -> Callable[[Mapping[str, int]], None]:
    """Return a function of sizes, none above those in `most`, that reads and writes these arrays (`OpenRuns.bound`)."""
    parts, graph = made.made.parts, made.made.parts.graph
    plan = made.made.planned(most)
    for value in graph.values.values():
        check_room(graph.name, evaluate(formula_of(size_bytes(value)), made.made.values(most)))
    addresses = [*(array.ctypes.data for array in (*outputs, *inputs)), parts.constants.ctypes.data]
    words = np.zeros(len(addresses) + len(made.made.told) + 1, np.int64)
    told, base = words[len(addresses) : -1], words.ctypes.data
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(made.library.address(parts.entry.name))
    grows = grows_with_sizes(made.made, plan)
    numbers = Formulas(formulas(made.made, plan)) if grows else None
    scratch = [aligned_block(max(1, plan.arena_bytes))]
    words[: len(addresses)], words[-1] = addresses, scratch[0].ctypes.data

    def run(sizes: Mapping[str, int], kept: object = (made, tuple(inputs), tuple(outputs))) -> None:
        if numbers is not None:
            told[:] = numbers.at(sizes)
        else:
            here, told[:] = made.made.told_for(sizes)
            scratch[0] = aligned_block(max(1, here.arena_bytes))
            words[-1] = scratch[0].ctypes.data
        code = entry(base)
        if code:
            raise refusal(nodes_of(graph), parts.artifacts, code)

    return run


def formulas(made: OpenParts, plan: Plan) -> list[Formula]:
    """Return what the entry point of a model without loops is told where the arena is planned."""
    offsets = placements_of(made.parts.graph)

    def formula(told: Told) -> Formula:
        if told.kind == "size":
            return made.symbols.formula(told.name)
        if told.kind == "scratch":
            return number(plan.workspaces.get(told.name, 0))
        root = plan.places[offsets[told.name].root]
        return number(root.offset if isinstance(root, Arena) else 0) + formula_of(offsets[told.name].offset)

    return list(map(formula, made.told))


# ---------------------------------------------------------------- what grows with sizes


def grows_with_sizes(made: OpenParts, plan: Plan) -> bool:
    """Tell whether no value in the arena and no scratch memory is larger where a size is smaller; of loops that is not looked at."""
    graph = made.parts.graph
    if loops_of(graph):
        return False
    values = (graph.values[name] for name, place in plan.places.items() if isinstance(place, Arena))
    spaces = (space for space in made.workspaces if space is not None)
    scratch = all(_index_grows(space.shared) and _index_grows(space.private) for space in spaces)
    return scratch and all(_formula_grows(formula_of(size_bytes(value))) for value in values)


def _formula_grows(formula: Formula) -> bool:
    return all(factor > 0 or not monomial for monomial, factor in formula.terms.items()) and all(map(_atom_grows, formula.atoms()))


def _atom_grows(atom: Atom) -> bool:
    return not isinstance(atom, Quotient) or (atom.divisor.constant is not None and _formula_grows(atom.value))


def _index_grows(e: Index) -> bool:
    match e:
        case Int() | Var():
            return True
        case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            return _index_grows(lhs) and _index_grows(rhs)
        case Mul(lhs, rhs):
            return all(_index_grows(part) and not (isinstance(part, Int) and part.value < 0) for part in (lhs, rhs))
        case FloorDiv(lhs, Int(divisor)):
            return divisor > 0 and _index_grows(lhs)
        case FloorDiv() | Mod() | ValueIndex():
            return False
        case _:
            assert_never(e)
