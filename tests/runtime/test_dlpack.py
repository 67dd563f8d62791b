"""Arrays of other libraries, taken and given without a copy: of NumPy's types, of bf16 and f8, by either version of the protocol."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorlang as tl
from tensorlang.runtime.dlpack import imported
from tensorlang.saved import dlpack

Array = np.ndarray[Any, Any]

TEXT = """
op doubled[T: float](x: T[N]) -> (y: T[N]) { y[i] = x[i] + x[i] }
op turned[T](x: T[M, N]) -> (y: T[N, M]) { y[i, j] = x[j, i] }
"""
TYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    np.int8,
    np.uint64,
    np.bool_,
]


@pytest.fixture(scope="module")
def ops() -> tl.Operators:
    return tl.parse(TEXT, threads=1)


class Foreign:
    """A tensor of another library, with a version of the protocol or without."""

    def __init__(self, array: Array, *, versions: bool = True) -> None:
        self.array, self.versions, self.asked = array, versions, 0

    def __dlpack__(self, **options: Any) -> object:
        self.asked += 1
        if not self.versions and options:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        return tl.dlpack(self.array).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_of_every_type_are_taken_where_they_lie(dtype: Any, versions: bool) -> None:
    x = np.arange(24).reshape(4, 6).astype(dtype)
    for part in (x, x[1:, ::2], x.T, x[::-1], x[2, 3, ...], x[:0]):
        found = imported(Foreign(part, versions=versions))
        np.testing.assert_array_equal(found, part, strict=True)
        assert found.size == 0 or np.shares_memory(found, x)
        assert found.flags.writeable


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_calls_take_and_return_every_type(ops: tl.Operators, dtype: Any, versions: bool) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    for _ in range(2):
        found = ops.turned(Foreign(x, versions=versions))
        np.testing.assert_array_equal(found, x.T, strict=True)
    given = imported(tl.dlpack(found))
    np.testing.assert_array_equal(given, found, strict=True)
    assert np.shares_memory(given, found)


def test_results_of_the_usual_types_can_be_handed_on_as_they_are(ops: tl.Operators) -> None:
    y = ops.doubled(np.arange(4, dtype=np.float32))
    assert np.shares_memory(np.from_dlpack(y), y)
    assert np.shares_memory(np.from_dlpack(tl.dlpack(y)), y)


def test_a_capsule_of_bf16_says_so_and_its_memory_is_given_back_once() -> None:
    x = np.arange(5).astype(ml_dtypes.bfloat16)
    before = sys.getrefcount(x)
    for options in ({}, {"max_version": (1, 0)}):
        capsule = tl.dlpack(x).__dlpack__(**options)
        tensor = dlpack.tensor_in(capsule)[1].tensor
        assert (tensor.code, tensor.bits, tensor.lanes, tensor.rank) == (4, 16, 1, 1)
        del capsule, tensor
    found = imported(tl.dlpack(x))
    part = found[1:]
    del found
    gc.collect()
    assert sys.getrefcount(x) > before - 1 and part[0] == 1
    del part
    gc.collect()
    assert sys.getrefcount(x) == before


class Counted:
    """A tensor of three numbers of 32 bits that counts how often it is freed."""

    def __init__(self, code: int = 2, bits: int = 32, lanes: int = 1, *, device: int = 1, major: int = 1, flags: int = 0) -> None:
        self.freed, self.device = 0, device
        self.data, self.shape = (ctypes.c_float * 5)(9, 1, 2, 3, 9), (ctypes.c_int64 * 1)(3)
        self.deleter = dlpack._DELETER(self.free)
        tensor = dlpack._Tensor(ctypes.addressof(self.data), device, 0, 1, code, bits, lanes, self.shape, None, 4)
        self.managed = dlpack._Versioned(major, 7, None, ctypes.cast(self.deleter, ctypes.c_void_p).value, flags, tensor)

    def free(self, _: int) -> None:
        self.freed += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)

    def __dlpack__(self, **_: Any) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
        return new(ctypes.addressof(self.managed), b"dltensor_versioned", None)


def test_memory_is_freed_once_after_the_last_array_over_it(ops: tl.Operators) -> None:
    tensor = Counted()
    found = imported(tensor)
    part = found[::2]
    del found
    gc.collect()
    assert tensor.freed == 0
    np.testing.assert_array_equal(part, [1, 3])
    del part
    gc.collect()
    assert tensor.freed == 1
    np.testing.assert_array_equal(ops.doubled(Counted()), np.array([2, 4, 6], np.float32))


def test_what_is_read_only_stays_so(ops: tl.Operators) -> None:
    assert not imported(Counted(flags=1)).flags.writeable
    with pytest.raises(tl.RunError, match="read-only"):
        ops.doubled(np.ones(3, np.float32), out=Counted(flags=1))


class Immutable(Foreign):
    """An array that a library never changes, whose capsules say nothing about that: they are of before version 1."""

    def __array__(self, *_: Any, **__: Any) -> Array:
        view = self.array.view()
        view.flags.writeable = False
        return view


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_what_a_library_hands_to_numpy_as_read_only_is_not_written(ops: tl.Operators, dtype: Any) -> None:
    x, y = np.ones(3, dtype), np.zeros(3, dtype)
    given = Immutable(y, versions=False)
    for call in (lambda: ops.doubled(x, out=given), lambda: ops.doubled.prepared(x, out=given)):
        with pytest.raises(tl.RunError, match="read-only"):
            call()
    assert not y.any()
    np.testing.assert_array_equal(ops.doubled(Immutable(x, versions=False)), 2 * x)
    assert ops.doubled.prepared(Immutable(x, versions=False))().tolist() == [2, 2, 2]


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_results_are_written_into_tensors_of_others(ops: tl.Operators, dtype: Any, versions: bool) -> None:
    x, y = np.arange(5).astype(dtype), np.zeros(5, dtype)
    for _ in range(2):
        y[:] = 0
        given = Foreign(y, versions=versions)
        assert ops.doubled(Foreign(x, versions=versions), out=given) is given
        np.testing.assert_array_equal(y, x + x)
    again = ops.doubled.prepared(Foreign(x, versions=versions), out=given)
    x += 1
    assert again() is given
    np.testing.assert_array_equal(y, x + x)
    with pytest.raises(tl.RunError, match="R0307"):
        ops.doubled(Foreign(x), out=Foreign(x))


def test_a_prepared_model_returns_the_tensors_that_it_was_given() -> None:
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", ports[:1], ports[1:])
    model = tl.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), threads=1)
    x, y = np.array([-1, 2, -3], ml_dtypes.bfloat16), np.zeros(3, ml_dtypes.bfloat16)
    given = Foreign(y)
    assert model.prepared({"x": Foreign(x)}, {"y": given})()["y"] is given
    np.testing.assert_array_equal(y, np.maximum(x, 0))


class Refusing:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> object:
        raise BufferError("this tensor requires a gradient: use tensor.detach()")


class Nonsense(Refusing):
    def __dlpack__(self, **_: Any) -> object:
        return object()


class Negating(Counted):
    """A view like `z.conj().imag` of torch: its elements are not what lies in memory, which the protocol does not say."""

    def is_neg(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Refusing(), "tensor.detach()"),
        (Negating(), "tensor.resolve_neg()"),
        (Nonsense(), "no capsule of a tensor"),
        (Counted(device=2), "it lies on a device (of DLPack's type 2)"),
        (Counted(code=17, bits=64), "DLPack's type 17 with 64 bits"),
        (Counted(lanes=2), "2 lanes"),
        (Counted(code=0, bits=4), "4 bits"),
        (Counted(major=2), "version 2 of DLPack"),
    ],
)
def test_tensors_that_cannot_be_read_are_refused_with_the_reason(ops: tl.Operators, value: Any, told: str) -> None:
    for call in (lambda: ops.doubled(value), lambda: ops.doubled(x=value), lambda: ops.doubled(np.ones(3, np.float32), out=value)):
        with pytest.raises(tl.RunError, match="R0305") as refused:
            call()
        assert told in str(refused.value)


def test_only_arrays_are_handed_on() -> None:
    with pytest.raises(TypeError, match="an array of NumPy is expected, not list"):
        tl.dlpack([1.0])  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        tl.dlpack(np.zeros(2, ml_dtypes.int4)).__dlpack__()
