"""Programs of ATen as importers read them: plain Python values, with nothing of torch in them.

program ::= inputs, constants, nodes in topological order, outputs
node    ::= an operator of ATen (`add.Tensor`), or one of the language; arguments by position and by name; the types of its results
argument ::= a value (`Ref`), a number, a truth, a text, an element type, a graph that the node runs (`Block`), None, or several

Integers that are not known yet are values, too: inputs of their own, extents of tensors (`sym_size.int`), and what is computed from these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from codegen.dtypes import DType

if TYPE_CHECKING:  # the language itself, which programs without its operators do without
    from tensorlang.runtime.operator import Operator

Array: TypeAlias = np.ndarray[Any, Any]
Argument: TypeAlias = Any
Type: TypeAlias = "tuple[DType, tuple[int | None, ...]]"


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the program."""

    name: str


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that the program takes. A dimension is a number, a symbol, or None for any other expression."""

    name: str
    dtype: DType
    dims: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """`results` has the type of each result that is a tensor, None for others; `place` is the line that it was written on, or ""."""

    name: str
    op: str
    args: tuple[Argument, ...]
    named: Mapping[str, Argument]
    results: tuple[Type | None, ...]
    place: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A graph that a node runs, such as a branch or what a loop repeats. Names of its values are those of no other graph of the program;
    its constants are the program's."""

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Argument, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """`sizes` are the symbols or the numbers that integer values of the program stand for, by the names of these; `operators` are those of
    the language that nodes call, by what nodes call them; `least` is what symbols are at least, as far as it is known."""

    name: str
    inputs: tuple[Input, ...]
    sizes: Mapping[str, str | int]
    constants: Mapping[str, Array]
    nodes: tuple[Node, ...]
    outputs: tuple[Argument, ...]
    operators: Mapping[str, Operator] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether an input has a dimension that is no number."""
        return any(not isinstance(n, int) for i in self.inputs for n in i.dims)

    def all_nodes(self) -> Iterator[Node]:
        """Yield the nodes, and those of the graphs that nodes run."""
        return nodes_within(self.nodes)

    def output_names(self) -> list[tuple[int, str]]:
        """Return what the outputs that are tensors are called, and which of the outputs they are."""
        return [(k, f"output_{k}") for k, given in enumerate(self.outputs) if isinstance(given, Ref)]

    def output_type(self, k: int) -> tuple[DType | None, tuple[int | None, ...] | None]:
        """Return what is known of the type of an output."""
        made = next((node for node in self.nodes if node.name == self.outputs[k].name), None)
        found = made.results[0] if made is not None and made.results else None
        return (None, None) if found is None else found

    def digest(self) -> bytes | None:
        """Return a digest of all there is to say about the program, None where functions of Python stand for operators."""
        found, meaning = hashlib.sha256(), _meaning(self.operators) if self.operators else b""
        if meaning is None:
            return None
        for part in (self.name, self.inputs, sorted(self.sizes.items()), sorted(self.least.items()), self.nodes, self.outputs):
            found.update(repr(part).encode())
        found.update(meaning)
        for name, array in self.constants.items():
            found.update(repr((name, array.dtype.name, array.shape)).encode())
            found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return found.digest()


def _meaning(operators: Mapping[str, Operator]) -> bytes | None:
    from tensorlang.custom_operators import are_told, custom_digest
    from tensorlang.runtime.custom_nodes import Custom, Found

    custom = Custom({}, {("", name): {1: Found(o.module, o.name)} for name, o in operators.items()})
    return custom_digest(custom) if are_told(custom) else None


DRAW = "random draw"
"""What the input is called that a program takes which draws random numbers: another number in each call. Operators that draw have it as
`draw`."""


def size_input(name: str) -> str:
    """Return what the input is called whose shape tells an integer that no tensor tells."""
    return f"{name} size"


def nodes_within(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes, and those of the graphs that they run."""
    for node in nodes:
        yield node
        for argument in (*node.args, *node.named.values()):
            if isinstance(argument, Block):
                yield from nodes_within(argument.nodes)


def references(argument: Argument) -> Iterator[str]:
    """Yield the names of the values in an argument."""
    match argument:
        case Ref(name):
            yield name
        case tuple():
            for part in argument:
                yield from references(part)


def resolved(argument: Argument, of: Callable[[str], Any]) -> Any:
    """Return an argument with what its values are."""
    match argument:
        case Ref(name):
            return of(name)
        case tuple():
            return tuple(resolved(part, of) for part in argument)
        case _:
            return argument
