"""Models whose sizes stay open, against onnxruntime: one compilation for all combinations of sizes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import CompileError, FaultWarning, InternalError

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-4


class Net:
    """A model that is written node by node."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant((self.rng.standard_normal(shape) / max(1, shape[0]) ** 0.5).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def size(self, value: str, axis: int) -> str:
        """Return one dimension of a value as a vector of one element, as exporters write it."""
        return self.op("Unsqueeze", self.op("Gather", self.op("Shape", value), self.constant(np.array(axis, np.int64))), self.ints(0))

    def model(self, inputs: Mapping[str, Sequence[Any]], *outputs: str, types: Mapping[str, int] | None = None, opset: int = 18) -> bytes:
        kinds = types or {}
        taken = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), list(s)) for n, s in inputs.items()]
        found = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in outputs]
        graph = helper.make_graph(self.nodes, "net", taken, found, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def perceptron() -> bytes:
    n = Net()
    hidden = n.op("Relu", n.op("Add", n.op("MatMul", "x", n.weight(12, 20)), n.weight(20)))
    last = n.op("Expand", n.op("MatMul", hidden, n.weight(20, 6)), n.ints(1, 6))
    return n.model(
        {"x": ["batch", 12]}, n.op("Softmax", last, axis=-1), n.op("Slice", last, n.ints(-1), n.ints(-99), n.ints(1), n.ints(-1))
    )


def convolutions(*spatial: Any) -> bytes:
    n = Net()
    first = n.op("Relu", n.op("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), pads=[1, 1, 1, 1]))
    pooled = n.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    last = n.op("Conv", pooled, n.weight(8, 16, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    flat = n.op("Flatten", n.op("GlobalAveragePool", last))
    return n.model({"x": ["batch", 3, *spatial]}, n.op("Gemm", flat, n.weight(5, 8), transB=1))


def attention() -> bytes:
    """A layer of a transformer with the shape arithmetic that exporters write."""
    n, width, heads = Net(), 24, 3
    batch, length = n.size("ids", 0), n.size("ids", 1)
    positions = n.op("Range", n.constant(np.int64(0)), n.op("Squeeze", length, n.ints(0)), n.constant(np.int64(1)))
    x = n.op("Add", n.op("Gather", n.weight(50, width), "ids"), n.op("Gather", n.weight(64, width), positions))
    split = n.op("Concat", batch, length, n.ints(heads), n.ints(width // heads), axis=0)

    def part(perm: list[int]) -> str:
        made = n.op("Add", n.op("MatMul", x, n.weight(width, width)), n.weight(width))
        return n.op("Transpose", n.op("Reshape", made, split), perm=perm)

    scores = n.op("MatMul", part([0, 2, 1, 3]), part([0, 2, 3, 1]))
    mixed = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), part([0, 2, 1, 3])), perm=[0, 2, 1, 3])
    joined = n.op("Reshape", mixed, n.op("Concat", batch, length, n.ints(width), axis=0))
    y = n.op("LayerNormalization", n.op("Add", joined, x), n.weight(width), n.weight(width), axis=-1)
    return n.model({"ids": ["batch", "seq"]}, y, types={"ids": TensorProto.INT64})


def embedded() -> bytes:
    """Words and their places, and a product of both: of two open sizes, and soon compiled."""
    n, width = Net(), 8
    last = n.op("Squeeze", n.size("ids", 1), n.ints(0))
    places = n.op("Range", n.constant(np.int64(0)), last, n.constant(np.int64(1)))
    x = n.op("Add", n.op("Gather", n.weight(50, width), "ids"), n.op("Gather", n.weight(64, width), places))
    y = n.op("Softmax", n.op("MatMul", x, n.weight(width, width)), axis=-1)
    return n.model({"ids": ["batch", "seq"]}, y, types={"ids": TensorProto.INT64})


def cached() -> bytes:
    """A step of decoding: keys of the past and those of new tokens, one after the other, both returned and attended to."""
    n, width = Net(), 16
    new = n.op("MatMul", "x", n.weight(width, width))
    keys = n.op("Concat", "past", new, axis=1)
    weights = n.op("Softmax", n.op("MatMul", "x", n.op("Transpose", keys, perm=[0, 2, 1])), axis=-1)
    return n.model({"x": ["batch", "seq", width], "past": ["batch", "past_len", width]}, n.op("MatMul", weights, keys), keys)


def attending() -> bytes:
    """Sizes that have to be equal and have names of their own: those of new and old keys, and of a mask over both."""
    n = Net()
    keys = n.op("Concat", "past", "new", axis=1)
    scores = n.op("Add", n.op("MatMul", "new", n.op("Transpose", keys, perm=[0, 2, 1])), "mask")
    return n.model({"new": ["b", "seq", 6], "past": ["b1", "past", 6], "mask": ["b2", 1, "total"]}, scores)


def expansions() -> bytes:
    """Values repeated to shapes that are computed from sizes, along axes of one element, of known and of open size."""
    n = Net()
    row = n.op("Expand", n.weight(1, 4), n.op("Concat", n.size("x", 0), n.ints(4), axis=0))
    total = n.op("Add", row, "x")
    twice = n.op("Tile", total, n.ints(2, 3))
    cut = n.op("Slice", twice, n.ints(1), n.size("x", 0), n.ints(0))
    back = n.op("Slice", total, n.ints(-1), n.ints(-(2**40)), n.ints(0), n.ints(-1))
    return n.model({"x": ["batch", 4]}, twice, cut, back, n.op("Shape", twice), types={"v12": TensorProto.INT64})


def halved_until_small() -> bytes:
    """A loop that begins where not all rows are done: none is, however many there are."""
    n = Net()
    none = n.op("ConstantOfShape", n.size("x", 0), value=numpy_helper.from_array(np.array([0], np.int64)))
    begins = n.op("Not", n.op("Cast", n.op("ReduceMax", none, keepdims=0), to=TensorProto.BOOL))
    half, one = n.constant(np.float32(0.5)), n.constant(np.float32(1))
    nodes = [
        helper.make_node("Mul", ["before", half], ["after"]),
        helper.make_node("ReduceMax", ["after"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", one], ["again"]),
    ]
    kinds = {"turn": TensorProto.INT64, "asked": TensorProto.BOOL, "before": None, "again": TensorProto.BOOL, "after": None}
    infos = [helper.make_tensor_value_info(name, kind or TensorProto.FLOAT, [] if kind else ["batch", 4]) for name, kind in kinds.items()]
    return n.model({"x": ["batch", 4]}, n.op("Loop", "", begins, "x", body=helper.make_graph(nodes, "turn", infos[:3], infos[3:])))


def resized() -> bytes:
    """An image twice as large, made as large as a little more than another way around, and in bytes by its own range."""
    n = Net()
    scales, more = n.constant(np.array([1, 1, 2, 0.5], np.float32)), n.op("Add", n.size("x", 3), n.ints(3))
    twice = n.op("Resize", "x", "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    extents = n.op("Concat", n.size("x", 0), n.ints(2), more, n.size("x", 2), axis=0)
    cubic = n.op("Resize", "x", "", "", extents, mode="cubic", coordinate_transformation_mode="align_corners")
    n.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["bytes", "scale", "zero"]))
    types = {"bytes": TensorProto.UINT8, "zero": TensorProto.UINT8}
    return n.model({"x": ["batch", 2, "height", "width"]}, twice, cubic, "bytes", "scale", "zero", types=types)


def sounds() -> bytes:
    """A recurrent layer and a spectrum over signals of any length, thrown back at both ends, and products by letters of both."""
    n = Net()
    wide = n.op("Pad", "x", n.ints(0, 4, 0, 4), mode="reflect")
    power = n.op("ReduceSum", n.op("STFT", wide, n.ints(4), "", n.ints(8), onesided=1), n.ints(3), keepdims=0)
    y = n.op("RNN", n.op("Transpose", power, perm=[1, 0, 2]), n.weight(1, 6, 5), n.weight(1, 6, 6), hidden_size=6)
    return n.model({"x": ["batch", "length"]}, n.op("Einsum", y, power, equation="tdbh,btf->bhf"))


def enlarged() -> bytes:
    """Images made three times as high and twice as wide by what is learnt."""
    n = Net()
    large = n.op("ConvTranspose", "x", n.weight(3, 2, 4, 3), n.weight(2), strides=[3, 2], pads=[1, 0, 1, 1])
    return n.model({"x": ["batch", 3, "height", "width"]}, large)


def pyramid() -> bytes:
    """What two strides leave of images beside what one leaves: extents that are equal for some sizes alone."""
    n = Net()
    half = n.op("Conv", "x", n.weight(16, 3, 1, 1), strides=[2, 2])
    quarter = n.op("Conv", half, n.weight(16, 16, 2, 1), strides=[2, 2])
    return n.model(
        {"x": ["batch", 3, "height", "width"]}, n.op("Concat", quarter, n.op("Conv", "x", n.weight(16, 3, 4, 1), strides=[4, 4]), axis=1)
    )


def better_half() -> bytes:
    """Of the points of an image the better half, few or many, in their order."""
    n = Net()
    points = n.op("Reshape", "x", n.op("Concat", n.size("x", 0), n.ints(-1), axis=0))
    count = n.op("Div", n.op("Mul", n.size("x", 1), n.size("x", 2)), n.ints(2))
    n.nodes.append(helper.make_node("TopK", [points, count], ["best", "at"]))
    return n.model({"x": ["batch", "height", "width"]}, "best", "at", types={"at": TensorProto.INT64})


def padded_by_floats() -> bytes:
    """Rows made as long as a multiple of fourteen, as floats compute it, with their places behind them and the place of each in floats,
    from the first on and from the last."""
    n = Net()
    length = n.op("Cast", n.size("x", 1), to=TensorProto.FLOAT)
    whole = n.op("Mul", n.op("Ceil", n.op("Div", length, n.constant(np.array([14], np.float32)))), n.constant(np.array([14], np.float32)))
    more = n.op("Cast", n.op("Sub", whole, length), to=TensorProto.INT64)
    zero, one = n.constant(np.float32(0)), n.constant(np.float32(0.5))
    end = n.op("Squeeze", length, n.ints(0))
    places = n.op("Range", zero, end, one)
    back = n.op("Range", n.op("Sub", end, n.constant(np.float32(1))), n.constant(np.float32(-1)), n.constant(np.float32(-1)))
    return n.model({"x": ["batch", "length"]}, n.op("Pad", "x", n.op("Concat", n.ints(0, 0, 0), more, axis=0)), places, back)


def all_places() -> bytes:
    """Where the elements of ones stand, of a row and of a matrix, as exporters write a range, and a mark for each of these places."""
    n = Net()
    row, matrix = n.size("x", 1), n.op("Shape", "x")
    ones = numpy_helper.from_array(np.array([1], np.int64))
    at = n.op("NonZero", n.op("ConstantOfShape", row, value=ones))
    everywhere = n.op("NonZero", n.op("ConstantOfShape", matrix, value=ones))
    depth, values = n.op("Squeeze", row, n.ints(0)), n.constant(np.array([0, 1], np.float32))
    marks = n.op("OneHot", at, depth, values)
    return n.model({"x": ["batch", "length"]}, at, everywhere, marks, types={at: TensorProto.INT64, everywhere: TensorProto.INT64})


def sampled() -> bytes:
    """Images of any extents at places that data say."""
    n = Net()
    return n.model({"x": ["batch", 2, "height", "width"], "grid": ["batch", "rows", 3, 2]}, n.op("GridSample", "x", "grid"))


def feeds_for(data: bytes, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for i in onnx.load_from_string(data).graph.input:
        shape = tuple(sizes[d.dim_param] if d.dim_param else d.dim_value for d in i.type.tensor_type.shape.dim)
        whole = i.type.tensor_type.elem_type == TensorProto.INT64
        out[i.name] = rng.integers(0, 50, shape) if whole else rng.standard_normal(shape).astype(np.float32)
    return out


def check(model: tl.CompiledModel, data: bytes, combinations: Sequence[Mapping[str, int]]) -> None:
    session = onnxruntime.InferenceSession(data)
    for seed, sizes in enumerate(combinations):
        feeds = feeds_for(data, sizes, seed)
        for mine, theirs in zip(model.run(feeds).values(), session.run(None, feeds), strict=True):
            assert mine.shape == theirs.shape, sizes
            np.testing.assert_allclose(mine, theirs, TOLERANCE, TOLERANCE, err_msg=str(sizes))


def combinations(**sizes: Sequence[int]) -> list[dict[str, int]]:
    return [dict(zip(sizes, values, strict=True)) for values in product(*sizes.values())]


def compilations(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was told of code that was compiled now, or in an earlier test."""
    return [r.getMessage() for r in caplog.records if " ms, " in r.getMessage() and r.getMessage().startswith("model")]


MODELS = {
    "perceptron": (perceptron, combinations(batch=[3, 8, 1, 0, 17, 64])),
    "a loop until all are done": (halved_until_small, combinations(batch=[2, 5, 1])),
    "batches of images": (lambda: convolutions(12, 12), combinations(batch=[2, 5, 1, 0, 9])),
    "images of any size": (lambda: convolutions("height", "width"), combinations(batch=[2, 1], height=[12, 9, 31], width=[10, 16])),
    "a transformer": (attention, combinations(batch=[2, 3, 1], seq=[7, 16, 1, 33])),
    "sizes that have to be equal": (
        attending,
        [{"b": b, "b1": b, "b2": b, "seq": s, "past": p, "total": s + p} for b, s, p in ((2, 3, 4), (3, 1, 5), (2, 2, 9))],
    ),
    "expansions and slices": (expansions, combinations(batch=[3, 2, 6])),
    "images made larger and smaller": (resized, combinations(batch=[2], height=[5, 9], width=[4, 2])),
    "signals of any length": (sounds, combinations(batch=[2, 1], length=[12, 29])),
    "images enlarged by convolutions": (enlarged, combinations(batch=[2], height=[9, 2], width=[4, 7])),
    "images of several sizes together": (pyramid, combinations(batch=[2], height=[16, 8], width=[12])),
    "the better half of images": (better_half, combinations(batch=[2], height=[5, 60], width=[4, 40])),
    "sizes that go through floats": (padded_by_floats, combinations(batch=[2], length=[13, 14, 15, 56, 1])),
    "places of ones": (all_places, combinations(batch=[2, 3], length=[5, 1, 9])),
    "images at places of data": (sampled, combinations(batch=[2], height=[5, 8], width=[6, 1], rows=[4])),
    "a cache of keys": (cached, combinations(batch=[2, 1], seq=[3, 1], past_len=[5, 0, 1, 12])),
}


FIFTY = "images of any size"
"""A model that tests/runtime/test_models_of_any_sizes.py compiles once, for fifty combinations."""


@pytest.mark.parametrize("name", [name for name in MODELS if name != FIFTY])
def test_one_compilation_serves_all_combinations_of_sizes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, tried = MODELS[name]
    data = make()
    model = tl.compile(data, threads=1, sizes="symbolic")
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, tried)
    assert len(compilations(caplog)) == 1


def test_without_sizes_the_second_combination_opens_what_differs(caplog: pytest.LogCaptureFixture) -> None:
    data = embedded()
    model = tl.compile(data, threads=1)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, combinations(batch=[2], seq=[4, 5, 6, 9]))
        assert [line.split(": ")[1] for line in compilations(caplog)] == ["i64[2, 4]", "i64[2, seq]"]
        check(model, data, combinations(batch=[3, 4, 7], seq=[4, 5]))
    assert [line.split(": ")[1] for line in compilations(caplog)][2:] == ["i64[batch, seq]"]
    assert "sizes: open are `batch`, `seq`" in model.explain()


def test_fifty_random_combinations_take_two_compilations(caplog: pytest.LogCaptureFixture) -> None:
    data, draw = embedded(), Random(4)
    model = tl.compile(data, threads=1)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, [{"batch": draw.randint(0, 6), "seq": draw.randint(0, 40)} for _ in range(50)])
    assert len(compilations(caplog)) == 2


def test_sizes_of_two_names_are_one_where_a_shape_divides_one_by_the_other(caplog: pytest.LogCaptureFixture) -> None:
    n = Net()
    heard = n.op("Reshape", "heard", n.op("Concat", n.size("x", 0), n.ints(-1, 6), axis=0))
    data = n.model({"x": ["b", "seq", 6], "heard": ["b1", "frames", 6]}, n.op("MatMul", "x", n.op("Transpose", heard, perm=[0, 2, 1])))
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        tried = [{"b": b, "b1": b, "seq": s, "frames": f} for b, s, f in ((3, 2, 5), (2, 1, 4), (1, 2, 9))]
        check(tl.compile(data, threads=1, sizes="symbolic"), data, tried)
    assert len(compilations(caplog)) == 1 and "b == b1" in compilations(caplog)[0] and "//" not in compilations(caplog)[0]


def test_static_sizes_are_compiled_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    data = perceptron()
    model = tl.compile(data, threads=1, sizes="static")
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, combinations(batch=[2, 3, 4]))
    assert len(compilations(caplog)) == 3


def test_another_process_finds_all_that_was_compiled_for_any_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    n = Net()
    data = n.model({"x": ["batch", 6], "y": ["other", 6]}, n.op("Exp", n.op("Concat", n.op("Expand", "x", n.ints(3, 6)), "y", axis=0)))
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        for batches in ([3, 1], [1, 3]):  # the second one finds code for three rows first, which is not for one
            caplog.clear()
            model = tl.compile(data, threads=1, sizes="symbolic")
            check(model, data, combinations(batch=batches, other=[2, 5]))
            told = [(line.partition(" in ")[0].split(": ")[-1], line.partition("as long as ")[2]) for line in compilations(caplog)]
            how = "compiled" if batches == [3, 1] else "found"
            assert told == [(how, "batch == 3"), (how, "batch != 3, batch == 1")]


@pytest.mark.parametrize(
    ("other", "batches", "assumed"),
    [(3, [5, 6, 3, 4], ["batch != 3", "batch == 3"]), (1, [1], ["batch == 1"]), (1, [1, 1, 4, 5], ["batch == 1", "batch != 1"])],
)
def test_combinations_that_an_assumption_does_not_hold_for_are_compiled_for_themselves(
    other: int, batches: list[int], assumed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """And not before they come."""
    n = Net()
    doubled = n.op("Where", n.op("Equal", n.size("x", 0), n.ints(other)), n.ints(2), n.ints(1))
    data = n.model({"x": ["batch", 4]}, n.op("Tile", "x", n.op("Concat", doubled, n.ints(1), axis=0)))
    model = tl.compile(data, threads=1, sizes="symbolic")
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, combinations(batch=batches))
    assert [line.rpartition("as long as ")[2] for line in compilations(caplog)] == assumed


def test_sizes_that_go_through_floats_in_a_way_that_rounds_are_numbers() -> None:
    n = Net()
    root = n.op("Sqrt", n.op("Cast", n.size("x", 1), to=TensorProto.FLOAT))
    pads = n.op("Concat", n.ints(0, 0, 0), n.op("Cast", root, to=TensorProto.INT64), axis=0)
    data = n.model({"x": ["batch", "length"]}, n.op("Pad", "x", pads))
    check(tl.compile(data, threads=1), data, combinations(batch=[2, 3], length=[4, 5]))


RARE: dict[str, Any] = {"mode": "linear", "antialias": 1}
"""How images are resized of known sizes alone."""


def test_where_sizes_must_be_numbers_each_combination_is_compiled_and_the_reason_told(caplog: pytest.LogCaptureFixture) -> None:
    n = Net()
    data = n.model({"x": [1, 1, "width", 4]}, n.op("Resize", "x", "", "", n.ints(1, 1, 7, 8), **RARE))
    model = tl.compile(data, threads=1)
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, combinations(width=[3, 4, 5]))
    told = [r.getMessage() for r in caplog.records if "sizes" in r.getMessage() or "number" in r.getMessage()]
    assert "`width` is a number" in told[0]
    assert any(line.startswith("sizes: compiled for each combination of sizes") for line in model.explain().splitlines())


def test_each_run_is_refused_where_sizes_are_asked_to_be_open_and_must_be_numbers() -> None:
    n = Net()
    data = n.model({"x": [1, 1, "width", 4]}, n.op("Resize", "x", "", "", n.ints(1, 1, 7, 8), **RARE))
    model = tl.compile(data, threads=1, sizes="symbolic")
    for width in (3, 4):
        with pytest.raises(CompileError, match=r"(?s)C0105.*no size of this model can be open.*`width` is a number"):
            model.run({"x": np.ones((1, 1, width, 4), np.float32)})


def test_a_fault_of_the_compiler_with_open_sizes_is_a_warning_and_each_combination_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise InternalError("loops", "broken")

    monkeypatch.setattr(Toolchain, "built_open_sizes", broken)
    n = Net()
    data = n.model({"x": ["rows", 4]}, n.op("Relu", "x"))
    model = tl.compile(data, threads=1)
    with pytest.warns(FaultWarning, match=r"compiled for each combination of sizes: internal error in stage `loops`: broken"):
        check(model, data, combinations(rows=[3, 4, 5]))


def test_inputs_are_checked_when_sizes_are_open() -> None:
    data = cached()
    model = tl.compile(data, threads=1, sizes="symbolic")
    check(model, data, combinations(batch=[2], seq=[3], past_len=[4]))
    x, past = np.ones((2, 3, 16), np.float32), np.ones((3, 4, 16), np.float32)
    with pytest.raises(CompileError, match="R0304"):
        model.run({"x": x, "past": past})
    with pytest.raises(CompileError, match="R0303"):
        model.run({"x": x.astype(np.float64), "past": past[:2]})


def test_code_for_open_sizes_runs_for_those_alone_that_its_operators_are_for() -> None:
    n = Net()
    data = n.model({"x": ["rows", "columns"]}, n.op("ArgMax", "x", axis=1), types={"v0": TensorProto.INT64})
    model = tl.compile(data, threads=1, sizes="symbolic")
    check(model, data, combinations(rows=[2, 0], columns=[3, 4]))
    with pytest.raises(CompileError, match="O012"):
        model.run({"x": np.ones((2, 0), np.float32)})


def test_an_index_that_is_out_of_range_is_named_when_sizes_are_open() -> None:
    data = embedded()
    model = tl.compile(data, threads=1, sizes="symbolic")
    feeds = feeds_for(data, {"batch": 2, "seq": 9})
    feeds["ids"][1, 3] = 50
    with pytest.raises(tl.RunError, match="R0306") as refused:
        model.run(feeds)
    assert "50" in str(refused.value)


def two_of_one_kind(columns: int) -> bytes:
    """Two times the same, of different numbers of rows."""
    n = Net()
    kinds = {"i": TensorProto.INT64, "j": TensorProto.INT64}
    results = [n.op("Gather", n.op("Softmax", x, axis=-1), k) for x, k in (("x", "i"), ("z", "j"))]
    return n.model({"x": ["rows", columns], "i": ["picked"], "z": ["others", columns], "j": ["taken"]}, *results, types=kinds)


def test_kernels_that_differ_in_what_sizes_are_called_are_one_which_tells_of_the_sizes_at_hand() -> None:
    data = two_of_one_kind(12)
    model = tl.compile(data, threads=1, sizes="symbolic")
    tried = [{"rows": a, "picked": 5, "others": b, "taken": 7} for a, b in ((59, 61), (60, 700), (700, 60))]
    check(model, data, tried)
    feeds = feeds_for(data, tried[0])
    assert "4 kernels (2 distinct)" in str(model.explain(feeds))
    with pytest.raises(tl.RunError, match=r"`size\.others`\.\.`size\.others`"):
        model.run(feeds | {"j": np.full(7, 70)})


def test_kernels_for_sizes_that_are_far_apart_have_schedules_of_their_own() -> None:
    data = two_of_one_kind(10)
    model = tl.compile(data, threads=1, sizes="symbolic")
    far = {"rows": 60, "picked": 5, "others": 700, "taken": 70}
    check(model, data, [far])
    assert "4 kernels (4 distinct)" in str(model.explain(feeds_for(data, far)))


def test_profiles_memory_and_prepared_runs_are_those_of_the_sizes_at_hand() -> None:
    data = perceptron()
    model = tl.compile(data, threads=1, sizes="symbolic")
    for batch in (4, 9):
        feeds = feeds_for(data, {"batch": batch})
        expected = model.run(feeds)
        (name, result), *_ = expected.items()
        np.testing.assert_array_equal(model.prepared(feeds)()[name], result)
        assert [kernel.seconds >= 0 for kernel in model.profile(feeds)]
        assert f"x [{batch}, 12]" in model.explain(feeds)
    with pytest.raises(CompileError, match="C0105"):
        tl.compile(data, sizes="dynamic")  # type: ignore[arg-type]


def filtered(*spatial: Any) -> bytes:
    """A convolution that is worth minimal filtering, with something done to its result."""
    n = Net()
    made = n.op("Relu", n.op("Conv", "x", n.weight(32, 32, 3, 3), n.weight(32), pads=[1, 1, 1, 1]))
    return n.model({"x": ["batch", 32, *spatial]}, n.op("Add", made, "x"))


@pytest.mark.parametrize(
    ("spatial", "tried"),
    [
        ((14, 14), combinations(batch=[2, 1, 3, 0, 7])),
        (("height", "width"), combinations(batch=[2, 1], height=[14, 1, 13, 23], width=[12, 5, 17])),
    ],
    ids=["any batch", "any image"],
)
def test_convolutions_of_open_sizes_are_computed_by_minimal_filtering(
    spatial: tuple[Any, ...], tried: list[dict[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    data = filtered(*spatial)
    model = tl.compile(data, threads=1, sizes="symbolic")
    with caplog.at_level(logging.INFO, "tensorlang.compile"):
        check(model, data, tried)
    assert len(compilations(caplog)) == 1
    assert "schedule role transformed" in model.explain(feeds_for(data, tried[0]))


def test_open_batches_are_computed_as_known_ones_bit_by_bit() -> None:
    """What is scheduled for samples of open sizes takes the same steps as what is scheduled for known ones."""
    data = filtered(14, 14)
    opened = tl.compile(data, threads=1, sizes="symbolic")
    for batch in (1, 8):
        feeds = feeds_for(data, {"batch": batch}, batch)
        known = tl.compile(data, threads=1, sizes="static").run(feeds)
        for mine, theirs in zip(opened.run(feeds).values(), known.values(), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_shapes_that_contradict_each_other_are_one_error_in_the_names_of_the_model() -> None:
    n = Net()
    data = n.model({"x": ["rows", 4]}, n.op("Add", "x", n.op("Concat", "x", n.weight(1, 4), axis=0)))
    with pytest.raises(CompileError, match="O012") as refused:
        tl.compile(data, threads=1, sizes="symbolic").run({"x": np.ones((3, 4), np.float32)})
    assert "f32[rows + 1, 4]" in str(refused.value) and "size." not in str(refused.value)


def branched() -> bytes:
    """Two steps of a decoder in one model, as exporters merge them: what the first makes anew, `past`, the second is given, and both say
    `rows` of it and of `x`."""
    n = Net()
    first, second = (
        helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])
        for name, node in (
            ("first", helper.make_node("Relu", ["x"], ["first"])),
            ("second", helper.make_node("MatMul", ["past", "x"], ["second"])),
        )
    )
    y = n.op("If", "cached", then_branch=second, else_branch=first)
    types = {"cached": TensorProto.BOOL}
    return n.model({"x": ["rows", 4], "past": [2, "rows"], "cached": [1]}, y, types=types)


def test_a_name_may_stand_for_two_sizes_in_a_run_that_does_not_need_them_to_be_equal() -> None:
    data = branched()
    model, session = tl.compile(data, threads=1), onnxruntime.InferenceSession(data)
    rng = np.random.default_rng(0)
    for rows, past, cached in ((5, 1, False), (8, 0, False), (6, 6, True)):
        feeds = {"x": rng.standard_normal((rows, 4), np.float32), "past": np.ones((2, past), np.float32), "cached": np.array([cached])}
        np.testing.assert_allclose(model.run(feeds)["v0"], session.run(None, feeds)[0], rtol=1e-5)
    with pytest.raises(CompileError, match=r"(?s)O012.*`past`: f32\[2, 5\], `x`: f32\[6, 4\]"):
        model.run({**feeds, "past": np.ones((2, 5), np.float32)})


def test_scratch_memory_is_as_large_as_sizes_need_it_not_as_limits_of_theirs() -> None:
    n = Net()
    best = n.op("ArgMax", "x", axis=0, keepdims=0)
    later = n.op("Softmax", n.op("Slice", "x", n.ints(1), n.ints(2**40), n.ints(0)), axis=0)
    data = n.model({"x": ["rows", "columns"]}, best, later, types={best: TensorProto.INT64})
    model = tl.compile(data, threads=1, sizes="symbolic")
    check(model, data, combinations(rows=[12, 5], columns=[7, 30]))
    assert model.memory.arena_bytes < 1 << 16


def test_all_combinations_of_sizes_share_one_arena_which_a_clone_has_of_its_own() -> None:
    n = Net()
    data = n.model({"x": ["rows", 64]}, n.op("Softmax", n.op("MatMul", n.op("Softmax", "x", axis=0), n.weight(64, 64)), axis=0))
    model = tl.compile(data, threads=1, sizes="symbolic")
    found = {rows: model.run({"x": np.full((rows, 64), 0.5, np.float32)}) for rows in (3, 40)}
    most = model.memory.arena_bytes
    check(model, data, combinations(rows=[7, 40, 3]))
    assert 0 < most == model.memory.arena_bytes
    clone = model.clone()
    for rows, results in found.items():
        for name, result in clone.run({"x": np.full((rows, 64), 0.5, np.float32)}).items():
            np.testing.assert_array_equal(result, results[name])
    assert clone.memory.arena_bytes == most
