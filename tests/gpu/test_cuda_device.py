"""What a device is asked for, in which order and with which numbers; what is said when it is missing or refuses. No device is needed."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda

from codegen.cuda import tensor_maps
from codegen.cuda.arguments import Arguments
from codegen.cuda.bindings import core, driver
from codegen.cuda.compile import Compiled
from codegen.cuda.device import Device, Work, devices, driver_version
from codegen.cuda.errors import DeviceError, Unavailable
from codegen.dtypes import bf16, f32
from codegen.gpu.dispatch import BoundMap
from codegen.gpu.program import Kernel, Launch, Program, Scratch, TensorMap
from codegen.loops.nodes import Add, FloorDiv, Int, Mul, Var

N = Var("N")
BLOCKS = (FloorDiv(Add(N, Int(31)), Int(32)), Int(1), Int(1))
SQUARE = Kernel("square", "", ("x", "t"), ("N",), (32, 1, 1))
TWICE = Kernel("twice", "", ("t", "y"), ("N",), (32, 1, 1), shared_bytes=64 * 1024, checks=True)
PROGRAM = Program(
    "both", ("x", "y"), ("N",), (SQUARE, TWICE), (Launch("square", BLOCKS), Launch("twice", BLOCKS)), (Scratch("t", f32, Mul(N, Int(1))),)
)
COMPILED = Compiled("sm_90a", b"machine code", {})


def floats(address: int, n: int) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array((ctypes.c_float * n).from_address(address))


def square(grid: tuple[int, ...], x: int, t: int, n: int) -> None:
    floats(t, n)[:] = floats(x, n) ** 2


def twice(grid: tuple[int, ...], t: int, y: int, n: int, status: int) -> None:
    floats(y, n)[:] = 2 * floats(t, n)
    ctypes.c_int32.from_address(status).value = 3


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda({"square": square, "twice": twice})
    made.install(monkeypatch)
    return made


def started(fake: FakeCuda) -> Device:
    device = Device()
    fake.calls.clear()
    return device


def work_on(device: Device, values: np.ndarray[Any, Any]) -> tuple[Work, int, int]:
    """Return work on `values`, and where its result and its status are."""
    sizes = {"N": len(values)}
    code = device.load(PROGRAM, COMPILED)
    x, y = device.allocate(values.nbytes), device.allocate(values.nbytes)
    scratch, status = device.allocate(code.scratch(sizes).size_bytes), device.allocate(4)
    device.upload(x.address, values)
    device.clear(status.address, 4)
    addresses = {"x": x.address, "y": y.address}
    return code.work(sizes, addresses, scratch.address, status.address, (x, y, scratch, status)), y.address, status.address


def test_a_program_runs_in_the_order_in_which_it_was_asked_for(fake: FakeCuda) -> None:
    device = started(fake)
    values = np.arange(100, dtype=np.float32)
    work, result, status = work_on(device, values)
    device.run([work])
    found, code = np.empty_like(values), np.zeros(1, np.int32)
    device.download(result, found)
    device.download(status, code)
    np.testing.assert_array_equal(found, 2 * values**2)
    assert code[0] == 3
    assert fake.calls == [
        "load both",
        "twice may ask for 65536 shared",
        *("allocate 400", "allocate 400", "allocate 512", "allocate 4"),
        *("upload 400", "clear 4"),
        "launch square (4, 1, 1) (32, 1, 1) 0",
        "launch twice (4, 1, 1) (32, 1, 1) 65536",
        *("download 400", "wait", "download 4", "wait"),
    ]


def test_a_graph_is_captured_once_and_launched_again_and_again(fake: FakeCuda) -> None:
    device = started(fake)
    work, result, _ = work_on(device, np.ones(3, np.float32))
    fake.calls.clear()
    graph = device.captured([work, work])
    launches = ["launch square (1, 1, 1) (32, 1, 1) 0", "launch twice (1, 1, 1) (32, 1, 1) 65536"]
    assert fake.calls == ["begin graph", *launches, *launches, "end graph", "upload graph"]
    found = np.zeros(3, np.float32)
    device.download(result, found)
    assert np.isnan(found).all()  # nothing ran yet
    fake.calls.clear()
    graph.launch()
    device.download(result, found)
    np.testing.assert_array_equal(found, 2.0)
    assert fake.calls == ["launch graph", "download 12", "wait"]


def test_work_keeps_the_code_that_it_launches(fake: FakeCuda) -> None:
    device = started(fake)
    code = device.load(PROGRAM, COMPILED)
    work = code.work({"N": 3}, {"x": 256, "y": 512}, 1024, 2048)
    kept = weakref.ref(code.kernels["square"])
    del code
    assert kept() is not None
    graph = device.captured([work])
    del work
    assert kept() is not None
    del graph
    gc.collect()
    assert kept() is None


def test_what_others_ask_for_while_a_graph_is_captured_is_no_part_of_it(fake: FakeCuda) -> None:
    device = started(fake)
    place, found = device.allocate(12), np.zeros(3, np.float32)
    fake.meanwhile = lambda: device.upload(place.address, np.ones(3, np.float32))
    device.captured([]).launch()
    device.download(place.address, found)
    assert found.tolist() == [1, 1, 1]


def test_threads_that_capture_graphs_of_one_device_take_turns(fake: FakeCuda) -> None:
    device = started(fake)
    other = threading.Thread(target=lambda: device.on(9).captured([]))

    def capture_too() -> None:
        fake.meanwhile = lambda: None
        other.start()
        other.join(0.01)

    fake.meanwhile = capture_too
    device.captured([])
    other.join()
    assert [call for call in fake.calls if call != "upload graph"][-4:] == ["begin graph", "end graph"] * 2


def test_a_graph_is_timed_by_events_around_its_launches(fake: FakeCuda) -> None:
    device = started(fake)
    graph = device.captured([])
    fake.calls.clear()
    assert device.seconds(graph, 4) == pytest.approx(5e-3 / 4)
    assert fake.calls == ["event", *["launch graph"] * 4, "event"]


def test_a_device_works_on_the_stream_of_another_library(fake: FakeCuda) -> None:
    assert Device(stream=123).stream.handle == 123
    Device(stream="torch's")
    assert "stream of torch's" in fake.calls


def test_one_device_works_on_several_streams(fake: FakeCuda) -> None:
    device = started(fake)
    theirs = device.on(123)
    assert (theirs.stream.handle, device.stream.handle, theirs.is_primary_stream, device.is_primary_stream) == (123, 7, False, True)
    assert [device.on(n).stream.handle for n in (0, 1, 2)] == ["legacy", "legacy", "per thread"]
    assert device.on(device.stream).is_primary_stream
    graph = device.captured([])
    fake.calls.clear()
    theirs.follow(device.stream)
    graph.launch(theirs)
    assert fake.calls == ["stream 123 waits for 7", "launch graph"]


def test_nothing_is_copied_for_empty_arrays(fake: FakeCuda) -> None:
    device = started(fake)
    device.upload(0, np.empty((0, 3), np.float32))
    device.copy(0, 0, 0)
    device.clear(0, 0)
    device.download(0, np.empty(0, np.float32))
    assert fake.calls == ["wait"]


@pytest.mark.parametrize("locked", [False, True], ids=["pageable", "page-locked"])
def test_what_was_uploaded_may_be_changed_at_once(locked: bool, fake: FakeCuda) -> None:
    device, array, found = started(fake), np.ones(3, np.float32), np.zeros(3, np.float32)
    place = device.allocate(array.nbytes)
    fake.locked = {array.ctypes.data} if locked else set()
    device.upload(place.address, array)
    array[:] = 2
    device.download(place.address, found)
    assert found.tolist() == [1, 1, 1]


def test_memory_is_copied_on_the_device(fake: FakeCuda) -> None:
    device = started(fake)
    a, b = device.allocate(16), device.allocate(16)
    device.upload(a.address, np.arange(4, dtype=np.int32))
    device.copy(b.address, a.address, 16)
    found = np.empty(4, np.int32)
    device.download(b.address, found)
    assert found.tolist() == [0, 1, 2, 3]
    assert a.address % 256 == 0


def test_machine_code_for_another_device_is_refused_with_the_target_to_ask_for(fake: FakeCuda) -> None:
    device = started(fake)
    with pytest.raises(Unavailable, match=r"machine code for sm_120 does not run on fake 0 \(9\.0\): compile for `cuda:sm_90a`"):
        device.load(PROGRAM, replace(COMPILED, arch="sm_120"))


@pytest.mark.parametrize("call", ["load", "allocate", "upload", "clear", "launch", "download", "wait", "twice may ask"])
def test_what_the_driver_refuses_says_what_was_asked_for(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda({"square": square, "twice": twice}, fails=call)
    fake.install(monkeypatch)
    device = Device()
    with pytest.raises(DeviceError, match=r"^(load|allocat|copy|clear|launch|wait)ing .*: CUDA_ERROR_OF_THE_TEST[^\n]*$"):
        work, result, _ = work_on(device, np.ones(3, np.float32))
        device.run([work])
        device.download(result, np.empty(3, np.float32))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("launch square", "launching `square`, 1 x 1 x 1 blocks of 32 x 1 x 1 threads, 0 bytes of shared memory asked for: CUDA_ERROR"),
        ("twice may ask", "loading `both`: allowing `twice` 65536 bytes of shared memory: CUDA_ERROR"),
    ],
)
def test_what_the_driver_refuses_of_a_kernel_names_it(call: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda({"square": square, "twice": twice}, fails=call)
    fake.install(monkeypatch)
    device = Device()
    with pytest.raises(DeviceError) as refused:
        device.run([work_on(device, np.ones(3, np.float32))[0]])
    assert str(refused.value).startswith(named)


def test_without_a_driver_the_error_says_so() -> None:
    for ask in (driver_version, devices, Device):
        with pytest.raises(Unavailable, match="there is no CUDA driver: install NVIDIA's driver, on a machine with one of its GPUs"):
            ask()


def test_without_a_device_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(devices=0).install(monkeypatch)
    assert driver_version() == (13, 0)
    with pytest.raises(Unavailable, match="the CUDA driver sees no device"):
        Device()


def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(devices=2).install(monkeypatch)
    assert [(found.number, found.name, found.arch and found.arch.name, found.multiprocessors) for found in devices()] == [
        (0, "fake 0", "sm_90a", 114),
        (1, "fake 1", "sm_90a", 114),
    ]
    assert Device(1).number == 1
    with pytest.raises(Unavailable, match="there is no device 2: the devices are 0 to 1"):
        Device(2)


def test_a_device_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(capability=(6, 1)).install(monkeypatch)
    assert devices()[0].arch is None
    with pytest.raises(Unavailable, match=r"fake 0 has compute capability 6\.1"):
        Device()


def test_a_tensor_map_is_made_of_the_address_and_the_sizes_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    fake = FakeCuda({"tiles": lambda grid, y, tiles, n: taken.append(tiles)})
    fake.install(monkeypatch)
    tiles = TensorMap("tiles", "x", bf16, (N, Int(64)), (Int(72),), (16, 64), 128, Int(8))
    kernel = Kernel("tiles", "", ("y",), ("N",), (32, 1, 1), maps=(tiles,))
    program = Program("p", ("x", "y"), ("N",), (kernel,), (Launch("tiles", BLOCKS),))
    device = started(fake)
    device.run([device.load(program, COMPILED).work({"N": 100}, {"x": 4096, "y": 64})])
    (made,) = taken
    assert (made.box, made.swizzle, made.near) == ((16, 64), "SWIZZLE_128B", "L2_128B")
    assert {name: made.tensor[name] for name in ("shape", "strides", "typestr", "data")} == {
        "shape": (100, 64),
        "strides": (144, 2),
        "typestr": "<u2",
        "data": (4112, False),
    }


@pytest.mark.parametrize("before", range(5))
def test_arguments_lie_where_the_driver_takes_tensor_maps(before: int, fake: FakeCuda) -> None:
    bound = BoundMap(4096, 0, 2, (100, 64), (128,), (16, 64), 128)
    arguments = [Arguments([*range(before), bound, 7]) for _ in range(20)]
    for each in arguments:
        words = [ctypes.c_int64.from_address(place).value for place in each.pointers]
        assert words[:before] == [*range(before)] and words[-1] == 7
        assert each.pointers[before] % 128 == 0
    assert len(fake.maps) == 20


def test_a_tensor_map_that_the_driver_refuses_says_what_it_was_to_be(fake: FakeCuda) -> None:
    odd = BoundMap(4096, 0, 2, (100, 64), (128,), (16, 64), 128)
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_INVALID_VALUE for BoundMap\(address=4096.*swizzle=128\)"):
        tensor_maps.make(odd, 64)


def test_the_stand_in_has_no_names_that_the_real_packages_lack() -> None:
    fake = FakeCuda()
    for stand_in, real in ((fake.core, core), (fake.driver, driver)):
        assert [name for name in vars(stand_in) if not hasattr(real, name)] == []
    pieces = {
        core.Device: ("get_all_devices", "set_current", "create_stream", "compute_capability", "device_id", "name", "properties"),
        core.DeviceMemoryResource: ("allocate",),
        core.Buffer: ("handle", "from_handle"),
        core.ObjectCode: ("from_cubin", "get_kernel"),
        core.Kernel: ("handle",),
        core.Stream: ("from_handle", "handle", "sync", "wait", "record", "create_graph_builder"),
        core.Event: ("sync", "is_done", "__sub__"),
        core.graph.GraphBuilder: ("begin_building", "end_building", "complete", "stream"),
        core.graph.Graph: ("upload", "launch"),
    }
    assert [(owner, name) for owner, names in pieces.items() for name in names if not hasattr(owner, name)] == []
    core.EventOptions(timing_enabled=True)
    assert driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
