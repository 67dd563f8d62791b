"""The reductions of an equation as tensors of their own.

    y[i] = sum(k) w[i, k] * x[k] / sum(k) w[i, k]     ->     y.sum[i]   = sum(k) w[i, k] * x[k]
                                                               y.sum_1[i] = sum(k) w[i, k]
                                                               y[i]       = y.sum[i] / y.sum_1[i]

Each is then scheduled like any other tensor. A reduction on a side of a choice stays: it may read what exists only there. Elements are what
they were, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral.expr import TRUE
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.lift import outlined
from tensorlang.tensor.nodes import Binary, Definition, Expr, Program, Project, Read, Reduce, Select, TupleOf, as_value
from tensorlang.tensor.walk import definers, definition_reads, fresh_for, map_children, value_names


def sums_apart(program: Program, tensor: str) -> Program | str:
    """Return the program with the reductions of a tensor's equation as tensors of their own, or the reason why they stay."""
    definition = definers(program).get(tensor)
    if definition is None:
        return f"there is no tensor `{tensor}` defined here"
    if len(definition.pieces) > 1 or definition.pieces[0].guard != TRUE or len(definition.tensors) > 1:
        return f"`{tensor}` is computed in pieces, or with others"
    if tensor in definition_reads(definition):
        return f"`{tensor}` is a recurrence"
    [piece] = definition.pieces
    fresh, made = fresh_for(program), list[Definition]()

    def apart(e: Expr) -> Expr:
        match e:
            case Reduce() if not value_names(e):
                stem = f"{tensor}.{e.reducer.name}"
                names = tuple(fresh(stem) for _ in e.body)
                made.append(outlined(names, e, definition.axes, dict(zip(definition.axes, definition.tensors[0].shape, strict=True)), TRUE))
                return as_value(tuple(Read(n, tuple(map(AffineName, definition.axes)), span=e.span) for n in names), e.span)
            case Reduce():
                return e
            case Select(cond):
                return replace(e, cond=apart(cond))
            case Binary("and" | "or", lhs):
                return replace(e, lhs=apart(lhs))
            case Project(value, position):
                found = apart(value)
                return found.items[position] if isinstance(found, TupleOf) else replace(e, value=found)
            case _:
                return map_children(apart, e)

    value = piece.value if isinstance(piece.value, Reduce) else apart(piece.value)
    if not made:
        return f"no reduction is a part of the equation of `{tensor}`"
    at = program.definitions.index(definition)
    reading = replace(definition, pieces=(replace(piece, value=value),))
    return redefined(program, (*program.definitions[:at], *made, reading, *program.definitions[at + 1 :]))
