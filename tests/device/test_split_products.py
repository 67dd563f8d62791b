"""Products of warps whose results are few: sums are cut into parts, and a second launch adds them up and does what is done to the sums."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from device_programs import called
from executors import Executor
from test_matrix import module, normal
from usual_device import device_loops, device_text, plan_for_device

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from stdlib.library import roles
from tensorlang.backends.gpu.driver import Scheduled
from tensorlang.lower.barriers import exposed
from tensorlang.planning import Rules
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.nodes import Program

OPERATORS = """
op rows_by_rows(a: bf16[M, K], b: bf16[N, K], bias: f32[N], r: bf16[M, N]) -> (y: bf16[M, N]) {
    y[i, j] = bf16(max(sum(k) f32(a[i, k]) * f32(b[j, k]) + bias[j], 0.0) + f32(r[i, j]))
}
op rows_by_columns(a: f16[M, K], b: f16[K, N]) -> (y: f16[M, N]) { y[i, j] = f16(tanh(sum(k) f32(a[i, k]) * f32(b[k, j]))) }
op columns_by_columns(a: bf16[K, M], b: bf16[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) f32(a[k, i]) * f32(b[k, j]) }
op many(a: bf16[B, M, K], b: bf16[B, N, K]) -> (y: bf16[B, M, N]) { y[b_, i, j] = bf16(sum(k) f32(a[b_, i, k]) * f32(b[b_, j, k])) }
""".replace("b_", "n")
half = partial(normal, dtype=np.float16)
CASES = {
    "rows_by_rows": (normal(49, 2048), normal(64, 2048), normal(64, dtype=np.float32), normal(49, 64)),
    "rows_by_columns": (half(32, 2048) / 8, half(2048, 40) / 8),
    "columns_by_columns": (normal(2048, 48), normal(2048, 32)),
    "many": (normal(3, 20, 1536), normal(3, 24, 1536)),
}


def chosen(operator: str) -> tuple[Program, Scheduled]:
    program = called(operator, *CASES[operator], module=module(OPERATORS))
    return program, plan_for_device(program, rules=Rules(roles()))


def directives(schedule: Schedule) -> list[str]:
    return [d.name for d in schedule.directives]


@pytest.fixture(scope="module")
def cases() -> dict[str, Made]:
    out: dict[str, Made] = {}
    for name in CASES:
        program, found = chosen(name)
        assert found.origin.startswith("schedule role warp_product")
        assert directives(found.schedule)[0:1] == ["rfactor"] and "tensorize" in directives(found.schedule)
        lowered = device_loops(found.plan, f"split_{name}", schedule=found.schedule)
        assert exposed(lowered.function) is None
        out[name] = Made(program, lowered, device_text(lowered, schedule=found.schedule))
    return out


def test_parts_of_sums_add_up_to_what_the_operator_says_in_every_order_of_threads(cases, executor: Executor):
    compiled_ = library(cases.values(), executor)
    for name, each in cases.items():
        arrays = by_name(each.program, CASES[name])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


def test_the_second_launch_adds_up_in_f32_and_does_what_is_done_to_the_sums(cases):
    for each in cases.values():
        first, second = (text for text in each.kernels.text.split("TL_KERNEL")[1:])
        assert "tl_mma_m16n8k16" in first and "tl_mma" not in second
        assert "tanh" not in first and "tl_max" not in first


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a", "sm_120"])
def test_both_launches_are_clean_machine_code(cases, arch):
    for each in cases.values():
        code = compiled(source(each.kernels), named(f"cuda:{arch}"))
        assert not any(u.spills or u.stack_bytes for u in code.usage.values())
        multiplied = [count(found, "HMMA.16816") for found in opcodes(code.cubin).values()]
        assert len(multiplied) == 2 and sorted(map(bool, multiplied)) == [False, True]


def test_a_block_copies_no_more_than_its_part_of_a_stretch(cases):
    for each in cases.values():
        assert max(k.shared_bytes for k in each.kernels.kernels) <= 72 * 1024


def test_sums_of_many_results_and_short_ones_stay_whole():
    for m, n, k in ((2048, 2048, 512), (128, 256, 128)):
        program = called("many", normal(1, m, k), normal(1, n, k), module=module(OPERATORS))
        assert "rfactor" not in directives(plan_for_device(program, rules=Rules(roles())).schedule)
