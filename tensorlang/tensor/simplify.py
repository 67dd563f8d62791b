"""Programs made smaller, with every result the same bit for bit.

    inline, inline_all   t[i] = x[i] + 1;  y[i] = t[i - 1] * 2      ->   y[i] = (x[i - 1] + 1) * 2
    simplify             literals are folded, decided selects resolved, casts that change nothing dropped
    common_subexpressions    f(x) * f(x)   ->   let v = f(x) in v * v

What is inlined keeps its roundings: the value of a tensor of a narrow float type is cast to that type where the tensor is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codegen.dtypes import DType, bool_, compute_dtype, i64
from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Cond
from polyhedral.expr import Name as AffineName
from polyhedral.sets import implies
from polyhedral.verdict import Proven
from tensorlang.diagnostics import InternalError
from tensorlang.tensor import arith
from tensorlang.tensor.facts import binder_cond, box, facts, negative_facts
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Definition,
    Dynamic,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Program,
    Read,
    Reduce,
    Select,
    Slot,
    TupleOf,
    Unary,
)
from tensorlang.tensor.types import Types, scalar_dtype, types_of
from tensorlang.tensor.walk import (
    Fresh,
    children,
    component_of,
    definers,
    definition_reads,
    fresh_for,
    index_names,
    is_recurrence,
    map_children,
    map_pieces,
    map_values,
    nodes,
    reads,
    reduces,
    refresh,
    substitute,
    substitute_reads,
    value_names,
)

# ---------------------------------------------------------------- inlining


def can_inline(definition: Definition) -> bool:
    """Tell whether the value of `definition` may be written in place of its reads: one tensor, no reduction, not through itself."""
    return (
        len(definition.tensors) == 1
        and definition.tensors[0].name not in definition_reads(definition)
        and not any(True for p in definition.pieces for _ in reduces(p.value))
    )


def can_repeat(program: Program, definition: Definition) -> bool:
    """Tell whether the terms of reductions alone read a reduction, which may then be a part of each of these: one tensor, in no
    recurrence."""
    name = definition.tensors[0].name
    if len(definition.tensors) > 1 or is_recurrence(component_of(program, definition)):
        return False
    return not any(r.tensor == name for d in program.definitions for p in d.pieces for r in _reads_outside(p.value))


def _reads_outside(e: Expr) -> Iterator[Read]:
    """Yield the reads in `e` that are in no term of a reduction."""
    if isinstance(e, Read):
        yield e
    outside = children(replace(e, body=())) if isinstance(e, Reduce) else children(e)
    yield from (r for child in outside for r in _reads_outside(child))


def inline(program: Program, tensor: str) -> Program:
    """Return `program` with the reads of `tensor` replaced by its value, as far as an index from data allows it.

    The definition stays if something still needs it. Raises InternalError for what `can_inline` and `can_repeat` refuse."""
    definition = definers(program)[tensor]
    if not can_inline(definition) and not can_repeat(program, definition):
        raise InternalError("inline", f"`{tensor}` cannot be inlined")
    fresh, types, dtype = fresh_for(program), types_of(program), definition.tensors[0].dtype

    def on_read(read: Read) -> Expr:
        value = value_at(definition, read.index, fresh) if read.tensor == tensor else None
        return read if value is None else rounded(value, dtype, types)

    others = [d if d is definition else map_pieces(d, lambda e: substitute_reads(e, on_read)) for d in program.definitions]
    inlined = redefined(program, others)
    needed = tensor in program.results or any(tensor in definition_reads(d) for d in others)
    return inlined if needed else redefined(inlined, (d for d in others if d is not definition))


def value_at(definition: Definition, index: Sequence[Slot], fresh: Fresh) -> Expr | None:
    """Return what the one tensor of `definition` holds at `index`, before it is rounded to the tensor's type, or None where an index from
    data stands in the way."""
    at = dict(zip(definition.axes, index, strict=True))
    fixed = {a: s for a, s in at.items() if not isinstance(s, Dynamic)}
    moving = {a: s for a, s in at.items() if isinstance(s, Dynamic)}
    value: Expr | None = None
    for piece in reversed(definition.pieces):
        if set(affine.names(piece.guard)) & set(moving):
            return None
        here = with_dynamic(piece.value, moving)
        if here is None:
            return None
        here = substitute(refresh(here, fresh), fixed)
        guard = affine.substitute_cond(piece.guard, fixed)
        # Pieces cover the box, so the last one needs no condition.
        value = here if value is None or guard == TRUE else value if guard == FALSE else Select(Holds(guard), here, value, span=here.span)
    return value


def rounded(e: Expr, dtype: DType, types: Types) -> Expr:
    """Return `e` as a tensor of `dtype` holds it."""
    return e if compute_dtype(dtype) == dtype or _is_of(e, dtype, types) else Cast(dtype, e, span=e.span)


def with_dynamic(e: Expr, moving: Mapping[str, Dynamic]) -> Expr | None:
    """Return `e` with axes replaced by indices from data, which is possible where an axis is all of an index of a read, or a value of its
    own and the index is known to lie inside: nothing else would look at it."""
    if not moving:
        return e

    def replaced(e: Expr) -> Expr:
        match map_children(replaced, e):
            case Read(_, index) as read:
                return replace(read, index=tuple(moving.get(s.name, s) if isinstance(s, AffineName) else s for s in index))
            case IndexValue(AffineName(name)) as value if name in moving and None not in (moving[name].lo, moving[name].hi):
                return Cast(i64, moving[name].value, span=value.span)
            case other:
                return other

    out = replaced(e)
    brought = frozenset[str]().union(*(index_names(s.value) | _range_names(s) for s in moving.values()))
    left = index_names(out) & set(moving)
    return None if left - brought or left & brought else out


def _range_names(slot: Dynamic) -> frozenset[str]:
    return frozenset(n for b in (slot.lo, slot.hi) if b is not None for n in affine.names(b))


def without_guard(definition: Definition, sizes: Sequence[str]) -> Definition:
    """Return a definition of one piece without its guard where that always holds."""
    if len(definition.pieces) != 1 or definition.pieces[0].guard == TRUE:
        return definition
    [piece] = definition.pieces
    holds = implies(sizes, definition.axes, box(definition), piece.guard)
    return replace(definition, pieces=(replace(piece, guard=TRUE),)) if isinstance(holds, Proven) else definition


def inline_all(program: Program, cost_rule: Callable[[Definition, int], bool]) -> Program:
    """Return `program` with every definition inlined that can be and for which `cost_rule(definition, number of reads)` says yes.

    Results stay, but their readers may still compute them anew."""
    for definition in program.definitions:
        name = definition.tensors[0].name
        current = definers(program)[name]
        uses = sum(r.tensor == name for d in program.definitions for p in d.pieces for r in reads(p.value))
        if uses and can_inline(current) and cost_rule(current, uses):
            program = inline(program, name)
    return program


# ---------------------------------------------------------------- simplification


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands: what is known there, and the names in scope."""

    types: Types
    sizes: tuple[str, ...]
    scope: tuple[str, ...]
    known: Cond

    def under(self, cond: Cond) -> _Place:
        return replace(self, known=affine.conj(self.known, cond))

    def decides(self, cond: Cond) -> bool:
        """Tell whether `cond` is known to hold."""
        if all(c in affine.conjuncts(self.known) for c in affine.conjuncts(cond)):
            return True
        return isinstance(implies(self.sizes, self.scope, self.known, cond), Proven)


def simplify(program: Program) -> Program:
    """Return an equal program with nothing in it that is known already."""
    types = types_of(program)
    context = affine.conj(program.context, *(affine.compare(">=", s, 0) for s in program.sizes))

    def on_definition(definition: Definition) -> Definition:
        inside = _Place(types, program.sizes, definition.axes, affine.conj(context, box(definition)))
        live = [p for p in definition.pieces if p.guard != FALSE] or list(definition.pieces[:1])
        return replace(definition, pieces=tuple(replace(p, value=_simplified(p.value, inside.under(p.guard))) for p in live))

    return redefined(program, map(on_definition, program.definitions))


def _simplified(e: Expr, place: _Place) -> Expr:
    match e:
        case Select(cond, then, orelse):
            return _select(e, _simplified(cond, place), then, orelse, place)
        case Binary("and" | "or" as op, lhs, rhs):
            left = _simplified(lhs, place)
            return _logic(e, op, left, _simplified(rhs, place.under(facts(left) if op == "and" else negative_facts(left))))
        case Holds(cond):
            return Const(True, bool_, span=e.span) if place.decides(cond) else Const(False, bool_, span=e.span) if cond == FALSE else e
        case Reduce():
            inner = replace(place.under(binder_cond(e)), scope=(*place.scope, *(b.name for b in e.binders)))
            return replace(
                e,
                body=tuple(_simplified(b, inner) for b in e.body),
                filter=None if e.filter is None else _simplified(e.filter, inner),
                init=None if e.init is None else tuple(_simplified(i, place) for i in e.init),
            )
        case Let(name, value, body):
            done = _simplified(value, place)
            types = place.types.bind([name], [_type(done, place)])
            return replace(e, value=done, body=_simplified(body, replace(place, types=types)))
        case _:
            return _local(map_children(lambda c: _simplified(c, place), e), place.types)


def _type(e: Expr, place: _Place) -> DType | tuple[DType, ...]:
    if isinstance(e, Reduce) and len(e.reducer.dtypes) > 1:
        return e.reducer.dtypes
    return tuple(scalar_dtype(i, place.types) for i in e.items) if isinstance(e, TupleOf) else scalar_dtype(e, place.types)


def _select(e: Select, cond: Expr, then: Expr, orelse: Expr, place: _Place) -> Expr:
    if isinstance(cond, Const):
        return _simplified(then if cond.value else orelse, place)
    if isinstance(cond, Holds) and place.decides(affine.negate(cond.cond)):
        return _simplified(orelse, place)
    yes = _simplified(then, place.under(facts(cond)))
    no = _simplified(orelse, place.under(negative_facts(cond)))
    return yes if yes == no else replace(e, cond=cond, then=yes, orelse=no)


def _logic(e: Expr, op: str, left: Expr, right: Expr) -> Expr:
    neutral = op == "and"
    if isinstance(left, Const):
        return right if bool(left.value) == neutral else left
    if isinstance(right, Const) and bool(right.value) == neutral:
        return left
    return replace(e, lhs=left, rhs=right) if isinstance(e, Binary) else e


def _local(e: Expr, types: Types) -> Expr:
    """Return `e`, whose children are simple already, made simpler by itself."""
    folded = _folded(e, types)
    if folded is not None:
        return folded
    match e:
        case Binary("+" | "-", x, Const(0, dtype)) | Binary("+", Const(0, dtype), x) if dtype.is_integer:
            return x
        case Binary("-", x, Const(0.0 as zero, dtype)) if dtype.is_float and not np.signbit(zero):
            return x
        case Binary("+", x, Const(0.0 as zero, dtype)) | Binary("+", Const(0.0 as zero, dtype), x) if dtype.is_float and np.signbit(zero):
            return x
        case Binary("*", x, Const(1, _)) | Binary("*", Const(1, _), x) | Binary("/", x, Const(1, _)):
            return x
        case Unary("not", Unary("not", x)):
            return x
        case Unary("not", Holds(cond)):
            return Holds(affine.negate(cond), span=e.span)
        case Cast(dtype, value, saturate):
            return _cast(e, dtype, value, saturate, types)
        case _:
            return e


def _cast(e: Cast, dtype: DType, value: Expr, saturate: bool, types: Types) -> Expr:
    """Drop a cast to the type that the value has, and one in between that changes no value."""
    source = scalar_dtype(value, types)
    if dtype == source or (compute_dtype(dtype) != dtype and _is_of(value, dtype, types)):
        return value
    if isinstance(value, Cast):
        inner = scalar_dtype(value.value, types)
        if _embeds(inner, value.dtype):
            return _cast(replace(e, value=value.value), dtype, value.value, saturate, types)
    return e


def _is_of(e: Expr, dtype: DType, types: Types) -> bool:
    """Tell whether what `e` makes is known to be a number of `dtype`, as `e` stands."""
    match e:
        case Read(tensor):
            return types.tensors[tensor] == dtype
        case Cast(to):
            return to == dtype
        case Select(_, then, orelse):
            return _is_of(then, dtype, types) and _is_of(orelse, dtype, types)
        case Const(value):
            with np.errstate(over="ignore"):
                return float(np.asarray(value, dtype.numpy)).hex() == float(value).hex()
        case _:
            return False


_EXACT_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def _embeds(source: DType, target: DType) -> bool:
    """Tell whether every value of `source` is a value of `target`."""
    if source == target:
        return True
    if source.is_float:
        return source.name == "f32" and target.name == "f64"
    if source == bool_:
        return target != bool_
    if target.is_float:
        return source.bits <= _EXACT_BITS.get(target.name, 0)
    low, high = arith.integer_range(source)
    least, most = arith.integer_range(target)
    return target.is_integer and least <= low and high <= most


def _folded(e: Expr, types: Types) -> Const | None:
    """Return the value of an operation on literals."""
    operands = children(e)
    if not operands or not all(isinstance(c, Const) for c in operands):
        return None
    values = [arith.constant(c.value, c.dtype, 1) for c in operands if isinstance(c, Const)]
    dtypes = [c.dtype for c in operands if isinstance(c, Const)]
    with np.errstate(all="ignore"):
        match e:
            case Unary(op):
                out = arith.unary(op, values[0], dtypes[0])
            case Binary(op):
                out = arith.binary(op, values[0], values[1], dtypes[0])
            case Compare(op):
                out = arith.compare(op, values[0], values[1])
            case Cast(dtype, _, saturate):
                out = arith.cast(values[0], dtypes[0], dtype, saturate)
            case Call(fn):
                out = arith.call(fn, values, dtypes[0])
            case _:
                return None
    return Const(out[0].item(), scalar_dtype(e, types), span=e.span)


# ---------------------------------------------------------------- common subexpressions


def common_subexpressions(program: Program) -> Program:
    """Return `program` with what a piece or the body of a reduction computes several times computed once."""
    fresh = fresh_for(program)
    return map_values(program, lambda e: _shared(e, fresh))


def _shared(e: Expr, fresh: Fresh) -> Expr:
    """Bind repeated operations of `e`, largest first; then do the same inside its reductions."""
    if isinstance(e, TupleOf | Reduce):
        return _shared_inside(e, fresh)
    counts = Counter(n for n in _same_scope(e) if _worth(n))
    surely = set(_unconditional(e))
    repeated = [n for n, count in counts.items() if count > 1 and n in surely and not value_names(n)]
    if not repeated:
        return _shared_inside(e, fresh)
    largest = max(repeated, key=lambda n: sum(1 for _ in nodes(n)))
    name = fresh("v")
    return Let(name, _shared(largest, fresh), _shared(_replaced(e, largest, Name(name)), fresh), span=e.span)


def _shared_inside(e: Expr, fresh: Fresh) -> Expr:
    if isinstance(e, Reduce):
        return replace(e, body=tuple(_shared(b, fresh) for b in e.body))
    return map_children(lambda c: _shared_inside(c, fresh), e)


def _worth(e: Expr) -> bool:
    return isinstance(e, Binary | Unary | Call | Cast | Select | Read) and not any(isinstance(n, Reduce | Let) for n in nodes(e))


def _same_scope(e: Expr) -> Iterator[Expr]:
    """Yield the nodes of `e` that see the same indices and values as `e` does."""
    yield e
    if not isinstance(e, Reduce | Let):
        for child in children(e):
            yield from _same_scope(child)


def _unconditional(e: Expr) -> Iterator[Expr]:
    """Yield the nodes that are evaluated whenever `e` is."""
    yield e
    match e:
        case Select(cond):
            yield from _unconditional(cond)
        case Binary("and" | "or", lhs):
            yield from _unconditional(lhs)
        case Reduce() | Let():
            return
        case _:
            for child in children(e):
                yield from _unconditional(child)


def _replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    if e == old:
        return new
    return e if isinstance(e, Reduce | Let) else map_children(lambda c: _replaced(c, old, new), e)
