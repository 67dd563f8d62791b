"""Instructions that a file names itself, by the name LLVM has for them: what they are said to compute, without a word about how.

result[lane] = [c[lane] +] a[lane, 0] * b[lane, 0] + … + a[lane, count - 1] * b[lane, count - 1]
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from codegen.dtypes import DType, f32, f64
from codegen.loops import dots

NAME = re.compile(r"llvm(\.[a-zA-Z0-9_]+)+")
"""How LLVM's intrinsics are named; nothing else reaches the text of a module."""


def is_name(text: str) -> bool:
    """Tell whether `text` could be the name of an intrinsic of LLVM."""
    return NAME.fullmatch(text) is not None and len(text) <= 100


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An intrinsic of LLVM with the operands that a declaration gives it.

    `operands` are `a`, `b` and perhaps `c`, in the order in which LLVM takes them; `needs` the features of processors that have it."""

    name: str
    needs: tuple[str, ...]
    operands: tuple[str, ...]
    a: DType
    b: DType
    total: DType
    lanes: int
    count: int

    @property
    def is_supported(self) -> bool:
        """Tell whether loops have a node that it can stand for: a multiply-add of floats rounded once, or a sum of products of integers."""
        if self.count == 1:
            return self.a == self.b == self.total and self.total in (f32, f64) and "c" in self.operands
        exact = self.a.is_integer and dots.accumulator(self.a, self.b) == self.total
        return exact and self.count == dots.group(self.a)

    def dtype(self, operand: str) -> DType:
        """Return the element type of one of its operands."""
        return {"a": self.a, "b": self.b, "c": self.total}[operand]

    def elements(self, operand: str) -> int:
        """Return how many elements of an operand it takes: those of all lanes."""
        return self.lanes * (1 if operand == "c" else self.count)
