"""Keep in registers only what can be: the other buffers go to the stack, or to the heap where they are large.

    before   alloc acc: f32[3] registers                       after   alloc acc: f32[3] stack
             for r in max(0, c - 1) .. c + 1 vector 3 { acc[r] = … }

A buffer stays in registers when every access has an address that unrolling makes constant, from lane to lane as far apart in a vector
loop, and no parallel loop uses it that it is allocated outside of: threads share memory alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from codegen.loops.nodes import Alloc, Buffer, FloorDiv, For, Function, If, Index, Int, Load, Max, Min, Mod, Mul, Stmt, Store, ValueIndex
from codegen.loops.walk import Node, free_vars, map_stmt, statements, walk

STACK_BYTES = 32 * 1024
"""Of the largest buffer that lies on the stack of a thread."""


def demote(function: Function) -> Function:
    """Return `function` with such buffers moved to memory."""
    kept = {s.buffer.name for s in statements(*function.body) if isinstance(s, Alloc) and s.buffer.space == "registers"}
    lost = kept & set(_lost(function.body, _Scope()))
    return replace(function, body=_moved(function.body, lost)) if lost else function


@dataclass(frozen=True, slots=True)
class _Scope:
    """`constant`: variables that unrolling makes constant; `lanes`: those of vector loops among them; `allocated`: buffers allocated so
    far; `outside`: those allocated outside the parallel loop at hand."""

    constant: frozenset[str] = frozenset()
    lanes: frozenset[str] = frozenset()
    allocated: frozenset[str] = frozenset()
    outside: frozenset[str] = frozenset()


def _lost(block: Iterable[Stmt], scope: _Scope) -> Iterator[str]:
    """Yield the buffers accessed in `block` at run-time addresses, or by threads that share them."""
    for s in block:
        match s:
            case Alloc(buffer):
                scope = replace(scope, allocated=scope.allocated | {buffer.name})
            case For(var, lo, hi, body, kind):
                yield from _accesses((lo, hi), scope)
                unrolled = kind in ("unroll", "vector", "tensor") and _is_constant((lo,), scope)
                lanes = scope.lanes | {var} if kind == "vector" else scope.lanes - {var}
                inside = replace(scope, constant=scope.constant | {var} if unrolled else scope.constant - {var}, lanes=lanes)
                yield from _lost(body, replace(inside, outside=scope.allocated) if kind == "parallel" else inside)
            case If(cond, then, orelse):
                yield from _accesses((cond,), scope)
                yield from _lost(then, scope)
                yield from _lost(orelse, scope)
            case _:
                yield from _accesses((s,), scope)


def _accesses(roots: Iterable[Node], scope: _Scope) -> Iterator[str]:
    for node in walk(*roots):
        if isinstance(node, Load | Store) and (node.buffer in scope.outside or not _is_constant(node.index, scope)):
            yield node.buffer


def _is_constant(index: Iterable[Index], scope: _Scope) -> bool:
    """Tell whether unrolling makes an address constant: for every lane, and with one distance between them."""
    return free_vars(*index) <= scope.constant and not any(_breaks_lanes(node, scope.lanes) for node in walk(*index))


def _breaks_lanes(node: Node, lanes: frozenset[str]) -> bool:
    """Tell whether an index is no constant even where its variables are, or not as far from one lane to the next."""
    match node:
        case ValueIndex():
            return True
        case FloorDiv() | Mod() | Min() | Max():
            return not lanes.isdisjoint(free_vars(node))
        case Mul(lhs, rhs):
            return not (lanes.isdisjoint(free_vars(lhs)) or lanes.isdisjoint(free_vars(rhs)))
        case _:
            return False


def _moved(block: tuple[Stmt, ...], lost: set[str]) -> tuple[Stmt, ...]:
    return tuple(_move(s, lost) for s in block)


def _move(s: Stmt, lost: set[str]) -> Stmt:
    match s:
        case Alloc(buffer) if buffer.space == "registers" and buffer.name in lost:
            return Alloc(replace(buffer, space="stack" if _bytes(buffer) <= STACK_BYTES else "heap", align=64))
        case For() | If():
            return map_stmt(s, lambda e: e, lambda e: e, lambda inner: _move(inner, lost))
        case _:
            return s


def _bytes(buffer: Buffer) -> int:
    size = buffer.dtype.size_bytes
    for extent in buffer.shape:
        size *= extent.value if isinstance(extent, Int) else 0
    return size
