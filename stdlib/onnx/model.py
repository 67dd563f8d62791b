"""A model as the importer sees it: plain Python values, each of them checked, and none of the protobuf left.

model ::= inputs, outputs, initializers, nodes in topological order, functions
node  ::= operator, version of its domain, names of inputs and outputs ("" where an optional one is absent), attributes
block ::= inputs, outputs, initializers, nodes in topological order: a graph inside of a node, or the body of a function
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from onnx import FunctionProto, NodeProto

from codegen.dtypes import DType
from tensorlang.runtime.signature import Form

Array: TypeAlias = np.ndarray[Any, Any]
Attribute: TypeAlias = "int | float | str | Array | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Block"
Dim: TypeAlias = int | str | None


@dataclass(frozen=True, slots=True)
class Declared:
    """An input or output of the model. A dimension is a number, a symbol, or None when nothing is said; `dims` None: not even the rank.
    `text`: elements are strings, which are numbers of type `dtype` in graphs. Of a sequence all this is said of each of its tensors, of a
    map of its values; `text_keys`: its keys are strings, not integers."""

    name: str
    dtype: DType | None
    dims: tuple[Dim, ...] | None
    form: Form = "tensor"
    text: bool = False
    text_keys: bool = False

    @property
    def is_sequence(self) -> bool:
        return self.form.endswith("sequence")

    @property
    def is_optional(self) -> bool:
        return self.form.startswith("optional")

    @property
    def is_map(self) -> bool:
        return self.form in ("map", "sequence of maps")


@dataclass(frozen=True, slots=True)
class Node:
    """`label` is unique in the model and made for people: the node's own name, or its operator and position. `version`: the opset of its
    domain; `since`: the version in which the operator was last changed up to there. `proto`: what it was read from. `custom`: neither
    ONNX nor the model says what it is."""

    label: str
    domain: str
    op: str
    version: int
    since: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    proto: NodeProto = field(repr=False, compare=False)
    custom: bool = False

    def reads(self) -> Iterator[str]:
        """Yield the names that have to be there when the node runs: its inputs, and what blocks read of the graphs around them."""
        yield from (name for name in self.inputs if name)
        for attribute in self.attributes.values():
            if isinstance(attribute, Block):
                yield from attribute.free()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A graph inside of a node, which may read values of the graphs around it; or the body of a function, which may not."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: Mapping[str, Array]
    nodes: tuple[Node, ...]

    def free(self) -> Iterator[str]:
        """Yield the names that it reads and does not define."""
        own = {*self.inputs, *self.initializers, *(name for node in self.nodes for name in node.outputs)}
        yield from (name for node in self.nodes for name in node.reads() if name not in own)
        yield from (name for name in self.outputs if name not in own)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """`functions`: operators that the model defines by domain, name and overload; `body_of(function, call)` is the body for a node that
    calls one, or calls any other function. `block_length`: how many channels lie side by side where they are in blocks
    (`channel_blocks`), 0 where none are. `defaults`: inputs whose initializers stand where a run gives none."""

    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    initializers: Mapping[str, Array]
    nodes: tuple[Node, ...]
    functions: Mapping[tuple[str, str, str], FunctionProto]
    body_of: Callable[[FunctionProto, NodeProto], Block]
    block_length: int = 0
    defaults: tuple[Declared, ...] = ()

    def function_of(self, node: Node) -> FunctionProto | None:
        """Return the function of the model that a node calls."""
        return self.functions.get((node.domain, node.op, node.proto.overload))
