"""Which vector loops cannot be evaluated for all lanes at once, and run one lane after the other instead.

Refused: a loop inside whose bounds differ between lanes, another vector loop inside, scratch memory per lane, and a write of all lanes to
one element that is not a reduction.
"""

from __future__ import annotations

from collections.abc import Iterable

from codegen.loops.nodes import (
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Commit,
    Expr,
    Fma,
    For,
    If,
    Index,
    Let,
    Load,
    LoadMatrix,
    Mma,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Stmt,
    Store,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.running_results import running_results
from codegen.loops.walk import Node, walk


def needs_scalars(loop: For) -> bool:
    """Return whether the lanes of `loop` must run one after the other."""
    kept = frozenset(x.kept for x in running_results(loop).values())
    return _refuses(loop.body, frozenset({loop.var}), frozenset(), kept)


def _refuses(block: tuple[Stmt, ...], varying: frozenset[str], private: frozenset[str], kept: frozenset[Store] = frozenset()) -> bool:
    """`varying` are variables and lets that differ between lanes, `private` the buffers that every lane has its own copy of, `kept` what
    keeps running results."""
    for stmt in block:
        match stmt:
            case Let(name, bound):
                if _varies(bound, varying, private):
                    varying |= {name}
            case Alloc(buffer):
                if buffer.space != "registers":
                    return True
                private |= {buffer.name}
            case For(_, lo, hi, body, kind):
                if kind == "vector" or _varies(lo, varying, private) or _varies(hi, varying, private):
                    return True
                if _refuses(body, varying, private):
                    return True
            case If(_, then, orelse):
                if _refuses(then, varying, private) or _refuses(orelse, varying, private):
                    return True
            case Store(buffer, index, e):
                if _any_varies(index, varying, private):
                    if buffer in private:
                        return True
                elif buffer not in private and _varies(e, varying, private) and reduction(stmt) is None and stmt not in kept:
                    return True
            case Prefetch() | Require() | Barrier() | Commit() | Wait() | LoadMatrix() | Mma():
                pass
            case Boxes() | WaitBoxes() | Release() | Reclaim() | Producer():
                pass
        if any(n.buffer in private and _any_varies(n.index, varying, private) for n in _loads(stmt)):
            return True
    return False


def reduction(stmt: Store) -> tuple[str, tuple[Expr, ...]] | None:
    """Return (op, e) when the store is `a[..] = a[..] op e`, ("fma", (x, y)) for `a[..] = fma(x, y, a[..])`, None otherwise."""
    own = Load(stmt.buffer, stmt.index)
    match stmt.value:
        case Binary(op, lhs, rhs) if lhs == own and op in COMBINES:
            return op, (rhs,)
        case Binary(op, lhs, rhs) if rhs == own and op in COMBINES and op != "-":
            return op, (lhs,)
        case Fma(x, y, z) if z == own:
            return "fma", (x, y)
        case _:
            return None


COMBINES = frozenset({"+", "-", "*", "min", "max", "and", "or", "bitand", "bitor", "bitxor"})


def _loads(stmt: Stmt) -> Iterable[Load]:
    return (n for n in walk(stmt) if isinstance(n, Load))


def _any_varies(index: tuple[Index, ...], varying: frozenset[str], private: frozenset[str]) -> bool:
    return any(_varies(i, varying, private) for i in index)


def _varies(e: Node, varying: frozenset[str], private: frozenset[str]) -> bool:
    return any((isinstance(n, Var | Name) and n.name in varying) or (isinstance(n, Load) and n.buffer in private) for n in walk(e))
