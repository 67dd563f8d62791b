"""A program's equations as nested lists.

Each tensor is defined by itself, also where a clause defines several at once; a reduction to several components is one `fold` for each
that is used. Names become identifiers that nothing else of the program has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from codegen.dtypes import DType, compute_dtype
from polyhedral import expr as affine
from tensorlang.certificate import forms
from tensorlang.certificate.forms import Form
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
    Select,
    Slot,
    Tensor,
    TupleOf,
    Unary,
)
from tensorlang.tensor.walk import reads, tensor_table

Bound = Mapping[str, Form]
"""What names of values are written as: those of `let`, and those of what a reduction combines."""


def equations(program: Program, sizes: Iterable[str]) -> dict[str, Any]:
    """Return what is known of the sizes, parameters, results and definitions. `sizes`: what the loops call those of `program`."""
    writer = _Writer(tensor_table(program), dict(zip(program.sizes, sizes, strict=True)))
    return {
        "context": writer.cond(program.context),
        "params": [writer.param(program, p) for p in program.params],
        "results": [writer.ident(r) for r in program.results],
        "definitions": [form for d in program.definitions for form in writer.definition(d)],
    }


@dataclass(frozen=True, slots=True)
class _Writer:
    """`tensors` tells the types of what is read, `idents` what names have become."""

    tensors: Mapping[str, Tensor]
    idents: dict[str, str]
    taken: set[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "taken", set(self.idents.values()))

    def ident(self, name: str) -> str:
        if name not in self.idents:
            self.idents[name] = self.fresh(name)
        return self.idents[name]

    def fresh(self, name: str) -> str:
        """Return an identifier that is like `name` and in use for nothing else."""
        found = re.sub(r"\W", "_", name, flags=re.ASCII)
        while found in self.taken:
            found += "_"
        self.taken.add(found)
        return found

    def tensor(self, t: Tensor) -> dict[str, Any]:
        return {"name": self.ident(t.name), "dtype": t.dtype.name, "shape": [self.index(e) for e in t.shape]}

    def param(self, program: Program, p: Tensor) -> dict[str, Any]:
        """Return a parameter: the range that it is declared in, and the one its elements are to be taken from when equations are tried."""
        declared = None if p.declared_range is None else [self.index(e) for e in p.declared_range]
        likely = declared
        for extent in self.indexed(program, p.name) if declared is None else ():
            likely = [forms.integer(0), extent if likely is None else forms.operation("min", likely[1], extent)]
        return {**self.tensor(p), "range": declared, "within": likely}

    def indexed(self, program: Program, param: str) -> Iterator[Form]:
        """Yield the extents of the axes at which elements of `param` are used as indices."""
        for read in (r for d in program.definitions for p in d.pieces for r in reads(p.value)):
            for slot, extent in zip(read.index, self.tensors[read.tensor].shape, strict=True):
                if isinstance(slot, Dynamic) and any(r.tensor == param for r in reads(slot.value)):
                    yield self.index(extent)

    def definition(self, d: Definition) -> Iterator[dict[str, Any]]:
        for k, t in enumerate(d.tensors):
            pieces = [[self.cond(p.guard), self.stored(p.value, k, t.dtype)] for p in d.pieces]
            yield {**self.tensor(t), "axes": [self.ident(a) for a in d.axes], "pieces": pieces}

    def stored(self, value: Expr, component: int, dtype: DType) -> Form:
        """Return a component of `value` rounded to the type that it is stored in."""
        form = self.component(value, component, {})
        return form if compute_dtype(dtype) == dtype else forms.cast(dtype.name, form)

    def component(self, e: Expr, k: int, bound: Bound) -> Form:
        """Return a component of a tuple, or a value that is none."""
        match e:
            case TupleOf(items):
                return self.expr(items[k], bound)
            case Reduce():
                return ["fold", compute_dtype(e.reducer.dtypes[k]).name, self.fold(e, bound), k]
            case Select(cond, then, orelse):
                return forms.select(self.expr(cond, bound), self.component(then, k, bound), self.component(orelse, k, bound))
            case Let(name, value, body):
                known = self.expr(value, bound)
                own = forms.name(self.fresh(name), known[1])
                inner = self.component(body, k, {**bound, name: own})
                return ["let", inner[1], own[2], known, inner]
            case _:
                return self.expr(e, bound)

    def expr(self, e: Expr, bound: Bound) -> Form:
        match e:
            case Const(value, dtype):
                return forms.constant(value, compute_dtype(dtype))
            case IndexValue(index):
                return forms.cast("i64", self.index(index))
            case Holds(cond):
                return self.cond(cond)
            case Read(tensor, index):
                dtype = self.tensors[tensor].dtype
                load = ["load", dtype.name, self.ident(tensor), [self.slot(s, bound) for s in index]]
                return load if compute_dtype(dtype) == dtype else forms.cast(compute_dtype(dtype).name, load)
            case Name(name):
                return bound[name]
            case Unary(op, value):
                return forms.operation(op, self.expr(value, bound))
            case Binary(binary, lhs, rhs):
                return forms.operation(binary, self.expr(lhs, bound), self.expr(rhs, bound))
            case Compare(compare, lhs, rhs):
                return forms.condition(compare, self.expr(lhs, bound), self.expr(rhs, bound))
            case Cast(dtype, value, saturate):
                return self.cast(dtype, self.expr(value, bound), saturate)
            case Call(fn, args):
                return forms.call(fn, *(self.expr(a, bound) for a in args))
            case Project(value, position):
                return self.component(value, position, bound)
            case Select() | Let() | TupleOf() | Reduce():
                return self.component(e, 0, bound)
            case _:
                assert_never(e)

    def slot(self, s: Slot, bound: Bound) -> Form:
        return forms.cast(forms.INDEX, self.expr(s.value, bound)) if isinstance(s, Dynamic) else self.index(s)

    def cast(self, dtype: DType, value: Form, saturate: bool) -> Form:
        """Return a cast; one to a narrow float rounds and goes on in f32."""
        narrow = forms.cast(dtype.name, value, saturate)
        return narrow if compute_dtype(dtype) == dtype else forms.cast(compute_dtype(dtype).name, narrow)

    def fold(self, r: Reduce, bound: Bound) -> dict[str, Any]:
        """Return a reduction: `start` is combined with `body` at each point of `binders` where `where` holds, from left to right. Without a
        `start` the first such point is."""
        types = [compute_dtype(t).name for t in r.reducer.dtypes]
        left, right = (
            [forms.name(self.fresh(n), t) for n, t in zip(side, types, strict=True)] for side in (r.reducer.left, r.reducer.right)
        )
        inside = {**bound, **dict(zip((*r.reducer.left, *r.reducer.right), (*left, *right), strict=True))}
        start = r.init if r.init is not None else r.reducer.identity
        where = self.cond(r.where)
        return {
            "types": types,
            "start": None if start is None else [self.expr(i, bound) for i in start],
            "binders": [[self.ident(b.name), self.index(b.lo), self.index(b.hi)] for b in r.binders],
            "where": where if r.filter is None else forms.condition("and", where, self.expr(r.filter, bound)),
            "body": [self.expr(i, bound) for i in r.body],
            "left": [n[2] for n in left],
            "right": [n[2] for n in right],
            "combine": [self.expr(i, inside) for i in r.reducer.combine],
        }

    def index(self, e: affine.Expr) -> Form:
        match e:
            case affine.Int(value):
                return forms.integer(value)
            case affine.Name(name):
                return forms.name(self.ident(name))
            case affine.Add(lhs, rhs):
                return forms.operation("+", self.index(lhs), self.index(rhs))
            case affine.Scale(factor, value):
                return forms.operation("*", forms.integer(factor), self.index(value))
            case affine.Floor(value, divisor):
                return forms.operation("//", self.index(value), forms.integer(divisor))
            case affine.Mod(value, divisor):
                return forms.operation("%", self.index(value), forms.integer(divisor))
            case affine.Min(lhs, rhs):
                return forms.operation("min", self.index(lhs), self.index(rhs))
            case affine.Max(lhs, rhs):
                return forms.operation("max", self.index(lhs), self.index(rhs))
            case _:
                assert_never(e)

    def cond(self, cond: affine.Cond) -> Form:
        match cond:
            case affine.Compare(op, lhs, rhs):
                return forms.condition(op, self.index(lhs), self.index(rhs))
            case affine.And(conds):
                return self.junction("and", conds)
            case affine.Or(conds):
                return self.junction("or", conds)
            case affine.Not(inner):
                return forms.condition("not", self.cond(inner))
            case _:
                assert_never(cond)

    def junction(self, op: str, conds: tuple[affine.Cond, ...]) -> Form:
        found = [self.cond(c) for c in conds] or [["const", "bool", int(op == "and")]]
        whole = found[0]
        for cond in found[1:]:
            whole = forms.condition(op, whole, cond)
        return whole
