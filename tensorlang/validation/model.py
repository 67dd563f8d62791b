"""Whether a compiled model computes what the imported one means: both run on terms, the compiled one in its memory.

    imported graph  ──kernel by kernel, by its equations─────────────────────────────►  terms of the outputs
    native calls    ──loops, on blocks of bytes at the addresses of the entry point──►  terms of the outputs        the same

A model that is too large for this is compared on fingerprints, with its graph after all passes (`whole`).

Memory is bytes, as the plan and the constants place them. An element is there as long as none of its bytes is overwritten, and is read
whole, with its type, or is nothing; scratch memory of a kernel is nothing before and after. So a value that is overwritten too early, a
copy that is none, a view or a part of the wrong place and a constant laid out wrongly show.

Passes change arithmetic: they fold constants, distribute, compute convolutions by minimal filtering, take parts of products, quantise. So
an output is compared in three steps, and the outcome says how many elements needed which. Constants are numbers, inputs are leaves.

    the same      node by node, but for the order of sums (`matching`)
    regrouped     the same sums of products (keys of terms)
    close         the same number in f64, within 1e-4 of the largest, for leaves drawn at random: what folds constants (`fold`, `scales`),
                  `winograd`, `online`, `split`, `rounded`, `narrowed`; of integers one unit (`requantise`)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from codegen.dtypes import DType
from codegen.errors import InternalError as LoopError
from codegen.llvm.program import Slot
from codegen.loops import scalars
from codegen.loops.domain import Symbols as LoopSymbols
from codegen.loops.interp import evaluate_index, run
from codegen.loops.terms import Exceeded, Term, Terms, exact, key, show
from tensorlang.diagnostics import InternalError, RunError
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Part, Value, View
from tensorlang.graph.relayout import to_layout
from tensorlang.tensor.interp import Evaluator
from tensorlang.tensor.operation_count import operations
from tensorlang.tensor.value_domain import Symbols
from tensorlang.validation.budget import on_fingerprints
from tensorlang.validation.compiled import Call, Compiled, check_disjoint
from tensorlang.validation.kernel import term_of
from tensorlang.validation.matching import Matcher
from tensorlang.validation.whole import compare

Array = np.ndarray[Any, Any]
CLOSE = 1e-4
KERNELS = 50
"""Operations that a model may take, for each that one kernel may."""


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """How many elements of the outputs were found to be right in which way, or why none was looked at."""

    same: int = 0
    regrouped: int = 0
    close: int = 0
    reason: str = ""
    fingerprints: int = 0
    """Elements that are what the graph after its passes says, as the model is too large for terms."""

    def __str__(self) -> str:
        if self.reason:
            return f"not validated: {self.reason}"
        if self.fingerprints:
            return f"validated on fingerprints, from its graph after all passes on: {self.fingerprints} elements the same"
        counts = ((self.same, "the same"), (self.regrouped, "regrouped"), (self.close, "close"))
        return "validated: " + ", ".join(f"{count} elements {how}" for count, how in counts if count)


def too_large(imported: Graph, budget: int) -> str:
    """Return why a model is not validated that takes so many operations, "" where it is."""
    allowed = max(budget, KERNELS * on_fingerprints(budget))
    return f"too large, more than {allowed} operations" if _operations_of(imported) > allowed else ""


def _operations_of(graph: Graph) -> int:
    return sum(operations(node.program, {}) for node in graph.nodes if isinstance(node, Kernel))


def validate_model(imported: Graph, compiled: Compiled, budget: int) -> ModelOutcome:
    """Return how the outputs of a compiled model, which is not too large, are what the imported graph says. Raises InternalError where
    one is not."""
    if _operations_of(imported) > budget:
        count, reason = compare(compiled)
        return ModelOutcome(fingerprints=count, reason=reason)
    terms = Terms(6 * budget)
    rng = np.random.default_rng(0)
    inputs = {name: _leaves(terms, imported.values[name], _numbers(imported.values[name], rng)) for name in imported.inputs}
    try:
        expected = expected_results(imported, inputs, terms)
        found = _ran(compiled, dict(zip(compiled.graph.inputs, inputs.values(), strict=True)), terms)
    except Exceeded:
        return ModelOutcome(reason=f"too large, more than {6 * budget} operations")
    except (RunError, LookupError) as refused:
        return ModelOutcome(reason=f"no data was found that its checks accept ({refused})")
    outcome = ModelOutcome()
    fast = any(isinstance(n, Kernel) and n.program.mode == "fast" for n in imported.nodes)
    for mine, theirs in zip(compiled.graph.outputs, imported.outputs, strict=True):
        outcome = _compared(outcome, imported.values[theirs], found[mine], expected[theirs], Matcher(fast), terms)
    return outcome


# ---------------------------------------------------------------- what a graph means


def expected_results(graph: Graph, inputs: Mapping[str, Array], terms: Terms) -> dict[str, Array]:
    """Return the values of a graph that has only kernels and views."""
    values = dict(inputs)
    for name, array in graph.constants.items():
        values[name] = _constants(terms, graph.values[name], array)
    for node in graph.nodes:
        match node:
            case Kernel(program=program):
                named = {p.name: values[v] for p, v in zip(program.params, node.inputs, strict=True)}
                evaluator = Evaluator(program, {}, named, Symbols(terms, free=program.mode != "strict"))
                evaluator.run()
                results = evaluator.results()
                values |= {v: results[r] for r, v in zip(program.results, node.outputs, strict=True)}
            case View():
                values[node.output] = values[node.input].reshape(graph.values[node.output].shape)
            case Extern():
                raise LookupError(f"nothing is known of `{node.call.operator}`")
            case Loop():
                raise LookupError(f"how often loop `{node.name}` runs is not known")
            case Join() | Part():
                raise InternalError("validate", f"`{node.name}` stands in a graph that was only imported")
            case _:
                assert_never(node)
    return values


def _leaves(terms: Terms, value: Value, numbers: Array) -> Array:
    out = np.empty(value.shape, object)
    for point in np.ndindex(value.shape):
        out[point] = terms.leaf(f"{value.name}[{', '.join(map(str, point))}]", value.dtype, numbers[point])
    return out


def _constants(terms: Terms, value: Value, array: Array) -> Array:
    out = np.empty(value.shape, object)
    for point in np.ndindex(value.shape):
        out[point] = terms.const(scalars.scalar_of(array[point], value.dtype), value.dtype)
    return out


def _numbers(value: Value, rng: np.random.Generator) -> Array:
    if value.dtype.is_float:
        return np.asarray(rng.standard_normal(value.shape)).astype(value.dtype.numpy)
    return rng.integers(0, 2, value.shape).astype(value.dtype.numpy)


# ---------------------------------------------------------------- memory


@dataclass(slots=True)
class _Region:
    """Bytes that one base points to. `owners`: which write each byte is of, 0 for none; `cells`: elements, where their first byte is."""

    size: int
    owners: Array = field(init=False)
    cells: Array = field(init=False)

    def __post_init__(self) -> None:
        self.owners, self.cells = np.zeros(self.size, np.int64), np.full(self.size, None, object)

    def write(self, at: int, elements: Array, width: int, serial: int) -> None:
        """Put elements of `width` bytes from byte `at` on; their writes are numbered from `serial` on."""
        end = at + len(elements) * width
        self.owners[at:end] = np.repeat(np.arange(serial, serial + len(elements)), width)
        self.cells[at:end] = None
        self.cells[at:end:width] = elements

    def read(self, at: int, count: int, dtype: DType, terms: Terms) -> Array:
        """Return elements from byte `at` on; what is not whole or of another type is nothing."""
        width = dtype.numpy.itemsize
        out = np.full(count, terms.hole, object)
        owners = np.append(self.owners, 0)[at : at + count * width + 1]
        for k in range(count):
            mine = owners[k * width : (k + 1) * width]
            cell = self.cells[at + k * width]
            whole = cell is not None and (mine == mine[0]).all() and owners[(k + 1) * width] != mine[0]
            if whole and (not isinstance(cell, Term) or cell.dtype == dtype):
                out[k] = cell
        return out

    def forget(self, at: int, size: int) -> None:
        self.owners[at : at + size] = 0
        self.cells[at : at + size] = None


@dataclass(slots=True)
class _Memory:
    regions: list[_Region]
    terms: Terms
    _serial: int = 1

    def write(self, slot: Slot, elements: Array, dtype: DType) -> None:
        flat = elements.reshape(-1)
        self.regions[slot.base].write(slot.offset, flat, dtype.numpy.itemsize, self._serial)
        self._serial += len(flat)

    def read(self, slot: Slot, shape: tuple[int, ...], dtype: DType) -> Array:
        return self.regions[slot.base].read(slot.offset, math.prod(shape), dtype, self.terms).reshape(shape)


def _ran(compiled: Compiled, inputs: Mapping[str, Array], terms: Terms) -> dict[str, Array]:
    """Return the outputs of a compiled model."""
    graph = compiled.graph
    memory = _Memory([_Region(size) for size in compiled.base_bytes()], terms)
    for name, slot in compiled.given():
        value = graph.values[name]
        memory.write(slot, inputs[name] if name in inputs else _constant(terms, value, compiled.constants[name]), value.dtype)
    for call in compiled.calls:
        _called(call, memory, terms)
    return {name: memory.read(slot, graph.values[name].shape, graph.values[name].dtype) for name, slot in compiled.results()}


def _constant(terms: Terms, value: Value, array: Array) -> Array:
    """Return a constant as it lies in memory."""
    block = _constants(terms, value, array)
    return block if value.layout is None else to_layout(block, value.layout, terms.const(0, value.dtype))


def _called(call: Call, memory: _Memory, terms: Terms) -> None:
    """Run one kernel where its buffers lie."""
    function, blocks = call.function, {}
    shapes = {b.name: tuple(evaluate_index(e, {}) for e in b.shape) for b in function.params}
    check_disjoint(call)
    scratch = call.call.workspace
    if scratch is not None:
        memory.regions[scratch.base].forget(scratch.offset, call.scratch_bytes)
    for buffer, slot in zip(function.params, call.call.buffers, strict=True):
        blocks[buffer.name] = memory.read(slot, shapes[buffer.name], buffer.dtype)
    try:
        code = run(function, {}, blocks, LoopSymbols(terms))
    except LoopError as fault:
        raise InternalError("validate", f"kernel `{call.name}` cannot run: {fault.detail}") from None
    if code:
        raise LookupError(f"kernel `{call.name}` returned {code}")
    for buffer, slot in zip(function.params, call.call.buffers, strict=True):
        if buffer.name in function.written:
            memory.write(slot, blocks[buffer.name], buffer.dtype)


# ---------------------------------------------------------------- comparing


def _compared(outcome: ModelOutcome, value: Value, found: Array, expected: Array, matcher: Matcher, terms: Terms) -> ModelOutcome:
    same, regrouped = outcome.same, outcome.regrouped
    rest: list[tuple[tuple[int, ...], Term, Term]] = []
    for point in np.ndindex(value.shape):
        got, meaning = (term_of(a[point], value.dtype, terms) for a in (found, expected))
        if matcher.difference(got, meaning) is None:
            same += 1
        elif got.op != "hole" and key(got) == key(meaning):
            regrouped += 1
        else:
            rest.append((point, got, meaning))
    _close(value, rest)
    return ModelOutcome(same, regrouped, outcome.close + len(rest))


def _close(value: Value, rest: Sequence[tuple[tuple[int, ...], Term, Term]]) -> None:
    """Raise InternalError unless these elements are as good as the same number."""
    expected = [exact(meaning) for _, _, meaning in rest]
    largest = max((abs(x) for x in expected if math.isfinite(x)), default=0.0)
    within = CLOSE * largest + 1e-9 if value.dtype.is_float else 1.0 if value.dtype.bits <= 8 else 0.0
    for (point, got, meaning), number in zip(rest, expected, strict=True):
        try:
            mine = exact(got)
        except LookupError:
            mine = math.nan if not math.isnan(number) else 0.0
        if not (abs(mine - number) <= within or mine == number or (math.isnan(mine) and math.isnan(number))):
            place = f"{value.name}[{', '.join(map(str, point))}]"
            text = f"`{place}` of the model is not what its graph says\n  graph  {show(meaning, 40)}\n  loops  {show(got, 40)}"
            raise InternalError("validate", text)
