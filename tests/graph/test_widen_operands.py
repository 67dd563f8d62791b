"""Operands of f16 and bf16 that a product in f32 reads many times are widened once, and no bit of a result changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tensorlang as tl
from codegen.dtypes import bf16, f16, f32
from stdlib.onnx import Importer
from tensorlang.backends.cpu.build import options_of
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.options import Options
from tensorlang.graph.passes.algebra.widen_operands import widen_operands
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.programs import is_contraction
from tensorlang.policy.cpu.widening import is_widening_profitable
from tensorlang.policy.machine import Machine
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import contractions
from tests.onnx.onnx_evaluate import evaluate

RNG = np.random.default_rng(29)
HALF = TensorProto.FLOAT16
NUMBERS = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16, TensorProto.FLOAT: np.float32}
Array = np.ndarray[Any, Any]


def model(
    nodes: Sequence[NodeProto], shape: Sequence[int], weights: dict[str, Array], outputs: Sequence[str] = ("y",), dtype: int = HALF
) -> ModelProto:
    given = [helper.make_tensor_value_info("x", dtype, shape)]
    returned = [helper.make_tensor_value_info(name, dtype, None) for name in outputs]
    stored = [numpy_helper.from_array(array.astype(NUMBERS[dtype]), name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", given, returned, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def product(rows: int, terms: int, columns: int, dtype: int = HALF) -> ModelProto:
    w = RNG.standard_normal((terms, columns))
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], (rows, terms), {"w": w}, dtype=dtype)


def convolution(filters: int, channels: int, height: int, width: int) -> ModelProto:
    w = RNG.standard_normal((filters, channels, 3, 3))
    return model([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], (1, channels, height, width), {"w": w})


def two_products(between: Sequence[NodeProto], outputs: Sequence[str] = ("y",)) -> ModelProto:
    """Return a product, what is done to its result `t`, and a product of what that makes, `u`."""
    weights = {"v": RNG.standard_normal((48, 64)), "w": RNG.standard_normal((64, 40))}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["t"]), *between, helper.make_node("MatMul", ["u", "w"], ["y"])]
    return model(nodes, (32, 48), weights, outputs)


def loaded(m: ModelProto) -> Graph:
    return Importer().load(m.SerializeToString(), None, {})


def always(program: object, tensor: str) -> bool:
    return True


def prepared(m: ModelProto) -> Graph:
    """Return the graph of a model as compiled for this machine, all operands widened."""
    return optimise(loaded(m), Options(is_widening_profitable=always))


def multiplied(graph: Graph) -> list[tuple[str, ...]]:
    """Return the types of the params of each product."""
    products = [n for n in graph.nodes if isinstance(n, Kernel) and is_contraction(n.program)]
    return [tuple(str(p.dtype) for p in n.program.params) for n in products]


def copies(graph: Graph) -> int:
    return sum(isinstance(n, Kernel) and n.program.name == "widen" for n in graph.nodes)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_an_input_is_copied_and_a_constant_stored_in_f32(dtype: int) -> None:
    graph = prepared(product(32, 48, 40, dtype))
    assert multiplied(graph) == [("f32", "f32")]
    assert copies(graph) == 1


def test_what_kernels_alone_make_and_read_is_rounded_and_kept_in_f32() -> None:
    graph = prepared(two_products([helper.make_node("Tanh", ["t"], ["u"])]))
    assert multiplied(graph) == [("f32", "f32"), ("f32", "f32")]
    assert copies(graph) == 1, "of x"


def test_what_the_model_returns_keeps_its_type() -> None:
    graph = prepared(two_products([helper.make_node("Tanh", ["t"], ["u"])], ("y", "u")))
    assert graph.values["u"].dtype == f16
    assert copies(graph) == 2


def test_several_products_of_one_value_read_one_copy() -> None:
    weights = {"v": RNG.standard_normal((48, 64)), "w": RNG.standard_normal((48, 40))}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["y"]), helper.make_node("MatMul", ["x", "w"], ["z"])]
    assert copies(prepared(model(nodes, (32, 48), weights, ("y", "z")))) == 1


def test_products_of_f32_and_what_is_not_multiplied_stay() -> None:
    for m in (product(32, 48, 40, TensorProto.FLOAT), model([helper.make_node("Softmax", ["x"], ["y"])], (32, 48), {})):
        graph = optimise(loaded(m))
        assert widen_operands(graph, always) is graph


@pytest.mark.parametrize(
    "between",
    [
        [helper.make_node("Relu", ["t"], ["u"])],
        [helper.make_node("Exp", ["t"], ["e"]), helper.make_node("Softmax", ["e"], ["s"]), helper.make_node("Add", ["s", "e"], ["u"])],
        [helper.make_node("Concat", ["t", "t"], ["u"], axis=0)],
    ],
    ids=["epilogue", "normalised", "joined"],
)
def test_no_bit_changes(between: list[NodeProto]) -> None:
    m = two_products(between)
    feeds = {"x": RNG.standard_normal((32, 48)).astype(np.float16)}
    [want] = evaluate(loaded(m), feeds)
    graph = widen_operands(loaded(m), always)
    assert f32 in {p.dtype for n in graph.nodes if isinstance(n, Kernel) for p in n.program.params}
    [got] = evaluate(graph, feeds)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, want)


def test_a_convolution_with_padding_is_compiled_as_one_of_f32_and_rounded() -> None:
    w = RNG.standard_normal((24, 16, 3, 3)) / 12
    m = model([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], (1, 16, 14, 14), {"w": w})
    x = RNG.standard_normal((1, 16, 14, 14)).astype(np.float16)
    compiled = optimise(loaded(m), options_of(toolchain(threads=1, cache=False)))
    assert all(p.dtype != f16 for n in compiled.nodes if isinstance(n, Kernel) and is_contraction(n.program) for p in n.program.params)
    [want] = evaluate(loaded(m), {"x": x})
    np.testing.assert_allclose(tl.compile(m, threads=1).run({"x": x})["y"], want, rtol=2e-3, atol=2e-3)


ATTENTION = [
    helper.make_node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
    helper.make_node("MatMul", ["x", "k"], ["s"]),
    helper.make_node("Softmax", ["s"], ["p"]),
    helper.make_node("MatMul", ["p", "x"], ["y"]),
]


def test_attention_multiplies_f32_alone_and_rounds_no_element_again_that_it_moves() -> None:
    m = model(ATTENTION, (2, 24, 16), {})
    graph = prepared(m)
    [program] = [n.program for n in graph.nodes if isinstance(n, Kernel) and n.program.name == "attention"]
    types = {t.name: t.dtype for t in walk.tensors(program)}
    found = [c for _, c in contractions(program)]
    assert [types[t] for c in found for t in c.tensors] == [f32] * 4
    assert all(f.is_plain for c in found for f in c.factors)
    feeds = {"x": RNG.standard_normal((2, 24, 16)).astype(np.float16)}
    [want] = evaluate(optimise(loaded(m), Options(is_widening_profitable=lambda program, tensor: False)), feeds)
    np.testing.assert_array_equal(evaluate(graph, feeds)[0], want)


def judged(m: ModelProto, machine: Machine) -> tuple[bool, ...]:
    """Return of each operand of the only product whether widening it pays."""
    [node] = [n for n in loaded(m).nodes if isinstance(n, Kernel)]
    return tuple(is_widening_profitable(node.program, p.name, machine) for p in node.program.params)


WIDE = Machine(target="cpu")


def test_a_matrix_that_is_read_once_is_not_widened() -> None:
    assert judged(product(1, 512, 512), WIDE)[1] is False
    assert judged(product(64, 512, 512), WIDE) == (True, True)


def test_a_matrix_that_no_near_cache_holds_is_widened_for_many_rows_alone() -> None:
    assert judged(product(16, 1024, 1024), WIDE)[1] is False
    assert judged(product(128, 1024, 1024), WIDE)[1] is True


def test_few_elements_are_not_worth_a_kernel() -> None:
    assert judged(product(8, 8, 8), WIDE) == (False, False)


def test_an_image_is_widened_for_few_channels() -> None:
    """Each of its elements would be widened for every tap, with one vector of channels to multiply."""
    assert judged(convolution(16, 3, 96, 96), WIDE)[0] is True
    assert judged(convolution(16, 1, 3, 3), WIDE)[0] is False


def test_what_the_machine_multiplies_as_it_is_stays_narrow() -> None:
    m = product(64, 512, 512, TensorProto.BFLOAT16)
    assert judged(m, Machine(dots=frozenset({(bf16, bf16)}), target="cpu")) == (False, False)
