"""Windows: convolutions and pools that dilate, stride and do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuzzing.network import NetDrawing, Rule, type_of
from fuzzing.operators import draw


def window(d: NetDrawing, extents: Sequence[int], pool: bool) -> dict[str, Any]:
    """Return the attributes of windows over axes: not square, dilated, padded unevenly or as `auto_pad` says. Only windows that leave out
    no element between them are padded to the same extent: else the padding is less than nothing, which every runtime takes for something
    else."""
    rank = len(extents)
    kernel = draw.dims(d, rank, 1, 3)
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    attrs.update(draw.maybe(d, 0.7, strides=draw.dims(d, rank, 1, 3)))
    match d.random.randrange(5):
        case 0 if all(s <= k for s, k in zip(attrs.get("strides", kernel), kernel, strict=True)):
            attrs["auto_pad"] = d.random.choice(("SAME_UPPER", "SAME_LOWER"))
        case 1:
            attrs["auto_pad"] = "VALID"
        case 2:
            attrs["pads"] = [d.random.randint(0, k - 1 if pool else 2) for k in (*kernel, *kernel)]
        case 3:
            attrs["pads"] = [k // 2 for k in (*kernel, *kernel)]
        case _:
            pass
    return attrs


def _image(d: NetDrawing, types: Sequence[str], channels: Sequence[int] = (1, 2, 3, 4, 8)) -> str:
    there = d.some(*types, least=3, most=5, exact=True)
    if there is not None and d.random.random() < 0.5 and d.values[there].size:
        return there
    rank = d.random.choice((1, 2, 2, 2, 3))
    return draw.value(
        d, d.random.choice(types), (d.random.choice((1, 1, 2)), d.random.choice(channels), *draw.shape(d, rank, (1, 2, 3, 4, 5, 6, 7)))
    )


def _convs(d: NetDrawing) -> None:
    x = _image(d, ("f32", "f32", "f32", "f16", "f64"))
    a = d.values[x]
    attrs = {**window(d, a.shape[2:], False), **draw.maybe(d, 0.4, dilations=draw.dims(d, a.ndim - 2, 1, 2))}
    group = d.random.choice([g for g in range(1, a.shape[1] + 1) if a.shape[1] % g == 0])
    out = group * d.random.choice((1, 1, 2, 3))
    w = draw.value(d, type_of(a), (out, a.shape[1] // group, *attrs["kernel_shape"]))
    bias = draw.value(d, type_of(a), (out,)) if d.random.random() < 0.5 else ""
    if d.random.random() < 0.4:
        del attrs["kernel_shape"]
    d.add("Conv", [x, w, bias], **attrs, **({"group": group} if group > 1 else {}))


def _transposed_convs(d: NetDrawing) -> None:
    x = _image(d, ("f32", "f32", "f16", "f64"), (1, 2, 3, 4))
    a = d.values[x]
    rank = a.ndim - 2
    attrs = {**window(d, a.shape[2:], False), **draw.maybe(d, 0.4, dilations=draw.dims(d, rank, 1, 2))}
    group = d.random.choice([g for g in range(1, a.shape[1] + 1) if a.shape[1] % g == 0])
    w = draw.value(d, type_of(a), (a.shape[1], d.random.choice((1, 2, 3)), *attrs["kernel_shape"]))
    bias = draw.value(d, type_of(a), (d.values[w].shape[1] * group,)) if d.random.random() < 0.5 else ""
    stride = attrs.get("strides", [1] * rank)
    attrs.update(draw.maybe(d, 0.3, output_padding=[d.random.randint(0, s - 1) for s in stride]))
    if d.random.random() < 0.15:
        attrs.pop("pads", None)
        attrs["output_shape"] = [h * s + d.random.choice((0, 0, 1)) for h, s in zip(a.shape[2:], stride, strict=True)]
    d.add("ConvTranspose", [x, w, bias], **attrs, **({"group": group} if group > 1 else {}))


def _every_window_sees_an_element(extents: tuple[int, ...], attrs: dict[str, Any]) -> bool:
    """Tell whether no window, dilated, goes over padding alone, wherever it begins."""
    rank = len(extents)
    dilations = attrs.get("dilations", [1] * rank)
    some = [(count - 1) * step for count, step in zip(attrs["kernel_shape"], dilations, strict=True)]
    pads = 2 * some if "SAME" in attrs.get("auto_pad", "") else attrs.get("pads", [0] * 2 * rank)  # no more than these
    return all(
        any(0 <= first + j * step < n for j in range(count))
        for n, count, step, before, after in zip(extents, attrs["kernel_shape"], dilations, pads[:rank], pads[rank:], strict=True)
        for first in range(-before, n + after - (count - 1) * step)
    )


def _pools(d: NetDrawing) -> None:
    kind = d.random.choice(("MaxPool", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = _image(d, ("f32", "f32", "f16", "f64", "i8", "u8") if kind == "MaxPool" and d.opset >= 12 else ("f32", "f32", "f16", "f64"))
    a = d.values[x]
    if kind.startswith("Global"):
        d.add(kind, [x], rough=kind != "GlobalMaxPool")
        return
    attrs = window(d, a.shape[2:], True)
    attrs.update(draw.maybe(d, 0.4, ceil_mode=1) if d.opset >= (10 if kind != "LpPool" else 18) else {})
    attrs.update(
        draw.maybe(d, 0.3, dilations=draw.dims(d, a.ndim - 2, 1, 2)) if d.opset >= {"MaxPool": 10, "AveragePool": 19}.get(kind, 18) else {}
    )
    if not _every_window_sees_an_element(a.shape[2:], attrs):  # the maximum of none is -inf, 0 or the least number, as one likes
        attrs.pop("dilations", None)
    match kind:
        case "MaxPool":
            attrs.update(draw.maybe(d, 0.3, storage_order=d.random.choice((0, 1))) if d.opset >= 8 else {})
            d.add(kind, [x], d.random.choice((1, 1, 2)), **attrs)
        case "AveragePool":
            d.add(kind, [x], rough=True, **attrs, **draw.maybe(d, 0.5, count_include_pad=d.random.choice((0, 1))))
        case _ if all(k <= n for k, n in zip(attrs["kernel_shape"], a.shape[2:], strict=True)):  # else onnxruntime makes one of none
            d.add(kind, [x], rough=True, **attrs, **draw.maybe(d, 0.5, p=d.random.choice((1, 2, 3))))
        case _:
            pass


RULES: tuple[Rule, ...] = (
    _convs,
    _convs,
    _transposed_convs,
    _pools,
    _pools,
)
