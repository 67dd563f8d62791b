"""Derivatives that torch has an operator for, of what other rules make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stdlib.aten.call import Call, Rule
from stdlib.aten.derivatives import derivatives
from stdlib.aten.table.moving import padded_by
from stdlib.aten.table.pooling import adaptive_average, average_pool
from stdlib.aten.table.products import convolution as forward_convolution
from stdlib.aten.table.resizing import exact, grid_sampler, nearest, smooth
from stdlib.onnx.table.reducing import reduced
from tensorlang.graph.nodes import Value


def by_input(rule: Rule) -> Rule:
    """Of an operator of one tensor: it is given the derivative by its result, the tensor, and the rest."""

    def made(n: Call, grad_output: Value, x: Value, *args: Any, **named: Any) -> Value | None:
        (slope,) = derivatives(n, grad_output, (x,), lambda x: rule(n, x, *args, **named))
        return slope

    return made


def adaptive_mean(rank: int) -> Rule:
    def made(n: Call, grad_output: Value, x: Value) -> Value | None:
        (slope,) = derivatives(n, grad_output, (x,), lambda x: adaptive_average(rank)(n, x, grad_output.shape[-rank:]))
        return slope

    return made


def by_resized(rule: Rule) -> Rule:
    """Of an image of another size: its elements, of which the derivative does not depend, are not given."""

    def made(n: Call, grad_output: Value, output_size: Sequence[int], input_size: Sequence[int], *options: Any) -> Value | None:
        x = n.result(grad_output.dtype, tuple(input_size))
        (slope,) = derivatives(n, grad_output, (x,), lambda x: rule(n, x, output_size, *options))
        return slope

    return made


def convolution(
    n: Call,
    grad_output: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    options = (stride, padding, dilation, transposed, output_padding, groups)
    slopes = derivatives(n, grad_output, (x, weight), lambda x, w: forward_convolution(n, x, w, None, *options), output_mask[:2])
    channels = len(grad_output.shape) - len(weight.shape) + 1
    others = tuple(k for k in range(len(grad_output.shape)) if k != channels)
    return (*slopes, reduced(n, "reduce_sum", grad_output, others, False) if output_mask[2] else None)


def sampled(
    n: Call,
    grad_output: Value,
    x: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    options = (interpolation_mode, padding_mode, align_corners)
    return derivatives(n, grad_output, (x, grid), lambda x, g: grid_sampler(n, x, g, *options), output_mask)


_SMOOTH = {"upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear", "upsample_bicubic2d": "cubic"}

RULES: dict[str, Rule] = {
    "convolution_backward": convolution,
    **{f"avg_pool{k}d_backward": by_input(average_pool(k)) for k in (2, 3)},
    **{f"_adaptive_avg_pool{k}d_backward": adaptive_mean(k) for k in (2, 3)},
    **{f"replication_pad{k}d_backward": by_input(padded_by("edge")) for k in (1, 2, 3)},
    **{f"upsample_nearest{k}d_backward": by_resized(nearest) for k in (1, 2, 3)},
    **{f"_upsample_nearest_exact{k}d_backward": by_resized(exact) for k in (1, 2, 3)},
    **{f"{op}_backward": by_resized(smooth(mode)) for op, mode in _SMOOTH.items()},
    **{f"_{op}_aa_backward": by_resized(smooth(mode, antialias=True)) for op, mode in _SMOOTH.items()},
    **{f"grid_sampler_{k}d_backward": sampled for k in (2, 3)},
}
