"""What convolutions and pooling share: spatial axes, strides, padding."""

from __future__ import annotations

from collections.abc import Sequence

from stdlib.onnx.site import Site
from tensorlang.graph.nodes import Value


def spatial(n: Site, x: Value) -> int:
    """Return how many spatial axes `x` has, after those of batch and channels."""
    if len(x.shape) < 3:
        raise n.wrong(f"the input needs a batch, channels and spatial axes, not the shape {list(x.shape)}")
    return len(x.shape) - 2


def pads(
    n: Site, extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis, as `pads` or `auto_pad` say. Refused when a window does not fit."""
    rank = len(extents)
    auto = n.text("auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    if auto == "NOTSET":
        given = n.integers("pads", (0,) * (2 * rank), count=2 * rank)
        lo, hi = given[:rank], given[rank:]
    elif auto == "VALID":
        lo = hi = (0,) * rank
    else:
        total = [max(0, (-(-h // s) - 1) * s + r - h) for h, s, r in zip(extents, stride, reach, strict=True)]
        small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        lo, hi = (small, large) if auto == "SAME_UPPER" else (large, small)
    # The last window may hang over where the extent is rounded up.
    over = [s - 1 if n.has("ceil_mode") and n.flag("ceil_mode") else 0 for s in stride]
    for h, a, b, r, more in zip(extents, lo, hi, reach, over, strict=True):
        if h + a + b + more < r:
            raise n.wrong(f"a window of {r} does not fit {h} elements with the padding {a} and {b}")
    return lo, hi
