"""Models and operators compiled for a device look like others from the outside; one stands in for the driver, and runs kernels by the
emulator."""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from usual_device import device_model

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from fake_cuda import FakeCuda

import tensorlang as tl
from codegen.cuda.errors import Unavailable
from codegen.gpu import emulator
from codegen.gpu.program import Program
from codegen.loops.evaluate import evaluate
from codegen.store import Cache
from stdlib.onnx import Importer
from tensorlang.backends.gpu.model import DeviceModel

OPERATORS = """
op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    m[i] = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    s[i] = sum(j) e[i, j]
    y[i, j] = e[i, j] / s[i]
}
op both(x: f32[N], attr by: float = 2.0) -> (y: f32[N], z: f32[N]) {
    y[i] = x[i] * by
    z[i] = x[i] + by
}
op scale(x: f32[N]) -> (y: f32[N]) { y[i] = 3.0 * x[i] }
op take(x: f32[N], at: i64[K]) -> (y: f32[K]) { y[k] = x[at[k]] }
schedule scale for cuda {
    split i by 64 -> io, ii
    bind io to block.x
    bind ii to thread.x
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "objects"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    made.install(monkeypatch)
    return made


def network(path: Path, rows: int | str = 5) -> Path:
    """Write a small network, two products with an activation and a softmax of the rest, and return where it is."""
    rng = np.random.default_rng(5)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("w", (12, 20)), ("v", (20, 7)))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="active"),
        helper.make_node("MatMul", ["b", "v"], ["c"], name="second"),
        helper.make_node("Softmax", ["c"], ["y"], name="chances", axis=1),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (rows, 12)), ("y", (rows, 7))))
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def emulated(model: DeviceModel) -> dict[str, Callable[..., None]]:
    """Return the kernels of a model as functions of addresses."""
    found: dict[str, Callable[..., None]] = {}
    for call in model.calls:
        program = model.kernels[call.kernel].launched
        shapes: dict[str, tuple[np.dtype[Any], int]] = {s.name: (s.dtype.numpy, evaluate(s.elements, {})) for s in program.scratch}
        for param, value in call.values.items():
            tensor = model.graph.values[value]
            shapes[param] = (tensor.dtype.numpy, int(np.prod(tensor.shape)))
        for launch in program.launches:
            kernel = program.kernel(launch.kernel)
            alone = Program(kernel.name, kernel.buffers, (), (kernel,), (launch,))

            def run(grid: object, *addresses: int, alone: Program = alone, shapes: dict[str, tuple[np.dtype[Any], int]] = shapes) -> None:
                arrays = {
                    name: np.frombuffer((ctypes.c_byte * (shapes[name][1] * shapes[name][0].itemsize)).from_address(a), shapes[name][0])
                    for name, a in zip(alone.params, addresses, strict=False)
                }
                code = emulator.run(alone, {}, arrays)
                if code:
                    ctypes.c_int32.from_address(addresses[-1]).value = code

            found[kernel.name] = run
    return found


def compiled(path: Path) -> tl.CompiledModel:
    return tl.compile(path, target="cuda:sm_90a", importers=[Importer()])


X = np.random.default_rng(1).standard_normal((5, 12)).astype(np.float32)


def test_a_model_on_the_device_gives_what_it_gives_here(tmp_path: Path, fake: FakeCuda) -> None:
    path = network(tmp_path / "net.onnx")
    model = compiled(path)
    fake.kernels = emulated(model.made.built.model)
    expected = tl.compile(path, importers=[Importer()]).run({"x": X})["y"]
    for _ in range(3):
        found = model.run({"x": X})["y"]
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.prepared({"x": X})()["y"], found)
    with pytest.raises(tl.RunError, match=r"R0307.*not supported yet"):
        model.prepared({"x": X}, {"y": found})
    assert [call.name for call in model.profile({"x": X})] == [call.node.program.name for call in model.made.built.model.calls]
    assert model.inputs[0].shape == (5, 12) and model.outputs[0].name == "y"
    assert "took" in model.explain({"x": X})


def test_what_is_given_on_the_device_comes_back_there(tmp_path: Path, fake: FakeCuda) -> None:
    model = compiled(network(tmp_path / "net.onnx"))
    fake.kernels = emulated(model.made.built.model)
    expected = model.run({"x": X})["y"]
    block = _aligned(X)
    interface = {"version": 3, "shape": (5, 12), "typestr": "<f4", "data": (block.ctypes.data, False)}
    found = model.run({"x": type("Theirs", (), {"__cuda_array_interface__": interface})()})["y"]
    assert found.__dlpack_device__() == (2, 0)
    np.testing.assert_array_equal(found.numpy(), expected)
    scale = tl.parse(OPERATORS, target="cuda:sm_90a").scale
    line = np.ascontiguousarray(found.numpy()[0])
    fake.kernels = emulated(scale.stages(x=line, dump=lambda stage, text: None).model)
    on_line = {**found.__cuda_array_interface__, "shape": (7,)}
    tripled = scale(type("Theirs", (), {"__cuda_array_interface__": on_line})())
    np.testing.assert_array_equal(tripled.numpy(), 3 * line)


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    block = np.empty(array.nbytes + 256, np.uint8)
    start = -block.ctypes.data % 256
    result = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def test_a_model_of_open_shapes_is_compiled_for_each_that_it_meets(tmp_path: Path, fake: FakeCuda) -> None:
    path = network(tmp_path / "net.onnx", "rows")
    model = compiled(path)
    with pytest.raises(tl.RunError, match="O011"):
        model.explain()
    for rows in (3, 5):
        known = tl.compile(path, target="cuda:sm_90a", shapes={"x": (rows, 12)}, importers=[Importer()])
        fake.kernels = emulated(known.made.built.model)
        np.testing.assert_allclose(model.run({"x": X[:rows]})["y"].sum(axis=1), np.ones(rows), rtol=1e-5)
    assert model.made.outputs[0].shape == (5, 7)
    assert model.explain().splitlines()[-2:] == ["        x [3, 12]", "        x [5, 12]"]


def test_shapes_share_weights_and_the_last_ones_used_are_kept(tmp_path: Path, fake: FakeCuda) -> None:
    path = network(tmp_path / "net.onnx", "rows")
    model = compiled(path)
    model.kept = 2
    for turn, rows in enumerate((2, 3, 2, 4)):
        known = tl.compile(path, target="cuda:sm_90a", shapes={"x": (rows, 12)}, importers=[Importer()])
        fake.kernels = emulated(known.made.built.model)
        fake.calls.clear()
        model.run({"x": X[:rows]})
        weights = [call for call in fake.calls if call in ("upload 960", "upload 560")]
        assert len(weights) == (0 if turn else 2)
    assert model.explain().splitlines()[-2:] == ["        x [2, 12]", "        x [4, 12]"]


def test_a_run_happens_on_the_current_stream_of_the_library_that_gives_its_input(
    tmp_path: Path, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = compiled(network(tmp_path / "net.onnx"))
    fake.kernels = emulated(model.made.built.model)
    block = _aligned(X)
    interface = {"version": 3, "shape": (5, 12), "typestr": "<f4", "data": (block.ctypes.data, False)}
    theirs = type("Tensor", (), {"__cuda_array_interface__": interface, "__module__": "torch", "device": "cuda:0"})()
    current = Mock(return_value=SimpleNamespace(cuda_stream=55))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(current_stream=current)))
    first = model.run({"x": theirs})["y"]
    assert first.device.stream.handle == 55 and current.call_args.args == ("cuda:0",)
    assert model.run({"x": theirs}, stream=66)["y"].device.stream.handle == 66
    assert model.run({"x": type("Theirs", (), {"__cuda_array_interface__": interface})()})["y"].device.stream.handle == 7
    assert type(model.run({"x": X}, stream=66)["y"]) is np.ndarray
    np.testing.assert_allclose(first.numpy(), model.run({"x": X})["y"])
    assert model.seconds({"x": X}) > 0


def test_operators_run_under_the_schedules_that_the_file_states_for_the_device(fake: FakeCuda) -> None:
    ops = tl.parse(OPERATORS, target="cuda:sm_90a")
    x = np.linspace(-1, 1, 150, dtype=np.float32)
    stages: dict[str, str] = {}
    fake.kernels = emulated(ops.scale.stages(x=x, dump=stages.__setitem__).model)
    assert "bind ii to thread.x" in stages["schedule"] and "blocks of 64 threads" in stages["launches"]
    np.testing.assert_array_equal(ops.scale(x), 3 * x)
    assert "<text>:" in ops.scale.explain(x)
    other = ops.scale.schedule("split i by 32 -> io, ii\nbind io to block.x\nbind ii to thread.x")
    fake.kernels = emulated(other.stages(x=x, dump=stages.__setitem__).model)
    np.testing.assert_array_equal(other(x), 3 * x)
    assert "5 blocks of 32 threads" in other.explain(x)


def test_a_schedule_that_the_file_states_is_never_replaced_by_another() -> None:
    text = """op twice(x: f32[M, N]) -> (y: f32[M, N]) { y[i, j] = 2.0 * x[i, j] }
schedule twice for cuda {
    bind i to thread.x
    bind j to block.x
}
"""
    with pytest.raises(tl.CompileError) as refused:
        tl.parse(text, target="cuda:sm_90a").twice.stages(np.zeros((8, 40), np.float32), dump=lambda *_: None)
    lines = str(refused.value).splitlines()
    assert lines[0] == "error[S0220]: the loop `y_j` over blocks does not stand at the outside of its launch"
    assert "4 |     bind j to block.x" in lines


def test_operators_with_attributes_return_what_they_name(fake: FakeCuda) -> None:
    ops = tl.parse(OPERATORS, target="cuda:sm_90a")
    x = np.arange(8, dtype=np.float32)
    fake.kernels = emulated(ops.both.stages(x=x, by=4.0, dump=lambda stage, text: None).model)
    y, z = ops.both(x, by=4.0)
    np.testing.assert_array_equal(y, 4 * x)
    np.testing.assert_array_equal(z, 4 + x)


def test_operators_refuse_data_out_of_range(fake: FakeCuda) -> None:
    take = tl.parse(OPERATORS, target="cuda:sm_90a").take
    x, at = np.arange(4, dtype=np.float32), np.array([3, 0])
    fake.kernels = emulated(take.stages(x=x, at=at, dump=lambda stage, text: None).model)
    np.testing.assert_array_equal(take(x, at), [3, 0])
    with pytest.raises(tl.RunError, match="R0306"):
        take(x, at + 1)


def test_a_pickled_model_or_operator_is_made_again(tmp_path: Path, fake: FakeCuda) -> None:
    model = compiled(network(tmp_path / "net.onnx"))
    again = pickle.loads(pickle.dumps(model))
    assert again.explain() == model.explain()
    scale = tl.parse(OPERATORS, target="cuda:sm_90a").scale
    assert pickle.loads(pickle.dumps(scale)).explain(X[0]) == scale.explain(X[0])


def test_several_processes_write_the_kernels_of_a_large_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Importer().load(onnx.load(network(tmp_path / "net.onnx")))
    alone = device_model(graph, Cache(tmp_path / "alone"))
    monkeypatch.setattr("tensorlang.worker.WORTH_A_PROCESS", 1)
    told: list[tuple[int, int]] = []
    together = device_model(graph, Cache(tmp_path / "together"), lambda what, done, total: told.append((done, total)), processes=2)
    assert together.kernels == alone.kernels and told[0] == (0, len(alone.kernels)) and told[-1] == (len(alone.kernels),) * 2


def test_a_second_process_finds_kernels_and_machine_code(tmp_path: Path) -> None:
    first = compiled(network(tmp_path / "net.onnx"))
    with patch("tensorlang.backends.gpu.build.device_kernel", Mock(side_effect=AssertionError)):
        second = compiled(tmp_path / "net.onnx")
    assert all(code.cached for code in second.made.built.code) and not any(code.cached for code in first.made.built.code)
    assert second.explain() == first.explain()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The importer is found as that of an installed package is."""
    monkeypatch.setattr("tensorlang.api.installed_importers", lambda: (Importer(),))


def test_a_second_process_neither_imports_the_model_nor_compiles(tmp_path: Path, installed: None) -> None:
    path = network(tmp_path / "net.onnx")
    first = tl.compile(path, target="cuda:sm_90a", precision="bf16").explain()
    code = (
        "import sys, tensorlang as tl\n"
        f"text = tl.compile({str(path)!r}, target='cuda:sm_90a', precision='bf16').explain()\n"
        "assert not {'onnx', 'lark', 'islpy', 'tensorlang.planning', 'tensorlang.backends.gpu.build'} & set(sys.modules)\n"
        "sys.stdout.write(text)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == first
    (kept,) = (tmp_path / "objects" / "models").iterdir()
    assert {p.name for p in kept.iterdir()} == {"parts", "constants"}


def test_a_model_from_the_disk_gives_the_same(tmp_path: Path, fake: FakeCuda, installed: None) -> None:
    path = network(tmp_path / "net.onnx")
    fresh = tl.compile(path, target="cuda:sm_90a", importers=[Importer()])
    assert fresh.made.built.constants is None
    fake.kernels = emulated(fresh.made.built.model)
    expected = fresh.run({"x": X})["y"]
    for _ in range(2):
        model = tl.compile(path, target="cuda:sm_90a")
        assert model.made.built.constants is not None
        np.testing.assert_array_equal(model.run({"x": X})["y"], expected)
    other = tl.compile(path, target="cuda:sm_80")
    assert other.made.built.code[0].arch == "sm_80"
    (_, parts) = sorted((tmp_path / "objects" / "models").glob("*/parts"))
    parts.write_bytes(parts.read_bytes()[:-1])
    np.testing.assert_array_equal(tl.compile(path, target="cuda:sm_90a").run({"x": X})["y"], expected)


def test_without_a_driver_all_but_running_works(tmp_path: Path) -> None:
    with patch("codegen.cuda.device.Device", Mock(side_effect=Unavailable("there is no CUDA driver", "install one"))):
        model = compiled(network(tmp_path / "net.onnx"))
        text = model.explain()
        assert text.startswith("model `net` for cuda:sm_90a: ") and "registers" in text and "on H100 SXM" in text
        with pytest.raises(tl.RunError, match=r"R0321.*there is no CUDA driver(?s:.*)install one(?s:.*)target='cpu'"):
            model.run({"x": X})
        scale = tl.parse(OPERATORS, target="cuda").scale
        assert "time       not measured: there is no CUDA driver" in scale.explain(X[0])
        with pytest.raises(tl.RunError, match="R0321"):
            scale(X[0])


def test_arrays_of_the_host_are_checked_as_for_other_models(tmp_path: Path, fake: FakeCuda) -> None:
    model = compiled(network(tmp_path / "net.onnx"))
    for feeds, code in (({}, "R0301"), ({"x": X, "z": X}, "R0302"), ({"x": X.astype(np.int32)}, "R0303"), ({"x": X[1:]}, "R0304")):
        with pytest.raises(tl.RunError, match=code):
            model.run(feeds)


@pytest.mark.parametrize(
    ("options", "code"), [({"target": "cuda:sm_1"}, "C0101"), ({"target": "cuda", "precision": "f17"}, "C0103")], ids=str
)
def test_what_no_device_does_is_refused(tmp_path: Path, options: dict[str, str], code: str) -> None:
    with pytest.raises(tl.CompileError, match=code):
        tl.compile(network(tmp_path / "net.onnx"), importers=[Importer()], **options)


def test_models_are_compiled_in_the_precision_that_is_asked_for(tmp_path: Path, fake: FakeCuda) -> None:
    path = network(tmp_path / "net.onnx")
    expected = tl.compile(path, importers=[Importer()]).run({"x": X})["y"]
    for precision, error in (("bf16", 0.05), ("f16", 0.005)):
        model = tl.compile(path, target="cuda:sm_90a", precision=precision, importers=[Importer()])
        fake.kernels = emulated(model.made.built.model)
        np.testing.assert_allclose(model.run({"x": X})["y"], expected, atol=error)
        assert pickle.loads(pickle.dumps(model)).explain() == model.explain() and f"{precision}[5, 20]" in model.explain()
    with pytest.raises(tl.CompileError, match="C0103"):
        tl.compile(path, precision="f16", importers=[Importer()])


def test_parts_are_taken_where_they_pay_or_where_somebody_insists(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx")
    plain = tl.compile(path, target="cuda:sm_75", precision="bf16x3", importers=[Importer()]).explain()
    assert "precision bf16x3: contractions stay f32; 3 products of bf16 for one of f32 do not pay" in plain
    forced = tl.compile(path, target="cuda:sm_75", precision="bf16x3", force_precision=True, importers=[Importer()]).explain()
    assert "are bf16x3" in forced


def test_what_is_proven_of_an_operator_is_about_its_schedule_for_the_device() -> None:
    text = "op running(x: f32[N]) -> (y: f32[N]) {\n    y[0] = x[0]\n    y[i] = y[i - 1] + x[i]   for i in 1..N\n}\n"
    text += "schedule running for cuda { bind i to thread }\n"
    with pytest.raises(tl.CompileError, match="S03"):
        tl.parse(text, target="cuda:sm_80").running.proofs(np.zeros(40, np.float32))
    assert "order of the schedule" in tl.parse(text, threads=1).running.proofs(np.zeros(40, np.float32))
