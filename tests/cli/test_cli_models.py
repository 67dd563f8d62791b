"""Models on the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run, saved
from onnx import TensorProto, helper

from stdlib.equivalents import Library
from stdlib.onnx import Importer
from tensorlang import api
from tensorlang.backends.cpu import validated as build
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.pass_listing import listed
from tensorlang.graph.pipeline import DEVICE, PROCESSOR
from tensorlang.shell import bench, installed_operators


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package were installed: its importer is known by metadata."""
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "objects"))
    monkeypatch.setattr(api, "installed_importers", lambda: (Importer(),))


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return saved(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])])


def test_the_passes_over_graphs_are_shown_without_a_file(capsys: Any) -> None:
    assert run(capsys, "show", "--stage", "passes") == (0, listed(PROCESSOR), "")
    assert run(capsys, "show", "--stage", "passes", "--target", "cuda") == (0, listed(DEVICE), "")
    code, out, err = run(capsys, "show", "--stage", "graph")
    assert (code, out) == (1, "") and "there is no file to show" in err


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
def test_the_passes_that_change_a_model_are_told(capsys: Any, net: Path, target: str) -> None:
    code, out, err = run(capsys, "show", net, "--stage", "passes", "--target", target, "--precision", "bf16")
    told = dict(line.split(maxsplit=1) for line in out.splitlines() if "kernels" in line)
    assert (code, err) == (0, "") and told["fuse"] == "kernels 2 -> 1" and "dce" not in told
    assert "lower_precision" in out and ("live_out" in out) is (target != "cpu")


def test_check_reads_a_model(capsys: Any, net: Path) -> None:
    assert run(capsys, "check", net) == (0, "1 file checked, no mistakes\n", "")


def test_check_reports_what_of_a_model_cannot_be_compiled(capsys: Any, tmp_path: Path) -> None:
    path = saved(tmp_path / "net.onnx", [helper.make_node("Nonesuch", ["x"], ["y"], name="odd")])
    code, out, err = run(capsys, "check", path)
    assert (code, out) == (1, "") and err.startswith("error[O007]")


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (helper.make_node("Relu", ["x"], ["y"]), None),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3]), "; while it is open, it is sound where batch >= 3"),
        (helper.make_node("ArgMax", ["x"], ["y"], axis=2), "; while it is open, it is sound where 0 < batch, batch < 2147483648"),
        (helper.make_node("NonZero", ["x"], ["y"]), ""),
    ],
)
def test_check_says_whether_a_model_waits_for_its_shapes(node: onnx.NodeProto, told: str | None, capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "batch"])
    graph = helper.make_graph([node], "net", [x], [helper.make_empty_tensor_value_info("y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    code, out, err = run(capsys, "check", path)
    waits = f"{path}: the model is checked for the shapes of a run: input `x` leaves the dimension `batch` open"
    lines = ["1 file checked, no mistakes"] if told is None else [f"{waits}{told}", "1 file checked, no mistakes; 1 not checked"]
    assert (code, out.splitlines(), err) == (0, lines, "")


@pytest.mark.parametrize(
    ("node", "code", "told"),
    [
        (helper.make_node("Softmax", ["x"], ["y"], axis=7, name="odd"), 1, "error[O005]"),
        (helper.make_node("MatMul", ["x", "x"], ["y"], name="odd"), 0, "while it is open, the inputs of node `odd` do not fit MatMul"),
    ],
)
def test_check_reads_what_it_can_of_a_model_that_waits_for_its_shapes(
    node: onnx.NodeProto, code: int, told: str, capsys: Any, tmp_path: Path
) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3, 4]) for n in "xy")
    path = tmp_path / "net.onnx"
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(helper.make_graph([node], "net", [x], [y]), opset_imports=opsets, ir_version=9), path)
    found, out, err = run(capsys, "check", path)
    assert found == code and told in out + err


@pytest.mark.parametrize("stage", ["graph", "passes"])
def test_a_model_is_shown_for_the_shapes_that_are_given(stage: str, capsys: Any, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy")
    path = tmp_path / "net.onnx"
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    code, out, err = run(capsys, "show", path, "--stage", stage, "x=f32[3,4]")
    assert (code, err) == (0, "") and ("f32[3, 4]" in out if stage == "graph" else "fuse" in out)


def test_a_model_runs_on_files(capsys: Any, net: Path, tmp_path: Path) -> None:
    x = np.array([[1, -1, 0, 2], [0, 0, -3, 0]], np.float32)
    np.save(tmp_path / "x.npy", x)
    code, out, err = run(capsys, "run", net, f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npz", "-t", "1")
    assert (code, out, err) == (0, "y: float32[2, 3]\n", "")
    weight = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], np.maximum(x @ weight, 0), rtol=1e-6)


def test_a_model_is_validated_kernel_by_kernel_and_as_a_whole(capsys: Any, net: Path) -> None:
    assert run(capsys, "check", net, "--validate") == (
        0,
        f"{net}: 1 of 1 kernels validated\nthe model as a whole validated: 6 elements the same\n",
        "",
    )


def test_a_model_for_a_device_is_validated_by_its_loops_and_as_text(capsys: Any, net: Path) -> None:
    assert run(capsys, "check", net, "--validate", "--target", "cuda:sm_80") == (
        0,
        f"{net}: 1 of 1 kernels validated\n1 of 1 kernels as text validated\nthe model as a whole not validated: its memory on a device\n",
        "",
    )
    code, out, err = run(capsys, "check", net, "--target", "cuda:sm_80")
    assert (code, out) == (1, "") and "it goes with `--validate`" in err


def test_what_is_too_large_to_be_validated_is_said_to_be(capsys: Any, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "objects"))
    monkeypatch.setenv("TENSORLANG_VALIDATE", "20")
    code, out, _ = run(capsys, "check", net, "--validate", "--json")
    assert code == 0
    assert json.loads(out)["model"] == "not validated: too large, more than 20 operations"
    assert json.loads(out)["kernels"][0]["outcome"] == "not validated: too large, more than 20 operations"


def test_a_model_whose_loops_are_wrong_is_told_where(capsys: Any, net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build.compiled_of

    def moved(graph: Any, executable: Any) -> Any:
        model = built(graph, executable)
        return replace(model, offsets={name: at + 4 for name, at in model.offsets.items()}, constants_bytes=model.constants_bytes + 4)

    monkeypatch.setattr(build, "compiled_of", moved)
    code, out, err = run(capsys, "check", net, "--validate")
    assert (code, out) == (1, "")
    assert "`y[0, 0]` of the model is not what its graph says\n  graph  max(" in err


def test_a_model_is_measured_next_to_peers(capsys: Any, net: Path) -> None:
    code, out, _ = run(capsys, "bench", net, "--peers", "onnxruntime", "--seconds", "0.1", "--no-memory", "--json", "-t", "1")
    assert code == 0
    found = json.loads(out)
    assert [(t["name"], t["precision"]) for t in found["timings"]] == [("tensorlang", "f32"), ("onnxruntime", "f32")]
    assert found["timings"][1]["largest_difference"] < 1e-5
    assert found["best_f32_peer"] == "onnxruntime" and found["ratio"] > 0
    assert (found["operations"], found["moved_bytes"], found["threads"]) == (2 * 2 * 4 * 3 + 2 * 3, 4 * (8 + 12 + 6), 1)


def test_initializers_that_are_inputs_too_are_shown_and_measured_as_inputs_where_they_are_given(capsys: Any, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    w = helper.make_tensor("w", TensorProto.FLOAT, [4], [1, 2, 3, 4])
    taken = [x, helper.make_tensor_value_info("w", TensorProto.FLOAT, [4])]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "scaled", taken, [y], [w])
    file = tmp_path / "scaled.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    assert 'inputs "x", "w"' in run(capsys, "show", file, "w=f32[4]")[1] and 'inputs "x"\n' in run(capsys, "show", file)[1]
    peers = ("--peers", "onnxruntime", "--seconds", "0.01", "--no-memory", "--json", "-t", "1")
    code, out, _ = run(capsys, "bench", file, "w=f32[4]", *peers)
    assert code == 0 and [t["name"] for t in json.loads(out)["timings"]] == ["tensorlang", "onnxruntime"]
    assert json.loads(out)["timings"][1]["largest_difference"] == 0


def test_a_number_that_a_model_takes_is_measured_as_one(capsys: Any, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    number = helper.make_tensor_value_info("s", TensorProto.FLOAT, [])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "s"], ["y"])], "scaled", [x, number], [y])
    file = tmp_path / "scaled.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    assert run(capsys, "bench", file, "--peers", "none", "--seconds", "0.01", "--no-memory", "-t", "1")[0] == 0


def test_the_memory_of_each_contender_is_that_of_its_own_process(capsys: Any, net: Path) -> None:
    code, out, _ = run(capsys, "bench", net, "--peers", "onnxruntime", "--seconds", "0.01", "-t", "1")
    assert code == 0
    head, ours, peer, last, *_ = out.splitlines()
    assert "roofline" in head and head.endswith("MiB") and all(line.split()[-1].isdigit() for line in (ours, peer))
    assert ours.split()[-1] != peer.split()[-1], "not the peak of the process that started them"
    assert re.fullmatch(r"tensorlang is (as fast as|[\d.]+x (faster|slower) than) onnxruntime, the fastest peer in f32", last)


def test_every_process_compiles_a_model_with_the_options_of_the_command(capsys: Any, monkeypatch: pytest.MonkeyPatch, net: Path) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bench, "first_result", lambda *arguments: asked.append(arguments[-1]) or {"peak_mib": 1.0})
    options = ["--precision", "bf16", "--no-winograd", "--force-precision"]
    assert run(capsys, "bench", net, *options, "--peers", "none", "--seconds", "0.01", "-t", "1")[0] == 0
    assert asked == [{"precision": "bf16", "winograd": False, "online": True, "force_precision": True}]


def test_a_process_of_its_own_takes_every_option(net: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    found = bench.first_result("tensorlang", str(net), str(tmp_path / "x.npz"), 1, {"winograd": 1})
    assert found == {"failed": "error[C0108]: `winograd` is 1"}


def test_a_comparison_is_labelled_with_the_precision_that_is_used(capsys: Any, net: Path) -> None:
    code, out, _ = run(
        capsys, "bench", net, "--precision", "bf16x3", "--peers", "none", "--seconds", "0.01", "--no-memory", "--json", "-t", "1"
    )
    assert (code, json.loads(out)["timings"][0]["precision"]) == (0, toolchain(precision="bf16x3").precision.used)


def test_a_model_that_is_not_there_comes_with_help(capsys: Any, tmp_path: Path) -> None:
    code, _, err = run(capsys, "run", tmp_path / "nope.onnx")
    assert code == 1 and "O001" in err and "= help: give the path of a model" in err


def test_a_model_is_measured_in_a_precision(capsys: Any, net: Path) -> None:
    code, out, err = run(capsys, "bench", net, "--precision", "f7", "--peers", "none", "-t", "1")
    assert (code, out) == (1, "")
    assert "C0103" in err


@pytest.mark.parametrize("command", ["run", "explain", "show", "bench"])
@pytest.mark.parametrize("precision", ["bf16", "bf16x3", "bf16x6"])
def test_every_command_on_models_takes_a_precision(capsys: Any, net: Path, command: str, precision: str) -> None:
    more = {"run": ["x=f32[2,4]"], "bench": ["--peers", "none", "--seconds", "0.01", "--no-memory"]}
    arguments = more.get(command, [])
    assert run(capsys, command, net, *arguments, "--precision", precision, "-t", "1")[0] == 0
    code, out, err = run(capsys, command, net, *arguments, "--precision", "f7", "-t", "1")
    assert (code, out) == (1, "") and "C0103" in err


@pytest.mark.parametrize("command", ["run", "explain", "show", "bench"])
def test_an_operator_says_itself_what_it_computes_in(capsys: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "f.tl").write_text("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }")
    code, out, err = run(capsys, command, tmp_path / "f.tl", "x=f32[3]", "--precision", "bf16", "-t", "1")
    assert (code, out) == (1, "") and "C0103" in err


@pytest.mark.parametrize("option", [["--no-winograd"], ["--no-online"], ["--force-precision"], ["--operators", "g.tl"]])
def test_what_is_about_models_alone_is_refused_of_an_operator(capsys: Any, tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "f.tl").write_text("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }")
    code, out, err = run(capsys, "run", tmp_path / "f.tl", "x=f32[3]", "-t", "1", *option)
    assert (code, out) == (1, "") and "C0103" in err and option[0] in err


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("matmul", ["a=f32[3,4]", "b=f32[4,5]"]),
        ("softmax", ["x=f32[3,5]", "axis=1"]),
        ("layer_norm", ["x=f32[3,8]", "g=f32[8]", "b=f32[8]", "axis=1"]),
        ("map", ["x=f32[9]", "f=relu"]),
        ("map", ["x=f32[9]", "f=gelu"]),
        ("transpose", ["x=f32[3,4]", "perm=(1,0)"]),
        ("reduce_sum", ["x=f32[3,4]", "axis=1", "count=1"]),
        ("conv", ["x=f32[1,3,8,8]", "w=f32[4,3,3,3]", "b=f32[4]", "stride=(2,2)", "lo=(1,1)", "hi=(1,1)"]),
    ],
)
def test_a_library_operator_is_measured_next_to_what_peers_call_it(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, operator: str, arguments: list[str]
) -> None:
    monkeypatch.setattr(installed_operators, "installed_operators", lambda: (Library(),))
    code, out, _ = run(capsys, "bench", operator, *arguments, "--peers", "onnxruntime,numpy", "--seconds", "0.01", "--json", "-t", "1")
    assert code == 0
    found = json.loads(out)["timings"]
    assert found[1]["name"] == "onnxruntime"
    assert [t["name"] for t in found if (t["largest_difference"] or 0) > 1e-5] == []


def test_a_convolution_of_the_library_is_measured_with_the_options_of_the_command(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_operators, "installed_operators", lambda: (Library(),))
    asked: list[dict[str, Any]] = []
    compiled = api.compile
    monkeypatch.setattr(api, "compile", lambda model, **options: asked.append(options) or compiled(model, **options))
    given = ["x=f32[1,3,8,8]", "w=f32[4,3,3,3]", "b=f32[4]", "stride=(1,1)", "lo=(1,1)", "hi=(1,1)"]
    assert run(capsys, "bench", "conv", *given, "--no-winograd", "--peers", "none", "--seconds", "0.01", "-t", "1")[0] == 0
    assert asked == [{"threads": 1, "precision": "f32", "winograd": False, "online": True, "force_precision": False}]


def test_a_model_is_shown_and_explained(capsys: Any, net: Path) -> None:
    code, out, _ = run(capsys, "show", net, "-t", "1")
    assert code == 0
    assert out.startswith('graph "net"')
    assert "op matmul_" in out
    code, out, _ = run(capsys, "explain", net, "-t", "1")
    assert code == 0
    assert "1 kernels (1 distinct)" in out and "took" not in out


@pytest.mark.parametrize("precision", ["bf16x3", "bf16x6"])
def test_a_precision_that_does_not_pay_is_explained_in_a_line(capsys: Any, net: Path, precision: str) -> None:
    code, out, _ = run(capsys, "explain", net, "--precision", precision, "-t", "1")
    assert code == 0
    assert [f"precision {precision}: contractions stay f32; " in line for line in out.splitlines()].count(True) == 1
    said = {p: run(capsys, "show", net, "--precision", p, "-t", "1") for p in ("f32", precision)}
    assert said[precision] == said["f32"]


def test_explain_puts_each_kernel_on_the_roofline(capsys: Any, net: Path) -> None:
    code, out, _ = run(capsys, "explain", net, "--measure", "-t", "1")
    assert code == 0
    assert re.search(
        r"54 operations, 104 bytes, 0\.519 operations a byte, bound by .*: at best [\d.]+ us\n +took [\d.]+ us, \d+% of the roof", out
    )


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["run"], "input `x` is missing"),
        (["run", "x=f32[3,4]"], "O011"),
        (["run", "x=f64[2,4]"], "must be f32"),
        (["show", "-s", "asm"], "C0212"),
    ],
)
def test_mistakes_with_models_are_diagnostics(capsys: Any, net: Path, argv: list[str], part: str) -> None:
    code, out, err = run(capsys, argv[0], net, *argv[1:], "-t", "1")
    assert (code, out) == (1, "")
    assert part in err


def test_a_file_that_is_no_model_is_refused(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"nonsense")
    code, _, err = run(capsys, "run", path)
    assert code == 1
    assert err.startswith("error[O")


@pytest.mark.parametrize("command", [["explain", "--measure"], ["bench", "--peers", "none"]])
def test_a_model_that_leaves_shapes_open_says_how_a_command_line_gives_them(capsys: Any, tmp_path: Path, command: list[str]) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    code, out, err = run(capsys, command[0], path, *command[1:], "-t", "1")
    assert (code, out) == (1, "") and "O011" in err and "as `x=f32[1,4]`" in err
