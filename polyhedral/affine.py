"""Arithmetic on index expressions and conditions: the one owner of sums, quotients and remainders of integers.

    add(2*p, r, -1, p)   3*p + r - 1        floor(8*i + j, 4)      2*i + j // 4       floor(2*i, 4)        i // 2
    mod(4*i + j, 4)      j % 4              sub(i, 4*(i // 4))     i % 4              mod(mod(i, 8), 4)    i % 4

Expressions are built in a *simple form*: a sum of one term per atom, names in alphabetical order before the other atoms (`//`, `%`, minima,
maxima), the constant last. Simplifying is idempotent and keeps remainders, which is what people read and patterns look for.

Whether two expressions are equal is asked of the *canonical form*, in which there are no remainders: `x % d` is `x - d*(x // d)`. There
every factor below a `//` is in [0, divisor) and has no factor in common with it, and no `//` stands directly below another, so
`(i % 4) // 2` and `i // 2 % 2` have one form. `same`, `difference`, `constant` and `compare` decide by it.

Everything is about integers without bounds: that no index leaves 64 bits is proven of what was built (`tensorlang.tensor.widths`,
`tensorlang.lower.bounds`). Only divisors of quotients of quotients become larger than what was written, and no larger than `WIDEST`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd
from typing import Any, Literal, TypeAlias, assert_never

from polyhedral.expr import FALSE, TRUE, Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale

Relation: TypeAlias = Literal["<", "<=", "==", "!=", ">=", ">"]
Terms: TypeAlias = dict[Expr, int]
"""Coefficient of each atom: a name, or a Floor, Mod, Min or Max."""

ZERO = Int(0)
ONE = Int(1)
WIDEST = 1 << 62
"""Divisors are not multiplied to more than this."""

# ---------------------------------------------------------------- sums


def terms(e: Expr) -> tuple[Terms, int]:
    """Return `e` as coefficients of its atoms, and a constant. No coefficient is zero."""
    out: Terms = {}
    const = _collect(e, 1, out)
    return _nonzero(out), const


def _collect(e: Expr, factor: int, out: Terms) -> int:
    match e:
        case Int(value):
            return factor * value
        case Add(lhs, rhs):
            return _collect(lhs, factor, out) + _collect(rhs, factor, out)
        case Scale(k, value):
            return _collect(value, factor * k, out)
        case Name() | Floor() | Mod() | Min() | Max():
            out[e] = out.get(e, 0) + factor
            return 0
        case _:
            assert_never(e)


def _nonzero(coefficients: Mapping[Expr, int]) -> Terms:
    return dict(coefficients) if all(coefficients.values()) else {atom: k for atom, k in coefficients.items() if k}


def from_terms(coefficients: Mapping[Expr, int], const: int = 0) -> Expr:
    """Return the sum with these coefficients in simple form."""
    found = _nonzero(coefficients)
    if len(found) > 1 and any(isinstance(atom, Floor) for atom in found):
        found, const = _recombined(found, const)
    return _sum(found, const)


def _sum(coefficients: Terms, const: int) -> Expr:
    ordered = sorted(coefficients.items(), key=lambda item: _order(item[0])) if len(coefficients) > 1 else coefficients.items()
    parts: list[Expr] = [atom if k == 1 else Scale(k, atom) for atom, k in ordered]
    if const or not parts:
        parts.append(Int(const))
    return reduce(Add, parts)


def _order(atom: Expr) -> tuple[int, str]:
    return (0, atom.name) if isinstance(atom, Name) else (1, _text(atom))


@lru_cache(maxsize=1 << 14)
def _text(atom: Expr) -> str:
    return repr(atom)


def _recombined(coefficients: Terms, const: int) -> tuple[Terms, int]:
    """Return the sum with d*(x // d) + x % d replaced by x, and x - d*(x // d) by x % d."""
    for atom, k in coefficients.items():
        if not isinstance(atom, Floor) or k % atom.divisor:
            continue
        times, rest = k // atom.divisor, Mod(atom.value, atom.divisor)
        inner, offset = terms(atom.value)
        if coefficients.get(rest) == times:
            factor, offset = times, times * offset
        elif not offset and all(coefficients.get(t) == -times * f for t, f in inner.items()):
            factor = times
        else:
            continue
        left = {t: f for t, f in coefficients.items() if t != atom}
        for t, f in inner.items():
            left[t] = left.get(t, 0) + factor * f
        left[rest] = left.get(rest, 0) - factor
        return _recombined(_nonzero(left), const + offset)
    return coefficients, const


def affine_form(e: Expr) -> tuple[dict[str, int], int] | None:
    """Return the coefficients of the names in `e` and the constant, or None when `e` is not linear."""
    coefficients, const = terms(e)
    named = {atom.name: k for atom, k in coefficients.items() if isinstance(atom, Name)}
    return (named, const) if len(named) == len(coefficients) else None


# ---------------------------------------------------------------- without remainders


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant + Σ factor * term`, where a term is a name, a floor division, or a minimum or maximum."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int


@lru_cache(maxsize=1 << 16)
def linear(e: Expr) -> Linear:
    """Return `e` as a sum without remainders, of terms in order of first appearance; zero factors are dropped."""
    coefficients, const = terms(e)
    while rest := next((atom for atom in coefficients if isinstance(atom, Mod)), None):
        factor = coefficients.pop(rest)
        const += _collect(rest.value, factor, coefficients)
        const += _collect(floor(rest.value, rest.divisor), -factor * rest.divisor, coefficients)
        coefficients = _nonzero(coefficients)
    return Linear(tuple(coefficients.items()), const)


def _canonical(coefficients: Mapping[Expr, int], const: int) -> Linear:
    """Return the canonical form of a sum, all the way down."""
    out: Terms = {}
    for atom, factor in coefficients.items():
        form = _canonical_atom(atom)
        const += factor * form.constant
        for part, k in form.terms:
            out[part] = out.get(part, 0) + factor * k
    return Linear(tuple(_nonzero(out).items()), const)


@lru_cache(maxsize=1 << 14)
def _canonical_atom(atom: Expr) -> Linear:
    match atom:
        case Floor(value, divisor):
            return _quotient(_canonical(*terms(value)), divisor)
        case Mod(value, divisor):
            form = _canonical(*terms(value))
            return _combined(form, -divisor, _quotient(form, divisor))
        case Min() | Max():
            forms = [_canonical(*terms(operand)) for operand in operands(atom, type(atom))]
            found = _extreme(type(atom), [_sum(dict(form.terms), form.constant) for form in forms])
            return Linear(((found, 1),), 0) if isinstance(found, Min | Max) else _canonical(*terms(found))
        case _:
            return Linear(((atom, 1),), 0)


def _combined(a: Linear, factor: int, b: Linear) -> Linear:
    out = dict(a.terms)
    for atom, k in b.terms:
        out[atom] = out.get(atom, 0) + factor * k
    return Linear(tuple(_nonzero(out).items()), a.constant + factor * b.constant)


def _quotient(form: Linear, divisor: int) -> Linear:
    """Return `form // divisor`: of s // d and the opposite of (-s) // d, rounded the same way, the one with the smaller factors."""
    whole = {atom: k // divisor for atom, k in form.terms}
    rest = {atom: k % divisor for atom, k in form.terms if k % divisor}
    exact = Linear(tuple(_nonzero(whole).items()), form.constant // divisor)
    if not rest:
        return exact
    common = gcd(divisor, *rest.values())
    rest, offset, divisor = {atom: k // common for atom, k in rest.items()}, form.constant % divisor // common, divisor // common
    nested = min((a for a, k in rest.items() if k == 1 and isinstance(a, Floor)), key=_order, default=None)
    if nested is not None:  # (x // m + y) // d = (x + m*y) // (m*d)
        beside = Linear(tuple((a, k) for a, k in rest.items() if a != nested), offset)
        inner = _combined(_canonical(*terms(nested.value)), nested.divisor, beside)
        return _combined(exact, 1, _quotient(inner, nested.divisor * divisor))
    factors = [rest[a] for a in sorted(rest, key=_order)]
    if ([divisor - k for k in factors], divisor - 1 - offset) < (factors, offset):  # (k*x + c) // d = x - ((d - k)*x + d - 1 - c) // d
        opposite = Linear(tuple((a, divisor - k) for a, k in rest.items()), divisor - 1 - offset)
        ones = Linear(tuple((a, 1) for a in rest), 0)
        return _combined(_combined(exact, 1, ones), -1, _quotient(opposite, divisor))
    return _combined(exact, 1, Linear(((Floor(_sum(rest, offset), divisor), 1),), 0))


def constant(e: Expr) -> int | None:
    """Return the value of `e` if it is a constant."""
    return _decided(*terms(e))


def multiple_of(e: Expr) -> int:
    """Return a number that divides `e` wherever its names lie, 1 if none is known; 0 for the constant 0."""
    coefficients, const = terms(e)
    return gcd(const, *coefficients.values())


def difference(a: Expr, b: Expr) -> int | None:
    """Return `a - b` if it is a constant."""
    out: Terms = {}
    const = _collect(a, 1, out) + _collect(b, -1, out)
    return _decided(_nonzero(out), const)


def _decided(coefficients: Terms, const: int) -> int | None:
    if all(isinstance(atom, Name) for atom in coefficients):
        return None if coefficients else const
    form = _canonical(coefficients, const)
    return None if form.terms else form.constant


def same(a: Expr, b: Expr) -> bool:
    """Tell whether `a` and `b` have one canonical form (sufficient, not necessary, for equality of values)."""
    return difference(a, b) == 0


# ---------------------------------------------------------------- constructors


def to_expr(e: Expr | int | str) -> Expr:
    """Return an expression for an integer, a name, or an expression."""
    match e:
        case int():
            return Int(e)
        case str():
            return Name(e)
        case _:
            return e


def add(*parts: Expr | int | str) -> Expr:
    out: Terms = {}
    const = sum(_collect(to_expr(p), 1, out) for p in parts)
    return from_terms(out, const)


def sub(a: Expr | int | str, b: Expr | int | str) -> Expr:
    return add(a, Scale(-1, to_expr(b)))


def scale(factor: int, e: Expr | str) -> Expr:
    return add(Scale(factor, to_expr(e)))


def neg(e: Expr | str) -> Expr:
    return scale(-1, e)


def mul(a: Expr, b: Expr) -> Expr | None:
    """Return the product if a side is constant, else None: it is not quasi-affine."""
    match constant(a), constant(b):
        case int(k), _:
            return scale(k, b)
        case _, int(k):
            return scale(k, a)
    return None


def product(factors: Iterable[Expr]) -> Expr | None:
    """Return the product of all factors if at most one of them is not constant, else None."""
    out: Expr | None = ONE
    for factor in factors:
        out = None if out is None else mul(out, factor)
    return out


def floor(e: Expr, divisor: int) -> Expr:
    """Return `e // divisor`, divisor > 0."""
    coefficients, const = terms(e)
    whole = {atom: k // divisor for atom, k in coefficients.items() if k % divisor == 0}
    rest = {atom: k for atom, k in coefficients.items() if k % divisor}
    if not rest:
        return from_terms(whole, const // divisor)
    common = gcd(divisor, *rest.values())
    rest, offset, quotient = {atom: k // common for atom, k in rest.items()}, const % divisor // common, divisor // common
    match list(rest.items()):
        case [(Floor(value, inner), 1)] if quotient * inner <= WIDEST:
            part = floor(add(value, inner * offset), quotient * inner)
        case _:
            part = Floor(from_terms(rest, offset), quotient)
    return add(from_terms(whole, const // divisor), part)


def ceil_div(e: Expr, divisor: int) -> Expr:
    return floor(add(e, divisor - 1), divisor)


def mod(e: Expr, divisor: int) -> Expr:
    """Return `e % divisor`, divisor > 0."""
    coefficients, const = terms(e)
    while inner := next((a for a, k in coefficients.items() if isinstance(a, Mod) and k * a.divisor % divisor == 0), None):
        const += _collect(inner.value, coefficients.pop(inner), coefficients)
    rest = {atom: k % divisor for atom, k in coefficients.items() if k % divisor}
    if not rest:
        return Int(const % divisor)
    common = gcd(divisor, *rest.values())
    if common > 1:  # (g*s + c) % (g*d) = g*((s + c // g) % d) + c % g
        part = mod(from_terms({atom: k // common for atom, k in rest.items()}, const // common), divisor // common)
        return add(Scale(common, part), const % common)
    return Mod(from_terms(rest, const % divisor), divisor)


def minimum(*parts: Expr) -> Expr:
    return _extreme(Min, parts)


def maximum(*parts: Expr) -> Expr:
    return _extreme(Max, parts)


def _extreme(kind: type[Min] | type[Max], parts: Iterable[Expr]) -> Expr:
    """Fold `kind` over parts, and over what those are folded of, dropping those that a constant distance shows to lose."""
    kept: list[Expr] = []
    for one in parts:
        before = len(kept)
        for part in (add(operand) for operand in operands(one, kind)):
            for i in range(before):
                distance = difference(kept[i], part)
                if distance is not None:
                    kept[i] = kept[i] if (distance <= 0 if kind is Min else distance >= 0) else part
                    break
            else:
                kept.append(part)
    return reduce(kind, sorted(kept, key=_text))


def operands(e: Expr, kind: type[Min] | type[Max]) -> Iterator[Expr]:
    """Yield what a minimum or maximum of minima or maxima is taken of; `e` itself where it is no `kind`."""
    if isinstance(e, Min | Max) and isinstance(e, kind):
        yield from operands(e.lhs, kind)
        yield from operands(e.rhs, kind)
    else:
        yield e


def clamp(e: Expr, lo: Expr, hi: Expr) -> Expr:
    """Return `e` moved into [lo, hi - 1]."""
    return minimum(maximum(e, lo), sub(hi, ONE))


def normal(e: Expr) -> Expr:
    """Return `e` in simple form, all the way down."""
    return substitute(e, {})


# ---------------------------------------------------------------- conditions

_NEGATED: dict[str, Relation] = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}
_RELATION: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


def compare(op: Relation, lhs: Expr | int | str, rhs: Expr | int | str) -> Cond:
    """Return the comparison, decided when the sides differ by a constant."""
    a, b = to_expr(lhs), to_expr(rhs)
    distance = difference(a, b)
    if distance is not None:
        return TRUE if _RELATION[op](distance, 0) else FALSE
    return Compare(op, add(a), add(b))


def comparison(coefficients: Mapping[Expr, int], const: int, *, equality: bool = False) -> Compare:
    """Return `coefficients + const >= 0` (or `== 0`) as a comparison without negative terms."""
    found, const = _recombined(_nonzero(coefficients), const)
    positive = {t: f for t, f in found.items() if f > 0}
    negative = {t: -f for t, f in found.items() if f < 0}
    if equality:
        if not positive:
            positive, negative, const = negative, positive, -const
        return Compare("==", from_terms(positive, max(const, 0)), from_terms(negative, max(-const, 0)))
    if not negative:
        return Compare(">=", from_terms(positive), Int(-const))
    if const < 0:
        return Compare("<", from_terms(negative), from_terms(positive, const + 1))
    return Compare("<=", from_terms(negative), from_terms(positive, const))


def within(e: Expr | str, lo: Expr | int, hi: Expr | int | str) -> Cond:
    """Return `lo <= e < hi`."""
    return conj(compare(">=", e, lo), compare("<", e, hi))


def conj(*conds: Cond) -> Cond:
    """Return the conjunction, flattened and without repetitions."""
    return _junction(And, Or, conds)


def disj(*conds: Cond) -> Cond:
    return _junction(Or, And, conds)


def _junction(kind: type[And] | type[Or], dual: type[And] | type[Or], conds: Iterable[Cond]) -> Cond:
    parts: dict[Cond, None] = {}
    for cond in conds:
        if cond == dual(()):
            return cond
        parts.update(dict.fromkeys(cond.conds if isinstance(cond, kind) else (cond,)))
    return next(iter(parts)) if len(parts) == 1 else kind(tuple(parts))


def negate(cond: Cond) -> Cond:
    """Return the opposite condition, with negation pushed to the comparisons."""
    match cond:
        case Compare(op, lhs, rhs):
            return Compare(_NEGATED[op], lhs, rhs)
        case And(conds):
            return disj(*map(negate, conds))
        case Or(conds):
            return conj(*map(negate, conds))
        case Not(inner):
            return inner
        case _:
            assert_never(cond)


def conjuncts(cond: Cond) -> tuple[Cond, ...]:
    return cond.conds if isinstance(cond, And) else (cond,)


def inequalities(cond: Cond) -> Iterator[Expr]:
    """Yield expressions, all of which are at least 0 just where the comparison `cond` holds; none for `!=` and what is no comparison."""
    if isinstance(cond, Compare):
        if cond.op in ("<", "<=", "=="):
            yield add(cond.rhs, Scale(-1, cond.lhs), -1 if cond.op == "<" else 0)
        if cond.op in (">", ">=", "=="):
            yield add(cond.lhs, Scale(-1, cond.rhs), -1 if cond.op == ">" else 0)


# ---------------------------------------------------------------- names and substitution


def parts(of: Expr | Cond) -> tuple[Expr | Cond, ...]:
    """Return what `of` is directly made of, from left to right."""
    match of:
        case Int() | Name():
            return ()
        case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs) | Compare(_, lhs, rhs):
            return lhs, rhs
        case Scale(_, value) | Floor(value, _) | Mod(value, _) | Not(value):
            return (value,)
        case And(conds) | Or(conds):
            return conds
        case _:
            assert_never(of)


def names(of: Expr | Cond) -> Iterator[str]:
    """Yield the names in `of` from left to right, repeated as they are."""
    if isinstance(of, Name):
        yield of.name
    for part in parts(of):
        yield from names(part)


def has_choice(of: Expr | Cond) -> bool:
    """Tell whether `of` takes the smaller or the larger of two anywhere."""
    return isinstance(of, Min | Max) or any(map(has_choice, parts(of)))


@lru_cache(maxsize=1 << 14)
def name_set(of: Expr | Cond) -> frozenset[str]:
    """Return the names in `of`."""
    return frozenset(names(of))


def substitute(e: Expr, to: Mapping[str, Expr]) -> Expr:
    """Return `e` with names replaced simultaneously, in simple form again."""
    match e:
        case Int():
            return e
        case Name(name):
            return to.get(name, e)
        case Add(lhs, rhs):
            return add(substitute(lhs, to), substitute(rhs, to))
        case Scale(factor, value):
            return scale(factor, substitute(value, to))
        case Floor(value, divisor):
            return floor(substitute(value, to), divisor)
        case Mod(value, divisor):
            return mod(substitute(value, to), divisor)
        case Min(lhs, rhs):
            return minimum(substitute(lhs, to), substitute(rhs, to))
        case Max(lhs, rhs):
            return maximum(substitute(lhs, to), substitute(rhs, to))
        case _:
            assert_never(e)


def substitute_cond(cond: Cond, to: Mapping[str, Expr]) -> Cond:
    match cond:
        case Compare(op, lhs, rhs):
            return compare(op, substitute(lhs, to), substitute(rhs, to))
        case And(conds):
            return conj(*(substitute_cond(c, to) for c in conds))
        case Or(conds):
            return disj(*(substitute_cond(c, to) for c in conds))
        case Not(inner):
            return negate(substitute_cond(inner, to))
        case _:
            assert_never(cond)


# ---------------------------------------------------------------- evaluation (integers, or NumPy arrays that broadcast)


def evaluate(e: Expr, env: Mapping[str, Any]) -> Any:
    """Return the value of `e`; `env` gives integers or i64 arrays."""
    match e:
        case Int(value):
            return value
        case Name(name):
            return env[name]
        case Add(lhs, rhs):
            return evaluate(lhs, env) + evaluate(rhs, env)
        case Scale(factor, value):
            return factor * evaluate(value, env)
        case Floor(value, divisor):
            return evaluate(value, env) // divisor
        case Mod(value, divisor):
            return evaluate(value, env) % divisor
        case Min(lhs, rhs):
            return _either("minimum", min, evaluate(lhs, env), evaluate(rhs, env))
        case Max(lhs, rhs):
            return _either("maximum", max, evaluate(lhs, env), evaluate(rhs, env))
        case _:
            assert_never(e)


def _either(arrays: Literal["minimum", "maximum"], integers: Callable[[int, int], int], a: Any, b: Any) -> Any:
    """Return which of two is less or greater; numbers alone, also those of other libraries, do not wait for NumPy."""
    if not hasattr(a, "dtype") and not hasattr(b, "dtype"):
        return integers(a, b)
    import numpy as np

    return (np.minimum if arrays == "minimum" else np.maximum)(a, b)


def holds(cond: Cond, env: Mapping[str, Any]) -> Any:
    """Return the truth of `cond`: a bool, or an array of them."""
    match cond:
        case Compare(op, lhs, rhs):
            return _RELATION[op](evaluate(lhs, env), evaluate(rhs, env))
        case And(conds):
            return reduce(lambda a, b: a & b, (holds(c, env) for c in conds), True)
        case Or(conds):
            return reduce(lambda a, b: a | b, (holds(c, env) for c in conds), False)
        case Not(inner):
            return _negated(holds(inner, env))
        case _:
            assert_never(cond)


def _negated(truth: Any) -> Any:
    if isinstance(truth, bool):
        return not truth
    import numpy as np

    return np.logical_not(truth)
