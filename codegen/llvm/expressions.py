"""Evaluation of index expressions and values.

Inside a vector loop an expression is evaluated once for all lanes. What does not depend on the lane stays a scalar until a vector needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import takewhile
from typing import Literal as Word
from typing import assert_never

from codegen.dtypes import DTYPES, DType, bf16, bool_, f32, f64, holds, i32, i64, u64
from codegen.llvm import arithmetic, convert, dot, math, memory, registers
from codegen.llvm.addresses import has_rows, lane_stride
from codegen.llvm.builder import Builder
from codegen.llvm.choices import simplified
from codegen.llvm.convert import cast, nearest_bf16, nearest_tf32
from codegen.llvm.facts import Poly
from codegen.llvm.index_arithmetic import extremum, floor_div, index_value, loaded, mod
from codegen.llvm.index_comparisons import Moved, compare_indices, compare_moved, compare_widened, compare_with_data
from codegen.llvm.interleave import MOST_ELEMENTS
from codegen.llvm.masks import common, known_lanes, note_common
from codegen.llvm.register_transpose import Copies
from codegen.llvm.state import EmitError, Memory, Registers, Scope, State, Storage, Tiles, mask_and, same_lanes, splat
from codegen.llvm.tables import table_size
from codegen.llvm.values import Literal, Value, integer_range, literal, of_lanes
from codegen.loops.evaluate import evaluate
from codegen.loops.nodes import (
    Add,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    Index,
    IndexValue,
    Int,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Name,
    Select,
    Unary,
    ValueIndex,
    Var,
)
from codegen.loops.walk import FLIPPED, Node, children, free_vars, range_of_condition, walk
from codegen.polynomials import ONE, ZERO, atom_poly, number

MOST_IN_VAIN = 16
"""Nodes that are evaluated for nothing rather than branched around: about as many instructions as a wrong guess costs cycles."""

_SMALL_STEP = 1 << 31
"""Of a number that is added to an index that data say."""

# ---------------------------------------------------------------- values


def value(state: State, e: Expr, scope: Scope) -> Value:
    """Return what `e` evaluates to."""
    b = state.builder
    match e:
        case Const(number_, dtype):
            return literal(number_, dtype)
        case Load(buffer, index):
            where = _where_read(state, e, scope)
            found = _turned(state, e, where) or _picked(state, e, where)
            return found or read(state, scope.buffers[buffer], index, where, partial(_beside, state, e, where))
        case IndexValue(index):
            return index_value(state, poly(state, index, scope), scope)
        case Name(name):
            return scope.lets[name]
        case Unary(op, x):
            return arithmetic.unary(b, op, value(state, x, scope))
        case Binary("and" | "or" as op, lhs, rhs):
            return _inside(state, e, scope) or _lazy(state, op, lhs, rhs, scope)
        case Binary("shl" | "shr" as op, lhs, Cast(_, IndexValue(index)) as rhs) if _is_near(state, index, rhs.dtype, scope):
            return arithmetic.near_shift(b, op, *same_lanes(b, value(state, lhs, scope), value(state, rhs, scope)))
        case Binary("min" | "max", _, Const()) if (chain := _limits(e)) is not None:
            return _limited(state, *chain, scope)
        case Binary("%", lhs) if (step := scope.ranges.remainder_step(e)) is not None:
            return arithmetic.least_unsigned_of_step(b, value(state, lhs, scope), step)
        case Binary("//" | "%" as op, lhs, rhs) if (unsigned := scope.ranges.unsigned(e)) is not None:
            return _unsigned_quotient(state, op, lhs, rhs, unsigned, scope)
        case Binary(op, lhs, rhs):
            return arithmetic.binary(b, op, value(state, lhs, scope), value(state, rhs, scope))
        case Compare(op, IndexValue() | Const() as lhs, IndexValue() | Const() as rhs) if _is_index(lhs) and _is_index(rhs):
            return compare_indices(state, op, _as_poly(state, lhs, scope), _as_poly(state, rhs, scope), scope)
        case Compare("<" | "<=" | ">" | ">=" as op, Binary() as moved, limit) if (place := _moved(state, moved, scope)) is not None:
            return compare_moved(state, op, place, value(state, limit, scope), scope)
        case Compare("<" | "<=" | ">" | ">=" as op, limit, Binary() as moved) if (place := _moved(state, moved, scope)) is not None:
            return compare_moved(state, FLIPPED[op], place, value(state, limit, scope), scope)
        case Compare("<" | "<=" | ">" | ">=" as op, IndexValue(index), data):
            return compare_with_data(state, op, poly(state, index, scope), value(state, data, scope), scope)
        case Compare("<" | "<=" | ">" | ">=" as op, data, IndexValue(index)):
            return compare_with_data(state, FLIPPED[op], poly(state, index, scope), value(state, data, scope), scope)
        case Compare(op, Cast(dtype, Load() as narrow, False), Const(limit)) if dtype.is_integer:
            return compare_widened(state, op, value(state, narrow, scope), limit, dtype)
        case Compare(op, lhs, rhs):
            return arithmetic.compare(b, op, value(state, lhs, scope), value(state, rhs, scope))
        case Select() as choice if (simple := simplified(choice)) is not choice:
            return value(state, simple, scope)
        case Select(cond, then, orelse):
            return _select(state, value(state, cond, scope), then, orelse, scope)
        case Cast(dtype, Binary("+", Call("round", (x,)), Const(offset))) if _is_small(dtype, offset):
            return _rounded(state, x, int(offset), dtype, scope)
        case Cast(dtype, Call("round", (x,))) if _is_small(dtype, 0):
            return _rounded(state, x, 0, dtype, scope)
        case Cast(dtype, Call("round_bf16", (x,))) if dtype == bf16:
            return nearest_bf16(b, value(state, x, scope))
        case Call("round_bf16", (x,)):
            operand = value(state, x, scope)
            return cast(b, nearest_bf16(b, operand), operand.dtype, False)
        case Call("round_tf32", (x,)):
            return nearest_tf32(b, value(state, x, scope))
        case Cast(dtype, x, False) if dtype.is_integer and (known := scope.ranges.floats(x)) is not None and known.dtype in (f32, f64):
            operand = value(state, x, scope)
            return cast(b, operand, dtype, False) if isinstance(operand, Literal) else convert.float_to_int(b, operand, dtype, known)
        case Cast(dtype, x, saturate):
            return cast(b, value(state, x, scope), dtype, saturate)
        case Call("popcount", (x,)):
            return arithmetic.bit_count(b, value(state, x, scope))
        case Call("pow", (base, Const(exponent))) if exponent in math.POWERS:
            return math.power(b, value(state, base, scope), float(exponent))
        case Call(fn, args):
            return math.call(b, fn, same_lanes(b, *(value(state, a, scope) for a in args)))
        case Fma(x, y, z):
            return dot.multiply_add(b, value(state, x, scope), value(state, y, scope), value(state, z, scope))
        case Dot(count, x, y, z):
            total = value(state, z, scope)
            return dot.dot(b, _group(state, x, count, scope), _group(state, y, count, scope), total)
        case _:
            assert_never(e)


def _unsigned_quotient(state: State, op: Word["//", "%"], lhs: Expr, rhs: Expr, unsigned: DType, scope: Scope) -> Value:
    """Return a quotient or a remainder of integers that are not less than zero, divided as a type without a sign that has them: nothing is
    to be rounded down, and fewer bits divide sooner."""
    x, y = value(state, lhs, scope), value(state, rhs, scope)
    sides = (literal(v.number, unsigned) if isinstance(v, Literal) else cast(state.builder, v, unsigned, False) for v in (x, y))
    return cast(state.builder, arithmetic.binary(state.builder, op, *sides), x.dtype, False)


def _limits(e: Expr) -> tuple[Cast, list[tuple[BinaryOp, Const]]] | None:
    """Return an integer that is made i64 or i32, and the constants that then are its least or greatest, the first first; None for what is
    no such thing."""
    match e:
        case Cast(dtype, _, False) if dtype in (i64, i32):
            return e, []
        case Binary("min" | "max" as op, inner, Const() as limit) if (found := _limits(inner)) is not None:
            return found[0], [*found[1], (op, limit)]
        case _:
            return None


def _limited(state: State, wide: Cast, limits: Sequence[tuple[BinaryOp, Const]], scope: Scope) -> Value:
    """Return an integer within limits, as `wide` says: of more lanes at a time where its own type has the limits, too."""
    b, x = state.builder, value(state, wide.value, scope)
    if x.dtype in (f32, f64) and not isinstance(x, Literal):
        return _limited_float(b, x, wide, limits, scope)
    low, high = integer_range(x.dtype) if x.dtype.is_integer and not isinstance(x, Literal) else (0, -1)
    narrow = holds(wide.dtype, x.dtype) and all(low <= limit.value <= high for _, limit in limits)
    x = x if narrow else cast(b, x, wide.dtype, False)
    for op, limit in limits:
        x = arithmetic.binary(b, op, x, literal(limit.value, x.dtype))
    return cast(b, x, wide.dtype, False) if narrow else x


def _limited_float(b: Builder, x: Value, wide: Cast, limits: Sequence[tuple[BinaryOp, Const]], scope: Scope) -> Value:
    """Return a float as an integer within limits, of which those are asked for that the float may be beyond."""
    asked, found = list[tuple[BinaryOp, int]](), scope.ranges.of(wide)
    inside: Expr = wide
    for op, limit in limits:
        if found is None or (found.high > limit.value if op == "min" else found.low < limit.value):
            asked.append((op, int(limit.value)))
        inside = Binary(op, inside, limit)
        found = scope.ranges.of(inside)

    def within(n: int) -> int:
        for op, limit in asked:
            n = min(n, limit) if op == "min" else max(n, limit)
        return n

    is_least = within(integer_range(wide.dtype)[0]) == within(0)
    whole = convert.float_to_int(b, x, wide.dtype, scope.ranges.floats(wide.value), nan_as_least=is_least)
    for op, n in asked:
        whole = arithmetic.binary(b, op, whole, literal(n, whole.dtype))
    return whole


def _is_near(state: State, amount: Index, dtype: DType, scope: Scope) -> bool:
    """Tell whether a number of bits is known to be less than an integer type has."""
    bits, facts = poly(state, amount, scope), state.builder.facts
    return dtype.is_integer and facts.at_least(bits, 0) and facts.at_most(bits, dtype.bits - 1)


def _is_small(dtype: DType, offset: float) -> bool:
    """Tell whether the range of an integer type moved by a whole number is exact in f32."""
    return dtype.is_integer and dtype.bits <= 16 and float(offset).is_integer() and abs(offset) < 1 << 20


def _rounded(state: State, e: Expr, offset: int, dtype: DType, scope: Scope) -> Value:
    x = value(state, e, scope)
    if x.dtype == f32 and not isinstance(x, Literal):
        return convert.rounded(state.builder, x, offset, dtype)
    whole = math.call(state.builder, "round", (x,))
    return cast(state.builder, arithmetic.binary(state.builder, "+", whole, literal(float(offset), x.dtype)), dtype, False)


def read(state: State, storage: Storage, index: tuple[Index, ...], scope: Scope, beside: memory.Beside = memory.nothing_beside) -> Value:
    """Return an element of a buffer, or one per lane. `beside`: what is surely read next to it, if anything."""
    if isinstance(storage, Registers):
        return registers.read(state, storage, address(state, storage, index, scope), scope)
    if isinstance(storage, Tiles):
        raise EmitError(f"`{storage.buffer.name}` is in tiles, which only products of tiles and whole copies touch")
    places = tuple(poly(state, i, scope) for i in index)
    if state.record is not None and not table_size(state.builder, storage, places, scope):
        apart = memory.lane_reads(state.builder, storage.dtype, storage.place(places), scope)
        if apart is not None:
            state.record.reads[Load(storage.buffer.name, index)] = apart
    return memory.load(state, storage, places, scope, beside)


def _beside(state: State, e: Load, scope: Scope) -> tuple[int, int]:
    """Return how many elements before and behind the one that a lane reads copies of an unrolled loop around read in the same lane."""
    storage, below, above = scope.buffers[e.buffer], 0, 0
    at = address(state, storage, e.index, scope)
    for copies in scope.copies:
        if e in copies.loads and copies.limit is None and copies.var in free_vars(e.index[-1]):
            here = scope.vars[copies.var]

            def is_next(k: int, copies: Copies = copies, here: Poly = here) -> bool:
                there = replace(scope, vars={**scope.vars, copies.var: here + number(k)})
                return address(state, storage, e.index, there) == at + number(k)

            below = max(below, sum(1 for _ in takewhile(is_next, range(-1, -copies.step - 1, -1))))
            above = max(above, sum(1 for _ in takewhile(is_next, range(1, copies.count - copies.step))))
    return below, above


def _where_read(state: State, e: Load, scope: Scope) -> Scope:
    """Return where `e` is read: under no condition but those of the loops around where it lies in its buffer whether or not one holds, and
    lanes are near each other. What no lane needs is then read with what others do, and thrown away."""
    storage, lanes, b = scope.buffers[e.buffer], scope.lanes, state.builder
    least = None if lanes is None else lanes.mask
    if not isinstance(storage, Memory) or (scope.mask, scope.guard, scope.vector_guard) == (least, None, None):
        return scope
    runs = lanes is None or lanes.length is None or b.facts.at_least(lanes.length, 1)
    if not runs or not free_vars(*storage.buffer.shape) <= scope.vars.keys():
        return scope
    for i, extent in zip(e.index, storage.buffer.shape, strict=True):
        place = poly(state, i, scope)
        if not b.facts.at_least(place, 0) or not b.facts.at_least(poly(state, extent, scope) - place, 1):
            return scope
    anywhere = replace(scope, mask=least, guard=None, vector_guard=None)
    distance = lane_stride(address(state, storage, e.index, scope), lanes, b)
    is_near = distance is not None and abs(distance) <= MOST_ELEMENTS
    return anywhere if is_near or _picked(state, e, anywhere) is not None else scope


def _group(state: State, e: Load, count: int, scope: Scope) -> dot.Group:
    """Return `count` elements from `e` on, next to each other, as one number of 32 bits, or one per lane."""
    b, storage = state.builder, scope.buffers[e.buffer]
    if isinstance(storage, Memory):
        return dot.Group(storage.dtype, memory.load_group(state, storage, address(state, storage, e.index, scope), count, scope))
    parts = [read(state, storage, (*e.index[:-1], Add(e.index[-1], Int(r))), scope) for r in range(count)]
    return dot.Group(storage.dtype, dot.gathered(b, parts))


def _turned(state: State, e: Load, scope: Scope) -> Value | None:
    """Return a vector across rows that the copies of the unrolled loop around load together, or None where they do not: as many copies as
    there are lanes, or any number where rows are too far apart to pick what lanes read from whole vectors."""
    storage, lanes = scope.buffers[e.buffer], scope.lanes
    copies = next((c for c in scope.copies if e in c.loads), None)
    if copies is None or lanes is None or lanes.count & (lanes.count - 1) or not isinstance(storage, Memory):
        return None
    if not memory.takes_first_lanes(scope) or scope.vector_guard is not None or (scope.mask is None and scope.guard is not None):
        return None
    corner = address(state, storage, e.index, scope) - number(copies.step)
    if not has_rows(corner, lanes, state.builder, copies.count):
        return None
    first = scope.vars[copies.var] - number(copies.step)

    def is_column(k: int) -> bool:
        there = replace(scope, vars={**scope.vars, copies.var: first + number(k)})
        return address(state, storage, e.index, there) == corner + number(k)

    # Each of them is asked: a minimum, or a remainder, may make neighbours of some copies alone.
    return memory.load_transposed(state, storage, corner, scope, copies, lambda: all(map(is_column, range(copies.count))))


def _picked(state: State, e: Load, scope: Scope) -> Value | None:
    """Return a vector whose lanes lie in an order that is known, near each other as at the edge of an array, or in few groups of lanes that
    do, as where rows are interleaved; None where that is not so."""
    storage, lanes = scope.buffers[e.buffer], scope.lanes
    if lanes is None or not isinstance(storage, Memory) or not memory.takes_first_lanes(scope) or not any(map(_steps, e.index)):
        return None
    count = lanes.count if scope.mask is None else lanes.active
    along = [name for name, p in scope.vars.items() if lanes.atom in p.atoms()]
    if count is None or len(along) != 1 or along[0] not in free_vars(*e.index):
        return None
    first = scope.vars[along[0]] - atom_poly(lanes.atom)
    order = [0] * count
    for i, stride in zip(e.index, storage.strides, strict=True):
        if along[0] in free_vars(i):
            known = tuple((name, p.constant) for name in sorted(free_vars(i)) if (p := scope.vars[name]).constant is not None)
            apart = None if first.constant is None or stride.constant is None else _apart(i, along[0], first.constant, count, known)
            if apart is None:
                return None
            order = [offset + stride.offset * step for offset, step in zip(order, apart, strict=True)]
    if not memory.is_picked(order, lanes.count) or order == list(range(count)):
        return None
    start = address(state, storage, e.index, replace(scope, vars={**scope.vars, along[0]: first})) + number(min(order))
    if any(state.builder.facts.atoms[a].lanes for a in start.atoms()):
        return None  # data name another place for each lane
    return memory.load_picked(state, storage, start, [offset - min(order) for offset in order], scope)


@lru_cache(maxsize=4096)
def _steps(e: Index) -> tuple[Index, ...]:
    """Return the parts of an index that are no polynomials."""
    return tuple(n for n in walk(e) if isinstance(n, Min | Max | Mod | FloorDiv | ValueIndex))


@lru_cache(maxsize=4096)
def _apart(e: Index, lane: str, first: int, count: int, known: tuple[tuple[str, int], ...]) -> tuple[int, ...] | None:
    """Return how far `e` is, for each lane, from what it is for the first; None where that depends on more than is known."""
    names = {lane, *(name for name, _ in known)}
    uneven = [n for n in walk(e) if isinstance(n, Mul) or n in _steps(e)]
    if any(lane in (used := free_vars(n)) and not used <= names for n in uneven) or any(isinstance(n, ValueIndex) for n in _steps(e)):
        return None
    sizes = {**dict.fromkeys(free_vars(e), 0), **dict(known)}
    places = [evaluate(e, {**sizes, lane: first + k}) for k in range(count)]
    return tuple(place - places[0] for place in places)


def address(state: State, storage: Storage, index: tuple[Index, ...], scope: Scope) -> Poly:
    """Return the position of an element, counted in elements from the start of the buffer."""
    total = ZERO
    for i, stride in zip(index, storage.strides, strict=True):
        place = poly(state, i, scope)
        total = total + place * stride if stride.constant is None else total.plus(place, stride.constant)
    return total


def row_major(shape: tuple[Poly, ...]) -> tuple[Poly, ...]:
    """Return the strides of a dense buffer of `shape`."""
    strides = [ONE]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(shape)]))


def _lazy(state: State, op: str, lhs: Expr, rhs: Expr, scope: Scope) -> Value:
    """Return `lhs and rhs` (`or`), reading memory for `rhs` only where it decides."""
    b = state.builder
    left = value(state, lhs, scope)
    if isinstance(left, Literal):
        return left if bool(left.number) == (op == "or") else value(state, rhs, scope)
    decides = left if op == "and" else arithmetic.negated(b, left)
    right = value(state, rhs, _under(state, decides, scope) if _reads_memory(rhs, scope) else scope)
    if isinstance(right, Literal):
        return right if bool(right.number) == (op == "or") else left
    if op == "and" and left.lanes == right.lanes and all(known_lanes(side.text, side.lanes) is not None for side in (left, right)):
        return Value(bool_, common(b, left.text, right.text, left.lanes), left.lanes)
    # A select keeps a poisoned right side out when the left one decides.
    known = literal(op == "or", bool_)
    if op == "or":
        return arithmetic.select(b, left, known, right)
    both = arithmetic.select(b, left, right, known)
    if left.lanes and right.lanes:
        note_common(b, both.text, left.text, right.text)
    return both


def _select(state: State, cond: Value, then: Expr, orelse: Expr, scope: Scope) -> Value:
    b = state.builder
    if isinstance(cond, Literal):
        return value(state, then if cond.number else orelse, scope)
    if not cond.lanes and (is_heavy(then) or is_heavy(orelse)):
        return _branch(state, cond, then, orelse, scope)
    x = value(state, then, _under(state, cond, scope) if _reads_memory(then, scope) else scope)
    y = value(state, orelse, _under(state, arithmetic.negated(b, cond), scope) if _reads_memory(orelse, scope) else scope)
    return arithmetic.select(b, cond, x, y)


def _branch(state: State, cond: Value, then: Expr, orelse: Expr, scope: Scope) -> Value:
    """Return the chosen side; the other one is jumped over."""
    b = state.builder
    yes, no, end = b.fresh_label("then"), b.fresh_label("else"), b.fresh_label("end")
    b.open_placeholder()
    b.write(f"br i1 {cond.text}, label %{yes}, label %{no}")
    lanes = scope.lanes.count if scope.lanes is not None else 0
    sides: list[tuple[Value, str]] = []
    for label, side in ((yes, then), (no, orelse)):
        b.enter()
        b.start(label)
        result = value(state, side, scope)
        result = splat(b, result, lanes) if lanes else result
        sides.append((result, b.label))
        b.write(f"br label %{end}")
        b.leave()
    b.region.placeholder = None
    b.start(end)
    arms = ", ".join(f"[ {v.text}, %{label} ]" for v, label in sides)
    first = sides[0][0]
    return Value(first.dtype, b.op(f"phi {first.type} {arms}"), first.lanes)


def _under(state: State, cond: Value, scope: Scope) -> Scope:
    """Return the scope of what is evaluated only where `cond` holds."""
    b = state.builder
    if not cond.lanes:
        return replace(scope, guard=_both(b, scope.guard, cond.text), vector_guard=_both(b, scope.vector_guard, cond.text))
    return masked(state, cond, scope)


def masked(state: State, cond: Value, scope: Scope) -> Scope:
    """Return the scope of the lanes in which `cond` holds; it may be none of them, where that is not known."""
    b = state.builder
    mask = mask_and(b, scope.mask, cond.text, cond.lanes)
    known = known_lanes(mask, cond.lanes)
    if known is not None and any(known):
        return replace(scope, mask=mask, guard=scope.vector_guard)
    return replace(scope, mask=mask, guard=_both(b, scope.vector_guard, any_lane(b, mask, cond.lanes)))


def any_lane(b: Builder, mask: str, lanes: int) -> str:
    """Return whether a lane takes part."""
    kind = of_lanes("i1", lanes)
    fn = b.declare(f"llvm.vector.reduce.or.v{lanes}i1", f"i1 @({kind})")
    return b.pure(f"call i1 {fn}({kind} {mask})")


def _both(b: Builder, guard: str | None, cond: str) -> str:
    return cond if guard is None else b.pure(f"and i1 {guard}, {cond}")


def _reads_memory(node: Node, scope: Scope) -> bool:
    if isinstance(node, Load) and isinstance(scope.buffers[node.buffer], Memory):
        return True
    return any(_reads_memory(child, scope) for child in children(node))


def is_heavy(e: Expr) -> bool:
    """Tell whether a branch, which the processor may guess wrong, is cheaper than evaluating `e` for nothing. Where elements lie costs
    little."""
    nodes = [n for n in walk(e) if not isinstance(n, Index)]
    return len(nodes) > MOST_IN_VAIN or any(isinstance(n, Call) for n in nodes)


# ---------------------------------------------------------------- comparisons of indices


def _is_index(e: IndexValue | Const) -> bool:
    return isinstance(e, IndexValue) or e.dtype == i64


def _as_poly(state: State, e: IndexValue | Const, scope: Scope) -> Poly:
    return poly(state, e.index, scope) if isinstance(e, IndexValue) else number(int(e.value))


def _inside(state: State, cond: Binary, scope: Scope) -> Value | None:
    """Return whether `0 <= x < end`, asked at once: without its sign a number less than 0 is a large one. None where that is no question of
    whole numbers and an end that is none less than 0."""
    b, asked = state.builder, range_of_condition(cond)
    if asked is None:
        return None
    x, low, end = asked
    match low, end:
        case Const(0), Const(int() as limit, dtype) if dtype == i64 and limit > 0:
            while isinstance(x, Cast) and x.dtype == i64 and not x.saturate:
                x = x.value
            of = value(state, x, scope)
            if of.dtype.kind == "int" and limit <= 1 << of.dtype.bits - 1 and not isinstance(of, Literal):
                unsigned = DTYPES[f"u{of.dtype.bits}"]
                return arithmetic.compare(b, "<", replace(of, dtype=unsigned), literal(limit, unsigned))
        case Const(0), IndexValue(index) if b.facts.at_least(size := poly(state, index, scope), 0):
            of = value(state, x, scope)
            if of.dtype == i64 and not isinstance(of, Literal):
                return arithmetic.compare(b, "<", replace(of, dtype=u64), replace(index_value(state, size, scope), dtype=u64))
        case _:
            pass
    return None


def _is_short(e: Expr, scope: Scope) -> bool:
    """Tell whether a value has so few bits that an index to which it is added wraps nowhere."""
    match e:
        case Load(buffer):
            dtype = scope.buffers[buffer].dtype
        case Name(name):
            dtype = scope.lets[name].dtype
        case _:
            return False
    return not dtype.is_float and dtype.bits <= 32


def _moved(state: State, e: Binary, scope: Scope) -> Moved | None:
    """Return an index that is moved by few bits, None for another value."""
    match e:
        case Binary("+" | "-" as sign, IndexValue(index), Cast(_, x) as by) | Binary("+" as sign, Cast(_, x) as by, IndexValue(index)):
            return Moved(poly(state, index, scope), sign, value(state, by, scope)) if _is_short(x, scope) else None
        case _:
            return None


# ---------------------------------------------------------------- indices


@lru_cache(maxsize=4096)
def _linear(e: Index) -> tuple[tuple[tuple[str, int], ...], int] | None:
    """Return the variables of a sum, each with its factor, and what is added; None for another index."""
    match e:
        case Int(n):
            return (), n
        case Var(name):
            return ((name, 1),), 0
        case Add(lhs, rhs):
            left, right = _linear(lhs), _linear(rhs)
            return None if left is None or right is None else ((*left[0], *right[0]), left[1] + right[1])
        case Mul(Int(n), factor) | Mul(factor, Int(n)):
            found = _linear(factor)
            return None if found is None else (tuple((name, n * scale) for name, scale in found[0]), n * found[1])
        case _:
            return None


def poly(state: State, e: Index, scope: Scope) -> Poly:
    """Return an index expression as a polynomial; operations that are not polynomial become atoms."""
    linear = _linear(e)
    if linear is not None:
        total = number(linear[1])
        for name, scale in linear[0]:
            total = total.plus(scope.vars[name], scale)
        return total
    match e:
        case Int(n):
            return number(n)
        case Var(name):
            return scope.vars[name]
        case Add(lhs, rhs):
            return poly(state, lhs, scope) + poly(state, rhs, scope)
        case Mul(lhs, rhs):
            return poly(state, lhs, scope) * poly(state, rhs, scope)
        case FloorDiv(lhs, rhs):
            return floor_div(state, poly(state, lhs, scope), poly(state, rhs, scope), scope)
        case Mod(lhs, rhs):
            return mod(state, poly(state, lhs, scope), poly(state, rhs, scope), scope)
        case Min(lhs, rhs):
            return extremum(state, "smin", poly(state, lhs, scope), poly(state, rhs, scope), scope)
        case Max(lhs, rhs):
            return extremum(state, "smax", poly(state, lhs, scope), poly(state, rhs, scope), scope)
        case ValueIndex(IndexValue(index)):
            return poly(state, index, scope)
        case ValueIndex(Binary("+", data, IndexValue(index)) | Binary("+", IndexValue(index), data)):
            # What is added is so small that a sum which wraps is no index: it is one exactly where both sides are added up.
            return poly(state, ValueIndex(data), scope) + poly(state, index, scope)
        case ValueIndex(Binary("-", IndexValue(index), data)):
            return poly(state, index, scope) - poly(state, ValueIndex(data), scope)
        case ValueIndex(Binary("+" | "-" as op, data, Const(int(step), dtype))) if dtype == i64 and abs(step) <= _SMALL_STEP:
            return poly(state, ValueIndex(data), scope) + number(step if op == "+" else -step)
        case ValueIndex(inner):
            return loaded(state, _before_widening(state, inner, scope), *_bounds_of_element(state, inner, scope))
        case _:
            assert_never(e)


def _before_widening(state: State, e: Expr, scope: Scope) -> Value:
    """Return the integer that `e` is, of the type it has before it becomes an index."""
    match e:
        case Cast(dtype, inner) if dtype == i64 and scope.lanes is not None:
            narrow = value(state, inner, scope)
            if narrow.dtype.is_integer and narrow.dtype.bits < i64.bits and not isinstance(narrow, Literal):
                return narrow
    return value(state, e, scope)


def _bounds_of_element(state: State, e: Expr, scope: Scope) -> tuple[tuple[Poly, ...], tuple[Poly, ...]]:
    """Return bounds, inclusive, of an element of a parameter whose elements were checked, where it is read whatever is asked around."""
    match e:
        case Cast(dtype, Load() as load) if dtype == i64:
            pass
        case Load() as load:
            pass
        case _:
            return (), ()
    if load.buffer not in scope.elements or scope.lanes is not None:
        return (), ()
    where = _where_read(state, load, scope)
    if where.guard is not None or where.vector_guard is not None:
        return (), ()  # a spare element is read where the condition is false
    low, high = (poly(state, end, scope) for end in scope.elements[load.buffer])
    return (low,), (high - ONE,)
