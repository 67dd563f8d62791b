"""How deep the expressions of an operator nest: every pass after the checker recurses over them, and Python's stack is finite."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.check.problems import error
from tensorlang.diagnostics import CompileError
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.depth import LARGE
from tensorlang.tensor.nodes import Binary, Definition, Expr, Let, Name, Select
from tensorlang.tensor.walk import children

MAX_LEVELS = 150
"""Levels of an expression. A pass takes up to four frames of Python's stack a level, and a thousand are all there are."""


class _TooDeep(Exception):
    pass


def check_depth(operator: sx.Operator, definition: Definition) -> None:
    """Raise CompileError T0153 where an expression of `definition` nests too deeply for the passes after the checker."""
    try:
        for piece in definition.pieces:
            _levels(piece.value, {}, MAX_LEVELS, lazy=False)
    except _TooDeep:
        raise too_deep(operator) from None


def too_deep(operator: sx.Operator) -> CompileError:
    return error(
        "T0153",
        f"`{operator.name}` nests too deeply to be compiled",
        operator.name_span,
        "declared here",
        notes=(f"the limit is {MAX_LEVELS} levels, with functions written out where they are called",),
        help="split the expression: define tensors for parts of it",
    )


def _levels(e: Expr, lets: Mapping[str, int], most: int, *, lazy: bool) -> int:
    """Return how deep `e` is. What a `let` says where not everything is evaluated (`lazy`) will stand in the places of its name, unless
    it is so large that it keeps one."""
    if most <= 0:
        raise _TooDeep
    match e:
        case Name(name):
            below = [lets.get(name, 0)]
        case Let(name, value, body):
            bound = _levels(value, lets, most - 1, lazy=lazy)
            below = [bound, _levels(body, {**lets, name: min(bound, LARGE)} if lazy else lets, most - 1, lazy=lazy)]
        case Select(cond, then, orelse):
            below = [_levels(cond, lets, most - 1, lazy=lazy), *(_levels(side, lets, most - 1, lazy=True) for side in (then, orelse))]
        case Binary("and" | "or", lhs, rhs):
            below = [_levels(lhs, lets, most - 1, lazy=lazy), _levels(rhs, lets, most - 1, lazy=True)]
        case _:
            below = [_levels(child, lets, most - 1, lazy=lazy) for child in children(e)]
    deepest = 1 + max(below, default=0)
    if deepest > most:
        raise _TooDeep
    return deepest
