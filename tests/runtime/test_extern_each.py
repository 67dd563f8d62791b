"""Kernels of operators that take or return `each` of several tensors: told how many there are, and where."""

from __future__ import annotations

from typing import Any

import extern_kernels as kernels
import numpy as np
import pytest
from onnx import TensorProto, helper

import tensorlang as tl
from tensorlang.runtime.specialization import Sizes

JOINED = "extern op joined(each x: f32[each N]) -> (y: f32[sum(N..)])\n"
PARTED = "extern op parted(x: f32[sum(N..)], size N..) -> (each y: f32[each N])\n"
GIVEN = {"joined": tl.llvm_ir(kernels.joins(), "joins"), "parted": tl.llvm_ir(kernels.joins(apart=True), "joins")}
AROUND = """
op around(a: f32[M], b: f32[K]) -> (y: f32[2*M + K]) {
    c[i] = a[i] + 1
    t = joined(c, a, b)
    y[i] = 2 * t[i]
}
op swapped(x: f32[5]) -> (y: f32[5]) {
    a, b = parted(x, N=(2, 3))
    y = joined(b, a)
}
"""


def operators(sizes: Sizes = "static") -> tl.Operators:
    return tl.parse(JOINED + PARTED + AROUND, externs=GIVEN, sizes=sizes)


def arrays(*lengths: int) -> list[Any]:
    return [np.arange(n, dtype=np.float32) + 10 * k for k, n in enumerate(lengths)]


@pytest.mark.parametrize("sizes", ["static", "auto", "symbolic"])
@pytest.mark.parametrize("lengths", [(3,), (2, 5), (4, 0, 1), (0, 0)])
def test_a_kernel_takes_as_many_tensors_as_a_call_gives(sizes: Sizes, lengths: tuple[int, ...]) -> None:
    xs = arrays(*lengths)
    np.testing.assert_array_equal(operators(sizes).joined(xs), np.concatenate(xs))


@pytest.mark.parametrize("lengths", [(1,), (2, 3), (0, 4, 1)])
def test_a_kernel_returns_each_of_several_tensors(lengths: tuple[int, ...]) -> None:
    x = np.arange(sum(lengths), dtype=np.float32)
    found = operators().parted(x, N=lengths)
    for part, wanted in zip(found if len(lengths) > 1 else (found,), np.split(x, np.cumsum(lengths)[:-1]), strict=True):
        np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize("sizes", ["static", "auto", "symbolic"])
def test_such_a_kernel_is_called_inside_of_operators(sizes: Sizes) -> None:
    ops = operators(sizes)
    for shape in ((2, 3), (4, 1), (0, 3), (1, 1)):
        a, b = arrays(*shape)
        np.testing.assert_array_equal(ops.around(a, b), 2 * np.concatenate([a + 1, a, b]))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(ops.swapped(x), x[[2, 3, 4, 0, 1]])


def test_one_tensor_may_be_several_of_them() -> None:
    text = "op thrice(x: f32[M]) -> (y: f32[3*M]) { y = joined(x, x, x) }"
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(tl.parse(JOINED + text, externs={"joined": GIVEN["joined"]}).thrice(x), np.tile(x, 3))


def test_such_a_kernel_is_held_against_its_body() -> None:
    body = "{ y[before(N) + j] = x[j]   for each x }"
    ops = tl.parse(JOINED.rstrip() + body, externs={"joined": GIVEN["joined"]})
    assert tl.check_extern(ops.joined) == 32
    assert tl.check_extern(ops.joined, arrays(2, 3), trials=3) == 3
    assert tl.check_extern(operators().joined, trials=4, against=np.concatenate) == 4
    parts = tl.check_extern(operators().parted, trials=4, against=lambda x, N: tuple(np.split(x, np.cumsum(N)[:-1])))
    assert parts == 4
    wrong = kernels.joins().replace("%at = add i64 %begin, %i", "%at = add i64 %i, 0")
    with pytest.raises(tl.CompileError, match="C0120"):
        tl.check_extern(tl.parse(JOINED.rstrip() + body, externs={"joined": tl.llvm_ir(wrong, "joins")}).joined)


def test_such_a_kernel_is_a_node_of_a_model() -> None:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name, n in (("a", 2), ("b", 3))]
    nodes = [helper.make_node("joined", ["a", "b", "a"], ["t"], domain="mine"), helper.make_node("Neg", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)], ir_version=8)
    a, b = arrays(2, 3)
    np.testing.assert_array_equal(tl.compile(model, operators=operators()).run({"a": a, "b": b})["y"], -np.concatenate([a, b, a]))


def test_the_header_declares_how_many_there_are_and_where_their_pointers_stand() -> None:
    header = operators().joined.c_header
    assert "float *y,\n    int64_t x_count, const float *const *x,\n    int64_t N_rank, const int64_t *N);" in header
    assert "int64_t y_count, float *const *y,\n    const float *x," in operators().parted.c_header
