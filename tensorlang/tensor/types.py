"""The dtypes in which expressions are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from codegen.dtypes import DType, bool_, called_dtype, compute_dtype, i64
from tensorlang.diagnostics import InternalError
from tensorlang.tensor.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Program,
    Project,
    Read,
    Reduce,
    Select,
    TupleOf,
    Unary,
)
from tensorlang.tensor.walk import tensors

Type = DType | tuple[DType, ...]


@dataclass(frozen=True, slots=True)
class Types:
    """What `dtype_of` needs to know: dtypes as stored of tensors, dtypes of named values."""

    tensors: Mapping[str, DType]
    names: Mapping[str, Type] = field(default_factory=dict)

    def bind(self, names: Iterable[str], types: Iterable[Type]) -> Types:
        return Types(self.tensors, {**self.names, **dict(zip(names, types, strict=True))})


def types_of(program: Program) -> Types:
    return Types({t.name: t.dtype for t in tensors(program)})


def dtype_of(e: Expr, types: Types) -> Type:
    """Return the dtype in which the value of `e` is computed (f32 for the narrow floats), or the dtypes of a tuple."""
    match e:
        case Const(_, dtype):
            return compute_dtype(dtype)
        case IndexValue():
            return i64
        case Holds() | Compare():
            return bool_
        case Read(tensor):
            return compute_dtype(types.tensors[tensor])
        case Name(name):
            return types.names[name]
        case Unary(_, value):
            return dtype_of(value, types)
        case Binary(_, lhs):
            return dtype_of(lhs, types)
        case Select(_, then):
            return dtype_of(then, types)
        case Cast(dtype):
            return compute_dtype(dtype)
        case Call(fn, args):
            return called_dtype(fn, scalar_dtype(args[0], types))
        case Let(name, value, body):
            return dtype_of(body, types.bind([name], [dtype_of(value, types)]))
        case TupleOf(items):
            return tuple(scalar_dtype(item, types) for item in items)
        case Project(value, position):
            parts = dtype_of(value, types)
            return parts[position] if isinstance(parts, tuple) else parts
        case Reduce(reducer):
            return reducer.dtypes[0] if len(reducer.dtypes) == 1 else reducer.dtypes
        case _:
            assert_never(e)


def scalar_dtype(e: Expr, types: Types) -> DType:
    """Return the dtype of an expression that is no tuple."""
    dtype = dtype_of(e, types)
    if isinstance(dtype, tuple):
        raise InternalError("tensor", f"a tuple where one value is needed: {e}")
    return dtype
