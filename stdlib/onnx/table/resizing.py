"""Resize and Upsample: one axis at a time, as weighted sums whose positions and weights are known at import, or computed
where sizes are open.

y[…, o, …] = sum(s) x[…, at[o, s], …] * w[o, s]        S = 1 nearest, 2 linear, 4 cubic, more with antialiasing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil, floor

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.model import Array
from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import OpenSize, Size, is_open, same

_MODES = ("nearest", "linear", "cubic")
_PLACES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip


def upsample(n: Site) -> Value:
    x = n.arg(0)
    scales = _upsample_scales(n)
    mode = n.text("mode", "nearest", _MODES[:2])
    _check_scales(n, scales, len(x.shape))
    sizes = [_scaled(extent, scale) for extent, scale in zip(x.shape, scales, strict=True)]
    n.small(sum(size for size in sizes if not isinstance(size, Size)), "the table of positions")
    for axis, (scale, size) in enumerate(zip(scales, sizes, strict=True)):
        x = _resized(n, x, axis, scale, size, mode, "asymmetric", "floor", (0.0, 1.0))
    return x


def _upsample_scales(n: Site) -> list[float]:
    """Return a factor for each axis: an argument (9), an attribute (7), or two attributes for images (1)."""
    if n.node.since < 7:
        return [1.0, 1.0, n.real("height_scale", 1.0), n.real("width_scale", 1.0)]
    given = n.constant_of(1).reshape(-1) if n.node.since >= 9 else n.node.attributes["scales"]
    return [float(s) for s in given]  # type: ignore[union-attr]


def resize(n: Site) -> Value:
    """Version 10 knows no coordinate modes: positions are those of Upsample, and its nearest elements lie before them where an axis grows
    and behind them where it shrinks, as in its one example and in onnxruntime."""
    x = n.arg(0)
    old = n.node.since < 11
    at = (1, None) if old else (2, 3)
    mode = n.text("mode", "nearest", _MODES)
    place = "asymmetric" if old else n.text("coordinate_transformation_mode", "half_pixel", _PLACES)
    roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    rounding = "" if old else n.text("nearest_mode", roundings[0], roundings)
    axes = n.axes_of(n.integers("axes"), len(x.shape)) if n.has("axes") else tuple(range(len(x.shape)))
    region = _region(n, len(axes)) if place == "tf_crop_and_resize" else [(0.0, 1.0)] * len(axes)
    scales, sizes = _extents(n, x, axes, at)
    narrow = x.dtype
    if mode != "nearest" and not (narrow.is_float and narrow.bits >= 32):
        x = cast(n, x, DTYPES["f32"])
    n.small(sum(size for size in sizes if not isinstance(size, Size)), "the table of positions")
    outside = np.zeros((), np.bool_)
    for axis, scale, size, crop in zip(axes, scales, sizes, region, strict=True):
        if place == "tf_crop_and_resize":
            where = _sources(np.arange(size, dtype=np.float64), x.shape[axis], size, scale, place, crop)
            beyond = (where < 0) | (where > x.shape[axis] - 1)
            outside = outside | beyond.reshape((-1,) + (1,) * (len(x.shape) - axis - 1))
        x = _resized(n, x, axis, scale, size, mode, place, rounding or ("floor" if scale >= 1 else "ceil"), crop)
    if outside.any():
        fill = n.filled((), x.dtype, n.real("extrapolation_value", 0.0))
        x = n.op("select", n.constant(outside), fill, x)
    return cast(n, x, narrow)


def _region(n: Site, count: int) -> list[tuple[float, float]]:
    roi = n.constant_or_none(1)
    if roi is None or roi.size != 2 * count:
        raise n.wrong(f"a region of {2 * count} numbers is needed")
    flat = [float(v) for v in roi.reshape(-1)]
    return list(zip(flat[:count], flat[count:], strict=True))


def _extents(n: Site, x: Value, axes: Sequence[int], at: tuple[int, int | None]) -> tuple[list[float], list[int]]:
    """Return the scale and the new extent of each axis; the scale is 0 where it follows from extents that are open."""
    sizes = n.constant_ints(at[1]) if at[1] is not None else None
    if sizes is None:
        scales = [float(s) for s in n.constant_of(at[0]).reshape(-1)]
        _check_scales(n, scales, len(axes))
        return scales, [_scaled(x.shape[axis], scale) for axis, scale in zip(axes, scales, strict=True)]
    pairs = [(size, x.shape[axis]) for axis, size in zip(axes, sizes, strict=False)]
    if len(sizes) != len(axes) or any(not same(size, extent) and (size < 1 or extent == 0) for size, extent in pairs):
        raise n.wrong(f"the sizes {list(sizes)} do not fit the shape {list(x.shape)}")
    ratios = [1.0 if same(*pair) else 0.0 if is_open(pair) else pair[0] / pair[1] for pair in pairs]
    policy = n.text("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    if policy == "stretch":
        return ratios, list(sizes)
    if not all(ratios):
        raise OpenSize(*_open_among(n for pair in pairs for n in pair))
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [ratio] * len(axes), [floor(ratio * x.shape[axis] + 0.5) for axis in axes]


def _open_among(extents: Iterable[object]) -> list[Size]:
    return [n for n in extents if isinstance(n, Size)]


def _scaled(extent: int, scale: float) -> int:
    """Return the extent that ONNX's shape inference finds: the product is one of f32, so that nine tenths of ten are nine."""
    if isinstance(extent, Size) and scale != 1:
        ratio = _fraction(scale)
        if ratio is None or extent * ratio.numerator > _EXACT:
            raise OpenSize(extent)
        return extent * ratio.numerator // ratio.denominator
    return extent if scale == 1 else floor(np.float32(extent) * np.float32(scale))


_EXACT = 1 << 24
"""Up to here f32 has all integers."""
_MOST_TERMS = 64
"""The largest denominator of a scale along an axis of open extent."""


def _fraction(scale: float) -> Fraction | None:
    """Return a scale as a fraction of small numbers, None where it is none."""
    found = Fraction(scale)
    return found if max(found.numerator, found.denominator) <= _MOST_TERMS else None


def _check_scales(n: Site, scales: Sequence[float], count: int) -> None:
    if len(scales) != count or not all(0 < scale < 1e6 for scale in scales):
        raise n.wrong(f"the scales {list(scales)} do not fit {count} axes")


def _resized(
    n: Site, x: Value, axis: int, scale: float, size: int, mode: str, place: str, rounding: str, crop: tuple[float, float]
) -> Value:
    extent = x.shape[axis]
    if scale == 1 and place != "tf_crop_and_resize" and size == extent:
        return x
    if is_open((extent, size)):
        return _resized_open(n, x, axis, scale, size, mode, place, rounding)
    if size == 0:
        return n.filled((*x.shape[:axis], 0, *x.shape[axis + 1 :]), x.dtype)
    if extent == 0:
        raise n.wrong(f"axis {axis} cannot be resized from {extent} to {size} elements")
    where = _sources(np.arange(size, dtype=np.float64), extent, size, scale, place, crop)
    if mode == "nearest":
        at, weights = _nearest(where, rounding)[:, None], np.ones((size, 1))
    else:
        at, weights = _weighted(where, scale, extent, mode, n)
    at = np.clip(at, 0, extent - 1).astype(np.int64)
    line, w = _line(at, extent), weights.astype(x.dtype.numpy)
    if line is not None:
        steps = {"times": line[0], "start": line[1], "by": line[2]}
        if mode == "nearest":
            return n.op("resample", x, axis=axis, length=size, **steps)
        return n.op("interpolate_between", x, n.constant(w), axis=axis, **steps)
    if mode == "nearest":
        return n.op("gather", x, n.constant(at[:, 0]), axis=axis)
    return n.op("interpolate", x, n.constant(at), n.constant(w), axis=axis)


_OPEN_PLACES = {"half_pixel": 0, "asymmetric": 1, "align_corners": 2, "tf_half_pixel_for_nn": 3, "pytorch_half_pixel": 4}
_ROUNDINGS = {"floor": 0, "ceil": 1, "round_prefer_floor": 2, "round_prefer_ceil": 3}


def _resized_open(n: Site, x: Value, axis: int, scale: float, size: int, mode: str, place: str, rounding: str) -> Value:
    """Return `x` with an axis resized whose extent, or the new one, is open. Positions and weights are computed when the model runs, but
    where the nearest elements are those of a line."""
    extent = x.shape[axis]
    if place not in _OPEN_PLACES or (mode != "nearest" and (n.flag("antialias") or n.flag("exclude_outside"))):
        raise OpenSize(*_open_among((extent, size)))
    if extent < 1 or size < 1:
        raise n.wrong(f"axis {axis} cannot be resized from {extent} to {size} elements")
    line = _periodic_line(scale, place, rounding) if mode == "nearest" and scale else None
    if line is not None:
        return n.op("resample", x, axis=axis, length=size, times=line[0], start=line[1], by=line[2])
    where = n.op("resized_places", length=size, extent=extent, place=_OPEN_PLACES[place], scale=scale)
    if mode == "nearest":
        return n.op("take_nearest", x, n.op("nearest_places", where, how=_ROUNDINGS[rounding]), axis=axis)
    at, w = n.ops("resized_taps", where, taps=2 if mode == "linear" else 4, a=n.real("cubic_coeff_a", -0.75))
    return n.op("interpolate_at", x, at, cast(n, w, x.dtype), axis=axis)


def _periodic_line(scale: float, place: str, rounding: str) -> tuple[int, int, int] | None:
    """Return the line (`_line`) on which the nearest elements lie whatever the extent is; None where there is none. Positions repeat after
    as many elements as the scale has in its numerator, as the line does, so that it holds everywhere when it holds for a few of these."""
    ratio = _fraction(scale)
    if ratio is None or place == "align_corners" or (place == "pytorch_half_pixel" and scale < 1):
        return None
    extent, size = 16 * ratio.denominator, 16 * ratio.numerator
    at = _nearest(_sources(np.arange(size, dtype=np.float64), extent, size, scale, place, (0.0, 1.0)), rounding)
    line = _line(np.clip(at, 0, extent - 1).astype(np.int64)[:, None], extent)
    return line if line is not None and line[0] * ratio.numerator == line[2] * ratio.denominator else None


_MOST_BY = 64
"""The largest divisor of a line."""


def _line(at: Array, extent: int) -> tuple[int, int, int] | None:
    """Return (times, start, by) where column s of `at` is (times * o + start) // by + s at every o, brought into [0, extent); None where
    there is no such line."""
    size, count = at.shape
    o, s = np.arange(size)[:, None], np.arange(count)[None, :]
    inner = (at > 0) & (at < extent - 1)
    if size == 1 or not inner.any():
        return None
    rows = np.flatnonzero(inner.any(axis=1))
    first = np.where(inner, at - s, 0).sum(axis=1) // np.maximum(inner.sum(axis=1), 1)
    run = int(rows[-1] - rows[0])
    for by in range(1, _MOST_BY + 1):
        slope = (int(first[rows[-1]]) - int(first[rows[0]])) * by
        for times in sorted({max(0, (slope + k * by) // max(run, 1) + j) for k in (-1, 0, 1) for j in (0, 1)}):
            least = by * (at - s) - times * o
            low = int(np.where(at > 0, least, least.min()).max())
            high = int(np.where(at < extent - 1, least + by - 1, (least + by - 1).max()).min())
            if low <= high and (np.clip((times * o + low) // by + s, 0, extent - 1) == at).all():
                return times, low, by
    return None


def _sources(out: Array, extent: int, size: int, scale: float, place: str, crop: tuple[float, float]) -> Array:
    """Return where in the input each output element lies."""
    exact = extent * scale
    match place:
        case "align_corners":
            return out * ((extent - 1) / (exact - 1)) if exact != 1 else out * 0
        case "asymmetric":
            return out / scale
        case "tf_half_pixel_for_nn":
            return (out + 0.5) / scale
        case "pytorch_half_pixel":
            return (out + 0.5) / scale - 0.5 if size > 1 else out * 0
        case "half_pixel_symmetric":
            return extent / 2 * (1 - size / exact) + (out + 0.5) / scale - 0.5
        case "tf_crop_and_resize":
            start, end = crop
            middle = 0.5 * (start + end) * (extent - 1)
            return start * (extent - 1) + out * ((end - start) * (extent - 1) / (size - 1)) if size > 1 else out * 0 + middle
        case _:
            return (out + 0.5) / scale - 0.5


def _nearest(where: Array, rounding: str) -> Array:
    match rounding:
        case "floor":
            return np.floor(where)
        case "ceil":
            return np.ceil(where)
        case "round_prefer_ceil":
            return np.floor(where + 0.5)
        case _:
            return np.ceil(where - 0.5)


def _weighted(where: Array, scale: float, extent: int, mode: str, n: Site) -> tuple[Array, Array]:
    """Return the positions and weights of the elements that make up each output element; rows of weights sum to one."""
    shrink = min(1.0, scale) if n.flag("antialias") else 1.0
    radius = (1 if mode == "linear" else 2) / shrink
    reach = ceil(radius)
    base = np.floor(where)[:, None]
    at = base + np.arange(1 - reach, reach + 1)[None, :]
    distance = np.abs(where[:, None] - at) * shrink
    weights = np.maximum(0, 1 - distance) if mode == "linear" else _cubic(distance, n.real("cubic_coeff_a", -0.75))
    if n.flag("exclude_outside"):
        weights = np.where((at < 0) | (at > extent - 1), 0, weights)
    return at, weights / weights.sum(axis=1, keepdims=True)


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


RULES = (
    Entry("Upsample", 1, 9, upsample),
    Entry("Resize", 10, 19, resize),
)
