"""Programs of ATen as graphs of library operators.

    node of ATen ─rule→ kernels, views, constants ─→ graph

Integers of the program are computed while it is read: they are numbers, or sizes that stay open. Everything that is not supported is
reported at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stdlib.aten.call import Call
from stdlib.aten.numbers import ARITHMETIC
from stdlib.aten.table import rule_for
from stdlib.onnx.graph_builder import Builder
from stdlib.onnx.items import Argument, argument_type, flat
from stdlib.onnx.problems import Refusal, Unsupported, quoted
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.graph.edit import reads, writes
from tensorlang.graph.nodes import Graph, Value, View
from tensorlang.graph.sizes import Size, UnequalSizes
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.signature import extents_text
from tensorlang.torch.program import Block, Node, Program, Ref, resolved

Shapes = Mapping[str, tuple[int, ...]]


def imported(program: Program, shapes: Shapes | None) -> Graph:
    """Return the graph of a program for shapes of its inputs. Raises CompileError O010 for what is not supported, O011 for inputs whose
    shapes are not known, O012 for what does not fit."""
    return _Import(program, shapes or {}).run()


def check_operators(program: Program) -> None:
    """Raise CompileError O010 with every operator that nothing is there for."""
    missing = [
        n for n in program.all_nodes() if not (n.op in _INTEGERS or n.op in ARITHMETIC or n.op in program.operators or rule_for(n.op))
    ]
    if missing:
        notes = tuple(dict.fromkeys(f"operator {n.op}" + ("" if "::" in n.op else " of ATen") for n in missing))
        help = (
            "by way of ONNX there may be more: `torch.onnx.export(model, args, dynamo=True)`, and `tensorlang.compile` of what it returns"
        )
        raise CompileError(Diagnostic("O010", "this model needs what is not supported yet", (), notes, help))


class _Import:
    def __init__(self, program: Program, shapes: Shapes) -> None:
        self.program, self.shapes = program, shapes
        nodes = list(program.all_nodes())
        names = {i.name for i in program.inputs} | set(program.constants) | {node.name for node in nodes}
        extents: list[object] = [n for shape in shapes.values() for n in shape]
        symbols = next((n.symbols for n in extents if isinstance(n, Size)), None)
        self.builder = Builder(names, None, symbols)
        self.used: dict[str, set[int]] = {}
        """Which of several results of a node are read."""
        for node in nodes:
            if node.op == "getitem" and isinstance(node.args[0], Ref):
                self.used.setdefault(node.args[0].name, set()).add(node.args[1])
        self.found: dict[str, Any] = {}
        """What the values of the program are: values of the graph, numbers, sizes, or several of these."""

    def run(self) -> Graph:
        check_operators(self.program)
        self._inputs()
        for name, array in self.program.constants.items():
            self.found[name] = self.builder.constant(name, array)
        for node in self.program.nodes:
            if self.builder.symbols is not None:
                self.builder.symbols.unequal = None
            try:
                self._run(node)
            except Refusal as refused:
                raise self._refused(CompileError(_placed(refused.diagnostic, node))) from None
            except Unsupported as missing:
                raise CompileError(
                    Diagnostic("O010", "this model needs what is not supported yet", (), (f"{missing}{_at(node)}",))
                ) from None
        return self._graph()

    def _run(self, node: Node) -> None:
        start = len(self.builder.nodes)
        self.found[node.name] = self._result(node)
        self.builder.bound(start)

    def _returned(self, block: Block, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return what a graph inside of the program returns for arguments."""
        self.found |= zip(block.inputs, args, strict=True)
        for node in block.nodes:
            self._run(node)
        return tuple(resolved(a, self.found.__getitem__) for a in block.outputs)

    def _refused(self, problem: CompileError) -> Exception:
        """Return what is raised for a problem: where sizes are not equal, they may be one symbol the next time."""
        symbols = self.builder.symbols
        return problem if symbols is None or symbols.unequal is None else UnequalSizes(symbols.unequal, problem)

    def _inputs(self) -> None:
        problems: list[Diagnostic] = []
        symbols: dict[str, Any] = {}
        for given in self.program.inputs:
            shape: Sequence[Any] = self.shapes.get(given.name, given.dims)
            if any(not isinstance(n, int | Size) for n in shape):
                declared = f"it is {given.dtype}{extents_text(given.dims)}"
                help = f"give its shape: shapes={{{given.name!r}: (…)}}"
                problems.append(Diagnostic("O011", f"input {quoted(given.name)} leaves dimensions open", (), (declared,), help))
                continue
            fits = len(shape) == len(given.dims) and all(not isinstance(d, int) or d == n for d, n in zip(given.dims, shape, strict=True))
            for dim, extent in zip(given.dims, shape, strict=False):
                fits &= not isinstance(dim, str) or symbols.setdefault(dim, extent) == extent
            if not fits:
                title = f"input {quoted(given.name)} cannot have the shape {list(shape)}"
                problems.append(Diagnostic("O011", title, (), (f"it is {given.dtype}{extents_text(given.dims)}",)))
                continue
            self.found[given.name] = self.builder.value(given.name, given.dtype, tuple(shape))
        for symbol, least in self.program.least.items():
            if symbol in symbols and not symbols[symbol] >= least:
                problems.append(
                    Diagnostic("O011", f"the size {quoted(symbol)} is {symbols[symbol]}, and the program is for {least} or more")
                )
        if problems:
            raise CompileError(*problems)
        self.found |= {name: symbols[size] if isinstance(size, str) else size for name, size in self.program.sizes.items()}

    def _result(self, node: Node) -> Any:
        args = tuple(resolved(a, self.found.__getitem__) for a in node.args)
        named = {name: resolved(a, self.found.__getitem__) for name, a in node.named.items()}
        if node.op in _INTEGERS:
            return _INTEGERS[node.op](*args)
        site = Call(self.builder, node, self.used.get(node.name, ()), self._returned)
        if node.op in ARITHMETIC:
            return ARITHMETIC[node.op](site, *args)
        given = self.program.operators.get(node.op)
        result = _applied(site, given, args, named) if given is not None else self._by_rule(site, node, args, named)
        _check_types(node, result)
        return result

    def _by_rule(self, site: Call, node: Node, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        rule = rule_for(node.op)
        assert rule is not None
        try:
            return rule(site, *args, **named)
        except TypeError as problem:
            if "argument" in str(problem) and problem.__traceback__ is not None and problem.__traceback__.tb_next is None:
                raise Unsupported(f"{node.op} with {len(args)} arguments and {', '.join(named) or 'no others'}") from None
            raise

    def _graph(self) -> Graph:
        outputs = self._outputs()
        b = self.builder
        inputs = tuple(i.name for i in self.program.inputs)
        used = {*inputs, *outputs, *(name for n in b.nodes for name in (*reads(n), *writes(n)))}
        return Graph(
            self.program.name,
            inputs,
            tuple(outputs),
            {name: value for name, value in b.values.items() if name in used},
            {name: np.asarray(array) for name, array in b.constants.items() if name in used},
            tuple(b.nodes),
            b.symbols,
        )

    def _outputs(self) -> list[str]:
        """Return the names of the outputs, each a value of its own that a node makes."""
        b = self.builder
        made = {name for n in b.nodes for name in writes(n)}
        names = self.program.output_names()
        renamed: dict[str, str] = {}
        for k, name in names:
            value = self.found[self.program.outputs[k].name]
            if not isinstance(value, Value):
                value = Call(b, Node(name, "output", (), {}, ())).value(value)
            b.store_sizes(value.name)
            if value.name in made and value.name not in renamed:
                renamed[value.name] = name
            elif value.name in b.constants:
                b.constants[name] = b.constants[value.name]
                b.value(name, value.dtype, value.shape)
            else:
                b.value(name, value.dtype, value.shape)
                b.nodes.append(View(b.label(f"output {name}"), renamed.get(value.name, value.name), name))
        b.rename({old: new for old, new in renamed.items() if old != new})
        return [name for _, name in names]


# ---------------------------------------------------------------- integers


def _extent(x: Value, axis: int) -> Any:
    return x.shape[axis]


_INTEGERS: dict[str, Callable[..., Any]] = {
    "getitem": operator.getitem,
    "sym_size.int": _extent,
    "sym_numel.default": lambda x: int(np.prod(x.shape)),
    **{
        f"{check}.{overload}": lambda *_, **__: None
        for check in ("_assert_scalar", "_assert_async", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size")
        for overload in ("default", "msg")
    },
}
"""What programs ask of values and of integers, by what torch calls it."""


# ---------------------------------------------------------------- operators of the language


def _applied(n: Call, given: Operator, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return the results of an operator of the language."""
    params = given.declaration.params
    tensors = [p.name for p in params if p.kind == "tensor"]
    bound = dict(zip(tensors, args, strict=False)) | {name: value for name, value in named.items() if value is not None}
    arguments: tuple[Argument, ...] = tuple(bound.get(name) for name in tensors)
    attrs, sizes = ({p.name: _plain(bound[p.name]) for p in params if p.kind == kind and p.name in bound} for kind in ("attr", "size"))
    try:
        program = given.instantiated(tuple(map(argument_type, arguments)), attrs, sizes)
    except CompileError as problem:
        if all(d.code.startswith("R") for d in problem.diagnostics):
            raise n.mismatch(arguments, problem) from problem
        raise
    found = n.apply_segments(program, flat(arguments))
    return found if len(found) > 1 else found[0]


def _plain(given: Any) -> Any:
    return tuple(map(_plain, given)) if isinstance(given, tuple) else given.expression if isinstance(given, Size) else given


# ---------------------------------------------------------------- what torch says of results


def _check_types(node: Node, result: Any) -> None:
    """Raise Refusal O012 where a result is of another type than torch says."""
    results = result if isinstance(result, tuple) else (result,)
    for k, (value, expected) in enumerate(zip(results, node.results, strict=False)):
        if not isinstance(value, Value) or expected is None:
            continue
        dtype, shape = expected
        same_shape = len(shape) == len(value.shape) and all(
            n is None or not isinstance(m, int) or n == m for n, m in zip(shape, value.shape, strict=True)
        )
        if value.dtype != dtype or not same_shape:
            found, said = f"{value.dtype}{list(value.shape)}", f"{dtype}{extents_text(shape)}"
            raise Refusal("O012", f"result {k} of {node.op} is {found} here and {said} in torch")


def _placed(diagnostic: Diagnostic, node: Node) -> Diagnostic:
    return Diagnostic(diagnostic.code, diagnostic.title, diagnostic.labels, (*diagnostic.notes, *_written(node)), diagnostic.help)


def _written(node: Node) -> tuple[str, ...]:
    return (f"written as {node.place}",) if node.place else ()


def _at(node: Node) -> str:
    return f", written as {node.place}" if node.place else ""
