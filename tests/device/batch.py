"""Many programs, each with a schedule for a graphics processor, in one library of the emulator or on a device."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from executors import EMULATOR, Executor, Library
from schedule_trial import first_difference
from usual_device import USUAL, derive_device, device_loops, device_text

from codegen.gpu.program import Program as Kernels
from polyhedral.verdict import Unknown
from tensorlang.bounded_cache import BoundedCache
from tensorlang.lower.barriers import exposed
from tensorlang.lower.kernel import Lowered
from tensorlang.policy.machine import GpuMachine
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import shape_of, tensor_table

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Made:
    """A program as kernels whose barriers suffice, or stand everywhere where that is too much to prove."""

    program: Program
    lowered: Lowered
    kernels: Kernels


def made(program: Program, symbol: str, schedule: Schedule | None = None, machine: GpuMachine = USUAL) -> Made:
    """Return `program` under `schedule`, or what is derived for `machine`, as kernels called after `symbol`."""
    chosen = schedule if schedule is not None else derive_device(program, machine=machine)
    lowered = device_loops(proven(program, chosen), symbol, schedule=chosen, machine=machine)
    assert isinstance(exposed(lowered.function, machine.warp), Unknown | None)
    return Made(program, lowered, device_text(lowered, schedule=chosen, machine=machine))


def library(programs: Iterable[Made], executor: Executor = EMULATOR) -> Library:
    """Return every kernel of `programs`, compiled at once, for the emulator or where `executor` runs them."""
    return executor.library(each.kernels for each in programs)


def ran(each: Made, arrays: Mapping[str, Array], sizes: Mapping[str, int], compiled: Library, seed: int) -> tuple[int, Mapping[str, Array]]:
    """Return the status, and the results by name, after the kernels have run on inputs given by name."""
    program, function = each.program, each.lowered.function
    table = tensor_table(program)
    found = {r: np.empty(shape_of(table[r], sizes), table[r].dtype.numpy) for r in program.results}
    tensors = dict(zip((b.name for b in function.params), each.lowered.params, strict=True))
    memory = {buffer: {**arrays, **found}[tensor] for buffer, tensor in tensors.items()}
    known = dict(zip(function.sizes, (sizes[s] for s in program.sizes), strict=True))
    outputs = [buffer for buffer, tensor in tensors.items() if tensor in program.results]
    return compiled.run(each.kernels, known, memory, seed=seed, outputs=outputs), found


_EXPECTED: BoundedCache[Hashable, dict[str, Array]] = BoundedCache(8)
"""Results by programs, sizes and the bytes of arguments: of one program many kernels are run, each in many orders of threads."""


def expected(program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return what a program says of its results, by name."""

    def interpreted() -> dict[str, Array]:
        found = interpret(program, sizes, arrays)
        return {name: np.asarray(found[name]) for name in program.results}

    given = tuple((name, a.dtype, a.shape, a.tobytes()) for name, a in arrays.items())
    return _EXPECTED.used((repr(program), tuple(sizes.items()), given), interpreted)


def difference(
    each: Made,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    compiled: Library,
    *,
    seeds: Iterable[int] = (0, 4, 8),
    close: float = 0.0,
) -> str:
    """Return where the kernels, run in some orders of threads, differ from what the operator says; "" where nowhere. Unless told otherwise,
    copies land late, at once and at random, and the next thread, one of the same warp and any goes on, each of these once."""
    for seed in compiled.orders(seeds):
        status, found = ran(each, arrays, sizes, compiled, seed)
        if status:
            return f"requirement {status} is not met: {each.lowered.requirements[status - 1].text}"
        text = first_difference(found, expected(each.program, arrays, sizes), close)
        if text:
            return f"seed {seed}: {text}"
    return ""


def named(program: Program, arrays: Iterable[Array]) -> dict[str, Array]:
    """Return the arguments of a program by name, each without gaps."""
    return {p.name: np.asarray(a, order="C") for p, a in zip(program.params, arrays, strict=True)}
