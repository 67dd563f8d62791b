"""ONNX models as graphs of library operators.

    file ─reader→ model ─rule of each node→ kernels, views, constants ─→ graph

Everything that is not supported is reported at once, node by node; so is everything else that can be found without what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ParamSpec

import numpy as np
from onnx import ModelProto

from codegen.dtypes import DType
from stdlib.onnx.custom_operators import CustomNodes
from stdlib.onnx.entry_point import Importer as Importer
from stdlib.onnx.model import Array, Declared, Model, Node
from stdlib.onnx.problems import Refusal, Unsupported, quoted
from stdlib.onnx.reader import AnyDomain, read
from stdlib.onnx.site import Builder, Result, Rule, Site
from stdlib.onnx.table import rule_for
from tensorlang.diagnostics import CompileError, Diagnostic, error
from tensorlang.graph.edit import reads, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Part, Value, View
from tensorlang.graph.nodes import Node as GraphNode
from tensorlang.runtime.custom_nodes import Custom
from tensorlang.runtime.signature import Signature, TensorSignature

P = ParamSpec("P")


def imported(
    source: str | os.PathLike[str] | bytes | ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    operators: Custom | None = None,
) -> Graph:
    """Return the graph of a model, with the shapes and elements of inputs that are given, and the operators of other domains
    (`Importer.load`). Raises CompileError."""
    custom = CustomNodes(operators or Custom())
    model = read(source, custom)
    return to_graph(with_constants(model, constants), shapes, custom)


def signature_of(source: str | os.PathLike[str] | bytes | ModelProto) -> Signature:
    """Return the signature of a model as it declares it. Raises CompileError."""
    model = read(source, AnyDomain())
    taken, returned = (tuple(TensorSignature(d.name, d.dtype, d.dims) for d in all_) for all_ in (model.inputs, model.outputs))
    return Signature(model.name, taken, returned)


def with_constants(model: Model, constants: Mapping[str, Array]) -> Model:
    """Return the model with some of its inputs fixed. Raises O011 when they are no inputs, or do not have these elements."""
    inputs = {i.name: i for i in model.inputs}
    for name, array in constants.items():
        declared = inputs.get(name)
        if declared is None or declared.dtype is None or declared.dtype.numpy != array.dtype:
            raise error("O011", f"{quoted(name)} cannot be fixed to {array.dtype}{list(array.shape)}", notes=("there is no such input",))
    kept = tuple(i for i in model.inputs if i.name not in constants)
    return replace(model, inputs=kept, initializers={**model.initializers, **constants})


def to_graph(model: Model, shapes: Mapping[str, tuple[int, ...]], custom: CustomNodes | None = None) -> Graph:
    """Return the graph of a model that was read; `custom` has operators of domains that ONNX does not have. Raises CompileError (O010 to
    O014) with everything that was found."""
    return _Import(model, custom or CustomNodes()).run(shapes)


def is_onnx_model(data: bytes) -> bool:
    """Tell whether protobuf makes a model with a version of these bytes."""
    try:
        return bool(ModelProto.FromString(data).ir_version)
    except Exception:  # whatever protobuf makes of bytes that are something else
        return False


class _Import:
    def __init__(self, model: Model, custom: CustomNodes) -> None:
        self.model, self.custom = model, custom
        names = {i.name for i in model.inputs} | set(model.initializers) | {o for n in model.nodes for o in n.outputs}
        self.builder = Builder(names)
        self.environment: dict[str, Value] = {}
        self.problems: list[Diagnostic] = []
        self.missing: list[str] = []

    def run(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        self._inputs(shapes)
        self._unknown_operators()
        self._stop_if(bool(self.problems) and not self.missing)
        if not self.problems:
            for name, array in self.model.initializers.items():
                self._guard(self._initializer, name, array)
            for node in self.model.nodes:
                self._guard(self._node, node)
        if not self.problems and not self.missing:
            for output in self.model.outputs:
                self._guard(self._output, output)
        self._stop_if(bool(self.problems or self.missing))
        return self._graph()

    def _guard(self, step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a step, keeping what it refuses for the report."""
        try:
            step(*args, **kwargs)
        except Refusal as refusal:
            self.problems.append(refusal.diagnostic)
        except Unsupported as missing:
            self.missing.append(str(missing))

    def _stop_if(self, stop: bool) -> None:
        if not stop:
            return
        found = list(self.problems)
        if self.missing:
            notes = tuple(dict.fromkeys(self.missing))
            found.insert(0, Diagnostic("O010", "this model needs what is not supported yet", (), notes))
        raise CompileError(*found)

    def _define(self, name: str, value: Value) -> None:
        self.environment[name] = value

    def _initializer(self, name: str, array: Array) -> None:
        self._define(name, self.builder.constant(name, array))

    # ---- inputs

    def _inputs(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        known = {i.name: i for i in self.model.inputs}
        for name in shapes:
            if name not in known:
                there = ", ".join(quoted(n) for n in known) or "no inputs"
                self.problems.append(
                    Diagnostic("O011", f"a shape is given for {quoted(name)}, which is not an input", (), (f"the model has {there}",))
                )
        symbols: dict[str, int] = {}
        for declared in self.model.inputs:
            self._guard(self._bind_symbols, declared, shapes.get(declared.name), symbols)
        for declared in self.model.inputs:
            self._guard(self._input, declared, shapes.get(declared.name), symbols)

    def _bind_symbols(self, declared: Declared, given: tuple[int, ...] | None, symbols: dict[str, int]) -> None:
        if given is None or declared.dims is None:
            return
        fits = len(given) == len(declared.dims) and all(not isinstance(d, int) or d == n for d, n in zip(declared.dims, given, strict=True))
        if not fits or any(n < 0 for n in given):
            raise Refusal(
                "O011", f"input {quoted(declared.name)} cannot have the shape {list(given)}", f"the model declares {_dims(declared)}"
            )
        for dim, extent in zip(declared.dims, given, strict=True):
            if isinstance(dim, str) and symbols.setdefault(dim, extent) != extent:
                raise Refusal(
                    "O011", f"dimension {quoted(dim)} would be {symbols[dim]} and {extent}", f"input {quoted(declared.name)} disagrees"
                )

    def _input(self, declared: Declared, given: tuple[int, ...] | None, symbols: Mapping[str, int]) -> None:
        if given is not None:
            shape = tuple(int(n) for n in given)
        else:
            if declared.dims is None:
                raise Refusal("O011", f"input {quoted(declared.name)} has no shape", help=_give(declared.name, "…"))
            resolved = [symbols.get(d) if isinstance(d, str) else d for d in declared.dims]
            unknown = [str(d or f"number {k}") for k, (d, n) in enumerate(zip(declared.dims, resolved, strict=True)) if n is None]
            if unknown:
                what = ", ".join(quoted(d) for d in unknown)
                plural = "dimension" if len(unknown) == 1 else "dimensions"
                raise Refusal(
                    "O011",
                    f"input {quoted(declared.name)} leaves the {plural} {what} open",
                    f"the model declares {_dims(declared)}",
                    help=_give(declared.name, ", ".join("…" if n is None else str(n) for n in resolved)),
                )
            shape = tuple(n for n in resolved if n is not None)
        assert declared.dtype is not None
        self._define(declared.name, self.builder.value(declared.name, declared.dtype, shape))

    # ---- nodes

    def _unknown_operators(self) -> None:
        for node in self.model.nodes:
            self._guard(self._rule_for, node)

    def _rule_for(self, node: Node) -> Rule:
        return self.custom.rule_for(node) or rule_for(node)

    def _node(self, node: Node) -> None:
        if any(name and name not in self.environment for name in node.inputs):
            return  # what it depends on has been reported
        inputs = [self.environment[name] if name else None for name in node.inputs]
        start = len(self.builder.nodes)
        result = self._rule_for(node)(Site(self.builder, node, inputs))
        self._bind(node, result, start)

    def _bind(self, node: Node, result: Result, start: int) -> None:
        """Give what the rule made the names that the model uses. What it only passed on keeps its name."""
        results = result if isinstance(result, tuple) else (result,)
        made = {name for n in self.builder.nodes[start:] for name in writes(n)}
        renamed: dict[str, str] = {}
        for k, name in enumerate(node.outputs):
            if not name:
                continue
            value = results[k] if k < len(results) else None
            if value is None:
                raise Unsupported(f"node {quoted(node.label)}: output {k} of {node.op}")
            if (value.name in made or self._is_new_constant(value)) and value.name not in renamed:
                renamed[value.name] = name
                value = replace(value, name=name)
            self._define(name, value)
        self._rename(renamed, start)
        self.builder.bound(start)

    def _is_new_constant(self, value: Value) -> bool:
        return value.name in self.builder.constants and value.name not in self.model.initializers and value.name not in self.environment

    def _rename(self, names: Mapping[str, str], start: int) -> None:
        for old, new in names.items():
            self.builder.values[new] = replace(self.builder.values.pop(old), name=new)
            if old in self.builder.constants:
                self.builder.constants[new] = self.builder.constants.pop(old)
        self.builder.nodes[start:] = [_renamed(n, names) for n in self.builder.nodes[start:]]

    # ---- outputs

    def _output(self, declared: Declared) -> None:
        value = self.environment[declared.name]
        if declared.dtype is not None and declared.dtype != value.dtype:
            raise Refusal("O012", f"output {quoted(declared.name)} is declared {declared.dtype} and computed as {value.dtype}")
        dims = declared.dims
        if dims is not None and (
            len(dims) != len(value.shape) or any(isinstance(d, int) and d != n for d, n in zip(dims, value.shape, strict=True))
        ):
            raise Refusal("O012", f"output {quoted(declared.name)} is declared {_dims(declared)} and computed as {list(value.shape)}")
        if value.name != declared.name:
            result = self.builder.value(declared.name, value.dtype, value.shape)
            if value.name in self.builder.constants:
                self.builder.constants[declared.name] = self.builder.constants[value.name]
            else:
                self.builder.nodes.append(View(self.builder.label(f"output {declared.name}"), value.name, declared.name))
            self._define(declared.name, result)

    def _graph(self) -> Graph:
        b = self.builder
        inputs = tuple(i.name for i in self.model.inputs)
        outputs = tuple(o.name for o in self.model.outputs)
        used = {*inputs, *outputs, *(name for n in b.nodes for name in (*reads(n), *writes(n)))}
        return Graph(
            self.model.name,
            inputs,
            outputs,
            {name: value for name, value in b.values.items() if name in used},
            {name: np.asarray(array) for name, array in b.constants.items() if name in used},
            tuple(b.nodes),
        )


def _renamed(node: GraphNode, names: Mapping[str, str]) -> GraphNode:
    match node:
        case Join() | Part():
            return node  # importers make none
        case Kernel() | Extern():
            return replace(
                node,
                inputs=tuple(names.get(v, v) for v in node.inputs),
                outputs=tuple(names.get(v, v) for v in node.outputs),
            )
        case View():
            return replace(node, input=names.get(node.input, node.input), output=names.get(node.output, node.output))


def _dims(declared: Declared) -> str:
    dims = "any shape" if declared.dims is None else "[" + ", ".join("?" if d is None else str(d) for d in declared.dims) + "]"
    return f"{_type(declared.dtype)}{dims}"


def _type(dtype: DType | None) -> str:
    return "" if dtype is None else str(dtype)


def _give(name: str, dims: str) -> str:
    return f"give its shape: shapes={{{name!r}: ({dims})}}"
