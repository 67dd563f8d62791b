"""A function for one thread.

    before   for i in 0 .. N parallel { S }
    after    for i in 0 .. N { S }

Parallel loops are a permission. Without threads to use it, a serial loop lets more leave it, and nobody is woken."""

from __future__ import annotations

from dataclasses import replace

from codegen.loops.nodes import For, Function, Stmt
from codegen.loops.walk import map_stmt


def serial(function: Function) -> Function:
    """Return `function` without parallel loops."""
    return replace(function, body=tuple(map(_serial, function.body)))


def _serial(stmt: Stmt) -> Stmt:
    inside = map_stmt(stmt, lambda index: index, lambda expr: expr, _serial)
    return replace(inside, kind="serial") if isinstance(inside, For) and inside.kind == "parallel" else inside
