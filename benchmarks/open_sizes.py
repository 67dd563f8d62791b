"""What sizes that stay open cost: one kernel or model for any sizes against one compiled for the sizes at hand, in turns.

    python benchmarks/open_sizes.py                     operators, then models
    python benchmarks/open_sizes.py conv transpose      those whose names begin so
    python benchmarks/open_sizes.py bert_base --layers 2 --sizes 1x17 2x128

Of every operator and combination of sizes: the time with open sizes, with known ones, and the first over the second; results are compared.
What is compiled for open sizes is compiled once, at the first combination. Models are those of benchmarks/models.py with their batch, and
the length of what they read, left open.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from harness import Array, Run, paired, table, with_threads  # isort: skip

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tensorlang
from stdlib import models

OPERATORS = """
op matmul(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }
op batched(a: f32[B, M, K], b: f32[B, K, N]) -> (y: f32[B, M, N]) { y[n, i, j] = sum(k) a[n, i, k] * b[n, k, j] }
op transposed(a: f32[M, K], b: f32[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[j, k] }
op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    m[i]    = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    y[i, j] = e[i, j] / sum(k) e[i, k]
}
op layer_norm(x: f32[M, N], g: f32[N], b: f32[N]) -> (y: f32[M, N]) {
    mean[i] = sum(j) x[i, j] / f32(N)
    var[i]  = sum(j) (x[i, j] - mean[i]) * (x[i, j] - mean[i]) / f32(N)
    y[i, j] = (x[i, j] - mean[i]) / sqrt(var[i] + 0.00001) * g[j] + b[j]
}
op transpose(x: f32[M, N]) -> (y: f32[N, M]) { y[j, i] = x[i, j] }
op gelu(x: f32[M, N]) -> (y: f32[M, N]) { y[i, j] = 0.5 * x[i, j] * (1 + erf(x[i, j] * 0.7071067811865476)) }
op total(x: f32[N]) -> (y: f32[]) { y[] = sum(i) x[i] }
op rowsum(x: f32[M, N]) -> (y: f32[M]) { y[i] = sum(j) x[i, j] }
op colsum(x: f32[M, N]) -> (y: f32[N]) { y[j] = sum(i) x[i, j] }
op attention(q: f32[H, S, D], k: f32[H, T, D], v: f32[H, T, D]) -> (y: f32[H, S, D]) {
    s[h, i, j] = sum(c) q[h, i, c] * k[h, j, c]
    m[h, i]    = max(j) s[h, i, j]
    e[h, i, j] = exp(s[h, i, j] - m[h, i])
    p[h, i, j] = e[h, i, j] / sum(t) e[h, i, t]
    y[h, i, d] = sum(j) p[h, i, j] * v[h, j, d]
}
op complex_product(ar: f32[M, K], ai: f32[M, K], br: f32[K, N], bi: f32[K, N]) -> (yr: f32[M, N], yi: f32[M, N]) {
    yr[i, j] = sum(k) (ar[i, k] * br[k, j] - ai[i, k] * bi[k, j])
    yi[i, j] = sum(k) (ar[i, k] * bi[k, j] + ai[i, k] * br[k, j])
}
op covariance(x: f32[N, M]) -> (c: f32[M, M]) {
    mean[j] = sum(i) x[i, j] / f32(N)
    c[a, b] = sum(i) (x[i, a] - mean[a]) * (x[i, b] - mean[b]) / (f32(N) - 1)
}
op min_plus(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = min(k) (a[i, k] + b[k, j]) }
op cumsum(x: f32[M, N]) -> (y: f32[M, N]) {
    c[i, 0]     = 0   for i in 0..M
    c[i, j + 1] = c[i, j] + x[i, j]
    y[i, j]     = c[i, j + 1]
}
"""

SQUARES = ((96, 96, 96), (17, 64, 40), (128, 128, 128), (200, 200, 200), (384, 384, 384), (512, 512, 512), (509, 127, 251))
MATRICES = ((300, 200), (128, 768), (1000, 777), (1024, 1024), (17, 5000), (3000, 33))


@dataclass(frozen=True, slots=True)
class Case:
    """`shapes` of the arguments for each combination of sizes, the first of which open sizes are compiled at."""

    name: str
    operator: str
    combinations: Sequence[tuple[int, ...]]
    shapes: Callable[..., Sequence[tuple[int, ...]]]


def operators() -> Iterator[Case]:
    """Yield every operator of the language that is measured."""
    for name in ("matmul", "min_plus"):
        yield Case(name, name, SQUARES, lambda m, k, n: ((m, k), (k, n)))
    yield Case("transposed matmul", "transposed", SQUARES, lambda m, k, n: ((m, k), (n, k)))
    yield Case("batched matmul", "batched", [(b, *s) for b, s in zip((4, 12, 3, 7), SQUARES, strict=False)], _batched)
    yield Case("complex product", "complex_product", SQUARES, lambda m, k, n: ((m, k), (m, k), (k, n), (k, n)))
    yield Case("covariance", "covariance", ((200, 100), (500, 240), (333, 129), (1000, 300)), lambda n, m: ((n, m),))
    yield Case("attention", "attention", ((4, 100, 100, 64), (12, 128, 128, 64), (12, 17, 17, 64), (2, 200, 384, 64)), _attention)
    for name in ("softmax", "transpose", "gelu", "rowsum", "colsum", "cumsum"):
        yield Case(name, name, MATRICES, lambda m, n: ((m, n),))
    yield Case("layer_norm", "layer_norm", MATRICES, lambda m, n: ((m, n), (n,), (n,)))
    yield Case("total", "total", ((1000,), (100_000,), (1_000_003,)), lambda n: ((n,),))


def _batched(b: int, m: int, k: int, n: int) -> Sequence[tuple[int, ...]]:
    return (b, m, k), (b, k, n)


def _attention(h: int, s: int, t: int, d: int) -> Sequence[tuple[int, ...]]:
    return (h, s, d), (h, t, d), (h, t, d)


LAYERS = {
    "conv 3x3": ((64, 64, 3, 1, 1, 1), "Conv"),
    "conv 3x3s2": ((64, 64, 3, 2, 1, 1), "Conv"),
    "conv 1x1": ((64, 256, 1, 1, 0, 1), "Conv"),
    "conv 1x1s2": ((256, 128, 1, 2, 0, 1), "Conv"),
    "conv 7x7s2": ((3, 64, 7, 2, 3, 1), "Conv"),
    "depthwise 3x3": ((96, 96, 3, 1, 1, 96), "Conv"),
    "max pool 3x3s2": ((64, 64, 3, 2, 1, 1), "MaxPool"),
    "average pool": ((64, 64, 2, 2, 0, 1), "AveragePool"),
}
IMAGES = ((4, 56, 56), (1, 56, 56), (2, 28, 28), (3, 14, 14), (8, 7, 7), (1, 100, 75))
"""Images, rows, columns."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="how long to measure each pair")
    parser.add_argument("--layers", type=int, default=2, help="how many blocks of a transformer are kept (0: all)")
    parser.add_argument("--sizes", nargs="+", help="combinations of batch and length, as 2x128")
    arguments = parser.parse_args()

    def asked(name: str) -> bool:
        return not arguments.names or name.startswith(tuple(arguments.names))

    rows: list[tuple[str, str, float, float]] = []

    def note(name: str, sizes: object, runs: Mapping[str, Run]) -> None:
        opened, fixed = (t.best for t in paired(runs, arguments.seconds))
        rows.append((name, str(sizes), opened, fixed))
        print(f"{name:20} {sizes!s:24} {opened * 1e6:10.1f} us {fixed * 1e6:10.1f} us {opened / fixed:6.2f}", file=sys.stderr, flush=True)

    for case in operators():
        if asked(case.name):
            _operator(case, arguments.threads, note)
    for name in LAYERS:
        for spatial in (False, True):
            if asked(name):
                _layer(name, spatial, arguments.threads, note)
    for name in MODELS:
        if asked(name):
            _model(name, arguments, note)
    print(
        table(
            ("", "sizes", "open [us]", "known [us]", "ratio"),
            [(n, s, f"{a * 1e6:.1f}", f"{b * 1e6:.1f}", f"{a / b:.2f}") for n, s, a, b in rows],
        )
    )
    for name in dict.fromkeys(row[0] for row in rows):
        found = [a / b for n, _, a, b in rows if n == name]
        print(f"{name}: geometric mean {geometric_mean(found):.2f}, most {max(found):.2f}")


# ---------------------------------------------------------------- operators


def _operator(case: Case, threads: int, note: Callable[[str, object, Mapping[str, Run]], None]) -> None:
    made = {mode: tensorlang.parse(OPERATORS, threads=threads, sizes=mode)[case.operator] for mode in ("symbolic", "static")}
    rng = np.random.default_rng(1)
    made["symbolic"](*(rng.standard_normal(s).astype(np.float32) for s in case.shapes(*case.combinations[0])))
    for sizes in case.combinations:
        arrays = [rng.standard_normal(s).astype(np.float32) for s in case.shapes(*sizes)]
        a, b = (made[mode](*arrays) for mode in ("symbolic", "static"))
        check(case.name, a, b)
        note(case.name, sizes, {mode: with_threads(threads, operator.prepared(*arrays)) for mode, operator in made.items()})


def check(name: str, a: Any, b: Any) -> None:
    """Raise AssertionError where two results differ by more than rounding."""
    for mine, theirs in zip(a if isinstance(a, tuple) else (a,), b if isinstance(b, tuple) else (b,), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-3, 1e-3 * float(np.abs(theirs).max(initial=1e-3)), err_msg=name)


# ---------------------------------------------------------------- layers of one node, and models


def _layer(name: str, spatial: bool, threads: int, note: Callable[[str, object, Mapping[str, Run]], None]) -> None:
    (channels, filters, window, stride, pad, groups), kind = LAYERS[name]
    rng = np.random.default_rng(1)
    attributes: dict[str, Any] = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    constants = []
    if kind == "Conv":
        attributes["group"] = groups
        weights = rng.standard_normal((filters, channels // groups, window, window)).astype(np.float32)
        constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ones(filters, np.float32), "b")]
    combinations = [s for s in IMAGES if spatial or s[1:] == IMAGES[0][1:]]
    combinations += [] if spatial else [(8, 56, 56), (3, 56, 56)]
    size: list[Any] = ["height", "width"] if spatial else [*IMAGES[0][1:]]
    node = helper.make_node(kind, ["x", *(c.name for c in constants)], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", channels, *size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "layer", [x], [y], constants)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    feeds = [{"x": rng.standard_normal((n, channels, h, w)).astype(np.float32)} for n, h, w in combinations]
    _compared(f"{name}{' any image' if spatial else ''}", data, combinations, feeds, threads, note)


def _compared(
    name: str,
    data: bytes,
    combinations: Sequence[object],
    feeds: Sequence[Mapping[str, Array]],
    threads: int,
    note: Callable[[str, object, Mapping[str, Run]], None],
) -> None:
    opened = tensorlang.compile(data, threads=threads, sizes="symbolic")
    opened.run(feeds[0])
    if "compiled for each" in opened.explain(feeds[0]):
        print(f"{name}: sizes cannot be open", file=sys.stderr)
    for sizes, feed in zip(combinations, feeds, strict=True):
        fixed = tensorlang.compile(data, threads=threads, sizes="static")
        for mine, theirs in zip(opened.run(feed).values(), fixed.run(feed).values(), strict=True):
            check(name, mine, theirs)
        note(name, sizes, {"open": with_threads(threads, opened.prepared(feed)), "fixed": with_threads(threads, fixed.prepared(feed))})


MODELS = ("bert_base", "gpt2", "resnet50")
LENGTHS = (17, 64, 128, 200, 384, 512)
BATCHES = (1, 2, 3, 8)


def _model(name: str, arguments: argparse.Namespace, note: Callable[[str, object, Mapping[str, Run]], None]) -> None:
    model = opened(name, arguments.layers)
    images = name == "resnet50"
    every = [(b, 0) for b in BATCHES] if images else [(b, s) for s in LENGTHS for b in BATCHES]
    combinations = [(int(b), int(s or 0)) for b, _, s in (x.partition("x") for x in arguments.sizes)] if arguments.sizes else every
    first = (2, 0) if images else (2, 128)
    combinations = [first, *(c for c in combinations if c != first)]
    rng = np.random.default_rng(1)

    def feeds(batch: int, length: int) -> dict[str, Array]:
        if images:
            return {"pixel_values": rng.standard_normal((batch, 3, 224, 224)).astype(np.float32)}
        names = [i.name for i in model.graph.input]
        return {n: np.ones((batch, length), np.int64) if "mask" in n else rng.integers(0, 1000, (batch, length)) for n in names}

    _compared(name, model.SerializeToString(), combinations, [feeds(*c) for c in combinations], arguments.threads, note)


def opened(name: str, layers: int) -> onnx.ModelProto:
    """Return a model with its batch left open, and the length of what it reads; of a transformer the first `layers` blocks."""
    model = models.load(name, 7)
    graph = model.graph
    constants = {i.name: i for i in graph.initializer}

    def put(name: str, array: Array) -> None:
        constants[name].CopyFrom(numpy_helper.from_array(array, name))

    def instead(name: str, *nodes: tuple[str, Sequence[str], str, dict[str, Any]]) -> None:
        """Let the last of `nodes` make `name`."""
        if name in constants:
            graph.initializer.remove(constants.pop(name))
        for old in [n for n in graph.node if name in n.output]:
            graph.node.remove(old)
        for k, (kind, inputs, output, attributes) in enumerate(nodes):
            graph.node.insert(k, helper.make_node(kind, inputs, [output], **attributes))

    def ints(name: str, *values: int) -> str:
        graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def scalar(name: str, value: int) -> str:
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, symbol in zip(dims, ("batch", "seq" if len(dims) == 2 else ""), strict=False):
            if symbol:
                dim.ClearField("dim_value")
                dim.dim_param = symbol
    for value in graph.output:
        value.type.ClearField("tensor_type")
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    del graph.value_info[:]
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[1] in constants:
            shape = numpy_helper.to_array(constants[node.input[1]])
            del node.attribute[:]
            if name == "gpt2" and shape.tolist()[:2] == [1, 128] and len(shape) == 3:
                continue
            known = [0 if n in (1, 128) and k < 2 and len(shape) > 2 else int(n) for k, n in enumerate(shape)]
            known = [-1, *known[1:]] if len(shape) == 2 and shape[1] != 128 else known
            put(node.input[1], np.array([0, 0] if len(shape) == 2 and shape[1] == 128 else known, np.int64))
    if name == "resnet50":
        return model
    places = [
        ("Shape", ["input_ids"], "open.shape", {}),
        ("Gather", ["open.shape", scalar("open.1", 1)], "open.seq", {}),
        ("Range", [scalar("open.0", 0), "open.seq", "open.1"], "open.places", {}),
        ("Unsqueeze", ["open.places", ints("open.first", 0)], "open.row", {}),
    ]
    if name == "bert_base":
        instead("slice_1", *places, ("Identity", ["open.row"], "slice_1", {}))
        instead("gather", ("Mul", ["input_ids", ints("open.zero", 0)], "gather", {}))
        mask = [("Cast", ["attention_mask"], "open.mask", {"to": TensorProto.BOOL})]
        instead("bitwise_and_1", *mask, ("Unsqueeze", ["open.mask", ints("open.12", 1, 2)], "bitwise_and_1", {}))
    else:
        instead("unsqueeze", *places, ("Identity", ["open.row"], "unsqueeze", {}))
        last = ("Unsqueeze", ["open.row", ints("open.12", 1, 2)], "open.keys", {})
        rows = ("Unsqueeze", ["open.row", ints("open.13", 1, 3)], "open.queries", {})
        instead("bitwise_and_1", last, rows, ("LessOrEqual", ["open.keys", "open.queries"], "bitwise_and_1", {}))
        at = next(k for k, n in enumerate(graph.node) if n.op_type == "LessOrEqual")
        moved = list(graph.node[: at + 1])[:3]
        for n in moved:
            graph.node.remove(n)
        at = next(k for k, n in enumerate(graph.node) if "open.row" in n.output)
        for k, n in enumerate(moved):
            graph.node.insert(at + 1 + k, n)
        for node in graph.node:
            if node.op_type == "Reshape" and node.input[1] in constants:
                shape = numpy_helper.to_array(constants[node.input[1]]).tolist()
                if shape[:2] == [1, 128]:
                    width = f"open.width {shape[2]}"
                    if width not in constants:
                        constants[width] = numpy_helper.from_array(np.array([shape[2]], np.int64), width)
                        graph.initializer.append(constants[width])
                        graph.node.insert(0, helper.make_node("Concat", ["open.shape", width], [f"{width} shape"], axis=0))
                    node.input[1] = f"{width} shape"
        shape = next(n for n in graph.node if "open.shape" in n.output)
        graph.node.remove(shape)
        graph.node.insert(0, shape)
    return cut(model, layers) if layers else model


def cut(model: onnx.ModelProto, layers: int) -> onnx.ModelProto:
    """Return the first `layers` blocks of a transformer."""
    norms = [n.output[0] for n in model.graph.node if n.op_type == "LayerNormalization"]
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(norms[2 * layers], TensorProto.FLOAT, None))
    needed = {o.name for o in model.graph.output}
    for node in reversed(list(model.graph.node)):  # others read what the model has at its own sizes alone
        if needed & {*node.output}:
            needed |= {*node.input}
        else:
            model.graph.node.remove(node)
    return model


if __name__ == "__main__":
    main()
