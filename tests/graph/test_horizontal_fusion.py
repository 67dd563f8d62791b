"""Abreast: contractions that read the same are one where that pays, and what reads their results reads parts of its memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tensorlang as tl
from stdlib.onnx.importer import Importer
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.open_sizes import built_parts, open_executable
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.nodes import Graph, Kernel, Part
from tensorlang.graph.options import Options
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.programs import is_contraction
from tensorlang.graph.sizes import Symbols
from tensorlang.policy.cpu.horizontal_fusion import is_profitable, product_cycles
from tensorlang.policy.machine import Machine
from tensorlang.runtime.constants import in_memory
from tensorlang.runtime.protocol import quiet
from tensorlang.tensor.nodes import Program

RNG = np.random.default_rng(17)
Array = np.ndarray


def model(nodes: list, weights: dict[str, Array], shape: Sequence[int], outputs: Sequence[str] = ("y",)) -> ModelProto:
    returned = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    return helper.make_model(helper.make_graph(nodes, "g", given, returned, stored), opset_imports=[helper.make_opsetid("", 18)])


def heads(rows: int, columns: Sequence[int]) -> tuple[ModelProto, list[tuple[Array, Array]]]:
    """Return tanh(x @ w + b) for several w, each an output."""
    pairs = [(RNG.standard_normal((32, n), np.float32), RNG.standard_normal(n).astype(np.float32)) for n in columns]
    nodes, weights = [], {}
    for k, (w, b) in enumerate(pairs):
        weights |= {f"w{k}": w, f"b{k}": b}
        nodes += [helper.make_node("MatMul", ["x", f"w{k}"], [f"p{k}"]), helper.make_node("Add", [f"p{k}", f"b{k}"], [f"s{k}"])]
        nodes += [helper.make_node("Softmax", [f"s{k}"], [f"y{k}"])]
    return model(nodes, weights, (1, rows, 32), [f"y{k}" for k in range(len(pairs))]), pairs


def branches(counts: Sequence[int]) -> tuple[ModelProto, list[Array]]:
    """Return a global maximum of relu(conv(x, w)) for several w of 1 x 1, each an output."""
    kernels = [RNG.standard_normal((n, 24, 1, 1), np.float32) for n in counts]
    nodes = []
    for k in range(len(counts)):
        nodes += [helper.make_node("Conv", ["x", f"w{k}"], [f"c{k}"]), helper.make_node("Relu", [f"c{k}"], [f"r{k}"])]
        nodes += [helper.make_node("MaxPool", [f"r{k}"], [f"y{k}"], kernel_shape=[3, 3])]
    return model(nodes, {f"w{k}": w for k, w in enumerate(kernels)}, (1, 24, 9, 9), [f"y{k}" for k in range(len(counts))]), kernels


def always(apart: Sequence[Program], together: Program) -> bool:
    return True


def contractions(graph: Graph) -> int:
    return sum(isinstance(n, Kernel) and is_contraction(n.program) for n in graph.nodes)


def parts(graph: Graph) -> int:
    return sum(isinstance(n, Part) for n in graph.nodes)


def compared(m: ModelProto) -> tuple[Graph, list[Array]]:
    """Return the graph with contractions put together, and what it computes, which is what it computes with them apart."""
    tools = toolchain(threads=1)
    x = RNG.standard_normal([d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim]).astype(np.float32)
    apart, together = (
        optimise(Importer().load(m), Options(tools.preferred_layouts, is_fusion_profitable=p)) for p in (lambda a, t: False, always)
    )
    want, got = build(apart, tools)([x]), build(together, tools)([x])
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return together, [x, *got]


def test_products_of_one_shape_lie_one_after_another_along_an_axis_of_their_own() -> None:
    m, pairs = heads(8, (48, 48, 48))
    graph, [x, *got] = compared(m)
    assert (contractions(graph), parts(graph)) == (1, 3)
    for y, (w, b) in zip(got, pairs, strict=True):
        e = np.exp(x @ w + b - (x @ w + b).max(-1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_products_of_as_many_rows_as_come_lie_one_after_another() -> None:
    m, _ = heads(8, (48, 48, 48))
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "rows"
    known, asked = Symbols({"size.rows": 8}), list[Program]()

    def noted(apart: Sequence[Program], together: Program) -> bool:
        asked.extend((*apart, together))
        return True

    loaded = Importer().load(m, {"x": (1, known.symbol("size.rows"), 32)})
    tools = toolchain(threads=1)
    graph = optimise(loaded, Options(tools.preferred_layouts, is_fusion_profitable=noted))
    assert (contractions(graph), parts(graph)) == (1, 3)
    assert asked and not any(p.sizes for p in asked)
    made = open_executable(built_parts(graph, tools, quiet, loaded.outputs, in_memory), tools)
    for rows in (0, 1, 8, 13):
        x = RNG.standard_normal((1, rows, 32)).astype(np.float32)
        for name, want in tl.compile(m, threads=1, sizes="static").run({"x": x}).items():
            np.testing.assert_allclose(made.at({"size.rows": rows}).run({"x": x})[name], want, rtol=1e-5, atol=1e-5)


def test_convolutions_of_one_image_are_put_together_along_their_channels() -> None:
    m, kernels = branches((32, 16, 48))
    graph, [x, *got] = compared(m)
    assert (contractions(graph), parts(graph)) == (1, 3)
    for y, w in zip(got, kernels, strict=True):
        r = np.maximum(np.einsum("fc,nchw->nfhw", w[:, :, 0, 0], x), 0)
        windows = np.lib.stride_tricks.sliding_window_view(r, (3, 3), (2, 3))
        np.testing.assert_allclose(y, windows.max((4, 5)), rtol=1e-4, atol=1e-5)


def test_products_of_several_shapes_of_several_rows_stay_apart() -> None:
    m, _ = heads(8, (48, 32))
    graph, _ = compared(m)
    assert contractions(graph) == 2


def test_what_the_graph_returns_and_what_is_concatenated_next_has_its_place_already() -> None:
    weights = {name: RNG.standard_normal((16, 24, 1, 1), np.float32) for name in "uvw"}
    nodes = [helper.make_node("Conv", ["x", name], [f"{name}c"]) for name in "uvw"]
    nodes += [helper.make_node("Concat", ["uc", "vc"], ["cat"], axis=1), helper.make_node("MaxPool", ["cat"], ["y"], kernel_shape=[2, 2])]
    graph, _ = compared(model(nodes, weights, (1, 24, 6, 6), ["y", "wc"]))
    assert contractions(graph) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_it_pays_where_columns_fill_a_register_tile_together_and_not_where_they_do_already(threads: int) -> None:
    machine = Machine(target="cpu", threads=threads)

    def asked(counts: Sequence[int]) -> bool:
        found: list[bool] = []

        def note(apart: Sequence[Program], together: Program) -> bool:
            found.append(is_profitable(apart, together, machine))
            return found[-1]

        optimise(Importer().load(branches(counts)[0]), Options(is_fusion_profitable=note))
        [answer] = found
        return answer

    assert asked((16, 16, 16))
    assert not asked((192, 192)) or threads > 1


def test_cycles_are_told_of_products_alone() -> None:
    m, _ = heads(8, (48, 48))
    kernels = [n.program for n in optimise(Importer().load(m)).nodes if isinstance(n, Kernel)]
    assert [product_cycles(p, Machine(target="cpu")) is not None for p in kernels] == [is_contraction(p) for p in kernels]
