"""Convolutions of models by minimal filtering: which are rewritten, and that what is compiled computes the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from bits import assert_same_bits
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from codegen.dtypes import f32
from stdlib.onnx import Importer
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.executable import Executable
from tensorlang.backends.cpu.toolchain import Toolchain, toolchain
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.options import Options
from tensorlang.graph.parser import parse
from tensorlang.graph.passes.algebra.winograd import Tiles, winograd
from tensorlang.graph.pipeline import PREPARED, optimise
from tensorlang.graph.printer import constants_of, show
from tensorlang.graph.sizes import Symbols
from tensorlang.graph.verify import verify
from tensorlang.policy.cpu.winograd import blocks
from tensorlang.policy.cpu.winograd_cost import tiles
from tensorlang.policy.machine import Machine
from tensorlang.tensor.walk import definition_reads
from tensorlang.tensor.winograd import Convolution, convolution

RNG = np.random.default_rng(11)


def block(channels: int, filters: int, h: int, w: int, *, taps: int = 3, group: int = 1, batch: int = 1) -> onnx.ModelProto:
    """Return relu(conv(relu(x * s)) + skip): a convolution with something fused on both of its sides."""
    pad = taps // 2
    weights = {
        "k": RNG.standard_normal((filters, channels // group, taps, taps)).astype(np.float32) / np.sqrt(channels * taps**2),
        "b": RNG.standard_normal(filters).astype(np.float32),
        "p": RNG.standard_normal((filters, channels, 1, 1)).astype(np.float32) / np.sqrt(channels),
    }
    nodes = [
        helper.make_node("Conv", ["x", "k", "b"], ["c"], pads=[pad] * 4, group=group),
        helper.make_node("Conv", ["x", "p"], ["skip"]),
        helper.make_node("Add", ["c", "skip"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    shape = [batch, channels, h, w]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def ran(model: onnx.ModelProto, outputs: int | None, threads: int = 1) -> tuple[np.ndarray[Any, Any], Graph]:
    tools: Toolchain = toolchain(threads=threads)
    chosen = lambda found: (outputs,) * len(found.windows) if outputs else None  # noqa: E731
    graph = optimise(Importer().load(model), Options(tools.preferred_layouts, tiles=chosen))
    x = np.random.default_rng(3).standard_normal(graph.values["x"].shape).astype(np.float32)
    [y] = build(graph, tools)([x])
    return y, graph


def rewritten(graph: Graph) -> list[Kernel]:
    return [node for node in graph.nodes if isinstance(node, Kernel) and node.program.mode == "fast"]


@pytest.mark.parametrize(
    ("model", "outputs", "threads"),
    [
        (block(32, 32, 14, 14), 4, 1),
        (block(32, 48, 13, 11), 4, 2),
        (block(24, 20, 9, 10), 2, 1),
        (block(32, 64, 10, 7, group=2, batch=2), 2, 2),
        (block(16, 16, 12, 12, taps=5), 2, 1),
        (block(160, 512, 8, 8), 2, 2),
    ],
    ids=["whole tiles", "rests of tiles, two threads", "rests of vectors", "groups and a batch", "5 x 5", "columns shared"],
)
def test_a_rewritten_convolution_computes_the_same_natively(model: onnx.ModelProto, outputs: int, threads: int) -> None:
    plain, _ = ran(model, None)
    found, graph = ran(model, outputs, threads)
    assert len(rewritten(graph)) == 1
    # F(4, 3) and F(2, 5) lose about three bits of the 24 that a sum has; the sums here are of order one.
    np.testing.assert_allclose(found, plain, atol=4e-5)


def alone(weights: np.ndarray[Any, Any], size: int, outputs: int) -> Executable:
    """Return a convolution of an image with zeros around it, rewritten."""
    _, channels, taps, _ = weights.shape
    node = helper.make_node("Conv", ["x", "k"], ["y"], pads=[taps // 2] * 4)
    values = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph([node], "conv", *values, [numpy_helper.from_array(weights, "k")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    made = optimise(Importer().load(model), Options(toolchain(threads=1).preferred_layouts, tiles=lambda found: (outputs, outputs)))
    assert len(rewritten(made)) == 1
    return build(made, toolchain(threads=1))


def plain(x: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the sums of a convolution in f64."""
    taps = weights.shape[-1]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(taps // 2, taps // 2)] * 2])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), axis=(2, 3))
    return np.einsum("nchwrs,fcrs->nfhw", windows, weights.astype(np.float64))


def drawn(filters: int, channels: int, taps: int) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(5).standard_normal((filters, channels, taps, taps)) / 17).astype(np.float32)


@pytest.mark.parametrize("exponent", [-60, 100, 119])
def test_results_scale_with_inputs_exactly(exponent: int) -> None:
    """Sums of weights are below 2^5 here and inputs below 2^3, so results of inputs scaled by 2^119 are below 2^127."""
    weights = drawn(32, 32, 3)
    assert np.abs(weights).sum(axis=(1, 2, 3)).max() < 2**5
    run = alone(weights, 14, 4)
    x = np.random.default_rng(3).standard_normal((1, 32, 14, 14)).astype(np.float32)
    [before], [scaled] = run([x]), run([np.ldexp(x, exponent)])
    assert_same_bits(scaled, np.ldexp(before, exponent))


@pytest.mark.parametrize(("outputs", "taps"), [(4, 3), (2, 3), (2, 5)])
@pytest.mark.parametrize("value", [1e38, -3.4e38], ids=["1e38", "the largest"])
def test_one_huge_input_leaves_results_finite(value: float, outputs: int, taps: int) -> None:
    weights = drawn(32, 32, taps)
    x = np.random.default_rng(3).standard_normal((1, 32, 14, 14)).astype(np.float32)
    x[0, 5, 6, 7] = value
    wanted = plain(x, weights)
    [found] = alone(weights, 14, outputs)([x])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=4e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(("outputs", "taps"), [(4, 3), (2, 3), (2, 5)])
@pytest.mark.parametrize("signs", [False, True])
def test_wherever_plain_sums_cannot_overflow_nothing_does(outputs: int, taps: int, signs: bool) -> None:
    """Inputs are all 5e37, or all nearly the largest number, of both signs, and S keeps the bound of plain sums below 2^128."""
    largest = np.float32(3.4e38 if signs else 5e37)
    weights = drawn(32, 32, taps)
    weights *= np.float32(0.99 * 2.0**128 / largest) / np.abs(weights).sum(axis=(1, 2, 3)).max()
    x = np.full((1, 32, 14, 14), largest)
    if signs:
        x[np.random.default_rng(7).random(x.shape) < 0.5] *= -1
    wanted = plain(x, weights)
    [found] = alone(weights, 14, outputs)([x])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_weights_are_transformed_once_and_take_the_place_of_the_others() -> None:
    graph = optimise(Importer().load(block(32, 32, 14, 14)), Options(tiles=lambda found: (4, 4)))
    [kernel] = rewritten(graph)
    shapes = sorted(a.shape for a in graph.constants.values())
    assert (32, 32, 6, 6) in shapes and (32, 32, 3, 3) not in shapes
    assert "transformed" in next(v for v in kernel.inputs if v in graph.constants and graph.values[v].shape == (32, 32, 6, 6))


def test_an_image_whose_channels_are_last_is_read_by_tiles_where_it_lies() -> None:
    model = block(32, 32, 14, 14)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Transpose", ["image"], ["x"], perm=[0, 3, 1, 2]))
    model.graph.node.append(helper.make_node("Conv", ["x", "k", "b"], ["y"], pads=[1] * 4))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 14, 14, 32]))
    graph = optimise(Importer().load(model), Options(tiles=lambda found: (4, 4)))
    [kernel] = rewritten(graph)
    assert "image" in kernel.inputs
    image = np.random.default_rng(3).standard_normal((1, 14, 14, 32)).astype(np.float32)
    [found] = build(graph, toolchain(threads=1))([image])
    np.testing.assert_allclose(found, tl.compile(model, threads=1, winograd=False).run({"image": image})["y"], atol=4e-5)


def test_weights_that_are_no_constants_are_left_alone() -> None:
    graph = optimise(Importer().load(block(32, 32, 14, 14)))
    open_ = replace(graph, inputs=(*graph.inputs, *graph.constants), constants={})
    assert winograd(open_, lambda found: (4, 4)).nodes == open_.nodes


def of_any_image(rows: int, tiles: Tiles) -> Graph:
    """Return a block for images of any size, whose sample has so many rows and one more column."""
    symbols = Symbols({"size.h": rows, "size.w": rows + 1})
    model = block(16, 16, 5, 5)
    for name, value in (("hw", model.graph.input[0]), ("pq", model.graph.output[0])):
        for dim, symbol in zip(value.type.tensor_type.shape.dim[2:], name, strict=False):
            dim.dim_param = symbol
    loaded = Importer().load(model, {"x": (1, 16, symbols.symbol("size.h"), symbols.symbol("size.w"))})
    return optimise(loaded, Options(toolchain(threads=1).preferred_layouts, tiles=tiles))


def of_large_images(found: Convolution) -> tuple[int, int] | None:
    return (4, 4) if min(w.extent for w in found.windows) > 8 else None


@pytest.mark.parametrize(("rows", "main", "other"), [(28, (6, 6), {"size.h": 3, "size.w": 3}), (2, (3, 3), {"size.h": 16, "size.w": 24})])
def test_a_convolution_of_any_image_keeps_the_form_for_others(rows: int, main: tuple[int, int], other: dict[str, int]) -> None:
    graph = of_any_image(rows, of_large_images)
    [kernel] = [node for node in graph.nodes if isinstance(node, Kernel) and node.forms]
    [form] = kernel.forms
    read = {name for d in kernel.program.definitions for name in definition_reads(d)}
    weights = {p.name in read: graph.values[kernel.bound[p.name]].shape[2:] for p in kernel.program.params if p.name.startswith("w")}
    assert weights == {True: main, False: {(6, 6): (3, 3), (3, 3): (6, 6)}[main]}
    assert dict(form.at) == other
    again = verify(parse(show(graph), constants_of(graph)))
    assert [dict(f.at) for n in again.nodes if isinstance(n, Kernel) for f in n.forms] == [other]
    assert show(parse(show(again), constants_of(again))) == show(again)


def test_a_convolution_of_any_length_is_computed_in_the_form_that_is_faster_for_it() -> None:
    weights = drawn(64, 64, 3)[..., 0]
    node = helper.make_node("Conv", ["x", "k"], ["y"], pads=[1, 1])
    values = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, "l"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph([node], "conv", *values, [numpy_helper.from_array(weights, "k")])
    model = tl.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), threads=1, sizes="symbolic")
    for length in (256, 1, 2, 3, 9, 50):
        x = RNG.standard_normal((1, 64, length)).astype(np.float32)
        padded = np.pad(x[0].astype(np.float64), [(0, 0), (1, 1)])
        wanted = sum(weights[..., k] @ padded[:, k : k + length] for k in range(3))
        np.testing.assert_allclose(model.run({"x": x})["y"][0], wanted, atol=4e-5)
    assert "for l <= " in model.explain({"x": x})


def test_a_convolution_of_any_image_keeps_one_form_where_the_choice_is_the_same_for_all() -> None:
    assert not any(node.forms for node in of_any_image(28, lambda found: (4, 4)).nodes if isinstance(node, Kernel))


def test_a_model_can_be_compiled_without() -> None:
    model = block(64, 64, 28, 28)
    x = RNG.standard_normal((1, 64, 28, 28)).astype(np.float32)
    with_, without = tl.compile(model, threads=1), tl.compile(model, threads=1, winograd=False)
    assert "transformed" in with_.explain() and "transformed" not in without.explain()
    np.testing.assert_allclose(with_.run({"x": x})["y"], without.run({"x": x})["y"], atol=4e-5)


@pytest.mark.parametrize(
    ("channels", "filters", "size", "taps", "wanted"),
    [
        (64, 64, 56, 3, (4, 4)),
        (256, 256, 14, 3, (4, 4)),
        (3, 64, 224, 3, None),
        (64, 8, 56, 3, None),
        (64, 64, 56, 1, None),
        (64, 64, 56, 7, None),
    ],
    ids=["56 x 56", "14 x 14", "three channels", "few filters", "no window", "too many points"],
)
def test_tiles_are_chosen_by_size(channels: int, filters: int, size: int, taps: int, wanted: tuple[int, int] | None) -> None:
    graph = optimise(Importer().load(block(channels, filters, size, size, taps=taps)), pipeline=PREPARED)
    found = [c for node in graph.nodes if isinstance(node, Kernel) and (c := convolution(node.program)) is not None]
    assert [tiles(c, Machine(target="cpu")) for c in found] == ([wanted] if taps > 1 else [])
    assert all(c.dtype == f32 for c in found)


def test_weights_that_no_cache_keeps_are_not_transformed_for_every_image_of_a_batch() -> None:
    def points(batch: int, cache_bytes: int) -> tuple[int, ...] | None:
        [found] = [
            c for n in Importer().load(block(512, 512, 7, 7, batch=batch)).nodes if (c := convolution(n.program)) and c.windows[0].taps > 1
        ]
        return tiles(found, Machine(target="cpu", cache_bytes=cache_bytes, threads=2))

    assert points(8, 1 << 30) == (4, 4)
    assert points(8, 32 << 20) == (2, 2)
    assert points(8, 16 << 20) is None


@pytest.mark.parametrize(
    ("tiles_down", "channels", "threads", "parts"),
    [(7, 128, 2, 2), (7, 128, 1, 1), (14, 64, 2, 1), (7, 512, 2, 1)],
    ids=["seven rows for two", "seven rows for one", "fourteen rows for two", "weights that stay in no cache"],
)
def test_threads_share_the_columns_where_rows_of_tiles_do_not_come_out_even(
    tiles_down: int, channels: int, threads: int, parts: int
) -> None:
    found = blocks((tiles_down, 7), 36, channels, channels, 4, Machine(target="cpu", threads=threads))
    assert found.parts == parts


def test_columns_that_threads_share_are_computed_from_tiles_of_their_own() -> None:
    model = block(32, 96, 28, 28)
    plain, _ = ran(model, None, 2)
    found, graph = ran(model, 4, 2)
    [kernel] = rewritten(graph)
    assert blocks((7, 7), 36, 32, 96, 4, Machine(target="cpu", threads=2)).parts == 2 and kernel.program.mode == "fast"
    np.testing.assert_allclose(found, plain, atol=4e-5)


def test_threads_share_the_columns_of_one_image_whose_weights_no_cache_of_a_thread_holds() -> None:
    two = Machine(target="cpu", threads=2)
    few, many, alone = (
        blocks((n, n), 16, 512, 512, 4, machine) for n, machine in ((4, two), (28, two), (4, Machine(target="cpu", threads=1)))
    )
    assert (few.parts, few.tiles) == (2, (4, 4))
    assert many.parts == alone.parts == blocks((4, 4), 16, 512, 512, 4, two, images=8).parts == 1
