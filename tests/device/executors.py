"""What runs kernels in tests. A test that takes `executor` is run once for each:

    emulator    on every machine, in several orders of threads
    device      on the first GPU; these are marked `gpu`, and there only where a GPU is (tests/conftest.py)

Both take the same launches, so a test says nothing of where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from device_programs import run_model

from codegen.cuda.device import Device
from tensorlang.device.build import device_kernel as made_kernel
from tensorlang.device.build import single
from tensorlang.device.executable import DeviceExecutable
from tensorlang.device.machine import machine_code
from tensorlang.device.model import DeviceModel
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.nodes import Program

Array = np.ndarray[Any, Any]


class Executor(Protocol):
    """Runs launches. `seeds`: numbers of the orders in which it is worth running something."""

    @property
    def seeds(self) -> tuple[int, ...]: ...

    def __call__(self, model: DeviceModel, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        """Return the outputs of a model by name."""
        ...


class Emulator:
    """Every thread of a block by itself, on the CPU."""

    seeds = (0, 4, 8)

    def __call__(self, model: DeviceModel, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        return run_model(model, dict(feeds), seed)


class OnDevice:
    """The first GPU. A second run is a graph of launches, and has to give the same bits."""

    seeds = (0,)

    def __call__(self, model: DeviceModel, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        device = Device()
        code = machine_code([made.launched for made in model.kernels.values()], device.arch, None, 2)
        runs = DeviceExecutable(model, code, device)
        inputs = [feeds[name] for name in model.graph.inputs]
        first, again = ([array.numpy() for array in runs(inputs)] for _ in range(2))
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
        return dict(zip(model.names, again, strict=True))


EXECUTORS: Mapping[str, Callable[[], Executor]] = {"emulator": Emulator, "device": OnDevice}


def one_kernel(program: Program, schedule: Schedule | None = None) -> DeviceModel:
    """Return a program as a model of one kernel, scheduled as `schedule` says or as is derived."""
    return single(program, made_kernel(program, "kernel", schedule))
