"""How much a program has to do at least: arithmetic operations, and bytes that enter and leave.

y[i, j] = b[j] + sum(k) x[i, k] * w[j, k]        flops 2·M·N·K + M·N        bytes of x, w, b, y once each
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod, sqrt

from codegen.dtypes import DType
from codegen.loops import dots
from polyhedral import affine
from polyhedral.expr import TRUE
from tensorlang.graph.programs import result_tensors
from tensorlang.tensor import walk
from tensorlang.tensor.cast_indices import with_plain_indices
from tensorlang.tensor.contraction import ROUNDINGS, Factor, contractions
from tensorlang.tensor.digits import with_digits
from tensorlang.tensor.facts import named_by_data
from tensorlang.tensor.nodes import Binary, Call, Definition, Expr, Program, Reduce, Tensor, Unary


@dataclass(frozen=True, slots=True)
class Work:
    """`flops` counts arithmetic of values, an elementary function as one; selects, casts, roundings and index arithmetic are free.
    `matrix_flops` are those of them that units for matrices may take, sums of products of narrow elements, as if each element had 16
    bits: half as many of bytes, twice as many of f32 that is rounded to tf32."""

    flops: int
    read_bytes: int
    written_bytes: int
    matrix_flops: float = 0.0
    wide_flops: int | None = None
    """The operations that no unit for matrices takes; None: all of them."""

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float:
        """Operations for each byte that moves."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.matrix_flops + other.matrix_flops,
            self.other_flops + other.other_flops,
        )

    @property
    def other_flops(self) -> int:
        """Operations that units for matrices do not take."""
        return self.flops if self.wide_flops is None else self.wide_flops


@dataclass(frozen=True, slots=True)
class Roofline:
    """What all kernels of a model or an operator have to do, and the shortest time they could take one after the other."""

    work: Work
    seconds: float


def work_of(program: Program) -> Work:
    """Return the work of a program without symbolic sizes."""
    flops = 0
    for definition in with_digits(with_plain_indices(program)).definitions:
        extents = dict(zip(definition.axes, walk.shape_of(definition.tensors[0], {}), strict=True))
        points = prod(extents.values())
        if _is_the_same_everywhere(definition):
            flops += int(points * _operations(definition.pieces[0].value, extents, None))
        elif points:
            sampled = (_sampled(definition, extents, sample) for sample in range(SAMPLES))
            flops += int(points * sum(_operations(value, extents, point) for value, point in sampled) / SAMPLES)
    narrow, matrix_flops = _of_matrices(program)
    used = {a for call in program.externs for a in call.arguments}.union(*map(walk.definition_reads, program.definitions))
    read, written = sum(_bytes(p) for p in program.params if p.name in used), sum(map(_bytes, result_tensors(program)))
    return Work(flops, read, written, matrix_flops, max(0, flops - narrow))


_MATRIX_BITS = 16
"""Of the elements that operations of units for matrices are counted in."""
_ROUNDED_BITS = {"round_bf16": 16, "round_tf32": 32}
"""In which a unit for matrices takes what is rounded first."""


def _of_matrices(program: Program) -> tuple[int, float]:
    """Return how many operations are those of sums of products of narrow elements, and how many these are as if of 16 bits."""
    types = {t.name: t.dtype for t in walk.tensors(program)}
    count, weighted = 0, 0.0
    for definition, found in contractions(program):
        bits = [_ROUNDED_BITS[f.rounding] if f.rounding else types[f.read.tensor].bits for f in found.factors]
        if max(bits) <= _MATRIX_BITS or all(f.rounding for f in found.factors):
            points = prod(walk.shape_of(definition.tensors[0], {}))
            terms = prod(1 if b.extent is None else max(0, b.extent) for b in found.reduce.binders)
            count += 2 * points * terms
            weighted += 2 * points * terms * max(bits) / _MATRIX_BITS
    return count, weighted


def narrow_products(program: Program) -> tuple[DType, DType] | None:
    """Return the element types that a sum of the program multiplies, where they are such that processors may add up several products at
    once; None for sums of wide elements."""
    types = {t.name: t.dtype for t in walk.tensors(program)}
    for _, found in contractions(program):
        if not any(f.rounding or f.zero is not None for f in found.factors):
            a, b = (_narrow(f, types) for f in found.factors)
            if dots.accumulator(a, b) == found.dtype:
                return a, b
    return None


def _narrow(factor: Factor, types: Mapping[str, DType]) -> DType:
    """Return the type of the element that a factor widens."""
    return next((dtype for dtype in factor.casts if dtype.bits < dots.BITS), types[factor.read.tensor])


SAMPLES = 512
"""Points at which operations are counted where they are not the same at all."""
_IRRATIONAL = tuple(sqrt(n) for n in (2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19, 21, 22, 23, 26))
"""Multiples of these, modulo 1, are spread evenly, and along each dimension in another order."""


def _is_the_same_everywhere(definition: Definition) -> bool:
    """Tell whether each element has the same equation, and sums as many terms as all others."""
    found = [r for p in definition.pieces for r in walk.reduces(p.value)]
    return len(definition.pieces) == 1 and all(r.where == TRUE and all(b.extent is not None for b in r.binders) for r in found)


def _sampled(definition: Definition, extents: Mapping[str, int], sample: int) -> tuple[Expr, _Point]:
    """Return what is computed at one of `SAMPLES` points that are spread evenly, and the point."""
    point = _Point(sample, {})
    for axis, extent in extents.items():
        point = point.inside(axis, 0, extent)
    return next(p.value for p in definition.pieces if affine.holds(p.guard, point.at)), point


@dataclass(frozen=True, slots=True)
class _Point:
    """One of `SAMPLES` points, at the names that have a value there so far."""

    sample: int
    at: Mapping[str, int]

    def inside(self, name: str, lo: int, length: int) -> _Point:
        """Return the point with a value for one more name, in a range that is not empty."""
        part = (self.sample + 0.5) * _IRRATIONAL[len(self.at) % len(_IRRATIONAL)] % 1
        return replace(self, at={**self.at, name: lo + int(part * length)})


def _operations(e: Expr, extents: Mapping[str, int], point: _Point | None) -> Fraction:
    """Return how many operations an element takes whose axes are so long, at a point unless all take the same: of terms that data name the
    element of, its share."""
    count, inside = Fraction(1), point
    if isinstance(e, Reduce):
        for b in e.binders:
            lo, length = 0, b.extent
            if inside is not None:
                lo = int(affine.evaluate(b.lo, inside.at))
                length = int(affine.evaluate(b.hi, inside.at)) - lo
            if length is None or length <= 0:
                return Fraction(0)
            count *= length
            inside = inside and inside.inside(b.name, lo, length)
        if inside is not None and not affine.holds(e.where, inside.at):
            return Fraction(0)
        named = {name for name, _ in named_by_data(e.filter)}
        count /= prod(max(1, n) for a, n in extents.items() if a in named)
    inner = sum((_operations(child, extents, inside) for child in walk.children(e)), Fraction(0))
    match e:
        case Reduce():
            return count * (inner + sum(isinstance(n, (Binary, Call)) for c in e.reducer.combine for n in walk.nodes(c)))
        case Call(fn) if fn in ROUNDINGS:
            return inner
        case Binary() | Unary() | Call():
            return inner + 1
        case _:
            return inner


def _bytes(tensor: Tensor) -> int:
    return prod(walk.shape_of(tensor, {})) * tensor.dtype.size_bytes
