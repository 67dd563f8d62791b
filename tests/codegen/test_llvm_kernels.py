"""Small kernels: compiled code computes what the interpreter computes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_run import LEVELS, check, run_native, values

from codegen.dtypes import DTYPES, i32
from codegen.llvm.emit import emit
from codegen.llvm.fills import range_checked
from codegen.llvm.target import host, named
from codegen.loops.nodes import Index, Int, Var
from codegen.loops.parser import parse

ADD = """
func add(N)(x: f32[N], y: f32[N], out z: f32[N]) {
    for io in 0 .. (N + 15) // 16 {
        for i in 16*io .. min(16*io + 16, N) vector 16 { z[i] = x[i] + y[i] }
    }
}"""


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100])
def test_a_masked_tail_completes_a_vector_loop(n: int) -> None:
    check(ADD, {"N": n}, x=values("f32", n), y=values("f32", n, 1), z=np.zeros(n, np.float32))


def test_quotients_of_indices_below_0_are_multiplications_in_all_lanes() -> None:
    text = "func f()(out y: i64[9, 16]) { for k in 0 .. 9 { for i in 0 .. 16 vector 16 { y[k, i] = index((2*i - 9*k) % 11) } } }"
    emitted = emit(parse(text), host())
    assert "udiv <16 x i32>" in emitted and "sdiv" not in emitted
    found = check(text, y=np.zeros((9, 16), np.int64))
    assert (found["y"] == (2 * np.arange(16) - 9 * np.arange(9)[:, None]) % 11).all()


MATMUL = """
func matmul(M, N, K)(a: f32[M, K], b: f32[K, N], out c: f32[M, N]) {
    for io in 0 .. (M + 3) // 4 {
        for jo in 0 .. (N + 31) // 32 {
            alloc acc: f32[4, 32] registers
            for i in 0 .. 4 unroll 4 { for jr in 0 .. 2 unroll 2 { for j in 0 .. 16 vector 16 { acc[i, 16*jr + j] = 0.0_f32 } } }
            for k in 0 .. K {
                for i in 0 .. min(4, M - 4*io) unroll 4 {
                    for jr in 0 .. 2 unroll 2 {
                        for j in 0 .. min(16, N - 32*jo - 16*jr) vector 16 {
                            acc[i, 16*jr + j] = fma(a[4*io + i, k], b[k, 32*jo + 16*jr + j], acc[i, 16*jr + j])
                        }
                    }
                }
            }
            for i in 0 .. min(4, M - 4*io) unroll 4 {
                for jr in 0 .. 2 unroll 2 {
                    for j in 0 .. min(16, N - 32*jo - 16*jr) vector 16 { c[4*io + i, 32*jo + 16*jr + j] = acc[i, 16*jr + j] }
                }
            }
        }
    }
}"""


@pytest.mark.parametrize("shape", [(0, 3, 4), (1, 1, 1), (4, 32, 5), (5, 33, 3), (7, 50, 0), (6, 15, 2)])
def test_a_product_with_register_tiles_and_odd_sizes(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = values("f32", m * k).reshape(m, k), values("f32", k * n, 1).reshape(k, n)
    check(MATMUL, {"M": m, "N": n, "K": k}, targets=LEVELS[-2:], a=a, b=b, c=np.full((m, n), 7, np.float32))


ROWS = """
func rows(x: f32[3, 5], w: f32[5, COUNT], out y: f32[3, COUNT]) {
    alloc acc: f32[3, COUNT] registers
    for i in 0 .. 3 unroll 3 { for u in 0 .. 2 unroll 2 { for v in 0 .. min(16, COUNT - 16*u) vector 16 { acc[i, 16*u + v] = 0.0_f32 } } }
    for k in 0 .. 5 {
        for i in 0 .. 3 unroll 3 {
            for u in 0 .. 2 unroll 2 {
                for v in 0 .. min(16, COUNT - 16*u) vector 16 { acc[i, 16*u + v] = fma(x[i, k], w[k, 16*u + v], acc[i, 16*u + v]) }
            }
        }
    }
    for i in 0 .. 3 unroll 3 {
        for u in 0 .. 2 unroll 2 { for v in 0 .. min(16, COUNT - 16*u) vector 16 { y[i, 16*u + v] = acc[i, 16*u + v] } }
    }
}"""


@pytest.mark.parametrize("count", [17, 20, 24, 28, 32])
def test_rows_in_registers_that_end_in_a_shorter_vector(count: int) -> None:
    text = ROWS.replace("COUNT", str(count)).replace("rows(x", "rows()(x")
    x, w = values("f32", 15).reshape(3, 5), values("f32", 5 * count, 1).reshape(5, count)
    check(text, {}, x=x, w=w, y=np.zeros((3, count), np.float32))
    written = emit(parse(text), host())
    if count == 24 and host().vector_bits == 512:
        assert written.count("phi <16 x float>") == written.count("phi <8 x float>") == 3
        assert "extractelement" not in written and "i32 15>" not in written, "a row is a whole vector and a whole shorter one"


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0 .. 16 vector 16 { y[i] = x[15 - i] }",
        "for i in 0 .. 11 vector 11 { y[i] = x[15 - i] }",
        "for i in 0 .. 11 vector 11 { y[15 - i] = x[i] }",
        "for i in 0 .. 8 vector 8 { y[i] = x[2*i] }",
        "for i in 0 .. 5 vector 8 { y[i] = x[3*i] }",
        "for i in 0 .. 16 vector 16 { y[i] = x[2*i] + x[3*i + 1] + x[4*i + 3] }",
        "for i in 0 .. 4 vector 4 { y[i] = x[2*i] + x[3*i + 1] + x[4*i + 3] }",
        "for i in 0 .. 2 vector 2 { y[i] = x[2*i] + x[3*i + 1] + x[4*i + 3] }",
        "for i in 0 .. 8 vector 8 { y[i] = select(index(N) > index(100), x[4*i + 60], x[2*i]) }",
        "for i in 0 .. 8 vector 8 { y[2*i] = x[i] }",
        "for i in 0 .. 5 vector 8 { y[3*i] = x[i] }",
        "for i in 0 .. 16 vector 16 { y[i] = x[i // 3] }",
        "for i in 0 .. 16 vector 16 { y[i] = x[i % 5] }",
        "for i in 0 .. 16 vector 16 { y[i] = x[(2*i - 20) % 7] + x[(5 - 2*i) // 3 + 9] }",
        "for k in 0 .. 9 { for i in 0 .. 16 vector 16 { y[i] = select(index((2*i - 9*k) % 11) == 0_i64, x[(i - 9*k) // 8 + 12], y[i]) } }",
        "for i in 0 .. 7 vector 7 { y[2*i + i // 4] = x[(i*i) % 16] }",
        "for i in 0 .. 16 vector 16 { y[i] = x[value(p[i])] }",
        "for i in 0 .. 13 vector 16 { y[value(p[i])] = x[i] }",
        "for i in 0 .. 16 vector 16 { y[i] = x[min(i + 3, 15)] }",
        "for i in 0 .. 16 vector 16 { y[i] = x[max(7, i)] + x[2] }",
        "for i in 0 .. 16 vector 16 { if i_ok[i] { y[i] = x[i] } else { y[i] = 2.0_f32 } }",
        "for i in 0 .. 16 vector 16 { if index(i) < index(N) { y[i] = x[i] + x[N] } }",
        "for i in 0 .. 16 vector 16 { y[i] = select(index(i) >= index(N), x[i - N], x[0]) }",
        "for i in 0 .. 16 vector 16 { y[i] = select(index(N) > index(100), x[i + N], 1.0_f32) }",
        "for i in 0 .. 16 { y[i] = select(index(N) > index(100), x[i + 50], 1.0_f32) }",
        "for i in 0 .. 16 vector 16 { y[i] = select(index(N) > index(3), exp(x[i]), log(x[i + 50])) }",
        "for i in 0 .. 16 vector 16 { if index(i) * index(2) > index(100) { y[i] = x[100] } }",
        "for i in 0 .. 16 vector 16 { y[3] = y[3] + x[i] * 0.0_f32 }",
        "for i in 0 .. 16 vector 16 { y[3] = y[3] - x[i] * 0.0_f32 }",
        "for i in 2 .. N vector 16 { y[3] = max(y[3], x[i]) }",
        "for i in N .. N vector 16 { y[40] = y[40] + x[i] }",
        "for i in 0 .. 16 vector 16 { for k in 0 .. N { y[i] = x[k] } }",
        "for i in 0 .. 16 vector 16 { for k in 0 .. i { y[i] = y[i] + x[k] } }",
        "for i in 0 .. 4 vector 4 { for k in 0 .. 4 vector 4 { y[4*i + k] = x[4*k + i] } }",
        "for i in 0 .. 16 vector 16 { alloc t: f32[2] registers t[0] = x[i] t[1] = t[0] + 1.0_f32 y[i] = t[1] * t[0] }",
        "for i in 0 .. 16 vector 16 { alloc t: f32[2] stack t[0] = x[i] y[i] = t[0] }",
        "alloc t: f32[16] registers for i in 0 .. 16 vector 16 { t[i] = x[i] } for i in 0 .. 16 unroll 16 { y[i] = t[15 - i] }",
        "alloc t: f32[16] registers for i in 0 .. 16 unroll 16 { t[i] = x[i] } for i in 0 .. 8 vector 8 { y[i] = t[i + 3] }",
        """alloc t: f32[32] registers
        for i in 0 .. 32 vector 32 { t[i] = 1.0_f32 }
        for o in 0 .. 4 unroll 4 { for i in 0 .. 8 vector 8 { t[8*o + i] = x[i] + t[8*o + i] } }
        for i in 0 .. 16 vector 16 { y[i] = t[i + 16] }""",
        "alloc t: f32[1] registers t[0] = 0.0_f32 for k in 0 .. N { for j in 0 .. 2 { t[0] = t[0] + x[k] } } y[0] = t[0]",
        """alloc t: f32[2] registers t[0] = 0.0_f32 t[1] = 3.0_f32
        for k in 0 .. N { if x[k] > 0.0_f32 { t[0] = t[1] } else { t[1] = x[k] } }
        y[0] = t[0] y[1] = t[1]""",
        """alloc t: f32[2] registers t[0] = 1.0_f32 t[1] = 2.0_f32
        for k in 0 .. N { let s = t[0] t[0] = t[1] t[1] = s }
        y[0] = t[0] y[1] = t[1]""",
        "alloc t: f32[16] heap for i in 0 .. 16 { t[i] = x[i] } for i in 0 .. 16 vector 16 { y[i] = t[15 - i] }",
        "for o in 0 .. 4 unroll 4 { if index(o) < index(N) { y[o] = x[o] } }",
        "for o in N .. 8 unroll 8 { y[o] = x[o] }",
        """if index(N) <= index(2) { alloc t: f32[2] registers
            for o in 0 .. N unroll 3 { t[o] = x[o] } for o in 0 .. N unroll 3 { y[o] = t[o] } }""",
        "prefetch x[3] locality 3 for i in 0 .. 16 vector 16 { prefetch write y[2*i] locality 2 y[i] = 1.0_f32 }",
        "for i in 0 .. 16 vector 16 { y[i] = f32(index(i * N)) }",
        "for i in 0 .. 16 vector 16 { y[i] = x[i] stream }",
        "for i in 0 .. 3 { for k in i .. 4 { y[4*i + k] = f32(index((k - i) // 2 + (i - k) // 2 + (i - 3) % 4)) } }",
        "y[0] = x[0] + 1.0_f32 y[0] = y[0] * 2.0_f32 y[1] = y[0]",
    ],
)
def test_statement(body: str) -> None:
    text = f"func f(N)(x: f32[64], p: i32[16], i_ok: bool[16], out y: f32[64]) {{ {body} }}"
    permutation = np.random.default_rng(3).permutation(16).astype(np.int32)
    check(
        text,
        {"N": 5},
        rtol=1e-6 if "exp" in body else 0.0,
        x=values("f32", 64),
        p=permutation,
        i_ok=values("bool", 16),
        y=np.zeros(64, np.float32),
    )


def test_a_vector_that_was_written_is_not_read_again() -> None:
    text = "for i in 0 .. 16 vector 16 { y[i] = x[i] + 1.0_f32 z[i] = y[i] * y[i] }"
    assert emit(parse(f"func f()(x: f32[16], out y: f32[16], out z: f32[16]) {{ {text} }}"), named("x86-64-v4")).count("= load <") == 1


def test_a_vector_is_as_aligned_as_its_first_element() -> None:
    function = parse("func f()(x: f32[32] align 64, out y: f32[32] align 64) { for i in 0 .. 8 vector 8 { y[i + 1] = x[i + 4] } }")
    text = emit(function, named("x86-64-v3"))
    assert re.search(r"load <8 x float>, ptr %\S+, align 16\b", text) and re.search(r"store <8 x float> %\S+, ptr %\S+, align 4\b", text)


def test_conditions_on_indices_are_decided_when_the_code_is_written() -> None:
    text = """func f()(x: f32[16], out y: f32[16]) {
        for u in 0 .. 4 unroll 4 { if index(u) < 2_i64 { y[u] = x[u] } else { if index(u) >= index(2) { y[u] = x[u] * 2.0_f32 } } }
        for i in 4 .. 16 vector 16 { if index(i) >= 4_i64 { y[i] = select(index(i) > 20_i64, x[i + 30], x[i]) } } }"""
    check(text, x=values("f32", 16), y=np.zeros(16, np.float32))
    body = emit(parse(text), host())
    assert "br " not in body and "select" not in body and "fcmp" not in body


@pytest.mark.parametrize("n", [3, 16, 40])
@pytest.mark.parametrize("op", ["+", "*", "min", "max"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8"])
def test_lanes_combine_into_one_element(dtype: str, op: str, n: int) -> None:
    combine = f"{op}(s[0], x[i])" if op in ("min", "max") else f"s[0] {op} x[i]"
    text = f"""func reduce(N)(x: {dtype}[N], out s: {dtype}[1]) {{
        for io in 0 .. (N + 7) // 8 {{ for i in 8*io .. min(8*io + 8, N) vector 8 {{ s[0] = {combine} }} }} }}"""
    x = (np.random.default_rng(1).integers(1, 3, n)).astype(values(dtype, 1).dtype)
    check(text, {"N": n}, x=x, s=np.ones(1, x.dtype))


def test_requirements_return_their_code() -> None:
    text = "func f(N)(x: f32[4], out y: f32[4]) { require index(N) < index(5) else 7 require x[0] > 0.0_f32 else 9 y[0] = 1.0_f32 }"
    for n, first in ((9, 1.0), (3, -1.0), (3, 1.0)):
        check(text, {"N": n}, x=np.full(4, first, np.float32), y=np.zeros(4, np.float32))


PARALLEL = """
func f(N, M)(x: f32[N, M], out y: f32[N, M], out total: f32[N]) {
    let scale = 2.0_f32 + x[0, 0]
    alloc shared: f32[M] heap
    for j in 0 .. M { shared[j] = scale * f32(index(j)) }
    for i in 0 .. N parallel {
        alloc row: f32[M] heap
        alloc sum: f32[1] registers
        sum[0] = 0.0_f32
        for j in 0 .. M { row[j] = x[i, j] * scale + shared[j] }
        for j in 0 .. M { y[i, j] = row[M - 1 - j] sum[0] = sum[0] + row[j] }
        require index(i) < index(40) else 3
        total[i] = sum[0]
    }
}"""


@pytest.mark.parametrize("n", [0, 1, 2, 7, 40, 41])
def test_a_parallel_loop_gives_each_thread_its_own_scratch(n: int) -> None:
    m = 9
    x = values("f32", n * m).reshape(n, m)
    if n == 0:
        return
    check(PARALLEL, {"N": n, "M": m}, targets=LEVELS[-1:], x=x, y=np.zeros_like(x), total=np.zeros(n, np.float32))


def test_the_body_of_a_parallel_loop_knows_the_extents_of_what_it_chooses_from() -> None:
    text = """
func f(N, M)(c: f32[N], out y: f32[N, M]) {
    alloc t: f32[max(0, N - 1) + 1, M] heap
    for i in 0 .. N { for j in 0 .. M { t[i, j] = f32(index(i + j)) } }
    for i in 0 .. N parallel { for j in 0 .. M { y[i, j] = select(c[i] > 0.0_f32, t[i, j], 5.0_f32) } }
}"""
    check(text, {"N": 4, "M": 3}, targets=LEVELS[-1:], c=np.array([1, -1, 0, 2], np.float32), y=np.zeros((4, 3), np.float32))


def _index_text(draw: st.DrawFn, depth: int) -> str:
    """Return index arithmetic over a lane `i`, a loop variable `k`, an unrolled variable `u` and a size `N`."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["i", "k", "u", "N", "3", "16", "5", "value(p[k])", "value(p[i])"]))
    left, right = _index_text(draw, depth - 1), _index_text(draw, depth - 1)
    operation = draw(
        st.sampled_from(
            ["({} + {})", "({} - {})", "({} * {})", "({} // %)", "({} %% %)", "min({}, {})", "max({}, {})", "({} // N)", "({} %% N)"]
        )
    )
    return operation.replace("%%", "\0").replace("%", draw(st.sampled_from(["2", "4", "7", "16"]))).replace("\0", "%").format(left, right)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 20))
def test_index_arithmetic_means_the_same_in_lanes_and_loops(data: st.DataObject, n: int) -> None:
    e = data.draw(st.composite(lambda draw: _index_text(draw, 4))())
    text = f"""func f(N)(p: i32[16], out y: i64[4, 2, 16], out z: i64[4, 2, 16]) {{
        for k in 0 .. 4 {{ for u in 0 .. 2 unroll 2 {{
            for i in 0 .. 16 vector 16 {{ y[k, u, i] = index({e}) }}
            for i in 0 .. min(16, N) vector 16 {{ z[k, u, i] = select(index({e}) > index(3), index({e}), 1_i64) }} }} }} }}"""
    cells = np.zeros((4, 2, 16), np.int64)
    check(text, {"N": n}, targets=LEVELS[-1:], p=np.arange(-5, 11, dtype=np.int32), y=cells, z=cells.copy())


def test_what_a_loop_does_not_change_is_loaded_before_it() -> None:
    text = """func f(N)(x: f32[8, N], s: f32[9], out y: f32[8, N], out c: f32[8]) {
        for r in 0 .. 8 { for j in 0 .. N { y[r, j] = x[r, j] * s[r + 1] + c[r] c[r] = c[r] + s[2] } } }"""
    for n in (0, 1, 5):
        x = values("f32", 8 * n).reshape(8, n)
        check(text, {"N": n}, targets=LEVELS[-1:], x=x, s=values("f32", 9), y=np.zeros_like(x), c=np.zeros(8, np.float32))
    inner = emit(parse(text), host()).split("\nloop")[2].split("\nend")[0]
    assert inner.count("load float") == 2 and inner.count("store float") == 2


def test_nothing_is_loaded_before_a_loop_that_may_not_reach_it() -> None:
    text = """func f(N)(x: f32[N], s: f32[1], out y: f32[8]) {
        for j in 0 .. 4 { require index(j) < index(N) else 2 y[j] = x[N - 1] }
        for j in 0 .. 4 { if index(N) > index(9) { y[j] = x[9] } } }"""
    for n in (0, 3, 4):
        check(text, {"N": n}, targets=LEVELS[-1:], x=values("f32", n), s=values("f32", 1), y=np.zeros(8, np.float32))
    fail = emit(parse(text), host()).index("fail")
    assert "load float" not in emit(parse(text), host())[:fail]


FIRST_INSIDE = """
func gather()(x: f32[7, 9], p: i64[1], out y: f32[9]) {
    require p[0] >= 0_i64 and p[0] < 7_i64 else 1
    for o in 0 .. 2 {
        if p[0] > 0_i64 {
            for v in 0 .. 4 vector 4 { y[4*o + v] = x[value(p[0]), 4*o + v] }
        }
    }
    if p[0] > 0_i64 { y[8] = x[value(p[0]), 8] }
}"""


def test_a_number_that_is_an_index_in_an_inner_loop_first_is_one_outside_afterwards() -> None:
    x = values("f32", 63).reshape(7, 9)
    check(FIRST_INSIDE, {}, x=x, p=np.array([3], np.int64), y=np.zeros(9, np.float32))


def test_quotients_of_lanes_that_take_no_part_in_one_loop_are_wrapped_in_the_next() -> None:
    rows = (f"for j in 0 .. {n} vector {n} {{ y[{k}, j] = x[(j // 2 + 3) % 6, j // 2] }}" for k, n in enumerate((5, 7)))
    text = f"func f()(x: f32[6, 9], out y: f32[2, 8]) {{ {' '.join(rows)} }}"
    check(text, {}, x=values("f32", 54).reshape(6, 9), y=np.zeros((2, 8), np.float32))


COUNTED = """func f(N, M)(x: f32[N, 2], out y: i32[16]) {
    alloc acc: i32[16] registers
    for j in 0 .. 16 vector 16 { acc[j] = 0_i32 }
    for o in 0 .. N // 16 {
        for j in 0 .. 16 vector 16 { if x[16*o + j, 0] > 0.0_f32 and x[16*o + j, 1] > x[5, 0] { acc[j] = acc[j] + 1_i32 } }
    }
    for j in 0 .. 16 vector 16 { y[j] = acc[j] }
}"""


@pytest.mark.parametrize("rows", ["N", "M"])
def test_what_lies_in_its_buffer_is_read_whether_or_not_a_condition_holds(rows: str) -> None:
    text = COUNTED.replace("f32[N, 2]", f"f32[{rows}, 2]")
    check(text, {"N": 48, "M": 48}, x=values("f32", 96).reshape(48, 2), y=np.zeros(16, np.int32))
    assert ("masked" in emit(parse(text), named("x86-64-v4"))) == (rows == "M")


def test_where_elements_lie_makes_no_branch_of_a_choice() -> None:
    text = """
func f(N)(a: i32[9], b: i32[N], t: i32[16, N + 1], out y: i32[8, N]) {
    for o in 0 .. 2 { for j in 1 .. N { for r in 0 .. 4 unroll 4 {
        y[4*o + r, j] = select(a[4*o + r] == b[j], t[4*o + r, j] + 1_i32, max(t[4*o + r + 3, j + 1 - o], t[4*o + r + 1, j + 1 - o]))
    } } }
}"""
    assert " phi i32 " not in emit(parse(text), host()), "both sides are computed"
    n = 9
    check(
        text,
        {"N": n},
        a=values("i32", 9) % 2,
        b=values("i32", n, 1) % 2,
        t=values("i32", 16 * n + 16).reshape(16, n + 1),
        y=np.zeros((8, n), np.int32),
    )


def test_a_number_that_a_register_is_known_to_hold_is_an_index() -> None:
    text = """func f()(x: f32[7], out y: f32[7]) {
        alloc seen: i64[1] registers
        seen[0] = 0_i64
        for n in max(0, value(seen[0])) .. max(-1, min(6, value(seen[0]))) + 1 { y[n] = x[n] }
    }"""
    check(text, {}, x=values("f32", 7), y=np.zeros(7, np.float32))


@pytest.mark.parametrize("count", ["N", "N - 9", "37", "0", "3"])
@pytest.mark.parametrize(("element", "dtype"), [("7_i32", "i32"), ("-0.0_f64", "f64"), ("true", "bool"), ("1.5_f32", "f32")])
def test_a_loop_that_fills_a_row_stores_whole_vectors(count: str, element: str, dtype: str) -> None:
    text = f"""func fill(N)(out y: {dtype}[3, 40]) {{
        for k in 0 .. 2 {{ for i in 0 .. {count} {{ y[k, 1 + i] = {element} }} }} }}"""
    for n in (0, 1, 16, 33):
        check(text, {"N": n}, y=np.zeros((3, 40), DTYPES[dtype].numpy))
    assert count in ("0", "3") or dtype == "bool" or f"store <{host().lanes(DTYPES[dtype])} x" in emit(parse(text), host())


@pytest.mark.parametrize("rows", [0, 1, 16, 37])
@pytest.mark.parametrize(
    ("shape", "loops"),
    [("N", "for i in 0 .. N {{ {} }}"), ("N, 3", "for i in 0 .. N {{ for j in 0 .. 3 {{ {} }} }}")],
)
def test_a_loop_that_checks_every_element_looks_at_whole_vectors(rows: int, shape: str, loops: str) -> None:
    element = "x[i, j]" if "j" in loops else "x[i]"
    checks = loops.format(f"require i64({element}) >= 2_i64 and i64({element}) < 9_i64 else 1")
    text = f"func f(N)(x: i32[{shape}], out y: i32[1]) {{ {checks} y[0] = 1_i32 }}"
    assert f"load <{host().lanes(i32)} x i32>" in emit(parse(text), host())
    x = np.full((rows, 3) if "j" in loops else rows, 8, np.int32)
    native_code = lambda x: run_native(parse(text), {"N": rows}, {"x": x, "y": np.zeros(1, np.int32)}, host())  # noqa: E731
    assert native_code(x) == 0
    for place in {0, x.size // 2, x.size - 1} if x.size else ():
        for wrong in (1, 9):
            other = x.copy()
            other.flat[place] = wrong
            assert native_code(other) == 1


@pytest.mark.parametrize(
    ("asked", "element", "known", "found"),
    [
        ("i64(x[i]) >= 2_i64 and i64(x[i]) < index(N)", "i32", ("x",), ("x", Int(2), Var("N"))),
        ("i64(x[i]) < index(N)", "u8", (), ("x", Int(0), Var("N"))),
        ("i64(x[i]) >= 2_i64", "i8", (), ("x", Int(2), Int(128))),
        ("i64(x[i]) < index(N)", "u8", ("x",), None),
        ("i64(x[i]) < i64(x[0])", "u8", (), None),
    ],
)
def test_a_check_of_all_elements_says_where_they_lie(
    asked: str, element: str, known: tuple[str, ...], found: tuple[str, Index, Index] | None
) -> None:
    function = parse(f"func f(N)(x: {element}[N], out y: i32[1]) {{ for i in 0 .. N {{ require {asked} else 1 }} y[0] = 1_i32 }}")
    assert range_checked(function.body[0], {p.name: p for p in function.params}, known) == found


def test_a_loop_that_stores_what_depends_on_it_does_so_one_by_one() -> None:
    text = "func f(N)(out y: i64[8, 8]) { for i in 0 .. N { y[i, i] = 1_i64 } for i in 0 .. N { y[i, 7] = 2_i64 } }"
    check(text, {"N": 6}, y=np.zeros((8, 8), np.int64))
    assert "store <" not in emit(parse(text), host())


STRIPES = """
func stripes(M, N)(x: f32[M, N], out y: f32[M, N]) {
    for o in 0 .. M // 4 {
        for i in 0 .. 2 { for j in 0 .. N { for r in 0 .. 2 unroll 2 { y[4*o + 2*i + r, j] = x[4*o + 2*i + r, j] + 1.0_f32 } } }
    }
}"""


def test_what_products_add_up_to_outside_a_loop_is_one_number_inside() -> None:
    x = values("f32", 40).reshape(8, 5)
    check(STRIPES, {"M": 8, "N": 5}, x=x, y=np.zeros((8, 5), np.float32))
    before, _, inside = emit(parse(STRIPES), host()).rpartition("\nloop")
    rows = re.findall(r"getelementptr float, ptr (%\w+), i64 %\w+", inside[: inside.index("\nend")])
    assert rows and set(rows) == set(re.findall(r"(%\w+) = freeze ptr", before)), "rows of N elements, the same from two loops outside"


def test_what_is_read_of_a_parameter_is_what_the_row_that_lies_in_it_got() -> None:
    text = """func f()(a: f32[8], out y: f32[8], out z: f32[8]) {
        alloc u: f32[2, 8] heap align 64 (begins y)
        for i in 0 .. 8 { u[0, i] = a[i] * 2.0_f32
            y[i] = u[0, i]
            z[i] = y[0] }
    }"""
    check(text, a=values("f32", 8), y=np.zeros(8, np.float32), z=np.zeros(8, np.float32))
