"""Every rule for an operator of ATen computes what torch computes: graphs are interpreted and compared."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from onnx_evaluate import evaluate
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from stdlib.aten import Importer
from stdlib.aten.call import wider
from stdlib.aten.importer import imported
from tensorlang.diagnostics import CompileError
from tensorlang.graph.verify import verify
from tensorlang.torch.capture import decompositions, of_graph
from tensorlang.torch.program import DRAW
from tensorlang.torch.tensors import TORCH_DTYPES, array_of, dtype_of

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

SERVES = Importer().serves
TABLE = decompositions(SERVES)


def made(*shape: int, low: float = -1.5, high: float = 2.0) -> Tensor:
    """Return numbers that differ, in no order."""
    count = int(np.prod(shape))
    order = (torch.arange(count) * 7919) % max(count, 1)
    return (low + (high - low) * (order.to(torch.float32) + 0.5) / max(count, 1)).reshape(shape)


def whole(*shape: int, low: int = -4, high: int = 5) -> Tensor:
    return (torch.arange(int(np.prod(shape))) * 7 % (high - low) + low).reshape(shape)


X, Y, P, Z, N = made(2, 3, 4), made(3, 4), made(2, 3, low=0.1, high=3), whole(2, 3), whole(3, low=1, high=5)
IMAGE, B = made(1, 4, 6, 6), Z > 0
F8 = torch.float8_e4m3fn

ELEMENTWISE: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    **{name: (getattr(torch, name), (P,)) for name in (
        "exp", "log", "sqrt", "rsqrt", "reciprocal", "abs", "neg", "floor", "ceil", "round", "trunc", "sign", "erf", "sin", "cos", "tan",
        "atan", "sinh", "cosh", "tanh", "asinh", "log1p", "expm1", "log2", "log10", "exp2", "square", "sigmoid", "isnan", "isinf",
        "isfinite", "nan_to_num",
    )},
    **{name: (getattr(torch, name), (P / 4,)) for name in ("asin", "acos", "atanh")},
    "acosh": (torch.acosh, (P + 1,)),
    **{name: (getattr(F, name), (X,)) for name in (
        "relu", "silu", "mish", "hardswish", "gelu", "softplus", "elu", "celu", "selu", "leaky_relu", "hardsigmoid", "hardtanh", "relu6",
        "glu", "logsigmoid", "softsign", "tanhshrink", "hardshrink",
    )},
    **{f"{name} of integers": (getattr(torch, name), (Z,)) for name in (
        "abs", "neg", "floor", "sign", "sqrt", "exp", "isnan", "bitwise_not",
    )},
    "add of two types": (lambda a, b: a + b, (X, whole(3, 4))),
    "add of a scalar tensor": (lambda a, b: a + b, (Z, torch.tensor(0.5))),
    "add of a number": (lambda a: a + 2, (Z,)),
    "add of a float to integers": (lambda a: a + 0.5, (Z,)),
    "add of truths": (lambda a: (a + a, torch.add(~a, a, alpha=False)), (B,)),
    "alpha": (lambda a, b: torch.sub(a, b, alpha=2), (X, Y)),
    "rsub": (lambda a: 1 - a, (X,)),
    "mul of truths": (lambda a, b: a * b, (B, B)),
    "div of integers": (lambda a: a / 3, (Z,)),
    "div down": (lambda a: torch.div(a, 3, rounding_mode="floor"), (Z,)),
    "div to zero": (lambda a: torch.div(a, 3, rounding_mode="trunc"), (Z,)),
    "div of floats down": (lambda a: torch.div(a, 0.7, rounding_mode="floor"), (X,)),
    "//": (lambda a: a // 3, (Z,)),
    "%": (lambda a: a % 3, (Z,)),
    "% of floats": (lambda a: a % 0.7, (X,)),
    "fmod": (lambda a: torch.fmod(a, 3), (Z,)),
    "power 3": (lambda a: a**3, (X,)),
    "power 0.5": (lambda a: a**0.5, (P,)),
    "power 1.7": (lambda a: a**1.7, (P,)),
    "power of integers": (lambda a: (a**2, a**0, a**37), (Z,)),
    "power of integers by integers": (
        lambda a, b: (a**b, a.to(torch.uint8) ** b.to(torch.uint8), a.to(torch.int32) ** b.to(torch.int32)),
        (torch.tensor([3, -7, 10, 2, -1, 1, -1, 5, 0, 0]), torch.tensor([41, 25, 19, 63, -3, -2, -4, -1, 0, 5])),
    ),
    "power of a number": (lambda a: 2.0**a, (X,)),
    "atan2": (torch.atan2, (X, Y)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), (X, X + 1)),
    "addcmul": (lambda a, b: torch.addcmul(a, b, b, value=2), (X, Y)),
    "addcdiv": (lambda a, b: torch.addcdiv(a, b, b + 3), (X, Y)),
    "maximum": (torch.maximum, (X, Y)),
    "minimum of integers": (torch.minimum, (Z, Z.flip(0))),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), (X,)),
    "clamp of integers": (lambda a: a.clamp(min=-1), (Z,)),
    "clamp by tensors": (lambda a, b: torch.clamp(a, b, b + 1), (X, Y)),
    "where": (lambda c, a: torch.where(c, a, 0.0), (B, P)),
    "masked_fill": (lambda a, c: a.masked_fill(c, -float("inf")), (P, B)),
    **{name: (getattr(torch, name), (Z, Z.flip(1))) for name in (
        "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_xor",
    )},
    "compare with a float": (lambda a: a > 0.5, (Z,)),
    "compare truths": (lambda a: (a < a.flip(0)) | (a == a.flip(1)), (B,)),
    "logical_not": (torch.logical_not, (Z,)),
    "shifts": (lambda a: (a << 2) + (a >> 1), (Z,)),
    "prelu": (F.prelu, (X, made(3))),
    "casts": (lambda a: a.to(torch.int32).to(torch.float64) + a.to(torch.bool), (X,)),
    "softplus beta": (lambda a: F.softplus(a, 2.0), (X,)),
    "softplus up to a threshold": (lambda a: F.softplus(a, 3.0, 0.2), (X,)),
    "gelu tanh": (lambda a: F.gelu(a, approximate="tanh"), (X,)),
    "dropout": (lambda a: F.dropout(a, 0.5, training=False), (X,)),
    "of numbers and NaN": (
        lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), (torch.tensor([1.0, nan, nan, 2]), torch.tensor([nan, 3, nan, 1])),
    ),
    "hypot": (torch.hypot, (torch.tensor([3.0, 0, 1e30, 1e-30, inf]), torch.tensor([4.0, 0, 1e30, 1e-30, 1]))),
    "round to decimals": (lambda a: (a.round(decimals=2), (a * 1000).round(decimals=-2)), (X,)),
    "angle": (lambda a: (a.angle(), a.bfloat16().angle().float()), (torch.tensor([1, -2, 0, nan]),)),
    "signs": (lambda a, b: (torch.copysign(a, b), b.signbit()), (P, torch.tensor([0.0, -0.0, -2]))),
    "views with the other sign": (lambda a: (torch._neg_view(a), torch._neg_view(a.int()) - 1), (X,)),
    "rrelu": (F.rrelu, (X,)),
    "functions of analysis": (
        lambda p, x: (
            torch.lgamma(p), torch.digamma(p), torch.polygamma(0, p), torch.polygamma(1, p), torch.erfc(x), torch.special.erfcx(x),
            torch.i0(x), torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x), torch.special.ndtr(x), torch.special.log_ndtr(x),
        ),
        (P, X),
    ),
    "derivatives of digamma": (
        lambda a: tuple(torch.polygamma(k, a) for k in (2, 3, 5)), (torch.tensor([-2.75, -0.3, -1, 0, 0.02, 0.7, 1, 9.5, 21, 1e4]),),
    ),
    **{f"{kind}bessel_{name}": (getattr(torch.special, f"{kind}bessel_{name}"), (torch.tensor([-1, 0, 0.5, 1.9, 2.1, 7.9, 8.1, 60, nan]),))
       for kind, names in (("", "j0 j1 y0 y1"), ("modified_", "i0 i1 k0 k1"), ("scaled_modified_", "k0 k1")) for name in names.split()},
    "inverse functions of analysis": (lambda x: (torch.erfinv(x), torch.special.ndtri(x.abs())), (X / 4,)),
    "divisors": (
        lambda a, b: (torch.gcd(a, b), torch.lcm(a, b), torch.gcd(a.to(torch.uint8), b.to(torch.uint8))),
        (torch.tensor([0, 0, 12, -18, 7, 2**40, 255]), torch.tensor([0, 5, 18, 12, 0, 3 * 2**38, 34])),
    ),
}  # fmt: skip

SHAPES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "view": (lambda a: a.view(4, -1), (X,)),
    "flatten": (lambda a: a.flatten(1), (X,)),
    "permute": (lambda a: a.permute(2, 0, 1), (X,)),
    "t": (lambda a: a.t(), (Y,)),
    "transpose": (lambda a: a.transpose(-1, 0), (X,)),
    "expand": (lambda a: a.expand(2, -1, 4, 3, 4), (X.unsqueeze(1),)),
    "repeat": (lambda a: a.repeat(2, 1, 3), (Y,)),
    "squeeze": (lambda a: (a.squeeze(), a.squeeze(1), a.squeeze((0, 1))), (made(1, 1, 3),)),
    "cat": (lambda a, b: torch.cat([a, a + b, torch.zeros(0)], -1), (X, Y)),
    "cat of types": (lambda a, b: torch.cat([a, b]), (P, Z)),
    "stack": (lambda a, b: torch.stack([a, b], 1), (Y, Y + 1)),
    "split": (lambda a: a.split(3, 2), (X,)),
    "split by sizes": (lambda a: a.split([1, 2], 1), (X,)),
    "chunk": (lambda a: a.chunk(3, -1), (made(2, 7),)),
    "slices": (lambda a: a[:, 1:, ::2] + a[:, :-1, -2:], (X,)),
    "select": (lambda a: a[-1, 1:2] * a[0, 0], (X,)),
    "unbind": (lambda a: a.unbind(1), (X,)),
    "write a slice": (lambda a, b: _written(a, b), (X, Y)),
    "write every second": (lambda a, b: (a.slice_scatter(b, 1, 1, 7, 2), a.slice_scatter(b, 1, -6, None, 2)), (made(2, 8), made(2, 3))),
    "flip": (lambda a: a.flip(0, 2), (X,)),
    "roll": (lambda a: (a.roll(1, 0), a.roll((1, -1), (1, 2)), a.roll(3)), (X,)),
    "pad": (lambda a: F.pad(a, (1, 2, 0, 1), value=3.0), (X,)),
    "crop": (lambda a: F.pad(a, (-1, 1)), (X,)),
    "pad reflect": (lambda a: F.pad(a, (1, 2, 2, 1), mode="reflect"), (IMAGE,)),
    "pad replicate": (lambda a: F.pad(a, (1, 2), mode="replicate"), (X,)),
    "triangles": (lambda a: a.tril() - a.triu(1), (X,)),
    "diagonal": (lambda a: (a.diagonal(1, 1, 2), a.diagonal(-1, 0, 2), a.diagonal(9, 2, 0)), (X,)),
    "unfold": (lambda a: a.unfold(2, 3, 1), (X,)),
    "unfold of a number": (lambda a: a.unfold(0, 1, 1), (torch.tensor(2.5),)),
    "pixel shuffle": (lambda a: (F.pixel_shuffle(a, 2), F.pixel_unshuffle(a, 3)), (IMAGE,)),
    "a range of integers between floats": (lambda a: a + torch.arange(0.9, 4.7, dtype=torch.int64), (X,)),
    "ranges": (lambda a: a + torch.arange(4) + torch.arange(1, 2, 0.25) + torch.linspace(0, 1, 4), (X,)),
    "filled": (lambda a: a + torch.ones_like(a) + torch.full((4,), 2.5) + torch.eye(3, 4) + a.new_zeros(4), (X,)),
    "bits": (lambda a: a.view(torch.int32), (X,)),
    "nothing": (lambda a: torch.cat([a[:0], a[1:1]]), (X,)),
    "as_strided": (
        lambda a: (a.as_strided((3, 4), (2, 3), 1), a.as_strided((2, 3, 2), (1, 0, 5)), (a * 2).mT.as_strided((3, 4), (2, 3), 1)),
        (X,),
    ),
    "triangles as places": (lambda a: a[:, *torch.tril_indices(3, 3, -1)], (made(2, 3, 3),)),
    "a scalar": (lambda a: a.sum().view(1).expand(3) + a.mean(), (X,)),
}

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "matmul": (torch.matmul, (X, made(4, 2))),
    "matmul of batches": (torch.matmul, (made(2, 3, 4, 5), made(2, 3, 5, 2))),
    "matmul broadcasts": (torch.matmul, (made(2, 1, 4, 5), made(3, 5, 2))),
    "vectors": (lambda a, b: (a @ b, b @ b), (Y, made(4))),
    "linear": (F.linear, (X, made(5, 4), made(5))),
    "_int_mm": (torch._int_mm, (whole(17, 8).to(torch.int8), whole(8, 16).to(torch.int8))),
    "_scaled_mm": (
        lambda a, b: torch._scaled_mm(a.to(F8), b.to(F8).t(), torch.tensor(0.5), torch.tensor(3.0), out_dtype=torch.float32),
        (made(16, 16), made(16, 16)),
    ),
    "weights in bytes": (
        lambda x, w, s: torch.ops.aten._weight_int8pack_mm(x.to(torch.bfloat16), w, s.to(torch.bfloat16)).to(torch.float32),
        (whole(4, 32), whole(32, 32).to(torch.int8), torch.ones(32)),
    ),
    "fake_quantize by tensors": (
        lambda x, e: torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
            x, torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), e, 0, 15
        ),
        (X, torch.ones(1, dtype=torch.int64)),
    ),
    "addbmm": (lambda c, a, b: torch.addbmm(c, a, b, alpha=2), (made(3, 2), X, made(2, 4, 2))),
    "bilinear": (F.bilinear, (X, made(2, 3, 5), made(6, 4, 5), made(6))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (made(2), Y, made(4, 2))),
    "baddbmm": (torch.baddbmm, (made(2, 3, 2), X, made(2, 4, 2))),
    "einsum": (lambda a, b: torch.einsum("bij,kj->bki", a, b), (X, made(5, 4))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, groups=2), (IMAGE, made(6, 2, 3, 3), made(6))),
    "conv1d dilated": (lambda x, w: F.conv1d(x, w, dilation=2), (made(2, 3, 9), made(4, 3, 3))),
    "conv of one image": (lambda x, w: F.conv2d(x, w), (IMAGE[0], made(2, 4, 3, 3))),
    "conv transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2), (IMAGE, made(4, 2, 3, 3)),
    ),
    "conv3d": (F.conv3d, (made(1, 2, 4, 4, 4), made(3, 2, 2, 2, 2))),
    "attention": (F.scaled_dot_product_attention, (made(2, 2, 3, 4), made(2, 2, 5, 4), made(2, 2, 5, 4))),
    "attention causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (made(2, 2, 3, 4),)),
    "attention masked": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m, scale=0.3), (made(2, 2, 3, 4), torch.ones(3, 3).tril() > 0),
    ),
    "attention biased": (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), (made(2, 2, 3, 4), made(1, 2, 3, 3))),
    "attention in groups": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (made(2, 4, 3, 4), made(2, 2, 3, 4)),
    ),
}  # fmt: skip

REDUCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "sum": (lambda a: (a.sum(), a.sum(1), a.sum((0, 2), keepdim=True)), (X,)),
    "sum of integers": (lambda a: (a.sum(), (a > 0).sum(0)), (Z,)),
    "mean": (lambda a: (a.mean(), a.mean(-1, keepdim=True)), (X,)),
    "prod": (lambda a: a.prod(1), (X,)),
    "extremes": (lambda a: (a.amax((0, 1)), a.amin(2, keepdim=True), a.max(), a.min()), (X,)),
    "extremes with places": (lambda a: (*a.max(1), *a.min(-1, keepdim=True)), (X,)),
    "places": (lambda a: (a.argmax(), a.argmin(1), a.argmax(2, keepdim=True)), (X,)),
    "truths": (lambda a: (a.any(), a.all(1), (a > 0).any(0)), (Z,)),
    "variance": (lambda a: (a.var(), a.std(1), a.var((0, 2), correction=0), *torch.var_mean(a, 2)), (X,)),
    "logsumexp": (lambda a: torch.logsumexp(a, 1), (X,)),
    "norms": (lambda a: (a.norm(), torch.linalg.vector_norm(a, 1, 1), torch.linalg.vector_norm(a, float("inf"), -1)), (X,)),
    "norms of other orders": (lambda a: [torch.linalg.vector_norm(a, p, 1) for p in (0, 3, 0.5, -1, -inf)], (P,)),
    "distances": (lambda a, b: (torch.cdist(a, b), torch.cdist(a, b, 1), torch.pdist(a[0]), torch.dist(a, a + 1)), (X, made(2, 5, 4))),
    "histogram between edges": (
        lambda a, w, edges: (*torch.histogram(a, edges), *torch.histogram(a, edges, weight=w, density=True)),
        (torch.tensor([-2, -1, -0.25, 0.25, 0.5, 1.5, 2]), made(7), torch.tensor([-1, 0.25, 0.25, 2])),
    ),
    "median": (lambda a: (*a.median(1), a.median(), *a.nanmedian(2), *a.kthvalue(2, 0)), (X,)),
    "median of NaN": (lambda a: (*a.median(0), *a.nanmedian(0), a.nanmedian()), (torch.tensor([3, nan, 1, nan, 5, 2]),)),
    "running extremes": (lambda a: (*a.cummax(1), *a.cummin(-1)), (X,)),
    "running extremes of NaN": (lambda a: (*a.cummax(0), *a.cummin(0)), (torch.tensor([1, 1, nan, 3, nan]),)),
    "running logsumexp": (lambda a: torch.logcumsumexp(a, 1), (torch.cat([X, torch.full((2, 1, 4), -inf)], 1),)),
    "rounding by channels": (
        lambda a, s: torch.fake_quantize_per_channel_affine(a, s, torch.tensor([0, 1, -1], dtype=torch.int32), 1, -8, 7),
        (X, torch.tensor([0.1, 0.2, 0.05])),
    ),
    "places in rows in order": (lambda a, b: (torch.searchsorted(b, a), torch.searchsorted(b, a, side="right")), (X, X[:, :3].sort(-1)[0])),
    "places in rows by what is where in order": (
        lambda a, b: torch.searchsorted(b, a, sorter=b.argsort(-1), right=True),
        (X, -X[:, :3]),
    ),
    "places in order": (lambda a, b: (torch.searchsorted(b, a), torch.bucketize(a, b, right=True, out_int32=True)), (X, made(7).sort()[0])),
    "histc": (lambda a: torch.histc(a, 5, -1.0, 1.0), (X,)),
    "det": (torch.linalg.det, (made(2, 3, 3),)),
    "statistics of a batch": (lambda a, g: F.batch_norm(a, None, None, g, g, training=True), (torch.cat([IMAGE, IMAGE + 1]), made(4))),
    "running": (lambda a: (a.cumsum(1), a.cumprod(-1)), (X,)),
    "running of integers": (lambda a: a.cumsum(1), (Z,)),
    "truths in order": (
        lambda a: (*a.max(1), *a.min(0, True), *a.sort(stable=True), *a.sort(dim=0, descending=True, stable=True), *a[0, 0].sort()), (B,),
    ),
    "truths as sums and products": (lambda a: (a.sum(1, dtype=torch.bool), a.prod(1, dtype=torch.bool)), (B,)),
    "topk": (lambda a: (*a.topk(2, 1), *a.topk(2, largest=False)), (X,)),
    "sort": (lambda a: a.sort(descending=True), (made(3),)),
    "softmax": (lambda a: (a.softmax(1), F.log_softmax(a, -1), a.sum().softmax(0)), (X,)),
    "safe softmax": (lambda a: torch.ops.aten._safe_softmax(a, 1), (torch.cat([X, torch.full((1, 3, 4), -inf)]),)),
    "of no axis": (lambda a: (*a.topk(1), a.index_select(0, torch.zeros_like(a, dtype=torch.int64))), (torch.tensor(3.0),)),
    "layer_norm": (lambda a, g: F.layer_norm(a, (3, 4), g, g) + F.layer_norm(a, (4,)), (X, Y)),
    "batch_norm": (lambda a, m, v: F.batch_norm(a, m, v), (IMAGE, made(4), made(4, low=0.5))),
    "group_norm": (lambda a, g: F.group_norm(a, 2, g, g), (IMAGE, made(4))),
    "group_norm and its statistics": (lambda a, g: torch.native_group_norm(a, g, g, 1, 4, 36, 2, 1e-3), (IMAGE, made(4))),
    "instance_norm": (lambda a, g: F.instance_norm(a, weight=g, bias=g), (IMAGE, made(4))),
}  # fmt: skip

WINDOWS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "max_pool": (lambda a: (F.max_pool2d(a, 3, 2, 1), F.max_pool2d(a[0], 2), F.max_pool2d(a, 4, 3, ceil_mode=True)), (IMAGE,)),
    "max_pool with places": (lambda a: F.max_pool2d(a, 2, return_indices=True), (IMAGE,)),
    "max_pool1d": (lambda a: F.max_pool1d(a, 2), (X,)),
    "avg_pool": (lambda a: (F.avg_pool2d(a, 3, 2, 1), F.avg_pool2d(a, 3, 2, 1, count_include_pad=False)), (IMAGE,)),
    "adaptive": (lambda a: (F.adaptive_avg_pool2d(a, 1), F.adaptive_avg_pool2d(a, 3), F.adaptive_avg_pool2d(a, (4, 5))), (IMAGE,)),
    "adaptive max": (lambda a: F.adaptive_max_pool2d(a, 2), (IMAGE,)),
    "nearest": (lambda a: F.interpolate(a, scale_factor=2), (IMAGE,)),
    "nearest to a size": (lambda a: (F.interpolate(a, (4, 9)), F.interpolate(a, (4, 9), mode="nearest-exact")), (IMAGE,)),
    "bilinear": (lambda a: (F.interpolate(a, scale_factor=2, mode="bilinear"), F.interpolate(a, (4, 9), mode="bilinear")), (IMAGE,)),
    "bilinear by a share": (lambda a: F.interpolate(a, scale_factor=1.3, mode="bilinear"), (IMAGE,)),
    "corners by a share": (lambda a: F.interpolate(a, scale_factor=1.7, mode="bilinear", align_corners=True), (IMAGE,)),
    "adaptive max of several sizes": (lambda a: F.adaptive_max_pool2d(a, (4, 5)), (IMAGE,)),
    "avg_pool with a divisor": (lambda a: F.avg_pool2d(a, 3, 2, 1, divisor_override=5), (IMAGE,)),
    "corners": (lambda a: F.interpolate(a, (4, 9), mode="bilinear", align_corners=True), (IMAGE,)),
    "bicubic": (lambda a: F.interpolate(a, scale_factor=2, mode="bicubic"), (IMAGE,)),
    "antialiased": (lambda a: [F.interpolate(a, (4, 3), mode=m, antialias=True) for m in ("bilinear", "bicubic")], (IMAGE,)),
    "unpool": (lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), (IMAGE,)),
    "fold": (lambda a: F.fold(F.unfold(a, 2, stride=2, padding=1), (6, 6), 2, stride=2, padding=1), (IMAGE,)),
    "roll": (lambda a: (a.roll(1, 2), a.roll((-1, 9), (2, 3)), a.roll(5)), (IMAGE,)),
    "diagonal": (lambda a: a.diagonal_scatter(a[:, 0, :, :4], 1, 1, 2), (IMAGE,)),
    "grid": (lambda a, g: F.grid_sample(a, g, align_corners=False), (IMAGE, made(1, 3, 3, 2))),
}

SQUARE = made(2, 3, 3) + 2 * torch.eye(3)[[1, 2, 0]]
POSITIVE = SQUARE @ SQUARE.mT
FACTORS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "cholesky": (
        lambda a: (torch.linalg.cholesky_ex(a), torch.linalg.cholesky_ex(-a).info, torch.linalg.cholesky_ex(a, upper=True).L),
        (POSITIVE,),
    ),
    "cholesky_solve": (lambda a, b: (torch.cholesky_solve(b, a), torch.cholesky_inverse(a.mT, upper=True)), (SQUARE.tril(), SQUARE)),
    "lu": (lambda a: (torch.linalg.lu(a), torch.linalg.lu_factor_ex(a), torch.linalg.lu_factor_ex(a * 0).info), (SQUARE,)),
    "qr": (
        lambda a: [torch.linalg.qr(b, mode) for b in (a, a[:, :2], a[:, :, :2], a * 0) for mode in ("reduced", "complete", "r")],
        (SQUARE,),
    ),
    "reflections": (lambda a: (torch.geqrf(a), torch.linalg.householder_product(*torch.geqrf(a[:, :, :2]))), (SQUARE,)),
    "lu_solve": (lambda a, p, b: (torch.linalg.lu_solve(a, p, b), torch.lu_unpack(a, p)), (*torch.linalg.lu_factor(SQUARE), X[:, :, :2])),
    "determinant": (lambda a: (torch.linalg.det(a), torch.linalg.slogdet(a)), (SQUARE,)),
    "inverse": (lambda a: (torch.linalg.inv_ex(a), torch.linalg.inv_ex(a[0] * 0).info), (SQUARE,)),
    "solve": (lambda a, b: [torch.linalg.solve_ex(a, c) for c in (b, b[0], b[..., 0])], (SQUARE, X)),
    "solve from the right": (lambda a, b: torch.linalg.solve_ex(a, b, left=False), (SQUARE, X[:, :2, :3])),
    "triangular": (lambda a, b: [torch.linalg.solve_triangular(a, b, upper=u, unitriangular=u) for u in (True, False)], (SQUARE, X)),
    "triangular from the right": (lambda a, b: torch.linalg.solve_triangular(a[0], b.mT, upper=True, left=False), (SQUARE, X)),
    "triangular_solve": (lambda a, b: torch.triangular_solve(b, a, transpose=True), (SQUARE, X)),
}


def slopes(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Return the derivatives of the sum of squares of what a function returns, by each of its arguments of floats."""

    def derivatives(*args: Tensor) -> Any:
        floats = tuple(k for k, a in enumerate(args) if a.is_floating_point())
        return torch.func.grad(lambda *given: function(*given).square().sum(), floats)(*args)

    return derivatives


BAGGED, STARTS = whole(9, low=0, high=5), torch.tensor([0, 3, 3, 9])
FILTERS, VOLUME, HEADS = made(4, 2, 3, 3), made(1, 2, 4, 4, 4), made(2, 2, 3, 4)
DERIVATIVES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    f"derivatives of {name}": (slopes(function), args)
    for name, (function, args) in {
        "a convolution": (lambda a, w, b: F.conv2d(a, w, b, 2, 1, 1, 2), (IMAGE, FILTERS, made(4))),
        "a transposed convolution": (lambda a, w, b: F.conv_transpose1d(a, w, b, 2, 1, 1, dilation=2), (X, made(3, 2, 3), made(2))),
        "a convolution without samples": (lambda a, w: F.conv2d(a, w, padding="same"), (IMAGE[0, :2], FILTERS)),
        "means of windows": (lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False), (IMAGE,)),
        "means of windows of a volume": (lambda a: F.avg_pool3d(a, 2, 1, divisor_override=3), (VOLUME,)),
        "means of parts": (lambda a: F.adaptive_avg_pool2d(a, (4, 3)), (IMAGE,)),
        "the greatest of windows of a volume": (lambda a: F.max_pool3d(a, 2, 1), (VOLUME,)),
        "the greatest of parts": (lambda a: F.adaptive_max_pool2d(a, 2), (IMAGE,)),
        "edges": (lambda a: F.pad(a, (1, 2, 2, 1), mode="replicate"), (IMAGE,)),
        "a resized image": (lambda a: F.interpolate(a, (4, 9), mode="bilinear"), (IMAGE,)),
        "a resized row": (lambda a: F.interpolate(a, scale_factor=1.7), (X,)),
        "samples": (lambda a, g: F.grid_sample(a, g, padding_mode="border", align_corners=False), (IMAGE / 4, made(1, 3, 3, 2))),
        "distances": (lambda a, b: sum(torch.cdist(a, b, p) for p in (1, 2, 3, inf)), (X, X + 1)),
        "distances of pairs": (torch.pdist, (Y,)),
        "weights of directions": (lambda v, g: torch._weight_norm(v, g, 0), (Y, made(3, 1))),
        "signs, and what is shrunk": (lambda a: torch.sgn(a) * a + F.softshrink(a) + F.hardshrink(a, 1), (X,)),
        "what a mask writes": (lambda a, b: a.masked_scatter(a > 0, b), (X, made(30))),
        "sums of rows in bags": (
            lambda w, s, i, o: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s, padding_idx=2),
            (made(5, 4), made(9), BAGGED, STARTS),
        ),
        "means of rows in bags": (
            lambda w, i, o: F.embedding_bag(i, w, o, mode="mean", include_last_offset=True, padding_idx=2),
            (made(5, 4), BAGGED, STARTS),
        ),
        "attention": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), (HEADS, HEADS + 1, HEADS - 1, made(3, 3))),
        "attention of one tensor": (lambda x: F.scaled_dot_product_attention(x, x, x), (HEADS,)),
        "a convolution by itself": (lambda a: F.conv1d(a, a), (made(2, 2, 3),)),
        "attention in groups": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (HEADS, HEADS[:, :1], HEADS[:, 1:])
        ),
    }.items()
}  # fmt: skip

INDICES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "embedding": (F.embedding, (whole(2, 3, low=0, high=5), made(5, 4))),
    "index_select": (lambda a, i: a.index_select(1, i), (X, whole(4, low=0, high=3))),
    "gather": (lambda a, i: a.gather(1, i), (X, whole(2, 2, 4, low=0, high=3))),
    "index": (lambda a, i: a[:, i], (X, whole(4, low=0, high=3))),
    "two neighbours": (lambda a, i, j: a[:, i, j], (X, whole(2, 1, low=0, high=3), whole(3, low=0, high=4))),
    "two apart": (lambda a, i, j: a[i, :, j], (X, whole(3, low=0, high=2), whole(3, low=0, high=4))),
    "put": (lambda a, i: a.index_put((i,), torch.tensor(9.0)), (X, whole(1, low=0, high=2))),
    "put behind": (lambda a, i: torch.ops.aten.index_put(a, [None, i], made(2, 2, 4), True), (X, torch.tensor([0, 2]))),
    "put several where": (lambda a, c, v: (a.index_put((c,), v), a.index_put((c[:, 0],), v)), (P, B, made(3))),
    "put where": (lambda a, c: a.index_put((c,), torch.tensor(9.0)), (P, B)),
    "scatter": (lambda a, i: a.scatter(1, i, 5.0), (X, whole(2, 1, 4, low=0, high=3))),
    "scatter into a number": (
        lambda a, i: (a.scatter(0, i, 2.0), a.scatter_add(0, i, a), a.scatter_reduce(0, i, a, "mean")),
        (torch.tensor(1.5), torch.tensor(0)),
    ),
    "scatter_add": (lambda a, i: a.scatter_add(1, i, a), (X, whole(2, 3, 4, low=0, high=3))),
    "scatter_reduce": (lambda a, i: a.scatter_reduce(1, i, a, "amax"), (X, whole(2, 3, 4, low=0, high=3))),
    **{
        f"scatter_reduce {how} {own}": (
            lambda a, i, how=how, own=own: a.scatter_reduce(1, i, a, how, include_self=own),
            (X, whole(2, 3, 4, low=0, high=2)),
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for own in (False, True)
    },
    "scatter_reduce of integers": (
        lambda a, i: a.scatter_reduce(0, i, a, "mean", include_self=False),
        (whole(6), torch.tensor([0, 1, 0, 5, 5, 5])),
    ),
    **{
        f"index_reduce {how}": (
            lambda a, i, how=how: a.index_reduce(1, i, a * 2, how),
            (X, torch.tensor([0, 2, 0])),
        )
        for how in ("prod", "mean", "amax", "amin")
    },
    "truths scattered": (
        lambda a, i, b: (
            *(a.scatter_reduce(0, i, b, how) for how in ("sum", "prod", "amax", "amin")),
            a.scatter_add(0, i, b),
            a.index_add(0, i[:, 0], b),
            a.index_put((i[:, 0],), b, accumulate=True),
            a.index_put((a,), b[0, 0], accumulate=True),
        ),
        (torch.eye(2) > 0, whole(300, 2, low=0, high=2), torch.ones(300, 2) > 0),
    ),
    "masked_scatter": (lambda a, b: a.masked_scatter(a > 0, b), (P, made(6))),
    "put where strides say": (lambda a, b: a.as_strided_scatter(b, (2, 3), (7, 2), 1), (X, made(2, 3))),
    **{
        f"the first {count} that are not 0": (
            lambda a, b, n=count: (a.nonzero_static(size=n), b.nonzero_static(size=n, fill_value=7)),
            (Z, B),
        )
        for count in (3, 9)
    },
    "put into all": (lambda a, i, b: (a.put(i, b), a.put(i * 0, b, accumulate=True)), (X, torch.tensor([1, -2]), made(2))),
    **{
        f"bags {mode}": (
            lambda w, i, o, mode=mode: F.embedding_bag(i, w, o, mode=mode, padding_idx=2),
            (made(5, 4), whole(9, low=0, high=5), torch.tensor([0, 3, 3, 7])),
        )
        for mode in ("sum", "mean", "max")
    },
    "bags of weights": (
        lambda w, i, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        (made(5, 4), whole(2, 3, low=0, high=5), made(2, 3)),
    ),
    "repeat each": (lambda a, c: a.repeat_interleave(c, 1, output_size=4), (X, torch.tensor([0, 3, 1]))),
    "most frequent": (
        lambda a: (*a.mode(1), *a.float().mode(0, keepdim=True)),
        (torch.tensor([[3, 1, 1], [4, 4, 4], [5, 9, 7]]),),
    ),
    "index_copy": (lambda a, i: a.index_copy(1, i, made(2, 2, 4)), (X, torch.tensor([2, 0]))),
    "index_add": (lambda a, i: a.index_add(1, i, made(2, 2, 4), alpha=2), (X, torch.tensor([2, 2]))),
    "select_scatter": (lambda a, b: a.select_scatter(b, 0, 1), (X, Y)),
}


def _written(a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[1:, :2, 1:3] = b[:2, :2]
    return a


CASES = ELEMENTWISE | SHAPES | PRODUCTS | REDUCTIONS | WINDOWS | FACTORS | INDICES | DERIVATIVES


def computed(function: Callable[..., Any], args: tuple[Tensor, ...]) -> list[np.ndarray[Any, Any]]:
    """Return what the graph of a function computes, interpreted."""
    functional = torch.func.functionalize(lambda *given: tree_leaves(function(*given)), remove="mutations")
    graph = make_fx(functional, decomposition_table=TABLE, tracing_mode="fake")(*args)
    graph.graph.eliminate_dead_code()
    program = of_graph(graph, {}, "case", SERVES)
    feeds = {i.name: array_of(a) for i, a in zip(program.inputs, args, strict=False)} | {DRAW: np.uint32(7)}
    return evaluate(verify(imported(program, None)), feeds)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_computes_what_torch_computes(name: str) -> None:
    function, args = CASES[name]
    for found, wanted in zip(computed(function, args), tree_leaves(function(*args)), strict=True):
        assert found.dtype == array_of(wanted).dtype and found.shape == tuple(wanted.shape)
        np.testing.assert_allclose(found, array_of(wanted), rtol=2e-5, atol=2e-6)


def drawn(x: Tensor) -> tuple[Tensor, ...]:
    """Random numbers, of each kind as many as `x` has elements."""
    weights = torch.tensor([0.2, 0.3, 0.5]).expand(x.shape[0], 3)
    return (
        torch.rand_like(x), torch.randn(x.shape), torch.randn_like(x), torch.randint(3, 9, x.shape), torch.bernoulli(x * 0 + 0.3),
        F.dropout(x * 0 + 1, 0.25, training=True), torch.multinomial(weights, x.shape[1], True), torch.zeros_like(x).exponential_(2),
    )  # fmt: skip


def test_random_numbers_are_of_the_distributions_of_torch() -> None:
    x = torch.ones(60, 50)
    found = computed(drawn, (x,))
    for numbers, wanted in zip(found, map(array_of, drawn(x)), strict=True):
        assert (numbers.dtype, numbers.shape) == (wanted.dtype, wanted.shape)
        # Means of 3000 numbers err by a 55th of their deviation, their deviation by less; a tenth is five times that.
        assert abs(numbers.mean() - wanted.mean()) < 0.15 * wanted.std()
        assert abs(numbers.std() - wanted.std()) < 0.15 * wanted.std()
    assert not any(np.array_equal(a, b) for k, a in enumerate(found) for b in found[:k])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbours_and_exponents_of_numbers_are_those_of_torch_to_the_bit(dtype: torch.dtype) -> None:
    least, most = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    x = torch.tensor([0.0, -0.0, least / 8, -least, most, -most, inf, -inf, nan, 1, -0.75, 3], dtype=dtype)
    x, y = x.repeat_interleave(len(x)), x.repeat(len(x))

    def parts(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.nextafter(x, y), *torch.frexp(x)

    for found, wanted in zip(computed(parts, (x, y)), parts(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted.numpy())
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted.numpy()))


def test_strange_numbers_are_treated_as_torch_does() -> None:
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 1, -0.75, 3, 0.3])
    x, y = x.repeat_interleave(len(x)), x.repeat(len(x))

    def treated(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.sign(), torch.atan2(x, y), torch.div(x, y, rounding_mode="floor"), x // 2

    for found, wanted in zip(computed(treated, (x, y)), treated(x, y), strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_rounded_once(dtype: torch.dtype) -> None:
    def f(x: Tensor, a: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.exp2(x), torch.log2(a), torch.log10(a), torch.rsqrt(a), x.round(decimals=1), torch.add(x, a, alpha=0.3),
            torch.sub(x, a, alpha=0.3), torch.addcmul(x, x, a, value=-0.3), torch.addcdiv(x, x, a, value=3.14), torch.lerp(x, a, 0.3),
            torch.addmm(x, x, a, alpha=0.3, beta=0.7), torch.baddbmm(x[None], x[None], a[None], alpha=0.3),
        )  # fmt: skip

    x, a = made(12, 12, low=-6, high=6).to(dtype), made(12, 12, low=0.1, high=5).to(dtype)
    for k, (found, wanted) in enumerate(zip(computed(f, (x, a)), f(x.double(), a.double()), strict=True)):
        error = np.abs(found.astype(np.float64) - wanted.numpy())
        assert (error <= 0.51 * torch.finfo(dtype).eps * np.maximum(np.abs(wanted.numpy()), 0.03)).all(), k


def test_what_takes_no_tensor_and_no_rule_serves_is_computed_by_torch_once() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * torch.kaiser_window(4) + torch.fft.fftfreq(4) - torch.blackman_window(4)

    (found,) = computed(scaled, (Y,))
    np.testing.assert_allclose(found, scaled(Y).numpy(), rtol=1e-6)


def test_a_permutation_has_each_place_once() -> None:
    (found,) = computed(lambda x: torch.randperm(7, dtype=torch.int32), (Y,))
    assert found.dtype == np.int32 and sorted(found) == list(range(7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_random_numbers_of_narrow_floats_are_below_one_as_well(dtype: torch.dtype) -> None:
    (found,) = computed(lambda x: torch.rand_like(x, dtype=dtype), (torch.ones(100, 100),))
    wide = found.astype(np.float32)
    assert wide.max() < 1 and abs(wide.mean() - 0.5) < 0.02


def test_dropout_that_is_not_told_whether_it_trains_does() -> None:
    y, kept = computed(lambda x: torch.native_dropout(x, 0.5, None), (torch.ones(20, 20),))
    assert 0 < kept.sum() < kept.size and set(np.unique(y)) == {0, 2}


@pytest.mark.parametrize("a", ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"])
def test_types_are_promoted_as_torch_does(a: str) -> None:
    for b in ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"):
        theirs = torch.promote_types(TORCH_DTYPES[a], TORCH_DTYPES[b])
        assert wider(dtype_of(TORCH_DTYPES[a], ""), dtype_of(TORCH_DTYPES[b], "")) == dtype_of(theirs, ""), b


@pytest.mark.parametrize(
    ("function", "args", "what"),
    [
        (lambda a: torch.special.airy_ai(a), (Y,), "operator special_airy_ai.default of ATen"),
        (lambda a: a[a > 0], (Y,), "mask as index"),
        (lambda a: torch.multinomial(a.exp(), 2), (Y,), "classes that are drawn once"),
        (lambda a: F.interpolate(a, (3, 3), mode="bilinear", align_corners=True, antialias=True), (IMAGE,), "corners that are aligned"),
    ],
    ids=["no rule", "a mask", "classes", "corners"],
)
def test_what_nothing_is_there_for_is_named(function: Any, args: tuple[Tensor, ...], what: str) -> None:
    graph = make_fx(function, decomposition_table=TABLE, tracing_mode="symbolic")(*args)
    with pytest.raises(CompileError, match="O010") as refused:
        program = of_graph(graph, {}, "case", SERVES)
        imported(program, {i.name: tuple(a.shape) for i, a in zip(program.inputs, args, strict=False)})
    assert what in str(refused.value)
