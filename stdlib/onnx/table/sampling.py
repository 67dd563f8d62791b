"""GridSample: values between the elements of a picture, at places that the data say. Col2Im: windows put back where they overlap."""

from __future__ import annotations

from math import prod

from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import slice_axis
from stdlib.onnx.table.windows import spatial
from tensorlang.graph.nodes import Value

_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def grid_sample(n: Site) -> Value:
    """The last axis of the grid counts the axes of the picture backwards."""
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
    points = cast(n, n.view(grid, (grid.shape[0], prod(grid.shape[1:-1]), rank)), x.dtype)
    found: list[Value] = []
    for axis, extent in enumerate(x.shape[2:]):
        along = n.view(slice_axis(n, points, 2, rank - 1 - axis, 1), points.shape[:2])
        # Cubics near a border lean on what lies beyond it: the outermost elements, over and over
        ends = 0 if taps == 4 and padding == 1 else padding
        place = n.op("grid_places", along, extent=extent, align=align, padding=ends)
        found += n.ops("grid_taps", place, extent=extent, taps=taps, align=align, padding=padding)
    return n.view(n.op(f"sample_{rank}d", x, *found), shape)


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


RULES = (
    Entry("GridSample", 16, 22, grid_sample),
    Entry("Col2Im", 18, 18, col2im),
)
