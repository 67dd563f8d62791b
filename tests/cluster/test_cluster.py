"""Searches for schedules and models over data sets on a Ray cluster of two nodes, processes of which are killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.cluster.batches import _Mapped, _packed, _unpacked

TOTAL = "op total(x: f32[B, N]) -> (y: f32[B]) { y[i] = sum(j) x[i, j] }"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `two_nodes.py` says of a run."""
    folder = tmp_path_factory.mktemp("cluster")
    caches = {"TENSORLANG_CACHE": str(folder / "objects"), "MARK": str(folder / "mark"), "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    here = Path(__file__).parent
    paths = os.pathsep.join((str(here), *filter(None, sys.path)))
    command = [sys.executable, str(here / "two_nodes.py"), str(folder / "saved")]
    environment = {**os.environ, **caches, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_a_search_goes_on_when_one_of_its_processes_is_killed(cluster: dict[str, Any]) -> None:
    assert cluster["nodes"] == 2 and cluster["died"]
    assert cluster["outcomes"]["measured"] > 1 and cluster["outcomes"]["wrong"] == cluster["outcomes"]["ended"] == 0


def test_a_data_set_has_all_its_rows_when_a_process_is_killed(cluster: dict[str, Any]) -> None:
    assert cluster["rows"] == [[k, 9.0 * k + 3.0] for k in range(40)]


def test_a_model_is_unpacked_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tl.parse(TOTAL).total.save(tmp_path / "saved", {"x": np.ones((2, 3), np.float32)}, symbolic=True, max={"B": 8, "N": 3})
    files = _packed(tmp_path / "saved")
    first = _unpacked(files)
    written = (first / "manifest.json").stat().st_mtime_ns
    assert _unpacked(files) == first and (first / "manifest.json").stat().st_mtime_ns == written
    assert tl.load_model(first)(np.ones((4, 3), np.float32)).tolist() == [3, 3, 3, 3]


def test_what_is_behind_the_end_of_a_fixed_batch_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = _Mapped.__new__(_Mapped)
    mapped._inputs, mapped._rows = ("x",), 4
    mapped._model = tl.parse(TOTAL)  # type: ignore[assignment]
    asked: list[int] = []

    def run(feeds: dict[str, Any]) -> dict[str, Any]:
        asked.append(len(feeds["x"]))
        return {"y": feeds["x"].sum(axis=1)}

    monkeypatch.setattr(mapped._model, "run", run, raising=False)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = mapped({"x": x, "k": np.arange(3)})
    assert asked == [4] and found["y"].tolist() == [1, 5, 9] and found["k"].tolist() == [0, 1, 2]


def test_what_cannot_be_mapped_is_refused_before_a_process_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tensorlang.cluster.batches.connected", lambda address: None)
    tl.parse(TOTAL).total.save(tmp_path / "saved", {"x": np.ones((2, 3), np.float32)}, symbolic=True, max={"B": 8, "N": 3})
    model = tl.load_model(tmp_path / "saved")
    with pytest.raises(tl.CompileError, match=r"C0147.*is no data set"):
        tl.map_batches(model, [1, 2])
    with pytest.raises(tl.CompileError, match=r"C0147.*`batch_size`"):
        tl.map_batches(model, None, batch_size=0)
    pooled = tl.parse("op pooled(x: f32[B]) -> (y: f32[B]) { y[b] = x[b] - max(c) x[c] }").pooled
    pooled.save(tmp_path / "pooled", {"x": np.ones(3, np.float32)}, symbolic=True, max={"B": 8})
    with pytest.raises(tl.SavedError, match="R0416"):
        tl.map_batches(tl.load_model(tmp_path / "pooled"), None)
    tl.parse("op one(x: f32[N]) -> (y: f32) { y = sum(j) x[j] }").one.save(tmp_path / "one", {"x": np.ones(3, np.float32)})
    with pytest.raises(tl.CompileError, match=r"C0147.*do not begin with one size"):
        tl.map_batches(tl.load_model(tmp_path / "one"), None)


def test_clusters_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, x = tl.parse(TOTAL, threads=1).total, np.ones((2, 3), np.float32)
    with pytest.raises(tl.CompileError, match="C0146"):
        tl.tune(operator, x, cluster="")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(tl.CompileError, match="C0146"):
        tl.tune(operator, x, cluster="auto")
