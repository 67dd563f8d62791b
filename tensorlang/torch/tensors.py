"""Tensors of torch as arrays over the same memory, and arrays as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from codegen.dtypes import DTYPES, DType
from tensorlang.diagnostics import Diagnostic, exception

Array = np.ndarray[Any, Any]

_NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip
TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, theirs) for name, theirs in _NAMES.items()}
"""What torch calls the element types that both have."""
_DTYPES: dict[torch.dtype, DType] = {theirs: DTYPES[name] for name, theirs in TORCH_DTYPES.items()}
_BITS: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    theirs: (torch.int16 if DTYPES[name].bits == 16 else torch.uint8, DTYPES[name].numpy)
    for name, theirs in TORCH_DTYPES.items()
    if name == "bf16" or name.startswith("f8")
}
"""The types that NumPy and torch do not exchange: integers of as many bits, which they do, and NumPy's own type."""
_OF_BITS = {ours: (np.dtype(np.int16 if bits == torch.int16 else np.uint8), theirs) for theirs, (bits, ours) in _BITS.items()}


def dtype_of(theirs: torch.dtype, what: str) -> DType:
    """Return an element type of torch. Raises RunError R0303 for one that the language lacks."""
    found = _DTYPES.get(theirs)
    if found is None:
        title = f"{what} has the element type {theirs}, which the language does not have"
        raise exception(Diagnostic("R0303", title, help="convert it: `tensor.to(torch.float32)`"))
    return found


def array_of(tensor: torch.Tensor) -> Array:
    """Return an array over the memory of a tensor of the host. Nothing is copied but views that negate."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    bits = _BITS.get(tensor.dtype)
    if bits is None:
        return tensor.numpy()  # type: ignore[no-any-return]
    return tensor.view(bits[0]).numpy().view(bits[1])  # type: ignore[no-any-return]


def tensor_of(array: Array) -> torch.Tensor:
    """Return a tensor over the memory of an array."""
    bits = _OF_BITS.get(array.dtype)
    return torch.from_numpy(array) if bits is None else torch.from_numpy(array.view(bits[0])).view(bits[1])
