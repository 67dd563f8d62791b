"""Derivatives of the library's operators are those that differences of the interpreter show, in f64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.runtime.gradient import GradientOperator
from tensorlang.runtime.operator import Operator
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program

Array = np.ndarray[Any, Any]
LIBRARY = Path(__file__).parents[2] / "stdlib" / "ops"
STEP = 1e-6
PADDED = {"lo": (1, 1), "hi": (1, 1)}
WINDOWS = {"kernel": (3, 3), "stride": (2, 2), **PADDED}
X4 = (2, 2, 5, 5)

# File, operator, what derivatives are by, shapes of the tensors (an array: the tensor itself), attributes
CASES: list[tuple[str, str, tuple[str, ...], list[Any], dict[str, Any]]] = [
    ("linear", "matmul", ("a", "b"), [(2, 3, 4), (4, 2)], {}),
    ("linear", "gemm_nt", ("a", "b", "c"), [(2, 3), (4, 3), (4,)], {}),
    ("linear", "det", ("x",), [(2, 3, 3)], {}),
    ("conv", "conv", ("x", "w", "b"), [X4, (4, 2, 3, 3), (4,)], {"stride": (2, 1), **PADDED}),
    ("conv", "conv", ("x", "w"), [(1, 4, 6, 6), (4, 2, 3, 3)], {"group": 2, "stride": (1, 2), "dilation": (1, 2), **PADDED}),
    (
        "conv",
        "conv_transpose",
        ("x", "w"),
        [(1, 2, 3, 3), (2, 3, 2, 2)],
        {"stride": (2, 2), "lo": (0, 1), "out": (6, 5)},
    ),
    ("conv", "max_pool", ("x",), [X4], WINDOWS),
    ("conv", "max_pool_at", ("x",), [X4], WINDOWS),
    ("conv", "average_pool", ("x",), [X4], WINDOWS),
    ("conv", "lp_pool", ("x",), [X4], {"kernel": (2, 2), "stride": (2, 2), "p": 3.0}),
    ("norm", "batch_norm", ("x", "scale", "bias", "mean", "var"), [X4, (2,), (2,), (2,), (2,)], {}),
    ("norm", "softmax", ("x",), [(3, 4)], {}),
    ("norm", "log_softmax", ("x",), [(3, 4)], {"axis": 0}),
    ("norm", "standardise", ("x",), [(3, 4)], {}),
    ("norm", "l2_normalise", ("x",), [(3, 4)], {}),
    ("reduce", "reduce_mean", ("x",), [(3, 4)], {"axis": 0}),
    ("reduce", "reduce_max", ("x",), [(3, 4)], {}),
    ("reduce", "reduce_prod", ("x",), [(3, 2, 2)], {"axis": 1, "count": 2}),
    ("reduce", "reduce_l2", ("x",), [(3, 4)], {}),
    ("reduce", "reduce_log_sum_exp", ("x",), [(3, 4)], {}),
    ("reduce", "cumsum", ("x",), [(3, 4)], {"axis": 0}),
    ("reduce", "cumprod_reverse", ("x",), [(3, 4)], {"inclusive": 0}),
    ("elementwise", "power", ("a", "b"), [(3, 4), (4,)], {}),
    ("elementwise", "prelu", ("x", "slope"), [(3, 4), (4,)], {}),
    ("elementwise", "maximum", ("a", "b"), [(3, 4), (3, 1)], {}),
    ("elementwise", "clip", ("x",), [(3, 4)], {"lo": 0.3, "hi": 0.8}),
    ("index", "gather", ("x",), [(4, 3), np.array([[0, -1], [2, 0]])], {"axis": 0}),
    ("index", "scatter_elements_add", ("x", "u"), [(4, 2), np.array([[1, 0], [1, 3]]), (2, 2)], {"axis": 0}),
    ("index", "scatter_elements_max", ("x", "u"), [(4, 2), np.array([[1, 0], [1, 3]]), (2, 2)], {"axis": 0}),
    ("recurrent", "gru", ("x", "w", "r", "h0"), [(3, 1, 2), (6, 2), (6, 2), (6,), (6,), (1, 2), np.array([3], np.int32)], {}),
    ("attention", "masked_softmax", ("x",), [(3, 4)], {}),
]


@pytest.mark.parametrize(("file", "name", "by", "tensors", "attrs"), CASES, ids=[f"{c[1]}-{k}" for k, c in enumerate(CASES)])
def test_derivatives_are_those_that_differences_show(
    file: str, name: str, by: tuple[str, ...], tensors: list[Any], attrs: dict[str, Any]
) -> None:
    rng = np.random.default_rng(5)
    operator = tl.load(LIBRARY / f"{file}.tl")[name]
    arrays = [t if isinstance(t, np.ndarray) else rng.uniform(0.2, 1.2, t) for t in tensors]
    forward = operator.program(*arrays, **attrs)
    given = {p.name: a for p, a in zip(forward.params, arrays, strict=True)}
    floats = {n: r for n, r in interpret(forward, {}, given).items() if r.dtype == np.float64}
    slopes = {f"d_{n}": rng.standard_normal(r.shape) for n, r in floats.items()}
    found = derivatives(operator, by, arrays, slopes, attrs)
    for tensor in by:
        direction = rng.standard_normal(given[tensor].shape)
        measured = difference(forward, given, tensor, direction, slopes)
        np.testing.assert_allclose((found[f"d_{tensor}"] * direction).sum(), measured, rtol=1e-4, atol=1e-6, err_msg=tensor)


def derivatives(
    operator: Operator, by: tuple[str, ...], arrays: list[Array], slopes: dict[str, Array], attrs: dict[str, Any]
) -> dict[str, Array]:
    backward = operator.gradient(*by)
    assert isinstance(backward, GradientOperator)
    program = backward.program(*arrays, **slopes, **attrs)
    tensors = dict(zip((p.name for p in program.params), (*arrays, *slopes.values()), strict=True))
    return interpret(program, {}, tensors)


def difference(forward: Program, given: dict[str, Array], tensor: str, direction: Array, slopes: dict[str, Array]) -> float:
    """Return how fast the number changes that `slopes` weigh results to, in one direction of one tensor."""

    def number(step: float) -> float:
        out = interpret(forward, {}, {**given, tensor: given[tensor] + step * direction})
        return float(sum((out[n.removeprefix("d_")] * s).sum() for n, s in slopes.items()))

    return (number(STEP) - number(-STEP)) / (2 * STEP)
