"""The loop program that scanning a schedule gives: plain data, nothing left to ask of isl.

for io in 0 .. M // 8 {
    for ii in 0 .. 8 { C }
}
if M % 8 != 0 { ... }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from polyhedral import affine, text
from polyhedral.expr import Cond, Expr
from polyhedral.model import Mark


@dataclass(frozen=True, slots=True)
class For:
    """Run `body` for each value in [lo, hi); `extent` is hi - lo where that is a constant, and of a tile it is no less."""

    name: str
    lo: Expr
    hi: Expr
    mark: Mark
    extent: int | None
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class If:
    cond: Cond
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Execute the placed statement at the current loop values."""

    placement: str


Node: TypeAlias = For | If | Run


def substitute(nodes: Sequence[Node], to: Mapping[str, Expr]) -> tuple[Node, ...]:
    """Return `nodes` with parameters replaced simultaneously in bounds and conditions."""
    return tuple(_substitute(node, to) for node in nodes)


def _substitute(node: Node, to: Mapping[str, Expr]) -> Node:
    match node:
        case For(name, lo, hi, mark, extent, body):
            return For(name, affine.substitute(lo, to), affine.substitute(hi, to), mark, extent, substitute(body, to))
        case If(cond, body):
            return If(affine.substitute_cond(cond, to), substitute(body, to))
        case Run():
            return node
        case _:
            assert_never(node)


def show(nodes: Sequence[Node]) -> str:
    return "".join(f"{line}\n" for node in nodes for line in _lines(node, 0))


def _lines(node: Node, depth: int) -> Iterator[str]:
    indent = "    " * depth
    match node:
        case Run(placement):
            yield f"{indent}{placement}"
            return
        case For(name, lo, hi, mark, _, body):
            kind = "for" if mark == "serial" else mark
            yield f"{indent}{kind} {name} in {text.show(lo)} .. {text.show(hi)} {{"
        case If(cond, body):
            yield f"{indent}if {text.show_cond(cond)} {{"
        case _:
            assert_never(node)
    for child in body:
        yield from _lines(child, depth + 1)
    yield f"{indent}}}"
