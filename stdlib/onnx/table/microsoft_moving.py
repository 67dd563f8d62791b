"""Operators of onnxruntime that move, choose or look up elements, most of them older than those of ONNX. Domain com.microsoft."""

from __future__ import annotations

from functools import reduce
from math import prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast, identity
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.indexing import gather_nd, gathered, unique
from stdlib.onnx.table.moving import pad, slice_axis, trilu
from stdlib.onnx.table.reducing import reduced
from stdlib.onnx.table.sampling import grid_sample
from stdlib.onnx.table.shapes import ranged
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import is_one, same


def old_pad(n: Site) -> Value:
    """The numbers may stand in a row of a matrix."""
    pads = n.arg(1)
    return pad(n.like(n.inputs[0], n.view(pads, pads.shape[-1:]) if pads.shape[:-1] == (1,) else pads, *n.inputs[2:]))


def range_with_a_step(n: Site) -> Value:
    """The step is 1 where none is given."""
    return ranged(n, n.constant_of(0), n.constant_of(1), np.ones(1, n.arg(0).dtype.numpy) if n.maybe(2) is None else n.constant_of(2))


def expand_dims(n: Site) -> Value:
    x, at = n.arg(0), n.constant_ints(1) or ()
    if len(at) != 1:
        raise n.wrong("one axis is needed")
    axis = n.axis_of(at[0], len(x.shape) + 1)
    return n.view(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def unfold(n: Site) -> Value:
    """All stretches of an axis of one length, `step` apart; what they hold is a new last axis."""
    x = n.arg(0)
    axis, size, step = n.axis("dim", -1, len(x.shape)), n.integer("size", 0, low=1), n.integer("step", 1, low=1)
    if x.shape[axis] < size:
        raise n.wrong(f"stretches of {size} elements of {x.shape[axis]}")
    return n.op("unfold", x, axis=axis, length=size, step=step)


def crop_and_resize(n: Site) -> Value:
    """Boxes of images, whose corners are the outermost places where samples are taken."""
    x, boxes, ids, sizes = n.arg(0), n.arg(1), n.arg(2), n.constant_ints(3) or ()
    if len(x.shape) != 4 or boxes.shape[1:] != (4,) or ids.shape != boxes.shape[:1] or len(sizes) != 2 or min(sizes) < 1:
        raise n.wrong(f"boxes of the shape {list(boxes.shape)} in images of the shape {list(x.shape)}, cut to {list(sizes)}")
    nearest = n.text("mode", "bilinear", ("bilinear", "nearest")) == "nearest"
    fill = n.real("extrapolation_value", 0.0)
    shape = (boxes.shape[0], x.shape[1], *sizes)
    if not prod(x.shape) or not prod(shape):
        return n.filled(shape, x.dtype, fill)
    places = [
        n.op("box_places", *(n.view(slice_axis(n, boxes, 1, k, 1), boxes.shape[:1]) for k in (axis, axis + 2)), extent=extent, count=count)
        for axis, extent, count in zip((0, 1), x.shape[2:], sizes, strict=True)
    ]
    return n.op("cropped", x, cast(n, ids, DTYPES["i64"]), *places, fill=fill, nearest=int(nearest))


def ngram_repeat_block(n: Site) -> Value:
    """The score of a word is -inf where, behind the last words, it would make a sequence that has been there."""
    words, scores, size = n.arg(0), n.arg(1), n.integer("ngram_size", 0, low=1)
    if len(words.shape) != 2 or len(scores.shape) != 2 or words.shape[0] != scores.shape[0]:
        raise n.wrong(f"words of the shape {list(words.shape)} and scores of the shape {list(scores.shape)}")
    if words.shape[1] < size:
        return scores
    return n.op("without_repetition", cast(n, words, DTYPES["i64"]), scores, order=size)


def murmur_hash(n: Site) -> Value:
    """A hash of the 4 or 8 bytes of each number, by MurmurHash3 for 32 bits."""
    x = n.arg(0)
    if n.is_text(x) or x.dtype.bits not in (32, 64):
        raise n.unsupported("elements of other than 4 or 8 bytes")
    bits = cast(n, n.op(f"bits_of_{x.dtype.name}", x) if x.dtype.is_float else x, DTYPES[f"u{x.dtype.bits}"])
    words = n.op("halves_of", bits) if x.dtype.bits == 64 else n.view(bits, (*x.shape, 1))
    found = n.op("murmur_hash", words, seed=n.integer("seed", 0, low=0, high=2**32 - 1))
    return found if n.flag("positive", True) else cast(n, found, DTYPES["i32"])


def all_finite(n: Site) -> Value:
    """Whether no element of any input is NaN or infinite, or is the one of the two that is asked for."""
    infinite, undefined = not n.flag("isnan_only"), not n.flag("isinf_only")
    bad: list[Value] = []
    for x in n.args():
        flat = n.view(x, (prod(x.shape),))
        found = [n.op("is_nan", flat)] * undefined + [n.op("is_inf", flat, positive=1, negative=1)] * infinite
        bad += [reduced(n, "reduce_any", one, (0,), keep=False) for one in found]
    return n.op("logical_not", reduce(lambda a, b: n.op("logical_or", a, b), bad, n.constant(np.asarray(False))))


def warping_path(n: Site) -> Value:
    """The rows and columns of a matrix of costs through which one sequence is laid along another: as many as the data say."""
    x = n.arg(0)
    shape = x.shape[1:] if len(x.shape) == 3 and is_one(x.shape[0]) else x.shape
    if len(shape) != 2 or x.dtype != DTYPES["f32"]:
        raise n.wrong(f"{x.dtype}{list(x.shape)} is not one matrix of f32")
    if any(same(extent, 0) for extent in shape):
        return n.filled((2, 0), DTYPES["i32"])
    path, count = n.ops("warping_path", n.view(x, shape))
    path, length = n.kept(path), n.decided(count)
    return n.op("slice", path, start=(0, length - 1), step=(1, -1), length=(2, length))


def embedded_tokens(n: Site) -> Value:
    """Rows of a table; what else there is says how it is trained."""
    return gathered(n, n.arg(0), n.arg(1), 0)


RULES = (
    microsoft("TorchEmbedding", embedded_tokens),
    microsoft("Trilu", trilu),
    microsoft("Unique", unique),
    microsoft("GatherND", gather_nd),
    microsoft("GridSample", grid_sample),
    microsoft("Pad", old_pad),
    microsoft("Range", range_with_a_step),
    microsoft("ExpandDims", expand_dims),
    microsoft("UnfoldTensor", unfold),
    microsoft("CropAndResize", crop_and_resize),
    microsoft("NGramRepeatBlock", ngram_repeat_block),
    microsoft("MurmurHash3", murmur_hash),
    microsoft("IsAllFinite", all_finite),
    microsoft("SampleOp", identity),
    microsoft("DynamicTimeWarping", warping_path),
)
