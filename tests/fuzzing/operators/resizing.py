"""Resize in its modes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.network import NetDrawing, Rule
from fuzzing.operators import draw


def _resize(d: NetDrawing) -> None:
    dtype = d.random.choice(("f32", "f32", "f32", "f16", "f64", "u8", "i8", "i32"))
    rank = d.random.choice((1, 2, 3, 4, 4))
    shape = (*((1, 2)[: rank - 2] if rank > 2 else ()), *draw.shape(d, min(rank, 2), (1, 2, 3, 4, 5)))
    x = draw.value(d, dtype, shape)
    mode = d.random.choice(("nearest", "nearest", "linear", "linear", "cubic"))
    if mode != "nearest" and dtype not in ("f32", "f16", "f64"):
        mode = "nearest"
    whole = d.random.choice((None, None, 2))
    scales = [whole or d.random.choice((1.0, 2.0, 0.5, 1.5, 3.0, 0.75)) if k >= len(shape) - 2 else 1.0 for k in range(len(shape))]
    mode = "linear" if mode == "cubic" and d.opset < 11 else mode
    if d.opset < 10:
        d.add("Upsample", [x, d.constant(np.maximum(scales, 1).astype(np.float32))], rough=mode == "linear", mode=mode)
        return
    if d.opset == 10:
        d.add("Resize", [x, d.constant(np.array(scales, np.float32))], rough=mode == "linear", mode=mode)
        return
    places = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize", "half_pixel_symmetric")
    place = d.random.choice(places)
    attrs: dict[str, Any] = {
        "mode": mode,
        **({} if place == "half_pixel" and d.random.random() < 0.5 else {"coordinate_transformation_mode": place}),
    }
    if mode == "nearest":
        attrs |= draw.maybe(d, 0.6, nearest_mode=d.random.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
    if mode == "cubic":
        attrs |= {**draw.maybe(d, 0.4, cubic_coeff_a=-0.5), **draw.maybe(d, 0.4, exclude_outside=1)}
    if mode != "nearest" and d.opset >= 18:
        attrs |= draw.maybe(d, 0.25, antialias=1)
    roi = ""
    if place == "tf_crop_and_resize" and dtype != "f64":
        region = [0.0] * len(shape) + [1.0] * len(shape)  # all there is: onnxruntime crops no axis that keeps its extent
        roi = d.constant(np.array(region, np.float32))
        attrs |= draw.maybe(d, 0.5, extrapolation_value=2.0)
    axes = list(range(len(shape)))
    if d.opset >= 18 and not roi and d.random.random() < 0.3:
        axes = axes[-2:] if d.random.random() < 0.7 else list(reversed(axes[-2:]))
        attrs["axes"] = [k - len(shape) if d.random.random() < 0.3 else k for k in axes]
    counted = all(k >= 0 for k in attrs.get("axes", ()))
    rough = mode != "nearest"
    if d.random.random() < 0.5 and place != "align_corners":  # the references disagree on which extent the corners are of
        d.add("Resize", [x, roi, d.constant(np.array([scales[k] for k in axes], np.float32))], rough=rough, **attrs)
    else:
        sizes = [max(1, int(shape[k] * scales[k])) + d.random.choice((0, 0, 1)) if scales[k] != 1 else shape[k] for k in axes]
        kept = place != "align_corners"  # the reference takes the corners of a kept ratio's extent before that is rounded
        if d.opset >= 18 and counted and kept:  # of axes from the end, onnxruntime keeps no ratio and the reference knows none at all
            attrs |= draw.maybe(d, 0.25, keep_aspect_ratio_policy=d.random.choice(("not_larger", "not_smaller", "stretch")))
        d.add("Resize", [x, roi, "", d.ints(*sizes)], rough=rough, **attrs)


RULES: tuple[Rule, ...] = (
    _resize,
    _resize,
    _resize,
)
