"""`tune`: schedules are tried, proven, compared, measured in another process, and kept, so that the next search goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run

import tensorlang as tl
from tensorlang.shell import tuning
from tensorlang.shell.tuning_worker import Worker, agree

TEXT = "op f(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = min(k) (a[i, k] + b[k, j]) }\n"
A = np.arange(40, dtype=np.float32).reshape(8, 5)
B = np.arange(160, dtype=np.float32).reshape(5, 32) % 7


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "objects"))


def operator() -> Any:
    return tl.parse(TEXT, threads=1).f


def answers(monkeypatch: pytest.MonkeyPatch, found: Any) -> list[str]:
    """Let `found(text, place)` be the answer about each schedule; return the schedules that are asked for."""
    asked: list[str] = []

    def answer(search: Any, text: str, factor: float = 1.0) -> float | str:
        asked.append(text)
        told: float | str = found(text, len(asked))
        return told

    monkeypatch.setattr("tensorlang.shell.tuning._Search._answer", answer)
    return asked


def test_a_worker_measures_what_is_right_and_says_what_is_refused() -> None:
    worker = Worker(operator(), {"a": A, "b": B})
    ratio = worker.answer("split y.j by 16 -> o, v\nvectorize y.v", 0.01)
    assert isinstance(ratio, float) and ratio > 0
    assert worker.answer("split y.nothing by 16", 0.01) == "refused"
    worker._expected[0][0, 0] += 1
    assert worker.answer("split y.j by 16 -> o, v", 0.01) == "wrong"


def test_results_may_differ_by_what_another_order_of_sums_makes_unless_it_is_kept() -> None:
    x = np.array([1.0, -2.0, np.nan, np.inf], np.float32)
    near, far = x * np.float32(1 + 1e-6), x * np.float32(1.01)
    assert agree([x], [x.copy()], exactly=True) and agree([near], [x], exactly=False)
    assert not agree([near], [x], exactly=True) and not agree([far], [x], exactly=False)
    assert not agree([np.nan_to_num(x)], [x], exactly=False)
    assert not agree([np.array([1, 2])], [np.array([1, 3])], exactly=False)


def test_what_is_faster_is_gone_on_from_and_what_is_wrong_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(text: str, n: int) -> float | str:
        return "wrong" if " by 16 " in text else "refused" if " by 6 " in text else 1.0 + text.count(" by 4 ") / 2

    asked = answers(monkeypatch, told)
    found = tl.tune(operator(), A, B, seconds=1.5)
    assert found.ratio > 1 and any(" by 4 " in line for line in found.schedule) and found.outcomes["wrong"] > 0
    assert found.outcomes["measured"] + found.outcomes["wrong"] + found.outcomes["refused"] == len(asked) - 1
    assert "\n".join(found.schedule) == asked[-1], "the fastest is measured once more"
    np.testing.assert_array_equal(found.faster(A, B), operator()(A, B))
    np.testing.assert_array_equal(tl.parse(TEXT + found.text, threads=1).f(A, B), operator()(A, B))


def test_the_next_search_goes_on_from_what_is_known_whatever_ended_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupting(text: str, n: int) -> float:
        if n == 4:
            raise KeyboardInterrupt
        return 1.0 + n / 10

    asked = answers(monkeypatch, interrupting)
    found = tl.tune(operator(), A, B, seconds=60)
    assert found.interrupted and found.ratio == pytest.approx(1.3) and "\n".join(found.schedule) == asked[2]
    again = answers(monkeypatch, lambda text, n: 1.0)
    more = tl.tune(operator(), A, B, seconds=0.3)
    assert more.known == 3 and not set(asked[:3]) & set(again[:-1])


def test_a_gain_that_is_not_there_when_measured_again_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, lambda text, n: 0.9)
    monkeypatch.setattr("tensorlang.shell.tuning._Search._fastest", lambda search: (("split y.j by 16 -> o, v",), 1.5))
    found = tl.tune(operator(), A, B, seconds=0.2)
    own = operator().compiled(operator().call(A, B)).artifact.schedule
    assert found.ratio == 1.0 and all(line in own for line in found.schedule)


def test_a_process_that_dies_is_replaced_and_its_schedule_set_aside() -> None:
    search = tuning._Search(operator(), {"a": A, "b": B}, 0, lambda *told: None)
    assert isinstance(search._answer("split y.j by 16 -> o, v"), float)
    assert search._worker is not None
    search._worker._process.kill()
    assert search._answer("split y.j by 8 -> o, v") == "ended"
    assert isinstance(search._answer("split y.j by 8 -> o, v"), float)
    assert search._worker is not None
    search._worker.end()


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


def test_models_and_devices_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    assert "C0103" in run(capsys, "tune", str(tmp_path / "net.onnx"))[2]
    with pytest.raises(tl.CompileError, match="C0103"):
        tl.tune(tl.parse(TEXT, target="cuda:sm_80").f, A, B)
