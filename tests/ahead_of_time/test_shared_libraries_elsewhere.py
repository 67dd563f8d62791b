"""Shared libraries for processors that are not here: written without a linker, and loaded and called in an emulator."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_library import EmulatedLibrary

import tensorlang as tl
from codegen.elf.objects import Object, ObjectError, Relocation, merged, parse
from codegen.elf.shared import shared_library
from codegen.llvm.jit import compile_object
from codegen.llvm.target import named
from tensorlang.saved.package import read_manifest

TARGETS = ("x86-64", "aarch64", "riscv64gcv")
TEXT = """
@count = internal global i32 3
@steps = internal constant [2 x ptr] [ptr @twice, ptr @thrice]
@other = external global i32

declare i32 @far(i32)

define internal i32 @twice(i32 %x) noinline { %y = shl i32 %x, 1 ret i32 %y }
define internal i32 @thrice(i32 %x) noinline { %y = mul i32 %x, 3 ret i32 %y }

define i32 @f(i32 %x, i64 %k) {
  %before = load i32, ptr @count
  %more = add i32 %before, 1
  store i32 %more, ptr @count
  %place = getelementptr ptr, ptr @steps, i64 %k
  %step = load ptr, ptr %place
  %a = call i32 %step(i32 %x)
  %b = call i32 @far(i32 %a)
  %c = load i32, ptr @other
  %d = add i32 %b, %c
  %e = add i32 %d, %more
  %g = call i32 @twice(i32 %e)
  ret i32 %g
}

define i32 @jump(i32 %x) {
  switch i32 %x, label %none [ i32 0, label %a
    i32 1, label %b
    i32 2, label %c
    i32 3, label %d
    i32 4, label %e
    i32 5, label %f ]
a: %va = call i32 @far(i32 10) ret i32 %va
b: %vb = call i32 @twice(i32 21) ret i32 %vb
c: %vc = call i32 @thrice(i32 22) ret i32 %vc
d: %vd = call i32 @far(i32 40) ret i32 %vd
e: %ve = call i32 @thrice(i32 5) ret i32 %ve
f: ret i32 6
none: ret i32 -1
}
"""


def made(target: str, text: str, *exported: str) -> Object:
    here = named(target)
    return merged([parse(compile_object(f'target triple = "{here.triple}"\n{text}', here))], exported)


@pytest.mark.parametrize("target", TARGETS)
def test_code_finds_its_own_data_functions_and_what_it_imports(target: str) -> None:
    names = ["f", "jump"]
    file = shared_library(made(target, TEXT, *names), names, "libf.so")
    assert len(file) < 4096, "no page of 64 kB is filled up"
    library = EmulatedLibrary(file, {"far": lambda x: x + 100})
    library.write(library.data("other", 4), struct.pack("<i", 1000))
    assert library.call("f", 7, 0) & 0xFFFFFFFF == 2 * (7 * 2 + 100 + 1000 + 4)
    assert library.call("f", 7, 1) & 0xFFFFFFFF == 2 * (7 * 3 + 100 + 1000 + 5)
    assert [library.call("jump", k) & 0xFFFFFFFF for k in range(7)] == [110, 42, 66, 140, 15, 6, 0xFFFFFFFF]


@pytest.mark.parametrize("target", ["aarch64", "riscv64gcv-256"])
def test_a_library_asks_the_processor_before_it_runs_and_then_computes(target: str, tmp_path: Path) -> None:
    softmax = tl.parse("op softmax(x: f32[M, N]) -> (y: f32[M, N]) { y[i, j] = exp(x[i, j]) / sum(k) exp(x[i, k]) }").softmax
    x = np.linspace(-2, 2, 5 * 37, dtype=np.float32).reshape(5, 37)
    softmax.save(tmp_path / "saved", {"x": x}, targets=target, threads=1)
    has = [0]
    library = EmulatedLibrary(
        (tmp_path / "saved" / "libsoftmax.so").read_bytes(),
        {"malloc": lambda size: library.room(size), "free": lambda _: 0, "getauxval": lambda _: has[0], "memset": lambda to, _b, _n: to},
    )
    identity = read_manifest(str(tmp_path / "saved")).identity
    context, options = library.room(8), library.placed(struct.pack("<8Q", identity, 1, *6 * [0]))
    refused = library.call("softmax_create_with", context, options)
    assert library.text(library.call("softmax_error_text", refused)) == f"this processor cannot run the code, which is for {target}"
    if target != "aarch64":  # the emulator has no vectors of RISC-V
        return
    has[0] = 2**64 - 1
    assert library.call("softmax_create_with", context, options) == 0
    (handle,) = struct.unpack("<Q", library.read(context, 8))
    y = library.room(x.nbytes)
    given, taken = library.placed(struct.pack("<Q", library.placed(x.tobytes()))), library.placed(struct.pack("<Q", y))
    assert library.call("softmax_run", handle, given, taken) == 0
    np.testing.assert_allclose(np.frombuffer(library.read(y, x.nbytes), np.float32).reshape(x.shape), softmax(x), rtol=1e-6)
    library.call("softmax_destroy", handle)


def test_machines_and_relocations_that_are_not_known_are_refused() -> None:
    known = made("aarch64", "define i32 @f() { ret i32 1 }", "f")
    with pytest.raises(ObjectError, match="machine 8 of ELF"):
        shared_library(replace(known, machine=8), ["f"], "libf.so")
    [code, *rest] = known.sections
    odd = replace(known, sections=(replace(code, relocations=(Relocation(0, 999, 0, 0),)), *rest))
    with pytest.raises(ObjectError, match=r"relocation type 999 in `\.text` is not supported"):
        shared_library(odd, ["f"], "libf.so")
