"""What arguments and results of nodes are: tensors, sequences and maps of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from codegen.dtypes import DType
from tensorlang.check.instantiate import ArgType
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import Size, is_open

SMALL_INPUT = 16
"""Inputs of so many elements at most hold sizes, axes and the like: a model is compiled for their elements as it is for shapes."""

Type: TypeAlias = tuple[DType, tuple[int, ...]]

Argument: TypeAlias = "Value | tuple[Value, ...] | None"

Item: TypeAlias = "Value | TensorSequence | RowSequence | GrowingSequence | Maps | None"


@dataclass(frozen=True, slots=True)
class TensorSequence:
    """A sequence of ONNX, whose length is always known here. `dtype`: what its elements are of, None where it never had one."""

    items: tuple[Value, ...]
    dtype: DType | None


@dataclass(frozen=True, slots=True)
class RowSequence:
    """A sequence whose tensors are the rows of a value, one for each turn of a loop that has made it: how many may be a size."""

    rows: Value


@dataclass(frozen=True, slots=True)
class GrowingSequence:
    """A sequence that a turn of a loop is given, and what it has put at its end: of what was there before nothing is known."""

    appended: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Maps:
    """Maps with the same keys. `values` has what one holds for each of them, or a row of such for each of several maps."""

    keys: Value
    values: Value


def argument_type(argument: Argument) -> ArgType | tuple[ArgType, ...] | None:
    """Return the type of an argument."""
    match argument:
        case None:
            return None
        case Value():
            return _type_of(argument)
        case _:
            return tuple(_type_of(part) for part in argument)


def _type_of(value: Value) -> ArgType:
    return ArgType(value.dtype, tuple(plain_attribute(n) for n in value.shape) if is_open(value.shape) else value.shape)


def plain_attribute(n: Any) -> Any:
    """Return an attribute or extent as programs have it: open sizes as expressions."""
    return tuple(plain_attribute(part) for part in n) if isinstance(n, tuple) else n.expression if isinstance(n, Size) else n


def tensors_of(item: Item) -> tuple[Value, ...]:
    """Return the tensors of an argument or a result."""
    match item:
        case None:
            return ()
        case TensorSequence():
            return item.items
        case RowSequence():
            return (item.rows,)
        case GrowingSequence():
            return item.appended
        case Maps():
            return item.keys, item.values
        case Value():
            return (item,)


def flat(arguments: Sequence[Argument]) -> list[Value]:
    """Return the values that are there, those of a tuple one after the other."""
    return [v for a in arguments if a is not None for v in ((a,) if isinstance(a, Value) else a)]


def is_small(value: Value) -> bool:
    """Tell whether an input holds sizes, axes and the like, of which there are as many in each run."""
    return len(value.shape) <= 1 and not is_open(value.shape) and prod(value.shape) <= SMALL_INPUT
