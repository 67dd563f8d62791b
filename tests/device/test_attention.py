"""Attention in one pass over the keys, as kernels: right in every order of threads, every barrier needed, clean machine code everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from device_programs import assert_computed, kernels_of
from executors import Executor
from test_barriers import without_each_barrier
from usual_device import derive_device, device_loops, plan_for_device

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import assembly, count, loop, opcodes
from codegen.dtypes import DType, bf16, f16, f32, from_numpy
from codegen.gpu import emulator
from codegen.gpu.limits import exceeded, exceeded_by, resident_blocks
from stdlib.library import library, roles
from tensorlang.backends.cuda.machine import like
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.graph.passes.precision.narrow_storage import with_narrow
from tensorlang.lower.barriers import Exposed, exposed
from tensorlang.planning import Rules
from tensorlang.policy.gpu.attention import blocks
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.tensor.idioms import online_of
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.online import online

Array = np.ndarray[Any, Any]
ARCHITECTURES = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120")
"""One of each kind of limits and instructions: `sm_86` is like `sm_89`, but for numbers of blocks far above those that matter here."""
MATRICES = ARCHITECTURES[1:]
"""Those that multiply matrices of 16 bits."""
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


def in_one_pass(arrays: list[Array], element_bytes: int = 4) -> Program:
    program = instantiate(OWN, "attention", [ArgType(from_numpy(a.dtype), a.shape) for a in arrays], {}, {})
    made = online(program, lambda sizes: blocks(replace(sizes, element_bytes=element_bytes)))
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
def test_every_order_of_threads_gives_what_attention_is(sizes, seeds, executor: Executor) -> None:
    arrays = operands(*sizes)
    program = in_one_pass(arrays)
    assert_computed(executor, program, derive_device(program), *arrays, seeds=seeds)


def by_warps(arrays: list[Array], dtype: DType) -> tuple[Program, Schedule]:
    """Return attention that multiplies in 16 bits, its weights among what it multiplies, and its schedule."""
    return in_16_bits(in_one_pass(arrays, 2), dtype)


def in_16_bits(program: Program, dtype: DType) -> tuple[Program, Schedule]:
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
def test_lanes_of_warps_multiply_in_16_bits(sizes, dtype, seeds, executor: Executor) -> None:
    arrays = operands(*sizes)
    program, schedule = by_warps(arrays, dtype)
    assert sum(d.name == "tensorize" for d in schedule.directives) == 2
    assert_computed(executor, program, schedule, *(a.astype(dtype.numpy) for a in arrays[:3]), arrays[3], seeds=seeds, close=1e-2)


@pytest.mark.parametrize(("dtype", "architectures"), [(bf16, MATRICES), (f16, MATRICES[::2])], ids=["bf16", "f16"])
def test_weights_stay_where_the_first_product_left_them_and_both_are_matrix_instructions(
    dtype: DType, architectures: tuple[str, ...]
) -> None:
    kernels = kernels_of(*by_warps(operands(1, 128, 128, 12, 64, 64), dtype))
    for name in architectures:
        made = compiled(source(kernels), named(f"cuda:{name}"))
        (used,), (found,) = made.usage.values(), opcodes(made.cubin).values()
        assert not used.spills and used.stack_bytes == 0 and used.registers <= 160, (name, used)
        assert count(found, "HMMA.16816") == 32 + 32
        assert count(found, "LDSM.4") >= 24 and count(found, "LDS.U16") == count(found, "STS.U16") == 0


LONG = load_module(
    parse(
        Source(
            "long.tl",
            """op causal(q: f32[H, L, D], k: f32[H, L, D], v: f32[H, L, D]) -> (y: f32[H, L, D]) {
    s[h, i, j] = 0.125 * (sum(c) q[h, i, c] * k[h, j, c]) + (if j <= i then 0 else -inf)
    p = softmax(s, axis = 2)
    y[h, i, e] = sum(j) p[h, i, j] * v[h, j, e]
}
""",
        )
    ),
    [library()],
)


@pytest.mark.parametrize(
    ("tokens", "depth", "architectures"), [(1024, 64, MATRICES[::2]), (8192, 128, MATRICES)], ids=["1024-64", "8192-128"]
)
def test_long_sequences_copy_keys_and_values_ahead_without_spills(tokens: int, depth: int, architectures: tuple[str, ...]) -> None:
    program = instantiate(LONG, "causal", [ArgType(f32, (8, tokens, depth))] * 3, {}, {})
    made = online(program, lambda sizes: blocks(replace(sizes, element_bytes=2)))
    assert made is not None
    kernels = kernels_of(*in_16_bits(made, bf16))
    assert kernels.kernels[0].name in kernels.text and "_keys < " in kernels.text
    for name in architectures:
        arch = named(f"cuda:{name}")
        machine = compiled(source(kernels), arch)
        (used,), (found,) = machine.usage.values(), opcodes(machine.cubin).values()
        assert not used.spills and used.stack_bytes == 0, (name, used)
        assert exceeded_by(kernels.kernels[0], used, arch.limits) == ()
        assert min(count(found, opcode) for opcode in ("HMMA", "LDSM", "LDGSTS")) >= 16
        (blocks_of_keys,) = (loop(text, lambda opcode: opcode.startswith("HMMA")) for text in assembly(machine.cubin).values())
        assert count(blocks_of_keys, "BSSY") == count(blocks_of_keys, "F2F") == 0, "weights are computed and converted without branches"
        assert blocks_of_keys.total() < 13 * count(blocks_of_keys, "HMMA"), name


@pytest.mark.parametrize("dtype", [bf16, f32], ids=str)
def test_causal_attention_is_right_with_copies_ahead_and_without(dtype: DType, executor: Executor) -> None:
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((1, 150, 16)).astype(np.float32) for _ in range(3)]
    program = instantiate(LONG, "causal", [ArgType(f32, a.shape) for a in arrays], {}, {})
    made = online(program, lambda sizes: blocks(replace(sizes, element_bytes=dtype.size_bytes)))
    assert made is not None
    made, schedule = in_16_bits(made, bf16) if dtype == bf16 else (made, derive_device(made))
    assert {"trim", *(["stages"] if dtype == bf16 else [])} <= {d.name for d in schedule.directives}
    assert_computed(
        executor, made, schedule, *(a.astype(dtype.numpy) for a in arrays), seeds=emulator.SEEDS, close=1e-2 if dtype == bf16 else 1e-5
    )


def test_devices_whose_warps_multiply_no_matrices_multiply_by_threads() -> None:
    program, _ = by_warps(operands(1, 64, 64, 2, 16, 16), f16)
    old = named("cuda:sm_75")
    schedule = plan_for_device(program, rules=Rules(roles()), machine=like(old)).schedule
    assert not any(d.name == "tensorize" for d in schedule.directives)
    made = compiled(source(kernels_of(program, schedule)), old)
    assert not any(used.spills for used in made.usage.values())


def test_programs_whose_depth_is_no_whole_matrix_are_multiplied_by_threads(executor: Executor) -> None:
    arrays = operands(1, 16, 20, 1, 12, 16)
    program, schedule = by_warps(arrays, bf16)
    assert not any(d.name == "tensorize" for d in schedule.directives)
    assert_computed(executor, program, schedule, *(a.astype(bf16.numpy) for a in arrays[:3]), arrays[3], seeds=(3,), close=1e-2)


@pytest.mark.parametrize("matrices", [False, True], ids=["threads", "warps"])
def test_every_barrier_is_needed(matrices: bool) -> None:
    arrays = operands(1, 64, 64, 2, 16, 16)
    program = in_one_pass(arrays)
    program, schedule = by_warps(arrays, bf16) if matrices else (program, derive_device(program))
    function = device_loops(proven(program, schedule), "kernel").function
    fewer = list(without_each_barrier(function.body))
    assert len(fewer) in (1, 2) and exposed(function) is None
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
