"""Profiles of models: a table in a hundred columns, a trace that viewers read, HTML in which no name is more than a name."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "graph"))

from small_graphs import graph, kernel, matmul, unary

from codegen.dtypes import f32
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import CompileError, RunError, text_columns
from tensorlang.graph.nodes import Value
from tensorlang.runtime.kernel_time import KernelTime
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.profile import Profile
from tensorlang.runtime.run_trace import RunTrace, ThreadPiece
from tensorlang.runtime.work import Work

NASTY = '<script>alert("x")</script>&\x1b[2J\n' + "長" * 60


def time(name: str, seconds: float, *members: str, flops: int = 1000) -> KernelTime:
    return KernelTime(name, members, Value("r", f32, (2, 3)), seconds, Work(flops, 1024, 512))


PROFILE = Profile("net", "cpu, 2 threads", (time("relu", 1e-6, "a"), time("matmul", 3e-6, "b", "c"), time("move", 0.0, flops=0)))


class Tags(HTMLParser):
    """What a browser would make of HTML: its tags and attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_table_has_the_longest_kernel_first_with_shares_and_rates() -> None:
    assert repr(PROFILE) == PROFILE.table()
    lines = [line.split() for line in str(PROFILE).splitlines()]
    assert " ".join(lines[0]) == "model `net` on cpu, 2 threads: 3 kernels, 4.0 us"
    assert lines[1] == ["time", "share", "sum", "GFLOP/s", "bytes", "kernel"]
    assert lines[2] == ["3.0", "us", "75.0%", "75.0%", "0.3", "1.50", "KiB", "matmul:", "b", "+", "c"]
    assert lines[3] == ["1.0", "us", "25.0%", "100.0%", "1.0", "1.50", "KiB", "relu:", "a"]
    assert lines[4] == ["0.0", "us", "0.0%", "100.0%", "-", "1.50", "KiB", "move"]


@pytest.mark.parametrize("width", [100, 140, 72])
def test_the_table_keeps_to_its_columns_whatever_the_names_are(width: int) -> None:
    profile = Profile(NASTY, "cpu", tuple(time(NASTY * k, 1e3, *[NASTY] * 50, flops=10**15) for k in (1, 2)))
    lines = profile.table(width).splitlines()
    assert len(lines) == 4
    assert all(text_columns(line) <= width and line.isprintable() for line in lines)


def test_a_profile_is_a_sequence_of_kernels_in_the_order_they_run() -> None:
    assert [k.name for k in PROFILE] == ["relu", "matmul", "move"]
    assert (len(PROFILE), PROFILE[1].name, [k.name for k in PROFILE[1:]]) == (3, "matmul", ["matmul", "move"])
    assert PROFILE.seconds == pytest.approx(4e-6)
    assert Profile("empty", "cpu", ()).table().splitlines()[0] == "model `empty` on cpu: 0 kernels, 0.0 us"


def test_a_trace_is_json_of_the_trace_event_format(tmp_path: Path) -> None:
    profile = Profile(NASTY, "cpu", (*PROFILE.kernels, time(NASTY, 2e-6, NASTY)))
    profile.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    assert trace == json.loads(json.dumps(profile.trace()))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    metadata = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    assert [e["name"] for e in metadata] == ["process_name", "thread_name"]
    assert all(isinstance(e["args"]["name"], str) for e in metadata)
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(metadata) + len(complete) == len(trace["traceEvents"])
    run, *events = complete
    assert (run["cat"], run["ts"], run["dur"]) == ("model", 0, pytest.approx(6)) and len(events) == len(profile)
    assert [(e["name"], e["ts"], e["dur"]) for e in events[:3]] == [
        ("relu", 0, pytest.approx(1)),
        ("matmul", pytest.approx(1), pytest.approx(3)),
        ("move", pytest.approx(4), 0),
    ]
    rows = {(e["pid"], e["tid"]) for e in metadata}
    assert all((e["pid"], e["tid"]) in rows and isinstance(e["cat"], str) for e in events)
    told = {
        "computes": ["b", "c"],
        "result": "f32[2, 3]",
        "operations": 1000,
        "bytes": 1536,
        "GFLOP/s": 1000 / 3e3,
        "best us": pytest.approx(3),
    }
    assert events[1]["args"] == told


def test_a_trace_has_a_row_for_each_thread_with_the_loops_that_it_ran_inside_the_kernels_of_the_run() -> None:
    pieces = (ThreadPiece(0, 2e-6, 1e-6, 0, 8), ThreadPiece(1, 2.1e-6, 2e-6, 8, 16))
    line = RunTrace(((0.0, 1e-6), (1.5e-6, 3e-6), (5e-6, 0.0)), pieces)
    events = Profile("net", "cpu", PROFILE.kernels, line).trace()["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows == {1: "cpu", 2: "thread 1"}
    loops = [(e["tid"], e["name"], e["args"]["iterations"]) for e in events if e.get("cat") == "loop"]
    assert loops == [(1, "matmul", "0..8"), (2, "matmul", "8..16")]
    assert_nested(events)
    assert [e["ts"] for e in events if e.get("cat") == "kernel"] == pytest.approx([0, 1.5, 5])


def assert_nested(events: list[dict[str, Any]]) -> None:
    """Of one row, events lie inside or beside each other, as viewers need it."""
    slack = 1e-6
    for row in {e["tid"] for e in events}:
        ends: list[float] = []
        for e in sorted((e for e in events if e["ph"] == "X" and e["tid"] == row), key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= e["ts"] + slack:
                ends.pop()
            assert not ends or e["ts"] + e["dur"] <= ends[-1] + slack, e
            ends.append(e["ts"] + e["dur"])


def test_a_profile_on_two_threads_knows_what_each_of_them_did() -> None:
    loaded = graph({"x": (512, 300), "w": (300, 600)}, [kernel(matmul(512, 600, 300), "x w", "y")], ["y"])
    model = CompiledModel(lambda shapes: loaded, toolchain(threads=2))
    profile = model.profile(np.ones((512, 300), np.float32), np.ones((300, 600), np.float32))
    assert profile.run is not None
    assert profile.run.pieces
    assert {s.thread for s in profile.run.pieces} <= {0, 1}
    [(start, seconds)] = profile.run.kernels
    assert all(start <= s.start and s.start + s.seconds <= start + seconds + 1e-9 for s in profile.run.pieces)
    events = profile.trace()["traceEvents"]
    assert_nested(events)
    assert len([e for e in events if e.get("cat") == "loop"]) == len(profile.run.pieces)


def test_a_trace_that_cannot_be_written_is_refused_with_a_code(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="C0203"):
        PROFILE.save(tmp_path / "none" / "trace.json")


def test_names_reach_html_as_text_alone() -> None:
    shown = Tags(Profile(NASTY, NASTY, (time(NASTY, 1e-6, NASTY),))._repr_html_())
    assert shown.tags <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"} and shown.attributes <= {"style"}
    assert shown.text.count('<script>alert("x")</script>&\\x1b[2J\\n') >= 2


def test_a_model_is_profiled_with_inputs_as_in_a_call() -> None:
    model = CompiledModel(
        lambda shapes: graph(
            {"x": (4, 5), "w": (5, 6)}, [kernel(matmul(4, 6, 5), "x w", "a"), kernel(unary("relu", 4, 6), "a", "y")], ["y"]
        ),
        toolchain(threads=1),
    )
    x, w = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
    for profile in (model.profile({"x": x, "w": w}), model.profile(x, w), model.profile(x, w=w)):
        assert isinstance(profile, Profile)
        assert profile.target == "cpu, 1 thread"
        assert sum(k.work.flops for k in profile) == 4 * 6 * 5 * 2 + 4 * 6
    with pytest.raises(RunError, match="R0301"):
        model.profile(x)
    text = model.explain({"x": x, "w": w})
    assert all(len(line) <= 100 for line in text[text.index("\nmodel `") :].splitlines())
    assert model.explain().count("model `") == 1


def test_what_is_explained_of_a_model_begins_with_the_kernels_that_take_most_and_what_bounds_each() -> None:
    loaded = graph(
        {"x": (64, 300), "w": (300, 200)}, [kernel(unary("relu", 64, 300), "x", "a"), kernel(matmul(64, 200, 300), "a w", "y")], ["y"]
    )
    model = CompiledModel(lambda shapes: loaded, toolchain(threads=1))
    for text, verb in (
        (model.explain(), "at best"),
        (model.explain({"x": np.ones((64, 300), "f4"), "w": np.ones((300, 200), "f4")}), "took"),
    ):
        lines = text[: text.index("\n\n")].splitlines()
        shares = [float(line[10:].split("%")[0]) for line in lines]
        assert lines[0].startswith("limits") and len(lines) == model.made.summary.kernels
        assert sorted(shares, reverse=True) == shares and sum(shares) == pytest.approx(100, abs=0.2)
        assert all(f"%  {verb} " in line and ", bound by " in line and len(line) <= 131 for line in lines)
