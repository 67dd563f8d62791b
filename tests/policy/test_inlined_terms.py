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


def test_components_of_vectors_are_inlined_into_maps_of_these() -> None:
    signature, body = (
        "p: f64[T, 3, 2], q: f64[T, 2]) -> (y: f64[T])",
        """
        d[t, v, c] = p[t, v, c] - q[t, c]
        n[t, v]    = d[t, v, 0] * d[t, v, 0] + d[t, v, 1] * d[t, v, 1]
        y[t]       = d[t, 0, 0] * (d[t, 1, 1] * n[t, 2] - d[t, 2, 1] * n[t, 1]) - n[t, 0] * d[t, 2, 0]""",
    )
    assert inlined(signature, body, {"T": 37}) == ["inline d", "inline n"]


def test_tensors_that_nothing_reads_go_with_what_is_inlined() -> None:
    body = "dead[i, k] = x[i, k] + 1\n d[i, k] = x[i, k] - 2\n y[i] = d[i, 0] * d[i, 1]   for i in 0..37"
    assert inlined("x: i32[37, 2]) -> (y: i32[37])", body, {}) == ["inline d"]


def test_maps_of_maps_grow_only_so_far() -> None:
    steps = [f"u{k}[t, c] = u{k - 1}[t, (c + 1) % 3] * u{k - 1}[t, c] + u{k - 1}[t, (c + 2) % 3]" for k in range(1, 7)]
    body = "\n".join(["u0[t, c] = exp(x[t, c])", *steps, "y[t] = u6[t, 0] + u6[t, 1] * u6[t, 2]"])
    assert len(inlined("x: f32[T, 3]) -> (y: f32[T])", body, {"T": 5})) < 6


NIBBLES = """
    w[m, k] = f32(bitand(shr(q[m, k // 2], u8(4 * (k % 2))), 15)) * s[m, k // 32]   for m in 0..M, k in 0..N
    y[m]    = sum(k) w[m, k] * x[k]"""


def test_what_is_made_in_phases_is_made_in_those_of_the_sum_that_reads_each_element_for_one_term() -> None:
    signature = "q: u8[M, N], s: f32[M, N], x: f32[N]) -> (y: f32[M])"
    assert inlined(signature, NIBBLES, {"M": 5, "N": 96}) == ["inline w"]
    several = NIBBLES.replace("y[m]", "y[m, n]").replace("x[k]", "x[k, n]")
    assert inlined("q: u8[M, N], s: f32[M, N], x: f32[N, 3]) -> (y: f32[M, 3])", several, {"M": 5, "N": 96}) == []


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
