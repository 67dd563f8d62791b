"""Programs with schedules for a graphics processor: proven, written out, run by an executor, compared with the interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from executors import Executor
from usual_device import USUAL, device_loops, device_text

from codegen.dtypes import from_numpy
from codegen.gpu import emulator
from codegen.gpu.program import Program as Kernels
from stdlib.library import library, roles
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module
from tensorlang.lower.barriers import exposed
from tensorlang.policy.select import Chosen, search
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import shape_of, tensor_table

Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    """Return random numbers, the same for each number of axes."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def called(operator: str, *arrays: Array, module: Module | None = None, **attrs: object) -> Program:
    """Return the program of an operator, of the library unless `module` is given, for these arguments."""
    found = module or library()
    return instantiate(found, operator, [ArgType(from_numpy(a.dtype), a.shape) for a in arrays], attrs, {})


def chosen(program: Program) -> Chosen:
    """Return the library's schedule of a program for a device of no name."""
    found = search(roles(), None, program, {}, "cuda", USUAL).chosen
    assert found is not None
    return found


def taken(found: Chosen) -> list[str]:
    """Return the roles that a schedule is made of."""
    return [origin.split(" for ")[0].removeprefix("schedule role ") for origin in found.origin.split("; ")]


def kernels_of(program: Program, schedule: Schedule) -> Kernels:
    """Return the kernels of a schedule that is legal and whose barriers suffice."""
    lowered = device_loops(proven(program, schedule), "kernel")
    assert exposed(lowered.function) is None
    return device_text(lowered)


def assert_computed(
    executor: Executor, program: Program, schedule: Schedule, *arrays: Array, seeds: Iterable[int] = emulator.SEEDS, close: float = 1e-5
) -> None:
    """Assert that the kernels compute what the operator says, in each of the orders of threads that there are where they run."""
    kernels = kernels_of(program, schedule)
    inputs = {p.name: np.ascontiguousarray(a) for p, a in zip(program.params, arrays, strict=True)}
    expected = interpret(program, {}, inputs)
    table = tensor_table(program)
    library_ = executor.library([kernels])
    for seed in library_.orders(seeds):
        found = {r: np.empty(shape_of(table[r], {}), table[r].dtype.numpy) for r in program.results}
        library_.run(kernels, {}, inputs | found, seed=seed, outputs=program.results)
        for r in program.results:
            wanted = np.asarray(expected[r]).reshape(found[r].shape).astype(np.float64)
            least = close * max(1.0, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(found[r].astype(np.float64), wanted, rtol=close, atol=least)
