"""The arguments of a launch in memory of the host, as the driver reads them when it is asked for the launch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from codegen.cuda import tensor_maps
from codegen.gpu.dispatch import BoundMap


class Arguments:
    """Integers of eight bytes and tensor maps. `pointers`: where each of them lies, for as long as this object lives."""

    __slots__ = ("_memory", "pointers")

    def __init__(self, values: Sequence[int | BoundMap]) -> None:
        """Raises what `tensor_maps.make` raises."""
        slot = tensor_maps.ALIGNMENT
        assert slot >= tensor_maps.SIZE
        self._memory = ctypes.create_string_buffer(slot * (len(values) + 1))
        first = -(-ctypes.addressof(self._memory) // slot) * slot
        places = [first + slot * number for number in range(len(values))]
        for value, place in zip(values, places, strict=True):
            if isinstance(value, BoundMap):
                tensor_maps.make(value, place)
            else:
                ctypes.c_int64.from_address(place).value = value
        self.pointers = (ctypes.c_void_p * len(values))(*places)
