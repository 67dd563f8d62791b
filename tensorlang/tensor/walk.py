"""The one traversal of the tensor IR, and what follows from it: substitution, reads, free names, fresh names.

`rebuild` applies functions to the parts of a node; every rewriting pass goes through it or through `map_children`. A reducer's `combine`
and `identity` are closed expressions of their own (over `left` and `right` alone): no traversal of the surrounding expression enters them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from operator import is_
from typing import TypeVar, assert_never

from codegen.fresh_names import Fresh as Fresh
from polyhedral import affine
from polyhedral.expr import Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.model import Coordinate, Within
from tensorlang.bounded_cache import by_identity
from tensorlang.diagnostics import NOWHERE, Span
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Call,
    Cast,
    Compare,
    Const,
    Definition,
    Dynamic,
    Expr,
    ExternCall,
    Holds,
    IndexValue,
    Let,
    Name,
    Operation,
    Program,
    Project,
    Read,
    Reduce,
    Select,
    Slot,
    Tensor,
    TupleOf,
    Unary,
)

T = TypeVar("T")
OnExpr = Callable[[Expr], Expr]
OnAffine = Callable[[Affine], Affine]
OnCond = Callable[[Cond], Cond]


def identity(part: T) -> T:
    return part


# ---------------------------------------------------------------- traversal


def rebuild(e: Expr, on_expr: OnExpr, on_affine: OnAffine = identity, on_cond: OnCond = identity) -> Expr:
    """Return `e` with its direct parts replaced: child expressions (also those in dynamic slots), index expressions, conditions. Where the
    parts stay it may be `e` itself."""
    match e:
        case Const() | Name():
            return e
        case IndexValue(index):
            to = on_affine(index)
            return e if to is index else replace(e, index=to)
        case Holds(cond):
            return replace(e, cond=on_cond(cond))
        case Read(_, index):
            slots = tuple(_rebuild_slot(s, on_expr, on_affine) for s in index)
            return e if all(map(is_, slots, index)) else replace(e, index=slots)
        case Unary(_, value) | Cast(_, value) | Project(value, _):
            new = on_expr(value)
            return e if new is value else replace(e, value=new)
        case Binary(_, lhs, rhs) | Compare(_, lhs, rhs):
            left, right = on_expr(lhs), on_expr(rhs)
            return e if left is lhs and right is rhs else replace(e, lhs=left, rhs=right)
        case Select(cond, then, orelse):
            return replace(e, cond=on_expr(cond), then=on_expr(then), orelse=on_expr(orelse))
        case Call(_, args):
            return replace(e, args=tuple(map(on_expr, args)))
        case TupleOf(items):
            return replace(e, items=tuple(map(on_expr, items)))
        case Let(_, value, body):
            return replace(e, value=on_expr(value), body=on_expr(body))
        case Reduce(_, binders, bodies, where, condition, init):
            return replace(
                e,
                binders=tuple(replace(b, lo=on_affine(b.lo), hi=on_affine(b.hi)) for b in binders),
                body=tuple(map(on_expr, bodies)),
                where=on_cond(where),
                filter=None if condition is None else on_expr(condition),
                init=None if init is None else tuple(map(on_expr, init)),
            )
        case _:
            assert_never(e)


def _rebuild_slot(slot: Slot, on_expr: OnExpr, on_affine: OnAffine) -> Slot:
    if not isinstance(slot, Dynamic):
        return on_affine(slot)
    lo = None if slot.lo is None else on_affine(slot.lo)
    hi = None if slot.hi is None else on_affine(slot.hi)
    return replace(slot, value=on_expr(slot.value), lo=lo, hi=hi)


def coordinate(slot: Slot) -> Coordinate:
    """Return which cells of an axis a slot may be."""
    return Within(slot.lo, slot.hi) if isinstance(slot, Dynamic) else slot


def distance(slot: Slot, origin: str | int) -> int | None:
    """Return how far an index lies from an axis or a number; None where that is no number."""
    return None if isinstance(slot, Dynamic) else affine.constant(affine.sub(slot, origin))


def map_children(f: OnExpr, e: Expr) -> Expr:
    """Return `e` with `f` applied to each direct child."""
    return rebuild(e, f)


def children(e: Expr) -> tuple[Expr, ...]:
    """Return the direct children of `e` in order of evaluation (dynamic indices and the parts of a reduction among them)."""
    match e:
        case Const() | Name() | IndexValue() | Holds():
            return ()
        case Read(_, index):
            return tuple(s.value for s in index if isinstance(s, Dynamic))
        case Unary(_, value) | Cast(_, value) | Project(value, _):
            return (value,)
        case Binary(_, lhs, rhs) | Compare(_, lhs, rhs):
            return (lhs, rhs)
        case Select(cond, then, orelse):
            return (cond, then, orelse)
        case Call(_, args):
            return args
        case TupleOf(items):
            return items
        case Let(_, value, body):
            return (value, body)
        case Reduce(_, _, bodies, _, condition, init):
            return (*(init or ()), *(() if condition is None else (condition,)), *bodies)
        case _:
            assert_never(e)


def nodes(e: Expr) -> Iterator[Expr]:
    """Yield `e` and everything below it, parents first."""
    rest = [e]
    while rest:
        node = rest.pop()
        yield node
        rest.extend(reversed(children(node)))


def reads(e: Expr) -> Iterator[Read]:
    """Yield every read in `e`, in order of evaluation."""
    return (n for n in nodes(e) if isinstance(n, Read))


def reduces(e: Expr) -> Iterator[Reduce]:
    """Yield every reduction in `e`, outer before inner."""
    return (n for n in nodes(e) if isinstance(n, Reduce))


def index_names(e: Expr) -> frozenset[str]:
    """Return the axes, binders and sizes that `e` mentions free: in indices, bounds and conditions."""
    direct: set[str] = set()

    def on_affine(a: Affine) -> Affine:
        direct.update(affine.names(a))
        return a

    def on_cond(c: Cond) -> Cond:
        direct.update(affine.names(c))
        return c

    rebuild(e, identity, on_affine, on_cond)
    below = direct.union(*(index_names(c) for c in children(e)))
    return frozenset(below - {b.name for b in e.binders}) if isinstance(e, Reduce) else frozenset(below)


def value_names(e: Expr) -> frozenset[str]:
    """Return the names of values (`Name`) that occur free in `e`."""
    match e:
        case Name(name):
            return frozenset((name,))
        case Let(name, value, body):
            return value_names(value) | (value_names(body) - {name})
        case _:
            return frozenset[str]().union(*(value_names(c) for c in children(e)))


def tensor_names(e: Expr) -> frozenset[str]:
    """Return the tensors that `e` reads."""
    return frozenset(r.tensor for r in reads(e))


def bound_names(e: Expr) -> Iterator[str]:
    """Yield the names that `e` binds: of binders and lets."""
    for node in nodes(e):
        match node:
            case Let(name):
                yield name
            case Reduce(_, binders):
                yield from (b.name for b in binders)


# ---------------------------------------------------------------- fresh names


def program_names(program: Program) -> set[str]:
    """Return every name that `program` uses, of whatever kind."""
    out = set(program.sizes) | {t.name for t in tensors(program)}
    for definition in program.definitions:
        out.update(definition.axes)
        for piece in definition.pieces:
            out.update(bound_names(piece.value))
    return out


def fresh_for(program: Program) -> Fresh:
    """Return a supply of names that do not occur in `program`."""
    return Fresh(program_names(program))


# ---------------------------------------------------------------- substitution


def substitute(e: Expr, to: Mapping[str, Affine]) -> Expr:
    """Return `e` with axes, binders or sizes replaced by index expressions. Binders in the way get new names."""
    if not to:
        return e
    if isinstance(e, Reduce):
        e, to = _make_way(e, to, frozenset(n for value in to.values() for n in affine.names(value)))
        if not to:
            return e
    return _substitute_parts(e, to)


def _substitute_parts(e: Expr, to: Mapping[str, Affine]) -> Expr:
    return rebuild(e, lambda c: substitute(c, to), lambda a: affine.substitute(a, to), lambda c: affine.substitute_cond(c, to))


def _make_way(e: Reduce, to: Mapping[str, Affine], incoming: frozenset[str]) -> tuple[Reduce, Mapping[str, Affine]]:
    """Return `e` with the binders renamed that would capture names of `incoming`, and `to` without the names that `e` binds."""
    bound = {b.name for b in e.binders}
    clashes = sorted(bound & incoming)
    if clashes:
        fresh = Fresh(set(bound | incoming | index_names(e) | set(to) | set(bound_names(e))))
        e = rename_binders(e, {name: fresh(name) for name in clashes})
        bound = {b.name for b in e.binders}
    return e, {name: value for name, value in to.items() if name not in bound}


def rename_binders(e: Reduce, to: Mapping[str, str]) -> Reduce:
    """Return the same reduction with its own binders renamed; the new names must be free in it."""
    mapping = {old: AffineName(new) for old, new in to.items()}
    body = _substitute_parts(replace(e, binders=()), mapping)
    assert isinstance(body, Reduce)
    binders = tuple(
        Binder(to.get(b.name, b.name), affine.substitute(b.lo, mapping), affine.substitute(b.hi, mapping), span=b.span) for b in e.binders
    )
    return replace(body, binders=binders)


def substitute_names(e: Expr, to: Mapping[str, Expr]) -> Expr:
    """Return `e` with values (`Name`) replaced by expressions. Binders and lets in the way get new names."""
    if not to:
        return e
    match e:
        case Name(name):
            return to.get(name, e)
        case Let(name, value, body):
            inner = {n: v for n, v in to.items() if n != name}
            if any(name in value_names(v) for v in inner.values()):
                incoming = frozenset[str]().union(*map(value_names, inner.values()))
                other = Fresh({name, *bound_names(body), *value_names(body), *inner, *incoming})(name)
                name, body = other, substitute_names(body, {name: Name(other)})
            return replace(e, name=name, value=substitute_names(value, to), body=substitute_names(body, inner))
        case Reduce():
            incoming = frozenset[str]().union(*(index_names(v) for v in to.values()))
            e, _ = _make_way(e, {}, incoming)
            return map_children(lambda c: substitute_names(c, to), e)
        case _:
            return map_children(lambda c: substitute_names(c, to), e)


def refresh(e: Expr, fresh: Callable[[str], str]) -> Expr:
    """Return `e` with every binder and let renamed to names of `fresh`: a copy that may stand in the same program."""
    match e:
        case Let(name, value, body):
            other = fresh(name)
            return replace(e, name=other, value=refresh(value, fresh), body=refresh(substitute_names(body, {name: Name(other)}), fresh))
        case Reduce(_, binders):
            renamed = rename_binders(e, {b.name: fresh(b.name) for b in binders})
            return map_children(lambda c: refresh(c, fresh), renamed)
        case _:
            return map_children(lambda c: refresh(c, fresh), e)


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """Return `e` with `new` wherever `old` stands, looking no further inside of either."""
    return new if e == old else map_children(lambda child: replaced(child, old, new), e)


def operands(op: str, e: Expr) -> Iterator[Expr]:
    """Yield what a chain of one operation is made of: of `a + (b + c)` and "+" a, b and c."""
    if isinstance(e, Binary) and e.op == op:
        yield from operands(op, e.lhs)
        yield from operands(op, e.rhs)
    else:
        yield e


def chained(op: Operation, parts: Iterable[Expr], span: Span = NOWHERE) -> Expr:
    """Return one operation on all of some expressions, of which there is at least one, from the first on: what `operands` takes apart."""
    return reduce(lambda lhs, rhs: Binary(op, lhs, rhs, span=span), parts)


def substitute_reads(e: Expr, f: Callable[[Read], Expr]) -> Expr:
    """Return `e` with every read `r` replaced by `f(r)`; its dynamic indices have been treated already."""
    done = map_children(lambda c: substitute_reads(c, f), e)
    return f(done) if isinstance(done, Read) else done


def substitute_sizes(program: Program, to: Mapping[str, Affine]) -> Program:
    """Return `program` with sizes replaced by integers or expressions over other sizes; the replaced ones are no longer listed."""

    def on_tensor(t: Tensor) -> Tensor:
        return _tensor_at(t, to)

    def on_definition(d: Definition) -> Definition:
        pieces = tuple(replace(p, value=substitute(p.value, to), guard=affine.substitute_cond(p.guard, to)) for p in d.pieces)
        return replace(d, tensors=tuple(map(on_tensor, d.tensors)), pieces=pieces)

    return replace(
        program,
        sizes=tuple(s for s in program.sizes if s not in to),
        params=tuple(map(on_tensor, program.params)),
        definitions=tuple(map(on_definition, program.definitions)),
        context=affine.substitute_cond(program.context, to),
        externs=tuple(call_at(call, to) for call in program.externs),
    )


def call_at(call: ExternCall, to: Mapping[str, Affine]) -> ExternCall:
    """Return the call with sizes replaced, those of its results among them."""
    return map_extern(call, lambda t: _tensor_at(t, to), lambda size: affine.substitute(size, to))


def _tensor_at(t: Tensor, to: Mapping[str, Affine]) -> Tensor:
    declared = t.declared_range
    shape = tuple(affine.substitute(s, to) for s in t.shape)
    return replace(t, shape=shape, declared_range=declared and (affine.substitute(declared[0], to), affine.substitute(declared[1], to)))


def map_extern(call: ExternCall, on_tensor: Callable[[Tensor], Tensor], on_size: Callable[[Affine], Affine]) -> ExternCall:
    """Return the call with its results, the types of its arguments and sizes replaced."""
    sizes = tuple(tuple(map(on_size, s)) if isinstance(s, tuple) else on_size(s) for s in call.sizes)
    return replace(call, results=tuple(map(on_tensor, call.results)), sizes=sizes, given=tuple(map(on_tensor, call.given)))


# ---------------------------------------------------------------- programs


def tensors(program: Program) -> Iterator[Tensor]:
    """Yield parameters, then what kernels outside of the language make, then what definitions define, in order."""
    yield from program.params
    for call in program.externs:
        yield from call.results
    for definition in program.definitions:
        yield from definition.tensors


def tensor_table(program: Program) -> dict[str, Tensor]:
    return {t.name: t for t in tensors(program)}


def definers(program: Program) -> dict[str, Definition]:
    """Return the definition of each tensor that has one."""
    return {t.name: d for d in program.definitions for t in d.tensors}


@by_identity(4096)
def definition_reads(definition: Definition) -> frozenset[str]:
    """Return the tensors that the definition reads, itself perhaps among them."""
    return frozenset[str]().union(*(tensor_names(p.value) for p in definition.pieces))


def map_values(program: Program, f: OnExpr) -> Program:
    """Return `program` with `f` applied to the value of every piece."""
    return replace(program, definitions=tuple(map_pieces(d, f) for d in program.definitions))


def map_pieces(definition: Definition, f: OnExpr) -> Definition:
    return replace(definition, pieces=tuple(replace(p, value=f(p.value)) for p in definition.pieces))


@by_identity(64)
def components(program: Program) -> tuple[tuple[Definition, ...], ...]:
    """Return the definitions grouped by mutual dependence, producers first; a group of one may still read itself."""
    position = {t.name: i for i, d in enumerate(program.definitions) for t in d.tensors}
    needs = [[position[t] for t in sorted(definition_reads(d)) if t in position] for d in program.definitions]
    return tuple(tuple(program.definitions[i] for i in sorted(group)) for group in strongly_connected(needs))


def component_of(program: Program, definition: Definition) -> tuple[Definition, ...]:
    """Return the definitions that need `definition` and are needed by it, itself among them."""
    name = definition.tensors[0].name
    return next(g for g in components(program) if any(x.tensors[0].name == name for x in g))


def is_recurrence(group: Sequence[Definition]) -> bool:
    """Tell whether the definitions of a component of a program need each other, or the only one itself."""
    return len(group) > 1 or not definition_reads(group[0]).isdisjoint(t.name for t in group[0].tensors)


def strongly_connected(successors: list[list[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph (Tarjan 1972), each after those it has edges to."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    out: list[list[int]] = []

    def visit(v: int) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in successors[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            group = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            out.append(group)

    for v in range(len(successors)):
        if v not in index:
            visit(v)
    return out


# ---------------------------------------------------------------- shapes


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the box of `tensor` (one extent an axis) for given sizes; a negative extent counts as zero."""
    return tuple(max(0, int(affine.evaluate(s, sizes))) for s in tensor.shape)


def caller_shape(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape the caller sees: axes multiplied together as `grouping` says."""
    box = shape_of(tensor, sizes)
    return tuple(prod(box[k] for k in group) for group in tensor.groups)
