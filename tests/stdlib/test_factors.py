"""Factors of matrices, of which a block of columns is computed at a time, are those of the matrix with its rows exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.graph.passes.clean.inline_locals import inlined_program
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.tensor.interp import interpret

Array = np.ndarray[Any, Any]


def matrices(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape)


def check(x: Array, lu: Array, p: Array, fault: Array) -> None:
    """Assert that the factors make the matrix again, that none below the diagonal is greater than 1, and that no pivot is 0."""
    n = len(x)
    lower = np.tril(lu, -1)
    found = (lower + np.eye(n)) @ np.triu(lu)
    for k in reversed(range(n)):
        found[[k, p[k]]] = found[[p[k], k]]
    np.testing.assert_allclose(found, x, rtol=1e-9, atol=1e-9)
    assert np.abs(lower).max() <= 1 and fault == 0


@pytest.mark.parametrize(("n", "block"), [(1, 4), (4, 4), (5, 4), (8, 4), (11, 4), (7, 1), (3, 32)])
def test_factors_make_the_matrix_again_whatever_blocks_it_has(n: int, block: int) -> None:
    x = matrices(n, n)
    program = tl.std.lu_factors.program(x, block=block)
    found = interpret(program, {}, {"x": x})
    check(x, found["lu"], found["p"], found["fault"])


def test_blocks_are_compiled() -> None:
    x = matrices(11, 11)
    check(x, *tl.std.lu_factors(x, block=4))


def test_factors_of_no_matrices_have_a_derived_schedule_in_a_model() -> None:
    program = inlined_program(tl.std.lu_factors.program(matrices(0, 3, 3)))
    assert proven(program, derive(program, Machine(target="cpu", threads=1)))


def test_the_first_pivot_that_is_zero_is_told() -> None:
    x = matrices(6, 6)
    x[:, 4] = 0
    found = interpret(tl.std.lu_factors.program(x, block=2), {}, {"x": x})
    assert found["fault"] == 5


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (6, 3)])
def test_reflections_make_the_matrix_again(shape: tuple[int, int]) -> None:
    x = matrices(*shape)
    factors = interpret(tl.std.householder_factors.program(x), {}, {"x": x})
    v, tau = factors["y"], factors["tau"]
    q = interpret(tl.std.householder_product.program(v, tau), {}, {"v": v, "tau": tau})["q"]
    np.testing.assert_allclose(q @ np.triu(v)[: shape[1]], x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(q.T @ q, np.eye(shape[1]), rtol=1e-12, atol=1e-12)
