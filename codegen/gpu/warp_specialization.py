"""Warp specialisation: one thread of a block copies (the producer), the others compute (the consumers). What each role runs.

    for k {                                        the producer               the consumers
        producer {
            reclaim empty[k - 4]                   for k {                    for k {
            boxes full[k] …                 →          reclaim empty[k - 4]       wait full[k]
        }                                              boxes full[k] …            …
        wait full[k]                               }                              release empty[k]
        …                                                                     }
        release empty[k]
    }

In the order of the text both roles are what the block computes; `tensorlang.lower.barriers` proves that they compute the same in any
order that `wait` and `reclaim` allow. The producer is one thread of a warpgroup of its own, which can give most of its registers away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.errors import Unfit
from codegen.gpu.geometry import WARP, WARPGROUP
from codegen.loops.nodes import For, If, Let, Load, Producer, Stmt
from codegen.loops.walk import names, walk

REGISTERS = 64 * 1024
"""Of a multiprocessor."""


@dataclass(frozen=True, slots=True)
class Roles:
    """What the producer and the consumers run, and the registers of a thread of either; none: all threads have equally many."""

    producer: tuple[Stmt, ...]
    consumers: tuple[Stmt, ...]
    registers: tuple[int, ...]


def roles_of(body: tuple[Stmt, ...]) -> Roles | None:
    """Return what each role of a block runs, or None where its warps are not specialised. Raises Unfit where registers are set twice."""
    found = [n for n in walk(*body) if isinstance(n, Producer)]
    if not found:
        return None
    if len({n.registers for n in found}) > 1:
        raise Unfit("not supported yet: loops of one launch that set registers in different ways")
    return Roles(_producer(body), _consumers(body), found[0].registers)


def check_roles(var: str, registers: tuple[int, ...], threads: int) -> None:
    """Raise Unfit where a block of so many consumers cannot have a producer of the boxes of loop `var`."""
    if threads % WARPGROUP:
        why = f"warp specialisation needs whole warpgroups of {WARPGROUP} threads, and this block has {threads} threads"
        raise Unfit(why, var)
    if not registers:
        return
    few, many = registers
    needed = registers_of(registers, threads)
    if needed > REGISTERS:
        why = f"{WARPGROUP} threads with {few} registers and {threads} with {many} need {needed} of them; there are {REGISTERS}"
        raise Unfit(why, var)


def registers_of(registers: tuple[int, ...], threads: int) -> int:
    """Return how many registers a block has when a thread of either role has so many; 0 where they are not set."""
    return registers[0] * WARPGROUP + registers[1] * threads if registers else 0


def arrivals(threads: int) -> int:
    """Return how often a group of boxes is released: once by each warp of the consumers, when all its lanes have read it."""
    return threads // WARP


def _producer(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    kept: tuple[Stmt, ...] = ()
    for s in reversed(body):
        match s:
            case Producer(inner):
                kept = (*inner, *kept)
            case For(body=inner) if any(isinstance(n, Producer) for n in walk(s)):
                kept = (replace(s, body=_producer(inner)), *kept)
            case If(_, then, orelse) if any(isinstance(n, Producer) for n in walk(s)):
                kept = (replace(s, then=_producer(then), orelse=_producer(orelse)), *kept)
            case Let(name, value) if name in names(*kept):
                if any(isinstance(n, Load) for n in walk(value)):
                    raise Unfit("not supported yet: boxes of tensors whose place is computed from what memory holds")
                kept = (s, *kept)
            case _:
                pass
    return kept


def _consumers(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(new for s in body for new in _consumer(s))


def _consumer(s: Stmt) -> Iterator[Stmt]:
    match s:
        case Producer():
            pass
        case For():
            yield replace(s, body=_consumers(s.body))
        case If():
            then, orelse = _consumers(s.then), _consumers(s.orelse)
            if then or orelse:
                yield replace(s, then=then, orelse=orelse)
        case _:
            yield s
