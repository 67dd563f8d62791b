"""A row of the table."""

from __future__ import annotations

from dataclasses import dataclass

from stdlib.onnx.site import Rule


@dataclass(frozen=True, slots=True)
class Entry:
    """`rule` serves `op` in every version of its definition from `first` to `last`."""

    op: str
    first: int
    last: int
    rule: Rule
