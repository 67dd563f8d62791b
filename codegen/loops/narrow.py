"""Compute in 32 bits, and in vectors in 16, what is known to fit.

    before   at[0] = min(max(i64(x[i]), 0_i64), 255_i64)            alloc at: i64[1] registers
    after    at[0] = min(max(i32(x[i]), 0_i32), 255_i32)            alloc at: i32[1] registers, read as i64(at[0])

    before   y[i] = u8((i32(x[i]) * 3_i32 + i32(x[i + 1])) // 4_i32)
    after    y[i] = u8((i16(x[i]) * 3_i16 + i16(x[i + 1])) // 4_i16)

A register has twice as many lanes of half the bits, and few processors convert lanes of floats to 64. What becomes narrow is an integer of
twice as many bits in one of two forms, which are one where the value fits:

    what is left of it       its lowest bits. Those of sums, differences, products and of what is done to bits are made of those of
                             their sides.
    what it is limited to    the nearest number that the narrow type has: of the conversion of a float what the conversion to that
                             type gives, of a minimum, a maximum or a choice what is made of their limited sides.

Where both sides and the result fit, quotients, remainders and comparisons are those of the narrow values. So every value stays what it was,
bit for bit.

Names and buffers that a function has for itself become narrow where all that is bound or stored fits, and elements of parameters are cut
where the function has asked for their range. What is loaded otherwise stays as wide. In 16 bits, which only vectors have faster, what
becomes a wider number again stays as it is, but for quotients by numbers that are known. So does in 32 bits what no lanes compute of
elements that were to be cut, as the place of an element, but for quotients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from codegen.dtypes import DType, holds, i16, i32, limits, u16, u32
from codegen.loops.nodes import (
    Alloc,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Function,
    Index,
    IndexValue,
    Let,
    Load,
    Name,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
)
from codegen.loops.value_ranges import Numbers, ValueRanges, Whole, value_ranges
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import K, Node, children, map_expr, map_index, map_stmt, statements, walk

TYPES: Mapping[int, tuple[DType, DType]] = {32: (i32, u32), 16: (i16, u16)}
"""Bits → the types that integers of twice as many become, the one with a sign first: it is converted to floats sooner."""


def narrowed(function: Function) -> Function:
    """Return `function` with the integers of 64 bits that are known to fit in 32 computed in those, and in vectors those of 32 that fit
    in 16; parameters stay as they are."""
    for bits in TYPES:
        function = _in_bits(function, bits)
    return function


def _in_bits(function: Function, bits: int) -> Function:
    every = [*statements(*function.body)]
    env = _types(function, every)
    if env is None or (bits < 32 and not any(_is_vector(s) for s in every)):
        return function
    ranges, alone = value_ranges(function), _outside_of_vectors(function)
    own = {s.buffer.name for s in every if isinstance(s, Alloc) and _is_own(s.buffer)} - (alone if bits < 32 else set())
    found = _Narrow(bits, ranges, env, alone, {}, {})
    found = replace(found, buffers=found.types_for(own, ranges.buffers))
    bound = {s.name for s in every if isinstance(s, Let)} - (alone if bits < 32 else set())
    found = found.with_names(found.types_for(bound, ranges.names), every)
    body = tuple(map(found.stmt, function.body))
    taken = _taken_narrow(body) if bits < 32 else found.names.keys()
    if taken >= found.names.keys():
        return replace(function, body=body)
    found = found.with_names({name: to for name, to in found.names.items() if name in taken}, every)
    return replace(function, body=tuple(map(found.stmt, function.body)))


def _taken_narrow(body: Iterable[Stmt]) -> frozenset[str]:
    """Return the names that something takes other than a conversion to a wider type."""
    nodes = [n for n in walk(*body) if not (isinstance(n, Cast) and n.dtype.bits >= 32)]
    return frozenset(e.name for n in nodes for e in children(n) if isinstance(e, Name))


def _is_own(buffer: Buffer) -> bool:
    return buffer.space in ("registers", "stack", "heap") and not buffer.notes


def _is_vector(s: Node) -> bool:
    return isinstance(s, For) and s.kind == "vector"


def _outside_of_vectors(function: Function) -> frozenset[str]:
    """Return the names and buffers that are bound, stored or read where no lanes run."""

    def without(s: Stmt) -> Stmt:
        return replace(s, body=()) if isinstance(s, For) and s.kind == "vector" else map_stmt(s, _same, _same, without)

    rest = [*walk(*map(without, function.body))]
    return frozenset(n.buffer for n in rest if isinstance(n, Load | Store)) | frozenset(n.name for n in rest if isinstance(n, Let | Name))


def _same(e: K) -> K:
    return e


def _types(function: Function, every: Iterable[Node]) -> Env | None:
    """Return the types of all buffers and names, None where two of one name differ."""
    env = Env.of(function)
    buffers, values = dict(env.buffers), dict[str, DType]()
    for s in every:
        match s:
            case Alloc(buffer):
                if buffers.setdefault(buffer.name, buffer).dtype != buffer.dtype:
                    return None
            case Let(name, value):
                dtype = dtype_of(value, Env(values=values, buffers=buffers))
                if values.setdefault(name, dtype) != dtype:
                    return None
            case _:
                pass
    return Env(values=values, buffers=buffers)


@dataclass(frozen=True, slots=True)
class _Narrow:
    """What is known of a function, and the names and buffers that become narrow, each with its type of so many `bits`. `alone`: names
    that are bound or taken where no lanes run, `in_lanes`: whether lanes compute what is looked at."""

    bits: int
    ranges: ValueRanges
    env: Env
    alone: frozenset[str]
    names: Mapping[str, DType]
    buffers: Mapping[str, DType]
    in_lanes: bool = False

    def with_names(self, names: Mapping[str, DType], every: Iterable[Node]) -> _Narrow:
        """Return it with those of some names, and of its buffers, that can become narrow."""
        found = replace(self, names=names)
        while (fewer := found._kept(every)) != found:
            found = fewer
        return found

    def _kept(self, every: Iterable[Node]) -> _Narrow:
        """Return it without the names and buffers that something is bound or stored to which does not become narrow without them."""
        names, buffers = dict(self.names), dict(self.buffers)
        for s in every:
            match s:
                case Let(name, value) if name in names and (
                    self._exact(value, names[name]) is None or (name in self.alone and not self.pays(value))
                ):
                    del names[name]
                case Store(buffer=buffer, value=value) if buffer in buffers and self._exact(value, buffers[buffer]) is None:
                    del buffers[buffer]
                case _:
                    pass
        return replace(self, names=names, buffers=buffers)

    # ------------------------------------------------------------ what fits

    def type_for(self, *values: Numbers | None) -> DType | None:
        """Return the type that has all of the numbers, of integers of twice as many bits; None where there is none."""
        known = [x for x in values if isinstance(x, Whole) and self._is_wide(x.dtype)]
        if len(known) < len(values):
            return None
        low, high = min(x.low for x in known), max(x.high for x in known)
        return next((to for to in TYPES[self.bits] if limits(to)[0] <= low and high <= limits(to)[1]), None)

    def types_for(self, names: Iterable[str], values: Mapping[str, Numbers]) -> Mapping[str, DType]:
        """Return the types of those of some names or buffers that hold what such a type has."""
        return {name: to for name in sorted(names) if (to := self.type_for(values.get(name))) is not None}

    def _is_wide(self, dtype: DType) -> bool:
        return dtype.is_integer and dtype.bits == 2 * self.bits

    def _fits(self, e: Expr, to: DType) -> bool:
        """Tell whether a value is a wide integer that `to` has."""
        found = self.ranges.of(e)
        low, high = limits(to)
        return found is not None and self._is_wide(found.dtype) and low <= found.low and found.high <= high

    # ------------------------------------------------------------ what becomes of values

    def _exact(self, e: Expr, to: DType) -> Expr | None:
        """Return a wide integer as `to`, which has it; None where that is not known, or needs the wide one."""
        return self.part(e, to) if self._fits(e, to) else None

    def part(self, e: Expr, to: DType, limited: bool = False) -> Expr | None:
        """Return what is left of a wide integer in `to`, or what it is `limited` to there; None where that needs the wide one."""
        fits = self._fits(e, to)
        match e:
            case Const(number):
                low, high = limits(to)
                return Const(min(max(int(number), low), high) if limited else (int(number) - low) % (1 << to.bits) + low, to)
            case Load(buffer) if buffer in self.buffers:
                return self._of_type(map_expr(e, self.index, self.expr), self.buffers[buffer], to, fits or not limited)
            case Name(name) if name in self.names:
                return self._of_type(e, self.names[name], to, fits or not limited)
            case IndexValue() | Load() if fits:
                return Cast(to, map_expr(e, self.index, self.expr))
            case Name(name) if fits and name in self.alone:
                return Cast(to, e)
            case Cast(dtype, x, saturate) if not saturate or dtype_of(x, self.env).is_float:
                return self._cast(dtype, x, to, fits, limited)
            case Select(cond, x, y):
                then, orelse = self.part(x, to, limited), self.part(y, to, limited)
                return None if then is None or orelse is None else Select(self.expr(cond), then, orelse)
            case Binary("+" | "-" | "*" | "bitand" | "bitor" | "bitxor" as op, x, y) if fits or not limited:
                return self._both(op, x, y, to)
            case Unary("neg" | "bitnot" as op, x) if fits or not limited:
                inner = self.part(x, to)
                return None if inner is None else Unary(op, inner)
            case Binary("shl", x, y) if (fits or not limited) and self._is_amount(y):
                return self._both("shl", x, y, to)
            case Binary("min" | "max" as op, x, y) if fits or limited:
                return self._both(op, x, y, to, limited=True)
            case _:
                return self._of_narrow(e, to) if fits or not limited else None

    def _of_narrow(self, e: Expr, to: DType) -> Expr | None:
        """Return what is left in `to` of what is computed of numbers that fit."""
        match e:
            case Binary("//" | "%" | "min" | "max" as op, x, y) if self.bits == 32 or op in ("min", "max") or isinstance(y, Const):
                pass
            case Binary("shr" as op, x, y) if self._is_amount(y):
                pass
            case Unary("abs", x):
                kind = self.type_for(self.ranges.of(e), self.ranges.of(x))
                inner = None if kind is None else self.part(x, kind)
                return None if inner is None or kind is None else self._of_type(Unary("abs", inner), kind, to, True)
            case _:
                return None
        kind = self.type_for(*map(self.ranges.of, (e, x, y)))
        made = None if kind is None else self._both(op, x, y, kind)
        return None if made is None or kind is None else self._of_type(made, kind, to, True)

    def _is_amount(self, e: Expr) -> bool:
        """Tell whether a shift by this many bits leaves something of a narrow number."""
        found = self.ranges.of(e)
        return found is not None and found.low >= 0 and found.high < self.bits

    def _of_type(self, e: Expr, dtype: DType, to: DType, may_wrap: bool) -> Expr | None:
        """Return a narrow integer as another of as many bits."""
        return e if dtype == to else Cast(to, e) if may_wrap else None

    def _cast(self, dtype: DType, x: Expr, to: DType, fits: bool, limited: bool) -> Expr | None:
        """Return what is left of a conversion to a wide integer."""
        source = dtype_of(x, self.env)
        if source.is_float:
            converts = self.bits == 32 and (fits or limited) and (dtype.kind == "int" or to.kind == "uint")
            return Cast(to, self.expr(x)) if converts else None
        if source == dtype:
            return self.part(x, to, limited)
        if self._is_wide(source) and (fits or not limited):
            return self.part(x, to)
        if isinstance(x, IndexValue) and (fits or not limited):
            return Cast(to, map_expr(x, self.index, self.expr))
        stays = holds(dtype, source) and holds(to, source)
        if source.bits > self.bits or (limited and not fits and not stays):
            return None
        return self.expr(x) if source == to else Cast(to, self.expr(x))

    def _both(self, op: BinaryOp, x: Expr, y: Expr, to: DType, limited: bool = False) -> Expr | None:
        lhs = self.part(x, to, limited)
        rhs = None if lhs is None else self.part(y, to, limited)
        return None if lhs is None or rhs is None else Binary(op, lhs, rhs)

    def expr(self, e: Expr) -> Expr:
        """Return `e`, of its type, with the parts of it narrow that fit."""
        match e:
            case Load(buffer) if buffer in self.buffers:
                return Cast(self.env.buffers[buffer].dtype, map_expr(e, self.index, self.expr))
            case Name(name) if name in self.names:
                return Cast(self.env.values[name], e)
            case Compare(op, x, y) if any(self._is_work(side) or self._is_widened(side) for side in (x, y)):
                to = self.type_for(self.ranges.of(x), self.ranges.of(y))
                both = None if to is None else (self.part(x, to), self.part(y, to))
                if both is not None and both[0] is not None and both[1] is not None:
                    return Compare(op, both[0], both[1])
            case Cast(dtype, x, saturate) if self._is_work(x):
                if dtype.is_integer and dtype.bits <= self.bits and not saturate:
                    to = self.type_for(self.ranges.of(x)) or next(t for t in TYPES[self.bits] if t.kind == dtype.kind)
                    inner = self.part(x, to)
                else:
                    to = self._becoming(x)
                    inner = None if to is None else self._exact(x, to)
                if inner is not None:
                    return inner if dtype == to else Cast(dtype, inner, saturate)
            case Cast(dtype, IndexValue() as x) if self.bits == 32 and dtype.is_float and self._fits(x, i32):
                return Cast(dtype, Cast(i32, map_expr(x, self.index, self.expr)))
            case _ if self._is_work(e):
                to = self._becoming(e)
                inner = None if to is None else self._exact(e, to)
                if inner is not None:
                    return Cast(dtype_of(e, self.env), inner)
        return map_expr(e, self.index, self.expr)

    def _becoming(self, e: Expr) -> DType | None:
        """Return the narrow type in which a value is computed that becomes a wide one again; None where that takes as long."""
        return self.type_for(self.ranges.of(e)) if self.pays(e) else None

    def pays(self, e: Expr) -> bool:
        """Tell whether a value that becomes a wide one again is computed sooner in few bits: in 16 one with quotients by known numbers, in
        32 one of lanes, with quotients, or for which no elements are cut."""
        quotients = [n for n in walk(e) if isinstance(n, Binary) and n.op in ("//", "%")]
        if self.bits < 32:
            return any(isinstance(n.rhs, Const) and int(n.rhs.value).bit_count() > 1 for n in quotients)
        return self.in_lanes or bool(quotients) or not any(self._is_cut(n) for n in walk(e))

    def _is_cut(self, n: Node) -> bool:
        if isinstance(n, Name):
            return n.name not in self.names and self._is_wide(self.env.values[n.name])
        return isinstance(n, Load) and n.buffer not in self.buffers and self._is_wide(self.env.buffers[n.buffer].dtype)

    def _is_work(self, e: Expr) -> bool:
        """Tell whether a wide integer is computed. Indices that are only moved become addresses, and are compared as indices."""
        match e:
            case Binary("+" | "-", x, y) if self.bits == 32:
                return not isinstance(x, IndexValue) and not isinstance(y, IndexValue) and self._is_wide(dtype_of(e, self.env))
            case Binary() | Unary() | Select():
                return self._is_wide(dtype_of(e, self.env))
            case Load(buffer):
                return buffer in self.buffers
            case Name(name):
                return name in self.names
            case Cast(dtype, x):
                return self._is_wide(dtype) and (self._is_work(x) or dtype_of(x, self.env).is_float)
            case _:
                return False

    def _is_widened(self, e: Expr) -> bool:
        """Tell whether lanes make an integer of 64 bits of one of fewer."""
        match e:
            case Cast(dtype, x) if self.bits == 32 and self.in_lanes:
                source = dtype_of(x, self.env)
                return self._is_wide(dtype) and source.is_integer and source.bits <= self.bits and not isinstance(x, IndexValue)
            case _:
                return False

    def index(self, e: Index) -> Index:
        match e:
            case ValueIndex(value):
                return ValueIndex(self.expr(value))
            case _:
                return map_index(e, self.index, self.expr)

    # ------------------------------------------------------------ statements

    def stmt(self, s: Stmt) -> Stmt:
        """Return a statement with what is computed in it, in vectors alone where there are so few bits."""
        match s:
            case Alloc(buffer) if buffer.name in self.buffers:
                return Alloc(replace(buffer, dtype=self.buffers[buffer.name]))
            case _ if _is_vector(s):
                return replace(self, in_lanes=True)._inside(s)
            case Let() | Store() if self.bits == 32:
                return self._inside(s)
            case _ if self.bits == 32:
                return map_stmt(s, self.index, self.expr, self.stmt)
            case _:
                return map_stmt(s, _same, _same, self.stmt)

    def _inside(self, s: Stmt) -> Stmt:
        match s:
            case Alloc(buffer) if buffer.name in self.buffers:
                return Alloc(replace(buffer, dtype=self.buffers[buffer.name]))
            case Let(name, value) if name in self.names:
                return Let(name, self._made(value, self.names[name]))
            case Store(buffer=buffer, value=value) if buffer in self.buffers:
                return replace(s, index=tuple(map(self.index, s.index)), value=self._made(value, self.buffers[buffer]))
            case _:
                return map_stmt(s, self.index, self.expr, self._inside)

    def _made(self, e: Expr, to: DType) -> Expr:
        made = self._exact(e, to)
        assert made is not None, "what is kept fits"
        return made
