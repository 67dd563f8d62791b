"""Products that the lanes of a warp compute together: in every order of threads what the operator says, and the machine code's own
instructions for it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from device_programs import called
from executors import Executor
from usual_device import device_loops, device_text, plan_for_device

import tensorlang as tl
from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.gpu import matrix
from codegen.loops.nodes import Index
from stdlib.library import roles
from tensorlang.backends.cuda.machine import like, machine_code
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.lower.barriers import exposed
from tensorlang.planning import Rules
from tensorlang.runtime.library import with_roles
from tensorlang.schedule import warps
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret

Array = np.ndarray[Any, Any]
bf16 = ml_dtypes.bfloat16
ROOT = Path(__file__).parents[2]

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


def made(text: str, symbol: str, *arrays: Array, operator: str = "matmul", **attrs: object) -> Made:
    """Return the kernels of an operator under the schedule that its text has, whose barriers suffice."""
    own = module(text)
    program = called(operator, *arrays, module=own, **attrs)
    found = plan_for_device(program, rules=Rules(module=own, operator=operator, attrs=attrs, target="cuda"))
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


def test_a_product_of_warps_is_that_of_the_operator_in_every_order_of_threads(variants, executor: Executor):
    compiled_ = library(variants.values(), executor)
    for name, each in variants.items():
        arrays = by_name(each.program, (normal(128, 96), normal(64, 96)))
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


@pytest.mark.parametrize("kind", [name for name in VARIANTS if name != "operands where they are"])
def test_tiles_at_the_edges_of_matrices_go_on_over_zeros(kind, executor: Executor):
    sizes = [(100, 90, 50), (33, 20, 17), (120, 96, 64)]
    found = [made(OPERATOR + VARIANTS[kind], f"edges_{k}_{n}", normal(m, k), normal(n, k)) for m, k, n in sizes]
    compiled_ = library(found, executor)
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


def test_an_operator_s_own_schedule_that_is_refused_is_an_error():
    text = OPERATOR + SCHEDULE.replace("warp.y, warp.x", "thread.y, thread.x")
    with pytest.raises(CompileError, match="gives parts of a warp to it: bind it to warp"):
        tl.parse(text, target="cuda:sm_80").matmul.stages(normal(128, 96), normal(64, 96), dump=lambda stage, text: None)


def test_a_product_that_would_go_beyond_the_edge_of_a_matrix_is_refused():
    with pytest.raises(CompileError, match="not known to go on over zeros"):
        made(OPERATOR + VARIANTS["operands where they are"], "refused", normal(100, 96), normal(64, 96))


OWN = """
instruction mine(c: f32[16, 8], a: bf16[16, 16], b: bf16[8, 16]) -> (d: f32[16, 8]) for sm_80
    where c[m, n] in warp(4 * (m % 8) + n // 2, 2 * (m // 8) + n % 2),
        a[m, k] in warp(4 * (m % 8) + k % 8 // 2, k % 2 + 2 * (m // 8) + 4 * (k // 8)),
        b[n, k] in warp(4*n + k % 8 // 2, k % 2 + 2 * (k // 8)) {
    d[m, n] = c[m, n] + sum(k in 0..16) f32(a[m, k]) * f32(b[n, k])
}
"""


def test_a_file_declares_an_instruction_of_its_own():
    arrays = normal(128, 96), normal(64, 96)
    own = made(OWN + OPERATOR + SCHEDULE.replace("with mma_m16n8k16_bf16", "with mine"), "own", *arrays)
    assert own.kernels.text.replace("own_0", "") == made(OPERATOR + SCHEDULE, "own", *arrays).kernels.text.replace("own_0", "")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "k % 2 + 2 * (m // 8) + 4 * (k // 8)",
            "k % 2 + 4 * (m // 8) + 2 * (k // 8)",
            r"lane 0 holds `a\[8, 0\]` as element 2",
        ),
        ("4*n + k % 8 // 2", "n + k % 8 // 2 * 8", r"lane 1 holds `b\[0, 2\]` as element 0, the declaration has it at lane 8"),
        ("for sm_80", "for sm_90a", "is an instruction of sm_80, not of sm_90a"),
        (OWN[OWN.index("    where") : OWN.index(" {\n")], "", "nothing says which lane holds what of `c`"),
        ("f32(a[m, k])", "2.0 * f32(a[m, k])", "not supported yet: an instruction that is neither"),
    ],
)
def test_an_instruction_that_no_processor_has_is_refused(before, after, message):
    text = OWN.replace(before, after) + OPERATOR + SCHEDULE.replace("with mma_m16n8k16_bf16", "with mine")
    with pytest.raises(CompileError, match=message):
        made(text, "refused", normal(128, 96), normal(64, 96))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("f32(a[i, k]) * f32(b[j, k])", "f32(a[i, k]) * f32(b[j, k]) * 0.5", "what is added is not a product of two elements"),
        ("op matmul", "strict op matmul", "the operator is strict"),
        ("sum(k) ", "sum(k in 0..i) ", "what the sum goes over is not the same for all elements"),
        ("split jq by 8", "split jq by 16", "has 16 iterations, the instruction 8"),
        ("mi, ni, ki\n    cache", "ni, mi, ki\n    cache", "they are not the innermost loops, in this order"),
    ],
)
def test_a_sum_that_is_not_that_of_the_instruction_is_refused(before, after, message):
    text = (OPERATOR + SCHEDULE).replace(before, after)
    with pytest.raises(CompileError, match=message):
        made(text, "refused", normal(128, 128), normal(128, 128))


def test_an_operand_that_moves_along_rows_and_columns_is_refused():
    text = OPERATOR.replace("b[j, k]", "b[(i + j) % N, k]") + VARIANTS["operands where they are"]
    with pytest.raises(CompileError, match=r"`b` is not the same for all of `y\.mi`"):
        made(text, "refused", normal(128, 128), normal(128, 128))


def test_a_device_without_the_instruction_is_refused_and_gets_schedules_without_it(variants):
    old = named("cuda:sm_75")
    with pytest.raises(CompileError, match="multiplies matrices by `m16n8k16_bf16`, which `cuda:sm_75` does not have"):
        machine_code([variants["at once, rows padded"].kernels], old, None, 1)
    program = called("matmul", normal(64, 64), normal(64, 64))
    taken = [plan_for_device(program, rules=Rules(roles()), machine=like(arch)).origin for arch in (old, named("cuda:sm_80"))]
    assert [origin.startswith("schedule role warp_product") for origin in taken] == [False, True]


PRODUCTS = {
    "rows by rows": ("gemm_nt", (100, 96), (72, 96)),
    "rows by columns": ("matmul", (128, 96), (96, 64)),
    "columns by columns": ("gemm_tn", (96, 136), (96, 72)),
    "columns by rows, nothing a multiple of anything": ("gemm_tt", (77, 141), (101, 77)),
    "many": ("matmul", (3, 40, 64), (3, 64, 48)),
    "rows of which eight bytes are copied at once": ("gemm_nt", (130, 100), (66, 100)),
    "less than a tile": ("matmul", (17, 33), (33, 9)),
}


@pytest.fixture(scope="module")
def products() -> dict[str, tuple[Made, tuple[Array, Array]]]:
    out: dict[str, tuple[Made, tuple[Array, Array]]] = {}
    for (name, (operator, *shapes)), dtype in zip(PRODUCTS.items(), cycle((bf16, np.float16))):
        arrays = tuple(normal(*shape, dtype=dtype) for shape in shapes)
        program = called(operator, *arrays)
        found = plan_for_device(program, rules=Rules(roles()))
        assert found.origin.startswith("schedule role warp_product")
        lowered = device_loops(found.plan, f"product_{len(out)}", schedule=found.schedule)
        assert exposed(lowered.function) is None
        made_ = Made(program, lowered, device_text(lowered, schedule=found.schedule))
        out[f"{name}, {np.dtype(dtype).name}"] = (made_, (arrays[0], arrays[1]))
    return out


def test_products_of_narrow_numbers_are_those_of_warps_whatever_lies_where(products, executor: Executor):
    compiled_ = library((made_ for made_, _ in products.values()), executor)
    for name, (each, arrays) in products.items():
        assert (name, difference(each, by_name(each.program, arrays), {}, compiled_, close=1e-2)) == (name, "")


@pytest.fixture(scope="module")
def large() -> str:
    """Return the text of a large product, the same for every architecture."""
    found = plan_for_device(called("gemm_nt", normal(512, 1024), normal(1024, 1024)), rules=Rules(roles()))
    return source(device_text(device_loops(found.plan, "large", schedule=found.schedule)))


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"])
def test_large_products_multiply_matrices_and_spill_nothing(large, arch):
    code = compiled(large, named(f"cuda:{arch}"))
    (usage,), (instructions,) = code.usage.values(), opcodes(code.cubin).values()
    assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
    assert count(instructions, "HMMA.16816") >= 2 * count(instructions, "LDSM.4") > 0
    assert count(instructions, "LDGSTS.128") > 0 and count(instructions, "LDS.U16") == 0


BYTES = """
op rows_by_rows(a: A[M, K], b: B[N, K]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(a[i, k]) * i32(b[j, k]) }
op rows_by_columns(a: A[M, K], b: B[K, N]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(a[i, k]) * i32(b[k, j]) }
op columns_by_columns(a: A[K, M], b: B[K, N]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(a[k, i]) * i32(b[k, j]) }
"""
SHAPES = {
    "rows_by_rows": ((70, 128), (72, 128)),
    "rows_by_columns": ((64, 96), (96, 50)),
    "columns_by_columns": ((100, 65), (100, 40)),
}


def test_products_of_bytes_are_exact_in_every_order_of_threads(executor: Executor):
    rng = np.random.default_rng(0)
    cases: list[tuple[Made, list[Array]]] = []
    pairs = ((np.int8, np.int8), (np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8))
    for (first, second), (operator, shapes) in zip((*pairs, *pairs[1:3]), cycle(SHAPES.items())):
        names = ({np.int8: "i8", np.uint8: "u8"}[t] for t in (first, second))
        own = module(BYTES.replace("A[", f"{next(names)}[").replace("B[", f"{next(names)}["))
        arrays = [rng.integers(np.iinfo(t).min, np.iinfo(t).max, s, dtype=t) for t, s in zip((first, second), shapes, strict=True)]
        program = called(operator, *arrays, module=own)
        found = plan_for_device(program, rules=Rules(roles()))
        assert found.origin.startswith("schedule role warp_product")
        lowered = device_loops(found.plan, f"bytes_{len(cases)}", schedule=found.schedule)
        cases.append((Made(program, lowered, device_text(lowered, schedule=found.schedule)), arrays))
    compiled_ = library((each for each, _ in cases), executor)
    for each, arrays in cases:
        assert difference(each, by_name(each.program, arrays), {}, compiled_, close=0) == ""


TF32 = "op matmul(a: f32[M, K], b: f32[N, K]) -> (y: f32[M, N]) { y[i, j] = max(sum(k) round_tf32(a[i, k]) * round_tf32(b[j, k]), 0.0) }"
TF32_SCHEDULE = (
    SCHEDULE.replace("kb by 16", "kb by 8").replace("swizzle (64)", "swizzle (128)").replace("mma_m16n8k16_bf16", "mma_m16n8k8_tf32")
)
TF32_VARIANTS = {
    "in stages, columns exchanged": TF32_SCHEDULE,
    "rows that lie across": TF32_SCHEDULE.replace("as [i, k] with swizzle (128)", "as [k, i] with pad (4)"),
    "operands where they are": "\n".join(line for line in TF32_SCHEDULE.split("\n") if "cache" not in line and "stages" not in line),
}


@pytest.fixture(scope="module")
def in_tf32() -> dict[str, Made]:
    arrays = normal(128, 96, dtype=np.float32), normal(64, 96, dtype=np.float32)
    return {name: made(TF32 + text, f"tf32_{k}", *arrays) for k, (name, text) in enumerate(TF32_VARIANTS.items())}


def test_products_of_what_is_rounded_to_tf32_are_those_of_the_operator(in_tf32, executor: Executor):
    arrays = normal(128, 96, dtype=np.float32), normal(64, 96, dtype=np.float32)
    rounded = np.maximum(arrays[0].astype(np.float64) @ arrays[1].T.astype(np.float64), 0)
    edge = made(TF32 + TF32_SCHEDULE, "tf32_edge", normal(100, 50, dtype=np.float32), normal(90, 50, dtype=np.float32))
    compiled_ = library([*in_tf32.values(), edge], executor)
    for name, each in in_tf32.items():
        given = by_name(each.program, arrays)
        assert (name, difference(each, given, {}, compiled_, close=1e-5)) == (name, "")
        assert np.abs(interpret(each.program, {}, given)["y"] - rounded).max() > 1e-3  # it matters that they are rounded
    given = by_name(edge.program, (normal(100, 50, dtype=np.float32), normal(90, 50, dtype=np.float32)))
    assert difference(edge, given, {}, compiled_, close=1e-5) == ""


def test_the_machine_code_multiplies_in_tf32_and_spills_nothing(in_tf32):
    for arch in ("sm_80", "sm_90a", "sm_120"):
        code = compiled(source(in_tf32["in stages, columns exchanged"].kernels), named(f"cuda:{arch}"))
        (usage,), (found,) = code.usage.values(), opcodes(code.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert count(found, "HMMA.1688.F32.TF32") > 0 and count(found, "LDSM") > 0


@pytest.mark.parametrize(
    ("operator", "schedule", "message"),
    [
        (TF32.replace("round_tf32", ""), TF32_SCHEDULE, "the instruction rounds what it multiplies to tf32, the sum does not"),
        (TF32.replace("round_tf32(b[j, k])", "b[j, k]"), TF32_SCHEDULE, "what is added is not a product of two elements"),
        (OPERATOR.replace("f32(", "round_tf32("), TF32_SCHEDULE, "multiplies f32 with f32, the sum bf16 with bf16"),
        (TF32, SCHEDULE, "the sum rounds what it multiplies to tf32, the instruction does not"),
    ],
)
def test_nothing_is_rounded_to_tf32_that_the_operator_does_not_round(operator, schedule, message):
    dtype = bf16 if "bf16" in operator else np.float32
    with pytest.raises(CompileError, match=message):
        made(operator + schedule, "refused", normal(128, 96, dtype=dtype), normal(64, 96, dtype=dtype))


def test_the_document_s_product_in_tf32_is_that_of_its_operator(executor: Executor):
    text = (ROOT / "docs" / "instructions.md").read_text()
    found = re.search(r"```tl\n(op matmul_tf32.*?)```", text, re.DOTALL)
    assert found is not None
    arrays = normal(40, 70, dtype=np.float32), normal(24, 70, dtype=np.float32)
    each = made(found[1], "documented", *arrays, operator="matmul_tf32")
    assert difference(each, by_name(each.program, arrays), {}, library([each], executor), close=1e-5) == ""
    assert "tl_mma_m16n8k8_tf32" in each.kernels.text


def test_f64_is_not_rounded_to_tf32():
    with pytest.raises(CompileError, match="`round_tf32` is not defined for `f64`"):
        called("f", np.zeros(3), module=module("op f(x: f64[N]) -> (y: f64[N]) { y[i] = round_tf32(x[i]) }"))


def test_a_wrong_place_is_refused_and_where_the_table_has_it_too_the_emulator_sees_it(monkeypatch):
    right = matrix.row_at

    def wrong(row: Index, place: Index, register: int, element: int, together: int) -> tuple[Index, Index]:
        return right(row, place, (0, 2, 1, 3)[register], element, together)

    arrays = normal(64, 32), normal(64, 32)
    text = OPERATOR + VARIANTS["operands where they are"].replace("with mma_m16n8k16_bf16", "with mine")
    turned = OWN.replace("k % 2 + 2 * (m // 8) + 4 * (k // 8)", "k % 2 + 4 * (m // 8) + 2 * (k // 8)")
    with pytest.raises(CompileError, match="the declaration has it at"):
        made(turned + text, "refused", *arrays)
    monkeypatch.setattr(matrix, "row_at", wrong)
    monkeypatch.setattr(warps, "_misplaced", warps._misplaced.__wrapped__)
    planted = made(turned + text, "planted", *arrays)
    assert difference(planted, by_name(planted.program, arrays), {}, library([planted]), seeds=[0], close=1e-2) != ""


def test_rows_that_are_turned_where_they_are_not_to_be_are_seen_by_the_emulator(variants):
    each = variants["at once, rows padded"]
    turned = [replace(k, text=k.text.replace("tl_ldmatrix_x4(", "tl_ldmatrix_x4_trans(")) for k in each.kernels.kernels]
    planted = replace(each, kernels=replace(each.kernels, kernels=tuple(turned)))
    arrays = by_name(each.program, (normal(128, 96), normal(64, 96)))
    assert difference(planted, arrays, {}, library([planted]), seeds=[0], close=1e-2) != ""
