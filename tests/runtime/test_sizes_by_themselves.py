"""Operators that are called with one shape after the other: two kernels of known sizes, then one for what has differed."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.backends.cpu import driver
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import FaultWarning, InternalError, error

Array = np.ndarray[Any, Any]

TEXT = """
op matmul(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }
op scaled[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }
op added(x: f32[broadcast D..], y: f32[broadcast D..]) -> (z: f32[D..]) { z[d..] = x[d..] + y[d..] }
op first(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i] for i in 0..k }
op picked(x: f32[N], at: i64[K]) -> (y: f32[K]) { y[k] = x[at[k]] }
op strided(x: f32[N], size step in 1..9) -> (y: f32[N // step]) { y[i] = x[i * step] }
op summed(x: f32[N]) -> (y: f32[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]   for i in 1..N
}
op joined(each x: f32[each N]) -> (y: f32[sum(N..)]) { y[before(N) + i] = x[i]   for each x, i in 0..N }
op softmax(x: f32[B, N]) -> (y: f32[B, N]) where N >= 1 {
    t[b] = max(j) x[b, j]
    e[b, j] = exp(x[b, j] - t[b])
    y[b, j] = e[b, j] / sum(k) e[b, k]
}
"""


@pytest.fixture
def ops() -> tl.Operators:
    return tl.parse(TEXT, threads=1)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The open sizes of each program that is compiled, in the order of compiling."""
    found: list[tuple[str, ...]] = []
    known = Toolchain.kernel

    def note(self: Toolchain, program: Any, *rest: Any) -> Any:
        found.append(tuple(sorted(program.sizes)))
        return known(self, program, *rest)

    monkeypatch.setattr(Toolchain, "kernel", note)
    return found


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(ops: tl.Operators, m: int, k: int, n: int) -> None:
    a, b = random(m, k), random(k, n, seed=1)
    np.testing.assert_allclose(ops.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_the_third_shape_makes_the_kernel_for_all_others(ops: tl.Operators, compiled: list[tuple[str, ...]]) -> None:
    for n in (4, 9, 33, 5, 100, 4, 9, 0, 2, 17, 33):
        x = random(n)
        np.testing.assert_array_equal(ops.scaled(x), x * 2)
    assert compiled == [(), (), ("N",)]


def test_sizes_that_do_not_change_stay_numbers_until_they_do(ops: tl.Operators, compiled: list[tuple[str, ...]]) -> None:
    for m in (8, 24, 3, 40, 0, 65):
        product(ops, m, 20, 30)
    assert compiled == [(), (), ("M",)]
    for n in (31, 17, 64):
        product(ops, 5, 20, n)
    assert compiled[3:] == [("M", "N")]
    for k in (7, 0, 33):
        product(ops, 6, k, 9)
    product(ops, 50, 20, 30)
    assert compiled[4:] == [("K", "M", "N")]


def test_a_size_of_one_is_another_kind_of_call(ops: tl.Operators, compiled: list[tuple[str, ...]]) -> None:
    for m in (8, 24, 3, 1, 1, 9):
        product(ops, m, 20, 30)
    assert compiled == [(), (), ("M",), ()]
    for k in (21, 22, 23):
        product(ops, 1, k, 30)
    assert compiled[4:] == [(), ("K",)]


def test_element_types_and_attributes_are_counted_for_themselves(ops: tl.Operators, compiled: list[tuple[str, ...]]) -> None:
    for by in (2.0, 3.0):
        for dtype in (np.float32, np.float64):
            for n in (4, 5, 6, 7):
                x = random(n).astype(dtype)
                np.testing.assert_array_equal(ops.scaled(x, by=by), x * dtype(by), strict=True)
    assert compiled == [(), (), ("N",)] * 4


def test_what_is_repeated_along_a_dimension_is_a_kernel_of_its_own(ops: tl.Operators, compiled: list[tuple[str, ...]]) -> None:
    for m, n in ((3, 4), (5, 6), (7, 8), (9, 2)):
        for x, y in ((random(m, n), random(m, n)), (random(m, 1), random(m, n)), (random(n), random(m, n)), (random(1, n), random(m, 1))):
            np.testing.assert_array_equal(ops.added(x, y), x + y)
    assert len(compiled) == 12 and sorted(compiled[8:]) == [("D.0", "D.1")] * 3 + [("size.D_0_D_1",)]


def test_sizes_that_are_given_are_sizes_like_others(ops: tl.Operators, compiled: list[tuple[str, ...]]) -> None:
    x = random(12)
    for k in (2, 5, 7, 11, 0):
        np.testing.assert_array_equal(ops.first(x, k=k), x[:k])
    assert compiled == [(), (), ("k",)]
    with pytest.raises(tl.RunError, match="R0209"):
        ops.first(x, k=12)
    with pytest.raises(tl.RunError, match="R0313"):
        ops.first(x)


def test_sizes_that_have_to_be_numbers_stay_numbers(ops: tl.Operators) -> None:
    for step in (2, 3, 4, 5, 2):
        for n in (20, 21, 33, 47):
            x = random(n)
            np.testing.assert_array_equal(ops.strided(x, step=step), x[::step][: n // step])


def test_any_number_of_tensors_is_counted_for_itself(ops: tl.Operators) -> None:
    for sizes in ((2, 3), (4, 5), (6, 7), (8, 9), (2, 3, 4), (0, 3), (1, 1), (9, 2)):
        parts = [random(n, seed=n) for n in sizes]
        np.testing.assert_array_equal(ops.joined(parts), np.concatenate(parts))


def test_what_is_wrong_is_refused_as_for_known_sizes(ops: tl.Operators) -> None:
    for n in (4, 5, 6, 7):
        with pytest.raises(tl.RunError, match=r"`a` gives K = 3, `b` gives K = 4"):
            ops.matmul(random(n, 3), random(4, 3))
        with pytest.raises(tl.RunError, match=rf"index {n} is out of bounds for axis 0 of `x`, which has {n} elements \(at k=1\)"):
            ops.picked(random(n), np.array([0, n]))
        with pytest.raises(tl.RunError, match="R0209"):
            ops.softmax(np.zeros((n, 0), np.float32))
        ops.matmul(random(n, 3), random(3, 2))


@pytest.mark.parametrize("problem", [error("S0229", "not for any sizes"), InternalError("loops", "broken")])
def test_where_open_sizes_fail_all_sizes_stay_numbers_and_the_log_says_why(
    ops: tl.Operators,
    compiled: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
) -> None:
    def refuse(*_: Any) -> None:
        raise problem

    monkeypatch.setattr(Toolchain, "with_any_sizes", refuse)
    with caplog.at_level(logging.INFO, logger="tensorlang"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for n in (4, 5, 6, 7, 8):
            np.testing.assert_array_equal(ops.scaled(random(n)), random(n) * 2)
    assert compiled == [()] * 5
    assert [w.category for w in warned] == ([] if isinstance(problem, tl.CompileError) else [FaultWarning])
    [record] = [r for r in caplog.records if r.name == "tensorlang"]
    assert "`scaled` is compiled for each combination of `N`" in record.getMessage()
    assert record.levelno == (logging.INFO if isinstance(problem, tl.CompileError) else logging.WARNING)


def test_known_sizes_are_kept_where_open_ones_have_a_plainer_schedule(
    ops: tl.Operators, compiled: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def derive(program: Any, *rest: Any, **options: Any) -> Any:
        known = derived(program, *rest, **options)
        return known.then("reverse y.i") if program.sizes and not options.get("plain") else known

    derived, key = driver.derive, driver._key
    monkeypatch.setattr(driver, "derive", derive)
    monkeypatch.setattr(driver, "_key", lambda *parts: f"{key(*parts)}-reversed")
    with caplog.at_level(logging.INFO, logger="tensorlang"):
        for n in (4, 5, 6, 7):
            x = random(n)
            np.testing.assert_allclose(ops.summed(x), np.cumsum(x), rtol=1e-5, atol=1e-6)
    assert compiled == [(), (), ("N",), (), ()]
    assert "`summed` is compiled for each combination of `N`: its schedule would be a plainer one" in caplog.text


def test_the_log_says_when_a_kernel_for_all_sizes_is_made(ops: tl.Operators, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tensorlang"):
        for n in (4, 5, 6, 7):
            ops.scaled(random(n))
    assert [r.getMessage() for r in caplog.records if "compiled for" in r.getMessage()] == ["`scaled` is compiled for any `N`"]


def test_a_schedule_that_is_written_holds_for_all_sizes_or_for_each(ops: tl.Operators) -> None:
    for text in ("split y.i by 4 -> io, ii\nvectorize ii", "vectorize y.i by 8"):
        scheduled = ops.scaled.schedule(text) if "by 8" not in text else ops.scaled.schedule("split y.i by 8 -> io, ii\nunroll ii")
        for n in (8, 16, 3, 33, 12):
            np.testing.assert_array_equal(scheduled(random(n)), random(n) * 2)


def test_threads_that_bring_new_shapes_at_once_share_the_kernels(ops: tl.Operators, compiled: list[tuple[str, ...]]) -> None:
    wrong: list[object] = []
    start = threading.Barrier(6)

    def work(seed: int) -> None:
        start.wait()
        for k in range(40):
            m, n = 2 + (seed * 7 + k) % 13, 2 + (seed + 5 * k) % 11
            x = random(m, n, seed=k)
            want = np.exp(x - x.max(axis=1, keepdims=True))
            if not np.allclose(ops.softmax(x), want / want.sum(axis=1, keepdims=True), atol=1e-5):
                wrong.append((seed, k))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong
    assert compiled[:2] == [(), ()] and all(compiled[2:]) and len(compiled) <= 4


def test_another_process_finds_what_was_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    for _ in range(2):
        ops = tl.parse(TEXT, threads=1)
        for n in (4, 5, 6, 7):
            ops.scaled(random(n))
        [[variant]] = [v for v in ops.scaled._variants.values() if v]
        cached = variant.artifact.cached
    assert cached


def test_sizes_may_be_fixed_or_open_from_the_start(compiled: list[tuple[str, ...]]) -> None:
    for sizes, expected in (("static", [()] * 4), ("symbolic", [("N",)])):
        ops = tl.parse(TEXT, threads=1, sizes=sizes)
        compiled.clear()
        for n in (4, 5, 6, 7):
            ops.scaled(random(n))
        assert compiled == expected
