"""Factors of matrices, determinants, and systems of equations."""

from __future__ import annotations

from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
from stdlib.aten.table.making import identity
from stdlib.aten.table.moving import cat, expand, slice_, transpose
from stdlib.onnx.table.reducing import reduced
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import is_one, same, same_shape

I32, I64 = DTYPES["i32"], DTYPES["i64"]


def cholesky(n: Call, x: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    _check_no_errors(n, check_errors)
    y, fault = n.ops("cholesky", transpose(n, x, -2, -1) if upper else x)
    return transpose(n, y, -2, -1) if upper else y, fault


def qr(n: Call, x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    factors, tau = n.ops("householder_factors", x)
    kept = x.shape[-2] if mode == "complete" else tau.shape[-1]
    r = n.op("triangle_upper", slice_(n, factors, -2, 0, kept), k=0)
    if mode == "r":
        return n.filled((0,), x.dtype, 0), r
    if mode == "complete":
        factors = cat(n, (factors, n.filled((*x.shape[:-1], kept), x.dtype, 0)), -1)
    return n.op("householder_product", slice_(n, factors, -1, 0, kept), tau), r


def householder_factors(n: Call, x: Value) -> tuple[Value, Value]:
    return n.ops("householder_factors", x)  # type: ignore[return-value]


def householder_product(n: Call, x: Value, tau: Value) -> Value:
    return n.op("householder_product", x, tau)


def lu_factors(n: Call, x: Value, *, pivot: bool = True, check_errors: bool = False) -> tuple[Value, Value, Value]:
    """Of torch, pivots count from 1."""
    _check_no_errors(n, check_errors)
    lu, rows, fault = _factors(n, x, pivot)
    return lu, _from_one(n, rows), fault


def lu(n: Call, x: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    factors, rows, _ = _factors(n, x, pivot)
    return _unpacked(n, factors, _order(n, rows))


def lu_unpack(n: Call, lu: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Value, ...]:
    if not (unpack_data and unpack_pivots):
        raise n.unsupported("a part of the factors alone")
    return _unpacked(n, lu, _order(n, _from_zero(n, pivots)))


def _unpacked(n: Call, lu: Value, order: Value) -> tuple[Value, Value, Value]:
    """Return `p`, `l` and `u` with `p @ l @ u` the matrix whose factors these are."""
    lower = n.op("add", n.op("triangle_lower", lu, k=-1), _ones(n, lu))
    p = transpose(n, n.op("rows_in_order", _ones(n, lu), order), -2, -1)
    return p, lower, n.op("triangle_upper", lu, k=0)


def determinant(n: Call, x: Value) -> tuple[Value | None, ...]:
    _check_no_factors(n, 1, 2)
    factors, rows, _ = _factors(n, x)
    return n.op("det_of_factors", factors, rows), None, None


def logarithm_of_determinant(n: Call, x: Value) -> tuple[Value | None, ...]:
    _check_no_factors(n, 2, 3)
    factors, rows, _ = _factors(n, x)
    diagonal = n.op("diagonal", factors)
    signs = _of_rows(n, "reduce_prod", n.op("map", diagonal, f="sign"))
    size = _of_rows(n, "reduce_sum", n.op("map", n.op("map", diagonal, f="abs"), f="log"))
    return n.op("mul", n.cast(n.op("sign_of_exchanges", rows), x.dtype), signs), size, None, None


def inverse(n: Call, x: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    _check_no_errors(n, check_errors)
    factors, rows, fault = _factors(n, x)
    return _solved(n, factors, rows, _ones(n, x)), fault


def solve(n: Call, a: Value, b: Value, *, left: bool = True, check_errors: bool = False) -> tuple[Value | None, ...]:
    """Of vectors: `b` has an axis less than `a` or, without axes in front, one alone."""
    _check_no_errors(n, check_errors)
    _check_no_factors(n, 1, 2)
    is_vector = len(b.shape) == 1 or same_shape(b.shape, a.shape[:-1])
    b = n.view(b, (*b.shape, 1)) if is_vector else b
    turned = (lambda x: x) if left else (lambda x: transpose(n, x, -2, -1))
    factors, rows, fault = _factors(n, turned(a))
    y = turned(_solved(n, factors, rows, turned(b)))
    return n.view(y, y.shape[:-1]) if is_vector else y, None, None, fault


def lu_solve(n: Call, lu: Value, pivots: Value, b: Value, *, left: bool = True, adjoint: bool = False) -> Value:
    if adjoint or not left:
        raise n.unsupported("factors of the transposed matrix")
    return _solved(n, lu, _from_zero(n, pivots), b)


def solve_triangular(n: Call, a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Value:
    if not left:
        y = solve_triangular(n, transpose(n, a, -2, -1), transpose(n, b, -2, -1), upper=not upper, unitriangular=unitriangular)
        return transpose(n, y, -2, -1)
    a, b = _alike(n, a, b)
    return n.op("solve_upper" if upper else "solve_lower", a, b, unit=int(unitriangular))


def triangular_solve(n: Call, b: Value, a: Value, upper: bool = True, transposed: bool = False, unitriangular: bool = False) -> Any:
    turned = transpose(n, a, -2, -1) if transposed else a
    return solve_triangular(n, turned, b, upper=upper != transposed, unitriangular=unitriangular), a


def cholesky_solve(n: Call, b: Value, factor: Value, upper: bool = False) -> Value:
    turned = transpose(n, factor, -2, -1)
    lower, above = (turned, factor) if upper else (factor, turned)
    return solve_triangular(n, above, solve_triangular(n, lower, b, upper=False), upper=True)


def cholesky_inverse(n: Call, factor: Value, upper: bool = False) -> Value:
    return cholesky_solve(n, _ones(n, factor), factor, upper)


# ---------------------------------------------------------------- parts


def _check_no_errors(n: Call, check_errors: bool) -> None:
    if check_errors:
        raise n.unsupported("`check_errors`")


def _check_no_factors(n: Call, *results: int) -> None:
    """torch may have factors of the transposed matrix there, depending on how it lies in memory."""
    if any(n.uses(k) for k in results):
        raise n.unsupported("the factors as results")


def _factors(n: Call, x: Value, pivot: bool = True) -> tuple[Value, Value, Value]:
    """Return the factors of a matrix in one, with which row each was exchanged, and where a pivot is 0."""
    if not pivot:
        raise n.unsupported("factors without pivots")
    if not same(x.shape[-1], x.shape[-2]):
        raise n.unsupported("factors of matrices that are not square")
    return n.ops("lu_factors", x)  # type: ignore[return-value]


def _solved(n: Call, lu: Value, rows: Value, b: Value) -> Value:
    lu, b = _alike(n, lu, b)
    order = _order(n, rows)
    ordered = n.op("rows_in_order", b, expand(n, order, (*b.shape[:-2], order.shape[-1])))
    return n.op("solve_upper", lu, n.op("solve_lower", lu, ordered, unit=1))


def _alike(n: Call, a: Value, b: Value) -> tuple[Value, Value]:
    """Return both with the axes in front that either has."""
    front = [x.shape[:-2] for x in (a, b)]
    rank = max(map(len, front))
    padded = [(*(1 for _ in range(rank - len(f))), *f) for f in front]
    common = tuple(m if is_one(k) else k for k, m in zip(*padded, strict=True))
    return expand(n, a, (*common, *a.shape[-2:])), expand(n, b, (*common, *b.shape[-2:]))


def _ones(n: Call, like: Value) -> Value:
    """Return the matrices whose diagonals are 1 and all else 0, as many and as large as `like`."""
    return expand(n, identity(n, like.shape[-1], like.dtype), like.shape)


def _of_rows(n: Call, operator: str, x: Value) -> Value:
    return reduced(n, operator, x, (len(x.shape) - 1,), keep=False)


def _order(n: Call, rows: Value) -> Value:
    return n.op("exchanged_rows", rows)


def _from_one(n: Call, rows: Value) -> Value:
    return n.cast(n.op("add", rows, n.filled((), I64, 1)), I32)


def _from_zero(n: Call, pivots: Value) -> Value:
    return n.op("sub", n.cast(pivots, I64), n.filled((), I64, 1))


RULES: dict[str, Rule] = {
    "linalg_cholesky_ex": cholesky,
    "linalg_qr": qr,
    "geqrf": householder_factors,
    "linalg_householder_product": householder_product,
    "linalg_lu_factor_ex": lu_factors,
    "linalg_lu": lu,
    "lu_unpack": lu_unpack,
    "_linalg_det": determinant,
    "_linalg_slogdet": logarithm_of_determinant,
    "linalg_inv_ex": inverse,
    "_linalg_solve_ex": solve,
    "linalg_lu_solve": lu_solve,
    "linalg_solve_triangular": solve_triangular,
    "triangular_solve": triangular_solve,
    "cholesky_solve": cholesky_solve,
    "cholesky_inverse": cholesky_inverse,
}
