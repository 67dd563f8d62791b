"""Loops replaced by other statements, each in the scope it stands in: what passes share that change loops one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from codegen.loops.nodes import For, Function, If, Stmt
from codegen.loops.verify import Env

Replaced: TypeAlias = Callable[[For, Env], Sequence[Stmt]]
"""Returns what stands in place of a loop, where so much is in scope; nothing where the loop stays, and those inside of it are asked for."""


def replace_loops(function: Function, replaced: Replaced) -> Function:
    """Return `function` with other statements in place of loops, the outer ones asked for first. Loops that are lanes stay, whole."""
    return replace(function, body=_block(function.body, Env.of(function), replaced))


def _block(block: Iterable[Stmt], env: Env, replaced: Replaced) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        match s:
            case For(kind="serial" | "parallel" | "unroll"):
                out += replaced(s, env) or [replace(s, body=_block(s.body, env.with_loop(s), replaced))]
            case If():
                out.append(replace(s, then=_block(s.then, env, replaced), orelse=_block(s.orelse, env, replaced)))
            case _:
                out.append(s)
        env = env.after(s)
    return tuple(out)
