"""What one thread of a block does alone needs no barrier, however its loops run: there is nobody to meet."""

from __future__ import annotations

from scheduled_programs import legal
from usual_device import device_loops

from codegen.loops.nodes import Barrier
from codegen.loops.walk import walk
from tensorlang.lower.barriers import exposed

SWEEP = """op sweep(x: i32[M, N]) -> (y: i32[M, N]) {
    y[i, j] = x[i, j]                                   for i < 1
    y[i, j] = x[i, j]                                   for i >= 1, j < 1
    y[i, j] = x[i, j] + y[i - 1, j] - y[i, j - 1]   otherwise
}

schedule sweep for cuda {
    skew y.j by y.i
    tile y (y.i, y.j) by (8, 4) -> io, jo, ii, ji
}
"""


def test_a_sweep_in_skewed_tiles_by_one_thread_has_no_barrier():
    _, plan = legal(SWEEP)
    function = device_loops(plan, "kernel").function
    assert exposed(function) is None
    assert not any(isinstance(n, Barrier) for n in walk(*function.body))
