"""Data that choose among few places, as places of terms do, are asked which, and what they choose is read at plain indices."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from scheduled_programs import operator

from tensorlang.tensor.interp import interpret
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Dynamic, Program
from tensorlang.tensor.walk import reads

LEAST = "best[i], at[i] = first_min(k in 0..4) (x[i + 2 * k], k) for i in 0..7"


def with_places(body: str, places: str = LEAST) -> Program:
    return operator("x: f32[15], z: f32[20]) -> (y: f32[7])", f"{places}\ny[i] = {body} for i in 0..7")


def moving(program: Program) -> int:
    """Return how many indices are computed as values."""
    found = (r for d in lift(program).definitions for p in d.pieces for r in reads(p.value))
    return sum(isinstance(slot, Dynamic) for r in found for slot in r.index)


@pytest.mark.parametrize(
    "body",
    [
        "z[i + 2 * (at[i] // 2) + at[i] % 2] - best[i]",
        "max(p in 0..3) z[at[i] + p]",
        "z[7 - at[6 - i] | clamp] * (let k = 2 * at[i] in z[k] - z[k + 1])",
    ],
    ids=["digits", "in a sum", "at edges"],
)
def test_places_among_few_are_plain_indices(body: str) -> None:
    program = with_places(body)
    assert moving(program) == 0
    rng = np.random.default_rng(1)
    for x in (rng.choice([-0.0, 0, 1.5, np.nan, np.inf, -np.inf], 15), np.full(15, np.nan), np.full(15, np.inf)):
        given = {"x": x.astype(np.float32), "z": rng.standard_normal(20).astype(np.float32)}
        want, found = (interpret(p, {}, given) for p in (program, lift(program)))
        assert_same_bits(found["y"], want["y"])


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ("z[at[i]]", LEAST.replace("0..4", "0..9").replace("2 * k", "k // 2")),
        ("z[at[i]]", LEAST.replace("0..4", "0..4, x[k] > 0")),
        ("z[at[i] + i64(x[i]) | 0]", LEAST),
        ("z[at[i]]", "at[i] = i64(x[i]) % 4 for i in 0..7"),
    ],
    ids=["many", "perhaps none", "beside other data", "no places of terms"],
)
def test_other_places_stay_values(body: str, places: str) -> None:
    assert moving(with_places(body, places)) > 0


def test_a_place_that_may_lie_outside_is_asked_for_as_it_was() -> None:
    assert moving(with_places("z[6 * at[i]]", LEAST.replace("0..4", "0..5").replace("2 * k", "k"))) > 0
