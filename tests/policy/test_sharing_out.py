"""What is given to threads: outer loops with iterations for all of them, copies, and nothing that one thread does sooner alone."""

from collections.abc import Mapping

import numpy as np
import pytest

import tensorlang as tl
from codegen.dtypes import f32
from stdlib.library import library
from tensorlang.backends.cpu.driver import plan_kernel
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.planning import Rules, Scheduled
from tensorlang.policy.deriver import shared_loops
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.tensor.nodes import Program


@pytest.mark.parametrize(
    ("trips", "chosen"),
    [
        ({"n": 1, "jo": 7, "h": 14}, ("jo", "h")),
        ({"n": 1, "jo": 64, "h": 14}, ("jo",)),
        ({"n": 1, "jo": 1}, ()),
        ({"n": 2, "jo": 1, "h": 3}, ("n", "h")),
        ({}, ()),
    ],
)
def test_outer_loops_are_taken_until_two_threads_have_iterations_enough(trips: Mapping[str, int], chosen: tuple[str, ...]) -> None:
    assert shared_loops(list(trips), list(trips.values()), 2) == chosen


def parallel(operator: str, shapes: list[tuple[int, ...]], threads: int = 2, **attrs: object) -> list[str]:
    """Return the `parallel` directives of the library's schedule."""
    program = instantiate(library(), operator, [ArgType(f32, s) for s in shapes], attrs)
    found = scheduled(operator, program, attrs, threads)
    return [line.strip() for line in str(found.schedule).splitlines() if line.strip().startswith("parallel")]


def scheduled(operator: str, program: Program, attrs: Mapping[str, object], threads: int) -> Scheduled:
    """Return what the library's schedules, and what is derived where none of them applies, come to."""
    return plan_kernel(program, Machine(target="cpu", threads=threads), rules=Rules(library(), operator, attrs))


def test_threads_that_share_a_depthwise_convolution_copy_its_padded_input_each_for_itself() -> None:
    attrs = {"lo": (1, 1), "hi": (1, 1), "group": 32}
    program = instantiate(library(), "conv", [ArgType(f32, s) for s in ((1, 32, 28, 28), (32, 1, 3, 3), (32,))], attrs)
    text = str(scheduled("conv", program, attrs, 2).schedule)
    assert "pack x at y." in text and "parallel y.g" in text


@pytest.mark.parametrize(
    ("operator", "shapes", "threads"),
    [("add", [(100,), (100,)], 2), ("matmul", [(16, 16), (16, 16)], 2), ("matmul", [(512, 512), (512, 512)], 1)],
)
def test_little_work_and_one_thread_stay_serial(operator: str, shapes: list[tuple[int, ...]], threads: int) -> None:
    assert parallel(operator, shapes, threads) == []


@pytest.mark.parametrize(("operator", "shapes"), [("add", [(512, 512), (512, 512)]), ("matmul", [(256, 256), (256, 256)])])
def test_much_work_is_shared(operator: str, shapes: list[tuple[int, ...]]) -> None:
    assert parallel(operator, shapes)


@pytest.mark.parametrize("size", [1 << 17, 100_003])
def test_a_sum_of_everything_is_made_of_partial_sums_by_all_threads(size: int) -> None:
    program = instantiate(library(), "reduce_sum", [ArgType(f32, (size,))], {"axis": 0, "count": 1})
    found = scheduled("reduce_sum", program, {"axis": 0, "count": 1}, 2)
    assert "rfactor" in str(found.schedule) and "parallel y.part." in str(found.schedule)
    proven(program, found.schedule)


def test_a_short_sum_and_one_for_one_thread_are_made_at_once() -> None:
    for size, threads in ((1000, 2), (1 << 20, 1)):
        program = instantiate(library(), "reduce_sum", [ArgType(f32, (size,))], {"axis": 0, "count": 1})
        found = scheduled("reduce_sum", program, {"axis": 0, "count": 1}, threads)
        assert "rfactor" not in str(found.schedule)


def test_a_sum_of_everything_is_right_on_every_number_of_threads() -> None:
    text = "op all(x: f64[N]) -> (y: f64[]) { y[] = sum(i) x[i] }"
    for size in (70_001, 1 << 16):
        x = np.random.default_rng(0).random(size)
        for threads in (1, 2):
            found = tl.parse(text, threads=threads).all(x)
            # The error of a sum of n positive numbers is at most n rounding errors of it.
            np.testing.assert_allclose(found, x.sum(), rtol=size * np.finfo(np.float64).eps)
