"""A block one of whose threads stands beside the others: what each side runs.

    for k {                                        beside                     the others
        beside {
            reclaim empty[k - 4]                   for k {                    for k {
            boxes full[k] …                 →          reclaim empty[k - 4]       landed full[k]
        }                                              boxes full[k] …            …
        landed full[k]                             }                              release empty[k]
        …                                                                     }
        release empty[k]
    }

In the order of the text both sides are what the block computes; that they come to the same in any order that `landed` and `reclaim`
leave is proven by `tensorlang.lower.barriers`. The thread beside has four warps to itself, which have registers to give away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.errors import Unfit
from codegen.gpu.geometry import WARP, WARPGROUP
from codegen.loops.nodes import Beside, For, If, Let, Load, Stmt
from codegen.loops.walk import names, walk

REGISTERS = 64 * 1024
"""Of a multiprocessor."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What a thread beside the others runs, and what they do. `registers` of a thread there and of each of the others; none: all alike."""

    beside: tuple[Stmt, ...]
    others: tuple[Stmt, ...]
    registers: tuple[int, ...]


def sides(body: tuple[Stmt, ...]) -> Sides | None:
    """Return both sides of what a block runs, or None where nobody stands beside it. Raises Unfit where registers are dealt out twice."""
    found = [n for n in walk(*body) if isinstance(n, Beside)]
    if not found:
        return None
    if len({n.registers for n in found}) > 1:
        raise Unfit("not supported yet: loops of one launch that deal out registers in different ways")
    return Sides(_beside(body), _others(body), found[0].registers)


def check_sides(var: str, registers: tuple[int, ...], threads: int) -> None:
    """Raise Unfit where a block of so many threads cannot have one beside them that asks for the boxes of loop `var`."""
    if threads % WARPGROUP:
        why = f"the threads beside the one that asks for boxes are whole groups of {WARPGROUP}, and this block has {threads}"
        raise Unfit(why, var)
    if not registers:
        return
    few, many = registers
    wanted = registers_of(registers, threads)
    if wanted > REGISTERS:
        why = f"{WARPGROUP} threads with {few} registers and {threads} with {many} want {wanted} of them; there are {REGISTERS}"
        raise Unfit(why, var)


def registers_of(dealt: tuple[int, ...], threads: int) -> int:
    """Return how many registers a block has when so many are dealt out to a thread on each side; 0 where none are."""
    return dealt[0] * WARPGROUP + dealt[1] * threads if dealt else 0


def arrivals(threads: int) -> int:
    """Return how often a group of boxes is released: once by each warp of the others, when all its lanes are done with it."""
    return threads // WARP


def _beside(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    kept: tuple[Stmt, ...] = ()
    for s in reversed(body):
        match s:
            case Beside(inner):
                kept = (*inner, *kept)
            case For(body=inner) if any(isinstance(n, Beside) for n in walk(s)):
                kept = (replace(s, body=_beside(inner)), *kept)
            case If(_, then, orelse) if any(isinstance(n, Beside) for n in walk(s)):
                kept = (replace(s, then=_beside(then), orelse=_beside(orelse)), *kept)
            case Let(name, value) if name in names(*kept):
                if any(isinstance(n, Load) for n in walk(value)):
                    raise Unfit("not supported yet: boxes of tensors whose place is computed from what memory holds")
                kept = (s, *kept)
            case _:
                pass
    return kept


def _others(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(new for s in body for new in _other(s))


def _other(s: Stmt) -> Iterator[Stmt]:
    match s:
        case Beside():
            pass
        case For():
            yield replace(s, body=_others(s.body))
        case If():
            then, orelse = _others(s.then), _others(s.orelse)
            if then or orelse:
                yield replace(s, then=then, orelse=orelse)
        case _:
            yield s
