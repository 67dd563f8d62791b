"""Terms: what a value was computed from, instead of the value. The same term is the same object.

    term ::= const bits | leaf x[3, 1] | hole | op term*            each of an element type

`Terms` makes them, on constants by arithmetic, and brings what is equal bit for bit to one form:

    a - b = a + -b      (-a) * b = -(a * b)      a + b = b + a      a * 1 = a      a + -0.0 = a      a > b = b < a
    min(a, +inf) = a    min(a, a) = a            f16(f32(a: f16)) = a              i32(i16(a: i8)) = i32(a)

A NaN is a NaN whatever its bits. Nothing that rounds differently is brought together here; what an equation allows beyond is said by
nodes that only equations have (`sum`, `prod`: additions and multiplications that may be regrouped), and decided by `matching`.

Every term has a *key*, its value in a field of numbers modulo a prime, where leaves are random and what is no sum or product of terms is a
hash of them (Schwartz 1980, Zippel 1979): two terms that are the same sums of products have the same key, and others as good as never. A
float zero is 0 where it is added, and a number of its own where it is multiplied.

Leaves have a number, too, a *concrete value*: where data decides (an index, a condition of a statement) these do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from codegen.dtypes import DType, bool_, called_dtype, extreme, f32, f64, holds, limits
from codegen.loops import scalars
from codegen.loops.nodes import Const
from codegen.loops.scalars import Scalar, Value

PRIME: Final = (1 << 61) - 1
COMPARISONS = frozenset(("<", "<=", "==", "!="))
COMMUTATIVE: Final = frozenset(("+", "*", "min", "max", "and", "or", "bitand", "bitor", "bitxor", "==", "!="))
EXACT_CALLS: Final = frozenset(("floor", "ceil", "trunc", "round", "round_tf32", "sqrt", "isnan", "isinf", "bits", "from_bits"))
"""Functions whose results on constants are the same wherever they are computed."""
IDEMPOTENT: Final = frozenset(("min", "max", "and", "or"))
"""Operations that may be regrouped and repeated without changing a bit."""


class Term:
    """A node; equal terms of one `Terms` are one object. `payload`: bits of a constant, name of a leaf; `origin`: the operation that a
    constant is the result of, if any."""

    __slots__ = ("args", "concrete", "dtype", "exact", "key", "op", "origin", "payload", "serial")

    def __init__(self, serial: int, op: str, dtype: DType, args: tuple[Term, ...], payload: str, origin: Term | None) -> None:
        self.serial, self.op, self.dtype, self.args, self.payload, self.origin = serial, op, dtype, args, payload, origin
        self.key: int | None = None
        self.concrete: Scalar = None
        self.exact: Value | None = None

    def __repr__(self) -> str:
        return show(self)


def leaves_of(*terms: Term, without: set[int] | None = None) -> set[int]:
    """Return the leaves that terms are computed from, by their serial numbers, but for those below what is in `without`, to which all that
    is looked at is added."""
    return {at.serial for at in terms_below(*terms, without=without) if at.op == "leaf"}


def terms_below(*terms: Term, without: set[int] | None = None) -> list[Term]:
    """Return terms and all that they are computed from, each once, but for those below what is in `without`, as `leaves_of` does."""
    seen = set() if without is None else without
    found, pending = list[Term](), [*terms]
    while pending:
        at = pending.pop()
        if at.serial not in seen:
            seen.add(at.serial)
            found.append(at)
            pending += at.args if at.origin is None else (at.origin,)
    return found


def comparison(t: Term) -> tuple[object, ...]:
    """Return what two comparisons share that are the same, or of which one is the opposite of the other."""
    (x, y), op = map(key, t.args), t.op
    if op == "<=" and not t.args[0].dtype.is_float:
        op, x, y = "<", y, x
    return (op, *(sorted((x, y)) if op in COMMUTATIVE else (x, y)))


class Exceeded(Exception):
    """More operations than were allowed."""


class Terms:
    """Makes terms, at most `budget` operations of them. `compared` and `chosen` remember comparisons, and what was selected by;
    concrete values decide that where it `decides`."""

    def __init__(self, budget: int = 1 << 62, *, decides: bool = False) -> None:
        self.left = budget
        self.decides = decides
        self.compared: set[tuple[object, ...]] = set()
        self.chosen: dict[int, Term] = {}
        self._table: dict[tuple[object, ...], Term] = {}
        self.hole = self._made("hole", bool_, (), "")
        """Where nothing was written, or nothing is read."""

    def spend(self) -> None:
        """Count an operation. Raises Exceeded when there were enough."""
        self.left -= 1
        if self.left < 0:
            raise Exceeded

    def _made(self, op: str, dtype: DType, args: tuple[Term, ...], payload: str = "", origin: Term | None = None) -> Term:
        at = (op, dtype.name, payload, origin and origin.serial, *[a.serial for a in args])
        found = self._table.get(at)
        if found is None:
            found = self._table[at] = Term(len(self._table), op, dtype, args, payload, origin)
        return found

    # ------------------------------------------------ what has no operands

    def const(self, scalar: Scalar, dtype: DType, origin: Term | None = None) -> Term:
        """Return a constant. -0.0 differs from 0.0."""
        value = float(scalar) if dtype.is_float else int(scalar)
        made = self._made("const", dtype, (), Const(value, dtype).bits, origin)
        if made.concrete is None:
            made.concrete = scalars.literal(value, dtype)
        return made

    def leaf(self, name: str, dtype: DType, concrete: Scalar) -> Term:
        """Return the term of something given, `x[3, 1]`."""
        made = self._made("leaf", dtype, (), name)
        made.concrete = scalars.scalar_of(concrete, dtype)
        return made

    # ------------------------------------------------ operations

    def unary(self, op: str, x: Term) -> Term:
        """Return `op x`."""
        if x.op == "const":
            return self._folded(scalars.unary(op, _value(x)))
        if x.op == op and op in ("neg", "not", "bitnot"):
            return x.args[0]
        if op == "abs" and x.op == "neg" and x.dtype.is_float:
            return self.unary("abs", x.args[0])
        return self._made(op, bool_ if op == "not" else x.dtype, (x,))

    def binary(self, op: str, x: Term, y: Term) -> Term:
        """Return `x op y`, both evaluated. `sum` and `prod` are additions and multiplications that may be regrouped."""
        self.spend()
        if op == "-":
            return self.binary("+", x, self.unary("neg", y))
        if op in ("sum", "prod") and not x.dtype.is_float:
            return self.binary("+" if op == "sum" else "*", x, y)
        if op in ("*", "/") and x.dtype.is_float and "neg" in (x.op, y.op):
            return self._outside(op, x, y)
        if op in ("and", "or"):
            found = self._logic(op, x, y)
            if found is not None:
                return found
        if op in COMMUTATIVE and y.serial < x.serial:
            x, y = y, x
        if op in IDEMPOTENT and x is y:
            return x
        if op not in ("sum", "prod"):
            other = y if self._neutral(op, x, op in COMMUTATIVE) else x if self._neutral(op, y, True) else None
            if other is not None and not (x.op == y.op == "const"):
                return other
        made = self._made(op, x.dtype, (x, y))
        if x.op == y.op == "const" and op not in ("sum", "prod"):
            return self._folded(scalars.binary(op, _value(x), _value(y)), made if x.dtype.is_float and op in ("+", "*") else None)
        return made

    def _outside(self, op: str, x: Term, y: Term) -> Term:
        """Return a product or quotient with the signs of its operands before it."""
        odd = (x.op == "neg") != (y.op == "neg")
        made = self.binary(op, x.args[0] if x.op == "neg" else x, y.args[0] if y.op == "neg" else y)
        return self.unary("neg", made) if odd else made

    def _logic(self, op: str, x: Term, y: Term) -> Term | None:
        for a, b in ((x, y), (y, x)):
            if a.op == "const":
                return b if bool(a.concrete) == (op == "and") else a
        return None

    def _neutral(self, op: str, x: Term, either: bool) -> bool:
        """Tell whether `x` leaves every bit of the other operand as it is."""
        if x.op != "const" or (not either and op in ("-", "/", "//", "shl", "shr", "%")):
            return False
        value, dtype = x.concrete, x.dtype
        match op:
            case "+":
                return bool(value == 0 and (not dtype.is_float or math.copysign(1.0, value) < 0))
            case "*":
                return bool(value == 1)
            case "/":
                return bool(value == 1)
            case "//":
                return bool(value == 1 and dtype.is_integer)
            case "min" | "max":
                return bool(dtype != bool_ and value == extreme(dtype, highest=op == "min"))
            case _:
                return False

    def compare(self, op: str, x: Term, y: Term) -> Term:
        """Return the truth of `x op y`."""
        self.spend()
        if x.op == y.op == "const":
            return self._folded(scalars.compare(op, _value(x), _value(y)))
        x, y = self._as_stored(x, y)
        if op in (">", ">="):
            op, x, y = ("<" if op == ">" else "<="), y, x
        if op in COMMUTATIVE and y.serial < x.serial:
            x, y = y, x
        made = self._made(op, bool_, (x, y))
        self.compared.add(comparison(made))
        return made

    def _as_stored(self, x: Term, y: Term) -> tuple[Term, Term]:
        """Return two integers that are compared as they were before a wider type was made of them, which says the same of them."""
        stored = next((t.args[0].dtype for t in (x, y) if t.op == "cast" and _is_widened(t)), None)
        before = [None if stored is None else self._before(t, stored) for t in (x, y)]
        return (x, y) if before[0] is None or before[1] is None else (before[0], before[1])

    def _before(self, t: Term, stored: DType) -> Term | None:
        """Return an integer as the `stored` one that it is made of; None where it is not."""
        if t.op == "const" and limits(stored)[0] <= int(t.concrete) <= limits(stored)[1]:
            return self.const(t.concrete, stored, t.origin)
        return t.args[0] if t.op == "cast" and _is_widened(t) and t.args[0].dtype == stored else None

    def select(self, cond: Term, then: Term, orelse: Term) -> Term:
        """Return `then` where `cond` holds, else `orelse`."""
        self.spend()
        if cond.op == "const":
            return then if cond.concrete else orelse
        self.chosen.setdefault(key(cond), cond)
        if self.decides:
            return then if concrete_value(cond) else orelse
        if cond.op == "not":
            return self.select(cond.args[0], orelse, then)
        if then.op == "select" and then.args[0] is cond:
            then = then.args[1]
        if orelse.op == "select" and orelse.args[0] is cond:
            orelse = orelse.args[2]
        return then if then is orelse else self._made("select", then.dtype if then.op != "hole" else orelse.dtype, (cond, then, orelse))

    def cast(self, dtype: DType, x: Term, saturate: bool = False) -> Term:
        """Return `x` converted to `dtype`. What is too large for a wide float is infinite, `saturate` or not."""
        if x.op == "const":
            return self._folded(scalars.cast(dtype, _value(x), saturate))
        if x.op in ("cast", "cast.saturate") and holds(x.dtype, x.args[0].dtype):
            x = x.args[0]
        if x.dtype == dtype:
            return x
        limited = saturate and not holds(dtype, x.dtype) and not (dtype.is_float and dtype.bits >= 32)
        return self._made("cast.saturate" if limited else "cast", dtype, (x,))

    def call(self, fn: str, args: Sequence[Term]) -> Term:
        """Return an elementary function."""
        self.spend()
        if fn in EXACT_CALLS and all(a.op == "const" for a in args):
            return self._folded(scalars.call(fn, [_value(a) for a in args]))
        return self._made(f"call {fn}", called_dtype(fn, args[0].dtype), tuple(args))

    def fma(self, a: Term, b: Term, c: Term) -> Term:
        """Return `a * b + c` rounded once: of the product, which is exact in it, and c."""
        self.spend()
        if not a.dtype.is_float:
            return self.binary("+", self.binary("*", a, b), c)
        made = self._made("fma", c.dtype, (self.binary("*", a, b), c))
        if a.op == b.op == c.op == "const":
            return self._folded(scalars.fma(_value(a), _value(b), _value(c)), made)
        return made

    def dot(self, products: Sequence[tuple[Term, Term]], c: Term) -> Term:
        """Return the sum of exact products of narrow elements and c: rounded in any order for floats."""
        wide = [self.binary("*", self.cast(c.dtype, x), self.cast(c.dtype, y)) for x, y in products]
        if c.dtype.is_float:
            return self._made("dot", c.dtype, (*wide, c))
        for product in wide:
            c = self.binary("+", c, product)
        return c

    def _folded(self, value: Value, origin: Term | None = None) -> Term:
        return self.const(value.scalar, value.dtype, origin)


def _is_widened(x: Term) -> bool:
    """Tell whether a cast makes of an integer one of a type that has all of its type."""
    return x.dtype.is_integer and x.args[0].dtype.is_integer and holds(x.dtype, x.args[0].dtype)


def _value(x: Term) -> Value:
    return Value(x.dtype, x.concrete)


# ---------------------------------------------------------------- keys and concrete values


def key(term: Term) -> int:
    """Return the value of a term in the field."""
    if term.key is None:
        _postorder(term, lambda t: t.key is not None, key_operands, _set_key)
    return _key(term)


def key_operands(t: Term) -> Sequence[Term]:
    """Return the terms that the key of `t` is computed from: through a minimum of minima, what it is the minimum of."""
    return chain(t) if t.op in IDEMPOTENT else t.args


def chain(t: Term) -> list[Term]:
    """Return what an idempotent operation combines, each once, in order of first appearance; of constants their minimum or maximum."""
    seen: dict[int, Term] = {}
    visited: set[int] = set()
    stack = [t]
    while stack:
        at = stack.pop()
        if at.op == t.op and at.dtype == t.dtype:
            if at.serial not in visited:
                visited.add(at.serial)
                stack.extend(reversed(at.args))
        else:
            seen[at.serial] = at
    parts = list(seen.values())
    constants = [part for part in parts if part.op == "const"]
    if len(constants) < 2:
        return parts
    least = reduce(lambda x, y: _outermost(t.op, x, y), constants)
    return [part for part in parts if part.op != "const" or part is least]


def _outermost(op: str, x: Term, y: Term) -> Term:
    """Return which of two constants their minimum or maximum is."""
    found = scalars.binary(op, _value(x), _value(y))
    return x if Const(found.scalar, x.dtype).bits == x.payload else y


def _set_key(t: Term) -> None:
    match t.op:
        case "const":
            t.key = _number(t)
        case "leaf" | "hole":
            t.key = _digest(f"{t.op} {t.payload} {t.dtype}")
        case "+" | "sum" | "fma" | "dot":
            t.key = sum(_key(a) for a in t.args if not _is_zero(a)) % PRIME
        case "*" | "prod":
            t.key = _key(t.args[0]) * _key(t.args[1]) % PRIME
        case "neg":
            t.key = -_key(t.args[0]) % PRIME
        case op if op in IDEMPOTENT:
            t.key = hash((_digest(f"{op} {t.dtype}"), *sorted({_key(a) for a in chain(t)}))) % PRIME
        case op if op in COMMUTATIVE:
            t.key = hash((_digest(f"{op} {t.dtype}"), *sorted(_key(a) for a in t.args))) % PRIME
        case op:
            t.key = hash((_digest(f"{op} {t.dtype}"), *[_key(a) for a in t.args])) % PRIME


def _key(t: Term) -> int:
    assert t.key is not None
    return t.key


def _is_zero(t: Term) -> bool:
    return t.op == "const" and bool(t.concrete == 0)


def _number(t: Term) -> int:
    if t.dtype.is_float and _is_zero(t):
        # Added it changes at most a sign; multiplied it is not 0, for there are infinities and NaN.
        return _digest("zero") if math.copysign(1.0, t.concrete) > 0 else -_digest("zero") % PRIME
    if t.dtype.is_float and not math.isfinite(t.concrete):
        return _digest(f"const {t.payload}")
    exact = Fraction(float(t.concrete)) if t.dtype.is_float else Fraction(int(t.concrete))
    return exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME


_DIGESTS: dict[str, int] = {}


def _digest(text: str) -> int:
    if text not in _DIGESTS:
        _DIGESTS[text] = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % PRIME
    return _DIGESTS[text]


def concrete_value(term: Term) -> Scalar:
    """Return what a term is for the numbers that stand for its leaves. Raises LookupError where there is a hole."""

    def visit(t: Term) -> None:
        t.concrete = _computed(t, [_value(a) for a in t.args]).scalar

    _postorder(term, lambda t: t.concrete is not None, lambda t: _needed(t, t.args[0].concrete if t.args else None), visit)
    return term.concrete


@dataclass(slots=True)
class Symbolic:
    """What every interpreter of terms shares: arrays hold terms, as objects, and where a number is needed the concrete values decide;
    `decided` remembers the conditions that they decided, by their keys."""

    terms: Terms
    decided: dict[int, Term] = field(default_factory=dict)

    def decide(self, condition: Term) -> bool:
        """Return the truth of a condition for this data; one that is not known otherwise is remembered."""
        if condition.op != "const":
            self.decided.setdefault(key(condition), condition)
        return bool(concrete_value(condition))

    def blank(self, shape: Any, dtype: DType) -> np.ndarray[Any, Any]:
        """Return an array of elements that are not there."""
        return np.full(shape, self.terms.hole, object)

    def accepts(self, array: np.ndarray[Any, Any], like: object) -> bool:
        """Tell whether the caller may give `array`: one of terms."""
        return bool(array.dtype == np.dtype(object))


def exact(term: Term) -> float:
    """Return what a term is for the numbers that stand for its leaves, all float arithmetic in f64. Raises LookupError where there is a
    hole."""

    def visit(t: Term) -> None:
        if t.op in ("const", "leaf"):
            t.exact = _wide(_value(t))
        else:
            t.exact = _wide(_computed(t, [a.exact or _value(a) for a in t.args], wide=True))

    def needed(t: Term) -> Sequence[Term]:
        first = t.args[0].exact if t.args else None
        return _needed(t, None if first is None else first.scalar)

    _postorder(term, lambda t: t.exact is not None, needed, visit)
    assert term.exact is not None
    return float(term.exact.scalar)


def _wide(x: Value) -> Value:
    return Value(f64, f64.numpy.type(x.scalar)) if x.dtype.is_float else x


def _needed(t: Term, first: Scalar) -> Sequence[Term]:
    """Return the terms that a number for `t` is computed from, of a `select` the chosen side; `first`: the number of the first one."""
    if t.op != "select":
        return t.args
    return (t.args[0],) if first is None else (t.args[1] if first else t.args[2],)


_ROUNDING: Final = frozenset(("call round_bf16", "call round_tf32"))


def _computed(t: Term, args: list[Value], *, wide: bool = False) -> Value:
    """Return the number of `t` from those of its operands; `wide`: floats are f64 and not rounded to less."""
    match t.op:
        case "hole" | "leaf" | "const":
            raise LookupError(show(t))
        case "neg" | "abs" | "not" | "bitnot":
            return scalars.unary(t.op, args[0])
        case "<" | "<=" | "==" | "!=":
            return scalars.compare(t.op, *args)
        case "select":
            return args[1] if args[0].scalar else args[2]  # the other one may have no number
        case "cast" | "cast.saturate":
            return scalars.cast(f64 if wide and t.dtype.is_float else t.dtype, args[0], t.op != "cast")
        case "fma" | "sum":
            return scalars.binary("+", *args)
        case "prod":
            return scalars.binary("*", *args)
        case "dot":
            return reduce(lambda x, y: scalars.binary("+", x, y), args)
        case "and" | "or":
            both = args[0].scalar, args[1].scalar
            return Value(bool_, all(both) if t.op == "and" else any(both))
        case op if wide and op in _ROUNDING:
            return args[0]
        case op if op.startswith("call "):
            return scalars.call(op[5:], args)
        case op:
            return scalars.binary(op, *args)


def _postorder(root: Term, done: Callable[[Term], bool], children: Callable[[Term], Sequence[Term]], visit: Callable[[Term], Any]) -> None:
    stack = [root]
    while stack:
        t = stack[-1]
        if done(t):
            stack.pop()
            continue
        missing = [a for a in children(t) if not done(a)]
        if missing:
            stack.extend(missing)
        else:
            visit(t)
            stack.pop()


# ---------------------------------------------------------------- text

_INFIX: Final = frozenset(("+", "*", "/", "//", "%", "<", "<=", "==", "!=", "and", "or"))


def show(t: Term, size: int = 12) -> str:
    """Return the text of a term; of what lies deep in it, dots."""
    return _shown(t, [size])


def _shown(t: Term, left: list[int]) -> str:
    left[0] -= 1
    match t.op:
        case "const":
            return f"{t.concrete}" if t.dtype in (f32, bool_) else f"{t.concrete}_{t.dtype}"
        case "leaf":
            return t.payload
        case "hole":
            return "nothing"
    if left[0] < 0:
        return "…"
    if t.op in ("sum", "prod"):
        parts: list[Term] = []
        stack = [t]
        while stack:
            at = stack.pop()
            if at.op == t.op:
                stack.extend(reversed(at.args))
            else:
                parts.append(at)
        shown = [_shown(p, left) for p in parts[: max(2, left[0])]]
        return f"{t.op}({', '.join(shown)}{', …' if len(shown) < len(parts) else ''})"
    args = [_shown(a, left) for a in t.args]
    match t.op:
        case op if op in _INFIX:
            return f"({args[0]} {op} {args[1]})"
        case "neg":
            return f"-{args[0]}"
        case "fma":
            return f"fma({args[0]} + {args[1]})"
        case "cast" | "cast.saturate":
            return f"{t.dtype}({args[0]})"
        case op:
            return f"{op.removeprefix('call ')}({', '.join(args)})"
