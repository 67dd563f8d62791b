"""Programs that call kernels which are not in the language, as graphs: a node for each part that is compiled, and for each call."""

from __future__ import annotations

from tensorlang.graph.nodes import Extern, Graph, Kernel, Node, Value
from tensorlang.tensor.nodes import ExternCall, Program
from tensorlang.tensor.segments import segments
from tensorlang.tensor.walk import caller_shape, tensor_table


def graph_of(program: Program) -> Graph:
    """Return the graph of a program without open sizes; its values are called as the tensors are."""
    nodes: list[Node] = []
    for part in segments(program):
        match part:
            case Program():
                nodes.append(Kernel(part.name, part, tuple(p.name for p in part.params), part.results))
            case ExternCall():
                nodes.append(Extern(f"extern {part.results[0].name}", part, inputs_of(part), tuple(t.name for t in part.results)))
    params = tuple(p.name for p in program.params)
    used = {*params, *(name for node in nodes if isinstance(node, Kernel | Extern) for name in (*node.inputs, *node.outputs))}
    values = {t.name: Value(t.name, t.dtype, caller_shape(t, {})) for t in tensor_table(program).values() if t.name in used}
    return Graph(program.name, params, program.results, values, {}, tuple(nodes))


def inputs_of(call: ExternCall) -> tuple[str, ...]:
    """Return the tensors that a call is given, in order, one perhaps several times."""
    return tuple(name for name in call.arguments if name is not None)


def trusted(graph: Graph) -> tuple[str, ...]:
    """Return a sentence for each kernel of a graph that nothing is proven of."""
    calls = [node.call for node in graph.nodes if isinstance(node, Extern)]
    return tuple(dict.fromkeys(trusted_call(call) for call in calls))


def trusted_call(call: ExternCall) -> str:
    """Return what is said of a kernel that nothing is proven of."""
    return f"trusted: extern {call.operator} from {call.kernel}, of which nothing is proven"
