"""Attention as models write it (with masks, causal, of windows, with heads of keys that several heads of queries share) becomes one kernel
that goes through the keys once, and leaves out those that no query of a block sees."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from batch import difference, library, made
from executors import Executor
from onnx import TensorProto, helper, numpy_helper
from small_graphs import run
from usual_device import device_graph

import tensorlang as tl
from codegen.dtypes import bf16
from codegen.loops.printer import show
from stdlib.onnx import Importer
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.precisions import chosen_on
from tensorlang.tensor.idioms import online_of

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[int, ...]]
LOW = np.array(-3.4028235e38, np.float32)


def model(nodes: list[onnx.NodeProto], inputs: Shapes, constants: dict[str, Array]) -> onnx.ModelProto:
    kinds = {name: TensorProto.BOOL if name == "sees" else TensorProto.FLOAT for name in inputs}
    given = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in inputs.items()]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def one_node(
    mask: tuple[int, ...] = (), kind: str = "sees", queries: int = 4, heads: int = 4, rank: int = 4, **attrs: Any
) -> onnx.ModelProto:
    """Return ONNX Attention of 40 queries and 50 keys."""
    if rank == 4:
        shapes: Shapes = {"q": (1, queries, 40, 16), "k": (1, heads, 50, 16), "v": (1, heads, 50, 8)}
    else:
        shapes = {"q": (1, 40, queries * 16), "k": (1, 50, heads * 16), "v": (1, 50, heads * 8)}
        attrs |= {"q_num_heads": queries, "kv_num_heads": heads}
    shapes |= {kind: mask} if mask else {}
    return model([helper.make_node("Attention", list(shapes), ["y"], **attrs)], shapes, {})


def written_out(masks: str, rows: int = 70) -> onnx.ModelProto:
    """Return attention as products and a softmax: `shared` heads of keys, `masks` in words."""
    node = helper.make_node
    shapes: Shapes = {"q": (1, 4, rows, 16), "k": (1, 4, rows, 16), "v": (1, 4, rows, 16)}
    constants: dict[str, Array] = {"scale": np.array(0.25, np.float32), "low": LOW}
    nodes, k, v = [], "k", "v"
    if "shared" in masks:
        shapes |= {"k": (1, 2, rows, 16), "v": (1, 2, rows, 16)}
        constants |= {"axis": np.array([2]), "times": np.array([1, 2, 2, rows, 16]), "all": np.array([1, 4, rows, 16])}
        for name in "kv":
            nodes += [node("Unsqueeze", [name, "axis"], [f"{name}1"]), node("Expand", [f"{name}1", "times"], [f"{name}2"])]
            nodes += [node("Reshape", [f"{name}2", "all"], [f"{name}3"])]
        k, v = "k3", "v3"
    nodes += [node("Transpose", [k], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"])]
    last = "s1"
    triangle = np.tril(np.ones((1, 1, rows, rows), np.bool_))
    if "causal chosen" in masks:
        constants["seen"] = triangle
        nodes.append(node("Where", ["seen", last, "low"], [last := "s2"]))
    if "causal added" in masks:
        constants["bias"] = np.where(triangle, np.float32(0), LOW)
        nodes.append(node("Add", [last, "bias"], [last := "s3"]))
    if "window" in masks:
        constants["near"] = triangle & ~np.tril(triangle, -20)
        nodes.append(node("Where", ["near", last, "low"], [last := "s4"]))
    if "data" in masks:
        shapes["sees"] = (1, 1, 1, rows)
        nodes.append(node("Where", ["sees", last, "low"], [last := "s5"]))
    return model([*nodes, node("Softmax", [last], ["p"], axis=-1), node("MatMul", ["p", v], ["y"])], shapes, constants)


FORMS = {
    "an Attention node": one_node(),
    "with a boolean mask": one_node((40, 50)),
    "with a mask for each head": one_node((1, 4, 40, 50)),
    "with a bias": one_node((1, 1, 40, 50), "bias"),
    "heads of keys for two heads of queries each": one_node(heads=2),
    "one head of keys, causal": one_node(heads=1, is_causal=1),
    "causal, with a cap": one_node(is_causal=1, softcap=3.0),
    "causal, with a mask and shared heads": one_node((40, 50), heads=2, is_causal=1),
    "heads in one axis": one_node(rank=3, heads=2),
    "written out, causal": written_out("causal chosen"),
    "written out, causal by a bias": written_out("causal added"),
    "written out, a window": written_out("window"),
    "written out, causal and a mask": written_out("causal chosen and data"),
    "written out, shared heads": written_out("shared, causal added"),
}
RUN = (
    "causal, with a cap",
    "causal, with a mask and shared heads",
    "heads in one axis",
    "written out, a window",
    "written out, causal and a mask",
    "written out, shared heads",
)


def feeds_of(proto: onnx.ModelProto) -> dict[str, Array]:
    random = np.random.default_rng(9)
    out: dict[str, Array] = {}
    for value in proto.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        seen = random.random(shape) < 0.8
        seen[..., 0] = True
        out[value.name] = seen if value.name == "sees" else random.standard_normal(shape).astype(np.float32)
    return out


def attention_of(name: str) -> Kernel:
    [found] = [n for n in device_graph(Importer().load(FORMS[name])).nodes if isinstance(n, Kernel) and online_of(n.program) is not None]
    return found


@pytest.mark.parametrize("name", FORMS)
def test_models_are_rewritten_to_one_pass_over_the_keys(name: str) -> None:
    graph = Importer().load(FORMS[name])
    done = device_graph(graph)
    kernels = [n for n in done.nodes if isinstance(n, Kernel)]
    assert sum(online_of(n.program) is not None for n in kernels) == 1
    assert len(kernels) <= 1 + ("mask" in name and "written" not in name) + (name == "heads in one axis")
    feeds = feeds_of(FORMS[name])
    np.testing.assert_allclose(run(done, feeds)["y"], run(graph, feeds)["y"], rtol=1e-5, atol=1e-6)


def test_kernels_of_models_are_right_in_every_order_of_threads(executor: Executor) -> None:
    random = np.random.default_rng(2)
    programs = {name: made(attention_of(name).program, f"k{k}") for k, name in enumerate(RUN)}
    compiled = library(programs.values(), executor)
    for name, each in programs.items():
        arrays = {
            p.name: (random.random(shape) < 0.8) if str(p.dtype) == "bool" else random.standard_normal(shape).astype(np.float32)
            for p in each.program.params
            for shape in [tuple(e.value for e in p.shape)]  # type: ignore[union-attr]
        }
        assert difference(each, arrays, {}, compiled, seeds=(1, 5), close=1e-5) == "", name


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("written out, causal by a bias", "0 .. rows + 2"),
        ("written out, causal and a mask", "0 .. 3"),
        ("written out, a window", "rows .. rows + 2"),
    ],
)
def test_blocks_of_keys_that_no_query_of_a_block_sees_are_not_visited(name: str, bounds: str) -> None:
    loops = show(made(attention_of(name).program, "kernel").lowered.function)
    [found] = [line for line in loops.splitlines() if "_keys in" in line]
    assert re.sub(r"\w+_rows", "rows", found.split(" in ")[1].split(" serial")[0].removesuffix(" {")) == bounds


def test_people_are_told_of_it_and_can_switch_it_off() -> None:
    model = written_out("causal added")
    told, other = (tl.compile(model, target="cuda:sm_90a", online=switch).explain() for switch in (True, False))
    assert "attention: " in told and "one pass over 3 blocks of 32 keys, shown to be the same of real numbers" in told
    assert "attention: " not in other and "softmax" in other and "one pass" not in other
    with pytest.raises(tl.CompileError, match="C0108"):
        tl.compile(model, target="cuda:sm_90a", online=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FORMS)
def test_what_attention_multiplies_is_rounded_however_it_is_written(name: str) -> None:
    graph = Importer().load(FORMS[name])
    done = device_graph(graph, chosen_on("bf16", None))
    (attention,) = (n for n in done.nodes if isinstance(n, Kernel) and online_of(n.program) is not None)
    assert sorted(str(done.values[v].dtype) for v in attention.inputs)[:3] == ["bf16"] * 3
    feeds = feeds_of(FORMS[name])
    want = run(graph, feeds)["y"]
    assert 0 < np.abs(run(done, feeds)["y"] - want).max() < 0.03 * np.abs(want).max()


@pytest.mark.parametrize("heads", [8, 12, 16, 32])
@pytest.mark.parametrize("constants", ["", "kv"], ids=["given", "constant keys and values"])
def test_what_attention_multiplies_in_16_bits_lies_head_by_head(heads: int, constants: str) -> None:
    shape, node = (1, heads, 64, 16), helper.make_node
    known = {name: np.random.default_rng(3).standard_normal(shape).astype(np.float32) for name in constants}
    nodes = [
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
    ]
    whole = model([*nodes, node("MatMul", ["p", "v"], ["y"])], {name: shape for name in "qkv" if name not in known}, known)
    graph = device_graph(Importer().load(whole), chosen_on("bf16", None))
    (attention,) = (n for n in graph.nodes if isinstance(n, Kernel) and online_of(n.program) is not None)
    assert [graph.values[v].dtype for v in attention.inputs] == [bf16] * 3
    assert [graph.values[v].layout for v in (*attention.inputs, *attention.outputs)] == [None] * 4
