"""GridSample: values between the elements of a picture, at places that the data say; AffineGrid: such places. Col2Im: windows put back
where they overlap."""

from __future__ import annotations

from math import inf, prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry, elsewhere
from stdlib.onnx.table.moving import slice_axis
from stdlib.onnx.table.windows import spatial
from tensorlang.graph.nodes import Value

_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def grid_sample(n: Site) -> Value:
    """The last axis of the grid counts the axes of the picture backwards. Places are computed in f32 or f64, whatever is sampled, and so
    are sums of several elements: what of these is no integer where the picture is of integers is cut off."""
    x, grid = n.arg(0), n.arg(1)
    rank = spatial(n, x)
    taps = _TAPS[n.text("mode", "linear" if n.node.since >= 20 else "bilinear", tuple(_TAPS))]
    padding = ("zeros", "border", "reflection").index(n.text("padding_mode", "zeros", ("zeros", "border", "reflection")))
    align = int(n.flag("align_corners"))
    if rank > 3 or grid.shape[-1:] != (rank,) or grid.shape[:1] != x.shape[:1] or len(grid.shape) != rank + 2:
        raise n.wrong(f"a grid of the shape {list(grid.shape)} for values of the shape {list(x.shape)}")
    shape = (*x.shape[:2], *grid.shape[1:-1])
    if not prod(shape) or not prod(x.shape):
        return n.filled(shape, x.dtype)
    exact = "f64" in (x.dtype.name, grid.dtype.name) or (x.dtype.is_integer and x.dtype.bits > 16)
    wide = DTYPES["f64" if exact else "f32"]
    points = cast(n, n.view(grid, (grid.shape[0], prod(grid.shape[1:-1]), rank)), wide)
    work = wide if taps > 1 else DTYPES["u8"] if x.dtype.kind == "bool" else x.dtype
    found: list[Value] = []
    for axis, extent in enumerate(x.shape[2:]):
        along = n.view(slice_axis(n, points, 2, rank - 1 - axis, 1), points.shape[:2])
        # Cubics near a border lean on what lies beyond it: the outermost elements, over and over
        ends = 0 if taps == 4 and padding == 1 else padding
        place = n.op("grid_places", along, extent=extent, align=align, padding=ends)
        at, counts = n.ops("grid_taps", place, extent=extent, taps=taps, align=align, padding=padding)
        found += at, cast(n, counts, work)
    return n.view(cast(n, n.op(f"sample_{rank}d", cast(n, x, work), *found), x.dtype), shape)


def affine_grid(n: Site) -> Value:
    """Places along the axes of the grid are tables, whatever the samples are moved by. The last axis counts the axes backwards."""
    theta, size = n.arg(0), n.constant_ints(1) or ()
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1):
        raise n.wrong(f"matrices of the shape {list(theta.shape)} for a grid of {list(size)}")
    align = int(n.flag("align_corners"))
    places = [cast(n, n.table("middles", n=extent, align=align)[0], theta.dtype) for extent in size[2:]]
    return n.op(f"affine_grid_{rank}d", theta, *places)


def col2im(n: Site) -> Value:
    x = n.arg(0)
    out, block = n.constant_ints(1) or (), n.constant_ints(2) or ()
    rank = len(block)
    stride, dilation = (n.integers(name, (1,) * rank, low=1, count=rank) for name in ("strides", "dilations"))
    given = n.integers("pads", (0,) * (2 * rank), count=2 * rank)
    lo, hi = given[:rank], given[rank:]
    sizes = zip(out, block, stride, dilation, lo, hi, strict=False)
    blocks = tuple((o + a + b - d * (k - 1) - 1) // s + 1 for o, k, s, d, a, b in sizes)
    if not rank or len(out) != rank or any(extent < 0 for extent in (*out, *blocks)) or any(k < 1 for k in block):
        raise n.wrong(f"windows of {list(block)} in a picture of {list(out)}")
    if len(x.shape) != 3 or x.shape[1] % prod(block) or x.shape[2] != prod(blocks):
        raise n.wrong(f"values of the shape {list(x.shape)} for windows of {list(block)} at {list(blocks)} places")
    parts = n.view(x, (x.shape[0], x.shape[1] // prod(block), *block, *blocks))
    return n.op("col2im", parts, count=rank, stride=stride, dilation=dilation, lo=lo, out=out)


def roi_align(n: Site) -> Value:
    """Each region is cut into bins, and each bin into samples, of which means or maxima are taken."""
    x, rois, ids = n.args()
    if len(x.shape) != 4 or rois.shape[1:] != (4,) or ids.shape != rois.shape[:1]:
        raise n.wrong(f"regions of the shape {list(rois.shape)} in images {list(ids.shape)} of the shape {list(x.shape)}")
    bins = n.integer("output_height", 1, low=1), n.integer("output_width", 1, low=1)
    ratio, scale = n.integer("sampling_ratio", 0, low=0), n.real("spatial_scale", 1.0)
    half = (
        n.node.since >= 16 and n.text("coordinate_transformation_mode", "half_pixel", ("half_pixel", "output_half_pixel")) == "half_pixel"
    )
    largest = n.text("mode", "avg", ("avg", "max")) == "max"
    if not prod(x.shape) or not rois.shape[0]:
        return n.filled((rois.shape[0], x.shape[1], *bins), x.dtype)
    corners = n.op("mul", rois, n.filled((), rois.dtype, scale))
    if half:
        corners = n.op("sub", corners, n.filled((), rois.dtype, 0.5))
    ends = [n.view(slice_axis(n, corners, 1, k, 1), rois.shape[:1]) for k in (1, 3, 0, 2)]
    least = -inf if half else 1.0
    taps: list[Value] = []
    counts: list[Value] = []
    for extent, count, low, high in zip(x.shape[2:], bins, ends[::2], ends[1::2], strict=True):
        samples = ratio or n.decided(n.op("roi_samples", low, high, bins=count, least=least))
        at, weight, found = n.ops("roi_taps", low, high, extent=extent, bins=count, samples=max(1, samples), ratio=ratio, least=least)
        taps += (at, weight)
        counts.append(found)
    return n.op("roi_max" if largest else "roi_mean", x, cast(n, ids, DTYPES["i64"]), *taps, *counts)


def max_roi_pool(n: Site) -> Value:
    """The greatest elements of the bins of regions, whose corners are rounded to elements; of bins without any 0."""
    x, rois = n.arg(0), n.arg(1)
    bins, scale = n.integers("pooled_shape", low=1, count=2), n.real("spatial_scale", 1.0)
    if len(x.shape) != 4 or rois.shape[1:] != (5,):
        raise n.wrong(f"regions of the shape {list(rois.shape)} in images of the shape {list(x.shape)}")
    shape = (rois.shape[0], x.shape[1], *bins)
    if not prod(x.shape) or not rois.shape[0]:
        return n.filled(shape, x.dtype)
    columns = [n.view(slice_axis(n, rois, 1, k, 1), rois.shape[:1]) for k in range(5)]
    ends = [
        end
        for extent, count, low, high in ((x.shape[2], bins[0], columns[2], columns[4]), (x.shape[3], bins[1], columns[1], columns[3]))
        for end in n.ops("bins_of_regions", low, high, extent=extent, bins=count, scale=scale)
    ]
    return n.op("max_of_bins", x, cast(n, columns[0], DTYPES["i64"]), *ends)


def deform_conv(n: Site) -> Value:
    """A convolution each of whose windows has its elements where the data say."""
    x, w, offset, bias, mask = n.arg(0), n.arg(1), n.arg(2), n.maybe(3), n.maybe(4)
    if spatial(n, x) != 2 or len(w.shape) != 4 or len(offset.shape) != 4:
        raise n.unsupported(f"values of the shape {list(x.shape)}")
    kernel = n.integers("kernel_shape", w.shape[2:], low=1, count=2)
    stride, dilation = (n.integers(name, (1, 1), low=1, count=2) for name in ("strides", "dilations"))
    given = n.integers("pads", (0,) * 4, count=4)
    group, moved = n.integer("group", 1, low=1), n.integer("offset_group", 1, low=1)
    out, taps, batch = offset.shape[2:], prod(kernel), x.shape[0]
    sizes = zip(x.shape[2:], kernel, stride, dilation, given[:2], given[2:], strict=True)
    if (
        tuple((h + a + b - d * (k - 1) - 1) // s + 1 for h, k, s, d, a, b in sizes) != out
        or kernel != w.shape[2:]
        or x.shape[1] != w.shape[1] * group
        or w.shape[0] % group
        or x.shape[1] % moved
        or offset.shape[:2] != (batch, 2 * moved * taps)
        or (mask is not None and mask.shape != (batch, moved * taps, *out))
    ):
        raise n.wrong(f"offsets of the shape {list(offset.shape)} and weights of {list(w.shape)} for values of the shape {list(x.shape)}")
    places = n.view(offset, (batch, moved, taps, 2, prod(out)))
    each = np.stack(np.meshgrid(*(np.arange(k) for k in kernel), *(np.arange(k) for k in out), indexing="ij"))
    at: list[Value] = []
    for axis in range(2):
        table = each[axis] * dilation[axis] + each[2 + axis] * stride[axis] - given[axis]
        n.small(table.size, "the table of places")
        base = n.constant(table.reshape(1, 1, taps, prod(out)).astype(x.dtype.numpy))
        along = n.view(slice_axis(n, places, 3, axis, 1), (batch, moved, taps, prod(out)))
        at.append(n.op("add", along, base))
    shape = (batch, moved, taps, prod(out))
    counts = n.filled(shape, x.dtype, 1) if mask is None else n.view(mask, shape)
    seen = n.op("deformed_windows", x, *at, counts, group=moved)
    one = (1, 1)
    y = n.op("conv", seen, n.view(w, (*w.shape[:2], taps, 1)), bias, group=group, stride=one, dilation=one, lo=(0, 0), hi=(0, 0))
    return n.view(y, (batch, w.shape[0], *out))


RULES = (
    Entry("RoiAlign", 10, 22, roi_align),
    Entry("MaxRoiPool", 1, 22, max_roi_pool),
    Entry("DeformConv", 19, 22, deform_conv),
    Entry("GridSample", 16, 22, grid_sample),
    Entry("AffineGrid", 20, 20, affine_grid),
    Entry("Col2Im", 18, 18, col2im),
    elsewhere("ImageDecoder", "reads files of pictures: give the model their elements, as an input behind it"),
)
