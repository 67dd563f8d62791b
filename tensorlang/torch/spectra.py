"""Eigenvectors, singular vectors and functions of matrices, taken apart into operators of ATen that are read as they are.

Jacobi's rotations: each makes two rows of a matrix orthogonal, and a round has as many of them as there are pairs of rows, which do not
concern each other. Row i is rotated with row i + m; then the rows change places as players of a tournament do, so that after n - 1 rounds,
a sweep, each has met each, and all are where they began. Sweeps follow each other until nothing is left to rotate.

    eigenvectors        of a symmetric matrix, rotated from both sides until it is diagonal
    singular vectors    of any, whose columns are rotated until they are orthogonal (Hestenes); their lengths are the singular values
    exponential         a power series of the matrix divided by a power of two, squared as often (scaling and squaring)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_SWEEPS = 15
"""How many sweeps there are at most; convergence is quadratic, and 5 to 9 are usual."""


def eigenvectors(x: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:
    """Of symmetric matrices, of which one triangle is read; eigenvalues from the least on."""
    n = int(x.shape[-1])
    if x.is_complex() or not x.numel():
        return NotImplemented
    a = _mirrored(x if UPLO.upper() == "L" else x.mT)
    scale = _or_one(a.abs().amax((-2, -1), keepdim=True))
    rows = torch.eye(n, dtype=x.dtype).expand(x.shape)
    a, rows = _swept(_both_sides, F.pad(a / scale, (0, n % 2, 0, n % 2)), F.pad(rows, (0, 0, 0, n % 2)), n * torch.finfo(x.dtype).eps)
    values = a.diagonal(dim1=-2, dim2=-1)[..., :n] * scale[..., 0]
    values, order = values.sort(-1)
    return values, _rows_at(rows, order).mT if compute_v else x.new_empty(0)


def singular_vectors(x: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """The factors u, s and v transposed; singular values from the greatest on."""
    if x.is_complex() or not x.numel():
        return NotImplemented
    if x.shape[-2] < x.shape[-1]:
        u, s, v = singular_vectors(x.mT, full_matrices, compute_uv)
        return (_by_columns(v.mT), s, _by_columns(u.mT)) if compute_uv else (v, s, u)
    m, n = map(int, x.shape[-2:])
    scale = _or_one(x.abs().amax((-2, -1), keepdim=True))
    rows = torch.eye(n, dtype=x.dtype).expand(*x.shape[:-2], n, n)
    tolerance = 2 * m**0.5 * torch.finfo(x.dtype).eps
    columns, rows = _swept(_one_side, F.pad(x.mT / scale, (0, 0, 0, n % 2)), F.pad(rows, (0, 0, 0, n % 2)), tolerance)
    columns = columns[..., :n, :]
    values, order = torch.linalg.vector_norm(columns, dim=-1).sort(-1, descending=True)
    s = values * scale[..., 0]
    if not compute_uv:
        return x.new_empty(0), s, x.new_empty(0)
    q, r = torch.linalg.qr(_rows_at(columns, order).mT, "complete" if full_matrices else "reduced")  # orthogonal where values are 0, too
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(x.dtype)
    u = q * F.pad(signs, (0, q.shape[-1] - n), value=1.0)[..., None, :]
    return _by_columns(u), s, _by_columns(_rows_at(rows, order))


def pseudo_inverse(x: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Any:
    if x.is_complex() or not x.numel():
        return NotImplemented
    u, s, v = torch.linalg.svd(_mirrored(x) if hermitian else x, full_matrices=False)
    least = torch.zeros((), dtype=s.dtype) if atol is None else atol
    if rtol is None:
        rtol = torch.where(least > 0, 0.0, torch.finfo(x.dtype).eps * max(x.shape[-2:]))
    kept = s > torch.maximum(least[..., None], rtol[..., None] * s[..., :1])
    return (v.mT * torch.where(kept, 1 / _or_one(s), 0)[..., None, :]) @ u.mT


def _mirrored(x: Tensor) -> Tensor:
    """Return the symmetric matrices of which x has the lower triangle, whatever its upper one is."""
    below = x.tril()
    return below + below.tril(-1).mT


def exponential(x: Tensor) -> Any:
    """Terms up to the 12th power in f32, and the 18th in f64, of matrices whose columns sum up to 1 at most."""
    if x.is_complex() or not x.numel():
        return NotImplemented
    size = x.abs().sum(-2).amax(-1)
    count = torch.where(size.isfinite(), torch.ceil(torch.log2(size)).clamp(min=0), 0).to(torch.int64)
    y = x * torch.exp2(-count.to(x.dtype))[..., None, None]
    one = torch.eye(x.shape[-1], dtype=x.dtype)
    power = one.expand(x.shape).clone()
    for k in range(18 if x.dtype == torch.float64 else 12, 0, -1):
        power = one + y @ power / k

    def goes_on(k: Tensor, p: Tensor, count: Tensor) -> Tensor:
        return (k < count).any()

    def squared(k: Tensor, p: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        return k + 1, torch.where((k < count)[..., None, None], p @ p, p)

    return repeated(goes_on, squared, (torch.zeros((), dtype=torch.int64), power), (count,))[1]


def repeated(
    condition: Callable[..., Tensor], step: Callable[..., Any], state: tuple[Tensor, ...], read: tuple[Tensor, ...] = ()
) -> tuple[Tensor, ...]:
    """Return what is left of `state` after steps for as long as the condition holds; functions are given `read`, too, and look at no other
    tensor. `while_loop` of torch compiles loops by themselves, which may settle sizes that are open."""
    return torch.ops.higher_order.while_loop(condition, step, state, read)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- rotations

Round = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Rotates the rows of two matrices; what it returns first is by how much the worst pair was not orthogonal."""


def _swept(rotated: Round, a: Tensor, b: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return both matrices after sweeps, until no pair is worse than `tolerance`."""
    n = int(a.shape[-2])
    rounds = n - 1

    def goes_on(k: Tensor, worst: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (k < _SWEEPS * rounds) & ((k % rounds != 0) | (k == 0) | (worst > tolerance))

    def step(k: Tensor, worst: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        found, a, b = rotated(a, b)
        return k + 1, torch.maximum(torch.where(k % rounds == 0, 0, worst), found), a, b

    start = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=a.dtype)
    matrices = (x.clone(memory_format=torch.contiguous_format) for x in (a, b))
    return repeated(goes_on, step, (*start, *matrices))[2:]


def _both_sides(a: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m = a.shape[-1] // 2
    diagonal, product = a.diagonal(dim1=-2, dim2=-1), a[..., :m, m:].diagonal(dim1=-2, dim2=-1)
    c, s = _angles(diagonal[..., :m], diagonal[..., m:], product)
    return product.abs().amax(), _turned(_turned(a, c, s).mT, c, s), _turned(rows, c, s)


def _one_side(columns: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m = columns.shape[-2] // 2
    above, below = columns[..., :m, :], columns[..., m:, :]
    p, q, product = (above * above).sum(-1), (below * below).sum(-1), (above * below).sum(-1)
    c, s = _angles(p, q, product)
    return (product.abs() / _or_one(p.sqrt() * q.sqrt())).amax(), _turned(columns, c, s), _turned(rows, c, s)


def _angles(p: Tensor, q: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines that make [[p, product], [product, q]] diagonal."""
    ratio = (q - p) / (2 * _or_one(product))
    tangent = torch.where(ratio < 0, -1.0, 1.0).to(p.dtype) / (ratio.abs() + torch.sqrt(1 + ratio * ratio))
    tangent = torch.where(product == 0, 0, tangent)
    cosine = torch.rsqrt(1 + tangent * tangent)
    return cosine, tangent * cosine


def _turned(a: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """Return a matrix with each of its first m rows rotated with one of the last, and then in the order of the next round."""
    m = c.shape[-1]
    c, s = c[..., None], s[..., None]
    above, below = a[..., :m, :], a[..., m:, :]
    first, last = c * above - s * below, s * above + c * below
    if m == 1:
        return torch.cat([first, last], -2)
    return torch.cat([first[..., :1, :], last[..., :1, :], first[..., 1 : m - 1, :], last[..., 1:, :], first[..., m - 1 :, :]], -2)


def _rows_at(a: Tensor, order: Tensor) -> Tensor:
    return a.gather(-2, order[..., None].expand(*order.shape, a.shape[-1]))


def _by_columns(x: Tensor) -> Tensor:
    """Return a matrix as LAPACK has it in memory."""
    return x.mT.contiguous().mT


def _or_one(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1, x)
