"""Quantised models are computed in bytes: what the passes make of a graph means the same, up to one unit of a quantised result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import small_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from network_writer import NetworkWriter
from onnx import TensorProto, helper
from small_graphs import single, tensor

from codegen.dtypes import f32, i8, i32, u8
from stdlib.onnx.importer import Importer
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.clean.fold import fold
from tensorlang.graph.passes.clean.inline_locals import inline_locals
from tensorlang.graph.passes.quantised.choose_signs import choose_signs
from tensorlang.graph.passes.quantised.fold_bytes import fold_bytes
from tensorlang.graph.passes.quantised.integer_contractions import integer_contractions
from tensorlang.graph.passes.quantised.propagate_quantisation import propagate_quantisation
from tensorlang.graph.passes.quantised.requantise import Names, in_floats, regrouped
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.verify import verify
from tensorlang.tensor import walk
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Expr, Read

Array = np.ndarray[Any, Any]


class Model(NetworkWriter):
    """Writes a graph of quantised operators."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        super().__init__(seed)
        self.shape = shape

    def quantised(self, x: str, scale: float = 0.05, zero: int = 100, dtype: Any = np.uint8) -> str:
        s, z = self.constant(np.array(scale, np.float32)), self.constant(np.array(zero, dtype))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weights(self, *shape: int, axis: int = 0, dtype: Any = np.int8, zero: int = 0) -> str:
        low, high = (-127, 128) if dtype == np.int8 else (0, 256)
        array = self.rng.integers(low, high, shape).astype(dtype)
        scale = self.constant(self.rng.uniform(0.002, 0.02, shape[axis]).astype(np.float32))
        zeros = self.constant(np.full(shape[axis], zero, dtype))
        return self.op("DequantizeLinear", self.constant(array), scale, zeros, axis=axis)

    def graph(self, result: str) -> Graph:
        return Importer().load(self.model(self.shape, result))


def run(g: Graph, x: Array) -> Array:
    return small_graphs.run(g, {"x": x})[g.outputs[0]]


def in_bytes(g: Graph) -> Graph:
    g = inline_locals(g)
    for step in (fold_bytes, choose_signs, propagate_quantisation, integer_contractions):
        g = verify(step(g), step.__name__)
    return g


def agree(g: Graph, x: Array, unit: float) -> None:
    """The graph, its integer form and what is compiled of it agree up to one unit of the quantised result, nearly everywhere exactly."""
    want = run(fold(inline_locals(g)), x)
    for got in (run(in_bytes(g), x), run(optimise(g), x)):
        assert got.dtype == want.dtype and got.shape == want.shape
        assert np.abs(got - want).max() <= unit * 1.001
        assert (np.abs(got - want) > unit * 1e-3).mean() < 0.02


def sums(g: Graph) -> list[str]:
    """Return the types of operands that kernels multiply and add up."""
    out = []
    for node in g.nodes:
        if isinstance(node, Kernel):
            table = walk.tensor_table(node.program)
            for e in (r for d in node.program.definitions for p in d.pieces for r in walk.reduces(p.value)):
                if isinstance(e.body[0], Binary) and e.body[0].op == "*":
                    out.append(" x ".join(table[r.tensor].dtype.name for r in walk.reads(e.body[0])))
    return out


def values(*shape: int, seed: int = 3) -> Array:
    return (2 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 1, 1, 1]}, {"strides": [2, 2], "pads": [1, 0, 1, 2]}])
def test_a_convolution_multiplies_bytes_and_pads_with_the_zero_point(dtype: Any, attrs: dict[str, Any]) -> None:
    m = Model((1, 5, 7, 6))
    zero = 90 if dtype == np.uint8 else -20
    x = m.quantised("x", 0.05, zero, dtype)
    y = m.op("Conv", x, m.weights(6, 5, 3, 3), m.constant(m.rng.standard_normal(6).astype(np.float32)), **attrs)
    g = m.graph(m.quantised(y, 0.1, zero, dtype))
    agree(g, values(1, 5, 7, 6), 0.1)
    assert sums(in_bytes(g)) == ["u8 x i8"]


@pytest.mark.parametrize("attrs", [{}, {"strides": [2, 2], "pads": [3, 3, 3, 3]}, {"pads": [0, 2, 0, 0]}])
def test_rows_of_a_window_over_few_channels_are_filled_with_weights_of_zero(attrs: dict[str, Any]) -> None:
    m = Model((1, 3, 9, 10))
    g = m.graph(m.quantised(m.op("Conv", m.quantised("x"), m.weights(4, 3, 7, 7), **attrs), 0.1))
    agree(g, values(1, 3, 9, 10), 0.1)
    assert any(array.shape == (4, 3, 7, 8) for array in in_bytes(g).constants.values())


@pytest.mark.parametrize("group", [1, 2])
def test_rows_of_a_window_over_whole_groups_of_channels_are_left_as_they_are(group: int) -> None:
    m = Model((1, 4 * group, 9, 10))
    g = m.graph(m.quantised(m.op("Conv", m.quantised("x"), m.weights(8 * group, 4, 3, 2), group=group, pads=[1, 0, 1, 1]), 0.1))
    agree(g, values(1, 4 * group, 9, 10), 0.1)
    assert all(array.shape[-1] == 2 for array in in_bytes(g).constants.values() if array.ndim == 4 and array.size >= 64)


def test_a_convolution_in_groups_multiplies_bytes() -> None:
    m = Model((2, 6, 5, 5))
    y = m.op("Conv", m.quantised("x"), m.weights(9, 2, 3, 3), group=3, pads=[1, 1, 1, 1])
    g = m.graph(m.quantised(y, 0.1))
    agree(g, values(2, 6, 5, 5), 0.1)
    assert sums(in_bytes(g)) == ["u8 x i8"]


def test_a_result_that_is_not_quantised_keeps_its_float() -> None:
    m = Model((4, 6))
    g = m.graph(m.op("Gemm", m.quantised("x"), m.weights(5, 6), m.constant(m.rng.standard_normal(5).astype(np.float32)), transB=1))
    x = values(4, 6)
    np.testing.assert_allclose(run(in_bytes(g), x), run(fold(inline_locals(g)), x), rtol=1e-6, atol=1e-5)
    assert sums(in_bytes(g)) == ["u8 x i8"]


@pytest.mark.parametrize("zero", [0, 7])
def test_integer_products_take_zero_points_off_the_sum(zero: int) -> None:
    m = Model((4, 6))
    q, s, z = (f"q{k}" for k in range(3))
    m.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], [q, s, z]))
    w = m.rng.integers(-100, 100, (6, 5)).astype(np.int8)
    total = m.op("MatMulInteger", q, m.constant(w), z, m.constant(np.array(zero, np.int8)))
    g = m.graph(m.op("Mul", m.op("Cast", total, to=TensorProto.FLOAT), s))
    x = values(4, 6)
    assert np.array_equal(run(in_bytes(g), x), run(fold(inline_locals(g)), x))
    assert sums(in_bytes(g)) == ["u8 x i8"]


def test_weights_that_an_operator_cuts_out_of_a_constant_are_known_bytes() -> None:
    m = Model((3, 2, 400))
    both = [m.constant(m.rng.integers(-100, 100, (2, n, 32)).astype(np.int8)) for n in (400, 8)]
    scale, zero = m.constant(np.full(2, 0.01, np.float32)), m.constant(np.zeros(2, np.int8))
    inputs = ["x", *both, "", "", "", "", "", scale, zero, scale, zero]
    m.nodes.append(helper.make_node("DynamicQuantizeLSTM", inputs, ["y"], domain="com.microsoft", direction="bidirectional", hidden_size=8))
    g = m.graph("y")
    x = values(3, 2, 400)
    np.testing.assert_allclose(run(in_bytes(g), x), run(fold(inline_locals(g)), x), rtol=1e-6)
    assert sums(in_bytes(g)) == ["u8 x i8"] * 4


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_integer_convolutions_pad_with_the_zero_point(dtype: Any) -> None:
    m = Model((1, 4, 6, 6))
    s, z = m.constant(np.array(0.05, np.float32)), m.constant(np.array(11, dtype))
    w = m.constant(m.rng.integers(-100, 100, (6, 4, 3, 3)).astype(np.int8))
    scales, zeros = m.constant(m.rng.uniform(0.01, 0.02, 6).astype(np.float32)), m.constant(np.zeros(6, np.int8))
    bias = m.constant(m.rng.integers(-500, 500, 6).astype(np.int32))
    q = m.op("QuantizeLinear", "x", s, z)
    y = m.op("QLinearConv", q, s, z, w, scales, zeros, s, z, bias, pads=[1, 1, 1, 1])
    g = m.graph(m.op("DequantizeLinear", y, s, z))
    agree(g, values(1, 4, 6, 6), 0.05)
    assert sums(in_bytes(g)) == ["u8 x i8"]


def test_unsigned_weights_become_signed_where_they_fit() -> None:
    m = Model((4, 6))
    g = m.graph(m.quantised(m.op("MatMul", m.quantised("x"), m.weights(6, 5, axis=1, dtype=np.uint8, zero=128)), 0.1))
    agree(g, values(4, 6), 0.1)
    assert sums(in_bytes(g)) == ["u8 x i8"]


def test_a_zero_point_of_weights_that_leaves_no_room_is_multiplied_by_the_sum_of_the_other_bytes() -> None:
    m = Model((4, 6))
    g = m.graph(m.quantised(m.op("MatMul", m.quantised("x"), m.weights(6, 5, axis=1, dtype=np.uint8, zero=3)), 0.1))
    agree(g, values(4, 6), 0.1)
    assert sums(in_bytes(g)) == ["u8 x i8"]


@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 3), (np.int8, -100)])
@pytest.mark.parametrize("group", [1, 2])
def test_that_sum_counts_the_padding_of_a_convolution_and_its_groups(dtype: Any, zero: int, group: int) -> None:
    m = Model((2, 4, 5, 6))
    y = m.op("Conv", m.quantised("x", zero=90), m.weights(6, 4 // group, 3, 3, dtype=dtype, zero=zero), group=group, pads=[1, 0, 2, 1])
    g = m.graph(m.quantised(y, 0.1))
    agree(g, values(2, 4, 5, 6), 0.1)
    assert sums(in_bytes(g)) == ["u8 x i8"]


def test_that_sum_goes_with_a_zero_point_that_is_known_at_run_time_alone() -> None:
    m = Model((4, 6))
    q, s, z = (f"q{k}" for k in range(3))
    m.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], [q, s, z]))
    w = m.constant(m.rng.integers(0, 256, (6, 5)).astype(np.uint8))
    total = m.op("MatMulInteger", q, w, z, m.constant(np.array(7, np.uint8)))
    g = m.graph(m.op("Mul", m.op("Cast", total, to=TensorProto.FLOAT), s))
    x = values(4, 6)
    assert np.array_equal(run(in_bytes(g), x), run(fold(inline_locals(g)), x))
    assert sums(in_bytes(g)) == ["u8 x i8"]


def test_a_scale_along_a_reduced_dimension_leaves_the_product_in_floats() -> None:
    m = Model((4, 6))
    g = m.graph(m.quantised(m.op("MatMul", m.quantised("x"), m.weights(6, 5, axis=0)), 0.1))
    agree(g, values(4, 6), 0.1)
    assert sums(in_bytes(g)) == ["f32 x f32"]


@pytest.mark.parametrize(("first", "second"), [(0, 0), (100, 0), (0, 100), (100, 140), (128, 128)])
def test_products_of_two_quantised_values_account_for_both_zero_points(first: int, second: int) -> None:
    m = Model((2, 4, 6))
    a, b = m.quantised("x", 0.05, first), m.quantised(m.op("Transpose", "x", perm=[0, 2, 1]), 0.04, second)
    g = m.graph(m.quantised(m.op("MatMul", a, b), 0.1))
    agree(g, values(2, 4, 6), 0.1)
    assert sums(in_bytes(g)) == ["u8 x i8"]


def test_whoever_quantises_a_value_makes_it_signed_for_its_reader() -> None:
    m = Model((2, 4, 6))
    a, b = m.quantised("x", 0.05, 100), m.quantised(m.op("Transpose", "x", perm=[0, 2, 1]), 0.04, 140)
    g = choose_signs(inline_locals(m.graph(m.op("MatMul", a, b))))
    assert sorted(v.dtype.name for v in g.values.values() if v.dtype in (u8, i8) and v.shape) == ["i8", "u8"]


def test_bytes_are_transposed_and_pooled_in_the_place_of_floats() -> None:
    m = Model((1, 4, 8, 8))
    pooled = m.op("MaxPool", m.op("Relu", m.quantised("x", 0.05, 120)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    moved = m.op("Transpose", m.quantised(pooled, 0.0213, 0), perm=[0, 2, 3, 1])
    g = m.graph(m.op("MatMul", moved, m.weights(4, 3, axis=1)))
    x = values(1, 4, 8, 8)
    np.testing.assert_allclose(run(in_bytes(g), x), run(fold(inline_locals(g)), x), rtol=1e-6, atol=1e-5)
    pools = [n for n in in_bytes(g).nodes if isinstance(n, Kernel) and n.operator in ("max_pool", "transpose")]
    assert [n.program.params[0].dtype for n in pools] == [u8, u8]


@given(st.floats(-1e6, 1e6, width=32), st.integers(0, 255), st.integers(0, 255), st.sampled_from([u8, i8]))
@settings(max_examples=200, deadline=None)
def test_quantising_and_dequantising_in_floats_changes_no_number(number: float, first: int, second: int, dtype: Any) -> None:
    zero, back = (first, second) if dtype == u8 else (first - 128, second - 128)
    narrow_: Expr = Cast(dtype, Binary("+", Call("round", (Read("x", ()),)), Const(float(zero), f32)), True)
    detour = Cast(f32, Binary("-", Cast(i32, narrow_), Const(back, i32)))
    from_floats = in_floats(detour)
    assert not any(isinstance(e, Cast) for e in walk.nodes(from_floats))
    assert evaluated(from_floats, number) == evaluated(detour, number)


@given(st.lists(st.integers(0, 255), min_size=8, max_size=8), st.integers(0, 200), st.integers(0, 200), st.floats(0.01, 0.4))
@settings(max_examples=60, deadline=None)
def test_what_bytes_alone_are_made_into_keeps_every_bit(x: list[int], first: int, second: int, scale: float) -> None:
    m = Model((2, 4))
    y = m.quantised("x", 0.11, first)
    z = m.quantised(m.op("Add", y, m.op("Relu", m.quantised("x", 0.07, second))), scale, 30)
    g = m.graph(m.quantised(m.op("Relu", z), 0.9 * scale, 0))
    values_ = ((np.array(x, np.float32) - first) * np.float32(0.061)).reshape(2, 4)
    assert (run(optimise(g), values_) == run(fold(inline_locals(g)), values_)).all()


HALVES: dict[str, Callable[[Model, str], str]] = {
    "a sum": lambda m, x: m.op("Add", x, m.op("Transpose", x, perm=[1, 0])),
    "a product": lambda m, x: m.op("Mul", x, m.quantised(m.op("Transpose", x, perm=[1, 0]), 2.0**-7, 128)),
    "a slope": lambda m, x: m.op("LeakyRelu", x, alpha=0.5),
    "another scale": lambda m, x: x,
}


@pytest.mark.parametrize("made", HALVES.values(), ids=HALVES)
def test_half_a_unit_between_bytes_rounds_as_in_the_operators_one_by_one(made: Callable[[Model, str], str]) -> None:
    scale = float(np.float32(0.0237))
    m = Model((256, 256))
    g = m.graph(m.quantised(made(m, m.quantised("x", scale, 128)), 2 * scale, 120))
    pixels = (np.add.outer(np.arange(256), 37 * np.arange(256)) % 256 - 128).astype(np.float32) * np.float32(scale)
    assert (run(optimise(g), pixels) == run(fold(inline_locals(g)), pixels)).all()
    assert not any(isinstance(n, Kernel) and n.program.mode == "fast" for n in optimise(g).nodes)


def test_what_leaves_f32_saturates_as_in_the_operators_one_by_one() -> None:
    largest = np.finfo(np.float32).max
    scale = np.nextafter(largest / np.float32(127), largest)  # 127 times this is an infinity
    m = Model((2, 1))
    x = m.quantised("x", scale, 0, np.int8)
    g = m.graph(m.quantised(m.op("Add", x, m.quantised("x", 0.01, 0, np.int8)), 2 * scale, 0, np.int8))
    masked = np.array([[-largest], [0]], np.float32)
    assert (run(optimise(g), masked) == run(fold(inline_locals(g)), masked)).all()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda r: relu(times(r, 0.5)), lambda r: times(r, 0.5)),
        (lambda r: relu(over(r, 2.0)), lambda r: over(r, 2.0)),
        (lambda r: times(limited(r, -9.0, 90.0), 3.0), lambda r: times(r, 3.0)),
        (lambda r: over(limited(r, -9.0, 90.0), 0.25), lambda r: over(r, 0.25)),
        (lambda r: times(limited(r, -9.0, 60.0), 3.0), lambda r: times(Binary("min", r, Const(60.0, f32)), 3.0)),
    ],
)
def test_limits_that_bytes_have_anyway_go(before: Any, after: Any) -> None:
    r = Call("round", (Read("x", ()),))
    assert regrouped(to_byte(before(r)), Names()) == to_byte(after(r))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda s: over(times(s, 0.5), 0.125), lambda s: times(s, 4.0)),
        (lambda s: relu(times(times(s, 0.5), 4.0)), lambda s: times(s, 2.0)),
        (lambda s: times(Binary("+", times(s, 0.5), Const(2.0, f32)), 4.0), lambda s: Binary("+", times(s, 2.0), Const(8.0, f32))),
    ],
)
def test_factors_of_a_sum_of_integers_meet_and_those_of_anything_else_do_not(before: Any, after: Any) -> None:
    total = Cast(f32, Read("s", ()))
    assert regrouped(to_byte(before(total)), Names(sums=frozenset("s"))) == to_byte(after(total))
    rounded = Call("round", (total,))
    assert regrouped(to_byte(over(times(rounded, 0.5), 0.25)), Names(sums=frozenset("s"))) == to_byte(over(times(rounded, 0.5), 0.25))


def to_byte(e: Expr) -> Expr:
    return Cast(u8, Binary("+", Call("round", (e,)), Const(0.0, f32)), True)


def over(e: Expr, k: float) -> Expr:
    return Binary("/", e, Const(k, f32))


def times(e: Expr, k: float) -> Expr:
    return Binary("*", e, Const(k, f32))


def relu(e: Expr) -> Expr:
    return Binary("max", e, Const(0.0, f32))


def limited(e: Expr, low: float, high: float) -> Expr:
    return Binary("min", Binary("max", e, Const(low, f32)), Const(high, f32))


def evaluated(e: Expr, number: float) -> float:
    program = single("p", [tensor("x")], tensor("y"), "", e)
    return float(interpret(program, {}, {"x": np.array(number, np.float32)})["y"])
