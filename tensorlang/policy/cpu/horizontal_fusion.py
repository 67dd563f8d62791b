"""Whether several products of one operand are computed sooner as one: a comparison of estimated cycles.

columns     a register tile of few columns multiplies slower, and the last one of each product may be part empty
starts      every kernel takes a while to start, most where several threads have to be told and waited for
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.dtypes import compute_dtype
from tensorlang.policy.cpu.cost import kernel_cycles
from tensorlang.policy.cpu.register_tiles import product_step_cycles
from tensorlang.policy.deriver import deriver
from tensorlang.policy.machine import Machine
from tensorlang.schedule.shape import contraction, extents
from tensorlang.tensor.nodes import Program

WORTH = 1.02
"""How many times faster one must be."""


def is_profitable(separate: Sequence[Program], fused: Program, machine: Machine) -> bool:
    """Tell whether the product `fused` takes less time than those `separate`."""
    whole, parts = product_cycles(fused, machine), [product_cycles(p, machine) for p in separate]
    if whole is None or None in parts:
        return False
    return whole * WORTH < sum(p for p in parts if p is not None)


def product_cycles(program: Program, machine: Machine) -> float | None:
    """Return about how many cycles a program that is one product of known extents takes, or None for any other."""
    d = deriver(program, machine, {}, frozenset())
    if len(d.program.definitions) != 1:
        return None
    [definition] = d.program.definitions
    given = {p.name for p in program.params}
    lanes = machine.lanes(compute_dtype(definition.tensors[0].dtype))
    sizes = extents(definition)
    for axis in reversed(definition.axes):
        c = contraction(definition, axis)
        if c is None or not {c.x, c.w} <= given or not c.rows or any(sizes[n] is None for n in sizes):
            continue
        inner = 1
        for name in c.inner:
            inner *= sizes[name] or 1
        return kernel_cycles(product_step_cycles(d, c, sizes, axis, lanes) * inner, machine.threads)
    return None
