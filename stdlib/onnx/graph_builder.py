"""The graph that an import makes, node after node, and what is known of the elements of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType, from_numpy
from polyhedral import affine
from polyhedral.expr import And, Compare, Cond, Expr, Int, Not, Or
from stdlib.library import library
from stdlib.onnx.model import Array
from stdlib.onnx.problems import Refusal, Unsupported, quoted
from stdlib.onnx.tensors import check_size
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.graph.data_dependent import Known
from tensorlang.graph.edit import reads, writes
from tensorlang.graph.nodes import Attr, Extern, Join, Kernel, Loop, Part, Value, View
from tensorlang.graph.nodes import Node as GraphNode
from tensorlang.graph.passes.clean.fold import LARGEST_WORK, work
from tensorlang.graph.programs import axes_of
from tensorlang.graph.shape_arithmetic import int_or_size
from tensorlang.graph.sizes import OpenSize, Size, Symbols, formula_of, is_open, to_expr
from tensorlang.graph.texts import numbers
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Cast, Definition, IndexValue, Piece, Program, Tensor
from tensorlang.tensor.size_cases import decided_by_sizes

KNOWN_ELEMENTS = 1 << 24
"""Rules look at the elements of constants, and make tables, up to this size."""


@lru_cache(maxsize=8192)
def program(operator: str, args: tuple[ArgType | tuple[ArgType, ...] | None, ...], attrs: tuple[tuple[str, Attr], ...]) -> Program:
    """Return the library operator for arguments of these types and shapes. Raises CompileError when they do not fit it."""
    return instantiate(library(), operator, args, dict(attrs))


def in_case(found: Program, symbols: Symbols | None) -> Program:
    """Return an operator for the side of conditions on sizes that samples are on, where that decides what is computed."""
    if symbols is None or not found.sizes:
        return found
    return decided_by_sizes(found, partial(holds, symbols=symbols))[0]


def holds(condition: Cond, symbols: Symbols) -> bool:
    """Tell whether a condition on sizes holds, which is assumed from here on where it holds for the samples alone."""
    match condition:
        case Compare(op, lhs, rhs):
            return symbols.decided(formula_of(symbols.size(affine.sub(lhs, rhs))), op)
        case And(parts):
            return all(holds(part, symbols) for part in parts)
        case Or(parts):
            return any(holds(part, symbols) for part in parts)
        case Not(part):
            return not holds(part, symbols)


def sizes_program(value: Value, array: Array) -> Program:
    """Return the program without parameters of a value whose elements are integers and sizes."""
    axes = axes_of(len(value.shape))
    result = Tensor("y", value.dtype, tuple(Int(n) for n in value.shape))
    elements = [(index, to_expr(int_or_size(n))) for index, n in np.ndenumerate(array)]
    sizes = dict.fromkeys(name for _, e in elements for name in sorted(affine.name_set(e)))
    pieces = tuple(
        Piece(_as(value.dtype, e), affine.conj(*(affine.compare("==", axis, k) for axis, k in zip(axes, index, strict=True))))
        for index, e in elements
    )
    return Program("sizes", tuple(sizes), (), ("y",), (Definition((result,), axes, pieces),))


def _as(dtype: DType, e: Expr) -> IndexValue | Cast:
    return IndexValue(e) if dtype == DTYPES["i64"] else Cast(dtype, IndexValue(e))


class Builder:
    """The graph under construction. `taken` holds every name that a value or node may not get."""

    def __init__(self, taken: set[str], known: Known | None = None, symbols: Symbols | None = None) -> None:
        self.symbols = symbols
        """The sizes that stay open, None where none does."""
        self.known = known or Known()
        self.values: dict[str, Value] = dict(self.known.carried)
        self.constants: dict[str, Array] = {}
        self.sizes: dict[str, Array] = {}
        """The elements of values that are computed from open sizes alone: integers, sizes and ratios."""
        self.stored: set[str] = set()
        """Which of these a kernel computes, as something else than a shape depends on them, or they are floats."""
        self.fills: dict[str, float | int | bool] = {}
        """What all elements are of values of open shapes that are filled with a number."""
        self.nodes: list[GraphNode] = []
        self.decidable: set[str] = set()
        """Small inputs, and values that are computed of such alone: a model may be compiled for their elements."""
        self.kept: list[str] = []
        """Values that a node reads again once the shapes of its results are known."""
        self.iterations: list[Value] = []
        """The numbers of the turns that nodes are made for: of the loops around them that run as they are, from the outermost on."""
        self.traced = 0
        """How many of these are loops of the graph."""
        self.within = ""
        """In which blocks of the model the whole graph stands."""
        self.texts: set[str] = set()
        """Values that are strings: numbers that stand for them."""
        self.decided: set[str] = set()
        """What nodes find among data, as how many elements are no zeros: a stage computes it, however few elements there are."""
        self.block_length = 0
        """How many channels lie side by side where they are in blocks (`channel_blocks`)."""
        self.plain: dict[str, str] = {}
        """Of values whose channels are in blocks the same ones with channels that are not."""
        self.taken = taken
        self.labels: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._label_numbers: dict[str, int] = {}
        self._makers: dict[str, GraphNode] = {}
        """What makes the values that depend on constants alone."""
        self._computed: dict[str, Array] = {}

    def fresh(self, stem: str) -> str:
        return _unused(stem, "{}.{}", 0, self._numbers, self.taken)

    def label(self, stem: str) -> str:
        """Return a name for another graph node made of the model's node `stem`."""
        return _unused(stem, "{} ({})", 1, self._label_numbers, self.labels)

    def bound(self, start: int) -> None:
        """Note which values that the nodes from number `start` on make depend on constants alone, or on small inputs: they have the names
        that they keep."""
        for node in self.nodes[start:]:
            if isinstance(node, Extern | Loop):
                continue
            others = [name for name in reads(node) if name not in self.constants and name not in self._makers]
            if not others:
                self._makers |= dict.fromkeys(writes(node), node)
            elif self.decidable.issuperset(others):
                self.decidable.update(writes(node))

    def maker(self, name: str) -> GraphNode | None:
        """Return the node that makes a value, None where no node does."""
        return next((node for node in reversed(self.nodes) if name in writes(node)), None)

    def elements(self, name: str) -> Array | None:
        """Return the elements of a value that depends on constants alone, computed now where they were not; None when it does not.

        Raises Refusal O014 when they are too many to be computed."""
        if name in self.sizes:
            return self.sizes[name]
        if name not in self.constants and name not in self._makers:
            return None
        pending = [name]
        while pending:
            current = pending[-1]
            missing = [] if self._has(current) else [v for v in reads(self._makers[current]) if not self._has(v)]
            if not missing and not self._has(current):
                self._compute(self._makers[current])
            if missing:
                pending += missing
            else:
                pending.pop()
        return self._elements(name)

    def _has(self, name: str) -> bool:
        return name in self.constants or name in self._computed

    def _elements(self, name: str) -> Array:
        return self.constants[name] if name in self.constants else self._computed[name]

    def _compute(self, node: GraphNode) -> None:
        """Compute the results of a node whose inputs are known. Raises Refusal O014 when they are too many, OpenSize where they are made of
        sizes in a way that expressions do not have (floats)."""
        if isinstance(node, Kernel) and node.program.sizes and self.symbols is not None:
            raise OpenSize(*(Size(self.symbols.formula(name), self.symbols) for name in node.program.sizes))
        results = [self.values[name] for name in writes(node)]
        count = max(prod(value.shape) for value in results)
        taken = work(node.program) if isinstance(node, Kernel) else 0
        if count > KNOWN_ELEMENTS or taken > LARGEST_WORK:
            raise Refusal(
                "O014",
                f"{quoted(results[0].name)} is a constant of {count} elements, too many to compute when the model is imported",
                f"at most {KNOWN_ELEMENTS} elements and {LARGEST_WORK} steps are taken for a shape, axes or sizes",
            )
        arrays = [self._elements(v) for v in reads(node)]
        match node:
            case Kernel(program=found):
                made = interpret(found, {}, {tensor.name: array for tensor, array in zip(found.params, arrays, strict=True)})
                self._computed |= {v: np.asarray(made[result]) for v, result in zip(node.outputs, found.results, strict=True)}
            case View():
                self._computed[node.output] = arrays[0].reshape(results[0].shape)
            case Join() | Part() | Extern() | Loop():
                raise AssertionError("nothing that is computed here")

    def value(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Value:
        check_size(dtype, shape, f"value {quoted(name)}")
        value = Value(name, dtype, shape)
        self.values[name] = value
        return value

    def store_sizes(self, name: str) -> None:
        """Let a kernel compute a value that is made of sizes, as data depends on it."""
        if name not in self.sizes or name in self.stored:
            return
        self.stored.add(name)
        value = self.values[name]
        self.nodes.append(Kernel(self.label(f"sizes {name}"), sizes_program(value, self.sizes[name]), (), (name,)))

    def cut(self, start: int) -> tuple[GraphNode, ...]:
        """Take the nodes from number `start` on out of the graph, and return them."""
        nodes = tuple(self.nodes[start:])
        del self.nodes[start:]
        written = {name for node in nodes for name in writes(node)}
        self.stored -= {name for name in written if name in self.sizes}
        self.kept = [name for name in self.kept if name not in written]
        return nodes

    def note_elements(self, value: Value, array: Array) -> None:
        """Note what the elements of a value are that a node computes."""
        self.sizes[value.name] = array
        self.stored.add(value.name)

    def constant(self, name: str, array: Array) -> Value:
        if array.dtype.kind in "OU":
            array = numbers(array, name, constant=True)
            self.texts.add(name)
        dtype = from_numpy(array.dtype)
        if dtype is None:
            raise Unsupported(f"constants of type {array.dtype}")
        self.constants[name] = array
        return self.value(name, dtype, array.shape)

    def carried(self, name: str) -> Value:
        """Return a value of this name, which the host has computed: one that is carried over, or its elements."""
        found = self.known.carried.get(name)
        return self.of_elements(name, self.known.dtypes[name], self.known.elements[name]) if found is None else found

    def rename(self, names: Mapping[str, str], start: int = 0) -> None:
        """Give values other names, where the nodes from number `start` on and what is known of them have the old ones."""
        for old, new in names.items():
            self.values[new] = replace(self.values.pop(old), name=new)
            tables: tuple[dict[str, Any], ...] = (self.constants, self.sizes, self.fills)
            for table in tables:
                if old in table:
                    table[new] = table.pop(old)
            for names_ in (self.stored, self.texts):
                if old in names_:
                    names_.add(new)
        if self.plain:
            self.plain = {names.get(raw, raw): names.get(plain, plain) for raw, plain in self.plain.items()}
        self.nodes[start:] = [_renamed(n, names) for n in self.nodes[start:]]

    def of_elements(self, name: str, dtype: DType, array: Array) -> Value:
        """Return a value of these elements: a constant, or, where the array is one of objects, integers and sizes."""
        if not is_open(tuple(array.flat)):
            return self.constant(name, array.astype(dtype.numpy, copy=False))
        self.sizes[name] = array
        return self.value(name, dtype, array.shape)


def _unused(stem: str, form: str, first: int, numbers: dict[str, int], taken: set[str]) -> str:
    """Return a name that is not taken, `stem` or `form` of it and a number beyond `first`, which is taken from now on. `numbers`: the last
    of each stem."""
    name, number = stem, numbers.get(stem, first)
    while name in taken:
        number += 1
        name = form.format(stem, number)
    numbers[stem] = number
    taken.add(name)
    return name


def _renamed(node: GraphNode, names: Mapping[str, str]) -> GraphNode:
    match node:
        case Join() | Part():
            return node  # importers make none
        case Kernel() | Extern() | Loop():
            return replace(
                node,
                inputs=tuple(names.get(v, v) for v in node.inputs),
                outputs=tuple(names.get(v, v) for v in node.outputs),
            )
        case View():
            return replace(node, input=names.get(node.input, node.input), output=names.get(node.output, node.output))
