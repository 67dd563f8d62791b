"""What a reduction reads at places that its binder chooses, read where each of the few values of the binder says.

    before   y[i] = sum(k in 0..2) x[i + (if k == 0 then -1 else 1) | 0]                        the index is a value, as if data said it
    after    y[i] = sum(k in 0..2) (if k == 0 then x[i - 1 | 0] else x[i + 1 | 0])

Then it is known where each term reads: neighbours, for lanes. Terms are what they were, in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from codegen.dtypes import bool_, i64
from polyhedral import affine
from polyhedral.expr import Cond, Int, Scale
from polyhedral.expr import Expr as Affine
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Compare, Const, Definition, Dynamic, Expr, Holds, IndexValue, Let, Program, Read, Reduce, Select
from tensorlang.tensor.prove import reads_in_bounds
from tensorlang.tensor.walk import index_names, map_children, map_pieces, nodes, reads, reduces, substitute, substitute_names, tensor_names

MOST_VALUES = 16
"""Of binders that choose places, for each of which the term is written out."""

LARGEST = 1 << 31
"""Below which numbers are that indices are made of: values wrap around where they leave 64 bits."""


def with_chosen_places(program: Program) -> Program:
    """Return `program` with such terms written out, where they are then proven to read inside of their tensors; every result stays the
    same, bit for bit."""
    new = tuple(_definition(program, d) for d in program.definitions)
    return program if all(a is b for a, b in zip(new, program.definitions, strict=True)) else redefined(program, new)


def _definition(program: Program, definition: Definition) -> Definition:
    if not any(_may_choose(e) for p in definition.pieces for e in reduces(p.value)):
        return definition
    new = map_pieces(definition, _written_out)
    others = (new if d is definition else d for d in program.definitions)
    return new if new != definition and reads_in_bounds(redefined(program, others), new) else definition


def _written_out(e: Expr) -> Expr:
    e = map_children(_written_out, e)
    if not isinstance(e, Reduce) or e.filter is not None or not _may_choose(e):
        return e
    before, written = e, 1
    e = replace(e, body=tuple(map(_with_places, e.body)))
    for binder in e.binders:
        low, count = affine.constant(binder.lo), affine.difference(binder.hi, binder.lo)
        if low is not None and count is not None and 1 < count <= MOST_VALUES // written and _chosen_by(e, binder.name):
            others = {b.name for b in e.binders if b is not binder}
            e = replace(e, body=tuple(_of_each(term, binder.name, range(low, low + count), others) for term in e.body))
            written *= count
    return e if written > 1 else before


def _may_choose(e: Reduce) -> bool:
    return any(isinstance(n, Select) for term in e.body for n in nodes(term)) and any(True for term in e.body for _ in _moving(term))


def _with_places(e: Expr) -> Expr:
    """Return an expression with the values in it that no data say written where they are used."""
    e = map_children(_with_places, e)
    return substitute_names(e.body, {e.name: e.value}) if isinstance(e, Let) and not tensor_names(e.value) else e


def _of_each(term: Expr, binder: str, values: Iterable[int], others: Collection[str]) -> Expr:
    """Return a term as a choice between what it is for each value of a binder; the term where an index is then neither plain, nor of data,
    nor chosen by `others`."""
    if not any(_is_chosen(slot, {binder}) for slot in _moving(term)):
        return term
    *cases, last = [(value, settled(substitute(term, {binder: Int(value)}))) for value in values]
    if any(not tensor_names(slot.value) and not _is_chosen(slot, others) for _, case in (*cases, last) for slot in _moving(case)):
        return term
    result = last[1]
    for value, case in reversed(cases):
        result = Select(Holds(affine.compare("==", binder, value)), case, result, span=term.span)
    return result


def _chosen_by(e: Reduce, binder: str) -> bool:
    return any(_is_chosen(slot, {binder}) for term in e.body for slot in _moving(term))


def _moving(e: Expr) -> Iterable[Dynamic]:
    return (slot for read in reads(e) for slot in read.index if isinstance(slot, Dynamic))


def _is_chosen(slot: Dynamic, binders: Collection[str]) -> bool:
    """Tell whether an index that no data say, and that is known to lie inside, is chosen by some of these binders."""
    if tensor_names(slot.value) or slot.lo is None or slot.hi is None:
        return False
    return any(isinstance(n, Select) and not index_names(n.cond).isdisjoint(binders) for n in nodes(slot.value))


def settled(e: Expr) -> Expr:
    """Return an expression with the choices made that numbers decide, and with indices where no data say what they are."""
    match e:
        case Select(cond, then, orelse):
            known = settled(cond)
            if isinstance(known, Const):
                return settled(then if known.value else orelse)
            return replace(e, cond=known, then=settled(then), orelse=settled(orelse))
        case Let(name, value, body):
            known = settled(value)
            if isinstance(known, IndexValue):
                return settled(substitute_names(body, {name: known}))
            return replace(e, value=known, body=settled(body))
        case Holds(cond):
            return Const(affine.holds(cond, {}), bool_, span=e.span) if not affine.name_set(cond) else e
        case Const(int() as number, dtype) if dtype == i64 and abs(number) < LARGEST:
            return IndexValue(Int(number), span=e.span)
        case _:
            return _index(map_children(settled, e))


def _index(e: Expr) -> Expr:
    """Return an expression of settled ones as an index, or a condition of indices, where it is one."""
    match e:
        case Binary(op, IndexValue(lhs), IndexValue(rhs)) if (index := _combined(op, lhs, rhs)) is not None and _is_small(index):
            return IndexValue(index, span=e.span)
        case Compare(op, IndexValue(lhs), IndexValue(rhs)):
            return Holds(affine.compare(op, lhs, rhs), span=e.span)
        case Read(_, index):
            slots = (s.value.index if isinstance(s, Dynamic) and isinstance(s.value, IndexValue) else s for s in index)
            return replace(e, index=tuple(slots))
        case _:
            return e


def _is_small(e: Affine) -> bool:
    """Tell whether all numbers in an index are small."""
    match e:
        case Int(number) | Scale(number, _) if abs(number) >= LARGEST:
            return False
        case _:
            return all(_is_small(part) for part in affine.parts(e) if not isinstance(part, Cond))


def _combined(op: str, lhs: Affine, rhs: Affine) -> Affine | None:
    number = affine.constant(rhs)
    match op:
        case "+":
            return affine.add(lhs, rhs)
        case "-":
            return affine.sub(lhs, rhs)
        case "*":
            return affine.mul(lhs, rhs)
        case "min":
            return affine.minimum(lhs, rhs)
        case "max":
            return affine.maximum(lhs, rhs)
        case "//" | "%" if number is not None and number > 0:
            return affine.floor(lhs, number) if op == "//" else affine.mod(lhs, number)
        case _:
            return None
