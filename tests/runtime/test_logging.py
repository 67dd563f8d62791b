"""What Python's `logging` is told under `tensorlang`: what was compiled and why, what was found. Nothing is shown unless asked for."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorlang as tl

TEXT = "op scale(x: f32[N], w: f32[N]) -> (y: f32[N]) { y[i] = x[i] * w[i] }"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.DEBUG, "tensorlang")
    return caplog


def said(log: Any, name: str, level: int = logging.INFO) -> list[str]:
    found = [r.getMessage() for r in log.records if r.name == name and r.levelno == level]
    log.clear()
    return found


def test_each_new_shape_of_an_operator_is_logged_once_with_its_time(log: Any) -> None:
    x = np.ones(4, np.float32)
    for how in ("compiled", "found in the cache"):
        ops = tl.parse(TEXT, threads=1)
        ops.scale(x, x)
        ops.scale(x, x)
        [line] = said(log, "tensorlang.compile")
        assert re.fullmatch(rf"`scale` for x: f32\[4\], w: f32\[4\]: {how} in [\d.]+ ms, .*, for cpu, 1 thread", line)


def test_hits_and_misses_of_the_cache_are_logged_for_those_who_look_closely(log: Any) -> None:
    x = np.ones(4, np.float32)
    tl.parse(TEXT, threads=1).scale(x, x)
    misses = [line for line in said(log, "tensorlang.cache", logging.DEBUG) if line.startswith("miss")]
    tl.parse(TEXT, threads=1).scale(x, x)
    hits = [line for line in said(log, "tensorlang.cache", logging.DEBUG) if line.startswith("hit")]
    assert {line.split()[1] for line in hits} & {line.split()[1] for line in misses}


def test_a_kernel_for_any_sizes_names_the_sizes_that_it_leaves_open(log: Any) -> None:
    tl.parse(TEXT, threads=1, sizes="symbolic").scale(np.ones(4, np.float32), np.ones(4, np.float32))
    assert any(line.startswith("`scale` for x: f32[N], w: f32[N]: compiled in ") for line in said(log, "tensorlang.compile"))


def test_models_are_logged_with_the_shapes_that_they_are_compiled_for(log: Any, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    for how in ("compiled", "found in the cache"):
        model = tl.compile(path, threads=1)
        for n in (3, 3, 5):
            model(np.ones(n, np.float32))
        lines = [line for line in said(log, "tensorlang.compile") if line.startswith("model")]
        assert len(lines) == 2
        for n, line in zip((3, "n"), lines, strict=True):
            assert re.fullmatch(rf"model `net` for x: f32\[{n}\]: {how} in [\d.]+ ms, 1 kernel, for cpu, 1 thread", line)


def test_nothing_is_shown_unless_a_program_asks_for_it(tmp_path: Path) -> None:
    code = (
        "import sys, logging, numpy as np, tensorlang as tl\n"
        "if len(sys.argv) > 1: logging.basicConfig(level='DEBUG')\n"
        f"tl.parse({TEXT!r}).scale(np.ones(2, np.float32), np.ones(2, np.float32))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = [subprocess.run([sys.executable, "-c", code, *o], env=environment, capture_output=True, text=True) for o in ((), ("-v",))]
    assert (done[0].returncode, done[0].stdout, done[0].stderr) == (0, "", "")
    assert "INFO:tensorlang.compile:`scale`" in done[1].stderr and "DEBUG:tensorlang.threads:" in done[1].stderr
