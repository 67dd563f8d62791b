"""The innermost loops of a function, and how often each of them runs: where time goes, before anything is measured.

for i in 0 .. 8 { for j in 0 .. 16 vector 16 { .. }  for k in 0 .. 2 { .. } }        i, j: 128 iterations      i, k: 16

Bounds that depend on a loop around them are taken in its middle; conditions on one loop variable count for the share of its values that
they hold for, other conditions and bounds that data give for as much as they may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from codegen.loops.evaluate import evaluated
from codegen.loops.nodes import Alloc, Binary, Compare, Const, Expr, For, Function, If, IndexValue, Stmt
from codegen.loops.pinned import runs_at_most_once
from codegen.loops.walk import free_vars

_SAMPLES = 256
"""Values of a loop variable at most that a condition is looked at for."""
_Ranges = Mapping[str, range]


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops around some statements, outermost first, and how often these run. The last loop has no loop inside."""

    path: tuple[For, ...]
    iterations: float


def innermost(function: Function, sizes: Mapping[str, int]) -> tuple[Nest, ...]:
    """Return the innermost loops of a function whose sizes have these values, in text order."""
    known = {name: range(value, value + 1) for name, value in sizes.items()}
    return tuple(n for n in _nests(function.body, (), 1.0, known) if n.iterations > 0)


def _nests(block: tuple[Stmt, ...], path: tuple[For, ...], iterations: float, ranges: _Ranges) -> Iterator[Nest]:
    for s in block:
        match s:
            case For():
                values = _values(s, ranges)
                inside = (*path, s)
                nested = tuple(_nests(s.body, inside, iterations * len(values), {**ranges, s.var: values}))
                yield from nested or (Nest(inside, iterations * len(values)),)
            case If(cond, then, orelse):
                share = _share(cond, ranges)
                yield from _nests(then, path, iterations * share, ranges)
                yield from _nests(orelse, path, iterations * (1 - share), ranges)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class Block:
    """Statements that stand in no loop inside the last one around them, `path`, under `conditions` there, and how often they run: `turns`,
    one for all lanes and copies, of which bounds that depend on each other's may leave some out. `rounds` and `entries` say of the body of
    a loop how often that is gone round and entered, and are 0 of what stands under a condition."""

    path: tuple[For, ...]
    conditions: tuple[Expr, ...]
    turns: float
    statements: tuple[Stmt, ...]
    body: tuple[Stmt, ...]
    """What they are part of."""
    rounds: float = 0.0
    entries: float = 0.0


def blocks(function: Function, sizes: Mapping[str, int]) -> Iterator[Block]:
    """Yield all statements but loops of a function whose sizes have these values. What is left of a condition is what it asks."""
    known = {name: range(value, value + 1) for name, value in sizes.items()}
    return _blocks(function.body, Block((), (), 1.0, (), function.body), known)


def _blocks(body: tuple[Stmt, ...], around: Block, ranges: _Ranges) -> Iterator[Block]:
    """Yield what `body`, which stands where `around` does, consists of."""
    own: list[Stmt] = []
    for s in body:
        match s:
            case For():
                values = _values(s, ranges)
                count = around.turns * (min(1, len(values)) if s.kind in ("vector", "unroll") else len(values))
                inside = Block((*around.path, s), (), count, (), s.body, count, around.turns)
                if count:
                    yield from _blocks(s.body, inside, {**ranges, s.var: values})
            case If(cond, then, orelse):
                own.append(If(cond, ()))
                share, conditions = _share(cond, ranges), (*around.conditions, cond)
                for side, part in ((then, share), (orelse, 1 - share)):
                    if side and part:
                        yield from _blocks(side, Block(around.path, conditions, around.turns * part, (), side), ranges)
            case Alloc():
                pass
            case _:
                own.append(s)
    yield replace(around, statements=tuple(own))


def trips(loop: For, sizes: Mapping[str, int]) -> int:
    """Return how many iterations a loop has, at most where a bound depends on more than `sizes`."""
    return len(_values(loop, {name: range(value, value + 1) for name, value in sizes.items()}))


def _values(loop: For, ranges: _Ranges) -> range:
    if runs_at_most_once(loop):
        return range(1)
    if loop.values is not None:
        return loop.values
    middle = {name: values[len(values) // 2] for name, values in ranges.items() if values}
    lo, hi = evaluated(loop.lo, middle), evaluated(loop.hi, middle)
    return range(loop.extent or 1) if lo is None or hi is None else range(lo, hi)


def _share(cond: Expr, ranges: _Ranges) -> float:
    """Return the share of the values of its only loop variable that a condition holds for; 1 where it depends on more, or on data."""
    names = [name for name in free_vars(cond) if len(ranges.get(name, ())) > 1]
    fixed = {name: values[0] for name, values in ranges.items() if len(values) == 1}
    if not names:
        known = _holds(cond, fixed)
        return 1.0 if known is None else float(known)
    if len(names) != 1:
        return 1.0
    values = ranges[names[0]]
    taken = values[:: -(-len(values) // _SAMPLES)]
    found = [_holds(cond, {**fixed, names[0]: value}) for value in taken]
    return 1.0 if None in found else sum(map(bool, found)) / len(found)


def _holds(cond: Expr, known: Mapping[str, int]) -> bool | None:
    match cond:
        case Binary("and" | "or" as op, lhs, rhs):
            left, right = _holds(lhs, known), _holds(rhs, known)
            return None if left is None or right is None else (left and right if op == "and" else left or right)
        case Compare(op, lhs, rhs):
            a, b = _number(lhs, known), _number(rhs, known)
            if a is None or b is None:
                return None
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op]
        case _:
            return None


def _number(e: Expr, known: Mapping[str, int]) -> int | None:
    match e:
        case Const(value, dtype) if dtype.is_integer:
            return int(value)
        case IndexValue(index):
            return evaluated(index, known)
        case _:
            return None
