"""Arithmetic on indices: quotients, remainders and extrema of polynomials, and integers that become indices.

What bounds decide is decided now; what is no polynomial becomes an atom, of which is known what lies below and above it.
"""

from __future__ import annotations

from codegen.dtypes import i64
from codegen.llvm import arithmetic
from codegen.llvm.addresses import lane_stride, vector_index
from codegen.llvm.builder import Builder
from codegen.llvm.convert import cast
from codegen.llvm.facts import Atom, Poly
from codegen.llvm.state import EmitError, Scope, State
from codegen.llvm.values import Literal, Value, integer_range, literal, of_lanes
from codegen.polynomials import ZERO, atom_poly, number

_MOST_I32 = 2**31 - 1


def index_value(state: State, p: Poly, scope: Scope) -> Value:
    """Return an index as a value: a vector where lanes have their own."""
    b = state.builder
    if scope.lanes is not None and lane_stride(p, scope.lanes, b) != 0:
        return Value(i64, vector_index(b, p, scope.lanes), scope.lanes.count)
    constant = p.constant
    return literal(constant, i64) if constant is not None else Value(i64, b.index(p, wraps=True))


def floor_div(state: State, x: Poly, y: Poly, scope: Scope) -> Poly:
    """Return `x // y`, rounded down; 0 for a `y` of 0, by which nothing that runs divides."""
    facts = state.builder.facts
    if y.constant == 0:
        return ZERO
    whole, rest = x.divided(y)
    if rest.constant == 0 or (facts.at_least(rest, 0) and facts.at_least(y - rest, 1)):
        return whole
    return whole + _quotient(state, rest, y, scope)


def mod(state: State, x: Poly, y: Poly, scope: Scope) -> Poly:
    """Return `x % y`, of the sign of `y`; 0 for a `y` of 0."""
    facts = state.builder.facts
    if y.constant == 0:
        return ZERO
    rest = x.divided(y)[1]
    if facts.at_least(rest, 0) and facts.at_least(y - rest, 1):
        return rest
    return rest - _quotient(state, rest, y, scope) * y


def extremum(state: State, name: str, x: Poly, y: Poly, scope: Scope) -> Poly:
    """Return the smaller of two, `smin`, or the larger, `smax`."""
    b = state.builder
    difference = y - x if name == "smin" else x - y
    if b.facts.at_least(difference, 0):
        return x
    if b.facts.at_most(difference, 0):
        return y
    if _varies(state, x, scope) or _varies(state, y, scope):
        assert scope.lanes is not None
        lanes = scope.lanes.count
        left, right = (Value(i64, vector_index(b, p, scope.lanes), lanes) for p in (x, y))
        return _atom(state, arithmetic.intrinsic(b, name, left, right).text, b.depth, (), (), None, lanes)
    depth = max(b.poly_depth(x), b.poly_depth(y))
    fn = b.declare(f"llvm.{name}.i64", "i64 @(i64, i64)")
    text = b.pure(f"call i64 {fn}(i64 {b.index(x)}, i64 {b.index(y)})", depth)
    facts = b.facts
    if text not in facts.atoms:
        is_min = name == "smin"
        facts.add(Atom(text, depth, facts.next_rank(), (x, y), (x, y), "some" if is_min else "every", "every" if is_min else "some"))
    return atom_poly(text)


def _quotient(state: State, x: Poly, y: Poly, scope: Scope) -> Poly:
    """Return the atom for `x // y`: the same for all that ask for it while its region is open, unless lanes have their own."""
    b = state.builder
    if x.constant is not None and y.constant is not None:
        return number(x.constant // y.constant)
    if _varies(state, x, scope) or _varies(state, y, scope):
        return _new_quotient(state, x, y, scope)
    quotients = b.regions[max(b.poly_depth(x), b.poly_depth(y))].quotients
    if (x, y) not in quotients:
        quotients[x, y] = _new_quotient(state, x, y, scope)
    return quotients[x, y]


def _new_quotient(state: State, x: Poly, y: Poly, scope: Scope) -> Poly:
    b = state.builder
    low = b.facts.lower(x)
    high = b.facts.lower(x.scaled(-1))
    divisor = y.constant
    if low is not None and divisor is not None and -_MOST_I32 <= low < 0 < divisor and arithmetic.power_of_two(str(divisor)) is None:
        # Nothing below 0 is divided sooner: so many times the divisor are added, and taken off the quotient.
        times = number(-(low // divisor))
        return _quotient(state, x + times * y, y, scope) - times
    if _varies(state, x, scope) or _varies(state, y, scope):
        name, depth, lanes = _vector_quotient(state, x, y, low is not None and low >= 0, scope)
    else:
        depth = max(b.poly_depth(x), b.poly_depth(y))
        name = _scalar_quotient(b, b.index(x), _divisor(b, y), low is not None and low >= 0, depth)
        lanes = 0
    lower = (number(low // divisor),) if low is not None and divisor else (ZERO,) if low is not None and low >= 0 else ()
    upper = (number(-high // divisor),) if high is not None and divisor else ()
    return _atom(state, name, depth, lower, upper, (x, divisor) if divisor else None, lanes)


def _divisor(b: Builder, y: Poly) -> str:
    """Return `y`, at least 1: the division may run before the loop that would have been skipped."""
    text = b.index(y)
    if b.facts.at_least(y, 1):
        return text
    fn = b.declare("llvm.smax.i64", "i64 @(i64, i64)")
    return b.pure(f"call i64 {fn}(i64 {text}, i64 1)", b.poly_depth(y))


def _scalar_quotient(b: Builder, x: str, y: str, is_natural: bool, depth: int) -> str:
    if is_natural:
        return b.pure(f"udiv i64 {x}, {y}", depth)
    if (bits := arithmetic.power_of_two(y)) is not None:
        return b.pure(f"ashr i64 {x}, {bits}", depth)
    quotient = b.pure(f"sdiv i64 {x}, {y}", depth)
    rest = b.pure(f"srem i64 {x}, {y}", depth)
    below = b.pure(f"icmp slt i64 {rest}, 0", depth)
    less = b.pure(f"sext i1 {below} to i64", depth)
    return b.pure(f"add nsw i64 {quotient}, {less}", depth)


def _vector_quotient(state: State, x: Poly, y: Poly, is_natural: bool, scope: Scope) -> tuple[str, int, int]:
    assert scope.lanes is not None
    b = state.builder
    lanes = scope.lanes.count
    left = Value(i64, vector_index(b, x, scope.lanes), lanes)
    if is_natural and y.constant is not None and b.facts.at_most(x, _MOST_I32):
        # A 32-bit division by a constant is a multiplication in all lanes; a 64-bit one is done lane by lane.
        narrow, wide = of_lanes("i32", lanes), of_lanes("i64", lanes)
        dividend = b.pure(f"trunc {left.typed} to {narrow}")
        quotient = b.pure(f"udiv {narrow} {dividend}, splat (i32 {y.constant})")
        return b.pure(f"zext {narrow} {quotient} to {wide}"), b.depth, lanes
    right = Value(i64, vector_index(b, y, scope.lanes), lanes)
    if is_natural and b.facts.at_least(y, 1):
        return b.pure(f"udiv {left.typed}, {right.text}"), b.depth, lanes
    return arithmetic.binary(b, "//", left, right).text, b.depth, lanes


def loaded(state: State, v: Value, least: tuple[Poly, ...], most: tuple[Poly, ...]) -> Poly:
    """Return an integer as an index, of which bounds are known that its type does not tell."""
    b = state.builder
    if isinstance(v, Literal):
        return number(int(v.number))
    wide = cast(b, v, i64, False)
    if wide.text.startswith("%"):
        low = () if v.dtype.kind == "int" else (ZERO,)
        high = () if v.dtype.bits > 32 else (number(integer_range(v.dtype)[1]),)
        low = (number(integer_range(v.dtype)[0]),) if v.dtype.bits <= 32 else low
        return _atom(state, wide.text, b.depth, (*low, *least), (*high, *most), None, wide.lanes, v)
    if wide.text.removeprefix("-").isdigit():
        return number(int(wide.text))
    raise EmitError(f"an index of the constant value {wide.text}")


def _atom(
    state: State,
    name: str,
    depth: int,
    lower: tuple[Poly, ...],
    upper: tuple[Poly, ...],
    floor: tuple[Poly, int] | None,
    lanes: int,
    narrow: Value | None = None,
) -> Poly:
    """Return `name` as an atom. What was first an index in an inner region may have been loaded in an outer one, where it is one again.
    Of vectors, lanes that take part are bounded, and loops of other lanes may share one: there other bounds hold of it."""
    facts = state.builder.facts
    known = facts.atoms.get(name)
    if known is None or depth < known.depth or lanes:
        rank = facts.next_rank() if known is None else known.rank
        facts.add(Atom(name, depth, rank, lower, upper, floor=floor, lanes=lanes, narrow=narrow))
    return atom_poly(name)


def _varies(state: State, p: Poly, scope: Scope) -> bool:
    return scope.lanes is not None and lane_stride(p, scope.lanes, state.builder) != 0
