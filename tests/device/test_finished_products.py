"""What is done to each element of a product alone happens where the product is made, in one launch, however many equations say it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from batch import difference, library, made, named
from device_programs import normal, taken
from executors import Executor
from usual_device import plan_for_device

from codegen.cuda.arch import named as arch
from codegen.dtypes import DType, bf16, f32
from stdlib.library import roles
from tensorlang.backends.cuda.machine import like
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.planning import Rules, Scheduled
from tensorlang.syntax.nodes import Id
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op linear_relu[T](x: T[M, K], w: T[N, K], c: f32[N]) -> (y: T[M, N]) {
    s[i, j] = c[j] + sum(k) f32(x[i, k]) * f32(w[j, k])
    y[i, j] = T(max(s[i, j], 0))
}

op narrow[T](x: T[M, K], w: T[N, K], c: f32[N]) -> (y: T[M, N]) {
    s[i, j] = T(sum(k) f32(x[i, k]) * f32(w[j, k]))
    y[i, j] = T(f32(s[i, j]) + c[j])
}

op swish[T](x: T[M, K], w: T[N, K], c: f32[N]) -> (y: T[M, N]) {
    s[i, j] = sum(k) f32(x[i, k]) * f32(w[j, k])
    t[i, j] = s[i, j] + c[j]
    g[i, j] = 1 / (1 + exp(-t[i, j]))
    u[i, j] = t[i, j] * g[i, j]
    y[i, j] = T(u[i, j])
}

op returned[T](x: T[M, K], w: T[N, K], c: f32[N]) -> (s: f32[M, N], y: T[M, N]) {
    s[i, j] = c[j] + sum(k) f32(x[i, k]) * f32(w[j, k])
    y[i, j] = T(max(s[i, j], 0))
}

op shifted[T](x: T[M, K], w: T[N, K], c: f32[N]) -> (y: T[M, N]) {
    s[i, j] = c[j] + sum(k) f32(x[i, k]) * f32(w[j, k])
    y[i, j] = T(s[i, j] - s[i, 0])
}

op said_at_once[T](x: T[M, K], w: T[N, K], c: f32[N]) -> (y: T[M, N]) {
    y[i, j] = T(max(c[j] + sum(k) f32(x[i, k]) * f32(w[j, k]), 0))
}
""",
        )
    )
)
ROLES = {"warpgroup_product": (bf16, "sm_90a"), "warp_product": (bf16, "sm_80"), "contraction": (f32, "sm_80")}


def program(operator: str, dtype: DType, rows: int, columns: int, depth: int) -> Program:
    return instantiate(OWN, operator, [ArgType(dtype, (rows, depth)), ArgType(dtype, (columns, depth)), ArgType(f32, (columns,))], {}, {})


def scheduled(operator: str, dtype: DType, target: str, sizes: tuple[int, int, int]) -> Scheduled:
    return plan_for_device(program(operator, dtype, *sizes), rules=Rules(roles()), machine=like(arch(f"cuda:{target}")))


@pytest.mark.parametrize("role", ROLES)
def test_a_product_and_what_is_done_to_its_elements_are_one_part_of_a_schedule(role: str) -> None:
    dtype, target = ROLES[role]
    found = scheduled("swish", dtype, target, (1024, 2048, 128))
    assert taken(found) == [role]
    inlined = [name.name for d in found.schedule.directives if d.name == "inline" for name in d.operands if isinstance(name, Id)]
    assert set(inlined) == {"s", "t", "g", "u"}


def test_it_is_the_schedule_of_the_same_in_one_expression() -> None:
    several, once = (scheduled(operator, f32, "sm_80", (128, 256, 32)).schedule.directives for operator in ("linear_relu", "said_at_once"))
    assert [d.name for d in several] == ["inline", *(d.name for d in once)]


@pytest.mark.parametrize("operator", ["returned", "shifted"])
def test_what_is_returned_or_needed_elsewhere_is_stored(operator: str) -> None:
    assert len(taken(scheduled(operator, f32, "sm_80", (128, 256, 32)))) == 2


def test_every_order_of_threads_gives_what_the_equations_say(executor: Executor) -> None:
    cases: dict[str, tuple[str, DType, str, tuple[int, int, int]]] = {
        "by threads": ("swish", f32, "sm_80", (24, 36, 24)),
        "by warps, rounded on the way": ("narrow", bf16, "sm_80", (24, 32, 32)),
        "by four warps": ("linear_relu", bf16, "sm_90a", (64, 32, 128)),
    }
    programs = {
        name: made(program(operator, dtype, *sizes), f"k{k}", scheduled(operator, dtype, target, sizes).schedule)
        for k, (name, (operator, dtype, target, sizes)) in enumerate(cases.items())
    }
    compiled = library(programs.values(), executor)
    for name, (_, dtype, _, (rows, columns, depth)) in cases.items():
        kind: Any = ml_dtypes.bfloat16 if dtype == bf16 else np.float32
        arrays = (normal(rows, depth).astype(kind), normal(columns, depth).astype(kind), normal(columns))
        close = 2e-2 if dtype == bf16 else 1e-5
        assert len(programs[name].kernels.launches) == 1
        assert difference(programs[name], named(programs[name].program, arrays), {}, compiled, seeds=(5,), close=close) == "", name
