"""Products of f32 rounded to tf32 by roles: in every order of threads what the operator says, rows by `ldmatrix`, nothing spilled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batch import Made, difference, library, made
from batch import named as by_name
from device_programs import called
from executors import Executor
from test_matrix import module
from usual_device import plan_for_device

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from tensorlang.planning import Rules

Array = np.ndarray[Any, Any]

OPERATORS = """
op nt(a: f32[M, K], b: f32[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) round_tf32(a[i, k]) * round_tf32(b[j, k]) }
op nn(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) round_tf32(a[i, k]) * round_tf32(b[k, j]) }
op tn(a: f32[K, M], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) round_tf32(a[k, i]) * round_tf32(b[k, j]) }
op conv(x: f32[N, H, W, C], w: f32[F, R, S, C], attr lo: int = 1) -> (y: f32[N, H + 2*lo - R + 1, W + 2*lo - S + 1, F]) {
    y[n, h, v, f] = sum(r, s, c) round_tf32(x[n, h + r - lo, v + s - lo, c | 0]) * round_tf32(w[f, r, s, c])
}
"""


def normal(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


CASES = {
    "nt": (normal(128, 96), normal(64, 96)),
    "nt, uneven": (normal(100, 92), normal(37, 92)),
    "nn": (normal(128, 96), normal(96, 64)),
    "tn": (normal(96, 128), normal(96, 64)),
    "conv": (normal(1, 8, 16, 32), normal(32, 3, 3, 32)),
    "conv, short lines": (normal(2, 7, 7, 32), normal(32, 3, 3, 32)),
}
ROLES = {"conv": "warp_convolution", "conv, short lines": "warp_unfolded"}
"""Of windows: boxes of long lines are copied once for all places, points of short ones are rows of one product."""


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[Made, str]]:
    own, found = module(OPERATORS), {}
    for k, (name, arrays) in enumerate(CASES.items()):
        operator = name.split(",")[0]
        program = called(operator, *arrays, module=own)
        plan = plan_for_device(program, rules=Rules(module=own, operator=operator, target="cuda"))
        found[name] = made(program, f"{operator}_{k}", plan.schedule), plan.origin
    return found


def test_roles_of_warps_serve_them_and_compute_what_the_operator_says_in_every_order(cases, executor: Executor) -> None:
    compiled_ = library((each for each, _ in cases.values()), executor)
    for name, (each, origin) in cases.items():
        assert ROLES.get(name, "warp_product") in origin
        arrays = by_name(each.program, CASES[name])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-4)) == (name, "")


@pytest.mark.parametrize("name", CASES)
def test_the_machine_code_multiplies_tf32_and_spills_nothing(cases, name: str) -> None:
    each, _ = cases[name]
    for arch in ("sm_80", "sm_120"):
        made_ = compiled(source(each.kernels), named(f"cuda:{arch}"))
        (usage,), (found,) = made_.usage.values(), opcodes(made_.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert count(found, "HMMA.1688.F32.TF32") > 0 == count(found, "FFMA")
        assert (count(found, "LDSM") > 0) == (name != "tn"), "what lies across the sum is fetched element by element"
