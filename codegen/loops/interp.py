"""Runs a function as nodes.py describes it: one statement after the other, one element at a time. The oracle for the emitters.

It also watches memory, which makes it a checker of whoever built the IR. InternalError is raised for a read or write outside a
buffer, a read of local memory that nobody has written, a loop that runs more often than its extent, a division of an index by less
than one, and two iterations of a `parallel` loop of which one writes what the other reads or writes.

Values are Python integers and booleans, and NumPy scalars for floats, so that f32 arithmetic rounds to f32. What nodes.py leaves open
is decided as NumPy does: `//` and `%` of floats are those of `np.floor_divide` and `np.mod`; a shift by the width or more shifts
everything out. Arguments of `min` and `max` that are both zero are ordered by sign.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Never, TypeAlias, assert_never

import numpy as np

from codegen.dtypes import DType, bf16, bool_, f32, f64, i64, largest, nearest_tf32
from codegen.errors import InternalError
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
    Landed,
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
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
    Wait,
)
from codegen.loops.printer import show_expr, show_index, show_stmt

Scalar: TypeAlias = Any
"""An int, a bool, or a NumPy floating-point scalar."""

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A value and its element type."""

    dtype: DType
    scalar: Scalar


@dataclass(slots=True)
class _Memory:
    """A buffer at run time. `written` is None for parameters, which the caller has filled. `serial` numbers allocations."""

    buffer: Buffer
    array: Array
    written: Array | None
    serial: int

    def put(self, place: tuple[int, ...], scalar: Scalar) -> None:
        self.array[place] = scalar
        if self.written is not None:
            self.written[place] = True


@dataclass(slots=True)
class _Team:
    """The accesses of the iterations of one running `parallel` loop to memory that they share."""

    var: str
    iteration: int = 0
    first_private: int = 0
    writers: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    readers: dict[tuple[int, tuple[int, ...]], set[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What the names mean at a statement."""

    indices: dict[str, int]
    values: dict[str, Value]
    memory: dict[str, _Memory]

    def child(self) -> _Scope:
        return _Scope(dict(self.indices), dict(self.values), dict(self.memory))


class _Return(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(function: Function, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> int:
    """Execute `function` and return 0, or the code of the first `Require` that fails. Writes into `arrays` in place.

    Raises InternalError when the arguments do not fit the header or when the body does what the module docstring forbids."""
    if set(sizes) != set(function.sizes):
        _fail(f"sizes {sorted(sizes)} do not fit the header, which has {sorted(function.sizes)}")
    if set(arrays) != {p.name for p in function.params}:
        _fail(f"arrays {sorted(arrays)} do not fit the header, which has {sorted(p.name for p in function.params)}")
    machine = _Machine()
    scope = _Scope({name: int(value) for name, value in sizes.items()}, {}, {})
    for param in function.params:
        scope.memory[param.name] = machine.parameter(param, arrays[param.name], scope)
    try:
        with np.errstate(all="ignore"):
            machine.block(function.body, scope)
    except _Return as stop:
        return stop.code
    return 0


def evaluate(e: Expr) -> Value:
    """Return the value of `e`, which mentions no variables, names or buffers."""
    with np.errstate(all="ignore"):
        return _Machine().value(e, _Scope({}, {}, {}))


def evaluate_index(e: Index, variables: Mapping[str, int]) -> int:
    """Return the value of `e`, which reads no memory."""
    return _Machine().index(e, _Scope(dict(variables), {}, {}))


class _Machine:
    """Executes statements; remembers the parallel loops that are running and counts allocations."""

    def __init__(self) -> None:
        self._teams: list[_Team] = []
        self._serials = itertools.count()
        self._flying: list[list[tuple[_Memory, tuple[int, ...], Scalar]]] = [[]]
        """What was stored `later`, group by group: it lands as late as it may, and until then its cells cannot be read."""

    def parameter(self, buffer: Buffer, array: Array, scope: _Scope) -> _Memory:
        shape = tuple(self.index(e, scope) for e in buffer.shape)
        if array.shape != shape:
            _fail(f"array `{buffer.name}` has shape {array.shape}, not {shape}")
        if array.dtype != buffer.dtype.numpy:
            _fail(f"array `{buffer.name}` has type {array.dtype}, not {buffer.dtype}")
        return _Memory(buffer, array, None, next(self._serials))

    # ------------------------------------------------------------ statements

    def block(self, body: tuple[Stmt, ...], outer: _Scope) -> None:
        scope = outer.child()
        for s in body:
            self.stmt(s, scope)

    def stmt(self, s: Stmt, scope: _Scope) -> None:
        match s:
            case For():
                self.loop(s, scope)
            case Store(buffer, index, value):
                result = self.value(value, scope)
                memory, place = self.locate(buffer, index, scope, s)
                self.note_write(memory, place, s)
                if s.later:
                    if memory.written is not None:
                        memory.written[place] = False
                    self._flying[-1].append((memory, place, result.scalar))
                else:
                    memory.put(place, result.scalar)
            case Let(name, value):
                scope.values[name] = self.value(value, scope)
            case If(cond, then, orelse):
                self.block(then if self.value(cond, scope).scalar else orelse, scope)
            case Alloc(buffer):
                shape = tuple(self.index(e, scope) for e in buffer.shape)
                if min(shape, default=0) < 0:
                    _fail(f"`{show_stmt(s)}` has the negative shape {shape}")
                array, written = np.zeros(shape, buffer.dtype.numpy), np.zeros(shape, np.bool_)
                scope.memory[buffer.name] = _Memory(buffer, array, written, next(self._serials))
            case Prefetch() | Barrier():
                pass
            case Commit("products") | Wait(of="products"):
                pass  # what they wait for fails
            case Commit():
                self._flying.append([])
            case Wait(pending):
                landing, self._flying = self._flying[: -1 - pending], self._flying[-1 - pending :]
                for landed, place, scalar in itertools.chain(*landing):
                    landed.put(place, scalar)
            case LoadMatrix() | Mma() | Boxes() | Landed():
                _fail(f"`{show_stmt(s)}` is what threads do together, or one for all of them")
            case Require(cond, code):
                if not self.value(cond, scope).scalar:
                    raise _Return(code)
            case _:
                assert_never(s)

    def loop(self, loop: For, scope: _Scope) -> None:
        lo, hi = self.index(loop.lo, scope), self.index(loop.hi, scope)
        if loop.extent is not None and hi - lo > loop.extent:
            _fail(f"loop `{loop.var}` runs {hi - lo} times, more often than its extent {loop.extent}")
        team = _Team(loop.var)
        if loop.kind == "parallel":
            self._teams.append(team)
        for i in range(lo, hi):
            team.iteration, team.first_private = i, next(self._serials)
            inner = scope.child()
            inner.indices[loop.var] = i
            self.block(loop.body, inner)
        if loop.kind == "parallel":
            self._teams.pop()

    # ------------------------------------------------------------ memory

    def locate(self, name: str, index: tuple[Index, ...], scope: _Scope, node: Store | Load) -> tuple[_Memory, tuple[int, ...]]:
        memory = scope.memory[name]
        place = tuple([self.index(e, scope) for e in index])
        if not all(0 <= i < n for i, n in zip(place, memory.array.shape, strict=True)):
            _fail(f"`{_text(node)}` touches {name}{list(place)}, outside its shape {memory.array.shape}, where {scope.indices}")
        return memory, place

    def note_write(self, memory: _Memory, place: tuple[int, ...], node: Store) -> None:
        key = (memory.serial, place)
        for team in self._shared(memory):
            others = team.readers.get(key, set()) | {team.writers.get(key, team.iteration)}
            self._check_race(team, others, memory, place, node)
            team.writers[key] = team.iteration

    def note_read(self, memory: _Memory, place: tuple[int, ...], node: Load) -> None:
        key = (memory.serial, place)
        for team in self._shared(memory):
            self._check_race(team, {team.writers.get(key, team.iteration)}, memory, place, node)
            team.readers.setdefault(key, set()).add(team.iteration)

    def _shared(self, memory: _Memory) -> list[_Team]:
        return [team for team in self._teams if memory.serial < team.first_private]

    def _check_race(self, team: _Team, others: set[int], memory: _Memory, place: tuple[int, ...], node: Store | Load) -> None:
        for other in sorted(others - {team.iteration}):
            where = f"{memory.buffer.name}{list(place)}"
            _fail(f"`{_text(node)}` races: {where} is touched by iterations {other} and {team.iteration} of parallel `{team.var}`")

    # ------------------------------------------------------------ index expressions

    def index(self, e: Index, scope: _Scope) -> int:
        match e:
            case Int(value):
                return value
            case Var(name):
                return scope.indices[name]
            case Add(lhs, rhs):
                return self.index(lhs, scope) + self.index(rhs, scope)
            case Mul(lhs, rhs):
                return self.index(lhs, scope) * self.index(rhs, scope)
            case FloorDiv(lhs, rhs):
                return self.index(lhs, scope) // self._divisor(rhs, scope)
            case Mod(lhs, rhs):
                return self.index(lhs, scope) % self._divisor(rhs, scope)
            case Min(lhs, rhs):
                return min(self.index(lhs, scope), self.index(rhs, scope))
            case Max(lhs, rhs):
                return max(self.index(lhs, scope), self.index(rhs, scope))
            case ValueIndex(value_expr):
                return _wrap(int(self.value(value_expr, scope).scalar), i64)
            case _:
                assert_never(e)

    def _divisor(self, e: Index, scope: _Scope) -> int:
        divisor = self.index(e, scope)
        if divisor < 1:
            _fail(f"division of an index by `{show_index(e)}`, which is {divisor}")
        return divisor

    # ------------------------------------------------------------ values

    def value(self, e: Expr, scope: _Scope) -> Value:
        match e:
            case Const(value, dtype):
                return Value(dtype, _literal(value, dtype))
            case Load():
                return self.load(e, scope)
            case IndexValue(index_value):
                return Value(i64, _wrap(self.index(index_value, scope), i64))
            case Name(name):
                return scope.values[name]
            case Unary(op, operand):
                return unary(op, self.value(operand, scope))
            case Binary("and", lhs, rhs):
                return Value(bool_, self.value(lhs, scope).scalar and self.value(rhs, scope).scalar)
            case Binary("or", lhs, rhs):
                return Value(bool_, self.value(lhs, scope).scalar or self.value(rhs, scope).scalar)
            case Binary(binary_op, lhs, rhs):
                return binary(binary_op, self.value(lhs, scope), self.value(rhs, scope))
            case Compare(compare_op, lhs, rhs):
                return compare(compare_op, self.value(lhs, scope), self.value(rhs, scope))
            case Select(cond, then, orelse):
                return self.value(then if self.value(cond, scope).scalar else orelse, scope)
            case Cast(dtype, operand, saturate):
                return cast(dtype, self.value(operand, scope), saturate)
            case Call(fn, args):
                return call(fn, [self.value(arg, scope) for arg in args])
            case Fma(a, b, c):
                return fma(self.value(a, scope), self.value(b, scope), self.value(c, scope))
            case Dot():
                return self.dot(e, scope)
            case _:
                assert_never(e)

    def dot(self, e: Dot, scope: _Scope) -> Value:
        total = self.value(e.c, scope)
        exact = Fraction(0)
        special = 0.0
        for r in range(e.count):
            x, y = (self.load(Load(o.buffer, (*o.index[:-1], Add(o.index[-1], Int(r)))), scope).scalar for o in (e.a, e.b))
            product = float(x) * float(y)
            if math.isfinite(product):
                exact += Fraction(product)
            else:
                special += product
        if not total.dtype.is_float:
            return Value(total.dtype, _wrap(int(total.scalar) + int(exact), total.dtype))
        if special != 0.0 or not math.isfinite(total.scalar):
            return Value(total.dtype, _literal(float(total.scalar) + special, total.dtype))
        exact += Fraction(float(total.scalar))
        return Value(total.dtype, _nearest(exact, total.dtype) if exact else total.dtype.numpy.type(0.0))

    def load(self, e: Load, scope: _Scope) -> Value:
        memory, place = self.locate(e.buffer, e.index, scope, e)
        if memory.written is not None and not memory.written[place]:
            _fail(f"`{show_expr(e)}` reads {e.buffer}{list(place)}, which nobody has written")
        self.note_read(memory, place, e)
        return Value(memory.buffer.dtype, _scalar(memory.array[place], memory.buffer.dtype))


# ---------------------------------------------------------------- arithmetic on single values


def unary(op: str, x: Value) -> Value:
    """Return `op x`."""
    match op:
        case "neg":
            return _integer_or_float(x.dtype, -x.scalar)
        case "abs":
            return _integer_or_float(x.dtype, abs(x.scalar))
        case "not":
            return Value(bool_, not x.scalar)
        case "bitnot":
            return Value(x.dtype, _wrap(~x.scalar, x.dtype))
        case _:
            _fail(f"unknown operation {op!r}")


def binary(op: str, x: Value, y: Value) -> Value:
    """Return `x op y` for every operation but the lazy `and` and `or`."""
    if x.dtype != y.dtype:
        _fail(f"{op!r} of {x.dtype} and {y.dtype}")
    table = _FLOAT if x.dtype.is_float else _INTEGER
    if op not in table:
        _fail(f"{op!r} is not defined for {x.dtype}")
    with np.errstate(all="ignore"):
        return _integer_or_float(x.dtype, table[op](x.scalar, y.scalar, x.dtype))


def compare(op: str, x: Value, y: Value) -> Value:
    """Return the truth of `x op y`; comparisons with NaN are false, except `!=`."""
    return Value(bool_, bool(_COMPARE[op](x.scalar, y.scalar)))


def cast(dtype: DType, x: Value, saturate: bool = False) -> Value:
    """Return `x` converted to `dtype`."""
    if dtype == bool_:
        return Value(dtype, bool(x.scalar != 0))
    if dtype.is_float:
        return Value(dtype, _round(_limited(x, dtype) if saturate and dtype.bits < 32 else x, dtype))
    if x.dtype.is_float:
        return Value(dtype, _truncate(float(x.scalar), dtype))
    return Value(dtype, _clamp(int(x.scalar), dtype) if saturate else _wrap(int(x.scalar), dtype))


def call(fn: str, args: list[Value]) -> Value:
    """Return the elementary function `fn` of `args`."""
    if fn not in _CALLS:
        _fail(f"unknown function `{fn}`")
    dtype = args[0].dtype
    with np.errstate(all="ignore"):
        result = _CALLS[fn](*(arg.scalar for arg in args))
    return Value(bool_, bool(result)) if fn in ("isnan", "isinf") else Value(dtype, dtype.numpy.type(result))


def fma(a: Value, b: Value, c: Value) -> Value:
    """Return `a * b + c`, rounded once."""
    dtype = a.dtype
    x, y, z = (float(v.scalar) for v in (a, b, c))
    if not math.isfinite(z) and math.isfinite(x) and math.isfinite(y):
        return c
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        with np.errstate(all="ignore"):
            return Value(dtype, a.scalar * b.scalar + c.scalar)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        # The sum of zeros is computed exactly, sign included; of other numbers that cancel it is +0.
        with np.errstate(all="ignore"):
            zero = math.copysign(0.0, x) * math.copysign(1.0, y) + z if x == 0 or y == 0 else 0.0
        return Value(dtype, dtype.numpy.type(zero))
    return Value(dtype, _nearest(exact, dtype))


def _nearest(exact: Fraction, dtype: DType) -> Scalar:
    """Return the f32 or f64 nearest to `exact` (not zero), ties to even, overflowing to infinity."""
    digits, lowest, highest = (24, -149, 127) if dtype == f32 else (53, -1074, 1023)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    quantum = max(exponent - digits + 1, lowest)
    steps = round(size / Fraction(2) ** quantum)
    if steps.bit_length() + quantum > highest + 1:
        return dtype.numpy.type(math.inf if exact > 0 else -math.inf)
    return dtype.numpy.type(math.copysign(math.ldexp(steps, quantum), 1 if exact > 0 else -1))


def _literal(value: float | int | bool, dtype: DType) -> Scalar:
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.float64(value).astype(dtype.numpy)[()]
    return bool(value) if dtype == bool_ else int(value)


def _scalar(element: Any, dtype: DType) -> Scalar:
    if dtype.is_float:
        return element
    return bool(element) if dtype == bool_ else int(element)


def _round(x: Value, dtype: DType) -> Scalar:
    """Return `x` rounded to the nearest value of the float type `dtype`. Integers reach the narrow floats through f32."""
    with np.errstate(all="ignore"):
        if x.dtype.is_float:
            narrow = x.dtype == f64 and dtype.bits < 32
            return np.asarray(_to_odd(x.scalar) if narrow else x.scalar).astype(dtype.numpy)[()]
        exact = Fraction(int(x.scalar))
        wide = f64 if dtype == f64 else f32
        return np.asarray(_nearest(exact, wide) if exact else wide.numpy.type(0)).astype(dtype.numpy)[()]


def _limited(x: Value, dtype: DType) -> Value:
    """Return `x` in the range of the narrow float `dtype`; NaN stays."""
    limit = largest(dtype)
    wide = x if x.dtype == f64 else Value(f32, _round(x, f32))
    return Value(wide.dtype, wide.dtype.numpy.type(limit if wide.scalar > limit else -limit if wide.scalar < -limit else wide.scalar))


def _to_odd(x: Scalar) -> Scalar:
    """Return the f64 `x` as an f32, an inexact one with its last bit set, so that rounding the result once more is rounding `x` once."""
    near = np.float32(x)
    if not np.isfinite(near) or float(near) == float(x) or near.view(np.uint32) & 1:
        return near
    return np.nextafter(near, np.float32(math.copysign(math.inf, float(x) - float(near))))


def _truncate(x: float, dtype: DType) -> int:
    if math.isnan(x):
        return 0
    low, high = _limits(dtype)
    if math.isinf(x):
        return high if x > 0 else low
    return _clamp(math.trunc(x), dtype)


def _limits(dtype: DType) -> tuple[int, int]:
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    return low, low + (1 << dtype.bits) - 1


def _clamp(x: int, dtype: DType) -> int:
    low, high = _limits(dtype)
    return min(max(x, low), high)


def _wrap(x: int, dtype: DType) -> int:
    low, _ = _limits(dtype)
    return (x - low) % (1 << dtype.bits) + low


def _integer_or_float(dtype: DType, scalar: Scalar) -> Value:
    if dtype.is_float:
        return Value(dtype, dtype.numpy.type(scalar))
    return Value(dtype, bool(scalar) if dtype == bool_ else _wrap(int(scalar), dtype))


def _minimum(x: Scalar, y: Scalar, _: DType) -> Scalar:
    if np.isnan(x) or np.isnan(y):
        return x + y
    return x if x < y or (x == y and np.signbit(x)) else y


def _maximum(x: Scalar, y: Scalar, _: DType) -> Scalar:
    if np.isnan(x) or np.isnan(y):
        return x + y
    return x if x > y or (x == y and not np.signbit(x)) else y


def _shift_left(x: int, y: int, dtype: DType) -> int:
    return x << y if 0 <= y < dtype.bits else 0


def _shift_right(x: int, y: int, dtype: DType) -> int:
    return x >> (y if 0 <= y < dtype.bits else dtype.bits)


_FLOAT: Mapping[str, Callable[[Scalar, Scalar, DType], Scalar]] = {
    "+": lambda x, y, _: x + y,
    "-": lambda x, y, _: x - y,
    "*": lambda x, y, _: x * y,
    "/": lambda x, y, _: np.divide(x, y),
    "//": lambda x, y, _: np.floor_divide(x, y),
    "%": lambda x, y, _: np.mod(x, y),
    "min": _minimum,
    "max": _maximum,
}
_INTEGER: Mapping[str, Callable[[Scalar, Scalar, DType], Scalar]] = {
    "+": lambda x, y, _: x + y,
    "-": lambda x, y, _: x - y,
    "*": lambda x, y, _: x * y,
    "//": lambda x, y, _: x // y if y else 0,
    "%": lambda x, y, _: x % y if y else 0,
    "min": lambda x, y, _: min(x, y),
    "max": lambda x, y, _: max(x, y),
    "bitand": lambda x, y, _: x & y,
    "bitor": lambda x, y, _: x | y,
    "bitxor": lambda x, y, _: x ^ y,
    "shl": _shift_left,
    "shr": _shift_right,
}
_COMPARE: Mapping[str, Callable[[Scalar, Scalar], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_CALLS: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "round_bf16": lambda x: x.astype(bf16.numpy).astype(type(x)),
    "round_tf32": lambda x: nearest_tf32(np.asarray(x)),
    "rsqrt": lambda x: np.divide(type(x)(1), np.sqrt(x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": math.erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "pow": lambda x, y: np.power(np.array([x]), np.array([y]))[0],  # of two scalars NumPy takes a root, which is NaN for -inf
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "sigmoid": lambda x: np.divide(type(x)(1), type(x)(1) + np.exp(-x)),
    "isnan": np.isnan,
    "isinf": np.isinf,
}


def _text(node: Store | Load) -> str:
    return show_stmt(node) if isinstance(node, Store) else show_expr(node)


def _fail(detail: str) -> Never:
    raise InternalError("run loops", detail)
