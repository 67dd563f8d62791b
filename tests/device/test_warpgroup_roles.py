"""The library's schedules for products on devices whose warps multiply in groups of four: in every order of threads and landings what the
operator says, with the instructions that are meant and nothing spilled."""

from __future__ import annotations

from dataclasses import replace

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
from tensorlang.backends.cuda.machine import like
from tensorlang.backends.gpu.driver import Scheduled
from tensorlang.lower.barriers import exposed
from tensorlang.planning import Rules
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

HOPPER = named("cuda:sm_90a")
OPERATORS = """
op dense(a: bf16[M, K], b: bf16[N, K], bias: f32[N], r: bf16[M, N]) -> (y: bf16[M, N]) {
    y[i, j] = bf16(max(sum(k) f32(a[i, k]) * f32(b[j, k]) + bias[j], 0.0) + f32(r[i, j]))
}
op plain(a: f16[M, K], b: f16[N, K]) -> (y: f16[M, N]) { y[i, j] = f16(sum(k) f32(a[i, k]) * f32(b[j, k])) }
op many(a: f16[B, M, K], b: f16[B, N, K]) -> (y: f32[B, M, N]) { y[n, i, j] = sum(k) f32(a[n, i, k]) * f32(b[n, j, k]) }
op bytes(a: i8[M, K], b: i8[N, K]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(a[i, k]) * i32(b[j, k]) }
op dimensions(a: bf16[P, R, Q, U, M, K], b: bf16[P, R, Q, U, N, K]) -> (y: f32[Q, R, P, M, N]) {
    y[q, r, p, i, j] = sum(u, k) f32(a[p, r, q, u, i, k]) * f32(b[p, r, q, u, j, k])
}
op pixels(x: bf16[M, K], w: bf16[1, N, K, 1, 1]) -> (y: bf16[M, N]) { y[i, j] = bf16(sum(k) f32(x[i, k]) * f32(w[0, j, k, 0, 0])) }
op across(a: bf16[M, K], b: bf16[K, N]) -> (y: bf16[M, N]) { y[i, j] = bf16(sum(k) f32(a[i, k]) * f32(b[k, j])) }
op both_across(a: f16[B, K, M], b: f16[B, K, N]) -> (y: f32[B, M, N]) { y[n, i, j] = sum(k) f32(a[n, k, i]) * f32(b[n, k, j]) }
op heads(a: bf16[M, K], b: bf16[K, H, N]) -> (y: bf16[H, M, N]) { y[h, i, j] = bf16(sum(k) f32(a[i, k]) * f32(b[k, h, j])) }
op bytes_across(a: i8[M, K], b: i8[K, N]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(a[i, k]) * i32(b[k, j]) }
"""


def half(*shape: int) -> np.ndarray:
    return normal(*shape, dtype=np.float16)


def whole(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(-128, 128, shape).astype(np.int8)


def chosen(operator: str, *arrays: np.ndarray, target: str = "cuda:sm_90a") -> tuple[Program, Scheduled]:
    program = called(operator, *arrays, module=module(OPERATORS))
    return program, plan_for_device(program, rules=Rules(roles()), machine=like(named(target)))


CASES = {
    "with what is done to the sums": ("dense", (normal(200, 264), normal(136, 264), normal(136, dtype=np.float32), normal(200, 136))),
    "in parts": ("dense", (normal(70, 4096), normal(40, 4096), normal(40, dtype=np.float32), normal(70, 40))),
    "few columns": ("plain", (half(72, 192), half(40, 192))),
    "many": ("many", (half(3, 72, 144), half(3, 80, 144))),
    "bytes": ("bytes", (whole(130, 528), whole(66, 528))),
    "axes of one element after the last": ("pixels", (normal(100, 192), normal(1, 48, 192, 1, 1))),
    "columns across the sum": ("across", (normal(200, 264), normal(264, 136))),
    "both across the sum, many": ("both_across", (half(2, 136, 72), half(2, 136, 40))),
    "columns of several axes across the sum": ("heads", (normal(72, 136), normal(136, 3, 48))),
    "in more dimensions than boxes have": ("dimensions", (normal(2, 2, 2, 2, 66, 160), normal(2, 2, 2, 2, 72, 160))),
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Made]:
    out: dict[str, Made] = {}
    for k, (name, (operator, arrays)) in enumerate(CASES.items()):
        program, found = chosen(operator, *arrays)
        assert found.origin.startswith("schedule role warpgroup_product"), name
        lowered = device_loops(found.plan, f"groups_{k}", schedule=found.schedule)
        assert exposed(lowered.function) is None
        out[name] = Made(program, lowered, device_text(lowered, schedule=found.schedule))
    return out


def test_products_of_four_warps_are_those_of_the_operator_in_every_order(cases, executor: Executor):
    compiled_ = library(cases.values(), executor)
    for name, each in cases.items():
        arrays = by_name(each.program, CASES[name][1])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


def test_they_are_the_instructions_of_four_warps_and_copies_of_boxes_and_nothing_is_spilled(cases):
    for name, each in cases.items():
        code = compiled(source(each.kernels), HOPPER)
        assert not any(u.spills or u.stack_bytes for u in code.usage.values()), name
        found = [i for i in opcodes(code.cubin).values() if count(i, "HGMMA") + count(i, "IGMMA")]
        assert len(found) == 1
        boxes = name != "in more dimensions than boxes have"
        assert (count(found[0], "UTMALDG") > 0) == boxes == (count(found[0], "LDGSTS") == 0), name
        assert count(found[0], "STG.U16") == count(found[0], "STG.E.U16") == count(found[0], "HMMA") == 0, name


SMALL = {"turns": (2, (half(300, 264), half(200, 264))), "a tile for each block": (2, (half(256, 264), half(256, 264)))}
"""Multiprocessors of a device for which products are large, and what is multiplied."""


@pytest.fixture(scope="module")
def beside() -> dict[str, Made]:
    out: dict[str, Made] = {}
    for name, (blocks, arrays) in SMALL.items():
        program = called("plain", *arrays, module=module(OPERATORS))
        found = plan_for_device(program, rules=Rules(roles()), machine=replace(like(HOPPER), blocks=blocks))
        written = [d.name for d in found.schedule.directives]
        assert ("specialize" in written, "persistent" in written) == (True, name == "turns")
        lowered = device_loops(found.plan, f"beside_{len(out)}", schedule=found.schedule)
        assert exposed(lowered.function) is None
        out[name] = Made(program, lowered, device_text(lowered, schedule=found.schedule))
    return out


def test_a_thread_beside_two_groups_asks_for_what_they_multiply_next(beside, executor: Executor):
    compiled_ = library(beside.values(), executor)
    for name, each in beside.items():
        arrays = by_name(each.program, SMALL[name][1])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")
        code = compiled(source(each.kernels), HOPPER)
        (usage,), (found,) = code.usage.values(), opcodes(code.cubin).values()
        assert not usage.spills and usage.stack_bytes == 0
        assert count(found, "USETMAXREG") == 2 and count(found, "HGMMA") > 0 and count(found, "UTMALDG") > 0


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 4096), (8192, 8192, 8192), (4096, 768, 3072), (128, 3072, 768), (12544, 256, 64)])
def test_tiles_of_large_products_leave_registers(m, n, k):
    _, found = chosen("plain", *(np.broadcast_to(np.float16(0), s) for s in ((m, k), (n, k))))
    kernels = device_text(device_loops(found.plan, "large", schedule=found.schedule))
    code = compiled(source(kernels), HOPPER)
    assert not any(u.spills or u.stack_bytes for u in code.usage.values())


@pytest.mark.parametrize(
    ("operator", "arrays", "target"),
    [
        ("bytes_across", (whole(256, 256), whole(256, 256)), "cuda:sm_90a"),
        ("plain", (half(256, 260), half(256, 260)), "cuda:sm_90a"),
        ("plain", (half(256, 256), half(256, 256)), "cuda:sm_90"),
        ("plain", (half(256, 256), half(256, 256)), "cuda:sm_100a"),
        ("plain", (half(256, 32), half(256, 32)), "cuda:sm_90a"),
        ("plain", (half(40, 256), half(256, 256)), "cuda:sm_90a"),
    ],
    ids=["bytes across the sum", "rows of no whole vectors", "sm_90", "sm_100a", "one stretch", "fewer rows than an instruction"],
)
def test_what_four_warps_cannot_multiply_together_single_warps_do(operator, arrays, target):
    _, found = chosen(operator, *arrays, target=target)
    assert found.origin.startswith("schedule role warp_product")


@pytest.mark.parametrize(
    ("operator", "arrays", "copies"),
    [
        ("plain", (half(256, 256), half(256, 256)), ("[y.i, y.ci] with swizzle (64)", "[y.j, y.ci] with swizzle (64)")),
        ("across", (normal(256, 256), normal(256, 256)), ("[y.i, y.ci] with swizzle (64)", "[y.ci, y.j] with pad (8)")),
    ],
)
def test_copies_of_single_warps_lie_as_the_operands_do_and_what_is_left_out_is_named(operator, arrays, copies):
    _, found = chosen(operator, *arrays, target="cuda:sm_80")
    written = [show(d) for d in found.schedule.directives if d.name == "cache"]
    wanted = [f"cache {tensor} in shared at y.co as {how}" for tensor, how in zip("ab", copies, strict=True)]
    assert written == [*wanted, "cache y in registers"]
    assert len(found.left_out) == 2 and all(f"# {sentence}" in str(found) for sentence in found.left_out)
