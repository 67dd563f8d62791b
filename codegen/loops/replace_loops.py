"""Loops or conditions replaced by other statements, each in the scope it stands in: what passes share that change one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from codegen.loops.nodes import For, Function, If, Stmt
from codegen.loops.verify import Env

ReplacedLoop: TypeAlias = Callable[[For, Env], Sequence[Stmt]]
"""Returns what stands in place of a loop, where so much is in scope; nothing where the loop stays, and those inside of it are asked for."""
ReplacedCondition: TypeAlias = Callable[[If, Env], Sequence[Stmt]]
"""The same of a condition."""


def replace_loops(function: Function, replaced: ReplacedLoop) -> Function:
    """Return `function` with other statements in place of loops, the outer ones asked for first. Loops that are lanes stay, whole."""
    return replace(function, body=_block(function.body, Env.of(function), replaced, _stays))


def replace_conditions(function: Function, replaced: ReplacedCondition) -> Function:
    """Return `function` with other statements in place of conditions, the outer ones asked for first. Loops that are lanes stay, whole."""
    return replace(function, body=_block(function.body, Env.of(function), _stays, replaced))


def _stays(s: Stmt, env: Env) -> Sequence[Stmt]:
    return ()


def _block(block: Iterable[Stmt], env: Env, loop: ReplacedLoop, condition: ReplacedCondition) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        match s:
            case For(kind="serial" | "parallel" | "unroll"):
                out += loop(s, env) or [replace(s, body=_block(s.body, env.with_loop(s), loop, condition))]
            case If():
                sides = (_block(side, env, loop, condition) for side in (s.then, s.orelse))
                out += condition(s, env) or [If(s.cond, *sides)]
            case _:
                out.append(s)
        env = env.after(s)
    return tuple(out)
