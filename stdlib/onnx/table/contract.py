"""Products: MatMul, Gemm, Conv, ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence

from stdlib.onnx.site import Site
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.windows import pads, spatial
from tensorlang.graph.nodes import Value


def matmul(n: Site) -> Value:
    return product(n, n.arg(0), n.arg(1))


def product(n: Site, a: Value, b: Value) -> Value:
    """Return a · b as NumPy's matmul: a vector is a row on the left and a column on the right."""
    if not a.shape or not b.shape:
        raise n.wrong("a scalar cannot be multiplied as a matrix")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    left = n.view(a, (1, *a.shape)) if row else a
    right = n.view(b, (*b.shape, 1)) if column else b
    y = n.op("matmul", left, right)
    kept = y.shape[:-2] + (() if row else y.shape[-2:-1]) + (() if column else y.shape[-1:])
    return n.view(y, kept)


def gemm(n: Site) -> Value:
    """alpha · a' · b' + beta · c. The factors are 1 in all but contrived models, so they are applied outside of the product."""
    a, b, c = n.arg(0), n.arg(1), n.maybe(2)
    alpha, beta = n.real("alpha", 1.0), n.real("beta", 1.0)
    layout = ("t" if n.flag("transA") else "n") + ("t" if n.flag("transB") else "n")
    operator = "gemm" if layout == "nn" else f"gemm_{layout}"
    if c is not None and len(c.shape) > 2:
        raise n.wrong(f"c must have at most two dimensions, not the shape {list(c.shape)}")
    if n.node.since < 7 and c is not None and not n.flag("broadcast"):
        rows, columns = (
            (a.shape[1 if layout[0] == "t" else 0], b.shape[0 if layout[1] == "t" else 1]) if len(a.shape) == len(b.shape) == 2 else (0, 0)
        )
        if c.shape != (rows, columns):
            raise n.wrong(f"c has the shape {list(c.shape)} and is not to be broadcast")
    if c is not None:
        c = n.view(c, (1,) * (2 - len(c.shape)) + c.shape)
        c = c if beta == 1 else n.op("mul", c, _scalar(n, c, beta))
    if alpha == 1:
        return n.op(operator, a, b, c)
    y = n.op(operator, a, b, None)
    y = n.op("mul", y, _scalar(n, y, alpha))
    return y if c is None else n.op("add", y, c)


def _scalar(n: Site, like: Value, number: float) -> Value:
    return n.filled((), like.dtype, number)


def conv(n: Site) -> Value:
    return convolution_of(n, n.arg(0), n.arg(1), n.maybe(2))


def convolution_of(n: Site, x: Value, w: Value, b: Value | None) -> Value:
    """Return a convolution as the attributes of the node say."""
    rank = spatial(n, x)
    if len(w.shape) != len(x.shape):
        raise n.wrong(f"the kernel has {len(w.shape)} dimensions and the input {len(x.shape)}")
    group = n.integer("group", 1, low=1)
    kernel = n.integers("kernel_shape", w.shape[2:], low=1, count=rank)
    if kernel != w.shape[2:]:
        raise n.wrong(f"kernel_shape is {list(kernel)} and the kernel has the shape {list(w.shape)}")
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise n.wrong(f"{x.shape[1]} channels in {group} groups do not fit a kernel of the shape {list(w.shape)}")
    stride = n.integers("strides", (1,) * rank, low=1, count=rank)
    dilation = n.integers("dilations", (1,) * rank, low=1, count=rank)
    lo, hi = pads(n, x.shape[2:], kernel, stride, dilation)
    return n.op("conv", x, w, b, group=group, stride=stride, dilation=dilation, lo=lo, hi=hi)


def conv_transpose(n: Site) -> Value:
    x, w, b = n.arg(0), n.arg(1), n.maybe(2)
    rank = spatial(n, x)
    if len(w.shape) != len(x.shape):
        raise n.wrong(f"the kernel has {len(w.shape)} dimensions and the input {len(x.shape)}")
    group = n.integer("group", 1, low=1)
    if w.shape[0] != x.shape[1] or x.shape[1] % group:
        raise n.wrong(f"{x.shape[1]} channels in {group} groups do not fit a kernel of the shape {list(w.shape)}")
    kernel = n.integers("kernel_shape", w.shape[2:], low=1, count=rank)
    stride = n.integers("strides", (1,) * rank, low=1, count=rank)
    dilation = n.integers("dilations", (1,) * rank, low=1, count=rank)
    extra = n.integers("output_padding", (0,) * rank, low=0, count=rank)
    full = tuple((h - 1) * s + (k - 1) * d + 1 + e for h, s, k, d, e in zip(x.shape[2:], stride, kernel, dilation, extra, strict=True))
    lo, out = _transposed_extents(n, x.shape[2:], full, stride, rank)
    return n.op("conv_transpose", x, w, b, group=group, stride=stride, dilation=dilation, lo=lo, out=out)


def _transposed_extents(
    n: Site, extents: Sequence[int], full: Sequence[int], stride: Sequence[int], rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what is slice_axis off before each axis, and how much is left: said by `pads`, or derived from the output's shape."""
    auto = n.text("auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    if n.has("output_shape") or auto.startswith("SAME"):
        same = tuple(h * s for h, s in zip(extents, stride, strict=True))
        given = n.integers("output_shape", same, low=0)
        out = given[-rank:] if len(given) in (rank, rank + 2) else n.integers("output_shape", same, low=0, count=rank)
        total = [max(0, f - o) for f, o in zip(full, out, strict=True)]
        lo = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total)
        return lo, out
    given = n.integers("pads", (0,) * (2 * rank), count=2 * rank) if auto == "NOTSET" else (0,) * (2 * rank)
    out = tuple(f - a - b for f, a, b in zip(full, given[:rank], given[rank:], strict=True))
    if any(extent < 0 for extent in out):
        raise n.wrong(f"padding {list(given)} leaves nothing of the output")
    return given[:rank], out


def det(n: Site) -> Value:
    x = n.arg(0)
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise n.wrong(f"the shape {list(x.shape)} is not that of square matrices")
    return n.op("det", x) if x.shape[-1] else n.filled(x.shape[:-2], x.dtype, 1)


RULES = (
    Entry("Det", 11, 22, det),
    Entry("MatMul", 1, 13, matmul),
    Entry("Gemm", 1, 13, gemm),
    Entry("Conv", 1, 22, conv),
    Entry("ConvTranspose", 1, 22, conv_transpose),
)
