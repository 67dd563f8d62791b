"""Arrays taken from and given to other libraries in host memory, of element types that NumPy does not exchange: bf16, f8.

    imported(tensor)     an array over the memory of whatever speaks DLPack
    dlpack(array)        speaks DLPack for an array: `torch.from_dlpack(tl.dlpack(y))`

NumPy reads and makes the capsules of its own types. Of others it makes that of numbers of the same size, in which the type is then written;
what it does not read `tensorlang.saved.dlpack` reads.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, from_numpy
from tensorlang.saved import dlpack as reader
from tensorlang.saved.dlpack import BITS, CODES, OWN_CODES, tensor_in

Array = np.ndarray[Any, Any]


def imported(value: Any) -> Array:
    """Return an array over the memory of `value`, as `tensorlang.saved.dlpack` does, of any element type of the language."""
    return reader.imported(value, _types())


@cache
def _types() -> dict[tuple[int, int], np.dtype[Any]]:
    return {
        (OWN_CODES.get(dtype.name, CODES[dtype.kind]), 8 if dtype.kind == "bool" else dtype.bits): dtype.numpy for dtype in DTYPES.values()
    }


class Dlpack:
    """An array that speaks DLPack whatever its element type is; no element is copied."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        """Return a capsule; the options are those of `numpy.ndarray.__dlpack__`. Raises BufferError for a type that DLPack has not."""
        dtype = from_numpy(self.array.dtype)
        if dtype is None or dtype.name not in OWN_CODES:
            return self.array.__dlpack__(**options)
        capsule = self.array.view(BITS[self.array.dtype.itemsize]).__dlpack__(**options)
        tensor = tensor_in(capsule)[1].tensor
        tensor.code, tensor.bits = OWN_CODES[dtype.name], dtype.bits
        return capsule


def dlpack(array: Array) -> Dlpack:
    """Return `array`, a result of a call for example, as an object that speaks DLPack: `torch.from_dlpack(tl.dlpack(y))`. NumPy's arrays
    do that themselves, but for `bf16` and floats of eight bits. No element is copied. Raises TypeError for what is no array of NumPy."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"an array of NumPy is expected, not {type(array).__name__}")
    return Dlpack(array)
