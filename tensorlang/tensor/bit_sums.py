"""Take the bits of a number all at once, where a reduction goes through them one by one.

    before   y[i] = sum(k in 0..32) i32(bitand(shr(x[i], u32(k)), 1))
             z[i] = sum(k in 0..32) i64(shr(x[i], u32(k)) != 0)
             f[i] = min(k in 0..32, bitand(x[i], shl(1, u32(k))) != 0, from 32) k
    after    y[i] = i32(popcount(x[i]))
             z[i] = i64(popcount(filled(x[i])))                     every bit below the highest 1 set, and that itself
             f[i] = if x[i] == 0 then 32 else popcount(bitnot(x[i]) & (x[i] - 1))

What is asked for each value of a binder are bits of one word, where it combines bits of words that the binder does not choose: sums then
count the ones of that word, `any` and `all` compare it, `min` and `max` of the binder are the places of its lowest and highest 1.
Integers are counted modulo their type, as sums are; floats only where a sum is of nothing else, and so exact. Nothing is read at places
from data that only some bits ask for. `popcount` is written as sums of neighbouring bits, then of pairs, then of fours
(`codegen.loops.bit_counts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import dropwhile
from operator import or_

from codegen.dtypes import DType, i64, limits, u8, u16, u32, u64
from polyhedral import affine
from polyhedral.expr import TRUE, Int
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import has_gather
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import (
    MIRRORED,
    Binary,
    Binder,
    Cast,
    Compare,
    Const,
    Definition,
    Expr,
    IndexValue,
    Let,
    Name,
    Program,
    Reduce,
    Select,
    Unary,
)
from tensorlang.tensor.types import Types, dtype_of, scalar_dtype, types_of
from tensorlang.tensor.walk import (
    Fresh,
    chained,
    fresh_for,
    index_names,
    map_children,
    map_pieces,
    nodes,
    operands,
    reduces,
    substitute_names,
)

WORDS = {dtype.bits: dtype for dtype in (u8, u16, u32, u64)}
IS_ONE, IS_ZERO = {("!=", 0), ("==", 1), (">", 0), (">=", 1)}, {("==", 0), ("!=", 1), ("<", 1), ("<=", 0)}


def with_bit_sums(program: Program) -> Program:
    """Return `program` with such reductions taken at once; every result stays the same, bit for bit."""
    if not any(map(_has_bits, program.definitions)):
        return program
    at_once = _AtOnce(types_of(program), fresh_for(program))
    return redefined(program, (map_pieces(d, at_once.expr) if _has_bits(d) else d for d in program.definitions))


def _has_bits(definition: Definition) -> bool:
    return any(_may_ask(e) for p in definition.pieces for e in reduces(p.value))


def _may_ask(e: Reduce) -> bool:
    """Tell whether a reduction shifts by something, of which a binder takes no more values than numbers have bits."""
    short = any(b.extent is not None and b.extent <= max(WORDS) for b in e.binders)
    parts = (*e.body, *(() if e.filter is None else (e.filter,)))
    return short and any(isinstance(n, Binary) and n.op in ("shl", "shr") for part in parts for n in nodes(part))


@dataclass(frozen=True, slots=True)
class _Bits:
    """What is 0 or 1, or false or true, for each value v of a binder: bit `scale * v + offset` of a word, which is the same for all."""

    word: Expr
    dtype: DType
    scale: int
    offset: int

    def map(self, f: Callable[[Expr], Expr]) -> _Bits:
        return replace(self, word=f(self.word))

    def with_(self, op: str, other: _Bits | None) -> _Bits | None:
        if other is None or replace(other, word=self.word) != self:
            return None
        return self.map(lambda word: Binary("bitand" if op == "and" else "bitor", word, other.word))


@dataclass(frozen=True, slots=True)
class _AtOnce:
    types: Types
    fresh: Fresh

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Let):
            inside = replace(self, types=self.types.bind([e.name], [dtype_of(e.value, self.types)]))
            return replace(e, value=self.expr(e.value), body=inside.expr(e.body))
        e = map_children(self.expr, e)
        if not isinstance(e, Reduce) or len(e.body) > 1 or not _may_ask(e):
            return e
        for binder in e.binders:
            found = self._taken(e, binder)
            if found is not None:
                return self.expr(found) if isinstance(found, Reduce) else found
        return e

    def _taken(self, e: Reduce, binder: Binder) -> Expr | None:
        """Return what a reduction comes to without one of its binders, None where that does not only choose bits."""
        k, low, count = binder.name, affine.constant(binder.lo), binder.extent
        others = tuple(b for b in e.binders if b is not binder)
        bounds = {n for b in others for bound in (b.lo, b.hi) for n in affine.names(bound)}
        if low is None or count is None or count < 1 or k in bounds or k in affine.name_set(e.where):
            return None
        if not others and e.where != TRUE:
            return None
        conditions = list(operands("and", e.filter)) if e.filter is not None else []
        after_bits = list(dropwhile(lambda c: k not in index_names(c), conditions))[1:]
        if any(map(has_gather, after_bits)) or (any(k in index_names(c) for c in conditions) and any(map(has_gather, e.body))):
            return None
        asked = [c for c in conditions if k in index_names(c)]
        rest = [c for c in conditions if k not in index_names(c)]
        values = range(low, low + count)
        match e.reducer.kind:
            case "sum":
                value = self._sum(e, k, values, asked, alone=not others)
            case "any" | "all" as kind:
                negated = [Unary("not", e.body[0])] if kind == "all" else [e.body[0]]
                word = self._word(k, values, [*asked, *negated])
                value = None if word is None else Compare("!=" if kind == "any" else "==", word[0], Const(0, word[1]))
            case "min" | "max" if not others and asked:
                return self._place(e, k, values, asked, rest)
            case _:
                return None
        if value is None:
            return None
        if others:
            return replace(e, binders=others, body=(value,), filter=chained("and", rest, e.span) if rest else None)
        if rest and e.reducer.identity is not None:
            value = Select(chained("and", rest, e.span), value, e.reducer.identity[0], span=e.span)
        elif rest:
            return None
        if e.init is None:
            return value
        return Binary("+" if e.reducer.kind == "sum" else "or" if e.reducer.kind == "any" else "and", e.init[0], value, span=e.span)

    def _sum(self, e: Reduce, k: str, values: range, asked: list[Expr], alone: bool) -> Expr | None:
        [dtype] = e.reducer.dtypes
        factors = list(operands("*", e.body[0]))
        chosen = [f for f in factors if k in index_names(f)]
        rest = [f for f in factors if k not in index_names(f)]
        one = all(isinstance(f, Const) and f.value == 1 for f in rest)
        if not dtype.is_integer and not (one and alone and e.init is None):
            return None
        word = self._word(k, values, [*asked, *chosen])
        if word is None:
            return None
        count = Cast(dtype, self._popcount(*word), span=e.span)
        return count if one else Binary("*", count, reduce(lambda a, b: Binary("*", a, b), rest), span=e.span)

    def _place(self, e: Reduce, k: str, values: range, asked: list[Expr], rest: list[Expr]) -> Expr | None:
        """Return the lowest, or the highest, value of a binder for which a bit is 1, together with what the reduction begins with."""
        start = e.init or e.reducer.identity
        bits, [body], [into] = self._bits(asked, k, values), e.body, e.reducer.dtypes
        number = body.value if isinstance(body, Cast) and into.is_integer else body
        if start is None or bits is None or bits.scale != 1 or number != IndexValue(AffineName(k)) or not _fits(values, into):
            return None
        u, lowest, dtype = Name(self.fresh("u")), e.reducer.kind == "min", bits.dtype
        below = Binary("bitand", Unary("bitnot", u), Binary("-", u, Const(1, dtype)))
        before = self._popcount(below if lowest else self._filled(u, dtype), dtype)
        place: Expr = Binary("-", Cast(i64, before), Const(bits.offset + (not lowest), i64))
        place = place if into == i64 else Cast(into, place)
        place = place if e.init is None else Binary("min" if lowest else "max", start[0], place)
        found = Let(u.name, _masked(bits, values), Select(Compare("!=", u, Const(0, dtype)), place, start[0]), span=e.span)
        return Select(chained("and", rest, e.span), found, start[0], span=e.span) if rest else found

    def _word(self, k: str, values: range, asked: Iterable[Expr]) -> tuple[Expr, DType] | None:
        bits = self._bits(asked, k, values)
        return None if bits is None else (_masked(bits, values), bits.dtype)

    def _bits(self, asked: Iterable[Expr], k: str, values: range) -> _Bits | None:
        """Return the bits that say where all of some are one."""
        found: _Bits | None = None
        for e in asked:
            bits = self._of(_with_constants(e), k, values)
            found = bits if found is None or bits is None else found.with_("and", bits)
            if found is None:
                return None
        return found

    def _of(self, e: Expr, k: str, values: range) -> _Bits | None:
        match e:
            case Cast(value=value, saturate=False):
                return self._of(value, k, values)
            case Let(name, value, body):
                return self._of(substitute_names(body, {name: value}), k, values)
            case Unary("not", value):
                bits = self._of(value, k, values)
                return None if bits is None else bits.map(lambda word: Unary("bitnot", word))
            case Binary("and" | "or" as op, lhs, rhs) if not has_gather(rhs):
                bits = self._of(lhs, k, values)
                return None if bits is None else bits.with_(op, self._of(rhs, k, values))
            case Select(cond, Const(then), Const(orelse)) if {then, orelse} == {0, 1}:
                return self._of(cond if then == 1 else Unary("not", cond), k, values)
            case Binary("bitand", Const(1), Binary("shr", word, by)) | Binary("bitand", Binary("shr", word, by), Const(1)):
                return self._at(word, by, k, values)
            case Binary("%", Binary("shr", word, by), Const(2)):
                return self._at(word, by, k, values)
            case Compare(op, Const() as lhs, rhs) if not isinstance(rhs, Const):
                return self._compared(MIRRORED[op], rhs, lhs, k, values)
            case Compare(op, lhs, rhs):
                return self._compared(op, lhs, rhs, k, values)
            case _:
                return None

    def _compared(self, op: str, lhs: Expr, rhs: Expr, k: str, values: range) -> _Bits | None:
        number = int(rhs.value) if isinstance(rhs, Const) and rhs.dtype.is_integer else None
        equal = op in ("==", "!=")
        match lhs:
            case Binary("bitand", Binary("shl", Const(1), by) as one, word) | Binary(
                "bitand", word, Binary("shl", Const(1), by) as one
            ) if equal and (rhs == one or number == 0):
                bits, number = self._at(word, by, k, values), int(rhs == one)
            case Binary("shr", word, by) if equal and number == 0:
                bits = self._at(word, by, k, values)
                bits = None if bits is None else replace(bits, word=self._filled(bits.word, bits.dtype))
            case _:
                bits = self._of(lhs, k, values)
        if bits is None or number is None or (op, number) not in IS_ONE | IS_ZERO:
            return None
        return bits if (op, number) in IS_ONE else bits.map(lambda word: Unary("bitnot", word))

    def _at(self, word: Expr, by: Expr, k: str, values: range) -> _Bits | None:
        """Return the bits of a word, shifted by what a binder says."""
        dtype = scalar_dtype(word, self.types)
        shift = by.value if isinstance(by, Cast) else by
        form = affine.affine_form(shift.index) if isinstance(shift, IndexValue) else None
        if form is None or dtype.bits not in WORDS or not dtype.is_integer or k in index_names(word):
            return None
        terms, offset = form
        scale = terms.get(k, 0)
        places = [scale * v + offset for v in values]
        if set(terms) != {k} or scale == 0 or not all(0 <= place < dtype.bits for place in places):
            return None
        as_word = WORDS[dtype.bits]
        return _Bits(word if dtype == as_word else Cast(as_word, word), as_word, scale, offset)

    def _popcount(self, word: Expr, dtype: DType) -> Expr:
        """Return how many bits of a word are 1, as `popcount` of `std.bits` is written."""
        u, a, b = map(self.fresh, ("u", "a", "b"))
        halves = Binary("-", Name(u), Binary("bitand", _shr(Name(u), 1, dtype), _every(dtype, 3)))
        pairs = Binary("+", Binary("bitand", Name(a), _every(dtype, 5)), Binary("bitand", _shr(Name(a), 2, dtype), _every(dtype, 5)))
        fours: Expr = Binary("bitand", Binary("+", Name(b), _shr(Name(b), 4, dtype)), _every(dtype, 17))
        if dtype.bits > 8:
            fours = _shr(Binary("*", fours, _every(dtype, 255)), dtype.bits - 8, dtype)
        return Let(u, word, Let(a, halves, Let(b, pairs, fours)))

    def _filled(self, word: Expr, dtype: DType) -> Expr:
        """Return a word with all bits set below the highest 1, and that itself."""
        steps = [1 << s for s in range(dtype.bits.bit_length() - 1)]
        names = [self.fresh("u") for _ in steps]
        value: Expr = _filled_once(Name(names[-1]), steps[-1], dtype)
        for name, before, step in reversed(list(zip(names[1:], names, steps, strict=False))):
            value = Let(name, _filled_once(Name(before), step, dtype), value)
        return Let(names[0], word, value)


def _with_constants(e: Expr) -> Expr:
    """Return an expression whose constant indices are numbers as others."""
    match e:
        case IndexValue(Int(number)):
            return Const(number, i64, span=e.span)
        case _:
            return map_children(_with_constants, e)


def _filled_once(word: Expr, by: int, dtype: DType) -> Expr:
    return Binary("bitor", word, _shr(word, by, dtype))


def _fits(values: range, dtype: DType) -> bool:
    """Tell whether a type has all of some numbers, and so their order."""
    low, high = limits(dtype)
    return bool(low <= values[0] and values[-1] <= high)


def _masked(bits: _Bits, values: range) -> Expr:
    """Return the word of which those bits are 0 that stand for no value of the binder."""
    mask = reduce(or_, (1 << (bits.scale * v + bits.offset) for v in values))
    whole = mask == int(limits(bits.dtype)[1])
    return bits.word if whole else Binary("bitand", bits.word, Const(mask, bits.dtype))


def _every(dtype: DType, divisor: int) -> Const:
    """Return a mask of one bit, or of some, in every so many: all bits, divided."""
    return Const(int(limits(dtype)[1]) // divisor, dtype)


def _shr(e: Expr, by: int, dtype: DType) -> Expr:
    return Binary("shr", e, Const(by, dtype))
