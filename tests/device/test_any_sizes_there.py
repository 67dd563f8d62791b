"""Operators whose sizes stay open have one kernel on a device, which is right whatever they are: grids follow from those of a call."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest
from executors import Executor
from usual_device import USUAL, device_kernel

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from fake_cuda import FakeCuda

import tensorlang as tl
from codegen.loops.evaluate import evaluate
from stdlib.library import library, roles
from tensorlang.backends.gpu.model import DeviceKernel
from tensorlang.check.definition import representative_program
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.planning import Rules
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import shape_of, tensor_table

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op scaled(x: f32[A, B, M, N], s: f32[N]) -> (y: f32[A, B, M, N]) { y[a, b, i, j] = x[a, b, i, j] * s[j] }

op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    m[i] = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    s[i] = sum(j) e[i, j]
    y[i, j] = e[i, j] / s[i]
}

op product(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }

op blurred(x: f32[C, H, W], w: f32[C, 3]) -> (y: f32[C, H, W]) { y[c, i, j] = sum(q in 0..3) x[c, i, j + q - 1 | 0] * w[c, q] }

op running(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, 0] = x[i, 0]
    y[i, j] = y[i, j - 1] + x[i, j]   for j in 1..N
}
""",
        )
    ),
    [library()],
)


def opened(operator: str, *at: int) -> tuple[Program, DeviceKernel]:
    """Return an operator with all sizes open, and its kernels, made for a call with sizes `at`."""
    program = representative_program(OWN, operator, {}, {})
    assert program is not None
    rules = Rules(roles(), at=dict(zip(program.sizes, at, strict=True)), target=USUAL.target)
    return program, device_kernel(program, "kernel", rules=rules)


@pytest.mark.parametrize(
    ("operator", "calls"),
    [
        ("scaled", [(2, 1, 3, 31), (1, 2, 1, 300), (0, 2, 1, 3)]),
        ("softmax", [(3, 70), (1, 1), (2, 1025)]),
        ("product", [(33, 17, 40), (1, 2, 3), (65, 64, 70)]),
        ("blurred", [(2, 3, 33), (1, 1, 2)]),
        ("running", [(40, 9), (1, 33)]),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_one_kernel_is_right_at_all_sizes(operator: str, calls: list[tuple[int, ...]], executor: Executor) -> None:
    program, kernel = opened(operator, *calls[0])
    built, table = executor.library([kernel.launched]), tensor_table(program)
    for call in calls:
        sizes = dict(zip(program.sizes, call, strict=True))
        rng = np.random.default_rng(1)
        arrays = {p.name: rng.standard_normal(shape_of(p, sizes)).astype(np.float32) for p in program.params}
        found = {r: np.empty(shape_of(table[r], sizes), np.float32) for r in program.results}
        built.run(kernel.launched, sizes, arrays | found, seed=4, outputs=program.results)
        expected = interpret(program, sizes, arrays)
        for r in program.results:
            np.testing.assert_allclose(found[r], expected[r], rtol=1e-5, atol=1e-5)


def test_they_have_the_schedules_of_samples_where_these_are_proven_for_all_sizes() -> None:
    _, product = opened("product", 500, 300, 400)
    assert "contraction" in product.origin
    _, rows = opened("softmax", 50, 400)
    assert "long_row_reduction" in rows.origin and len(rows.launched.launches) == 1


def test_axes_with_many_blocks_are_those_of_which_a_grid_has_the_most() -> None:
    _, kernel = opened("scaled", 2, 3, 5, 7)
    (launch,) = kernel.launched.launches
    assert [evaluate(extent, {"A": 2, "B": 3, "M": 100_000, "N": 7}) for extent in launch.grid] == [100_000, 1, 3]


def doubled(grid: tuple[int, ...], x: int, y: int, n: int) -> None:
    values = np.ctypeslib.as_array((ctypes.c_float * n).from_address(x))
    np.ctypeslib.as_array((ctypes.c_float * n).from_address(y))[:] = 2 * values


def test_operators_of_symbolic_sizes_tell_their_kernel_the_sizes_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda({"twice_0": doubled}).install(monkeypatch)
    twice = tl.parse("op twice(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }", target="cuda:sm_90a", sizes="symbolic").twice
    for n in (5, 1000, 1):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(twice(x), 2 * x)


def test_explain_tells_the_grid_of_a_call_and_show_what_it_follows_from() -> None:
    twice = tl.parse("op twice(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }", target="cuda:sm_90a", sizes="symbolic").twice
    assert "twice_0: 1 blocks" in twice.explain(np.zeros(1000, np.float32))
    stages: dict[str, str] = {}
    twice.stages(np.zeros(1000, np.float32), dump=stages.__setitem__)
    assert "twice_0: (N + " in stages["launches"]
