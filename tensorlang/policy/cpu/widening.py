"""Whether an operand of a contraction is widened once, before it, rather than wherever a register tile loads it: a comparison of cycles.

uses        a tile converts what it loads: each vector of columns for every few rows, each element of a row for every few vectors of columns
the copy    is loaded, converted and stored once, by a kernel of its own
its length  is twice that of the operand, which takes longer to arrive, most of all where no near cache holds it
"""

from __future__ import annotations

from math import inf, prod

from codegen.dtypes import f32
from polyhedral import affine
from tensorlang.policy.cpu.cost import START_CYCLES, from_memory_cycles
from tensorlang.policy.machine import Machine
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction, contractions
from tensorlang.tensor.nodes import Definition, Program

USES_OF_A_LOAD = 4
"""How often a register tile multiplies what it loads, about."""
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
    uses = max((_uses(d, c, tensor) for d, c in found), default=0.0)
    saved = elements / machine.lanes(f32) * (uses / USES_OF_A_LOAD - COPY_CYCLES)
    longer = elements * (f32.size_bytes - operand.dtype.size_bytes)
    return saved > START_CYCLES + from_memory_cycles(longer, elements * f32.size_bytes, machine.l2_bytes)


def _uses(definition: Definition, found: Contraction, tensor: str) -> float:
    """Return how many elements of the other operand each element is multiplied by."""
    extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    return prod(affine.constant(extents[axis]) or inf for axis in found.axes_of(1 - found.tensors.index(tensor)))
