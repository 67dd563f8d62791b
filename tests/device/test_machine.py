"""The name of a target says which device code is for; what a device has not enough of, and what is not here, are errors with codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tensorlang as tl
from codegen.cuda.arch import ARCHITECTURES
from codegen.cuda.device import Found
from codegen.cuda.errors import Unavailable
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.nodes import Int
from codegen.store import Cache
from tensorlang.backends.cuda.machine import arch_of, machine_code, opened
from tensorlang.backends.cuda.vendor import NVIDIA
from tensorlang.backends.gpu.tools import device_tools

SM_80 = ARCHITECTURES["sm_80"]
TEXT = "TL_KERNEL(256, 0) k(TL_OUT(tl_f32) y) {\n    y[tl_thread_x()] = 1.0f;\n}\n"


def program(kernel: str = "k", blocks: int = 1, threads: int = 256, shared_bytes: int = 0) -> Program:
    made = Kernel(kernel, TEXT.replace("k(", f"{kernel}("), ("y",), (), (threads, 1, 1), shared_bytes)
    return Program(kernel, ("y",), (), (made,), (Launch(kernel, (Int(1), Int(blocks), Int(1))),))


def test_targets_of_processors_are_not_about_devices() -> None:
    assert arch_of("cpu") is None
    assert arch_of("x86-64-v4") is None


def test_an_architecture_is_asked_for_by_name() -> None:
    assert arch_of("cuda:sm_90a") is ARCHITECTURES["sm_90a"]
    with pytest.raises(tl.CompileError, match=r"C0101.*unknown target `cuda:sm_19`; known are cuda, cuda:sm_75"):
        arch_of("cuda:sm_19")


def test_cuda_alone_is_the_first_device_of_this_machine_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hopper = Found(0, "a device", (9, 0), ARCHITECTURES["sm_90a"], 114)
    monkeypatch.setattr("codegen.cuda.device.devices", lambda: (hopper,))
    assert arch_of("cuda") is ARCHITECTURES["sm_90a"]
    monkeypatch.setattr("codegen.cuda.device.devices", lambda: (replace(hopper, arch=None),))
    assert arch_of("cuda") is SM_80

    def none() -> None:
        raise Unavailable("there is no CUDA driver", "install one")

    monkeypatch.setattr("codegen.cuda.device.devices", none)
    assert arch_of("cuda") is SM_80


def test_multiprocessors_are_those_of_the_device_or_of_a_large_one_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(*found: Found) -> None:
        monkeypatch.setattr("codegen.cuda.device.devices", lambda: found)

    pcie = Found(0, "H100 PCIe", (9, 0), ARCHITECTURES["sm_90a"], 114)
    assert device_tools(NVIDIA, "cuda:sm_90a").machine.blocks == 132
    here(pcie)
    tools = [device_tools(NVIDIA, target) for target in ("cuda", "cuda:sm_90a", "cuda:sm_80")]
    assert [made.machine.blocks for made in tools] == [114, 114, 108]
    here(replace(pcie, name="H20", multiprocessors=78))
    assert device_tools(NVIDIA, "cuda").machine.blocks == 78
    assert device_tools(NVIDIA, "cuda").options != tools[0].options


def test_machine_code_is_made_once_and_kept(tmp_path: Path) -> None:
    counts: list[int] = []
    first = machine_code([program("a"), program("b")], SM_80, Cache(tmp_path), 2, counts.append)
    again = machine_code([program("a"), program("b")], SM_80, Cache(tmp_path), 2)
    assert [list(made.usage) for made in first] == [["a"], ["b"]]
    assert counts == [1, 2]
    assert [made.cached for made in first + again] == [False, False, True, True]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (program(threads=2048), "`k` needs 2048 threads along x; the limit is 1024 on `cuda:sm_80`"),
        (program(shared_bytes=200_000), "`k` needs 200000 bytes of shared memory; the limit is 166912 on `cuda:sm_80`"),
        (program(blocks=70_000), "`k` needs 70000 blocks along y; the limit is 65535 on `cuda:sm_80`"),
    ],
)
def test_what_a_device_has_not_enough_of_is_told_before_anything_is_compiled(
    found: Program, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codegen.cuda.compile.all_compiled", None)
    with pytest.raises(tl.CompileError) as refused:
        machine_code([found], SM_80, None, 1)
    assert refused.value.diagnostics[0].code == "C0111"
    assert refused.value.diagnostics[0].title == why


def test_without_a_device_running_says_what_is_missing() -> None:
    with pytest.raises(tl.CompileError, match=r"C0112.*there is no CUDA driver"):
        opened()
