"""The benchmark for a GPU: without one it makes every kernel and says what is missing; the measuring itself is tried on a stand-in."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

import compiled
import gpu
import gpu_cases
import ladder
import sanitize
from fake_cuda import FakeCuda

from codegen.cuda.device import Device
from codegen.cuda.errors import Unavailable
from codegen.dtypes import from_numpy
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.syntax.parse import load, parse

NAMES = ["softmax", "matmul bf16 130", "conv f32 16"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))


@pytest.mark.parametrize("main", [gpu.main, sanitize.main])
def test_kernels_are_made_without_a_device(main, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--compile-only", "--target", "cuda:sm_90a", *(["--families"] if main is gpu.main else []), *NAMES]) == 0
    out = capsys.readouterr().out
    assert "registers" in out and all(name in out for name in NAMES)


@pytest.mark.parametrize("main", [gpu.main, sanitize.main])
def test_what_is_missing_is_said_in_a_line(main, capsys: pytest.CaptureFixture[str]) -> None:
    gone = Mock(side_effect=Unavailable("there is no CUDA driver", "install one"))
    with patch("gpu.devices", gone), patch("sanitize.devices", gone):
        assert main(["softmax"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no CUDA driver; install one")


def test_without_the_sanitizer_nothing_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    with patch("sanitize.devices"), patch("sanitize.shutil.which", return_value=None):
        assert sanitize.main(["softmax"]) == 1
    assert "there is no `compute-sanitizer`" in capsys.readouterr().err


def test_what_a_tool_finds_fails(capsys: pytest.CaptureFixture[str]) -> None:
    found = Mock(side_effect=lambda command, **kw: Mock(returncode=9 * ("racecheck" in command), stdout="========= a hazard\n", stderr=""))
    with patch("sanitize.devices"), patch("sanitize.shutil.which", return_value="cs"), patch("sanitize.subprocess.run", found):
        assert sanitize.main(["softmax", "--tools", "racecheck", "memcheck"]) == 1
        assert sanitize.main(["softmax", "--tools", "memcheck"]) == 0
    out, err = capsys.readouterr()
    assert "1 clean, 1 not\nracecheck: softmax f32 37x300" in out and "a hazard" in err


def test_rows_are_measured_and_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCuda()
    fake.install(monkeypatch)
    fake.kernels = defaultdict(lambda: lambda grid, *addresses: None)
    monkeypatch.setattr("codegen.cuda.device.Device", Device)
    arguments = ["--families", "--no-torch", "--no-models", "--seconds", "0.01", "--target", "cuda:sm_90a"]
    assert gpu.main([*arguments, "softmax", "add_relu"]) == 0
    out = capsys.readouterr().out
    assert "softmax f32 37x300" in out and "GB/s" in out and fake.calls.count("launch graph") > 6


def test_where_there_is_a_reference_ours_is_told_from_it_and_others_that_are_off_are_named() -> None:
    near, off = [np.array([1.0, 2.0])], [np.array([1.0, 4.0])]
    runs = {gpu.OURS: gpu.DeviceRun(lambda repeats: 1e-6, lambda: near), "torch": gpu.DeviceRun(lambda repeats: 1e-6, lambda: off)}
    row = gpu._measured("attention", 1.0, 0.0, runs, 0.001, lambda: near)
    assert row.differences == {gpu.OURS: 0.0, "torch": 1.0} and gpu.line(row)[-1] == "0"
    found = ladder._row(row, 0.05, dry=False)
    assert (found["status"], found["detail"]) == ("ok", "torch differs by 1")
    assert ladder._row(gpu._measured("attention", 1.0, 0.0, runs, 0.001), 0.05, dry=False)["status"] == "wrong"


def test_arguments_are_on_the_device_before_the_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    fake.install(monkeypatch)
    fake.kernels = defaultdict(lambda: lambda grid, *addresses: None)
    monkeypatch.setattr("codegen.cuda.device.Device", Device)
    (attention, *_) = gpu_cases.attentions()
    monkeypatch.setitem(gpu.ATTENTIONS, "attention small", replace(attention, length=64, heads=2))
    arguments = gpu.arguments_of(["--target", "cuda:sm_90a", "--no-torch", "--seconds", "0.01"])
    (case,) = (c for c in gpu_cases.families() if c.name == "softmax f32 37x300")
    for measure in (gpu.ready_operator(case, arguments), gpu.ready_model("attention small", arguments)):
        fake.calls.clear()
        measure()
        begun = fake.calls.index("event")
        assert {"event", "launch graph"} == {*fake.calls[begun:]} - {"device 0"}


def test_every_case_is_an_operator_of_the_file_for_its_arguments() -> None:
    module = load_module(parse(load(Path(gpu.__file__).parent / "gpu.tl")))
    for case in (*gpu_cases.cases(), *gpu_cases.families()):
        types = [ArgType(from_numpy(a.dtype), a.shape) for a in case.stand_ins()]
        assert instantiate(module, case.operator, types, dict(case.attributes), {}).results == ("y",)
        assert case.flops or case.moved or case.rows
    names = [case.name for case in gpu_cases.cases()]
    assert len(set(names)) == len(names) > 40
    large = {f"matmul bf16 {n}x{n}x{n}{how}" for n in (4096, 8192) for how in ("", " along sums", " along sums, by warps")}
    assert large <= set(names) and sum(name.startswith("conv bf16") for name in names) == len(gpu_cases.RESNET50)
    lengths = {(a.size, a.length, a.causal) for a in gpu_cases.attentions()}
    assert lengths == {(d, n, causal) for d in (64, 128) for n in (1024, 2048, 4096, 8192) for causal in (False, True)}


def test_attention_and_products_without_four_warps_are_made_without_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["attention bf16 16x1024x64", "matmul bf16 4096x4096x4096 along"]
    assert gpu.main(["--compile-only", "--target", "cuda:sm_90a", *names]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| attention", "| matmul"))]
    assert len(lines) == 4 and len({line.split("|", 2)[2] for line in lines[:2]}) == 2


def test_models_of_a_batch_take_and_return_so_many(tmp_path: Path) -> None:
    source, precision = gpu._source("resnet50@32 bf16")
    assert precision == "bf16" and source.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 32
    named = {f"{name}@{batch}" for name, batches in gpu.BATCHES.items() for batch in batches}
    assert named == {"resnet50@32", "bert_base@32"}


def test_what_models_become_is_told_by_model_target_and_precision(capsys: pytest.CaptureFixture[str]) -> None:
    (attention, *_) = gpu_cases.attentions()
    with patch("compiled.models.load", return_value=attention.model()):
        assert compiled.main(["resnet50", "--precisions", "bf16", "--targets", "cuda:sm_80", "--print"]) == 0
    out, err = capsys.readouterr()
    row = json.loads(err)
    assert (row["spilled"], row["distinct"], row["by_matrices"]) == (0, 2, {"HMMA": 1}) and "1 HMMA" in out
    older = {**row, "registers": 1}
    first = {**row, "target": "cuda:sm_75", "date": "2026-11-20"}
    assert compiled.merged([older, row], [first, row]) == [first, row]
    assert compiled.page([first, row]).startswith(
        "# Models as kernels for GPUs\n\n2026-11-20 and 2026-11-21;" if row["date"] == "2026-11-21" else "#"
    )


def test_a_case_has_the_same_arguments_each_time() -> None:
    (case, *_) = (c for c in gpu_cases.families() if c.rows)
    for one, other, stand_in in zip(case.arrays(), case.arrays(), case.stand_ins(), strict=True):
        np.testing.assert_array_equal(one, other)
        assert (one.shape, one.dtype) == (stand_in.shape, stand_in.dtype)
