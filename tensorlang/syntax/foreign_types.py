"""What other languages call the types of elements."""

from __future__ import annotations

import re

TYPES = {"float": "f32", "double": "f64", "int": "i32", "long": "i64", "bool": "bool", "half": "f16", "char": "i8", "float32": "f32"}
_SIZED = re.compile(r"(float|uint|int|bf|f|u|i)(4|8|16|32|64)(?:_t)?")


def element_type(name: str) -> str | None:
    """Return what an element type is called here that other languages call `name`; None where it is none."""
    sized = _SIZED.fullmatch(name)
    return TYPES.get(name) or (f"{'bf' if sized[1] == 'bf' else sized[1][0]}{sized[2]}" if sized is not None else None)
