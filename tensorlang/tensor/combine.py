"""Products of a small constant matrix and a vector of expressions, with few operations.

    before   [[1, 1, 1], [0, 1, -1]] · (a, b, c)           [[0, 4, 4], [0, 4, -4]] · (a, b, c)
    after    a + (b + c), b - c                            4*b + 4*c, 4*b - 4*c

Zeros vanish and factors of one are not written. Two columns that differ in signs alone meet in a sum and a difference; two rows that differ
in signs alone share the sum of what they agree on and the sum of the rest: equal parts are equal expressions, computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from codegen.dtypes import DType
from tensorlang.tensor.nodes import Binary, Const, Expr, Unary

Term = tuple[Fraction, Expr]


def combined(matrix: Sequence[Sequence[Fraction]], values: Sequence[Expr], dtype: DType) -> tuple[Expr, ...]:
    """Return the rows of `matrix · values`."""
    columns = _twins([list(column) for column in zip(*matrix, strict=True)])
    if columns:
        return tuple(_sum(_paired_terms(row, values, columns), dtype) for row in matrix)
    rows = _twins([list(row) for row in matrix])
    return tuple(_row(matrix, k, values, rows, dtype) for k in range(len(matrix)))


def _twins(vectors: list[list[Fraction]]) -> dict[int, int]:
    """Return pairs of vectors that differ in signs alone, the first of each by the second and the other way round."""
    out: dict[int, int] = {}
    for k, a in enumerate(vectors):
        for j in range(k + 1, len(vectors)):
            b = vectors[j]
            alike = all(abs(x) == abs(y) for x, y in zip(a, b, strict=True))
            if alike and k not in out and j not in out and any(x == y for x, y in zip(a, b, strict=True) if x) and any(a):
                out |= {k: j, j: k}
    return out


def _paired_terms(row: Sequence[Fraction], values: Sequence[Expr], twin: dict[int, int]) -> list[Term]:
    out: list[Term] = []
    for k, factor in enumerate(row):
        if not factor or twin.get(k, k) < k:
            continue
        if k in twin:
            other = twin[k]
            out.append((factor, Binary("+" if row[other] == factor else "-", values[k], values[other])))
        else:
            out.append((factor, values[k]))
    return out


def _row(matrix: Sequence[Sequence[Fraction]], k: int, values: Sequence[Expr], twin: dict[int, int], dtype: DType) -> Expr:
    row = matrix[k]
    if k not in twin:
        return _sum(_terms(row, values), dtype)
    first = min(k, twin[k])
    a, b = matrix[first], matrix[max(k, twin[k])]
    same = _sum(_terms([x if x == y else Fraction(0) for x, y in zip(a, b, strict=True)], values), dtype)
    rest = [x if x != y else Fraction(0) for x, y in zip(a, b, strict=True)]
    if not any(rest):
        return same
    return Binary("+" if k == first else "-", same, _sum(_terms(rest, values), dtype))


def _terms(row: Sequence[Fraction], values: Sequence[Expr]) -> list[Term]:
    return [(x, value) for x, value in zip(row, values, strict=True) if x]


def _sum(terms: list[Term], dtype: DType) -> Expr:
    """Return the sum of factors times expressions: a common factor is applied once, a positive term comes first."""
    if not terms:
        return Const(0.0, dtype)
    common = abs(terms[0][0])
    if common != 1 and len(terms) > 1 and all(abs(x) == common for x, _ in terms):
        return _scaled(common, _sum([(x / common, value) for x, value in terms], dtype), dtype)
    ordered = sorted(terms, key=lambda term: (term[0] < 0, abs(term[0]) == 1))
    factor, value = ordered[0]
    total = _scaled(factor, value, dtype)
    for factor, value in ordered[1:]:
        simple = factor == -1
        total = Binary("-" if simple else "+", total, value if simple else _scaled(factor, value, dtype))
    return total


def _scaled(factor: Fraction, value: Expr, dtype: DType) -> Expr:
    if factor == 1:
        return value
    return Unary("neg", value) if factor == -1 else Binary("*", Const(float(factor), dtype), value)
