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
from codegen.dtypes import from_numpy
from codegen.gpu import emulator
from codegen.gpu.limits import exceeded, exceeded_by, resident_blocks
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.device.driver import device_loops
from tensorlang.diagnostics import Source
from tensorlang.lower.barriers import Exposed, exposed
from tensorlang.schedule.attention_device import blocks
from tensorlang.schedule.check import proven
from tensorlang.schedule.derive_device import derive_device
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


def test_every_barrier_is_needed() -> None:
    program = in_one_pass(operands(1, 64, 64, 2, 16, 16))
    function = device_loops(proven(program, derive_device(program)), "kernel").function
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
