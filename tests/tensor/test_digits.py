"""Data that name a row-major number of axes name each of them."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang as tl

HISTOGRAM = """op counted(l: i64[N]{range}, x: i32[N]) -> (z: i32[3, 4, 5]) {{
    z[p, q, r] = sum(k, {equation}) x[k]   for p in 0..3, q in 0..4, r in 0..5
}}"""


@pytest.mark.parametrize(
    ("equation", "range_", "of_all"),
    [
        ("l[k] == 20 * p + 5 * q + r", " in 0..60", lambda l: l),
        ("r + (q + p * 4) * 5 == l[k]", "", lambda l: l),
        ("l[k] - 7 == 20 * p + 5 * q + r", "", lambda l: l - 7),
        ("l[k] == 20 * p + 5 * r + q", "", None),
        ("l[k] == 20 * p + 5 * q + r + 1", "", lambda l: l - 1),
        ("l[k] == 5 * q + r and p == 1", "", lambda l: np.where((l >= 0) & (l < 20), l + 20, 60)),
    ],
    ids=["in range", "on the right, anywhere", "moved data", "numbers that overlap", "a moved number", "of two"],
)
def test_a_term_is_for_the_element_that_data_name(equation: str, range_: str, of_all: object) -> None:
    rng = np.random.default_rng(3)
    numbers, x = rng.integers(0, 60, 200), rng.integers(-9, 9, 200).astype(np.int32)
    if not range_:
        numbers[:3] = -1, -21, 75
    op = tl.parse(HISTOGRAM.format(equation=equation, range=range_)).counted
    place = np.arange(60).reshape(3, 4, 5)
    if callable(of_all):
        moved = of_all(numbers)
        want = np.array([x[moved == n].sum() for n in place.ravel()], np.int32).reshape(place.shape)
    else:
        p, q, r = np.indices(place.shape)
        want = np.array([x[numbers == n].sum() for n in (20 * p + 5 * r + q).ravel()], np.int32).reshape(place.shape)
    np.testing.assert_array_equal(op(numbers, x), want)


def test_no_element_is_asked_for_each_term() -> None:
    op = tl.parse(HISTOGRAM.format(equation="l[k] == 20 * p + 5 * q + r", range=" in 0..60")).counted
    _, loops = op.explain(np.zeros(50, np.int64), np.zeros(50, np.int32)).split("func ")
    assert "// 20_i64" in loops and "% 5_i64" in loops and "select" not in loops


def test_the_work_that_is_counted_is_that_of_the_terms() -> None:
    op = tl.parse(HISTOGRAM.format(equation="l[k] == 20 * p + 5 * q + r", range=" in 0..60")).counted
    shown = op.explain(np.zeros(5000, np.int64), np.zeros(5000, np.int32))
    (line,) = (line for line in shown.splitlines() if line.startswith("work"))
    assert float(line.split()[1]) <= 10 * 5000
    assert "no directive makes vectors" not in shown
