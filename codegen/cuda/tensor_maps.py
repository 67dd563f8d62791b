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
    options = core.TensorMapDescriptorOptions(box_dim=bound.box)
    swizzles, fetched = type(options.swizzle), type(options.l2_promotion)
    # Blocks that run together copy neighbouring boxes, so what lies next to a box is fetched with it.
    near = fetched.L2_256B if bound.extents[-1] * bound.element_bytes >= 256 else fetched.L2_128B
    return view.as_tensor_map(bound.box, swizzle=swizzles[_SWIZZLES[bound.swizzle]], l2_promotion=near)
