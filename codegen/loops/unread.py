"""Leave out what is computed for itself alone, as components of a reduction are of which nobody asks for the result.

    before   for k in 0 .. K { n[] = n[] + 1;  most[] = max(most[], x[k]) }        after    for k in 0 .. K { most[] = max(most[], x[k]) }
             y[] = most[]                                                                   y[] = most[]

`simplify` leaves out what nobody reads; here the reads that only feed what nobody reads do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import replace

from codegen.loops.nodes import (
    Alloc,
    Boxes,
    Buffer,
    For,
    Function,
    If,
    Let,
    Load,
    LoadMatrix,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Stmt,
    Store,
    WaitBoxes,
)
from codegen.loops.walk import Node, pruned, statements, walk


def without_unread(function: Function) -> Function:
    """Return a function that does the same as `function`, without local buffers and named values that nothing else depends on."""
    bound = [*statements(*function.body)]
    named = {n.name for n in bound if isinstance(n, Let)}
    if not named:  # a reduction of several components names them
        return function
    local = {n.buffer.name for n in bound if isinstance(n, Alloc)}
    sources = defaultdict[str, set[str]](set)
    live = set[str]()
    for target, read in _flows(function.body, local):
        (live if target is None else sources[target]).update(read)
    waiting = [*live]
    while waiting:
        new = sources[waiting.pop()] - live
        live |= new
        waiting += new
    unread = (local | named) - live

    def is_gone(s: Stmt) -> bool:
        match s:
            case Store(buffer=name) | Let(name=name) | Alloc(Buffer(name=name)):
                return name in unread
            case _:
                return False

    return replace(function, body=pruned(function.body, is_gone)) if unread else function


def _flows(body: tuple[Stmt, ...], local: Container[str]) -> Iterator[tuple[str | None, set[str]]]:
    """Yield what is made, or None of what has to be done, with the buffers and named values that it is made of."""
    for s in body:
        match s:
            case For(lo=lo, hi=hi, body=inside):
                yield None, _read(lo, hi)
                yield from _flows(inside, local)
            case If(cond, then, orelse):
                yield None, _read(cond)
                yield from _flows((*then, *orelse), local)
            case Producer(inside):
                yield from _flows(inside, local)
            case Let(name, value):
                yield name, _read(value)
            case Store(buffer, index, value) if buffer in local:
                yield buffer, _read(*index, value)
            case Alloc(buffer):
                yield buffer.name, _read(*buffer.shape)
            case Store(_, index, value):
                yield None, _read(*index, value)
            case Prefetch(buffer, index):
                yield None, {buffer, *_read(*index)}
            case LoadMatrix(buffer, index, _, source):
                yield None, {buffer, *_read(*index, source)}
            case Boxes(barriers=barriers) | WaitBoxes(barriers=barriers) | Release(barriers=barriers) | Reclaim(barriers=barriers):
                yield None, {barriers, *_read(s)}
            case _:
                yield None, _read(s)


def _read(*roots: Node) -> set[str]:
    return {n.name if isinstance(n, Name) else n.buffer for n in walk(*roots) if isinstance(n, Name | Load)}
