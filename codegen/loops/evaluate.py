"""The value of an index expression where every size is known: extents of scratch memory, grids of launches; and how it is kept in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from codegen.errors import InternalError
from codegen.loops.nodes import Add, FloorDiv, Index, Int, Max, Min, Mod, Mul, ValueIndex, Var


def evaluate(e: Index, sizes: Mapping[str, int]) -> int:
    """Return the value of an index expression over sizes. What is divided by a size of 0 counts as divided by 1."""
    match e:
        case Int(n):
            return n
        case Var(name):
            if name not in sizes:
                raise InternalError("evaluate", f"`{name}` is not a size")
            return sizes[name]
        case Add(lhs, rhs):
            return evaluate(lhs, sizes) + evaluate(rhs, sizes)
        case Mul(lhs, rhs):
            return evaluate(lhs, sizes) * evaluate(rhs, sizes)
        case FloorDiv(lhs, rhs):
            return evaluate(lhs, sizes) // (evaluate(rhs, sizes) or 1)
        case Mod(lhs, rhs):
            return evaluate(lhs, sizes) % (evaluate(rhs, sizes) or 1)
        case Min(lhs, rhs):
            return min(evaluate(lhs, sizes), evaluate(rhs, sizes))
        case Max(lhs, rhs):
            return max(evaluate(lhs, sizes), evaluate(rhs, sizes))
        case ValueIndex():
            raise InternalError("evaluate", "an extent depends on data")
        case _:
            assert_never(e)


Packed: TypeAlias = "int | str | list[Packed]"
"""An index expression as JSON has it: a number, a name, or an operation with its operands."""
_OPERATIONS = {operation.__name__: operation for operation in (Add, Mul, FloorDiv, Mod, Min, Max)}


def packed(e: Index) -> Packed:
    """Return an index expression over sizes as JSON has it."""
    match e:
        case Int(n):
            return n
        case Var(name):
            return name
        case Add(lhs, rhs) | Mul(lhs, rhs) | FloorDiv(lhs, rhs) | Mod(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            return [type(e).__name__, packed(lhs), packed(rhs)]
        case ValueIndex():
            raise InternalError("evaluate", "an extent depends on data")
        case _:
            assert_never(e)


def unpacked(p: Packed) -> Index:
    """Return the index expression that `packed` made this of."""
    match p:
        case int(n):
            return Int(n)
        case str(name):
            return Var(name)
        case [str(operation), lhs, rhs]:
            return _OPERATIONS[operation](unpacked(lhs), unpacked(rhs))
        case _:
            raise InternalError("evaluate", f"{p} is no index expression")


def evaluated(e: Index, sizes: Mapping[str, int]) -> int | None:
    """Return the value of an index expression, None where it depends on other names than those of `sizes`."""
    try:
        return evaluate(e, sizes)
    except InternalError:
        return None
