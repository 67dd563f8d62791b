"""Kernels for a graphics processor as most are, for tests that are about none in particular. `machine` says what another one is like."""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorlang.backends.gpu import build, driver
from tensorlang.backends.gpu.model import DeviceModel
from tensorlang.graph.nodes import Graph
from tensorlang.graph.pipeline import DEVICE, optimise
from tensorlang.graph.precisions import F32, Precision
from tensorlang.policy.gpu import derive
from tensorlang.policy.machine import GpuMachine

USUAL = GpuMachine(target="cuda")

derive_device = partial(derive.derive_device, machine=USUAL)
plan_for_device = partial(driver.plan_for_device, machine=USUAL)
device_loops = partial(driver.device_loops, machine=USUAL)
device_text = partial(driver.device_text, machine=USUAL)
device_kernel = partial(build.device_kernel, machine=USUAL)


def device_graph(loaded: Graph, precision: Precision = F32) -> Graph:
    """Return an imported graph with the kernels that the device runs."""
    return optimise(loaded, build.device_options(USUAL, precision, online=True), DEVICE)


def device_model(loaded: Graph, *arguments: Any, precision: Precision = F32, **named: Any) -> DeviceModel:
    """Return an imported graph as launches; the arguments are those of `tensorlang.backends.gpu.build.device_model`."""
    return build.device_model(device_graph(loaded, precision), *arguments, names=loaded.outputs, machine=USUAL, **named)
