"""Certificates: a kernel's loops and equations, as JSON for a checker that knows nothing of the compiler.

    {"format", "kernel", "mode", "sizes", "context", "params", "definitions", "results", "equations", "loops", "claims", "made_by",
     "digest"}

`loops` is the final loop IR as `codegen.loops.printer` shows it. `params` and `definitions` are the tensor IR as nested lists, in the
vocabulary of the loops: every cast is written out, also where a narrow float is read or stored. `equations` is the same for people.
`docs/certificates.md` says what acceptance means.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeAlias, assert_never

from codegen.dtypes import DType, compute_dtype
from polyhedral import expr as affine
from tensorlang.digest import compiler_digest
from tensorlang.tensor.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Definition,
    Dynamic,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Program,
    Project,
    Read,
    Reduce,
    Reducer,
    Select,
    Slot,
    Tensor,
    TupleOf,
    Unary,
)
from tensorlang.tensor.printer import show
from tensorlang.tensor.walk import reads, tensor_table

Form: TypeAlias = list[Any]
FORMAT = 1
CLAIMS = (
    "every subscript lies in its buffer, every extent is at least 0, and no index leaves 64 bits",
    "what is read was written before, and iterations of parallel loops and lanes share nothing that one of them writes",
    "every element of every result is written",
    "the results are what the equations say",
)
_OPERATION = {"sum": "+", "prod": "*", "min": "min", "max": "max", "any": "or", "all": "and"}
_SYMBOL = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}


def certificate(program: Program, loops: str) -> str:
    """Return the certificate of a kernel that is to compute `program`, whose final loops are `loops`."""
    writer = _Writer(program)
    body = {
        "format": FORMAT,
        "kernel": program.name,
        "mode": program.mode,
        "sizes": list(map(_plain, program.sizes)),
        "context": _cond(program.context),
        "params": [{**_tensor(p), "range": _range(p), "indexes": list(writer.indexed(p.name))} for p in program.params],
        "definitions": [writer.definition(d) for d in program.definitions],
        "results": list(map(_plain, program.results)),
        "equations": show(program),
        "loops": loops,
        "claims": CLAIMS,
        "made_by": {"compiler": compiler_digest(), "islpy": version("islpy")},
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    lines = [f' "{key}": {json.dumps(part)}' for key, part in {**body, "digest": digest}.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes expressions; `tensors` tells the types of what they read."""

    program: Program
    tensors: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tensor_table(self.program))

    def indexed(self, param: str) -> Iterator[Form]:
        """Yield the extents of the axes at which elements of `param` are used as indices."""
        for read in (r for d in self.program.definitions for p in d.pieces for r in reads(p.value)):
            for slot, extent in zip(read.index, self.tensors[read.tensor].shape, strict=True):
                if isinstance(slot, Dynamic) and any(r.tensor == param for r in reads(slot.value)):
                    yield _affine(extent)

    def definition(self, d: Definition) -> dict[str, Any]:
        pieces = [[_cond(p.guard), self.stored(p.value, tuple(t.dtype for t in d.tensors))] for p in d.pieces]
        return {"tensors": [_tensor(t) for t in d.tensors], "axes": list(map(_plain, d.axes)), "pieces": pieces}

    def stored(self, value: Expr, dtypes: tuple[DType, ...]) -> Form:
        """Return `value` rounded to the types it is stored in."""
        if all(compute_dtype(t) == t for t in dtypes):
            return self.expr(value)
        if len(dtypes) == 1:
            return ["cast", dtypes[0].name, False, self.expr(value)]
        items = value.items if isinstance(value, TupleOf) else tuple(Project(value, k) for k in range(len(dtypes)))
        return ["tuple", [self.stored(item, (t,)) for item, t in zip(items, dtypes, strict=True)]]

    def expr(self, e: Expr) -> Form:
        match e:
            case Const(value, dtype):
                return _const(value, dtype)
            case IndexValue(index):
                return ["index", _affine(index)]
            case Holds(cond):
                return _cond(cond)
            case Read(tensor, index):
                dtype = self.tensors[tensor].dtype
                load = ["load", _plain(tensor), [self.slot(s) for s in index]]
                return load if compute_dtype(dtype) == dtype else ["cast", compute_dtype(dtype).name, False, load]
            case Name(name):
                return ["name", name]
            case Unary(op, value):
                return [op, self.expr(value)]
            case Binary(op, lhs, rhs):
                return ["bin", _SYMBOL.get(op, op), self.expr(lhs), self.expr(rhs)]
            case Compare(op, lhs, rhs):
                return ["cmp", op, self.expr(lhs), self.expr(rhs)]
            case Select(cond, then, orelse):
                return ["select", self.expr(cond), self.expr(then), self.expr(orelse)]
            case Cast(dtype, value, saturate):
                return self.cast(dtype, value, saturate)
            case Call(fn, args):
                return ["call", fn, [self.expr(a) for a in args]]
            case Let(name, value, body):
                return ["let", name, self.expr(value), self.expr(body)]
            case TupleOf(items):
                return ["tuple", [self.expr(i) for i in items]]
            case Project(value, position):
                return ["item", self.expr(value), position]
            case Reduce():
                return ["fold", self.fold(e)]
            case _:
                assert_never(e)

    def slot(self, s: Slot) -> Form:
        return ["value", self.expr(s.value)] if isinstance(s, Dynamic) else _affine(s)

    def cast(self, dtype: DType, value: Expr, saturate: bool) -> Form:
        """Return a cast; one to a narrow float rounds and goes on in f32."""
        narrow: Form = ["cast", dtype.name, saturate, self.expr(value)]
        return narrow if compute_dtype(dtype) == dtype else ["cast", compute_dtype(dtype).name, False, narrow]

    def many(self, items: tuple[Expr, ...] | None) -> Form | None:
        return None if items is None else [self.expr(i) for i in items]

    def fold(self, r: Reduce) -> dict[str, Any]:
        reducer: Reducer = r.reducer
        return {
            "op": _OPERATION.get(reducer.kind or ""),
            "dtypes": [compute_dtype(t).name for t in reducer.dtypes],
            "binders": [[_plain(b.name), _affine(b.lo), _affine(b.hi)] for b in r.binders],
            "where": _cond(r.where),
            "filter": None if r.filter is None else self.expr(r.filter),
            "init": self.many(r.init),
            "identity": self.many(reducer.identity),
            "body": self.many(r.body),
            "left": list(reducer.left),
            "right": list(reducer.right),
            "combine": self.many(reducer.combine),
        }


def _tensor(t: Tensor) -> dict[str, Any]:
    return {"name": _plain(t.name), "dtype": t.dtype.name, "shape": [_affine(e) for e in t.shape]}


def _range(t: Tensor) -> Form | None:
    return None if t.declared_range is None else [_affine(e) for e in t.declared_range]


def _plain(name: str) -> str:
    """Return a name as loops have it: those of packs, `D.0`, become identifiers. The checker rejects what two then share."""
    return name.replace(".", "_")


def _const(value: float | int | bool, dtype: DType) -> Form:
    return ["const", dtype.name, float(value).hex() if dtype.is_float else int(value)]


def _affine(e: affine.Expr) -> Form:
    match e:
        case affine.Int(value):
            return ["int", value]
        case affine.Name(name):
            return ["name", _plain(name)]
        case affine.Add(lhs, rhs):
            return ["bin", "+", _affine(lhs), _affine(rhs)]
        case affine.Scale(factor, value):
            return ["bin", "*", ["int", factor], _affine(value)]
        case affine.Floor(value, divisor):
            return ["bin", "//", _affine(value), ["int", divisor]]
        case affine.Mod(value, divisor):
            return ["bin", "%", _affine(value), ["int", divisor]]
        case affine.Min(lhs, rhs):
            return ["bin", "min", _affine(lhs), _affine(rhs)]
        case affine.Max(lhs, rhs):
            return ["bin", "max", _affine(lhs), _affine(rhs)]
        case _:
            assert_never(e)


def _cond(cond: affine.Cond) -> Form:
    match cond:
        case affine.Compare(op, lhs, rhs):
            return ["cmp", op, _affine(lhs), _affine(rhs)]
        case affine.And(conds):
            return _junction("and", conds)
        case affine.Or(conds):
            return _junction("or", conds)
        case affine.Not(inner):
            return ["not", _cond(inner)]
        case _:
            assert_never(cond)


def _junction(op: str, conds: tuple[affine.Cond, ...]) -> Form:
    if not conds:
        return ["const", "bool", int(op == "and")]
    found = _cond(conds[0])
    for cond in conds[1:]:
        found = ["bin", op, found, _cond(cond)]
    return found
