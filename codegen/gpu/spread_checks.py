"""Loops that do nothing but check elements of what is given, over blocks of threads: in which order they are checked does not matter.

for i in 0 .. 256 { for j in 0 .. 20 {              for b in 0 .. 20 block.x { for t in 0 .. 256 thread {
    require ids[i, j] < 5000 else 1           →         require ids[(256*b + t) // 20, (256*b + t) % 20] < 5000 else 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from math import prod

from codegen.loops.nodes import Add, Barrier, FloorDiv, For, Function, Index, Int, Min, Mod, Mul, Require, Stmt, Var
from codegen.loops.walk import Fresh, fresh_for, substitute, walk

FEW = 32
"""Elements that each thread of a launch of one block checks by itself: a launch more would take longer."""


def spread_checks(function: Function, threads: int) -> tuple[Function, tuple[Stmt, ...]]:
    """Return `function`, whose launches are gathered, with its loops of checks over blocks of so many threads, and these loops. Few
    checks stay where they are, unless threads wait for each other after them."""
    fresh = fresh_for(function)
    body: list[Stmt] = []
    spread: list[Stmt] = []
    for s in function.body:
        if not (isinstance(s, For) and s.kind == "block.x" and (s.lo, s.hi) == (Int(0), Int(1))):
            body.append(s)
            continue
        checks = [*takewhile(lambda inner: isinstance(inner, Require) or _checked(inner) is not None, s.body)]
        nests = [found for inner in checks if (found := _checked(inner)) is not None]
        asked = tuple(inner for inner in checks if isinstance(inner, Require))
        rest = s.body[len(checks) :]
        many = any(prod(nest.values()) > FEW for nest, _ in nests)
        if not many and not (checks and any(isinstance(n, Barrier) for n in walk(*rest))):
            body.append(s)
            continue
        made = [_spread(*found, threads, fresh) for found in nests]
        spread += made
        body += [*([replace(s, var=fresh(s.var), body=asked)] if asked else []), *made, *([replace(s, body=rest)] if rest else [])]
    return replace(function, body=tuple(body)), tuple(spread)


def _checked(stmt: Stmt) -> tuple[Mapping[str, int], tuple[Stmt, ...]] | None:
    """Return the loops of a nest, with their extents, and the checks that are all that it does; None where it does more, or an extent is
    open."""
    nest: dict[str, int] = {}
    body: tuple[Stmt, ...] = (stmt,)
    while len(body) == 1 and isinstance(loop := body[0], For) and loop.kind == "serial" and loop.lo == Int(0) and isinstance(loop.hi, Int):
        nest[loop.var] = loop.hi.value
        body = loop.body
    return (nest, body) if nest and all(isinstance(s, Require) for s in body) else None


def _spread(nest: Mapping[str, int], body: tuple[Stmt, ...], threads: int, fresh: Fresh) -> Stmt:
    """Return the checks with the points of all loops numbered, as elements lie."""
    block, thread, count = fresh("block"), fresh("item"), prod(nest.values())
    extents = [*nest.values()]
    number: Index = Add(Mul(Int(threads), Var(block)), Var(thread))
    at: dict[str, Index] = {}
    for k, loop in enumerate(nest):
        outer = FloorDiv(number, Int(prod(extents[k + 1 :])))
        at[loop] = Mod(outer, Int(extents[k])) if k else outer
    blocks, left = -(-count // threads), Add(Int(count), Mul(Int(-threads), Var(block)))
    inner = For(thread, Int(0), Min(Int(threads), left), tuple(substitute(s, at) for s in body), "thread", threads)
    return For(block, Int(0), Int(blocks), (inner,), "block.x", blocks)
