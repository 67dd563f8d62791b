"""Times of the native back end: what the machine can do, and how near kernels, calls and parallel regions come to it.

    python benchmarks/native.py

Every figure is the best of many runs; on a machine that does other work at the same time they are upper bounds of the truth.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable as Function
from pathlib import Path
from sys import path

path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # the repository root comes first

from codegen.dtypes import f32, f64
from codegen.llvm.call import Callable, Port
from codegen.llvm.emit import emit
from codegen.llvm.jit import compile_object, load
from codegen.llvm.pool import pool_imports, set_threads
from codegen.llvm.probe import copy_bandwidth, fma_flops, read_bandwidth
from codegen.llvm.program import KernelCall, Program, Slot, emit_program
from codegen.llvm.target import host
from codegen.loops.parser import parse

TILE = """func tile()(a: f32[{rows}, 256] align 64, b: f32[8, 256, {n}] align 64, out c: f32[{rows}, {columns}] align 64) {{
  for jo in 0 .. 8 {{ for io in 0 .. 12 {{
    alloc acc: f32[{m}, {n}] registers
    for i in 0 .. {m} unroll {m} {{ for r in 0 .. {v} unroll {v} {{ for j in 0 .. 16 vector 16 {{ acc[i, 16*r + j] = 0.0_f32 }} }} }}
    for k in 0 .. 256 {{ for i in 0 .. {m} unroll {m} {{ for r in 0 .. {v} unroll {v} {{ for j in 0 .. 16 vector 16 {{
      acc[i, 16*r + j] = fma(a[{m}*io + i, k], b[jo, k, 16*r + j], acc[i, 16*r + j]) }} }} }} }}
    for i in 0 .. {m} unroll {m} {{ for r in 0 .. {v} unroll {v} {{ for j in 0 .. 16 vector 16 {{
      c[{m}*io + i, {n}*jo + 16*r + j] = acc[i, 16*r + j] }} }} }}
  }} }}
}}"""
CONV = """func conv()(x: f32[4, 58, 58, 16] align 64, w: f32[4, 4, 3, 3, 16, 16] align 64, out y: f32[4, 56, 56, 16] align 64) {
  for ob in 0 .. 2 { for h in 0 .. 56 { for wo in 0 .. 4 {
    alloc acc: f32[14, 2, 16] registers
    for p in 0 .. 14 unroll 14 { for o in 0 .. 2 unroll 2 { for l in 0 .. 16 vector 16 { acc[p, o, l] = 0.0_f32 } } }
    for ib in 0 .. 4 { for kh in 0 .. 3 { for kw in 0 .. 3 { for ic in 0 .. 16 {
      for p in 0 .. 14 unroll 14 { for o in 0 .. 2 unroll 2 { for l in 0 .. 16 vector 16 {
        acc[p, o, l] = fma(x[ib, h + kh, 14*wo + p + kw, ic], w[2*ob + o, ib, kh, kw, ic, l], acc[p, o, l]) } } } } } } }
    for p in 0 .. 14 unroll 14 { for o in 0 .. 2 unroll 2 { for l in 0 .. 16 vector 16 {
      y[2*ob + o, h, 14*wo + p, l] = max(acc[p, o, l], 0.0_f32) } } }
  } } }
}"""
MATH = """func math()(x: f32[65536] align 64, out y: f32[65536] align 64) {{
  for o in 0 .. 1024 {{ for u in 0 .. 4 unroll 4 {{ for i in 0 .. 16 vector 16 {{
    y[64*o + 16*u + i] = {fn}(x[64*o + 16*u + i]) }} }} }} }}"""
REGIONS = "func regions()(out y: f32[2, 16]) { for r in 0 .. 1000 { for i in 0 .. 2 parallel { y[i, 0] = 1.0_f32 } } }"
ADD = "func add()(x: f32[1], y: f32[1], out z: f32[1]) { z[0] = x[0] + y[0] }"


def main() -> None:
    peak = fma_flops(f32)
    print(f"multiply-adds   f32 {peak / 1e9:.0f} GFLOP/s, f64 {fma_flops(f64) / 1e9:.0f}")
    print(f"on two threads  f32 {fma_flops(f32, threads=2) / 1e9:.0f} GFLOP/s")
    for size in (1 << 14, 1 << 18, 1 << 23, 1 << 26):
        print(f"{size >> 10:6} KiB      read {read_bandwidth(size) / 1e9:.0f} GB/s, copy {copy_bandwidth(size) / 1e9:.0f} GB/s")
    set_threads(1)
    for m, n in ((14, 32), (12, 32), (8, 48), (6, 64)):
        rows, columns = 12 * m, 8 * n
        text = TILE.format(m=m, n=n, v=n // 16, rows=rows, columns=columns)
        flops = 2 * rows * columns * 256 / seconds(text, rows * 256, columns * 256, rows * columns)
        print(f"tile {m}x{n}      {flops / 1e9:.0f} GFLOP/s, {100 * flops / peak:.0f} % of the peak")
    flops = 2 * 64 * 64 * 9 * 56 * 56 / seconds(CONV, 4 * 58 * 58 * 16, 16 * 9 * 256, 4 * 56 * 56 * 16)
    print(f"conv 3x3 64@56  {flops / 1e9:.0f} GFLOP/s, {100 * flops / peak:.0f} % of the peak")
    for fn in ("exp", "log", "tanh", "erf", "sigmoid", "sin"):
        print(f"{fn:8}        {65536 / seconds(MATH.format(fn=fn), 65536, 65536) / 1e9:.1f} G/s")
    for threads in (1, 2):
        set_threads(threads)
        print(f"parallel region {seconds(REGIONS, 32) * 1e6 / 1000:.2f} us on {threads} threads")
    print(f"call            {call_seconds() * 1e6:.2f} us for z = x + y of one element, checks and allocation included")
    print(f"load            {load_seconds() * 1e3:.1f} ms for 50 objects")


def seconds(text: str, *counts: int) -> float:
    """Return the best time of one run of the kernel in `text`, on arrays of so many floats."""
    function = parse(text)
    library = load([compile_object(emit(function, host()), host())], pool_imports())
    arrays = [aligned(count) for count in counts]
    block = (ctypes.c_int64 * len(arrays))(*(a.ctypes.data for a in arrays))
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(function.name))
    return best(lambda: entry(ctypes.addressof(block), None))


def call_seconds() -> float:
    program = Program((KernelCall("add", (Slot(1), Slot(2), Slot(0))),))
    library = load([compile_object(emit(parse(ADD), host()), host()), compile_object(emit_program(program, host()), host())])
    add = Callable(library.address("run"), [Port("x", f32, (1,)), Port("y", f32, (1,))], [Port("z", f32, (1,))])
    x = np.ones(1, np.float32)
    return best(lambda: add(x, x))


def load_seconds() -> float:
    objects = [compile_object(emit(parse(ADD.replace("add", f"add{i}")), host()), host()) for i in range(50)]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        library = load(objects)
        library.address("add0")
        times.append(time.perf_counter() - start)
    return min(times)


def best(run: Function[[], object], total: float = 0.3) -> float:
    """Return the shortest time of one `run`, measured in batches of about a millisecond."""
    run()
    start = time.perf_counter()
    run()
    batch = max(1, int(1e-3 / (time.perf_counter() - start)))
    result, end = float("inf"), time.perf_counter() + total
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(batch):
            run()
        result = min(result, (time.perf_counter() - start) / batch)
    return result


def aligned(count: int) -> np.ndarray:
    raw = np.random.default_rng(0).standard_normal(count + 16).astype(np.float32)
    start = (-raw.ctypes.data // 4) % 16
    return raw[start : start + count]


if __name__ == "__main__":
    main()
