"""Which sizes are numbers in the kernels of an operator that meets one shape after the other (`sizes="auto"`).

The first two shapes have kernels of their own. With the third, the sizes that have differed become symbols, and all the others stay
numbers: a kernel that knows how long its rows are is faster, and what never changes need not be open. A size that changes later makes
one more kernel, in which it is a symbol, too. A size of one stays a number always, and so does a dimension that is repeated: loops that
do not loop are scheduled in another way.

All sizes stay numbers where open ones cannot be compiled and proven, or only under a plainer schedule than the known ones have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from tensorlang.diagnostics import error

Sizes: TypeAlias = Literal["auto", "static", "symbolic"]
"""How kernels are made for the shapes that calls bring: as told above, one for each combination, or one for all."""

FIXED = 2
"""How many combinations of sizes have kernels of their own."""


def checked_sizes(sizes: object) -> Sizes:
    """Return `sizes` if it is a way to make kernels. Raises CompileError C0105."""
    found: Sizes | None = next((mode for mode in get_args(Sizes) if mode == sizes), None)
    if found is None:
        raise error("C0105", f"sizes cannot be `{sizes}`", help="they are `auto`, `static` or `symbolic`")
    return found


def ones(sizes: Mapping[str, int], arrays: Sequence[Any]) -> tuple[object, ...]:
    """Return which of the sizes, and of the dimensions of arrays, are one."""
    return (frozenset(name for name, size in sizes.items() if size == 1), *(tuple(n == 1 for n in a.shape) for a in arrays))


@dataclass(slots=True)
class Specialization:
    """The sizes of calls that agree in all but sizes, and in which of those are one."""

    first: Mapping[str, int] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)
    count: int = 0
    plain: bool = False
    """Whether a kernel of known sizes has a plainer schedule than what is derived first."""
    refused: bool = False
    """Whether code for open sizes was tried in vain."""

    def note(self, sizes: Mapping[str, int]) -> None:
        """Take down the sizes of a call that no kernel serves."""
        self.first = self.first or dict(sizes)
        self.dynamic.update(name for name, size in sizes.items() if self.first.get(name) != size)
        self.count += 1

    @property
    def opens(self) -> bool:
        """Whether a kernel of open sizes is to be made for the last call."""
        return self.count > FIXED and bool(self.dynamic) and not self.refused

    def fixed(self, sizes: Mapping[str, int]) -> frozenset[str]:
        """Return the sizes that stay numbers."""
        return frozenset(sizes) - self.dynamic
