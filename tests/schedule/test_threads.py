"""What is given to threads: outer loops with iterations for all of them, copies, and nothing that one thread does sooner alone."""

from collections.abc import Mapping

import pytest

from codegen.dtypes import f32
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.schedule.deriver import shared_loops
from tensorlang.schedule.machine import Machine
from tensorlang.schedule.select import choose


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
    found = choose(library(), operator, program, attrs, "cpu", Machine(threads=threads))
    assert found is not None
    return [line.strip() for line in str(found.schedule).splitlines() if line.strip().startswith("parallel")]


def test_a_padded_input_is_copied_by_all_threads_and_so_is_the_convolution_of_it() -> None:
    shapes = [(1, 32, 28, 28), (64, 32, 3, 3), (64,)]
    copy, conv = parallel("conv", shapes, lo=(1, 1), hi=(1, 1))
    assert copy == "parallel x.pack" and conv.startswith("parallel y.")


@pytest.mark.parametrize(
    ("operator", "shapes", "threads"),
    [("add", [(100,), (100,)], 2), ("matmul", [(16, 16), (16, 16)], 2), ("matmul", [(512, 512), (512, 512)], 1)],
)
def test_little_work_and_one_thread_stay_serial(operator: str, shapes: list[tuple[int, ...]], threads: int) -> None:
    assert parallel(operator, shapes, threads) == []


@pytest.mark.parametrize(("operator", "shapes"), [("add", [(512, 512), (512, 512)]), ("matmul", [(256, 256), (256, 256)])])
def test_much_work_is_shared(operator: str, shapes: list[tuple[int, ...]]) -> None:
    assert parallel(operator, shapes)
