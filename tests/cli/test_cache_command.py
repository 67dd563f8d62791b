"""`tensorlang cache`: where code is kept, how much of it, and having less of it."""

from __future__ import annotations

import json
import os
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from commands import run

from codegen.store import Cache


@pytest.fixture
def tl(capsys: pytest.CaptureFixture[str]) -> Any:
    return partial(run, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TENSORLANG_CACHE_SIZE", "1 MiB")
    cache = Cache()
    for number in range(3):
        key = sha256(str(number).encode()).hexdigest()
        cache.put(key, bytes(4000))
        os.utime(cache._path(key), (number, number))
    model = cache.directory / "models" / sha256(b"m").hexdigest()
    model.mkdir(parents=True)
    (model / "parts").write_bytes(bytes(5000))
    return cache.directory


def test_it_says_where_code_is_kept_and_how_much_of_each_kind(tl: Any, folder: Path) -> None:
    code, out, err = tl("cache")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        str(folder),
        "objects     3 entries, 12.0 KiB",
        "models      1 entry, 8.00 KiB",
        "in all      4 entries, 20.0 KiB of 1.00 MiB",
    ]


def test_it_says_the_same_to_programs(tl: Any, folder: Path) -> None:
    _, out, _ = tl("cache", "--json")
    assert json.loads(out) == {
        "path": str(folder),
        "limit_bytes": 1 << 20,
        "kinds": {
            "objects": {"entries": 3, "size_bytes": 12288},
            "models": {"entries": 1, "size_bytes": 8192},
            "unfinished": {"entries": 0, "size_bytes": 0},
        },
        "removed": None,
    }


def test_pruning_removes_what_was_not_used_for_longest_and_clearing_all(tl: Any, folder: Path) -> None:
    assert tl("cache", "--prune", "16KiB")[1].splitlines()[0] == "removed 1 entry, 4.00 KiB"
    (folder / "mine.txt").write_text("precious")
    found = json.loads(tl("cache", "--clear", "--json")[1])
    assert found["removed"] == {"entries": 3, "size_bytes": 16384}
    assert all(kind["entries"] == 0 for kind in found["kinds"].values())
    assert (folder / "mine.txt").read_text() == "precious"


def test_a_cache_that_is_not_there_is_empty(tl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "none"))
    for options in ((), ("--clear",), ("--prune", "1k")):
        code, out, _ = tl("cache", *options)
        assert (code, out.splitlines()[-1]) == (0, "in all      0 entries, 0 bytes of 5.00 GiB")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("options", [("--prune", "some"), ("--prune", "-1"), ("--prune", "1k", "--clear")])
def test_what_makes_no_sense_is_refused_with_a_code(tl: Any, folder: Path, options: tuple[str, ...]) -> None:
    code, out, err = tl("cache", *options)
    assert (code, out) == (1, "") and err.startswith("error[C0211]")
    assert len(list(folder.rglob("*.o"))) == 3
