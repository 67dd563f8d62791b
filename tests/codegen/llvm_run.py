"""Runs loop IR natively and in the interpreter on the same data, for the tests of the LLVM back end."""

import ctypes
from collections.abc import Mapping
from functools import cache

import numpy as np
from bits import assert_same_bits

from codegen.dtypes import DTYPES
from codegen.llvm.emit import emit
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.pool import pool_imports
from codegen.llvm.target import Target, host, named, runs_here
from codegen.llvm.workspace import workspace_bytes
from codegen.loops import interp
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.verify import verify

LEVELS = [t for t in map(named, ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")) if runs_here(t)] + [host()]
WIDTHS = [LEVELS[-1], *(level for level in reversed(LEVELS[:-1]) if level.name in ("x86-64-v3", "x86-64"))]
"""This machine's own level, and of those below it one for each width of vectors: 32 bytes, 16 bytes."""
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


@cache
def native(function: Function, target: Target) -> Library:
    return load([compile_object(emit(function, target), target)], pool_imports())


def run_native(function: Function, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray], target: Target, threads: int = 2) -> int:
    """Return what the compiled function returns; writes into `arrays`."""
    library = native(function, target)
    slots = [arrays[p.name].ctypes.data for p in function.params] + [sizes[n] for n in function.sizes]
    arguments = (ctypes.c_int64 * max(len(slots), 1))(*slots)
    workspace = np.full(workspace_bytes(function, threads, sizes) + 128, 0xAB, np.uint8)
    base = -(-workspace.ctypes.data // 64) * 64
    return int(_ENTRY(library.address(function.name))(ctypes.addressof(arguments), base))


def check(
    text: str, sizes: Mapping[str, int] | None = None, *, targets: list[Target] | None = None, rtol: float = 0.0, **arrays: np.ndarray
) -> dict[str, np.ndarray]:
    """Compile and interpret `text` on copies of `arrays`; assert that results agree, and return them."""
    function = parse(text)
    verify(function)
    expected = {name: a.copy() for name, a in arrays.items()}
    code = interp.run(function, sizes or {}, expected)
    for target in targets or [host(), *LEVELS[:-1]]:
        actual = {name: a.copy() for name, a in arrays.items()}
        assert run_native(function, sizes or {}, actual, target) == code, target.name
        if code == 0:
            for name in arrays:
                assert_same(actual[name], expected[name], rtol, f"{name} on {target.name}")
    return expected


def assert_same(actual: np.ndarray, expected: np.ndarray, rtol: float, what: str) -> None:
    """Assert that all bits are equal, NaN equal to NaN; `rtol` > 0 allows rounding."""
    if rtol:
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol, err_msg=what)
    else:
        assert_same_bits(actual, expected, what)


def values(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """Return `count` values of an element type: small ones, and for floats the special ones too."""
    random = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    if kind.kind == "bool":
        return random.integers(0, 2, count).astype(bool)
    if kind.is_float:
        return (random.standard_normal(count) * 3).astype(kind.numpy)
    low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.kind == "int" else (0, (1 << kind.bits) - 1)
    wide = random.integers(low, high, count, dtype=np.int64 if kind.kind == "int" else np.uint64, endpoint=True)
    return wide.astype(kind.numpy) if kind.bits > 4 else wide.astype(np.int8).astype(kind.numpy)
