"""Run a loop for the iterations alone that a condition of data leaves it: one, or a range.

    before   for n in 0 .. N { c[n] = select(n == ids[k], v, c[n]) }
    then     for n in 0 .. N { if n == ids[k] { c[n] = v } }

    before   for n in 0 .. N { c[n] = select(n == a, v, select(n == b, w, c[n])) }
    then     for n in 0 .. N { if n == a { c[n] = v } }; for n in 0 .. N { if n == b and not n == a { c[n] = w } }

    before   for n in 0 .. N { for j in 0 .. J { if ids[k] == n { y[n, j] = y[n, j] + u[k, j] } } }
    after    for n in max(0, ids[k]) .. max(-1, min(N - 1, ids[k])) + 1 { for j in 0 .. J { y[n, j] = y[n, j] + u[k, j] } }

    before   for e in 0 .. E { if start[i] <= e and e < start[i + 1] { y[i] = y[i] + v[e] } }
    after    for e in max(0, start[i]) .. min(E, start[i + 1]) { y[i] = y[i] + v[e] }

    before   for o in 0 .. E/8 { for l in 0 .. 8 vector { if start[i] <= 8*o + l { y[i, l] = y[i, l] + v[8*o + l] } } }
    after    for o in max(0, start[i] // 8) .. E/8 { for l in 0 .. 8 vector { if start[i] <= 8*o + l { y[i, l] = y[i, l] + v[8*o + l] } } }

    before   for n in 0 .. N { if 0 < J { if ids[k] == n { … } }; if J < I { if ids[k] == n { … } } }
    after    if 0 < J { for n in max(0, ids[k]) .. … { … } }; if J < I { for n in max(0, ids[k]) .. … { … } }

Conditions first leave the loops that they do not depend on, then the equations among them become bounds. Where all parts of a loop stand
under one equation, each inside conditions and loops of its own, the loop moves into these: it has one iteration. Of comparisons that all
of a loop stands under, also inside its lanes, the bounds follow, and the comparison stays where it says more than these. Only serial loops
are pinned: of lanes, threads and copies there have to be as many as was said. But lanes that would all write one element have a condition
that leaves one of them: they run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce

from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Compare,
    Expr,
    FloorDiv,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    Max,
    Min,
    Mul,
    Name,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
)
from codegen.loops.verify import is_reduction
from codegen.loops.walk import binders, conjuncts, free_vars, names, rename, runs_at_least_once, stores, walk

_LEAVES = ("serial", "vector", "unroll")
"""Loops that a condition may leave: their iterations are the block's own."""
_FAR = 1 << 61
"""Further than any index: what data say beyond it they say of all."""


def pinned(function: Function) -> Function:
    """Return `function` with loops that conditions pin to one iteration bounded by it."""
    return replace(function, body=_block(function.body))


def pinned_in_threads(function: Function) -> Function:
    """Return `function` with those loops bounded by conditions of data in which nothing is bound to threads: what threads do together, and
    where they wait for each other, is no matter of what one of them has read."""
    return replace(function, body=_in_threads(function.body))


def _in_threads(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For() if not any(s.kind not in _LEAVES for s in walk(*stmt.body) if isinstance(s, For)):
                out += _block((stmt,))
            case For():
                out.append(replace(stmt, body=_in_threads(stmt.body)))
            case If():
                out.append(replace(stmt, then=_in_threads(stmt.then), orelse=_in_threads(stmt.orelse)))
            case _:
                out.append(stmt)
    return tuple(out)


def only_iteration(loop: For) -> tuple[Expr, Index, Index] | None:
    """Return the value that the variable of a pinned loop has in its only iteration, and between which indices, both included, it has to
    lie for there to be one; None for any other loop."""
    match loop.lo, loop.hi:
        case Max(first, ValueIndex(value)), Add(Max(before, Min(last, ValueIndex(same))), Int(1)) if value == same and before == _less(
            first
        ):
            return value, first, last
        case ValueIndex(value), Add(Min(last, ValueIndex(same)), Int(1)) if value == same:
            return value, loop.lo, last  # Of what is known not to lie before the first.
        case Max(first, ValueIndex(value)), Add(ValueIndex(same) as last, Int(1)) if value == same:
            return value, first, last
        case _:
            return None


def runs_at_most_once(loop: For) -> bool:
    """Tell whether data name the only iteration of a loop, if there is one."""
    named = isinstance(loop.lo, ValueIndex) and loop.hi in (Add(loop.lo, Int(1)), Add(Int(1), loop.lo))
    return loop.kind == "serial" and (named or only_iteration(loop) is not None)


def _block(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                kind = "serial" if stmt.kind == "vector" and _leaves_one_lane(stmt) else stmt.kind
                out += _pinned(replace(stmt, kind=kind, body=_block(stmt.body)))
            case If():
                out.append(replace(stmt, then=_block(stmt.then), orelse=_block(stmt.orelse)))
            case _:
                out.append(stmt)
    return tuple(out)


def _leaves_one_lane(loop: For) -> bool:
    """Tell whether all lanes write one element, where no two of them may: a condition leaves only one of them something to do."""
    own = {s.buffer.name for s in walk(*loop.body) if isinstance(s, Alloc)}
    varying = {loop.var} | {s.var for s in walk(*loop.body) if isinstance(s, For)}
    return any(
        s.buffer not in own
        and varying.isdisjoint(free_vars(*s.index))
        and not any(isinstance(part, ValueIndex) for part in walk(*s.index))
        and not is_reduction(s)
        for s in stores(*loop.body)
    )


def _pinned(loop: For) -> tuple[Stmt, ...]:
    parts = _each_by_itself(loop) or _one_of_several(loop)
    if parts:
        return tuple(s for part in parts for s in _pinned(replace(loop, body=(part,))))
    *lets, last = _under_one_condition(loop.body) or (loop,)
    if loop.kind not in _LEAVES or not isinstance(last, If) or last.orelse or not all(isinstance(s, Let) for s in lets):
        return _moved_inside(loop) or _narrowed(loop)
    if not all(_is_fixed(s.value, loop, lets) for s in lets if isinstance(s, Let)):
        return _narrowed(loop)
    conditions = [*conjuncts(last.cond)]
    pin = next((c for c in conditions if loop.kind == "serial" and _equal_to(c, loop, lets) is not None), None)
    value = None if pin is None else _equal_to(pin, loop, lets)
    outside = [c for c in conditions if c is not pin and _is_fixed(c, loop, lets)]
    if value is None and not outside:
        return _narrowed(loop)
    inside = [c for c in conditions if c is not pin and c not in outside]
    bounded = replace(loop, body=_guarded(inside, last.then))
    if value is not None:
        before = Max(_less(loop.lo), Min(_less(loop.hi), ValueIndex(value)))
        bounded = replace(bounded, lo=Max(loop.lo, ValueIndex(value)), hi=Add(before, Int(1)))
    once = (*lets, *_guarded(outside, (bounded,) if value is not None else _pinned(bounded)))
    needs = not runs_at_least_once(loop) and (outside or lets)
    return _guarded([Compare("<", IndexValue(loop.lo), IndexValue(loop.hi))], once) if needs else once


def _each_by_itself(loop: For) -> tuple[If, ...]:
    """Return the parts of a loop of which each changes the one element that data of its own name, where no iteration touches what another
    one does: each part may run for all iterations before the next one does."""
    parts = [s for stmt in loop.body for s in _alternatives(stmt)]
    found = tuple(s for s in parts if isinstance(s, If) and not s.orelse and loop.kind == "serial")
    if len(found) < 2 or len(found) < len(parts):
        return ()
    named = [next((v for c in conjuncts(s.cond) if (v := _equal_to(c, loop, [])) is not None), None) for s in found]
    if None in named or len({*named}) == 1:
        return ()
    changed = {s.buffer for s in stores(*found)}
    places = [(part.buffer, part.index) for part in walk(*found) if isinstance(part, Load | Store) and part.buffer in changed]
    own = {b: {k for k, e in enumerate(next(i for c, i in places if c == b)) if e == Var(loop.var)} for b in changed}
    apart = all(any(index[k] == Var(loop.var) for k in own[b]) for b, index in places)
    return found if apart else ()


def _one_of_several(loop: For) -> tuple[If, ...]:
    """Return the parts of a loop of which one runs, or none, as conditions say that are the same in all iterations."""
    parts = _alternatives(loop.body[0]) if loop.kind in _LEAVES and len(loop.body) == 1 else ()
    found = tuple(s for s in parts if isinstance(s, If) and not s.orelse and _is_fixed(s.cond, loop, []))
    return found if 1 < len(found) == len(parts) else ()


def _alternatives(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return a store that leaves its element as it is, unless one of several conditions holds, as a store under each of these."""
    match stmt:
        case Store(buffer, index, Select(first, then, Select() as others), stream=False, across=False, later=False):
            rest = _alternatives(replace(stmt, value=others))
            reads_own = any(isinstance(part, Load) and part.buffer == buffer for part in walk(first))
            if reads_own or not all(isinstance(s, If) for s in rest):
                return (stmt,)
            later = (replace(s, cond=Binary("and", Unary("not", first), s.cond)) for s in rest if isinstance(s, If))
            return (If(first, (Store(buffer, index, then),), ()), *later)
        case _:
            return (_changing(stmt),)


def _moved_inside(loop: For) -> tuple[Stmt, ...]:
    """Return a loop of which one equation with data leaves one iteration, inside the conditions and loops that each of its parts stands
    under before it comes to that equation; nothing where a part does not come to it, or to another."""
    found = [*_equations(loop.body, loop)] if loop.kind == "serial" else []
    value = found[0] if len({*found}) == 1 else None

    def moved(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
        for s in body:
            match s:
                case If() if not _says_which(s, loop):
                    yield replace(s, then=tuple(moved(s.then)))
                case For():
                    yield replace(s, body=tuple(moved(s.body)))
                case _:
                    yield from _pinned(replace(loop, body=(s,)))

    return () if value is None else tuple(moved(loop.body))


def _equations(body: tuple[Stmt, ...], loop: For) -> Iterator[Expr | None]:
    """Yield what the variable of a loop is by each of the equations that a block comes to, None for a part that comes to none, or is under
    something else than indices that are the same in all iterations."""
    for s in body:
        match s:
            case If(cond, _, ()) if (said := _says_which(s, loop)) is not None:
                yield said
            case If(cond, then, ()) if _is_of_other_indices(loop, cond):
                yield from _equations(then, loop)
            case For(_, lo, hi, inner, "serial" | "unroll") if _is_of_other_indices(loop, lo, hi):
                yield from _equations(inner, loop)
            case _:
                yield None


def _says_which(s: If, loop: For) -> Expr | None:
    return next((value for c in conjuncts(s.cond) if (value := _equal_to(c, loop, [])) is not None), None)


def _is_of_other_indices(loop: For, *roots: Expr | Index) -> bool:
    """Tell whether something depends on indices alone, and not on that of a loop."""
    return loop.var not in free_vars(*roots) and not any(isinstance(part, Load | Name) for part in walk(*roots))


def _narrowed(loop: For) -> tuple[Stmt, ...]:
    """Return a loop that begins and ends where comparisons with data let the first of its iterations do something, and the last."""
    if loop.kind != "serial":
        return (loop,)
    low, high = list[Index](), list[Index]()
    before, said = list[Expr](), list[Expr]()
    for condition, inside in _asked(loop.body, {}):
        limit = _limit(condition, loop, inside)
        known = limit is not None and any(part == ValueIndex(limit[1]) for end in (loop.lo, loop.hi) for part in walk(end))
        if limit is not None and not known and _is_safe(limit[1], before, loop):
            (low if limit[0] else high).append(_bound(*limit[1:]))
            said += [condition] if _is_all_said(condition, limit[1], loop) else []
        before.append(condition)
    if not low and not high:
        return (loop,)
    found = replace(loop, lo=reduce(Max, low, loop.lo), hi=reduce(Min, high, loop.hi), body=_without(said, loop.body))
    return (found,) if runs_at_least_once(loop) else _guarded([Compare("<", IndexValue(loop.lo), IndexValue(loop.hi))], (found,))


def _is_all_said(condition: Expr, data: Expr, loop: For) -> bool:
    """Tell whether bounds of a loop say all that a condition does: of its variable alone, and of data that no index is made of."""
    alone = isinstance(condition, Compare) and IndexValue(Var(loop.var)) in (condition.lhs, condition.rhs)
    return alone and not any(part == data for index in walk(*loop.body) if isinstance(index, ValueIndex) for part in walk(index))


def _without(conditions: list[Expr], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block without conditions that it stands under."""
    match body:
        case (*before, If(cond, then, ())) if all(isinstance(s, Let) for s in before):
            return (*before, *_guarded([c for c in conjuncts(cond) if c not in conditions], _without(conditions, then)))
        case _:
            return body


def _asked(body: tuple[Stmt, ...], inside: dict[str, int]) -> Iterator[tuple[Expr, dict[str, int]]]:
    """Yield the conditions that all of a block stands under, in the order in which they are asked, with the loops around them inside the
    block, which count from 0, and how far."""
    *lets, last = _under_one_condition(body) or (None,)
    if not all(isinstance(s, Let) for s in lets):
        return
    match last:
        case If(cond, then, ()):
            yield from ((c, inside) for c in conjuncts(cond))
            yield from _asked(then, inside)
        case For(var, Int(0), _, inner, kind, int(extent)) if kind in _LEAVES:
            yield from _asked(inner, {**inside, var: extent})
        case _:
            pass


def _limit(condition: Expr, loop: For, inside: Mapping[str, int]) -> tuple[bool, Expr, int, Index] | None:
    """Return what a condition says of the variable of a loop: whether it is a lower limit, the data, by how much the variable is multiplied
    there, and what is added to the product at most; None where it says nothing."""
    match condition:
        case Compare("<" | "<=" | ">" | ">=" as op, IndexValue(index), data):
            lower, strict = op in (">", ">="), op in ("<", ">")
        case Compare("<" | "<=" | ">" | ">=" as op, data, IndexValue(index)):
            lower, strict = op in ("<", "<="), op in ("<", ">")
        case _:
            return None
    terms = _terms(index)
    fixed = _is_fixed(data, loop, []) and free_vars(data).isdisjoint(inside)
    if terms is None or not fixed or not any(isinstance(part, Load) for part in walk(data)):
        return None
    factor = sum(f for name, f in terms if name == loop.var)
    within = [(inside[name], f) for name, f in terms if name in inside]
    rest: list[Index] = [Mul(Int(f), Var(name)) if name else Int(f) for name, f in terms if name != loop.var and name not in inside]
    if factor < 1:
        return None
    reach = sum((count - 1) * f for count, f in within if (f > 0) == lower)
    # Below: product + rest + reach >= data (+ 1); above: product + rest + reach < data (+ 1).
    shift = reach - (strict if lower else not strict)
    added: Index = Int(shift)
    return lower, data, factor, reduce(Add, rest, added)


def _bound(data: Expr, factor: int, added: Index) -> Index:
    """Return the first iteration that a lower limit leaves, or that an upper one leaves no more."""
    far = Min(Max(ValueIndex(data), Int(-_FAR)), Int(_FAR))
    difference = Add(far, Mul(Int(-1), added))
    return difference if factor == 1 else FloorDiv(Add(difference, Int(factor - 1)), Int(factor))


def _is_safe(data: Expr, before: list[Expr], loop: For) -> bool:
    """Tell whether data may be read before a loop, as far as conditions keep the read inside that are asked before it in each iteration."""
    asked = [c for c in before if not _is_fixed(c, loop, [])]
    nested = any(isinstance(part, ValueIndex) for load in walk(data) if isinstance(load, Load) for part in walk(*load.index))
    plain = [c for c in asked if nested or not any(isinstance(part, Load) for part in walk(c))]
    return all(free_vars(data).isdisjoint(free_vars(c)) for c in plain) and not (nested and asked)


def _terms(index: Index) -> list[tuple[str, int]] | None:
    """Return an index as a sum of variables with their factors, and of numbers, which have no name; None where it is no such sum."""
    match index:
        case Int(value):
            return [("", value)]
        case Var(name):
            return [(name, 1)]
        case Add(lhs, rhs):
            left, right = _terms(lhs), _terms(rhs)
            return [*left, *right] if left is not None and right is not None else None
        case Mul(Int(factor), rest) | Mul(rest, Int(factor)):
            found = _terms(rest)
            return [(name, factor * f) for name, f in found] if found is not None else None
        case _:
            return None


def _under_one_condition(body: tuple[Stmt, ...]) -> list[Stmt]:
    """Return a block in which what stands under one condition after the other is together, where both are the same and the first part
    changes nothing that it reads; values that are bound twice are bound once."""
    out: list[Stmt] = []
    for stmt in _bound_once(map(_changing, body)):
        before = out[-1] if out else None
        if isinstance(stmt, If) and isinstance(before, If) and before.cond == stmt.cond and not before.orelse and not stmt.orelse:
            changed, bound = {s.buffer for s in stores(*before.then)}, {*binders(*before.then)}
            changes = any(isinstance(part, Load) and part.buffer in changed for part in walk(stmt.cond))
            if not changes and bound.isdisjoint(names(*stmt.then)):
                out[-1] = replace(before, then=(*before.then, *stmt.then))
                continue
        out.append(stmt)
    return out


def _bound_once(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Yield a block in which no name is bound to what another name is still bound to."""
    known: dict[Expr, str] = {}
    again: dict[str, str] = {}
    for each in body:
        stmt = rename((each,), again)[0] if again else each
        if isinstance(stmt, Let) and stmt.value in known:
            again[stmt.name] = known[stmt.value]
            continue
        changed = {s.buffer for s in stores(stmt)} if known else set()
        known = {v: n for v, n in known.items() if not any(isinstance(part, Load) and part.buffer in changed for part in walk(v))}
        if isinstance(stmt, Let):
            known[stmt.value] = stmt.name
        yield stmt


def _changing(stmt: Stmt) -> Stmt:
    """Return a store that leaves its element as it is, unless a condition holds, as a store under the condition."""
    match stmt:
        case Store(buffer, index, Select(condition, value, Load(source, place)), stream=False, across=False, later=False):
            same = source == buffer and place == index
            return If(condition, (replace(stmt, value=value),), ()) if same else stmt
        case _:
            return stmt


def _less(e: Index) -> Index:
    return Int(e.value - 1) if isinstance(e, Int) else Add(e, Int(-1))


def _all(conditions: Iterable[Expr]) -> Expr:
    return reduce(lambda lhs, rhs: Binary("and", lhs, rhs), conditions)


def _guarded(conditions: list[Expr], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return (If(_all(conditions), body, ()),) if conditions else body


def _equal_to(condition: Expr, loop: For, lets: list[Stmt]) -> Expr | None:
    """Return what a condition says that the variable of a loop is, of data."""
    match condition:
        case Compare("==", IndexValue(Var(name)), value) | Compare("==", value, IndexValue(Var(name))) if name == loop.var:
            data = any(isinstance(part, Load | Name) for part in walk(value))
            return value if data and _is_fixed(value, loop, lets) else None
        case _:
            return None


def _is_fixed(e: Expr, loop: For, lets: list[Stmt]) -> bool:
    """Tell whether an expression is the same in all iterations of a loop, as far as what they store and bind goes; `lets` leave it."""
    written = {s.buffer for s in stores(*loop.body)}
    bound = {loop.var, *binders(*loop.body)} - {s.name for s in lets if isinstance(s, Let)}
    parts = list(walk(e))
    return loop.var not in free_vars(e) and not any(
        (isinstance(p, Load) and p.buffer in written | bound) or (isinstance(p, Name) and p.name in bound) for p in parts
    )
