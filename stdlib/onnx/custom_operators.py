"""Operators of a user's files for nodes of domains that ONNX does not have: a node's operator is one of the
file, by its name, or the one that is given for it.

    domain::Name(x, y, alpha=…)  ─►  op Name(x: …, y: …, attr alpha: float) -> (…)     or the operator that is given for it

Inputs are the tensors of the operator in order, outputs its results; attributes and sizes go by name. What calls kernels that are not in
the language becomes several nodes of the graph, as it does alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stdlib.onnx.items import Argument, argument_type, flat
from stdlib.onnx.model import Attribute, Node
from stdlib.onnx.problems import Refusal, quoted
from stdlib.onnx.site import Result, Rule, Site
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import Module
from tensorlang.diagnostics import CompileError
from tensorlang.runtime.custom_nodes import Custom, Found
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove


@dataclass(slots=True)
class CustomNodes:
    """Rules for nodes whose operators are custom ones."""

    custom: Custom = field(default_factory=Custom)
    _programs: dict[object, Program] = field(default_factory=dict)

    def is_custom(self, domain: str, op: str, version: int, defined: bool) -> bool:
        """Tell whether nodes `domain::op` are custom ones; `defined`: whether ONNX or the model says what they are. Then only an operator
        that is given takes their place, not one that a package offers."""
        return self._find(domain, op, version, defined) is not None

    def how(self, domain: str, op: str, version: int) -> str:
        """Return what to do about nodes that nothing is there for."""
        return self.custom.how(domain, op, version)

    def _find(self, domain: str, op: str, version: int, defined: bool) -> Found | None:
        found, installed = self.custom.find(domain, op, version), self.custom.installed
        return found if found is not None or defined or installed is None else installed.find(domain, op, version)

    def rule_for(self, node: Node) -> Rule | None:
        """Return the rule for a node whose operator is a custom one."""
        found = self._find(node.domain, node.op, node.version, not node.custom)
        return None if found is None else lambda site: self._applied(site, found)

    def _applied(self, site: Site, found: Found) -> Result:
        operator = found.module.operators[found.name]
        args = _arguments(site, operator)
        attrs, sizes = _numbers(site, operator)
        try:
            program = self._program(found.module, found.name, args, attrs, sizes)
        except CompileError as problem:
            if all(d.code.startswith("R") for d in problem.diagnostics):
                raise site.mismatch(args, problem) from problem
            raise
        return site.apply_segments(program, flat(args))

    def _program(
        self, module: Module, name: str, args: tuple[Argument, ...], attrs: Mapping[str, object], sizes: Mapping[str, int]
    ) -> Program:
        types = tuple(map(argument_type, args))
        key = (id(module), name, types, repr(sorted(attrs.items())), repr(sorted(sizes.items())))
        if key not in self._programs:
            made = instantiate(module, name, types, attrs, sizes)
            prove(made)
            self._programs[key] = made
        return self._programs[key]


def _arguments(site: Site, operator: sx.Operator) -> tuple[Argument, ...]:
    """Return the node's inputs as the tensors of the operator. Raises Refusal O012 for too many."""
    tensors = [p for p in operator.params if p.kind == "tensor"]
    given = [site.maybe(k) for k in range(len(site.inputs))]
    out: list[Argument] = []
    for param in tensors:
        if param.each:
            out.append(tuple(v for v in given if v is not None))
            given = []
        else:
            out.append(given.pop(0) if given else None)
    if given:
        raise site.wrong(f"it has {len(site.inputs)} inputs, and the operator of that name takes {len(tensors)}")
    return tuple(out)


def _numbers(site: Site, operator: sx.Operator) -> tuple[dict[str, object], dict[str, int]]:
    """Return the node's attributes as those of the operator, and as its sizes. Raises Refusal O005 for what it has not."""
    params = {p.name: p for p in operator.params if p.kind != "tensor"}
    attrs: dict[str, object] = {}
    sizes: dict[str, int] = {}
    for name, value in site.node.attributes.items():
        param = params.get(name)
        what = f"attribute {quoted(name)} of node {quoted(site.node.label)}"
        if param is None:
            help = f"leave it out of the node, or declare it: `attr {name}: …`"
            raise Refusal("O005", f"{what} does not exist", f"`{operator.name}` has {', '.join(map(quoted, params)) or 'none'}", help=help)
        if isinstance(value, np.ndarray):
            raise Refusal("O005", f"{what} is a tensor", f"`{operator.name}` takes numbers and texts")
        if param.kind == "size":
            if not isinstance(value, int):
                raise Refusal("O005", f"{what} is no whole number", f"it is a size of `{operator.name}`")
            sizes[name] = value
        else:
            attrs[name] = _as_declared(param, value)
    return attrs, sizes


def _as_declared(param: sx.Param, value: Attribute) -> object:
    """Return 0 and 1 as truth values where these are declared: ONNX has none."""
    kind = param.type.name if isinstance(param.type, sx.Id) else "int"
    return bool(value) if kind == "bool" and value in (0, 1) else value
