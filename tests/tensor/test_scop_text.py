"""The statements of a program as text: instances, what each writes, what it reads."""

from __future__ import annotations

from strategies_tensor import matmul

from tensorlang.tensor.scop import show, to_scop

EXPECTED = """\
y.0.acc.init  { [i, j] : i >= 0 and i < M and j >= 0 and j < N }
    init    y.0.acc[i, j]
y.0.acc  { [i, j, k] : i >= 0 and i < M and j >= 0 and j < N and k >= 0 and k < K }
    update  y.0.acc[i, j]    reads a[i, k], b[k, j]
y.0  { [i, j] : i >= 0 and i < M and j >= 0 and j < N }
    define  y[i, j]    reads y.0.acc[i, j]
"""


def test_a_product_is_three_statements() -> None:
    assert show(to_scop(matmul())) == EXPECTED
