"""Caches of keys and values that are written in place: `model.prepared(…, max=…)`, against onnxruntime."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto
from test_open_sizes import Net

import tensorlang as tl
from tensorlang.diagnostics import CompileError

Array = np.ndarray[Any, Any]
WIDTH, HEADS, WORDS, PART = 64, 4, 100, 16


def decoder(layers: int = 2, kept: int = HEADS, batch: Any = 1, length: Any = 1) -> bytes:
    """Layers as llama has them: root mean squares, heads that share keys where `kept` are fewer, a gated perceptron."""
    n = Net()
    x = n.op("Gather", n.weight(WORDS, WIDTH), "ids")
    inputs: dict[str, list[Any]] = {"ids": [batch, length]}
    outputs = []

    def scaled(v: str) -> str:
        squares = n.op("ReduceMean", n.op("Mul", v, v), n.ints(-1), keepdims=1)
        return n.op("Mul", n.op("Div", v, n.op("Sqrt", n.op("Add", squares, n.constant(np.float32(1e-5))))), n.weight(WIDTH))

    def heads(v: str, count: int) -> str:
        made = n.op("Reshape", n.op("MatMul", v, n.weight(WIDTH, count * PART)), n.ints(0, 0, count, PART))
        return n.op("Transpose", made, perm=[0, 2, 1, 3])

    def repeated(v: str) -> str:
        if kept == HEADS:
            return v
        shape = n.op("Concat", n.size(v, 0), n.ints(kept, HEADS // kept), n.size(v, 2), n.ints(PART), axis=0)
        flat = n.op("Concat", n.size(v, 0), n.ints(HEADS), n.size(v, 2), n.ints(PART), axis=0)
        return n.op("Reshape", n.op("Expand", n.op("Unsqueeze", v, n.ints(2)), shape), flat)

    for layer in range(layers):
        names = f"keys {layer}", f"values {layer}"
        inputs |= {name: [batch, kept, "past", PART] for name in names}
        h = scaled(x)
        query, key, value = heads(h, HEADS), heads(h, kept), heads(h, kept)
        keys, values = n.op("Concat", names[0], key, axis=2), n.op("Concat", names[1], value, axis=2)
        outputs += [keys, values]
        scores = n.op("MatMul", query, n.op("Transpose", repeated(keys), perm=[0, 1, 3, 2]))
        weights = n.op("Softmax", n.op("Mul", scores, n.constant(np.float32(PART**-0.5))), axis=-1)
        mixed = n.op("Transpose", n.op("MatMul", weights, repeated(values)), perm=[0, 2, 1, 3])
        x = n.op("Add", x, n.op("MatMul", n.op("Reshape", mixed, n.ints(0, 0, WIDTH)), n.weight(WIDTH, WIDTH)))
        h = scaled(x)
        gate = n.op("MatMul", h, n.weight(WIDTH, 128))
        gated = n.op("Mul", n.op("Mul", gate, n.op("Sigmoid", gate)), n.op("MatMul", h, n.weight(WIDTH, 128)))
        x = n.op("Add", x, n.op("MatMul", gated, n.weight(128, WIDTH)))
    return n.model(inputs, n.op("MatMul", x, n.weight(WIDTH, WORDS)), *outputs, types={"ids": TensorProto.INT64})


class Decoding:
    """A decoder that runs on caches of so many rows."""

    def __init__(self, data: bytes, rows: int, batch: int = 1, length: int = 1) -> None:
        self.session, self.model = onnxruntime.InferenceSession(data), tl.compile(data, threads=1)
        self.caches: dict[str, Array] = {}
        for taken in self.model.inputs[1:]:
            assert taken.shape is not None
            self.caches[taken.name] = np.full((batch, taken.shape[1], rows, PART), np.nan, np.float32)
        self.ids = np.zeros((batch, length), np.int64)
        self.returned = [o.name for o in self.model.outputs]
        results = dict(zip(self.returned[1:], self.caches.values(), strict=True))
        self.step = self.model.prepared({"ids": self.ids, **self.caches}, results, max={"past": rows - length})

    def check(self, past: int) -> None:
        """Compare a step with onnxruntime's, which is given what is cached."""
        before = {name: cache[:, :, :past].copy() for name, cache in self.caches.items()}
        logits, *wanted = self.session.run(None, {"ids": self.ids, **before})
        np.testing.assert_allclose(self.step(past=past)[self.returned[0]], logits, 1e-4, 1e-4)
        for cache, all_rows, old in zip(self.caches.values(), wanted, before.values(), strict=True):
            np.testing.assert_allclose(cache[:, :, : all_rows.shape[2]], all_rows, 1e-4, 1e-4)
            np.testing.assert_array_equal(cache[:, :, :past], old)


@pytest.mark.parametrize("kept", [HEADS, 2])
def test_a_decoder_grows_its_caches_in_place_without_another_compilation(kept: int, caplog: pytest.LogCaptureFixture) -> None:
    decoding, rng = Decoding(decoder(kept=kept), 2048), np.random.default_rng(0)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        for past in range(2048):
            decoding.ids[0, 0] = rng.integers(WORDS)
            if past < 20 or past % 97 == 0 or past == 2047:
                decoding.check(past)
            else:
                decoding.step(past=past)
    assert not caplog.records


@pytest.mark.parametrize(("batch", "length"), [(1, 5), (3, 4)])
def test_several_sequences_and_tokens_are_appended_at_once(batch: int, length: int) -> None:
    decoding = Decoding(decoder(1, batch="batch", length="length"), 40, batch, length)
    for past in (0, length, 2 * length, 36 - length, 40 - length):
        for cache in decoding.caches.values():
            cache[:, :, :past] = np.random.default_rng(past).standard_normal(cache[:, :, :past].shape)
        decoding.check(past)


def test_only_the_new_rows_are_written() -> None:
    decoding = Decoding(decoder(1), 9)
    for cache in decoding.caches.values():
        cache[...] = 7
    decoding.step(past=4)
    for cache in decoding.caches.values():
        assert (np.delete(cache, 4, axis=2) == 7).all() and (cache[:, :, 4] != 7).any()


def test_a_cache_too_short_for_the_next_token_is_one_error_and_nothing_changes() -> None:
    decoding = Decoding(decoder(1), 6)
    for past in range(6):
        decoding.check(past)
    before = [cache.copy() for cache in decoding.caches.values()]
    with pytest.raises(tl.RunError, match="R0317") as refused:
        decoding.step(past=6)
    assert "`past` is 6, and at most 5" in str(refused.value)
    for cache, old in zip(decoding.caches.values(), before, strict=True):
        np.testing.assert_array_equal(cache, old)
    decoding.check(3)


def test_outputs_of_their_own_hold_the_past_as_well() -> None:
    data = decoder(1)
    model, session = tl.compile(data, threads=1), onnxruntime.InferenceSession(data)
    rng = np.random.default_rng(0)
    rows = {t.name: rng.standard_normal((1, HEADS, 3, PART)).astype(np.float32) for t in model.inputs[1:]}
    feeds = {"ids": np.array([[3]]), **rows}
    for mine, theirs in zip(model.run(feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)


def perceptron() -> bytes:
    n = Net()
    return n.model({"x": ["rows", 8]}, n.op("Relu", n.op("MatMul", "x", n.weight(8, 5))))


def side_by_side() -> bytes:
    """Two products one after the other, each of which is written where it lies in the whole."""
    n = Net()
    whole = n.op("Concat", n.op("MatMul", "x", n.weight(8, 16)), n.op("MatMul", "x", n.weight(8, 16)), axis=0)
    return n.model({"x": ["rows", 8]}, n.op("MatMul", whole, n.weight(16, 16)))


@pytest.mark.parametrize("data", [perceptron(), side_by_side()], ids=["perceptron", "side by side"])
def test_sizes_up_to_a_limit_run_on_the_first_part_of_arrays(data: bytes) -> None:
    model, session = tl.compile(data, threads=1), onnxruntime.InferenceSession(data)
    x = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    run = model.prepared({"x": x}, max={"rows": 30})
    for rows in (30, 1, 0, 17):
        (found,) = run(rows=rows).values()
        np.testing.assert_allclose(found, session.run(None, {"x": x[:rows]})[0], 1e-4, 1e-4)


def refusals() -> Iterator[tuple[str, Any]]:
    x = np.zeros((6, 8), np.float32)
    prepared = tl.compile(perceptron(), threads=1).prepared
    yield "C0123", lambda: prepared({"x": x}, max={"columns": 6})
    yield "C0123", lambda: prepared({"x": x}, max={"rows": -1})
    yield "C0123", lambda: prepared({"x": x}, max={"rows": True})
    yield "C0123", lambda: prepared({"x": x}, max="rows")  # type: ignore[arg-type]
    yield "R0304", lambda: prepared({"x": x}, max={"rows": 7})
    yield "R0307", lambda: prepared({"x": x[::2]}, max={"rows": 3})
    yield "R0301", lambda: prepared({}, max={"rows": 3})
    run = prepared({"x": x}, max={"rows": 6})
    yield "R0317", lambda: run(rows=7)
    yield "R0317", lambda: run(rows=-1)
    yield "R0314", lambda: run(rows=2.0)
    yield "R0313", lambda: run()
    yield "R0312", lambda: run(rows=2, columns=3)
    square = np.zeros((6, 6), np.float32)
    n = Net()
    relu = tl.compile(n.model({"x": ["rows", 6]}, n.op("Relu", "x")), threads=1)
    yield "C0122", lambda: relu.prepared({"x": square}, {relu.outputs[0].name: square}, max={"rows": 6})
    fixed = tl.compile(perceptron(), threads=1, shapes={"x": (6, 8)})
    yield "C0123", lambda: fixed.prepared({"x": x}, max={"rows": 6})


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    for code, refused in refusals():
        with pytest.raises(CompileError, match=code):
            refused()


def test_a_model_may_be_limited_for_all_runs() -> None:
    limited = tl.compile(perceptron(), threads=1, max={"rows": 4})
    assert limited(np.zeros((4, 8), np.float32)).shape == (4, 5)
    with pytest.raises(tl.RunError, match="R0317") as refused:
        limited(np.zeros((5, 8), np.float32))
    assert "`rows` is 5" in str(refused.value)
    assert limited(np.zeros((3, 8), np.float32)).shape == (3, 5)
    with pytest.raises(CompileError, match="C0123"):
        tl.compile(perceptron(), max={"columns": 4})
    with pytest.raises(CompileError, match="C0123"):
        tl.compile(perceptron(), shapes={"x": (2, 8)}, max={"rows": 4})
