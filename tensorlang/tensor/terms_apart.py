"""What a recurrence makes without itself, as tensors of their own (loop distribution: Kuck et al. 1981).

    y[i, j] = max(y[i, j - 1], f(x[i, j]))     ->     y.term[i, j] = f(x[i, j])
                                                      y[i, j]      = max(y[i, j - 1], y.term[i, j])

Nothing of such a tensor waits for anything, so that its loops run in any order, in lanes along any axis. What stands on a side of a choice
stays: it may read what exists only there. Elements are what they were, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from polyhedral.affine import negate
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import is_of_indices
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Binary, Const, Definition, Expr, Name, Piece, Program, Read, Reduce, Select, Tensor
from tensorlang.tensor.prove import problems_since
from tensorlang.tensor.rows_apart import rows_apart
from tensorlang.tensor.sums_apart import sums_apart
from tensorlang.tensor.types import dtype_of, types_of
from tensorlang.tensor.walk import (
    component_of,
    definers,
    definition_reads,
    fresh_for,
    index_names,
    map_children,
    map_pieces,
    refresh,
    tensor_names,
    value_names,
)


def parts_apart(program: Program, tensor: str) -> Program | str:
    """Return the program with what the equation of a tensor is made of as tensors of their own, the terms of a recurrence, where it has
    none the rows that it reads of itself, or the reductions of any other, or the reason why they stay."""
    definition = definers(program).get(tensor)
    if definition is None or tensor not in definition_reads(definition):
        return sums_apart(program, tensor)
    made = terms_apart(program, tensor)
    rows = rows_apart(program, tensor) if isinstance(made, str) else made
    return made if isinstance(rows, str) else rows


def terms_apart(program: Program, tensor: str) -> Program | str:
    """Return the program with what the equation of a recurrence makes without it as tensors of their own, whose reductions are lifted, or
    the reason why it stays."""
    definition = definers(program).get(tensor)
    if definition is None:
        return f"there is no tensor `{tensor}` defined here"
    if tensor not in definition_reads(definition) or len(definition.tensors) > 1:
        return f"`{tensor}` is no recurrence, or computed with others"
    group = component_of(program, definition)
    own = {t.name for x in group for t in x.tensors}
    # Terms are computed everywhere, where they may be: then no element asks whether it has one.
    for everywhere in (True, False):
        made = _apart(program, definition, own, everywhere=everywhere)
        if made is None:
            return f"nothing that takes an operation is made without `{tensor}`"
        if not problems_since(program, made):
            return lift(made)
    return f"what is made without `{tensor}` exists only where it is asked for"


def _apart(program: Program, definition: Definition, own: set[str], *, everywhere: bool) -> Program | None:
    """Return the program with tensors for all terms; None where there are none."""
    name, axes, shape = definition.tensors[0].name, definition.axes, definition.tensors[0].shape
    fresh, types = fresh_for(program), types_of(program)
    made: list[Definition] = []
    known: dict[tuple[Expr, Cond], Expr] = {}

    def term(e: Expr, guard: Cond) -> Expr:
        guard = TRUE if everywhere else guard
        key = _canonical(e), guard
        if key not in known:
            dtype = dtype_of(e, types)
            assert not isinstance(dtype, tuple)
            tensor = Tensor(fresh(f"{name}.term"), dtype, shape, span=e.span)
            pieces = [Piece(e, guard, span=e.span)]
            if guard != TRUE:
                pieces.append(Piece(Const(dtype.zero, dtype), negate(guard), otherwise=True, span=e.span))
            made.append(Definition((tensor,), axes, tuple(pieces), span=e.span))
            known[key] = Read(tensor.name, tuple(map(AffineName, axes)), span=e.span)
        return known[key]

    def apart(e: Expr, guard: Cond) -> Expr:
        if not tensor_names(e) & own and not value_names(e):
            return term(e, guard) if _is_term(e, axes) and not isinstance(dtype_of(e, types), tuple) else e
        match e:
            case Reduce():
                return e
            case Select(cond):
                return replace(e, cond=apart(cond, guard))
            case Binary("and" | "or", lhs):
                return replace(e, lhs=apart(lhs, guard))
            case _:
                return map_children(lambda child: apart(child, guard), e)

    recurrent = {p: replace(p, value=apart(p.value, p.guard)) for p in definition.pieces if tensor_names(p.value) & own}
    starts = {p: replace(p, value=known.get((_canonical(p.value), TRUE), p.value)) for p in definition.pieces if p not in recurrent}
    if all(is_of_indices(e) for e, _ in known):
        return None  # Loops are split at conditions of indices: these take no operation.
    reading = replace(definition, pieces=tuple({**recurrent, **starts}[p] for p in definition.pieces))
    # Two tensors have names of their own for what they sum over.
    made = [map_pieces(x, lambda e: refresh(e, fresh)) for x in made]
    at = program.definitions.index(definition)
    return redefined(program, (*program.definitions[:at], *made, reading, *program.definitions[at + 1 :]))


def _is_term(e: Expr, axes: tuple[str, ...]) -> bool:
    """Tell whether an expression takes an operation for each element."""
    return not isinstance(e, Read | Const | Name) and not index_names(e).isdisjoint(axes)


def _canonical(e: Expr) -> Expr:
    """Return an expression that is the same for all that differ in the names of what they sum over."""
    numbers = count()
    return refresh(e, lambda _: f"_{next(numbers)}")
