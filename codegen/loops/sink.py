"""Sinking: loops whose results one side of a condition alone needs run there (partial dead code: Knoop, Rüthing and Steffen 1994).

    before   for k in 0 .. K { alloc s: f32[1]; for j in 0 .. J { s[0] = s[0] + x[k, j] }; if ids[k] == n { y[n] = y[n] + s[0] } }
    after    for k in 0 .. K { if ids[k] == n { alloc s: f32[1]; for j in 0 .. J { s[0] = s[0] + x[k, j] }; y[n] = y[n] + s[0] } }

They write memory of an iteration's own alone, so nobody else sees whether they ran. What is required of data is required whether the
condition holds or not, and lanes decide for themselves: there everything stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from codegen.loops.nodes import Alloc, For, Function, If, Let, Stmt, Store
from codegen.loops.walk import binders, loads, names, statements

_INSIDE = ("serial", "unroll", "vector")


def sink_loops(function: Function) -> Function:
    """Return `function` with loops before a condition at the end of a block under it, where nothing else needs what they compute."""
    return replace(function, body=_block(function.body))


def _block(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        match s:
            case For(kind="serial" | "parallel" | "unroll"):
                out.append(replace(s, body=_block(s.body)))
            case If(cond, then, orelse):
                out.append(If(cond, _block(then), _block(orelse)))
            case _:
                out.append(s)
    match out:
        case [*before, If(_, then, ()) as last] if own := _own(before, last):
            return (*before[: len(before) - len(own)], replace(last, then=_block((*own, *then))))
        case _:
            return tuple(out)


def _own(before: Sequence[Stmt], last: If) -> Sequence[Stmt]:
    """Return the last statements of a block that compute for the condition at its end alone; none where no loop is among them."""
    asked = {load.buffer for load in loads(last.cond)} | names(last.cond)
    first, made, written = len(before), set[str](), set[str]()
    for k in reversed(range(len(before))):
        if not asked.isdisjoint(binders(before[k])) or not all(map(_is_inside, statements(before[k]))):
            break
        made |= {*binders(before[k])}
        written |= {s.buffer for s in statements(before[k]) if isinstance(s, Store)}
        first = k if written <= made else first
    return before[first:] if any(isinstance(s, For) for s in before[first:]) else ()


def _is_inside(s: object) -> bool:
    """Tell whether a statement may stand under a condition of one thread."""
    return isinstance(s, Alloc | If | Let | Store) or (isinstance(s, For) and s.kind in _INSIDE)
