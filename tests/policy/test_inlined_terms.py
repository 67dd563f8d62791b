"""What sums need for their terms is made again where it is read, where that takes less than to store and to load it."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show

MACHINE = Machine(target="cpu", threads=1)
EDGES = """
    w[i, t, k] = a[t, k] * x[i] + b[t, k]   for i in 0..N, t in 0..M, k in 0..2
    y[i]       = min(t, w[i, t, 0] >= 0, w[i, t, 1] >= 0, from 1000) (w[i, t, 0] + w[i, t, 1])"""
SIGNATURE = "x: f32[N], a: f32[M, 2], b: f32[M, 2]) -> (y: f32[N])"


def inlined(signature: str, body: str, sizes: dict[str, int]) -> list[str]:
    program = operator(signature, body, sizes)
    schedule = derive(program, MACHINE)
    assert_same(program, proven(program, schedule), {})
    return [show(x) for x in schedule.directives if x.name == "inline"]


def test_few_elements_of_a_map_are_inlined_terms_for_each_term() -> None:
    assert inlined(SIGNATURE, EDGES, {"N": 40, "M": 30}) == ["inline w"]


LONG = " + ".join(f"exp(a[t, k] * x[i] + {k})" for k in range(3))


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        pytest.param(SIGNATURE, EDGES.replace("a[t, k] * x[i] + b[t, k]", LONG), id="what takes many operations"),
        pytest.param(SIGNATURE, EDGES + " + w[i, 0, 0]", id="what is read outside of the sums"),
        pytest.param(SIGNATURE.replace("(y:", "(w: f32[N, M, 2], y:"), EDGES, id="a result"),
        pytest.param(
            "x: f32[N], a: f32[M, 2], b: f32[M, 2]) -> (y: f32[N])",
            "w[i, t] = a[t, 0] * x[i] + b[t, 1]\n y[i] = sum(t) abs(w[i, t])",
            id="what shares the loops of its sum",
        ),
        pytest.param("x: f32[N, M]) -> (y: f32[N])", "w[i, t] = x[i, t] * x[i, t]\n y[i] = max(t in 0..3) w[i, t + 1]", id="windows"),
    ],
)
def test_others_are_stored_or_share_loops(signature: str, body: str) -> None:
    assert inlined(signature, body, {"N": 40, "M": 9}) == []
