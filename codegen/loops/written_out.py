"""Write short loops out, as terms of a sum that there are few of.

    for k in 0 .. 3 { for j in 0 .. 16 vector 16 { s[j] = s[j] + x[j + k] } }
    →    for k in 0 .. 3 unroll 3 { for j in 0 .. 16 vector 16 { s[j] = s[j] + x[j + k] } }

What an iteration collects in registers then needs no loop to carry it, what iterations have in common is loaded once, and no branch at
their end is guessed wrong. Only loops within others, or over what registers may then hold: other code that runs once is not worth it. And
only straight code, unless iterations ask which one they are: then loops inside are there for each of them, without the question.

    for p in 0 .. 2 { for j in 0 .. N { y[p, j] = select(index(p) == 0, a[j], b[j]) } }
    →    for p in 0 .. 2 unroll 2 { for j in 0 .. N { y[p, j] = select(index(p) == 0, a[j], b[j]) } }
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import ceil

from codegen.loops.demote import buffer_bytes
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Call,
    Cast,
    Compare,
    Dot,
    Expr,
    Fma,
    For,
    Function,
    If,
    Let,
    Load,
    Name,
    Select,
    Stmt,
    Store,
    Unary,
)
from codegen.loops.terms import EXACT_CALLS
from codegen.loops.walk import free_vars, map_stmt, statements, walk

MOST_TERMS = 9
"""Iterations of a loop that is written out: a window of three times three. A schedule that writes out the terms of a sum itself takes as
many."""
MOST_COPIES = 72
"""Registers that all of them compute together: the code of some hundred instructions, which processors keep decoded."""
OPERATIONS = 8
"""Of one register, as many as a window takes: more are the code of another register."""
FUNCTION_OPERATIONS = 64
"""Of an elementary function, at least: nothing that copies have in common matters beside it."""
REGISTER_BYTES = 64
"""Of the widest registers that there are: narrower ones take several instructions for as much."""
LET_BYTES = 4
"""Of a value that has a name, most often."""


def written_out(function: Function, room: int) -> Function:
    """Return `function` with its short loops unrolled. `room`: bytes of the largest buffer of the stack that registers may hold instead."""
    made = [s.buffer for s in statements(*function.body) if isinstance(s, Alloc)]
    sizes = {buffer.name: buffer.dtype.size_bytes for buffer in (*function.params, *made)}
    small = {buffer.name for buffer in made if buffer.space == "stack" and 0 < buffer_bytes(buffer) <= room}
    return replace(function, body=tuple(_stmt(s, sizes, within=_touches(s, small)) for s in function.body))


def _touches(s: Stmt, buffers: Collection[str]) -> bool:
    return any(isinstance(n, Load | Store) and n.buffer in buffers for n in walk(s))


def _stmt(s: Stmt, sizes: Mapping[str, int], *, within: bool) -> Stmt:
    repeated = within or (isinstance(s, For) and s.kind in ("serial", "parallel"))
    made = map_stmt(s, lambda index: index, lambda expr: expr, lambda inner: _stmt(inner, sizes, within=repeated))
    if not isinstance(made, For) or not within or made.kind != "serial" or made.notes:
        return made
    if made.values is None:
        return made
    extent, copies = len(made.values), _copies(made.body, sizes, around=_is_asked(made))
    if copies is None or not 1 < extent <= MOST_TERMS or extent * copies > MOST_COPIES:
        return made
    return replace(made, kind="unroll", extent=extent)


def _is_asked(loop: For) -> bool:
    """Tell whether iterations ask which one of them they are, and nothing else."""
    asked = (n for n in walk(*loop.body) if isinstance(n, Compare))
    return any(free_vars(n) == {loop.var} and not any(isinstance(part, Load | Name) for part in walk(n)) for n in asked)


def _copies(body: Sequence[Stmt], sizes: Mapping[str, int], lanes: int = 1, *, around: bool = False) -> int | None:
    """Return how many registers the stores of a block fill, each so many lanes, more where their values are much code; None where it is not
    straight code, nor (`around`) straight code in loops."""
    found = 0
    for s in body:
        match s:
            case Store(buffer=name, value=value):
                inside: int | None = ceil(lanes * sizes[name] / REGISTER_BYTES) * (1 + _operations(value) // OPERATIONS)
            case Let(value=value):
                inside = ceil(lanes * LET_BYTES / REGISTER_BYTES) * (_operations(value) // OPERATIONS)
            case If(then=then, orelse=orelse):
                inside = _copies((*then, *orelse), sizes, lanes, around=around)
            case For(kind="unroll", extent=int() as extent):
                copies = _copies(s.body, sizes, lanes, around=around)
                inside = None if copies is None else extent * copies
            case For(kind="vector", extent=int() as extent):
                inside = _copies(s.body, sizes, lanes * extent, around=around)
            case For(kind="serial") if around:
                inside = _copies(s.body, sizes, lanes, around=around)
            case _:
                inside = None
        if inside is None:
            return None
        found += inside
    return found


def _operations(value: Expr) -> int:
    found = 0
    for e in walk(value):
        match e:
            case Call(fn) if fn not in EXACT_CALLS:
                found += FUNCTION_OPERATIONS
            case Unary() | Binary() | Compare() | Select() | Cast() | Fma() | Dot() | Call():
                found += 1
            case _:
                pass
    return found
