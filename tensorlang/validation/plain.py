"""A program as the plainest loops that compute it: a nest for each definition, in the order of the data, no schedule and no analysis.

    y[i, j] = sum(k) a[i, k] * b[k, j]        for v1 in 0 .. M { for v2 in 0 .. N { alloc v3: f32[1] stack … y[v1, v2] = v3[0] } }

What has to be computed before an expression can be (a reduction, the sides of a choice that have one) stands in statements before it,
under the conditions it stands under. Elements that data choose are required to be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from codegen.dtypes import DType, bool_, compute_dtype, f64, i64
from codegen.loops import nodes as loops
from polyhedral import expr as affine
from tensorlang.lower.index import Names, to_bool, to_index
from tensorlang.tensor import nodes as tensor
from tensorlang.tensor.types import Types, dtype_of, types_of
from tensorlang.tensor.walk import components, definition_reads, tensor_table

Values: TypeAlias = tuple[loops.Expr, ...]
OUTSIDE = 1
"""The code of a function that would read an element that is not there."""
_NUMBERS: dict[str, loops.Index] = {}
_closed: Names = _NUMBERS.__getitem__
"""Sizes are numbers here: no name stands in a shape."""
_START = (loops.Int(0),)


def plain(program: tensor.Program) -> loops.Function | None:
    """Return the loops of a program whose sizes are known; its parameters and results are their buffers. None where elements of a tensor
    depend on others of it. What they return is not 0 where the equations refuse the data."""
    groups = components(program)
    if any(len(g) > 1 or definition_reads(g[0]) & {t.name for t in g[0].tensors} for g in groups):
        return None
    table = tensor_table(program)
    writer = _Writer(table)
    names = (*(p.name for p in program.params), *program.results)
    params = tuple(writer.buffer(table[name], "param") for name in names)
    place = _Place({}, {}, types_of(program))
    body = [check for p in program.params if p.declared_range is not None for check in writer.checked(p, *p.declared_range)]
    for (definition,) in groups:
        body += [loops.Alloc(writer.buffer(t, "heap")) for t in definition.tensors if t.name not in program.results]
        body += writer.definition(definition, place)
    written = frozenset(writer.buffers[name] for name in program.results)
    return loops.Function("plain", (), params, tuple(body), written)


@dataclass(frozen=True, slots=True)
class _Place:
    """What names stand for: `index` the axes and binders, `values` what was bound; `types` of the latter."""

    index: Mapping[str, loops.Index]
    values: Mapping[str, Values]
    types: Types

    def at(self, name: str, var: str) -> _Place:
        return replace(self, index={**self.index, name: loops.Var(var)})

    def bind(self, names: Sequence[str], values: Sequence[Values], types: Types) -> _Place:
        return replace(self, values={**self.values, **dict(zip(names, values, strict=True))}, types=types)


@dataclass(slots=True)
class _Writer:
    table: Mapping[str, tensor.Tensor]
    buffers: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    def fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def buffer(self, t: tensor.Tensor, space: loops.Space) -> loops.Buffer:
        self.buffers[t.name] = self.fresh()
        return loops.Buffer(self.buffers[t.name], t.dtype, tuple(to_index(n, _closed) for n in t.shape), space)

    def checked(self, t: tensor.Tensor, low: affine.Expr, high: affine.Expr) -> list[loops.Stmt]:
        """Return what requires every element of a parameter to lie in the range that is declared."""
        variables = [self.fresh() for _ in t.shape]
        body: list[loops.Stmt] = []
        wide = f64 if t.dtype.is_float else i64
        load: loops.Expr = loops.Load(self.buffers[t.name], tuple(map(loops.Var, variables)))
        if compute_dtype(t.dtype) != t.dtype:
            load = loops.Cast(compute_dtype(t.dtype), load)
        element = self._named(loops.Cast(wide, load), body)
        bounds = (loops.IndexValue(to_index(e, _closed)) for e in (low, high))
        first, end = (loops.Cast(wide, e) if t.dtype.is_float else e for e in bounds)
        inside = loops.Binary("and", loops.Compare(">=", element, first), loops.Compare("<", element, end))
        body.append(loops.Require(inside, OUTSIDE))
        for var, extent in zip(reversed(variables), reversed(t.shape), strict=True):
            body = [loops.For(var, loops.Int(0), to_index(extent, _closed), tuple(body))]
        return body

    def definition(self, definition: tensor.Definition, place: _Place) -> list[loops.Stmt]:
        variables = {axis: self.fresh() for axis in definition.axes}
        for axis, var in variables.items():
            place = place.at(axis, var)
        at = tuple(loops.Var(var) for var in variables.values())
        body: list[loops.Stmt] = []
        for piece in definition.pieces:
            inner: list[loops.Stmt] = []
            values = self.values(piece.value, inner, place)
            inner += [loops.Store(self.buffers[t.name], at, v) for t, v in zip(definition.tensors, values, strict=True)]
            body.append(loops.If(to_bool(piece.guard, place.index.__getitem__), tuple(inner)))
        for var, extent in zip(reversed(variables.values()), reversed(definition.tensors[0].shape), strict=True):
            body = [loops.For(var, loops.Int(0), to_index(extent, _closed), tuple(body))]
        return body

    # ------------------------------------------------ expressions

    def value(self, e: tensor.Expr, before: list[loops.Stmt], place: _Place) -> loops.Expr:
        (found,) = self.values(e, before, place)
        return found

    def values(self, e: tensor.Expr, before: list[loops.Stmt], place: _Place) -> Values:
        """Return the components of an expression; what has to be done for them first is added to `before`."""
        match e:
            case tensor.Const(value, dtype):
                return (loops.Const(value, dtype),)
            case tensor.IndexValue(index):
                return (loops.IndexValue(to_index(index, place.index.__getitem__)),)
            case tensor.Holds(cond):
                return (to_bool(cond, place.index.__getitem__),)
            case tensor.Read(name, slots):
                at = tuple(self._slot(s, name, k, before, place) for k, s in enumerate(slots))
                return (loops.Load(self.buffers[name], at),)
            case tensor.Name(name):
                return place.values[name]
            case tensor.Unary(op, value):
                return (loops.Unary(op, self.value(value, before, place)),)
            case tensor.Binary("and" | "or" as op, lhs, rhs):
                other = tensor.Const(op == "or", bool_)
                sides = (rhs, other) if op == "and" else (other, rhs)
                return self.values(tensor.Select(lhs, *sides), before, place)
            case tensor.Binary(op, lhs, rhs):
                return (loops.Binary(op, self.value(lhs, before, place), self.value(rhs, before, place)),)
            case tensor.Compare(op, lhs, rhs):
                return (loops.Compare(op, self.value(lhs, before, place), self.value(rhs, before, place)),)
            case tensor.Select():
                return self._select(e, before, place)
            case tensor.Cast(dtype, value, saturate):
                return (loops.Cast(dtype, self.value(value, before, place), saturate),)
            case tensor.Call(fn, args):
                return (loops.Call(fn, tuple(self.value(a, before, place) for a in args)),)
            case tensor.Let(name, value, body):
                bound = tuple(self._named(v, before) for v in self.values(value, before, place))
                return self.values(body, before, place.bind([name], [bound], place.types.bind([name], [dtype_of(value, place.types)])))
            case tensor.TupleOf(items):
                return tuple(self.value(item, before, place) for item in items)
            case tensor.Project(value, position):
                return (self.values(value, before, place)[position],)
            case tensor.Reduce():
                return self._reduce(e, before, place)
            case _:
                assert_never(e)

    def _named(self, value: loops.Expr, before: list[loops.Stmt]) -> loops.Expr:
        if isinstance(value, loops.Const | loops.Name):
            return value
        name = self.fresh()
        before.append(loops.Let(name, value))
        return loops.Name(name)

    def _slot(self, slot: tensor.Slot, name: str, axis: int, before: list[loops.Stmt], place: _Place) -> loops.Index:
        if not isinstance(slot, tensor.Dynamic):
            return to_index(slot, place.index.__getitem__)
        value = self._named(self.value(slot.value, before, place), before)
        wide = loops.Cast(i64, value)
        end = loops.IndexValue(to_index(self.table[name].shape[axis], _closed))
        inside = loops.Binary("and", loops.Compare(">=", wide, loops.Const(0, i64)), loops.Compare("<", wide, end))
        before.append(loops.Require(inside, OUTSIDE))
        return loops.ValueIndex(value)

    def _select(self, e: tensor.Select, before: list[loops.Stmt], place: _Place) -> Values:
        cond = self.value(e.cond, before, place)
        first: list[loops.Stmt] = []
        second: list[loops.Stmt] = []
        then, orelse = self.values(e.then, first, place), self.values(e.orelse, second, place)
        if not first and not second:
            return tuple(loops.Select(cond, x, y) for x, y in zip(then, orelse, strict=True))
        types = dtype_of(e, place.types)
        cells = tuple(self._cell(d, before) for d in (types if isinstance(types, tuple) else (types,)))
        first += [loops.Store(c.buffer, _START, v) for c, v in zip(cells, then, strict=True)]
        second += [loops.Store(c.buffer, _START, v) for c, v in zip(cells, orelse, strict=True)]
        before.append(loops.If(cond, tuple(first), tuple(second)))
        return cells

    def _cell(self, dtype: DType, before: list[loops.Stmt]) -> loops.Load:
        name = self.fresh()
        before.append(loops.Alloc(loops.Buffer(name, dtype, (loops.Int(1),), "stack")))
        return loops.Load(name, _START)

    # ------------------------------------------------ reductions

    def _reduce(self, e: tensor.Reduce, before: list[loops.Stmt], place: _Place) -> Values:
        totals = tuple(self._cell(d, before) for d in e.reducer.dtypes)
        start = e.init or e.reducer.identity
        started = None if start else self._cell(bool_, before)
        if started is not None:
            before.append(loops.Store(started.buffer, _START, loops.Const(False, bool_)))
        for total, s in zip(totals, start or (), strict=bool(start)):
            before.append(loops.Store(total.buffer, _START, self.value(s, before, place)))
        spans = []
        for b in e.binders:
            var = self.fresh()
            spans.append((var, to_index(b.lo, place.index.__getitem__), to_index(b.hi, place.index.__getitem__)))
            place = place.at(b.name, var)
        kept: list[loops.Stmt] = []
        cond = None if e.filter is None else self.value(e.filter, kept, place)
        body = self._step(e, totals, started, place)
        kept += body if cond is None else [loops.If(cond, tuple(body))]
        nest: list[loops.Stmt] = [loops.If(to_bool(e.where, place.index.__getitem__), tuple(kept))]
        for var, lo, hi in reversed(spans):
            nest = [loops.For(var, lo, hi, tuple(nest))]
        before += nest
        return totals

    def _step(self, e: tensor.Reduce, totals: tuple[loops.Load, ...], started: loops.Load | None, place: _Place) -> list[loops.Stmt]:
        """Return the statements that combine what is there with one more point."""
        out: list[loops.Stmt] = []
        bodies = tuple(self._named(self.value(b, out, place), out) for b in e.body)
        combined: list[loops.Stmt] = []
        if e.reducer.kind:
            results: Values = (loops.Binary(tensor.OPERATIONS[e.reducer.kind], totals[0], bodies[0]),)
        else:
            names = (*e.reducer.left, *e.reducer.right)
            left = tuple(self._named(t, combined) for t in totals)
            types = place.types.bind(names, (*e.reducer.dtypes, *e.reducer.dtypes))
            inner = place.bind(names, [(v,) for v in (*left, *bodies)], types)
            results = tuple(self._named(self.value(c, combined, inner), combined) for c in e.reducer.combine)
        combined += [loops.Store(t.buffer, _START, r) for t, r in zip(totals, results, strict=True)]
        if started is None:
            return out + combined
        first = [loops.Store(t.buffer, _START, b) for t, b in zip(totals, bodies, strict=True)]
        first.append(loops.Store(started.buffer, _START, loops.Const(True, bool_)))
        return [*out, loops.If(started, tuple(combined), tuple(first))]
