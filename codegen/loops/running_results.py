"""Running results: what has been collected up to an iteration, which goes on with it.

    let n = s[0] + x[i]
    y[i] = n
    s[0] = n

    let n = select(x[i] < 0, x[i], max(s[0], x[i]))        begins again where `x[i] < 0`

In lanes each has what the lanes before it and its own come to, combined in the order in which they stand, and the last is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from codegen.dtypes import DType, bool_, limits
from codegen.loops.nodes import Alloc, Binary, Compare, Expr, For, Let, Load, Name, Select, Store
from codegen.loops.walk import free_vars, loads, stores

OPERATIONS = frozenset({"+", "*", "min", "max", "and", "or", "bitand", "bitor", "bitxor"})
"""Those that may be grouped in any way; of floats, minima and maxima alone are the same then."""


@dataclass(frozen=True, slots=True)
class RunningResult:
    """`let name = own op term`, where `own` is what `name` is stored to next, and nothing else in the loop reads or stores it; or
    `let name = select(begins, term, own op term)`. `!=`, of truths, is `bitxor`."""

    name: str
    op: str
    own: Load
    term: Expr
    begins: Expr | None = None

    @property
    def kept(self) -> Store:
        """What keeps it for the next iteration."""
        return Store(self.own.buffer, self.own.index, Name(self.name))


def running_results(loop: For) -> dict[str, RunningResult]:
    """Return the running results of a loop by their names: they are kept in elements that are the same in all iterations."""
    found: dict[str, RunningResult] = {}
    allocated = {s.buffer.name for s in loop.body if isinstance(s, Alloc)}
    for k, s in enumerate(loop.body):
        if not isinstance(s, Store) or not isinstance(s.value, Name) or s.buffer in allocated or loop.var in free_vars(*s.index):
            continue
        bound = next((x for x in loop.body[:k] if isinstance(x, Let) and x.name == s.value.name), None)
        result = None if bound is None else _result(bound, Load(s.buffer, s.index))
        accesses = [*(x.buffer for x in loads(*loop.body)), *(x.buffer for x in stores(*loop.body))]
        if result is not None and accesses.count(s.buffer) == 2:
            found[result.name] = result
    return found


def _result(bound: Let, own: Load) -> RunningResult | None:
    match bound.value:
        case Select(begins, term, value):
            parts = combined_with(value, own)
            return RunningResult(bound.name, parts[0], own, term, begins) if parts is not None and parts[1] == term else None
        case value:
            parts = combined_with(value, own)
            return RunningResult(bound.name, parts[0], own, parts[1]) if parts is not None else None


def combined_with(value: Expr, own: Load) -> tuple[str, Expr] | None:
    """Return the operation that combines an element with something, and that, if this is what a value is."""
    match value:
        case Binary(op, lhs, rhs) if op in OPERATIONS and own in (lhs, rhs):
            return op, rhs if lhs == own else lhs
        case Compare("!=", lhs, rhs) if own in (lhs, rhs):
            return "bitxor", rhs if lhs == own else lhs
        case _:
            return None


def neutral_of(op: str, dtype: DType) -> float | int | bool:
    """Return what changes no element of a type when it is combined with it."""
    match op:
        case "and":
            return True
        case "or" | "bitor" | "bitxor":
            return dtype.zero
        case "bitand":
            return True if dtype == bool_ else -1
        case "min" | "max" if dtype.is_float:
            return inf if op == "min" else -inf
        case "min" | "max":
            return (op == "min") if dtype == bool_ else limits(dtype)[op == "min"]
        case "*":
            return 1
        case _:
            return -0.0 if dtype.is_float else dtype.zero
