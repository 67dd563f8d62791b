"""Choices that iterations wait for, as branches: a processor guesses which side is taken, and goes on.

    before   for i in 1 .. n serial {
                 let new = select(x[i] > e[0], 0.5_f64 * e[0], 0.9_f64 * e[0]) + x[i]
                 e[0] = new
             }
    after    for i in 1 .. n serial {
                 alloc side: f64[] registers
                 if x[i] > e[0] { side[] = 0.5_f64 * e[0] } else { side[] = 0.9_f64 * e[0] }
                 let new = side[] + x[i]
                 e[0] = new
             }

A choice between two floats is a comparison, whose answer becomes a mask, and an instruction that takes it, all of them one after the other
and behind both sides. Of a chain of single numbers that is most of what an iteration waits for. A branch is waited for only where the guess
was wrong. Of short serial loops of single statements, and of choices whose condition depends on what the iteration before came to: where
much else is computed, nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen.dtypes import DType
from codegen.loops.chain_registers import Chain
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Compare,
    Expr,
    Fma,
    For,
    Function,
    If,
    Let,
    Load,
    Select,
    Stmt,
    Store,
    Unary,
)
from codegen.loops.replace_loops import replace_loops
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Fresh, fresh_for, loads, map_expr, statements, stores, walk

MOST_CHOICES = 4
"""Of a loop that become branches: where each may be guessed wrong, some guess is in most iterations."""
MOST_OPERATIONS = 40
"""Of an iteration, which then takes about as long as what it waits for."""


def with_late_choices(function: Function) -> Function:
    """Return `function` with branches in place of choices that iterations of its serial loops wait for."""
    fresh = fresh_for(function)

    def replaced(loop: For, env: Env) -> Sequence[Stmt]:
        plain = loop.kind == "serial" and all(isinstance(s, Let | Store) for s in loop.body)
        return (_loop(loop, env, fresh),) if plain else ()

    return replace_loops(function, replaced)


def _is_late_choice(e: Expr, chain: Chain, env: Env) -> bool:
    return isinstance(e, Select) and chain.is_late(e.cond) and dtype_of(e, env).is_float


def _loop(loop: For, env: Env, fresh: Fresh) -> For:
    """Return a loop of single statements with branches for the choices that its iterations wait for, if these are few."""
    read = {n.buffer for n in loads(*loop.body)}
    own = frozenset(s.buffer for s in stores(*loop.body) if s.buffer in read and env.buffers[s.buffer].space == "registers")
    chain, inside, out = Chain(own, frozenset()), env.with_loop(loop), list[Stmt]()
    for s in loop.body:
        assert isinstance(s, Let | Store)
        before, value = _split(s.value, chain, inside, fresh)
        out += (*before, replace(s, value=value))
        if isinstance(s, Let) and chain.is_late(s.value):
            chain = replace(chain, names=chain.names | {s.name})
        inside = inside.after(s)
    branches = sum(isinstance(s, If) for s in statements(*out))
    operations = sum(isinstance(n, Binary | Unary | Compare | Select | Cast | Fma) for n in walk(*loop.body))
    return replace(loop, body=tuple(out)) if 0 < branches <= MOST_CHOICES and operations <= MOST_OPERATIONS else loop


def _split(e: Expr, chain: Chain, env: Env, fresh: Fresh) -> tuple[list[Stmt], Expr]:
    """Return the branches that come before an expression, and what it is behind them."""
    if isinstance(e, Select):
        if not _is_late_choice(e, chain, env):
            return [], e
        dtype, side = dtype_of(e, env), fresh("side")
        then, orelse = (_side(x, side, chain, env, fresh) for x in (e.then, e.orelse))
        before, cond = _split(e.cond, chain, env, fresh)
        return [*before, _register(side, dtype), If(cond, then, orelse)], Load(side, ())
    if isinstance(e, Binary) and e.op in ("and", "or"):
        found, lhs = _split(e.lhs, chain, env, fresh)
        return found, replace(e, lhs=lhs)  # What stands on the right may be read only where the left asks for it.
    before = list[Stmt]()

    def part(x: Expr) -> Expr:
        found, value = _split(x, chain, env, fresh)
        before.extend(found)
        return value

    return before, map_expr(e, lambda index: index, part)


def _side(e: Expr, into: str, chain: Chain, env: Env, fresh: Fresh) -> tuple[Stmt, ...]:
    before, value = _split(e, chain, env, fresh)
    return (*before, Store(into, (), value))


def _register(name: str, dtype: DType) -> Alloc:
    return Alloc(Buffer(name, dtype, (), "registers"))
