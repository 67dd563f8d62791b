"""Samples: kernels whose values of a batch exceed the cache run for one sample after the other, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from small_graphs import SUM, at, binary, conv1x1, graph, kernel, matmul, run, single, softmax, tensor, unary

from polyhedral.expr import Add, Expr, Floor, Int, Mod, Name, Scale
from stdlib.onnx.importer import Importer
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.nodes import Graph, Join, Kernel, Node, Part, Value, View
from tensorlang.graph.options import Options
from tensorlang.graph.passes.memory.batch_tiling import batch_tiling, for_one_sample
from tensorlang.graph.passes.memory.copy_outputs import copy_outputs
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.plan import Input, Output, planned
from tensorlang.graph.verify import verify
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Binary, Binder, Program, Reduce
from tensorlang.tensor.winograd import by_filtering, convolution

NEAR = 64


def stages(count: int) -> Graph:
    """Return x -> exp -> + x -> relu, over `count` samples of 16 x 4."""
    box = (count, 16, 4)
    nodes: list[Node] = [kernel(unary("exp", *box), "x", "t"), kernel(binary("+", *box), "t x", "s"), kernel(unary("relu", *box), "s", "y")]
    return graph({"x": box}, nodes, ["y"])


def kernels(g: Graph) -> list[Kernel]:
    return [n for n in g.nodes if isinstance(n, Kernel)]


# ---- what a chain becomes


def test_each_sample_goes_through_the_whole_chain_before_the_next_one_starts() -> None:
    after = verify(batch_tiling(stages(3), NEAR))
    assert [k.program.name for k in kernels(after)] == ["exp", "add", "relu"] * 3
    assert len({k.program for k in kernels(after)}) == 3
    assert [type(n) for n in after.nodes].count(Part) == 3
    assert [type(n) for n in after.nodes].count(Join) == 1


def test_samples_share_the_memory_of_what_lies_between() -> None:
    plan = planned(copy_outputs(batch_tiling(stages(8), NEAR)))
    one = 16 * 4 * 4
    assert plan.arena_bytes == 2 * one
    assert [plan.places[f"x {k}"] for k in range(8)] == [Input(0, k * one) for k in range(8)]
    assert [plan.places[f"y {k}"] for k in range(8)] == [Output(0, k * one) for k in range(8)]


@given(st.integers(2, 5), st.integers(0, 1))
def test_a_chain_computes_what_it_did(count: int, seed: int) -> None:
    before = stages(count)
    x = np.random.default_rng(seed).standard_normal((count, 16, 4), np.float32)
    [want], [got] = run(before, {"x": x}).values(), run(batch_tiling(before, NEAR), {"x": x}).values()
    assert want.tobytes() == got.tobytes()


def test_what_is_read_inside_and_outside_a_chain_is_joined_and_read_in_parts() -> None:
    before = stages(4)
    before = graph({"x": (4, 16, 4)}, list(before.nodes), ["t", "y"])
    after = verify(copy_outputs(batch_tiling(before, NEAR)))
    x = np.random.default_rng(0).standard_normal((4, 16, 4), np.float32)
    for want, got in zip(run(before, {"x": x}).values(), run(after, {"x": x}).values(), strict=True):
        assert want.tobytes() == got.tobytes()


def test_a_chain_ends_where_all_samples_are_read() -> None:
    box = (4, 16, 4)
    across = single("across", [tensor("x", *box)], tensor("y", *box), "ijk", at("x", Add(Int(3), Name("i")), "j", "k"))
    turned = single("turned", [tensor("x", 16, 4)], tensor("y", 16, 4), "jk", at("x", "j", "k"))
    assert for_one_sample(across) is None
    assert for_one_sample(turned) is not None
    assert for_one_sample(turned, frozenset({"x"})) is None


def test_a_batch_that_fits_the_cache_stays_together() -> None:
    before = stages(4)
    assert batch_tiling(before, 1 << 20).nodes == before.nodes
    assert batch_tiling(before, 0) is before


def test_kernels_whose_weights_outweigh_a_sample_stay_together() -> None:
    nodes: list[Node] = [kernel(conv1x1(4, 16, 64, 4), "x w b", "t"), kernel(conv1x1(4, 64, 16, 4), "t u c", "y")]
    weights = {"w": np.ones((64, 16), np.float32), "u": np.ones((16, 64), np.float32)}
    weights |= {"b": np.ones(64, np.float32), "c": np.ones(16, np.float32)}
    before = graph({"x": (4, 16, 4)}, nodes, ["y"], weights)
    assert len(kernels(batch_tiling(before, 256))) == 2
    larger = graph(
        {"x": (4, 16, 64)}, [kernel(conv1x1(4, 16, 64, 64), "x w b", "t"), kernel(conv1x1(4, 64, 16, 64), "t u c", "y")], ["y"], weights
    )
    assert len(kernels(batch_tiling(larger, 256))) == 8


def test_a_single_kernel_finds_nothing_in_the_cache() -> None:
    before = graph({"x": (4, 16, 4)}, [kernel(unary("exp", 4, 16, 4), "x", "y")], ["y"])
    assert batch_tiling(before, NEAR).nodes == before.nodes


def test_views_that_keep_the_batch_are_part_of_a_chain() -> None:
    first = kernel(unary("exp", 4, 16, 4), "x", "t")
    last = kernel(unary("relu", 4, 64), "flat", "y")
    before = graph({"x": (4, 16, 4)}, [first, View("->4x64", "t", "flat"), last], ["y"])
    after = verify(batch_tiling(before, NEAR))
    x = np.random.default_rng(0).standard_normal((4, 16, 4), np.float32)
    [want], [got] = run(before, {"x": x}).values(), run(after, {"x": x}).values()
    assert want.tobytes() == got.tobytes()
    assert len(kernels(after)) == 8


# ---- which programs have samples


def test_rows_of_a_product_are_samples_of_their_own_and_columns_are_not() -> None:
    found = for_one_sample(matmul(4, 5, 6), frozenset({"b"}))
    assert found is not None
    assert found.names == {"a", "y"}
    assert [p.shape[0] for p in found.program.params] == [Int(1), Int(6)]


def test_a_softmax_has_samples_through_all_its_definitions() -> None:
    found = for_one_sample(softmax(4, 5))
    assert found is not None
    assert {d.tensors[0].shape[0] for d in found.program.definitions} == {Int(1)}


def test_what_reads_another_sample_has_none() -> None:
    pairs = single("pairs", [tensor("x", 4, 4)], tensor("y", 4, 4), "ij", Binary("+", at("x", "i", "j"), at("x", "j", "i")))
    assert for_one_sample(pairs) is None


def test_a_filtered_convolution_has_samples() -> None:
    convolved = conv(4, 3, 5, 8)
    plain = convolution(convolved)
    assert plain is not None
    for program in (convolved, by_filtering(plain, (2, 2))):
        found = for_one_sample(program, frozenset({"w"}))
        assert found is not None and found.names == {"x", "y"} and found.count == 4


def conv(n: int, c: int, f: int, w: int) -> Program:
    body = Binary("*", at("x", "n", "c", Add(Name("i"), Name("r")), Add(Name("j"), Name("s"))), at("w", "f", "c", "r", "s"))
    binders = tuple(Binder(name, Int(0), Int(extent)) for name, extent in (("c", c), ("r", 3), ("s", 3)))
    params = [tensor("x", n, c, w, w), tensor("w", f, c, 3, 3)]
    return single("conv", params, tensor("y", n, f, w - 2, w - 2), "nfij", Reduce(SUM, binders, (body,)))


# ---- layouts


def test_samples_of_values_in_blocks_keep_their_layout() -> None:
    blocked = Layout(("d0", "d1", "d2"), (Name("d0"), Floor(Name("d1"), 8), Name("d2"), Mod(Name("d1"), 8)), (4, 2, 4, 8))
    before = stages(4)
    values = {name: Value(v.name, v.dtype, v.shape, blocked if name in "ts" else None) for name, v in before.values.items()}
    after = verify(batch_tiling(Graph("g", before.inputs, before.outputs, values, {}, before.nodes), NEAR))
    assert after.values["t 2"].layout == Layout(blocked.axes, blocked.dims, (1, 2, 4, 8))


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        pytest.param((Name("d1"), Name("d0"), Name("d2")), (16, 4, 4), id="between each other"),
        pytest.param((Add(Int(3), Scale(-1, Name("d0"))), Name("d1"), Name("d2")), (4, 16, 4), id="the last one first"),
    ],
)
def test_values_whose_samples_do_not_follow_each_other_stay_whole(dims: tuple[Expr, ...], shape: tuple[int, ...]) -> None:
    across = Layout(("d0", "d1", "d2"), dims, shape)
    before = stages(4)
    values = {name: Value(v.name, v.dtype, v.shape, across if name == "t" else None) for name, v in before.values.items()}
    after = batch_tiling(Graph("g", before.inputs, before.outputs, values, {}, before.nodes), NEAR)
    assert len(kernels(after)) == 3


# ---- compiled


def test_a_compiled_model_computes_the_same_with_its_samples_apart_and_writes_what_is_concatenated_in_its_place() -> None:
    """Two branches of a batch of four, concatenated along channels: for one sample those lie one after the other."""
    rng = np.random.default_rng(7)
    weights = {name: rng.standard_normal((32, 32, 1, 1), np.float32) / 6 for name in "uvw"}
    nodes = [
        helper.make_node("Conv", ["x", "u"], ["a"]),
        helper.make_node("Relu", ["a"], ["s"]),
        helper.make_node("Conv", ["s", "v"], ["b"]),
        helper.make_node("Conv", ["s", "w"], ["c"]),
        helper.make_node("Concat", ["b", "c"], ["d"], axis=1),
        helper.make_node("Relu", ["d"], ["t"]),
        helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 32, 48, 48))]
    returned = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = helper.make_model(helper.make_graph(nodes, "g", given, returned, stored), opset_imports=[helper.make_opsetid("", 18)])
    tools = toolchain(threads=1)
    x = rng.standard_normal((4, 32, 48, 48), np.float32)
    results = []
    for near in (0, 1 << 18):
        found = optimise(Importer().load(model), Options(tools.preferred_layouts, near_bytes=near))
        assert any(isinstance(n, Part) for n in found.nodes) == bool(near)
        results.append(build(found, tools)([x])[0])
        assert sum(isinstance(n, Join) for n in found.nodes) >= (4 if near else 0)
    assert results[0].tobytes() == results[1].tobytes()
    a = np.maximum(np.einsum("fc,nchw->nfhw", weights["u"][:, :, 0, 0], x), 0)
    both = np.concatenate([np.einsum("fc,nchw->nfhw", weights[k][:, :, 0, 0], a) for k in "vw"], 1)
    want = np.maximum(both, 0).reshape(4, 64, 24, 2, 24, 2).max((3, 5))
    np.testing.assert_allclose(results[1], want, rtol=1e-4, atol=1e-4)
