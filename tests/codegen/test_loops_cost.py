import math

import pytest

from codegen.loops.cost import Counts, count
from codegen.loops.parser import parse

MATMUL = """
func matmul(M, N, K)(a: f32[M, K], b: f32[K, N], out c: f32[M, N]) {
    for io in 0 .. (M + 5) // 6 parallel {
        for jo in 0 .. (N + 15) // 16 {
            alloc acc: f32[6, 16] registers
            for ii in 0 .. 6 unroll 6 { for j in 0 .. 16 vector 16 { acc[ii, j] = 0.0_f32 } }
            for k in 0 .. K {
                for ii in 0 .. min(6, M - 6*io) unroll 6 { for j in 0 .. min(16, N - 16*jo) vector 16 {
                    acc[ii, j] = fma(a[6*io + ii, k], b[k, 16*jo + j], acc[ii, j])
                } }
            }
            for ii in 0 .. min(6, M - 6*io) unroll 6 { for j in 0 .. min(16, N - 16*jo) vector 16 {
                c[6*io + ii, 16*jo + j] = acc[ii, j]
            } }
        }
    }
}
"""


def _count(body: str) -> Counts | None:
    return count(parse(f"func f(N)(a: f32[N, 8], k: i32[8], out c: f32[8, 8]) {{ {body} }}"), {"N": 4})


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (7, 33, 5), (1000, 1000, 1000)])
def test_a_tiled_product_does_the_work_of_a_product(m: int, n: int, k: int) -> None:
    counts = count(parse(MATMUL), {"M": m, "N": n, "K": k})
    assert counts is not None
    assert counts.flops == 2 * m * n * k
    assert counts.loaded == {"a": 4 * m * k, "b": 4 * k * n}
    assert counts.stored == {"c": 4 * m * n}
    assert math.isclose(counts.intensity, 2 * m * n * k / (4 * (m * k + k * n + m * n)))


def test_unknown_sizes_are_not_counted() -> None:
    assert count(parse(MATMUL), {"M": 4, "N": 4}) is None
    assert count(parse(MATMUL)) is None


def test_loops_whose_bounds_are_read_from_memory_are_not_counted() -> None:
    assert _count("for i in 0 .. value(k[0]) { c[i, 0] = 0.0_f32 }") is None


def test_triangular_loops_are_counted_exactly() -> None:
    counts = _count("for i in 0 .. 8 { for j in 0 .. i { c[i, j] = c[i, j] + 1.0_f32 } }")
    assert counts is not None and counts.flops == 28


@pytest.mark.parametrize(
    ("value", "flops", "integer_ops"),
    [
        ("a[0, 0] * 2.0_f32 + exp(a[1, 0])", 3, 0),
        ("fma(a[0, 0], 2.0_f32, -a[1, 0])", 2, 0),
        ("f32(k[0] + 1_i32)", 0, 1),
        ("select(a[0, 0] < 0.0_f32, a[0, 0] + 1.0_f32, a[0, 0] * 2.0_f32 + 1.0_f32)", 2, 0),
        ("min(a[0, 0], 0.0_f32)", 1, 0),
    ],
)
def test_operations_of_values(value: str, flops: int, integer_ops: int) -> None:
    counts = _count(f"let x = {value} c[0, 0] = x")
    assert counts is not None and (counts.flops, counts.integer_ops) == (flops, integer_ops)


def test_the_side_of_a_branch_that_does_more_counts() -> None:
    counts = _count("if a[0, 0] < 0.0_f32 { c[0, 0] = 1.0_f32 } else { c[0, 0] = a[0, 0] + 1.0_f32 }")
    assert counts is not None and counts.flops == 1


@pytest.mark.parametrize(
    ("body", "elements"),
    [
        ("for i in 0 .. 4 { c[0, i] = a[i, 0] }", 4),
        ("for i in 0 .. 4 { for r in 0 .. 8 { c[0, r] = a[i, 0] } }", 4),
        ("for i in 0 .. 3 { c[0, i] = a[0, 2*i] }", 3),
        ("for i in 0 .. 4 { c[0, i] = a[0, i] + a[0, i + 1] + a[0, i + 2] }", 6),
        ("for i in 0 .. 4 { for j in 0 .. 4 { c[0, i] = a[0, i + j] } }", 7),
        ("for i in 0 .. 4 { c[0, i] = a[0, value(k[i])] }", 8),
    ],
)
def test_traffic_counts_distinct_elements(body: str, elements: int) -> None:
    counts = _count(body)
    assert counts is not None and counts.loaded["a"] == 4 * elements


def test_scratch_of_one_name_in_two_blocks_is_added_up() -> None:
    counts = _count("""
        for i in 0 .. 2 { alloc t: f32[4] stack for j in 0 .. 4 { t[j] = 0.0_f32 c[i, j] = t[j] } }
        for i in 0 .. 2 { alloc t: f32[2, 2] stack t[i, 0] = 0.0_f32 c[i, 0] = t[i, 0] }""")
    assert counts is not None and counts.stored["t"] == 4 * 4 + 4 * 2
