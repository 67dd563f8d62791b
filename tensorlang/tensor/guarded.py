"""Give reductions the conditions under which they are asked for.

    before   y[q] = if ids[q] >= 0 then (sum(k from b[q]) x[ids[q], k]) else 0
    after    y[q] = if ids[q] >= 0 then (sum(k, ids[q] >= 0, from (if ids[q] >= 0 then b[q] else 0)) x[ids[q], k]) else 0

A reduction is computed before the expression it stands in, wherever that is, whichever side of a `Select` it is on. Conditions on
indices alone become part of where it is computed (`tensorlang.tensor.scop`); those on data have to be decided again, where it reads at
an index from data: the condition may be all that keeps the index in its range. What the value starts from is read wherever the expression
is, whatever kind the condition is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorlang.tensor.facts import (
    Place,
    conjuncts,
    has_gather,
    is_of_indices,
    keeps_conditions,
    path_condition,
    reductions,
    starts_from_reads,
)
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Const, Expr, Piece, Program, Reduce, Select
from tensorlang.tensor.walk import map_children, map_pieces, reduces


def guarded(program: Program) -> Program:
    """Return `program` with such conditions in its reductions, none of which is inside another or decides about one; every result stays
    the same, bit for bit."""
    new = tuple(map_pieces(d, _guarded) if any(_keeps_conditions(p) for p in d.pieces) else d for d in program.definitions)
    return program if new == program.definitions else redefined(program, new)


def _keeps_conditions(piece: Piece) -> bool:
    return any(map(keeps_conditions, reduces(piece.value)))


def _guarded(value: Expr) -> Expr:
    found = reductions(value, Place())
    to = {e: _under(e, path_condition(places)) for e, places in found.items() if keeps_conditions(e)}
    changed = {e: new for e, new in to.items() if new != e}
    return _replaced(value, changed) if changed else value


def _under(e: Reduce, condition: Expr | None) -> Reduce:
    """Return `e`, asked for where `condition` is true."""
    if condition is None:
        return e
    if starts_from_reads(e) and e.init is not None:
        starts = zip(e.init, e.reducer.dtypes, strict=True)
        e = replace(e, init=tuple(_chosen(condition, i, Const(d.zero, d)) for i, d in starts))
    if is_of_indices(condition) or not any(map(has_gather, (*e.body, *(() if e.filter is None else (e.filter,))))):
        return e
    return replace(e, filter=_both(condition, e.filter))


def _chosen(condition: Expr, value: Expr, other: Expr) -> Expr:
    done = isinstance(value, Select) and value.cond == condition
    return value if done else Select(condition, value, other, span=value.span)


def _both(condition: Expr, kept: Expr | None) -> Expr:
    """Return `kept` with a condition before it, unless it says all of that already but for what is about indices: that may have become
    part of where the reduction is computed."""
    if kept is None:
        return condition
    there = frozenset(conjuncts(kept))
    parts = (c for c in conjuncts(condition) if not (isinstance(c, Binary) and c.op == "and") and not is_of_indices(c))
    return kept if all(c in there for c in parts) else Binary("and", condition, kept, span=kept.span)


def _replaced(e: Expr, to: Mapping[Reduce, Reduce]) -> Expr:
    return to.get(e, e) if isinstance(e, Reduce) else map_children(lambda child: _replaced(child, to), e)
