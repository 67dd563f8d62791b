"""Reducers of several values of which each is combined by itself: as many reductions, which run as any others do."""

from __future__ import annotations

import numpy as np
import pytest
from scheduled_programs import argument

import tensorlang as tl
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import reduces

SPREAD = """reducer spread (a, b) (c, d) from (inf, -inf) = (min(a, c), max(b, d))
    lift v = (v, v)
"""
YIELDED = f"{SPREAD}    yield (a, b) = b - a\n"
MOMENTS = """reducer moments (n, s, q) (m, t, r) from (0, 0, 0) = (n + m, s + t, q + r)
    lift v = (1, v, v * v)
    yield (n, s, q) = q / n - (s / n) * (s / n)
"""
OFTEN = """reducer often (m, c) (n, d) from (-inf, 0) = (max(m, n), if m > n then c else if n > m then d else c + d)
    lift v = (v, 1)
    yield (m, c) = m + c
"""
ROWS = "op f(x: f32[N, K]) -> (y: f32[N]) where K >= 1 {\n    y[i] = REDUCER(k) x[i, k]\n}\n"
BOTH = "op f(x: f32[N, K]) -> (y: f32[N], z: f32[N]) where K >= 1 {\n    y[i], z[i] = spread(k) x[i, k]\n}\n"


def program(text: str) -> Program:
    module = load_module(parse(Source("f.tl", text)))
    return instantiate(module, "f", [argument(p, {"N": 40, "K": 300}) for p in module.operators["f"].params])


def kinds(text: str) -> list[str | None]:
    return [r.reducer.kind for d in program(text).definitions for p in d.pieces for r in reduces(p.value)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (YIELDED + ROWS.replace("REDUCER", "spread"), {"min", "max"}),
        (SPREAD + BOTH, {"min", "max"}),
        (MOMENTS + ROWS.replace("REDUCER", "moments"), {"sum"}),
        (OFTEN + ROWS.replace("REDUCER", "often"), {None}),
        ("ordered " + MOMENTS + ROWS.replace("REDUCER", "moments"), {None}),
    ],
    ids=["yielded", "two results", "one of them twice", "one needs another", "in order"],
)
def test_values_that_are_combined_by_themselves_are_reductions_by_themselves(text: str, found: set[str | None]) -> None:
    assert {*kinds(text)} == found


def test_their_rows_run_in_lanes() -> None:
    for text in (YIELDED + ROWS.replace("REDUCER", "spread"), SPREAD + BOTH, MOMENTS + ROWS.replace("REDUCER", "moments")):
        assert any(show(d).startswith("vectorize y.k") for d in derive(program(text), Machine(target="cpu", threads=1)).directives)


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_they_come_to_what_they_do_together(columns: int) -> None:
    x = np.random.default_rng(columns).integers(-9, 10, (7, columns)).astype(np.float32)
    x[2, -1] = np.nan
    low, high = tl.parse(SPREAD + BOTH).f(x)
    np.testing.assert_array_equal(low, x.min(axis=1))
    np.testing.assert_array_equal(high, x.max(axis=1))
    np.testing.assert_array_equal(tl.parse(YIELDED + ROWS.replace("REDUCER", "spread")).f(x), x.max(axis=1) - x.min(axis=1))
    np.testing.assert_allclose(tl.parse(MOMENTS + ROWS.replace("REDUCER", "moments")).f(x), x.var(axis=1), rtol=1e-4, atol=1e-5)
