"""Every operand but one may be a constant: native code then computes what it computes when all of them are fed.

Constants are folded into others, packed, kept in other layouts than what is fed, which cases that feed everything never show. Each
kind of case of onnx's suite with several operands of floats is compiled with all of them constants but the first or the last one: the
kinds of an operator take turns, a single one has both. Cases of one kind differ in numbers alone. Operators of our own are fed the first
and the last one at a size beyond that of vectors, one of these at sizes below.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import cache
from itertools import islice
from math import prod

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx_evaluate import Array, as_array, close, suite
from operators_at_sizes import EXAMPLES, Example, arguments, sizes_of

import tensorlang as tl
from polyhedral import affine
from stdlib.onnx import Importer
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.check.instantiate import instantiate
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.programs import result_tensors
from tensorlang.runtime.jobs import optimised
from tensorlang.tensor import walk
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Tensor

SHARES = 8
"""How many tests share the suite out."""
MANY_AXES = 4


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or "float" in array.dtype.name


def feeds_of(case: TestCase) -> dict[str, Array] | None:
    """Return the inputs of a case by name, or None where some are not tensors."""
    inputs, _ = case.data_sets[0]
    if any(v.type.WhichOneof("value") != "tensor_type" for v in case.model.graph.input):
        return None
    return {v.name: as_array(a) for v, a in zip(case.model.graph.input, inputs, strict=False)}


def with_constants(model: ModelProto, arrays: dict[str, Array], names: Iterable[str]) -> ModelProto:
    """Return the model with some of its inputs as initialisers."""
    made = ModelProto()
    made.CopyFrom(model)
    fixed = set(names)
    kept = [given for given in made.graph.input if given.name not in fixed]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in sorted(fixed))
    return made


def wrong_with(case: TestCase, feeds: dict[str, Array], fed: str) -> bool:
    """Tell whether the case goes wrong when of its floats `fed` alone is no constant. What is refused is not wrong."""
    constant = [name for name, array in feeds.items() if name != fed and (is_float(array) or array.ndim <= 1)]
    try:
        model = tl.compile(with_constants(case.model, feeds, constant), threads=1, importers=[Importer()])
        results = model.run({name: array for name, array in feeds.items() if name not in constant})
    except CompileError as refusal:
        return not all(d.code in ("O010", "O013") for d in refusal.diagnostics)
    expected = case.data_sets[0][1]
    return not all(close(np.asarray(a), b, case) for a, b in zip(results.values(), expected, strict=True))


def kind(case: TestCase, feeds: dict[str, Array]) -> Hashable:
    """Return what a case asks of the compiler but for numbers: operators, what their attributes say in words, operands, the sizes of their
    types and how many axes they have, of many no matter how many."""
    nodes = [
        (node.op_type, sorted((a.name, a.s) for a in node.attribute if a.s), [bool(v) for v in node.input], [bool(v) for v in node.output])
        for node in case.model.graph.node
    ]
    return repr((nodes, [(array.dtype.kind, array.dtype.itemsize, min(array.ndim, MANY_AXES)) for array in feeds.values()]))


@cache
def tried() -> dict[tuple[str, str], dict[str, Array]]:
    """Return the inputs of what is tried, by the name of the case and the operand that is fed."""
    operators: dict[Hashable, dict[Hashable, tuple[str, list[str], dict[str, Array]]]] = {}
    for name, case in suite().items():
        feeds = feeds_of(case) or {}
        floats = [n for n, array in feeds.items() if is_float(array)]
        if len(floats) > 1:
            kinds = operators.setdefault(tuple(node.op_type for node in case.model.graph.node), {})
            kinds.setdefault(kind(case, feeds), (name, floats, feeds))
    found = {}
    for kinds in operators.values():
        for number, (name, floats, feeds) in enumerate(kinds.values()):
            fed = (0, -1) if len(kinds) == 1 else (-(number % 2),)
            found |= {(name, floats[at]): feeds for at in fed}
    return found


@pytest.mark.parametrize("share", range(SHARES))
def test_a_case_computes_the_same_with_constant_operands(share: int) -> None:
    mine = list(tried().items())[share::SHARES]
    assert [f"{name} feeding {fed}" for (name, fed), feeds in mine if wrong_with(suite()[name], feeds, fed)] == []


# ---- operators of our own


def one_kernel(example: Example, n: int) -> tuple[Graph, list[Array]]:
    """Return a graph of one operator at a size, and its arguments."""
    types, arrays = arguments(example.inputs(n))
    program = instantiate(example.module, example.operator, types, dict(example.attrs), dict(example.sizes(n)))
    known = {name: affine.to_expr(size) for name, size in sizes_of(program, arrays, example.sizes(n)).items()}
    program = walk.substitute_sizes(program, known)
    inputs, outputs = tuple(f"in{k}" for k in range(len(arrays))), tuple(f"out{k}" for k in range(len(program.results)))
    values = {name: Value(name, p.dtype, a.shape) for name, p, a in zip(inputs, program.params, arrays, strict=True)}
    values |= {name: Value(name, t.dtype, seen(t)) for name, t in zip(outputs, result_tensors(program), strict=True)}
    return Graph("g", inputs, outputs, values, {}, (Kernel("only", program, inputs, outputs),)), arrays


def seen(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape that the caller sees."""
    extents = iter(walk.shape_of(tensor, {}))
    return tuple(prod(islice(extents, n)) for n in tensor.grouping or (1,) * len(tensor.shape))


@pytest.mark.parametrize(("n", "which"), [(1, (-1,)), (5, (0,)), (18, (0, -1))], ids=["last-1", "first-5", "both-18"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_operator_computes_the_same_with_constant_operands(name: str, n: int, which: tuple[int, ...]) -> None:
    graph, arrays = one_kernel(EXAMPLES[name], n)
    [kernel] = graph.nodes
    assert isinstance(kernel, Kernel)
    named = dict(zip((p.name for p in kernel.program.params), arrays, strict=True))
    expected = interpret(kernel.program, {}, named)
    tools = toolchain(threads=1)
    for fed in sorted({at % len(arrays) for at in which}):
        constants = {v: a for k, (v, a) in enumerate(zip(graph.inputs, arrays, strict=True)) if k != fed}
        given = replace(graph, inputs=(graph.inputs[fed],), constants=constants)
        results = build(optimised(given, tools), tools)([arrays[fed].copy(order="C")])
        for result, param in zip(results, kernel.program.results, strict=True):
            np.testing.assert_allclose(result.reshape(expected[param].shape), expected[param], rtol=1e-3, atol=1e-4)
