"""The command line for a GPU, on machines that need not have one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from commands import run, saved
from onnx import helper

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from fake_cuda import FakeCuda

from codegen.cuda.device import Device, devices
from codegen.cuda.errors import Unavailable
from stdlib.onnx import Importer
from tensorlang import api

SCALE = "op scale(x: f32[N]) -> (y: f32[N]) { y[i] = 3.0 * x[i] }\n"
SCHEDULE = "schedule scale for cuda {\n    split i by 64 -> io, ii\n    bind io to block.x\n    bind ii to thread.x\n}\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a driver, on which the package is installed."""
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "objects"))
    monkeypatch.setattr(api, "installed_importers", lambda: (Importer(),))
    gone = Mock(side_effect=Unavailable("there is no CUDA driver", "install one"))
    monkeypatch.setattr("codegen.cuda.device.Device", gone)
    monkeypatch.setattr("codegen.cuda.device.devices", gone)


@pytest.fixture
def operators(tmp_path: Path) -> Path:
    path = tmp_path / "ops.tl"
    path.write_text(SCALE + SCHEDULE)
    return path


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return saved(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])])


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("schedule", "bind ii to thread.x"),
        ("loops", "thread.x 64"),
        ("cuda", " scale_0(TL_IN(tl_f32) x, TL_OUT(tl_f32) y) {"),
        ("launches", "scale_0: 3 blocks of 64 threads, 0 bytes shared, "),
        ("sass", "STG.E"),
    ],
)
def test_every_form_of_an_operator_is_shown(capsys: Any, operators: Path, stage: str, says: str) -> None:
    code, out, err = run(capsys, "show", operators, "x=f32[150]", "--stage", stage, "--target", "cuda:sm_90a")
    assert (code, err) == (0, "")
    assert says in out


@pytest.mark.parametrize(
    ("stage", "says"), [(None, "registers"), ("launches", "registers"), ("graph", "kernel"), ("cuda", "TL_KERNEL"), ("sass", "LDG.E")]
)
def test_every_form_of_a_model_is_shown(capsys: Any, net: Path, stage: str | None, says: str) -> None:
    code, out, err = run(capsys, "show", net, *(["--stage", stage] if stage else []), "--target", "cuda:sm_80")
    assert (code, err) == (0, "")
    assert says in out


def test_models_and_operators_are_explained(capsys: Any, net: Path, operators: Path) -> None:
    for arguments, says in (([net], "model `net` for cuda:sm_80: 1 kernels"), ([operators, "x=f32[9]"], "not measured: there is no CUDA")):
        code, out, err = run(capsys, "explain", *arguments, "--target", "cuda:sm_80")
        assert (code, err) == (0, "")
        assert says in out
    assert out.startswith("limits     bound by memory: at best")


@pytest.mark.parametrize("command", [("run",), ("bench", "--peers", "none"), ("explain", "--measure")], ids=lambda c: c[0])
def test_without_a_driver_running_is_one_diagnostic(capsys: Any, net: Path, command: tuple[str, ...]) -> None:
    verb, *options = command
    code, out, err = run(capsys, verb, net, *(["x=f32[2,4]"] if verb != "explain" else []), *options, "--target", "cuda")
    assert (code, out) == (1, "")
    assert err.startswith("error[R0321]: there is no CUDA driver\n") and err.count("error[") == 1


def test_an_unknown_architecture_is_one_diagnostic(capsys: Any, net: Path, operators: Path) -> None:
    for arguments in (["show", net], ["explain", net], ["run", operators, "x=f32[3]"], ["bench", operators, "x=f32[3]"]):
        code, out, err = run(capsys, *arguments, "--target", "cuda:sm_1")
        assert (code, out) == (1, "")
        assert err.startswith("error[C0101]: unknown target `cuda:sm_1`") and err.count("error[") == 1


def test_code_for_any_size_is_shown_with_grids_that_follow_from_sizes(capsys: Any, operators: Path) -> None:
    code, out, _ = run(capsys, "show", operators, "--target", "cuda", "--stage", "launches")
    assert code == 0 and "(N + " in out


def test_a_missing_compiler_is_one_diagnostic(capsys: Any, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "nothing compiled before"))
    gone = Mock(side_effect=Unavailable("NVRTC cannot be loaded", "install `tensorlang[cuda]`"))
    with patch("codegen.cuda.compile.all_compiled", gone):
        code, out, _ = run(capsys, "run", net, "x=f32[2,4]", "--target", "cuda", "--json")
    assert code == 1
    assert [d["code"] for d in json.loads(out)["diagnostics"]] == ["C0112"]


def test_a_missing_disassembler_is_one_diagnostic(capsys: Any, net: Path) -> None:
    with patch("codegen.cuda.sass.assembly", Mock(side_effect=Unavailable("there is no `nvdisasm`", "install it"))):
        code, _, err = run(capsys, "show", net, "--stage", "sass", "--target", "cuda")
    assert code == 1
    assert err.startswith("error[C0112]: there is no `nvdisasm`")


def test_stages_of_the_other_target_are_refused(capsys: Any, net: Path, operators: Path) -> None:
    for arguments in ([operators, "x=f32[9]", "--stage", "asm", "--target", "cuda"], [operators, "x=f32[9]", "--stage", "cuda"]):
        assert "C0212" in run(capsys, "show", *arguments)[2]
    assert "C0212" in run(capsys, "show", net, "--stage", "llvm", "--target", "cuda")[2]


def test_what_is_measured_on_a_device_is_timed_there(capsys: Any, net: Path, operators: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    fake.install(monkeypatch)
    fake.kernels = {name: lambda grid, *addresses: None for name in ("tl_0_0", "scale_0", "matmul_0")}
    monkeypatch.setattr("codegen.cuda.device.Device", Device)
    monkeypatch.setattr("codegen.cuda.device.devices", devices)
    for arguments in ([net], [operators, "x=f32[150]"], ["matmul", "a=f32[8,4]", "b=f32[4,8]", "--peers", "none"]):
        code, out, err = run(capsys, "bench", *arguments, "--seconds", "0.01", "--target", "cuda:sm_90a", "--json")
        assert (code, err) == (0, "")
        (timing,) = json.loads(out)["timings"]
        assert timing["name"] == "tensorlang" and timing["median_seconds"] > 0 and timing["rounds"] >= 3
    assert fake.calls.count("begin graph") == 3 and fake.calls.count("launch graph") > 9


def test_a_precision_is_that_of_the_model(capsys: Any, net: Path) -> None:
    code, _, _ = run(capsys, "show", net, "--precision", "f16", "--stage", "graph", "--target", "cuda:sm_80")
    assert code == 0
    assert "C0103" in run(capsys, "show", net, "--precision", "f16", "--stage", "graph")[2]
