"""Small tensor-IR programs: a few known ones, and hypothesis strategies that draw valid random ones with sizes and arrays.

A random program is a chain of definitions over parameters and earlier tensors: maps, padded reads, reductions (also nested and with
conditions), clauses with guards, and recurrences along the first axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from codegen.dtypes import DType, bf16, compute_dtype, f16, f32, f64, i8, i32, i64
from polyhedral import affine
from polyhedral.expr import TRUE, Cond, Int
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as N
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Call,
    Cast,
    Const,
    Definition,
    Expr,
    Holds,
    IndexValue,
    Let,
    Name,
    Piece,
    Program,
    Read,
    Reduce,
    Reducer,
    Select,
    Tensor,
)
from tensorlang.tensor.verify import verify

Draw = Any


def sum_of(dtype: DType) -> Reducer:
    zero = Const(0.0 if dtype.is_float else 0, dtype)
    return Reducer("sum", ("a",), ("b",), (dtype,), (Binary("+", Name("a"), Name("b")),), (zero,), True, "sum")


def max_of(dtype: DType) -> Reducer:
    """Without identity, so the range must not be empty."""
    return Reducer("max", ("a",), ("b",), (dtype,), (Binary("max", Name("a"), Name("b")),), None, True, "max")


def total(body: Expr, dtype: DType, *binders: tuple[str, Affine | int, Affine | int], where: Cond = TRUE) -> Reduce:
    """Return the sum of `body` over binders given as (name, lo, hi)."""
    ranges = tuple(Binder(name, affine.to_expr(lo), affine.to_expr(hi)) for name, lo, hi in binders)
    return Reduce(sum_of(dtype), ranges, (body,), where)


def read(tensor: str, *index: Affine | int | str) -> Read:
    return Read(tensor, tuple(affine.to_expr(i) for i in index))


def padded(tensor: str, shape: tuple[Affine, ...], index: tuple[Affine, ...], outside: Expr) -> Select:
    """Return a read that gives `outside` where `index` leaves `shape`."""
    inside = affine.conj(*(affine.within(i, 0, s) for i, s in zip(index, shape, strict=True)))
    return Select(Holds(inside), Read(tensor, index), outside)


def tensor(name: str, dtype: DType, *shape: Affine | int | str) -> Tensor:
    return Tensor(name, dtype, tuple(affine.to_expr(s) for s in shape))


def definition(result: Tensor, axes: tuple[str, ...], *pieces: Piece | Expr) -> Definition:
    return Definition((result,), axes, tuple(p if isinstance(p, Piece) else Piece(p) for p in pieces))


# ---------------------------------------------------------------- known programs


def matmul(dtype: DType = f32) -> Program:
    a, b, y = tensor("a", dtype, "M", "K"), tensor("b", dtype, "K", "N"), tensor("y", dtype, "M", "N")
    value = total(Binary("*", read("a", "i", "k"), read("b", "k", "j")), compute_dtype(dtype), ("k", 0, N("K")))
    return verify(Program("matmul", ("M", "K", "N"), (a, b), ("y",), (definition(y, ("i", "j"), value),)))


def conv(channels: str = "C") -> Program:
    """A 3x3 convolution with one row of zeros around the image."""
    x, w = tensor("x", f32, channels, "H", "W"), tensor("w", f32, "F", channels, 3, 3)
    y = tensor("y", f32, "F", "H", "W")
    at = (N("c"), affine.add("p", "r", -1), affine.add("q", "s", -1))
    body = Binary("*", padded("x", x.shape, at, Const(0.0, f32)), read("w", "f", "c", "r", "s"))
    value = total(body, f32, ("c", 0, N(channels)), ("r", 0, 3), ("s", 0, 3))
    return verify(Program("conv", (channels, "H", "W", "F"), (x, w), ("y",), (definition(y, ("f", "p", "q"), value),)))


def cumsum() -> Program:
    x, y = tensor("x", f32, "n"), tensor("y", f32, "n")
    first = Piece(read("x", "i"), affine.compare("==", "i", 0))
    rest = Piece(Binary("+", read("y", affine.sub("i", 1)), read("x", "i")), affine.compare(">=", "i", 1))
    return verify(Program("cumsum", ("n",), (x,), ("y",), (definition(y, ("i",), first, rest),)))


def softmax() -> Program:
    x, y = tensor("x", f32, "M", "N"), tensor("y", f32, "M", "N")
    m, e, s = tensor("m", f32, "M"), tensor("e", f32, "M", "N"), tensor("s", f32, "M")
    top = Reduce(max_of(f32), (Binder("j", Int(0), N("N")),), (read("x", "d", "j"),))
    definitions = (
        definition(m, ("d",), top),
        definition(e, ("d", "j"), Call("exp", (Binary("-", read("x", "d", "j"), read("m", "d")),))),
        definition(s, ("d",), total(read("e", "d", "k"), f32, ("k", 0, N("N")))),
        definition(y, ("d", "j"), Binary("/", read("e", "d", "j"), read("s", "d"))),
    )
    return verify(Program("softmax", ("M", "N"), (x,), ("y",), definitions, affine.compare(">=", "N", 1)))


def heat() -> Program:
    """Three-point averages in time, borders kept."""
    x, s, y = tensor("x", f32, "n"), tensor("s", f32, affine.add("T", 1), "n"), tensor("y", f32, "n")
    before = affine.sub("t", 1)
    inner = affine.conj(affine.compare(">=", "t", 1), affine.compare(">=", "i", 1), affine.compare("<", "i", affine.sub("n", 1)))
    around = Binary("+", read("s", before, affine.sub("i", 1)), read("s", before, affine.add("i", 1)))
    step = Binary("+", Binary("*", Const(0.5, f32), read("s", before, "i")), Binary("*", Const(0.25, f32), around))
    start = affine.compare("==", "t", 0)
    rest = affine.negate(affine.disj(start, inner))
    pieces = (Piece(read("x", "i"), start), Piece(step, inner), Piece(read("s", before, "i"), rest, otherwise=True))
    last = definition(y, ("i",), read("s", "T", "i"))
    return verify(Program("heat", ("n", "T"), (x,), ("y",), (definition(s, ("t", "i"), *pieces), last)))


# ---------------------------------------------------------------- random programs


@dataclass(frozen=True)
class Case:
    program: Program
    sizes: dict[str, int]
    arrays: dict[str, np.ndarray[Any, Any]]


DTYPES = (f32, f32, f64, f16, bf16, i32, i64, i8)


@st.composite
def cases(draw: Draw, recurrences: bool = True) -> Case:
    """Return a random valid program, sizes for it, and arrays that fit."""
    program = draw(programs(recurrences))
    sizes = {s: draw(st.integers(0, 5)) for s in program.sizes}
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return Case(program, sizes, {p.name: random_array(rng, p, sizes) for p in program.params})


def random_array(rng: np.random.Generator, parameter: Tensor, sizes: dict[str, int]) -> np.ndarray[Any, Any]:
    shape = tuple(int(affine.evaluate(s, sizes)) for s in parameter.shape)
    if parameter.dtype.is_float:
        return np.asarray(rng.standard_normal(shape) * 4).astype(parameter.dtype.numpy)
    return np.asarray(rng.integers(-20, 20, shape)).astype(parameter.dtype.numpy)


@st.composite
def programs(draw: Draw, recurrences: bool = True) -> Program:
    """Return a random valid program of one compute type."""
    return random_program(draw(st.randoms(use_true_random=False)), recurrences)


def random_program(random: Random, recurrences: bool = True) -> Program:
    """Return a random valid program of one compute type, the same for the same state of `random`."""
    dtype = random.choice(DTYPES)
    sizes = ("m", "n")
    known = [tensor(f"x{k}", dtype, *_shape(random)) for k in range(random.randint(1, 2))]
    params = tuple(known)
    definitions: list[Definition] = []
    for k in range(random.randint(1, 4)):
        result = tensor(f"t{k}", dtype, *_shape(random))
        builder = _Builder(random, dtype, tuple(known), k)
        definitions.append(builder.definition(result, recurrences))
        known.append(result)
    results = tuple(t.name for d in definitions[-2:] for t in d.tensors) if random.random() < 0.5 else (definitions[-1].tensors[0].name,)
    return verify(Program("random", sizes, params, results, tuple(definitions)))


def _shape(random: Random) -> tuple[Affine, ...]:
    extents = (N("m"), N("n"), Int(3), affine.add("n", 1))
    return tuple(random.choice(extents) for _ in range(random.randint(1, 3)))


@dataclass
class _Builder:
    """Draws one definition. Names of binders and lets carry the number of the definition and a counter."""

    random: Random
    dtype: DType
    known: tuple[Tensor, ...]
    number: int
    count: int = 0

    @property
    def computed(self) -> DType:
        return compute_dtype(self.dtype)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.number}_{self.count}"

    def definition(self, result: Tensor, recurrences: bool) -> Definition:
        axes = tuple(f"i{k}" for k in range(len(result.shape)))
        scope = dict(zip(axes, result.shape, strict=True))
        shape = self.random.choice(("map", "map", "guarded", "recurrence") if recurrences else ("map", "map", "guarded"))
        if shape == "map":
            return definition(result, axes, self.value(scope, 3))
        guard = affine.compare(self.random.choice(("<", "==", ">=")), axes[-1] if shape == "guarded" else axes[0], 1)
        if shape == "guarded":
            return definition(
                result, axes, Piece(self.value(scope, 2), guard), Piece(self.value(scope, 2), affine.negate(guard), otherwise=True)
            )
        before = Read(result.name, (affine.sub(axes[0], 1), *map(N, axes[1:])))
        first = affine.compare("==", axes[0], 0)
        step = Binary(self.random.choice(("+", "max")), before, self.value(scope, 1))
        return definition(result, axes, Piece(self.value(scope, 2), first), Piece(step, affine.compare(">=", axes[0], 1)))

    def value(self, scope: dict[str, Affine], depth: int) -> Expr:
        kinds = ["read", "read", "constant"] + (["binary", "binary", "let", "select", "cast", "reduce", "index"] if depth else [])
        match self.random.choice(kinds):
            case "constant":
                return self.constant()
            case "binary":
                op = self.random.choice(("+", "-", "*", "min", "max"))
                return Binary(op, self.value(scope, depth - 1), self.value(scope, depth - 1))
            case "let":
                name = self.fresh("v")
                value = self.value(scope, depth - 1)
                return Let(name, value, Binary("+", Name(name), Binary("*", Name(name), self.value(scope, depth - 1))))
            case "select":
                return Select(Holds(self.condition(scope)), self.value(scope, depth - 1), self.value(scope, depth - 1))
            case "cast":
                return Cast(self.dtype, self.value(scope, depth - 1))
            case "index" if scope:
                return Cast(self.computed, IndexValue(self.index(scope)))
            case "reduce":
                return self.reduce(scope, depth)
            case _:
                return self.padded_read(scope)

    def constant(self) -> Const:
        value = self.random.choice((-2, -1, 0, 1, 3))
        return Const(float(value) / 2 if self.dtype.is_float else value, self.computed)

    def condition(self, scope: dict[str, Affine]) -> Cond:
        if not scope:
            return affine.compare("<", "m", "n")
        return affine.compare(self.random.choice(("<", "<=", "==", ">=")), self.index(scope), self.random.randint(0, 3))

    def index(self, scope: dict[str, Affine]) -> Affine:
        name = self.random.choice(sorted(scope))
        match self.random.randint(0, 4):
            case 0:
                return affine.add(name, self.random.randint(-1, 1))
            case 1:
                return affine.floor(N(name), 2)
            case 2:
                return affine.sub(scope[name], affine.add(name, 1))
            case _:
                return N(name)

    def padded_read(self, scope: dict[str, Affine]) -> Expr:
        """Return a read of a known tensor; in bounds by its guard, which is left out where the index is a plain axis of that range."""
        source = self.random.choice(self.known)
        index = []
        for extent in source.shape:
            same = sorted(n for n, e in scope.items() if affine.same(e, extent))
            plain = same and self.random.random() < 0.5
            index.append(N(self.random.choice(same)) if plain else self.index(scope) if scope else Int(0))
        unsafe = [affine.within(i, 0, s) for i, s in zip(index, source.shape, strict=True) if not self._is_plain(i, s, scope)]
        value = Read(source.name, tuple(index))
        return Select(Holds(affine.conj(*unsafe)), value, self.constant()) if unsafe else value

    def _is_plain(self, index: Affine, extent: Affine, scope: dict[str, Affine]) -> bool:
        return isinstance(index, N) and index.name in scope and affine.same(scope[index.name], extent)

    def reduce(self, scope: dict[str, Affine], depth: int) -> Expr:
        name = self.fresh("k")
        extent = self.random.choice((N("m"), N("n"), Int(3)))
        inner = {**scope, name: extent}
        where = self.condition(inner) if self.random.randint(0, 3) == 0 else TRUE
        return replace(total(self.value(inner, depth - 1), self.computed, (name, 0, extent)), where=where)
