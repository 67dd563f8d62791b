"""Whether several products of one operand are computed sooner as one on a graphics processor: a comparison of estimated cycles.

launches    each takes a while to begin, and blocks of one that are fewer than the device has room for leave the rest of it idle
tiles       what is one product has larger ones
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.policy.deriver import deriver
from tensorlang.policy.gpu.choice import least_cycles
from tensorlang.policy.gpu.cost import LAUNCH_CYCLES
from tensorlang.policy.machine import GpuMachine
from tensorlang.tensor.nodes import Program


def is_profitable(separate: Sequence[Program], fused: Program, machine: GpuMachine) -> bool:
    """Tell whether the product `fused` takes less time than those `separate`."""
    whole, parts = product_cycles(fused, machine), [product_cycles(p, machine) for p in separate]
    if whole is None or None in parts:
        return False
    return whole < sum(p for p in parts if p is not None)


def product_cycles(program: Program, machine: GpuMachine) -> float | None:
    """Return about how many cycles a program that is one product of known extents takes with its launch, or None for any other."""
    d = deriver(program, machine, {}, frozenset())
    found = [cycles for definition in d.program.definitions if (cycles := least_cycles(d, definition)) is not None]
    return found[0] + LAUNCH_CYCLES if len(found) == 1 else None
