"""Products of small matrices by a warp, and the loads of their operands: what they compute, where each lane holds it, what they become.

The maps from lanes and registers to elements are those of PTX ISA, "Matrix multiply-accumulate operation using mma instruction".
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled
from codegen.cuda.prelude import before
from codegen.cuda.sass import count, opcodes
from codegen.gpu.emulator import SEEDS, Library, build, run
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.nodes import Int

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Instruction:
    """d[16, 8] += a[16, K] * b[8, K]^T. Operands are random numbers of these NumPy types; `kept` is what they become in the product."""

    name: str
    k: int
    a: str
    b: str
    d: str
    sass: str

    @property
    def kernel(self) -> Kernel:
        text = f"""
TL_KERNEL(32, 0) {self.name}(TL_IN(tl_u32) a, TL_IN(tl_u32) b, TL_OUT(tl_{self.d}) d) {{
    tl_u32 a_r[4], b_r[2];
    tl_{self.d} d_r[4];
    TL_UNROLL
    for (int r = 0; r < 4; ++r) a_r[r] = a[tl_thread_x() * 4 + r], d_r[r] = d[tl_thread_x() * 4 + r];
    TL_UNROLL
    for (int r = 0; r < 2; ++r) b_r[r] = b[tl_thread_x() * 2 + r];
    tl_mma_{self.name}(d_r, a_r, b_r);
    TL_UNROLL
    for (int r = 0; r < 4; ++r) d[tl_thread_x() * 4 + r] = d_r[r];
}}
"""
        return Kernel(self.name, text, ("a", "b", "d"), (), (32, 1, 1))


INSTRUCTIONS = (
    Instruction("m16n8k16_bf16", 16, "bf16", "bf16", "f32", "HMMA.16816.F32.BF16"),
    Instruction("m16n8k16_f16", 16, "f16", "f16", "f32", "HMMA.16816.F32"),
    Instruction("m16n8k8_tf32", 8, "tf32", "tf32", "f32", "HMMA.1688.F32.TF32"),
    Instruction("m16n8k32_s8", 32, "s8", "s8", "i32", "IMMA.16832.S8.S8"),
    Instruction("m16n8k32_u8", 32, "u8", "u8", "i32", "IMMA.16832.U8.U8"),
    Instruction("m16n8k32_u8_s8", 32, "u8", "s8", "i32", "IMMA.16832.U8.S8"),
    Instruction("m16n8k32_s8_u8", 32, "s8", "u8", "i32", "IMMA.16832.S8.U8"),
)


def loading(matrices: int, transposed: bool) -> Kernel:
    """Return a kernel that loads `matrices`, whose rows lie one after the other, and stores what each lane has got."""
    suffix = f"x{matrices}{'_trans' * transposed}"
    text = f"""
TL_KERNEL(32, 0) load_{suffix}(TL_IN(tl_u16) x, TL_OUT(tl_u32) y) {{
    TL_SHARED(arena, {128 * matrices});
    TL_SHARED_ARRAY(tl_u16, x_s, arena, 0, {64 * matrices});
    for (int i = tl_thread_x(); i < {64 * matrices}; i += 32) x_s[i] = x[i];
    tl_warp_barrier();
    tl_u32 r[{matrices}];
    tl_ldmatrix_{suffix}(r, x_s + tl_lane() % {8 * matrices} * 8);
    TL_UNROLL
    for (int i = 0; i < {matrices}; ++i) y[i * 32 + tl_lane()] = r[i];
}}
"""
    return Kernel(f"load_{suffix}", text, ("x", "y"), (), (32, 1, 1), 128 * matrices)


LOADS = tuple(loading(*case) for case in itertools.product((1, 2, 4), (False, True)))

CONVERSIONS = Kernel(
    "conversions",
    """
TL_KERNEL(32, 0) conversions(TL_IN(tl_f32) x, TL_OUT(tl_u32) y) {
    tl_f32 low = x[tl_lane()], high = x[31 - tl_lane()];
    tl_u32 b = tl_round_bf16x2(low, high), h = tl_round_f16x2(low, high);
    y[tl_lane()] = tl_pack_bf16x2(tl_high_bf16x2(b), tl_low_bf16x2(b));
    y[tl_lane() + 32] = tl_pack_f16x2(tl_high_f16x2(h), tl_low_f16x2(h));
    y[tl_lane() + 64] = tl_round_tf32(low);
    y[tl_lane() + 96] = tl_pack_8x4((tl_u8)tl_lane(), 1, 2, 3);
}
""",
    ("x", "y"),
    (),
    (32, 1, 1),
)
KERNELS = (*(i.kernel for i in INSTRUCTIONS), *LOADS, CONVERSIONS)


@pytest.fixture(scope="module")
def library() -> Library:
    return build(KERNELS)


def launched(kernel: Kernel, arrays: dict[str, Array], seed: int, library: Library) -> None:
    run(
        Program("p", kernel.buffers, (), (kernel,), (Launch(kernel.name, (Int(1), Int(1), Int(1))),)),
        {},
        arrays,
        seed=seed,
        library=library,
    )


def random(kind: str, shape: tuple[int, int], seed: int) -> tuple[Array, Array]:
    """Return the bits of random elements, and the numbers they stand for."""
    generator = np.random.default_rng(seed)
    match kind:
        case "s8" | "u8":
            numbers = (
                generator.integers(-128, 128, shape).astype(np.int8) if kind == "s8" else generator.integers(0, 256, shape).astype(np.uint8)
            )
            return numbers.view(np.uint8), numbers.astype(np.int64)
        case "f16":
            halves = generator.standard_normal(shape).astype(np.float16)
            return halves.view(np.uint16), halves.astype(np.float64)
        case _:
            numbers = generator.standard_normal(shape, dtype=np.float32)
            kept = numbers.view(np.uint32) & np.uint32(0xFFFF0000 if kind == "bf16" else 0xFFFFE000)
            bits = (kept >> 16).astype(np.uint16) if kind == "bf16" else numbers.view(np.uint32)
            return bits, kept.view(np.float32).astype(np.float64)


def spread(bits: Array, registers: int) -> Array:
    """Return the words [lane, register] of an operand [rows, K]: register r of lane 4 g + t has row g; odd ones of a, g + 8."""
    words = np.ascontiguousarray(bits).view(np.uint32)  # [rows, 8]
    rows = words.shape[0] // 8
    lanes = np.arange(32)
    return np.stack([words[lanes // 4 + r % rows * 8, lanes % 4 + r // rows * 4] for r in range(registers)], axis=1)


def sums(d: Array) -> Array:
    """Return d[16, 8] as [lane, register]."""
    lanes = np.arange(32)
    return np.stack([d[lanes // 4 + r // 2 * 8, lanes % 4 * 2 + r % 2] for r in range(4)], axis=1)


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
def test_an_instruction_multiplies_what_its_lanes_hold(instruction: Instruction, library: Library) -> None:
    a, a_value = random(instruction.a, (16, instruction.k), 1)
    b, b_value = random(instruction.b, (8, instruction.k), 2)
    integers = instruction.d == "i32"
    start = np.arange(128).reshape(16, 8).astype(np.int32 if integers else np.float32)
    for seed in SEEDS:
        d = sums(start).copy()
        launched(instruction.kernel, {"a": spread(a, 4).copy(), "b": spread(b, 2).copy(), "d": d}, seed, library)
        expected = sums(start + a_value @ b_value.T)
        assert np.array_equal(d, expected) if integers else np.allclose(d, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("kernel", LOADS, ids=lambda k: k.name)
def test_a_lane_gets_two_elements_of_each_matrix(kernel: Kernel, library: Library) -> None:
    matrices = kernel.shared_bytes // 128
    x = np.arange(64 * matrices, dtype=np.uint16).reshape(matrices, 8, 8)
    rows = x.transpose(0, 2, 1) if kernel.name.endswith("trans") else x
    expected = np.ascontiguousarray(rows).reshape(matrices, 64).view(np.uint32)
    for seed in SEEDS:
        y = np.zeros((matrices, 32), np.uint32)
        launched(kernel, {"x": x, "y": y}, seed, library)
        assert np.array_equal(y, expected)


def test_pairs_are_rounded_to_the_nearest_and_tf32_away_from_zero(library: Library) -> None:
    x = np.random.default_rng(3).standard_normal(32, dtype=np.float32)
    x[:4] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, -1 - 2.0**-11
    y = np.zeros(128, np.uint32)
    launched(CONVERSIONS, {"x": x, "y": y}, 0, library)
    bits = x.view(np.uint32).astype(np.uint64)
    bf16 = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    assert np.array_equal(y[:32], bf16[::-1] | bf16 << 16)
    f16 = x.astype(np.float16).view(np.uint16).astype(np.uint64)
    assert np.array_equal(y[32:64], f16[::-1] | f16 << 16)
    assert np.array_equal(y[64:96], (bits + 0x1000) & 0xFFFFE000)
    assert y[101] == 5 | 1 << 8 | 2 << 16 | 3 << 24


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a", "sm_120"])
def test_each_is_one_instruction_of_the_machine(arch: str) -> None:
    text = "".join(kernel.text for kernel in KERNELS)
    made = compiled(before(text) + text, named(f"cuda:{arch}"))
    code = opcodes(made.cubin)
    assert not any(usage.spills or usage.stack_bytes for usage in made.usage.values())
    for instruction in INSTRUCTIONS:
        assert count(code[instruction.name], instruction.sass) == 1
    for kernel in LOADS:
        modifiers = ".T" * kernel.name.endswith("trans") + (f".{kernel.shared_bytes // 128}" if kernel.shared_bytes > 128 else "")
        assert count(code[kernel.name], f"LDSM.16{modifiers}".replace(".16.T", ".MT88")) == 1
    assert count(code["conversions"], "F2FP.BF16") == 1


def test_kernels_that_do_not_use_them_do_not_pay_for_them() -> None:
    assert "tl_mma_" not in before("tl_load_f32x4")
    assert before("tl_ldmatrix_x4") == before("tl_mma_m16n8k16_f16") != before("")
