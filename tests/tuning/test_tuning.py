"""`tune`: schedules are tried, proven, compared, measured by processes that may die, and kept, so that the next search goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from pretended_workers import answers

import tensorlang as tl
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.kernels import KernelTask
from tensorlang.runtime.schedule_book import schedule_book
from tensorlang.schedule.schedule import Schedule
from tensorlang.tuning.comparing import agree
from tensorlang.tuning.search import Search
from tensorlang.tuning.subjects import ModelSubject, OperatorSubject, Trial
from tensorlang.tuning.workers import LocalWorkers

TEXT = "op f(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = min(k) (a[i, k] + b[k, j]) }\n"
A = np.arange(40, dtype=np.float32).reshape(8, 5)
B = np.arange(160, dtype=np.float32).reshape(5, 32) % 7
NETWORK = """<ir_version: 9, opset_import: ["": 17]>
net (float[3, 4] x, float[4, 24] w) => (float[3, 24] y) { m = MatMul(x, w) y = Softmax(m) }"""
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "w": np.linspace(1, -2, 96, dtype=np.float32).reshape(4, 24)}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "objects"))


def operator() -> Any:
    return tl.parse(TEXT, threads=1).f


def test_a_subject_measures_what_is_right_and_says_what_is_refused() -> None:
    _, answer = OperatorSubject(operator(), {"a": A, "b": B}).begin()
    ratio = answer(Trial({0: "split y.j by 16 -> o, v\nvectorize y.v"}, 0.01))
    assert isinstance(ratio, float) and ratio > 0
    assert answer(Trial({0: "split y.nothing by 16"}, 0.01)) == "refused"


def test_results_may_differ_by_what_another_order_of_sums_makes_unless_it_is_kept() -> None:
    x = np.array([1.0, -2.0, np.nan, np.inf], np.float32)
    near, far = x * np.float32(1 + 1e-6), x * np.float32(1.01)
    assert agree([x], [x.copy()], exactly=True) and agree([near], [x], exactly=False)
    assert not agree([near], [x], exactly=True) and not agree([far], [x], exactly=False)
    assert agree([x * np.float32(1 + 3e-5)], [x], exactly=False, kernels=4)
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
    assert more.known == 3 and not set(asked[:3]) & set(again[:-3])  # which are measured once more


def test_a_gain_that_is_not_there_when_measured_again_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, lambda text, n: 1.5 if len(set(asked)) == len(asked) else 0.9)
    found = tl.tune(operator(), A, B, seconds=0.2)
    own = operator().compiled(operator().call(A, B)).artifact.schedule
    assert found.ratio == 1.0 and all(line in own for line in found.schedule)


def test_the_next_fastest_is_measured_once_more_where_the_fastest_was_lucky(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(text: str, n: int) -> float:
        return 0.9 if text == asked[0] and n > 1 else 1.6 if n == 1 else 1.5 if text == asked[1] else 1.0

    asked = answers(monkeypatch, told)
    found = tl.tune(operator(), A, B, seconds=0.2)
    assert found.ratio == 1.5 and "\n".join(found.schedule) == asked[1] == asked[-1]


@pytest.mark.parametrize("stored", ['{"x": "slow", "y": [1], "z": -1.0, "v": NaN, "u": 2}', "[" * 100_000, "[]", "{"])
def test_what_no_search_has_stored_is_not_known(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [kernel] = OperatorSubject(operator(), {"a": A, "b": B}).begin()[0].kernels
    monkeypatch.setattr(Cache, "get", lambda self, key: stored.encode())
    search = Search(kernel, 0)
    assert search.known_before == 0 and search.next() in ("\n".join(lines) for lines in kernel.first)


def test_two_searches_keep_what_each_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = OperatorSubject(operator(), {"a": A, "b": B})
    [kernel] = subject.begin()[0].kernels
    one, other = Search(kernel, 0), Search(kernel, 1)
    one.told("a", 1.25)
    other.told("b", "wrong")
    assert Search(kernel, 2).known_before == 2


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "x", None, True])
def test_a_search_has_a_time(seconds: Any) -> None:
    with pytest.raises(tl.CompileError, match="C0149"):
        tl.tune(operator(), A, B, seconds=seconds)


def test_a_schedule_is_tried_once_more_when_its_process_dies_and_set_aside_when_two_do(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, lambda text, n: None if n in (1, 3, 4) else 1.0)
    found = tl.tune(operator(), A, B, seconds=0.5)
    assert asked[0] == asked[1] and asked[2] == asked[3] and len(set(asked)) == len(asked) - 2
    assert found.outcomes["ended"] == 1


def test_kernels_of_other_sizes_begin_with_what_was_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, lambda text, n: 2.0 if "vectorize" in text else 1.0)
    found = tl.tune(operator(), A, B, seconds=0.5)
    asked = answers(monkeypatch, lambda text, n: 1.0)
    tl.tune(operator(), A[:4], np.ascontiguousarray(B[:, :16]), seconds=0.2)
    assert asked[0] == "\n".join(found.schedule)


def test_machines_of_different_kinds_are_searched_for_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, lambda text, n: 1.0 + n / 100, machines=("one", "other"))
    found = tl.tune(operator(), A, B, seconds=0.5)
    assert found.machine == "one" and [other.machine for other in found.others] == ["other"]
    assert asked[0] == asked[1], "each tries what is best by the cost model first"


def test_a_process_that_dies_is_replaced() -> None:
    workers = LocalWorkers(OperatorSubject(operator(), {"a": A, "b": B}))
    (worker,) = workers.idle(0)
    worker.begin(Trial({0: "split y.j by 16 -> o, v"}, 0.01))
    assert workers._worker is not None and not workers.idle(0)
    workers._worker.process._process.kill()
    assert list(workers.answers(0)) == [(worker, None)]
    (other,) = workers.idle(0)
    other.begin(Trial({0: "split y.j by 16 -> o, v"}, 0.01))
    ((_, ratio),) = workers.answers(0)
    assert other is not worker and isinstance(ratio, float)
    workers.end()


def test_kernels_of_a_model_are_tuned_where_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx.parser.parse_model(NETWORK), file := tmp_path / "net.onnx")
    model = tl.compile(file, threads=1)
    greeting, answer = ModelSubject(model, FEEDS).begin()
    assert sum(kernel.share for kernel in greeting.kernels) == pytest.approx(1, abs=0.01)
    first = greeting.kernels[0]
    assert isinstance(answer(Trial({0: "\n".join(first.own)}, 0.01)), float)
    assert answer(Trial({0: "split nothing by 16"}, 0.01)) == "refused"

    answers(monkeypatch, lambda text, n: 1.5)
    found = tl.tune(model, FEEDS, seconds=0.5)
    assert found.ratio > 1.2 and found.kernels and found.outcomes["measured"] > 0
    found.save(tmp_path / "net.schedules")
    again = tl.compile(file, threads=1, schedules=tmp_path / "net.schedules")
    np.testing.assert_allclose(again(**FEEDS), model(**FEEDS), rtol=1e-5)
    np.testing.assert_allclose(found.faster(**FEEDS), model(**FEEDS), rtol=1e-5)
    assert "tuned" in again.explain() and "tuned" not in model.explain()


def test_a_schedule_of_a_file_that_is_refused_is_told_and_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    onnx.save(onnx.parser.parse_model(NETWORK), file := tmp_path / "net.onnx")
    model = tl.compile(file, threads=1)
    greeting, _ = ModelSubject(model, FEEDS).begin()
    lines = {k.book_key: {"kernel": k.name, "schedule": ["vectorize nothing"], "ratio": 2.0} for k in greeting.kernels}
    (tmp_path / "book").write_text(json.dumps({"tensorlang schedules": 1, "kernels": lines}))
    again = tl.compile(file, threads=1, schedules=tmp_path / "book")
    np.testing.assert_array_equal(again(**FEEDS), model(**FEEDS))
    assert "its schedule from the file is not used" in caplog.text


def test_what_a_schedule_of_a_file_trusts_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    onnx.save(onnx.parser.parse_model(NETWORK), file := tmp_path / "net.onnx")
    model = tl.compile(file, threads=1)
    greeting, _ = ModelSubject(model, FEEDS).begin()
    lines = {k.book_key: {"kernel": k.name, "schedule": ['trust "me"', *k.own], "ratio": 2.0} for k in greeting.kernels}
    (tmp_path / "book").write_text(json.dumps({"tensorlang schedules": 1, "kernels": lines}))
    assert "tuned" in tl.compile(file, threads=1, schedules=tmp_path / "book").explain(), "where all is proven, nothing is trusted"
    compiled = KernelTask._compiled

    def undecided(task: KernelTask, store: Cache | None, schedule: Schedule | None = None) -> Artifact:
        made = compiled(task, store, schedule)
        return made if schedule is None else replace(made, trusted="gave up, and trusted: me")

    monkeypatch.setattr(KernelTask, "_compiled", undecided)
    (tmp_path / "other").write_text((tmp_path / "book").read_text().replace("me", "you"))
    assert "tuned" not in tl.compile(file, threads=1, schedules=tmp_path / "other").explain()
    assert "nobody asked here to trust it: gave up" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"tensorlang schedules": 2}', '{"tensorlang schedules": 1, "kernels": {"a": 1}}', "[" * 9999]
)
def test_a_file_that_holds_no_schedules_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "book").write_text(text)
    with pytest.raises(tl.CompileError, match="C0145"):
        schedule_book(tmp_path / "book")
    with pytest.raises(tl.CompileError, match="C0145"):
        schedule_book(tmp_path / "none")


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(tl.CompileError, match="C0103"):
        tl.tune(tl.parse(TEXT, target="cuda:sm_80").f, A, B)
    with pytest.raises(tl.CompileError, match="C0103"):
        tl.tune("f", A, B)  # type: ignore[call-overload]
    with pytest.raises(tl.CompileError, match="R0"):
        tl.tune(operator(), A, A)
