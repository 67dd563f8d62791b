"""Arrays over the memory of what speaks DLPack, of element types that NumPy lacks, too.

NumPy reads the capsules of its own types alone. Others are read here, as the header `dlpack.h` lays them out."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

VERSION = (1, 0)
"""The latest version of the protocol that is read here."""
_HOST = frozenset((1, 3, 11))  # memory of the host, some of it pinned for CUDA or ROCm
_READ_ONLY, _PADDED = 1, 4
CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
OWN_CODES = {"bf16": 4, "f8e4m3": 10, "f8e4m3fnuz": 11, "f8e5m2": 12, "f8e5m2fnuz": 13}
"""What DLPack calls kinds of element types, and those that have a code each."""
BITS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}
"""NumPy's numbers of as many bytes."""


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


def imported(value: Any, types: Mapping[tuple[int, int], np.dtype[Any]]) -> Array:
    """Return an array over the memory of `value`, which speaks DLPack and lies in the host's memory; it can be written to unless `value`
    says otherwise. `types` are the element types that it may have, by their codes and bits. Raises what `value` raises, BufferError for
    what cannot be an array, or ValueError."""
    device = int(value.__dlpack_device__()[0])
    if device not in _HOST:
        raise BufferError(f"it lies on a device (of DLPack's type {device}), not in the host's memory")
    try:
        capsule = value.__dlpack__(max_version=VERSION)
    except TypeError:  # made before there were versions
        capsule = value.__dlpack__()
    name, managed = tensor_in(capsule)
    if managed.major > VERSION[0]:
        raise BufferError(f"it speaks version {managed.major} of DLPack, which is newer than {VERSION[0]}")
    tensor = managed.tensor
    dtype, shape = _dtype(tensor, managed.flags, types), tuple(tensor.shape[k] for k in range(tensor.rank))
    size = dtype.itemsize
    strides = tuple(tensor.strides[k] * size for k in range(tensor.rank)) if tensor.strides else None
    address = (tensor.data or 0) + tensor.offset
    bits = dtype if dtype.isbuiltin == 1 else BITS[size]
    interface = {"shape": shape, "strides": strides, "data": (address, bool(managed.flags & _READ_ONLY)), "typestr": bits.str, "version": 3}
    _rename(capsule, ctypes.addressof(_USED[name]))
    owner = _Owner(managed, interface)
    return np.empty(shape, dtype) if 0 in shape else np.asarray(owner).view(dtype)


def tensor_in(value: object) -> tuple[bytes, _Managed | _Versioned]:
    """Return the tensor of a capsule that nobody has read yet, and what such capsules are called."""
    name = next((name for name in _KINDS if _is_called(value, name)), None)
    if name is None:
        raise ValueError(f"`__dlpack__` returned {value!r}, which is no capsule of a tensor")
    return name, _KINDS[name].from_address(_pointer(value, name))


def _dtype(tensor: _Tensor, flags: int, types: Mapping[tuple[int, int], np.dtype[Any]]) -> np.dtype[Any]:
    """Return the element type of a tensor. Raises BufferError for one that is not among `types`."""
    found = types.get((tensor.code, tensor.bits))
    if found is None or tensor.lanes != 1 or (tensor.bits < 8 and not flags & _PADDED):
        raise BufferError(f"its elements are of DLPack's type {tensor.code} with {tensor.bits} bits and {tensor.lanes} lanes")
    return found
