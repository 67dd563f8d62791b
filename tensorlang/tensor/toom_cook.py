"""Minimal filtering algorithms F(m, r): m outputs of a filter with r taps from n = m + r - 1 products instead of m*r.

    y[i] = sum(j) d[i + j] * g[j]        =        y = output · ((kernel · g) * (input · d))

The construction is Toom and Cook's: polynomials are multiplied by their values at n - 1 points and at infinity, transposed. The matrices
are exact rationals and are checked as an identity when they are made; `input` and `output` hold whole numbers as long as the points do,
so that all denominators are in `kernel`, which is applied once, when a model is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import gcd, lcm, prod
from typing import TypeAlias

from tensorlang.diagnostics import InternalError

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]

POINTS = tuple(Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "3", "-3"))
"""Where polynomials are evaluated, in this order: small numbers and their opposites, whose powers round little and share their sums."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """`output` is m x n, `kernel` n x r, `input` n x n."""

    outputs: int
    taps: int
    output: Matrix
    kernel: Matrix
    input: Matrix

    @property
    def products(self) -> int:
        return self.outputs + self.taps - 1

    @property
    def growth(self) -> tuple[Fraction, Fraction]:
        """Return how many times the largest |d| a value of `input · d` may be, and how many times that by the sum of all |g| a value on the
        way from the products to a result: no partial sum in any order is larger."""
        inside = [sum(map(abs, row), Fraction(0)) for row in self.input]
        products = [grown * max(map(abs, row)) for grown, row in zip(inside, self.kernel, strict=True)]
        return max(inside), max(sum((abs(a) * p for a, p in zip(row, products, strict=True)), Fraction(0)) for row in self.output)


@cache
def filtering(outputs: int, taps: int, points: tuple[Fraction, ...] = POINTS) -> Filtering:
    """Return F(outputs, taps) over the first of `points`, which are distinct; there are at least outputs + taps - 2 of them."""
    n = outputs + taps - 1
    if outputs < 1 or taps < 1 or len(points) < n - 1 or len(set(points)) < len(points):
        raise InternalError("winograd", f"F({outputs}, {taps}) needs {n - 1} distinct points")
    at = points[: n - 1]
    output = tuple((*(p**i for p in at), Fraction(int(i == outputs - 1))) for i in range(outputs))
    kernel, input_ = [], []
    for k, p in enumerate(at):
        others = at[:k] + at[k + 1 :]
        row = (*_with_roots(others), Fraction(0))
        scale = _whole(row)
        slope = prod((p - q for q in others), start=Fraction(1))
        input_.append(tuple(x * scale for x in row))
        kernel.append(tuple(p**j / (slope * scale) for j in range(taps)))
    row = _with_roots(at)
    scale = _whole(row)
    input_.append(tuple(x * scale for x in row))
    kernel.append(tuple(Fraction(int(j == taps - 1)) / scale for j in range(taps)))
    made = Filtering(outputs, taps, output, tuple(kernel), tuple(input_))
    if not is_filtering(made):
        raise InternalError("winograd", f"the matrices of F({outputs}, {taps}) do not compute it")
    return made


def is_filtering(f: Filtering) -> bool:
    """Tell whether the algorithm computes y[i] = sum(j) d[i + j] * g[j] for all d and g; both sides are bilinear."""
    n = f.products
    return all(
        sum(f.output[i][k] * f.kernel[k][j] * f.input[k][x] for k in range(n)) == int(x == i + j)
        for i, j, x in product(range(f.outputs), range(f.taps), range(n))
    )


def _with_roots(roots: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Return the coefficients of the polynomial with these roots and leading coefficient one, the constant first."""
    out = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *out]
        out = [a - root * b for a, b in zip(shifted, [*out, Fraction(0)], strict=True)]
    return tuple(out)


def _whole(row: tuple[Fraction, ...]) -> Fraction:
    """Return the factor that makes the entries whole numbers without a common divisor, the first of them positive."""
    found = [x for x in row if x]
    scale = Fraction(lcm(*(x.denominator for x in found)), gcd(*(x.numerator for x in found)))
    return scale if found[0] > 0 else -scale
