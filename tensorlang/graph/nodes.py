"""Graph IR: a model as kernels between values. Every kernel is one tensor-IR program; the graph knows nothing else about operators.

    graph  ::= inputs, outputs, constants, nodes in topological order
    node   ::= Kernel (a program bound to values) | View (the same elements in row-major order under another shape; no data moves)
             | Join (values whose memory, one after another, is the memory of one value; no data moves)
             | Part (a stretch of the memory of another value; no data moves)
             | Extern (a kernel that is not in the language bound to values, all of them row-major)
             | Loop (a graph that runs again and again, each turn on what the one before has left; all that it is bound to is row-major)

Shapes are numbers, or, in the graph of a model whose sizes stay open, expressions over its symbols (`tensorlang.graph.sizes`), which the
programs of kernels have as sizes under the same names. A value is defined once: as an input, as a constant, or by one node. `layout` of
a value says how its memory is arranged (None: row-major); it is changed by the layout pass alone, and inputs and outputs of the graph are
always row-major.

`operator` and `attrs` of a kernel tell which library operator it came from: passes that know algebra (batch-norm folding, transposes
that cancel) match on them; fusion and code generation look at the program only. A fused kernel has operator "" and lists its `members`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from codegen.dtypes import DType
from tensorlang.graph.sizes import Symbols, same_shape
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import ExternCall, Program

Attr: TypeAlias = int | float | bool | str | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """`name` is the model's own name, any text; it never reaches generated code."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: Layout | None = None

    def __eq__(self, other: object) -> bool:
        """Tell whether two values are the same whatever the sizes are."""
        if not isinstance(other, Value):
            return NotImplemented
        return (self.name, self.dtype, self.layout) == (other.name, other.dtype, other.layout) and same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.name, self.dtype, self.shape, self.layout))


@dataclass(frozen=True, slots=True)
class Form:
    """Another program that computes what that of a kernel does, of parameters of the same names, and sizes at which it is likely to be
    faster."""

    program: Program
    at: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """`inputs[k]` is bound to `program.params[k]`, `outputs[k]` to `program.results[k]`. `members`: names of the model's nodes
    it computes; `forms`: other ways to do so, of which whoever compiles it may take one for some of its open sizes."""

    name: str
    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operator: str = ""
    attrs: tuple[tuple[str, Attr], ...] = ()
    members: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()

    @property
    def bound(self) -> dict[str, str]:
        """Return the value of each parameter of the program, by its name."""
        return {p.name: value for p, value in zip(self.program.params, self.inputs, strict=True)}

    def of_sizes(self, program: Program) -> Kernel:
        """Return the kernel with its program for other sizes, and without forms, which are for the sizes that it has."""
        return replace(self, program=program, forms=())


@dataclass(frozen=True, slots=True)
class View:
    name: str
    input: str
    output: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """The memory of `output` is that of `inputs`, one after another, all in their layouts: a concatenation that the plan carries out. With
    `starts`, bytes from that of `output`, they are rows of it, in the same block of storage: what lies between is that of others."""

    name: str
    inputs: tuple[str, ...]
    output: str
    members: tuple[str, ...] = ()
    starts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The memory of `output` begins `start` bytes after that of `input`, both in their layouts: one sample of a batch."""

    name: str
    input: str
    output: str
    start: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extern:
    """A call of a kernel that nobody wrote in the language: `inputs` are what it reads, in order, without what is left out of
    `call.arguments`; `outputs` are its results. Of the call only its form counts, not the names in it."""

    name: str
    call: ExternCall
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """Turns of `body`, numbered from 0 on, in each of which it finds what it left behind in the one before:

        body     (turn: i64[], carried …, a row of each of `scanned` …, captured …) -> ([condition: bool[],] carried …, rows …)
        inputs   ([limit: i64[],] [condition: bool[],] carried …, scanned …, captured …)
        outputs  (turns: i64[], carried …, rows …)

    There are at most `limit` turns, and no more than rows, and there is another one as long as a condition holds: that of the inputs before
    the first turn, afterwards what the body says. What is scanned has a row for each turn, and so have the rows that the body makes; in the
    other direction where `scanned` or `made` say so. Rows of turns that never were are zeros."""

    name: str
    body: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    has_limit: bool
    has_condition: bool
    asks: bool
    """Whether the body returns a condition."""
    scanned: tuple[bool, ...] = ()
    """For each input that is gone through row by row whether that begins with the last."""
    made: tuple[bool, ...] = ()
    """For each output that is made of rows whether the first turn makes the last."""
    members: tuple[str, ...] = ()

    @property
    def limit(self) -> str | None:
        return self.inputs[0] if self.has_limit else None

    @property
    def condition(self) -> str | None:
        return self.inputs[self.has_limit] if self.has_condition else None

    @property
    def carried(self) -> int:
        """How many values a turn hands to the next."""
        return len(self.outputs) - 1 - len(self.made)

    @property
    def passed(self) -> tuple[str, ...]:
        """The inputs that the body has inputs for."""
        return self.inputs[self.has_limit + self.has_condition :]

    @property
    def initial(self) -> tuple[str, ...]:
        return self.passed[: self.carried]

    @property
    def sources(self) -> tuple[str, ...]:
        """The inputs that are gone through row by row."""
        return self.passed[self.carried :][: len(self.scanned)]

    @property
    def captured(self) -> tuple[str, ...]:
        return self.passed[self.carried + len(self.scanned) :]

    @property
    def rows(self) -> tuple[str, ...]:
        """The outputs that are made of rows."""
        return self.outputs[1 + self.carried :]


Node: TypeAlias = Kernel | View | Join | Part | Extern | Loop


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """`values` holds every value by name; `constants` the elements of the constant ones, in their logical order whatever the layout of
    the value: they are laid out when they are placed in memory."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, Value]
    constants: dict[str, np.ndarray[Any, Any]]
    nodes: tuple[Node, ...]
    symbols: Symbols | None = None
    """What shapes are expressions over, None where all are numbers."""


def loops_of(graph: Graph) -> tuple[Loop, ...]:
    """Return the loops among the nodes of a graph, in order; those within their bodies are not among them."""
    return tuple(node for node in graph.nodes if isinstance(node, Loop))


def steps_of(graph: Graph) -> Iterator[tuple[Graph, Kernel | Extern]]:
    """Yield what runs of a graph and of the bodies of its loops, in order, each with the graph that it is a node of."""
    for node in graph.nodes:
        if isinstance(node, Kernel | Extern):
            yield graph, node
        elif isinstance(node, Loop):
            yield from steps_of(node.body)


@dataclass(frozen=True, slots=True)
class Buffer:
    """An input and an output that share memory: along `axis`, `room` more rows are there than the output has. Outputs of as many rows have
    as much room."""

    input: str
    output: str
    axis: int
    room: str
