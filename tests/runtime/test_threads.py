"""The number of threads that was asked for is the number that runs."""

from collections.abc import Iterator

import numpy as np
import pytest

import tensorlang as tl
from codegen.llvm import pool
from codegen.llvm.pool import available_threads

TEXT = """
op scale(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, j] = x[i, j] * 2
}

schedule scale for cpu {
    parallel i
}
"""


@pytest.fixture
def regions() -> Iterator[None]:
    before = pool.threads()
    yield
    pool.set_threads(before)


def test_an_operator_for_one_thread_runs_a_parallel_schedule_serially() -> None:
    one, many = (tl.parse(TEXT, threads=count).scale for count in (1, 2))
    x = np.random.default_rng(0).random((64, 8), np.float32)
    np.testing.assert_array_equal(one(x), many(x))
    assert "parallel i" in one.explain(x) and "parallel" not in loops(one.explain(x))
    if available_threads() > 1:
        assert "parallel" in loops(many.explain(x))


def loops(report: str) -> str:
    """Return the loops of a report."""
    return report[report.index("func ") : report.index("proven ")]


def test_a_call_uses_the_threads_its_operator_was_made_for(regions: None) -> None:
    many = tl.parse(TEXT, threads=2).scale
    x = np.zeros((64, 8), np.float32)
    many(x)
    pool.set_threads(1)
    many(x)
    assert pool.threads() == min(2, available_threads())
