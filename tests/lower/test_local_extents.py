"""How large local tensors of open sizes are: as large as what is touched of them."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, loops, written

from codegen.loops.printer import show
from polyhedral import region
from tensorlang.schedule.check import proven

TILED = """
op f(x: f32[M, K], a: f32[K]) -> (y: f32[K]) where M >= 2, K >= 2 {
    g[i, j] = x[i, j] + 1.0
    s[0, i] = a[i]
    s[t + 1, i] = s[t, i + 1 | 0] + g[M - 1 - t, i | 2] + g[2*i, i | 0] for t in 0..M, i in 0..K
    y[i]    = s[M, i]
}
schedule f for cpu {
    skew s.i by s.t
    tile s (t, i) by (8, 64) -> t_b, i_b, t_s, i_s
    order s.t_b, s.i_b, s.t_s, s.i_s
    fold s at t by 2
}"""


def test_what_tiles_of_a_reader_reach_beyond_a_tensor_has_no_place_in_it() -> None:
    case = written(TILED)
    plan = proven(case.program, case.schedule)
    assert "alloc g: f32[M, K] heap" in show(loops(plan))
    assert_same(case.program, plan, {"M": 19, "K": 70})


ROWS = """
op f(x: f32[M, K]) -> (y: f32[M, K]) {
    g[i, j] = x[i, j] + 1.0
    y[i, j] = g[i, j] * g[i, j - 1 | 0]
}
schedule f for cpu {
    at g at y.i
}"""


def test_what_takes_too_long_to_say_of_a_box_is_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "BOX_LIMIT", 1)
    case = written(ROWS)
    plan = proven(case.program, case.schedule)
    assert "alloc g: f32[M, K]" in show(loops(plan)), "a row at a time where it may take longer"
    assert_same(case.program, plan, {"M": 5, "K": 70})
