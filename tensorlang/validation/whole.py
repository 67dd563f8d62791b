"""Whether a compiled model that is too large for terms computes, in its memory, what its graph after all passes says: on fingerprints.

    graph, node by node, by the equations of its kernels──►  outputs
    native calls, at the addresses of the entry point─────►  outputs        the same

The loops of each kernel run one after the other, compiled to compute with fingerprints, on blocks of the sizes and at the places that the
plan and the constants have: so a value that is overwritten too early, a part of the wrong place, a kernel called on the wrong buffers and a
constant laid out wrongly show. What passes make of the imported graph is not looked at: they may compute with constants, which rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np

from codegen.dtypes import u8
from codegen.llvm.program import Slot
from codegen.loops import fingerprints
from codegen.loops.fingerprints import PRIME, storage_dtype, uninitialised
from tensorlang.diagnostics import InternalError, RunError
from tensorlang.graph.blocks import aligned_array
from tensorlang.graph.edit import reads, size_bytes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Part, Value, View
from tensorlang.graph.relayout import restored, to_layout
from tensorlang.validation.compiled import Compiled, check_disjoint
from tensorlang.validation.fingerprints import expected_results, run, unfit

Array = np.ndarray[Any, Any]
_NOTHING = 5
"""Every byte where nothing has been stored: what they make is no number that a computation starts from."""


def compare(compiled: Compiled) -> tuple[int, str]:
    """Return how many elements of the outputs are as they should be, or why none was looked at. Raises InternalError where one is not."""
    graph = compiled.graph
    if any(v.dtype.is_float and v.dtype.bits < 32 for v in graph.values.values()):
        return 0, "too large, and it holds floats of less than 32 bits, which fingerprints do not fit in"
    reason = next(filter(None, (unfit(n.program) for n in graph.nodes if isinstance(n, Kernel))), "")
    if reason:
        return 0, f"too large, and {reason}"
    inputs = {name: _given(graph.values[name], np.random.default_rng(k)) for k, name in enumerate(graph.inputs)}
    try:
        expected = _means(graph, inputs)
    except (RunError, LookupError) as refused:
        return 0, f"no data was found that its checks accept ({refused})"
    found = _ran(compiled, inputs)
    for name in graph.outputs:
        wrong = np.argwhere(found[name] != expected[name])
        if len(wrong):
            place = f"{name}[{', '.join(map(str, wrong[0]))}]"
            rest = f"nor are {len(wrong) - 1} other elements of {found[name].size}"
            raise InternalError("validate", f"`{place}` of the model is not what its graph after all passes says, {rest}")
    return sum(found[name].size for name in graph.outputs), ""


def _given(value: Value, rng: np.random.Generator) -> Array:
    high = PRIME if value.dtype.is_float else 2
    return rng.integers(0, high, value.shape).astype(storage_dtype(value.dtype).numpy)


def _constant(value: Value, array: Array) -> Array:
    return fingerprints.numbers(array).astype(storage_dtype(value.dtype).numpy) if value.dtype.is_float else array


# ---------------------------------------------------------------- what the graph says


def _means(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a graph."""
    values = dict(inputs)
    last = _last_uses(graph)
    for at, node in enumerate(graph.nodes):
        sources = reads(node)
        for name in sources:
            if name in graph.constants and name not in values:
                values[name] = _constant(graph.values[name], graph.constants[name])
        match node:
            case Kernel(program=program):
                results = expected_results(program, {p.name: values[v] for p, v in zip(program.params, node.inputs, strict=True)})
                values |= {v: results[r] for r, v in zip(program.results, node.outputs, strict=True)}
            case View():
                values[node.output] = values[node.input].reshape(graph.values[node.output].shape)
            case Join():
                blocks = [_bytes_of(values[name], graph.values[name]) for name in node.inputs]
                values[node.output] = _from_bytes(np.concatenate(blocks), graph.values[node.output])
            case Part():
                block = _bytes_of(values[node.input], graph.values[node.input])
                values[node.output] = _from_bytes(block[node.start :], graph.values[node.output])
            case Extern():
                raise LookupError(f"nothing is known of `{node.call.operator}`")
            case Loop():
                raise LookupError(f"how often loop `{node.name}` runs is not known")
            case _:
                assert_never(node)
        for name in sources:
            if last[name] == at and name not in graph.outputs:
                values.pop(name, None)
    for name in graph.outputs:
        if name in graph.constants:
            values[name] = _constant(graph.values[name], graph.constants[name])
    return {name: values[name] for name in graph.outputs}


def _last_uses(graph: Graph) -> dict[str, int]:
    out: dict[str, int] = {}
    for at, node in enumerate(graph.nodes):
        out |= dict.fromkeys(reads(node), at)
    return out


def _bytes_of(array: Array, value: Value) -> Array:
    block = array if value.layout is None else to_layout(array, value.layout, uninitialised(value.dtype))
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8)


def _from_bytes(block: Array, value: Value) -> Array:
    cells = block[: size_bytes(value)].copy().view(storage_dtype(value.dtype).numpy)
    if value.layout is None:
        return cells.reshape(value.shape)
    return restored(cells.reshape(value.layout.shape), value.layout, value.shape)


# ---------------------------------------------------------------- what runs


def _ran(compiled: Compiled, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return what the calls leave in the outputs. Raises InternalError where one refuses its data."""
    graph = compiled.graph
    bases = [aligned_array((size,), u8) for size in compiled.base_bytes()]
    for block in bases:
        block[...] = _NOTHING
    for name, slot in compiled.given():
        value = graph.values[name]
        cells = inputs[name] if name in inputs else _laid_out(value, compiled.constants[name])
        data = np.ascontiguousarray(cells).reshape(-1).view(np.uint8)
        bases[slot.base][slot.offset : slot.offset + len(data)] = data

    def address(slot: Slot) -> int:
        return int(bases[slot.base].ctypes.data) + slot.offset

    for call in compiled.calls:
        check_disjoint(call)
        if call.call.workspace is not None:
            start = call.call.workspace.offset
            bases[call.call.workspace.base][start : start + call.scratch_bytes] = 0xA5
        code = run(call.function, [address(slot) for slot in call.call.buffers])
        if code:
            raise InternalError("validate", f"kernel `{call.name}` refuses data that its equations accept, with {code}")
    return {
        name: bases[slot.base].view(storage_dtype(graph.values[name].dtype).numpy).reshape(graph.values[name].shape)
        for name, slot in compiled.results()
    }


def _laid_out(value: Value, array: Array) -> Array:
    """Return a constant as it lies in memory."""
    cells = _constant(value, array)
    return cells if value.layout is None else to_layout(cells, value.layout, 0)
