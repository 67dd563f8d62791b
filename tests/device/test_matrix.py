"""Products that the lanes of a warp compute together: in every order of threads what the operator says, and the machine code's own
instructions for it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from device_programs import called

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from stdlib.library import roles
from tensorlang.check.module import Module, load_module
from tensorlang.device.driver import device_loops, device_text, plan_for_device
from tensorlang.diagnostics import CompileError, Source
from tensorlang.driver import Rules
from tensorlang.lower.barriers import exposed
from tensorlang.runtime.library import with_roles
from tensorlang.syntax.parse import parse

Array = np.ndarray[Any, Any]
bf16 = ml_dtypes.bfloat16

OPERATOR = "op matmul(a: bf16[M, K], b: bf16[N, K]) -> (y: bf16[M, N]) { y[i, j] = bf16(max(sum(k) f32(a[i, k]) * f32(b[j, k]), 0.0)) }"

SCHEDULE = """
schedule matmul for cuda {
    split i by 64 -> io, ib
    split ib by 32 -> iw, iq
    split iq by 16 -> im, mi
    split j by 64 -> jo, jb
    split jb by 32 -> jw, jq
    split jq by 8 -> jn, ni
    split k by 32 -> ko, kb
    split kb by 16 -> kf, ki
    order io, jo, ko, iw, jw, kf, im, jn, mi, ni, ki
    cache a in shared at ko as [i, k] with swizzle (64)
    cache b in shared at ko as [j, k] with swizzle (64)
    stages ko by 3
    bind io, jo, iw, jw to block.y, block.x, warp.y, warp.x
    unroll kf, im, jn
    tensorize mi, ni, ki with mma_m16n8k16_bf16
}
"""


def module(text: str) -> Module:
    return with_roles(load_module(parse(Source("own.tl", text))), (roles(),))


def made(text: str, symbol: str, *arrays: Array, operator: str = "matmul") -> Made:
    """Return the kernels of an operator under the schedule that its text has, whose barriers suffice."""
    own = module(text)
    program = called(operator, *arrays, module=own)
    found = plan_for_device(program, rules=Rules(module=own, operator=operator, target="cuda"))
    lowered = device_loops(found.plan, symbol, schedule=found.schedule)
    assert exposed(lowered.function) is None
    return Made(program, lowered, device_text(lowered, schedule=found.schedule))


def normal(*shape: int, dtype: Any = bf16) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


VARIANTS = {
    "in stages, columns exchanged": SCHEDULE,
    "at once, rows padded": SCHEDULE.replace("    stages ko by 3\n", "").replace("swizzle (64)", "pad (8)"),
    "rows that lie across": SCHEDULE.replace("as [i, k] with swizzle (64)", "as [k, i] with pad (8)").replace(
        "as [j, k] with swizzle (64)", "as [k, j] with pad (8)"
    ),
    "operands where they are": "\n".join(line for line in SCHEDULE.split("\n") if "cache" not in line and "stages" not in line),
}


@pytest.fixture(scope="module")
def variants() -> dict[str, Made]:
    arrays = normal(128, 96), normal(64, 96)
    return {name: made(OPERATOR + text, f"matmul_{k}", *arrays) for k, (name, text) in enumerate(VARIANTS.items())}


def test_a_product_of_warps_is_that_of_the_operator_in_every_order_of_threads(variants):
    compiled_ = library(variants.values())
    for name, each in variants.items():
        arrays = by_name(each.program, (normal(128, 96), normal(64, 96)))
        assert (name, difference(each, arrays, {}, compiled_, seeds=range(9), close=1e-2)) == (name, "")


@pytest.mark.parametrize("kind", [name for name in VARIANTS if name != "operands where they are"])
def test_tiles_at_the_edges_of_matrices_go_on_over_zeros(kind):
    sizes = [(100, 90, 50), (33, 20, 17), (120, 96, 64)]
    found = [made(OPERATOR + VARIANTS[kind], f"edges_{k}_{n}", normal(m, k), normal(n, k)) for m, k, n in sizes]
    compiled_ = library(found)
    for each, (m, k, n) in zip(found, sizes, strict=True):
        assert difference(each, by_name(each.program, (normal(m, k), normal(n, k))), {}, compiled_, close=1e-2) == ""


def test_the_machine_code_multiplies_matrices_and_spills_nothing(variants):
    each = variants["in stages, columns exchanged"]
    for arch in ("sm_80", "sm_90a", "sm_120"):
        made_ = compiled(source(each.kernels), named(f"cuda:{arch}"))
        (usage,), (found,) = made_.usage.values(), opcodes(made_.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert count(found, "HMMA.16816") == 2 * count(found, "LDSM.4") > 0
        assert count(found, "LDGSTS") > 0 and count(found, "LDS.U16") == 0


def test_threads_that_part_a_warp_cannot_run_its_instruction():
    with pytest.raises(CompileError, match="gives parts of a warp to it: bind it to warp"):
        made(OPERATOR + SCHEDULE.replace("warp.y, warp.x", "thread.y, thread.x"), "refused", normal(128, 96), normal(64, 96))


def test_a_product_that_would_go_beyond_the_edge_of_a_matrix_is_refused():
    with pytest.raises(CompileError, match="not known to go on over zeros"):
        made(OPERATOR + VARIANTS["operands where they are"], "refused", normal(100, 96), normal(64, 96))
