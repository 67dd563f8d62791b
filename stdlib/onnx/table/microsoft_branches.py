"""Operators of onnxruntime on branches of residual connections, several streams of features that are mixed. Domain com.microsoft.

Streams are [.., branches, features], or flat, [.., branches * features], with the number of branches as an attribute.
"""

from __future__ import annotations

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Site
from stdlib.onnx.table.contract import product
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.moving import transposed
from stdlib.onnx.table.reducing import reduced
from tensorlang.graph.nodes import Value

F32 = DTYPES["f32"]


def _branches(n: Site) -> Value:
    """Return the first argument as [.., branches, features] of f32."""
    x, count = n.arg(0), n.integer("num_branches", 0, low=0)
    if (not count and len(x.shape) < 2) or (count and (not x.shape or x.shape[-1] % count)):
        raise n.wrong(f"a value of the shape {list(x.shape)} for {count or 'several'} branches")
    return cast(n, n.view(x, (*x.shape[:-1], count, x.shape[-1] // count)) if count else x, F32)


def _weights(n: Site, k: int, streams: Value, flat: bool) -> Value:
    """Return argument `k`, one number for each branch or for each element of it, as what multiplies `streams`."""
    given, (*front, branches, features) = n.arg(k), streams.shape
    shapes = [(*front, branches), (*front, branches, 1), (*front, branches, features)]
    if given.shape not in (*shapes, *[(*front, branches * features)] * flat):
        raise n.wrong(f"weights of the shape {list(given.shape)} for streams of {list(streams.shape)}")
    each = (*front, branches, 1) if given.shape in shapes[:2] else streams.shape
    return cast(n, n.view(given, each), F32)


def summed_branches(n: Site) -> Value:
    """The sum of all branches, each times its weights."""
    streams = _branches(n)
    weighted = n.op("mul", streams, _weights(n, 1, streams, flat=n.integer("num_branches", 0) > 0))
    y = reduced(n, "reduce_sum", weighted, (len(streams.shape) - 2,), keep=False)
    return cast(n, n.op("mul", y, n.filled((), F32, n.real("reduction_scale", 1.0))), n.arg(0).dtype)


def mixed_branches(n: Site) -> Value:
    """Sums of branches, by a matrix where there is one, and to each the result of a block times its weights."""
    streams, block, matrix = _branches(n), n.arg(1), n.maybe(3)
    *front, branches, features = streams.shape
    if block.shape != (*front, features) or (matrix is not None and matrix.shape != (*front, branches, branches)):
        raise n.wrong(f"a result of the shape {list(block.shape)} for streams of {list(streams.shape)}")
    added = n.op("mul", _weights(n, 2, streams, flat=False), n.view(cast(n, block, F32), (*front, 1, features)))
    if matrix is not None:
        rank = len(streams.shape)
        streams = product(n, transposed(n, cast(n, matrix, F32), (*range(rank - 2), rank - 1, rank - 2)), streams)
    return n.view(cast(n, n.op("add", streams, added), n.arg(0).dtype), n.arg(0).shape)


def normalised_branches(n: Site) -> Value:
    """Each branch by itself; the scale is of all branches or of each."""
    x, scale = _branches(n), n.maybe(1)
    *_, branches, features = x.shape
    y = n.op("rms_norm", x, None, axis=len(x.shape) - 1, eps=n.real("epsilon", 1e-5))
    if scale is not None:
        if scale.shape not in ((features,), (branches, features), (branches * features,)):
            raise n.wrong(f"a scale of the shape {list(scale.shape)} for {branches} branches of {features} features")
        y = n.op("mul", y, cast(n, n.view(scale, (1 if scale.shape == (features,) else branches, features)), F32))
    return n.view(cast(n, y, n.arg(0).dtype), n.arg(0).shape)


RULES = (
    microsoft("HyperConnectionPreMix", summed_branches),
    microsoft("HyperConnectionPostMix", mixed_branches),
    microsoft("BranchwiseRMSNorm", normalised_branches),
)
