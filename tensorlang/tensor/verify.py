"""The invariants of the tensor IR, checked after every pass. A broken one is a defect of the compiler: InternalError.

names    tensors and sizes are unique; the axes, binders and lets of one definition are unique and none of those; every use is bound
ranks    an index for every axis; one axis for every extent; several tensors of a definition have one shape
dtypes   both sides agree; a piece gives its tensor's compute dtype; no constant and no accumulator is a narrow float
scopes   shapes and ranges are over sizes, guards over axes and sizes, bounds also over earlier binders
idioms   the definitions that they name exist and are of the form that they say (`tensorlang.tensor.idioms`)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from codegen.dtypes import DType, bool_, called_dtype, compute_dtype, f64, i64, u32, u64
from polyhedral import affine
from polyhedral.expr import Cond
from polyhedral.expr import Expr as Affine
from tensorlang.diagnostics import InternalError
from tensorlang.tensor import arith
from tensorlang.tensor.idioms import refusal
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
    Piece,
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
from tensorlang.tensor.types import Type, Types, types_of
from tensorlang.tensor.walk import bound_names, tensor_table, tensors


def verify(program: Program) -> Program:
    """Return `program`; raises InternalError when it breaks an invariant."""
    _unique([*program.sizes, *(t.name for t in tensors(program))], program.name)
    sizes = frozenset(program.sizes)
    _bound(affine.names(program.context), sizes, "the context")
    for tensor in tensors(program):
        _tensor(tensor, sizes)
    made = {t.name for call in program.externs for t in call.results}
    defined = made | {t.name for d in program.definitions for t in d.tensors}
    known = {t.name for t in tensors(program)}
    for call in program.externs:
        _expect(set(call.reads) <= known, f"extern `{call.operator}` reads what is not there")
    _expect(set(program.results) <= defined, f"results {program.results} are not all defined")
    scope = _Scope(tensor_table(program), types_of(program), sizes)
    for definition in program.definitions:
        _definition(definition, scope)
    for idiom in program.idioms:
        wrong = refusal(idiom, program)
        _expect(not wrong, f"{type(idiom).__name__}: {wrong}")
    return program


@dataclass(frozen=True, slots=True)
class _Scope:
    tensors: dict[str, Tensor]
    types: Types
    indices: frozenset[str]

    def with_indices(self, names: Iterable[str]) -> _Scope:
        return replace(self, indices=self.indices | frozenset(names))

    def with_values(self, names: Iterable[str], types: Iterable[Type]) -> _Scope:
        return replace(self, types=self.types.bind(names, types))


def _expect(fact: bool, detail: str) -> None:
    if not fact:
        raise InternalError("verify tensor IR", detail)


def _unique(names: list[str], where: str) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    _expect(not twice, f"{where}: names bound more than once: {', '.join(twice)}")


def _bound(names: Iterable[str], scope: frozenset[str], where: str) -> None:
    free = sorted(set(names) - scope)
    _expect(not free, f"{where} mentions {', '.join(free)}, which nothing binds there")


def _tensor(tensor: Tensor, sizes: frozenset[str]) -> None:
    where = f"tensor `{tensor.name}`"
    for extent in (*tensor.shape, *(tensor.declared_range or ())):
        _bound(affine.names(extent), sizes, where)
    if tensor.grouping:
        _expect(sum(tensor.grouping) == len(tensor.shape), f"{where}: grouping {tensor.grouping} of {len(tensor.shape)} axes")
    if tensor.declared_range:
        _expect(tensor.dtype.is_integer or tensor.dtype.is_float, f"{where}: a declared range, but {tensor.dtype} elements")


def _definition(definition: Definition, scope: _Scope) -> None:
    first = definition.tensors[0]
    where = f"definition of `{first.name}`"
    for piece in definition.pieces:
        _unique([*definition.axes, *scope.tensors, *scope.indices, *bound_names(piece.value)], where)
    for tensor in definition.tensors:
        _expect(
            len(tensor.shape) == len(definition.axes),
            f"{where}: {len(definition.axes)} axes for `{tensor.name}` of rank {len(tensor.shape)}",
        )
        same = all(affine.same(a, b) for a, b in zip(tensor.shape, first.shape, strict=True))
        _expect(same, f"{where}: `{tensor.name}` and `{first.name}` differ in shape")
    inside = scope.with_indices(definition.axes)
    for piece in definition.pieces:
        _piece(definition, piece, inside, where)


def _piece(definition: Definition, piece: Piece, scope: _Scope, where: str) -> None:
    _bound(affine.names(piece.guard), scope.indices, f"{where}: guard")
    wanted = tuple(compute_dtype(t.dtype) for t in definition.tensors)
    got = _type(piece.value, scope)
    _expect((got if isinstance(got, tuple) else (got,)) == wanted, f"{where}: value of {_names(got)} for {_names(wanted)}")


def _names(t: Type) -> str:
    return ", ".join(map(str, t)) if isinstance(t, tuple) else str(t)


def _scalar(e: Expr, scope: _Scope) -> DType:
    t = _type(e, scope)
    if isinstance(t, tuple):
        raise InternalError("verify tensor IR", f"a tuple where one value is needed: {e}")
    return t


def _same(a: DType, b: DType, e: Expr) -> DType:
    if a != b:
        _expect(False, f"{a} and {b} meet in {e}")
    return a


def _is(a: DType, wanted: bool, what: str, e: Expr) -> DType:
    if not wanted:
        _expect(False, f"{a} where {what} is needed: {e}")
    return a


def _type(e: Expr, scope: _Scope) -> Type:
    """Return the type of `e`, having checked everything below it."""
    match e:
        case Const():
            return _const(e)
        case IndexValue(index):
            _bound(affine.names(index), scope.indices, f"{e}")
            return i64
        case Holds(cond):
            _bound(affine.names(cond), scope.indices, f"{e}")
            return bool_
        case Read():
            return _read(e, scope)
        case Name(name):
            _expect(name in scope.types.names, f"`{name}` is not bound")
            return scope.types.names[name]
        case Unary("not", value):
            dtype = _scalar(value, scope)
            return _is(dtype, dtype == bool_, "bool", e)
        case Unary("bitnot", value):
            dtype = _scalar(value, scope)
            return _is(dtype, dtype.is_integer or dtype == bool_, "an integer", e)
        case Unary(_, value):
            dtype = _scalar(value, scope)
            return _is(dtype, dtype != bool_, "a number", e)
        case Binary(op, lhs, rhs):
            return _binary(op, _same(_scalar(lhs, scope), _scalar(rhs, scope), e), e)
        case Compare(_, lhs, rhs):
            _same(_scalar(lhs, scope), _scalar(rhs, scope), e)
            return bool_
        case Select(cond, then, orelse):
            dtype = _scalar(cond, scope)
            _is(dtype, dtype == bool_, "bool", e)
            yes, no = _type(then, scope), _type(orelse, scope)
            if yes != no:
                _expect(False, f"the sides of a select are {_names(yes)} and {_names(no)}: {e}")
            return yes
        case Cast(dtype, value):
            _scalar(value, scope)
            return compute_dtype(dtype)
        case Call():
            return _call(e, scope)
        case Let(name, value, body):
            return _type(body, scope.with_values([name], [_type(value, scope)]))
        case TupleOf(items):
            return tuple(_scalar(item, scope) for item in items)
        case Project(value, position):
            parts = _type(value, scope)
            if not isinstance(parts, tuple) or not 0 <= position < len(parts):
                raise InternalError("verify tensor IR", f"component {position} of {_names(parts)}: {e}")
            return parts[position]
        case Reduce():
            return _reduce(e, scope)
        case _:
            assert_never(e)


def _const(e: Const) -> DType:
    dtype = e.dtype
    _expect(compute_dtype(dtype) == dtype, f"a constant of the narrow type {dtype}: {e}")
    if dtype.is_integer:
        low, high = arith.integer_range(dtype)
        _expect(isinstance(e.value, int) and low <= e.value <= high, f"{e.value} does not fit {dtype}")
    elif dtype == bool_:
        _expect(isinstance(e.value, bool), f"{e.value} is no bool")
    elif dtype.bits == 32 and math.isfinite(e.value):
        _expect(float(dtype.numpy.type(e.value)) == e.value, f"{e.value} does not fit {dtype}")
    return dtype


_BITS = ("bitand", "bitor", "bitxor", "shl", "shr")


def _binary(op: str, dtype: DType, e: Expr) -> DType:
    if op in ("and", "or"):
        return _is(dtype, dtype == bool_, "bool", e)
    if op in _BITS:
        return _is(dtype, dtype.is_integer or (dtype == bool_ and op.startswith("bit")), "an integer", e)
    if op == "/":
        return _is(dtype, dtype.is_float, "a float", e)
    if op in ("min", "max"):
        return dtype
    return _is(dtype, dtype != bool_, "a number", e)


def _call(e: Call, scope: _Scope) -> DType:
    _expect(e.fn in arith.FUNCTIONS, f"no elementary function `{e.fn}`")
    _expect(len(e.args) == arith.ARITY.get(e.fn, 1), f"`{e.fn}` of {len(e.args)} arguments")
    dtypes = [_scalar(a, scope) for a in e.args]
    for dtype in dtypes:
        taken = dtype in (u32, u64) if e.fn == "from_bits" else dtype.is_float
        _is(_same(dtype, dtypes[0], e), taken, "u32 or u64" if e.fn == "from_bits" else "a float", e)
    _is(dtypes[0], e.fn != "round_tf32" or dtypes[0] != f64, "an f32", e)
    return called_dtype(e.fn, dtypes[0])


def _read(e: Read, scope: _Scope) -> DType:
    _expect(e.tensor in scope.tensors, f"read of `{e.tensor}`, which is no tensor")
    rank = len(scope.tensors[e.tensor].shape)
    _expect(len(e.index) == rank, f"{len(e.index)} indices for `{e.tensor}` of rank {rank}")
    for slot in e.index:
        _slot(slot, scope, e)
    return compute_dtype(scope.tensors[e.tensor].dtype)


def _slot(slot: Slot, scope: _Scope, e: Read) -> None:
    if isinstance(slot, Dynamic):
        dtype = _scalar(slot.value, scope)
        _is(dtype, dtype.is_integer, "an integer index", e)
    parts: list[Affine] = [b for b in (slot.lo, slot.hi) if b is not None] if isinstance(slot, Dynamic) else [slot]
    for part in parts:
        _bound(affine.names(part), scope.indices, f"index of `{e.tensor}`")


def _reduce(e: Reduce, scope: _Scope) -> Type:
    _reducer(e.reducer, scope)
    inside = scope
    for binder in e.binders:
        _bound([*affine.names(binder.lo), *affine.names(binder.hi)], inside.indices, f"range of `{binder.name}`")
        inside = inside.with_indices([binder.name])
    _condition(e.where, inside, "condition of a reduction")
    if e.filter is not None:
        dtype = _scalar(e.filter, inside)
        _is(dtype, dtype == bool_, "bool", e)
    bodies = tuple(_scalar(b, inside) for b in e.body)
    _expect(bodies == e.reducer.dtypes, f"`{e.reducer.name}` of {_names(e.reducer.dtypes)} over a body of {_names(bodies)}")
    if e.init is not None:
        starts = tuple(_scalar(s, scope) for s in e.init)
        _expect(starts == e.reducer.dtypes, f"`{e.reducer.name}` of {_names(e.reducer.dtypes)} from {_names(starts)}")
    return bodies if len(bodies) > 1 else bodies[0]


def _condition(cond: Cond, scope: _Scope, where: str) -> None:
    _bound(affine.names(cond), scope.indices, where)


def _reducer(reducer: Reducer, scope: _Scope) -> None:
    where = f"reducer `{reducer.name}`"
    count = len(reducer.dtypes)
    _expect(len(reducer.left) == len(reducer.right) == len(reducer.combine) == count > 0, f"{where}: components do not match")
    _expect(all(compute_dtype(d) == d for d in reducer.dtypes), f"{where}: an accumulator of a narrow type")
    closed = _Scope({}, Types({}), frozenset())
    inside = closed.with_values((*reducer.left, *reducer.right), (*reducer.dtypes, *reducer.dtypes))
    combined = tuple(_scalar(c, inside) for c in reducer.combine)
    _expect(combined == reducer.dtypes, f"{where}: combines {_names(reducer.dtypes)} to {_names(combined)}")
    if reducer.identity is not None:
        starts = tuple(_scalar(i, closed) for i in reducer.identity)
        _expect(starts == reducer.dtypes, f"{where}: identity of {_names(starts)}")
