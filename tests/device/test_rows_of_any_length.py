"""What nobody scheduled asks a device for no more than it has: rows of any length, grids of any extent, devices of little memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batch import difference, library, made, named
from device_programs import called, kernels_of, normal, taken
from executors import Executor
from usual_device import USUAL, device_kernel, plan_for_device

from codegen.cuda.arch import named as arch
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.dtypes import DType, bf16, f16, f32, f64, i64
from codegen.gpu.limits import Limits, exceeded, exceeded_at
from stdlib.library import library as operators
from stdlib.library import roles
from tensorlang.backends.cuda.machine import like
from tensorlang.backends.gpu.model import DeviceKernel
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.planning import Rules
from tensorlang.policy.machine import GpuMachine
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op picked(x: f32[M, N], at: i64[N]) -> (y: f32[M, N]) {
    m[i] = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    s[i] = sum(j) e[i, j]
    y[i, j] = e[i, at[j]] / s[i]
}

op shares(x: f32[M, A, B]) -> (y: f32[M, A, B]) {
    e[i, a, b] = exp(x[i, a, b])
    s[i, a] = sum(b) e[i, a, b]
    t[i] = sum(a) s[i, a]
    y[i, a, b] = e[i, a, b] / t[i]
}
""",
        )
    ),
    [operators()],
)
SMALL = GpuMachine(target="cuda", threads=32, limits=replace(USUAL.limits, threads_per_block=32))
"""A device on which rows of 1600 elements are long."""


def rows(operator: str, length: int, dtype: DType = f32, count: int = 64) -> Program:
    weights = [ArgType(dtype, (length,))] * 2 if operator == "layer_norm" else []
    return instantiate(operators(), operator, [ArgType(dtype, (count, length)), *weights], {"axis": 1}, {})


def fits(kernel: DeviceKernel, limits: Limits) -> bool:
    return not exceeded(kernel.launched, limits) and not exceeded_at(kernel.launched, limits, {})


@pytest.mark.parametrize("length", [1000, 24_577, 50_257, 131_072, 1 << 20])
@pytest.mark.parametrize("operator", ["softmax", "layer_norm", "log_softmax"])
def test_rows_of_any_length_are_one_launch_of_blocks_that_fit(operator: str, length: int) -> None:
    machine = like(arch("cuda:sm_75"))
    kernel = device_kernel(rows(operator, length), "kernel", rules=Rules(roles()), machine=machine)
    assert "row_reduction" in kernel.origin and len(kernel.launched.launches) == 1
    assert fits(kernel, machine.limits) and kernel.launched.kernels[0].shared_bytes <= 1024


@pytest.mark.parametrize(("target", "dtype"), [("sm_75", f16), ("sm_80", bf16), ("sm_86", f64), ("sm_90a", f32)])
@pytest.mark.parametrize("chosen", [True, False], ids=["roles", "derived"])
def test_they_fit_on_every_device_in_every_type(target: str, dtype: DType, chosen: bool) -> None:
    machine = like(arch(f"cuda:{target}"))
    kernel = device_kernel(rows("softmax", 131_072, dtype), "kernel", rules=Rules(roles()) if chosen else None, machine=machine)
    assert fits(kernel, machine.limits) and len(kernel.launched.launches) == 1


def test_long_rows_are_loaded_by_vectors_and_computed_again() -> None:
    program = rows("softmax", 131_072)
    found = plan_for_device(program, rules=Rules(roles()), machine=like(arch("cuda:sm_80")))
    assert taken(found) == ["long_row_reduction"]
    kernels = kernels_of(program, found.schedule)
    machine = compiled(source(kernels), arch("cuda:sm_80"))
    (used,), (code,) = machine.usage.values(), opcodes(machine.cubin).values()
    assert not used.spills and used.stack_bytes == 0
    assert count(code, "LDG") == count(code, "LDG.128") > 0 and count(code, "STG") == count(code, "STG.128") == 4


def test_every_order_of_threads_gives_what_long_rows_are(executor: Executor) -> None:
    cases = {"softmax of odd rows": (1_601,), "layer_norm": (1_600,)}
    programs = {}
    for k, (name, (length,)) in enumerate(cases.items()):
        program = rows(name.split()[0], length, count=65)
        found = plan_for_device(program, rules=Rules(roles()), machine=SMALL)
        assert taken(found) == ["long_row_reduction"], name
        programs[name] = made(program, f"k{k}", found.schedule)
    built = library(programs.values(), executor)
    for name, (length,) in cases.items():
        arrays = [normal(65, length), *([normal(length)] * 2 if "norm" in name else [])]
        each = programs[name]
        assert difference(each, named(each.program, arrays), {}, built, seeds=(3,), close=1e-5) == "", name


def test_what_cannot_be_computed_again_lies_in_the_memory_of_the_device() -> None:
    x, at = ArgType(f32, (64, 100_000)), ArgType(i64, (100_000,))
    kernel = device_kernel(instantiate(OWN, "picked", [x, at], {}, {}), "kernel", rules=Rules(roles()))
    assert fits(kernel, USUAL.limits) and kernel.launched.kernels[0].shared_bytes == 0
    kernel = device_kernel(instantiate(OWN, "shares", [ArgType(f32, (64, 300, 400))], {}, {}), "kernel", rules=Rules(roles()))
    assert fits(kernel, USUAL.limits)


def test_grids_of_any_extent_are_lines_of_blocks() -> None:
    many = instantiate(operators(), "matmul", [ArgType(f32, (70_000, 16, 8)), ArgType(f32, (70_000, 8, 16))], {}, {})
    tall = instantiate(operators(), "matmul", [ArgType(f32, (9_000_000, 16)), ArgType(f32, (16, 64))], {}, {})
    for program in (many, tall):
        kernel = device_kernel(program, "kernel", rules=Rules(roles()))
        assert "contraction" in kernel.origin and fits(kernel, USUAL.limits)


def test_blocks_in_lines_compute_what_the_grid_did(monkeypatch: pytest.MonkeyPatch, executor: Executor) -> None:
    monkeypatch.setattr("codegen.gpu.linear_grid.MOST", 2)
    arrays = (normal(3, 70, 20), normal(3, 20, 66))
    program = called("matmul", *arrays)
    each = made(program, "kernel", plan_for_device(program, rules=Rules(roles())).schedule)
    assert "tl_block_x" in each.kernels.text and "tl_block_z" not in each.kernels.text
    assert difference(each, named(program, arrays), {}, library([each], executor), seeds=(4,), close=1e-5) == ""


def test_products_whose_windows_no_block_can_copy_read_where_the_operands_lie() -> None:
    machine = like(arch("cuda:sm_86"))
    shapes = [ArgType(f32, (1, 64, 128, 128)), ArgType(f32, (64, 64, 31, 31))]
    program = instantiate(operators(), "conv", shapes, {"lo": (15, 15), "hi": (15, 15)}, {})
    kernel = device_kernel(program, "kernel", rules=Rules(roles()), machine=machine)
    assert fits(kernel, machine.limits) and kernel.origin == "derived" and "TL_SHARED" not in kernel.launched.text


def test_a_device_of_little_memory_runs_what_needs_threads_alone() -> None:
    machine = replace(USUAL, limits=replace(USUAL.limits, shared_per_block=512))
    program = called("matmul", np.zeros((40, 64), np.float32), np.zeros((64, 48), np.float32))
    kernel = device_kernel(program, "kernel", rules=Rules(roles()), machine=machine)
    assert kernel.origin == "derived" and fits(kernel, machine.limits)
    assert any("bytes of shared memory; the limit is 512" in tried for tried in kernel.tried)
