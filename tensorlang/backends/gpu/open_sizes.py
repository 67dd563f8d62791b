"""A model whose sizes stay open, on a device: its kernels are compiled once, and told the sizes of each combination.

kernels     programs with sizes, as those of operators: grids and scratch memory are expressions over them
at(sizes)   shapes of values are evaluated and memory is planned, once for each combination, and nothing is compiled
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from codegen.gpu.limits import exceeded_at
from polyhedral.expr import Int
from tensorlang.backends.gpu.model import Call, DeviceKernel, DeviceModel, OpenCall
from tensorlang.backends.gpu.vendor import refuse
from tensorlang.diagnostics import CompileError, error
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.known_sizes import graph_at
from tensorlang.graph.nodes import Buffer, Graph, Kernel, Value
from tensorlang.graph.plan import planned
from tensorlang.graph.sizes import Symbols
from tensorlang.room import check_room
from tensorlang.tensor.walk import substitute_sizes

if TYPE_CHECKING:
    from tensorlang.backends.gpu.tools import DeviceTools, OnDevice


@dataclass(frozen=True, slots=True, eq=False)
class OpenOnDevice:
    """A model compiled for open sizes (`tensorlang.runtime.protocol.OpenRuns`). `code` is the machine code of `made`, in order."""

    graph: Graph
    made: Mapping[str, DeviceKernel]
    calls: tuple[OpenCall, ...]
    names: tuple[str, ...]
    code: tuple[Any, ...]
    tools: DeviceTools
    weights: Any = field(repr=False)
    """What all combinations of sizes share."""

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(self.graph.values[name] for name in self.graph.inputs)

    @property
    def kernels(self) -> int:
        return len(self.calls)

    @property
    def symbols(self) -> Symbols:
        assert self.graph.symbols is not None, "a graph of open sizes has symbols"
        return self.graph.symbols

    def model_at(self, sizes: Mapping[str, int]) -> DeviceModel:
        """Return the model for these values of its symbols: the same kernels, memory planned anew. Raises RunError R0315 where no machine
        has the memory, CompileError C0111 where grids are larger than a device has."""
        values = self.symbols.with_products({name: sizes[name] for name in self.symbols.samples})
        known = graph_at(self.graph, values)
        for value in known.values.values():
            check_room(known.name, size_bytes(value))
        nodes = {node.name: _known(node, values) for node in known.nodes if isinstance(node, Kernel)}
        known = replace(known, nodes=tuple(nodes.get(node.name, node) for node in known.nodes), symbols=None)
        calls = tuple(self._told(found, nodes, values) for found in self.calls)
        return DeviceModel(known, planned(known), self.made, calls, self.names)

    def _told(self, found: OpenCall, nodes: Mapping[str, Kernel], values: Mapping[str, int]) -> Call:
        call, kernel = found.call, self.made[found.call.kernel]
        told = kernel.told(found.sizes, values)
        refuse(exceeded_at(kernel.launched, self.tools.arch.limits, told), self.tools.arch)
        return replace(call, node=nodes[call.node.name], sizes=told)

    def at(self, sizes: Mapping[str, int]) -> OnDevice:
        from tensorlang.backends.gpu.tools import Built, OnDevice

        return OnDevice(Built(self.model_at(sizes), self.code), self.tools, self.weights)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(replace(self.graph.values[v], name=name) for v, name in zip(self.graph.outputs, self.names, strict=True))

    @property
    def buffers(self) -> Sequence[Buffer]:
        return ()

    def bound(self, most: Mapping[str, int], inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[Mapping[str, int]], None]:
        raise no_room_for_more(self.tools)


def no_room_for_more(tools: DeviceTools) -> CompileError:
    """Return C0105 for a model on arrays with room for larger sizes."""
    title = f"not supported yet: models with room for larger sizes for `{tools.vendor.name}`"
    return error("C0105", title, help="run the model with arrays of the sizes at hand")


def _known(node: Kernel, values: Mapping[str, int]) -> Kernel:
    """Return a kernel with its program at known sizes, which reports are about."""
    to = {name: Int(values[name]) for name in node.program.sizes}
    return replace(node, program=substitute_sizes(node.program, to)) if to else node
