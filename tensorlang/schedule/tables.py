"""Functions of one byte, computed once for each of its 256 values: the rewriting behind `tabulate`.

    before   y[i, j] = sat[i8](round(sigmoid(f32(x[i, j]) * s) / t))        x: i8[N, M]                         tabulate y
    after    y.table[v] = sat[i8](round(sigmoid(f32(i8(v - 128)) * s) / t))   for v in 0..256
             y[i, j] = y.table[i64(x[i, j]) + 128]

What is computed has to depend on one element of eight bits, and on nothing else that differs from point to point. It is computed as it was
written, of each value, so results keep every bit, those of `strict` operators, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen.dtypes import i8, i64, u8
from polyhedral import affine
from polyhedral.expr import TRUE, Int
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Cast, Const, Definition, Dynamic, Holds, IndexValue, Program, Read, Reduce, Tensor
from tensorlang.tensor.walk import definers, fresh_for, index_names, nodes, reads, replaced, tensor_table

VALUES = 256
"""How many values a byte has."""


@dataclass(frozen=True, slots=True)
class OfByte:
    """A definition that is a function of one element of eight bits: where it is read, and the least number it may be, 0 or -128."""

    definition: Definition
    read: Read
    least: int


def of_byte(program: Program, tensor: str) -> OfByte | str:
    """Return the definition of `tensor` as a function of one byte, or the reason why it is none."""
    definition = definers(program).get(tensor)
    if definition is None or len(definition.tensors) > 1 or len(definition.pieces) > 1 or definition.pieces[0].guard != TRUE:
        return "it is not made by one equation that holds for all its elements"
    value, table = definition.pieces[0].value, tensor_table(program)
    axes = frozenset(definition.axes)
    moving = {r for r in reads(value) if axes & index_names(r)}
    if len(moving) != 1 or any(isinstance(n, Reduce) for n in nodes(value)):
        return "it is no function of one element"
    [read] = moving
    rest = replaced(value, read, Const(0, table[read.tensor].dtype))
    if any(isinstance(n, IndexValue | Holds) and axes & index_names(n) for n in nodes(rest)):
        return f"it differs from point to point where `{read.tensor}` does not"
    if table[read.tensor].dtype not in (u8, i8):
        return f"`{read.tensor}` is {table[read.tensor].dtype}, of which there are more values than {VALUES}"
    if any(isinstance(slot, Dynamic) for slot in read.index):
        return f"data say which element of `{read.tensor}` it is of"
    return OfByte(definition, read, -128 if table[read.tensor].dtype == i8 else 0)


def tabulated(program: Program, tensor: str) -> Program | str:
    """Return the program with a table of what `tensor` is of each byte, and `tensor` read from that, or the reason why it is no function of
    one byte."""
    found = of_byte(program, tensor)
    if isinstance(found, str):
        return found
    fresh, definition = fresh_for(program), found.definition
    piece, (made,) = definition.pieces[0], definition.tensors
    axis = fresh("v")
    byte = tensor_table(program)[found.read.tensor].dtype
    of_each = Cast(byte, IndexValue(affine.add(AffineName(axis), found.least)))
    held = Tensor(fresh(f"{tensor}.table"), made.dtype, (Int(VALUES),), span=made.span)
    table = Definition((held,), (axis,), (replace(piece, value=replaced(piece.value, found.read, of_each)),), span=definition.span)
    place = Cast(i64, found.read) if found.least == 0 else Binary("+", Cast(i64, found.read), Const(-found.least, i64))
    looked_up = Read(held.name, (Dynamic(place),), span=piece.span)
    at = program.definitions.index(definition)
    asked = replace(definition, pieces=(replace(piece, value=looked_up),))
    return redefined(program, (*program.definitions[:at], table, asked, *program.definitions[at + 1 :]))
