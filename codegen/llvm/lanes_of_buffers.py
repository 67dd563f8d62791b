"""Which lanes touch a buffer in registers: where these are the same for all that reads or writes it, nobody sees what other lanes leave.

for j in 0 .. 8 vector 8 { if j >= n { acc[j] = 0.0 } }
for k in 0 .. K { for j in 0 .. 8 vector 8 { if j >= n { acc[j] = acc[j] + x[k, j] } } }   →   no choice between old and new values
for j in 0 .. 8 vector 8 { if j >= n { y[j] = acc[j] } }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.loops.nodes import Expr, For, If, Index, Load, Name, Stmt, Store, ValueIndex, Var
from codegen.loops.walk import Node, binders, free_vars, substitute, walk

_LANE = Var(" lane")


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around an access: the vector loop, if there is one, and the conditions of its lanes, each with whether it holds."""

    loop: For | None = None
    asked: tuple[tuple[Expr, bool], ...] = ()

    def under(self, condition: Expr, holds: bool) -> _Around:
        """Return what stands around one side of a condition; one that all lanes share is no matter of theirs."""
        is_of_lanes = self.loop is not None and (self.loop.var in free_vars(condition) or _depends_on_data(condition))
        return replace(self, asked=(*self.asked, (condition, holds))) if is_of_lanes else self


@dataclass(frozen=True, slots=True)
class _Access:
    """One access: the first lane and the end of its loop, the conditions of its lanes, and its subscripts, all with one name for the lane.
    Without a `loop` it is in none whose lanes could be told apart."""

    loop: tuple[Index, Index] | None
    asked: tuple[tuple[Expr, bool], ...] = ()
    index: tuple[Index, ...] = ()


def touched_by_the_same_lanes(buffer: str, block: tuple[Stmt, ...]) -> bool:
    """Tell whether one set of lanes, each with elements of its own, does all that the statements after a buffer's allocation do with it.
    What decides about the lanes is known before, and the same in all of them."""
    found = {access for s in block for access in _accesses(s, buffer, _Around())}
    bound = {*binders(*block)}
    if len({(a.loop, a.asked) for a in found}) != 1 or None in {a.loop for a in found}:
        return False
    access = next(iter(found))
    deciding = (*(access.loop or ()), *(c for c, _ in access.asked))
    along = {tuple(e for e in a.index if _LANE.name in free_vars(e)) for a in found}
    return along == {(_LANE,)} and not any(_depends_on_data(e) for e in deciding) and bound.isdisjoint(free_vars(*deciding))


def _accesses(node: Node, buffer: str, around: _Around) -> Iterator[_Access]:
    match node:
        case For(kind="vector") if around.loop is None:
            yield from _within(node.body, buffer, _Around(node))
        case For(kind="vector"):
            yield from (_Access(None) for n in walk(node) if isinstance(n, Load | Store) and n.buffer == buffer)
        case For():
            yield from _within(node.body, buffer, around)
        case If(condition, then, orelse):
            yield from _accesses(condition, buffer, around)
            yield from _within(then, buffer, around.under(condition, True))
            yield from _within(orelse, buffer, around.under(condition, False))
        case _:
            yield from (_access(n, around) for n in walk(node) if isinstance(n, Load | Store) and n.buffer == buffer)


def _within(block: tuple[Stmt, ...], buffer: str, around: _Around) -> Iterator[_Access]:
    for s in block:
        yield from _accesses(s, buffer, around)


def _access(node: Load | Store, around: _Around) -> _Access:
    loop = around.loop
    if loop is None:
        return _Access(None)
    to: dict[str, Index] = {loop.var: _LANE}
    asked = tuple((substitute(condition, to), holds) for condition, holds in around.asked)
    return _Access((loop.lo, loop.hi), asked, tuple(substitute(e, to) for e in node.index))


def _depends_on_data(e: Node) -> bool:
    return any(isinstance(n, Load | Name | ValueIndex) for n in walk(e))
