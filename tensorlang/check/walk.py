"""Walking the syntax tree: children of a node, names it mentions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from codegen.dtypes import DTYPES
from tensorlang.check.types import BUILTINS
from tensorlang.syntax import nodes as sx

_FIELDS: dict[type[sx.Node], tuple[str, ...]] = {}
_WORDS = frozenset(("str", "str | None", "int", "int | None", "bool"))
"""Types of fields that hold no nodes."""


def _field_names(kind: type[sx.Node]) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(f.name for f in fields(kind) if f.name != "span" and not f.name.endswith("_span") and f.type not in _WORDS)
    return _FIELDS[kind]


def children(node: sx.Node) -> list[sx.Node]:
    """Return the nodes directly below, in text order."""
    found: list[sx.Node] = []
    for name in _FIELDS.get(type(node)) or _field_names(type(node)):
        value = getattr(node, name)
        if isinstance(value, sx.Node):
            found.append(value)
        elif isinstance(value, tuple):
            _collect(value, found)
    return found


def _collect(items: tuple[object, ...], found: list[sx.Node]) -> None:
    for item in items:
        if isinstance(item, sx.Node):
            found.append(item)
        elif isinstance(item, tuple):
            _collect(item, found)


def descendants(node: sx.Node) -> Iterator[sx.Node]:
    """Yield the node and everything below it, parents first."""
    rest = [node]
    while rest:
        node = rest.pop()
        yield node
        below = children(node)
        below.reverse()
        rest += below


def bound_name(binder: sx.Node) -> str | None:
    """Return the index that a binder of a reduction, `i` or `i in 0..n`, gives its name to; None for packs, conditions and starts."""
    match binder:
        case sx.Id(name) | sx.Member(sx.Id(name)):
            return name
        case _:
            return None


def conjuncts(cond: sx.Node) -> Iterator[sx.Node]:
    """Yield the conditions that `and` joins in `cond`, in text order."""
    match cond:
        case sx.Binary("and", lhs, rhs):
            yield from conjuncts(lhs)
            yield from conjuncts(rhs)
        case sx.Chain(first, (sx.Link("and"), *_) as rest):
            for part in (first, *(link.rhs for link in rest)):
                yield from conjuncts(part)
        case _:
            yield cond


def repeated_names(node: sx.Node) -> Iterator[sx.Id]:
    """Yield the names that `node..` may repeat: those outside nested packs and outside `rank(…)` and `before(…)`."""
    match node:
        case sx.Pack():
            return
        case sx.Apply("rank" | "before"):
            return
        case sx.Id():
            yield node
        case sx.Index(_, slots, mode):
            for slot in slots:
                yield from repeated_names(slot)
            if mode is not None:
                yield from repeated_names(mode)
        case _:
            for child in children(node):
                yield from repeated_names(child)


def is_used_lazily(node: sx.Node, name: str) -> bool:
    """Tell whether `name` may be mentioned where not everything is evaluated: on a side of an `if`, right of `and` and `or`, in the last
    comparisons of several, in the mode of a read, in a reduction, and in the arguments of functions, which have all of these."""
    match node:
        case sx.IfElse(cond, then, orelse):
            first, rest = cond, [then, orelse]
        case sx.Binary("and" | "or", lhs, rhs):
            first, rest = lhs, [rhs]
        case sx.Chain(lhs, (sx.Link("and" | "or"), *_) as links):
            first, rest = lhs, [link.rhs for link in links]
        case sx.Compare((lhs, second, *last)):
            return is_used_lazily(lhs, name) or is_used_lazily(second, name) or any(uses(part, name) for part in last)
        case sx.Member(value, sx.Range(lo, hi)):
            return is_used_lazily(value, name) or is_used_lazily(lo, name) or uses(hi, name) > 0
        case sx.Index(_, slots, mode):
            return any(is_used_lazily(slot, name) for slot in slots) or (mode is not None and uses(mode, name) > 0)
        case sx.Apply(called) if called not in BUILTINS and called not in DTYPES:
            return uses(node, name) > 0
        case sx.Reduction():
            return uses(node, name) > 0
        case _:
            return any(is_used_lazily(child, name) for child in children(node))
    return is_used_lazily(first, name) or any(uses(part, name) for part in rest)


def uses(node: sx.Node, name: str) -> int:
    """Return how often `name` is mentioned as an identifier or called."""
    return sum(1 for n in descendants(node) if isinstance(n, sx.Id | sx.Apply | sx.Index) and n.name == name)
