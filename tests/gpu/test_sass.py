"""What machine code does can be counted: the instructions of each kernel, by opcode."""

from __future__ import annotations

import pytest

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled
from codegen.cuda.errors import Unavailable
from codegen.cuda.sass import assembly, count, loop, opcodes

SM_90 = named("cuda:sm_90a")
WIDE = """
extern "C" __global__ void __launch_bounds__(256) wide(const float4* __restrict__ x, float4* __restrict__ y, int N) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < N) { float4 v = x[i]; v.x = v.x * 2.0f; y[i] = v; }
}
extern "C" __global__ void narrow(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * x[0] + y[threadIdx.x]; }
"""


def test_opcodes_are_counted_kernel_by_kernel() -> None:
    found = opcodes(compiled(WIDE, SM_90).cubin)
    assert set(found) == {"wide", "narrow"}
    assert found["wide"]["LDG.E.128.CONSTANT"] == 1
    assert found["wide"]["STG.E.128"] == 1
    assert count(found["narrow"], "LDG") == 3
    assert count(found["narrow"], "LDG.128") == 0


def test_products_and_sums_of_the_text_are_not_contracted() -> None:
    found = opcodes(compiled(WIDE, SM_90).cubin)["narrow"]
    assert (count(found, "FMUL"), count(found, "FADD"), count(found, "FFMA")) == (1, 1, 0)


def test_an_opcode_is_found_by_its_name_and_some_of_its_modifiers() -> None:
    found = {"LDG.E.128.CONSTANT": 2, "LDG.E": 3, "LDGSTS.E.128": 5}
    assert count(found, "LDG") == 5
    assert count(found, "LDG.128") == 2
    assert count(found, "LDG.E.128") == 2
    assert count(found, "LDGSTS") == 5
    assert count(found, "STG") == 0


def test_predicated_instructions_count_like_others() -> None:
    found = opcodes(compiled(WIDE, SM_90).cubin)["wide"]
    assert count(found, "EXIT") == 2  # one of them `@P0 EXIT`


def test_assembly_is_that_of_one_kernel() -> None:
    text = assembly(compiled(WIDE, SM_90).cubin)
    assert "LDG.E.128" in text["wide"]
    assert "LDG.E.128" not in text["narrow"]


def test_without_a_disassembler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen.cuda.sass.pathfinder.find_nvidia_binary_utility", lambda name: None)
    with pytest.raises(Unavailable, match="there is no `nvdisasm`: install `nvidia-cuda-nvdisasm`"):
        opcodes(b"")


def test_the_loop_that_does_the_work_is_the_shortest_with_most_of_it() -> None:
    text = """
.L_x_0:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R6.64] ;
.L_x_1:
        /*0010*/              @!P0 SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR6], R3 ;
        /*0020*/               @P1 BRA `(.L_x_1) ;
        /*0030*/              @!PT LDS RZ, [RZ] ;
        /*0040*/                   HMMA.16816.F32.BF16 R8, R4, R2, R8 ;
        /*0050*/                   HMMA.16816.F32.BF16 R12, R4, R2, R12 ;
        /*0060*/               @P0 BRA `(.L_x_0) ;
        /*0070*/                   STG.E [R2], R8 ;
.L_x_2:
        /*0080*/                   BRA `(.L_x_2);
"""
    found = loop(text, lambda opcode: opcode.startswith("HMMA"))
    assert found == {"LDG.E.128": 1, "SYNCS.PHASECHK.TRANS64.TRYWAIT": 1, "HMMA.16816.F32.BF16": 2, "BRA": 2}
    assert loop(text, lambda opcode: opcode == "MUFU").total() == 6
    assert loop("        /*0000*/                   EXIT ;\n", bool) == {"EXIT": 1}
