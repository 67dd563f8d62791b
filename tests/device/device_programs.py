"""Programs with schedules for a graphics processor: proven, written out, run by the emulator in every order, compared with the
interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from codegen.dtypes import from_numpy
from codegen.gpu import emulator
from codegen.gpu.program import Program as Kernels
from stdlib.library import library, roles
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module
from tensorlang.device.driver import device_loops, device_text
from tensorlang.device.model import DeviceModel
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.plan import Arena, Constant, Input, Output
from tensorlang.graph.relayout import relaid
from tensorlang.lower.barriers import exposed
from tensorlang.schedule.check import proven
from tensorlang.schedule.machine import Device
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.select import Chosen, search
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
    found = search(roles(), None, program, {}, "cuda", Device()).chosen
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


def assert_emulated(
    program: Program, schedule: Schedule, *arrays: Array, seeds: Iterable[int] = emulator.SEEDS, close: float = 1e-5
) -> None:
    """Assert that the kernels compute what the operator says, in each of the emulator's orders."""
    kernels = kernels_of(program, schedule)
    inputs = {p.name: np.ascontiguousarray(a) for p, a in zip(program.params, arrays, strict=True)}
    expected = interpret(program, {}, inputs)
    table = tensor_table(program)
    library_ = emulator.build(kernels.kernels)
    for seed in seeds:
        found = {r: np.empty(shape_of(table[r], {}), table[r].dtype.numpy) for r in program.results}
        emulator.run(kernels, {}, inputs | found, seed=seed, outputs=program.results, library=library_)
        for r in program.results:
            wanted = np.asarray(expected[r]).reshape(found[r].shape).astype(np.float64)
            least = close * max(1.0, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(found[r].astype(np.float64), wanted, rtol=close, atol=least)


def run_model(model: DeviceModel, feeds: dict[str, Array], seed: int = 0) -> dict[str, Array]:
    """Return the outputs of a model whose every launch is run by the emulator, its values where the plan puts them."""
    arena = np.full(model.plan.arena_bytes, 0xFF, np.uint8)
    outputs = [np.full(size_bytes(model.graph.values[name]), 0xFF, np.uint8) for name in model.graph.outputs]

    def memory(name: str) -> Array:
        value = model.graph.values[name]
        match model.plan.places[name]:
            case Input(position):
                return feeds[model.graph.inputs[position]]
            case Constant(constant):
                array = model.graph.constants[constant]
                return np.ascontiguousarray(array if value.layout is None else relaid(array, value.layout))
            case Output(position, offset):
                block = outputs[position]
            case Arena(offset):
                block = arena
        shape = value.shape if value.layout is None else value.layout.shape
        return block[offset : offset + size_bytes(value)].view(value.dtype.numpy).reshape(shape)

    kernels = [k for made in model.kernels.values() for k in made.launched.kernels]
    compiled = emulator.build(kernels)
    for call in model.calls:
        made = model.kernels[call.kernel]
        arrays = {param: memory(value) for param, value in call.values.items()}
        written = [p for p, value in call.values.items() if value in call.node.outputs]
        status = emulator.run(made.launched, {}, arrays, seed=seed, outputs=written, library=compiled)
        assert status == 0, made.requirements[status - 1]
    return {name: memory(value) for name, value in zip(model.names, model.graph.outputs, strict=True)}
