"""Index expressions and conditions as the language writes them, names that are no plain words in backquotes."""

from __future__ import annotations

import re

from polyhedral import text
from polyhedral.expr import Cond, Expr

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = """op fn for in let if then else otherwise and or not attr size each where from broadcast extern knobs at by as to with"""
RESERVED = frozenset(_RESERVED.split())


def quoted(name: str) -> str:
    """Return `name` as the language writes it: in backquotes unless it is a plain word."""
    return name if _WORD.fullmatch(name) and name not in RESERVED else f"`{name}`"


_LANGUAGE = text.Notation(quoted, largest_first=False)
_UNQUOTED = text.Notation(largest_first=False)


def show(e: Expr) -> str:
    """Return `e` in the notation of the language: `2*p + r - 1`, `i // 2`, `min(a, b)`."""
    return text.show(e, _LANGUAGE)


def bare(e: Expr) -> str:
    """Return `e` with its names as they are, for text that stands in quotes itself."""
    return text.show(e, _UNQUOTED)


def show_cond(cond: Cond) -> str:
    """Return `cond` in the notation of the language; conjunctions as `a and b`."""
    return text.show_cond(cond, _LANGUAGE)


def element(name: str, point: tuple[int, ...]) -> str:
    """Return how an element of a tensor is told: `x[3, 1]`, or `x` where it has one alone."""
    return f"{name}[{', '.join(map(str, point))}]" if point else name
