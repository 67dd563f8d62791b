"""What arrays of other libraries do not tell by the protocols that hand them over."""

from __future__ import annotations

from typing import Any


def negates_memory(value: Any) -> bool:
    """Tell whether the elements of an array are the negation of what lies in its memory, as those of `z.conj().imag` in torch: neither
    DLPack nor `__cuda_array_interface__` says so, and torch hands such views over all the same."""
    asked = getattr(value, "is_neg", None)
    return callable(asked) and asked() is True
