"""`tensorlang tune`: what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import onnx.parser
import pytest
from commands import run
from pretended_workers import answers

TEXT = "op f(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = min(k) (a[i, k] + b[k, j]) }\n"
NETWORK = """<ir_version: 9, opset_import: ["": 17]>
net (float[3, 4] x, float[4, 24] w) => (float[3, 24] y) { m = MatMul(x, w) y = Softmax(m) }"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "objects"))


def test_the_command_prints_the_schedule_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "f.tl").write_text(TEXT)
    arguments = [str(file), "a=f32[8,5]", "b=f32[5,32]", "--threads", "1", "--seconds", "0.3"]
    answers(monkeypatch, lambda text, n: 1.25)
    code, out, _ = run(capsys, "tune", *arguments, "-o", str(tmp_path / "s.tl"))
    written = (tmp_path / "s.tl").read_text()
    assert code == 0 and "1.25x as fast" in out and written.strip() in out and written.startswith("schedule f for cpu {")
    code, out, _ = run(capsys, "tune", *arguments, "--json")
    assert code == 0 and json.loads(out)["ratio"] == 1.25 and json.loads(out)["known"] > 0


def test_the_command_writes_schedules_of_a_model_that_others_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, book = tmp_path / "net.onnx", str(tmp_path / "book")
    onnx.save(onnx.parser.parse_model(NETWORK), file)
    answers(monkeypatch, lambda text, n: 1.25)
    code, out, _ = run(capsys, "tune", str(file), "x=f32[3,4]", "w=f32[4,24]", "--threads", "1", "--seconds", "0.3", "-o", book)
    assert code == 0 and "as fast as under its own schedules" in out
    code, out, _ = run(capsys, "explain", str(file), "x=f32[3,4]", "w=f32[4,24]", "--threads", "1", "--schedules", book)
    assert code == 0 and "tuned" in out


def test_where_nothing_can_be_written_is_told_before_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "f.tl").write_text(TEXT)
    for place in (tmp_path / "none" / "s.tl", tmp_path):
        code, out, err = run(capsys, "tune", str(file), "a=f32[8,5]", "b=f32[5,32]", "-o", str(place))
        assert code == 1 and "C0203" in err and not out


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    assert "O00" in run(capsys, "tune", str(tmp_path / "net.onnx"))[2]
