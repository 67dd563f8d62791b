"""Programs of the language as trees of their own, how they are written, and what they compute, element by element.

Nothing here knows the compiler: the tree is drawn by `drawing`, written down by `text`, and evaluated by `Evaluation` with Python's
numbers, one element at a time and each only when somebody asks for it. So the order of recurrences is nobody's concern, and `if` takes
one side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Number: TypeAlias = int | float | bool

# ---------------------------------------------------------------- indices


@dataclass(frozen=True)
class Int:
    value: int


@dataclass(frozen=True)
class Var:
    """An index, or a size."""

    name: str


@dataclass(frozen=True)
class Arith:
    """Arithmetic of indices: `+ - * // %`; the right side of the last three is a number."""

    op: str
    left: Index
    right: Index


@dataclass(frozen=True)
class Data:
    """An index that is read."""

    read: Read


Index: TypeAlias = Int | Var | Arith | Data

# ---------------------------------------------------------------- values, each with the type it is computed in


@dataclass(frozen=True)
class Const:
    value: Number
    dtype: str


@dataclass(frozen=True)
class Read:
    """`mode`: what lies outside: a word, a value, or None where nothing does."""

    tensor: str
    index: tuple[Index, ...]
    dtype: str
    mode: str | Value | None = None


@dataclass(frozen=True)
class Bin:
    """`op`: `+ - * / // % min max`."""

    op: str
    left: Value
    right: Value
    dtype: str


@dataclass(frozen=True)
class Un:
    """`op`: `-` or `abs`."""

    op: str
    value: Value
    dtype: str


@dataclass(frozen=True)
class If:
    cond: Cond
    then: Value
    other: Value
    dtype: str


@dataclass(frozen=True)
class Let:
    name: str
    value: Value
    body: Value
    dtype: str


@dataclass(frozen=True)
class Bound:
    name: str
    dtype: str


@dataclass(frozen=True)
class Cast:
    value: Value
    dtype: str


@dataclass(frozen=True)
class FromIndex:
    index: Index
    dtype: str


@dataclass(frozen=True)
class Reduce:
    """`binders`: name, first, end. `body` is a condition for `any` and `all`. `argmax` and `argmin` give the only binder's value. Two of
    `ends.0` and `ends.1` side by side are the two values of one reduction. The declared reducers are in REDUCERS."""

    reducer: str
    binders: tuple[tuple[str, Index, Index], ...]
    filters: tuple[Cond, ...]
    start: Value | None
    body: Value | Cond
    dtype: str


Value: TypeAlias = Const | Read | Bin | Un | If | Let | Bound | Cast | FromIndex | Reduce

# ---------------------------------------------------------------- conditions


@dataclass(frozen=True)
class Relation:
    """A comparison of indices."""

    op: str
    left: Index
    right: Index


@dataclass(frozen=True)
class Compare:
    """A comparison of values."""

    op: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Both:
    """`op`: `and` or `or`."""

    op: str
    left: Cond
    right: Cond


@dataclass(frozen=True)
class Not:
    cond: Cond


@dataclass(frozen=True)
class Truth:
    """A value of type bool."""

    value: Value


Cond: TypeAlias = Relation | Compare | Both | Not | Truth

# ---------------------------------------------------------------- programs


@dataclass(frozen=True)
class Slot:
    """Where a clause writes: `stride * index + shift`, or `shift` where there is no index."""

    index: str | None
    shift: Index = Int(0)
    stride: int = 1


@dataclass(frozen=True)
class Clause:
    """`ranges`: of its indices, written out where `spelled`."""

    slots: tuple[Slot, ...]
    values: tuple[Value | Cond, ...]
    ranges: tuple[tuple[str, Index, Index], ...]
    conds: tuple[Cond, ...] = ()
    otherwise: bool = False
    spelled: bool = True


@dataclass(frozen=True)
class Define:
    """Tensors defined together. Where `declared`, elements are rounded to their type."""

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shape: tuple[Index, ...]
    clauses: tuple[Clause, ...]
    declared: bool


@dataclass(frozen=True)
class Call:
    """A tensor that another operator computes of one. `operator` is a key of OPERATORS."""

    name: str
    operator: str
    argument: str
    dtype: str
    shape: tuple[Index, ...]


@dataclass(frozen=True)
class Param:
    """`within`: the declared range of its values."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    within: tuple[Index, Index] | None = None


@dataclass(frozen=True)
class Program:
    params: tuple[Param, ...]
    results: tuple[str, ...]
    defines: tuple[Define | Call, ...]
    mode: str = ""
    where: tuple[Cond, ...] = ()


OPERATORS: dict[str, str] = {
    "rev": "op rev[T](x: T[D.., N]) -> (y: T[D.., N]) {\n    y[d.., j] = x[d.., N - 1 - j]\n}\n",
    "rows": "op rows[T: num](x: T[D.., N]) -> (y: T[D..]) {\n    y[d..] = sum(j) x[d.., j]\n}\n",
    "swap": "op swap[T](x: T[A, B, D..]) -> (y: T[B, A, D..]) {\n    y[b, a, d..] = x[a, b, d..]\n}\n",
    "pad": "op pad[T: num](x: T[D..]) -> (y: T[(D + 2)..]) {\n    y[d..] = x[(d - 1).. | 3]\n}\n",
    "most": "op most[T: num](x: T[N, D..]) -> (y: T[D..]) {\n    y[d..] = max(j) x[j, d..]\n}\n",
}


REDUCERS: dict[str, str] = {
    "ends": "reducer ends (a, b) (c, d) from (highest, lowest) = (min(a, c), max(b, d))\n",
    "less": "reducer less (a, n) (b, m) from (0, 0) = (a + b, n + m)\n    lift v = (v, 1)\n    yield (s, n) = s - n\n",
}
"""Reducers of tuples: the least of the first and the greatest of the second values; the sum of the terms less their number."""


def called_shape(operator: str, shape: tuple[Index, ...]) -> tuple[Index, ...]:
    match operator:
        case "rows":
            return shape[:-1]
        case "most":
            return shape[1:]
        case "swap":
            return (shape[1], shape[0], *shape[2:])
        case "pad":
            return tuple(Arith("+", n, Int(2)) for n in shape)
        case _:
            return shape


# ---------------------------------------------------------------- text


def text(program: Program) -> str:
    """Return the program as a file of the language; its operator is called `f`."""
    helpers = [REDUCERS[name] for name in sorted({n.split(".")[0] for n in _reducers(program.defines)} & REDUCERS.keys())]
    helpers += [OPERATORS[name] for name in sorted({d.operator for d in program.defines if isinstance(d, Call)})]
    table = {n: d for d in program.defines for n in ((d.name,) if isinstance(d, Call) else d.names)}
    params = ", ".join(f"{p.name}: {p.dtype}[{_list(p.shape)}]{_within(p)}" for p in program.params)
    results = []
    for name in program.results:
        d = table[name]
        dtype = d.dtype if isinstance(d, Call) else d.dtypes[d.names.index(name)]
        results.append(f"{name}: {dtype}[{_list(d.shape)}]")
    where = f" where {', '.join(map(cond, program.where))}" if program.where else ""
    lines = [f"    {line}" for d in program.defines for line in _define(d)]
    head = f"{program.mode} op" if program.mode else "op"
    return "".join(helpers) + f"{head} f({params}) -> ({', '.join(results)}){where} {{\n" + "\n".join(lines) + "\n}\n"


def batched(program: Program) -> Program:
    """Return the program for each place along a pack of axes: every tensor has axes `Outer..` first, and every element is met at
    `outer..`. What it means at each place along them is what `program` means. `program` calls no operators."""
    made = _batched(program)
    assert isinstance(made, Program)
    return made


def _batched(node: Any) -> Any:
    if isinstance(node, tuple):
        return tuple(map(_batched, node))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    made = replace(node, **{f.name: _batched(getattr(node, f.name)) for f in fields(node)})
    match made:
        case Read():
            return replace(made, index=(Var("outer.."), *made.index))
        case Clause():
            return replace(made, slots=(Slot("outer.."), *made.slots))
        case Define() | Param():
            return replace(made, shape=(Var("Outer.."), *made.shape))
        case _:
            return made


def resized(node: Any, size: str, extent: Index) -> Any:
    """Return a program, or a part of one, with `extent` wherever it says a size."""
    if node == Var(size):
        return extent
    if isinstance(node, tuple):
        return tuple(resized(part, size, extent) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    return replace(node, **{f.name: resized(getattr(node, f.name), size, extent) for f in fields(node)})


def _within(p: Param) -> str:
    return f" in {index(p.within[0])}..{index(p.within[1])}" if p.within else ""


def _define(d: Define | Call) -> Iterator[str]:
    if isinstance(d, Call):
        yield f"{d.name} = {d.operator}({d.argument})"
        return
    for c in d.clauses:
        slots = ", ".join(map(_slot, c.slots))
        targets = ", ".join(f"{name}[{slots}]" if slots else name for name in d.names)
        values = [cond(v) if is_cond(v) else value(v) for v in c.values]
        ranges = [f"{n} in {index(lo)}..{index(hi)}" for n, lo, hi in c.ranges] if c.spelled else []
        tail = ", ".join([*ranges, *map(cond, c.conds)])
        end = " otherwise" if c.otherwise else f" for {tail}" if tail else ""
        body = values[0] if len(values) == 1 else _both_ends(c) or f"({', '.join(values)})"
        yield f"{targets} = {body}{end}"


def _both_ends(c: Clause) -> str:
    """Return the one reduction that gives both values of a clause, "" where they are none."""
    match c.values:
        case (Reduce("ends.0", binders, filters, None, first), Reduce("ends.1", again, same, None, second)) if (binders, filters) == (
            again,
            same,
        ):
            return _reduction("ends", binders, filters, None, f"{value(first)}, {value(second)}")
        case _:
            return ""


def _reducers(node: Any) -> Iterator[str]:
    if isinstance(node, Reduce):
        yield node.reducer
    for inner in node if isinstance(node, tuple) else [getattr(node, f.name) for f in fields(node)] if is_dataclass(node) else ():
        yield from _reducers(inner)


def _reduction(
    reducer: str, binders: tuple[tuple[str, Index, Index], ...], filters: tuple[Cond, ...], start: Value | None, body: str
) -> str:
    ranges = [f"{n} in {index(lo)}..{index(hi)}" for n, lo, hi in binders]
    words = [*ranges, *map(cond, filters), *([f"from {value(start)}"] if start is not None else [])]
    return f"({reducer}({', '.join(words)}) ({body}))"


def _slot(s: Slot) -> str:
    if s.index is None:
        return index(s.shift)
    plain = s.index if s.stride == 1 else f"{s.stride}*{s.index}"
    return plain if s.shift == Int(0) else f"{plain} + {index(s.shift)}"


def _list(shape: tuple[Index, ...]) -> str:
    return ", ".join(map(index, shape))


def index(e: Index) -> str:
    match e:
        case Int(n):
            return str(n) if n >= 0 else f"({n})"
        case Var(name):
            return name
        case Arith(op, left, right):
            return f"({index(left)} {op} {index(right)})"
        case Data(read):
            return value(read)


def cond(c: Any) -> str:
    match c:
        case Relation(op, left, right):
            return f"({index(left)} {op} {index(right)})"
        case Compare(op, left, right):
            return f"({value(left)} {op} {value(right)})"
        case Both(op, left, right):
            return f"({cond(left)} {op} {cond(right)})"
        case Not(inner):
            return f"(not {cond(inner)})"
        case Truth(inner):
            return value(inner)
    raise TypeError(c)


def is_cond(v: object) -> bool:
    return isinstance(v, (Relation, Compare, Both, Not, Truth))


def value(v: Any) -> str:
    match v:
        case Const(n, dtype):
            return f"{dtype}({n})" if n >= 0 else f"(-{dtype}({-n}))"
        case Read(tensor, at, _, mode):
            if not at:
                return tensor
            end = "" if mode is None else f" | {mode if isinstance(mode, str) else value(mode)}"
            return f"{tensor}[{_list(at)}{end}]"
        case Bin(op, left, right):
            return f"{op}({value(left)}, {value(right)})" if op in ("min", "max") else f"({value(left)} {op} {value(right)})"
        case Un(op, inner):
            return f"abs({value(inner)})" if op == "abs" else f"(-{value(inner)})"
        case If(c, then, other):
            return f"(if {cond(c)} then {value(then)} else {value(other)})"
        case Let(name, bound, body):
            return f"(let {name} = {value(bound)} in {value(body)})"
        case Bound(name):
            return name
        case Cast(inner, dtype):
            return f"{dtype}({value(inner)})"
        case FromIndex(at, dtype):
            return f"{dtype}({index(at)})"
        case Reduce(reducer, binders, filters, start, body):
            return _reduction(reducer, binders, filters, start, cond(body) if is_cond(body) else value(body))
    raise TypeError(v)


# ---------------------------------------------------------------- numbers


def numpy_type(dtype: str) -> np.dtype[Any]:
    return np.dtype(_NUMPY.get(dtype, dtype))


_NUMPY: dict[str, Any] = {
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "bool": np.bool_,
}


def is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))


def limits(dtype: str) -> tuple[Number, Number]:
    """Return the least and the greatest value of a type."""
    if is_float(dtype):
        return float("-inf"), float("inf")
    bits = int(dtype[1:])
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wrapped(n: int, dtype: str) -> int:
    low, high = limits(dtype)
    return (n - int(low)) % (int(high) - int(low) + 1) + int(low)


def rounded(x: Number, dtype: str) -> Number:
    """Return the value of type `dtype` nearest to a number of a float type that is as wide as its arithmetic."""
    if dtype == "f64":
        return float(x)
    narrow = np.float32(x)
    return float(narrow) if dtype == "f32" else float(narrow.astype(numpy_type(dtype)))


def converted(x: Number, dtype: str) -> Number:
    """Return what a cast makes of a number."""
    if is_float(dtype):
        if isinstance(x, int) and dtype == "f32":
            return float(np.asarray(x).astype(np.float32))
        return rounded(float(x), dtype)
    if isinstance(x, float):
        if x != x:
            return 0
        low, high = limits(dtype)
        return int(low) if x <= low else int(high) if x >= high else int(x)
    return wrapped(int(x), dtype)


class Outside(Exception):
    """A read that depends on data is not inside its tensor."""


class TooMuch(Exception):
    """More steps than an evaluation may take."""


STEPS = 400_000


@dataclass
class Evaluation:
    """The elements of a program's tensors for some sizes and arrays. `inexact`: whether a float has been rounded in a way that depends on
    the order of sums."""

    program: Program
    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]
    inexact: bool = False
    steps: int = 0
    _known: dict[tuple[str, tuple[int, ...]], Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._made = {n: d for d in self.program.defines for n in ((d.name,) if isinstance(d, Call) else d.names)}
        self._params = {p.name: p for p in self.program.params}
        self._mode = self.program.mode

    def array(self, name: str) -> Array:
        """Return a tensor as a whole. Raises Outside."""
        shape = self.shape(name)
        out = np.empty(shape, numpy_type(self.dtype(name)))
        for at in np.ndindex(*shape):
            out[at] = self.element(name, at)
        return out

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self._params:
            return self.arrays[name].shape
        return tuple(max(0, self.index(n, {})) for n in self._made[name].shape)

    def dtype(self, name: str) -> str:
        d = self._made[name]
        if isinstance(d, Call):
            return d.dtype
        dtype = d.dtypes[d.names.index(name)]
        return dtype if d.declared else computed(dtype)

    def element(self, name: str, at: tuple[int, ...]) -> Number:
        if name in self._params:
            found = self.arrays[name][at]
            return bool(found) if found.dtype == np.bool_ else int(found) if found.dtype.kind in "iu" else float(found)
        key = name, at
        if key not in self._known:
            d = self._made[name]
            if isinstance(d, Call):
                self._known[key] = self._called(d, at)
            else:
                self._define(d, at)
        return self._known[key]

    def _define(self, d: Define, at: tuple[int, ...]) -> None:
        for clause in d.clauses:
            env = self._matches(clause, at)
            if env is None:
                continue
            for name, dtype, v in zip(d.names, d.dtypes, clause.values, strict=True):
                found: Number = self.holds(v, env) if is_cond(v) else self.value(v, env)
                stored = rounded(found, dtype) if d.declared and is_float(dtype) else found
                self._known[name, at] = stored
            return
        raise AssertionError(f"{d.names[0]}{list(at)} is not defined")

    def _matches(self, clause: Clause, at: tuple[int, ...]) -> dict[str, Any] | None:
        env: dict[str, Any] = {}
        for slot, position in zip(clause.slots, at, strict=True):
            rest = position - self.index(slot.shift, {})
            if slot.index is None:
                if rest:
                    return None
                continue
            if rest % slot.stride:
                return None
            env[slot.index] = rest // slot.stride
        inside = all(self.index(lo, env) <= env[n] < self.index(hi, env) for n, lo, hi in clause.ranges)
        return env if inside and all(self.holds(c, env) for c in clause.conds) else None

    def _called(self, d: Call, at: tuple[int, ...]) -> Number:
        shape = self.shape(d.argument)

        def get(*at: int) -> Number:
            return self.element(d.argument, at)

        dtype = computed(d.dtype)
        match d.operator:
            case "rev":
                return get(*at[:-1], shape[-1] - 1 - at[-1])
            case "swap":
                return get(at[1], at[0], *at[2:])
            case "pad":
                inner = tuple(i - 1 for i in at)
                return get(*inner) if all(0 <= i < n for i, n in zip(inner, shape, strict=True)) else converted(3, dtype)
            case "rows":
                terms = [get(*at, j) for j in range(shape[-1])]
                total = self._folded("sum", dtype, None, terms)
            case _:
                total = self._folded("max", dtype, None, [get(j, *at) for j in range(shape[0])])
        return rounded(total, d.dtype) if is_float(d.dtype) else total

    # ---- indices and conditions

    def index(self, e: Index, env: Mapping[str, Any]) -> int:
        match e:
            case Int(n):
                return n
            case Var(name):
                return int(env[name]) if name in env else self.sizes[name]
            case Arith(op, left, right):
                a, b = self.index(left, env), self.index(right, env)
                return {"+": a + b, "-": a - b, "*": a * b}[op] if op in "+-*" else a // b if op == "//" else a % b
            case Data(read):
                return wrapped(int(self.value(read, env)), "i64")

    def holds(self, c: Any, env: Mapping[str, Any]) -> bool:
        match c:
            case Relation(op, left, right):
                return _COMPARE[op](self._compared(left, env), self._compared(right, env))
            case Compare(op, left, right):
                return _COMPARE[op](self.value(left, env), self.value(right, env))
            case Both("and", left, right):
                return self.holds(left, env) and self.holds(right, env)
            case Both(_, left, right):
                return self.holds(left, env) or self.holds(right, env)
            case Not(inner):
                return not self.holds(inner, env)
            case Truth(inner):
                return bool(self.value(inner, env))
        raise TypeError(c)

    def _compared(self, e: Index, env: Mapping[str, Any]) -> int:
        """Return what a side of a comparison is: of what is read its value, before it is an index of 64 bits with a sign."""
        return int(self.value(e.read, env)) if isinstance(e, Data) else self.index(e, env)

    # ---- values

    def value(self, v: Any, env: Mapping[str, Any]) -> Number:
        self.steps += 1
        if self.steps > STEPS:
            raise TooMuch
        match v:
            case Const(n, dtype):
                return converted(n, dtype)
            case Read():
                return self._read(v, env)
            case Bin(op, left, right, dtype):
                return self.arithmetic(op, self.value(left, env), self.value(right, env), computed(dtype))
            case Un("abs", inner, dtype):
                x = abs(self.value(inner, env))
                return x if is_float(dtype) else wrapped(int(x), dtype)
            case Un(_, inner, dtype):
                x = self.value(inner, env)
                return -x if is_float(dtype) else wrapped(-int(x), dtype)
            case If(c, then, other):
                return self.value(then if self.holds(c, env) else other, env)
            case Let(name, bound, body):
                return self.value(body, {**env, name: self.value(bound, env)})
            case Bound(name):
                found: Number = env[name]
                return found
            case Cast(inner, dtype):
                return converted(self.value(inner, env), dtype)
            case FromIndex(at, dtype):
                return converted(self.index(at, env), dtype)
            case Reduce():
                return self._reduce(v, env)
        raise TypeError(v)

    def _read(self, v: Read, env: Mapping[str, Any]) -> Number:
        at = [self.index(e, env) for e in v.index]
        shape = self.shape(v.tensor)
        if any(not 0 <= i < n for i, n in zip(at, shape, strict=True)):
            match v.mode:
                case "clamp":
                    at = [max(min(i, n - 1), 0) for i, n in zip(at, shape, strict=True)]
                case "wrap":
                    at = [i % n if n else i for i, n in zip(at, shape, strict=True)]
                case "reflect":
                    at = [_mirrored(i, n) for i, n in zip(at, shape, strict=True)]
                case None | "skip":
                    raise Outside(f"{v.tensor}{at}")
                case other:
                    return self.value(other, env)
            if any(not 0 <= i < n for i, n in zip(at, shape, strict=True)):
                raise Outside(f"{v.tensor}{at}")
        return self.element(v.tensor, tuple(at))

    def _reduce(self, v: Reduce, env: Mapping[str, Any]) -> Number:
        dtype = computed(v.dtype)
        terms: list[Number] = []
        places: list[int] = []
        for inner in self._terms(v.binders, env):
            if all(self.holds(c, inner) for c in v.filters) and not self._skipped(v.body, inner):
                terms.append(self.holds(v.body, inner) if is_cond(v.body) else self.value(v.body, inner))
                places.append(inner[v.binders[0][0]])
        if v.reducer in ("argmax", "argmin"):
            return _best(v.reducer, terms, places)
        return self._folded(v.reducer, dtype, None if v.start is None else self.value(v.start, env), terms)

    def _terms(self, binders: tuple[tuple[str, Index, Index], ...], env: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if not binders:
            yield env
            return
        (name, low, high), *rest = binders
        for k in range(self.index(low, env), self.index(high, env)):
            self.steps += 1
            yield from self._terms(tuple(rest), {**env, name: k})

    def _skipped(self, body: object, env: Mapping[str, Any]) -> bool:
        """Tell whether a read marked `skip` of this reduction's own is outside. Drawn bodies have them on the left of products alone."""
        match body:
            case Read(tensor, at, _, "skip"):
                return any(not 0 <= self.index(i, env) < n for i, n in zip(at, self.shape(tensor), strict=True))
            case Bin(_, left, _):
                return self._skipped(left, env)
            case _:
                return False

    def _folded(self, reducer: str, dtype: str, start: Number | None, terms: list[Number]) -> Number:
        if reducer in ("any", "all"):
            return any(terms) if reducer == "any" else all(terms)
        if reducer in ("first", "last"):
            whole = [*([start] if start is not None else []), *terms]
            return whole[0] if reducer == "first" else whole[-1]
        if reducer in ("mean", "less"):
            total = self._folded("sum", dtype, None, terms)
            return self.arithmetic("/" if reducer == "mean" else "-", total, converted(len(terms), dtype), dtype)
        reducer = {"ends.0": "min", "ends.1": "max"}.get(reducer, reducer)
        low, high = limits(dtype)
        identity = {"sum": converted(0, dtype), "prod": converted(1, dtype), "min": high, "max": low}[reducer]
        out = identity if start is None else start
        op = {"sum": "+", "prod": "*"}.get(reducer, reducer)
        for term in terms:
            out = self.arithmetic(op, out, term, dtype)
        return out

    def arithmetic(self, op: str, a: Any, b: Any, dtype: str) -> Number:
        if op in ("min", "max"):
            return _least_or_most(op, a, b)
        if is_float(dtype):
            exact = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: _divided(a, b)}[op]()
            if abs(exact) > (2**24 if dtype == "f32" else 2**53) or op == "/":
                self.inexact = True
            return rounded(exact, dtype)
        if op in ("//", "%"):
            return 0 if b == 0 else wrapped(a // b if op == "//" else a % b, dtype)
        return wrapped({"+": a + b, "-": a - b, "*": a * b}[op], dtype)


def computed(dtype: str) -> str:
    """Return the type in which values of a type are computed."""
    return "f32" if is_float(dtype) and dtype != "f64" else dtype


def _mirrored(i: int, n: int) -> int:
    if n <= 1:
        return 0 if n else i
    k = i % (2 * (n - 1))
    return min(k, 2 * (n - 1) - k)


def _divided(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def _least_or_most(op: str, a: Any, b: Any) -> Number:
    """Return the lesser or the greater: NaN if either is, and of two zeros the negative one is less."""
    if a != a or b != b:
        return float("nan")
    if a == b == 0 and isinstance(a, float):
        first_less = np.signbit(a)
        return a if first_less == (op == "min") else b
    less: Number = min(a, b) if op == "min" else max(a, b)
    return less


def _best(reducer: str, terms: list[Any], places: list[int]) -> int:
    """Return the place of the greatest or least term: NaN is that, and the lowest place wins."""
    for term, place in zip(terms, places, strict=True):
        if term != term:
            return place
    best = max(terms) if reducer == "argmax" else min(terms)
    return places[terms.index(best)]


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}

# ---------------------------------------------------------------- cutting down


def simpler(node: Any) -> Iterator[Any]:
    """Yield trees with one value, condition or index of `node` made simpler, those near the root first."""
    yield from _roots(node)
    if isinstance(node, tuple):
        for k, item in enumerate(node):
            for smaller in simpler(item):
                yield (*node[:k], smaller, *node[k + 1 :])
    elif is_dataclass(node) and not isinstance(node, type):
        for f in fields(node):
            inner = getattr(node, f.name)
            if isinstance(inner, tuple) or is_dataclass(inner):
                for smaller in simpler(inner):
                    yield replace(node, **{f.name: smaller})


def _roots(node: Any) -> Iterator[Any]:
    """Yield what may stand in the place of a node itself."""
    match node:
        case Const(n, dtype):
            if n not in (0, 1):
                yield Const(1, dtype)
        case Bin() | Un() | If() | Let() | Cast() | FromIndex() | Reduce() | Read():
            for f in fields(node):
                inner = getattr(node, f.name)
                if getattr(inner, "dtype", None) == node.dtype and not is_cond(inner):
                    yield inner
            if node.dtype != "bool" and not (isinstance(node, Read) and node.mode is None):
                yield Const(1, node.dtype)
            if isinstance(node, Reduce):
                for k in range(len(node.filters)):
                    yield replace(node, filters=(*node.filters[:k], *node.filters[k + 1 :]))
                if node.start is not None and node.reducer not in ("first", "last"):
                    yield replace(node, start=None)
        case Both(_, left, right):
            yield left
            yield right
        case Not(inner):
            yield inner
        case Arith(_, left, right):
            yield left
            yield right
        case _:
            return
