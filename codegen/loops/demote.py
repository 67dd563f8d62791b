"""Keep in registers only what can be: the other buffers go to the stack, or to the heap where they are large.

    before   alloc acc: f32[3] registers                       after   alloc acc: f32[3] stack
             for r in max(0, c - 1) .. c + 1 vector 3 { acc[r] = … }

A buffer stays in registers when every access has an address that unrolling makes constant, from lane to lane as far apart in a vector
loop, and no parallel loop uses it that it is allocated outside of: threads share memory alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import count

from codegen.loops.nodes import Alloc, Buffer, FloorDiv, For, Function, If, Index, Int, Load, Max, Min, Mod, Mul, Stmt, Store, ValueIndex
from codegen.loops.walk import Node, free_vars, map_stmt, walk

STACK_BYTES = 32 * 1024
"""Of the largest buffer that lies on the stack of a thread."""


def demote(function: Function) -> Function:
    """Return `function` with such buffers moved to memory."""
    lost = set(_lost(function.body, _Scope(), count()))
    return replace(function, body=_moved(function.body, lost, count())) if lost else function


@dataclass(frozen=True, slots=True)
class _Scope:
    """`constant`: variables that unrolling makes constant; `lanes`: those of vector loops among them; `allocated`: buffers allocated so
    far, each with the number of its allocation, as several may have one name; `outside`: those allocated outside the parallel loop at
    hand."""

    constant: frozenset[str] = frozenset()
    lanes: frozenset[str] = frozenset()
    allocated: Mapping[str, int] = field(default_factory=dict)
    outside: Collection[str] = ()


def _lost(block: Iterable[Stmt], scope: _Scope, numbers: Iterator[int]) -> Iterator[int]:
    """Yield the numbers of the buffers that are allocated in registers and accessed in `block` at run-time addresses, or by threads that
    share them."""
    for s in block:
        match s:
            case Alloc(buffer):
                number, others = next(numbers), {n: k for n, k in scope.allocated.items() if n != buffer.name}
                scope = replace(scope, allocated={**others, buffer.name: number} if buffer.space == "registers" else others)
            case For(var, lo, hi, body, kind):
                yield from _accesses((lo, hi), scope)
                unrolled = kind in ("unroll", "vector", "tensor") and _is_constant((lo,), scope)
                lanes = scope.lanes | {var} if kind == "vector" else scope.lanes - {var}
                inside = replace(scope, constant=scope.constant | {var} if unrolled else scope.constant - {var}, lanes=lanes)
                yield from _lost(body, replace(inside, outside=scope.allocated) if kind == "parallel" else inside, numbers)
            case If(cond, then, orelse):
                yield from _accesses((cond,), scope)
                yield from _lost(then, scope, numbers)
                yield from _lost(orelse, scope, numbers)
            case _:
                yield from _accesses((s,), scope)


def _accesses(roots: Iterable[Node], scope: _Scope) -> Iterator[int]:
    for node in walk(*roots):
        number = scope.allocated.get(node.buffer) if isinstance(node, Load | Store) else None
        if isinstance(node, Load | Store) and number is not None and (node.buffer in scope.outside or not _is_constant(node.index, scope)):
            yield number


def _is_constant(index: Iterable[Index], scope: _Scope) -> bool:
    return has_one_distance(index, scope.constant, scope.lanes)


def has_one_distance(index: Iterable[Index], constant: Set[str], lanes: Set[str]) -> bool:
    """Tell whether unrolling, which makes some variables constant, makes an address constant: for every lane, and with one distance between
    them."""
    return free_vars(*index) <= constant and not any(_breaks_lanes(node, lanes) for node in walk(*index))


def _breaks_lanes(node: Node, lanes: Set[str]) -> bool:
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


def _moved(block: tuple[Stmt, ...], lost: set[int], numbers: Iterator[int]) -> tuple[Stmt, ...]:
    return tuple(_move(s, lost, numbers) for s in block)


def _move(s: Stmt, lost: set[int], numbers: Iterator[int]) -> Stmt:
    match s:
        case Alloc(buffer):
            if next(numbers) not in lost:
                return s
            return Alloc(replace(buffer, space="stack" if buffer_bytes(buffer) <= STACK_BYTES else "heap", align=64))
        case For() | If():
            return map_stmt(s, lambda e: e, lambda e: e, lambda inner: _move(inner, lost, numbers))
        case _:
            return s


def buffer_bytes(buffer: Buffer) -> int:
    """Return how large a buffer is; 0 where that is not known."""
    size = buffer.dtype.size_bytes
    for extent in buffer.shape:
        size *= extent.value if isinstance(extent, Int) else 0
    return size
