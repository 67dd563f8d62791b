"""A model as launches: what is to be launched, on which buffers, and where these lie.

    kernels    distinct programs, each with its launches
    calls      for each kernel of the graph, in order: which program, and the values that its buffers are
    plan       where every value lives: given, returned, a weight, or in the arena

Plain data, which another process reads without the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codegen.gpu.program import Program as Launched
from tensorlang.artifact import Requirement, Validated
from tensorlang.graph.nodes import Extern, Graph, Kernel, Value
from tensorlang.graph.plan import Plan


@dataclass(frozen=True, slots=True)
class DeviceKernel(Validated):
    """One program as launches. Code k of the status word means `requirements[k - 1]` failed."""

    launched: Launched
    requirements: tuple[Requirement, ...]
    schedule: str
    origin: str
    """Where the schedule is from: `derived`, `given`, or the place where it is written."""
    tried: tuple[str, ...] = ()
    """Schedules that were looked at and not taken, each with the reason."""
    validated: str = ""
    validation_budget: int = 0
    trusted: str = ""
    """What of the schedule is not proven, and why somebody trusts it; "" where all is proven."""

    def told(self, names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
        """Return what it is told, by its own names, of the sizes that its program leaves open, which has these `names` for them."""
        return {own: sizes[name] for own, name in zip(self.launched.sizes, names, strict=True)}


@dataclass(frozen=True, slots=True)
class Call:
    """`kernel` (its name) with a value of the graph for each of its params, and of the sizes that it leaves open what it is told."""

    node: Kernel | Extern
    kernel: str
    values: Mapping[str, str]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call in a graph of open sizes; `sizes` are the symbols whose values its kernel is told, in the order of its own names."""

    call: Call
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A graph ready for a device."""

    graph: Graph
    plan: Plan
    kernels: Mapping[str, DeviceKernel]
    calls: tuple[Call, ...]
    names: tuple[str, ...]
    """What the model calls its outputs."""

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Return what the model returns, under its own names."""
        values = (self.graph.values[value] for value in self.graph.outputs)
        return tuple(Value(name, v.dtype, v.shape) for name, v in zip(self.names, values, strict=True))

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(self.graph.values[name] for name in self.graph.inputs)
