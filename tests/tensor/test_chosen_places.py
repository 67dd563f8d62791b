"""A reduction whose binder chooses by its value where it reads has a term for each value, which reads at a plain index."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from scheduled_programs import operator

from tensorlang.tensor.chosen_places import with_chosen_places
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Dynamic, Program
from tensorlang.tensor.walk import reads

UP = "(if k == 0 then -1 else if k == 1 then 1 else 0)"
ASIDE = "(if k == 2 then -1 else if k == 3 then 1 else 0)"


def with_result(body: str, result: str = "y: f32[7, 9]") -> Program:
    return operator(f"x: f32[7, 9], a: i64[7]) -> ({result})", f"{body} for i in 0..7, j in 0..9")


def moving(program: Program) -> int:
    """Return how many indices are computed as values, once terms are written out."""
    found = (r for d in with_chosen_places(program).definitions for p in d.pieces for r in reads(p.value))
    return sum(isinstance(slot, Dynamic) for r in found for slot in r.index)


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (f"y[i, j] = sum(k in 0..4) x[i + {UP}, j + {ASIDE} | 0]", "y: f32[7, 9]"),
        (f"y[i, j] = max(k in 0..4) (let u = i + {UP} in let v = j + 2 * {ASIDE} in x[u, v | clamp] * x[v, u | 1])", "y: f32[7, 9]"),
        (f"y[i, j] = sum(k in 0..4, k != 2) x[i - {UP}, j | wrap]", "y: f32[7, 9]"),
        (f"y[i, j], p[i, j] = first_min(k in 0..4) (x[i + {UP}, j + {ASIDE} | clamp] - x[i, j], k)", "y: f32[7, 9], p: i64[7, 9]"),
        ("y[i, j] = sum(k in 1..4, l in 0..2) x[(if k < 2 then i else k), (if l == 0 then j else 8 - j) | clamp]", "y: f32[7, 9]"),
    ],
)
def test_places_that_a_binder_chooses_are_indices(body: str, result: str) -> None:
    program = with_result(body, result)
    assert moving(program) == 0
    x = np.random.default_rng(1).choice([-0.0, 0, 1.5, np.inf, 2], (7, 9)).astype(np.float32)
    given = {"x": x, "a": np.zeros(7, np.int64)}
    want, found = (interpret(p, {}, given) for p in (program, with_chosen_places(program)))
    for name in program.results:
        assert_same_bits(found[name], want[name])


@pytest.mark.parametrize(
    "body",
    [
        "y[i, j] = sum(k in 0..2) x[a[i] + (if k == 0 then -1 else 1), j | 0]",
        "y[i, j] = sum(k in 0..2) x[i + (if a[k] == 0 then -1 else 1), j | 0]",
        "y[i, j] = sum(k in 0..2) x[i + (if k == 0 then -1 else 1), j]",
        "y[i, j] = sum(k in 0..99) x[i + (if k == 0 then -1 else 1), j | 0]",
        "y[i, j] = sum(k in 0..2, x[k, j] > 0) x[i + (if k == 0 then -1 else 1), j | 0]",
    ],
    ids=["of data", "by data", "perhaps outside", "many values", "for terms that data leave"],
)
def test_other_places_stay_values(body: str) -> None:
    assert moving(with_result(body)) > 0
