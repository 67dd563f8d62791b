"""Long rows of operators, kept shallow.

    before   ((((a + b) + c) + d) + e) + …                                  as deep as it is long
    after    let t = (let s = (a + b) + c in (s + d) + e) in …              as deep as its logarithm, the same operations in the same order

Every pass recurses over expressions, and Python's stack is finite. What stands before an operator is always evaluated, so it may be named.
Of `and` and `or` the grouping says nothing about what is evaluated when: they become trees, through which facts are found without names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from tensorlang.check.values import Val, Value
from tensorlang.diagnostics import Span
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.depth import DEEP


@dataclass(slots=True)
class Run:
    """The operators of a row so far. `fresh` returns names that nobody has; `parts` are what has a name already, each but the first
    mentioning the one before it, once."""

    fresh: Callable[[str], str]
    span: Span
    parts: list[tuple[str, ir.Expr]] = field(default_factory=list)
    length: int = 0

    def named(self, value: Value) -> Value:
        """Return the left side of the next operator: `value`, or a name for it when enough operators came to it."""
        self.length += 1
        if self.length <= DEEP or not isinstance(value, Val):
            return value
        self.length = 1
        name = self.fresh("part")
        self.parts.append((name, value.expr))
        return replace(value, expr=ir.Name(name, span=self.span))

    def whole(self, value: Value) -> Value:
        """Return the value of the row, whose last part is `value`."""
        return replace(value, expr=self._nested(self.parts, value.expr)) if isinstance(value, Val) and self.parts else value

    def _nested(self, parts: list[tuple[str, ir.Expr]], last: ir.Expr) -> ir.Expr:
        if not parts:
            return last
        middle = len(parts) // 2
        name, value = parts[middle]
        return ir.Let(name, self._nested(parts[:middle], value), self._nested(parts[middle + 1 :], last), span=self.span)


_ROW = 16


def joined(join: Callable[[Value, Value], Value], items: Sequence[Value]) -> Value:
    """Return `items` joined from left to right, in a tree over short rows where they are many; `join` is associative."""
    if len(items) <= _ROW:
        return reduce(join, items)
    middle = len(items) // 2
    return join(joined(join, items[:middle]), joined(join, items[middle:]))
