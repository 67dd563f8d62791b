"""The child traversal of the loop IR, and what follows from it: free variables, accesses, substitution, fresh names.

Every pass recurses through `map_index`, `map_expr` and `map_stmt`, which rebuild one node from its direct children and return the very
same object when no child changed, or reads through `children` and `walk`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar, assert_never, overload

from codegen.fresh_names import Fresh as Fresh
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Buffer,
    Call,
    Cast,
    Commit,
    Compare,
    CompareOp,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Max,
    Min,
    Mma,
    Mod,
    Mul,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.notes import N, Note

Node: TypeAlias = Index | Expr | Stmt
K = TypeVar("K", Index, Expr, Load)
OnIndex: TypeAlias = Callable[[Index], Index]
OnExpr: TypeAlias = Callable[[Expr], Expr]
OnStmt: TypeAlias = Callable[[Stmt], Stmt]

FLIPPED: Mapping[CompareOp, CompareOp] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What a comparison is with its sides exchanged."""

# ---------------------------------------------------------------- rebuilding


def map_index(e: Index, index: OnIndex, expr: OnExpr) -> Index:
    """Return `e` with `index` or `expr` applied to each direct child."""
    match e:
        case Int() | Var():
            return e
        case Add(lhs, rhs) | Mul(lhs, rhs) | FloorDiv(lhs, rhs) | Mod(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            new_lhs, new_rhs = index(lhs), index(rhs)
            return e if new_lhs is lhs and new_rhs is rhs else type(e)(new_lhs, new_rhs)
        case ValueIndex(value):
            new = expr(value)
            return e if new is value else ValueIndex(new)
        case _:
            assert_never(e)


def map_expr(e: Expr, index: OnIndex, expr: OnExpr) -> Expr:
    """Return `e` with `index` or `expr` applied to each direct child."""
    match e:
        case Const() | Name():
            return e
        case Load(buffer, place):
            new_place = _each(place, index)
            return e if new_place is place else Load(buffer, new_place)
        case IndexValue(value):
            new_index = index(value)
            return e if new_index is value else IndexValue(new_index)
        case Unary(op, value):
            new = expr(value)
            return e if new is value else Unary(op, new)
        case Binary(_, lhs, rhs) | Compare(_, lhs, rhs):
            new_lhs, new_rhs = expr(lhs), expr(rhs)
            return e if new_lhs is lhs and new_rhs is rhs else replace(e, lhs=new_lhs, rhs=new_rhs)
        case Select(cond, then, orelse):
            parts = (cond, then, orelse)
            new_parts = _each(parts, expr)
            return e if new_parts is parts else Select(*new_parts)
        case Cast(dtype, value, saturate):
            new = expr(value)
            return e if new is value else Cast(dtype, new, saturate)
        case Call(fn, args):
            new_args = _each(args, expr)
            return e if new_args is args else Call(fn, new_args)
        case Fma(a, b, c):
            parts = (a, b, c)
            new_parts = _each(parts, expr)
            return e if new_parts is parts else Fma(*new_parts)
        case Dot(count, x, y, z):
            new_x, new_y, new_z = expr(x), expr(y), expr(z)
            if new_x is x and new_y is y and new_z is z:
                return e
            assert isinstance(new_x, Load) and isinstance(new_y, Load), "an operand in memory stays there"
            return Dot(count, new_x, new_y, new_z)
        case _:
            assert_never(e)


def map_stmt(s: Stmt, index: OnIndex, expr: OnExpr, stmt: OnStmt) -> Stmt:
    """Return `s` with `index`, `expr` or `stmt` applied to each direct child."""
    match s:
        case For(lo=lo, hi=hi, body=body):
            new_lo, new_hi, new_body = index(lo), index(hi), _each(body, stmt)
            same = new_lo is lo and new_hi is hi and new_body is body
            return s if same else replace(s, lo=new_lo, hi=new_hi, body=new_body)
        case Store(index=place, value=value):
            new_place, new_value = _each(place, index), expr(value)
            return s if new_place is place and new_value is value else replace(s, index=new_place, value=new_value)
        case Let(name, value):
            new_value = expr(value)
            return s if new_value is value else Let(name, new_value)
        case If(cond, then, orelse):
            new_cond, new_then, new_orelse = expr(cond), _each(then, stmt), _each(orelse, stmt)
            return s if new_cond is cond and new_then is then and new_orelse is orelse else If(new_cond, new_then, new_orelse)
        case Alloc(buffer):
            shape = _each(buffer.shape, index)
            return s if shape is buffer.shape else Alloc(replace(buffer, shape=shape))
        case Prefetch(index=place):
            new_place = _each(place, index)
            return s if new_place is place else replace(s, index=new_place)
        case Require(cond, code):
            new_cond = expr(cond)
            return s if new_cond is cond else Require(new_cond, code)
        case LoadMatrix(index=place, source=source):
            new_place, new_source = _each(place, index), expr(source)
            assert isinstance(new_source, Load), "an operand in memory stays one"
            return s if new_place is place and new_source is source else replace(s, index=new_place, source=new_source)
        case Mma(_, sums, rows, columns):
            operands = (sums, rows, columns)
            changed = tuple(e for e in (expr(o) for o in operands) if isinstance(e, Load))
            assert len(changed) == len(operands), "operands in registers stay there"
            return s if all(a is b for a, b in zip(changed, operands, strict=True)) else Mma(s.name, *changed)
        case Boxes(barriers, group, boxes):
            return Boxes(
                barriers, index(group), tuple(replace(b, target=_load(expr(b.target)), source=_load(expr(b.source))) for b in boxes)
            )
        case WaitBoxes(_, group) | Release(_, group) | Reclaim(_, group):
            new_group = index(group)
            return s if new_group is group else replace(s, group=new_group)
        case Producer(body):
            new_body = _each(body, stmt)
            return s if new_body is body else replace(s, body=new_body)
        case Barrier() | Commit() | Wait():
            return s
        case _:
            assert_never(s)


def _load(e: Expr) -> Load:
    assert isinstance(e, Load), "an operand in memory stays there"
    return e


@overload
def _each(items: tuple[Index, ...], f: OnIndex) -> tuple[Index, ...]: ...
@overload
def _each(items: tuple[Expr, ...], f: OnExpr) -> tuple[Expr, ...]: ...
@overload
def _each(items: tuple[Stmt, ...], f: OnStmt) -> tuple[Stmt, ...]: ...
def _each(items, f):  # type: ignore[no-untyped-def]  # the overloads type it
    """Return `items` with `f` applied, the same tuple when nothing changed."""
    new = [f(item) for item in items]
    for made, item in zip(new, items, strict=True):
        if made is not item:
            return tuple(new)
    return items


# ---------------------------------------------------------------- reading


_LEAVES = (Int, Var, Const, Name, Barrier, Commit, Wait)
_PAIRS = (Add, Mul, FloorDiv, Mod, Min, Max, Binary, Compare)
_FREQUENT: Mapping[type, Callable[[Any], tuple[Node, ...]]] = {
    **dict.fromkeys(_LEAVES, lambda leaf: ()),
    **dict.fromkeys(_PAIRS, attrgetter("lhs", "rhs")),
    Load: attrgetter("index"),
}
"""How the children are found of nodes of which there are most; the others are matched."""


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct children of `node` in the order in which they are evaluated."""
    frequent = _FREQUENT.get(type(node))
    if frequent is not None:
        return frequent(node)
    assert not isinstance(node, (*_LEAVES, *_PAIRS, Load))  # so that types tell which are left to match
    match node:
        case Prefetch(index=place):
            return place
        case ValueIndex(value) | Unary(_, value) | Cast(_, value) | Let(_, value):
            return (value,)
        case IndexValue(index):
            return (index,)
        case Select(cond, then, orelse):
            return (cond, then, orelse)
        case Call(_, args):
            return args
        case Fma(a, b, c) | Dot(_, a, b, c):
            return (a, b, c)
        case For(lo=lo, hi=hi, body=body):
            return (lo, hi, *body)
        case Store(index=place, value=value):
            return (*place, value)
        case If(cond, then_block, else_block):
            return (cond, *then_block, *else_block)
        case Alloc(buffer):
            return buffer.shape
        case Require(cond, _):
            return (cond,)
        case LoadMatrix(index=place, source=source):
            return (*place, source)
        case Mma(_, sums, rows, columns):
            return (sums, rows, columns)
        case Boxes(_, group, boxes):
            return (group, *(end for b in boxes for end in (b.target, b.source)))
        case WaitBoxes(_, group) | Release(_, group) | Reclaim(_, group):
            return (group,)
        case Producer(body):
            return body
        case _:
            assert_never(node)


def walk(*roots: Node) -> Iterator[Node]:
    """Yield `roots` and everything below them, parents first, in text order."""
    pending = list(reversed(roots))
    while pending:
        node = pending.pop()
        yield node
        below = _FREQUENT.get(type(node), children)(node)
        if below:
            pending.extend(below[::-1])


def statements(*roots: Node) -> Iterator[Node]:
    """Yield the statements among `roots` and below them, parents first, in text order: expressions are not gone through."""
    pending = list(reversed(roots))
    while pending:
        node = pending.pop()
        match node:
            case For(body=body) | Producer(body):
                pending.extend(reversed(body))
            case If(_, then, orelse):
                pending.extend(reversed((*then, *orelse)))
            case _:
                pass
        yield node


def free_vars(*roots: Node) -> frozenset[str]:
    """Return the loop variables and sizes that `roots` use and do not bind themselves."""
    found: set[str] = set()
    for root in roots:
        match root:
            case Var(name):
                found.add(name)
            case For(var, lo, hi, body):
                found |= free_vars(lo, hi) | (free_vars(*body) - {var})
            case LoadMatrix(index=place, lane=lane, source=source):
                found |= free_vars(*place) | (free_vars(source) - {lane})
            case _:
                found |= free_vars(*children(root))
    return frozenset(found)


def loads(*roots: Node) -> Iterator[Load]:
    """Yield every read of a buffer below `roots`, in text order."""
    return (node for node in walk(*roots) if isinstance(node, Load))


def certain_loads(*roots: Node) -> frozenset[Load]:
    """Return the reads below `roots` that are made whatever conditions are, and however often loops run."""
    found: frozenset[Load] = frozenset()
    for node in roots:
        match node:
            case Select(cond, then, orelse):
                found |= certain_loads(cond) | (certain_loads(then) & certain_loads(orelse))
            case Binary("and" | "or", lhs, _):
                found |= certain_loads(lhs)
            case If(cond, inside, otherwise):
                found |= certain_loads(cond) | (certain_loads(*inside) & certain_loads(*otherwise))
            case For(lo=lo, hi=hi) if not runs_at_least_once(node):
                found |= certain_loads(lo, hi)
            case _:
                found |= certain_loads(*children(node)) | (frozenset((node,)) if isinstance(node, Load) else frozenset())
    return found


def stores(*roots: Node) -> Iterator[Store]:
    """Yield every write to a buffer below `roots`, in text order."""
    return (node for node in statements(*roots) if isinstance(node, Store))


def pruned(body: tuple[Stmt, ...], is_gone: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    """Return `body` without some statements, and without loops and conditions around nothing else."""
    return tuple(new for s in body for new in _pruned(s, is_gone))


def _pruned(s: Stmt, is_gone: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    match s:
        case _ if is_gone(s):
            return ()
        case For(body=body):
            kept = pruned(body, is_gone)
            return (replace(s, body=kept),) if kept else ()
        case If(cond, then, orelse):
            both = pruned(then, is_gone), pruned(orelse, is_gone)
            return (If(cond, *both),) if any(both) else ()
        case Producer(body):
            return (replace(s, body=pruned(body, is_gone)),)
        case _:
            return (s,)


def runs_at_least_once(loop: For) -> bool:
    """Tell whether `loop` has an iteration, as far as its bounds are numbers."""
    return bool(loop.values)


def conjuncts(cond: Expr) -> Iterator[Expr]:
    """Yield the conditions that all hold where `cond` does, in the order in which they are asked."""
    match cond:
        case Binary("and", lhs, rhs):
            yield from conjuncts(lhs)
            yield from conjuncts(rhs)
        case _:
            yield cond


def range_of_condition(cond: Expr) -> tuple[Expr, Expr | None, Expr | None] | None:
    """Return the value that a condition asks to lie in a range `low <= value < high`, with these: None for one that it does not ask for, as
    where the type of the value keeps it. None where it asks anything else."""
    match cond:
        case Binary("and", Compare(">=", value, low), Compare("<", again, high)) if value == again:
            return value, low, high
        case Compare(">=", value, low):
            return value, low, None
        case Compare("<", value, high):
            return value, None, high
        case _:
            return None


def names(*roots: Node) -> frozenset[str]:
    """Return the `Let` names that `roots` mention."""
    return frozenset(node.name for node in walk(*roots) if isinstance(node, Name))


def binders(*block: Stmt) -> Iterator[str]:
    """Yield the names that `block` binds: loop variables, values and buffers, in text order, with repetitions."""
    for s in block:
        match s:
            case For(var=name, body=body):
                yield name
                yield from binders(*body)
            case Let(name=name) | Alloc(Buffer(name=name)):
                yield name
            case If(_, then, orelse):
                yield from binders(*then, *orelse)
            case LoadMatrix(lane=name):
                yield name
            case Producer(body):
                yield from binders(*body)
            case Store() | Prefetch() | Require() | Barrier() | Commit() | Wait() | Mma() | Boxes() | WaitBoxes() | Release() | Reclaim():
                pass
            case _:
                assert_never(s)


# ---------------------------------------------------------------- substitution and names


class Shared:
    """Results by the object they were computed from: what stands in a statement several times as one object is rewritten once, and the
    copies stay one object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, object]] = {}

    def of(self, e: K, f: Callable[[K], K]) -> K:
        """Return `f(e)`, remembered."""
        found = self._known.get(id(e))
        if found is None:
            found = self._known[id(e)] = (e, f(e))
        return found[1]  # type: ignore[return-value]  # what was put there for `e`


def substitute_index(e: Index, env: Mapping[str, Index]) -> Index:
    """Return `e` with the variables in `env` replaced."""
    return _Substitution(env).index(e)


def substitute_expr(e: Expr, env: Mapping[str, Index]) -> Expr:
    """Return `e` with the variables in `env` replaced."""
    return _Substitution(env).expr(e)


def substitute_stmt(s: Stmt, env: Mapping[str, Index]) -> Stmt:
    """Return `s` with the variables in `env` replaced. No loop inside binds one of them or a variable of their replacements."""
    return _Substitution(env).stmt(s)


def substitution(env: Mapping[str, Index]) -> OnStmt:
    """Return `substitute_stmt` for several statements that may have parts in common."""
    return _Substitution(env).stmt


class _Substitution:
    def __init__(self, env: Mapping[str, Index]) -> None:
        self._env = env
        self._shared = Shared()

    def index(self, e: Index) -> Index:
        match e:
            case Int():
                return e
            case Var(name):
                return self._env.get(name, e)
            case _:
                return self._shared.of(e, self._index)

    def _index(self, e: Index) -> Index:
        return map_index(e, self.index, self.expr)

    def expr(self, e: Expr) -> Expr:
        return self._shared.of(e, self._expr)

    def _expr(self, e: Expr) -> Expr:
        return map_expr(e, self.index, self.expr)

    def stmt(self, s: Stmt) -> Stmt:
        return map_stmt(s, self.index, self.expr, self.stmt)


@overload
def substitute(e: Index, env: Mapping[str, Index]) -> Index: ...
@overload
def substitute(e: Expr, env: Mapping[str, Index]) -> Expr: ...
@overload
def substitute(e: Stmt, env: Mapping[str, Index]) -> Stmt: ...
def substitute(e: Node, env: Mapping[str, Index]) -> Node:
    """Return `e` with the loop variables and sizes in `env` replaced."""
    match e:
        case Int() | Var() | Add() | Mul() | FloorDiv() | Mod() | Min() | Max() | ValueIndex():
            return substitute_index(e, env)
        case For() | Store() | Let() | If() | Alloc() | Prefetch() | Require() | Barrier() | Commit() | Wait():
            return substitute_stmt(e, env)
        case LoadMatrix() | Mma() | Boxes() | WaitBoxes() | Release() | Reclaim() | Producer():
            return substitute_stmt(e, env)
        case _:
            return substitute_expr(e, env)


def rename(block: tuple[Stmt, ...], new: Mapping[str, str]) -> tuple[Stmt, ...]:
    """Return `block` with values, buffers and loop variables renamed, where they are bound and where they are used."""

    shared = Shared()

    def index(e: Index) -> Index:
        match e:
            case Int():
                return e
            case Var(name):
                return Var(new[name]) if name in new else e
            case _:
                return shared.of(e, inside)

    def inside(e: Index) -> Index:
        return map_index(e, index, expr)

    def expr(e: Expr) -> Expr:
        return shared.of(e, renamed)

    def renamed(e: Expr) -> Expr:
        match map_expr(e, index, expr):
            case Name(name) if name in new:
                return Name(new[name])
            case Load(buffer, place) if buffer in new:
                return Load(new[buffer], place)
            case other:
                return other

    def stmt(s: Stmt) -> Stmt:
        match map_stmt(s, index, expr, stmt):
            case For(var=var) as loop if var in new:
                return replace(loop, var=new[var])
            case Let(name, value) if name in new:
                return Let(new[name], value)
            case Alloc(buffer) if buffer.name in new:
                return Alloc(replace(buffer, name=new[buffer.name]))
            case (Store(buffer=target) | Prefetch(buffer=target)) as access if target in new:
                return replace(access, buffer=new[target])
            case (Boxes(barriers=target) | WaitBoxes(barriers=target) | Release(barriers=target) | Reclaim(barriers=target)) as counted if (
                target in new
            ):
                return replace(counted, barriers=new[target])
            case LoadMatrix(buffer=target, lane=lane) as load if target in new or lane in new:
                return replace(load, buffer=new.get(target, target), lane=new.get(lane, lane))
            case other:
                return other

    return tuple(stmt(s) for s in block) if new else block


def fresh_for(function: Function) -> Fresh:
    """Return a supply of names for `function`: its sizes, parameters and everything bound inside are taken."""
    return Fresh({*function.sizes, *(p.name for p in function.params), *binders(*function.body)})


# ---------------------------------------------------------------- notes


def noted_loops(kind: type[N], *roots: Node) -> Iterator[tuple[For, N]]:
    """Yield the loops that have a note of this kind, with it."""
    for node in statements(*roots):
        if isinstance(node, For) and (note := node.note(kind)) is not None:
            yield node, note


def noted_buffers(kind: type[N], *roots: Node) -> Iterator[tuple[Buffer, N]]:
    """Yield the allocated buffers that have a note of this kind, with it."""
    for node in statements(*roots):
        if isinstance(node, Alloc) and (note := node.buffer.note(kind)) is not None:
            yield node.buffer, note


def without(function: Function, *kinds: type[Note]) -> Function:
    """Return `function` without its notes of these kinds: they have been carried out."""

    def stmt(s: Stmt) -> Stmt:
        new = map_stmt(s, lambda i: i, lambda e: e, stmt)
        match new:
            case For() if any(map(new.note, kinds)):
                return new.without(*kinds)
            case Alloc(buffer) if any(map(buffer.note, kinds)):
                return Alloc(buffer.without(*kinds))
            case _:
                return new

    return replace(function, body=tuple(map(stmt, function.body)))
