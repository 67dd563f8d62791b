"""`tensorlang diff`: a model's results next to a peer's, and the first node that departs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run, saved
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from stdlib.onnx import Importer
from tensorlang import api
from tensorlang.shell import peers
from tensorlang.shell.difference import difference


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package were installed: its importer is known by metadata."""
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "objects"))
    monkeypatch.setattr(api, "installed_importers", lambda: (Importer(),))


@pytest.fixture
def net(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name="multiply"),
        helper.make_node("Tanh", ["t"], ["u"], name="bend"),
        helper.make_node("Relu", ["u"], ["y"], name="cut"),
    ]
    return saved(tmp_path / "net.onnx", nodes)


@pytest.fixture
def bent(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A peer whose Tanh is another function, a hundredth larger where nothing else is asked for."""
    factor = np.float32(getattr(request, "param", 1.01))

    class Tanh(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: Any) -> tuple[Any]:
            return (np.tanh(x) * factor,)

    def make(task: peers.Task, threads: int) -> Callable[[], list[Any]]:
        source = task.model if isinstance(task.model, bytes) else Path(str(task.model)).read_bytes()
        model = ReferenceEvaluator(onnx.load_from_string(source), new_ops=[Tanh])
        return lambda: list(model.run(None, dict(task.inputs)))

    monkeypatch.setattr(peers, "PEERS", (peers.Peer("bent", "numpy", "f32", make),))


def test_a_model_that_agrees_is_said_to(capsys: Any, net: Path) -> None:
    code, out, err = run(capsys, "diff", net, "--bisect")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split()[:3:2] == ["y", "ok"] and "none of 3 nodes departs" in out


@pytest.mark.usefixtures("bent")
def test_the_first_node_that_departs_is_written_as_a_model_of_its_own(capsys: Any, net: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.onnx"
    code, out, err = run(capsys, "diff", net, "--against", "bent", "--bisect", "-o", small)
    assert (code, err) == (1, "")
    assert "`bend` (Tanh) is the first that departs: `u` [" in out and "departs" in out.splitlines()[0]
    written = onnx.load(small)
    assert [node.op_type for node in written.graph.node] == ["Tanh"] and not written.graph.initializer
    code, out, err = run(capsys, "diff", small, small.with_suffix(".npz"), "--against", "bent")
    assert (code, err) == (1, "") and "departs" in out
    code, out, err = run(capsys, "diff", net, "--against", "bent", "--bisect", "--json")
    told = json.loads(out)
    assert (code, err) == (1, "") and told["node"]["label"] == "bend" and told["node"]["by_itself"] and told["results"][0]["departs"]


@pytest.mark.parametrize("bent", [1.00001], indirect=True)
@pytest.mark.usefixtures("bent")
def test_a_node_in_which_differences_grow_is_told_from_one_that_departs_by_itself(capsys: Any, tmp_path: Path) -> None:
    steps = (("MatMul", ["x", "w"], ["t"]), ("Tanh", ["t"], ["u"]), ("Sub", ["u", "t"], ["y"]))
    nodes = [helper.make_node(*step) for step in steps]
    np.save(tmp_path / "x.npy", np.full((2, 4), 0.03, np.float32))
    net = saved(tmp_path / "net.onnx", nodes)
    code, out, err = run(capsys, "diff", net, f"x={tmp_path / 'x.npy'}", "--against", "bent", "--bisect", "--tolerance", "1e-4")
    assert (code, err) == (1, "") and "(Sub) is the first that departs" in out and "by itself it does not" in out


@pytest.mark.usefixtures("bent")
def test_what_is_tolerated_does_not_depart(capsys: Any, net: Path) -> None:
    code, out, err = run(capsys, "diff", net, "--against", "bent", "--tolerance", "0.1")
    assert (code, err) == (0, "") and "ok" in out


def test_what_is_no_model_is_told(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "a.tl").write_text("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }\n")
    code, _, err = run(capsys, "diff", tmp_path / "a.tl")
    assert code == 1 and "is no model that an installed importer reads" in err


@pytest.mark.parametrize(
    ("found", "expected", "departs"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], False),
        ([1.0, np.nan], [1.0, 2.0], True),
        ([1.0, np.inf], [1.0, -np.inf], True),
        ([1.0, 100.0], [1.001, 100.0], False),
        ([1.0], [1.0, 2.0], True),
        ([], [], False),
    ],
)
def test_elements_differ_by_a_share_of_the_largest(found: list[float], expected: list[float], departs: bool) -> None:
    assert difference("y", np.array(found, np.float32), np.array(expected, np.float32), 1e-4).departs == departs


def test_narrow_numbers_may_be_some_roundings_apart() -> None:
    a, b = np.array([1.0, 2.0]), np.array([1.0, 2.01])
    for dtype, departs in ((np.float16, False), (np.float32, True)):
        assert difference("y", a.astype(dtype), b.astype(dtype), 1e-4).departs == departs
    assert difference("y", np.array([1]), np.array([1.0]), 1.0).departs
    assert difference("y", np.array(["a"], object), np.array(["b"], object), 1.0).departs
