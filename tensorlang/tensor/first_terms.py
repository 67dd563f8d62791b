"""Start a reduction with its first term, where it has one and an identity gives way to every term.

    before   m, k = fold((v1, i1), (v2, i2) from (inf, maxint): if v1 < v2 or v1 == v2 and i1 < i2 then … else …) over (x[q], q)
    after    m, k = fold((v1, i1), (v2, i2) from none: …) over (x[q], q)

What is kept is then a term from the first on: places among the terms are no larger than these, and in loops that go through the terms in
turn the place that is kept is less than the one at hand. Of other reductions identities stay: what begins with one needs no flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen.dtypes import extreme
from polyhedral import affine
from polyhedral.expr import TRUE
from tensorlang.tensor.facts import first_point, index_in, is_choice
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Compare, Const, Expr, Name, Program, Reduce, Reducer, Select, Unary
from tensorlang.tensor.walk import map_children, map_pieces, reduces


def with_first_terms(program: Program) -> Program:
    """Return `program` with reductions that keep the place of a term started by the first one: every result is the same bit for bit."""

    def started(e: Expr) -> Expr:
        e = map_children(started, e)
        return replace(e, reducer=replace(e.reducer, identity=None)) if isinstance(e, Reduce) and _may_start(e) else e

    asked = [any(_may_start(e) for p in d.pieces for e in reduces(p.value)) for d in program.definitions]
    found = zip(program.definitions, asked, strict=True)
    return redefined(program, [map_pieces(d, started) if may else d for d, may in found]) if any(asked) else program


def _may_start(e: Reduce) -> bool:
    """Tell whether a reduction keeps the place of one of its terms, has a term whatever data say, and begins with what gives way to it."""
    if len(e.body) < 2 or e.init is not None or e.filter is not None or all(index_in(b) is None for b in e.body):
        return False
    if any((affine.difference(b.hi, b.lo) or 0) < 1 for b in e.binders) or (e.where != TRUE and first_point(e) is None):
        return False
    return e.reducer.identity is not None and is_choice(e.reducer) and _gives_way(e.reducer)


def _gives_way(reducer: Reducer) -> bool:
    """Tell whether the identity of a reducer combined with any term is that term, as the comparisons with it say."""
    assert reducer.identity is not None
    start = dict(zip(reducer.left, reducer.identity, strict=True))
    return all(_is(e, name, start) for e, name in zip(reducer.combine, reducer.right, strict=True))


def _is(e: Expr, name: str, start: Mapping[str, Expr]) -> bool:
    """Tell whether a choice is what `name` stands for, where other names stand for the values of `start`."""
    match e:
        case Select(cond, then, orelse):
            holds = _holds(cond, start)
            return (holds is False or _is(then, name, start)) and (holds is True or _is(orelse, name, start))
        case _:
            return e == Name(name)


def _holds(e: Expr, start: Mapping[str, Expr]) -> bool | None:
    """Return what a condition comes to; None where that depends on the term."""
    match e:
        case Const(value):
            return bool(value)
        case Unary("not", inner):
            holds = _holds(inner, start)
            return None if holds is None else not holds
        case Binary("and" | "or" as op, lhs, rhs):
            sides = _holds(lhs, start), _holds(rhs, start)
            return op == "or" if (op == "or") in sides else None if None in sides else op == "and"
        case Select(cond, then, orelse):
            holds, sides = _holds(cond, start), (_holds(then, start), _holds(orelse, start))
            return sides[not holds] if holds is not None else sides[0] if sides[0] == sides[1] else None
        case Compare(op, lhs, rhs):
            return _compared(op, _known(lhs, start), _known(rhs, start))
        case _:
            return None


def _known(e: Expr, start: Mapping[str, Expr]) -> Const | None:
    found = start.get(e.name) if isinstance(e, Name) else e
    return found if isinstance(found, Const) else None


def _compared(op: str, lhs: Const | None, rhs: Const | None) -> bool | None:
    """Return what a comparison comes to, of which a side is None where it may be anything: nothing is above the greatest value of a type,
    and nothing below the least."""
    if lhs is not None and rhs is not None:
        a, b = lhs.value, rhs.value
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op]
    if (lhs is not None and op in ("<", ">")) or (rhs is not None and op in ("<", ">")):
        known = lhs or rhs
        assert known is not None
        # `known < x` and `x > known` ask for something above it.
        above = (op == "<") == (lhs is not None)
        return False if known.value == extreme(known.dtype, highest=above) else None
    return None
