"""Products of warpgroups: what they compute of each layout of their operands in shared memory, and that each is one instruction.

Layouts are those of PTX ISA, "Asynchronous warpgroup level matrix shared memory layout", and of CUTLASS (`mma_sm90_desc.hpp`), written here
as functions of an element's place; kernels copy the bytes to shared memory as they are.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from handwritten import text_of
from test_matrix_instructions import random, spread

from codegen.cuda.arch import named
from codegen.cuda.bindings import core
from codegen.cuda.compile import compiled
from codegen.cuda.prelude import before
from codegen.cuda.sass import count, opcodes
from codegen.gpu.emulator import SEEDS, Library, build, run
from codegen.gpu.prelude import wgmma
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.nodes import Int

Array = np.ndarray[Any, Any]
LANES = np.arange(128)


@dataclass(frozen=True)
class Layout:
    """Where elements of a matrix [rows, K] lie: along K, or `turned`; in rows of `swizzle` bytes, or in parts of 8 times 16 bytes (0)."""

    swizzle: int
    turned: bool = False

    def size(self, rows: int) -> int:
        return max(1024, rows * 32 if not self.turned else 32 * rows) * (4 if self.swizzle == 128 and not self.turned else 2)

    def strides(self, rows: int) -> tuple[int, int]:
        """Return (leading, stride) in bytes, as descriptors have them."""
        s = self.swizzle
        if not self.turned:
            return (16, 8 * s) if s else (rows * 16, 128)
        return (2 * 8 * s, 8 * s) if s else (rows * 16, 128)

    def place(self, row: int, k: int, element: int, rows: int) -> int:
        """Return the byte of element [row, k]."""
        s = self.swizzle
        leading, stride = self.strides(rows)
        outer, inner = (k, row * element) if self.turned else (row, k * element)
        if s:
            byte = outer // 8 * stride + outer % 8 * s + inner // s * leading + inner % s
            return byte ^ (byte // 128 % (s // 16)) * 16
        if self.turned:
            return outer // 8 * leading + inner // 16 * stride + outer % 8 * 16 + inner % 16
        return outer // 8 * stride + inner // 16 * leading + outer % 8 * 16 + inner % 16

    def image(self, bits: Array) -> Array:
        """Return the bytes of shared memory, as words."""
        rows, depth = bits.shape
        memory = np.zeros(self.size(rows), np.uint8)
        element = bits.dtype.itemsize
        for row in range(rows):
            for k in range(depth):
                at = self.place(row, k, element, rows)
                memory[at : at + element] = np.frombuffer(bits[row, k].tobytes(), np.uint8)
        return memory.view(np.uint32)


@dataclass(frozen=True)
class Instruction:
    kind: str
    columns: int
    a: Layout | None
    b: Layout

    @property
    def name(self) -> str:
        variant = ("_register_a" if self.a is None else "_transposed_a" * self.a.turned) + "_transposed_b" * self.b.turned
        return f"tl_wgmma_m64n{self.columns}k{self.k}_{self.kind}{variant}"

    @property
    def label(self) -> str:
        a = self.a.swizzle if self.a else "registers"
        return f"{self.name}_{a}_{self.b.swizzle}"

    @property
    def k(self) -> int:
        return {"tf32": 8, "s8": 32, "u8": 32}.get(self.kind, 16)

    @property
    def sums(self) -> str:
        return "i32" if self.kind in ("s8", "u8") else "f32"

    @property
    def kernel(self) -> Kernel:
        a_bytes, b_bytes = self.a.size(64) if self.a else 2048, self.b.size(self.columns)
        n = self.columns // 2
        operand = "a_r"
        if self.a is not None:
            operand = "tl_descriptor(a_s, {}, {}, {})".format(*self.a.strides(64), self.a.swizzle)
        second = "tl_descriptor(b_s, {}, {}, {})".format(*self.b.strides(self.columns), self.b.swizzle)
        text = f"""
TL_KERNEL(128, 0) {self.label}(TL_IN(tl_u32) a, TL_IN(tl_u32) b, TL_OUT(tl_{self.sums}) d) {{
    TL_SHARED(arena, {a_bytes + b_bytes});
    TL_SHARED_ARRAY(tl_u32, a_s, arena, 0, {a_bytes // 4});
    TL_SHARED_ARRAY(tl_u32, b_s, arena, {a_bytes}, {b_bytes // 4});
    const int t = tl_thread_x();
    tl_u32 a_r[4];
    TL_UNROLL
    for (int r = 0; r < 4; ++r) a_r[r] = a[t * 4 + r];
    for (int i = t; i < {a_bytes // 4}; i += 128) a_s[i] = a[i];
    for (int i = t; i < {b_bytes // 4}; i += 128) b_s[i] = b[i];
    tl_async_fence();
    tl_barrier();
    tl_{self.sums} d_r[{n}];
    TL_UNROLL
    for (int r = 0; r < {n}; ++r) d_r[r] = d[t * {n} + r];
    tl_wgmma_fence();
    {self.name}(d_r, {operand}, {second}, 1);
    tl_wgmma_commit();
    TL_WGMMA_WAIT(0);
    TL_UNROLL
    for (int r = 0; r < {n}; ++r) d[t * {n} + r] = d_r[r];
}}
"""
        return Kernel(self.label, text, ("a", "b", "d"), (), (128, 1, 1), a_bytes + b_bytes)


ALONG_K = [Layout(s) for s in (0, 32, 64, 128)]
TURNED = [Layout(s, True) for s in (0, 32, 64, 128)]
INSTRUCTIONS = (
    *(Instruction("bf16", 64, layout, layout) for layout in (*ALONG_K, *TURNED)),
    Instruction("bf16", 8, Layout(128), Layout(128)),
    Instruction("bf16", 256, None, Layout(128)),
    Instruction("f16", 128, None, Layout(64, True)),
    Instruction("f16", 24, Layout(128, True), Layout(32)),
    Instruction("tf32", 40, Layout(128), Layout(64)),
    Instruction("tf32", 16, None, Layout(0)),
    Instruction("s8", 48, Layout(128), Layout(128)),
    Instruction("u8", 32, None, Layout(32)),
)


@pytest.fixture(scope="module")
def library() -> Library:
    return build([i.kernel for i in INSTRUCTIONS])


def held(d: Array) -> Array:
    """Return d[64, N] as [thread, register]."""
    rows = LANES // 32 * 16 + LANES % 32 // 4
    columns = LANES % 4 * 2
    return np.stack([d[rows + r % 4 // 2 * 8, columns + r // 4 * 8 + r % 2] for r in range(d.shape[1] // 2)], axis=1)


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.label)
def test_a_product_reads_its_operands_where_the_descriptor_says(instruction: Instruction, library: Library) -> None:
    kernel, n = instruction.kernel, instruction.columns
    a, a_value = random(instruction.kind, (64, instruction.k), 1)
    b, b_value = random(instruction.kind, (n, instruction.k), 2)
    a_words = instruction.a.image(a) if instruction.a else np.concatenate([spread(rows, 4) for rows in np.split(a, 4)]).reshape(-1)
    start = np.arange(64 * n).reshape(64, n).astype(np.int32 if instruction.sums == "i32" else np.float32)
    expected = held(start + a_value @ b_value.T)
    program = Program("p", kernel.buffers, (), (kernel,), (Launch(kernel.name, (Int(1), Int(1), Int(1))),))
    for seed in SEEDS:
        d = held(start).copy()
        run(program, {}, {"a": a_words.copy(), "b": instruction.b.image(b), "d": d}, seed=seed, library=library)
        assert np.array_equal(d, expected) if instruction.sums == "i32" else np.allclose(d, expected, rtol=1e-6, atol=1e-4)


def test_each_is_one_instruction_of_the_machine() -> None:
    text = "".join(i.kernel.text for i in INSTRUCTIONS)
    made = compiled(before(text) + text, named("cuda:sm_90a"))
    code = opcodes(made.cubin)
    for i in INSTRUCTIONS:
        assert not made.usage[i.label].spills
        name = {"tf32": "HGMMA.64x{}x8.F32.TF32", "s8": "IGMMA.64x{}x32.S8.S8", "u8": "IGMMA.64x{}x32.U8.U8"}.get(
            i.kind, "HGMMA.64x{}x16.F32"
        )
        assert count(code[i.label], name.format(i.columns)) == 1


def test_a_kernel_of_producers_and_consumers_compiles_to_what_it_says_without_spills_or_remarks() -> None:
    text = text_of("warpgroup_products")
    log = io.StringIO()
    options = core.ProgramOptions(arch="sm_90a", ptxas_options=["-v"])
    cubin = core.Program(before(text) + text, "c++", options).compile("cubin", logs=log).code
    code = opcodes(bytes(cubin))["warpgroup_products"]
    assert count(code, "HGMMA.64x64x16.F32.BF16") % 4 == 0 < count(code, "HGMMA")
    assert count(code, "UTMALDG.2D") > 0
    assert count(code, "USETMAXREG") == 2
    assert "0 bytes spill stores, 0 bytes spill loads" in log.getvalue()
    assert "C75" not in log.getvalue()


def test_only_products_that_exist_are_written() -> None:
    names = (
        "tl_wgmma_m64n12k16_bf16 tl_wgmma_m64n64k8_bf16 tl_wgmma_m64n40k32_s8 tl_wgmma_m64n64k8_tf32_transposed_b tl_wgmma_m64n264k16_f16"
    )
    assert wgmma.named(names) == ()
    assert [p.name for p in wgmma.named("tl_wgmma_m64n16k16_f16(d) tl_wgmma_m64n8k16_bf16 tl_wgmma_m64n16k16_f16")] == [
        "tl_wgmma_m64n16k16_f16",
        "tl_wgmma_m64n8k16_bf16",
    ]
