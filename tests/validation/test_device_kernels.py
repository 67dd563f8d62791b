"""Kernels for a device are validated where they are compiled, when somebody asks, and kept ones are then, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loops_of_equations import equation
from small_graphs import graph, kernel, matmul, unary
from usual_device import device_kernel, device_loops, device_model

from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.store import Cache
from tensorlang.backends.gpu import build
from tensorlang.diagnostics import InternalError
from tensorlang.lower.kernel import Lowered
from tensorlang.policy.machine import GpuMachine


def test_the_loops_of_a_kernel_are_validated_as_far_as_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for budget in ("0", "2", "1"):
        monkeypatch.setenv("TENSORLANG_VALIDATE", budget)
        said.append(device_kernel(equation("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] + 1.0 }", N=4), "kernel").validated)
    assert said == ["", "not validated: too large, more than 2 operations", "validated"]


def test_loops_that_compute_something_else_are_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(plan: Any, name: str, dump: Any, schedule: Any, in_order: Callable[[Lowered], object], machine: GpuMachine) -> Lowered:
        def changed(lowered: Lowered) -> None:
            in_order(replace(lowered, function=parse(show(lowered.function).replace("x[", "w["))))

        return device_loops(plan, name, dump, schedule, changed, machine=machine)

    monkeypatch.setattr(build, "device_loops", faulty)
    with pytest.raises(InternalError, match="is not what the equation says"):
        device_kernel(equation("op f(x: f32[N], w: f32[N]) -> (y: f32[N]) { y[i] = x[i] * w[i] }", N=4), "kernel")


def test_kernels_that_were_kept_are_validated_when_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = graph({"x": (2, 3), "w": (3, 2)}, [kernel(matmul(2, 2, 3), "x w", "a"), kernel(unary("exp", 2, 2), "a", "y")], ["y"])
    said = []
    for budget in ("0", "1", "0"):
        monkeypatch.setenv("TENSORLANG_VALIDATE", budget)
        said.append({made.validated for made in device_model(model, Cache(tmp_path)).kernels.values()})
    assert said == [{""}, {"validated"}, {"validated"}]
