"""Keep in a register what the next iteration reads back, so that it does not wait for memory (scalar replacement).

    before   for c in 1 .. 257 { first[c] = first[c - 1] + count[c - 1] }

    after    alloc last: i32[1] registers
             last[0] = first[0]
             for c in 1 .. 257 {
                 let next = last[0] + count[c - 1]
                 first[c] = next
                 last[0] = next
             }

A serial loop that does nothing but store to one buffer, and reads of it the element of the iteration before alone. Elements are of types
that are computed as they are stored.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import bool_
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Buffer,
    Compare,
    Expr,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    Name,
    Select,
    Stmt,
    Store,
    Var,
)
from codegen.loops.walk import Fresh, fresh_for, loads, map_expr, runs_at_least_once, statements, substitute, walk

WIDE = 32
"""Bits of the narrowest type that is computed as it is stored."""


def carried(function: Function) -> Function:
    """Return `function` with elements that go from one iteration to the next in registers."""
    allocated = (n.buffer for n in statements(*function.body) if isinstance(n, Alloc))
    memory = {b.name: b for b in (*function.params, *allocated) if b.space in ("param", "heap", "stack")}
    return replace(function, body=_block(function.body, memory, fresh_for(function)))


def _block(body: tuple[Stmt, ...], memory: dict[str, Buffer], fresh: Fresh) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For(body=(Store(stream=False, across=False, later=False) as store,), kind="serial") if not stmt.notes:
                buffer = memory.get(store.buffer)
                before = None if buffer is None else _read_back(stmt.var, store)
                out += (stmt,) if buffer is None or before is None else _in_register(stmt, store, buffer, before, fresh)
            case For():
                out.append(replace(stmt, body=_block(stmt.body, memory, fresh)))
            case If():
                out.append(replace(stmt, then=_block(stmt.then, memory, fresh), orelse=_block(stmt.orelse, memory, fresh)))
            case _:
                out.append(stmt)
    return tuple(out)


def _read_back(var: str, store: Store) -> Load | None:
    """Return the only read of the buffer that a loop stores to, where it is of what the iteration before stored."""
    found = {load for load in loads(store.value) if load.buffer == store.buffer}
    algebra = Algebra.of({})
    earlier = {var: Add(Var(var), Int(-1))}
    if len(found) != 1 or any(isinstance(n, Select) or (isinstance(n, Binary) and n.op in ("and", "or")) for n in walk(store.value)):
        return None
    (load,) = found
    same = all(algebra.poly(substitute(a, earlier)) == algebra.poly(b) for a, b in zip(store.index, load.index, strict=True))
    return load if same and load.index != store.index else None


def _in_register(loop: For, store: Store, buffer: Buffer, before: Load, fresh: Fresh) -> tuple[Stmt, ...]:
    if buffer.dtype == bool_ or buffer.dtype.bits < WIDE:
        return (loop,)
    last, new = Buffer(fresh(f"{loop.var}_last"), buffer.dtype, (Int(1),), "registers"), fresh(f"{loop.var}_new")
    kept = Load(last.name, (Int(0),))

    def value(e: Expr) -> Expr:
        return kept if e == before else map_expr(e, index, value)

    def index(e: Index) -> Index:
        return e

    body = (Let(new, value(store.value)), replace(store, value=Name(new)), Store(last.name, (Int(0),), Name(new)))
    first = Load(before.buffer, tuple(Algebra.of({}).simplify(substitute(i, {loop.var: loop.lo})) for i in before.index))
    made = (Alloc(last), Store(last.name, (Int(0),), first), replace(loop, body=body))
    runs = Compare("<", IndexValue(loop.lo), IndexValue(loop.hi))
    return made if runs_at_least_once(loop) else (If(runs, made, ()),)
