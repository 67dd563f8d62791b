"""What nobody scheduled runs on a graphics processor too, in every order of threads."""

from __future__ import annotations

import pytest
from device_programs import assert_computed, called, normal
from executors import Executor
from usual_device import derive_device

from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op total(x: f32[N]) -> (y: f32[]) {
    y = sum(i) x[i]
}

op greatest(x: f32[M, N]) -> (y: f32[M]) {
    y[i] = max(j) x[i, j]
}

op running(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, 0] = x[i, 0]
    y[i, j] = y[i, j - 1] + x[i, j]   for j in 1..N
}

op attended(q: f32[S, D], k: f32[T, D], v: f32[T, D]) -> (o: f32[S, D]) {
    p[i, j] = if j <= i then 0.125 * sum(d) q[i, d] * k[j, d] else -inf
    m[i] = max(j) p[i, j]
    e[i, j] = exp(p[i, j] - m[i])
    z[i] = sum(j) e[i, j]
    o[i, d] = (sum(j) e[i, j] * v[j, d]) / z[i]
}
""",
        )
    )
)


@pytest.mark.parametrize(
    ("operator", "arrays", "attrs"),
    [
        ("add", (normal(8, 1, 5), normal(7, 1)), {}),
        ("softmax", (normal(6, 100),), {"axis": 1}),
        ("softmax", (normal(3, 2, 1000),), {"axis": 2}),
        ("softmax", (normal(3, 40, 7),), {"axis": 1}),
        ("transpose", (normal(5, 7, 9),), {"perm": (2, 0, 1)}),
        ("matmul", (normal(33, 20), normal(20, 17)), {}),
        ("layer_norm", (normal(6, 200), normal(200), normal(200)), {"axis": 1}),
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_operators_of_the_library_run_as_the_interpreter_says(operator, arrays, attrs, executor: Executor):
    program = called(operator, *arrays, **attrs)
    assert_computed(executor, program, derive_device(program), *arrays)


@pytest.mark.parametrize(("operator", "shape"), [("total", (100,)), ("total", (50_000,)), ("greatest", (7, 300)), ("running", (40, 30))])
def test_sums_of_everything_rows_and_recurrences_run_as_the_interpreter_says(operator, shape, executor: Executor):
    x = normal(*shape)
    program = called(operator, x, module=OWN)
    assert_computed(executor, program, derive_device(program), x)


def test_a_product_with_something_that_other_equations_read_as_well_runs_as_the_interpreter_says(executor: Executor):
    q, k, v = normal(19, 16), normal(23, 16), normal(23, 16)
    program = called("attended", q, k, v, module=OWN)
    assert_computed(executor, program, derive_device(program), q, k, v)
