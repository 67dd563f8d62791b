"""Operators of ATen taken apart into others, where torch itself takes nothing apart: what `torch.compile` and `torch.export` meet.

A function has the arguments that ATen declares, and the results. Where the library has an operator for it, a rule of `stdlib/aten` is
the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, pi, sqrt
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorlang.torch import derivatives
from tensorlang.torch.spectra import eigenvectors, exponential, pseudo_inverse, singular_vectors

Decomposition: TypeAlias = "Callable[..., Any]"

aten = torch.ops.aten


def table() -> dict[Any, Decomposition]:
    """Return the decompositions that torch has, for export or elsewhere, and those of this module."""
    from torch._decomp import global_decomposition_table

    others = dict(global_decomposition_table["post_autograd"])
    found = {**others, **torch.export.default_decompositions(), **derivatives.TABLE, **_OURS}
    for op in _WHOLE:
        found.pop(op, None)
    return found


# ---------------------------------------------------------------- blocks of transformers


def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def first(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x: Tensor) -> Tensor:
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def fed_forward(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first(src))
        return x + fed_forward(second(x))
    x = first(src + attended(src))
    return second(x + fed_forward(x))


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What a mask holds that is not 0 is left out: of a row of queries (0), of a sample (1) or of each head (2)."""
    batch, width = query.shape[0], embed_dim // num_head
    parts = zip((query, key, value), qkv_weight.split(embed_dim), qkv_bias.split(embed_dim), strict=True)
    q, k, v = (F.linear(x, w, b).view(batch, -1, num_head, width).transpose(1, 2) for x, w, b in parts)
    left_out = None if mask is None else mask.to(torch.bool)
    if left_out is not None and mask_type == 1:
        left_out = left_out[:, None, None, :]
    if need_weights:
        scores = (q / sqrt(width)) @ k.transpose(-2, -1)
        weights = (scores if left_out is None else scores.masked_fill(left_out, -inf)).softmax(-1)
        found = weights @ v
    else:
        weights = query.new_empty(0)
        bias = None if left_out is None else torch.zeros_like(left_out, dtype=q.dtype).masked_fill(left_out, -inf)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    y = F.linear(found.transpose(1, 2).reshape(batch, -1, embed_dim), proj_weight, proj_bias)
    return y, weights.mean(1) if need_weights and average_attn_weights else weights


# ---------------------------------------------------------------- order


def kth_value(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """NaN comes after all numbers."""
    return _taken(x, _order(x, dim).narrow(dim, k - 1, 1) if x.dim() else None, dim, keepdim)


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of two; NaN where there is one."""
    if not x.dim():
        return _taken(x, None, dim, keepdim)
    at = _order(x, dim).narrow(dim, (x.shape[dim] - 1) // 2, 1)
    if x.is_floating_point():
        strange = x.isnan()
        at = torch.where(strange.any(dim, keepdim=True), strange.to(torch.int32).argmax(dim, keepdim=True), at)
    return _taken(x, at, dim, keepdim)


def nan_median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if not x.dim() or not x.is_floating_point():
        return median(x, dim, keepdim)
    count = x.isnan().logical_not().sum(dim, keepdim=True)
    return _taken(x, _order(x, dim).gather(dim, ((count - 1) // 2).clamp(min=0)), dim, keepdim)


def median_of_all(x: Tensor) -> Tensor:
    return median(x.reshape(-1), 0)[0]


def nan_median_of_all(x: Tensor) -> Tensor:
    return nan_median(x.reshape(-1), 0)[0]


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The least of those that are there most often, and the last place of it."""
    if not x.dim():
        return _taken(x, None, dim, keepdim)
    order = _order(x, dim)
    y, count = x.gather(dim, order), x.shape[dim]
    shape = [1] * x.dim()
    shape[dim] = count
    places = torch.arange(count, device=x.device).view(shape)
    before, after = y.narrow(dim, 0, count - 1), y.narrow(dim, 1, count - 1)
    is_first = torch.cat([torch.ones_like(y.narrow(dim, 0, 1), dtype=torch.bool), after != before], dim)
    since = torch.where(is_first, places, 0).cummax(dim).values
    return _taken(x, order.gather(dim, (places - since).argmax(dim, keepdim=True)), dim, keepdim)


def _order(x: Tensor, dim: int) -> Tensor:
    return torch.sort(x, stable=True, dim=dim).indices


def _taken(x: Tensor, at: Tensor | None, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if at is None:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values = x.gather(dim, at)
    return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))


# ---------------------------------------------------------------- elements that indices name


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of `source` in order, where the mask holds."""
    x, mask = torch.broadcast_tensors(x, mask)
    if not x.numel() or not source.numel():
        return x.clone()
    at = (mask.reshape(-1).cumsum(0) - 1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.reshape(-1)[at].reshape(x.shape), x)


def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    moved = x.movedim((dim1, dim2), (0, 1))
    at = torch.arange(source.shape[-1], device=x.device)
    found = moved.index_put((at + max(0, -offset), at + max(0, offset)), source.movedim(-1, 0))
    return found.movedim((0, 1), (dim1, dim2))


def strided_scatter(x: Tensor, source: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Any:
    """What `as_strided` names is replaced, in a tensor whose elements lie in order from the first of its memory on."""
    if not x.is_contiguous() or x.storage_offset():
        return NotImplemented
    at = torch.full([1] * len(size), storage_offset or 0, dtype=torch.int64, device=x.device)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        at = at + (torch.arange(extent, device=x.device) * step).reshape([-1 if k == axis else 1 for k in range(len(size))])
    return x.reshape(-1).index_put((at.reshape(-1),), source.reshape(-1)).reshape(x.shape)


def first_places_not_zero(x: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The places of the first `size` elements that are not 0, a row for each; `fill_value` where there are fewer."""
    if not x.dim() or not x.numel():
        return NotImplemented
    counts = x.reshape(-1) != 0
    row = counts.cumsum(0) - 1
    rows, numbers = torch.arange(size, device=x.device), torch.arange(x.numel(), device=x.device)
    row = torch.where(counts, row.clamp(max=size), size)  # the last is of those that are left out
    left = torch.zeros(size + 1, dtype=torch.int64, device=x.device).index_put((row,), numbers)[:size]
    places = []
    for extent in reversed(x.shape):
        places.append(left % extent)
        left = left // extent
    return torch.where((rows < counts.sum())[:, None], torch.stack(places[::-1], 1), fill_value)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    return x.reshape(-1).index_put((index,), source.reshape(index.shape), accumulate).reshape(x.shape)


def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """As `scatter_reduce`, by slices."""
    if not x.dim():
        return index_reduce(x.view(1), 0, index.view(-1), source.view(-1), reduce, include_self=include_self).view(())
    shape = [1] * x.dim()
    shape[dim] = -1
    reduce = {"amax": "amax", "amin": "amin", "mean": "mean", "prod": "prod"}[reduce]
    return x.scatter_reduce(dim, index.view(shape).expand(source.shape), source, reduce, include_self=include_self)


def repeated_places(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """Each place as often as `repeats` says."""
    if output_size is None:
        return NotImplemented
    ends, places = repeats.cumsum(0), torch.arange(output_size, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)


def histogram_between(x: Tensor, edges: Tensor, *, weight: Tensor | None = None, density: bool = False) -> tuple[Tensor, Tensor]:
    """How many elements lie between one edge and the next, or the sums of their weights; the last edge belongs to the last of these."""
    x, bins = x.reshape(-1), edges.numel() - 1
    at = torch.where(x == edges[-1], bins - 1, torch.searchsorted(edges, x, right=True) - 1)
    counted = torch.where((at >= 0) & (at < bins), 1 if weight is None else weight.reshape(-1), 0).to(x.dtype)
    counts = torch.zeros(bins, dtype=x.dtype, device=x.device).index_add(0, at.clamp(0, bins - 1), counted)
    return (counts / (counts.sum() * edges.diff()) if density else counts), edges.clone()


# ---------------------------------------------------------------- products, distances


def product_of_bytes(a: Tensor, b: Tensor) -> Tensor:
    return a.to(torch.int32) @ b.to(torch.int32)


def product_of_scaled(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """A scale is of all of a matrix, or of each row of `a`, each column of `b`."""
    y = (a.to(torch.float32) @ b.to(torch.float32)) * (scale_a * scale_b)
    y = y if bias is None else y + bias
    return (y if scale_result is None else y * scale_result).to(out_dtype or a.dtype)


def product_with_weights_in_bytes(x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    return F.linear(x.to(torch.float32), weights.to(torch.float32)).mul(scales).to(x.dtype)


def distances(a: Tensor, b: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    return torch.linalg.vector_norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def distances_of_pairs(x: Tensor, p: float = 2.0) -> Tensor:
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return torch.linalg.vector_norm(x[i] - x[j], p, -1)


def trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand1: list[int], expand2: list[int], expand3: list[int], sumdim: list[int], unroll_dim: int = 1
) -> Tensor:
    """The sums over `sumdim` of the products of three tensors, each of which lacks some axes."""
    for dims in (expand1, expand2, expand3):
        assert sorted(dims) == list(dims)
    for dim in expand1:
        a = a.unsqueeze(dim)
    for dim in expand2:
        b = b.unsqueeze(dim)
    for dim in expand3:
        c = c.unsqueeze(dim)
    return (a * b * c).sum(sumdim)


def add_sum_of_products(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    found = alpha * (a.movedim(0, 1).flatten(1) @ b.flatten(0, 1))  # one sum, rounded once
    return found if beta == 0 else beta * x + found


# ---------------------------------------------------------------- parts of numbers


@dataclass(frozen=True, slots=True)
class _Format:
    """How bits are shared out in a type of floats: `places` below the binary point, `bias` of exponents; as integers of type `bits`."""

    bits: torch.dtype
    places: int
    bias: int


_FORMATS = {torch.float32: _Format(torch.int32, 23, 127), torch.float64: _Format(torch.int64, 52, 1023)}


def next_after(x: Tensor, y: Tensor) -> Any:
    """The number next to `x` towards `y`."""
    dtype = torch.result_type(x, y)
    form = _FORMATS.get(dtype)
    if form is None:
        return NotImplemented
    x, y = (t.contiguous() for t in torch.broadcast_tensors(x.to(dtype), y.to(dtype)))
    bits = x.view(form.bits)
    stepped = torch.where((y > x) == (x > 0), bits + 1, bits - 1).view(dtype)
    least = torch.ones_like(bits).view(dtype).copysign(y)
    found = torch.where(x == y, y, torch.where(x == 0, least, stepped))
    return torch.where(x.isnan() | y.isnan(), x + y, found)


def mantissa_and_exponent(x: Tensor) -> Any:
    """What a number is as a half or more, below 1, times a power of two; of 0, NaN and infinities the number and 0."""
    form = _FORMATS.get(x.dtype)
    if form is None:
        return NotImplemented
    is_small, lifted = x.abs() < torch.finfo(x.dtype).tiny, form.places + 1
    bits = torch.where(is_small, x * 2.0**lifted, x).contiguous().view(form.bits)
    exponents = 2 * form.bias + 1
    exponent = ((bits >> form.places) & exponents) - (form.bias - 1) - torch.where(is_small, lifted, 0)
    mantissa = ((bits & ~(exponents << form.places)) | ((form.bias - 1) << form.places)).view(x.dtype)
    is_plain = x.isfinite() & (x != 0)
    return torch.where(is_plain, mantissa, x), torch.where(is_plain, exponent, 0).to(torch.int32)


# ---------------------------------------------------------------- others


def permutation(n: int, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Tensor:
    """The order of random numbers."""
    return torch.rand(n, dtype=torch.float64, device=device).argsort().to(dtype or torch.int64)


def angle(x: Tensor) -> Any:
    """Of numbers that are not complex."""
    if x.is_complex():
        return NotImplemented
    half_turn = torch.where(x < 0, pi, 0.0)
    return torch.where(x.isnan(), x, half_turn.to(x.dtype)) if x.is_floating_point() else half_turn


def randomised_leaky_relu(
    x: Tensor, noise: Tensor, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    """Nothing is random outside of training."""
    return NotImplemented if training else F.leaky_relu(x, (lower + upper) / 2)


def randomised_leaky_relu_and_noise(
    x: Tensor, noise: Tensor, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    return NotImplemented if training else (F.leaky_relu(x, (lower + upper) / 2), noise.clone())


def rounded_by_channel(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, least: int, most: int) -> tuple[Tensor, Tensor]:
    """What is left of numbers that become integers, with a scale and a zero point of each channel, and which of them are in range."""
    shape = [1] * x.dim()
    shape[axis] = -1
    return _rounded(x, scale.reshape(shape), zero_point.reshape(shape), least, most)


def rounded_where_enabled(x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, least: int, most: int) -> tuple[Tensor, Tensor]:
    y, fits = _rounded(x, scale, zero_point, least, most)
    is_enabled = enabled.view(()) == 1
    return torch.where(is_enabled, y, x), fits | ~is_enabled


def _rounded(x: Tensor, scale: Tensor, zero_point: Tensor, least: int, most: int) -> tuple[Tensor, Tensor]:
    whole = torch.round(x * (1 / scale)) + zero_point
    fits = (whole >= least) & (whole <= most)
    return ((whole.clamp(least, most) - zero_point) * scale).to(x.dtype), fits


_WHOLE = (aten.lift_fresh.default, aten.polar.default, aten.complex.default)
"""What torch takes apart in a way that graphs cannot have: tensors that a function holds are read from the graph, and complex numbers
become pairs of real ones, where torch would write into the parts of an empty tensor."""


def distances_of_labels(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """The loss of several labels: those of a row end at the first -1; each is compared with all classes that are none of them."""
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = rows.shape[1]
    given = (labels != -1).cumprod(1) > 0
    is_label = (given[:, :, None] & (labels[:, :, None] == torch.arange(classes, device=x.device))).any(1)
    margins = (1 - rows.gather(1, torch.where(given, labels, 0))[:, :, None] + rows[:, None]).clamp_min(0)
    losses = torch.where(given[:, :, None] & ~is_label[:, None], margins, 0).sum((1, 2)) / classes
    loss = (losses.reshape(x.shape[:-1]), losses.mean(), losses.sum())[reduction]
    return loss, is_label.to(x.dtype).reshape(target.shape)


MENDED: dict[Any, Decomposition] = {aten.multilabel_margin_loss_forward.default: distances_of_labels}
"""What torch takes apart into something else than the operator computes, in kernels that come before its decompositions."""
_OURS: dict[Any, Decomposition] = {
    **MENDED,
    aten._transformer_encoder_layer_fwd.default: transformer_encoder_layer,
    aten._native_multi_head_attention.default: multi_head_attention,
    aten.kthvalue.default: kth_value,
    aten.median.dim: median,
    aten.median.default: median_of_all,
    aten.nanmedian.dim: nan_median,
    aten.nanmedian.default: nan_median_of_all,
    aten.mode.default: mode,
    aten.repeat_interleave.Tensor: repeated_places,
    aten.masked_scatter.default: masked_scatter,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.as_strided_scatter.default: strided_scatter,
    aten.nonzero_static.default: first_places_not_zero,
    aten.put.default: put,
    aten.index_reduce.default: index_reduce,
    aten.histogram.bins_tensor: histogram_between,
    aten._cdist_forward.default: distances,
    aten._pdist_forward.default: distances_of_pairs,
    aten._trilinear.default: trilinear,
    aten.addbmm.default: add_sum_of_products,
    aten.linalg_pinv.atol_rtol_tensor: pseudo_inverse,
    aten.angle.default: angle,
    aten.nextafter.default: next_after,
    aten.frexp.Tensor: mantissa_and_exponent,
    aten.randperm.default: permutation,
    aten.fake_quantize_per_channel_affine_cachemask.default: rounded_by_channel,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: rounded_where_enabled,
    aten._int_mm.default: product_of_bytes,
    aten._scaled_mm.default: product_of_scaled,
    aten._weight_int8pack_mm.default: product_with_weights_in_bytes,
    aten.rrelu_with_noise.default: randomised_leaky_relu,
    aten.rrelu_with_noise_functional.default: randomised_leaky_relu_and_noise,
}
BY_LOOPS: dict[Any, Decomposition] = {
    aten._linalg_eigh.default: eigenvectors,
    aten._linalg_svd.default: singular_vectors,
    aten.linalg_matrix_exp.default: exponential,
}
"""What is taken apart into loops, which torch does not do in an exported program: it is captured once more."""
