"""How deep and how large expressions are: every pass recurses over them, and Python's stack is finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

DEEP = 32
"""Levels of an expression that get a name of their own."""
LARGE = 2 * DEEP
"""Nodes of an expression that keeps the name it has, even where not everything is evaluated."""


def is_deep(e: Any, children: Callable[[Any], Iterable[Any]]) -> bool:
    """Tell whether an expression has `DEEP` levels or more; `children` returns what stands directly below a node."""
    level = [e]
    for _ in range(DEEP - 1):
        level = [child for parent in level for child in children(parent)]
        if not level:
            return False
    return True


def is_large(e: Any, children: Callable[[Any], Iterable[Any]]) -> bool:
    """Tell whether an expression has `LARGE` nodes or more, each counted wherever it stands."""
    rest, count = [e], 0
    while rest and count < LARGE:
        count += 1
        rest.extend(children(rest.pop()))
    return count >= LARGE
