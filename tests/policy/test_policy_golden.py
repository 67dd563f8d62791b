"""Which schedule is chosen for which shape on which machine: golden cases, so that nobody changes a choice unseen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_case import cases, expected, source
from policy_golden import CPUS, DEVICES, GOLDEN, chosen

from codegen.cuda.arch import ARCHITECTURES
from codegen.dtypes import bf16, f32, f64, u8
from codegen.llvm.target import named
from tensorlang.backends.cpu.driver import machine_of
from tensorlang.backends.cuda.machine import like
from tensorlang.diagnostics import Source
from tensorlang.syntax.nodes import Operator, Schedule
from tensorlang.syntax.parse import parse

LEVELS = [
    ("avx2", "x86-64-v3"),
    ("avx512", "x86-64-v4"),
    ("amx", "x86-64-amx"),
    ("neon", "aarch64-v8.2"),
    ("rvv", "riscv64gcv"),
    ("wasm", "wasm32"),
]


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.stem)
def test_each_machine_runs_a_program_under_the_golden_schedule(case: Path, golden_case: Callable[[Path, str], None]) -> None:
    golden_case(case, chosen(source(case)))


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_what_a_schedule_knows_of_a_processor_is_what_its_instructions_are(name: str, level: str) -> None:
    assert machine_of(named(level), CPUS[name].threads) == CPUS[name]


def test_what_a_schedule_knows_of_a_device_is_what_its_generation_has() -> None:
    """Multiprocessors; whether warps multiply matrices, in fours too; whether boxes of tensors are copied; bytes that a block may share."""
    found = {n: (m.blocks, m.matrices, m.warpgroups, m.boxes, m.limits.shared_per_block) for n, m in DEVICES.items()}
    assert found == {
        "sm_80": (108, True, False, False, 163 << 10),
        "sm_90a": (132, True, True, True, 227 << 10),
        "gfx90a": (104, False, False, False, 64 << 10),
    }
    old = like(ARCHITECTURES["sm_75"], 40)
    assert (old.blocks, old.matrices, old.warpgroups, old.boxes, old.limits.shared_per_block) == (40, False, False, False, 64 << 10)
    late = like(ARCHITECTURES["sm_100a"])
    assert (late.matrices, late.warpgroups, late.boxes) == (True, False, True)


def test_a_register_holds_narrow_elements_as_wide_as_they_are_computed_with() -> None:
    assert [[machine.lanes(dtype) for dtype in (u8, bf16, f32, f64)] for machine in CPUS.values()] == [
        [8, 8, 8, 4],
        [16, 16, 16, 8],
        [16, 16, 16, 8],
        [4, 4, 4, 2],
        [4, 4, 4, 2],
        [4, 4, 4, 2],
    ]


def test_what_is_chosen_can_be_pasted_into_a_file() -> None:
    for case in cases(GOLDEN):
        first, *rest = parse(Source(case.name, source(case) + expected(case))).declarations
        assert isinstance(first, Operator) and rest and all(isinstance(schedule, Schedule) for schedule in rest), case.name
