"""Images of another size, and samples at places that the data bring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stdlib.aten.call import Call, Rule
from tensorlang.graph.nodes import Value


def nearest(n: Call, x: Value, output_size: Sequence[int], *scales: float | None) -> Value:
    return _resized(n, x, output_size, scales, mode="nearest", place="asymmetric")


def exact(n: Call, x: Value, output_size: Sequence[int], *scales: float | None) -> Value:
    return _resized(n, x, output_size, scales, mode="nearest", place="half_pixel", rounding="round_prefer_ceil")


def smooth(mode: str, antialias: bool = False) -> Rule:
    """With `antialias`, windows are as wide as the steps between them where an image becomes smaller."""

    def rule(n: Call, x: Value, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Value:
        if align_corners and antialias:
            raise n.unsupported("corners that are aligned, where windows are as wide as steps")
        place = "align_corners" if align_corners else "half_pixel"
        options: dict[str, Any] = {"antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5} if antialias else {}
        return _resized(n, x, output_size, scales, mode=mode, place=place, **options)

    return rule


def of_either(rule: Rule) -> Rule:
    """The form that is given sizes or scales."""

    def made(n: Call, x: Value, output_size: Sequence[int] | None, *args: object) -> Value:
        *options, factors = args
        if output_size is not None:
            return rule(n, x, output_size, *options)  # type: ignore[no-any-return]
        assert isinstance(factors, tuple)
        sizes = tuple(int(extent * factor) for extent, factor in zip(x.shape[2:], factors, strict=True))
        return rule(n, x, sizes, *options, *factors)  # type: ignore[no-any-return]

    return made


def _resized(
    n: Call, x: Value, sizes: Sequence[int], scales: Sequence[float | None], mode: str, place: str, rounding: str = "floor", **options: Any
) -> Value:
    """By the scales where they are given, as torch computes places by them even where they make no whole number; corners need none."""
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": place, "nearest_mode": rounding, **options}
    given = [s for s in scales if s is not None]
    if place == "align_corners" or not given:
        return n.onnx("Resize", x, None, None, n.ints(*x.shape[:2], *sizes), **attributes)  # type: ignore[no-any-return]
    if len(given) != len(sizes):
        raise n.unsupported("a scale for some axes alone")
    y: Value = n.onnx("Resize", x, None, n.constant(np.asarray([1, 1, *given], np.float64)), **attributes)
    if y.shape[2:] != tuple(sizes):
        raise n.unsupported(f"scales that make {list(y.shape[2:])} of it, and not {list(sizes)}")
    return y


_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def grid_sampler(n: Call, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Value:
    return n.onnx(  # type: ignore[no-any-return]
        "GridSample", x, grid, mode=_MODES[interpolation_mode], padding_mode=_PADDINGS[padding_mode], align_corners=int(align_corners)
    )


_SMOOTH = {"upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear", "upsample_bicubic2d": "cubic"}

RULES: dict[str, Rule] = {
    **{f"upsample_nearest{k}d.vec": of_either(nearest) for k in (1, 2, 3)},
    **{f"upsample_nearest{k}d": nearest for k in (1, 2, 3)},
    **{f"_upsample_nearest_exact{k}d.vec": of_either(exact) for k in (1, 2, 3)},
    **{f"_upsample_nearest_exact{k}d": exact for k in (1, 2, 3)},
    **{f"{op}.vec": of_either(smooth(mode)) for op, mode in _SMOOTH.items()},
    **{op: smooth(mode) for op, mode in _SMOOTH.items()},
    **{f"_{op}_aa.vec": of_either(smooth(mode, antialias=True)) for op, mode in _SMOOTH.items()},
    **{f"_{op}_aa": smooth(mode, antialias=True) for op, mode in _SMOOTH.items()},
    "grid_sampler_2d": grid_sampler,
    "grid_sampler_3d": grid_sampler,
}
