"""Products of one operand are computed as one on a graphics processor where that takes less time."""

from __future__ import annotations

import pytest

from codegen.cuda.arch import named
from codegen.dtypes import bf16
from tensorlang.backends.cuda.machine import like
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.gpu.horizontal_fusion import is_profitable
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

TEXT = """
op one(x: bf16[M, K], w: bf16[N, K]) -> (y: bf16[M, N]) { y[i, j] = bf16(sum(k) f32(x[i, k]) * f32(w[j, k])) }
op many(x: bf16[M, K], w: bf16[G, N, K]) -> (y: bf16[G, M, N]) { y[g, i, j] = bf16(sum(k) f32(x[i, k]) * f32(w[g, j, k])) }
op sums(x: bf16[M, K]) -> (y: f32[M]) { y[i] = sum(k) f32(x[i, k]) }
"""
HOPPER = like(named("cuda:sm_90a"))


def program(operator: str, *shapes: tuple[int, ...]) -> Program:
    return instantiate(load_module(parse(Source("own.tl", TEXT))), operator, [ArgType(bf16, shape) for shape in shapes], {}, {})


@pytest.mark.parametrize("rows", [128, 4096])
def test_products_that_leave_multiprocessors_idle_are_one(rows: int) -> None:
    one, many = program("one", (rows, 768), (768, 768)), program("many", (rows, 768), (3, 768, 768))
    assert is_profitable([one] * 3, many, HOPPER)


def test_what_takes_no_less_time_together_stays_apart_and_so_does_what_is_no_product() -> None:
    one = program("one", (128, 768), (768, 768))
    assert not is_profitable([one], program("many", (128, 768), (3, 768, 768)), HOPPER)
    assert not is_profitable([program("sums", (128, 768))] * 3, one, HOPPER)
