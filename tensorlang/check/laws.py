"""Testing what a file's reducers promise (rule R5): associativity, commutativity, their identities.

    reducer difference a b from 0 = a - b        refused: (a - b) - c is not a - (b - c)

They are tested for the first types of components for which they make sense: floats before integers before truth values.
"""

from __future__ import annotations

from itertools import product

from codegen.dtypes import DType, bool_, f32, f64, i64
from tensorlang.check.law_tests import broken_laws, is_start_kept
from tensorlang.check.module import Module
from tensorlang.check.problems import error
from tensorlang.check.reducers import make_reducer
from tensorlang.check.scalar import value
from tensorlang.check.scope import Context
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import Fresh

_NOWHERE = sx.Operator("reducer", (), (), (), (), ())


def check_laws(module: Module, name: str) -> list[Diagnostic]:
    """Return what first breaks the promises of a reducer: T0170 not associative, T0171 not commutative, T0172 its identity is none."""
    reducer = module.reducers[name]
    ctx = Context(module, _NOWHERE, {}, Fresh(), value)
    if len(reducer.left) != len(reducer.right):
        problem = error(
            "T0125",
            f"reducer `{name}` has {len(reducer.left)} components on its left and {len(reducer.right)} on its right",
            reducer.span,
            "declared here",
            help="give both sides the same number of components",
        )
        return list(problem.diagnostics)
    try:
        made = _typed(ctx, reducer)
    except CompileError as problem:
        return list(problem.diagnostics)
    return broken_laws(ctx, reducer, made)


def keeps_start(module: Module, name: str) -> bool:
    """Tell whether what a reducer starts from is what it comes to, whatever terms follow, on values of all kinds: `first` does."""
    reducer = module.reducers[name]
    ctx = Context(module, _NOWHERE, {}, Fresh(), value)
    try:
        made = _typed(ctx, reducer)
    except CompileError:
        return False
    return is_start_kept(ctx, reducer, made)


def _typed(ctx: Context, reducer: sx.Reducer) -> ir.Reducer:
    """Return the reducer for the first choice of component types for which it makes sense; floats before integers before truth values."""
    first: CompileError | None = None
    fixed = _told_types(reducer)
    for dtypes in product(*((t,) if t else (f64, i64, bool_, f32) for t in fixed)):
        try:
            return make_reducer(ctx, reducer, dtypes)
        except CompileError as problem:
            first = first or problem
    assert first is not None
    raise first


def _told_types(reducer: sx.Reducer) -> list[DType | None]:
    """Return the types that the identity or `lift` gives components: truth values and positions."""
    out: list[DType | None] = [None] * len(reducer.left)
    identity = reducer.identity.items if isinstance(reducer.identity, sx.TupleOf) else (reducer.identity,)
    for position, item in enumerate(identity[: len(out)]):
        if isinstance(item, sx.Id):
            out[position] = {"true": bool_, "false": bool_, "maxint": i64, "minint": i64}.get(item.name)
    if reducer.lift is not None:
        _, index, lifted = reducer.lift
        items = lifted.items if isinstance(lifted, sx.TupleOf) else (lifted,)
        for position, item in enumerate(items[: len(out)]):
            if isinstance(item, sx.Id) and index is not None and item.name == index:
                out[position] = i64
    return out
