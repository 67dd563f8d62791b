"""`at` of tensors that share their loops: what readers need of any of them is computed of all, anew for each iteration."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.diagnostics import CompileError

GRADIENTS = """
op energy(x: f32[N, M]) -> (y: f32[N - 3, M - 1]) where N >= 3, M >= 1 {
    u[i, j] = x[i + 1, j] - x[i, j]     for i in 0..N-1, j in 0..M-1
    v[i, j] = x[i, j + 1] - x[i, j]     for i in 0..N-1, j in 0..M-1
    p[i, j] = u[i, j] * u[i, j]         for i in 0..N-1, j in 0..M-1
    q[i, j] = u[i, j] * v[i, j]         for i in 0..N-1, j in 0..M-1
    y[i, j] = p[i, j] + p[i + 2, j] + q[i + 1, j]
}
"""
STRIPS = """
    together u, v, p, q -> i, j
    split u.j by 4 -> jo, jv
    order u.i, u.jo, u.jv
    vectorize u.jv
    split y.i by {rows} -> ib, ii
    at u at y.ib
"""
APART = """
op apart(x: f32[N]) -> (y: f32[N - 2]) where N >= 2 {
    u[i] = 2 * x[i]
    v[i] = u[i] + u[min(i + 1, N - 1)]
    y[i] = v[i] + v[i + 2]   for i in 0..N-2
}
"""


def energy(x: np.ndarray) -> np.ndarray:
    u, v = (x[1:] - x[:-1])[:, :-1], (x[:, 1:] - x[:, :-1])[:-1]
    return (u * u)[:-2] + (u * u)[2:] + (u * v)[1:-1]


@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize(("n", "m"), [(3, 1), (4, 2), (9, 6), (11, 13)])
def test_strips_of_several_tensors_are_what_these_are(rows: int, n: int, m: int) -> None:
    op = tl.parse(GRADIENTS, threads=1, sizes="symbolic").energy.schedule(STRIPS.format(rows=rows))
    x = (np.arange(n * m, dtype=np.float32) ** 2 % 11).reshape(n, m)
    np.testing.assert_array_equal(op(x), energy(x))


def test_what_only_tensors_of_the_shared_loops_read_is_kept_in_registers() -> None:
    found: dict[str, str] = {}
    op = tl.parse(GRADIENTS, threads=1).energy.schedule(STRIPS.format(rows=4))
    op.stages(np.ones((11, 13), np.float32), dump=found.__setitem__)
    kept = {line.split()[1].rstrip(":") for line in found["loops"].splitlines() if "alloc" in line and "registers" not in line}
    assert kept == {"p", "q"}
    assert "alloc p: f32[6, 12]" in found["loops"]


def test_tensors_that_need_each_other_elsewhere_stay_at_the_root() -> None:
    op = tl.parse(APART, threads=1).apart.schedule("together u, v -> i\nsplit y.i by 4 -> ib, ii\nat u at y.ib")
    with pytest.raises(CompileError, match="need each other at other points than their own"):
        op(np.ones(9, np.float32))


LEAST = """
op least(x: f32[N, 4]) -> (y: f32[N - 2]) where N >= 2 {
    v[i], at[i] = first_min(k) (x[i, k], k)
    y[i] = v[i] + f32(at[i + 2])   for i in 0..N-2
}
"""


def test_what_one_equation_makes_together_is_computed_inside_by_its_first_name() -> None:
    op = tl.parse(LEAST, threads=1).least.schedule("split y.i by 4 -> ib, ii\nat v at y.ib")
    x = np.random.default_rng(1).integers(-3, 3, (13, 4)).astype(np.float32)
    assert (op(x) == x.min(1)[:-2] + x.argmin(1)[2:]).all()
