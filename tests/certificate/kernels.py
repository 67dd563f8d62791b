"""Kernels to certify: register tiles, padding, softmax, a recurrence, checks, tuples, several threads, sizes that are open."""

from __future__ import annotations

import importlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang as tl
from codegen.loops.parser import parse
from tensorlang.certificate import certificate, written
from tensorlang.certificate.loops import function
from tensorlang.tensor.nodes import Program

SCRIPTS = Path(__file__).parents[2] / "scripts"
CHECKER = SCRIPTS / "check_certificate.py"
OPERATORS = """
op matmul(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }
op conv(x: f32[C, H, W], w: f32[O, C, 3, 3]) -> (y: f32[O, H, W]) {
    y[o, i, j] = sum(c, r, s) x[c, i + r - 1, j + s - 1 | 0] * w[o, c, r, s]
}
op softmax(x: f32[M, N]) -> (y: f32[M, N]) where N >= 1 {
    m[i] = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    s[i] = sum(j) e[i, j]
    y[i, j] = e[i, j] / s[i]
}
op cumsum(x: f32[N]) -> (y: f32[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i] for i in 1..N
}
op take(x: f32[R, K], ids: i64[Q]) -> (y: f32[Q, K]) { y[q, k] = x[ids[q], k] }
op ranged(x: f32[R, K], ids: i64[Q] in 0..R) -> (y: f32[Q, K]) { y[q, k] = x[ids[q], k] }
op best(x: f32[M, N]) -> (v: i64[M]) where N >= 1 { v[i] = argmax(j) x[i, j] }
op blur(x: f32[N]) -> (y: f32[N]) {
    t[i] = x[i] + x[i - 1 | 0]
    y[i] = t[i] * t[i + 1 | clamp]
}
op halves(x: f16[M, N]) -> (y: f16[M]) { y[i] = sum(j) x[i, j] }
op positive(x: f32[N]) -> (y: f32) { y = sum(i, x[i] > 0) x[i] * x[i] }
op wrapped(x: f32[R, K], ids: i64[Q]) -> (y: f32[Q, K]) where R >= 1 { y[q, k] = x[ids[q], k | wrap] }
op attention(q: f32[M, D], k: f32[N, D], v: f32[N, E]) -> (y: f32[M, E]) where N >= 1 {
    t[i, j] = sum(d) q[i, d] * k[j, d]
    m[i] = max(j) t[i, j]
    e[i, j] = exp(t[i, j] - m[i])
    s[i] = sum(j) e[i, j]
    y[i, f] = sum(j) (e[i, j] / s[i]) * v[j, f]
}
"""
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "matmul": ((15, 4), (4, 22)),
    "conv": ((2, 5, 6), (2, 2, 3, 3)),
    "softmax": ((3, 19),),
    "cumsum": ((12,),),
    "take": ((5, 9), (4,)),
    "ranged": ((5, 9), (4,)),
    "best": ((5, 6),),
    "blur": ((20,),),
    "halves": ((3, 19),),
    "positive": ((20,),),
    "wrapped": ((5, 9), (4,)),
    "attention": ((5, 3), (9, 3), (9, 4)),
}
THREADED = "matmul on two threads"
UNROLLED = "cumsum unrolled"
NAMES = (*SHAPES, THREADED, UNROLLED, *(f"{n} of any size" for n in ("cumsum", "blur", "take", "softmax")))

SCHEDULES = {THREADED: "parallel i", UNROLLED: "unroll i"}


def made(name: str) -> tuple[Program, str]:
    """Return a kernel's program and loops."""
    operator = name.split()[0]
    ops = tl.parse(OPERATORS, sizes="symbolic" if "any size" in name else "static", threads=2)
    shapes = SHAPES[operator]
    arrays = [np.zeros(s, _dtype(operator, k)) for k, s in enumerate(shapes)]
    texts: dict[str, str] = {}
    chosen = ops[operator].schedule(SCHEDULES[name]) if name in SCHEDULES else ops[operator]
    chosen.stages(*arrays, dump=texts.__setitem__)
    return ops[operator].program(*arrays), texts["loops"]


def _dtype(operator: str, k: int) -> Any:
    return np.float16 if operator == "halves" else np.int64 if k == 1 and operator in ("take", "ranged", "wrapped") else np.float32


@cache
def kernel(name: str) -> tuple[Program, str]:
    return made(name)


@cache
def text_of(name: str) -> str:
    """Return the certificate of a kernel."""
    return certificate(*kernel(name))


@cache
def checker() -> Any:
    """Return the checker as a module."""
    sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module("check_certificate")


def with_loops(text: str, loops: str) -> str:
    """Return the certificate with other loops."""
    return written({**json.loads(text), "loops": function(parse(loops))})
