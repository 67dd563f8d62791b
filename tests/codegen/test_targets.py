"""What is compiled for processors that are not here: objects of their own kind, made without a look at this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import tensorlang as tl
from codegen.llvm import target as targets
from codegen.llvm.caches import Caches
from codegen.llvm.emit import emit
from codegen.llvm.jit import assembly, compile_object, load
from codegen.llvm.stamp import of_object
from codegen.llvm.target import Lacking, Target, host, named, names
from codegen.loops.contract import separate
from codegen.loops.parser import parse
from codegen.loops.printer import show
from tensorlang.backends.cpu.driver import compile_kernel
from tensorlang.backends.cpu.toolchain import toolchain

OPS = """
op product(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) {
    y[i, j] = sum(k) x[i, k] * w[k, j]
}
strict op dot(x: f32[N], w: f32[N]) -> (y: f32) {
    y = sum(k) x[k] * w[k]
}
"""
X = np.ones((8, 8), np.float32)
PRODUCT = tl.parse(OPS).product.program(X, X)
OTHERS = [named(name) for name in names() if named(name).family not in (host().family,)]
KINDS = {"aarch64": b"\x7fELF", "riscv64": b"\x7fELF", "x86_64": b"\x7fELF", "wasm32": b"\0asm"}
MACHINES = {"aarch64": 183, "riscv64": 243, "x86_64": 62}


@pytest.fixture(scope="module")
def here() -> dict[str, bytes]:
    """Return what this machine compiles for each processor."""
    return {target.name: compile_kernel(PRODUCT, target, threads=4).object for target in OTHERS}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend that this machine is a small one."""
    small = replace(named("x86-64"), name="host", caches=Caches(1 << 12, 1 << 13, 1 << 14))
    monkeypatch.setattr(targets, "this_machine", lambda: small)
    host.cache_clear()
    yield
    host.cache_clear()


@pytest.mark.parametrize("target", OTHERS, ids=lambda target: target.name)
def test_what_is_compiled_for_another_processor_is_decided_by_that_alone(target: Target, here: dict[str, bytes], elsewhere: None) -> None:
    made = compile_kernel(PRODUCT, target, threads=4)
    assert made.object == here[target.name]
    assert made.object.startswith(KINDS[target.family]) and of_object(made.object) == target.needs
    assert target.is_wasm or int.from_bytes(made.object[18:20], "little") == MACHINES[target.family]


@pytest.mark.parametrize("target", OTHERS, ids=lambda target: target.name)
def test_code_for_another_processor_can_be_looked_at_and_not_called(target: Target) -> None:
    ops, told = tl.parse(OPS, target=target.name), dict[str, str]()
    made = ops.product.stages(X, X, dump=told.__setitem__)
    assert told["asm"] and "schedule product" in made.schedule
    assert f"time       not measured: this machine cannot run code for `{target.name}`" in ops.product.explain(X, X)
    product = ops.product
    for use in (lambda: product(X, X), lambda: product.seconds(1, X, X), lambda: product.roofline(X, X), product.prepared(X, X)):
        with pytest.raises(tl.CompileError, match=f"this machine cannot run code for `{target.name}`"):
            use()
    with pytest.raises(Lacking):
        load([made.object])


def test_another_machine_has_the_threads_that_it_is_said_to_have() -> None:
    assert [toolchain("aarch64", threads).threads for threads in (None, 1, 200)] == [1, 1, 200]
    assert [toolchain("wasm32", threads).threads for threads in (None, 4)] == [1, 1]


ADD = """func f()(x: f32[8], y: f32[8], out z: f32[8]) {
    for i in 0 .. 8 vector 8 { z[i] = fma(x[i], y[i], min(z[i], fma(y[i], y[i], x[i]))) } }"""


def test_a_multiply_add_is_a_product_and_a_sum_where_no_instruction_is_both() -> None:
    function = separate(parse(ADD))
    assert "z[i] = min(z[i], x[i] + y[i] * y[i]) + x[i] * y[i]" in show(function)
    text = assembly(emit(function, named("wasm32")), named("wasm32"))
    assert (text.count("f32x4.mul"), text.count("f32x4.add"), text.count("f64x2")) == (4, 4, 0)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("x86-64-v2", ("mulps", "addps")),
        ("x86-64-v3", ("vfmadd",)),
        ("aarch64", ("fmla",)),
        ("riscv64gcv", ("vfmacc",)),
        ("wasm32", ("f32x4.mul", "f32x4.add")),
        ("wasm32-relaxed", ("f32x4.relaxed_madd",)),
    ],
)
def test_products_are_summed_by_the_instruction_that_the_processor_has(name: str, how: tuple[str, ...]) -> None:
    told: dict[str, str] = {}
    ops = tl.parse(OPS, target=name)
    ops.product.stages(X, X, dump=told.__setitem__)
    assert all(word in told["asm"] for word in how)
    assert "cvtps2pd" not in told["asm"] and "promote" not in told["asm"], "nothing is computed in f64"
    ops.dot.stages(X[0], X[0], dump=told.__setitem__)
    assert not any(word in told["asm"] for word in ("fmadd", "fmla", "vfmacc", "relaxed_madd")), "a strict operator rounds twice"


def test_objects_of_webassembly_stay_objects_with_what_they_need_at_their_end() -> None:
    target = named("wasm32")
    data = compile_object(emit(parse(ADD), target), target)
    at = 8
    while at < len(data):
        at += 1
        size = shift = 0
        while data[at] & 0x80:
            size, shift, at = size | (data[at] & 0x7F) << shift, shift + 7, at + 1
        at += 1 + (size | data[at] << shift)
    assert at == len(data), "the last section ends where the file does"
