"""What this machine can do, measured: multiply-adds per second and bytes per second. Kernels are judged against these figures.

The probes are loop IR like any kernel: independent chains of `fma` in registers (of `*` and `+`
where the processor fuses nothing, as kernels there), sums over an array, copies of one.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from codegen.dtypes import DType, f32
from codegen.llvm import pool
from codegen.llvm.emit import emit
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.target import Target, host
from codegen.loops import dots
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Buffer,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    For,
    Function,
    Index,
    Int,
    Load,
    Mul,
    Stmt,
    Store,
    Var,
)

Array = np.ndarray[Any, Any]

_CHAINS = {16: 12, 32: 24}
"""Independent accumulators for so many vector registers: enough to hide the latency of two units, and two operands beside them."""
_STEPS = 4096


def fma_flops(dtype: DType, *, threads: int = 1, seconds: float = 0.15, target: Target | None = None) -> float:
    """Return how many floating-point operations per second `threads` threads reach with multiply-adds of `dtype` (f32 or f64),
    fused where `target` can, whose instructions this machine has (None: this machine)."""
    target = target or host()
    chains = _CHAINS[target.vector_registers]
    data = np.full(threads * 64, 0.5, dtype.numpy)
    run = _entry(fma_kernel(dtype, target, chains, threads), [data], target)
    flops = 2.0 * chains * target.lanes(dtype) * _STEPS * threads
    return flops / _best(run, seconds, threads)


def dot_ops(a: DType, b: DType, *, seconds: float = 0.15, target: Target | None = None) -> float:
    """Return how many operations per second one thread reaches with dot products of an `a` and a `b`: two for each pair of elements."""
    target = target or host()
    chains = _CHAINS[target.vector_registers]
    data = np.zeros(64, a.numpy), np.zeros(64, b.numpy)
    total = dots.accumulator(a, b)
    if total is None:
        raise ValueError(f"there is no dot product of {a} and {b}")
    run = _entry(_dot_kernel(a, b, total, target, chains), [*data, np.zeros(64, total.numpy)], target)
    return 2.0 * dots.group(a) * chains * target.lanes(total) * _STEPS / _best(run, seconds, 1)


def read_bandwidth(size_bytes: int, *, threads: int = 1, seconds: float = 0.05, target: Target | None = None) -> float:
    """Return the bytes per second at which `threads` threads sum arrays of `size_bytes`, each its own, again and again."""
    count = _count(size_bytes)
    data, total = _aligned(count * threads), _aligned(128 * threads)
    run = _entry(_read_kernel(count, threads), [data, total], target or host())
    return data.nbytes * _rounds(count) / _best(run, seconds, threads)


def copy_bandwidth(
    size_bytes: int, *, threads: int = 1, stream: bool = False, seconds: float = 0.05, target: Target | None = None
) -> float:
    """Return the bytes per second, read plus written, at which `threads` threads copy arrays of `size_bytes`, each its own. `stream`
    bypasses the caches."""
    count = _count(size_bytes)
    data, copy = _aligned(count * threads), _aligned(count * threads)
    run = _entry(_copy_kernel(count, threads, stream), [data, copy], target or host())
    return 2.0 * data.nbytes * _rounds(count) / _best(run, seconds, threads)


def _best(run: Callable[[], None], seconds: float, threads: int) -> float:
    """Return the shortest time of one call: anything longer was disturbed."""
    before = pool.threads()
    pool.set_threads(threads)
    try:
        run()
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
    finally:
        pool.set_threads(before)
    return best


def _entry(function: Function, arrays: list[Array], target: Target) -> Callable[[], None]:
    library = _library(function, target)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(function.name))
    block = (ctypes.c_int64 * len(arrays))(*(a.ctypes.data for a in arrays))
    address = ctypes.addressof(block)

    def run() -> None:
        entry(address, None)

    run.keep = (block, arrays, library)  # type: ignore[attr-defined]  # the closure must not outlive what it points to
    return run


@cache
def _library(function: Function, target: Target) -> Library:
    return load([compile_object(emit(function, target), target)], pool.pool_imports())


# ---------------------------------------------------------------- kernels


def fma_kernel(dtype: DType, target: Target, chains: int, threads: int) -> Function:
    """Return the function that `fma_flops` times."""
    lanes = target.lanes(dtype)
    chain, lane, thread = Var("chain"), Var("lane"), Var("thread")

    def over_chains(statement: Stmt) -> Stmt:
        return For("chain", Int(0), Int(chains), (For("lane", Int(0), Int(lanes), (statement,), "vector", lanes),), "unroll", chains)

    def acc() -> Load:
        return Load("acc", (chain, lane))

    own = Load("data", (Mul(Int(64), thread),))
    step: Expr = Fma(acc(), own, own) if target.has_fma else Binary("+", Binary("*", acc(), own), own)
    body: tuple[Stmt, ...] = (
        Alloc(Buffer("acc", dtype, (Int(chains), Int(lanes)), "registers")),
        over_chains(Store("acc", (chain, lane), Const(1.0, dtype))),
        For("step", Int(0), Int(_STEPS), (over_chains(Store("acc", (chain, lane), step)),)),
        For("chain", Int(0), Int(chains), (_add_up(dtype, thread, chain, lane, lanes),), "unroll", chains),
    )
    loop = For("thread", Int(0), Int(threads), body, "parallel")
    return Function(f"fma_{dtype}_{threads}", (), (Buffer("data", dtype, (Int(64 * threads),)),), (loop,), frozenset({"data"}))


def _dot_kernel(a: DType, b: DType, total: DType, target: Target, chains: int) -> Function:
    lanes, group = target.lanes(total), dots.group(a)
    chain, lane = Var("chain"), Var("lane")

    def over_chains(statement: Stmt) -> Stmt:
        return For("chain", Int(0), Int(chains), (For("lane", Int(0), Int(lanes), (statement,), "vector", lanes),), "unroll", chains)

    acc = Load("acc", (chain, lane))
    step = Dot(group, Load("a", (Int(0),)), Load("b", (Int(0),)), acc)
    keep = Store("data", (lane,), Binary("+", Load("data", (lane,)), acc))
    body: tuple[Stmt, ...] = (
        Alloc(Buffer("acc", total, (Int(chains), Int(lanes)), "registers")),
        over_chains(Store("acc", (chain, lane), Const(0, total))),
        For("step", Int(0), Int(_STEPS), (over_chains(Store("acc", (chain, lane), step)),)),
        over_chains(keep),
    )
    params = (Buffer("a", a, (Int(64),)), Buffer("b", b, (Int(64),)), Buffer("data", total, (Int(64),)))
    return Function(f"dot_{a}_{b}", (), params, body, frozenset({"data"}))


def _add_up(dtype: DType, thread: Var, chain: Var, lane: Var, lanes: int) -> Stmt:
    """Return a loop that uses an accumulator in a way that changes the data by nothing: it multiplies it by zero."""
    place = (Add(Mul(Int(64), thread), Int(63)),)
    term = Binary("*", Load("acc", (chain, lane)), Const(0.0, dtype))
    return For("lane", Int(0), Int(lanes), (Store("data", place, Binary("+", Load("data", place), term)),), "vector", lanes)


def _read_kernel(count: int, threads: int) -> Function:
    place = _place(count)
    return _blocks("read", count, threads, "total", lambda at: Binary("+", Load("total", at), Load("data", place)), stream=False)


def _copy_kernel(count: int, threads: int, stream: bool) -> Function:
    place = _place(count)
    return _blocks("copy", count, threads, None, lambda at: Load("data", place), stream)


def _place(count: int) -> tuple[Index, ...]:
    """Return where an element of the thread's own array is."""
    own = Add(Mul(Int(count), Var("thread")), Mul(Int(128), Var("block")))
    return (Add(Add(own, Mul(Int(16), Var("part"))), Var("lane")),)


def _blocks(
    name: str, count: int, threads: int, registers: str | None, value: Callable[[tuple[Index, ...]], Expr], stream: bool
) -> Function:
    """Return a kernel over 128 elements at a time, eight vectors of sixteen; results go to registers or to a second array."""
    here: tuple[Index, ...] = (Add(Mul(Int(16), Var("part")), Var("lane")),)
    kept: tuple[Index, ...] = (Add(Mul(Int(128), Var("thread")), here[0]),)

    def over_block(statement: Stmt) -> Stmt:
        return For("part", Int(0), Int(8), (For("lane", Int(0), Int(16), (statement,), "vector", 16),), "unroll", 8)

    store = Store("total", here, value(here)) if registers else Store("result", _place(count), value(here), stream)
    once = For("block", Int(0), FloorDiv(Int(count), Int(128)), (over_block(store),))
    loop = For("round", Int(0), Int(_rounds(count)), (once,))
    size = Int(128 * threads) if registers else Int(count * threads)
    params = (_buffer("data", Int(count * threads)), _buffer("result", size))
    body: tuple[Stmt, ...] = (loop,)
    if registers:
        clear = over_block(Store("total", here, Const(0.0, params[0].dtype)))
        keep = over_block(Store("result", kept, Load("total", here)))
        body = (Alloc(Buffer("total", params[0].dtype, (Int(128),), "registers")), clear, loop, keep)
    shared = For("thread", Int(0), Int(threads), body, "parallel")
    return Function(f"{name}_{count}_{threads}_{int(stream)}", (), params, (shared,), frozenset({"result"}))


def _buffer(name: str, extent: Index) -> Buffer:
    return Buffer(name, f32, (extent,), align=64)


def _rounds(count: int) -> int:
    """Return how often one call goes over the array, so that the call itself does not count."""
    return max(1, (1 << 20) // count)


def _count(size_bytes: int) -> int:
    """Return how many floats such an array has: whole blocks."""
    return max(1, size_bytes // 512) * 128


def _aligned(count: int) -> Array:
    raw = np.full(count + 16, 0.5, np.float32)  # written: pages that never were share one page of zeros, which stays in the cache
    start = (-raw.ctypes.data // 4) % 16
    return raw[start : start + count]
