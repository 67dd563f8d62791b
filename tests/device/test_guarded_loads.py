"""Neighbours are loaded at once only where all of them would be loaded one by one."""

from __future__ import annotations

import numpy as np
from device_programs import assert_computed, called, kernels_of
from executors import Executor

from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op padded(x: f32[M, K]) -> (y: f32[64, K]) {
    y[i, j] = x[i, j | 0] + 1
}

op fringe(x: f32[M, K]) -> (y: f32[M, K]) {
    y[i, j] = if j > 0 then x[i, j] else 0
}
""",
        )
    )
)


def by_fours(name: str, rows: int) -> Schedule:
    schedule = Schedule(name, "cuda").split("i", rows, ("io", "ii")).split("j", 4, ("jo", "jv"))
    return schedule.order("io", "ii", "jo", "jv").bind("io", "ii", "jo", to=("block.x", "thread.y", "thread.x")).vectorize("jv")


def test_rows_that_are_not_there_are_not_loaded_in_vectors(executor: Executor) -> None:
    x = np.random.default_rng(1).standard_normal((37, 16)).astype(np.float32)
    program = called("padded", x, module=OWN)
    assert "? tl_load_f32x4(" in kernels_of(program, by_fours("padded", 16)).text
    assert_computed(executor, program, by_fours("padded", 16), x, seeds=(0, 5))


def test_a_condition_on_the_lane_keeps_loads_apart(executor: Executor) -> None:
    x = np.random.default_rng(2).standard_normal((8, 16)).astype(np.float32)
    program = called("fringe", x, module=OWN)
    assert "tl_load_f32x4" not in kernels_of(program, by_fours("fringe", 8)).text
    assert_computed(executor, program, by_fours("fringe", 8), x, seeds=(0,))
