"""Finish: a product and the normalisation of its rows are one kernel where that pays; a block of rows is all of it that is stored."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tensorlang as tl
from stdlib.onnx.importer import Importer
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.driver import machine_of
from tensorlang.backends.cpu.explain import explained
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.options import Options
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.programs import finishes_rows
from tensorlang.policy.cpu.row_epilogues import is_row_epilogue_profitable, rows_at_once
from tensorlang.policy.machine import Machine
from tensorlang.tensor.nodes import Program

RNG = np.random.default_rng(23)
EPSILON = 1e-5


def projected(rows: int, depth: int, columns: int, normalise: str = "LayerNormalization", returned: tuple[str, ...] = ("y",)) -> ModelProto:
    """Return layer_norm(x @ w + b + r), or the softmax of that."""
    weights = {"w": RNG.standard_normal((depth, columns), np.float32) / np.float32(np.sqrt(depth))}
    weights |= {name: RNG.standard_normal(columns).astype(np.float32) for name in "bgo"}
    last = ["s", "g", "o"] if normalise == "LayerNormalization" else ["s"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Add", ["q", "r"], ["s"]),
        helper.make_node(normalise, last, ["y"], axis=-1),
    ]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, rows, k)) for n, k in (("x", depth), ("r", columns))]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in returned]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", given, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def kernels(graph: Graph) -> list[Kernel]:
    return [n for n in graph.nodes if isinstance(n, Kernel)]


def joined(model: ModelProto, *, always: bool = True) -> Graph:
    return optimise(
        Importer().load(model), Options(toolchain(threads=1).preferred_layouts, is_epilogue_profitable=lambda product, rows: always)
    )


@pytest.mark.parametrize(("rows", "depth", "columns"), [(24, 40, 48), (13, 33, 50), (300, 20, 1000)])
@pytest.mark.parametrize("normalise", ["LayerNormalization", "Softmax"])
def test_one_kernel_computes_what_two_did(rows: int, depth: int, columns: int, normalise: str) -> None:
    model = projected(rows, depth, columns, normalise)
    x, r = RNG.standard_normal((1, rows, depth), np.float32), RNG.standard_normal((1, rows, columns), np.float32)
    tools = toolchain(threads=1)
    one, two = joined(model), joined(model, always=False)
    assert (len(kernels(one)), len(kernels(two))) == (1, 2)
    [got], [want] = build(one, tools)([x, r]), build(two, tools)([x, r])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_only_a_block_of_rows_of_the_product_is_stored() -> None:
    """A quarter of a megabyte holds 65 of the 4000 bytes of a row, so that 300 rows are five blocks of 60; other caches hold others."""
    tools = toolchain(threads=1)
    made = build(joined(projected(300, 20, 1000)), tools)
    [artifact] = made.artifacts
    rows = rows_at_once(300, 4000, machine_of(tools.target, 1), shared=False)
    assert rows == 60 or tools.target.caches.l2_bytes != Machine(target="cpu").l2_bytes
    assert f"by {rows} -> ib, it" in artifact.schedule and "at y.ib" in artifact.schedule
    lengths = re.findall(rf"f32\[{rows}, (\d+)\]", artifact.loops)  # rows begin where cache lines do
    assert lengths and all(1000 <= int(n) < 1100 for n in lengths)
    assert "p.block >= 1" in explained(made, None)


def test_what_others_read_and_what_is_returned_is_stored_whole() -> None:
    assert len(kernels(joined(projected(24, 40, 48, returned=("y", "s"))))) == 2


def test_a_kernel_that_reads_another_row_finishes_no_rows() -> None:
    text = "op f(x: f32[M, N]) -> (y: f32[M, N]) {\n    m[i] = max(k) x[i, k]\n    y[i, j] = x[i, j] - m[i] - x[%s, j]\n}"
    asked = [tl.parse(text % row).f.program(np.zeros((8, 8), np.float32)) for row in ("i", "0")]
    assert [finishes_rows(program, "x") for program in asked] == [True, False]


def test_a_few_rows_stay_apart() -> None:
    made = build(joined(projected(4, 40, 48)), toolchain(threads=1))
    assert "ib" not in made.artifacts[0].schedule


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "threads", "answer"),
    [
        (1024, 256, 256, 1, True),  # the rows exceed the cache, the weights do not
        (512, 128, 128, 2, True),  # threads would have to meet once more
        (128, 768, 768, 1, False),  # the weights come from far away, for each block of rows
        (197, 768, 768, 2, False),
    ],
)
def test_it_is_worth_it_where_weights_are_near(rows: int, depth: int, columns: int, threads: int, answer: bool) -> None:
    asked: list[bool] = []

    def note(product: Program, finishing: Program) -> bool:
        asked.append(is_row_epilogue_profitable(product, finishing, Machine(target="cpu", threads=threads)))
        return False

    optimise(Importer().load(projected(rows, depth, columns)), Options(is_epilogue_profitable=note))
    assert asked == [answer]


def test_blocks_are_of_about_one_size_and_there_are_as_many_for_each_thread() -> None:
    one, two = Machine(target="cpu", threads=1), Machine(target="cpu", threads=2)
    assert rows_at_once(128, 4 * 384, one, shared=True) == 128
    assert rows_at_once(128, 4 * 384, two, shared=True) == 64
    assert rows_at_once(197, 4 * 768, two, shared=True) == 52
    assert rows_at_once(8, 4 * 768, two, shared=True) == 0
    assert rows_at_once(0, 4 * 768, one, shared=False) == 0
