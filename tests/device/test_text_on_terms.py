"""The text of kernels, run by the emulator on terms: what it computes are the terms of the equations, and faults in it are found that no
loop shows: which lane holds what, which stage is read, where a swizzle puts an element, what is a zero and what a neighbour."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from batch import Made
from device_programs import called
from test_matrix import OPERATOR, made, module, normal
from usual_device import device_loops, device_text, plan_for_device

from codegen.gpu import emulator
from codegen.gpu.emulator import Library
from codegen.gpu.program import Program as Kernels
from stdlib.library import roles
from tensorlang.diagnostics import InternalError
from tensorlang.planning import Rules
from tensorlang.tensor.nodes import Program
from tensorlang.validation.text import validate_text

WARPS = """
schedule matmul for cuda {
    split i by 32 -> io, ib
    split ib by 16 -> iw, mi
    split j by 8 -> jo, ni
    split k by 16 -> ko, ki
    order io, jo, ko, iw, mi, ni, ki
    cache a in shared at ko as [i, k] with swizzle (32)
    cache b in shared at ko as [j, k] with swizzle (32)
    stages ko by 2
    bind io, jo, iw to block.y, block.x, warp.y
    tensorize mi, ni, ki with mma_m16n8k16_bf16
}
"""
TF32 = "op matmul(a: f32[M, K], b: f32[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) round_tf32(a[i, k]) * round_tf32(b[j, k]) }"
BYTES = "op matmul(a: i8[M, K], b: i8[N, K]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(a[i, k]) * i32(b[j, k]) }"
FOUR_WARPS = """
schedule matmul for cuda {
    split i by 64 -> io, ib
    split ib by 64 -> iw, mi
    split j by 8 -> jo, ni
    split k by 16 -> ko, ki
    order io, jo, ko, iw, mi, ni, ki
    cache a in shared at ko as [i, k] with swizzle (32)
    cache b in shared at ko as [j, k] with swizzle (32)
    stages ko by 2 with tma
    bind io, jo, iw to block.y, block.x, warpgroup
    tensorize mi, ni, ki with wgmma_bf16
}
"""
ROWS = "op rows(a: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * w[k, j] }"
DOUBLES = "op rows(a: f64[M, K], w: f64[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) f32(a[i, k]) * f32(w[k, j]) }"
SHARED_BOXES = """
schedule rows for cuda {
    tile y (i, j) by (8, 8) -> io, jo, ii, ji
    split k by 8 -> ko, ki
    order io, jo, ko, ii, ji, ki
    cache a in shared at ko as [i, k]
    cache w in shared at ko as [k, j]
    stages ko by 2 with tma
    bind io, jo to block.y, block.x
    cluster jo by 2
    multicast a at jo
    bind ii, ji to thread.y, thread.x
}
"""
COPIES_AHEAD = """
schedule rows for cuda {
    tile y (i, j) by (8, 8) -> io, jo, ii, ji
    split k by 4 -> ko, ki
    order io, jo, ko, ii, ji, ki
    cache a in shared at ko as [k, i] with pad (4)
    cache w in shared at ko as [k, j]
    stages ko by 3
    bind io, jo to block.y, block.x
    bind ii, ji to thread.y, thread.x
}
"""
TOTAL = "op total(x: f32[N]) -> (y: f32) { y = sum(k) x[k] }"
CENTRED = "op centred(x: f32[N]) -> (y: f32[N]) {\n s = sum(k) x[k]\n y[i] = x[i] - s\n}"
ORDINALS = "op ordinals(x: f32[N]) -> (y: u32[N]) { y[i] = ordinal(x[i]) }"
F32 = np.float32
WRITTEN = {
    "products of warps, in stages": (OPERATOR + WARPS, (normal(24, 24), normal(10, 24))),
    "products of tf32": (
        TF32 + WARPS.replace("mma_m16n8k16_bf16", "mma_m16n8k8_tf32").replace("k by 16", "k by 8"),
        (normal(24, 12, dtype=F32), normal(10, 12, dtype=F32)),
    ),
    "products of bytes": (
        BYTES + WARPS.replace("mma_m16n8k16_bf16", "mma_m16n8k32_s8").replace("k by 16", "k by 32"),
        tuple(np.zeros((n, 48), np.int8) for n in (24, 10)),
    ),
    "products of four warps, of boxes": (OPERATOR + FOUR_WARPS, (normal(64, 24), normal(10, 24))),
    "a thread beside that asks for boxes": (
        OPERATOR + FOUR_WARPS.replace("with tma\n", "with tma\n    specialize ko\n"),
        (normal(64, 24), normal(8, 24)),
    ),
    "boxes that blocks share": (ROWS + SHARED_BOXES, (normal(10, 20, dtype=F32), normal(20, 16, dtype=F32))),
    "elements that are converted where they are read": (
        DOUBLES + COPIES_AHEAD,
        (normal(3, 6, dtype=np.float64), normal(6, 9, dtype=np.float64)),
    ),
    "copies ahead": (ROWS + COPIES_AHEAD, (normal(10, 18, dtype=F32), normal(18, 12, dtype=F32))),
}
CHOSEN = {
    "rows of a softmax": called("softmax", normal(3, 70, dtype=F32), axis=1),
    "a norm of halves": called(
        "layer_norm", normal(2, 40, dtype=np.float16), normal(40, dtype=np.float16), normal(40, dtype=np.float16), axis=1
    ),
    "a sum by all threads of a block": called("total", normal(5000, dtype=F32), module=module(TOTAL)),
    "the order of numbers": called("ordinals", normal(70, dtype=F32), module=module(ORDINALS)),
    "a value between two launches": called("centred", normal(300, dtype=F32), module=module(CENTRED)),
}


def chosen(program: Program, symbol: str) -> Made:
    lowered = device_loops(plan_for_device(program, rules=Rules(roles())).plan, symbol)
    return Made(program, lowered, device_text(lowered))


@cache
def kernels() -> dict[str, Made]:
    own = {
        name: made(text, f"terms_{k}", *arrays, operator=text.split("(")[0].split()[1])
        for k, (name, (text, arrays)) in enumerate(WRITTEN.items())
    }
    return own | {name: chosen(program, f"chosen_{k}") for k, (name, program) in enumerate(CHOSEN.items())}


FAULTS = {
    "lanes of a result exchanged": ("products of warps, in stages", "y_ni_1_l_1 = thread % 4", "y_ni_1_l_1 = 3 - thread % 4"),
    "registers of a result exchanged": (
        "products of warps, in stages",
        "y_0_acc[2 * y_mi_1_r_1 + y_ni_1_r_1], 0.0f",
        "y_0_acc[2 * y_ni_1_r_1 + y_mi_1_r_1], 0.0f",
    ),
    "quarters of a fragment exchanged": (
        "products of warps, in stages",
        "128 * (l / 8 % 2) + 16 * (l % 8) + 8 * (l / 16)",
        "128 * (l / 16) + 16 * (l % 8) + 8 * (l / 8 % 2)",
    ),
    "a fragment transposed": ("products of warps, in stages", "tl_ldmatrix_x2(", "tl_ldmatrix_x2_trans("),
    "the fragment of another warp": ("products of warps, in stages", "256 * y_iw_1_1_1 + 128", "256 * (1 - y_iw_1_1_1) + 128"),
    "a swizzle of other rows where it is written": (
        "products of warps, in stages",
        "^ (8 * (t_1_1_1 / 8 % 2))",
        "^ (8 * (t_1_1_1 / 4 % 2))",
    ),
    "no swizzle where it is read": ("products of warps, in stages", "^ (8 * (l_1 % 8 / 4))", "^ 0"),
    "the stage before": ("products of warps, in stages", "b_pack + ((128 * y_ko + 16 *", "b_pack + ((128 * (y_ko / 2) + 16 *"),
    "another step of the sum in a stage": ("products of warps, in stages", "8 * (t_1_1 % 2) + 16,", "8 * (t_1_1 % 2),"),
    "zeros instead of the last row": ("products of warps, in stages", "t_1_1_1 / 2 < 24", "t_1_1_1 / 2 < 23"),
    "sums that begin with 1": ("products of warps, in stages", "] = 0.0f;", "] = 1.0f;"),
    "a product taken twice": (
        "products of warps, in stages",
        "tl_mma_m16n8k16_bf16(y_0_acc, a_pack_f, b_pack_f);",
        "tl_mma_m16n8k16_bf16(y_0_acc, a_pack_f, b_pack_f); tl_mma_m16n8k16_bf16(y_0_acc, a_pack_f, b_pack_f);",
    ),
    "elements of another type": ("products of warps, in stages", "tl_mma_m16n8k16_bf16", "tl_mma_m16n8k16_f16"),
    "another function of the sums": ("products of warps, in stages", "tl_max_f32(y_0_acc", "tl_min_f32(y_0_acc"),
    "bytes without their swizzle": ("products of bytes", "^ (16 * (l % 8 / 4))", "^ 0"),
    "the box of another block": ("products of four warps, of boxes", "b_map, 16 * y_ko + 16, 8 * y_jo", "b_map, 16 * y_ko + 16, 0"),
    "the matrix of the stage before": (
        "products of four warps, of boxes",
        "tl_descriptor(a_pack + 1024 * y_ko,",
        "tl_descriptor(a_pack + 0,",
    ),
    "a matrix said not to be swizzled": (
        "products of four warps, of boxes",
        "tl_descriptor(b_pack + 128 * y_ko, 16, 256, 32)",
        "tl_descriptor(b_pack + 128 * y_ko, 16, 256, 0)",
    ),
    "numbers that were not rounded to tf32": ("products of tf32", "tl_round_tf32_bits(", "("),
    "a tree with a level twice": ("rows of a softmax", "(part_1, 4, 32)", "(part_1, 8, 32)"),
    "a tree without its last level": ("rows of a softmax", "part_1 = part_1 + tl_shuffle_xor_f32(part_1, 1, 32);", ""),
    "a maximum that is not subtracted": ("rows of a softmax", "x_pack[e_jo][e_jv] - m", "x_pack[e_jo][e_jv]"),
    "the part of a warp left out": ("a sum by all threads of a block", "l_1 < 8 ?", "l_1 < 7 ?"),
}


@cache
def faulty(fault: str) -> Kernels:
    """Return kernels with one fault, under a name of their own."""
    case, right, wrong = FAULTS[fault]
    program = kernels()[case].kernels
    (kernel,) = program.kernels
    assert right in kernel.text
    name = f"{kernel.name}_{list(FAULTS).index(fault)}"
    changed = replace(kernel, name=name, text=kernel.text.replace(right, wrong).replace(f"{kernel.name}(", f"{name}("))
    return replace(program, kernels=(changed,), launches=tuple(replace(launch, kernel=name) for launch in program.launches))


@cache
def compiled() -> Library:
    """Return all kernels, those with faults too, compiled at once."""
    programs = [*(each.kernels for each in kernels().values()), *map(faulty, FAULTS)]
    return emulator.build([k for program in programs for k in program.kernels], terms=True)


@pytest.mark.parametrize("name", [*WRITTEN, *CHOSEN])
def test_the_text_computes_the_terms_of_the_equations(name: str) -> None:
    each = kernels()[name]
    assert str(validate_text(each.program, each.kernels, each.lowered.params, library=compiled())) == "validated"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_found(fault: str) -> None:
    each = kernels()[FAULTS[fault][0]]
    with pytest.raises(InternalError, match="is not what the equation says"):
        validate_text(each.program, faulty(fault), each.lowered.params, library=compiled())


def said_of(value: str, right: str, wrong: str) -> str:
    """Return what validating says of the text of `y[i] = value` with a fault, "" when it finds nothing wrong."""
    program = called(
        "f", normal(3, dtype=F32), normal(3, dtype=F32), module=module(f"op f(x: f32[N], w: f32[N]) -> (y: f32[N]) {{ y[i] = {value} }}")
    )
    each = chosen(program, "small")
    (kernel,) = each.kernels.kernels
    assert right in kernel.text
    wrong_one = replace(each.kernels, kernels=(replace(kernel, text=kernel.text.replace(right, wrong)),))
    try:
        validate_text(program, wrong_one, each.lowered.params)
    except InternalError as found:
        return found.detail.partition("\n\n")[0]
    return ""


def test_the_first_element_that_differs_is_shown_with_both_terms() -> None:
    assert said_of("x[i] * w[i]", "x[", "w[") == (
        "`f`: `y[0]` is not what the equation says\n  equation (x[0] * w[0])\n  kernels  (w[0] * w[0])\n"
        "where they part\n  equation x[0]\n  kernels  w[0]"
    )


def test_what_data_decides_is_what_the_equation_asks_even_where_data_agrees() -> None:
    value = "if x[i] > 0.25 then x[i] else w[i]"
    assert said_of(value, "0.25f", "0.25f") == ""
    assert "decided by what no equation asks" in said_of(value, "0.25f", "0.375f")


def test_what_is_too_large_is_said_to_be() -> None:
    each = kernels()["products of bytes"]
    outcome = validate_text(each.program, each.kernels, each.lowered.params, budget=100)
    assert str(outcome) == "not validated: too large, more than 100 operations"
