"""Compiling many kernels: from the store, here, and in other processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "graph"))

from small_graphs import binary, unary

from codegen.llvm.target import host
from codegen.store import Cache
from tensorlang.backends.cpu import kernels as tools
from tensorlang.backends.cpu.driver import stored_kernel
from tensorlang.runtime.jobs import Job
from tensorlang.worker import started

JOBS = [Job(program, {}, frozenset()) for program in (unary("relu", 5), unary("exp", 6), binary("+", 7), binary("*", 8))]


def test_another_process_fills_the_store(tmp_path: Path) -> None:
    store = Cache(tmp_path)
    process = started([tools.KernelTask(job, host(), 1) for job in JOBS], store)
    assert process is not None
    assert process.stdin is None, "nobody waits until the process reads its order"
    assert process.wait(60) == 0
    for job in JOBS:
        assert stored_kernel(job.program, host(), store, layouts={}, constants=frozenset(), threads=1) is not None


@pytest.mark.parametrize("worth", [1, 100])
def test_kernels_come_back_in_order_and_are_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: int) -> None:
    monkeypatch.setattr("tensorlang.worker.WORTH_A_PROCESS", worth)
    told: list[tuple[int, int]] = []
    store = Cache(tmp_path)
    first = tools.compiled(JOBS, host(), 1, store, lambda what, done, total: told.append((done, total)))
    assert [a.params[-1] for a in first] == ["y"] * 4
    assert [len(a.params) for a in first] == [2, 2, 3, 3]
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    again = tools.compiled(JOBS, host(), 1, store, lambda what, done, total: None)
    assert [a.symbol for a in again] == [a.symbol for a in first]
    assert all(a.cached for a in again)
