"""Tensor maps: what bulk copies take for a tensor on a device, made by the driver from the numbers of a launch.

Elements are copied as they are, so that only their size counts: bf16 goes as 16 bits. The driver writes a map where it is told to,
which has to be at a multiple of `ALIGNMENT`; the objects that NVIDIA's packages have for it lie where Python's allocator puts them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from codegen.cuda.bindings import driver
from codegen.cuda.errors import DeviceError
from codegen.errors import InternalError
from codegen.gpu.dispatch import BoundMap

SIZE = 128
"""Bytes of a map."""
ALIGNMENT = 128
"""What its address on the host is a multiple of: the driver asks for 64, `cuda.h` of CUDA 13 declares 128."""

_ENCODE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, *[ctypes.c_void_p] * 5, *[ctypes.c_int] * 4)
"""Of the driver's `cuTensorMapEncodeTiled`: map, type of elements, axes, address, extents, strides, box, steps, interleave, swizzle,
promotion, what is read beyond the edges. Axes go from the innermost out."""
_SINCE = 12000
"""The version of CUDA that has it."""


def make(bound: BoundMap, place: int) -> None:
    """Have the driver write a map at an address of the host. Raises InternalError for one that no device takes, DeviceError for what the
    driver refuses."""
    if bound.problem is not None:
        raise InternalError("tensor map", bound.problem)
    rank = len(bound.extents)
    kind = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_UINT{8 * bound.element_bytes}")
    swizzle = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{f'{bound.swizzle}B' if bound.swizzle else 'NONE'}")
    # Blocks that run together copy neighbouring boxes, so what lies next to a box is fetched with it.
    promotion = driver.CUtensorMapL2promotion
    wide = bound.extents[-1] * bound.element_bytes >= 256
    near = promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B if wide else promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    status = _encode()(
        place,
        int(kind),
        rank,
        bound.address + bound.offset_bytes,
        _array(ctypes.c_uint64, bound.extents),
        _array(ctypes.c_uint64, bound.strides_bytes),
        _array(ctypes.c_uint32, bound.box),
        _array(ctypes.c_uint32, (1,) * rank),
        int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(swizzle),
        int(near),
        int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"{driver.CUresult(status).name} for {bound}")


def _array(kind: Any, numbers: Sequence[int]) -> Any:
    """Return numbers as the driver reads them; ours begin with the outermost axis."""
    return (kind * len(numbers))(*reversed(numbers))


def _encode() -> Any:
    status, address, *_ = driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", _SINCE, 0)
    if status != driver.CUresult.CUDA_SUCCESS or not address:
        raise DeviceError(f"the driver has no `cuTensorMapEncodeTiled` ({status.name})")
    return _ENCODE(int(address))
