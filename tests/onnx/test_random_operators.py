"""Random operators draw from the distributions that they name, the same numbers for the same seed, and others for another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper
from onnx_evaluate import Array, run

import tensorlang as tl
from codegen.dtypes import DTYPES
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.tensor.interp import interpret

MANY = 20000


def drawn(op: str, *inputs: Array, name: str = "", opset: int = 22, compiled: bool = False, **attributes: Any) -> Array:
    infos = [helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in enumerate(inputs)]
    node = helper.make_node(op, [i.name for i in infos], ["y"], name=name, **attributes)
    graph = helper.make_graph([node], "g", infos, [ValueInfoProto(name="y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    if compiled:
        return np.asarray(tl.compile(made, threads=1).run({i.name: a for i, a in zip(infos, inputs, strict=True)})["y"])
    return np.asarray(run(made, inputs)[0])


def test_the_words_are_those_of_philox() -> None:
    program = instantiate(library(), "random_bits", (ArgType(DTYPES["f32"], (2,)), ArgType(DTYPES["u32"], ())), {"seed": 0})
    (words,) = interpret(program, {}, {"like": np.zeros(2, np.float32), "turn": np.uint32(0)}).values()
    assert [hex(word) for word in np.asarray(words)[0]] == ["0x6627e8d5", "0xe169c58d"]  # the known answer for a counter and a key of zeros


@pytest.mark.parametrize("like", [True, False])
def test_uniform_numbers(like: bool) -> None:
    low, high = -1.0, 3.0
    if like:
        y = drawn("RandomUniformLike", np.zeros((100, 200), np.float32), low=low, high=high, seed=1.0)
    else:
        y = drawn("RandomUniform", shape=[100, 200], low=low, high=high, seed=1.0)
    assert y.dtype == np.float32 and y.shape == (100, 200) and low < y.min() and y.max() < high
    counts = np.histogram(y, 16, (low, high))[0]
    assert ((counts - MANY / 16) ** 2 / (MANY / 16)).sum() < 40  # chi square of 15 degrees: one in a thousand is above 37.7


@pytest.mark.parametrize("like", [True, False])
def test_normal_numbers(like: bool) -> None:
    if like:
        y = drawn("RandomNormalLike", np.zeros((100, 200), np.float32), mean=2.0, scale=3.0, seed=1.0)
    else:
        y = drawn("RandomNormal", shape=[100, 200], mean=2.0, scale=3.0, seed=1.0)
    z = (y.astype(np.float64).reshape(-1) - 2) / 3
    assert abs(z.mean()) < 4 / MANY**0.5 and abs((z**2).mean() - 1) < 6 / MANY**0.5
    assert abs((z**3).mean()) < 16 / MANY**0.5 and abs((z**4).mean() - 3) < 40 / MANY**0.5
    assert abs((z[1:] * z[:-1]).mean()) < 4 / MANY**0.5
    for limit, share in ((-1.0, 0.158655), (0.0, 0.5), (2.0, 0.97725)):
        assert abs((z < limit).mean() - share) < 0.015


def test_trials() -> None:
    p = np.linspace(0, 1, MANY).astype(np.float32)
    y = drawn("Bernoulli", p, seed=3.0)
    assert y.dtype == np.float32 and set(np.unique(y)) == {0.0, 1.0} and y[0] == 0
    for part, mean in ((y[: MANY // 4], 0.125), (y[-MANY // 4 :], 0.875)):
        assert abs(part.mean() - mean) < 0.03
    assert drawn("Bernoulli", p[:4], dtype=TensorProto.INT32).dtype == np.int32


def test_classes_by_what_they_weigh() -> None:
    weights = np.array([[1, 2, 0, 5], [4, 4, 1, 1]], np.float32)
    with np.errstate(divide="ignore"):
        y = drawn("Multinomial", np.log(weights), sample_size=8000, seed=2.0, dtype=TensorProto.INT64)
    assert y.dtype == np.int64 and y.shape == (2, 8000)
    for row, weight in zip(y, weights, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / 8000, weight / weight.sum(), atol=0.03)
    assert drawn("Multinomial", np.log(weights[:, :2])).shape == (2, 1)


def test_the_seed_or_else_the_name_says_what_is_drawn() -> None:
    one, same, other = (drawn("RandomNormal", shape=[8], seed=seed) for seed in (1.0, 1.0, 2.0))
    np.testing.assert_array_equal(one, same)
    assert not np.any(one == other)
    named = [drawn("RandomNormal", shape=[8], name=name) for name in ("a", "a", "b")]
    np.testing.assert_array_equal(named[0], named[1])
    assert not np.any(named[0] == named[2])


def test_compiled_code_draws_what_the_interpreter_draws() -> None:
    x = np.zeros((3, 5), np.float32)
    for op, attributes in (("RandomNormalLike", {"dtype": TensorProto.FLOAT16}), ("RandomUniformLike", {"high": 4.0})):
        one, other = (drawn(op, x, seed=7.0, compiled=compiled, **attributes) for compiled in (False, True))
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=1e-3, atol=1e-6)


def test_no_numbers_are_drawn_for_nothing() -> None:
    assert drawn("RandomNormalLike", np.zeros((0, 3), np.float32)).shape == (0, 3)
    y = drawn("RandomUniform", shape=[0], dtype=TensorProto.DOUBLE)
    assert y.shape == (0,) and y.dtype == np.float64
