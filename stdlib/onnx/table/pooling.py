"""Pooling: windows that slide, and windows that are everything."""

from __future__ import annotations

from math import prod

from stdlib.onnx.site import Site
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.reducing import reduced
from stdlib.onnx.table.windows import pads, spatial
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import same_shape

Ints = tuple[int, ...]


def _window(n: Site) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """Return kernel, stride, dilation, lo, hi, and what ceil_mode adds after hi."""
    x = n.arg(0)
    rank = spatial(n, x)
    kernel = n.integers("kernel_shape", low=1, count=rank)
    stride = n.integers("strides", (1,) * rank, low=1, count=rank)
    dilation = n.integers("dilations", (1,) * rank, low=1, count=rank)
    lo, hi = pads(n, x.shape[2:], kernel, stride, dilation)
    extra = (0,) * rank
    if n.flag("ceil_mode"):
        extra = tuple(_ceiling(*one) for one in zip(x.shape[2:], kernel, stride, dilation, lo, hi, strict=True))
    return kernel, stride, dilation, lo, hi, extra


def _ceiling(h: int, kernel: int, stride: int, dilation: int, lo: int, hi: int) -> int:
    """Return the extra padding that makes room for one more window, if that window starts inside the input or its left padding."""
    extent = dilation * (kernel - 1) + 1
    extra = (extent - h - lo - hi) % stride
    return extra if stride - 1 < extent - hi or extra < extent - hi else 0


def max_pool(n: Site) -> tuple[Value | None, ...]:
    kernel, stride, dilation, lo, hi, extra = _window(n)
    if not n.has_output(1):
        return (n.op("max_pool", n.arg(0), kernel=kernel, stride=stride, dilation=dilation, lo=lo, hi=hi, extra=extra),)
    y, at = n.ops("max_pool_at", n.arg(0), kernel=kernel, stride=stride, dilation=dilation, lo=lo, hi=hi, extra=extra)
    if not n.integer("storage_order", 0, 0, 1) or len(kernel) == 1:
        return y, at
    if len(kernel) > 3:
        raise n.unsupported("storage_order = 1 in more than three dimensions")
    extents = dict(zip(("height", "width", "depth"), n.arg(0).shape[2:], strict=False))
    return y, n.op("column_major", at, **extents)


def average_pool(n: Site) -> Value:
    return averaged(n, n.arg(0))


def averaged(n: Site, x: Value) -> Value:
    """Return the means of windows on `x`, which has the shape of the first argument, as the attributes of the node say."""
    kernel, stride, dilation, lo, hi, extra = _window(n)
    include = n.flag("count_include_pad")
    unpadded, none = not any((*lo, *hi)), (0,) * len(kernel)
    if same_shape(extra, none) and (include or unpadded):
        return n.op("average_pool", x, kernel=kernel, stride=stride, dilation=dilation, lo=lo, hi=hi)
    before, after = (lo, hi) if include else (none, none)
    return n.op(
        "average_pool_counted", x, kernel=kernel, stride=stride, dilation=dilation, lo=lo, hi=hi, extra=extra, before=before, after=after
    )


def lp_pool(n: Site) -> Value:
    kernel, stride, dilation, lo, hi, extra = _window(n)
    return n.op("lp_pool", n.arg(0), kernel=kernel, stride=stride, dilation=dilation, lo=lo, hi=hi, extra=extra, p=_order(n))


def _order(n: Site) -> float:
    """Return the order of a norm, which version 1 writes as a float."""
    return float(n.integer("p", 2, low=1)) if n.node.since >= 2 else n.real("p", 2.0)


def global_average(n: Site) -> Value:
    return reduced(n, "reduce_mean", n.arg(0), tuple(range(2, spatial(n, n.arg(0)) + 2)), keep=True)


def global_max(n: Site) -> Value:
    return reduced(n, "reduce_max", n.arg(0), tuple(range(2, spatial(n, n.arg(0)) + 2)), keep=True)


def global_lp(n: Site) -> Value:
    x = n.arg(0)
    rank = spatial(n, x)
    ones, zeros = (1,) * rank, (0,) * rank
    return n.op("lp_pool", x, kernel=x.shape[2:], stride=ones, dilation=ones, lo=zeros, hi=zeros, extra=zeros, p=_order(n))


def max_unpool(n: Site) -> Value:
    """Elements go back to where they were the greatest of their windows; `output_shape` may make room for more after them."""
    x, ids, given = n.arg(0), n.arg(1), n.constant_ints(2)
    rank = spatial(n, x)
    kernel = n.integers("kernel_shape", low=1, count=rank)
    stride = n.integers("strides", (1,) * rank, low=1, count=rank)
    pads = n.integers("pads", (0,) * (2 * rank), count=2 * rank)
    if ids.shape != x.shape:
        raise n.wrong(f"indices of the shape {list(ids.shape)} for values of the shape {list(x.shape)}")
    sizes = zip(x.shape[2:], kernel, stride, pads[:rank], pads[rank:], strict=True)
    shape = (*x.shape[:2], *((h - 1) * s + k - a - b for h, k, s, a, b in sizes))
    wanted = shape if given is None else given
    more = tuple(b - a for a, b in zip(shape, wanted, strict=False))
    if len(wanted) != len(shape) or min(shape) < 1 or min(more) < 0:
        raise n.wrong(f"an output of the shape {list(wanted)} for windows that make {list(shape)}")
    if not prod(x.shape):
        return n.filled(wanted, x.dtype)
    empty = n.filled((prod(shape),), x.dtype)
    y = n.view(n.op("scatter_nd", empty, n.view(ids, (prod(ids.shape),)), n.view(x, (prod(x.shape),))), shape)
    return n.op("pad", y, n.filled((), y.dtype), lo=(0,) * len(shape), hi=more) if any(more) else y


RULES = (
    Entry("MaxUnpool", 9, 22, max_unpool),
    Entry("MaxPool", 1, 22, max_pool),
    Entry("AveragePool", 1, 22, average_pool),
    Entry("LpPool", 1, 22, lp_pool),
    Entry("GlobalAveragePool", 1, 22, global_average),
    Entry("GlobalMaxPool", 1, 22, global_max),
    Entry("GlobalLpPool", 1, 22, global_lp),
)
