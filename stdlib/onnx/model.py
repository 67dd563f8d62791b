"""A model as the importer sees it: plain Python values, each of them checked, and none of the protobuf left.

model ::= opset versions, inputs, outputs, initializers, nodes in topological order
node  ::= operator, version of its domain, names of inputs and outputs ("" where an optional one is absent), attributes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from codegen.dtypes import DType

Array: TypeAlias = np.ndarray[Any, Any]
Attribute: TypeAlias = int | float | str | Array | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Dim: TypeAlias = int | str | None


@dataclass(frozen=True, slots=True)
class Declared:
    """An input or output of the model. A dimension is a number, a symbol, or None when nothing is said; `dims` None: not even the rank."""

    name: str
    dtype: DType | None
    dims: tuple[Dim, ...] | None


@dataclass(frozen=True, slots=True)
class Node:
    """`label` is unique in the model and made for people: the node's own name, or its operator and position. `version`: the opset of its
    domain; `since`: the version in which the operator was last changed up to there. `custom`: neither ONNX nor the model
    says what it is."""

    label: str
    domain: str
    op: str
    version: int
    since: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    custom: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    initializers: Mapping[str, Array]
    nodes: tuple[Node, ...]
