"""The cache's folder stays below its limit: what was not used for longest goes, whoever writes meanwhile and whoever is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

from codegen import eviction
from codegen.eviction import Usage, entries, limit_bytes, lock_folder, parse_size, prune, usage
from codegen.store import Cache

KIB = 1024


def key(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def path_of(cache: Cache, number: int) -> Path:
    return cache.directory / key(number)[:2] / f"{key(number)}.o"


def filled(folder: Path, numbers: range, size: int = 4000) -> Cache:
    """Return a cache with entries of a page each, the first of which were used the longest ago."""
    cache = Cache(folder / "cache")
    for number in numbers:
        assert cache.put(key(number), bytes(size)) is None
        os.utime(path_of(cache, number), (number, number))
    return cache


def bundle(cache: Cache, name: str, used: int, size: int = 4000) -> Path:
    folder = cache.directory / "models" / name
    folder.mkdir(parents=True, mode=0o700)
    (folder / "parts").write_bytes(bytes(10))
    (folder / "constants").write_bytes(bytes(size))
    os.utime(folder, (used, used))
    return folder


def total(cache: Cache) -> int:
    return sum(found.size_bytes for found in usage(cache.directory).values())


def test_what_was_not_used_for_longest_is_removed_when_the_limit_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", "80KiB")
    cache = filled(tmp_path, range(1, 21))
    assert total(cache) == 80 * KIB
    assert cache.get(key(1)) is not None, "which is used by that"
    cache.put(key(21), bytes(4000))
    there = [number for number in range(1, 22) if path_of(cache, number).exists()]
    assert there == [1, *range(5, 22)], "down to nine tenths of the limit, the new entry included"
    assert total(cache) <= 0.9 * 80 * KIB


def test_models_and_objects_share_one_limit(tmp_path: Path) -> None:
    cache = filled(tmp_path, range(1, 11))
    old, new = bundle(cache, key(100), 5), bundle(cache, key(101), 1000)
    assert usage(cache.directory) == {"objects": Usage(10, 40 * KIB), "models": Usage(2, 16 * KIB), "unfinished": Usage()}
    removed = prune(cache.directory, 28 * KIB)
    assert removed == Usage(6, 28 * KIB)
    assert not old.exists() and new.exists()
    assert [n for n in range(1, 11) if cache.get(key(n)) is not None] == [6, 7, 8, 9, 10]


def test_an_entry_larger_than_the_limit_is_not_kept_and_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", "40K")
    cache = filled(tmp_path, range(5))
    assert cache.put(key(9), bytes(41 * KIB)) is None
    assert cache.get(key(9)) is None
    assert usage(cache.directory)["objects"].entries == 5


def test_a_limit_of_zero_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", "0")
    assert total(filled_without_times(tmp_path)) == 0


def filled_without_times(folder: Path) -> Cache:
    cache = Cache(folder / "cache")
    for number in range(5):
        cache.put(key(number), bytes(100))
    return cache


@pytest.mark.parametrize("content", [b"", bytes(10**6)])
def test_a_size_that_is_wrong_or_gone_is_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    cache = filled(tmp_path, range(1, 11))
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", "40KiB")
    if content:
        (cache.directory / ".size").write_bytes(content)
    else:
        (cache.directory / ".size").unlink()
    cache.put(key(50), bytes(100))
    assert total(cache) <= 40 * KIB
    assert (cache.directory / ".size").stat().st_size == total(cache) // 4096


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1000", 1000), ("5GiB", 5 << 30), ("1.5 k", 1536), (" 2 MB ", 2 << 20), ("3t", 3 << 40), ("7b", 7)],
)
def test_sizes_are_numbers_with_or_without_a_unit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_size(text) == size
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", text)
    assert limit_bytes() == size


@pytest.mark.parametrize("text", ["", "-1", "5 XB", "many", "1e9", "nan", "5GiB5", "٣"])
def test_what_is_no_size_is_refused_and_in_the_environment_warned_of(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)
    if text:
        eviction._given_limit.cache_clear()
        monkeypatch.setenv("TENSORLANG_CACHE_SIZE", text)
        with pytest.warns(UserWarning, match="TENSORLANG_CACHE_SIZE"):
            assert limit_bytes() == 5 << 30


def test_nothing_but_entries_is_counted_or_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    cache = filled(tmp_path, range(3))
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / key(0)).mkdir(parents=True)
    (elsewhere / key(0) / "parts").write_text("precious")
    precious = [elsewhere / f"{key(0)}.o", elsewhere / "notes.txt", elsewhere / key(0) / "parts"]
    strange = [cache.directory / "notes.txt", cache.directory / "ab" / "notes.o", cache.directory / "models" / "mine" / "parts"]
    for path in (*precious, *strange):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("precious")
    (cache.directory / "00").symlink_to(elsewhere)
    (cache.directory / "ab" / f"{key(7)}.o").symlink_to(precious[1])
    (cache.directory / "models" / key(8)).symlink_to(elsewhere / key(0))
    kept = bundle(cache, key(5), 5)
    (kept / "notes.txt").write_text("precious")
    linked = bundle(cache, key(6), 5)
    (linked / "parts").unlink()
    (linked / "parts").symlink_to(precious[1])
    assert [e.kind for e in entries(cache.directory)].count("objects") == 3
    prune(cache.directory, 0)
    assert [p.read_text() for p in (*precious, *strange)] == ["precious"] * 6
    assert [p.name for p in (cache.directory / "models").rglob("notes.txt")] == ["notes.txt"], "what else lies there stays"
    assert usage(cache.directory)["objects"] == Usage()
    assert not kept.exists() and not linked.exists()


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    cache = filled(tmp_path, range(2))
    left, writing = (bundle(cache, f".new-{name}", 5) for name in ("left", "writing"))
    removing = bundle(cache, f".old-{key(3)}-17", 5)
    temporary = [path_of(cache, 0).parent / name for name in (".new-old", ".new-young")]
    for path in temporary:
        path.write_bytes(bytes(10))
    os.utime(temporary[0], (5, 5))
    handle = lock_folder(writing)
    prune(cache.directory, 1 << 20)
    assert [p.exists() for p in (left, removing, writing, *temporary)] == [False, False, True, False, True]
    os.close(handle)
    prune(cache.directory, 1 << 20)
    assert not writing.exists()


def test_while_one_process_removes_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = filled(tmp_path, range(10))
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", "20K")
    with eviction._opened(cache.directory) as root, eviction._locked(root, True) as mine:
        assert mine
        assert cache.put(key(11), b"new") is None
        assert usage(cache.directory)["objects"].entries == 11
    cache.put(key(12), b"new")
    assert total(cache) <= 20 * KIB


WRITER = """
import os, random, sys
from hashlib import sha256
from pathlib import Path
from codegen.store import Cache
cache, rng = Cache(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
while True:
    number = rng.randrange(200)
    key = sha256(str(number).encode()).hexdigest()
    found = cache.get(key)
    if found is None:
        cache.put(key, bytes([number]) * rng.randrange(1, 9000))
    elif set(found) != {number}:
        print("wrong", number, flush=True)
    assert cache.problem is None, cache.problem
"""


def test_processes_that_write_at_once_and_are_killed_leave_a_cache_that_is_right_and_small_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, rng = tmp_path / "cache", random.Random(1)
    environment = os.environ | {"TENSORLANG_CACHE_SIZE": "200K", "PYTHONPATH": os.pathsep.join(sys.path)}

    def started(seed: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WRITER, str(directory), str(seed)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    running = [started(seed) for seed in range(3)]
    for seed in range(3, 9):
        time.sleep(0.4)
        victim = running.pop(rng.randrange(len(running)))
        victim.send_signal(signal.SIGKILL)
        assert victim.communicate() == (b"", b"")
        running.append(started(seed))
    for process in running:
        process.kill()
        assert process.communicate() == (b"", b"")
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", "200K")
    cache = Cache(directory)
    assert cache.put(key(0), bytes(10)) is None  # the one that was removing entries may have been killed at it
    whole = [number for number in range(200) if (found := cache.get(key(number))) is not None and set(found) == {number}]
    there = usage(directory)
    assert len(whole) == there["objects"].entries > 10
    assert there["objects"].size_bytes <= 1.2 * 200 * KIB
    assert (directory / ".size").stat().st_size * 4096 >= 0.8 * there["objects"].size_bytes
