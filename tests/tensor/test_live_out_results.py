"""A result stored where another one is computed: every bit stays, and what cannot be stored so has a reason."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from codegen.dtypes import from_numpy
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.live_out import store_together
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.verify import verify

MODULE = load_module(
    parse(
        Source(
            "own.tl",
            """op normed[T](x: T[M, N], r: T[M, N]) -> (s: T[M, N], y: T[M, N]) {
    s[i, j] = T(f32(x[i, j]) + 0.3 * f32(r[i, j]))
    mean[i] = (sum(j) f32(s[i, j])) / f32(N)
    y[i, j] = T(f32(s[i, j]) - mean[i])
}
op total[T](x: T[M, N], r: T[M, N]) -> (s: T[M], y: T[M]) {
    s[i] = sum(j) x[i, j] * r[i, j]
    y[i] = s[i] + s[i]
}
op before[T](x: T[M, N], r: T[M, N]) -> (s: T[M, N], y: T[M, N]) {
    y[i, j] = x[i, j] + r[i, j]
    s[i, j] = y[i, j] * y[i, j]
}
op padded[T](x: T[M, N], r: T[M, N]) -> (s: T[M, N], y: T[M, N + 1]) {
    s[i, j] = x[i, j] + r[i, j]
    y[i, j] = s[i, j] for j in 0..N
    y[i, N] = s[i, 0]
}
op inner[T](x: T[M, N], r: T[M, N]) -> (y: T[M, N]) {
    s[i, j] = x[i, j] + r[i, j]
    y[i, j] = s[i, j] * s[i, j]
}
""",
        )
    )
)


def arrays(dtype: object) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {name: rng.standard_normal((5, 8)).astype(dtype) for name in ("x", "r")}  # type: ignore[arg-type]


def program(operator: str, dtype: object = np.float32) -> Program:
    return instantiate(MODULE, operator, [ArgType(from_numpy(a.dtype), a.shape) for a in arrays(dtype).values()], {}, {})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_both_results_keep_every_bit(dtype: object) -> None:
    before = program("normed", dtype)
    after = store_together(before, "s", "y")
    assert not isinstance(after, str)
    verify(after)
    assert [[t.name for t in d.tensors] for d in after.definitions] == [["mean"], ["y", "s"]] and after.results == before.results
    old, new = (interpret(p, {}, arrays(dtype)) for p in (before, after))
    assert {n: a.tobytes() for n, a in old.items()} == {n: a.tobytes() for n, a in new.items()}


@pytest.mark.parametrize(
    ("operator", "tensor", "other", "why"),
    [
        ("normed", "s", "z", "`z` is no other tensor defined here"),
        ("normed", "s", "s", "`s` is no other tensor defined here"),
        ("inner", "s", "y", "it is no result"),
        ("total", "s", "y", "it is a reduction"),
        ("before", "s", "y", "`y` is computed before"),
        ("padded", "s", "y", "`y` is computed in pieces, or has another shape"),
    ],
)
def test_what_cannot_be_stored_beside_another_result_has_a_reason(operator: str, tensor: str, other: str, why: str) -> None:
    found = store_together(program(operator), tensor, other)
    assert isinstance(found, str) and why in found
