"""Attention in one pass over the keys, as kernels: right in every order of threads, every barrier needed, clean machine code everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_programs import assert_emulated, kernels_of
from test_barriers import without_each_barrier

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.dtypes import DType, bf16, f16, from_numpy
from codegen.gpu import emulator
from codegen.gpu.limits import exceeded, exceeded_by, resident_blocks
from stdlib.library import library, roles
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.device.driver import device_loops, plan_for_device
from tensorlang.diagnostics import Source
from tensorlang.driver import Rules
from tensorlang.graph.passes.precision import with_narrow
from tensorlang.lower.barriers import Exposed, exposed
from tensorlang.schedule.attention_device import blocks, online_of
from tensorlang.schedule.check import proven
from tensorlang.schedule.derive_device import derive_device
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.online import online

Array = np.ndarray[Any, Any]
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")
OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op attention(q: f32[B, L, H, D], k: f32[B, S, H, D], v: f32[B, S, H, E], sees: bool[B, L, S]) -> (y: f32[B, L, H, E]) {
    s[b, h, i, j] = 0.125 * (sum(c) q[b, i, h, c] * k[b, j, h, c]) + (if sees[b, i, j] then 0 else -inf)
    p = softmax(s, axis = 3)
    y[b, i, h, e] = sum(j) p[b, h, i, j] * v[b, j, h, e]
}
""",
        )
    ),
    [library()],
)


def operands(batch: int, rows: int, keys: int, heads: int, depth: int, width: int) -> list[Array]:
    random = np.random.default_rng(4)
    shapes = ((batch, rows, heads, depth), (batch, keys, heads, depth), (batch, keys, heads, width))
    sees = random.random((batch, rows, keys)) < 0.8
    sees[:, :, 0] = True
    return [*(random.standard_normal(shape).astype(np.float32) for shape in shapes), sees]


def in_one_pass(arrays: list[Array]) -> Program:
    program = instantiate(OWN, "attention", [ArgType(from_numpy(a.dtype), a.shape) for a in arrays], {}, {})
    made = online(program, blocks)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("sizes", "seeds"),
    [
        ((2, 20, 45, 2, 16, 24), emulator.SEEDS),
        ((1, 64, 32, 1, 8, 16), emulator.SEEDS),
        ((1, 9, 70, 3, 12, 5), (0, 4)),
        ((1, 200, 200, 1, 64, 64), (5,)),
        ((1, 33, 100, 1, 128, 128), (7,)),
    ],
)
def test_every_order_of_threads_gives_what_attention_is(sizes, seeds) -> None:
    arrays = operands(*sizes)
    program = in_one_pass(arrays)
    assert_emulated(program, derive_device(program), *arrays, seeds=seeds)


def by_warps(arrays: list[Array], dtype: DType) -> tuple[Program, Schedule]:
    """Return attention that multiplies in 16 bits, its weights among what it multiplies, and its schedule."""
    program = in_one_pass(arrays)
    found = online_of(program)
    assert found is not None
    narrow = with_narrow(program, frozenset({"q", "k", "v", found.weights.tensors[0].name}), dtype)
    return narrow, plan_for_device(narrow, rules=Rules(roles())).schedule


@pytest.mark.parametrize(
    ("sizes", "dtype", "seeds"),
    [
        ((1, 20, 45, 2, 16, 16), bf16, emulator.SEEDS),
        ((2, 64, 64, 1, 32, 48), f16, (0, 3, 8)),
        ((1, 100, 200, 1, 64, 64), bf16, (5,)),
        ((1, 33, 70, 1, 128, 128), bf16, (7,)),
    ],
)
def test_lanes_of_warps_multiply_in_16_bits(sizes, dtype, seeds) -> None:
    arrays = operands(*sizes)
    program, schedule = by_warps(arrays, dtype)
    assert sum(d.name == "tensorize" for d in schedule.directives) == 2
    assert_emulated(program, schedule, *(a.astype(dtype.numpy) for a in arrays[:3]), arrays[3], seeds=seeds, close=1e-2)


@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
def test_weights_stay_where_the_first_product_left_them_and_both_are_matrix_instructions(dtype: DType) -> None:
    kernels = kernels_of(*by_warps(operands(1, 128, 128, 12, 64, 64), dtype))
    for name in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"):
        made = compiled(source(kernels), named(f"cuda:{name}"))
        (used,), (found,) = made.usage.values(), opcodes(made.cubin).values()
        assert not used.spills and used.stack_bytes == 0 and used.registers <= 160, (name, used)
        assert count(found, "HMMA.16816") == 16 + 16
        assert count(found, "LDSM.4") >= 12 and count(found, "LDS.U16") == count(found, "STS.U16") == 0


def test_programs_whose_depth_is_no_whole_matrix_are_multiplied_by_threads() -> None:
    arrays = operands(1, 16, 20, 1, 12, 16)
    program, schedule = by_warps(arrays, bf16)
    assert not any(d.name == "tensorize" for d in schedule.directives)
    assert_emulated(program, schedule, *(a.astype(bf16.numpy) for a in arrays[:3]), arrays[3], seeds=(3,), close=1e-2)


@pytest.mark.parametrize("matrices", [False, True], ids=["threads", "warps"])
def test_every_barrier_is_needed(matrices: bool) -> None:
    arrays = operands(1, 64, 64, 2, 16, 16)
    program = in_one_pass(arrays)
    program, schedule = by_warps(arrays, bf16) if matrices else (program, derive_device(program))
    function = device_loops(proven(program, schedule), "kernel").function
    fewer = list(without_each_barrier(function.body))
    assert len(fewer) == 2 and exposed(function) is None
    for body in fewer:
        from_there = exposed(type(function)(function.name, function.sizes, function.params, body, function.written))
        assert isinstance(from_there, Exposed)


@pytest.mark.parametrize("depth", [32, 64, 128])
def test_it_is_clean_machine_code_on_every_generation_of_devices(depth: int) -> None:
    program = in_one_pass(operands(1, 200, 200, 12, depth, depth))
    kernels = kernels_of(program, derive_device(program))
    [kernel] = kernels.kernels
    for name in ARCHITECTURES:
        arch = named(f"cuda:{name}")
        made = compiled(source(kernels), arch)
        used = made.usage[kernel.name]
        assert not used.spills and used.stack_bytes == 0, (name, used)
        assert exceeded(kernels, arch.limits) == exceeded_by(kernel, used, arch.limits) == ()
        assert name == "sm_75" or depth == 128 or resident_blocks(kernel, used, arch.limits) >= 2
        if name == "sm_90a":
            (found,) = opcodes(made.cubin).values()
            assert count(found, "LDL") == count(found, "STL") == 0
            assert count(found, "LDS.128") >= 0.6 * count(found, "LDS")


def test_few_heads_are_not_cut_into_partial_products() -> None:
    _, schedule = by_warps(operands(1, 128, 128, 12, 64, 64), bf16)
    assert [d.name for d in schedule.directives if d.name in ("rfactor", "tensorize")] == ["tensorize", "tensorize"]
    assert not any(d.name == "rfactor" for d in derive_device(in_one_pass(operands(1, 64, 64, 1, 64, 64))).directives)
