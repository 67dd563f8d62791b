"""Tensor maps: what bulk copies take for a tensor on a device, made by the driver from the numbers of a launch.

Elements are copied as they are, so that only their size counts: bf16 goes as 16 bits.
"""

from __future__ import annotations

from typing import Any

from codegen.cuda.bindings import core, utils
from codegen.errors import InternalError
from codegen.gpu.dispatch import BoundMap

_SWIZZLES = {0: "NONE", 32: "SWIZZLE_32B", 64: "SWIZZLE_64B", 128: "SWIZZLE_128B"}


class _Tensor:
    """A tensor at an address, as NVIDIA's packages take it from others."""

    def __init__(self, bound: BoundMap) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": bound.extents,
            "strides": (*bound.strides_bytes, bound.element_bytes),
            "typestr": f"<u{bound.element_bytes}",
            "data": (bound.address + bound.offset_bytes, False),
        }


def made(bound: BoundMap) -> Any:
    """Return the argument that a kernel takes for a tensor map. Raises InternalError for one that no device takes."""
    if bound.problem is not None:
        raise InternalError("tensor map", bound.problem)
    view = utils.StridedMemoryView.from_cuda_array_interface(_Tensor(bound), stream_ptr=-1)
    kinds = type(core.TensorMapDescriptorOptions(box_dim=bound.box).swizzle)
    return view.as_tensor_map(bound.box, swizzle=kinds[_SWIZZLES[bound.swizzle]])
