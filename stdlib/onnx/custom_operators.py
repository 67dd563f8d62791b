"""Operators of a user's files for nodes of domains that ONNX does not have: a node's operator is one of the file, by its name.

    domain::Name(x, y, alpha=…)  ─►  op Name(x: …, y: …, attr alpha: float) -> (…)

Inputs are the tensors of the operator in order, outputs its results; attributes and sizes go by name. What calls kernels that are not in
the language becomes several nodes of the graph, as it does alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stdlib.onnx.model import Attribute, Node
from stdlib.onnx.problems import Refusal, quoted
from stdlib.onnx.site import Argument, Result, Rule, Site, argument_type, flat
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import Module
from tensorlang.diagnostics import CompileError
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove

EVERY_DOMAIN = "*"
"""Stands for all domains but ONNX's."""


@dataclass(slots=True)
class CustomOperators:
    """Files by the domains that they are for."""

    modules: Mapping[str, Module] = field(default_factory=dict)
    _programs: dict[object, Program] = field(default_factory=dict)

    def module_of(self, domain: str, op: str) -> Module | None:
        """Return the file that has the operator of a node, None where no file does."""
        if domain in ("", "ai.onnx"):
            return None
        for key in (domain, EVERY_DOMAIN):
            module = self.modules.get(key)
            if module is not None and op in module.offered:
                return module
        return None

    def rule_for(self, node: Node) -> Rule | None:
        """Return the rule for a node whose operator a file has."""
        module = self.module_of(node.domain, node.op)
        return None if module is None else lambda site: self._applied(site, module)

    def _applied(self, site: Site, module: Module) -> Result:
        operator = module.operators[site.node.op]
        args = _arguments(site, operator)
        attrs, sizes = _numbers(site, operator)
        try:
            found = self._program(module, operator.name, args, attrs, sizes)
        except CompileError as problem:
            if all(d.code.startswith("R") for d in problem.diagnostics):
                raise site.mismatch(args, problem) from problem
            raise
        return site.apply_segments(found, flat(args))

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
    given = list(site.inputs)
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
            raise Refusal("O005", f"{what} does not exist", f"`{operator.name}` has {', '.join(map(quoted, params)) or 'none'}")
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
