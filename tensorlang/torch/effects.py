"""Operators of a graph that return nothing and are there for what they do, such as to raise an error where a matrix has no inverse.

torch orders them by tokens, which stand among the inputs and the outputs of a graph. They are taken out of it, and their tensors become
outputs: torch itself runs them on these before results are returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tensorlang.diagnostics import error
from tensorlang.torch.complex_numbers import place_of


@dataclass(frozen=True, slots=True)
class Effect:
    """A call of an operator; `positions` says which arguments are outputs of the graph, and which ones."""

    operator: Any
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    positions: Mapping[int, int]

    def run(self, results: Sequence[Any]) -> None:
        """Call the operator on what a graph returned. Raises what it raises."""
        given = [results[self.positions[k]] if k in self.positions else a for k, a in enumerate(self.arguments)]
        self.operator(*given, **self.named)


def without_effects(module: Any) -> tuple[Effect, ...]:
    """Take the effects out of a graph, which is changed, and return them in order. Raises CompileError O010 for one that returns
    something."""
    (output,) = module.graph.find_nodes(op="output")
    added: list[torch.fx.Node] = []
    tokens: set[torch.fx.Node] = set()
    found: list[Effect] = []
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects):
        token, operator, *arguments = node.args
        if operator._schema.returns:
            raise error("O010", f"`{operator}` changes something and returns something", notes=(place_of(node),))
        positions = {}
        for k, argument in enumerate(arguments):
            if isinstance(argument, torch.fx.Node):
                positions[k] = len(output.args[0]) + len(added)
                added.append(argument)
        found.append(Effect(operator, tuple(arguments), node.kwargs, positions))
        for after in list(node.users):
            after.replace_all_uses_with(token)
            module.graph.erase_node(after)
        module.graph.erase_node(node)
        if token.op == "placeholder":
            token.meta["val"] = None
            tokens.add(token)
    output.args = ((*(None if x in tokens else x for x in output.args[0]), *added),)
    return tuple(found)
