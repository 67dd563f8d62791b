"""Models as people have them, with light weights, over fifty random combinations of sizes each: nothing is compiled after the first run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from test_caches_in_place import decoder
from test_open_sizes import Net, compilations, convolutions, feeds_for

import tensorlang as tl

WIDTH, HEADS = 24, 3


class Layers(Net):
    """Parts of transformers, with the shape arithmetic that exporters write."""

    def heads(self, value: str, batch: str, length: str, perm: list[int]) -> str:
        made = self.op("Add", self.op("MatMul", value, self.weight(WIDTH, WIDTH)), self.weight(WIDTH))
        split = self.op("Concat", batch, length, self.ints(HEADS, WIDTH // HEADS), axis=0)
        return self.op("Transpose", self.op("Reshape", made, split), perm=perm)

    def attended(self, x: str, batch: str, length: str, source: str, rows: str, mask: str | None = None) -> str:
        scores = self.op("MatMul", self.heads(x, batch, length, [0, 2, 1, 3]), self.heads(source, batch, rows, [0, 2, 3, 1]))
        scores = scores if mask is None else self.op("Add", scores, mask)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), self.heads(source, batch, rows, [0, 2, 1, 3]))
        shape = self.op("Concat", batch, length, self.ints(WIDTH), axis=0)
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), shape)
        return self.op("LayerNormalization", self.op("Add", joined, x), self.weight(WIDTH), self.weight(WIDTH), axis=-1)

    def embedded(self, ids: str, length: str) -> str:
        scalar = self.op("Squeeze", length, self.ints(0))
        places = self.op("Range", self.constant(np.int64(0)), scalar, self.constant(np.int64(1)))
        return self.op("Add", self.op("Gather", self.weight(50, WIDTH), ids), self.op("Gather", self.weight(64, WIDTH), places))


def masked_encoder() -> bytes:
    n = Layers()
    batch, length = n.size("ids", 0), n.size("ids", 1)
    hidden = n.op("Sub", n.constant(np.float32(1)), n.op("Cast", n.op("Unsqueeze", "mask", n.ints(1, 2)), to=TensorProto.FLOAT))
    mask = n.op("Mul", hidden, n.constant(np.float32(-1e4)))
    x = n.embedded("ids", length)
    x = n.attended(x, batch, length, x, length, mask)
    whole = TensorProto.INT64
    return n.model({"ids": ["batch", "seq"], "mask": ["batch", "seq"]}, x, types={"ids": whole, "mask": whole})


def encoder_and_decoder() -> bytes:
    """Sound is heard by convolutions; words attend to those before them and to what was heard."""
    n = Layers()
    heard = n.op("Relu", n.op("Conv", "sound", n.weight(WIDTH, 8, 3), n.weight(WIDTH), pads=[1, 1], strides=[2]))
    heard = n.op("Transpose", heard, perm=[0, 2, 1])
    batch, length, rows = n.size("ids", 0), n.size("ids", 1), n.size(heard, 1)
    x = n.embedded("ids", length)
    low = numpy_helper.from_array(np.array([-1e4], np.float32))
    later = n.op("Trilu", n.op("ConstantOfShape", n.op("Concat", length, length, axis=0), value=low), n.constant(np.int64(1)), upper=1)
    x = n.attended(n.attended(x, batch, length, x, length, later), batch, length, heard, rows)
    return n.model({"sound": ["batch", 8, "frames"], "ids": ["batch", "seq"]}, x, types={"ids": TensorProto.INT64})


def detector() -> bytes:
    """Boxes of a picture of any size, of which those are kept that no better one overlaps, with their scores."""
    n = Net()
    seen = n.op("Relu", n.op("Conv", "image", n.weight(8, 3, 3, 3), n.weight(8), pads=[1] * 4, strides=[4, 4]))
    places = n.op("Conv", seen, n.weight(4, 8, 1, 1))
    chances = n.op("Sigmoid", n.op("Mul", n.op("Conv", seen, n.weight(3, 8, 1, 1)), n.constant(np.float32(0.1))))
    batch = n.size("image", 0)
    boxes = n.op("Transpose", n.op("Reshape", places, n.op("Concat", batch, n.ints(4, -1), axis=0)), perm=[0, 2, 1])
    scores = n.op("Reshape", chances, n.op("Concat", batch, n.ints(3, -1), axis=0))
    limits = n.constant(np.array([0.3], np.float32)), n.constant(np.array([0.45], np.float32))
    kept = n.op("NonMaxSuppression", boxes, scores, n.ints(10), *limits)
    where = n.op("Gather", kept, n.constant(np.array([0, 2])), axis=1)
    found = n.op("Mul", n.op("GatherND", boxes, where), n.op("Unsqueeze", n.op("GatherND", scores, kept), n.ints(1)))
    return n.model({"image": ["batch", 3, "height", "width"]}, kept, found, types={kept: TensorProto.INT64})


def tables_of_sizes() -> bytes:
    """Operators that are made of a table as large as their input: masks of a band, windows, cosines and sines, a unit matrix."""
    n = Net()
    length = n.size("x", 2)
    band = n.op("Attention", "x", "x", "x", is_causal=1)
    tapered = n.op("Mul", "x", n.op("Unsqueeze", n.op("HannWindow", n.op("Squeeze", length, n.ints(0))), n.ints(1)))
    heard = n.op("DFT", n.op("Unsqueeze", tapered, n.ints(-1)), "", n.constant(np.int64(2)), onesided=1)
    square = n.op("ConstantOfShape", n.op("Concat", length, length, axis=0))
    return n.model({"x": ["batch", 2, "length", 4]}, band, heard, n.op("MatMul", n.op("EyeLike", square, k=1), "x"), opset=23)


MODELS: dict[str, tuple[Callable[[], bytes], dict[str, tuple[int, int]], int]] = {
    "an encoder with a mask": (masked_encoder, {"batch": (1, 5), "seq": (1, 60)}, 1),
    "a decoder with a cache": (
        lambda: decoder(1, batch="batch", length="seq"),
        {"batch": (1, 3), "seq": (1, 8), "past": (0, 50)},
        1,
    ),
    "images": (lambda: convolutions("height", "width"), {"batch": (1, 4), "height": (5, 40), "width": (5, 40)}, 1),
    "an encoder and a decoder": (encoder_and_decoder, {"batch": (1, 3), "frames": (4, 60), "seq": (1, 30)}, 1),
    "tables of sizes": (tables_of_sizes, {"batch": (1, 3), "length": (1, 40)}, 1),
    "a detector": (detector, {"batch": (1, 2), "height": (8, 50), "width": (8, 50)}, 2),
}
"""Each with its sizes, and in how many stages it is compiled."""


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_compiled_after_the_first_run(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, sizes, stages = MODELS[name]
    data, draw = make(), Random(name)
    model, session = tl.compile(data, threads=1, sizes="symbolic"), onnxruntime.InferenceSession(data)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        for k in range(50):
            feeds = feeds_for(data, {size: draw.randint(*between) for size, between in sizes.items()}, k)
            if "mask" in feeds:
                feeds["mask"] %= 2
            for mine, theirs in zip(model.run(feeds).values(), session.run(None, feeds), strict=True):
                assert mine.shape == theirs.shape
                np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)
    assert len(compilations(caplog)) == stages
