"""The vocabulary of kernel text is machine code on every generation of devices, and the instructions that it promises."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import pytest

from codegen.cuda.arch import named
from codegen.cuda.bindings import core
from codegen.cuda.compile import compiled
from codegen.cuda.prelude import before
from codegen.cuda.sass import count, opcodes

_FUNCTION = "#define TL_FUNCTION static __device__ __forceinline__"
KERNEL = """
TL_KERNEL(256, 0) k(TL_IN(tl_f32) x, TL_IN(tl_bf16) b, TL_OUT(tl_f32) y, TL_OUT(tl_bf16) c, tl_i64 N, tl_i32* status) {
    TL_SHARED(arena, 8192);
    TL_SHARED_ARRAY(tl_f32, from, arena, 0, 1024);
    TL_SHARED_ARRAY(tl_f32, to, arena, 4096, 1024);
    int t = tl_thread_x();
    tl_i64 i = ((tl_i64)tl_block_x() * 256 + t) * 4;
    tl_copy_async_zfill_16(from + t * 4, x + i, i + 3 < N);
    tl_copy_commit();
    TL_COPY_WAIT(0);
    tl_barrier();
    tl_f32x4 v = tl_load_f32x4(from + (1020 - t * 4));
    tl_bf16x8 w = tl_load_bf16x8(b + i * 2);
    TL_UNROLL
    for (int l = 0; l < 4; ++l) v.v[l] = tl_max_f32(tl_fma_f32(v.v[l], 2.0f, 1.0f), tl_shuffle_xor_f32(v.v[l], 4, 32));
    tl_store_f32x4(to + t * 4, v);
    TL_UNROLL
    for (int l = 0; l < 8; ++l) w.v[l] = tl_bf16_from_f32(tl_f32_from_bf16(w.v[l]) * v.v[l % 4]);
    tl_store_bf16x8(c + i * 2, w);
    if (v.v[0] > 1e30f) tl_fail(status, 3);
    tl_barrier();
    if (i + 3 < N) tl_store_f32x4(y + i, tl_load_f32x4(to + (1020 - t * 4)));
}
"""


def found(arch: str) -> Counter[str]:
    made = compiled(before(KERNEL) + KERNEL, named(f"cuda:{arch}"))
    assert not made.usage["k"].spills
    assert made.usage["k"].stack_bytes == 0
    return opcodes(made.cubin)["k"]


@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_every_function_is_machine_code_before_and_after_devices_copied_asynchronously(arch: str) -> None:
    text = before("tl_mma_")
    assert _FUNCTION in text
    log = io.StringIO()
    # Functions that others may link to are kept, whether or not a kernel calls them.
    options = core.ProgramOptions(arch=arch, relocatable_device_code=True, ptxas_options=["-v"])
    core.Program(text.replace(_FUNCTION, "#define TL_FUNCTION __device__ __noinline__"), "c++", options).compile("cubin", logs=log)
    made = set(re.findall(r"Function properties for _Z\d+(tl_\w+)", log.getvalue()))
    assert len(made) > 300
    assert {name for name in made if name.startswith("tl_erf_f32")}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_vectors_move_sixteen_bytes_at_a_time(arch: str) -> None:
    code = found(arch)
    assert count(code, "STG.128") == 2
    assert count(code, "LDS.128") == 2
    for name in ("LDG", "STG", "STS"):
        assert count(code, name) == count(code, f"{name}.128") > 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_devices_that_copy_asynchronously_do(arch: str) -> None:
    code = found(arch)
    assert count(code, "LDGSTS.128") == 1
    assert count(code, "LDGDEPBAR") == 1
    assert count(found("sm_75"), "LDGSTS") == 0


def test_barriers_and_shuffles_are_one_instruction_each() -> None:
    code = found("sm_90a")
    assert count(code, "BAR.SYNC") == 2
    assert count(code, "SHFL.BFLY") == 4


def test_fused_products_minima_and_conversions_are_instructions() -> None:
    code = found("sm_90a")
    assert count(code, "FFMA") == 4
    assert count(code, "FMNMX.NAN") == 4
    assert count(code, "F2FP.BF16") >= 4


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_the_kernels_that_the_emulator_is_tried_on_are_machine_code_too(arch: str) -> None:
    later = {"warp_products", "warpgroup_products", "multicast"} if arch == "sm_75" else set()
    paths = sorted((Path(__file__).parent / "kernels").glob("*.cu"))
    text = "\n".join(path.read_text("utf-8") for path in paths if path.stem not in later)
    made = compiled(before(text) + text, named(f"cuda:{arch}"))
    assert set(made.usage) == {path.stem for path in paths} - later
    assert not any(usage.spills for usage in made.usage.values())
