"""Running results: what has been collected up to an iteration, which goes on with it.

    let n = s[0] + x[i]
    y[i] = n
    s[0] = n

In lanes each has what the lanes before it and its own come to, combined in the order in which they stand, and the last is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from codegen.loops.nodes import Binary, Compare, Expr, Let, Load, Name, Stmt, Store
from codegen.loops.walk import loads, stores

OPERATIONS = frozenset({"+", "*", "min", "max", "and", "or", "bitand", "bitor", "bitxor"})
"""Those that may be grouped in any way; of floats, minima and maxima alone are the same then."""


@dataclass(frozen=True, slots=True)
class RunningResult:
    """`let name = own op term`, where `own` is what `name` is stored to next, and nothing else in the block reads or stores it. `!=`, of
    truths, is `bitxor`."""

    name: str
    op: str
    own: Load
    term: Expr

    @property
    def kept(self) -> Store:
        """What keeps it for the next iteration."""
        return Store(self.own.buffer, self.own.index, Name(self.name))


def running_results(block: Iterable[Stmt]) -> dict[str, RunningResult]:
    """Return the running results of a block by their names."""
    block = tuple(block)
    found: dict[str, RunningResult] = {}
    for s in stores(*block):
        own = Load(s.buffer, s.index)
        bound = next((x for x in block if isinstance(x, Let) and Name(x.name) == s.value), None)
        parts = None if bound is None else combined_with(bound.value, own)
        if bound is None or parts is None or s not in block or block.index(s) < block.index(bound):
            continue
        accesses = [*(x.buffer for x in loads(*block)), *(x.buffer for x in stores(*block))]
        if accesses.count(s.buffer) == 2:
            found[bound.name] = RunningResult(bound.name, parts[0], own, parts[1])
    return found


def combined_with(value: Expr, own: Load) -> tuple[str, Expr] | None:
    """Return the operation that combines an element with something, and that, if this is what a value is."""
    match value:
        case Binary(op, lhs, rhs) if op in OPERATIONS and own in (lhs, rhs):
            return op, rhs if lhs == own else lhs
        case Compare("!=", lhs, rhs) if own in (lhs, rhs):
            return "bitxor", rhs if lhs == own else lhs
        case _:
            return None
