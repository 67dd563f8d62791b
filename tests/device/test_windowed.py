"""Windows over channels by themselves: a few points and channels for each thread, in every order of threads what the operator says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from device_programs import called
from executors import Executor
from usual_device import USUAL, device_loops, device_text, plan_for_device

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from stdlib.library import roles
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.lower.barriers import exposed
from tensorlang.planning import Rules
from tensorlang.policy.machine import GpuMachine
from tensorlang.runtime.library import with_roles
from tensorlang.syntax.parse import parse

Array = np.ndarray[Any, Any]
bf16 = ml_dtypes.bfloat16

OPERATORS = """
op depthwise(x: bf16[N, H, W, C], w: f32[R, S, C], attr stride: int = 1, attr lo: int = 1)
    -> (y: bf16[N, (H + 2*lo - R) // stride + 1, (W + 2*lo - S) // stride + 1, C]) {
    y[n, h, v, c] = bf16(max(sum(r, s) f32(x[n, h*stride + r - lo, v*stride + s - lo, c | 0]) * w[r, s, c], 0.0))
}
op pool(x: f32[N, H, W, C], attr stride: int = 2) -> (y: f32[N, (H - 3) // stride + 1, (W - 3) // stride + 1, C]) {
    y[n, h, v, c] = max(r in 0..3, s in 0..3) x[n, h*stride + r, v*stride + s, c]
}
"""
FEW = GpuMachine(target="cuda", blocks=1)
"""A device that few threads fill, so each has several points."""
CASES = {
    "depthwise": ("depthwise", ((2, 5, 17, 24), (3, 3, 24)), {}),
    "depthwise at a stride": ("depthwise", ((1, 9, 14, 40), (3, 3, 40)), {"stride": 2}),
    "depthwise of large windows and many channels": ("depthwise", ((1, 6, 7, 276), (5, 5, 276)), {"lo": 2}),
    "largest of windows": ("pool", ((2, 9, 23, 8),), {}),
}


def made(name: str, symbol: str, device: GpuMachine = FEW) -> tuple[Made, str, tuple[Array, ...]]:
    operator, shapes, attrs = CASES[name]
    own: Module = with_roles(load_module(parse(Source("own.tl", OPERATORS))), (roles(),))
    dtypes = (bf16, np.float32) if operator == "depthwise" else (np.float32,)
    arrays = tuple(np.random.default_rng(s).standard_normal(s).astype(t) for s, t in zip(shapes, dtypes, strict=True))
    program = called(operator, *arrays, module=own, **attrs)
    found = plan_for_device(program, rules=Rules(module=own, operator=operator, attrs=attrs, target="cuda"), machine=device)
    lowered = device_loops(found.plan, symbol, schedule=found.schedule)
    assert exposed(lowered.function) is None
    return Made(program, lowered, device_text(lowered, schedule=found.schedule)), found.origin, arrays


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[Made, str, tuple[Array, ...]]]:
    found = {name: made(name, f"windowed_{k}") for k, name in enumerate(CASES)}
    return found | {"of one point each": made("depthwise", "windowed_one", USUAL)}


def test_windows_are_those_of_the_operator_in_every_order_of_threads(cases, executor: Executor) -> None:
    compiled_ = library((each for each, _, _ in cases.values()), executor)
    for name, (each, origin, arrays) in cases.items():
        assert (name, origin.split(" for ")[0]) == (name, "schedule role windowed")
        assert (name, difference(each, by_name(each.program, arrays), {}, compiled_, close=1e-2)) == (name, "")


def test_neighbours_share_what_they_read_in_registers(cases) -> None:
    each, _, _ = cases["depthwise"]
    code = compiled(source(each.kernels), named("cuda:sm_90a"))
    (usage,), (found,) = code.usage.values(), opcodes(code.cubin).values()
    assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes, usage.shared_bytes) == (0, 0, 0, 0)
    lines, places = 3, 4 + 2
    assert count(found, "LDG.64") == lines * places, "four points see six places of each of three lines"
    assert count(found, "LDG.U16") == 0
