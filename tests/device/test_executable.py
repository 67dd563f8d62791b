"""A model on a device is its weights, an arena and launches, asked for in the right order; a stand-in for the driver records them."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from usual_device import device_model

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from fake_cuda import FakeCuda

import tensorlang as tl
from codegen.cuda.arch import named
from codegen.cuda.arrays import ArrayError
from codegen.cuda.device import Device
from codegen.dtypes import f32
from polyhedral.expr import Name
from stdlib.onnx import Importer
from tensorlang.backends.cuda.executable import FEW, DeviceExecutable, SharedWeights, laid_out
from tensorlang.backends.cuda.machine import machine_code
from tensorlang.graph.nodes import Graph, Value
from tensorlang.schedule.layout import Layout

WEIGHT = np.arange(8, dtype=np.float32)


def floats(address: int) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array((ctypes.c_float * 8).from_address(address))


def shifted(grid: tuple[int, ...], x: int, w: int, y: int) -> None:
    floats(y)[:] = np.maximum(floats(x) + floats(w), 0)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda({"tl_0_0": shifted})
    made.install(monkeypatch)
    return made


def on_device(nodes: list[onnx.NodeProto], given: tuple[str, int], weight: str, shape: tuple[int, ...] = (8,)) -> DeviceExecutable:
    """Return a network of eight numbers in and out, or of as many in as `shape` has."""
    name, kind = given
    inputs = [helper.make_tensor_value_info(name, kind, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (8,))]
    graph = helper.make_graph(nodes, "net", inputs, outputs, [numpy_helper.from_array(WEIGHT, weight)])
    model = device_model(Importer().load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)))
    compiled = machine_code([made.launched for made in model.kernels.values()], named("cuda:sm_90a"), None, 1)
    return DeviceExecutable(model, compiled, Device())


@pytest.fixture
def executable(fake: FakeCuda) -> DeviceExecutable:
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    made = on_device(nodes, ("x", TensorProto.FLOAT), "w")
    fake.calls.clear()
    return made


def test_arrays_of_the_host_are_copied_in_and_results_are_the_callers(executable: DeviceExecutable, fake: FakeCuda) -> None:
    x = np.linspace(-8, 8, 8, dtype=np.float32)
    (first,) = executable([x])
    (second,) = executable([x + 1])
    np.testing.assert_array_equal(first.numpy(), np.maximum(x + WEIGHT, 0))
    np.testing.assert_array_equal(second.numpy(), np.maximum(x + 1 + WEIGHT, 0))


def test_a_number_of_the_host_is_copied_in_as_one(fake: FakeCuda) -> None:
    def by_one(grid: tuple[int, ...], x: int, w: int, y: int) -> None:
        floats(y)[:] = ctypes.c_float.from_address(x).value + floats(w)

    fake.kernels["tl_0_0"] = by_one
    made = on_device([helper.make_node("Add", ["x", "w"], ["y"])], ("x", TensorProto.FLOAT), "w", ())
    np.testing.assert_array_equal(made([np.float32(3)])[0].numpy(), WEIGHT + 3)


def test_the_second_run_on_the_same_addresses_is_a_graph(executable: DeviceExecutable, fake: FakeCuda) -> None:
    x = np.ones(8, np.float32)
    calls = []
    for _ in range(3):
        fake.calls.clear()
        executable([x])
        calls.append([call.split(" (")[0] for call in fake.calls])
    assert calls[0] == ["upload 32", "allocate 32", "launch tl_0_0"]
    assert calls[1] == ["upload 32", "allocate 32", "begin graph", "launch tl_0_0", "end graph", "upload graph", "launch graph"]
    assert calls[2] == ["upload 32", "allocate 32", "launch graph"]


def test_results_that_are_kept_are_not_written_again(executable: DeviceExecutable) -> None:
    given = [np.full(8, n, np.float32) for n in range(1, 6)]
    found = [executable([x])[0] for x in given]
    assert len({array.address for array in found}) == len(found)
    for x, array in zip(given, found, strict=True):
        np.testing.assert_array_equal(array.numpy(), x + WEIGHT)


def test_results_of_many_launches_are_copied_from_where_one_graph_leaves_them(executable: DeviceExecutable, fake: FakeCuda) -> None:
    model = executable.model
    (call,) = model.calls
    many = replace(model, calls=(call,) * (FEW + 1))
    made = DeviceExecutable(many, machine_code([k.launched for k in model.kernels.values()], named("cuda:sm_90a"), None, 1), Device())
    x, kept = np.ones(8, np.float32), []
    for _ in range(3):
        fake.calls.clear()
        kept += made([x])
    assert [call.split(" (")[0] for call in fake.calls] == ["upload 32", "allocate 32", "launch graph", "copy 32"]
    assert all((array.numpy() == x + WEIGHT).all() for array in kept)


def test_arrays_on_the_device_are_read_where_they_lie(executable: DeviceExecutable, fake: FakeCuda) -> None:
    (once,) = executable([np.ones(8, np.float32)])
    fake.calls.clear()
    given = once.__cuda_array_interface__
    (twice,) = executable([type("Theirs", (), {"__cuda_array_interface__": given})()])
    assert [call.split(" (")[0] for call in fake.calls] == ["allocate 32", "launch tl_0_0", "event"]
    np.testing.assert_array_equal(twice.numpy(), 1 + 2 * WEIGHT)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shape": (2, 4)}, r"it is f32\[2, 4\], and `x` is f32\[8\]"),
        ({"typestr": "<i4"}, r"it is i32\[8\], and `x` is f32\[8\]"),
    ],
)
def test_an_array_that_does_not_fit_says_why(executable: DeviceExecutable, change: dict[str, object], why: str) -> None:
    (found,) = executable([np.ones(8, np.float32)])
    given = {**found.__cuda_array_interface__, **change}
    with pytest.raises(ArrayError, match=why):
        executable([type("Theirs", (), {"__cuda_array_interface__": given})()])
    with pytest.raises(ArrayError, match=r"it has the shape \[4\], and `x` is f32\[8\]"):
        executable([np.ones(4, np.float32)])
    moved = {**found.__cuda_array_interface__, "data": (found.address + 4, False)}
    with pytest.raises(ArrayError, match="no multiple of 16"):
        executable([type("Theirs", (), {"__cuda_array_interface__": moved})()])


def test_a_kernel_that_refuses_its_data_names_the_requirement(fake: FakeCuda) -> None:
    def gathered(grid: tuple[int, ...], table: int, ids: int, y: int, status: int) -> None:
        if max((ctypes.c_int64 * 8).from_address(ids)) > 7:
            ctypes.c_int32.from_address(status).value = 1

    fake.kernels["tl_0_0"] = gathered
    made = on_device([helper.make_node("Gather", ["w", "i"], ["y"])], ("i", TensorProto.INT64), "w")
    made([np.arange(8)])
    with pytest.raises(tl.RunError, match=r"R0306(?s:.*)`ids` is declared in -8\.\.8, and an element lies outside"):
        made([np.arange(8) + 1])
    made([np.arange(8)])


def test_a_run_happens_on_the_stream_that_is_given_after_the_run_before(executable: DeviceExecutable, fake: FakeCuda) -> None:
    x = np.ones(8, np.float32)
    calls = []
    for stream in (None, 9, 9, 8, None):
        fake.calls.clear()
        (found,) = executable([x], stream)
        assert found.device.stream.handle == (stream or 7)
        calls.append([call for call in fake.calls if "wait" in call or call == "event"])
    on_nine, on_eight, back = ["stream 9 waits for 7", "event"], ["stream 8 waits for an event", "event"], ["stream 7 waits for an event"]
    assert calls == [[], on_nine, ["event"], on_eight, back]


def test_the_time_of_a_run_is_that_of_its_graph_between_two_events(executable: DeviceExecutable, fake: FakeCuda) -> None:
    seconds = executable.timer([np.ones(8, np.float32)])
    fake.calls.clear()
    assert seconds(3) > 0 and seconds(1) > 0
    assert fake.calls == ["event", *["launch graph"] * 3, "event", "event", "launch graph", "event"]


def test_times_are_those_of_runs_after_whatever_ran_on_other_streams(executable: DeviceExecutable, fake: FakeCuda) -> None:
    x = np.ones(8, np.float32)
    seconds = executable.timer([x])
    executable([x], 9)
    fake.calls.clear()
    assert seconds(1) > 0
    assert fake.calls == ["stream 7 waits for an event", "event", "launch graph", "event"]


def test_constants_are_on_the_device_once_for_all_that_share_them(fake: FakeCuda) -> None:
    shared, device = SharedWeights(), Device()
    first = shared.memory(device, WEIGHT)
    assert shared.memory(device, WEIGHT.copy()) is first
    assert shared.memory(device, WEIGHT + 1) is not first
    alone = SharedWeights(sharing=False)
    assert alone.memory(device, WEIGHT) is not alone.memory(device, WEIGHT)


def test_constants_lie_in_the_order_of_their_layout() -> None:
    turned = Value("w", f32, (2, 4), Layout(("a", "b"), (Name("b"), Name("a")), (4, 2)))
    graph = Graph("net", (), (), {"w": turned}, {"w": WEIGHT.reshape(2, 4)}, ())
    np.testing.assert_array_equal(laid_out(graph)["w"], WEIGHT.reshape(2, 4).T)
