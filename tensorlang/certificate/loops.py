"""The final loop IR as nested lists, node by node.

    for i in 0 .. N vector 8 { c[i] = fma(a[i], b[i], c[i]) }
    ["for", "i", 0, N, "vector", 8, [["store", "c", [i], ["fma", "f32", ["load", "f32", "a", [i]], …]]]]

Two things are not as they stand in the IR. A prefetch computes nothing and is left out. A `Dot` is written as what it means, products of
neighbours and their sum, each operand with the cast that it implies; of floats, that sum is a `dot`, which an instruction takes in an order
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial, reduce
from typing import Any, assert_never

from codegen.dtypes import f32, i32
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Buffer,
    Call,
    Cast,
    Commit,
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
    LoadMatrix,
    Max,
    Min,
    Mma,
    Mod,
    Mul,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from tensorlang.certificate import forms
from tensorlang.certificate.forms import Form
from tensorlang.diagnostics import error

Types = dict[str, str]
"""Those of buffers and of what `let` names."""


def function(f: Function) -> dict[str, Any]:
    """Return a function's sizes, parameters and statements. Raises CompileError C0103 when they are for a graphics processor."""
    types = {p.name: p.dtype.name for p in f.params}
    params = [{**_tensor(p, types), "out": p.name in f.written} for p in f.params]
    return {"sizes": list(f.sizes), "params": params, "body": _block(f.body, types)}


def _tensor(b: Buffer, types: Types) -> dict[str, Any]:
    return {"name": b.name, "dtype": b.dtype.name, "shape": [_index(e, types) for e in b.shape]}


def _block(body: Iterable[Stmt], types: Types) -> list[Form]:
    inside = dict(types)
    return [_stmt(s, inside) for s in body if not isinstance(s, Prefetch)]


def _stmt(s: Stmt, types: Types) -> Form:
    """Return a statement. What it makes known goes into `types`."""
    match s:
        case For(var, lo, hi, body, "serial" | "parallel" | "unroll" | "vector" | "tensor" | "tile" as kind, extent):
            return ["for", var, _index(lo, types), _index(hi, types), kind, extent, _block(body, types)]
        case Store(buffer, index, value):
            return ["store", buffer, [_index(e, types) for e in index], _expr(value, types)]
        case Let(name, value):
            bound = _expr(value, types)
            types[name] = bound[1]
            return ["let", name, bound]
        case If(cond, then, orelse):
            return ["if", _expr(cond, types), _block(then, types), _block(orelse, types)]
        case Alloc(buffer):
            types[buffer.name] = buffer.dtype.name
            return ["alloc", _tensor(buffer, types)]
        case Require(cond, code):
            return ["require", _expr(cond, types), code]
        case (
            For()
            | Prefetch()
            | Barrier()
            | Commit()
            | Wait()
            | LoadMatrix()
            | Mma()
            | Boxes()
            | WaitBoxes()
            | Release()
            | Reclaim()
            | Producer()
        ):
            raise error(
                "C0103", "not supported yet: a certificate of a kernel for graphics processors", help="certify it for this processor"
            )
        case _:
            assert_never(s)


def _index(e: Index, types: Types) -> Form:
    match e:
        case Int(value):
            return forms.integer(value)
        case Var(name):
            return forms.name(name)
        case Add(lhs, rhs):
            return forms.operation("+", _index(lhs, types), _index(rhs, types))
        case Mul(lhs, rhs):
            return forms.operation("*", _index(lhs, types), _index(rhs, types))
        case FloorDiv(lhs, rhs):
            return forms.operation("//", _index(lhs, types), _index(rhs, types))
        case Mod(lhs, rhs):
            return forms.operation("%", _index(lhs, types), _index(rhs, types))
        case Min(lhs, rhs):
            return forms.operation("min", _index(lhs, types), _index(rhs, types))
        case Max(lhs, rhs):
            return forms.operation("max", _index(lhs, types), _index(rhs, types))
        case ValueIndex(value):
            return forms.cast(forms.INDEX, _expr(value, types))
        case _:
            assert_never(e)


def _expr(e: Expr, types: Types) -> Form:
    match e:
        case Const(value, dtype):
            return forms.constant(value, dtype)
        case Load(buffer, index):
            return ["load", types.get(buffer, ""), buffer, [_index(i, types) for i in index]]
        case IndexValue(index_value):
            return forms.cast("i64", _index(index_value, types))
        case Name(name):
            return forms.name(name, types.get(name, ""))
        case Unary(op, value):
            return forms.operation(op, _expr(value, types))
        case Binary(binary, lhs, rhs):
            return forms.operation(binary, _expr(lhs, types), _expr(rhs, types))
        case Compare(compare, lhs, rhs):
            return forms.condition(compare, _expr(lhs, types), _expr(rhs, types))
        case Select(cond, then, orelse):
            return forms.select(_expr(cond, types), _expr(then, types), _expr(orelse, types))
        case Cast(dtype, value, saturate):
            return forms.cast(dtype.name, _expr(value, types), saturate)
        case Call(fn, args):
            return forms.call(fn, *(_expr(a, types) for a in args))
        case Fma(a, b, c):
            return forms.operation("fma", *(_expr(x, types) for x in (a, b, c)))
        case Dot():
            return _dot(e, types)
        case _:
            assert_never(e)


def _dot(e: Dot, types: Types) -> Form:
    """Return `c + dot(a[n]*b[m], a[n + 1]*b[m + 1], …)`; whole numbers are added one after the other."""
    first, *others = (forms.operation("*", *(_factor(x, k, types) for x in (e.a, e.b))) for k in range(e.count))
    floats = first[1] == f32.name
    total = forms.operation("dot", first, *others) if floats else reduce(partial(forms.operation, "+"), others, first)
    return forms.operation("+", _expr(e.c, types), total)


def _factor(x: Load, k: int, types: Types) -> Form:
    """Return the k-th element from the one that is named on, as it is multiplied."""
    element = _expr(replace(x, index=(*x.index[:-1], Add(x.index[-1], Int(k)))), types)
    return forms.cast((f32 if types.get(x.buffer) == "bf16" else i32).name, element)
