"""`tensorlang build` writes what `load_model` reads, and says what keeps it from doing so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from saved_libraries import IMAGE, OPERATORS, X, network

import tensorlang as tl
from tensorlang import cli


def run(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str, str]:
    code = cli._guarded([str(a) for a in argv])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(network("batch"), "net.onnx")
    Path("ops.tl").write_text(OPERATORS)
    return tmp_path


def test_an_operator_and_a_model_are_built(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "build", "ops.tl", "scaled", "x=f32[5]", "by=3.0", "--symbolic", "--target", "x86-64", "-o", "a", "--json")
    listed = json.loads(out)
    assert code == 0 and set(listed["files"]) == {"libscaled.a", "libscaled.so", "manifest.json", "scaled-config.cmake", "scaled.h"}
    np.testing.assert_array_equal(tl.load_model("a")(X), 3 * X)
    code, out, _ = run(
        capsys, "build", "net.onnx", "image=f32[2,3,8,8]", "--target", "x86-64", "--name", "n", "--inside", "-t", "2", "-o", "b"
    )
    assert code == 0 and "b/libn.a" in out and "weights" not in out
    assert tl.load_model("b")(IMAGE).shape == (2, 4)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("net.onnx", "C0132"),
        ("net.onnx --max batch", "C0211"),
        ("net.onnx --max batch=x", "C0211"),
        ("net.onnx --max width=3", "C0123"),
        ("net.onnx --max batch=2 --symbolic", "C0133"),
        ("net.onnx image=f32[2,3,8,8] --target z80", "C0101"),
        ("net.onnx image=f32[2,3,8,8] --target aarch64 --target x86-64", "C0133"),
        ("ops.tl scaled x=f32[5] --target x86-64-amx", "C0131"),
        ("ops.tl scaled x=f32[5] --inside", "C0133"),
        ("ops.tl stretched x=f32[2] by=3 --symbolic", "C0131"),
        ("ops.tl scaled x=f32[5] --name 7", "C0133"),
        ("ops.tl scaled", "R0313"),
    ],
)
def test_what_cannot_be_built_is_said(file: Path, capsys: pytest.CaptureFixture[str], line: str, code: str) -> None:
    found, _, err = run(capsys, "build", *line.split(), "-o", "made")
    assert found == 1 and f"error[{code}]" in err and not Path("made").exists()
