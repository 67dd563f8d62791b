"""Every iteration of a parallel loop runs once, on whatever thread claims it."""

import ctypes
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from llvm_run import run_native

from codegen.llvm import pool
from codegen.llvm.context_pool_ir import context_pool_ir
from codegen.llvm.jit import compile_object, load
from codegen.llvm.pool_ir import MAX_THREADS
from codegen.llvm.process_pool_ir import process_pool_ir
from codegen.llvm.target import Target, host, named
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.serial import serial

COUNT = parse("func count(N)(x: i32[N], out y: i32[N]) { for i in 0 .. N parallel { y[i] = x[i] + 1_i32 } }")
UNEVEN = parse("""func uneven(N)(x: i32[N], out y: i32[N]) { for i in 0 .. N parallel {
    alloc s: i32[1] registers
    s[0] = x[i]
    for k in 0 .. 20 * (i // 8) { s[0] = s[0] + 1_i32 }
    y[i] = s[0] } }""")


@pytest.mark.parametrize("threads", [1, 2])
def test_every_iteration_runs_once_however_many_there_are(threads: int) -> None:
    before = pool.threads()
    pool.set_threads(threads)
    try:
        for n in [*range(20), 63, 64, 65, 127, 128, 129, 1000, 8191, 8192, 100_000]:
            x = np.zeros(n, np.int32)
            for _ in range(20):
                y = np.full(n, -1, np.int32)
                run_native(COUNT, {"N": n}, {"x": x, "y": y}, host())
                np.testing.assert_array_equal(y, 1)
    finally:
        pool.set_threads(before)


def test_a_thread_that_is_done_takes_from_the_others() -> None:
    n = 200
    for _ in range(200):
        y = np.zeros(n, np.int32)
        run_native(UNEVEN, {"N": n}, {"x": np.zeros(n, np.int32), "y": y}, host())
        np.testing.assert_array_equal(y, 20 * (np.arange(n) // 8))


def test_threads_of_the_program_may_meet_in_the_pool() -> None:
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(100):
            y = np.zeros(n, np.int32)
            run_native(COUNT, {"N": n}, {"x": np.zeros(n, np.int32), "y": y}, host())
            if not (y == 1).all():
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(n,)) for n in (2, 50, 3000)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_generations_that_a_worker_missed_do_no_harm() -> None:
    """A worker that slept through many regions finds its part claimed under another generation."""
    n = 3
    for _ in range(2000):
        y = np.zeros(n, np.int32)
        run_native(COUNT, {"N": n}, {"x": np.zeros(n, np.int32), "y": y}, host())
        assert (y == 1).all()


@pytest.mark.parametrize("name", ["x86-64", "aarch64"])
@pytest.mark.parametrize("make", [process_pool_ir, context_pool_ir])
def test_the_text_of_the_pool_has_no_marks_left(make: Callable[[Target], str], name: str) -> None:
    text = make(named(name))
    assert re.search(r"<[A-Z_]+>", text) is None
    assert f"icmp uge i64 %k, {MAX_THREADS}" in text


def test_a_pool_of_a_context_sleeps_by_what_posix_has() -> None:
    assert "@syscall" not in context_pool_ir(host()) and "@pthread_cond_wait" in context_pool_ir(host())


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, MAX_THREADS),
        ({"cpu.max": "100000 100000\n", "cpu/cpu.cfs_quota_us": "900000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, MAX_THREADS),
        ({"cpu.max": ""}, MAX_THREADS),
        ({"cpu.max": "9" * 200}, MAX_THREADS),
        ({}, MAX_THREADS),
    ],
)
def test_a_context_has_no_more_threads_than_its_control_group_grants_time_for(tmp_path: Path, files: dict[str, str], count: int) -> None:
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    text = context_pool_ir(host(), str(tmp_path)).replace("define internal i64 @quota()", "define i64 @quota()")
    library = load([compile_object(text, host())])
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("quota"))() == count


def test_a_function_for_one_thread_has_no_parallel_loops() -> None:
    text = show(
        serial(
            parse(
                "func f()(x: i32[4, 4], out y: i32[4, 4]) { for i in 0 .. 4 parallel { for j in 0 .. 4 parallel { y[i, j] = x[i, j] } } }"
            )
        )
    )
    assert "parallel" not in text and text.count("for ") == 2
