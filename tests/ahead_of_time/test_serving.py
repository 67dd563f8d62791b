"""A server runs requests in batches: each gets its own result or error, whoever else breaks off, is wrong, or dies."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saved_libraries import IMAGE, X, network

import tensorlang as tl
from tensorlang.saved.package import Rows, Tensor
from tensorlang.saved.workers import InProcess, WorkerDied


class Doubling:
    """A model y = 2 x of rows, which notes its batches, waits where it is told to, and refuses rows that are negative."""

    inputs = (Tensor("x", "f32", ("batch", "n")),)
    outputs = (Tensor("y", "f32", ("batch", "n")),)
    rows = Rows("independent", "")

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may_run = threading.Event()
        self.may_run.set()

    def clone(self, threads: int | None = None) -> Doubling:
        return self

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        assert self.may_run.wait(60)
        self.batches.append(len(feeds["x"]))
        if feeds["x"].min(initial=0) < 0:
            raise ValueError("negative")
        return {"y": 2 * feeds["x"]}


@pytest.fixture
def doubling() -> Iterator[Doubling]:
    model = Doubling()
    yield model
    model.may_run.set()


def rows(*values: float, n: int = 3) -> dict[str, Any]:
    return {"x": np.repeat(np.array(values, np.float32)[:, None], n, axis=1)}


def refused(code: str, function: Any, *args: Any, **named: Any) -> None:
    with pytest.raises(tl.SavedError) as error:
        function(*args, **named)
    assert error.value.code == code


def test_requests_that_wait_are_one_batch_and_each_gets_its_own_rows(doubling: Doubling) -> None:
    with tl.serve(doubling, max_batch=8, max_delay=60) as server:
        futures = [server.submit(rows(*range(k, k + n))) for k, n in ((0, 1), (5, 3), (9, 0), (20, 4))]
        for future, (k, n) in zip(futures, ((0, 1), (5, 3), (9, 0), (20, 4)), strict=True):
            np.testing.assert_array_equal(future.result(60)["y"], 2 * rows(*range(k, k + n))["x"])
    assert doubling.batches == [8] and server.counts["requests"] == 4 and server.counts["rows"] == 8


def test_a_batch_begins_when_its_first_request_has_waited_long_enough(doubling: Doubling) -> None:
    with tl.serve(doubling, max_batch=8, max_delay=0.01) as server:
        np.testing.assert_array_equal(server.run(rows(1))["y"], 2 * rows(1)["x"])


def test_no_batch_has_more_rows_than_its_limit_but_a_request_of_more(doubling: Doubling) -> None:
    doubling.may_run.clear()
    with tl.serve(doubling, max_batch=3, max_delay=0) as server:
        futures = [server.submit(rows(*range(n))) for n in (1, 2, 2, 5, 1)]
        doubling.may_run.set()
        assert [len(future.result(60)["y"]) for future in futures] == [1, 2, 2, 5, 1]
    assert sum(doubling.batches) == 11 and sorted(doubling.batches)[-1] == 5 and sorted(doubling.batches)[-2] <= 3


def test_requests_of_other_sizes_or_types_are_batches_of_their_own(doubling: Doubling) -> None:
    with tl.serve(doubling, max_batch=2, max_delay=60) as server:
        given = [rows(1), rows(1, n=4), {"x": np.ones((1, 3))}, {"x": np.ones((1, 3))}, rows(2, n=4), rows(2)]
        futures = [server.submit(feeds) for feeds in given]
        for feeds, future in zip(given, futures, strict=True):
            np.testing.assert_array_equal(future.result(60)["y"], 2 * feeds["x"])
    assert doubling.batches == [2, 2, 2]


def test_the_error_of_one_request_fails_no_other(doubling: Doubling) -> None:
    with tl.serve(doubling, max_batch=3, max_delay=60) as server:
        good, bad, other = (server.submit(rows(k)) for k in (1, -1, 2))
        assert good.result(60)["y"][0, 0] == 2 and other.result(60)["y"][0, 0] == 4
        with pytest.raises(ValueError, match="negative"):
            bad.result(60)
    assert doubling.batches == [3, 1, 1, 1] and server.counts["failed"] == 1


def test_a_client_that_breaks_off_leaves_the_others_and_no_work(doubling: Doubling) -> None:
    with tl.serve(doubling, max_batch=3, max_delay=60) as server:
        first, gone = server.submit(rows(1)), server.submit(rows(2))
        assert gone.cancel()
        last = server.submit(rows(3))
        assert first.result(60)["y"][0, 0] == 2 and last.result(60)["y"][0, 0] == 6
        with pytest.raises(CancelledError):
            gone.result()
    assert doubling.batches == [2] and server.counts["cancelled"] == 1


def test_a_full_queue_refuses_or_waits_for_room(doubling: Doubling) -> None:
    doubling.may_run.clear()
    with tl.serve(doubling, max_batch=1, max_queue=2) as server:
        running = server.submit(rows(0))
        while not running.running():
            pass
        waiting = [server.submit(rows(k)) for k in (1, 2)]
        refused("R0413", server.submit, rows(3), timeout=0)
        assert waiting[0].cancel()
        later = server.submit(rows(4), timeout=0)
        threading.Timer(0.05, doubling.may_run.set).start()
        assert server.run(rows(5))["y"][0, 0] == 10
        assert [f.result(60)["y"][0, 0] for f in (running, waiting[1], later)] == [0, 4, 8]


def test_a_server_that_closes_finishes_what_waits_or_cancels_it(doubling: Doubling) -> None:
    server = tl.serve(doubling, max_batch=8, max_delay=60)
    future = server.submit(rows(1))
    server.close()
    assert future.result(0)["y"][0, 0] == 2
    refused("R0414", server.submit, rows(1))
    doubling.may_run.clear()
    server = tl.serve(doubling, max_batch=8, max_delay=60)
    future = server.submit(rows(1))
    server.close(cancel=True)
    assert future.cancelled()


def test_a_fork_is_told_that_it_has_no_server_whatever_its_parent_was_at(doubling: Doubling) -> None:
    with tl.serve(doubling) as server:
        with server._lock:
            child = os.fork()
            if not child:
                signal.alarm(20)
                code = 1
                try:
                    server.submit(rows(1))
                except tl.SavedError as error:
                    code = 0 if error.code == "R0414" else 2
                server.close()
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "feeds",
    [{}, {"x": [[1.0]]}, {"x": np.float32(1)}, {"x": np.array(1, np.float32)}, [1], {"x": np.ones((1, 3)), "z": np.ones((2, 3))}],
)
def test_feeds_that_cannot_be_a_part_of_a_batch_are_refused_at_once(doubling: Doubling, feeds: Any) -> None:
    with tl.serve(doubling) as server:
        refused("R0412", server.submit, feeds)


@pytest.mark.parametrize(
    "named", [{"max_batch": 0}, {"max_batch": 2.0}, {"workers": True}, {"max_queue": -1}, {"max_delay": -1}, {"max_delay": "2ms"}]
)
def test_limits_that_are_none_are_refused(doubling: Doubling, named: dict[str, Any]) -> None:
    refused("R0411", tl.serve, doubling, **named)


MIXING = """
op centred(x: f32[B, N]) -> (y: f32[B, N]) {
    m[j] = sum(b) x[b, j]
    y[b, j] = x[b, j] - m[j] / f32(B)
}
"""


def test_what_mixes_the_rows_of_its_batch_is_refused_with_two_elements_of_other_rows(tmp_path: Path) -> None:
    tl.parse(MIXING).centred.save(tmp_path / "centred", rows(1), symbolic=True, max={"B": 8, "N": 8})
    model = tl.load_model(tmp_path / "centred")
    with pytest.raises(tl.SavedError, match=r"R0416.*`m\[0\]` reads `x\[0, 0\]` and `x\[1, 0\]`, which are of rows 0 and 1"):
        tl.serve(model, max_batch=8)
    with tl.serve(model, max_batch=1) as server:
        assert server.run(rows(3))["y"][0, 0] == 0


def test_a_model_of_which_nothing_is_known_is_refused_unless_someone_says_why_it_may_be_served(
    doubling: Doubling, caplog: pytest.LogCaptureFixture
) -> None:
    doubling.rows = Rows("unknown", "node `far`: nothing is known of what it computes")
    refused("R0416", tl.serve, doubling)
    refused("R0411", tl.serve, doubling, assume_independent=" ")
    with caplog.at_level("WARNING", "tensorlang.serve"), tl.serve(doubling, assume_independent="each row is doubled") as server:
        assert server.run(rows(3))["y"][0, 0] == 6 and server.assumed == "each row is doubled"
    assert "each row is doubled" in caplog.text and "node `far`" in caplog.text


def test_a_compiled_model_is_served_when_its_rows_are_proven_apart() -> None:
    with tl.serve(tl.compile(network("batch")), max_batch=2, max_delay=60) as server:
        first, second = (server.submit({"image": IMAGE[k : k + 1]}) for k in range(2))
        alone = tl.compile(network(1))(IMAGE[1:])
        np.testing.assert_allclose(second.result(60)["label"], alone, rtol=1e-5, atol=1e-6)
        assert first.result(60)["label"].shape == (1, 4)


def test_a_model_whose_arrays_begin_with_other_sizes_is_served_request_by_request(folder: Path) -> None:
    first = tl.load_model(folder / "first")
    refused("R0411", tl.serve, first)
    with tl.serve(first, max_batch=1) as server:
        np.testing.assert_array_equal(server.run({"x": X, "k": 2})["y"], X[:2])
        with pytest.raises(tl.SavedError, match="R0313"):
            server.run({"x": X})
    refused("R0411", tl.serve, tl.load_model(folder / "open"), max_batch=5)  # which was built for 4


def test_batches_of_a_model_are_what_it_computes_alone_in_threads_and_processes_that_are_killed(folder: Path) -> None:
    model = tl.load_model(folder / "open")
    expected = [model(IMAGE[k : k + 1]) for k in range(2)]
    with tl.serve(model.clone(threads=1), max_batch=4, max_delay=0.001, workers=2) as server:
        futures = [server.submit({"image": IMAGE[k % 2 : k % 2 + 1]}) for k in range(20)]
        for k, future in enumerate(futures):
            np.testing.assert_allclose(future.result(60)["label"], expected[k % 2], rtol=1e-5, atol=1e-6)
    with tl.serve(model, max_batch=4, max_delay=0.001, processes=True) as server:
        wrong = server.submit({"image": IMAGE.astype(np.float64)})
        server.run({"image": IMAGE})
        with pytest.raises(tl.SavedError, match="R0303"):
            wrong.result(60)
        pid = server.workers[0].pid
        futures = [server.submit({"image": IMAGE[k % 2 : k % 2 + 1]}) for k in range(10)]
        os.kill(pid, signal.SIGKILL)
        futures += [server.submit({"image": IMAGE[k % 2 : k % 2 + 1]}) for k in range(10)]
        for k, future in enumerate(futures):
            np.testing.assert_allclose(future.result(60)["label"], expected[k % 2], rtol=1e-5, atol=1e-6)
        assert server.counts["restarts"] == 1 and server.counts["failed"] == 1 and server.workers[0].pid != pid


class Deadly(Doubling):
    """A model that ends its process over a row that is negative."""

    def __reduce__(self) -> Any:
        return Deadly, ()

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if feeds["x"].min(initial=0) < 0:
            os._exit(3)
        return super().run(feeds)


class Echo(Doubling):
    """A model that returns what it is given, and what type its arrays have there."""

    def __init__(self) -> None:
        """It has nothing of a Doubling that a process could not be given."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if "wrong" in feeds:
            raise ValueError(feeds["wrong"])
        return {**feeds, "types": [type(value).__name__ for value in feeds.values()]}


def test_arrays_of_every_size_order_and_type_go_to_a_process_and_come_back_as_they_are() -> None:
    worker = InProcess(Echo())
    drawn = np.random.default_rng(0).standard_normal((300, 400))
    try:
        for given in (drawn, drawn[:3, :2], np.repeat(drawn, 4, 0), drawn.T, drawn[::2, ::3], drawn.astype(np.float16), drawn[:0]):
            given.flags.writeable = False
            found = worker.run({"x": given, "y": drawn, "text": np.array(["a", "bc"], object), "n": 3})
            assert found["x"].dtype == given.dtype and np.array_equal(found["x"], given) and np.array_equal(found["y"], drawn)
            assert found["text"].tolist() == ["a", "bc"] and found["n"] == 3
            kept = found["x"].copy()
            worker.run({"x": -np.ones_like(given)})
            assert np.array_equal(found["x"], kept)  # its memory is its own
        with pytest.raises(ValueError, match="as told"):
            worker.run({"wrong": "as told", "x": drawn})
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied):
            worker.run({"x": drawn})
        assert np.array_equal(worker.run({"x": drawn})["x"], drawn)
    finally:
        worker.close()


def test_a_request_that_kills_its_worker_fails_alone() -> None:
    with tl.serve(Deadly(), max_batch=3, max_delay=60, processes=True) as server:
        good, bad, other = (server.submit(rows(k)) for k in (1, -1, 2))
        assert good.result(60)["y"][0, 0] == 2 and other.result(60)["y"][0, 0] == 4
        with pytest.raises(tl.SavedError, match=r"R0415.*exit status 3"):
            bad.result(60)


class Hanging(Doubling):
    """A model that never answers for a row that is negative."""

    def __reduce__(self) -> Any:
        return Hanging, ()

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if feeds["x"].min(initial=0) < 0:
            threading.Event().wait()
        return super().run(feeds)


def test_a_worker_that_does_not_answer_is_replaced_and_its_client_told(doubling: Doubling) -> None:
    refused("R0411", tl.serve, doubling, max_seconds=1)
    with tl.serve(Hanging(), max_batch=1, processes=True, max_seconds=8) as server:
        bad, good = server.submit(rows(-1)), server.submit(rows(1))
        with pytest.raises(tl.SavedError, match=r"R0415.*no answer in 8 seconds"):
            bad.result(60)
        assert good.result(60)["y"][0, 0] == 2


def test_the_programs_of_the_page_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page, scope = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8"), dict[str, Any]()
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == page.count("```python") == 3
    for program, printed in blocks:
        exec(program, scope)
        assert capsys.readouterr().out == printed
