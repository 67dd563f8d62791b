"""Instructions that the compiler does not know: declared by their equation and LLVM's name, run against the equation, then used.

`pmaddwd` adds up pairs of products of 16-bit integers. A multiply-add of floats is an instruction too. The third declaration says of
`pmaddubsw`, whose sums saturate, that they wrap: it is refused, with the bytes that show it.
"""

from __future__ import annotations

import numpy as np

import tensorlang as tl

WORDS = """
instruction pairs(a: i16[2], b: i16[8, 2]) -> (d: i32[8]) for avx2 llvm "llvm.x86.avx2.pmadd.wd" {
    d[l] = sum(r in 0..2) i32(a[r]) * i32(b[l, r])
}
op product(x: i16[M, K], w: i16[K, N]) -> (y: i32[M, N]) {
    y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j])
}
schedule product for cpu {
    split j by 8 -> jo, jv
    split k by 2 -> ko, kr
    pack w as [jo, ko, jv, kr]
    order i, jo, ko, jv, kr
    tensorize jv, kr with pairs
}
"""
FLOATS = """
instruction multiply_add(a: f32, b: f32[8], c: f32[8]) -> (d: f32[8]) for fma llvm "llvm.fma.v8f32" {
    d[l] = c[l] + a * b[l]
}
op product(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) {
    y[i, j] = sum(k) x[i, k] * w[k, j]
}
schedule product for cpu {
    split j by 8 -> jo, jv
    order i, jo, k, jv
    tensorize jv with multiply_add
}
"""
BYTES = """
instruction pairs(a: u8[2], b: i8[16, 2]) -> (d: i16[16]) for avx2 llvm "llvm.x86.avx2.pmadd.ub.sw" {
    d[l] = sum(r in 0..2) i16(a[r]) * i16(b[l, r])
}
op product(x: u8[M, K], w: i8[K, N]) -> (y: i16[M, N]) {
    y[i, j] = sum(k) i16(x[i, k]) * i16(w[k, j])
}
schedule product for cpu {
    split j by 16 -> jo, jv
    split k by 2 -> ko, kr
    pack w as [jo, ko, jv, kr]
    order i, jo, ko, jv, kr
    tensorize jv, kr with pairs
}
"""

random = np.random.default_rng(0)


def calls(operator: tl.Operator, *arrays: np.ndarray) -> str:
    """Return the first line of LLVM's IR that calls the instruction."""
    found: dict[str, str] = {}
    operator.stages(*arrays, dump=found.__setitem__)
    return next(line.strip() for line in found["llvm"].split("\n") if " call <8 x " in line)


words = tl.parse(WORDS, threads=1)
x, w = (random.integers(-32768, 32768, shape, dtype=np.int16) for shape in ((37, 51), (51, 29)))
np.testing.assert_array_equal(words.product(x, w), x.astype(np.int32) @ w.astype(np.int32))
print(f"words: NumPy's\n    {calls(words.product, x, w)}")

floats = tl.parse(FLOATS, threads=1)
a, b = (random.standard_normal(shape, dtype=np.float32) for shape in ((37, 51), (51, 29)))
np.testing.assert_allclose(floats.product(a, b), a @ b, rtol=1e-4, atol=1e-5)
print(f"floats: NumPy's\n    {calls(floats.product, a, b)}")

try:
    tl.parse(BYTES, threads=1).product(x.view(np.uint8), np.ones((102, 29), np.int8))
except tl.CompileError as refused:
    print(refused)
