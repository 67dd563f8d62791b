"""What emission decided, for whoever explains a kernel: which reads take an element for each lane, and which label a loop begins at.

for y_iv in 0 .. 16 vector 16 { y[y_iv] = x[value(ids[y_iv])] }        x[value(ids[y_iv])]: gathered     ids[y_iv]: not there
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from codegen.loops.nodes import Load

LaneReads = Literal["strided", "gathered", "lanes"]
"""Of a vector: taken out of whole vectors that lie a few elements apart, gathered, or one element after the other for each lane."""


@dataclass(slots=True)
class Emitted:
    """`reads`: how vectors are read whose elements are no neighbours. `loops`: the variables of the loops that begin at a label, which is
    the same in several functions of a kernel."""

    reads: dict[Load, LaneReads] = field(default_factory=dict)
    loops: dict[str, set[str]] = field(default_factory=dict)

    def note_loop(self, label: str, var: str) -> None:
        """Note that the loop over `var` begins at `label`."""
        self.loops.setdefault(label, set()).add(var)
