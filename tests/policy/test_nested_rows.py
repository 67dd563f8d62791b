"""What is derived for box filters: rows of one tensor in those of another, in loops that several share, and results bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show

SMALL = Machine(target="cpu", threads=2, vector_bytes=16, vector_registers=16, l2_bytes=3000, cache_bytes=1 << 20)

DENOISED = """
    m[i, j] = sum(p in 0..5, q in 0..5) x[i + p, j + q]                     for i in 0..33, j in 0..20
    s[i, j] = sum(p in 0..5, q in 0..5) x[i + p, j + q] * x[i + p, j + q]   for i in 0..33, j in 0..20
    y[i, j] = max(s[i, j] - m[i, j] * m[i, j], x[i + 2, j + 2])             for i in 0..33, j in 0..20"""
GUIDED = """
    m[i, j] = sum(p in 0..5, q in 0..5) x[i + p - 2, j + q - 2 | clamp]                                     for i in 0..61, j in 0..24
    c[i, j] = sum(p in 0..5, q in 0..5) x[i + p - 2, j + q - 2 | clamp] * x[i + p - 2, j + q - 2 | clamp]   for i in 0..61, j in 0..24
    a[i, j] = c[i, j] - m[i, j]
    b[i, j] = m[i, j] - 3 * a[i, j]
    d[i, j] = sum(p in 0..5, q in 0..5) a[i + p, j + q]                                                     for i in 0..57, j in 0..20
    e[i, j] = sum(p in 0..5, q in 0..5) b[i + p, j + q]                                                     for i in 0..57, j in 0..20
    y[i, j] = d[i, j] * x[i + 2, j + 2] + e[i, j]                                                           for i in 0..57, j in 0..20"""


def derived(signature: str, body: str, machine: Machine = SMALL) -> list[str]:
    """Return the directives that are derived for an operator, which its loops prove right."""
    program = operator(signature, body)
    schedule = derive(program, machine)
    assert_same(program, proven(program, schedule), {})
    return [show(d) for d in schedule.directives]


def test_box_sums_of_the_same_rows_share_their_loops_and_are_kept_for_a_row() -> None:
    said = derived("x: i32[37, 24]) -> (y: i32[33, 20])", DENOISED)
    assert {"compose m.p", "compose s.p", "together m.window, s.window -> i, j", "together m, s, y -> i, j"} <= {*said}
    assert "at m.window at m.i" in said
    assert "parallel m.i" in said


@pytest.mark.parametrize(("l2_bytes", "strip"), [(8000, True), (3000, False)])
def test_windows_over_rows_of_these_are_computed_in_strips_that_fit_a_cache(l2_bytes: int, strip: bool) -> None:
    said = derived("x: i32[61, 24]) -> (y: i32[57, 20])", GUIDED, replace(SMALL, l2_bytes=l2_bytes))
    assert {"at m.window at m.i", "at d.window at d.i", "together m, c, a, b -> i, j", "together d, e, y -> i, j"} <= {*said}
    assert ("at m at d.i_b" in said) == strip


def test_what_a_near_cache_holds_keeps_register_tiles_of_several_rows() -> None:
    said = derived("x: i32[37, 24]) -> (y: i32[33, 20])", DENOISED, replace(SMALL, l2_bytes=1 << 20))
    assert "together m.window, s.window -> i, j" not in said


def test_a_result_that_others_read_in_rows_is_no_part_of_these() -> None:
    said = derived("x: i32[37, 24]) -> (m: i32[33, 20], y: i32[33, 20])", DENOISED)
    assert "together m, s, y -> i, j" in said
    result = derived("x: i32[61, 24]) -> (a: i32[61, 24], y: i32[57, 20])", GUIDED, replace(SMALL, l2_bytes=8000))
    assert not any(d.startswith(("at m at", "at a at")) for d in result)


def test_maps_of_the_same_rows_share_loops_where_as_much_is_stored() -> None:
    body = """
    l[i, j] = min(x[i, j], x[i + 1, j])                                    for i in 0..36, j in 0..24
    h[i, j] = max(x[i, j], x[i + 1, j])                                    for i in 0..36, j in 0..24
    y[i, j] = max(min(h[i, j], h[i, j + 1]), max(l[i, j], l[i, j + 1]))    for i in 0..36, j in 0..23"""
    said = derived("x: i32[37, 24]) -> (y: i32[36, 23])", body)
    assert "together l, h -> i, j" in said and "at l at y.i" in said


def test_tensors_of_unlike_shapes_that_share_loops_are_computed_whole() -> None:
    body = """
    s[i, j] = sum(p in 0..4, q in 0..5) x[i + p, j + q]        for i in 0..58, j in 0..17
    u[i, j] = x[i, j] * 3                                      for i in 0..61, j in 0..21
    v[i, j] = x[i, j] * s[i, j]                                for i in 0..58, j in 0..17
    w[i, j] = sum(q in 0..2) u[i, j + q - 1 | wrap] + u[i, j]  for i in 0..61, j in 0..21
    y[i, j] = v[i, j] + w[i, j]                                for i in 0..58, j in 0..17"""
    derived("x: i32[61, 21]) -> (y: i32[58, 17])", body, replace(SMALL, l2_bytes=6000))
