"""Derivatives that ATen has an operator for and torch takes nothing apart of, taken apart into other operators.

A function has the arguments that ATen declares. Derivatives of what a rule of `stdlib/aten` makes follow from the rule
(`stdlib/aten/derivatives.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def greatest_of_windows(rank: int) -> Callable[..., Tensor]:
    """Of windows over so many axes: each adds to the element whose place, among those of the axes, is the last argument."""

    def of_places(grad: Tensor, x: Tensor, *windows_and_places: Any) -> Tensor:
        at = windows_and_places[-1]
        return torch.zeros_like(x).flatten(-rank).scatter_add(-1, at.flatten(-rank), grad.flatten(-rank)).reshape(x.shape)

    return of_places


def distances(grad: Tensor, a: Tensor, b: Tensor, p: float, y: Tensor) -> Tensor:
    """Of the distances `y` of the rows of `a` to those of `b`, by `a`."""
    differences = a[..., :, None, :] - b[..., None, :, :]
    return (grad[..., None] * _of_norm(differences, p, y[..., None])).sum(-2).sum_to_size(a.shape)


def distances_of_pairs(grad: Tensor, x: Tensor, p: float, y: Tensor) -> Tensor:
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    slopes = grad[:, None] * _of_norm(x[i] - x[j], p, y[:, None])
    return torch.zeros_like(x).index_add(0, i, slopes).index_add(0, j, -slopes)


def _of_norm(x: Tensor, p: float, norm: Tensor) -> Tensor:
    """Return the derivatives of a norm by the elements of a row; of a row of zeros they are 0."""
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        return x.sign()
    if p == inf:
        return torch.where(x.abs() == norm, x.sign(), 0)
    slopes = x / norm if p == 2 else x.sign() * (x.abs() / norm) ** (p - 1)
    return torch.where((norm == 0) | (x == 0), 0, slopes)


def weights_of_directions(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Of `v * (g / norms)`, whose rows along `dim` have the lengths `g`."""
    others = [k for k in range(v.dim()) if k != dim]
    along = (grad * v).sum(others, keepdim=True) / norms
    return (grad - v * (along / norms)) * (g / norms), along


def scattered_under_mask(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """Of what is written where a mask holds, in order, by the elements that are written."""
    grad, mask = torch.broadcast_tensors(grad, mask)
    count = 1
    for extent in sizes:
        count = count * extent
    at = (mask.reshape(-1).cumsum(0) - 1).clamp(0, max(count - 1, 0))
    return grad.new_zeros(count).index_add(0, at, torch.where(mask, grad, 0).reshape(-1)).reshape(sizes)


def rows_of_bags(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Of sums, means and greatest elements of rows in bags, by the rows: each index adds the derivative by its bag to its row.
    By frequency, that is divided by how often the row is named, as torch documents it; its kernel for processors counts other rows."""
    by_rows = grad.new_zeros(num_weights, grad.shape[1])
    if mode == _GREATEST:
        return by_rows.scatter_add(0, maximum_indices, torch.where((bag_size > 0)[:, None], grad, 0))
    if mode == _MEAN:
        grad = grad / bag_size.clamp(min=1)[:, None]
    slopes = grad[_bags(indices, offsets)]
    if per_sample_weights is not None:
        slopes = slopes * per_sample_weights[:, None]
    if scale_grad_by_freq:
        slopes = slopes / grad.new_zeros(num_weights).index_add(0, indices, torch.ones_like(slopes[:, 0]))[indices][:, None]
    return by_rows.index_add(0, indices, torch.where((indices != padding_idx)[:, None], slopes, 0))


def scales_of_bags(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """Of sums of rows in bags, each of which is scaled, by the scales."""
    return torch.where(indices != padding_idx, (grad[_bags(indices, offsets)] * weight[indices]).sum(1), 0)


_MEAN, _GREATEST = 1, 2


def _bags(indices: Tensor, offsets: Tensor) -> Tensor:
    """Return which bag each index lies in, of bags that begin at the offsets."""
    places = torch.arange(indices.shape[0], dtype=offsets.dtype, device=indices.device)
    return torch.searchsorted(offsets, places, right=True) - 1


def beyond(grad: Tensor, x: Tensor, by: float) -> Tensor:
    """Of what is 0 between `-by` and `by`, and beyond them varies as `x` does."""
    return torch.where((x >= -by) & (x <= by), 0, grad)


class _Solution(torch.autograd.Function):  # type: ignore[misc]
    """Of systems of equations, whose derivatives are solutions for the transposed matrices: torch reads factors for them that are those of
    the transposed matrix, or not, by how it lies in memory."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, left: bool, check_errors: bool) -> tuple[Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            x, *others = aten._linalg_solve_ex.default(a, b, left=left, check_errors=check_errors)
        ctx.save_for_backward(a, x)
        ctx.left, ctx.is_vector, ctx.shape = left, b.dim() == 1 or b.shape == a.shape[:-1], b.shape
        ctx.mark_non_differentiable(*others)
        return x, *others

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, x = ctx.saved_tensors
        x, grad = (t.unsqueeze(-1) if ctx.is_vector else t for t in (x, grads[0]))
        by_b = torch.linalg.solve_ex(a.mT, grad, left=ctx.left)[0]
        by_a = by_b @ x.mT if ctx.left else x.mT @ by_b
        return -by_a.sum_to_size(a.shape), (by_b.squeeze(-1) if ctx.is_vector else by_b).sum_to_size(ctx.shape), None, None


class _LogarithmOfDeterminant(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            sign, logarithm, *factors = aten._linalg_slogdet.default(a)
        ctx.save_for_backward(a)
        ctx.mark_non_differentiable(sign, *factors)
        return sign, logarithm, *factors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[1][..., None, None] * torch.linalg.inv_ex(ctx.saved_tensors[0])[0].mT


def solution(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    return _Solution.apply(a, b, left, check_errors)


def nothing(size: Sequence[int], **options: Any) -> Tensor:
    """Zeros that torch writes nowhere."""
    return torch.zeros(size, **options)


SOLUTIONS: dict[Any, Callable[..., Any]] = {
    aten._linalg_solve_ex.default: solution,
    aten._linalg_slogdet.default: _LogarithmOfDeterminant.apply,
}
"""What has derivatives of another form than torch's own."""
TABLE: dict[Any, Callable[..., Any]] = {
    aten.max_pool3d_with_indices_backward.default: greatest_of_windows(3),
    aten.adaptive_max_pool2d_backward.default: greatest_of_windows(2),
    aten.adaptive_max_pool3d_backward.default: greatest_of_windows(3),
    aten.softshrink_backward.default: beyond,
    aten.hardshrink_backward.default: beyond,
    aten._efficientzerotensor.default: nothing,
    aten._cdist_backward.default: distances,
    aten._pdist_backward.default: distances_of_pairs,
    aten._weight_norm_interface_backward.default: weights_of_directions,
    aten.masked_scatter_backward.default: scattered_under_mask,
    aten._embedding_bag_backward.default: rows_of_bags,
    aten._embedding_bag_per_sample_weights_backward.default: scales_of_bags,
}
