"""Terms of whole numbers that are added under a condition: nothing is added where it does not hold, in place of a branch around them
(if-conversion: Allen, Kennedy, Porterfield and Warren 1983).

    before   for k in 0 .. 16 serial { if alive[value(at[k])] { n[0] = n[0] + 1_i32 } }
    after    for k in 0 .. 16 serial { n[0] = n[0] + select(alive[value(at[k])], 1_i32, 0_i32) }

Where data are as good as random, a processor guesses wrong which side of a branch is taken, and a wrong guess takes as long as a dozen
additions. Of sums in registers, of terms that read no memory, where no lanes run: those have masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen.dtypes import DType
from codegen.loops.nodes import Binary, Const, Expr, Function, If, Load, Select, Stmt, Store, ValueIndex
from codegen.loops.replace_loops import replace_conditions
from codegen.loops.verify import Env
from codegen.loops.walk import loads, walk


def with_conditional_terms(function: Function) -> Function:
    """Return `function` with sums of whole numbers to which terms are added, or nothing, without branches."""

    def replaced(s: If, env: Env) -> Sequence[Stmt]:
        match s:
            case If(cond, (Store() as added,), ()) if (term := _term(added, env)) is not None:
                value, dtype = term
                return (replace(added, value=Binary("+", Load(added.buffer, added.index), Select(cond, value, Const(0, dtype)))),)
            case _:
                return ()

    return replace_conditions(function, replaced)


def _term(s: Store, env: Env) -> tuple[Expr, DType] | None:
    """Return what a statement adds to a whole number in a register, and the type of both; None where it does anything else, or the term
    reads memory."""
    buffer = env.buffers[s.buffer]
    if buffer.space != "registers" or not buffer.dtype.is_integer or any(isinstance(n, ValueIndex) for i in s.index for n in walk(i)):
        return None
    match s.value:
        case Binary("+", Load(name, index), term) if (name, index) == (s.buffer, s.index):
            return None if any(True for _ in loads(term)) else (term, buffer.dtype)
        case _:
            return None
