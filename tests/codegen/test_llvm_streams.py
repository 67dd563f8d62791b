"""Stores past the caches take whole aligned lines, and are finished before anybody else looks."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from codegen.llvm.emit import emit
from codegen.llvm.jit import compile_object, load
from codegen.llvm.pool import pool_imports
from codegen.llvm.target import host, named
from codegen.loops.parser import parse

COPY = """func f()(x: f32[4096], out y: f32[4096]) {
    for o in 0 .. 256 KIND { for i in 0 .. 16 vector 16 { y[16*o + i] = x[16*o + i] stream } } }"""


@pytest.mark.parametrize("kind", ["", "parallel"])
@pytest.mark.parametrize("offset", [0, 1, 4, 15])
def test_a_copy_past_the_caches_is_a_copy_wherever_the_arrays_begin(kind: str, offset: int) -> None:
    function = parse(COPY.replace("KIND", kind))
    raw = np.zeros(4096 + 32, np.float32)
    start = (-raw.ctypes.data // 4) % 16 + offset
    x, y = np.arange(4096, dtype=np.float32), raw[start : start + 4096]
    library = load([compile_object(emit(function, host()), host())], pool_imports())
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("f"))
    block = (ctypes.c_int64 * 2)(x.ctypes.data, y.ctypes.data)
    assert entry(ctypes.addressof(block), None) == 0
    np.testing.assert_array_equal(y, x)
    assert not raw[:start].any() and not raw[start + 4096 :].any()


def test_the_entry_chooses_between_a_body_for_aligned_arrays_and_one_for_all() -> None:
    text = emit(parse(COPY.replace("KIND", "")), named("x86-64-v4"))
    assert text.count("!nontemporal") == 1
    assert text.count("call void @llvm.x86.sse.sfence") == 2
    assert "%low = and i64 %l1, 63" in text


def test_arrays_that_are_known_to_be_aligned_need_no_choice() -> None:
    text = emit(parse(COPY.replace("KIND", "").replace("y: f32[4096]", "y: f32[4096] align 64")), named("x86-64-v4"))
    assert text.count("!nontemporal") == 1
    assert "%low" not in text
