"""Random programs: equations of every form the language has, which are right by construction, over few and small sizes.

    drawn = Drawing(Random(7)).program()

Maps, pieces, interleaving and joining, recurrences (forwards, backwards, in two dimensions, in time, of two tensors at once, along links
that are data), sums of all shapes, `mean`, `any`, `all`, reducers of pairs, choices, reads with every way to say what lies outside, reads
whose index is data, sums inside of conditions that keep their reads inside, several results, tuples, calls of operators with packs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from fuzzing.program import (
    Arith,
    Bin,
    Both,
    Bound,
    Call,
    Cast,
    Clause,
    Compare,
    Cond,
    Const,
    Data,
    Define,
    FromIndex,
    If,
    Index,
    Int,
    Let,
    Not,
    Param,
    Program,
    Read,
    Reduce,
    Relation,
    Slot,
    Truth,
    Un,
    Value,
    Var,
    called_shape,
    is_float,
)

SIZES = ("M", "N", "K")
DTYPES = ("f64", "f32", "f32", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
INDEX_DTYPES = ("i8", "i16", "i32", "i64", "i64", "u8", "u16", "u32", "u64")
ZERO, ONE = Int(0), Int(1)


@dataclass(frozen=True)
class Known:
    """A tensor that equations may read. `dtype`: what its elements are computed in, as the language calls it."""

    name: str
    dtype: str
    shape: tuple[Index, ...]


Scope = dict[str, Index]
"""Indices with the ends of their ranges, which begin at 0 or later."""


@dataclass
class Drawing:
    random: Random
    dtype: str = ""
    mode: str = ""
    known: list[Known] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    defines: list[Define | Call] = field(default_factory=list)
    count: int = 0
    nonempty: bool = False

    def program(self) -> Program:
        r = self.random
        self.dtype = r.choice(DTYPES)
        self.mode = r.choice(("", "", "", "strict", "reduce", "fast"))
        self.nonempty = r.random() < 0.6
        for k in range(r.randint(1, 3)):
            self.param(f"x{k}", self.dtype if r.random() < 0.8 else r.choice(DTYPES))
        if not self.sizes():
            self.params.append(Param("x9", self.dtype, (Var("N"),)))
            self.known.append(Known("x9", self.dtype, (Var("N"),)))
        if r.random() < 0.5:
            self.index_param()
        if r.random() < 0.2:
            self.param("keep", "bool")
        for _ in range(r.choice((0, 0, 1, 1, 2))):
            self.local()
        results = []
        for k in range(r.choice((1, 1, 1, 2))):
            results += self.define(f"y{k}", declared=True)
        where = tuple(Relation(">=", Var(n), ONE) for n in self.sizes()) if self.nonempty else ()
        return Program(tuple(self.params), tuple(results), tuple(self.defines), self.mode, where)

    # ---- tensors

    def sizes(self) -> list[str]:
        """Return the sizes that parameters bind."""
        return sorted({n.name for p in self.params for n in p.shape if isinstance(n, Var)})

    def param(self, name: str, dtype: str) -> None:
        rank = self.random.choice((1, 1, 2, 2, 2, 3)) if name != "keep" else 1
        shape = tuple(self.random.choice((*map(Var, SIZES), Var("N"), Int(self.random.choice((1, 2, 3, 5))))) for _ in range(rank))
        self.params.append(Param(name, dtype, shape))
        if name != "keep":
            self.known.append(Known(name, dtype, shape))

    def index_param(self) -> None:
        """Add a parameter whose values are indices, most often with their range declared."""
        sizes = [Var(n) for n in self.sizes()]
        low = self.random.choice((ZERO, ZERO, Int(-1)))
        within = (low, self.random.choice(sizes)) if self.random.random() < 0.6 else None
        dtype = self.random.choice(INDEX_DTYPES if low == ZERO or within is None else INDEX_DTYPES[:5])
        self.params.append(Param("ids", dtype, (self.random.choice((*sizes, Var("L"))),), within))

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def shape(self) -> tuple[Index, ...]:
        ends: list[Index] = [Var(n) for n in self.sizes()]
        others: list[Index] = [Int(3), Arith("+", ends[0], ONE), Int(1)]
        rank = self.random.choice((0, 1, 1, 2, 2, 3))
        return tuple(self.random.choice(ends if self.random.random() < 0.8 else others) for _ in range(rank))

    def local(self) -> None:
        r = self.random
        readable = [k for k in self.known if k.shape and any(k.name == p.name for p in self.params)]
        if r.random() < 0.2 and readable:
            source = r.choice(readable)
            found = [o for o in ("rev", "rows", "swap", "pad", "most") if len(source.shape) >= (2 if o == "swap" else 1)]
            operator, name = r.choice(found), self.fresh("t")
            shape = called_shape(operator, source.shape)
            self.defines.append(Call(name, operator, source.name, source.dtype, shape))
            self.known.append(Known(name, source.dtype, shape))
        else:
            self.define(self.fresh("t"), declared=False)

    def define(self, name: str, declared: bool) -> list[str]:
        """Add the equations of a tensor; return the names of all that they define."""
        forms = [self.map, self.map, self.map, self.pieces, self.interleaved, self.joined, self.forward, self.backward, self.plane]
        forms += [self.in_time, self.prefix, self.pair, self.tuple_of, self.both_ways, self.ends, self.linked]
        return self.random.choice(forms)(name, declared)

    def add(
        self, names: list[str], shape: tuple[Index, ...], clauses: list[Clause], declared: bool, dtypes: list[str] | None = None
    ) -> list[str]:
        types = tuple(dtypes or [self.dtype] * len(names))
        self.defines.append(Define(tuple(names), types, shape, tuple(clauses), declared))
        self.known += [Known(n, d, shape) for n, d in zip(names, types, strict=True) if d != "bool"]
        return names

    def axes(self, shape: tuple[Index, ...]) -> tuple[tuple[Slot, ...], Scope, tuple[tuple[str, Index, Index], ...]]:
        names = [self.fresh("i") for _ in shape]
        scope: Scope = dict(zip(names, shape, strict=True))
        return tuple(map(Slot, names)), scope, tuple((n, ZERO, e) for n, e in scope.items())

    # ---- forms of equations

    def map(self, name: str, declared: bool) -> list[str]:
        shape = self.shape()
        slots, scope, ranges = self.axes(shape)
        if declared and self.random.random() < 0.1:
            return self.add([name], shape, [Clause(slots, (self.cond(scope, 1),), ranges, spelled=False)], declared, ["bool"])
        spelled = not declared or self.random.random() < 0.3
        return self.add([name], shape, [Clause(slots, (self.value(scope, 3),), ranges, spelled=spelled)], declared)

    def pieces(self, name: str, declared: bool) -> list[str]:
        shape = self.shape() or (Var(self.sizes()[0]),)
        slots, scope, ranges = self.axes(shape)
        where = Relation(self.random.choice(("<", ">=", "==")), Var(next(iter(scope))), self.random.choice((ZERO, ONE, Int(2))))
        first = Clause(slots, (self.value(scope, 2),), ranges, (where,))
        if declared:
            rest = Clause(slots, (self.value(scope, 2),), ranges, otherwise=True, spelled=False)
        else:
            other = {"<": ">=", ">=": "<", "==": "!="}[where.op]
            rest = Clause(slots, (self.value(scope, 2),), ranges, (Relation(other, where.left, where.right),))
        return self.add([name], shape, [first, rest], declared)

    def interleaved(self, name: str, declared: bool) -> list[str]:
        end, step = Var(self.random.choice(self.sizes())), self.random.choice((2, 2, 3))
        clauses = []
        for k in range(step):
            axis = self.fresh("i")
            clauses.append(Clause((Slot(axis, Int(k), step),), (self.value({axis: end}, 2),), ((axis, ZERO, end),)))
        return self.add([name], (Arith("*", Int(step), end),), clauses, declared)

    def joined(self, name: str, declared: bool) -> list[str]:
        one, other = (Var(self.random.choice(self.sizes())) for _ in range(2))
        i, j = self.fresh("i"), self.fresh("i")
        clauses = [
            Clause((Slot(i),), (self.value({i: one}, 2),), ((i, ZERO, one),)),
            Clause((Slot(j, one),), (self.value({j: other}, 2),), ((j, ZERO, other),)),
        ]
        return self.add([name], (Arith("+", one, other),), clauses, declared)

    def forward(self, name: str, declared: bool) -> list[str]:
        shape = self.shape()[:2] or (Var(self.sizes()[0]),)
        slots, scope, ranges = self.axes(shape)
        first = next(iter(scope))
        rest = {n: e for n, e in scope.items() if n != first}
        before = Read(name, (Arith("-", Var(first), ONE), *(self.other_place(n, scope) for n in rest)), self.dtype)
        value = Bin(self.random.choice(("+", "-", "+", "max")), before, self.value(scope, 1), self.dtype)
        if self.random.random() < 0.4:
            mode = self.const()
            return self.add([name], shape, [Clause(slots, (self.replaced_mode(value, before, mode),), ranges)], declared)
        start = Clause(
            (Slot(None), *slots[1:]), (self.value(rest, 1),), ranges[1:], (Relation("<", ZERO, shape[0]),) if not self.nonempty else ()
        )
        step = Clause(slots, (value,), ((first, ONE, shape[0]), *ranges[1:]))
        if not self.nonempty:
            return self.add([name], shape, [Clause(slots, (self.replaced_mode(value, before, self.const()),), ranges)], declared)
        return self.add([name], shape, [start, step], declared)

    def replaced_mode(self, value: Bin, before: Read, mode: str | Value) -> Value:
        return Bin(value.op, Read(before.tensor, before.index, before.dtype, mode), value.right, value.dtype)

    def other_place(self, axis: str, scope: Scope) -> Index:
        return Var(axis) if self.random.random() < 0.7 else Arith("-", Arith("-", scope[axis], ONE), Var(axis))

    def backward(self, name: str, declared: bool) -> list[str]:
        shape = self.shape()[:2] or (Var(self.sizes()[0]),)
        slots, scope, ranges = self.axes(shape)
        first = next(iter(scope))
        index = (Arith("+", Var(first), ONE), *(Var(n) for n in scope if n != first))
        before = Read(name, index, self.dtype, self.const())
        value = Bin(self.random.choice(("+", "-", "min")), self.value(scope, 1), before, self.dtype)
        return self.add([name], shape, [Clause(slots, (value,), ranges)], declared)

    def linked(self, name: str, declared: bool) -> list[str]:
        """Each element from one that data name, of those before it or of those behind it."""
        found = next((p for p in self.params if p.name == "ids"), None)
        if found is None or found.dtype == "u64":
            return self.forward(name, declared)
        shape = (found.shape[0], *self.shape()[:1])
        slots, scope, ranges = self.axes(shape)
        first, *rest = scope
        i, data = Var(first), Data(Read("ids", (Var(first),), found.dtype))
        others = tuple(self.other_place(n, scope) for n in rest)
        before: Value
        match self.random.randrange(3):
            case 0:
                inside = Both("and", Relation(">=", data, ZERO), Relation("<", data, i))
                before = If(inside, Read(name, (data, *others), self.dtype), self.const(), self.dtype)
            case 1:
                inside = Both("and", Relation(">", data, i), Relation("<", data, shape[0]))
                before = If(inside, Read(name, (data, *others), self.dtype), self.const(), self.dtype)
            case _:
                place: Index = Arith("-", Arith("-", i, ONE), data)
                inside = Relation(">=", data, ZERO)
                before = If(inside, Read(name, (place, *others), self.dtype, self.const()), self.const(), self.dtype)
        value = Bin(self.random.choice(("+", "-", "max")), before, self.value(scope, 1), self.dtype)
        return self.add([name], shape, [Clause(slots, (value,), ranges)], declared)

    def both_ways(self, name: str, declared: bool) -> list[str]:
        """One tensor forwards and another backwards, which reads the first."""
        return self.forward(self.fresh("t"), False) and self.backward(name, declared)

    def plane(self, name: str, declared: bool) -> list[str]:
        ends = [Var(n) for n in self.sizes()]
        shape = (self.random.choice(ends), self.random.choice(ends))
        slots, scope, ranges = self.axes(shape)
        i, j = (Var(n) for n in scope)
        up = Read(name, (Arith("-", i, ONE), j), self.dtype, self.const())
        left = Read(name, (i, Arith("-", j, ONE)), self.dtype, self.const())
        corner = Read(name, (Arith("-", i, ONE), Arith(self.random.choice("+-"), j, ONE)), self.dtype, self.const())
        some: Value = self.random.choice((up, corner))
        value = Bin(self.random.choice(("+", "-", "max")), some, self.random.choice((left, left, self.value(scope, 1))), self.dtype)
        return self.add([name], shape, [Clause(slots, (Bin("+", value, self.value(scope, 1), self.dtype),), ranges)], declared)

    def in_time(self, name: str, declared: bool) -> list[str]:
        """A state that changes for a few steps; what is defined is its last one."""
        steps, end = Int(self.random.choice((1, 2, 3))), Var(self.random.choice(self.sizes()))
        state, t, i, j = (self.fresh(s) for s in ("s", "i", "i", "i"))
        around = Arith(self.random.choice("+-"), Var(j), ONE)
        mode = self.random.choice(("clamp", "wrap", "reflect")) if self.nonempty and self.random.random() < 0.5 else self.const()
        value = Bin(
            self.random.choice("+-"),
            Read(state, (Var(t), Var(j)), self.dtype),
            Bin(self.random.choice("+-"), Read(state, (Var(t), around), self.dtype, mode), self.value({t: steps, j: end}, 1), self.dtype),
            self.dtype,
        )
        start = Clause((Slot(None), Slot(i)), (self.value({i: end}, 1),), ((i, ZERO, end),))
        step = Clause((Slot(t, ONE), Slot(j)), (value,), ((t, ZERO, steps), (j, ZERO, end)))
        self.add([state], (Arith("+", steps, ONE), end), [start, step], False)
        out = self.fresh("i")
        return self.add(
            [name], (end,), [Clause((Slot(out),), (Read(state, (steps, Var(out)), self.dtype),), ((out, ZERO, end),))], declared
        )

    def pair(self, name: str, declared: bool) -> list[str]:
        """Two states that need each other, step by step."""
        steps, end = Int(self.random.choice((1, 2, 3))), Var(self.random.choice(self.sizes()))
        a, b = self.fresh("a"), self.fresh("b")
        for me, other, later in ((a, b, False), (b, a, self.random.random() < 0.5)):
            t, i, j = (self.fresh("i") for _ in range(3))
            at = Arith("+", Var(t), ONE) if later else Var(t)
            value = Bin(
                self.random.choice("+-"),
                Read(me, (Var(t), Var(j)), self.dtype),
                Bin("+", Read(other, (at, self.other_place(j, {j: end})), self.dtype), self.small({t: steps, j: end}), self.dtype),
                self.dtype,
            )
            start = Clause((Slot(None), Slot(i)), (self.small({i: end}),), ((i, ZERO, end),))
            step = Clause((Slot(t, ONE), Slot(j)), (value,), ((t, ZERO, steps), (j, ZERO, end)))
            self.defines.append(Define((me,), (self.dtype,), (Arith("+", steps, ONE), end), (start, step), False))
        self.known += [Known(n, self.dtype, (Arith("+", steps, ONE), end)) for n in (a, b)]
        out = self.fresh("i")
        last = Bin("-", Read(a, (steps, Var(out)), self.dtype), Read(b, (steps, Var(out)), self.dtype), self.dtype)
        return self.add([name], (end,), [Clause((Slot(out),), (last,), ((out, ZERO, end),))], declared)

    def prefix(self, name: str, declared: bool) -> list[str]:
        """Each element from all before it, or all behind it."""
        end = Var(self.random.choice(self.sizes()))
        slots, scope, ranges = self.axes((end,))
        (i,), k = scope, self.fresh("k")
        low, high = self.random.choice(((ZERO, Var(i)), (Arith("+", Var(i), ONE), end)))
        body = Bin(self.random.choice("+*"), Read(name, (Var(k),), self.dtype), self.small({k: end, i: end}), self.dtype)
        start = self.const() if self.random.random() < 0.3 else None
        total = Reduce(
            self.random.choice(("sum", "sum", "max", "min") if start else ("sum",)), ((k, low, high),), (), start, body, self.dtype
        )
        value = Bin("-", self.small(scope), total, self.dtype)
        return self.add([name], (end,), [Clause(slots, (value,), ranges)], declared)

    def tuple_of(self, name: str, declared: bool) -> list[str]:
        """Two results of one equation."""
        shape = self.shape()[:2]
        slots, scope, ranges = self.axes(shape)
        names = [name, f"{name}b"]
        return self.add(names, shape, [Clause(slots, (self.value(scope, 1), self.value(scope, 2)), ranges, spelled=not declared)], declared)

    def ends(self, name: str, declared: bool) -> list[str]:
        """The least of one value and the greatest of another, by a reducer of pairs."""
        shape = self.shape()[:2]
        slots, scope, ranges = self.axes(shape)
        binder, end = self.fresh("k"), self.end()
        inner = {**scope, binder: end}
        filters = (self.cond(inner, 1),) if self.random.random() < 0.3 else ()
        values = tuple(Reduce(f"ends.{k}", ((binder, ZERO, end),), filters, None, self.value(inner, 1), self.dtype) for k in range(2))
        return self.add([name, f"{name}b"], shape, [Clause(slots, values, ranges, spelled=not declared)], declared)

    # ---- values

    def const(self) -> Const:
        lowest = 0 if self.dtype[0] == "u" else -3
        return Const(self.random.randint(lowest, 3), self.dtype)

    def small(self, scope: Scope) -> Value:
        return self.value(scope, 0)

    def value(self, scope: Scope, depth: int) -> Value:
        kinds = (
            ["read"] * 4
            + ["const"]
            + (["bin"] * 4 + ["if", "let", "cast", "reduce", "reduce", "index", "un", "guarded", "guarded", "best"]) * (depth > 0)
        )
        match self.random.choice(kinds):
            case "const":
                return self.const()
            case "bin":
                ops = ["+", "-", "*", "+", "-", "*", "min", "max"]
                ops += ["/"] if is_float(self.dtype) and self.mode == "strict" else []
                ops += ["//", "%"] if not is_float(self.dtype) else []
                return Bin(self.random.choice(ops), self.value(scope, depth - 1), self.value(scope, depth - 1), self.dtype)
            case "un":
                return Un("-" if self.dtype[0] != "u" and self.random.random() < 0.5 else "abs", self.value(scope, depth - 1), self.dtype)
            case "if":
                return If(self.cond(scope, depth - 1), self.value(scope, depth - 1), self.value(scope, depth - 1), self.dtype)
            case "let":
                name = self.fresh("v")
                body = Bin("+", Bound(name, self.dtype), Bin("*", Bound(name, self.dtype), self.small(scope), self.dtype), self.dtype)
                return Let(name, self.value(scope, depth - 1), body, self.dtype)
            case "cast":
                return Cast(self.value(scope, depth - 1), self.dtype)
            case "index" if scope:
                return FromIndex(self.index(scope), self.dtype)
            case "reduce":
                return self.reduce(scope, depth)
            case "guarded":
                return self.guarded(scope, depth)
            case "best":
                return self.best(scope)
            case _:
                return self.read(scope)

    def reduce(self, scope: Scope, depth: int, source: Known | None = None) -> Value:
        r = self.random
        names = [self.fresh("k") for _ in range(r.choice((1, 1, 1, 2)))]
        inner = dict(scope)
        binders: list[tuple[str, Index, Index]] = []
        for name in names:
            end = self.end()
            low: Index = ZERO
            above = [n for n, e in scope.items() if e == end]
            if above and r.random() < 0.25:
                low, end = r.choice(((ZERO, Arith("+", Var(above[0]), ONE)), (Var(above[0]), end)))
                inner[name] = self.random.choice((scope[above[0]],))
            else:
                inner[name] = end
            binders.append((name, low, end))
        filters = tuple(self.cond(inner, 1) for _ in range(r.choice((0, 0, 0, 1))))
        reducer = r.choice(
            ("sum", "sum", "sum", "max", "min", "prod", "last", "first", "less", *(("mean",) if is_float(self.dtype) else ()))
        )
        ordered = reducer in ("first", "last")
        start = self.value(scope, 0) if ordered or (r.random() < 0.15 and reducer not in ("less", "mean")) else None
        body = self.value(inner, depth - 1)
        if r.random() < 0.2:
            body = Bin("*", self.read(inner, "skip"), body, self.dtype)
        return Reduce(reducer, tuple(binders), filters, start, body, self.dtype)

    def guarded(self, scope: Scope, depth: int) -> Value:
        """A value that is there only where a condition holds, which alone keeps its reads inside."""
        index = self.data_index(scope) if self.random.random() < 0.6 else None
        sources = [k for k in self.known if k.shape and k.dtype == self.dtype]
        if not sources or (index is None and not scope):
            return self.const()
        source = self.random.choice(sources)
        at = index if index is not None else self.index(scope)
        inside: Cond = Both("and", Relation(">=", at, ZERO), Relation("<", at, source.shape[0]))
        names = [self.fresh("k") for _ in source.shape[1:]]
        read = Read(source.name, (at, *map(Var, names)), self.dtype)
        binders = tuple((n, ZERO, e) for n, e in zip(names, source.shape[1:], strict=True))
        body: Value = read
        if binders and self.random.random() < 0.5:
            body = Bin("*", read, self.value({**scope, **{n: e for n, _, e in binders}}, 0), self.dtype)
        some: Value = Reduce(self.random.choice(("sum", "sum", "max")), binders, (), None, body, self.dtype) if binders else read
        return If(inside, some, self.const(), self.dtype)

    def best(self, scope: Scope) -> Value:
        name, end = self.fresh("k"), self.end()
        if not self.nonempty and not isinstance(end, Int):
            return self.read(scope)
        place = Reduce(self.random.choice(("argmax", "argmin")), ((name, ZERO, end),), (), None, self.value({**scope, name: end}, 0), "i64")
        return Cast(place, self.dtype)

    def end(self) -> Index:
        return self.random.choice((*map(Var, self.sizes()), *map(Var, self.sizes()), Int(3)))

    def read(self, scope: Scope, mode: str | None = None) -> Value:
        sources = [k for k in self.known if mode is None or k.dtype == self.dtype]
        if not sources:
            return self.const()
        source = self.random.choice(sources)
        index: list[Index] = []
        safe = True
        for end in source.shape:
            plain = [n for n, e in scope.items() if e == end]
            data = self.data_index(scope) if self.random.random() < 0.2 else None
            if data is not None:
                index.append(data)
                safe &= self.random.random() < 0.3
            elif plain and self.random.random() < 0.7:
                name = self.random.choice(plain)
                index.append(Var(name) if self.random.random() < 0.8 else Arith("-", Arith("-", end, ONE), Var(name)))
            else:
                index.append(self.index(scope))
                safe = False
        if mode is None and not safe:
            modes: list[str | Value] = [Const(self.random.randint(0, 3), source.dtype)] * 2
            modes += ["clamp", "wrap", "reflect"] if self.nonempty else []
            chosen: str | Value | None = self.random.choice(modes)
        else:
            chosen = mode
        read = Read(source.name, tuple(index), source.dtype, chosen)
        return read if source.dtype == self.dtype else Cast(read, self.dtype)

    def data_index(self, scope: Scope) -> Index | None:
        found = next((p for p in self.params if p.name == "ids"), None)
        if found is None:
            return None
        plain = [n for n, e in scope.items() if e == found.shape[0]]
        if plain:
            return Data(Read("ids", (Var(self.random.choice(plain)),), found.dtype))
        return None

    def index(self, scope: Scope) -> Index:
        if not scope:
            return Int(self.random.randint(-1, 2))
        name = Var(self.random.choice(sorted(scope)))
        match self.random.randrange(8):
            case 0:
                return Arith("+", name, Int(self.random.choice((1, 1, 2))))
            case 1 | 2:
                return Arith("-", name, Int(self.random.choice((1, 1, 2, 3))))
            case 3:
                return Arith("//", name, Int(self.random.choice((2, 3))))
            case 4:
                return Arith("%", name, Int(self.random.choice((2, 3))))
            case 5:
                return Arith(self.random.choice("+-"), name, Var(self.random.choice(sorted(scope))))
            case 6:
                return Arith("+", Arith("*", Int(2), name), Int(self.random.choice((0, 1, -1))))
            case _:
                return name

    def cond(self, scope: Scope, depth: int) -> Cond:
        match self.random.randrange(9 if depth > 0 else 4):
            case 8:
                name, end = self.fresh("k"), self.end()
                body = self.cond({**scope, name: end}, 0)
                return Truth(Reduce(self.random.choice(("any", "all")), ((name, ZERO, end),), (), None, body, "bool"))
            case 4 | 5:
                return Both(self.random.choice(("and", "or")), self.cond(scope, depth - 1), self.cond(scope, depth - 1))
            case 6:
                return Not(self.cond(scope, depth - 1))
            case 7:
                keep = next((p for p in self.params if p.name == "keep"), None)
                plain = [n for n, e in scope.items() if keep is not None and e == keep.shape[0]]
                return Truth(Read("keep", (Var(plain[0]),), "bool")) if plain else self.cond(scope, 0)
            case 0 | 1:
                return Compare(self.random.choice(("<", ">", "==", "<=")), self.value(scope, 0), self.const())
            case _:
                return Relation(self.random.choice(("<", "<=", "==", ">=", "!=")), self.index(scope), Int(self.random.randint(0, 3)))
