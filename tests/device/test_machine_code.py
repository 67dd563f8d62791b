"""Kernels that nobody scheduled are clean machine code on every generation of devices, within what a block may have there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from device_programs import called, chosen, kernels_of

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import assembly, count, opcodes
from codegen.gpu.limits import exceeded, exceeded_at, exceeded_by, resident_blocks
from codegen.gpu.program import Program as Kernels

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")
MOST_REGISTERS = 128


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


CASES: dict[str, tuple[str, tuple[np.ndarray[Any, Any], ...], dict[str, object]]] = {
    "sum of two": ("add", (zeros(64, 1024), zeros(64, 1024)), {}),
    "product": ("matmul", (zeros(512, 512), zeros(512, 512)), {}),
    "product with tails": ("matmul", (zeros(500, 300), zeros(300, 700)), {}),
    "softmax": ("softmax", (zeros(64, 1000),), {"axis": 1}),
    "layer norm": ("layer_norm", (zeros(128, 768), zeros(768), zeros(768)), {"axis": 1}),
    "transpose": ("transpose", (zeros(512, 1024),), {"perm": (1, 0)}),
}


def kernels(case: str) -> Kernels:
    operator, arrays, attrs = CASES[case]
    program = called(operator, *arrays, **attrs)
    return kernels_of(program, chosen(program).schedule)


@pytest.mark.parametrize("case", CASES)
def test_derived_kernels_are_clean_machine_code_everywhere(case: str) -> None:
    program = kernels(case)
    for name in ARCHITECTURES:
        arch = named(f"cuda:{name}")
        made = compiled(source(program), arch)
        assert exceeded(program, arch.limits) == exceeded_at(program, arch.limits, {}) == ()
        for kernel in program.kernels:
            used = made.usage[kernel.name]
            assert not used.spills, (name, used)
            assert used.stack_bytes == 0, (name, used)
            assert used.registers <= MOST_REGISTERS, (name, used)
            assert exceeded_by(kernel, used, arch.limits) == ()
            assert resident_blocks(kernel, used, arch.limits) >= 2


@pytest.mark.parametrize(
    ("case", "wide", "narrow"),
    [
        ("sum of two", ("LDG.128", "STG.128"), ("LDG", "STG")),
        ("product", ("LDG.128", "STG.128"), ("LDG", "STG")),
        ("product with tails", ("STG.128",), ("STG",)),
    ],
)
def test_derived_kernels_move_sixteen_bytes_at_a_time(case: str, wide: tuple[str, ...], narrow: tuple[str, ...]) -> None:
    made = compiled(source(kernels(case)), named("cuda:sm_90a"))
    for found in opcodes(made.cubin).values():
        assert [(opcode, count(found, opcode)) for opcode in wide] == [
            (opcode, count(found, name)) for opcode, name in zip(wide, narrow, strict=True)
        ]
        assert 2 * count(found, "LDS.128") >= count(found, "LDS"), "of what is read of copies"
        assert count(found, "LDL") == count(found, "STL") == 0


@pytest.mark.parametrize("shape", [(4097, 4099), (4096, 65)])
def test_copies_of_rows_of_any_length_are_on_the_way_together_and_neighbours_to_neighbours(shape: tuple[int, int]) -> None:
    program = called("transpose", np.zeros(shape, np.float32), perm=(1, 0))
    kernels = kernels_of(program, chosen(program).schedule)
    [found] = assembly(compiled(source(kernels), named("cuda:sm_90a")).cubin).values()
    runs = "".join({"LDG": "l", "STS": "s"}[name] for name in re.findall(r"\b(LDG|STS)\b", found))
    assert "l" * 16 + "s" * 16 in runs
    assert "+ t % 64]" in kernels.text and "for (int v" not in kernels.text
