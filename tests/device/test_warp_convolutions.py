"""Convolutions that warps multiply in matrices: in every order of threads what the operator says, with strides, padding and edges."""

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
from tensorlang.planning import Rules, Scheduled
from tensorlang.policy.gpu import matrix_tiles
from tensorlang.policy.machine import GpuMachine
from tensorlang.runtime.library import with_roles
from tensorlang.syntax.parse import parse

Array = np.ndarray[Any, Any]

OPERATOR = """
op conv(x: bf16[N, H, W, C], w: bf16[F, R, S, C], b: f32[F], attr stride: int = 1, attr lo: int = 0)
    -> (y: bf16[N, (H + 2*lo - R) // stride + 1, (W + 2*lo - S) // stride + 1, F]) {
    y[n, h, v, f] = bf16(max(b[f] + sum(r, s, c) f32(x[n, h*stride + r - lo, v*stride + s - lo, c | 0]) * f32(w[f, r, s, c]), 0.0))
}
"""
CASES = {
    "3x3, with edges everywhere": ((1, 9, 20, 64), (40, 3, 3, 64), {"lo": 1}),
    "3x3 of two samples, channels of one instruction": ((2, 7, 17, 32), (32, 3, 3, 32), {"lo": 1}),
    "3x3 at a stride": ((1, 15, 39, 64), (24, 3, 3, 64), {"lo": 1, "stride": 2}),
    "5x3 without padding": ((1, 11, 37, 64), (16, 5, 3, 64), {}),
}
UNFOLDED = {
    "1x1 at a stride": ((1, 14, 40, 64), (48, 1, 1, 64), {"stride": 2}),
    "lines of seven points of two samples": ((2, 7, 7, 32), (48, 3, 3, 32), {"lo": 1}),
    "channels that stretches of the sum cut": ((1, 9, 10, 40), (24, 3, 3, 40), {"lo": 1}),
    "eight channels, at a stride": ((2, 13, 9, 8), (16, 5, 5, 8), {"lo": 2, "stride": 2}),
    "1x1 at a stride, of short lines": ((3, 9, 9, 32), (32, 1, 1, 32), {"stride": 2}),
    "1x1 of several samples": ((5, 3, 5, 64), (64, 1, 1, 64), {}),
}


def own() -> Module:
    return with_roles(load_module(parse(Source("own.tl", OPERATOR))), (roles(),))


def normal(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


TOGETHER = {
    "lines of seven points, four warps together": ((2, 7, 7, 64), (64, 3, 3, 64), {"lo": 1}),
    "at a stride, four warps together, channels that stretches of the sum cut": ((1, 17, 15, 72), (48, 3, 3, 72), {"lo": 1, "stride": 2}),
}
FOURS = GpuMachine(target="cuda", warpgroups=True, boxes=True)
"""A device whose warps multiply in fours."""
FEW = GpuMachine(target="cuda", blocks=8)
"""A device that is full with the blocks of small convolutions, as large ones fill others."""


def chosen(
    x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, int], symbol: str, device: GpuMachine = USUAL
) -> tuple[Made, Scheduled, tuple[Array, ...]]:
    arrays = normal(*x), normal(*w), normal(w[0], dtype=np.float32)
    program = called("conv", *arrays, module=own(), **attrs)
    found = plan_for_device(program, rules=Rules(module=own(), operator="conv", attrs=attrs, target="cuda"), machine=device)
    lowered = device_loops(found.plan, symbol, schedule=found.schedule)
    assert exposed(lowered.function) is None
    return Made(program, lowered, device_text(lowered, schedule=found.schedule)), found, arrays


def test_convolutions_of_warps_are_those_of_the_operator_in_every_order_of_threads(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {name: chosen(*case, f"conv_{k}", FEW) for k, (name, case) in enumerate(CASES.items())}
    found |= {name: chosen(*case, f"unfolded_{k}") for k, (name, case) in enumerate(UNFOLDED.items())}
    monkeypatch.setattr(matrix_tiles, "GATHER_CYCLES", 0)  # as where copies cost nothing, so that small convolutions multiply in fours
    found |= {name: chosen(*case, f"together_{k}", FOURS) for k, (name, case) in enumerate(TOGETHER.items())}
    for name, (_, scheduled, _) in found.items():
        role = "warp_convolution" if name in CASES else "warp_unfolded" if name in UNFOLDED else "warpgroup_unfolded"
        assert (name, scheduled.origin.split(" for ")[0]) == (name, f"schedule role {role}")
    compiled_ = library((each for each, _, _ in found.values()), executor)
    for name, (each, _, arrays) in found.items():
        assert (name, difference(each, by_name(each.program, arrays), {}, compiled_, close=1e-2)) == (name, "")


@pytest.fixture(scope="module")
def large() -> list[str]:
    """Return the text of large convolutions, the same for every architecture."""
    cases = ((1, 56, {"lo": 1}), (1, 57, {"lo": 1, "stride": 2}), (32, 14, {"lo": 1}), (32, 7, {"lo": 1}))
    found = (chosen((n, size, size, 128), (128, 3, 3, 128), attrs, f"large_{k}")[0] for k, (n, size, attrs) in enumerate(cases))
    return [source(each.kernels) for each in found]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_machine_code_of_a_convolution_multiplies_matrices_and_spills_nothing(large: list[str], arch: str) -> None:
    for text in large:
        code = compiled(text, named(f"cuda:{arch}"))
        (usage,), (found,) = code.usage.values(), opcodes(code.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert count(found, "HMMA.16816") > count(found, "LDSM") > 0
        assert count(found, "LDGSTS") > 0 and count(found, "LDS.U16") == 0


def test_four_warps_multiply_a_convolution_together_and_spill_nothing() -> None:
    for samples, size, channels in ((32, 14, 256), (32, 7, 512)):
        each, _, _ = chosen((samples, size, size, channels), (channels, 3, 3, channels), {"lo": 1}, f"fours_{size}", FOURS)
        code = compiled(source(each.kernels), named("cuda:sm_90a"))
        (usage,), (found,) = code.usage.values(), opcodes(code.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert count(found, "HGMMA") > 0 == count(found, "HMMA")
        assert count(found, "LDGSTS.128") > 0 == count(found, "STS")
