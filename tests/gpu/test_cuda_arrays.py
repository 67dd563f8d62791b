"""Arrays of other libraries are taken where they lie, and ours are given without a copy; streams wait for each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import FakeCuda

from codegen.cuda.arrays import ArrayError, DeviceArray, is_on_device, view_of
from codegen.cuda.device import Device
from codegen.dtypes import bf16, bool_, f32, i64


class ByDLPack:
    """An array that says it lies on a GPU; its memory is the host's."""

    def __init__(self, array: np.ndarray[Any, Any], place: tuple[int, int] = (2, 0)) -> None:
        self.array, self.place = array, place
        self.streams: list[object] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, *, stream: object = None, **asked: object) -> object:
        self.streams.append(stream)
        return self.array.__dlpack__()


class ByInterface:
    def __init__(self, array: np.ndarray[Any, Any], stream: int | None = None, **more: object) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "strides": array.strides,
            "stream": stream,
            **more,
        }


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    made.install(monkeypatch)
    return made


@pytest.fixture
def device(fake: FakeCuda) -> Device:
    made = Device()
    fake.calls.clear()
    return made


def test_what_lies_on_a_device_is_told_from_what_does_not() -> None:
    array = np.zeros(3, np.float32)
    assert is_on_device(ByDLPack(array))
    assert is_on_device(ByInterface(array))
    assert not is_on_device(array)
    assert not is_on_device([1.0])
    assert not is_on_device(ByDLPack(array, (1, 0)))


@pytest.mark.parametrize("made_by", [ByDLPack, ByInterface])
@pytest.mark.parametrize(("numpy", "dtype"), [(np.float32, f32), (np.int64, i64), (np.bool_, bool_)])
def test_elements_are_taken_where_they_lie(device: Device, made_by: Any, numpy: Any, dtype: object) -> None:
    array = np.zeros((2, 3), numpy)
    view = view_of(made_by(array), device)
    assert (view.address, view.shape, view.dtype) == (array.ctypes.data, (2, 3), dtype)
    assert view.owner is not None


def test_our_stream_waits_for_that_of_whoever_made_an_array(device: Device, fake: FakeCuda) -> None:
    array = np.zeros(3, np.float32)
    by_dlpack = ByDLPack(array)
    view_of(by_dlpack, device)
    assert by_dlpack.streams == [7]  # DLPack: the producer is told, and does it
    view_of(ByInterface(array, stream=9), device)
    view_of(ByInterface(array, stream=1), device)
    view_of(ByInterface(array, stream=7), device)
    view_of(ByInterface(array), device)
    assert fake.calls == ["stream 7 waits for 9", "stream 7 waits for legacy"]


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (ByInterface(np.zeros((4, 3), np.float32).T), "not row-major"),
        (ByDLPack(np.zeros((4, 3), np.float32).T), "not row-major"),
        (ByDLPack(np.zeros((4, 3), np.float32)[:, :2]), "not row-major"),
        (ByInterface(np.zeros(3, np.complex64)), "its elements are complex64"),
        (ByInterface(np.zeros(3, np.float32), mask=ByInterface(np.zeros(3, np.bool_))), "it is masked"),
        (ByDLPack(np.zeros(3, np.float32), (2, 1)), "it is on device 1, and the code on device 0"),
    ],
)
def test_an_array_that_cannot_be_taken_says_why(device: Device, array: object, why: str) -> None:
    with pytest.raises(ArrayError, match=why):
        view_of(array, device)


def test_strides_of_axes_with_one_element_do_not_matter(device: Device) -> None:
    assert view_of(ByInterface(np.zeros((3, 7, 5), np.float32)[:, :1, :][:1]), device).shape == (1, 1, 5)


def test_our_array_comes_back_to_the_host_as_a_copy(device: Device) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = DeviceArray(device, device.allocate(280), (2, 3), f32, offset_bytes=256)
    device.upload(array.address, values)
    np.testing.assert_array_equal(array.numpy(), values)
    np.testing.assert_array_equal(np.asarray(array), values)
    assert np.asarray(array, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="is copied"):
        array.__array__(copy=False)


def test_our_array_says_where_it_lies_and_which_stream_makes_it(device: Device) -> None:
    array = DeviceArray(device, device.allocate(24), (2, 3), f32)
    assert is_on_device(array)
    assert array.__cuda_array_interface__ == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f4",
        "data": (array.memory.address, False),
        "strides": None,
        "stream": 7,
    }
    assert array.__dlpack_device__() == (2, 0)


def test_types_without_a_letter_go_by_dlpack_alone(device: Device) -> None:
    assert not hasattr(DeviceArray(device, device.allocate(6), (3,), bf16), "__cuda_array_interface__")
    assert view_of(ByInterface(np.zeros(3, np.float32)), device).dtype is f32
    with pytest.raises(ArrayError, match="its elements are"):
        view_of(ByInterface(np.zeros(3, ml_dtypes.bfloat16)), device)


@pytest.mark.parametrize(
    ("stream", "waits"),
    [
        (None, ["stream legacy waits for 7"]),
        (1, ["stream legacy waits for 7"]),
        (2, ["stream per thread waits for 7"]),
        (9, ["stream 9 waits for 7"]),
        (7, []),
        (-1, []),
    ],
)
def test_the_stream_of_whoever_takes_our_array_waits_for_ours(
    device: Device, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, stream: int | None, waits: list[str]
) -> None:
    def from_buffer(buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return SimpleNamespace(__dlpack__=lambda **asked: (buffer.address, buffer.size, shape, dtype, asked))

    monkeypatch.setattr("codegen.cuda.arrays.utils", SimpleNamespace(StridedMemoryView=SimpleNamespace(from_buffer=from_buffer)))
    array = DeviceArray(device, device.allocate(512), (2, 3), bf16, offset_bytes=256)
    fake.calls.clear()
    capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
    assert capsule == (array.address, 12, (2, 3), np.dtype(ml_dtypes.bfloat16), {"stream": -1, "max_version": (1, 0)})
    assert fake.calls == waits
