"""An operator compiled for any sizes: one artifact, told the sizes of each call.

    kernel       the program with named sizes, which the native code reads as i64 numbers beside the addresses; axes that all equations
                 go along together are one, whose extent is a size of its own (`tensorlang.graph.merged_axes`)
    a call       the operator's parameters are bound to the shapes at hand, which checks them as for known sizes and gives the sizes;
                 the shapes of the results and the scratch memory follow from them

Some sizes stay numbers: one multiplied with another, one that a broadcast dimension of one element leaves to nobody. Other values of
those are another kernel (`Variant.fits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from codegen.llvm.call import Callable as Native
from codegen.llvm.call import Port
from codegen.llvm.scratch import Scratch
from codegen.llvm.target import Target
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.executable import workspace_threads
from tensorlang.backends.cpu.loading import failure_on
from tensorlang.backends.cpu.ready import Compiled, linked, refusal_of
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.graph.merged_axes import merged_axes
from tensorlang.graph.programs import result_tensors
from tensorlang.graph.sizes import Symbols
from tensorlang.planning import ScheduleRequest
from tensorlang.room import check_room
from tensorlang.runtime.any_sizes import checked_numbers, serves
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import caller_shape

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """What is compiled of an operator: `program` computes the same on the same memory, its sizes among them that `symbols` multiplies."""

    program: Program
    request: ScheduleRequest
    symbols: Symbols

    def numbers(self, sizes: Sizes) -> list[int]:
        """Return the sizes of the program where the operator's are `sizes`. Raises RunError R0315."""
        return checked_numbers(self.program, self.symbols.with_products(sizes))


def kernel_of(program: Program, request: ScheduleRequest) -> Kernel:
    """Return what is compiled of a program. Its axes stay as they are where sizes are known, or somebody wrote a schedule for them."""
    rules = request.rules
    if request.schedule is not None or rules is None or rules.at is None or rules.is_written(program):
        return Kernel(program, request, Symbols({}))
    symbols = Symbols({name: rules.at[name] for name in program.sizes})
    merged, _ = merged_axes(program, {}, symbols)
    if merged is not program:
        request = replace(request, rules=replace(rules.of_roles, at=symbols.with_products(rules.at)))
    return Kernel(merged, request, symbols)


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """An operator compiled with open sizes. `fixed` are the sizes that are numbers in `program`."""

    program: Program
    kernel: Kernel
    artifact: Artifact
    fixed: Sizes
    address: int
    threads: int
    """For how many of them it needs scratch memory."""
    available: int
    """How many run it."""
    target: Target
    scratch: Scratch = field(default_factory=Scratch)
    """What calls at all sizes share."""

    @property
    def is_plain(self) -> bool:
        return self.artifact.is_plain

    def fits(self, sizes: Sizes, arrays: Sequence[Array]) -> bool:
        """Tell whether this is the kernel for arrays that bind the operator's sizes to `sizes`."""
        return serves(self.program, self.fixed, sizes, arrays)

    def at(self, sizes: Sizes) -> Compiled:
        """Return the native code for arrays of these sizes. Raises RunError R0315 when no machine holds what it makes, or
        a size is beyond what proofs are about, as only arrays without elements can have it."""
        numbers = self.kernel.numbers(sizes)
        scratch = self.artifact.workspace_bytes(self.threads, numbers)
        inputs, outputs = ([_port(t, sizes) for t in tensors] for tensors in (self.program.params, result_tensors(self.program)))
        for size_bytes in (scratch, *(prod(port.shape) * port.dtype.size_bytes for port in outputs)):
            check_room(self.program.name, size_bytes)
        failure = failure_on(self.target, partial(refusal_of, self.program, self.artifact))
        native = Native(self.address, inputs, outputs, numbers=numbers, scratch_bytes=scratch, scratch=self.scratch, failure=failure)
        told = dict(zip(self.artifact.sizes, numbers, strict=True))
        return Compiled(self.program, self.artifact, native, self.available, self.target, told)


def variant(program: Program, request: ScheduleRequest, sizes: Sizes, tools: Toolchain) -> Variant:
    """Return a program compiled for any sizes, and loaded. `sizes` are all of the operator's at the call it is made for."""
    kernel = kernel_of(program, request)
    artifact = tools.kernel(kernel.program, kernel.request, tools.store)
    address = linked(program, artifact, tools, numbers=len(artifact.sizes), scratch=True)
    fixed = {name: value for name, value in sizes.items() if name not in program.sizes}
    return Variant(program, kernel, artifact, fixed, address, workspace_threads(artifact, tools.pool_threads), tools.threads, tools.target)


def _port(tensor: Tensor, sizes: Sizes) -> Port:
    return Port(tensor.name, tensor.dtype, caller_shape(tensor, sizes))
