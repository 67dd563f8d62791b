"""What bulk copies of a box have to know of its tensor, and where the box begins."""

from __future__ import annotations

from collections.abc import Mapping

from codegen.errors import InternalError
from codegen.gpu.copied_boxes import UNIT, stepped
from codegen.gpu.program import TensorMap
from codegen.loops.indices import simplify_index
from codegen.loops.nodes import Add, Box, Buffer, FloorDiv, Index, Int, Mul


def map_of(box: Box, buffers: Mapping[str, Buffer]) -> TensorMap:
    """Return the tensor map of a box, or of the part of it that one block asks for, without a name: axes are in the order of the buffer
    that the box goes to, and one along which it takes every n-th element has these elements alone."""
    tensor, swizzle = buffers[box.source.buffer], buffers[box.target.buffer].swizzle
    pitches: list[Index] = [Int(1)]
    for extent in reversed(tensor.shape[1:]):
        pitches.insert(0, simplify_index(Mul(pitches[0], extent), {}))
    extents, strides = [], []
    offset: Index = Int(0)
    for axis, (extent, pitch) in enumerate(zip(tensor.shape, pitches, strict=True)):
        step, first = box.step(axis), start(box, axis)[1]
        extents.append(extent if step == 1 else simplify_index(FloorDiv(Add(extent, Int(step - 1 - first)), Int(step)), {}))
        unused = extent == Int(1) and pitch == Int(1)  # the hardware takes whole units for an axis without a second element, too
        strides.append(Int(UNIT // tensor.dtype.size_bytes) if unused else simplify_index(Mul(Int(step), pitch), {}))
        offset = Add(offset, Mul(Int(first), pitch))
    return TensorMap(
        "",
        tensor.name,
        tensor.dtype,
        tuple(extents[axis] for axis in box.axes),
        tuple(strides[axis] for axis in box.axes[:-1]),
        tuple(box.extents[axis] // (box.blocks if axis == box.parted else 1) for axis in box.axes),
        swizzle,
        simplify_index(offset, {}),
    )


def start(box: Box, axis: int) -> tuple[Index, int]:
    """Return where a box begins along an axis, counted in its steps, and the first element of those that it steps through."""
    found = stepped(box.source.index[axis], box.step(axis))
    if found is None:
        raise InternalError("gpu", f"a box of `{box.source.buffer}` begins between its steps")
    return found
