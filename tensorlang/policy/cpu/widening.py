"""Whether an operand of a contraction is widened once, before it, rather than wherever a register tile loads it: a comparison of cycles.

uses        a tile converts what it loads, for every window: each vector of columns for every few rows, each element of a row for every
            few vectors of columns, where there are as many
the copy    is loaded, converted and stored once, by a kernel of its own
its length  is twice that of the operand, which takes longer to arrive, most of all where no near cache holds it
"""

from __future__ import annotations

from math import inf, prod

from codegen.dtypes import f32
from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import START_CYCLES, from_memory_cycles
from tensorlang.policy.machine import Machine
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction, contractions
from tensorlang.tensor.nodes import Definition, Program

USES_OF_A_LOAD = 4
"""How often a register tile multiplies what it loads, about, where the other operand has as many rows, or vectors of columns."""
COPY_CYCLES = 3.0
"""Of a vector of the copy: its load, its conversion and its store."""


def is_widening_profitable(program: Program, tensor: str, machine: Machine) -> bool:
    """Tell whether a parameter of narrow floats that the program multiplies is better read as f32, at known sizes."""
    dtypes = {t.name: t.dtype for t in walk.tensors(program)}
    found = [(d, c) for d, c in contractions(program) if tensor in c.tensors]
    if any((dtypes[c.tensors[0]], dtypes[c.tensors[1]]) in machine.dots | machine.tiles for _, c in found):
        return False
    operand = walk.tensor_table(program)[tensor]
    elements = prod(affine.constant(n) or 0 for n in operand.shape)
    loads = max((_loads(d, c, tensor, machine.lanes(f32)) for d, c in found), default=0.0)
    saved = loads - COPY_CYCLES * elements / machine.lanes(f32)
    longer = elements * (f32.size_bytes - operand.dtype.size_bytes)
    return saved > START_CYCLES + from_memory_cycles(longer, elements * f32.size_bytes, machine.l2_bytes)


def _loads(definition: Definition, found: Contraction, tensor: str, lanes: int) -> float:
    """Return how often register tiles load vectors of the operand, or elements of it for all lanes."""
    extents: dict[str, float] = {
        axis: affine.constant(n) or inf for axis, n in zip(definition.axes, definition.tensors[0].shape, strict=True)
    }
    extents |= {b.name: b.extent or inf for b in found.reduce.binders}
    own = found.tensors.index(tensor)
    others = prod(extents[axis] for axis in found.axes_of(1 - own))
    uses = others if _is_along_lanes(found, own) else others / lanes
    return prod(extents.values()) / lanes / min(USES_OF_A_LOAD, max(uses, 1))


def _is_along_lanes(found: Contraction, operand: int) -> bool:
    """Tell whether lanes are neighbours of an operand: along the last axis of the result, but not where that moves a window, as tiles of
    convolutions have several channels in their lanes."""
    own, other = (found.reads[k] for k in (operand, 1 - operand))
    last = found.axes[-1] if found.axes else ""
    if last in walk.index_names(own):
        return AffineName(last) in own.index
    return last not in walk.index_names(other) or AffineName(last) not in other.index
