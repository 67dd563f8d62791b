"""NVRTC makes machine code of kernel text on any machine, for every architecture, and says what each kernel uses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.cuda import compile as module
from codegen.cuda.arch import ARCHITECTURES, Arch, ArchError, named, names, of_capability
from codegen.cuda.compile import PREPARED, all_compiled, compilable, compiled, nvrtc_version, source, usage_of
from codegen.cuda.errors import Unavailable
from codegen.cuda.prelude import before
from codegen.errors import InternalError
from codegen.gpu.limits import Usage
from codegen.gpu.program import Kernel, Program
from codegen.store import Cache

PRELUDE = before("")
SCALE = """
TL_KERNEL(256, 0) scale(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 N) {
    TL_SHARED(arena, 1024);
    TL_SHARED_ARRAY(tl_f32, tile, arena, 0, 256);
    tl_i64 i = (tl_i64)tl_block_x() * 256 + tl_thread_x();
    tile[tl_thread_x()] = i < N ? x[i] : 0.0f;
    tl_barrier();
    if (i < N) y[i] = 2.0f * tile[255 - tl_thread_x()] + 1.0f;
}
"""
SPILLING = """
TL_KERNEL(1024, 0) spilling(const float* x, float* y, int rounds) {
    float kept[128];
    #pragma unroll
    for (int k = 0; k < 128; ++k) kept[k] = x[k * 1024 + threadIdx.x];
    for (int r = 0; r < rounds; ++r) {
        #pragma unroll
        for (int k = 0; k < 128; ++k) kept[k] = kept[k] * kept[(k + 1) % 128];
    }
    #pragma unroll
    for (int k = 0; k < 128; ++k) y[k * 1024 + threadIdx.x] = kept[k];
}
"""
SM_80 = named("cuda:sm_80")


@pytest.mark.parametrize("arch", [a for a in ARCHITECTURES.values() if a.name in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_120")])
def test_text_becomes_machine_code_for_each_architecture(arch: Arch) -> None:
    made = compiled(PRELUDE + SCALE, arch)
    assert made.cubin.startswith(b"\x7fELF")
    assert made.arch == arch.name
    assert set(made.usage) == {"scale"}
    used = made.usage["scale"]
    assert 8 <= used.registers <= 32
    assert used.shared_bytes in (1024, 2048)  # 1 KiB is the driver's from sm_90 on
    assert not used.spills


def test_the_installed_compiler_knows_every_architecture() -> None:
    assert {arch.number for arch in ARCHITECTURES.values()} <= set(compilable())


def test_registers_that_do_not_fit_are_told_as_spills() -> None:
    used = compiled(PRELUDE + SPILLING, SM_80).usage["spilling"]
    assert used.registers == 64
    assert used.spills
    assert used.stack_bytes > 0


def test_a_wish_for_blocks_gives_way_to_registers() -> None:
    asks = SPILLING.replace("TL_KERNEL(1024, 0)", "TL_KERNEL(128, 8)").replace("1024", "128")
    alone = SCALE.replace("TL_KERNEL(256, 0)", "TL_KERNEL(256, 8)")
    made = compiled(PRELUDE + asks + alone, SM_80)
    assert not made.usage["spilling"].spills
    assert made.usage["spilling"].registers > 65536 // (8 * 128)
    assert made.usage["scale"].registers <= 65536 // (8 * 256)


def test_what_was_compiled_before_comes_from_the_store(tmp_path: Path) -> None:
    store = Cache(tmp_path)
    first = compiled(PRELUDE + SCALE, SM_80, store)
    again = compiled(PRELUDE + SCALE, SM_80, store)
    assert (first.cached, again.cached) == (False, True)
    assert (again.cubin, again.usage, again.arch) == (first.cubin, first.usage, first.arch)
    assert not compiled(PRELUDE + SCALE, named("cuda:sm_86"), store).cached
    assert not compiled(PRELUDE + SCALE + "\n", SM_80, store).cached


def test_many_sources_compile_at_once_and_equal_ones_once(tmp_path: Path) -> None:
    texts = [PRELUDE + SCALE.replace("scale", name) for name in ("a", "b", "a", "c")]
    counts: list[int] = []
    made = all_compiled(texts, SM_80, Cache(tmp_path), threads=2, done=counts.append)
    assert [list(m.usage) for m in made] == [["a"], ["b"], ["a"], ["c"]]
    assert counts == [1, 2, 3]
    assert made[0] is made[2]


def test_what_was_prepared_serves_every_compiler_of_the_same_major_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREPARED, str(tmp_path / "prepared"))
    first = compiled(PRELUDE + SCALE, SM_80)
    major, minor = nvrtc_version()
    monkeypatch.setattr(module, "nvrtc_version", lambda: (major, minor + 1))
    again = compiled(PRELUDE + SCALE, SM_80, Cache(tmp_path / "store"))
    assert (first.cached, again.cached) == (False, True)
    assert again.cubin == first.cubin and again.usage == first.usage
    assert not compiled(PRELUDE + SCALE + "\n", SM_80).cached and not compiled(PRELUDE + SCALE, named("cuda:sm_86")).cached
    monkeypatch.setattr(module, "nvrtc_version", lambda: (major + 1, 0))
    assert not compiled(PRELUDE + SCALE, SM_80).cached


def test_what_was_prepared_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[int, int]:
        raise Unavailable("NVRTC cannot be loaded", "install it")

    monkeypatch.setenv(PREPARED, str(tmp_path))
    first = compiled(PRELUDE + SCALE, SM_80)
    monkeypatch.setattr(module, "nvrtc_version", missing)
    assert compiled(PRELUDE + SCALE, SM_80, Cache(tmp_path / "store")).cubin == first.cubin


def test_a_source_is_the_vocabulary_then_the_kernels() -> None:
    kernels = tuple(Kernel(name, SCALE.replace("scale", name), ("x", "y"), ("N",), (256, 1, 1)) for name in ("a", "b"))
    program = Program("twice", ("x", "y"), ("N",), kernels, (), ())
    assert set(compiled(source(program), SM_80).usage) == {"a", "b"}


def test_text_that_is_refused_is_our_mistake_and_shows_the_line() -> None:
    kernel = Kernel("f", "TL_KERNEL(32, 0) f(float* y) {\n    y[0] = z;\n}", ("y",), (), (32, 1, 1))
    program = Program("bad", ("y",), (), (kernel,), ())
    with pytest.raises(InternalError, match=r'nvrtc: (?s:.*)bad\(2\): error: identifier "z" is undefined'):
        compiled(source(program), SM_80)


def test_an_architecture_newer_than_the_compiler_is_unavailable() -> None:
    future = Arch("sm_990", (99, 0), SM_80.limits, SM_80.multiprocessors)
    with pytest.raises(Unavailable, match=r"NVRTC \d+\.\d+ does not compile for sm_990: install a newer `nvidia-cuda-nvrtc`"):
        compiled(PRELUDE + SCALE, future)


def test_the_version_is_that_of_a_cuda_13_compiler() -> None:
    assert nvrtc_version() >= (13, 0)


def test_usage_is_read_from_what_the_assembler_says() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for f
ptxas         .     24 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 25 registers, used 1 barriers, 4224 bytes smem
ptxas info    : Compile time = 116.148 ms
ptxas info    : Compiling entry function 'g' for 'sm_90a'
ptxas info    : Function properties for g
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
    assert usage_of(log) == {"f": Usage(25, 8, 4, 24, 4224), "g": Usage(8)}


def test_targets_are_named_by_architecture() -> None:
    assert named("cuda").name == "sm_80"
    assert named("cuda", default="sm_90a").name == "sm_90a"
    assert named("cuda:sm_90a").target == "cuda:sm_90a"
    assert names()[:3] == ("cuda", "cuda:sm_75", "cuda:sm_80")
    for wrong in ("cuda:sm_19", "cuda:", "cudax", "cpu", "sm_80", "cuda:cuda"):
        with pytest.raises(ArchError, match="unknown target"):
            named(wrong)


@pytest.mark.parametrize(
    ("capability", "name"),
    [((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((12, 3), "sm_121")],
)
def test_a_device_gets_the_architecture_with_the_most_instructions(capability: tuple[int, int], name: str) -> None:
    assert of_capability(capability).name == name


def test_a_device_older_than_all_architectures_has_none() -> None:
    with pytest.raises(ArchError, match=r"compute capability 7\.0"):
        of_capability((7, 0))


def test_machine_code_runs_on_later_devices_of_its_generation_unless_it_is_specific() -> None:
    assert SM_80.runs_on((8, 9))
    assert not SM_80.runs_on((9, 0))
    assert not named("cuda:sm_89").runs_on((8, 6))
    assert named("cuda:sm_100a").runs_on((10, 0))
    assert not named("cuda:sm_100a").runs_on((10, 3))


def test_without_the_packages_importing_says_what_to_install() -> None:
    code = "import sys; sys.modules['cuda'] = None; import codegen.cuda.compile"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(r"Unavailable: NVIDIA's packages cannot be imported \(.*cuda.*\): install `tensorlang\[cuda\]`$", run.stderr.strip())


def test_the_architectures_are_known_without_the_packages() -> None:
    code = "import sys; sys.modules['cuda'] = None; import codegen.cuda.arch, codegen.cuda.errors, codegen.gpu.limits"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_library_compiling_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise RuntimeError('Failure finding "libnvrtc.so": no such file\n  searched here')

    monkeypatch.setattr("codegen.cuda.bindings.nvrtc.nvrtcVersion", missing)
    nvrtc_version.cache_clear()
    with pytest.raises(Unavailable, match=r"NVRTC cannot be loaded \(Failure .*\): install `tensorlang\[cuda\]`, or a CUDA toolkit"):
        nvrtc_version()
