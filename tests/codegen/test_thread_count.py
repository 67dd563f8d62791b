"""How many threads are used by default: what the environment asks for, the processors there are, the quota of the control group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codegen.llvm.pool import available_threads
from codegen.llvm.pool_ir import MAX_THREADS
from codegen.llvm.thread_count import THREADS, ThreadsError, cpu_limit, default_threads

SECOND = "31 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
FIRST = "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct"


@pytest.fixture(autouse=True)
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)


def system(root: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def second(root: Path, path: str, files: dict[str, str]) -> Path:
    return system(root, f"0::{path}", SECOND, {f"sys/fs/cgroup/{name}/cpu.max": text for name, text in files.items()})


@pytest.mark.parametrize(
    ("limit", "expected", "count"),
    [
        ("max 100000", None, 16),
        ("200000 100000", 2.0, 2),
        ("150000 100000", 1.5, 2),
        ("50000 100000", 0.5, 1),
        ("1000 100000", 0.01, 1),
        ("6400000 100000", 64.0, 16),
        ("0 100000", None, 16),
        ("100000 0", None, 16),
        ("", None, 16),
        ("many 100000", None, 16),
        ("-1 100000", None, 16),
    ],
)
def test_a_quota_is_rounded_up_to_whole_threads(tmp_path: Path, limit: str, expected: float | None, count: int) -> None:
    root = second(tmp_path, "/", {".": limit})
    assert cpu_limit(root) == expected
    assert default_threads(root).count == count


def test_the_narrowest_of_the_groups_around_a_process_counts(tmp_path: Path) -> None:
    root = second(tmp_path, "/a/b/c", {".": "max 100000", "a": "300000 100000", "a/b": "500000 100000", "a/b/c": "max 100000"})
    assert cpu_limit(root) == 3.0
    assert default_threads(root).why == "the control group grants the time of 3 processors"


def test_groups_of_the_first_version_have_two_files(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/docker/x/"
    files = {f"{folder}cpu.cfs_quota_us": "250000", f"{folder}cpu.cfs_period_us": "100000"}
    mounts = f"{SECOND}\n{FIRST}\n34 32 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    root = system(tmp_path, "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/docker/x", mounts, files)
    assert cpu_limit(root) == 2.5 and default_threads(root).count == 3
    (root / folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_limit(root) is None


def test_inside_a_container_the_mounted_group_is_the_root_of_what_is_seen(tmp_path: Path) -> None:
    mounted = SECOND.replace(" / /sys", " /docker/x /sys")
    files = {"sys/fs/cgroup/cpu.max": "100000 100000", "sys/fs/cgroup/inner/cpu.max": "50000 100000"}
    assert cpu_limit(system(tmp_path / "same", "0::/docker/x", mounted, files)) == 1.0
    assert cpu_limit(system(tmp_path / "below", "0::/docker/x/inner", mounted, files)) == 0.5
    assert cpu_limit(system(tmp_path / "elsewhere", "0::/other", mounted, files)) == 1.0
    assert cpu_limit(system(tmp_path / "above", "0::/../other", SECOND, files)) == 1.0


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert cpu_limit(tmp_path) is None
    assert default_threads(tmp_path).why == "16 of 64 processors may be used"
    assert cpu_limit(system(tmp_path, "nonsense\n0::/", "also nonsense\n1 2 3 - cgroup2 x", {})) is None


@pytest.mark.parametrize(
    ("asked", "count"), [("1", 1), (" 3 ", 3), ("16", 16), ("17", 16), ("007", 7), ("9" * 30, 16), ("", 16), ("  ", 16)]
)
def test_the_environment_may_ask_for_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, count: int) -> None:
    monkeypatch.setenv(THREADS, asked)
    assert default_threads(tmp_path).count == count


def test_what_the_environment_asks_for_goes_before_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS, "40")
    found = default_threads(second(tmp_path, "/", {".": "200000 100000"}))
    assert (found.count, found.why) == (16, "TENSORLANG_THREADS asks for 40, and 16 can run at once")


@pytest.mark.parametrize("asked", ["0", "-1", "1.5", "two", "0x10", "1 2", "٣", "00", "+4", "1_0"])
def test_what_is_no_number_of_threads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv(THREADS, asked)
    with pytest.raises(ThreadsError, match="TENSORLANG_THREADS"):
        default_threads(tmp_path)


def test_no_more_threads_are_used_than_the_pool_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MAX_THREADS + 7)))
    assert default_threads(tmp_path).count == MAX_THREADS == available_threads()


def test_a_system_that_knows_no_affinity_has_all_its_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert default_threads(tmp_path).count == 64
