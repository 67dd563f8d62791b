"""Hypothesis strategies for loop IR that is well formed as text; it need not mean anything."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import strategies as st

from codegen.dtypes import DTYPES, DType, bool_
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Name,
    Prefetch,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
)
from codegen.loops.notes import Begins, Clustered, Edge, Kept, Multicast, Note, Persistent, Specialized, Staged, Streamed

names = st.sampled_from(["i", "jo", "N", "acc", "x_1", "for", "index", "f32", "min", "a.b", "inf", "out"])
dtypes = st.sampled_from(list(DTYPES.values()))


def _const(dtype: DType) -> st.SearchStrategy[Const]:
    if dtype.is_float:
        return st.floats().map(lambda value: Const(_round(value, dtype), dtype))
    if dtype == bool_:
        return st.booleans().map(lambda value: Const(value, dtype))
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    return st.integers(low, low + (1 << dtype.bits) - 1).map(lambda value: Const(value, dtype))


def _round(value: float, dtype: DType) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(value).astype(dtype.numpy))


consts = dtypes.flatmap(_const)
ints = st.integers(-40, 40).map(Int)
_BINARY = ["+", "-", "*", "/", "//", "%", "min", "max", "and", "or", "bitand", "bitor", "bitxor", "shl", "shr"]


def index_trees(leaves: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    """Trees of index arithmetic over `leaves`."""
    return st.recursive(leaves, lambda e: st.one_of(*(st.builds(node, e, e) for node in (Add, Mul, FloorDiv, Mod, Min, Max))), max_leaves=6)


simple_indices = index_trees(st.one_of(ints, names.map(Var)))


def _expr_layer(e: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    index = st.one_of(simple_indices, e.map(ValueIndex))
    return st.one_of(
        st.builds(Load, names, st.lists(index, max_size=2).map(tuple)),
        st.builds(IndexValue, index),
        st.builds(Unary, st.sampled_from(["neg", "not", "bitnot", "abs"]), e),
        st.builds(Binary, st.sampled_from(_BINARY), e, e),
        st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), e, e),
        st.builds(Select, e, e, e),
        st.builds(Cast, dtypes, e, st.booleans()),
        st.builds(Call, st.sampled_from(["exp", "atan2"]), st.lists(e, max_size=2).map(tuple)),
        st.builds(Fma, e, e, e),
        st.builds(Dot, st.sampled_from([2, 4]), *(st.builds(Load, names, st.lists(index, min_size=1, max_size=2).map(tuple)),) * 2, e),
    )


exprs = st.recursive(st.one_of(consts, names.map(Name)), _expr_layer, max_leaves=6)
indices = index_trees(st.one_of(ints, names.map(Var), exprs.map(ValueIndex)))
_subscripts = st.lists(indices, max_size=2).map(tuple)
_spaces = st.sampled_from(["param", "heap", "stack", "registers"])
_aligns = st.sampled_from([1, 64])
_counts = st.integers(1, 300)
_about = {
    "loop": st.one_of(
        st.builds(Staged, _counts, st.booleans()),
        st.builds(Specialized, st.sampled_from([(), (40, 232)])),
        st.builds(Persistent, _counts),
        st.builds(Clustered, _counts),
        st.builds(Edge, st.sampled_from(["guard", "zfill"])),
    ),
    "buffer": st.one_of(
        st.builds(Kept, st.sampled_from(["shared", "registers"])),
        st.just(Multicast()),
        st.just(Streamed()),
        st.builds(Begins, names),
    ),
}


def notes_about(what: str) -> st.SearchStrategy[tuple[Note, ...]]:
    """Notes of different kinds about a loop or a buffer."""
    return st.lists(_about[what], max_size=2, unique_by=type).map(tuple)


_buffers = st.builds(Buffer, names, dtypes, _subscripts, _spaces, _aligns, st.sampled_from([0, 64]), notes_about("buffer"))
_simple = st.one_of(
    st.builds(Store, names, _subscripts, exprs, st.booleans()),
    st.builds(Let, names, exprs),
    st.builds(Alloc, _buffers),
    st.builds(Prefetch, names, _subscripts, st.booleans(), st.integers(0, 3)),
    st.builds(Require, exprs, st.integers(1, 9)),
)
_kinds = st.sampled_from(["serial", "parallel", "unroll", "vector", "tensor"])


def _stmt_layer(s: st.SearchStrategy[Stmt]) -> st.SearchStrategy[Stmt]:
    block = st.lists(s, max_size=2).map(tuple)
    extents = st.one_of(st.none(), st.integers(0, 16))
    return st.one_of(
        st.builds(For, names, indices, indices, block, _kinds, extents, notes_about("loop")), st.builds(If, exprs, block, block)
    )


stmts = st.recursive(_simple, _stmt_layer, max_leaves=3)


@st.composite
def functions(draw: st.DrawFn) -> Function:
    """Any function, whether or not it verifies; `written` names parameters."""
    params = tuple(draw(st.lists(_buffers, max_size=2, unique_by=lambda b: b.name)))
    written = frozenset(b.name for b in params if draw(st.booleans()))
    sizes = tuple(draw(st.lists(names, max_size=2)))
    return Function(draw(names), sizes, params, tuple(draw(st.lists(stmts, max_size=3))), written)


# ---------------------------------------------------------------- functions that run


@cache
def small_index(scope: tuple[str, ...]) -> st.SearchStrategy[Index]:
    """Index arithmetic over `scope` whose divisors are positive."""
    divisors = st.sampled_from([1, 2, 3, 4, 8, 32]).map(Int)
    leaves: st.SearchStrategy[Index] = st.one_of(st.integers(-9, 9).map(Int), st.sampled_from(scope).map(Var))

    def layer(e: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
        return st.one_of(
            st.builds(Add, e, e),
            st.builds(Mul, st.sampled_from([-1, 2, 3, 4, 32]).map(Int), e),
            st.builds(Mul, e, e),
            st.builds(FloorDiv, e, divisors),
            st.builds(Mod, e, divisors),
            st.builds(Min, e, e),
            st.builds(Max, e, e),
        )

    return st.recursive(leaves, layer, max_leaves=5)


def _cell(e: Index) -> tuple[Index, ...]:
    return (Mod(e, Int(8)),)


@cache
def _order(scope: tuple[str, ...]) -> st.SearchStrategy[Expr]:
    side = small_index(scope).map(IndexValue)
    return st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), side, side)


@cache
def _value(scope: tuple[str, ...], values: tuple[str, ...]) -> st.SearchStrategy[Expr]:
    index = small_index(scope)
    numbers = st.sampled_from([0.0, -0.0, 1.0, 0.1, float("inf")]).map(lambda v: Const(_round(v, DTYPES["f32"]), DTYPES["f32"]))
    reads = [index.map(lambda e, name=name: Load(name, _cell(e))) for name in ("a", "c")]
    known = st.one_of(numbers, *reads, *[st.just(Name(name)) for name in values])
    return st.one_of(
        known,
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), known, known),
        st.builds(Select, _order(scope), known, known),
        st.builds(Cast, st.just(DTYPES["f32"]), index.map(IndexValue)),
    )


@st.composite
def _running_block(draw: st.DrawFn, scope: tuple[str, ...], values: tuple[str, ...], depth: int) -> tuple[Stmt, ...]:
    index = small_index(scope)
    body: list[Stmt] = []
    for _ in range(draw(st.integers(1, 2))):
        value = _value(scope, values)
        match draw(st.sampled_from(["store", "let", "if", "for", "for"] if depth else ["store", "let"])):
            case "store":
                body.append(Store("c", _cell(draw(index)), draw(value)))
            case "let":
                name = f"x{depth}_{len(values)}"
                body.append(Let(name, draw(value)))
                values = (*values, name)
            case "if":
                then = draw(_running_block(scope, values, depth - 1))
                body.append(If(draw(_order(scope)), then, draw(_running_block(scope, values, depth - 1))))
            case _:
                var = f"i{depth}"
                lo, hi = draw(st.one_of(st.integers(0, 2).map(Int), index)), draw(index)
                inner = draw(_running_block((*scope, var), values, depth - 1))
                body.append(For(var, Max(Int(-2), lo), Min(Int(4), hi), inner))
    return tuple(body)


@st.composite
def running_functions(draw: st.DrawFn) -> Function:
    """Functions of a size N >= 0 that read a and change c, both of eight f32, at places within bounds."""
    params = (Buffer("a", DTYPES["f32"], (Int(8),)), Buffer("c", DTYPES["f32"], (Int(8),)), Buffer("n", DTYPES["f32"], (Var("N"),)))
    return Function("f", ("N",), params, draw(_running_block(("N",), (), 3)), frozenset(("c",)))
