"""Models that are compiled once and run at sizes drawn at random: compilations, differences from onnxruntime, and times beside it.

    python benchmarks/any_sizes.py                       all models, 50 combinations of sizes each; then a decoder, step by step
    python benchmarks/any_sizes.py detector --count 10   those whose names begin so
    python benchmarks/any_sizes.py steps --layers 22     a decoder whose cache grows from nothing to 2,048 rows, in place

A combination that was drawn first is compiled for (`sizes="symbolic"`); whatever is compiled after it is counted. The difference is the
largest of any output, over the largest element of that; time is the best of a few calls of each, in turns, on one thread. Weights are
random, and transformers have two blocks.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from time import perf_counter, process_time
from typing import Any

from harness import Array, paired, table, with_threads  # isort: skip

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from open_sizes import opened

import tensorlang

Feeds = Mapping[str, Array]
WORDS, WIDTH, PART, HEADS = 1000, 256, 32, 8


class Net:
    """A model that is written node by node."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return f"c{len(self.constants) - 1}"

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weight(self, *shape: int) -> str:
        return self.constant(
            (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])).astype(np.float32)
        )

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def size(self, value: str, axis: int) -> str:
        return self.op("Unsqueeze", self.op("Gather", self.op("Shape", value), self.constant(np.array(axis, np.int64))), self.ints(0))

    def linear(self, x: str, rows: int, columns: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def norm(self, x: str, width: int) -> str:
        return self.op(
            "LayerNormalization", x, self.constant(np.ones(width, np.float32)), self.constant(np.zeros(width, np.float32)), axis=-1
        )

    def heads(self, x: str, width: int, count: int, part: int) -> str:
        made = self.op("Reshape", self.linear(x, width, count * part), self.ints(0, 0, count, part))
        return self.op("Transpose", made, perm=[0, 2, 1, 3])

    def attention(self, query: str, keys: str, values: str, width: int, part: int, masked: str = "") -> str:
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.constant(np.float32(part**-0.5)))
        weights = self.op("Softmax", self.op("Add", scaled, masked) if masked else scaled, axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", weights, values), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", mixed, self.ints(0, 0, width)), width, width)

    def perceptron(self, x: str, width: int) -> str:
        return self.linear(self.op("Relu", self.linear(x, width, 4 * width)), 4 * width, width)

    def model(self, inputs: Mapping[str, Sequence[Any]], *outputs: str, ids: Sequence[str] = ("ids",), whole: Sequence[str] = ()) -> bytes:
        def kind(name: str, integers: Sequence[str]) -> int:
            return TensorProto.INT64 if name in integers else TensorProto.FLOAT

        taken = [helper.make_tensor_value_info(n, kind(n, ids), list(s)) for n, s in inputs.items()]
        made = [helper.make_tensor_value_info(n, kind(n, whole), None) for n in outputs]
        graph = helper.make_graph(self.nodes, "net", taken, made, self.constants)
        data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
        return data


def decoder(layers: int, width: int, kept: int, *, open_length: bool) -> bytes:
    """Return a step of a decoder whose heads share `kept` keys and values, which it is given for the past and returns for all."""
    n, heads = Net(), width // PART
    length = "length" if open_length else 1
    x = n.op("Gather", n.weight(WORDS, width), "ids")
    inputs: dict[str, list[Any]] = {"ids": ["batch" if open_length else 1, length]}
    outputs = []
    new, past = n.size("ids", 1), ""

    def repeated(v: str) -> str:
        shape = n.op("Concat", n.size(v, 0), n.ints(kept, heads // kept), n.size(v, 2), n.ints(PART), axis=0)
        flat = n.op("Concat", n.size(v, 0), n.ints(heads), n.size(v, 2), n.ints(PART), axis=0)
        return n.op("Reshape", n.op("Expand", n.op("Unsqueeze", v, n.ints(2)), shape), flat) if kept < heads else v

    masked = ""
    for layer in range(layers):
        names = f"keys {layer}", f"values {layer}"
        inputs |= {name: [inputs["ids"][0], kept, "past", PART] for name in names}
        if not masked and open_length:
            past = n.size(names[0], 2)
            one, zero = n.constant(np.int64(1)), n.constant(np.int64(0))
            total = n.op("Squeeze", n.op("Add", past, new), n.ints(0))
            places = n.op("Unsqueeze", n.op("Range", n.op("Squeeze", past, n.ints(0)), total, one), n.ints(1))
            later = n.op("Greater", n.op("Unsqueeze", n.op("Range", zero, total, one), n.ints(0)), places)
            masked = n.op("Where", later, n.constant(np.float32(-1e9)), n.constant(np.float32(0)))
        h = n.norm(x, width)
        query, key, value = n.heads(h, width, heads, PART), n.heads(h, width, kept, PART), n.heads(h, width, kept, PART)
        keys, values = n.op("Concat", names[0], key, axis=2), n.op("Concat", names[1], value, axis=2)
        outputs += [keys, values]
        x = n.op("Add", x, n.attention(query, repeated(keys), repeated(values), width, PART, masked))
        x = n.op("Add", x, n.perceptron(n.norm(x, width), width))
    return n.model(inputs, n.op("MatMul", n.norm(x, width), n.weight(width, WORDS)), *outputs)


def detector() -> bytes:
    """Return a detector: convolutions of an image of any size, boxes around each point of what they make, and those that overlap least."""
    n = Net()
    x, channels = "image", 3
    for filters in (16, 32, 64):
        x = n.op("Relu", n.op("Conv", x, n.weight(filters, channels, 3, 3), n.weight(filters), strides=[2, 2], pads=[1, 1, 1, 1]))
        x = n.op("Relu", n.op("Conv", x, n.weight(filters, filters, 3, 3), n.weight(filters), pads=[1, 1, 1, 1]))
        channels = filters
    scores = n.op("Sigmoid", n.op("Reshape", n.op("Conv", x, n.weight(4, channels, 1, 1), n.weight(4)), n.ints(0, 4, -1)))
    corners = n.op(
        "Transpose", n.op("Reshape", n.op("Conv", x, n.weight(4, channels, 1, 1), n.weight(4)), n.ints(0, 4, -1)), perm=[0, 2, 1]
    )
    first, extent = (n.op("Slice", corners, n.ints(k), n.ints(k + 2), n.ints(2)) for k in (0, 2))
    boxes = n.op("Concat", first, n.op("Add", first, n.op("Exp", extent)), axis=2)
    limits = n.ints(20), n.constant(np.array([0.5], np.float32)), n.constant(np.array([0.45], np.float32))
    chosen = n.op("NonMaxSuppression", boxes, scores, *limits)
    at = n.op("Concat", *(n.op("Slice", chosen, n.ints(k), n.ints(k + 1), n.ints(1)) for k in (0, 2)), axis=1)
    return n.model({"image": ["batch", 3, "height", "width"]}, n.op("GatherND", boxes, at), chosen, ids=(), whole=(chosen,))


def transcriber() -> bytes:
    """Return an encoder of sounds, by convolutions and attention, and a decoder of words that attends to what it makes."""
    n = Net()
    sound = n.op("Relu", n.op("Conv", "sound", n.weight(WIDTH, 80, 3), n.weight(WIDTH), pads=[1, 1]))
    sound = n.op("Relu", n.op("Conv", sound, n.weight(WIDTH, WIDTH, 3), n.weight(WIDTH), strides=[2], pads=[1, 1]))
    heard = n.op("Transpose", sound, perm=[0, 2, 1])
    x = n.op("Gather", n.weight(WORDS, WIDTH), "ids")
    for _ in range(2):
        h = n.norm(heard, WIDTH)
        own = [n.heads(h, WIDTH, HEADS, PART) for _ in range(3)]
        heard = n.op("Add", heard, n.attention(own[0], own[1], own[2], WIDTH, PART))
        heard = n.op("Add", heard, n.perceptron(n.norm(heard, WIDTH), WIDTH))
    length = n.op("Squeeze", n.size("ids", 1), n.ints(0))
    places = n.op("Range", n.constant(np.int64(0)), length, n.constant(np.int64(1)))
    later = n.op("Greater", n.op("Unsqueeze", places, n.ints(0)), n.op("Unsqueeze", places, n.ints(1)))
    masked = n.op("Where", later, n.constant(np.float32(-1e9)), n.constant(np.float32(0)))
    for _ in range(2):
        h = n.norm(x, WIDTH)
        own = [n.heads(h, WIDTH, HEADS, PART) for _ in range(3)]
        x = n.op("Add", x, n.attention(own[0], own[1], own[2], WIDTH, PART, masked))
        query, other = n.heads(n.norm(x, WIDTH), WIDTH, HEADS, PART), [n.heads(heard, WIDTH, HEADS, PART) for _ in range(2)]
        x = n.op("Add", x, n.attention(query, other[0], other[1], WIDTH, PART))
        x = n.op("Add", x, n.perceptron(n.norm(x, WIDTH), WIDTH))
    return n.model({"sound": ["batch", 80, "frames"], "ids": ["batch", "length"]}, n.op("MatMul", n.norm(x, WIDTH), n.weight(WIDTH, WORDS)))


# ---------------------------------------------------------------- what is drawn


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and between which numbers each of its sizes is drawn; `feeds` makes its inputs of those."""

    name: str
    data: Callable[[], bytes]
    sizes: Mapping[str, tuple[int, int]]
    feeds: Callable[..., Feeds]


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(3)

    def ids(*shape: int) -> Array:
        return rng.integers(0, WORDS, shape)

    def floats(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    def transformer(name: str) -> Callable[[], bytes]:
        return lambda: opened(name, 2).SerializeToString()

    def kept(batch: int, length: int, past: int) -> Feeds:
        caches = {f"{what} {layer}": floats(batch, 2, past, PART) for layer in range(2) for what in ("keys", "values")}
        return {"ids": ids(batch, length), **caches}

    lengths = {"batch": (1, 4), "length": (1, 256)}
    yield Case("bert_base", transformer("bert_base"), lengths, lambda batch, length: {
        "input_ids": ids(batch, length), "attention_mask": np.ones((batch, length), np.int64)})  # fmt: skip
    yield Case("gpt2", transformer("gpt2"), lengths, lambda batch, length: {"input_ids": ids(batch, length)})
    yield Case("gpt2 with a cache", lambda: decoder(2, WIDTH, 2, open_length=True), {**lengths, "length": (1, 32), "past": (0, 512)}, kept)
    yield Case("resnet50", transformer("resnet50"), {"batch": (1, 4)}, lambda batch: {"pixel_values": floats(batch, 3, 224, 224)})
    images = {"batch": (1, 2), "height": (32, 256), "width": (32, 256)}
    yield Case("detector", detector, images, lambda batch, height, width: {"image": floats(batch, 3, height, width)})
    sounds = {"batch": (1, 3), "frames": (20, 600), "length": (1, 64)}
    yield Case("transcriber", transcriber, sounds, lambda batch, frames, length: {
        "sound": floats(batch, 80, frames), "ids": ids(batch, length)})  # fmt: skip


class Compilations(logging.Handler):
    """Counts what the compiler says that it compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "compiled in" in record.getMessage()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names, `steps` for the decoder step by step (default: all)")
    parser.add_argument("--count", type=int, default=50, help="how many combinations of sizes")
    parser.add_argument("--timed", type=int, help="how many of them are timed (default: all)")
    parser.add_argument("--seconds", type=float, default=0.1, help="how long to measure each combination")
    parser.add_argument("--layers", type=int, default=22, help="of the decoder that goes step by step")
    parser.add_argument("--rows", type=int, default=2048, help="that its cache grows to")
    arguments = parser.parse_args()
    said = Compilations()
    log = logging.getLogger("tensorlang.compile")
    log.addHandler(said)
    log.setLevel(logging.INFO)

    def asked(name: str) -> bool:
        return not arguments.names or name.startswith(tuple(arguments.names))

    timed = arguments.count if arguments.timed is None else arguments.timed
    rows = [_drawn(case, arguments.count, timed, arguments.seconds, said) for case in cases() if asked(case.name)]
    if rows:
        heads = ("model", "sizes", "compiled again", "difference", "times as fast as onnxruntime", "least", "most")
        print(table(heads, rows))
    if asked("steps"):
        _steps(arguments.layers, arguments.rows, said)


def _drawn(case: Case, count: int, timed: int, seconds: float, said: Compilations) -> tuple[str, ...]:
    """Return what a table says of a model at so many combinations of sizes, of which the first are `timed`."""
    rng, data = np.random.default_rng(11), case.data()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    model = tensorlang.compile(data, threads=1, sizes="symbolic")
    drawn = [{name: int(rng.integers(low, high + 1)) for name, (low, high) in case.sizes.items()} for _ in range(count)]
    model.run(case.feeds(**drawn[0]))
    before, ratios, worst = said.count, list[float](), 0.0
    for number, sizes in enumerate(drawn):
        feeds = case.feeds(**sizes)
        for mine, theirs in zip(model.run(feeds).values(), session.run(None, feeds), strict=True):
            assert mine.shape == theirs.shape, (case.name, sizes, mine.shape, theirs.shape)
            largest = max(float(np.abs(theirs).max(initial=0)), 1e-6)
            worst = max(worst, float(np.abs(mine - theirs).max(initial=0)) / largest)
        if number >= timed:
            continue
        runs = {"own": with_threads(1, lambda: model.run(feeds)), "onnxruntime": lambda: session.run(None, feeds)}  # noqa: B023
        own, theirs_time = (t.best for t in paired(runs, seconds))
        ratios.append(theirs_time / own)
        print(f"{case.name:20} {sizes!s:50} {own * 1e6:10.1f} us {theirs_time / own:6.2f}", file=sys.stderr, flush=True)
    figures = geometric_mean(ratios), min(ratios), max(ratios)
    return case.name, str(count), str(said.count - before), f"{worst:.1e}", *(f"{r:.2f}" for r in figures)


def _steps(layers: int, rows: int, said: Compilations) -> None:
    """Print what steps of a decoder take whose caches are written in place: of one of some width, and of one so narrow that nearly all of
    it is what a step costs beside kernels."""
    for width, kept in ((512, 4), (PART, 1)):
        data = decoder(layers, width, kept, open_length=False)
        model = tensorlang.compile(data, threads=1)
        ids = np.zeros((1, 1), np.int64)
        caches = {i.name: np.zeros((1, kept, rows, PART), np.float32) for i in model.inputs[1:]}
        results = dict(zip([o.name for o in model.outputs][1:], caches.values(), strict=True))
        step = model.prepared({"ids": ids, **caches}, results, max={"past": rows - 1})
        before, most = said.count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = perf_counter()
        for past in range(rows):
            ids[0, 0] = past % WORDS
            step(past=past)
        whole, grown = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most
        print(
            f"decoder of {layers} layers, width {width}, cache of 0 to {rows} rows: {said.count - before} compilations, {grown} KiB more, ",
            end="",
        )
        print(
            f"{whole / rows * 1e6:.0f} us a step; at",
            ", ".join(f"{past}: {_least(step, past):.0f} us" for past in (0, rows // 2, rows - 1)),
        )


def _least(step: Callable[..., object], past: int) -> float:
    """Return the fewest microseconds of a processor that a step takes."""
    found = []
    for _ in range(20):
        start = process_time()
        for _ in range(5):
            step(past=past)
        found.append((process_time() - start) / 5)
    return min(found) * 1e6


if __name__ == "__main__":
    main()
