"""The invariants of a graph. Every pass is followed by this check; what it finds is our mistake, not the user's.

names       nodes have distinct names; a value is defined once, by the inputs, the constants, or one node, before it is read
constants   arrays have the dtype and the shape their value declares
externs     as kernels, and no value of theirs has a layout
loops       a body is a graph for which all of this holds; it takes and returns what is bound to it, row by row where that is said
kernels     inputs match the parameters and outputs the results of the program, in number, dtype and shape; its idioms hold
views       both sides hold the same number of elements of one dtype, in row-major order
joins       their parts are of one dtype and together as large as the whole, or rows in its block of storage; a part lies within its whole
layouts     they are proven to give every element of their value a cell of its own, in the block
borders     inputs and outputs of the graph have no layout, unless they are row-major with room between their rows
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from typing import TypeAlias, assert_never

from codegen.dtypes import DTYPES, DType
from polyhedral import affine
from tensorlang.diagnostics import InternalError
from tensorlang.graph.edit import is_stored_in_order, reads, size_bytes, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, Value, View
from tensorlang.graph.programs import result_tensors
from tensorlang.graph.sizes import Symbols, is_one, laid_out, same_shape, shape_in, to_expr
from tensorlang.schedule.injective import fault, sizes_in
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.idioms import refusal
from tensorlang.tensor.nodes import Program, Tensor

Types: TypeAlias = tuple[tuple[str, DType, tuple[int, ...]], ...]
Signature: TypeAlias = tuple[Types, Types]


def verify(graph: Graph, stage: str = "graph") -> Graph:
    """Return `graph`. Raises InternalError that names `stage` and lists the first problems if an invariant is broken."""
    found = list(islice(problems(graph), 8))
    if found:
        raise InternalError(stage, f"graph `{graph.name}`: " + "; ".join(found))
    return graph


def problems(graph: Graph) -> Iterator[str]:
    """Yield a sentence for each broken invariant."""
    yield from _names(graph)
    yield from _constants(graph)
    seen: dict[int, Signature] = {}  # of programs by identity: most nodes of a long graph share a few
    for node in graph.nodes:
        if all(name in graph.values for name in (*reads(node), *writes(node))):
            yield from _node(graph, node, seen)
    for value in graph.values.values():
        wrong = None if value.layout is None else _fault(value, value.layout, graph.symbols)
        if wrong is not None:
            yield f"the layout of `{value.name}` loses elements: {wrong}"
    for name in (*graph.inputs, *graph.outputs):
        if name in graph.values and not is_stored_in_order(graph.values[name]):
            yield f"`{name}` is an input or output and must be row-major"


def _fault(value: Value, layout: Layout, symbols: Symbols | None) -> str | None:
    """Return why a value's layout does not keep its elements, whatever the sizes are, as far as is assumed of them."""
    stored, shape = laid_out(layout), tuple(map(to_expr, value.shape))
    found = fault(stored, shape)
    if found is None or symbols is None:
        return found
    return fault(stored, shape, affine.conj(*symbols.conditions(sizes_in(stored, shape))))


def _names(graph: Graph) -> Iterator[str]:
    for name, count in Counter(node.name for node in graph.nodes).items():
        if count > 1:
            yield f"{count} nodes are called `{name}`"
    for key, value in graph.values.items():
        if key != value.name:
            yield f"`{value.name}` is listed as `{key}`"
    defined = Counter([*graph.inputs, *graph.constants])
    for node in graph.nodes:
        for name in (*reads(node), *writes(node)):
            if name not in graph.values:
                yield f"node `{node.name}` mentions the unknown value `{name}`"
        for name in reads(node):
            if name not in defined:
                yield f"node `{node.name}` reads `{name}` before it is defined"
        defined.update(writes(node))
    yield from (f"`{name}` is defined {count} times" for name, count in defined.items() if count > 1)
    yield from (f"`{name}` is never defined" for name in (*graph.outputs, *graph.values) if name not in defined)


def _constants(graph: Graph) -> Iterator[str]:
    for name, array in graph.constants.items():
        value = graph.values.get(name)
        if value is None:
            yield f"constant `{name}` is not among the values"
        elif array.dtype != value.dtype.numpy:
            yield f"constant `{name}` is declared {value.dtype} and holds {array.dtype}"
        elif array.shape != value.shape:
            yield f"constant `{name}` is declared {value.shape} and holds {array.shape}"


def _signature(program: Program, symbols: Symbols | None) -> Signature:
    """Return name, type and shape of the parameters and of the results of a program."""

    def types(tensors: tuple[Tensor, ...]) -> Types:
        return tuple((t.name, t.dtype, shape_in(t, symbols)) for t in tensors)

    return types(program.params), types(result_tensors(program))


def _unknown(program: Program, symbols: Symbols | None) -> list[str]:
    """Return the sizes of a program that no symbols of its graph stand for."""
    return [size for size in program.sizes if symbols is None or not symbols.knows(size)]


def _node(graph: Graph, node: Node, seen: dict[int, Signature]) -> Iterator[str]:
    match node:
        case Kernel(program=program):
            unknown = [] if not program.sizes else _unknown(program, graph.symbols)
            if unknown:
                yield f"kernel `{node.name}` has the sizes {', '.join(unknown)} that are not the graph's"
            else:
                params, results = seen[id(program)] = seen.get(id(program)) or _signature(program, graph.symbols)
                yield from _bound(graph, node, "input", node.inputs, params)
                yield from _bound(graph, node, "output", node.outputs, results)
                for form in node.forms:
                    own, made = _signature(form.program, graph.symbols)
                    if form.program.sizes != program.sizes or not set(own) <= set(params) or made != results:
                        yield f"kernel `{node.name}` has a form of other parameters, results or sizes"
                wrong = [(type(i).__name__, refusal(i, p)) for p in (program, *(f.program for f in node.forms)) for i in p.idioms]
                yield from (f"kernel `{node.name}` is no {kind}: {why}" for kind, why in wrong if why)
        case Extern(call=call):
            results = tuple((t.name, t.dtype, shape_in(t, graph.symbols)) for t in call.results)
            yield from _bound(graph, node, "output", node.outputs, results)
            if len(node.inputs) != sum(a is not None for a in call.arguments):
                yield f"kernel `{node.name}` has {len(node.inputs)} inputs for the arguments {call.arguments}"
            yield from (
                f"`{name}` is not row-major, as kernel `{node.name}` needs it"
                for name in (*node.inputs, *node.outputs)
                if graph.values[name].layout is not None
            )
        case Loop():
            yield from _loop(graph, node)
        case View():
            source, result = graph.values[node.input], graph.values[node.output]
            if source.dtype != result.dtype or prod(source.shape) != prod(result.shape):
                yield f"view `{node.name}` turns {_type(source)} into {_type(result)}"
            if (source.layout is not None or result.layout is not None) and not _shows(source, result):
                yield f"view `{node.name}` is of a value that is not row-major"
        case Join():
            parts, whole = [graph.values[name] for name in node.inputs], graph.values[node.output]
            if node.starts is not None:
                if any(part.dtype != whole.dtype or part.layout != whole.layout for part in parts) or not is_stored_in_order(whole):
                    yield f"join `{node.name}` makes {_type(whole)} of {', '.join(map(_type, parts))} in another block of storage"
            elif any(part.dtype != whole.dtype for part in parts) or sum(map(size_bytes, parts)) != size_bytes(whole):
                yield f"join `{node.name}` makes {_type(whole)} of {', '.join(map(_type, parts))}"
        case Part():
            part, whole = graph.values[node.output], graph.values[node.input]
            if part.dtype != whole.dtype or not 0 <= node.start <= size_bytes(whole) - size_bytes(part):
                yield f"part `{node.name}` is {_type(part)} from byte {node.start} of {_type(whole)}"
        case _:
            assert_never(node)


def _loop(graph: Graph, node: Loop) -> Iterator[str]:
    body = node.body
    yield from (f"body of `{node.name}`: {what}" for what in problems(body))
    if body.symbols is not graph.symbols:
        yield f"loop `{node.name}` has a body of other sizes"
    taken, returned = body.inputs[1:], body.outputs[node.asks :]
    if len(taken) != len(node.passed) or len(returned) != len(node.outputs) - 1 or len(node.initial) != node.carried or not body.inputs:
        bound = f"{len(node.passed)} inputs and {len(node.outputs)} outputs"
        yield f"loop `{node.name}` binds {bound} to a body of {len(taken)} and {len(returned)}"
        return
    numbers = [v for v in (node.limit, node.outputs[0]) if v is not None]
    truths = [v for v in (node.condition,) if v is not None]
    yield from _scalars(graph, node, numbers, "i64")
    yield from _scalars(graph, node, truths, "bool")
    yield from _scalars(body, node, body.inputs[:1], "i64")
    yield from _scalars(body, node, body.outputs[: node.asks], "bool")
    by_row = len(node.initial), len(node.initial) + len(node.sources)
    pairs = [(v, inner, by_row[0] <= k < by_row[1]) for k, (v, inner) in enumerate(zip(node.passed, taken, strict=True))]
    pairs += [(v, inner, k >= node.carried) for k, (v, inner) in enumerate(zip(node.outputs[1:], returned, strict=True))]
    pairs += [(v, inner, False) for v, inner in zip(node.initial, returned, strict=False)]
    for name, inner, by_rows in pairs:
        value, own = graph.values[name], body.values[inner]
        shape = value.shape[1:] if by_rows else value.shape
        if value.dtype != own.dtype or not same_shape(shape, own.shape) or (by_rows and not value.shape):
            yield f"loop `{node.name}` binds `{name}` of {_type(value)} to `{inner}` of {_type(own)}"
    counts = [graph.values[v].shape[:1] for v in (*node.sources, *node.rows)]
    if any(not same_shape(count, counts[0]) for count in counts):
        yield f"loop `{node.name}` goes through {', '.join(map(str, counts))} rows"
    yield from (
        f"`{name}` is not row-major, as loop `{node.name}` needs it"
        for name in (*node.inputs, *node.outputs)
        if graph.values[name].layout is not None
    )


def _scalars(graph: Graph, node: Loop, names: Sequence[str], dtype: str) -> Iterator[str]:
    for name in names:
        value = graph.values[name]
        if value.dtype != DTYPES[dtype] or value.shape != ():
            yield f"loop `{node.name}` takes `{name}` of {_type(value)} for one {dtype}"


def _shows(source: Value, result: Value) -> bool:
    """Tell whether two values with room between their rows differ in dimensions of one alone."""
    if source.layout is None or result.layout is None or not (is_stored_in_order(source) and is_stored_in_order(result)):
        return False
    kept = [
        [pair for pair in zip(v.shape, v.layout.shape, strict=True) if not all(map(is_one, pair))] for v in (source, result) if v.layout
    ]
    return len(kept[0]) == len(kept[1]) and all(map(same_shape, *kept))


def _bound(graph: Graph, node: Kernel | Extern, role: str, names: tuple[str, ...], tensors: Types) -> Iterator[str]:
    if len(names) != len(tensors):
        yield f"kernel `{node.name}` has {len(names)} {role}s for {len(tensors)} of its program"
        return
    for name, (tensor, dtype, shape) in zip(names, tensors, strict=True):
        value = graph.values[name]
        if value.dtype != dtype or value.shape != shape:
            yield f"kernel `{node.name}` binds {role} `{name}` of {_type(value)} to `{tensor}` of {dtype}{list(shape)}"


def _type(value: Value) -> str:
    return f"{value.dtype}{list(value.shape)}"
