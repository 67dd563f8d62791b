"""Arrays taken from and given to other libraries in host memory, of element types that NumPy does not exchange: bf16, f8.

    imported(tensor)     an array over the memory of whatever speaks DLPack
    dlpack(array)        speaks DLPack for an array: `torch.from_dlpack(tl.dlpack(y))`

NumPy reads and makes the capsules of its own types. Of others it makes that of numbers of the same size, in which the type is then written;
what it does not read is read here, as the header `dlpack.h` lays it out.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType, from_numpy

Array = np.ndarray[Any, Any]

VERSION = (1, 0)
"""The latest version of the protocol that is read here."""
_HOST = frozenset((1, 3, 11))  # memory of the host, some of it pinned for CUDA or ROCm
_READ_ONLY, _PADDED = 1, 4
_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_OWN_CODES = {"bf16": 4, "f8e4m3": 10, "f8e4m3fnuz": 11, "f8e5m2": 12, "f8e5m2fnuz": 13}
_BITS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


_DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """A tensor and who frees it, before version 1."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))
    flags = 0
    major = 1


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_KINDS: dict[bytes, type[_Managed | _Versioned]] = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
_USED = {name: ctypes.create_string_buffer(b"used_" + name) for name in _KINDS}
"""What a capsule is called once its tensor belongs to whoever read it."""

_is_called = ctypes.pythonapi.PyCapsule_IsValid
_is_called.argtypes, _is_called.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes, _rename.restype = (ctypes.py_object, ctypes.c_void_p), ctypes.c_int


class _Owner:
    """Keeps the memory of a tensor for arrays over it, and gives it back after the last."""

    def __init__(self, managed: _Managed | _Versioned, interface: dict[str, Any]) -> None:
        self._managed = managed
        self.__array_interface__ = interface

    def __del__(self) -> None:
        if self._managed.deleter:
            _DELETER(self._managed.deleter)(ctypes.addressof(self._managed))


def imported(value: Any) -> Array:
    """Return an array over the memory of `value`, which speaks DLPack and lies in the host's memory; it can be written to unless `value`
    says otherwise. Raises what `value` raises, BufferError for what cannot be an array, or ValueError."""
    device = int(value.__dlpack_device__()[0])
    if device not in _HOST:
        raise BufferError(f"it lies on a device (of DLPack's type {device}), not in the host's memory")
    try:
        capsule = value.__dlpack__(max_version=VERSION)
    except TypeError:  # made before there were versions
        capsule = value.__dlpack__()
    name, managed = _managed(capsule)
    if managed.major > VERSION[0]:
        raise BufferError(f"it speaks version {managed.major} of DLPack, which is newer than {VERSION[0]}")
    tensor = managed.tensor
    dtype, shape = _dtype(tensor, managed.flags), tuple(tensor.shape[k] for k in range(tensor.rank))
    size = dtype.numpy.itemsize
    strides = tuple(tensor.strides[k] * size for k in range(tensor.rank)) if tensor.strides else None
    address = (tensor.data or 0) + tensor.offset
    bits = dtype.numpy if dtype.name not in _OWN_CODES else _BITS[size]
    interface = {"shape": shape, "strides": strides, "data": (address, bool(managed.flags & _READ_ONLY)), "typestr": bits.str, "version": 3}
    _rename(capsule, ctypes.addressof(_USED[name]))
    owner = _Owner(managed, interface)
    return np.empty(shape, dtype.numpy) if 0 in shape else np.asarray(owner).view(dtype.numpy)


def _managed(capsule: object) -> tuple[bytes, _Managed | _Versioned]:
    """Return the tensor of a capsule that nobody has read yet, and what such capsules are called."""
    name = next((name for name in _KINDS if _is_called(capsule, name)), None)
    if name is None:
        raise ValueError(f"`__dlpack__` returned {capsule!r}, which is no capsule of a tensor")
    return name, _KINDS[name].from_address(_pointer(capsule, name))


def _dtype(tensor: _Tensor, flags: int) -> DType:
    """Return the element type of a tensor. Raises BufferError for one that the language does not have."""
    for dtype in DTYPES.values():
        code = _OWN_CODES.get(dtype.name, _CODES[dtype.kind])
        bits = 8 if dtype.kind == "bool" else dtype.bits
        if (code, bits, 1) == (tensor.code, tensor.bits, tensor.lanes) and (bits >= 8 or flags & _PADDED):
            return dtype
    raise BufferError(f"its elements are of DLPack's type {tensor.code} with {tensor.bits} bits and {tensor.lanes} lanes")


class Dlpack:
    """An array that speaks DLPack whatever its element type is; no element is copied."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        """Return a capsule; the options are those of `numpy.ndarray.__dlpack__`. Raises BufferError for a type that DLPack has not."""
        dtype = from_numpy(self.array.dtype)
        if dtype is None or dtype.name not in _OWN_CODES:
            return self.array.__dlpack__(**options)
        capsule = self.array.view(_BITS[self.array.dtype.itemsize]).__dlpack__(**options)
        tensor = _managed(capsule)[1].tensor
        tensor.code, tensor.bits = _OWN_CODES[dtype.name], dtype.bits
        return capsule


def dlpack(array: Array) -> Dlpack:
    """Return `array`, a result of a call for example, as an object that speaks DLPack: `torch.from_dlpack(tl.dlpack(y))`. NumPy's arrays
    do that themselves, but for `bf16` and floats of eight bits. No element is copied. Raises TypeError for what is no array of NumPy."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"an array of NumPy is expected, not {type(array).__name__}")
    return Dlpack(array)
