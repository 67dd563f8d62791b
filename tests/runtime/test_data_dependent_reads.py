"""Indices that come from data: one outside its tensor is one error, whatever the loops, and the process goes on."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from codegen.dtypes import DTYPES
from tensorlang.diagnostics import CompileError, RunError

Array = np.ndarray[Any, Any]

TEXT = """
op gather(x: f32[V, E], ids: i64[L]) -> (y: f32[L, E]) { y[l, e] = x[ids[l], e] }
op pick(x: f32[V], ids: i64[L]) -> (y: f32[L]) { y[l] = x[ids[l]] }
op total(x: f32[V], ids: i64[L]) -> (y: f32) { y = sum(l) x[ids[l]] }
op wished(x: f32[V], ids: i64[L]) -> (y: f32[L]) { y[l] = if ids[l] >= 0 then x[ids[l]] else -1 }
op elsewhere(x: f32[V], ids: i64[L]) -> (y: f32[L]) { y[l] = if ids[l] < 0 then -1 else x[ids[l]] }
op squared(x: f32[V], ids: i64[L]) -> (y: f32[L]) { y[l] = if ids[l] >= 0 then (let v = x[ids[l]] in v * v) else -1 }
op either(x: f32[V], ids: i64[L]) -> (y: f32[L]) { y[l] = if ids[l] >= 0 and x[ids[l]] > 5 then 1 else 0 }
op kept(x: f32[V], ids: i64[L]) -> (y: f32) { y = sum(l, ids[l] >= 0) x[ids[l]] }
op declared(x: f32[V], ids: i64[L] in 0..V) -> (y: f32[L]) { y[l] = x[ids[l]] }
"""
LOOPS = {
    "derived": None,
    "vectors": "split l by 8 -> lo, li\nvectorize li",
    "threads": "parallel l",
    "both": "split l by 8 -> lo, li\nparallel lo\nvectorize li",
}
CASES = [
    (name, loops)
    for name in ("pick", "gather", "total", "wished", "elsewhere", "squared", "either", "kept", "declared")
    for loops in LOOPS
    if not (name in ("total", "kept") and loops in ("threads", "both")) and not (name == "gather" and loops in ("vectors", "both"))
]


@pytest.fixture(scope="module")
def ops() -> tl.Operators:
    return tl.parse(TEXT, threads=2)


def scheduled(ops: tl.Operators, name: str, loops: str) -> tl.Operator:
    text = LOOPS[loops]
    return ops[name] if text is None else ops[name].schedule(text)


@pytest.mark.parametrize(("name", "loops"), CASES)
def test_an_index_outside_is_one_error_and_the_next_call_works(ops: tl.Operators, name: str, loops: str) -> None:
    operator = scheduled(ops, name, loops)
    table = np.arange(1200, dtype=np.float32).reshape(300, 4) if name == "gather" else np.arange(300, dtype=np.float32)
    good = np.arange(901) * 7 % 300
    for wrong in (300, 2**40, *((-1,) if name in ("pick", "gather", "total", "declared") else ())):
        bad = good.copy()
        bad[777] = wrong
        with pytest.raises(RunError) as refused:
            operator(table, bad)
        (problem,) = refused.value.diagnostics
        assert problem.code == "R0306"
        assert problem.notes == (
            "`ids` is declared in 0..300, and an element lies outside"
            if name == "declared"
            else "`x` is read at indices from data, and one lies outside 0..300",
        )
    want = {"total": table[good].sum(), "kept": table[good].sum(), "either": table[good] > 5, "squared": table[good] ** 2}.get(
        name, table[good]
    )
    np.testing.assert_allclose(operator(table, good), np.asarray(want, np.float32), rtol=1e-5)


@pytest.mark.parametrize("loops", LOOPS)
def test_a_read_that_is_not_chosen_asks_for_nothing(ops: tl.Operators, loops: str) -> None:
    x, ids = np.arange(30, dtype=np.float32), np.arange(100) % 31 - 1
    want = np.where(ids >= 0, x[ids], -1)
    assert (scheduled(ops, "wished", loops)(x, ids) == want).all()
    assert (scheduled(ops, "elsewhere", loops)(x, ids) == want).all()
    assert (scheduled(ops, "squared", loops)(x, ids) == np.where(ids >= 0, want**2, -1)).all()
    assert (scheduled(ops, "either", loops)(x, ids) == (want > 5)).all()
    assert ops.kept(x, ids) == x[ids[ids >= 0]].sum()


def test_comparing_an_index_with_u64_is_exact() -> None:
    """As `i64`, the greatest u64 is -1."""
    text = """op f(x: f32[M], ids: u64[N]) -> (y: f32[N], z: bool[N]) {
        y[i] = if ids[i] >= 0 and ids[i] < M then x[ids[i]] else 9
        z[i] = i - 1 < ids[i]
    }"""
    y, z = tl.parse(text).f(np.arange(4, dtype=np.float32), np.array([2**64 - 1, 3, 2**63, 4, 0], np.uint64))
    assert y.tolist() == [9, 3, 9, 9, 0]
    assert z.tolist() == [True, True, True, True, False]


def test_what_unsigned_integers_of_64_bits_say_lies_inside_or_outside() -> None:
    text = """op f(x: f32[N], ids: u64[L]) -> (y: f32[L], z: f32[L]) {
        y[l] = x[ids[l] - u64(2) | -1]
        z[l] = sum(k in 0..2) x[u64(l) - u64(k) | skip]
    }"""
    x, ids = np.arange(3, dtype=np.float32), np.array([0, 1, 2, 4, 5, 2**63 + 2, 2**64 - 1], np.uint64)
    y, z = tl.parse(text).f(x, ids)
    assert y.tolist() == [-1, -1, 0, 2, -1, -1, -1] and z.tolist() == [0, 1, 3, 2, 0, 0, 0]


def test_integers_in_brackets_compute_in_their_own_type_where_they_meet_it() -> None:
    """A checksum by a table, and a hash whose product is cut off at 32 bits: as outside of brackets."""
    ops = tl.parse("""
    op checksum(table: u32[256], x: u8[N]) -> (y: u32) {
        c[0] = u32(4294967295)
        c[i + 1] = bitxor(table[bitand(bitxor(c[i], u32(x[i])), 255)], shr(c[i], 8))   for i in 0..N
        y = bitnot(c[N])
    }
    op hashed(table: f32[256], x: u32[N]) -> (y: f32[N]) { y[i] = table[shr(x[i] * u32(2654435761), 24)] }
    """)
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    data = np.arange(1000).astype(np.uint8)
    assert ops.checksum(table, data) == zlib.crc32(data.tobytes())
    x, halves = np.arange(0, 2**32, 2**22 + 12345, dtype=np.uint32), np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(ops.hashed(halves, x), halves[x * np.uint32(2654435761) >> 24])


@pytest.mark.parametrize(("end", "legal"), [(1, True), (2, False)])
def test_what_a_declared_range_rules_out_orders_nothing(end: int, legal: bool) -> None:
    picked = tl.parse(f"""op picked(table: f32[2, 5], ids: i64[5] in 0..{end}) -> (y: f32[5, 5], s: f32[5]) {{
        y[k, m] = table[ids[k], m]
        s[m] = sum(k in 0..5, ids[k] > 0) y[k, m]
    }}""").picked
    table, ids = np.arange(10, dtype=np.float32).reshape(2, 5), np.zeros(5, np.int64)
    if legal:
        assert (picked.schedule("together y, s -> ks")(table, ids)[1] == 0).all()
    else:
        with pytest.raises(CompileError, match="this order runs a read before the write it depends on"):
            picked.schedule("together y, s -> ks")(table, ids)


GATHER = """op f(x: f32[N, 5], ids: u8[N]) -> (y: f32[N + N]) {
    y[i]     = 1   for i in 0..N
    y[i + N] = if i <= 3 then (if x[i, i | 1] <= 1 then 1 else x[N - 1, ids[i]]) else 1   for i in 0..N
}
"""


@pytest.mark.parametrize("n", [0, 1, 3, 5, 9, 70])
def test_a_read_behind_two_conditions_is_asked_for_under_the_same_two(n: int) -> None:
    """The first decides about padding in the second where that is read, and so it does where it is asked for."""
    f = tl.parse(GATHER, sizes="symbolic", threads=1).f
    x = (np.arange(5 * n, dtype=np.float32) % 3).reshape(n, 5)
    ids = (np.arange(n) % 5).astype(np.uint8)
    want = np.ones(2 * n, np.float32)
    for i in range(min(n, 4)):
        want[n + i] = 1 if x[i, i] <= 1 else x[n - 1, ids[i]]
    np.testing.assert_array_equal(f(x, ids), want)
    if n > 2:
        with pytest.raises(RunError):
            f(np.full((n, 5), 2, np.float32), np.full(n, 5, np.uint8))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_floats_of_a_declared_range_lie_in_it_and_a_nan_does_not(dtype: str) -> None:
    kept = tl.parse(f"op kept(x: {dtype}[N] in 0..2) -> (y: {dtype}[N]) {{ y[i] = x[i] }}").kept
    x = np.array([0.0, 0.5, 1.5, -0.0], kept(np.zeros(1, DTYPES[dtype].numpy)).dtype)
    assert (kept(x) == x).all()
    for value in (-0.5, 2.0, np.nan, np.inf):
        with pytest.raises(RunError, match=r"`x\[2\]` is .*, outside its declared range 0\.\.2"):
            kept(np.where(np.arange(4) == 2, np.asarray(value, x.dtype), x))
