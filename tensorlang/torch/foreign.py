"""Operators of other libraries in a graph that torch captured: torch calls them, between pieces that are compiled.

    a = aten.mul(x, w)                  piece 0: takes x and w, returns a and d
    b = vision::nms(a, x)               called by torch
    c = aten.add(b, 1)                  piece 1: takes b and d, returns what the graph does
    d = aten.exp(x); return c + d

What such an operator computes is known to its library alone. There are as few pieces as can be: each has all that needs no more operators
called before it than those between the pieces before.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from tensorlang.torch.capture import Serves, operator_name
from tensorlang.torch.registration import registered

_TORCHS_OWN = ("aten", "prim", "prims")
_CALLED = (torch.ops.higher_order.auto_functionalized, torch.ops.higher_order.auto_functionalized_v2)
"""How torch calls an operator that changes what it is given: on copies, which it returns."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A graph of operators that are compiled. It takes and returns the values of the whole graph that are called so."""

    graph: Any
    taken: tuple[str, ...]
    returned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A node that torch runs; nodes among its arguments stand for the values of their names."""

    node: Any

    def run(self, values: Mapping[str, Any]) -> Any:
        """Return what the operator returns. Raises what it raises."""
        args, named = torch.fx.map_arg((self.node.args, self.node.kwargs), lambda n: values[n.name])
        return self.node.target(*args, **named)


Step: TypeAlias = Piece | Call


def steps_around_foreign(module: Any, serves: Serves) -> tuple[Step, ...]:
    """Return the pieces of a graph and the calls between them, in order; () where all of the graph is compiled."""
    nodes = [n for n in module.graph.nodes if n.op == "call_function"]
    called = set(_called(nodes, serves))
    if not called:
        return ()
    held = set(module.graph.find_nodes(op="get_attr"))
    stage: dict[Any, int] = {}
    for node in module.graph.nodes:
        before = [n for n in node.all_input_nodes if n in stage]
        stage[node] = max((stage[n] + (n in called and node not in called) for n in before), default=0)
    sizes = [n for n in module.graph.find_nodes(op="placeholder") if isinstance(n.meta.get("val"), torch.SymInt)]
    steps: list[Step] = []
    for k in range(max(stage[n] for n in nodes) + 1):
        own = [n for n in nodes if stage[n] == k and n not in called]
        if piece := _piece(module, own, sizes, held):
            steps.append(piece)
        steps += [Call(n) for n in nodes if stage[n] == k and n in called]
    return tuple(steps)


def held_values(module: Any) -> dict[str, Any]:
    """Return the tensors that a graph holds, by the names of the nodes that read them."""
    return {n.name: operator.attrgetter(n.target)(module) for n in module.graph.find_nodes(op="get_attr")}


def _called(nodes: Sequence[Any], serves: Serves) -> Iterator[Any]:
    """Yield the nodes that call operators of other libraries, and those that take their results apart."""
    found = set()
    for node in nodes:
        takes_apart = node.target is operator.getitem and node.args[0] in found
        if takes_apart or _is_foreign(node.args[0] if node.target in _CALLED else node.target, serves):
            found.add(node)
            yield node


def _is_foreign(target: Any, serves: Serves) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _TORCHS_OWN:
        return False
    return registered(target) is None and not serves(operator_name(target))


def _piece(module: Any, nodes: Sequence[Any], sizes: Sequence[Any], held: set[Any]) -> Piece | None:
    """Return `nodes` as a graph of their own, which also takes all sizes; None where nobody needs what they compute."""
    own = set(nodes)
    returned = [n for n in nodes if not own.issuperset(n.users)]
    if not returned:
        return None
    outside = dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in own)
    taken = [*sizes, *(n for n in outside if n not in held and n not in sizes)]
    graph, made = torch.fx.Graph(), dict[Any, Any]()
    for node in taken:
        made[node] = graph.placeholder(node.name)
        made[node].meta = dict(node.meta)
    for node in (*(n for n in outside if n in held), *nodes):
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[n] for n in returned))
    return Piece(torch.fx.GraphModule(module, graph), tuple(n.name for n in taken), tuple(n.name for n in returned))
